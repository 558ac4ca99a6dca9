/* The table in which equal recipes are one node.

   It has no keys of its own. A node is its own key: the op, the identities of its inputs, and an object that tells
   apart nodes which have those in common (`key`: parameters, or the content of a constant). Where the order of two
   inputs changes no bit of the result, either order is the recipe; the node keeps the one it was written in first.
   Nodes with the same hash stand in one chain, linked through the nodes themselves. The table does not own them: a
   node leaves when it dies, before its memory is anybody else's. All of this happens under the interpreter's lock;
   where a comparison runs Python code that changes the table, the search begins again, without the node whose
   comparison that was: so it ends. */

#include "core.h"

#define SMALLEST 1024

static struct {
    NodeObject **chains;
    size_t size; /* a power of two */
    size_t count;
    size_t changes; /* how often it was resized, or a node came or left: what a search was at may be elsewhere */
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
    table.changes++;
    return 0;
}

int
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
    table.changes++;
    return 0;
}

void
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
    table.changes++;
    if (table.size > SMALLEST && table.count < table.size / 8) {
        (void)table_resize(table.size / 2); /* if there is no memory for it, it stays as large as it is */
    }
}

static Py_uhash_t
mix(Py_uhash_t h)
{
    h *= (Py_uhash_t)0x9E3779B97F4A7C15ULL;
    return h ^ (h >> 29);
}

/* Return the hash of a recipe, given that of its key. */
Py_uhash_t
hash_inputs(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_hash_t of_key)
{
    Py_uhash_t h = (Py_uhash_t)op >> 4;
    if (count == 2) {
        /* The same in either order: the inputs may commute. */
        h = mix(h ^ (mix((Py_uhash_t)inputs[0] >> 4) + mix((Py_uhash_t)inputs[1] >> 4)));
    } else {
        for (Py_ssize_t i = 0; i < count; i++) {
            h = mix(h ^ ((Py_uhash_t)inputs[i] >> 4));
        }
    }
    if (key != empty) {
        h = (h ^ (Py_uhash_t)of_key) * (Py_uhash_t)0x9E3779B97F4A7C15ULL;
    }
    return h ^ (h >> 32);
}

int
hash_recipe(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_uhash_t *hash)
{
    Py_hash_t of_key = key == empty ? 0 : PyObject_Hash(key);
    if (of_key == -1) {
        return -1;
    }
    *hash = hash_inputs(op, inputs, count, key, of_key);
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

/* Whether a node has two inputs in the other order, and that order changes no bit of its value. */
static int
same_swapped(NodeObject *node, PyObject *const *inputs, Py_ssize_t count)
{
    PyObject *own = node->inputs, *commuting = ((OpObject *)node->op)->commuting;
    if (count != 2 || own == NULL || !PyTuple_Check(own) || PyTuple_GET_SIZE(own) != 2 ||
        PyTuple_GET_ITEM(own, 0) != inputs[1] || PyTuple_GET_ITEM(own, 1) != inputs[0] || commuting == NULL ||
        !PyFrozenSet_CheckExact(commuting)) {
        return 0;
    }
    /* Its elements are dtypes, whose comparison runs no Python code. */
    return PySet_Contains(commuting, ((NodeObject *)inputs[0])->dtype) == 1 &&
           PySet_Contains(commuting, ((NodeObject *)inputs[1])->dtype) == 1;
}

/* Whether a node that is in the table is of a recipe, but for its key. One whose last reference is gone may still be
   there: its end is put off if many die at once. */
static int
is_candidate(NodeObject *node, PyObject *op, PyObject *const *inputs, Py_ssize_t count, Py_uhash_t hash)
{
    return node->hash == hash && node->op == op && Py_REFCNT(node) > 0 &&
           (same_inputs(node, inputs, count) || same_swapped(node, inputs, count));
}

/* Note that a node is not compared again. Returns -1 with an exception if that failed. */
static int
rule_out(PyObject **ruled_out, PyObject *id)
{
    if (*ruled_out == NULL) {
        *ruled_out = PySet_New(NULL);
    }
    return *ruled_out == NULL ? -1 : PySet_Add(*ruled_out, id);
}

/* Return a new reference to the live node of a recipe; NULL if there is none, with an exception if the search failed. */
NodeObject *
table_find(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_uhash_t hash)
{
    PyObject *ruled_out = NULL; /* the ids of nodes that differ, and whose comparison changed the table */
    NodeObject *found = NULL, *node = table.chains[hash & (table.size - 1)];
    while (node != NULL) {
        if (!is_candidate(node, op, inputs, count, hash) ||
            (ruled_out != NULL && PySet_Contains(ruled_out, node->id) == 1)) {
            node = node->next;
            continue;
        }
        Py_INCREF(node);
        if (node->key == key) {
            found = node;
            break;
        }
        size_t changes = table.changes;
        PyObject *own = Py_NewRef(node->key), *id = Py_NewRef(node->id);
        int equal = PyObject_RichCompareBool(own, key, Py_EQ);
        Py_DECREF(own);
        if (equal > 0) {
            Py_DECREF(id);
            found = node;
            break;
        }
        /* The comparison may have run anything, and so may the end of this node. */
        NodeObject *next = node->next;
        Py_DECREF(node);
        if (equal == 0 && table.changes != changes) {
            equal = rule_out(&ruled_out, id);
            next = table.chains[hash & (table.size - 1)];
        }
        Py_DECREF(id);
        if (equal < 0) {
            break;
        }
        node = next;
    }
    Py_XDECREF(ruled_out);
    if (found != NULL && found->value != Py_None) {
        found->is_again = 1;
    }
    return found;
}

/* Return a new reference to the live constant of a number, which has a dtype, no axes and a hash; NULL if there is none
   whose key says so in the plainest way. Nothing else runs. */
NodeObject *
table_find_float(PyObject *dtype, double value, Py_uhash_t hash)
{
    for (NodeObject *node = table.chains[hash & (table.size - 1)]; node != NULL; node = node->next) {
        if (node->hash == hash && node->op == constant_op && Py_REFCNT(node) > 0 && PyTuple_CheckExact(node->key) &&
            PyTuple_GET_SIZE(node->key) == 3 && PyTuple_GET_ITEM(node->key, 0) == dtype &&
            PyTuple_GET_ITEM(node->key, 1) == empty && PyFloat_CheckExact(PyTuple_GET_ITEM(node->key, 2)) &&
            PyFloat_AS_DOUBLE(PyTuple_GET_ITEM(node->key, 2)) == value) {
            return (NodeObject *)Py_NewRef(node);
        }
    }
    return NULL;
}

/* Make the table; returns -1 if there is no memory for it. */
int
table_start(void)
{
    return table.chains != NULL ? 0 : table_resize(SMALLEST);
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

PyMethodDef table_methods[] = {
    {"count", count, METH_NOARGS, count_doc},
    {"nodes", nodes, METH_NOARGS, nodes_doc},
    {NULL},
};
