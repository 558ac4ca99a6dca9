"""Bytes: what a plan takes at its peak, the least budget that works, and the plan for a budget.

The peak of a plan is the most that is alive at once in any run or reversal of a step. With K steps, states of s bytes,
residuals of r, a carried cotangent of a, and w the workspace of a step, forward and backward:

    keep everything     K·(s + r) + max(s + w_forward, 2·a + w_backward)
    room for states     room + max(2·s + a + w_forward,        a step runs in the backward pass: in, out, the cotangent
                                   s + r + a + w_forward,      it is taped for its reversal
                                   s + r + 2·a + w_backward)   it is reversed: in, residuals, two cotangents

and *fixed* on top. One state of room is the least that a schedule works with; loops of one or two steps take less, for
there the state that a step starts from is the start of the loop, or nothing runs again. The least budget is the smaller
of that and of keeping everything, so it is never more than keeping everything takes. It follows from sizes and from the
number of steps alone: nothing that ran before enters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unspool.checkpoint._counting import at_least
from unspool.checkpoint._schedule.actions import Rows
from unspool.checkpoint._schedule.loops import ClosedLoop, OpenLoop
from unspool.checkpoint._schedule.reach import Reach
from unspool.errors import BudgetError

__all__ = ["Plan", "Sizes", "least_budget", "plan_for"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The bytes of a loop's step, which follow from its program and the sizes of its tensors.

    Attributes
    ----------
    state : int
        What is carried over a boundary between steps.
    residual : int
        What a step keeps for its reversal beside the state it starts from.
    cotangent : int
        The cotangent of the state, as far as it is active; no more than the state.
    forward, backward : int
        The workspace of a step, forward and backward, beside what it reads and makes.
    fixed : int
        What is held all the time: sums, stacked outputs, values that are pinned, records.
    given : bool
        Whether the start is a leaf of the user, which counts nothing.
    """

    state: int
    residual: int
    cotangent: int = 0
    forward: int = 0
    backward: int = 0
    fixed: int = 0
    given: bool = False

    @property
    def apart(self) -> int:
        """What is held beside states, tapes and workspace; a start that is given is among the states and is free."""
        return self.fixed - (self.state if self.given else 0)

    @property
    def work(self) -> int:
        """What running, taping and reversing one step takes beside the room."""
        s, r, a = self.state, self.residual, self.cotangent
        return max(s + max(s, r) + a + self.forward, s + r + 2 * a + self.backward)

    @property
    def taping(self) -> int:
        """What running one step forward, or reversing it, takes beside saved states and its own and other tapes."""
        return max(self.state + self.forward, 2 * self.cotangent + self.backward)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a loop is run and reversed.

    Attributes
    ----------
    sizes : Sizes
        The bytes of its step.
    steps : int
        Its length; of an open loop that which its steps so far suggest.
    room : int
        The bytes for saved states and tapes in the backward pass.
    tape_room : int
        The same while the loop runs forward, and while what it taped then is reversed: nothing runs again by then.
    """

    sizes: Sizes
    steps: int
    room: int
    tape_room: int

    @property
    def keeps_everything(self) -> bool:
        """Whether all steps stay taped and nothing runs again."""
        return self.tape_room >= self.steps * (self.sizes.state + self.sizes.residual)

    @property
    def peak(self) -> int:
        """The most bytes at once that the plan may take."""
        sizes = self.sizes
        s, r, a = sizes.state, sizes.residual, sizes.cotangent
        if self.keeps_everything:
            return sizes.apart + self.steps * (s + r) + sizes.taping
        taped = self.tape_room + sizes.taping if self.tape_room >= s + r else 0
        if self.steps > 2:
            again = self.room + sizes.work
        else:
            # Beside the start there are: the state after it, of one step; of two, that and the result as well.
            again = max(
                (1 + self.steps) * s + sizes.forward,
                self.steps * s + r + max(a + sizes.forward, 2 * a + sizes.backward),
            )
        return sizes.apart + max(taped, again)

    @property
    def reach(self) -> Reach:
        """What its room can do."""
        return Reach(self.room, self.sizes.state, self.sizes.residual)

    def closed(self) -> ClosedLoop:
        """Return the schedule of the loop, if its length is known."""
        return ClosedLoop(self.reach, self.steps, self.tape_room)

    def open(self) -> OpenLoop:
        """Return the schedule of the loop, if nobody knows its length."""
        return OpenLoop(self.reach, self.tape_room)

    def rows(self) -> Iterator[Rows]:
        """Yield chunks of rows that run and reverse the loop, its length being known."""
        loop = self.closed()
        yield from loop.forward()
        yield from loop.backward()


def keep_everything(sizes: Sizes, steps: int) -> Plan:
    """Return the plan by which nothing runs again."""
    tape = sizes.state + sizes.residual
    return Plan(sizes, steps, max(sizes.state, (steps - 1) * tape), steps * tape)


def one_state(sizes: Sizes, steps: int) -> Plan:
    """Return the plan that holds the start alone, and runs every step from there."""
    return Plan(sizes, steps, sizes.state, 0)


def least_budget(sizes: Sizes, steps: int) -> int:
    """Return the smallest budget by which a loop can be run and reversed, in bytes."""
    steps = at_least(steps, 1, "steps")
    return min(plan.peak for plan in (keep_everything(sizes, steps), one_state(sizes, steps)))


def plan_for(sizes: Sizes, steps: int, budget: int) -> Plan:
    """Return the plan for a loop within a budget.

    Parameters
    ----------
    sizes : Sizes
        The bytes of its step.
    steps : int
        Its length; of an open loop at least that which it has so far.
    budget : int
        The most bytes at once.

    Returns
    -------
    Plan
        Its peak is no more than the budget.

    Raises
    ------
    BudgetError
        If no plan is within the budget; it names the least that works.
    """
    everything = keep_everything(sizes, at_least(steps, 1, "steps"))
    if everything.peak <= budget:
        return everything
    least = least_budget(sizes, steps)
    if budget < least:
        error = BudgetError(
            f"a loop of {steps} steps with states of {sizes.state} bytes and residuals of {sizes.residual} bytes a step"
            f" needs at least {least} bytes; the budget is {budget}"
        )
        error.least = least
        raise error
    inside = budget - sizes.apart
    return Plan(sizes, steps, max(sizes.state, inside - sizes.work), max(0, inside - sizes.taping))
