/* Entries of files, which many values refer to: what is written once and has a number.

   An entry that has a form, such as the body of a step, is written into another file by filling in the numbers that the
   entries in it have there. What nodes and calls of one kind have in common is an entry, too. */

#include "core.h"
#include "encoding.h"
#include "journal.h"

static PyObject *name_form;

static PyObject *filled(EncoderObject *self, PyObject *form);

/* What tells the entry of a value from others, held. */
PyObject *
key_of(PyObject *word, PyObject *value)
{
    PyObject *tell = PyTuple_GET_ITEM(word, WORD_KEY);
    return tell == Py_None ? PyLong_FromVoidPtr(value) : PyObject_CallOneArg(tell, value);
}

/* The number of the entry with these bytes, which is written if there is none. */
PyObject *
entry_of_bytes(EncoderObject *self, PyObject *payload)
{
    PyObject *number = PyDict_GetItemWithError(self->entries, payload);
    if (number != NULL || PyErr_Occurred()) {
        return Py_XNewRef(number);
    }
    number = PyLong_FromSsize_t(PyDict_GET_SIZE(self->entries));
    PyObject *done = NULL;
    if (number != NULL && PyDict_SetItem(self->entries, payload, number) == 0) {
        done = PyObject_CallOneArg(self->write, payload);
    }
    if (done == NULL) {
        Py_CLEAR(number);
    }
    Py_XDECREF(done);
    return number;
}

/* The bytes of an entry that has no form. */
static PyObject *
formless(EncoderObject *self, PyObject *word, PyObject *value)
{
    PyObject *around = self->references, *out = PyByteArray_FromStringAndSize(NULL, 0), *payload = NULL;
    self->references = Py_NewRef(Py_None);
    if (out != NULL && encoded_put_object(self, out, word, value) == 0) {
        payload = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out), PyByteArray_GET_SIZE(out));
    }
    Py_SETREF(self->references, around);
    Py_XDECREF(out);
    return payload;
}

/* The bytes of an entry: of its form if the value has one, else Python writes it and lets the value have one. */
static PyObject *
formed(EncoderObject *self, PyObject *word, PyObject *value)
{
    PyObject *form = PyObject_GetAttr(value, name_form), *payload = NULL;
    if (form == NULL || Py_EnterRecursiveCall(" while an entry is written to a file")) {
        Py_XDECREF(form);
        return NULL;
    }
    if (form == Py_None) {
        payload = PyObject_CallMethod((PyObject *)self, "put_form", "OO", word, value);
    } else {
        payload = filled(self, form);
    }
    Py_LeaveRecursiveCall();
    Py_DECREF(form);
    return payload;
}

/* The number of the entry of a value that was not asked for before. */
static PyObject *
new_entry(EncoderObject *self, PyObject *word, PyObject *key, PyObject *value)
{
    PyObject *payload = is_true(word, WORD_HAS_FORM) ? formed(self, word, value) : formless(self, word, value);
    PyObject *number = payload == NULL ? NULL : entry_of_bytes(self, payload);
    Py_XDECREF(payload);
    /* The key lasts as long as the value is held here too. */
    PyObject *entry = number == NULL ? NULL : PyTuple_Pack(2, number, value);
    if (entry == NULL || PyDict_SetItem(self->known, key, entry) < 0) {
        Py_CLEAR(number);
    }
    Py_XDECREF(entry);
    return number;
}

/* The number of the entry of a value, which is written if there is none; -1 is an error. */
long long
entry_of_key(EncoderObject *self, PyObject *word, PyObject *key, PyObject *value)
{
    PyObject *known = PyDict_GetItemWithError(self->known, key);
    PyObject *number = NULL;
    if (known != NULL && PyTuple_Check(known) && PyTuple_GET_SIZE(known) == 2) {
        number = Py_NewRef(PyTuple_GET_ITEM(known, 0));
    } else if (!PyErr_Occurred()) {
        number = new_entry(self, word, key, value);
    }
    long long found = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    if (found < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "entries are counted from 0");
    }
    return found;
}

/* The number of an entry as a form has it, (word, key, value); -1 is an error. */
static long long
entry_in_form(EncoderObject *self, PyObject *entry)
{
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) != 3 || !is_word(PyTuple_GET_ITEM(entry, 0))) {
        PyErr_Format(PyExc_TypeError, "expected a word, a key and a value, got %R", entry);
        return -1;
    }
    return entry_of_key(self, PyTuple_GET_ITEM(entry, 0), PyTuple_GET_ITEM(entry, 1), PyTuple_GET_ITEM(entry, 2));
}

/* The numbers of the entries of a form in this file; NULL is an error. */
static unsigned long long *
numbers_of(EncoderObject *self, PyObject *entries)
{
    Py_ssize_t count = PyTuple_GET_SIZE(entries);
    unsigned long long *numbers = PyMem_New(unsigned long long, count + 1);
    if (numbers == NULL) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; numbers != NULL && i < count; i++) {
        long long number = entry_in_form(self, PyTuple_GET_ITEM(entries, i));
        if (number < 0) {
            PyMem_Free(numbers);
            return NULL;
        }
        numbers[i] = (unsigned long long)number;
    }
    return numbers;
}

/* How many bytes a form has at most, once its numbers are filled in; -1 is an error. */
static Py_ssize_t
most_bytes(PyObject *pieces, PyObject *order, Py_ssize_t count)
{
    Py_ssize_t most = LONGEST_COUNT * PyTuple_GET_SIZE(order);
    int fits = 1;
    for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(pieces); i++) {
        fits = PyBytes_Check(PyTuple_GET_ITEM(pieces, i));
        most += fits ? PyBytes_GET_SIZE(PyTuple_GET_ITEM(pieces, i)) : 0;
    }
    for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(order); i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(order, i));
        fits = at >= 0 && at < count;
    }
    if (!fits && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_TypeError, "a form is pieces of bytes, entries, and which of these stands where");
    }
    return fits ? most : -1;
}

/* The bytes of a form: its pieces, with the numbers of its entries between them, each where the order says. */
static PyObject *
joined(PyObject *pieces, PyObject *order, const unsigned long long *numbers, Py_ssize_t count)
{
    Py_ssize_t most = most_bytes(pieces, order, count);
    PyObject *found = most < 0 ? NULL : PyBytes_FromStringAndSize(NULL, most);
    if (found == NULL) {
        return NULL;
    }
    char *begin = PyBytes_AS_STRING(found), *place = begin;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pieces); i++) {
        PyObject *piece = PyTuple_GET_ITEM(pieces, i);
        memcpy(place, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece));
        place += PyBytes_GET_SIZE(piece);
        if (i < PyTuple_GET_SIZE(order)) {
            place = encoded_count(place, numbers[PyLong_AsSsize_t(PyTuple_GET_ITEM(order, i))]);
        }
    }
    return _PyBytes_Resize(&found, place - begin) < 0 ? NULL : found;
}

static PyObject *
filled(EncoderObject *self, PyObject *form)
{
    PyObject *pieces, *entries, *order;
    if (!PyTuple_Check(form) || !PyArg_ParseTuple(form, "O!O!O!", &PyTuple_Type, &pieces, &PyTuple_Type, &entries,
                                                  &PyTuple_Type, &order)) {
        return PyErr_Format(PyExc_TypeError, "expected a form, got %R", form);
    }
    if (PyTuple_GET_SIZE(pieces) != PyTuple_GET_SIZE(order) + 1) {
        return PyErr_Format(PyExc_ValueError, "%zd entries do not fit between %zd pieces", PyTuple_GET_SIZE(order),
                            PyTuple_GET_SIZE(pieces));
    }
    unsigned long long *numbers = numbers_of(self, entries);
    PyObject *found = numbers == NULL ? NULL : joined(pieces, order, numbers, PyTuple_GET_SIZE(entries));
    PyMem_Free(numbers);
    return found;
}

/* Append a reference to an entry, and note where it is if the entry around it has a form. */
int
put_reference(EncoderObject *self, PyObject *out, PyObject *word, PyObject *value)
{
    PyObject *key = encoded_put_tag(out, TAG_ENTRY) < 0 ? NULL : key_of(word, value);
    long long number = key == NULL ? -1 : entry_of_key(self, word, key, value);
    Py_ssize_t start = PyByteArray_GET_SIZE(out);
    int failed = number < 0 || encoded_put_count(out, (unsigned long long)number) < 0;
    if (!failed && PyList_Check(self->references)) {
        PyObject *reference =
            Py_BuildValue("Onn(OOO)", out, start, PyByteArray_GET_SIZE(out), word, key, value);
        failed = reference == NULL || PyList_Append(self->references, reference) < 0;
        Py_XDECREF(reference);
    }
    Py_XDECREF(key);
    return failed ? -1 : 0;
}

/* --- what nodes have in common --- */

/* Begin an object of the vocabulary with so many parts; -1 is an error. */
static int
begin_object(PyObject *out, const char *name, Py_ssize_t parts)
{
    int failed = encoded_put_tag(out, TAG_OBJECT) < 0 || encoded_put_block(out, name, (Py_ssize_t)strlen(name)) < 0;
    return failed ? -1 : encoded_put_count(out, (unsigned long long)parts);
}

/* Append a reference to a position in a program, which is made if it is new; -1 is an error. */
static int
put_position(EncoderObject *self, PyObject *out, PyObject *code, PyObject *offset)
{
    PyObject *key = Py_BuildValue("NO", PyLong_FromVoidPtr(code), offset);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(self->known, key);
    Py_XDECREF(key);
    if (known != NULL && PyTuple_Check(known)) {
        unsigned long long number = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(known, 0));
        return PyErr_Occurred() || encoded_put_tag(out, TAG_ENTRY) < 0 ? -1 : encoded_put_count(out, number);
    }
    PyObject *position = PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(self->position, code, offset, NULL);
    int failed = position == NULL ? -1 : encoded_put(self, out, position);
    Py_XDECREF(position);
    return failed;
}

/* The number of the entry whose bytes were made; -1 is an error. */
static long long
entry_made(EncoderObject *self, PyObject *around, PyObject *out, int failed)
{
    Py_SETREF(self->references, around);
    PyObject *payload = failed ? NULL : PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out), PyByteArray_GET_SIZE(out));
    PyObject *number = payload == NULL ? NULL : entry_of_bytes(self, payload);
    long long found = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    Py_XDECREF(payload);
    Py_XDECREF(out);
    return found;
}

/* The number of what nodes that one line makes have in common, a `Recipe`; -1 is an error. */
long long
entry_of_recipe(PyObject *encoder, const NodeObject *node)
{
    EncoderObject *self = (EncoderObject *)encoder;
    PyObject *around = self->references, *out = PyByteArray_FromStringAndSize(NULL, 0);
    self->references = Py_NewRef(Py_None);
    PyObject *offset = PyLong_FromLong(node->lasti);
    PyObject *is_bundle = Py_IS_TYPE(node, &BundleType) ? Py_True : Py_False;
    int failed = out == NULL || offset == NULL || begin_object(out, "Recipe", 7) < 0 || encoded_put(self, out, node->op) < 0 ||
                 encoded_put(self, out, node->params) < 0 || encoded_put(self, out, node->shape) < 0 ||
                 encoded_put(self, out, node->dtype) < 0 || encoded_put(self, out, is_bundle) < 0 ||
                 put_position(self, out, node->code, offset) < 0 || encoded_put_tag(out, TAG_NONE) < 0;
    Py_XDECREF(offset);
    return entry_made(self, around, out, failed);
}

/* Append the lines of a call's instructions, or that they are those of its plan; -1 is an error. */
static int
put_origins(EncoderObject *self, PyObject *out, const CallObject *call)
{
    PyObject *fragment = PyObject_GetAttrString(call->plan, "fragment");
    PyObject *own = fragment == NULL ? NULL : PyObject_GetAttrString(fragment, "origins");
    Py_XDECREF(fragment);
    int same = own == NULL ? -1 : PyObject_RichCompareBool(call->origins, own, Py_EQ);
    Py_XDECREF(own);
    if (same != 0) {
        return same < 0 ? -1 : encoded_put_tag(out, TAG_NONE);
    }
    PyObject *origins = PySequence_Tuple(call->origins);
    Py_ssize_t count = origins == NULL ? 0 : PyTuple_GET_SIZE(origins);
    int failed = origins == NULL || encoded_put_tag(out, TAG_TUPLE) < 0 || encoded_put_count(out, (unsigned long long)count) < 0;
    for (Py_ssize_t i = 0; !failed && i < count; i++) {
        PyObject *code, *offset;
        failed = !PyArg_ParseTuple(PyTuple_GET_ITEM(origins, i), "OO", &code, &offset) ||
                 put_position(self, out, code, offset) < 0;
    }
    Py_XDECREF(origins);
    return failed ? -1 : 0;
}

/* The number of what calls of one plan have in common, a `CallKind`; -1 is an error. */
long long
entry_of_call_kind(PyObject *encoder, const CallObject *call)
{
    EncoderObject *self = (EncoderObject *)encoder;
    PyObject *around = self->references, *out = PyByteArray_FromStringAndSize(NULL, 0);
    self->references = Py_NewRef(Py_None);
    int is_folded = PyLong_AsLongLong(call->depth) != 0;
    int failed = out == NULL || begin_object(out, "CallKind", 3) < 0 || encoded_put(self, out, call->plan) < 0 ||
                 put_origins(self, out, call) < 0 || encoded_put(self, out, is_folded ? Py_True : Py_False) < 0;
    return entry_made(self, around, out, failed);
}

/* Make what is used every time; returns -1 with an exception. */
int
encoding_start(void)
{
    name_form = PyUnicode_InternFromString("form");
    return name_form != NULL ? 0 : -1;
}
