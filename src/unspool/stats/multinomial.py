"""The multinomial distribution: how often each of several outcomes comes in n trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops import reduction
from unspool._ops.elementwise import abs, add, equal, exp, floor, gammaln, logical_and, subtract, where, xlogy
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_operands
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["logpmf", "pmf"]

# How far from 1 the sum of probabilities may be: a few units of rounding for each.
_UNITS = 100


def logpmf(x: Any, n: Any, p: Any) -> Tensor:
    """Return the logarithm of the probability of counts.

    Parameters
    ----------
    x : array_like
        Counts in the last axis. What does not add up to ``n`` has the probability 0.
    n : array_like
        The number of trials.
    p : array_like
        The probability of each outcome, in the last axis; they add up to 1, or the result is NaN.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multinomial.pmf([1, 1], 2, [0.5, 0.5]).eval()
    array(0.5)
    """
    counts, trials, chances = (as_inexact(operand) for operand in as_operands(x, n, p))
    if not counts.ndim or not chances.ndim:
        raise ShapeError(
            f"multinomial takes counts and probabilities in the last axis, got {counts.shape} and {chances.shape}"
        )
    terms = subtract(xlogy(counts, chances), gammaln(add(counts, 1)))
    value = add(gammaln(add(trials, 1)), reduction.sum(terms, axis=-1))
    whole = reduction.all(logical_and(counts >= 0, equal(counts, floor(counts))), axis=-1)
    value = where(logical_and(whole, equal(reduction.sum(counts, axis=-1), trials)), value, -np.inf)
    gap = abs(subtract(reduction.sum(chances, axis=-1), 1))
    makes_sense = logical_and(gap < _UNITS * float(np.finfo(chances.dtype).eps), reduction.all(chances >= 0, axis=-1))
    return where(makes_sense, value, np.nan)


def pmf(x: Any, n: Any, p: Any) -> Tensor:
    """Return the probability of counts, with the arguments of `logpmf`.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multinomial.pmf([[2, 0], [3, 0]], 2, [0.5, 0.5]).eval()
    array([0.25, 0.  ])
    """
    return exp(logpmf(x, n, p))
