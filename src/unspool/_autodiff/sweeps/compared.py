"""Nodes between outputs and variables as a table, with which those of a later program are compared (`sweeps.c`).

The one idea: a program that is run again makes nodes that look alike. So what was found for some nodes holds for others
if all that it was found from is the same: ops, parameters, shapes and dtypes, and which node reads which.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from unspool._dims import is_concrete
from unspool._fragments.call import Call, Projection, call_of
from unspool._graph import Bundle, Node
from unspool._ops.leaf import CONSTANT, is_seed
from unspool._tensor import Tensor

# Nodes of which a table is made at most.
LARGEST = 512


class Compared:
    """The nodes between outputs and variables, with their slots, as a table compares them.

    Parameters
    ----------
    outputs, variables : sequence of Node
    first : int
        An id: no node that is older depends on a variable.
    ends : collection of int
        Ids of nodes that are not looked behind.
    all_bundles : bool
        Whether ops with several outputs may be among them that are no loops.

    Attributes
    ----------
    is_fit : bool
        Whether a table can be made of them. Not of folded calls, kernels of users and symbolic sizes.
    slots : dict
        By id.
    origins : dict
        A slot by each place of the user's program where one was made.
    compared, boundary : list of tuple
        As `_core.sweep_record` takes them; an entry of the boundary has contents that matter before the very node.
    """

    def __init__(
        self,
        outputs: Sequence[Node],
        variables: Sequence[Node],
        first: int,
        ends: Collection[int] = (),
        *,
        all_bundles: bool = False,
    ) -> None:
        self.slots: dict[int, int] = {}
        self.origins: dict[tuple[int, int], int] = {}
        self.compared: list[tuple[Any, ...]] = []
        self.boundary: list[tuple[Any, ...]] = []
        self.is_fit = True
        self._by_value: set[int] = set()
        waiting: list[Node] = []
        for node in (*outputs, *variables):
            if node.id not in self.slots:
                self.slots[node.id] = len(waiting)
                waiting.append(node)
        wanted = {variable.id for variable in variables}
        for node in waiting:
            if node.id in ends or _is_older(node, first) or not node.inputs:
                self.boundary.append(self._boundary(node, node.id in wanted))
            elif not _is_fit(node, all_bundles) or len(waiting) > LARGEST:
                self.is_fit = False
            else:
                self._compare(node, waiting)
            self.is_fit &= has_numbers(node)
            if not self.is_fit:
                return

    def _boundary(self, node: Node, is_variable: bool) -> tuple[Any, ...]:
        # Where values matter the contents are part of what has to be the same, whatever other sweeps show.
        matters = node.key if node.id in self._by_value else None
        exact = node if node.op is CONSTANT else None
        kind = (node.op, type(node), node.shape, node.dtype, is_variable, is_seed(node))
        return (self.slots[node.id], *kind, matters, exact)

    def _compare(self, node: Node, waiting: list[Node]) -> None:
        if node.op.by_value:
            self._by_value |= {operand.id for operand in node.inputs if operand.op is CONSTANT}
        sources = []
        for operand in node.inputs:
            slot = self.slots.get(operand.id)
            if slot is None:
                slot = ~len(self.slots)
                self.slots[operand.id] = ~slot
                waiting.append(operand)
            sources.append(slot)
        slot = self.slots[node.id]
        self.origins.setdefault((id(node.code), node.lasti), slot)
        self.compared.append((slot, node.op, type(node), node.attributes, node.shape, node.dtype, tuple(sources)))


def has_numbers(node: Node) -> bool:
    """Whether the sizes of a node are known."""
    shapes: Any = node.shape if type(node) is Bundle else (node.shape,)
    return all(map(is_concrete, shapes))


def _is_fit(node: Node, all_bundles: bool) -> bool:
    is_bundle = type(node) is Bundle and (all_bundles or node.op.loop)
    return (type(node) is Tensor or is_bundle) and not node.op.users_own


def _is_older(node: Node, first: int) -> bool:
    """Whether a node, or the call that it is an output of, is older than all that depends on a variable."""
    if type(node) is Projection:
        call: Any = call_of(node)
        return type(call) is Call and call.id < first
    return node.id < first
