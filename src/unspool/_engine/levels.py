"""Levels: what a derivative sweep built is one level above what it differentiated.

Nodes are told apart by their ids alone: a sweep that begins puts a mark into the order of ids.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from unspool._graph import Node, next_id
from unspool._sweeps import begin_sweep, end_sweep

# Marks that are remembered; the oldest are forgotten, and what lies between them counts as one level.
_MOST_MARKS = 1 << 14


class _Marks(threading.local):
    """The marks of a thread: where in the order of ids its own sweeps began, and whether one is going on."""

    def __init__(self) -> None:
        self.own: list[int] = []
        self.is_sweeping = False


class Levels:
    """Where in the order of ids sweeps began: what was made after a mark is one level above what was there before.

    Threads record nodes side by side, so each goes by the marks of its own sweeps. One that has made none evaluates
    what others recorded, and goes by all marks.
    """

    def __init__(self) -> None:
        self._all: list[int] = []
        self._thread = _Marks()

    @property
    def marks(self) -> list[int]:
        """The marks that the current thread goes by, in the order of ids."""
        return self._thread.own or self._all

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
        self.mark()
        self._thread.is_sweeping = True
        try:
            yield
        finally:
            self._thread.is_sweeping = False
            end_sweep(next_id())

    def mark(self) -> None:
        """Begin a level."""
        place = next_id()
        for marks in (self._all, self._thread.own):
            marks.append(place)
            if len(marks) > _MOST_MARKS:
                del marks[: _MOST_MARKS // 2]

    def of(self, node: Node) -> int:
        """Return the level of a node."""
        return bisect_right(self.marks, node.id)

    def floor(self, node: Node) -> int:
        """Return the id at which the level of a node begins."""
        level = self.of(node)
        return self.marks[level - 1] if level else 0
