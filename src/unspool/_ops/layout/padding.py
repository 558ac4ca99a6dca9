"""Padding: putting elements around a tensor, as ``numpy.pad`` does.

Zeros are one op (`cropping`), other constants are joined on, and the modes that continue the tensor copy its own
elements (`repeating`), one axis after the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Dim, Shape, Size, equal
from unspool._dtypes import COMPLEX
from unspool._graph import Node
from unspool._ops.elementwise import astype
from unspool._ops.layout.cropping import zero_pad
from unspool._ops.layout.joining import concat
from unspool._ops.layout.repeating import copy_along
from unspool._ops.layout.reshaping import broadcast_to, normalize_axis, replaced
from unspool._ops.leaf import CONSTANT, as_tensor, constant
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_CONTINUATIONS = ("edge", "reflect", "symmetric", "wrap")


def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Tensor:
    """Put elements around a tensor.

    Parameters
    ----------
    x : array_like
        The tensor.
    pad_width : int, pair, sequence of pairs, or dict
        How many elements to put before and after, along each axis: one number for all, ``(before, after)`` for all
        axes, ``((before, after), ...)`` with one pair per axis, or ``{axis: (before, after)}``.
    mode : {"constant", "edge", "reflect", "symmetric", "wrap"}
        What to put there: a constant, the last element, the tensor mirrored without or with its last element, or the
        tensor again.
    constant_values : scalar, pair, or sequence of pairs
        For ``mode="constant"``: the values, in the forms of ``pad_width``. They may be tensors.

    Examples
    --------
    >>> import unspool as us
    >>> us.pad([1, 2, 3], (1, 2)).eval()
    array([0, 1, 2, 3, 0, 0])
    >>> us.pad([1, 2, 3], 2, mode="reflect").eval()
    array([3, 2, 1, 2, 3, 2, 1])
    """
    x = as_tensor(x)
    widths = _pairs("pad_width", pad_width, x.ndim, _as_width)
    if mode == "constant":
        return _pad_constant(x, widths, _pairs("constant_values", constant_values, x.ndim, lambda v: _as_fill(v, x)))
    if mode not in _CONTINUATIONS:
        raise ArgumentError(f"mode is one of {', '.join(('constant', *_CONTINUATIONS))}; got {mode!r}")
    return _pad_continuing(x, widths, mode)


def _pad_continuing(x: Tensor, widths: list[tuple[Any, Any]], mode: str) -> Tensor:
    for axis, amounts in enumerate(widths):
        if amounts == (0, 0):
            continue
        if equal(x.shape[axis], 0) is True:
            raise ShapeError(f"axis {axis} has size 0: there is nothing to continue it with (mode {mode!r})")
        x = copy_along(x, axis, mode, amounts)
    return x


def _pad_constant(x: Tensor, widths: list[tuple[Any, Any]], fills: list[tuple[Any, Any]]) -> Tensor:
    if all(_is_zero(fill) for pair in fills for fill in pair):
        return zero_pad(x, tuple(before for before, _ in widths), tuple(after for _, after in widths))
    for axis, ((before, after), (first, last)) in enumerate(zip(widths, fills, strict=True)):
        pieces = [_block(x.shape, axis, before, first), x, _block(x.shape, axis, after, last)]
        x = concat([piece for piece in pieces if piece.shape[axis] != 0 or piece is x], axis)
    return x


def _block(shape: Shape, axis: int, size: Size, fill: Tensor) -> Tensor:
    return broadcast_to(fill, replaced(shape, axis, size))


# --- arguments -------------------------------------------------------------------------------------------------------


def _pairs(what: str, given: Any, rank: int, convert: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """Return one pair per axis from any of the forms that stand for it."""
    if isinstance(given, Mapping):
        by_axis = {normalize_axis(axis, rank): _pair(what, value, convert) for axis, value in given.items()}
        nothing = _pair(what, 0, convert)
        return [by_axis.get(axis, nothing) for axis in range(rank)]
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not _is_sequence(given) or not any(_is_sequence(entry) for entry in given):
        return [_pair(what, given, convert)] * rank
    pairs = [_pair(what, entry, convert) for entry in given]
    if len(pairs) not in (1, rank):
        raise ShapeError(f"{what} has {len(pairs)} pairs for a tensor with {rank} axes: {given!r}")
    return pairs * rank if len(pairs) == 1 else pairs


def _pair(what: str, given: Any, convert: Callable[[Any], Any]) -> tuple[Any, Any]:
    values = tuple(given) if _is_sequence(given) else (given,)
    if len(values) not in (1, 2) or any(_is_sequence(value) for value in values):
        raise ShapeError(f"{what} takes one value or a pair (before, after) for an axis, got {given!r}")
    return convert(values[0]), convert(values[-1])


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (tuple, list))


def _as_width(width: Any) -> Size:
    if isinstance(width, Dim):
        return width
    try:
        count = operator.index(width)
    except TypeError:
        raise ShapeError(f"pad_width is made of integers and dims, got {width!r}") from None
    if count < 0:
        raise ShapeError(f"pad_width is made of numbers of at least 0, got {count}")
    return count


def _as_fill(value: Any, x: Tensor) -> Tensor:
    fill = as_tensor(value)
    if fill.shape:
        raise ShapeError(f"a constant to pad with is a scalar, got shape {fill.shape}")
    if fill.dtype in COMPLEX and x.dtype not in COMPLEX:
        raise DTypeError(f"cannot pad a tensor of dtype {x.dtype} with a complex constant")
    return constant(fill.value, x.dtype) if fill.op is CONSTANT else astype(fill, x.dtype)


def _is_zero(fill: Node) -> bool:
    """Whether a constant is 0 in every bit (-0.0 is not)."""
    return fill.op is CONSTANT and not any(fill.value.tobytes())
