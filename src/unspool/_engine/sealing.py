"""Sealing what was evaluated: the piece is described, and some evaluations later folded into a call.

A piece that was evaluated is remembered by its outputs, for as long as they live. Folding it lets its interior nodes
go: the outputs become projections of one call, and a loop of K steps is one body and K short records.

Which pieces are folded, and when, follows from the program alone, not from what else waits: a derivative of what is
folded may add up in another order. Pieces that read each other are a *row*. It is a loop if it is deep: many pieces,
each of which reads the one before, or fewer with many nodes. Loops are folded, each time they have become a number of
pieces deeper, and before they are differentiated at the latest. A program with few evaluations is not: it has nothing
to gain, and a recipe that is recorded again finds the very nodes it had; unless it has factorisations, because a call
keeps what their derivatives need, and nodes that die do not. Many pieces that do not read each other but the same node
are a loop as well, a *family*. Folding while the loop goes on leaves the last few pieces.
Those wait because of what every iteration has in common (a product of leaves, say): it is met a second time as the same
node, is kept because it is referenced from elsewhere, and is an input from then on. If very many pieces wait, whosever
they are, the oldest are folded too.

What is made of constants alone (the ones that a sum sends back) is no part of a piece, even if it was computed with it.
Another program, or thread, that writes the same down has the same node, and would be made from this one's steps.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from unspool import _core
from unspool._core import Piece, fold, place_piece
from unspool._engine.held import kept_residuals
from unspool._engine.matching import PRIVATE, RECORDED_BEFORE, TOO_OLD, Site
from unspool._engine.structure import find_apart
from unspool._fragments.call import BOUNDS, Call, Projection, call_of
from unspool._fragments.fragment import seal
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Bundle, Node
from unspool._ops.leaf import CONSTANT
from unspool._statistics import STATISTICS

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment

# How deep a row is that is a loop, and how much of it is left waiting when it is folded while it goes on.
MOST_WAITING = 64
FOLD_AFTER = 10

# A row is a loop too if it has this many nodes, in at least so many pieces: a loop that is read now and then.
MANY_NODES = 1024
FEWEST_LONG = 16

# Pieces that may wait, in rows that are not deep.
MOST_SHALLOW = 1024

# Families that are remembered.
_MOST_FAMILIES = 4096


class Row:
    """Pieces that read each other, those that read or are read by these, and so on, as long as they wait.

    Attributes
    ----------
    depth : int
        How deep the deepest of them is.
    nodes : int
        How many nodes they had.
    """

    __slots__ = ("_joined", "depth", "nodes")

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.nodes = 0
        self._joined: Row | None = None

    def whole(self) -> Row:
        """Return the row that this one is part of by now."""
        row = self
        while (longer := row._joined) is not None:
            if longer._joined is not None:
                row._joined = longer._joined  # the way is half as long the next time
            row = longer
        return row

    def join(self, other: Row) -> None:
        """Make this row part of another one."""
        one, whole = self.whole(), other.whole()
        if one is not whole:
            one._joined = whole
            whole.depth = max(whole.depth, one.depth)
            whole.nodes += one.nodes


# Stands for pieces that have died.
_DEAD: Any = ref(frozenset({0}))


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
        self._crowd = MOST_WAITING
        self._families: dict[tuple[int, int], None] = {}
        self._waiting: deque[ref[Piece]] = deque()
        self._on_fold = on_fold
        self._on_stay = on_stay
        self._gate: _Gate = _Gate() if beside is None else beside._gate
        self._gate.queues.add(self)

    def add(self, site: Site, inputs: tuple[Node, ...], outputs: tuple[Node, ...], residuals: tuple[Any, ...]) -> None:
        """Remember a piece that ran by plan; if too many wait, fold those that have waited long enough."""
        piece = _core.piece(site, inputs, outputs, residuals)
        if site.apart.results:
            self._append(piece, _own_results(piece))
        else:
            self._append(piece, outputs if len(outputs) == site.results else outputs[: site.results])

    def add_loose(self, piece: Piece) -> None:
        """Remember a piece that ran node by node."""
        piece.is_loose = True
        self._append(piece, _own_results(piece))

    def restore(self, pieces: Sequence[Piece], waiting: Sequence[Piece]) -> None:
        """Take pieces back that a file remembered, each after those that it reads, and those of them that waited."""
        for piece in pieces:
            _place(piece, _own_results(piece))
        self._waiting.extend(map(ref, waiting))

    def let_stay(self, pieces: Sequence[Piece]) -> None:
        """Forget pieces that wait: they stay as they are."""
        for piece in pieces:
            with suppress(ValueError):  # two tensors may be of one piece
                self._waiting.remove(ref(piece))

    @property
    def patience(self) -> tuple[int, int]:
        """How many may wait before it is looked after them, and how many do, with those that have died since."""
        return self._crowd, len(self._waiting)

    def be_as_patient(self, crowd: int, length: int) -> None:
        """Look after those that wait when another queue would have, whose `patience` is given."""
        self._crowd = crowd
        missing = length - len(self._waiting)
        self._waiting.extendleft([_DEAD] * missing)

    def _append(self, piece: Piece, results: Sequence[Node]) -> None:
        row, depth = _place(piece, results), piece.depth
        waiting = self._waiting
        waiting.append(ref(piece))
        deeper = depth - self.most
        if deeper > 0 and (deeper - 1) % (self.most + 1 - self.after) == 0:
            self._fold_all(lambda piece: piece.depth <= depth - self.after and _row_of(piece) is row)
        elif len(waiting) > self._crowd:
            self._make_space()

    def _make_space(self) -> None:
        """Forget pieces that have died and, if still very many wait, fold the older half: families, or else all."""
        self._fold_all(lambda piece: False)
        older = len(self._waiting) - MOST_SHALLOW // 2
        if older > MOST_SHALLOW // 2:
            self.find_families()
            self._fold_all(self._is_of_family, older)
        if len(self._waiting) > MOST_SHALLOW:
            self._fold_all(None, older)
        self._crowd = max(MOST_WAITING, 2 * len(self._waiting))

    def _fold(self, piece: Piece) -> None:
        # Plain loops: this runs once an iteration, and a comprehension costs as much as three turns of a loop.
        site, outputs, newest = piece.site, piece.outputs, piece.newest
        apart = site.apart.results
        handles: list[Node] = []
        indices: tuple[int, ...] = ()
        first = 0
        for index in range(site.results):
            node = outputs[index]()
            if node is not None and (number := node.id) > newest and index not in apart:
                if not handles or number < first:
                    first = number
                handles.append(node)
                indices += (index,)
        node = None  # a second name would count as a reference from outside
        if handles and not site.is_ready:
            site.make_plan()
        used = (site.checks.get(indices) or site.make_check(indices))(*handles) if handles else TOO_OLD
        if used != PRIVATE:
            site.note_stay(used)
            self._on_stay(piece)
            return
        slab: tuple[Any, ...] = ()
        if piece.is_loose:  # what is kept for derivatives is with nodes that are freed now
            nodes = [reference() for reference in outputs[site.results :]]
            slab = _slab(site.plan, [None if node is None else node.value for node in nodes])
            del nodes
        elif piece.residuals:
            slab = _slab(site.plan, piece.residuals)
        # The call stands just before its outputs in the order of ids.
        call = fold(site.plan, piece.inputs, site.origins, first - 1, piece.depth, slab, indices, handles)
        if call is None:  # the same was recorded and evaluated before; its outputs have tensors that stand for them
            site.note_stay(RECORDED_BEFORE)
            self._on_stay(piece)
            return
        STATISTICS.calls += 1
        BOUNDS.note(call)
        self._on_fold(call, piece)

    def fold_found(self, find: Callable[[], Sequence[Piece]]) -> None:
        """Fold pieces that nobody has evaluated, each after those that it reads.

        They are looked for while nobody else folds. While the graph is being walked nothing is done.
        """
        gate = self._gate
        with gate.lock:
            if not gate.readers:
                for piece in find():
                    place_piece(piece, ())
                    self._fold(piece)

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces that wait, oldest first."""
        for reference in tuple(self._waiting):
            piece = reference()
            if piece is not None:
                yield piece

    def waiting(self) -> set[int]:
        """Return the identities of the pieces that wait, in any queue."""
        return {id(piece) for queue in tuple(self._gate.queues) for piece in queue.pieces()}

    def settle(self) -> None:
        """Fold all loops, and the rest of what was folded in part, before anything is differentiated."""
        queues = self._gate.queues
        # To go through a set of weak references takes longer than there is to do, mostly.
        for queue in (self,) if len(queues) == 1 else tuple(queues):
            queue.find_families()
            queue._fold_all(queue.will_fold)

    def flush(self) -> None:
        """Fold everything that waits."""
        self._fold_all(None)

    def will_fold(self, piece: Piece) -> bool:
        """Whether a piece that waits is folded before anything is differentiated: it is part of a loop."""
        row = _row_of(piece)
        return (
            row.depth > self.most
            or (row.nodes >= MANY_NODES and row.depth >= FEWEST_LONG)
            or piece.site.has_bundles
            or any(type(i) is Projection and call_of(i).depth for i in piece.inputs)
            or self._is_of_family(piece)
        )

    def find_families(self) -> None:
        """Look for families among the pieces that wait: many of one kind that read the same node.

        They are the steps of a loop that do not read each other, as where a loss is added up over data.
        """
        if len(self._waiting) <= self.most:
            return
        counts: dict[tuple[int, int], int] = {}
        for piece in self.pieces():
            kind = piece.site.fragment.id
            for operand in piece.inputs:
                if operand.op is not CONSTANT:  # which other programs have too
                    key = (kind, operand.id)
                    counts[key] = count = counts.get(key, 0) + 1
                    if count == self.most + 1:
                        self._families[key] = None
        for key in list(self._families)[:-_MOST_FAMILIES]:
            self._families.pop(key, None)  # another thread may have been here

    def _is_of_family(self, piece: Piece) -> bool:
        families = self._families
        if not families:
            return False
        kind = piece.site.fragment.id
        return any((kind, operand.id) in families for operand in piece.inputs)

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

    def _fold_all(self, choose: Callable[[Piece], bool] | None, most: int | None = None) -> None:
        """Fold the pieces that are chosen, or all, and at most the oldest so many; forget what has died.

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
            for _ in range(len(waiting) if most is None else most):
                try:
                    reference = waiting.popleft()
                except IndexError:  # another thread took the last one
                    break
                piece = reference()
                if piece is None:
                    continue
                if choose is None or choose(piece):
                    self._fold(piece)
                else:
                    left.append(reference)
            waiting.extendleft(reversed(left))

    def clear(self) -> None:
        """Forget what waits: it stays as it is."""
        self._waiting.clear()


def _place(piece: Piece, results: Sequence[Node]) -> Row:
    """Let the results of a piece keep it, and return the row that it belongs to."""
    if place_piece(piece, results):
        row = _join_rows(piece)
    elif piece.row is None:
        row = piece.row = Row(piece.depth)
    else:
        row = piece.row.whole()
    row.depth = max(row.depth, piece.depth)
    row.nodes += len(piece.site.origins)
    return row


def _slab(plan: Plan, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a call keeps for derivatives: all of it, or, if some was evicted before, what has to be kept."""
    if not any(value is None for value in values):
        return tuple(values)
    kept = kept_residuals(plan)
    return tuple([value if i in kept else None for i, value in enumerate(values)]) if kept else ()


def depth_of(node: Node) -> int:
    """Return how many pieces in a row end with the one that a node is an output of."""
    piece = getattr(node, "piece", None)
    return 0 if piece is None else piece.depth


def _own_results(piece: Piece) -> list[Node]:
    """Return the results of a piece that are alive, without those that are no part of it."""
    site = piece.site
    results = enumerate(piece.outputs[: site.results])
    nodes = [reference() for index, reference in results if index not in site.apart.results]
    return [node for node in nodes if node is not None]


def _row_of(piece: Piece) -> Row:
    assert piece.row is not None  # it has one since it waits
    return piece.row.whole()


def _join_rows(piece: Piece) -> Row:
    """Make one row of those that a piece reads, and return it."""
    row = _row_of(piece)
    for operand in piece.inputs:
        before = getattr(operand, "piece", None)
        if before is not None and before.row is not None:
            before.row.join(row)
    return row.whole()


def make_site(
    order: list[Node],
    kept: Sequence[Node],
    plan_for: Callable[[Fragment, tuple[Any, ...]], Plan],
    literals: Container[int] = (),
) -> Site:
    """Describe a piece: its results are the nodes that are kept, its residuals what derivatives need.

    Residuals may be outputs of a factorisation that the piece does not use but that its derivative rule does.
    ``literals`` are inputs that stand for constants.
    """
    residuals = residual_nodes(order, kept)
    position = {node.id: i for i, node in enumerate(order)}
    extra = [node for node in residuals if node.id not in position]
    residuals = [node for node in residuals if node.id in position]
    captured = seal([*order, *extra], kept, [*residuals, *extra])
    origins = tuple([(node.code, node.lasti) for node in order])
    return Site(
        partial(plan_for, captured.fragment, tuple([i.shape for i in captured.inputs])),
        captured.fragment,
        len(kept),
        [position[node.id] for node in (*kept, *residuals)],
        origins + origins[-1:] * len(extra),
        has_bundles=any(type(node) is Bundle for node in order),
        apart=find_apart(captured, order, literals),
    )
