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


def residual_nodes(order: Sequence[Node], results: Sequence[Node] = (), *, late: bool = False) -> list[Node]:
    """Return the nodes of a piece that derivative rules look at, as far as they are not cheap to compute again.

    A cheap value is computed again from what it is made of, so that has to be kept, if it is not cheap itself; unless
    the value is a result, which is there anyway: to keep it takes nothing. A factorisation keeps all its parts.

    If values may be ``late``, a cheap one is kept instead of what is kept for it alone and is as large. That takes no
    more memory and nothing is computed again; but who holds few values of many steps does better with early ones.
    """
    shown = {node.id for node in results}
    inside = {node.id for node in order}
    wanted = [node.inputs[0] for node in order if node.op is KEEP]
    found: dict[int, Node] = {node.id: node for node in wanted if node.id in inside}
    dropped = _dropped(order, inside)
    seen = set(found)
    stack = _looked_at(order)
    looked_at = {node.id for node in stack}
    fixed = seen | shown | looked_at
    while stack:
        node = stack.pop()
        if node.id in seen or node.id not in inside:
            continue
        seen.add(node.id)
        if node.id in dropped:
            stack += _sources(node)
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
    if late:
        _keep_later_values(order, found, looked_at, fixed, dropped)
    return list(found.values())


def _looked_at(order: Sequence[Node]) -> list[Node]:
    """Return the nodes that derivative rules look at."""
    found: list[Node] = []
    for node in order:
        if INPUTS in node.op.needs:
            found += node.inputs
        if POSITIONS in node.op.needs:
            found += [operand for operand in node.inputs if operand.dtype.kind == "i"]
        if OUTPUT in node.op.needs:
            found.append(node)
    return found


def _sources(node: Node) -> Sequence[Node]:
    """Return what a node is computed from; a part by itself is nothing that can be computed."""
    return node.inputs[0].inputs if node.op is PART else node.inputs


def _keep_later_values(
    order: Sequence[Node], found: dict[int, Node], looked_at: set[int], fixed: set[int], dropped: set[int]
) -> None:
    """Keep a cheap value instead of one as large that is kept for it alone, so that nothing has to be computed again.

    ``found`` has what is kept, of which ``fixed`` stays.
    """
    # Which of the values that rules look at each node is read for; None for several.
    readers: dict[int, Node | None] = {}
    for node in reversed(order):
        reader = node if node.id in looked_at else readers.get(node.id)
        if node.id in found or (reader is None and node.id not in readers):
            continue
        for source in _sources(node):
            readers[source.id] = reader if readers.get(source.id, reader) is reader else None
    for kept in list(found.values()):
        reader = None if kept.id in fixed else readers.get(kept.id)
        if (
            reader is not None
            and (reader.op.cheap and not reader.op.view and reader.id not in dropped)
            and (reader.shape, reader.dtype) == (kept.shape, kept.dtype)
            and kept.op is not PART
        ):
            del found[kept.id]
            found[reader.id] = reader


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
