/* Programs: made from tables that Python writes. */

#include "native.h"

#include <math.h>

#include <structmember.h>

/* --- from Python --- */

static npy_intp *
read_numbers(PyObject *tuple, Py_ssize_t *count)
{
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "numbers come in tuples");
        return NULL;
    }
    *count = PyTuple_GET_SIZE(tuple);
    npy_intp *numbers = PyMem_Calloc(*count + 1, sizeof(npy_intp));
    if (numbers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        numbers[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(numbers);
            return NULL;
        }
    }
    return numbers;
}

/* A slot: home, at, array (of an input: whether it is whole) or None, dtype, shape, strides, order. */
static int
read_slot(Slot *slot, PyObject *entry)
{
    PyObject *array, *shape, *strides;
    PyArray_Descr *descr;
    Py_ssize_t axes, others;
    npy_intp *sizes, *steps;
    if (!PyArg_ParseTuple(entry, "inOO!O!O!i", &slot->home, &slot->at, &array, &PyArrayDescr_Type, &descr, &PyTuple_Type,
                          &shape, &PyTuple_Type, &strides, &slot->order)) {
        return -1;
    }
    sizes = read_numbers(shape, &axes);
    steps = sizes == NULL ? NULL : read_numbers(strides, &others);
    if (steps == NULL || axes != others || axes > MOST_AXES) {
        PyMem_Free(sizes);
        PyMem_Free(steps);
        return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "shape and strides do not fit"), -1);
    }
    slot->ndim = (int)axes;
    slot->shape = sizes;
    slot->strides = steps;
    slot->descr = (PyArray_Descr *)Py_NewRef(descr);
    slot->nbytes = PyDataType_ELSIZE(descr);
    for (Py_ssize_t i = 0; i < axes; i++) {
        slot->nbytes *= sizes[i];
    }
    slot->is_whole = slot->home == IN_INPUT && array == Py_True;
    if (slot->home == IN_CONSTANT) {
        if (!PyArray_Check(array)) {
            PyErr_SetString(PyExc_TypeError, "a constant is an array");
            return -1;
        }
        slot->array = Py_NewRef(array);
    }
    return 0;
}

static int
find_loop(Instruction *it, PyObject *object)
{
    PyObject *ufunc;
    int index;
    if (!PyArg_ParseTuple(object, "O!i", &PyUFunc_Type, &ufunc, &index)) {
        return -1;
    }
    PyUFuncObject *found = (PyUFuncObject *)ufunc;
    if (index < 0 || index >= found->ntypes || found->functions == NULL || found->functions[index] == NULL) {
        PyErr_SetString(PyExc_ValueError, "there is no such loop");
        return -1;
    }
    it->is_sum = it->opcode == OP_REDUCE && strcmp(found->name, "add") == 0 && found->types[3 * index] == NPY_DOUBLE &&
                 it->inner[0] == 8 && it->inner[1] == 8;
    it->loop = found->functions[index];
    it->data = found->data == NULL ? NULL : found->data[index];
    return 0;
}

static int
read_strides(Instruction *it, PyObject *outer, PyObject *inner)
{
    if (PyTuple_GET_SIZE(outer) != it->operands || PyTuple_GET_SIZE(inner) != it->operands) {
        PyErr_SetString(PyExc_ValueError, "every operand has strides");
        return -1;
    }
    it->outer = PyMem_Calloc((size_t)it->operands * it->ndim + 1, sizeof(npy_intp));
    if (it->outer == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < it->operands; i++) {
        Py_ssize_t axes;
        npy_intp *steps = read_numbers(PyTuple_GET_ITEM(outer, i), &axes);
        if (steps == NULL || axes != it->ndim) {
            PyMem_Free(steps);
            return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "every axis has a stride"), -1);
        }
        memcpy(it->outer + (size_t)i * it->ndim, steps, axes * sizeof(npy_intp));
        PyMem_Free(steps);
        it->inner[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(inner, i));
        if (it->inner[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    return 0;
}

/* An instruction: opcode, slots, outer shape, count, outer strides and inner stride of each operand, numbers, object. */
static int
read_instruction(Program *program, Instruction *it, PyObject *entry)
{
    PyObject *slots, *shape, *outer, *inner, *numbers, *object;
    Py_ssize_t axes, operands;
    npy_intp *found;
    if (!PyArg_ParseTuple(entry, "iO!O!nO!O!O!O", &it->opcode, &PyTuple_Type, &slots, &PyTuple_Type, &shape, &it->count,
                          &PyTuple_Type, &outer, &PyTuple_Type, &inner, &PyTuple_Type, &numbers, &object)) {
        return -1;
    }
    found = read_numbers(slots, &operands);
    if (found == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < operands; i++) {
        if (operands > MOST_OPERANDS || found[i] < 0 || found[i] >= program->slots) {
            PyMem_Free(found);
            PyErr_SetString(PyExc_ValueError, "an instruction reads and fills a few of the slots");
            return -1;
        }
        it->slots[i] = (int)found[i];
    }
    PyMem_Free(found);
    it->operands = (int)operands;
    it->shape = read_numbers(shape, &axes);
    it->numbers = read_numbers(numbers, &it->given);
    if (it->shape == NULL || it->numbers == NULL) {
        return -1;
    }
    if (axes > MOST_AXES) {
        PyErr_SetString(PyExc_ValueError, "there are too many axes");
        return -1;
    }
    it->ndim = (int)axes;
    it->object = Py_NewRef(object);
    if (it->opcode == OP_CALL) {
        if (it->given < 2 || it->numbers[0] > MOST_READ || it->numbers[0] < 0 || it->given - 2 < it->numbers[0]) {
            PyErr_SetString(PyExc_ValueError, "a call-back reads some slots");
            return -1;
        }
        for (Py_ssize_t i = 2; i < it->given; i++) {
            if (it->numbers[i] < 0 || it->numbers[i] >= program->slots) {
                PyErr_SetString(PyExc_ValueError, "a call-back reads and fills some of the slots");
                return -1;
            }
        }
        program->calls_back |= !it->numbers[1];
    }
    if (PyTuple_GET_SIZE(inner) && read_strides(it, outer, inner) < 0) {
        return -1;
    }
    if (it->opcode == OP_IF_OUTSIDE) {
        return PyArg_ParseTuple(object, "dd", &it->low, &it->high) ? 0 : -1;
    }
    if (it->opcode == OP_FEW) {
        it->few = it->given == 1 ? find_few(it, (int)it->numbers[0]) : NULL;
        return it->few == NULL ? (PyErr_SetString(PyExc_ValueError, "there is no such arithmetic"), -1) : 0;
    }
    if (it->opcode == OP_DRAW && (it->operands != 2 || it->given != 5)) {
        PyErr_SetString(PyExc_ValueError, "a draw has a key");
        return -1;
    }
    if (it->opcode == OP_POSITIONS || it->opcode == OP_PUT) {
        return has_its_numbers(it) ? 0 : -1;
    }
    if (it->opcode == OP_FORTRAN) {
        return find_routine(it, object, program->slots);
    }
    if (it->opcode == OP_CHECK) {
        it->low = PyFloat_AsDouble(object);
        return it->low == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (it->opcode == OP_CAST) {
        it->cast = it->given == 2 ? find_cast((int)it->numbers[0], (int)it->numbers[1]) : NULL;
        return it->cast == NULL ? (PyErr_SetString(PyExc_ValueError, "there is no such conversion"), -1) : 0;
    }
    if (it->opcode == OP_DOT) {
        if (!PyArray_DescrCheck(object)) {
            PyErr_SetString(PyExc_TypeError, "a product of vectors has a dtype");
            return -1;
        }
        it->dot = PyDataType_GetArrFuncs((PyArray_Descr *)object)->dotfunc;
        return it->dot == NULL ? (PyErr_SetString(PyExc_ValueError, "there is no product of this dtype"), -1) : 0;
    }
    if (it->opcode == OP_LOOP || it->opcode == OP_REDUCE || it->opcode == OP_GUFUNC) {
        return find_loop(it, object);
    }
    return 0;
}

/* --- how long it takes --- */

/* From how many nanoseconds on a run gives the interpreter's lock to others, which takes a hundred. */
static const double LONG = 2e4;

/* Return about how many nanoseconds an instruction takes: a few elements each, and some products of matrices. */
static double
time_of(const Program *program, const Instruction *it)
{
    double elements = it->count;
    for (int axis = 0; axis < it->ndim; axis++) {
        elements *= it->shape[axis];
    }
    if (it->opcode == OP_GUFUNC) {
        double products = 1;
        for (npy_intp i = 0; i < it->count && i < it->given; i++) {
            products *= it->numbers[i];
        }
        return products / 16;
    }
    if (it->opcode == OP_FORTRAN) {
        /* Routines take the third power of the side of the matrices that they are given. */
        double largest = 0;
        for (npy_intp i = 1; i < it->given; i++) {
            npy_intp slot = it->numbers[i];
            double size = slot < 0 || slot >= program->slots ? 0 : (double)program->slot[slot].nbytes / 8;
            largest = size > largest ? size : largest;
        }
        return largest * sqrt(largest);
    }
    return elements;
}

static int
is_long(const Program *program)
{
    double total = 0;
    for (Py_ssize_t i = 0; i < program->instructions; i++) {
        total += time_of(program, &program->instruction[i]);
    }
    return total >= LONG;
}

/* --- the type --- */

static void
program_dealloc(Program *self)
{
    PyObject_GC_UnTrack(self);
    for (Py_ssize_t i = 0; self->slot != NULL && i < self->slots; i++) {
        Py_XDECREF(self->slot[i].array);
        Py_XDECREF(self->slot[i].descr);
        PyMem_Free(self->slot[i].shape);
        PyMem_Free(self->slot[i].strides);
    }
    for (Py_ssize_t i = 0; self->instruction != NULL && i < self->instructions; i++) {
        Instruction *it = &self->instruction[i];
        Py_XDECREF(it->object);
        PyMem_Free(it->shape);
        PyMem_Free(it->outer);
        PyMem_Free(it->numbers);
    }
    PyMem_Free(self->slot);
    PyMem_Free(self->instruction);
    PyMem_Free(self->input);
    PyMem_Free(self->output);
    PyMem_Free(self->timer);
    Py_XDECREF(self->about);
    Py_XDECREF(self->fallback);
    Py_XDECREF(self->others);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int
program_traverse(Program *self, visitproc visit, void *arg)
{
    for (Py_ssize_t i = 0; self->instruction != NULL && i < self->instructions; i++) {
        Py_VISIT(self->instruction[i].object);
    }
    Py_VISIT(self->about);
    Py_VISIT(self->fallback);
    Py_VISIT(self->others);
    return 0;
}

static int
program_clear(Program *self)
{
    Py_CLEAR(self->about);
    Py_CLEAR(self->fallback);
    Py_CLEAR(self->others);
    return 0;
}

static int *
read_places(Program *self, PyObject *tuple, Py_ssize_t *count)
{
    npy_intp *found = read_numbers(tuple, count);
    int *places = found == NULL ? NULL : PyMem_Calloc(*count + 1, sizeof(int));
    for (Py_ssize_t i = 0; places != NULL && i < *count; i++) {
        if (found[i] < 0 || found[i] >= self->slots) {
            PyErr_SetString(PyExc_ValueError, "there is no such slot");
            PyMem_Free(places);
            places = NULL;
            break;
        }
        places[i] = (int)found[i];
    }
    PyMem_Free(found);
    return places;
}

/* Find out how many arrays a run makes; outputs that are views need one, or an input, that they are views of. */
static int
count_arrays(Program *self)
{
    self->arrays = self->outputs;
    for (Py_ssize_t i = 0; i < self->slots; i++) {
        if (self->slot[i].home == IN_OUTPUT && self->slot[i].at >= self->arrays) {
            self->arrays = self->slot[i].at + 1;
        }
    }
    for (Py_ssize_t i = 0; i < self->outputs; i++) {
        const Slot *slot = &self->slot[self->output[i]];
        int has_base = slot->at >= 0 && slot->at < self->slots;
        int home = has_base ? self->slot[slot->at].home : IN_VIEW;
        if (slot->home == IN_VIEW && (home == IN_VIEW || home == IN_FRAME)) {
            PyErr_SetString(PyExc_ValueError, "an output is a view of an array");
            return -1;
        }
    }
    return 0;
}

static PyObject *
program_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *slots, *instructions, *inputs, *outputs, *fallback;
    Py_ssize_t frame;
    if (!PyArg_ParseTuple(args, "O!O!O!O!nO", &PyList_Type, &slots, &PyList_Type, &instructions, &PyTuple_Type, &inputs,
                          &PyTuple_Type, &outputs, &frame, &fallback)) {
        return NULL;
    }
    Program *self = (Program *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->call = call_program;
    self->frame = (frame + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    self->fallback = Py_NewRef(fallback);
    self->slots = PyList_GET_SIZE(slots);
    self->slot = PyMem_Calloc(self->slots + 1, sizeof(Slot));
    self->instructions = PyList_GET_SIZE(instructions);
    self->instruction = PyMem_Calloc(self->instructions + 1, sizeof(Instruction));
    if (self->slot == NULL || self->instruction == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < self->slots; i++) {
        if (read_slot(&self->slot[i], PyList_GET_ITEM(slots, i)) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    for (Py_ssize_t i = 0; i < self->instructions; i++) {
        if (read_instruction(self, &self->instruction[i], PyList_GET_ITEM(instructions, i)) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    self->input = read_places(self, inputs, &self->inputs);
    self->output = self->input == NULL ? NULL : read_places(self, outputs, &self->outputs);
    if (self->output == NULL || count_arrays(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->is_long = is_long(self);
    return (PyObject *)self;
}

static PyMemberDef program_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Program, call), READONLY, NULL},
    {"about", T_OBJECT, offsetof(Program, about), 0, "What it was made from, for reports."},
    {"others", T_OBJECT, offsetof(Program, others), 0, "A list of programs that do the same on arrays of other layouts."},
    {"fallback", T_OBJECT, offsetof(Program, fallback), READONLY, "Does the same in Python."},
    {"calls_back", T_INT, offsetof(Program, calls_back), READONLY, "Whether an instruction calls Python."},
    {"is_long", T_INT, offsetof(Program, is_long), READONLY, "Whether others get the interpreter's lock while it runs."},
    {"is_given_up", T_INT, offsetof(Program, is_given_up), READONLY, "Whether it always runs in Python."},
    {NULL},
};

static PyMethodDef program_methods[] = {
    {"drive", program_drive, METH_VARARGS, "drive(...)\n--\n\nMake steps of a loop; see `unspool._engine.backends.native`."},
    {"whole", (PyCFunction)(void (*)(void))program_whole, METH_FASTCALL,
     "whole(...)\n--\n\nMake all steps of a loop and the arrays for them; see `unspool._engine.backends.native`."},
    {NULL},
};

PyTypeObject ProgramType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._native.Program",
    .tp_doc = "A plan as a table of instructions; called with arrays, it returns a tuple of arrays.",
    .tp_basicsize = sizeof(Program),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = program_new,
    .tp_dealloc = (destructor)program_dealloc,
    .tp_traverse = (traverseproc)program_traverse,
    .tp_clear = (inquiry)program_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Program, call),
    .tp_members = program_members,
    .tp_methods = program_methods,
};
