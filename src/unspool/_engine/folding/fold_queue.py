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

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from unspool import _core
from unspool._core import Piece, measure_piece
from unspool._engine.folding.cutting import recipe_for
from unspool._engine.folding.matching import Site
from unspool._engine.memory.cached import kept_residuals
from unspool._engine.structure import find_apart, reads_nothing
from unspool._fragments.call import Call, Projection
from unspool._fragments.fragment import seal
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Bundle, Node
from unspool._locks import Lock
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._core import Row
    from unspool._engine.folding.cutting import Describe, Recipe
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

# Patterns of what pieces share that are remembered, for each kind of piece.
_MOST_PATTERNS = 256

# Families that are remembered.
_MOST_FAMILIES = 4096


class _Gate:
    """Whether anything may be folded: one for all queues, for they fold nodes of one graph.

    ``parted`` are the results of pieces that were folded in parts, by the plan, the inputs and the place in the piece.
    It is there once a run was written, since a file has the piece as it was.
    """

    def __init__(self) -> None:
        self.parted: WeakValueDictionary[tuple[Any, ...], Node] | None = None
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
    many_nodes, fewest_long : int
        A row is a loop too if it has this many nodes, in at least so many pieces.
    families : dict
        Kinds of pieces, and the node that many of a kind read.
    ledger : Ledger or None
        Whether it follows what is held decides whether ``on_fold`` is called for every piece.
    """

    def __init__(
        self,
        on_fold: Callable[[Call, Piece], None],
        on_stay: Callable[[Piece], None],
        describe: Describe,
        beside: FoldQueue | None = None,
    ) -> None:
        self.most = MOST_WAITING
        self.after = FOLD_AFTER
        self.crowd = MOST_WAITING
        self.many_nodes = MANY_NODES
        self.fewest_long = FEWEST_LONG
        self.families: dict[tuple[int, int], None] = {}
        self._on_fold = on_fold
        self._on_stay = on_stay
        self._describe = describe
        self._gate: _Gate = _Gate() if beside is None else beside._gate
        self._gate.queues.add(self)

    def restore(self, pieces: Sequence[Piece], waiting: Sequence[Piece]) -> None:
        """Take pieces back that a file remembered, each after those that it reads, and those of them that waited."""
        for piece in pieces:
            self.place(piece)
        for piece in waiting:
            self.enter(piece)

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

    def _recipe(self, pieces: Sequence[Piece], nodes: list[Node], references: list[int], key: bytes) -> Recipe | None:
        """Return how the first of some pieces is cut that share nodes in a pattern, which is met for the first time."""
        recipes = pieces[0].site.recipes
        if len(recipes) >= _MOST_PATTERNS:
            recipes.clear()
        recipe = recipes[key] = recipe_for(pieces, nodes, references, self._describe)
        return recipe

    def _on_parted(self, piece: Piece) -> None:
        """Let the results of a piece be found by what the piece was, if runs are written: it was folded in parts."""
        parted = self._gate.parted
        if parted is None:
            return
        piece.site.make_plan()
        inputs = tuple([operand.id for operand in piece.inputs])
        for index, reference in enumerate(piece.outputs[: piece.site.results]):
            node = reference()
            if node is not None:
                parted[piece.site.plan.id, inputs, index] = node

    def remember_parted(self) -> None:
        """Let results of pieces that are folded in parts be found from now on."""
        if self._gate.parted is None:
            self._gate.parted = WeakValueDictionary()

    def find_parted(self, plan: Plan, inputs: Sequence[Node], index: int) -> Node | None:
        """Return a result of a piece that was folded in parts, while a run was written, if it is alive."""
        parted = self._gate.parted
        if parted is None:
            return None
        return parted.get((plan.id, tuple([operand.id for operand in inputs]), index))

    def _slab_of(self, piece: Piece) -> tuple[Any, ...]:
        """Return what the call of a piece keeps for derivatives, if not simply all that the piece kept."""
        site = piece.site
        if not piece.is_loose:
            return _slab(site.plan, piece.residuals)
        # What is kept for derivatives is with nodes that are freed now.
        nodes = [reference() for reference in piece.outputs[site.results :]]
        values = [None if node is None else node.value for node in nodes]
        # Parts of a factorisation that derivatives need, and nobody else, have no node.
        values += [None] * (len(site.fragment.outputs) - site.results - len(values))
        return _slab(site.plan, values)

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

    def settle(self, outputs: Sequence[Node] = (), variables: Sequence[Node] = ()) -> None:
        """Fold all loops, and the rest of what was folded in part, before outputs are differentiated.

        Not if that is in variables from which a few pieces were made: a step that takes a gradient. A loop that goes on
        is not folded to its end, because the next steps compute what these have recorded. Nor is a piece folded if in
        its time something was recorded that has not been computed.
        """
        queues = self._gate.queues
        # To go through a set of weak references takes longer than there is to do, mostly.
        for queue in (self,) if len(queues) == 1 else tuple(queues):
            if len(queue) and not (variables and queue._is_near(variables)):
                queue.find_families()
                pending = _pending_since(outputs, min([piece.newest for piece in queue.pieces()], default=0))
                queue._fold_all(partial(queue._is_due, pending) if pending else queue.will_fold)

    def _is_due(self, pending: Sequence[int], piece: Piece) -> bool:
        """Whether a piece is to be folded, and nothing that is pending was recorded in its time."""
        if not self.will_fold(piece):
            return False
        end = max([node.id for reference in piece.outputs if (node := reference()) is not None], default=0)
        return bisect_right(pending, piece.newest) == bisect_right(pending, end)

    def _is_near(self, variables: Sequence[Node]) -> bool:
        """Whether variables are no leaves, and few pieces wait that were made since, none with a factorisation."""
        if any(map(reads_nothing, variables)):
            return False
        first = min([variable.id for variable in variables])
        made = [piece for piece in self.pieces() if piece.newest >= first]
        return len(made) < self.after and not any(piece.site.has_bundles for piece in made)

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


def _slab(plan: Plan, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what a call keeps for derivatives: all of it, or, if some was evicted before, what has to be kept."""
    if not any(value is None for value in values):
        return tuple(values)
    kept = kept_residuals(plan)
    return tuple([value if i in kept else None for i, value in enumerate(values)]) if kept else ()


def _pending_since(outputs: Sequence[Node], first: int) -> list[int]:
    """Return the ids, in order, of what outputs are made from that has no value and is younger than a node."""
    found: set[int] = set()
    stack = [node for node in outputs if node.value is None]
    while stack:
        node = stack.pop()
        if node.id > first and node.id not in found and type(node) is not Projection:
            found.add(node.id)
            stack += [operand for operand in node.inputs if operand.value is None]
    return sorted(found)


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
        apart=find_apart(captured, order, literals),
        ahead=ahead,
    )
