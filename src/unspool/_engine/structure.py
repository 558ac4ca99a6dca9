"""What makes two pieces the same, and which may be described at all."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from unspool._core import Piece
from unspool._fragments.call import Projection
from unspool._graph import Node
from unspool._ops.identity import ALIAS
from unspool._ops.leaf import PLACEHOLDER, TENSOR
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._fragments.fragment import Captured

# A node with more inputs than this gathers the steps of a loop.
MOST_INPUTS = 64


def can_be_sealed(order: list[Node]) -> bool:
    """Whether a piece may be described and run by a plan."""
    # An alias is an identity of its own, which a description would lose: one is there while a function that is
    # differentiated looks at values. A placeholder has no value to run on. What has very many inputs (a chain of steps,
    # a stack of them) is not the body of a loop.
    return not any(node.op is ALIAS or node.op is PLACEHOLDER or gathers(node) for node in order)


def gathers(node: Node) -> bool:
    """Whether a node reads so much that it is taken to gather what the steps of a loop made."""
    return len(node.inputs) > MOST_INPUTS


def structure_of(order: list[Node], kept: list[Node], targets: Sequence[Node]) -> tuple[tuple[Any, ...], list[Node]]:
    """Return what makes two pieces the same, and the nodes at the inputs of this one.

    What is asked for is part of it: a matcher begins there.
    """
    position: dict[int, int] = {}
    inputs: list[Node] = []
    tokens: list[Any] = []
    for i, node in enumerate(order):
        for operand in node.inputs:
            if operand.id not in position:
                position[operand.id] = ~len(inputs)
                inputs.append(operand)
            tokens.append(position[operand.id])
        tokens.append(node.op.code)
        if node.attributes:
            tokens.append(tuple(node.attributes.items()))
        position[node.id] = i
    tokens += [tuple([position[node.id] for node in nodes]) for nodes in (kept, targets)]
    tokens += [is_literal(i) for i in inputs]
    return (*tokens, *[i.shape for i in inputs], *[i.dtype for i in inputs]), inputs


def note_recorded_again(order: Sequence[Node], inputs: Sequence[Node]) -> None:
    """Note at the sites of earlier pieces which of their nodes a piece has inside as well: it recorded them again.

    So does a step that reads the inner part of the state before the last, which the step before has read, too. A piece
    of which others use a node has to be cut, unless that is one of its results. Only views are noted: anything else
    would weigh on a budget as part of the state. What is made of leaves alone is no part of a step.
    """
    here = {node.id for node in order}
    pieces = [piece for operand in inputs if type(piece := getattr(operand, "piece", None)) is Piece]
    for piece in {id(piece): piece for piece in pieces}.values():
        body, first = piece.site.fragment.body, len(piece.site.fragment.dtypes)
        # A piece that ran by its plan has residuals beside its outputs, and not as some of them.
        found = zip([reference() for reference in piece.outputs], piece.site.fragment.outputs, strict=False)
        waiting = [(node, slot) for node, slot in found if node is not None and type(node) is not Projection]
        results = set(piece.site.fragment.outputs[: piece.site.results])
        met: set[int] = set()
        while waiting:
            node, slot = waiting.pop()
            if slot < first or slot in met:
                continue
            met.add(slot)
            if node.id in here and slot not in results:
                if node.op.view and _reads_steps(piece, slot):
                    piece.site.again.add(slot - first)
                    piece.site.match = None
            else:
                waiting += zip(node.inputs, body[slot - first].operands, strict=True)


def _reads_steps(piece: Piece, slot: int) -> bool:
    """Whether what is at a slot of a piece depends on what other pieces made."""
    body, first = piece.site.fragment.body, len(piece.site.fragment.dtypes)
    waiting, met = [slot], {slot}
    while waiting:
        slot = waiting.pop()
        if slot < first:
            if piece.inputs[slot].inputs:
                return True
            continue
        operands = [operand for operand in body[slot - first].operands if operand not in met]
        met.update(operands)
        waiting += operands
    return False


def is_literal(node: Node) -> bool:
    """Whether a node reads nothing and is no leaf of a user's: a constant, or what is computed from sizes alone."""
    return reads_nothing(node) and node.op is not TENSOR and node.op is not PLACEHOLDER


def reads_nothing(node: Node) -> bool:
    """Whether a node has no inputs. Those of an output of a call would be made to be looked at."""
    return type(node) is not Projection and not node.inputs


class Apart(NamedTuple):
    """What of a piece is made of constants alone.

    It belongs to no program: every one that writes the same down finds the same node.

    Attributes
    ----------
    slots : frozenset of int
        Where the description of the piece has it.
    results : frozenset of int
        Which results of the piece it is.
    constants : frozenset of int
        The inputs that it reads.
    """

    slots: frozenset[int]
    results: frozenset[int]
    constants: frozenset[int]


def find_apart(captured: Captured, order: Sequence[Node], literals: Container[int] = ()) -> Apart:
    """Find what of a piece is made of constants alone, given its description and its nodes.

    Not what was drawn: every step of a loop draws with a key of its own. A piece that is made of nothing else is one as
    others are. ``literals`` are inputs that stand for constants.
    """
    fragment, nodes = captured.fragment, captured.nodes
    first, inside = len(captured.inputs), {node.id for node in order}
    found: set[int] = set()
    read: set[int] = set()

    def is_fixed(node: Node) -> bool:
        return node.id in literals or is_literal(node)

    for slot, instruction in enumerate(fragment.body, first):
        operands = instruction.operands
        if nodes[slot].id in inside and (
            is_literal(nodes[slot])
            or (operands and not instruction.op.draws and all(o in found or is_fixed(nodes[o]) for o in operands))
        ):
            found.add(slot)
            read.update(o for o in operands if o not in found)
    results = frozenset(i for i, slot in enumerate(fragment.outputs[: fragment.results]) if slot in found)
    if len(results) == fragment.results:
        return Apart(frozenset(), frozenset(), frozenset())
    return Apart(frozenset(found), results, frozenset(read))
