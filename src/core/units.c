/* The units of a replay as numbers: in which order they can run, and what they hold while they do.

   A unit is what runs at once; it reads nodes and makes some. The value of a node is in buffers, which nodes that look
   at the same memory share. All of them are numbered by whoever describes them here. Nothing here refers to a node, so
   what counts references to nodes does not see it. */

#include "core.h"
#include <stddef.h>

enum { IS_VIEW = 1, IS_LARGE = 2, IS_STEPWISE = 4 };

/* What units are put in order by; see `unspool._engine.frames`. */
enum { AS_RECORDED, AS_POSSIBLE, ORDERED, AS_FREEING };

typedef struct {
    long long key, workspace, stacked;
    int first, reads, begun, fixed, makes; /* of links: what it reads, then what it makes */
    int spare, taken;
    int flags;
    int place; /* among the units that are looked at; -1 if it is none of them */
} Unit;

typedef struct {
    PyObject *id;
    int maker, first, buffers; /* of links */
    int left;                  /* how often it is still read */
    int head;                  /* of the list of its readers */
    char has_inputs, is_live, is_wanted;
} Made;

typedef struct {
    long long size;
    int users, keepers;
    int gone; /* from the values of which node it was taken; -1 if from none */
} Buffer;

typedef struct {
    PyObject_HEAD
    Unit *units;
    Made *nodes;
    Buffer *buffers;
    int *links;
    Py_ssize_t unit_count, node_count, buffer_count, link_count;
    Py_ssize_t unit_room, node_room, buffer_room, link_room;
    int branch; /* the most units of a branch that is small */
} TableObject;

/* --- describing units --- */

/* Make room for so many entries more; NULL is an error, and leaves the array as it was. */
static int
grow(void **array, Py_ssize_t *room, Py_ssize_t wanted, size_t size)
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
static int
append_links(TableObject *self, PyObject *given, Py_ssize_t limit)
{
    PyObject *numbers = PySequence_Fast(given, "numbers are in a sequence");
    if (numbers == NULL) {
        return -1;
    }
    Py_ssize_t count = PySequence_Fast_GET_SIZE(numbers);
    if (grow((void **)&self->links, &self->link_room, self->link_count + count, sizeof(int)) < 0) {
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

PyDoc_STRVAR(table_buffer_doc, "buffer(size, /)\n--\n\nReturn the number of some new memory.");

static PyObject *
table_buffer(TableObject *self, PyObject *given)
{
    long long size = PyLong_AsLongLong(given);
    if ((size == -1 && PyErr_Occurred()) ||
        grow((void **)&self->buffers, &self->buffer_room, self->buffer_count + 1, sizeof(Buffer)) < 0) {
        return NULL;
    }
    self->buffers[self->buffer_count] = (Buffer){.size = size, .gone = -1};
    return PyLong_FromSsize_t(self->buffer_count++);
}

PyDoc_STRVAR(table_unit_doc, "unit()\n--\n\nReturn the number of a new unit; see `describe`.");

static PyObject *
table_unit(TableObject *self, PyObject *unused)
{
    if (grow((void **)&self->units, &self->unit_room, self->unit_count + 1, sizeof(Unit)) < 0) {
        return NULL;
    }
    self->units[self->unit_count] = (Unit){.spare = -1, .taken = -1, .place = -1};
    return PyLong_FromSsize_t(self->unit_count++);
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
    if (count < 0 || grow((void **)&self->nodes, &self->node_room, self->node_count + 1, sizeof(Made)) < 0) {
        return NULL;
    }
    self->nodes[self->node_count] = (Made){
        .id = Py_NewRef(id), .maker = maker, .first = (int)first, .buffers = count, .has_inputs = (char)has_inputs};
    return PyLong_FromSsize_t(self->node_count++);
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
static int *
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

static void
leave_units(TableObject *self, const int *units, int count)
{
    for (int i = 0; i < count; i++) {
        self->units[units[i]].place = -1;
    }
}

static void
place_units(TableObject *self, const int *units, int count)
{
    for (int i = 0; i < count; i++) {
        self->units[units[i]].place = i;
    }
}

#define FIRST_READ(self, unit) ((self)->links + (unit)->first)
#define FIRST_MADE(self, unit) ((self)->links + (unit)->first + (unit)->reads)

/* The place of what makes a node; -1 if that is not among the units that are looked at. */
static inline int
place_of_maker(const TableObject *self, int node)
{
    return self->units[self->nodes[node].maker].place;
}

/* --- heaps --- */

typedef struct {
    long long first, second;
    int value;
} Item;

typedef struct {
    Item *items;
    Py_ssize_t count, room;
} Heap;

static inline int
is_before(const Item *one, const Item *other)
{
    return one->first != other->first ? one->first < other->first : one->second < other->second;
}

static int
heap_push(Heap *heap, long long first, long long second, int value)
{
    if (grow((void **)&heap->items, &heap->room, heap->count + 1, sizeof(Item)) < 0) {
        return -1;
    }
    Item item = {first, second, value};
    Py_ssize_t at = heap->count++;
    for (; at > 0 && is_before(&item, &heap->items[(at - 1) / 2]); at = (at - 1) / 2) {
        heap->items[at] = heap->items[(at - 1) / 2];
    }
    heap->items[at] = item;
    return 0;
}

static int
heap_pop(Heap *heap)
{
    int value = heap->items[0].value;
    Item item = heap->items[--heap->count];
    Py_ssize_t at = 0;
    for (;;) {
        Py_ssize_t next = 2 * at + 1;
        if (next >= heap->count) {
            break;
        }
        if (next + 1 < heap->count && is_before(&heap->items[next + 1], &heap->items[next])) {
            next++;
        }
        if (!is_before(&heap->items[next], &item)) {
            break;
        }
        heap->items[at] = heap->items[next];
        at = next;
    }
    heap->items[at] = item;
    return value;
}

/* --- who reads whom --- */

/* Places of units: what each reads of the others, once each, and who reads it, in the order of the places. */
typedef struct {
    int count;
    int *first_source, *source, *first_reader, *reader, *waiting;
} Graph;

static void
graph_release(Graph *graph)
{
    PyMem_Free(graph->first_source);
    PyMem_Free(graph->source);
    PyMem_Free(graph->first_reader);
    PyMem_Free(graph->reader);
    PyMem_Free(graph->waiting);
}

static int
graph_build(Graph *graph, const TableObject *self, const int *units, int count)
{
    Py_ssize_t most = 0;
    for (int i = 0; i < count; i++) {
        most += self->units[units[i]].reads;
    }
    *graph = (Graph){.count = count};
    size_t places = (size_t)count + 2, edges = (size_t)most + 1;
    int *seen = PyMem_Malloc(places * sizeof(int));
    graph->first_source = PyMem_Malloc(places * sizeof(int));
    graph->source = PyMem_Malloc(edges * sizeof(int));
    graph->first_reader = PyMem_Calloc(places, sizeof(int));
    graph->reader = PyMem_Malloc(edges * sizeof(int));
    graph->waiting = PyMem_Malloc(places * sizeof(int));
    if (seen == NULL || graph->first_source == NULL || graph->source == NULL || graph->first_reader == NULL ||
        graph->reader == NULL || graph->waiting == NULL) {
        PyMem_Free(seen);
        graph_release(graph);
        PyErr_NoMemory();
        return -1;
    }
    memset(seen, -1, places * sizeof(int));
    int edge = 0;
    for (int i = 0; i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        graph->first_source[i] = edge;
        for (int j = 0; j < unit->reads; j++) {
            int source = place_of_maker(self, FIRST_READ(self, unit)[j]);
            if (source >= 0 && source != i && seen[source] != i) {
                seen[source] = i;
                graph->source[edge++] = source;
                graph->first_reader[source + 2]++;
            }
        }
        graph->waiting[i] = edge - graph->first_source[i];
    }
    graph->first_source[count] = edge;
    PyMem_Free(seen);
    for (int i = 2; i < count + 2; i++) {
        graph->first_reader[i] += graph->first_reader[i - 1];
    }
    for (int i = 0; i < count; i++) {
        for (int j = graph->first_source[i]; j < graph->first_source[i + 1]; j++) {
            graph->reader[graph->first_reader[graph->source[j] + 1]++] = i;
        }
    }
    return 0;
}

/* --- in which order units can run --- */

static int
compare_items(const void *one, const void *other)
{
    return is_before(one, other) ? -1 : is_before(other, one);
}

/* What has become possible last runs first: of several at once those of least height, then the oldest. Without heights
   it is the oldest. Returns how many run, all unless the units read each other in a circle; -1 is an error. */
static int
last_first(const Graph *graph, const int *height, int *order)
{
    int *waiting = PyMem_Malloc((size_t)(graph->count + 1) * sizeof(int));
    int *ready = PyMem_Malloc((size_t)(graph->count + 1) * sizeof(int));
    Item *freed = PyMem_Malloc((size_t)(graph->count + 1) * sizeof(Item));
    int done = 0, count = 0;
    if (waiting == NULL || ready == NULL || freed == NULL) {
        PyErr_NoMemory();
        done = -1;
    }
    for (int i = 0; done == 0 && i < graph->count; i++) {
        waiting[i] = graph->waiting[i];
        if (!waiting[i]) {
            ready[count++] = i;
        }
    }
    while (done >= 0 && count > 0) {
        int unit = ready[--count];
        order[done++] = unit;
        int fresh = 0;
        for (int j = graph->first_reader[unit]; j < graph->first_reader[unit + 1]; j++) {
            int reader = graph->reader[j];
            if (!--waiting[reader]) {
                freed[fresh] = (Item){height == NULL ? 0 : -height[reader], fresh, reader};
                fresh++;
            }
        }
        if (fresh > 1 && height != NULL) {
            qsort(freed, (size_t)fresh, sizeof(Item), compare_items);
        }
        for (int j = 0; j < fresh; j++) {
            ready[count++] = freed[j].value;
        }
    }
    PyMem_Free(waiting);
    PyMem_Free(ready);
    PyMem_Free(freed);
    return done;
}

/* In the order of their ids, short branches as soon as they become possible. */
static int
first_first(const Graph *graph, const int *height, int *order, int most)
{
    int *waiting = PyMem_Malloc((size_t)(graph->count + 1) * sizeof(int));
    int *branch = PyMem_Malloc((size_t)(graph->count + 1) * sizeof(int));
    Heap ready = {0};
    int done = 0, branches = 0;
    if (waiting == NULL || branch == NULL) {
        PyErr_NoMemory();
        done = -1;
    }
    for (int i = 0; done == 0 && i < graph->count; i++) {
        waiting[i] = graph->waiting[i];
        if (!waiting[i] && heap_push(&ready, -i, 0, i) < 0) {
            done = -1;
        }
    }
    while (done >= 0 && (branches || ready.count)) {
        int unit = branches ? branch[--branches] : heap_pop(&ready);
        order[done++] = unit;
        for (int j = graph->first_reader[unit]; done >= 0 && j < graph->first_reader[unit + 1]; j++) {
            int reader = graph->reader[j];
            if (--waiting[reader]) {
                continue;
            }
            if (height[reader] <= most) {
                branch[branches++] = reader;
            }
            else if (heap_push(&ready, -reader, 0, reader) < 0) {
                done = -1;
            }
        }
    }
    PyMem_Free(waiting);
    PyMem_Free(branch);
    PyMem_Free(ready.items);
    return done;
}

static void
numbers_of(const int *units, int *places, int count)
{
    for (int i = 0; i < count; i++) {
        places[i] = units[places[i]];
    }
}

static int
youngest_first(const TableObject *self, int *units, int count)
{
    Item *items = PyMem_Malloc((size_t)(count + 1) * sizeof(Item));
    if (items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < count; i++) {
        items[i] = (Item){-self->units[units[i]].key, i, units[i]};
    }
    qsort(items, (size_t)count, sizeof(Item), compare_items);
    for (int i = 0; i < count; i++) {
        units[i] = items[i].value;
    }
    PyMem_Free(items);
    return 0;
}

/* Put units, whose places nobody needs any more, into an order in which they can run. Returns 0, or -1 for an error. */
static int
put_in_order(TableObject *self, int *units, int count, int as_recorded)
{
    if (count < 2) {
        return 0;
    }
    Graph graph;
    if (youngest_first(self, units, count) < 0) {
        return -1;
    }
    place_units(self, units, count);
    if (graph_build(&graph, self, units, count) < 0) {
        return -1;
    }
    int *order = PyMem_Malloc((size_t)count * sizeof(int)), *height = PyMem_Calloc((size_t)count, sizeof(int));
    int done = -1;
    if (order == NULL || height == NULL) {
        PyErr_NoMemory();
    }
    else if ((done = last_first(&graph, NULL, order)) >= 0) {
        for (int i = done - 1; i >= 0; i--) {
            int unit = order[i];
            for (int j = graph.first_reader[unit]; j < graph.first_reader[unit + 1]; j++) {
                int above = height[graph.reader[j]];
                height[unit] = above > height[unit] ? above : height[unit];
            }
            height[unit]++;
        }
        done = as_recorded ? first_first(&graph, height, order, self->branch) : last_first(&graph, height, order);
    }
    graph_release(&graph);
    PyMem_Free(height);
    if (done >= 0 && done < count) {
        PyErr_SetString(PyExc_ValueError, "units read each other");
        done = -1;
    }
    if (done >= 0) {
        numbers_of(units, order, count);
        memcpy(units, order, (size_t)count * sizeof(int));
    }
    PyMem_Free(order);
    return done < 0 ? -1 : 0;
}

/* Note of each unit of an order, by place, of how many units it is made, itself included; if it is not small, of one too many. */
static void
measure_branches(const TableObject *self, const int *units, int count, int *size)
{
    for (int i = 0; i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        size[i] = unit->flags & IS_LARGE ? self->branch + 1 : 1;
        for (int j = 0; j < unit->reads && size[i] <= self->branch; j++) {
            int source = place_of_maker(self, FIRST_READ(self, unit)[j]), is_new = source >= 0 && source != i;
            for (int k = 0; is_new && k < j; k++) {
                is_new = place_of_maker(self, FIRST_READ(self, unit)[k]) != source;
            }
            size[i] += is_new ? size[source] : 0;
        }
        size[i] = size[i] > self->branch ? self->branch + 1 : size[i];
    }
}

/* An order that is being made: of places, by place whether they are in it, and what waits to be put there. */
typedef struct {
    const TableObject *table;
    const int *units, *size;
    char *is_there;
    int *order, count;
    int *stack;
    Py_ssize_t depth, room;
} Arranged;

static int
wait_for(Arranged *all, int place)
{
    if (grow((void **)&all->stack, &all->room, all->depth + 1, sizeof(int)) < 0) {
        return -1;
    }
    all->stack[all->depth++] = place;
    return 0;
}

/* Append what waits and is small, after what it is made from. Of what one is made from, the larger branch comes first:
   while it runs, the smaller one is not there yet. */
static int
arrange_waiting(Arranged *all)
{
    const TableObject *self = all->table;
    while (all->depth) {
        int place = all->stack[all->depth - 1];
        if (all->is_there[place] || all->size[place] > self->branch) {
            all->depth--;
            continue;
        }
        const Unit *unit = &self->units[all->units[place]];
        Py_ssize_t first = all->depth;
        for (int j = 0; j < unit->reads; j++) {
            int source = place_of_maker(self, FIRST_READ(self, unit)[j]);
            if (source < 0 || source == place || all->is_there[source]) {
                continue;
            }
            if (wait_for(all, source) < 0) {
                return -1;
            }
            Py_ssize_t at = all->depth - 1;
            for (; at > first && all->size[all->stack[at - 1]] > all->size[source]; at--) {
                all->stack[at] = all->stack[at - 1];
            }
            all->stack[at] = source;
        }
        if (all->depth == first) {
            all->depth--;
            all->is_there[place] = 1;
            all->order[all->count++] = place;
        }
    }
    return 0;
}

/* Move small branches to just before what reads them. Those that single steps of chains read are left out: they are
   computed when the step comes. Returns how many units are left, -1 is an error. */
static int
just_in_time(TableObject *self, int *units, int count)
{
    place_units(self, units, count);
    size_t room = (size_t)count + 1;
    int *size = PyMem_Malloc(room * sizeof(int));
    char *late = PyMem_Calloc(room, 1);
    Arranged all = {self, units, size, PyMem_Calloc(room, 1), PyMem_Malloc(room * sizeof(int)), 0, NULL, 0, 0};
    int failed = size == NULL || late == NULL || all.is_there == NULL || all.order == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    else {
        measure_branches(self, units, count, size);
    }
    for (int i = 0; !failed && i < count; i++) {
        if (size[i] <= self->branch) {
            continue;
        }
        const Unit *unit = &self->units[units[i]];
        const int *reads = FIRST_READ(self, unit);
        int fixed = unit->flags & IS_STEPWISE && unit->fixed < unit->reads ? unit->fixed : unit->reads;
        for (int j = fixed; j < unit->reads; j++) {
            int source = place_of_maker(self, reads[j]);
            if (source >= 0) {
                late[source] = 1;
            }
        }
        for (int j = fixed - 1; !failed && j >= 0; j--) {
            int source = place_of_maker(self, reads[j]);
            failed = source >= 0 && source != i && wait_for(&all, source) < 0;
        }
        failed = failed || arrange_waiting(&all) < 0;
        if (!failed && !all.is_there[i]) {
            all.is_there[i] = 1;
            all.order[all.count++] = i;
        }
    }
    for (int i = count - 1; !failed && i >= 0; i--) { /* what only late ones read is late */
        const Unit *unit = &self->units[units[i]];
        for (int j = 0; late[i] && size[i] <= self->branch && j < unit->reads; j++) {
            int source = place_of_maker(self, FIRST_READ(self, unit)[j]);
            if (source >= 0) {
                late[source] = 1;
            }
        }
    }
    for (int i = 0; !failed && i < count; i++) {
        failed = !late[i] && (wait_for(&all, i) < 0 || arrange_waiting(&all) < 0);
    }
    if (!failed) {
        numbers_of(units, all.order, all.count);
        leave_units(self, units, count);
        memcpy(units, all.order, (size_t)all.count * sizeof(int));
    }
    PyMem_Free(size);
    PyMem_Free(late);
    PyMem_Free(all.is_there);
    PyMem_Free(all.order);
    PyMem_Free(all.stack);
    return failed ? -1 : all.count;
}

/* In the order in which they become possible, where nothing waits for a small branch: the zeros that are to be added to
   would come last of all, and what is added to them after that. */
static int
put_as_possible(TableObject *self, int *units, int count)
{
    if (put_in_order(self, units, count, 0) < 0) {
        return -1;
    }
    place_units(self, units, count);
    size_t room = (size_t)count + 1;
    int *size = PyMem_Malloc(room * sizeof(int)), *rest = PyMem_Malloc(room * sizeof(int));
    int few = 0, many = 0, failed = size == NULL || rest == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    else {
        measure_branches(self, units, count, size);
        for (int i = 0; i < count; i++) {
            if (size[i] <= self->branch) {
                self->units[units[i]].place = -1;
                units[few++] = units[i];
            }
            else {
                rest[many++] = units[i];
            }
        }
        failed = put_in_order(self, rest, many, 0) < 0;
        memcpy(units + few, rest, (size_t)many * sizeof(int));
    }
    PyMem_Free(size);
    PyMem_Free(rest);
    return failed ? -1 : 0;
}

/* --- what values take --- */

static void
count_reads(TableObject *self, const int *units, int count)
{
    for (int i = 0; i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        for (int j = 0; j < unit->reads; j++) {
            self->nodes[FIRST_READ(self, unit)[j]].left++;
        }
    }
}

/* Forget all that was noted of nodes and buffers while units were looked at. */
static void
forget(TableObject *self, const int *units, int count)
{
    for (int i = 0; i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        for (int j = 0; j < unit->reads + unit->makes; j++) {
            Made *node = &self->nodes[FIRST_READ(self, unit)[j]];
            node->left = node->head = node->is_live = node->is_wanted = 0;
            for (int k = 0; k < node->buffers; k++) {
                Buffer *buffer = &self->buffers[self->links[node->first + k]];
                buffer->users = buffer->keepers = 0;
                buffer->gone = -1;
            }
        }
    }
}

static long long
bytes_of(const TableObject *self, const Made *node)
{
    long long total = 0;
    for (int k = 0; k < node->buffers; k++) {
        total += self->buffers[self->links[node->first + k]].size;
    }
    return total;
}

/* Count the memory of a node; return how many bytes that nobody had are taken. */
static long long
take(TableObject *self, const Made *node, size_t who)
{
    long long taken = 0;
    for (int k = 0; k < node->buffers; k++) {
        Buffer *buffer = &self->buffers[self->links[node->first + k]];
        int *users = (int *)((char *)buffer + who);
        taken += (*users)++ ? 0 : buffer->size;
    }
    return taken;
}

/* Note that nobody needs a node; return how many bytes are free. */
static long long
give(TableObject *self, const Made *node, size_t who)
{
    long long given = 0;
    for (int k = 0; k < node->buffers; k++) {
        Buffer *buffer = &self->buffers[self->links[node->first + k]];
        int *users = (int *)((char *)buffer + who);
        if (buffer->gone != (int)(node - self->nodes)) {
            given += --(*users) ? 0 : buffer->size;
        }
    }
    return given;
}

#define USERS offsetof(Buffer, users)
#define KEEPERS offsetof(Buffer, keepers)

static int
is_alone(const TableObject *self, const Made *node)
{
    for (int k = 0; k < node->buffers; k++) {
        if (self->buffers[self->links[node->first + k]].users != 1) {
            return 0;
        }
    }
    return node->is_live;
}

/* --- what frees more than it takes runs as soon as it can --- */

/* The bytes that are free when a unit has run, less those that it takes; 0 if that is nothing. */
static long long
gain_of(const TableObject *self, const Unit *unit)
{
    if (unit->flags & IS_VIEW) {
        return 1;
    }
    long long freed = -unit->workspace;
    for (int j = 0; j < unit->reads; j++) {
        int read = FIRST_READ(self, unit)[j];
        freed += self->nodes[read].left == 1 && place_of_maker(self, read) >= 0 ? bytes_of(self, &self->nodes[read]) : 0;
    }
    return freed > 0 ? freed : 0;
}

typedef struct {
    int reader, next;
} Entry;

/* Put units into the order in which they were recorded, but what frees more than it takes as soon as it can: what chains
   stack up is multiplied before the next chain begins, say, whatever reads the products. */
static int
put_as_freeing(TableObject *self, int *units, int count)
{
    Graph graph;
    place_units(self, units, count);
    if (graph_build(&graph, self, units, count) < 0) {
        return -1;
    }
    Py_ssize_t edges = 0;
    for (int i = 0; i < count; i++) {
        edges += self->units[units[i]].reads;
    }
    count_reads(self, units, count);
    int *order = PyMem_Malloc((size_t)(count + 1) * sizeof(int));
    char *is_done = PyMem_Calloc((size_t)count + 1, 1);
    Entry *entries = PyMem_Malloc((size_t)(edges + 1) * sizeof(Entry));
    Heap ready = {0};
    int done = 0, entry = 0;
    if (order == NULL || is_done == NULL || entries == NULL) {
        PyErr_NoMemory();
        done = -1;
    }
    for (int i = 0; done == 0 && i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        for (int j = 0; j < unit->reads; j++) { /* 0 ends a list */
            Made *node = &self->nodes[FIRST_READ(self, unit)[j]];
            entries[++entry - 1] = (Entry){i, node->head};
            node->head = entry;
        }
    }
#define READY(place) \
    heap_push(&ready, -gain_of(self, &self->units[units[place]]), self->units[units[place]].key, place)
    for (int i = 0; done == 0 && i < count; i++) {
        if (!graph.waiting[i] && READY(i) < 0) {
            done = -1;
        }
    }
    while (done >= 0 && ready.count) {
        int place = heap_pop(&ready);
        if (is_done[place]) {
            continue;
        }
        is_done[place] = 1;
        order[done++] = place;
        const Unit *unit = &self->units[units[place]];
        for (int j = 0; done >= 0 && j < unit->reads; j++) {
            Made *node = &self->nodes[FIRST_READ(self, unit)[j]];
            if (--node->left != 1) {
                continue;
            }
            for (int e = node->head; done >= 0 && e; e = entries[e - 1].next) { /* the last one that reads it frees it */
                int reader = entries[e - 1].reader;
                if (!is_done[reader] && !graph.waiting[reader] && READY(reader) < 0) {
                    done = -1;
                }
            }
        }
        for (int j = graph.first_reader[place]; done >= 0 && j < graph.first_reader[place + 1]; j++) {
            int reader = graph.reader[j];
            if (!--graph.waiting[reader] && READY(reader) < 0) {
                done = -1;
            }
        }
    }
#undef READY
    graph_release(&graph);
    forget(self, units, count);
    if (done >= 0 && done < count) {
        PyErr_SetString(PyExc_ValueError, "units read each other");
        done = -1;
    }
    if (done >= 0) {
        numbers_of(units, order, count);
        memcpy(units, order, (size_t)count * sizeof(int));
    }
    PyMem_Free(order);
    PyMem_Free(is_done);
    PyMem_Free(entries);
    PyMem_Free(ready.items);
    return done < 0 ? -1 : 0;
}

PyDoc_STRVAR(table_arrange_doc,
"arrange(units, how, /)\n--\n\n"
"Return some units in an order in which they can run.\n\n"
"0 is as they were recorded, with small branches just before what reads them, 1 as they become possible, likewise, 2 as\n"
"they become possible, and 3 as they were recorded but what frees more than it takes as soon as it can. Small branches\n"
"that only single steps of a unit read are left out but in 2.");

static PyObject *
table_arrange(TableObject *self, PyObject *args)
{
    PyObject *given;
    int how, count;
    if (!PyArg_ParseTuple(args, "Oi:arrange", &given, &how)) {
        return NULL;
    }
    int *units = enter_units(self, given, &count);
    if (units == NULL) {
        return NULL;
    }
    int failed = how == AS_FREEING    ? put_as_freeing(self, units, count)
                 : how == AS_POSSIBLE ? put_as_possible(self, units, count)
                                      : put_in_order(self, units, count, how == AS_RECORDED);
    int left = failed < 0 ? -1 : how == ORDERED ? count : just_in_time(self, units, count);
    if (left < 0) { /* places are wrong, and may be of units that are no longer in the array */
        for (Py_ssize_t i = 0; i < self->unit_count; i++) {
            self->units[i].place = -1;
        }
    }
    else {
        leave_units(self, units, left);
    }
    PyObject *found = left < 0 ? NULL : PyList_New(left);
    for (int i = 0; found != NULL && i < left; i++) {
        PyObject *number = PyLong_FromLong(units[i]);
        if (number == NULL) {
            Py_CLEAR(found);
        }
        else {
            PyList_SET_ITEM(found, i, number);
        }
    }
    PyMem_Free(units);
    return found;
}

/* --- what units hold while they run --- */

static inline void
raise_to(long long *most, long long value)
{
    *most = value > *most ? value : *most;
}

/* Note that a unit is through with what it reads from a position on. */
static long long
give_read(TableObject *self, const Unit *unit, int from, int end, size_t who)
{
    long long given = 0;
    for (int j = from; j < end; j++) {
        Made *node = &self->nodes[FIRST_READ(self, unit)[j]];
        if (!--node->left && !node->is_wanted && node->is_live) {
            given += give(self, node, who);
            node->is_live = 0;
        }
    }
    return given;
}

PyDoc_STRVAR(table_widths_doc,
"widths(units, wanted, /)\n--\n\n"
"Return the most bytes that units hold which run in some order: while one waits for others, and while one runs.\n\n"
"Nodes that are ``wanted`` stay to the end.");

static PyObject *
table_widths(TableObject *self, PyObject *args)
{
    PyObject *given, *wanted;
    int count;
    if (!PyArg_ParseTuple(args, "OO:widths", &given, &wanted)) {
        return NULL;
    }
    Py_ssize_t links = self->link_count;
    int stay = append_links(self, wanted, self->node_count);
    self->link_count = links;
    int *units = stay < 0 ? NULL : enter_units(self, given, &count);
    if (units == NULL) {
        return NULL;
    }
    for (int i = 0; i < stay; i++) {
        self->nodes[self->links[links + i]].is_wanted = 1;
    }
    count_reads(self, units, count);
    long long held = 0, waiting = 0, busiest = 0;
    for (int i = 0; i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        const int *reads = FIRST_READ(self, unit);
        raise_to(&busiest, held + unit->stacked);
        held -= give_read(self, unit, 0, unit->begun, USERS); /* from then on they belong to the chain */
        for (int j = 0; j < unit->reads; j++) {
            if (self->nodes[reads[j]].has_inputs && place_of_maker(self, reads[j]) < 0) {
                raise_to(&waiting, held + unit->stacked);
                break;
            }
        }
        Made *spare = unit->spare < 0 ? NULL : &self->nodes[unit->spare];
        if (spare != NULL && spare->left == 1 && !spare->is_wanted && is_alone(self, spare)) {
            raise_to(&busiest, held);
            held -= give(self, spare, USERS); /* it is where the result is written */
            spare->is_live = 0;
        }
        else {
            raise_to(&busiest, held + unit->stacked + unit->workspace);
        }
        for (int j = 0; j < unit->makes; j++) {
            Made *node = &self->nodes[FIRST_MADE(self, unit)[j]];
            if ((node->is_wanted || node->left) && !node->is_live) {
                node->is_live = 1;
                held += take(self, node, USERS);
            }
        }
        raise_to(&busiest, held);
        held -= give_read(self, unit, unit->begun, unit->reads, USERS);
        if (unit->taken >= 0 && self->nodes[reads[0]].is_live) { /* it is no longer in its chain */
            Buffer *buffer = &self->buffers[unit->taken];
            if (buffer->gone != reads[0]) {
                held -= --buffer->users ? 0 : buffer->size;
                buffer->gone = reads[0];
            }
        }
    }
    for (int i = 0; i < stay; i++) {
        self->nodes[self->links[links + i]].is_wanted = 0;
    }
    forget(self, units, count);
    leave_units(self, units, count);
    PyMem_Free(units);
    return Py_BuildValue("LL", waiting, busiest);
}

/* Whether somebody above reads a node, by how often each node is read, by id; -1 is an error. */
static int
is_read(PyObject *uses, const Made *node)
{
    PyObject *count = PyDict_GetItemWithError(uses, node->id);
    return count == NULL ? (PyErr_Occurred() ? -1 : 0) : PyObject_IsTrue(count);
}

/* Append a number to a list. */
static int
append_number(PyObject *list, long long number)
{
    PyObject *object = PyLong_FromLongLong(number);
    int failed = object == NULL || PyList_Append(list, object) < 0;
    Py_XDECREF(object);
    return failed ? -1 : 0;
}

PyDoc_STRVAR(table_need_doc,
"need(units, uses, /)\n--\n\n"
"Return what units take that run in some order for others, given how often these read each node, by id.\n\n"
"That is the most bytes while one runs; the same if all that others read is kept; the bytes that are held after each\n"
"unit; and those of it that others read.");

static PyObject *
table_need(TableObject *self, PyObject *args)
{
    PyObject *given, *uses;
    int count;
    if (!PyArg_ParseTuple(args, "OO!:need", &given, &PyDict_Type, &uses)) {
        return NULL;
    }
    int *units = enter_units(self, given, &count);
    if (units == NULL) {
        return NULL;
    }
    leave_units(self, units, count);
    PyObject *widths = PyList_New(0), *tapes = PyList_New(0);
    int failed = widths == NULL || tapes == NULL;
    count_reads(self, units, count);
    long long held = 0, kept = 0, running = 0, whole = 0;
    for (int i = 0; !failed && i < count; i++) {
        const Unit *unit = &self->units[units[i]];
        /* While it runs, what it reads is there too. What it gives is part of what it takes. */
        raise_to(&running, held + unit->workspace);
        raise_to(&whole, kept + unit->workspace);
        long long taped = 0, beside = 0;
        for (int j = 0; j < unit->makes; j++) {
            Made *node = &self->nodes[FIRST_MADE(self, unit)[j]];
            if (node->left && !node->is_live) {
                node->is_live = 1;
                held += take(self, node, USERS);
                kept += take(self, node, KEEPERS);
            }
        }
        for (int j = 0; !failed && j < unit->makes; j++) {
            Made *node = &self->nodes[FIRST_MADE(self, unit)[j]];
            int is_taped = is_read(uses, node);
            failed = is_taped < 0;
            if (is_taped > 0) {
                taped += bytes_of(self, node);
                beside += take(self, node, USERS);
                kept += take(self, node, KEEPERS);
            }
            node->is_wanted = is_taped > 0;
        }
        raise_to(&running, held + beside);
        raise_to(&whole, kept);
        for (int j = 0; j < unit->makes; j++) {
            Made *node = &self->nodes[FIRST_MADE(self, unit)[j]];
            if (node->is_wanted) {
                give(self, node, USERS);
                node->is_wanted = 0;
            }
        }
        for (int j = 0; j < unit->reads; j++) {
            Made *node = &self->nodes[FIRST_READ(self, unit)[j]];
            if (!--node->left && node->is_live) {
                held -= give(self, node, USERS);
                kept -= give(self, node, KEEPERS);
                node->is_live = 0;
            }
        }
        failed = failed || append_number(widths, held) < 0 || append_number(tapes, taped) < 0;
    }
    forget(self, units, count);
    PyMem_Free(units);
    PyObject *found = failed ? NULL : Py_BuildValue("LLOO", running, whole, widths, tapes);
    Py_XDECREF(widths);
    Py_XDECREF(tapes);
    return found;
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
