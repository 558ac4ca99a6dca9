"""The state of an iteration as one real vector, for solvers and norms, and back.

Only floating-point and complex leaves are in the vector: counters and flags are not part of a fixed point. A complex
leaf is two runs of reals, its real and its imaginary parts. The derivative of a map of complex numbers need not be
linear over them (think of a conjugate), but it is always linear over the reals, and the adjoint of that map of reals is
what reverse mode computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import COMPLEX, FLOAT64, INEXACT, promote, real_dtype
from unspool._ops.elementwise import astype, imag, real
from unspool._ops.elementwise.complex_numbers import from_parts
from unspool._ops.layout import concat, reshape, split

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Packing:
    """Where each leaf of a state lies in its vector.

    Parameters
    ----------
    leaves : sequence of Tensor or ndarray
        A state, for its shapes and dtypes.

    Attributes
    ----------
    positions : list of int
        Which leaves are in the vector.
    size : int
    dtype : dtype
        Of the vector: real, and as precise as the most precise leaf.
    coarsest : float
        The machine epsilon of the least precise leaf.
    """

    __slots__ = ("_leaves", "coarsest", "dtype", "positions", "size")

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.positions = [i for i, leaf in enumerate(leaves) if leaf.dtype in INEXACT]
        self._leaves = [(tuple(leaves[i].shape), leaves[i].dtype) for i in self.positions]
        reals = [real_dtype(dtype) for _, dtype in self._leaves]
        self.size = sum(_reals(shape, dtype) for shape, dtype in self._leaves)
        self.dtype = promote(*reals) if reals else FLOAT64
        self.coarsest = max((float(np.finfo(dtype).eps) for dtype in reals), default=0.0)

    # --- arrays

    def pack(self, leaves: Sequence[Any]) -> Any:
        """Return the vector of a state of arrays. It may be a view."""
        runs: list[Any] = []
        for i in self.positions:
            leaf = np.asarray(leaves[i])
            runs += [leaf.real.reshape(-1), leaf.imag.reshape(-1)] if leaf.dtype in COMPLEX else [leaf.reshape(-1)]
        return runs[0] if len(runs) == 1 else np.concatenate(runs or [np.empty(0)], dtype=self.dtype)

    def unpack(self, vector: Any, others: Sequence[Any]) -> list[Any]:
        """Return the state that a vector stands for; leaves that are not in the vector are those of ``others``."""
        leaves, start = list(others), 0
        for i, (shape, dtype) in zip(self.positions, self._leaves, strict=True):
            middle = start + prod(shape)
            leaf = vector[start:middle]
            if dtype in COMPLEX:
                start, middle = middle, middle + prod(shape)
                leaf = leaf + 1j * vector[start:middle]
            leaves[i] = leaf.astype(dtype, copy=False).reshape(shape)
            start = middle
        return leaves

    # --- tensors

    def pack_tensors(self, leaves: Sequence[Tensor]) -> Tensor:
        """Return the vector of a state of tensors."""
        runs: list[Any] = []
        for i in self.positions:
            leaf = leaves[i]
            halves = [real(leaf), imag(leaf)] if leaf.dtype in COMPLEX else [leaf]
            runs += [astype(reshape(half, (-1,)), self.dtype) for half in halves]
        return runs[0] if len(runs) == 1 else concat(runs)

    def unpack_tensors(self, vector: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
        """Return the state that a vector of the graph stands for, with the remaining leaves of ``others``."""
        leaves, runs = list(others), iter(self._split(vector))
        for i, (shape, dtype) in zip(self.positions, self._leaves, strict=True):
            leaf = next(runs)
            if dtype in COMPLEX:
                leaf = from_parts(leaf, next(runs))
            leaves[i] = reshape(astype(leaf, dtype), shape)
        return leaves

    def _split(self, vector: Tensor) -> list[Tensor]:
        """Return the runs of reals that a vector consists of."""
        ends = [prod(shape) for shape, dtype in self._leaves for _ in range(2 if dtype in COMPLEX else 1)]
        return [vector] if len(ends) == 1 else split(vector, list(accumulate(ends))[:-1])


def _reals(shape: tuple[int, ...], dtype: Any) -> int:
    return prod(shape) * (2 if dtype in COMPLEX else 1)
