/* Notes: how a derivative call is noted for a call of a loop.

   What arrives at a call, and where what it gives goes, is the same for nearly all steps of a loop. `unspool._autodiff`
   works it out once, as a table of where the inputs of the derived plan come from and what its outputs are for; here it
   is done for each step. */

#include "steps.h"

/* --- tables --- */

enum { NOTHING, PLAIN, FACTORED, TERMS };

/* What arrives at an input of a call: an output of the step, factors that are, or several such terms. */
typedef struct Form {
    int kind;
    Py_ssize_t count;
    PyObject *tag;    /* what is made of factors */
    PyObject **index; /* outputs */
    struct Form *part;
} Form;

enum { FROM_INPUT, FROM_OUTPUT, FROM_ARRIVING, FROM_MASKED, FROM_KEEP, FROM_NODE };

/* Where an input of the step comes from: an input or an output of the call, what arrived, its parts if it is masked. */
typedef struct {
    int kind;
    Py_ssize_t position;
    PyObject *number, *node;
} Source;

struct NoteObject {
    PyObject_HEAD
    PyObject *plan, *read, *made;
    PyObject *factored, *sum, *merge, *output; /* classes of contributions, what adds them, what gives outputs of calls */
    Py_ssize_t outputs, inputs, sources;       /* of the call, of the step */
    Source *source;
    Form *form; /* one for each input of the call */
};

static PyObject *name_of_terms, *name_of_inputs;

int
notes_start(void)
{
    name_of_terms = PyUnicode_InternFromString("terms");
    name_of_inputs = PyUnicode_InternFromString("inputs");
    return name_of_terms == NULL || name_of_inputs == NULL ? -1 : 0;
}

static void
free_form(Form *form)
{
    for (Py_ssize_t i = 0; i < form->count; i++) {
        if (form->index != NULL) {
            Py_XDECREF(form->index[i]);
        }
        if (form->part != NULL) {
            free_form(&form->part[i]);
        }
    }
    Py_XDECREF(form->tag);
    PyMem_Free(form->index);
    PyMem_Free(form->part);
}

/* Read a form: ("plain", i), ("factored", tag, i, ...), ("terms", form, ...) or None; outputs are added to a list. */
static int
read_form(Form *form, PyObject *given, PyObject *made)
{
    if (given == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) < 1 || !PyUnicode_Check(PyTuple_GET_ITEM(given, 0))) {
        PyErr_Format(PyExc_TypeError, "expected a form, got %R", given);
        return -1;
    }
    PyObject *kind = PyTuple_GET_ITEM(given, 0);
    Py_ssize_t first = 1, size = PyTuple_GET_SIZE(given);
    if (PyUnicode_CompareWithASCIIString(kind, "terms") == 0) {
        form->kind = TERMS;
        form->part = PyMem_Calloc(size, sizeof(Form));
    }
    else if (PyUnicode_CompareWithASCIIString(kind, "factored") == 0 && size > 2) {
        form->kind = FACTORED;
        form->tag = Py_NewRef(PyTuple_GET_ITEM(given, 1));
        first = 2;
    }
    else if (PyUnicode_CompareWithASCIIString(kind, "plain") == 0 && size == 2) {
        form->kind = PLAIN;
    }
    else {
        PyErr_Format(PyExc_ValueError, "expected a form, got %R", given);
        return -1;
    }
    if (form->kind != TERMS) {
        form->index = PyMem_Calloc(size, sizeof(PyObject *));
    }
    if (form->part == NULL && form->index == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = first; i < size; i++) {
        PyObject *item = PyTuple_GET_ITEM(given, i);
        form->count++;
        if (form->kind == TERMS ? read_form(&form->part[i - first], item, made) < 0 : PyList_Append(made, item) < 0) {
            return -1;
        }
        if (form->kind != TERMS) {
            form->index[i - first] = Py_NewRef(item);
        }
    }
    return 0;
}

/* Read where an input comes from: (kind, position), or ("node", node). */
static int
read_source(NoteObject *note, Source *source, PyObject *given)
{
    static const char *const kinds[] = {"input", "output", "number", "masked", "keep", "node"};
    PyObject *kind, *what;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "UO", &kind, &what)) {
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_TypeError, "sources are pairs"), -1);
    }
    source->kind = FROM_INPUT;
    while (source->kind < FROM_NODE && PyUnicode_CompareWithASCIIString(kind, kinds[source->kind]) != 0) {
        source->kind++;
    }
    if (source->kind == FROM_NODE) {
        source->node = Py_NewRef(what);
        return 0;
    }
    Py_ssize_t end = source->kind == FROM_INPUT ? note->inputs : note->outputs;
    end += source->kind > FROM_OUTPUT ? note->inputs : 0;
    source->position = PyLong_AsSsize_t(what);
    if (source->position < 0 || source->position >= end) {
        PyErr_Format(PyExc_ValueError, "there is no %U %R", kind, what);
        return -1;
    }
    source->number = Py_NewRef(what);
    return 0;
}

/* --- noting a step --- */

/* Return what arrived at a call, or a part of it if it is masked: a new reference. */
static PyObject *
part_of(PyObject *masked, Py_ssize_t which)
{
    PyObject *parts = PyObject_GetAttr(masked, name_of_inputs);
    PyObject *part = parts == NULL ? NULL : PySequence_GetItem(parts, which);
    Py_XDECREF(parts);
    return part;
}

static PyObject *
input_from(const NoteObject *note, const Source *source, CallObject *call, PyObject *const *arriving)
{
    PyObject *given = NULL;
    switch (source->kind) {
    case FROM_INPUT:
        return Py_NewRef(PyTuple_GET_ITEM(call->node.inputs, source->position));
    case FROM_NODE:
        return Py_NewRef(source->node);
    case FROM_OUTPUT:
        given = (PyObject *)call->handles[source->position];
        return given != NULL && Py_REFCNT(given) > 0
                   ? Py_NewRef(given)
                   : PyObject_CallFunctionObjArgs(note->output, (PyObject *)call, source->number, NULL);
    default:
        given = arriving[source->position];
        if (given == NULL) {
            PyErr_SetString(PyExc_ValueError, "nothing has arrived where a derivative reads");
            return NULL;
        }
        return source->kind == FROM_ARRIVING ? Py_NewRef(given) : part_of(given, source->kind == FROM_KEEP);
    }
}

/* Return what a form stands for of a step. */
static PyObject *
make_result(const NoteObject *note, const Form *form, StepObject *step)
{
    if (form->kind == PLAIN) {
        return make_pending(step, form->index[0]);
    }
    PyObject *parts = PyTuple_New(form->count);
    for (Py_ssize_t i = 0; parts != NULL && i < form->count; i++) {
        PyObject *part = form->kind == TERMS ? make_result(note, &form->part[i], step) : make_pending(step, form->index[i]);
        if (part == NULL) {
            Py_CLEAR(parts);
            break;
        }
        PyTuple_SET_ITEM(parts, i, part);
    }
    if (parts == NULL || form->kind == TERMS) {
        PyObject *sum = parts == NULL ? NULL : PyObject_Call(note->sum, parts, NULL);
        Py_XDECREF(parts);
        return sum;
    }
    PyTypeObject *class = (PyTypeObject *)note->factored;
    PyObject *factored = class->tp_alloc(class, 2);
    if (factored == NULL) {
        Py_DECREF(parts);
        return NULL;
    }
    PyTuple_SET_ITEM(factored, 0, Py_NewRef(form->tag));
    PyTuple_SET_ITEM(factored, 1, parts);
    /* Steps are older than what is noted of them. A sweep has one of these for every variable of every step. */
    PyObject_GC_UnTrack(parts);
    PyObject_GC_UnTrack(factored);
    return factored;
}

/* Add the parts of a result to a sum that is not added up. */
static int
add_terms(const NoteObject *note, const Form *form, StepObject *step, PyObject *sum)
{
    PyObject *terms = PyObject_GetAttr(sum, name_of_terms);
    int failed = terms == NULL || !PyList_Check(terms);
    for (Py_ssize_t i = 0; !failed && form->kind == TERMS && i < form->count; i++) {
        PyObject *part = make_result(note, &form->part[i], step);
        failed = part == NULL || PyList_Append(terms, part) < 0;
        Py_XDECREF(part);
    }
    /* Nothing has arrived where a sum is empty and stays so. */
    int is_empty = !failed && PyList_GET_SIZE(terms) == 0;
    Py_XDECREF(terms);
    return failed ? -1 : is_empty;
}

static PyObject *
merged(const NoteObject *note, PyObject *before, PyObject *after)
{
    return PyObject_CallFunctionObjArgs(note->merge, before, after, NULL);
}

/* Let something arrive at a node; the reference is taken over. */
static int
arrive_at(const NoteObject *note, PyObject *id, PyObject *given, PyObject *arrived)
{
    PyObject *earlier = PyDict_GetItemWithError(arrived, id);
    if (earlier != NULL && earlier != Py_None) {
        Py_INCREF(earlier);
        Py_SETREF(given, merged(note, earlier, given));
        Py_DECREF(earlier);
    }
    int failed = given == NULL || PyErr_Occurred() || PyDict_SetItem(arrived, id, given) < 0;
    Py_XDECREF(given);
    return failed ? -1 : 0;
}

/* Let what arrived at an input of a call arrive there, with what a step gives. */
static int
pass_on(const NoteObject *note, const Form *form, StepObject *step, PyObject *before, PyObject *id, PyObject *arrived)
{
    if (before != NULL && (PyObject *)Py_TYPE(before) == note->sum) {
        int is_empty = add_terms(note, form, step, before);
        return is_empty != 0 ? (is_empty < 0 ? -1 : 0) : arrive_at(note, id, Py_NewRef(before), arrived);
    }
    if (form->kind == NOTHING) {
        return before == NULL ? 0 : arrive_at(note, id, Py_NewRef(before), arrived);
    }
    PyObject *given = make_result(note, form, step);
    if (given != NULL && before != NULL && (PyObject *)Py_TYPE(before) == note->factored) {
        Py_SETREF(given, merged(note, before, given));
    }
    return given == NULL ? -1 : arrive_at(note, id, given, arrived);
}

/* Note the step for a call, and let what it gives arrive at the inputs of the call. */
int
note_step(const NoteObject *note, CallObject *call, PyObject *const *arriving, PyObject *arrived)
{
    if (call->outputs != note->outputs || PyTuple_GET_SIZE(call->node.inputs) != note->inputs) {
        PyErr_SetString(PyExc_ValueError, "a note is for another call");
        return -1;
    }
    StepObject *step = make_step(note->plan, note->sources, note->read, note->made);
    int failed = step == NULL;
    for (Py_ssize_t i = 0; !failed && i < note->sources; i++) {
        step->inputs[i] = input_from(note, &note->source[i], call, arriving);
        failed = step->inputs[i] == NULL;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(note->read); i++) {
        failed = !is_pending(step->inputs[PyLong_AsSsize_t(PyTuple_GET_ITEM(note->read, i))]);
        if (failed) {
            PyErr_SetString(PyExc_TypeError, "a step reads something else than a note says");
        }
    }
    for (Py_ssize_t i = note->inputs - 1; !failed && i >= 0; i--) { /* as `calls.passing_inputs` has them */
        PyObject *id = ((NodeObject *)PyTuple_GET_ITEM(call->node.inputs, i))->id;
        failed = pass_on(note, &note->form[i], step, arriving[note->outputs + i], id, arrived) < 0;
    }
    Py_XDECREF(step);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(note_apply_doc,
"apply(call, arriving, arrived, /)\n--\n\n"
"Note the step for a call at which the like of this arrives, outputs first.");

static PyObject *
note_apply(NoteObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("apply", nargs, 3) < 0) {
        return NULL;
    }
    Py_ssize_t size = self->outputs + self->inputs;
    if (!is_call(args[0]) || !PyList_Check(args[1]) || PyList_GET_SIZE(args[1]) != size || !PyDict_Check(args[2])) {
        return PyErr_Format(PyExc_TypeError, "expected a call, a list of %zd and a dict", size);
    }
    PyObject **arriving = PyMem_Calloc(size + 1, sizeof(PyObject *));
    if (arriving == NULL) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject *item = PyList_GET_ITEM(args[1], i);
        arriving[i] = item == Py_None ? NULL : Py_NewRef(item);
    }
    int failed = note_step(self, (CallObject *)args[0], arriving, args[2]) < 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_XDECREF(arriving[i]);
    }
    PyMem_Free(arriving);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* --- the type of notes --- */

static int
note_traverse(NoteObject *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self->source != NULL && i < self->sources; i++) {
        Py_VISIT(self->source[i].node);
    }
    Py_VISIT(self->plan);
    Py_VISIT(self->factored);
    Py_VISIT(self->sum);
    Py_VISIT(self->merge);
    Py_VISIT(self->output);
    return 0;
}

/* A plan has its notes, and they have plans derived from it. */
static int
note_clear(NoteObject *self)
{
    for (Py_ssize_t i = 0; self->source != NULL && i < self->sources; i++) {
        Py_CLEAR(self->source[i].node);
        Py_CLEAR(self->source[i].number);
    }
    self->sources = 0;
    Py_CLEAR(self->plan);
    Py_CLEAR(self->factored);
    Py_CLEAR(self->sum);
    Py_CLEAR(self->merge);
    Py_CLEAR(self->output);
    return 0;
}

static void
note_dealloc(NoteObject *self)
{
    PyObject_GC_UnTrack(self);
    note_clear(self);
    Py_XDECREF(self->read);
    Py_XDECREF(self->made);
    for (Py_ssize_t i = 0; self->form != NULL && i < self->inputs; i++) {
        free_form(&self->form[i]);
    }
    PyMem_Free(self->source);
    PyMem_Free(self->form);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef note_methods[] = {
    {"apply", FAST(note_apply), METH_FASTCALL, note_apply_doc},
    {NULL},
};

PyTypeObject NoteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Note",
    .tp_doc = "How a derivative call is noted; see `unspool._autodiff.sweeps.step_templates`.",
    .tp_basicsize = sizeof(NoteObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)note_dealloc,
    .tp_traverse = (traverseproc)note_traverse,
    .tp_clear = (inquiry)note_clear,
    .tp_methods = note_methods,
};

PyDoc_STRVAR(note_doc,
"note(plan, outputs, sources, read, forms, factored, sum, merge, output, /)\n--\n\n"
"Return how a call of a derived plan is noted for calls with so many outputs and an input for each of the forms.\n\n"
"``sources`` say where its inputs come from: (\"input\", i) or (\"output\", i) of the call, what arrived (\"number\", i),\n"
"the numbers (\"masked\", i) or what to keep (\"keep\", i) of what arrived masked, or (\"node\", node). ``read`` are the\n"
"positions of those that are pending. A form says what arrives at an input of the call: None, (\"plain\", i),\n"
"(\"factored\", tag, i, ...) or (\"terms\", form, ...). ``factored`` and ``sum`` are the classes of the last two, ``merge``\n"
"adds what arrives at one node, ``output`` gives outputs of calls.");

static PyObject *
note(PyObject *module, PyObject *args)
{
    PyObject *plan, *sources, *read, *forms, *factored, *sum, *merge, *output;
    Py_ssize_t outputs;
    if (!PyArg_ParseTuple(args, "OnO!O!O!O!O!OO", &plan, &outputs, &PyTuple_Type, &sources, &PyTuple_Type, &read,
                          &PyTuple_Type, &forms, &PyType_Type, &factored, &PyType_Type, &sum, &merge, &output)) {
        return NULL;
    }
    if (outputs < 0 || !PyType_IsSubtype((PyTypeObject *)factored, &PyTuple_Type)) {
        return PyErr_Format(PyExc_TypeError, "expected a number of outputs, and a class of tuples");
    }
    NoteObject *self = (NoteObject *)NoteType.tp_alloc(&NoteType, 0);
    PyObject *made = self == NULL ? NULL : PyList_New(0);
    if (made == NULL) {
        Py_XDECREF(self);
        return NULL;
    }
    self->plan = Py_NewRef(plan);
    self->read = Py_NewRef(read);
    self->factored = Py_NewRef(factored);
    self->sum = Py_NewRef(sum);
    self->merge = Py_NewRef(merge);
    self->output = Py_NewRef(output);
    self->outputs = outputs;
    self->inputs = PyTuple_GET_SIZE(forms);
    self->sources = PyTuple_GET_SIZE(sources);
    self->source = PyMem_Calloc(self->sources + 1, sizeof(Source));
    self->form = PyMem_Calloc(self->inputs + 1, sizeof(Form));
    int failed = self->source == NULL || self->form == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; !failed && i < self->sources; i++) {
        failed = read_source(self, &self->source[i], PyTuple_GET_ITEM(sources, i)) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < self->inputs; i++) {
        failed = read_form(&self->form[i], PyTuple_GET_ITEM(forms, i), made) < 0;
    }
    Py_ssize_t count, *positions = failed ? NULL : read_slots(read, 0, self->sources, &count);
    self->made = positions == NULL ? NULL : PyList_AsTuple(made);
    PyMem_Free(positions);
    Py_DECREF(made);
    if (self->made == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

PyMethodDef note_function_methods[] = {
    {"note", note, METH_VARARGS, note_doc},
    {NULL},
};
