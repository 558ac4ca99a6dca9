"""Cutting what was evaluated where it was recorded, for pieces that share nodes or computed what earlier ones left.

A later step may record again what a step has made on its way: a product of two states of the last steps, the gradient
at a point that was not left. As a node that is one and the same, and it can be in several pieces: each that computed
it. Or a step records something that only the next evaluation asks for. In both cases a node belongs to the piece in
whose time it was recorded: those after it read it. So what is folded into one call was recorded in one stretch, and a
sum of contributions has the order in which they were recorded, folded or not.

What is made of leaves alone (a transposed matrix, a row of it) and was recorded more than once belongs to no step. It
stands apart, and all steps read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool import _core
from unspool._core import Piece
from unspool._engine.references import IN_A_LIST, count_references
from unspool._engine.structure import is_literal, reads_nothing
from unspool._fragments.call import Projection
from unspool._graph import Bundle, Node
from unspool._ops.op import PART

if TYPE_CHECKING:
    from unspool._engine.matching import Site

# Describes nodes, given in topological order, as a site of which some are the results; some inputs stand for constants.
# None if their structure is not worth it.
Describe: TypeAlias = Callable[[list[Node], list[Node], frozenset[int]], "Site | None"]


def cut(piece: Piece, later: Sequence[Piece], describe: Describe) -> Piece | None:
    """Return what can be folded in place of a piece, or None if nothing can.

    ``later`` are pieces that wait and have computed what was recorded before this one ended.
    """
    if count_references is not sys.getrefcount:
        return None
    # Nothing else may refer to the nodes while references are counted.
    nodes, fixed, results = _reach(piece, later)
    counts = [count - IN_A_LIST for count in map(count_references, nodes)]
    read: dict[int, int] = {}
    for other in later:
        for operand in other.inputs:
            read[operand.id] = read.get(operand.id, 0) + 1
    counts = [count - read.get(node.id, 0) for node, count in zip(nodes, counts, strict=True)]
    found = _part(nodes, counts, fixed, results)
    if found is None:
        return None
    own, shown = found
    site = describe(own, shown, frozenset([i.id for node in own for i in node.inputs if is_literal(i)]))
    return None if site is None else _piece(piece, later, site, own)


def _walk(piece: Piece) -> dict[int, Node]:
    """Return what of a piece is behind its results that are alive, by slot."""
    fragment, apart = piece.site.fragment, piece.site.apart.results
    first = len(fragment.dtypes)
    nodes: dict[int, Node] = {}
    for i, slot in enumerate(fragment.outputs[: fragment.results]):
        node = piece.outputs[i]()
        if node is not None and i not in apart:
            nodes[slot] = node
    for slot in range(first + len(fragment.body) - 1, first - 1, -1):
        node = nodes.get(slot)
        if node is None or type(node) is Projection:
            continue
        for operand, read in zip(fragment.body[slot - first].operands, node.inputs, strict=True):
            if operand >= first:
                nodes[operand] = read
    return nodes


def _reach(piece: Piece, later: Sequence[Piece]) -> tuple[list[Node], set[int], set[int]]:
    """Return the nodes that may belong to a piece, youngest first, and the ids of some.

    These are: of what is made of constants alone, and of what somebody could ask for.
    """
    found: dict[int, Node] = {}
    fixed: set[int] = set()
    results: set[int] = set()
    end = 0
    for one in (piece, *later):
        nodes = _walk(one)
        apart = one.site.apart.slots
        outputs = one.site.fragment.outputs[: one.site.results]
        if one is piece:
            end = max([node.id for node in nodes.values()], default=0)
        for slot, node in nodes.items():
            if node.id <= end and type(node) is not Projection:
                found[node.id] = node
                if slot in apart:
                    fixed.add(node.id)
        results.update([nodes[slot].id for slot in outputs if slot in nodes])
    order = sorted(found, reverse=True)
    return [found[key] for key in order], fixed, results


def _part(
    nodes: Sequence[Node], counts: Sequence[int], fixed: set[int], results: set[int]
) -> tuple[list[Node], list[Node]] | None:
    """Return the nodes that belong to a piece, and those of them that others use; None if it cannot be cut so.

    ``counts`` are the references to each node, youngest first.
    """
    common = _common(nodes)
    inside = {node.id for node in nodes}
    own: list[Node] = []
    newest = -1
    while True:
        needed: set[int] = set()
        uses = dict.fromkeys(inside, 0)
        own, shown = [], []
        latest = newest
        for node, count in zip(nodes, counts, strict=True):
            key = node.id
            is_used = key not in fixed and (key in results or count > uses[key])
            if not is_used and key not in needed:
                continue
            if is_used and (key <= newest or key in common):
                if uses[key]:
                    latest = max(latest, key)
                continue
            own.append(node)
            if is_used:
                shown.append(node)
            for operand in node.inputs:
                if operand.id in inside:
                    needed.add(operand.id)
                    uses[operand.id] += 1
                elif not reads_nothing(operand):
                    latest = max(latest, operand.id)
        if latest == newest:
            break
        newest = latest
    if not shown or any(type(node) is Bundle for node in shown):
        return None
    belongs = {node.id for node in own}
    if any(type(operand) is Bundle and operand.id not in belongs for node in own for operand in node.inputs):
        return None
    return own[::-1], shown[::-1]


def _common(nodes: Sequence[Node]) -> set[int]:
    """Return the ids of what is made of leaves alone, and was recorded more than once."""
    made: set[int] = set()
    for node in reversed(nodes):
        if all(operand.id in made or reads_nothing(operand) for operand in node.inputs):
            made.add(node.id)
    return {node.id for node in nodes if node.id in made and node.is_found}


def _piece(piece: Piece, later: Sequence[Piece], site: Site, own: Sequence[Node]) -> Piece:
    """Return the record of what belongs to a piece, with what it and later ones have kept of it for derivatives."""
    inside = {node.id for node in own}
    inputs = {operand.id: operand for node in own for operand in node.inputs if operand.id not in inside}
    residuals: list[Any] = []
    if not piece.is_loose:
        kept: dict[Any, Any] = {}
        for one in (piece, *later):
            kept |= _kept(one)
        first = len(inputs)
        for slot in site.fragment.outputs[site.results :]:
            position = slot - first
            if position < len(own):
                node = own[position]
                value = kept.get(node.id)
                residuals.append(node.value if value is None and type(node) is not Bundle else value)
            else:
                instruction = site.fragment.body[position]
                bundle = own[instruction.operands[0] - first]
                residuals.append(kept.get((bundle.id, instruction.params["index"])))
    outputs = tuple([own[position] for position in site.positions])
    left = _core.piece(site, tuple(inputs.values()), outputs, tuple(residuals))
    left.is_loose = piece.is_loose
    left.slab = piece.slab
    return left


def _kept(piece: Piece) -> Mapping[Any, Any]:
    """Return what a piece keeps for derivatives by the id of its node; of a factorisation by that and a number."""
    if piece.is_loose or not piece.residuals:
        return {}
    nodes, fragment = _walk(piece), piece.site.fragment
    found: dict[Any, Any] = {}
    for slot, value in zip(fragment.outputs[fragment.results :], piece.residuals, strict=False):
        if slot in nodes:
            found[nodes[slot].id] = value
        elif fragment.body[slot - len(fragment.dtypes)].op is PART:
            instruction = fragment.body[slot - len(fragment.dtypes)]
            if (bundle := nodes.get(instruction.operands[0])) is not None:
                found[bundle.id, instruction.params["index"]] = value
    return found
