"""Calls of fragments: one node for a whole piece of graph, and tensors that are its outputs.

A `Call` is a plan applied to inputs; like every node it is interned, so the same plan on the same inputs is one call. A
`Projection` is a tensor that is one output of a call. It still says which op it is the result of, and its ``inputs``
are there for whoever asks: they are made again from the plan, through the intern table, with the origin they had. So a
call is never opaque. The tape, summaries and canonical rules see the ops inside; evaluation and derivatives take the
call as one step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool import _trees as trees
from unspool._core import Call, output
from unspool._graph import (
    Node,
    current_origin,
    find,
    intern,
    intern_bundle,
    origin_scope,
    with_sizes,
)
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import Op
from unspool._statistics import STATISTICS
from unspool._tensor import Tensor

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Origin


__all__ = ["Call", "output"]


def _is_run_by_the_engine(*inputs: Any, **params: Any) -> Any:
    raise NotImplementedError


# Not registered: nobody applies it by name, and its rules are those of the ops inside.
CALL = Op("call", infer=_is_run_by_the_engine, kernel=_is_run_by_the_engine, multi=True)


class Projection(Tensor):
    """A tensor that is one output of a call. Where other tensors keep their inputs it keeps the call.

    It is not in the intern table: the call knows it.
    """

    __slots__ = ()

    @property
    def inputs(self) -> tuple[Node, ...]:  # type: ignore[override]
        """What the op of this tensor was applied to: nodes inside the call."""
        call: Any = call_of(self)
        if type(call) is tuple:  # while a tensor is being folded, another thread may see that it keeps its inputs still
            return call
        nodes = unfold(call)
        fragment = call.plan.fragment
        slot = fragment.outputs[self.output]
        return tuple(nodes[i] for i in fragment.body[slot - len(call.inputs)].operands)


# What a tensor is made of is no business of the user's.
Projection.__name__ = Projection.__qualname__ = "Tensor"
Projection.__module__ = "unspool"

# Returns the call of a projection. Sweeps and folding ask for every step of a loop, so there is no function around it.
call_of: Callable[[Node], Call] = Node.inputs.__get__  # type: ignore[attr-defined]


def link_of(node: Node) -> tuple[Call, int]:
    """Return the call of a projection and which of its outputs it is."""
    return call_of(node), node.output


class _Lost:
    """Stands for the piece of a tensor that had a value and lost it: to whoever asks, one that reads nothing."""

    depth = 0
    inputs = ()
    row = None


LOST = _Lost()

_core.bind(call=CALL, projection=Projection, lost=LOST)
trees.LEAVES.add(Projection)


def was_evaluated(node: Node) -> bool:
    """Whether a tensor without value had one before: it was evicted."""
    return getattr(node, "piece", None) is not None


# --- making calls ----------------------------------------------------------------------------------------------------


# How many instructions calls have, and how young they are, at most: of all that were ever made.
BOUNDS = _core.Bounds()
_core.bind(bounds=BOUNDS)


def make_call(plan: Plan, inputs: tuple[Node, ...], origins: tuple[Origin, ...]) -> Call:
    """Return the call of a plan on inputs: the one that is alive, or a new one."""
    found: Any = find(CALL, inputs, plan.id)
    if found is None:
        STATISTICS.calls += 1
        found = _core.call(plan, inputs, origins, origins[-1] if origins else current_origin())
        BOUNDS.note(len(plan.fragment.body), found.id)
    return found  # type: ignore[no-any-return]


def live_calls() -> list[Call]:
    """Return all calls that are alive, in the order of their ids."""
    return sorted([node for node in _core.nodes() if type(node) is Call], key=lambda call: call.id)


def _plain_output(call: Call, index: int) -> Tensor:
    """Return an output of a call that is one of its inputs, or a constant."""
    fragment = call.plan.fragment
    position = fragment.outputs[index] - len(call.inputs)
    if position < 0:
        return call.inputs[position]  # type: ignore[return-value]
    node: Tensor = fragment.body[position].params["literal"].node()
    return node


_core.bind(plain_output=_plain_output)


def place(plan: Plan, inputs: Sequence[Node], origins: tuple[Origin, ...] | None = None) -> list[Tensor]:
    """Call a plan on nodes and return its results; residuals are outputs that nobody asked for and are left out."""
    call = make_call(plan, tuple(inputs), plan.fragment.origins if origins is None else origins)
    return [output(call, index) for index in range(plan.fragment.results)]


# --- looking inside --------------------------------------------------------------------------------------------------


def unfold(call: Call) -> list[Node]:
    """Return the nodes of a call by slot: its inputs, then the result of each instruction."""
    return expand(call.plan, call.inputs, call.origins, _held_outputs(call))


def _held_outputs(call: Call) -> dict[int, Node]:
    """Return the outputs of a call that there are tensors of, by slot."""
    pairs = zip(call.plan.fragment.outputs, call.handles, strict=True)
    return {slot: handle for slot, handle in pairs if handle is not None}


def is_inside(call: Call, wanted: Container[int]) -> bool:
    """Whether a node with one of these ids is inside a call: one that was recorded again after the call was made."""
    plan = call.plan
    outputs = _held_outputs(call)
    nodes: list[Node | None] = list(call.inputs)
    for position, instruction in enumerate(plan.fragment.body):
        node = outputs.get(len(nodes))
        if node is None:
            operands: Any = tuple([nodes[i] for i in instruction.operands])
            if instruction.op is CONSTANT:
                node = instruction.params["literal"].node()
            elif all(operand is not None for operand in operands):
                # A node that there is has inputs that there are.
                node = find(instruction.op, operands, tuple(plan.params[position].items()))
                if node is not None and node.id in wanted:
                    return True
        nodes.append(node)
    return False


def expand(
    plan: Plan, inputs: Sequence[Node], origins: Sequence[Origin], alive: dict[int, Node] | None = None
) -> list[Node]:
    """Apply the ops of a plan to nodes, one by one; ``alive`` has the slots for which there is a node already."""
    nodes = list(inputs)
    first = len(nodes)
    alive = alive or {}
    with origin_scope() as origin:
        for position, instruction in enumerate(plan.fragment.body):
            slot = first + position
            if slot in alive:
                nodes.append(alive[slot])
                continue
            origin.code, origin.lasti = origins[position]
            op = instruction.op
            if op is CONSTANT:
                nodes.append(instruction.params["literal"].node())
                continue
            params = plan.params[position]
            operands = tuple([nodes[i] for i in instruction.operands])
            key = tuple(params.items())
            node: Node | None = find(op, operands, key)
            if node is None:
                make: Any = intern_bundle if op.multi else intern
                node = make(op, operands, with_sizes(params, op.sized), plan.shapes[slot], plan.dtypes[slot], key)
            nodes.append(node)
    return nodes
