"""Sealing what was evaluated: the piece is described, and some evaluations later folded into a call.

A piece that was evaluated is remembered by its outputs, for as long as they live. Folding it lets its interior nodes
go: the outputs become projections of one call, and a loop of K steps is one body and K short records.

Which pieces are folded follows from the program alone. A piece is *deep* if it is part of a long row of pieces, each of
which reads the one before: a loop. Loops are folded, before they are differentiated at the latest. A program with few
evaluations is not: it has nothing to gain, and a recipe that is recorded again finds the very nodes it had; unless it
has factorisations, because a call keeps what their derivatives need, and nodes that die do not. Folding while the loop
goes on leaves the last few pieces. Those wait because of what every iteration has in common (a product of leaves, say):
it is met a second time as the same node, is kept because it is referenced from elsewhere, and is an input from then on.
Very many pieces that are not deep are folded too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from unspool import _core
from unspool._core import Piece, fold, place_piece
from unspool._engine.held import kept_residuals
from unspool._engine.matching import Site
from unspool._engine.statistics import STATISTICS
from unspool._fragments.call import BOUNDS, Call, Projection, call_of
from unspool._fragments.fragment import seal
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Bundle, Node

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment

# Pieces in a row that make a loop, and pieces that are left waiting when it is folded while it goes on.
MOST_WAITING = 64
FOLD_AFTER = 10

# Pieces that are not part of a loop and may wait.
MOST_SHALLOW = 1024


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
        self._shallow = 0
        self._waiting: deque[ref[Piece]] = deque()
        self._on_fold = on_fold
        self._on_stay = on_stay
        self._gate: _Gate = _Gate() if beside is None else beside._gate
        self._gate.queues.add(self)

    def add(self, site: Site, inputs: tuple[Node, ...], outputs: tuple[Node, ...], residuals: tuple[Any, ...]) -> None:
        """Remember a piece that ran by plan; if too many wait, fold those that have waited long enough."""
        piece = _core.piece(site, inputs, outputs, residuals)
        self._append(piece, outputs if len(outputs) == site.results else outputs[: site.results])

    def add_loose(self, piece: Piece) -> None:
        """Remember a piece that ran node by node."""
        piece.is_loose = True
        results = [reference() for reference in piece.outputs[: piece.site.results]]
        self._append(piece, [node for node in results if node is not None])

    def _append(self, piece: Piece, results: Sequence[Node]) -> None:
        if place_piece(piece, results, self.most):
            _mark_deep(piece)
        waiting = self._waiting
        waiting.append(ref(piece))
        if len(waiting) > self.most + self._shallow:
            self._fold_all(self.after, _is_deep)
            self._shallow = max(0, len(waiting) - self.after)
            if self._shallow > MOST_SHALLOW:
                self._fold_all(MOST_SHALLOW // 2)
                self._shallow = MOST_SHALLOW // 2

    def _fold(self, piece: Piece) -> None:
        # Plain loops: this runs once an iteration, and a comprehension costs as much as three turns of a loop.
        site, outputs, newest = piece.site, piece.outputs, piece.newest
        handles: list[Node] = []
        indices: tuple[int, ...] = ()
        first = 0
        for index in range(site.results):
            node = outputs[index]()
            if node is not None and (number := node.id) > newest:
                if not handles or number < first:
                    first = number
                handles.append(node)
                indices += (index,)
        node = None  # a second name would count as a reference from outside
        if handles and not site.is_ready:
            site.make_plan()
        if not handles or not (site.checks.get(indices) or site.make_check(indices))(*handles):
            self._on_stay(piece)
            return
        slab: tuple[Any, ...] = ()
        if piece.is_loose:  # what is kept for derivatives is with nodes that are let go now
            nodes = [reference() for reference in outputs[site.results :]]
            slab = _slab(site.plan, [None if node is None else node.value for node in nodes])
            del nodes
        elif piece.residuals:
            slab = _slab(site.plan, piece.residuals)
        # The call stands just before its outputs in the order of ids.
        call = fold(site.plan, piece.inputs, site.origins, first - 1, piece.depth, slab, indices, handles)
        if call is None:  # the same was recorded and evaluated before; its outputs have tensors that stand for them
            self._on_stay(piece)
            return
        STATISTICS.calls += 1
        BOUNDS.note(call)
        self._on_fold(call, piece)

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces that wait, oldest first."""
        for reference in tuple(self._waiting):
            piece = reference()
            if piece is not None:
                yield piece

    def settle(self) -> None:
        """Fold all loops, and the rest of what was folded in part, before anything is differentiated."""
        for queue in tuple(self._gate.queues):
            queue._fold_all(0, _is_part_of_a_loop)

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
        """Fold all but the newest pieces: those of loops, and those that are chosen, or all.

        While the graph is being walked nothing is done.
        """
        gate = self._gate
        if gate.readers:
            return
        with gate.lock:
            if gate.readers:
                return
            waiting = self._waiting
            left: list[ref[Piece]] = []
            while len(waiting) > after:
                try:
                    reference = waiting.popleft()
                except IndexError:  # another thread took the last one
                    break
                piece = reference()
                if piece is None:
                    continue
                if piece.is_deep or choose is None or choose(piece):
                    self._fold(piece)
                else:
                    left.append(reference)
            waiting.extendleft(reversed(left))

    def clear(self) -> None:
        """Forget what waits: it stays as it is."""
        self._waiting.clear()


def _slab(plan: Plan, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a call keeps for derivatives: all of it, or, if some was let go before, what has to be kept."""
    if not any(value is None for value in values):
        return tuple(values)
    kept = kept_residuals(plan)
    return tuple([value if i in kept else None for i, value in enumerate(values)]) if kept else ()


def depth_of(node: Node) -> int:
    """Return how many pieces in a row end with the one that a node is an output of."""
    piece = getattr(node, "piece", None)
    return 0 if piece is None else piece.depth


def _mark_deep(piece: Piece) -> None:
    """Mark a piece, and all before it that wait, as part of a loop."""
    stack = [piece]
    while stack:
        piece = stack.pop()
        piece.is_deep = True
        for operand in piece.inputs:
            before = getattr(operand, "piece", None)
            if before is not None and not before.is_deep:
                before.is_deep = True
                stack.append(before)


def _is_deep(piece: Piece) -> bool:
    return piece.is_deep


def _is_part_of_a_loop(piece: Piece) -> bool:
    return (
        piece.is_deep or piece.site.has_bundles or any(type(i) is Projection and call_of(i).depth for i in piece.inputs)
    )


def make_site(order: list[Node], kept: Sequence[Node], plan_for: Callable[[Fragment, tuple[Any, ...]], Plan]) -> Site:
    """Describe a piece: its results are the nodes that are kept, its residuals what derivatives need.

    Residuals may be outputs of a factorisation that the piece does not use but that its derivative rule does.
    """
    residuals = residual_nodes(order, kept)
    position = {node.id: i for i, node in enumerate(order)}
    extra = [node for node in residuals if node.id not in position]
    residuals = [node for node in residuals if node.id in position]
    captured = seal([*order, *extra], kept, [*residuals, *extra])
    origins = tuple([(node.code, node.lasti) for node in order])
    return Site(
        partial(plan_for, captured.fragment, tuple([i.shape for i in captured.inputs])),
        len(kept),
        [position[node.id] for node in (*kept, *residuals)],
        origins + origins[-1:] * len(extra),
        worth_folding=len(order) > len(kept),
        has_bundles=any(type(node) is Bundle for node in order),
    )
