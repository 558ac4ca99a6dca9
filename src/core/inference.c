/* What ops infer, and what is remembered of it: shape and dtype of a result follow from shapes, dtypes and parameters.

   A loop records the same op on the same shapes in every step, so this is asked once. The nodes that have it in common
   share their parameters and their key as well. */

#include "core.h"

/* So many combinations are remembered of an op. */
#define MOST_INFERRED 1024

/* Whether a value is a size, a number, a word, or nothing: what can be kept in a key without keeping anything else alive. */
static int
is_plain(PyObject *value)
{
    if (PyFloat_CheckExact(value)) { /* zero is equal to another zero, and NaN to nothing */
        return PyFloat_AS_DOUBLE(value) != 0.0 && PyFloat_AS_DOUBLE(value) == PyFloat_AS_DOUBLE(value);
    }
    return PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBool_Check(value) || value == Py_None ||
           Py_TYPE(Py_TYPE(value)) == Py_TYPE(Py_TYPE(float64)); /* a dtype */
}

int
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

/* Return what tells apart the combinations that an op infers something for: shapes, dtypes and parameters. None if one
   of them is symbolic, or something else than sizes and words, and if the op wants to be asked every time. */
PyObject *
inference_place(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t params = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    int remembers = op->inferred != NULL && PyDict_CheckExact(op->inferred);
    for (Py_ssize_t i = 0; remembers && i < params; i++) {
        remembers = is_plain(inputs[count + i]) || is_plain_tuple(inputs[count + i]);
    }
    for (Py_ssize_t i = 0; remembers && i < count; i++) {
        remembers = is_plain_tuple(((NodeObject *)inputs[i])->shape);
    }
    if (!remembers) {
        Py_RETURN_NONE;
    }
    PyObject *place = PyTuple_New(2 * (count + params));
    for (Py_ssize_t i = 0; place != NULL && i < count; i++) {
        NodeObject *input = (NodeObject *)inputs[i];
        PyTuple_SET_ITEM(place, 2 * i, Py_NewRef(input->shape));
        PyTuple_SET_ITEM(place, 2 * i + 1, Py_NewRef(input->dtype));
    }
    for (Py_ssize_t i = 0; place != NULL && i < params; i++) {
        PyTuple_SET_ITEM(place, 2 * (count + i), Py_NewRef(PyTuple_GET_ITEM(names, i)));
        PyTuple_SET_ITEM(place, 2 * (count + i) + 1, Py_NewRef(inputs[count + i]));
    }
    return place;
}

/* Read what is remembered: a tuple that owns the rest. Returns -1 with an exception. */
static int
unpack(PyObject *remembered, Inference *inference)
{
    inference->shape = PyTuple_GET_ITEM(remembered, 0);
    inference->dtype = PyTuple_GET_ITEM(remembered, 1);
    inference->params = PyTuple_GET_ITEM(remembered, 2);
    inference->key = PyTuple_GET_ITEM(remembered, 3);
    inference->hash = PyLong_AsSsize_t(PyTuple_GET_ITEM(remembered, 4));
    return inference->hash == -1 ? -1 : 0;
}

/* Whether two places are the same. Most of what is in them is the same object: to compare that is cheaper than a hash. */
static int
same_place(PyObject *one, PyObject *other)
{
    if (one == NULL || PyTuple_GET_SIZE(one) != PyTuple_GET_SIZE(other)) {
        return 0;
    }
    int same = 1;
    for (Py_ssize_t i = 0; same == 1 && i < PyTuple_GET_SIZE(one); i++) {
        same = agree(PyTuple_GET_ITEM(one, i), PyTuple_GET_ITEM(other, i));
    }
    return same;
}

/* Whether a parameter is the one that stands in a place; only what is as plain as that counts. -1 is an error. */
static int
is_same_param(PyObject *known, PyObject *value)
{
    if (known == value) {
        return 1;
    }
    int is_comparable = (PyLong_CheckExact(value) && PyLong_CheckExact(known)) || is_plain_tuple(value);
    return is_comparable ? PyObject_RichCompareBool(known, value, Py_EQ) : 0;
}

/* The same as `recall`, for what an op was asked last, if that is told without making a place: nearly always. */
PyObject *
recall_latest(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names, Inference *inference)
{
    Py_ssize_t params = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    PyObject *place = op->recalled_from == op->inferred ? op->recalled_for : NULL;
    int same = place != NULL && PyTuple_GET_SIZE(place) == 2 * (count + params);
    for (Py_ssize_t i = 0; same == 1 && i < count; i++) {
        const NodeObject *input = (NodeObject *)inputs[i];
        same = PyTuple_GET_ITEM(place, 2 * i) == input->shape && PyTuple_GET_ITEM(place, 2 * i + 1) == input->dtype;
    }
    for (Py_ssize_t i = count; same == 1 && i < count + params; i++) {
        same = PyTuple_GET_ITEM(place, 2 * i) == PyTuple_GET_ITEM(names, i - count)
                   ? is_same_param(PyTuple_GET_ITEM(place, 2 * i + 1), inputs[i])
                   : 0;
    }
    PyObject *remembered = same == 1 ? Py_NewRef(op->recalled) : NULL;
    if (remembered != NULL && unpack(remembered, inference) < 0) {
        Py_CLEAR(remembered);
    }
    return remembered;
}

/* Return what owns the inference that is remembered for a place, a new reference; NULL if there is none. */
PyObject *
recall(OpObject *op, PyObject *place, Inference *inference)
{
    if (place == Py_None) {
        return NULL;
    }
    int same = op->recalled_from == op->inferred ? same_place(op->recalled_for, place) : 0;
    if (same < 0) {
        return NULL;
    }
    PyObject *remembered = Py_XNewRef(same ? op->recalled : PyDict_GetItemWithError(op->inferred, place));
    if (remembered == NULL || unpack(remembered, inference) < 0) {
        Py_XDECREF(remembered);
        return NULL;
    }
    if (!same) {
        Py_XSETREF(op->recalled_from, Py_NewRef(op->inferred));
        Py_XSETREF(op->recalled_for, Py_NewRef(place));
        Py_XSETREF(op->recalled, Py_NewRef(remembered));
    }
    return remembered;
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

/* Return what an op with several outputs inferred, pairs of a shape and a dtype, as a pair of tuples. */
static PyObject *
unzip(OpObject *op, PyObject *pairs)
{
    PyObject *given = PySequence_Tuple(pairs), *both = NULL;
    Py_ssize_t count = given == NULL ? 0 : PyTuple_GET_SIZE(given);
    PyObject *shapes = PyTuple_New(count), *dtypes = PyTuple_New(count);
    int failed = given == NULL || shapes == NULL || dtypes == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *pair = PyTuple_GET_ITEM(given, i), *shape, *dtype;
        failed = !PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "OO", &shape, &dtype);
        if (!failed) {
            PyTuple_SET_ITEM(shapes, i, Py_NewRef(shape));
            PyTuple_SET_ITEM(dtypes, i, Py_NewRef(dtype));
        } else if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "%R should infer a shape and a dtype of each output, got %R", op, pair);
        }
    }
    if (!failed) {
        both = PyTuple_Pack(2, shapes, dtypes);
    }
    Py_XDECREF(given);
    Py_XDECREF(shapes);
    Py_XDECREF(dtypes);
    return both;
}

/* Ask an op for shape and dtype, or for those of its outputs if it has several, note them under a place unless that is
   None, and return what owns the inference. */
PyObject *
infer(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names, PyObject *key, Py_hash_t of_key,
      PyObject *place, int has_several, Inference *inference)
{
    PyObject *known = Py_XNewRef(op->inferred), *shape, *dtype, *made = NULL;
    PyObject *inferred = PyObject_Vectorcall(op->infer, inputs, count, names);
    if (inferred != NULL && has_several) {
        Py_SETREF(inferred, unzip(op, inferred));
    }
    if (inferred != NULL && PyTuple_Check(inferred) && PyArg_ParseTuple(inferred, "OO", &shape, &dtype)) {
        PyObject *params = keep_params(op, names, inputs + count);
        made = params == NULL ? NULL : Py_BuildValue("(OONOn)", shape, dtype, params, key, (Py_ssize_t)of_key);
    } else if (inferred != NULL && !PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%R should infer a shape and a dtype, got %R", op, inferred);
    }
    if (made != NULL && place != Py_None && op->inferred == known) {
        if (PyDict_GET_SIZE(known) >= MOST_INFERRED) {
            PyDict_Clear(known);
        }
        if (PyDict_SetItem(known, place, made) < 0) {
            Py_CLEAR(made);
        }
    }
    if (made != NULL && unpack(made, inference) < 0) {
        Py_CLEAR(made);
    }
    Py_XDECREF(inferred);
    Py_XDECREF(known);
    return made;
}
