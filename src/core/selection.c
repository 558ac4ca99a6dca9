/* Selecting the elements of a tensor that an index names. */

#include "core.h"

void
release_selection(Selection *selection)
{
    Py_CLEAR(selection->index);
    Py_CLEAR(selection->lengths);
    Py_CLEAR(selection->at);
    Py_CLEAR(selection->shape);
}

/* Record what a template selects. All elements in their order are a reshape, or the tensor itself. */
PyObject *
record_selection(PyObject *x, const Selection *selection)
{
    PyObject *given[MOST_ITEMS + 3] = {x};
    if (PyTuple_GET_SIZE(selection->index) == 0) {
        return Py_NewRef(x);
    }
    if (selection->covers) {
        given[1] = selection->shape;
        return record_any((OpObject *)reshape_op, given, 1, names_shape);
    }
    Py_ssize_t operands = PyTuple_GET_SIZE(selection->at);
    int gathers = has_arrays(selection->index);
    memcpy(given + 1, &PyTuple_GET_ITEM(selection->at, 0), (size_t)operands * sizeof(PyObject *));
    given[1 + operands] = selection->index;
    given[2 + operands] = selection->lengths;
    return gathers < 0 ? NULL : record_any((OpObject *)(gathers ? gather_op : slice_op), given, 1 + operands, names_pick);
}

PyDoc_STRVAR(plain_index_doc,
"plain_index(x, index, /)\n--\n\n"
"Return template, lengths and operands of an index; None where the general way has a say.");

static PyObject *
plain_index(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("plain_index", nargs, 2) < 0 || check_nodes(NULL, args, 1) < 0) {
        return NULL;
    }
    Selection selection;
    PyObject *found = NULL;
    int understood = read_selection(args[0], args[1], &selection);
    if (understood >= 0) {
        found = understood == 0 ? Py_NewRef(Py_None) : PyTuple_Pack(3, selection.index, selection.lengths, selection.at);
    }
    release_selection(&selection);
    return found;
}

/* Record what an index selects; NULL, without an exception, where the general way has a say. */
static PyObject *
selected_by(PyObject *x, PyObject *index)
{
    Selection selection;
    int understood = read_selection(x, index, &selection);
    PyObject *found = understood > 0 ? record_selection(x, &selection) : NULL;
    release_selection(&selection);
    return found;
}

PyDoc_STRVAR(pick_doc,
"pick(x, index, /)\n--\n\n"
"Return the node for what an index selects from a tensor; None where the general way has a say.");

static PyObject *
pick(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("pick", nargs, 2) < 0 || check_nodes(NULL, args, 1) < 0) {
        return NULL;
    }
    PyObject *found = selected_by(args[0], args[1]);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* What an index selects from a tensor. The ops come with the general way, which is loaded when it is first asked. */
PyObject *
tensor_item(PyObject *x, PyObject *index)
{
    PyObject *found = gather_op == NULL || slice_op == NULL ? NULL : selected_by(x, index);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    if (general_item == NULL) {
        return PyErr_Format(PyExc_RuntimeError, "the core has not been told what an index selects");
    }
    return PyObject_CallFunctionObjArgs(general_item, x, index, NULL);
}

PyMethodDef selection_methods[] = {
    {"pick", FAST(pick), METH_FASTCALL, pick_doc},
    {"plain_index", FAST(plain_index), METH_FASTCALL, plain_index_doc},
    {NULL},
};
