"""Sorting along an axis, and searching in what is sorted.

Sorting is a permutation that depends on the values: its derivative moves tangents by that permutation and cotangents by
the inverse of it. The order is stable, so equal elements keep theirs and derivatives do not depend on chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import INT64, INTEGERS
from unspool._graph import Node
from unspool._ops.elementwise import astype
from unspool._ops.indexing import batching
from unspool._ops.indexing.parse import Where
from unspool._ops.indexing.selection import pick
from unspool._ops.layout import normalize_axis, rearrange, reshape
from unspool._ops.leaf import as_operands, as_tensor
from unspool._ops.op import INPUTS, STRUCTURE, Op, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def along(indices: Tensor, axis: int) -> Where:
    """Return what picks by positions along one axis, and walks the other axes in step."""
    rank = indices.ndim
    entries = [("array",) if place == axis else ("along", place, rank) for place in range(rank)]
    return Where(tuple(item for entry in entries for item in entry), (), (indices,))


def permute_along(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Return ``take_along_axis`` for index tensors of the same rank and sizes, the axis excepted."""
    return pick(x, along(indices, axis))


# --- sort ------------------------------------------------------------------------------------------------------------


def _sort_kernel(x: Any, *, axis: int, descending: bool) -> Any:
    ordered = np.sort(x, axis=axis, kind="stable")
    return np.flip(ordered, axis) if descending else ordered


def _sort_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: int, descending: bool) -> Tensor:
    inverse = argsort(argsort(x, axis, descending=descending), axis)
    return rearrange(ct, lambda inner: permute_along(inner, inverse, axis))


def _sort_jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: int, descending: bool) -> Tensor:
    order = argsort(x, axis, descending=descending)
    return rearrange(t, lambda inner: permute_along(inner, order, axis))


SORT = register(
    Op(
        "sort",
        infer=lambda x, *, axis, descending: (x.shape, x.dtype),
        kernel=_sort_kernel,
        vjp=(_sort_vjp,),
        jvp=(_sort_jvp,),
        params={"axis": STRUCTURE, "descending": STRUCTURE},
        needs=(INPUTS,),
    )
)


def sort(
    x: Any, axis: int | None = -1, kind: str | None = None, *, descending: bool = False, stable: bool | None = True
) -> Tensor:
    """Sort along an axis; ``axis=None`` sorts the flattened tensor.

    NaNs go last, or first when descending. The order is stable whatever ``stable`` and NumPy's ``kind`` say.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([3.0, 1.0, 2.0])
    >>> us.sort(x).eval()
    array([1., 2., 3.])
    >>> us.sort(x)[0].grad(x).eval()
    array([0., 1., 0.])
    """
    check_kind(kind)
    x, place = _flat_or_axis(as_tensor(x), axis)
    return _graph.apply(SORT, x, axis=place, descending=bool(descending))


# --- argsort ---------------------------------------------------------------------------------------------------------


def _argsort_kernel(x: Any, *, axis: int, descending: bool) -> Any:
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Sorting backwards from the end keeps the first of equal elements first.
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(order, axis)


ARGSORT = register(
    Op(
        "argsort",
        infer=lambda x, *, axis, descending: (x.shape, INT64),
        kernel=_argsort_kernel,
        params={"axis": STRUCTURE, "descending": STRUCTURE},
    )
)


def argsort(
    x: Any, axis: int | None = -1, kind: str | None = None, *, descending: bool = False, stable: bool | None = True
) -> Tensor:
    """Return the positions that sort a tensor along an axis; equal elements keep their order.

    The order is stable whatever ``stable`` and NumPy's ``kind`` say.

    Examples
    --------
    >>> import unspool as us
    >>> us.argsort([3.0, 1.0, 2.0]).eval()
    array([1, 2, 0])
    """
    check_kind(kind)
    x, place = _flat_or_axis(as_tensor(x), axis)
    return _graph.apply(ARGSORT, x, axis=place, descending=bool(descending))


def check_kind(kind: Any) -> None:
    """Refuse what is not one of NumPy's names for a way to sort."""
    if kind is not None and kind not in _KINDS:
        raise ArgumentError(f"kind is one of {', '.join(map(repr, _KINDS))} or None, got {kind!r}")


_KINDS = ("quicksort", "heapsort", "mergesort", "stable")


def _flat_or_axis(x: Tensor, axis: int | None) -> tuple[Tensor, int]:
    if axis is None:
        return reshape(x, (x.size,)), 0
    return x, normalize_axis(axis, x.ndim)


# --- searchsorted ----------------------------------------------------------------------------------------------------


def _infer_searchsorted(x1: Node, x2: Node, *, side: str) -> tuple[Shape, Any]:
    return x2.shape, INT64


SEARCHSORTED = register(
    Op(
        "searchsorted",
        infer=_infer_searchsorted,
        kernel=lambda x1, x2, *, side: np.searchsorted(x1, x2, side=side),
        params={"side": STRUCTURE},
        batch=batching.search,
    )
)


def searchsorted(x1: Any, x2: Any, side: Literal["left", "right"] = "left", sorter: Any = None) -> Tensor:
    """Return where to insert the elements of ``x2`` into the sorted ``x1`` to keep it sorted.

    Parameters
    ----------
    x1 : array_like
        One axis, sorted in rising order.
    x2 : array_like
        What to look for, of any shape.
    side : {"left", "right"}
        Whether to insert before or after elements that are equal.
    sorter : array_like of int, optional
        Positions that sort ``x1``, which then need not be sorted itself; see `argsort`.

    Examples
    --------
    >>> import unspool as us
    >>> us.searchsorted([1.0, 2.0, 3.0], [2.0, 2.5]).eval()
    array([1, 2])
    """
    x1, x2 = as_operands(x1, x2)
    if x1.ndim != 1:
        raise ShapeError(f"searchsorted looks into a tensor with one axis, got shape {x1.shape}")
    if side not in ("left", "right"):
        raise ArgumentError(f"side is 'left' or 'right', got {side!r}")
    if sorter is not None:
        order = as_tensor(sorter)
        if order.ndim != 1 or order.dtype not in INTEGERS:
            raise ArgumentError(f"sorter has integers along one axis, got shape {order.shape} and dtype {order.dtype}")
        x1 = permute_along(x1, astype(order, INT64), 0)
    return _graph.apply(SEARCHSORTED, x1, x2, side=side)
