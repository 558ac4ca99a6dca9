/* Calls: a plan applied to inputs, one node for a whole piece of graph. */

#include "evaluation.h"

static int
call_traverse(CallObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->plan);
    Py_VISIT(self->origins);
    return node_traverse(&self->node, visit, arg);
}

static int
call_clear(CallObject *self)
{
    Py_CLEAR(self->plan);
    Py_CLEAR(self->origins);
    Py_CLEAR(self->depth);
    return node_clear(&self->node);
}

static void
call_dealloc(CallObject *self)
{
    PyObject_GC_UnTrack(self);
    hide(&self->node);
    Py_TRASHCAN_BEGIN(self, call_dealloc)
    if (self->node.weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    call_clear(self);
    PyMem_Free(self->handles);
    Py_TYPE(self)->tp_free((PyObject *)self);
    Py_TRASHCAN_END
}

/* Return the position of an output, or -1 with an exception. */
static Py_ssize_t
which_output(CallObject *self, PyObject *index)
{
    Py_ssize_t i = PyLong_AsSsize_t(index);
    if (i < 0 || i >= self->outputs) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_IndexError, "a call with %zd outputs has none at %zd", self->outputs, i);
        }
        return -1;
    }
    return i;
}

/* The tensor that stands for an output, or NULL. One whose end has been put off stands for nothing. */
static NodeObject *
live_handle(CallObject *self, Py_ssize_t i)
{
    NodeObject *node = self->handles[i];
    return node != NULL && Py_REFCNT(node) > 0 ? node : NULL;
}

PyDoc_STRVAR(call_handle_doc, "handle(index, /)\n--\n\nReturn the tensor that stands for an output, if there is one.");

static PyObject *
call_handle(CallObject *self, PyObject *index)
{
    Py_ssize_t i = which_output(self, index);
    if (i < 0) {
        return NULL;
    }
    NodeObject *node = live_handle(self, i);
    return Py_NewRef(node == NULL ? Py_None : (PyObject *)node);
}

static PyObject *
call_handles(CallObject *self, void *unused)
{
    PyObject *list = PyList_New(self->outputs);
    for (Py_ssize_t i = 0; list != NULL && i < self->outputs; i++) {
        NodeObject *node = live_handle(self, i);
        PyList_SET_ITEM(list, i, Py_NewRef(node == NULL ? Py_None : (PyObject *)node));
    }
    return list;
}

static PyObject *
call_sizeof(CallObject *self, PyObject *unused)
{
    return PyLong_FromSsize_t(Py_TYPE(self)->tp_basicsize + self->outputs * (Py_ssize_t)sizeof(NodeObject *));
}

static PyMemberDef call_members[] = {
    {"plan", T_OBJECT_EX, offsetof(CallObject, plan), READONLY, NULL},
    {"origins", T_OBJECT_EX, offsetof(CallObject, origins), READONLY, NULL},
    {"depth", T_OBJECT_EX, offsetof(CallObject, depth), READONLY, NULL},
    {NULL},
};

static PyMethodDef call_methods[] = {
    {"handle", (PyCFunction)call_handle, METH_O, call_handle_doc},
    {"__sizeof__", (PyCFunction)call_sizeof, METH_NOARGS, NULL},
    {NULL},
};

static PyGetSetDef call_getset[] = {
    {"handles", (getter)call_handles, NULL, "The tensors that stand for the outputs; None where there is none.", NULL},
    {NULL},
};

PyDoc_STRVAR(call_doc,
"A plan applied to inputs.\n\n"
"``value`` holds the residuals, if they are kept: the outputs that no result of the fragment shows. ``origins`` are\n"
"where the user's program recorded each instruction. ``depth`` tells how many pieces in a row were folded up to this\n"
"one; a call that was not made by folding has none. It does not keep the tensors alive that stand for its outputs.");

PyTypeObject CallType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Call",
    .tp_doc = call_doc,
    .tp_basicsize = sizeof(CallObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_base = &BundleType,
    .tp_weaklistoffset = offsetof(CallObject, node.weak),
    .tp_dealloc = (destructor)call_dealloc,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_clear = (inquiry)call_clear,
    .tp_members = call_members,
    .tp_methods = call_methods,
    .tp_getset = call_getset,
};

static PyObject *name_of_recipes;

/* Make the name of what a call asks of its plan; returns -1 if there is no memory for them. */
int
calls_start(void)
{
    name_of_recipes = PyUnicode_InternFromString("recipes");
    return name_of_recipes == NULL ? -1 : 0;
}

/* Make a call that nobody finds. `place` has the code object and the offset where it counts as recorded. */
static CallObject *
make_call(PyObject *plan, PyObject *inputs, PyObject *origins, PyObject *place, PyObject *depth, PyObject *value,
          PyObject *id)
{
    if (!is_plan(plan) || !PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 2) {
        return (CallObject *)PyErr_Format(PyExc_TypeError, "a call has a plan, and a code object and an offset");
    }
    PyObject *code = PyTuple_GET_ITEM(place, 0);
    long lasti = PyLong_AsLong(PyTuple_GET_ITEM(place, 1));
    if (lasti == -1 && PyErr_Occurred()) {
        return NULL;
    }
    CallObject *call = NULL;
    PyObject *key = Py_XNewRef(((PlanObject *)plan)->id);
    PyObject *shapes = Py_XNewRef(((PlanObject *)plan)->output_shapes);
    PyObject *dtypes = Py_XNewRef(((PlanObject *)plan)->output_dtypes);
    if (key == NULL || shapes == NULL || dtypes == NULL) {
        PyErr_SetString(PyExc_TypeError, "a plan has an id, and shapes and dtypes of outputs");
    }
    else if (dtypes != NULL && check_recipe(call_op, inputs) == 0) {
        call = (CallObject *)make_node(&CallType, call_op, inputs, no_params, shapes, dtypes, key, code, (int)lasti,
                                       id);
    }
    if (call != NULL) {
        call->plan = Py_NewRef(plan);
        call->origins = Py_NewRef(origins);
        call->depth = Py_NewRef(depth);
        Py_SETREF(call->node.value, Py_NewRef(value));
        Py_ssize_t outputs = PyObject_Size(shapes);
        call->handles = outputs < 0 ? NULL : PyMem_Calloc(outputs + 1, sizeof(NodeObject *));
        if (call->handles == NULL) {
            if (outputs >= 0) {
                PyErr_NoMemory();
            }
            Py_CLEAR(call);
        } else {
            call->outputs = outputs;
            leave_collector(&call->node);
        }
    }
    Py_XDECREF(key);
    Py_XDECREF(shapes);
    Py_XDECREF(dtypes);
    return call;
}

PyDoc_STRVAR(call_of_plan_doc,
"call(plan, inputs, origins, place, /)\n--\n\n"
"Return the call of a plan on inputs: the one that is alive, or a new one. ``place`` is the code object and the offset\n"
"where it counts as recorded.");

static PyObject *
call_of_plan(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("call", nargs, 4) < 0 || check_recipe(call_op, args[1]) < 0) {
        return NULL;
    }
    PyObject *none = PyLong_FromLong(0);
    PyObject *call = (PyObject *)make_call(args[0], args[1], args[2], args[3], none, Py_None, NULL);
    PyObject *entered = call == NULL ? NULL : enter(NULL, call);
    Py_DECREF(none);
    Py_XDECREF(call);
    return entered;
}

/* Make an output of a call of a tensor: it keeps the call where it kept its inputs. */
static int
become_output(NodeObject *node, CallObject *call, PyObject *index)
{
    Py_ssize_t i = which_output(call, index);
    if (i < 0) {
        return -1;
    }
    PyTypeObject *type = Py_TYPE(node), *projection = (PyTypeObject *)projection_class;
    if (type != (PyTypeObject *)tensor_class && type != projection) {
        PyErr_Format(PyExc_TypeError, "expected a tensor to fold, got %R", node);
        return -1;
    }
    hide(node);
    Py_XSETREF(node->output, Py_NewRef(index));
    Py_INCREF(projection);
    Py_SET_TYPE(node, projection);
    Py_DECREF(type);
    call->handles[i] = node;
    Py_XSETREF(node->key, Py_NewRef(Py_None));
    /* What was evaluated and has no value has lost it; what is folded before it was evaluated has not. */
    int was_evaluated = node->piece != NULL && node->piece != Py_None;
    Py_XSETREF(node->piece, Py_NewRef(node->value == Py_None && was_evaluated ? lost : Py_None));
    if (PyObject_GC_IsTracked((PyObject *)call)) {
        enter_collector(node);
    }
    /* Last: what it was made from may die of it, and run other code. */
    Py_SETREF(node->inputs, Py_NewRef(call));
    return 0;
}

/* Make a call with a given id of which tensors are outputs, those with some indices; what they were made from is
   released. NULL, without an exception, if the same call is alive: it was recorded and evaluated before, and its outputs
   have tensors that stand for them. */
CallObject *
fold_into_call(PyObject *plan, PyObject *inputs, PyObject *origins, PyObject *id, PyObject *depth, PyObject *residuals,
               PyObject *indices, NodeObject *const *tensors)
{
    if (PyTuple_GET_SIZE(origins) == 0) {
        PyErr_SetString(PyExc_TypeError, "what is folded was recorded somewhere");
        return NULL;
    }
    PyObject *place = PyTuple_GET_ITEM(origins, PyTuple_GET_SIZE(origins) - 1);
    PyObject *call = (PyObject *)make_call(plan, inputs, origins, place, depth, residuals, id);
    PyObject *entered = call == NULL ? NULL : enter(NULL, call);
    if (entered == NULL || entered != call) {
        Py_XDECREF(call);
        Py_XDECREF(entered);
        return NULL;
    }
    Py_DECREF(entered);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(indices); i++) {
        if (become_output(tensors[i], (CallObject *)call, PyTuple_GET_ITEM(indices, i)) < 0) {
            Py_DECREF(call);
            return NULL;
        }
    }
    if (note_folded((CallObject *)call) < 0) {
        Py_CLEAR(call);
    }
    return (CallObject *)call;
}

PyDoc_STRVAR(fold_doc,
"fold(plan, inputs, origins, id, depth, residuals, indices, tensors, /)\n--\n\n"
"Make a call with a given id of which tensors are outputs; what they were made from is released.\n\n"
"None if the same call is alive: it was recorded and evaluated before, and its outputs have tensors that stand for them.");

static PyObject *
fold(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("fold", nargs, 8) < 0 || check_recipe(call_op, args[1]) < 0) {
        return NULL;
    }
    PyObject *origins = args[2], *indices = args[6], *tensors = args[7];
    if (!PyTuple_Check(origins) || PyTuple_GET_SIZE(origins) == 0 || !PyTuple_Check(indices) || !PyList_Check(tensors) ||
        PyTuple_GET_SIZE(indices) != PyList_GET_SIZE(tensors)) {
        PyErr_SetString(PyExc_TypeError, "fold takes origins and indices as tuples, and as many tensors in a list");
        return NULL;
    }
    PyObject *own = PyList_AsTuple(tensors);
    CallObject *call = NULL;
    if (own != NULL && check_nodes(NULL, &PyTuple_GET_ITEM(own, 0), PyTuple_GET_SIZE(own)) == 0) {
        call = fold_into_call(args[0], args[1], origins, args[3], args[4], args[5], indices,
                              (NodeObject *const *)&PyTuple_GET_ITEM(own, 0));
    }
    Py_XDECREF(own);
    return call != NULL ? (PyObject *)call : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* Make the tensor that stands for an output, from the recipe that the plan has of it. */
static PyObject *
make_output(CallObject *call, Py_ssize_t i, PyObject *index, PyObject *recipe)
{
    PyObject *op, *params, *code, *shape, *dtype;
    Py_ssize_t position;
    int lasti;
    if (!PyArg_ParseTuple(recipe, "OOn", &op, &params, &position)) {
        return NULL;
    }
    PyObject *place = PySequence_GetItem(call->origins, position);
    if (place == NULL || !PyArg_ParseTuple(place, "Oi", &code, &lasti)) {
        Py_XDECREF(place);
        return NULL;
    }
    NodeObject *node = NULL;
    shape = PySequence_GetItem(call->node.shape, i);
    dtype = PySequence_GetItem(call->node.dtype, i);
    if (shape != NULL && dtype != NULL) {
        node = make_node((PyTypeObject *)projection_class, op, (PyObject *)call, params, shape, dtype, Py_None, code,
                         lasti, NULL);
    }
    if (node != NULL) {
        node->output = Py_NewRef(index);
        call->handles[i] = node;
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    Py_DECREF(place);
    return (PyObject *)node;
}

PyDoc_STRVAR(output_doc, "output(call, index, /)\n--\n\nReturn the tensor that is an output of a call.");

static PyObject *
output(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("output", nargs, 2) < 0) {
        return NULL;
    }
    if (!is_call(args[0])) {
        return PyErr_Format(PyExc_TypeError, "expected a call, got %R", args[0]);
    }
    CallObject *call = (CallObject *)args[0];
    Py_ssize_t i = which_output(call, args[1]);
    if (i < 0) {
        return NULL;
    }
    NodeObject *handle = live_handle(call, i);
    if (handle != NULL) {
        return Py_NewRef(handle);
    }
    PyObject *recipes = PyObject_GetAttr(call->plan, name_of_recipes);
    PyObject *recipe = recipes == NULL ? NULL : PySequence_GetItem(recipes, i);
    Py_XDECREF(recipes);
    if (recipe == NULL) {
        return NULL;
    }
    PyObject *found = recipe == Py_None ? PyObject_CallFunctionObjArgs(plain_output, args[0], args[1], NULL)
                                        : make_output(call, i, args[1], recipe);
    Py_DECREF(recipe);
    return found;
}

PyMethodDef call_function_methods[] = {
    {"call", FAST(call_of_plan), METH_FASTCALL, call_of_plan_doc},
    {"fold", FAST(fold), METH_FASTCALL, fold_doc},
    {"output", FAST(output), METH_FASTCALL, output_doc},
    {NULL},
};
