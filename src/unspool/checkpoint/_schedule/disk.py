"""States on disk, period by period, and in memory inside a period.

Every P-th state is written as the loop passes it, so the length need not be known, and memory serves one period at a
time: each is read once and reversed as a loop of its own, all room being leaves and states of it. The tail of the loop
stays in memory. Aupy, Herrmann, Hovland and Robert (SIAM J. Sci. Comput. 38, 2016) have the optimum for a disk without
limit; Aupy and Herrmann (Optim. Methods Softw. 32, 2017) show that it becomes periodic. The cost of a step, (f(P) +
write + read) / P, falls as long as the slope of f is below it, and the slope changes only at a reach: so the best
period is a reach.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np

from unspool.checkpoint._schedule.actions import ADVANCE, FREE, LOAD, WRITE, Rows, chunks, rows
from unspool.checkpoint._schedule.gaps import reverse_part
from unspool.checkpoint._schedule.loops import ClosedLoop
from unspool.checkpoint._schedule.reach import Reach
from unspool.errors import ArgumentError

__all__ = ["DiskLoop", "best_period", "best_tail", "check_times"]


def check_times(write: float, read: float) -> None:
    """Raise `ArgumentError` for times that are none."""
    if not (0 <= write < math.inf and 0 <= read < math.inf):
        raise ArgumentError(f"the times to write and to read are finite and not negative, got {write!r} and {read!r}")


def best_period(reach: Reach, write: float, read: float, limit: int) -> int:
    """Return how many steps should lie between states on disk, and no more than ``limit``.

    The times to write and to read a state are in units of a step.
    """
    check_times(write, read)
    free = reach.slots - 1
    period = runs = 0
    while period < limit:
        reach.cost(limit, free)
        period, runs = min(reach.reach(free, runs), limit), runs + 1
        # One step more is run so often in the backward pass: as often as it costs a step on average, or more.
        if period and runs * period >= reach.cost(period, free) + write + read:
            break
    return period


def best_tail(steps: int, period: int, through_disk: float, cost: Callable[[int], int]) -> int:
    """Return how many steps at the end of a loop are best reversed from memory, with no state on disk.

    It is the remainder after whole periods, and as many periods more as cost less in memory than ``through_disk``. The
    cost of a stretch in memory grows ever faster with its length.
    """
    periods = (steps - 1) // period
    tail = steps - periods * period

    def longer(count: int) -> int:
        """Return what one more period adds to the cost of the tail."""
        stop = tail + count * period
        return cost(stop + period) - cost(stop)

    return tail + period * bisect_right(range(periods), through_disk, key=longer)


class DiskLoop:
    """The schedule of a loop that writes every ``period``-th state to disk, but for those of its tail.

    Parameters
    ----------
    reach : Reach
        The room in memory, and what it can do.
    steps : int
        The length of the loop; at least 1.
    period : int
        How many steps lie between states on disk.
    write, read : float
        The time to write and to read a state, in units of a step.

    Attributes
    ----------
    tail : int
        How many steps at the end are reversed from memory.
    """

    def __init__(self, reach: Reach, steps: int, period: int, write: float, read: float) -> None:
        check_times(write, read)
        free = reach.slots - 1
        self.reach, self.steps, self.period = reach, steps, period
        self._through_disk = period + reach.runs(period, free) + write + read
        self.tail = best_tail(steps, period, self._through_disk, lambda count: reach.cost(count, free))
        self._in_memory = ClosedLoop(reach, self.tail)

    @property
    def written(self) -> range:
        """The states that go to disk; the i-th has slot −1 − i."""
        return range(0, self.steps - self.tail, self.period)

    def forward(self) -> Iterator[Rows]:
        """Yield chunks of rows that run the loop; state 0 is current at first."""
        return chunks(self._forward())

    def _forward(self) -> Iterator[Rows]:
        for i, state in enumerate(self.written):
            yield rows((WRITE, state, state, -1 - i), (ADVANCE, state, state + self.period, 0))
        for block in self._in_memory.forward():
            yield self._in_tail(block)

    def backward(self) -> Iterator[Rows]:
        """Yield chunks of rows that reverse it; at the end nothing is saved, taped or on disk."""
        return chunks(self._backward())

    def _backward(self) -> Iterator[Rows]:
        for block in self._in_memory.backward():
            yield self._in_tail(block)
        parts: dict[tuple[int, int, bool], Rows] = {}
        for i, state in reversed(tuple(enumerate(self.written))):
            yield rows((LOAD, state, state, -1 - i), (FREE, state, state, -1 - i))
            yield from reverse_part(self.reach, state, self.period, self.reach.slots - 1, False, parts)

    def _in_tail(self, block: Rows) -> Rows:
        begin = self.steps - self.tail
        return block + np.array((0, begin, begin, 0), np.int64)

    def without(self, index: int) -> Rows:
        """Return what makes the index-th state on disk current if its file cannot be read: from the one before it."""
        state = self.written[index]
        before = state - self.period
        return rows((LOAD, before, before, -index), (ADVANCE, before, state, 0))

    def cost(self) -> float:
        """Return the time of all runs, writes and reads, in units of a step."""
        return self._in_memory.evaluations() + len(self.written) * self._through_disk
