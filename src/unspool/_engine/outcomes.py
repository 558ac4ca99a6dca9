"""Why what was evaluated was not described as a piece, by the line that asked: a note for whoever explains it later.

Only what takes the slow way is noted, so a loop that is recognised pays nothing for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from enum import Enum

from unspool._graph import Node

# Lines that are remembered.
_MOST_LINES = 1 << 12


class Why(Enum):
    """Why a pass was not described as a piece."""

    ONE_OPERATION = "one operation"
    READS_CALLS = "reads calls that have no value"
    TOO_LARGE = "more operations than a piece may have"
    NOT_REPEATED = "many operations, which do not repeat"
    STAND_INS = "reads stand-ins of a function that is being differentiated"
    MANY_INPUTS = "an operation with very many inputs"
    HELD_FACTORS = "reads or gives a factorisation as a whole"
    MANY_STRUCTURES = "a line that always shows another structure"


class Outcomes:
    """The last reason for each line of the user's program that asked, and for those that recorded what it asked for.

    The oldest lines leave first.
    """

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[int, int], Why] = OrderedDict()
        self._beside: OrderedDict[tuple[int, int], Why] = OrderedDict()

    def note(self, target: Node, why: Why, order: Iterable[Node]) -> None:
        """Note why what a line asked for, which is some nodes, was not described."""
        key = id(target.code), target.line
        if self._asked.get(key) is why:
            return
        self._asked[key] = why
        for node in order:
            self._beside[id(node.code), node.line] = why
        for lines in (self._asked, self._beside):
            while len(lines) > _MOST_LINES:
                lines.popitem(last=False)

    def asked(self, node: Node) -> Why | None:
        """Return why what the line of a node asked for last was not described, if it was not."""
        return self._asked.get((id(node.code), node.line))

    def beside(self, node: Node) -> Why | None:
        """Return why something that the line of a node recorded was not described, if another line asked for it."""
        return self._beside.get((id(node.code), node.line))

    def clear(self) -> None:
        """Forget all lines."""
        self._asked.clear()
        self._beside.clear()
