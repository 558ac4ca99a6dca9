"""How NaN pass through a list of operations: from where they are born, or enter, to where they are seen.

The one idea: a value with NaN is *explained* by operands with NaN, or it was born there. Points are numbered in the
order in which they were computed, so one walk down the numbers explains everything that is wanted. An operand whose NaN
were masked on the way explains nothing: where several have some, the operation is asked what changes without them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool._autodiff.loops.checkpointed_rules import CHECKPOINTED_LOOP, REVERSED_LOOP
from unspool._autodiff.loops.drive import nodes_of
from unspool._autodiff.loops.loop import LOOP
from unspool._autodiff.solvers.implicit import FIXED_POINT
from unspool._autodiff.sweeps.chain import CHAIN
from unspool._graph import Node
from unspool._nan.report import Bad, NaNReport
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import PART

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.call import Call


# Ops that are made of steps.
STEPPING = frozenset({LOOP, CHAIN, CHECKPOINTED_LOOP, REVERSED_LOOP, FIXED_POINT})


class Birth(NamedTuple):
    """Where a NaN was born: the report, the node, and the call that it is inside of, or the node once more."""

    report: NaNReport
    node: Node
    unit: Node


# The report on the NaN in wanted outputs of an op that is made of steps, or the inputs that these came with.
Inside = Callable[[Node, Any, Sequence[Any], Any, set[int], "Look"], tuple[NaNReport | None, list[int]]]


class Look(NamedTuple):
    """What is looked for, and how ops that are made of steps are looked into."""

    bad: Bad
    inside: Inside


# The births among what explains a value, and what else does: pairs of a point and which of its outputs.
Explained = tuple[Sequence[Birth], Sequence[tuple[int, int]]]


class Flow:
    """What explains the values that have NaN, by points.

    An explanation is a function of the outputs of a point that are wanted. A point without one is where NaN enter.
    """

    def __init__(self) -> None:
        self._points: dict[int, Callable[[set[int]], Explained]] = {}

    def add(self, point: int, explain: Callable[[set[int]], Explained]) -> None:
        """Note what explains a point; points come in order."""
        self._points[point] = explain

    def origins(self, targets: Sequence[tuple[int, int]]) -> tuple[list[Birth], list[int]]:
        """Return where the NaN of some points were born, and the points at which they entered."""
        wanted: dict[int, set[int]] = {}
        births: list[Birth] = []
        entered: list[int] = []
        heap: list[int] = []

        def want(pairs: Sequence[tuple[int, int]]) -> None:
            for point, index in pairs:
                if point not in wanted:
                    wanted[point] = set()
                    heapq.heappush(heap, -point)
                wanted[point].add(index)

        want(targets)
        while heap:
            point = -heapq.heappop(heap)
            explain = self._points.get(point)
            if explain is None:
                entered.append(point)
                continue
            born, sources = explain(wanted[point])
            births += born
            want(sources)
        return births, entered


def explain_node(
    node: Node,
    params: Any,
    arguments: Sequence[Any],
    value: Any,
    sources: Sequence[int],
    look: Look,
    inputs: Sequence[Node] | None = None,
) -> Callable[[set[int]], Explained]:
    """Return what explains the NaN in the value of a node that is not a call.

    Its operands are the points ``sources``; in reports they are called ``inputs``, if given.
    """
    if node.op is PART:
        index = params["index"]
        return lambda wanted: ((), [(sources[0], index)])
    if node.op in STEPPING:
        # Looked into when it is known which outputs matter.
        return lambda wanted: _explain_inside(node, params, arguments, value, sources, wanted, look)
    bad = look.bad
    found = _explaining(node, params, arguments, value, bad)
    if found:
        pairs = [(sources[i], 0) for i in found]
        return lambda wanted: ((), pairs)
    birth = Birth(bad.report(node, arguments, value, inputs), node, node)
    return lambda wanted: ((birth,), ())


def _explain_inside(
    node: Node, params: Any, arguments: Sequence[Any], value: Any, sources: Sequence[int], wanted: set[int], look: Look
) -> Explained:
    report, entered = look.inside(node, params, arguments, value, wanted, look)
    if entered:
        return (), [(sources[i], 0) for i in entered]
    return (Birth(report or look.bad.report(node, arguments, value), node, node),), ()


def _explaining(node: Node, params: Any, arguments: Sequence[Any], value: Any, bad: Bad) -> Sequence[int]:
    """Return the operands whose NaN are those of the value."""
    found = bad.among(arguments)
    if len(found) < 2:
        return found
    before = bad.where(value)
    matter = []
    for i in found:
        cured = [bad.cured(argument) if j == i else argument for j, argument in enumerate(arguments)]
        try:
            after = bad.where(node.op.kernel(*cured, **params))
        except Exception:  # an op may refuse what it is not made for: then that is what it depends on
            matter.append(i)
            continue
        if any((x != y).any() for x, y in zip(before, after, strict=True)):
            matter.append(i)
    # Each alone is enough if none is missed.
    return matter or found


# --- the body of a call or of a loop ---------------------------------------------------------------------------------


def run_ops(plan: Plan, inputs: Sequence[Any], after: Callable[[int, list[Any], Any], None]) -> list[Any]:
    """Return the outputs of a plan, op by op; ``after`` sees the position, the operands and the value of each.

    Temporaries are freed after their last use, as in a run of the plan.
    """
    body, outputs = plan.fragment.body, plan.fragment.outputs
    first = len(inputs)
    last = {slot: position for position, (_, operands, _) in enumerate(body) for slot in operands}
    values: dict[int, Any] = dict(enumerate(inputs))
    for position, (op, operands, params) in enumerate(body):
        if op is CONSTANT:
            values[first + position] = params["literal"].array
            after(position, [], values[first + position])
            continue
        arguments = [values[slot] for slot in operands]
        value = values[first + position] = op.kernel(*arguments, **plan.params[position])
        after(position, arguments, value)
        for slot in set(operands):
            if last[slot] == position and slot not in outputs:
                del values[slot]
    return [values[slot] for slot in outputs]


class PlanFlow:
    """How NaN pass through a run of a plan, from its inputs to its outputs; of a call, if one is given."""

    def __init__(self, plan: Plan, inputs: Sequence[Any], look: Look, call: Call | None = None) -> None:
        self._flow, self._outputs = Flow(), plan.fragment.outputs
        first, body = len(inputs), plan.fragment.body
        nodes = nodes_of(plan, None if call is None else call.origins)
        named = None if call is None else [*call.inputs, *nodes]

        def after(position: int, arguments: list[Any], value: Any) -> None:
            if look.bad.is_in(value):
                node, slots = nodes[position], body[position].operands
                called = None if named is None or not arguments else [named[slot] for slot in slots]
                explained = explain_node(node, plan.params[position], arguments, value, slots, look, called)
                self._flow.add(first + position, explained)

        outputs = run_ops(plan, inputs, after)
        self.bad_outputs = look.bad.among(outputs)

    def origins(self, outputs: Sequence[int]) -> tuple[list[Birth], list[int]]:
        """Return where the NaN of outputs were born, and the inputs with which they entered."""
        return self._flow.origins([(self._outputs[i], 0) for i in outputs if i in self.bad_outputs])
