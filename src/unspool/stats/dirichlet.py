"""The Dirichlet distribution of probabilities that add up to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import equal
from unspool._ops import layout, reduction
from unspool._ops.elementwise import abs, add, exp, gammaln, logical_and, subtract, where, xlogy
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_operands
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["logpdf", "pdf"]

# How far from 1 the sum of probabilities may be, as in SciPy.
_SLACK = 1e-9


def logpdf(x: Any, alpha: Any) -> Tensor:
    """Return the logarithm of the density.

    Parameters
    ----------
    x : array_like
        Probabilities in the *first* axis, as in SciPy, which add up to 1; the last may be left out. What is not
        positive or adds up to something else has the density 0.
    alpha : array_like
        One concentration for each.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.dirichlet.logpdf([0.2, 0.3, 0.5], [1.0, 1.0, 1.0]).eval()
    array(0.69314718)
    """
    x, concentration = (as_inexact(operand) for operand in as_operands(x, alpha))
    if concentration.ndim != 1 or not x.ndim:
        raise ShapeError(
            f"dirichlet takes probabilities and one concentration for each, got {x.shape} and alpha of "
            f"shape {concentration.shape}"
        )
    size = concentration.shape[0]
    if equal(x.shape[0], size - 1) is True:
        x = layout.concat([x, subtract(1, reduction.sum(x, axis=0, keepdims=True))], axis=0)
    if equal(x.shape[0], size) is False:
        raise ShapeError(f"dirichlet takes {size} probabilities, or all but the last, got {x.shape[0]}")
    columns = layout.reshape(concentration, (size, *[1] * (x.ndim - 1)))
    normaliser = subtract(gammaln(reduction.sum(concentration)), reduction.sum(gammaln(concentration)))
    value = add(normaliser, reduction.sum(xlogy(subtract(columns, 1), x), axis=0))
    total = reduction.sum(x, axis=0)
    inside = logical_and(reduction.all(x >= 0, axis=0), abs(subtract(total, 1)) < _tolerance(x))
    value = where(inside, value, -np.inf)
    return where(reduction.all(concentration > 0), value, np.nan)


def pdf(x: Any, alpha: Any) -> Tensor:
    """Return the density, with the arguments of `logpdf`.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.dirichlet.pdf([0.2, 0.3, 0.5], [1.0, 1.0, 1.0]).eval()
    array(2.)
    """
    return exp(logpdf(x, alpha))


def _tolerance(x: Tensor) -> float:
    return max(_SLACK, 100 * float(np.finfo(x.dtype).eps))
