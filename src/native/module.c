/* The module `unspool._native`. */

#define UNSPOOL_NATIVE_MODULE
#include "native.h"

static PyMethodDef functions[] = {
    {"start_profile", profile_start, METH_NOARGS, "start_profile()\n--\n\nMeasure every instruction from now on."},
    {"stop_profile", profile_stop, METH_NOARGS, "stop_profile()\n--\n\nReturn what was measured."},
    {"counted", profile_counted, METH_NOARGS, "counted()\n--\n\nReturn the nanoseconds measured so far."},
    {"look", profile_look, METH_NOARGS, "look()\n--\n\nReturn the nanoseconds of a look at the clock."},
    {"count", profile_count, METH_O, "count(nanoseconds)\n--\n\nCount what was measured elsewhere."},
    {"empty", memory_empty, METH_VARARGS,
     "empty(shape, dtype, /)\n--\n\nReturn a new array, whose memory is kept for others when it dies."},
    {"limit_kept", memory_limit, METH_O,
     "limit_kept(nbytes, /)\n--\n\nSet how many bytes are kept; return how many it were before."},
    {"kept_bytes", memory_kept, METH_NOARGS, "kept_bytes()\n--\n\nReturn how many bytes are kept."},
    {"run_chain", run_chain, METH_VARARGS,
     "run_chain(indices, registers, kinds, runs, which, state, constants, varying, rows, stacks, /)\n--\n\n"
     "Run steps of a chain, one for each number in ``indices``: see `unspool._autodiff.sweeps.chain`. ``which`` has the kind of\n"
     "each step of the chain, or is empty; ``rows`` where the next row of each kind goes. What is in registers, and what\n"
     "left last of each kind, is in the list ``state``, before and after."},
    {NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "unspool._native",
    .m_doc = "Plans as tables of instructions over NumPy's inner loops.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    import_array();
    import_umath();
    if (memory_setup() < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddType(module, &ProgramType) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
