"""Loops that were recorded without a value being read: found when they are evaluated or differentiated, and folded.

A loop that is read leaves its iterations behind as pieces, which are folded into calls (`fold_queue`). One that is not
read leaves a long stretch of pending nodes. Its repeated sections (`_fragments.repeats`) are cut into pieces of the
same kind, and folded at once, so that from there on it is a loop like every other: a derivative is taken call by call,
a budget sees steps, and the body is compiled once. What is left over between the sections stays as it is.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from unspool import _core
from unspool._core import Piece
from unspool._dims import is_concrete
from unspool._engine.folding.matching import Site
from unspool._engine.interpreter import Pass
from unspool._engine.references import IN_A_LIST, count_references
from unspool._engine.structure import can_be_sealed, is_literal
from unspool._fragments.repeats import FEWEST, SHORTEST, Integers, Repeat, Wiring, find_repeats, wiring_of
from unspool._graph import Bundle, Node, intern, intern_bundle, origin_scope
from unspool._ops.leaf import placeholder
from unspool._sweeps import is_swept

# Describes nodes, given in topological order, as a site of which some are the results; some inputs stand for constants.
Describe: TypeAlias = Callable[[list[Node], list[Node], frozenset[int]], Site]


# What was found in pieces of graph, by a digest of all that the search looks at.
Known: TypeAlias = OrderedDict[bytes, list[Repeat]]

# Pieces of graph that are remembered.
_MOST_KNOWN = 256


def cut_into_pieces(work: Pass, targets: Container[int], describe: Describe, known: Known) -> list[Piece]:
    """Return the repetitions in pending nodes as pieces, in order; none if there is no repetition.

    Nothing may refer to the nodes but the list of the pass, the graph, and those who can ask for their values later.
    There must be no calls among them. What the search found is looked up in ``known`` and entered there: a program that
    runs again has the same wiring, and to compare it takes a small part of the time.
    """
    order = work.order
    held = _held_flags(order, work.uses, targets)
    wiring = wiring_of(order)
    repeats = _find_repeats(wiring, held, known)
    if not repeats:
        return []
    last = np.full(len(order) + len(wiring.outside), -1)
    # Of several numbers for one index the last one stays, and readers rise.
    last[wiring.sources] = np.repeat(np.arange(len(order)), np.diff(wiring.first))
    sections = [_Section(order, wiring, repeat, held, last) for repeat in repeats]
    return [piece for section in sections for piece in section.pieces(describe)]


def _find_repeats(wiring: Wiring, held: Any, known: Known) -> list[Repeat]:
    digest = blake2b(digest_size=16)
    for numbers in (wiring.tokens, wiring.first, wiring.sources, held):
        digest.update(len(numbers).to_bytes(8, "little"))  # where one ends and the next begins
        digest.update(numbers.data)
    key = digest.digest()
    repeats = known.get(key)
    if repeats is None:
        repeats = known[key] = find_repeats(wiring, held=held)
        if len(known) > _MOST_KNOWN:
            known.popitem(last=False)
    return repeats


def _held_flags(order: list[Node], uses: Mapping[int, int], targets: Container[int]) -> Any:
    """Return, per node, whether its value can be asked for: it is a target, or referenced from outside the piece."""
    # Counted without a name for the node, which would be a reference of its own.
    references = np.fromiter(map(count_references, order), np.int64, len(order))
    ids = list(map(attrgetter("id"), order))
    inside = np.fromiter(map(uses.__getitem__, ids), np.int64, len(order))
    wanted = np.fromiter(map(targets.__contains__, ids), np.bool_, len(order))
    return wanted | (references > inside + IN_A_LIST)


class _Section:
    """A repeated section of pending nodes.

    Attributes
    ----------
    inputs : array of int
        A row per repetition: the positions of what it reads from outside itself, in the order of first use.
    operands : list of tuples of int
        What each node of the body reads: the offset of another one, or ``~i`` for input ``i``.
    needed : array of bool
        A row per repetition, a column per node of the body: whether something outside of the repetition reads the node,
        or can ask for its value.
    """

    def __init__(self, order: list[Node], wiring: Wiring, repeat: Repeat, held: Any, last: Integers) -> None:
        start, period, count = repeat.start, repeat.period, repeat.count
        ends = start + period * np.arange(1, count + 1)[:, None]
        here = slice(start, repeat.stop)
        self._order = order
        self._wiring = wiring
        self._repeat = repeat
        self.inputs, self.operands = _separate(wiring, repeat)
        self.needed = (last[here].reshape(count, period) >= ends) | held[here].reshape(count, period)

    def pieces(self, describe: Describe) -> Iterator[Piece]:
        """Yield the repetitions as pieces, as far as they are alike.

        There are at most two kinds: of one the results are what is needed of most repetitions, of the other what is
        needed of any other. A repetition that reads something of another size or dtype is none.
        """
        if self._gathers():
            return
        kinds = self._wiring.kinds[self.inputs]
        fitting = (kinds == kinds[self._repeat.count // 2]).all(axis=1)
        common = _most_common_row(self.needed)
        served = fitting & ~(self.needed & ~common).any(axis=1)
        others = fitting & ~served
        which = np.full(self._repeat.count, -1)
        sites: list[Site] = []
        for rows, pattern in ((served, common), (others, self.needed[others].any(axis=0))):
            site = self._describe(rows, pattern, describe) if rows.sum() >= FEWEST else None
            if site is not None:
                which[rows] = len(sites)
                sites.append(site)
        for row, index in enumerate(which.tolist()):
            if index >= 0:
                yield self._piece(row, sites[index])

    def _gathers(self) -> bool:
        """Whether repetitions do little more than add up what the steps of another loop made.

        Each of these gets a cotangent of its own; a call would save less than it costs.
        """
        fresh = [c for c in self.inputs.T.tolist() if len(set(c)) * 2 > len(c) and self._node_at(c[-1]).inputs]
        carried = sum([c[-1] >= self._repeat.start for c in fresh if c[-1] < len(self._order)])
        return bool((len(fresh) - carried) * SHORTEST > self._repeat.period)

    def _describe(self, rows: Any, results: Any, describe: Describe) -> Site | None:
        """Describe repetitions by the nodes of one of them, on stand-ins for what it reads.

        In a single one of them two operands may happen to be the same node that are different ones in others.
        """
        row = int(np.flatnonzero(rows)[len(np.flatnonzero(rows)) // 2])
        nodes, entering = self._nodes(row), self._entering(row)
        if not can_be_sealed(nodes) or not all(map(_is_plain, entering)):
            return None
        literal = [all(is_literal(self._node_at(p)) for p in set(column)) for column in self.inputs[rows].T.tolist()]
        stand_ins = [placeholder(node.shape, node.dtype) for node in entering]
        made = _apply_to(nodes, self.operands, stand_ins)
        shown = [made[offset] for offset in np.flatnonzero(results).tolist()]
        if any(type(node) is Bundle for node in shown):
            return None
        site = describe(made, shown, frozenset([n.id for n, flag in zip(stand_ins, literal, strict=True) if flag]))
        site.fragment.swept = frozenset([i for i, node in enumerate(nodes) if is_swept(node.id)])
        return site

    def _piece(self, row: int, site: Site) -> Piece:
        nodes = self._nodes(row)
        outputs = tuple([nodes[position] for position in site.positions])
        piece = _core.piece(site, tuple(self._entering(row)), outputs, ())
        piece.is_loose = True
        return piece

    def _nodes(self, row: int) -> list[Node]:
        start = self._repeat.start + row * self._repeat.period
        return self._order[start : start + self._repeat.period]

    def _entering(self, row: int) -> list[Node]:
        return [self._node_at(position) for position in self.inputs[row].tolist()]

    def _node_at(self, position: int) -> Node:
        size = len(self._order)
        return self._order[position] if position < size else self._wiring.outside[position - size]


def _is_plain(node: Node) -> bool:
    """Whether a node can be an input of a piece: one array, whose size is a number."""
    return type(node) is not Bundle and is_concrete(node.shape)


def _apply_to(nodes: Sequence[Node], operands: Sequence[tuple[int, ...]], inputs: Sequence[Node]) -> list[Node]:
    """Apply the ops of nodes to others, with the lines they came from."""
    made: list[Node] = []
    with origin_scope() as origin:
        for node, read in zip(nodes, operands, strict=True):
            origin.code, origin.lasti = node.code, node.lasti
            make: Any = intern_bundle if type(node) is Bundle else intern
            arguments = tuple([made[o] if o >= 0 else inputs[~o] for o in read])
            params = node.attributes
            made.append(make(node.op, arguments, params, node.shape, node.dtype, tuple(params.items())))
    return made


def _separate(wiring: Wiring, repeat: Repeat) -> tuple[Integers, list[tuple[int, ...]]]:
    """Tell what the repetitions of a section read of themselves from what they read from outside: see `_Section`.

    Operands that are one and the same node in every repetition are one input.
    """
    start, period, count = repeat.start, repeat.period, repeat.count
    size = len(wiring.tokens)
    begin = int(wiring.first[start])
    bounds = (wiring.first[start : start + period + 1] - begin).tolist()
    reads = wiring.sources[begin : begin + count * bounds[-1]].reshape(count, bounds[-1])
    columns: list[int] = []
    inputs: dict[bytes, int] = {}
    operands: list[int] = []
    for column, source in enumerate(reads[0].tolist()):
        if start <= source < size:
            operands.append(source - start)
            continue
        entry = inputs.setdefault(reads[:, column].tobytes(), len(inputs))
        if entry == len(columns):
            columns.append(column)
        operands.append(~entry)
    return reads[:, columns], [tuple(operands[bounds[i] : bounds[i + 1]]) for i in range(period)]


def _most_common_row(flags: Any) -> Any:
    """Return the row that occurs most often in a table of flags."""
    packed = np.packbits(flags, axis=1)
    data, width = packed.tobytes(), packed.shape[1]
    rows = [data[i : i + width] for i in range(0, len(data), width)]
    return flags[rows.index(Counter(rows).most_common(1)[0][0])]
