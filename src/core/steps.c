/* Steps: what a derivative sweep notes of a loop before it makes nodes.

   There are as many as the loop has steps. Nothing that outlives the sweep refers to them, so they are in no cycle, and
   the collector does not need to look at them. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *plan;
    PyObject *inputs;
    PyObject *read;
    PyObject *made;
    PyObject *wanted;
    PyObject *placed;
    PyObject *number;
    Py_ssize_t position;
} StepObject;

typedef struct {
    PyObject_HEAD
    PyObject *step;
    PyObject *index;
} PendingObject;

static PyMemberDef step_members[] = {
    {"plan", T_OBJECT_EX, offsetof(StepObject, plan), READONLY, NULL},
    {"inputs", T_OBJECT_EX, offsetof(StepObject, inputs), 0, NULL},
    {"read", T_OBJECT_EX, offsetof(StepObject, read), 0, NULL},
    {"made", T_OBJECT_EX, offsetof(StepObject, made), 0, NULL},
    {"wanted", T_OBJECT_EX, offsetof(StepObject, wanted), 0, NULL},
    {"placed", T_OBJECT_EX, offsetof(StepObject, placed), 0, NULL},
    {"number", T_OBJECT_EX, offsetof(StepObject, number), READONLY, NULL},
    {"position", T_PYSSIZET, offsetof(StepObject, position), 0, NULL},
    {NULL},
};

static PyMemberDef pending_members[] = {
    {"step", T_OBJECT_EX, offsetof(PendingObject, step), READONLY, NULL},
    {"index", T_OBJECT_EX, offsetof(PendingObject, index), READONLY, NULL},
    {NULL},
};

static void
step_dealloc(StepObject *self)
{
    Py_XDECREF(self->plan);
    Py_XDECREF(self->inputs);
    Py_XDECREF(self->read);
    Py_XDECREF(self->made);
    Py_XDECREF(self->wanted);
    Py_XDECREF(self->placed);
    Py_XDECREF(self->number);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static void
pending_dealloc(PendingObject *self)
{
    Py_XDECREF(self->step);
    Py_XDECREF(self->index);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.StepBase",
    .tp_doc = "What a sweep notes of a derivative call; see `unspool._autodiff.chain.Step`.",
    .tp_basicsize = sizeof(StepObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)step_dealloc,
    .tp_members = step_members,
};

PyTypeObject PendingType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.PendingBase",
    .tp_doc = "An output of a step, before it is a tensor; see `unspool._autodiff.chain.Pending`.",
    .tp_basicsize = sizeof(PendingObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)pending_dealloc,
    .tp_members = pending_members,
};

static long long steps_noted = 0;

PyDoc_STRVAR(step_doc,
"step(plan, inputs, read, made, /)\n--\n\n"
"Note a derivative call. ``read`` are the positions of inputs that are pending, ``made`` the outputs that will be.");

static PyObject *
step(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("step", nargs, 4) < 0) {
        return NULL;
    }
    if (step_class == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "steps are noted by unspool._autodiff.chain, which is not imported");
        return NULL;
    }
    StepObject *made = (StepObject *)((PyTypeObject *)step_class)->tp_alloc((PyTypeObject *)step_class, 0);
    if (made == NULL) {
        return NULL;
    }
    made->plan = Py_NewRef(args[0]);
    made->inputs = Py_NewRef(args[1]);
    made->read = Py_NewRef(args[2]);
    made->made = Py_NewRef(args[3]);
    made->wanted = Py_NewRef(empty);
    made->placed = Py_NewRef(Py_None);
    made->position = -1;
    made->number = PyLong_FromLongLong(steps_noted++);
    if (made->number == NULL) {
        Py_CLEAR(made);
    }
    return (PyObject *)made;
}

PyDoc_STRVAR(pending_doc, "pending(step, index, /)\n--\n\nReturn what stands for an output of a step.");

static PyObject *
pending(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("pending", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &StepType)) {
        return PyErr_Format(PyExc_TypeError, "expected a step, got %R", args[0]);
    }
    PyTypeObject *type = (PyTypeObject *)pending_class;
    PendingObject *made = (PendingObject *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->step = Py_NewRef(args[0]);
        made->index = Py_NewRef(args[1]);
    }
    return (PyObject *)made;
}

/* --- cotangents at calls --- */

/* Whether what arrives is an output of a step or a tensor: not a sum, nor anything else that has to be put together. */
static inline int
is_simple(PyObject *arrived)
{
    return (PyObject *)Py_TYPE(arrived) == pending_class || is_node(arrived);
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
    Py_ssize_t count = PyTuple_GET_SIZE(met);
    for (Py_ssize_t i = 0; i + 1 < count; i += 2) {
        PyObject *found = PyDict_GetItemWithError(arrived, PyTuple_GET_ITEM(met, i + 1));
        if (found == NULL || found == Py_None) {
            if (PyErr_Occurred()) {
                return -1;
            }
            continue;
        }
        if (!is_simple(found)) {
            return 0;
        }
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(met, i));
        if (index < 0 || index >= outputs) {
            PyErr_SetString(PyExc_IndexError, "a call has no such output");
            return -1;
        }
        for (Py_ssize_t j = 0; j < i; j += 2) {
            if (PyLong_AsSsize_t(PyTuple_GET_ITEM(met, j)) == index) {
                return 0;
            }
        }
    }
    return 1;
}

/* Note what has arrived at a node that is asked for. An output of a step has to know that. */
static int
note_found(PyObject *id, PyObject *arrived, PyObject *wanted, PyObject *found)
{
    int is_wanted = PySet_Contains(wanted, id);
    if (is_wanted == 1) {
        PyObject *kept = is_node(arrived) ? Py_NewRef(arrived) : PyObject_CallMethod(arrived, "keep", NULL);
        is_wanted = kept == NULL ? -1 : PyDict_SetItem(found, id, kept);
        Py_XDECREF(kept);
    }
    return is_wanted;
}

/* Move what has arrived at the outputs of a call to a list; how much that is, -1 is an error. */
static Py_ssize_t
take_at_outputs(PyObject *met, PyObject *arrived, PyObject *wanted, PyObject *noted, PyObject *arriving)
{
    Py_ssize_t taken = 0;
    for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(met); i += 2) {
        PyObject *found = take_arrived(arrived, PyTuple_GET_ITEM(met, i + 1));
        if (found != NULL) {
            if (note_found(PyTuple_GET_ITEM(met, i + 1), found, wanted, noted) < 0) {
                Py_DECREF(found);
                return -1;
            }
            PyList_SetItem(arriving, PyLong_AsSsize_t(PyTuple_GET_ITEM(met, i)), found);
            taken++;
        }
        else if (PyErr_Occurred()) {
            return -1;
        }
    }
    return taken;
}

/* Move what has arrived at the active inputs of a call to the list, and return which ones are active. */
static PyObject *
take_at_inputs(CallObject *call, PyObject *passing, PyObject *active, PyObject *arrived, PyObject *arriving)
{
    Py_ssize_t count = PyTuple_GET_SIZE(call->node.inputs);
    PyObject *needed = PyTuple_New(count);
    for (Py_ssize_t i = 0; needed != NULL && i < count; i++) {
        PyTuple_SET_ITEM(needed, i, Py_NewRef(Py_False));
    }
    for (Py_ssize_t i = 0; needed != NULL && i < PyTuple_GET_SIZE(passing); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(passing, i));
        if (at < 0 || at >= count) {
            PyErr_SetString(PyExc_IndexError, "a call has no such input");
            Py_CLEAR(needed);
            break;
        }
        PyObject *id = ((NodeObject *)PyTuple_GET_ITEM(call->node.inputs, at))->id;
        int is_active = PySet_Contains(active, id);
        if (is_active == 1) {
            PyObject *unset = PyTuple_GET_ITEM(needed, at);
            PyTuple_SET_ITEM(needed, at, Py_NewRef(Py_True));
            Py_DECREF(unset);
            /* A node can stand at two inputs; what arrived at it is passed on once. */
            PyObject *found = take_arrived(arrived, id);
            if (found != NULL) {
                PyList_SetItem(arriving, call->outputs + at, found);
            }
        }
        if (is_active < 0 || PyErr_Occurred()) {
            Py_CLEAR(needed);
        }
    }
    return needed;
}

PyDoc_STRVAR(arrive_doc,
"arrive(call, met, arrived, wanted, found, active, passing, /)\n--\n\n"
"Take what has arrived at the outputs of a call that were met (a position and an id, one after the other), and at those\n"
"of its inputs that it is differentiated through, at positions ``passing``, and that are active.\n\n"
"What is ``wanted`` is noted in ``found``. Returns a list, outputs first, and a tuple that tells which inputs are active;\n"
"an empty tuple if nothing has arrived at the outputs. None if something has that is a sum: then nothing was taken.");

static PyObject *
arrive(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("arrive", nargs, 7) < 0) {
        return NULL;
    }
    PyObject *met = args[1], *arrived = args[2], *wanted = args[3], *noted = args[4], *active = args[5];
    PyObject *passing = args[6];
    if (!is_call(args[0]) || !PyTuple_Check(met) || !PyDict_Check(arrived) || !PySet_Check(wanted) ||
        !PyDict_Check(noted) || !PySet_Check(active) || !PyTuple_Check(passing)) {
        return PyErr_Format(PyExc_TypeError, "expected a call, a tuple, a dict, a set, a dict, a set and a tuple");
    }
    CallObject *call = (CallObject *)args[0];
    int simple = are_outputs_simple(met, arrived, call->outputs);
    if (simple <= 0) {
        return simple < 0 ? NULL : Py_NewRef(Py_None);
    }
    Py_ssize_t size = call->outputs + PyTuple_GET_SIZE(call->node.inputs);
    PyObject *arriving = PyList_New(size);
    for (Py_ssize_t i = 0; arriving != NULL && i < size; i++) {
        PyList_SET_ITEM(arriving, i, Py_NewRef(Py_None));
    }
    Py_ssize_t taken = arriving == NULL ? -1 : take_at_outputs(met, arrived, wanted, noted, arriving);
    if (taken <= 0) {
        Py_XDECREF(arriving);
        return taken < 0 ? NULL : Py_NewRef(empty);
    }
    PyObject *needed = take_at_inputs(call, passing, active, arrived, arriving);
    PyObject *result = needed == NULL ? NULL : PyTuple_Pack(2, arriving, needed);
    Py_XDECREF(needed);
    Py_DECREF(arriving);
    return result;
}

PyMethodDef step_function_methods[] = {
    {"arrive", FAST(arrive), METH_FASTCALL, arrive_doc},
    {"pending", FAST(pending), METH_FASTCALL, pending_doc},
    {"step", FAST(step), METH_FASTCALL, step_doc},
    {NULL},
};
