/* Reshaping and joining tensors whose sizes are numbers. Other sizes and operands, and all errors, are for
   `_ops/layout/reshaping` and `_ops/layout/joining`, the general way. */

#include "core.h"

static PyObject *names_axis, *one;

/* Make what is used every time; returns -1 with an exception. */
int
layout_start(void)
{
    names_axis = Py_BuildValue("(s)", "axis");
    one = PyLong_FromLong(1);
    return names_axis != NULL && one != NULL ? 0 : -1;
}

/* --- reshaping --- */

/* Return a shape that was asked for, with the size that is left in the place of a -1. NULL, without an exception, where the
   general way has a say. */
static PyObject *
resolve(PyObject *wanted, PyObject *shape)
{
    Py_ssize_t count = PyTuple_GET_SIZE(wanted), open = -1;
    long long rest = 1, elements = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(wanted, i);
        Py_ssize_t size = PyLong_CheckExact(item) ? PyLong_AsSsize_t(item) : -2;
        if (PyErr_Occurred()) {
            PyErr_Clear(); /* more than there is memory for */
            return NULL;
        }
        if (size < -1 || size > MOST_ELEMENTS || (size == -1 && open >= 0)) {
            return NULL;
        }
        open = size == -1 ? i : open;
        rest *= size == -1 ? 1 : size;
        if (rest > MOST_ELEMENTS) {
            return NULL;
        }
    }
    if (open < 0) {
        return Py_NewRef(wanted);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); i++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
        PyErr_Clear();
        if (size < 0 || size > MOST_ELEMENTS || (elements *= size) > MOST_ELEMENTS) {
            return NULL;
        }
    }
    if (rest == 0 || elements % rest != 0) {
        return NULL;
    }
    PyObject *sizes = as_tuple(&PyTuple_GET_ITEM(wanted, 0), count);
    PyObject *left = PyLong_FromLongLong(elements / rest);
    if (sizes == NULL || left == NULL) {
        Py_XDECREF(left);
        Py_CLEAR(sizes);
        return NULL;
    }
    Py_DECREF(PyTuple_GET_ITEM(sizes, open));
    PyTuple_SET_ITEM(sizes, open, left);
    return sizes;
}

PyDoc_STRVAR(reshape_doc,
"reshape(x, shape, /)\n--\n\n"
"Return the node for a tensor in another shape, of numbers, of which one may be -1; None where the general way has a say.");

static PyObject *
reshape(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("reshape", nargs, 2) < 0) {
        return NULL;
    }
    if (!is_node(args[0]) || !is_plain_tuple(((NodeObject *)args[0])->shape) || !PyTuple_CheckExact(args[1])) {
        Py_RETURN_NONE;
    }
    PyObject *given[] = {args[0], resolve(args[1], ((NodeObject *)args[0])->shape)};
    PyObject *node = given[1] == NULL ? NULL : record_any((OpObject *)reshape_op, given, 1, names_shape);
    Py_XDECREF(given[1]);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

/* --- joining --- */

/* Return the tensors to be joined as a tuple, if they are in a list or a tuple, and their sizes are numbers. NULL, without
   an exception, where the general way has a say. */
static PyObject *
as_known(PyObject *arrays)
{
    if (!PyList_CheckExact(arrays) && !PyTuple_CheckExact(arrays)) {
        return NULL;
    }
    PyObject *tensors = PySequence_Tuple(arrays);
    if (tensors == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    int known = count > 0;
    for (Py_ssize_t i = 0; known && i < count; i++) {
        PyObject *x = PyTuple_GET_ITEM(tensors, i);
        known = PyObject_TypeCheck(x, &TensorType) && is_plain_tuple(((NodeObject *)x)->shape);
    }
    if (!known) {
        Py_CLEAR(tensors);
    }
    return tensors;
}

/* Return an axis counted from the left; -1, without an exception, where the general way has a say. */
static Py_ssize_t
read_axis(PyObject *axis, Py_ssize_t rank)
{
    if (!PyLong_CheckExact(axis)) {
        return -1;
    }
    Py_ssize_t position = PyLong_AsSsize_t(axis);
    if (PyErr_Occurred()) {
        PyErr_Clear(); /* out of every range */
        return -1;
    }
    return position >= rank || position < -rank ? -1 : position < 0 ? position + rank : position;
}

/* Record what joins tensors along an axis they have. */
static PyObject *
join(PyObject *tensors, Py_ssize_t axis)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    PyObject **given = PyMem_New(PyObject *, count + 1);
    PyObject *position = PyLong_FromSsize_t(axis), *node = NULL;
    if (given == NULL || position == NULL) {
        PyErr_NoMemory();
    } else {
        memcpy(given, &PyTuple_GET_ITEM(tensors, 0), (size_t)count * sizeof(PyObject *));
        given[count] = position;
        node = record_any((OpObject *)concat_op, given, count, names_axis);
    }
    PyMem_Free(given);
    Py_XDECREF(position);
    return node;
}

/* Return a shape with an axis of size 1 more. */
static PyObject *
widen(PyObject *shape, Py_ssize_t axis)
{
    Py_ssize_t rank = PyTuple_GET_SIZE(shape);
    PyObject *wider = PyTuple_New(rank + 1);
    for (Py_ssize_t i = 0; wider != NULL && i <= rank; i++) {
        PyTuple_SET_ITEM(wider, i, Py_NewRef(i == axis ? one : PyTuple_GET_ITEM(shape, i < axis ? i : i - 1)));
    }
    return wider;
}

/* Return tensors of one shape with an axis of size 1 more. NULL, without an exception, if their shapes differ. */
static PyObject *
lift(PyObject *tensors, Py_ssize_t axis)
{
    Py_ssize_t count = PyTuple_GET_SIZE(tensors);
    PyObject *shape = ((NodeObject *)PyTuple_GET_ITEM(tensors, 0))->shape;
    for (Py_ssize_t i = 1; i < count; i++) {
        if (!same_numbers(shape, ((NodeObject *)PyTuple_GET_ITEM(tensors, i))->shape)) {
            return NULL;
        }
    }
    PyObject *wider = widen(shape, axis);
    PyObject *lifted = wider == NULL ? NULL : PyTuple_New(count);
    for (Py_ssize_t i = 0; lifted != NULL && i < count; i++) {
        PyObject *given[] = {PyTuple_GET_ITEM(tensors, i), wider};
        PyObject *x = record_any((OpObject *)reshape_op, given, 1, names_shape);
        if (x == NULL) {
            Py_CLEAR(lifted);
        } else {
            PyTuple_SET_ITEM(lifted, i, x);
        }
    }
    Py_XDECREF(wider);
    return lifted;
}

PyDoc_STRVAR(concat_doc,
"concat(arrays, axis, /)\n--\n\n"
"Return the node that joins tensors along an axis they have; None where the general way has a say.");

static PyObject *
concat(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("concat", nargs, 2) < 0) {
        return NULL;
    }
    PyObject *tensors = as_known(args[0]), *node = NULL;
    if (tensors != NULL) {
        NodeObject *first = (NodeObject *)PyTuple_GET_ITEM(tensors, 0);
        Py_ssize_t axis = read_axis(args[1], PyTuple_GET_SIZE(first->shape));
        node = axis < 0 ? NULL : join(tensors, axis);
    }
    Py_XDECREF(tensors);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

PyDoc_STRVAR(stack_doc,
"stack(arrays, axis, /)\n--\n\n"
"Return the node that joins tensors of one shape along a new axis; None where the general way has a say.");

static PyObject *
stack(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("stack", nargs, 2) < 0) {
        return NULL;
    }
    PyObject *tensors = as_known(args[0]), *lifted = NULL, *node = NULL;
    if (tensors != NULL) {
        NodeObject *first = (NodeObject *)PyTuple_GET_ITEM(tensors, 0);
        Py_ssize_t axis = read_axis(args[1], PyTuple_GET_SIZE(first->shape) + 1);
        lifted = axis < 0 ? NULL : lift(tensors, axis);
        node = lifted == NULL ? NULL : join(lifted, axis);
    }
    Py_XDECREF(lifted);
    Py_XDECREF(tensors);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

PyMethodDef layout_methods[] = {
    {"concat", FAST(concat), METH_FASTCALL, concat_doc},
    {"reshape", FAST(reshape), METH_FASTCALL, reshape_doc},
    {"stack", FAST(stack), METH_FASTCALL, stack_doc},
    {NULL},
};
