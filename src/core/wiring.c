/* Pieces of graph that have not been evaluated: which nodes they are, and their wiring as integers.

   Both look at every node of a graph that may have millions of them. */

#include "core.h"

/* --- tables of pointers --- */

typedef struct {
    const void *key[5];
    Py_ssize_t value;
} Slot;

/* From up to five addresses to a number; open addressing, at most half full. */
typedef struct {
    Slot *slot;
    size_t size, used;
    int width;
} Addresses;

static int
addresses_start(Addresses *table, size_t expected, int width)
{
    table->size = 64;
    while (table->size < 2 * expected) {
        table->size *= 2;
    }
    table->used = 0;
    table->width = width;
    table->slot = PyMem_Calloc(table->size, sizeof(Slot));
    if (table->slot == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Return where a key is, or where it would be: there the first address is NULL. */
static Slot *
addresses_find(const Addresses *table, const void *const *key)
{
    size_t hash = 0;
    for (int i = 0; i < table->width; i++) {
        hash = (hash ^ ((size_t)key[i] >> 4)) * (size_t)0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 29;
    }
    for (size_t at = hash & (table->size - 1);; at = (at + 1) & (table->size - 1)) {
        Slot *slot = &table->slot[at];
        if (slot->key[0] == NULL || memcmp(slot->key, key, table->width * sizeof(void *)) == 0) {
            return slot;
        }
    }
}

static int
addresses_add(Addresses *table, const void *const *key, Py_ssize_t value)
{
    if (2 * (table->used + 1) > table->size) {
        Addresses larger;
        if (addresses_start(&larger, 2 * table->size, table->width) < 0) {
            return -1;
        }
        for (size_t i = 0; i < table->size; i++) {
            if (table->slot[i].key[0] != NULL) {
                *addresses_find(&larger, table->slot[i].key) = table->slot[i];
            }
        }
        larger.used = table->used;
        PyMem_Free(table->slot);
        *table = larger;
    }
    Slot *slot = addresses_find(table, key);
    memcpy(slot->key, key, table->width * sizeof(void *));
    slot->value = value;
    table->used++;
    return 0;
}

/* --- wiring --- */

/* What is being described. */
typedef struct {
    PyObject *codes, *keys, *outside; /* tokens by what nodes are; that of each token; what is read and no part of it */
    Addresses where, known;
    long long *token, *arity, *source;
    Py_ssize_t sources, room;
} Description;

/* Return the number that stands for what a node is; -1 is an error. */
static Py_ssize_t
token_of(Description *all, const NodeObject *node, Py_ssize_t count)
{
    /* Nodes that are alike share these objects, nearly always. */
    const void *key[5] = {node->op, node->shape, node->dtype, node->params, (void *)(count + 1)};
    Slot *slot = addresses_find(&all->known, key);
    if (slot->key[0] != NULL) {
        return slot->value;
    }
    PyObject *items = PyMapping_Items(node->params);
    PyObject *frozen = items == NULL ? NULL : PyList_AsTuple(items);
    PyObject *what = frozen == NULL ? NULL : Py_BuildValue("(OOOnO)", node->shape, node->dtype, node->op, count, frozen);
    Py_XDECREF(items);
    Py_XDECREF(frozen);
    if (what == NULL) {
        return -1;
    }
    Py_ssize_t token = -1;
    PyObject *found = PyDict_GetItemWithError(all->codes, what);
    if (found != NULL) {
        token = PyLong_AsSsize_t(found);
    }
    else if (!PyErr_Occurred()) {
        PyObject *number = PyLong_FromSsize_t(PyList_GET_SIZE(all->keys));
        if (number != NULL && PyDict_SetItem(all->codes, what, number) == 0 && PyList_Append(all->keys, what) == 0) {
            token = PyList_GET_SIZE(all->keys) - 1;
        }
        Py_XDECREF(number);
    }
    Py_DECREF(what);
    if (token >= 0 && addresses_add(&all->known, key, token) < 0) {
        return -1;
    }
    return token;
}

static int
add_source(Description *all, PyObject *operand, Py_ssize_t size)
{
    const void *key[1] = {operand};
    Slot *slot = addresses_find(&all->where, key);
    Py_ssize_t source = slot->value;
    if (slot->key[0] == NULL) {
        source = size + PyList_GET_SIZE(all->outside);
        if (PyList_Append(all->outside, operand) < 0 || addresses_add(&all->where, key, source) < 0) {
            return -1;
        }
    }
    if (all->sources == all->room) {
        Py_ssize_t room = 2 * all->room + 64;
        long long *larger = PyMem_Realloc(all->source, room * sizeof(long long));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        all->source = larger;
        all->room = room;
    }
    all->source[all->sources++] = source;
    return 0;
}

static int
describe(Description *all, PyObject *order)
{
    Py_ssize_t size = PyList_GET_SIZE(order);
    for (Py_ssize_t i = 0; i < size; i++) {
        const void *key[1] = {PyList_GET_ITEM(order, i)};
        if (addresses_find(&all->where, key)->key[0] == NULL && addresses_add(&all->where, key, i) < 0) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < size; i++) {
        NodeObject *node = (NodeObject *)PyList_GET_ITEM(order, i);
        if (!PyTuple_Check(node->inputs)) {
            PyErr_SetString(PyExc_TypeError, "there must be no outputs of calls among the nodes");
            return -1;
        }
        Py_ssize_t count = PyTuple_GET_SIZE(node->inputs);
        all->token[i] = token_of(all, node, count);
        all->arity[i] = count;
        if (all->token[i] < 0) {
            return -1;
        }
        for (Py_ssize_t j = 0; j < count; j++) {
            if (add_source(all, PyTuple_GET_ITEM(node->inputs, j), size) < 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int
check_list(PyObject *order)
{
    if (!PyList_Check(order)) {
        PyErr_Format(PyExc_TypeError, "expected a list of nodes, got %R", order);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(order); i++) {
        PyObject *node = PyList_GET_ITEM(order, i);
        if (check_nodes(NULL, &node, 1) < 0) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(wiring_doc,
"wiring(order, /)\n--\n\n"
"Describe a list of nodes, in topological order and without outputs of calls, by integers.\n\n"
"Returns bytes of 64-bit integers: a token for each node, how many inputs it has, and the positions of all inputs, from\n"
"``len(order)`` on in a list of what is read and is no part of it; then that list, and for each token shape, dtype, op,\n"
"number of inputs and parameters.");

static PyObject *
wiring(PyObject *module, PyObject *order)
{
    if (check_list(order) < 0) {
        return NULL;
    }
    Py_ssize_t size = PyList_GET_SIZE(order);
    Description all = {.codes = PyDict_New(), .keys = PyList_New(0), .outside = PyList_New(0)};
    all.token = PyMem_Calloc(size + 1, sizeof(long long));
    all.arity = PyMem_Calloc(size + 1, sizeof(long long));
    PyObject *result = NULL;
    int is_ready = all.codes != NULL && all.keys != NULL && all.outside != NULL && all.token != NULL && all.arity != NULL;
    if (!is_ready) {
        PyErr_NoMemory();
    }
    else if (addresses_start(&all.where, size, 1) == 0 && addresses_start(&all.known, 64, 5) == 0 &&
             describe(&all, order) == 0) {
        Py_ssize_t width = sizeof(long long);
        result = Py_BuildValue("(y#y#y#OO)", (char *)all.token, size * width, (char *)all.arity, size * width,
                               all.source == NULL ? "" : (char *)all.source, all.sources * width, all.outside, all.keys);
    }
    PyMem_Free(all.where.slot);
    PyMem_Free(all.known.slot);
    PyMem_Free(all.token);
    PyMem_Free(all.arity);
    PyMem_Free(all.source);
    Py_XDECREF(all.codes);
    Py_XDECREF(all.keys);
    Py_XDECREF(all.outside);
    return result;
}

/* --- what is pending --- */

/* Put a node on a list if it has to run, is not older than a bound and was not met before; -1 is an error. */
static int
meet_pending(PyObject *met, Addresses *known, PyObject *candidate, long long first)
{
    NodeObject *node = (NodeObject *)candidate;
    if (node->value != Py_None || !PyTuple_Check(node->inputs) || number_of(node) < first) {
        return 0;
    }
    const void *key[1] = {node};
    if (addresses_find(known, key)->key[0] != NULL) {
        return 0;
    }
    return addresses_add(known, key, 0) < 0 || PyList_Append(met, candidate) < 0 ? -1 : 0;
}

PyDoc_STRVAR(has_pending_doc,
"has_pending(nodes, first, most, /)\n--\n\n"
"Whether a list of nodes is made from so many others that have no value and are no outputs of calls, none of them with an\n"
"id below ``first``. No more are looked at.");

static PyObject *
has_pending(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("has_pending", nargs, 3) < 0 || check_list(args[0]) < 0) {
        return NULL;
    }
    long long first = PyLong_AsLongLong(args[1]), most = PyLong_AsLongLong(args[2]);
    Addresses known;
    if (PyErr_Occurred() || addresses_start(&known, 64, 1) < 0) {
        return NULL;
    }
    PyObject *met = PyList_New(0);
    int failed = met == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(args[0]); i++) {
        failed = meet_pending(met, &known, PyList_GET_ITEM(args[0], i), first) < 0;
    }
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(met) && PyList_GET_SIZE(met) < most; at++) {
        PyObject *inputs = ((NodeObject *)PyList_GET_ITEM(met, at))->inputs;
        for (Py_ssize_t i = 0; !failed && PyTuple_Check(inputs) && i < PyTuple_GET_SIZE(inputs); i++) {
            failed = meet_pending(met, &known, PyTuple_GET_ITEM(inputs, i), first) < 0;
        }
    }
    PyObject *result = failed ? NULL : PyBool_FromLong(PyList_GET_SIZE(met) >= most);
    PyMem_Free(known.slot);
    Py_XDECREF(met);
    return result;
}

/* --- what calls read --- */

/* What is known of an input of a plan: the first node there, whether there were others, whether one came back. */
enum { FIRST = 1, VARIES = 2, RECURS = 3 };

static inline int
is_known(const Addresses *table, PyObject *plan, Py_ssize_t position, size_t what)
{
    const void *key[3] = {plan, (void *)(position + 1), (void *)what};
    return addresses_find(table, key)->key[0] != NULL;
}

/* Enter what is new; the value of what was known stays. Returns 1 if it was known, -1 is an error. */
static int
make_known(Addresses *table, PyObject *plan, Py_ssize_t position, const void *what, const void *value)
{
    const void *key[3] = {plan, (void *)(position + 1), what};
    if (addresses_find(table, key)->key[0] != NULL) {
        return 1;
    }
    return addresses_add(table, key, (Py_ssize_t)value);
}

/* The last call of each of a few plans, and at which inputs nodes are known to come back, as bits. */
typedef struct {
    const CallObject *call[8];
    uint64_t recurs[8];
} Latest;

static int
look_at_inputs(Addresses *table, Latest *latest, const CallObject *call)
{
    size_t at = ((size_t)call->plan >> 6) % Py_ARRAY_LENGTH(latest->call);
    const CallObject *before = latest->call[at];
    if (before == NULL || before->plan != call->plan) {
        before = NULL;
        latest->recurs[at] = 0;
    }
    latest->call[at] = call;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call->node.inputs); i++) {
        NodeObject *input = (NodeObject *)PyTuple_GET_ITEM(call->node.inputs, i);
        /* What a loop carries from step to step is no matter of which node it is. */
        if (is_call(input->inputs) && ((CallObject *)input->inputs)->plan == call->plan) {
            continue;
        }
        /* Most are what they were in the call before: all that can be known of that is known. */
        int is_same = before != NULL && i < 64 && PyTuple_GET_ITEM(before->node.inputs, i) == (PyObject *)input;
        if (is_same && (latest->recurs[at] >> i & 1)) {
            continue;
        }
        latest->recurs[at] |= (uint64_t)is_same << i;
        int was_first = make_known(table, call->plan, i, (void *)FIRST, input);
        const void *key[3] = {call->plan, (void *)(i + 1), (void *)FIRST};
        int varies = was_first == 1 && addresses_find(table, key)->value != (Py_ssize_t)input;
        int was_met = make_known(table, call->plan, i, input, NULL);
        if (was_first < 0 || was_met < 0 ||
            (varies && make_known(table, call->plan, i, (void *)VARIES, NULL) < 0) ||
            (was_met && make_known(table, call->plan, i, (void *)RECURS, NULL) < 0)) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(recurring_doc,
"recurring(order, /)\n--\n\n"
"Return, by plan, the inputs at which calls in a list of nodes read now one node, now another, and some of them again.\n\n"
"Rows of a table that a loop reads by an index that comes back, say; not what a call of the same plan made.");

static PyObject *
recurring(PyObject *module, PyObject *order)
{
    Addresses table;
    if (check_list(order) < 0 || addresses_start(&table, 64, 3) < 0) {
        return NULL;
    }
    PyObject *found = PyDict_New();
    Latest latest = {{0}, {0}};
    int failed = found == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(order); i++) {
        PyObject *node = PyList_GET_ITEM(order, i);
        failed = is_call(node) && look_at_inputs(&table, &latest, (CallObject *)node) < 0;
    }
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(order); i++) {
        CallObject *call = (CallObject *)PyList_GET_ITEM(order, i);
        if (!is_call((PyObject *)call) || PyDict_Contains(found, call->plan) != 0) {
            failed = PyErr_Occurred() != NULL;
            continue;
        }
        PyObject *positions = PyList_New(0);
        for (Py_ssize_t at = 0; positions != NULL && at < PyTuple_GET_SIZE(call->node.inputs); at++) {
            if (is_known(&table, call->plan, at, VARIES) && is_known(&table, call->plan, at, RECURS)) {
                PyObject *number = PyLong_FromSsize_t(at);
                if (number == NULL || PyList_Append(positions, number) < 0) {
                    Py_CLEAR(positions);
                }
                Py_XDECREF(number);
            }
        }
        failed = positions == NULL || PyDict_SetItem(found, call->plan, positions) < 0;
        Py_XDECREF(positions);
    }
    PyMem_Free(table.slot);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

PyMethodDef wiring_methods[] = {
    {"has_pending", FAST(has_pending), METH_FASTCALL, has_pending_doc},
    {"recurring", recurring, METH_O, recurring_doc},
    {"wiring", wiring, METH_O, wiring_doc},
    {NULL},
};
