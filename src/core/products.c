/* Products of vectors and matrices, with a short way for tensors of known shapes and one dtype. */

#include "core.h"

/* What a product of operands with so many axes has in common with others like it, by the axes beyond one. */
static struct {
    PyObject *params, *key;
    Py_hash_t hash;
} forms[2][2];

PyDoc_STRVAR(bind_products_doc,
"bind_products(forms, /)\n--\n\n"
"Tell the parameters and the key of products: of two vectors, a vector and a matrix, a matrix and a vector, two matrices.");

static PyObject *
bind_products(PyObject *module, PyObject *given)
{
    for (int i = 0; i < 4; i++) {
        PyObject *form = PySequence_GetItem(given, i), *params, *key;
        if (form == NULL || !PyArg_ParseTuple(form, "O!O!", &PyDict_Type, &params, &PyTuple_Type, &key)) {
            Py_XDECREF(form);
            return NULL;
        }
        Py_XSETREF(forms[i / 2][i % 2].params, Py_NewRef(params));
        Py_XSETREF(forms[i / 2][i % 2].key, Py_NewRef(key));
        forms[i / 2][i % 2].hash = PyObject_Hash(key);
        Py_DECREF(form);
        if (forms[i / 2][i % 2].hash == -1) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* Whether two sizes are the same number. */
static inline int
is_same_size(PyObject *one, PyObject *other)
{
    return one == other || PyObject_RichCompareBool(one, other, Py_EQ) == 1;
}

/* The shape of a product: that of an operand, if it is the same. */
static PyObject *
shape_of_product(PyObject *left, PyObject *right)
{
    Py_ssize_t rows = PyTuple_GET_SIZE(left) - 1, columns = PyTuple_GET_SIZE(right) - 1;
    if (rows == 0 && columns == 0) {
        return Py_NewRef(empty);
    }
    PyObject *first = PyTuple_GET_ITEM(left, 0), *last = PyTuple_GET_ITEM(right, columns);
    if (rows == columns) {
        return is_same_size(last, PyTuple_GET_ITEM(left, 1)) ? Py_NewRef(left) : PyTuple_Pack(2, first, last);
    }
    PyObject *size = rows ? first : last, *vector = rows ? right : left;
    return is_same_size(size, PyTuple_GET_ITEM(vector, 0)) ? Py_NewRef(vector) : PyTuple_Pack(1, size);
}

/* Record the product of two tensors. NULL, without an exception, where the general way has a say: other shapes, sizes that
   are no numbers or do not fit, two dtypes. */
PyObject *
record_product(OpObject *op, NodeObject *x1, NodeObject *x2)
{
    if (x1->dtype != x2->dtype || !is_plain_tuple(x1->shape) || !is_plain_tuple(x2->shape)) {
        return NULL;
    }
    Py_ssize_t rows = PyTuple_GET_SIZE(x1->shape) - 1, columns = PyTuple_GET_SIZE(x2->shape) - 1;
    if (rows < 0 || rows > 1 || columns < 0 || columns > 1 || forms[rows][columns].key == NULL ||
        !is_same_size(PyTuple_GET_ITEM(x1->shape, rows), PyTuple_GET_ITEM(x2->shape, 0))) {
        return NULL;
    }
    PyObject *operands[] = {(PyObject *)x1, (PyObject *)x2}, *key = forms[rows][columns].key;
    Py_uhash_t hash = hash_inputs((PyObject *)op, operands, 2, key, forms[rows][columns].hash);
    PyObject *found = (PyObject *)table_find((PyObject *)op, operands, 2, key, hash);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *shape = shape_of_product(x1->shape, x2->shape);
    PyObject *inputs = shape == NULL ? NULL : PyTuple_Pack(2, x1, x2);
    if (inputs != NULL) {
        found = make_entered(op, inputs, forms[rows][columns].params, shape, x1->dtype, key, hash);
    }
    Py_XDECREF(shape);
    return found;
}

PyMethodDef product_methods[] = {
    {"bind_products", bind_products, METH_O, bind_products_doc},
    {NULL},
};
