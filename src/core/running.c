/* Running a piece that is recognised: the whole step of a plain loop that repeats. */

#include "evaluation.h"

#include <time.h>

PyObject *default_runner, *watched, *general_float;

static PyObject *name_item, *name_acquire, *name_release;

typedef struct {
    PyObject_HEAD
    PyObject *lines;    /* lists of sites by the key of a line */
    LedgerObject *ledger;
    QueueObject *queue;
    PyObject *observer; /* a context variable: who is told of every kernel, if anybody */
    PyObject *is_quiet; /* a context variable: whether NumPy does not warn */
    PyObject *quiet;    /* returns the context of a thread in which NumPy does not warn */
} RunnerObject;

/* Whether a context variable is unset, or set to something that is false; -1 is an error. */
static int
is_off(PyObject *variable)
{
    PyObject *value = NULL;
    if (PyContextVar_Get(variable, NULL, &value) < 0) {
        return -1;
    }
    int off = value == NULL || value == Py_None || value == Py_False;
    Py_XDECREF(value);
    return off;
}

/* The context of this thread in which NumPy does not warn, borrowed. */
static PyObject *
quiet_context(RunnerObject *self)
{
    PyObject *known = PyThreadState_GetDict();
    PyObject *context = known == NULL ? NULL : PyDict_GetItemWithError(known, self->quiet);
    if (context == NULL && known != NULL && !PyErr_Occurred()) {
        context = PyObject_CallNoArgs(self->quiet);
        if (context != NULL && PyDict_SetItem(known, self->quiet, context) < 0) {
            Py_CLEAR(context);
        }
        Py_XDECREF(context); /* the thread has it */
    }
    return context;
}

/* Call a plan on values where NumPy does not warn. */
static PyObject *
run_quietly(RunnerObject *self, PyObject *run, PyObject *const *values, Py_ssize_t count)
{
    int warns = is_off(self->is_quiet); /* it is quiet if a kernel of the user's evaluates tensors itself */
    PyObject *context = warns > 0 ? quiet_context(self) : NULL;
    if (warns < 0 || (warns && (context == NULL || PyContext_Enter(context) < 0))) {
        return NULL;
    }
    Py_XINCREF(context);
    PyObject *results = PyObject_Vectorcall(run, values, count, NULL);
    if (context != NULL && PyContext_Exit(context) < 0) {
        Py_CLEAR(results);
    }
    Py_XDECREF(context);
    return results;
}

/* Store the results of a run on nodes, as far as there are some. */
static PyObject *
store(NodeObject *const *outputs, Py_ssize_t count, PyObject *results, Py_ssize_t kept)
{
    if (!PyTuple_Check(results) || PyTuple_GET_SIZE(results) < count || kept > PyTuple_GET_SIZE(results)) {
        return PyErr_Format(PyExc_TypeError, "a plan returns a tuple with all its outputs");
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XSETREF(outputs[i]->value, Py_NewRef(PyTuple_GET_ITEM(results, i)));
    }
    return PyTuple_GetSlice(results, kept, PyTuple_GET_SIZE(results));
}

static double
seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Note how long a run took, and that it was one of those that are worth noting. */
static void
note_large(RunnerObject *self, const SiteObject *site, PyObject *plan, double seconds)
{
    note_time((PlanObject *)plan, seconds); /* it has run, so it is one */
    self->ledger->steps++;
    self->ledger->kernels += site->kernels;
}

/* Run a plan on the values of inputs, held meanwhile: another thread may evict them. */
static PyObject *
run_plan(RunnerObject *self, PyObject *plan, PyObject *inputs)
{
    PyObject *few[32], **values = few;
    Py_ssize_t count = PyTuple_GET_SIZE(inputs);
    PyObject *run = is_plan(plan) ? Py_XNewRef(((PlanObject *)plan)->run) : NULL;
    if (run != NULL && count > (Py_ssize_t)Py_ARRAY_LENGTH(few) &&
        (values = PyMem_Malloc(count * sizeof(PyObject *))) == NULL) {
        Py_DECREF(run);
        return PyErr_NoMemory();
    }
    if (run == NULL) {
        return PyErr_Format(PyExc_TypeError, "a site has a plan that can be run");
    }
    int are_there = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        values[i] = Py_NewRef(((NodeObject *)PyTuple_GET_ITEM(inputs, i))->value);
        are_there &= values[i] != Py_None;
    }
    PyObject *results = are_there ? run_quietly(self, run, values, count)
                                  : PyErr_Format(PyExc_RuntimeError, "a value was evicted");
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_DECREF(values[i]);
    }
    if (values != few) {
        PyMem_Free(values);
    }
    Py_DECREF(run);
    return results;
}

/* Run a site on nodes that were found, and let it wait to be folded. Returns whether it ran; a failure is left to the
   pass node by node, which finds the culprit. -1 is an error. */
static int
run_site(RunnerObject *self, SiteObject *site, PyObject *inputs, NodeObject *const *outputs, Py_ssize_t count)
{
    LedgerObject *ledger = self->ledger;
    int is_noted = site->is_large || ledger->is_strict;
    long long most = ledger->noted + site->peak;
    if (!site->is_ready || (is_noted && most > ledger->ceiling)) {
        return 0; /* room has to be made */
    }
    double started = is_noted ? seconds_now() : 0.0;
    PyObject *plan = Py_NewRef(site->plan);
    PyObject *results = run_plan(self, plan, inputs);
    double seconds = is_noted ? seconds_now() - started : 0.0;
    PyObject *residuals = results == NULL ? NULL : store(outputs, count, results, site->results);
    Py_XDECREF(results);
    if (residuals == NULL) {
        Py_DECREF(plan);
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    CountersObject *count_here = (CountersObject *)counters;
    count_here->evaluations++;
    count_here->plan_hits++;
    count_here->kernel_calls += site->kernels;
    ledger->noted += site->nbytes;
    int failed = queue_step(self->queue, site, inputs, outputs, count, residuals) < 0;
    if (!failed && is_noted) {
        note_large(self, site, plan, seconds);
        failed = ledger->is_strict && note_peak(ledger, most) < 0;
    }
    Py_DECREF(residuals);
    Py_DECREF(plan);
    return failed ? -1 : 1;
}

/* Run what stands behind targets if it is known; whether it ran, -1 is an error. */
static int
run_match(RunnerObject *self, PyObject *const *targets, Py_ssize_t count)
{
    Match match;
    int found = find_match(self->lines, targets, count, &match);
    if (found <= 0) {
        return found;
    }
    const MatcherObject *matcher = match.matcher;
    PyObject *inputs = PyTuple_New(matcher->inputs), *outputs = NULL;
    for (Py_ssize_t i = 0; inputs != NULL && i < matcher->inputs; i++) {
        PyTuple_SET_ITEM(inputs, i, Py_NewRef(match.node[matcher->input[i].slot]));
    }
    if (inputs != NULL) {
        own_inputs(inputs); /* which the piece will have, and then the call */
    }
    outputs = inputs == NULL ? NULL : nodes_at(match.node, matcher->output, matcher->outputs);
    int done = -1;
    if (outputs != NULL) {
        done = run_site(self, match.site, inputs, (NodeObject *const *)&PyTuple_GET_ITEM(outputs, 0),
                        PyTuple_GET_SIZE(outputs));
    }
    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    release_match(&match);
    return done;
}

/* The same in turn with other threads: together they would exceed the budget. */
static int
run_in_turn(RunnerObject *self, PyObject *const *targets, Py_ssize_t count)
{
    PyObject *lock = Py_XNewRef(self->ledger->lock);
    PyObject *taken = lock == NULL ? NULL : PyObject_CallMethodNoArgs(lock, name_acquire);
    if (taken == NULL) {
        Py_XDECREF(lock);
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_DECREF(taken);
    int done = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        done &= ((NodeObject *)targets[i])->value == Py_None; /* another thread may have computed it */
    }
    done = done ? run_match(self, targets, count) : 0;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = PyObject_CallMethodNoArgs(lock, name_release);
    if (type != NULL) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
    }
    Py_XDECREF(left);
    Py_DECREF(lock);
    return left == NULL ? -1 : done;
}

/* Run what stands behind targets if it is known, and nobody has to look on; whether it ran, -1 is an error. */
static int
run_known(RunnerObject *self, PyObject *const *targets, Py_ssize_t count)
{
    if (counters == NULL || Py_IS_TYPE(targets[0], (PyTypeObject *)projection_class)) {
        return 0;
    }
    int off = is_off(self->observer);
    return off <= 0 ? off : self->ledger->is_strict ? run_in_turn(self, targets, count) : run_match(self, targets, count);
}

/* Return the value of a node, which is run if it is known how; None if it has none yet. */
static PyObject *
value_now(NodeObject *node)
{
    PyObject *target = (PyObject *)node;
    if (node->value == Py_None && default_runner != NULL && Py_IS_TYPE(default_runner, &RunnerType) &&
        run_known((RunnerObject *)default_runner, &target, 1) < 0) {
        return NULL;
    }
    return Py_NewRef(node->value);
}

PyDoc_STRVAR(value_now_doc,
"value_now(tensor, /)\n--\n\n"
"Return the value of a tensor: the one it has, or what the engine that serves ``eval()`` makes of it if it is recognised.\n"
"None if that takes more.");

static PyObject *
value_now_of(PyObject *module, PyObject *node)
{
    return is_node(node) ? value_now((NodeObject *)node) : PyErr_Format(PyExc_TypeError, "expected a node, got %R", node);
}

/* A tensor as a number. The general way decides while a derivative is taken, and says what is wrong. */
PyObject *
tensor_float(PyObject *self)
{
    int is_plain = watched == NULL ? 0 : is_off(watched);
    PyObject *value = is_plain > 0 ? value_now((NodeObject *)self) : NULL;
    if (value == NULL && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *number = value == NULL || value == Py_None ? NULL : PyObject_CallMethodNoArgs(value, name_item);
    Py_XDECREF(value);
    if (number != NULL && PyFloat_CheckExact(number)) {
        return number;
    }
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) {
            return NULL;
        }
        PyErr_Clear();
    }
    if (general_float == NULL) {
        return PyErr_Format(PyExc_RuntimeError, "the core has not been told what a tensor is as a number");
    }
    return PyObject_CallOneArg(general_float, self);
}

PyDoc_STRVAR(run_doc,
"run(targets, /)\n--\n\n"
"Give targets without values theirs if they are recognised and nothing else has to be looked after: an\n"
"observer, room that has to be made. Returns whether that was so.");

static PyObject *
runner_run(PyObject *self, PyObject *object)
{
    PyObject *targets = PySequence_Fast(object, "targets come in a sequence");
    if (targets == NULL) {
        return NULL;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(targets);
    int done = check_nodes(NULL, PySequence_Fast_ITEMS(targets), count);
    if (done == 0 && count > 0) {
        done = run_known((RunnerObject *)self, PySequence_Fast_ITEMS(targets), count);
    }
    Py_DECREF(targets);
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static int
runner_traverse(RunnerObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->lines);
    Py_VISIT(self->ledger);
    Py_VISIT(self->queue);
    Py_VISIT(self->quiet);
    return 0;
}

static void
runner_dealloc(RunnerObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->lines);
    Py_XDECREF(self->ledger);
    Py_XDECREF(self->queue);
    Py_XDECREF(self->observer);
    Py_XDECREF(self->is_quiet);
    Py_XDECREF(self->quiet);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef runner_methods[] = {
    {"run", runner_run, METH_O, run_doc},
    {NULL},
};

/* It has no tp_clear: the engine that it is a part of breaks the cycles it is in. */
PyTypeObject RunnerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Runner",
    .tp_doc = "Runs pieces that are recognised; see `unspool._engine.engine`.",
    .tp_basicsize = sizeof(RunnerObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)runner_dealloc,
    .tp_traverse = (traverseproc)runner_traverse,
    .tp_methods = runner_methods,
};

PyDoc_STRVAR(runner_doc,
"runner(lines, ledger, queue, observer, is_quiet, quiet, /)\n--\n\n"
"Return what runs pieces for an engine. ``lines`` are its sites, by `line_key`; ``observer`` and ``is_quiet`` context\n"
"variables; ``quiet()`` returns the context of a thread in which NumPy does not warn.");

static PyObject *
runner(PyObject *module, PyObject *args)
{
    PyObject *lines, *ledger, *queue, *observer, *is_quiet, *quiet;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O", &PyDict_Type, &lines, &LedgerType, &ledger, &QueueType, &queue,
                          &PyContextVar_Type, &observer, &PyContextVar_Type, &is_quiet, &quiet)) {
        return NULL;
    }
    RunnerObject *made = (RunnerObject *)RunnerType.tp_alloc(&RunnerType, 0);
    if (made != NULL) {
        made->lines = Py_NewRef(lines);
        made->ledger = (LedgerObject *)Py_NewRef(ledger);
        made->queue = (QueueObject *)Py_NewRef(queue);
        made->observer = Py_NewRef(observer);
        made->is_quiet = Py_NewRef(is_quiet);
        made->quiet = Py_NewRef(quiet);
    }
    return (PyObject *)made;
}

/* Make the names of what running asks of Python's classes; returns -1 if there is no memory for them. */
int
running_start(void)
{
    name_item = PyUnicode_InternFromString("item");
    name_acquire = PyUnicode_InternFromString("acquire");
    name_release = PyUnicode_InternFromString("release");
    return name_item == NULL || name_acquire == NULL || name_release == NULL ? -1 : 0;
}

PyMethodDef running_functions[] = {
    {"runner", runner, METH_VARARGS, runner_doc},
    {"value_now", value_now_of, METH_O, value_now_doc},
    {NULL},
};
