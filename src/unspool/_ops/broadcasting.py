"""Broadcasting of shapes that may hold symbolic sizes, and its adjoint.

A size that is not known to be 1 never broadcasts. Where two unknown sizes have to be equal for an op to make sense,
that is written into the graph: the operand passes through ``ensure_shape``, which checks the claim when sizes are bound
and names both dims and the user's line if it fails.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, Size, equal, is_concrete
from unspool._ops import batching
from unspool._ops.late import ops
from unspool._ops.leaf import as_shape
from unspool._ops.op import FOR_ITS_OWN, SIZE, Op, register
from unspool.errors import ShapeError, SizeContradictionError

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape that shapes broadcast to together.

    Where two symbolic sizes meet that are not known to be equal, the first one stands for both.

    Examples
    --------
    >>> import unspool as us
    >>> us.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    for shape in shapes:
        if type(shape) is not tuple:
            return broadcast_shapes(*map(as_shape, shapes))
    if all(is_concrete(shape) for shape in shapes):
        try:
            return np.broadcast_shapes(*shapes)
        except TypeError:
            return broadcast_shapes(*map(as_shape, shapes))
        except ValueError:
            raise _no_broadcast(shapes) from None
    rank = max(len(shape) for shape in shapes)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            result[axis] = _meet(result[axis], size, shapes)
    return tuple(result)


def _no_broadcast(shapes: tuple[Shape, ...]) -> ShapeError:
    """Return the error for numbers that NumPy does not broadcast: they differ, or are too many elements together."""
    columns = [set(sizes) - {1} for sizes in zip_longest(*[shape[::-1] for shape in shapes], fillvalue=1)]
    if any(len(sizes) > 1 for sizes in columns):
        return ShapeError(f"shapes {_list(shapes)} cannot be broadcast together")
    shape = tuple(sizes.pop() if sizes else 1 for sizes in reversed(columns))
    return ShapeError(f"shape {shape} has more elements than an array can have")


def _meet(left: Size, right: Size, shapes: tuple[Shape, ...]) -> Size:
    if left == 1:
        return right
    if right == 1 or left == right:
        return left
    if equal(left, right) is False:
        raise ShapeError(f"shapes {_list(shapes)} cannot be broadcast together: {left} is never equal to {right}")
    # A number is the better name for a size than a symbol that has to be equal to it.
    return right if isinstance(right, int) else left


def align(*operands: Tensor) -> tuple[tuple[Tensor, ...], Shape]:
    """Return the operands, with the sizes that must be equal ensured, and the shape they broadcast to."""
    shape = broadcast_shapes(*[x.shape for x in operands])
    if is_concrete(shape) and all(is_concrete(x.shape) for x in operands):
        return operands, shape
    return tuple(ensure_shape(x, _expected(x.shape, shape)) for x in operands), shape


def _expected(shape: Shape, target: Shape) -> Shape:
    tail = target[len(target) - len(shape) :]
    return tuple(1 if size == 1 else goal for size, goal in zip(shape, tail, strict=True))


def sum_to_shape(x: Tensor, shape: Shape) -> Tensor:
    """Sum a tensor over the axes along which ``shape`` would broadcast to its shape (the adjoint of broadcasting)."""
    if x.shape == shape:
        return x
    extra = len(x.shape) - len(shape)
    stretched = tuple(extra + axis for axis, size in enumerate(shape) if size == 1 and x.shape[extra + axis] != 1)
    if stretched:
        x = ops.sum(x, axis=stretched, keepdims=True)
    if extra:
        x = ops.sum(x, axis=tuple(range(extra)))
    return ensure_shape(x, shape)


def ensure_shape(x: Tensor, shape: Shape) -> Tensor:
    """Return the tensor, seen with a shape that must turn out to be its own when sizes are bound."""
    return _graph.apply(ENSURE_SHAPE, x, shape=shape)


def _canonical_ensure_shape(x: Tensor, *, shape: Shape) -> Tensor | None:
    return x if x.shape == shape else None


def _infer_ensure_shape(x: Node, *, shape: Shape) -> tuple[Shape, Any]:
    if not may_be_equal(x.shape, shape):
        raise ShapeError(f"a tensor of shape {x.shape} can never have shape {shape}")
    return shape, x.dtype


def _ensure_shape_kernel(x: Any, *, shape: tuple[int, ...]) -> Any:
    if x.shape != shape:
        raise SizeContradictionError(f"sizes that must be equal are bound to different numbers: {x.shape} and {shape}")
    return x


ENSURE_SHAPE = register(
    Op(
        "ensure_shape",
        infer=_infer_ensure_shape,
        kernel=_ensure_shape_kernel,
        vjp=(lambda ct, out, x, *, shape: _moved(ct, x.shape),),
        jvp=(lambda t, out, x, *, shape: _moved(t, shape),),
        params={"shape": SIZE},
        canonical=_canonical_ensure_shape,
        canonical_for=FOR_ITS_OWN,
        cheap=True,
        renames=True,  # in a plan: what it checks was checked when the sizes were bound
        batch=batching.prefixed(shape=None),
    )
)


def may_be_equal(left: Shape, right: Shape) -> bool:
    """Whether two shapes are equal for some binding of their sizes."""
    return len(left) == len(right) and all(equal(a, b) is not False for a, b in zip(left, right, strict=True))


def _moved(ct: Tensor, shape: Shape) -> Tensor:
    return ops.rearrange(ct, lambda inner: ensure_shape(inner, shape))


def _list(shapes: tuple[Shape, ...]) -> str:
    return " and ".join(str(shape) for shape in shapes)


ops.provide(broadcast_shapes=broadcast_shapes)
