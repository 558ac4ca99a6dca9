/* The outputs of nodes that have several. */

#include "core.h"

/* What the outputs of a node with several are recorded with; so many are kept. */
enum { FEW_PARTS = 8 };

static struct {
    PyObject *params, *key;
    Py_hash_t hash;
} part_forms[FEW_PARTS];

/* Make the parameters and the key of an output; returns -1 with an exception. */
static int
make_part_form(Py_ssize_t index, PyObject **params, PyObject **key, Py_hash_t *hash)
{
    *params = Py_BuildValue("{s:n}", "index", index);
    *key = Py_BuildValue("((sn))", "index", index);
    *hash = *key == NULL ? -1 : PyObject_Hash(*key);
    if (*params == NULL || *hash == -1) {
        Py_CLEAR(*params);
        Py_CLEAR(*key);
        return -1;
    }
    return 0;
}

/* Return an output of a node with several. */
static PyObject *
record_part(OpObject *op, NodeObject *bundle, Py_ssize_t index)
{
    PyObject *params, *key, *found = NULL, *input = (PyObject *)bundle;
    Py_hash_t of_key;
    if (index < FEW_PARTS && part_forms[index].key != NULL) {
        params = Py_NewRef(part_forms[index].params);
        key = Py_NewRef(part_forms[index].key);
        of_key = part_forms[index].hash;
    } else if (make_part_form(index, &params, &key, &of_key) < 0) {
        return NULL;
    } else if (index < FEW_PARTS) {
        part_forms[index].params = Py_NewRef(params);
        part_forms[index].key = Py_NewRef(key);
        part_forms[index].hash = of_key;
    }
    Py_uhash_t hash = hash_inputs((PyObject *)op, &input, 1, key, of_key);
    found = (PyObject *)table_find((PyObject *)op, &input, 1, key, hash);
    if (found == NULL && !PyErr_Occurred()) {
        PyObject *inputs = PyTuple_Pack(1, input);
        if (inputs != NULL) {
            found = make_entered(op, inputs, params, PyTuple_GET_ITEM(bundle->shape, index),
                                 PyTuple_GET_ITEM(bundle->dtype, index), key, hash);
        }
    }
    Py_DECREF(params);
    Py_DECREF(key);
    return found;
}

PyDoc_STRVAR(parts_doc, "parts(op, bundle, /)\n--\n\nReturn the outputs of a node that has several; ``op`` is what an output is.");

static PyObject *
parts(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("parts", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType) || !PyObject_TypeCheck(args[1], &BundleType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op and a node with several outputs, got %R and %R", args[0], args[1]);
    }
    NodeObject *bundle = (NodeObject *)args[1];
    if (!PyTuple_Check(bundle->shape) || !PyTuple_Check(bundle->dtype) ||
        PyTuple_GET_SIZE(bundle->shape) != PyTuple_GET_SIZE(bundle->dtype)) {
        return PyErr_Format(PyExc_TypeError, "a node with several outputs has as many shapes and dtypes");
    }
    PyObject *found = PyTuple_New(PyTuple_GET_SIZE(bundle->shape));
    for (Py_ssize_t i = 0; found != NULL && i < PyTuple_GET_SIZE(bundle->shape); i++) {
        PyObject *part = record_part((OpObject *)args[0], bundle, i);
        if (part == NULL) {
            Py_CLEAR(found);
        } else {
            PyTuple_SET_ITEM(found, i, part);
        }
    }
    return found;
}

PyMethodDef bundle_methods[] = {
    {"parts", FAST(parts), METH_FASTCALL, parts_doc},
    {NULL},
};
