/* Reading index expressions, what the steps of loops are full of: integers, slices, new axes, an ellipsis, integer
   tensors, arrays and lists of positions. See `_ops/indexing/template` for what they are read into. What is not
   understood here (masks, nested lists, symbolic sizes, what is out of range) is for `_ops/indexing/parse`, the general way, and so are all
   errors. */

#include "core.h"

static PyObject *kind_int, *kind_whole, *kind_slice, *kind_from, *kind_new, *kind_array;
PyObject *names_pick, *names_shape;

/* The axes of a selection: no more than items, axes of the tensor, and axes of an index array together. */
#define MOST_SIZES 64

/* A template in the making. It owns what it holds, but for the block. */
typedef struct {
    PyObject *index[3 * MOST_ITEMS], *lengths[MOST_ITEMS], *at[MOST_ITEMS];
    PyObject *sizes[MOST_SIZES]; /* the shape of the selection */
    Py_ssize_t entries, slices, operands, rank;
    PyObject *block;                        /* the shape of index arrays, if there are any */
    Py_ssize_t first, last, advanced, lead; /* which items are indexed like arrays, and the axes before them */
    int covers;
} Template;

/* Make the words of templates; returns -1 with an exception. */
int
indexing_start(void)
{
    const struct {
        PyObject **where;
        const char *word;
    } kinds[] = {{&kind_int, "int"},   {&kind_whole, "whole"}, {&kind_slice, "slice"},
                 {&kind_from, "from"}, {&kind_new, "new"},     {&kind_array, "array"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(kinds); i++) {
        if ((*kinds[i].where = PyUnicode_InternFromString(kinds[i].word)) == NULL) {
            return -1;
        }
    }
    names_pick = Py_BuildValue("(ss)", "index", "lengths");
    names_shape = Py_BuildValue("(s)", "shape");
    return names_pick != NULL && names_shape != NULL ? 0 : -1;
}

static void
release_template(Template *template)
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
    for (Py_ssize_t i = 0; i < template->rank; i++) {
        Py_DECREF(template->sizes[i]);
    }
}

/* Whether there are index arrays among the operands of a template; -1 with an exception. */
int
has_arrays(PyObject *index)
{
    return PySequence_Contains(index, kind_array);
}

/* --- items ---

   These functions return 1 if they understood an item, 0 if it is for the general way, -1 with an exception. */

static void
add_entry(Template *template, PyObject *entry)
{
    template->index[template->entries++] = Py_NewRef(entry);
}

/* Note an axis of the result. Takes over the reference. */
static int
add_size(Template *template, PyObject *size)
{
    if (size == NULL) {
        return -1;
    }
    template->sizes[template->rank++] = size;
    return 1;
}

/* Note an operand. Takes over the reference. */
static int
add_operand(Template *template, PyObject *operand)
{
    if (operand == NULL) {
        return -1;
    }
    template->at[template->operands++] = operand;
    return 1;
}

/* Note that an item is one of those that NumPy takes for an index array, if there are any: their axes come where the
   first of them stands, or first of all if other items are between them. */
static void
note_advanced(Template *template, Py_ssize_t item)
{
    if (template->advanced == 0) {
        template->lead = template->rank;
        template->first = item;
    }
    template->advanced++;
    template->last = item;
}

static int
add_position(Template *template, Py_ssize_t position, Py_ssize_t size)
{
    if (position < -size || position >= size) {
        return 0;
    }
    template->covers &= size == 1;
    add_entry(template, kind_int);
    return add_operand(template, find_integer(position < 0 ? position + size : position));
}

static int
add_whole(Template *template, PyObject *size)
{
    add_entry(template, kind_whole);
    return add_size(template, Py_NewRef(size));
}

static int
is_bound(PyObject *bound)
{
    return bound == Py_None || PyLong_CheckExact(bound);
}

static int
add_slice(Template *template, PySliceObject *item, PyObject *number, Py_ssize_t size)
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
        return add_whole(template, number);
    }
    PyObject *count = PyLong_FromSsize_t(length), *stride = PyLong_FromSsize_t(step);
    if (count == NULL || stride == NULL) {
        Py_XDECREF(count);
        Py_XDECREF(stride);
        return -1;
    }
    template->covers = 0;
    template->lengths[template->slices++] = count;
    add_entry(template, item->start == Py_None ? kind_slice : kind_from);
    template->index[template->entries++] = stride;
    add_size(template, Py_NewRef(count));
    return item->start == Py_None ? 1 : add_operand(template, find_integer(length == 0 ? 0 : start));
}

/* Add what has index arrays; takes over the reference. Several of them are understood if they have one shape. */
static int
add_array(Template *template, PyObject *operand)
{
    if (operand == NULL) {
        return -1;
    }
    PyObject *shape = ((NodeObject *)operand)->shape;
    if (!is_plain_tuple(shape) || (template->block != NULL && !same_numbers(shape, template->block))) {
        Py_DECREF(operand);
        return 0;
    }
    template->covers = 0;
    template->block = shape; /* which the operand keeps alive */
    add_entry(template, kind_array);
    return add_operand(template, operand);
}

/* Whether the elements of an array are positions of an axis, counted from the left. */
static int
are_positions(PyObject *bytes, Py_ssize_t size)
{
    const char *data = PyBytes_AS_STRING(bytes);
    for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(bytes); i += (Py_ssize_t)sizeof(long long)) {
        long long position;
        memcpy(&position, data + i, sizeof position);
        if (position < 0 || position >= size) {
            return 0;
        }
    }
    return 1;
}

static int
add_numpy_array(Template *template, PyObject *array, Py_ssize_t size)
{
    Contents contents;
    int understood = read_array(array, &contents);
    if (understood == 1 && (contents.dtype != int64 || !are_positions(contents.bytes, size))) {
        understood = 0;
    }
    if (understood == 1) {
        understood = add_array(template, constant_of(&contents));
    }
    release_contents(&contents);
    return understood;
}

/* Add a list of Python integers. */
static int
add_list(Template *template, PyObject *list, Py_ssize_t size)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    Contents contents = {Py_NewRef(int64), Py_BuildValue("(n)", count), NULL};
    contents.bytes = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(long long));
    int understood = contents.shape == NULL || contents.bytes == NULL ? -1 : count > 0;
    for (Py_ssize_t i = 0; understood == 1 && i < count; i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        long long position = PyLong_CheckExact(item) ? PyLong_AsLongLong(item) : -1;
        PyErr_Clear();
        understood = position >= 0 && position < size;
        memcpy(PyBytes_AS_STRING(contents.bytes) + i * (Py_ssize_t)sizeof position, &position, sizeof position);
    }
    if (understood == 1) {
        understood = add_array(template, constant_of(&contents));
    }
    release_contents(&contents);
    return understood;
}

/* Add an integer tensor, which stays part of the graph. A position that is not known is looked at when the node runs, also
   on an axis of size 1. */
static int
add_tensor(Template *template, NodeObject *item)
{
    if (item->dtype != int64 || item->op == constant_op) {
        return 0;
    }
    if (item->shape != empty) {
        return add_array(template, Py_NewRef(item));
    }
    template->covers = 0;
    add_entry(template, kind_int);
    return add_operand(template, Py_NewRef(item));
}

/* Add an item that takes up an axis. */
static int
add_item(Template *template, PyObject *item, Py_ssize_t number, PyObject *of_axis)
{
    Py_ssize_t size = PyLong_CheckExact(of_axis) ? PyLong_AsSsize_t(of_axis) : -1;
    if (size < 0) {
        PyErr_Clear();
        return 0;
    }
    if (PySlice_Check(item)) {
        return add_slice(template, (PySliceObject *)item, of_axis, size);
    }
    note_advanced(template, number);
    if (PyLong_CheckExact(item) || (PyObject *)Py_TYPE(item) == numpy_integer) {
        Py_ssize_t position = PyNumber_AsSsize_t(item, PyExc_IndexError);
        if (position == -1 && PyErr_Occurred()) {
            PyErr_Clear(); /* out of every range */
            return 0;
        }
        return add_position(template, position, size);
    }
    if (is_array(item)) {
        return add_numpy_array(template, item, size);
    }
    if (PyList_CheckExact(item)) {
        return add_list(template, item, size);
    }
    return PyObject_TypeCheck(item, &TensorType) ? add_tensor(template, (NodeObject *)item) : 0;
}

/* --- the whole expression --- */

/* Leave out whole axes at the end, where they go without saying. */
static void
trim(Template *template)
{
    while (template->entries > 0 && template->index[template->entries - 1] == kind_whole) {
        Py_DECREF(template->index[--template->entries]);
    }
}

/* Put the axes of index arrays where they belong among those of the result. */
static int
place_block(Template *template)
{
    if (template->block == NULL) {
        return 1;
    }
    Py_ssize_t width = PyTuple_GET_SIZE(template->block);
    Py_ssize_t lead = template->last - template->first + 1 == template->advanced ? template->lead : 0;
    if (template->rank + width > MOST_SIZES) {
        return 0;
    }
    memmove(template->sizes + lead + width, template->sizes + lead,
            (size_t)(template->rank - lead) * sizeof(PyObject *));
    for (Py_ssize_t i = 0; i < width; i++) {
        template->sizes[lead + i] = Py_NewRef(PyTuple_GET_ITEM(template->block, i));
    }
    template->rank += width;
    return 1;
}

/* Count the axes that the items of an index take up, and find its ellipsis. Returns 0 if there are several. */
static int
survey(PyObject *const *items, Py_ssize_t count, Py_ssize_t *taken, Py_ssize_t *ellipsis)
{
    *taken = 0;
    *ellipsis = -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (items[i] == Py_Ellipsis) {
            if (*ellipsis >= 0) {
                return 0;
            }
            *ellipsis = i;
        } else if (items[i] != Py_None) {
            ++*taken;
        }
    }
    return 1;
}

/* Read an index. Returns 1 if it is understood, 0 if the general way has a say, -1 with an exception. */
static int
read_index(Template *template, PyObject *x, PyObject *index)
{
    PyObject *shape = ((NodeObject *)x)->shape;
    PyObject *const *items = PyTuple_CheckExact(index) ? &PyTuple_GET_ITEM(index, 0) : &index;
    Py_ssize_t count = PyTuple_CheckExact(index) ? PyTuple_GET_SIZE(index) : 1;
    Py_ssize_t taken, ellipsis, axis = 0;
    *template = (Template){.covers = 1};
    if (!is_plain_tuple(shape) || count > MOST_ITEMS || PyTuple_GET_SIZE(shape) > MOST_ITEMS ||
        !survey(items, count, &taken, &ellipsis) || taken > PyTuple_GET_SIZE(shape)) {
        return 0;
    }
    Py_ssize_t rank = PyTuple_GET_SIZE(shape), left = rank - taken;
    int understood = 1;
    for (Py_ssize_t i = 0; understood == 1 && i < count; i++) {
        if (items[i] == Py_None) {
            add_entry(template, kind_new);
            understood = add_size(template, PyLong_FromLong(1));
        } else if (i == ellipsis) {
            for (Py_ssize_t j = 0; j < left; j++, axis++) {
                add_whole(template, PyTuple_GET_ITEM(shape, axis));
            }
        } else {
            understood = add_item(template, items[i], i, PyTuple_GET_ITEM(shape, axis));
            axis++;
        }
    }
    for (; understood == 1 && axis < rank; axis++) {
        understood = add_size(template, Py_NewRef(PyTuple_GET_ITEM(shape, axis)));
    }
    if (understood == 1 && template->block != NULL && ellipsis >= 0 && left == 0) {
        understood = 0; /* it keeps apart the arrays on its sides */
    }
    if (understood == 1) {
        trim(template);
        understood = place_block(template);
    }
    return understood;
}

/* Read an index into a selection, which owns its parts. Returns 1, 0 or -1 as `read_index` does. */
int
read_selection(PyObject *x, PyObject *index, Selection *selection)
{
    Template template;
    *selection = (Selection){NULL};
    int understood = read_index(&template, x, index);
    if (understood == 1) {
        selection->index = as_tuple(template.index, template.entries);
        selection->lengths = as_tuple(template.lengths, template.slices);
        selection->at = as_tuple(template.at, template.operands);
        selection->shape = as_tuple(template.sizes, template.rank);
        selection->covers = template.covers;
        if (selection->index == NULL || selection->lengths == NULL || selection->at == NULL ||
            selection->shape == NULL) {
            understood = -1;
        }
    }
    release_template(&template);
    return understood;
}
