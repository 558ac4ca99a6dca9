/* Frames: pointers and temporaries of a run, on a stack that each thread has. */

#include "native.h"

/* What a thread keeps; a run that needs more has memory of its own. */
enum { STACK = 1 << 20 };

static _Thread_local char *stack = NULL;
static _Thread_local Py_ssize_t top = 0;

static Py_ssize_t
rounded(Py_ssize_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

int
frame_enter(Frame *frame, Py_ssize_t slots, Py_ssize_t bytes)
{
    Py_ssize_t pointers = rounded(slots * (Py_ssize_t)sizeof(char *));
    Py_ssize_t needed = pointers + rounded(bytes);
    char *memory;
    frame->own = NULL;
    frame->taken = 0;
    if (stack == NULL) {
        stack = aligned_alloc(ALIGNMENT, STACK);
    }
    if (stack != NULL && needed <= STACK - top) {
        memory = stack + top;
        top += needed;
        frame->taken = needed;
    }
    else {
        memory = frame->own = aligned_alloc(ALIGNMENT, needed + ALIGNMENT);
        if (memory == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    frame->pointer = (char **)memory;
    frame->memory = memory + pointers;
    return 0;
}

/* Frames are left in the opposite order in which they were entered. */
void
frame_leave(Frame *frame)
{
    top -= frame->taken;
    free(frame->own);
}
