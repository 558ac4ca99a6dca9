/* Where in the user's program a node is made. */

#include "core.h"

typedef struct {
    PyObject_HEAD
    PyObject *code;
    int lasti;
} OriginObject;

static PyMemberDef origin_members[] = {
    {"code", T_OBJECT, offsetof(OriginObject, code), 0, NULL},
    {"lasti", T_INT, offsetof(OriginObject, lasti), 0, NULL},
    {NULL},
};

static void
origin_dealloc(OriginObject *self)
{
    Py_XDECREF(self->code);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyDoc_STRVAR(origin_doc, "The source position that new nodes inherit; no position: the user's current line.");

PyTypeObject OriginType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.Origin",
    .tp_doc = origin_doc,
    .tp_basicsize = sizeof(OriginObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)origin_dealloc,
    .tp_members = origin_members,
};

/* Make a source position that is none yet. */
PyObject *
make_origin(void)
{
    return PyObject_CallNoArgs((PyObject *)&OriginType);
}

void
place_origin(PyObject *origin, PyObject *code, int lasti)
{
    Py_XSETREF(((OriginObject *)origin)->code, Py_NewRef(code));
    ((OriginObject *)origin)->lasti = lasti;
}

/* The code of the user's that recorded last, most often the one that records now, and where it was found to be that. */
static PyObject *users_code, *known_from;

/* Return whether a source file belongs to unspool: 1 or 0; -1 with an exception. */
static int
is_one_of_ours(PyObject *filename)
{
    PyObject *known = PyDict_GetItemWithError(is_internal, filename);
    if (known != NULL) {
        return known == Py_True;
    }
    if (PyErr_Occurred() || (known = PyObject_GetItem(is_internal, filename)) == NULL) {
        return -1;
    }
    int found = known == Py_True;
    Py_DECREF(known);
    return found;
}

/* Find the position that a new node gets: the one it inherits, or the user's current line. Returns a new reference to
   the code object. */
PyObject *
find_origin(int *lasti)
{
    PyObject *given_origin = NULL;
    if (PyContextVar_Get(origin_var, NULL, &given_origin) < 0) {
        return NULL;
    }
    if (given_origin != NULL) {
        if (Py_IS_TYPE(given_origin, &OriginType)) {
            OriginObject *origin = (OriginObject *)given_origin;
            if (origin->code != NULL && origin->code != Py_None) {
                PyObject *code = Py_NewRef(origin->code);
                *lasti = origin->lasti;
                Py_DECREF(given_origin);
                return code;
            }
        }
        Py_DECREF(given_origin);
    }
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    PyObject *code = NULL;
    *lasti = 0;
    while (frame != NULL) {
        Py_XSETREF(code, (PyObject *)PyFrame_GetCode(frame));
        int is_users = code == users_code && is_internal == known_from;
        int internal = is_users ? 0 : is_one_of_ours(((PyCodeObject *)code)->co_filename);
        if (internal < 0) {
            Py_DECREF(frame);
            Py_DECREF(code);
            return NULL;
        }
        if (!internal) {
            *lasti = PyFrame_GetLasti(frame);
            Py_DECREF(frame);
            if (!is_users) {
                known_from = is_internal;
                Py_XSETREF(users_code, Py_NewRef(code)); /* its address must not become that of another one */
            }
            return code;
        }
        PyFrameObject *back = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = back;
    }
    if (code == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a node was made where no Python code runs");
    }
    return code;
}

/* Lines that were looked up; a place in the user's program has its own slot among so many, a power of two. */
#define MOST_LINES 256

static struct {
    PyObject *code;
    int lasti, line;
} lines[MOST_LINES];

/* Return the number of the line of a position; 0 if the code has no such thing. Python looks it up from the beginning of
   the function, so it is remembered. */
int
find_line(PyObject *code, int lasti)
{
    if (code == NULL || !PyCode_Check(code)) {
        return 0;
    }
    size_t slot = (((size_t)code >> 5) + (size_t)lasti / 2) & (MOST_LINES - 1);
    if (lines[slot].code != code || lines[slot].lasti != lasti) {
        int line = PyCode_Addr2Line((PyCodeObject *)code, lasti);
        PyObject *before = lines[slot].code;
        lines[slot].code = Py_NewRef(code); /* its address must not become that of another one */
        lines[slot].lasti = lasti;
        lines[slot].line = line < 0 ? 0 : line;
        Py_XDECREF(before); /* may run anything: the slot is not looked at again */
        return line < 0 ? 0 : line;
    }
    return lines[slot].line;
}

PyDoc_STRVAR(current_origin_doc, "Return the source position that a new node would get: the code object, and the offset.");

static PyObject *
current_origin(PyObject *module, PyObject *unused)
{
    int lasti;
    PyObject *code = find_origin(&lasti);
    return code == NULL ? NULL : Py_BuildValue("(Ni)", code, lasti);
}

PyMethodDef origin_methods[] = {
    {"current_origin", current_origin, METH_NOARGS, current_origin_doc},
    {NULL},
};
