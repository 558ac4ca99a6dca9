/* The objects of other modules that the core works with: Python gives them, by name, when it imports those modules. */

#include "evaluation.h"

PyObject *empty;
PyObject *tensor_class;  /* the class that users hold */
PyObject *no_params;     /* the parameters of an op that has none */
PyObject *is_internal;   /* whether a source file is one of ours, a dict that finds out what it lacks */
PyObject *origin_var;    /* the context variable with the source position that new nodes inherit */
PyObject *with_sizes;    /* parameters as they are kept if some of them may hold symbolic sizes */
PyObject *align;         /* operands that broadcast, and the shape they broadcast to */
PyObject *constant_op;
PyObject *seed;          /* the contents of the 1 that a backward pass starts from */
PyObject *leaf_ops;
PyObject *call_op;
PyObject *projection_class; /* the class of tensors that are outputs of calls */
PyObject *lost;             /* stands for the evaluation of a tensor that lost its value */
PyObject *float32, *float64, *complex128, *int64;
PyObject *dtypes;       /* all that tensors have */
PyObject *can_count;    /* whether this interpreter counts references as is known: True or False */
PyObject *array_class;  /* NumPy's arrays: made of a shape, a dtype and bytes */
PyObject *numpy_float;  /* NumPy's numbers that are Python floats, and are not weak */
PyObject *numpy_integer; /* NumPy's integers, of 64 bits */
PyObject *slice_op, *gather_op, *reshape_op, *broadcast_op, *concat_op;
PyObject *update_class;   /* the class of updates of elements */
PyObject *general_update; /* makes one for any index */
PyObject *as_tensor, *as_inexact;
PyObject *computes_with_values, *general_item, *general_ufunc;
PyObject *plain_output; /* an output of a call that is one of its inputs, or a constant */

static const struct {
    const char *name;
    PyObject **where;
} given[] = {
    {"tensor_class", &tensor_class}, {"no_params", &no_params},     {"is_internal", &is_internal},
    {"origin", &origin_var},         {"with_sizes", &with_sizes},   {"align", &align},
    {"constant", &constant_op},      {"float64", &float64},         {"complex128", &complex128},
    {"int64", &int64},               {"dtypes", &dtypes},           {"array_class", &array_class},     {"can_count", &can_count},
    {"numpy_float", &numpy_float},   {"call", &call_op},            {"projection", &projection_class},
    {"lost", &lost},                 {"plain_output", &plain_output}, {"leaves", &leaf_ops},
    {"numpy_integer", &numpy_integer},
    {"slice", &slice_op},            {"gather", &gather_op},        {"reshape", &reshape_op},
    {"broadcast_to", &broadcast_op}, {"concat", &concat_op},        {"update_class", &update_class},
    {"general_update", &general_update}, {"float32", &float32},         {"seed", &seed},
    {"computes_with_values", &computes_with_values}, {"general_ufunc", &general_ufunc},
    {"general_item", &general_item}, {"as_tensor", &as_tensor}, {"as_inexact", &as_inexact},
    {"counters", &counters},         {"bounds", &bounds},
    {"runner", &default_runner},     {"watched", &watched},         {"general_float", &general_float},
    {NULL, NULL},
};

PyDoc_STRVAR(bind_doc, "Tell the core the objects of other modules that it works with, by name; each once.");

static PyObject *
bind(PyObject *module, PyObject *args, PyObject *kwargs)
{
    PyObject *name, *object;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &name, &object)) {
        int i = 0;
        while (given[i].name != NULL && PyUnicode_CompareWithASCIIString(name, given[i].name) != 0) {
            i++;
        }
        if (given[i].name == NULL) {
            return PyErr_Format(PyExc_TypeError, "the core works with nothing called %R", name);
        }
        if ((given[i].where == &tensor_class || given[i].where == &projection_class) && own_tensors(object) < 0) {
            return NULL;
        }
        Py_XSETREF(*given[i].where, Py_NewRef(object));
    }
    Py_RETURN_NONE;
}

PyMethodDef given_methods[] = {
    {"bind", FAST(bind), METH_VARARGS | METH_KEYWORDS, bind_doc},
    {NULL},
};
