"""Frames: what has to run for values that are missing, in order.

A *unit* is what runs at once: a call, or a node that is no output of a call. `units` tells in which order they hold
least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unspool._core import unit_of
from unspool._engine.planning import nbytes
from unspool._engine.replayed import is_view, own_buffers
from unspool._engine.running_sums import waiting_bytes
from unspool._fragments.call import Call
from unspool._graph import Node
from unspool._ops.contraction.contract import CONTRACT
from unspool._ops.op import PART

# The most units of a branch that is run along the way, or late.
BRANCH = 16


class Frame:
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

    __slots__ = (
        "_reads",
        "ahead",
        "chain",
        "level",
        "live",
        "order",
        "pinned",
        "position",
        "recent",
        "saves",
        "tape_from",
        "taped",
        "uses",
    )

    def __init__(self, order: list[Node], level: int) -> None:
        self.order = order
        self.level = level
        self.position = 0
        self.uses: dict[int, int] = {}
        uses = self.uses
        for node in order:
            for operand in node.inputs:
                uses[operand.id] = uses.get(operand.id, 0) + 1
        self.live: set[int] = set()
        self.taped: set[int] = set()
        self.pinned: list[int] = []
        self.ahead: list[int] = []
        self.recent: list[int] = []
        self.saves: set[int] = set()
        self.tape_from = 0
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
        return unit.attributes["chain"].plan.peak_bytes  # type: ignore[no-any-return]
    return 0 if is_view(unit) else nbytes(unit.shape, unit.dtype)


def is_taken(unit: Node) -> bool:
    """Whether a unit takes an output of a chain, which is then no longer in the chain: nobody else asks it for that."""
    return unit.op is PART and unit.inputs[0].op.stepwise


def spare_of(unit: Node) -> Node | None:
    """Return the operand that a unit can write its result onto, if nobody else reads it."""
    if unit.op.onto is None:
        return None
    first = unit.inputs[0]
    return first if first.inputs and (first.op.fresh or first.op.onto is not None) else None


def entering(chain: Node) -> Sequence[Node]:
    """Return what a chain carries from its first step on."""
    return chain.inputs[: len(chain.attributes["chain"].carried)]


def held_by_chain(unit: Node) -> int:
    """Return the bytes of what a chain stacks up and carries at most."""
    chain, operands = unit.attributes["chain"], entering(unit)
    carried = sum([nbytes(node.shape, node.dtype) for node in operands])
    outputs = [size for _, size in own_buffers(unit)]
    if any(op is CONTRACT for op, *_ in chain.plan.fragment.body):
        sums, _ = chain.plan.run_in_place()
        added = [(position, chain.plan.dtypes[position]) for position, _ in chain.carried if position in sums]
        carried += sum([waiting_bytes(chain.plan.input_shapes[position], dtype) for position, dtype in added])
    return max(carried, sum(outputs[: len(chain.last)])) + sum(outputs[len(chain.last) :])


def waited_for(frame: Frame) -> Sequence[Node]:
    """Return what the node that a frame has reached reads; of a chain, what its next step reads."""
    unit = frame.order[frame.position]
    if frame.chain is None:
        return () if unit.op.stepwise else unit.inputs
    return unit.inputs[varying_of(unit, frame.chain.done)]


def varying_of(unit: Node, step: int) -> slice:
    """Return which inputs of a chain are read by a single step."""
    chain = unit.attributes["chain"]
    start = len(chain.carried) + len(chain.constant) + step * len(chain.varying)
    return slice(start, start + len(chain.varying))
