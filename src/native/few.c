/* Arithmetic on a few doubles, without the cost of a call of NumPy's loops.

   What is here is rounded element by element, so there is one result, whatever instructions compute it. A sum has
   several; it is added in the order of NumPy's pairwise sum, which Python checks when it is imported. */

#include "native.h"

#include <math.h>

/* The widest instructions that there are; which ones is decided when the module is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#define DOUBLE(i, stride) (*(double *)(at[i] + k * (stride)))

/* Eight doubles at once, wherever they begin. Instructions that are not as wide take them in parts. */
typedef double Eight __attribute__((vector_size(64), aligned(8), may_alias));
enum { EIGHT = 8 };
#define EIGHT_TIMES(x) ((Eight){x, x, x, x, x, x, x, x})

/* Rows of two operands, on the last of the outer axes: short ones would cost a call each. Operands are read with the
   macros that are given. */
#define BINARY_ROWS(name, EXPRESSION, X, X_EIGHT, Y, Y_EIGHT)                                                          \
    WIDE static void name(const Instruction *it, char **at)                                                            \
    {                                                                                                                  \
        const npy_intp *steps = it->outer + it->ndim - 1;                                                              \
        npy_intp rows = it->shape[it->ndim - 1], count = it->count;                                                    \
        for (npy_intp row = 0; row < rows; row++) {                                                                    \
            const double *left = (double *)(at[0] + row * steps[0]);                                                   \
            const double *right = (double *)(at[1] + row * steps[it->ndim]);                                           \
            double *to = (double *)(at[2] + row * steps[2 * it->ndim]);                                                \
            npy_intp k = 0;                                                                                            \
            for (; k + EIGHT <= count; k += EIGHT) {                                                                   \
                Eight x = X_EIGHT(left), y = Y_EIGHT(right);                                                           \
                *(Eight *)(to + k) = EXPRESSION;                                                                       \
            }                                                                                                          \
            for (; k < count; k++) {                                                                                   \
                double x = X(left), y = Y(right);                                                                      \
                to[k] = EXPRESSION;                                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }
#define EACH(x) ((x)[k])
#define EACH_EIGHT(x) (*(const Eight *)((x) + k))
#define SAME(x) (*(x))
#define SAME_EIGHT(x) EIGHT_TIMES(*(x))

/* Two operands: each one element after the other, or one number for all; a single element; any strides. */
#define BINARY(name, EXPRESSION)                                                                                       \
    WIDE static void name##_both(const Instruction *it, char **at)                                                          \
    {                                                                                                                  \
        const double *left = (double *)at[0], *right = (double *)at[1];                                                \
        double *to = (double *)at[2];                                                                                  \
        for (npy_intp k = 0; k < it->count; k++) {                                                                     \
            double x = left[k], y = right[k];                                                                          \
            to[k] = EXPRESSION;                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    WIDE static void name##_left(const Instruction *it, char **at)                                                          \
    {                                                                                                                  \
        const double *left = (double *)at[0], y = *(double *)at[1];                                                    \
        double *to = (double *)at[2];                                                                                  \
        for (npy_intp k = 0; k < it->count; k++) {                                                                     \
            double x = left[k];                                                                                        \
            to[k] = EXPRESSION;                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    WIDE static void name##_right(const Instruction *it, char **at)                                                         \
    {                                                                                                                  \
        const double x = *(double *)at[0], *right = (double *)at[1];                                                   \
        double *to = (double *)at[2];                                                                                  \
        for (npy_intp k = 0; k < it->count; k++) {                                                                     \
            double y = right[k];                                                                                       \
            to[k] = EXPRESSION;                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_one(const Instruction *it, char **at)                                                           \
    {                                                                                                                  \
        const double x = *(double *)at[0], y = *(double *)at[1];                                                       \
        *(double *)at[2] = EXPRESSION;                                                                                 \
        (void)it;                                                                                                      \
    }                                                                                                                  \
    static void name##_any(const Instruction *it, char **at)                                                           \
    {                                                                                                                  \
        for (npy_intp k = 0; k < it->count; k++) {                                                                     \
            double x = DOUBLE(0, it->inner[0]), y = DOUBLE(1, it->inner[1]);                                           \
            DOUBLE(2, it->inner[2]) = EXPRESSION;                                                                      \
        }                                                                                                              \
    }

#define BINARY_OF_ROWS(name, EXPRESSION)                                                                               \
    BINARY(name, EXPRESSION)                                                                                           \
    BINARY_ROWS(name##_both_rows, EXPRESSION, EACH, EACH_EIGHT, EACH, EACH_EIGHT)                                      \
    BINARY_ROWS(name##_left_rows, EXPRESSION, EACH, EACH_EIGHT, SAME, SAME_EIGHT)                                      \
    BINARY_ROWS(name##_right_rows, EXPRESSION, SAME, SAME_EIGHT, EACH, EACH_EIGHT)

#define UNARY(name, EXPRESSION)                                                                                        \
    WIDE static void name##_both(const Instruction *it, char **at)                                                     \
    {                                                                                                                  \
        const double *from = (double *)at[0];                                                                          \
        double *to = (double *)at[1];                                                                                  \
        for (npy_intp k = 0; k < it->count; k++) {                                                                     \
            double x = from[k];                                                                                        \
            to[k] = EXPRESSION;                                                                                        \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_one(const Instruction *it, char **at)                                                           \
    {                                                                                                                  \
        const double x = *(double *)at[0];                                                                             \
        *(double *)at[1] = EXPRESSION;                                                                                 \
        (void)it;                                                                                                      \
    }                                                                                                                  \
    static void name##_any(const Instruction *it, char **at)                                                           \
    {                                                                                                                  \
        for (npy_intp k = 0; k < it->count; k++) {                                                                     \
            double x = DOUBLE(0, it->inner[0]);                                                                        \
            DOUBLE(1, it->inner[1]) = EXPRESSION;                                                                      \
        }                                                                                                              \
    }

BINARY_OF_ROWS(add, x + y)
BINARY_OF_ROWS(subtract, x - y)
BINARY_OF_ROWS(multiply, x * y)
BINARY_OF_ROWS(divide, x / y)
UNARY(negative, -x)
UNARY(absolute, fabs(x))
UNARY(square, x * x)
UNARY(square_root, sqrt(x))

/* The sum of a block of NumPy's pairwise sum: fewer than eight one by one, others in eight parts. */
static double
sum_of_block(const double *x, npy_intp count)
{
    if (count < 8) {
        double total = -0.0;
        for (npy_intp k = 0; k < count; k++) {
            total += x[k];
        }
        return total;
    }
    double part[8];
    memcpy(part, x, sizeof part);
    npy_intp k = 8;
    for (; k + 8 <= count; k += 8) {
        for (int i = 0; i < 8; i++) {
            part[i] += x[k + i];
        }
    }
    double total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; k < count; k++) {
        total += x[k];
    }
    return total;
}

static void
sum_all(const Instruction *it, char **at)
{
    *(double *)at[1] = 0.0 + sum_of_block((const double *)at[0], it->count);
}

static void
sum_rows(const Instruction *it, char **at)
{
    const npy_intp *steps = it->outer + it->ndim - 1;
    for (npy_intp row = 0; row < it->shape[it->ndim - 1]; row++) {
        double total = sum_of_block((const double *)(at[0] + row * steps[0]), it->count);
        *(double *)(at[1] + row * steps[it->ndim]) = 0.0 + total;
    }
}

#define FUNCTIONS(name)                                                                                                \
    {                                                                                                                  \
        name##_both, name##_left, name##_right, name##_both_rows, name##_left_rows, name##_right_rows, name##_one,     \
            name##_any                                                                                                 \
    }

typedef struct {
    FewFunc *both, *left, *right, *both_rows, *left_rows, *right_rows, *one, *any;
} Functions;

static const struct {
    int symbol;
    Functions functions;
} binary[] = {
    {'+', FUNCTIONS(add)},
    {'-', FUNCTIONS(subtract)},
    {'*', FUNCTIONS(multiply)},
    {'/', FUNCTIONS(divide)},
};

static const struct {
    int symbol;
    FewFunc *both, *one, *any;
} unary[] = {
    {'n', negative_both, negative_one, negative_any},
    {'a', absolute_both, absolute_one, absolute_any},
    {'q', square_both, square_one, square_any},
    {'r', square_root_both, square_root_one, square_root_any},
    {'S', sum_all, sum_all, sum_all},
};

static FewFunc *
find_binary(Instruction *it, const Functions *found)
{
    const npy_intp *inner = it->inner;
    int form = inner[2] != 8                      ? 0
               : inner[0] == 8 && inner[1] == 8 ? 'b'
               : inner[0] == 8 && inner[1] == 0 ? 'l'
               : inner[0] == 0 && inner[1] == 8 ? 'r'
                                                : 0;
    if (it->count == 1) {
        return found->one;
    }
    it->by_rows = form && it->ndim > 0;
    switch (form) {
    case 'b':
        return it->by_rows ? found->both_rows : found->both;
    case 'l':
        return it->by_rows ? found->left_rows : found->left;
    case 'r':
        return it->by_rows ? found->right_rows : found->right;
    default:
        return found->any;
    }
}

/* The function for an instruction whose operands and strides are known; NULL if there is none. Tells the instruction
   whether that goes through the last of the outer axes. */
FewFunc *
find_few(Instruction *it, int symbol)
{
    const npy_intp *inner = it->inner;
    for (size_t i = 0; it->operands == 3 && i < Py_ARRAY_LENGTH(binary); i++) {
        if (binary[i].symbol == symbol) {
            return find_binary(it, &binary[i].functions);
        }
    }
    if (symbol == 'S' && it->operands == 2 && it->ndim > 0) {
        it->by_rows = 1;
        return sum_rows;
    }
    for (size_t i = 0; it->operands == 2 && i < Py_ARRAY_LENGTH(unary); i++) {
        if (unary[i].symbol == symbol) {
            return it->count == 1 ? unary[i].one : inner[0] == 8 && inner[1] == 8 ? unary[i].both : unary[i].any;
        }
    }
    return NULL;
}

/* Add doubles to others. */
WIDE void
add_doubles(double *total, const double *term, npy_intp count)
{
    for (npy_intp k = 0; k < count; k++) {
        total[k] += term[k];
    }
}

/* Add rows of doubles to others, one row after the other; the sums of a few stay in registers. */
WIDE void
add_rows(double *total, const char *term, npy_intp count, npy_intp rows, npy_intp stride)
{
    npy_intp k = 0;
    for (; k + EIGHT <= count; k += EIGHT) {
        Eight sum = *(Eight *)(total + k);
        for (npy_intp row = 0; row < rows; row++) {
            sum += *(const Eight *)(term + row * stride + 8 * k);
        }
        *(Eight *)(total + k) = sum;
    }
    for (; k < count; k++) {
        for (npy_intp row = 0; row < rows; row++) {
            total[k] += *(const double *)(term + row * stride + 8 * k);
        }
    }
}
