"""The variables that a run began with: in the file, and in the program that goes on with it.

Both are found in the same order, by age: it is the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unspool._core import Journal
from unspool._graph import Node, describe, source_of
from unspool._ops.leaf import PLACEHOLDER, TENSOR
from unspool._saving.identity import remember
from unspool._saving.reader import GraphReader, Stored
from unspool._saving.states import Files
from unspool._saving.writer import tensors_in
from unspool.errors import ArgumentError


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


def bind(path: Path, files: Files, reader: GraphReader, inputs: Any, leaves: Sequence[Node]) -> None:
    """Let the variables that the run began with be those that are given."""
    numbers = leaf_numbers(reader, numbers_in(inputs))
    if len(numbers) != len(leaves):
        raise ArgumentError(
            f"the run in {path} began with {len(numbers)} variables, and run.start was given {len(leaves)}: "
            "it is another run. us.resume reads that run; to begin anew, remove the folder"
        )
    with files.opened(reader) as fetch:
        for number, leaf in zip(numbers, leaves, strict=True):
            value = reader.values.get(number)
            value = fetch(value) if isinstance(value, Stored) else value
            same = reader.aval(number) == (leaf.shape, leaf.dtype)
            if not same or (value is not None and value.tobytes() != contents(leaf)):
                raise ArgumentError(
                    f"the run in {path} began with other data: {describe(leaf)}, made at {source_of(leaf)}, "
                    "has other values. us.resume reads that run; to begin anew, remove the folder"
                )
            remember(leaf, reader.leaves[number])
