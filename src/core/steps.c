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

int
check_step(PyObject *object)
{
    if (!Py_IS_TYPE(object, &StepType)) {
        PyErr_Format(PyExc_TypeError, "expected a step, got %R", object);
        return -1;
    }
    return 0;
}

/* --- runs of steps --- */

int
check_run(PyObject *run, int alike)
{
    int is_fit = PyList_Check(run) && PyList_GET_SIZE(run) > 0;
    for (Py_ssize_t i = 0; is_fit && i < PyList_GET_SIZE(run); i++) {
        StepObject *step = (StepObject *)PyList_GET_ITEM(run, i), *first = (StepObject *)PyList_GET_ITEM(run, 0);
        is_fit = Py_IS_TYPE(step, &StepType) && step->placed == Py_None && (!alike || Py_SIZE(step) == Py_SIZE(first));
    }
    if (!is_fit) {
        PyErr_Format(PyExc_TypeError, "expected a list of steps that are %snot placed, got %R", alike ? "alike and " : "", run);
        return -1;
    }
    return 0;
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
    {"read_by_each", FAST(read_by_each), METH_FASTCALL, read_by_each_doc},
    {"settle", FAST(settle), METH_FASTCALL, settle_doc},
    {"shared", shared, METH_O, shared_doc},
    {"step", FAST(step), METH_FASTCALL, step_doc},
    {NULL},
};
