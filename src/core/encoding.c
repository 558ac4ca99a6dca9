/* Values of the vocabulary of files, as bytes: what `unspool._saving.encoder` does for plain values, classes of the
   vocabulary and references to entries.

   A short run is mostly this: the bodies of its steps, each with an op and a line of source for every instruction. What
   is not plain, and entries that are new, are left to Python. Bytes go to the bytearray of whoever asks, at once, so
   Python may write to it between. */

#include "core.h"
#include "journal.h"

/* As in `unspool._saving.codec`. */
enum {
    TAG_NONE,
    TAG_TRUE,
    TAG_FALSE,
    TAG_INT,
    TAG_FLOAT,
    TAG_TEXT = 6,
    TAG_BYTES,
    TAG_TUPLE,
    TAG_LIST,
    TAG_DICT,
    TAG_ELLIPSIS = 12,
    TAG_OBJECT = 18,
    TAG_ENTRY,
    TAG_NODE,
};

/* The fields of a `Word`. */
enum { WORD_NAME, WORD_SPLIT = 2, WORD_IS_ENTRY = 4, WORD_KEY, WORD_IS_FIXED, WORD_LENGTH = 8 };

typedef struct {
    PyObject_HEAD
    PyObject *words;      /* of type to word */
    PyObject *known;      /* of key to (number, value) */
    PyObject *references; /* a list of (bytes, start, end, entry), or None */
    PyObject *journal;    /* which nodes are in the file, or None */
} EncoderObject;

static int put(EncoderObject *self, PyObject *out, PyObject *value);

/* --- bytes --- */

/* Make an array longer by so many bytes and return where these are; NULL is an error. */
static char *
extend(PyObject *out, Py_ssize_t more)
{
    Py_ssize_t before = PyByteArray_GET_SIZE(out);
    return PyByteArray_Resize(out, before + more) < 0 ? NULL : PyByteArray_AS_STRING(out) + before;
}

static int
put_tag(PyObject *out, int tag)
{
    char *place = extend(out, 1);
    if (place == NULL) {
        return -1;
    }
    *place = (char)tag;
    return 0;
}

/* Append a number from 0 on: seven bits in a byte, the lowest first. */
static int
put_count(PyObject *out, unsigned long long number)
{
    Py_ssize_t length = 1;
    for (unsigned long long rest = number >> 7; rest > 0; rest >>= 7) {
        length++;
    }
    char *place = extend(out, length);
    if (place == NULL) {
        return -1;
    }
    for (; number > 127; number >>= 7) {
        *place++ = (char)((number & 127) | 128);
    }
    *place = (char)number;
    return 0;
}

static int
put_block(PyObject *out, const char *bytes, Py_ssize_t length)
{
    char *place = put_count(out, (unsigned long long)length) < 0 ? NULL : extend(out, length);
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
        return put_block(out, bytes, length);
    }
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        return -1;
    }
    PyErr_Clear();
    PyObject *encoded = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    int failed = encoded == NULL ? -1 : put_block(out, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded));
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
    return put_tag(out, TAG_INT) < 0 ? -1 : put_count(out, bits);
}

static int
put_float(PyObject *out, PyObject *value)
{
    char *place = extend(out, 9);
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
    int failed = put_count(out, (unsigned long long)PyTuple_GET_SIZE(held));
    for (Py_ssize_t i = 0; failed == 0 && i < PyTuple_GET_SIZE(held); i++) {
        failed = put(self, out, PyTuple_GET_ITEM(held, i));
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
    int failed = put_tag(out, TAG_DICT) < 0 || put_count(out, (unsigned long long)PyList_GET_SIZE(pairs)) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_GET_SIZE(pairs); i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        failed = put(self, out, PyTuple_GET_ITEM(pair, 0)) < 0 || put(self, out, PyTuple_GET_ITEM(pair, 1)) < 0;
    }
    Py_DECREF(pairs);
    return failed ? -1 : 0;
}

/* --- classes of the vocabulary --- */

static inline int
is_true(PyObject *word, int field)
{
    return PyTuple_GET_ITEM(word, field) == Py_True;
}

static inline int
is_word(PyObject *object)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == WORD_LENGTH &&
           PyUnicode_Check(PyTuple_GET_ITEM(object, WORD_NAME));
}

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

/* The number of the entry of a value, which Python writes if there is none; -1 is an error. */
static long long
entry_of(EncoderObject *self, PyObject *word, PyObject *value)
{
    PyObject *tell = PyTuple_GET_ITEM(word, WORD_KEY);
    PyObject *key = tell == Py_None ? PyLong_FromVoidPtr(value) : PyObject_CallOneArg(tell, value);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(self->known, key);
    PyObject *number = NULL;
    if (known != NULL && PyTuple_Check(known) && PyTuple_GET_SIZE(known) == 2) {
        number = Py_NewRef(PyTuple_GET_ITEM(known, 0));
    } else if (key != NULL && !PyErr_Occurred()) {
        number = PyObject_CallMethod((PyObject *)self, "new_entry", "OOO", word, key, value);
    }
    Py_XDECREF(key);
    long long found = number == NULL ? -1 : PyLong_AsLongLong(number);
    Py_XDECREF(number);
    if (found < 0 && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "entries are counted from 0");
    }
    return found;
}

/* Append a reference to an entry, and note where it is if the entry around it has a form. */
static int
put_reference(EncoderObject *self, PyObject *out, PyObject *word, PyObject *value)
{
    long long number = put_tag(out, TAG_ENTRY) < 0 ? -1 : entry_of(self, word, value);
    Py_ssize_t start = PyByteArray_GET_SIZE(out);
    if (number < 0 || put_count(out, (unsigned long long)number) < 0) {
        return -1;
    }
    if (!PyList_Check(self->references)) {
        return 0;
    }
    PyObject *reference = Py_BuildValue("OnnO", out, start, PyByteArray_GET_SIZE(out), value);
    int failed = reference == NULL ? -1 : PyList_Append(self->references, reference);
    Py_XDECREF(reference);
    return failed;
}

/* Append what a value of a class of the vocabulary is made of. */
static int
put_object(EncoderObject *self, PyObject *out, PyObject *word, PyObject *value)
{
    if (put_tag(out, TAG_OBJECT) < 0 || put_text(out, PyTuple_GET_ITEM(word, WORD_NAME)) < 0) {
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
    return put_tag(out, TAG_NODE) < 0 ? -1 : put_count(out, (unsigned long long)number);
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
        failed = put_object(self, out, word, value);
    }
    Py_DECREF(word);
    return failed;
}

static int
put_checked(EncoderObject *self, PyObject *out, PyObject *value)
{
    if (value == Py_None) {
        return put_tag(out, TAG_NONE);
    }
    if (PyBool_Check(value)) {
        return put_tag(out, value == Py_True ? TAG_TRUE : TAG_FALSE);
    }
    if (value == Py_Ellipsis) {
        return put_tag(out, TAG_ELLIPSIS);
    }
    if (PyLong_CheckExact(value)) {
        return put_whole(self, out, value);
    }
    if (PyFloat_CheckExact(value)) {
        return put_float(out, value);
    }
    if (PyUnicode_CheckExact(value)) {
        return put_tag(out, TAG_TEXT) < 0 ? -1 : put_text(out, value);
    }
    if (PyBytes_CheckExact(value)) {
        return put_tag(out, TAG_BYTES) < 0 ? -1 : put_block(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    }
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
        int failed = put_tag(out, PyTuple_CheckExact(value) ? TAG_TUPLE : TAG_LIST);
        return failed < 0 ? -1 : put_items(self, out, value);
    }
    if (PyDict_CheckExact(value) || Py_IS_TYPE(value, &PyDictProxy_Type)) {
        return put_dict(self, out, value);
    }
    return is_node(value) ? put_node(self, out, value) : put_of_vocabulary(self, out, value);
}

/* Append a value; -1 is an error. */
static int
put(EncoderObject *self, PyObject *out, PyObject *value)
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
    if (!PyArg_ParseTuple(args, "O!O", &PyByteArray_Type, &out, &value) || put(self, out, value) < 0) {
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
    if (put_object(self, out, word, value) < 0) {
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
    long long number = entry_of(self, word, value);
    Py_DECREF(word);
    return number < 0 ? NULL : PyLong_FromLongLong(number);
}

PyDoc_STRVAR(filled_doc,
"filled(pieces, entries, /)\n--\n\nReturn bytes with the number of an entry behind each of them but the last.");

static PyObject *
encoder_filled(EncoderObject *self, PyObject *args)
{
    PyObject *pieces, *entries;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &pieces, &PyTuple_Type, &entries)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(pieces) != PyTuple_GET_SIZE(entries) + 1) {
        return PyErr_Format(PyExc_ValueError, "%zd entries do not fit between %zd pieces", PyTuple_GET_SIZE(entries),
                            PyTuple_GET_SIZE(pieces));
    }
    PyObject *out = PyByteArray_FromStringAndSize(NULL, 0);
    int failed = out == NULL;
    for (Py_ssize_t i = 0; !failed && i < PyTuple_GET_SIZE(pieces); i++) {
        PyObject *piece = PyTuple_GET_ITEM(pieces, i);
        char *place = PyBytes_Check(piece) ? extend(out, PyBytes_GET_SIZE(piece)) : NULL;
        if (place == NULL) {
            failed = 1;
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_TypeError, "expected bytes, got %R", piece);
            }
            break;
        }
        memcpy(place, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece));
        if (i < PyTuple_GET_SIZE(entries)) {
            PyObject *number = encoder_entry_of(self, PyTuple_GET_ITEM(entries, i));
            failed = number == NULL || put_count(out, PyLong_AsUnsignedLongLong(number)) < 0;
            Py_XDECREF(number);
        }
    }
    PyObject *found = failed ? NULL : PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out), PyByteArray_GET_SIZE(out));
    Py_XDECREF(out);
    return found;
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
    self->references = Py_NewRef(Py_None);
    self->journal = Py_NewRef(Py_None);
    if (self->words == NULL || self->known == NULL) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
encoder_traverse(EncoderObject *self, visitproc visit, void *arg)
{
    Py_VISIT(self->words);
    Py_VISIT(self->known);
    Py_VISIT(self->references);
    Py_VISIT(self->journal);
    return 0;
}

static void
encoder_dealloc(EncoderObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->words);
    Py_XDECREF(self->known);
    Py_XDECREF(self->references);
    Py_XDECREF(self->journal);
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

static PyMethodDef encoder_type_methods[] = {
    {"entry_of", (PyCFunction)encoder_entry_of, METH_O, entry_of_doc},
    {"filled", (PyCFunction)encoder_filled, METH_VARARGS, filled_doc},
    {"put", (PyCFunction)encoder_put, METH_VARARGS, put_doc},
    {"put_parts", (PyCFunction)encoder_put_parts, METH_VARARGS, put_parts_doc},
    {NULL},
};

static PyGetSetDef encoder_getset[] = {
    {"journal", (getter)encoder_get_journal, (setter)encoder_set_journal, NULL, NULL},
    {"words", (getter)encoder_get_words, (setter)encoder_set_words, NULL, NULL},
    {"references", (getter)encoder_get_references, (setter)encoder_set_references, NULL, NULL},
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
"references : list or None\n"
"    Where the entry that is being written refers to others: (bytes, start, end, entry); None if it has no form.\n"
"journal : Journal or None\n"
"    The nodes that are in the file.");

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
