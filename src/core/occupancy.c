/* What the units of a replay hold while they run. */

#include "units.h"

/* --- what values take --- */

void
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
void
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

long long
bytes_of(const TableObject *self, const Made *node)
{
    long long total = 0;
    for (int k = 0; k < node->buffers; k++) {
        total += self->buffers[self->links[node->first + k]].size;
    }
    return total;
}

/* Count the memory of a node; return how many bytes that nobody had are taken. */
long long
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
long long
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


int
is_alone(const TableObject *self, const Made *node)
{
    for (int k = 0; k < node->buffers; k++) {
        if (self->buffers[self->links[node->first + k]].users != 1) {
            return 0;
        }
    }
    return node->is_live;
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

const char table_widths_doc[] =
"widths(units, wanted, /)\n--\n\n"
"Return the most bytes that units hold which run in some order: while one waits for others, and while one runs.\n\n"
"Nodes that are ``wanted`` stay to the end.";

PyObject *
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

const char table_need_doc[] =
"need(units, uses, /)\n--\n\n"
"Return what units take that run in some order for others, given how often these read each node, by id.\n\n"
"That is the most bytes while one runs; the same if all that others read is kept; the bytes that are held after each\n"
"unit; and those of it that others read.";

PyObject *
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
