"""Levels: what a derivative sweep built is one level above what it differentiated.

Nodes are told apart by their ids alone: a sweep that begins puts a mark into the order of ids.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from unspool._graph import Node
from unspool._graph import _next_id as next_id

# Marks that are remembered; the oldest are forgotten, and what lies between them counts as one level.
_MOST_MARKS = 1 << 14


class Levels:
    """Where in the order of ids sweeps began: what was made after a mark is one level above what was there before."""

    def __init__(self) -> None:
        self.marks: list[int] = []
        self._thread = threading.local()

    @contextmanager
    def sweep(self) -> Iterator[None]:
        """Begin a level for a derivative sweep; a sweep inside another one (a rule that transposes) begins none."""
        if getattr(self._thread, "is_sweeping", False):
            yield
            return
        self.mark()
        self._thread.is_sweeping = True
        try:
            yield
        finally:
            self._thread.is_sweeping = False

    def mark(self) -> None:
        """Begin a level."""
        self.marks.append(next_id())
        if len(self.marks) > _MOST_MARKS:
            self.marks = self.marks[_MOST_MARKS // 2 :]

    def of(self, node: Node) -> int:
        """Return the level of a node."""
        return bisect_right(self.marks, node.id)

    def floor(self, node: Node) -> int:
        """Return the id at which the level of a node begins."""
        level = self.of(node)
        return self.marks[level - 1] if level else 0
