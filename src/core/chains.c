/* Chains: which steps of a derivative sweep become one node, and how they pass on what they pass on.

   Steps that follow each other are a run. What one of them gives and another reads later is kept in a register, from the
   step that gives it to the last one that reads it. So a step is told by its plan, by the registers that it reads and by
   those that it writes; steps for which all of these are the same are of one kind, and a loop has few kinds, whichever
   branches it takes and however it is nested. */

#include "steps.h"

enum { KINDS = 8, WORDS = 16, REGISTERS = 64 * WORDS };

/* An output of a step: how many stand for it, the last step that reads it, if there is one, and its register, or -1. */
typedef struct {
    Py_ssize_t index, made, last;
    int reg;
} Value;

/* Of a step that waits, where its values are. */
typedef struct {
    Py_ssize_t first, count;
} Outputs;

/* An input or an output, and its register. */
typedef struct {
    Py_ssize_t at;
    int reg;
} Wire;

typedef struct {
    PyObject *plan; /* borrowed from the steps */
    Wire *wire;     /* what is read, then what is written */
    Py_ssize_t reads, writes, count;
} Kind;

typedef struct {
    StepObject **step; /* in the order in which they were noted: new references */
    Outputs *outputs;
    Value *value;
    Py_ssize_t count;
    uint64_t used[WORDS], used_before[WORDS]; /* registers now, and before the first step of the run */
    /* The run that is being found. */
    Py_ssize_t first, length, number;
    Kind kind[KINDS];
    int kinds;
    unsigned char *which;
    /* The step that is being looked at. */
    Wire *wire;
    Value **read;
    Py_ssize_t reads, writes;
} Search;

static inline int
is_used(const uint64_t *used, int reg)
{
    return used[reg / 64] >> reg % 64 & 1;
}

static inline void
set_used(uint64_t *used, int reg, int is_so)
{
    used[reg / 64] = (used[reg / 64] & ~((uint64_t)1 << reg % 64)) | (uint64_t)is_so << reg % 64;
}

static int
first_free(const uint64_t *used)
{
    int reg = 0;
    while (reg < REGISTERS && is_used(used, reg)) {
        reg += used[reg / 64] == UINT64_MAX ? 64 - reg % 64 : 1;
    }
    return reg < REGISTERS ? reg : -1;
}

/* --- the steps that wait --- */

static int
compare_steps(const void *one, const void *other)
{
    long long left = (*(StepObject *const *)one)->number, right = (*(StepObject *const *)other)->number;
    return (left > right) - (left < right);
}

static int
add_step(Search *search, Py_ssize_t *room, StepObject *step)
{
    if (search->count == *room) {
        *room = 2 * *room + 64;
        StepObject **larger = PyMem_Realloc(search->step, *room * sizeof(StepObject *));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        search->step = larger;
    }
    /* They belong to no run yet, which is marked by a number that no run has. */
    step->run = PY_SSIZE_T_MAX;
    search->step[search->count++] = (StepObject *)Py_NewRef((PyObject *)step);
    return 0;
}

/* Find a step and all it depends on that are not placed yet, in the order in which they were noted. */
static int
find_waiting(Search *search, StepObject *last)
{
    Py_ssize_t room = 0;
    if (add_step(search, &room, last) < 0) {
        return -1;
    }
    for (Py_ssize_t at = 0; at < search->count; at++) {
        const StepObject *step = search->step[at];
        for (Py_ssize_t i = 0, position; i < PyTuple_GET_SIZE(step->read); i++) {
            StepObject *before = read_at(step, i, &position)->step;
            if (before->placed == Py_None && before->run < 0 && add_step(search, &room, before) < 0) {
                return -1;
            }
        }
    }
    /* A loop is found from its last step on: turned round, it is in order. */
    int is_sorted = 1;
    for (Py_ssize_t i = 0, j = search->count - 1; i < j; i++, j--) {
        StepObject *step = search->step[i];
        search->step[i] = search->step[j];
        search->step[j] = step;
    }
    for (Py_ssize_t i = 1; is_sorted && i < search->count; i++) {
        is_sorted = search->step[i - 1]->number <= search->step[i]->number;
    }
    if (!is_sorted) {
        qsort(search->step, search->count, sizeof(StepObject *), compare_steps);
    }
    return 0;
}

/* List the outputs that something stands for, of each step once and by number; steps get their places as positions. */
static int
list_values(Search *search)
{
    Py_ssize_t total = 0, most = 1;
    for (Py_ssize_t i = 0; i < search->count; i++) {
        Py_ssize_t made = PyTuple_GET_SIZE(search->step[i]->made), inputs = Py_SIZE(search->step[i]);
        total += made;
        most = made + inputs > most ? made + inputs : most;
    }
    search->outputs = PyMem_New(Outputs, search->count + 1);
    search->value = PyMem_New(Value, total + 1);
    search->wire = PyMem_New(Wire, most);
    search->read = PyMem_New(Value *, most);
    if (search->outputs == NULL || search->value == NULL || search->wire == NULL || search->read == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Value *next = search->value;
    for (Py_ssize_t i = 0; i < search->count; i++) {
        StepObject *step = search->step[i];
        Value *first = next;
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(step->made); j++) {
            Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(step->made, j));
            Value *known = next;
            while (known > first && known[-1].index >= index) {
                known--;
            }
            if (known == next || known->index != index) {
                memmove(known + 1, known, (char *)next++ - (char *)known);
                *known = (Value){index, 0, -1, -1};
            }
            known->made++;
        }
        search->outputs[i] = (Outputs){first - search->value, next - first};
        step->position = i;
    }
    return 0;
}

/* Return the value that a step reads, NULL if that is no output of one that waits. */
static Value *
value_of(const Search *search, const PendingObject *pending)
{
    const StepObject *step = pending->step;
    if (step->placed != Py_None || step->run < 0) {
        return NULL;
    }
    const Outputs *outputs = &search->outputs[step->position];
    Py_ssize_t index = PyLong_AsSsize_t(pending->index);
    for (Py_ssize_t i = 0; i < outputs->count; i++) {
        if (search->value[outputs->first + i].index == index) {
            return &search->value[outputs->first + i];
        }
    }
    return NULL;
}

static void
note_last_readers(Search *search)
{
    for (Py_ssize_t i = 0; i < search->count; i++) {
        for (Py_ssize_t j = 0, position; j < PyTuple_GET_SIZE(search->step[i]->read); j++) {
            Value *value = value_of(search, read_at(search->step[i], j, &position));
            if (value != NULL) {
                value->last = i;
            }
        }
    }
}

/* --- kinds --- */

static void
forget_kinds(Search *search)
{
    while (search->kinds > 0) {
        PyMem_Free(search->kind[--search->kinds].wire);
    }
}

/* Look at what a step reads, and give back the registers that it is the last to read. Returns whether it can go on with
   the run: what it reads of that is in registers. */
static int
look_at_reads(Search *search, Py_ssize_t i)
{
    const StepObject *step = search->step[i];
    int can_go_on = 1;
    search->reads = 0;
    for (Py_ssize_t j = 0, position; j < PyTuple_GET_SIZE(step->read); j++) {
        const PendingObject *pending = read_at(step, j, &position);
        Value *value = value_of(search, pending);
        if (value == NULL) {
            continue;
        }
        can_go_on &= pending->step->run != search->number || value->reg >= 0;
        if (value->reg >= 0) {
            search->read[search->reads] = value;
            search->wire[search->reads++] = (Wire){position, value->reg};
        }
    }
    for (Py_ssize_t j = 0; j < search->reads; j++) {
        if (search->read[j]->last == i) {
            set_used(search->used, search->read[j]->reg, 0);
        }
    }
    return can_go_on;
}

/* Whether a step is of a kind: it reads the same registers, and can write the same. Then its values have them. */
static int
is_of_kind(const Search *search, const StepObject *step, const Kind *kind, const Outputs *outputs, Py_ssize_t i)
{
    if (kind->plan != step->plan || kind->reads != search->reads) {
        return 0;
    }
    for (Py_ssize_t j = 0; j < kind->reads; j++) {
        if (kind->wire[j].at != search->wire[j].at || kind->wire[j].reg != search->wire[j].reg) {
            return 0;
        }
    }
    /* What nobody reads may be written, too, where nothing is overwritten that somebody does. */
    for (Py_ssize_t j = kind->reads; j < kind->reads + kind->writes; j++) {
        if (is_used(search->used, kind->wire[j].reg)) {
            return 0;
        }
    }
    for (Py_ssize_t j = 0, at = kind->reads; j < outputs->count; j++) {
        const Value *value = &search->value[outputs->first + j];
        if (value->last <= i) {
            continue;
        }
        while (at < kind->reads + kind->writes && kind->wire[at].at < value->index) {
            at++;
        }
        if (at == kind->reads + kind->writes || kind->wire[at].at != value->index) {
            return 0;
        }
    }
    return 1;
}

static void
take_registers(Search *search, const Kind *kind, const Outputs *outputs, Py_ssize_t i)
{
    for (Py_ssize_t j = 0, at = kind->reads; j < outputs->count; j++) {
        Value *value = &search->value[outputs->first + j];
        if (value->last > i) {
            while (kind->wire[at].at < value->index) {
                at++;
            }
            value->reg = kind->wire[at].reg;
            set_used(search->used, value->reg, 1);
        }
    }
}

/* Add a kind that a step is of, with registers that are free. */
static int
add_kind(Search *search, const StepObject *step, const Outputs *outputs, Py_ssize_t i)
{
    search->writes = 0;
    for (Py_ssize_t j = 0; j < outputs->count; j++) {
        Value *value = &search->value[outputs->first + j];
        if (value->last > i && (value->reg = first_free(search->used)) >= 0) {
            set_used(search->used, value->reg, 1);
            search->wire[search->reads + search->writes++] = (Wire){value->index, value->reg};
        }
    }
    Py_ssize_t size = search->reads + search->writes;
    Wire *wire = PyMem_New(Wire, size + 1);
    if (wire == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(wire, search->wire, size * sizeof(Wire));
    search->kind[search->kinds] = (Kind){step->plan, wire, search->reads, search->writes, 0};
    return search->kinds++;
}

/* --- runs --- */

/* Whether the first step of a run, the only one of its kind, can be of another: what that one reads from registers which
   nothing was in, it has from elsewhere, and it can be put there. */
static int
can_begin(const Search *search, const Kind *kind, const Kind *other)
{
    const StepObject *step = search->step[search->first];
    if (kind == other || kind->plan != other->plan || kind->writes != other->writes) {
        return 0;
    }
    for (Py_ssize_t j = 0; j < kind->writes; j++) {
        const Wire *one = &kind->wire[kind->reads + j], *two = &other->wire[other->reads + j];
        if (one->at != two->at || one->reg != two->reg) {
            return 0;
        }
    }
    Py_ssize_t met = 0;
    for (Py_ssize_t j = 0; j < other->reads; j++) {
        const Wire *wire = &other->wire[j];
        if (met < kind->reads && kind->wire[met].at == wire->at) {
            if (kind->wire[met++].reg != wire->reg) {
                return 0;
            }
            continue;
        }
        if (is_used(search->used_before, wire->reg)) {
            return 0;
        }
        for (Py_ssize_t k = 0; k < j; k++) {
            if (other->wire[k].reg == wire->reg && step->inputs[other->wire[k].at] != step->inputs[wire->at]) {
                return 0;
            }
        }
    }
    return met == kind->reads;
}

static PyObject *
wires_as_tuple(const Wire *wire, Py_ssize_t count)
{
    PyObject *found = PyTuple_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *pair = Py_BuildValue("ni", wire[i].at, wire[i].reg);
        if (pair == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyTuple_SET_ITEM(found, i, pair);
    }
    return found;
}

/* Add the run that ends to a list: its steps, of which kind each is, and the kinds. */
static int
end_run(PyObject *runs, Search *search)
{
    Kind *first = &search->kind[search->which[0]];
    for (int i = 0; first->count == 1 && i < search->kinds; i++) {
        if (can_begin(search, first, &search->kind[i])) {
            search->which[0] = (unsigned char)i;
            break;
        }
    }
    PyObject *steps = PyList_New(search->length), *kinds = PyTuple_New(search->kinds);
    PyObject *which = PyBytes_FromStringAndSize((const char *)search->which, search->length);
    int failed = steps == NULL || kinds == NULL || which == NULL;
    for (Py_ssize_t i = 0; !failed && i < search->length; i++) {
        PyList_SET_ITEM(steps, i, Py_NewRef((PyObject *)search->step[search->first + i]));
    }
    for (int i = 0; !failed && i < search->kinds; i++) {
        const Kind *kind = &search->kind[i];
        PyObject *reads = wires_as_tuple(kind->wire, kind->reads);
        PyObject *writes = wires_as_tuple(kind->wire + kind->reads, kind->writes);
        PyObject *entry = reads == NULL || writes == NULL ? NULL : PyTuple_Pack(3, kind->plan, reads, writes);
        Py_XDECREF(reads);
        Py_XDECREF(writes);
        failed = entry == NULL;
        PyTuple_SET_ITEM(kinds, i, entry);
    }
    PyObject *found = failed ? NULL : PyTuple_Pack(3, steps, which, kinds);
    failed = found == NULL || PyList_Append(runs, found) < 0;
    Py_XDECREF(found);
    Py_XDECREF(steps);
    Py_XDECREF(kinds);
    Py_XDECREF(which);
    forget_kinds(search);
    search->length = 0;
    return failed ? -1 : 0;
}

/* Let a step go on with the run, or begin a new one. */
static int
visit_step(PyObject *runs, Search *search, Py_ssize_t i, Py_ssize_t longest)
{
    StepObject *step = search->step[i];
    const Outputs *outputs = &search->outputs[i];
    uint64_t used[WORDS];
    memcpy(used, search->used, sizeof(used));
    int goes_on = look_at_reads(search, i) && search->length > 0 && search->length < longest, kind = 0;
    while (goes_on && kind < search->kinds && !is_of_kind(search, step, &search->kind[kind], outputs, i)) {
        kind++;
    }
    if (goes_on && kind < search->kinds) {
        take_registers(search, &search->kind[kind], outputs, i);
    }
    else {
        if (!goes_on || kind == KINDS) {
            if (search->length > 0 && end_run(runs, search) < 0) {
                return -1;
            }
            search->number++;
            search->first = i;
            memcpy(search->used_before, used, sizeof(used));
        }
        kind = add_kind(search, step, outputs, i);
        if (kind < 0) {
            return -1;
        }
    }
    search->kind[kind].count++;
    search->which[search->length++] = (unsigned char)kind;
    step->run = search->number;
    return 0;
}

PyDoc_STRVAR(runs_doc,
"runs(last, longest, /)\n--\n\n"
"Return a step and all it depends on that are not placed yet, in the order in which they were noted, as runs of at most\n"
"so many steps.\n\n"
"A run is a list of steps, bytes that tell of which kind each is, and a tuple of at most eight kinds. A kind is the plan\n"
"of a step, pairs of an input and the register that it is read from, and pairs of an output and the register that it is\n"
"written to. What the first step reads may have to be put into registers first.");

static PyObject *
runs(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("runs", nargs, 2) < 0 || check_step(args[0]) < 0) {
        return NULL;
    }
    Py_ssize_t longest = PyLong_AsSsize_t(args[1]);
    if (longest < 1) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "expected a positive length");
    }
    Search search = {.number = -1};
    int failed = find_waiting(&search, (StepObject *)args[0]) < 0 || list_values(&search) < 0;
    search.which = PyMem_Malloc(search.count + 1);
    PyObject *found = search.which == NULL ? PyErr_NoMemory() : PyList_New(0);
    failed |= found == NULL;
    if (!failed) {
        note_last_readers(&search);
    }
    for (Py_ssize_t i = 0; !failed && i < search.count; i++) {
        failed = visit_step(found, &search, i, longest) < 0;
    }
    failed = failed || end_run(found, &search) < 0;
    forget_kinds(&search);
    for (Py_ssize_t i = 0; i < search.count; i++) {
        search.step[i]->run = -1;
        Py_DECREF(search.step[i]);
    }
    PyMem_Free(search.step);
    PyMem_Free(search.outputs);
    PyMem_Free(search.value);
    PyMem_Free(search.which);
    PyMem_Free(search.wire);
    PyMem_Free(search.read);
    if (failed) {
        Py_CLEAR(found);
    }
    return found;
}

/* --- what enters and leaves --- */

/* Whether two inputs are one value. */
static int
is_same_value(PyObject *one, PyObject *other)
{
    return one == other || (is_pending(one) && is_pending(other) &&
                            ((PendingObject *)one)->step == ((PendingObject *)other)->step &&
                            PyLong_AsSsize_t(((PendingObject *)one)->index) == PyLong_AsSsize_t(((PendingObject *)other)->index));
}

/* Follow the registers that a step reads and writes; those that it reads and nothing was written to enter. */
static int
follow_registers(PyObject *entering, PyObject *written, const StepObject *step, PyObject *kind)
{
    PyObject *reads = PyTuple_GET_ITEM(kind, 1), *writes = PyTuple_GET_ITEM(kind, 2);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); i++) {
        PyObject *pair = PyTuple_GET_ITEM(reads, i), *reg = PyTuple_GET_ITEM(pair, 1);
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0));
        if (at < 0 || at >= Py_SIZE(step)) {
            PyErr_SetString(PyExc_IndexError, "a step has no such input");
            return -1;
        }
        int is_written = PySet_Contains(written, reg);
        if (is_written != 0) {
            if (is_written < 0) {
                return -1;
            }
            continue;
        }
        PyObject *known = PyDict_GetItemWithError(entering, reg);
        if (known == NULL ? PyErr_Occurred() != NULL || PyDict_SetItem(entering, reg, step->inputs[at]) < 0
                          : !is_same_value(known, step->inputs[at])) {
            return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "two values enter in one register"), -1);
        }
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(writes); i++) {
        if (PySet_Add(written, PyTuple_GET_ITEM(PyTuple_GET_ITEM(writes, i), 1)) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
compare_addresses(const void *one, const void *other)
{
    uintptr_t left = (uintptr_t)*(PendingObject *const *)one, right = (uintptr_t)*(PendingObject *const *)other;
    return (left > right) - (left < right);
}

/* Count for each value how many of those that stand for it are read in the run: as its last reader, less one. */
static int
count_readers(Search *search)
{
    Py_ssize_t total = 0, count = 0;
    for (Py_ssize_t i = 0; i < search->count; i++) {
        total += PyTuple_GET_SIZE(search->step[i]->read);
    }
    PendingObject **read = PyMem_New(PendingObject *, total + 1);
    if (read == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < search->count; i++) {
        for (Py_ssize_t j = 0, position; j < PyTuple_GET_SIZE(search->step[i]->read); j++) {
            PendingObject *pending = read_at(search->step[i], j, &position);
            Value *value = value_of(search, pending);
            if (value != NULL && value->made == 1) {
                value->last = 0;
            }
            else if (value != NULL) {
                read[count++] = pending;
            }
        }
    }
    qsort(read, count, sizeof(PendingObject *), compare_addresses);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i == 0 || read[i] != read[i - 1]) {
            value_of(search, read[i])->last++;
        }
    }
    PyMem_Free(read);
    return 0;
}

/* Whether something outside of the run may ask for a value: more stand for it than are read there, or it is wanted. */
static int
is_needed(const StepObject *step, const Value *value)
{
    Py_ssize_t others = value->made - 1 - value->last;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(step->wanted); i++) {
        others += PyLong_AsSsize_t(PyTuple_GET_ITEM(step->wanted, i)) == value->index ? 1 : 0;
    }
    return others > 0;
}

/* Enter the outputs that leave into sets: of the last step of a kind, and of others. */
static int
note_leaving(const Search *search, const unsigned char *which, Py_ssize_t kinds, PyObject *last, PyObject *stacked)
{
    unsigned char met[256] = {0};
    uint64_t known[256] = {0}; /* the first of those that are in the sets already */
    for (Py_ssize_t i = search->count - 1; i >= 0; i--) {
        if (which[i] >= kinds) {
            PyErr_SetString(PyExc_IndexError, "a step is of no kind");
            return -1;
        }
        int is_last = !met[which[i]];
        PyObject *set = PyList_GET_ITEM(is_last ? last : stacked, which[i]);
        met[which[i]] = 1;
        const Outputs *outputs = &search->outputs[i];
        for (Py_ssize_t j = 0; j < outputs->count; j++) {
            const Value *value = &search->value[outputs->first + j];
            uint64_t bit = value->index < 64 ? (uint64_t)1 << value->index : 0;
            if ((!is_last && known[which[i]] & bit) || !is_needed(search->step[i], value)) {
                continue;
            }
            known[which[i]] |= is_last ? 0 : bit;
            PyObject *index = PyLong_FromSsize_t(value->index);
            int failed = index == NULL || PySet_Add(set, index) < 0;
            Py_XDECREF(index);
            if (failed) {
                return -1;
            }
        }
    }
    return 0;
}

static PyObject *
list_of_sets(Py_ssize_t count)
{
    PyObject *found = PyList_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *set = PySet_New(NULL);
        if (set == NULL) {
            Py_CLEAR(found);
            break;
        }
        PyList_SET_ITEM(found, i, set);
    }
    return found;
}

/* Check that kinds are as `runs` gives them. */
static int
check_kinds(PyObject *kinds)
{
    int is_fit = PyTuple_Check(kinds);
    for (Py_ssize_t i = 0; is_fit && i < PyTuple_GET_SIZE(kinds); i++) {
        PyObject *kind = PyTuple_GET_ITEM(kinds, i);
        is_fit = PyTuple_Check(kind) && PyTuple_GET_SIZE(kind) == 3;
        for (int j = 1; is_fit && j < 3; j++) {
            PyObject *wires = PyTuple_GET_ITEM(kind, j);
            is_fit = PyTuple_Check(wires);
            for (Py_ssize_t k = 0; is_fit && k < PyTuple_GET_SIZE(wires); k++) {
                PyObject *pair = PyTuple_GET_ITEM(wires, k);
                is_fit = PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2 && PyLong_Check(PyTuple_GET_ITEM(pair, 0)) &&
                         PyLong_Check(PyTuple_GET_ITEM(pair, 1));
            }
        }
    }
    if (!is_fit) {
        PyErr_Format(PyExc_TypeError, "expected kinds of steps, got %R", kinds);
        return -1;
    }
    return 0;
}

PyDoc_STRVAR(ends_doc,
"ends(run, which, kinds, /)\n--\n\n"
"Return what enters a run of steps, and what leaves it: by register what is read of it before anything is written there;\n"
"then for each kind the set of outputs of its last step, and the set of outputs of others, that something else needs.");

static PyObject *
ends(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("ends", nargs, 3) < 0 || check_run(args[0], 0) < 0 || check_kinds(args[2]) < 0) {
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(args[0]), kinds = PyTuple_GET_SIZE(args[2]);
    if (!PyBytes_Check(args[1]) || PyBytes_GET_SIZE(args[1]) != count) {
        return PyErr_Format(PyExc_TypeError, "expected a kind for each step, got %R", args[1]);
    }
    const unsigned char *which = (const unsigned char *)PyBytes_AS_STRING(args[1]);
    Search search = {.step = (StepObject **)&PyList_GET_ITEM(args[0], 0), .count = count};
    PyObject *entering = PyDict_New(), *written = PySet_New(NULL);
    PyObject *last = list_of_sets(kinds), *stacked = list_of_sets(kinds);
    int failed = entering == NULL || written == NULL || last == NULL || stacked == NULL || list_values(&search) < 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        search.step[i]->run = 0;
    }
    failed = failed || count_readers(&search) < 0 || note_leaving(&search, which, kinds, last, stacked) < 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        failed = follow_registers(entering, written, search.step[i], PyTuple_GET_ITEM(args[2], which[i])) < 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        search.step[i]->run = -1;
    }
    PyObject *found = failed ? NULL : PyTuple_Pack(3, entering, last, stacked);
    PyMem_Free(search.outputs);
    PyMem_Free(search.value);
    PyMem_Free(search.wire);
    PyMem_Free(search.read);
    Py_XDECREF(entering);
    Py_XDECREF(written);
    Py_XDECREF(last);
    Py_XDECREF(stacked);
    return found;
}

PyMethodDef chain_methods[] = {
    {"ends", FAST(ends), METH_FASTCALL, ends_doc},
    {"runs", FAST(runs), METH_FASTCALL, runs_doc},
    {NULL},
};
