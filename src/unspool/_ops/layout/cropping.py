"""Cutting a box out of a tensor, and putting one into a larger tensor of zeros.

The two are each other's adjoint, so each one's rules are written with the other. What is put around a cotangent or a
tangent is absent, not zero (see `unspool._ops.elementwise`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Dim, Shape, Size
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.layout.reshaping import embed, rearrange, replaced, source_to_read
from unspool._ops.op import SIZE, Op, register
from unspool.errors import ShapeError, SizeContradictionError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- crop ------------------------------------------------------------------------------------------------------------


def crop(x: Tensor, start: Shape, shape: Shape) -> Tensor:
    """Return the box of the given shape that begins at ``start``."""
    return _graph.apply(CROP, x, start=start, shape=shape)


def crop_axis(x: Tensor, axis: int, start: Size, size: Size) -> Tensor:
    """Return ``size`` elements along one axis, from ``start`` on."""
    return crop(x, replaced((0,) * len(x.shape), axis, start), replaced(x.shape, axis, size))


def _canonical_crop(x: Tensor, *, start: Shape, shape: Shape) -> Tensor | None:
    if shape == x.shape:
        return x
    if x.op not in (CROP, ZERO_PAD) or (inner := source_to_read(x)) is None:
        return None
    if x.op is CROP:
        first = x.attributes["start"]
        # A box that is not known to lie within the tensor is a claim that is checked when it runs: it must not vanish.
        if _proven(first + x.shape + _minus(_minus(inner.shape, first), x.shape)):
            _infer_crop(x, start=start, shape=shape)
            return _graph.apply(CROP, inner, start=_plus(start, first), shape=shape)
    elif start == x.attributes["before"] and shape == inner.shape:
        return inner
    return None


def _infer_crop(x: Node, *, start: Shape, shape: Shape) -> tuple[Shape, Any]:
    for axis, (size, first, count) in enumerate(zip(x.shape, start, shape, strict=True)):
        if _is_negative(first) or _is_negative(count) or _is_negative(size - first - count):
            raise ShapeError(f"axis {axis} of size {size} has no {count} elements from position {first} on")
    return shape, x.dtype


def _crop_kernel(x: Any, *, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    if any(not 0 <= first <= first + count <= size for first, count, size in zip(start, shape, x.shape, strict=True)):
        raise SizeContradictionError(
            f"a box of shape {shape} at {start} does not lie within a tensor of shape {x.shape}"
        )
    return x[tuple(slice(first, first + count) for first, count in zip(start, shape, strict=True))]


def _crop_vjp(ct: Tensor, out: Tensor, x: Tensor, *, start: Shape, shape: Shape) -> Tensor:
    return _pad_absent(ct, start, _minus(_minus(x.shape, start), shape))


CROP = register(
    Op(
        "crop",
        infer=_infer_crop,
        kernel=_crop_kernel,
        vjp=(_crop_vjp,),
        jvp=(lambda t, out, x, *, start, shape: rearrange(t, lambda inner: crop(inner, start, shape)),),
        params={"start": SIZE, "shape": SIZE},
        canonical=_canonical_crop,
        view=True,
        batch=batching.prefixed(start=0, shape=None),
    )
)


# --- pad -------------------------------------------------------------------------------------------------------------


def zero_pad(x: Tensor, before: Shape, after: Shape) -> Tensor:
    """Return the tensor with zeros put around it: so many before and after it along each axis."""
    return _graph.apply(ZERO_PAD, x, before=before, after=after)


def _pad_absent(ct: Tensor, before: Shape, after: Shape) -> Tensor:
    """Pad a cotangent or tangent; what is put around it is absent."""
    padded = [axis for axis, width in enumerate(zip(before, after, strict=True)) if width != (0, 0)]
    return embed(ct, lambda inner: zero_pad(inner, before, after), padded)


def _canonical_zero_pad(x: Tensor, *, before: Shape, after: Shape) -> Tensor | None:
    if all(size == 0 for size in before + after):
        return x
    if x.op is ZERO_PAD and (source := source_to_read(x)) is not None:
        first, last = x.attributes["before"], x.attributes["after"]
        if _proven(before + after + first + last):
            return _graph.apply(ZERO_PAD, source, before=_plus(before, first), after=_plus(after, last))
    return None


def _infer_zero_pad(x: Node, *, before: Shape, after: Shape) -> tuple[Shape, Any]:
    for axis, width in enumerate(zip(before, after, strict=True)):
        if any(map(_is_negative, width)):
            raise ShapeError(f"cannot pad axis {axis} by {width}: the widths are at least 0")
    return _plus(_plus(before, x.shape), after), x.dtype


def _zero_pad_kernel(x: Any, *, before: tuple[int, ...], after: tuple[int, ...]) -> Any:
    if min(before + after) < 0:
        raise SizeContradictionError(
            f"cannot pad a tensor of shape {x.shape} by {before} and {after}: a width is negative"
        )
    padded = np.zeros(_plus(_plus(before, x.shape), after), x.dtype)
    padded[tuple(slice(first, first + size) for first, size in zip(before, x.shape, strict=True))] = x
    return padded


ZERO_PAD = register(
    Op(
        "zero_pad",
        infer=_infer_zero_pad,
        kernel=_zero_pad_kernel,
        vjp=(lambda ct, out, x, *, before, after: rearrange(ct, lambda inner: crop(inner, before, x.shape)),),
        jvp=(lambda t, out, x, *, before, after: _pad_absent(t, before, after),),
        params={"before": SIZE, "after": SIZE},
        canonical=_canonical_zero_pad,
        batch=batching.prefixed(before=0, after=0),
    )
)


# --- shapes as vectors -----------------------------------------------------------------------------------------------


def _plus(left: Shape, right: Shape) -> Shape:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _minus(left: Shape, right: Shape) -> Shape:
    return tuple(a - b for a, b in zip(left, right, strict=True))


def _proven(sizes: Shape) -> bool:
    """Whether sizes are known to be at least 0."""
    return all((size.less(0) is False) if isinstance(size, Dim) else size >= 0 for size in sizes)


def _is_negative(size: Size) -> bool:
    """Whether a size is known to be negative."""
    return (size.less(0) is True) if isinstance(size, Dim) else size < 0
