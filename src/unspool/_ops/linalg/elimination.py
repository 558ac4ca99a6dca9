"""Linear algebra on rationals, for the tape's exact mode: Gaussian elimination, one matrix at a time."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from unspool.errors import RankError


def solve(a: Any, b: Any) -> Any:
    """Solve ``a @ x = b`` exactly; ``b`` is a vector only if it has one axis."""
    if b.ndim == 1:
        return solve(a, b[:, None])[:, 0]
    return _each(_solve, b.shape[-2:], a, b)


def inverse(a: Any) -> Any:
    """Invert matrices exactly."""
    return solve(a, np.broadcast_to(np.eye(a.shape[-1], dtype=object), a.shape))


def determinant(a: Any) -> Any:
    """Return exact determinants."""
    return _each(_determinant, (), a)


def adjugate(a: Any) -> Any:
    """Return exact adjugates, from the definition."""
    return _each(_adjugate, a.shape[-2:], a)


def _each(function: Callable[..., Any], shape: tuple[int, ...], *stacks: Any) -> Any:
    """Apply a function of matrices, with results of the given shape, to every matrix of stacks of them."""
    stack = stacks[0].shape[:-2]
    result = np.empty((*stack, *shape), object)
    for index in np.ndindex(stack):
        result[index] = function(*[x[index] for x in stacks])
    return result


def _solve(a: Any, b: Any) -> Any:
    size = len(a)
    reduced, product, rank = _eliminated(a, b)
    if product == 0:
        raise RankError(f"a singular matrix has no inverse: its rank is {rank}, its size {size}")
    return reduced[:, size:]


def _determinant(a: Any) -> Any:
    return _eliminated(a, a[:, :0])[1]


def _eliminated(a: Any, b: Any) -> tuple[Any, Fraction, int]:
    """Return ``[a, b]`` with ``a`` reduced to the identity where it can be, the determinant and the rank of ``a``."""
    rows = np.empty((len(a), a.shape[1] + b.shape[1]), object)
    rows[...] = np.concatenate([a, b], axis=1)
    product, rank = Fraction(1), 0
    for column in range(a.shape[1]):
        candidates = [row for row in range(rank, len(rows)) if rows[row, column] != 0]
        if not candidates:
            product = Fraction(0)
            continue
        pivot = candidates[0]
        if pivot != rank:
            rows[[rank, pivot]] = rows[[pivot, rank]]
            product = -product
        product = product * rows[rank, column]
        rows[rank] = rows[rank] * (1 / Fraction(rows[rank, column]))
        for row in range(len(rows)):
            if row != rank and rows[row, column] != 0:
                rows[row] = rows[row] - rows[row, column] * rows[rank]
        rank += 1
    return rows, product, rank


def _adjugate(a: Any) -> Any:
    result = np.empty(a.shape, object)
    for i, j in np.ndindex(a.shape):
        minor = np.delete(np.delete(a, j, axis=0), i, axis=1)
        result[i, j] = (-1) ** (i + j) * _determinant(minor)
    return result
