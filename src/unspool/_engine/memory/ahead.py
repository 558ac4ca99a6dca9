"""Frames that run ahead: while a backward pass uses the steps that were recomputed, a thread recomputes those before.

A segment of a loop is made of states and steps alone, so it does not matter who runs it, nor when. What it needs is
gathered beforehand, and what it takes at most is counted as held until its results are taken in: nothing depends on
when the thread runs. Kernels that a user wrote run where the user asked for a value, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any

from unspool._core import unit_of
from unspool._engine.costs import kernels_of
from unspool._engine.interpreter import apply_kernel, results_of
from unspool._engine.memory.background import Meanwhile
from unspool._engine.memory.recomputation import Frame, outputs_of, workspace_of
from unspool._engine.memory.replayed_values import Buffer, Memory, buffers_of
from unspool._engine.quiet import run_quietly
from unspool._fragments.call import Call
from unspool._graph import Node
from unspool._ops.op import REGISTRY, Op
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._engine.plan import Plan

# Room is given in so many parts, about.
_PARTS = 16


# --- what the frame above reads next ---------------------------------------------------------------------------------


def next_reads(frame: Frame, own: Collection[int], find: Callable[[Node], Any]) -> Iterator[list[Node]]:
    """Yield what a frame will have to wait for, one time after the other, if nothing that is there goes.

    ``own`` are its units, by id.
    """
    for number in range(frame.position, len(frame.order)):
        unit = frame.order[number]
        for operands in _groups(unit, frame.chain if number == frame.position else None):
            missing = [
                operand
                for operand in operands
                if frame.uses.get(operand.id) and unit_of(operand).id not in own and find(operand) is None
            ]
            if missing:
                yield missing


def _groups(unit: Node, run: Any) -> Iterator[Sequence[Node]]:
    """Yield what a unit reads at once: all of it, or what a chain reads first and then in each step that is left."""
    if not unit.op.stepwise:
        yield unit.inputs
        return
    chain = unit.attributes["chain"]
    if run is None:
        yield unit.inputs[: chain.fixed]
    for step in range(0 if run is None else run.done, chain.steps):
        yield unit.inputs[chain.varying(step)]


# --- whose code it runs ----------------------------------------------------------------------------------------------


def runs_anywhere(unit: Node) -> bool:
    """Whether a unit may run in any thread: no kernel of a user's is in it, and nothing that evaluates tensors."""
    if type(unit) is not Call:
        return not unit.op.stepwise and _is_ours(unit.op, unit.attributes)
    plan: Plan = unit.plan
    known = plan.derivatives.get("runs anywhere")
    if known is None:
        known = plan.derivatives["runs anywhere"] = all(_is_ours(i.op, i.params) for i in plan.fragment.body)
    return bool(known)


def _is_ours(op: Op, params: Any) -> bool:
    if op.loop:
        return all(_is_ours(i.op, i.params) for body in params["loop"].bodies for i in body.fragment.body)
    return REGISTRY.get(op.name) is op and not op.users_own


# --- the frame -------------------------------------------------------------------------------------------------------


class _Unit(NamedTuple):
    """A unit with what becomes of its outputs: position, id, whether it is read here, and whether it is handed over."""

    node: Node
    outputs: tuple[tuple[int, int, bool, bool], ...]


class SavedAhead(NamedTuple):
    """A state on the way: the id after which it stands, and its values, by id."""

    after: int
    keys: list[int]


class Recipe:
    """A frame that may run ahead: what it is made from, and what it has to give.

    Parameters
    ----------
    frame : Frame
        What it keeps, and which states it saves, may be chosen until it begins.
    asked : sequence of Node
        What the frame above waits for.
    above : Frame
    targets : collection of int
        The ids of what is asked for in the end, which is handed over if it comes about.
    find : callable
        Returns a value that is there.
    """

    def __init__(
        self,
        frame: Frame,
        asked: Sequence[Node],
        above: Frame,
        targets: Collection[int],
        find: Callable[[Node], Any],
    ) -> None:
        self.frame = frame
        self.given: dict[int, Any] = {}
        self._asked = {node.id for node in asked}
        self._above = above
        self._targets = targets
        for unit in frame.order:
            for operand in unit.inputs:
                if operand.id not in self.given:
                    value = find(operand)
                    if value is not None:
                        self.given[operand.id] = value

    def _is_handed_over(self, position: int, key: int) -> bool:
        is_read = self._above.uses.get(key) and (position >= self.frame.tape_from or key in self._asked)
        return bool(is_read) or key in self._targets

    def units(self) -> list[_Unit]:
        """Return the units, each with what becomes of its outputs."""
        uses = self.frame.uses
        found = []
        for position, unit in enumerate(self.frame.order):
            ids = [(0, unit.id)]
            if type(unit) is Call:
                handles = [(i, unit.handle(i)) for i in range(len(unit.shape))]
                ids = [(i, handle.id) for i, handle in handles if handle is not None]
            made = [
                (i, key, bool(uses.get(key)), self._is_handed_over(position, key))
                for i, key in ids
                if key not in self.given
            ]
            found.append(_Unit(unit, tuple(made)))
        return found

    def peaks(self) -> list[int]:
        """Return the most bytes that its first units take, so many of them, beside what is held.

        That is values, those to hand over, and states.
        """
        frame, memory = self.frame, Memory()
        left = dict(frame.uses)
        live: dict[int, tuple[Buffer, ...]] = {}
        found = [0]
        for position, unit in enumerate(frame.order):
            most = max(found[-1], memory.nbytes + workspace_of(unit))
            for node in outputs_of(unit):
                if node.id in self.given:
                    continue
                buffers = buffers_of(node)
                if left.get(node.id):
                    live[node.id] = buffers
                    memory.take(buffers)
                if self._is_handed_over(position, node.id):
                    memory.take(buffers)
            found.append(max(most, memory.nbytes))
            for operand in unit.inputs:
                left[operand.id] -= 1
                if not left[operand.id]:
                    memory.give(live.pop(operand.id, ()))
            if position in frame.saves:
                for buffers in live.values():
                    memory.take(buffers)
        return found

    def buffers(self) -> dict[int, tuple[Buffer, ...]]:
        """Return the memory of what it makes, by id."""
        return {node.id: buffers_of(node) for unit in self.frame.order for node in outputs_of(unit)}


class FrameAhead:
    """A frame that a pool of threads is asked to run, as far as there is room for it.

    No thread ever waits: one that has run what there is room for ends, and another one goes on when there is more.

    Attributes
    ----------
    nbytes : int
        What it takes at most until it is given more room.
    peaks : list of int
        What its first units take at most, so many of them.
    granted : int
        How many there is room for.
    held : set of int
        The ids of what the replay keeps for it.
    made : dict
        What it hands over, and what is part of a state, by id.
    handed_over : list of int
        Of these, what the frame above reads, and what is asked for in the end.
    saved : list of SavedAhead
    ran : dict
        How many kernels the units ran that have run, by id.
    seconds : float
        The time that took.
    """

    def __init__(self, pool: Any, recipe: Recipe, peaks: list[int], held: set[int]) -> None:
        self.nbytes = self.granted = 0
        self.peaks = peaks
        self.held = held
        self.buffers = recipe.buffers()
        self.made: dict[int, Any] = {}
        self.handed_over: list[int] = []
        self.saved: list[SavedAhead] = []
        self.ran: dict[int, int] = {}
        self.seconds = 0.0
        self._pool = pool
        self._units = recipe.units()
        self._given = recipe.given
        self._values: dict[int, Any] = dict(recipe.given)
        self._left = dict(recipe.frame.uses)
        self._saves = recipe.frame.saves
        self._lock = Lock()
        self._position = 0
        self._is_running = self._is_dropped = False
        self._work: Meanwhile[None] | None = None

    def goal(self) -> int:
        """Return of how many units the room is worth to be asked for next."""
        count = len(self._units)
        return min(count, self.granted + max(1, count // _PARTS))

    def grant(self, room: int) -> None:
        """Give it some room, more than before, and let it run as far as that is enough."""
        with self._lock:
            self.granted = max(self.granted, bisect_right(self.peaks, room) - 1)
            self.nbytes = self.peaks[self.granted]
            begins = not self._is_running and self._position < self.granted
            self._is_running |= begins
        if begins:
            self._work = Meanwhile(self._pool, self._begin)

    def result(self) -> bool:
        """Wait for what there is room for; tell whether it came about. If not, who needs it will find out why.

        What the rest would begin with is a state.
        """
        try:
            if self._work is not None:
                self._work.result()
        except Exception:
            return False
        if 0 < self._position < len(self._units):
            self._save(self._units[self._position - 1].node)
        return self._position == self.granted > 0

    def drop(self) -> None:
        """Do without it: wait until no thread works at it, which is after the unit that runs."""
        self._is_dropped = True
        if self._work is not None:
            self._work.leave()

    def forget(self) -> None:
        """Let all values go: a pool that is busy may hold what it was asked for much longer."""
        self._work = None
        for things in (self.made, self._values, self._given, self._units):
            things.clear()

    def _begin(self) -> None:
        run_quietly(self._run)

    def _goes_on(self) -> bool:
        with self._lock:
            self._is_running = not self._is_dropped and self._position < self.granted
            return self._is_running

    def _run(self) -> None:
        started = perf_counter()
        while self._goes_on():
            self._run_unit(self._position, *self._units[self._position])
            self._position += 1
        self.seconds += perf_counter() - started

    def _run_unit(self, position: int, unit: Node, outputs: Sequence[tuple[int, int, bool, bool]]) -> None:
        values, left = self._values, self._left
        arguments = [values[operand.id] for operand in unit.inputs]
        results = results_of(unit, arguments) if type(unit) is Call else (apply_kernel(unit, arguments),)
        del arguments
        self.ran[unit.id] = kernels_of(unit)
        for index, key, is_read, is_handed_over in outputs:
            if is_read:
                values[key] = results[index]
            if is_handed_over:
                self.made[key] = results[index]
                self.handed_over.append(key)
        for operand in unit.inputs:
            key = operand.id
            left[key] -= 1
            if not left[key]:
                del values[key]
        if position in self._saves:
            self._save(unit)

    def _save(self, unit: Node) -> None:
        given, values = self._given, self._values
        self.made.update({key: value for key, value in values.items() if key not in given})
        self.saved.append(SavedAhead(unit.id, [key for key in values if key not in given or key in self.held]))
