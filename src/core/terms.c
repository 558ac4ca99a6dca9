/* Terms of sums: which of them can be gathered, and which are outputs of the steps of one chain, one after the other.

   A sum over a loop has as many terms as the loop has steps; see `unspool._autodiff.sweeps.accumulation`. */

#include "steps.h"

static PyObject *name_of_length, *name_of_stacks;

int
terms_start(void)
{
    name_of_length = PyUnicode_InternFromString("length");
    name_of_stacks = PyUnicode_InternFromString("stacks");
    return name_of_length == NULL || name_of_stacks == NULL ? -1 : 0;
}

/* Return the outputs of the steps that are stacked up where a step was placed: a new reference; NULL if it is not part of
   a chain, or with an exception. */
static PyObject *
stacks_of(const StepObject *step)
{
    PyObject *length = step->placed == Py_None ? NULL : PyObject_GetAttr(step->placed, name_of_length);
    int is_chain = length == NULL ? 0 : PyObject_IsTrue(length);
    Py_XDECREF(length);
    return is_chain > 0 ? PyObject_GetAttr(step->placed, name_of_stacks) : NULL;
}

/* Where the factors of a term are: a chain, a position in it, and what of its steps they are. References are borrowed from
   the term. */
typedef struct {
    PyObject *placed, *form, *factors;
    Py_ssize_t position;
} Spot;

/* The chain that was met last, whose stacks are looked up once; NULL where a step is no part of a chain. */
typedef struct {
    PyObject *placed, *stacks;
} Chain;

static int
is_stacked(Chain *chain, const StepObject *step, PyObject *index)
{
    if (chain->placed != step->placed) {
        PyObject *stacks = stacks_of(step);
        if (stacks == NULL && PyErr_Occurred()) {
            return -1;
        }
        Py_XSETREF(chain->stacks, stacks);
        Py_XSETREF(chain->placed, Py_NewRef(step->placed));
    }
    return chain->stacks == NULL ? 0 : PySequence_Contains(chain->stacks, index);
}

static void
forget_chain(Chain *chain)
{
    Py_CLEAR(chain->placed);
    Py_CLEAR(chain->stacks);
}

/* Find the spot of a term whose factors one step of a chain gave; 0 if it has none, -1 is an error. */
static int
find_spot(Chain *chain, PyObject *term, PyObject *factored, Spot *spot)
{
    if ((PyObject *)Py_TYPE(term) != factored || PyTuple_GET_SIZE(term) != 2) {
        return 0;
    }
    PyObject *factors = PyTuple_GET_ITEM(term, 1), *first = NULL;
    Py_ssize_t count = PyTuple_Check(factors) ? PyTuple_GET_SIZE(factors) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *factor = PyTuple_GET_ITEM(factors, i);
        if (!is_pending(factor)) {
            return 0;
        }
        first = i == 0 ? factor : first;
        const StepObject *step = ((PendingObject *)factor)->step;
        if (step != ((PendingObject *)first)->step) {
            return 0;
        }
        int is_there = is_stacked(chain, step, ((PendingObject *)factor)->index);
        if (is_there <= 0) {
            return is_there;
        }
    }
    if (count == 0) {
        return 0;
    }
    const StepObject *step = ((PendingObject *)first)->step;
    *spot = (Spot){step->placed, PyTuple_GET_ITEM(term, 0), factors, step->position};
    return 1;
}

/* Whether two spots are of one kind: the same outputs of steps of one chain, of which the same is made. */
static int
are_alike(const Spot *one, const Spot *other)
{
    Py_ssize_t count = PyTuple_GET_SIZE(one->factors);
    if (one->placed != other->placed || count != PyTuple_GET_SIZE(other->factors)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *left = ((PendingObject *)PyTuple_GET_ITEM(one->factors, i))->index;
        PyObject *right = ((PendingObject *)PyTuple_GET_ITEM(other->factors, i))->index;
        if (left != right && PyLong_AsSsize_t(left) != PyLong_AsSsize_t(right)) {
            return 0;
        }
    }
    return agree(one->form, other->form);
}

/* Return what a dict knows a kind by. */
static PyObject *
kind_of(const Spot *spot)
{
    Py_ssize_t count = PyTuple_GET_SIZE(spot->factors);
    PyObject *kind = PyTuple_New(count + 2), *place = PyLong_FromVoidPtr(spot->placed);
    if (kind == NULL || place == NULL) {
        Py_XDECREF(kind);
        Py_XDECREF(place);
        return NULL;
    }
    PyTuple_SET_ITEM(kind, 0, place);
    PyTuple_SET_ITEM(kind, 1, Py_NewRef(spot->form));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyTuple_SET_ITEM(kind, i + 2, Py_NewRef(((PendingObject *)PyTuple_GET_ITEM(spot->factors, i))->index));
    }
    return kind;
}

/* --- groups --- */

/* Rows of numbers that grow. */
typedef struct {
    long long *number;
    Py_ssize_t size, room;
} Numbers;

static int
add_number(Numbers *numbers, long long number)
{
    if (numbers->size == numbers->room) {
        Py_ssize_t room = 2 * numbers->room + 48;
        long long *number_at = PyMem_Realloc(numbers->number, room * sizeof(long long));
        if (number_at == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        numbers->number = number_at;
        numbers->room = room;
    }
    numbers->number[numbers->size++] = number;
    return 0;
}

static PyObject *
bytes_of(const Numbers *numbers)
{
    return PyBytes_FromStringAndSize((const char *)numbers->number, numbers->size * (Py_ssize_t)sizeof(long long));
}

/* Terms that can be gathered: a list of their sources, and of each term where it stands among all, the number of its
   source, and its position there. */
typedef struct {
    PyObject *key, *sources;
    Numbers rows;
} Group;

/* A source of terms that was met: of which group it is, and which source of that. */
typedef struct {
    Spot spot;
    Py_ssize_t group, number;
} Source;

enum { LATEST = 4 };

/* Terms, told apart. */
typedef struct {
    PyObject *factored, *read;
    Group *group;
    Py_ssize_t groups, room;
    PyObject *by_key;    /* numbers of groups */
    PyObject *by_kind;   /* of the sources that left the latest ones: they rarely come back */
    Source latest[LATEST];
    int newest;
    Chain chain;
    Numbers plain;
} Parting;

static void
end_parting(Parting *self)
{
    for (Py_ssize_t i = 0; i < self->groups; i++) {
        Py_XDECREF(self->group[i].key);
        Py_XDECREF(self->group[i].sources);
        PyMem_Free(self->group[i].rows.number);
    }
    PyMem_Free(self->group);
    PyMem_Free(self->plain.number);
    Py_XDECREF(self->by_key);
    Py_XDECREF(self->by_kind);
    forget_chain(&self->chain);
}

/* Return the number of a group, which is made if there is none; -1 is an error. */
static Py_ssize_t
group_of(Parting *self, PyObject *key)
{
    PyObject *known = PyDict_GetItemWithError(self->by_key, key);
    if (known != NULL || PyErr_Occurred()) {
        return known == NULL ? -1 : PyLong_AsSsize_t(known);
    }
    if (self->groups == self->room) {
        Py_ssize_t room = 2 * self->room + 4;
        Group *group = PyMem_Realloc(self->group, room * sizeof(Group));
        if (group == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->group = group;
        self->room = room;
    }
    PyObject *number = PyLong_FromSsize_t(self->groups), *sources = PyList_New(0);
    if (number == NULL || sources == NULL || PyDict_SetItem(self->by_key, key, number) < 0) {
        Py_XDECREF(number);
        Py_XDECREF(sources);
        return -1;
    }
    Py_DECREF(number);
    self->group[self->groups] = (Group){Py_NewRef(key), sources, {NULL, 0, 0}};
    return self->groups++;
}

/* Enter a term as a source: its group and its number there; -1 is an error, 0 that it cannot be gathered. */
static int
enter_source(Parting *self, PyObject *term, Py_ssize_t *group, Py_ssize_t *number)
{
    PyObject *read = PyObject_CallOneArg(self->read, term);
    if (read == NULL || read == Py_None) {
        Py_XDECREF(read);
        return read == NULL ? -1 : 0;
    }
    int done = -1;
    if (!PyTuple_Check(read) || PyTuple_GET_SIZE(read) != 2) {
        PyErr_Format(PyExc_TypeError, "expected a key and factors, got %R", read);
    }
    else if ((*group = group_of(self, PyTuple_GET_ITEM(read, 0))) >= 0) {
        PyObject *sources = self->group[*group].sources;
        *number = PyList_GET_SIZE(sources);
        done = PyList_Append(sources, PyTuple_GET_ITEM(read, 1)) < 0 ? -1 : 1;
    }
    Py_DECREF(read);
    return done;
}

/* Return the source of a spot among those that were met last: borrowed, or NULL with or without an exception. */
static Source *
find_latest(Parting *self, const Spot *spot)
{
    for (int i = 0; i < LATEST; i++) {
        int is_alike = self->latest[i].spot.placed == NULL ? 0 : are_alike(&self->latest[i].spot, spot);
        if (is_alike != 0) {
            return is_alike < 0 ? NULL : &self->latest[i];
        }
    }
    return NULL;
}

/* Make room among the latest sources; what leaves them is entered in a dict. */
static Source *
next_latest(Parting *self)
{
    self->newest = (self->newest + 1) % LATEST;
    Source *source = &self->latest[self->newest];
    if (source->spot.placed != NULL) {
        PyObject *kind = kind_of(&source->spot);
        PyObject *where = kind == NULL ? NULL : Py_BuildValue("nn", source->group, source->number);
        int failed = where == NULL || PyDict_SetItem(self->by_kind, kind, where) < 0;
        Py_XDECREF(kind);
        Py_XDECREF(where);
        if (failed) {
            return NULL;
        }
    }
    source->spot.placed = NULL;
    return source;
}

/* Return the source of a term whose factors steps of a chain gave: borrowed, or NULL with an exception. */
static Source *
source_of(Parting *self, PyObject *term, const Spot *spot)
{
    Source *source = find_latest(self, spot);
    if (source != NULL || PyErr_Occurred() || (source = next_latest(self)) == NULL) {
        return source;
    }
    PyObject *kind = PyDict_GET_SIZE(self->by_kind) ? kind_of(spot) : NULL;
    PyObject *where = kind == NULL ? NULL : PyDict_GetItemWithError(self->by_kind, kind);
    Py_XDECREF(kind);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (where != NULL) {
        source->group = PyLong_AsSsize_t(PyTuple_GET_ITEM(where, 0));
        source->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(where, 1));
    }
    else {
        int is_entered = enter_source(self, term, &source->group, &source->number);
        if (is_entered <= 0) {
            if (is_entered == 0) {
                PyErr_Format(PyExc_TypeError, "expected a key of factors, got none for %R", term);
            }
            return NULL;
        }
    }
    source->spot = *spot;
    return source;
}

static int
part_term(Parting *self, PyObject *term, Py_ssize_t index)
{
    Spot spot;
    Py_ssize_t group, number, position = -1;
    int is_gathered = is_pending(term) ? 0 : find_spot(&self->chain, term, self->factored, &spot);
    if (is_gathered > 0) {
        const Source *source = source_of(self, term, &spot);
        if (source == NULL) {
            return -1;
        }
        group = source->group;
        number = source->number;
        position = spot.position;
    }
    else if (is_gathered == 0 && !is_pending(term)) {
        is_gathered = enter_source(self, term, &group, &number);
    }
    if (is_gathered <= 0) {
        return is_gathered < 0 ? -1 : add_number(&self->plain, index);
    }
    Numbers *rows = &self->group[group].rows;
    return add_number(rows, index) < 0 || add_number(rows, number) < 0 ? -1 : add_number(rows, position);
}

static PyObject *
parts_of(const Parting *self)
{
    PyObject *groups = PyList_New(self->groups), *plain = bytes_of(&self->plain);
    int failed = groups == NULL || plain == NULL;
    for (Py_ssize_t i = 0; !failed && i < self->groups; i++) {
        const Group *group = &self->group[i];
        PyObject *rows = bytes_of(&group->rows);
        PyObject *entry = rows == NULL ? NULL : PyTuple_Pack(3, group->key, group->sources, rows);
        Py_XDECREF(rows);
        failed = entry == NULL;
        PyList_SET_ITEM(groups, i, entry);
    }
    PyObject *found = failed ? NULL : PyTuple_Pack(2, plain, groups);
    Py_XDECREF(groups);
    Py_XDECREF(plain);
    return found;
}

PyDoc_STRVAR(part_terms_doc,
"part_terms(terms, factored, read, /)\n--\n\n"
"Tell terms that can be gathered from others: return where those others stand, and a list of groups.\n\n"
"A group is a key, a list of sources and rows of three numbers, one row a term in their order: where it stands, the\n"
"number of its source, and its position in the chain that this stands for, -1 if the term is the source itself. Numbers\n"
"are 64 bits each, in bytes. ``factored`` is the class of terms that have factors; ``read(term)`` returns a key and a\n"
"term of that class, or None.");

static PyObject *
part_terms(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("part_terms", nargs, 3) < 0 || !PyList_Check(args[0])) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list of terms, got %R", args[0]);
    }
    Parting self = {.factored = args[1], .read = args[2], .by_key = PyDict_New(), .by_kind = PyDict_New()};
    int failed = self.by_key == NULL || self.by_kind == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(args[0]); i++) {
        failed = part_term(&self, PyList_GET_ITEM(args[0], i), i) < 0;
    }
    PyObject *found = failed ? NULL : parts_of(&self);
    end_parting(&self);
    return found;
}

PyDoc_STRVAR(longest_pick_doc,
"longest_pick(terms, /)\n--\n\n"
"Return how many terms in a row, at most, are outputs of steps of chains.");

static PyObject *
longest_pick(PyObject *module, PyObject *terms)
{
    if (!PyList_Check(terms)) {
        return PyErr_Format(PyExc_TypeError, "expected a list of terms, got %R", terms);
    }
    Chain chain = {NULL, NULL};
    Py_ssize_t longest = 0, length = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(terms); i++) {
        PendingObject *term = (PendingObject *)PyList_GET_ITEM(terms, i);
        int is_pick = is_pending(term) ? is_stacked(&chain, term->step, term->index) : 0;
        if (is_pick < 0) {
            forget_chain(&chain);
            return NULL;
        }
        length = is_pick ? length + 1 : 0;
        longest = length > longest ? length : longest;
    }
    forget_chain(&chain);
    return PyLong_FromSsize_t(longest);
}

PyDoc_STRVAR(run_of_terms_doc,
"run_of_terms(terms, start, /)\n--\n\n"
"Return whether a term is an output of a step of a chain that is stacked up, and where the next one is that differs.");

static PyObject *
run_of_terms(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("run_of_terms", nargs, 2) < 0 || !PyList_Check(args[0])) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list of terms, got %R", args[0]);
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), stop = start;
    if (start < 0 || start >= PyList_GET_SIZE(args[0])) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "there is no such term");
    }
    Chain chain = {NULL, NULL};
    int first = -1, is_pick = -1;
    for (; stop < PyList_GET_SIZE(args[0]); stop++) {
        PendingObject *term = (PendingObject *)PyList_GET_ITEM(args[0], stop);
        is_pick = is_pending(term) ? is_stacked(&chain, term->step, term->index) : 0;
        first = stop == start ? is_pick : first;
        if (is_pick < 0 || is_pick != first) {
            break;
        }
    }
    forget_chain(&chain);
    return is_pick < 0 ? NULL : Py_BuildValue("(On)", first ? Py_True : Py_False, stop);
}

/* Return the number of the stack that an output of a step is a row of; a new one gets the next number. */
static Py_ssize_t
stack_of(PyObject *known, PyObject *sources, PyObject *output)
{
    const PendingObject *term = (PendingObject *)output;
    PyObject *placed = PyLong_FromVoidPtr(term->step->placed);
    PyObject *key = placed == NULL ? NULL : PyTuple_Pack(2, placed, term->index);
    PyObject *number = key == NULL ? NULL : PyDict_GetItemWithError(known, key);
    Py_ssize_t found = -1;
    if (number != NULL) {
        found = PyLong_AsSsize_t(number);
    } else if (key != NULL && !PyErr_Occurred()) {
        number = PyLong_FromSsize_t(PyList_GET_SIZE(sources));
        if (number != NULL && PyDict_SetItem(known, key, number) == 0 && PyList_Append(sources, output) == 0) {
            found = PyList_GET_SIZE(sources) - 1;
        }
        Py_XDECREF(number);
    }
    Py_XDECREF(placed);
    Py_XDECREF(key);
    return found;
}

PyDoc_STRVAR(row_table_doc,
"row_table(outputs, /)\n--\n\n"
"Return of which stacks some outputs of steps are rows: an output of each, in the order in which they are met; the\n"
"number of the stack of each output, and its row there, numbers of 64 bits in bytes.");

static PyObject *
row_table(PyObject *module, PyObject *outputs)
{
    if (!PyList_Check(outputs)) {
        return PyErr_Format(PyExc_TypeError, "expected a list of outputs of steps, got %R", outputs);
    }
    Numbers numbers = {NULL, 0, 0}, rows = {NULL, 0, 0};
    PyObject *known = PyDict_New(), *sources = PyList_New(0), *found = NULL;
    int failed = known == NULL || sources == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(outputs); i++) {
        PyObject *output = PyList_GET_ITEM(outputs, i);
        if (!is_pending(output)) {
            PyErr_Format(PyExc_TypeError, "expected an output of a step, got %R", output);
            failed = 1;
            break;
        }
        const PendingObject *before = i > 0 ? (PendingObject *)PyList_GET_ITEM(outputs, i - 1) : NULL;
        int is_same = before != NULL && before->step->placed == ((PendingObject *)output)->step->placed &&
                      before->index == ((PendingObject *)output)->index;
        long long number = is_same ? numbers.number[numbers.size - 1] : stack_of(known, sources, output);
        failed = number < 0 || add_number(&numbers, number) < 0 ||
                 add_number(&rows, ((PendingObject *)output)->step->position) < 0;
    }
    PyObject *of_stacks = failed ? NULL : bytes_of(&numbers), *of_rows = failed ? NULL : bytes_of(&rows);
    if (of_stacks != NULL && of_rows != NULL) {
        found = PyTuple_Pack(3, sources, of_stacks, of_rows);
    }
    PyMem_Free(numbers.number);
    PyMem_Free(rows.number);
    Py_XDECREF(known);
    Py_XDECREF(sources);
    Py_XDECREF(of_stacks);
    Py_XDECREF(of_rows);
    return found;
}

PyMethodDef term_methods[] = {
    {"longest_pick", longest_pick, METH_O, longest_pick_doc},
    {"row_table", row_table, METH_O, row_table_doc},
    {"run_of_terms", FAST(run_of_terms), METH_FASTCALL, run_of_terms_doc},
    {"part_terms", FAST(part_terms), METH_FASTCALL, part_terms_doc},
    {NULL},
};
