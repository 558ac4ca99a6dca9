/* What recording has to know about an operation. */

#include "core.h"

static PyMemberDef op_members[] = {
    {"canonical", T_OBJECT_EX, offsetof(OpObject, canonical), 0, NULL},
    {"canonical_for", T_INT, offsetof(OpObject, canonical_for), 0, NULL},
    {"commuting", T_OBJECT_EX, offsetof(OpObject, commuting), 0, NULL},
    {"infer", T_OBJECT_EX, offsetof(OpObject, infer), 0, NULL},
    {"inferred", T_OBJECT_EX, offsetof(OpObject, inferred), 0, NULL},
    {"result_dtypes", T_OBJECT_EX, offsetof(OpObject, result_dtypes), 0, NULL},
    {"sized", T_OBJECT_EX, offsetof(OpObject, sized), 0, NULL},
    {"is_lasting", T_BOOL, offsetof(OpObject, is_lasting), 0, NULL},
    {NULL},
};

static int
op_traverse(OpObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->canonical);
    Py_VISIT(self->commuting);
    Py_VISIT(self->infer);
    Py_VISIT(self->inferred);
    Py_VISIT(self->result_dtypes);
    Py_VISIT(self->sized);
    Py_VISIT(self->recalled_from);
    Py_VISIT(self->recalled_for);
    Py_VISIT(self->recalled);
    Py_VISIT(self->left);
    Py_VISIT(self->right);
    Py_VISIT(self->result);
    Py_VISIT(self->simple_params);
    Py_VISIT(self->simple_key);
    Py_VISIT(self->simple_shape);
    return 0;
}

static int
op_clear(OpObject *self)
{
    Py_CLEAR(self->canonical);
    Py_CLEAR(self->commuting);
    Py_CLEAR(self->infer);
    Py_CLEAR(self->inferred);
    Py_CLEAR(self->result_dtypes);
    Py_CLEAR(self->sized);
    Py_CLEAR(self->recalled_from);
    Py_CLEAR(self->recalled_for);
    Py_CLEAR(self->recalled);
    Py_CLEAR(self->left);
    Py_CLEAR(self->right);
    Py_CLEAR(self->result);
    Py_CLEAR(self->simple_params);
    Py_CLEAR(self->simple_key);
    Py_CLEAR(self->simple_shape);
    return 0;
}

static void
op_dealloc(OpObject *self)
{
    PyObject_GC_UnTrack(self);
    op_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(op_doc, "What recording has to know about an operation; see `unspool._ops.op.Op`.");

PyTypeObject OpType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.OpBase",
    .tp_doc = op_doc,
    .tp_basicsize = sizeof(OpObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)op_dealloc,
    .tp_traverse = (traverseproc)op_traverse,
    .tp_clear = (inquiry)op_clear,
    .tp_members = op_members,
};

/* Find the dtype of a result, and whether the operands may be swapped without changing a bit of it. */
int
look_up_dtypes(OpObject *op, PyObject *left, PyObject *right)
{
    if (op->left == left && op->right == right && op->result != NULL) {
        return 0;
    }
    if (op->result_dtypes == NULL || op->commuting == NULL) {
        PyErr_SetString(PyExc_TypeError, "this op is not an elementwise one");
        return -1;
    }
    PyObject *pair = PyTuple_Pack(2, left, right);
    if (pair == NULL) {
        return -1;
    }
    PyObject *result = PyObject_GetItem(op->result_dtypes, pair);
    Py_DECREF(pair);
    if (result == NULL) {
        return -1;
    }
    int commutes = PySequence_Contains(op->commuting, left);
    if (commutes == 1) {
        commutes = PySequence_Contains(op->commuting, right);
    }
    if (commutes < 0) {
        Py_DECREF(result);
        return -1;
    }
    Py_XSETREF(op->left, Py_NewRef(left));
    Py_XSETREF(op->right, Py_NewRef(right));
    Py_XSETREF(op->result, result);
    op->commutes = commutes;
    return 0;
}
