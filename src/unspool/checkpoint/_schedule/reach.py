"""How many steps some room serves: the binomial schedule (Revolve) whose leaves fill all room that is left with tape.

States are placed as Griewank and Walther place them (Algorithm 799: revolve, ACM TOMS 26, 2000). At a leaf of their
tree all room that is left becomes tape, so a leaf is a run of steps that are taped and reversed at once. Maddison (J.
Comp. Sci. 82, 2024) has the exact optimum of such mixed storage as a table in steps² · room; this has closed forms.

With room for c states more beside that which a stretch starts from, and each step run at most ρ times to reverse it:

    b(c, 1) = 1 + ((c + 1)·state + rest) // (state + residual)      a leaf; the last step is taped in the workspace
    b(c, ρ) = b(c, ρ − 1) + b(c − 1, ρ),  b(−1, ρ) = 1               the reach: one cumulative sum for each ρ
    f(l, c) = Σ_{ρ ≥ 0} max(0, l − b(c, ρ))                          the cost: runs of a step in the backward pass
    i = max(1, l − b(c − 1, ρ), min(b(c, ρ − 1), l − b(c − 1, ρ − 1)))   the split, for b(c, ρ − 1) < l ≤ b(c, ρ)

where b(c, 0) is 0, or 1 if there are no residuals: then a state is all that the reversal of a step reads. Without
residuals b(c, ρ) is the binomial C(c + 1 + ρ, ρ) and all this is Revolve; so it is, one ρ later, if no tape fits. There
the cost is exact. Elsewhere it is a little too small, because leaves shrink with the states below them: `runs` counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from unspool.checkpoint._counting import at_least
from unspool.errors import BudgetError

__all__ = ["Reach"]

# States without bytes fit as often as one likes.
_ENDLESS: Final = 1 << 40

# With so much room a step is run a few times at most, and the costs of many stretches are a few sums of arrays.
_FEW_FREE: Final = 16

# How many costs are remembered.
_MOST_KNOWN: Final = 1 << 12


class Reach:
    """What some room can do for a loop.

    Parameters
    ----------
    room : int
        The bytes for saved states and tapes. What runs and reverses one step is apart: the state it starts from, the
        one it makes, its residuals.
    state, residual : int
        The bytes of a state, and of what a step keeps for its reversal beside the state it starts from.
    taping : bool, optional
        Whether a step has to run to be taped: whether there are residuals, unless given.

    Attributes
    ----------
    slots : int
        How many states there is room for, the start included.

    Raises
    ------
    BudgetError
        If there is no room for one state.
    """

    def __init__(self, room: int, state: int, residual: int, *, taping: bool | None = None) -> None:
        self.room = at_least(room, 0, "room")
        self.state, self.residual = at_least(state, 0, "state"), at_least(residual, 0, "residual")
        if room < state:
            error = BudgetError(f"there is room for {room} bytes, and the one state that is always kept takes {state}")
            error.least = state
            raise error
        self.slots = room // state if state else _ENDLESS
        self.tape = state + residual
        # Runs that a step needs to be reversed where it starts from a saved state.
        self.taping = int(residual > 0 if taping is None else taping)
        self._limit = 0
        self._rows: list[NDArray[np.int64]] = []
        self._columns: dict[int, tuple[list[int], list[int]]] = {}
        self._known: dict[tuple[int, int], int] = {}

    # --- reach, cost, split ------------------------------------------------------------------------------------------

    def leaf(self, free: int) -> int:
        """Return how many steps are taped at once with room for ``free`` states beside the start of the leaf."""
        if not self.tape:
            return _ENDLESS
        return 1 + (self.room - (self.slots - free - 1) * self.state) // self.tape if self.state else self._flat()

    def _flat(self) -> int:
        return 1 + self.room // self.tape

    def reach(self, free: int, runs: int) -> int:
        """Return b(free, runs), for tests and tables; no more than about twice the longest stretch asked for so far."""
        if free < 0:
            return 1 if runs or not self.taping else 0
        if free == 0:
            return self.leaf(0) + runs - 1 if runs else 1 - self.taping
        column, _ = self._column(free)
        return column[min(runs, len(column) - 1)]

    def cost(self, steps: int, free: int) -> int:
        """Return f(steps, free): about how many runs of a step it takes to reverse a stretch from its saved start."""
        if steps <= 0:
            return 0
        # Open loops ask for the same gaps in every decision.
        found = self._known.get((steps, free))
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[steps, free] = self._cost(steps, free)
        return found

    def _cost(self, steps: int, free: int) -> int:
        if free == 0:
            leaf = min(steps, self.leaf(0))
            return (steps * (steps - 1) - leaf * (leaf - 1)) // 2 + self.taping * (steps - leaf + 1) + leaf - 1
        self._serve(steps)
        column, sums = self._column(free)
        passed = bisect_left(column, steps)
        return passed * steps - sums[passed]

    def costs_in_turn(self, steps: Sequence[int], free: int) -> list[int]:
        """Return the `cost` of stretches, the first with room for ``free`` states, each other for one less."""
        known, cost, room = self._known, self.cost, range(free, free - len(steps), -1)
        return [known[part] if part in known else cost(*part) for part in zip(steps, room, strict=True)]

    def costs(self, steps: NDArray[np.int64], free: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the `cost` of many stretches; ``free`` falls from entry to entry."""
        self._serve(int(steps.max(initial=1)))
        many = int(np.count_nonzero(free >= _FEW_FREE))
        few = [self.cost(*part) for part in zip(steps[many:].tolist(), free[many:].tolist(), strict=True)]
        steps, free = steps[:many], free[:many]
        work = np.maximum(steps - (1 - self.taping), 0)
        runs, more = 1, np.arange(many)
        while len(more):
            row = self._row(runs)
            over = steps[more] - row[np.minimum(free[more], len(row) - 1)]
            more, over = more[over > 0], over[over > 0]
            work[more] += over
            runs += 1
        return np.concatenate((work, np.array(few, np.int64)))

    def split(self, steps: int, free: int) -> int:
        """Return how far to advance from the start of a stretch, longer than a leaf, before the next state is saved."""
        if free == 0:
            return steps - 1
        self._serve(steps)
        column, _ = self._column(free)
        runs = bisect_left(column, steps)
        if free == 1:
            less, right = self.reach(0, runs - 1), self.reach(0, runs)
        else:
            beside, _ = self._column(free - 1)
            last = len(beside) - 1
            less, right = beside[min(runs - 1, last)], beside[min(runs, last)]
        return max(1, steps - right, min(column[runs - 1], steps - less))

    def is_row_of_leaves(self, steps: int, free: int) -> bool:
        """Return whether a stretch, longer than a leaf, is one state a leaf: then `leaves` has its parts."""
        if free == 0:
            return False
        self._serve(steps)
        column, _ = self._column(free)
        return bisect_left(column, steps) <= 2

    def leaves(self, steps: int, free: int) -> NDArray[np.int64]:
        """Return the lengths of the leaves of a stretch that `is_row_of_leaves`, oldest first.

        It is what repeated splits give: full leaves, but for the last but one.
        """
        most = min(steps, free + 2)
        count = min(most, 8 + 2 * steps // self.leaf(free))
        while True:
            sizes = self._leaves_of(free - np.arange(count, dtype=np.int64))
            ends = np.cumsum(sizes)
            if ends[-1] >= steps or count == most:
                break
            count = most
        count = int(np.searchsorted(ends, steps)) + 1
        sizes = sizes[:count]
        sizes[-2] -= ends[count - 1] - steps
        return sizes

    def spine(self, steps: int, free: int) -> NDArray[np.int64]:
        """Return the starts of the parts that lie to the right of every split, the stretch's own start 0 first.

        These are the states that a loop has saved, and the start of its last leaf, when it has run once.
        """
        starts, position = [0], 0
        while steps - position > self.leaf(free):
            left = steps - position
            if self.is_row_of_leaves(left, free):
                more = position + np.cumsum(self.leaves(left, free)[:-1])
                return np.concatenate((np.array(starts, np.int64), more))
            position += self.split(left, free)
            free -= 1
            starts.append(position)
        return np.array(starts, np.int64)

    def runs(self, steps: int, free: int) -> int:
        """Return how many runs of a step it takes to reverse a stretch from its saved start, counted part by part."""
        known: dict[tuple[int, int], int] = {}
        waiting = [(steps, free)]
        while waiting:
            length, room = part = waiting[-1]
            found = known.get(part)
            if found is None:
                found = self._runs_of_simple(length, room)
            if found is None:
                i = self.split(length, room)
                left, right = (i, room), (length - i, room - 1)
                missing = [each for each in (left, right) if each not in known]
                if missing:
                    waiting += missing
                    continue
                found = i + known[left] + known[right]
            known[part] = found
            waiting.pop()
        return known[steps, free]

    def _runs_of_simple(self, steps: int, free: int) -> int | None:
        if steps <= self.leaf(free):
            return steps - 1 + self.taping if steps > 0 else 0
        if free == 0:
            return self.cost(steps, 0)
        if not self.is_row_of_leaves(steps, free):
            return None
        sizes = self.leaves(steps, free)
        return 2 * steps - int(sizes[-1]) - (0 if self.taping else len(sizes))

    # --- tables ------------------------------------------------------------------------------------------------------

    def _serve(self, steps: int) -> None:
        """Make the tables good for a stretch of so many steps; they are built anew for one more than twice as long."""
        if steps > self._limit:
            self._limit = max(64, 1 << steps.bit_length())
            self._rows.clear()
            self._columns.clear()

    def _leaves_of(self, free: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self.state:
            return np.full(len(free), self._flat() if self.tape else _ENDLESS, np.int64)
        return 1 + (self.room - (self.slots - free - 1) * self.state) // self.tape

    def _column(self, free: int) -> tuple[list[int], list[int]]:
        """Return b(free, ρ) for ρ = 0, 1, … up to the first that is beyond the limit, and their sums."""
        found = self._columns.get(free)
        if found is not None:
            return found
        self._serve(1)
        limit = self._limit
        column = [1 - self.taping, min(self.leaf(free), limit)]
        while column[-1] < limit:
            row = self._row(len(column))
            column.append(int(row[free]) if free < len(row) else limit)
        found = self._columns[free] = column, list(accumulate(column, initial=0))
        return found

    def _row(self, runs: int) -> NDArray[np.int64]:
        """Return b(c, runs) for c = 0, 1, … as far as it is within the limit, which later entries are beyond."""
        rows, limit = self._rows, self._limit
        if not rows:
            # With ρ = 2 there is a step for each state, so no more columns than steps are of use.
            free = np.arange(min(self.slots, limit), dtype=np.int64)
            rows.append(np.minimum(self._leaves_of(free), limit))
        while len(rows) < runs:
            row = np.minimum(1 + np.cumsum(rows[-1]), limit)
            rows.append(row[: int(np.searchsorted(row, limit)) + 1])
        return rows[runs - 1]
