"""Which values inside a piece of graph its derivatives will need.

An op declares whether its derivative rules look at its inputs, its output, or neither. What they look at is kept when
the piece runs, beside its results, unless it is cheap to compute again.
"""

from __future__ import annotations

from collections.abc import Sequence

from unspool._graph import Bundle, Node
from unspool._ops.op import INPUTS, OUTPUT, parts


def residual_nodes(order: Sequence[Node]) -> list[Node]:
    """Return the nodes of a piece that derivative rules look at, as far as they are not cheap to compute again.

    A cheap value is computed again from what it is made of, so that has to be kept, if it is not cheap itself. A
    factorisation keeps all its parts.
    """
    inside = {node.id for node in order}
    found: dict[int, Node] = {}
    seen: set[int] = set()
    stack: list[Node] = []
    for node in order:
        if INPUTS in node.op.needs:
            stack += node.inputs
        if OUTPUT in node.op.needs:
            stack.append(node)
    while stack:
        node = stack.pop()
        if node.id in seen or node.id not in inside:
            continue
        seen.add(node.id)
        if type(node) is Bundle:
            found.update((part.id, part) for part in parts(node))
        elif node.op.cheap:
            stack += node.inputs
        else:
            found[node.id] = node
    return list(found.values())
