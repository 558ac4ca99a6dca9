/* Folding a piece: is what is inside of it nobody else's, and if so, its outputs become those of a call. */

#include "evaluation.h"

static PyObject *name_make_plan, *name_note_stay, *name_make_check, *name_slab_of, *name_on_fold, *name_on_stay, *name_on_parted;

/* What a check finds if nothing outside has come to use what is inside of a piece; and why a piece stays as it is if it
   is not that: its outputs are older than what it reads, the same was recorded before, or what it computed belongs to
   other steps or to all. As in `unspool._engine.folding.matching`. */
enum { PRIVATE = -1, TOO_OLD = -2, RECORDED_BEFORE = -3, FAILED = -4, OF_OTHERS = -5 };

/* --- privacy --- */

typedef struct {
    Py_ssize_t slot, uses; /* uses: by others in the piece; -1 for one that may be used by anybody */
    Py_ssize_t fresh, *read; /* where among its inputs a node is met for the first time, and its slot */
    Py_ssize_t operands, *operand; /* the slots of all that it reads */
} PrivacyStep;

typedef struct {
    PyObject_HEAD
    Py_ssize_t first, slots, shown, steps; /* the slots of inputs are before the first one */
    Py_ssize_t *show;
    PrivacyStep *step;
} PrivacyObject;

/* The inputs of a node, borrowed; those of an output of a call are made again, and kept in a list until the end. */
static PyObject *
inputs_of(NodeObject *node, PyObject **kept)
{
    if (PyTuple_Check(node->inputs)) {
        return node->inputs;
    }
    PyObject *inputs = PyObject_GetAttrString((PyObject *)node, "inputs");
    if (inputs == NULL || (*kept == NULL && (*kept = PyList_New(0)) == NULL) || PyList_Append(*kept, inputs) < 0) {
        Py_XDECREF(inputs);
        return NULL;
    }
    Py_DECREF(inputs);
    return PyTuple_Check(inputs) ? inputs : PyErr_Format(PyExc_TypeError, "the inputs of a node are a tuple");
}

static Py_ssize_t
check_steps(const PrivacyObject *self, NodeObject **node, PyObject **kept)
{
    for (Py_ssize_t i = 0; i < self->steps; i++) {
        const PrivacyStep *step = &self->step[i];
        NodeObject *here = node[step->slot];
        /* An output of a call belongs to another piece, which was folded. */
        if (step->uses >= 0 && (Py_REFCNT(here) != step->uses || Py_IS_TYPE(here, (PyTypeObject *)projection_class))) {
            return step->slot;
        }
        PyObject *inputs = step->fresh == 0 ? NULL : inputs_of(here, kept);
        if (step->fresh > 0 && inputs == NULL) {
            return FAILED;
        }
        for (Py_ssize_t j = 0; j < step->fresh; j++) {
            Py_ssize_t position = step->read[2 * j];
            if (position >= PyTuple_GET_SIZE(inputs)) {
                PyErr_SetString(PyExc_ValueError, "a node has less inputs than when it was evaluated");
                return FAILED;
            }
            node[step->read[2 * j + 1]] = (NodeObject *)PyTuple_GET_ITEM(inputs, position);
        }
    }
    return PRIVATE;
}

/* Return the slot of a node inside of a piece that something outside uses, or PRIVATE, or FAILED with an exception. */
static Py_ssize_t
check_privacy(const PrivacyObject *self, NodeObject *const *shown, Py_ssize_t count)
{
    NodeObject *few[64], **node = few;
    PyObject *kept = NULL;
    if (count != self->shown) {
        PyErr_SetString(PyExc_TypeError, "a check was made for other outputs");
        return FAILED;
    }
    if (self->slots > (Py_ssize_t)Py_ARRAY_LENGTH(few)) {
        node = PyMem_Malloc(self->slots * sizeof(NodeObject *));
        if (node == NULL) {
            PyErr_NoMemory();
            return FAILED;
        }
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        node[self->show[i]] = shown[i];
    }
    Py_ssize_t found = check_steps(self, node, &kept);
    Py_XDECREF(kept);
    if (node != few) {
        PyMem_Free(node);
    }
    return found;
}

static void
privacy_dealloc(PrivacyObject *self)
{
    for (Py_ssize_t i = 0; self->step != NULL && i < self->steps; i++) {
        PyMem_Free(self->step[i].read);
        PyMem_Free(self->step[i].operand);
    }
    PyMem_Free(self->step);
    PyMem_Free(self->show);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject PrivacyType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Privacy",
    .tp_doc = "Tells whether something outside of a piece uses what is inside; see `unspool._engine.folding.matching`.",
    .tp_basicsize = sizeof(PrivacyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)privacy_dealloc,
};

/* Read (slot, uses, (position, slot, position, slot, ...)). */
static int
read_privacy_step(PrivacyStep *step, PyObject *entry, Py_ssize_t slots)
{
    PyObject *read, *operands;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(entry, "nnOO", &step->slot, &step->uses, &read, &operands)) {
        return -1;
    }
    if (step->slot < 0 || step->slot >= slots) {
        PyErr_SetString(PyExc_ValueError, "there is no such slot");
        return -1;
    }
    step->read = read_slots(read, 0, PY_SSIZE_T_MAX, &count);
    step->fresh = count / 2;
    for (Py_ssize_t i = 0; step->read != NULL && i < step->fresh; i++) {
        if (step->read[2 * i + 1] >= slots) {
            PyErr_SetString(PyExc_ValueError, "there is no such slot");
            return -1;
        }
    }
    step->operand = step->read == NULL ? NULL : read_slots(operands, 0, slots, &step->operands);
    return step->operand == NULL ? -1 : 0;
}

PyDoc_STRVAR(privacy_doc,
"privacy(first, slots, shown, steps, /)\n--\n\n"
"Return what tells which node inside of a piece something outside uses. ``shown`` are the slots of the outputs it is\n"
"given. A step is (slot, uses of the node inside of the piece, or -1 if it may be used by anybody, positions among its\n"
"inputs and slots of what is met there for the first time, slots of all its inputs). Slots of inputs of the piece are\n"
"before ``first``.");

static PyObject *
privacy(PyObject *module, PyObject *args)
{
    PyObject *shown, *steps;
    Py_ssize_t first, slots;
    if (!PyArg_ParseTuple(args, "nnO!O!", &first, &slots, &PyTuple_Type, &shown, &PyList_Type, &steps)) {
        return NULL;
    }
    PrivacyObject *self = (PrivacyObject *)PrivacyType.tp_alloc(&PrivacyType, 0);
    if (self == NULL) {
        return NULL;
    }
    self->slots = slots;
    self->first = first;
    self->show = read_slots(shown, 0, slots, &self->shown);
    self->step = self->show == NULL ? NULL : PyMem_Calloc(PyList_GET_SIZE(steps) + 1, sizeof(PrivacyStep));
    int is_read = self->step != NULL;
    for (Py_ssize_t i = 0; is_read && i < PyList_GET_SIZE(steps); i++) {
        self->steps = i + 1;
        is_read = read_privacy_step(&self->step[i], PyList_GET_ITEM(steps, i), slots) == 0;
    }
    if (!is_read) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

/* --- folding --- */

/* The outputs of a piece that are alive and may be those of a call, and which ones they are. It owns them. */
typedef struct {
    Py_ssize_t count;
    long long first; /* the lowest id */
    NodeObject **node;
    PyObject *indices;
    NodeObject *few[16];
} Handles;

static void
release_handles(Handles *handles)
{
    for (Py_ssize_t i = 0; i < handles->count; i++) {
        Py_DECREF(handles->node[i]);
    }
    if (handles->node != handles->few) {
        PyMem_Free(handles->node);
    }
    Py_XDECREF(handles->indices);
}

/* Whether some indices, small numbers, are those that a site was asked for last. */
static int
has_indices(const SiteObject *site, PyObject *const *indices, Py_ssize_t count)
{
    int same = site->indices != NULL && PyTuple_GET_SIZE(site->indices) == count;
    for (Py_ssize_t i = 0; same && i < count; i++) {
        same = PyTuple_GET_ITEM(site->indices, i) == indices[i];
    }
    return same;
}

static int
find_handles(const PieceObject *piece, Handles *handles)
{
    const SiteObject *site = (SiteObject *)piece->site;
    PyObject *indices[16];
    handles->count = 0;
    handles->first = 0;
    handles->indices = NULL;
    handles->node = handles->few;
    if (site->results > (Py_ssize_t)Py_ARRAY_LENGTH(handles->few)) {
        handles->node = PyMem_Calloc(site->results, sizeof(NodeObject *));
        if (handles->node == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    int has_apart = PySet_GET_SIZE(site->apart_results) > 0;
    PyObject *list = site->results > (Py_ssize_t)Py_ARRAY_LENGTH(indices) ? PyList_New(0) : NULL;
    int failed = list == NULL && PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; i < site->results && !failed; i++) {
        NodeObject *node = (NodeObject *)Py_XNewRef(output_alive(piece, i));
        PyObject *index = NULL;
        if (node != NULL && number_of(node) > piece->newest && (index = PyLong_FromSsize_t(i)) != NULL) {
            int is_apart = has_apart ? PySet_Contains(site->apart_results, index) : 0;
            if (is_apart == 0) {
                if (handles->count == 0 || number_of(node) < handles->first) {
                    handles->first = number_of(node);
                }
                if (list == NULL) {
                    indices[handles->count] = Py_NewRef(index);
                }
                else {
                    failed = PyList_Append(list, index);
                }
                handles->node[handles->count++] = (NodeObject *)Py_NewRef(node);
            }
            failed = failed || is_apart < 0;
        }
        failed = failed || PyErr_Occurred();
        Py_XDECREF(index);
        Py_XDECREF(node);
    }
    if (!failed && list == NULL && has_indices(site, indices, handles->count)) {
        handles->indices = Py_NewRef(site->indices);
    }
    else if (!failed) {
        handles->indices = list == NULL ? as_tuple(indices, handles->count) : PyList_AsTuple(list);
    }
    for (Py_ssize_t i = 0; list == NULL && i < handles->count; i++) {
        Py_DECREF(indices[i]);
    }
    Py_XDECREF(list);
    if (handles->indices == NULL) {
        release_handles(handles);
        return -1;
    }
    return 0;
}

/* What tells whether a piece is private, for some of its outputs; a new reference. */
static PyObject *
find_check(SiteObject *site, PyObject *indices)
{
    if (site->indices == indices && site->check != NULL) {
        return Py_NewRef(site->check);
    }
    PyObject *check = Py_XNewRef(PyDict_GetItemWithError(site->checks, indices));
    if (check == NULL && !PyErr_Occurred()) {
        check = PyObject_CallMethodOneArg((PyObject *)site, name_make_check, indices);
    }
    if (check != NULL && !Py_IS_TYPE(check, &PrivacyType)) {
        Py_CLEAR(check);
        PyErr_SetString(PyExc_TypeError, "a site makes checks of privacy");
    }
    if (check != NULL) {
        Py_XSETREF(site->indices, Py_NewRef(indices));
        Py_XSETREF(site->check, Py_NewRef(check));
    }
    return check;
}

/* Whether a node reads nothing. */
static int
reads_nothing(PyObject *node)
{
    PyObject *inputs = ((NodeObject *)node)->inputs;
    return PyTuple_Check(inputs) && PyTuple_GET_SIZE(inputs) == 0;
}

/* Find the nodes of a piece that are no outputs of calls by now, but for those that may be used by anybody because they
   are made of constants; and which slots are made of leaves alone. Both have room for all slots. */
static void
find_nodes(const PrivacyObject *self, const PieceObject *piece, const Handles *handles, NodeObject **node, char *of_leaves)
{
    memset(node, 0, self->slots * sizeof(NodeObject *));
    for (Py_ssize_t i = 0; i < self->first; i++) {
        of_leaves[i] = i < PyTuple_GET_SIZE(piece->inputs) && reads_nothing(PyTuple_GET_ITEM(piece->inputs, i));
    }
    memset(of_leaves + self->first, 1, self->slots - self->first);
    for (Py_ssize_t i = 0; i < handles->count; i++) {
        node[self->show[i]] = handles->node[i];
    }
    for (Py_ssize_t i = 0; i < self->steps; i++) {
        const PrivacyStep *step = &self->step[i];
        NodeObject *here = node[step->slot];
        if (here == NULL || !PyTuple_Check(here->inputs)) {
            node[step->slot] = NULL;
            of_leaves[step->slot] = 0;
            continue;
        }
        for (Py_ssize_t j = 0; j < step->fresh; j++) {
            Py_ssize_t position = step->read[2 * j];
            if (position < PyTuple_GET_SIZE(here->inputs)) {
                node[step->read[2 * j + 1]] = (NodeObject *)PyTuple_GET_ITEM(here->inputs, position);
            }
        }
    }
    for (Py_ssize_t i = self->steps - 1; i >= 0; i--) {
        const PrivacyStep *step = &self->step[i];
        for (Py_ssize_t j = 0; j < step->operands; j++) {
            of_leaves[step->slot] &= of_leaves[step->operand[j]];
        }
    }
}

/* Return the nodes of a piece behind some of its outputs, by slot, given what tells of all that is behind these. The caller
   frees it. */
NodeObject **
nodes_inside(PyObject *walk, const PieceObject *piece, NodeObject *const *shown, Py_ssize_t count, Py_ssize_t *slots)
{
    const PrivacyObject *self = (PrivacyObject *)walk;
    if (!Py_IS_TYPE(walk, &PrivacyType) || self->shown != count) {
        PyErr_SetString(PyExc_TypeError, "a walk is made for the outputs that are alive");
        return NULL;
    }
    NodeObject **node = PyMem_Malloc(self->slots * (sizeof(NodeObject *) + 1) + 1);
    if (node == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    const Handles handles = {.count = count, .node = (NodeObject **)shown};
    find_nodes(self, piece, &handles, node, (char *)(node + self->slots));
    *slots = self->slots;
    return node;
}

/* Note what is made of leaves alone in a piece that waits; if another piece has noted it before, it was recorded again.
   Returns whether there is anything, or -1 with an exception. */
static int
note_common(const PrivacyObject *self, NodeObject *const *node, const char *of_leaves, PyObject *seen)
{
    int found = 0;
    for (Py_ssize_t i = 0; i < self->steps; i++) {
        NodeObject *here = node[self->step[i].slot];
        if (here == NULL || !of_leaves[self->step[i].slot]) {
            continue;
        }
        int was_seen = here->is_again ? 0 : PySet_Contains(seen, here->id);
        if (was_seen < 0 || (!was_seen && PySet_Add(seen, here->id) < 0)) {
            return -1;
        }
        here->is_again |= was_seen;
        found = 1;
    }
    return found;
}

/* Return the lowest id of what belongs to a piece, without what is common to all. */
static long long
find_oldest(const PrivacyObject *self, NodeObject *const *node, const char *of_leaves)
{
    long long oldest = LLONG_MAX;
    for (Py_ssize_t i = 0; i < self->steps; i++) {
        NodeObject *here = node[self->step[i].slot];
        if (here != NULL && number_of(here) < oldest && !(of_leaves[self->step[i].slot] && here->is_again)) {
            oldest = number_of(here);
        }
    }
    return oldest;
}

/* Whether something of what is common to all is inside of a piece and read there. */
static int
find_common(const PrivacyObject *self, NodeObject *const *node, const char *of_leaves)
{
    for (Py_ssize_t i = 0; i < self->steps; i++) {
        for (Py_ssize_t j = 0; j < self->step[i].operands; j++) {
            Py_ssize_t slot = self->step[i].operand[j];
            if (slot >= self->first && node[slot] != NULL && of_leaves[slot] && node[slot]->is_again) {
                return 1;
            }
        }
    }
    return 0;
}

/* Look at what is inside of a piece: which node is the oldest that belongs to it, and whether something is common to all.
   If ``seen`` is there, what may be that is noted, and looked at once more when all pieces have noted it. */
static int
look_inside(PieceObject *piece, PyObject *seen)
{
    Handles handles;
    if (find_handles(piece, &handles) < 0) {
        return -1;
    }
    PyObject *check = handles.count > 0 ? find_check((SiteObject *)piece->site, handles.indices) : NULL;
    int found = check == NULL && PyErr_Occurred() ? -1 : 0;
    piece->oldest = LLONG_MAX;
    piece->has_common = 0;
    if (check != NULL) {
        const PrivacyObject *self = (PrivacyObject *)check;
        NodeObject **node = PyMem_Malloc(self->slots * (sizeof(NodeObject *) + 1) + 1);
        if (node == NULL) {
            PyErr_NoMemory();
            found = -1;
        }
        else {
            char *of_leaves = (char *)(node + self->slots);
            find_nodes(self, piece, &handles, node, of_leaves);
            found = seen == NULL ? 0 : note_common(self, node, of_leaves, seen);
            piece->oldest = find_oldest(self, node, of_leaves);
            piece->has_common = seen == NULL ? find_common(self, node, of_leaves) : found == 1;
        }
        PyMem_Free(node);
        Py_DECREF(check);
    }
    release_handles(&handles);
    return found < 0 ? -1 : 0;
}

/* Count what a piece that waits reads but for leaves, and note what is made of leaves alone in it. */
int
note_inside(PieceObject *piece, PyObject *seen, PyObject *readers)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(piece->inputs); i++) {
        if (reads_nothing(PyTuple_GET_ITEM(piece->inputs, i))) {
            continue;
        }
        PyObject *key = ((NodeObject *)PyTuple_GET_ITEM(piece->inputs, i))->id;
        PyObject *before = PyDict_GetItemWithError(readers, key);
        long count = before == NULL ? 0 : PyLong_AsLong(before);
        PyObject *now = PyErr_Occurred() ? NULL : PyLong_FromLong(count + 1);
        int failed = now == NULL ? -1 : PyDict_SetItem(readers, key, now);
        Py_XDECREF(now);
        if (failed) {
            return -1;
        }
    }
    return look_inside(piece, seen);
}

/* Return the lowest id of what belongs to a piece that was noted, without what is common to all; -1 is an error. */
long long
oldest_of(PieceObject *piece)
{
    return piece->has_common && look_inside(piece, NULL) < 0 ? -1 : piece->oldest;
}

/* Return the pieces that wait in a queue and came after one, if they have computed what was recorded up to an id. */
static PyObject *
later_pieces(QueueObject *queue, const PieceObject *piece, long long end)
{
    PyObject *list = PyList_New(0);
    for (long long ticket = piece->ticket + 1; list != NULL && ticket < queue->first + queue->count; ticket++) {
        if (ticket < queue->first) {
            continue;
        }
        PieceObject *other = queue->piece[queue->head + (ticket - queue->first)];
        if (other != NULL && Py_REFCNT(other) > 0 && other->oldest != 0 && other->oldest < end &&
            PyList_Append(list, (PyObject *)other) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* Whether two inputs of a piece are one node, by chance: what it contributes to that has to be added up as one. */
static int
has_twins(const PieceObject *piece)
{
    PyObject **input = &PyTuple_GET_ITEM(piece->inputs, 0);
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(piece->inputs); i++) {
        for (Py_ssize_t j = 0; j < i; j++) {
            if (input[i] == input[j] && ((NodeObject *)input[i])->op != constant_op) {
                return 1;
            }
        }
    }
    return 0;
}

/* Return why a piece cannot be folded; PRIVATE if it can. */
static Py_ssize_t
look_outside(SiteObject *site, const Handles *handles)
{
    if (handles->count == 0) {
        return TOO_OLD;
    }
    if (!site->is_ready) {
        PyObject *done = PyObject_CallMethodNoArgs((PyObject *)site, name_make_plan);
        Py_XDECREF(done);
        if (done == NULL) {
            return FAILED;
        }
    }
    PyObject *check = find_check(site, handles->indices);
    if (check == NULL) {
        return FAILED;
    }
    Py_ssize_t found = check_privacy((PrivacyObject *)check, handles->node, handles->count);
    Py_DECREF(check);
    return found;
}

/* Leave a piece as it is. */
static int
let_stay(QueueObject *queue, PieceObject *piece, Py_ssize_t why)
{
    PyObject *reason = PyLong_FromSsize_t(why);
    PyObject *noted = reason == NULL ? NULL : PyObject_CallMethodOneArg(piece->site, name_note_stay, reason);
    PyObject *done = noted == NULL ? NULL : PyObject_CallMethodOneArg((PyObject *)queue, name_on_stay, (PyObject *)piece);
    Py_XDECREF(reason);
    Py_XDECREF(noted);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* What a call keeps for derivatives: what the piece kept, if that is all that it once had. */
static PyObject *
slab_of(QueueObject *queue, PieceObject *piece)
{
    PyObject *residuals = piece->residuals;
    int is_whole = !piece->is_loose && PyTuple_CheckExact(residuals);
    for (Py_ssize_t i = 0; is_whole && i < PyTuple_GET_SIZE(residuals); i++) {
        is_whole = PyTuple_GET_ITEM(residuals, i) != Py_None;
    }
    return is_whole ? Py_NewRef(residuals)
                    : PyObject_CallMethodOneArg((PyObject *)queue, name_slab_of, (PyObject *)piece);
}

/* Tell the ledger of a piece that was folded, if it has to know. */
static int
tell_ledger(QueueObject *queue, PieceObject *piece, CallObject *call)
{
    PyObject *ledger = queue->ledger;
    int done = 0;
    if (ledger != NULL && PyObject_TypeCheck(ledger, &LedgerType) && !piece->is_loose &&
        PySet_GET_SIZE(((SiteObject *)piece->site)->apart_results) == 0) {
        done = note_folded_step((LedgerObject *)ledger, call, piece->slab);
    }
    if (done == 0) {
        PyObject *told =
            PyObject_CallMethodObjArgs((PyObject *)queue, name_on_fold, (PyObject *)call, (PyObject *)piece, NULL);
        done = told == NULL ? -1 : 1;
        Py_XDECREF(told);
    }
    return done < 0 ? -1 : 0;
}

static int
fold_handles(QueueObject *queue, PieceObject *piece, const Handles *handles)
{
    SiteObject *site = (SiteObject *)piece->site;
    /* The call stands just before its outputs in the order of ids. */
    long long number = handles->first - 1;
    PyObject *slab = slab_of(queue, piece);
    PyObject *id = slab == NULL ? NULL : PyLong_FromLongLong(number);
    PyObject *depth = id == NULL ? NULL : PyLong_FromSsize_t(piece->depth);
    CallObject *call = NULL;
    if (depth != NULL) {
        call = fold_into_call(site->plan, piece->inputs, site->origins, id, depth, slab, handles->indices,
                              handles->node);
    }
    Py_XDECREF(slab);
    Py_XDECREF(id);
    Py_XDECREF(depth);
    if (call == NULL) {
        /* The same was recorded and evaluated before; its outputs have tensors that stand for them. */
        return PyErr_Occurred() ? -1 : let_stay(queue, piece, RECORDED_BEFORE);
    }
    ((CountersObject *)counters)->calls++;
    note_bounds(site->length, number);
    int failed = tell_ledger(queue, piece, call) < 0;
    Py_DECREF(call);
    return failed ? -1 : 0;
}

/* Fold a piece if what is inside of it is nobody else's. Returns PRIVATE if so, or why not, or FAILED. Unless it was cut
   already it must be one stretch of what was recorded: all that it reads is older, nothing in it was computed by a later
   piece, or belongs to all steps. */
static Py_ssize_t
fold_whole(QueueObject *queue, PieceObject *piece, int is_cut, const Around *around, long long *end)
{
    Handles handles;
    if (find_handles(piece, &handles) < 0) {
        return FAILED;
    }
    *end = 0;
    int is_of_call = 0;
    for (Py_ssize_t i = 0; i < handles.count; i++) {
        long long id = number_of(handles.node[i]);
        *end = id > *end ? id : *end;
        is_of_call |= !PyTuple_Check(handles.node[i]->inputs);
    }
    Py_ssize_t used = handles.count == 0 ? TOO_OLD : OF_OTHERS;
    if (is_cut) {
        used = look_outside((SiteObject *)piece->site, &handles);
    }
    else if (handles.count > 0 && around->later > *end && (around->readers == NULL || !has_twins(piece))) {
        if (around->readers == NULL && look_inside(piece, NULL) < 0) {
            used = FAILED;
        }
        else if (!piece->has_common && !is_of_call && piece->oldest > piece->newest) {
            used = look_outside((SiteObject *)piece->site, &handles);
        }
    }
    if (used == PRIVATE && fold_handles(queue, piece, &handles) < 0) {
        used = FAILED;
    }
    release_handles(&handles);
    return used;
}

/* Let nothing keep a piece that was folded in parts. */
static void
let_go(PieceObject *piece)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(piece->outputs); i++) {
        NodeObject *node = (NodeObject *)Py_XNewRef(output_alive(piece, i));
        if (node != NULL && node->piece == (PyObject *)piece) {
            Py_XSETREF(node->piece, Py_NewRef(node->value == Py_None ? lost : Py_None));
        }
        Py_XDECREF(node);
    }
}

/* Fold the parts that a piece was cut into, oldest first. Returns PRIVATE if one of them was folded. */
static Py_ssize_t
fold_parts(QueueObject *queue, PyObject *parts)
{
    Py_ssize_t all = OF_OTHERS;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); i++) {
        PieceObject *part = (PieceObject *)PyList_GET_ITEM(parts, i);
        long long end;
        if (!Py_IS_TYPE(part, &PieceType) || measure(part) < 0) {
            return FAILED;
        }
        Py_ssize_t used = fold_whole(queue, part, 1, NULL, &end);
        if (used == FAILED) {
            return FAILED;
        }
        all = used == PRIVATE || all == OF_OTHERS ? used : all;
    }
    return all;
}

/* Fold a piece that has left the queue, if it can be: as it is, or cut. -1 is an error. */
int
fold_piece(QueueObject *queue, PieceObject *piece, const Around *around)
{
    if (counters == NULL) {
        return -1;
    }
    long long end;
    Py_ssize_t used = fold_whole(queue, piece, 0, around, &end);
    if (used == PRIVATE || used == FAILED) {
        return used == FAILED ? -1 : 0;
    }
    PyObject *others = around->later == LLONG_MAX ? PyList_New(0) : later_pieces(queue, piece, end);
    PyObject *parts = others == NULL ? NULL : cut_piece(queue, piece, others, around->readers);
    Py_XDECREF(others);
    if (parts == NULL) {
        return -1;
    }
    if (PyList_Check(parts) && PyList_GET_SIZE(parts) > 0) {
        used = fold_parts(queue, parts);
    }
    Py_DECREF(parts);
    if (used == PRIVATE) {
        PyObject *done = PyObject_CallMethodOneArg((PyObject *)queue, name_on_parted, (PyObject *)piece);
        Py_XDECREF(done);
        let_go(piece);
        return done == NULL ? -1 : 0;
    }
    return used == FAILED ? -1 : let_stay(queue, piece, used);
}

/* Make the names of what folding asks of Python's classes; returns -1 if there is no memory for them. */
int
folding_start(void)
{
    name_make_plan = PyUnicode_InternFromString("make_plan");
    name_note_stay = PyUnicode_InternFromString("note_stay");
    name_make_check = PyUnicode_InternFromString("make_check");
    name_slab_of = PyUnicode_InternFromString("_slab_of");
    name_on_fold = PyUnicode_InternFromString("_on_fold");
    name_on_stay = PyUnicode_InternFromString("_on_stay");
    name_on_parted = PyUnicode_InternFromString("_on_parted");
    return name_make_plan == NULL || name_note_stay == NULL || name_make_check == NULL || name_slab_of == NULL ||
                   name_on_fold == NULL || name_on_stay == NULL || name_on_parted == NULL || cutting_start() < 0
               ? -1
               : 0;
}

PyMethodDef folding_functions[] = {
    {"privacy", privacy, METH_VARARGS, privacy_doc},
    {NULL},
};
