"""Sealing what was evaluated: the piece is described, and some evaluations later folded into a call.

A piece that was evaluated is remembered by its outputs, for as long as they live. Folding it lets its interior nodes go:
the outputs become projections of one call, and a loop of K steps is one body and K short records. It waits for a number
of evaluations, for two reasons. A recipe that is recorded again while it is not folded finds the very nodes it had. And
what every iteration has in common (a product of leaves, say) is met a second time as the same node, is kept because it
is referenced from elsewhere, and is an input from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from unspool._fragments.call import Call, fold, new_call
from unspool._fragments.fragment import Captured, seal
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Node
from unspool._ops.leaf import LEAF_OPS

if TYPE_CHECKING:
    from unspool._engine.matching import Site

# Pieces that are not folded yet. A loop of fewer evaluations than this keeps its nodes.
FOLD_AFTER = 10


class Piece:
    """The record of a piece that was evaluated: its site, the nodes at its inputs, and its outputs, held weakly."""

    __slots__ = ("__weakref__", "extra", "inputs", "outputs", "site")

    def __init__(self, site: Site, inputs: tuple[Node, ...], outputs: Any, extra: tuple[Any, ...]) -> None:
        self.site = site
        self.inputs = inputs
        self.outputs = outputs
        self.extra = extra


class FoldQueue:
    """Pieces that wait to be folded, oldest first. It does not keep them alive: their outputs do."""

    def __init__(self, on_fold: Callable[[Call], None]) -> None:
        self.after = FOLD_AFTER
        self._waiting: deque[ref[Piece]] = deque()
        self._on_fold = on_fold

    def add(self, site: Site, inputs: tuple[Node, ...], outputs: Sequence[Node], extra: tuple[Any, ...]) -> None:
        """Remember a piece, and fold the one that has waited long enough."""
        piece = Piece(site, inputs, [ref(node) for node in outputs], extra)
        for node in outputs[: site.plan.fragment.results]:
            node.piece = piece
        waiting = self._waiting
        waiting.append(ref(piece))
        while len(waiting) > self.after:
            oldest = waiting.popleft()()
            if oldest is not None:
                self._fold(oldest)

    def _fold(self, piece: Piece) -> None:
        site, inputs = piece.site, piece.inputs
        results = site.plan.fragment.results
        # An output that is older than an input may be what that input is made from: the piece computed again what an
        # earlier one had not kept. It stays as it is, or the call would be made from itself.
        oldest = max([i.id for i in inputs if i.op not in LEAF_OPS], default=-1)
        handles: list[Node] = []
        indices: list[int] = []
        for index, reference in enumerate(piece.outputs[:results]):
            node = reference()
            if node is not None and node.id > oldest:
                handles.append(node)
                indices.append(index)
        node = None
        if not handles or not site.is_private(indices, handles):
            return
        # The call stands just before its outputs in the order of ids.
        call = new_call(site.plan, inputs, site.origins, min([handle.id for handle in handles]) - 1)
        if call is None:  # the same was recorded and evaluated before; its outputs have tensors that stand for them
            return
        if len(piece.outputs) > results or piece.extra:
            self._keep_slab(call, [reference() for reference in piece.outputs[results:]], piece.extra)
        for index, handle in zip(indices, handles, strict=True):
            handle.piece = None
            fold(handle, call, index)

    def _keep_slab(self, call: Call, residuals: Sequence[Node | None], extra: tuple[Any, ...]) -> None:
        slab = tuple([None if node is None else node.value for node in residuals]) + extra
        if call.value is None and not any(value is None for value in slab):
            call.value = slab
            self._on_fold(call)

    def flush(self) -> None:
        """Fold everything that waits."""
        while self._waiting:
            piece = self._waiting.popleft()()
            if piece is not None:
                self._fold(piece)

    def clear(self) -> None:
        """Forget what waits: it stays as it is."""
        self._waiting.clear()


def describe_piece(order: list[Node], kept: Sequence[Node], keep_residuals: bool) -> tuple[Captured, list[Node], int]:
    """Describe a piece as a fragment: its results are the nodes that are kept, its residuals what derivatives will need.

    Returns the description, the residual nodes that belong to the piece, and how many further residuals there are: outputs
    of a factorisation that the piece does not use but that its derivative rule does.
    """
    residuals: list[Node] = []
    extra: list[Node] = []
    if keep_residuals:
        chosen = {node.id for node in kept}
        residuals = [node for node in residual_nodes(order) if node.id not in chosen]
        present = {node.id for node in order}
        extra = [node for node in residuals if node.id not in present]
        residuals = [node for node in residuals if node.id in present]
    return seal([*order, *extra], kept, [*residuals, *extra]), residuals, len(extra)
