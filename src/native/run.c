/* Running a program once: one instruction after the other on the pointers of a frame. */

#include "native.h"

/* Move the pointers of the operands to the next place on the outer axes; tell whether there is one. */
static inline int
move_on(const Instruction *it, npy_intp *index, char **at)
{
    for (int axis = it->ndim - 1; axis >= 0; axis--) {
        const npy_intp *steps = it->outer + axis;
        for (int i = 0; i < it->operands; i++, steps += it->ndim) {
            at[i] += *steps;
        }
        if (++index[axis] < it->shape[axis]) {
            return 1;
        }
        steps = it->outer + axis;
        for (int i = 0; i < it->operands; i++, steps += it->ndim) {
            at[i] -= it->shape[axis] * *steps;
        }
        index[axis] = 0;
    }
    return 0;
}

/* Arithmetic on a few doubles, without the cost of a call; elements are rounded one by one, so the bits are the same. */
#define ON_DOUBLES(EXPRESSION)                                                                                         \
    for (npy_intp i = 0; i < it->count; i++) {                                                                         \
        double x = *(double *)(at[0] + i * it->inner[0]), y = *(double *)(at[1] + i * it->inner[1]);                    \
        *(double *)(at[2] + i * it->inner[2]) = EXPRESSION;                                                            \
    }

static inline void
run_arithmetic(const Instruction *it, char **at)
{
    switch (it->numbers[0]) {
    case '+':
        ON_DOUBLES(x + y)
        break;
    case '-':
        ON_DOUBLES(x - y)
        break;
    case '*':
        ON_DOUBLES(x * y)
        break;
    default:
        ON_DOUBLES(x / y)
    }
}

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

/* The operands are what is reduced and the result, which the loop takes as its first operand too. */
static void
run_reduce(const Instruction *it, char **at)
{
    npy_intp steps[3] = {it->inner[1], it->inner[0], it->inner[1]};
    npy_intp index[MOST_AXES] = {0};
    do {
        char *arguments[3] = {at[1], at[0], at[1]};
        it->loop(arguments, &it->count, steps, it->data);
    } while (move_on(it, index, at));
}

/* The numbers are the dimensions and the strides as an inner loop of `matmul` takes them. */
static void
run_matmul(const Instruction *it, char **at)
{
    char *arguments[3] = {at[0], at[1], at[2]};
    it->loop(arguments, it->numbers, it->numbers + 4, it->data);
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

/* Operands: which, if so, if not, where to. */
static void
run_select(const Instruction *it, char **at)
{
    npy_intp index[MOST_AXES] = {0}, size = it->numbers[0];
    do {
        char *which = at[0], *one = at[1], *other = at[2], *to = at[3];
        for (npy_intp i = 0; i < it->count; i++) {
            memcpy(to, *which ? one : other, size);
            which += it->inner[0], one += it->inner[1], other += it->inner[2], to += it->inner[3];
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
               (slot->order == 'F' ? PyArray_IS_F_CONTIGUOUS(array) : PyArray_IS_C_CONTIGUOUS(array));
    if (fits) {
        memcpy(pointer, PyArray_DATA(array), slot->nbytes);
    }
    Py_DECREF(array);
    return fits ? DONE : GIVEN_UP;
}

/* Numbers: how many of the slots are read; all others are filled. The object is a function of arrays. */
static int
run_call(const Program *program, const Instruction *it, char **pointer)
{
    PyObject *arguments[MOST_OPERANDS];
    Py_ssize_t read = it->numbers[0], filled = it->operands - read;
    int done = FAILED;
    PyObject *result = NULL;
    for (Py_ssize_t i = 0; i < read; i++) {
        int slot = it->slots[i];
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
    if (filled == 1) {
        int slot = it->slots[read];
        done = take_result(&program->slot[slot], pointer[slot], result);
    }
    else if (!PyTuple_Check(result) || PyTuple_GET_SIZE(result) != filled) {
        done = GIVEN_UP;
    }
    else {
        done = DONE;
        for (Py_ssize_t i = 0; i < filled && done == DONE; i++) {
            int slot = it->slots[read + i];
            done = take_result(&program->slot[slot], pointer[slot], PyTuple_GET_ITEM(result, i));
        }
    }
end:
    Py_XDECREF(result);
    for (Py_ssize_t i = 0; i < read; i++) {
        if (Py_REFCNT(arguments[i]) != 1) {
            done = done == DONE ? GIVEN_UP : done; /* somebody keeps an array that is about to be overwritten */
        }
        Py_DECREF(arguments[i]);
    }
    return done;
}

/* --- all of it --- */

int
run_program(Program *program, char **pointer)
{
    const Instruction *it = program->instruction, *end = it + program->instructions;
    for (; it < end; it++) {
        char *at[MOST_OPERANDS];
        for (int i = 0; i < it->operands; i++) {
            at[i] = pointer[it->slots[i]];
        }
        switch (it->opcode) {
        case OP_ARITHMETIC:
            run_arithmetic(it, at);
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
        case OP_MATMUL:
            run_matmul(it, at);
            break;
        case OP_DOT:
            it->dot(at[0], it->inner[0], at[1], it->inner[1], at[2], it->count, NULL);
            break;
        case OP_COPY:
            run_copy(it, at);
            break;
        case OP_CAST:
            run_cast(it, at);
            break;
        case OP_FILL:
            run_fill(it, at[0]);
            break;
        case OP_SELECT:
            run_select(it, at);
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
            if (!is_zero(at[0], (int)it->numbers[1])) {
                it += it->numbers[0];
            }
            break;
        case OP_IF_OUTSIDE: {
            double number = *(double *)at[0];
            if (it->low < number && number < it->high) {
                it += it->numbers[0];
            }
            break;
        }
        default:
            it += it->numbers[0];
        }
    }
    return DONE;
}
