/* Values as bytes, for encoding.c and entries.c. */

#ifndef UNSPOOL_ENCODING_H
#define UNSPOOL_ENCODING_H

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
enum { WORD_NAME, WORD_SPLIT = 2, WORD_IS_ENTRY = 4, WORD_KEY, WORD_IS_FIXED, WORD_HAS_FORM, WORD_LENGTH };

typedef struct {
    PyObject_HEAD
    PyObject *words;      /* of type to word */
    PyObject *known;      /* of key to (number, value) */
    PyObject *entries;    /* of the bytes of an entry to its number */
    PyObject *write;      /* writes the bytes of an entry that is new */
    PyObject *references; /* a list of (bytes, start, end, (word, key, value)), or None */
    PyObject *journal;    /* which nodes are in the file, or None */
    PyObject *position;   /* the class of positions in programs, or None */
} EncoderObject;

/* The longest that a number gets: seven bits in a byte. */
#define LONGEST_COUNT 10

/* Write a number from 0 on, seven bits in a byte, the lowest first; the end of it. */
static inline char *
encoded_count(char *place, unsigned long long number)
{
    for (; number > 127; number >>= 7) {
        *place++ = (char)((number & 127) | 128);
    }
    *place++ = (char)number;
    return place;
}

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

/* Bytes (encoding.c). Each of these appends to a bytearray; -1, or NULL, is an error. */
char *encoded_extend(PyObject *out, Py_ssize_t more);
int encoded_put_tag(PyObject *out, int tag);
int encoded_put_count(PyObject *out, unsigned long long number);
int encoded_put_block(PyObject *out, const char *bytes, Py_ssize_t length);
int encoded_put_object(EncoderObject *self, PyObject *out, PyObject *word, PyObject *value);
int encoded_put(EncoderObject *self, PyObject *out, PyObject *value);

/* Entries (entries.c). */
PyObject *key_of(PyObject *word, PyObject *value);
PyObject *entry_of_bytes(EncoderObject *self, PyObject *payload);
long long entry_of_key(EncoderObject *self, PyObject *word, PyObject *key, PyObject *value);
int put_reference(EncoderObject *self, PyObject *out, PyObject *word, PyObject *value);

#endif
