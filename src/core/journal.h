/* What is known of a file that a graph is written to, for journal.c and records.c. */

#ifndef UNSPOOL_JOURNAL_H
#define UNSPOOL_JOURNAL_H

/* As in `unspool._saving.records`. */
enum { RECORD_ENTRY = 1, RECORD_NODE = 2, RECORD_CALL = 3, RECORD_OUTPUT = 4, RECORD_INLINE = 9 };
enum { WAS_EVALUATED = 1, IS_SEED = 2 };

/* Bytes that are being written; they are handed to Python all at once. */
typedef struct {
    char *bytes;
    Py_ssize_t size, room;
} Buffer;

/* The number of a node in the file, by id. */
typedef struct {
    long long id, number;
} Entry;

/* The number of a node that was found and is not written yet. */
#define PENDING (-1)

/* What the inputs of the last record of a kind were; no ids where the file was written by another process. */
typedef struct {
    Py_ssize_t count;
    long long *ids, *numbers;
    int is_known;
} Inputs;

/* What calls of one plan, or nodes that one line makes, have in common, and its number in the file. All of it is told by
   identity but the shape. */
#define MOST_PARTS 6
#define SHAPE_PART 2

typedef struct {
    PyObject *parts[MOST_PARTS];
    long long extra;
    long long number;
} Kind;

typedef struct JournalObject {
    PyObject_HEAD
    PyObject *out;
    PyObject *unfolded, *unevaluated;
    PyObject *leaves; /* variables and placeholders whose identities are not written yet */
    PyObject *encoder; /* None: nodes of a new kind are not written */
    PyObject *on_new; /* None: what is folded is not written at once */
    struct JournalObject *following; /* of those that write it at once */
    int is_busy;
    Entry *entries;
    Py_ssize_t used, size;
    Inputs *inputs;
    Py_ssize_t kinds_with_inputs;
    Kind *kinds;
    long long last_id, last_depth, next, offset, adopted;
} JournalObject;

extern PyTypeObject JournalType;

long long journal_find(const JournalObject *self, long long id);
int journal_has(const JournalObject *self, long long id);
int journal_enter(JournalObject *self, long long id, long long number);
Inputs *inputs_of_kind(JournalObject *self, Py_ssize_t kind, Py_ssize_t count);
Kind *journal_kind(JournalObject *self, const Kind *wanted);
int journal_remember(JournalObject *self, Kind kind);

/* What nodes of a kind have in common, as an entry (encoding.c). */
long long entry_of_recipe(PyObject *encoder, const NodeObject *node);
long long entry_of_call_kind(PyObject *encoder, const CallObject *call);

#define MOST_AXES 64

/* A value that is an array: its bytes, and its axes, outermost in memory first. */
typedef struct {
    Py_buffer bytes;
    unsigned char axes[MOST_AXES];
    Py_ssize_t strides[MOST_AXES];
} Laid;

int lay_out(PyObject *array, Laid *laid);
int is_dense(const Laid *laid);

/* Records (records.c). */
int put_constants(JournalObject *self, PyObject *inputs);
int put_folded(JournalObject *self, CallObject *call);
PyObject *journal_collect(JournalObject *self, PyObject *roots);
PyObject *journal_put_entry(JournalObject *self, PyObject *payload);
PyObject *journal_put_inputs(JournalObject *self, PyObject *args);
PyObject *journal_put_known(JournalObject *self, PyObject *args);
PyObject *journal_put_values(JournalObject *self, PyObject *args);
PyObject *journal_take_folded(JournalObject *self, PyObject *unused);
PyObject *journal_take_evaluated(JournalObject *self, PyObject *unused);

#endif
