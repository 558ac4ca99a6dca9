"""What the arguments of ``numpy.fft`` mean: how many numbers along which axes, and with which scale."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._dims import Dim, Size, equal, minimum
from unspool._dtypes import inexact_dtype
from unspool._ops import elementwise
from unspool._ops.fourier.transforms import BACKWARD, SAME_SCALE
from unspool._ops.layout.cropping import crop_axis, zero_pad
from unspool._ops.layout.reshaping import Axis, normalize_axis, replaced
from unspool._ops.leaf import as_tensor
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Sizes = Sequence[Size] | None


def operand(x: Any, axis: int) -> tuple[Tensor, int]:
    """Return a tensor of floats or complex numbers, and a non-negative axis of it."""
    x = as_tensor(x)
    return elementwise.astype(x, inexact_dtype(x.dtype)), normalize_axis(axis, x.ndim)


def scale_of(norm: str | None) -> str:
    """Return the name of a scale, or raise `ArgumentError` that has all of them."""
    if norm is None:
        return BACKWARD
    if norm not in tuple(SAME_SCALE):
        raise ArgumentError(f"norm is one of {', '.join(SAME_SCALE)}; got {norm!r}")
    return norm


def positive(n: Size) -> Size:
    """Return a number of elements, or raise `ShapeError` where it is known to be none."""
    try:
        size = n if isinstance(n, Dim) else operator.index(n)
    except TypeError:
        raise ShapeError(f"the number of elements to transform is an integer, got {n!r}") from None
    if isinstance(size, int) and size < 1:
        raise ShapeError(f"a transform is of at least one number, got n={size}")
    return size


def resized(x: Tensor, axis: int, n: Size | None) -> Tensor:
    """Return the first n elements along an axis, with zeros after them where there are fewer."""
    size = x.shape[axis]
    wanted = size if n is None else positive(n)
    if equal(wanted, 0) is True:
        raise ShapeError(f"a transform is of at least one number, but axis {axis} of shape {x.shape} has none")
    kept = minimum(size, wanted)
    nothing = (0,) * x.ndim
    return zero_pad(crop_axis(x, axis, 0, kept), nothing, replaced(nothing, axis, wanted - kept))


def sizes_and_axes(x: Tensor, s: Sizes, axes: Axis, function: str) -> tuple[list[Size], list[int]]:
    """Return one size and one axis for each transform to make; all sizes are those before the first one."""
    if s is not None and not isinstance(s, (tuple, list)):
        raise ShapeError(f"{function} takes a sequence of sizes, one for each axis, got s={s!r}")
    if axes is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise ShapeError(f"{function} of a tensor with {x.ndim} axes got {count} sizes")
        along = list(range(x.ndim - count, x.ndim))
    else:
        along = [normalize_axis(axis, x.ndim) for axis in (axes if isinstance(axes, (tuple, list)) else (axes,))]
    given = [-1] * len(along) if s is None else list(s)
    if len(given) != len(along):
        raise ShapeError(f"{function} takes one size for each axis, got s={s} and axes={axes}")
    if not along and function != "fftn":
        raise ShapeError(f"{function} needs at least one axis")
    is_whole = [not isinstance(n, Dim) and n == -1 for n in given]
    sizes = [x.shape[axis] if whole else n for n, axis, whole in zip(given, along, is_whole, strict=True)]
    if s is None and function == "irfftn":
        sizes[-1] = 2 * (sizes[-1] - 1)
    return sizes, along
