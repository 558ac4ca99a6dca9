/* Running a chain: the steps of a derivative of a loop, one after the other; see `unspool._autodiff.sweeps.chain`.

   A step calls its plan, whichever way that is run, with what is in registers, constants, and what is given to it alone.
   Some of what it returns goes to registers again, and some into the rows of stacks. */

#include "native.h"

/* After so many steps other threads get their turn, and whoever interrupts. */
enum { A_TURN = 128 };

enum { FROM_REGISTER, FROM_CONSTANT, FROM_GIVEN };

/* What steps of one kind do: arguments and where they come from, outputs and where they go. */
typedef struct {
    PyObject *run;
    Py_ssize_t arguments, givens, writes, lasts, stacks;
    char *source;           /* of each argument, and its number there */
    Py_ssize_t *number;
    Py_ssize_t *output;     /* numbers of outputs: to registers, those that leave last, those that are stacked */
    Py_ssize_t *reg;        /* the register of each that goes to one */
    Py_ssize_t first_last, first_stack, row;
} Kind;

typedef struct {
    Py_ssize_t kinds, registers, lasts, constants;
    Kind *kind;
    PyObject **state; /* registers, then what leaves of the last step of each kind; owned, or NULL */
    PyObject *given_constants, *varying, *stacks;
    PyObject **argument;
    Py_ssize_t taken; /* of what varies */
} Chain;

/* Read numbers from a tuple, which may be pairs. */
static int
read_numbers(PyObject *tuple, int pairs, Py_ssize_t *first, Py_ssize_t *second)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (pairs && (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2)) {
            PyErr_SetString(PyExc_TypeError, "expected pairs of numbers");
            return -1;
        }
        first[i] = PyLong_AsSsize_t(pairs ? PyTuple_GET_ITEM(item, 0) : item);
        if (pairs) {
            second[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(item, 1));
        }
        if (first[i] < 0 || (pairs && second[i] < 0)) {
            PyErr_SetString(PyExc_ValueError, "inputs, outputs and registers have numbers");
            return -1;
        }
    }
    return 0;
}

/* Note where some of the arguments of a kind come from: those at given positions. */
static int
place_arguments(Kind *kind, const Py_ssize_t *at, const Py_ssize_t *number, Py_ssize_t count, int source, Py_ssize_t first)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (at[i] >= kind->arguments || kind->source[at[i]] >= 0) {
            PyErr_SetString(PyExc_ValueError, "a step reads each of its inputs from one place");
            return -1;
        }
        kind->source[at[i]] = (char)source;
        kind->number[at[i]] = number != NULL ? number[i] : first + i;
    }
    return 0;
}

static int
check_below(const Py_ssize_t *numbers, Py_ssize_t count, Py_ssize_t end)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        if (numbers[i] >= end) {
            PyErr_SetString(PyExc_ValueError, "a chain has no such register");
            return -1;
        }
    }
    return 0;
}

/* Read what steps of a kind do: (reads, constant, varying, writes, last, stacked). */
static int
read_kind(Chain *chain, Kind *kind, PyObject *about)
{
    PyObject *reads, *constant, *varying, *writes, *last, *stacked;
    if (!PyTuple_Check(about) ||
        !PyArg_ParseTuple(about, "O!O!O!O!O!O!", &PyTuple_Type, &reads, &PyTuple_Type, &constant, &PyTuple_Type, &varying,
                          &PyTuple_Type, &writes, &PyTuple_Type, &last, &PyTuple_Type, &stacked)) {
        return -1;
    }
    Py_ssize_t from_registers = PyTuple_GET_SIZE(reads), constants = PyTuple_GET_SIZE(constant);
    kind->givens = PyTuple_GET_SIZE(varying);
    kind->writes = PyTuple_GET_SIZE(writes);
    kind->lasts = PyTuple_GET_SIZE(last);
    kind->stacks = PyTuple_GET_SIZE(stacked);
    kind->arguments = from_registers + constants + kind->givens;
    Py_ssize_t outputs = kind->writes + kind->lasts + kind->stacks;
    kind->number = PyMem_New(Py_ssize_t, 3 * kind->arguments + outputs + kind->writes + 1);
    kind->source = PyMem_Malloc(kind->arguments + 1);
    if (kind->number == NULL || kind->source == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(kind->source, -1, kind->arguments + 1);
    Py_ssize_t *at = kind->number + kind->arguments, *which = at + kind->arguments;
    kind->output = which + kind->arguments;
    kind->reg = kind->output + outputs;
    kind->first_last = chain->registers + chain->lasts;
    if (read_numbers(reads, 1, at, which) < 0 || check_below(which, from_registers, chain->registers) < 0 ||
        place_arguments(kind, at, which, from_registers, FROM_REGISTER, 0) < 0 ||
        read_numbers(constant, 0, at, NULL) < 0 ||
        place_arguments(kind, at, NULL, constants, FROM_CONSTANT, chain->constants) < 0 ||
        read_numbers(varying, 0, at, NULL) < 0 || place_arguments(kind, at, NULL, kind->givens, FROM_GIVEN, 0) < 0 ||
        read_numbers(writes, 1, kind->output, kind->reg) < 0 || check_below(kind->reg, kind->writes, chain->registers) < 0 ||
        read_numbers(last, 0, kind->output + kind->writes, NULL) < 0 ||
        read_numbers(stacked, 0, kind->output + kind->writes + kind->lasts, NULL) < 0) {
        return -1;
    }
    chain->constants += constants;
    chain->lasts += kind->lasts;
    return 0;
}

/* Write an array into a row of a stack: its bytes, if they lie there as they do here. */
static int
write_row(PyObject *stack, Py_ssize_t row, PyObject *value)
{
    PyArrayObject *to = (PyArrayObject *)stack, *from = (PyArrayObject *)value;
    if (PyArray_CheckExact(stack) && PyArray_CheckExact(value) && PyArray_DESCR(to) == PyArray_DESCR(from) &&
        PyArray_NDIM(to) == PyArray_NDIM(from) + 1 && PyArray_IS_C_CONTIGUOUS(to) && PyArray_IS_C_CONTIGUOUS(from) &&
        PyArray_ISWRITEABLE(to) && !PyDataType_REFCHK(PyArray_DESCR(to)) && row < PyArray_DIM(to, 0) &&
        PyArray_CompareLists(PyArray_DIMS(to) + 1, PyArray_DIMS(from), PyArray_NDIM(from))) {
        npy_intp size = PyArray_NBYTES(from);
        memcpy(PyArray_BYTES(to) + row * size, PyArray_BYTES(from), size);
        return 0;
    }
    PyObject *index = PyLong_FromSsize_t(row);
    int failed = index == NULL || PyObject_SetItem(stack, index, value) < 0;
    Py_XDECREF(index);
    return failed ? -1 : 0;
}

/* The arguments of a step, borrowed. */
static int
find_arguments(Chain *chain, const Kind *kind)
{
    if (chain->taken + kind->givens > PyTuple_GET_SIZE(chain->varying)) {
        PyErr_SetString(PyExc_ValueError, "a chain is given what varies for each of its steps");
        return -1;
    }
    for (Py_ssize_t i = 0; i < kind->arguments; i++) {
        Py_ssize_t number = kind->number[i];
        chain->argument[i] = kind->source[i] == FROM_REGISTER   ? chain->state[number]
                             : kind->source[i] == FROM_CONSTANT ? PyTuple_GET_ITEM(chain->given_constants, number)
                                                                : PyTuple_GET_ITEM(chain->varying, chain->taken + number);
        if (chain->argument[i] == NULL) {
            PyErr_SetString(PyExc_ValueError, "a step reads a register to which nothing was written");
            return -1;
        }
    }
    chain->taken += kind->givens;
    return 0;
}

/* Put away what a step has returned. */
static int
keep_outputs(Chain *chain, Kind *kind, PyObject *out, int is_last)
{
    Py_ssize_t count = kind->writes + kind->lasts + kind->stacks;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (kind->output[i] >= PyTuple_GET_SIZE(out)) {
            PyErr_SetString(PyExc_ValueError, "a plan has no such output");
            return -1;
        }
    }
    const Py_ssize_t *last = kind->output + kind->writes, *stacked = last + kind->lasts;
    for (Py_ssize_t i = 0; i < kind->stacks; i++) {
        if (write_row(PyTuple_GET_ITEM(chain->stacks, kind->first_stack + i), kind->row, PyTuple_GET_ITEM(out, stacked[i])) < 0) {
            return -1;
        }
    }
    kind->row++;
    for (Py_ssize_t i = 0; i < kind->writes; i++) {
        Py_XSETREF(chain->state[kind->reg[i]], Py_NewRef(PyTuple_GET_ITEM(out, kind->output[i])));
    }
    for (Py_ssize_t i = 0; is_last && i < kind->lasts; i++) {
        Py_XSETREF(chain->state[kind->first_last + i], Py_NewRef(PyTuple_GET_ITEM(out, last[i])));
    }
    return 0;
}

static int
run_step(Chain *chain, Kind *kind, int is_last)
{
    if (find_arguments(chain, kind) < 0) {
        return -1;
    }
    PyObject *out = PyObject_Vectorcall(kind->run, chain->argument, kind->arguments, NULL);
    int failed = out == NULL;
    if (!failed && !PyTuple_Check(out)) {
        PyErr_SetString(PyExc_TypeError, "a plan returns a tuple with all its outputs");
        failed = 1;
    }
    failed = failed || keep_outputs(chain, kind, out, is_last) < 0;
    Py_XDECREF(out);
    return failed ? -1 : 0;
}

/* Run steps, one for each item of `indices`, which are their numbers. */
static int
run_steps(Chain *chain, PyObject *indices, const char *which, Py_ssize_t length)
{
    PyObject *steps = PyObject_GetIter(indices), *item;
    Py_ssize_t left = steps == NULL ? -1 : PyObject_Size(indices);
    int failed = left < 0;
    while (!failed && (item = PyIter_Next(steps)) != NULL) {
        Py_ssize_t step = PyLong_AsSsize_t(item), number = 0;
        Py_DECREF(item);
        if (which != NULL) {
            number = step >= 0 && step < length ? (unsigned char)which[step] : -1;
        }
        if (number < 0 || number >= chain->kinds) {
            PyErr_SetString(PyExc_ValueError, "each step of a chain is of one of its kinds");
            failed = 1;
            break;
        }
        /* Of several kinds nobody knows which step is the last one. */
        failed = run_step(chain, &chain->kind[number], --left == 0 || chain->kinds > 1) < 0;
        if (!failed && left % A_TURN == 0) {
            failed = PyErr_CheckSignals() < 0;
            Py_BEGIN_ALLOW_THREADS
            Py_END_ALLOW_THREADS
        }
    }
    Py_XDECREF(steps);
    return failed || PyErr_Occurred() ? -1 : 0;
}

/* Take the arrays of a list, which is empty from then on: what is overwritten is freed. */
static int
take_state(Chain *chain, PyObject *list)
{
    Py_ssize_t count = chain->registers + chain->lasts;
    if (PyList_GET_SIZE(list) != count) {
        PyErr_SetString(PyExc_ValueError, "a chain is given its registers, and what left of the last steps");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GET_ITEM(list, i);
        chain->state[i] = item == Py_None ? NULL : Py_NewRef(item);
    }
    return PyList_SetSlice(list, 0, count, NULL);
}

static int
give_state(Chain *chain, PyObject *list)
{
    for (Py_ssize_t i = 0; i < chain->registers + chain->lasts; i++) {
        if (PyList_Append(list, chain->state[i] == NULL ? Py_None : chain->state[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Read what a chain does, and make room for what it holds. */
static int
begin_chain(Chain *chain, PyObject *kinds, PyObject *runs, PyObject *rows)
{
    chain->kinds = PyTuple_GET_SIZE(kinds);
    if (chain->kinds == 0 || PyTuple_GET_SIZE(runs) != chain->kinds || PyTuple_GET_SIZE(rows) != chain->kinds) {
        PyErr_SetString(PyExc_ValueError, "a chain has kinds of steps, and of each a plan and a first row");
        return -1;
    }
    chain->kind = PyMem_Calloc(chain->kinds, sizeof(Kind));
    if (chain->kind == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t most = 0, stacks = 0;
    for (Py_ssize_t i = 0; i < chain->kinds; i++) {
        Kind *kind = &chain->kind[i];
        kind->run = PyTuple_GET_ITEM(runs, i);
        kind->row = PyLong_AsSsize_t(PyTuple_GET_ITEM(rows, i));
        if ((kind->row < 0 && PyErr_Occurred()) || read_kind(chain, kind, PyTuple_GET_ITEM(kinds, i)) < 0) {
            return -1;
        }
        kind->first_stack = stacks;
        stacks += kind->stacks;
        most = kind->arguments > most ? kind->arguments : most;
    }
    if (chain->constants != PyTuple_GET_SIZE(chain->given_constants) || stacks != PyTuple_GET_SIZE(chain->stacks)) {
        PyErr_SetString(PyExc_ValueError, "a chain is given its constants and its stacks");
        return -1;
    }
    chain->state = PyMem_Calloc(chain->registers + chain->lasts + 1, sizeof(PyObject *));
    chain->argument = PyMem_New(PyObject *, most + 1);
    if (chain->state == NULL || chain->argument == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void
end_chain(Chain *chain)
{
    for (Py_ssize_t i = 0; chain->state != NULL && i < chain->registers + chain->lasts; i++) {
        Py_XDECREF(chain->state[i]);
    }
    for (Py_ssize_t i = 0; chain->kind != NULL && i < chain->kinds; i++) {
        PyMem_Free(chain->kind[i].number);
        PyMem_Free(chain->kind[i].source);
    }
    PyMem_Free(chain->kind);
    PyMem_Free(chain->state);
    PyMem_Free(chain->argument);
}

PyObject *
run_chain(PyObject *module, PyObject *args)
{
    PyObject *indices, *kinds, *runs, *state, *rows;
    const char *which;
    Py_ssize_t length;
    Chain chain = {0};
    if (!PyArg_ParseTuple(args, "OnO!O!y#O!O!O!O!O!", &indices, &chain.registers, &PyTuple_Type, &kinds, &PyTuple_Type,
                          &runs, &which, &length, &PyList_Type, &state, &PyTuple_Type, &chain.given_constants,
                          &PyTuple_Type, &chain.varying, &PyTuple_Type, &rows, &PyTuple_Type, &chain.stacks)) {
        return NULL;
    }
    int failed = chain.registers < 0 || begin_chain(&chain, kinds, runs, rows) < 0 || take_state(&chain, state) < 0 ||
                 run_steps(&chain, indices, length > 0 ? which : NULL, length) < 0 || give_state(&chain, state) < 0;
    end_chain(&chain);
    if (failed) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a chain has no fewer than no registers");
    }
    Py_RETURN_NONE;
}
