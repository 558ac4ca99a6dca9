"""A budget, in states or in bytes, as the room that schedules work with.

A memory is for saved states and tapes: a tape of the step that is reversed, and a *room* for all others. With states of
s bytes and residuals of r that is

    room for states and tapes in the backward pass    memory − (s + r)
    the same while the loop runs for the first time   memory
    the least memory that works                       s + (s + r)
    nothing runs again from                           steps · (s + r)

The start counts among the states. What runs and reverses a step is apart: its workspace, cotangents, the state that it
makes. These numbers follow from sizes alone: nothing that ran before enters.
"""

from __future__ import annotations

from typing import NamedTuple

from unspool.checkpoint._counting import at_least
from unspool.checkpoint._schedule.loops import ClosedLoop, OpenLoop
from unspool.checkpoint._schedule.reach import Reach
from unspool.errors import BudgetError

__all__ = ["Plan", "Sizes", "plan_for", "plan_for_slots"]


class Sizes(NamedTuple):
    """The bytes of a loop's step, which follow from its program and the sizes of its tensors.

    Attributes
    ----------
    state : int
        What is carried over a boundary between steps; at least 1.
    residual : int
        What a step keeps for its reversal beside the state it starts from.
    taping : bool
        Whether a step has to run to be taped: not if the state it starts from is all that its reversal reads.
    """

    state: int
    residual: int
    taping: bool = True

    @property
    def tape(self) -> int:
        """What a taped step takes."""
        return self.state + self.residual


class Plan(NamedTuple):
    """How loops of any length are run and reversed.

    Attributes
    ----------
    reach : Reach
        The room for saved states and tapes in the backward pass, and what it can do.
    tape_room : int
        The bytes for both while a loop runs for the first time.
    """

    reach: Reach
    tape_room: int

    def closed(self, steps: int) -> ClosedLoop:
        """Return the schedule of a loop whose length is known."""
        return ClosedLoop(self.reach, steps, self.tape_room)

    def open(self) -> OpenLoop:
        """Return the schedule of a loop whose length nobody knows."""
        return OpenLoop(self.reach, self.tape_room)

    def factor(self, steps: int) -> float:
        """Return the recompute factor of a loop of known length: all runs of a step, by step."""
        return self.closed(steps).evaluations() / steps


def plan_for_slots(slots: int) -> Plan:
    """Return the plan by which so many states are saved, and one step is taped at a time."""
    slots = at_least(slots, 1, "slots")
    # In units of a state: with residuals as large as all states no tape fits beside the one that is always there.
    reach = Reach(slots, 1, slots)
    return Plan(reach, reach.room + reach.tape)


def plan_for(memory: int, sizes: Sizes) -> Plan:
    """Return the plan by which saved states and tapes take no more than a memory.

    Raises
    ------
    BudgetError
        If there is no room for a state and a tape; it names the least that works.
    """
    least = sizes.state + sizes.tape
    if memory < least:
        error = BudgetError(
            f"a memory of {memory} bytes cannot work: a state takes {sizes.state} and the tape of a step {sizes.tape}, "
            f"so the least that works is {least} bytes"
        )
        error.least = least
        raise error
    return Plan(Reach(memory - sizes.tape, sizes.state, sizes.residual, taping=sizes.taping), memory)
