/* The queue of pieces that wait to be folded, oldest first. It does not keep them alive: their outputs do. */

#include "evaluation.h"

static PyObject *name_fold_deep, *name_make_space, *name_is_of_family;

/* --- places --- */

static PieceObject **
place_of(QueueObject *self, long long ticket)
{
    return &self->piece[self->head + (ticket - self->first)];
}

void
leave_queue(PieceObject *piece)
{
    if (piece->queue != NULL) {
        *place_of(piece->queue, piece->ticket) = NULL;
        piece->queue = NULL;
    }
}

/* Make room for some places at the end, which is what mostly comes, or in front. */
static int
make_places(QueueObject *self, Py_ssize_t front, Py_ssize_t end)
{
    Py_ssize_t needed = front + self->count + end;
    if (self->head >= front && self->head + self->count + end <= self->room) {
        return 0;
    }
    if (2 * needed > self->room) {
        Py_ssize_t room = 4 * needed < 64 ? 64 : 4 * needed;
        PieceObject **piece = PyMem_Realloc(self->piece, room * sizeof(PieceObject *));
        if (piece == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->piece = piece;
        self->room = room;
    }
    memmove(self->piece + front, self->piece + self->head, self->count * sizeof(PieceObject *));
    self->head = front;
    return 0;
}

static int
enter_queue(QueueObject *self, PieceObject *piece)
{
    if (make_places(self, 0, 1) < 0) {
        return -1;
    }
    leave_queue(piece);
    piece->queue = self;
    piece->ticket = self->first + self->count++;
    *place_of(self, piece->ticket) = piece;
    return 0;
}

static void
empty_queue(QueueObject *self)
{
    for (Py_ssize_t i = 0; i < self->count; i++) {
        PieceObject *piece = self->piece[self->head + i];
        if (piece != NULL) {
            piece->queue = NULL;
        }
    }
    self->first += self->count;
    self->head = self->count = 0;
}

/* Close the gaps among the oldest pieces, up to a ticket: those that are left move towards the end. */
static void
close_gaps(QueueObject *self, long long end)
{
    long long last = self->first + self->count;
    long long to = end < last ? end : last;
    for (long long ticket = to - 1; ticket >= self->first; ticket--) {
        PieceObject *piece = *place_of(self, ticket);
        if (piece != NULL) {
            piece->ticket = --to;
            *place_of(self, to) = piece;
        }
    }
    if (to > self->first) {
        Py_ssize_t gone = (Py_ssize_t)(to - self->first);
        self->head += gone;
        self->count -= gone;
        self->first = to;
    }
}

/* --- what every step does --- */

/* Let the results of a piece keep it while it waits. If its row has become deep, or very many wait, some are folded. */
static int
append(QueueObject *self, PieceObject *piece, NodeObject *const *results, Py_ssize_t count)
{
    RowObject *row = place(piece, results, count);
    if (row == NULL || enter_queue(self, piece) < 0) {
        return -1;
    }
    Py_ssize_t deeper = piece->depth - self->most, every = self->most + 1 - self->after;
    PyObject *done = NULL;
    if (deeper > 0 && every > 0 && (deeper - 1) % every == 0) {
        PyObject *depth = PyLong_FromSsize_t(piece->depth - self->after);
        Py_INCREF(row);
        done = depth == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)self, name_fold_deep, row, depth, NULL);
        Py_XDECREF(depth);
        Py_DECREF(row);
    }
    else if (self->count > self->crowd) {
        done = PyObject_CallMethodNoArgs((PyObject *)self, name_make_space);
    }
    else {
        return 0;
    }
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The results of a piece that are part of it, of its outputs. Returns how many there are, or -1 with an exception. */
static Py_ssize_t
own_results(const SiteObject *site, NodeObject *const *outputs, Py_ssize_t count, NodeObject **own)
{
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; i < site->results && i < count; i++) {
        PyObject *index = PyLong_FromSsize_t(i);
        int is_apart = index == NULL ? -1 : PySet_Contains(site->apart_results, index);
        Py_XDECREF(index);
        if (is_apart < 0) {
            return -1;
        }
        if (!is_apart) {
            own[found++] = outputs[i];
        }
    }
    return found;
}

/* Remember a piece that ran by its plan. */
int
queue_step(QueueObject *self, SiteObject *site, PyObject *inputs, NodeObject *const *outputs, Py_ssize_t count,
           PyObject *residuals)
{
    PieceObject *piece = make_piece((PyObject *)site, inputs, outputs, count, residuals);
    if (piece == NULL) {
        return -1;
    }
    int failed;
    Py_ssize_t results = site->results < count ? site->results : count;
    if (PySet_GET_SIZE(site->apart_results) == 0) {
        failed = append(self, piece, outputs, results);
    }
    else {
        NodeObject **own = PyMem_Calloc(results + 1, sizeof(NodeObject *));
        Py_ssize_t found = own == NULL ? -1 : own_results(site, outputs, count, own);
        failed = found < 0 ? -1 : append(self, piece, own, found);
        if (own == NULL) {
            PyErr_NoMemory();
        }
        PyMem_Free(own);
    }
    Py_DECREF(piece);
    return failed;
}

/* --- methods --- */

PyDoc_STRVAR(add_doc,
"add(site, inputs, outputs, residuals, /)\n--\n\n"
"Remember a piece that ran by plan; if its row has become deep, or too many wait, fold those that have waited long\n"
"enough.");

static PyObject *
queue_add(PyObject *self, PyObject *args)
{
    PyObject *site, *inputs, *outputs, *residuals;
    if (!PyArg_ParseTuple(args, "O!O!O!O!", &SiteType, &site, &PyTuple_Type, &inputs, &PyTuple_Type, &outputs,
                          &PyTuple_Type, &residuals) ||
        check_nodes(NULL, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs)) < 0 ||
        check_nodes(NULL, &PyTuple_GET_ITEM(outputs, 0), PyTuple_GET_SIZE(outputs)) < 0) {
        return NULL;
    }
    int failed = queue_step((QueueObject *)self, (SiteObject *)site, inputs,
                            (NodeObject *const *)&PyTuple_GET_ITEM(outputs, 0), PyTuple_GET_SIZE(outputs), residuals);
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

/* The results of a piece that are alive and part of it, as a tuple. */
static PyObject *
live_results(const PieceObject *piece)
{
    const SiteObject *site = (SiteObject *)piece->site;
    PyObject *held = PyTuple_New(site->results); /* first: it may collect garbage */
    Py_ssize_t found = 0;
    for (Py_ssize_t i = 0; held != NULL && i < site->results; i++) {
        NodeObject *node = (NodeObject *)Py_XNewRef(output_alive(piece, i));
        PyObject *index = PyLong_FromSsize_t(i);
        int is_apart = index == NULL ? -1 : PySet_Contains(site->apart_results, index);
        Py_XDECREF(index);
        if (is_apart == 0 && node != NULL) {
            PyTuple_SET_ITEM(held, found++, (PyObject *)node);
            continue;
        }
        Py_XDECREF(node);
        if (is_apart < 0) {
            Py_CLEAR(held);
        }
    }
    if (held != NULL) {
        _PyTuple_Resize(&held, found);
    }
    return held;
}

static PyObject *
checked_piece(PyObject *object)
{
    if (!Py_IS_TYPE(object, &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", object);
    }
    return live_results((PieceObject *)object);
}

PyDoc_STRVAR(add_loose_doc, "add_loose(piece, /)\n--\n\nRemember a piece that ran node by node.");

static PyObject *
queue_add_loose(PyObject *self, PyObject *object)
{
    PyObject *results = checked_piece(object);
    if (results == NULL) {
        return NULL;
    }
    PieceObject *piece = (PieceObject *)object;
    piece->is_loose = 1;
    int failed = append((QueueObject *)self, piece, (NodeObject *const *)&PyTuple_GET_ITEM(results, 0),
                        PyTuple_GET_SIZE(results));
    Py_DECREF(results);
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(place_doc, "place(piece, /)\n--\n\nLet the results of a piece keep it, and enter it into its row.");

static PyObject *
queue_place(PyObject *self, PyObject *object)
{
    PyObject *results = checked_piece(object);
    if (results == NULL) {
        return NULL;
    }
    RowObject *row = place((PieceObject *)object, (NodeObject *const *)&PyTuple_GET_ITEM(results, 0),
                           PyTuple_GET_SIZE(results));
    Py_DECREF(results);
    return row == NULL ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(enter_doc, "enter(piece, /)\n--\n\nLet a piece wait that was placed.");

static PyObject *
queue_enter(PyObject *self, PyObject *object)
{
    if (!Py_IS_TYPE(object, &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", object);
    }
    return enter_queue((QueueObject *)self, (PieceObject *)object) < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(leave_doc, "leave(piece, /)\n--\n\nLet a piece wait no longer, if it does in this queue.");

static PyObject *
queue_leave(PyObject *object, PyObject *piece)
{
    QueueObject *self = (QueueObject *)object;
    if (Py_IS_TYPE(piece, &PieceType) && ((PieceObject *)piece)->queue == self) {
        long long ticket = ((PieceObject *)piece)->ticket;
        leave_queue((PieceObject *)piece);
        close_gaps(self, ticket + 1);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(alive_doc, "alive()\n--\n\nReturn the pieces that wait, oldest first.");

static PyObject *
queue_alive(PyObject *object, PyObject *unused)
{
    QueueObject *self = (QueueObject *)object;
    /* Making the list may collect garbage, and end some of them. */
    PyObject *list = PyList_New(self->count);
    Py_ssize_t found = 0, room = list == NULL ? 0 : PyList_GET_SIZE(list);
    for (Py_ssize_t i = 0; i < self->count && found < room; i++) {
        PieceObject *piece = self->piece[self->head + i];
        if (piece != NULL && Py_REFCNT(piece) > 0) {
            PyList_SET_ITEM(list, found++, Py_NewRef(piece));
        }
    }
    if (list != NULL) {
        Py_SET_SIZE(list, found);
    }
    return list;
}

static PyObject *
queue_clear_out(PyObject *self, PyObject *unused)
{
    empty_queue((QueueObject *)self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(pad_doc, "pad(count, /)\n--\n\nWait as if so many pieces had been there before, and had died.");

static PyObject *
queue_pad(PyObject *object, PyObject *count)
{
    QueueObject *self = (QueueObject *)object;
    Py_ssize_t missing = PyLong_AsSsize_t(count);
    if (missing == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (missing > 0) {
        if (make_places(self, missing, 0) < 0) {
            return NULL;
        }
        self->head -= missing;
        self->first -= missing;
        self->count += missing;
        memset(self->piece + self->head, 0, missing * sizeof(PieceObject *));
    }
    Py_RETURN_NONE;
}

/* --- folding --- */

/* Whether a piece is of a row, and no deeper than some depth. */
static int
is_of_row(const PieceObject *piece, const RowObject *row, Py_ssize_t depth)
{
    return piece->depth <= depth && piece->row != Py_None && whole_row((RowObject *)piece->row) == row;
}

/* Return how many of the pieces that wait read a node, by its id; note which nodes of leaves alone several have. */
static PyObject *
find_readers(QueueObject *self)
{
    PyObject *readers = PyDict_New(), *seen = PySet_New(NULL);
    int failed = readers == NULL || seen == NULL;
    for (long long ticket = self->first; !failed && ticket < self->first + self->count; ticket++) {
        PieceObject *piece = *place_of(self, ticket);
        if (piece != NULL && Py_REFCNT(piece) > 0) {
            Py_INCREF(piece);
            failed = note_inside(piece, seen, readers) < 0;
            Py_DECREF(piece);
            ticket = ticket < self->first ? self->first : ticket;
        }
    }
    Py_XDECREF(seen);
    if (failed) {
        Py_CLEAR(readers);
    }
    return readers;
}

/* Return, for each of the oldest pieces, the lowest id of what the pieces after it have computed. The caller frees it. */
static long long *
find_later(QueueObject *self, long long end)
{
    long long first = self->first, oldest = LLONG_MAX;
    long long *later = PyMem_Malloc((self->count + 1) * sizeof(long long));
    if (later == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (long long ticket = first + self->count - 1; ticket >= first && ticket >= self->first; ticket--) {
        if (ticket < end) {
            later[ticket - first] = oldest;
        }
        PieceObject *piece = ticket < self->first + self->count ? *place_of(self, ticket) : NULL;
        if (piece == NULL || Py_REFCNT(piece) == 0) {
            continue;
        }
        Py_INCREF(piece);
        long long found = oldest_of(piece);
        Py_DECREF(piece);
        if (found < 0) {
            PyMem_Free(later);
            return NULL;
        }
        oldest = found < oldest ? found : oldest;
    }
    return later;
}

/* Fold those of the oldest so many pieces that are chosen: those of a row up to a depth, or those that a function says,
   or all. What else waits stays in its order, what has died leaves. */
static int
fold_oldest(QueueObject *self, Py_ssize_t most, const RowObject *row, Py_ssize_t depth, PyObject *choose)
{
    long long end = self->first + (most < self->count ? most : self->count);
    long long begin = self->first;
    PyObject *readers = find_readers(self);
    long long *later = readers == NULL ? NULL : find_later(self, end);
    int failed = later == NULL;
    for (long long ticket = self->first; ticket < end && !failed; ticket++) {
        /* Folding may run anything, and what waits may have become less. */
        ticket = ticket < self->first ? self->first : ticket;
        if (ticket >= end || ticket >= self->first + self->count) {
            break;
        }
        PieceObject *piece = *place_of(self, ticket);
        if (piece == NULL || Py_REFCNT(piece) == 0) {
            continue;
        }
        Py_INCREF(piece);
        int is_chosen = row == NULL || is_of_row(piece, row, depth);
        if (choose != NULL) {
            PyObject *answer = PyObject_CallOneArg(choose, (PyObject *)piece);
            is_chosen = answer == NULL ? -1 : PyObject_IsTrue(answer);
            Py_XDECREF(answer);
        }
        failed = is_chosen < 0;
        if (is_chosen == 1 && piece->queue == self) {
            leave_queue(piece);
            const Around around = {readers, later[ticket - begin]};
            failed = fold_piece(self, piece, &around) < 0;
        }
        Py_DECREF(piece);
    }
    PyMem_Free(later);
    Py_XDECREF(readers);
    close_gaps(self, end);
    return failed ? -1 : 0;
}

/* Whether a piece reads an output of something that was folded as part of a row. */
static int
reads_folded(const PieceObject *piece)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(piece->inputs); i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(piece->inputs, i);
        if (Py_IS_TYPE(operand, (PyTypeObject *)projection_class) && is_call(operand->inputs) &&
            PyObject_IsTrue(((CallObject *)operand->inputs)->depth) == 1) {
            return 1;
        }
    }
    return 0;
}

PyDoc_STRVAR(will_fold_doc,
"will_fold(piece, /)\n--\n\n"
"Return whether a piece that waits is folded before anything is differentiated: it is part of a loop.");

static PyObject *
queue_will_fold(PyObject *object, PyObject *given)
{
    QueueObject *self = (QueueObject *)object;
    if (!Py_IS_TYPE(given, &PieceType) || ((PieceObject *)given)->row == Py_None) {
        return PyErr_Format(PyExc_TypeError, "expected a piece that was placed, got %R", given);
    }
    const PieceObject *piece = (PieceObject *)given;
    const RowObject *row = whole_row((RowObject *)piece->row);
    if (row->depth > self->most || (row->nodes >= self->many_nodes && row->depth >= self->fewest_long) ||
        ((SiteObject *)piece->site)->has_bundles || reads_folded(piece)) {
        Py_RETURN_TRUE;
    }
    if (self->families == NULL || !PyDict_Check(self->families) || PyDict_GET_SIZE(self->families) == 0) {
        Py_RETURN_FALSE;
    }
    return PyObject_CallMethodOneArg(object, name_is_of_family, given);
}

PyDoc_STRVAR(fold_row_doc, "fold_row(row, depth, /)\n--\n\nFold the pieces of a row up to a depth.");

static PyObject *
queue_fold_row(PyObject *self, PyObject *args)
{
    PyObject *row;
    Py_ssize_t depth;
    if (!PyArg_ParseTuple(args, "O!n", &RowType, &row, &depth)) {
        return NULL;
    }
    int failed = fold_oldest((QueueObject *)self, PY_SSIZE_T_MAX, (RowObject *)row, depth, NULL);
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(fold_chosen_doc,
"fold_chosen(choose, most, /)\n--\n\n"
"Fold the pieces that a function chooses, or all, among the oldest so many, or all; forget what has died of them.");

static PyObject *
queue_fold_chosen(PyObject *self, PyObject *args)
{
    PyObject *choose, *number;
    if (!PyArg_ParseTuple(args, "OO", &choose, &number)) {
        return NULL;
    }
    Py_ssize_t most = number == Py_None ? PY_SSIZE_T_MAX : PyLong_AsSsize_t(number);
    if (PyErr_Occurred()) {
        return NULL;
    }
    int failed = fold_oldest((QueueObject *)self, most, NULL, 0, choose == Py_None ? NULL : choose);
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

PyDoc_STRVAR(fold_one_doc, "fold_one(piece, /)\n--\n\nFold a piece that does not wait, if it can be.");

static PyObject *
queue_fold_one(PyObject *self, PyObject *piece)
{
    if (!Py_IS_TYPE(piece, &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", piece);
    }
    const Around nothing = {NULL, LLONG_MAX};
    return fold_piece((QueueObject *)self, (PieceObject *)piece, &nothing) < 0 ? NULL : Py_NewRef(Py_None);
}

/* --- the type --- */

static int
queue_traverse(QueueObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->ledger);
    Py_VISIT(self->families);
    return 0;
}

static int
queue_clear(QueueObject *self)
{
    Py_CLEAR(self->ledger);
    Py_CLEAR(self->families);
    return 0;
}

static void
queue_dealloc(QueueObject *self)
{
    PyObject_GC_UnTrack(self);
    empty_queue(self);
    queue_clear(self);
    PyMem_Free(self->piece);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t
queue_length(PyObject *self)
{
    return ((QueueObject *)self)->count;
}

static PySequenceMethods queue_as_sequence = {.sq_length = queue_length};

static int
queue_is_there(PyObject *self)
{
    return 1;
}

static PyNumberMethods queue_as_number = {.nb_bool = queue_is_there};

static PyMemberDef queue_members[] = {
    {"ledger", T_OBJECT, offsetof(QueueObject, ledger), 0, NULL},
    {"most", T_PYSSIZET, offsetof(QueueObject, most), 0, NULL},
    {"after", T_PYSSIZET, offsetof(QueueObject, after), 0, NULL},
    {"crowd", T_PYSSIZET, offsetof(QueueObject, crowd), 0, NULL},
    {"many_nodes", T_PYSSIZET, offsetof(QueueObject, many_nodes), 0, NULL},
    {"fewest_long", T_PYSSIZET, offsetof(QueueObject, fewest_long), 0, NULL},
    {"families", T_OBJECT, offsetof(QueueObject, families), 0, NULL},
    {NULL},
};

static PyMethodDef queue_methods[] = {
    {"add", queue_add, METH_VARARGS, add_doc},
    {"add_loose", queue_add_loose, METH_O, add_loose_doc},
    {"place", queue_place, METH_O, place_doc},
    {"enter", queue_enter, METH_O, enter_doc},
    {"leave", queue_leave, METH_O, leave_doc},
    {"alive", queue_alive, METH_NOARGS, alive_doc},
    {"clear", queue_clear_out, METH_NOARGS, "clear()\n--\n\nForget what waits: it stays as it is."},
    {"pad", queue_pad, METH_O, pad_doc},
    {"will_fold", queue_will_fold, METH_O, will_fold_doc},
    {"fold_row", queue_fold_row, METH_VARARGS, fold_row_doc},
    {"fold_chosen", queue_fold_chosen, METH_VARARGS, fold_chosen_doc},
    {"fold_one", queue_fold_one, METH_O, fold_one_doc},
    {NULL},
};

PyDoc_STRVAR(queue_doc,
"Pieces that wait to be folded; see `unspool._engine.folding.fold_queue.FoldQueue`.\n\n"
"Its length counts those that have died since it was last looked after.");

PyTypeObject QueueType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.QueueBase",
    .tp_doc = queue_doc,
    .tp_basicsize = sizeof(QueueObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)queue_dealloc,
    .tp_traverse = (traverseproc)queue_traverse,
    .tp_clear = (inquiry)queue_clear,
    .tp_as_sequence = &queue_as_sequence,
    .tp_as_number = &queue_as_number,
    .tp_members = queue_members,
    .tp_methods = queue_methods,
};

/* Make the names of what a queue asks of Python's class; returns -1 if there is no memory for them. */
int
queue_start(void)
{
    name_fold_deep = PyUnicode_InternFromString("_fold_deep");
    name_make_space = PyUnicode_InternFromString("_make_space");
    name_is_of_family = PyUnicode_InternFromString("_is_of_family");
    return name_fold_deep == NULL || name_make_space == NULL || name_is_of_family == NULL ? -1 : 0;
}
