/* Values that are held: where on the line of steps they were made and last used, and who refers to them. */

#include "holding.h"

/* --- values --- */

typedef struct {
    PyObject_HEAD
    PyObject *node;
    long long nbytes;
    Py_ssize_t made, last, uses;
} HeldObject;

static PyObject *
held_make(NodeObject *node, Py_ssize_t made, long long nbytes)
{
    HeldObject *self = (HeldObject *)HeldType.tp_alloc(&HeldType, 0);
    if (self != NULL) {
        self->node = PyWeakref_NewRef((PyObject *)node, NULL);
        self->nbytes = nbytes;
        self->made = self->last = made;
        if (self->node == NULL) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static void
held_dealloc(HeldObject *self)
{
    Py_XDECREF(self->node);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
held_is_alive(HeldObject *self, PyObject *unused)
{
    return PyBool_FromLong(with_value(self->node) != NULL);
}

/* Whether somebody refers to the node beside the steps that used it and some more. Where references cannot be counted,
   somebody may. */
static int
refers(const HeldObject *self, const PyObject *node, Py_ssize_t known)
{
    return can_count != Py_True || Py_REFCNT(node) > self->uses + known;
}

PyDoc_STRVAR(held_is_referenced_doc,
"is_referenced(known=0, /)\n--\n\n"
"Whether something refers to the node beside the steps that used it and some that are known: a variable of the user's,\n"
"or graph that may still run.");

static PyObject *
held_is_referenced(HeldObject *self, PyObject *args)
{
    Py_ssize_t known = 0;
    if (!PyArg_ParseTuple(args, "|n:is_referenced", &known)) {
        return NULL;
    }
    PyObject *node = alive(self->node);
    return PyBool_FromLong(node != NULL && refers(self, node, known));
}

static PyMemberDef held_members[] = {
    {"node", T_OBJECT_EX, offsetof(HeldObject, node), READONLY, NULL},
    {"nbytes", T_LONGLONG, offsetof(HeldObject, nbytes), READONLY, NULL},
    {"made", T_PYSSIZET, offsetof(HeldObject, made), 0, NULL},
    {"last", T_PYSSIZET, offsetof(HeldObject, last), 0, NULL},
    {NULL},
};

static PyMethodDef held_methods[] = {
    {"is_alive", (PyCFunction)held_is_alive, METH_NOARGS, "is_alive()\n--\n\nWhether there is something to evict."},
    {"is_referenced", (PyCFunction)held_is_referenced, METH_VARARGS, held_is_referenced_doc},
    {NULL},
};

PyTypeObject HeldType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Held",
    .tp_doc = "A value that is held: where on the line of steps it was made and last used, and how many tuples refer to it.",
    .tp_basicsize = sizeof(HeldObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)held_dealloc,
    .tp_members = held_members,
    .tp_methods = held_methods,
};

PyDoc_STRVAR(hold_doc,
"hold(held, nodes, count, made, least, /)\n--\n\n"
"Enter those of the first nodes of a list, or that weak references refer to, into a dict by id that have values of more\n"
"than ``least`` bytes. Return their ids.");

static PyObject *
hold(PyObject *module, PyObject *args)
{
    PyObject *held, *nodes;
    Py_ssize_t made, count;
    long long least;
    if (!PyArg_ParseTuple(args, "O!O!nnL:hold", &PyDict_Type, &held, &PyList_Type, &nodes, &count, &made, &least)) {
        return NULL;
    }
    PyObject *ids = PySet_New(NULL);
    for (Py_ssize_t i = 0; ids != NULL && i < count && i < PyList_GET_SIZE(nodes); i++) {
        PyObject *item = PyList_GET_ITEM(nodes, i);
        NodeObject *node = (NodeObject *)(PyWeakref_Check(item) ? alive(item) : item);
        long long nbytes;
        if (node == NULL || !is_node((PyObject *)node) || node->value == NULL || node->value == Py_None) {
            continue;
        }
        PyObject *entry = NULL;
        if (bytes_of_array(node->value, &nbytes) < 0 ||
            (nbytes > least && ((entry = held_make(node, made, nbytes)) == NULL ||
                                PyDict_SetItem(held, node->id, entry) < 0 || PySet_Add(ids, node->id) < 0))) {
            Py_CLEAR(ids);
        }
        Py_XDECREF(entry);
    }
    return ids;
}

/* Note that something reads values, if they are held; the number of a step that did, or -1. */
int
note_reading(PyObject *held, PyObject *operands, Py_ssize_t now, Py_ssize_t times)
{
    PyObject *sequence = PySequence_Fast(operands, "operands are in a sequence");
    for (Py_ssize_t i = 0; sequence != NULL && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        PyObject *operand = PySequence_Fast_GET_ITEM(sequence, i);
        PyObject *key = PyLong_Check(operand) ? operand : is_node(operand) ? ((NodeObject *)operand)->id : Py_None;
        HeldObject *entry = (HeldObject *)PyDict_GetItemWithError(held, key);
        if (entry != NULL) {
            entry->last = now < 0 ? entry->last : now;
            entry->uses += times;
        }
        else if (PyErr_Occurred()) {
            Py_CLEAR(sequence);
        }
    }
    Py_XDECREF(sequence);
    return sequence == NULL ? -1 : 0;
}

PyDoc_STRVAR(note_reads_doc,
"note_reads(held, operands, now, times, /)\n--\n\n"
"Note that step ``now`` reads operands, nodes or ids, and that so many tuples more refer to them. -1 is no step.");

static PyObject *
note_reads(PyObject *module, PyObject *args)
{
    PyObject *held, *operands;
    Py_ssize_t now, times;
    if (!PyArg_ParseTuple(args, "O!Onn:note_reads", &PyDict_Type, &held, &operands, &now, &times) ||
        note_reading(held, operands, now, times) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(live_entries_doc,
"live_entries(held, /)\n--\n\nReturn the records of what is held, and forget what is not any more.");

PyObject *
live_entries(PyObject *module, PyObject *held)
{
    PyObject *there = PyDict_Check(held) ? PyList_New(0) : PyErr_Format(PyExc_TypeError, "records are in a dict");
    PyObject *gone = there == NULL ? NULL : PyList_New(0);
    PyObject *key, *entry;
    Py_ssize_t at = 0;
    int failed = gone == NULL;
    while (!failed && PyDict_Next(held, &at, &key, &entry)) {
        failed = with_value(((HeldObject *)entry)->node) != NULL ? PyList_Append(there, entry) < 0
                                                                : PyList_Append(gone, key) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(gone); i++) {
        failed = PyDict_DelItem(held, PyList_GET_ITEM(gone, i)) < 0;
    }
    Py_XDECREF(gone);
    if (failed) {
        Py_CLEAR(there);
    }
    return there;
}

PyDoc_STRVAR(stretches_doc,
"stretches(held, first, newest, young, latest, references, keep, /)\n--\n\n"
"Return the values that may be evicted: their records, and where they were made and are used last as bytes of integers.\n\n"
"Those made from boundary ``first`` to before ``young``, or from ``newest`` on, are left out, and so is what is under\n"
"``keep``. What was made by the ``latest`` step is used at ``newest``, and so is what is referred to more often than\n"
"``references`` tells, if that is not None.");

static PyObject *
stretches(PyObject *module, PyObject *args)
{
    PyObject *held, *latest, *references, *keep, *key, *entry;
    Py_ssize_t first, newest, young, at = 0, count = 0;
    if (!PyArg_ParseTuple(args, "O!nnnO!OO:stretches", &PyDict_Type, &held, &first, &newest, &young, &PySet_Type,
                          &latest, &references, &keep)) {
        return NULL;
    }
    Py_ssize_t most = PyDict_GET_SIZE(held);
    PyObject *entries = PyList_New(0), *columns[3] = {NULL};
    int failed = entries == NULL;
    for (int i = 0; i < 3; i++) {
        columns[i] = PyByteArray_FromStringAndSize(NULL, most * (Py_ssize_t)sizeof(long long));
        failed |= columns[i] == NULL;
    }
    while (!failed && PyDict_Next(held, &at, &key, &entry)) {
        const HeldObject *one = (HeldObject *)entry;
        if ((first <= one->made && one->made < young) || one->made >= newest) {
            continue;
        }
        NodeObject *node = with_value(one->node);
        int is_kept = node == NULL ? 1 : is_marked(node, keep);
        int is_wanted = is_kept ? 0 : PySet_Contains(latest, key);
        failed = is_kept < 0 || is_wanted < 0 || count == most;
        if (failed || is_kept) {
            continue;
        }
        if (!is_wanted && references != Py_None) {
            PyObject *known = PyDict_GetItemWithError(references, key);
            is_wanted = refers(one, (PyObject *)node, known == NULL ? 0 : PyLong_AsSsize_t(known));
            failed = PyErr_Occurred() != NULL;
        }
        ((long long *)PyByteArray_AS_STRING(columns[0]))[count] = one->made;
        ((long long *)PyByteArray_AS_STRING(columns[1]))[count] = is_wanted ? newest : one->last;
        ((long long *)PyByteArray_AS_STRING(columns[2]))[count++] = one->nbytes;
        failed = failed || PyList_Append(entries, entry) < 0;
    }
    for (int i = 0; i < 3; i++) {
        failed = failed || PyByteArray_Resize(columns[i], count * (Py_ssize_t)sizeof(long long)) < 0;
    }
    PyObject *found = failed ? NULL : PyTuple_Pack(4, entries, columns[0], columns[1], columns[2]);
    Py_XDECREF(entries);
    for (int i = 0; i < 3; i++) {
        Py_XDECREF(columns[i]);
    }
    if (failed && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_RuntimeError, "records have changed while they were read");
    }
    return found;
}

/* Whether a value may go that was made behind a node: nobody waits for it, and nothing refers to it but what is known.
   -1 is an error. */
static int
may_go(const HeldObject *one, NodeObject *node, PyObject *waited_for, PyObject *latest, PyObject *uses)
{
    int stays = PySequence_Contains(waited_for, node->id);
    stays = stays ? stays : PySet_Contains(latest, node->id);
    if (stays || uses == Py_None) {
        return stays < 0 ? -1 : !stays;
    }
    Py_ssize_t known = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(uses); i++) {
        PyObject *count = PyDict_GetItemWithError(PyTuple_GET_ITEM(uses, i), node->id);
        known += count == NULL ? 0 : PyLong_AsSsize_t(count);
    }
    return PyErr_Occurred() ? -1 : !refers(one, (PyObject *)node, known);
}

PyDoc_STRVAR(held_after_doc,
"held_after(held, identity, waited_for, latest, uses, keep, /)\n--\n\n"
"Return the records of values that may be evicted and were made after the node with an id.\n\n"
"What is ``waited_for`` stays, what the ``latest`` step made, and what is under ``keep``. ``uses`` are dicts of how often\n"
"nodes are known to be referred to, by id: what is referred to more often stays too. With None nobody is asked.");

static PyObject *
held_after(PyObject *module, PyObject *args)
{
    PyObject *held, *waited_for, *latest, *uses, *keep, *key, *entry;
    long long identity;
    Py_ssize_t at = 0;
    if (!PyArg_ParseTuple(args, "O!LOO!OO:held_after", &PyDict_Type, &held, &identity, &waited_for, &PySet_Type, &latest,
                          &uses, &keep)) {
        return NULL;
    }
    for (Py_ssize_t i = 0; uses != Py_None && i < (PyTuple_Check(uses) ? PyTuple_GET_SIZE(uses) : 1); i++) {
        if (!PyTuple_Check(uses) || !PyDict_Check(PyTuple_GET_ITEM(uses, i))) {
            return PyErr_Format(PyExc_TypeError, "references are counted in dicts");
        }
    }
    PyObject *found = PyList_New(0);
    int failed = found == NULL;
    while (!failed && PyDict_Next(held, &at, &key, &entry)) {
        NodeObject *node = with_value(((HeldObject *)entry)->node);
        if (node == NULL || number_of(node) <= identity) {
            continue;
        }
        int goes = is_marked(node, keep);
        goes = goes ? (goes < 0 ? -1 : 0) : may_go((HeldObject *)entry, node, waited_for, latest, uses);
        failed = goes < 0 || (goes && PyList_Append(found, entry) < 0);
    }
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

/* Take a value from a node; add the bytes that go with it. */
static int
release_value(HeldObject *entry, NodeObject *node, long long *freed, long long *died)
{
    Memories memory;
    Watch watch = {NULL};
    memories_begin(&memory);
    PyObject *array = PyWeakref_NewRef(node->value, NULL);
    int failed = array == NULL || memories_add(&memory, node->value) < 0 || watch_begin(&watch, &memory) < 0;
    memories_end(&memory);
    if (!failed) {
        Py_SETREF(node->value, Py_NewRef(Py_None));
    }
    *died += watch_end(&watch);
    if (!failed && PyWeakref_GET_OBJECT(array) == Py_None) { /* else the step keeps it for derivatives too */
        *freed += entry->nbytes;
    }
    Py_XDECREF(array);
    if (!failed && (node->piece == NULL || node->piece == Py_None)) {
        Py_XSETREF(node->piece, Py_NewRef(lost));
    }
    return failed ? -1 : 0;
}

PyDoc_STRVAR(release_doc,
"release(held, entries, /)\n--\n\n"
"Take the values from nodes. Return the bytes of the arrays that nobody has any more, and of the memory that is free.");

static PyObject *
release(PyObject *module, PyObject *args)
{
    PyObject *held, *entries;
    if (!PyArg_ParseTuple(args, "O!O!:release", &PyDict_Type, &held, &PyList_Type, &entries)) {
        return NULL;
    }
    long long freed = 0, died = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); i++) {
        HeldObject *entry = (HeldObject *)PyList_GET_ITEM(entries, i);
        if (!Py_IS_TYPE(entry, &HeldType)) {
            return PyErr_Format(PyExc_TypeError, "expected a record of a value");
        }
        NodeObject *node = (NodeObject *)Py_XNewRef(alive(entry->node));
        if (node == NULL) {
            continue;
        }
        int failed = node->value != Py_None && release_value(entry, node, &freed, &died) < 0;
        if (!failed && PyDict_GetItemWithError(held, node->id) != NULL) {
            failed = PyDict_DelItem(held, node->id) < 0;
        }
        Py_DECREF(node);
        if (failed || PyErr_Occurred()) {
            return NULL;
        }
    }
    return Py_BuildValue("LL", freed, died);
}

PyDoc_STRVAR(add_values_doc,
"add_values(found, held, /)\n--\n\n"
"Add the bytes of all values that are held to a dict, by what identifies their memory: views share that of what they\n"
"look at. Forget what is not held any more.");

static PyObject *
add_values(PyObject *module, PyObject *args)
{
    PyObject *found, *held;
    if (!PyArg_ParseTuple(args, "O!O!:add_values", &PyDict_Type, &found, &PyDict_Type, &held)) {
        return NULL;
    }
    PyObject *entries = live_entries(NULL, held);
    for (Py_ssize_t i = 0; entries != NULL && i < PyList_GET_SIZE(entries); i++) {
        NodeObject *node = with_value(((HeldObject *)PyList_GET_ITEM(entries, i))->node);
        if (node != NULL && enter_memory(found, node->value) < 0) {
            Py_CLEAR(entries);
        }
    }
    Py_XDECREF(entries);
    return entries == NULL ? NULL : Py_NewRef(Py_None);
}

PyMethodDef held_functions[] = {
    {"hold", hold, METH_VARARGS, hold_doc},
    {"note_reads", note_reads, METH_VARARGS, note_reads_doc},
    {"live_entries", live_entries, METH_O, live_entries_doc},
    {"stretches", stretches, METH_VARARGS, stretches_doc},
    {"held_after", held_after, METH_VARARGS, held_after_doc},
    {"release", release, METH_VARARGS, release_doc},
    {"add_values", add_values, METH_VARARGS, add_values_doc},
    {NULL},
};
