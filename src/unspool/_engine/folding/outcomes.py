"""Why what was evaluated was not described as a piece, by the line that asked: a note for whoever explains it later.

Only what takes the slow way is noted, so a loop that is recognised pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from unspool._engine.folding.by_line import ByLine
from unspool._graph import Node


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
    """The last reason for each line of the user's program that asked, and for those that recorded what it asked for."""

    def __init__(self) -> None:
        self._asked: ByLine[Why] = ByLine()
        self._beside: ByLine[Why] = ByLine()

    def note(self, target: Node, why: Why, order: Iterable[Node]) -> None:
        """Note why what a line asked for, which is some nodes, was not described."""
        if self._asked.get(target) is why:
            return
        self._asked.put(target, why)
        # A loop has many nodes of few places.
        for node in {(id(node.code), node.lasti): node for node in order}.values():
            self._beside.put(node, why)

    def asked(self, node: Node) -> Why | None:
        """Return why what the line of a node asked for last was not described, if it was not."""
        return self._asked.get(node)

    def beside(self, node: Node) -> Why | None:
        """Return why something that the line of a node recorded was not described, if another line asked for it."""
        return self._beside.get(node)

    def clear(self) -> None:
        """Forget all lines."""
        self._asked.clear()
        self._beside.clear()
