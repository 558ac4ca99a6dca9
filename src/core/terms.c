/* Terms of sums: which of them are outputs of the steps of one chain, one after the other.

   A sum over a loop has as many terms as the loop has steps; see `unspool._autodiff.accumulation`. */

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
    PyObject *placed, *form, *factors, *run;
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
    *spot = (Spot){step->placed, PyTuple_GET_ITEM(term, 0), factors, NULL, step->position};
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

/* The kinds that were met last, with their runs. */
enum { LATEST = 4 };

/* Begin a segment with a term: a borrowed reference. */
static PyObject *
begin_segment(PyObject *segments, PyObject *term)
{
    PyObject *segment = PyList_New(0);
    int failed = segment == NULL || PyList_Append(segment, term) < 0 || PyList_Append(segments, segment) < 0;
    Py_XDECREF(segment);
    return failed ? NULL : segment;
}

/* Add a term to the latest run of its kind, if it stands right after it, or begin a run. */
static int
add_to_run(PyObject *segments, PyObject *term, Spot *spot, Spot *latest, int *newest, PyObject *by_kind)
{
    Spot *known = NULL;
    for (int i = 0; i < LATEST && known == NULL; i++) {
        int is_alike = latest[i].run == NULL ? 0 : are_alike(&latest[i], spot);
        if (is_alike < 0) {
            return -1;
        }
        known = is_alike ? &latest[i] : NULL;
    }
    if (known == NULL) {
        /* Kinds that leave the latest ones are entered in a dict: they rarely come back. */
        *newest = (*newest + 1) % LATEST;
        known = &latest[*newest];
        if (known->run != NULL) {
            PyObject *kind = kind_of(known), *where = kind == NULL ? NULL : Py_BuildValue("On", known->run, known->position);
            int failed = where == NULL || PyDict_SetItem(by_kind, kind, where) < 0;
            Py_XDECREF(kind);
            Py_XDECREF(where);
            if (failed) {
                return -1;
            }
        }
        *known = *spot;
        PyObject *kind = PyDict_GET_SIZE(by_kind) ? kind_of(spot) : NULL;
        PyObject *where = kind == NULL ? NULL : PyDict_GetItemWithError(by_kind, kind);
        Py_XDECREF(kind);
        if (PyErr_Occurred()) {
            return -1;
        }
        known->run = where == NULL ? NULL : PyTuple_GET_ITEM(where, 0);
        known->position = where == NULL ? -1 : PyLong_AsSsize_t(PyTuple_GET_ITEM(where, 1));
    }
    if (known->run == NULL || spot->position != known->position + 1) {
        known->run = begin_segment(segments, term);
    }
    else if (PyList_Append(known->run, term) < 0) {
        return -1;
    }
    known->position = spot->position;
    return known->run == NULL ? -1 : 0;
}

PyDoc_STRVAR(segments_doc,
"segments(terms, factored, /)\n--\n\n"
"Split terms into runs of those whose factors stand one after the other in a chain, and single terms.\n\n"
"A step may give several terms; those of one kind are a run, whatever stands between them. ``factored`` is the class of\n"
"terms that have factors.");

static PyObject *
segments(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("segments", nargs, 2) < 0 || !PyList_Check(args[0])) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list of terms, got %R", args[0]);
    }
    Spot latest[LATEST] = {{NULL}};
    Chain chain = {NULL, NULL};
    int newest = 0;
    PyObject *found = PyList_New(0), *by_kind = PyDict_New();
    int failed = found == NULL || by_kind == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *term = PyList_GET_ITEM(args[0], i);
        Spot spot;
        int has_spot = find_spot(&chain, term, args[1], &spot);
        failed = has_spot < 0 || (has_spot == 0 && begin_segment(found, term) == NULL) ||
                 (has_spot > 0 && add_to_run(found, term, &spot, latest, &newest, by_kind) < 0);
    }
    forget_chain(&chain);
    Py_XDECREF(by_kind);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(longest_pick_doc,
"longest_pick(terms, /)\n--\n\n"
"Return how many terms in a row, at most, are outputs of the steps of one chain.");

static PyObject *
longest_pick(PyObject *module, PyObject *terms)
{
    if (!PyList_Check(terms)) {
        return PyErr_Format(PyExc_TypeError, "expected a list of terms, got %R", terms);
    }
    Chain chain = {NULL, NULL};
    Py_ssize_t longest = 0, length = 0;
    const PendingObject *before = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(terms); i++) {
        PendingObject *term = (PendingObject *)PyList_GET_ITEM(terms, i);
        int is_pick = is_pending(term) ? is_stacked(&chain, term->step, term->index) : 0;
        if (is_pick < 0) {
            forget_chain(&chain);
            return NULL;
        }
        int goes_on = is_pick && before != NULL && before->step->placed == term->step->placed;
        length = goes_on ? length + 1 : is_pick;
        longest = length > longest ? length : longest;
        before = is_pick ? term : NULL;
    }
    forget_chain(&chain);
    return PyLong_FromSsize_t(longest);
}

PyMethodDef term_methods[] = {
    {"longest_pick", longest_pick, METH_O, longest_pick_doc},
    {"segments", FAST(segments), METH_FASTCALL, segments_doc},
    {NULL},
};
