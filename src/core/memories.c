/* The memory of arrays: which array owns it, how much it is, and whether it was freed. */

#include "holding.h"

static PyObject *name_base, *name_nbytes;

void
memories_begin(Memories *all)
{
    all->item = all->few;
    all->count = 0;
    all->room = (Py_ssize_t)Py_ARRAY_LENGTH(all->few);
}

void
memories_end(Memories *all)
{
    if (all->item != all->few) {
        PyMem_Free(all->item);
    }
}

int
memories_has(const Memories *all, const PyObject *owner)
{
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if (all->item[i].owner == owner) {
            return 1;
        }
    }
    return 0;
}

int
bytes_of_array(PyObject *array, long long *nbytes)
{
    PyObject *number = PyObject_GetAttr(array, name_nbytes);
    *nbytes = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    return *nbytes < 0 && PyErr_Occurred() ? -1 : 0;
}

/* The array whose memory an array looks at, borrowed from it; NULL is an error. */
PyObject *
owner_of(PyObject *array)
{
    PyObject *base = PyObject_GetAttr(array, name_base);
    if (base == NULL) {
        return NULL;
    }
    PyObject *owner = (PyObject *)Py_TYPE(base) == array_class ? base : array;
    Py_DECREF(base); /* an array keeps its base */
    return owner;
}

/* Add the memory of an array that is not None. */
int
memories_add(Memories *all, PyObject *array)
{
    PyObject *owner = array == Py_None ? Py_None : owner_of(array);
    if (owner == NULL) {
        return -1;
    }
    if (owner == Py_None || memories_has(all, owner)) {
        return 0;
    }
    if (all->count == all->room) {
        Memory *moved = PyMem_Malloc(2 * all->room * sizeof(Memory));
        if (moved == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        memcpy(moved, all->item, all->count * sizeof(Memory));
        memories_end(all);
        all->item = moved;
        all->room *= 2;
    }
    all->item[all->count].owner = owner;
    return bytes_of_array(owner, &all->item[all->count++].nbytes);
}

int
memories_add_tuple(Memories *all, PyObject *values)
{
    for (Py_ssize_t i = 0; PyTuple_Check(values) && i < PyTuple_GET_SIZE(values); i++) {
        if (memories_add(all, PyTuple_GET_ITEM(values, i)) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Enter memory into a dict of bytes by what identifies it. */
int
enter_memory(PyObject *found, PyObject *array)
{
    PyObject *owner = array == Py_None ? Py_None : owner_of(array);
    if (owner == NULL || owner == Py_None) {
        return owner == NULL ? -1 : 0;
    }
    PyObject *key = PyLong_FromVoidPtr(owner), *nbytes = PyObject_GetAttr(owner, name_nbytes);
    int failed = key == NULL || nbytes == NULL || PyDict_SetItem(found, key, nbytes) < 0;
    Py_XDECREF(key);
    Py_XDECREF(nbytes);
    return failed ? -1 : 0;
}

int
enter_memories(PyObject *found, const Memories *all)
{
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if (enter_memory(found, all->item[i].owner) < 0) {
            return -1;
        }
    }
    return 0;
}

int
watch_begin(Watch *watch, const Memories *all)
{
    *watch = (Watch){PyMem_Calloc(all->count + 1, sizeof(PyObject *)), PyMem_Calloc(all->count + 1, sizeof(long long))};
    if (watch->reference == NULL || watch->nbytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if ((PyObject *)Py_TYPE(all->item[i].owner) == array_class) {
            PyObject *reference = PyWeakref_NewRef(all->item[i].owner, NULL);
            if (reference == NULL) {
                return -1;
            }
            watch->reference[watch->count] = reference;
            watch->nbytes[watch->count++] = all->item[i].nbytes;
        }
    }
    return 0;
}

/* Return how many bytes were freed: nobody else has them, under whatever name. */
long long
watch_end(Watch *watch)
{
    long long freed = 0;
    for (Py_ssize_t i = 0; i < watch->count; i++) {
        freed += PyWeakref_GET_OBJECT(watch->reference[i]) == Py_None ? watch->nbytes[i] : 0;
        Py_DECREF(watch->reference[i]);
    }
    PyMem_Free(watch->reference);
    PyMem_Free(watch->nbytes);
    return freed;
}

/* --- nodes that are referred to weakly --- */

/* What a weak reference refers to, borrowed; NULL if it has died. Who asks must not let other code run meanwhile. */
PyObject *
alive(PyObject *reference)
{
    PyObject *object = reference == NULL ? Py_None : PyWeakref_GET_OBJECT(reference);
    return object == Py_None || Py_REFCNT(object) == 0 ? NULL : object;
}

NodeObject *
with_value(PyObject *reference)
{
    NodeObject *node = (NodeObject *)alive(reference);
    return node == NULL || node->value == NULL || node->value == Py_None ? NULL : node;
}

/* Whether the value of a node is to be kept: it is the result of `keep`, or what that was applied to; -1 is an error. */
int
is_marked(NodeObject *node, PyObject *keep)
{
    if (node->op == keep) {
        return 1;
    }
    Py_uhash_t hash;
    PyObject *input = (PyObject *)node;
    if (hash_recipe(keep, &input, 1, empty, &hash) < 0) {
        return -1;
    }
    PyObject *found = (PyObject *)table_find(keep, &input, 1, empty, hash);
    Py_XDECREF(found);
    return found != NULL ? 1 : PyErr_Occurred() ? -1 : 0;
}

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
memories_start(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {{&name_base, "base"},
                 {&name_nbytes, "nbytes"}};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(names); i++) {
        if ((*names[i].name = PyUnicode_InternFromString(names[i].text)) == NULL) {
            return -1;
        }
    }
    return 0;
}
