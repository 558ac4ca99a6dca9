"""Running a loop with few saved states, and the backward pass through it.

The one idea: the backward pass works on *blocks* of steps. A block is reversed from the rows of its record, and its
record is made by running its steps again from the state that it starts from. Which states are saved on the way and
which are recomputed when is decided elsewhere (`unspool.checkpoint`); this module does what they say. It runs
the plans of the traced step, never a function of the user's.

The saved states are those of one run, and the backward pass uses them up: their places are free for recomputed states.
A second backward pass runs the loop once more from its initial state, and finds the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from unspool._autodiff.checkpointed_ahead import ahead
from unspool._autodiff.loop import Body, Loop, apply_fragment, signature_of, stand_ins
from unspool._autodiff.loop_record import joined, recorded
from unspool._autodiff.loop_run import Runner, advance_until
from unspool._autodiff.operators import derived
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node
from unspool.checkpoint import binomial
from unspool.checkpoint.online import OnlineSchedule

if TYPE_CHECKING:
    from unspool._autodiff.checkpointed import Checkpointed

# Rows of outputs that are made at once before they are moved to where they belong.
_CHUNK = 256

State = list[Any]
Rows = list[Any]


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


# --- what is kept ----------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """What a run leaves for the backward pass.

    Attributes
    ----------
    bounds : sequence of int
        The steps that blocks begin with, and the end.
    slots : int
        How many states may be saved at a time, the initial one included.
    states : dict of int to state
        The saved states that blocks start from, by number of the block.
    records : dict of int to rows
        The records of the last blocks, as far as they are still there.
    """

    bounds: Sequence[int]
    slots: int
    states: dict[int, State]
    records: dict[int, Rows]


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
        kept, found = self._kept[0], None
        for number in sorted(kept.states):
            if not is_clean(kept.states[number]):
                break
            found = kept.bounds[number], kept.states[number]
        return found

    @property
    def states(self) -> int:
        """How many states are kept at the moment, the initial one included."""
        return sum(len(kept.states) for kept in self._kept)


# --- running ---------------------------------------------------------------------------------------------------------


class Stepper:
    """Makes steps of a loop from any of its states.

    Parameters
    ----------
    bodies : Bodies
    arrays : sequence of ndarray
        The constants and the initial state.
    """

    def __init__(self, bodies: Bodies, arrays: Sequence[Any]) -> None:
        self.bodies = bodies
        self.constants, self.initial = arrays[: bodies.loop.constants], list(arrays[bodies.loop.constants :])
        self._bare: Runner | None = None
        self._recorded: list[Runner] = []

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of a state and of what a step writes into its record."""
        runner = self.runner(self.bodies.recorded)
        return runner.state_bytes(), runner.row_bytes()

    def runner(self, loop: Loop, watched: Fragment | None = None) -> Runner:
        """Return a new runner of a loop, or of a body that does the same and more, at its initial state."""
        return Runner(loop, [*self.constants, *self.initial], watched)

    def first_state(self) -> State:
        """Return all registers before the first step; ``None`` for those that are absent."""
        return self.runner(self.bodies.bare).state

    def advance(self, state: State, start: int, stop: int) -> State:
        """Return the state after some steps."""
        runner = self._bare = self._bare or self.runner(self.bodies.bare)
        runner.restart(state, start, stop)
        runner.advance(stop - start)
        state = runner.state
        runner.release()
        return state

    def record(self, state: State, start: int, stop: int, buffers: int = 1) -> Rows:
        """Return the stacked outputs of some steps, record included; as many calls later they are overwritten."""
        if len(self._recorded) < buffers:
            self._recorded.append(self.runner(self.bodies.recorded))
        else:
            self._recorded.append(self._recorded.pop(0))
        runner = self._recorded[-1]
        runner.restart(state, start, stop)
        runner.advance(stop - start)
        # The state is in the first row.
        runner.release()
        return runner.stacked()


class SavingRun(NamedTuple):
    """A run with saved states: the state after and before its last step, stacked outputs, and what it keeps."""

    steps: int
    final: State
    previous: State
    outputs: Rows
    kept: Kept


def run_known(stepper: Stepper, strategy: Checkpointed, show: bool) -> SavingRun:
    """Run a loop to its known end, saving states where the binomial schedule wants them; ``show`` its outputs or not.

    The last block runs with its record: it is the first to be reversed.
    """
    loop = stepper.bodies.loop
    plan = strategy.plan(loop.steps, *stepper.sizes())
    bounds = range(loop.steps + 1) if plan.block == 1 else plan.bounds(loop.steps)
    last = len(bounds) - 2
    outputs = _Outputs(len(loop.stacked) if show else 0)
    state = stepper.first_state()
    states: dict[int, State] = {0: state} if last else {}
    shown = stepper.runner(loop) if outputs.count else None
    done = 0
    for position in (*binomial.checkpoints(last + 1, plan.slots), last):
        if position > done:
            steps = bounds[done], bounds[position]
            state = stepper.advance(state, *steps) if shown is None else _shown(shown, state, *steps, outputs)
            done = position
            if position < last:
                states[position] = state
    runner = stepper.runner(stepper.bodies.recorded)
    runner.restart(state, bounds[last], bounds[-1])
    runner.advance(bounds[-1] - bounds[last])
    rows = runner.stacked()
    outputs.add(rows)
    kept = Kept(bounds, plan.slots, states, {last: rows})
    return SavingRun(loop.steps, runner.leaving(), runner.previous, outputs.stacks(), kept)


def _shown(runner: Runner, state: State, start: int, stop: int, outputs: _Outputs) -> State:
    """Make steps that have outputs, a few at a time, and return the state after them."""
    for first in range(start, stop, _CHUNK):
        last = min(first + _CHUNK, stop)
        runner.restart(state, first, last)
        runner.advance(last - first)
        outputs.add(runner.stacked())
        state = runner.state
    return state


def run_unknown(stepper: Stepper, strategy: Checkpointed, condition: Fragment, most: int | None) -> SavingRun:
    """Run a loop until its condition holds, dropping the saved state that will be missed least when there is no room.

    Every block runs with its record, since it may be the last. Records of more than one block are kept as long as the
    loop may still fit as a whole.
    """
    loop = stepper.bodies.recorded
    shapes = tuple([np.shape(x) for x in (*stepper.constants, *stepper.initial)])
    watched = joined(loop.bodies[0].fragment, condition, shapes)
    block, slots, whole = strategy.open_plan(*stepper.sizes())
    schedule = OnlineSchedule(slots)
    outputs = _Outputs(len(stepper.bodies.loop.stacked))
    state = stepper.first_state()
    states: dict[int, State] = {}
    records: dict[int, Rows] = {}
    done = number = 0
    while True:
        states[number] = state
        dropped = schedule.advance()
        if dropped is not None:
            del states[dropped]
        count = block if most is None else min(block, most - done)
        if number < whole:
            # The loop may end soon: room grows as it is needed.
            runner = stepper.runner(loop, watched)
            runner.state = list(state)
            stopped = advance_until(runner, count)
        else:
            records.clear()
            runner.restart(state, done, done + count)
            stopped = runner.advance(count)
        done += runner.done
        rows = records[number] = [stack[: runner.done] for stack in runner.stacked()]
        outputs.add(rows)
        if stopped or done == most:
            break
        state = runner.state
        number += 1
    for taped in records:
        states.pop(taped, None)
    kept = Kept(range(done + 1) if block == 1 else [*range(0, done, block), done], slots, states, records)
    return SavingRun(done, runner.state, runner.previous, outputs.stacks(), kept)


class _Outputs:
    """The stacked outputs of a loop, as they come; room for them is doubled when there is none."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._stacks: Rows = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
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

    def stacks(self) -> Rows:
        """Return all outputs."""
        for stack in self._stacks:
            stack.resize((self._rows, *stack.shape[1:]), refcheck=False)
        return self._stacks


# --- the backward pass -----------------------------------------------------------------------------------------------


def go_back(stepper: Stepper, kept: Kept, reverse: Callable[[Rows, int, int], bool], pool: Any = None) -> None:
    """Hand the records of all blocks to a function, the last one first, and forget them.

    ``reverse(rows, start, stop)`` says whether it needs the block before. Its rows are overwritten afterwards. With a
    pool of threads the record of the block before is made meanwhile, in arrays of its own.
    """
    source = _blocks(stepper, kept, 1 if pool is None else 2)
    with closing(source if pool is None else ahead(pool, source)) as blocks:
        for rows, start, stop in blocks:
            is_needed = reverse(rows, start, stop)
            del rows  # the record of a run is freed before the next one is made
            if not is_needed:
                return


def _blocks(stepper: Stepper, kept: Kept, buffers: int) -> Generator[tuple[Rows, int, int], None, None]:
    """Yield the records of all blocks, the last one first, each with its first step and its end."""
    bounds, states, records = kept.bounds, kept.states, kept.records
    state: State = []
    first = min(records)
    for number in sorted(records, reverse=True):
        yield records.pop(number), bounds[number], bounds[number + 1]
    for action in _actions(sorted(states), first, kept.slots):
        match action:
            case binomial.Advance(start, stop):
                state = stepper.advance(state, bounds[start], bounds[stop])
            case binomial.Save(number):
                states[number] = state
            case binomial.Restore(number):
                state = states[number]
            case binomial.Free(number):
                del states[number]
            case binomial.Reverse(number):
                block = bounds[number], bounds[number + 1]
                rows, state = stepper.record(state, *block, buffers), []
                yield rows, *block


def _actions(positions: Sequence[int], end: int, slots: int) -> Iterator[binomial.Action]:
    """Yield how to reverse the blocks before ``end`` from saved states: gap by gap, with the slots that are free."""
    for index in range(len(positions) - 1, -1, -1):
        yield from binomial.reverse_gap(positions[index], end, slots - index)
        end = positions[index]
