/* What engines count in every step. Python's classes are made from these, so that C can add to the numbers. */

#include "evaluation.h"

PyObject *counters, *bounds;

static PyMemberDef counter_members[] = {
    {"calls", T_LONGLONG, offsetof(CountersObject, calls), 0, NULL},
    {"chains", T_LONGLONG, offsetof(CountersObject, chains), 0, NULL},
    {"derivatives", T_LONGLONG, offsetof(CountersObject, derivatives), 0, NULL},
    {"evaluations", T_LONGLONG, offsetof(CountersObject, evaluations), 0, NULL},
    {"fragments", T_LONGLONG, offsetof(CountersObject, fragments), 0, NULL},
    {"kernel_calls", T_LONGLONG, offsetof(CountersObject, kernel_calls), 0, NULL},
    {"plan_hits", T_LONGLONG, offsetof(CountersObject, plan_hits), 0, NULL},
    {"plan_misses", T_LONGLONG, offsetof(CountersObject, plan_misses), 0, NULL},
    {"slabs_dropped", T_LONGLONG, offsetof(CountersObject, slabs_dropped), 0, NULL},
    {NULL},
};

PyTypeObject CountersType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.CountersBase",
    .tp_doc = "Counters of what is made and run; see `unspool._statistics.Statistics`.",
    .tp_basicsize = sizeof(CountersObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_members = counter_members,
};

/* Note that a call was made that has so many instructions and an id. */
void
note_bounds(long long length, long long newest)
{
    BoundsObject *all = (BoundsObject *)bounds;
    if (all != NULL) {
        all->length = length > all->length ? length : all->length;
        all->newest = newest > all->newest ? newest : all->newest;
    }
}

static PyObject *
bounds_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    BoundsObject *made = (BoundsObject *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->newest = -1;
    }
    return (PyObject *)made;
}

static PyMemberDef bounds_members[] = {
    {"length", T_LONGLONG, offsetof(BoundsObject, length), READONLY, NULL},
    {"newest", T_LONGLONG, offsetof(BoundsObject, newest), READONLY, NULL},
    {NULL},
};

PyDoc_STRVAR(bounds_note_doc,
"note(length, id, /)\n--\n\nNote that a call was made that has so many instructions and an id.");

static PyObject *
bounds_note(PyObject *self, PyObject *args)
{
    long long length, newest;
    if (!PyArg_ParseTuple(args, "LL", &length, &newest)) {
        return NULL;
    }
    note_bounds(length, newest);
    Py_RETURN_NONE;
}

static PyMethodDef bounds_methods[] = {
    {"note", bounds_note, METH_VARARGS, bounds_note_doc},
    {NULL},
};

PyTypeObject BoundsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Bounds",
    .tp_doc = "What holds of all calls that were ever made: how many instructions they have, and how young they are, at most.",
    .tp_basicsize = sizeof(BoundsObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = bounds_new,
    .tp_members = bounds_members,
    .tp_methods = bounds_methods,
};
