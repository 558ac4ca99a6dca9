"""Gradients that are computed at once, within a budget or with segments that were chosen by hand.

Segments are about a graph as a tape numbers it. Values that have to stay (outside of segments, at their borders) are
computed and held while the gradient runs; what is inside a segment is evicted after its last use and recomputed, all
of it, when the gradient enters the segment. That is what a replay does with values that are not there.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._autodiff.sweeps.gradient import gradient_of
from unspool._engine.budget import memory as memory_scope
from unspool._engine.default import default_engine
from unspool._engine.memory.cached import TINY
from unspool._fragments.call import Projection, call_of
from unspool._graph import Bundle, Node, ancestors
from unspool._ops.hints import is_kept
from unspool.checkpoint.segments import as_config, segment_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from unspool._tensor import Tensor
    from unspool.checkpoint import CheckpointConfig


def budgeted_gradient(
    loss: Tensor,
    wrt: Any,
    options: Mapping[str, Any],
    memory: str | int | float | None,
    checkpoint: CheckpointConfig | None,
) -> Any:
    """Return the gradient of a scalar, computed; see `Tensor.grad`."""
    scope: AbstractContextManager[Any] = nullcontext() if memory is None else memory_scope(memory)
    with scope:
        if checkpoint is None:
            gradient = gradient_of(loss, wrt, **options)
            default_engine().evaluate(list(_tensors(gradient)))
            return gradient
        return _with_segments(loss, wrt, options, checkpoint, unlimited=memory is None)


def _with_segments(
    loss: Tensor, wrt: Any, options: Mapping[str, Any], checkpoint: CheckpointConfig, *, unlimited: bool
) -> Any:
    engine = default_engine()
    nodes = ancestors([loss])
    stay = _staying(nodes, as_config(checkpoint), loss)
    # What the user has computed before is evicted inside segments too: it is recomputed when it is asked for.
    for node in nodes:
        if node.id not in stay and node.inputs and type(node) is not Bundle:
            node.value = None
            if type(node) is Projection and call_of(node).value:
                call_of(node).value = ()
    borders = [node for node in nodes if node.id in stay and node.value is None and type(node) is not Bundle]
    del nodes
    if borders:
        engine.replay(borders, unlimited=unlimited)
    gradient = gradient_of(loss, wrt, **options)
    missing = [tensor for tensor in _tensors(gradient) if tensor.value is None]
    if missing:
        engine.replay(missing, unlimited=unlimited)
    for node in borders:
        if node is not loss and node.value.nbytes > TINY:
            node.value = None
    return gradient


def _staying(nodes: list[Node], checkpoint: CheckpointConfig, loss: Node) -> set[int]:
    """Return the ids of nodes whose values are held: outside of segments, or used outside of theirs, and the loss."""
    segments = segment_of(checkpoint, len(nodes))
    where = {node.id: segment for node, segment in zip(nodes, segments, strict=True)}
    stay = {loss.id}
    for node in nodes:
        if where[node.id] is None or is_kept(node):
            stay.add(node.id)
        stay.update(operand.id for operand in node.inputs if where[operand.id] != where[node.id])
    return stay


def _tensors(gradient: Any) -> Iterator[Tensor]:
    for leaf in trees.flatten(gradient)[0]:
        if isinstance(leaf, Node):
            yield leaf  # type: ignore[misc]
