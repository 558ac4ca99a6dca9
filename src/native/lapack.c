/* Linear algebra: routines of BLAS and LAPACK, and what is looked at before and after them.

   A kernel in Python looks for what is rare (numbers that are not finite, singular matrices, values that are equal) and
   treats it in a way of its own. Here only the usual case is computed. For all others there is a jump to a call-back,
   which computes the result from the beginning. */

#include "native.h"

#include <float.h>
#include <math.h>

/* --- routines --- */

/* The arguments of a routine are pointers: numbers has, after where to jump, one entry for each: a slot, or ~offset of
   a constant, or this for a place where the routine says whether it failed. */
#define INFO NPY_MIN_INTP

/* Object: a capsule with the pointer of the routine, and the constants as bytes. */
int
find_routine(Instruction *it, PyObject *object, Py_ssize_t slots)
{
    PyObject *capsule, *constants;
    if (!PyArg_ParseTuple(object, "OO!", &capsule, &PyBytes_Type, &constants)) {
        return -1;
    }
    it->data = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
    if (it->data == NULL) {
        return -1;
    }
    it->constants = PyBytes_AS_STRING(constants);
    if (it->given < 2 || it->given - 1 > MOST_ARGUMENTS) {
        PyErr_SetString(PyExc_ValueError, "a routine has a few arguments");
        return -1;
    }
    for (Py_ssize_t i = 1; i < it->given; i++) {
        npy_intp argument = it->numbers[i];
        if (argument != INFO && (argument >= slots || ~argument >= PyBytes_GET_SIZE(constants))) {
            PyErr_SetString(PyExc_ValueError, "there is no such argument");
            return -1;
        }
    }
    return 0;
}

#define POINTERS(...) ((void (*)(__VA_ARGS__))it->data)
#define P void *

/* Tells whether the routine did what it is for. */
int
run_fortran(const Instruction *it, char **pointer)
{
    int info = 0;
    void *a[MOST_ARGUMENTS];
    Py_ssize_t count = it->given - 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        npy_intp argument = it->numbers[1 + i];
        a[i] = argument == INFO ? (void *)&info : argument >= 0 ? (void *)pointer[argument]
                                                                : (void *)(it->constants + ~argument);
    }
    switch (count) {
    case 5:
        POINTERS(P, P, P, P, P)(a[0], a[1], a[2], a[3], a[4]);
        break;
    case 6:
        POINTERS(P, P, P, P, P, P)(a[0], a[1], a[2], a[3], a[4], a[5]);
        break;
    case 7:
        POINTERS(P, P, P, P, P, P, P)(a[0], a[1], a[2], a[3], a[4], a[5], a[6]);
        break;
    case 8:
        POINTERS(P, P, P, P, P, P, P, P)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
        break;
    case 9:
        POINTERS(P, P, P, P, P, P, P, P, P)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]);
        break;
    case 11:
        POINTERS(P, P, P, P, P, P, P, P, P, P, P)
        (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        break;
    case 14:
        POINTERS(P, P, P, P, P, P, P, P, P, P, P, P, P, P)
        (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
        break;
    default:
        return 0;
    }
    return info == 0;
}

/* --- looking at numbers --- */

static int
are_finite(const double *x, npy_intp count)
{
    for (npy_intp i = 0; i < count; i++) {
        if (!isfinite(x[i])) {
            return 0;
        }
    }
    return 1;
}

static double
largest(const double *x, npy_intp count)
{
    double found = 0;
    for (npy_intp i = 0; i < count; i++) {
        double size = fabs(x[i]);
        found = size > found || isnan(size) ? size : found;
    }
    return found;
}

static double
smallest(const double *x, npy_intp count)
{
    double found = x[0];
    for (npy_intp i = 1; i < count; i++) {
        found = x[i] < found || isnan(x[i]) ? x[i] : found;
    }
    return found;
}

/* The least distance of neighbours; infinite for a single number. */
static double
nearest(const double *x, npy_intp count)
{
    double found = INFINITY;
    for (npy_intp i = 1; i < count; i++) {
        double gap = fabs(x[i] - x[i - 1]);
        found = gap < found || isnan(gap) ? gap : found;
    }
    return found;
}

static double
norm(const double *x, npy_intp count)
{
    double total = 0;
    for (npy_intp i = 0; i < count; i++) {
        total += x[i] * x[i];
    }
    return sqrt(total);
}

/* Numbers: where to jump, what to look at, and sizes; the limit is a double. NaN is never as usual. */
int
run_check(const Instruction *it, char **at)
{
    const npy_intp *sizes = it->numbers + 2;
    const double *x = (const double *)at[0], *y = it->operands > 1 ? (const double *)at[1] : x;
    double limit = it->low;
    switch (it->numbers[1]) {
    case 'f': /* all numbers are finite */
        return are_finite(x, sizes[0]);
    case 'd': /* no element of a diagonal, of one or two numbers each, is zero */
        for (npy_intp i = 0; i < sizes[0]; i++) {
            const double *element = (const double *)(at[0] + i * sizes[1]);
            if (element[0] == 0 && (sizes[2] == 1 || element[1] == 0)) {
                return 0;
            }
        }
        return 1;
    case '+': /* no sum of two is zero, beside the largest of them */
        return smallest(x, sizes[0]) + smallest(y, sizes[1]) >
               limit * fmax(largest(x, sizes[0]), largest(y, sizes[1]));
    case '-': /* no two numbers, which are sorted, are equal */
        return nearest(x, sizes[0]) > limit * largest(x, sizes[0]);
    case 's': /* the last number is not zero beside the first */
        return x[sizes[0] - 1] > limit * x[0];
    case 'e': /* no number is zero beside the largest */
        for (npy_intp i = 0, n = sizes[0]; i < n; i++) {
            if (!(fabs(x[i]) > limit * largest(x, n))) {
                return 0;
            }
        }
        return 1;
    case 'c': { /* of numbers that fall, the last ones of which are dropped, none of both kinds are equal */
        npy_intp count = sizes[0], kept = sizes[1];
        double last = x[kept - 1], gap = kept < count ? last - x[kept] : last;
        return !(gap <= fmax(limit * last, (double)count * DBL_EPSILON * x[0]));
    }
    case 'u': /* no product with a number is zero, but for those of zeros */
        for (npy_intp i = 0; i < sizes[0]; i++) {
            if (x[i] == 0 && *(const double *)(at[1] + i * sizes[1]) != 0) {
                return 0;
            }
        }
        return *(const double *)at[2] != 0;
    case 'p': /* the product of two norms is not large */
        return norm(x, sizes[0]) * norm(y, sizes[1]) <= limit;
    default:
        return 0;
    }
}

/* --- matrices --- */

/* Numbers: rows, columns, strides of both, bytes of an element, and 1 if the upper half is kept. */
void
run_triangle(const Instruction *it, char *at)
{
    const npy_intp *n = it->numbers;
    for (npy_intp i = 0; i < n[0]; i++) {
        npy_intp first = n[5] ? 0 : i + 1, end = n[5] ? (i < n[1] ? i : n[1]) : n[1];
        for (npy_intp j = first; j < end; j++) {
            memset(at + i * n[2] + j * n[3], 0, n[4]);
        }
    }
}

/* Operands: integers of 32 bits, and where the shifted ones go. */
void
run_shift(const Instruction *it, char **at)
{
    const npy_int32 *from = (const npy_int32 *)at[0];
    npy_int32 *to = (npy_int32 *)at[1];
    for (npy_intp i = 0; i < it->count; i++) {
        to[i] = from[i] + (npy_int32)it->numbers[0];
    }
}

/* Operands: with which row each was exchanged, and a double. */
void
run_parity(const Instruction *it, char **at)
{
    const npy_int32 *with = (const npy_int32 *)at[0];
    int is_odd = 0;
    for (npy_intp i = 0; i < it->count; i++) {
        is_odd ^= with[i] != i;
    }
    *(double *)at[1] = is_odd ? -1.0 : 1.0;
}
