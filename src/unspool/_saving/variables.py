"""The variables that a run began with: in the file, and in the program that goes on with it.

Both are found in the same order, by age: it is the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool._core import Journal
from unspool._graph import Node
from unspool._ops.leaf import PLACEHOLDER, TENSOR
from unspool._saving.reader import GraphReader
from unspool._saving.writer import tensors_in


class Numbered:
    """Stands for the nodes of a file when a nesting is read to see which it has."""

    def __init__(self, reader: GraphReader) -> None:
        self._count = len(reader.nodes)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        return _Number(number)


class _Number(int):
    """The number of a node, where other numbers may stand too."""


def numbers_in(tree: Any) -> list[int]:
    """Return the numbers of nodes in a nesting that was read with `Numbered`."""
    found, stack = [], [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, _Number):
            found.append(int(part))
        elif isinstance(part, list | tuple):
            stack += part
        elif isinstance(part, dict):
            stack += part.values()
    return found


def leaf_numbers(reader: GraphReader, roots: Sequence[int]) -> list[int]:
    """Return the variables that some nodes are made from, oldest first."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        number = stack.pop()
        if number not in seen:
            seen.add(number)
            stack += reader.nodes[number].inputs
    return sorted(seen & reader.leaves.keys(), key=lambda number: reader.nodes[number].id)


def leaves_of(tree: Any) -> list[Node]:
    """Return the variables that tensors are made from, oldest first."""
    found, _ = Journal().collect(tensors_in(tree))
    return [node for node in found if node.op is TENSOR or node.op is PLACEHOLDER]


def contents(leaf: Node) -> bytes:
    """Return the bytes of what a leaf holds."""
    return b"" if leaf.value is None else leaf.value.tobytes()
