/* Nodes: what a recipe is, and how it lives and dies. */

#include "core.h"

/* Let nobody find a node any more: not in the table, and not through its call. */
void
hide(NodeObject *node)
{
    table_remove(node);
    if (node->inputs == NULL || !is_call(node->inputs)) {
        return;
    }
    CallObject *call = (CallObject *)node->inputs;
    for (Py_ssize_t i = 0; call->handles != NULL && i < call->outputs; i++) {
        if (call->handles[i] == node) {
            call->handles[i] = NULL;
        }
    }
}

static PyMemberDef node_members[] = {
    {"op", T_OBJECT_EX, offsetof(NodeObject, op), READONLY, NULL},
    {"inputs", T_OBJECT_EX, offsetof(NodeObject, inputs), READONLY, NULL},
    {"attributes", T_OBJECT_EX, offsetof(NodeObject, params), READONLY, NULL},
    {"shape", T_OBJECT_EX, offsetof(NodeObject, shape), READONLY, NULL},
    {"dtype", T_OBJECT_EX, offsetof(NodeObject, dtype), READONLY, NULL},
    {"id", T_OBJECT_EX, offsetof(NodeObject, id), READONLY, NULL},
    {"key", T_OBJECT_EX, offsetof(NodeObject, key), READONLY, NULL},
    {"value", T_OBJECT_EX, offsetof(NodeObject, value), 0, NULL},
    {"code", T_OBJECT_EX, offsetof(NodeObject, code), READONLY, NULL},
    {"piece", T_OBJECT_EX, offsetof(NodeObject, piece), 0, NULL},
    {"output", T_OBJECT_EX, offsetof(NodeObject, output), 0, NULL},
    {"lasti", T_INT, offsetof(NodeObject, lasti), READONLY, NULL},
    {"is_again", T_SHORT, offsetof(NodeObject, is_again), READONLY, NULL},
    {NULL},
};

/* The line where a node was made. Decisions go by it: Python moves `lasti` within the line when it specialises code. */
static PyObject *
node_line(NodeObject *self, void *unused)
{
    return PyLong_FromLong(find_line(self->code, self->lasti));
}

static PyObject *
node_name(NodeObject *self, void *unused)
{
    return self->name != NULL ? Py_NewRef(self->name) : PyErr_Format(PyExc_AttributeError, "_name");
}

/* A name may be more than a word: of a class of the user's, with attributes. */
static int
node_set_name(NodeObject *self, PyObject *name, void *unused)
{
    if (name != NULL && !PyUnicode_CheckExact(name)) {
        enter_collector(self);
    }
    Py_XSETREF(self->name, Py_XNewRef(name));
    return 0;
}

static PyGetSetDef node_properties[] = {
    {"_name", (getter)node_name, (setter)node_set_name, "What the user calls it; none: it has no such attribute.", NULL},
    {"line", (getter)node_line, NULL, "The number of the line where the node was made; 0 if there is none.", NULL},
    {NULL},
};

int
node_traverse(NodeObject *self, visitproc visit, void *arg)
{
    int stop = visit_inputs(self->inputs, visit, arg);
    if (stop) {
        return stop;
    }
    Py_VISIT(self->op);
    Py_VISIT(self->params);
    Py_VISIT(self->shape);
    Py_VISIT(self->dtype);
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->code);
    Py_VISIT(self->piece);
    Py_VISIT(self->output);
    Py_VISIT(self->name);
    return 0;
}

/* Release all that a node refers to. */
static void
release_parts(NodeObject *self)
{
    Py_CLEAR(self->op);
    Py_CLEAR(self->inputs);
    Py_CLEAR(self->params);
    Py_CLEAR(self->shape);
    Py_CLEAR(self->dtype);
    Py_CLEAR(self->id);
    Py_CLEAR(self->key);
    Py_CLEAR(self->value);
    Py_CLEAR(self->code);
    Py_CLEAR(self->piece);
    Py_CLEAR(self->output);
    Py_CLEAR(self->name);
}

int
node_clear(NodeObject *self)
{
    hide(self);
    release_parts(self);
    return 0;
}

/* The collector finalises all it found before it clears anything: from here on nobody finds the node. */
static void
node_finalize(PyObject *self)
{
    hide((NodeObject *)self);
}

void
node_dealloc(NodeObject *self)
{
    PyObject_GC_UnTrack(self);
    hide(self);
    Py_TRASHCAN_BEGIN(self, node_dealloc)
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    node_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
    Py_TRASHCAN_END
}

/* --- the memory of tensors --- */

/* Every step of a loop makes some tensors, and as many die when it is folded: some are kept to be used again. */
#define MOST_SPARE 512

static NodeObject *spare; /* linked as in the table */
static int spares;

/* Return the memory of a tensor, of which nothing is set but its class; the collector does not look at it. */
static NodeObject *
new_tensor(PyTypeObject *type)
{
    NodeObject *node = spare;
    if (node == NULL) {
        return PyObject_GC_New(NodeObject, type);
    }
    spare = node->next;
    spares--;
    return (NodeObject *)PyObject_Init((PyObject *)node, type);
}

/* Free a tensor. What Python does for a class that is written in Python looks for much that a tensor has not. */
static void
tensor_dealloc(NodeObject *self)
{
    PyObject_GC_UnTrack(self);
    hide(self);
    Py_TRASHCAN_BEGIN(self, tensor_dealloc)
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    release_parts(self);
    PyTypeObject *type = Py_TYPE(self);
    if (spares < MOST_SPARE && type->tp_basicsize == sizeof(NodeObject) && !PyObject_GC_IsFinalized((PyObject *)self)) {
        self->next = spare;
        spare = self;
        spares++;
    } else {
        type->tp_free((PyObject *)self);
    }
    Py_DECREF(type);
    Py_TRASHCAN_END
}

/* Let the tensors of a class, which has nothing of its own, be made and freed here. Returns -1 with an exception. */
int
own_tensors(PyObject *object)
{
    PyTypeObject *type = (PyTypeObject *)object;
    if (!PyType_Check(object) || !PyType_IsSubtype(type, &NodeType) || type->tp_basicsize != sizeof(NodeObject) ||
        type->tp_dictoffset != 0 || !PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {
        PyErr_Format(PyExc_TypeError, "expected a class of nodes with nothing of its own, got %R", object);
        return -1;
    }
    type->tp_dealloc = (destructor)tensor_dealloc;
    return 0;
}

PyObject *
node_refuse(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyErr_Format(PyExc_TypeError, "%s is not made by calling it; tensors are made by unspool.tensor and by operations", type->tp_name);
    return NULL;
}

PyDoc_STRVAR(node_doc,
"One recipe: an op, its inputs and its static parameters, with the shape and dtype that follow from them.\n\n"
"``value`` belongs to the engine: the cached value, or the data of a leaf. ``code`` and ``lasti`` are where the\n"
"user's program stood when the node was made; `source_of` decodes them. ``piece`` keeps the record of the evaluation\n"
"that computed the node, for as long as it may still be folded. Once it is folded, ``output`` tells which output of\n"
"its call it is. ``key`` tells it apart from nodes with the same op and inputs; None for a node that is never shared.");

PyTypeObject NodeType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Node",
    .tp_doc = node_doc,
    .tp_basicsize = sizeof(NodeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_weaklistoffset = offsetof(NodeObject, weak),
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)node_dealloc,
    .tp_finalize = node_finalize,
    .tp_traverse = (traverseproc)node_traverse,
    .tp_clear = (inquiry)node_clear,
    .tp_members = node_members,
    .tp_getset = node_properties,
};

PyDoc_STRVAR(bundle_doc,
"The result of an op with several outputs; its ``shape`` and ``dtype`` are tuples with one entry per output.\n\n"
"Users hold its parts, which are `Tensor` nodes of the op ``part``.");

PyTypeObject BundleType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Bundle",
    .tp_doc = bundle_doc,
    .tp_basicsize = sizeof(NodeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_base = &NodeType,
    .tp_weaklistoffset = offsetof(NodeObject, weak),
    .tp_dealloc = (destructor)node_dealloc,
    .tp_traverse = (traverseproc)node_traverse,
    .tp_clear = (inquiry)node_clear,
};

/* Even numbers: the odd one before a node is left to the call that it may be folded into. */
static long long next_number = 0;

PyObject *
next_id(PyObject *module, PyObject *unused)
{
    PyObject *id = PyLong_FromLongLong(next_number);
    next_number += 2;
    return id;
}

/* Make a node that is not in the table; without an id it gets the next one. */
NodeObject *
make_node(PyTypeObject *type, PyObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype,
          PyObject *key, PyObject *code, int lasti, PyObject *id)
{
    if (type == NULL || (id != NULL && !PyLong_CheckExact(id))) {
        PyErr_SetString(PyExc_TypeError, "a node has a class, which unspool gives when it is imported, and a number");
        return NULL;
    }
    int is_tensor = type->tp_dealloc == (destructor)tensor_dealloc;
    NodeObject *node = is_tensor ? new_tensor(type) : (NodeObject *)type->tp_alloc(type, 0);
    if (node == NULL) {
        return NULL;
    }
    if (is_tensor) {
        node->weak = node->output = node->name = NULL;
        node->is_entered = node->is_again = 0;
        node->hash = 0;
        node->next = NULL;
    }
    node->op = Py_NewRef(op);
    node->inputs = Py_NewRef(inputs);
    node->params = Py_NewRef(params);
    node->shape = Py_NewRef(shape);
    node->dtype = Py_NewRef(dtype);
    node->key = Py_NewRef(key);
    node->value = Py_NewRef(Py_None);
    node->piece = Py_NewRef(Py_None);
    node->code = Py_NewRef(code);
    node->lasti = lasti;
    node->id = id != NULL ? Py_NewRef(id) : next_id(NULL, NULL);
    if (node->id == NULL) {
        Py_DECREF(node);
        return NULL;
    }
    if (is_tensor) {
        if (!may_leave_collector(node)) {
            PyObject_GC_Track(node);
        }
    } else if (type != &CallType) { /* which has a plan yet to come */
        leave_collector(node);
    }
    return node;
}

PyMethodDef node_methods[] = {
    {"next_id", next_id, METH_NOARGS, "next_id()\n--\n\nReturn a number that no node has; they only grow."},
    {NULL},
};
