"""Orders that are less, or more, than one sort: partitions, and sorting by several keys.

A partition moves elements by positions (`argpartition`), so its derivatives are those of taking along an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import COMPLEX, COMPLEX128, INT64
from unspool._graph import Node
from unspool._ops.checks import as_integer, one_of
from unspool._ops.elementwise import astype
from unspool._ops.indexing.sorting import argsort, permute_along, sort
from unspool._ops.layout import broadcast_arrays, normalize_axis, ravel, unstack
from unspool._ops.leaf import as_tensor
from unspool._ops.op import STRUCTURE, Op, register
from unspool.errors import ArgumentError, AxisError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _infer_argpartition(x: Node, *, kth: tuple[int, ...], axis: int) -> tuple[Shape, Any]:
    size = x.shape[axis]
    for place in kth:
        if isinstance(size, int) and not -size <= place < size:
            raise ArgumentError(f"kth={place} is out of range for axis {axis} of size {size}")
    return x.shape, INT64


ARGPARTITION = register(
    Op(
        "argpartition",
        infer=_infer_argpartition,
        kernel=lambda x, *, kth, axis: np.argpartition(x, kth, axis=axis),
        params={"kth": STRUCTURE, "axis": STRUCTURE},
    )
)


def argpartition(x: Any, kth: int | Sequence[int], axis: int | None = -1, kind: str = "introselect") -> Tensor:
    """Return positions that partition a tensor along an axis; see `partition`.

    Examples
    --------
    >>> import unspool as us
    >>> us.argpartition([3.0, 1.0, 2.0], 0).eval()[0]
    np.int64(1)
    """
    one_of(kind, ("introselect",), "kind")
    x, place = _flat_or_axis(x, axis)
    return _graph.apply(ARGPARTITION, x, kth=_as_places(kth), axis=place)


def partition(x: Any, kth: int | Sequence[int], axis: int | None = -1, kind: str = "introselect") -> Tensor:
    """Order elements so that those at ``kth`` are where sorting would put them: smaller ones before, larger ones after.

    Parameters
    ----------
    x : array_like
        What to partition.
    kth : int or sequence of int
        Places along the axis.
    axis : int, optional
        Along which axis; ``None`` means the flattened tensor.
    kind : {"introselect"}
        NumPy's name for the way to do it.

    Examples
    --------
    >>> import unspool as us
    >>> us.partition([3.0, 1.0, 2.0, 0.0], 1).eval()[1]
    np.float64(1.0)
    """
    x, place = _flat_or_axis(x, axis)
    return permute_along(x, argpartition(x, kth, place, kind), place)


def lexsort(keys: Any, axis: int = -1) -> Tensor:
    """Return the positions that sort by several keys, the last one first.

    Parameters
    ----------
    keys : sequence of array_like
        Keys of one shape; the last one is the primary key.
    axis : int
        Along which axis of a key.

    Examples
    --------
    >>> import unspool as us
    >>> us.lexsort(([1, 0, 2], [5, 5, 4])).eval()
    array([2, 1, 0])
    """
    found = keys if isinstance(keys, (list, tuple)) else unstack(keys)
    if not found:
        raise ArgumentError(f"lexsort takes at least one key, got {keys!r}")
    tensors = broadcast_arrays(*found)
    if not tensors[0].ndim:
        raise AxisError("lexsort takes keys with at least one axis")
    place = normalize_axis(axis, tensors[0].ndim)
    order = argsort(tensors[0], place)
    for key in tensors[1:]:
        order = permute_along(order, argsort(permute_along(key, order, place), place), place)
    return order


def sort_complex(x: Any) -> Tensor:
    """Sort as complex numbers, by real part and then by imaginary part, along the last axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.sort_complex([3.0, 1.0 + 1j, 1.0]).eval()
    array([1.+0.j, 1.+1.j, 3.+0.j])
    """
    x = as_tensor(x)
    if not x.ndim:
        raise AxisError("sort_complex takes a tensor with at least one axis")
    return sort(x if x.dtype in COMPLEX else astype(x, COMPLEX128))


def _flat_or_axis(x: Any, axis: int | None) -> tuple[Tensor, int]:
    x = as_tensor(x)
    return (ravel(x), 0) if axis is None else (x, normalize_axis(axis, x.ndim))


def _as_places(kth: Any) -> tuple[int, ...]:
    places = kth if isinstance(kth, (list, tuple, np.ndarray)) else [kth]
    return tuple(as_integer(place, "kth") for place in places)
