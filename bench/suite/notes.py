"""What the workloads show, and why unspool loses where it does: the words of the page of results.

There are no measured numbers here; those come from the run. Whether a reason is printed depends on the run, too: only
where ours is slower or larger than the best peer.
"""

from __future__ import annotations

from typing import NamedTuple


class Note(NamedTuple):
    """What a workload is and what its numbers mean, and why a peer may be faster or smaller."""

    meaning: str
    why: str


# True of every compiled loop.
COMPILED = "A compiled loop has no Python between its operations, and no value in it can be looked at while it runs."

_WORDS = {
    "B1": (
        """Power iteration with a dense symmetric matrix, until the vector stands still. A step is one product of a
        matrix and a vector, so what counts is how often the matrix is read. PyTorch and autograd add an outer product
        of the size of the matrix to the gradient in every step; unspool gathers them into one product of matrices at
        the end, as one would by hand.""",
        f"""What unspool adds to the arithmetic is the bookkeeping of a step: looking at the change, and the record of
        what was computed. The vectors of all steps are kept, so that their products can be gathered; Equinox keeps a
        few of them and computes the others again. {COMPILED}""",
    ),
    "B2": (
        """Sinkhorn's iteration for entropic transport, until the potentials stand still. Everybody's loop makes two
        matrices of exponentials in every step. The driver of unspool makes one matrix and multiplies with it, which is
        the same iteration in other variables; the forms called *scaled* do that in PyTorch and by hand. *remat* and
        *checkpoint* recompute a step in the backward pass instead of keeping its matrices.""",
        """PyTorch with the same change of variables, written by hand, does the same products of a matrix and a vector;
        only what a step adds to them differs.""",
    ),
    "B3": (
        """CP decomposition by alternating least squares, the residual read after every sweep. The limit gathers the
        gradient of the data over many sweeps into one product of matrices.""",
        f"""A sweep is a dozen operations around a few large products, and the arrays between them go through memory one
        operation at a time. {COMPILED}""",
    ),
    "B4": (
        """Tensor renormalisation of the Ising model: two singular value decompositions a step, cut at ranks that are
        read off the values. Dropped values are equal to rounding, and the rules that libraries have for the SVD divide
        by their differences; that is why they return NaN. To have a peer at all, PyTorch runs a second time with a safe
        rule, written by hand as users of tensor networks do. [TRG](trg.md) tells more.""",
        """The safe rule of PyTorch leaves out gaps that are zero and asks nothing else. Ours decides at every
        decomposition whether the derivative exists, and refuses if it does not.""",
    ),
    "B5": (
        """Corner transfer matrices for an infinite quantum state, until the spectrum of a corner stands still, and the
        gradient of an energy. *At the fixed point* the gradient solves one linear equation instead of a
        backward pass through all steps.""",
        """A step is a few large contractions and an eigendecomposition, in the same BLAS and LAPACK for everybody: the
        order of contractions and what is kept for the backward pass decide.""",
    ),
    "B6": (
        """Imaginary-time evolution of a chain of spins. Ranks follow the spectrum, so shapes change while the loop
        runs, and a compiled loop cannot be written. PyTorch is shown with its own SVD and with a safe one.""",
        """The loop is thousands of small decompositions and contractions, so that what an operation costs beyond its
        arithmetic decides.""",
    ),
    "B7": (
        """The density-matrix renormalisation group, with the gradient in all couplings. An eigenvector is found by
        Lanczos at every bond, and its derivative solves a linear equation. Two sites at a time have no peer here.""",
        """The time is that of applying an operator to a vector, for eigenvectors and for their derivatives, in the same
        BLAS for everybody: what an application costs beyond its arithmetic decides.""",
    ),
    "B8": (
        """Two loops whose steps are products of matrices: Newton–Schulz for the polar factor, and the Tucker
        decomposition by orthogonal iteration (HOOI), with decompositions inside.""",
        COMPILED,
    ),
    "B9": (
        """A loop on eight numbers, whose arithmetic is next to nothing: it shows what a library adds to a step. A
        compiled loop adds nothing and wins by far. Among the loops that can be looked at, in Python, compare *plain*
        with PyTorch and autograd.""",
        """`us.iterate` runs its steps without Python in between, as JAX does, but one operation after the other, over
        NumPy's inner loops; a compiler makes one of all of them. Values can be looked at in a plain loop, whose steps
        are recorded one by one.""",
    ),
    "B10": (
        """A long loop and its gradient under budgets: shares of the bytes that unspool keeps without a limit. Every run
        is a fresh process, and its time, by the wall, has in it what getting memory from the system takes. Under every
        budget the gradient has the same bits.""",
        f"""{COMPILED} Equinox also chooses its checkpoints for a loop whose most steps it was told. Our growth has in
        it what small budgets do not cover: the records of the steps, code, and buffers of NumPy.""",
    ),
    "B11": (
        """Power iteration and the loop on eight numbers, with more and more steps. Time and memory are straight lines
        if a step costs the same however many came before. The table has the fit, each point weighed by its size, and
        the most that a point is off it.""",
        f"As in B1 and B9. {COMPILED}",
    ),
    "B12": (
        """From starting Python to a gradient: a script that imports the library, runs a short loop and differentiates
        it. What one waits for is importing and compiling.""",
        """The first loop of a process imports the parts of unspool that it needs, and describes its step, so that it is
        recognised when it comes again. HIPS autograd does neither.""",
    ),
    "B13": (
        """Many small loops, each with something that a loop of a user has: a row of a table, a batch of its own size, a
        gradient inside, a history, a branch, steps that are rejected. Sizes are small, so that what counts is what a
        library adds to a step.""",
        """A loop is fast where the engine recognises that its steps are alike, and folds them: from 128 operations on.
        The gradient of a shorter one is recorded operation by operation.""",
    ),
}

NOTES = {key: Note(*(" ".join(text.split()) for text in words)) for key, words in _WORDS.items()}
