"""The normal distribution of vectors, with a mean and a covariance matrix."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unspool._ops import layout, reduction
from unspool._ops.elementwise import add, exp, log, multiply, square, subtract
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_operands
from unspool._ops.linalg.cholesky import cholesky
from unspool._ops.linalg.triangular import solve_triangular
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, mean: Any = None, cov: Any = 1.0) -> Tensor:
    """Return the logarithm of the density.

    Parameters
    ----------
    x : array_like
        Vectors in the last axis; numbers, if the mean and the covariance have no axes.
    mean : array_like, optional
        A vector, by default 0.
    cov : array_like
        A positive definite matrix, a vector of variances, or one variance. The result is differentiable in all three,
        through the Cholesky factor. Leading axes broadcast.

    Raises
    ------
    KernelError
        When it runs, if the matrix is not positive definite.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multivariate_normal.logpdf([1.0, 2.0], [1.0, 2.0], [[1.0, 0.0], [0.0, 4.0]]).eval()
    array(-2.53102425)
    """
    x, center, spread = (as_inexact(operand) for operand in as_operands(x, 0.0 if mean is None else mean, cov))
    if not center.ndim and not spread.ndim and not x.ndim:
        x = layout.expand_dims(x, -1)
    if not x.ndim:
        raise ShapeError(f"multivariate_normal takes vectors in the last axis of x, got shape {x.shape}")
    size = x.shape[-1] if not center.ndim and spread.ndim < 1 else (spread if spread.ndim else center).shape[-1]
    deviation = subtract(x, center)
    if spread.ndim < 2:
        variances = layout.broadcast_to(spread, (size,)) if spread.ndim < 1 else spread
        distance = reduction.sum(square(deviation) / variances, axis=-1)
        log_determinant = reduction.sum(log(variances), axis=-1)
        normaliser = add(log_determinant, _log_two_pi(deviation))
        return multiply(add(distance, normaliser), -0.5)
    factor = cholesky(spread)
    white = layout.squeeze(solve_triangular(factor, layout.expand_dims(deviation, -1), lower=True), -1)
    diagonal = log(layout.diagonal(factor, axis1=-2, axis2=-1))
    distance = add(reduction.sum(square(white), axis=-1), _log_two_pi(white))
    return subtract(multiply(distance, -0.5), reduction.sum(diagonal, axis=-1))


def pdf(x: Any, mean: Any = None, cov: Any = 1.0) -> Tensor:
    """Return the density, with the arguments of `logpdf`.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multivariate_normal.pdf([0.0, 0.0]).eval()
    array(0.15915494)
    """
    return exp(logpdf(x, mean, cov))


def _log_two_pi(x: Tensor) -> Tensor:
    """Return log(2π) for each component: a sum, because their number may be symbolic."""
    return reduction.sum(layout.broadcast_to(as_inexact(math.log(2 * math.pi)), x.shape[-1:]))
