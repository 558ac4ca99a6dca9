/* Reading index expressions of integers and slices, what the steps of loops are full of: see `_ops/indexing/template`. */

#include "core.h"

/* Of more axes than this, the general way makes the template. */
#define MOST_AXES 16

static PyObject *kind_int, *kind_whole, *kind_slice, *kind_from;
static PyObject *names; /* of the parameters: structure and lengths */

/* Make the words of templates; returns -1 with an exception. */
int
indexing_start(void)
{
    kind_int = PyUnicode_InternFromString("int");
    kind_whole = PyUnicode_InternFromString("whole");
    kind_slice = PyUnicode_InternFromString("slice");
    kind_from = PyUnicode_InternFromString("from");
    names = Py_BuildValue("(ss)", "index", "lengths");
    return kind_int != NULL && kind_whole != NULL && kind_slice != NULL && kind_from != NULL && names != NULL ? 0 : -1;
}

/* A template in the making. It owns what it holds. */
typedef struct {
    PyObject *index[2 * MOST_AXES], *lengths[MOST_AXES], *at[MOST_AXES];
    Py_ssize_t entries, slices, operands;
    int covers; /* whether every element is selected so far: then it may be a reshape, or nothing at all */
} Template;

static void
release(Template *template)
{
    for (Py_ssize_t i = 0; i < template->entries; i++) {
        Py_DECREF(template->index[i]);
    }
    for (Py_ssize_t i = 0; i < template->slices; i++) {
        Py_DECREF(template->lengths[i]);
    }
    for (Py_ssize_t i = 0; i < template->operands; i++) {
        Py_DECREF(template->at[i]);
    }
}

/* The functions below return 1 if they understood an item, 0 if it is for the general way, -1 with an exception. */

static int
add_operand(Template *template, Py_ssize_t value)
{
    PyObject *operand = find_integer(value);
    if (operand == NULL) {
        return -1;
    }
    template->at[template->operands++] = operand;
    return 1;
}

static int
add_position(Template *template, PyObject *item, Py_ssize_t size)
{
    Py_ssize_t position = PyLong_AsSsize_t(item);
    if (position == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    if (position < -size || position >= size) {
        return 0;
    }
    template->covers &= size == 1;
    template->index[template->entries++] = Py_NewRef(kind_int);
    return add_operand(template, position < 0 ? position + size : position);
}

static int
is_bound(PyObject *bound)
{
    return bound == Py_None || PyLong_CheckExact(bound);
}

static int
add_slice(Template *template, PySliceObject *item, Py_ssize_t size)
{
    Py_ssize_t start, stop, step;
    if (!is_bound(item->start) || !is_bound(item->stop) || !is_bound(item->step)) {
        return 0;
    }
    if (PySlice_Unpack((PyObject *)item, &start, &stop, &step) < 0) {
        PyErr_Clear(); /* a step of 0 */
        return 0;
    }
    Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
    if (length == size && (step > 0 || size <= 1)) {
        template->index[template->entries++] = Py_NewRef(kind_whole);
        return 1;
    }
    PyObject *count = PyLong_FromSsize_t(length), *stride = PyLong_FromSsize_t(step);
    if (count == NULL || stride == NULL) {
        Py_XDECREF(count);
        Py_XDECREF(stride);
        return -1;
    }
    template->covers = 0;
    template->lengths[template->slices++] = count;
    template->index[template->entries++] = Py_NewRef(item->start == Py_None ? kind_slice : kind_from);
    template->index[template->entries++] = stride;
    return item->start == Py_None ? 1 : add_operand(template, length == 0 ? 0 : start);
}

/* Leave out whole axes at the end, where they go without saying. */
static void
trim(Template *template)
{
    while (template->entries > 0 && template->index[template->entries - 1] == kind_whole) {
        Py_DECREF(template->index[--template->entries]);
    }
}

/* Read an index made of integers and slices. Returns 1 if it is understood, 0 if the general way has a say (other items,
   symbolic sizes, what is out of range, and what selects all there is), -1 with an exception. */
static int
read_index(Template *template, PyObject *x, PyObject *index)
{
    PyObject *shape = ((NodeObject *)x)->shape;
    Py_ssize_t count = PyTuple_CheckExact(index) ? PyTuple_GET_SIZE(index) : 1;
    if (!PyTuple_Check(shape) || count > PyTuple_GET_SIZE(shape) || count > MOST_AXES) {
        return 0;
    }
    int understood = 1;
    for (Py_ssize_t axis = 0; understood == 1 && axis < count; axis++) {
        PyObject *item = PyTuple_CheckExact(index) ? PyTuple_GET_ITEM(index, axis) : index;
        PyObject *number = PyTuple_GET_ITEM(shape, axis);
        Py_ssize_t size = PyLong_CheckExact(number) ? PyLong_AsSsize_t(number) : -1;
        if (size < 0) {
            PyErr_Clear();
            understood = 0;
        } else if (PyLong_CheckExact(item)) {
            understood = add_position(template, item, size);
        } else {
            understood = PySlice_Check(item) ? add_slice(template, (PySliceObject *)item, size) : 0;
        }
    }
    if (understood == 1) {
        trim(template);
    }
    return understood == 1 && template->covers ? 0 : understood;
}

PyDoc_STRVAR(plain_index_doc,
"plain_index(x, index, /)\n--\n\n"
"Return template, lengths and operands of an index made of integers and slices; None where the general way has a say:\n"
"other items, symbolic sizes, what is out of range, and what selects all there is.");

static PyObject *
plain_index(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("plain_index", nargs, 2) < 0 || check_nodes(NULL, args, 1) < 0) {
        return NULL;
    }
    Template template = {.covers = 1};
    PyObject *found = NULL;
    int understood = read_index(&template, args[0], args[1]);
    if (understood == 1) {
        PyObject *index = as_tuple(template.index, template.entries);
        PyObject *lengths = as_tuple(template.lengths, template.slices);
        PyObject *at = as_tuple(template.at, template.operands);
        found = index == NULL || lengths == NULL || at == NULL ? NULL : PyTuple_Pack(3, index, lengths, at);
        Py_XDECREF(index);
        Py_XDECREF(lengths);
        Py_XDECREF(at);
    } else if (understood == 0) {
        found = Py_NewRef(Py_None);
    }
    release(&template);
    return found;
}

PyDoc_STRVAR(pick_plain_doc,
"pick_plain(op, x, index, /)\n--\n\n"
"Return the node for what an index made of integers and slices selects from a tensor; None where `plain_index` has none.");

static PyObject *
pick_plain(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("pick_plain", nargs, 3) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (check_nodes(args[0], args + 1, 1) < 0) {
        return NULL;
    }
    Template template = {.covers = 1};
    PyObject *found = NULL;
    int understood = read_index(&template, args[1], args[2]);
    if (understood == 1) {
        PyObject *given[MOST_AXES + 3];
        Py_ssize_t count = 1 + template.operands;
        given[0] = args[1];
        memcpy(given + 1, template.at, (size_t)template.operands * sizeof(PyObject *));
        given[count] = as_tuple(template.index, template.entries);
        given[count + 1] = as_tuple(template.lengths, template.slices);
        if (given[count] != NULL && given[count + 1] != NULL) {
            found = record_any((OpObject *)args[0], given, count, names);
        }
        Py_XDECREF(given[count]);
        Py_XDECREF(given[count + 1]);
    } else if (understood == 0) {
        found = Py_NewRef(Py_None);
    }
    release(&template);
    return found;
}

PyDoc_STRVAR(are_positions_doc,
"are_positions(array, size, /)\n--\n\n"
"Return whether an array of 64-bit integers, without gaps in memory, has nothing but positions of an axis, counted from\n"
"the left. False also where only somebody else can tell.");

static PyObject *
are_positions(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("are_positions", nargs, 2) < 0) {
        return NULL;
    }
    long long size = PyLong_AsLongLong(args[1]);
    Py_buffer buffer;
    if (size == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &buffer, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        Py_RETURN_FALSE;
    }
    int fit = buffer.itemsize == sizeof(long long) && buffer.format != NULL &&
              (strcmp(buffer.format, "l") == 0 || strcmp(buffer.format, "q") == 0);
    const long long *positions = buffer.buf;
    for (Py_ssize_t i = 0; fit && i < buffer.len / (Py_ssize_t)sizeof(long long); i++) {
        fit = positions[i] >= 0 && positions[i] < size;
    }
    PyBuffer_Release(&buffer);
    return PyBool_FromLong(fit);
}

PyMethodDef indexing_methods[] = {
    {"are_positions", FAST(are_positions), METH_FASTCALL, are_positions_doc},
    {"pick_plain", FAST(pick_plain), METH_FASTCALL, pick_plain_doc},
    {"plain_index", FAST(plain_index), METH_FASTCALL, plain_index_doc},
    {NULL},
};
