"""The numbers behind the schedules, without checks of arguments, for one loop or for many at once.

The one idea: the reach C(slots + r, r) grows with r by one multiplication and one division, and both the least number
of repeats and the least number of advances follow from it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unspool.errors import ArgumentError

# Up to here, counting repeats one by one is faster than bisecting.
_FEW = 16

# A round of NumPy calls costs about as much as counting this many loops one by one.
_ALONE = 12


def least_repeats(steps: int, slots: int) -> tuple[int, int]:
    """Return the least r with a reach of at least ``steps``, and that reach."""
    r, reached = 0, 1
    while reached < steps:
        if r == _FEW:
            return _bisect(steps, slots)
        r += 1
        reached = reached * (slots + r) // r
    return r, reached


def _bisect(steps: int, slots: int) -> tuple[int, int]:
    low, high = _FEW, 2 * _FEW
    while math.comb(slots + high, high) < steps:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if math.comb(slots + middle, middle) < steps:
            low = middle
        else:
            high = middle
    return high, math.comb(slots + high, high)


def least_advances(steps: int, slots: int) -> int:
    """Return the least advances; a loop of fewer than one step has none.

    A step more costs one advance for every r whose reach is passed. So the sum over r of steps − reach(slots, r), where
    this is positive, is the same as r·steps − C(slots + r, r − 1) for the least r; that binomial is r / (slots + 1) of
    the reach. The sum is faster while it is short.
    """
    reached, r = slots + 1, 1
    if steps <= reached:
        return steps - 1 if steps > 1 else 0
    work = steps - 1
    while reached < steps:
        if r == _FEW:
            r, reached = _bisect(steps, slots)
            return r * steps - reached * r // (slots + 1)
        work += steps - reached
        r += 1
        reached = reached * (slots + r) // r
    return work


def least_advances_of_many(steps: NDArray[np.float64], slots: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least advances of each loop, by the same sum; exact as long as the numbers are below 2⁵³."""
    work: NDArray[np.float64] = np.maximum(steps - 1.0, 0.0)
    reached = slots + 1.0
    r, short = 1, np.flatnonzero(reached < steps)
    steps, slots, reached = steps[short], slots[short], reached[short]
    while len(short) > _ALONE and r < _FEW:
        work[short] += steps - reached
        r += 1
        reached *= slots + r
        reached /= r
        more = reached < steps
        short, steps, slots, reached = short[more], steps[more], slots[more], reached[more]
    for index, count, room in zip(short.tolist(), steps.tolist(), slots.tolist(), strict=True):
        work[index] = least_advances(int(count), int(room))
    return work


def paced(work: Sequence[float], sizes: Sequence[int], clock: Sequence[float], span: int) -> list[float]:
    """Return the time of work in gaps: that in the i-th one goes at the mean pace from the i-th bound on."""
    return [
        steps * (clock[i + span] - clock[i]) / size if steps else 0.0
        for i, (steps, size) in enumerate(zip(work, sizes, strict=True))
    ]


def integer(value: int, name: str) -> int:
    """Return an argument as an integer; raise `ArgumentError` if it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is an integer, got {value!r}") from None


def at_least(value: int, least: int, name: str) -> int:
    """Return an argument as an integer; raise `ArgumentError` if it is none, or too small."""
    number = integer(value, name)
    if number < least:
        raise ArgumentError(f"{name} is at least {least}, got {number}")
    return number
