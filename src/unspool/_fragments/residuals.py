"""Which values inside a piece of graph its derivatives will need.

An op declares whether its derivative rules look at its inputs, at the positions among them, at its output, or at none
of these. What they look at is kept when the piece runs, beside its results, unless it is cheap to compute again. A user
can say otherwise: what is under `keep` is kept, what is under `cheap` or inside a function under `remat` is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unspool._graph import Bundle, Node
from unspool._ops.hints import CHEAP, KEEP, REMAT
from unspool._ops.op import INPUTS, OUTPUT, PART, POSITIONS, parts

if TYPE_CHECKING:
    from unspool._fragments.fragment import Fragment


def residual_nodes(order: Sequence[Node], results: Sequence[Node] = ()) -> list[Node]:
    """Return the nodes of a piece that derivative rules look at, as far as they are not cheap to compute again.

    A cheap value is computed again from what it is made of, so that has to be kept, if it is not cheap itself; unless
    the value is a result, which is there anyway: to keep it takes nothing. A factorisation keeps all its parts.
    """
    shown = {node.id for node in results}
    inside = {node.id for node in order}
    wanted = [node.inputs[0] for node in order if node.op is KEEP]
    found: dict[int, Node] = {node.id: node for node in wanted if node.id in inside}
    dropped = _dropped(order, inside)
    seen = set(found)
    stack: list[Node] = []
    for node in order:
        if INPUTS in node.op.needs:
            stack += node.inputs
        if POSITIONS in node.op.needs:
            stack += [operand for operand in node.inputs if operand.dtype.kind == "i"]
        if OUTPUT in node.op.needs:
            stack.append(node)
    while stack:
        node = stack.pop()
        if node.id in seen or node.id not in inside:
            continue
        seen.add(node.id)
        if node.id in dropped:
            # A part by itself is nothing that can be computed.
            stack += node.inputs[0].inputs if node.op is PART else node.inputs
        elif type(node) is Bundle:
            for part in parts(node):
                if part.id in dropped and part.id not in found:
                    stack += node.inputs
                else:
                    found[part.id] = part
        elif node.op.cheap and node.id not in shown:
            stack += node.inputs
        else:
            found[node.id] = node
    return list(found.values())


def kept_outputs(fragment: Fragment) -> frozenset[int]:
    """Return which outputs of a fragment, by position, are values that a user wants kept whatever it takes."""
    slots = {instruction.operands[0] for instruction in fragment.body if instruction.op is KEEP}
    return frozenset([i for i, slot in enumerate(fragment.outputs) if slot in slots])


def _dropped(order: Sequence[Node], inside: set[int]) -> set[int]:
    """Return the ids of nodes that a user wants computed again: what `cheap` was applied to, and the inside of `remat`.

    Functions may be nested, but what was walked for one need not be walked for another.
    """
    walked: set[int] = set()
    for mark in order:
        if mark.op is REMAT:
            ends = {source.id for source in mark.inputs[1:]}
            stack = [mark.inputs[0]]
            while stack:
                node = stack.pop()
                if node.id in inside and node.id not in walked and node.id not in ends:
                    walked.add(node.id)
                    stack += node.inputs
    return walked | {node.inputs[0].id for node in order if node.op is CHEAP}
