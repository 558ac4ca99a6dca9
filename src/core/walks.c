/* Walks of derivative sweeps: what outputs are made from, through what is differentiated, and what of it is active.

   A loop of K steps is K calls, and a sweep looks at each of them: see `unspool._autodiff.sweeps.walk`, which decides what a
   walk asks about nodes that are no calls. */

#include "steps.h"

/* --- from nodes to numbers --- */

typedef struct {
    const void *key;
    Py_ssize_t value;
} Entry;

/* Open addressing, at most half full. The nodes are kept alive by the walk: no address becomes that of another. */
typedef struct {
    Entry *entry;
    size_t size, used;
} Numbers;

static int
numbers_start(Numbers *numbers, size_t size)
{
    numbers->size = size;
    numbers->used = 0;
    numbers->entry = PyMem_Calloc(size, sizeof(Entry));
    if (numbers->entry == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Return where a node is, or where it would be: there the key is NULL. */
static Entry *
numbers_find(const Numbers *numbers, const void *key)
{
    size_t hash = ((size_t)key >> 4) * (size_t)0x9E3779B97F4A7C15ULL;
    for (size_t at = (hash ^ hash >> 32) & (numbers->size - 1);; at = (at + 1) & (numbers->size - 1)) {
        if (numbers->entry[at].key == NULL || numbers->entry[at].key == key) {
            return &numbers->entry[at];
        }
    }
}

static int
numbers_add(Numbers *numbers, const void *key, Py_ssize_t value)
{
    if (2 * (numbers->used + 1) > numbers->size) {
        Numbers larger;
        if (numbers_start(&larger, 4 * numbers->size) < 0) {
            return -1;
        }
        for (size_t i = 0; i < numbers->size; i++) {
            if (numbers->entry[i].key != NULL) {
                *numbers_find(&larger, numbers->entry[i].key) = numbers->entry[i];
            }
        }
        larger.used = numbers->used;
        PyMem_Free(numbers->entry);
        *numbers = larger;
    }
    Entry *entry = numbers_find(numbers, key);
    entry->key = key;
    entry->value = value;
    numbers->used++;
    return 0;
}

/* --- what outputs are made from --- */

/* A node, and which of its inputs it is differentiated through: at some positions, or all, where there is no tuple. */
typedef struct {
    PyObject *node, *inputs, *passing;
} Reached;

typedef struct {
    PyObject_HEAD
    Py_ssize_t length, room;
    Reached *reached;
} SourcesObject;

static inline Py_ssize_t
operand_count(const Reached *reached)
{
    return PyTuple_GET_SIZE(reached->passing == NULL ? reached->inputs : reached->passing);
}

static inline NodeObject *
operand_at(const Reached *reached, Py_ssize_t i)
{
    i = reached->passing == NULL ? i : PyLong_AsSsize_t(PyTuple_GET_ITEM(reached->passing, i));
    return (NodeObject *)PyTuple_GET_ITEM(reached->inputs, i);
}

static void
sources_dealloc(SourcesObject *self)
{
    for (Py_ssize_t i = 0; i < self->length; i++) {
        Py_DECREF(self->reached[i].node);
        Py_DECREF(self->reached[i].inputs);
        Py_XDECREF(self->reached[i].passing);
    }
    PyMem_Free(self->reached);
    PyObject_Free(self);
}

static Py_ssize_t
sources_length(SourcesObject *self)
{
    return self->length;
}

static PySequenceMethods sources_sequence = {.sq_length = (lenfunc)sources_length};

PyTypeObject SourcesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Sources",
    .tp_doc = "Nodes in order, and what each is differentiated through; see `unspool._autodiff.sweeps.walk`.",
    .tp_basicsize = sizeof(SourcesObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = node_refuse,
    .tp_dealloc = (destructor)sources_dealloc,
    .tp_as_sequence = &sources_sequence,
};

enum { PLANS = 8 };

typedef struct {
    /* What the walk is given. */
    long long first;
    NodeObject *single;    /* what it is made from does not matter; or NULL */
    PyObject *through_all; /* ops that are differentiated through all their inputs */
    PyObject *shown;
    PyObject *passing_inputs, *operands_of, *is_differentiable, *is_open; /* functions; the last may be None */
    /* What it has found: nodes and what they are differentiated through, and where they are among them, outputs of
       calls where these are; -1 for what is not differentiated. */
    SourcesObject *found;
    Numbers numbers;
    int in_id_order;
    /* What it has to look at yet, alive for its readers are. */
    NodeObject **waiting;
    Py_ssize_t length, room;
    /* Which inputs plans are differentiated through: those that were asked for last. */
    PyObject *plan[PLANS], *passing[PLANS];
    int latest;
} Reach;

static int
wait_for(Reach *walk, PyObject *node)
{
    if (walk->length == walk->room) {
        Py_ssize_t room = walk->room ? 2 * walk->room : 64;
        NodeObject **larger = PyMem_Realloc(walk->waiting, room * sizeof(NodeObject *));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        walk->waiting = larger;
        walk->room = room;
    }
    walk->waiting[walk->length++] = (NodeObject *)node;
    return 0;
}

/* Whether a function says so of a node; -1 is an error. */
static int
says(PyObject *function, PyObject *node)
{
    PyObject *answer = PyObject_CallOneArg(function, node);
    int is_so = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return is_so;
}

/* Return the positions of the inputs that a plan is differentiated through: a borrowed tuple. */
static PyObject *
passing_of(Reach *walk, PyObject *plan)
{
    for (int i = 0; i < PLANS; i++) {
        if (walk->plan[i] == plan) {
            return walk->passing[i];
        }
    }
    PyObject *found = PyObject_CallOneArg(walk->passing_inputs, plan);
    if (found != NULL && !PyTuple_Check(found)) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of positions, got %R", found);
        Py_CLEAR(found);
    }
    if (found != NULL) {
        walk->latest = (walk->latest + 1) % PLANS;
        Py_XSETREF(walk->plan[walk->latest], Py_NewRef(plan));
        Py_XSETREF(walk->passing[walk->latest], found);
    }
    return found;
}

/* Return what a node that is no output of a call is differentiated through. */
static PyObject *
operands_of_node(Reach *walk, NodeObject *node)
{
    if (node == walk->single) {
        return Py_NewRef(empty);
    }
    int all = PyTuple_Check(node->inputs) ? PySet_Contains(walk->through_all, node->op) : 0;
    if (all != 0) {
        return all < 0 ? NULL : Py_NewRef(node->inputs);
    }
    PyObject *operands = PyObject_CallOneArg(walk->operands_of, (PyObject *)node);
    PyObject *sequence = operands == NULL ? NULL : PySequence_Tuple(operands);
    Py_XDECREF(operands);
    return sequence;
}

/* Note that an output of a call was met. Returns 1 if the call was met before, -1 is an error. */
static int
meet_output(Reach *walk, NodeObject *output, CallObject *call)
{
    PyObject *met = PyDict_GetItemWithError(walk->shown, call->node.id);
    if (met == NULL) {
        return PyErr_Occurred() || PyDict_SetItem(walk->shown, call->node.id, (PyObject *)output) < 0 ? -1 : 0;
    }
    /* One output needs no tuple: a loop has many calls, and each would be one thing more for the collector. */
    PyObject *all = PyTuple_New(met_count(met) + 1);
    for (Py_ssize_t i = 0; all != NULL && i < met_count(met); i++) {
        PyTuple_SET_ITEM(all, i, Py_NewRef((PyObject *)met_at(met, i)));
    }
    if (all != NULL) {
        PyTuple_SET_ITEM(all, met_count(met), Py_NewRef((PyObject *)output));
    }
    int failed = all == NULL || PyDict_SetItem(walk->shown, call->node.id, all) < 0;
    Py_XDECREF(all);
    return failed ? -1 : 1;
}

/* Note that a node was reached, and what it is differentiated through; the reference to its inputs is taken over. */
static int
add_reached(Reach *walk, NodeObject *node, PyObject *inputs, PyObject *passing)
{
    SourcesObject *found = walk->found;
    if (found->length == found->room) {
        Reached *larger = PyMem_Realloc(found->reached, 2 * found->room * sizeof(Reached));
        if (larger == NULL) {
            Py_DECREF(inputs);
            PyErr_NoMemory();
            return -1;
        }
        found->reached = larger;
        found->room *= 2;
    }
    Reached *reached = &found->reached[found->length++];
    *reached = (Reached){Py_NewRef((PyObject *)node), inputs, Py_XNewRef(passing)};
    long long key = number_of(node);
    for (Py_ssize_t i = 0; i < operand_count(reached); i++) {
        NodeObject *operand = operand_at(reached, i);
        long long other = number_of(operand);
        if (other >= walk->first) {
            if (numbers_find(&walk->numbers, operand)->key == NULL && wait_for(walk, (PyObject *)operand) < 0) {
                return -1;
            }
            walk->in_id_order &= other <= key;
        }
    }
    return 0;
}

/* Check that a plan is differentiated through inputs that a call has. */
static int
check_passing(PyObject *passing, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(passing); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(passing, i));
        if (at < 0 || at >= count) {
            PyErr_SetString(PyExc_IndexError, "a call has no such input");
            return -1;
        }
    }
    return 0;
}

static int
reach_output(Reach *walk, NodeObject *node)
{
    CallObject *call = (CallObject *)node->inputs;
    int was_met = meet_output(walk, node, call);
    if (was_met != 0) {
        return was_met < 0 ? -1 : numbers_add(&walk->numbers, node, numbers_find(&walk->numbers, call)->value);
    }
    Py_ssize_t place = walk->found->length;
    PyObject *inputs = call->node.inputs, *passing = passing_of(walk, call->plan);
    if (passing == NULL || check_passing(passing, PyTuple_GET_SIZE(inputs)) < 0 ||
        numbers_add(&walk->numbers, node, place) < 0 || numbers_add(&walk->numbers, call, place) < 0) {
        return -1;
    }
    int is_all = PyTuple_GET_SIZE(passing) == PyTuple_GET_SIZE(inputs);
    return add_reached(walk, &call->node, Py_NewRef(inputs), is_all ? NULL : passing);
}

static int
reach_node(Reach *walk, NodeObject *node)
{
    if (numbers_find(&walk->numbers, node)->key != NULL) {
        return 0;
    }
    if (node->dtype != float64 && node->dtype != float32 && node->dtype != complex128) {
        int is_differentiable = says(walk->is_differentiable, (PyObject *)node);
        if (is_differentiable <= 0) {
            return is_differentiable < 0 ? -1 : numbers_add(&walk->numbers, node, -1);
        }
    }
    if ((PyObject *)Py_TYPE(node) == projection_class && is_call(node->inputs)) {
        int is_open = walk->is_open == Py_None ? 0 : says(walk->is_open, (PyObject *)node);
        if (is_open <= 0) {
            return is_open < 0 ? -1 : reach_output(walk, node);
        }
    }
    PyObject *operands = operands_of_node(walk, node);
    if (operands == NULL || numbers_add(&walk->numbers, node, walk->found->length) < 0) {
        Py_XDECREF(operands);
        return -1;
    }
    return add_reached(walk, node, operands, NULL);
}

/* --- their order --- */

typedef struct {
    long long id;
    Py_ssize_t place;
} Place;

static int
compare_places(const void *one, const void *other)
{
    long long left = ((const Place *)one)->id, right = ((const Place *)other)->id;
    return (left > right) - (left < right);
}

/* Return the places of what was reached, by rising ids. */
static Place *
places_by_id(const Reach *walk)
{
    Py_ssize_t count = walk->found->length;
    Place *place = PyMem_New(Place, count + 1);
    if (place == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int falls = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        /* A loop is reached from its end. */
        Py_ssize_t at = count - 1 - i;
        place[i] = (Place){number_of((NodeObject *)walk->found->reached[at].node), at};
        falls &= i == 0 || place[i].id > place[i - 1].id;
    }
    if (!falls) {
        qsort(place, count, sizeof(Place), compare_places);
    }
    return place;
}

/* A heap of numbers, the least first. */
static void
heap_push(Py_ssize_t *heap, Py_ssize_t *length, Py_ssize_t number)
{
    Py_ssize_t at = (*length)++;
    for (; at > 0 && heap[(at - 1) / 2] > number; at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
    }
    heap[at] = number;
}

static Py_ssize_t
heap_pop(Py_ssize_t *heap, Py_ssize_t *length)
{
    Py_ssize_t least = heap[0], number = heap[--*length], at = 0;
    while (2 * at + 1 < *length) {
        Py_ssize_t child = 2 * at + 1;
        child += child + 1 < *length && heap[child + 1] < heap[child];
        if (heap[child] >= number) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = number;
    return least;
}

/* Put places, which are in the order of ids, into a topological order: of those that are possible, the one by id. */
static int
sort_topologically(const Reach *walk, Place *place)
{
    const Reached *reached = walk->found->reached;
    Py_ssize_t count = walk->found->length, reads = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        reads += operand_count(&reached[i]);
    }
    /* By rank: how many operands each waits for, where its readers begin, the heap; then the ranks, and the readers. */
    Py_ssize_t *waits = PyMem_Calloc(4 * (count + 2) + reads, sizeof(Py_ssize_t));
    Place *ordered = PyMem_New(Place, count + 1);
    if (waits == NULL || ordered == NULL) {
        PyMem_Free(waits);
        PyMem_Free(ordered);
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t *begin = waits + count, *heap = begin + count + 2, *rank = heap + count + 1, *reader = rank + count + 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        rank[place[i].place] = i;
    }
    /* Twice: readers are counted, and then entered from where the counts say. */
    for (int pass = 0; pass < 2; pass++) {
        for (Py_ssize_t i = 0; i < count; i++) {
            const Reached *reader_node = &reached[place[i].place];
            for (Py_ssize_t j = 0; j < operand_count(reader_node); j++) {
                Entry *entry = numbers_find(&walk->numbers, operand_at(reader_node, j));
                if (entry->key == NULL || entry->value < 0) {
                    continue;
                }
                Py_ssize_t source = rank[entry->value];
                if (pass == 0) {
                    begin[source + 2]++;
                    waits[i]++;
                }
                else {
                    reader[begin[source + 1]++] = i;
                }
            }
        }
        for (Py_ssize_t i = 0; pass == 0 && i < count; i++) {
            begin[i + 2] += begin[i + 1];
        }
    }
    Py_ssize_t length = 0, done = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (waits[i] == 0) {
            heap_push(heap, &length, i);
        }
    }
    while (length > 0) {
        Py_ssize_t next = heap_pop(heap, &length);
        ordered[done++] = place[next];
        for (Py_ssize_t i = begin[next]; i < begin[next + 1]; i++) {
            if (--waits[reader[i]] == 0) {
                heap_push(heap, &length, reader[i]);
            }
        }
    }
    memcpy(place, ordered, done * sizeof(Place));
    PyMem_Free(waits);
    PyMem_Free(ordered);
    if (done < count) {
        PyErr_SetString(PyExc_RuntimeError, "nodes are made from each other in a circle");
        return -1;
    }
    return 0;
}

/* Put what was reached in order. */
static int
put_in_order(Reach *walk)
{
    Py_ssize_t count = walk->found->length;
    Place *place = places_by_id(walk);
    Reached *ordered = place == NULL ? NULL : PyMem_New(Reached, count + 1);
    if (ordered == NULL || (!walk->in_id_order && sort_topologically(walk, place) < 0)) {
        if (place != NULL && ordered == NULL) {
            PyErr_NoMemory();
        }
        PyMem_Free(place);
        PyMem_Free(ordered);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        ordered[i] = walk->found->reached[place[i].place];
    }
    PyMem_Free(place);
    PyMem_Free(walk->found->reached);
    walk->found->reached = ordered;
    walk->found->room = count + 1;
    return 0;
}

PyDoc_STRVAR(reach_doc,
"reach(outputs, first, single, through_all, shown, passing_inputs, operands_of, is_differentiable, is_open, /)\n--\n\n"
"Return the differentiable nodes that outputs are made from, and what each is differentiated through, in topological\n"
"order; by id, where that is one.\n\n"
"A call stands for its outputs, and ``shown`` gets those that were met, by the id of the call: one, or a tuple.\n"
"Nodes with an id below ``first`` are left out, and so is what ``single`` is made from, a node or None. Functions are\n"
"asked: which inputs a plan is differentiated through, what a node is (where its op is not in the set ``through_all``),\n"
"whether one of another dtype than numbers have is differentiable, and whether the call of an output is walked node by\n"
"node; None if no call is.");

static PyObject *
reach(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("reach", nargs, 9) < 0) {
        return NULL;
    }
    long long first = PyLong_AsLongLong(args[1]);
    if (first == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (!PyList_Check(args[0]) || check_nodes(NULL, &PyList_GET_ITEM(args[0], 0), PyList_GET_SIZE(args[0])) < 0 ||
        (args[2] != Py_None && !is_node(args[2])) || !PyAnySet_Check(args[3]) || !PyDict_Check(args[4])) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected nodes, an id, a node, a set and a dict");
    }
    Reach walk = {.first = first, .single = args[2] == Py_None ? NULL : (NodeObject *)args[2], .through_all = args[3],
                  .shown = args[4], .passing_inputs = args[5], .operands_of = args[6], .is_differentiable = args[7],
                  .is_open = args[8], .in_id_order = 1};
    walk.found = PyObject_New(SourcesObject, &SourcesType);
    if (walk.found == NULL) {
        return NULL;
    }
    walk.found->length = 0;
    walk.found->room = 64;
    walk.found->reached = PyMem_New(Reached, walk.found->room);
    int failed = walk.found->reached == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    failed |= numbers_start(&walk.numbers, 256) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *output = PyList_GET_ITEM(args[0], i);
        failed = number_of((NodeObject *)output) >= first && wait_for(&walk, output) < 0;
    }
    while (!failed && walk.length > 0) {
        failed = reach_node(&walk, walk.waiting[--walk.length]) < 0;
    }
    failed = failed || put_in_order(&walk) < 0;
    for (int i = 0; i < PLANS; i++) {
        Py_XDECREF(walk.plan[i]);
        Py_XDECREF(walk.passing[i]);
    }
    PyMem_Free(walk.numbers.entry);
    PyMem_Free(walk.waiting);
    if (failed) {
        Py_CLEAR(walk.found);
    }
    return (PyObject *)walk.found;
}

/* --- what depends on a variable --- */

/* What the outputs of a plan are made from: of the plan that was asked for last, nearly always the next one too. */
typedef struct {
    PyObject *inputs_behind; /* returns, for each output of a plan, the positions of inputs */
    PyObject *plan, *behind;
} Behind;

/* Whether an output of a call is made from an input that is active; -1 is an error. */
static int
is_behind(const CallObject *call, PyObject *output, PyObject *active, Behind *known)
{
    if (call->plan != known->plan) {
        PyObject *behind = PyObject_CallOneArg(known->inputs_behind, call->plan);
        if (behind == NULL) {
            return -1;
        }
        Py_XSETREF(known->behind, behind);
        Py_XSETREF(known->plan, Py_NewRef(call->plan));
    }
    Py_ssize_t index = PyLong_AsSsize_t(output);
    PyObject *positions = index < 0 || !PyTuple_Check(known->behind) || index >= PyTuple_GET_SIZE(known->behind)
                              ? NULL
                              : PyTuple_GET_ITEM(known->behind, index);
    if (positions == NULL || !PyTuple_Check(positions)) {
        return PyErr_Occurred() ? -1 : 1; /* nothing is known of it */
    }
    int is_active = 0;
    PyObject *inputs = call->node.inputs;
    for (Py_ssize_t i = 0; is_active == 0 && i < PyTuple_GET_SIZE(positions); i++) {
        Py_ssize_t position = PyLong_AsSsize_t(PyTuple_GET_ITEM(positions, i));
        if (position < 0 || position >= PyTuple_GET_SIZE(inputs)) {
            return PyErr_Occurred() ? -1 : 1;
        }
        is_active = PySet_Contains(active, ((NodeObject *)PyTuple_GET_ITEM(inputs, position))->id);
    }
    return is_active;
}

/* Add the outputs of a call that were met to a set, those that depend on what is in it; a single one does. */
static int
add_outputs(PyObject *active, PyObject *shown, PyObject *node, Behind *known)
{
    PyObject *met = PyDict_GetItemWithError(shown, ((NodeObject *)node)->id);
    Py_ssize_t count = met == NULL ? 0 : met_count(met);
    for (Py_ssize_t i = 0; i < count; i++) {
        const NodeObject *output = met_at(met, i);
        int is_active = count > 1 && is_call(node) ? is_behind((CallObject *)node, output->output, active, known) : 1;
        if (is_active < 0 || (is_active && PySet_Add(active, output->id) < 0)) {
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

PyDoc_STRVAR(activate_doc,
"activate(sources, active, shown, inputs_behind, /)\n--\n\n"
"Return those of some nodes, in topological order, that depend on a variable or are one; their ids, and those of outputs\n"
"of calls that were met and do, are added to the set ``active``, which has those of the variables. ``inputs_behind``\n"
"tells of a plan which inputs each output is made from.");

static PyObject *
activate(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    if (check_count("activate", nargs, 4) < 0) {
        return NULL;
    }
    PyObject *active = args[1], *shown = args[2];
    if (!Py_IS_TYPE(args[0], &SourcesType) || !PySet_Check(active) || !PyDict_Check(shown)) {
        return PyErr_Format(PyExc_TypeError, "expected what was reached, a set and a dict");
    }
    const SourcesObject *sources = (SourcesObject *)args[0];
    PyObject *order = PyList_New(0);
    Behind known = {.inputs_behind = args[3]};
    int failed = order == NULL;
    for (Py_ssize_t i = 0; !failed && i < sources->length; i++) {
        const Reached *reached = &sources->reached[i];
        PyObject *id = ((NodeObject *)reached->node)->id;
        int is_variable = PySet_Contains(active, id), is_active = is_variable;
        for (Py_ssize_t j = 0; is_active == 0 && j < operand_count(reached); j++) {
            is_active = PySet_Contains(active, operand_at(reached, j)->id);
        }
        failed = is_active < 0 || (is_active && PyList_Append(order, reached->node) < 0) ||
                 (is_active && !is_variable && (PySet_Add(active, id) < 0 || add_outputs(active, shown, reached->node, &known) < 0));
    }
    Py_XDECREF(known.plan);
    Py_XDECREF(known.behind);
    if (failed) {
        Py_CLEAR(order);
    }
    return order;
}

PyMethodDef walk_methods[] = {
    {"activate", FAST(activate), METH_FASTCALL, activate_doc},
    {"reach", FAST(reach), METH_FASTCALL, reach_doc},
    {NULL},
};
