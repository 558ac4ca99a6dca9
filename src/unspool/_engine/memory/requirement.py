"""What it takes to run the steps of a loop again for a sweep that reads them: how wide the state is, how much is read.

From that follow the least budget, and how many steps and states to keep within a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from unspool._graph import Node

if TYPE_CHECKING:
    from unspool._engine.memory.units import Units
    from unspool.checkpoint.planner import BlockPlan

# Units among which the narrowest state is looked for.
_WINDOW = 32


class Need:
    """What it takes to run units of a lower level, in some order, for a frame that reads them, in bytes.

    ``uses`` is how often that reads each node, ``workspace`` what its unit takes that waits for them.

    Attributes
    ----------
    steps : int
        How many units there are.
    state : int
        The widest state between two of them.
    tape : int
        All that the frame above reads.
    step : int
        What it reads of one unit, on average.
    fixed : int
        What the frame above holds all the time: its results, and what its chains stack up.
    whole : int
        What it takes to run all of them if all that the frame above reads is kept.
    everything : int or None
        What it takes if nothing runs again, as far as that is known.
    """

    __slots__ = (
        "_running",
        "_tapes",
        "_widest",
        "_widths",
        "_window",
        "everything",
        "fixed",
        "state",
        "step",
        "steps",
        "tape",
        "whole",
    )

    def __init__(
        self,
        units: Units,
        order: Sequence[Node] = (),
        uses: dict[int, int] | None = None,
        workspace: int = 0,
        fixed: int = 0,
    ) -> None:
        self.steps = len(order)
        self.fixed = fixed
        self.everything: int | None = None
        self._running, self.whole, self._widths, self._tapes = units.need(order, uses or {})
        # Between two steps of a loop the state is narrower than inside of one, so there is a choice where to save it.
        self._window = max(1, min(_WINDOW, self.steps // 8))
        self.state = max(map(min, _windows(self._widths, self._window)), default=0)
        self._widest = max(self._widths, default=0)
        # No two units run at the same time: not one of the frame above either.
        self._running = max(self._running, self._widest + workspace)
        self.tape = sum(self._tapes)
        self.step = max(1, -(-self.tape // max(1, self.steps)))

    def tail(self, room: int) -> int:
        """Return the position from which on what the frame above reads fits into some room; the last unit always."""
        position = self.steps - 1
        room -= self._tapes[position]
        while position and room >= self._tapes[position - 1]:
            position -= 1
            room -= self._tapes[position]
        return position

    def narrowest(self, position: int) -> int:
        """Return the position, at or a little before one, after which the state is narrowest."""
        first = max(0, position - self._window + 1)
        return min(range(position, first - 1, -1), key=self._widths.__getitem__)

    def running(self) -> int:
        """Return what running takes beside what is kept: the state that was reached, what is read, the workspace."""
        return self._running

    def overhead(self) -> int:
        """Return what is held beside what is kept, all in all: also what the frame above holds and read last."""
        return self.fixed + self._widest + self.running()

    def least(self) -> int:
        """Return the smallest budget that works."""
        if self.everything is None:
            return self.least_in_steps()
        return min(self.least_in_steps(), self.everything) if self.steps else self.everything

    def least_in_steps(self) -> int:
        """Return what it takes at least if steps run again: the newest state, one state on the way, and one step."""
        return self.overhead() + 2 * self.state + 2 * self.step

    def plan(self, budget: int) -> BlockPlan:
        """Return how many steps to keep at once within a budget, and how many states."""
        from unspool.checkpoint.planner import BlockPlan

        if self.is_whole(budget):
            return BlockPlan(self.steps, 1, 1.0)
        return self.plan_in(budget - self.overhead())

    def factor(self, budget: int) -> float:
        """Return about how often a step runs within a budget: in blocks or, if that is less, in leaves of all room.

        A state that is saved is part of what is read of the step after it, which blocks count twice.
        """
        from unspool.checkpoint._schedule.reach import Reach

        plan = self.plan(budget)
        if plan.block == self.steps:
            return plan.factor
        state = max(1, self.state)
        reach = Reach(max(budget - self.overhead(), state), state, max(0, self.step - state))
        runs = reach.cost(self.steps, reach.slots - 1) + 1 - reach.taping
        return min(plan.factor, runs / self.steps)

    def is_whole(self, budget: int) -> bool:
        """Whether to run steps again would take more than there is, but to keep everything does not."""
        return self.everything is not None and self.everything <= budget < self.least_in_steps()

    def plan_in(self, room: int) -> BlockPlan:
        """Return how many steps to keep at once in some room, and how many states."""
        from unspool.checkpoint.planner import BlockPlan, block_plan

        if self.tape <= room:
            return BlockPlan(self.steps, 1, 1.0)
        # The state that the first step starts from is there already, and takes a slot; one step of a block is not
        # counted.
        state = max(1, self.state)
        return block_plan(self.steps, max(room - self.step, state) + state, state, self.step)

    def block_of(self, steps: int, room: int) -> int:
        """Return of how many steps at once so many steps are run again in some room."""
        from unspool.checkpoint.planner import block_plan

        state = max(1, self.state)
        return block_plan(max(1, steps), max(room - self.step, state) + state, state, self.step).block

    def predicted_peak(self, budget: int) -> int:
        """Return the most bytes that would be held at once."""
        plan = self.plan(budget)
        if plan.block == self.steps:
            kept = self.overhead() + self.tape
            return kept if self.everything is None else min(kept, self.everything)
        return self.overhead() + plan.block * self.step + (plan.slots - 1) * self.state


def _windows(widths: list[int], size: int) -> Iterator[list[int]]:
    """Yield stretches of a list that cover it."""
    for first in range(0, len(widths) - size + 1, max(1, size // 2)):
        yield widths[first : first + size]
