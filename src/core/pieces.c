/* Pieces: records of what was evaluated and waits to be folded into calls. */

#include "evaluation.h"

/* --- rows --- */

/* Return the row that one is part of by now. */
RowObject *
whole_row(RowObject *row)
{
    while (row->joined != NULL) {
        RowObject *longer = row->joined;
        if (longer->joined != NULL) { /* the way is half as long the next time */
            row->joined = (RowObject *)Py_NewRef(longer->joined);
            RowObject *next = row->joined;
            Py_DECREF(longer); /* may be its end; the next one is held by this row */
            longer = next;
        }
        row = longer;
    }
    return row;
}

/* Make one row part of another. */
static void
join_rows(RowObject *row, RowObject *other)
{
    RowObject *one = whole_row(row), *whole = whole_row(other);
    if (one != whole) {
        one->joined = (RowObject *)Py_NewRef(whole);
        whole->depth = one->depth > whole->depth ? one->depth : whole->depth;
        whole->nodes += one->nodes;
    }
}

/* Rows are joined to rows that are joined to others: they end one by one. */
static void
row_dealloc(RowObject *self)
{
    RowObject *row = self;
    while (row != NULL) {
        RowObject *joined = row->joined;
        Py_TYPE(row)->tp_free((PyObject *)row);
        row = joined != NULL && Py_REFCNT(joined) == 1 ? joined : NULL;
        if (row == NULL) {
            Py_XDECREF(joined);
        }
    }
}

static PyObject *
row_whole(PyObject *self, PyObject *unused)
{
    return Py_NewRef(whole_row((RowObject *)self));
}

static PyMemberDef row_members[] = {
    {"depth", T_PYSSIZET, offsetof(RowObject, depth), READONLY, NULL},
    {"nodes", T_PYSSIZET, offsetof(RowObject, nodes), READONLY, NULL},
    {NULL},
};

static PyMethodDef row_methods[] = {
    {"whole", row_whole, METH_NOARGS, "whole()\n--\n\nReturn the row that this one is part of by now."},
    {NULL},
};

PyDoc_STRVAR(row_doc,
"Pieces that read each other, those that read or are read by these, and so on, as long as they wait.\n\n"
"Attributes\n----------\n"
"depth : int\n"
"    How deep the deepest of them is.\n"
"nodes : int\n"
"    How many nodes they had.");

PyTypeObject RowType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Row",
    .tp_doc = row_doc,
    .tp_basicsize = sizeof(RowObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = (destructor)row_dealloc,
    .tp_members = row_members,
    .tp_methods = row_methods,
};

/* --- pieces --- */

static PyMemberDef piece_members[] = {
    {"site", T_OBJECT_EX, offsetof(PieceObject, site), READONLY, NULL},
    {"inputs", T_OBJECT_EX, offsetof(PieceObject, inputs), READONLY, NULL},
    {"outputs", T_OBJECT_EX, offsetof(PieceObject, outputs), READONLY, NULL},
    {"residuals", T_OBJECT_EX, offsetof(PieceObject, residuals), 0, NULL},
    {"slab", T_OBJECT_EX, offsetof(PieceObject, slab), 0, NULL},
    {"newest", T_LONGLONG, offsetof(PieceObject, newest), READONLY, NULL},
    {"depth", T_PYSSIZET, offsetof(PieceObject, depth), READONLY, NULL},
    {"row", T_OBJECT_EX, offsetof(PieceObject, row), READONLY, NULL},
    {"is_loose", T_BOOL, offsetof(PieceObject, is_loose), 0, NULL},
    {NULL},
};

static int
piece_traverse(PieceObject *self, visitproc visit, void *arg)
{
    int stop = visit_inputs(self->inputs, visit, arg);
    if (stop) {
        return stop;
    }
    Py_VISIT(self->site);
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
    leave_queue(self);
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

PieceObject *
make_piece(PyObject *site, PyObject *inputs, NodeObject *const *outputs, Py_ssize_t count, PyObject *residuals)
{
    PieceObject *made = (PieceObject *)PieceType.tp_alloc(&PieceType, 0);
    if (made == NULL || (made->outputs = PyList_New(count)) == NULL) {
        Py_XDECREF(made);
        return NULL;
    }
    made->site = Py_NewRef(site);
    made->inputs = Py_NewRef(inputs);
    made->residuals = Py_NewRef(residuals);
    made->slab = Py_NewRef(Py_None);
    made->row = Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *reference = PyWeakref_NewRef((PyObject *)outputs[i], NULL);
        if (reference == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        PyObject_GC_UnTrack(reference); /* it owns nothing, and nor does the list of such */
        PyList_SET_ITEM(made->outputs, i, reference);
    }
    PyObject_GC_UnTrack(made->outputs);
    return made;
}

PyDoc_STRVAR(piece_function_doc,
"piece(site, inputs, outputs, residuals, /)\n--\n\nReturn the record of a piece, with its outputs as a tuple of nodes.");

static PyObject *
piece(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("piece", nargs, 4) < 0) {
        return NULL;
    }
    if (!is_site(args[0]) || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) ||
        check_nodes(NULL, &PyTuple_GET_ITEM(args[1], 0), PyTuple_GET_SIZE(args[1])) < 0 ||
        check_nodes(NULL, &PyTuple_GET_ITEM(args[2], 0), PyTuple_GET_SIZE(args[2])) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a piece has a site, and tuples of nodes");
    }
    return (PyObject *)make_piece(args[0], args[1], (NodeObject *const *)&PyTuple_GET_ITEM(args[2], 0),
                                  PyTuple_GET_SIZE(args[2]), args[3]);
}

/* Return an output of a piece if it is alive, borrowed: who asks must not let other code run before it takes it. */
NodeObject *
output_alive(const PieceObject *piece, Py_ssize_t index)
{
    if (index >= PyList_GET_SIZE(piece->outputs)) {
        return NULL;
    }
    PyObject *reference = PyList_GET_ITEM(piece->outputs, index);
    PyObject *node = PyWeakref_Check(reference) ? PyWeakref_GET_OBJECT(reference) : Py_None;
    return is_node(node) ? (NodeObject *)node : NULL;
}

/* Whether a node is a leaf; -1 is an error. What reads something is none. */
static int
is_leaf(const NodeObject *node)
{
    int reads_nothing = PyTuple_Check(node->inputs) && PyTuple_GET_SIZE(node->inputs) == 0;
    return reads_nothing ? PySet_Contains(leaf_ops, node->op) : 0;
}

/* The piece that keeps a node, if it waits in a row; NULL if there is none. */
static PieceObject *
piece_of(const NodeObject *node)
{
    PyObject *piece = node->piece;
    return piece != NULL && Py_IS_TYPE(piece, &PieceType) ? (PieceObject *)piece : NULL;
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
        int found = is_leaf(operand);
        if (found < 0) {
            return -1;
        }
        if (found) {
            continue;
        }
        long long id = PyLong_AsLongLong(operand->id);
        newest = id > newest ? id : newest;
        Py_ssize_t before = 0;
        PieceObject *piece = piece_of(operand);
        if (Py_IS_TYPE(operand, (PyTypeObject *)projection_class) && is_call(operand->inputs)) {
            before = PyLong_AsSsize_t(((CallObject *)operand->inputs)->depth);
        } else if (piece != NULL) {
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

/* The row that a piece belongs to, given whether it reads pieces of several: they are one from now on. Borrowed. */
static RowObject *
find_row(PieceObject *self, int are_several)
{
    if (self->row == Py_None) {
        RowObject *made = (RowObject *)RowType.tp_alloc(&RowType, 0);
        if (made == NULL) {
            return NULL;
        }
        made->depth = self->depth;
        Py_SETREF(self->row, (PyObject *)made);
    }
    RowObject *row = whole_row((RowObject *)self->row);
    for (Py_ssize_t i = 0; are_several && i < PyTuple_GET_SIZE(self->inputs); i++) {
        PieceObject *before = piece_of((NodeObject *)PyTuple_GET_ITEM(self->inputs, i));
        if (before != NULL && before->row != Py_None) {
            join_rows((RowObject *)before->row, row);
        }
    }
    return whole_row(row);
}

/* Find how deep a piece is, and let its results keep it. Returns whether it reads pieces of several rows. */
static int
hold(PieceObject *self, NodeObject *const *results, Py_ssize_t count)
{
    if (leaf_ops == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the core has not been told its leaves");
        return -1;
    }
    int are_several = measure_depth(self);
    /* An output that is older than an input may be what that input is made from: the piece computed again what an
       earlier one had not kept. It is not folded, or the call would be made from itself, and does not hold a piece. */
    for (Py_ssize_t i = 0; i < count && are_several >= 0; i++) {
        if (number_of(results[i]) > self->newest) {
            Py_XSETREF(results[i]->piece, Py_NewRef(self));
        }
    }
    return are_several;
}

/* Let the results of a piece keep it, and return the row that it belongs to, borrowed. */
RowObject *
place(PieceObject *self, NodeObject *const *results, Py_ssize_t count)
{
    int are_several = hold(self, results, count);
    RowObject *row = are_several < 0 ? NULL : find_row(self, are_several);
    if (row != NULL) {
        row->depth = self->depth > row->depth ? self->depth : row->depth;
        row->nodes += PyTuple_GET_SIZE(((SiteObject *)self->site)->origins);
    }
    return row;
}

/* Find how deep a piece is that does not wait, and how young what it reads is; -1 is an error. */
int
measure(PieceObject *self)
{
    return hold(self, NULL, 0) < 0 ? -1 : 0;
}

PyDoc_STRVAR(measure_piece_doc,
"measure_piece(piece, /)\n--\n\nFind how deep a piece is that does not wait, and how young what it reads is.");

static PyObject *
measure_piece(PyObject *module, PyObject *piece)
{
    if (!Py_IS_TYPE(piece, &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", piece);
    }
    return measure((PieceObject *)piece) < 0 ? NULL : Py_NewRef(Py_None);
}

PyMethodDef piece_function_methods[] = {
    {"piece", FAST(piece), METH_FASTCALL, piece_function_doc},
    {"measure_piece", measure_piece, METH_O, measure_piece_doc},
    {NULL},
};
