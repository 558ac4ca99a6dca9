"""Frames: what has to run for values that are missing, in order.

A *unit* is what runs at once: a call, or a node that is no output of a call. `units` tells in which order they hold
least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unspool._core import FrameBase, unit_of
from unspool._engine.costs import nbytes
from unspool._engine.memory.replayed_values import is_view, names_again
from unspool._fragments.call import Call, Projection
from unspool._graph import Node
from unspool._ops.op import PART

# The most units of a branch that is run along the way, or late.
BRANCH = 16


class Frame(FrameBase):
    """Nodes of one level that run in order.

    Attributes
    ----------
    order : list of Node
        Calls and other nodes; the outputs of a call are not among them.
    position : int
        The one to run next.
    uses : dict
        How often each node is still read by them, by id; also those that are not made here.
    live : set of id
        What was made here and is still read here.
    taped : set of id
        What frames below made and kept because it is read here.
    pinned : list of id
        What the node to run next waits for.
    ahead, recent : list of id
        The state after the last step that ran for it, and the same for the node before, with what that waited for.
    saves : set of int
        Positions after which the state is saved for later frames.
    tape_from : int
        From this position on, what the frame above reads is kept for it.
    """

    __slots__ = ("_reads", "chain", "level")

    def __init__(self, order: list[Node], level: int) -> None:
        self.level = level
        self.chain: Any = None  # the run of a chain that the frame is at
        self._reads: dict[int, tuple[list[int], list[Node]]] | None = None

    def reads(self, level: int, level_of: Callable[[Node], int]) -> tuple[list[int], list[Node]]:
        """Return the units of a lower level that are read here, in the order of their ids, and the ids."""
        if self._reads is None:
            sources = [unit_of(operand) for unit in self.order for operand in unit.inputs]
            found: dict[int, dict[int, Node]] = {}
            for source in {source.id: source for source in sources}.values():
                if source.inputs:
                    found.setdefault(level_of(source), {})[source.id] = source
            self._reads = {}
            for number, units in found.items():
                keys = sorted(units)
                self._reads[number] = keys, [units[key] for key in keys]
        return self._reads.get(level, ([], []))


class Saved:
    """A state that was saved on the way: the id after which it stands, the values, by id, and the frame it is for."""

    __slots__ = ("after", "keys", "owner")

    def __init__(self, after: int, keys: list[int], owner: Frame) -> None:
        self.after = after
        self.keys = keys
        self.owner = owner


# --- units -----------------------------------------------------------------------------------------------------------


def outputs_of(unit: Node) -> Sequence[Node]:
    """Return the nodes that running a unit gives values to: the outputs of a call that are alive, else itself."""
    if type(unit) is not Call:
        return (unit,)
    # Not `handles`: whoever asks may count the references to an output.
    return [handle for index in range(len(unit.shape)) if (handle := unit.handle(index)) is not None]


def workspace_of(unit: Node) -> int:
    """Return how many bytes running a unit takes beside its inputs."""
    if type(unit) is Call:
        return unit.plan.peak_bytes
    if unit.op.stepwise:
        return unit.attributes["chain"].peak_bytes  # type: ignore[no-any-return]
    return 0 if is_view(unit) else nbytes(unit.shape, unit.dtype)


def is_taken(unit: Node) -> bool:
    """Whether a unit takes an output of a chain, which is then no longer in the chain: nobody else asks it for that."""
    return unit.op is PART and unit.inputs[0].op.stepwise


def spare_of(unit: Node) -> Node | None:
    """Return the operand that a unit can write its result onto, if nobody else reads it, nor what it is a view of."""
    if unit.op.onto is None:
        return None
    source = unit.inputs[0]
    while type(source) is not Projection and names_again(source):
        source = source.inputs[0]
    is_own = type(source) is not Projection and source.inputs and (source.op.fresh or source.op.onto is not None)
    return unit.inputs[0] if is_own else None


def viewed(node: Node) -> Iterator[Node]:
    """Yield a node and, if it has another name for the value of one, that too, down to what has memory of its own."""
    yield node
    while type(node) is not Projection and names_again(node):
        node = node.inputs[0]
        yield node


def entering(chain: Node) -> Sequence[Node]:
    """Return what a chain carries from its first step on."""
    return chain.inputs[: len(chain.attributes["chain"].entering)]


def held_by_chain(unit: Node) -> int:
    """Return the bytes of what a chain stacks up and carries at most."""
    return int(unit.attributes["chain"].held_bytes())


def waited_for(frame: Frame) -> Sequence[Node]:
    """Return what the node that a frame has reached reads; of a chain, what its next step reads."""
    unit = frame.order[frame.position]
    if frame.chain is None:
        return () if unit.op.stepwise else unit.inputs
    inputs: Sequence[Node] = unit.inputs[unit.attributes["chain"].varying(frame.chain.done)]
    return inputs
