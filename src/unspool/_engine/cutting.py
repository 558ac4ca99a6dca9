"""Cutting a piece where others use what is inside of it, so that what is left can be folded.

A later step may record again what a step has made on its way: a product of two states of the last steps, the gradient
at a point that was not left. As a node that is one and the same, and the first evaluation that met it has computed it.
So it belongs to the piece of that one, as an output. Later pieces that computed it again, because it was not kept, are
folded without it, and read it. Who computed a node first follows from ages: it is younger than what its piece reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool import _core
from unspool._core import Piece
from unspool._engine.references import IN_A_LIST, count_references
from unspool._engine.structure import is_literal
from unspool._fragments.call import Projection
from unspool._graph import Bundle, Node, intern, intern_bundle, origin_scope
from unspool._ops.leaf import placeholder
from unspool._ops.op import PART
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._engine.matching import Site

# Describes nodes, given in topological order, as a site of which some are the results; some inputs stand for constants.
Describe: TypeAlias = Callable[[list[Node], list[Node], frozenset[int]], "Site"]


class Cut(NamedTuple):
    """What is left of the pieces of a site, cut in one way.

    Attributes
    ----------
    site : Site
    read : tuple of int
        The slots in the whole piece of what is read.
    outputs, residuals : tuple of int
        The slots there of the outputs, and of what is kept for derivatives; -1 for what the whole piece does not keep.
    """

    site: Site
    read: tuple[int, ...]
    outputs: tuple[int, ...]
    residuals: tuple[int, ...]


def cut(piece: Piece, describe: Describe) -> Piece | None:
    """Return the part of a piece that can be folded, or None if nothing is left of it."""
    site: Site = piece.site
    if count_references is not sys.getrefcount:
        return None
    slots, nodes = _reach(piece)
    counts = list(map(count_references, nodes))
    parts = _part(piece, slots, nodes, [count - IN_A_LIST for count in counts])
    if parts is None:
        return None
    found = site.cuts.get(parts)
    if found is None:
        found = site.cuts[parts] = _describe(piece, dict(zip(slots, nodes, strict=True)), *parts, describe)
    return _piece(piece, found, dict(zip(slots, nodes, strict=True)))


def _reach(piece: Piece) -> tuple[list[int], list[Node]]:
    """Return what of a piece is behind its results that are alive, from the last to the first, with the slots."""
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
    found = sorted(nodes, reverse=True)
    return found, [nodes[slot] for slot in found]


def _part(
    piece: Piece, slots: Sequence[int], nodes: Sequence[Node], counts: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return the slots of what belongs to a piece, of what of that others use, and of what the rest reads of others.

    ``counts`` are the references to each node. None if nothing belongs to it, or it cannot be cut there.
    """
    site = piece.site
    fragment, apart = site.fragment, site.apart.slots
    first = len(fragment.dtypes)
    results = {slot for i, slot in enumerate(fragment.outputs[: fragment.results]) if i not in site.apart.results}
    common = _common(piece, slots, nodes)
    newest = piece.newest
    while True:
        needed, uses = set(results), dict.fromkeys(slots, 0)
        own: list[int] = []
        shown: list[int] = []
        read: set[int] = set()
        latest = newest
        for slot, node, count in zip(slots, nodes, counts, strict=True):
            if slot not in needed:
                continue
            is_used = slot not in apart and (slot in results or count > uses[slot])
            is_others = is_used and (node.id <= newest or (slot in common and (uses[slot] > 0 or piece.newest >= 0)))
            if type(node) is Projection or is_others:
                if uses[slot]:
                    read.add(slot)
                    latest = max(latest, node.id)
                continue
            own.append(slot)
            if is_used:
                shown.append(slot)
            for operand in fragment.body[slot - first].operands:
                if operand >= first:
                    needed.add(operand)
                    uses[operand] += 1
        if latest == newest:
            break
        newest = latest
    taken = {*own, *read}
    if not shown or any(type(node) is Bundle for slot, node in zip(slots, nodes, strict=True) if slot in read):
        return None
    if any(type(node) is Bundle for slot, node in zip(slots, nodes, strict=True) if slot in shown and slot in taken):
        return None
    return tuple(own[::-1]), tuple(shown[::-1]), tuple(sorted(read))


def _common(piece: Piece, slots: Sequence[int], nodes: Sequence[Node]) -> set[int]:
    """Return the slots of what is made of leaves alone, and was recorded more than once."""
    fragment = piece.site.fragment
    first = len(fragment.dtypes)
    made = {position for position, node in enumerate(piece.inputs) if not node.inputs}
    for slot, instruction in enumerate(fragment.body, first):
        if made.issuperset(instruction.operands):
            made.add(slot)
    return {slot for slot, node in zip(slots, nodes, strict=True) if slot in made and node.is_found}


def _describe(
    piece: Piece,
    nodes: Mapping[int, Node],
    own: tuple[int, ...],
    shown: tuple[int, ...],
    read: tuple[int, ...],
    describe: Describe,
) -> Cut:
    """Describe what belongs to a piece, on stand-ins for what it reads."""
    site = piece.site
    fragment, first = site.fragment, len(site.fragment.dtypes)
    place = {slot: offset for offset, slot in enumerate(own)}
    inputs: dict[int, int] = {}
    for slot in own:
        for operand in fragment.body[slot - first].operands:
            if operand not in place:
                inputs.setdefault(operand, len(inputs))
    operands = [
        tuple([place[o] if o in place else ~inputs[o] for o in fragment.body[slot - first].operands]) for slot in own
    ]
    entering = [piece.inputs[slot] if slot < first else nodes[slot] for slot in inputs]
    stand_ins = [placeholder(node.shape, node.dtype) for node in entering]
    made = apply_to([nodes[slot] for slot in own], operands, stand_ins)
    literals = frozenset([s.id for s, node in zip(stand_ins, entering, strict=True) if is_literal(node)])
    found = describe(made, [made[place[slot]] for slot in shown], literals)
    # In the description, inputs stand in the order in which they are used first, then what belongs to the piece, then
    # parts of factorisations that derivatives need and the piece does not use.
    whole = [*inputs, *own]
    for instruction in found.fragment.body[len(own) :]:
        bundle = (whole[instruction.operands[0]],)
        same = [s for s, i in enumerate(fragment.body, first) if i.op is PART and i.operands == bundle]
        same = [s for s in same if fragment.body[s - first].params["index"] == instruction.params["index"]]
        whole.append(same[0] if same else -1)
    return Cut(
        found,
        tuple(inputs),
        tuple([own[position] for position in found.positions]),
        tuple([whole[slot] for slot in found.fragment.outputs[found.results :]]),
    )


def _piece(piece: Piece, found: Cut, nodes: Mapping[int, Node]) -> Piece:
    """Return the record of what is left of a piece."""
    site = piece.site
    first = len(site.fragment.dtypes)
    inputs = tuple([piece.inputs[slot] if slot < first else nodes[slot] for slot in found.read])
    residuals: list[Any] = []
    if not piece.is_loose:
        kept = dict(zip(site.fragment.outputs[site.results :], piece.residuals, strict=False))
        for slot in found.residuals:
            node = nodes.get(slot)
            residuals.append(kept.get(slot) if kept.get(slot) is not None or node is None else node.value)
    left = _core.piece(found.site, inputs, tuple([nodes[slot] for slot in found.outputs]), tuple(residuals))
    left.is_loose = piece.is_loose
    left.slab = piece.slab
    return left


def apply_to(nodes: Sequence[Node], operands: Sequence[tuple[int, ...]], inputs: Sequence[Node]) -> list[Node]:
    """Apply the ops of nodes to others, with the lines they came from.

    ``operands`` are those of each node: the offset of another one, or ``~i`` for input ``i``.
    """
    made: list[Node] = []
    with origin_scope() as origin:
        for node, read in zip(nodes, operands, strict=True):
            origin.code, origin.lasti = node.code, node.lasti
            make: Any = intern_bundle if type(node) is Bundle else intern
            arguments = tuple([made[o] if o >= 0 else inputs[~o] for o in read])
            params = node.attributes
            made.append(make(node.op, arguments, params, node.shape, node.dtype, tuple(params.items())))
    return made
