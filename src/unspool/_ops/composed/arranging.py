"""Putting tensors together and taking them apart, as NumPy names it beside what `unspool._ops.layout` has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Dim, equal
from unspool._dtypes import BOOL, INT64
from unspool._ops import elementwise, layout, reduction
from unspool._ops.checks import as_integer
from unspool._ops.indexing import take
from unspool._ops.indexing.access import getitem
from unspool._ops.leaf import as_operands, as_tensor, constant
from unspool.errors import ArgumentError, AxisError, IndexRangeError, ShapeError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- joining ---------------------------------------------------------------------------------------------------------


def append(x: Any, values: Any, axis: int | None = None) -> Tensor:
    """Put values at the end of an axis; without an axis, at the end of the flattened tensor.

    Examples
    --------
    >>> import unspool as us
    >>> us.append([1.0, 2.0], [[3.0]]).eval()
    array([1., 2., 3.])
    """
    x, values = as_operands(x, values)
    return layout.concat([layout.ravel(x), layout.ravel(values)]) if axis is None else layout.concat([x, values], axis)


def block(arrays: Any) -> Tensor:
    """Join nested lists of tensors: the innermost lists along the last axis, those around them along the one before.

    Examples
    --------
    >>> import unspool as us
    >>> us.block([[us.eye(2), us.zeros((2, 1))], [us.zeros((1, 2)), 5.0]]).eval()
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 5.]])
    """
    depth, pieces = _nesting(arrays, 0)
    rank = max([depth, *[piece.ndim for piece in pieces]])
    return _joined(arrays, depth, rank)


def _nesting(arrays: Any, depth: int) -> tuple[int, list[Tensor]]:
    """Return how deeply lists are nested, which is the same everywhere, and what they hold."""
    if isinstance(arrays, tuple):
        raise ArgumentError("block takes nested lists, and a tuple would be ambiguous; got a tuple")
    if not isinstance(arrays, list):
        return depth, [as_tensor(arrays)]
    if not arrays:
        raise ArgumentError("block takes lists that are not empty")
    found = [_nesting(item, depth + 1) for item in arrays]
    if len({deep for deep, _ in found}) > 1:
        raise ArgumentError(f"block takes lists nested alike, these are {sorted({deep for deep, _ in found})} deep")
    return found[0][0], [piece for _, pieces in found for piece in pieces]


def _joined(arrays: Any, depth: int, rank: int) -> Tensor:
    if not isinstance(arrays, list):
        piece = as_tensor(arrays)
        return layout.reshape(piece, (1,) * (rank - piece.ndim) + piece.shape)
    return layout.concat([_joined(item, depth - 1, rank) for item in arrays], -depth)


def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """Put values before the given positions of an axis; without an axis, of the flattened tensor.

    Parameters
    ----------
    x : array_like
        The tensor.
    obj : int, slice or sequence of int
        Before which positions; constants, since the result depends on them.
    values : array_like
        What to put there; broadcast to the shape of that many slices.
    axis : int, optional
        Along which axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.insert([1.0, 2.0, 3.0], 1, 9.0).eval()
    array([1., 9., 2., 3.])
    """
    x, values = as_operands(x, values)
    if axis is None:
        x, axis = layout.ravel(x), 0
    place = layout.normalize_axis(axis, x.ndim)
    size = _known("insert", x, place)
    where = _as_positions(obj, size)
    if values.ndim < x.ndim:
        values = layout.reshape(values, (1,) * (x.ndim - values.ndim) + values.shape)
    if not np.ndim(where):
        values = layout.moveaxis(values, 0, place)
    count = len(where) if np.ndim(where) and len(where) != 1 else _known("insert", values, place)
    values = layout.broadcast_to(elementwise.astype(values, x.dtype), layout.replaced(x.shape, place, count))
    try:
        order = np.insert(np.arange(size), where, np.arange(size, size + count))
    except (IndexError, ValueError) as error:
        raise IndexRangeError(f"insert before {obj!r} of an axis of size {size}: {error}") from None
    return take(layout.concat([x, values], place), order, axis=place)


def delete(x: Any, obj: Any, axis: int | None = None) -> Tensor:
    """Leave out the given positions of an axis; without an axis, of the flattened tensor.

    Parameters
    ----------
    x : array_like
        The tensor.
    obj : int, slice or sequence of int or bool
        Which positions; constants, since the shape of the result depends on them.
    axis : int, optional
        Along which axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.delete([1.0, 2.0, 3.0], 1).eval()
    array([1., 3.])
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = layout.ravel(x), 0
    place = layout.normalize_axis(axis, x.ndim)
    size = _known("delete", x, place)
    try:
        rest = np.delete(np.arange(size), _as_positions(obj, size))
    except (IndexError, ValueError) as error:
        raise IndexRangeError(f"delete {obj!r} of an axis of size {size}: {error}") from None
    return take(x, rest, axis=place)


def _as_positions(obj: Any, size: int) -> Any:
    if isinstance(obj, slice):
        return np.arange(size)[obj]
    tensor = as_tensor(np.zeros(0, np.int64) if isinstance(obj, (list, tuple)) and not obj else obj)
    if tensor.dtype.kind not in "iub" or tensor.ndim > 1:
        raise ArgumentError(f"positions are integers or bools along one axis, got {tensor.shape} {tensor.dtype}")
    return tensor.eval() if tensor.dtype == BOOL else tensor.eval().astype(INT64)


def _known(name: str, x: Tensor, axis: int) -> int:
    size = x.shape[axis]
    if isinstance(size, Dim):
        raise UnknownSizeError(f"{name} along axis {axis} needs to know its size, got {size}")
    return size


# --- splitting and turning -------------------------------------------------------------------------------------------


def hsplit(x: Any, indices_or_sections: Any) -> list[Tensor]:
    """Cut a tensor into pieces along its second axis, or its only one; see `unspool.split`.

    Examples
    --------
    >>> import unspool as us
    >>> [piece.eval() for piece in us.hsplit([1, 2, 3, 4], 2)]
    [array([1, 2]), array([3, 4])]
    """
    x = _at_least("hsplit", x, 1)
    return layout.split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


def vsplit(x: Any, indices_or_sections: Any) -> list[Tensor]:
    """Cut a tensor with at least two axes into pieces along its first axis; see `unspool.split`.

    Examples
    --------
    >>> import unspool as us
    >>> [piece.eval() for piece in us.vsplit([[1, 2], [3, 4]], 2)]
    [array([[1, 2]]), array([[3, 4]])]
    """
    return layout.split(_at_least("vsplit", x, 2), indices_or_sections, 0)


def dsplit(x: Any, indices_or_sections: Any) -> list[Tensor]:
    """Cut a tensor with at least three axes into pieces along its third axis; see `unspool.split`.

    Examples
    --------
    >>> import unspool as us
    >>> [piece.shape for piece in us.dsplit(us.zeros((2, 3, 4)), 2)]
    [(2, 3, 2), (2, 3, 2)]
    """
    return layout.split(_at_least("dsplit", x, 3), indices_or_sections, 2)


def _at_least(name: str, x: Any, rank: int) -> Tensor:
    tensor = as_tensor(x)
    if tensor.ndim < rank:
        raise ShapeError(f"{name} takes a tensor with at least {rank} axes, got shape {tensor.shape}")
    return tensor


def rollaxis(x: Any, axis: int, start: int = 0) -> Tensor:
    """Move an axis backwards until it lies before another; `unspool.moveaxis` is easier to read.

    Examples
    --------
    >>> import unspool as us
    >>> us.rollaxis(us.zeros((3, 4, 5)), 2).shape
    (5, 3, 4)
    """
    x = as_tensor(x)
    origin, before = layout.normalize_axis(axis, x.ndim), as_integer(start, "start")
    if not -x.ndim <= before <= x.ndim:
        raise AxisError(f"start {start} is out of range for a tensor with {x.ndim} axes")
    before += x.ndim if before < 0 else 0
    return layout.moveaxis(x, origin, before - 1 if origin < before else before)


def trim_zeros(filt: Any, trim: str = "fb") -> Tensor:
    """Leave out zeros at the front and the back of a sequence, which is evaluated.

    Examples
    --------
    >>> import unspool as us
    >>> us.trim_zeros([0.0, 1.0, 0.0, 2.0, 0.0]).eval()
    array([1., 0., 2.])
    """
    x = as_tensor(filt)
    if x.ndim != 1:
        raise ShapeError(f"trim_zeros takes a sequence, a tensor with one axis, got shape {x.shape}")
    ends = str(trim).lower()
    if ends not in ("f", "b", "fb", "bf"):
        raise ArgumentError(f"trim is 'f', 'b' or both, got {trim!r}")
    present = np.flatnonzero(x.eval())
    if not len(present):
        return getitem(x, slice(0, 0))
    start = int(present[0]) if "f" in ends else 0
    stop = int(present[-1]) + 1 if "b" in ends else len(x)
    return getitem(x, slice(start, stop))


def copy(x: Any) -> Tensor:
    """Return a tensor for anything; what is one is returned as it is, since it never changes.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0])
    >>> us.copy(x) is x
    True
    """
    return as_tensor(x)


# --- comparing -------------------------------------------------------------------------------------------------------


def array_equal(x1: Any, x2: Any, equal_nan: bool = False) -> Tensor:
    """Whether two tensors have one shape and the same elements.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.array_equal([1.0, 2.0], [1.0, 2.0]))
    True
    """
    x1, x2 = as_operands(x1, x2)
    if x1.ndim != x2.ndim or any(equal(a, b) is False for a, b in zip(x1.shape, x2.shape, strict=True)):
        return constant(False)
    same = elementwise.equal(x1, x2)
    if equal_nan and x1.dtype.kind in "fc" and x2.dtype.kind in "fc":
        same = elementwise.logical_or(same, elementwise.logical_and(elementwise.isnan(x1), elementwise.isnan(x2)))
    return reduction.all(same)


def array_equiv(x1: Any, x2: Any) -> Tensor:
    """Whether two tensors broadcast to one shape and then have the same elements.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.array_equiv([1.0, 2.0], [[1.0, 2.0], [1.0, 2.0]]))
    True
    """
    x1, x2 = as_operands(x1, x2)
    try:
        same = elementwise.equal(x1, x2)
    except ShapeError:
        return constant(False)
    return reduction.all(same)


# --- functions of slices ---------------------------------------------------------------------------------------------


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Apply a function to every vector along an axis and put what it returns in the place of that axis.

    The function is called once for each vector, with tensors; sizes of the other axes have to be known.

    Examples
    --------
    >>> import unspool as us
    >>> us.apply_along_axis(us.sum, 1, [[1.0, 2.0], [3.0, 4.0]]).eval()
    array([3., 7.])
    """
    if not callable(func1d):
        raise ArgumentError(f"apply_along_axis takes a function of vectors, got {func1d!r}")
    x = as_tensor(arr)
    place = layout.normalize_axis(axis, x.ndim)
    rows = layout.moveaxis(x, place, -1)
    sizes = [_known("apply_along_axis", rows, i) for i in range(x.ndim - 1)]
    if 0 in sizes:
        raise ShapeError(f"apply_along_axis of a tensor of shape {x.shape} has no vectors to apply a function to")
    results = [as_tensor(func1d(getitem(rows, index), *args, **kwargs)) for index in product(*map(range, sizes))]
    shape = results[0].shape
    stacked = layout.reshape(layout.stack(results), (*sizes, *shape))
    return layout.moveaxis(stacked, tuple(range(len(sizes), stacked.ndim)), tuple(range(place, place + len(shape))))


def apply_over_axes(func: Callable[..., Any], x: Any, axes: int | Sequence[int]) -> Tensor:
    """Apply a function of a tensor and an axis, such as `unspool.sum`, for one axis after the other.

    Axes that it reduces are kept, with size 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.apply_over_axes(us.sum, [[1.0, 2.0], [3.0, 4.0]], [0, 1]).eval()
    array([[10.]])
    """
    if not callable(func):
        raise ArgumentError(f"apply_over_axes takes a function of a tensor and an axis, got {func!r}")
    result = as_tensor(x)
    rank = result.ndim
    for place in [layout.normalize_axis(a, rank) for a in (axes if isinstance(axes, (list, tuple)) else (axes,))]:
        made = as_tensor(func(result, place))
        result = made if made.ndim == rank else layout.expand_dims(made, place)
        if result.ndim != rank:
            raise ShapeError(f"a function over axes reduces one or keeps all, got {made.shape} from {rank} axes")
    return result
