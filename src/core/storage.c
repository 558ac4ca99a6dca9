/* Memory that gets longer and shorter where it is. Its bytes stay, and for large pieces the system moves pages, not
   bytes. NumPy's arrays did so themselves up to 2.4; from 2.5 on they are there twice while they get another size. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    char *start;
    Py_ssize_t size, exports;
} StorageObject;

/* 0, or -1 with an exception set, and then nothing has changed. */
static int
storage_set_size(StorageObject *self, Py_ssize_t size)
{
    if (size < 0) {
        PyErr_Format(PyExc_ValueError, "memory has %zd bytes", size);
        return -1;
    }
    char *moved = PyMem_RawRealloc(self->start, (size_t)size);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    self->start = moved;
    self->size = size;
    return 0;
}

static PyObject *
storage_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t size;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Storage() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "n:Storage", &size)) {
        return NULL;
    }
    StorageObject *self = (StorageObject *)type->tp_alloc(type, 0);
    if (self != NULL && storage_set_size(self, size) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void
storage_dealloc(StorageObject *self)
{
    PyMem_RawFree(self->start);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(storage_resize_doc,
"resize(size, /)\n--\n\n"
"Let it have another number of bytes. What is new among them is arbitrary.\n\n"
"Raises\n------\nBufferError\n    If somebody looks at the memory, as an array does. Nothing changes.");

static PyObject *
storage_resize(StorageObject *self, PyObject *given)
{
    Py_ssize_t size = PyNumber_AsSsize_t(given, PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (self->exports) {
        PyErr_SetString(PyExc_BufferError, "memory that somebody looks at cannot get another size");
        return NULL;
    }
    if (storage_set_size(self, size) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int
storage_export(StorageObject *self, Py_buffer *view, int flags)
{
    int failed = PyBuffer_FillInfo(view, (PyObject *)self, self->start, self->size, 0, flags);
    self->exports += failed == 0;
    return failed;
}

static void
storage_release(StorageObject *self, Py_buffer *Py_UNUSED(view))
{
    self->exports--;
}

static PyBufferProcs storage_buffer = {
    .bf_getbuffer = (getbufferproc)storage_export,
    .bf_releasebuffer = (releasebufferproc)storage_release,
};

static PyMethodDef storage_methods[] = {
    {"resize", (PyCFunction)storage_resize, METH_O, storage_resize_doc},
    {NULL},
};

PyTypeObject StorageType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Storage",
    .tp_doc = "Storage(size, /)\n--\n\nA number of bytes with arbitrary contents, of which there can be more later, or fewer.",
    .tp_basicsize = sizeof(StorageObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = storage_new,
    .tp_dealloc = (destructor)storage_dealloc,
    .tp_as_buffer = &storage_buffer,
    .tp_methods = storage_methods,
};
