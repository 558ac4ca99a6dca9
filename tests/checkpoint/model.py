"""A machine that carries out schedules on nothing and refuses every action that would not work on real states.

It holds the number of the current state, the numbers of the saved ones, and which steps are still to be reversed. The
rules are those that trusted schedule libraries test: a run starts from the current state and never passes what is
still to be reversed; only a saved state is restored; a slot is freed once and never overfilled; each step is reversed
once, from the last to the first, with its own state current or just run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache

from unspool.checkpoint.actions import Action, Advance, Free, Restore, Reverse, Save


class Machine:
    """Carries out actions, checks each, and counts.

    ``steps`` is None while a loop runs whose length is not known; `end` tells it.
    """

    def __init__(self, slots: int, steps: int | None) -> None:
        self.slots = slots
        self.left = steps
        self.current: int | None = 0
        self.just_run: int | None = None
        self.saved: set[int] = set()
        self.advanced: Counter[int] = Counter()
        self.evaluations = 0
        self.actions: Counter[type[Action]] = Counter()

    def run(self, actions: Iterable[Action]) -> Machine:
        """Carry out actions; returns the machine."""
        for action in actions:
            self.actions[type(action)] += 1
            match action:
                case Advance(start, stop):
                    self._advance(start, stop)
                case Save(step):
                    assert self.current == step
                    assert step not in self.saved
                    self.saved.add(step)
                case Restore(step):
                    assert step in self.saved
                    assert self.left is not None and step < self.left
                    self.current, self.just_run = step, None
                case Free(step):
                    self.saved.remove(step)
                case Reverse(step):
                    self._reverse(step)
            assert len(self.saved) <= self.slots
        return self

    def _advance(self, start: int, stop: int) -> None:
        assert self.current == start < stop
        # State left - 1 is the last that is of use: step left - 1 is run by Reverse.
        assert self.left is None or stop < self.left
        for step in range(start, stop):
            self.advanced[step] += 1
        self.evaluations += stop - start
        self.current, self.just_run = stop, stop - 1

    def _reverse(self, step: int) -> None:
        assert self.left is not None and step == self.left - 1
        if self.just_run != step:
            assert self.current == step
            self.evaluations += 1
        self.left = step
        self.current = self.just_run = None

    def end(self) -> Machine:
        """The loop has ended at the current state; what reverses its last step is still there."""
        assert self.left is None
        self.left = self.current
        return self

    @property
    def done(self) -> bool:
        """Whether all steps were reversed and all slots are free."""
        return self.left == 0 and not self.saved


@cache
def least_advances(steps: int, slots: int) -> int:
    """The recursion that the closed form solves, tried out: the first advance may end anywhere."""
    if steps == 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    return min(k + least_advances(k, slots) + least_advances(steps - k, slots - 1) for k in range(1, steps))


@cache
def least_saves(steps: int, slots: int) -> int:
    """The fewest states saved, beside the first, by any schedule with the least advances."""
    if steps == 1 or slots == 1:
        return 0
    return min(
        least_saves(k, slots) + least_saves(steps - k, slots - 1) + (steps - k > 1)
        for k in range(1, steps)
        if k + least_advances(k, slots) + least_advances(steps - k, slots - 1) == least_advances(steps, slots)
    )
