/* Elementwise ops of two operands, with a short way for tensors, numbers and arrays; the operators of arithmetic. */

#include "evaluation.h"

/* The op of each operator, and the function that takes any operands and may return NotImplemented. */
static struct {
    PyObject *op;
    PyObject *general;
} operators[4];

static const char *const operator_names[] = {"add", "subtract", "multiply", "divide", NULL};

PyDoc_STRVAR(bind_operator_doc,
"bind_operator(name, op, general, /)\n--\n\n"
"Tell which op an operator of tensors records; ``general(left, right)`` is for other operands than tensors, numbers and arrays.");

static PyObject *
bind_operator(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *op, *general;
    if (!PyArg_ParseTuple(args, "sO!O", &name, &OpType, &op, &general)) {
        return NULL;
    }
    for (int i = 0; operator_names[i] != NULL; i++) {
        if (strcmp(name, operator_names[i]) == 0) {
            Py_XSETREF(operators[i].op, Py_NewRef(op));
            Py_XSETREF(operators[i].general, Py_NewRef(general));
            Py_RETURN_NONE;
        }
    }
    return PyErr_Format(PyExc_TypeError, "there is no operator %s", name);
}

/* Record an op of two operands of which one is a tensor. NULL, without an exception, where the general way has a say. */
static PyObject *
record_operands(OpObject *op, PyObject *left, PyObject *right)
{
    PyObject *beside = is_node(left) ? left : right;
    PyObject *other = operand_beside(beside == left ? right : left, (NodeObject *)beside);
    if (other == NULL) {
        return NULL;
    }
    PyObject *first = beside == left ? beside : other, *second = beside == left ? other : beside;
    PyObject *node = record_two(op, (NodeObject *)first, (NodeObject *)second);
    Py_DECREF(other);
    return node;
}

static PyObject *
operate(int which, PyObject *left, PyObject *right)
{
    PyObject *node = record_operands((OpObject *)operators[which].op, left, right);
    if (node != NULL || PyErr_Occurred()) {
        return node;
    }
    return PyObject_CallFunctionObjArgs(operators[which].general, left, right, NULL);
}

PyDoc_STRVAR(record_beside_doc,
"record_beside(op, x1, x2, /)\n--\n\n"
"Return the node for an elementwise op of two operands: tensors, or a tensor and a number or an array. None where the\n"
"general way has a say.");

static PyObject *
record_beside(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("record_beside", nargs, 3) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (!is_node(args[1]) && !is_node(args[2])) {
        Py_RETURN_NONE;
    }
    PyObject *node = record_operands((OpObject *)args[0], args[1], args[2]);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

static PyObject *
tensor_add(PyObject *left, PyObject *right)
{
    return operate(0, left, right);
}

static PyObject *
tensor_subtract(PyObject *left, PyObject *right)
{
    return operate(1, left, right);
}

static PyObject *
tensor_multiply(PyObject *left, PyObject *right)
{
    return operate(2, left, right);
}

static PyObject *
tensor_divide(PyObject *left, PyObject *right)
{
    return operate(3, left, right);
}

static PyNumberMethods tensor_numbers = {
    .nb_add = tensor_add,
    .nb_subtract = tensor_subtract,
    .nb_multiply = tensor_multiply,
    .nb_true_divide = tensor_divide,
    .nb_float = tensor_float,
};

PyDoc_STRVAR(tensor_doc, "A node with the four operators of arithmetic, and its value as a float; see `unspool.Tensor`.");

PyTypeObject TensorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.TensorBase",
    .tp_doc = tensor_doc,
    .tp_basicsize = sizeof(NodeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_base = &NodeType,
    .tp_weaklistoffset = offsetof(NodeObject, weak),
    .tp_dealloc = (destructor)node_dealloc,
    .tp_traverse = (traverseproc)node_traverse,
    .tp_clear = (inquiry)node_clear,
    .tp_as_number = &tensor_numbers,
};

PyDoc_STRVAR(operands_doc,
"operands(x1, x2, /)\n--\n\n"
"Return two operands as tensors: tensors, or a tensor and a number or an array. None where the general way has a say.");

static PyObject *
operands(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("operands", nargs, 2) < 0) {
        return NULL;
    }
    int which = is_node(args[0]) ? 0 : 1;
    PyObject *other = is_node(args[which]) ? operand_beside(args[1 - which], (NodeObject *)args[which]) : NULL;
    if (other == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *both = which == 0 ? PyTuple_Pack(2, args[0], other) : PyTuple_Pack(2, other, args[1]);
    Py_DECREF(other);
    return both;
}

PyMethodDef operator_methods[] = {
    {"bind_operator", bind_operator, METH_VARARGS, bind_operator_doc},
    {"operands", FAST(operands), METH_FASTCALL, operands_doc},
    {"record_beside", FAST(record_beside), METH_FASTCALL, record_beside_doc},
    {NULL},
};
