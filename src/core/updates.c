/* Updates of elements: what ``x.at[index]`` is, and recording one whose values fit.

   The index is read when it is given, so that what is wrong with it is said at once, and kept with the shape of what it
   selects. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *tensor;
} UpdaterObject;

typedef struct {
    PyObject_HEAD
    PyObject *tensor; /* what is updated */
    PyObject *base;   /* what the index is read for: the same, unless a mask gave it another shape */
    Selection selection;
    int is_read; /* by the core: then all of the selection is known */
} UpdateObject;

/* --- the update of what an index selects --- */

static PyMemberDef update_members[] = {
    {"_tensor", T_OBJECT_EX, offsetof(UpdateObject, tensor), READONLY, NULL},
    {"_base", T_OBJECT_EX, offsetof(UpdateObject, base), READONLY, NULL},
    {"_index", T_OBJECT_EX, offsetof(UpdateObject, selection.index), READONLY, NULL},
    {"_lengths", T_OBJECT_EX, offsetof(UpdateObject, selection.lengths), READONLY, NULL},
    {"_at", T_OBJECT_EX, offsetof(UpdateObject, selection.at), READONLY, NULL},
    {"_shape", T_OBJECT_EX, offsetof(UpdateObject, selection.shape), READONLY, NULL},
    {NULL},
};

static void
update_dealloc(UpdateObject *self)
{
    Py_XDECREF(self->tensor);
    Py_XDECREF(self->base);
    release_selection(&self->selection);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
update_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *tensor, *base, *index, *lengths, *at, *shape;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0) {
        return PyErr_Format(PyExc_TypeError, "an update takes no keywords");
    }
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!", &NodeType, &tensor, &NodeType, &base, &PyTuple_Type, &index,
                          &PyTuple_Type, &lengths, &PyTuple_Type, &at, &PyTuple_Type, &shape)) {
        return NULL;
    }
    UpdateObject *self = (UpdateObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->tensor = Py_NewRef(tensor);
        self->base = Py_NewRef(base);
        self->selection = (Selection){Py_NewRef(index), Py_NewRef(lengths), Py_NewRef(at), Py_NewRef(shape), 0};
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(update_doc,
"UpdateBase(tensor, base, index, lengths, at, shape, /)\n--\n\n"
"The elements of a tensor that an index selects, to be updated; ``shape`` is that of the selection.");

PyTypeObject UpdateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.UpdateBase",
    .tp_doc = update_doc,
    .tp_basicsize = sizeof(UpdateObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = update_new,
    .tp_dealloc = (destructor)update_dealloc,
    .tp_members = update_members,
};

/* Make an update of what was read; takes over the selection. */
static PyObject *
make_update(PyObject *x, Selection *selection)
{
    PyTypeObject *type = (PyTypeObject *)update_class;
    UpdateObject *made = (UpdateObject *)type->tp_alloc(type, 0);
    if (made == NULL) {
        release_selection(selection);
        return NULL;
    }
    made->tensor = Py_NewRef(x);
    made->base = Py_NewRef(x);
    made->selection = *selection;
    made->is_read = 1;
    return (PyObject *)made;
}

/* --- x.at --- */

static PyMemberDef updater_members[] = {
    {"_tensor", T_OBJECT_EX, offsetof(UpdaterObject, tensor), READONLY, NULL},
    {NULL},
};

static void
updater_dealloc(UpdaterObject *self)
{
    Py_XDECREF(self->tensor);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
updater_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) != 1 || !is_node(PyTuple_GET_ITEM(args, 0)) ||
        (kwargs != NULL && PyDict_GET_SIZE(kwargs) != 0)) {
        return PyErr_Format(PyExc_TypeError, "%s takes the tensor to update", type->tp_name);
    }
    UpdaterObject *self = (UpdaterObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->tensor = Py_NewRef(PyTuple_GET_ITEM(args, 0));
    }
    return (PyObject *)self;
}

static PyObject *
updater_subscript(UpdaterObject *self, PyObject *index)
{
    Selection selection;
    int understood = read_selection(self->tensor, index, &selection);
    if (understood == 1) {
        return make_update(self->tensor, &selection);
    }
    release_selection(&selection);
    return understood < 0 ? NULL : PyObject_CallFunctionObjArgs(general_update, self->tensor, index, NULL);
}

static PyMappingMethods updater_mapping = {.mp_subscript = (binaryfunc)updater_subscript};

PyDoc_STRVAR(updater_doc, "UpdaterBase(tensor, /)\n--\n\nWhat ``x.at`` is: indexed, it gives an update.");

PyTypeObject UpdaterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.UpdaterBase",
    .tp_doc = updater_doc,
    .tp_basicsize = sizeof(UpdaterObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = updater_new,
    .tp_dealloc = (destructor)updater_dealloc,
    .tp_members = updater_members,
    .tp_as_mapping = &updater_mapping,
};

/* --- recording --- */

/* Return values in dtype and shape of a selection: as they are, or a number for each element. NULL, without an exception,
   where the general way has a say. */
static PyObject *
fit(PyObject *values, UpdateObject *update)
{
    NodeObject *fitted = (NodeObject *)operand_beside(values, (NodeObject *)update->tensor);
    if (fitted == NULL) {
        return NULL;
    }
    PyObject *found = NULL;
    if (fitted->dtype == ((NodeObject *)update->tensor)->dtype && is_plain_tuple(update->selection.shape)) {
        if (same_numbers(fitted->shape, update->selection.shape)) {
            return (PyObject *)fitted;
        }
        if (fitted->shape == empty) {
            PyObject *given[] = {(PyObject *)fitted, update->selection.shape};
            found = record_any((OpObject *)broadcast_op, given, 1, names_shape);
        }
    }
    Py_DECREF(fitted);
    return found;
}

PyDoc_STRVAR(fitted_doc,
"fitted(update, values, /)\n--\n\n"
"Return values in dtype and shape of what an update selects; None where the general way has a say.");

static PyObject *
fitted(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("fitted", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &UpdateType)) {
        return PyErr_Format(PyExc_TypeError, "expected an update, got %R", args[0]);
    }
    UpdateObject *update = (UpdateObject *)args[0];
    PyObject *values = update->base != update->tensor ? NULL : fit(args[1], update);
    return values != NULL || PyErr_Occurred() ? values : Py_NewRef(Py_None);
}

PyDoc_STRVAR(selected_doc,
"selected(update, /)\n--\n\nReturn the elements that an update selects; None where the general way has a say.");

static PyObject *
selected(PyObject *module, PyObject *object)
{
    if (!PyObject_TypeCheck(object, &UpdateType)) {
        return PyErr_Format(PyExc_TypeError, "expected an update, got %R", object);
    }
    UpdateObject *update = (UpdateObject *)object;
    return update->is_read ? record_selection(update->tensor, &update->selection) : Py_NewRef(Py_None);
}

/* Record an update by values that fit, with an op for what the index is: without index arrays, or with. */
static PyObject *
record_update(PyObject *const *ops, UpdateObject *update, PyObject *values)
{
    PyObject *given[MOST_ITEMS + 4], *at = update->selection.at;
    Py_ssize_t operands = PyTuple_GET_SIZE(at);
    given[0] = update->tensor;
    given[1] = values;
    memcpy(given + 2, &PyTuple_GET_ITEM(at, 0), (size_t)operands * sizeof(PyObject *));
    given[operands + 2] = update->selection.index;
    given[operands + 3] = update->selection.lengths;
    int scatters = has_arrays(update->selection.index);
    if (scatters < 0 || check_nodes(ops[0], given, operands + 2) < 0) {
        return NULL;
    }
    return record_any((OpObject *)ops[scatters], given, operands + 2, names_pick);
}

/* Check the arguments of a function that records an update; returns the update, or NULL with an exception. */
static UpdateObject *
check_update(const char *name, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count(name, nargs, 4) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType) || !PyObject_TypeCheck(args[1], &OpType) ||
        !PyObject_TypeCheck(args[2], &UpdateType)) {
        PyErr_Format(PyExc_TypeError, "%s takes two ops, an update and values", name);
        return NULL;
    }
    return (UpdateObject *)args[2];
}

PyDoc_STRVAR(update_at_doc,
"update_at(slice_op, scatter_op, update, values, /)\n--\n\n"
"Return the node for an update; the first op is for templates without index arrays. None where the general way has a say.");

static PyObject *
update_at(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    UpdateObject *update = check_update("update_at", args, nargs);
    if (update == NULL) {
        return NULL;
    }
    int fits = update->base == update->tensor && PyTuple_GET_SIZE(update->selection.at) <= MOST_ITEMS;
    PyObject *values = fits ? fit(args[3], update) : NULL;
    PyObject *node = values == NULL ? NULL : record_update(args, update, values);
    Py_XDECREF(values);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

PyDoc_STRVAR(combine_at_doc,
"combine_at(op, slice_op, update, values, /)\n--\n\n"
"Return the node for an update that puts an elementwise op of the selected elements and values in their place. None where\n"
"the general way has a say, so also where an element may be selected twice.");

static PyObject *
combine_at(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    UpdateObject *update = check_update("combine_at", args, nargs);
    int scatters = update == NULL ? -1 : has_arrays(update->selection.index);
    if (scatters < 0) {
        return NULL;
    }
    PyObject *values = scatters || !update->is_read ? NULL : fit(args[3], update);
    PyObject *elements = values == NULL ? NULL : record_selection(update->tensor, &update->selection);
    PyObject *node = NULL;
    if (elements != NULL) {
        Py_SETREF(values, record_two((OpObject *)args[0], (NodeObject *)elements, (NodeObject *)values));
        node = values == NULL ? NULL : record_update(args + 1, update, values);
    }
    Py_XDECREF(values);
    Py_XDECREF(elements);
    return node != NULL || PyErr_Occurred() ? node : Py_NewRef(Py_None);
}

PyMethodDef update_methods[] = {
    {"combine_at", FAST(combine_at), METH_FASTCALL, combine_at_doc},
    {"fitted", FAST(fitted), METH_FASTCALL, fitted_doc},
    {"selected", selected, METH_O, selected_doc},
    {"update_at", FAST(update_at), METH_FASTCALL, update_at_doc},
    {NULL},
};
