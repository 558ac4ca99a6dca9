/* How long each instruction takes, for whoever asks; nothing is measured otherwise.

   A program that runs while somebody asks gets a timer for each of its instructions. What an instruction that calls
   back runs inside of it is counted there and not here, so that times add up. Two threads that run one program at the
   same time may lose a few counts. */

#include "native.h"

#include <time.h>

enum { MOST_EVENTS = 1 << 17 };

typedef struct {
    Program *program;
    long long begin, end, steps;
    unsigned long thread;
} Event;

int profile_session = 0;      /* which one is going on; 0 for none */
long long profile_total = 0;  /* nanoseconds that have been counted */

static int sessions = 0;
static PyObject *touched = NULL; /* the programs that ran */
static Event *events = NULL;
static Py_ssize_t recorded = 0, lost = 0;

long long
nanoseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int
profile_enter(Program *program)
{
    if (program->session == profile_session) {
        return 0;
    }
    if (program->timer == NULL) {
        program->timer = PyMem_Calloc(program->instructions + 1, sizeof(Timer));
        if (program->timer == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    memset(program->timer, 0, (program->instructions + 1) * sizeof(Timer));
    program->session = profile_session;
    return PyList_Append(touched, (PyObject *)program);
}

void
profile_leave(Program *program, long long begin, long long steps)
{
    if (events == NULL || recorded == MOST_EVENTS) {
        lost++;
        return;
    }
    events[recorded++] = (Event){program, begin, nanoseconds(), steps, PyThread_get_thread_ident()};
}

PyObject *
profile_start(PyObject *module, PyObject *nothing)
{
    if (profile_session) {
        PyErr_SetString(PyExc_RuntimeError, "a profile is being taken already");
        return NULL;
    }
    events = PyMem_Calloc(MOST_EVENTS, sizeof(Event));
    touched = PyList_New(0);
    if (events == NULL || touched == NULL) {
        PyMem_Free(events);
        events = NULL;
        Py_CLEAR(touched);
        return PyErr_NoMemory();
    }
    recorded = lost = 0;
    profile_total = 0;
    profile_session = ++sessions;
    Py_RETURN_NONE;
}

static PyObject *
times_of(const Program *program)
{
    PyObject *list = PyList_New(program->instructions);
    for (Py_ssize_t i = 0; list != NULL && i < program->instructions; i++) {
        PyObject *pair = Py_BuildValue("LL", program->timer[i].calls, program->timer[i].nanoseconds);
        if (pair == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

/* Returns what is known of each program that ran with its times, the runs, and how many runs were not noted. */
PyObject *
profile_stop(PyObject *module, PyObject *nothing)
{
    if (!profile_session) {
        PyErr_SetString(PyExc_RuntimeError, "no profile is being taken");
        return NULL;
    }
    profile_session = 0;
    PyObject *programs = PyList_New(0), *runs = PyList_New(0), *result = NULL;
    for (Py_ssize_t i = 0; programs != NULL && i < PyList_GET_SIZE(touched); i++) {
        Program *program = (Program *)PyList_GET_ITEM(touched, i);
        PyObject *entry = Py_BuildValue("ON", program->about == NULL ? Py_None : program->about, times_of(program));
        if (entry == NULL || PyList_Append(programs, entry) < 0) {
            Py_XDECREF(entry);
            goto end;
        }
        Py_DECREF(entry);
    }
    for (Py_ssize_t i = 0; runs != NULL && i < recorded; i++) {
        Event *event = &events[i];
        PyObject *about = event->program->about == NULL ? Py_None : event->program->about;
        PyObject *entry = Py_BuildValue("OLLLk", about, event->begin, event->end, event->steps, event->thread);
        if (entry == NULL || PyList_Append(runs, entry) < 0) {
            Py_XDECREF(entry);
            goto end;
        }
        Py_DECREF(entry);
    }
    if (programs != NULL && runs != NULL) {
        result = Py_BuildValue("OOn", programs, runs, lost);
    }
end:
    Py_XDECREF(programs);
    Py_XDECREF(runs);
    Py_CLEAR(touched);
    PyMem_Free(events);
    events = NULL;
    return result;
}

PyObject *
profile_counted(PyObject *module, PyObject *nothing)
{
    return PyLong_FromLongLong(profile_total);
}

PyObject *
profile_count(PyObject *module, PyObject *amount)
{
    long long took = PyLong_AsLongLong(amount);
    if (took == -1 && PyErr_Occurred()) {
        return NULL;
    }
    profile_total += took;
    Py_RETURN_NONE;
}

/* What a look at the clock takes: the least that many of them took. */
PyObject *
profile_look(PyObject *module, PyObject *nothing)
{
    enum { LOOKS = 200, TIMES = 20 };
    long long least = 1LL << 40;
    for (int i = 0; i < TIMES; i++) {
        long long begin = nanoseconds();
        for (int j = 0; j < LOOKS; j++) {
            nanoseconds();
        }
        long long took = nanoseconds() - begin;
        least = took < least ? took : least;
    }
    return PyFloat_FromDouble((double)least / LOOKS);
}
