"""Computing values within a budget: what was evicted is recomputed just before it is needed.

A derivative reads the values of a loop from the last step to the first. Running everything that is missing first would
hold it all at once. So work is split by *level*: what a sweep built is one level above what it differentiated. The
nodes of the highest level run in order; when one of them needs a value of a lower level that is not there, the way from
the values that are there to the missing one is run, as a *frame*, and the node goes on. While a frame runs it keeps
what the frame above will need next (the last block of steps, taped), and states on the way from which later frames can
start (where, `unspool.checkpoint` knows). A frame may itself need values of a lower level; that is how second
derivatives run.

Nothing in the graph changes: recomputing is a schedule of (run, evict), and values of a replay belong to it alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from unspool._core import LevelTable, unit_of
from unspool._engine.backends.values import owned
from unspool._engine.costs import kernels_of
from unspool._engine.interpreter import apply_kernel, results_of
from unspool._engine.levels import Marks
from unspool._engine.memory.allowance import no_room
from unspool._engine.memory.cached import TINY
from unspool._engine.memory.guard import located
from unspool._engine.memory.prefetch import Lookout
from unspool._engine.memory.recomputation import (
    BRANCH,
    Frame,
    Saved,
    entering,
    held_by_chain,
    is_taken,
    outputs_of,
    spare_of,
    viewed,
    waited_for,
    workspace_of,
)
from unspool._engine.memory.replayed_values import Values, buffers_of, is_seen
from unspool._engine.memory.requirement import Need
from unspool._engine.memory.surveying import ANY_LEVEL, survey_levels, too_little
from unspool._engine.memory.units import Order, Units
from unspool._engine.structure import is_literal
from unspool._fragments.call import Call, Projection
from unspool._graph import Node
from unspool.errors import RebuildError

if TYPE_CHECKING:
    from unspool._engine.memory.ledger import Ledger


def survey(ledger: Ledger, targets: Sequence[Node], marks: Marks) -> Need:
    """Tell what it would take to compute targets if nothing that they are made from were held."""
    return Replay(ledger, targets, marks, None).survey(targets)


class Replay:
    """One evaluation within a budget.

    One that ``is_careful`` makes room for a state in every stretch that runs again, at the price of others.

    Attributes
    ----------
    runs, distinct : int
        Units that ran below the highest level, and how many different ones.
    kernels : int
        How many kernels that were.
    seconds : float
        The time they took.
    need : Need or None
        Of the longest frame.
    """

    def __init__(
        self,
        ledger: Ledger,
        targets: Sequence[Node],
        marks: Marks,
        limit: int | None,
        room: int | None = None,
        *,
        is_careful: bool = False,
    ) -> None:
        self.runs = self.kernels = 0
        self.seconds = 0.0
        self.need: Need | None = None
        self._ledger = ledger
        self._guard = ledger.guard
        self._limit = limit
        # What frames are laid out for: the whole budget, or less where that has turned out to be too much.
        self._room = limit if room is None else room
        self._is_careful = is_careful
        self.targets = {t.id: t for t in targets}
        self._marks = marks
        self.values = Values()
        self._in_chain = 0  # what the chain that the highest frame is at has stacked up and carries
        self._base = ledger.held_bytes()
        self.frames: list[Frame] = []
        self.saved: list[Saved] = []
        self._has_one_level_below = False
        self._busiest = 0
        self._known: dict[int, int] = {}
        self._ran: set[int] = set()
        self._order = Order.AS_RECORDED
        self.units = Units(self.targets)
        self._levels = LevelTable(self.targets, is_literal, marks.begun)
        has_pool = ledger.pool is not None and self._guard is None and self._room is not None
        self._lookout = Lookout(self, ledger.pool) if has_pool else None
        self.on_begin: Callable[[], None] = _nothing

    @property
    def nbytes_beside(self) -> int:
        """The bytes that are held beside those that the ledger has noted; less than 0 if it has noted too many."""
        return self._base + self._nbytes - self._ledger.noted

    def steps_of_all(self, steps_of: Callable[[Node], int]) -> int:
        """Return how many steps of loops there are on the highest level."""
        return sum(map(steps_of, self.frames[0].order))

    def steps_done(self, steps_of: Callable[[Node], int]) -> int:
        """Return how many of them have been made; asked from another thread."""
        frames = list(self.frames)
        if not frames:
            return 0
        frame, chain = frames[0], frames[0].chain
        return sum(map(steps_of, frame.order[: frame.position])) + (0 if chain is None else chain.done)

    @property
    def _nbytes(self) -> int:
        """The bytes of what belongs to the replay."""
        promised = 0 if self._lookout is None else self._lookout.nbytes
        return self.values.nbytes + self._in_chain + promised

    @property
    def distinct(self) -> int:
        """How many different units ran below the highest level."""
        return len(self._ran)

    # -- the machine --

    def run(self) -> None:
        """Give all targets their values."""
        try:
            self._run_all()
        finally:
            if self._lookout is not None:
                self._lookout.drop()
                self._lookout = None  # it refers to this

    def _run_all(self) -> None:
        while missing := [t for t in self.targets.values() if t.value is None]:
            if self._room is not None and self.need is None:
                self.need = self.survey(missing)
                self._begin(self.need, self._room)
            if self._limit is not None and self.need is not None and not (self.need.steps and self._marks.begun):
                self._begin_alone(missing, self._limit)
            self._push(missing, None)
            if self.frames:
                self.on_begin()
                if self._lookout is not None:
                    self._lookout.begin()
            while self.frames:
                frame = self.frames[-1]
                if frame.position == len(frame.order):
                    self._pop()
                elif not self._run_calls(frame) and self._advance(frame, frame.order[frame.position]):
                    frame.position += 1

    def _pop(self) -> None:
        """End a frame: what was kept for it goes."""
        frame = self.frames.pop()
        self.unpin(frame.recent)
        self.unpin(frame.ahead)
        self._forget([saved for saved in self.saved if saved.owner is frame])
        if self._lookout is not None and self.frames:
            self._lookout.go_on_after(frame)

    def _forget(self, gone: Sequence[Saved]) -> None:
        """Evict states that were saved."""
        if gone:
            self.saved = [saved for saved in self.saved if saved not in gone]
            for saved in gone:
                for key in saved.keys:
                    self.values.drop_reason(key)

    def _begin(self, need: Need, limit: int) -> None:
        """See that the work can be done within the budget, and make room for what it takes at least."""
        if not need.steps:
            return
        if need.is_whole(limit):
            self._divide(Marks())  # a single level: all that is missing runs in one go
            return
        if need.least() > limit and self._ledger.is_strict:
            raise too_little(self._ledger.limit, need)
        room = limit - need.overhead()
        self._free(
            self._base + need.overhead() + need.state + need.step - limit,
            lambda steps: need.block_of(steps, room),
        )

    def _begin_alone(self, missing: Sequence[Node], limit: int) -> None:
        """Make room where there is one level only: old values are asked for, or steps are too wide to run again.

        What goes may have been on the way to them, which is longer then.
        """
        while True:
            least = self._base + self._busiest_of(self.frame_for(missing))[1]
            if least <= limit:
                return
            before = self._base
            self._free(least - limit)
            if self._base == before:
                if self._ledger.is_strict:
                    raise no_room(self._ledger.limit, least)
                return

    def _free(self, wanted: int, block_of: Callable[[int], int] | None = None) -> None:
        if wanted > 0:
            self._base -= self._ledger.free(wanted, None, self._known, block_of)

    def survey(self, targets: Sequence[Node]) -> Need:
        """Tell what the levels below the highest one take if nothing is held of them."""
        found = survey_levels(
            lambda: self.frame_for(targets), self.units, self._levels, self._marks, list(self.targets)
        )
        need, self._busiest, self._order, self._has_one_level_below, self._known, self._marks = found
        return need

    def _run_calls(self, frame: Frame) -> int:
        """Run the next calls of a frame, as many as need nothing but what is cached; return how many.

        That is how all steps run of a stretch of a loop. Who compares values, or moves them to disk, runs each alone.
        """
        if self._guard is not None or type(frame.order[frame.position]) is not Call:
            return 0
        started = perf_counter()
        lookout, values, is_below = self._lookout, self.values, len(self.frames) > 1
        done, kernels = frame.run_on(
            self.frames[-2] if is_below else None,
            values,
            self.targets,
            self._ledger,
            self._base + self._nbytes - values.nbytes,
            -1 if self._limit is None else self._limit,
            -1 if lookout is None else lookout.due,
            self._ran if is_below else None,
            owned,
            TINY,
        )
        if is_below:
            self.runs += done
            self.kernels += kernels
            self.seconds += perf_counter() - started
        if done:
            self._look_if_due()
        return done

    def _look_if_due(self) -> None:
        if self._lookout is not None and self._base + self._nbytes <= self._lookout.due:
            self._lookout.look()

    def _advance(self, frame: Frame, unit: Node) -> bool:
        """Run a unit if what it reads is there, else begin to get it; tell whether it ran."""
        if unit.op.stepwise:
            return self._advance_chain(frame, unit)
        arguments = self._arguments(frame, unit.inputs)
        if arguments is None:
            return False
        started = perf_counter()
        is_call = type(unit) is Call
        spare = None if is_call else spare_of(unit)
        is_onto = spare is not None and self._is_spare(frame, spare)
        self._take(0 if is_onto else workspace_of(unit))
        try:
            if is_onto:
                if is_seen(arguments[0]):
                    arguments[0] = arguments[0].copy()
                self._keep(frame, unit, apply_kernel(unit, arguments, unit.op.onto))
            else:
                self._run(frame, unit, arguments)
        except RebuildError as error:
            raise (located(error, unit, arguments) if is_call else error) from None
        del arguments
        if len(self.frames) > 1:
            self.runs += 1
            self.kernels += kernels_of(unit)
            self.seconds += perf_counter() - started
            self._ran.add(unit.id)
        self._after(frame, unit.inputs)
        if not is_call and is_taken(unit) and len(self.frames) == 1:
            self.values.let_part_go(unit.inputs[0].id, unit.attributes["index"])
        if frame.position in frame.saves:
            self._save(frame, unit)
        return True

    def _is_spare(self, frame: Frame, operand: Node) -> bool:
        """Whether a unit of a frame that reads an operand may write its result onto it."""
        key = operand.id
        return (
            all(node.value is None and node.id not in self.targets for node in viewed(operand))
            and key in frame.live
            and frame.uses[key] == 1
            and self._guard is None
            and self.values.is_spare(key)
        )

    def _run(self, frame: Frame, unit: Node, arguments: Sequence[Any]) -> None:
        if type(unit) is not Call:
            value = apply_kernel(unit, arguments)
            if self._guard is not None and self._guard.doubts(unit):
                self._guard.compare(unit, value, apply_kernel(unit, arguments))
            self._keep(frame, unit, value)
            return
        results = results_of(unit, arguments)
        shown = unit.plan.fragment.results
        for index in range(len(results)):
            handle = unit.handle(index)
            if handle is not None:
                self._keep(frame, handle, results[index], index < shown)

    def _advance_chain(self, frame: Frame, unit: Node) -> bool:
        """Run the steps of a chain, as many at once as what they read is there for: each reads values of its own."""
        chain = unit.attributes["chain"]
        run = frame.chain
        if run is None:
            first = self._arguments(frame, unit.inputs[: chain.fixed])
            if first is None:
                return False
            self._take(held_by_chain(unit))
            run = frame.chain = chain.begin(first)
            self._in_chain += run.nbytes
            self._after(frame, entering(unit))
        while run.done < chain.steps:
            steps, arguments = self._leading(unit, run.done, chain.steps)
            if not steps:
                self._arguments(frame, unit.inputs[chain.varying(run.done)])
                return False
            self._take(chain.peak_bytes)
            self._in_chain -= run.nbytes
            start = chain.varying(run.done).start
            run.advance(steps, arguments)
            self._in_chain += run.nbytes
            read = unit.inputs[start : start + len(arguments)]
            del arguments
            self._after(frame, read)
        frame.chain = None
        self._in_chain -= run.nbytes
        self._keep(frame, unit, run.results())
        self._after(frame, unit.inputs[len(chain.entering) : chain.fixed])
        return True

    # -- values --

    def _arguments(self, frame: Frame, operands: Sequence[Node]) -> list[Any] | None:
        """Return the values of operands, or begin to get what is missing of them."""
        values = self.values.of(operands)
        missing = [operand for operand, value in zip(operands, values, strict=True) if value is None]
        if not missing:
            return values
        if self._lookout is not None and self._lookout.take_in():
            values = [self.find(operand) for operand in operands]
            missing = [operand for operand, value in zip(operands, values, strict=True) if value is None]
            if not missing:
                self._lookout.look()
                return values
        self._push(missing, frame)
        return None

    def _leading(self, unit: Node, done: int, end: int) -> tuple[int, list[Any]]:
        """Return how many next steps of a chain have all that they read, and that.

        Twice as many are looked at each time: of a long chain it may be few.
        """
        chain = unit.attributes["chain"]
        found: list[Any] = []
        step, ahead = done, 1
        while step < end:
            last = min(step + ahead, end)
            first = chain.varying(step).start
            values = self.values.of(unit.inputs[first : chain.varying(last - 1).stop])
            there = next((i for i, value in enumerate(values) if value is None), None)
            if there is not None:
                while chain.varying(step).stop - first <= there:
                    step += 1
                found += values[: chain.varying(step).start - first]
                break
            found += values
            step, ahead = last, 2 * ahead
        return step - done, found

    def find(self, node: Node) -> Any:
        """Return the value of a node if it is there."""
        return self.values.of((node,))[0]

    def _keep(self, frame: Frame, node: Node, value: Any, is_result: bool = False) -> None:
        """Keep a value that was computed if there is a reason to: somebody asked, reads it here, or will above."""
        key = node.id
        if self._guard is not None:
            self._guard.after_rebuild(node, value)
        if node.value is not None:
            return
        if key in self.targets or (type(node) is Projection and value.nbytes <= TINY):
            node.value = owned(value)
            return
        reasons = 0
        if key not in frame.live and frame.uses.get(key):  # a call may run again for another one of its outputs
            frame.live.add(key)
            reasons = 1
        if len(self.frames) > 1:
            above = self.frames[-2]
            if frame.position >= frame.tape_from and above.uses.get(key) and key not in above.taped:
                above.taped.add(key)
                reasons += 1
            if frame.position == len(frame.order) - 1 and is_result:
                above.ahead.append(key)  # the state after the last step
                reasons += 1
        if self.values.is_wanted(key, reasons):
            buffers = (((key, 0), value.nbytes),) if type(node) is Projection else buffers_of(node)
            self.values.put(key, value, buffers)

    def _after(self, frame: Frame, operands: Sequence[Node]) -> None:
        """Evict what was read for the last time."""
        frame.leave(self.values, operands)
        self._look_if_due()

    def unpin(self, keys: list[int]) -> None:
        for key in keys:
            self.values.drop_reason(key)
        keys.clear()

    def _save(self, frame: Frame, unit: Node) -> None:
        """Save the state that a frame has reached."""
        keys = list(frame.live)
        for key in keys:
            self.values.add_reason(key)
        self.saved.append(Saved(unit.id, keys, self.frames[-2]))

    def _take(self, workspace: int) -> None:
        """Note that a unit is about to run. Where there is no room for it, what was only kept to save work goes."""
        taken = self._base + self._nbytes + workspace
        limit = taken if self._limit is None else self._limit
        over = taken - limit
        if over <= 0:
            if taken > self._ledger.peak or self._ledger.timeline is not None:
                self._ledger.note_peak(taken)
            return
        if self._lookout is not None:
            over -= self._lookout.drop()
        if over > 0:
            over -= self._let_go(over, keep=0)
        if over > 0:
            before = self._base
            self._free(over)
            over -= before - self._base
        if over > 0 and self._ledger.is_strict:
            raise no_room(self._ledger.limit, limit + over)
        self._ledger.note_peak(self._base + self._nbytes + workspace)

    # -- frames --

    def _push(self, missing: Sequence[Node], above: Frame | None) -> None:
        """Begin to compute values that are missing: put the frame that does it on top."""
        if above is not None:
            for node in missing:
                above.pinned.append(node.id)
                self.values.add_reason(node.id)
        frame = self.frame_for(missing, above)
        if not frame.order:
            return  # all of it was on disk
        for key in frame.uses:
            if key in self.values:
                frame.live.add(key)
                self.values.add_reason(key)
        if above is not None and self._room is not None:
            self._plan(frame, above, self._room)
        self.frames.append(frame)

    def frame_for(self, missing: Sequence[Node], above: Frame | None = None) -> Frame:
        """Return a frame for missing nodes of one level: all that they are made from and is not there.

        If something waits for them it is the lowest level among them, so that what is kept is kept for who waits.
        """
        if self._guard is not None:
            missing = [node for node in missing if self._from_disk(node) is None]
        stack = [unit_of(node) for node in missing]
        levels = [self._levels.of(unit) for unit in stack]
        own = [level for level in levels if level != ANY_LEVEL]
        level = 0 if not own else max(own) if above is None else min(own)
        found: dict[int, Node] = {}
        self._collect(
            [unit for unit, other in zip(stack, levels, strict=True) if other in (level, ANY_LEVEL)], level, found
        )
        if above is not None and len(found) > 1:
            self._widen(found, level, above)
        units = list(found.values())
        if above is not None:
            return Frame(self.units.arranged(units, self._order), level)
        return Frame(self.units.narrowest(units, list(self.targets))[0], level)

    def _busiest_of(self, frame: Frame) -> tuple[int, int]:
        """Return the most bytes of its own that the highest frame holds while it waits, and while a unit runs."""
        return self.units.widths(frame.order, list(self.targets))

    def _collect(
        self, stack: list[Node], level: int, found: dict[int, Node], known: Container[int] = (), most: int = -1
    ) -> bool:
        """Find units that are not there, down to what is cached, known or of a lower level; too many are given up."""
        on_disk = None if self._guard is None else self._from_disk
        return self._levels.collect(stack, level, found, known, most, self.values, on_disk)

    def _widen(self, found: dict[int, Node], level: int, above: Frame) -> None:
        """Add what the frame above will read too and what can be had on the way: branches off the same steps.

        If there is room for all that it reads, all of it is added: a reader that goes the way the loop went asks for
        one step after the other, and they run once for all of them.
        """
        keys, units = above.reads(level, self._levels.of)
        fits = self._has_room_for_all()
        for unit in units if fits else units[bisect_left(keys, min(found)) : bisect_left(keys, max(found))]:
            if unit.id not in found and any(
                above.uses.get(node.id) and self.find(node) is None for node in outputs_of(unit)
            ):
                branch: dict[int, Node] = {}
                if self._collect([unit], level, branch, found, -1 if fits else BRANCH):
                    found.update(branch)

    def _has_room_for_all(self) -> bool:
        """Whether all that the highest frame reads of a single level below can be kept for it."""
        need, limit = self.need, self._room
        if need is None or limit is None or not self._has_one_level_below:
            return False
        return self._base + need.overhead() + need.tape <= limit

    def _divide(self, marks: Marks) -> None:
        """Divide the work into the levels that begin at some marks."""
        self._marks = marks
        self._levels.divide(marks.begun)

    def _from_disk(self, node: Node) -> Any:
        """Return a value that was moved to disk; all that is in one file is held like a state that was saved."""
        found = None if self._guard is None or not self.frames else self._guard.fetch(node)
        if found is None:
            return None
        fresh = {key: value for key, value in found.items() if key not in self.values}
        for key, value in fresh.items():
            self.values.add_reason(key)
            self.values.put(key, value, (((key, 0), value.nbytes),))
        self.saved.append(Saved(node.id, list(fresh), self.frames[-1]))
        return self.values.get(node.id)

    def _plan(self, frame: Frame, above: Frame, limit: int) -> None:
        """Decide what a frame keeps: everything that the frame above reads, or its last block and states on the way."""
        need = Need(self.units, frame.order, above.uses, workspace_of(above.order[above.position]))
        if self._has_room_for_tape(need, limit):
            return
        self.unpin(above.recent)  # what the frame starts from of that is its own by now
        room = limit - self._base - self._nbytes - max(need.running(), self.still_to_come())
        if need.tape > room:
            room += self.reclaim(max([unit.id for unit in frame.order]), above, need.tape - room)
        if not self._has_one_level_below:
            room //= 2  # the other half is for frames of other levels
        if need.tape <= room or self._has_room_for_tape(need, limit):
            return
        least = need.step + need.state if self._is_careful else need.step
        if least > room:
            room += self._give_up(least - room, frame)
        if need.steps == 1:
            return
        if need.state + need.step > room:
            # A state here would be in the place of one that more steps start from.
            frame.tape_from = need.tail(room)
            return
        self.lay_out(frame, need, room)

    def lay_out(self, frame: Frame, need: Need, room: int) -> None:
        """Let a frame keep its last block, and save states on the way to it."""
        from unspool.checkpoint.binomial import checkpoints

        plan = need.plan_in(room)
        bounds = plan.bounds(need.steps)
        frame.tape_from = max(bounds[-2], need.tail(room - (plan.slots - 1) * need.state))
        frame.saves = {need.narrowest(bounds[block] - 1) for block in checkpoints(len(bounds) - 1, plan.slots)}

    # -- ahead --

    def can_look_ahead(self) -> bool:
        """Whether the highest frame alone is left, and reads steps of a single level below."""
        return len(self.frames) == 1 and self._has_one_level_below and self.need is not None and self.need.steps > 0

    def free_bytes(self) -> int:
        """Return how many bytes are left for what the highest frame does not take itself."""
        return (self._room or 0) - self._base - self._nbytes - self.still_to_come()

    def held_bytes(self) -> int:
        """Return how many bytes are held, and note that; those that were promised to a thread among them."""
        held = self._base + self._nbytes
        self._ledger.note_peak(held)
        return held

    def count(self, ran: Mapping[int, int], seconds: float) -> None:
        """Count units that ran elsewhere, given how many kernels each of them ran, by id."""
        self.runs += len(ran)
        self.kernels += sum(ran.values())
        self.seconds += seconds
        self._ran |= ran.keys()

    def _has_room_for_tape(self, need: Need, limit: int) -> bool:
        """Whether all that is read of a frame can be kept. The last of it is part of the state while the frame runs."""
        taken = max(need.whole, need.tape + self.still_to_come())
        return self._has_one_level_below and self._base + self._nbytes + taken <= limit

    def still_to_come(self) -> int:
        """Return how many bytes the highest frame will take at most, beside what it holds now."""
        frame = self.frames[0]
        live = self.values.nbytes_of(frame.live)
        return self._busiest - live - (0 if frame.chain is None else frame.chain.nbytes)

    def reclaim(self, identity: int, above: Frame, wanted: int, passed: int | None = None) -> int:
        """Evict what the backward pass has passed: what stands after a node. Return how many bytes that gave.

        States after it are of no use when all that is read after it is there. If that is still to be read, ``passed``
        is after that.
        """
        before = self._base + self._nbytes
        self._forget([saved for saved in self.saved if saved.owner is above and saved.after >= identity])
        identity = identity if passed is None else passed
        if len(self.frames) == 1 and self._has_one_level_below:
            # Nobody else comes back to what is held.
            if self._guard is not None:
                self._guard.forget_after(identity)
            waiting = {operand.id for frame in self.frames for operand in waited_for(frame)}
            for uses in (tuple([frame.uses for frame in self.frames]), None):
                if before - self._base - self._nbytes < wanted:
                    self._base -= self._ledger.drop_after(identity, waiting, uses)
        return before - self._base - self._nbytes

    def _give_up(self, wanted: int, frame: Frame) -> int:
        """Evict states that are still needed, as few as possible, and return how many bytes that gave."""
        before = self._base
        self._base -= self._ledger.free(wanted, frame.order[0].id, self._known)
        freed = before - self._base
        return freed + self._let_go(wanted - freed, keep=1)

    def _let_go(self, wanted: int, keep: int) -> int:
        """Evict what was kept to save work, states first, but so many of them; return how many bytes that gave.

        Before that goes what only a reader that goes the way the loop went would ask for again.
        """
        before = self._nbytes
        for frame in self.frames:
            if before - self._nbytes < wanted:
                self.unpin(frame.recent)
                self.unpin(frame.ahead)
        while before - self._nbytes < wanted and len(self.saved) > keep:
            # Every other one, so that the gaps between those that are left grow evenly.
            for saved in self.saved[-1 - keep :: -2]:
                if before - self._nbytes < wanted:
                    self._forget([saved])
        for frame in self.frames:
            if before - self._nbytes < wanted:
                self._forget_taped(frame, wanted - before + self._nbytes)
        return before - self._nbytes

    def _forget_taped(self, frame: Frame, wanted: int) -> None:
        """Evict so many bytes that were kept for a frame, what it reads last first."""
        goal = self._nbytes - wanted
        now = {operand.id for operand in waited_for(frame)}
        for unit in reversed(frame.order[frame.position :]):
            for operand in reversed(unit.inputs):
                if self._nbytes <= goal or not frame.taped:
                    return
                if operand.id in frame.taped and operand.id not in now:
                    frame.taped.remove(operand.id)
                    self.values.drop_reason(operand.id)


def _nothing() -> None:
    """Nobody looks on."""
