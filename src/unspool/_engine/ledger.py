"""What the engine holds, and what it lets go when that is more than the budget.

Values are a cache beside the graph: one that is let go is computed again when it is asked for. So this module decides
about cost only, never about results. Arrays that derivatives need, the *slabs* of calls, go first, oldest first. Then
states go. Evaluated steps form a line; a *boundary* is a place between two of them, and its state is every value made
before it and used after it. A state that is held saves running the steps before it again. States share values: each
value lives over a stretch of the line, is counted once, and is let go when no boundary that is kept lies in its
stretch. Which boundary to give up is decided by `unspool.checkpoint.online`: the one whose loss costs the reverse sweep
least, per byte it frees.

Nothing is looked at before the budget is reached: until then a step costs one addition.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import compress
from sys import getrefcount, getsizeof
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np

from unspool._engine.planning import nbytes
from unspool._engine.sizes import format_bytes
from unspool._engine.statistics import STATISTICS
from unspool._fragments.call import Call
from unspool._fragments.residuals import kept_outputs
from unspool._graph import Node
from unspool._ops.hints import is_kept
from unspool.checkpoint.online import choose_removal
from unspool.checkpoint.planner import online_block
from unspool.errors import BudgetError

if TYPE_CHECKING:
    from unspool._engine.guard import Guard
    from unspool._engine.plan import Plan
    from unspool._engine.sealing import Piece
    from unspool._engine.replay import Need, Replay

# Arrays of at most so many bytes are not worth letting go: the objects around them are larger.
TINY = 256

# When room is made, a little more is made than needed, so that it is not made at every step: at most this share.
_MARGIN = 16

# Pieces that may stay unfolded when room is made.
_LEFT_WAITING = 0

# Samples of a timeline; when there are more, every other one is dropped.
_MOST_SAMPLES = 1 << 13

# Steps that are noted before those of graphs that have died are forgotten.
_CROWD = 1 << 16

# References to a node inside `Held.is_referenced`: a variable and the argument of getrefcount.
_OWN_REFERENCES = 2


class Held:
    """A value that is held: where on the line of steps it was made and last used, and how many tuples refer to it."""

    __slots__ = ("last", "made", "nbytes", "node", "uses")

    def __init__(self, node: Node, made: int) -> None:
        self.node = ref(node)
        self.nbytes: int = node.value.nbytes
        self.made = made
        self.last = made
        self.uses = 0

    def is_alive(self) -> bool:
        """Whether there is something to let go."""
        node = self.node()
        return node is not None and node.value is not None

    def is_referenced(self, known: int = 0) -> bool:
        """Whether something refers to the node beside the steps that used it and some that are known.

        That is a variable of the user's, or graph that may still run.
        """
        node = self.node()
        return getrefcount(node) > _OWN_REFERENCES + self.uses + known


class Loose:
    """A step that is not a call: nodes whose values are held, and the nodes it read."""

    __slots__ = ("nbytes", "nodes", "read")

    def __init__(self, nodes: Iterable[Node], read: Iterable[int]) -> None:
        self.nodes = [ref(node) for node in nodes]
        self.nbytes = sum([node.value.nbytes for node in nodes if node.value is not None])
        self.read = tuple(read)


class Slab:
    """What a step keeps for its derivatives: with its call or, while it is not folded, with its nodes."""

    __slots__ = ("_call", "_nodes", "_piece", "identity", "nbytes")

    def __init__(self, step: Call | Piece) -> None:
        self._call: ref[Call] | None = None
        self._piece: ref[Piece] | None = None
        self._nodes: list[ref[Node]] = []
        if type(step) is Call:
            self.move_to(step)
        else:
            results = step.site.results
            shown = {id(reference()) for reference in step.outputs[:results]}
            self._piece = ref(step)
            self._nodes = [reference for reference in step.outputs[results:] if id(reference()) not in shown]
            self.nbytes = sum([node.value.nbytes for node in self._valued()]) + sum([x.nbytes for x in step.extra])
            self.identity = max([node.id for node in self._valued()], default=0)

    def move_to(self, call: Call) -> None:
        """Note that the step was folded."""
        self._call, self._piece, self._nodes = ref(call), None, []
        self.identity = call.id
        self.nbytes = slab_bytes(call) if call.value else 0

    def _valued(self) -> list[Node]:
        nodes = [reference() for reference in self._nodes]
        return [node for node in nodes if node is not None and node.value is not None and not is_kept(node)]

    def is_there(self) -> bool:
        """Whether there is something to let go."""
        call = None if self._call is None else self._call()
        if call is not None:
            return bool(self.nbytes) and bool(call.value)
        piece = None if self._piece is None else self._piece()
        return bool(self._valued()) or (piece is not None and bool(piece.extra))

    def drop(self) -> int:
        """Let it go, and return how many bytes that gave."""
        call = None if self._call is None else self._call()
        if call is not None:
            kept = kept_residuals(call.plan) if call.value else frozenset()
            call.value = tuple([value if i in kept else None for i, value in enumerate(call.value)]) if kept else ()
            self.nbytes, freed = 0, self.nbytes
            return 0 if kept else freed
        nodes = self._valued()
        freed = sum([node.value.nbytes for node in nodes])
        for node in nodes:
            node.value = None
        piece = None if self._piece is None else self._piece()
        if piece is not None and piece.extra:
            freed += sum([value.nbytes for value in piece.extra])
            piece.extra = ()
            piece.outputs = piece.outputs[: piece.site.results]
        return freed


class Ledger:
    """The line of steps that were evaluated and the values that are held of them.

    Attributes
    ----------
    limit : int
        The budget in bytes.
    noted : int
        Bytes held, as far as they were noted: not less than what is held.
    is_strict : bool
        Whether the user gave the budget. A budget of our own choosing is exceeded rather than refused.
    has_dropped : bool
        Whether anything was ever let go.
    steps, kernels : int
        Evaluations that were worth noting, and how many kernels they ran.
    runs, distinct, kernels_again : int
        Units that were run again or just in time, how many different ones, and how many kernels that were.
    seconds : float
        What that took.
    evictions : int
        States that were let go.
    peak : int
        The most bytes that were held at once.
    """

    def __init__(self, limit: int, waiting: Callable[[], Iterator[Piece]]) -> None:
        self.set_limit(limit)
        self.noted = 0
        self.is_strict = False
        self.has_dropped = False
        self.steps = self.kernels = self.evictions = self.peak = 0
        self.runs = self.distinct = self.kernels_again = 0
        self.seconds = 0.0
        self.need: Need | None = None
        self._newest: Plan | None = None
        self._newest_call: ref[Call] | None = None
        self.guard: Guard | None = None
        self.timeline: list[tuple[float, int]] | None = None
        self._waiting = waiting
        self._arrived: list[Any] = []
        self._crowd = _CROWD
        self.lock = threading.RLock()
        self._forget_line()

    def _forget_line(self) -> None:
        self._held: dict[int, Held] = {}
        self._slabs: deque[Slab] = deque()
        self._line: deque[Any] = deque()
        self._boundaries: list[int] = [0]
        self._times = array("d", [0.0])
        self._ids = array("q")
        self._now = 0
        self._looked_at = 0
        self._block = 1
        self._slab_size = 0
        self._latest: set[int] = set()

    def set_limit(self, limit: int) -> None:
        """Set the budget."""
        self.limit = limit
        self._looked_at = 0

    # -- noting --

    def enter(self, step: Call | Loose) -> None:
        """Note a step that was evaluated; its bytes have been noted already."""
        self._arrived.append(ref(step) if type(step) is Call else step)
        if len(self._arrived) > self._crowd:
            self._arrived = [step for step in self._arrived if type(step) is Loose or step() is not None]
            self._crowd = max(_CROWD, 2 * len(self._arrived))

    def _look_at_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for step in arrived:
            if type(step) is Loose:
                self._place_loose(step)
            elif (call := step()) is not None:
                self._place_call(call)
            else:
                continue
            self._line.append(step)

    def _place_call(self, call: Call) -> None:
        now = self._now
        self._newest_call = ref(call)
        held = self._held
        self._latest = set()
        for operand in call.inputs:
            entry = held.get(operand.id)
            if entry is not None:
                entry.last = now
                entry.uses += 1
        for reference in call.handles:
            node = None if reference is None else reference()
            if node is not None and node.value is not None and node.value.nbytes > TINY:
                held[node.id] = Held(node, now)
                self._latest.add(node.id)
        if call.value:
            self._slabs.append(Slab(call))
        self._end_step(call.id, call.plan.seconds)

    def _place_loose(self, step: Loose, seconds: float = 0.0) -> None:
        now = self._now
        self._latest = set()
        for key in step.read:
            entry = self._held.get(key)
            if entry is not None:
                entry.last = now
                entry.uses += 1
        identity = 0
        for reference in step.nodes:
            node = reference()
            if node is not None and node.value is not None and node.value.nbytes > TINY:
                self._held[node.id] = Held(node, now)
                self._latest.add(node.id)
                identity = node.id
        self._end_step(identity, seconds)

    def place_waiting(self, left: int) -> None:
        """Place pieces that wait to be folded on the line, all but the newest."""
        with self.lock:
            self._look_at_arrived()
            pieces = list(self._waiting())
            for piece in pieces[: len(pieces) - left]:
                if piece.slab is None:
                    self.place_piece(piece)

    def place_piece(self, piece: Piece) -> None:
        """Place a piece on the line that is not folded, not yet or not at all: its values are with its nodes."""
        results = piece.site.results
        nodes = [node for node in [reference() for reference in piece.outputs[:results]] if node is not None]
        step = Loose(nodes, ())
        with self.lock:
            self._look_at_arrived()
            for operand in piece.inputs:
                entry = self._held.get(operand.id)
                if entry is not None:
                    entry.last = self._now
            self._place_loose(step, piece.site.plan.seconds)
            self._line.append(step)
            piece.slab = Slab(piece)
            self._slabs.append(piece.slab)

    def fold_piece(self, slab: Slab, call: Call) -> None:
        """Note that a piece was folded that had been placed on the line before."""
        slab.move_to(call)
        self._newest_call = ref(call)
        for operand in call.inputs:
            entry = self._held.get(operand.id)
            if entry is not None:
                entry.uses += 1

    def _end_step(self, identity: int, seconds: float) -> None:
        self._now += 1
        self._ids.append(max(identity, self._ids[-1] if self._ids else 0))
        self._boundaries.append(self._now)
        # A step that was never timed counts little, but not nothing.
        self._times.append(self._times[-1] + max(seconds, 1e-7))

    # -- counting --

    def held_bytes(self) -> int:
        """Count what is held, each array once."""
        with self.lock:
            self._look_at_arrived()
            total = 0
            for key, entry in list(self._held.items()):
                node = entry.node()
                if node is None or node.value is None:
                    del self._held[key]
                else:
                    total += entry.nbytes
            self._slabs = deque(slab for slab in self._slabs if slab.is_there())
            total += sum(slab.nbytes for slab in self._slabs)
            total += sum(_piece_bytes(piece) for piece in self._waiting() if piece.slab is None)
            self.noted = total
            return total

    def slab_bytes(self) -> int:
        """Count the bytes of residuals that calls keep."""
        with self.lock:
            self._look_at_arrived()
            return sum(slab.nbytes for slab in self._slabs if slab.is_there())

    def note_peak(self, nbytes: int) -> None:
        """Note that so many bytes were in use at once."""
        if nbytes > self.peak:
            self.peak = nbytes
        timeline = self.timeline
        if timeline is not None:
            timeline.append((perf_counter(), nbytes))
            if len(timeline) > _MOST_SAMPLES:
                del timeline[1::2]

    def record_bytes(self) -> int:
        """Return the bytes of the record of one step, as far as is known: those of the newest call."""
        call = None if self._newest_call is None else self._newest_call()
        return 0 if call is None else _record_bytes(call)

    def add_replay(self, work: Replay) -> None:
        """Note what an evaluation within the budget did."""
        self.runs += work.runs
        self.distinct += work.distinct
        self.kernels_again += work.kernels
        self.seconds += work.seconds
        if work.need is not None and (self.need is None or work.need.steps > self.need.steps):
            self.need = work.need
        self.noted = self.held_bytes()

    # -- letting go --

    def make_room(self, plan: Plan | None = None, needed: int = 0) -> None:
        """Let values go until there is room for a step; called when what was noted leaves none.

        Raises
        ------
        BudgetError
            If there is no room even when all that can go is gone, and the user has set the budget.
        """
        if not self.lock.acquire(blocking=False):
            return  # another thread is at it, or runs through the line
        try:
            self._newest = plan or self._newest
            total = self.held_bytes()
            self.note_peak(total)
            _, step, workspace = self._sizes()
            workspace = max(workspace, needed)
            goal = self.limit - workspace
            if total <= goal:
                return
            self.place_waiting(_LEFT_WAITING)
            enough = goal - min(4 * step, self.limit // _MARGIN)
            self._choose_block()
            total = self._drop_slabs(self.held_bytes(), enough, self._block)
            total = self._drop_states(total, enough, self._now - self._block)
            total = self._drop_slabs(total, goal, 1)
            total = self._drop_states(total, goal, self._now)
            total = self._drop_states(total, goal, self._now, by_references=False)
            self.noted = total
            if total > goal and self.is_strict:
                raise _too_little(self.limit, total + workspace)
        finally:
            self.lock.release()

    def free(self, wanted: int, identity: int | None = None) -> int:
        """Let go of some of what is held, before a node if one is given: the reverse sweep needs room to work there.

        Returns how many bytes that gave.
        """
        with self.lock:
            before = self.held_bytes()
            if identity is not None:
                self._rewind(identity)
            goal = before - wanted
            total = self._drop_slabs(before, goal, 1)
            total = self._drop_states(total, goal, self._now, by_references=False)
            self.noted = total
            return before - total

    def _rewind(self, identity: int) -> None:
        """Forget the boundaries after a node: the reverse sweep has passed them."""
        now = min(self._now, bisect_left(self._ids, identity) + 1)
        for _ in range(self._now - now):
            self._line.pop()
        self._now = now
        del self._ids[now:], self._times[now + 1 :]
        del self._boundaries[bisect_right(self._boundaries, now) :]

    def _choose_block(self) -> None:
        """Guess how many steps the reverse sweep will keep at once; that follows from how many there are."""
        if self._now > self._looked_at + self._looked_at // 8:
            state, tape, workspace = self._sizes()
            room = self.limit - workspace - tape
            self._block = online_block(self._now, room, state, tape) if state + tape < room else 1
            self._looked_at = self._now

    def _sizes(self) -> tuple[int, int, int]:
        """Return what the state after a step takes, what its derivative needs, and what it takes to run it."""
        if self._newest is None:
            return 1, 1, 0
        steps = {entry.made for entry in self._held.values()}
        state = sum(entry.nbytes for entry in self._held.values()) // max(1, len(steps))
        return max(1, state), max(1, state + self._slab_size), self._newest.peak_bytes

    def _drop_slabs(self, total: int, goal: int, left: int) -> int:
        """Let slabs go until what is held fits, oldest first, but not the newest ones: the reverse sweep begins there."""
        slabs = self._slabs
        while total > goal and len(slabs) > left:
            total -= self._drop_slab(slabs.popleft())
        return total

    def _drop_states(self, total: int, goal: int, newest: int, *, by_references: bool = True) -> int:
        """Give up boundaries up to one until what is held fits.

        What is referred to from elsewhere belongs to the newest state.
        """
        if total <= goal:
            return total
        self._forget_dead()
        values = self._stretches(by_references)
        boundaries = self._boundaries
        while total > goal:
            line = np.array(boundaries)
            first, end = np.searchsorted(line, values.made, "right"), np.searchsorted(line, values.last, "right")
            idle = np.flatnonzero(first == end)
            if not len(idle):
                alone = end - first == 1
                freed = np.bincount(first[alone], weights=values.nbytes[alone], minlength=len(line))
                freed[[0, -1]] = 0  # the start costs nothing, and the newest state is where the loop goes on
                freed[line > newest] = 0
                if not freed.any():
                    break
                gone = self._choose(line, freed)
                if self.guard is not None:
                    inside = np.flatnonzero((first <= gone) & (gone < end))
                    state = [values.entries[i] for i in inside]
                    self.guard.give_up(state, boundaries[gone], self._times, len(boundaries))
                del boundaries[gone]
                self.evictions += 1
                idle = np.flatnonzero(alone & (first == gone))
            total -= self._let_go([values.entries[i] for i in idle])
            values = values.without(idle)
        return total

    def _choose(self, line: Any, freed: Any) -> int:
        """Return which boundary to give up. The reverse sweep keeps the values of a block of steps, so blocks count."""
        block = self._block - self._block // 8  # it has a little less room
        close = np.flatnonzero((line[2:] - line[:-2] <= block) & (freed[1:-1] > 0))
        if len(close):
            return int(close[0]) + 1  # the steps around it fit into one block, which is run once whether it is there or not
        # Behind the last one that may go lies the newest block, whose values are there.
        count = int(np.flatnonzero(freed)[-1]) + 2
        line, freed = line[:count], freed[:count]
        places = np.concatenate(([0], np.cumsum(-(-np.diff(line) // block))))
        times = np.interp(np.arange(places[-1] + 1), places, np.asarray(self._times)[line])
        return choose_removal(places, int(places[-1]) + 1, freed=freed, times=np.append(times, times[-1]))

    def _forget_dead(self) -> None:
        """Forget the beginning of the line if the graph it belonged to has died: the line starts later then."""
        line = self._line
        while line and not _is_alive(line[0]):
            line.popleft()
        start = self._now - len(line)
        self._boundaries = [start, *self._boundaries[bisect_right(self._boundaries, start) :]]

    def _stretches(self, by_references: bool) -> _Stretches:
        now = self._now
        known = _references(self._waiting()) if by_references else {}
        entries: list[Held] = []
        last: list[int] = []
        for key, entry in self._held.items():
            if entry.made < now and entry.is_alive() and not is_kept(entry.node()):  # type: ignore[arg-type]
                is_new = entry.made >= now - 1
                entries.append(entry)
                is_wanted = is_new or (by_references and entry.is_referenced(known.get(key, 0)))
                last.append(now if is_wanted else entry.last)
        made = np.array([entry.made for entry in entries], np.int64)
        return _Stretches(entries, made, np.array(last, np.int64), np.array([entry.nbytes for entry in entries]))

    def drop_after(self, identity: int, waiting: Container[int], protect: Callable[[Held], bool]) -> int:
        """Let go what was made after the node with an id; return how many bytes that gave.

        What is waited for, or protected, stays, and so does what the newest step made.
        """
        with self.lock:
            self._look_at_arrived()
            gone = []
            for entry in self._held.values():
                node = entry.node()
                if node is not None and node.id > identity and node.value is not None and not is_kept(node):
                    key = node.id
                    del node
                    if key not in waiting and key not in self._latest and not protect(entry):
                        gone.append(entry)
            freed = self._let_go(gone)
            while self._slabs:
                if self._slabs[-1].identity <= identity:
                    break
                freed += self._drop_slab(self._slabs.pop())
            self.noted -= freed
            self._rewind(identity)
            return freed

    def _drop_slab(self, slab: Slab) -> int:
        freed = slab.drop()
        if freed:
            self._slab_size = freed
            self.has_dropped = True
            STATISTICS.slabs_dropped += 1
        return freed

    def _let_go(self, entries: Sequence[Held]) -> int:
        freed = 0
        for entry in entries:
            node = entry.node()
            if node is None:
                continue
            if node.value is not None:
                if self.guard is not None:
                    self.guard.before_drop(node)
                node.value = None
                freed += entry.nbytes
            self._held.pop(node.id, None)
        self.has_dropped = True
        return freed


class _Stretches(NamedTuple):
    """Values that are held, as arrays: value i is needed at the boundaries from after ``made[i]`` to ``last[i]``."""

    entries: list[Held]
    made: Any
    last: Any
    nbytes: Any

    def without(self, gone: Any) -> _Stretches:
        """Return all but some."""
        left = np.ones(len(self.entries), bool)
        left[gone] = False
        return _Stretches(list(compress(self.entries, left)), self.made[left], self.last[left], self.nbytes[left])


def _references(pieces: Iterable[Piece]) -> dict[int, int]:
    """Count how often the nodes of pieces that wait refer to the nodes at their inputs and to their outputs."""
    known: dict[int, int] = {}
    for piece in pieces:
        plan = piece.site.plan
        outputs = [reference() for reference in piece.outputs]
        counts = _reference_counts(plan, tuple([node is not None for node in outputs]))
        for slot, operand in enumerate(piece.inputs):
            known[operand.id] = known.get(operand.id, 0) + counts[slot] + 1
        for slot, node in zip(plan.fragment.outputs, outputs, strict=False):
            if node is not None:
                known[node.id] = known.get(node.id, 0) + counts[slot]
    return known


def _reference_counts(plan: Plan, alive: tuple[bool, ...]) -> list[int]:
    """Count, for every slot of a plan, how often the nodes that outputs keep alive refer to it."""
    counts: list[int] | None = plan.derivatives.get(("references", alive))
    if counts is None:
        fragment = plan.fragment
        first = len(fragment.dtypes)
        counts = [0] * (first + len(fragment.body))
        wanted = set(compress(fragment.outputs, alive))
        for slot in reversed(range(first, len(counts))):
            if slot in wanted:
                for operand in fragment.body[slot - first].operands:
                    counts[operand] += 1
                    wanted.add(operand)
        plan.derivatives["references", alive] = counts
    return counts


def slab_bytes(call: Call) -> int:
    """Return the bytes that the residuals of a call take, without those that one of its live outputs holds too."""
    outputs, results = call.plan.fragment.outputs, call.plan.fragment.results
    handles = [reference is not None and reference() is not None for reference in call.handles]
    shown = set(compress(outputs[:results], handles))
    slab = zip(outputs[results:], call.value, strict=True)
    return sum(value.nbytes for slot, value in slab if value is not None and slot not in shown)


def kept_residuals(plan: Plan) -> frozenset[int]:
    """Return the positions in a slab of values that the user wants to be kept; see `unspool.keep`."""
    kept: frozenset[int] | None = plan.derivatives.get("kept")
    if kept is None:
        slab = plan.fragment.slab
        kept = plan.derivatives["kept"] = frozenset(slab[i] for i in kept_outputs(plan.fragment) if i in slab)
    return kept


def _record_bytes(call: Call) -> int:
    """Return the bytes of a call and the tensors that are its outputs."""
    parts: list[Any] = [call, call.key, call.inputs, call.handles, ref(call)]
    for reference in call.handles:
        node = None if reference is None else reference()
        if node is not None:
            parts += [node, reference, (call, 0)]
    return sum(map(getsizeof, parts))


def _is_alive(step: Loose | ref[Call]) -> bool:
    if type(step) is Loose:
        return any(node() is not None for node in step.nodes)
    return step() is not None  # type: ignore[operator]


def _piece_bytes(piece: Any) -> int:
    """Return the bytes of the values of a piece that waits to be folded."""
    nodes = [reference() for reference in piece.outputs]
    return sum(node.value.nbytes for node in nodes if node is not None and node.value is not None) + sum(
        value.nbytes for value in piece.extra
    )


def _too_little(limit: int, needed: int) -> BudgetError:
    error = BudgetError(
        f"what the program holds at this point and the next step take {format_bytes(needed)}, which is more than the "
        f"memory budget of {format_bytes(limit)}; nothing more can be let go. The least that works here is {needed} bytes"
    )
    error.least = needed
    return error
