"""Putting elements into several places: tiling, repeating, Kronecker products, and continuing a tensor past its ends.

Where every element is repeated alike, that is a broadcast between two reshapes. The rest is one pair of linear ops:
``copy_along`` takes elements along an axis from source positions that a *pattern* gives, and its adjoint ``sum_copies``
adds up what belongs to the same source.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Dim, Shape, Size, equal
from unspool._graph import Node
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.elementwise import MASK, mask, multiply
from unspool._ops.layout.axes import ravel
from unspool._ops.layout.cropping import crop_axis
from unspool._ops.layout.reshaping import broadcast_to, embed, normalize_axis, rearrange, replaced, reshape
from unspool._ops.leaf import as_operands, as_shape, as_tensor
from unspool._ops.op import SIZE, STRUCTURE, Op, register
from unspool.errors import ShapeError, SizeContradictionError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

REPEAT = "repeat"


# --- the linear pair -------------------------------------------------------------------------------------------------


def copy_along(x: Tensor, axis: int, pattern: str, amounts: Shape) -> Tensor:
    """Return elements copied along an axis.

    Pattern ``"repeat"`` has one amount per element: how often it occurs. The other patterns are modes of ``numpy.pad``
    and have two: how far the tensor is continued before its first and after its last element.
    """
    return _graph.apply(COPY_ALONG, x, axis=axis, pattern=pattern, amounts=amounts)


def sum_copies(x: Tensor, axis: int, pattern: str, amounts: Shape, size: Size) -> Tensor:
    """Add up the copies that `copy_along` made of the ``size`` elements of an axis; on bools, whether any is true."""
    return _graph.apply(SUM_COPIES, x, axis=axis, pattern=pattern, amounts=amounts, size=size)


def _sources(pattern: str, amounts: tuple[int, ...], size: int) -> Any:
    """Return, for every position along the axis of the copy, the position it is taken from."""
    positions = np.arange(size)
    if pattern == REPEAT:
        return np.repeat(positions, amounts)
    if size == 0 and any(amounts):
        raise SizeContradictionError(f"an axis of size 0 has no elements to be continued with (mode {pattern!r})")
    if min(amounts) < 0:
        raise SizeContradictionError(f"an axis cannot be continued by {amounts} elements: the widths are at least 0")
    return np.pad(positions, amounts, pattern) if size else positions  # type: ignore[call-overload]


def _copied_size(pattern: str, amounts: Shape, size: Size) -> Size:
    return sum(amounts, 0 if pattern == REPEAT else size)


def _infer_copy_along(x: Node, *, axis: int, pattern: str, amounts: Shape) -> tuple[Shape, Any]:
    return replaced(x.shape, axis, _copied_size(pattern, amounts, x.shape[axis])), x.dtype


def _copy_along_kernel(x: Any, *, axis: int, pattern: str, amounts: tuple[int, ...]) -> Any:
    return np.take(x, _sources(pattern, amounts, x.shape[axis]), axis)


def _copy_present(t: Tensor, axis: int, pattern: str, amounts: Shape) -> Tensor:
    """Copy a cotangent or tangent; copies of absent elements are absent."""
    return rearrange(t, lambda inner: copy_along(inner, axis, pattern, amounts))


def _sum_present(t: Tensor, axis: int, pattern: str, amounts: Shape, size: Size) -> Tensor:
    """Add up the copies in a cotangent or tangent; an element is absent if it has no copies, or all of them are."""

    def summed(inner: Tensor) -> Tensor:
        return sum_copies(inner, axis, pattern, amounts, size)

    if t.op is MASK:
        # Not the values behind the mask: what is absent must not be added to what is present.
        return mask(summed(t), summed(broadcast_to(t.inputs[1], t.shape)))
    return embed(t, summed, (axis,)) if pattern == REPEAT and 0 in amounts else summed(t)


COPY_ALONG = register(
    Op(
        "copy_along",
        infer=_infer_copy_along,
        kernel=_copy_along_kernel,
        vjp=(lambda ct, out, x, *, axis, **copies: _sum_present(ct, axis, size=x.shape[axis], **copies),),
        jvp=(lambda t, out, x, **copies: _copy_present(t, **copies),),
        params={"axis": STRUCTURE, "pattern": STRUCTURE, "amounts": SIZE},
    )
)


def _sum_copies_kernel(x: Any, *, axis: int, pattern: str, amounts: tuple[int, ...], size: int) -> Any:
    total = np.zeros(replaced(x.shape, axis, size), x.dtype)
    np.add.at(np.moveaxis(total, axis, 0), _sources(pattern, amounts, size), np.moveaxis(x, axis, 0))
    return total


SUM_COPIES = register(
    Op(
        "sum_copies",
        infer=lambda x, *, axis, pattern, amounts, size: (replaced(x.shape, axis, size), x.dtype),
        kernel=_sum_copies_kernel,
        vjp=(lambda ct, out, x, *, size, **copies: _copy_present(ct, **copies),),
        jvp=(lambda t, out, x, **copies: _sum_present(t, **copies),),
        params={"axis": STRUCTURE, "pattern": STRUCTURE, "amounts": SIZE, "size": SIZE},
    )
)


# --- repeating -------------------------------------------------------------------------------------------------------


def repeat(x: Any, repeats: Size | Sequence[int], axis: int | None = None) -> Tensor:
    """Repeat each element.

    Parameters
    ----------
    x : array_like
        The tensor.
    repeats : int or sequence of int
        How often each element occurs in the result: one number for all, or one for each element of the axis.
    axis : int or None
        Along which axis; ``None`` flattens the tensor first.

    Examples
    --------
    >>> import unspool as us
    >>> us.repeat([1, 2], 2).eval()
    array([1, 1, 2, 2])
    >>> us.repeat([[1, 2], [3, 4]], [1, 2], axis=0).eval()
    array([[1, 2],
           [3, 4],
           [3, 4]])
    """
    x = as_tensor(x)
    if axis is None:
        return repeat(ravel(x), repeats, 0)
    axis = normalize_axis(axis, x.ndim)
    counts = _as_counts("repeats", repeats)
    if len(counts) == 1:
        return _repeat_alike(x, axis, counts[0], outer=False)
    size = x.shape[axis]
    if equal(size, len(counts)) is False:
        raise ShapeError(f"repeat takes one number or {size} for axis {axis} of size {size}, got {len(counts)}")
    if any(isinstance(count, Dim) for count in counts):
        raise ShapeError(f"repeat takes a symbolic number only for all elements alike, got {counts}")
    return copy_along(ensure_shape(x, replaced(x.shape, axis, len(counts))), axis, REPEAT, counts)


def tile(x: Any, repetitions: Size | Sequence[Size]) -> Tensor:
    """Repeat the whole tensor along each axis.

    Numbers of axes and of repetitions that differ are made equal by putting ones in front.

    Examples
    --------
    >>> import unspool as us
    >>> us.tile([1, 2], (2, 2)).eval()
    array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    x = as_tensor(x)
    counts = _as_counts("repetitions", repetitions)
    rank = max(x.ndim, len(counts))
    tiled = reshape(x, (1,) * (rank - x.ndim) + x.shape)
    for axis, count in enumerate((1,) * (rank - len(counts)) + counts):
        tiled = _repeat_alike(tiled, axis, count, outer=True)
    return tiled


def _repeat_alike(x: Tensor, axis: int, count: Size, *, outer: bool) -> Tensor:
    """Repeat along an axis, the axis as a whole (``outer``) or each of its elements."""
    size = x.shape[axis]
    if count == 1:
        return x
    if count == 0:
        # Not a broadcast to nothing: the elements are absent from the cotangent, which cropping says.
        return crop_axis(x, axis, 0, 0)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    single, several = ((1, size), (count, size)) if outer else ((size, 1), (size, count))
    spread = broadcast_to(reshape(x, (*before, *single, *after)), (*before, *several, *after))
    return reshape(spread, (*before, size * count, *after))


def _as_counts(what: str, counts: Any) -> Shape:
    if isinstance(counts, (Dim, tuple, list)):
        return as_shape(counts)
    try:
        return as_shape([operator.index(count) for count in np.atleast_1d(np.asarray(counts))])
    except TypeError:
        raise ShapeError(f"{what} are integers, got {counts!r}") from None


# --- products --------------------------------------------------------------------------------------------------------


def kron(a: Any, b: Any) -> Tensor:
    """Kronecker product: ``b`` scaled by every element of ``a``, the blocks laid out as ``a`` is.

    With different numbers of axes, the one with fewer gets axes of size 1 in front.

    Examples
    --------
    >>> import unspool as us
    >>> us.kron([1, 10], [[1, 2], [3, 4]]).eval()
    array([[ 1,  2, 10, 20],
           [ 3,  4, 30, 40]])
    """
    a, b = as_operands(a, b)
    rank = max(a.ndim, b.ndim)
    blocks, inside = (1,) * (rank - a.ndim) + a.shape, (1,) * (rank - b.ndim) + b.shape
    scaled = multiply(
        reshape(a, [size for pair in blocks for size in (pair, 1)]),
        reshape(b, [size for pair in inside for size in (1, pair)]),
    )
    return reshape(scaled, [m * n for m, n in zip(blocks, inside, strict=True)])
