"""Quantiles, medians and percentiles, composed of a sort and of positions in what is sorted.

A quantile lies between two sorted elements and moves with them. Where elements are left out (NaNs), the number of those
that are left differs from row to row, so positions are tensors of their own for every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import equal, product
from unspool._dtypes import COMPLEX, INT64, DType
from unspool._ops import elementwise, layout, reduction
from unspool._ops.checks import one_of
from unspool._ops.creation import full, size_tensor
from unspool._ops.indexing import sort, take_along_axis
from unspool._ops.indexing.access import getitem
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.reduction import Axis, reduced_shape
from unspool.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Where a quantile lies among n sorted elements, counted from 0: n q + m - 1 with m = alpha + q (1 - alpha - beta); see
# Hyndman and Fan, Sample quantiles in statistical packages, The American Statistician 50 (1996).
_SMOOTH = {
    "linear": (1.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
    "interpolated_inverted_cdf": (0.0, 1.0),
}
_METHODS = (*_SMOOTH, "lower", "higher", "midpoint", "nearest", "inverted_cdf", "averaged_inverted_cdf")


# --- what users call -------------------------------------------------------------------------------------------------


def quantile(x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """Return quantiles over axes (all by default): elements below which fractions ``q`` of all elements are.

    Parameters
    ----------
    x : array_like
        Real numbers. Where one of them is NaN, so is the result.
    q : array_like
        Fractions between 0 and 1, of any shape; its axes come first in the result.
    axis : int or tuple of int, optional
        The axes to reduce; all by default.
    method : str
        What lies between two elements: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"``, ``"nearest"``,
        ``"hazen"``, ``"weibull"``, ``"median_unbiased"``, ``"normal_unbiased"``, ``"inverted_cdf"``,
        ``"averaged_inverted_cdf"`` or ``"interpolated_inverted_cdf"``, as in NumPy.
    keepdims : bool
        Keep the reduced axes, with size 1.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([3.0, 1.0, 2.0])
    >>> us.quantile(x, [0.5, 0.75]).eval()
    array([2. , 2.5])
    >>> us.quantile(x, 0.75).grad(x).eval()
    array([0.5, 0. , 0.5])
    """
    return _quantile("quantile", x, q, axis, method, keepdims, skip_nan=False)


def percentile(x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """Return percentiles over axes (all by default): `quantile` with ``q`` in hundredths.

    Examples
    --------
    >>> import unspool as us
    >>> us.percentile([1.0, 2.0, 3.0], 75).eval()
    array(2.5)
    """
    return _quantile("percentile", x, elementwise.divide(q, 100), axis, method, keepdims, skip_nan=False)


def median(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return medians over axes (all by default): the middle element, or the mean of the two in the middle.

    Examples
    --------
    >>> import unspool as us
    >>> us.median([[3.0, 1.0, 2.0], [4.0, 0.0, 0.0]], axis=1).eval()
    array([2., 0.])
    """
    return _quantile("median", x, 0.5, axis, "linear", keepdims, skip_nan=False)


def nanquantile(x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """Return quantiles of the elements that are not NaN; see `quantile`.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanquantile([1.0, float("nan"), 2.0, 3.0], 0.5).eval()
    array(2.)
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, skip_nan=True)


def nanpercentile(x: Any, q: Any, axis: Axis = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """Return percentiles of the elements that are not NaN; see `percentile`.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanpercentile([1.0, float("nan"), 2.0, 3.0], 50).eval()
    array(2.)
    """
    return _quantile("nanpercentile", x, elementwise.divide(q, 100), axis, method, keepdims, skip_nan=True)


def nanmedian(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return medians of the elements that are not NaN; see `median`.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanmedian([1.0, float("nan"), 3.0]).eval()
    array(2.)
    """
    return _quantile("nanmedian", x, 0.5, axis, "linear", keepdims, skip_nan=True)


# --- how -------------------------------------------------------------------------------------------------------------


def _quantile(name: str, x: Any, q: Any, axis: Axis, method: str, keepdims: bool, *, skip_nan: bool) -> Tensor:
    one_of(method, _METHODS, "method")
    x = elementwise.as_inexact(x)
    fractions = as_tensor(q)
    if not COMPLEX.isdisjoint((x.dtype, fractions.dtype)):
        raise DTypeError(f"{name} needs numbers with an order, got {x.dtype} and fractions {fractions.dtype}")
    if fractions.op.name == "constant" and not bool(np.all((fractions.value >= 0) & (fractions.value <= 1))):
        raise ArgumentError(f"{name} takes fractions of all elements, from none to all of them, got {q!r}")
    fractions = elementwise.astype(fractions, x.dtype)
    axes = layout.normalize_axes(axis, x.ndim)
    shape = (*fractions.shape, *reduced_shape(x.shape, axes, bool(keepdims)))
    rows = _rows(x, axes)
    if equal(rows.shape[-1], 0) is True:
        return full(shape, np.nan, x.dtype)
    return layout.reshape(_of_rows(rows, layout.ravel(fractions), method, skip_nan=skip_nan), shape)


def _rows(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the tensor with the axes to reduce as one, the last."""
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    moved = layout.permute_dims(x, kept + axes)
    return layout.reshape(moved, (*moved.shape[: len(kept)], product(x.shape[axis] for axis in axes)))


def _of_rows(rows: Tensor, fractions: Tensor, method: str, *, skip_nan: bool) -> Tensor:
    """Return quantiles of rows, those of different fractions along a new first axis."""
    ordered = sort(rows)  # NaNs go last
    missing = elementwise.isnan(rows)
    if skip_nan:
        count = reduction.sum(elementwise.logical_not(missing), axis=-1, keepdims=True)
    else:
        count = layout.reshape(size_tensor(rows.shape[-1], INT64), (1,) * rows.ndim)
    lower, upper, weight = _places(fractions, elementwise.astype(count, rows.dtype), method)
    shape = (*rows.shape[:-1], fractions.shape[0])
    below, above = (
        take_along_axis(ordered, layout.broadcast_to(_limited(place, count), shape), axis=-1)
        for place in (lower, upper)
    )
    # Of infinite elements the formula would make NaN; between one of them and a finite one there is no other.
    infinite = elementwise.logical_or(elementwise.isinf(below), elementwise.isinf(above))
    far = elementwise.where(elementwise.equal(weight, 0), below, below + above)
    between = elementwise.where(infinite, far, below + (above - below) * weight)
    between = elementwise.where(elementwise.equal(below, above), below, between)
    if not skip_nan:
        spoiled = elementwise.isnan(getitem(ordered, (..., -1, None)))
        between = elementwise.where(spoiled, constant(np.nan, rows.dtype), between)
    return layout.moveaxis(between, -1, 0)


def _limited(place: Tensor, count: Tensor) -> Tensor:
    return elementwise.maximum(elementwise.minimum(elementwise.astype(place, INT64), count - 1), 0)


def _places(q: Tensor, n: Tensor, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return between which places of n sorted elements quantiles lie, and how far from the first to the second."""
    if method in _SMOOTH:
        alpha, beta = _SMOOTH[method]
        place = n * q + (q * (1 - alpha - beta) + alpha) - 1
        lower = elementwise.floor(place)
        # Before the first element and after the last there is nothing to interpolate to.
        return lower, lower + 1, elementwise.clip(place - lower, 0.0, 1.0)
    if method in ("inverted_cdf", "averaged_inverted_cdf"):
        lower = elementwise.ceil(n * q) - 1
        met = elementwise.logical_and(elementwise.equal(lower + 1, n * q), method == "averaged_inverted_cdf")
        return lower, lower + 1, elementwise.where(met, _number(0.5, q.dtype), _number(0.0, q.dtype))
    place = (n - 1) * q
    lower, upper = elementwise.floor(place), elementwise.ceil(place)
    if method == "nearest":
        lower = upper = elementwise.round(place)
    weight = {"higher": 1.0, "midpoint": 0.5}.get(method, 0.0)
    return lower, upper, _number(weight, q.dtype)


def _number(value: float, dtype: DType) -> Tensor:
    return constant(value, dtype)
