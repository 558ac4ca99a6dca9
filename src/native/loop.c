/* Making the steps of a loop with a program as its body, without Python in between. */

#include "native.h"

/* How long a run goes on before it looks whether somebody wants to end it, and how many steps it makes at most, if they
   take little time, before it looks at the clock. */
#define NANOSECONDS (20 * 1000000LL)
#define SOON (100 * 1000LL)
enum { MOST_STEPS_A_LOOK = 64 };

typedef struct {
    char *base;
    npy_intp stride; /* from row to row */
    int slot;
    const npy_intp *inner; /* strides inside of a row that has gaps or repeats elements; else NULL */
    char *copy;      /* where a row is read from that has those, or does not begin where NumPy's arrays do */
} Rows;

typedef struct {
    PyArrayObject *array;
    PyUFuncGenericFunction add;
    void *data;
    npy_intp count, size;
    int slot;
    int is_double;        /* what is added without a call of NumPy's loops */
} Sum;

typedef struct {
    int source, target;   /* slots; the target is -1 for a register that the body does not read */
    char *staged;         /* where a value waits that another assignment may overwrite */
    int may_swap;
} Assignment;

typedef struct {
    Program *program;
    Frame frame;
    Py_ssize_t constants, carries, rows, histories, written, sums, assigned;
    Rows *row, *history, *write;
    Sum *sum;
    Assignment *assignment;
    PyObject **before;
    int watched;          /* the slot of the condition, or -1 */
    npy_intp after;       /* the row of a history that a step fills is as much later as this */
    int is_stopped;
    volatile npy_int64 *counter; /* where to count the steps for whoever looks on from another thread, or NULL */
} Run;

/* --- what a loop is given --- */

/* Describe stacks, one row of each a step; False, without an error, for what the program was not made for. */
static int
accept_rows(Program *program, Rows *rows, Py_ssize_t count, PyObject *stacks, const int *slots, int is_written)
{
    if (!PyList_Check(stacks) || PyList_GET_SIZE(stacks) != count) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyList_GET_ITEM(stacks, i);
        const Slot *slot = &program->slot[slots[i]];
        if (!PyArray_CheckExact(value)) {
            return 0;
        }
        PyArrayObject *stack = (PyArrayObject *)value;
        if (PyArray_TYPE(stack) != slot->descr->type_num || PyArray_NDIM(stack) != slot->ndim + 1 ||
            !PyArray_ISBEHAVED_RO(stack) || (is_written && !PyArray_ISWRITEABLE(stack)) ||
            !PyArray_CompareLists(PyArray_DIMS(stack) + 1, slot->shape, slot->ndim)) {
            return 0;
        }
        npy_intp expected = PyDataType_ELSIZE(slot->descr);
        for (int axis = slot->ndim - 1; axis >= 0; axis--) {
            if (slot->shape[axis] != 1 && PyArray_STRIDE(stack, axis + 1) != expected) {
                if (is_written || slot->ndim > MOST_AXES) {
                    return 0;
                }
                rows[i].inner = PyArray_STRIDES(stack) + 1;
            }
            expected *= slot->shape[axis];
        }
        rows[i].base = PyArray_DATA(stack);
        rows[i].stride = PyArray_STRIDE(stack, 0);
        rows[i].slot = slots[i];
    }
    return 1;
}

static int
accept_sums(Run *run, PyObject *sums, PyObject *adders, const int *slots)
{
    if (!PyList_Check(sums) || PyList_GET_SIZE(sums) != run->sums) {
        return NOT_NOW;
    }
    for (Py_ssize_t i = 0; i < run->sums; i++) {
        Sum *sum = &run->sum[i];
        const Slot *slot = &run->program->slot[slots[i]];
        PyObject *given = PyList_GET_ITEM(sums, i), *ufunc;
        char *from;
        char number[16];
        int index;
        if (PyArray_CheckExact(given)) {
            PyArrayObject *array = (PyArrayObject *)given;
            if (PyArray_TYPE(array) != slot->descr->type_num || PyArray_NDIM(array) != slot->ndim ||
                !PyArray_ISCARRAY_RO(array) ||
                !PyArray_CompareLists(PyArray_DIMS(array), slot->shape, slot->ndim)) {
                return NOT_NOW;
            }
            from = PyArray_DATA(array);
        }
        else if (PyArray_CheckScalar(given) && slot->ndim == 0) {
            PyArray_Descr *descr = PyArray_DescrFromScalar(given);
            int fits = descr != NULL && descr->type_num == slot->descr->type_num;
            Py_XDECREF(descr);
            if (!fits) {
                PyErr_Clear();
                return NOT_NOW;
            }
            PyArray_ScalarAsCtype(given, number);
            from = number;
        }
        else {
            return NOT_NOW;
        }
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(adders, i), "O!i", &PyUFunc_Type, &ufunc, &index)) {
            return FAILED;
        }
        sum->array = (PyArrayObject *)new_array(slot);
        if (sum->array == NULL) {
            return FAILED;
        }
        memcpy(PyArray_DATA(sum->array), from, slot->nbytes);
        sum->add = ((PyUFuncObject *)ufunc)->functions[index];
        sum->data = ((PyUFuncObject *)ufunc)->data[index];
        sum->size = PyDataType_ELSIZE(slot->descr);
        sum->count = sum->size ? slot->nbytes / sum->size : 0;
        sum->slot = slots[i];
        sum->is_double = slot->descr->type_num == NPY_DOUBLE;
    }
    return DONE;
}

/* --- one step --- */

static void
keep_rows(const Run *run, const Rows *rows, Py_ssize_t count, npy_intp k)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        const Slot *slot = &run->program->slot[rows[i].slot];
        copy_bytes(rows[i].base + k * rows[i].stride, run->frame.pointer[rows[i].slot], slot->nbytes);
    }
}

static void
assign_registers(Run *run)
{
    char **pointer = run->frame.pointer;
    for (Py_ssize_t i = 0; i < run->assigned; i++) {
        Assignment *it = &run->assignment[i];
        if (it->target >= 0 && !it->may_swap) {
            memcpy(it->staged, pointer[it->source], run->program->slot[it->source].nbytes);
        }
    }
    for (Py_ssize_t i = 0; i < run->assigned; i++) {
        Assignment *it = &run->assignment[i];
        if (it->target < 0) {
            continue;
        }
        if (it->may_swap) {
            char *other = pointer[it->target];
            pointer[it->target] = pointer[it->source];
            pointer[it->source] = other;
        }
        else {
            memcpy(pointer[it->target], it->staged, run->program->slot[it->source].nbytes);
        }
    }
}

/* Copy the elements of a row with strides of its own into one without gaps. */
static void
gather_row(const Slot *slot, const npy_intp *strides, const char *from, char *to)
{
    npy_intp index[MOST_AXES] = {0}, size = PyDataType_ELSIZE(slot->descr), last = slot->ndim - 1;
    if (slot->nbytes == 0) {
        return;
    }
    for (npy_intp axis = last; axis >= 0;) {
        const char *element = from;
        for (npy_intp i = 0; i < slot->shape[last]; i++, element += strides[last], to += size) {
            memcpy(to, element, size);
        }
        for (axis = last - 1; axis >= 0; axis--) {
            from += strides[axis];
            if (++index[axis] < slot->shape[axis]) {
                break;
            }
            from -= slot->shape[axis] * strides[axis];
            index[axis] = 0;
        }
    }
}

static int
make_step(Run *run, npy_intp k)
{
    char **pointer = run->frame.pointer;
    for (Py_ssize_t i = 0; i < run->rows; i++) {
        Rows *rows = &run->row[i];
        char *at = rows->base + k * rows->stride;
        if (rows->inner != NULL) {
            gather_row(&run->program->slot[rows->slot], rows->inner, at, rows->copy);
            at = rows->copy;
        }
        else if ((npy_uintp)at % 16) {
            memcpy(rows->copy, at, run->program->slot[rows->slot].nbytes);
            at = rows->copy;
        }
        pointer[rows->slot] = at;
    }
    int done = run_program(run->program, pointer);
    if (done != DONE) {
        return done;
    }
    keep_rows(run, run->history, run->histories, k + run->after);
    keep_rows(run, run->write, run->written, k);
    for (Py_ssize_t i = 0; i < run->sums; i++) {
        Sum *sum = &run->sum[i];
        char *total = PyArray_DATA(sum->array);
        if (sum->is_double) {
            add_doubles((double *)total, (const double *)pointer[sum->slot], sum->count);
            continue;
        }
        char *arguments[3] = {total, pointer[sum->slot], total};
        npy_intp steps[3] = {sum->size, sum->size, sum->size};
        sum->add(arguments, &sum->count, steps, sum->data);
    }
    run->is_stopped = run->watched >= 0 && *pointer[run->watched];
    return DONE;
}

static int
save_before(Run *run)
{
    for (Py_ssize_t i = 0; i < run->carries; i++) {
        int slot = run->program->input[run->constants + i];
        run->before[i] = new_array(&run->program->slot[slot]);
        if (run->before[i] == NULL) {
            return FAILED;
        }
        memcpy(PyArray_DATA((PyArrayObject *)run->before[i]), run->frame.pointer[slot],
               run->program->slot[slot].nbytes);
    }
    return DONE;
}

/* Make steps from k on, without the interpreter's lock if the program does not call back. Stops before the last one's
   assignments, which `drive_steps` makes, and now and then to look for signals. */
static int
make_steps(Run *run, npy_intp *k, npy_intp step, npy_intp *left)
{
    int done = DONE;
    PyThreadState *state = run->program->calls_back ? NULL : PyEval_SaveThread();
    long long started = nanoseconds(), looked = started;
    npy_intp look = 1, steps = 1;
    for (npy_intp made = 1;; made++) {
        done = make_step(run, *k);
        if (done != DONE || run->is_stopped || *left == 1) {
            break;
        }
        assign_registers(run);
        *k += step;
        --*left;
        if (run->counter != NULL) {
            ++*run->counter;
        }
        if (made == look) {
            long long time = nanoseconds();
            if (time - started > NANOSECONDS) {
                done = NOT_NOW; /* not at the end */
                break;
            }
            steps = time - looked > SOON ? 1 : steps < MOST_STEPS_A_LOOK ? 2 * steps : steps;
            look += steps;
            looked = time;
        }
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return done;
}

static int
drive_steps(Run *run, npy_intp *k, npy_intp step, npy_intp left)
{
    for (;;) {
        npy_intp before = left;
        int done = make_steps(run, k, step, &left);
        if (done == NOT_NOW && left < before) {
            if (PyErr_CheckSignals() < 0) {
                return FAILED;
            }
            continue;
        }
        if (done != DONE) {
            return done;
        }
        if (save_before(run) != DONE) {
            return FAILED;
        }
        assign_registers(run);
        return DONE;
    }
}

/* --- all of it --- */

/* Take an array of one integer to count steps in; None for nobody who looks. */
static int
accept_counter(Run *run, PyObject *counter)
{
    if (counter == Py_None) {
        return DONE;
    }
    if (!PyArray_CheckExact(counter) || PyArray_TYPE((PyArrayObject *)counter) != NPY_INT64 ||
        PyArray_SIZE((PyArrayObject *)counter) != 1 || !PyArray_ISCARRAY((PyArrayObject *)counter)) {
        PyErr_SetString(PyExc_TypeError, "a counter is an array of one integer");
        return FAILED;
    }
    run->counter = PyArray_DATA((PyArrayObject *)counter);
    return DONE;
}

static Py_ssize_t
rounded(npy_intp bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Give slots their memory, after the temporaries. */
static int
place_slots(Run *run, PyObject *constants, PyObject *carry)
{
    Program *program = run->program;
    Py_ssize_t bytes = program->frame;
    for (Py_ssize_t i = 0; i < program->slots; i++) {
        bytes += program->slot[i].home == IN_FRAME ? 0 : 2 * rounded(program->slot[i].nbytes) + 16;
    }
    for (Py_ssize_t i = 0; i < run->assigned; i++) {
        bytes += rounded(program->slot[run->assignment[i].source].nbytes);
    }
    if (frame_enter(&run->frame, program->slots, bytes) < 0) {
        return FAILED;
    }
    char **pointer = run->frame.pointer, *free = run->frame.memory + program->frame;
#define TAKE(nbytes) (free += rounded(nbytes), free - rounded(nbytes))
    for (Py_ssize_t i = 0; i < program->slots; i++) {
        const Slot *slot = &program->slot[i];
        if (slot->home == IN_CONSTANT) {
            pointer[i] = PyArray_DATA((PyArrayObject *)slot->array);
        }
        else if (slot->home == IN_FRAME) {
            pointer[i] = run->frame.memory + slot->at;
        }
        else if (slot->home == IN_OUTPUT) {
            pointer[i] = TAKE(slot->nbytes);
        }
    }
    for (Py_ssize_t i = 0; i < run->constants + run->carries; i++) {
        int slot = program->input[i];
        PyObject *value = i < run->constants ? PyList_GET_ITEM(constants, i) : PyList_GET_ITEM(carry, i - run->constants);
        char *own = TAKE(program->slot[slot].nbytes);
        if (!accept_array(program, slot, value, pointer, own)) {
            return NOT_NOW;
        }
        if (i >= run->constants && pointer[slot] != own) {
            memcpy(own, pointer[slot], program->slot[slot].nbytes);
            pointer[slot] = own;
        }
    }
    for (Py_ssize_t i = 0; i < run->rows; i++) {
        run->row[i].copy = TAKE(program->slot[run->row[i].slot].nbytes);
    }
    for (Py_ssize_t i = 0; i < run->assigned; i++) {
        run->assignment[i].staged = TAKE(program->slot[run->assignment[i].source].nbytes);
    }
#undef TAKE
    return DONE;
}

static int
describe_assignments(Run *run, PyObject *targets)
{
    const Program *program = run->program;
    for (Py_ssize_t i = 0; i < run->assigned; i++) {
        Assignment *it = &run->assignment[i];
        Py_ssize_t register_read = PyLong_AsSsize_t(PyTuple_GET_ITEM(targets, i));
        if ((register_read == -1 && PyErr_Occurred()) || register_read >= run->carries) {
            return FAILED;
        }
        it->source = program->output[i];
        if (program->slot[it->source].order != 'C') {
            return NOT_NOW; /* a constant that repeats one element, a matrix column by column */
        }
        it->target = register_read < 0 ? -1 : program->input[run->constants + register_read];
        int home = program->slot[it->source].home;
        it->may_swap = home == IN_FRAME || home == IN_OUTPUT;
        for (Py_ssize_t j = 0; j < run->assigned; j++) {
            it->may_swap &= j == i || program->output[j] != it->source;
        }
    }
    return DONE;
}

static PyObject *
copies(const Run *run)
{
    PyObject *list = PyList_New(run->assigned);
    for (Py_ssize_t i = 0; list != NULL && i < run->assigned; i++) {
        const Assignment *it = &run->assignment[i];
        const Slot *slot = &run->program->slot[it->source];
        PyObject *array = new_array(slot);
        if (array == NULL) {
            Py_CLEAR(list);
            break;
        }
        char *from = run->frame.pointer[it->target < 0 ? it->source : it->target];
        memcpy(PyArray_DATA((PyArrayObject *)array), from, slot->nbytes);
        PyList_SET_ITEM(list, i, array);
    }
    return list;
}

static PyObject *
results_of(Run *run, npy_intp k)
{
    PyObject *assigned = copies(run), *before = PyList_New(run->carries), *sums = PyList_New(run->sums);
    if (assigned == NULL || before == NULL || sums == NULL) {
        Py_XDECREF(assigned);
        Py_XDECREF(before);
        Py_XDECREF(sums);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < run->carries; i++) {
        PyList_SET_ITEM(before, i, run->before[i]);
        run->before[i] = NULL;
    }
    for (Py_ssize_t i = 0; i < run->sums; i++) {
        PyList_SET_ITEM(sums, i, (PyObject *)run->sum[i].array);
        run->sum[i].array = NULL;
    }
    return Py_BuildValue("nONNN", (Py_ssize_t)k, run->is_stopped ? Py_True : Py_False, assigned, before, sums);
}

/* Whether an output may be written to rows, and added to a sum: its elements lie as those of an array in C order. */
static int
are_plain(const Program *program, const int *slots, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (program->slot[slots[i]].order != 'C') {
            return 0;
        }
    }
    return 1;
}

static int
read_outputs(const Program *program, PyObject *positions, int *slots)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(positions); i++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
        if (position < 0 || position >= program->outputs) {
            PyErr_SetString(PyExc_ValueError, "there is no such output");
            return -1;
        }
        slots[i] = program->output[position];
    }
    return 0;
}

static int
drive(Run *run, const Given *given, npy_intp *k)
{
    int slots[256];
    Program *program = run->program;
    if (accept_counter(run, given->counter) != DONE) {
        return FAILED;
    }
    run->constants = PyList_GET_SIZE(given->constants), run->carries = PyList_GET_SIZE(given->carry);
    run->rows = PyList_GET_SIZE(given->rows), run->histories = PyTuple_GET_SIZE(given->histories);
    run->written = PyTuple_GET_SIZE(given->written), run->assigned = PyTuple_GET_SIZE(given->targets);
    run->watched = given->is_watched ? program->output[program->outputs - 1] : -1;
    run->after = given->is_reverse ? 0 : 1;
    Py_ssize_t sums = PyTuple_GET_SIZE(given->sums);
    if (program->is_given_up || given->count < 1 || run->constants + run->carries + run->rows != program->inputs ||
        run->histories > 256 || run->written > 256 || sums > 256 || run->assigned > program->outputs) {
        return NOT_NOW;
    }
    Py_ssize_t all = run->rows + run->histories + run->written;
    run->row = PyMem_Calloc(all + 1, sizeof(Rows));
    run->sum = PyMem_Calloc(sums + 1, sizeof(Sum));
    run->assignment = PyMem_Calloc(run->assigned + 1, sizeof(Assignment));
    run->before = PyMem_Calloc(run->carries + 1, sizeof(PyObject *));
    if (run->row == NULL || run->sum == NULL || run->assignment == NULL || run->before == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    run->history = run->row + run->rows;
    run->write = run->history + run->histories;
    if (!accept_rows(program, run->row, run->rows, given->rows, program->input + run->constants + run->carries, 0)) {
        return NOT_NOW;
    }
    if (read_outputs(program, given->histories, slots) < 0) {
        return FAILED;
    }
    if (!are_plain(program, slots, run->histories) ||
        !accept_rows(program, run->history, run->histories, given->history, slots, 1)) {
        return NOT_NOW;
    }
    if (read_outputs(program, given->written, slots) < 0) {
        return FAILED;
    }
    if (!are_plain(program, slots, run->written) ||
        !accept_rows(program, run->write, run->written, given->write, slots, 1)) {
        return NOT_NOW;
    }
    if (read_outputs(program, given->sums, slots) < 0) {
        return FAILED;
    }
    if (!are_plain(program, slots, sums)) {
        return NOT_NOW;
    }
    run->sums = sums;
    int done = accept_sums(run, given->totals, given->adders, slots);
    done = done == DONE ? describe_assignments(run, given->targets) : done;
    done = done == DONE ? place_slots(run, given->constants, given->carry) : done;
    *k = given->first;
    if (done == DONE && profile_session && profile_enter(program) < 0) {
        return FAILED;
    }
    long long begin = profile_session ? nanoseconds() : 0;
    done = done == DONE ? drive_steps(run, k, given->step, given->count) : done;
    if (profile_session && begin && done == DONE) {
        profile_leave(program, begin, (*k - given->first) / given->step + 1);
    }
    return done;
}

/* Make steps: the last index, whether the condition held, registers that were assigned, those before the last step, and
   sums; None if the program was not made for what it is given. */
PyObject *
drive_loop(Program *program, const Given *given)
{
    Run run = {.program = program};
    npy_intp k = 0;
    PyObject *result = NULL;
    int done = drive(&run, given, &k);
    if (done == DONE) {
        result = results_of(&run, k);
    }
    else if (done != FAILED) {
        run.program->is_given_up |= done == GIVEN_UP;
        result = Py_NewRef(Py_None);
    }
    frame_leave(&run.frame);
    for (Py_ssize_t i = 0; run.before != NULL && i < run.carries; i++) {
        Py_XDECREF(run.before[i]);
    }
    for (Py_ssize_t i = 0; run.sum != NULL && i < run.sums; i++) {
        Py_XDECREF(run.sum[i].array);
    }
    PyMem_Free(run.row);
    PyMem_Free(run.sum);
    PyMem_Free(run.assignment);
    PyMem_Free(run.before);
    return result;
}

/* Read what `native_drive` says of a loop once and for all. */
int
read_described(PyObject *described, Given *given)
{
    return PyArg_ParseTuple(described, "O!O!O!O!O!pp", &PyTuple_Type, &given->targets, &PyTuple_Type, &given->histories,
                            &PyTuple_Type, &given->written, &PyTuple_Type, &given->sums, &PyTuple_Type,
                            &given->adders, &given->is_watched, &given->is_reverse);
}

PyObject *
program_drive(PyObject *self, PyObject *args)
{
    Given given;
    PyObject *described;
    if (!PyArg_ParseTuple(args, "O!nnnO!O!O!O!O!O!O", &PyTuple_Type, &described, &given.first, &given.step,
                          &given.count, &PyList_Type, &given.constants, &PyList_Type, &given.carry, &PyList_Type,
                          &given.rows, &PyList_Type, &given.history, &PyList_Type, &given.write, &PyList_Type,
                          &given.totals, &given.counter) ||
        !read_described(described, &given)) {
        return NULL;
    }
    return drive_loop((Program *)self, &given);
}
