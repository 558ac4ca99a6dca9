/* The values that a replay keeps to itself. */

#ifndef UNSPOOL_REPLAYING_H
#define UNSPOOL_REPLAYING_H

#include "evaluation.h"

typedef struct {
    PyObject_HEAD
    PyObject *value;   /* or NULL, if it is still to come */
    PyObject *buffers; /* a tuple of ((id, output), bytes) */
    Py_ssize_t reasons;
} EntryObject;

typedef struct {
    PyObject_HEAD
    PyObject *entries; /* by the ids of nodes */
    PyObject *users;   /* how many values are in each buffer */
    long long nbytes;
} ValuesObject;

EntryObject *find_entry(const ValuesObject *self, PyObject *key);
EntryObject *need_entry(const ValuesObject *self, PyObject *key);
int put_value(ValuesObject *self, EntryObject *entry, PyObject *value, PyObject *buffers);
int drop_reason(ValuesObject *self, PyObject *key);
PyObject *value_of(const ValuesObject *self, NodeObject *node);

#endif
