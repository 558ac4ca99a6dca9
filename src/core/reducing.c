/* Sums over axes, with a short way for tensors of known shapes. */

#include "core.h"

static PyObject *names_reduce; /* of parameters */

/* All axes of tensors with few of them, once they were asked for: equal ones that are the same are told soonest. */
static PyObject *all_axes[8];

/* The axes that are reduced, as the op has them; NULL, without an exception, where the general way has a say. */
static PyObject *
reduced_axes(PyObject *axis, Py_ssize_t rank)
{
    if (axis == Py_None) {
        PyObject **known = rank < (Py_ssize_t)Py_ARRAY_LENGTH(all_axes) ? &all_axes[rank] : NULL;
        if (known != NULL && *known != NULL) {
            return Py_NewRef(*known);
        }
        PyObject *axes = PyTuple_New(rank);
        for (Py_ssize_t i = 0; axes != NULL && i < rank; i++) {
            PyObject *index = PyLong_FromSsize_t(i);
            if (index == NULL) {
                Py_CLEAR(axes);
            } else {
                PyTuple_SET_ITEM(axes, i, index);
            }
        }
        if (known != NULL && axes != NULL) {
            *known = Py_NewRef(axes);
        }
        return axes;
    }
    if (!PyLong_CheckExact(axis)) {
        return NULL;
    }
    int overflow;
    long index = PyLong_AsLongAndOverflow(axis, &overflow);
    if (overflow || index < -rank || index >= rank) {
        return NULL;
    }
    PyObject *number = PyLong_FromSsize_t(index < 0 ? index + rank : index);
    PyObject *axes = number == NULL ? NULL : PyTuple_Pack(1, number);
    Py_XDECREF(number);
    return axes;
}

PyDoc_STRVAR(reduce_doc,
"reduce(op, x, axis, keepdims, /)\n--\n\n"
"Return the node for a reduction of a tensor of floating-point numbers over all axes, or one. None where the general way\n"
"has a say.");

static PyObject *
reduce(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("reduce", nargs, 4) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (!PyObject_TypeCheck(args[1], &TensorType) || !PyBool_Check(args[3])) {
        Py_RETURN_NONE;
    }
    NodeObject *x = (NodeObject *)args[1];
    if ((x->dtype != float64 && x->dtype != float32 && x->dtype != complex128) || !is_plain_tuple(x->shape)) {
        Py_RETURN_NONE;
    }
    PyObject *axes = reduced_axes(args[2], PyTuple_GET_SIZE(x->shape));
    if (axes == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    PyObject *given[] = {args[1], axes, args[3]};
    PyObject *node = record_any((OpObject *)args[0], given, 1, names_reduce);
    Py_DECREF(axes);
    return node;
}

/* Make the names of parameters; returns -1 if there is no memory for them. */
int
reducing_start(void)
{
    names_reduce = Py_BuildValue("(ss)", "axis", "keepdims");
    return names_reduce == NULL ? -1 : 0;
}

PyMethodDef reducing_methods[] = {
    {"reduce", FAST(reduce), METH_FASTCALL, reduce_doc},
    {NULL},
};
