"""Cutting what was evaluated where it was recorded, for pieces that share nodes or computed what earlier ones left.

A later step may record again what a step has made on its way: a product of two states of the last steps, the gradient
at a point that was not left. As a node that is one and the same, and it can be in several pieces: each that computed
it. Or a step records something that only the next evaluation asks for. In both cases a node belongs to the piece in
whose time it was recorded: those after it read it.

What is folded into one call is a *stretch*: nothing that it reads was recorded after the first of its nodes. So a sum
of contributions has the order in which they were recorded, folded or not. A piece that computed what was recorded
before and after something that it reads is several stretches.

What is made of leaves alone (a transposed matrix, a row of it) and what several steps have computed belongs to no step.
It stands apart as a node, which is found when it is recorded again, and all steps read it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import neg
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool._core import Piece
from unspool._engine.structure import is_literal, reads_nothing
from unspool._fragments.call import Projection
from unspool._graph import Bundle, Node
from unspool._ops.op import PART
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._engine.folding.matching import Site

# Describes nodes, given in topological order, as a site of which some are the results; some inputs stand for constants.
# None if their structure is not worth it.
Describe: TypeAlias = Callable[[list[Node], list[Node], frozenset[int]], "Site | None"]


class Part(NamedTuple):
    """How one stretch of a piece is made. Nodes are told by their places, the youngest first.

    Attributes
    ----------
    site : Site
        What describes it.
    inputs : tuple of int
        Pairs: a node, and the place among what it reads.
    outputs : tuple of int
        Nodes.
    residuals : tuple of int
        Threes: the piece that has kept it and where, and the node whose value it is otherwise; -1 where there is none.
    values : tuple of int
        Threes: an output, and the piece that has kept its value and where.
    """

    site: Site
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    residuals: tuple[int, ...]
    values: tuple[int, ...]


# The parts, oldest first; pairs of an output that later pieces have computed too and how many did; the sites of all.
Recipe: TypeAlias = tuple[tuple[Part, ...], tuple[int, ...], tuple["Site", ...]]


def recipe_for(
    pieces: Sequence[Piece], nodes: list[Node], references: Sequence[int], describe: Describe
) -> Recipe | None:
    """Return how a piece is cut, given with it the later ones that share nodes with it; None if nothing can be folded.

    ``nodes`` are those that may belong to it, youngest first: what it computed, and what later ones did of what was
    recorded in its time. ``references`` are those to each of them.
    """
    walks = [_walk(one) for one in pieces]
    stretches = list(_Stretch(pieces, walks, nodes, references).parts())
    kept = _kept(pieces, walks)
    parts = [part for own, shown in stretches if (part := _part(nodes, own, shown, kept, describe)) is not None]
    if pieces[0].is_loose:
        parts = [part._replace(residuals=()) for part in parts]
    if not parts:
        return None
    counts = Counter([node.id for walk in walks[1:] for node in walk.values()])
    again = [(i, counts[nodes[i].id]) for _, shown in stretches for i in shown if counts[nodes[i].id]]
    return tuple(reversed(parts)), tuple(chain.from_iterable(again)), tuple([one.site for one in pieces])


def _part(
    nodes: Sequence[Node], own: list[int], shown: list[int], kept: Mapping[Any, tuple[int, int]], describe: Describe
) -> Part | None:
    """Return how a stretch is made, given its nodes and those of them that are its results."""
    belongs = {nodes[i].id for i in own}
    inputs: dict[int, tuple[int, int]] = {}
    read: dict[int, Node] = {}
    for i in own:
        for place, operand in enumerate(nodes[i].inputs):
            if operand.id not in belongs and operand.id not in inputs:
                inputs[operand.id] = i, place
                read[operand.id] = operand
    if any(type(node) is Bundle for node in (*[nodes[i] for i in shown], *read.values())):
        return None
    literals = frozenset([key for key, node in read.items() if is_literal(node)])
    site = describe([nodes[i] for i in own], [nodes[i] for i in shown], literals)
    if site is None:
        return None
    residuals: list[tuple[int, int, int]] = []
    for slot in site.fragment.outputs[site.results :]:
        position = slot - len(inputs)
        if position < len(own):
            i = own[position]
            residuals.append((*kept.get(nodes[i].id, _NOWHERE), -1 if type(nodes[i]) is Bundle else i))
        else:  # a part of a factorisation that derivatives need and nobody else
            instruction = site.fragment.body[position]
            bundle = nodes[own[instruction.operands[0] - len(inputs)]]
            residuals.append((*kept.get((bundle.id, instruction.params["index"]), _NOWHERE), -1))
    values = [(i, *kept[nodes[i].id]) for i in shown if nodes[i].id in kept]
    return Part(
        site,
        tuple(chain.from_iterable(inputs.values())),
        tuple([own[position] for position in site.positions]),
        tuple(chain.from_iterable(residuals)),
        tuple(chain.from_iterable(values)),
    )


_NOWHERE = (-1, -1)


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

    It tells nodes by their places, the youngest first.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        walks: Sequence[Mapping[int, Node]],
        nodes: Sequence[Node],
        references: Sequence[int],
    ) -> None:
        fixed: set[int] = set()
        results: set[int] = set()
        for one, walk in zip(pieces, walks, strict=True):
            apart = one.site.apart.slots
            fixed.update([node.id for slot, node in walk.items() if slot in apart])
            results.update([walk[slot].id for slot in one.site.fragment.outputs[: one.site.results] if slot in walk])
        self._ids = [node.id for node in nodes]
        inside = {key: i for i, key in enumerate(self._ids)}
        # More references than a node has uses are those of others.
        self._outside = [0 if key in fixed else count for key, count in zip(self._ids, references, strict=True)]
        self._is_held = [key in results and key not in fixed for key in self._ids]
        self._is_shared = [bool(node.is_again) for node in nodes]
        self._read = [[inside[o.id] for o in node.inputs if o.id in inside] for node in nodes]
        beyond = [[o for o in node.inputs if o.id not in inside] for node in nodes]
        self._newest = [max([o.id for o in some if not reads_nothing(o)], default=-1) for some in beyond]
        self._leaves = [{o.id for o in some if reads_nothing(o) and not is_literal(o)} for some in beyond]
        self._is_of_leaves = [False] * len(nodes)
        for i in range(len(nodes) - 1, -1, -1):
            self._is_of_leaves[i] = self._newest[i] < 0 and all(self._is_of_leaves[j] for j in self._read[i])

    def parts(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield the nodes of stretches, in order, and those of them that others use, the youngest stretch first."""
        begin, uses = 0, [0] * len(self._ids)
        while begin < len(self._ids):
            own, shown, stop = self._stretch(begin, uses)
            if shown:
                yield own[::-1], shown[::-1]
            if stop == begin:
                break  # what it reads came back out of a call, and is younger than what was made from it
            begin = stop

    def _stretch(self, begin: int, uses: list[int]) -> tuple[list[int], list[int], int]:
        """Return what belongs to the stretch that ends at a place, what others use of it, and the place after it.

        ``uses`` are those of nodes by younger stretches.
        """
        stop = len(self._ids)
        while True:
            counts = list(uses)
            own, shown, apart = self._own(begin, stop, uses, counts)
            reach = self._reach(own, apart)
            if reach >= stop:
                break
            stop = reach
        uses[:] = counts
        return own, shown, stop

    def _own(
        self, begin: int, stop: int, uses: Sequence[int], counts: list[int]
    ) -> tuple[list[int], list[int], list[int]]:
        """Return what belongs to a stretch, what others use of it, and what of its time stands apart."""
        own: list[int] = []
        shown: list[int] = []
        apart: set[int] = set()
        for i in range(begin, stop):
            is_of_others = self._is_held[i] or self._outside[i] > counts[i]
            is_used = is_of_others or uses[i] > 0
            if i not in apart and not is_used and not counts[i]:
                continue
            if self._is_of_leaves[i]:
                is_apart = i in apart or (is_used and (begin > 0 or (counts[i] > 0 and self._is_shared[i])))
            else:  # what is older than what the piece reads, and used by others, belongs to an earlier one
                is_apart = begin > 0 and is_of_others
            if is_apart:
                apart.add(i)
                if self._is_of_leaves[i]:
                    apart.update(self._read[i])
                continue
            own.append(i)
            if is_used:
                shown.append(i)
            for j in self._read[i]:
                counts[j] += 1
        return own, shown, sorted(apart)

    def _reach(self, own: Sequence[int], apart: Sequence[int]) -> int:
        """Return the place at which a stretch has to begin later than it does, or the last one if it need not."""
        if not own:
            return len(self._ids)
        first, leaves = self._ids[own[-1]], set().union(*[self._leaves[i] for i in own])
        bound = max([self._newest[i] for i in own])
        for i in apart:
            # What it contributes to something stands between what the stretch does.
            if self._ids[i] > bound and not (self._is_of_leaves[i] and leaves.isdisjoint(self._leaves[i])):
                bound = self._ids[i]
        if bound < first:
            return len(self._ids)
        return bisect_left(self._ids, -bound, key=neg)


def _kept(pieces: Sequence[Piece], walks: Sequence[Mapping[int, Node]]) -> dict[Any, tuple[int, int]]:
    """Return where what is kept for derivatives is, by the id of its node; of a factorisation by that and a number."""
    found: dict[Any, tuple[int, int]] = {}
    for number, (one, nodes) in enumerate(zip(pieces, walks, strict=True)):
        fragment = one.site.fragment
        slots = fragment.outputs[fragment.results :]
        for place, slot in enumerate(() if one.is_loose else slots[: len(one.residuals)]):
            if slot in nodes:
                found[nodes[slot].id] = number, place
                continue
            instruction = fragment.body[slot - len(fragment.dtypes)]
            bundle = nodes.get(instruction.operands[0]) if instruction.op is PART else None
            if bundle is not None:
                found[bundle.id, instruction.params["index"]] = number, place
    return found
