/* Calling a program with arrays: pointers to them and to what is made, one run, and the results. */

#include "native.h"

/* Beside those of `run_program`: the arrays lie in another way than the program was made for. */
enum { OTHER_LAYOUT = 3 };

/* Whether an array lies in memory as a slot says. */
int
lies_like(PyArrayObject *array, const Slot *slot)
{
    if (PyArray_TYPE(array) != slot->descr->type_num || PyArray_NDIM(array) != slot->ndim ||
        !PyArray_ISBEHAVED_RO(array)) {
        return 0;
    }
    PyObject *owner = slot->is_whole ? PyArray_BASE(array) : NULL;
    if (owner != NULL && PyArray_CheckExact(owner) && PyArray_NBYTES((PyArrayObject *)owner) > PyArray_NBYTES(array)) {
        return 0;
    }
    for (int axis = 0; axis < slot->ndim; axis++) {
        npy_intp size = PyArray_DIM(array, axis);
        if (size != slot->shape[axis] || (size > 1 && PyArray_STRIDE(array, axis) != slot->strides[axis])) {
            return 0;
        }
    }
    return 1;
}

/* Set the pointer of an input; a number is copied. False, without an error, for what the program was not made for. */
int
accept_array(Program *program, int slot, PyObject *value, char **pointer, char *number)
{
    const Slot *expected = &program->slot[slot];
    if (PyArray_CheckExact(value)) {
        PyArrayObject *array = (PyArrayObject *)value;
        if (!lies_like(array, expected)) {
            return 0;
        }
        pointer[slot] = PyArray_DATA(array);
        return 1;
    }
    if (expected->ndim == 0 && PyArray_CheckScalar(value)) {
        PyArray_Descr *descr = PyArray_DescrFromScalar(value);
        int fits = descr != NULL && descr->type_num == expected->descr->type_num;
        Py_XDECREF(descr);
        PyErr_Clear();
        if (fits) {
            PyArray_ScalarAsCtype(value, number);
            pointer[slot] = number;
        }
        return fits;
    }
    return 0;
}

PyObject *
new_array(const Slot *slot)
{
    Py_INCREF(slot->descr);
    npy_intp *strides = slot->order == 'K' ? slot->strides : NULL;
    return PyArray_NewFromDescr(&PyArray_Type, slot->descr, slot->ndim, slot->shape, strides, NULL,
                                slot->order == 'F' ? NPY_ARRAY_F_CONTIGUOUS : 0, NULL);
}

/* A view of an array, with the shape and the strides of a slot; a copy if it would hold much more memory than its own
   alive, as `numpy_values.owned` has it. */
static PyObject *
new_view(const Slot *slot, char *data, PyObject *base)
{
    Py_INCREF(slot->descr);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, slot->descr, slot->ndim, slot->shape, slot->strides, data,
                                          PyArray_FLAGS((PyArrayObject *)base) & NPY_ARRAY_WRITEABLE, NULL);
    if (view == NULL || PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(base)) < 0) {
        Py_XDECREF(view);
        return NULL;
    }
    PyObject *owner = PyArray_BASE((PyArrayObject *)view);
    if (PyArray_CheckExact(owner) && PyArray_NBYTES((PyArrayObject *)owner) > 2 * slot->nbytes) {
        Py_SETREF(view, PyArray_NewCopy((PyArrayObject *)view, NPY_KEEPORDER));
    }
    return view;
}

/* Make the arrays of a run, and set the pointers of all slots but inputs. */
static PyObject *
make_arrays(const Program *program, const Frame *frame)
{
    PyObject *results = PyTuple_New(program->arrays);
    for (Py_ssize_t i = 0; i < program->slots && results != NULL; i++) {
        const Slot *slot = &program->slot[i];
        if (slot->home == IN_CONSTANT) {
            frame->pointer[i] = PyArray_DATA((PyArrayObject *)slot->array);
        }
        else if (slot->home == IN_FRAME) {
            frame->pointer[i] = frame->memory + slot->at;
        }
        else if (slot->home == IN_OUTPUT) {
            PyObject *array = new_array(slot);
            if (array == NULL) {
                Py_CLEAR(results);
                break;
            }
            PyTuple_SET_ITEM(results, slot->at, array);
            frame->pointer[i] = PyArray_DATA((PyArrayObject *)array);
        }
    }
    return results;
}

/* Set those of the results that no array was made for: inputs, constants, other results, and views of any of these. */
static int
complete_results(const Program *program, PyObject *results, PyObject *const *args, char **pointer)
{
    for (Py_ssize_t i = 0; i < program->outputs; i++) {
        const Slot *slot = &program->slot[program->output[i]];
        if (PyTuple_GET_ITEM(results, i) != NULL) {
            continue;
        }
        const Slot *of = slot->home == IN_VIEW ? &program->slot[slot->at] : slot;
        PyObject *same = of->home == IN_INPUT      ? args[of->at]
                         : of->home == IN_CONSTANT ? of->array
                                                   : PyTuple_GET_ITEM(results, of->at);
        if (slot->home != IN_VIEW) {
            PyTuple_SET_ITEM(results, i, Py_NewRef(same));
            continue;
        }
        PyObject *view = PyArray_Check(same) ? new_view(slot, pointer[program->output[i]], same) : NULL;
        if (view == NULL) {
            return PyErr_Occurred() ? FAILED : NOT_NOW; /* a number has no views */
        }
        PyTuple_SET_ITEM(results, i, view);
    }
    return DONE;
}

/* A long run gives the interpreter's lock to others: arrays that it reads and fills belong to who called it. */
static int
run_unlocked(Program *program, char **pointer)
{
    if (!program->is_long || program->calls_back) {
        return run_program(program, pointer);
    }
    PyThreadState *state = PyEval_SaveThread();
    int done = run_program(program, pointer);
    PyEval_RestoreThread(state);
    return done;
}

static int
run_once(Program *program, char **pointer)
{
    if (!profile_session) {
        return run_unlocked(program, pointer);
    }
    if (profile_enter(program) < 0) {
        return FAILED;
    }
    long long begin = nanoseconds();
    int done = run_unlocked(program, pointer);
    profile_leave(program, begin, 1);
    return done;
}

/* Run a program on arrays, if they lie as it was made for. */
static int
attempt(Program *program, PyObject *const *args, PyObject **found)
{
    Frame frame;
    /* After the temporaries there is room for the numbers among the inputs. */
    if (frame_enter(&frame, program->slots, program->frame + 16 * program->inputs) < 0) {
        return FAILED;
    }
    char *numbers = frame.memory + program->frame;
    PyObject *results = NULL;
    int done = DONE;
    for (Py_ssize_t i = 0; i < program->inputs && done == DONE; i++) {
        done = accept_array(program, program->input[i], args[i], frame.pointer, numbers + 16 * i) ? DONE : OTHER_LAYOUT;
    }
    if (done == DONE) {
        results = make_arrays(program, &frame);
        done = results == NULL ? FAILED : run_once(program, frame.pointer);
    }
    if (done == DONE) {
        done = complete_results(program, results, args, frame.pointer);
    }
    frame_leave(&frame);
    if (done == DONE && program->arrays > program->outputs) {
        Py_SETREF(results, PyTuple_GetSlice(results, 0, program->outputs));
        done = results == NULL ? FAILED : DONE;
    }
    if (done != DONE) {
        Py_CLEAR(results);
    }
    program->is_given_up |= done == GIVEN_UP;
    *found = results;
    return done;
}

PyObject *
call_program(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Program *program = (Program *)Py_NewRef(self);
    PyObject *results = NULL;
    PyObject *others = program->others != NULL && PyList_CheckExact(program->others) ? program->others : NULL;
    int done = program->is_given_up || PyVectorcall_NARGS(flags) != program->inputs || names != NULL
                   ? NOT_NOW
                   : attempt(program, args, &results);
    for (Py_ssize_t i = 0; done == OTHER_LAYOUT && others != NULL && i < PyList_GET_SIZE(others); i++) {
        PyObject *other = PyList_GET_ITEM(others, i);
        if (Py_IS_TYPE(other, &ProgramType) && !((Program *)other)->is_given_up &&
            ((Program *)other)->inputs == program->inputs) {
            Py_SETREF(program, (Program *)Py_NewRef(other));
            done = attempt(program, args, &results);
        }
    }
    if (done != DONE && done != FAILED) {
        /* What is made for no such arrays says so to the first one, which may have one made. */
        PyObject *fallback = done == OTHER_LAYOUT ? ((Program *)self)->fallback : program->fallback;
        results = PyObject_Vectorcall(fallback, args, flags, names);
    }
    Py_DECREF(program);
    return results;
}
