"""A table with an entry for each line of the user's program."""

from __future__ import annotations

from collections import OrderedDict
from types import CodeType
from typing import Generic, TypeVar

from unspool._graph import Node

_Entry = TypeVar("_Entry")

# Lines that are remembered.
_MOST_LINES = 1 << 12


class ByLine(Generic[_Entry]):
    """Entries by the line that recorded a node. The lines that were entered first leave first.

    A line is told by its code object, which is kept with the entry: if it died, the code of another function might get
    its identity and be taken for it.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[int, int], tuple[CodeType | None, _Entry]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, node: Node) -> _Entry | None:
        """Return the entry of the line that recorded a node, ``None`` if there is none."""
        found = self._entries.get((id(node.code), node.line))
        return None if found is None else found[1]

    def put(self, node: Node, entry: _Entry) -> None:
        """Enter something for the line that recorded a node, in place of what was there."""
        self._entries[id(node.code), node.line] = (node.code, entry)
        while len(self._entries) > _MOST_LINES:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        """Forget all lines."""
        self._entries.clear()
