/* Ops of two operands, with a short way for tensors, numbers and arrays: the operators of tensors, and what NumPy makes of
   those between an array and a tensor. */

#include "evaluation.h"

enum { ADD, SUBTRACT, MULTIPLY, DIVIDE, MATMUL, OPERATORS };

/* The op of each operator, if it is loaded, and the function that takes any operands and may return NotImplemented. */
static struct {
    PyObject *op;
    PyObject *general;
} operators[OPERATORS];

static const char *const operator_names[] = {"add", "subtract", "multiply", "divide", "matmul"};

PyDoc_STRVAR(bind_operator_doc,
"bind_operator(name, op, general, /)\n--\n\n"
"Tell which op an operator of tensors records; ``general(left, right)`` is for other operands than tensors, numbers and arrays.\n"
"None leaves what was told before: whose module is not loaded yet has no op.");

static PyObject *
bind_operator(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *op, *general;
    if (!PyArg_ParseTuple(args, "sOO", &name, &op, &general)) {
        return NULL;
    }
    if (op != Py_None && !PyObject_TypeCheck(op, &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", op);
    }
    for (int i = 0; i < OPERATORS; i++) {
        if (strcmp(name, operator_names[i]) == 0) {
            if (op != Py_None) {
                Py_XSETREF(operators[i].op, Py_NewRef(op));
            }
            if (general != Py_None) {
                Py_XSETREF(operators[i].general, Py_NewRef(general));
            }
            Py_RETURN_NONE;
        }
    }
    return PyErr_Format(PyExc_TypeError, "there is no operator %s", name);
}

typedef PyObject *(*RecordTwo)(OpObject *op, NodeObject *x1, NodeObject *x2);

/* Record an op of two operands of which one is a tensor. NULL, without an exception, where the general way has a say. */
static PyObject *
record_operands(OpObject *op, RecordTwo record, PyObject *left, PyObject *right)
{
    PyObject *beside = is_node(left) ? left : right;
    PyObject *other = operand_beside(beside == left ? right : left, (NodeObject *)beside);
    if (other == NULL) {
        return NULL;
    }
    PyObject *first = beside == left ? beside : other, *second = beside == left ? other : beside;
    PyObject *node = record(op, (NodeObject *)first, (NodeObject *)second);
    Py_DECREF(other);
    return node;
}

/* Record an operator of two operands of which one is a tensor. NULL, without an exception, where the general way has a say. */
static PyObject *
try_operator(int which, PyObject *left, PyObject *right)
{
    if (operators[which].op == NULL) {
        return NULL;
    }
    RecordTwo record = which == MATMUL ? record_product : record_two;
    return record_operands((OpObject *)operators[which].op, record, left, right);
}

static PyObject *
operate(int which, PyObject *left, PyObject *right)
{
    PyObject *node = try_operator(which, left, right);
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
    PyObject *node = record_operands((OpObject *)args[0], record_two, args[1], args[2]);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

static PyObject *
tensor_add(PyObject *left, PyObject *right)
{
    return operate(ADD, left, right);
}

static PyObject *
tensor_subtract(PyObject *left, PyObject *right)
{
    return operate(SUBTRACT, left, right);
}

static PyObject *
tensor_multiply(PyObject *left, PyObject *right)
{
    return operate(MULTIPLY, left, right);
}

static PyObject *
tensor_divide(PyObject *left, PyObject *right)
{
    return operate(DIVIDE, left, right);
}

static PyObject *
tensor_matmul(PyObject *left, PyObject *right)
{
    return operate(MATMUL, left, right);
}

static PyNumberMethods tensor_numbers = {
    .nb_add = tensor_add,
    .nb_subtract = tensor_subtract,
    .nb_multiply = tensor_multiply,
    .nb_true_divide = tensor_divide,
    .nb_matrix_multiply = tensor_matmul,
    .nb_float = tensor_float,
};

/* --- operators between an array and a tensor --- */

static PyObject *ufuncs; /* the number of the operator, by the function that NumPy has for it */

PyDoc_STRVAR(bind_ufuncs_doc,
"bind_ufuncs(names, /)\n--\n\nTell the functions that NumPy calls for operators: a dict that has the name of the operator of each.");

static PyObject *
bind_ufuncs(PyObject *module, PyObject *names)
{
    PyObject *made = PyDict_New(), *ufunc, *name;
    Py_ssize_t position = 0;
    while (made != NULL && PyDict_Check(names) && PyDict_Next(names, &position, &ufunc, &name)) {
        for (int i = 0; made != NULL && i < OPERATORS; i++) {
            if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, operator_names[i]) == 0) {
                PyObject *number = PyLong_FromLong(i);
                if (number == NULL || PyDict_SetItem(made, ufunc, number) < 0) {
                    Py_CLEAR(made);
                }
                Py_XDECREF(number);
            }
        }
    }
    if (made == NULL) {
        return NULL;
    }
    Py_XSETREF(ufuncs, made);
    Py_RETURN_NONE;
}

/* Whether the Python code that runs is known to compute with tensors: what some libraries ask for is done with values. */
static int
computes_with_tensors(void)
{
    static PyObject *known; /* the code that was looked at last; its address must not become that of another one */
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    if (frame == NULL || computes_with_values == NULL) {
        Py_XDECREF(frame);
        return 0;
    }
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int is_known = code == known;
    if (!is_known) {
        PyObject *found = PyObject_CallOneArg(computes_with_values, (PyObject *)frame);
        is_known = found == NULL ? -1 : found == Py_False;
        if (is_known == 1) {
            Py_XSETREF(known, Py_NewRef(code));
        }
        Py_XDECREF(found);
    }
    Py_DECREF(code);
    Py_DECREF(frame);
    return is_known;
}

/* What an operator of an array and a tensor is; NULL, without an exception, where the general way has a say. */
static PyObject *
operate_beside_array(PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    if (nargs != 4 || (names != NULL && PyTuple_GET_SIZE(names) > 0) || ufuncs == NULL || !PyUnicode_Check(args[1]) ||
        PyUnicode_CompareWithASCIIString(args[1], "__call__") != 0 || (!is_node(args[2]) && !is_node(args[3]))) {
        return NULL;
    }
    PyObject *which = PyDict_GetItemWithError(ufuncs, args[0]);
    return which == NULL || computes_with_tensors() <= 0 ? NULL : try_operator((int)PyLong_AsLong(which), args[2], args[3]);
}

PyDoc_STRVAR(array_ufunc_doc, "Record what one of NumPy's functions was asked to do with tensors.");

static PyObject *
tensor_array_ufunc(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    PyObject *node = operate_beside_array(args, nargs, names);
    if (node != NULL || PyErr_Occurred()) {
        return node;
    }
    if (general_ufunc == NULL) {
        return PyErr_Format(PyExc_RuntimeError, "the core has not been told what NumPy's functions do with tensors");
    }
    PyObject *positional = as_tuple(args, nargs), *keywords = PyDict_New(), *bound = NULL;
    for (Py_ssize_t i = 0; keywords != NULL && names != NULL && i < PyTuple_GET_SIZE(names); i++) {
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[nargs + i]) < 0) {
            Py_CLEAR(keywords);
        }
    }
    if (positional != NULL && keywords != NULL) {
        bound = PyObject_Call(general_ufunc, positional, keywords);
    }
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return bound;
}

static PyMappingMethods tensor_mapping = {.mp_subscript = tensor_item};

static PyMethodDef tensor_methods[] = {
    {"__array_ufunc__", FAST(tensor_array_ufunc), METH_FASTCALL | METH_KEYWORDS, array_ufunc_doc},
    {NULL},
};

PyDoc_STRVAR(tensor_doc, "A node with the operators that loops have most, and its value as a float; see `unspool.Tensor`.");

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
    .tp_as_mapping = &tensor_mapping,
    .tp_methods = tensor_methods,
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
    {"bind_ufuncs", bind_ufuncs, METH_O, bind_ufuncs_doc},
    {"operands", FAST(operands), METH_FASTCALL, operands_doc},
    {"record_beside", FAST(record_beside), METH_FASTCALL, record_beside_doc},
    {NULL},
};
