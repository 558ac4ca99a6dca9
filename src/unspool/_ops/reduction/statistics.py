"""Mean, variance and standard deviation, composed of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Dim
from unspool._dtypes import COMPLEX, INEXACT, REAL, DType, inexact_dtype, real_dtype
from unspool._ops import elementwise, layout
from unspool._ops.creation import size_tensor
from unspool._ops.leaf import as_tensor, scalar
from unspool._ops.reduction.axes import Axis, reduced_size, selection
from unspool._ops.reduction.sums import SUM, sum
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


def mean(
    x: Any, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False, *, where: Any = None
) -> Tensor:
    """Average over axes (all by default). Means of bools and integers are float64.

    Parameters
    ----------
    x : array_like
        What to average.
    axis : int or tuple of int, optional
        The axes to average over; all by default.
    dtype : dtype_like, optional
        Convert to this data type before averaging.
    keepdims : bool
        Keep the reduced axes, with size 1.
    where : array_like of bool, optional
        Leave out elements where this is false: neither their values nor their derivatives count.

    Examples
    --------
    >>> import unspool as us
    >>> us.mean([[1.0, 2.0], [3.0, 4.0]], axis=1).eval()
    array([1.5, 3.5])
    >>> x = us.tensor([0.0, 2.0])
    >>> us.mean(us.log(x), where=x > 0).grad(x).eval()
    array([0. , 0.5])
    """
    x = as_tensor(x)
    if dtype is not None or x.dtype not in INEXACT:
        x = elementwise.astype(x, inexact_dtype(x.dtype) if dtype is None else dtype)
    if where is None and x.dtype in REAL:
        axes = layout.normalize_axes(axis, len(x.shape))
        size = reduced_size(x.shape, axes)
        if type(size) is int:
            return _graph.apply(SUM, x, axis=axes, keepdims=bool(keepdims)) / size
    total = sum(x, axis=axis, keepdims=keepdims, where=where)
    # An integer dtype that was asked for averages in float64, as division of integers does.
    return total / _count(x, axis, keepdims, where, real_dtype(inexact_dtype(total.dtype)))


def var(
    x: Any,
    axis: Axis = None,
    correction: float = 0,
    keepdims: bool = False,
    *,
    ddof: float | None = None,
    where: Any = None,
) -> Tensor:
    """Return the variance over axes: the mean of the squared distances from the mean; real also for complex numbers.

    Parameters
    ----------
    x : array_like
        The sample.
    axis : int or tuple of int, optional
        The axes to reduce; all by default.
    correction : float
        The sum of squares is divided by the number of elements minus this; 1 gives the unbiased estimate.
    keepdims : bool
        Keep the reduced axes, with size 1.
    ddof : float, optional
        NumPy's older name for ``correction``.
    where : array_like of bool, optional
        Leave out elements where this is false: neither their values nor their derivatives count.

    Examples
    --------
    >>> import unspool as us
    >>> us.var([1.0, 2.0, 3.0, 4.0]).eval()
    array(1.25)
    """
    x = as_tensor(x)
    x = elementwise.astype(x, inexact_dtype(x.dtype))
    keep = selection(where, x)
    distance = x - mean(x, axis=axis, keepdims=True, where=keep)
    if keep is not None:
        distance = elementwise.mask(distance, keep)
    total = sum(_squared_modulus(distance), axis=axis, keepdims=keepdims)
    removed = correction if ddof is None else ddof
    if not isinstance(removed, (int, float, np.integer, np.floating)):
        raise ArgumentError(f"the correction of a variance is a number, got {removed!r}")
    return total / _count(x, axis, keepdims, keep, total.dtype, removed)


def std(
    x: Any,
    axis: Axis = None,
    correction: float = 0,
    keepdims: bool = False,
    *,
    ddof: float | None = None,
    where: Any = None,
) -> Tensor:
    """Return the standard deviation over axes: the square root of the variance.

    Where all elements are equal it has a kink, like ``abs`` at 0; its derivative there is taken to be 0.

    Parameters
    ----------
    x : array_like
        The sample.
    axis : int or tuple of int, optional
        The axes to reduce; all by default.
    correction : float
        The sum of squares is divided by the number of elements minus this; 1 gives the usual estimate.
    keepdims : bool
        Keep the reduced axes, with size 1.
    ddof : float, optional
        NumPy's older name for ``correction``.
    where : array_like of bool, optional
        Leave out elements where this is false: neither their values nor their derivatives count.

    Examples
    --------
    >>> import unspool as us
    >>> us.std([1.0, 1.0, 3.0, 3.0]).eval()
    array(1.)
    """
    variance = var(x, axis=axis, correction=correction, keepdims=keepdims, ddof=ddof, where=where)
    return elementwise.where(elementwise.not_equal(variance, 0), elementwise.sqrt(variance), 0.0)


def _squared_modulus(x: Tensor) -> Tensor:
    return elementwise.real(x * elementwise.conj(x)) if x.dtype in COMPLEX else x * x


def _count(x: Tensor, axis: Axis, keepdims: bool, where: Any, dtype: DType, removed: float = 0) -> Tensor:
    """Return how many elements are reduced to one, minus the correction but at least 0, as a number to divide by."""
    axes = layout.normalize_axes(axis, len(x.shape))
    keep = None if where is None else selection(where, x)
    if keep is not None:
        count = elementwise.astype(sum(keep, axis=axes, keepdims=keepdims), dtype)
    else:
        size = reduced_size(x.shape, axes)
        if not isinstance(size, Dim):
            left = size - removed
            return scalar(left if left > 0 else 0, dtype)
        count = size_tensor(size, dtype)
    return elementwise.maximum(count - removed, 0) if removed else count
