/* Which nodes the collector has to look at.

   The graph has no cycles of its own: a node refers to what it is made from, and that is older. A cycle can go through a
   node only by way of something that a user brings along, as a function that is a parameter of an op and that holds a
   tensor. A node without such things, made from nodes without, is part of no cycle, and the collector need not know of
   it. A long loop has tens of nodes for each of its steps, and a full collection, which runs whenever a quarter has been
   added, would go through all of them.

   What is said here of a node that is in a cycle nonetheless costs memory, and nothing else: it is not freed. */

#include "evaluation.h"

/* Values in values are looked at so deep: a template in a tuple of parameters. */
enum { MOST_LEVELS = 8 };

/* Whether a value refers to nothing but numbers, words, data types and tuples of them. */
static int
is_simple(PyObject *value, int levels)
{
    if (value == Py_None || PyLong_CheckExact(value) || PyBool_Check(value) || PyUnicode_CheckExact(value) ||
        PyFloat_CheckExact(value) || PyComplex_CheckExact(value) || PyBytes_CheckExact(value) || value == Py_Ellipsis) {
        return 1;
    }
    if (float64 != NULL && Py_TYPE(Py_TYPE(value)) == Py_TYPE(Py_TYPE(float64))) {
        return 1; /* a dtype */
    }
    if (!PyTuple_CheckExact(value) || levels == 0) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
        if (!is_simple(PyTuple_GET_ITEM(value, i), levels - 1)) {
            return 0;
        }
    }
    return 1;
}

static int
are_simple(PyObject *params)
{
    if (params == no_params) {
        return 1;
    }
    if (!PyDict_CheckExact(params)) {
        return 0;
    }
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(params, &position, &name, &value)) {
        if (!is_simple(value, MOST_LEVELS)) {
            return 0;
        }
    }
    return 1;
}

/* Whether an op is one of the library's, and parameters and key of a node of it are simple. Those that were looked at last
   are mostly those of the next node too: nodes share them. */
static int
has_simple_recipe(OpObject *op, PyObject *params, PyObject *key)
{
    if (!op->is_lasting) {
        return 0;
    }
    if (op->simple_params != params) {
        if (!are_simple(params)) {
            return 0;
        }
        Py_XSETREF(op->simple_params, Py_NewRef(params));
    }
    if (op->simple_key != key && key != empty) {
        if (!is_simple(key, MOST_LEVELS)) {
            return 0;
        }
        if (PyTuple_CheckExact(key)) {
            Py_XSETREF(op->simple_key, Py_NewRef(key));
        }
    }
    return 1;
}

/* Whether the collector knows of none of the nodes that one is made from. */
static int
are_out_of_sight(PyObject *inputs)
{
    if (!PyTuple_CheckExact(inputs)) {
        return is_node(inputs) && !PyObject_GC_IsTracked(inputs); /* the call that it is an output of */
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *input = PyTuple_GET_ITEM(inputs, i);
        if (!is_node(input) || PyObject_GC_IsTracked(input)) {
            return 0;
        }
    }
    return 1;
}

/* Whether shape and dtype of a node are those of a tensor, or simple otherwise. Nodes of an op share the shape mostly. */
static int
has_simple_result(OpObject *op, PyObject *shape, PyObject *dtype)
{
    if (dtype != float64 && !is_simple(dtype, MOST_LEVELS)) {
        return 0;
    }
    if (shape != op->simple_shape && shape != empty) {
        if (!is_simple(shape, MOST_LEVELS)) {
            return 0;
        }
        Py_XSETREF(op->simple_shape, Py_NewRef(shape));
    }
    return 1;
}

/* Whether the collector need not know of a new node, since it cannot be part of a cycle. Then it need not know of the
   tuple of its inputs either, which leads nowhere else, whoever has it. */
int
may_leave_collector(NodeObject *node)
{
    int is_simple_node = 0;
    if (is_call(node)) {
        is_simple_node = ((PlanObject *)((CallObject *)node)->plan)->is_simple;
    } else if (PyObject_TypeCheck(node->op, &OpType)) {
        OpObject *op = (OpObject *)node->op;
        is_simple_node = has_simple_recipe(op, node->params, node->key) && has_simple_result(op, node->shape, node->dtype);
    }
    if (!is_simple_node || !are_out_of_sight(node->inputs)) {
        return 0;
    }
    if (PyTuple_CheckExact(node->inputs) && PyTuple_GET_SIZE(node->inputs) > 0) {
        PyObject_GC_UnTrack(node->inputs);
    }
    return 1;
}

/* Take a new node out of the sight of the collector, if it cannot be part of a cycle. */
void
leave_collector(NodeObject *node)
{
    if (may_leave_collector(node)) {
        PyObject_GC_UnTrack(node);
    }
}

/* Let the collector look at a node again, that refers to something else from now on. */
void
enter_collector(NodeObject *node)
{
    if (!PyObject_GC_IsTracked((PyObject *)node)) {
        PyObject_GC_Track(node);
    }
}

PyDoc_STRVAR(are_simple_doc,
"are_simple(op, params, /)\n--\n\n"
"Return whether a node of an op with some parameters is part of no cycle of references, if what it is made from is not:\n"
"the op is one of the library's, and the parameters are numbers, words, data types and tuples of them.");

static PyObject *
are_simple_of(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("are_simple", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    return PyBool_FromLong(((OpObject *)args[0])->is_lasting && are_simple(args[1]));
}

PyMethodDef tracking_methods[] = {
    {"are_simple", FAST(are_simple_of), METH_FASTCALL, are_simple_doc},
    {NULL},
};
