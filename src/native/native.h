/* The native backend: programs as tables of instructions, run over NumPy's own inner loops.

   A program is made by `unspool._engine.native` from a plan. Every value in it has a *slot*: a pointer, and a layout
   that is known when the program is made. An instruction calls a function on some slots: most often an inner loop of a
   ufunc, which NumPy would call with the same arguments, so the bits are NumPy's. What has no such function is a
   call-back into Python.

   Nothing in a program changes when it runs. Pointers and temporaries are in a frame, and frames are on a stack that
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

enum { MOST_OPERANDS = 6, MOST_AXES = 32, ALIGNMENT = 64 };

/* What an instruction does; the numbers are those of `unspool._engine.native_program`. */
enum {
    OP_LOOP,     /* an inner loop of a ufunc, element by element */
    OP_ARITHMETIC, /* +, -, * or / on a few doubles */
    OP_REDUCE,   /* an inner loop of a ufunc that adds to its first operand */
    OP_MATMUL,   /* an inner loop of `matmul` */
    OP_DOT,      /* the product of two vectors */
    OP_COPY,     /* elements of one slot into another */
    OP_CAST,     /* the same, converted */
    OP_FILL,     /* one value into all elements of a slot */
    OP_SELECT,   /* elements of one slot or another, as a third one says */
    OP_TAKE,     /* rows by number */
    OP_VIEW,     /* a pointer into another slot */
    OP_PICK,     /* the same, at positions that other slots hold */
    OP_CALL,     /* a Python function */
    OP_IF_ZERO,  /* skip instructions unless a number is zero */
    OP_IF_OUTSIDE, /* skip instructions unless a number is outside of a range, or not a number */
    OP_SKIP,     /* skip instructions */
};

/* Converts elements: how many, from where, with which stride, to where. */
typedef void CastFunc(npy_intp count, const char *from, npy_intp from_stride, char *to, npy_intp to_stride);

/* Where the memory of a slot is. */
enum { IN_INPUT, IN_CONSTANT, IN_FRAME, IN_OUTPUT, IN_VIEW };

typedef struct {
    int home;
    Py_ssize_t at;       /* which input or output; the offset in the frame */
    npy_intp nbytes;     /* of the elements, without gaps */
    PyObject *array;     /* of a constant */
    PyArray_Descr *descr;
    int ndim;
    npy_intp *shape;     /* followed by the strides */
    npy_intp *strides;
    int order;           /* of the axes in memory: 'C', 'F', or 0 for neither */
} Slot;

typedef struct {
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
    void *data;
    npy_intp *numbers;        /* what else there is to know */
    Py_ssize_t given;
    double low, high;
    PyObject *object;
} Instruction;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Py_ssize_t slots, instructions, inputs, outputs;
    Slot *slot;
    Instruction *instruction;
    int *input, *output;      /* the slots of inputs and outputs */
    Py_ssize_t frame;         /* bytes of temporaries */
    int calls_back;
    int is_given_up;          /* a call-back gave what the program was not made for */
    PyObject *fallback;       /* does the same in Python */
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

/* --- conversions (casts.c) --- */

CastFunc *find_cast(int from, int to);

/* --- running (run.c) --- */

/* Without success: an error is set; the program is not made for what it met, this time or ever. */
enum { DONE = 0, FAILED = -1, NOT_NOW = 1, GIVEN_UP = 2 };

int run_program(Program *program, char **pointer);

/* --- programs (program.c) --- */

int accept_array(Program *program, int slot, PyObject *value, char **pointer, char *number);
PyObject *new_array(const Slot *slot);

/* --- loops (loop.c) --- */

PyObject *program_drive(PyObject *self, PyObject *args);

#endif
