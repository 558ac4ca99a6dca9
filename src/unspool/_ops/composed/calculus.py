"""Differences, slopes, integrals and interpolation of sampled functions, composed of slices and sums.

Everything is differentiable in the samples and in where they were taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._dims import Size, equal
from unspool._dtypes import BOOL, COMPLEX, EXACT, INT64
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.checks import as_integer
from unspool._ops.creation import size_tensor
from unspool._ops.indexing import argsort, searchsorted, take
from unspool._ops.indexing.access import getitem
from unspool._ops.leaf import as_operands, as_tensor
from unspool._ops.reduction import cumsum
from unspool._ops.reduction import sum as sum_
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- differences -----------------------------------------------------------------------------------------------------


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """Differences between neighbours along an axis, taken ``n`` times.

    Parameters
    ----------
    x : array_like
        The samples. Of bools it is whether neighbours differ.
    n : int
        How often to take differences.
    axis : int
        Along which axis.
    prepend, append : array_like, optional
        What to put before and after along the axis first; a scalar is one slice of that value.

    Examples
    --------
    >>> import unspool as us
    >>> us.diff([1.0, 4.0, 9.0]).eval()
    array([3., 5.])
    >>> us.diff([1.0, 4.0, 9.0], n=2).eval()
    array([2.])
    """
    samples = as_tensor(x)
    if not samples.ndim:
        raise ShapeError("diff takes a tensor with at least one axis")
    place = layout.normalize_axis(axis, samples.ndim)
    times = as_integer(n, "n", least=0)
    if times and (prepend is not None or append is not None):
        ends = (_as_slice(prepend, samples, place), samples, _as_slice(append, samples, place))
        samples = layout.concat([piece for piece in ends if piece is not None], place)
    difference = elementwise.not_equal if samples.dtype == BOOL else elementwise.subtract
    for _ in range(times):
        samples = difference(_part(samples, place, 1, None), _part(samples, place, None, -1))
    return samples


def ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Differences between neighbours of the flattened tensor, with values to put before and after them.

    Examples
    --------
    >>> import unspool as us
    >>> us.ediff1d([1.0, 4.0, 9.0], to_begin=0.0).eval()
    array([0., 3., 5.])
    """
    steps = diff(layout.ravel(x))
    before, after = (
        [] if end is None else [elementwise.astype(layout.ravel(end), steps.dtype)] for end in (to_begin, to_end)
    )
    return layout.concat([*before, steps, *after])


def _as_slice(end: Any, x: Tensor, axis: int) -> Tensor | None:
    """Return what to put at an end of a tensor; a scalar becomes one slice."""
    if end is None:
        return None
    piece = as_operands(end, x)[0]
    return piece if piece.ndim else layout.broadcast_to(piece, layout.replaced(x.shape, axis, 1))


def _part(x: Tensor, axis: int, start: int | None, stop: int | None, step: int | None = None) -> Tensor:
    return getitem(x, (*[slice(None)] * axis, slice(start, stop, step)))


# --- slopes ----------------------------------------------------------------------------------------------------------


def gradient(f: Any, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1) -> Any:
    """Slopes of a sampled function: central differences inside, one-sided ones at the ends.

    This is NumPy's function of samples; the derivative of a program is `unspool.grad`.

    Parameters
    ----------
    f : array_like
        The samples.
    *varargs : array_like
        The spacing: nothing (1), a number for all axes, or for each axis a number or the coordinates of the samples.
    axis : int or tuple of int, optional
        Along which axes; all by default.
    edge_order : {1, 2}
        How exact the differences at the ends are.

    Returns
    -------
    Tensor or tuple of Tensor
        One for each axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.gradient([1.0, 4.0, 9.0, 16.0]).eval()
    array([3., 4., 6., 7.])
    >>> us.gradient([1.0, 4.0, 9.0, 16.0], 0.5, edge_order=2).eval()
    array([ 4.,  8., 12., 16.])
    """
    f = as_tensor(f)
    if f.dtype in EXACT:
        f = elementwise.astype(f, "float64")
    axes = layout.normalize_axes(axis, f.ndim) if axis is None else _in_order(axis, f.ndim)
    order = as_integer(edge_order, "edge_order")
    if order not in (1, 2):
        raise ArgumentError(f"edge_order is 1 or 2, got {edge_order!r}")
    if not axes:
        raise ShapeError("gradient takes samples with at least one axis")
    spacings = list(varargs) if len(varargs) > 1 else list(varargs or (1.0,)) * len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(f"gradient takes one spacing, or one for each of {len(axes)} axes, got {len(spacings)}")
    slopes = tuple(_slope(f, place, spacing, order) for place, spacing in zip(axes, spacings, strict=True))
    return slopes[0] if len(slopes) == 1 else slopes


def _in_order(axis: Any, rank: int) -> tuple[int, ...]:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    layout.normalize_axes(axes, rank)  # refuses duplicates
    return tuple(layout.normalize_axis(one, rank) for one in axes)


def _slope(f: Tensor, axis: int, spacing: Any, order: int) -> Tensor:
    size = f.shape[axis]
    if isinstance(size, int) and size < order + 1:
        raise ShapeError(f"gradient needs at least {order + 1} samples along axis {axis}, got {size}")
    before, middle, after = _part(f, axis, None, -2), _part(f, axis, 1, -1), _part(f, axis, 2, None)
    gaps = as_operands(spacing, f)[0]
    if not gaps.ndim:
        inside = elementwise.divide(elementwise.subtract(after, before), elementwise.multiply(gaps, 2))
        left = right = gaps
        first, last = (gaps, gaps), (gaps, gaps)
    else:
        if gaps.ndim != 1 or equal(gaps.shape[0], size) is False:
            raise ShapeError(f"coordinates for axis {axis} of {size} samples have shape ({size},), got {gaps.shape}")
        steps = diff(elementwise.as_inexact(gaps))
        left, right = (_along(part, axis, f.ndim) for part in (_part(steps, 0, None, -1), _part(steps, 0, 1, None)))
        inside = (
            before * (-right / (left * (left + right)))
            + middle * ((right - left) / (left * right))
            + after * (left / (right * (left + right)))
        )
        first, last = (steps[0], steps[1] if order == 2 else steps[0]), (steps[-1], steps[-2 if order == 2 else -1])
    start = _edge([_at(f, axis, i) for i in range(order + 1)], *first)
    end = -_edge([_at(f, axis, -1 - i) for i in range(order + 1)], *last)
    return ensure_shape(layout.concat([start, inside, end], axis), f.shape)


def _edge(samples: list[Tensor], near: Tensor, far: Tensor) -> Tensor:
    """Return the one-sided slope at the first of two samples, or, exact for parabolas, of three."""
    if len(samples) == 2:
        return (samples[1] - samples[0]) / near
    both = near + far
    weights = (-(near + both) / (near * both), both / (near * far), -near / (far * both))
    return samples[0] * weights[0] + samples[1] * weights[1] + samples[2] * weights[2]


def _at(x: Tensor, axis: int, position: int) -> Tensor:
    """Return one slice, with its axis kept."""
    return _part(x, axis, position, position + 1 if position != -1 else None)


def _along(x: Tensor, axis: int, rank: int) -> Tensor:
    return layout.reshape(x, layout.replaced((1,) * rank, axis, x.shape[0]))


# --- integrals -------------------------------------------------------------------------------------------------------


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Integrate samples along an axis by the trapezoidal rule.

    Parameters
    ----------
    y : array_like
        The samples.
    x : array_like, optional
        Where they were taken: one coordinate per sample, or an array that broadcasts to ``y``.
    dx : array_like
        The spacing, if there is no ``x``.
    axis : int
        Along which axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.trapezoid([1.0, 2.0, 3.0], x=[4.0, 6.0, 8.0]).eval()
    array(8.)
    """
    y = as_tensor(y)
    if not y.ndim:
        raise ShapeError("trapezoid takes a tensor with at least one axis")
    place = layout.normalize_axis(axis, y.ndim)
    if x is None:
        widths = as_operands(dx, y)[0]
    else:
        x = as_tensor(x)
        if not x.ndim:
            raise ShapeError("trapezoid takes coordinates with at least one axis")
        widths = _along(diff(x), place, y.ndim) if x.ndim == 1 else diff(x, axis=axis)
    pairs = elementwise.add(_part(y, place, 1, None), _part(y, place, None, -1))
    return sum_(elementwise.divide(elementwise.multiply(widths, pairs), 2.0), axis=axis)


# --- interpolation ---------------------------------------------------------------------------------------------------


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tensor:
    """Interpolate linearly between samples of a function.

    Parameters
    ----------
    x : array_like
        Where to interpolate, of any shape.
    xp : array_like
        Where the samples were taken: one axis, in rising order unless there is a period.
    fp : array_like
        The samples, real or complex.
    left, right : array_like, optional
        What to return before the first and after the last sample; by default these samples.
    period : float, optional
        The period of the coordinates.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([0.5, 1.5])
    >>> y = us.interp(x, [0.0, 1.0, 2.0], [0.0, 10.0, 0.0])
    >>> y.eval()
    array([5., 5.])
    >>> us.sum(y).grad(x).eval()
    array([ 10., -10.])
    """
    x, xp = (elementwise.as_inexact(value) for value in as_operands(x, xp))
    fp = elementwise.as_inexact(fp)
    if xp.ndim != 1 or fp.ndim != 1 or equal(xp.shape[0], fp.shape[0]) is False:
        raise ShapeError(f"interp takes samples along one axis, got coordinates {xp.shape} and samples {fp.shape}")
    if equal(xp.shape[0], 0) is True:
        raise ShapeError("interp takes at least one sample")
    if not COMPLEX.isdisjoint((x.dtype, xp.dtype)):
        raise DTypeError(f"interp takes real coordinates, got {x.dtype} and {xp.dtype}")
    if period is not None:
        x, xp, fp = _one_period(x, xp, fp, period)
        left = right = None
    size = xp.shape[0]
    lower = _clip_to(searchsorted(xp, x, side="right") - 1, size, last=2)
    upper = _clip_to(lower + 1, size, last=1)
    start, stop, low, high = take(xp, lower), take(xp, upper), take(fp, lower), take(fp, upper)
    width = stop - start
    inside = low + (high - low) * elementwise.where(elementwise.not_equal(width, 0), (x - start) / width, 0.0)
    # Beyond the ends the function is constant: what the line through the last two samples is there is not asked for.
    before = elementwise.less(x, xp[0])
    after = elementwise.greater(x, xp[-1])
    result = elementwise.where(before, fp[0] if left is None else left, inside)
    return elementwise.where(after, fp[-1] if right is None else right, result)


def _clip_to(positions: Tensor, size: Size, last: int) -> Tensor:
    """Return positions limited to the first ones of an axis, up to the one that is ``last`` from the end."""
    return elementwise.maximum(elementwise.minimum(positions, size_tensor(size, INT64) - last), 0)


def _one_period(x: Tensor, xp: Tensor, fp: Tensor, period: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return coordinates in one period, and samples in rising order with one more on either side."""
    length = elementwise.abs(as_operands(period, xp)[0])
    if length.ndim:
        raise ArgumentError(f"a period is a number, got shape {length.shape}")
    x, xp = elementwise.remainder(x, length), elementwise.remainder(xp, length)
    order = argsort(xp)
    xp, fp = take(xp, order), take(fp, order)
    coordinates = layout.concat([xp[-1:] - length, xp, xp[:1] + length])
    return x, coordinates, layout.concat([fp[-1:], fp, fp[:1]])


# --- phases ----------------------------------------------------------------------------------------------------------


def unwrap(p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> Tensor:
    """Undo jumps of a periodic quantity by adding periods, so that neighbours differ by at most half of one.

    Parameters
    ----------
    p : array_like
        The phases.
    discont : float, optional
        Steps smaller than this stay; half a period by default.
    axis : int
        Along which axis.
    period : float
        The period.

    Examples
    --------
    >>> import unspool as us
    >>> us.unwrap([0.0, 3.0, 6.0, 1.0], period=8.0).eval()
    array([0., 3., 6., 9.])
    """
    p = as_tensor(p)
    if not p.ndim:
        raise ShapeError("unwrap takes a tensor with at least one axis")
    place = layout.normalize_axis(axis, p.ndim)
    for number in (period, 0.0 if discont is None else discont):
        if not isinstance(number, (int, float)):
            raise ArgumentError(f"period and discont of unwrap are numbers, got {number!r}")
    half = period / 2
    limit = half if discont is None else max(discont, half)
    p = elementwise.as_inexact(p)
    steps = diff(p, axis=place)
    wrapped = elementwise.remainder(steps + half, period) - half
    # Half a period down is half a period up, if the step went up.
    upwards = elementwise.logical_and(elementwise.equal(wrapped, -half), elementwise.greater(steps, 0))
    wrapped = elementwise.where(upwards, half, wrapped)
    added = elementwise.where(elementwise.less(elementwise.abs(steps), limit), 0, wrapped - steps)
    rest = _part(p, place, 1, None) + cumsum(added, axis=place)
    return ensure_shape(layout.concat([_part(p, place, None, 1), rest], place), p.shape)
