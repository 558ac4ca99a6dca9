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

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from unspool import _core
from unspool._core import Piece, measure_piece
from unspool._dims import is_concrete
from unspool._engine.folding.matching import Site
from unspool._engine.interpreter import bytes_of
from unspool._engine.memory.cached import kept_residuals
from unspool._engine.structure import find_apart
from unspool._fragments.call import Call
from unspool._fragments.fragment import seal
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Bundle, Node
from unspool._locks import Lock
from unspool._ops.identity import ALIAS
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._core import Row
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment

# How deep a row may become before it is folded, and how much of it is left waiting when it is folded on the way.
MOST_WAITING = 64
FOLD_AFTER = 10

# A row is a loop too if it has this many nodes, in at least so many pieces. The gradient of fewer nodes fits into one
# piece, which costs no more than the calls of a loop would.
MANY_NODES = 128
FEWEST_LONG = 6

# The same for rows with large arrays. Kernels take most of their time, folded or not, and within a budget what runs
# again is a node as long as they are short: a few steps would be too coarse.
LARGE_ARRAY = 1 << 12
MANY_LARGE = 1024
FEWEST_LARGE = 16

# Of such a row those pieces are folded of which there are as many: another is no body of a loop, and to derive its
# adjoint takes longer than its nodes do.
FEWEST_ALIKE = 4

# Pieces that may wait, in rows that are not deep.
MOST_SHALLOW = 1024

# Families that are remembered.
_MOST_FAMILIES = 4096


class _Gate:
    """Whether anything may be folded: one for all queues, for they fold nodes of one graph."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.readers = 0
        self.queues: WeakSet[FoldQueue] = WeakSet()

    # A reader comes and goes; a gradient inside of a loop is one twice in each step.
    def __enter__(self) -> None:
        with self.lock:
            self.readers += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.readers -= 1


class FoldQueue(_core.QueueBase):
    """Pieces that wait to be folded, oldest first. It does not keep them alive: their outputs do.

    Each engine has one. Who looks at a graph asks any of them: they settle together, and stand still together. What is
    done for each piece is done in C (`queue.c`, `folding.c`); here is what is decided about many.

    Attributes
    ----------
    most, after : int
        How deep a row is that is a loop, and how much of it is left waiting when it is folded while it goes on.
    many_nodes, fewest_long, many_large, fewest_large : int
        A row is a loop too if it has this many nodes, in at least so many pieces; the last two are for large arrays.
    newest : int
        The largest id of what pieces that ever waited gave.
    families : dict
        Kinds of pieces, and the node that many of a kind read.
    ledger : Ledger or None
        Whether it follows what is held decides whether ``on_fold`` is called for every piece.
    """

    def __init__(
        self,
        on_fold: Callable[[Call, Piece], None],
        on_stay: Callable[[Piece], None],
        beside: FoldQueue | None = None,
    ) -> None:
        self.most = MOST_WAITING
        self.after = FOLD_AFTER
        self.crowd = MOST_WAITING
        self.many_nodes = MANY_NODES
        self.fewest_long = FEWEST_LONG
        self.many_large = MANY_LARGE
        self.fewest_large = FEWEST_LARGE
        self.families: dict[tuple[int, int], None] = {}
        self._on_fold = on_fold
        self._on_stay = on_stay
        self._gate: _Gate = _Gate() if beside is None else beside._gate
        self._gate.queues.add(self)

    def restore(self, pieces: Sequence[Piece], waiting: Sequence[Piece]) -> None:
        """Take pieces back that a file remembered, each after those that it reads, and those of them that waited."""
        for piece in pieces:
            self.place(piece)
        for piece in waiting:
            self.enter(piece)
            outputs = [reference() for reference in piece.outputs]
            self.newest = max(self.newest, *[node.id for node in outputs if node is not None], 0)

    def let_stay(self, pieces: Sequence[Piece]) -> None:
        """Forget pieces that wait: they stay as they are."""
        for piece in pieces:
            self.leave(piece)

    @property
    def patience(self) -> tuple[int, int]:
        """How many may wait before it is looked after them, and how many do, with those that have died since."""
        return self.crowd, len(self)

    def be_as_patient(self, crowd: int, length: int) -> None:
        """Look after those that wait when another queue would have, whose `patience` is given."""
        self.crowd = crowd
        self.pad(length - len(self))

    def _fold_deep(self, row: Row, depth: int) -> None:
        """Fold the pieces of a row up to a depth: it has become a number of pieces deeper."""
        gate = self._gate
        if not gate.readers:
            with gate.lock:
                if not gate.readers:
                    self.fold_row(row, depth)

    def _make_space(self) -> None:
        """Forget pieces that have died and, if still very many wait, fold the older half: families, or else all."""
        self._fold_all(lambda piece: False)
        older = len(self) - MOST_SHALLOW // 2
        if older > MOST_SHALLOW // 2:
            self.find_families()
            self._fold_all(self._is_of_family, older)
        if len(self) > MOST_SHALLOW:
            self._fold_all(None, older)
        self.crowd = max(MOST_WAITING, 2 * len(self))

    def _slab_of(self, piece: Piece) -> tuple[Any, ...]:
        """Return what the call of a piece keeps for derivatives, if not simply all that the piece kept."""
        site = piece.site
        if not piece.is_loose:
            return _slab(site.plan, piece.residuals)
        # What is kept for derivatives is with nodes that are freed now.
        nodes = [reference() for reference in piece.outputs[site.results :]]
        return _slab(site.plan, [None if node is None else node.value for node in nodes])

    def fold_found(self, find: Callable[[], Sequence[Piece]]) -> None:
        """Fold pieces that nobody has evaluated, each after those that it reads.

        They are looked for while nobody else folds. While the graph is being walked nothing is done.
        """
        gate = self._gate
        with gate.lock:
            if not gate.readers:
                for piece in find():
                    measure_piece(piece)
                    self.fold_one(piece)

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces that wait, oldest first."""
        return iter(self.alive())

    def waiting(self) -> set[int]:
        """Return the identities of the pieces that wait, in any queue."""
        return {id(piece) for queue in tuple(self._gate.queues) for piece in queue.pieces()}

    def settle(self, variables: Sequence[Node] = ()) -> None:
        """Fold all loops, and the rest of what was folded in part, before anything is differentiated by variables.

        A sweep looks no further back than variables. Leaves, and what stands in for the arguments of a function, are
        often younger than all that waits. And where variables were made by the last few pieces of a loop, as where each
        step takes a gradient by its own state, those pieces are no loop of their own, and wait.
        """
        queues = self._gate.queues
        are_ends = all(not variable.inputs or variable.op is ALIAS for variable in variables)
        since = min([variable.id for variable in variables], default=0) if are_ends else 0
        # To go through a set of weak references takes longer than there is to do, mostly.
        for queue in (self,) if len(queues) == 1 else tuple(queues):
            if not since or queue.newest > since:
                queue.find_families()
                queue._fold_all(queue.chooser(variables))

    def _swept_alone(self, variables: Sequence[Node]) -> dict[Row, int]:
        """Return from which depth on the pieces of rows wait, because a sweep that ends there sees no loop."""
        made_by: list[Any] = [getattr(variable, "piece", None) for variable in variables]
        if not all(type(piece) is Piece for piece in made_by):
            return {}  # a leaf, or what was folded: the sweep goes back to there
        starts: dict[Row, int] = {}
        for piece in made_by:
            row = _row_of(piece)
            starts[row] = min(piece.depth, starts.get(row, piece.depth))
        for row, start in list(starts.items()):
            later = [piece for piece in self.pieces() if piece.depth >= start and _row_of(piece) is row]
            nodes = sum([len(piece.site.origins) for piece in later])
            fewest, many = self.least_of(row)
            if len(later) >= fewest and nodes >= many:
                del starts[row]
        return starts

    def chooser(self, variables: Sequence[Node] = ()) -> Callable[[Piece], bool]:
        """Return what tells of a piece whether it is folded before anything is differentiated by variables."""
        swept = self._swept_alone(variables)
        alike: Counter[tuple[Row, int]] = Counter()

        def choose(piece: Piece) -> bool:
            if not self.will_fold(piece) or piece.site.has_bundles:
                return bool(piece.site.has_bundles)
            row = _row_of(piece)
            if piece.depth >= swept.get(row, piece.depth + 1):
                return False
            fewest, many = self.least_of(row)
            if row.depth > self.most or row.depth < fewest or row.nodes < many:
                return True  # it is deep, of a family, or reads what was folded
            if not alike:
                alike.update([(_row_of(piece), piece.site.fragment.id) for piece in self.pieces()])
            # Folding takes pieces out of those that wait one by one.
            alike.setdefault((row, piece.site.fragment.id), 1)
            return alike[row, piece.site.fragment.id] >= FEWEST_ALIKE

        return choose

    def least_of(self, row: Row) -> tuple[int, int]:
        """Return how many pieces and how many nodes make a row a loop that is not deep."""
        if row.has_large:
            return self.fewest_large, self.many_large
        return self.fewest_long, self.many_nodes

    def flush(self) -> None:
        """Fold everything that waits."""
        self._fold_all(None)

    def find_families(self) -> None:
        """Look for families among the pieces that wait: many of one kind that read the same node.

        They are the steps of a loop that do not read each other, as where a loss is added up over data.
        """
        if len(self) <= self.most:
            return
        counts: dict[tuple[int, int], int] = {}
        for piece in self.pieces():
            kind = piece.site.fragment.id
            for operand in piece.inputs:
                if operand.op is not CONSTANT:  # which other programs have too
                    key = (kind, operand.id)
                    counts[key] = count = counts.get(key, 0) + 1
                    if count == self.most + 1:
                        self.families[key] = None
        for key in list(self.families)[:-_MOST_FAMILIES]:
            self.families.pop(key, None)  # another thread may have been here

    def _is_of_family(self, piece: Piece) -> bool:
        families = self.families
        kind = piece.site.fragment.id
        return any((kind, operand.id) in families for operand in piece.inputs)

    def nothing_folds(self) -> AbstractContextManager[None]:
        """Keep the graph as it is during the block, in all threads: a walk looks at a node more than once."""
        return self._gate

    def _fold_all(self, choose: Callable[[Piece], bool] | None, most: int | None = None) -> None:
        """Fold the pieces that are chosen, or all, and at most the oldest so many; forget what has died.

        While the graph is being walked nothing is done.
        """
        gate = self._gate
        if not gate.readers:
            with gate.lock:  # nobody else folds meanwhile
                if not gate.readers:
                    self.fold_chosen(choose, most)


def _row_of(piece: Piece) -> Row:
    """Return the row of a piece that was placed."""
    row: Any = piece.row
    whole: Row = row.whole()
    return whole


def _slab(plan: Plan, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a call keeps for derivatives: all of it, or, if some was evicted before, what has to be kept."""
    if not any(value is None for value in values):
        return tuple(values)
    kept = kept_residuals(plan)
    return tuple([value if i in kept else None for i, value in enumerate(values)]) if kept else ()


def has_large(nodes: Sequence[Node]) -> bool:
    """Whether one of some nodes is a large array, as far as sizes are known."""
    return any(_has_numbers(node) and bytes_of(node) >= LARGE_ARRAY for node in nodes)


def _has_numbers(node: Node) -> bool:
    shapes: Any = node.shape if type(node) is Bundle else (node.shape,)
    return all(map(is_concrete, shapes))


def make_site(
    order: list[Node],
    kept: Sequence[Node],
    plan_for: Callable[[Fragment, tuple[Any, ...]], Plan],
    literals: Container[int] = (),
    ahead: frozenset[int] = frozenset(),
) -> Site:
    """Describe a piece: its results are the nodes that are kept, its residuals what derivatives need.

    Residuals may be outputs of a factorisation that the piece does not use but that its derivative rule does.
    ``literals`` are inputs that stand for constants; ``ahead`` are the places of results that nobody asks for yet.
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
        has_large=has_large(order),
        apart=find_apart(captured, order, literals),
        ahead=ahead,
    )
