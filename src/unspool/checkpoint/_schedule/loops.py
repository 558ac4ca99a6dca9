"""The forward pass of a loop: which states it saves, and how many of its newest steps stay taped.

A loop of known length saves the states to the right of every split of `reach`, and tapes its last leaf. One of unknown
length is *open*: it keeps some states and a ring, the tape of its newest steps. Once the old edge of the ring is a leaf
past the last saved state, there is one decision:

- If there are fewer states than the schedule for twice as many steps would have, the state at the edge is saved. What
  was missed does not come back: to save only what pays now was tried, and took up to 1.43 times the runs.
- Otherwise it is added, and that state is removed without which the backward pass costs least if the loop ended now:
  the sum of f(gap, free) over the gaps. Removing a state joins two gaps and gives every later one room for a state
  more, so with sums from both ends all removals are scored in one pass. (Wang, Moin and Iaccarino, SIAM J. Sci. Comput.
  31, 2009, have a rule with a proved bound, which costs more; Stumm and Walther, 32, 2010, one for few repetitions.)

So the decisions are few where leaves are long: 7 in 10⁴ steps at an eighth of what keeping everything takes. Where they
are short, gaps are a share of the steps so far that the cost hardly notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from unspool.checkpoint._counting import at_least, paced
from unspool.checkpoint._schedule.actions import ADVANCE, FREE, SAVE, TAPE, Rows, chunks, rows
from unspool.checkpoint._schedule.gaps import backward_pass
from unspool.checkpoint._schedule.reach import Reach
from unspool.errors import ArgumentError

__all__ = ["ClosedLoop", "OpenLoop", "costs_without", "ring"]

# When a state has to go for each that comes, gaps are at least one step for so many steps of the loop: so many for each
# state, but no more than so many, or than half as many as states. A state that is so much too old costs the backward
# pass as little, and decisions grow with the logarithm of the steps.
_GRAIN: Final = 40
_GRAINS: Final = 256

# Above this many states, arrays save more than their calls cost.
_MANY: Final = 48


def ring(reach: Reach, tape_room: int, held: int, *, from_saved: bool) -> int:
    """Return how many steps a running loop tapes beside saved states.

    Parameters
    ----------
    reach : Reach
        The sizes.
    tape_room : int
        The bytes for saved states and tapes while the loop runs forward.
    held : int
        How many states are saved.
    from_saved : bool
        Whether the newest of them is the one that the tape begins with, which then counts once.
    """
    if not reach.tape:
        return reach.leaf(0)
    return max(0, tape_room - (held - from_saved) * reach.state) // reach.tape


def default_tape_room(reach: Reach) -> int:
    """Return the bytes for states and tapes while a loop runs forward, if its newest step is taped in the workspace."""
    return reach.room + reach.tape


# --- known length ----------------------------------------------------------------------------------------------------


class ClosedLoop:
    """The schedule of a loop whose length is known.

    Parameters
    ----------
    reach : Reach
        The room, and what it can do.
    steps : int
        The length of the loop; at least 1.
    tape_room : int, optional
        The bytes for saved states and tapes while the loop runs forward: the room and a tape unless given.

    Attributes
    ----------
    positions : tuple of int
        The states that are saved when the loop has run.
    edge : int
        The steps from here on are taped then.
    """

    def __init__(self, reach: Reach, steps: int, tape_room: int | None = None) -> None:
        self.reach, self.steps = reach, at_least(steps, 1, "steps")
        tape_room = default_tape_room(reach) if tape_room is None else tape_room
        starts = reach.spine(steps, reach.slots - 1)
        last, count = int(starts[-1]), len(starts)
        self.edge = last
        if ring(reach, tape_room, count, from_saved=True) >= steps - last:
            starts = starts[:-1]
        else:
            starts = starts[: reach.slots]
            self.edge = max(last, steps - ring(reach, tape_room, len(starts), from_saved=False))
        self.positions = tuple(starts.tolist())

    def forward(self) -> Iterator[Rows]:
        """Yield chunks of rows that run the loop; state 0 is current at first."""
        return chunks(self._forward())

    def _forward(self) -> Iterator[Rows]:
        at = 0
        for slot, position in enumerate(self.positions):
            if position > at:
                yield rows((ADVANCE, at, position, 0))
            yield rows((SAVE, position, position, slot))
            at = position
        if at < self.edge:
            yield rows((ADVANCE, at, self.edge, 0))
        if self.edge < self.steps:
            yield rows((TAPE, self.edge, self.steps, self.steps - self.edge))

    def backward(self) -> Iterator[Rows]:
        """Yield chunks of rows that reverse it; at the end nothing is saved and nothing is taped."""
        return backward_pass(self.reach, self.positions, self.edge, self.steps)

    def evaluations(self) -> int:
        """Return how many runs of a step both take."""
        return self.steps + _backward_runs(self.reach, self.positions, self.edge)


def _backward_runs(reach: Reach, positions: tuple[int, ...], edge: int) -> int:
    bounds = (*positions, edge)
    return sum(
        reach.runs(bounds[index + 1] - start, reach.slots - 1 - index)
        for index, start in enumerate(positions)
        if start < bounds[index + 1]
    )


# --- unknown length --------------------------------------------------------------------------------------------------


class OpenLoop:
    """The schedule of a loop whose length nobody knows while it runs.

    Parameters
    ----------
    reach : Reach
        The room, and what it can do.
    tape_room : int, optional
        The bytes for saved states and tapes while the loop runs forward: the room and a tape unless given.
    clock : function, optional
        The time that all steps before a state took, for steps that differ: states behind dear ones then stay longer. It
        decides what is run again, never what comes out.

    Attributes
    ----------
    steps : int
        How many steps have run.
    due : int
        Up to how many steps the loop may run before something has to be decided.
    keep : int
        How many of the newest steps stay taped until then.
    edge : int
        The steps from here on are taped now.
    decisions : int
        How many decisions there were.
    """

    def __init__(self, reach: Reach, tape_room: int | None = None, clock: Callable[[int], float] | None = None) -> None:
        self.reach = reach
        self._clock = clock
        self.tape_room = default_tape_room(reach) if tape_room is None else tape_room
        self.steps = self.edge = self.decisions = 0
        self._positions, self._slots = [0], [0]
        self._depth, self._depth_from = 1, 0
        self.keep = self.due = 0
        self._look_ahead()

    @property
    def positions(self) -> tuple[int, ...]:
        """The saved states, in order."""
        return tuple(self._positions)

    def run_to(self, steps: int) -> Rows:
        """Return the rows that run the loop on from where it is, up to so many steps in all."""
        if steps < self.steps:
            raise ArgumentError(f"the loop has run {self.steps} steps and cannot go back to {steps}")
        actions: list[tuple[int, int, int, int]] = []
        while self.steps < steps:
            self._go_on(steps, actions)
        self._decide_if_due(actions)
        return rows(*actions)

    def go_on(self, most: int | None = None) -> Rows:
        """Return the rows that run the loop on until there is something to decide, or up to so many steps in all."""
        actions: list[tuple[int, int, int, int]] = []
        self._go_on(most, actions)
        return rows(*actions)

    def end(self, steps: int, edge: int) -> Rows:
        """Take note that the loop ended within the last rows, and where its tape begins; return what is left to do."""
        self.steps, self.edge = steps, edge
        actions: list[tuple[int, int, int, int]] = []
        self._decide_if_due(actions)
        return rows(*actions)

    def finish(self) -> Iterator[Rows]:
        """Yield chunks of rows that reverse the loop as if it ended now; the loop itself stays as it is."""
        return backward_pass(self.reach, self.positions, self.edge, self.steps, tuple(self._slots))

    def evaluations(self) -> int:
        """Return how many runs of a step the loop takes in all if it ends now."""
        return self.steps + _backward_runs(self.reach, self.positions, self.edge)

    def _go_on(self, most: int | None, actions: list[tuple[int, int, int, int]]) -> None:
        if not self.steps:
            actions.append((SAVE, 0, 0, 0))
        self._decide_if_due(actions)
        self._run(self.due if most is None else min(most, self.due), actions)

    def _run(self, stop: int, actions: list[tuple[int, int, int, int]]) -> None:
        """Run up to ``stop``, which is not beyond what is due."""
        begin = self._positions[-1]
        if self.edge == begin:
            # As long as the tape begins with the newest saved state, there is room for one more.
            keep = ring(self.reach, self.tape_room, len(self._positions), from_saved=True)
            first = min(stop, begin + keep)
            if first > self.steps:
                actions.append((TAPE, self.steps, first, keep))
                self.steps = first
        if stop > self.steps:
            kind = TAPE if self.keep else ADVANCE
            actions.append((kind, self.steps, stop, self.keep))
            self.steps, self.edge = stop, max(self.edge, stop - self.keep)

    def _look_ahead(self) -> None:
        """Find what is kept on the tape from now on, and when the next decision is due."""
        self.keep = ring(self.reach, self.tape_room, len(self._positions), from_saved=False)
        newest, least = self._positions[-1] + self.keep, max(1, self.keep)
        due = max(newest + least, self.steps + 1)
        if len(self._positions) >= self._wanted():
            slots = self.reach.slots
            # Where no tape fits, every step is a leaf, and where a state is matters more.
            finer = 1 if self.reach.leaf(slots - 1) > 1 else 2
            grains = max(slots // 2, finer * min(_GRAIN * slots, _GRAINS))
            # A state that was turned down now is not worth a look at every step to come.
            due = max(due, self.steps + self.steps // (2 * finer * grains))
            while due < newest + (gap := max(least, due // grains)):
                due = newest + gap
        self.due = due

    def _decide_if_due(self, actions: list[tuple[int, int, int, int]]) -> None:
        if self.steps != self.due:
            return
        self.decisions += 1
        count = len(self._positions)
        if count < self._wanted():
            self._save(count, actions)
        elif count > 1:
            scores = costs_without(self.reach, [*self._positions, self.edge], self.edge, self._clock)
            index = 1 + scores.index(min(scores))
            if index < count:
                actions.append((FREE, self._positions[index], self._positions[index], self._slots[index]))
                slot = self._slots.pop(index)
                del self._positions[index]
                self._save(slot, actions)
        self._look_ahead()

    def _save(self, slot: int, actions: list[tuple[int, int, int, int]]) -> None:
        actions.append((SAVE, self.edge, self.edge, slot))
        self._positions.append(self.edge)
        self._slots.append(slot)

    def _wanted(self) -> int:
        """Return how many states there are to be by now."""
        if 50 * self.steps > 51 * self._depth_from:
            self._depth_from = self.steps
            depth = len(self.reach.spine(2 * self.steps, self.reach.slots - 1))
            self._depth = min(max(self._depth, depth), self.reach.slots)
        return self._depth


# --- what a state is worth -------------------------------------------------------------------------------------------


def costs_without(
    reach: Reach, positions: Sequence[int], edge: int, clock: Callable[[int], float] | None = None
) -> list[float]:
    """Return what the backward pass costs without each of the saved states but the start, which has to stay.

    Parameters
    ----------
    reach : Reach
        The room, and what it can do.
    positions : sequence of int
        The saved states, rising from state 0; there may be one more than there is room for.
    edge : int
        The steps from here on are taped.
    clock : function, optional
        The time that all steps before a state took. A gap then counts by the mean of its steps.
    """
    bounds = [*positions, edge]
    gaps = [right - left for left, right in pairwise(bounds)]
    pairs = [left + right for left, right in pairwise(gaps)]
    slots, count = reach.slots, len(pairs)
    # Each gap as it is, with room for a state more, and joined with the next one.
    kept = _costs(reach, gaps[:-2], slots - 1)
    moved = _costs(reach, gaps[2:], slots - 2)
    joined = _costs(reach, pairs, slots - 1)
    if clock is not None:
        at = [clock(bound) for bound in bounds]
        kept, moved = paced(kept, gaps[:-2], at, 1), paced(moved, gaps[2:], at[2:], 1)
        joined = paced(joined, pairs, at, 2)
    before = list(accumulate(kept, initial=0.0))
    after = list(accumulate(reversed(moved), initial=0.0))
    return [before[i] + joined[i] + after[-1 - i] for i in range(count)]


def _costs(reach: Reach, gaps: Sequence[int], free: int) -> Sequence[float]:
    """Return the cost of each gap, if the first has room for ``free`` states and each other for one less."""
    if len(gaps) <= _MANY:
        return reach.costs_in_turn(gaps, free)
    found: list[float] = reach.costs(np.array(gaps, np.int64), free - np.arange(len(gaps))).tolist()
    return found
