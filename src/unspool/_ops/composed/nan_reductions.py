"""Reductions that leave out NaN: those of `unspool._ops.reduction` with a mask.

An element that is left out is absent from derivatives, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from unspool._dtypes import INEXACT
from unspool._ops import elementwise, reduction
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.reduction import Axis
from unspool._ops.reduction.axes import selection
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _split(x: Any, where: Any = None) -> tuple[Tensor, Tensor | None]:
    """Return a tensor and which of its elements count, ``None`` for all: those that are no NaN and are selected."""
    tensor = as_tensor(x)
    chosen = selection(where, tensor)
    if tensor.dtype not in INEXACT:
        return tensor, chosen
    present = elementwise.logical_not(elementwise.isnan(tensor))
    return tensor, present if chosen is None else elementwise.logical_and(present, chosen)


# --- sums and products -----------------------------------------------------------------------------------------------


def nansum(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
) -> Tensor:
    """Sum the elements that are not NaN over axes (all by default); see `unspool.sum`.

    Examples
    --------
    >>> import unspool as us
    >>> us.nansum([1.0, float("nan"), 2.0]).eval()
    array(3.)
    """
    x, keep = _split(x, where)
    return reduction.sum(x, axis, dtype, keepdims, initial=initial, where=keep)


def nanprod(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
) -> Tensor:
    """Multiply the elements that are not NaN over axes (all by default); see `unspool.prod`.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanprod([3.0, float("nan"), 2.0]).eval()
    array(6.)
    """
    x, keep = _split(x, where)
    return reduction.prod(x, axis, dtype, keepdims, initial=initial, where=keep)


def nancumsum(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return running sums along an axis with NaN taken as 0; without an axis, over all elements.

    Examples
    --------
    >>> import unspool as us
    >>> us.nancumsum([1.0, float("nan"), 2.0]).eval()
    array([1., 1., 3.])
    """
    return reduction.cumsum(_replaced(x, 0), axis, dtype)


def nancumprod(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return running products along an axis with NaN taken as 1; without an axis, over all elements.

    Examples
    --------
    >>> import unspool as us
    >>> us.nancumprod([3.0, float("nan"), 2.0]).eval()
    array([3., 3., 6.])
    """
    return reduction.cumprod(_replaced(x, 1), axis, dtype)


def _replaced(x: Any, value: float) -> Tensor:
    tensor, keep = _split(x)
    return tensor if keep is None else elementwise.where(keep, tensor, constant(value, tensor.dtype))


# --- means -----------------------------------------------------------------------------------------------------------


def nanmean(
    x: Any, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False, *, where: Any = None
) -> Tensor:
    """Average the elements that are not NaN over axes (all by default); NaN if there are none.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanmean([1.0, float("nan"), 2.0]).eval()
    array(1.5)
    """
    x, keep = _split(x, where)
    return reduction.mean(x, axis, dtype, keepdims, where=keep)


def nanvar(
    x: Any,
    axis: Axis = None,
    correction: float = 0,
    keepdims: bool = False,
    *,
    ddof: float | None = None,
    dtype: DTypeLike | None = None,
    where: Any = None,
) -> Tensor:
    """Return the variance of the elements that are not NaN; see `unspool.var`. NaN where too few of them are left.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanvar([1.0, float("nan"), 3.0]).eval()
    array(1.)
    """
    x, keep = _split(x if dtype is None else elementwise.astype(x, dtype), where)
    spread = reduction.var(x, axis, correction, keepdims, ddof=ddof, where=keep)
    return _if_enough(spread, keep, axis, keepdims, correction if ddof is None else ddof)


def nanstd(
    x: Any,
    axis: Axis = None,
    correction: float = 0,
    keepdims: bool = False,
    *,
    ddof: float | None = None,
    dtype: DTypeLike | None = None,
    where: Any = None,
) -> Tensor:
    """Return the standard deviation of the elements that are not NaN; see `unspool.std` and `nanvar`.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanstd([1.0, float("nan"), 3.0]).eval()
    array(1.)
    """
    x, keep = _split(x if dtype is None else elementwise.astype(x, dtype), where)
    spread = reduction.std(x, axis, correction, keepdims, ddof=ddof, where=keep)
    return _if_enough(spread, keep, axis, keepdims, correction if ddof is None else ddof)


def _if_enough(spread: Tensor, keep: Tensor | None, axis: Axis, keepdims: bool, removed: float) -> Tensor:
    if keep is None:
        return spread
    count = reduction.sum(keep, axis, keepdims=keepdims)
    return elementwise.where(elementwise.greater(count, removed), spread, constant(np.nan, spread.dtype))


# --- extrema ---------------------------------------------------------------------------------------------------------


def nanmax(x: Any, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
    """Return the largest element that is not NaN over axes (all by default); NaN if there are none.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanmax([1.0, float("nan"), 2.0]).eval()
    array(2.)
    """
    return _extremum(reduction.max, -np.inf, x, axis, keepdims, initial, where)


def nanmin(x: Any, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
    """Return the smallest element that is not NaN over axes (all by default); NaN if there are none.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanmin([1.0, float("nan"), 2.0]).eval()
    array(1.)
    """
    return _extremum(reduction.min, np.inf, x, axis, keepdims, initial, where)


def _extremum(reduce: Any, neutral: float, x: Any, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Tensor:
    x, keep = _split(x, where)
    if keep is None or initial is not None:
        return reduce(x, axis, keepdims, initial=initial, where=keep)  # type: ignore[no-any-return]
    if where is not None and where is not True:
        raise ArgumentError("an extremum with where= needs initial=, the result where no element is left")
    found = reduce(elementwise.where(keep, x, constant(neutral, x.dtype)), axis, keepdims)
    some = reduction.any(keep, axis, keepdims)
    return elementwise.where(some, found, constant(np.nan, x.dtype))


def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return where the largest element that is not NaN is; -1 if there are none, where NumPy raises an error.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanargmax([1.0, float("nan"), 2.0]).eval()
    array(2)
    """
    return _position(reduction.argmax, -np.inf, x, axis, keepdims)


def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return where the smallest element that is not NaN is; -1 if there are none, where NumPy raises an error.

    Examples
    --------
    >>> import unspool as us
    >>> us.nanargmin([1.0, float("nan"), 2.0]).eval()
    array(0)
    """
    return _position(reduction.argmin, np.inf, x, axis, keepdims)


def _position(search: Any, neutral: float, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    x, keep = _split(x)
    if keep is None:
        return search(x, axis, keepdims)  # type: ignore[no-any-return]
    found = search(elementwise.where(keep, x, constant(neutral, x.dtype)), axis, keepdims)
    return elementwise.where(reduction.any(keep, axis, keepdims), found, -1)
