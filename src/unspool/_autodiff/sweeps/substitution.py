"""Substitution: what was recorded on stand-ins, recorded again on what they stand for.

A transform calls its function on *stand-ins* (`unspool._ops.identity.alias`), so that ``f(x, x)`` has two partial
derivatives and a tensor that the function closes over stays a constant. They are of use for the sweep alone. What a
transform returns is recorded once more with the arguments in their places: through the intern table, in canonical form,
with the lines of the user's program. So the same gradient of the same tensor is the same tensor, and a step of a loop
that takes one looks like every other step.

Values that were computed on the way, because the function looked at them, are handed over.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from unspool import _core
from unspool._autodiff.sweeps.late import late
from unspool._core import Piece
from unspool._engine.default import default_engine
from unspool._engine.memory.cached import TINY, Loose
from unspool._fragments.call import LOST, Call, Projection, call_of, make_call, output
from unspool._graph import Bundle, Node, find, in_order, intern, intern_bundle, next_id
from unspool._sweeps import begin_sweep, end_sweep
from unspool._tensor import Tensor


def substitute(
    nodes: Sequence[Any], stand_ins: Sequence[Node], arguments: Sequence[Node], *, same_values: bool = True
) -> list[Any]:
    """Return nodes as they are with arguments in the places of stand-ins; what is no node stays what it is.

    Nothing that is older than the stand-ins is looked at, and each node between them and the results once. If the
    arguments do not have the values of what they replace, ``same_values`` is false: then no value is handed over.
    """
    images = {s.id: a for s, a in zip(stand_ins, arguments, strict=True) if s is not a}
    if not images:
        return list(nodes)
    with default_engine().queue.nothing_folds():
        _record_again([node for node in nodes if isinstance(node, Node)], images, same_values)
    return [images.get(node.id, node) if isinstance(node, Node) else node for node in nodes]


def _record_again(nodes: list[Node], images: dict[int, Node], same_values: bool) -> None:
    """Add to the images of stand-ins those of all that nodes are made of and that depends on a stand-in."""
    engine = default_engine()
    levels = engine.levels
    first = min(images)
    marks = levels.marks
    is_above = False

    # What a sweep built is a level above what it differentiated, here as there.
    def cross() -> None:
        nonlocal is_above
        if not is_above:
            is_above = True
            begin_sweep(next_id())
        levels.mark()

    order = younger_than(first, nodes, images)
    above = marks[bisect_right(marks, first) :]
    evaluated = _core.record_again(order, images, above, cross, image_of, engine.ledger.has_dropped)
    if is_above:
        end_sweep(next_id())
    if evaluated and same_values:
        _hand_over([(node, images[node.id]) for node in evaluated], images)


def _hand_over(evaluated: Sequence[tuple[Node, Node]], images: Mapping[int, Node]) -> None:
    """Hand the values of nodes over to their images, and let the engine know of the steps that computed them.

    The bytes were noted when they were computed. What was evicted has to be known as such. Within a budget that has
    been reached, large values are evicted now: they are recomputed one by one, when and if there is room.
    """
    ledger = default_engine().ledger
    is_full = ledger.is_strict and ledger.has_dropped
    pieces = _pieces_of([node for node, _ in evaluated])
    steps: dict[int, tuple[Sequence[Node], list[Node]]] = {}
    for node, image in evaluated:
        if image.value is not None:
            continue
        value = node.value  # looked at once: another thread may evict it
        if value is None or (is_full and type(image) is Tensor and value.nbytes > TINY):
            image.piece = LOST
            continue
        image.value = value
        if type(image) is Call:
            ledger.enter(image)
        elif type(image) is Tensor:
            piece = pieces.get(node.id)
            step = (node.id, node.inputs) if piece is None else (id(piece), piece.inputs)
            steps.setdefault(step[0], (step[1], []))[1].append(image)
    for read, made in steps.values():
        ledger.enter(Loose(made, [images.get(operand.id, operand).id for operand in read]))


def _pieces_of(nodes: Sequence[Node]) -> dict[int, Piece]:
    """Return the piece that computed each of some nodes, by id: what it keeps for derivatives does not say so."""
    pieces = {id(piece): piece for node in nodes if type(piece := getattr(node, "piece", None)) is Piece}
    made = [(reference(), piece) for piece in pieces.values() for reference in piece.outputs]
    return {node.id: piece for node, piece in made if node is not None}


def younger_than(first: int, nodes: Sequence[Node], known: dict[int, Any]) -> list[Node]:
    """Return what nodes are made of as far as it is younger than a stand-in, in topological order.

    What is known, by id, is left out.
    """
    return _core.younger_than(first, list(nodes), known, _in_order)


def _in_order(nodes: list[Node]) -> list[Node]:
    return in_order(nodes, operands_of)


def operands_of(node: Node) -> tuple[Node, ...]:
    """Return what a node is made from; an output is known by its call."""
    return (call_of(node),) if type(node) is Projection else node.inputs


def image_of(node: Node, operands: tuple[Any, ...]) -> Node:
    """Return a node with other operands: the one that is alive, a simpler one of the same value, or a new one."""
    kind = type(node)
    if kind is Projection:
        return output(operands[0], node.output)
    if kind is Call:
        return make_call(node.plan, operands, node.origins)  # type: ignore[attr-defined]
    op, params, key = node.op, node.attributes, node.key
    if op.canonical is not None or kind is Bundle:
        found = find(op, operands, key)
        if found is None and op.canonical is not None:
            found = op.canonical(*operands, **params)
        if found is not None:
            return found
    make: Any = intern_bundle if kind is Bundle else intern
    made: Node = make(op, operands, params, node.shape, node.dtype, key)
    return made


late.provide(substitute=substitute)
