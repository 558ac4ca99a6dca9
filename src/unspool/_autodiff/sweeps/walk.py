"""Which nodes a derivative sweep visits: those on a differentiable path from a variable to an output.

A call of a fragment is one node of the walk, unless a variable is inside of it (`variables_inside`): then its nodes
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.late import late
from unspool._autodiff.sweeps.variables_inside import Inside
from unspool._core import activate, has_pending, reach
from unspool._dtypes import INEXACT
from unspool._engine.default import default_engine
from unspool._fragments.call import call_of
from unspool._graph import Bundle, Node
from unspool._ops.op import JointRule

if TYPE_CHECKING:
    from unspool._core import Sources
    from unspool._engine.plan import Plan
    from unspool._ops.op import Op
    from unspool._tensor import Tensor


def passing_inputs(plan: Plan) -> tuple[int, ...]:
    """Return what `calls.passing_inputs` does; that module is loaded when the first call is met."""
    return late.passing_inputs(plan)


def inputs_behind(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return, for each output of a plan, the positions of the inputs that it is made from."""
    found: tuple[tuple[int, ...], ...] | None = plan.derivatives.get("behind")
    if found is None:
        fragment = plan.fragment
        behind = [frozenset((position,)) for position in range(len(fragment.dtypes))]
        for _, operands, _ in fragment.body:
            behind.append(frozenset().union(*[behind[slot] for slot in operands]))
        found = plan.derivatives["behind"] = tuple([tuple(sorted(behind[slot])) for slot in fragment.outputs])
    return found


@contextmanager
def walking(outputs: Sequence[Node], variables: Sequence[Node]) -> Iterator[Walk]:
    """Walk a graph that stays as it is during the block. Loops in it are folded before, read or not."""
    engine = default_engine()
    engine.queue.settle(outputs, variables)
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
    shown : dict of id to Tensor or tuple of Tensor
        Of each call that is visited as a whole, the outputs that were met. Most calls of a loop have one, and no tuple.
    """

    __slots__ = ("_inside", "_opened", "_single", "_through_all", "active", "order", "shown")

    def __init__(self, outputs: Sequence[Node], variables: Sequence[Node]) -> None:
        self.active: set[int] = {v.id for v in variables}
        self.shown: dict[int, Tensor | tuple[Tensor, ...]] = {}
        self.order: list[Node] = []
        if not variables:
            return
        self._inside = Inside(variables)
        self._opened: dict[int, bool] = {}
        # What a single variable is made from does not depend on it.
        self._single = variables[0] if len(self.active) == 1 else None
        # Ops that are differentiated through all their inputs: asked once per op, not once per node.
        self._through_all: set[Op] = set()
        sources = self._reach(outputs)
        while opened := [key for key in self._inside.read_on_the_way(self.shown) if not self._opened.get(key)]:
            self._opened.update(dict.fromkeys(opened, True))
            self.shown.clear()
            sources = self._reach(outputs)
        self._activate(sources)

    def _activate(self, sources: Sources) -> None:
        """Find what depends on a variable, from what is made first to what is made last."""
        self.order = activate(sources, self.active, self.shown, inputs_behind)

    def _reach(self, outputs: Sequence[Node]) -> Sources:
        """Return the differentiable nodes that outputs are made from, in order, and what each is differentiated by."""
        is_closed = not self._inside.is_anywhere and not self._opened
        return reach(
            list(outputs),
            self._inside.first,
            self._single,
            self._through_all,
            self.shown,
            passing_inputs,
            self._operands_of,
            is_differentiable,
            None if is_closed else self._is_open,
        )

    def _operands_of(self, node: Node) -> Sequence[Node]:
        """Return what a node is differentiated through, and note if that is all that its op reads, always."""
        if _passes_through_all(node.op):
            self._through_all.add(node.op)
            return node.inputs
        return _differentiated_inputs(node)

    def _is_open(self, output: Node) -> bool:
        """Whether the call of an output is walked node by node; decided once."""
        call = call_of(output)
        is_open = self._opened.get(call.id)
        if is_open is None:
            is_open = self._opened[call.id] = self._inside.is_in(call)
        return is_open


def met_outputs(met: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the outputs of a call that were met, as `Walk.shown` has them, as a tuple."""
    return met if type(met) is tuple else (met,)  # type: ignore[return-value]


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
