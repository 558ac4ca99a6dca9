"""What makes two pieces the same, and which may be described at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from unspool._autodiff.identity import ALIAS
from unspool._fragments.call import Projection
from unspool._graph import Node
from unspool._ops.leaf import PLACEHOLDER, made_of_nothing

# A node with more inputs than this gathers the steps of a loop.
_MOST_INPUTS = 64


def can_be_sealed(order: list[Node]) -> bool:
    """Whether a piece may be described and run by a plan."""
    # An alias is an identity of its own, which a description would lose; a placeholder has no value to run on. What has
    # very many inputs (a chain of steps, a stack of them) is not the body of a loop.
    return not any(node.op is ALIAS or node.op is PLACEHOLDER or len(node.inputs) > _MOST_INPUTS for node in order)


def structure_of(order: list[Node], kept: list[Node]) -> tuple[tuple[Any, ...], list[Node]]:
    """Return what makes two pieces the same, and the nodes at the inputs of this one."""
    position: dict[int, int] = {}
    inputs: list[Node] = []
    tokens: list[Any] = []
    for i, node in enumerate(order):
        for operand in node.inputs:
            if operand.id not in position:
                position[operand.id] = ~len(inputs)
                inputs.append(operand)
            tokens.append(position[operand.id])
        tokens.append(node.op.code)
        if node.params:
            tokens.append(tuple(node.params.items()))
        position[node.id] = i
    tokens += [position[node.id] for node in kept]
    tokens += [is_constant(i) for i in inputs]
    return (*tokens, *[i.shape for i in inputs], *[i.dtype for i in inputs]), inputs


def is_constant(node: Node) -> bool:
    """Whether a node at an input is a constant, or was computed from parameters alone."""
    return type(node) is not Projection and not node.inputs and made_of_nothing(node)


class Apart(NamedTuple):
    """What of a piece is made of constants alone.

    It belongs to no program: every one that writes the same down finds the same node.

    Attributes
    ----------
    slots : frozenset of int
        Where the description of the piece has it.
    results : frozenset of int
        Which results of the piece it is.
    constants : frozenset of int
        The inputs that it reads.
    """

    slots: frozenset[int]
    results: frozenset[int]
    constants: frozenset[int]


def find_apart(order: Sequence[Node], kept: Sequence[Node], slots: Mapping[int, int]) -> Apart:
    """Find what of a piece is made of constants alone; ``slots`` are those of its description, by id."""
    found: set[int] = set()
    read: set[int] = set()
    for node in order:
        if all(operand.id in found or is_constant(operand) for operand in node.inputs):
            found.add(node.id)
            read.update(slots[operand.id] for operand in node.inputs if operand.id not in found)
    results = frozenset(i for i, node in enumerate(kept) if node.id in found)
    return Apart(frozenset(slots[key] for key in found), results, frozenset(read))
