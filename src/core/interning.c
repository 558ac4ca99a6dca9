/* Making nodes that are found again, and finding them. */

#include "core.h"

int
check_count(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, wanted, given);
        return -1;
    }
    return 0;
}

PyObject *
as_tuple(PyObject *const *items, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    }
    return tuple;
}

/* Make a node at the current place of the user's program; nobody finds it yet. */
NodeObject *
make_here(PyTypeObject *type, OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype,
          PyObject *key)
{
    int lasti;
    PyObject *code = find_origin(&lasti);
    if (code == NULL) {
        return NULL;
    }
    NodeObject *node = make_node(type, (PyObject *)op, inputs, params, shape, dtype, key, code, lasti, NULL);
    Py_DECREF(code);
    return node;
}

/* Enter a new node under its recipe, unless another stands there by now: Python code may have run since the table was
   searched, to find the place, or because of a collection. Takes over the reference, and returns one. */
PyObject *
enter_first(NodeObject *node, Py_uhash_t hash)
{
    node->hash = hash;
    PyObject *inputs = node->inputs;
    NodeObject *other =
        table_find(node->op, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs), node->key, hash);
    if (other != NULL || PyErr_Occurred() || table_insert(node) < 0) {
        Py_DECREF(node);
        return (PyObject *)other;
    }
    return (PyObject *)node;
}

/* Make the node of a recipe that is not alive, and enter it. Takes over the reference to `inputs`. */
PyObject *
make_entered_as(PyTypeObject *type, OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype,
                PyObject *key, Py_uhash_t hash)
{
    NodeObject *node = make_here(type, op, inputs, params, shape, dtype, key);
    Py_DECREF(inputs);
    if (node == NULL) {
        return NULL;
    }
    own_inputs(inputs); /* which the node has */
    return enter_first(node, hash);
}

/* The same for a tensor. */
PyObject *
make_entered(OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype, PyObject *key,
             Py_uhash_t hash)
{
    return make_entered_as((PyTypeObject *)tensor_class, op, inputs, params, shape, dtype, key, hash);
}

/* Return the node of a recipe that is known in all parts: the one that is alive, or a new one. */
PyObject *
record_recipe(PyTypeObject *type, PyObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype,
              PyObject *key, PyObject *code, int lasti)
{
    Py_uhash_t hash = 0;
    Py_ssize_t count = PyTuple_GET_SIZE(inputs);
    if (key != Py_None) {
        if (hash_recipe(op, &PyTuple_GET_ITEM(inputs, 0), count, key, &hash) < 0) {
            return NULL;
        }
        PyObject *found = (PyObject *)table_find(op, &PyTuple_GET_ITEM(inputs, 0), count, key, hash);
        if (found != NULL || PyErr_Occurred()) {
            return found;
        }
    }
    NodeObject *made = make_node(type, op, inputs, params, shape, dtype, key, code, lasti, NULL);
    return made == NULL || key == Py_None ? (PyObject *)made : enter_first(made, hash);
}

/* Refuse what is no recipe: an op, and a tuple of inputs. */
int
check_recipe(PyObject *op, PyObject *inputs)
{
    if (op == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "calls are made by unspool._fragments.call, which is not imported");
        return -1;
    }
    if (!PyObject_TypeCheck(op, &OpType)) {
        PyErr_Format(PyExc_TypeError, "expected an op, got %R", op);
        return -1;
    }
    if (!PyTuple_Check(inputs)) {
        PyErr_Format(PyExc_TypeError, "expected the inputs of %R as a tuple, got %R", op, inputs);
        return -1;
    }
    return 0;
}

int
check_nodes(PyObject *op, PyObject *const *inputs, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_node(inputs[i])) {
            if (op != NULL) {
                PyErr_Format(PyExc_TypeError, "%R takes tensors, got %R", op, inputs[i]);
            } else {
                PyErr_Format(PyExc_TypeError, "expected a node, got %R", inputs[i]);
            }
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(find_doc,
"find(op, inputs, key, /)\n--\n\n"
"Return the live node of a recipe, if any. ``key`` is what tells it apart from others with the same op and inputs.");

static PyObject *
find(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("find", nargs, 3) < 0 || check_recipe(args[0], args[1]) < 0) {
        return NULL;
    }
    PyObject *const *inputs = &PyTuple_GET_ITEM(args[1], 0);
    Py_ssize_t count = PyTuple_GET_SIZE(args[1]);
    Py_uhash_t hash;
    if (hash_recipe(args[0], inputs, count, args[2], &hash) < 0) {
        return NULL;
    }
    NodeObject *node = table_find(args[0], inputs, count, args[2], hash);
    if (node == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return (PyObject *)node;
}

PyDoc_STRVAR(new_doc,
"new(cls, op, inputs, params, shape, dtype, key, code, lasti, id=None, /)\n--\n\n"
"Make a node that nobody finds: `enter` brings it into the table, once it is complete. By default it gets the next id.");

static PyObject *
new(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 10 && check_count("new", nargs, 9) < 0) {
        return NULL;
    }
    PyObject *id = nargs == 10 && args[9] != Py_None ? args[9] : NULL;
    if (!PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &NodeType)) {
        return PyErr_Format(PyExc_TypeError, "expected a class of nodes, got %R", args[0]);
    }
    long lasti = PyLong_AsLong(args[8]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return (PyObject *)make_node((PyTypeObject *)args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7],
                                 (int)lasti, id);
}

PyDoc_STRVAR(enter_doc,
"enter(node, /)\n--\n\n"
"Enter a node into the table, under its recipe, and return it; or return the node that stands there already.");

PyObject *
enter(PyObject *module, PyObject *object)
{
    if (!is_node(object)) {
        return PyErr_Format(PyExc_TypeError, "expected a node, got %R", object);
    }
    NodeObject *node = (NodeObject *)object;
    if (check_recipe(node->op, node->inputs) < 0) {
        return NULL;
    }
    if (node->is_entered) {
        return Py_NewRef(object);
    }
    PyObject *const *inputs = &PyTuple_GET_ITEM(node->inputs, 0);
    Py_ssize_t count = PyTuple_GET_SIZE(node->inputs);
    if (hash_recipe(node->op, inputs, count, node->key, &node->hash) < 0) {
        return NULL;
    }
    NodeObject *other = table_find(node->op, inputs, count, node->key, node->hash);
    if (other != NULL || PyErr_Occurred()) {
        return (PyObject *)other;
    }
    return table_insert(node) < 0 ? NULL : Py_NewRef(object);
}

PyDoc_STRVAR(leave_doc, "leave(node, /)\n--\n\nTake a node out of the table, if it is there: nobody finds it any more.");

static PyObject *
leave(PyObject *module, PyObject *object)
{
    if (!is_node(object)) {
        return PyErr_Format(PyExc_TypeError, "expected a node, got %R", object);
    }
    table_remove((NodeObject *)object);
    Py_RETURN_NONE;
}

PyMethodDef interning_methods[] = {
    {"enter", enter, METH_O, enter_doc},
    {"find", FAST(find), METH_FASTCALL, find_doc},
    {"leave", leave, METH_O, leave_doc},
    {"new", FAST(new), METH_FASTCALL, new_doc},
    {NULL},
};
