"""The values that a replay keeps to itself, and the memory they take: what several of them share counts once.

A node whose op only looks at what it reads in another way takes no memory of its own, but keeps that of its operand
from being freed. Which memory a value takes follows from the graph, so a survey counts what a replay will.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from numpy import ndarray

from unspool._core import ValuesBase
from unspool._engine.costs import nbytes
from unspool._engine.references import AS_AN_ARGUMENT, IN_A_LIST_AND_A_VARIABLE, count_references
from unspool._fragments.call import Projection
from unspool._graph import Node
from unspool._ops.indexing.repeated import POSITIONS
from unspool._ops.layout.reshaping import BROADCAST_TO, PERMUTE, RESHAPE
from unspool._ops.op import PART

# Some memory, by the node and the output that it was made for, and its bytes.
Buffer: TypeAlias = tuple[tuple[int, int], int]


def is_view(node: Node) -> bool:
    """Whether the value of a node is always a view of what it reads, whatever layout that has."""
    op = node.op
    return op is PART or op is BROADCAST_TO or op is PERMUTE or names_again(node)


def names_again(node: Node) -> bool:
    """Whether the value of a node is that of its first input, under another name or in another shape."""
    return node.op.renames or (node.op is RESHAPE and _is_in_order(node.inputs[0]))


def _is_in_order(node: Node) -> bool:
    """Whether the elements of a value surely lie in memory one after the other, or equally far from each other."""
    if len(node.shape) < 2 or node.op is POSITIONS:
        return True
    if type(node) is Projection or node.op is not PART or not node.inputs[0].op.stepwise:
        return False
    is_stack: bool = node.inputs[0].attributes["chain"].is_stack(node.attributes["index"])
    return is_stack


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


def is_seen(array: ndarray) -> bool:
    """Whether somebody else has an array, or a view of it, than the values of a replay and the arguments of a kernel.

    Which nodes share memory does not follow from the graph alone: what a kernel returns may be a view of what it reads.
    """
    owner = array.base
    if owner is not None and count_references(owner) > IN_A_LIST_AND_A_VARIABLE:
        return True
    return count_references(array) > AS_AN_ARGUMENT + 1


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

    def give(self, buffers: Iterable[Buffer]) -> None:
        """Note that a value is gone."""
        users = self._users
        for key, size in buffers:
            left = users.pop(key) - 1
            if left:
                users[key] = left
            else:
                self.nbytes -= size


class Values(ValuesBase):
    """Values by the ids of their nodes. Each is there as long as there is a reason for it.

    Attributes
    ----------
    nbytes : int
        The memory they take: each buffer once.
    """

    __slots__ = ()

    def is_spare(self, key: int) -> bool:
        """Whether a value is there for one reason, and alone in its memory: who has the reason may overwrite it."""
        value, buffers = self.get(key), self.buffers(key)
        return (
            type(value) is ndarray
            and buffers is not None
            and self.are_own(buffers)
            and (value.base is None or (type(value.base) is ndarray and value.base.base is None))
            and value.flags.writeable
            and value.flags.c_contiguous
        )

    def let_part_go(self, key: int, index: int) -> None:
        """Let an output go that is not read from a bundle any more, if there is a single reason for the bundle."""
        parts, buffers = self.get(key), self.buffers(key)
        if buffers is not None:
            gone = tuple([buffer for buffer in buffers if buffer[0][1] == index])
            self.replace(key, (*parts[:index], None, *parts[index + 1 :]), gone)
