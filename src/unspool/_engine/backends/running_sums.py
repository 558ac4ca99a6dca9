"""A sum that a loop carries and adds to in every step.

The loop owns the array, so terms are added in place. Products of matrices are added as BLAS computes them, C ← A B + C,
and those over a short axis not even one by one: to read and write the sum takes longer than to multiply. Their factors
are put side by side until they make an axis that is worth it, and then there is one product for all of them. What that
gives depends on the terms and their order alone, not on how many steps are made at a time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from unspool._engine.backends.buffers import POOL

# Factors are put side by side until their common axis is as long as this, or they take as much memory as the sum.
GATHERED = 64

# Only products over an axis that is shorter than that by this factor wait for others: each costs a copy of its factors.
WORTH_WAITING = 4

# Sums of fewer bytes than this are not worth code of their own.
SMALLEST = 1 << 14

BLAS_TYPES = frozenset(map(np.dtype, "fdFD"))


def is_worth(shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether a sum is large, and of matrices of a type that BLAS knows."""
    return len(shape) == 2 and dtype in BLAS_TYPES and dtype.itemsize * shape[0] * shape[1] >= SMALLEST


def nothing(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return what a sum begins with: -0.0, since adding it to a number changes nothing, not even the sign of zero."""
    return np.full(shape, 0 if dtype.kind in "Obiu" else -0.0, dtype)


def _gathered(shape: tuple[int, ...]) -> int:
    """Return how long the axis is that factors are put side by side for; 0 for what is no matrix."""
    if len(shape) != 2 or not any(shape):
        return 0
    rows, columns = shape
    return min(GATHERED, rows * columns // (rows + columns))


class RunningSum:
    """An array that is added to; it is the caller's no longer until it is `settled`.

    Attributes
    ----------
    array : ndarray
        The sum, without the products that wait to be multiplied.
    """

    __slots__ = ("_filled", "_lefts", "_length", "_rights", "array")

    def __init__(self, array: Any) -> None:
        self.array = array
        self._length = _gathered(array.shape)
        self._lefts: Any = None
        self._rights: Any = None
        self._filled = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the sum and of the factors that are put side by side."""
        waiting = 0 if self._lefts is None else self._lefts.nbytes + self._rights.nbytes
        return int(self.array.nbytes + waiting)

    def add(self, term: Any) -> RunningSum:
        """Add an array."""
        np.add(self.array, term, out=self.array)
        return self

    def add_product(self, x1: Any, x2: Any, *, subscripts: str) -> RunningSum:
        """Add the product of two matrices."""
        left, right = factors(x1, x2, subscripts)
        if WORTH_WAITING * left.shape[1] > self._length:
            add_product(self.array, left, right)
        else:
            self._gather(left, right)
        return self

    def settled(self) -> Any:
        """Return the array, with everything in it that was added."""
        self._multiply()
        if self._lefts is not None:
            lefts, self._lefts = self._lefts, None
            POOL.give(lefts)
            rights, self._rights = self._rights, None
            POOL.give(rights)
        return self.array

    def _gather(self, left: Any, right: Any) -> None:
        array, end = self.array, self._filled + left.shape[1]
        if self._lefts is None:
            self._lefts = POOL.take((self._length, array.shape[0]), array.dtype)
            self._rights = POOL.take((self._length, array.shape[1]), array.dtype)
        elif end > self._length:
            self._multiply()
            end = left.shape[1]
        self._lefts[self._filled : end] = left.T
        self._rights[self._filled : end] = right
        self._filled = end

    def _multiply(self) -> None:
        if self._filled:
            add_product(self.array, self._lefts[: self._filled].T, self._rights[: self._filled])
            self._filled = 0


def settled(value: Any) -> Any:
    """Return the array of a running sum, or what is none as it is."""
    return value.settled() if type(value) is RunningSum else value


# --- products --------------------------------------------------------------------------------------------------------


def factors(x1: Any, x2: Any, subscripts: str) -> tuple[Any, Any]:
    """Return the matrices A and B whose product AB is the contraction of two matrices over one axis."""
    left, right = _oriented(subscripts)
    a, b = (x1, x2) if left < 2 else (x2, x1)
    return a.T if left % 2 else a, b.T if right % 2 else b


@lru_cache(maxsize=4096)
def _oriented(subscripts: str) -> tuple[int, int]:
    """Return how operands make the rows and the columns of a product: 1 if transposed, and 2 more if exchanged."""
    labels, out = subscripts.split("->")
    s1, s2 = labels.split(",")
    exchanged = out[0] in s2
    if exchanged:
        s1, s2 = s2, s1
    return 2 * exchanged + (s1[0] != out[0]), 2 * exchanged + (s2[1] != out[1])


def add_product(total: Any, a: Any, b: Any) -> None:
    """Add the product of two matrices to an array."""
    if total.flags.c_contiguous:
        a, b, target = b.T, a.T, total.T  # BLAS writes columns: C' = B'A'
    elif total.flags.f_contiguous:
        target = total
    else:
        np.add(total, np.matmul(a, b), out=total)
        return
    flip_a, flip_b = not a.flags.f_contiguous, not b.flags.f_contiguous
    _gemm(total.dtype)(
        1.0, a.T if flip_a else a, b.T if flip_b else b, 1.0, target, trans_a=flip_a, trans_b=flip_b, overwrite_c=True
    )


@lru_cache(maxsize=8)
def _gemm(dtype: Any) -> Any:
    from scipy.linalg import get_blas_funcs

    return get_blas_funcs("gemm", dtype=dtype)
