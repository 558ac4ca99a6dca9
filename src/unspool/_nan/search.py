"""Where a NaN in a value that was computed before comes from.

The one idea: the graph is the truth and values are a cache. So the search needs no second run of the program:
from a value with NaN to the held values that it was computed from, to those of them that have NaN and explain it, and
on. What lies between held values is computed again, forward, and freed as in any run; the calls that a loop was folded
to are run op by op only where NaN enter them in another way than in steps that were looked at before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unspool._engine.default import default_engine
from unspool._engine.interpreter import apply_kernel, sources_of
from unspool._engine.quiet import run_quietly
from unspool._engine.step_number import step_of
from unspool._fragments.call import Call, Projection, call_of, link_of
from unspool._graph import Bundle, Node, in_order
from unspool._nan.flow import Birth, Explained, Flow, Look, PlanFlow, explain_node
from unspool._nan.report import Bad, NaNReport
from unspool._nan.stepping import origins_inside
from unspool._ops.leaf import LEAF_OPS


def find_origin(targets: Sequence[Node], bad: Bad) -> NaNReport | None:
    """Return where the first NaN among what explains those of some tensors was born; ``None`` if they have none."""
    values = default_engine().evaluate(targets)
    search = _Search(bad)
    births = run_quietly(search.births, [node for node, value in zip(targets, values, strict=True) if bad.is_in(value)])
    if not births:
        return None
    first: Birth = min(births, key=lambda birth: birth.unit.id)
    step = step_of(first.unit, first.node)
    return first.report if step is None else first.report.inside(step)


def held(node: Node) -> Any:
    """Return the value of a tensor, if there is one: with the node, or with its call."""
    if node.value is not None or type(node) is not Projection:
        return node.value
    call, index = link_of(node)
    position = call.plan.fragment.slab.get(index)
    return call.value[position] if call.value and position is not None else None


class _Search:
    """A walk back from tensors with NaN, over values that are held."""

    def __init__(self, bad: Bad) -> None:
        self.bad, self.look = bad, Look(bad, origins_inside)
        self._is_bad: dict[int, bool] = {}
        # By plan, outputs and inputs with NaN: how NaN pass through calls in which none is born.
        self._known: dict[Any, PlanFlow] = {}

    def births(self, targets: Sequence[Node]) -> list[Birth]:
        """Return all births that explain the NaN of targets."""
        found: list[Birth] = []
        seen: set[int] = set()
        stack = list(targets)
        while stack:
            node = stack.pop()
            if node.id in seen:
                continue
            seen.add(node.id)
            if node.op in LEAF_OPS:
                found.append(Birth(self.bad.report(node, (), node.value), node, node))
                continue
            born, sources = self._explain(node)
            # What the inner loops of one unit made is in the order in which it was found, the earliest last.
            found += reversed(born)
            stack += sources
        return found

    def _explain(self, node: Node) -> tuple[Sequence[Birth], list[Node]]:
        """Return what explains the NaN of a tensor that has a value: births, and other tensors that have values."""
        if type(node) is not Projection or any(held(operand) is None for operand in call_of(node).inputs):
            return _Region(node, self).origins()
        call, index = link_of(node)
        entering = tuple([i for i, operand in enumerate(call.inputs) if self._has_bad(operand)])
        births, entered = self.flow(call, list(map(held, call.inputs)), (index,), entering).origins([index])
        return [birth._replace(unit=call) for birth in births], [call.inputs[i] for i in entered]

    def _has_bad(self, node: Node) -> bool:
        """Whether a tensor that has a value has NaN; what is read by every step is looked at once."""
        known = self._is_bad.get(node.id)
        if known is None:
            known = self._is_bad[node.id] = self.bad.is_in(held(node))
        return known

    def flow(self, call: Call, arguments: Sequence[Any], outputs: Sequence[int], entering: Sequence[int]) -> PlanFlow:
        """Return how NaN pass through a call from the inputs that have some to outputs that have some.

        What is known of a call in which none is born holds for all that are like it.
        """
        key = (call.plan.id, outputs, entering)
        flow = self._known.get(key)
        if flow is None:
            flow = PlanFlow(call.plan, arguments, self.look, call)
            if not flow.origins(outputs)[0]:
                self._known[key] = flow
        return flow

    def explain_call(
        self, call: Call, arguments: Sequence[Any], value: Sequence[Any], sources: Sequence[int]
    ) -> Callable[[set[int]], Explained]:
        """Return what explains the NaN in outputs of a call."""
        flow = self.flow(call, arguments, self.bad.among(value), self.bad.among(arguments))

        def explain(wanted: set[int]) -> Explained:
            births, entered = flow.origins(sorted(wanted))
            return [birth._replace(unit=call) for birth in births], [(sources[i], 0) for i in entered]

        return explain


class _Region:
    """What lies between a tensor that has a value and the values that it was computed from."""

    def __init__(self, target: Node, search: _Search) -> None:
        self._target, self._search = target, search
        order: list[Node] = []
        self._uses: dict[int, int] = {target.id: 0}
        self._borders: dict[int, Node] = {}
        stack = [target]
        while stack:
            node = stack.pop()
            order.append(node)
            for source in sources_of(node):
                if source.id in self._uses:
                    self._uses[source.id] += 1
                elif not isinstance(source, Bundle) and held(source) is not None:
                    self._borders[source.id] = source
                else:
                    self._uses[source.id] = 1
                    stack.append(source)
        self._order = in_order(order, sources_of)

    def origins(self) -> tuple[list[Birth], list[Node]]:
        """Return where the NaN of the target were born, and the values at the borders that they came from."""
        # Values at the borders are points below all others.
        borders = list(self._borders.values())
        point = {node.id: i - len(borders) for i, node in enumerate(borders)}
        point |= {node.id: i for i, node in enumerate(self._order)}
        values: dict[int, Any] = {}
        flow = Flow()
        for node in self._order:
            sources = sources_of(node)
            arguments = [held(s) if s.id in self._borders else values[s.id] for s in sources]
            value = values[node.id] = self._value(node, arguments)
            if self._search.bad.is_in(value):
                flow.add(point[node.id], self._explanation(node, arguments, value, [point[s.id] for s in sources]))
            for source in sources:
                self._release(source, values)
        births, entered = flow.origins([(point[self._target.id], 0)])
        return births, [borders[i] for i in entered]

    def _value(self, node: Node, arguments: Sequence[Any]) -> Any:
        """Return the value of a node: the one that it has, or a new one."""
        if type(node) is Call:
            return node.plan.run(*arguments)
        if type(node) is Projection:
            return arguments[0][node.output]
        if node is self._target or (type(node) is Bundle and node.value is not None):
            return node.value
        return apply_kernel(node, arguments)

    def _explanation(
        self, node: Node, arguments: Sequence[Any], value: Any, sources: Sequence[int]
    ) -> Callable[[set[int]], Explained]:
        search = self._search
        if type(node) is Call:
            return search.explain_call(node, arguments, value, sources)
        if type(node) is Projection:
            return lambda wanted: ((), [(sources[0], node.output)])
        return explain_node(node, node.attributes, arguments, value, sources, search.look)

    def _release(self, source: Node, values: dict[int, Any]) -> None:
        """Free a value after its last use."""
        if source.id in self._uses:
            self._uses[source.id] -= 1
            if not self._uses[source.id]:
                values.pop(source.id, None)
