/* The values that a replay keeps to itself, each there as long as there is a reason for it. */

#include "replaying.h"

static PyObject *name_fragment, *name_slab;

static void
entry_dealloc(EntryObject *self)
{
    Py_XDECREF(self->value);
    Py_XDECREF(self->buffers);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Entry",
    .tp_basicsize = sizeof(EntryObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)entry_dealloc,
};

/* The entry of a node, borrowed; NULL if there is none, or with an exception. */
EntryObject *
find_entry(const ValuesObject *self, PyObject *key)
{
    return (EntryObject *)PyDict_GetItemWithError(self->entries, key);
}

/* The same, made if there is none. */
EntryObject *
need_entry(const ValuesObject *self, PyObject *key)
{
    EntryObject *entry = find_entry(self, key);
    if (entry != NULL || PyErr_Occurred()) {
        return entry;
    }
    entry = (EntryObject *)EntryType.tp_alloc(&EntryType, 0);
    int failed = entry == NULL || PyDict_SetItem(self->entries, key, (PyObject *)entry) < 0;
    Py_XDECREF(entry); /* the dict has it */
    return failed ? NULL : entry;
}

/* Count a value in its buffers, or one that is gone: each buffer once. */
static int
count_in_buffers(ValuesObject *self, PyObject *buffers, int more)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(buffers); i++) {
        PyObject *buffer = PyTuple_GET_ITEM(buffers, i);
        PyObject *key = PyTuple_GET_ITEM(buffer, 0), *known = PyDict_GetItemWithError(self->users, key);
        if (PyErr_Occurred()) {
            return -1;
        }
        Py_ssize_t before = known == NULL ? 0 : PyLong_AsSsize_t(known), after = before + more;
        long long size = PyLong_AsLongLong(PyTuple_GET_ITEM(buffer, 1));
        self->nbytes += before == 0 ? size : after == 0 ? -size : 0;
        PyObject *count = after == 0 ? NULL : PyLong_FromSsize_t(after);
        int failed = after == 0       ? PyDict_DelItem(self->users, key) < 0
                     : count == NULL ? 1
                                     : PyDict_SetItem(self->users, key, count) < 0;
        Py_XDECREF(count);
        if (failed || PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

static int
check_buffers(PyObject *buffers)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(buffers); i++) {
        PyObject *buffer = PyTuple_GET_ITEM(buffers, i);
        if (!PyTuple_Check(buffer) || PyTuple_GET_SIZE(buffer) != 2 || !PyLong_Check(PyTuple_GET_ITEM(buffer, 1))) {
            PyErr_SetString(PyExc_TypeError, "a buffer is what tells it apart, and its bytes");
            return -1;
        }
    }
    return 0;
}

/* Put in a value for which there is a reason. */
int
put_value(ValuesObject *self, EntryObject *entry, PyObject *value, PyObject *buffers)
{
    if (count_in_buffers(self, buffers, 1) < 0) {
        return -1;
    }
    Py_XSETREF(entry->value, Py_NewRef(value));
    Py_XSETREF(entry->buffers, Py_NewRef(buffers));
    return 0;
}

static int
add_reason(ValuesObject *self, PyObject *key)
{
    EntryObject *entry = need_entry(self, key);
    if (entry != NULL) {
        entry->reasons++;
    }
    return entry == NULL ? -1 : 0;
}

/* Take a reason away; with the last one the value goes. */
int
drop_reason(ValuesObject *self, PyObject *key)
{
    EntryObject *entry = find_entry(self, key);
    if (entry == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetObject(PyExc_KeyError, key);
        }
        return -1;
    }
    if (--entry->reasons > 0) {
        return 0;
    }
    Py_INCREF(entry);
    int failed = PyDict_DelItem(self->entries, key) < 0 ||
                 (entry->value != NULL && count_in_buffers(self, entry->buffers, -1) < 0);
    Py_DECREF(entry);
    return failed ? -1 : 0;
}

/* What a call keeps of an output, borrowed; NULL if nothing, or with an exception. */
static PyObject *
kept_by_call(NodeObject *node)
{
    CallObject *call = (CallObject *)node->inputs;
    if (!is_call(call) || !PyTuple_Check(call->node.value) || PyTuple_GET_SIZE(call->node.value) == 0) {
        return NULL;
    }
    PyObject *fragment = PyObject_GetAttr(call->plan, name_fragment);
    PyObject *slab = fragment == NULL ? NULL : PyObject_GetAttr(fragment, name_slab);
    PyObject *position = slab == NULL ? NULL : PyDict_GetItemWithError(slab, node->output);
    Py_ssize_t place = position == NULL ? -1 : PyLong_AsSsize_t(position);
    Py_XDECREF(fragment);
    Py_XDECREF(slab);
    PyObject *kept = place >= 0 && place < PyTuple_GET_SIZE(call->node.value)
                         ? PyTuple_GET_ITEM(call->node.value, place)
                         : NULL;
    return kept == Py_None ? NULL : kept;
}

/* The value of a node: its own, one that is here, or what its call keeps. NULL if there is none, or with an exception.
   Looked at once: another thread may evict values at any time. */
PyObject *
value_of(const ValuesObject *self, NodeObject *node)
{
    if (node->value != Py_None) {
        return Py_NewRef(node->value);
    }
    EntryObject *entry = find_entry(self, node->id);
    PyObject *value = entry == NULL ? NULL : entry->value;
    if (value == NULL && !PyErr_Occurred() && Py_IS_TYPE(node, (PyTypeObject *)projection_class)) {
        value = kept_by_call(node);
    }
    return Py_XNewRef(value);
}

/* The same for whoever does not know what values are. */
PyObject *
value_in(PyObject *values, NodeObject *node)
{
    return value_of((ValuesObject *)values, node);
}

PyDoc_STRVAR(values_of_doc,
"of(nodes, /)\n--\n\n"
"Return the values of nodes: their own, one that is here, or what their call keeps; None if there is none.");

static PyObject *
values_of(ValuesObject *self, PyObject *nodes)
{
    PyObject *sequence = PySequence_Fast(nodes, "nodes are in a sequence");
    Py_ssize_t count = sequence == NULL ? 0 : PySequence_Fast_GET_SIZE(sequence);
    PyObject *found = sequence == NULL || check_nodes(NULL, PySequence_Fast_ITEMS(sequence), count) < 0
                          ? NULL
                          : PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *value = value_of(self, (NodeObject *)PySequence_Fast_GET_ITEM(sequence, i));
        if (value == NULL && PyErr_Occurred()) {
            Py_CLEAR(found);
            break;
        }
        PyList_SET_ITEM(found, i, value == NULL ? Py_NewRef(Py_None) : value);
    }
    Py_XDECREF(sequence);
    return found;
}

static PyObject *
values_get(ValuesObject *self, PyObject *key)
{
    EntryObject *entry = find_entry(self, key);
    if (entry == NULL && PyErr_Occurred()) {
        return NULL;
    }
    return Py_NewRef(entry == NULL || entry->value == NULL ? Py_None : entry->value);
}

static int
values_contains(PyObject *self, PyObject *key)
{
    EntryObject *entry = find_entry((ValuesObject *)self, key);
    return entry != NULL ? entry->value != NULL : PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(values_is_wanted_doc,
"is_wanted(key, more=0, /)\n--\n\n"
"Whether there is a reason to have a value, which is not there yet; there may be so many more.");

static PyObject *
values_is_wanted(ValuesObject *self, PyObject *args)
{
    PyObject *key;
    Py_ssize_t more = 0;
    if (!PyArg_ParseTuple(args, "O|n:is_wanted", &key, &more)) {
        return NULL;
    }
    EntryObject *entry = more ? need_entry(self, key) : find_entry(self, key);
    if (entry == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    entry->reasons += more;
    return PyBool_FromLong(entry->reasons > 0 && entry->value == NULL);
}

static PyObject *
values_put(ValuesObject *self, PyObject *args)
{
    PyObject *key, *value, *buffers;
    if (!PyArg_ParseTuple(args, "OOO!:put", &key, &value, &PyTuple_Type, &buffers) || check_buffers(buffers) < 0) {
        return NULL;
    }
    EntryObject *entry = find_entry(self, key);
    if (entry == NULL || entry->value != NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "there is no reason to have a value");
    }
    return put_value(self, entry, value, buffers) < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(values_buffers_doc,
"buffers(key, /)\n--\n\nReturn the buffers that a value is in which is there for one reason alone; None if it is not.");

static PyObject *
values_buffers(ValuesObject *self, PyObject *key)
{
    EntryObject *entry = find_entry(self, key);
    if (entry == NULL || entry->value == NULL || entry->reasons != 1) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return Py_NewRef(entry->buffers);
}

PyDoc_STRVAR(values_are_own_doc,
"are_own(buffers, /)\n--\n\nWhether no other value is in the buffers of one.");

static PyObject *
values_are_own(ValuesObject *self, PyObject *buffers)
{
    if (!PyTuple_Check(buffers) || check_buffers(buffers) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "buffers are in a tuple");
    }
    int are_own = 1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(buffers); i++) {
        PyObject *users = PyDict_GetItemWithError(self->users, PyTuple_GET_ITEM(PyTuple_GET_ITEM(buffers, i), 0));
        are_own &= users != NULL && PyLong_AsLong(users) == 1;
    }
    return PyErr_Occurred() ? NULL : PyBool_FromLong(are_own);
}

PyDoc_STRVAR(values_replace_doc,
"replace(key, value, gone, /)\n--\n\nPut another value in the place of one, without some of its buffers.");

static PyObject *
values_replace(ValuesObject *self, PyObject *args)
{
    PyObject *key, *value, *gone;
    if (!PyArg_ParseTuple(args, "OOO!:replace", &key, &value, &PyTuple_Type, &gone) || check_buffers(gone) < 0) {
        return NULL;
    }
    EntryObject *entry = find_entry(self, key);
    PyObject *left = entry == NULL || entry->value == NULL ? NULL : PyList_New(0);
    if (left == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_KeyError, "there is no such value");
    }
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(entry->buffers); i++) {
        PyObject *buffer = PyTuple_GET_ITEM(entry->buffers, i);
        int is_gone = PySequence_Contains(gone, buffer);
        failed = is_gone < 0 || (!is_gone && PyList_Append(left, buffer) < 0);
    }
    PyObject *buffers = failed ? NULL : PyList_AsTuple(left);
    failed = buffers == NULL || count_in_buffers(self, gone, -1) < 0;
    if (!failed) {
        Py_SETREF(entry->buffers, Py_NewRef(buffers));
        Py_SETREF(entry->value, Py_NewRef(value));
    }
    Py_XDECREF(buffers);
    Py_DECREF(left);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *
values_add_reason(ValuesObject *self, PyObject *key)
{
    return add_reason(self, key) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
values_drop_reason(ValuesObject *self, PyObject *key)
{
    return drop_reason(self, key) < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(values_nbytes_of_doc, "nbytes_of(keys, /)\n--\n\nReturn the bytes that some of the values take.");

static PyObject *
values_nbytes_of(ValuesObject *self, PyObject *keys)
{
    PyObject *sequence = PySequence_Fast(keys, "ids are in a sequence"), *seen = PySet_New(NULL);
    long long nbytes = 0;
    int failed = sequence == NULL || seen == NULL;
    for (Py_ssize_t i = 0; !failed && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        EntryObject *entry = find_entry(self, PySequence_Fast_GET_ITEM(sequence, i));
        PyObject *buffers = entry == NULL || entry->value == NULL ? empty : entry->buffers;
        for (Py_ssize_t j = 0; !failed && j < PyTuple_GET_SIZE(buffers); j++) {
            PyObject *buffer = PyTuple_GET_ITEM(buffers, j);
            int is_seen = PySet_Contains(seen, PyTuple_GET_ITEM(buffer, 0));
            failed = is_seen < 0 || (!is_seen && PySet_Add(seen, PyTuple_GET_ITEM(buffer, 0)) < 0);
            nbytes += is_seen ? 0 : PyLong_AsLongLong(PyTuple_GET_ITEM(buffer, 1));
        }
    }
    Py_XDECREF(sequence);
    Py_XDECREF(seen);
    return failed || PyErr_Occurred() ? NULL : PyLong_FromLongLong(nbytes);
}

static PyObject *
values_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ValuesObject *self = (ValuesObject *)type->tp_alloc(type, 0);
    if (self != NULL && ((self->entries = PyDict_New()) == NULL || (self->users = PyDict_New()) == NULL)) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void
values_dealloc(ValuesObject *self)
{
    Py_XDECREF(self->entries);
    Py_XDECREF(self->users);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef values_members[] = {
    {"nbytes", T_LONGLONG, offsetof(ValuesObject, nbytes), READONLY, NULL},
    {NULL},
};

static PyMethodDef values_methods[] = {
    {"of", (PyCFunction)values_of, METH_O, values_of_doc},
    {"get", (PyCFunction)values_get, METH_O, "get(key, /)\n--\n\nReturn a value, or None if it is not there."},
    {"is_wanted", (PyCFunction)values_is_wanted, METH_VARARGS, values_is_wanted_doc},
    {"put", (PyCFunction)values_put, METH_VARARGS,
     "put(key, value, buffers, /)\n--\n\nPut in a value for which there is a reason."},
    {"buffers", (PyCFunction)values_buffers, METH_O, values_buffers_doc},
    {"are_own", (PyCFunction)values_are_own, METH_O, values_are_own_doc},
    {"replace", (PyCFunction)values_replace, METH_VARARGS, values_replace_doc},
    {"add_reason", (PyCFunction)values_add_reason, METH_O,
     "add_reason(key, /)\n--\n\nAdd a reason to have a value, now or when it comes."},
    {"drop_reason", (PyCFunction)values_drop_reason, METH_O,
     "drop_reason(key, /)\n--\n\nTake a reason away; with the last one the value goes."},
    {"nbytes_of", (PyCFunction)values_nbytes_of, METH_O, values_nbytes_of_doc},
    {NULL},
};

static PySequenceMethods values_as_sequence = {.sq_contains = values_contains};

PyTypeObject ValuesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.ValuesBase",
    .tp_doc = "Values by the ids of their nodes; see `unspool._engine.memory.replayed_values.Values`.",
    .tp_basicsize = sizeof(ValuesObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = values_new,
    .tp_dealloc = (destructor)values_dealloc,
    .tp_as_sequence = &values_as_sequence,
    .tp_members = values_members,
    .tp_methods = values_methods,
};

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
values_start(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_fragment, "fragment"},
                 {&name_slab, "slab"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return PyType_Ready(&EntryType) < 0 ? -1 : 0;
}
