"""Running loops: the arrays they fill, and how these grow when nobody knows how many steps there will be.

The plans of the bodies are found once. Then the steps of a run of one body follow each other with nothing in between
(`drive`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._activity import ACTIVITY, BACKWARD, FORWARD, CountedRange, Work
from unspool._autodiff.loops.drive import show_steps, simple_drive
from unspool._autodiff.loops.loop import Extent, Loop
from unspool._autodiff.loops.prepared import Stepper, prepared
from unspool._autodiff.loops.whole import run_whole
from unspool._autodiff.sweeps.late import late
from unspool._engine.backends.base import Backend
from unspool._engine.costs import nbytes
from unspool._engine.default import default_engine
from unspool._engine.interpreter import collect
from unspool._engine.observe import current_watchers
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
    for node in nodes:
        if node.value is None:
            missing = [node for node in nodes if node.value is None]
            return not any(node.op is PLACEHOLDER for node in collect(missing).order)
    return True


def run_loop(loop: Loop, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of a loop: the kernel of the op ``loop``."""
    found = run_whole(loop, arrays)
    if found is not None:
        return found
    runner = run_steps(loop, arrays)
    return (*runner.leaving(), *runner.stacked(), *runner.totals())


def loop_source(loop: Loop, shapes: tuple[Any, ...]) -> str:
    """Return the code that makes the steps of a loop on inputs of some shapes: a function for each of its bodies."""
    steppers, backend = prepared(loop, shapes).steppers, default_engine().plans.backend
    return "\n\n\n".join([backend.source(stepper.plan.lowered, stepper.layout) for stepper in steppers])


def run_steps(loop: Loop, arrays: Sequence[Any]) -> Runner:
    """Run a loop to its end."""
    runner = Runner(loop, arrays)
    runner.reserve(loop.steps)
    runner.advance(loop.steps)
    return runner


def run_until(loop: Loop, watched: Fragment, arrays: Sequence[Any], most: int | None) -> Runner:
    """Run steps until a condition holds, at most a number of times, which is not 0.

    ``watched`` is the one body of the loop with the condition as its last output; ``loop.steps`` is not looked at.
    """
    runner = Runner(loop, arrays, watched)
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


class Stacks(NamedTuple):
    """Arrays with a row for each of some steps: states of registers, with a row more, and what is written."""

    rows: int
    histories: dict[int, Any]
    written: dict[int, Any]


class Runner:
    """A loop that is being run: its state, and the arrays that it fills.

    It may run a loop in ranges of steps, in the loop's order; arrays have rows for the steps of the range alone.

    Attributes
    ----------
    state : list of ndarray or None
        The registers after the last step; ``None`` for one that is absent.
    done : int
        How many steps of the range have run.
    """

    def __init__(self, loop: Loop, arrays: Sequence[Any], watched: Fragment | None = None) -> None:
        first, last = loop.constants, loop.constants + len(loop.entering)
        self.loop = loop
        shapes = tuple([array.shape if type(array) is np.ndarray else np.shape(array) for array in arrays])
        self._ready = ready = prepared(loop, shapes, watched)
        self._backend: Backend = default_engine().plans.backend
        self._constants = [self._backend.invariant(array) for array in arrays[:first]]
        self._rows: Sequence[Any] = arrays[last:]
        self.state: list[Any] = [None] * len(ready.signature.registers)
        for r, value in zip(loop.entering, self._entering(arrays[first:last]), strict=True):
            self.state[r] = value
        self._before = self.state
        self._exact = _OBJECT in [getattr(array, "dtype", None) for array in arrays]
        # By position of a register and of a stack.
        self._histories: dict[int, Any] = {}
        self._written: dict[int, Any] = {}
        self._arrays: dict[Stepper, Any] = {}
        self._first = self._reserved = self._row = 0
        self._stacks: Stacks | None = None
        self._own: Stacks | None = None
        self._sums = [self._backend.new_sum(shape, self._dtype(dtype)) for shape, dtype in ready.signature.sums]
        self.done = 0

    def _dtype(self, dtype: Any) -> Any:
        return _OBJECT if self._exact else dtype

    def row_bytes(self) -> int:
        """Return how many bytes a step writes."""
        kept, types = self._ready.kept, self._ready.signature
        rows = [*[types.registers[r] for r in kept.histories], *[types.stacked[i] for i in kept.written]]
        return sum(nbytes(shape, dtype) for shape, dtype in rows)

    def state_bytes(self) -> int:
        """Return how many bytes the registers take that steps read or assign."""
        kinds = self._ready.signature.registers
        return sum(nbytes(*kinds[r]) for r in {r for body in self.loop.bodies for r in body.touched})

    @property
    def stacks_states(self) -> bool:
        """Whether all that a step writes is what it starts from."""
        return all(place is not None and not place[1] for place in self._ready.kept.places)

    def reserve(self, steps: int) -> None:
        """Make room for a number of steps; what was written stays."""
        self._arrays = {}
        if self.done:
            # In place: nobody has seen these arrays yet, and no view of them stays alive. Such a loop has one body.
            self._before = self.previous
            for stack in (*self._histories.values(), *self._written.values()):
                extra = len(stack) - self._reserved
                stack.resize((steps + extra, *stack.shape[1:]), refcheck=False)
            self._reserved = steps
            return
        self._reserved = steps
        kept, types = self._ready.kept, self._ready.signature
        self._histories = {r: self._empty(types.registers[r], steps + 1) for r in kept.histories}
        self._written = {i: self._empty(types.stacked[i], self._count(i)) for i in kept.written}
        self._begin()

    def _empty(self, kind: tuple[Any, Any], rows: int) -> Any:
        return self._backend.empty((rows, *kind[0]), self._dtype(kind[1]))

    def _entering(self, arrays: Sequence[Any]) -> list[Any]:
        """Return a state as a step takes it."""
        carried = self._backend.carried
        return [None if array is None else carried(array) for array in arrays]

    def copied(self, arrays: Sequence[Any]) -> list[Any]:
        """Return arrays of their own: copies of rows, and of numbers."""
        return [
            array if array is None or (type(array) is np.ndarray and array.base is None) else self._backend.copy(array)
            for array in arrays
        ]

    def _extent(self, declared: Extent | None) -> Extent:
        """Return the steps of the range that a stack has rows for."""
        end = self._first + self._reserved
        if declared is None:
            return self._first, end
        return max(declared[0], self._first), min(declared[1], end)

    def _count(self, stack: int) -> int:
        start, stop = self._extent(self.loop.stacked[stack])
        return max(0, stop - start)

    def restart(
        self,
        state: Sequence[Any],
        start: int,
        stop: int,
        rows: Sequence[Any] = (),
        at: tuple[Stacks, int] | None = None,
    ) -> None:
        """Begin a range of steps with another state and other rows; sums go on.

        Rows are those of the range. What it makes goes into arrays that are there already, or into stacks that are
        given, from a row on.
        """
        self.state = self._entering(state)
        self._rows = rows
        self.done = 0
        if at is None:
            steps = stop - start
            if self._own is None or steps > self._own.rows:
                self._own = self.new_stacks(steps)
            at = self._own, 0
        self.place(start, stop, *at)
        self._begin()

    def new_stacks(self, rows: int, new: Callable[[tuple[int, ...], Any], Any] | None = None) -> Stacks:
        """Return arrays with room for so many steps, made by a function of shape and dtype, or by the backend."""
        new = new or self._backend.empty

        def stack(kind: tuple[Any, Any], rows: int) -> Any:
            return new((rows, *kind[0]), self._dtype(kind[1]))

        kept, types = self._ready.kept, self._ready.signature
        return Stacks(
            rows,
            {r: stack(types.registers[r], rows + 1) for r in kept.histories},
            {i: stack(types.stacked[i], rows) for i in kept.written},
        )

    def place(self, start: int, stop: int, stacks: Stacks, row: int) -> None:
        """Let steps of a range have rows of stacks, from one row on."""
        self._arrays, self._first = {}, start
        if (stop - start, row) == (self._reserved, self._row) and stacks is self._stacks and self._ready.kept.is_even:
            return
        self._reserved, self._row, self._stacks = stop - start, row, stacks
        self._histories = {r: history[row : row + self._reserved + 1] for r, history in stacks.histories.items()}
        self._written = {}
        for i, stack in stacks.written.items():
            first, last = self._extent(self.loop.stacked[i])
            self._written[i] = stack[row + first - start : row + max(first, last) - start]

    def release(self) -> None:
        """Release the state and the rows, for a runner that waits to be started again."""
        self.state = self._before = self._rows = []
        self._arrays = {}

    def release_stacks(self) -> None:
        """Release the state and stacks that were given."""
        self.release()
        self._stacks, self._histories, self._written = None, {}, {}

    def _begin(self) -> None:
        """Put the state into the histories, and zeros where no step will write."""
        for r, history in self._histories.items():
            history[self._reserved if self.loop.reverse else 0] = 0 if self.state[r] is None else self.state[r]
        for i in self._ready.kept.partial:
            self._written[i][...] = 0

    def advance(self, steps: int) -> bool:
        """Run a number of steps; tell whether the condition held, which ends it early."""
        if self.loop.reverse:
            stop = self._first + self._reserved - self.done
            start = stop - steps
        else:
            start = self._first + self.done
            stop = start + steps
        if self.done:
            self.state = self._entering(self.state)
        stopped = False
        if self.loop.which:
            for number, begin, end in self.loop.runs(start, stop):
                stopped = self._run(self._ready.steppers[number], begin, end)
        else:
            stopped = self._run(self._ready.steppers[0], start, stop)
        # The state may be rows of the stacks, which are about to be resized or written again.
        self.state = self.copied(self.state)
        return stopped

    def _run(self, stepper: Stepper, start: int, stop: int) -> bool:
        """Make steps that have one body; tell whether the condition held."""
        body, state = stepper.body, self.state
        if body.is_idle:
            self.done += stop - start
            return False
        base, constants, rows, histories, written = self._arrays.get(stepper) or self._arrays_for(stepper)
        indices = range(start - base, stop - base)
        if self.loop.reverse:
            indices = indices[::-1]
        carry, sums = [state[r] for r in body.reads], [self._sums[i] for i in body.sums]
        given = (indices, constants, carry, rows, histories, written, sums)
        for watcher in current_watchers():
            show_steps(watcher, stepper.plan, stepper.layout, base, indices, constants, carry, rows)
        try:
            last, stopped, assigned, before, sums = self._drive(stepper, given)
        except Exception:
            # The simple way finds the op that fails; the state is still what it was when this run began.
            simple_drive(stepper.plan, stepper.layout, base)(*given)
            raise
        if stepper.has_all:
            self._before, self.state = before, assigned
        else:
            self._before = list(state)
            for r, value in zip(body.reads, before, strict=True):
                self._before[r] = value
            for r, value in zip(body.assigns, assigned, strict=True):
                state[r] = value
        for i, total in zip(body.sums, sums, strict=True):
            self._sums[i] = total
        made = stop - start if self.loop.reverse else last + 1 - indices[0]
        self.done += made
        default_engine().statistics.kernel_calls += made * stepper.plan.kernels
        return stopped

    def _drive(self, stepper: Stepper, given: tuple[Any, ...]) -> tuple[int, bool, list[Any], list[Any], list[Any]]:
        """Make steps, so that they can be counted if somebody looks on."""
        drive = stepper.drive(exact=self._exact)
        if not ACTIVITY.lookers:
            return drive(*given)
        loop, steps = self.loop, CountedRange(given[0], np.zeros(1, np.int64))
        before = self.done + (loop.steps - self._first - self._reserved if loop.reverse else self._first)
        work = Work(BACKWARD if loop.reverse else FORWARD, loop.steps or None, lambda: before + steps.done())
        with ACTIVITY.doing(work):
            return drive(steps, *given[1:])

    def _arrays_for(self, stepper: Stepper) -> tuple[int, list[Any], list[Any], list[Any], list[Any]]:
        """Return what a body reads and writes in the range, from the first step on that all its stacks have rows for.

        That step, constants, rows, histories and stacks that are written.
        """
        body, base = stepper.body, self._first
        found = (
            [self._constants[i] for i in body.constants],
            [self._rows[i] for i in body.rows],
            [self._histories[r] for r in stepper.histories],
            [self._written[i] for i in stepper.written],
        )
        if not stepper.is_even:
            loop, first = self.loop, self._first
            rows = [self._extent(loop.rows[i])[0] for i in body.rows]
            written = [self._extent(loop.stacked[i])[0] for i in stepper.written]
            base = max(first, *rows, *written)
            starts = ((), rows, [first] * len(stepper.histories), written)
            for stacks, group in zip(found, starts, strict=True):
                stacks[: len(group)] = [stack[base - at :] for stack, at in zip(stacks, group, strict=False)]
        made = self._arrays[stepper] = (base, *found)
        return made

    @property
    def previous(self) -> list[Any]:
        """The registers before the last step."""
        return self.copied(self._before)

    def leaving(self) -> list[Any]:
        """Return the registers that are outputs."""
        return [self.state[r] for r in self.loop.leaving]

    def totals(self) -> list[Any]:
        """Return the sums over all steps."""
        return [self._backend.settled(total) for total in self._sums]

    def stacked(self) -> list[Any]:
        """Return the stacked outputs."""
        found = []
        for i, register in enumerate(self._ready.kept.places):
            if register is None:
                found.append(self._written[i])
                continue
            r, is_after = register
            start, stop = self._extent(self.loop.stacked[i])
            shift = (is_after != self.loop.reverse) - self._first
            found.append(self._histories[r][start + shift : max(start, stop) + shift])
        return found


late.provide(run_loop=run_loop)
