"""Sealing what was evaluated: the piece is described, and some evaluations later folded into a call.

A piece that was evaluated is remembered by its outputs, for as long as they live. Folding it lets its interior nodes
go: the outputs become projections of one call, and a loop of K steps is one body and K short records. A program with
few evaluations is not folded: it has nothing to gain, and a recipe that is recorded again finds the very nodes it had.
When many pieces wait they are folded, all but the last few. Those wait on because of what every iteration has in common
(a product of leaves, say): it is met a second time as the same node, is kept because it is referenced from elsewhere,
and is an input from then on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from unspool._engine.held import kept_residuals
from unspool._fragments.call import Call, Projection, fold, new_call
from unspool._fragments.fragment import Captured, seal
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Node
from unspool._ops.leaf import LEAF_OPS

if TYPE_CHECKING:
    from unspool._engine.held import Slab
    from unspool._engine.matching import Site

# Pieces that may wait before folding begins, and pieces that are left waiting then.
MOST_WAITING = 64
FOLD_AFTER = 10


class Piece:
    """The record of a piece that was evaluated: its site, the nodes at its inputs, and its outputs, held weakly.

    ``slab`` is there if the ledger had to look at it before it was folded.
    """

    __slots__ = ("__weakref__", "extra", "inputs", "newest", "outputs", "site", "slab")

    site: Site
    inputs: tuple[Node, ...]
    outputs: list[ref[Node]]
    extra: tuple[Any, ...]
    newest: int
    slab: Slab | None


class _Gate:
    """Whether anything may be folded: one for all queues, for they fold nodes of one graph."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.readers = 0
        self.queues: WeakSet[FoldQueue] = WeakSet()


class FoldQueue:
    """Pieces that wait to be folded, oldest first. It does not keep them alive: their outputs do.

    Each engine has one. Who looks at a graph asks any of them: they settle together, and stand still together.
    """

    def __init__(
        self,
        on_fold: Callable[[Call, Piece], None],
        on_stay: Callable[[Piece], None],
        beside: FoldQueue | None = None,
    ) -> None:
        self.most = MOST_WAITING
        self.after = FOLD_AFTER
        self._waiting: deque[ref[Piece]] = deque()
        self._on_fold = on_fold
        self._on_stay = on_stay
        self._gate: _Gate = _Gate() if beside is None else beside._gate
        self._gate.queues.add(self)

    def add(self, site: Site, inputs: tuple[Node, ...], outputs: Sequence[Node], extra: tuple[Any, ...]) -> None:
        """Remember a piece; if too many wait, fold those that have waited long enough."""
        piece = Piece()
        piece.site = site
        piece.inputs = inputs
        piece.outputs = [*map(ref, outputs)]
        piece.extra = extra
        piece.slab = None
        # An output that is older than an input may be what that input is made from: the piece computed again what an
        # earlier one had not kept. It is not folded, or the call would be made from itself, and does not hold a piece.
        newest = -1
        for operand in inputs:
            if operand.id > newest and operand.op not in LEAF_OPS:
                newest = operand.id
        piece.newest = newest
        for node in outputs[: site.results]:
            if node.id > newest:
                node.piece = piece
        waiting = self._waiting
        waiting.append(ref(piece))
        if len(waiting) > self.most:
            self._fold_all(self.after)

    def _fold(self, piece: Piece) -> None:
        # Plain loops: this runs once an iteration, and a comprehension costs as much as three turns of a loop.
        site, inputs, outputs, results = piece.site, piece.inputs, piece.outputs, piece.site.results
        newest = piece.newest
        handles: list[Node] = []
        indices: list[int] = []
        first = 0
        for index in range(results):
            node = outputs[index]()
            if node is not None and (number := node.id) > newest:
                if not handles or number < first:
                    first = number
                handles.append(node)
                indices.append(index)
        node = None  # a second name would count as a reference from outside
        if not handles or not site.is_private(indices, handles):
            self._on_stay(piece)
            return
        # The call stands just before its outputs in the order of ids.
        call = new_call(site.plan, inputs, site.origins, first - 1)
        if call is None:  # the same was recorded and evaluated before; its outputs have tensors that stand for them
            self._on_stay(piece)
            return
        call.value = ()
        if len(outputs) > results or piece.extra:
            _keep_slab(call, [reference() for reference in outputs[results:]], piece.extra)
        fold(call, indices, handles)
        self._on_fold(call, piece)

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces that wait, oldest first."""
        for reference in tuple(self._waiting):
            piece = reference()
            if piece is not None:
                yield piece

    def settle(self) -> None:
        """Fold what has waited long enough of loops that were folded in part, before they are differentiated."""
        for queue in tuple(self._gate.queues):
            queue._fold_all(self.after, lambda piece: any(type(operand) is Projection for operand in piece.inputs))

    def flush(self) -> None:
        """Fold everything that waits."""
        self._fold_all(0)

    @contextmanager
    def nothing_folds(self) -> Iterator[None]:
        """Keep the graph as it is during the block, in all threads: a walk looks at a node more than once."""
        gate = self._gate
        with gate.lock:
            gate.readers += 1
        try:
            yield
        finally:
            with gate.lock:
                gate.readers -= 1

    def _fold_all(self, after: int, choose: Callable[[Piece], bool] | None = None) -> None:
        """Fold all but the newest pieces, those that are chosen; while the graph is being walked nothing is done."""
        gate = self._gate
        if gate.readers:
            return
        with gate.lock:
            if gate.readers:
                return
            left: list[ref[Piece]] = []
            for piece in self._take(after):
                if choose is None or choose(piece):
                    self._fold(piece)
                else:
                    left.append(ref(piece))
            self._waiting.extendleft(reversed(left))

    def _take(self, most: int) -> Iterator[Piece]:
        """Take out pieces, oldest first, until no more than so many wait; those that have died are passed over."""
        waiting = self._waiting
        while len(waiting) > most:
            try:
                piece = waiting.popleft()()
            except IndexError:  # another thread took the last one
                return
            if piece is not None:
                yield piece

    def clear(self) -> None:
        """Forget what waits: it stays as it is."""
        self._waiting.clear()


def _keep_slab(call: Call, residuals: Sequence[Node | None], extra: tuple[Any, ...]) -> None:
    slab = tuple([None if node is None else node.value for node in residuals]) + extra
    if not any(value is None for value in slab):
        call.value = slab
    elif kept := kept_residuals(call.plan):  # the rest has been let go before
        call.value = tuple([value if i in kept else None for i, value in enumerate(slab)])


def describe_piece(order: list[Node], kept: Sequence[Node], keep_residuals: bool) -> tuple[Captured, list[Node], int]:
    """Describe a piece as a fragment: its results are the nodes that are kept, its residuals what derivatives need.

    Returns the description, the residual nodes that belong to the piece, and how many further residuals there are:
    outputs of a factorisation that the piece does not use but that its derivative rule does.
    """
    residuals: list[Node] = []
    extra: list[Node] = []
    if keep_residuals:
        residuals = residual_nodes(order)
        present = {node.id for node in order}
        extra = [node for node in residuals if node.id not in present]
        residuals = [node for node in residuals if node.id in present]
    return seal([*order, *extra], kept, [*residuals, *extra]), residuals, len(extra)
