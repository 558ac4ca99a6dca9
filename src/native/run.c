/* Running a program once: one instruction after the other on the pointers of a frame. */

#include "native.h"

/* Rows of so many doubles are added up column by column: the sums are in registers, and rows stay in the cache. */
enum { SHORT = 64 };

static void
run_loop(const Instruction *it, char **at)
{
    npy_intp index[MOST_AXES] = {0};
    do {
        char *arguments[MOST_OPERANDS];
        memcpy(arguments, at, sizeof arguments); /* a loop may move them */
        it->loop(arguments, &it->count, it->inner, it->data);
    } while (move_on(it, index, at));
}

static void
run_few(const Instruction *it, char **at)
{
    npy_intp index[MOST_AXES] = {0};
    do {
        it->few(it, at);
    } while (move_on_over(it, it->ndim - it->by_rows, index, at));
}

/* The operands are what is reduced and the result, which the loop takes as its first operand too. */
static void
run_reduce(const Instruction *it, char **at)
{
    npy_intp steps[3] = {it->inner[1], it->inner[0], it->inner[1]};
    npy_intp index[MOST_AXES] = {0};
    int last = it->ndim - 1;
    if (it->is_sum && last >= 0 && it->outer[it->ndim + last] == 0 && it->count <= SHORT) {
        do {
            add_rows((double *)at[1], at[0], it->count, it->shape[last], it->outer[last]);
        } while (move_on_over(it, last, index, at));
        return;
    }
    if (it->is_sum) {
        do {
            add_doubles((double *)at[1], (const double *)at[0], it->count);
        } while (move_on(it, index, at));
        return;
    }
    do {
        char *arguments[3] = {at[1], at[0], at[1]};
        it->loop(arguments, &it->count, steps, it->data);
    } while (move_on(it, index, at));
}

/* The numbers are the dimensions, of which there are `count`, and the strides, as an inner loop takes them. */
static void
run_gufunc(const Instruction *it, char **at)
{
    char *arguments[MOST_OPERANDS];
    memcpy(arguments, at, sizeof arguments);
    it->loop(arguments, it->numbers, it->numbers + it->count, it->data);
}

static inline void
copy_elements(char *to, npy_intp to_stride, const char *from, npy_intp from_stride, npy_intp count, npy_intp size)
{
    if (to_stride == size && from_stride == size) {
        memcpy(to, from, count * size);
        return;
    }
    switch (size) {
    case 8:
        for (npy_intp i = 0; i < count; i++, to += to_stride, from += from_stride) {
            memcpy(to, from, 8);
        }
        break;
    case 16:
        for (npy_intp i = 0; i < count; i++, to += to_stride, from += from_stride) {
            memcpy(to, from, 16);
        }
        break;
    default:
        for (npy_intp i = 0; i < count; i++, to += to_stride, from += from_stride) {
            memcpy(to, from, size);
        }
    }
}

/* Operands: where from, where to. */
static void
run_copy(const Instruction *it, char **at)
{
    npy_intp index[MOST_AXES] = {0};
    do {
        copy_elements(at[1], it->inner[1], at[0], it->inner[0], it->count, it->numbers[0]);
    } while (move_on(it, index, at));
}

static void
run_cast(const Instruction *it, char **at)
{
    npy_intp index[MOST_AXES] = {0};
    do {
        it->cast(it->count, at[0], it->inner[0], at[1], it->inner[1]);
    } while (move_on(it, index, at));
}

/* Numbers: the bytes of an element, and whether all of them are zero. The object has them. */
static void
run_fill(const Instruction *it, char *to)
{
    npy_intp size = it->numbers[0];
    if (it->numbers[1]) {
        memset(to, 0, it->count * size);
        return;
    }
    const char *element = PyBytes_AS_STRING(it->object);
    for (npy_intp i = 0; i < it->count; i++) {
        memcpy(to + i * size, element, size);
    }
}

/* Choose elements of a size that is known when this is compiled, so that each is one move. */
static inline __attribute__((always_inline)) void
select_elements(const Instruction *it, char **at, npy_intp size)
{
    const char *which = at[0], *one = at[1], *other = at[2];
    char *to = at[3];
    for (npy_intp i = 0; i < it->count; i++) {
        memcpy(to, *which ? one : other, size);
        which += it->inner[0], one += it->inner[1], other += it->inner[2], to += it->inner[3];
    }
}

/* Operands: which, if so, if not, where to. */
static void
run_select(const Instruction *it, char **at)
{
    npy_intp index[MOST_AXES] = {0}, size = it->numbers[0];
    do {
        if (size == 8) {
            select_elements(it, at, 8);
        }
        else {
            select_elements(it, at, size);
        }
    } while (move_on(it, index, at));
}

/* Operands: what, which rows, where to. Numbers: bytes of a row, how many rows there are. Tells whether all exist. */
static int
run_take(const Instruction *it, char **at)
{
    npy_intp size = it->numbers[0];
    npy_intp rows = it->numbers[1];
    const npy_int64 *which = (const npy_int64 *)at[1];
    char *to = at[2];
    for (npy_intp i = 0; i < it->count; i++, to += size) {
        npy_int64 row = which[i] < 0 ? which[i] + rows : which[i];
        if (row < 0 || row >= rows) {
            return 0;
        }
        memcpy(to, at[0] + row * size, size);
    }
    return 1;
}

/* Operands: into what, positions, and the slot to set. Numbers: an offset, then stride and size for each position. */
static int
run_pick(const Instruction *it, char **pointer)
{
    char *at = pointer[it->slots[0]] + it->numbers[0];
    int positions = it->operands - 2;
    for (int i = 0; i < positions; i++) {
        npy_int64 position = *(npy_int64 *)pointer[it->slots[1 + i]];
        npy_intp stride = it->numbers[1 + 2 * i];
        npy_intp size = it->numbers[2 + 2 * i];
        if (position < 0 || position >= size) {
            return 0;
        }
        at += position * stride;
    }
    pointer[it->slots[it->operands - 1]] = at;
    return 1;
}

static int
is_zero(const char *number, int type)
{
    switch (type) {
    case NPY_DOUBLE:
        return *(const double *)number == 0;
    case NPY_FLOAT:
        return *(const float *)number == 0;
    case NPY_CDOUBLE:
        return ((const double *)number)[0] == 0 && ((const double *)number)[1] == 0;
    case NPY_CFLOAT:
        return ((const float *)number)[0] == 0 && ((const float *)number)[1] == 0;
    default:
        return *(const npy_int64 *)number == 0;
    }
}

/* --- blocks --- */

/* Run one of the instructions that go through elements. */
static inline void
run_elements(const Instruction *it, char **at)
{
    switch (it->opcode) {
    case OP_FEW:
        if (it->ndim == 0) {
            it->few(it, at);
        }
        else {
            run_few(it, at);
        }
        break;
    case OP_LOOP:
        if (it->ndim == 0) {
            it->loop(at, &it->count, it->inner, it->data);
        }
        else {
            run_loop(it, at);
        }
        break;
    case OP_REDUCE:
        run_reduce(it, at);
        break;
    case OP_COPY:
        run_copy(it, at);
        break;
    case OP_CAST:
        run_cast(it, at);
        break;
    default:
        run_select(it, at);
    }
}

/* Numbers: how many instructions, how many rows, how many in a block; then for each instruction whether rows are its
   first axis, how many elements a row has if not, and for each operand the bytes from row to row. */
static void
run_fused(const Instruction *first, char **pointer)
{
    npy_intp members = first->numbers[0], rows = first->numbers[1], block = first->numbers[2];
    for (npy_intp row = 0; row < rows; row += block) {
        npy_intp count = rows - row < block ? rows - row : block;
        const npy_intp *how = first->numbers + 3;
        for (npy_intp i = 0; i < members; i++, how += 2 + MOST_OPERANDS) {
            Instruction it = first[1 + i];
            npy_intp shape[MOST_AXES];
            char *at[MOST_OPERANDS];
            for (int j = 0; j < it.operands; j++) {
                at[j] = pointer[it.slots[j]] + row * how[2 + j];
            }
            if (how[0]) {
                memcpy(shape, it.shape, it.ndim * sizeof(npy_intp));
                shape[0] = count;
                it.shape = shape;
            }
            else {
                it.count = count * how[1];
            }
            run_elements(&it, at);
        }
    }
}

/* --- call-backs --- */

/* What is in a slot, as an array that cannot be written to. */
static PyObject *
as_array(const Slot *slot, char *pointer)
{
    Py_INCREF(slot->descr);
    return PyArray_NewFromDescr(&PyArray_Type, slot->descr, slot->ndim, slot->shape, slot->strides, pointer,
                                NPY_ARRAY_ALIGNED, NULL);
}

/* Copy what a call-back gave into a slot, if it is what the program was made for. */
static int
take_result(const Slot *slot, char *pointer, PyObject *value)
{
    PyArrayObject *array;
    if (PyArray_Check(value)) {
        array = (PyArrayObject *)Py_NewRef(value);
    }
    else {
        array = (PyArrayObject *)PyArray_FromAny(value, NULL, 0, 0, 0, NULL);
        if (array == NULL) {
            return FAILED;
        }
    }
    int fits = PyArray_TYPE(array) == slot->descr->type_num && PyArray_ISNOTSWAPPED(array) &&
               PyArray_NDIM(array) == slot->ndim &&
               PyArray_CompareLists(PyArray_DIMS(array), slot->shape, slot->ndim) &&
               (slot->order == 'F'   ? PyArray_IS_F_CONTIGUOUS(array)
                : slot->order == 'K' ? PyArray_CompareLists(PyArray_STRIDES(array), slot->strides, slot->ndim)
                                     : PyArray_IS_C_CONTIGUOUS(array));
    if (fits) {
        memcpy(pointer, PyArray_DATA(array), slot->nbytes);
    }
    Py_DECREF(array);
    return fits ? DONE : GIVEN_UP;
}

/* Numbers: how many of the slots are read, whether it is called now and then, and the slots; those that are not read are
   filled. The object is a function of arrays. It may run while others have the interpreter's lock. */
static int
run_call(const Program *program, const Instruction *it, char **pointer)
{
    PyGILState_STATE lock = PyGILState_Ensure();
    PyObject *arguments[MOST_READ];
    const npy_intp *slots = it->numbers + 2;
    Py_ssize_t read = it->numbers[0], filled = it->given - 2 - read;
    int done = FAILED;
    PyObject *result = NULL;
    for (Py_ssize_t i = 0; i < read; i++) {
        npy_intp slot = slots[i];
        arguments[i] = as_array(&program->slot[slot], pointer[slot]);
        if (arguments[i] == NULL) {
            read = i;
            goto end;
        }
    }
    result = PyObject_Vectorcall(it->object, arguments, read, NULL);
    if (result == NULL) {
        goto end;
    }
    if (filled == 0) {
        done = DONE; /* it only looks */
    }
    else if (filled == 1) {
        npy_intp slot = slots[read];
        done = take_result(&program->slot[slot], pointer[slot], result);
    }
    else {
        /* A list or a tuple, also one with names. */
        PyObject *all = PySequence_Fast(result, "an op with several results returns all of them");
        done = all == NULL ? FAILED : PySequence_Fast_GET_SIZE(all) != filled ? GIVEN_UP : DONE;
        for (Py_ssize_t i = 0; i < filled && done == DONE; i++) {
            npy_intp slot = slots[read + i];
            done = take_result(&program->slot[slot], pointer[slot], PySequence_Fast_GET_ITEM(all, i));
        }
        Py_XDECREF(all);
    }
end:
    Py_XDECREF(result);
    for (Py_ssize_t i = 0; i < read; i++) {
        if (Py_REFCNT(arguments[i]) != 1) {
            done = done == DONE ? GIVEN_UP : done; /* somebody keeps an array that is about to be overwritten */
        }
        Py_DECREF(arguments[i]);
    }
    PyGILState_Release(lock);
    return done;
}

/* --- all of it --- */

/* Made twice, with timers and without, so that a run without pays nothing for them. */
static inline __attribute__((always_inline)) int
run_all(Program *program, char **pointer, Timer *timer)
{
    const Instruction *it = program->instruction, *end = it + program->instructions;
    long long before = timer == NULL ? 0 : nanoseconds();
    for (; it < end; it++) {
        const Instruction *here = it;
        long long inside = timer == NULL ? 0 : profile_total;
        char *at[MOST_OPERANDS];
        for (int i = 0; i < it->operands; i++) {
            at[i] = pointer[it->slots[i]];
        }
        switch (it->opcode) {
        case OP_FEW:
        case OP_LOOP:
        case OP_REDUCE:
        case OP_COPY:
        case OP_CAST:
        case OP_SELECT:
            run_elements(it, at);
            break;
        case OP_GUFUNC:
            run_gufunc(it, at);
            break;
        case OP_DOT:
            it->dot(at[0], it->inner[0], at[1], it->inner[1], at[2], it->count, NULL);
            break;
        case OP_FILL:
            run_fill(it, at[0]);
            break;
        case OP_TAKE:
            if (!run_take(it, at)) {
                return NOT_NOW;
            }
            break;
        case OP_VIEW:
            pointer[it->slots[1]] = at[0] + it->numbers[0];
            break;
        case OP_PICK:
            if (!run_pick(it, pointer)) {
                return NOT_NOW;
            }
            break;
        case OP_CALL: {
            int done = run_call(program, it, pointer);
            if (done != DONE) {
                return done;
            }
            break;
        }
        case OP_IF_ZERO:
            if (is_zero(at[0], (int)it->numbers[1])) {
                it += it->numbers[0];
            }
            break;
        case OP_IF_OUTSIDE: {
            double number = *(double *)at[0];
            if (!(it->low < number && number < it->high)) {
                it += it->numbers[0];
            }
            break;
        }
        case OP_FORTRAN:
            if (!run_fortran(it, pointer)) {
                it += it->numbers[0];
            }
            break;
        case OP_CHECK:
            if (!run_check(it, at)) {
                it += it->numbers[0];
            }
            break;
        case OP_FUSE:
            run_fused(it, pointer);
            it += it->numbers[0];
            break;
        case OP_TRIANGLE:
            run_triangle(it, at[0]);
            break;
        case OP_SHIFT:
            run_shift(it, at);
            break;
        case OP_PARITY:
            run_parity(it, at);
            break;
        case OP_POSITIONS:
            if (!run_positions(it, at)) {
                return NOT_NOW;
            }
            break;
        case OP_DRAW:
            run_draw(it, at);
            break;
        case OP_PUT:
            if (!run_put(it, at)) {
                return NOT_NOW;
            }
            break;
        default:
            it += it->numbers[0];
        }
        if (timer != NULL) {
            long long after = nanoseconds(), took = after - before - (profile_total - inside);
            Timer *one = &timer[here - program->instruction];
            one->calls++;
            one->nanoseconds += took;
            profile_total += took;
            before = after;
        }
    }
    return DONE;
}

int
run_program(Program *program, char **pointer)
{
    if (profile_session && program->session == profile_session) {
        return run_all(program, pointer, program->timer);
    }
    return run_all(program, pointer, NULL);
}
