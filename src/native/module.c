/* The module `unspool._native`. */

#define UNSPOOL_NATIVE_MODULE
#include "native.h"

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "unspool._native",
    .m_doc = "Plans as tables of instructions over NumPy's inner loops.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    import_array();
    import_umath();
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddType(module, &ProgramType) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
