"""Running loops: the arrays they fill, and how these grow when nobody knows how many steps there will be.

The plan of the body is found once. Then steps follow each other with nothing in between (`loop_drive`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._autodiff.loop import Loop
from unspool._autodiff.loop_drive import generated_drive, simple_drive
from unspool._autodiff.loop_source import Layout
from unspool._engine.default import default_engine
from unspool._engine.interpreter import collect
from unspool._engine.planning import nbytes
from unspool._engine.running_sums import RunningSum, is_worth, settled
from unspool._fragments.fragment import Fragment
from unspool._graph import Node
from unspool._ops.leaf import PLACEHOLDER

# How many rows a record of unknown length starts with, and how many bytes at most; when it is full, it is doubled.
_FIRST_ROWS = 64
_FIRST_BYTES = 1 << 26

# The tape computes with exact numbers, which are Python objects.
_OBJECT = np.dtype(object)


def can_be_evaluated(nodes: Sequence[Node]) -> bool:
    """Whether nodes have values or can get them: whether no placeholder stands in the way."""
    missing = [node for node in nodes if node.value is None]
    return not missing or not any(node.op is PLACEHOLDER for node in collect(missing).order)


def run_loop(loop: Loop, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of a loop: the kernel of the op ``loop``."""
    runner = run_steps(loop, arrays)
    return (*runner.carry, *runner.stacked(), *runner.totals())


def run_steps(loop: Loop, arrays: Sequence[Any]) -> Runner:
    """Run a loop to its end."""
    runner = Runner(loop, loop.body, arrays)
    runner.reserve(loop.steps)
    runner.advance(loop.steps)
    return runner


def run_until(loop: Loop, watched: Fragment, arrays: Sequence[Any], most: int | None) -> Runner:
    """Run steps until a condition holds, at most a number of times, which is not 0.

    ``watched`` is the body of the loop with the condition as its last output; ``loop.steps`` is not looked at.
    """
    runner = Runner(loop, watched, arrays)
    advance_until(runner, most)
    return runner


def advance_until(runner: Runner, most: int | None) -> bool:
    """Make steps until the condition holds, at most a number of times, with room that grows; tell whether it held."""
    rows = max(1, min(_FIRST_ROWS, _FIRST_BYTES // max(1, runner.row_bytes())))
    while True:
        rows = rows if most is None else min(rows, most)
        runner.reserve(rows)
        stopped = runner.advance(rows - runner.done)
        if stopped or rows == most:
            runner.reserve(runner.done)
            return stopped
        rows *= 2


class Runner:
    """A loop that is being run: its state, and the arrays that it fills.

    Attributes
    ----------
    carry, previous : list of ndarray
        The state after and before the last step.
    done : int
        How many steps have run.
    """

    def __init__(self, loop: Loop, body: Fragment, arrays: Sequence[Any]) -> None:
        first, last = loop.constants, loop.constants + loop.carries
        entering = _entering(arrays)
        self._constants, self._rows = entering[:first], entering[last:]
        self.carry = self.previous = entering[first:last]
        shapes = tuple([np.shape(array) if i < last else np.shape(array)[1:] for i, array in enumerate(arrays)])
        self._plan = plan = default_engine().plans.plan_for(body, shapes)
        self._places, histories, written = _places(loop, body.outputs)
        stacked = loop.carries + loop.stacked
        sums = tuple(range(stacked, stacked + loop.sums))
        watched = body is not loop.body
        self._layout = Layout(first, loop.carries, loop.rows, histories, written, sums, watched, loop.reverse)
        self._exact = any(getattr(array, "dtype", None) == _OBJECT for array in arrays)
        self._dtypes = [_OBJECT] * len(plan.output_dtypes) if self._exact else plan.output_dtypes
        self._histories: list[Any] = []
        self._written: list[Any] = []
        self._whole: tuple[list[Any], list[Any]] = ([], [])
        self._reserved = self._room = 0
        self._sums = [_nothing(plan.output_shapes[j], self._dtypes[j]) for j in sums]
        self.done = 0

    def row_bytes(self) -> int:
        """Return how many bytes a step writes."""
        kept = (*self._layout.histories, *self._layout.written)
        return sum(nbytes(self._plan.output_shapes[j], self._plan.output_dtypes[j]) for j in kept)

    def reserve(self, steps: int) -> None:
        """Make room for a number of steps; what was written stays."""
        shapes, layout = self._plan.output_shapes, self._layout
        if self.done:
            # In place: nobody has seen these arrays yet, and no view of them is alive.
            for stack in (*self._histories, *self._written):
                extra = len(stack) - self._reserved
                stack.resize((steps + extra, *stack.shape[1:]), refcheck=False)
        else:
            self._histories = [np.empty((steps + 1, *shapes[i]), self._dtypes[i]) for i in layout.histories]
            self._written = [np.empty((steps, *shapes[j]), self._dtypes[j]) for j in layout.written]
            self._begin_histories(steps)
        self._reserved = steps

    def restart(self, carry: Sequence[Any], steps: int, rows: Sequence[Any] = ()) -> None:
        """Begin a stretch of steps with another state and other rows, in the arrays that are there; sums go on."""
        self.carry = self.previous = _entering(carry)
        self._rows = list(rows)
        self.done = 0
        if steps > self._room:
            self.reserve(steps)
            self._room, self._whole = steps, (self._histories, self._written)
            return
        self._histories = [history[: steps + 1] for history in self._whole[0]]
        self._written = [stack[:steps] for stack in self._whole[1]]
        self._begin_histories(steps)

    def release(self) -> None:
        """Let go of the state and the rows, for a runner that waits to be started again."""
        self.carry = self.previous = self._rows = []

    def _begin_histories(self, steps: int) -> None:
        for history, i in zip(self._histories, self._layout.histories, strict=True):
            history[steps if self._layout.reverse else 0] = self.carry[i]

    def advance(self, steps: int) -> bool:
        """Run a number of steps; tell whether the condition held, which ends it early."""
        indices: Sequence[int] = range(self.done, self.done + steps)
        if self._layout.reverse:
            indices = indices[::-1]
        make = simple_drive if self._exact else generated_drive
        drive = make(self._plan, self._layout)
        filled = (self._histories, self._written, self._sums)
        try:
            last, stopped, carry, previous, sums = drive(indices, self._constants, self.carry, self._rows, *filled)
        except Exception:
            # The simple way finds the op that fails; the carry is still what it was when this stretch began.
            simple_drive(self._plan, self._layout)(indices, self._constants, self.carry, self._rows, *filled)
            raise
        # The state may be rows of the stacks, which are about to be resized.
        self.carry, self.previous = [np.array(x) for x in carry], [np.array(x) for x in previous]
        self._sums = sums
        done = steps if self._layout.reverse else last + 1 - self.done
        self.done += done
        default_engine().statistics.kernel_calls += done * self._plan.kernels
        return stopped

    def totals(self) -> list[Any]:
        """Return the sums over all steps."""
        return [np.asarray(settled(total)) for total in self._sums]

    def stacked(self) -> list[Any]:
        """Return the stacked outputs."""
        found = []
        for side, position in self._places:
            if side == "written":
                found.append(self._written[position])
            else:
                history = self._histories[position]
                found.append(history[1:] if (side == "after") != self._layout.reverse else history[:-1])
        return found


def _nothing(shape: Any, dtype: Any) -> Any:
    """Return what a sum begins with."""
    zeros = np.zeros(shape, dtype)
    return RunningSum(zeros) if is_worth(shape, dtype) else zeros[()]


def _entering(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays as a step takes them: where there are no axes, as numbers of NumPy's, which cost less."""
    return [array[()] if np.ndim(array) == 0 else array for array in arrays]


def _places(loop: Loop, outputs: Sequence[int]) -> tuple[list[tuple[str, int]], tuple[int, ...], tuple[int, ...]]:
    """Tell where each stacked output is found; which carried values need a history, and which outputs are written.

    What a step starts from is in the history of a carried value, and so is what it ends with, one row further.
    """
    before = {loop.constants + i: i for i in range(loop.carries)}
    rows = range(loop.carries, loop.carries + loop.stacked)
    histories = {carry: i for i, carry in enumerate({before[outputs[j]]: None for j in rows if outputs[j] in before})}
    after = {outputs[i]: i for i in histories}
    written: dict[int, int] = {}
    places: list[tuple[str, int]] = []
    for j in rows:
        if outputs[j] in before:
            places.append(("before", histories[before[outputs[j]]]))
        elif outputs[j] in after:
            places.append(("after", histories[after[outputs[j]]]))
        else:
            places.append(("written", written.setdefault(j, len(written))))
    return places, tuple(histories), tuple(written)
