"""Indexing: ``x[...]`` as in NumPy, taking along an axis, and what depends on where elements are true.

The parsing is in `parse`, the ops are in `selection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core
from unspool._dims import equal
from unspool._dtypes import INT64, INTEGERS, UNSIGNED
from unspool._graph import Node
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.creation import size_tensor
from unspool._ops.elementwise import astype, clip, remainder
from unspool._ops.indexing.parse import ParsedIndex, parse_index
from unspool._ops.indexing.selection import select
from unspool._ops.indexing.sorting import along
from unspool._ops.indexing.template import check_range
from unspool._ops.indexing.updates import update_of
from unspool._ops.late import ops
from unspool._ops.layout import broadcast_to, normalize_axis, reshape
from unspool._ops.leaf import CONSTANT, as_tensor, constant
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def getitem(x: Tensor, index: Any) -> Tensor:
    """Return ``x[index]`` for anything that NumPy accepts as an index.

    An integer tensor in the index stays part of the graph; a boolean mask is evaluated when the index is built.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> x[1, ::-1].eval()
    array([4., 3.])
    >>> x[[0, 1], [1, 0]].eval()
    array([2., 3.])
    >>> x[x > 2].eval()
    array([3., 4.])
    """
    found = _core.pick(x, index)
    return select(parse_index(x, index)) if found is None else found


# --- along an axis ---------------------------------------------------------------------------------------------------


def take(x: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Tensor:
    """Return elements by their positions along an axis; without an axis, of the flattened tensor.

    Parameters
    ----------
    x : array_like
        Where to take from.
    indices : array_like of int
        Positions, of any shape; the result has that shape in place of the axis.
    axis : int, optional
        The axis to take along.
    mode : {"raise", "wrap", "clip"}
        What positions outside of the axis are: an error, positions counted around, or the nearest end; with ``"clip"``
        negative ones are the first.

    Examples
    --------
    >>> import unspool as us
    >>> us.take([[1.0, 2.0], [3.0, 4.0]], [1, 1, 0], axis=1).eval()
    array([[2., 2., 1.],
           [4., 4., 3.]])
    """
    x = as_tensor(x)
    if axis is None:
        x, place = reshape(x, (x.size,)), 0
    else:
        place = normalize_axis(axis, x.ndim)
    positions = _as_positions(indices)
    if mode != "raise":
        positions = _into_range(positions, size_tensor(x.shape[place], INT64), mode)
    return select(parse_index(x, (*[slice(None)] * place, positions)))


def _into_range(positions: Tensor, size: Tensor, mode: str) -> Tensor:
    if mode == "wrap":
        return remainder(positions, size)
    if mode == "clip":
        return clip(positions, 0, size - 1)
    raise ArgumentError(f"mode is 'raise', 'wrap' or 'clip', got {mode!r}")


def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Tensor:
    """Return elements by positions along one axis, matching along all others.

    Parameters
    ----------
    x : array_like
        Where to take from.
    indices : array_like of int
        As many axes as ``x``; the other axes broadcast against those of ``x``.
    axis : int, optional
        The axis to take along; ``None`` means the flattened tensor.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([[3.0, 1.0], [2.0, 4.0]])
    >>> us.take_along_axis(x, us.argsort(x, axis=1), axis=1).eval()
    array([[1., 3.],
           [2., 4.]])
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    return select(_parse_along(x, _as_positions(indices), axis, stretch=True))


def put_along_axis(x: Any, indices: Any, values: Any, axis: int) -> Tensor:
    """Return the tensor with elements replaced by positions along one axis, matching along all others.

    NumPy's function of this name writes into its argument; this one returns a new tensor. Of values for one element the
    last stays.

    Examples
    --------
    >>> import unspool as us
    >>> us.put_along_axis([[1.0, 2.0], [3.0, 4.0]], [[0], [1]], 9.0, axis=1).eval()
    array([[9., 2.],
           [3., 9.]])
    """
    x = as_tensor(x)
    return update_of(x, _parse_along(x, _as_positions(indices), axis, stretch=False)).set(values)


def _parse_along(x: Tensor, indices: Tensor, axis: int, *, stretch: bool) -> ParsedIndex:
    if indices.ndim != x.ndim:
        raise ShapeError(f"indices have as many axes as the tensor: expected {x.ndim}, got shape {indices.shape}")
    place = normalize_axis(axis, x.ndim)
    size = x.shape[place]
    if indices.op is CONSTANT and isinstance(size, int):
        check_range(indices.value, place, size)
    others = broadcast_shapes(_without(x.shape, place), _without(indices.shape, place))
    if stretch:
        x = broadcast_to(x, (*others[:place], size, *others[place:]))
    elif any(equal(a, b) is False for a, b in zip(others, _without(x.shape, place), strict=True)):
        raise ShapeError(f"indices of shape {indices.shape} do not fit a tensor of shape {x.shape} along axis {axis}")
    indices = broadcast_to(indices, (*others[:place], indices.shape[place], *others[place:]))
    return ParsedIndex(x, along(indices, place))


def _without(shape: Any, axis: int) -> Any:
    return shape[:axis] + shape[axis + 1 :]


def _as_positions(indices: Any) -> Tensor:
    if not isinstance(indices, Node):
        array = np.asarray(indices)
        indices = constant(array.astype(INT64) if array.size == 0 or array.dtype.kind in "iu" else array)
    positions = as_tensor(indices)
    if positions.dtype not in INTEGERS:
        raise DTypeError(f"positions are integers, got dtype {positions.dtype}")
    return astype(positions, INT64) if positions.dtype in UNSIGNED else positions


# --- where elements are true -----------------------------------------------------------------------------------------


def nonzero(x: Any) -> tuple[Tensor, ...]:
    """Return the positions of the elements that are not 0, one tensor of integers per axis.

    How many there are depends on values, so ``x`` is evaluated and the positions are constants.

    Examples
    --------
    >>> import unspool as us
    >>> [p.eval() for p in us.nonzero([[0, 1], [2, 0]])]
    [array([0, 1]), array([1, 0])]
    """
    x = as_tensor(x)
    if not x.shape:
        raise ShapeError("nonzero() takes a tensor with at least one axis")
    return tuple(constant(positions) for positions in np.nonzero(x.eval()))


def flatnonzero(x: Any) -> Tensor:
    """Return the positions of the elements that are not 0 in the flattened tensor, as constants.

    Examples
    --------
    >>> import unspool as us
    >>> us.flatnonzero([[0, 1], [2, 0]]).eval()
    array([1, 2])
    """
    return constant(np.flatnonzero(as_tensor(x).eval()))


def argwhere(x: Any) -> Tensor:
    """Return the positions of the elements that are not 0, one row each, as constants.

    Examples
    --------
    >>> import unspool as us
    >>> us.argwhere([[0, 1], [2, 0]]).eval()
    array([[0, 1],
           [1, 0]])
    """
    return constant(np.argwhere(as_tensor(x).eval()))


def compress(condition: Any, x: Any, axis: int | None = None) -> Tensor:
    """Return the slices along an axis for which a condition, which is evaluated, holds.

    Examples
    --------
    >>> import unspool as us
    >>> us.compress([True, False, True], [1.0, 2.0, 3.0]).eval()
    array([1., 3.])
    """
    condition = as_tensor(condition)
    if condition.ndim != 1:
        raise ShapeError(f"a condition to compress by has one axis, got shape {condition.shape}")
    return take(x, flatnonzero(condition), axis)


def extract(condition: Any, x: Any) -> Tensor:
    """Return the elements for which a condition, which is evaluated, holds, in row-major order.

    Examples
    --------
    >>> import unspool as us
    >>> us.extract([[True, False], [False, True]], [[1.0, 2.0], [3.0, 4.0]]).eval()
    array([1., 4.])
    """
    return take(x, flatnonzero(condition))


ops.provide(nonzero=nonzero)
