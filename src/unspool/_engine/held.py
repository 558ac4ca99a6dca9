"""Records of what is held: a value, what a step keeps for derivatives, a step that is not a call.

All refer to nodes weakly: a record keeps nothing alive. What refers to a node, and how often, tells whether somebody
may still ask for it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import compress
from sys import getsizeof
from typing import TYPE_CHECKING, Any
from weakref import ref

from numpy import ndarray

from unspool._engine.references import IN_A_VARIABLE, count_references
from unspool._fragments.call import Call
from unspool._fragments.residuals import kept_outputs
from unspool._graph import Node
from unspool._ops.hints import is_kept

if TYPE_CHECKING:
    from unspool._core import Piece
    from unspool._engine.plan import Plan

# Arrays of at most so many bytes are not worth evicting: the objects around them are larger.
TINY = 256


class Held:
    """A value that is held: where on the line of steps it was made and last used, and how many tuples refer to it."""

    __slots__ = ("last", "made", "nbytes", "node", "uses")

    def __init__(self, node: Node, made: int) -> None:
        self.node = ref(node)
        self.nbytes: int = node.value.nbytes
        self.made = made
        self.last = made
        self.uses = 0

    def is_alive(self) -> bool:
        """Whether there is something to evict."""
        node = self.node()
        return node is not None and node.value is not None

    def is_referenced(self, known: int = 0) -> bool:
        """Whether something refers to the node beside the steps that used it and some that are known.

        That is a variable of the user's, or graph that may still run.
        """
        node = self.node()
        return count_references(node) > IN_A_VARIABLE + self.uses + known


class Loose:
    """A step that is not a call: nodes whose values are held, and the nodes it read."""

    __slots__ = ("nbytes", "nodes", "read")

    def __init__(self, nodes: Iterable[Node], read: Iterable[int]) -> None:
        self.nodes = [ref(node) for node in nodes]
        self.nbytes = sum([node.value.nbytes for node in nodes if node.value is not None])
        self.read = tuple(read)


def is_alive(step: Loose | ref[Any]) -> bool:
    """Whether something is left of a step."""
    if isinstance(step, Loose):
        return any(node() is not None for node in step.nodes)
    return step() is not None


class Slab:
    """What a step keeps for its derivatives: with its call or, while it is not folded, with its nodes.

    ``nbytes`` is what it takes; what a user wants kept stays when the rest is evicted.
    """

    __slots__ = ("_call", "_nodes", "_piece", "identity", "nbytes")

    def __init__(self, step: Call | Piece) -> None:
        self._call: ref[Call] | None = None
        self._piece: ref[Piece] | None = None
        self._nodes: list[ref[Node]] = []
        self.nbytes = self.identity = 0
        if isinstance(step, Call):
            self.move_to(step)
        else:
            results = step.site.results
            shown = {id(reference()) for reference in step.outputs[:results]}
            self._piece = ref(step)
            self._nodes = [reference for reference in step.outputs[results:] if id(reference()) not in shown]
            alive = [reference() for reference in step.outputs]
            self.identity = max([node.id for node in alive if node is not None], default=0)
            self._count()

    def move_to(self, call: Call) -> None:
        """Note that the step was folded."""
        self._call, self._piece, self._nodes = ref(call), None, []
        self.identity = call.id
        self._count()

    def _count(self) -> None:
        call, piece = self._alive()
        if call is not None:
            self.nbytes = residual_bytes(call.handles, call.value) if call.value else 0
        elif piece is not None:
            outputs = [reference() for reference in piece.outputs[: piece.site.results]]
            self.nbytes = residual_bytes(outputs, piece.residuals) if piece.residuals else 0
        else:
            self.nbytes = sum([node.value.nbytes for node in self._valued()])

    def _alive(self) -> tuple[Call | None, Piece | None]:
        return None if self._call is None else self._call(), None if self._piece is None else self._piece()

    def _valued(self) -> list[Node]:
        if not self._nodes:
            return []
        nodes = [reference() for reference in self._nodes]
        return [node for node in nodes if node is not None and node.value is not None]

    def _left_to_outputs(self, arrays: Iterable[Any]) -> int:
        """Return the bytes of arrays that tiny outputs hold too: these stay, and count no more without it."""
        call, piece = self._alive()
        outputs: Sequence[Node | None] = ()
        if call is not None:
            outputs = call.handles
        elif piece is not None:
            outputs = [node() for node in piece.outputs[: piece.site.results]]
        tiny: dict[int, int] = {}
        for node in outputs:
            if node is not None and node.value is not None and node.value.nbytes <= TINY:
                add_memory(tiny, (node.value,))
        if not tiny:
            return 0
        found: dict[int, int] = {}
        add_memory(found, arrays)
        return sum([size for key, size in found.items() if key in tiny])

    def arrays(self) -> list[Any]:
        """Return what it holds, also what outputs hold too; empty if it holds nothing any more."""
        call = None if self._call is None else self._call()
        if call is not None:
            values = call.value or ()
        else:
            piece = None if self._piece is None else self._piece()
            values = () if piece is None else piece.residuals
        if self._nodes:
            values = (*values, *[node.value for node in self._valued()])
        return [value for value in values if value is not None] if values else []

    def drop(self) -> int:
        """Evict it, as far as nobody wants it kept, and return how many bytes that gave."""
        arrays = self.arrays()
        left, watched = self._left_to_outputs(arrays), watch(arrays)
        arrays.clear()
        call, piece = self._alive()
        if call is not None and call.value:
            call.value = _only_kept(call.plan, call.value)
        if piece is not None and piece.residuals:
            piece.residuals = _only_kept(piece.site.plan, piece.residuals)
        for node in self._valued():
            if not is_kept(node):
                node.value = None
        self._count()
        return freed_of(watched) + left

    def drop_unread(self, read: Container[int]) -> int:
        """Evict what no node reads whose id is not among some, and return how many bytes that gave."""
        call, _ = self._alive()
        if call is None or not call.value:
            return 0
        kept = kept_residuals(call.plan)
        left: list[Any] = list(call.value)
        gone = []
        for index, position in call.plan.fragment.slab.items():
            if left[position] is not None and position not in kept:
                handle = call.handle(index)
                if handle is None or handle.id not in read:
                    gone.append(left[position])
                    left[position] = None
        outputs = self._left_to_outputs(gone)
        watched = watch(gone)
        gone.clear()
        call.value = () if all(value is None for value in left) else tuple(left)
        del left
        self._count()
        return freed_of(watched) + outputs


def _only_kept(plan: Plan, residuals: tuple[Any, ...]) -> tuple[Any, ...]:
    kept = kept_residuals(plan)
    return tuple([value if i in kept else None for i, value in enumerate(residuals)]) if kept else ()


# --- counting --------------------------------------------------------------------------------------------------------


def references_of(pieces: Iterable[Piece]) -> dict[int, int]:
    """Count how often the nodes of pieces that wait refer to the nodes at their inputs and to their outputs."""
    known: dict[int, int] = {}
    for piece in pieces:
        plan = piece.site.plan
        outputs = [reference() for reference in piece.outputs]
        alive = tuple([node is not None for node in outputs])
        counts = plan.derivatives.get(("references", alive)) or _reference_counts(plan, alive)
        for slot, operand in enumerate(piece.inputs):
            known[operand.id] = known.get(operand.id, 0) + counts[slot] + 1
        for slot, node in zip(plan.fragment.outputs, outputs, strict=False):
            if node is not None:
                known[node.id] = known.get(node.id, 0) + counts[slot]
    return known


def _reference_counts(plan: Plan, alive: tuple[bool, ...]) -> list[int]:
    """Count, for every slot of a plan, how often the nodes that outputs keep alive refer to it."""
    fragment = plan.fragment
    first = len(fragment.dtypes)
    counts = [0] * (first + len(fragment.body))
    wanted = set(compress(fragment.outputs, alive))
    for slot in reversed(range(first, len(counts))):
        if slot in wanted:
            for operand in fragment.body[slot - first].operands:
                counts[operand] += 1
                wanted.add(operand)
    plan.derivatives["references", alive] = counts
    return counts


def residual_bytes(outputs: Iterable[Node | None], values: Sequence[Any]) -> int:
    """Return the bytes that the residuals of a step take, without those that one of its live outputs holds too."""
    shown: dict[int, int] = {}
    found: dict[int, int] = {}
    add_memory(shown, [node.value for node in outputs if node is not None])
    add_memory(found, values)
    return sum([size for key, size in found.items() if key not in shown])


def add_memory(found: dict[int, int], arrays: Iterable[Any]) -> None:
    """Add the bytes of arrays, by what identifies their memory: views share that of what they look at."""
    for array in arrays:
        if array is not None:
            owner = array.base
            if type(owner) is not ndarray:
                owner = array
            found[id(owner)] = owner.nbytes


def watch(arrays: Iterable[Any]) -> list[tuple[ref[Any], int]]:
    """Return what tells later whether the memory of arrays was freed, and how many bytes that gave; see `freed_of`."""
    found = {}
    for array in arrays:
        owner = array.base
        if type(owner) is not ndarray:
            owner = array
        if type(owner) is ndarray:
            found[id(owner)] = ref(owner), owner.nbytes
    return list(found.values())


def freed_of(watched: Iterable[tuple[ref[Any], int]]) -> int:
    """Return how many bytes of arrays that are watched were freed: nobody else has them, under whatever name."""
    freed = 0
    for owner, nbytes in watched:
        if owner() is None:
            freed += nbytes
    return freed


def kept_residuals(plan: Plan) -> frozenset[int]:
    """Return the positions in a slab of values that the user wants to be kept; see `unspool.keep`."""
    kept: frozenset[int] | None = plan.derivatives.get("kept")
    if kept is None:
        slab = plan.fragment.slab
        kept = plan.derivatives["kept"] = frozenset(slab[i] for i in kept_outputs(plan.fragment) if i in slab)
    return kept


def record_bytes(call: Call) -> int:
    """Return the bytes of a call and the tensors that are its outputs."""
    outputs = [handle for handle in call.handles if handle is not None]
    return sum(map(getsizeof, (call, call.inputs, *outputs)))


def graph_bytes(piece: Piece) -> int:
    """Return the bytes of the nodes of a piece that waits to be folded."""
    ends = {operand.id for operand in piece.inputs}
    stack: list[Node] = [node for node in [reference() for reference in piece.outputs] if node is not None]
    found: dict[int, Node] = {}
    while stack:
        node = stack.pop()
        if node.id not in found and node.id not in ends:
            found[node.id] = node
            stack += node.inputs
    return sum(getsizeof(part) for node in found.values() for part in (node, node.inputs))


def piece_bytes(piece: Piece) -> int:
    """Return the bytes of the values of a piece that waits to be folded."""
    nodes = [reference() for reference in piece.outputs]
    arrays = [node.value for node in nodes if node is not None]
    found: dict[int, int] = {}
    add_memory(found, (*arrays, *piece.residuals))
    return sum(found.values())
