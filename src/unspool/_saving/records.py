"""The records of a graph: what a file says of nodes, one after the other.

Nodes have numbers, in the order of their records. A record refers to a node by how many numbers back it is, or by 0 for
the one that stood at the same place in the last record of its kind; so a step of a loop takes a few bytes. Later
records may say that something has changed: a tensor is an output of a call now, a piece is not waiting any more.
"""

from __future__ import annotations

from typing import Any

from unspool._saving.vocabulary import CallKind, PieceKind, Recipe

(
    ENTRY,
    NODE,
    CALL,
    OUTPUT,
    FOLDED,
    PIECE,
    STAYS,
    EVALUATED,
    INLINE,
    STORED,
    PARTS,
    LEVEL,
    NAME,
    ROOT,
    FILE,
    DROPPED,
    LEAF,
    HISTORY,
) = range(1, 19)

# In the byte of flags that a record of a node has.
WAS_EVALUATED, IS_SEED = 1, 2


class NodeRecord:
    """A node with an op: a leaf, or what was made from others by number."""

    __slots__ = ("id", "inputs", "is_evaluated", "is_seed", "recipe")

    def __init__(self, id: int, recipe: Recipe, inputs: tuple[int, ...], flags: int) -> None:
        self.id, self.recipe, self.inputs = id, recipe, inputs
        self.is_evaluated = bool(flags & WAS_EVALUATED)
        self.is_seed = bool(flags & IS_SEED)


class CallRecord:
    """A call of a plan."""

    __slots__ = ("depth", "id", "inputs", "kind")

    def __init__(self, id: int, kind: CallKind, depth: int, inputs: tuple[int, ...]) -> None:
        self.id, self.kind, self.depth, self.inputs = id, kind, depth, inputs


class OutputRecord:
    """A tensor that is an output of a call."""

    __slots__ = ("call", "id", "index", "is_evaluated")

    def __init__(self, id: int, call: int, index: int, is_evaluated: bool) -> None:
        self.id, self.call, self.index, self.is_evaluated = id, call, index, is_evaluated

    @property
    def inputs(self) -> tuple[int, ...]:
        """What it is made from: the call."""
        return (self.call,)


class PieceRecord:
    """A piece that was evaluated, with its outputs by number; None for those that had died."""

    __slots__ = ("depth", "inputs", "is_waiting", "kind", "outputs")

    def __init__(self, kind: PieceKind, depth: int, inputs: tuple[int, ...], outputs: tuple[int | None, ...]) -> None:
        self.kind, self.depth, self.inputs, self.outputs = kind, depth, inputs, outputs
        self.is_waiting = True


Record = NodeRecord | CallRecord | OutputRecord

# What a value is in a file: an array that stands there, or where it is stored: (file, group, row).
Value = Any
