/* Loops of one body that run from the first step to the last: the arrays they fill, the steps, and the results.

   Where everything lies as the program was made for, nothing of this needs Python. Where not, nothing is done, and who
   asked does it in another way. */

#include "native.h"

/* What is known of such a loop; `unspool._engine.backends.native` says what each is. */
typedef struct {
    PyObject *constants, *carry, *rows;     /* positions among the inputs */
    PyObject *histories, *written;          /* with what a history begins, and shape and dtype of a row */
    PyObject *totals;                       /* sums of nothing */
    PyObject *leaving, *places;             /* where the results are */
    Py_ssize_t large;                       /* bytes from which on memory is kept for others */
} Ends;

/* An array without gaps that begins where NumPy's do: itself, or a copy, as `buffers.dense` makes it. */
static PyObject *
dense(PyArrayObject *array)
{
    if (!PyArray_IS_C_CONTIGUOUS(array) && !PyArray_IS_F_CONTIGUOUS(array)) {
        NPY_ORDER order = NPY_KEEPORDER;
        for (int axis = 0; axis < PyArray_NDIM(array); axis++) {
            if (PyArray_DIM(array, axis) > 1 && PyArray_STRIDE(array, axis) == 0) {
                order = NPY_CORDER;
            }
        }
        return PyArray_NewCopy(array, order);
    }
    return (npy_uintp)PyArray_DATA(array) % 16 ? PyArray_NewCopy(array, NPY_KEEPORDER) : Py_NewRef((PyObject *)array);
}

/* Return arrays as steps read them, as a tuple; None if one is none. */
static PyObject *
all_dense(PyObject *arrays)
{
    PyObject *given = PySequence_Tuple(arrays);
    Py_ssize_t count = given == NULL ? 0 : PyTuple_GET_SIZE(given);
    PyObject *inputs = given == NULL ? NULL : PyTuple_New(count);
    for (Py_ssize_t i = 0; inputs != NULL && i < count; i++) {
        PyObject *array = PyTuple_GET_ITEM(given, i);
        if (!PyArray_CheckExact(array)) {
            Py_SETREF(inputs, Py_NewRef(Py_None));
            break;
        }
        PyObject *made = dense((PyArrayObject *)array);
        if (made == NULL) {
            Py_CLEAR(inputs);
            break;
        }
        PyTuple_SET_ITEM(inputs, i, made);
    }
    Py_XDECREF(given);
    return inputs;
}

/* Return the inputs at some positions as a list. */
static PyObject *
pick(PyObject *positions, PyObject *inputs)
{
    Py_ssize_t count = PyTuple_GET_SIZE(positions);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
        if (at < 0 || at >= PyTuple_GET_SIZE(inputs)) {
            Py_CLEAR(list);
            PyErr_SetString(PyExc_ValueError, "there is no such input");
            break;
        }
        PyList_SET_ITEM(list, i, Py_NewRef(PyTuple_GET_ITEM(inputs, at)));
    }
    return list;
}

/* Whether inputs lie as the slots of a program, from one of its inputs on. */
static int
fit(const Program *program, PyObject *list, Py_ssize_t first)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (first + count > program->inputs) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!lies_like((PyArrayObject *)PyList_GET_ITEM(list, i), &program->slot[program->input[first + i]])) {
            return 0;
        }
    }
    return 1;
}

static int
have_rows(PyObject *list, Py_ssize_t steps)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyArrayObject *stack = (PyArrayObject *)PyList_GET_ITEM(list, i);
        if (PyArray_NDIM(stack) == 0 || PyArray_DIM(stack, 0) != steps) {
            return 0;
        }
    }
    return 1;
}

/* Return a new array of rows. */
static PyObject *
new_stack(Py_ssize_t rows, PyObject *shape, PyArray_Descr *descr, Py_ssize_t large)
{
    npy_intp sizes[MOST_AXES + 1] = {rows};
    Py_ssize_t axes = PyTuple_GET_SIZE(shape);
    if (axes > MOST_AXES) {
        PyErr_SetString(PyExc_ValueError, "there are too many axes");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < axes; i++) {
        sizes[i + 1] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
    }
    if (PyErr_Occurred()) {
        return NULL;
    }
    /* Where that is no number, NumPy says so. */
    npy_intp count = PyArray_OverflowMultiplyList(sizes, axes + 1);
    Py_INCREF(descr);
    return count >= large / PyDataType_ELSIZE(descr) ? memory_array(axes + 1, sizes, descr)
                                                     : PyArray_Empty(axes + 1, sizes, descr, 0);
}

/* Put what a history begins with into one of its rows; nothing is zeros. */
static int
begin_history(PyArrayObject *history, Py_ssize_t row, PyObject *first)
{
    npy_intp nbytes = PyArray_NBYTES(history) / PyArray_DIM(history, 0);
    char *to = PyArray_BYTES(history) + row * nbytes;
    if (first == NULL) {
        memset(to, 0, nbytes);
        return DONE;
    }
    PyArrayObject *array = (PyArrayObject *)first;
    if (PyArray_TYPE(array) != PyArray_TYPE(history) || PyArray_NDIM(array) + 1 != PyArray_NDIM(history) ||
        !PyArray_ISCARRAY_RO(array) ||
        !PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(history) + 1, PyArray_NDIM(array))) {
        return NOT_NOW;
    }
    memcpy(to, PyArray_DATA(array), nbytes);
    return DONE;
}

static int
make_histories(const Ends *ends, const Given *given, PyObject *inputs, PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ends->histories); i++) {
        Py_ssize_t at;
        PyObject *shape;
        PyArray_Descr *descr;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(ends->histories, i), "nO!O!", &at, &PyTuple_Type, &shape,
                              &PyArrayDescr_Type, &descr)) {
            return FAILED;
        }
        PyObject *made = new_stack(given->count + 1, shape, descr, ends->large);
        if (made == NULL || PyList_Append(list, made) < 0) {
            Py_XDECREF(made);
            return FAILED;
        }
        Py_DECREF(made); /* the list has it */
        if (at >= PyTuple_GET_SIZE(inputs)) {
            PyErr_SetString(PyExc_ValueError, "there is no such input");
            return FAILED;
        }
        PyObject *first = at < 0 ? NULL : PyTuple_GET_ITEM(inputs, at);
        int done = begin_history((PyArrayObject *)made, given->is_reverse ? given->count : 0, first);
        if (done != DONE) {
            return done;
        }
    }
    return DONE;
}

static int
make_written(const Ends *ends, const Given *given, PyObject *list)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ends->written); i++) {
        PyObject *shape;
        PyArray_Descr *descr;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(ends->written, i), "O!O!", &PyTuple_Type, &shape, &PyArrayDescr_Type,
                              &descr)) {
            return FAILED;
        }
        PyObject *made = new_stack(given->count, shape, descr, ends->large);
        if (made == NULL || PyList_Append(list, made) < 0) {
            Py_XDECREF(made);
            return FAILED;
        }
        Py_DECREF(made);
    }
    return DONE;
}

/* --- results --- */

/* A register that leaves: one that was assigned, or an input, which must not keep more alive than itself. */
static PyObject *
register_at(Py_ssize_t at, PyObject *assigned, PyObject *inputs)
{
    if (at >= 0 ? at >= PyList_GET_SIZE(assigned) : ~at >= PyTuple_GET_SIZE(inputs)) {
        PyErr_SetString(PyExc_ValueError, "there is no such register");
        return NULL;
    }
    if (at >= 0) {
        return Py_NewRef(PyList_GET_ITEM(assigned, at));
    }
    PyObject *input = PyTuple_GET_ITEM(inputs, ~at);
    return PyArray_BASE((PyArrayObject *)input) == NULL ? Py_NewRef(input)
                                                        : PyArray_NewCopy((PyArrayObject *)input, NPY_KEEPORDER);
}

/* Rows of a history from one on. */
static PyObject *
rows_of(PyArrayObject *history, Py_ssize_t start, Py_ssize_t steps)
{
    npy_intp sizes[MOST_AXES + 1];
    memcpy(sizes, PyArray_DIMS(history), PyArray_NDIM(history) * sizeof(npy_intp));
    sizes[0] = steps;
    PyArray_Descr *descr = PyArray_DESCR(history);
    Py_INCREF(descr);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(history), sizes, PyArray_STRIDES(history),
                                          PyArray_BYTES(history) + start * PyArray_STRIDE(history, 0),
                                          NPY_ARRAY_WRITEABLE, NULL);
    if (view != NULL && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef((PyObject *)history)) < 0) {
        Py_CLEAR(view);
    }
    return view;
}

/* One of the stacks: rows of a history from one on, or an array of its own (~). */
static PyObject *
stack_at(PyObject *place, const Given *given)
{
    Py_ssize_t at, start;
    if (!PyArg_ParseTuple(place, "nn", &at, &start)) {
        return NULL;
    }
    PyObject *list = at < 0 ? given->write : given->history;
    if ((at < 0 ? ~at : at) >= PyList_GET_SIZE(list) || start < 0 || start > 1) {
        PyErr_SetString(PyExc_ValueError, "there is no such stack");
        return NULL;
    }
    return at < 0 ? Py_NewRef(PyList_GET_ITEM(list, ~at))
                  : rows_of((PyArrayObject *)PyList_GET_ITEM(list, at), start, given->count);
}

/* Registers that leave, stacks and sums, given what the steps returned. */
static PyObject *
outputs_of(const Ends *ends, const Given *given, PyObject *inputs, PyObject *found)
{
    PyObject *assigned = PyTuple_GET_ITEM(found, 2), *sums = PyTuple_GET_ITEM(found, 4);
    Py_ssize_t leaving = PyTuple_GET_SIZE(ends->leaving), places = PyTuple_GET_SIZE(ends->places);
    Py_ssize_t count = leaving + places + PyList_GET_SIZE(sums);
    PyObject *outputs = PyTuple_New(count);
    for (Py_ssize_t i = 0; outputs != NULL && i < count; i++) {
        PyObject *output;
        if (i < leaving) {
            Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(ends->leaving, i));
            output = PyErr_Occurred() ? NULL : register_at(at, assigned, inputs);
        }
        else if (i < leaving + places) {
            output = stack_at(PyTuple_GET_ITEM(ends->places, i - leaving), given);
        }
        else {
            output = Py_NewRef(PyList_GET_ITEM(sums, i - leaving - places));
        }
        if (output == NULL) {
            Py_CLEAR(outputs);
            break;
        }
        PyTuple_SET_ITEM(outputs, i, output);
    }
    return outputs;
}

/* --- all of it --- */

static int
run_whole(Program *program, const Ends *ends, Given *given, PyObject *inputs, PyObject **outputs)
{
    if ((given->constants = pick(ends->constants, inputs)) == NULL ||
        (given->carry = pick(ends->carry, inputs)) == NULL || (given->rows = pick(ends->rows, inputs)) == NULL ||
        (given->history = PyList_New(0)) == NULL || (given->write = PyList_New(0)) == NULL) {
        return FAILED;
    }
    /* Before anything is made: it may be large. */
    if (program->is_given_up || !fit(program, given->constants, 0) ||
        !fit(program, given->carry, PyList_GET_SIZE(given->constants)) || !have_rows(given->rows, given->count)) {
        return NOT_NOW;
    }
    int done = make_histories(ends, given, inputs, given->history);
    done = done == DONE ? make_written(ends, given, given->write) : done;
    PyObject *found = done == DONE ? drive_loop(program, given) : NULL;
    if (found != NULL && found != Py_None) {
        *outputs = outputs_of(ends, given, inputs, found);
    }
    else if (found != NULL) {
        done = NOT_NOW;
    }
    Py_XDECREF(found);
    return done == DONE && *outputs == NULL ? FAILED : done;
}

PyObject *
program_whole(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Given given = {.counter = Py_None};
    Ends ends;
    if (count != 4 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "expected two descriptions of a loop, the number of steps, and the inputs");
        return NULL;
    }
    given.count = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || !read_described(args[0], &given) ||
        !PyArg_ParseTuple(args[1], "O!O!O!O!O!O!O!O!n", &PyTuple_Type, &ends.constants, &PyTuple_Type, &ends.carry,
                          &PyTuple_Type, &ends.rows, &PyTuple_Type, &ends.histories, &PyTuple_Type, &ends.written,
                          &PyList_Type, &ends.totals, &PyTuple_Type, &ends.leaving, &PyTuple_Type, &ends.places,
                          &ends.large)) {
        return NULL;
    }
    PyObject *inputs = all_dense(args[3]);
    if (inputs == NULL || inputs == Py_None) {
        return inputs;
    }
    given.first = given.is_reverse ? given.count - 1 : 0;
    given.step = given.is_reverse ? -1 : 1;
    given.totals = ends.totals;
    PyObject *outputs = NULL;
    int done = given.count < 1 ? NOT_NOW : run_whole((Program *)self, &ends, &given, inputs, &outputs);
    Py_XDECREF(given.constants);
    Py_XDECREF(given.carry);
    Py_XDECREF(given.rows);
    Py_XDECREF(given.history);
    Py_XDECREF(given.write);
    Py_DECREF(inputs);
    return done == NOT_NOW ? Py_NewRef(Py_None) : outputs;
}
