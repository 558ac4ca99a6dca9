/* What an evaluation that repeats goes through: sites, matchers, pieces, rows of pieces, and the queue of those that wait
   to be folded. */

#ifndef UNSPOOL_EVALUATION_H
#define UNSPOOL_EVALUATION_H

#include "core.h"

/* --- recognising pieces (matching.c) --- */

typedef struct {
    Py_ssize_t slot, uses, count;
    int outside;
    PyObject *op, *type, *params; /* params is NULL if there are none to compare */
    Py_ssize_t *source;           /* the slot of each input; ~slot where it is met for the first time */
    PyObject *parts;              /* (slot, index) of parts that nothing reads, or NULL */
} MatchStep;

typedef struct {
    Py_ssize_t slot;
    int is_literal;
    PyObject *shape, *dtype;
} MatchInput;

typedef struct {
    PyObject_HEAD
    Py_ssize_t slots, steps, inputs, outputs, targets;
    MatchStep *step;
    MatchInput *input;
    Py_ssize_t *output, *target;
    PyObject *find_part;  /* returns a part of a bundle that is alive, or None */
    PyObject *leaves;     /* ops of leaves that are no literals */
    NodeObject **seen;    /* a table of the inputs, by their addresses, while they are told apart */
    size_t mask;          /* of a place in it */
} MatcherObject;

int match_nodes(const MatcherObject *self, PyObject *const *targets, NodeObject **node);
PyObject *nodes_at(NodeObject **node, const Py_ssize_t *slots, Py_ssize_t count);

/* --- sites and lines (sites.c) --- */

/* What of a plan is looked at in every step; Python's class has the rest. */
typedef struct {
    PyObject_HEAD
    PyObject *id, *output_shapes, *output_dtypes, *run;
    double seconds; /* of the fastest run that was timed; 0 before one was */
    long long peak; /* the most bytes that a run takes; 0 before anybody asked */
    char is_simple; /* nothing in it is a user's: no cycle goes through it (tracking.c) */
} PlanObject;

extern PyTypeObject PlanType;

void note_time(PlanObject *plan, double seconds);

#define is_plan(object) PyObject_TypeCheck(object, &PlanType)

/* What of a piece that is asked for again is looked at in every step; Python's class has the rest. */
typedef struct {
    PyObject_HEAD
    PyObject *plan; /* once it is ready */
    PyObject *match;         /* a matcher, or None */
    PyObject *origins;       /* of each instruction */
    PyObject *checks;        /* what tells whether it is private, by the indices of the outputs that are alive */
    PyObject *indices, *check; /* those that were asked for last: nearly always the next ones too */
    PyObject *apart_results; /* indices of results that are no part of it */
    Py_ssize_t results, length;
    long long nbytes, peak, kernels;
    char is_ready, is_large, has_bundles;
} SiteObject;

extern PyTypeObject SiteType;

#define is_site(object) PyObject_TypeCheck(object, &SiteType)

/* The site that matches some targets, as `find_match` found it; it owns what is in it. */
typedef struct {
    SiteObject *site;
    MatcherObject *matcher;
    NodeObject **node; /* by slot; borrowed */
    NodeObject *few[64];
} Match;

int find_match(PyObject *lines, PyObject *const *targets, Py_ssize_t count, Match *match);
void release_match(Match *match);

/* --- what engines count (counters.c) --- */

typedef struct {
    PyObject_HEAD
    long long calls, chains, derivatives, evaluations, fragments, kernel_calls, plan_hits, plan_misses, slabs_dropped;
} CountersObject;

/* What of a ledger is looked at in every step; Python's class has the rest. */
typedef struct {
    PyObject_HEAD
    long long noted, ceiling, peak, steps, kernels;
    char is_strict, is_tracking;
    PyObject *lock;     /* that threads which share a budget take in turn */
    PyObject *timeline; /* a list of samples, or None */
    PyObject *arrived;  /* a list of steps that were not looked at yet */
    Py_ssize_t crowd;   /* how long it may become before it is looked through */
    PyObject *held;     /* a dict of the values that are held, by id (holding.c) */
    PyObject *newest_call; /* a weak reference, or None */
} LedgerObject;

typedef struct {
    PyObject_HEAD
    long long length, newest;
} BoundsObject;

extern PyTypeObject CountersType, LedgerType, BoundsType;

int ledger_start(void);
int note_peak(LedgerObject *ledger, long long nbytes);
int note_folded_step(LedgerObject *ledger, CallObject *call, PyObject *slab);
extern PyObject *counters, *bounds; /* those of the process (given.c) */

void note_bounds(long long length, long long newest);

/* --- pieces and rows (pieces.c) --- */

typedef struct RowObject {
    PyObject_HEAD
    Py_ssize_t depth, nodes;
    struct RowObject *joined;
} RowObject;

struct QueueObject;

typedef struct {
    PyObject_HEAD
    PyObject *weak;
    PyObject *site;
    PyObject *inputs;
    PyObject *outputs;
    PyObject *residuals;
    PyObject *slab;
    PyObject *row;
    long long newest;
    long long oldest;          /* the lowest id of what belongs to it, or 0 if that was not looked for */
    char has_common;           /* whether something is inside of what is common to all */
    Py_ssize_t depth;
    struct QueueObject *queue; /* in which it waits, borrowed: it takes itself off when it dies */
    long long ticket;          /* its place there */
    char is_loose;
} PieceObject;

extern PyTypeObject RowType;

PieceObject *make_piece(PyObject *site, PyObject *inputs, NodeObject *const *outputs, Py_ssize_t count,
                        PyObject *residuals);
RowObject *place(PieceObject *piece, NodeObject *const *results, Py_ssize_t count);
RowObject *whole_row(RowObject *row);
int measure(PieceObject *piece);
NodeObject *output_alive(const PieceObject *piece, Py_ssize_t index);

/* --- the queue (queue.c) --- */

typedef struct QueueObject {
    PyObject_HEAD
    PyObject *ledger;    /* that is told of what was folded if it wants to know; or None */
    PieceObject **piece; /* borrowed; NULL for one that has died */
    Py_ssize_t room, head, count;
    long long first; /* the ticket of what stands at the head */
    Py_ssize_t most, after, crowd, many_nodes, fewest_long;
    PyObject *families; /* a dict, of which Python knows what is in it; or None */
} QueueObject;

extern PyTypeObject QueueType;

void leave_queue(PieceObject *piece);
int queue_start(void);
int queue_step(QueueObject *self, SiteObject *site, PyObject *inputs, NodeObject *const *outputs, Py_ssize_t count,
               PyObject *residuals);

/* --- folding (folding.c, calls.c) --- */

int folding_start(void);

/* What is around a piece that is folded. */
typedef struct {
    PyObject *readers; /* how many of the pieces that wait read a node, by its id; NULL for a repetition of what nobody has
                          read, of which two inputs may be one node by chance */
    long long later;   /* the lowest id of what pieces that came after it have computed */
} Around;

int fold_piece(QueueObject *queue, PieceObject *piece, const Around *around);
PyObject *cut_piece(QueueObject *queue, PieceObject *piece, PyObject *later, PyObject *readers);
int cutting_start(void);
NodeObject **nodes_inside(PyObject *walk, const PieceObject *piece, NodeObject *const *shown, Py_ssize_t count,
                          Py_ssize_t *slots);
int note_inside(PieceObject *piece, PyObject *seen, PyObject *readers);
long long oldest_of(PieceObject *piece);
CallObject *fold_into_call(PyObject *plan, PyObject *inputs, PyObject *origins, PyObject *id, PyObject *depth,
                           PyObject *residuals, PyObject *indices, NodeObject *const *tensors);

extern PyTypeObject PrivacyType;

/* --- what is held of steps (held.c, slabs.c) --- */

extern PyTypeObject HeldType, SlabType;

int move_slab(PyObject *slab, CallObject *call, PyObject *held);

/* --- replays (values.c, frames.c, levelling.c, describing.c) --- */

extern PyTypeObject ValuesType, FrameType, LevelsType;
extern PyMethodDef replaying_methods[];

int values_start(void);
int frames_start(void);
int describing_start(void);
long long peak_of(PlanObject *plan);
PyObject *value_in(PyObject *values, NodeObject *node);

/* --- running (running.c) --- */

extern PyTypeObject RunnerType;

extern PyObject *default_runner; /* of the engine that serves `eval()` */
extern PyObject *watched;        /* a context variable: the derivative that is being taken, if any */
extern PyObject *general_float;  /* what a tensor is as a number, in the general way */

int running_start(void);
PyObject *tensor_float(PyObject *self);

extern PyMethodDef site_functions[], folding_functions[], running_functions[];

#endif
