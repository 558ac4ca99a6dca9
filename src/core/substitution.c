/* Recording again, on other nodes, what was recorded on some (see `unspool._autodiff.sweeps.substitution`). */

#include "core.h"

/* --- what is younger than some nodes --- */

/* Nodes that were met, by their addresses: a table of which at most half is taken. */
typedef struct {
    NodeObject **slot;
    Py_ssize_t size, count; /* the size is a power of two */
} Met;

/* Where a node stands, or would. */
static NodeObject **
met_slot(const Met *met, const NodeObject *node)
{
    size_t at = ((size_t)node >> 4) * 0x9E3779B97F4A7C15ULL >> 20;
    while (met->slot[at & (met->size - 1)] != NULL && met->slot[at & (met->size - 1)] != node) {
        at++;
    }
    return &met->slot[at & (met->size - 1)];
}

static int
met_start(Met *met, Py_ssize_t size)
{
    *met = (Met){PyMem_Calloc(size, sizeof(NodeObject *)), size, 0};
    if (met->slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Add a node; returns whether it is new, -1 with an exception. */
static int
met_add(Met *met, NodeObject *node)
{
    NodeObject **slot = met_slot(met, node);
    if (*slot != NULL) {
        return 0;
    }
    *slot = node;
    if (++met->count * 2 <= met->size) {
        return 1;
    }
    Met larger;
    if (met_start(&larger, 4 * met->size) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < met->size; i++) {
        if (met->slot[i] != NULL) {
            *met_slot(&larger, met->slot[i]) = met->slot[i];
        }
    }
    larger.count = met->count;
    PyMem_Free(met->slot);
    *met = larger;
    return 1;
}

/* What a node is made from; an output is known by its call. */
static PyObject *const *
operands_of(const NodeObject *node, Py_ssize_t *count)
{
    if (PyTuple_Check(node->inputs)) {
        *count = PyTuple_GET_SIZE(node->inputs);
        return &PyTuple_GET_ITEM(node->inputs, 0);
    }
    *count = 1;
    return (PyObject *const *)&node->inputs;
}

static int
by_number(const void *one, const void *other)
{
    long long left = number_of(*(NodeObject *const *)one), right = number_of(*(NodeObject *const *)other);
    return (left > right) - (left < right);
}

typedef struct {
    long long first;
    PyObject *known;
    Met met;
    NodeObject **found, **waiting; /* borrowed: what is asked for holds them */
    Py_ssize_t length, waits, room;
    int in_id_order;
} Walk;

/* Let a node wait that has not been met. */
static int
wait_for(Walk *walk, NodeObject *node)
{
    int is_new = number_of(node) > walk->first ? met_add(&walk->met, node) : 0;
    if (is_new > 0) {
        int is_known = PyDict_Contains(walk->known, node->id);
        is_new = is_known < 0 ? -1 : !is_known;
    }
    if (is_new <= 0) {
        return is_new;
    }
    if (walk->length + walk->waits == walk->room) { /* what was found grows from below, what waits from above */
        Py_ssize_t room = 2 * walk->room;
        NodeObject **larger = PyMem_Malloc(room * sizeof(NodeObject *));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(larger, walk->found, walk->length * sizeof(NodeObject *));
        memcpy(larger + room - walk->waits, walk->waiting, walk->waits * sizeof(NodeObject *));
        PyMem_Free(walk->found);
        walk->found = larger;
        walk->waiting = larger + room - walk->waits;
        walk->room = room;
    }
    *--walk->waiting = node;
    walk->waits++;
    return 0;
}

static int
visit_next(Walk *walk)
{
    NodeObject *node = *walk->waiting++;
    walk->waits--;
    walk->found[walk->length++] = node;
    Py_ssize_t count;
    PyObject *const *operand = operands_of(node, &count);
    for (Py_ssize_t i = 0; i < count; i++) {
        walk->in_id_order &= number_of((NodeObject *)operand[i]) < number_of(node);
        if (wait_for(walk, (NodeObject *)operand[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(younger_doc,
"younger_than(first, nodes, known, in_order, /)\n--\n\n"
"Return what nodes are made from as far as it has an id above ``first``, in topological order, an output after its call.\n\n"
"What is in the dict ``known``, by id, is left out. ``in_order`` brings nodes into order that is not that of their ids.");

static PyObject *
younger_than(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("younger_than", nargs, 4) < 0) {
        return NULL;
    }
    Walk walk = {.first = PyLong_AsLongLong(args[0]), .known = args[2], .in_id_order = 1, .room = 64};
    if (walk.first == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (!PyList_Check(args[1]) || !PyDict_Check(args[2]) ||
        check_nodes(NULL, &PyList_GET_ITEM(args[1], 0), PyList_GET_SIZE(args[1])) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list of nodes and a dict");
    }
    walk.found = PyMem_Malloc(walk.room * sizeof(NodeObject *));
    if (walk.found == NULL || met_start(&walk.met, 128) < 0) {
        PyMem_Free(walk.found);
        return PyErr_NoMemory();
    }
    walk.waiting = walk.found + walk.room;
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(args[1]); i++) {
        failed = wait_for(&walk, (NodeObject *)PyList_GET_ITEM(args[1], i)) < 0;
    }
    while (!failed && walk.waits > 0) {
        failed = visit_next(&walk) < 0;
    }
    PyObject *order = NULL;
    if (!failed) {
        qsort(walk.found, walk.length, sizeof(NodeObject *), by_number);
        order = PyList_New(walk.length);
        for (Py_ssize_t i = 0; order != NULL && i < walk.length; i++) {
            PyList_SET_ITEM(order, i, Py_NewRef(walk.found[i]));
        }
    }
    PyMem_Free(walk.found);
    PyMem_Free(walk.met.slot);
    if (order != NULL && !walk.in_id_order) {
        Py_SETREF(order, PyObject_CallOneArg(args[3], order));
    }
    return order;
}

/* --- recording again --- */

/* What recording again goes by. */
typedef struct {
    PyObject *images;        /* of nodes, by id */
    PyObject *marks;         /* a list of the ids at which levels began */
    PyObject *cross;         /* called where one begins */
    PyObject *image_of;      /* what records a node that is no plain tensor */
    PyObject *origin, *token; /* where nodes count as made that Python code records; NULL before any was */
    Py_ssize_t crossed;
} Again;

/* Begin the levels that a node is above of. */
static int
cross_marks(Again *again, NodeObject *node)
{
    while (again->crossed < PyList_GET_SIZE(again->marks)) {
        int is_above = PyObject_RichCompareBool(PyList_GET_ITEM(again->marks, again->crossed), node->id, Py_LT);
        if (is_above <= 0) {
            return is_above;
        }
        again->crossed++;
        PyObject *nothing = PyObject_CallNoArgs(again->cross);
        if (nothing == NULL) {
            return -1;
        }
        Py_DECREF(nothing);
    }
    return 0;
}

/* Return what a node is made from with images in their places; None if there are none. */
static PyObject *
given_operands(const Again *again, const NodeObject *node)
{
    Py_ssize_t count;
    PyObject *const *operand = operands_of(node, &count);
    PyObject *given = PyTuple_New(count);
    int any = 0;
    for (Py_ssize_t i = 0; given != NULL && i < count; i++) {
        PyObject *image = PyDict_GetItemWithError(again->images, ((NodeObject *)operand[i])->id);
        if (image == NULL && PyErr_Occurred()) {
            Py_CLEAR(given);
            break;
        }
        any |= image != NULL;
        PyTuple_SET_ITEM(given, i, Py_NewRef(image != NULL ? image : operand[i]));
    }
    if (given != NULL && !any) {
        Py_SETREF(given, Py_NewRef(Py_None));
    }
    return given;
}

/* Let nodes that Python code records count as made where a node was. */
static int
stand_where(Again *again, const NodeObject *node)
{
    if (again->origin == NULL && (again->origin = make_origin()) == NULL) {
        return -1;
    }
    if (again->token == NULL && (again->token = PyContextVar_Set(origin_var, again->origin)) == NULL) {
        return -1;
    }
    place_origin(again->origin, node->code, node->lasti);
    return 0;
}

/* Return a node with other operands. */
static PyObject *
image_with(Again *again, NodeObject *node, PyObject *given)
{
    OpObject *op = (OpObject *)node->op;
    int is_plain = (PyObject *)Py_TYPE(node) == tensor_class && PyObject_TypeCheck(node->op, &OpType) &&
                   check_nodes(NULL, &PyTuple_GET_ITEM(given, 0), PyTuple_GET_SIZE(given)) == 0;
    if (PyErr_Occurred()) {
        return NULL;
    }
    int simplifies = is_plain && op->canonical != NULL && op->canonical != Py_None &&
                     may_simplify(op, &PyTuple_GET_ITEM(given, 0), PyTuple_GET_SIZE(given));
    if (is_plain && !simplifies) {
        own_inputs(given);
        return record_recipe(Py_TYPE(node), node->op, given, node->params, node->shape, node->dtype, node->key,
                             node->code, node->lasti);
    }
    return stand_where(again, node) < 0 ? NULL : PyObject_CallFunctionObjArgs(again->image_of, node, given, NULL);
}

/* Record a node again if it is made from something that has an image. Returns whether it was; -1 with an exception. */
static int
record_node(Again *again, NodeObject *node)
{
    PyObject *given = cross_marks(again, node) < 0 ? NULL : given_operands(again, node);
    if (given == NULL || given == Py_None) {
        Py_XDECREF(given);
        return given == NULL ? -1 : 0;
    }
    PyObject *image = image_with(again, node, given);
    int failed = image == NULL || PyDict_SetItem(again->images, node->id, image) < 0;
    Py_DECREF(given);
    Py_XDECREF(image);
    return failed ? -1 : 1;
}

PyDoc_STRVAR(record_again_doc,
"record_again(order, images, marks, cross, image_of, has_dropped, /)\n--\n\n"
"Record nodes, which are in topological order, with images in the places of what they are made from; their own are\n"
"entered into the dict ``images``, by id. Returns those that have a value, or had one if ``has_dropped``.\n\n"
"``marks`` are the ids at which levels began, in a list, and ``cross()`` is called before a node that is above the next\n"
"one. ``image_of(node, operands)`` records what is no plain tensor, or may have a simpler form.");

static PyObject *
record_again(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("record_again", nargs, 6) < 0) {
        return NULL;
    }
    int has_dropped = PyObject_IsTrue(args[5]);
    if (!PyList_Check(args[0]) || !PyDict_Check(args[1]) || !PyList_Check(args[2]) || has_dropped < 0 ||
        check_nodes(NULL, &PyList_GET_ITEM(args[0], 0), PyList_GET_SIZE(args[0])) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list of nodes, a dict and a list");
    }
    Again again = {.images = args[1], .marks = args[2], .cross = args[3], .image_of = args[4]};
    PyObject *evaluated = PyList_New(0);
    int failed = evaluated == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(args[0]); i++) {
        NodeObject *node = (NodeObject *)Py_NewRef(PyList_GET_ITEM(args[0], i));
        int was_recorded = record_node(&again, node);
        failed = was_recorded < 0;
        if (was_recorded > 0 && (node->value != Py_None || (has_dropped && node->piece != Py_None))) {
            failed = PyList_Append(evaluated, (PyObject *)node) < 0;
        }
        Py_DECREF(node);
    }
    if (again.token != NULL) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        failed |= PyContextVar_Reset(origin_var, again.token) < 0;
        if (type != NULL) {
            PyErr_Restore(type, error, traceback);
        }
        Py_DECREF(again.token);
    }
    Py_XDECREF(again.origin);
    if (failed) {
        Py_CLEAR(evaluated);
    }
    return evaluated;
}

PyMethodDef substitution_methods[] = {
    {"record_again", FAST(record_again), METH_FASTCALL, record_again_doc},
    {"younger_than", FAST(younger_than), METH_FASTCALL, younger_doc},
    {NULL},
};
