"""Statistics of samples: the error of a mean, ranks, and the most frequent value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._ops import layout
from unspool._ops.checks import as_integer, one_of
from unspool._ops.elementwise import divide, sqrt
from unspool._ops.indexing import take_along_axis
from unspool._ops.layout.reshaping import normalize_axis
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.reduction import std
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_TIES = ("average", "min", "max", "dense", "ordinal")


class ModeResult(NamedTuple):
    """The most frequent values, and how often they are there."""

    mode: Tensor
    count: Tensor  # type: ignore[assignment]  # SciPy's name, which hides a method of tuples


def sem(a: Any, axis: int | None = 0, ddof: int = 1, *, keepdims: bool = False) -> Tensor:
    """The standard error of the mean: the standard deviation over the root of the number of elements.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.sem([1.0, 2.0, 3.0, 4.0]).eval()
    array(0.64549722)
    """
    x = as_tensor(a)
    if axis is None:
        x, axis = layout.ravel(x), 0
    spread = std(x, axis=axis, correction=ddof, keepdims=keepdims)
    return divide(spread, sqrt(constant(float(_known(x, normalize_axis(axis, x.ndim), "sem")))))


def rankdata(a: Any, method: str = "average", *, axis: int | None = None) -> Tensor:
    """The ranks of elements, from 1 on. They are piecewise constant, and the elements are evaluated.

    Parameters
    ----------
    a : array_like
        The elements.
    method : {"average", "min", "max", "dense", "ordinal"}
        What equal elements get: the mean of their ranks, the least, the greatest; the least without gaps between ranks;
        or each another one, in their order.
    axis : int, optional
        Along which axis; by default all elements are ranked together, along one axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.rankdata([2.0, 0.5, 2.0]).eval()
    array([2.5, 1. , 2.5])
    """
    one_of(method, _TIES, "method")
    values = as_tensor(a).eval()
    if axis is None:
        values, axis = values.reshape(-1), 0
    along = normalize_axis(as_integer(axis, "axis"), values.ndim)
    return constant(np.apply_along_axis(lambda row: _ranks(row, method), along, values) if values.size else values)


def _ranks(row: Any, method: str) -> Any:
    order = np.argsort(row, kind="stable")
    place = np.empty(len(row), np.int64)
    place[order] = np.arange(len(row))
    if method == "ordinal":
        return place + 1
    ordered = row[order]
    starts = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    dense = np.cumsum(starts)[place]
    if method == "dense":
        return dense
    bounds = np.concatenate([np.flatnonzero(starts), [len(row)]])
    least, most = bounds[dense - 1] + 1, bounds[dense]
    return {"min": least, "max": most, "average": (least + most) / 2}[method]


def mode(a: Any, axis: int | None = 0, *, keepdims: bool = False) -> ModeResult:
    """The most frequent values along an axis, the smallest of several, and how often they are there.

    Which elements they are is read off values; the result is made of these elements, with their derivatives.

    Examples
    --------
    >>> import unspool as us
    >>> most = us.stats.mode([3.0, 1.0, 3.0, 2.0])
    >>> most.mode.eval(), most.count.eval()
    (array(3.), array(2))
    """
    x = as_tensor(a)
    if axis is None:
        x, axis = layout.ravel(x), 0
    along = normalize_axis(axis, x.ndim)
    if _known(x, along, "mode") == 0:
        raise ArgumentError("mode needs at least one element")
    found = np.apply_along_axis(_most_frequent, along, x.eval())
    places, counts = (np.take(found, [i], axis=along) for i in (0, 1))
    values = take_along_axis(x, constant(places), axis=along)
    number = constant(counts)
    if keepdims:
        return ModeResult(values, number)
    return ModeResult(layout.squeeze(values, axis=along), layout.squeeze(number, axis=along))


def _most_frequent(row: Any) -> Any:
    _, first, counts = np.unique(row, return_index=True, return_counts=True)
    most = np.argmax(counts)
    return np.array([first[most], counts[most]])


def _known(x: Tensor, axis: int, function: str) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        raise ArgumentError(f"{function} needs to know how many elements there are, got {size}")
    return size
