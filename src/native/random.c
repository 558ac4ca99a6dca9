/* Random numbers: NumPy's distributions over its counter-based generator, Philox 4×64 with ten rounds.

   The distributions are NumPy's own code, which it ships for extensions. The generator is written out here, since NumPy
   has it behind a Python object only; a draw begins at the start of the stream of its key. Python compares both with
   NumPy before the first draw. */

#include "native.h"

#include <numpy/random/bitgen.h>
#include <numpy/random/distributions.h>

typedef struct {
    uint64_t counter[4], key[2], block[4];
    int at;       /* the next number of the block */
    int has_half; /* of a number of which the lower half was taken */
    uint32_t half;
} Philox;

static inline uint64_t
multiply(uint64_t x, uint64_t y, uint64_t *high)
{
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)x * y;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
#else
    uint64_t x0 = (uint32_t)x, x1 = x >> 32, y0 = (uint32_t)y, y1 = y >> 32;
    uint64_t middle = x1 * y0 + (x0 * y0 >> 32), other = x0 * y1 + (uint32_t)middle;
    *high = x1 * y1 + (middle >> 32) + (other >> 32);
    return x * y;
#endif
}

static void
next_block(Philox *philox)
{
    for (int i = 0; i < 4 && ++philox->counter[i] == 0; i++) {
    }
    uint64_t c0 = philox->counter[0], c1 = philox->counter[1], c2 = philox->counter[2], c3 = philox->counter[3];
    uint64_t k0 = philox->key[0], k1 = philox->key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t high0, high1;
        uint64_t low0 = multiply(0xD2E7470EE14C6C93u, c0, &high0), low1 = multiply(0xCA5A826395121157u, c2, &high1);
        c0 = high1 ^ c1 ^ k0, c1 = low1;
        c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B97F4A7C15u, k1 += 0xBB67AE8584CAA73Bu;
    }
    philox->block[0] = c0, philox->block[1] = c1, philox->block[2] = c2, philox->block[3] = c3;
    philox->at = 0;
}

static uint64_t
next_number(void *state)
{
    Philox *philox = state;
    if (philox->at == 4) {
        next_block(philox);
    }
    return philox->block[philox->at++];
}

static uint32_t
next_half(void *state)
{
    Philox *philox = state;
    if (philox->has_half) {
        philox->has_half = 0;
        return philox->half;
    }
    uint64_t number = next_number(state);
    philox->has_half = 1;
    philox->half = (uint32_t)(number >> 32);
    return (uint32_t)number;
}

static double
next_fraction(void *state)
{
    return (double)(next_number(state) >> 11) * (1.0 / 9007199254740992.0);
}

/* From the last one on, each is exchanged with one before it, or with itself. */
static void
fill_permutation(bitgen_t *bits, npy_intp count, npy_int64 *to)
{
    for (npy_intp i = 0; i < count; i++) {
        to[i] = i;
    }
    for (npy_intp i = count - 1; i > 0; i--) {
        npy_intp j = (npy_intp)random_interval(bits, (uint64_t)i);
        npy_int64 other = to[j];
        to[j] = to[i];
        to[i] = other;
    }
}

/* Operands: keys of two numbers each, and where draws go. Numbers: what is drawn, how many with each key, bytes of an
   element; the least integer, and how much more the largest is. */
void
run_draw(const Instruction *it, char **at)
{
    const uint64_t *key = (const uint64_t *)at[0];
    npy_intp per_key = it->numbers[1];
    for (npy_intp i = 0; i < it->count; i++, key += 2) {
        Philox philox = {.key = {key[0], key[1]}, .at = 4};
        bitgen_t bits = {&philox, next_number, next_half, next_fraction, next_number};
        char *to = at[1] + i * per_key * it->numbers[2];
        switch (it->numbers[0]) {
        case 'n':
            random_standard_normal_fill(&bits, per_key, (double *)to);
            break;
        case 'N':
            random_standard_normal_fill_f(&bits, per_key, (float *)to);
            break;
        case 'u':
            random_standard_uniform_fill(&bits, per_key, (double *)to);
            break;
        case 'U':
            random_standard_uniform_fill_f(&bits, per_key, (float *)to);
            break;
        case 'i':
            random_bounded_uint64_fill(&bits, (uint64_t)it->numbers[3], (uint64_t)it->numbers[4], per_key, 0,
                                       (uint64_t *)to);
            break;
        default:
            fill_permutation(&bits, per_key, (npy_int64 *)to);
        }
    }
}
