/* Recording ops: the node that is alive, the simpler one of the same value, or a new one. */

#include "core.h"

/* Return the simpler node that has the same value, if the op knows one; NULL if not, or with an exception. */
static PyObject *
find_canonical(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    if (op->canonical == NULL || op->canonical == Py_None) {
        return NULL;
    }
    PyObject *found = PyObject_Vectorcall(op->canonical, inputs, count, names);
    if (found == Py_None) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

PyDoc_STRVAR(record_one_doc,
"record_one(op, x, /)\n--\n\nReturn the node for an elementwise op of one tensor.");

static PyObject *
record_one(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("record_one", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (check_nodes(args[0], args + 1, 1) < 0) {
        return NULL;
    }
    OpObject *op = (OpObject *)args[0];
    NodeObject *x = (NodeObject *)args[1];
    Py_uhash_t hash;
    if (hash_recipe(args[0], args + 1, 1, empty, &hash) < 0) {
        return NULL;
    }
    PyObject *found = (PyObject *)table_find(args[0], args + 1, 1, empty, hash);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    found = find_canonical(op, args + 1, 1, NULL);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *dtypes = PyTuple_Pack(1, x->dtype);
    PyObject *dtype = dtypes == NULL ? NULL : PyObject_GetItem(op->result_dtypes, dtypes);
    Py_XDECREF(dtypes);
    PyObject *inputs = dtype == NULL ? NULL : PyTuple_Pack(1, args[1]);
    if (inputs == NULL) {
        Py_XDECREF(dtype);
        return NULL;
    }
    PyObject *node = make_entered(op, inputs, no_params, x->shape, dtype, empty, hash);
    Py_DECREF(dtype);
    return node;
}

/* Whether two shapes are the same, known sizes. Symbolic ones are left to `align`: they note who compares them. */
static int
same_numbers(PyObject *left, PyObject *right)
{
    if (!PyTuple_Check(left) || !PyTuple_Check(right) || PyTuple_GET_SIZE(left) != PyTuple_GET_SIZE(right)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left); i++) {
        PyObject *a = PyTuple_GET_ITEM(left, i), *b = PyTuple_GET_ITEM(right, i);
        if (a != b && !(PyLong_CheckExact(a) && PyLong_CheckExact(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1)) {
            return 0;
        }
    }
    return 1;
}

/* Record an op of two tensors whose shapes do not simply fit: `align` knows how they broadcast. */
static PyObject *
record_aligned(OpObject *op, PyObject *x1, PyObject *x2, PyObject *dtype)
{
    PyObject *aligned = PyObject_CallFunctionObjArgs(align, x1, x2, NULL);
    PyObject *inputs, *shape, *node = NULL;
    if (aligned == NULL) {
        return NULL;
    }
    Py_uhash_t hash;
    if (PyArg_ParseTuple(aligned, "O!O", &PyTuple_Type, &inputs, &shape) &&
        hash_recipe((PyObject *)op, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs), empty, &hash) == 0) {
        node = make_entered(op, Py_NewRef(inputs), no_params, shape, dtype, empty, hash);
    }
    Py_DECREF(aligned);
    return node;
}

/* Record an op of two tensors whose result has a dtype. */
static PyObject *
record_with(OpObject *op, PyObject *const *operands, PyObject *dtype)
{
    Py_uhash_t hash;
    if (hash_recipe((PyObject *)op, operands, 2, empty, &hash) < 0) {
        return NULL;
    }
    PyObject *found = (PyObject *)table_find((PyObject *)op, operands, 2, empty, hash);
    if (found == NULL && !PyErr_Occurred()) {
        found = find_canonical(op, operands, 2, NULL);
    }
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *shape = ((NodeObject *)operands[0])->shape, *other = ((NodeObject *)operands[1])->shape;
    if (shape != other && other != empty) {
        if (shape == empty) {
            shape = other;
        } else if (!same_numbers(shape, other)) {
            return record_aligned(op, operands[0], operands[1], dtype);
        }
    }
    PyObject *inputs = PyTuple_Pack(2, operands[0], operands[1]);
    return inputs == NULL ? NULL : make_entered(op, inputs, no_params, shape, dtype, empty, hash);
}

/* Record an elementwise op of two tensors: the hot path of every loop. */
PyObject *
record_two(OpObject *op, NodeObject *x1, NodeObject *x2)
{
    if (look_up_dtypes(op, x1->dtype, x2->dtype) < 0) {
        return NULL;
    }
    PyObject *dtype = Py_NewRef(op->result); /* what follows may record other nodes of this op */
    PyObject *operands[] = {(PyObject *)x1, (PyObject *)x2};
    PyObject *node = record_with(op, operands, dtype);
    Py_DECREF(dtype);
    return node;
}

PyDoc_STRVAR(record_doc,
"record(op, x1, x2, /)\n--\n\nReturn the node for an elementwise op of two tensors.");

static PyObject *
record(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("record", nargs, 3) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (check_nodes(args[0], args + 1, 2) < 0) {
        return NULL;
    }
    return record_two((OpObject *)args[0], (NodeObject *)args[1], (NodeObject *)args[2]);
}

PyDoc_STRVAR(intern_doc,
"intern(op, inputs, params, shape, dtype, key, /)\n--\n\n"
"Make a tensor whose shape and dtype are known and enter it under its recipe; ``key`` None: it is never shared.");

static PyObject *
intern(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("intern", nargs, 6) < 0 || check_recipe(args[0], args[1]) < 0) {
        return NULL;
    }
    PyObject *const *inputs = &PyTuple_GET_ITEM(args[1], 0);
    Py_ssize_t number = PyTuple_GET_SIZE(args[1]);
    PyObject *key = args[5];
    if (check_nodes(args[0], inputs, number) < 0) {
        return NULL;
    }
    if (key != Py_None) {
        Py_uhash_t hash;
        if (hash_recipe(args[0], inputs, number, key, &hash) < 0) {
            return NULL;
        }
        return make_entered((OpObject *)args[0], Py_NewRef(args[1]), args[2], args[3], args[4], key, hash);
    }
    int lasti;
    PyObject *code = find_origin(&lasti);
    if (code == NULL) {
        return NULL;
    }
    NodeObject *node = make_node((PyTypeObject *)tensor_class, args[0], args[1], args[2], args[3], args[4], key, code,
                                 lasti, NULL);
    Py_DECREF(code);
    return (PyObject *)node;
}

/* Return the parameters of a call as pairs of a name and a value, in the order in which they were given. */
static PyObject *
pair_up(PyObject *names, PyObject *const *values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    PyObject *pairs = PyTuple_New(count);
    for (Py_ssize_t i = 0; pairs != NULL && i < count; i++) {
        PyObject *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(names, i), values[i]);
        if (pair == NULL) {
            Py_CLEAR(pairs);
        } else {
            PyTuple_SET_ITEM(pairs, i, pair);
        }
    }
    return pairs;
}

/* Whether a value is a size, a word, or nothing: what can be kept in a key without keeping anything else alive. */
static int
is_plain(PyObject *value)
{
    return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBool_Check(value) || value == Py_None ||
           Py_TYPE(Py_TYPE(value)) == Py_TYPE(Py_TYPE(float64)); /* a dtype */
}

static int
is_plain_tuple(PyObject *values)
{
    if (!PyTuple_CheckExact(values)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
        if (!is_plain(PyTuple_GET_ITEM(values, i))) {
            return 0;
        }
    }
    return 1;
}

/* Return the parameters of a call as a node keeps them. */
static PyObject *
keep_params(OpObject *op, PyObject *names, PyObject *const *values)
{
    if (names == NULL) {
        return Py_NewRef(no_params);
    }
    PyObject *params = PyDict_New();
    int plain = 1; /* no symbolic size is among them */
    for (Py_ssize_t i = 0; params != NULL && i < PyTuple_GET_SIZE(names); i++) {
        plain &= is_plain(values[i]) || is_plain_tuple(values[i]);
        if (PyDict_SetItem(params, PyTuple_GET_ITEM(names, i), values[i]) < 0) {
            Py_CLEAR(params);
        }
    }
    if (params == NULL || plain || op->sized == NULL || PyObject_Size(op->sized) == 0) {
        return params;
    }
    PyObject *kept = PyObject_CallFunctionObjArgs(with_sizes, params, op->sized, NULL);
    Py_DECREF(params);
    return kept;
}

/* What an op inferred is remembered for so many recipes. */
#define MOST_INFERRED 1024

/* Return shapes, dtypes and parameters, from which an op infers the shape and dtype of its result; None if sizes are
   symbolic, or if a parameter is something else than sizes and words. */
static PyObject *
inference_key(PyObject *const *inputs, Py_ssize_t count, Py_ssize_t params)
{
    for (Py_ssize_t i = 0; i < params; i++) {
        if (!is_plain(inputs[count + i]) && !is_plain_tuple(inputs[count + i])) {
            Py_RETURN_NONE;
        }
    }
    PyObject *key = PyTuple_New(2 * count + params);
    for (Py_ssize_t i = 0; key != NULL && i < count; i++) {
        NodeObject *input = (NodeObject *)inputs[i];
        if (!is_plain_tuple(input->shape)) {
            Py_DECREF(key);
            Py_RETURN_NONE;
        }
        PyTuple_SET_ITEM(key, 2 * i, Py_NewRef(input->shape));
        PyTuple_SET_ITEM(key, 2 * i + 1, Py_NewRef(input->dtype));
    }
    for (Py_ssize_t i = 0; key != NULL && i < params; i++) {
        PyTuple_SET_ITEM(key, 2 * count + i, Py_NewRef(inputs[count + i]));
    }
    return key;
}

/* Return the shape and dtype that an op infers, a new reference; remembered where they follow from plain things. */
static PyObject *
infer(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    PyObject *known = op->inferred, *key = NULL;
    if (known != NULL && PyDict_CheckExact(known)) {
        key = inference_key(inputs, count, names == NULL ? 0 : PyTuple_GET_SIZE(names));
        PyObject *found = key == NULL || key == Py_None ? NULL : PyDict_GetItemWithError(known, key);
        if (key == NULL || found != NULL || PyErr_Occurred()) {
            Py_XDECREF(key);
            return Py_XNewRef(found);
        }
    }
    PyObject *inferred = PyObject_Vectorcall(op->infer, inputs, count, names);
    if (inferred != NULL && key != NULL && key != Py_None && op->inferred == known) {
        if (PyDict_GET_SIZE(known) >= MOST_INFERRED) {
            PyDict_Clear(known);
        }
        if (PyDict_SetItem(known, key, inferred) < 0) {
            Py_CLEAR(inferred);
        }
    }
    Py_XDECREF(key);
    return inferred;
}

/* Record an op that is not alive: in its canonical form, or with the shape and dtype that it infers. */
static PyObject *
record_inferred(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names, PyObject *key, Py_uhash_t hash)
{
    PyObject *found = find_canonical(op, inputs, count, names);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *inferred = infer(op, inputs, count, names);
    PyObject *shape, *dtype, *node = NULL;
    if (inferred == NULL) {
        return NULL;
    }
    if (PyTuple_Check(inferred) && PyArg_ParseTuple(inferred, "OO", &shape, &dtype)) {
        PyObject *params = keep_params(op, names, inputs + count);
        PyObject *operands = params == NULL ? NULL : PyTuple_New(count);
        if (operands != NULL) {
            for (Py_ssize_t i = 0; i < count; i++) {
                PyTuple_SET_ITEM(operands, i, Py_NewRef(inputs[i]));
            }
            node = make_entered(op, operands, params, shape, dtype, key, hash);
        }
        Py_XDECREF(params);
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%R should infer a shape and a dtype, got %R", op, inferred);
    }
    Py_DECREF(inferred);
    return node;
}

/* Return the node of an op: `inputs` are so many inputs, then the values of the parameters whose `names` there are. */
PyObject *
record_any(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    PyObject *key = names == NULL ? Py_NewRef(empty) : pair_up(names, inputs + count);
    if (key == NULL) {
        return NULL;
    }
    PyObject *node = NULL;
    Py_uhash_t hash;
    if (hash_recipe((PyObject *)op, inputs, count, key, &hash) == 0) {
        node = (PyObject *)table_find((PyObject *)op, inputs, count, key, hash);
        if (node == NULL && !PyErr_Occurred()) {
            node = record_inferred(op, inputs, count, names, key, hash);
        }
    }
    Py_DECREF(key);
    return node;
}

PyDoc_STRVAR(apply_doc,
"apply(op, /, *inputs, **params)\n--\n\n"
"Return the node for ``op(*inputs, **params)``: the interned one if it is alive, else a new one.");

static PyObject *
apply(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    if (nargs < 1 || !PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "apply takes an op and its inputs");
    }
    if (check_nodes(args[0], args + 1, nargs - 1) < 0) {
        return NULL;
    }
    if (names != NULL && PyTuple_GET_SIZE(names) == 0) {
        names = NULL;
    }
    return record_any((OpObject *)args[0], args + 1, nargs - 1, names);
}

PyDoc_STRVAR(are_known_doc,
"are_known(*values)\n--\n\nReturn whether all of the values are tensors whose sizes are numbers: nothing has to be made of them first.");

static PyObject *
are_known(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!PyObject_TypeCheck(args[i], &TensorType) || !is_plain_tuple(((NodeObject *)args[i])->shape)) {
            Py_RETURN_FALSE;
        }
    }
    Py_RETURN_TRUE;
}

PyMethodDef recording_methods[] = {
    {"are_known", FAST(are_known), METH_FASTCALL, are_known_doc},
    {"apply", FAST(apply), METH_FASTCALL | METH_KEYWORDS, apply_doc},
    {"intern", FAST(intern), METH_FASTCALL, intern_doc},
    {"record", FAST(record), METH_FASTCALL, record_doc},
    {"record_one", FAST(record_one), METH_FASTCALL, record_one_doc},
    {NULL},
};
