/* What the records of a derivative sweep look like (steps.c, walks.c), for those that make and read them (notes.c,
   callsweeps.c, terms.c). */

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

/* Of a call that is visited as a whole, the outputs that were met: one, or a tuple. */
static inline Py_ssize_t
met_count(PyObject *met)
{
    return PyTuple_Check(met) ? PyTuple_GET_SIZE(met) : 1;
}

static inline NodeObject *
met_at(PyObject *met, Py_ssize_t i)
{
    return (NodeObject *)(PyTuple_Check(met) ? PyTuple_GET_ITEM(met, i) : met);
}

/* Return what a step reads at one of the positions where it reads another step, and the position. */
static inline PendingObject *
read_at(const StepObject *step, Py_ssize_t i, Py_ssize_t *position)
{
    *position = PyLong_AsSsize_t(PyTuple_GET_ITEM(step->read, i));
    return (PendingObject *)step->inputs[*position];
}

/* Check that an object is a step; that it is a list of steps that are not placed, and not empty, and maybe alike. */
int check_step(PyObject *object);
int check_run(PyObject *run, int alike);

StepObject *make_step(PyObject *plan, Py_ssize_t size, PyObject *read, PyObject *made);
PyObject *make_pending(StepObject *step, PyObject *index);
int keep_pending(PendingObject *pending);

/* How a call of a derived plan is noted (notes.c). What arrives is NULL where nothing does. */
typedef struct NoteObject NoteObject;

int note_step(const NoteObject *note, CallObject *call, PyObject *const *arriving, PyObject *arrived);

#endif
