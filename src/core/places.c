/* Whether places outside a traced function hold what they held; every call of a fragment asks. */

#include "core.h"

/* What a namespace has under a name, a new reference; NULL without an error if there is nothing. */
static PyObject *
content_of(PyObject *where, PyObject *name)
{
    if (PyDict_CheckExact(where)) {
        return Py_XNewRef(PyDict_GetItemWithError(where, name));
    }
    PyObject *content = PyObject_GetItem(where, name);
    if (content == NULL && PyErr_ExceptionMatches(PyExc_KeyError)) {
        PyErr_Clear();
    }
    return content;
}

/* Whether entry (namespace, name, content) holds; content is `missing` where there was nothing. -1 is an error. */
static int
name_holds(PyObject *entry, PyObject *missing)
{
    PyObject *now = content_of(PyTuple_GET_ITEM(entry, 0), PyTuple_GET_ITEM(entry, 1));
    if (now == NULL && PyErr_Occurred()) {
        return -1;
    }
    int holds = PyTuple_GET_ITEM(entry, 2) == (now == NULL ? missing : now);
    Py_XDECREF(now);
    return holds;
}

static int
same(PyObject *now, PyObject *content)
{
    return (now == NULL ? Py_None : now) == content;
}

/* Whether entry (function, defaults, defaults by keyword, code) holds. */
static int
function_holds(PyObject *entry, PyObject *missing)
{
    PyObject *function = PyTuple_GET_ITEM(entry, 0);
    if (!PyFunction_Check(function)) {
        PyErr_SetString(PyExc_TypeError, "only functions have defaults");
        return -1;
    }
    return same(PyFunction_GetDefaults(function), PyTuple_GET_ITEM(entry, 1)) &&
           same(PyFunction_GetKwDefaults(function), PyTuple_GET_ITEM(entry, 2)) &&
           same(PyFunction_GetCode(function), PyTuple_GET_ITEM(entry, 3));
}

static int
cell_holds(PyObject *entry, PyObject *missing)
{
    if (!PyCell_Check(PyTuple_GET_ITEM(entry, 0))) {
        PyErr_SetString(PyExc_TypeError, "only cells hold variables of functions");
        return -1;
    }
    PyObject *now = PyCell_Get(PyTuple_GET_ITEM(entry, 0));
    int holds = PyTuple_GET_ITEM(entry, 1) == (now == NULL ? missing : now);
    Py_XDECREF(now);
    return holds;
}

/* Whether entry (object, class, namespace) holds; the namespace is None for an object that has none. */
static int
class_holds(PyObject *entry, PyObject *missing)
{
    PyObject *object = PyTuple_GET_ITEM(entry, 0), *names = PyTuple_GET_ITEM(entry, 2);
    if ((PyObject *)Py_TYPE(object) != PyTuple_GET_ITEM(entry, 1)) {
        return 0;
    }
    if (names == Py_None) {
        return 1;
    }
    PyObject *now = PyObject_GenericGetDict(object, NULL);
    Py_XDECREF(now);
    return now == NULL ? -1 : now == names;
}

static const struct {
    Py_ssize_t length;
    int (*holds)(PyObject *, PyObject *);
} kinds[] = {{3, name_holds}, {4, function_holds}, {2, cell_holds}, {3, class_holds}};

PyDoc_STRVAR(all_hold_doc,
             "all_hold(missing, names, functions, cells, classes): whether each of these places, tuples of where and "
             "what, holds the very object it held.");

static PyObject *
all_hold(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("all_hold", nargs, 1 + Py_ARRAY_LENGTH(kinds)) < 0) {
        return NULL;
    }
    for (size_t kind = 0; kind < Py_ARRAY_LENGTH(kinds); kind++) {
        PyObject *entries = args[1 + kind];
        if (!PyTuple_CheckExact(entries)) {
            return PyErr_Format(PyExc_TypeError, "places come in tuples");
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); i++) {
            PyObject *entry = PyTuple_GET_ITEM(entries, i);
            if (!PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != kinds[kind].length) {
                return PyErr_Format(PyExc_TypeError, "a place is a tuple of %zd things", kinds[kind].length);
            }
            int found = kinds[kind].holds(entry, args[0]);
            if (found <= 0) {
                return found < 0 ? NULL : Py_NewRef(Py_False);
            }
        }
    }
    Py_RETURN_TRUE;
}

PyMethodDef place_methods[] = {
    {"all_hold", FAST(all_hold), METH_FASTCALL, all_hold_doc},
    {NULL},
};
