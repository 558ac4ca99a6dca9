"""Weighted means, covariances and correlations, composed of sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Size, equal, product
from unspool._dtypes import COMPLEX, INTEGERS, promote
from unspool._ops import elementwise, layout, reduction
from unspool._ops.contraction import matmul
from unspool._ops.creation import size_tensor
from unspool._ops.leaf import as_tensor
from unspool._ops.reduction import Axis
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def average(x: Any, axis: Axis = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """Average over axes (all by default), with weights.

    Parameters
    ----------
    x : array_like
        What to average.
    axis : int or tuple of int, optional
        The axes to average over; all by default.
    weights : array_like, optional
        As many as there are elements, or, in the shape of the axes that are reduced, as many as are averaged.
    returned : bool
        Return a pair instead: the average and the sum of the weights.
    keepdims : bool
        Keep the reduced axes, with size 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.average([1.0, 2.0, 4.0], weights=[3.0, 0.0, 1.0]).eval()
    array(1.75)
    """
    x = elementwise.as_inexact(x)
    axes = layout.normalize_axes(axis, x.ndim)
    if weights is None:
        mean = reduction.mean(x, axis=axes, keepdims=keepdims)
        count = size_tensor(product(x.shape[place] for place in axes), mean.dtype)
        return (mean, layout.broadcast_to(count, mean.shape)) if returned else mean
    shares = _over(as_tensor(weights), x, axis, axes)
    wanted = promote(x.dtype, elementwise.as_inexact(shares).dtype)
    total = reduction.sum(elementwise.astype(shares, wanted), axis=axes, keepdims=keepdims)
    mean = elementwise.divide(reduction.sum(elementwise.multiply(x, shares), axis=axes, keepdims=keepdims), total)
    return (mean, total) if returned else mean


def _over(weights: Tensor, x: Tensor, axis: Axis, axes: tuple[int, ...]) -> Tensor:
    """Return weights in the shape of what they weigh."""
    if weights.ndim == x.ndim and all(equal(a, b) is not False for a, b in zip(weights.shape, x.shape, strict=True)):
        return weights
    given = axis if isinstance(axis, (tuple, list)) else axes
    order = [layout.normalize_axis(one, x.ndim) for one in given]
    if axis is None or weights.ndim != len(order):
        raise ShapeError(f"weights of shape {weights.shape} are neither for {x.shape} nor for axes {axis} of it")
    in_order = layout.permute_dims(weights, tuple(int(i) for i in np.argsort(order)))
    shape: list[Size] = [1] * x.ndim
    for place, size in zip(sorted(order), in_order.shape, strict=True):
        shape[place] = size
    return layout.broadcast_to(layout.reshape(in_order, shape), x.shape)


# --- covariances -----------------------------------------------------------------------------------------------------


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Tensor:
    """Estimate the covariance matrix of variables from observations.

    Parameters
    ----------
    m : array_like
        One row for each variable and one column for each observation; a vector is one variable.
    y : array_like, optional
        More variables.
    rowvar : bool
        ``False`` if variables are columns.
    bias : bool
        Divide by the number of observations instead of one less.
    ddof : float, optional
        What to subtract from the number of observations, in place of what ``bias`` says.
    fweights : array_like of int, optional
        How often each observation was made.
    aweights : array_like, optional
        The importance of each observation.

    Examples
    --------
    >>> import unspool as us
    >>> us.cov([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).eval()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    if ddof is not None and not isinstance(ddof, (int, float, np.integer, np.floating)):
        raise ArgumentError(f"ddof is a number, got {ddof!r}")
    samples = _variables(m, rowvar)
    if y is not None:
        samples = layout.concat([samples, _variables(y, rowvar)], 0)
    removed = (0 if bias else 1) if ddof is None else ddof
    weights = _weights(samples, fweights, aweights)
    if weights is None:
        factor = elementwise.subtract(size_tensor(samples.shape[1], "float64"), removed)
        mean = reduction.mean(samples, axis=1, keepdims=True)
    else:
        total = reduction.sum(weights)
        mean = elementwise.divide(reduction.sum(samples * weights, axis=1, keepdims=True), total)
        shrinking = removed if aweights is None else reduction.sum(weights * as_tensor(aweights)) / total * removed
        factor = elementwise.subtract(total, shrinking)
    distance = elementwise.subtract(samples, mean)
    weighted = distance if weights is None else elementwise.multiply(distance, weights)
    squares = matmul(distance, elementwise.conj(layout.matrix_transpose(weighted)))
    divisor = elementwise.astype(elementwise.maximum(factor, 0), squares.dtype)
    return layout.squeeze(elementwise.divide(squares, divisor))


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Tensor:
    """Return the correlation coefficients of variables: their covariances over the standard deviations.

    Parameters
    ----------
    x, y : array_like
        As for `cov`.
    rowvar : bool
        ``False`` if variables are columns.

    Examples
    --------
    >>> import unspool as us
    >>> us.corrcoef([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]).eval().round(12)
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    covariance = cov(x, y, rowvar)
    if not covariance.ndim:
        return elementwise.divide(covariance, covariance)
    deviation = elementwise.sqrt(elementwise.real(layout.diagonal(covariance)))
    size = covariance.shape[0]
    scaled = covariance / layout.reshape(deviation, (size, 1)) / deviation
    # Rounding must not make a correlation larger than 1.
    if scaled.dtype in COMPLEX:
        parts = (elementwise.clip(part, -1.0, 1.0) for part in (elementwise.real(scaled), elementwise.imag(scaled)))
        return elementwise.from_parts(*parts)
    return elementwise.clip(scaled, -1.0, 1.0)


def _variables(m: Any, rowvar: bool) -> Tensor:
    x = elementwise.as_inexact(m)
    if x.ndim > 2:
        raise ShapeError(f"cov takes a vector or a matrix of observations, got shape {x.shape}")
    if x.ndim < 2:
        return layout.reshape(x, (1, x.size))
    return x if rowvar or x.shape[0] == 1 else layout.matrix_transpose(x)


def _weights(samples: Tensor, fweights: Any, aweights: Any) -> Tensor | None:
    found: Tensor | None = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        weights = as_tensor(given)
        if weights.ndim != 1 or equal(weights.shape[0], samples.shape[1]) is False:
            raise ShapeError(f"{name} are one for each of {samples.shape[1]} observations, got shape {weights.shape}")
        if name == "fweights" and weights.dtype not in INTEGERS:
            raise ArgumentError(f"fweights are integers, got dtype {weights.dtype}")
        weights = elementwise.astype(weights, "float64")
        found = weights if found is None else elementwise.multiply(found, weights)
    return found
