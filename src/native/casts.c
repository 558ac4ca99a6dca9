/* Conversions between dtypes that lose nothing, and from double to single precision. */

#include "native.h"

#define CAST(name, From, To)                                                                                           \
    static void name(npy_intp count, const char *from, npy_intp from_stride, char *to, npy_intp to_stride)             \
    {                                                                                                                  \
        for (npy_intp i = 0; i < count; i++, from += from_stride, to += to_stride) {                                   \
            *(To *)to = (To) * (const From *)from;                                                                     \
        }                                                                                                              \
    }

/* To a complex number with an imaginary part of zero. */
#define WIDEN(name, From, To)                                                                                          \
    static void name(npy_intp count, const char *from, npy_intp from_stride, char *to, npy_intp to_stride)             \
    {                                                                                                                  \
        for (npy_intp i = 0; i < count; i++, from += from_stride, to += to_stride) {                                   \
            ((To *)to)[0] = (To) * (const From *)from;                                                                 \
            ((To *)to)[1] = 0;                                                                                         \
        }                                                                                                              \
    }

/* Both parts of a complex number. */
#define BOTH(name, From, To)                                                                                           \
    static void name(npy_intp count, const char *from, npy_intp from_stride, char *to, npy_intp to_stride)             \
    {                                                                                                                  \
        for (npy_intp i = 0; i < count; i++, from += from_stride, to += to_stride) {                                   \
            ((To *)to)[0] = (To)((const From *)from)[0];                                                               \
            ((To *)to)[1] = (To)((const From *)from)[1];                                                               \
        }                                                                                                              \
    }

CAST(bool_to_long, npy_bool, npy_long)
CAST(bool_to_float, npy_bool, float)
CAST(bool_to_double, npy_bool, double)
CAST(long_to_double, npy_long, double)
CAST(float_to_double, float, double)
CAST(double_to_float, double, float)
WIDEN(bool_to_cdouble, npy_bool, double)
WIDEN(long_to_cdouble, npy_long, double)
WIDEN(float_to_cfloat, float, float)
WIDEN(float_to_cdouble, float, double)
WIDEN(double_to_cdouble, double, double)
BOTH(cfloat_to_cdouble, float, double)
BOTH(cdouble_to_cfloat, double, float)

static const struct {
    int from, to;
    CastFunc *cast;
} casts[] = {
    {NPY_BOOL, NPY_LONG, bool_to_long},
    {NPY_BOOL, NPY_FLOAT, bool_to_float},
    {NPY_BOOL, NPY_DOUBLE, bool_to_double},
    {NPY_BOOL, NPY_CDOUBLE, bool_to_cdouble},
    {NPY_LONG, NPY_DOUBLE, long_to_double},
    {NPY_LONG, NPY_CDOUBLE, long_to_cdouble},
    {NPY_FLOAT, NPY_DOUBLE, float_to_double},
    {NPY_FLOAT, NPY_CFLOAT, float_to_cfloat},
    {NPY_FLOAT, NPY_CDOUBLE, float_to_cdouble},
    {NPY_DOUBLE, NPY_FLOAT, double_to_float},
    {NPY_DOUBLE, NPY_CDOUBLE, double_to_cdouble},
    {NPY_CFLOAT, NPY_CDOUBLE, cfloat_to_cdouble},
    {NPY_CDOUBLE, NPY_CFLOAT, cdouble_to_cfloat},
};

CastFunc *
find_cast(int from, int to)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(casts); i++) {
        if (casts[i].from == from && casts[i].to == to) {
            return casts[i].cast;
        }
    }
    return NULL;
}
