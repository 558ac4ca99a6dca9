"""What the engine holds, and what it evicts when that is more than the budget.

Values are a cache beside the graph: one that is evicted is recomputed when it is asked for. So this module decides
about cost only, never about results. The newest steps keep everything, because the backward pass begins with them: a
block of steps whose length `unspool.checkpoint.planner` knows. Of older steps the *slabs* go first, what they keep for
derivatives, oldest first. Then states go (`timeline`).

Nothing is looked at before the budget is reached: until then a step costs one addition. What is held then is found
by its calls, which the intern table knows; from then on steps are noted as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import ref

from unspool._core import Held, LedgerBase, Slab, add_piece, add_values, held_after
from unspool._engine.memory.allowance import no_room, usable
from unspool._engine.memory.cached import (
    TINY,
    Loose,
    drop_unread,
    graph_bytes,
    is_alive,
    kept_residuals,
    record_bytes,
    references_of,
)
from unspool._fragments.call import Call, live_calls
from unspool._locks import RLock
from unspool._ops.hints import KEEP
from unspool._statistics import STATISTICS

if TYPE_CHECKING:
    from unspool._core import Piece
    from unspool._engine.memory.guard import Guard
    from unspool._engine.memory.replay import Replay
    from unspool._engine.memory.requirement import Need
    from unspool._engine.memory.timeline import Line
    from unspool._engine.plan import Plan

# When room is made, a little more is made than needed, so that it is not made at every step: at most this share.
_MARGIN = 16

# Of what is held, one value in so many goes at a time, and it is counted at least once in so many times for each.
_MANY = 32
_SELDOM = 8

# What the record of a step takes, with what a backward pass notes of it; at most a share of the budget. Beside a small
# budget it is not counted: the process itself comes and goes by megabytes.
_RECORD = 1 << 12
_RECORDS = 8
_SMALL = 1 << 24

# Steps that are noted before those of graphs that have died are forgotten.
_CROWD = 1 << 10


class Ledger(LedgerBase):
    """What is held of the steps that were evaluated, and what became of the rest.

    Attributes
    ----------
    limit : int
        The budget in bytes.
    ceiling : int
        How much of it values may take: almost all but the records of steps.
    noted : int
        Bytes held, as far as they were noted: not less than what is held.
    is_strict : bool
        Whether the user gave the budget. A budget of our own choosing is exceeded rather than refused.
    has_dropped : bool
        Whether anything was ever evicted.
    steps, kernels : int
        Evaluations that were worth noting, and how many kernels they ran.
    runs, distinct, kernels_again : int
        Units that were run again or just in time, how many different ones, and how many kernels that were.
    seconds : float
        What that took.
    evictions, slabs_dropped : int
        States that were evicted, and slabs.
    peak : int
        The most bytes that were held at once.
    need : Need or None
        What the longest evaluation within the budget took.
    pool : object with submit, or None
        Threads that recompute steps while others are reversed.
    """

    def __init__(self, limit: int, waiting: Callable[[], Iterator[Piece]]) -> None:
        self.set_limit(limit)
        self.noted = 0
        self.is_strict = self.has_dropped = self._is_busy = False
        self.steps = self.kernels = self.evictions = self.slabs_dropped = self.peak = 0
        self.runs = self.distinct = self.kernels_again = 0
        self.seconds = 0.0
        self.need: Need | None = None
        self.guard: Guard | None = None
        self.pool: Any = None
        self.timeline = None
        self.lock = RLock()
        self._line: Line | None = None
        self.held = {}
        self._waiting = waiting
        self.is_tracking = False
        self.arrived = []
        self.crowd = _CROWD
        self._slabs: deque[Slab] = deque()
        self._kept: list[Slab] = []
        self._newest: Plan | None = None
        self.newest_call = None

    def set_limit(self, limit: int) -> None:
        """Set the budget."""
        self.limit = limit
        self.ceiling = usable(limit)
        self._looked_at = self._countdown = self._patience = 0
        self._slab_size = self._state_size = 0
        self._block = 1

    @property
    def line(self) -> Line:
        """The steps that were noted and what is held of them; it begins with the first that is."""
        return self._begin_line() if self._line is None else self._line

    def _begin_line(self) -> Line:
        from unspool._engine.memory.timeline import Line

        with self.lock:
            if self._line is None:
                self._line = Line()
                self.held = self._line.held
            return self._line

    # -- noting --

    def enter(self, step: Call | Piece | Loose) -> None:
        """Note a step that was evaluated; its bytes have been noted already.

        It is only looked at later: who calls this may hold other locks.
        """
        if isinstance(step, Loose):
            self.arrived.append(step)
        elif self.is_tracking or not isinstance(step, Call):
            self.arrived.append(ref(step))  # other calls are found when it matters
        if len(self.arrived) > self.crowd:
            self.arrived = [step for step in self.arrived if is_alive(step)]
            self.crowd = max(_CROWD, 2 * len(self.arrived))

    def track(self) -> None:
        """Find what is held, and note steps from now on as they come."""
        with self.lock:
            if not self.is_tracking:
                self.is_tracking = True
                calls = [ref(call) for call in live_calls() if call.value is not None]
                self.arrived = sorted(filter(is_alive, calls + self.arrived), key=_identity)

    def stop_tracking(self) -> None:
        """Forget the line; what is held stays held."""
        with self.lock:
            self.is_tracking = False
            self.arrived = []
            self._line, self.held = None, {}
            self._slabs.clear()
            self._kept.clear()
            for piece in self._waiting():
                piece.slab = None

    def _look_at_arrived(self) -> None:
        self.track()
        arrived, self.arrived = self.arrived, []
        steps: list[Call | Piece] = []
        for step in arrived:
            if isinstance(step, Loose):
                self._place(steps)
                steps = []
                self.line.place_loose(step)
                continue
            found = step()
            if found is not None and (type(found) is Call or found.slab is None):
                steps.append(found)
        self._place(steps)

    def _place(self, steps: Sequence[Call | Piece]) -> None:
        """Place steps at the end of the line."""
        self._slabs += [slab for slab in self.line.place_steps(steps) if slab.is_there]
        call = next((step for step in reversed(steps) if type(step) is Call), None)
        if call is not None:
            self.newest_call = ref(call)

    def place_waiting(self) -> None:
        """Place the pieces that wait to be folded on the line."""
        with self.lock:
            self._look_at_arrived()
            fresh = [piece for piece in self._waiting() if piece.slab is None and not piece.is_loose]
            self._place(fresh)

    def fold_loose(self, call: Call) -> None:
        """Note that a step was folded that had been noted node by node."""
        if self.is_tracking:
            self.line.refer(call.inputs)
            if call.value:
                self._kept.append(Slab(call))

    # -- counting --

    def held_bytes(self) -> int:
        """Count what is held, each array once."""
        with self.lock:
            self._look_at_arrived()
            arrays: dict[int, int] = {}
            add_values(arrays, self.held)
            self._slabs = deque([slab for slab in self._slabs if slab.add_to(arrays)])
            self._kept = [slab for slab in self._kept if slab.add_to(arrays)]
            # What one keeps may be a view of what another has made.
            for piece in self._waiting():
                if piece.slab is None and not piece.is_loose:
                    add_piece(arrays, piece)
            total = sum(arrays.values())
            self._note(total)
            return total

    def slab_bytes(self) -> int:
        """Count the bytes of residuals that calls keep."""
        return sum(Slab(call).nbytes for call in live_calls() if call.value)

    def record_bytes(self) -> int:
        """Return the bytes of the record of one step, as far as is known: those of the newest call or piece."""
        call = None if self.newest_call is None else self.newest_call()
        if call is not None:
            return record_bytes(call)
        piece = next(iter(list(self._waiting())[-1:]), None)
        return 0 if piece is None else graph_bytes(piece)

    def _note(self, total: int) -> None:
        self.noted = max(total, self.limit) if self._is_busy else total

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Take all that is free of the budget for the block: steps of other threads wait until it ends."""
        with self.lock:
            before, self._is_busy = self._is_busy, True
            try:
                yield
            finally:
                self._is_busy = before
                if not before:
                    self.line.end_sweep()
                self.held_bytes()

    def add_replay(self, work: Replay, *, is_done: bool = True) -> None:
        """Note what an evaluation within the budget did; one that is not done begins anew, with the same steps."""
        self.runs += work.runs
        self.distinct += work.distinct if is_done else 0
        self.kernels_again += work.kernels
        self.seconds += work.seconds
        if work.need is not None and (self.need is None or work.need.steps > self.need.steps):
            self.need = work.need
        self.held_bytes()

    # -- evicting --

    def make_room(self, plan: Plan | None = None, needed: int = 0) -> int:
        """Evict values until there is room for a step; called when what was noted leaves none. Return what is held.

        That is not what is noted while a replay runs, to which all that is free belongs.

        Parameters
        ----------
        plan : Plan, optional
            Of the step.
        needed : int
            Bytes it takes, if there is no plan.

        Raises
        ------
        BudgetError
            If there is no room even when all that can go is gone, and the user has set the budget.
        """
        with self.lock:
            self._newest = plan or self._newest
            total = self._count_now_and_then()
            if total > self.ceiling:
                total = self.held_bytes()  # what was noted is no less than what is held, and may be more
            self.note_peak(total)
            workspace = max(needed, 0 if self._newest is None else self._newest.peak_bytes)
            goal = self.ceiling - workspace
            if total <= goal:
                return total
            self.place_waiting()
            self._leave_room_for_records()
            goal = self.ceiling - workspace
            self._choose_block(workspace)
            # Each time takes time in proportion to how much is held, so of much more goes at a time: of what is inside
            # of blocks, and at the end of the newest one. What the backward pass would miss goes in smaller parts.
            newest = self.line.now
            block = self._block - self._block // _MANY
            state, step, most = self._state_size, self._state_size + self._slab_size, self.limit // _MARGIN
            many = max(4, max(len(self.line.boundaries), len(self._slabs)) // _MANY)
            enough = goal - min(many * step, most)
            spare = min(len(self.line) // _MANY * step, most)
            references = self._references()
            total = self._drop_oldest(total, enough, block, references, lambda _: self._in_one_go)
            total = self._drop_slabs(total, min(enough, goal - spare), block)
            surely = total + self.line.died
            if total > goal:
                # States inside of blocks cost nothing. If that is not enough, the block is too long for what it takes,
                # and is cut short before states go that steps would have to run more often for.
                total = self._drop_states(total, enough, newest - block, references, spare, is_free=True)
                if self._slab_size:
                    total = self._drop_slabs(total, goal, max(1, block // 2))
            if total > goal:
                total = self._drop_states(total, goal - min(many * state, most), newest - block, references, spare)
            total = max(total, surely - self.line.died)
            if total > goal:
                total = self._drop_slabs(self.held_bytes(), enough, 1)
                self._drop_states(total, enough, newest, references, surely=True)
                total = self.held_bytes()
                if total > goal:
                    self._drop_states(total, goal, newest, None, surely=True)
                    total = self.held_bytes()
            self.noted = total
            if total > goal and self.is_strict:
                raise no_room(self.limit, total + workspace)
            return total

    def _count_now_and_then(self) -> int:
        """Return what is held at most. Counting takes time in proportion to how much that is."""
        self._countdown -= 1
        if self._countdown > 0:
            return self.noted
        noted = self.noted
        total = self.held_bytes()
        # What was noted is more than what is held if values have died. If none have, the next look can wait longer.
        is_exact = noted - total <= self._state_size + self._slab_size
        self._patience = min(2 * self._patience + 1, len(self.line) // _SELDOM) if is_exact else 0
        self._countdown = self._patience
        return total

    def _leave_room_for_records(self) -> None:
        """Lower the ceiling as steps become more."""
        if self.limit >= _SMALL:
            records = min(self.line.steps * _RECORD, self.limit // _RECORDS)
            self.ceiling = min(self.ceiling, self.limit - records)

    def _choose_block(self, workspace: int) -> None:
        """Choose how many of the newest steps keep everything; that follows from how many steps there are."""
        now = self.line.now
        if now > self._looked_at + self._looked_at // 8:
            state = self._state_size = max(1, self.line.state_bytes())
            if not self._slab_size and self._slabs:  # none was evicted yet
                self._slab_size = self._slabs[0].nbytes
            tape = state + self._slab_size
            room = self.ceiling - workspace - tape
            from unspool.checkpoint.planner import online_block

            self._block = online_block(now, room, state, tape) if state + tape < room else 1
            self._looked_at = now

    @property
    def _in_one_go(self) -> int:
        """How many steps run again in one go: the backward pass has a little less room for a block."""
        return self._block - self._block // 8

    def free(
        self,
        wanted: int,
        identity: int | None = None,
        known: Mapping[int, int] | None = None,
        block_of: Callable[[int], int] | None = None,
    ) -> int:
        """Evict some of what is held, before a node if one is given: the backward pass needs room to work there.

        ``known`` tells how often the nodes of the backward pass refer to what is held, and ``block_of`` of how many
        steps at once it can run so many again. Returns how many bytes that gave.
        """
        with self.lock:
            before = held = self.held_bytes()
            if identity is not None:
                self.line.rewind(identity)
            goal = before - wanted
            references = self._references()
            if known is not None:
                for key, count in known.items():
                    references[key] = references.get(key, 0) + count
                held -= self._drop_unread(wanted, known, references)
            total = held if block_of is None else self._drop_oldest(held, goal, 1, references, block_of)
            total = self._drop_slabs(total, goal, 1)
            # What a variable holds, or a step that is still to run, goes last.
            total = self._drop_states(total, goal, self.line.now, references)
            self._drop_states(total, goal, self.line.now, None, surely=True)
            return before - self.held_bytes()

    def _references(self) -> dict[int, int]:
        """Return how often nodes of pieces that wait refer to what is held: they ask for nothing."""
        return references_of(list(self._waiting()))

    def drop_after(self, identity: int, waited_for: Container[int], uses: tuple[dict[int, int], ...] | None) -> int:
        """Evict what was made after the node with an id; return how many bytes that gave.

        What is waited for stays, what the newest step made, and what is referred to more often than ``uses`` tells, if
        that is not None: how often frames still read each node, by id.
        """
        with self.lock:
            self._look_at_arrived()
            freed = self._let_go(held_after(self.line.held, identity, waited_for, self.line.latest, uses, KEEP))
            while self._slabs and self._slabs[-1].identity > identity:
                freed += self._drop_slab(self._slabs.pop())
            self._note(self.noted - freed)
            self.line.rewind(identity)
            return freed

    def _let_go(self, entries: list[Held]) -> int:
        self.has_dropped |= bool(entries)
        return self.line.let_go(entries, self.guard)

    def _drop_slabs(self, total: int, goal: int, left: int) -> int:
        """Evict slabs until what is held fits, oldest first, but not the newest: backward passes begin there."""
        slabs = self._slabs
        dropped: list[Slab] = []
        while total > goal and len(slabs) > left:
            slab = slabs.popleft()
            freed = slab.drop(kept_residuals, KEEP, TINY)
            dropped.append(slab)
            total -= freed
            if freed:
                self._slab_size = freed
                self.slabs_dropped += 1
                STATISTICS.slabs_dropped += 1
        self._kept += [slab for slab in dropped if slab.is_there]
        self.has_dropped |= bool(dropped)
        return total

    def _drop_unread(self, wanted: int, read: Mapping[int, int], references: Mapping[int, int]) -> int:
        """Evict what steps keep and a backward pass does not read; the steps need not run again for it."""
        freed = 0
        for slab in self._slabs:
            if freed < wanted:
                freed += drop_unread(slab, read)
        if freed < wanted and self._slabs:
            first = self.line.place_of(self._slabs[0].identity)
            freed += self.line.drop_unread(wanted - freed, first, read, references, self.guard)
        self.has_dropped |= bool(freed)
        return freed

    def _drop_oldest(
        self, total: int, goal: int, left: int, references: Mapping[int, int], block_of: Callable[[int], int]
    ) -> int:
        """Let the oldest steps go as long as they run again in one go: their slabs, and the states between them.

        A step whose slab is gone runs again in any case. So where states take more than slabs do, few steps run again.
        """
        line, slabs = self.line, self._slabs
        while total > goal:
            oldest = line.place_of(slabs[0].identity) if slabs else line.now
            again = oldest - line.boundaries[0]
            block = block_of(again)
            if block < again or 2 * again > line.now - line.boundaries[0]:
                break  # a plan that runs most steps again may be short of what it did not see
            freed, given_up = line.give_up_boundaries(
                total - goal,
                oldest,
                block,
                references,
                self.guard,
                surely=True,
                is_free=True,
            )
            self.evictions += given_up
            self.has_dropped |= bool(freed)
            total -= freed
            if len(slabs) <= left:
                break
            half = max(goal, total - (total - goal) // 2 - 1)
            total = self._drop_slabs(total, half, max(left, len(slabs) - max(1, len(slabs) // _MANY)))
        return total

    def _drop_slab(self, slab: Slab) -> int:
        freed = slab.drop(kept_residuals, KEEP, TINY)
        if slab.is_there:
            self._kept.append(slab)
        if freed:
            self._slab_size = freed
            self.has_dropped = True
            self.slabs_dropped += 1
            STATISTICS.slabs_dropped += 1
        return freed

    def _drop_states(
        self,
        total: int,
        goal: int,
        newest: int,
        references: Mapping[int, int] | None,
        spare: int = 0,
        *,
        surely: bool = False,
        is_free: bool = False,
    ) -> int:
        """Evict states, none after ``newest``, until what is held fits; up to ``spare`` more if it costs nothing."""
        if total <= goal:
            return total
        freed, given_up = self.line.give_up_boundaries(
            total - goal, newest, self._in_one_go, references, self.guard, spare, surely=surely, is_free=is_free
        )
        self.evictions += given_up
        self.has_dropped |= bool(freed)
        return total - freed


def _identity(step: Any) -> int:
    """Return where in the order of ids a step stands."""
    found = step if type(step) is Loose else step()
    if isinstance(found, Call):
        return found.id
    references = () if found is None else found.nodes if isinstance(found, Loose) else found.outputs
    return max((node.id for node in [reference() for reference in references] if node is not None), default=0)
