"""The line of steps: what was evaluated, in order, and the values that are held of it.

A *boundary* is a place between two steps. Its state is every value made before it and used after it, so every value
belongs to a stretch of boundaries, and states share values. A value is held as long as one boundary of its stretch is
kept. Which boundary to evict is decided by `unspool.checkpoint.online`: the one whose loss costs the backward pass
least, per byte it frees.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from unspool._core import Held, Slab, hold, live_entries, note_reads, release, stretches
from unspool._engine.memory.cached import TINY, Loose, is_left
from unspool._engine.memory.clock import Clock
from unspool._fragments.call import Call
from unspool._graph import Node
from unspool._ops.hints import KEEP, is_kept
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._core import Piece
    from unspool._engine.memory.guard import Guard
    from unspool._engine.plan import Plan

# Of more boundaries than this, one in so many goes at a time.
_SHARE = 256

# Steps that are young: pieces wait about so long to be folded.
_YOUNG = 128


class Line:
    """Steps in the order in which they were evaluated.

    Attributes
    ----------
    now : int
        How many there are: the newest boundary.
    boundaries : list of int
        Those that are kept; the first is where the line starts.
    clock : Clock
        The time that the steps before each boundary take in all.
    latest : set of id
        What the newest step made.
    held : dict
        Records of the values that are held, by id.
    died : int
        The bytes of values that were evicted and whose memory was freed by that: nobody else had it.
    """

    def __init__(self) -> None:
        self.now = 0
        self.boundaries: list[int] = [0]
        self.clock = Clock()
        self.latest: set[int] = set()
        self.died = 0
        self._ids = array("q")
        self._steps: deque[list[ref[Node]] | ref[Call]] = deque()  # what refers to what is left of each
        self.held: dict[int, Held] = {}

    # -- placing steps --

    def place_loose(self, step: Loose) -> None:
        """Place a step that is not a call at the end of the line."""
        note_reads(self.held, step.read, self.now, 1)
        nodes = [node for node in [reference() for reference in step.nodes] if node is not None]
        self._end_step(nodes, max([node.id for node in nodes], default=0), None)
        self._steps.append(step.nodes)

    def place_steps(self, steps: Sequence[Call | Piece]) -> list[Slab]:
        """Place calls that ran at the end of the line, and pieces that are not folded: their nodes have the values.

        Returns what they keep for derivatives.
        """
        held, ids, now = self.held, self._ids, self.now
        last = ids[-1] if ids else 0
        slabs: list[Slab] = []
        plans: list[Plan | None] = []
        for step in steps:
            slab = Slab(step)
            if isinstance(step, Call):
                note_reads(held, step.inputs, now, 1)
                outputs: list[Any] = step.handles
                plan, count = step.plan, len(outputs)
                self._steps.append(ref(step))
            else:
                # What its nodes refer to is counted when it is asked for: they may die.
                note_reads(held, step.inputs, now, 0)
                outputs, plan, count = step.outputs, step.site.plan, step.site.results
                step.slab = slab
                self._steps.append(outputs)
            self.latest = hold(held, outputs, count, now, TINY)
            last = max(slab.identity, last)
            ids.append(last)
            plans.append(plan)
            slabs.append(slab)
            now += 1
        self._go_on_to(now, plans)
        return slabs

    def refer(self, operands: Sequence[Node | int]) -> None:
        """Note that one tuple more refers to values."""
        note_reads(self.held, operands, -1, 1)

    def _end_step(self, nodes: list[Any], identity: int, plan: Plan | None) -> None:
        self.latest = hold(self.held, nodes, len(nodes), self.now, TINY)
        self._ids.append(max(identity, self._ids[-1] if self._ids else 0))
        self._go_on_to(self.now + 1, [plan])

    def _go_on_to(self, now: int, plans: Sequence[Plan | None]) -> None:
        """Note the boundaries up to one, given the plans of the steps between them."""
        self.boundaries += range(self.now + 1, now + 1)
        self.now = now
        self.clock.add(plans)

    # -- looking --

    def __len__(self) -> int:
        return len(self.held)

    @property
    def steps(self) -> int:
        """How many steps there are of which something is left."""
        return len(self._steps)

    def entries(self) -> list[Held]:
        """Return what is held, and forget what is not any more."""
        return live_entries(self.held)

    def state_bytes(self) -> int:
        """Return what a step adds to what is held, on average."""
        alive = self.entries()
        return sum([entry.nbytes for entry in alive]) // max(1, len({entry.made for entry in alive}))

    def place_of(self, identity: int) -> int:
        """Return the boundary before the step whose node has an id."""
        return bisect_left(self._ids, identity)

    # -- evicting --

    def drop_unread(
        self, wanted: int, first: int, read: Container[int], references: Mapping[int, int], guard: Guard | None
    ) -> int:
        """Evict what was made from a boundary on and nobody reads any more, if that gives so many bytes; return them.

        Nobody does if it is not among what is ``read``, nor referred to more often than ``references`` tells. If it is
        too little, it stays: steps are to run again then, from states.
        """
        unread: list[Held] = []
        for key, entry in list(self.held.items()):
            if entry.made < first or key in read or key in self.latest or entry.is_referenced(references.get(key, 0)):
                continue
            node = entry.node()
            if node is not None and node.value is not None and not is_kept(node):
                unread.append(entry)
        if sum([entry.nbytes for entry in unread]) < wanted:
            return 0
        died = self.died
        for entry in unread:
            if self.died - died < wanted:
                self.let_go([entry], guard)
        return self.died - died

    def rewind(self, identity: int) -> None:
        """Forget the boundaries after a node: the backward pass has passed them."""
        now = min(self.now, bisect_left(self._ids, identity) + 1)
        for _ in range(min(self.now - now, len(self._steps))):  # the oldest ones may have died
            self._steps.pop()
        self.now = now
        del self._ids[now:]
        self.clock.rewind(now)
        del self.boundaries[bisect_right(self.boundaries, now) :]

    def end_sweep(self) -> None:
        """Note that the backward pass is over: what it has left of the steps it passed belongs to no boundary now."""
        for entry in self.held.values():
            if entry.made >= self.now:
                entry.made = entry.last = self.now - 1

    def let_go(self, entries: Iterable[Held], guard: Guard | None) -> int:
        """Evict values, and return how many bytes that gives, now or when what shares their memory has gone too."""
        entries = list(entries)
        if guard is not None:
            for node in [entry.node() for entry in entries]:
                if node is not None and node.value is not None:
                    guard.before_drop(node)
            node = None
        freed, died = release(self.held, entries)
        self.died += died
        return freed

    def give_up_boundaries(
        self,
        wanted: int,
        newest: int,
        block: int,
        references: Mapping[int, int] | None,
        guard: Guard | None,
        spare: int = 0,
        *,
        surely: bool = False,
        is_free: bool = False,
    ) -> tuple[int, int]:
        """Evict boundaries, none after ``newest``, until so many bytes are free.

        Parameters
        ----------
        block : int
            How many steps the backward pass keeps the values of at once.
        references : mapping of id to int, or None
            How often nodes that are known refer to each value. What is referred to more often belongs to the newest
            state. With None nobody is asked.
        guard : Guard or None
            Is told what goes.
        spare : int
            How many bytes more are welcome where that costs nothing.
        surely : bool
            Whether bytes count only when they are free: memory that values share is not free before the last has gone.
        is_free : bool
            Whether only boundaries go that cost nothing.

        Returns
        -------
        freed, given_up : int
            How many bytes that gave, and how many boundaries it took.
        """
        self._forget_dead()
        values = self._stretches(references, newest, 0 if is_free else _YOUNG)
        freed = given_up = 0
        died = self.died
        while freed < wanted:
            line = np.array(self.boundaries)
            first, end = line.searchsorted(values.made, "right"), line.searchsorted(values.last, "right")
            (idle,) = (first == end).nonzero()
            if len(idle):
                freed += self.let_go([values.entries[i] for i in idle], guard)
                freed = self.died - died if surely else freed
                values = values.without(idle)
                continue
            # The start costs nothing, and the newest state is where the loop goes on.
            fixed = (line == line[0]) | (line == line[-1]) | (line > newest)
            gains = _gains(first, end, values.nbytes, fixed)
            if not gains.any():
                break
            if is_free:
                gone = _inside_blocks(line, gains, block, wanted - freed)
            else:
                gone = self._choose(line, gains, block, wanted - freed, spare)
            if not gone:
                break
            if guard is not None:
                for boundary in gone:
                    state = [values.entries[i] for i in ((first <= boundary) & (boundary < end)).nonzero()[0]]
                    guard.give_up(state, int(line[boundary]), self.clock.times, len(line))
            self.boundaries = np.delete(line, gone).tolist()
            given_up += len(gone)
        return freed, given_up

    def _choose(self, line: Any, gains: Any, block: int, wanted: int, spare: int) -> list[int]:
        """Return which boundaries to evict. The backward pass keeps the values of a block of steps, so blocks count.

        Those inside of blocks go first. Of the others, one is chosen at a time, or a small share of very many.
        """
        from unspool.checkpoint.online import choose_removal, removal_costs

        if close := _inside_blocks(line, gains, block, wanted + spare):
            return close
        most = max(1, len(line) // _SHARE)
        # Behind the last one that may go lies the newest block, whose values are there.
        count = int(gains.nonzero()[0][-1]) + 2
        line, gains = line[:count], gains[:count]
        places = np.concatenate(([0], np.cumsum(-(-np.diff(line) // block))))
        times = np.interp(np.arange(places[-1] + 2), places, np.asarray(self.clock.times)[line]).tolist()
        end = int(places[-1]) + 1
        if most == 1:
            return [choose_removal(places.tolist(), end, freed=gains.tolist(), times=times)]
        costs = np.full(count, np.inf)
        np.divide(removal_costs(places.tolist(), end, times=times), gains, out=costs, where=gains > 0)
        gone: list[int] = []
        for candidate in np.argsort(costs, kind="stable")[: 2 * most].tolist():
            if wanted <= 0 or len(gone) == most or not np.isfinite(costs[candidate]):
                break
            if candidate - 1 not in gone and candidate + 1 not in gone:
                gone.append(candidate)
                wanted -= gains[candidate]
        return gone

    def _forget_dead(self) -> None:
        """Forget the beginning of the line if the graph it belonged to has died: the line starts later then."""
        steps = self._steps
        while steps and not is_left(steps[0]):
            steps.popleft()
        start = self.now - len(steps)
        self.boundaries = [start, *self.boundaries[bisect_right(self.boundaries, start) :]]

    def _stretches(self, references: Mapping[int, int] | None, newest: int, young: int) -> _Stretches:
        """Return what was made before a boundary, and in so many young steps: that may hold nothing used later."""
        found = stretches(self.held, newest, self.now, self.now - young, self.latest, references, KEEP)
        return _Stretches(found[0], *[np.frombuffer(column, np.int64) for column in found[1:]])


def _gains(first: Any, end: Any, nbytes: Any, fixed: Any) -> Any:
    """Return how many bytes giving up each boundary frees, except ``fixed`` ones.

    Value i is needed by boundaries from ``first[i]`` to before ``end[i]``, and goes with the last of them. If no single
    boundary frees anything, each one is given its share of all that it needs and that can go.
    """
    stays = np.concatenate(([0], np.cumsum(fixed)))
    can_go = stays[end] == stays[first]
    first, end, nbytes = first[can_go], end[can_go], nbytes[can_go]
    alone = end - first == 1
    gains = np.bincount(first[alone], nbytes[alone], len(fixed))
    if not gains.any():
        share = nbytes / (end - first)
        gains = np.cumsum(np.bincount(first, share, len(fixed) + 1) - np.bincount(end, share, len(fixed) + 1))[:-1]
        gains[fixed | (gains < 1)] = 0  # less than a byte is what rounding left
    return gains


def _inside_blocks(line: Any, gains: Any, block: int, wanted: int) -> list[int]:
    """Return boundaries, the oldest first, whose neighbours lie within one block of each other.

    They cost nothing: a block is run once, whether there is a boundary inside of it or not.
    """
    (candidates,) = ((line[2:] - line[:-2] <= block) & (gains[1:-1] > 0)).nonzero()
    candidates += 1
    places = line.tolist()
    gone: list[int] = []
    before = -1
    for i in candidates.tolist():
        if wanted <= 0:
            break
        # The one before it that stays: several in a row may go.
        start = places[i - 1] if not gone or gone[-1] != i - 1 else before
        if places[i + 1] - start <= block:
            gone.append(i)
            before = start
            wanted -= gains[i]
    return gone


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
