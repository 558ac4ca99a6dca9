/* What is held of the steps that were evaluated: the memory of arrays, values of nodes, what steps keep for derivatives.

   Records refer to nodes, calls and pieces weakly. Which of it is evicted, and when, `unspool._engine.memory.ledger`
   and `timeline` decide. */

#ifndef UNSPOOL_HOLDING_H
#define UNSPOOL_HOLDING_H

#include "evaluation.h"

/* --- memory --- */

/* Some memory, by the array that owns it. */
typedef struct {
    PyObject *owner;
    long long nbytes;
} Memory;

typedef struct {
    Memory *item, few[16];
    Py_ssize_t count, room;
} Memories;

/* Weak references to what owns memory, which tell later how much of it was freed. An owner of another class than
   NumPy's does not count. */
typedef struct {
    PyObject **reference;
    long long *nbytes;
    Py_ssize_t count;
} Watch;

void memories_begin(Memories *all);
void memories_end(Memories *all);
int memories_has(const Memories *all, const PyObject *owner);
int bytes_of_array(PyObject *array, long long *nbytes);
PyObject *owner_of(PyObject *array);
int memories_add(Memories *all, PyObject *array);
int memories_add_tuple(Memories *all, PyObject *values);
int enter_memory(PyObject *found, PyObject *array);
int enter_memories(PyObject *found, const Memories *all);
int watch_begin(Watch *watch, const Memories *all);
long long watch_end(Watch *watch);

/* --- nodes that are referred to weakly (memories.c) --- */

PyObject *alive(PyObject *reference);
NodeObject *with_value(PyObject *reference);
int is_marked(NodeObject *node, PyObject *keep);

/* --- values (held.c) --- */

int note_reading(PyObject *held, PyObject *operands, Py_ssize_t now, Py_ssize_t times);
PyObject *live_entries(PyObject *module, PyObject *held);

extern PyMethodDef held_functions[], waiting_functions[];

int memories_start(void);
int slabs_start(void);
int waiting_start(void);

#endif
