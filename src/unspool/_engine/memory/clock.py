"""How long the steps of a line take: what a boundary is worth that saves some of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from unspool._engine.plan import Plan

# What a step that was not timed counts: little, but not nothing.
_INSTANT = 1e-7

# Times are worked out anew when a plan turns out to take less than this part of what it was thought to.
_NEWS = 0.9


class Clock:
    """The times at the boundaries of steps, in seconds.

    Steps of one plan count alike, by the fastest of them: how long a single one had to wait for the processor says
    nothing of what it costs to run it again. So which states of a loop are held follows from its steps, not from what
    else the machine has to do.

    Attributes
    ----------
    times : array of float
        At each boundary the time of all steps before it.
    """

    def __init__(self) -> None:
        self.times = array("d", [0.0])
        self._numbers: dict[int, int] = {}
        self._seconds: list[float] = [_INSTANT]
        self._which = array("i")

    def add(self, plans: Iterable[Plan | None]) -> None:
        """Add steps that ran by some plans; one without was not timed."""
        times, which, seconds = self.times, self._which, self._seconds
        for plan in plans:
            number = 0
            if plan is not None and plan.seconds:
                number = self._numbers.setdefault(plan.id, len(seconds))
                if number == len(seconds):
                    seconds.append(plan.seconds)
                elif plan.seconds < _NEWS * seconds[number]:
                    seconds[number] = plan.seconds
                    self._work_out()
                    times = self.times
            which.append(number)
            times.append(times[-1] + seconds[number])

    def rewind(self, steps: int) -> None:
        """Forget all but some steps."""
        del self._which[steps:], self.times[steps + 1 :]

    def _work_out(self) -> None:
        taken = np.array(self._seconds)[np.asarray(self._which)]
        self.times = array("d", [0.0])
        self.times.frombytes(np.cumsum(taken).tobytes())
