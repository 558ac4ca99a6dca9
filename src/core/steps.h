/* What the records of a derivative sweep look like (steps.c), for those that make them (notes.c). */

#ifndef UNSPOOL_STEPS_H
#define UNSPOOL_STEPS_H

#include "core.h"

typedef struct StepObject {
    PyObject_VAR_HEAD
    PyObject *plan;
    PyObject *read;
    PyObject *made;
    PyObject *wanted;
    PyObject *placed;
    long long number;
    Py_ssize_t position;
    Py_ssize_t run; /* of those that are about to be placed, the number of its run; -1 outside of that */
    struct StepObject *next; /* of those that are about to be freed */
    PyObject *inputs[1]; /* as many as its size says; NULL once it is placed */
} StepObject;

typedef struct {
    PyObject_HEAD
    StepObject *step;
    PyObject *index;
} PendingObject;

#define is_pending(object) Py_IS_TYPE(object, &PendingType)

StepObject *make_step(PyObject *plan, Py_ssize_t size, PyObject *read, PyObject *made);
PyObject *make_pending(StepObject *step, PyObject *index);
int keep_pending(PendingObject *pending);

#endif
