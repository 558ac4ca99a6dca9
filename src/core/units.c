/* The units of a replay as numbers.

   A unit is what runs at once; it reads nodes and makes some. The value of a node is in buffers, which nodes that look
   at the same memory share. All of them are numbered by whoever describes them here. Nothing here refers to a node, so
   what counts references to nodes does not see it. */

#include "units.h"

/* --- describing units --- */

/* Make room for so many entries more; NULL is an error, and leaves the array as it was. */
int
grow_array(void **array, Py_ssize_t *room, Py_ssize_t wanted, size_t size)
{
    if (wanted <= *room) {
        return 0;
    }
    Py_ssize_t larger = wanted + wanted / 2 + 64;
    void *moved = larger > INT_MAX ? NULL : PyMem_Realloc(*array, (size_t)larger * size);
    if (moved == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *array = moved;
    *room = larger;
    return 0;
}

/* Append numbers below a limit to the links; return how many, -1 is an error. */
int
append_links(TableObject *self, PyObject *given, Py_ssize_t limit)
{
    PyObject *numbers = PySequence_Fast(given, "numbers are in a sequence");
    if (numbers == NULL) {
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(numbers);
    if (grow_array((void **)&self->links, &self->link_room, self->link_count + count, sizeof(int)) < 0) {
        Py_DECREF(numbers);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        long long number = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(numbers, i));
        if (number < 0 || number >= limit) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "there is nothing with this number");
            }
            Py_DECREF(numbers);
            return -1;
        }
        self->links[self->link_count + i] = (int)number;
    }
    Py_DECREF(numbers);
    self->link_count += count;
    return (int)count;
}

/* Return the number of some new memory, or -1. */
int
add_buffer(TableObject *self, long long size)
{
    if (grow_array((void **)&self->buffers, &self->buffer_room, self->buffer_count + 1, sizeof(Buffer)) < 0) {
        return -1;
    }
    self->buffers[self->buffer_count] = (Buffer){.size = size, .gone = -1};
    return (int)self->buffer_count++;
}

PyDoc_STRVAR(table_buffer_doc, "buffer(size, /)\n--\n\nReturn the number of some new memory.");

static PyObject *
table_buffer(TableObject *self, PyObject *given)
{
    long long size = PyLong_AsLongLong(given);
    int number = size == -1 && PyErr_Occurred() ? -1 : add_buffer(self, size);
    return number < 0 ? NULL : PyLong_FromLong(number);
}

/* Return the number of a new unit, or -1. */
int
add_unit(TableObject *self)
{
    if (grow_array((void **)&self->units, &self->unit_room, self->unit_count + 1, sizeof(Unit)) < 0) {
        return -1;
    }
    self->units[self->unit_count] = (Unit){.spare = -1, .taken = -1, .place = -1};
    return (int)self->unit_count++;
}

PyDoc_STRVAR(table_unit_doc, "unit()\n--\n\nReturn the number of a new unit; see `describe`.");

static PyObject *
table_unit(TableObject *self, PyObject *unused)
{
    int number = add_unit(self);
    return number < 0 ? NULL : PyLong_FromLong(number);
}

/* Append numbers to the links, which are known to be right. */
static int
link_numbers(TableObject *self, const int *numbers, int count)
{
    if (grow_array((void **)&self->links, &self->link_room, self->link_count + count, sizeof(int)) < 0) {
        return -1;
    }
    if (count > 0) {
        memcpy(self->links + self->link_count, numbers, (size_t)count * sizeof(int));
    }
    self->link_count += count;
    return 0;
}

/* Return the number of a new node, or -1, given the unit that makes it and its buffers. */
int
add_node(TableObject *self, PyObject *id, int maker, int has_inputs, const int *buffers, int count)
{
    Py_ssize_t first = self->link_count;
    if (link_numbers(self, buffers, count) < 0 ||
        grow_array((void **)&self->nodes, &self->node_room, self->node_count + 1, sizeof(Made)) < 0) {
        return -1;
    }
    self->nodes[self->node_count] = (Made){
        .id = Py_NewRef(id), .maker = maker, .first = (int)first, .buffers = count, .has_inputs = (char)has_inputs};
    return (int)self->node_count++;
}

PyDoc_STRVAR(table_node_doc,
"node(id, maker, has_inputs, buffers, /)\n--\n\n"
"Return the number of a new node, given the unit that makes it and the memory its value takes.");

static PyObject *
table_node(TableObject *self, PyObject *args)
{
    PyObject *id, *buffers;
    int maker, has_inputs;
    if (!PyArg_ParseTuple(args, "O!ipO:node", &PyLong_Type, &id, &maker, &has_inputs, &buffers)) {
        return NULL;
    }
    if (maker < 0 || maker >= self->unit_count) {
        PyErr_SetString(PyExc_ValueError, "there is no unit with this number");
        return NULL;
    }
    Py_ssize_t first = self->link_count;
    int count = append_links(self, buffers, self->buffer_count);
    int number = count < 0 ? -1 : add_node(self, id, maker, has_inputs, NULL, 0);
    if (number < 0) {
        return NULL;
    }
    self->nodes[number].first = (int)first;
    self->nodes[number].buffers = count;
    return PyLong_FromLong(number);
}

/* Say what a unit is, and the numbers of what it reads and makes. */
int
set_unit(TableObject *self, int number, const Unit *unit, const int *numbers)
{
    Py_ssize_t first = self->link_count;
    if (link_numbers(self, numbers, unit->reads + unit->makes) < 0) {
        return -1;
    }
    self->units[number] = *unit;
    self->units[number].first = (int)first;
    return 0;
}

PyDoc_STRVAR(table_describe_doc,
"describe(unit, id, reads, makes, begun, fixed, workspace, stacked, spare, taken, flags, /)\n--\n\n"
"Say what a unit is.\n\n"
"Of the nodes that it ``reads``, the first ``begun`` are its own from its first step on, and those after the first\n"
"``fixed`` are read by single steps. It takes ``workspace`` beside them, and ``stacked`` while it waits. It can write\n"
"onto the node ``spare``, and takes the buffer ``taken`` out of the first node it reads; -1 is none. The flags are 1\n"
"for a view, 2 for what is no small branch, 4 for what has steps.");

static PyObject *
table_describe(TableObject *self, PyObject *args)
{
    Unit unit = {.place = -1};
    int number;
    PyObject *reads, *makes;
    if (!PyArg_ParseTuple(args, "iLOOiiLLiii:describe", &number, &unit.key, &reads, &makes, &unit.begun, &unit.fixed,
                          &unit.workspace, &unit.stacked, &unit.spare, &unit.taken, &unit.flags)) {
        return NULL;
    }
    unit.first = (int)self->link_count;
    unit.reads = append_links(self, reads, self->node_count);
    unit.makes = unit.reads < 0 ? -1 : append_links(self, makes, self->node_count);
    if (unit.makes < 0) {
        return NULL;
    }
    if (number < 0 || number >= self->unit_count || unit.begun < 0 || unit.begun > unit.reads || unit.fixed < 0 ||
        unit.spare >= self->node_count || unit.taken >= self->buffer_count || (unit.taken >= 0 && !unit.reads)) {
        PyErr_SetString(PyExc_ValueError, "this is no description of a unit");
        return NULL;
    }
    self->units[number] = unit;
    Py_RETURN_NONE;
}

/* --- some of the units --- */

/* Return the numbers of units, each of which is told its place among them; NULL is an error. */
int *
enter_units(TableObject *self, PyObject *given, int *count)
{
    PyObject *numbers = PySequence_Fast(given, "units are in a sequence");
    if (numbers == NULL) {
        return NULL;
    }
    *count = (int)PySequence_Fast_GET_SIZE(numbers);
    int *units = PyMem_Malloc((size_t)(*count + 1) * sizeof(int));
    if (units == NULL) {
        PyErr_NoMemory();
    }
    for (int i = 0; units != NULL && i < *count; i++) {
        long long number = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(numbers, i));
        if (number < 0 || number >= self->unit_count || self->units[number].place >= 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "there is no unit with this number, or it is there twice");
            }
            while (i-- > 0) {
                self->units[units[i]].place = -1;
            }
            PyMem_Free(units);
            units = NULL;
            break;
        }
        units[i] = (int)number;
        self->units[number].place = i;
    }
    Py_DECREF(numbers);
    return units;
}

void
leave_units(TableObject *self, const int *units, int count)
{
    for (int i = 0; i < count; i++) {
        self->units[units[i]].place = -1;
    }
}

void
place_units(TableObject *self, const int *units, int count)
{
    for (int i = 0; i < count; i++) {
        self->units[units[i]].place = i;
    }
}

/* --- the type --- */

static PyObject *
table_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int branch;
    if ((kwargs != NULL && PyDict_GET_SIZE(kwargs)) || !PyArg_ParseTuple(args, "i:UnitTable", &branch)) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "a table takes no arguments by name");
    }
    TableObject *made = (TableObject *)type->tp_alloc(type, 0);
    if (made != NULL) {
        made->branch = branch;
    }
    return (PyObject *)made;
}

static void
table_dealloc(TableObject *self)
{
    for (Py_ssize_t i = 0; i < self->node_count; i++) {
        Py_DECREF(self->nodes[i].id);
    }
    PyMem_Free(self->units);
    PyMem_Free(self->nodes);
    PyMem_Free(self->buffers);
    PyMem_Free(self->links);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef unit_table_methods[] = {
    {"buffer", (PyCFunction)table_buffer, METH_O, table_buffer_doc},
    {"unit", (PyCFunction)table_unit, METH_NOARGS, table_unit_doc},
    {"node", (PyCFunction)table_node, METH_VARARGS, table_node_doc},
    {"describe", (PyCFunction)table_describe, METH_VARARGS, table_describe_doc},
    {"numbers", (PyCFunction)table_numbers, METH_VARARGS, table_numbers_doc},
    {"node_numbers", (PyCFunction)table_node_numbers, METH_VARARGS, table_node_numbers_doc},
    {"arrange", (PyCFunction)table_arrange, METH_VARARGS, table_arrange_doc},
    {"widths", (PyCFunction)table_widths, METH_VARARGS, table_widths_doc},
    {"need", (PyCFunction)table_need, METH_VARARGS, table_need_doc},
    {NULL},
};

PyTypeObject UnitTableType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.UnitTable",
    .tp_doc = "Units by their numbers: what they read and make, and which memory that takes.\n\n"
              "Branches of so many units are small.",
    .tp_basicsize = sizeof(TableObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = table_new,
    .tp_dealloc = (destructor)table_dealloc,
    .tp_methods = unit_table_methods,
};

PyDoc_STRVAR(unit_of_doc,
"unit_of(node, /)\n--\n\n"
"Return what has to run for the value of a node: the call it is an output of, or itself.");

static PyObject *
unit_of(PyObject *module, PyObject *node)
{
    if ((PyObject *)Py_TYPE(node) == projection_class) {
        PyObject *call = ((NodeObject *)node)->inputs;
        return Py_NewRef(call != NULL && is_call(call) ? call : node);
    }
    return Py_NewRef(node);
}

PyMethodDef unit_methods[] = {
    {"unit_of", unit_of, METH_O, unit_of_doc},
    {NULL},
};
