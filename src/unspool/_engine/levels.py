"""Levels: what a derivative sweep built is one level above what it differentiated.

Nodes are told apart by their ids alone: a sweep that begins puts a mark into the order of ids.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TypeVar

from unspool._graph import Node, next_id
from unspool._locks import local
from unspool._records import NamedTuple
from unspool._sweeps import begin_sweep, end_sweep

_Place = TypeVar("_Place")

# Marks that are remembered; the oldest are forgotten, and what lies between them counts as one level.
_MOST_MARKS = 1 << 14

# Levels, and sweeps, that have no more than this part of all kernels may be parts of a loop: its steps take gradients.
_PART = 8


class Marks(NamedTuple):
    """Where in the order of ids levels begin, and the ids between which sweeps made nodes."""

    begun: Sequence[int] = ()
    sweeps: Sequence[tuple[int, int]] = ()

    def dividing(self, keys: Iterable[int]) -> Marks:
        """Return those of the marks that divide nodes with some ids; others are of what was done before."""
        places = sorted(keys)
        cuts = {bisect_left(places, first): first for first in self.begun}
        return self._replace(begun=[first for cut, first in cuts.items() if 0 < cut < len(places)])

    def joined(self, work: Mapping[int, int]) -> Marks:
        """Return marks of fewer levels, given how many kernels the nodes with some ids run.

        A loop that takes a gradient in every step begins levels in each, and so does a backward pass through it. What a
        gradient in a step reads is read within the step, so all of them may be one level: the steps of a loop.
        """
        keys = sorted(work)
        sums = [0, *accumulate([work[key] for key in keys])]
        most = sums[-1] // _PART

        def is_large(first: int, end: int) -> bool:
            return sums[bisect_left(keys, end)] - sums[bisect_left(keys, first)] > most

        sweeps = [sweep for sweep in self.sweeps if is_large(*sweep)]
        kept: list[int] = []
        before: int | None = None
        for first, end in pairwise((0, *self.begun, keys[-1] + 1 if keys else 0)):
            # What lies in one large sweep is one part, and what lies between them, unless it is large itself.
            part = next((start for start, stop in sweeps if start <= first < stop), -1)
            if part < 0 and is_large(first, end):
                part = first
            if first and (part != before or part == first):
                kept.append(first)
            before = part
        return self._replace(begun=kept)


class _Marks(local):
    """The marks of a thread: where in the order of ids its own sweeps began, and whether one is going on."""

    def __init__(self) -> None:
        self.own: list[int] = []
        self.sweeps: list[tuple[int, int]] = []
        self.is_sweeping = False


class Levels:
    """Where in the order of ids sweeps began: what was made after a mark is one level above what was there before.

    Threads record nodes side by side, so each goes by the marks of its own sweeps. One that has made none evaluates
    what others recorded, and goes by all marks.
    """

    def __init__(self) -> None:
        self._all: list[int] = []
        self._sweeps: list[tuple[int, int]] = []
        self._thread = _Marks()

    @property
    def marks(self) -> list[int]:
        """The marks that the current thread goes by, in the order of ids."""
        return self._thread.own or self._all

    def now(self) -> Marks:
        """Return the marks that the current thread goes by, with its sweeps."""
        own = self._thread.own
        return Marks(own, self._thread.sweeps) if own else Marks(self._all, self._sweeps)

    @property
    def is_sweeping(self) -> bool:
        """Whether the current thread is inside of a sweep."""
        return self._thread.is_sweeping

    @contextmanager
    def sweep(self) -> Iterator[None]:
        """Begin a level for a derivative sweep; a sweep inside another one (a rule that transposes) begins none."""
        if self._thread.is_sweeping:
            yield
            return
        begin_sweep(next_id())
        first = self._mark()
        self._thread.is_sweeping = True
        try:
            yield
        finally:
            self._thread.is_sweeping = False
            end = next_id()
            end_sweep(end)
            for sweeps in (self._sweeps, self._thread.sweeps):
                _append(sweeps, (first, end))

    def mark(self) -> None:
        """Begin a level."""
        self._mark()

    def _mark(self) -> int:
        place = next_id()
        _append(self._all, place)
        _append(self._thread.own, place)
        return place

    def of(self, node: Node) -> int:
        """Return the level of a node."""
        return bisect_right(self.marks, node.id)

    def floor(self, node: Node) -> int:
        """Return the id at which the level of a node begins."""
        level = self.of(node)
        return self.marks[level - 1] if level else 0

    def floors(self, order: Sequence[Node]) -> list[int]:
        """Return the ids at which the levels of some nodes begin; those of steps that take gradients are one level."""
        marks = self.marks
        first, last = (order[0].id, order[-1].id) if order else (0, 0)
        begun = marks[bisect_left(marks, first) : bisect_right(marks, last)]
        if len(begun) > _PART:
            begun = list(Marks(begun, self.now().sweeps).joined({node.id: 1 for node in order}).begun)
        return [0, *begun]


class Numbering:
    """What the steps of loops are numbered by for users: the levels of the default engine, once there is one."""

    levels = Levels()


def _append(places: list[_Place], place: _Place) -> None:
    """Append a place to those that are remembered."""
    places.append(place)
    if len(places) > _MOST_MARKS:
        del places[: _MOST_MARKS // 2]
