/* How arrays lie in memory: where, and in which order of their axes. Files keep that order, as results may depend on it. */

#include "core.h"
#include "journal.h"

static PyObject *name_strides;

/* Put the axes in order, those that are equally far apart as they come. */
static void
order_axes(Laid *laid)
{
    for (int i = 0; i < laid->bytes.ndim; i++) {
        int at = i;
        for (; at > 0 && Py_ABS(laid->strides[laid->axes[at - 1]]) < Py_ABS(laid->strides[i]); at--) {
            laid->axes[at] = laid->axes[at - 1];
        }
        laid->axes[at] = (unsigned char)i;
    }
}

/* Find how an array lies in memory; -1 is an error. Its strides are asked for: those of its buffer are made up where an
   axis has one element. */
int
lay_out(PyObject *array, Laid *laid)
{
    if (PyObject_GetBuffer(array, &laid->bytes, PyBUF_STRIDES) < 0) {
        return -1;
    }
    PyObject *strides = PyObject_GetAttr(array, name_strides);
    int failed = strides == NULL;
    if (!failed && (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != laid->bytes.ndim ||
                    laid->bytes.ndim > MOST_AXES)) {
        PyErr_Format(PyExc_TypeError, "expected an array, got %R", array);
        failed = 1;
    }
    for (int i = 0; !failed && i < laid->bytes.ndim; i++) {
        laid->strides[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, i));
        failed = laid->strides[i] == -1 && PyErr_Occurred() != NULL;
    }
    Py_XDECREF(strides);
    if (failed) {
        PyBuffer_Release(&laid->bytes);
        return -1;
    }
    order_axes(laid);
    return 0;
}

/* Whether the elements of an array lie in one row, in the order of its axes in memory. */
int
is_dense(const Laid *laid)
{
    Py_ssize_t apart = laid->bytes.itemsize;
    for (int i = laid->bytes.ndim - 1; i >= 0 && laid->bytes.len > 0; i--) {
        Py_ssize_t size = laid->bytes.shape[laid->axes[i]];
        if (size != 1 && laid->strides[laid->axes[i]] != apart) {
            return 0;
        }
        apart *= size;
    }
    return 1;
}

PyDoc_STRVAR(memory_of_doc,
"memory_of(array, /)\n--\n\n"
"Return where an array lies in memory, and its axes, outermost in memory first.");

static PyObject *
memory_of(PyObject *module, PyObject *array)
{
    Laid laid;
    if (lay_out(array, &laid) < 0) {
        return NULL;
    }
    PyObject *axes = PyTuple_New(laid.bytes.ndim);
    for (int i = 0; axes != NULL && i < laid.bytes.ndim; i++) {
        PyObject *axis = PyLong_FromLong(laid.axes[i]);
        if (axis == NULL) {
            Py_CLEAR(axes);
            break;
        }
        PyTuple_SET_ITEM(axes, i, axis);
    }
    PyObject *address = PyLong_FromVoidPtr(laid.bytes.buf);
    PyBuffer_Release(&laid.bytes);
    if (axes == NULL || address == NULL) {
        Py_XDECREF(axes);
        Py_XDECREF(address);
        return NULL;
    }
    return Py_BuildValue("NN", address, axes);
}

PyMethodDef laid_methods[] = {
    {"memory_of", memory_of, METH_O, memory_of_doc},
    {NULL},
};

/* Make what is used every time; returns -1 with an exception. */
int
laid_start(void)
{
    name_strides = PyUnicode_InternFromString("strides");
    return name_strides != NULL ? 0 : -1;
}
