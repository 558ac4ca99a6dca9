"""Functions that name axes: every one is a reshape, a permutation or a broadcast, found by looking at the shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._dims import equal, product
from unspool._ops.broadcasting import align, ensure_shape
from unspool._ops.layout.reshaping import (
    PERMUTE,
    Axis,
    broadcast_to,
    normalize_axes,
    normalize_axis,
    permute_dims,
    replaced,
    reshape,
    reverse_axes,
)
from unspool._ops.leaf import as_operands, as_tensor
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- reordering ------------------------------------------------------------------------------------------------------


def transpose(x: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Reorder the axes of a tensor, into the reverse order by default.

    Examples
    --------
    >>> import unspool as us
    >>> us.transpose([[1, 2], [3, 4]]).eval()
    array([[1, 3],
           [2, 4]])
    """
    x = as_tensor(x)
    return reverse_axes(x) if axes is None else permute_dims(x, axes)


def matrix_transpose(x: Any) -> Tensor:
    """Swap the last two axes of a matrix, or of a stack of matrices.

    Examples
    --------
    >>> import unspool as us
    >>> us.matrix_transpose(us.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose takes a tensor with at least 2 axes, got shape {x.shape}")
    return _graph.apply(PERMUTE, x, axes=_last_two_swapped(x.ndim))


@lru_cache(maxsize=64)
def _last_two_swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def swapaxes(x: Any, axis1: int, axis2: int) -> Tensor:
    """Swap two axes.

    Examples
    --------
    >>> import unspool as us
    >>> us.swapaxes(us.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_tensor(x)
    first, second = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permute_dims(x, order)


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Move axes to new positions; the others keep their order.

    Examples
    --------
    >>> import unspool as us
    >>> us.moveaxis(us.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_tensor(x)
    find = _with_one_moved if type(source) is type(destination) is int else _with_moved
    return _graph.apply(PERMUTE, x, axes=find(x.ndim, source, destination))


def _with_moved(rank: int, source: int | Sequence[int], destination: int | Sequence[int]) -> tuple[int, ...]:
    """Return the order of axes of which some were moved."""
    origins, targets = _distinct(source, rank), _distinct(destination, rank)
    if len(origins) != len(targets):
        raise ShapeError(f"moveaxis takes as many destinations as sources, got {source} and {destination}")
    order = [axis for axis in range(rank) if axis not in origins]
    for target, origin in sorted(zip(targets, origins, strict=True)):
        order.insert(target, origin)
    return tuple(order)


_with_one_moved = lru_cache(maxsize=256)(_with_moved)


def _distinct(axes: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return non-negative axes in the order given; duplicates raise."""
    found = tuple([normalize_axis(a, rank) for a in (axes if isinstance(axes, (tuple, list)) else (axes,))])
    if len(set(found)) != len(found):
        raise ShapeError(f"duplicate axis in {axes}")
    return found


# --- axes of size 1 --------------------------------------------------------------------------------------------------


def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Tensor:
    """Insert axes of size 1, at positions counted in the result.

    Examples
    --------
    >>> import unspool as us
    >>> us.expand_dims(us.zeros((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    x = as_tensor(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    shape = list(x.shape)
    for position in normalize_axes(axis, x.ndim + count):
        shape.insert(position, 1)
    return reshape(x, shape)


def squeeze(x: Any, axis: Axis = None) -> Tensor:
    """Remove axes of size 1: the given ones, or all that are known to have that size.

    Examples
    --------
    >>> import unspool as us
    >>> us.squeeze(us.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    x = as_tensor(x)
    if axis is None:
        return reshape(x, [size for size in x.shape if size != 1])
    removed = normalize_axes(axis, x.ndim)
    shape = x.shape
    for position in removed:
        if equal(shape[position], 1) is False:
            raise ShapeError(f"cannot squeeze axis {position} of a tensor of shape {x.shape}: its size is not 1")
        shape = replaced(shape, position, 1)
    return reshape(ensure_shape(x, shape), [size for position, size in enumerate(shape) if position not in removed])


def atleast_1d(*arrays: Any) -> Any:
    """Give tensors at least one axis; one argument gives a tensor, several give a tuple.

    Examples
    --------
    >>> import unspool as us
    >>> us.atleast_1d(3.0).shape
    (1,)
    """
    return _one_or_all([x if x.ndim else reshape(x, (1,)) for x in map(as_tensor, arrays)])


def atleast_2d(*arrays: Any) -> Any:
    """Give tensors at least two axes, new ones first; one argument gives a tensor, several give a tuple.

    Examples
    --------
    >>> import unspool as us
    >>> us.atleast_2d([1.0, 2.0]).shape
    (1, 2)
    """
    return _one_or_all([reshape(x, (1,) * (2 - x.ndim) + x.shape) for x in map(as_tensor, arrays)])


def atleast_3d(*arrays: Any) -> Any:
    """Give tensors at least three axes; a vector becomes (1, n, 1) and a matrix (m, n, 1).

    Examples
    --------
    >>> import unspool as us
    >>> us.atleast_3d([1.0, 2.0]).shape
    (1, 2, 1)
    """
    return _one_or_all([expand_dims(x, _NEW_AXES_3D.get(x.ndim, ())) for x in map(as_tensor, arrays)])


_NEW_AXES_3D = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}


def _one_or_all(results: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    return results[0] if len(results) == 1 else tuple(results)


# --- one axis --------------------------------------------------------------------------------------------------------


def ravel(x: Any, order: str = "C") -> Tensor:
    """Give a tensor one axis, with the elements in row-major order, or with ``order="F"`` in column-major order.

    Examples
    --------
    >>> import unspool as us
    >>> us.ravel([[1, 2], [3, 4]]).eval()
    array([1, 2, 3, 4])
    """
    x = as_tensor(x)
    return reshape(x, (product(x.shape),), order)


flatten = ravel


# --- broadcasting ----------------------------------------------------------------------------------------------------


def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """Broadcast tensors against each other.

    Examples
    --------
    >>> import unspool as us
    >>> [t.shape for t in us.broadcast_arrays([[1.0], [2.0]], [1.0, 2.0, 3.0])]
    [(2, 3), (2, 3)]
    """
    if not arrays:
        return ()
    tensors, shape = align(*map(as_tensor, arrays))
    return tuple(broadcast_to(x, shape) for x in tensors)


def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Tensor, ...]:
    """Make coordinate tensors from coordinate vectors.

    Parameters
    ----------
    *arrays : array_like
        The coordinates along each axis.
    indexing : {"xy", "ij"}
        ``"ij"`` orders the axes of the result like the arguments; ``"xy"`` swaps the first two.
    sparse : bool
        Leave the results of size 1 along all axes but their own, to be broadcast later.

    Examples
    --------
    >>> import unspool as us
    >>> x, y = us.meshgrid([1, 2, 3], [10, 20])
    >>> (x + y).eval()
    array([[11, 12, 13],
           [21, 22, 23]])
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"indexing is 'xy' or 'ij', got {indexing!r}")
    vectors = [ravel(as_operands(x)[0]) for x in arrays]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        order[:2] = 1, 0
    ones = (1,) * len(vectors)
    grids = tuple(reshape(v, replaced(ones, axis, v.shape[0])) for v, axis in zip(vectors, order, strict=True))
    if sparse:
        return grids
    shape = tuple(vectors[axis].shape[0] for axis in order)
    return tuple(broadcast_to(grid, shape) for grid in grids)
