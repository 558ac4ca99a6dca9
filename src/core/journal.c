/* What is known of a file that a graph is written to: the numbers of nodes in it, and of what they have in common.

   A run of millions of steps has millions of nodes in its file, and each step that is written asks for a few of them. So
   numbers are in a table of plain integers, without an object for each. */

#include "core.h"
#include "journal.h"

/* --- numbers of nodes --- */

#define EMPTY LLONG_MIN
#define FEWEST_ENTRIES 256

/* The place of an id in the table, or where it would be. */
static inline Entry *
place_of(const JournalObject *self, long long id)
{
    /* Ids that follow each other lie side by side: those of a step are asked for together. */
    unsigned long long mask = (unsigned long long)self->size - 1, block = (unsigned long long)id >> 4;
    unsigned long long at = ((block * 0x9E3779B97F4A7C15ull >> 20 << 4) | (id & 15)) & mask;
    while (self->entries[at].id != EMPTY && self->entries[at].id != id) {
        at = (at + 1) & mask;
    }
    return &self->entries[at];
}

/* The number of a node; negative if it has none. */
long long
journal_find(const JournalObject *self, long long id)
{
    if (self->size == 0) {
        return PENDING;
    }
    const Entry *entry = place_of(self, id);
    return entry->id == EMPTY ? PENDING : entry->number;
}

/* Whether a node is in the file, or was found and is about to be. */
int
journal_has(const JournalObject *self, long long id)
{
    return self->size > 0 && place_of(self, id)->id != EMPTY;
}

static int
grow(JournalObject *self)
{
    Py_ssize_t size = self->size == 0 ? FEWEST_ENTRIES : 2 * self->size, before = self->size;
    Entry *entries = PyMem_New(Entry, size), *old = self->entries;
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        entries[i].id = EMPTY;
    }
    self->entries = entries;
    self->size = size;
    for (Py_ssize_t i = 0; i < before; i++) {
        if (old[i].id != EMPTY) {
            *place_of(self, old[i].id) = old[i];
        }
    }
    PyMem_Free(old);
    return 0;
}

int
journal_enter(JournalObject *self, long long id, long long number)
{
    if (3 * self->used >= 2 * self->size && grow(self) < 0) {
        return -1;
    }
    Entry *entry = place_of(self, id);
    self->used += entry->id == EMPTY;
    *entry = (Entry){id, number};
    return 0;
}

PyDoc_STRVAR(get_doc, "get(id, /)\n--\n\nReturn the number of a node in the file; None if it has none.");

static PyObject *
journal_get(JournalObject *self, PyObject *id)
{
    long long wanted = PyLong_AsLongLong(id);
    if (wanted == -1 && PyErr_Occurred()) {
        return NULL;
    }
    long long number = journal_find(self, wanted);
    return number < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(number);
}

static PyObject *
journal_subscript(JournalObject *self, PyObject *id)
{
    PyObject *number = journal_get(self, id);
    if (number == Py_None) {
        Py_CLEAR(number);
        PyErr_SetObject(PyExc_KeyError, id);
    }
    return number;
}

PyDoc_STRVAR(enter_doc, "enter(id, number, /)\n--\n\nLet a node have a number in the file, unless it has one.");

static PyObject *
journal_enter_method(JournalObject *self, PyObject *args)
{
    long long id, number;
    if (!PyArg_ParseTuple(args, "LL", &id, &number)) {
        return NULL;
    }
    if (number < 0) {
        return PyErr_Format(PyExc_ValueError, "nodes are counted from 0, got %lld", number);
    }
    if (journal_find(self, id) < 0 && journal_enter(self, id, number) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- kinds --- */

/* More are in the file than are remembered here: who is not asks in the general way. */
#define MOST_KINDS 512
#define MOST_NUMBERED (1 << 24)

/* Whether two shapes are the same. Nodes that one line makes have equal ones, and mostly each its own. */
static inline int
same_shape(PyObject *one, PyObject *other)
{
    if (one == other) {
        return 1;
    }
    if (one == NULL || other == NULL || !PyTuple_CheckExact(one) || !PyTuple_CheckExact(other) ||
        PyTuple_GET_SIZE(one) != PyTuple_GET_SIZE(other)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(one); i++) {
        PyObject *size = PyTuple_GET_ITEM(one, i), *another = PyTuple_GET_ITEM(other, i);
        if (size != another && (!PyLong_CheckExact(size) || !PyLong_CheckExact(another) ||
                                PyObject_RichCompareBool(size, another, Py_EQ) != 1)) {
            return 0;
        }
    }
    return 1;
}

static inline int
same_kind(const Kind *one, const Kind *other)
{
    for (int i = 0; i < MOST_PARTS; i++) {
        if (i != SHAPE_PART && one->parts[i] != other->parts[i]) {
            return 0;
        }
    }
    return one->extra == other->extra && same_shape(one->parts[SHAPE_PART], other->parts[SHAPE_PART]);
}

static inline Kind *
kind_place(const JournalObject *self, const Kind *wanted)
{
    PyObject *shape = wanted->parts[SHAPE_PART];
    Py_ssize_t axes = shape != NULL && PyTuple_CheckExact(shape) ? PyTuple_GET_SIZE(shape) : -1;
    unsigned long long hash = (unsigned long long)wanted->extra + (unsigned long long)axes;
    for (int i = 0; i < MOST_PARTS; i++) {
        if (i != SHAPE_PART) {
            hash = (hash ^ (unsigned long long)(uintptr_t)wanted->parts[i] >> 4) * 0x9E3779B97F4A7C15ull;
        }
    }
    for (Py_ssize_t i = 0; i < axes; i++) {
        PyObject *size = PyTuple_GET_ITEM(shape, i);
        unsigned long long low = PyLong_CheckExact(size) ? PyLong_AsUnsignedLongLongMask(size) : 0;
        hash = (hash ^ low) * 0x9E3779B97F4A7C15ull;
    }
    return &self->kinds[hash >> 32 & (MOST_KINDS - 1)];
}

/* What is remembered of a kind, NULL if it is not. */
Kind *
journal_kind(JournalObject *self, const Kind *wanted)
{
    Kind *kind = self->kinds == NULL ? NULL : kind_place(self, wanted);
    return kind != NULL && same_kind(kind, wanted) ? kind : NULL;
}

/* Remember a kind, in the place of another one if need be; -1 is an error. */
int
journal_remember(JournalObject *self, Kind kind)
{
    if (kind.number < 0 || kind.number >= MOST_NUMBERED) {
        return 0;
    }
    if (self->kinds == NULL && (self->kinds = PyMem_Calloc(MOST_KINDS, sizeof(Kind))) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Kind *place = kind_place(self, &kind), before = *place;
    for (int i = 0; i < MOST_PARTS; i++) {
        Py_XINCREF(kind.parts[i]);
    }
    *place = kind;
    for (int i = 0; i < MOST_PARTS; i++) {
        Py_XDECREF(before.parts[i]);
    }
    return 0;
}

/* --- inputs of the last record of a kind --- */

/* What they were, with room for so many; NULL is an error. */
Inputs *
inputs_of_kind(JournalObject *self, Py_ssize_t kind, Py_ssize_t count)
{
    if (kind < 0 || kind >= MOST_NUMBERED) {
        PyErr_Format(PyExc_ValueError, "a file has no kind %zd", kind);
        return NULL;
    }
    if (kind >= self->kinds_with_inputs) {
        Py_ssize_t room = 2 * kind + 16;
        Inputs *inputs = PyMem_Realloc(self->inputs, room * sizeof(Inputs));
        if (inputs == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        memset(inputs + self->kinds_with_inputs, 0, (room - self->kinds_with_inputs) * sizeof(Inputs));
        self->inputs = inputs;
        self->kinds_with_inputs = room;
    }
    Inputs *last = &self->inputs[kind];
    if (last->count != count || last->ids == NULL) {
        long long *ids = PyMem_Realloc(last->ids, (2 * count + 1) * sizeof(long long));
        if (ids == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        *last = (Inputs){count, ids, ids + count, 0};
    }
    return last;
}

PyDoc_STRVAR(adopt_inputs_doc,
"adopt_inputs(kind, numbers, /)\n--\n\nTake note of the inputs, by number, that the last record of a kind in the file has.");

static PyObject *
journal_adopt_inputs(JournalObject *self, PyObject *args)
{
    Py_ssize_t kind;
    PyObject *numbers;
    if (!PyArg_ParseTuple(args, "nO!", &kind, &PyTuple_Type, &numbers)) {
        return NULL;
    }
    Inputs *last = inputs_of_kind(self, kind, PyTuple_GET_SIZE(numbers));
    if (last == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < last->count; i++) {
        last->ids[i] = EMPTY;
        last->numbers[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(numbers, i));
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    last->is_known = 1;
    Py_RETURN_NONE;
}

/* --- what is folded --- */

/* What is not in the file and is no more than this is written for the sake of a call that reads it. A loop that is none
   of the run's is asked for in every step, and is found to be far by its second call. */
#define MOST_NEAR 128
#define MOST_CALLS_NEAR 1

/* Whether a node is made of what is in the file and of constants, in a few steps; notes if it is of the former. */
static int
is_near(const JournalObject *self, const NodeObject *node, int *reads_any)
{
    const NodeObject *stack[MOST_NEAR];
    int size = 1, seen = 1, calls = 0;
    stack[0] = node;
    while (size > 0) {
        node = stack[--size];
        if (is_call(node) && ++calls > MOST_CALLS_NEAR) {
            return 0;
        }
        int is_leaf = node->op == constant_op ? 0 : PySet_Contains(leaf_ops, node->op);
        if (is_leaf != 0) { /* a variable that the run was not given is none of its own */
            PyErr_Clear();
            return 0;
        }
        int is_tuple = PyTuple_Check(node->inputs);
        for (Py_ssize_t i = 0; i < (is_tuple ? PyTuple_GET_SIZE(node->inputs) : 1); i++) {
            PyObject *source = is_tuple ? PyTuple_GET_ITEM(node->inputs, i) : node->inputs;
            if (journal_find(self, number_of((NodeObject *)source)) >= 0) {
                *reads_any = 1;
            } else if (seen++ == MOST_NEAR) {
                return 0;
            } else {
                stack[size++] = (NodeObject *)source;
            }
        }
    }
    return 1;
}

/* Journals that write what is folded at once; they take themselves off when they die. */
static JournalObject *journals = NULL;

static void
leave_journals(JournalObject *self)
{
    for (JournalObject **place = &journals; *place != NULL; place = &(*place)->following) {
        if (*place == self) {
            *place = self->following;
            self->following = NULL;
            return;
        }
    }
}

/* Write a call that was folded if it belongs to the run: it reads what is in the file, and little else. -1 is an error. */
static int
note_in(JournalObject *self, CallObject *call)
{
    int reads_any = 0, lacks_any = 0;
    PyObject *inputs = call->node.inputs;
    long long id = number_of(&call->node);
    if (self->is_busy || id <= self->adopted || journal_has(self, id)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        NodeObject *input = (NodeObject *)PyTuple_GET_ITEM(inputs, i);
        if (journal_find(self, number_of(input)) >= 0) {
            reads_any = 1;
        } else if (is_near(self, input, &reads_any)) {
            lacks_any = 1;
        } else {
            return 0;
        }
    }
    if (!reads_any) {
        return 0;
    }
    Kind wanted = {{call->plan, call->origins}, PyLong_AsLongLong(call->depth) != 0, 0};
    int are_known = lacks_any ? put_constants(self, inputs) : 1;
    if (are_known < 0) {
        return -1;
    }
    if (are_known && journal_kind(self, &wanted) != NULL) {
        return put_folded(self, call);
    }
    /* Other threads may get their turn meanwhile, and must not write between. */
    self->is_busy = 1;
    PyObject *done = PyObject_CallOneArg(self->on_new, (PyObject *)call);
    self->is_busy = 0;
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Let runs write a call that was folded; -1 is an error. */
int
note_folded(CallObject *call)
{
    JournalObject *journal = (JournalObject *)Py_XNewRef(journals);
    int failed = 0;
    while (journal != NULL) {
        failed = failed || note_in(journal, call) < 0;
        JournalObject *following = (JournalObject *)Py_XNewRef(failed ? NULL : journal->following);
        Py_DECREF(journal);
        journal = following;
    }
    return failed ? -1 : 0;
}

static PyObject *
journal_get_encoder(JournalObject *self, void *unused)
{
    return Py_NewRef(self->encoder);
}

static int
journal_set_encoder(JournalObject *self, PyObject *encoder, void *unused)
{
    if (encoder == NULL || (encoder != Py_None && !PyObject_TypeCheck(encoder, &EncoderType))) {
        PyErr_SetString(PyExc_TypeError, "encoder is one, or None");
        return -1;
    }
    Py_SETREF(self->encoder, Py_NewRef(encoder));
    return 0;
}

static PyObject *
journal_get_on_new(JournalObject *self, void *unused)
{
    return Py_NewRef(self->on_new);
}

static int
journal_set_on_new(JournalObject *self, PyObject *function, void *unused)
{
    if (function == NULL) {
        PyErr_SetString(PyExc_TypeError, "on_new is a function, or None");
        return -1;
    }
    leave_journals(self);
    if (function != Py_None) {
        self->following = journals;
        journals = self;
    }
    Py_SETREF(self->on_new, Py_NewRef(function));
    return 0;
}

/* --- the type --- */

PyDoc_STRVAR(put_known_doc,
"put_known(nodes, start, before, /)\n--\n\n"
"Write the nodes of a list from a position on, as far as their ids are below a limit and they are of the usual sort.\n\n"
"Returns the position of the first that was not written.");

PyDoc_STRVAR(put_entry_doc, "put_entry(payload, /)\n--\n\nWrite an entry, which has the next number.");

PyDoc_STRVAR(put_inputs_doc,
"put_inputs(kind, inputs, /)\n--\n\n"
"Write the inputs of a record: how far back each is, or 0 where the last record of the kind had the same.");

PyDoc_STRVAR(put_values_doc,
"put_values(nodes, most, /)\n--\n\n"
"Write the values of nodes that are in the file, as far as they have at most so many bytes and lie in one row.\n\n"
"Returns the nodes whose values were not written.");

PyDoc_STRVAR(take_folded_doc,
"take_folded(/)\n--\n\nReturn the nodes among ``unfolded`` that are outputs of calls now, and take them away.");

PyDoc_STRVAR(take_evaluated_doc,
"take_evaluated(/)\n--\n\nReturn the nodes among ``unevaluated`` that have had a value, and take them away.");

PyDoc_STRVAR(collect_doc,
"collect(roots, /)\n--\n\n"
"Return the nodes of a list that are not in the file, with all that they are made from, by id; and whether each comes\n"
"after what it is made from. They count as found from now on, and have to be written.");

static PyObject *
journal_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) > 0 || kwargs != NULL) {
        return PyErr_Format(PyExc_TypeError, "a journal is made of nothing");
    }
    JournalObject *self = (JournalObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->adopted = LLONG_MIN;
    self->on_new = Py_NewRef(Py_None);
    self->encoder = Py_NewRef(Py_None);
    self->out = PyByteArray_FromStringAndSize(NULL, 0);
    self->unfolded = PyDict_New();
    self->unevaluated = PyDict_New();
    self->leaves = PyList_New(0);
    if (self->out == NULL || self->unfolded == NULL || self->unevaluated == NULL || self->leaves == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
journal_traverse(JournalObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->on_new);
    Py_VISIT(self->encoder);
    Py_VISIT(self->unfolded);
    Py_VISIT(self->unevaluated);
    Py_VISIT(self->leaves);
    for (Py_ssize_t i = 0; self->kinds != NULL && i < MOST_KINDS; i++) {
        for (int j = 0; j < MOST_PARTS; j++) {
            Py_VISIT(self->kinds[i].parts[j]);
        }
    }
    return 0;
}

/* Forget whom to tell and to ask, and all kinds. They are taken away first: what dies of it may run other code. */
static int
journal_clear(JournalObject *self)
{
    leave_journals(self);
    Py_SETREF(self->on_new, Py_NewRef(Py_None));
    Py_SETREF(self->encoder, Py_NewRef(Py_None));
    Kind *kinds = self->kinds;
    self->kinds = NULL;
    for (Py_ssize_t i = 0; kinds != NULL && i < MOST_KINDS; i++) {
        for (int j = 0; j < MOST_PARTS; j++) {
            Py_XDECREF(kinds[i].parts[j]);
        }
    }
    PyMem_Free(kinds);
    return 0;
}

static void
journal_dealloc(JournalObject *self)
{
    PyObject_GC_UnTrack(self);
    journal_clear(self);
    for (Py_ssize_t i = 0; i < self->kinds_with_inputs; i++) {
        PyMem_Free(self->inputs[i].ids);
    }
    PyMem_Free(self->inputs);
    PyMem_Free(self->entries);
    Py_XDECREF(self->on_new);
    Py_XDECREF(self->encoder);
    Py_XDECREF(self->out);
    Py_XDECREF(self->unfolded);
    Py_XDECREF(self->unevaluated);
    Py_XDECREF(self->leaves);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t
journal_length(JournalObject *self)
{
    return self->used;
}

static PyObject *
journal_sizeof(JournalObject *self, PyObject *unused)
{
    Py_ssize_t kinds = self->kinds == NULL ? 0 : MOST_KINDS;
    return PyLong_FromSsize_t(Py_TYPE(self)->tp_basicsize + self->size * (Py_ssize_t)sizeof(Entry) +
                              kinds * (Py_ssize_t)sizeof(Kind));
}

static PyMappingMethods journal_as_mapping = {
    .mp_length = (lenfunc)journal_length,
    .mp_subscript = (binaryfunc)journal_subscript,
};

static PyMethodDef journal_methods[] = {
    {"adopt_inputs", (PyCFunction)journal_adopt_inputs, METH_VARARGS, adopt_inputs_doc},
    {"collect", (PyCFunction)journal_collect, METH_O, collect_doc},
    {"enter", (PyCFunction)journal_enter_method, METH_VARARGS, enter_doc},
    {"get", (PyCFunction)journal_get, METH_O, get_doc},
    {"put_entry", (PyCFunction)journal_put_entry, METH_O, put_entry_doc},
    {"put_inputs", (PyCFunction)journal_put_inputs, METH_VARARGS, put_inputs_doc},
    {"put_known", (PyCFunction)journal_put_known, METH_VARARGS, put_known_doc},
    {"put_values", (PyCFunction)journal_put_values, METH_VARARGS, put_values_doc},
    {"take_evaluated", (PyCFunction)journal_take_evaluated, METH_NOARGS, take_evaluated_doc},
    {"take_folded", (PyCFunction)journal_take_folded, METH_NOARGS, take_folded_doc},
    {"__sizeof__", (PyCFunction)journal_sizeof, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef journal_getset[] = {
    {"encoder", (getter)journal_get_encoder, (setter)journal_set_encoder, NULL, NULL},
    {"on_new", (getter)journal_get_on_new, (setter)journal_set_on_new, NULL, NULL},
    {NULL},
};

static PyMemberDef journal_members[] = {
    {"out", T_OBJECT_EX, offsetof(JournalObject, out), READONLY, NULL},
    {"unfolded", T_OBJECT_EX, offsetof(JournalObject, unfolded), READONLY, NULL},
    {"unevaluated", T_OBJECT_EX, offsetof(JournalObject, unevaluated), READONLY, NULL},
    {"leaves", T_OBJECT_EX, offsetof(JournalObject, leaves), READONLY, NULL},
    {"last_id", T_LONGLONG, offsetof(JournalObject, last_id), 0, NULL},
    {"last_depth", T_LONGLONG, offsetof(JournalObject, last_depth), 0, NULL},
    {"next", T_LONGLONG, offsetof(JournalObject, next), 0, NULL},
    {"offset", T_LONGLONG, offsetof(JournalObject, offset), 0, NULL},
    {"adopted", T_LONGLONG, offsetof(JournalObject, adopted), 0, NULL},
    {NULL},
};

PyDoc_STRVAR(journal_doc,
"What is known of a file that a graph is written to: the numbers of nodes, by id, and what the next record is told from.\n\n"
"Attributes\n----------\n"
"out : bytearray\n"
"    Records that are not taken away yet.\n"
"unfolded, unevaluated : dict of int to weak reference\n"
"    Nodes that are written and may be folded yet, or come to have a value.\n"
"leaves : list of Node\n"
"    Variables and placeholders that are written; who writes which they are takes them away.\n"
"last_id, last_depth : int\n"
"    Of the last record that has one.\n"
"next : int\n"
"    The number of the next node.\n"
"encoder : EncoderBase or None\n"
"    Writes what nodes and calls have in common that are of a kind that is not in the file yet.\n"
"on_new : callable or None\n"
"    If it is a function, calls are written when they are folded, if all that they read is in the file or near it. It is\n"
"    called with those that read something, or are of a kind, that is not in the file yet.\n"
"offset, adopted : int\n"
"    Of a file that is gone on with: nodes with ids above ``adopted`` have an id in the file that is larger by ``offset``.");

PyTypeObject JournalType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Journal",
    .tp_doc = journal_doc,
    .tp_basicsize = sizeof(JournalObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = journal_new,
    .tp_dealloc = (destructor)journal_dealloc,
    .tp_traverse = (traverseproc)journal_traverse,
    .tp_clear = (inquiry)journal_clear,
    .tp_methods = journal_methods,
    .tp_members = journal_members,
    .tp_getset = journal_getset,
    .tp_as_mapping = &journal_as_mapping,
};
