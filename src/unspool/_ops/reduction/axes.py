"""What reductions have in common: the axes they reduce, the adjoint over them, masks of elements to leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._dims import Shape, Size, equal, product
from unspool._dtypes import BOOL, COMPLEX, EXACT, INT64, UINT64, UNSIGNED, DType
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.leaf import as_tensor
from unspool.errors import DTypeError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor

Axis = int | Sequence[int] | None

_SMALL = EXACT - {INT64, UINT64}


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """Return a shape with some axes reduced away, or to size 1."""
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def reduced_size(shape: Shape, axes: tuple[int, ...]) -> Size:
    """Return how many elements are reduced to one."""
    if len(axes) == 1:
        return shape[axes[0]]
    return product([shape[axis] for axis in axes])


def expand_like(x: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Broadcast the result of a reduction back over the axes it reduced."""
    return layout.broadcast_to(layout.reshape(x, reduced_shape(like.shape, axes, keepdims=True)), like.shape)


def spread(ct: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Broadcast the cotangent of a reduction back over the axes it reduced; what is absent stays absent."""
    return layout.rearrange(ct, lambda inner: expand_like(inner, like, axes))


def selection(where: Any, like: Tensor) -> Tensor | None:
    """Return a ``where=`` argument as bools in the shape of the operand, ``None`` if it selects everything."""
    if where is None or where is True:
        return None
    keep = as_tensor(where)
    if keep.dtype != BOOL:
        raise DTypeError(f"where= takes a mask of bools, got {keep.dtype}")
    return layout.broadcast_to(keep, like.shape)


def accumulated(x: Tensor, dtype: DTypeLike | None) -> tuple[Tensor, DType]:
    """Return an operand as it is added up or multiplied, and the data type of the result.

    Integers are accumulated in 64 bits whatever is asked for, as NumPy's kernels do by themselves, and converted after.
    """
    if dtype is not None:
        x = elementwise.astype(x, dtype)
    wide = widened(x)
    return wide, wide.dtype if dtype is None else x.dtype


def widened(x: Tensor) -> Tensor:
    """Return bools and small integers as the 64-bit ones that NumPy adds and multiplies them in."""
    return elementwise.astype(x, UINT64 if x.dtype in UNSIGNED else INT64) if x.dtype in _SMALL else x


def refuse_complex(x: Node, function: str) -> None:
    """Raise `DTypeError` for complex operands of a function that needs an order."""
    if x.dtype in COMPLEX:
        raise DTypeError(f"{function} needs numbers with an order, got {x.dtype}; take abs(x), x.real or x.imag first")


def refuse_empty(shape: Shape, axes: tuple[int, ...], function: str) -> None:
    """Raise `ShapeError` where a function without a neutral element would have to reduce no elements to one."""
    if equal(reduced_size(shape, axes), 0) is True:
        raise ShapeError(f"{function} of no elements: axis {axes} of a tensor of shape {shape} has size 0")
