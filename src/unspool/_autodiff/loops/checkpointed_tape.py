"""Rows that steps of a loop write: the tape, which is a ring of records, and outputs, of which all stay.

The *record* of a step is what its derivative reads: the state that it starts from, and residuals. How many steps stay
taped is decided elsewhere. The ring has as many rows as that, so it grows and shrinks in place, row for row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from unspool._autodiff.loops.run import Runner, Stacks
from unspool._engine.backends.resizable import ResizableArray

# Steps that are reversed at once; more if their records are small.
_CHUNK = 256
_CHUNK_BYTES = 1 << 20

# How many bytes are moved at once when a ring is made larger or smaller.
_FEW_BYTES = 1 << 16

State = list[Any]
Arrays = list[Any]


class Tape:
    """The records of neighbouring steps, in stacks that are used as a ring.

    Attributes
    ----------
    begin, end : int
        The steps that are taped.
    runner : Runner or None
        Runs the loop with its record; a tape that waits for a backward pass has none.
    """

    __slots__ = ("_origin", "_resizable", "_spare", "_stacks", "_tape_bytes", "begin", "end", "runner")

    def __init__(self, runner: Runner) -> None:
        self.runner: Runner | None = runner
        self.begin = self.end = 0
        self._tape_bytes = max(1, runner.row_bytes())
        self._stacks: Stacks | None = None
        # The same, as what gets another size.
        self._resizable: Stacks | None = None
        # A step that has row 0.
        self._origin = 0
        # The step that left the ring last with the state that it starts from, which may still have to be saved.
        self._spare: tuple[int, State] | None = None

    def clear(self, at: int) -> None:
        """Evict all; step ``at`` comes next."""
        self.begin = self.end = self._origin = at
        self._spare = None

    def drop(self) -> None:
        """Free the stacks."""
        self.recorder.release_stacks()
        self._stacks = self._resizable = None

    def leave(self) -> None:
        """Hold nothing but the stacks: what runs the loop has the arrays that it runs on."""
        self.runner = self._spare = None

    def run(self, state: State, stop: int, keep: int, *, first: int | None = None, spared: int = 0) -> bool:
        """Run as many of the steps up to ``stop`` as have rows one after another; tell whether the condition held.

        The newest ``keep`` steps stay. A ring that is to grow begins with ``first`` rows. The last ``spared`` steps are
        not run: what is read of their records is what they start from.
        """
        runner, stacks = self.recorder, self._with_room(state, stop, keep, first)
        row, free = self._row(self.end), keep if stacks.rows == keep else stacks.rows - (self.end - self.begin)
        last = min(stop, self.end + free, self.end + stacks.rows - row)
        oldest = last - stacks.rows
        self._spare = None
        if oldest >= self.begin and row + last - self.end < stacks.rows:
            # The state that comes out gets the row of what the oldest step starts from.
            self._spare = oldest, self.state(oldest)
        runner.restart(state, self.end, last, at=(stacks, row))
        count = last - self.end - spared
        stopped = count > 0 and runner.advance(count)
        done = runner.done + spared
        self.end += done
        self.begin = max(self.begin, self.end - stacks.rows + (row + done < stacks.rows))
        return stopped

    def _with_room(self, state: State, stop: int, keep: int, first: int | None) -> Stacks:
        """Return stacks with a row for the next step at least."""
        stacks, taped = self._stacks, self.end - self.begin
        if not taped or stacks is None:
            rows = min(keep, stop - self.end if first is None else first)
            self._origin = self.end
            if stacks is None or stacks.rows != rows:
                stacks = None
                self.drop()
                self._resizable = self.recorder.new_stacks(rows, ResizableArray)
                self._stacks = stacks = _arrays(self._resizable)
        elif keep < stacks.rows or (stacks.rows < keep and taped >= stacks.rows - 1):
            rows = min(keep, 2 * stacks.rows)
            del stacks
            self._stacks = stacks = self._resized(state, rows)
        return stacks

    def _resized(self, state: State, rows: int) -> Stacks:
        """Let the ring have another number of rows, in place; the newest steps stay, oldest first."""
        assert self._resizable is not None
        self.begin = max(self.begin, self.end - rows)
        first, before = self._row(self.begin), self._resizable.rows
        # What looks at the arrays keeps them from being resized where they are.
        self.recorder.release_stacks()
        self._stacks = None
        for group, more in ((self._resizable.histories, 1), (self._resizable.written, 0)):
            for stack in group.values():
                _rotate(stack.array[:before], first)
                stack.resize(rows + more)
        self._resizable = self._resizable._replace(rows=rows)
        for r, history in self._resizable.histories.items():
            history.array[self.end - self.begin] = state[r]
        self._origin = self.begin
        return _arrays(self._resizable)

    def state(self, step: int) -> State:
        """Return a copy of what a step starts from: one that is taped, or was evicted for the last one."""
        if self._spare is not None and self._spare[0] == step:
            return self._spare[1]
        runner = self.recorder
        loop = runner.loop
        rows = self.rows(step, step + 1)
        state: State = [None] * loop.registers
        read = sorted({r for body in loop.bodies for r in body.reads})
        for r, stack in zip(read, rows[len(loop.stacked) - loop.recorded :], strict=False):
            state[r] = stack[0]
        return runner.copied(state)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Arrays, int, int]]:
        """Yield the records of some steps, some at a time, the newest first."""
        many = max(_CHUNK, _CHUNK_BYTES // self._tape_bytes)
        while stop > start:
            begin = max(start, stop - many, stop - 1 - self._row(stop - 1))
            yield self.rows(begin, stop), begin, stop
            stop = begin

    def rows(self, start: int, stop: int) -> Arrays:
        """Return the records of steps that have rows of the ring one after another."""
        assert self._stacks is not None
        self.recorder.place(start, stop, self._stacks, self._row(start))
        return self.recorder.stacked()

    @property
    def recorder(self) -> Runner:
        """What runs the steps."""
        assert self.runner is not None
        return self.runner

    def _row(self, step: int) -> int:
        assert self._stacks is not None
        return (step - self._origin) % self._stacks.rows


def _arrays(stacks: Stacks) -> Stacks:
    """Return stacks as arrays, which are good until they get another size."""
    histories = {r: history.array for r, history in stacks.histories.items()}
    return Stacks(stacks.rows, histories, {i: stack.array for i, stack in stacks.written.items()})


def _rotate(stack: Any, first: int) -> None:
    """Let row ``first`` of an array come first, and those before it last, in place."""
    if first:
        for part in (stack[:first], stack[first:], stack):
            _turn_round(part)


def _turn_round(stack: Any) -> None:
    last = len(stack)
    count = max(1, _FEW_BYTES // max(1, stack[:1].nbytes))
    for begin in range(0, last // 2, count):
        end = min(begin + count, last // 2)
        rows = stack[begin:end].copy()
        stack[begin:end] = stack[last - end : last - begin][::-1]
        stack[last - end : last - begin] = rows[::-1]


class Outputs:
    """The stacked outputs of a loop, as they come; room for them is doubled when there is none."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._rows = 0
        self._stacks: Arrays = []

    def add(self, rows: Arrays) -> None:
        """Append rows of the outputs, which are the first of all that a step stacks."""
        if not self.count:
            return
        rows = rows[: self.count]
        after = self._rows + len(rows[0])
        if not self._stacks:
            self._stacks = [np.empty(stack.shape, stack.dtype) for stack in rows]
        for stack, new in zip(self._stacks, rows, strict=True):
            if len(stack) < after:
                # In place: nobody has seen these arrays yet, and no view of them is alive.
                stack.resize((max(after, 2 * len(stack)), *stack.shape[1:]), refcheck=False)
            stack[self._rows : after] = new
        self._rows = after

    def so_far(self) -> Arrays:
        """Return the rows that are there, of which there may be more later."""
        return [stack[: self._rows] for stack in self._stacks]

    def stacks(self) -> Arrays:
        """Return all outputs."""
        for stack in self._stacks:
            stack.resize((self._rows, *stack.shape[1:]), refcheck=False)
        return self._stacks
