"""Loops of one body that run from the first step to the last in one go: nearly all loops, and their derivatives.

A `Runner` can stop, go on, and run parts of a loop. Where none of that is needed, all that is left to do for a run is
to make the arrays, and to take the results out of them. What goes where is found once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._activity import ACTIVITY
from unspool._autodiff.loop import Loop, facts_of
from unspool._autodiff.loop_drive import simple_drive
from unspool._autodiff.loop_prepared import Prepared, prepared
from unspool._engine.default import default_engine
from unspool._engine.observe import current_watchers


def run_whole(loop: Loop, arrays: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the outputs of a loop; ``None`` if it has to be run in another way, or somebody looks on."""
    if ACTIVITY.lookers or current_watchers():
        return None
    shapes = tuple([array.shape for array in arrays if type(array) is np.ndarray and not array.dtype.hasobject])
    if len(shapes) != len(arrays):
        return None  # exact numbers
    facts, key = facts_of(loop), ("whole", shapes)
    whole: Whole | None = facts.get(key)
    if whole is None and key not in facts:
        ready = prepared(loop, shapes)
        whole = facts[key] = Whole(loop, ready) if is_whole(loop, ready) else None
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

    __slots__ = (
        "_at",
        "_histories",
        "_leaving",
        "_places",
        "_reverse",
        "_stepper",
        "_sums",
        "_written",
    )

    def __init__(self, loop: Loop, ready: Prepared) -> None:
        body, types = loop.bodies[0], ready.signature
        self._stepper, self._reverse = ready.steppers[0], loop.reverse
        first, last = loop.constants, loop.constants + len(loop.entering)
        entering = {r: first + i for i, r in enumerate(loop.entering)}
        # Positions among the inputs.
        self._at = (body.constants, tuple([entering[r] for r in body.reads]), tuple([last + i for i in body.rows]))
        # Of each history the position of what it begins with, -1 for nothing, and shape and dtype of a row.
        self._histories = [(entering.get(r, -1), *types.registers[r]) for r in self._stepper.histories]
        self._written = [types.stacked[i] for i in self._stepper.written]
        self._sums = types.sums
        # A register that the body does not assign stays what it was.
        self._leaving = [
            (True, body.assigns.index(r)) if r in body.assigns else (False, entering[r]) for r in loop.leaving
        ]
        self._places = [self._place(place, i) for i, place in enumerate(ready.kept.places)]

    def _place(self, place: tuple[int, bool] | None, stack: int) -> tuple[int, int]:
        """Return which array has a stack, a history or one that is written (~), and with which row it begins."""
        if place is None:
            return ~self._stepper.written.index(stack), 0
        r, is_after = place
        return self._stepper.histories.index(r), int(is_after != self._reverse)

    def run(self, steps: int, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Return registers that leave, stacks and sums."""
        engine, stepper = default_engine(), self._stepper
        backend = engine.plans.backend
        empty = backend.empty
        carried = list(map(backend.carried, arrays))
        constants, carry, rows = [[carried[i] for i in group] for group in self._at]
        histories = []
        for at, shape, dtype in self._histories:
            history = empty((steps + 1, *shape), dtype)
            history[steps if self._reverse else 0] = 0 if at < 0 else arrays[at]
            histories.append(history)
        written = [empty((steps, *shape), dtype) for shape, dtype in self._written]
        indices = range(steps - 1, -1, -1) if self._reverse else range(steps)
        sums = [backend.new_sum(shape, dtype) for shape, dtype in self._sums]
        given = (indices, constants, carry, rows, histories, written, sums)
        try:
            _, _, assigned, _, sums = stepper.drive(exact=False)(*given)
        except Exception:
            # The simple way finds the op that fails.
            simple_drive(stepper.plan, stepper.layout)(*given)
            raise
        engine.statistics.kernel_calls += steps * stepper.plan.kernels
        found = []
        for is_made, i in self._leaving:
            value = assigned[i] if is_made else arrays[i]
            # A row of a history must not keep all of it alive.
            found.append(value if type(value) is np.ndarray and value.base is None else backend.copy(value))
        for at, start in self._places:
            found.append(written[~at] if at < 0 else histories[at][start : start + steps])
        settled = backend.settled
        return (*found, *[settled(total) for total in sums])
