"""Loops of one body that run from the first step to the last in one go: nearly all loops, and their derivatives.

A `Runner` can stop, go on, and run parts of a loop. Where none of that is needed, all that is left to do for a run is
to make the arrays, and to take the results out of them. What goes where is found once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._activity import ACTIVITY, BACKWARD, FORWARD, CountedRange, Work
from unspool._autodiff.loops.drive import simple_drive
from unspool._autodiff.loops.loop import Loop, facts_of
from unspool._autodiff.loops.prepared import Prepared, prepared
from unspool._engine.backends.whole_loop import Ends
from unspool._engine.default import default_engine
from unspool._engine.observe import current_watchers


def run_whole(loop: Loop, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the outputs of a loop; ``None`` if it has to be run in another way."""
    if current_watchers():
        return None
    facts = facts_of(loop)
    last: Whole | None = facts.get("whole")
    # Who looks on counts the steps, which nobody can of a loop that runs at once.
    found = None if last is None or ACTIVITY.lookers else last.run_at_once(loop.steps, arrays)
    if found is not None:
        return found
    shapes = tuple([array.shape for array in arrays if type(array) is np.ndarray and not array.dtype.hasobject])
    if len(shapes) != len(arrays):
        return None  # exact numbers
    key = ("whole", shapes)
    whole: Whole | None = facts.get(key)
    if whole is None and key not in facts:
        ready = prepared(loop, shapes)
        whole = facts[key] = Whole(loop, ready) if is_whole(loop, ready) else None
    facts["whole"] = whole
    return None if whole is None else whole.run(loop.steps, arrays)


def is_whole(loop: Loop, ready: Prepared) -> bool:
    """Whether a loop has one body that does something, and rows for each step in all its stacks."""
    if len(loop.bodies) != 1 or loop.which or not ready.steppers[0].is_even or not ready.kept.is_even:
        return False
    body = loop.bodies[0]
    return not body.is_idle and set(body.reads) <= set(loop.entering)


class Whole:
    """One body with where its inputs come from and where its results go.

    Parameters
    ----------
    loop : Loop
        Of any number of steps.
    ready : Prepared
    """

    __slots__ = ("_at_once", "_ends", "_reverse", "_statistics", "_stepper")

    def __init__(self, loop: Loop, ready: Prepared) -> None:
        body, types = loop.bodies[0], ready.signature
        self._stepper, self._reverse = ready.steppers[0], loop.reverse
        self._statistics = default_engine().statistics
        first, last = loop.constants, loop.constants + len(loop.entering)
        entering = {r: first + i for i, r in enumerate(loop.entering)}
        self._ends = Ends(
            constants=body.constants,
            carry=tuple([entering[r] for r in body.reads]),
            rows=tuple([last + i for i in body.rows]),
            histories=tuple([(entering.get(r, -1), *types.registers[r]) for r in self._stepper.histories]),
            written=tuple([types.stacked[i] for i in self._stepper.written]),
            sums=tuple(types.sums),
            # A register that the body does not assign stays what it was.
            leaving=tuple([body.assigns.index(r) if r in body.assigns else ~entering[r] for r in loop.leaving]),
            places=tuple([self._place(place, i) for i, place in enumerate(ready.kept.places)]),
        )
        backend = default_engine().plans.backend
        self._at_once = backend.compile_whole(self._stepper.drive(exact=False), self._ends)

    def _place(self, place: tuple[int, bool] | None, stack: int) -> tuple[int, int]:
        """Return which array has a stack, a history or one that is written (~), and with which row it begins."""
        if place is None:
            return ~self._stepper.written.index(stack), 0
        r, is_after = place
        return self._stepper.histories.index(r), int(is_after != self._reverse)

    def run_at_once(self, steps: int, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return registers that leave, stacks and sums; ``None`` if the backend does not do it for such arrays."""
        if self._at_once is None:
            return None
        try:
            found = self._at_once(steps, arrays)
        except Exception:
            self._fail(self._given(steps, arrays))
            raise
        if found is not None:
            self._statistics.kernel_calls += steps * self._stepper.plan.kernels
        return found

    def run(self, steps: int, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Return registers that leave, stacks and sums."""
        given = self._given(steps, arrays)
        histories, written = given[-3:-1]
        try:
            _, _, assigned, _, sums = self._drive(*given)
        except Exception:
            self._fail(given)
            raise
        self._statistics.kernel_calls += steps * self._stepper.plan.kernels
        backend, found = default_engine().plans.backend, []
        for i in self._ends.leaving:
            value = arrays[~i] if i < 0 else assigned[i]
            # A row of a history must not keep all of it alive.
            found.append(value if type(value) is np.ndarray and value.base is None else backend.copy(value))
        for at, start in self._ends.places:
            found.append(written[~at] if at < 0 else histories[at][start : start + steps])
        settled = backend.settled
        return (*found, *[settled(total) for total in sums])

    def _drive(self, indices: range, *given: Any) -> tuple[Any, ...]:
        """Make the steps, so that they can be counted if somebody looks on."""
        drive = self._stepper.drive(exact=False)
        if not ACTIVITY.lookers:
            return drive(indices, *given)
        counted = CountedRange(indices, np.zeros(1, np.int64))
        with ACTIVITY.doing(Work(BACKWARD if self._reverse else FORWARD, len(indices) or None, counted.done)):
            return drive(counted, *given)

    def _given(self, steps: int, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Return what makes the steps is called with."""
        backend, ends = default_engine().plans.backend, self._ends
        empty = backend.empty
        carried = list(map(backend.carried, arrays))
        constants, carry, rows = [[carried[i] for i in group] for group in (ends.constants, ends.carry, ends.rows)]
        histories = []
        for at, shape, dtype in ends.histories:
            history = empty((steps + 1, *shape), dtype)
            history[steps if self._reverse else 0] = 0 if at < 0 else arrays[at]
            histories.append(history)
        written = [empty((steps, *shape), dtype) for shape, dtype in ends.written]
        indices = range(steps - 1, -1, -1) if self._reverse else range(steps)
        sums = [backend.new_sum(shape, dtype) for shape, dtype in ends.sums]
        return indices, constants, carry, rows, histories, written, sums

    def _fail(self, given: tuple[Any, ...]) -> None:
        """Make the steps in the simple way, which finds the op that fails."""
        simple_drive(self._stepper.plan, self._stepper.layout)(*given)
