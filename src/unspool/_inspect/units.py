"""The graph of a tensor as the engine runs it: calls, pieces that wait to be folded, and nodes that stand alone.

A walk over units sees a step of a loop as one thing, whether it is folded already or not.
"""

from __future__ import annotations

from typing import Any

from unspool._core import Piece
from unspool._fragments.call import LOST, Call, Projection, call_of
from unspool._fragments.fragment import Fragment, Origin
from unspool._graph import Node


class Unit:
    """A call, a piece or a node, and what it reads.

    Attributes
    ----------
    source : Call, Piece or Node
    id : float
        Where it stands in the order in which the program was recorded.
    inputs : tuple of Node
    fragment : Fragment or None
        What it does; ``None`` for a node.
    origins : tuple
        Where the user's program recorded each instruction.
    """

    __slots__ = ("fragment", "id", "inputs", "origins", "source")

    def __init__(self, source: Any, key: float) -> None:
        self.source = source
        self.id = key
        self.inputs: tuple[Node, ...] = source.inputs
        self.fragment: Fragment | None = None
        self.origins: tuple[Origin, ...] = ()
        if type(source) is Call:
            self.fragment, self.origins = source.plan.fragment, source.origins
        elif type(source) is Piece:
            self.fragment, self.origins = source.site.fragment, source.site.origins
        else:
            self.origins = ((source.code, source.lasti),)

    @property
    def is_step(self) -> bool:
        """Whether it may be a step of a loop: what was evaluated in one go, or a call."""
        return self.fragment is not None

    def place_of(self, slot: int) -> Origin:
        """Return where the user's program made what a slot holds."""
        return self.origins[slot - len(self.inputs)] if self.fragment is not None else self.origins[0]

    def avals(self) -> dict[int, tuple[Any, Any]]:
        """Return shape and dtype of what is made inside, by slot, as far as they are known without compiling."""
        source = self.source
        if type(source) is Call:
            return dict(enumerate(zip(source.plan.shapes, source.plan.dtypes, strict=True)))
        if type(source) is not Piece or self.fragment is None:
            return {}
        first = len(self.inputs)
        references = zip(self.fragment.outputs, source.outputs, strict=False)
        nodes = {slot: node for slot, reference in references if (node := reference()) is not None}
        for slot in range(first + len(self.fragment.body) - 1, first - 1, -1):
            if slot in nodes and type(nodes[slot]) is not Projection:
                operands = self.fragment.body[slot - first].operands
                nodes.update(zip(operands, nodes[slot].inputs, strict=True))
        return {slot: (node.shape, node.dtype) for slot, node in nodes.items()}


class Units:
    """All units that a tensor is made from, in the order in which they were recorded.

    Attributes
    ----------
    order : list of Unit
    maker : dict of int to (int, int)
        For each node that a unit reads or that was asked for: the position of the unit that makes it, and the slot.
    """

    def __init__(self, tensor: Node) -> None:
        found: dict[int, Unit] = {}
        made: dict[int, tuple[int, int]] = {}
        stack: list[Node] = [tensor]
        while stack:
            node = stack.pop()
            if node.id in made:
                continue
            source, slot = _made_by(node)
            made[node.id] = (id(source), slot)
            if id(source) not in found:
                unit = found[id(source)] = Unit(source, node.id)
                stack += unit.inputs
            elif node.id < found[id(source)].id:
                found[id(source)].id = node.id
        self.order = sorted(found.values(), key=lambda unit: unit.id)
        position = {id(unit.source): i for i, unit in enumerate(self.order)}
        self.maker = {key: (position[source], slot) for key, (source, slot) in made.items()}


def piece_of(node: Node) -> Piece | None:
    """Return the piece that a node is an output of, if it was evaluated and is not folded."""
    piece = getattr(node, "piece", None)
    return None if piece is None or piece is LOST else piece


def _made_by(node: Node) -> tuple[Any, int]:
    """Return the unit that a node is made by, and the slot that it has there."""
    if type(node) is Projection:
        call = call_of(node)
        return call, call.plan.fragment.outputs[node.output]
    piece = piece_of(node)
    if piece is not None:
        for index, reference in enumerate(piece.outputs):
            if reference() is node:
                return piece, piece.site.fragment.outputs[index]
    return node, 0
