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
    pieces = (piece, *later)
    walks = [_walk(one) for one in pieces]
    parts = _Stretch(pieces, walks).part() if walks[0] else None
    if parts is None:
        return None
    own, shown = parts
    belongs = {node.id for node in own}
    inputs = {operand.id: operand for node in own for operand in node.inputs if operand.id not in belongs}
    if any(type(node) is Bundle for node in (*shown, *inputs.values())):
        return None
    site = describe(own, shown, frozenset([key for key, node in inputs.items() if is_literal(node)]))
    if site is None:
        return None
    residuals = () if piece.is_loose else _residuals(site, own, len(inputs), pieces, walks)
    left = _core.piece(site, tuple(inputs.values()), tuple([own[position] for position in site.positions]), residuals)
    left.is_loose = piece.is_loose
    left.slab = piece.slab
    return left


def _walk(piece: Piece) -> dict[int, Node]:
    """Return what of a piece is behind its results that are alive, by slot."""
    fragment, apart = piece.site.fragment, piece.site.apart.results
    first, body = len(fragment.dtypes), fragment.body
    nodes: dict[int, Node] = {}
    for i, slot in enumerate(fragment.outputs[: fragment.results]):
        node = piece.outputs[i]()
        if node is not None and i not in apart:
            nodes[slot] = node
    for slot in range(first + len(body) - 1, first - 1, -1):
        if slot in nodes and type(made := nodes[slot]) is not Projection:
            for operand, read in zip(body[slot - first].operands, made.inputs, strict=True):
                if operand >= first:
                    nodes[operand] = read
    return nodes


class _Stretch:
    """The nodes that may belong to a piece: what it computed, and what later ones did of what was recorded before.

    Attributes
    ----------
    nodes : list of Node
        Youngest first.
    """

    def __init__(self, pieces: Sequence[Piece], walks: Sequence[dict[int, Node]]) -> None:
        end = max([node.id for node in walks[0].values()], default=0)
        found: dict[int, Node] = {}
        known: dict[int, int] = {}  # references of those who look
        self._fixed: set[int] = set()
        self._results: set[int] = set()
        for one, walk in zip(pieces, walks, strict=True):
            apart = one.site.apart.slots
            outputs = one.site.fragment.outputs[: one.site.results]
            for slot, node in walk.items():
                key = node.id
                known[key] = known.get(key, 0) + 1
                if key <= end and type(node) is not Projection:
                    found[key] = node
                    if slot in apart:
                        self._fixed.add(key)
            self._results.update([walk[slot].id for slot in outputs if slot in walk])
        del node
        order = sorted(found, reverse=True)
        self.nodes = [found[key] for key in order]
        del found
        # Of these references, more than a node has uses here are those of others.
        self._outside = [
            count - IN_A_LIST - known[key] for key, count in zip(order, map(count_references, self.nodes), strict=True)
        ]
        inside = {key: i for i, key in enumerate(order)}
        self._ids = order
        self._read = [[inside[o.id] for o in node.inputs if o.id in inside] for node in self.nodes]
        self._newest = [
            max([o.id for o in node.inputs if o.id not in inside and not reads_nothing(o)], default=-1)
            for node in self.nodes
        ]

    def part(self) -> tuple[list[Node], list[Node]] | None:
        """Return the nodes that belong to the piece, and those of them that others use; None if nothing does."""
        common = self._common()
        held = [key in self._results and key not in self._fixed for key in self._ids]
        newest = -1
        while True:
            own, shown, latest = self._part_after(newest, common, held)
            if latest == newest:
                break
            newest = latest
        if not shown:
            return None
        return [self.nodes[i] for i in reversed(own)], [self.nodes[i] for i in reversed(shown)]

    def _part_after(self, newest: int, common: set[int], held: Sequence[bool]) -> tuple[list[int], list[int], int]:
        """Return what belongs to a piece that reads something of an age, what others use, and the age of what it reads.

        What is older, and used by others, belongs to an earlier piece.
        """
        uses = [0] * len(self._ids)
        own: list[int] = []
        shown: list[int] = []
        latest = newest
        for i, key in enumerate(self._ids):
            is_used = held[i] or (self._outside[i] > uses[i] and key not in self._fixed)
            if is_used and (key <= newest or i in common):
                if uses[i]:
                    latest = max(latest, key)
                continue
            if not is_used and not uses[i]:
                continue
            own.append(i)
            if is_used:
                shown.append(i)
            for j in self._read[i]:
                uses[j] += 1
            latest = max(latest, self._newest[i])
        return own, shown, latest

    def _common(self) -> set[int]:
        """Return the places of what is made of leaves alone, and was recorded more than once."""
        made: set[int] = set()
        for i in range(len(self._ids) - 1, -1, -1):
            if self._newest[i] < 0 and made.issuperset(self._read[i]):
                made.add(i)
        return {i for i in made if self.nodes[i].is_found}


def _residuals(
    site: Site, own: Sequence[Node], inputs: int, pieces: Sequence[Piece], walks: Sequence[dict[int, Node]]
) -> tuple[Any, ...]:
    """Return what pieces have kept for derivatives of some nodes, as a site has it; None for what they have not."""
    kept: dict[Any, Any] = {}
    for one, walk in zip(pieces, walks, strict=True):
        if one.residuals and not one.is_loose:
            kept |= _kept(one, walk)
    found = []
    for slot in site.fragment.outputs[site.results :]:
        position = slot - inputs
        if position < len(own):
            node = own[position]
            value = kept.get(node.id)
            found.append(node.value if value is None and type(node) is not Bundle else value)
        else:  # a part of a factorisation that derivatives need and nobody else
            instruction = site.fragment.body[position]
            bundle = own[instruction.operands[0] - inputs]
            found.append(kept.get((bundle.id, instruction.params["index"])))
    return tuple(found)


def _kept(piece: Piece, nodes: Mapping[int, Node]) -> Mapping[Any, Any]:
    """Return what a piece keeps for derivatives by the id of its node; of a factorisation by that and a number."""
    fragment = piece.site.fragment
    found: dict[Any, Any] = {}
    for slot, value in zip(fragment.outputs[fragment.results :], piece.residuals, strict=False):
        if slot in nodes:
            found[nodes[slot].id] = value
        elif fragment.body[slot - len(fragment.dtypes)].op is PART:
            instruction = fragment.body[slot - len(fragment.dtypes)]
            if (bundle := nodes.get(instruction.operands[0])) is not None:
                found[bundle.id, instruction.params["index"]] = value
    return found
