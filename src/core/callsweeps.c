/* The sweep through the calls of a loop, one after the other, as far as it is known what to note of them. */

#include "steps.h"

static PyObject *name_of_derivatives;

int
call_sweeps_start(void)
{
    name_of_derivatives = PyUnicode_InternFromString("derivatives");
    return name_of_derivatives == NULL ? -1 : 0;
}

enum { PLANS = 8, FEW = 64, A_TURN = 4096 };

/* What is known of a plan, and the note for what arrived last at a call of it. */
typedef struct {
    PyObject *plan, *passing, *derivatives, *apart;
    NoteObject *note;
    Py_ssize_t size;
    PyTypeObject **type;
    char *needed;
} Known;

typedef struct {
    PyObject_HEAD
    PyObject *shown, *arrived, *wanted, *found, *active, *recurs;
    PyObject *passing_inputs, *form_of, *sum, *factored;
    Known known[PLANS];
    int latest;
} CallSweepObject;

/* What has arrived at a call: at its outputs, then at its inputs. */
typedef struct {
    Py_ssize_t size, outputs;
    PyObject **arriving; /* owned; NULL where nothing has */
    char *needed;        /* of the inputs, which are active */
    PyObject *few[FEW];
    char few_needed[FEW];
} Arrival;

static void
forget_plan(Known *known)
{
    Py_CLEAR(known->plan);
    Py_CLEAR(known->passing);
    Py_CLEAR(known->derivatives);
    Py_CLEAR(known->apart);
    Py_CLEAR(known->note);
    PyMem_Free(known->type);
    PyMem_Free(known->needed);
    known->type = NULL;
    known->needed = NULL;
}

/* Return what is known of the plan of a call. */
static Known *
know_plan(CallSweepObject *self, CallObject *call)
{
    for (int i = 0; i < PLANS; i++) {
        if (self->known[i].plan == call->plan) {
            return &self->known[i];
        }
    }
    self->latest = (self->latest + 1) % PLANS;
    Known *known = &self->known[self->latest];
    forget_plan(known);
    PyObject *passing = PyObject_CallOneArg(self->passing_inputs, call->plan);
    PyObject *derivatives = passing == NULL ? NULL : PyObject_GetAttr(call->plan, name_of_derivatives);
    PyObject *apart = derivatives == NULL ? NULL : PyDict_GetItemWithError(self->recurs, call->plan);
    Py_ssize_t size = call->outputs + PyTuple_GET_SIZE(call->node.inputs);
    /* Asking for it may have asked for others. */
    forget_plan(known);
    known->type = PyMem_Calloc(size + 1, sizeof(PyTypeObject *));
    known->needed = PyMem_Calloc(size + 1, 1);
    if (derivatives == NULL || PyErr_Occurred() || known->type == NULL || known->needed == NULL ||
        !PyTuple_Check(passing) || !PyDict_Check(derivatives) || (apart != NULL && !PyList_Check(apart))) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "expected a tuple of positions, a dict of derivatives and a list");
        }
        Py_XDECREF(passing);
        Py_XDECREF(derivatives);
        forget_plan(known);
        return NULL;
    }
    known->plan = Py_NewRef(call->plan);
    known->passing = passing;
    known->derivatives = derivatives;
    known->apart = Py_XNewRef(apart);
    known->size = size;
    return known;
}

/* Whether what arrives is an output of a step or a tensor: not a sum, nor anything else that has to be put together. */
static inline int
is_simple(PyObject *arrived)
{
    return is_pending(arrived) || is_node(arrived);
}

/* Take what has arrived at a node out of a dict; NULL if nothing has, or with an exception. */
static PyObject *
take_arrived(PyObject *arrived, PyObject *id)
{
    PyObject *found = PyDict_GetItemWithError(arrived, id);
    if (found == NULL || found == Py_None) {
        return NULL;
    }
    Py_INCREF(found);
    if (PyDict_DelItem(arrived, id) < 0) {
        Py_CLEAR(found);
    }
    return found;
}

/* Whether all that has arrived at the outputs that were met is simple, and one at each; -1 is an error. */
static int
are_outputs_simple(PyObject *met, PyObject *arrived, Py_ssize_t outputs)
{
    for (Py_ssize_t i = 0; i < met_count(met); i++) {
        PyObject *found = PyDict_GetItemWithError(arrived, met_at(met, i)->id);
        if (found == NULL || found == Py_None) {
            if (PyErr_Occurred()) {
                return -1;
            }
            continue;
        }
        if (!is_simple(found)) {
            return 0;
        }
        Py_ssize_t index = PyLong_AsSsize_t(met_at(met, i)->output);
        if (index < 0 || index >= outputs) {
            PyErr_SetString(PyExc_IndexError, "a call has no such output");
            return -1;
        }
        for (Py_ssize_t j = 0; j < i; j++) {
            if (PyLong_AsSsize_t(met_at(met, j)->output) == index) {
                return 0;
            }
        }
    }
    return 1;
}

/* Note what has arrived at a node that is asked for. An output of a step has to know that. */
static int
note_found(const CallSweepObject *self, PyObject *id, PyObject *arrived)
{
    int is_wanted = PySet_Contains(self->wanted, id);
    if (is_wanted == 1 && (PyDict_SetItem(self->found, id, arrived) < 0 ||
                           (is_pending(arrived) && keep_pending((PendingObject *)arrived) < 0))) {
        return -1;
    }
    return is_wanted < 0 ? -1 : 0;
}

/* Take what has arrived at the outputs of a call; how much that is, -1 is an error. */
static Py_ssize_t
take_at_outputs(const CallSweepObject *self, PyObject *met, Arrival *arrival)
{
    Py_ssize_t taken = 0;
    for (Py_ssize_t i = 0; i < met_count(met); i++) {
        PyObject *id = met_at(met, i)->id, *found = take_arrived(self->arrived, id);
        if (found == NULL) {
            if (PyErr_Occurred()) {
                return -1;
            }
            continue;
        }
        arrival->arriving[PyLong_AsSsize_t(met_at(met, i)->output)] = found;
        taken++;
        if (note_found(self, id, found) < 0) {
            return -1;
        }
    }
    return taken;
}

/* Take what has arrived at the active inputs of a call. */
static int
take_at_inputs(const CallSweepObject *self, CallObject *call, PyObject *passing, Arrival *arrival)
{
    Py_ssize_t count = PyTuple_GET_SIZE(call->node.inputs);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(passing); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(passing, i));
        if (at < 0 || at >= count) {
            PyErr_SetString(PyExc_IndexError, "a call has no such input");
            return -1;
        }
        PyObject *id = ((NodeObject *)PyTuple_GET_ITEM(call->node.inputs, at))->id;
        int is_active = PySet_Contains(self->active, id);
        if (is_active == 1) {
            arrival->needed[at] = 1;
            /* A node can stand at two inputs; what arrived at it is passed on once. */
            arrival->arriving[arrival->outputs + at] = take_arrived(self->arrived, id);
        }
        if (is_active < 0 || PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

/* Let what arrives at some inputs be a sum that is not added up, so that the call does not add to it. */
static int
keep_apart(const CallSweepObject *self, PyObject *positions, Arrival *arrival)
{
    for (Py_ssize_t i = 0; positions != NULL && i < PyList_GET_SIZE(positions); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyList_GET_ITEM(positions, i));
        if (at < 0 || at >= arrival->size - arrival->outputs || !arrival->needed[at]) {
            continue;
        }
        PyObject **before = &arrival->arriving[arrival->outputs + at];
        if (*before == NULL || (PyObject *)Py_TYPE(*before) != self->sum) {
            PyObject *sum = PyObject_CallFunctionObjArgs(self->sum, *before, NULL);
            if (sum == NULL) {
                return -1;
            }
            Py_XSETREF(*before, sum);
        }
    }
    return 0;
}

static PyObject *
needed_flags(const Arrival *arrival)
{
    Py_ssize_t count = arrival->size - arrival->outputs;
    PyObject *flags = PyTuple_New(count);
    for (Py_ssize_t i = 0; flags != NULL && i < count; i++) {
        PyTuple_SET_ITEM(flags, i, PyBool_FromLong(arrival->needed[i]));
    }
    return flags;
}

static PyTypeObject *
type_of(PyObject *arriving)
{
    return Py_TYPE(arriving == NULL ? Py_None : arriving);
}

/* Whether something arrives as it does in the midst of a loop: nothing, an output of a step, or what is not added up. */
static int
is_lazy(const CallSweepObject *self, PyObject *arriving)
{
    return arriving == NULL || is_pending(arriving) || (PyObject *)Py_TYPE(arriving) == self->sum ||
           (PyObject *)Py_TYPE(arriving) == self->factored;
}

/* Return what a plan has for the forms of what arrives: a borrowed reference, or NULL, maybe with an exception. */
static PyObject *
find_by_forms(const CallSweepObject *self, PyObject *by_forms, const Arrival *arrival)
{
    PyObject *forms = PyTuple_New(arrival->size);
    for (Py_ssize_t i = 0; forms != NULL && i < arrival->size; i++) {
        PyObject *given = arrival->arriving[i];
        PyObject *form = is_lazy(self, given) ? Py_NewRef(Py_None) : PyObject_CallOneArg(self->form_of, given);
        if (form == NULL) {
            Py_CLEAR(forms);
            break;
        }
        PyTuple_SET_ITEM(forms, i, form);
    }
    PyObject *found = forms == NULL ? NULL : PyDict_GetItemWithError(by_forms, forms);
    Py_XDECREF(forms);
    return found;
}

/* Whether the same arrives at a call as at the last one of its plan for which there was a note. */
static int
is_as_before(const Known *known, const Arrival *arrival)
{
    if (known->note == NULL || known->size != arrival->size ||
        memcmp(known->needed, arrival->needed, arrival->size - arrival->outputs) != 0) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < arrival->size; i++) {
        if (known->type[i] != type_of(arrival->arriving[i])) {
            return 0;
        }
    }
    return 1;
}

/* Return the note for what arrives at a call; NULL if there is none, or with an exception. */
static NoteObject *
find_note(const CallSweepObject *self, Known *known, const Arrival *arrival)
{
    if (is_as_before(known, arrival)) {
        return (NoteObject *)Py_NewRef((PyObject *)known->note);
    }
    PyObject *flags = needed_flags(arrival), *pattern = flags == NULL ? NULL : PyTuple_New(arrival->size + 1);
    if (pattern == NULL) {
        Py_XDECREF(flags);
        return NULL;
    }
    PyTuple_SET_ITEM(pattern, 0, flags);
    int all_lazy = 1;
    for (Py_ssize_t i = 0; i < arrival->size; i++) {
        all_lazy &= is_lazy(self, arrival->arriving[i]);
        PyTuple_SET_ITEM(pattern, i + 1, Py_NewRef((PyObject *)type_of(arrival->arriving[i])));
    }
    PyObject *found = PyDict_GetItemWithError(known->derivatives, pattern);
    Py_DECREF(pattern);
    if (found != NULL && PyDict_Check(found)) {
        Py_INCREF(found);
        PyObject *of_forms = find_by_forms(self, found, arrival);
        Py_DECREF(found);
        found = of_forms;
    }
    if (found == NULL || Py_TYPE(found) != &NoteType) {
        return NULL;
    }
    if (all_lazy) {
        Py_XSETREF(known->note, (NoteObject *)Py_NewRef(found));
        memcpy(known->needed, arrival->needed, arrival->size - arrival->outputs);
        for (Py_ssize_t i = 0; i < arrival->size; i++) {
            known->type[i] = type_of(arrival->arriving[i]);
        }
    }
    return (NoteObject *)Py_NewRef(found);
}

static int
begin_arrival(Arrival *arrival, const CallObject *call)
{
    arrival->outputs = call->outputs;
    arrival->size = call->outputs + PyTuple_GET_SIZE(call->node.inputs);
    int is_small = arrival->size <= FEW;
    arrival->arriving = is_small ? arrival->few : PyMem_Malloc(arrival->size * sizeof(PyObject *));
    arrival->needed = is_small ? arrival->few_needed : PyMem_Malloc(arrival->size);
    if (arrival->arriving == NULL || arrival->needed == NULL) {
        PyMem_Free(arrival->arriving);
        PyMem_Free(arrival->needed);
        PyErr_NoMemory();
        return -1;
    }
    memset(arrival->arriving, 0, arrival->size * sizeof(PyObject *));
    memset(arrival->needed, 0, arrival->size);
    return 0;
}

static void
end_arrival(Arrival *arrival)
{
    for (Py_ssize_t i = 0; i < arrival->size; i++) {
        Py_XDECREF(arrival->arriving[i]);
    }
    if (arrival->size > FEW) {
        PyMem_Free(arrival->arriving);
        PyMem_Free(arrival->needed);
    }
}

/* Return what has arrived at a call for which there is no note: the call, a list and flags of its inputs. */
static PyObject *
hand_over(CallObject *call, const Arrival *arrival)
{
    PyObject *arriving = PyList_New(arrival->size), *flags = needed_flags(arrival);
    for (Py_ssize_t i = 0; arriving != NULL && i < arrival->size; i++) {
        PyObject *given = arrival->arriving[i];
        PyList_SET_ITEM(arriving, i, Py_NewRef(given == NULL ? Py_None : given));
    }
    PyObject *result = arriving == NULL || flags == NULL ? NULL : PyTuple_Pack(3, call, arriving, flags);
    Py_XDECREF(arriving);
    Py_XDECREF(flags);
    return result;
}

/* Sweep through a call. Returns NULL with an exception, None if it is done, or what is left to do. */
static PyObject *
sweep_call(CallSweepObject *self, CallObject *call)
{
    PyObject *met = PyDict_GetItemWithError(self->shown, call->node.id);
    if (met == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_KeyError, "%R", call->node.id);
    }
    int simple = are_outputs_simple(met, self->arrived, call->outputs);
    if (simple <= 0) {
        return simple < 0 ? NULL : PyTuple_Pack(1, call);
    }
    Arrival arrival;
    if (begin_arrival(&arrival, call) < 0) {
        return NULL;
    }
    PyObject *result = NULL;
    Known *known = NULL;
    Py_ssize_t taken = take_at_outputs(self, met, &arrival);
    if (taken == 0) {
        result = Py_NewRef(Py_None);
    }
    else if (taken > 0 && (known = know_plan(self, call)) != NULL &&
             take_at_inputs(self, call, known->passing, &arrival) == 0 &&
             keep_apart(self, known->apart, &arrival) == 0) {
        NoteObject *note = find_note(self, known, &arrival);
        if (note != NULL) {
            result = note_step(note, call, arrival.arriving, self->arrived) < 0 ? NULL : Py_NewRef(Py_None);
            Py_DECREF(note);
        }
        else if (!PyErr_Occurred()) {
            result = hand_over(call, &arrival);
        }
    }
    end_arrival(&arrival);
    return result;
}

PyDoc_STRVAR(call_sweep_pull_doc,
"pull(order, floor, /)\n--\n\n"
"Sweep through the calls at the end of a list of nodes, which are taken off it, as far as it is known what to note.\n\n"
"Returns None where the list ends, where the next node is no call, or has an id below a floor. Else a tuple: a call that\n"
"was taken off at which something else than outputs of steps and tensors has arrived; or one with a list of what has\n"
"arrived at its outputs and its inputs, and a tuple that tells which inputs are active, where there is no note.");

static PyObject *
call_sweep_pull(CallSweepObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("pull", nargs, 2) < 0) {
        return NULL;
    }
    long long floor = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || !PyList_Check(args[0])) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list, got %R", args[0]);
    }
    /* Other threads, and whoever interrupts, get their turn. */
    for (int i = 0; i < A_TURN; i++) {
        Py_ssize_t last = PyList_GET_SIZE(args[0]) - 1;
        PyObject *node = last < 0 ? NULL : PyList_GET_ITEM(args[0], last);
        if (node == NULL || Py_TYPE(node) != &CallType || number_of((NodeObject *)node) < floor) {
            break;
        }
        Py_INCREF(node);
        PyObject *left = PyList_SetSlice(args[0], last, last + 1, NULL) < 0 ? NULL : sweep_call(self, (CallObject *)node);
        Py_DECREF(node);
        if (left != Py_None) {
            return left;
        }
        Py_DECREF(left);
    }
    Py_RETURN_NONE;
}

static int
call_sweep_traverse(CallSweepObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->shown);
    Py_VISIT(self->arrived);
    Py_VISIT(self->wanted);
    Py_VISIT(self->found);
    Py_VISIT(self->active);
    Py_VISIT(self->recurs);
    for (int i = 0; i < PLANS; i++) {
        Py_VISIT(self->known[i].plan);
        Py_VISIT(self->known[i].note);
    }
    return 0;
}

static void
call_sweep_dealloc(CallSweepObject *self)
{
    PyObject_GC_UnTrack(self);
    for (int i = 0; i < PLANS; i++) {
        forget_plan(&self->known[i]);
    }
    Py_XDECREF(self->shown);
    Py_XDECREF(self->arrived);
    Py_XDECREF(self->wanted);
    Py_XDECREF(self->found);
    Py_XDECREF(self->active);
    Py_XDECREF(self->recurs);
    Py_XDECREF(self->passing_inputs);
    Py_XDECREF(self->form_of);
    Py_XDECREF(self->sum);
    Py_XDECREF(self->factored);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef call_sweep_methods[] = {
    {"pull", FAST(call_sweep_pull), METH_FASTCALL, call_sweep_pull_doc},
    {NULL},
};

PyTypeObject CallSweepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.CallSweep",
    .tp_doc = "A sweep through calls; see `unspool._autodiff.sweeps.reverse`.",
    .tp_basicsize = sizeof(CallSweepObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)call_sweep_dealloc,
    .tp_traverse = (traverseproc)call_sweep_traverse,
    .tp_methods = call_sweep_methods,
};

PyDoc_STRVAR(call_sweep_doc,
"call_sweep(shown, arrived, wanted, found, active, recurs, passing_inputs, form_of, sum, factored, /)\n--\n\n"
"Return a sweep through calls: ``shown`` are the outputs of each that were met, ``arrived`` what has arrived at nodes,\n"
"``wanted`` the ids of those of which that is noted in ``found``, ``active`` those of what depends on a variable,\n"
"``recurs`` by plan the inputs at which nothing is added to what arrived. Functions tell which inputs a plan is\n"
"differentiated through, and what of a tensor that arrives a note depends on. Two classes are what is not added up.");

static PyObject *
call_sweep(PyObject *module, PyObject *args)
{
    PyObject *shown, *arrived, *wanted, *found, *active, *recurs, *passing_inputs, *form_of, *sum, *factored;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!OOO!O!", &PyDict_Type, &shown, &PyDict_Type, &arrived, &PySet_Type, &wanted,
                          &PyDict_Type, &found, &PySet_Type, &active, &PyDict_Type, &recurs, &passing_inputs, &form_of,
                          &PyType_Type, &sum, &PyType_Type, &factored)) {
        return NULL;
    }
    CallSweepObject *self = (CallSweepObject *)CallSweepType.tp_alloc(&CallSweepType, 0);
    if (self != NULL) {
        self->shown = Py_NewRef(shown);
        self->arrived = Py_NewRef(arrived);
        self->wanted = Py_NewRef(wanted);
        self->found = Py_NewRef(found);
        self->active = Py_NewRef(active);
        self->recurs = Py_NewRef(recurs);
        self->passing_inputs = Py_NewRef(passing_inputs);
        self->form_of = Py_NewRef(form_of);
        self->sum = Py_NewRef(sum);
        self->factored = Py_NewRef(factored);
    }
    return (PyObject *)self;
}

PyMethodDef call_sweep_function_methods[] = {
    {"call_sweep", call_sweep, METH_VARARGS, call_sweep_doc},
    {NULL},
};
