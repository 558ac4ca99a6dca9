/* Steps: what a derivative sweep notes of a loop before it makes nodes, and the runs of them that become one node.

   There are as many as the loop has steps. Nothing that outlives the sweep refers to them, so they are in no cycle, and
   the collector does not need to look at them, nor at what they read, which is part of them. */

#include "steps.h"

static PyObject *
step_number(StepObject *self, void *unused)
{
    return PyLong_FromLongLong(self->number);
}

static PyObject *
step_inputs(StepObject *self, void *unused)
{
    Py_ssize_t count = self->placed == Py_None ? Py_SIZE(self) : 0;
    return as_tuple(self->inputs, count);
}

static PyMemberDef step_members[] = {
    {"plan", T_OBJECT_EX, offsetof(StepObject, plan), READONLY, NULL},
    {"read", T_OBJECT_EX, offsetof(StepObject, read), READONLY, NULL},
    {"made", T_OBJECT_EX, offsetof(StepObject, made), READONLY, NULL},
    {"wanted", T_OBJECT_EX, offsetof(StepObject, wanted), READONLY, NULL},
    {"placed", T_OBJECT_EX, offsetof(StepObject, placed), READONLY, NULL},
    {"position", T_PYSSIZET, offsetof(StepObject, position), READONLY, NULL},
    {NULL},
};

static PyGetSetDef step_getset[] = {
    {"number", (getter)step_number, NULL, "How many steps were noted before.", NULL},
    {"inputs", (getter)step_inputs, NULL, "What the step reads, as long as it is not placed.", NULL},
    {NULL},
};

PyDoc_STRVAR(step_output_doc, "output(index, /)\n--\n\nReturn what stands for an output.");

static PyObject *
step_output(StepObject *self, PyObject *index)
{
    PyObject *here = PyTuple_Pack(1, index), *made = here == NULL ? NULL : PySequence_Concat(self->made, here);
    Py_XDECREF(here);
    if (made == NULL) {
        return NULL;
    }
    Py_SETREF(self->made, made);
    return make_pending(self, index);
}

static PyMethodDef step_methods[] = {
    {"output", (PyCFunction)step_output, METH_O, step_output_doc},
    {NULL},
};

static PyMemberDef pending_members[] = {
    {"step", T_OBJECT_EX, offsetof(PendingObject, step), READONLY, NULL},
    {"index", T_OBJECT_EX, offsetof(PendingObject, index), READONLY, NULL},
    {NULL},
};

/* Steps that nobody refers to and that are not freed yet: what one reads may be the last to refer to another, and so
   on, as far as the loop goes. They are freed one after the other, not one inside the other. */
static StepObject *ending = NULL;
static int is_ending = 0;

static void
step_dealloc(StepObject *self)
{
    self->next = ending;
    ending = self;
    if (is_ending) {
        return;
    }
    is_ending = 1;
    while (ending != NULL) {
        StepObject *step = ending;
        ending = step->next;
        for (Py_ssize_t i = 0; i < Py_SIZE(step); i++) {
            Py_XDECREF(step->inputs[i]);
        }
        Py_XDECREF(step->plan);
        Py_XDECREF(step->read);
        Py_XDECREF(step->made);
        Py_XDECREF(step->wanted);
        Py_XDECREF(step->placed);
        PyObject_Free(step);
    }
    is_ending = 0;
}

static void
pending_dealloc(PendingObject *self)
{
    Py_XDECREF(self->step);
    Py_XDECREF(self->index);
    PyObject_Free(self);
}

PyDoc_STRVAR(pending_keep_doc, "keep()\n--\n\nNote that it will be asked for whatever else reads it; returns itself.");

static PyObject *
pending_keep(PendingObject *self, PyObject *unused)
{
    return keep_pending(self) < 0 ? NULL : Py_NewRef((PyObject *)self);
}

static PyObject *
pending_shape(PendingObject *self, void *unused)
{
    PyObject *shapes = PyObject_GetAttrString(self->step->plan, "output_shapes");
    PyObject *shape = shapes == NULL ? NULL : PyObject_GetItem(shapes, self->index);
    Py_XDECREF(shapes);
    return shape;
}

static PyGetSetDef pending_getset[] = {
    {"shape", (getter)pending_shape, NULL, "Its shape.", NULL},
    {NULL},
};

static PyMethodDef pending_methods[] = {
    {"keep", (PyCFunction)pending_keep, METH_NOARGS, pending_keep_doc},
    {NULL},
};

PyDoc_STRVAR(step_type_doc,
"A derivative call that is not a node yet: a plan and its inputs, tensors or outputs of earlier steps.\n\n"
"``read`` are the positions of inputs that are outputs of earlier steps. ``made`` lists the output of each `Pending` that\n"
"was made of it, ``wanted`` those that are needed whatever else reads them. Once it is ``placed``, ``position`` tells\n"
"where in a chain.");

PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Step",
    .tp_doc = step_type_doc,
    .tp_basicsize = offsetof(StepObject, inputs),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)step_dealloc,
    .tp_members = step_members,
    .tp_getset = step_getset,
    .tp_methods = step_methods,
};

PyTypeObject PendingType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Pending",
    .tp_doc = "An output of a step, before it is a tensor.",
    .tp_basicsize = sizeof(PendingObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)pending_dealloc,
    .tp_members = pending_members,
    .tp_getset = pending_getset,
    .tp_methods = pending_methods,
};

/* --- noting --- */

static long long steps_noted = 0;

/* Make a step with room for what it reads. */
StepObject *
make_step(PyObject *plan, Py_ssize_t size, PyObject *read, PyObject *made)
{
    StepObject *step = PyObject_NewVar(StepObject, &StepType, size);
    if (step != NULL) {
        step->plan = Py_NewRef(plan);
        step->read = Py_NewRef(read);
        step->made = Py_NewRef(made);
        step->wanted = Py_NewRef(empty);
        step->placed = Py_NewRef(Py_None);
        step->number = steps_noted++;
        step->position = step->run = -1;
        memset(step->inputs, 0, size * sizeof(PyObject *));
    }
    return step;
}

PyObject *
make_pending(StepObject *step, PyObject *index)
{
    PendingObject *made = PyObject_New(PendingObject, &PendingType);
    if (made != NULL) {
        made->step = (StepObject *)Py_NewRef((PyObject *)step);
        made->index = Py_NewRef(index);
    }
    return (PyObject *)made;
}

int
keep_pending(PendingObject *pending)
{
    PyObject *here = PyTuple_Pack(1, pending->index);
    PyObject *wanted = here == NULL ? NULL : PySequence_Concat(pending->step->wanted, here);
    Py_XDECREF(here);
    if (wanted == NULL) {
        return -1;
    }
    Py_SETREF(pending->step->wanted, wanted);
    return 0;
}

PyDoc_STRVAR(step_doc,
"step(plan, inputs, /)\n--\n\n"
"Note a derivative call.");

static PyObject *
step(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("step", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyList_Check(args[1])) {
        return PyErr_Format(PyExc_TypeError, "expected a list of what a step reads, got %R", args[1]);
    }
    PyObject *read = PyList_New(0);
    for (Py_ssize_t i = 0; read != NULL && i < PyList_GET_SIZE(args[1]); i++) {
        if (is_pending(PyList_GET_ITEM(args[1], i))) {
            PyObject *position = PyLong_FromSsize_t(i);
            if (position == NULL || PyList_Append(read, position) < 0) {
                Py_CLEAR(read);
            }
            Py_XDECREF(position);
        }
    }
    PyObject *positions = read == NULL ? NULL : PyList_AsTuple(read);
    StepObject *made = positions == NULL ? NULL : make_step(args[0], PyList_GET_SIZE(args[1]), positions, empty);
    Py_XDECREF(read);
    Py_XDECREF(positions);
    for (Py_ssize_t i = 0; made != NULL && i < Py_SIZE(made); i++) {
        made->inputs[i] = Py_NewRef(PyList_GET_ITEM(args[1], i));
    }
    return (PyObject *)made;
}

static int
check_step(PyObject *object)
{
    if (!Py_IS_TYPE(object, &StepType)) {
        PyErr_Format(PyExc_TypeError, "expected a step, got %R", object);
        return -1;
    }
    return 0;
}

/* --- runs of steps --- */

/* Return what a step reads at one of the positions where it reads another step, and the position. */
static inline PendingObject *
read_at(const StepObject *step, Py_ssize_t i, Py_ssize_t *position)
{
    *position = PyLong_AsSsize_t(PyTuple_GET_ITEM(step->read, i));
    return (PendingObject *)step->inputs[*position];
}

static int
compare_steps(const void *one, const void *other)
{
    long long left = (*(StepObject *const *)one)->number, right = (*(StepObject *const *)other)->number;
    return (left > right) - (left < right);
}

/* Return a step and all it depends on that are not placed yet, in the order in which they were noted: new references.
   They belong to no run yet, which is marked by a number that no run has. */
static StepObject **
waiting_steps(StepObject *last, Py_ssize_t *count)
{
    Py_ssize_t room = 64, length = 1;
    StepObject **found = PyMem_New(StepObject *, room);
    if (found == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    found[0] = (StepObject *)Py_NewRef((PyObject *)last);
    last->run = PY_SSIZE_T_MAX;
    int is_in_order = 1;
    for (Py_ssize_t at = 0; at < length; at++) {
        StepObject *step = found[at];
        is_in_order &= at == 0 || step->number < found[at - 1]->number;
        for (Py_ssize_t i = 0, position; i < PyTuple_GET_SIZE(step->read); i++) {
            StepObject *before = read_at(step, i, &position)->step;
            if (before->placed != Py_None || before->run >= 0) {
                continue;
            }
            if (length == room) {
                StepObject **larger = PyMem_Realloc(found, 2 * room * sizeof(StepObject *));
                if (larger == NULL) {
                    for (Py_ssize_t j = 0; j < length; j++) {
                        found[j]->run = -1;
                        Py_DECREF(found[j]);
                    }
                    PyMem_Free(found);
                    PyErr_NoMemory();
                    return NULL;
                }
                found = larger;
                room *= 2;
            }
            before->run = PY_SSIZE_T_MAX;
            found[length++] = (StepObject *)Py_NewRef((PyObject *)before);
        }
    }
    *count = length;
    if (!is_in_order) {
        qsort(found, length, sizeof(StepObject *), compare_steps);
        return found;
    }
    for (Py_ssize_t i = 0; i < length / 2; i++) {
        StepObject *other = found[i];
        found[i] = found[length - 1 - i];
        found[length - 1 - i] = other;
    }
    return found;
}

/* Whether a step reads the one before it, and of others only such as belong to earlier runs, which are placed before. */
static int
follows(const StepObject *step, const StepObject *before)
{
    int reads = 0;
    for (Py_ssize_t i = 0, position; i < PyTuple_GET_SIZE(step->read); i++) {
        const StepObject *other = read_at(step, i, &position)->step;
        if (other != before && other->run == before->run) {
            return 0;
        }
        reads |= other == before;
    }
    return reads;
}

/* Return which inputs of a step are which outputs of the one before: a tuple of pairs. */
static PyObject *
wiring_between(const StepObject *step, const StepObject *before)
{
    PyObject *pairs = PyList_New(0);
    for (Py_ssize_t i = 0, position; pairs != NULL && i < PyTuple_GET_SIZE(step->read); i++) {
        const PendingObject *value = read_at(step, i, &position);
        if (value->step == before) {
            PyObject *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(step->read, i), value->index);
            if (pair == NULL || PyList_Append(pairs, pair) < 0) {
                Py_CLEAR(pairs);
            }
            Py_XDECREF(pair);
        }
    }
    PyObject *wiring = pairs == NULL ? NULL : PyList_AsTuple(pairs);
    Py_XDECREF(pairs);
    return wiring;
}

/* Whether the inputs of a step that are outputs of the one before are those that a wiring has. */
static int
is_wired_so(const StepObject *step, const StepObject *before, PyObject *wiring)
{
    Py_ssize_t met = 0;
    for (Py_ssize_t i = 0, position; i < PyTuple_GET_SIZE(step->read); i++) {
        const PendingObject *value = read_at(step, i, &position);
        if (value->step != before) {
            continue;
        }
        PyObject *pair = met < PyTuple_GET_SIZE(wiring) ? PyTuple_GET_ITEM(wiring, met) : NULL;
        if (pair == NULL || PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0)) != position ||
            PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 1)) != PyLong_AsSsize_t(value->index)) {
            return 0;
        }
        met++;
    }
    return met == PyTuple_GET_SIZE(wiring);
}

/* A run of steps that is being found: of which kind each is, and what the kinds are. */
enum { KINDS = 8 };

typedef struct {
    PyObject *steps; /* a list, or NULL if there is none yet */
    PyObject *plan[KINDS], *wiring[KINDS];
    unsigned char *which;
    Py_ssize_t kinds, number;
} Run;

static int
begin_run(Run *run, StepObject *first)
{
    run->steps = PyList_New(0);
    run->kinds = 0;
    run->number++;
    return run->steps == NULL ? -1 : PyList_Append(run->steps, (PyObject *)first);
}

static void
forget_run(Run *run)
{
    Py_CLEAR(run->steps);
    while (run->kinds > 0) {
        run->kinds--;
        Py_CLEAR(run->wiring[run->kinds]);
    }
}

/* Add a kind to a run; the reference to its wiring is taken over. */
static int
add_kind(Run *run, PyObject *plan, PyObject *wiring)
{
    if (wiring == NULL) {
        return -1;
    }
    run->plan[run->kinds] = plan;
    run->wiring[run->kinds] = wiring;
    return (int)run->kinds++;
}

/* Let a step be the next one of a run: 0 if it cannot be, -1 is an error. */
static int
add_to_run(Run *run, StepObject *step, const StepObject *before, Py_ssize_t longest)
{
    Py_ssize_t length = PyList_GET_SIZE(run->steps);
    if (length >= longest || !follows(step, before)) {
        return 0;
    }
    int kind = 0;
    while (kind < run->kinds && !(run->plan[kind] == step->plan && is_wired_so(step, before, run->wiring[kind]))) {
        kind++;
    }
    /* One more is for the first step, if no other is like it. */
    if (kind == KINDS - 1) {
        return 0;
    }
    if (kind == run->kinds && (kind = add_kind(run, step->plan, wiring_between(step, before))) < 0) {
        return -1;
    }
    run->which[length] = (unsigned char)kind;
    return PyList_Append(run->steps, (PyObject *)step) < 0 ? -1 : 1;
}

/* Add a run to a list: its steps, of which kind each is, and the kinds. The run is none any more. */
static int
end_run(PyObject *runs, Run *run)
{
    PyObject *plan = ((StepObject *)PyList_GET_ITEM(run->steps, 0))->plan;
    int kind = 0;
    while (kind < run->kinds && run->plan[kind] != plan) {
        kind++;
    }
    if (kind == run->kinds && add_kind(run, plan, Py_NewRef(empty)) < 0) {
        return -1;
    }
    run->which[0] = (unsigned char)kind;
    PyObject *kinds = PyTuple_New(run->kinds);
    PyObject *which = PyBytes_FromStringAndSize((const char *)run->which, PyList_GET_SIZE(run->steps));
    int failed = kinds == NULL || which == NULL;
    for (Py_ssize_t i = 0; !failed && i < run->kinds; i++) {
        PyObject *pair = PyTuple_Pack(2, run->plan[i], run->wiring[i]);
        failed = pair == NULL;
        PyTuple_SET_ITEM(kinds, i, pair);
    }
    PyObject *found = failed ? NULL : PyTuple_Pack(3, run->steps, which, kinds);
    failed = found == NULL || PyList_Append(runs, found) < 0;
    Py_XDECREF(found);
    Py_XDECREF(kinds);
    Py_XDECREF(which);
    forget_run(run);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(runs_doc,
"runs(last, longest, /)\n--\n\n"
"Return a step and all it depends on that are not placed yet, in the order in which they were noted, as runs of at most\n"
"so many steps, of which each reads the one before it, and no other of the run.\n\n"
"A run is a list of steps, bytes that tell of which kind each is, and a tuple of at most eight kinds: the plan of a step,\n"
"and its wiring, pairs of an input and of the output of the step before that it is. What the first step reads where its\n"
"kind has such inputs does not matter.");

static PyObject *
runs(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("runs", nargs, 2) < 0 || check_step(args[0]) < 0) {
        return NULL;
    }
    Py_ssize_t longest = PyLong_AsSsize_t(args[1]), count = 0;
    if (longest < 1) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected a positive length");
    }
    StepObject **step = waiting_steps((StepObject *)args[0], &count);
    if (step == NULL) {
        return NULL;
    }
    Run run = {.number = -1, .which = PyMem_Malloc(count)};
    PyObject *found = run.which == NULL ? PyErr_NoMemory() : PyList_New(0);
    int failed = found == NULL;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        int is_next = run.steps == NULL ? 0 : add_to_run(&run, step[i], step[i - 1], longest);
        failed = is_next < 0 || (is_next == 0 && run.steps != NULL && end_run(found, &run) < 0) ||
                 (is_next == 0 && begin_run(&run, step[i]) < 0);
        step[i]->run = run.number;
    }
    failed = failed || end_run(found, &run) < 0;
    forget_run(&run);
    PyMem_Free(run.which);
    for (Py_ssize_t i = 0; i < count; i++) {
        step[i]->run = -1;
        Py_DECREF(step[i]);
    }
    PyMem_Free(step);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

/* Check that an object is a list of steps that are not placed, and not empty; and that they are alike. */
static int
check_run(PyObject *run, int alike)
{
    int is_fit = PyList_Check(run) && PyList_GET_SIZE(run) > 0;
    for (Py_ssize_t i = 0; is_fit && i < PyList_GET_SIZE(run); i++) {
        StepObject *step = (StepObject *)PyList_GET_ITEM(run, i), *first = (StepObject *)PyList_GET_ITEM(run, 0);
        is_fit = Py_IS_TYPE(step, &StepType) && step->placed == Py_None && (!alike || Py_SIZE(step) == Py_SIZE(first));
    }
    if (!is_fit) {
        PyErr_Format(PyExc_TypeError, alike ? "expected a list of steps that are alike and not placed, got %R"
                                      : "expected a list of steps that are not placed, got %R", run);
        return -1;
    }
    return 0;
}

/* Whether something beside a reader may ask for an output of a step: more stand for it than the reader reads. */
static int
is_read_beside(const StepObject *step, const StepObject *reader, PyObject *index)
{
    Py_ssize_t number = PyLong_AsSsize_t(index), others = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(step->made); i++) {
        others += PyLong_AsSsize_t(PyTuple_GET_ITEM(step->made, i)) == number;
    }
    for (Py_ssize_t i = 0, position; i < PyTuple_GET_SIZE(reader->read); i++) {
        const PendingObject *value = read_at(reader, i, &position);
        int is_new = value->step == step && PyLong_AsSsize_t(value->index) == number;
        for (Py_ssize_t j = 0, earlier; is_new && j < i; j++) {
            is_new = read_at(reader, j, &earlier) != value;
        }
        others -= is_new;
    }
    return others > 0;
}

PyDoc_STRVAR(needed_doc,
"needed(run, which, kinds, /)\n--\n\n"
"Return, for each kind of steps of a run, the set of outputs that are needed of some step of it that is not the last of\n"
"the run, beside what the next one reads. ``which`` tells in bytes of which of so many kinds each step is.");

static int
add_needed(PyObject *found, const StepObject *step, const StepObject *reader)
{
    int failed = 0;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(step->wanted); i++) {
        failed = PySet_Add(found, PyTuple_GET_ITEM(step->wanted, i)) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(step->made); i++) {
        PyObject *index = PyTuple_GET_ITEM(step->made, i);
        int is_known = PySet_Contains(found, index);
        failed = is_known < 0 || (!is_known && is_read_beside(step, reader, index) && PySet_Add(found, index) < 0);
    }
    return failed ? -1 : 0;
}

static PyObject *
needed(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("needed", nargs, 3) < 0 || check_run(args[0], 0) < 0) {
        return NULL;
    }
    Py_ssize_t length = PyList_GET_SIZE(args[0]), kinds = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || kinds < 1 || !PyBytes_Check(args[1]) || PyBytes_GET_SIZE(args[1]) != length) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a kind for each step, got %R", args[1]);
    }
    const unsigned char *which = (const unsigned char *)PyBytes_AS_STRING(args[1]);
    PyObject *found = PyList_New(kinds);
    int failed = found == NULL;
    for (Py_ssize_t i = 0; !failed && i < kinds; i++) {
        PyObject *set = PySet_New(NULL);
        failed = set == NULL;
        PyList_SET_ITEM(found, i, set);
    }
    for (Py_ssize_t at = 0; !failed && at + 1 < length; at++) {
        if (which[at] >= kinds) {
            PyErr_SetString(PyExc_IndexError, "a step is of no kind");
            failed = 1;
            break;
        }
        failed = add_needed(PyList_GET_ITEM(found, which[at]), (StepObject *)PyList_GET_ITEM(args[0], at),
                            (StepObject *)PyList_GET_ITEM(args[0], at + 1)) < 0;
    }
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(shared_doc,
"shared(run, /)\n--\n\n"
"Return, for each input of the steps of a run, whether it is the same for all of them.");

static PyObject *
shared(PyObject *module, PyObject *run)
{
    if (check_run(run, 1) < 0) {
        return NULL;
    }
    const StepObject *first = (StepObject *)PyList_GET_ITEM(run, 0);
    PyObject *flags = PyTuple_New(Py_SIZE(first));
    for (Py_ssize_t i = 0; flags != NULL && i < Py_SIZE(first); i++) {
        int is_same = 1;
        for (Py_ssize_t at = 1; is_same && at < PyList_GET_SIZE(run); at++) {
            is_same = ((StepObject *)PyList_GET_ITEM(run, at))->inputs[i] == first->inputs[i];
        }
        PyTuple_SET_ITEM(flags, i, PyBool_FromLong(is_same));
    }
    return flags;
}

PyDoc_STRVAR(read_by_each_doc,
"read_by_each(run, positions, as_tensor, /)\n--\n\n"
"Return what each step of a run reads at some positions: those of the first step, then those of the next, in a list.\n"
"Of outputs of other steps it has what a function makes of them.");

static PyObject *
read_by_each(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("read_by_each", nargs, 3) < 0 || check_run(args[0], 1) < 0) {
        return NULL;
    }
    Py_ssize_t count, size = Py_SIZE(PyList_GET_ITEM(args[0], 0));
    Py_ssize_t *position = read_slots(args[1], 0, size, &count);
    PyObject *found = position == NULL ? NULL : PyList_New(count * PyList_GET_SIZE(args[0]));
    for (Py_ssize_t at = 0; found != NULL && at < PyList_GET_SIZE(args[0]); at++) {
        const StepObject *step = (StepObject *)PyList_GET_ITEM(args[0], at);
        for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
            PyObject *value = step->inputs[position[i]];
            value = is_pending(value) ? PyObject_CallOneArg(args[2], value) : Py_NewRef(value);
            if (value == NULL) {
                Py_CLEAR(found);
                break;
            }
            PyList_SET_ITEM(found, at * count + i, value);
        }
    }
    PyMem_Free(position);
    return found;
}

PyDoc_STRVAR(settle_doc,
"settle(run, placed, /)\n--\n\n"
"Tell the steps of a run where they are now, one after the other; what they read is released.");

static PyObject *
settle(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("settle", nargs, 2) < 0 || check_run(args[0], 1) < 0) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(args[0]); at++) {
        StepObject *step = (StepObject *)PyList_GET_ITEM(args[0], at);
        Py_INCREF(step);
        step->position = at;
        Py_SETREF(step->placed, Py_NewRef(args[1]));
        Py_SETREF(step->read, Py_NewRef(empty));
        for (Py_ssize_t i = 0; i < Py_SIZE(step); i++) {
            Py_CLEAR(step->inputs[i]);
        }
        Py_DECREF(step);
    }
    Py_RETURN_NONE;
}

PyMethodDef step_function_methods[] = {
    {"needed", FAST(needed), METH_FASTCALL, needed_doc},
    {"read_by_each", FAST(read_by_each), METH_FASTCALL, read_by_each_doc},
    {"runs", FAST(runs), METH_FASTCALL, runs_doc},
    {"settle", FAST(settle), METH_FASTCALL, settle_doc},
    {"shared", shared, METH_O, shared_doc},
    {"step", FAST(step), METH_FASTCALL, step_doc},
    {NULL},
};
