"""Slices of axes whose size may be symbolic: where they start, how many elements they have, and by which step.

The one idea: Python's clamping of slice bounds is ``min`` and ``max`` of sizes, so the start and the length of a slice
of an axis of size ``n`` are expressions in ``n`` that equal NumPy's for every ``n``, 0 included. What programs write
(``x[1:]``, ``x[:-1]``, ``x[-2:]``) gets the shortest expressions, so that ``x[1:]`` and ``x[:-1]`` are known to have
one size.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

from unspool._dims import Dim, Size, maximum, minimum
from unspool._records import NamedTuple
from unspool.errors import DTypeError, ShapeError

Bound = Size | None


class Slice(NamedTuple):
    """A slice in normal form.

    ``start`` is the first position, counted from the left; ``None`` if none was written, and the slice begins at the
    end of the axis from which its step leads away. A slice without elements has no use for it.
    """

    start: Size | None
    length: Size
    step: int


def normalize_slice(part: slice, size: Size) -> Slice | None:
    """Return the normal form of a slice of an axis, ``None`` if it takes the whole axis.

    Where a start was written, or was not, stays to be seen: it tells programs apart, and the start itself does not.
    """
    step = 1 if part.step is None else _as_bound(part.step)
    if not isinstance(step, int):
        raise DTypeError(f"the step of a slice is a number, got {part.step}")
    if step == 0:
        raise ShapeError(f"the step of a slice cannot be 0, got {part}")
    start = None if part.start is None else _as_bound(part.start)
    stop = None if part.stop is None else _as_bound(part.stop)
    if isinstance(size, int) and not isinstance(start, Dim) and not isinstance(stop, Dim):
        return _normalize_numbers(start, stop, step, size)
    return _normalize_sizes(start, stop, step, size)


def as_numpy(start: int | None, length: int, step: int) -> slice:
    """Return what NumPy takes for a slice in normal form whose sizes are numbers."""
    if length == 0:
        return slice(0, 0)
    reach = extent(length, step)
    if start is None:
        # Counted from the right, if that is where it begins.
        return slice(None, reach if step > 0 else reach - 1, step)
    return slice(start, start + reach if start + reach >= 0 else None, step)


def extent(length: int, step: int) -> int:
    """Return how far behind its start a slice with elements stops."""
    return (length - 1) * step + (1 if step > 0 else -1)


def slice_length(size: Size, start: Bound, stop: Bound, step: int) -> Size:
    """Return how many elements a slice selects from an axis."""
    if isinstance(size, int) and not isinstance(start, Dim) and not isinstance(stop, Dim):
        return len(range(*slice(start, stop, step).indices(size)))
    extent = _forward_extent(size, start, stop) if step > 0 else _backward_extent(size, start, stop)
    return (extent + (abs(step) - 1)) // abs(step)


def _as_bound(value: Any) -> Size:
    if isinstance(value, (int, Dim)):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"slices are made of integers and None, got {value!r}") from None


@lru_cache(maxsize=4096)
def _normalize_numbers(start: int | None, stop: int | None, step: int, size: int) -> Slice | None:
    chosen = range(*slice(start, stop, step).indices(size))
    count = len(chosen)
    if count == size and (step > 0 or size <= 1):
        return None
    if start is None:
        return Slice(None, count, step)
    return Slice(chosen[0] if count else 0, count, step)


def _normalize_sizes(start: Bound, stop: Bound, step: int, size: Size) -> Slice | None:
    start, stop = _from_end(start, size), _from_end(stop, size)
    begin = start
    if step > 0:
        if start == 0:
            begin = None
        if _reaches(stop, size):
            stop = None
        if begin is None and stop is None and step == 1:
            return None
    elif start == -1 or _reaches(start, size):
        begin = None
    length = slice_length(size, begin, stop, step)
    return Slice(None if start is None else _first(begin, size, step), length, step)


def _first(bound: Bound, size: Size, step: int) -> Size:
    """Return the position at which a slice begins, given its start; beyond the end if it has no elements."""
    if step < 0:
        return size - 1 if bound is None else _clamped(bound, size, low=-1, high=size - 1)
    if bound is None:
        return 0
    return bound if _negative(bound) is False else _clamped(bound, size, low=0, high=size)


def _from_end(bound: Bound, size: Size) -> Bound:
    """Write the last position as -1; n - 1 and -1 mean the same for every n, also for 0."""
    return -1 if isinstance(bound, Dim) and bound == size - 1 else bound


def _reaches(bound: Bound, size: Size) -> bool:
    """Whether a bound is known to be at or beyond the end of the axis."""
    return bound is not None and _negative(bound) is False and _less(bound, size) is False


# --- lengths ---------------------------------------------------------------------------------------------------------


def _forward_extent(size: Size, start: Bound, stop: Bound) -> Size:
    """Return ``max(end - begin, 0)`` for a positive step, in its shortest form where the signs are known."""
    first: Size = 0 if start is None else start
    begins_left = _negative(first) is False
    if begins_left and stop is None:
        return maximum(size - first, 0)
    if begins_left and stop is not None and _negative(stop):
        return maximum(size + stop - first, 0)
    if begins_left and stop is not None and _negative(stop) is False and _less(stop, first) is False:
        return minimum(stop - first, maximum(size - first, 0))
    if _negative(first) and stop is None:
        return minimum(size, -first)
    if _negative(first) and stop is not None and _negative(stop) and _less(stop, first) is False:
        return minimum(stop - first, maximum(size + stop, 0))
    end = size if stop is None else _clamped(stop, size, low=0, high=size)
    return maximum(end - _clamped(first, size, low=0, high=size), 0)


def _backward_extent(size: Size, start: Bound, stop: Bound) -> Size:
    """Return ``max(begin - end, 0)`` for a negative step."""
    last = size - 1
    if stop is None:
        if start is None:
            return size
        if _negative(start):
            return maximum(size + start + 1, 0)
        if _negative(start) is False:
            return minimum(start + 1, size)
    if start is None and stop is not None and _negative(stop) is False:
        return maximum(last - stop, 0)
    begin = last if start is None else _clamped(start, size, low=-1, high=last)
    end = -1 if stop is None else _clamped(stop, size, low=-1, high=last)
    return maximum(begin - end, 0)


def _clamped(bound: Size, size: Size, *, low: Size, high: Size) -> Size:
    """Return a bound counted from the left and clamped to the axis, as Python does."""
    negative = _negative(bound)
    if negative:
        return maximum(bound + size, low)
    if negative is False:
        return minimum(bound, high)
    # The sign depends on the binding: choose with a 0-or-1 size that says whether the bound is negative.
    below = minimum(maximum(-bound, 0), 1)
    return below * maximum(bound + size, low) + (1 - below) * minimum(maximum(bound, 0), high)


def _negative(bound: Size) -> bool | None:
    return _less(bound, 0)


def _less(left: Size, right: Size) -> bool | None:
    difference = left - right
    return difference.less(0) if isinstance(difference, Dim) else difference < 0
