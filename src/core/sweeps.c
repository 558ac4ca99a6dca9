/* Derivatives that were recorded before: what a sweep made of some nodes, made again of others that look the same.

   A loop that takes a gradient in each step sweeps over the same few nodes each time, and the rules of their ops record
   the same few nodes. A record compares the nodes behind some outputs with a table, as a matcher does, and if all of them
   are alike it records what the sweep recorded, through the intern table, in the same order.

   The nodes of a record have slots: first those that are compared, then those that are recorded. */

#include "core.h"
#include <limits.h>

typedef struct {
    Py_ssize_t slot, count;
    PyObject *op, *type, *params, *shape, *dtype;
    Py_ssize_t *source; /* the slot of each input; ~slot where it is met for the first time */
} Compared;

typedef struct {
    Py_ssize_t slot;
    int is_variable, is_seed;
    PyObject *op, *type, *shape, *dtype;
    PyObject *exact; /* the very node that it has to be, or NULL */
} Boundary;

typedef struct {
    Py_ssize_t count, origin; /* the slot of the node whose place in the user's program it inherits */
    int begins_level;
    Py_ssize_t part; /* which output of a loop it is, whose value it takes if there is one; -1 for other nodes */
    PyObject *op, *type, *params, *shape, *dtype, *key;
    Py_ssize_t *source;
} Recorded;

typedef struct {
    PyObject_HEAD
    Py_ssize_t slots, given, compareds, boundaries, recordeds, results;
    Compared *compared;
    Boundary *boundary;
    Recorded *recorded;
    Py_ssize_t *target; /* the slots of outputs and variables, which are given */
    Py_ssize_t *result; /* -1: there is none */
    Py_ssize_t outputs;
    PyObject *constants; /* nodes that the recorded ones read and that are no part of the table: constants */
    PyObject *alias_op;
} SweepObject;

/* --- tables --- */

static int
check_slot(Py_ssize_t slot, Py_ssize_t end)
{
    if (slot < 0 || slot >= end) {
        PyErr_SetString(PyExc_ValueError, "there is no such slot");
        return -1;
    }
    return 0;
}

static int
read_compared(Compared *entry, PyObject *tuple, Py_ssize_t slots)
{
    PyObject *op, *type, *params, *shape, *dtype, *sources;
    if (!PyArg_ParseTuple(tuple, "nOOOOOO", &entry->slot, &op, &type, &params, &shape, &dtype, &sources) ||
        check_slot(entry->slot, slots) < 0) {
        return -1;
    }
    entry->source = read_slots(sources, -slots, slots, &entry->count);
    if (entry->source == NULL) {
        return -1;
    }
    entry->op = Py_NewRef(op);
    entry->type = Py_NewRef(type);
    entry->params = Py_NewRef(params);
    entry->shape = Py_NewRef(shape);
    entry->dtype = Py_NewRef(dtype);
    return 0;
}

static int
read_boundary(Boundary *entry, PyObject *tuple, Py_ssize_t slots)
{
    PyObject *op, *type, *shape, *dtype, *exact;
    if (!PyArg_ParseTuple(tuple, "nOOOOppO", &entry->slot, &op, &type, &shape, &dtype, &entry->is_variable,
                          &entry->is_seed, &exact) ||
        check_slot(entry->slot, slots) < 0) {
        return -1;
    }
    entry->op = Py_NewRef(op);
    entry->type = Py_NewRef(type);
    entry->exact = exact == Py_None ? NULL : Py_NewRef(exact);
    entry->shape = Py_NewRef(shape);
    entry->dtype = Py_NewRef(dtype);
    return 0;
}

/* Its inputs have slots below its own, or are constants: ~position. */
static int
read_recorded(Recorded *entry, PyObject *tuple, Py_ssize_t slot, Py_ssize_t slots, Py_ssize_t constants)
{
    PyObject *op, *type, *params, *shape, *dtype, *key, *sources;
    if (!PyArg_ParseTuple(tuple, "OOOOOOOnpn", &op, &type, &params, &shape, &dtype, &key, &sources, &entry->origin,
                          &entry->begins_level, &entry->part) ||
        check_slot(entry->origin, slots) < 0) {
        return -1;
    }
    if (!PyObject_TypeCheck(op, &OpType)) {
        PyErr_Format(PyExc_TypeError, "expected an op, got %R", op);
        return -1;
    }
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &NodeType)) {
        PyErr_Format(PyExc_TypeError, "expected a class of nodes, got %R", type);
        return -1;
    }
    entry->source = read_slots(sources, -constants, slot, &entry->count);
    if (entry->source == NULL) {
        return -1;
    }
    entry->op = Py_NewRef(op);
    entry->type = Py_NewRef(type);
    entry->params = Py_NewRef(params);
    entry->shape = Py_NewRef(shape);
    entry->dtype = Py_NewRef(dtype);
    entry->key = Py_NewRef(key);
    return 0;
}

/* --- comparing --- */

static inline int
is_projection(const NodeObject *node)
{
    return (PyObject *)Py_TYPE(node) == projection_class;
}

/* The id of a node, of an output that of its call: an output that was made again is younger than what is made from it. */
static long long
age_of(const NodeObject *node)
{
    /* While it is being folded, another thread may see that it keeps its inputs still. */
    int has_call = is_projection(node) && is_call(node->inputs);
    return number_of(has_call ? (NodeObject *)node->inputs : node);
}

static int
compare_node(const Compared *entry, NodeObject **node)
{
    NodeObject *here = node[entry->slot];
    if (here == NULL || here->op != entry->op || (PyObject *)Py_TYPE(here) != entry->type) {
        return 0;
    }
    PyObject *inputs = here->inputs;
    if (!PyTuple_Check(inputs) || PyTuple_GET_SIZE(inputs) != entry->count) {
        return 0;
    }
    /* Of several outputs there is a tuple of dtypes. */
    int same = here->dtype == entry->dtype;
    if (!same && PyTuple_Check(entry->dtype)) {
        same = agree(here->dtype, entry->dtype);
    }
    if (same == 1) {
        same = agree(here->params, entry->params);
    }
    if (same == 1) {
        same = agree(here->shape, entry->shape);
    }
    for (Py_ssize_t i = 0; same == 1 && i < entry->count; i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(inputs, i);
        Py_ssize_t slot = entry->source[i];
        if (slot < 0) {
            node[~slot] = operand;
        }
        else {
            same = node[slot] == operand;
        }
    }
    return same;
}

/* What the table ends with: variables, and what cannot depend on one, for it has no inputs or is older than all that does. */
static int
compare_boundary(const Boundary *entry, const NodeObject *node, long long first)
{
    if (node == NULL || node->op != entry->op || (PyObject *)Py_TYPE(node) != entry->type || node->dtype != entry->dtype ||
        is_seed((NodeObject *)node) != entry->is_seed ||
        (entry->exact != NULL && (PyObject *)node != entry->exact)) {
        return 0;
    }
    if (!entry->is_variable && !(PyTuple_Check(node->inputs) && !PyTuple_GET_SIZE(node->inputs)) &&
        age_of(node) >= first) {
        return 0;
    }
    return agree(node->shape, entry->shape);
}

static int
by_address(const void *one, const void *other)
{
    uintptr_t left = (uintptr_t)*(void *const *)one, right = (uintptr_t)*(void *const *)other;
    return (left > right) - (left < right);
}

/* Whether nodes with slots of their own are different ones: x·y says nothing of the derivative of x·x. No derivative goes
   to a constant, so what is equal among these is chance. Returns -1 with an exception. */
static int
are_distinct(const SweepObject *self, PyObject **node)
{
    void *few[64], **met = few;
    Py_ssize_t count = 0, most = self->compareds + self->boundaries;
    if (most > 64 && (met = PyMem_Malloc(most * sizeof(void *))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < self->compareds; i++) {
        met[count++] = node[self->compared[i].slot];
    }
    for (Py_ssize_t i = 0; i < self->boundaries; i++) {
        if (self->boundary[i].op != constant_op) {
            met[count++] = node[self->boundary[i].slot];
        }
    }
    qsort(met, count, sizeof(void *), by_address);
    int is_new = 1;
    for (Py_ssize_t i = 1; is_new && i < count; i++) {
        is_new = met[i] != met[i - 1];
    }
    if (met != few) {
        PyMem_Free(met);
    }
    return is_new;
}

static inline int
is_end(const SweepObject *self, const NodeObject *node)
{
    return is_projection(node) || node->op == self->alias_op || !PyTuple_Check(node->inputs) ||
           !PyTuple_GET_SIZE(node->inputs);
}

/* The youngest input of a node that is no constant and older than another one; NULL if there is none. */
static NodeObject *
next_input(const NodeObject *node, long long before)
{
    NodeObject *found = NULL;
    long long youngest = -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node->inputs); i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(node->inputs, i);
        long long number = number_of(operand);
        if (operand->op != constant_op && number > youngest && number < before) {
            found = operand;
            youngest = number;
        }
    }
    return found;
}

/* A way is followed for no more nodes than this, and no more turns are taken to find it. */
enum { LONGEST_WAY = 1 << 14, MOST_TURNS = 1 << 15, SHORT_WAY = 256 };

typedef struct {
    NodeObject *node;
    long long tried; /* the input that was followed last */
} Turn;

/* Follow a node back to what it is made from: to a leaf, an output of a call, an identity of its own, or for so many
   nodes at most. Of several inputs the youngest comes first, and a way that ends with constants tells nothing. Returns
   the last node; NULL if there is none, or if it takes long to find. */
static NodeObject *
way_back(const SweepObject *self, NodeObject *node, Py_ssize_t most)
{
    Turn few[SHORT_WAY], *way = few, *larger = NULL;
    Py_ssize_t length = 0, room = SHORT_WAY;
    NodeObject *end = NULL;
    way[0] = (Turn){node, LLONG_MAX};
    for (int turn = 0; turn < MOST_TURNS && length >= 0; turn++) {
        if (length >= most) {
            end = way[length].node;
            break;
        }
        NodeObject *next = next_input(way[length].node, way[length].tried);
        if (next == NULL) {
            length--;
            continue;
        }
        if (is_end(self, next)) {
            end = next;
            break;
        }
        way[length].tried = number_of(next);
        if (++length == room) {
            room = room == SHORT_WAY && most < LONGEST_WAY ? most + 1 : 0;
            larger = room ? PyMem_Malloc(room * sizeof(Turn)) : NULL;
            if (larger == NULL) {
                break;
            }
            memcpy(larger, few, sizeof(few));
            way = larger;
        }
        way[length] = (Turn){next, LLONG_MAX};
    }
    PyMem_Free(larger);
    return end;
}

/* Find the id before which nothing depends on a variable (see `unspool._autodiff.sweeps.variables_inside`); -1 if it is not known. */
static long long
first_dependent(const SweepObject *self, NodeObject **node, Py_ssize_t most, long long newest)
{
    long long first = -1;
    for (Py_ssize_t i = self->outputs; i < self->given; i++) {
        NodeObject *variable = node[self->target[i]];
        long long age = age_of(variable);
        if (!is_end(self, variable)) {
            NodeObject *end = way_back(self, variable, most);
            if (end == NULL) {
                return -1;
            }
            long long other = age_of(end);
            if (other <= newest && other < age) {
                age = other;
            }
        }
        if (first < 0 || age < first) {
            first = age;
        }
    }
    return first;
}

/* --- recording --- */

static PyObject *
record_entry(const Recorded *entry, PyObject **node, PyObject *constants)
{
    PyObject *inputs = PyTuple_New(entry->count);
    if (inputs == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < entry->count; i++) {
        Py_ssize_t slot = entry->source[i];
        PyObject *operand = slot < 0 ? PyTuple_GET_ITEM(constants, ~slot) : node[slot];
        if (operand == NULL) {
            Py_DECREF(inputs);
            PyErr_SetString(PyExc_ValueError, "a node is read that is no part of the table");
            return NULL;
        }
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(operand));
    }
    PyObject *const *operands = &PyTuple_GET_ITEM(inputs, 0);
    OpObject *op = (OpObject *)entry->op;
    Py_uhash_t hash;
    PyObject *found = NULL;
    if (hash_recipe(entry->op, operands, entry->count, entry->key, &hash) == 0) {
        found = (PyObject *)table_find(entry->op, operands, entry->count, entry->key, hash);
        if (found == NULL && !PyErr_Occurred() && may_simplify(op, operands, entry->count) && op->canonical != Py_None &&
            op->canonical != NULL) {
            PyObject *names = PyDict_New();
            if (names != NULL && PyDict_Update(names, entry->params) == 0) {
                found = PyObject_Call(op->canonical, inputs, names);
                if (found == Py_None) {
                    Py_CLEAR(found);
                }
            }
            Py_XDECREF(names);
        }
        if (found == NULL && !PyErr_Occurred()) {
            NodeObject *from = (NodeObject *)node[entry->origin];
            if (from == NULL) {
                PyErr_SetString(PyExc_ValueError, "a node is read that is no part of the table");
            }
            NodeObject *made = from == NULL ? NULL
                                            : make_node((PyTypeObject *)entry->type, entry->op, inputs, entry->params,
                                                        entry->shape, entry->dtype, entry->key, from->code,
                                                        from->lasti, NULL);
            found = made == NULL ? NULL : enter_first(made, hash);
        }
    }
    Py_DECREF(inputs);
    return found;
}

/* Give an output of a loop that has run its value. */
static void
take_value(const Recorded *entry, PyObject **node, NodeObject *made)
{
    PyObject *values = entry->count == 1 && entry->source[0] >= 0 ? ((NodeObject *)node[entry->source[0]])->value : NULL;
    if (made->value == Py_None && values != NULL && PyTuple_Check(values) && entry->part < PyTuple_GET_SIZE(values)) {
        Py_SETREF(made->value, Py_NewRef(PyTuple_GET_ITEM(values, entry->part)));
    }
}

static PyObject *
record_all(const SweepObject *self, PyObject **node, PyObject *begin_level)
{
    Py_ssize_t made = self->slots;
    int is_done = 1;
    for (Py_ssize_t i = 0; is_done && i < self->recordeds; i++) {
        if (self->recorded[i].begins_level) {
            PyObject *nothing = PyObject_CallNoArgs(begin_level);
            is_done = nothing != NULL;
            Py_XDECREF(nothing);
        }
        PyObject *found = is_done ? record_entry(&self->recorded[i], node, self->constants) : NULL;
        is_done = found != NULL;
        if (is_done) {
            node[made++] = found;
            if (self->recorded[i].part >= 0) {
                take_value(&self->recorded[i], node, (NodeObject *)found);
            }
        }
    }
    PyObject *results = is_done ? PyList_New(self->results) : NULL;
    for (Py_ssize_t i = 0; results != NULL && i < self->results; i++) {
        PyObject *result = self->result[i] < 0 || node[self->result[i]] == NULL ? Py_None : node[self->result[i]];
        PyList_SET_ITEM(results, i, Py_NewRef(result));
    }
    while (made > self->slots) {
        Py_DECREF(node[--made]);
    }
    return results;
}

PyDoc_STRVAR(repeat_doc,
"repeat(nodes, most, newest, begin_level, /)\n--\n\n"
"Return what the sweep would find for nodes, outputs and then variables, or None if they do not look like those it was\n"
"recorded for.\n\n"
"No call has more than ``most`` instructions or is younger than ``newest``. ``begin_level`` is called where a level begins.");

static PyObject *
repeat(SweepObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("repeat", nargs, 4) < 0) {
        return NULL;
    }
    Py_ssize_t most = PyLong_AsSsize_t(args[1]);
    long long newest = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != self->given) {
        return PyErr_Format(PyExc_TypeError, "expected a tuple of %zd nodes, got %R", self->given, args[0]);
    }
    PyObject *const *given = &PyTuple_GET_ITEM(args[0], 0);
    if (check_nodes(NULL, given, self->given) < 0) {
        return NULL;
    }
    PyObject **node = PyMem_Calloc(self->slots + self->recordeds + 1, sizeof(PyObject *));
    if (node == NULL) {
        return PyErr_NoMemory();
    }
    int is_match = 1;
    for (Py_ssize_t i = 0; i < self->given; i++) {
        /* What was one node has to be one again. */
        is_match &= node[self->target[i]] == NULL || node[self->target[i]] == given[i];
        node[self->target[i]] = given[i];
    }
    for (Py_ssize_t i = 0; i < self->compareds && is_match == 1; i++) {
        is_match = compare_node(&self->compared[i], (NodeObject **)node);
    }
    long long first = is_match == 1 ? first_dependent(self, (NodeObject **)node, most, newest) : -1;
    is_match = is_match == 1 ? first >= 0 : is_match;
    for (Py_ssize_t i = 0; i < self->boundaries && is_match == 1; i++) {
        const Boundary *entry = &self->boundary[i];
        is_match = compare_boundary(entry, (NodeObject *)node[entry->slot], first);
    }
    is_match = is_match == 1 ? are_distinct(self, node) : is_match;
    PyObject *results = NULL;
    if (is_match == 1) {
        /* Recording may run a collection, or code of the user's: what was compared must not go meanwhile. */
        for (Py_ssize_t i = 0; i < self->slots; i++) {
            Py_XINCREF(node[i]);
        }
        results = record_all(self, node, args[3]);
        for (Py_ssize_t i = 0; i < self->slots; i++) {
            Py_XDECREF(node[i]);
        }
    }
    else if (is_match == 0) {
        results = Py_NewRef(Py_None);
    }
    PyMem_Free(node);
    return results;
}

/* --- the type --- */

static int
sweep_traverse(SweepObject *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self->compared != NULL && i < self->compareds; i++) {
        Py_VISIT(self->compared[i].op);
        Py_VISIT(self->compared[i].type);
        Py_VISIT(self->compared[i].params);
    }
    for (Py_ssize_t i = 0; self->recorded != NULL && i < self->recordeds; i++) {
        Py_VISIT(self->recorded[i].op);
        Py_VISIT(self->recorded[i].type);
        Py_VISIT(self->recorded[i].params);
        Py_VISIT(self->recorded[i].key);
    }
    Py_VISIT(self->constants);
    return 0;
}

static void
sweep_dealloc(SweepObject *self)
{
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; self->compared != NULL && i < self->compareds; i++) {
        Compared *entry = &self->compared[i];
        Py_XDECREF(entry->op);
        Py_XDECREF(entry->type);
        Py_XDECREF(entry->params);
        Py_XDECREF(entry->shape);
        Py_XDECREF(entry->dtype);
        PyMem_Free(entry->source);
    }
    for (Py_ssize_t i = 0; self->boundary != NULL && i < self->boundaries; i++) {
        Boundary *entry = &self->boundary[i];
        Py_XDECREF(entry->op);
        Py_XDECREF(entry->type);
        Py_XDECREF(entry->exact);
        Py_XDECREF(entry->shape);
        Py_XDECREF(entry->dtype);
    }
    for (Py_ssize_t i = 0; self->recorded != NULL && i < self->recordeds; i++) {
        Recorded *entry = &self->recorded[i];
        Py_XDECREF(entry->op);
        Py_XDECREF(entry->type);
        Py_XDECREF(entry->params);
        Py_XDECREF(entry->shape);
        Py_XDECREF(entry->dtype);
        Py_XDECREF(entry->key);
        PyMem_Free(entry->source);
    }
    PyMem_Free(self->compared);
    PyMem_Free(self->boundary);
    PyMem_Free(self->recorded);
    PyMem_Free(self->target);
    PyMem_Free(self->result);
    Py_XDECREF(self->constants);
    Py_XDECREF(self->alias_op);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef record_methods[] = {
    {"repeat", FAST(repeat), METH_FASTCALL, repeat_doc},
    {NULL},
};

PyTypeObject SweepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.SweepRecord",
    .tp_doc = "What a sweep recorded, to be recorded again for nodes that look alike; see `unspool._autodiff.sweeps.repeated_sweeps`.",
    .tp_basicsize = sizeof(SweepObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)sweep_dealloc,
    .tp_traverse = (traverseproc)sweep_traverse,
    .tp_methods = record_methods,
};

PyDoc_STRVAR(sweep_doc,
"sweep_record(slots, outputs, variables, compared, boundary, constants, recorded, results, alias, /)\n--\n\n"
"Return what a sweep recorded, as a table.\n\n"
"Nodes that are compared have slots up to ``slots``, recorded ones the slots after these, in order. Entries are\n"
"- compared: (slot, op, class, parameters, shape, dtype, slots of inputs), where ~slot says that an input is met first;\n"
"- boundary: (slot, op, class, shape, dtype, whether it is a variable, whether it is a seed, the very node it has to be\n"
"  or None);\n"
"- recorded: (op, class, parameters, shape, dtype, key, slots of inputs, slot of the node whose origin it has, whether a\n"
"  level begins with it, which output of a loop it is or -1), where ~position is one of the constants;\n"
"- results: a slot for each variable, -1 for none.");

static PyObject *
sweep_record(PyObject *module, PyObject *args)
{
    PyObject *outputs, *variables, *compared, *boundary, *constants, *recorded, *results, *alias;
    Py_ssize_t slots, count;
    if (!PyArg_ParseTuple(args, "nO!O!O!O!O!O!OO", &slots, &PyTuple_Type, &outputs, &PyTuple_Type, &variables,
                          &PyList_Type, &compared, &PyList_Type, &boundary, &PyTuple_Type, &constants, &PyList_Type,
                          &recorded, &results, &alias)) {
        return NULL;
    }
    if (slots < 0 || check_nodes(NULL, &PyTuple_GET_ITEM(constants, 0), PyTuple_GET_SIZE(constants)) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected slots, got %zd", slots);
    }
    SweepObject *self = (SweepObject *)SweepType.tp_alloc(&SweepType, 0);
    if (self == NULL) {
        return NULL;
    }
    self->slots = slots;
    self->outputs = PyTuple_GET_SIZE(outputs);
    self->constants = Py_NewRef(constants);
    self->alias_op = Py_NewRef(alias);
    PyObject *targets = PySequence_Concat(outputs, variables);
    self->target = targets == NULL ? NULL : read_slots(targets, 0, slots, &self->given);
    Py_XDECREF(targets);
    Py_ssize_t all = slots + PyList_GET_SIZE(recorded);
    self->result = self->target == NULL ? NULL : read_slots(results, -1, all, &self->results);
    self->compared = PyMem_Calloc(PyList_GET_SIZE(compared) + 1, sizeof(Compared));
    self->boundary = PyMem_Calloc(PyList_GET_SIZE(boundary) + 1, sizeof(Boundary));
    self->recorded = PyMem_Calloc(PyList_GET_SIZE(recorded) + 1, sizeof(Recorded));
    int is_read = self->result != NULL && self->compared != NULL && self->boundary != NULL && self->recorded != NULL;
    for (Py_ssize_t i = 0; is_read && i < PyList_GET_SIZE(compared); i++) {
        self->compareds = i + 1;
        is_read = read_compared(&self->compared[i], PyList_GET_ITEM(compared, i), slots) == 0;
    }
    for (Py_ssize_t i = 0; is_read && i < PyList_GET_SIZE(boundary); i++) {
        self->boundaries = i + 1;
        is_read = read_boundary(&self->boundary[i], PyList_GET_ITEM(boundary, i), slots) == 0;
    }
    count = PyTuple_GET_SIZE(constants);
    for (Py_ssize_t i = 0; is_read && i < PyList_GET_SIZE(recorded); i++) {
        self->recordeds = i + 1;
        is_read = read_recorded(&self->recorded[i], PyList_GET_ITEM(recorded, i), slots + i, slots, count) == 0;
    }
    if (!is_read) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

PyMethodDef sweep_methods[] = {
    {"sweep_record", sweep_record, METH_VARARGS, sweep_doc},
    {NULL},
};
