/* The core: nodes, the table in which equal recipes are one node, and the records that every step of a loop makes.

   Recording an op is what a loop does for every operation of every step, and folding and noting what it does for every
   step, so they are written in C. What is here is small, and knows nothing of kernels or derivatives, and of arrays no
   more than dtype, shape and bytes. */

#ifndef UNSPOOL_CORE_H
#define UNSPOOL_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030B0000
#error "unspool needs Python 3.11 or newer"
#endif

/* --- ops (ops.c) --- */

typedef struct {
    PyObject_HEAD
    PyObject *canonical;
    PyObject *commuting;
    PyObject *infer;
    PyObject *inferred; /* what it inferred, by shapes, dtypes and parameters; None: it is asked every time */
    PyObject *result_dtypes;
    PyObject *sized;
    /* What of it was recalled last, for what place and from where: nearly always the next one too. */
    PyObject *recalled_from, *recalled_for, *recalled;
    /* What was found for the two dtypes that were asked for last: nearly always the next ones too. */
    PyObject *left, *right, *result;
    int commutes;
    int canonical_for;
    char is_lasting; /* one of the library's: it stays, whatever refers to it */
    PyObject *simple_params, *simple_key, *simple_shape; /* those that were looked at last (tracking.c); or NULL */
} OpObject;

/* Which inputs an op has to be asked for a canonical form for, beside what follows from shapes, dtypes and parameters. */
enum { FOR_ANY, FOR_ITS_OWN, FOR_SEEDS };

extern PyTypeObject OpType;

int look_up_dtypes(OpObject *op, PyObject *left, PyObject *right);

/* --- nodes (nodes.c) --- */

typedef struct NodeObject {
    PyObject_HEAD
    PyObject *weak;
    PyObject *op;
    PyObject *inputs;
    PyObject *params;
    PyObject *shape;
    PyObject *dtype;
    PyObject *id;
    PyObject *key;
    PyObject *value;
    PyObject *code;
    PyObject *piece;
    PyObject *output;
    PyObject *name;
    int lasti;
    short is_entered;
    short is_again; /* it was recorded again when it had a value, or it is in several pieces that wait */
    Py_uhash_t hash;
    struct NodeObject *next; /* in the chain of the table */
} NodeObject;

extern PyTypeObject NodeType, BundleType, TensorType;


NodeObject *make_node(PyTypeObject *type, PyObject *op, PyObject *inputs, PyObject *params, PyObject *shape,
                      PyObject *dtype, PyObject *key, PyObject *code, int lasti, PyObject *id);
PyObject *next_id(PyObject *module, PyObject *unused);
int own_tensors(PyObject *type);

static inline long long
number_of(const NodeObject *node)
{
    return PyLong_AsLongLong(node->id);
}

/* The collector need not look at the tuple of inputs of every node: a node goes through it as if it held the inputs
   itself, while it is the only one that holds the tuple. */
static inline void
own_inputs(PyObject *inputs)
{
    if (Py_REFCNT(inputs) == 1 && PyTuple_CheckExact(inputs) && PyTuple_GET_SIZE(inputs) > 0) {
        PyObject_GC_UnTrack(inputs);
    }
}

static inline int
visit_inputs(PyObject *inputs, visitproc visit, void *arg)
{
    if (inputs == NULL || Py_REFCNT(inputs) != 1 || !PyTuple_CheckExact(inputs) || PyObject_GC_IsTracked(inputs)) {
        Py_VISIT(inputs);
        return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); i++) {
        Py_VISIT(PyTuple_GET_ITEM(inputs, i));
    }
    return 0;
}

void hide(NodeObject *node);
int node_traverse(NodeObject *self, visitproc visit, void *arg);
int node_clear(NodeObject *self);
void node_dealloc(NodeObject *self);
PyObject *node_refuse(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* --- what the collector looks at (tracking.c) --- */

int may_leave_collector(NodeObject *node);
void leave_collector(NodeObject *node);
void enter_collector(NodeObject *node);

/* --- the table (table.c) --- */

int table_start(void);
int table_insert(NodeObject *node);
void table_remove(NodeObject *node);
Py_uhash_t hash_inputs(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_hash_t of_key);
int hash_recipe(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_uhash_t *hash);
NodeObject *table_find_float(PyObject *dtype, double value, Py_uhash_t hash);
NodeObject *table_find(PyObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *key, Py_uhash_t hash);

/* --- what Python gives (given.c) --- */

extern PyObject *empty; /* the empty tuple */
extern PyObject *tensor_class;  /* the class that users hold */
extern PyObject *projection_class; /* the class of tensors that are outputs of calls */
extern PyObject *no_params;     /* the parameters of an op that has none */
extern PyObject *is_internal;   /* whether a source file is one of ours, a dict that finds out what it lacks */
extern PyObject *origin_var;    /* the context variable with the source position that new nodes inherit */
extern PyObject *with_sizes;    /* parameters as they are kept if some of them may hold symbolic sizes */
extern PyObject *align;         /* operands that broadcast, and the shape they broadcast to */
extern PyObject *constant_op;
extern PyObject *seed; /* the contents of the 1 that a backward pass starts from */
extern PyObject *leaf_ops;
extern PyObject *call_op;
extern PyObject *lost;             /* stands for the evaluation of a tensor that lost its value */
extern PyObject *float32, *float64, *complex128, *int64;
extern PyObject *dtypes; /* all that tensors have */
extern PyObject *can_count; /* whether this interpreter counts references as is known */
extern PyObject *array_class, *numpy_float, *numpy_integer;
extern PyObject *slice_op, *gather_op, *reshape_op, *broadcast_op, *concat_op;
extern PyObject *update_class, *general_update;
extern PyObject *plain_output;
extern PyObject *computes_with_values; /* whether Python code does: a library that computes with arrays */
extern PyObject *as_tensor, *as_inexact; /* operands that are made of others */
extern PyObject *general_item;         /* what an index selects from a tensor, in the general way */
extern PyObject *general_ufunc;        /* what NumPy's functions do with tensors, in the general way */

/* Whether an object is a node. Nearly all are tensors, and to look through the bases of a class takes longer. */
static inline int
is_node(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    return type == tensor_class || type == projection_class || PyObject_TypeCheck(object, &NodeType);
}

/* --- what ops infer (inference.c) --- */

/* What follows from shapes, dtypes and parameters. The references are borrowed, from an object that owns them all. */
typedef struct {
    PyObject *shape, *dtype, *params, *key;
    Py_hash_t hash; /* of the key */
} Inference;

int is_plain_tuple(PyObject *values);
PyObject *inference_place(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names);
PyObject *recall(OpObject *op, PyObject *place, Inference *inference);
PyObject *recall_latest(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names, Inference *inference);
PyObject *infer(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names, PyObject *key,
                Py_hash_t of_key, PyObject *place, int has_several, Inference *inference);

/* --- making nodes (origins.c, interning.c, recording.c) --- */

extern PyTypeObject OriginType;

int check_count(const char *name, Py_ssize_t given, Py_ssize_t wanted);
PyObject *as_tuple(PyObject *const *items, Py_ssize_t count);
int check_recipe(PyObject *op, PyObject *inputs);
int check_nodes(PyObject *op, PyObject *const *inputs, Py_ssize_t count);
PyObject *find_origin(int *lasti);
PyObject *make_origin(void);
void place_origin(PyObject *origin, PyObject *code, int lasti);
int find_line(PyObject *code, int lasti);
NodeObject *make_here(PyTypeObject *type, OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape,
                      PyObject *dtype, PyObject *key);
PyObject *enter_first(NodeObject *node, Py_uhash_t hash);
PyObject *make_entered_as(PyTypeObject *type, OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape,
                          PyObject *dtype, PyObject *key, Py_uhash_t hash);
PyObject *make_entered(OpObject *op, PyObject *inputs, PyObject *params, PyObject *shape, PyObject *dtype,
                       PyObject *key, Py_uhash_t hash);
PyObject *record_recipe(PyTypeObject *type, PyObject *op, PyObject *inputs, PyObject *params, PyObject *shape,
                        PyObject *dtype, PyObject *key, PyObject *code, int lasti);
PyObject *enter(PyObject *module, PyObject *object);
PyObject *record_any(OpObject *op, PyObject *const *inputs, Py_ssize_t count, PyObject *names);
/* Tensors with more elements are left to the general way: no product of sizes overflows. */
#define MOST_ELEMENTS (1LL << 31)

int same_numbers(PyObject *left, PyObject *right);
int is_seed(NodeObject *node);
int may_simplify(OpObject *op, PyObject *const *inputs, Py_ssize_t count);
PyObject *record_two(OpObject *op, NodeObject *x1, NodeObject *x2);
PyObject *record_product(OpObject *op, NodeObject *x1, NodeObject *x2);

/* --- constants (constants.c) --- */

/* What an array holds, read at one moment. It owns its parts. */
typedef struct {
    PyObject *dtype, *shape, *bytes;
} Contents;

int constants_start(void);
int is_array(PyObject *object);
int read_array(PyObject *array, Contents *contents);
void release_contents(Contents *contents);
PyObject *constant_of(const Contents *contents);
PyObject *find_constant(PyObject *dtype, PyObject *shape, PyObject *content, PyObject *data);
PyObject *find_integer(long long value);
PyObject *operand_beside(PyObject *operand, NodeObject *beside);

/* --- index expressions, updates, layout (indexing.c, selection.c, updates.c, layout.c) --- */

/* With more items, or of tensors with more axes, an index is read in the general way. */
#define MOST_ITEMS 16

/* What an index selects: template, lengths and operands, and the shape of the result. It owns its parts. */
typedef struct {
    PyObject *index, *lengths, *at, *shape;
    int covers; /* whether every element is selected, in order: then it is a reshape, or nothing at all */
} Selection;

extern PyTypeObject UpdateType, UpdaterType;
extern PyObject *names_pick, *names_shape; /* of parameters */

int indexing_start(void);
int layout_start(void);
int reducing_start(void);
int read_selection(PyObject *x, PyObject *index, Selection *selection);
void release_selection(Selection *selection);
PyObject *tensor_item(PyObject *x, PyObject *index);
PyObject *record_selection(PyObject *x, const Selection *selection);
int has_arrays(PyObject *index);

/* --- calls (calls.c) --- */

/* A call knows the tensors that stand for its outputs without owning them. Each of them owns the call, in the place of
   its inputs, and takes itself off the list when it dies. */
typedef struct {
    NodeObject node;
    PyObject *plan;
    PyObject *origins;
    PyObject *depth;
    Py_ssize_t outputs;
    NodeObject **handles;
} CallObject;

#define is_call(object) Py_IS_TYPE(object, &CallType) /* it has no subclasses */

extern PyTypeObject CallType;

int calls_start(void);

/* --- runs that are written (journal.c) --- */

int note_folded(CallObject *call);

/* --- pieces and steps (pieces.c, steps.c, notes.c) --- */

extern PyTypeObject PieceType, StepType, PendingType, NoteType, CallSweepType, SourcesType;

int notes_start(void);
int call_sweeps_start(void);
int terms_start(void);

/* --- recognising pieces (matching.c) --- */

extern PyTypeObject MatcherType;

Py_ssize_t *read_slots(PyObject *tuple, Py_ssize_t least, Py_ssize_t end, Py_ssize_t *count);

/* Whether two objects are the same or equal; -1 is an error. */
static inline int
agree(PyObject *one, PyObject *other)
{
    return one == other ? 1 : PyObject_RichCompareBool(one, other, Py_EQ);
}

/* --- derivatives that are recorded again (sweeps.c) --- */

extern PyTypeObject SweepType;

/* --- values in files (encoding.c) --- */

extern PyTypeObject EncoderType;

int encoding_start(void);
int laid_start(void);

/* --- passes (passes.c) --- */

int passes_start(void);

/* --- the units of a replay (units.c) --- */

extern PyTypeObject UnitTableType;

/* --- the functions of each file --- */

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

extern PyMethodDef table_methods[], node_methods[], given_methods[], origin_methods[], interning_methods[],
    call_function_methods[], piece_function_methods[], step_function_methods[], recording_methods[],
    operator_methods[], place_methods[], selection_methods[], constant_methods[], update_methods[],
    layout_methods[], reducing_methods[], matching_methods[], sweep_methods[], wiring_methods[], encoding_methods[],
    walk_methods[], note_function_methods[], call_sweep_function_methods[], term_methods[], tracking_methods[],
    substitution_methods[], product_methods[], bundle_methods[], chain_methods[],
    unit_methods[], laid_methods[], pass_methods[];

#endif
