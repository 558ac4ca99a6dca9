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

PyMethodDef step_function_methods[] = {
    {"pending", FAST(pending), METH_FASTCALL, pending_doc},
    {"step", FAST(step), METH_FASTCALL, step_doc},
    {NULL},
};
