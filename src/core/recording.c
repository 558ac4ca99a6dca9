/* Recording ops: the node that is alive, the simpler one of the same value, or a new one. */

#include "core.h"

int
is_seed(NodeObject *node)
{
    return node->op == constant_op && PyTuple_Check(node->key) && PyTuple_GET_SIZE(node->key) == 3 &&
           PyTuple_GET_ITEM(node->key, 2) == seed;
}

/* Whether the inputs of an op are such that it may have a canonical form, beside what follows from shapes and parameters. */
int
may_simplify(OpObject *op, PyObject *const *inputs, Py_ssize_t count)
{
    int found = op->canonical_for == FOR_ANY;
    for (Py_ssize_t i = 0; !found && i < count; i++) {
        NodeObject *input = (NodeObject *)inputs[i];
        found = op->canonical_for == FOR_SEEDS ? is_seed(input) : input->op == (PyObject *)op;
    }
    return found;
}

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

/* Record an elementwise op of one tensor. */
static PyObject *
record_single(OpObject *op, PyObject *operand)
{
    NodeObject *x = (NodeObject *)operand;
    Py_uhash_t hash;
    if (hash_recipe((PyObject *)op, &operand, 1, empty, &hash) < 0) {
        return NULL;
    }
    PyObject *found = (PyObject *)table_find((PyObject *)op, &operand, 1, empty, hash);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    found = may_simplify(op, &operand, 1) ? find_canonical(op, &operand, 1, NULL) : NULL;
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *dtypes = PyTuple_Pack(1, x->dtype);
    PyObject *dtype = dtypes == NULL ? NULL : PyObject_GetItem(op->result_dtypes, dtypes);
    Py_XDECREF(dtypes);
    PyObject *inputs = dtype == NULL ? NULL : PyTuple_Pack(1, operand);
    if (inputs == NULL) {
        Py_XDECREF(dtype);
        return NULL;
    }
    PyObject *node = make_entered(op, inputs, no_params, x->shape, dtype, empty, hash);
    Py_DECREF(dtype);
    return node;
}

/* Record an op of one operand, a tensor or what a function makes one of. */
static PyObject *
record_made(PyObject *const *args, int is_ready, PyObject *make)
{
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (!is_ready && make == NULL) {
        return PyErr_Format(PyExc_RuntimeError, "the core has not been told how operands are made");
    }
    PyObject *operand = is_ready ? Py_NewRef(args[1]) : PyObject_CallOneArg(make, args[1]);
    PyObject *node = NULL;
    if (operand != NULL && check_nodes(args[0], &operand, 1) == 0) {
        node = record_single((OpObject *)args[0], operand);
    }
    Py_XDECREF(operand);
    return node;
}

PyDoc_STRVAR(unary_doc, "unary(op, x, /)\n--\n\nReturn the node for an elementwise op of one operand.");

static PyObject *
unary(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    return check_count("unary", nargs, 2) < 0 ? NULL : record_made(args, is_node(args[1]), as_tensor);
}

PyDoc_STRVAR(unary_inexact_doc,
"unary_inexact(op, x, /)\n--\n\n"
"Return the node for an op that always has a fractional part: bools and integers become float64 first.");

static PyObject *
unary_inexact(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("unary_inexact", nargs, 2) < 0) {
        return NULL;
    }
    PyObject *dtype = is_node(args[1]) ? ((NodeObject *)args[1])->dtype : NULL;
    int is_ready = dtype != NULL && (dtype == float64 || dtype == float32 || dtype == complex128);
    return record_made(args, is_ready, as_inexact);
}

/* Whether two shapes are the same, known sizes. Symbolic ones are left to `align`: they note who compares them. */
int
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

/* Shapes with more axes than this are left to `align`. */
#define MOST_AXES 32

/* Return the size that two sizes of an axis broadcast to; -1 where `align` has a say: symbols, and what does not fit. */
static Py_ssize_t
broadcast_size(PyObject *left, PyObject *right)
{
    if (!PyLong_CheckExact(left) || !PyLong_CheckExact(right)) {
        return -1;
    }
    Py_ssize_t a = PyLong_AsSsize_t(left), b = PyLong_AsSsize_t(right);
    PyErr_Clear(); /* more than there is memory for */
    return a == b || b == 1 ? a : a == 1 ? b : -1;
}

/* Return the shape that two shapes of numbers broadcast to; NULL, without an exception, where `align` has a say. */
static PyObject *
broadcast_numbers(PyObject *left, PyObject *right)
{
    if (!PyTuple_Check(left) || !PyTuple_Check(right)) {
        return NULL;
    }
    Py_ssize_t first = PyTuple_GET_SIZE(left), second = PyTuple_GET_SIZE(right);
    Py_ssize_t rank = first > second ? first : second;
    long long elements = 1;
    PyObject *sizes[MOST_AXES], *one = PyLong_FromLong(1);
    if (rank > MOST_AXES || one == NULL) {
        Py_XDECREF(one);
        return NULL;
    }
    for (Py_ssize_t axis = 0; axis < rank; axis++) {
        PyObject *a = axis < rank - first ? one : PyTuple_GET_ITEM(left, axis - (rank - first));
        PyObject *b = axis < rank - second ? one : PyTuple_GET_ITEM(right, axis - (rank - second));
        Py_ssize_t size = broadcast_size(a, b);
        if (size < 0 || size > MOST_ELEMENTS || (elements *= size) > MOST_ELEMENTS) {
            Py_DECREF(one);
            return NULL;
        }
        sizes[axis] = PyLong_AsSsize_t(a) == size ? a : b;
    }
    PyObject *shape = as_tuple(sizes, rank);
    Py_DECREF(one);
    return shape;
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

/* Record an op of two tensors of different shapes, that are numbers if it is to be quick. */
static PyObject *
record_broadcast(OpObject *op, PyObject *const *operands, PyObject *dtype, Py_uhash_t hash)
{
    PyObject *shape = broadcast_numbers(((NodeObject *)operands[0])->shape, ((NodeObject *)operands[1])->shape);
    if (shape == NULL) {
        return PyErr_Occurred() ? NULL : record_aligned(op, operands[0], operands[1], dtype);
    }
    PyObject *inputs = PyTuple_Pack(2, operands[0], operands[1]);
    PyObject *node = inputs == NULL ? NULL : make_entered(op, inputs, no_params, shape, dtype, empty, hash);
    Py_DECREF(shape);
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
    if (found == NULL && !PyErr_Occurred() && may_simplify(op, operands, 2)) {
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
            return record_broadcast(op, operands, dtype, hash);
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
    return (PyObject *)make_here((PyTypeObject *)tensor_class, (OpObject *)args[0], args[1], args[2], args[3], args[4], key);
}

/* Record an op for which shape, dtype, parameters and key are remembered. */
static PyObject *
record_remembered(PyTypeObject *type, OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names,
                  const Inference *known)
{
    Py_uhash_t hash = hash_inputs((PyObject *)op, inputs, count, known->key, known->hash);
    PyObject *found = (PyObject *)table_find((PyObject *)op, inputs, count, known->key, hash);
    if (found == NULL && !PyErr_Occurred() && may_simplify(op, inputs, count)) {
        found = find_canonical(op, inputs, count, names);
    }
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *operands = as_tuple(inputs, count);
    return operands == NULL ? NULL
                            : make_entered_as(type, op, operands, known->params, known->shape, known->dtype, known->key,
                                              hash);
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

/* Record an op whose shape and dtype have to be asked for, and note them under `place`, unless that is None. */
static PyObject *
record_asked(PyTypeObject *type, OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names,
             PyObject *place)
{
    PyObject *key = names == NULL ? Py_NewRef(empty) : pair_up(names, inputs + count);
    Py_hash_t of_key = key == NULL ? -1 : PyObject_Hash(key);
    if (of_key == -1) {
        Py_XDECREF(key);
        return NULL;
    }
    Py_uhash_t hash = hash_inputs((PyObject *)op, inputs, count, key, of_key);
    PyObject *node = (PyObject *)table_find((PyObject *)op, inputs, count, key, hash);
    if (node == NULL && !PyErr_Occurred()) {
        node = find_canonical(op, inputs, count, names);
    }
    if (node == NULL && !PyErr_Occurred()) {
        Inference inference;
        PyObject *owner = infer(op, inputs, count, names, key, of_key, place, type == &BundleType, &inference);
        PyObject *operands = owner == NULL ? NULL : as_tuple(inputs, count);
        if (operands != NULL) {
            node = make_entered_as(type, op, operands, inference.params, inference.shape, inference.dtype, key, hash);
        }
        Py_XDECREF(owner);
    }
    Py_DECREF(key);
    return node;
}

/* Return the node of an op, a tensor or a bundle: `inputs` are so many inputs, then the values of the parameters whose
   `names` there are. */
static PyObject *
record_as(PyTypeObject *type, OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    Inference known;
    PyObject *owner = recall_latest(op, inputs, count, names, &known), *node = NULL;
    if (owner != NULL) {
        node = record_remembered(type, op, inputs, count, names, &known);
        Py_DECREF(owner);
        return node;
    }
    PyObject *place = PyErr_Occurred() ? NULL : inference_place(op, inputs, count, names);
    if (place != NULL) {
        owner = recall(op, place, &known);
        if (owner != NULL) {
            node = record_remembered(type, op, inputs, count, names, &known);
        } else if (!PyErr_Occurred()) {
            node = record_asked(type, op, inputs, count, names, place);
        }
    }
    Py_XDECREF(owner);
    Py_XDECREF(place);
    return node;
}

/* The same for an op with one output. */
PyObject *
record_any(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    return record_as((PyTypeObject *)tensor_class, op, inputs, count, names);
}

static PyObject *
apply_as(PyTypeObject *type, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
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
    return record_as(type, (OpObject *)args[0], args + 1, nargs - 1, names);
}

PyDoc_STRVAR(apply_doc,
"apply(op, /, *inputs, **params)\n--\n\n"
"Return the node for ``op(*inputs, **params)``: the interned one if it is alive, else a new one.");

static PyObject *
apply(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    return apply_as((PyTypeObject *)tensor_class, args, nargs, names);
}

PyDoc_STRVAR(apply_multi_doc,
"apply_multi(op, /, *inputs, **params)\n--\n\n"
"Return the node for an op with several outputs: the interned one if it is alive, else a new one; `parts` gives the tensors.");

static PyObject *
apply_multi(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    return apply_as(&BundleType, args, nargs, names);
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
    {"apply_multi", FAST(apply_multi), METH_FASTCALL | METH_KEYWORDS, apply_multi_doc},
    {"intern", FAST(intern), METH_FASTCALL, intern_doc},
    {"record", FAST(record), METH_FASTCALL, record_doc},
    {"unary", FAST(unary), METH_FASTCALL, unary_doc},
    {"unary_inexact", FAST(unary_inexact), METH_FASTCALL, unary_inexact_doc},
    {NULL},
};
