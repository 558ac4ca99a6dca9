/* What of a ledger every step looks at: what is noted, the peak, what has arrived. Python's class decides. */

#include "evaluation.h"

#include <time.h>

/* Samples of a timeline; when there are more, every other one is dropped. */
enum { MOST_SAMPLES = 1 << 13 };

static PyObject *every_other;

static int
add_sample(PyObject *timeline, long long nbytes)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    PyObject *sample = Py_BuildValue("dL", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, nbytes);
    int failed = sample == NULL || PyList_Append(timeline, sample) < 0 ||
                 (PyList_GET_SIZE(timeline) > MOST_SAMPLES && PyObject_DelItem(timeline, every_other) < 0);
    Py_XDECREF(sample);
    return failed ? -1 : 0;
}

/* Note that so many bytes were in use at once. */
int
note_peak(LedgerObject *ledger, long long nbytes)
{
    ledger->peak = nbytes > ledger->peak ? nbytes : ledger->peak;
    PyObject *timeline = ledger->timeline;
    return timeline == NULL || !PyList_Check(timeline) ? 0 : add_sample(timeline, nbytes);
}

static PyObject *
ledger_note_peak(PyObject *self, PyObject *number)
{
    long long nbytes = PyLong_AsLongLong(number);
    if ((nbytes == -1 && PyErr_Occurred()) || note_peak((LedgerObject *)self, nbytes) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Note a piece that was folded: what it keeps, if that was looked at before, or else the call, which arrives. Returns
   whether that is all there is to do; -1 is an error. */
int
note_folded_step(LedgerObject *ledger, CallObject *call, PyObject *slab)
{
    if (slab == Py_None && !ledger->is_tracking) {
        return 1; /* other calls are found when it matters */
    }
    PyObject *reference = PyWeakref_NewRef((PyObject *)call, NULL);
    int done = reference == NULL ? -1 : 0;
    if (done == 0 && slab != Py_None && ledger->held != NULL && PyDict_Check(ledger->held)) {
        done = move_slab(slab, call, ledger->held) < 0 ? -1 : 1;
        if (done > 0) {
            Py_XSETREF(ledger->newest_call, Py_NewRef(reference));
        }
    }
    else if (done == 0 && slab == Py_None && ledger->arrived != NULL && PyList_Check(ledger->arrived) &&
             PyList_GET_SIZE(ledger->arrived) < ledger->crowd) {
        done = PyList_Append(ledger->arrived, reference) < 0 ? -1 : 1;
    }
    Py_XDECREF(reference);
    return done;
}

PyDoc_STRVAR(note_folded_doc,
"note_folded(call, slab, /)\n--\n\nNote that a piece was folded whose slab was on the line before.");

static PyObject *
ledger_note_folded(PyObject *self, PyObject *args)
{
    PyObject *call, *slab;
    if (!PyArg_ParseTuple(args, "O!O!:note_folded", &CallType, &call, &SlabType, &slab) ||
        note_folded_step((LedgerObject *)self, (CallObject *)call, slab) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMemberDef ledger_members[] = {
    {"noted", T_LONGLONG, offsetof(LedgerObject, noted), 0, NULL},
    {"ceiling", T_LONGLONG, offsetof(LedgerObject, ceiling), 0, NULL},
    {"peak", T_LONGLONG, offsetof(LedgerObject, peak), 0, NULL},
    {"steps", T_LONGLONG, offsetof(LedgerObject, steps), 0, NULL},
    {"kernels", T_LONGLONG, offsetof(LedgerObject, kernels), 0, NULL},
    {"is_strict", T_BOOL, offsetof(LedgerObject, is_strict), 0, NULL},
    {"is_tracking", T_BOOL, offsetof(LedgerObject, is_tracking), 0, NULL},
    {"lock", T_OBJECT, offsetof(LedgerObject, lock), 0, NULL},
    {"timeline", T_OBJECT, offsetof(LedgerObject, timeline), 0, NULL},
    {"arrived", T_OBJECT, offsetof(LedgerObject, arrived), 0, NULL},
    {"crowd", T_PYSSIZET, offsetof(LedgerObject, crowd), 0, NULL},
    {"held", T_OBJECT, offsetof(LedgerObject, held), 0, NULL},
    {"newest_call", T_OBJECT, offsetof(LedgerObject, newest_call), 0, NULL},
    {NULL},
};

static PyMethodDef ledger_methods[] = {
    {"note_peak", ledger_note_peak, METH_O, "note_peak(nbytes, /)\n--\n\nNote that so many bytes were in use at once."},
    {"note_folded", ledger_note_folded, METH_VARARGS, note_folded_doc},
    {NULL},
};

/* Nothing in it refers to nodes but weakly: the collector need not look at it. */
static void
ledger_dealloc(LedgerObject *self)
{
    Py_XDECREF(self->lock);
    Py_XDECREF(self->timeline);
    Py_XDECREF(self->arrived);
    Py_XDECREF(self->held);
    Py_XDECREF(self->newest_call);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject LedgerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.LedgerBase",
    .tp_doc = "What of a ledger is looked at in every step; see `unspool._engine.memory.ledger.Ledger`.",
    .tp_basicsize = sizeof(LedgerObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)ledger_dealloc,
    .tp_members = ledger_members,
    .tp_methods = ledger_methods,
};

/* Make what drops samples; returns -1 if there is no memory for it. */
int
ledger_start(void)
{
    PyObject *first = PyLong_FromLong(1), *step = PyLong_FromLong(2);
    every_other = first == NULL || step == NULL ? NULL : PySlice_New(first, NULL, step);
    Py_XDECREF(first);
    Py_XDECREF(step);
    return every_other == NULL ? -1 : 0;
}
