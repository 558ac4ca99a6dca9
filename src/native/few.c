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

BINARY(add, x + y)
BINARY(subtract, x - y)
BINARY(multiply, x * y)
BINARY(divide, x / y)
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

static const struct {
    int symbol;
    FewFunc *both, *left, *right, *one, *any;
} binary[] = {
    {'+', add_both, add_left, add_right, add_one, add_any},
    {'-', subtract_both, subtract_left, subtract_right, subtract_one, subtract_any},
    {'*', multiply_both, multiply_left, multiply_right, multiply_one, multiply_any},
    {'/', divide_both, divide_left, divide_right, divide_one, divide_any},
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

/* The function for an instruction whose operands and strides are known; NULL if there is none. */
FewFunc *
find_few(const Instruction *it, int symbol)
{
    const npy_intp *inner = it->inner;
    for (size_t i = 0; it->operands == 3 && i < Py_ARRAY_LENGTH(binary); i++) {
        if (binary[i].symbol == symbol) {
            if (it->count == 1) {
                return binary[i].one;
            }
            if (inner[2] != 8) {
                return binary[i].any;
            }
            return inner[0] == 8 && inner[1] == 8   ? binary[i].both
                   : inner[0] == 8 && inner[1] == 0 ? binary[i].left
                   : inner[0] == 0 && inner[1] == 8 ? binary[i].right
                                                    : binary[i].any;
        }
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
