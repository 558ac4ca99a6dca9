"""What may run in a replay, as numbers: the core puts it in order, and tells what it holds while it runs.

Each unit is described once, however many frames run it, and in whatever orders they are tried. What describes it refers
to no node: who counts references does not see it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from enum import IntEnum
from typing import TypeAlias

from unspool._core import UnitTable, unit_of
from unspool._engine.costs import kernels_of
from unspool._engine.memory.recomputation import BRANCH, entering, held_by_chain, is_taken, spare_of, workspace_of
from unspool._engine.memory.replayed_values import Buffer, buffers_of, is_view, own_buffers
from unspool._fragments.call import Projection
from unspool._graph import Node

# An order in which work that frees memory comes first is taken if it takes less than this part of what others do.
_WORTH = 0.75

_NONE = -1
_VIEW, _LARGE, _STEPWISE = 1, 2, 4


class Order(IntEnum):
    """The order in which units run.

    What has become possible last runs first, so the tangent of a step runs right after the step, what a chain stacked
    up is multiplied before the next chain, and what one more use of a value takes is done before the loop goes on from
    it. Or units run in the order in which they were recorded, short branches as soon as they become possible: a loop
    that carries several values which do not read each other takes its steps with all of them, as the sweep that reads
    them does. In both, small branches that are made from lower levels alone are moved to just before what reads them (a
    term of the loss for each step, say: all of them would be there at once otherwise), and those that single steps of
    chains read are left out; they are computed when the step comes. Or small branches stay where they become possible:
    they take less than what they are made of, if only the sweep reads them. Or what frees more than it takes runs as
    soon as it can.
    """

    AS_RECORDED = 0
    AS_POSSIBLE = 1
    BRANCHES_EARLY = 2
    FREEING = 3


# The orders in which steps may run again. None of them is the narrowest for all loops.
STEP_ORDERS = (Order.AS_RECORDED, Order.AS_POSSIBLE, Order.BRANCHES_EARLY)


# The numbers of units, nodes and buffers, the kernels of units, and what describes units and nodes.
Known: TypeAlias = tuple[
    dict[int, int],
    dict[int, int],
    dict[tuple[int, int], int],
    dict[int, int],
    Callable[[Node], int],
    Callable[[Node], int],
]


class Units:
    """The units that a replay meets, by number.

    Attributes
    ----------
    kernels : dict
        How many kernels each runs, in all steps if it is a chain, by id.
    """

    def __init__(self, wanted: Container[int]) -> None:
        self.kernels: dict[int, int] = {}
        self._wanted = wanted
        self._table = UnitTable(BRANCH)
        self._units: dict[int, int] = {}  # below 0, and counted from the end, if one was only met as what makes a node
        self._nodes: dict[int, int] = {}
        self._buffers: dict[tuple[int, int], int] = {}

    # -- what they take, and in which order --

    def numbers(self, units: Sequence[Node]) -> list[int]:
        """Return the numbers of units."""
        return self._table.numbers(units, *self._known())

    def _known(self) -> Known:
        """Return what is known, and what describes the rest."""
        return self._units, self._nodes, self._buffers, self.kernels, self._describe, self._describe_node

    def arranged(self, units: Sequence[Node], order: Order) -> list[Node]:
        """Return units in an order in which they can run."""
        by_number = dict(zip(self.numbers(units), units, strict=True))
        return [by_number[number] for number in self._table.arrange(list(by_number), order)]

    def widths(self, order: Sequence[Node], wanted: Sequence[int]) -> tuple[int, int]:
        """Return the most bytes of its own that a frame holds while it waits for others, and while a unit runs.

        Nodes whose ids are ``wanted`` stay to the end.
        """
        return self._widths(self.numbers(order), wanted)

    def _widths(self, numbers: Sequence[int], wanted: Sequence[int]) -> tuple[int, int]:
        nodes = self._nodes
        return self._table.widths(numbers, [nodes[key] for key in wanted if key in nodes])

    def narrowest(self, units: Sequence[Node], wanted: Sequence[int]) -> tuple[list[Node], int]:
        """Return units in the order in which they take least at once, and how much that is."""
        by_number = dict(zip(self.numbers(units), units, strict=True))
        given = list(by_number)
        best: list[int] = []
        least = 0
        for order in (Order.AS_POSSIBLE, Order.AS_RECORDED, Order.FREEING):
            numbers = self._table.arrange(given, order)
            if numbers == best:
                continue
            _, busiest = self._widths(numbers, wanted)
            # It reads what is below in another order than it was recorded in, so it has to be worth it.
            if not best or busiest < (least * _WORTH if order is Order.FREEING else least):
                best, least = numbers, busiest
        return [by_number[number] for number in best], least

    def need(self, order: Sequence[Node], uses: dict[int, int]) -> tuple[int, int, list[int], list[int]]:
        """Return what units take that run for a frame above, by how often that reads each node; see `Need`."""
        return self._table.need(self.numbers(order), uses)

    # -- describing them --

    def _describe(self, unit: Node) -> int:
        """Note what a unit reads and makes that is no call."""
        key, inputs = unit.id, unit.inputs
        number = self._unit(key)
        self._units[key] = number
        reads = self._table.node_numbers(inputs, *self._known())
        workspace = workspace_of(unit)
        begun, fixed, stacked, spare, taken, flags = 0, len(reads), 0, _NONE, _NONE, 0
        if unit.op.stepwise:
            chain = unit.attributes["chain"]
            self.kernels[key] = int(chain.kernels)
            begun, fixed = len(entering(unit)), chain.fixed
            stacked, flags = held_by_chain(unit), _LARGE | _STEPWISE
        else:
            self.kernels[key] = kernels_of(unit)
            flags = _VIEW if is_view(unit) else 0
            operand = spare_of(unit)
            spare = _NONE if operand is None else self._nodes[operand.id]
            if is_taken(unit):
                taken = self._buffer(*own_buffers(inputs[0])[unit.attributes["index"]])
        makes = self._table.node_numbers((unit,), *self._known())
        self._table.describe(number, key, reads, makes, begun, fixed, workspace, stacked, spare, taken, flags)
        return number

    def _describe_node(self, node: Node) -> int:
        # What is wanted is handed out, and counts in full, be it a view or not.
        key = node.id
        taken: Sequence[Buffer] = own_buffers(node) if key in self._wanted else buffers_of(node)
        buffers = [self._buffer(*buffer) for buffer in taken]
        # To ask the output of a call what it is made of would make that.
        has_inputs = type(node) is Projection or bool(node.inputs)
        return self._table.node(key, self._unit(unit_of(node).id), has_inputs, buffers)

    def _unit(self, key: int) -> int:
        number = self._units.get(key)
        if number is None:
            number = self._table.unit()
            self._units[key] = ~number
        return number if number >= 0 else ~number

    def _buffer(self, key: tuple[int, int], size: int) -> int:
        number = self._buffers.get(key)
        if number is None:
            number = self._buffers[key] = self._table.buffer(size)
        return number
