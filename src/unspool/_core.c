/* The nodes of the graph, and the table in which equal recipes are one node.

   Recording an op is the one thing that a loop does for every operation of every step, so it is written in C; what is
   here is small, and knows nothing of NumPy, values or derivatives.

   The table has no keys of its own. A node is its own key: the op, the identities of its inputs, and an object that
   tells apart nodes which have those in common (`key`: parameters, or the content of a constant). Nodes with the same
   hash stand in one chain, linked through the nodes themselves. The table does not own them: a node leaves when it
   dies, before its memory is anybody else's. All of this happens under the interpreter's lock; where a comparison
   could run Python code, which could change the table, the search begins again if that moved what it was at. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000
#error "unspool needs Python 3.11 or newer"
#endif

static int
check_count(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, wanted, given);
        return -1;
    }
    return 0;
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *canonical;
    PyObject *commuting;
    PyObject *infer;
    PyObject *result_dtypes;
    PyObject *sized;
    /* What was found for the two dtypes that were asked for last: nearly always the next ones too. */
    PyObject *left, *right, *result;
    int commutes;
} OpObject;

static PyMemberDef op_members[] = {
    {"canonical", T_OBJECT_EX, offsetof(OpObject, canonical), 0, NULL},
    {"commuting", T_OBJECT_EX, offsetof(OpObject, commuting), 0, NULL},
    {"infer", T_OBJECT_EX, offsetof(OpObject, infer), 0, NULL},
    {"result_dtypes", T_OBJECT_EX, offsetof(OpObject, result_dtypes), 0, NULL},
    {"sized", T_OBJECT_EX, offsetof(OpObject, sized), 0, NULL},
    {NULL},
};

static int
op_traverse(OpObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->canonical);
    Py_VISIT(self->commuting);
    Py_VISIT(self->infer);
    Py_VISIT(self->result_dtypes);
    Py_VISIT(self->sized);
    Py_VISIT(self->left);
    Py_VISIT(self->right);
    Py_VISIT(self->result);
    return 0;
}

static int
op_clear(OpObject *self)
{
    Py_CLEAR(self->canonical);
    Py_CLEAR(self->commuting);
    Py_CLEAR(self->infer);
    Py_CLEAR(self->result_dtypes);
    Py_CLEAR(self->sized);
    Py_CLEAR(self->left);
    Py_CLEAR(self->right);
    Py_CLEAR(self->result);
    return 0;
}

static void
op_dealloc(OpObject *self)
{
    PyObject_GC_UnTrack(self);
    op_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(op_doc, "What recording has to know about an operation; see `unspool._ops.op.Op`.");

static PyTypeObject OpType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.OpBase",
    .tp_doc = op_doc,
    .tp_basicsize = sizeof(OpObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)op_dealloc,
    .tp_traverse = (traverseproc)op_traverse,
    .tp_clear = (inquiry)op_clear,
    .tp_members = op_members,
};

/* Find the dtype of a result, and whether the operands may be swapped without changing a bit of it. */
static int
look_up_dtypes(OpObject *op, PyObject *left, PyObject *right)
{
    if (op->left == left && op->right == right && op->result != NULL) {
        return 0;
    }
    if (op->result_dtypes == NULL || op->commuting == NULL) {
        PyErr_SetString(PyExc_TypeError, "this op is not an elementwise one");
        return -1;
    }
    PyObject *pair = PyTuple_Pack(2, left, right);
    if (pair == NULL) {
        return -1;
    }
    PyObject *result = PyObject_GetItem(op->result_dtypes, pair);
    Py_DECREF(pair);
    if (result == NULL) {
        return -1;
    }
    int commutes = PySequence_Contains(op->commuting, left);
    if (commutes == 1) {
        commutes = PySequence_Contains(op->commuting, right);
    }
    if (commutes < 0) {
        Py_DECREF(result);
        return -1;
    }
    Py_XSETREF(op->left, Py_NewRef(left));
    Py_XSETREF(op->right, Py_NewRef(right));
    Py_XSETREF(op->result, result);
    op->commutes = commutes;
    return 0;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

typedef struct NodeObject {
    PyObject_HEAD
    PyObject *weak;
    PyObject *op;
    PyObject *inputs;
    PyObject *params;
    PyObject *shape;
    PyObject *dtype;
    PyObject *id;
    PyObject *key;
    PyObject *value;
    PyObject *code;
    PyObject *piece;
    PyObject *output;
    PyObject *name;
    int lasti;
    int is_entered;
    Py_uhash_t hash;
    struct NodeObject *next; /* in the chain of the table */
} NodeObject;

static PyTypeObject NodeType;
static PyTypeObject BundleType;
static PyTypeObject CallType;
static PyTypeObject TensorType;

static PyObject *empty; /* the empty tuple */

#define is_node(object) PyObject_TypeCheck(object, &NodeType)

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define SMALLEST 1024

static struct {
    NodeObject **chains;
    size_t size; /* a power of two */
    size_t count;
    size_t resized, left; /* how often it was resized, and a node left: what a search was at may be elsewhere */
} table;

static int
table_resize(size_t size)
{
    NodeObject **chains = PyMem_Calloc(size, sizeof(NodeObject *));
    if (chains == NULL) {
        return -1;
    }
    for (size_t i = 0; i < table.size; i++) {
        NodeObject *node = table.chains[i];
        while (node != NULL) {
            NodeObject *next = node->next;
            NodeObject **chain = &chains[node->hash & (size - 1)];
            node->next = *chain;
            *chain = node;
            node = next;
        }
    }
    PyMem_Free(table.chains);
    table.chains = chains;
    table.size = size;
    table.resized++;
    return 0;
}

static int
table_insert(NodeObject *node)
{
    if (table.count >= table.size && table_resize(2 * table.size) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    NodeObject **chain = &table.chains[node->hash & (table.size - 1)];
    node->next = *chain;
    *chain = node;
    node->is_entered = 1;
    table.count++;
    return 0;
}

static void
table_remove(NodeObject *node)
{
    if (!node->is_entered) {
        return;
    }
    NodeObject **link = &table.chains[node->hash & (table.size - 1)];
    while (*link != node) {
        link = &(*link)->next;
    }
    *link = node->next;
    node->next = NULL;
    node->is_entered = 0;
    table.count--;
    table.left++;
    if (table.size > SMALLEST && table.count < table.size / 8) {
        (void)table_resize(table.size / 2); /* if there is no memory for it, it stays as large as it is */
    }
}

static int
hash_recipe(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_uhash_t *hash)
{
    Py_uhash_t h = (Py_uhash_t)op >> 4;
    for (Py_ssize_t i = 0; i < count; i++) {
        h = (h ^ ((Py_uhash_t)inputs[i] >> 4)) * (Py_uhash_t)0x9E3779B97F4A7C15ULL;
        h ^= h >> 29;
    }
    if (key != empty) {
        Py_hash_t of_key = PyObject_Hash(key);
        if (of_key == -1) {
            return -1;
        }
        h = (h ^ (Py_uhash_t)of_key) * (Py_uhash_t)0x9E3779B97F4A7C15ULL;
    }
    *hash = h ^ (h >> 32);
    return 0;
}

static int
same_inputs(NodeObject *node, PyObject *const *inputs, Py_ssize_t count)
{
    PyObject *own = node->inputs;
    if (own == NULL || !PyTuple_Check(own) || PyTuple_GET_SIZE(own) != count) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyTuple_GET_ITEM(own, i) != inputs[i]) {
            return 0;
        }
    }
    return 1;
}

/* Return a new reference to the live node of a recipe; NULL if there is none, with an exception if the search failed.
   A node whose last reference is gone may still be in the table: its end is put off if many die at once. */
static NodeObject *
table_find(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_uhash_t hash)
{
again:;
    size_t resized = table.resized;
    NodeObject *node = table.chains[hash & (table.size - 1)];
    while (node != NULL) {
        if (node->hash != hash || node->op != op || Py_REFCNT(node) == 0 || !same_inputs(node, inputs, count)) {
            node = node->next;
            continue;
        }
        Py_INCREF(node);
        if (node->key == key) {
            return node;
        }
        PyObject *own = Py_NewRef(node->key);
        int equal = PyObject_RichCompareBool(own, key, Py_EQ);
        Py_DECREF(own);
        if (equal > 0) {
            return node;
        }
        /* The comparison may have run anything, and so may the end of this node. */
        int has_moved = !node->is_entered || table.resized != resized;
        NodeObject *next = node->next;
        size_t left = table.left;
        Py_DECREF(node);
        if (equal < 0) {
            return NULL;
        }
        if (has_moved || table.left != left) {
            goto again;
        }
        node = next;
    }
    return NULL;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* A call knows the tensors that stand for its outputs without owning them. Each of them owns the call, in the place of
   its inputs, and takes itself off the list when it dies. */
typedef struct {
    NodeObject node;
    PyObject *plan;
    PyObject *origins;
    PyObject *depth;
    Py_ssize_t outputs;
    NodeObject **handles;
} CallObject;

#define is_call(object) PyObject_TypeCheck(object, &CallType)

/* Let nobody find a node any more: not in the table, and not through its call. */
static void
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

/* --- the life of a node ------------------------------------------------------------------------------------------- */

static PyMemberDef node_members[] = {
    {"op", T_OBJECT_EX, offsetof(NodeObject, op), READONLY, NULL},
    {"inputs", T_OBJECT_EX, offsetof(NodeObject, inputs), READONLY, NULL},
    {"params", T_OBJECT_EX, offsetof(NodeObject, params), READONLY, NULL},
    {"shape", T_OBJECT_EX, offsetof(NodeObject, shape), READONLY, NULL},
    {"dtype", T_OBJECT_EX, offsetof(NodeObject, dtype), READONLY, NULL},
    {"id", T_OBJECT_EX, offsetof(NodeObject, id), READONLY, NULL},
    {"key", T_OBJECT_EX, offsetof(NodeObject, key), READONLY, NULL},
    {"value", T_OBJECT_EX, offsetof(NodeObject, value), 0, NULL},
    {"code", T_OBJECT_EX, offsetof(NodeObject, code), READONLY, NULL},
    {"piece", T_OBJECT_EX, offsetof(NodeObject, piece), 0, NULL},
    {"output", T_OBJECT_EX, offsetof(NodeObject, output), 0, NULL},
    {"_name", T_OBJECT_EX, offsetof(NodeObject, name), 0, NULL},
    {"lasti", T_INT, offsetof(NodeObject, lasti), READONLY, NULL},
    {NULL},
};

static int
node_traverse(NodeObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->op);
    Py_VISIT(self->inputs);
    Py_VISIT(self->params);
    Py_VISIT(self->shape);
    Py_VISIT(self->dtype);
    Py_VISIT(self->key);
    Py_VISIT(self->value);
    Py_VISIT(self->code);
    Py_VISIT(self->piece);
    return 0;
}

static int
node_clear(NodeObject *self)
{
    hide(self);
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
    return 0;
}

/* The collector finalises all it found before it clears anything: from here on nobody finds the node. */
static void
node_finalize(PyObject *self)
{
    hide((NodeObject *)self);
}

static void
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

static PyObject *
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

static PyTypeObject NodeType = {
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
};

PyDoc_STRVAR(bundle_doc,
"The result of an op with several outputs; its ``shape`` and ``dtype`` are tuples with one entry per output.\n\n"
"Users hold its parts, which are `Tensor` nodes of the op ``part``.");

static PyTypeObject BundleType = {
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

static PyObject *
next_id(PyObject *module, PyObject *unused)
{
    PyObject *id = PyLong_FromLongLong(next_number);
    next_number += 2;
    return id;
}

/* Make a node that is not in the table; without an id it gets the next one. */
static NodeObject *
make_node(PyTypeObject *type, PyObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype,
          PyObject *key, PyObject *code, int lasti, PyObject *id)
{
    NodeObject *node = (NodeObject *)type->tp_alloc(type, 0);
    if (node == NULL) {
        return NULL;
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
    return node;
}

/* --- what Python gives ------------------------------------------------------------------------------------------- */

static PyObject *tensor_class;  /* the class that users hold */
static PyObject *no_params;     /* the parameters of an op that has none */
static PyObject *is_internal;   /* whether a source file is one of ours, a dict that finds out what it lacks */
static PyObject *origin_var;    /* the context variable with the source position that new nodes inherit */
static PyObject *with_sizes;    /* parameters as they are kept if some of them may hold symbolic sizes */
static PyObject *align;         /* operands that broadcast, and the shape they broadcast to */
static PyObject *scalar;        /* the constant for a number beside a dtype */
static PyObject *constant_op;
static PyObject *leaf_ops;
static PyObject *step_class, *pending_class; /* the records of a derivative sweep */
static PyObject *call_op;
static PyObject *projection_class; /* the class of tensors that are outputs of calls */
static PyObject *lost;             /* stands for the evaluation of a tensor that lost its value */
static PyObject *float64;

static const struct {
    const char *name;
    PyObject **where;
} given[] = {
    {"tensor_class", &tensor_class}, {"no_params", &no_params}, {"is_internal", &is_internal},
    {"origin", &origin_var},         {"with_sizes", &with_sizes}, {"align", &align},
    {"scalar", &scalar},             {"constant", &constant_op}, {"float64", &float64},
    {"call", &call_op},              {"projection", &projection_class}, {"lost", &lost},
    {"leaves", &leaf_ops},           {"step", &step_class},   {"pending", &pending_class},
    {NULL, NULL},
};

PyDoc_STRVAR(bind_doc, "Tell the core the objects of other modules that it works with, by name; each once.");

static PyObject *
bind(PyObject *module, PyObject *args, PyObject *kwargs)
{
    PyObject *name, *object;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &name, &object)) {
        int i = 0;
        while (given[i].name != NULL && PyUnicode_CompareWithASCIIString(name, given[i].name) != 0) {
            i++;
        }
        if (given[i].name == NULL) {
            return PyErr_Format(PyExc_TypeError, "the core works with nothing called %R", name);
        }
        Py_XSETREF(*given[i].where, Py_NewRef(object));
    }
    Py_RETURN_NONE;
}

/* --- where a node is made ---------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *code;
    int lasti;
} OriginObject;

static PyMemberDef origin_members[] = {
    {"code", T_OBJECT, offsetof(OriginObject, code), 0, NULL},
    {"lasti", T_INT, offsetof(OriginObject, lasti), 0, NULL},
    {NULL},
};

static void
origin_dealloc(OriginObject *self)
{
    Py_XDECREF(self->code);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(origin_doc, "The source position that new nodes inherit; no position: the user's current line.");

static PyTypeObject OriginType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Origin",
    .tp_doc = origin_doc,
    .tp_basicsize = sizeof(OriginObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)origin_dealloc,
    .tp_members = origin_members,
};

/* Return whether a source file belongs to unspool: 1 or 0; -1 with an exception. */
static int
is_one_of_ours(PyObject *filename)
{
    PyObject *known = PyDict_GetItemWithError(is_internal, filename);
    if (known != NULL) {
        return known == Py_True;
    }
    if (PyErr_Occurred() || (known = PyObject_GetItem(is_internal, filename)) == NULL) {
        return -1;
    }
    int found = known == Py_True;
    Py_DECREF(known);
    return found;
}

/* Find the position that a new node gets: the one it inherits, or the user's current line. Returns a new reference to
   the code object. */
static PyObject *
find_origin(int *lasti)
{
    PyObject *given_origin = NULL;
    if (PyContextVar_Get(origin_var, NULL, &given_origin) < 0) {
        return NULL;
    }
    if (given_origin != NULL) {
        if (Py_IS_TYPE(given_origin, &OriginType)) {
            OriginObject *origin = (OriginObject *)given_origin;
            if (origin->code != NULL && origin->code != Py_None) {
                PyObject *code = Py_NewRef(origin->code);
                *lasti = origin->lasti;
                Py_DECREF(given_origin);
                return code;
            }
        }
        Py_DECREF(given_origin);
    }
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    PyObject *code = NULL;
    *lasti = 0;
    while (frame != NULL) {
        Py_XSETREF(code, (PyObject *)PyFrame_GetCode(frame));
        int internal = is_one_of_ours(((PyCodeObject *)code)->co_filename);
        if (internal < 0) {
            Py_DECREF(frame);
            Py_DECREF(code);
            return NULL;
        }
        if (!internal) {
            *lasti = PyFrame_GetLasti(frame);
            Py_DECREF(frame);
            return code;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    if (code == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a node was made where no Python code runs");
    }
    return code;
}

PyDoc_STRVAR(current_origin_doc, "Return the source position that a new node would get: the code object, and the offset.");

static PyObject *
current_origin(PyObject *module, PyObject *unused)
{
    int lasti;
    PyObject *code = find_origin(&lasti);
    return code == NULL ? NULL : Py_BuildValue("(Ni)", code, lasti);
}

/* --- making nodes ------------------------------------------------------------------------------------------------- */

/* Make the node of a recipe that is not alive, and enter it. Takes over the reference to `inputs`. */
static PyObject *
make_entered(OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype, PyObject *key,
             Py_uhash_t hash)
{
    int lasti;
    PyObject *code = find_origin(&lasti);
    if (code == NULL) {
        Py_DECREF(inputs);
        return NULL;
    }
    NodeObject *node =
        make_node((PyTypeObject *)tensor_class, (PyObject *)op, inputs, params, shape, dtype, key, code, lasti,
                  NULL);
    Py_DECREF(code);
    Py_DECREF(inputs);
    if (node == NULL) {
        return NULL;
    }
    node->hash = hash;
    /* Python code may have run since the table was searched: to find the place, or because of a collection. */
    NodeObject *other =
        table_find((PyObject *)op, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs), key, hash);
    if (other != NULL || PyErr_Occurred() || table_insert(node) < 0) {
        Py_DECREF(node);
        return (PyObject *)other;
    }
    return (PyObject *)node;
}

/* Return the class, the op and the inputs of a recipe, or refuse what is none. */
static int
check_recipe(PyObject *op, PyObject *inputs)
{
    if (op == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "calls are made by unspool._fragments.call, which is not imported");
        return -1;
    }
    if (!PyObject_TypeCheck(op, &OpType)) {
        PyErr_Format(PyExc_TypeError, "expected an op, got %R", op);
        return -1;
    }
    if (!PyTuple_Check(inputs)) {
        PyErr_Format(PyExc_TypeError, "expected the inputs of %R as a tuple, got %R", op, inputs);
        return -1;
    }
    return 0;
}

static int
check_nodes(PyObject *op, PyObject *const *inputs, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!is_node(inputs[i])) {
            if (op != NULL) {
                PyErr_Format(PyExc_TypeError, "%R takes tensors, got %R", op, inputs[i]);
            } else {
                PyErr_Format(PyExc_TypeError, "expected a node, got %R", inputs[i]);
            }
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(find_doc,
"find(op, inputs, key, /)\n--\n\n"
"Return the live node of a recipe, if any. ``key`` is what tells it apart from others with the same op and inputs.");

static PyObject *
find(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("find", nargs, 3) < 0 || check_recipe(args[0], args[1]) < 0) {
        return NULL;
    }
    PyObject *const *inputs = &PyTuple_GET_ITEM(args[1], 0);
    Py_ssize_t count = PyTuple_GET_SIZE(args[1]);
    Py_uhash_t hash;
    if (hash_recipe(args[0], inputs, count, args[2], &hash) < 0) {
        return NULL;
    }
    NodeObject *node = table_find(args[0], inputs, count, args[2], hash);
    if (node == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return (PyObject *)node;
}

PyDoc_STRVAR(new_doc,
"new(cls, op, inputs, params, shape, dtype, key, code, lasti, id=None, /)\n--\n\n"
"Make a node that nobody finds: `enter` brings it into the table, once it is complete. By default it gets the next id.");

static PyObject *
new(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 10 && check_count("new", nargs, 9) < 0) {
        return NULL;
    }
    PyObject *id = nargs == 10 && args[9] != Py_None ? args[9] : NULL;
    if (!PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &NodeType)) {
        return PyErr_Format(PyExc_TypeError, "expected a class of nodes, got %R", args[0]);
    }
    long lasti = PyLong_AsLong(args[8]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    return (PyObject *)make_node((PyTypeObject *)args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7],
                                 (int)lasti, id);
}

PyDoc_STRVAR(enter_doc,
"enter(node, /)\n--\n\n"
"Enter a node into the table, under its recipe, and return it; or return the node that stands there already.");

static PyObject *
enter(PyObject *module, PyObject *object)
{
    if (!is_node(object)) {
        return PyErr_Format(PyExc_TypeError, "expected a node, got %R", object);
    }
    NodeObject *node = (NodeObject *)object;
    if (check_recipe(node->op, node->inputs) < 0) {
        return NULL;
    }
    if (node->is_entered) {
        return Py_NewRef(object);
    }
    PyObject *const *inputs = &PyTuple_GET_ITEM(node->inputs, 0);
    Py_ssize_t count = PyTuple_GET_SIZE(node->inputs);
    if (hash_recipe(node->op, inputs, count, node->key, &node->hash) < 0) {
        return NULL;
    }
    NodeObject *other = table_find(node->op, inputs, count, node->key, node->hash);
    if (other != NULL || PyErr_Occurred()) {
        return (PyObject *)other;
    }
    return table_insert(node) < 0 ? NULL : Py_NewRef(object);
}

PyDoc_STRVAR(leave_doc, "leave(node, /)\n--\n\nTake a node out of the table, if it is there: nobody finds it any more.");

static PyObject *
leave(PyObject *module, PyObject *object)
{
    if (!is_node(object)) {
        return PyErr_Format(PyExc_TypeError, "expected a node, got %R", object);
    }
    table_remove((NodeObject *)object);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(count_doc, "count()\n--\n\nReturn how many nodes are in the table.");

static PyObject *
count(PyObject *module, PyObject *unused)
{
    return PyLong_FromSize_t(table.count);
}

PyDoc_STRVAR(nodes_doc, "nodes()\n--\n\nReturn the nodes that are in the table, in no particular order.");

static PyObject *
nodes(PyObject *module, PyObject *unused)
{
    PyObject *list = PyList_New((Py_ssize_t)table.count);
    if (list == NULL) {
        return NULL;
    }
    /* Making the list may have been the end of some of them. */
    Py_ssize_t found = 0, room = PyList_GET_SIZE(list);
    for (size_t i = 0; i < table.size; i++) {
        for (NodeObject *node = table.chains[i]; node != NULL; node = node->next) {
            if (Py_REFCNT(node) > 0 && found < room) {
                PyList_SET_ITEM(list, found++, Py_NewRef(node));
            }
        }
    }
    Py_SET_SIZE(list, found);
    return list;
}

/* --- making calls ------------------------------------------------------------------------------------------------- */

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

PyDoc_STRVAR(call_show_doc, "show(index, tensor, /)\n--\n\nLet a tensor that keeps this call stand for an output.");

static PyObject *
call_show(CallObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("show", nargs, 2) < 0) {
        return NULL;
    }
    Py_ssize_t i = which_output(self, args[0]);
    if (i < 0) {
        return NULL;
    }
    if (!is_node(args[1]) || ((NodeObject *)args[1])->inputs != (PyObject *)self) {
        return PyErr_Format(PyExc_TypeError, "expected a tensor that keeps this call, got %R", args[1]);
    }
    self->handles[i] = (NodeObject *)args[1];
    Py_RETURN_NONE;
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
    {"show", (PyCFunction)(void (*)(void))call_show, METH_FASTCALL, call_show_doc},
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

static PyTypeObject CallType = {
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

static PyObject *name_of_id, *name_of_shapes, *name_of_dtypes;

/* Make a call that nobody finds. `place` has the code object and the offset where it counts as recorded. */
static CallObject *
make_call(PyObject *plan, PyObject *inputs, PyObject *origins, PyObject *place, PyObject *depth, PyObject *value,
          PyObject *id)
{
    PyObject *code;
    int lasti;
    if (!PyArg_ParseTuple(place, "Oi", &code, &lasti)) {
        return NULL;
    }
    CallObject *call = NULL;
    PyObject *key = PyObject_GetAttr(plan, name_of_id);
    PyObject *shapes = PyObject_GetAttr(plan, name_of_shapes);
    PyObject *dtypes = PyObject_GetAttr(plan, name_of_dtypes);
    if (key != NULL && shapes != NULL && dtypes != NULL && check_recipe(call_op, inputs) == 0) {
        call = (CallObject *)make_node(&CallType, call_op, inputs, no_params, shapes, dtypes, key, code, lasti, id);
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
    Py_XSETREF(node->piece, Py_NewRef(node->value != Py_None ? Py_None : lost));
    /* Last: what it was made from may die of it, and run other code. */
    Py_SETREF(node->inputs, Py_NewRef(call));
    return 0;
}

PyDoc_STRVAR(fold_doc,
"fold(plan, inputs, origins, id, depth, residuals, indices, tensors, /)\n--\n\n"
"Make a call with a given id of which tensors are outputs; what they were made from is let go.\n\n"
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
    PyObject *place = PyTuple_GET_ITEM(origins, PyTuple_GET_SIZE(origins) - 1);
    PyObject *call = (PyObject *)make_call(args[0], args[1], origins, place, args[4], args[5], args[3]);
    PyObject *entered = call == NULL ? NULL : enter(NULL, call);
    if (entered == NULL || entered != call) {
        Py_XDECREF(call);
        Py_XDECREF(entered);
        return entered == NULL ? NULL : Py_NewRef(Py_None);
    }
    Py_DECREF(entered);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(indices); i++) {
        PyObject *tensor = PyList_GET_ITEM(tensors, i);
        if (!is_node(tensor) ||
            become_output((NodeObject *)tensor, (CallObject *)call, PyTuple_GET_ITEM(indices, i)) < 0) {
            Py_DECREF(call);
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a tensor to fold, got %R", tensor);
        }
    }
    return call;
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *weak;
    PyObject *site;
    PyObject *inputs;
    PyObject *outputs;
    PyObject *residuals;
    PyObject *slab;
    long long newest;
    Py_ssize_t depth;
    char is_deep;
    char is_loose;
} PieceObject;

static PyMemberDef piece_members[] = {
    {"site", T_OBJECT_EX, offsetof(PieceObject, site), READONLY, NULL},
    {"inputs", T_OBJECT_EX, offsetof(PieceObject, inputs), READONLY, NULL},
    {"outputs", T_OBJECT_EX, offsetof(PieceObject, outputs), READONLY, NULL},
    {"residuals", T_OBJECT_EX, offsetof(PieceObject, residuals), 0, NULL},
    {"slab", T_OBJECT_EX, offsetof(PieceObject, slab), 0, NULL},
    {"newest", T_LONGLONG, offsetof(PieceObject, newest), READONLY, NULL},
    {"depth", T_PYSSIZET, offsetof(PieceObject, depth), READONLY, NULL},
    {"is_deep", T_BOOL, offsetof(PieceObject, is_deep), 0, NULL},
    {"is_loose", T_BOOL, offsetof(PieceObject, is_loose), 0, NULL},
    {NULL},
};

static int
piece_traverse(PieceObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->site);
    Py_VISIT(self->inputs);
    Py_VISIT(self->outputs);
    Py_VISIT(self->residuals);
    Py_VISIT(self->slab);
    return 0;
}

static int
piece_clear(PieceObject *self)
{
    Py_CLEAR(self->site);
    Py_CLEAR(self->inputs);
    Py_CLEAR(self->outputs);
    Py_CLEAR(self->residuals);
    Py_CLEAR(self->slab);
    return 0;
}

static void
piece_dealloc(PieceObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, piece_dealloc)
    if (self->weak != NULL) {
        PyObject_ClearWeakRefs((PyObject *)self);
    }
    piece_clear(self);
    Py_TYPE(self)->tp_free((PyObject *)self);
    Py_TRASHCAN_END
}

PyDoc_STRVAR(piece_doc,
"The record of a piece that was evaluated: its site, the nodes at its inputs, and its outputs, held weakly.\n\n"
"Attributes\n----------\n"
"residuals : tuple of arrays\n"
"    What it keeps for derivatives; None for what was let go. Empty if it keeps nothing.\n"
"newest : int\n"
"    The id of the youngest input that is not a leaf.\n"
"depth : int\n"
"    How many pieces in a row end with this one.\n"
"is_deep : bool\n"
"    Whether it is part of a long row.\n"
"is_loose : bool\n"
"    Whether it ran node by node, and so keeps nothing for derivatives.\n"
"slab : Slab or None\n"
"    There if the ledger had to look at it before it was folded.");

static PyTypeObject PieceType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Piece",
    .tp_doc = piece_doc,
    .tp_basicsize = sizeof(PieceObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_weaklistoffset = offsetof(PieceObject, weak),
    .tp_dealloc = (destructor)piece_dealloc,
    .tp_traverse = (traverseproc)piece_traverse,
    .tp_clear = (inquiry)piece_clear,
    .tp_members = piece_members,
};

PyDoc_STRVAR(piece_function_doc,
"piece(site, inputs, outputs, residuals, /)\n--\n\nReturn the record of a piece, with its outputs as a tuple of nodes.");

static PyObject *
piece(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("piece", nargs, 4) < 0) {
        return NULL;
    }
    if (!PyTuple_Check(args[1]) || !PyTuple_Check(args[2]) ||
        check_nodes(NULL, &PyTuple_GET_ITEM(args[1], 0), PyTuple_GET_SIZE(args[1])) < 0 ||
        check_nodes(NULL, &PyTuple_GET_ITEM(args[2], 0), PyTuple_GET_SIZE(args[2])) < 0) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a piece has tuples of nodes");
    }
    PieceObject *made = (PieceObject *)PieceType.tp_alloc(&PieceType, 0);
    Py_ssize_t count = PyTuple_GET_SIZE(args[2]);
    if (made == NULL || (made->outputs = PyList_New(count)) == NULL) {
        Py_XDECREF(made);
        return NULL;
    }
    made->site = Py_NewRef(args[0]);
    made->inputs = Py_NewRef(args[1]);
    made->residuals = Py_NewRef(args[3]);
    made->slab = Py_NewRef(Py_None);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *reference = PyWeakref_NewRef(PyTuple_GET_ITEM(args[2], i), NULL);
        if (reference == NULL) {
            Py_DECREF(made);
            return NULL;
        }
        PyList_SET_ITEM(made->outputs, i, reference);
    }
    return (PyObject *)made;
}

/* Find how many pieces in a row end with this one. Returns whether those before it that wait are marked as deep. */
static int
measure_depth(PieceObject *self)
{
    int all_marked = 1;
    long long newest = -1;
    Py_ssize_t depth = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->inputs); i++) {
        NodeObject *operand = (NodeObject *)PyTuple_GET_ITEM(self->inputs, i);
        int is_leaf = PySet_Contains(leaf_ops, operand->op);
        if (is_leaf < 0) {
            return -1;
        }
        if (is_leaf) {
            continue;
        }
        long long id = PyLong_AsLongLong(operand->id);
        newest = id > newest ? id : newest;
        Py_ssize_t before = 0;
        if (Py_IS_TYPE(operand, (PyTypeObject *)projection_class) && is_call(operand->inputs)) {
            before = PyLong_AsSsize_t(((CallObject *)operand->inputs)->depth);
        } else if (operand->piece != NULL && Py_IS_TYPE(operand->piece, &PieceType)) {
            before = ((PieceObject *)operand->piece)->depth;
            all_marked &= ((PieceObject *)operand->piece)->is_deep;
        }
        depth = before > depth ? before : depth;
    }
    self->newest = newest;
    self->depth = depth + 1;
    return all_marked;
}

PyDoc_STRVAR(place_piece_doc,
"place_piece(piece, results, most, /)\n--\n\n"
"Find how deep a piece is, mark it if more than ``most`` are in a row, and let its results, a sequence of nodes, keep it.\n\n"
"Returns whether the row has just become so long: then those before it have to be marked too.");

static PyObject *
place_piece(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("place_piece", nargs, 3) < 0) {
        return NULL;
    }
    if (!Py_IS_TYPE(args[0], &PieceType)) {
        return PyErr_Format(PyExc_TypeError, "expected a piece, got %R", args[0]);
    }
    PieceObject *self = (PieceObject *)args[0];
    Py_ssize_t most = PyLong_AsSsize_t(args[2]);
    if (leaf_ops == NULL || (most == -1 && PyErr_Occurred())) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_RuntimeError, "the core has not been told its leaves");
    }
    int all_marked = measure_depth(self);
    PyObject *results = all_marked < 0 ? NULL : PySequence_Fast(args[1], "expected a sequence of nodes");
    if (results == NULL) {
        return NULL;
    }
    if (check_nodes(NULL, PySequence_Fast_ITEMS(results), PySequence_Fast_GET_SIZE(results)) < 0) {
        Py_DECREF(results);
        return NULL;
    }
    /* An output that is older than an input may be what that input is made from: the piece computed again what an
       earlier one had not kept. It is not folded, or the call would be made from itself, and does not hold a piece. */
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(results); i++) {
        NodeObject *node = (NodeObject *)PySequence_Fast_GET_ITEM(results, i);
        if (PyLong_AsLongLong(node->id) > self->newest) {
            Py_XSETREF(node->piece, Py_NewRef(self));
        }
    }
    Py_DECREF(results);
    self->is_deep = self->depth > most;
    return PyBool_FromLong(self->is_deep && !all_marked);
}

/* --- steps of derivatives ----------------------------------------------------------------------------------------- */

/* Records of a sweep, of which there are as many as a loop has steps. Nothing that outlives the sweep refers to them,
   so they are in no cycle, and the collector does not need to look at them. */

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

static PyTypeObject StepType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.StepBase",
    .tp_doc = "What a sweep notes of a derivative call; see `unspool._autodiff.chain.Step`.",
    .tp_basicsize = sizeof(StepObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)step_dealloc,
    .tp_members = step_members,
};

static PyTypeObject PendingType = {
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

/* --- recording ---------------------------------------------------------------------------------------------------- */

/* Return the simpler node that has the same value, if the op knows one; NULL if not, or with an exception. */
static PyObject *
find_canonical(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names)
{
    if (op->canonical == NULL || op->canonical == Py_None) {
        return NULL;
    }
    PyObject *found = PyObject_Vectorcall(op->canonical, inputs, count, names);
    if (found == Py_None) {
        Py_DECREF(found);
        return NULL;
    }
    return found;
}

PyDoc_STRVAR(record_one_doc,
"record_one(op, x, /)\n--\n\nReturn the node for an elementwise op of one tensor.");

static PyObject *
record_one(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("record_one", nargs, 2) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (check_nodes(args[0], args + 1, 1) < 0) {
        return NULL;
    }
    OpObject *op = (OpObject *)args[0];
    NodeObject *x = (NodeObject *)args[1];
    Py_uhash_t hash;
    if (hash_recipe(args[0], args + 1, 1, empty, &hash) < 0) {
        return NULL;
    }
    PyObject *found = (PyObject *)table_find(args[0], args + 1, 1, empty, hash);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    found = find_canonical(op, args + 1, 1, NULL);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *dtypes = PyTuple_Pack(1, x->dtype);
    PyObject *dtype = dtypes == NULL ? NULL : PyObject_GetItem(op->result_dtypes, dtypes);
    Py_XDECREF(dtypes);
    PyObject *inputs = dtype == NULL ? NULL : PyTuple_Pack(1, args[1]);
    if (inputs == NULL) {
        Py_XDECREF(dtype);
        return NULL;
    }
    PyObject *node = make_entered(op, inputs, no_params, x->shape, dtype, empty, hash);
    Py_DECREF(dtype);
    return node;
}

/* Whether two shapes are the same, known sizes. Symbolic ones are left to `align`: they note who compares them. */
static int
same_numbers(PyObject *left, PyObject *right)
{
    if (!PyTuple_Check(left) || !PyTuple_Check(right) || PyTuple_GET_SIZE(left) != PyTuple_GET_SIZE(right)) {
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left); i++) {
        PyObject *a = PyTuple_GET_ITEM(left, i), *b = PyTuple_GET_ITEM(right, i);
        if (a != b && !(PyLong_CheckExact(a) && PyLong_CheckExact(b) && PyObject_RichCompareBool(a, b, Py_EQ) == 1)) {
            return 0;
        }
    }
    return 1;
}

/* Record an op of two tensors whose shapes do not simply fit: `align` knows how they broadcast. */
static PyObject *
record_aligned(OpObject *op, PyObject *x1, PyObject *x2, PyObject *dtype)
{
    PyObject *aligned = PyObject_CallFunctionObjArgs(align, x1, x2, NULL);
    PyObject *inputs, *shape, *node = NULL;
    if (aligned == NULL) {
        return NULL;
    }
    Py_uhash_t hash;
    if (PyArg_ParseTuple(aligned, "O!O", &PyTuple_Type, &inputs, &shape) &&
        hash_recipe((PyObject *)op, &PyTuple_GET_ITEM(inputs, 0), PyTuple_GET_SIZE(inputs), empty, &hash) == 0) {
        node = make_entered(op, Py_NewRef(inputs), no_params, shape, dtype, empty, hash);
    }
    Py_DECREF(aligned);
    return node;
}

static PyObject *
record_two(OpObject *op, NodeObject *x1, NodeObject *x2)
{
    if (look_up_dtypes(op, x1->dtype, x2->dtype) < 0) {
        return NULL;
    }
    if (op->commutes && PyLong_AsLongLong(x1->id) > PyLong_AsLongLong(x2->id)) {
        NodeObject *first = x2;
        x2 = x1;
        x1 = first;
        if (look_up_dtypes(op, x1->dtype, x2->dtype) < 0) {
            return NULL;
        }
    }
    PyObject *operands[] = {(PyObject *)x1, (PyObject *)x2};
    Py_uhash_t hash;
    if (hash_recipe((PyObject *)op, operands, 2, empty, &hash) < 0) {
        return NULL;
    }
    PyObject *found = (PyObject *)table_find((PyObject *)op, operands, 2, empty, hash);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *dtype = Py_NewRef(op->result); /* canonical rules may record other nodes of this op */
    found = find_canonical(op, operands, 2, NULL);
    if (found != NULL || PyErr_Occurred()) {
        Py_DECREF(dtype);
        return found;
    }
    PyObject *shape = x1->shape;
    if (shape != x2->shape && x2->shape != empty) {
        if (shape == empty) {
            shape = x2->shape;
        } else if (!same_numbers(shape, x2->shape)) {
            found = record_aligned(op, operands[0], operands[1], dtype);
            Py_DECREF(dtype);
            return found;
        }
    }
    PyObject *inputs = PyTuple_Pack(2, x1, x2);
    PyObject *node = inputs == NULL ? NULL : make_entered(op, inputs, no_params, shape, dtype, empty, hash);
    Py_DECREF(dtype);
    return node;
}

PyDoc_STRVAR(record_doc,
"record(op, x1, x2, /)\n--\n\nReturn the node for an elementwise op of two tensors.");

static PyObject *
record(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("record", nargs, 3) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "expected an op, got %R", args[0]);
    }
    if (check_nodes(args[0], args + 1, 2) < 0) {
        return NULL;
    }
    return record_two((OpObject *)args[0], (NodeObject *)args[1], (NodeObject *)args[2]);
}

PyDoc_STRVAR(intern_doc,
"intern(op, inputs, params, shape, dtype, key, /)\n--\n\n"
"Make a tensor whose shape and dtype are known and enter it under its recipe; ``key`` None: it is never shared.");

static PyObject *
intern(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("intern", nargs, 6) < 0 || check_recipe(args[0], args[1]) < 0) {
        return NULL;
    }
    PyObject *const *inputs = &PyTuple_GET_ITEM(args[1], 0);
    Py_ssize_t number = PyTuple_GET_SIZE(args[1]);
    PyObject *key = args[5];
    if (check_nodes(args[0], inputs, number) < 0) {
        return NULL;
    }
    if (key != Py_None) {
        Py_uhash_t hash;
        if (hash_recipe(args[0], inputs, number, key, &hash) < 0) {
            return NULL;
        }
        return make_entered((OpObject *)args[0], Py_NewRef(args[1]), args[2], args[3], args[4], key, hash);
    }
    int lasti;
    PyObject *code = find_origin(&lasti);
    if (code == NULL) {
        return NULL;
    }
    NodeObject *node = make_node((PyTypeObject *)tensor_class, args[0], args[1], args[2], args[3], args[4], key, code,
                                 lasti, NULL);
    Py_DECREF(code);
    return (PyObject *)node;
}

/* Return the parameters of a call as pairs of a name and a value, in the order in which they were given. */
static PyObject *
pair_up(PyObject *names, PyObject *const *values)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    PyObject *pairs = PyTuple_New(count);
    for (Py_ssize_t i = 0; pairs != NULL && i < count; i++) {
        PyObject *pair = PyTuple_Pack(2, PyTuple_GET_ITEM(names, i), values[i]);
        if (pair == NULL) {
            Py_CLEAR(pairs);
        } else {
            PyTuple_SET_ITEM(pairs, i, pair);
        }
    }
    return pairs;
}

/* Return the parameters of a call as a node keeps them. */
static PyObject *
keep_params(OpObject *op, PyObject *names, PyObject *const *values)
{
    if (names == NULL) {
        return Py_NewRef(no_params);
    }
    PyObject *params = PyDict_New();
    for (Py_ssize_t i = 0; params != NULL && i < PyTuple_GET_SIZE(names); i++) {
        if (PyDict_SetItem(params, PyTuple_GET_ITEM(names, i), values[i]) < 0) {
            Py_CLEAR(params);
        }
    }
    if (params == NULL || op->sized == NULL || PyObject_Size(op->sized) == 0) {
        return params;
    }
    PyObject *kept = PyObject_CallFunctionObjArgs(with_sizes, params, op->sized, NULL);
    Py_DECREF(params);
    return kept;
}

/* Record an op that is not alive: in its canonical form, or with the shape and dtype that it infers. */
static PyObject *
record_inferred(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names, PyObject *key, Py_uhash_t hash)
{
    PyObject *found = find_canonical(op, inputs, count, names);
    if (found != NULL || PyErr_Occurred()) {
        return found;
    }
    PyObject *inferred = PyObject_Vectorcall(op->infer, inputs, count, names);
    PyObject *shape, *dtype, *node = NULL;
    if (inferred == NULL) {
        return NULL;
    }
    if (PyTuple_Check(inferred) && PyArg_ParseTuple(inferred, "OO", &shape, &dtype)) {
        PyObject *params = keep_params(op, names, inputs + count);
        PyObject *operands = params == NULL ? NULL : PyTuple_New(count);
        if (operands != NULL) {
            for (Py_ssize_t i = 0; i < count; i++) {
                PyTuple_SET_ITEM(operands, i, Py_NewRef(inputs[i]));
            }
            node = make_entered(op, operands, params, shape, dtype, key, hash);
        }
        Py_XDECREF(params);
    } else if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%R should infer a shape and a dtype, got %R", op, inferred);
    }
    Py_DECREF(inferred);
    return node;
}

PyDoc_STRVAR(apply_doc,
"apply(op, /, *inputs, **params)\n--\n\n"
"Return the node for ``op(*inputs, **params)``: the interned one if it is alive, else a new one.");

static PyObject *
apply(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    if (nargs < 1 || !PyObject_TypeCheck(args[0], &OpType)) {
        return PyErr_Format(PyExc_TypeError, "apply takes an op and its inputs");
    }
    OpObject *op = (OpObject *)args[0];
    PyObject *const *inputs = args + 1;
    Py_ssize_t count = nargs - 1;
    if (check_nodes(args[0], inputs, count) < 0) {
        return NULL;
    }
    if (names != NULL && PyTuple_GET_SIZE(names) == 0) {
        names = NULL;
    }
    PyObject *key = names == NULL ? Py_NewRef(empty) : pair_up(names, inputs + count);
    if (key == NULL) {
        return NULL;
    }
    PyObject *node = NULL;
    Py_uhash_t hash;
    if (hash_recipe(args[0], inputs, count, key, &hash) == 0) {
        node = (PyObject *)table_find(args[0], inputs, count, key, hash);
        if (node == NULL && !PyErr_Occurred()) {
            node = record_inferred(op, inputs, count, names, key, hash);
        }
    }
    Py_DECREF(key);
    return node;
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

/* The op of each operator, and the function that takes any operands and may return NotImplemented. */
static struct {
    PyObject *op;
    PyObject *general;
} operators[4];

static const char *const operator_names[] = {"add", "subtract", "multiply", "divide", NULL};

PyDoc_STRVAR(bind_operator_doc,
"bind_operator(name, op, general, /)\n--\n\n"
"Tell which op an operator of tensors records; ``general(left, right)`` is for operands other than tensors and floats.");

static PyObject *
bind_operator(PyObject *module, PyObject *args)
{
    const char *name;
    PyObject *op, *general;
    if (!PyArg_ParseTuple(args, "sO!O", &name, &OpType, &op, &general)) {
        return NULL;
    }
    for (int i = 0; operator_names[i] != NULL; i++) {
        if (strcmp(name, operator_names[i]) == 0) {
            Py_XSETREF(operators[i].op, Py_NewRef(op));
            Py_XSETREF(operators[i].general, Py_NewRef(general));
            Py_RETURN_NONE;
        }
    }
    return PyErr_Format(PyExc_TypeError, "there is no operator %s", name);
}

/* Return the constant for a float beside a node. It is alive in all steps of a loop but the first. */
static PyObject *
constant_beside(PyObject *number, NodeObject *beside)
{
    if (beside->dtype == float64 && PyFloat_AS_DOUBLE(number) != 0.0) {
        PyObject *key = PyTuple_Pack(3, float64, empty, number);
        Py_uhash_t hash;
        if (key == NULL || hash_recipe(constant_op, NULL, 0, key, &hash) < 0) {
            Py_XDECREF(key);
            return NULL;
        }
        NodeObject *found = table_find(constant_op, NULL, 0, key, hash);
        Py_DECREF(key);
        if (found != NULL && found->value != NULL && found->value != Py_None) {
            return (PyObject *)found;
        }
        Py_XDECREF(found);
        if (found == NULL && PyErr_Occurred()) {
            return NULL;
        }
    }
    return PyObject_CallFunctionObjArgs(scalar, number, beside->dtype, NULL);
}

static PyObject *
operate(int which, PyObject *left, PyObject *right)
{
    OpObject *op = (OpObject *)operators[which].op;
    if (is_node(left)) {
        if (is_node(right)) {
            return record_two(op, (NodeObject *)left, (NodeObject *)right);
        }
        if (PyFloat_CheckExact(right)) {
            PyObject *number = constant_beside(right, (NodeObject *)left);
            PyObject *node = number == NULL ? NULL : record_two(op, (NodeObject *)left, (NodeObject *)number);
            Py_XDECREF(number);
            return node;
        }
    } else if (PyFloat_CheckExact(left)) {
        PyObject *number = constant_beside(left, (NodeObject *)right);
        PyObject *node = number == NULL ? NULL : record_two(op, (NodeObject *)number, (NodeObject *)right);
        Py_XDECREF(number);
        return node;
    }
    return PyObject_CallFunctionObjArgs(operators[which].general, left, right, NULL);
}

static PyObject *
tensor_add(PyObject *left, PyObject *right)
{
    return operate(0, left, right);
}

static PyObject *
tensor_subtract(PyObject *left, PyObject *right)
{
    return operate(1, left, right);
}

static PyObject *
tensor_multiply(PyObject *left, PyObject *right)
{
    return operate(2, left, right);
}

static PyObject *
tensor_divide(PyObject *left, PyObject *right)
{
    return operate(3, left, right);
}

static PyNumberMethods tensor_numbers = {
    .nb_add = tensor_add,
    .nb_subtract = tensor_subtract,
    .nb_multiply = tensor_multiply,
    .nb_true_divide = tensor_divide,
};

PyDoc_STRVAR(tensor_doc, "A node with the four operators of arithmetic; see `unspool.Tensor`.");

static PyTypeObject TensorType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.TensorBase",
    .tp_doc = tensor_doc,
    .tp_basicsize = sizeof(NodeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_base = &NodeType,
    .tp_weaklistoffset = offsetof(NodeObject, weak),
    .tp_dealloc = (destructor)node_dealloc,
    .tp_traverse = (traverseproc)node_traverse,
    .tp_clear = (inquiry)node_clear,
    .tp_as_number = &tensor_numbers,
};

/* --- the module --------------------------------------------------------------------------------------------------- */

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"apply", FAST(apply), METH_FASTCALL | METH_KEYWORDS, apply_doc},
    {"bind", FAST(bind), METH_VARARGS | METH_KEYWORDS, bind_doc},
    {"bind_operator", bind_operator, METH_VARARGS, bind_operator_doc},
    {"call", FAST(call_of_plan), METH_FASTCALL, call_of_plan_doc},
    {"count", count, METH_NOARGS, count_doc},
    {"current_origin", current_origin, METH_NOARGS, current_origin_doc},
    {"enter", enter, METH_O, enter_doc},
    {"find", FAST(find), METH_FASTCALL, find_doc},
    {"fold", FAST(fold), METH_FASTCALL, fold_doc},
    {"intern", FAST(intern), METH_FASTCALL, intern_doc},
    {"leave", leave, METH_O, leave_doc},
    {"new", FAST(new), METH_FASTCALL, new_doc},
    {"next_id", next_id, METH_NOARGS, "next_id()\n--\n\nReturn a number that no node has; they only grow."},
    {"nodes", nodes, METH_NOARGS, nodes_doc},
    {"pending", FAST(pending), METH_FASTCALL, pending_doc},
    {"piece", FAST(piece), METH_FASTCALL, piece_function_doc},
    {"place_piece", FAST(place_piece), METH_FASTCALL, place_piece_doc},
    {"record", FAST(record), METH_FASTCALL, record_doc},
    {"record_one", FAST(record_one), METH_FASTCALL, record_one_doc},
    {"step", FAST(step), METH_FASTCALL, step_doc},
    {NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "unspool._core",
    .m_doc = "The nodes of the graph, and the table in which equal recipes are one node.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    PyTypeObject *types[] = {&OpType, &NodeType, &BundleType, &CallType, &TensorType, &OriginType, &PieceType, &StepType, &PendingType};
    empty = PyTuple_New(0);
    name_of_id = PyUnicode_InternFromString("id");
    name_of_shapes = PyUnicode_InternFromString("output_shapes");
    name_of_dtypes = PyUnicode_InternFromString("output_dtypes");
    if (empty == NULL || name_of_id == NULL || name_of_shapes == NULL || name_of_dtypes == NULL || (table.chains == NULL && table_resize(SMALLEST) < 0)) {
        return PyErr_NoMemory();
    }
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            Py_CLEAR(module);
        }
    }
    return module;
}
