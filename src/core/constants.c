/* Constants: leaves that are their contents, and the numbers and arrays that become one beside a tensor.

   The key of a constant is its dtype, its shape and its contents: the number itself, or its bytes. An array has the bytes
   of its key for its memory, so that they are there once, and nobody can write into them. */

#include "core.h"

static PyObject *name_dtype, *name_shape;

/* Make the words that are looked up; returns -1 with an exception. */
int
constants_start(void)
{
    name_dtype = PyUnicode_InternFromString("dtype");
    name_shape = PyUnicode_InternFromString("shape");
    return name_dtype != NULL && name_shape != NULL ? 0 : -1;
}

/* Make the constant of a key whose contents are known as bytes, and enter it with its value: who finds it, finds that. */
static PyObject *
make_constant(PyObject *key, PyObject *data, Py_uhash_t hash)
{
    PyObject *dtype = PyTuple_GET_ITEM(key, 0), *shape = PyTuple_GET_ITEM(key, 1);
    PyObject *value = PyObject_CallFunctionObjArgs(array_class, shape, dtype, data, NULL);
    if (value == NULL) {
        return NULL;
    }
    NodeObject *node = make_here((PyTypeObject *)tensor_class, (OpObject *)constant_op, empty, no_params, shape,
                                 dtype, key);
    if (node == NULL) {
        Py_DECREF(value);
        return NULL;
    }
    Py_SETREF(node->value, value);
    return enter_first(node, hash);
}

/* Return the constant of a dtype, a shape and contents; `data` are its bytes. The references are borrowed. */
PyObject *
find_constant(PyObject *dtype, PyObject *shape, PyObject *content, PyObject *data)
{
    PyObject *key = PyTuple_Pack(3, dtype, shape, content);
    PyObject *found = NULL;
    Py_uhash_t hash;
    if (key != NULL && hash_recipe(constant_op, NULL, 0, key, &hash) == 0) {
        found = (PyObject *)table_find(constant_op, NULL, 0, key, hash);
        if (found == NULL && !PyErr_Occurred()) {
            found = make_constant(key, data, hash);
        }
    }
    Py_XDECREF(key);
    return found;
}

/* --- numbers --- */

/* Return the constant of contents that are looked up by a number, `content`, and made of so many bytes. */
static PyObject *
find_number(PyObject *dtype, PyObject *content, const void *bytes, Py_ssize_t size)
{
    PyObject *key = PyTuple_Pack(3, dtype, empty, content);
    PyObject *found = NULL;
    Py_uhash_t hash;
    if (key != NULL && hash_recipe(constant_op, NULL, 0, key, &hash) == 0) {
        found = (PyObject *)table_find(constant_op, NULL, 0, key, hash);
        if (found == NULL && !PyErr_Occurred()) {
            PyObject *data = PyBytes_FromStringAndSize(bytes, size);
            found = data == NULL ? NULL : make_constant(key, data, hash);
            Py_XDECREF(data);
        }
    }
    Py_XDECREF(key);
    return found;
}

/* Return the constant of bits that stand for themselves. */
static PyObject *
find_bits(PyObject *dtype, const void *bytes, Py_ssize_t size)
{
    PyObject *data = PyBytes_FromStringAndSize(bytes, size);
    PyObject *found = data == NULL ? NULL : find_constant(dtype, empty, data, data);
    Py_XDECREF(data);
    return found;
}

/* Hashes of the constants of numbers that were looked up: the numbers in a loop are the same ones in every step. */
static struct {
    double value; /* 0 where there is none */
    Py_uhash_t hash;
} numbers[64];

static size_t
place_of_number(double value)
{
    unsigned long long bits;
    memcpy(&bits, &value, sizeof bits);
    return (size_t)(bits * 0x9E3779B97F4A7C15ULL >> 58);
}

static PyObject *
find_float(double value)
{
    /* -0.0 equals 0.0 and NaN equals nothing: those go by their bits. */
    if (value == 0.0 || value != value) {
        return find_bits(float64, &value, sizeof value);
    }
    size_t place = place_of_number(value);
    if (numbers[place].value == value) {
        PyObject *known = (PyObject *)table_find_float(float64, value, numbers[place].hash);
        if (known != NULL) {
            return known;
        }
    }
    PyObject *content = PyFloat_FromDouble(value);
    PyObject *found = content == NULL ? NULL : find_number(float64, content, &value, sizeof value);
    Py_XDECREF(content);
    if (found != NULL) {
        numbers[place].value = value;
        numbers[place].hash = ((NodeObject *)found)->hash;
    }
    return found;
}

/* Return the constant of a number rounded to 32 bits; NULL, without an exception, if it is too large for that. */
static PyObject *
find_single(double value)
{
    float single = (float)value;
    if (Py_IS_INFINITY(single) && !Py_IS_INFINITY(value)) {
        return NULL;
    }
    if (single == 0.0f || single != single) {
        return find_bits(float32, &single, sizeof single);
    }
    PyObject *content = PyFloat_FromDouble((double)single);
    PyObject *found = content == NULL ? NULL : find_number(float32, content, &single, sizeof single);
    Py_XDECREF(content);
    return found;
}

static PyObject *
find_complex(Py_complex value)
{
    double parts[] = {value.real, value.imag};
    return find_bits(complex128, parts, sizeof parts);
}

/* Return the constant of an integer, of 64 bits. */
PyObject *
find_integer(long long value)
{
    PyObject *content = PyLong_FromLongLong(value);
    PyObject *found = content == NULL ? NULL : find_number(int64, content, &value, sizeof value);
    Py_XDECREF(content);
    return found;
}

/* Integers up to these have a float that is equal to them. */
#define MOST_EXACT (1LL << 53)
#define MOST_EXACT_SINGLE (1LL << 24)

static PyObject *
integer_beside(PyObject *number, PyObject *dtype)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || (value == -1 && PyErr_Occurred())) {
        return NULL;
    }
    if (dtype == int64) {
        return find_integer(value);
    }
    long long most = dtype == float32 ? MOST_EXACT_SINGLE : MOST_EXACT;
    if (value < -most || value > most) {
        return NULL;
    }
    if (dtype == float32) {
        return find_single((double)value);
    }
    return dtype == float64 ? find_float((double)value) : find_complex((Py_complex){(double)value, 0.0});
}

/* Return the constant for a number beside a dtype; NULL, without an exception, where the general way has a say. Python's
   numbers are weak: they take the dtype of what is beside them, where that has room. */
static PyObject *
number_beside(PyObject *number, PyObject *dtype)
{
    if ((PyObject *)Py_TYPE(number) == numpy_float) {
        return find_float(PyFloat_AS_DOUBLE(number));
    }
    if (PyComplex_CheckExact(number) && (dtype == float64 || dtype == complex128)) {
        return find_complex(PyComplex_AsCComplex(number));
    }
    if (PyFloat_CheckExact(number) && dtype == float64) {
        return find_float(PyFloat_AS_DOUBLE(number));
    }
    if (PyFloat_CheckExact(number) && dtype == float32) {
        return find_single(PyFloat_AS_DOUBLE(number));
    }
    if (PyFloat_CheckExact(number) && dtype == complex128) {
        return find_complex((Py_complex){PyFloat_AS_DOUBLE(number), 0.0});
    }
    if (!PyLong_CheckExact(number)) {
        return NULL;
    }
    int fits = dtype == float64 || dtype == float32 || dtype == complex128 || dtype == int64;
    return fits ? integer_beside(number, dtype) : NULL;
}

/* --- arrays --- */

/* Return whether an object is an array, and no special kind of one. */
int
is_array(PyObject *object)
{
    return (PyObject *)Py_TYPE(object) == array_class;
}

/* Return the elements of an array as bytes, in row-major order. */
static PyObject *
elements_of(PyObject *array)
{
    Py_buffer view;
    if (PyObject_GetBuffer(array, &view, PyBUF_STRIDED_RO) < 0) {
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, view.len);
    if (bytes != NULL && PyBuffer_ToContiguous(PyBytes_AS_STRING(bytes), &view, view.len, 'C') < 0) {
        Py_CLEAR(bytes);
    }
    PyBuffer_Release(&view);
    return bytes;
}

/* Read an array. Returns 1 if it is one whose contents are a constant's, of a dtype that is supported, with axes; 0 if
   the general way has a say; -1 with an exception. */
int
read_array(PyObject *array, Contents *contents)
{
    *contents = (Contents){NULL, NULL, NULL};
    contents->dtype = PyObject_GetAttr(array, name_dtype);
    if (contents->dtype == NULL) {
        return -1;
    }
    int supported = 0;
    for (Py_ssize_t i = 0; !supported && i < PyTuple_GET_SIZE(dtypes); i++) {
        supported = PyTuple_GET_ITEM(dtypes, i) == contents->dtype;
    }
    if (!supported) {
        return 0;
    }
    contents->shape = PyObject_GetAttr(array, name_shape);
    if (contents->shape == NULL || PyTuple_GET_SIZE(contents->shape) == 0) {
        return contents->shape == NULL ? -1 : 0;
    }
    contents->bytes = elements_of(array);
    return contents->bytes == NULL ? -1 : 1;
}

void
release_contents(Contents *contents)
{
    Py_CLEAR(contents->dtype);
    Py_CLEAR(contents->shape);
    Py_CLEAR(contents->bytes);
}

PyObject *
constant_of(const Contents *contents)
{
    return find_constant(contents->dtype, contents->shape, contents->bytes, contents->bytes);
}

/* Return what stands for an operand beside a node: a node, or the constant of a number or an array. NULL, without an
   exception, where the general way has a say. */
PyObject *
operand_beside(PyObject *operand, NodeObject *beside)
{
    if (is_node(operand)) {
        return Py_NewRef(operand);
    }
    if (!is_array(operand)) {
        return number_beside(operand, beside->dtype);
    }
    Contents contents;
    PyObject *found = read_array(operand, &contents) == 1 ? constant_of(&contents) : NULL;
    release_contents(&contents);
    return found;
}

/* --- functions --- */

PyDoc_STRVAR(constant_doc,
"constant(dtype, shape, content, data, /)\n--\n\n"
"Return the constant of a dtype, a shape and contents: the one that is alive, or a new one. ``data`` are its bytes, in\n"
"row-major order; a new one has them for its memory.");

static PyObject *
constant(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("constant", nargs, 4) < 0) {
        return NULL;
    }
    if (!PyBytes_CheckExact(args[3])) {
        return PyErr_Format(PyExc_TypeError, "expected the contents as bytes, got %R", args[3]);
    }
    return find_constant(args[0], args[1], args[2], args[3]);
}

PyDoc_STRVAR(constant_beside_doc,
"constant_beside(value, dtype, /)\n--\n\n"
"Return the constant for a Python number beside an operand of a dtype; None where the general way has a say.");

static PyObject *
constant_beside(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("constant_beside", nargs, 2) < 0) {
        return NULL;
    }
    PyObject *found = number_beside(args[0], args[1]);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

PyMethodDef constant_methods[] = {
    {"constant", FAST(constant), METH_FASTCALL, constant_doc},
    {"constant_beside", FAST(constant_beside), METH_FASTCALL, constant_beside_doc},
    {NULL},
};
