/* Pieces that wait to be folded: what they hold, and what they refer to. */

#include "holding.h"

static PyObject *name_derivatives, *name_fragment, *name_outputs, *name_references;

PyDoc_STRVAR(add_piece_doc,
"add_piece(found, piece, /)\n--\n\n"
"Enter the memory of the values of a piece that waits to be folded into a dict of bytes by what identifies it.");

static PyObject *
add_piece(PyObject *module, PyObject *args)
{
    PyObject *found;
    PieceObject *piece;
    if (!PyArg_ParseTuple(args, "O!O!:add_piece", &PyDict_Type, &found, &PieceType, &piece)) {
        return NULL;
    }
    Memories memory;
    memories_begin(&memory);
    int failed = memories_add_tuple(&memory, piece->residuals) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(piece->outputs); i++) {
        NodeObject *node = output_alive(piece, i);
        failed = node != NULL && node->value != Py_None && memories_add(&memory, node->value) < 0;
    }
    failed = failed || enter_memories(found, &memory) < 0;
    memories_end(&memory);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Add to how often a node is referred to. */
static int
add_references(PyObject *known, NodeObject *node, Py_ssize_t more)
{
    PyObject *before = PyDict_GetItemWithError(known, node->id);
    if (before == NULL && PyErr_Occurred()) {
        return -1;
    }
    PyObject *number = PyLong_FromSsize_t(more + (before == NULL ? 0 : PyLong_AsSsize_t(before)));
    int failed = number == NULL || PyDict_SetItem(known, node->id, number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* How often the nodes that live outputs keep refer to each slot, which Python counts once for each choice of them. */
static PyObject *
reference_counts(PieceObject *piece, PyObject *plan, PyObject *count)
{
    Py_ssize_t outputs = PyList_GET_SIZE(piece->outputs);
    PyObject *alive_ones = PyTuple_New(outputs);
    for (Py_ssize_t i = 0; alive_ones != NULL && i < outputs; i++) {
        PyTuple_SET_ITEM(alive_ones, i, PyBool_FromLong(output_alive(piece, i) != NULL));
    }
    PyObject *derivatives = alive_ones == NULL ? NULL : PyObject_GetAttr(plan, name_derivatives);
    PyObject *key = derivatives == NULL ? NULL : PyTuple_Pack(2, name_references, alive_ones);
    PyObject *counts = key == NULL ? NULL : PyDict_GetItemWithError(derivatives, key);
    Py_XINCREF(counts);
    if (counts == NULL && !PyErr_Occurred()) {
        counts = PyObject_CallFunctionObjArgs(count, plan, alive_ones, NULL);
    }
    Py_XDECREF(alive_ones);
    Py_XDECREF(derivatives);
    Py_XDECREF(key);
    if (counts != NULL && !PyList_Check(counts)) {
        Py_CLEAR(counts);
        PyErr_SetString(PyExc_TypeError, "references are counted in a list");
    }
    return counts;
}

static int
add_references_of(PyObject *known, PieceObject *piece, PyObject *count)
{
    PyObject *plan = ((SiteObject *)piece->site)->plan;
    PyObject *fragment = PyObject_GetAttr(plan, name_fragment);
    PyObject *slots = fragment == NULL ? NULL : PyObject_GetAttr(fragment, name_outputs);
    PyObject *counts = slots == NULL ? NULL : reference_counts(piece, plan, count);
    int failed = counts == NULL || !PyTuple_Check(slots);
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(piece->inputs); i++) {
        Py_ssize_t more = i < PyList_GET_SIZE(counts) ? PyLong_AsSsize_t(PyList_GET_ITEM(counts, i)) : 0;
        failed = add_references(known, (NodeObject *)PyTuple_GET_ITEM(piece->inputs, i), more + 1) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(slots) && i < PyList_GET_SIZE(piece->outputs); i++) {
        NodeObject *node = output_alive(piece, i);
        Py_ssize_t slot = PyLong_AsSsize_t(PyTuple_GET_ITEM(slots, i));
        if (node != NULL && slot >= 0 && slot < PyList_GET_SIZE(counts)) {
            failed = add_references(known, node, PyLong_AsSsize_t(PyList_GET_ITEM(counts, slot))) < 0;
        }
    }
    Py_XDECREF(fragment);
    Py_XDECREF(slots);
    Py_XDECREF(counts);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(references_of_doc,
"references_of(pieces, count, /)\n--\n\n"
"Return how often the nodes of pieces that wait refer to the nodes at their inputs and to their outputs, by id.\n\n"
"``count(plan, alive)`` tells for every slot how often the nodes that live outputs keep refer to it; it is asked once\n"
"for each choice of outputs.");

static PyObject *
references_of(PyObject *module, PyObject *args)
{
    PyObject *pieces, *count;
    if (!PyArg_ParseTuple(args, "O!O:references_of", &PyList_Type, &pieces, &count)) {
        return NULL;
    }
    PyObject *known = PyDict_New();
    for (Py_ssize_t i = 0; known != NULL && i < PyList_GET_SIZE(pieces); i++) {
        PyObject *piece = PyList_GET_ITEM(pieces, i);
        if (!Py_IS_TYPE(piece, &PieceType)) {
            PyErr_Format(PyExc_TypeError, "expected a piece, got %R", piece);
        }
        if (PyErr_Occurred() ||
            (!((PieceObject *)piece)->is_loose && add_references_of(known, (PieceObject *)piece, count) < 0)) {
            Py_CLEAR(known);
        }
    }
    return known;
}

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
waiting_start(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_derivatives, "derivatives"},
                 {&name_fragment, "fragment"},
                 {&name_outputs, "outputs"},
                 {&name_references, "references"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}

PyMethodDef waiting_functions[] = {
    {"add_piece", add_piece, METH_VARARGS, add_piece_doc},
    {"references_of", references_of, METH_VARARGS, references_of_doc},
    {NULL},
};
