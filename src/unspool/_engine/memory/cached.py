"""Records of what is held: a value, what a step keeps for derivatives (both in C), a step that is not a call.

All refer to nodes weakly: a record keeps nothing alive. What refers to a node, and how often, tells whether somebody
may still ask for it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import compress
from sys import getsizeof
from typing import TYPE_CHECKING, Any
from weakref import ref

from unspool import _core
from unspool._fragments.call import Call
from unspool._fragments.residuals import kept_outputs
from unspool._graph import Node
from unspool._ops.hints import KEEP

if TYPE_CHECKING:
    from unspool._core import Piece, Slab
    from unspool._engine.plan import Plan

# Arrays of at most so many bytes are not worth evicting: the objects around them are larger.
TINY = 256


class Loose:
    """A step that is not a call: nodes whose values are held, and the nodes it read."""

    __slots__ = ("nbytes", "nodes", "read")

    def __init__(self, nodes: Iterable[Node], read: Iterable[int]) -> None:
        self.nodes = [ref(node) for node in nodes]
        self.nbytes = sum([node.value.nbytes for node in nodes if node.value is not None])
        self.read = tuple(read)


def is_alive(step: Loose | ref[Any]) -> bool:
    """Whether something is left of a step."""
    return is_left(step.nodes if isinstance(step, Loose) else step)


def is_left(step: list[ref[Any]] | ref[Any]) -> bool:
    """Whether anything is left of what one or several weak references refer to."""
    if type(step) is list:
        return any(reference() is not None for reference in step)
    return step() is not None  # type: ignore[operator]


# --- counting --------------------------------------------------------------------------------------------------------


def references_of(pieces: Sequence[Piece]) -> dict[int, int]:
    """Count how often the nodes of pieces that wait refer to the nodes at their inputs and to their outputs."""
    return _core.references_of(pieces, _reference_counts)


def drop_unread(slab: Slab, read: Container[int]) -> int:
    """Evict what no node reads whose id is not among some, and return how many bytes that gave."""
    return slab.drop_unread(read, kept_residuals, KEEP, TINY)


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
