/* Recognising pieces: does what stands behind some nodes look like what stood there before?

   A matcher walks back from its targets and compares each node with a table. It borrows all nodes on its way: who it
   starts from owns them. So a node that nothing outside refers to has as many references as there are uses of it. */

#include "evaluation.h"

/* What the references to a node have to be, beside those from the nodes that read it. */
enum { ANY_NUMBER, NONE_OUTSIDE, SOME_OUTSIDE, NEVER };

/* --- tables --- */

/* Read a tuple of numbers from `least` on, below `end`. The caller frees it. */
Py_ssize_t *
read_slots(PyObject *tuple, Py_ssize_t least, Py_ssize_t end, Py_ssize_t *count)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "slots come in tuples");
        return NULL;
    }
    *count = PyTuple_GET_SIZE(tuple);
    Py_ssize_t *found = PyMem_Calloc(*count + 1, sizeof(Py_ssize_t));
    for (Py_ssize_t i = 0; found != NULL && i < *count; i++) {
        found[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (found[i] < least || found[i] >= end || PyErr_Occurred()) {
            PyMem_Free(found);
            found = NULL;
            PyErr_SetString(PyExc_ValueError, "there is no such slot");
            return NULL;
        }
    }
    return found == NULL ? (Py_ssize_t *)PyErr_NoMemory() : found;
}

static int
read_step(MatchStep *step, PyObject *entry, Py_ssize_t slots)
{
    PyObject *op, *type, *params, *sources, *parts;
    if (!PyArg_ParseTuple(entry, "nOOOinOO", &step->slot, &op, &type, &params, &step->outside, &step->uses, &sources,
                          &parts)) {
        return -1;
    }
    if (step->slot < 0 || step->slot >= slots) {
        PyErr_SetString(PyExc_ValueError, "there is no such slot");
        return -1;
    }
    step->source = read_slots(sources, -slots, slots, &step->count);
    if (step->source == NULL) {
        return -1;
    }
    step->op = Py_NewRef(op);
    step->type = Py_NewRef(type);
    step->params = params == Py_None ? NULL : Py_NewRef(params);
    step->parts = parts == Py_None ? NULL : Py_NewRef(parts);
    return 0;
}

static int
read_input(MatchInput *input, PyObject *entry, Py_ssize_t slots)
{
    PyObject *shape, *dtype;
    if (!PyArg_ParseTuple(entry, "nOOp", &input->slot, &shape, &dtype, &input->is_literal)) {
        return -1;
    }
    if (input->slot < 0 || input->slot >= slots) {
        PyErr_SetString(PyExc_ValueError, "there is no such slot");
        return -1;
    }
    input->shape = Py_NewRef(shape);
    input->dtype = Py_NewRef(dtype);
    return 0;
}

/* --- matching --- */

/* Compare a node with its step and find what it reads; -1 is an error. */
static int
match_step(const MatcherObject *self, const MatchStep *step, NodeObject **node)
{
    NodeObject *here = node[step->slot];
    if (here->op != step->op || (PyObject *)Py_TYPE(here) != step->type || here->value != Py_None) {
        return 0;
    }
    if (step->params != NULL) {
        int same = agree(here->params, step->params);
        if (same <= 0) {
            return same;
        }
    }
    if (step->parts != NULL) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(step->parts); i++) {
            Py_ssize_t slot, index;
            if (!PyArg_ParseTuple(PyTuple_GET_ITEM(step->parts, i), "nn", &slot, &index)) {
                return -1;
            }
            PyObject *part = PyObject_CallFunction(self->find_part, "On", here, index);
            if (part == NULL || !is_node(part)) {
                Py_XDECREF(part);
                return part == NULL ? -1 : 0;
            }
            /* Somebody else keeps it: nothing in the piece reads it. */
            int is_fit = ((NodeObject *)part)->value == Py_None && Py_REFCNT(part) > 1;
            if (is_fit && slot >= 0 && slot < self->slots) {
                node[slot] = (NodeObject *)part;
            }
            else {
                is_fit = 0;
            }
            Py_DECREF(part);
            if (!is_fit) {
                return 0;
            }
        }
    }
    Py_ssize_t outside = Py_REFCNT(here) - step->uses;
    if ((step->outside == NONE_OUTSIDE && outside != 0) || (step->outside == SOME_OUTSIDE && outside == 0) ||
        step->outside == NEVER) {
        return 0;
    }
    if (!PyTuple_Check(here->inputs) || PyTuple_GET_SIZE(here->inputs) != step->count) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < step->count; i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(here->inputs, i);
        Py_ssize_t slot = step->source[i];
        if (slot < 0) {
            node[~slot] = operand;
        }
        else if (node[slot] != operand) {
            return 0;
        }
    }
    return 1;
}

/* Whether a node is a constant, or computed from sizes alone; -1 is an error. */
static int
is_literal(const MatcherObject *self, NodeObject *node)
{
    if (!PyTuple_Check(node->inputs) || PyTuple_GET_SIZE(node->inputs)) {
        return 0;
    }
    int is_leaf = PySequence_Contains(self->leaves, node->op);
    return is_leaf < 0 ? -1 : !is_leaf;
}

static int
match_input(const MatcherObject *self, const MatchInput *input, NodeObject *node)
{
    if (node->value == Py_None || node->dtype != input->dtype) {
        return 0;
    }
    int is_fit = input->is_literal ? is_literal(self, node) : 1;
    return is_fit == 1 ? agree(node->shape, input->shape) : is_fit;
}

/* Whether inputs that were different are different again; -1 is an error.

   Where two are one, a step is another program, in which the contributions to its cotangent are added up in the order of
   the nodes, and that is what it is described as when it is met for the first time. Literals may be one: numbers that
   change from step to step are sometimes equal, and have no cotangent. */
static int
are_different(const MatcherObject *self, NodeObject **node)
{
    memset(self->seen, 0, (self->mask + 1) * sizeof(NodeObject *));
    for (Py_ssize_t i = 0; i < self->inputs; i++) {
        NodeObject *here = node[self->input[i].slot];
        size_t place = ((size_t)here >> 4) & self->mask;
        while (self->seen[place] != NULL && self->seen[place] != here) {
            place = (place + 1) & self->mask;
        }
        if (self->seen[place] == here) {
            int may_be_one = is_literal(self, here);
            if (may_be_one != 1) {
                return may_be_one;
            }
        }
        self->seen[place] = here;
    }
    return 1;
}

PyObject *
nodes_at(NodeObject **node, const Py_ssize_t *slots, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(node[slots[i]]));
    }
    return tuple;
}

/* Compare the nodes behind some targets with the table, and find each by its slot; -1 is an error. */
int
match_nodes(const MatcherObject *self, PyObject *const *targets, NodeObject **node)
{
    int is_match = 1;
    for (Py_ssize_t i = 0; i < self->targets; i++) {
        node[self->target[i]] = (NodeObject *)targets[i];
    }
    for (Py_ssize_t i = 0; i < self->steps && is_match == 1; i++) {
        is_match = match_step(self, &self->step[i], node);
    }
    for (Py_ssize_t i = 0; i < self->inputs && is_match == 1; i++) {
        is_match = match_input(self, &self->input[i], node[self->input[i].slot]);
    }
    return is_match == 1 && self->inputs > 1 ? are_different(self, node) : is_match;
}

/* --- the type --- */

static int
matcher_traverse(MatcherObject *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self->step != NULL && i < self->steps; i++) {
        Py_VISIT(self->step[i].op);
        Py_VISIT(self->step[i].params);
    }
    Py_VISIT(self->find_part);
    return 0;
}

static void
matcher_dealloc(MatcherObject *self)
{
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; self->step != NULL && i < self->steps; i++) {
        Py_XDECREF(self->step[i].op);
        Py_XDECREF(self->step[i].type);
        Py_XDECREF(self->step[i].params);
        Py_XDECREF(self->step[i].parts);
        PyMem_Free(self->step[i].source);
    }
    for (Py_ssize_t i = 0; self->input != NULL && i < self->inputs; i++) {
        Py_XDECREF(self->input[i].shape);
        Py_XDECREF(self->input[i].dtype);
    }
    PyMem_Free(self->step);
    PyMem_Free(self->input);
    PyMem_Free(self->output);
    PyMem_Free(self->target);
    PyMem_Free(self->seen);
    Py_XDECREF(self->find_part);
    Py_XDECREF(self->leaves);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject MatcherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Matcher",
    .tp_doc = "Recognises a piece from its targets; see `unspool._engine.folding.matching`.",
    .tp_basicsize = sizeof(MatcherObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)matcher_dealloc,
    .tp_traverse = (traverseproc)matcher_traverse,
};

PyDoc_STRVAR(matcher_doc,
"matcher(slots, targets, steps, inputs, outputs, find_part, leaves, /)\n--\n\n"
"Return what compares the nodes behind some targets with a table, for the lines of `find_site`.\n\n"
"Nodes have slots. A step is (slot, op, class, parameters or None, what is asked of the references from outside, uses\n"
"of the node by others, slots of its inputs, parts or None), where ~slot says that an input is met for the first time.\n"
"An input is (slot, shape, dtype, whether it has to be a literal).");

static PyObject *
matcher(PyObject *module, PyObject *args)
{
    PyObject *targets, *steps, *inputs, *outputs, *find_part, *leaves;
    Py_ssize_t slots;
    if (!PyArg_ParseTuple(args, "nOO!O!OOO!", &slots, &targets, &PyList_Type, &steps, &PyList_Type, &inputs, &outputs,
                          &find_part, &PyTuple_Type, &leaves)) {
        return NULL;
    }
    MatcherObject *self = (MatcherObject *)MatcherType.tp_alloc(&MatcherType, 0);
    if (self == NULL) {
        return NULL;
    }
    self->slots = slots;
    self->find_part = Py_NewRef(find_part);
    self->leaves = Py_NewRef(leaves);
    self->target = read_slots(targets, -slots, slots, &self->targets);
    self->output = self->target == NULL ? NULL : read_slots(outputs, -slots, slots, &self->outputs);
    self->step = PyMem_Calloc(PyList_GET_SIZE(steps) + 1, sizeof(MatchStep));
    self->input = PyMem_Calloc(PyList_GET_SIZE(inputs) + 1, sizeof(MatchInput));
    /* At most half full. */
    for (self->mask = 3; (Py_ssize_t)self->mask < 2 * PyList_GET_SIZE(inputs); self->mask = 2 * self->mask + 1) {
    }
    self->seen = PyMem_Calloc(self->mask + 1, sizeof(NodeObject *));
    int is_read = self->output != NULL && self->step != NULL && self->input != NULL && self->seen != NULL;
    for (Py_ssize_t i = 0; is_read && i < PyList_GET_SIZE(steps); i++) {
        self->steps = i + 1;
        is_read = read_step(&self->step[i], PyList_GET_ITEM(steps, i), slots) == 0;
    }
    for (Py_ssize_t i = 0; is_read && i < PyList_GET_SIZE(inputs); i++) {
        self->inputs = i + 1;
        is_read = read_input(&self->input[i], PyList_GET_ITEM(inputs, i), slots) == 0;
    }
    if (!is_read) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

PyMethodDef matching_methods[] = {
    {"matcher", matcher, METH_VARARGS, matcher_doc},
    {NULL},
};
