/* Describing the calls of a replay: that is what nearly all units of a loop are, and there are as many as steps. */

#include "units.h"

static PyObject *name_itemsize, *name_kernels;

/* The tables of `unspool._engine.memory.units.Units`, all by id, and what describes that which is not described here. */
typedef struct {
    TableObject *table;
    PyObject *units, *nodes, *buffers, *kernels, *describe, *describe_node;
} Known;

/* The number that a dict has for a key; NONE if it has none, FAILED is an error. */
enum { NONE = INT_MIN, FAILED = INT_MIN + 1 };

static int
look_up(PyObject *numbers, PyObject *key)
{
    PyObject *number = PyDict_GetItemWithError(numbers, key);
    if (number == NULL) {
        return PyErr_Occurred() ? FAILED : NONE;
    }
    long found = PyLong_AsLong(number);
    return found == -1 && PyErr_Occurred() ? FAILED : (int)found;
}

static int
note_number(PyObject *numbers, PyObject *key, long long number)
{
    PyObject *object = PyLong_FromLongLong(number);
    int failed = object == NULL || PyDict_SetItem(numbers, key, object) < 0;
    Py_XDECREF(object);
    return failed ? -1 : 0;
}

/* The number of a unit; below 0, and counted from the end, in the dict until it is described. */
static int
number_unit(const Known *known, PyObject *id, int is_described)
{
    int found = look_up(known->units, id);
    if (found == FAILED || found >= 0) {
        return found;
    }
    int number = found == NONE ? add_unit(known->table) : ~found;
    if (number < 0 || ((is_described || found == NONE) &&
                       note_number(known->units, id, is_described ? number : ~number) < 0)) {
        return FAILED;
    }
    return number;
}

/* The bytes of an array; -1 if its sizes are no numbers, -2 is an error. */
static long long
bytes_of_node(const NodeObject *node)
{
    if (!PyTuple_CheckExact(node->shape) || PyTuple_Check(node->dtype)) {
        return -1;
    }
    PyObject *size = PyObject_GetAttr(node->dtype, name_itemsize);
    long long nbytes = size == NULL ? -2 : PyLong_AsLongLong(size);
    Py_XDECREF(size);
    for (Py_ssize_t i = 0; nbytes > 0 && i < PyTuple_GET_SIZE(node->shape); i++) {
        PyObject *length = PyTuple_GET_ITEM(node->shape, i);
        if (!PyLong_CheckExact(length)) {
            return -1;
        }
        nbytes *= PyLong_AsLongLong(length);
    }
    return PyErr_Occurred() ? -2 : nbytes;
}

/* The number of the memory that an output of a call takes. */
static int
number_buffer(const Known *known, NodeObject *node, long long nbytes)
{
    PyObject *key = Py_BuildValue("(Oi)", node->id, 0);
    int number = key == NULL ? FAILED : look_up(known->buffers, key);
    if (number == NONE) {
        number = add_buffer(known->table, nbytes);
        if (number < 0 || note_number(known->buffers, key, number) < 0) {
            number = FAILED;
        }
    }
    Py_XDECREF(key);
    return number;
}

/* Describe the output of a call. */
static int
describe_output(const Known *known, NodeObject *node, long long nbytes)
{
    int maker = number_unit(known, ((NodeObject *)node->inputs)->id, 0);
    int buffer = maker == FAILED ? FAILED : number_buffer(known, node, nbytes);
    return buffer == FAILED ? FAILED : add_node(known->table, node->id, maker, 1, &buffer, 1);
}

/* The number of a node, which is described if nobody has done so before. */
static int
number_node(const Known *known, NodeObject *node)
{
    int number = look_up(known->nodes, node->id);
    if (number != NONE) {
        return number;
    }
    int is_output = Py_IS_TYPE(node, (PyTypeObject *)projection_class) && is_call(node->inputs);
    long long nbytes = is_output ? bytes_of_node(node) : -1;
    if (nbytes < 0) {
        PyObject *found = nbytes == -2 ? NULL : PyObject_CallOneArg(known->describe_node, (PyObject *)node);
        number = found == NULL ? FAILED : (int)PyLong_AsLong(found);
        Py_XDECREF(found);
    }
    else {
        number = describe_output(known, node, nbytes);
    }
    return number < 0 || PyErr_Occurred() || note_number(known->nodes, node->id, number) < 0 ? FAILED : number;
}

/* Note what a call reads and makes: the numbers of nodes, in that order. Returns how many, or -1. */
static int
number_nodes(const Known *known, CallObject *call, int *numbers)
{
    int count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call->node.inputs); i++) {
        numbers[count] = number_node(known, (NodeObject *)PyTuple_GET_ITEM(call->node.inputs, i));
        if (numbers[count++] == FAILED) {
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < call->outputs; i++) {
        NodeObject *node = call->handles[i];
        if (node != NULL && Py_REFCNT(node) > 0) {
            Py_INCREF(node);
            numbers[count] = number_node(known, node);
            Py_DECREF(node);
            if (numbers[count++] == FAILED) {
                return -1;
            }
        }
    }
    return count;
}

static int
describe_call(const Known *known, CallObject *call)
{
    PyObject *inputs = call->node.inputs, *kernels = PyObject_GetAttr(call->plan, name_kernels);
    int reads = (int)PyTuple_GET_SIZE(inputs), unit = number_unit(known, call->node.id, 1);
    int *numbers = PyMem_Malloc((size_t)(reads + call->outputs + 1) * sizeof(int));
    int count = -1;
    long long peak = peak_of((PlanObject *)call->plan);
    if (numbers == NULL) {
        PyErr_NoMemory();
    }
    else if (kernels != NULL && unit != FAILED && peak >= 0 &&
             PyDict_SetItem(known->kernels, call->node.id, kernels) == 0) {
        count = number_nodes(known, call, numbers);
    }
    Unit found = {.key = number_of(&call->node), .workspace = peak, .reads = reads, .makes = count - reads,
                  .fixed = reads, .spare = -1, .taken = -1, .flags = IS_LARGE, .place = -1};
    int failed = count < 0 || set_unit(known->table, unit, &found, numbers) < 0;
    PyMem_Free(numbers);
    Py_XDECREF(kernels);
    return failed ? FAILED : unit;
}

/* The number of a unit, which is described if nobody has done so before. */
static int
number_described(const Known *known, NodeObject *unit)
{
    int number = look_up(known->units, unit->id);
    if (number >= 0 || number == FAILED) {
        return number;
    }
    if (is_call(unit)) {
        return describe_call(known, (CallObject *)unit);
    }
    PyObject *found = PyObject_CallOneArg(known->describe, (PyObject *)unit);
    number = found == NULL ? FAILED : (int)PyLong_AsLong(found);
    Py_XDECREF(found);
    return number < 0 ? FAILED : number;
}

/* Return the numbers of some things as a list. */
static PyObject *
numbers_of_all(TableObject *self, PyObject *args, int (*number_of_one)(const Known *, NodeObject *))
{
    PyObject *given;
    Known known = {.table = self};
    if (!PyArg_ParseTuple(args, "OO!O!O!O!OO:numbers", &given, &PyDict_Type, &known.units, &PyDict_Type, &known.nodes,
                          &PyDict_Type, &known.buffers, &PyDict_Type, &known.kernels, &known.describe,
                          &known.describe_node)) {
        return NULL;
    }
    PyObject *nodes = PySequence_Fast(given, "nodes are in a sequence");
    Py_ssize_t count = nodes == NULL ? 0 : PySequence_Fast_GET_SIZE(nodes);
    int failed = nodes == NULL || check_nodes(NULL, PySequence_Fast_ITEMS(nodes), count) < 0;
    PyObject *found = failed ? NULL : PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        int number = number_of_one(&known, (NodeObject *)PySequence_Fast_GET_ITEM(nodes, i));
        PyObject *object = number == FAILED ? NULL : PyLong_FromLong(number);
        if (object == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyList_SET_ITEM(found, i, object);
    }
    Py_XDECREF(nodes);
    return found;
}

const char table_numbers_doc[] =
"numbers(given, units, nodes, buffers, kernels, describe, describe_node, /)\n--\n\n"
"Return the numbers of units, each of which is described once.\n\n"
"The dicts have the numbers that are known, by id, and how many kernels each unit runs. ``describe(unit)`` describes what\n"
"is no call and returns its number, ``describe_node(node)`` a node that is no output of one.";

PyObject *
table_numbers(TableObject *self, PyObject *args)
{
    return numbers_of_all(self, args, number_described);
}

const char table_node_numbers_doc[] =
"node_numbers(given, units, nodes, buffers, kernels, describe, describe_node, /)\n--\n\n"
"Return the numbers of nodes, each of which is described once, whoever reads it; see `numbers`.";

PyObject *
table_node_numbers(TableObject *self, PyObject *args)
{
    return numbers_of_all(self, args, number_node);
}

/* Make the names of what is asked of Python's classes; returns -1 if there is no memory for them. */
int
describing_start(void)
{
    name_itemsize = PyUnicode_InternFromString("itemsize");
    name_kernels = PyUnicode_InternFromString("kernels");
    return name_itemsize == NULL || name_kernels == NULL ? -1 : 0;
}
