/* The native backend: programs as tables of instructions, run over NumPy's own inner loops.

   A program is made by `unspool._engine.backends.native` from a plan. Every value in it has a *slot*: a pointer, and a layout
   that is known when the program is made. An instruction calls a function on some slots: most often an inner loop of a
   ufunc, which NumPy would call with the same arguments, so the bits are NumPy's. What has no such function is a
   call-back into Python.

   Nothing in a program changes when it runs, but for its timers. Pointers and temporaries are in a frame, and frames are on a stack that
   each thread has, so programs may run in several threads and inside of each other. */

#ifndef UNSPOOL_NATIVE_H
#define UNSPOOL_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL unspool_native_array
#define PY_UFUNC_UNIQUE_SYMBOL unspool_native_ufunc
#ifndef UNSPOOL_NATIVE_MODULE
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

enum { MOST_OPERANDS = 6, MOST_ARGUMENTS = 14, MOST_READ = 64, MOST_AXES = 32, ALIGNMENT = 64 };

/* What an instruction does; the numbers are those of `unspool._engine.backends.native_program`. */
enum {
    OP_LOOP,     /* an inner loop of a ufunc, element by element */
    OP_FEW,      /* arithmetic on doubles */
    OP_REDUCE,   /* an inner loop of a ufunc that adds to its first operand */
    OP_GUFUNC,   /* an inner loop of a generalised ufunc */
    OP_DOT,      /* the product of two vectors */
    OP_COPY,     /* elements of one slot into another */
    OP_CAST,     /* the same, converted */
    OP_FILL,     /* one value into all elements of a slot */
    OP_SELECT,   /* elements of one slot or another, as a third one says */
    OP_TAKE,     /* rows by number */
    OP_VIEW,     /* a pointer into another slot */
    OP_PICK,     /* the same, at positions that other slots hold */
    OP_CALL,     /* a Python function */
    OP_IF_ZERO,  /* skip instructions if a number is zero */
    OP_IF_OUTSIDE, /* skip instructions if a number is outside of a range, or not a number */
    OP_SKIP,     /* skip instructions */
    OP_FORTRAN,  /* a routine of BLAS or LAPACK; skip instructions if it fails */
    OP_CHECK,    /* skip instructions unless numbers are as they most often are */
    OP_TRIANGLE, /* zeros in one half of a matrix */
    OP_SHIFT,    /* add a number to small integers */
    OP_PARITY,   /* the sign of the row exchanges of a factorisation */
    OP_FUSE,     /* run some of the instructions after it block by block of rows */
    OP_POSITIONS, /* the numbers of the elements that an index selects */
    OP_PUT,      /* values into elements by number, or added to them */
    OP_DRAW,     /* random numbers */
};

/* Converts elements: how many, from where, with which stride, to where. */
typedef void CastFunc(npy_intp count, const char *from, npy_intp from_stride, char *to, npy_intp to_stride);

/* Where the memory of a slot is. */
enum { IN_INPUT, IN_CONSTANT, IN_FRAME, IN_OUTPUT, IN_VIEW };

typedef struct {
    int home;
    Py_ssize_t at;       /* which input or output; the offset in the frame; what an output is a view of */
    npy_intp nbytes;     /* of the elements, without gaps */
    PyObject *array;     /* of a constant */
    int is_whole;        /* an input has to be all of the array that its memory belongs to */
    PyArray_Descr *descr;
    int ndim;
    npy_intp *shape;     /* followed by the strides */
    npy_intp *strides;
    int order;           /* of the axes in memory: 'C', 'F', 'K' for another one without gaps, or 0 */
} Slot;

typedef struct Instruction Instruction;
typedef void FewFunc(const Instruction *it, char **at);

struct Instruction {
    int opcode;
    int operands;             /* slots it reads and then the one it fills */
    int slots[MOST_OPERANDS];
    int ndim;                 /* outer axes */
    npy_intp count;           /* elements on the inner axis */
    npy_intp *shape;          /* of the outer axes */
    npy_intp *outer;          /* strides of each operand on each of them */
    npy_intp inner[MOST_OPERANDS];
    PyUFuncGenericFunction loop;
    PyArray_DotFunc *dot;
    CastFunc *cast;
    FewFunc *few;
    int by_rows;              /* whether that goes through the last of the outer axes */
    int is_sum;               /* rows of doubles that are added to one */
    void *data;
    npy_intp *numbers;        /* what else there is to know */
    Py_ssize_t given;
    double low, high;
    char *constants;          /* of a routine */
    PyObject *object;
};

/* How often an instruction ran, and how long that took. */
typedef struct {
    long long calls, nanoseconds;
} Timer;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Py_ssize_t slots, instructions, inputs, outputs;
    Py_ssize_t arrays;        /* that are made for outputs, and for what outputs are views of */
    Slot *slot;
    Instruction *instruction;
    int *input, *output;      /* the slots of inputs and outputs */
    Py_ssize_t frame;         /* bytes of temporaries */
    int calls_back;           /* always; not only if something is rare */
    int is_long;              /* it takes so long that others get the interpreter's lock while it runs */
    int is_given_up;          /* a call-back gave what the program was not made for */
    PyObject *fallback;       /* does the same in Python */
    PyObject *others;         /* a list of programs that do the same on arrays of other layouts */
    PyObject *about;          /* what it was made from, for reports */
    Timer *timer;             /* of each instruction, if it ran while a profile was taken */
    int session;              /* of which profile */
} Program;

extern PyTypeObject ProgramType;

/* --- frames (frame.c) --- */

typedef struct {
    char **pointer;   /* of each slot */
    char *memory;     /* of the temporaries */
    Py_ssize_t taken; /* of the stack of the thread */
    void *own;        /* memory of its own, where the stack has too little */
} Frame;

int frame_enter(Frame *frame, Py_ssize_t slots, Py_ssize_t bytes);
void frame_leave(Frame *frame);

/* --- memory of large arrays (memory.c) --- */

int memory_setup(void);
PyObject *memory_array(int ndim, npy_intp *shape, PyArray_Descr *descr);
PyObject *memory_empty(PyObject *module, PyObject *args);
PyObject *memory_limit(PyObject *module, PyObject *bytes);
PyObject *memory_kept(PyObject *module, PyObject *nothing);

/* --- chains (chain.c) --- */

PyObject *run_chain(PyObject *module, PyObject *args);

/* --- conversions (casts.c) --- */

CastFunc *find_cast(int from, int to);

/* --- arithmetic on doubles (few.c) --- */

FewFunc *find_few(Instruction *it, int symbol);
void add_doubles(double *total, const double *term, npy_intp count);
void add_rows(double *total, const char *term, npy_intp count, npy_intp rows, npy_intp stride);

/* --- linear algebra (lapack.c) --- */

int find_routine(Instruction *it, PyObject *object, Py_ssize_t slots);
int run_fortran(const Instruction *it, char **pointer);
int run_check(const Instruction *it, char **at);
void run_triangle(const Instruction *it, char *at);
void run_shift(const Instruction *it, char **at);
void run_parity(const Instruction *it, char **at);

/* --- elements by number (indexing.c) --- */

int run_positions(const Instruction *it, char **at);
int run_put(const Instruction *it, char **at);
int has_its_numbers(const Instruction *it);

/* --- random numbers (random.c) --- */

void run_draw(const Instruction *it, char **at);

/* --- running (run.c) --- */

/* Without success: an error is set; the program is not made for what it met, this time or ever. */
enum { DONE = 0, FAILED = -1, NOT_NOW = 1, GIVEN_UP = 2 };

int run_program(Program *program, char **pointer);

/* Move the pointers of the operands to the next place on the first of the outer axes; tell whether there is one. */
static inline int
move_on_over(const Instruction *it, int axes, npy_intp *index, char **at)
{
    for (int axis = axes - 1; axis >= 0; axis--) {
        const npy_intp *steps = it->outer + axis;
        for (int i = 0; i < it->operands; i++, steps += it->ndim) {
            at[i] += *steps;
        }
        if (++index[axis] < it->shape[axis]) {
            return 1;
        }
        steps = it->outer + axis;
        for (int i = 0; i < it->operands; i++, steps += it->ndim) {
            at[i] -= it->shape[axis] * *steps;
        }
        index[axis] = 0;
    }
    return 0;
}

/* The same on all outer axes. */
static inline int
move_on(const Instruction *it, npy_intp *index, char **at)
{
    return move_on_over(it, it->ndim, index, at);
}

/* Copy bytes; most often there are a few, and then a call costs more than the copy. */
static inline void
copy_bytes(char *to, const char *from, npy_intp count)
{
    if (count == 8) {
        memcpy(to, from, 8);
    }
    else if (count == 64) {
        memcpy(to, from, 64);
    }
    else {
        memcpy(to, from, count);
    }
}


/* --- profiles (profile.c) --- */

extern int profile_session;
extern long long profile_total;

long long nanoseconds(void);
int profile_enter(Program *program);
void profile_leave(Program *program, long long begin, long long steps);
PyObject *profile_start(PyObject *module, PyObject *nothing);
PyObject *profile_stop(PyObject *module, PyObject *nothing);
PyObject *profile_counted(PyObject *module, PyObject *nothing);
PyObject *profile_count(PyObject *module, PyObject *amount);
PyObject *profile_look(PyObject *module, PyObject *nothing);

/* --- calling (call.c) --- */

PyObject *call_program(PyObject *self, PyObject *const *args, size_t flags, PyObject *names);
int lies_like(PyArrayObject *array, const Slot *slot);
int accept_array(Program *program, int slot, PyObject *value, char **pointer, char *number);
PyObject *new_array(const Slot *slot);

/* --- loops (loop.c) --- */

/* A loop and what it runs on; `unspool._engine.backends.native` says what each is. */
typedef struct {
    PyObject *targets, *histories, *written, *sums, *adders; /* tuples: known once and for all, as are the flags */
    int is_watched, is_reverse;
    Py_ssize_t first, step, count;
    PyObject *constants, *carry, *rows, *history, *write, *totals; /* lists */
    PyObject *counter;
} Given;

int read_described(PyObject *described, Given *given);
PyObject *drive_loop(Program *program, const Given *given);
PyObject *program_drive(PyObject *self, PyObject *args);

/* --- loops in one go (whole.c) --- */

PyObject *program_whole(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
