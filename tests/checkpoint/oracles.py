"""What schedules are compared with: recursions that are tried out, and exact tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from unspool.checkpoint import binomial


@cache
def least_advances(steps: int, slots: int) -> int:
    """The recursion that the closed form solves, tried out: the first advance may end anywhere."""
    if steps == 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(k + least_advances(k, slots) + least_advances(steps - k, slots - 1) for k in range(1, steps))


def sweep_cost(positions: Sequence[int], end: int, slots: int, clock: Sequence[float] | None = None) -> float:
    """The advances, or with a clock their time, of a backward pass from saved states.

    The last step has just run. A gap counts by the mean time of its steps.
    """
    total = 0.0
    for i, (start, stop) in enumerate(pairwise([*positions, end - 1])):
        if stop > start:
            pace = 1.0 if clock is None else (clock[stop] - clock[start]) / (stop - start)
            total += pace * binomial.advances(stop - start, slots - i)
    return total


def mixed_evaluations(steps: int, units: int, tape_units: int) -> int:
    """Return the least runs of a step that reverse a loop if saved states and tapes share the room.

    At any time any set of states and tapes may be kept. A state takes one unit. The last step of what is being reversed
    is taped in place and takes no room. With f(l, c) for l steps and c free units: a tape of the first step leaves
    f(l − 1, c − tape_units), and one more run; saving the start and advancing i steps leaves f(l − i, c − 1) and then
    f(i, c), and i runs. For ``tape_units=1`` this is the mixed schedule of Maddison (2024).
    """
    units = min(units, max(1, (steps - 1) * tape_units))
    # Every real cost is below this, and two of them can be added.
    impossible = 2**29
    table = np.full((steps + 1, units + 1), impossible, np.int32)
    table[1] = 1
    lengths = np.arange(steps + 1, dtype=np.int32)[:, np.newaxis]
    for length in range(2, steps + 1):
        # Row i of the first factor has i + f(i, c); row i of the second has f(length − i, c − 1).
        sums = (table[1:length] + lengths[1:length])[:, 1:] + table[length - 1 : 0 : -1, :-1]
        table[length, 1:] = sums.min(axis=0)
        if tape_units <= units:
            taped = table[length - 1, : units + 1 - tape_units] + 1
            np.minimum(table[length, tape_units:], taped, out=table[length, tape_units:])
    return int(table[steps, units])
