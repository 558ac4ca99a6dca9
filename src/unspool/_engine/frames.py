"""Frames: what has to run for values that are missing, in the order in which it holds least.

A *unit* is what runs at once: a call, or a node that is no output of a call. What has become possible last runs first,
so the tangent of a step runs right after the step. Small branches run just before what reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, TypeAlias

from unspool._engine.planning import nbytes
from unspool._engine.replayed import Buffer, Memory, buffers_of, is_view, own_buffers
from unspool._fragments.call import Call, Projection, link_of
from unspool._graph import Node
from unspool._ops.op import PART

_by_id = attrgetter("id")

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
            found: dict[int, dict[int, Node]] = {}
            for unit in self.order:
                for operand in unit.inputs:
                    source = unit_of(operand)
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


def outputs_of(unit: Node) -> Iterator[Node]:
    """Yield the nodes that running a unit gives values to: the outputs of a call that are alive, else itself."""
    if type(unit) is not Call:
        yield unit
        return
    for index in range(len(unit.shape)):  # not `handles`: whoever asks may count the references to an output
        handle = unit.handle(index)
        if handle is not None:
            yield handle


def unit_of(node: Node) -> Node:
    """Return what has to run for the value of a node: the call it is an output of, or itself."""
    return link_of(node)[0] if type(node) is Projection else node


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
    """Return the operand that a unit can write its result onto, if nobody else reads it."""
    if unit.op.onto is None:
        return None
    first = unit.inputs[0]
    return first if first.inputs and (first.op.fresh or first.op.onto is not None) else None


def entering(chain: Node) -> Sequence[Node]:
    """Return what a chain carries from its first step on."""
    return chain.inputs[: len(chain.attributes["chain"].entering)]


def held_by_chain(unit: Node) -> int:
    """Return the bytes of what a chain stacks up and carries at most."""
    return int(unit.attributes["chain"].held_bytes())


def widths_of(frame: Frame, wanted: Container[int]) -> tuple[int, int]:
    """Return the most bytes of its own that the highest frame holds while it waits for others, and while a unit runs.

    What is wanted stays to the end.
    """
    left = dict(frame.uses)
    live: dict[int, tuple[Buffer, ...]] = {}
    memory = Memory()
    waiting = busiest = 0
    inside = {node.id for unit in frame.order for node in outputs_of(unit)}
    for unit in frame.order:
        stacked = held_by_chain(unit) if unit.op.stepwise else 0
        begun = entering(unit) if unit.op.stepwise else ()
        busiest = max(busiest, memory.nbytes + stacked)
        for operand in begun:  # from then on they belong to the chain
            left[operand.id] -= 1
            if not left[operand.id] and operand.id not in wanted:
                memory.give(live.pop(operand.id, ()))
        if any(operand.id not in inside and operand.inputs for operand in unit.inputs):
            waiting = max(waiting, memory.nbytes + stacked)
        spare = spare_of(unit)
        if spare is not None and left[spare.id] == 1 and spare.id not in wanted and memory.is_alone(live.get(spare.id)):
            busiest = max(busiest, memory.nbytes)
            memory.give(live.pop(spare.id))  # it is where the result is written
        else:
            busiest = max(busiest, memory.nbytes + stacked + workspace_of(unit))
        for node in outputs_of(unit):
            if node.id in wanted or left.get(node.id):
                # What is wanted is handed out, and counts in full, be it a view or not.
                live[node.id] = own_buffers(node) if node.id in wanted else buffers_of(node)
                memory.take(live[node.id])
        busiest = max(busiest, memory.nbytes)
        for operand in unit.inputs[len(begun) :]:
            left[operand.id] -= 1
            if not left[operand.id] and operand.id not in wanted:
                memory.give(live.pop(operand.id, ()))
        if is_taken(unit) and unit.inputs[0].id in live:
            _take_part(unit, live, memory)
    return waiting, busiest


def _take_part(unit: Node, live: dict[int, tuple[Buffer, ...]], memory: Memory) -> None:
    """Note that an output is no longer in its chain."""
    source, index = unit.inputs[0].id, unit.attributes["index"]
    memory.give([buffer for buffer in live[source] if buffer[0][1] == index])
    live[source] = tuple([buffer for buffer in live[source] if buffer[0][1] != index])


def waited_for(frame: Frame) -> Sequence[Node]:
    """Return what the node that a frame has reached reads; of a chain, what its next step reads."""
    unit = frame.order[frame.position]
    if frame.chain is None:
        return () if unit.op.stepwise else unit.inputs
    inputs: Sequence[Node] = unit.inputs[unit.attributes["chain"].varying(frame.chain.done)]
    return inputs


# --- order -----------------------------------------------------------------------------------------------------------


def ordered(units: list[Node], *, as_recorded: bool = False) -> list[Node]:
    """Return units in an order in which they can run: what has become possible last runs first, short branches before.

    So the tangent of a step runs right after the step, what a chain stacked up is multiplied before the next chain, and
    what one more use of a value takes is done before the loop goes on from it. With ``as_recorded``, all but short
    branches run in the order of their ids: a loop that carries several values which do not read each other takes its
    steps with all of them, as the sweep that reads them does.
    """
    if len(units) < 2:
        return units
    units.sort(key=_by_id, reverse=True)
    inside = {unit.id for unit in units}
    readers: dict[int, list[Node]] = {}
    waiting: dict[int, int] = {}
    for unit in units:
        sources = {unit_of(operand).id for operand in unit.inputs}
        sources &= inside
        waiting[unit.id] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(unit)
    height: dict[int, int] = {}
    for unit in reversed(_last_first(units, readers, dict(waiting), height)):
        height[unit.id] = 1 + max([height[reader.id] for reader in readers.get(unit.id, ())], default=0)
    return (_first_first if as_recorded else _last_first)(units, readers, waiting, height)


def _first_first(
    units: list[Node], readers: Mapping[int, list[Node]], waiting: dict[int, int], height: Mapping[int, int]
) -> list[Node]:
    """Return units in the order of their ids, short branches as soon as they become possible."""
    by_id = {unit.id: unit for unit in units}
    ready = [unit.id for unit in units if not waiting[unit.id]]
    heapify(ready)
    short: list[int] = []
    order: list[Node] = []
    while ready or short:
        unit = by_id[short.pop() if short else heappop(ready)]
        order.append(unit)
        for reader in readers.get(unit.id, ()):
            waiting[reader.id] -= 1
            if not waiting[reader.id]:
                if height[reader.id] <= BRANCH:
                    short.append(reader.id)
                else:
                    heappush(ready, reader.id)
    return order


def _last_first(
    units: list[Node], readers: Mapping[int, list[Node]], waiting: dict[int, int], height: Mapping[int, int]
) -> list[Node]:
    """Return units in order; of several that become possible at once, those of least height first, then the oldest."""
    ready = [unit for unit in units if not waiting[unit.id]]
    order: list[Node] = []
    while ready:
        unit = ready.pop()
        order.append(unit)
        freed: list[Node] = []
        for reader in readers.get(unit.id, ()):  # the oldest is the last to become possible
            waiting[reader.id] -= 1
            if not waiting[reader.id]:
                freed.append(reader)
        if height and len(freed) > 1:
            freed.sort(key=lambda reader: -height[reader.id])
        ready += freed
    return order


def as_recorded(units: list[Node]) -> list[Node]:
    """Return units in the order in which they were recorded, small branches just before what reads them."""
    return just_in_time(ordered(units, as_recorded=True))


def as_possible(units: list[Node]) -> list[Node]:
    """Return units in the order in which they become possible, small branches just before what reads them.

    Nothing waits for a small branch, then: the zeros that are to be added to would come last of all, and what is added
    to them after that.
    """
    order = ordered(units)
    small = _small_branches(order, {unit.id for unit in order})
    rest = ordered([unit for unit in order if unit.id not in small])
    return just_in_time([*[unit for unit in order if unit.id in small], *rest])


def as_freeing(units: list[Node]) -> list[Node]:
    """Return units in the order in which they were recorded, but what frees more than it takes as soon as it can.

    What chains stack up is multiplied before the next chain begins, say, whatever reads the products.
    """
    left: dict[int, int] = {}
    readers: dict[int, list[Node]] = {}  # of nodes
    waiting: dict[int, int] = {}
    inside = {unit.id for unit in units}
    for unit in units:
        waiting[unit.id] = len({unit_of(operand).id for operand in unit.inputs} & inside)
        for operand in unit.inputs:
            left[operand.id] = left.get(operand.id, 0) + 1
            readers.setdefault(operand.id, []).append(unit)

    def gain(unit: Node) -> int:
        """Return the bytes that are free when a unit has run, less those that it takes; 0 if that is nothing."""
        if is_view(unit):
            return 1
        ends = [each for each in unit.inputs if left[each.id] == 1 and unit_of(each).id in inside]
        freed = sum([size for each in ends for _, size in buffers_of(each)])
        return max(0, freed - workspace_of(unit))

    ready = [(-gain(unit), unit.id, unit) for unit in units if not waiting[unit.id]]
    heapify(ready)
    done: set[int] = set()
    order: list[Node] = []
    while ready:
        _, key, unit = heappop(ready)
        if key in done:
            continue
        done.add(key)
        order.append(unit)
        for operand in unit.inputs:
            left[operand.id] -= 1
            if left[operand.id] == 1:  # the last one that reads it frees it
                for reader in readers[operand.id]:
                    if reader.id not in done and not waiting[reader.id]:
                        heappush(ready, (-gain(reader), reader.id, reader))
        fresh = {reader.id: reader for node in outputs_of(unit) for reader in readers.get(node.id, ())}
        for reader in fresh.values():
            waiting[reader.id] -= 1
            if not waiting[reader.id]:
                heappush(ready, (-gain(reader), reader.id, reader))
    return just_in_time(order)


Arrange: TypeAlias = Callable[[list[Node]], list[Node]]

# The orders in which steps may run again. None of them is the narrowest for all loops. The last one makes small
# branches as soon as it can: they take less than what they are made of, if only the sweep reads them.
ORDERS: tuple[Arrange, ...] = (as_recorded, as_possible, ordered)


def just_in_time(order: list[Node]) -> list[Node]:
    """Move small branches that are made from lower levels alone to just before what reads them.

    A term of the loss for each step, say: all of them would be there at once otherwise. Those that single steps of
    chains read are left out; they are computed when the step comes.
    """
    inside = {unit.id: unit for unit in order}
    small = _small_branches(order, inside)
    arranged: dict[int, Node] = {}
    late: set[int] = set()
    for unit in order:
        if unit.id in small:
            continue
        operands: Sequence[Node] = unit.inputs
        if unit.op.stepwise:
            fixed = unit.attributes["chain"].fixed
            late.update(unit_of(operand).id for operand in operands[fixed:])
            operands = operands[:fixed]
        _arrange(operands, inside, small, arranged)
        arranged[unit.id] = unit
    for unit in reversed(order):  # what only late ones read is late
        if unit.id in late and unit.id in small:
            late.update(unit_of(operand).id for operand in unit.inputs)
    _arrange([unit for unit in order if unit.id not in late], inside, small, arranged)
    return list(arranged.values())


def _small_branches(order: list[Node], inside: Container[int]) -> dict[int, int]:
    """Return units that are made, inside a frame, from few others and no call or chain, and how many those are."""
    sizes: dict[int, int] = {}
    for unit in order:
        sources = {unit_of(operand).id for operand in unit.inputs}
        sizes[unit.id] = 1 + sum(sizes[source] for source in sources if source in inside)
        if type(unit) is Call or unit.op.stepwise:
            sizes[unit.id] = BRANCH + 1
    return {key: size for key, size in sizes.items() if size <= BRANCH}


def _arrange(
    nodes: Sequence[Node], inside: dict[int, Node], small: Mapping[int, int], arranged: dict[int, Node]
) -> None:
    """Append those of some nodes that are small branches, after what they are made from.

    Of what one is made from, the larger branch comes first: while it runs, the smaller one is not there yet.
    """
    stack = [unit_of(node) for node in reversed(nodes)]
    while stack:
        unit = stack[-1]
        if unit.id in arranged or unit.id not in small or unit.id not in inside:
            stack.pop()
            continue
        waiting = [s for s in map(unit_of, unit.inputs) if s.id in inside and s.id not in arranged]
        if waiting:
            stack += sorted(waiting, key=lambda unit: small.get(unit.id, 0))
        else:
            arranged[unit.id] = stack.pop()
