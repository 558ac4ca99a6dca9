"""The normal distribution of vectors, with a mean and a covariance matrix.

The density takes two things of the matrix: how far a vector is from the mean in units of it, and its determinant. A
positive definite matrix gives both by its Cholesky factor; a singular one, on the space that it does not annihilate, by
its pseudoinverse and its eigenvalues that are not zero.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import FLOAT32
from unspool._ops import layout, reduction
from unspool._ops.contraction import matvec
from unspool._ops.creation import ones
from unspool._ops.elementwise import abs, add, astype, exp, log, multiply, sqrt, square, subtract, where
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_operands
from unspool._ops.linalg.cholesky import cholesky
from unspool._ops.linalg.eigh import eigvalsh
from unspool._ops.linalg.least_squares import pinv
from unspool._ops.linalg.triangular import solve_triangular
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["entropy", "logpdf", "pdf"]


def logpdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Tensor:
    """Return the logarithm of the density.

    Parameters
    ----------
    x : array_like
        Vectors in the last axis; numbers, if the mean and the covariance have no axes.
    mean : array_like, optional
        A vector, by default 0.
    cov : array_like
        A positive definite matrix, a vector of variances, or one variance. The result is differentiable in all three.
        Leading axes broadcast.
    allow_singular : bool
        Whether a matrix may be singular. The density is then that on the space where the distribution lies, and the
        derivative that at constant rank. Unlike in SciPy, a vector outside of that space is seen as its projection.

    Raises
    ------
    KernelError
        When it runs, if the matrix is not positive definite and need be.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multivariate_normal.logpdf([1.0, 2.0], [1.0, 2.0], [[1.0, 0.0], [0.0, 4.0]]).eval()
    array(-2.53102425)
    """
    x, center, spread = (as_inexact(operand) for operand in as_operands(x, 0.0 if mean is None else mean, cov))
    if not center.ndim and not spread.ndim:
        x = layout.expand_dims(x, -1)
    if not x.ndim:
        raise ShapeError(f"multivariate_normal takes vectors in the last axis of x, got shape {x.shape}")
    deviation = subtract(x, center)
    if spread.ndim < 2:
        variances = layout.broadcast_to(spread, deviation.shape[-1:]) if spread.ndim < 1 else spread
        distance, log_determinant = reduction.sum(square(deviation) / variances, axis=-1), _sum_of_logs(variances)
        rank = _ones(variances)
    elif allow_singular:
        distance, log_determinant, rank = _by_eigenvalues(deviation, spread)
    else:
        factor = cholesky(spread)
        white = layout.squeeze(solve_triangular(factor, layout.expand_dims(deviation, -1), lower=True), -1)
        diagonal = layout.diagonal(factor, axis1=-2, axis2=-1)
        distance, log_determinant = reduction.sum(square(white), axis=-1), multiply(_sum_of_logs(diagonal), 2.0)
        rank = _ones(diagonal)
    return multiply(add(add(distance, log_determinant), multiply(rank, math.log(2 * math.pi))), -0.5)


def pdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Tensor:
    """Return the density, with the arguments of `logpdf`.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multivariate_normal.pdf([0.0, 0.0], [0.0, 0.0]).eval()
    array(0.15915494)
    >>> us.stats.multivariate_normal.pdf([0.0, 1.0]).eval()
    array([0.39894228, 0.24197072])
    """
    return exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any = None, cov: Any = 1.0) -> Tensor:
    """Return the differential entropy, which the mean has no part in.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.multivariate_normal.entropy(None, [[1.0, 0.0], [0.0, 1.0]]).eval()
    array(2.83787707)
    """
    center, spread = (as_inexact(operand) for operand in as_operands(0.0 if mean is None else mean, cov))
    size = center.shape[-1:] or spread.shape[-1:] or (1,)
    if spread.ndim < 2:
        deviations = sqrt(layout.broadcast_to(spread, size))
    else:
        deviations = layout.diagonal(cholesky(spread), axis1=-2, axis2=-1)
    return add(_sum_of_logs(deviations), multiply(_ones(deviations), 0.5 * math.log(2 * math.pi * math.e)))


def _by_eigenvalues(deviation: Tensor, cov: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the squared distance, the logarithm of the determinant and the rank, where a matrix is not zero."""
    # SciPy's tolerance: a million units of rounding, a thousand in single precision.
    rtol = (1e3 if cov.dtype == FLOAT32 else 1e6) * float(np.finfo(cov.dtype).eps)
    distance = reduction.sum(multiply(deviation, matvec(pinv(cov, rtol=rtol, hermitian=True), deviation)), axis=-1)
    values = eigvalsh(cov)
    kept = values > rtol * reduction.max(abs(values), axis=-1, keepdims=True)
    logs = where(kept, log(values), 0.0)
    return distance, reduction.sum(logs, axis=-1), reduction.sum(astype(kept, cov.dtype), axis=-1)


def _sum_of_logs(x: Tensor) -> Tensor:
    return reduction.sum(log(x), axis=-1)


def _ones(x: Tensor) -> Tensor:
    """Return how many components there are: a sum, because their number may be symbolic."""
    return reduction.sum(ones(x.shape[-1:], x.dtype))
