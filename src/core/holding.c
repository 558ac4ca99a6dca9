/* What is held of the steps that were evaluated: the values of nodes, and what steps keep for derivatives. Records refer
   to nodes, calls and pieces weakly. Which of it is evicted, and when, `unspool._engine.ledger` and `line` decide. */

#include "evaluation.h"

static PyObject *name_base, *name_nbytes, *name_fragment, *name_slab, *name_outputs, *name_derivatives, *name_kept,
    *name_references;

/* --- memory --- */

/* Some memory, by the array that owns it. */
typedef struct {
    PyObject *owner;
    long long nbytes;
} Memory;

typedef struct {
    Memory *item, few[16];
    Py_ssize_t count, room;
} Memories;

static void
memories_begin(Memories *all)
{
    all->item = all->few;
    all->count = 0;
    all->room = (Py_ssize_t)Py_ARRAY_LENGTH(all->few);
}

static void
memories_end(Memories *all)
{
    if (all->item != all->few) {
        PyMem_Free(all->item);
    }
}

static int
memories_has(const Memories *all, const PyObject *owner)
{
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if (all->item[i].owner == owner) {
            return 1;
        }
    }
    return 0;
}

static int
bytes_of_array(PyObject *array, long long *nbytes)
{
    PyObject *number = PyObject_GetAttr(array, name_nbytes);
    *nbytes = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    return *nbytes < 0 && PyErr_Occurred() ? -1 : 0;
}

/* The array whose memory an array looks at, borrowed from it; NULL is an error. */
static PyObject *
owner_of(PyObject *array)
{
    PyObject *base = PyObject_GetAttr(array, name_base);
    if (base == NULL) {
        return NULL;
    }
    PyObject *owner = (PyObject *)Py_TYPE(base) == array_class ? base : array;
    Py_DECREF(base); /* an array keeps its base */
    return owner;
}

/* Add the memory of an array that is not None. */
static int
memories_add(Memories *all, PyObject *array)
{
    PyObject *owner = array == Py_None ? Py_None : owner_of(array);
    if (owner == NULL) {
        return -1;
    }
    if (owner == Py_None || memories_has(all, owner)) {
        return 0;
    }
    if (all->count == all->room) {
        Memory *moved = PyMem_Malloc(2 * all->room * sizeof(Memory));
        if (moved == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(moved, all->item, all->count * sizeof(Memory));
        memories_end(all);
        all->item = moved;
        all->room *= 2;
    }
    all->item[all->count].owner = owner;
    return bytes_of_array(owner, &all->item[all->count++].nbytes);
}

static int
memories_add_tuple(Memories *all, PyObject *values)
{
    for (Py_ssize_t i = 0; PyTuple_Check(values) && i < PyTuple_GET_SIZE(values); i++) {
        if (memories_add(all, PyTuple_GET_ITEM(values, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Enter memory into a dict of bytes by what identifies it. */
static int
enter_memory(PyObject *found, PyObject *array)
{
    PyObject *owner = array == Py_None ? Py_None : owner_of(array);
    if (owner == NULL || owner == Py_None) {
        return owner == NULL ? -1 : 0;
    }
    PyObject *key = PyLong_FromVoidPtr(owner), *nbytes = PyObject_GetAttr(owner, name_nbytes);
    int failed = key == NULL || nbytes == NULL || PyDict_SetItem(found, key, nbytes) < 0;
    Py_XDECREF(key);
    Py_XDECREF(nbytes);
    return failed ? -1 : 0;
}

static int
enter_memories(PyObject *found, const Memories *all)
{
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if (enter_memory(found, all->item[i].owner) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Weak references to what owns memory, which tell later how much of it was freed. An owner of another class than
   NumPy's does not count. */
typedef struct {
    PyObject **reference;
    long long *nbytes;
    Py_ssize_t count;
} Watch;

static int
watch_begin(Watch *watch, const Memories *all)
{
    *watch = (Watch){PyMem_Calloc(all->count + 1, sizeof(PyObject *)), PyMem_Calloc(all->count + 1, sizeof(long long))};
    if (watch->reference == NULL || watch->nbytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if ((PyObject *)Py_TYPE(all->item[i].owner) == array_class) {
            PyObject *reference = PyWeakref_NewRef(all->item[i].owner, NULL);
            if (reference == NULL) {
                return -1;
            }
            watch->reference[watch->count] = reference;
            watch->nbytes[watch->count++] = all->item[i].nbytes;
        }
    }
    return 0;
}

/* Return how many bytes were freed: nobody else has them, under whatever name. */
static long long
watch_end(Watch *watch)
{
    long long freed = 0;
    for (Py_ssize_t i = 0; i < watch->count; i++) {
        freed += PyWeakref_GET_OBJECT(watch->reference[i]) == Py_None ? watch->nbytes[i] : 0;
        Py_DECREF(watch->reference[i]);
    }
    PyMem_Free(watch->reference);
    PyMem_Free(watch->nbytes);
    return freed;
}

/* --- nodes that are referred to weakly --- */

/* What a weak reference refers to, borrowed; NULL if it has died. Who asks must not let other code run meanwhile. */
static PyObject *
alive(PyObject *reference)
{
    PyObject *object = reference == NULL ? Py_None : PyWeakref_GET_OBJECT(reference);
    return object == Py_None || Py_REFCNT(object) == 0 ? NULL : object;
}

static NodeObject *
with_value(PyObject *reference)
{
    NodeObject *node = (NodeObject *)alive(reference);
    return node == NULL || node->value == NULL || node->value == Py_None ? NULL : node;
}

/* Whether the value of a node is to be kept: it is the result of `keep`, or what that was applied to; -1 is an error. */
static int
is_marked(NodeObject *node, PyObject *keep)
{
    if (node->op == keep) {
        return 1;
    }
    Py_uhash_t hash;
    PyObject *input = (PyObject *)node;
    if (hash_recipe(keep, &input, 1, empty, &hash) < 0) {
        return -1;
    }
    PyObject *found = (PyObject *)table_find(keep, &input, 1, empty, hash);
    Py_XDECREF(found);
    return found != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
}

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

/* Whether somebody refers to the node beside the steps that used it and some more. */
static int
refers(const HeldObject *self, const PyObject *node, Py_ssize_t known)
{
    return Py_REFCNT(node) > self->uses + known;
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
static int
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

static PyObject *
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

/* --- what steps keep for derivatives --- */

typedef struct {
    PyObject_HEAD
    PyObject *step;  /* a weak reference to the call or, while it is not folded, to the piece */
    PyObject *nodes; /* weak references to nodes that are kept for it alone, or NULL */
    long long identity;
    char is_folded;
} SlabObject;

static CallObject *
call_of_slab(const SlabObject *self)
{
    return self->is_folded ? (CallObject *)alive(self->step) : NULL;
}

static PieceObject *
piece_of_slab(const SlabObject *self)
{
    return self->is_folded ? NULL : (PieceObject *)alive(self->step);
}

/* What a step has in one tuple, borrowed; NULL if there is none. */
static PyObject *
residuals_of(const SlabObject *self)
{
    CallObject *call = call_of_slab(self);
    PieceObject *piece = piece_of_slab(self);
    PyObject *found = call != NULL ? call->node.value : piece != NULL ? piece->residuals : NULL;
    return found != NULL && PyTuple_Check(found) && PyTuple_GET_SIZE(found) > 0 ? found : NULL;
}

/* Add the memory of all that a slab holds, also what outputs hold too. */
static int
add_slab(Memories *all, const SlabObject *self)
{
    PyObject *residuals = residuals_of(self);
    if (residuals != NULL && memories_add_tuple(all, residuals) < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; self->nodes != NULL && i < PyList_GET_SIZE(self->nodes); i++) {
        NodeObject *node = with_value(PyList_GET_ITEM(self->nodes, i));
        if (node != NULL && memories_add(all, node->value) < 0) {
            return -1;
        }
    }
    return 0;
}

/* An output of the step that is alive, borrowed; NULL if there is none. */
static NodeObject *
output_of_slab(const SlabObject *self, Py_ssize_t i)
{
    CallObject *call = call_of_slab(self);
    PieceObject *piece = piece_of_slab(self);
    NodeObject *node = call != NULL    ? call->handles[i]
                       : piece != NULL ? output_alive(piece, i)
                                       : NULL;
    return node != NULL && Py_REFCNT(node) > 0 && node->value != NULL && node->value != Py_None ? node : NULL;
}

static Py_ssize_t
outputs_of_slab(const SlabObject *self)
{
    CallObject *call = call_of_slab(self);
    PieceObject *piece = piece_of_slab(self);
    return call != NULL ? call->outputs : piece != NULL ? ((SiteObject *)piece->site)->results : 0;
}

/* The bytes of memory that tiny outputs hold too: these stay, and count no more without the slab; -1 is an error. */
static long long
left_to_outputs(const SlabObject *self, const Memories *memory, long long tiny)
{
    long long left = 0, nbytes;
    Memories seen;
    memories_begin(&seen);
    for (Py_ssize_t i = 0; left >= 0 && i < outputs_of_slab(self); i++) {
        NodeObject *node = output_of_slab(self, i);
        if (node == NULL) {
            continue;
        }
        if (bytes_of_array(node->value, &nbytes) < 0) {
            left = -1;
        }
        else if (nbytes <= tiny) {
            PyObject *owner = owner_of(node->value);
            for (Py_ssize_t j = 0; owner != NULL && !memories_has(&seen, owner) && j < memory->count; j++) {
                left += memory->item[j].owner == owner ? memory->item[j].nbytes : 0;
            }
            left = owner == NULL || memories_add(&seen, node->value) < 0 ? -1 : left;
        }
    }
    memories_end(&seen);
    return left;
}

/* The bytes of a slab without what live outputs hold too; -1 is an error. */
static long long
bytes_of_slab(const SlabObject *self)
{
    PyObject *residuals = residuals_of(self);
    Memories shown, found;
    memories_begin(&shown);
    memories_begin(&found);
    int failed = 0;
    if (residuals != NULL) {
        for (Py_ssize_t i = 0; !failed && i < outputs_of_slab(self); i++) {
            NodeObject *node = output_of_slab(self, i);
            failed = node != NULL && memories_add(&shown, node->value) < 0;
        }
        failed = failed || memories_add_tuple(&found, residuals) < 0;
    }
    else if (call_of_slab(self) == NULL && piece_of_slab(self) == NULL) {
        failed = add_slab(&found, self) < 0;
    }
    long long nbytes = 0;
    for (Py_ssize_t i = 0; !failed && i < found.count; i++) {
        nbytes += memories_has(&shown, found.item[i].owner) ? 0 : found.item[i].nbytes;
    }
    memories_end(&shown);
    memories_end(&found);
    return failed ? -1 : nbytes;
}

/* What is left of residuals if all goes but what is to be kept, and what is in no set if one is given; NULL is an
   error. */
static PyObject *
residuals_without(PyObject *residuals, PyObject *kept, const char *goes)
{
    Py_ssize_t count = PyTuple_GET_SIZE(residuals), left = 0;
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        PyObject *position = PyLong_FromSsize_t(i);
        int stays = position == NULL ? -1 : goes != NULL && !goes[i] ? 1 : PySet_Contains(kept, position);
        Py_XDECREF(position);
        if (stays < 0) {
            Py_CLEAR(made);
            break;
        }
        PyObject *value = stays ? PyTuple_GET_ITEM(residuals, i) : Py_None;
        left += value != Py_None;
        PyTuple_SET_ITEM(made, i, Py_NewRef(value));
    }
    if (made != NULL && left == 0) {
        Py_SETREF(made, Py_NewRef(empty));
    }
    return made;
}

/* The positions in a slab that the user wants kept, which Python finds once for each plan. */
static PyObject *
kept_of_plan(PyObject *plan, PyObject *find)
{
    PyObject *derivatives = PyObject_GetAttr(plan, name_derivatives);
    PyObject *kept = derivatives == NULL ? NULL : PyDict_GetItemWithError(derivatives, name_kept);
    Py_XINCREF(kept);
    Py_XDECREF(derivatives);
    if (kept == NULL && !PyErr_Occurred()) {
        kept = PyObject_CallOneArg(find, plan);
    }
    return kept;
}

static int
slab_refer(SlabObject *self, PyObject *step, int is_folded)
{
    PyObject *reference = PyWeakref_NewRef(step, NULL);
    if (reference == NULL) {
        return -1;
    }
    Py_XSETREF(self->step, reference);
    self->is_folded = (char)is_folded;
    if (is_folded) {
        Py_CLEAR(self->nodes);
        self->identity = number_of(&((CallObject *)step)->node);
    }
    return 0;
}

/* The nodes of a piece that are kept for it alone, and where in the order of ids it stands. */
static int
slab_look_at(SlabObject *self, PieceObject *piece)
{
    Py_ssize_t results = ((SiteObject *)piece->site)->results, count = PyList_GET_SIZE(piece->outputs);
    if (count > results && (self->nodes = PyList_New(0)) == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        NodeObject *node = output_alive(piece, i);
        long long id = node == NULL ? 0 : number_of(node);
        self->identity = id > self->identity ? id : self->identity;
        int is_shown = i < results;
        for (Py_ssize_t j = 0; !is_shown && j < results; j++) {
            is_shown = output_alive(piece, j) == node;
        }
        if (!is_shown && PyList_Append(self->nodes, PyList_GET_ITEM(piece->outputs, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
slab_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *step;
    if (!PyArg_ParseTuple(args, "O:Slab", &step)) {
        return NULL;
    }
    if (!is_call(step) && !Py_IS_TYPE(step, &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a call or a piece, got %R", step);
    }
    SlabObject *self = (SlabObject *)type->tp_alloc(type, 0);
    if (self != NULL && (slab_refer(self, step, is_call(step)) < 0 ||
                         (!is_call(step) && slab_look_at(self, (PieceObject *)step) < 0))) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static void
slab_dealloc(SlabObject *self)
{
    Py_XDECREF(self->step);
    Py_XDECREF(self->nodes);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
slab_nbytes(SlabObject *self, void *unused)
{
    long long nbytes = bytes_of_slab(self);
    return nbytes < 0 ? NULL : PyLong_FromLongLong(nbytes);
}

PyDoc_STRVAR(slab_add_to_doc,
"add_to(found, /)\n--\n\n"
"Add the bytes of its memory to a dict, also of what outputs hold too; tell whether it holds anything still.");

static PyObject *
slab_add_to(SlabObject *self, PyObject *found)
{
    Memories memory;
    memories_begin(&memory);
    int failed = !PyDict_Check(found) || add_slab(&memory, self) < 0 || enter_memories(found, &memory) < 0;
    Py_ssize_t count = memory.count;
    memories_end(&memory);
    if (failed) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "memory is counted in a dict");
    }
    return PyBool_FromLong(count > 0);
}

/* Of what is to go of residuals, take out what is to be kept. */
static int
spare_kept(char *goes, Py_ssize_t count, PyObject *kept)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *position = goes[i] ? PyLong_FromSsize_t(i) : NULL;
        int stays = position == NULL ? 0 : PySet_Contains(kept, position);
        Py_XDECREF(position);
        if (stays < 0 || PyErr_Occurred()) {
            return -1;
        }
        goes[i] = (char)(goes[i] && !stays);
    }
    return 0;
}

/* The memory of residuals that go, or of the whole slab. */
static int
add_going(Memories *memory, const SlabObject *self, PyObject *residuals, const char *goes)
{
    if (goes == NULL) {
        return add_slab(memory, self);
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(residuals); i++) {
        if (goes[i] && memories_add(memory, PyTuple_GET_ITEM(residuals, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Put what is left in the place of residuals, and free them but for what is to be kept. */
static int
replace_residuals(SlabObject *self, PyObject *residuals, PyObject *kept, const char *goes)
{
    PyObject *rest = residuals_without(residuals, kept, goes);
    if (rest == NULL) {
        return -1;
    }
    CallObject *call = call_of_slab(self);
    PieceObject *piece = piece_of_slab(self);
    PyObject **place = call != NULL ? &call->node.value : piece != NULL ? &piece->residuals : &rest;
    if (place == &rest) {
        Py_DECREF(rest);
        return 0;
    }
    PyObject *before = *place;
    *place = rest;
    Py_XDECREF(before);
    return 0;
}

/* Evict the values of nodes that are kept for a slab alone, but for what is under `keep`. */
static int
evict_nodes(const SlabObject *self, PyObject *keep)
{
    for (Py_ssize_t i = 0; self->nodes != NULL && i < PyList_GET_SIZE(self->nodes); i++) {
        NodeObject *node = with_value(PyList_GET_ITEM(self->nodes, i));
        int is_kept = node == NULL ? 1 : is_marked(node, keep);
        if (is_kept < 0) {
            return -1;
        }
        if (!is_kept) {
            Py_INCREF(node);
            Py_SETREF(node->value, Py_NewRef(Py_None));
            Py_DECREF(node);
        }
    }
    return 0;
}

/* Evict a slab, or the residuals that `goes` names, but what is to be kept. Returns the bytes, or -1. */
static long long
slab_evict(SlabObject *self, PyObject *find, PyObject *keep, long long tiny, char *goes)
{
    PyObject *residuals = Py_XNewRef(residuals_of(self)), *kept = NULL;
    Memories memory;
    Watch watch = {NULL};
    memories_begin(&memory);
    int failed = 0;
    if (residuals != NULL) {
        CallObject *call = call_of_slab(self);
        PyObject *plan = call != NULL ? call->plan : ((SiteObject *)piece_of_slab(self)->site)->plan;
        kept = kept_of_plan(plan, find);
        failed = kept == NULL || (goes != NULL && spare_kept(goes, PyTuple_GET_SIZE(residuals), kept) < 0);
    }
    failed = failed || add_going(&memory, self, residuals, goes) < 0;
    long long left = failed ? -1 : left_to_outputs(self, &memory, tiny);
    failed = left < 0 || watch_begin(&watch, &memory) < 0;
    memories_end(&memory);
    if (!failed && residuals != NULL) {
        failed = replace_residuals(self, residuals, kept, goes) < 0;
    }
    Py_XDECREF(residuals);
    Py_XDECREF(kept);
    failed = failed || (goes == NULL && evict_nodes(self, keep) < 0);
    long long freed = watch_end(&watch);
    return failed ? -1 : freed + left;
}

PyDoc_STRVAR(slab_drop_doc,
"drop(find_kept, keep, tiny, /)\n--\n\n"
"Evict it, as far as nobody wants it kept, and return how many bytes that gave.\n\n"
"``find_kept`` tells of a plan at which positions values are to be kept, ``keep`` is the op that says so of a node, and\n"
"outputs of up to ``tiny`` bytes stay.");

static PyObject *
slab_drop(SlabObject *self, PyObject *args)
{
    PyObject *find, *keep;
    long long tiny;
    if (!PyArg_ParseTuple(args, "OOL:drop", &find, &keep, &tiny)) {
        return NULL;
    }
    long long freed = slab_evict(self, find, keep, tiny, NULL);
    return freed < 0 ? NULL : PyLong_FromLongLong(freed);
}

/* Find which residuals nobody reads: those whose outputs have no tensor, or one whose id is not among some. */
static int
find_unread(const CallObject *call, PyObject *read, char *goes, Py_ssize_t count)
{
    PyObject *fragment = PyObject_GetAttr(call->plan, name_fragment);
    PyObject *slab = fragment == NULL ? NULL : PyObject_GetAttr(fragment, name_slab);
    PyObject *index, *position;
    Py_ssize_t at = 0;
    int failed = slab == NULL || !PyDict_Check(slab);
    while (!failed && PyDict_Next(slab, &at, &index, &position)) {
        Py_ssize_t i = PyLong_AsSsize_t(index), place = PyLong_AsSsize_t(position);
        failed = i < 0 || i >= call->outputs || place < 0 || place >= count;
        NodeObject *node = failed ? NULL : call->handles[i];
        int is_read = node == NULL || Py_REFCNT(node) == 0 ? 0 : PySequence_Contains(read, node->id);
        failed = failed || is_read < 0;
        if (!failed && !is_read && PyTuple_GET_ITEM(call->node.value, place) != Py_None) {
            goes[place] = 1;
        }
    }
    Py_XDECREF(fragment);
    Py_XDECREF(slab);
    if (failed && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a fragment does not say where its residuals are");
    }
    return failed ? -1 : 0;
}

PyDoc_STRVAR(slab_drop_unread_doc,
"drop_unread(read, find_kept, keep, tiny, /)\n--\n\n"
"Evict what no node reads whose id is not among some, and return how many bytes that gave; see `drop`.");

static PyObject *
slab_drop_unread(SlabObject *self, PyObject *args)
{
    PyObject *read, *find, *keep;
    long long tiny;
    if (!PyArg_ParseTuple(args, "OOOL:drop_unread", &read, &find, &keep, &tiny)) {
        return NULL;
    }
    CallObject *call = call_of_slab(self);
    if (call == NULL || residuals_of(self) == NULL) {
        return PyLong_FromLong(0);
    }
    Py_INCREF(call);
    Py_ssize_t count = PyTuple_GET_SIZE(call->node.value);
    char *goes = PyMem_Calloc(count + 1, 1);
    if (goes == NULL) {
        PyErr_NoMemory();
    }
    int failed = goes == NULL || find_unread(call, read, goes, count) < 0;
    long long freed = failed ? -1 : slab_evict(self, find, keep, tiny, goes);
    PyMem_Free(goes);
    Py_DECREF(call);
    return freed < 0 ? NULL : PyLong_FromLongLong(freed);
}

static PyMemberDef slab_members[] = {
    {"identity", T_LONGLONG, offsetof(SlabObject, identity), READONLY, NULL},
    {NULL},
};

static PyObject *
slab_is_there(SlabObject *self, void *unused)
{
    Memories memory;
    memories_begin(&memory);
    int failed = add_slab(&memory, self) < 0;
    Py_ssize_t count = memory.count;
    memories_end(&memory);
    return failed ? NULL : PyBool_FromLong(count > 0);
}

static PyGetSetDef slab_getset[] = {
    {"is_there", (getter)slab_is_there, NULL, "Whether it holds anything still.", NULL},
    {"nbytes", (getter)slab_nbytes, NULL, "The bytes that it takes, without what live outputs hold too.", NULL},
    {NULL},
};

static PyMethodDef slab_methods[] = {
    {"add_to", (PyCFunction)slab_add_to, METH_O, slab_add_to_doc},
    {"drop", (PyCFunction)slab_drop, METH_VARARGS, slab_drop_doc},
    {"drop_unread", (PyCFunction)slab_drop_unread, METH_VARARGS, slab_drop_unread_doc},
    {NULL},
};

PyTypeObject SlabType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Slab",
    .tp_doc = "What a step keeps for its derivatives: with its call or, while it is not folded, with its nodes.",
    .tp_basicsize = sizeof(SlabObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = slab_new,
    .tp_dealloc = (destructor)slab_dealloc,
    .tp_members = slab_members,
    .tp_getset = slab_getset,
    .tp_methods = slab_methods,
};

/* Note that a piece was folded that a ledger had looked at. */
int
move_slab(PyObject *slab, CallObject *call, PyObject *held)
{
    return !Py_IS_TYPE(slab, &SlabType) || slab_refer((SlabObject *)slab, (PyObject *)call, 1) < 0 ||
                   note_reading(held, call->node.inputs, -1, 1) < 0
               ? -1
               : 0;
}

/* --- counting --- */

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

PyDoc_STRVAR(piece_bytes_doc,
"piece_bytes(piece, /)\n--\n\nReturn the bytes of the values of a piece that waits to be folded.");

static PyObject *
piece_bytes(PyObject *module, PyObject *object)
{
    if (!Py_IS_TYPE(object, &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", object);
    }
    PieceObject *piece = (PieceObject *)object;
    Memories memory;
    memories_begin(&memory);
    int failed = memories_add_tuple(&memory, piece->residuals) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(piece->outputs); i++) {
        NodeObject *node = output_alive(piece, i);
        failed = node != NULL && node->value != Py_None && memories_add(&memory, node->value) < 0;
    }
    long long nbytes = 0;
    for (Py_ssize_t i = 0; i < memory.count; i++) {
        nbytes += memory.item[i].nbytes;
    }
    memories_end(&memory);
    return failed ? NULL : PyLong_FromLongLong(nbytes);
}

/* Add to how often a node is referred to. */
static int
add_references(PyObject *known, NodeObject *node, Py_ssize_t more)
{
    PyObject *before = PyDict_GetItemWithError(known, node->id);
    if (before == NULL && PyErr_Occurred()) {
        return -1;
    }
    PyObject *number = PyLong_FromSsize_t(more + (before == NULL ? 0 : PyLong_AsSsize_t(before)));
    int failed = number == NULL || PyDict_SetItem(known, node->id, number) < 0;
    Py_XDECREF(number);
    return failed ? -1 : 0;
}

/* How often the nodes that live outputs keep refer to each slot, which Python counts once for each choice of them. */
static PyObject *
reference_counts(PieceObject *piece, PyObject *plan, PyObject *count)
{
    Py_ssize_t outputs = PyList_GET_SIZE(piece->outputs);
    PyObject *alive_ones = PyTuple_New(outputs);
    for (Py_ssize_t i = 0; alive_ones != NULL && i < outputs; i++) {
        PyTuple_SET_ITEM(alive_ones, i, PyBool_FromLong(output_alive(piece, i) != NULL));
    }
    PyObject *derivatives = alive_ones == NULL ? NULL : PyObject_GetAttr(plan, name_derivatives);
    PyObject *key = derivatives == NULL ? NULL : PyTuple_Pack(2, name_references, alive_ones);
    PyObject *counts = key == NULL ? NULL : PyDict_GetItemWithError(derivatives, key);
    Py_XINCREF(counts);
    if (counts == NULL && !PyErr_Occurred()) {
        counts = PyObject_CallFunctionObjArgs(count, plan, alive_ones, NULL);
    }
    Py_XDECREF(alive_ones);
    Py_XDECREF(derivatives);
    Py_XDECREF(key);
    if (counts != NULL && !PyList_Check(counts)) {
        Py_CLEAR(counts);
        PyErr_SetString(PyExc_TypeError, "references are counted in a list");
    }
    return counts;
}

static int
add_references_of(PyObject *known, PieceObject *piece, PyObject *count)
{
    PyObject *plan = ((SiteObject *)piece->site)->plan;
    PyObject *fragment = PyObject_GetAttr(plan, name_fragment);
    PyObject *slots = fragment == NULL ? NULL : PyObject_GetAttr(fragment, name_outputs);
    PyObject *counts = slots == NULL ? NULL : reference_counts(piece, plan, count);
    int failed = counts == NULL || !PyTuple_Check(slots);
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(piece->inputs); i++) {
        Py_ssize_t more = i < PyList_GET_SIZE(counts) ? PyLong_AsSsize_t(PyList_GET_ITEM(counts, i)) : 0;
        failed = add_references(known, (NodeObject *)PyTuple_GET_ITEM(piece->inputs, i), more + 1) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(slots) && i < PyList_GET_SIZE(piece->outputs); i++) {
        NodeObject *node = output_alive(piece, i);
        Py_ssize_t slot = PyLong_AsSsize_t(PyTuple_GET_ITEM(slots, i));
        if (node != NULL && slot >= 0 && slot < PyList_GET_SIZE(counts)) {
            failed = add_references(known, node, PyLong_AsSsize_t(PyList_GET_ITEM(counts, slot))) < 0;
        }
    }
    Py_XDECREF(fragment);
    Py_XDECREF(slots);
    Py_XDECREF(counts);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(references_of_doc,
"references_of(pieces, count, /)\n--\n\n"
"Return how often the nodes of pieces that wait refer to the nodes at their inputs and to their outputs, by id.\n\n"
"``count(plan, alive)`` tells for every slot how often the nodes that live outputs keep refer to it; it is asked once\n"
"for each choice of outputs.");

static PyObject *
references_of(PyObject *module, PyObject *args)
{
    PyObject *pieces, *count;
    if (!PyArg_ParseTuple(args, "O!O:references_of", &PyList_Type, &pieces, &count)) {
        return NULL;
    }
    PyObject *known = PyDict_New();
    for (Py_ssize_t i = 0; known != NULL && i < PyList_GET_SIZE(pieces); i++) {
        PyObject *piece = PyList_GET_ITEM(pieces, i);
        if (!Py_IS_TYPE(piece, &PieceType)) {
            PyErr_Format(PyExc_TypeError, "expected a piece, got %R", piece);
        }
        if (PyErr_Occurred() ||
            (!((PieceObject *)piece)->is_loose && add_references_of(known, (PieceObject *)piece, count) < 0)) {
            Py_CLEAR(known);
        }
    }
    return known;
}

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
holding_start(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_base, "base"},         {&name_nbytes, "nbytes"},           {&name_fragment, "fragment"},
                 {&name_slab, "slab"},         {&name_outputs, "outputs"},         {&name_derivatives, "derivatives"},
                 {&name_kept, "kept"},         {&name_references, "references"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}

PyMethodDef holding_methods[] = {
    {"hold", hold, METH_VARARGS, hold_doc},
    {"note_reads", note_reads, METH_VARARGS, note_reads_doc},
    {"live_entries", live_entries, METH_O, live_entries_doc},
    {"stretches", stretches, METH_VARARGS, stretches_doc},
    {"release", release, METH_VARARGS, release_doc},
    {"add_values", add_values, METH_VARARGS, add_values_doc},
    {"piece_bytes", piece_bytes, METH_O, piece_bytes_doc},
    {"references_of", references_of, METH_VARARGS, references_of_doc},
    {NULL},
};
