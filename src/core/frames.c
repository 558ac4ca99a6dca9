/* Frames: what has to run for values that are missing. Their calls run one after the other here; what else has to be
   decided, `unspool._engine.memory.replay` does. */

#include "replaying.h"

static PyObject *name_base, *name_fragment, *name_kernels, *name_nbytes, *name_peak_bytes, *name_results;

typedef struct {
    PyObject_HEAD
    PyObject *order, *uses, *live, *taped, *pinned, *ahead, *recent, *saves;
    Py_ssize_t position, tape_from;
} FrameObject;

/* What a run of calls goes by. */
typedef struct {
    FrameObject *frame, *above;
    ValuesObject *values;
    PyObject *targets, *owned, *ran;
    LedgerObject *ledger;
    long long beside, limit, tiny, kernels;
} Run;

/* How often something is still read, by id; -1 is an error. */
static Py_ssize_t
uses_of(PyObject *uses, PyObject *key)
{
    PyObject *count = PyDict_GetItemWithError(uses, key);
    return count != NULL ? PyLong_AsSsize_t(count) : PyErr_Occurred() ? -1 : 0;
}

static PyObject *
own_buffer(PyObject *key, PyObject *value)
{
    PyObject *nbytes = PyObject_GetAttr(value, name_nbytes);
    PyObject *buffers = nbytes == NULL ? NULL : Py_BuildValue("(((Oi)O))", key, 0, nbytes);
    Py_XDECREF(nbytes);
    return buffers;
}

/* Give a node its value for good: what was asked for, and what is tiny. */
static int
give_value(const Run *run, NodeObject *node, PyObject *value)
{
    PyObject *base = PyObject_GetAttr(value, name_base);
    PyObject *given = base == NULL                                                ? NULL
                      : base == Py_None && (PyObject *)Py_TYPE(value) == array_class ? Py_NewRef(value)
                                                                                  : PyObject_CallOneArg(run->owned, value);
    Py_XDECREF(base);
    if (given == NULL) {
        return -1;
    }
    Py_SETREF(node->value, given);
    return 0;
}

static int
is_tiny(const Run *run, PyObject *value)
{
    PyObject *nbytes = PyObject_GetAttr(value, name_nbytes);
    long long number = nbytes == NULL ? -1 : PyLong_AsLongLong(nbytes);
    Py_XDECREF(nbytes);
    return PyErr_Occurred() ? -1 : number <= run->tiny;
}

/* Count the reasons to keep what was computed: it is read here, or will be above; -1 is an error. */
static Py_ssize_t
reasons_to_keep(const Run *run, PyObject *key, int is_result)
{
    FrameObject *frame = run->frame, *above = run->above;
    Py_ssize_t reasons = 0, used = uses_of(frame->uses, key);
    int is_live = PySet_Contains(frame->live, key); /* a call may run again for another one of its outputs */
    if (used < 0 || is_live < 0 || (used && !is_live && PySet_Add(frame->live, key) < 0)) {
        return -1;
    }
    reasons += used && !is_live;
    if (above == NULL) {
        return reasons;
    }
    if (frame->position >= frame->tape_from) {
        Py_ssize_t wanted = uses_of(above->uses, key);
        int is_taped = PySet_Contains(above->taped, key);
        if (wanted < 0 || is_taped < 0 || (wanted && !is_taped && PySet_Add(above->taped, key) < 0)) {
            return -1;
        }
        reasons += wanted && !is_taped;
    }
    if (is_result && frame->position == PyList_GET_SIZE(frame->order) - 1) { /* the state after the last step */
        reasons = PyList_Append(above->ahead, key) < 0 ? -1 : reasons + 1;
    }
    return reasons;
}

/* Keep a value that was computed if there is a reason to. */
static int
keep_output(const Run *run, NodeObject *node, PyObject *value, int is_result)
{
    if (node->value != Py_None) {
        return 0;
    }
    int is_given = PyDict_Contains(run->targets, node->id);
    if (is_given == 0 && Py_IS_TYPE(node, (PyTypeObject *)projection_class)) {
        is_given = is_tiny(run, value);
    }
    if (is_given) {
        return is_given < 0 ? -1 : give_value(run, node, value);
    }
    Py_ssize_t reasons = reasons_to_keep(run, node->id, is_result);
    EntryObject *entry = reasons < 0 ? NULL : reasons ? need_entry(run->values, node->id)
                                                      : find_entry(run->values, node->id);
    if (entry == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    entry->reasons += reasons;
    if (entry->reasons <= 0 || entry->value != NULL) {
        return 0;
    }
    PyObject *buffers = own_buffer(node->id, value);
    Py_INCREF(entry);
    int failed = buffers == NULL || put_value(run->values, entry, value, buffers) < 0;
    Py_DECREF(entry);
    Py_XDECREF(buffers);
    return failed ? -1 : 0;
}

/* Take an id from a set, and the reason that it stands for. */
static int
leave_set(ValuesObject *values, PyObject *set, PyObject *key)
{
    int found = PySet_Discard(set, key);
    return found > 0 ? drop_reason(values, key) : found;
}

static int
unpin(ValuesObject *values, PyObject *keys)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys); i++) {
        if (drop_reason(values, PyList_GET_ITEM(keys, i)) < 0) {
            return -1;
        }
    }
    return PyList_SetSlice(keys, 0, PyList_GET_SIZE(keys), NULL);
}

/* Evict what was read for the last time. */
static int
leave_operands(FrameObject *frame, ValuesObject *values, PyObject *const *operands, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = ((NodeObject *)operands[i])->id;
        Py_ssize_t left = uses_of(frame->uses, key) - 1;
        PyObject *number = left < 0 && PyErr_Occurred() ? NULL : PyLong_FromSsize_t(left);
        int failed = number == NULL || PyDict_SetItem(frame->uses, key, number) < 0;
        Py_XDECREF(number);
        if (failed || (left == 0 && (leave_set(values, frame->live, key) < 0 ||
                                     leave_set(values, frame->taped, key) < 0))) {
            return -1;
        }
    }
    if (PyList_GET_SIZE(frame->pinned) == 0) {
        return 0;
    }
    /* They stay until the next time: who goes through the steps forwards needs the state after the last one then. */
    Py_ssize_t end = PY_SSIZE_T_MAX;
    if (unpin(values, frame->recent) < 0 || PyList_SetSlice(frame->recent, end, end, frame->pinned) < 0 ||
        PyList_SetSlice(frame->recent, end, end, frame->ahead) < 0 ||
        PyList_SetSlice(frame->pinned, 0, PyList_GET_SIZE(frame->pinned), NULL) < 0) {
        return -1;
    }
    return PyList_SetSlice(frame->ahead, 0, PyList_GET_SIZE(frame->ahead), NULL);
}

PyDoc_STRVAR(frame_leave_doc,
"leave(values, operands, /)\n--\n\nEvict what was read for the last time by a unit that read some operands.");

static PyObject *
frame_leave(FrameObject *self, PyObject *args)
{
    PyObject *values, *operands;
    if (!PyArg_ParseTuple(args, "O!O:leave", &ValuesType, &values, &operands)) {
        return NULL;
    }
    PyObject *sequence = PySequence_Fast(operands, "operands are in a sequence");
    int failed = sequence == NULL ||
                 check_nodes(NULL, PySequence_Fast_ITEMS(sequence), PySequence_Fast_GET_SIZE(sequence)) < 0 ||
                 leave_operands(self, (ValuesObject *)values, PySequence_Fast_ITEMS(sequence),
                                PySequence_Fast_GET_SIZE(sequence)) < 0;
    Py_XDECREF(sequence);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* The most bytes that a plan takes, asked for once; -1 is an error. */
long long
peak_of(PlanObject *plan)
{
    if (plan->peak <= 0) {
        PyObject *number = PyObject_GetAttr((PyObject *)plan, name_peak_bytes);
        plan->peak = number == NULL ? -1 : PyLong_AsLongLong(number);
        Py_XDECREF(number);
    }
    return plan->peak;
}

/* Call a plan on the values of operands. Returns NULL without an exception if one is not there or the plan fails: who
   runs it node by node will find the culprit. */
static PyObject *
run_plan(const Run *run, CallObject *call)
{
    PyObject *few[32], *inputs = call->node.inputs;
    Py_ssize_t count = PyTuple_GET_SIZE(inputs), found = 0;
    PyObject **arguments = count <= (Py_ssize_t)Py_ARRAY_LENGTH(few) ? few : PyMem_Malloc(count * sizeof(PyObject *));
    if (arguments == NULL) {
        return PyErr_NoMemory();
    }
    while (found < count &&
           (arguments[found] = value_of(run->values, (NodeObject *)PyTuple_GET_ITEM(inputs, found))) != NULL) {
        found++;
    }
    PyObject *results = NULL;
    if (found == count && !PyErr_Occurred()) {
        PyObject *plan = Py_NewRef(((PlanObject *)call->plan)->run);
        results = PyObject_Vectorcall(plan, arguments, (size_t)count, NULL);
        Py_DECREF(plan);
        if (results == NULL && PyErr_ExceptionMatches(PyExc_Exception)) {
            PyErr_Clear();
        }
        else if (results != NULL && (!PyTuple_Check(results) || PyTuple_GET_SIZE(results) != call->outputs)) {
            Py_CLEAR(results);
            PyErr_SetString(PyExc_TypeError, "a plan returns a tuple with all its outputs");
        }
    }
    while (found > 0) {
        Py_DECREF(arguments[--found]);
    }
    if (arguments != few) {
        PyMem_Free(arguments);
    }
    return results;
}

/* Whether all that a call reads is there; -1 is an error. */
static int
has_operands(const Run *run, CallObject *call)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call->node.inputs); i++) {
        PyObject *value = value_of(run->values, (NodeObject *)PyTuple_GET_ITEM(call->node.inputs, i));
        if (value == NULL) {
            return PyErr_Occurred() ? -1 : 0;
        }
        Py_DECREF(value);
    }
    return 1;
}

/* Note that a call has run which belongs to a frame below the highest one. */
static int
note_run(Run *run, CallObject *call)
{
    if (run->ran == Py_None) {
        return 0;
    }
    PyObject *kernels = PyObject_GetAttr(call->plan, name_kernels);
    run->kernels += kernels == NULL ? 0 : PyLong_AsLongLong(kernels);
    Py_XDECREF(kernels);
    return PyErr_Occurred() ? -1 : PySet_Add(run->ran, call->node.id);
}

static int
keep_outputs(const Run *run, CallObject *call, PyObject *results, Py_ssize_t shown)
{
    for (Py_ssize_t i = 0; i < call->outputs; i++) {
        NodeObject *node = call->handles[i];
        if (node == NULL || Py_REFCNT(node) == 0) {
            continue;
        }
        Py_INCREF(node);
        int failed = keep_output(run, node, PyTuple_GET_ITEM(results, i), i < shown) < 0;
        Py_DECREF(node);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* How many outputs of a call are results, or -1. */
static Py_ssize_t
results_shown(const CallObject *call)
{
    PyObject *fragment = PyObject_GetAttr(call->plan, name_fragment);
    PyObject *results = fragment == NULL ? NULL : PyObject_GetAttr(fragment, name_results);
    Py_ssize_t shown = results == NULL ? -1 : PyLong_AsSsize_t(results);
    Py_XDECREF(fragment);
    Py_XDECREF(results);
    return shown;
}

/* Run the call that a frame has reached; whether it ran, -1 is an error. */
static int
run_call(Run *run, CallObject *call)
{
    const ValuesObject *values = run->values;
    if (PyTuple_Check(call->node.value) && PyTuple_GET_SIZE(call->node.value) > 0) {
        return 0; /* it runs by a plan of its own */
    }
    long long workspace = peak_of((PlanObject *)call->plan);
    long long taken = run->beside + values->nbytes + workspace;
    int is_ready = workspace < 0 ? -1 : run->limit >= 0 && taken > run->limit ? 0 : has_operands(run, call);
    if (is_ready <= 0) {
        return is_ready;
    }
    if (note_peak(run->ledger, taken) < 0) {
        return -1;
    }
    PyObject *results = run_plan(run, call);
    if (results == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_ssize_t shown = results_shown(call);
    int failed = shown < 0 || keep_outputs(run, call, results, shown) < 0 || note_run(run, call) < 0 ||
                 leave_operands(run->frame, run->values, &PyTuple_GET_ITEM(call->node.inputs, 0),
                                PyTuple_GET_SIZE(call->node.inputs)) < 0;
    Py_DECREF(results);
    return failed ? -1 : 1;
}

PyDoc_STRVAR(frame_run_on_doc,
"run_on(above, values, targets, ledger, beside, limit, due, ran, owned, tiny, /)\n--\n\n"
"Run calls from the position on, as far as they need nothing but what is cached. Return how many ran, and their kernels.\n\n"
"They end before a unit that is no call, that reads what is missing, that has no room, or after which the state is to\n"
"be saved, and after one that leaves no more than ``due`` bytes.\n\n"
"Parameters\n----------\n"
"above : Frame or None\n    That reads what is made here.\n"
"values : Values\n"
"targets : dict\n    What was asked for, by id: it keeps its value.\n"
"ledger : Ledger\n    Is told of peaks.\n"
"beside, limit : int\n    The bytes that are held beside the values, and how many there may be in all; -1 is no limit.\n"
"due : int\n"
"ran : set or None\n    The ids of calls that ran; None if they are not counted.\n"
"owned : function\n    Returns a value fit to be kept.\n"
"tiny : int\n    Outputs of so many bytes keep their values.");

static PyObject *
frame_run_on(FrameObject *self, PyObject *args)
{
    PyObject *above, *values, *ledger;
    long long due;
    Run run = {.frame = self};
    if (!PyArg_ParseTuple(args, "OO!O!O!LLLOOL:run_on", &above, &ValuesType, &values, &PyDict_Type, &run.targets,
                          &LedgerType, &ledger, &run.beside, &run.limit, &due, &run.ran, &run.owned, &run.tiny)) {
        return NULL;
    }
    if ((above != Py_None && !PyObject_TypeCheck(above, &FrameType)) || (run.ran != Py_None && !PySet_Check(run.ran))) {
        return PyErr_Format(PyExc_TypeError, "expected a frame and a set");
    }
    run.above = above == Py_None ? NULL : (FrameObject *)above;
    run.values = (ValuesObject *)values;
    run.ledger = (LedgerObject *)ledger;
    Py_ssize_t first = self->position;
    int goes_on = 1;
    while (goes_on > 0 && self->position < PyList_GET_SIZE(self->order)) {
        PyObject *unit = PyList_GET_ITEM(self->order, self->position);
        PyObject *position = is_call(unit) ? PyLong_FromSsize_t(self->position) : NULL;
        int saves = position == NULL ? 1 : PySet_Contains(self->saves, position);
        Py_XDECREF(position);
        if (saves || PyErr_Occurred()) {
            goes_on = PyErr_Occurred() ? -1 : 0;
            break;
        }
        Py_INCREF(unit);
        goes_on = run_call(&run, (CallObject *)unit);
        Py_DECREF(unit);
        self->position += goes_on > 0;
        if (goes_on > 0 && run.beside + run.values->nbytes <= due) {
            break;
        }
    }
    return goes_on < 0 ? NULL : Py_BuildValue("nL", self->position - first, run.kernels);
}

/* Count how often units read each node, by id. */
static int
count_uses(PyObject *uses, PyObject *order)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(order); i++) {
        PyObject *unit = PyList_GET_ITEM(order, i);
        if (!is_node(unit) || !PyTuple_Check(((NodeObject *)unit)->inputs)) {
            PyErr_Format(PyExc_TypeError, "expected something that runs, got %R", unit);
            return -1;
        }
        PyObject *inputs = ((NodeObject *)unit)->inputs;
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(inputs); j++) {
            PyObject *key = ((NodeObject *)PyTuple_GET_ITEM(inputs, j))->id;
            Py_ssize_t before = uses_of(uses, key);
            PyObject *number = before < 0 ? NULL : PyLong_FromSsize_t(before + 1);
            int failed = number == NULL || PyDict_SetItem(uses, key, number) < 0;
            Py_XDECREF(number);
            if (failed) {
                return -1;
            }
        }
    }
    return 0;
}

PyDoc_STRVAR(count_uses_doc,
"count_uses(uses, order, /)\n--\n\nAdd how often units read each node to a dict, by id.");

static PyObject *
count_uses_of(PyObject *module, PyObject *args)
{
    PyObject *uses, *order;
    if (!PyArg_ParseTuple(args, "O!O!:count_uses", &PyDict_Type, &uses, &PyList_Type, &order) ||
        count_uses(uses, order) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *order = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : Py_None;
    if (!PyList_Check(order)) {
        return PyErr_Format(PyExc_TypeError, "a frame has a list of units");
    }
    FrameObject *self = (FrameObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->order = Py_NewRef(order);
    PyObject **sets[] = {&self->live, &self->taped, &self->saves};
    PyObject **lists[] = {&self->pinned, &self->ahead, &self->recent};
    int failed = (self->uses = PyDict_New()) == NULL;
    for (int i = 0; i < 3; i++) {
        failed |= (*sets[i] = PySet_New(NULL)) == NULL || (*lists[i] = PyList_New(0)) == NULL;
    }
    if (failed || count_uses(self->uses, order) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
frame_traverse(FrameObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->order);
    Py_VISIT(self->uses);
    return 0;
}

static void
frame_dealloc(FrameObject *self)
{
    PyObject_GC_UnTrack(self);
    PyObject *parts[] = {self->order, self->uses,  self->live,   self->taped,
                         self->saves, self->pinned, self->ahead, self->recent};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(parts); i++) {
        Py_XDECREF(parts[i]);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef frame_members[] = {
    {"order", T_OBJECT_EX, offsetof(FrameObject, order), READONLY, NULL},
    {"uses", T_OBJECT_EX, offsetof(FrameObject, uses), READONLY, NULL},
    {"live", T_OBJECT_EX, offsetof(FrameObject, live), READONLY, NULL},
    {"taped", T_OBJECT_EX, offsetof(FrameObject, taped), READONLY, NULL},
    {"pinned", T_OBJECT_EX, offsetof(FrameObject, pinned), READONLY, NULL},
    {"ahead", T_OBJECT_EX, offsetof(FrameObject, ahead), READONLY, NULL},
    {"recent", T_OBJECT_EX, offsetof(FrameObject, recent), READONLY, NULL},
    {"saves", T_OBJECT_EX, offsetof(FrameObject, saves), 0, NULL},
    {"position", T_PYSSIZET, offsetof(FrameObject, position), 0, NULL},
    {"tape_from", T_PYSSIZET, offsetof(FrameObject, tape_from), 0, NULL},
    {NULL},
};

static PyMethodDef frame_methods[] = {
    {"run_on", (PyCFunction)frame_run_on, METH_VARARGS, frame_run_on_doc},
    {"leave", (PyCFunction)frame_leave, METH_VARARGS, frame_leave_doc},
    {NULL},
};

PyTypeObject FrameType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.FrameBase",
    .tp_doc = "Nodes of one level that run in order; see `unspool._engine.memory.recomputation.Frame`.",
    .tp_basicsize = sizeof(FrameObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = frame_new,
    .tp_dealloc = (destructor)frame_dealloc,
    .tp_traverse = (traverseproc)frame_traverse,
    .tp_members = frame_members,
    .tp_methods = frame_methods,
};

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
frames_start(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_base, "base"},
                 {&name_fragment, "fragment"},
                 {&name_kernels, "kernels"},
                 {&name_nbytes, "nbytes"},
                 {&name_peak_bytes, "peak_bytes"},
                 {&name_results, "results"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}

PyMethodDef replaying_methods[] = {
    {"count_uses", count_uses_of, METH_VARARGS, count_uses_doc},
    {NULL},
};
