/* The four operators of arithmetic, with a short way for tensors and floats. */

#include "core.h"

/* The op of each operator, and the function that takes any operands and may return NotImplemented. */
static struct {
    PyObject *op;
    PyObject *general;
} operators[4];

static const char *const operator_names[] = {"add", "subtract", "multiply", "divide", NULL};

PyDoc_STRVAR(bind_operator_doc,
"bind_operator(name, op, general, /)\n--\n\n"
"Tell which op an operator of tensors records; ``general(left, right)`` is for operands other than tensors and floats.");

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

/* Return the constant for a float beside a node. It is alive in all steps of a loop but the first. */
static PyObject *
constant_beside(PyObject *number, NodeObject *beside)
{
    if (beside->dtype == float64 && PyFloat_AS_DOUBLE(number) != 0.0) {
        PyObject *key = PyTuple_Pack(3, float64, empty, number);
        Py_uhash_t hash;
        if (key == NULL || hash_recipe(constant_op, NULL, 0, key, &hash) < 0) {
            Py_XDECREF(key);
            return NULL;
        }
        NodeObject *found = table_find(constant_op, NULL, 0, key, hash);
        Py_DECREF(key);
        if (found != NULL && found->value != NULL && found->value != Py_None) {
            return (PyObject *)found;
        }
        Py_XDECREF(found);
        if (found == NULL && PyErr_Occurred()) {
            return NULL;
        }
    }
    return PyObject_CallFunctionObjArgs(scalar, number, beside->dtype, NULL);
}

static PyObject *
operate(int which, PyObject *left, PyObject *right)
{
    OpObject *op = (OpObject *)operators[which].op;
    if (is_node(left)) {
        if (is_node(right)) {
            return record_two(op, (NodeObject *)left, (NodeObject *)right);
        }
        if (PyFloat_CheckExact(right)) {
            PyObject *number = constant_beside(right, (NodeObject *)left);
            PyObject *node = number == NULL ? NULL : record_two(op, (NodeObject *)left, (NodeObject *)number);
            Py_XDECREF(number);
            return node;
        }
    } else if (PyFloat_CheckExact(left)) {
        PyObject *number = constant_beside(left, (NodeObject *)right);
        PyObject *node = number == NULL ? NULL : record_two(op, (NodeObject *)number, (NodeObject *)right);
        Py_XDECREF(number);
        return node;
    }
    return PyObject_CallFunctionObjArgs(operators[which].general, left, right, NULL);
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
};

PyDoc_STRVAR(tensor_doc, "A node with the four operators of arithmetic; see `unspool.Tensor`.");

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

PyMethodDef operator_methods[] = {
    {"bind_operator", bind_operator, METH_VARARGS, bind_operator_doc},
    {NULL},
};
