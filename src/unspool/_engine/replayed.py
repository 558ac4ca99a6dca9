"""The values that a replay keeps to itself, and the memory they take: what several of them share counts once.

A node whose op only looks at what it reads in another way takes no memory of its own, but keeps that of its operand
from being freed. Which memory a value takes follows from the graph, so a survey counts what a replay will.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from numpy import ndarray

from unspool._core import unit_of
from unspool._engine.costs import nbytes
from unspool._fragments.call import Call, Projection
from unspool._graph import Node
from unspool._ops.layout.reshaping import BROADCAST_TO, PERMUTE
from unspool._ops.op import PART

# Some memory, by the node and the output that it was made for, and its bytes.
Buffer: TypeAlias = tuple[tuple[int, int], int]


def is_view(node: Node) -> bool:
    """Whether the value of a node is always a view of what it reads, whatever layout that has."""
    op = node.op
    return op is PART or op is BROADCAST_TO or op is PERMUTE or op.renames


def buffers_of(node: Node) -> tuple[Buffer, ...]:
    """Return the memory that the value of a node takes: of its own, or that of what it is a view of.

    The output of a call counts in full: what it is made of is not there.
    """
    while type(node) is not Projection and node.op is not PART and is_view(node):
        node = node.inputs[0]
        if not node.inputs:
            return ()  # a leaf is the user's
    if type(node) is not Projection and node.op is PART:
        index = node.attributes["index"]
        return (((node.inputs[0].id, index), nbytes(node.shape, node.dtype)),)
    return own_buffers(node)


def own_buffers(node: Node) -> tuple[Buffer, ...]:
    """Return the memory that the value of a node takes that is no view."""
    if isinstance(node.dtype, tuple):
        pairs = zip(node.shape, node.dtype, strict=True)
        return tuple([((node.id, i), nbytes(shape, dtype)) for i, (shape, dtype) in enumerate(pairs)])
    return (((node.id, 0), nbytes(node.shape, node.dtype)),)


class Memory:
    """Counts bytes in use: each buffer once, from when the first value is in it until the last one has gone."""

    __slots__ = ("_users", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self._users: dict[tuple[int, int], int] = {}

    def take(self, buffers: Iterable[Buffer]) -> None:
        """Count a value that is in some buffers."""
        users = self._users
        for key, size in buffers:
            before = users.get(key, 0)
            users[key] = before + 1
            if not before:
                self.nbytes += size

    def is_alone(self, buffers: Iterable[Buffer] | None) -> bool:
        """Whether no other value is in the buffers of one that is counted."""
        return buffers is not None and all(self._users[key] == 1 for key, _ in buffers)

    def give(self, buffers: Iterable[Buffer]) -> None:
        """Note that a value is gone."""
        users = self._users
        for key, size in buffers:
            left = users.pop(key) - 1
            if left:
                users[key] = left
            else:
                self.nbytes -= size


class Values:
    """Values by the ids of their nodes. Each is there as long as there is a reason for it.

    Attributes
    ----------
    memory : Memory
        What they take.
    """

    __slots__ = ("_buffers", "_reasons", "_values", "memory")

    def __init__(self) -> None:
        self.memory = Memory()
        self._values: dict[int, Any] = {}
        self._buffers: dict[int, tuple[Buffer, ...]] = {}
        self._reasons: dict[int, int] = {}

    def __contains__(self, key: int) -> bool:
        return key in self._values

    def of(self, nodes: Sequence[Node]) -> list[Any]:
        """Return the values of nodes: their own, one that is here, or what their call keeps; None if there is none."""
        known = self._values
        # Looked at once: another thread may evict values at any time.
        values = [known.get(node.id) if (value := node.value) is None else value for node in nodes]
        for i, value in enumerate(values):
            if value is None and type(node := nodes[i]) is Projection:
                call = unit_of(node)
                slab = call.value
                if slab and type(call) is Call:
                    position = call.plan.fragment.slab.get(node.output)
                    values[i] = None if position is None else slab[position]
        return values

    def get(self, key: int) -> Any:
        """Return a value, or None if it is not there."""
        return self._values.get(key)

    def is_wanted(self, key: int, more: int = 0) -> bool:
        """Whether there is a reason to have a value, which is not there yet; there may be so many more."""
        reasons = self._reasons.get(key, 0) + more
        if more:
            self._reasons[key] = reasons
        return reasons > 0 and key not in self._values

    def put(self, key: int, value: Any, buffers: tuple[Buffer, ...]) -> None:
        """Put in a value for which there is a reason."""
        self._values[key] = value
        self._buffers[key] = buffers
        self.memory.take(buffers)

    def is_spare(self, key: int) -> bool:
        """Whether a value is there for one reason, and alone in its memory: who has the reason may overwrite it."""
        value = self._values.get(key)
        return (
            type(value) is ndarray
            and self._reasons[key] == 1
            and self.memory.is_alone(self._buffers[key])
            and value.base is None
            and value.flags.writeable
            and value.flags.c_contiguous
        )

    def add_reason(self, key: int) -> None:
        """Add a reason to have a value, now or when it comes."""
        self._reasons[key] = self._reasons.get(key, 0) + 1

    def drop_reason(self, key: int) -> None:
        """Take a reason away; with the last one the value goes."""
        left = self._reasons[key] - 1
        if left:
            self._reasons[key] = left
            return
        del self._reasons[key]
        if self._values.pop(key, None) is not None:
            self.memory.give(self._buffers.pop(key))

    def let_part_go(self, key: int, index: int) -> None:
        """Let an output go that is not read from a bundle any more, if there is a single reason for the bundle."""
        parts = self._values.get(key)
        if parts is not None and self._reasons[key] == 1:
            self._values[key] = (*parts[:index], None, *parts[index + 1 :])
            gone = tuple([buffer for buffer in self._buffers[key] if buffer[0][1] == index])
            self._buffers[key] = tuple([buffer for buffer in self._buffers[key] if buffer[0][1] != index])
            self.memory.give(gone)

    def nbytes_of(self, keys: Iterable[int]) -> int:
        """Return the bytes that some of the values take."""
        return sum(dict(self._buffers_of(keys)).values())

    def _buffers_of(self, keys: Iterable[int]) -> Iterator[Buffer]:
        for key in keys:
            yield from self._buffers.get(key, ())
