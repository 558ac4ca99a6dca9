/* What steps keep for their derivatives: with a call or, while it is not folded, with a piece and its nodes. */

#include "holding.h"

static PyObject *name_derivatives, *name_fragment, *name_kept, *name_slab;

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

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
slabs_start(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_derivatives, "derivatives"},
                 {&name_fragment, "fragment"},
                 {&name_kept, "kept"},
                 {&name_slab, "slab"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}
