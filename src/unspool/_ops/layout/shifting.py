"""Reversing and rotating elements along axes. Both are permutations of elements: the adjoint is the inverse."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._ops import batching
from unspool._ops.layout.axes import ravel
from unspool._ops.layout.reshaping import (
    Axis,
    normalize_axes,
    normalize_axis,
    permute_dims,
    rearrange,
    reshape,
    source_to_read,
)
from unspool._ops.leaf import as_tensor
from unspool._ops.op import STRUCTURE, Op, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- flip ------------------------------------------------------------------------------------------------------------


def _canonical_flip(x: Tensor, *, axes: tuple[int, ...]) -> Tensor | None:
    if x.op is FLIP and axes and (source := source_to_read(x)) is not None:
        return _flip(source, set(axes) ^ set(x.attributes["axes"]))
    return None if axes else x


FLIP = register(
    Op(
        "flip",
        infer=lambda x, *, axes: (x.shape, x.dtype),
        kernel=lambda x, *, axes: np.flip(x, axes),
        vjp=(lambda ct, out, x, *, axes: rearrange(ct, lambda inner: flip(inner, axes)),),
        jvp=(lambda t, out, x, *, axes: rearrange(t, lambda inner: flip(inner, axes)),),
        params={"axes": STRUCTURE},
        canonical=_canonical_flip,
        cheap=True,
        view=True,
        batch=batching.shifted,
    )
)


def _flip(x: Tensor, axes: set[int]) -> Tensor:
    return _graph.apply(FLIP, x, axes=tuple(sorted(axis for axis in axes if x.shape[axis] not in (0, 1))))


def flip(x: Any, axis: Axis = None) -> Tensor:
    """Reverse the order of the elements along axes (all by default).

    Examples
    --------
    >>> import unspool as us
    >>> us.flip([1, 2, 3]).eval()
    array([3, 2, 1])
    """
    x = as_tensor(x)
    return _flip(x, set(normalize_axes(axis, x.ndim)))


def flipud(x: Any) -> Tensor:
    """Reverse the order of the rows: flip along the first axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.flipud([[1, 2], [3, 4]]).eval()
    array([[3, 4],
           [1, 2]])
    """
    return flip(x, 0)


def fliplr(x: Any) -> Tensor:
    """Reverse the order of the columns: flip along the second axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.fliplr([[1, 2], [3, 4]]).eval()
    array([[2, 1],
           [4, 3]])
    """
    return flip(x, 1)


def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Rotate by 90 degrees ``k`` times in the plane of two axes, from the first towards the second.

    Examples
    --------
    >>> import unspool as us
    >>> us.rot90([[1, 2], [3, 4]]).eval()
    array([[2, 4],
           [1, 3]])
    """
    whole = as_tensor(x)
    if not isinstance(k, (int, np.integer)):
        raise ArgumentError(f"rot90 turns an integer number of times, got {k!r}")
    try:
        one, other = axes
    except (TypeError, ValueError):
        raise ArgumentError(f"rot90 turns a plane of two axes, got {axes!r}") from None
    first, second = normalize_axis(one, whole.ndim), normalize_axis(other, whole.ndim)
    if first == second:
        raise ShapeError(f"rot90 turns a plane of two different axes, got {axes}")
    order = list(range(whole.ndim))
    order[first], order[second] = second, first
    match k % 4:
        case 0:
            return whole
        case 1:
            return permute_dims(flip(whole, second), order)
        case 2:
            return flip(whole, (first, second))
        case _:
            return flip(permute_dims(whole, order), second)


# --- roll ------------------------------------------------------------------------------------------------------------


def _canonical_roll(x: Tensor, *, shifts: tuple[int, ...], axes: tuple[int, ...]) -> Tensor | None:
    if x.op is ROLL and axes and (source := source_to_read(x)) is not None:
        before = zip(x.attributes["axes"], x.attributes["shifts"], strict=True)
        return _roll(source, [*before, *zip(axes, shifts, strict=True)])
    return None if axes else x


ROLL = register(
    Op(
        "roll",
        infer=lambda x, *, shifts, axes: (x.shape, x.dtype),
        kernel=lambda x, *, shifts, axes: np.roll(x, shifts, axes),
        vjp=(
            lambda ct, out, x, *, shifts, axes: rearrange(
                ct, lambda inner: roll(inner, tuple(-shift for shift in shifts), axes)
            ),
        ),
        jvp=(lambda t, out, x, *, shifts, axes: rearrange(t, lambda inner: roll(inner, shifts, axes)),),
        params={"shifts": STRUCTURE, "axes": STRUCTURE},
        canonical=_canonical_roll,
        batch=batching.shifted,
    )
)


def _roll(x: Tensor, moves: Sequence[tuple[int, int]]) -> Tensor:
    """Record a roll in canonical form: one shift per axis, within the axis where its size is known, none that is 0."""
    total: dict[int, int] = {}
    for axis, shift in moves:
        size = x.shape[axis]
        moved = total.get(axis, 0) + shift
        total[axis] = moved % max(size, 1) if isinstance(size, int) else moved
    kept = sorted((axis, shift) for axis, shift in total.items() if shift)
    return _graph.apply(ROLL, x, shifts=tuple(shift for _, shift in kept), axes=tuple(axis for axis, _ in kept))


def roll(x: Any, shift: int | Sequence[int], axis: Axis = None) -> Tensor:
    """Move elements along axes; those that leave at one end come back at the other.

    Parameters
    ----------
    x : array_like
        The tensor.
    shift : int or sequence of int
        How far, along each axis.
    axis : int, sequence of int or None
        Along which axes; ``None`` means along the flattened tensor, which then gets its shape back.

    Examples
    --------
    >>> import unspool as us
    >>> us.roll([1, 2, 3, 4], 1).eval()
    array([4, 1, 2, 3])
    """
    x = as_tensor(x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    shifts = [_as_shift(s) for s in (shift if isinstance(shift, (tuple, list)) else (shift,))]
    axes = [normalize_axis(a, x.ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    count = max(len(shifts), len(axes)) if shifts and axes else 0
    if not {len(shifts), len(axes)} <= {1, count}:
        raise ShapeError(f"roll takes one shift for each axis, got shifts {shift} and axes {axis}")
    pairs = zip(axes * (count // len(axes)), shifts * (count // len(shifts)), strict=True) if count else ()
    return _roll(x, list(pairs))


def _as_shift(shift: Any) -> int:
    try:
        return operator.index(shift)
    except TypeError:
        raise ShapeError(f"a shift is an integer, got {shift!r}") from None
