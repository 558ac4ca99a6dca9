/* The units of a replay as numbers: what describes them, and what files that work with them share. */

#ifndef UNSPOOL_UNITS_H
#define UNSPOOL_UNITS_H

#include "evaluation.h"

enum { IS_VIEW = 1, IS_LARGE = 2, IS_STEPWISE = 4 };

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

#define FIRST_READ(self, unit) ((self)->links + (unit)->first)
#define FIRST_MADE(self, unit) ((self)->links + (unit)->first + (unit)->reads)

/* The place of what makes a node; -1 if that is not among the units that are looked at. */
static inline int
place_of_maker(const TableObject *self, int node)
{
    return self->units[self->nodes[node].maker].place;
}

/* --- describing them (units.c) --- */

int grow_array(void **array, Py_ssize_t *room, Py_ssize_t wanted, size_t size);
int append_links(TableObject *self, PyObject *given, Py_ssize_t limit);
int add_buffer(TableObject *self, long long size);
int add_unit(TableObject *self);
int add_node(TableObject *self, PyObject *id, int maker, int has_inputs, const int *buffers, int count);
int set_unit(TableObject *self, int number, const Unit *unit, const int *numbers);
int *enter_units(TableObject *self, PyObject *given, int *count);
void leave_units(TableObject *self, const int *units, int count);
void place_units(TableObject *self, const int *units, int count);

/* --- describing calls (describing.c) --- */

extern const char table_numbers_doc[], table_node_numbers_doc[];

PyObject *table_numbers(TableObject *self, PyObject *args);
PyObject *table_node_numbers(TableObject *self, PyObject *args);

/* --- in which order they can run (arranging.c) --- */

extern const char table_arrange_doc[];

PyObject *table_arrange(TableObject *self, PyObject *args);

/* --- what they hold while they do (occupancy.c) --- */

/* Whose count of a buffer is meant. */
#define USERS offsetof(Buffer, users)
#define KEEPERS offsetof(Buffer, keepers)

extern const char table_widths_doc[], table_need_doc[];

void count_reads(TableObject *self, const int *units, int count);
void forget(TableObject *self, const int *units, int count);
long long bytes_of(const TableObject *self, const Made *node);
long long take(TableObject *self, const Made *node, size_t who);
long long give(TableObject *self, const Made *node, size_t who);
int is_alone(const TableObject *self, const Made *node);
PyObject *table_widths(TableObject *self, PyObject *args);
PyObject *table_need(TableObject *self, PyObject *args);

#endif
