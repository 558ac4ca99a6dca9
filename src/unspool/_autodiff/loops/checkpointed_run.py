"""Carrying out schedules: running a loop with few saved states, and the backward pass through it.

A schedule is rows of integers (`unspool.checkpoint._schedule`), and decides all: which states are saved, which steps
stay taped, what runs again. A `Machine` does what rows say with the plans of the traced step, never with a function of
the user's. It is the same for loops of known and of unknown length, for slots and for bytes, for the run and for the
backward pass, which a thread of a pool may be ahead of.

The *tape* of a step is the rows of its record. What a run has saved and taped is used up by its first backward pass. A
second one runs the loop once more from its initial state, and finds the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from unspool._autodiff.loops.checkpointed_tape import Arrays, Outputs, State, Tape
from unspool._autodiff.loops.loop import Body, Loop, apply_fragment, signature_of, stand_ins
from unspool._autodiff.loops.record import joined, recorded
from unspool._autodiff.loops.run import Runner
from unspool._autodiff.operators import derived
from unspool._engine.memory.background import Meanwhile
from unspool._engine.observe import current_watchers
from unspool._engine.quiet import run_quietly
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node
from unspool.checkpoint._schedule.actions import ADVANCE, FREE, LOAD, REVERSE, SAVE, TAPE, Rows
from unspool.checkpoint._schedule.budget import Sizes

if TYPE_CHECKING:
    from unspool._autodiff.loops.checkpointed import Checkpointed

# Steps whose outputs are moved to where they belong at once.
_CHUNK = 256

# How many rows the tape of a loop of unknown length starts with, and of how many bytes; when it is full, it is doubled.
_FIRST_ROWS = 64
_FIRST_BYTES = 1 << 26

# A tape that is so many times shorter than the loop is not made as long as the condition may hold in any step: it saves
# less than one run in so many, and steps run faster in one go.
_SHORT = 64


class Bodies(NamedTuple):
    """The same loop three times: as it was traced, with its record, and without any outputs."""

    loop: Loop
    recorded: Loop
    bare: Loop

    def of_length(self, steps: int) -> Bodies:
        """Return the loops with another number of steps."""
        return Bodies(*[loop._replace(steps=steps) for loop in self])


def bodies_of(loop: Loop, inputs: Sequence[Node]) -> Bodies:
    """Return a loop that has constants, registers and stacked outputs, in its three forms."""
    shapes = signature_of(loop, [x.shape for x in inputs]).bodies
    bare = [_without_outputs(body, given) for body, given in zip(loop.bodies, shapes, strict=True)]
    return Bodies(loop, recorded(loop, inputs), loop._replace(bodies=tuple(bare), stacked=()))


def _without_outputs(body: Body, shapes: tuple[Any, ...]) -> Body:
    if not body.stacked:
        return body
    fragment, assigned = body.fragment, len(body.assigns)
    inputs = stand_ins(fragment, shapes)
    bare: Fragment = derived(
        fragment,
        inputs,
        ("bare", assigned),
        lambda: capture(inputs, apply_fragment(fragment, inputs)[:assigned]).fragment,
    )
    return body._replace(fragment=bare, stacked=())


# --- carrying out ----------------------------------------------------------------------------------------------------


class Machine:
    """Carries out rows of a schedule on a loop.

    Parameters
    ----------
    bodies : Bodies
    arrays : sequence of ndarray
        The constants and the initial state.

    Attributes
    ----------
    state : state
        The current one: all registers; ``None`` for those that are absent.
    saved : dict of int to (int, state)
        By slot, the number of the state and the state.
    tape : Tape
    outputs : Outputs or None
        Where the outputs of the loop go while it runs.
    last : Runner
        What ran last.
    """

    def __init__(self, bodies: Bodies, arrays: Sequence[Any], condition: Fragment | None = None) -> None:
        self.bodies = bodies
        self._arrays, self._condition = arrays, condition
        self._unrecorded: Runner | None = None
        self.state: State = []
        self.saved: dict[int, tuple[int, State]] = {}
        self.outputs: Outputs | None = None
        self.last = runner = self._runner(bodies.recorded)
        self.tape, self.sizes = Tape(runner), sizes_of(runner)
        self._is_backward = False

    def _runner(self, loop: Loop) -> Runner:
        """Return what runs a loop from its initial state, and asks the condition if there is one."""
        watched = None
        if self._condition is not None:
            shapes = tuple([np.shape(x) for x in self._arrays])
            watched = joined(loop.bodies[0].fragment, self._condition, shapes)
        return Runner(loop, self._arrays, watched)

    def start(self, outputs: Outputs | None) -> None:
        """Make the initial state the current one of a loop that is to run."""
        self.state, self.outputs = self.last.state, outputs

    def go_on(self, kept: Kept) -> None:
        """Take over what a run has left, for the backward pass."""
        self._is_backward, self.saved = True, kept.saved
        kept.tape.runner = self.tape.runner
        self.tape = kept.tape

    def new_tape(self) -> Tape:
        """Return another tape for the same steps."""
        return Tape(self._runner(self.bodies.recorded))

    def carry_out(self, actions: Iterable[Sequence[int]]) -> bool:
        """Do what rows say, none of which reverses; tell whether the condition held, which ends it early."""
        for kind, first, stop, slot in actions:
            if kind == ADVANCE:
                if self._advance(first, stop):
                    return True
            elif kind == TAPE:
                if self._tape(first, stop, slot):
                    return True
            elif kind == SAVE:
                is_taped = not self._is_backward and first < self.tape.end
                self.saved[slot] = first, self.tape.state(first) if is_taped else self.state
            elif kind == LOAD:
                self.state = self.saved[slot][1]
            else:
                assert kind == FREE
                del self.saved[slot]
        return False

    def _advance(self, first: int, stop: int) -> bool:
        """Run steps without their records; those that are taped are evicted. Tell whether the condition held."""
        outputs, stopped = self.outputs, False
        if self._unrecorded is None:
            self._unrecorded = self._runner(self.bodies.bare if outputs is None else self.bodies.loop)
        runner = self._switch(self._unrecorded)
        chunk = stop - first if outputs is None else _CHUNK
        while first < stop and not stopped:
            runner.restart(self.state, first, min(first + chunk, stop))
            stopped = runner.advance(min(chunk, stop - first))
            self.state, first = runner.state, first + runner.done
            if outputs is not None:
                outputs.add([stack[: runner.done] for stack in runner.stacked()])
        self.tape.clear(first)
        if self._is_backward:
            runner.release()
        return stopped

    def _switch(self, runner: Runner) -> Runner:
        """Return what runs next; what ran last has nothing of its own any more."""
        if self.last is not runner:
            self.last.release()
            self.last = runner
        return runner

    def _tape(self, first: int, stop: int, keep: int) -> bool:
        """Run steps with their records; tell whether the condition held."""
        tape, stopped, rows = self.tape, False, None
        if self._is_backward or tape.end != first:
            tape.clear(first)
        if self._condition is not None:
            rows = max(1, min(_FIRST_ROWS, _FIRST_BYTES // self.sizes.tape))
            if stop - first > keep and first >= _SHORT * keep and self._advance(first, stop - keep):
                # So short a tape is not missed.
                return True
        spared = int(self._is_backward and not self.sizes.taping)
        runner = self._switch(tape.recorder)
        while tape.end < stop and not stopped:
            begin = tape.end
            stopped = tape.run(self.state, stop, keep, first=rows, spared=spared)
            self.state = runner.state
            if self.outputs is not None:
                self.outputs.add(tape.rows(begin, tape.end))
        if self._is_backward:
            # The state is in the first row.
            self.state = []
            runner.release()
        return stopped


def sizes_of(runner: Runner) -> Sizes:
    """Return the bytes of a state and of the residuals of a step, and whether it runs to be taped."""
    state = max(1, runner.state_bytes())
    return Sizes(state, max(0, runner.row_bytes() - state), taping=not runner.stacks_states)


# --- the run ---------------------------------------------------------------------------------------------------------


class SavingRun(NamedTuple):
    """A run with saved states: the state after and before its last step, stacked outputs, and what it keeps."""

    steps: int
    final: State
    previous: State
    outputs: Arrays
    kept: Kept


def run(
    bodies: Bodies,
    arrays: Sequence[Any],
    strategy: Checkpointed,
    *,
    condition: Fragment | None = None,
    most: int | None = None,
    show: bool = True,
) -> SavingRun:
    """Run a loop to its end: all its steps, or until a condition holds; ``show`` its outputs or not."""
    machine = Machine(bodies, arrays, condition)
    outputs = Outputs(len(bodies.loop.stacked) if show else 0)
    machine.start(outputs if outputs.count else None)
    plan = strategy.plan(machine.sizes)
    tape = machine.tape
    if condition is None:
        closed = plan.closed(bodies.loop.steps)
        for chunk in closed.forward():
            machine.carry_out(chunk.tolist())
        backward = closed.backward
    else:
        opened, stopped = plan.open(), False
        while not stopped and tape.end != most:
            stopped = machine.carry_out(opened.go_on(most).tolist())
        machine.carry_out(opened.end(tape.end, tape.begin).tolist())
        backward = opened.finish
    final, previous = machine.last.leaving(), machine.last.previous
    tape.leave()
    return SavingRun(tape.end, final, previous, outputs.stacks(), Kept(backward, machine.saved, tape))


# --- what is kept ----------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """What a run leaves for the backward pass: how to make it, the saved states, and the tape."""

    backward: Callable[[], Iterator[Rows]]
    saved: dict[int, tuple[int, State]]
    tape: Tape


class KeptOnce:
    """What one run keeps, until it is used up; good for the arrays that it ran on, and no others."""

    __slots__ = ("_arrays", "_kept")

    def __init__(self, kept: Kept, arrays: Sequence[Any]) -> None:
        self._kept = [kept]
        self._arrays = [ref(array) for array in arrays]

    def take(self, arrays: Sequence[Any]) -> Kept | None:
        """Return what was kept, once; ``None`` if it is gone or does not belong to these arrays."""
        known = [array() for array in self._arrays]
        if any(array is None for array in known):
            # Nobody can ask for these again.
            self._kept.clear()
        if any(mine is not given for mine, given in zip(known, arrays, strict=True)):
            return None
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def clean_start(self, arrays: Sequence[Any], is_clean: Callable[[State], bool]) -> tuple[int, State] | None:
        """Return the last saved state before which all are clean, with its step; what is kept stays."""
        if not self._kept or any(mine() is not given for mine, given in zip(self._arrays, arrays, strict=True)):
            return None
        found = None
        for step, state in sorted(self._kept[0].saved.values(), key=lambda saved: saved[0]):
            if not is_clean(state):
                break
            found = step, state
        return found

    @property
    def states(self) -> int:
        """How many states are kept at the moment, the initial one included."""
        return sum(len(kept.saved) for kept in self._kept)


# --- the backward pass -----------------------------------------------------------------------------------------------


def go_back(machine: Machine, kept: Kept, reverse: Callable[[Arrays, int, int], bool], strategy: Checkpointed) -> None:
    """Hand the records of all steps to a function, the last ones first, and forget them.

    ``reverse(rows, start, stop)`` says whether it needs the steps before. Its rows are overwritten afterwards. With a
    pool of threads the tape before is made meanwhile, if there is room for both.
    """
    machine.go_on(kept)
    # Watchers see the steps that their own thread makes.
    pool = None if current_watchers() else strategy.pool
    source = _tapes(machine, kept.backward(), strategy)
    with closing(source if pool is None else ahead(pool, source)) as tapes:
        for taped in tapes:
            if not all(reverse(*piece) for piece in taped.tape.pieces(taped.start, taped.stop)):
                return


class Taped(NamedTuple):
    """A tape, the steps on it that are to be reversed, and whether there is room to make the next tape meanwhile."""

    tape: Tape
    start: int
    stop: int
    leaves_room: bool


def _tapes(machine: Machine, rows: Iterable[Rows], strategy: Checkpointed) -> Generator[Taped, None, None]:
    """Yield the tapes that rows make and reverse."""
    segments = _segments(rows)
    segment = next(segments, None)
    other = None if strategy.pool is None else machine.new_tape()
    while segment is not None:
        actions, start, stop = segment
        machine.carry_out(actions)
        tape, segment = machine.tape, next(segments, None)
        if other is not None:
            machine.tape, other = other, tape
        if strategy.memory is None or segment is None:
            yield Taped(tape, start, stop, True)
            continue
        states, steps = _most_held(len(machine.saved), segment[0])
        leaves_room = strategy.has_room(states, steps + stop - start, machine.sizes)
        yield Taped(tape, start, stop, leaves_room)
        if other is not None:
            # With two tapes, the one that is to be made again has been read.
            machine.tape.drop()
        if not (leaves_room if other is not None else strategy.has_room(states, stop - start, machine.sizes)):
            tape.drop()


def _segments(chunks: Iterable[Rows]) -> Iterator[tuple[list[list[int]], int, int]]:
    """Yield the rows before each that reverses, and what that one reverses."""
    actions: list[list[int]] = []
    for chunk in chunks:
        for row in chunk.tolist():
            if row[0] == REVERSE:
                yield actions, row[1], row[2]
                actions = []
            else:
                actions.append(row)


def _most_held(states: int, actions: Iterable[Sequence[int]]) -> tuple[int, int]:
    """Return how many states are saved at most while rows are carried out, and how many steps they tape."""
    most, steps = states, 0
    for kind, first, stop, _ in actions:
        states += (kind == SAVE) - (kind == FREE)
        most = max(most, states)
        steps += stop - first if kind == TAPE else 0
    return most, steps


_END: Any = object()


def ahead(pool: Any, source: Generator[Taped, None, None]) -> Generator[Taped, None, None]:
    """Yield what a generator yields; where there is room for the next tape, a pool of threads makes it meanwhile."""
    make: Callable[[], Taped] = partial(run_quietly, next, source, _END)
    taped = make()
    while taped is not _END:
        following = Meanwhile(pool, make) if taped.leaves_room else None
        try:
            yield taped
        except BaseException:
            if following is not None:
                following.leave()  # nobody else may have the generator when this one ends
            raise
        taped = make() if following is None else following.result()
