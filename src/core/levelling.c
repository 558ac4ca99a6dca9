/* On which level the units of a replay are, and what has to run for values that are missing. */

#include "evaluation.h"

/* The level of what is made of constants alone: above all others. */
static const long long ANY_LEVEL = 1LL << 60;

typedef struct {
    PyObject_HEAD
    PyObject *targets;    /* what was asked for, by id */
    PyObject *is_literal; /* tells of a node that reads nothing whether it is no leaf of a user's */
    PyObject *levels, *constant; /* what is known of units, by id */
    long long *begun;
    Py_ssize_t count;
    char has_variables; /* -1 until it is known */
} LevelsObject;

static PyObject *
unit_making(NodeObject *node)
{
    int is_output = Py_IS_TYPE(node, (PyTypeObject *)projection_class) && is_call(node->inputs);
    return is_output ? node->inputs : (PyObject *)node;
}

static PyObject *
inputs_of(PyObject *unit)
{
    PyObject *inputs = ((NodeObject *)unit)->inputs;
    return PyTuple_Check(inputs) ? inputs : empty;
}

/* What is known of a unit: 1, 0, or -1 if nothing is; -2 is an error. */
static int
known_constant(const LevelsObject *self, PyObject *unit)
{
    PyObject *found = PyDict_GetItemWithError(self->constant, ((NodeObject *)unit)->id);
    return found != NULL ? found == Py_True : PyErr_Occurred() ? -2 : -1;
}

/* Look at what a unit reads: 0 if some of that is no constant, 1 if all is, -1 and the first that is not known. */
static int
look_at_sources(const LevelsObject *self, PyObject *unit, PyObject **missing)
{
    PyObject *inputs = inputs_of(unit);
    int all = 1;
    *missing = NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *source = unit_making((NodeObject *)PyTuple_GET_ITEM(inputs, i));
        int known = known_constant(self, source);
        if (known == 0 || known == -2) {
            return known;
        }
        if (known == -1 && *missing == NULL) {
            *missing = source;
            all = -1;
        }
    }
    return all;
}

/* Whether a unit is made of constants alone; -1 is an error. */
static int
is_constant(LevelsObject *self, PyObject *unit)
{
    int known = known_constant(self, unit);
    if (known != -1) {
        return known == -2 ? -1 : known;
    }
    PyObject *stack = PyList_New(0);
    int failed = stack == NULL || PyList_Append(stack, unit) < 0;
    while (!failed && PyList_GET_SIZE(stack)) {
        PyObject *node = PyList_GET_ITEM(stack, PyList_GET_SIZE(stack) - 1), *missing;
        int found = look_at_sources(self, node, &missing);
        if (found == -1) {
            failed = PyList_Append(stack, missing) < 0;
            continue;
        }
        if (found == 1 && PyTuple_GET_SIZE(inputs_of(node)) == 0) {
            PyObject *answer = PyObject_CallOneArg(self->is_literal, node);
            found = answer == NULL ? -2 : PyObject_IsTrue(answer);
            Py_XDECREF(answer);
        }
        failed = found < 0 || PyDict_SetItem(self->constant, ((NodeObject *)node)->id, found ? Py_True : Py_False) < 0 ||
                 PyList_SetSlice(stack, PyList_GET_SIZE(stack) - 1, PyList_GET_SIZE(stack), NULL) < 0;
    }
    Py_XDECREF(stack);
    return failed ? -1 : known_constant(self, unit);
}

/* Whether anything that was asked for is made of more than constants; -1 is an error. */
static int
has_variables(LevelsObject *self)
{
    PyObject *key, *target;
    Py_ssize_t at = 0;
    if (self->has_variables < 0) {
        PyObject *targets = PyDict_Copy(self->targets);
        int found = targets == NULL ? -1 : 0;
        while (found == 0 && PyDict_Next(targets, &at, &key, &target)) {
            int constant = is_constant(self, unit_making((NodeObject *)target));
            found = constant < 0 ? -1 : !constant;
        }
        Py_XDECREF(targets);
        self->has_variables = (char)found;
    }
    return self->has_variables;
}

/* The level of a unit; -1 is an error. What is made of constants alone has none: it runs where it is read. */
static long long
level_of(LevelsObject *self, PyObject *unit)
{
    PyObject *id = ((NodeObject *)unit)->id, *known = PyDict_GetItemWithError(self->levels, id);
    if (known != NULL || PyErr_Occurred()) {
        return known == NULL ? -1 : PyLong_AsLongLong(known);
    }
    int is_apart = has_variables(self);
    is_apart = is_apart > 0 ? is_constant(self, unit) : is_apart;
    long long number = number_of((NodeObject *)unit), level = ANY_LEVEL;
    if (is_apart == 0) {
        Py_ssize_t low = 0, high = self->count;
        while (low < high) {
            Py_ssize_t middle = (low + high) / 2;
            if (number < self->begun[middle]) {
                high = middle;
            }
            else {
                low = middle + 1;
            }
        }
        level = low;
    }
    PyObject *object = is_apart < 0 ? NULL : PyLong_FromLongLong(level);
    int failed = object == NULL || PyDict_SetItem(self->levels, id, object) < 0;
    Py_XDECREF(object);
    return failed ? -1 : level;
}

PyDoc_STRVAR(levels_of_doc, "of(unit, /)\n--\n\nReturn the level of a unit; `ANY_LEVEL` if it is made of constants alone.");

static PyObject *
levels_of(LevelsObject *self, PyObject *unit)
{
    if (!is_node(unit)) {
        return PyErr_Format(PyExc_TypeError, "expected a node, got %R", unit);
    }
    long long level = level_of(self, unit);
    return level < 0 ? NULL : PyLong_FromLongLong(level);
}

PyDoc_STRVAR(levels_divide_doc, "divide(begun, /)\n--\n\nLet levels begin at other ids.");

static PyObject *
levels_divide(LevelsObject *self, PyObject *given)
{
    PyObject *begun = PySequence_Fast(given, "ids are in a sequence");
    Py_ssize_t count = begun == NULL ? 0 : PySequence_Fast_GET_SIZE(begun);
    long long *ids = begun == NULL ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(long long));
    if (ids == NULL) {
        Py_XDECREF(begun);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ids[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(begun, i));
    }
    Py_DECREF(begun);
    PyMem_Free(self->begun);
    self->begun = ids;
    self->count = count;
    PyDict_Clear(self->levels);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* Whether somebody has a value in a file, of whom Python knows. */
static int
is_on_disk(PyObject *find, PyObject *operand)
{
    if (find == Py_None) {
        return 0;
    }
    PyObject *found = PyObject_CallOneArg(find, operand);
    int there = found == NULL ? -1 : found != Py_None;
    Py_XDECREF(found);
    return there;
}

/* Push what makes the values that a unit reads and that are not there. */
static int
push_missing(PyObject *stack, PyObject *unit, PyObject *values, PyObject *on_disk)
{
    PyObject *inputs = inputs_of(unit);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        PyObject *operand = PyTuple_GET_ITEM(inputs, i);
        PyObject *value = value_in(values, (NodeObject *)operand);
        if (value != NULL) {
            Py_DECREF(value);
            continue;
        }
        int there = PyErr_Occurred() ? -1 : is_on_disk(on_disk, operand);
        if (there < 0 || (!there && PyList_Append(stack, unit_making((NodeObject *)operand)) < 0)) {
            return -1;
        }
    }
    return 0;
}

/* Take the last of a list. */
static PyObject *
pop(PyObject *list)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    PyObject *last = Py_NewRef(PyList_GET_ITEM(list, count - 1));
    if (PyList_SetSlice(list, count - 1, count, NULL) < 0) {
        Py_CLEAR(last);
    }
    return last;
}

PyDoc_STRVAR(levels_collect_doc,
"collect(stack, level, found, known, most, values, on_disk, /)\n--\n\n"
"Find units that are not there, down to what is cached, known or of a lower level; too many are given up.\n\n"
"Those on the ``stack`` and all that they are made from are entered into ``found`` by id. At most so many are, if\n"
"``most`` is not below 0; the answer is whether that was enough. ``on_disk(node)`` tells whether a value is in a file,\n"
"if it is not None.");

static PyObject *
levels_collect(LevelsObject *self, PyObject *args)
{
    PyObject *stack, *found, *known, *values, *on_disk;
    long long level;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "O!LO!OnO!O:collect", &PyList_Type, &stack, &level, &PyDict_Type, &found, &known, &most,
                          &ValuesType, &values, &on_disk)) {
        return NULL;
    }
    int goes_on = 1;
    while (goes_on > 0 && PyList_GET_SIZE(stack)) {
        PyObject *unit = pop(stack);
        PyObject *id = unit == NULL || !is_node(unit) ? NULL : ((NodeObject *)unit)->id;
        int seen = id == NULL ? -1 : PyDict_Contains(found, id);
        seen = seen == 0 ? PySequence_Contains(known, id) : seen;
        long long own = seen == 0 ? level_of(self, unit) : -1;
        if (seen < 0 || (seen == 0 && own < 0)) {
            goes_on = -1;
        }
        else if (seen == 0 && own >= level) {
            goes_on = PyDict_GET_SIZE(found) == most                                         ? 0
                      : PyDict_SetItem(found, id, unit) < 0 ||
                              push_missing(stack, unit, values, on_disk) < 0 ? -1
                                                                                             : 1;
        }
        Py_XDECREF(unit);
    }
    return goes_on < 0 ? NULL : PyBool_FromLong(goes_on);
}

/* Push what has to run for what a unit reads, but for numbers that are there: numbers are never evicted. They may have
   been computed with something else entirely, by another program that has the number in common. */
static int
push_sources(PyObject *stack, PyObject *unit)
{
    PyObject *inputs = inputs_of(unit);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(inputs, i);
        int is_number = PyTuple_Check(operand->shape) && PyTuple_GET_SIZE(operand->shape) == 0;
        if ((operand->value == Py_None || !is_number) && PyList_Append(stack, unit_making(operand)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Enter a unit with those of its level. */
static int
enter_level(LevelsObject *self, PyObject *levels, PyObject *unit)
{
    long long level = level_of(self, unit);
    PyObject *number = level < 0 ? NULL : PyLong_FromLongLong(level);
    PyObject *of_level = number == NULL ? NULL : PyDict_GetItemWithError(levels, number);
    Py_XINCREF(of_level);
    if (number != NULL && of_level == NULL && !PyErr_Occurred()) {
        of_level = PyDict_New();
        if (of_level != NULL && PyDict_SetItem(levels, number, of_level) < 0) {
            Py_CLEAR(of_level);
        }
    }
    int failed = of_level == NULL || PyDict_SetItem(of_level, ((NodeObject *)unit)->id, unit) < 0;
    Py_XDECREF(number);
    Py_XDECREF(of_level);
    return failed ? -1 : 0;
}

/* Begin with what units read: note them as seen, and push what makes it, but for what is made of constants. */
static int
begin_below(LevelsObject *self, PyObject *order, PyObject *seen, PyObject *stack)
{
    PyObject *sources = PyList_New(0);
    int failed = sources == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(order); i++) {
        PyObject *unit = PyList_GET_ITEM(order, i);
        failed = !is_node(unit) || PySet_Add(seen, ((NodeObject *)unit)->id) < 0 || push_sources(sources, unit) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(sources); i++) {
        long long level = level_of(self, PyList_GET_ITEM(sources, i));
        failed = level < 0 || (level != ANY_LEVEL && PyList_Append(stack, PyList_GET_ITEM(sources, i)) < 0);
    }
    Py_XDECREF(sources);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(levels_below_doc,
"below(order, /)\n--\n\nReturn the units that some units are made of and that are not among them, by id, by level.");

static PyObject *
levels_below(LevelsObject *self, PyObject *order)
{
    PyObject *found = PyList_Check(order) ? PyDict_New() : PyErr_Format(PyExc_TypeError, "units are in a list");
    PyObject *seen = PySet_New(NULL), *stack = PyList_New(0);
    int failed = found == NULL || seen == NULL || stack == NULL || begin_below(self, order, seen, stack) < 0;
    while (!failed && PyList_GET_SIZE(stack)) {
        PyObject *unit = pop(stack);
        PyObject *id = unit == NULL ? NULL : ((NodeObject *)unit)->id;
        int is_seen = id == NULL ? -1 : PyTuple_GET_SIZE(inputs_of(unit)) == 0 ? 1 : PySet_Contains(seen, id);
        failed = is_seen < 0 || (!is_seen && (PySet_Add(seen, id) < 0 || enter_level(self, found, unit) < 0 ||
                                              push_sources(stack, unit) < 0));
        Py_XDECREF(unit);
    }
    Py_XDECREF(seen);
    Py_XDECREF(stack);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

static PyObject *
levels_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *targets, *is_literal, *begun;
    if (!PyArg_ParseTuple(args, "O!OO:LevelTable", &PyDict_Type, &targets, &is_literal, &begun)) {
        return NULL;
    }
    LevelsObject *self = (LevelsObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->targets = Py_NewRef(targets);
    self->is_literal = Py_NewRef(is_literal);
    self->has_variables = -1;
    self->levels = PyDict_New();
    self->constant = PyDict_New();
    PyObject *done = self->levels == NULL || self->constant == NULL ? NULL : levels_divide(self, begun);
    if (done == NULL) {
        Py_CLEAR(self);
    }
    Py_XDECREF(done);
    return (PyObject *)self;
}

static void
levels_dealloc(LevelsObject *self)
{
    Py_XDECREF(self->targets);
    Py_XDECREF(self->is_literal);
    Py_XDECREF(self->levels);
    Py_XDECREF(self->constant);
    PyMem_Free(self->begun);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef levels_methods[] = {
    {"of", (PyCFunction)levels_of, METH_O, levels_of_doc},
    {"divide", (PyCFunction)levels_divide, METH_O, levels_divide_doc},
    {"collect", (PyCFunction)levels_collect, METH_VARARGS, levels_collect_doc},
    {"below", (PyCFunction)levels_below, METH_O, levels_below_doc},
    {NULL},
};

PyTypeObject LevelsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.LevelTable",
    .tp_doc = "On which levels units are: those that begin at some ids, in order. ``targets`` is what was asked for.",
    .tp_basicsize = sizeof(LevelsObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = levels_new,
    .tp_dealloc = (destructor)levels_dealloc,
    .tp_methods = levels_methods,
};
