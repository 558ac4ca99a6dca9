/* Pieces: records of what was evaluated and waits to be folded into calls. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *weak;
    PyObject *site;
    PyObject *inputs;
    PyObject *outputs;
    PyObject *residuals;
    PyObject *slab;
    PyObject *row;
    long long newest;
    Py_ssize_t depth;
    char is_loose;
} PieceObject;

static PyMemberDef piece_members[] = {
    {"site", T_OBJECT_EX, offsetof(PieceObject, site), READONLY, NULL},
    {"inputs", T_OBJECT_EX, offsetof(PieceObject, inputs), READONLY, NULL},
    {"outputs", T_OBJECT_EX, offsetof(PieceObject, outputs), READONLY, NULL},
    {"residuals", T_OBJECT_EX, offsetof(PieceObject, residuals), 0, NULL},
    {"slab", T_OBJECT_EX, offsetof(PieceObject, slab), 0, NULL},
    {"newest", T_LONGLONG, offsetof(PieceObject, newest), READONLY, NULL},
    {"depth", T_PYSSIZET, offsetof(PieceObject, depth), READONLY, NULL},
    {"row", T_OBJECT_EX, offsetof(PieceObject, row), 0, NULL},
    {"is_loose", T_BOOL, offsetof(PieceObject, is_loose), 0, NULL},
    {NULL},
};

static int
piece_traverse(PieceObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->site);
    Py_VISIT(self->inputs);
    Py_VISIT(self->outputs);
    Py_VISIT(self->residuals);
    Py_VISIT(self->slab);
    Py_VISIT(self->row);
    return 0;
}

static int
piece_clear(PieceObject *self)
{
    Py_CLEAR(self->site);
    Py_CLEAR(self->inputs);
    Py_CLEAR(self->outputs);
    Py_CLEAR(self->residuals);
    Py_CLEAR(self->slab);
    Py_CLEAR(self->row);
    return 0;
}

static void
piece_dealloc(PieceObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, piece_dealloc)
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    piece_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
    Py_TRASHCAN_END
}

PyDoc_STRVAR(piece_doc,
"The record of a piece that was evaluated: its site, the nodes at its inputs, and its outputs, held weakly.\n\n"
"Attributes\n----------\n"
"residuals : tuple of arrays\n"
"    What it keeps for derivatives; None for what was evicted. Empty if it keeps nothing.\n"
"newest : int\n"
"    The id of the youngest input that is not a leaf.\n"
"depth : int\n"
"    How many pieces in a row end with this one.\n"
"row : Row or None\n"
"    The pieces it is connected with: those that it reads, those that read it, and so on.\n"
"is_loose : bool\n"
"    Whether it ran node by node, and so keeps nothing for derivatives.\n"
"slab : Slab or None\n"
"    There if the ledger had to look at it before it was folded.");

PyTypeObject PieceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Piece",
    .tp_doc = piece_doc,
    .tp_basicsize = sizeof(PieceObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_weaklistoffset = offsetof(PieceObject, weak),
    .tp_dealloc = (destructor)piece_dealloc,
    .tp_traverse = (traverseproc)piece_traverse,
    .tp_clear = (inquiry)piece_clear,
    .tp_members = piece_members,
};

PyDoc_STRVAR(piece_function_doc,
"piece(site, inputs, outputs, residuals, /)\n--\n\nReturn the record of a piece, with its outputs as a tuple of nodes.");

static PyObject *
piece(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("piece", nargs, 4) < 0) {
        return NULL;
    }
    if (!PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) ||
        check_nodes(NULL, &PyTuple_GET_ITEM(args[1], 0), PyTuple_GET_SIZE(args[1])) < 0 ||
        check_nodes(NULL, &PyTuple_GET_ITEM(args[2], 0), PyTuple_GET_SIZE(args[2])) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a piece has tuples of nodes");
    }
    PieceObject *made = (PieceObject *)PieceType.tp_alloc(&PieceType, 0);
    Py_ssize_t count = PyTuple_GET_SIZE(args[2]);
    if (made == NULL || (made->outputs = PyList_New(count)) == NULL) {
        Py_XDECREF(made);
        return NULL;
    }
    made->site = Py_NewRef(args[0]);
    made->inputs = Py_NewRef(args[1]);
    made->residuals = Py_NewRef(args[3]);
    made->slab = Py_NewRef(Py_None);
    made->row = Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *reference = PyWeakref_NewRef(PyTuple_GET_ITEM(args[2], i), NULL);
        if (reference == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        PyList_SET_ITEM(made->outputs, i, reference);
    }
    return (PyObject *)made;
}

/* Find how many pieces in a row end with this one, and the row. Returns whether it reads pieces of more rows than one. */
static int
measure_depth(PieceObject *self)
{
    int are_several = 0;
    long long newest = -1;
    Py_ssize_t depth = 0;
    PyObject *row = NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->inputs); i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(self->inputs, i);
        int is_leaf = PySet_Contains(leaf_ops, operand->op);
        if (is_leaf < 0) {
            return -1;
        }
        if (is_leaf) {
            continue;
        }
        long long id = PyLong_AsLongLong(operand->id);
        newest = id > newest ? id : newest;
        Py_ssize_t before = 0;
        if (Py_IS_TYPE(operand, (PyTypeObject *)projection_class) && is_call(operand->inputs)) {
            before = PyLong_AsSsize_t(((CallObject *)operand->inputs)->depth);
        } else if (operand->piece != NULL && Py_IS_TYPE(operand->piece, &PieceType)) {
            PieceObject *piece = (PieceObject *)operand->piece;
            before = piece->depth;
            if (piece->row != Py_None) {
                are_several |= row != NULL && row != piece->row;
                row = piece->row;
            }
        }
        depth = before > depth ? before : depth;
    }
    self->newest = newest;
    self->depth = depth + 1;
    if (row != NULL) {
        Py_XSETREF(self->row, Py_NewRef(row));
    }
    return are_several;
}

PyDoc_STRVAR(place_piece_doc,
"place_piece(piece, results, /)\n--\n\n"
"Find how deep a piece is and which row it belongs to, and let its results, a sequence of nodes, keep it.\n\n"
"Returns whether it reads pieces of several rows: they are one from now on.");

static PyObject *
place_piece(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("place_piece", nargs, 2) < 0) {
        return NULL;
    }
    if (!Py_IS_TYPE(args[0], &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", args[0]);
    }
    PieceObject *self = (PieceObject *)args[0];
    if (leaf_ops == NULL) {
        return PyErr_Format(PyExc_RuntimeError, "the core has not been told its leaves");
    }
    int are_several = measure_depth(self);
    PyObject *results = are_several < 0 ? NULL : PySequence_Fast(args[1], "expected a sequence of nodes");
    if (results == NULL) {
        return NULL;
    }
    if (check_nodes(NULL, PySequence_Fast_ITEMS(results), PySequence_Fast_GET_SIZE(results)) < 0) {
        Py_DECREF(results);
        return NULL;
    }
    /* An output that is older than an input may be what that input is made from: the piece computed again what an
       earlier one had not kept. It is not folded, or the call would be made from itself, and does not hold a piece. */
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(results); i++) {
        NodeObject *node = (NodeObject *)PySequence_Fast_GET_ITEM(results, i);
        if (PyLong_AsLongLong(node->id) > self->newest) {
            Py_XSETREF(node->piece, Py_NewRef(self));
        }
    }
    Py_DECREF(results);
    return PyBool_FromLong(are_several);
}

PyMethodDef piece_function_methods[] = {
    {"piece", FAST(piece), METH_FASTCALL, piece_function_doc},
    {"place_piece", FAST(place_piece), METH_FASTCALL, place_piece_doc},
    {NULL},
};
