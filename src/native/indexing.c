/* Elements by number: which ones an index selects, and values that are put there. */

#include "native.h"

/* Operands: arrays of positions on some axes, and where the positions of elements go. Numbers: of each array the size
   of its axis, the first position that is too large, and what a position counts; then what a place on each axis of the
   result counts. A position below zero is counted from the end if every place of the axis may be meant. Tells whether
   all exist. */
int
run_positions(const Instruction *it, char **at)
{
    int arrays = it->operands - 1;
    const npy_intp *how = it->numbers, *steps = how + 3 * arrays;
    npy_intp index[MOST_AXES] = {0};
    do {
        npy_intp first = 0;
        for (int axis = 0; axis < it->ndim; axis++) {
            first += index[axis] * steps[axis];
        }
        for (npy_intp k = 0; k < it->count; k++) {
            npy_int64 total = first + k * steps[it->ndim];
            for (int i = 0; i < arrays; i++) {
                npy_intp size = how[3 * i], end = how[3 * i + 1];
                npy_int64 position = *(npy_int64 *)(at[i] + k * it->inner[i]);
                position += position < 0 && end == size ? size : 0;
                if (position < 0 || position >= end) {
                    return 0;
                }
                total += position * how[3 * i + 2];
            }
            *(npy_int64 *)(at[arrays] + k * it->inner[arrays]) = total;
        }
    } while (move_on(it, index, at));
    return 1;
}

/* One after the other: where a position comes twice, the order decides. */
#define ADD_NUMBERS(type)                                                                                              \
    for (npy_intp k = 0; k < it->count; k++, value += step) {                                                          \
        ((type *)to)[which[k]] += *(type *)value;                                                                      \
    }

#define ADD_PAIRS(type)                                                                                                \
    for (npy_intp k = 0; k < it->count; k++, value += step) {                                                          \
        ((type *)to)[2 * which[k]] += ((type *)value)[0];                                                              \
        ((type *)to)[2 * which[k] + 1] += ((type *)value)[1];                                                          \
    }

/* Operands: positions, values, and where these are put. Numbers: how many elements there are, the bytes of one, and the
   type of those that are added, or -1 if they are replaced. Tells whether all positions exist. */
int
run_put(const Instruction *it, char **at)
{
    const npy_int64 *which = (const npy_int64 *)at[0];
    const char *value = at[1];
    char *to = at[2];
    npy_intp size = it->numbers[1], step = it->inner[1];
    for (npy_intp k = 0; k < it->count; k++) {
        if (which[k] < 0 || which[k] >= it->numbers[0]) {
            return 0;
        }
    }
    switch (it->numbers[2]) {
    case NPY_DOUBLE:
        ADD_NUMBERS(double)
        break;
    case NPY_FLOAT:
        ADD_NUMBERS(float)
        break;
    case NPY_CDOUBLE:
        ADD_PAIRS(double)
        break;
    case NPY_CFLOAT:
        ADD_PAIRS(float)
        break;
    default:
        for (npy_intp k = 0; k < it->count; k++, value += step) {
            memcpy(to + which[k] * size, value, size);
        }
    }
    return 1;
}

/* Whether an instruction of this kind has as many numbers as it reads. */
int
has_its_numbers(const Instruction *it)
{
    Py_ssize_t wanted = it->opcode == OP_POSITIONS ? 3 * (it->operands - 1) + it->ndim + 1 : 3;
    if (it->operands < 1 || (it->opcode == OP_PUT && it->operands != 3) || it->given != wanted) {
        PyErr_SetString(PyExc_ValueError, "positions come with what they count");
        return 0;
    }
    return 1;
}
