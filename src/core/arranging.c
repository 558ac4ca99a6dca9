/* In which order the units of a replay can run. */

#include "units.h"

/* What units are put in order by; see `unspool._engine.memory.recomputation`. */
enum { AS_RECORDED, AS_POSSIBLE, ORDERED, AS_FREEING };

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
    if (grow_array((void **)&heap->items, &heap->room, heap->count + 1, sizeof(Item)) < 0) {
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
    if (grow_array((void **)&all->stack, &all->room, all->depth + 1, sizeof(int)) < 0) {
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

const char table_arrange_doc[] =
"arrange(units, how, /)\n--\n\n"
"Return some units in an order in which they can run.\n\n"
"0 is as they were recorded, with small branches just before what reads them, 1 as they become possible, likewise, 2 as\n"
"they become possible, and 3 as they were recorded but what frees more than it takes as soon as it can. Small branches\n"
"that only single steps of a unit read are left out but in 2.";

PyObject *
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
