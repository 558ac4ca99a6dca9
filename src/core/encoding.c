/* Values of the vocabulary of files, as bytes: what `unspool._saving.encoder` does for plain values, classes of the
   vocabulary and references to entries.

   A short run is mostly this: the bodies of its steps, each with an op and a line of source for every instruction. What
   is not plain, and entries that have forms, are left to Python. Bytes go to the bytearray of whoever asks, at once, so
   Python may write to it between. */

#include "core.h"
#include "encoding.h"
#include "journal.h"

/* --- bytes --- */

/* Make an array longer by so many bytes and return where these are; NULL is an error. */
char *
encoded_extend(PyObject *out, Py_ssize_t more)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(out);
    return PyByteArray_Resize(out, before + more) < 0 ? NULL : PyByteArray_AS_STRING(out) + before;
}

int
encoded_put_tag(PyObject *out, int tag)
{
    char *place = encoded_extend(out, 1);
    if (place == NULL) {
        return -1;
    }
    *place = (char)tag;
    return 0;
}

/* Append a number from 0 on. */
int
encoded_put_count(PyObject *out, unsigned long long number)
{
    char bytes[LONGEST_COUNT];
    Py_ssize_t length = encoded_count(bytes, number) - bytes;
    char *place = encoded_extend(out, length);
    if (place == NULL) {
        return -1;
    }
    memcpy(place, bytes, length);
    return 0;
}

int
encoded_put_block(PyObject *out, const char *bytes, Py_ssize_t length)
{
    char *place = encoded_put_count(out, (unsigned long long)length) < 0 ? NULL : encoded_extend(out, length);
    if (place == NULL) {
        return -1;
    }
    memcpy(place, bytes, length);
    return 0;
}

/* Append a text; lone surrogates, which names of files may have, pass as they are. */
static int
put_text(PyObject *out, PyObject *text)
{
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (bytes != NULL) {
        return encoded_put_block(out, bytes, length);
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        return -1;
    }
    PyErr_Clear();
    PyObject *encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    int failed = encoded == NULL ? -1 : encoded_put_block(out, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded));
    Py_XDECREF(encoded);
    return failed;
}

/* --- plain values --- */

/* Have Python append a value of any other kind. */
static int
put_other(EncoderObject *self, PyObject *out, PyObject *value)
{
    PyObject *done = PyObject_CallMethod((PyObject *)self, "put_other", "OO", out, value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
put_whole(EncoderObject *self, PyObject *out, PyObject *value)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) {
        return put_other(self, out, value);
    }
    unsigned long long bits = number >= 0 ? (unsigned long long)number << 1 : (unsigned long long)~number << 1 | 1;
    return encoded_put_tag(out, TAG_INT) < 0 ? -1 : encoded_put_count(out, bits);
}

static int
put_float(PyObject *out, PyObject *value)
{
    char *place = encoded_extend(out, 9);
    if (place == NULL) {
        return -1;
    }
    *place = TAG_FLOAT;
    return PyFloat_Pack8(PyFloat_AS_DOUBLE(value), place + 1, 1);
}

/* Append how many values there are, and these. They are held meanwhile, as Python code may run. */
static int
put_items(EncoderObject *self, PyObject *out, PyObject *items)
{
    PyObject *held = PySequence_Tuple(items);
    if (held == NULL) {
        return -1;
    }
    int failed = encoded_put_count(out, (unsigned long long)PyTuple_GET_SIZE(held));
    for (Py_ssize_t i = 0; failed == 0 && i < PyTuple_GET_SIZE(held); i++) {
        failed = encoded_put(self, out, PyTuple_GET_ITEM(held, i));
    }
    Py_DECREF(held);
    return failed;
}

static int
put_dict(EncoderObject *self, PyObject *out, PyObject *value)
{
    PyObject *pairs = PyMapping_Items(value);
    if (pairs == NULL) {
        return -1;
    }
    int failed = encoded_put_tag(out, TAG_DICT) < 0 || encoded_put_count(out, (unsigned long long)PyList_GET_SIZE(pairs)) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(pairs); i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        failed = encoded_put(self, out, PyTuple_GET_ITEM(pair, 0)) < 0 || encoded_put(self, out, PyTuple_GET_ITEM(pair, 1)) < 0;
    }
    Py_DECREF(pairs);
    return failed ? -1 : 0;
}

/* --- classes of the vocabulary --- */

/* The word of a class, held; NULL without an error if there is none. */
static PyObject *
word_of(const EncoderObject *self, PyObject *value)
{
    PyObject *word = PyDict_GetItemWithError(self->words, (PyObject *)Py_TYPE(value));
    if (word != NULL && !is_word(word)) {
        return PyErr_Format(PyExc_TypeError, "expected a word, got %R", word);
    }
    return Py_XNewRef(word);
}

/* Append what a value of a class of the vocabulary is made of. */
int
encoded_put_object(EncoderObject *self, PyObject *out, PyObject *word, PyObject *value)
{
    if (encoded_put_tag(out, TAG_OBJECT) < 0 || put_text(out, PyTuple_GET_ITEM(word, WORD_NAME)) < 0) {
        return -1;
    }
    PyObject *parts = PyObject_CallOneArg(PyTuple_GET_ITEM(word, WORD_SPLIT), value);
    int failed = parts == NULL ? -1 : put_items(self, out, parts);
    Py_XDECREF(parts);
    return failed;
}

/* Append a reference to a node that is in the file; who has none there is refused by Python. */
static int
put_node(EncoderObject *self, PyObject *out, PyObject *node)
{
    long long number = -1;
    if (self->journal != Py_None) {
        number = journal_find((JournalObject *)self->journal, number_of((NodeObject *)node));
    }
    if (number < 0) {
        return put_other(self, out, node);
    }
    return encoded_put_tag(out, TAG_NODE) < 0 ? -1 : encoded_put_count(out, (unsigned long long)number);
}

static int
put_of_vocabulary(EncoderObject *self, PyObject *out, PyObject *value)
{
    PyObject *word = word_of(self, value);
    if (word == NULL) {
        return PyErr_Occurred() ? -1 : put_other(self, out, value);
    }
    int failed;
    if (is_true(word, WORD_IS_ENTRY)) {
        failed = put_reference(self, out, word, value);
    } else {
        if (!is_true(word, WORD_IS_FIXED)) { /* what is around it may become something else, and has no form */
            Py_SETREF(self->references, Py_NewRef(Py_None));
        }
        failed = encoded_put_object(self, out, word, value);
    }
    Py_DECREF(word);
    return failed;
}

static int
put_checked(EncoderObject *self, PyObject *out, PyObject *value)
{
    if (value == Py_None) {
        return encoded_put_tag(out, TAG_NONE);
    }
    if (PyBool_Check(value)) {
        return encoded_put_tag(out, value == Py_True ? TAG_TRUE : TAG_FALSE);
    }
    if (value == Py_Ellipsis) {
        return encoded_put_tag(out, TAG_ELLIPSIS);
    }
    if (PyLong_CheckExact(value)) {
        return put_whole(self, out, value);
    }
    if (PyFloat_CheckExact(value)) {
        return put_float(out, value);
    }
    if (PyUnicode_CheckExact(value)) {
        return encoded_put_tag(out, TAG_TEXT) < 0 ? -1 : put_text(out, value);
    }
    if (PyBytes_CheckExact(value)) {
        return encoded_put_tag(out, TAG_BYTES) < 0 ? -1 : encoded_put_block(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    }
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        int failed = encoded_put_tag(out, PyTuple_CheckExact(value) ? TAG_TUPLE : TAG_LIST);
        return failed < 0 ? -1 : put_items(self, out, value);
    }
    if (PyDict_CheckExact(value) || Py_IS_TYPE(value, &PyDictProxy_Type)) {
        return put_dict(self, out, value);
    }
    return is_node(value) ? put_node(self, out, value) : put_of_vocabulary(self, out, value);
}

/* Append a value; -1 is an error. */
int
encoded_put(EncoderObject *self, PyObject *out, PyObject *value)
{
    if (Py_EnterRecursiveCall(" while a value is written to a file")) {
        return -1;
    }
    int failed = put_checked(self, out, value);
    Py_LeaveRecursiveCall();
    return failed;
}

/* --- the type --- */

PyDoc_STRVAR(put_doc, "put(out, value, /)\n--\n\nAppend a value to a bytearray.");

static PyObject *
encoder_put(EncoderObject *self, PyObject *args)
{
    PyObject *out, *value;
    if (!PyArg_ParseTuple(args, "O!O", &PyByteArray_Type, &out, &value) || encoded_put(self, out, value) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(put_parts_doc,
"put_parts(out, word, value, /)\n--\n\nAppend what a value of a class of the vocabulary is made of to a bytearray.");

static PyObject *
encoder_put_parts(EncoderObject *self, PyObject *args)
{
    PyObject *out, *word, *value;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyByteArray_Type, &out, &PyTuple_Type, &word, &value)) {
        return NULL;
    }
    if (!is_word(word)) {
        return PyErr_Format(PyExc_TypeError, "expected a word, got %R", word);
    }
    if (encoded_put_object(self, out, word, value) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(entry_of_doc,
"entry_of(value, /)\n--\n\nReturn the number of the entry of a value; it is written if there is none.");

static PyObject *
encoder_entry_of(EncoderObject *self, PyObject *value)
{
    PyObject *word = word_of(self, value);
    if (word == NULL) {
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "%R is of no class that entries have", value);
    }
    PyObject *key = key_of(word, value);
    long long number = key == NULL ? -1 : entry_of_key(self, word, key, value);
    Py_XDECREF(key);
    Py_DECREF(word);
    return number < 0 ? NULL : PyLong_FromLongLong(number);
}

PyDoc_STRVAR(entry_of_bytes_doc,
"entry_of_bytes(payload, /)\n--\n\nReturn the number of the entry with these bytes; it is written if there is none.");

static PyObject *
encoder_entry_of_bytes(EncoderObject *self, PyObject *payload)
{
    if (!PyBytes_Check(payload)) {
        return PyErr_Format(PyExc_TypeError, "expected bytes, got %R", payload);
    }
    return entry_of_bytes(self, payload);
}

PyDoc_STRVAR(adopt_doc, "adopt(payload, /)\n--\n\nTake note of the bytes of an entry that is in the file already.");

static PyObject *
encoder_adopt(EncoderObject *self, PyObject *payload)
{
    PyObject *number = PyLong_FromSsize_t(PyDict_GET_SIZE(self->entries));
    PyObject *found = number == NULL ? NULL : PyDict_SetDefault(self->entries, payload, number);
    Py_XDECREF(number);
    return found == NULL ? NULL : Py_NewRef(Py_None);
}

static PyObject *
encoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    EncoderObject *self = (EncoderObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->words = PyDict_New();
    self->known = PyDict_New();
    self->entries = PyDict_New();
    self->write = Py_NewRef(Py_None);
    self->references = Py_NewRef(Py_None);
    self->journal = Py_NewRef(Py_None);
    self->position = Py_NewRef(Py_None);
    if (self->words == NULL || self->known == NULL || self->entries == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
encoder_traverse(EncoderObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->words);
    Py_VISIT(self->known);
    Py_VISIT(self->entries);
    Py_VISIT(self->write);
    Py_VISIT(self->references);
    Py_VISIT(self->journal);
    Py_VISIT(self->position);
    return 0;
}

static void
encoder_dealloc(EncoderObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->words);
    Py_XDECREF(self->known);
    Py_XDECREF(self->entries);
    Py_XDECREF(self->write);
    Py_XDECREF(self->references);
    Py_XDECREF(self->journal);
    Py_XDECREF(self->position);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static int
encoder_set_words(EncoderObject *self, PyObject *words, void *unused)
{
    if (words == NULL || !PyDict_Check(words)) {
        PyErr_SetString(PyExc_TypeError, "words are a dict of types to words");
        return -1;
    }
    Py_SETREF(self->words, Py_NewRef(words));
    return 0;
}

static PyObject *
encoder_get_words(EncoderObject *self, void *unused)
{
    return Py_NewRef(self->words);
}

static int
encoder_set_references(EncoderObject *self, PyObject *references, void *unused)
{
    if (references == NULL || (references != Py_None && !PyList_Check(references))) {
        PyErr_SetString(PyExc_TypeError, "references are a list, or None");
        return -1;
    }
    Py_SETREF(self->references, Py_NewRef(references));
    return 0;
}

static PyObject *
encoder_get_references(EncoderObject *self, void *unused)
{
    return Py_NewRef(self->references);
}

static int
encoder_set_journal(EncoderObject *self, PyObject *journal, void *unused)
{
    if (journal == NULL || (journal != Py_None && !Py_IS_TYPE(journal, &JournalType))) {
        PyErr_SetString(PyExc_TypeError, "journal is one, or None");
        return -1;
    }
    Py_SETREF(self->journal, Py_NewRef(journal));
    return 0;
}

static PyObject *
encoder_get_journal(EncoderObject *self, void *unused)
{
    return Py_NewRef(self->journal);
}

static int
encoder_set_position(EncoderObject *self, PyObject *position, void *unused)
{
    if (position == NULL || !PyCallable_Check(position)) {
        PyErr_SetString(PyExc_TypeError, "position is the class of positions");
        return -1;
    }
    Py_SETREF(self->position, Py_NewRef(position));
    return 0;
}

static PyObject *
encoder_get_position(EncoderObject *self, void *unused)
{
    return Py_NewRef(self->position);
}

static int
encoder_set_write(EncoderObject *self, PyObject *write, void *unused)
{
    if (write == NULL || !PyCallable_Check(write)) {
        PyErr_SetString(PyExc_TypeError, "write is a function of bytes");
        return -1;
    }
    Py_SETREF(self->write, Py_NewRef(write));
    return 0;
}

static PyObject *
encoder_get_write(EncoderObject *self, void *unused)
{
    return Py_NewRef(self->write);
}

static PyMethodDef encoder_type_methods[] = {
    {"adopt", (PyCFunction)encoder_adopt, METH_O, adopt_doc},
    {"entry_of", (PyCFunction)encoder_entry_of, METH_O, entry_of_doc},
    {"entry_of_bytes", (PyCFunction)encoder_entry_of_bytes, METH_O, entry_of_bytes_doc},
    {"put", (PyCFunction)encoder_put, METH_VARARGS, put_doc},
    {"put_parts", (PyCFunction)encoder_put_parts, METH_VARARGS, put_parts_doc},
    {NULL},
};

static PyGetSetDef encoder_getset[] = {
    {"position", (getter)encoder_get_position, (setter)encoder_set_position, NULL, NULL},
    {"journal", (getter)encoder_get_journal, (setter)encoder_set_journal, NULL, NULL},
    {"words", (getter)encoder_get_words, (setter)encoder_set_words, NULL, NULL},
    {"references", (getter)encoder_get_references, (setter)encoder_set_references, NULL, NULL},
    {"write", (getter)encoder_get_write, (setter)encoder_set_write, NULL, NULL},
    {NULL},
};

static PyMemberDef encoder_members[] = {
    {"known", T_OBJECT_EX, offsetof(EncoderObject, known), READONLY, NULL},
    {NULL},
};

PyDoc_STRVAR(encoder_doc,
"Writes values as bytes; what a class made from it adds is entries that are new, and values that are not plain.\n\n"
"Attributes\n----------\n"
"words : dict of type to Word\n"
"known : dict\n"
"    Entries that are in the file, as (number, value), by what tells them apart.\n"
"write : callable\n"
"    Takes the bytes of an entry that is new, whose number is one more than that of the last.\n"
"references : list or None\n"
"    Where the entry that is being written refers to others: (bytes, start, end, (word, key, value)); None if it has\n"
"    no form.\n"
"journal : Journal or None\n"
"    The nodes that are in the file.\n"
"position : type or None\n"
"    The class of positions in programs, which nodes have.");

PyTypeObject EncoderType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "unspool._core.EncoderBase",
    .tp_doc = encoder_doc,
    .tp_basicsize = sizeof(EncoderObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = encoder_new,
    .tp_dealloc = (destructor)encoder_dealloc,
    .tp_traverse = (traverseproc)encoder_traverse,
    .tp_methods = encoder_type_methods,
    .tp_members = encoder_members,
    .tp_getset = encoder_getset,
};

/* --- positions --- */

PyDoc_STRVAR(position_key_doc,
"position_key(position, /)\n--\n\n"
"Return what tells positions in programs apart: the identity of the code and the offset.");

static PyObject *
position_key(PyObject *module, PyObject *position)
{
    if (!PyTuple_Check(position) || PyTuple_GET_SIZE(position) != 2) {
        return PyErr_Format(PyExc_TypeError, "expected a position, got %R", position);
    }
    return Py_BuildValue("NO", PyLong_FromVoidPtr(PyTuple_GET_ITEM(position, 0)), PyTuple_GET_ITEM(position, 1));
}

PyMethodDef encoding_methods[] = {
    {"position_key", position_key, METH_O, position_key_doc},
    {NULL},
};
