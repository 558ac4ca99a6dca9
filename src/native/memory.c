/* Memory of large arrays, kept when they die for others of the same size.

   The C library gives large blocks back to the system, which hands them out again page by page, cleared: for the stacks
   of a loop of small steps that took a third of its time. So blocks are kept, up to a limit. The arrays are like all
   others and own their memory; NumPy asks the handler that an array was made with to free it.

   All of it runs under the interpreter's lock, as what makes and ends arrays does. */

#include "native.h"

enum { MOST_BLOCKS = 64, FIRST_LIMIT = 1 << 26 };

typedef struct {
    void *start;
    size_t size;
} Block;

/* In the order in which they came. */
static Block kept[MOST_BLOCKS];
static int blocks;
static size_t kept_bytes, limit = FIRST_LIMIT;
static PyDataMemAllocator numpy; /* what NumPy allocates with by itself */
static PyObject *handler;

static void *
remove_block(int which)
{
    void *start = kept[which].start;
    kept_bytes -= kept[which].size;
    memmove(kept + which, kept + which + 1, (--blocks - which) * sizeof(Block));
    return start;
}

static void
free_oldest(void)
{
    size_t size = kept[0].size;
    numpy.free(numpy.ctx, remove_block(0), size);
}

static void
keep_at_most(size_t bytes)
{
    while (kept_bytes > bytes) {
        free_oldest();
    }
}

static void *
take_block(void *Py_UNUSED(context), size_t size)
{
    for (int i = blocks - 1; i >= 0; i--) {
        if (kept[i].size == size) {
            return remove_block(i);
        }
    }
    return numpy.malloc(numpy.ctx, size);
}

static void *
take_zeros(void *Py_UNUSED(context), size_t count, size_t size)
{
    return numpy.calloc(numpy.ctx, count, size);
}

static void *
resize_block(void *Py_UNUSED(context), void *block, size_t size)
{
    return numpy.realloc(numpy.ctx, block, size);
}

static void
give_block(void *Py_UNUSED(context), void *block, size_t size)
{
    if (block == NULL || size > limit) {
        numpy.free(numpy.ctx, block, size);
        return;
    }
    keep_at_most(limit - size);
    if (blocks == MOST_BLOCKS) {
        free_oldest();
    }
    kept[blocks++] = (Block){block, size};
    kept_bytes += size;
}

static PyDataMem_Handler functions = {
    "unspool", 1, {NULL, take_block, take_zeros, resize_block, give_block},
};

int
memory_setup(void)
{
    PyDataMem_Handler *standard = PyCapsule_GetPointer(PyDataMem_DefaultHandler, "mem_handler");
    if (standard == NULL) {
        return -1;
    }
    numpy = standard->allocator;
    handler = PyCapsule_New(&functions, "mem_handler", NULL);
    return handler == NULL ? -1 : 0;
}

/* An array with arbitrary contents, in memory that is kept when it dies. Takes the dtype. */
PyObject *
memory_array(int ndim, npy_intp *shape, PyArray_Descr *descr)
{
    PyObject *before = PyDataMem_SetHandler(handler);
    if (before == NULL) {
        Py_DECREF(descr);
        return NULL;
    }
    PyObject *made = PyArray_Empty(ndim, shape, descr, 0);
    PyObject *ours = PyDataMem_SetHandler(before);
    Py_XDECREF(ours);
    Py_DECREF(before);
    if (ours == NULL) {
        Py_CLEAR(made);
    }
    return made;
}

PyObject *
memory_empty(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyArray_Dims shape = {NULL, 0};
    PyArray_Descr *descr = NULL;
    PyObject *made = NULL;
    if (PyArg_ParseTuple(args, "O&O&", PyArray_IntpConverter, &shape, PyArray_DescrConverter, &descr)) {
        made = memory_array(shape.len, shape.ptr, descr);
    }
    PyDimMem_FREE(shape.ptr);
    return made;
}

PyObject *
memory_limit(PyObject *Py_UNUSED(module), PyObject *bytes)
{
    size_t before = limit, wanted = PyLong_AsSize_t(bytes);
    if (wanted == (size_t)-1 && PyErr_Occurred()) {
        return NULL;
    }
    limit = wanted;
    keep_at_most(limit);
    return PyLong_FromSize_t(before);
}

PyObject *
memory_kept(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromSize_t(kept_bytes);
}
