"""The cross product as ``numpy.cross`` has it, with an axis for each operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._ops import elementwise, layout
from unspool._ops.indexing.access import getitem
from unspool._ops.layout.padding import pad
from unspool._ops.leaf import as_operands
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def cross(x1: Any, x2: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tensor:
    """Return the cross product of vectors with three elements; other axes broadcast.

    Parameters
    ----------
    x1, x2 : array_like
        The vectors. Those with two elements lie in a plane; of two such the product is a number.
    axisa, axisb, axisc : int
        The axis of the vectors in the first operand, the second and the result.
    axis : int, optional
        One axis for all three.

    Examples
    --------
    >>> import unspool as us
    >>> us.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).eval()
    array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    first, second = (_vectors(x, place) for x, place in zip(as_operands(x1, x2), (axisa, axisb), strict=True))
    sizes = first.shape[-1], second.shape[-1]
    if sizes == (2, 2):
        return _at(first, 0) * _at(second, 1) - _at(first, 1) * _at(second, 0)
    first, second = _in_space(first), _in_space(second)
    # Component i is made of the components after it, in a circle.
    components = [
        elementwise.subtract(_at(first, i - 2) * _at(second, i - 1), _at(first, i - 1) * _at(second, i - 2))
        for i in range(3)
    ]
    return layout.stack(components, axisc)


def _vectors(x: Tensor, axis: int) -> Tensor:
    if not x.ndim:
        raise ShapeError("cross takes vectors of two or three elements, got a scalar")
    moved = layout.moveaxis(x, layout.normalize_axis(axis, x.ndim), -1)
    if moved.shape[-1] not in (2, 3):
        raise ShapeError(f"cross takes vectors of two or three elements, got {moved.shape[-1]} along axis {axis}")
    return moved


def _in_space(x: Tensor) -> Tensor:
    return x if x.shape[-1] == 3 else pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])


def _at(x: Tensor, component: int) -> Tensor:
    return getitem(x, (..., component % 3 if x.shape[-1] == 3 else component))
