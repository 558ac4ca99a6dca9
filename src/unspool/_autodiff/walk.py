"""Which nodes a derivative sweep visits: those on a differentiable path from a variable to an output.

A call of a fragment is one node of the walk, unless a variable is inside of it (`inside`): then its nodes are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from unspool._autodiff.inside import Inside
from unspool._autodiff.late import late
from unspool._core import has_pending
from unspool._dtypes import INEXACT
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, Projection, call_of
from unspool._graph import Bundle, Node, in_order
from unspool._ops.op import JointRule

if TYPE_CHECKING:
    from unspool._ops.op import Op

_by_id = attrgetter("id")


@contextmanager
def walking(outputs: Sequence[Node], variables: Sequence[Node]) -> Iterator[Walk]:
    """Walk a graph that stays as it is during the block. Loops in it are folded before, read or not."""
    engine = default_engine()
    engine.queue.settle()
    first = min([variable.id for variable in variables], default=0)
    if has_pending(list(outputs), first, engine.smallest_loop):
        engine.fold_unread(outputs, derivatives=True)
    with engine.queue.nothing_folds():
        yield Walk(outputs, variables)


def active_nodes(outputs: Sequence[Node], variables: Sequence[Node]) -> list[Node]:
    """Return, in order, the nodes on a differentiable path from a variable to an output; calls for their outputs."""
    return Walk(outputs, variables).order


class Walk:
    """Which nodes a sweep visits: those on a differentiable path from a variable to an output.

    Another thread may fold nodes at any time. What a node was made from is looked at once and remembered.

    Attributes
    ----------
    order : list of Node
        The nodes on such a path, in topological order. A call that is visited as a whole stands for its outputs.
    active : set of id
        The ids of these nodes, of the outputs of such calls, and of the variables.
    shown : dict of id to tuple of int
        Of each call that is visited as a whole, the outputs that were met: the position and the id of one after the
        other, which is one object for each step of a loop, not two.
    """

    __slots__ = ("_inside", "_opened", "_single", "_through_all", "active", "order", "shown")

    def __init__(self, outputs: Sequence[Node], variables: Sequence[Node]) -> None:
        self.active: set[int] = {v.id for v in variables}
        self.shown: dict[int, tuple[int, ...]] = {}
        self.order: list[Node] = []
        if not variables:
            return
        self._inside = Inside(variables)
        self._opened: dict[int, bool] = {}
        # What a single variable is made from does not depend on it.
        self._single = min(self.active) if len(self.active) == 1 else -1
        # Whether an op is differentiated through all its inputs: asked once per op, not once per node.
        self._through_all: dict[Op, bool] = {}
        reached, sources, in_id_order = self._reach(outputs)
        while opened := [key for key in self._inside.read_on_the_way(self.shown) if not self._opened.get(key)]:
            self._opened.update(dict.fromkeys(opened, True))
            self.shown.clear()
            reached, sources, in_id_order = self._reach(outputs)
        if in_id_order:
            reached.sort(key=_by_id)
        else:
            reached = self._sorted(reached, sources)
        self._activate(reached, sources)

    def _activate(self, reached: list[Node], sources: dict[int, Sequence[Node]]) -> None:
        """Find what depends on a variable, from what is made first to what is made last."""
        active, order, shown = self.active, self.order, self.shown
        for node in reached:
            key = node.id
            if key in active:
                order.append(node)
                continue
            for operand in sources[key]:
                if operand.id in active:
                    active.add(key)
                    order.append(node)
                    if key in shown:
                        active.update(shown[key][1::2])
                    break

    def _reach(self, outputs: Sequence[Node]) -> tuple[list[Node], dict[int, Sequence[Node]], bool]:
        """Return the differentiable nodes that outputs are made from, and what each is differentiated through.

        Also tells whether the order of ids is a topological order of them.
        """
        first, through_all, shown = self._inside.first, self._through_all, self.shown
        is_closed = not self._inside.is_anywhere and not self._opened
        reached: list[Node] = []
        sources: dict[int, Sequence[Node]] = {}
        in_id_order = True
        stack = [node for node in outputs if node.id >= first]
        while stack:
            node = stack.pop()
            key = node.id
            if key in sources:
                continue
            if node.dtype not in INEXACT and not is_differentiable(node):
                sources[key] = ()
                continue
            if type(node) is Projection and (is_closed or not self._is_open(call_of(node))):
                # An output is known by its call, which takes its place.
                sources[key] = ()
                met = node.output, key
                call = call_of(node)
                key = call.id
                if key in shown:
                    shown[key] += met
                    continue
                shown[key] = met
                node, inputs, passing = call, call.inputs, late.passing_inputs(call.plan)
                operands = inputs if len(passing) == len(inputs) else [inputs[position] for position in passing]
            else:
                op = node.op
                if op not in through_all:
                    through_all[op] = _passes_through_all(op)
                if key == self._single:
                    operands = ()
                else:
                    operands = node.inputs if through_all[op] else _differentiated_inputs(node)
            reached.append(node)
            sources[key] = operands
            for operand in operands:
                other = operand.id
                if other >= first:
                    if other not in sources:
                        stack.append(operand)
                    if other > key:
                        in_id_order = False
        return reached, sources, in_id_order

    def _sorted(self, reached: list[Node], sources: dict[int, Sequence[Node]]) -> list[Node]:
        """Return nodes in topological order where that of their ids is none."""
        calls = {output: node for node in reached for output in self.shown.get(node.id, ())[1::2]}
        return in_order(reached, lambda node: [calls.get(operand.id, operand) for operand in sources[node.id]])

    def _is_open(self, call: Call) -> bool:
        """Whether a call is walked node by node; decided once."""
        is_open = self._opened.get(call.id)
        if is_open is None:
            is_open = self._opened[call.id] = self._inside.is_in(call)
        return is_open


def _passes_through_all(op: Op) -> bool:
    """Whether an op is differentiated through all its inputs, whatever its parameters are."""
    rules = op.vjp
    if type(rules) is JointRule:
        return rules.passes is None
    return type(rules) is not tuple or None not in rules


def _differentiated_inputs(node: Node) -> list[Node]:
    """Return the inputs through which a node is differentiated, as its vjp says."""
    rules = node.op.vjp
    passes = rules.passes(node.attributes) if isinstance(rules, JointRule) and rules.passes else rules
    return [operand for operand, passing in zip(node.inputs, passes, strict=True) if passing]  # type: ignore[arg-type]


def is_differentiable(node: Node) -> bool:
    """Whether a node can carry a derivative: its values are floating-point or complex numbers."""
    if isinstance(node, Bundle):
        dtypes: Any = node.dtype
        return any(dtype in INEXACT for dtype in dtypes)
    return node.dtype in INEXACT


late.provide(active_nodes=active_nodes)
