"""Which step of a plain Python loop a node belongs to, for messages.

Nobody counts while a loop is recorded. But the steps of a loop are made by the same lines and read each other, so the
number of a step is how many nodes from the same place in the program there are among those that it is made from. That
takes a walk over the graph, which only who has an error to report makes.

What a sweep built has the places of what it differentiates, and is made from its steps in another order. A derivative
of a call is numbered like the call, if that is alive; other nodes of a derivative have no number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import TYPE_CHECKING, Any

from unspool._engine.levels import Numbering
from unspool._fragments.call import Call, Projection, call_of, live_calls
from unspool._graph import Node
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Fragment
    from unspool._ops.op import Op


# A piece of source text: the code, then first and last line, first and last column.
Place = tuple[CodeType, Any]


@lru_cache(maxsize=1 << 12)
def place_of(code: CodeType, lasti: int) -> Place:
    """Return the place in a program that an instruction belongs to.

    Python moves an instruction when it specialises code; the text that it stands for stays.
    """
    return code, next(islice(code.co_positions(), max(lasti, 0) // 2, None), None)


def step_of(unit: Node, node: Node) -> int | None:
    """Return the number of the step that made a node, the first being 0; ``None`` if there is no loop or it is unclear.

    ``unit`` is the call that the node is inside of, or the node itself.
    """
    place = place_of(node.code, node.lasti)
    if not isinstance(unit, Call):
        return _step_of_node(unit, place)
    derived = _Derived()
    if derived.knows(unit.plan):
        return step_of_derivative(unit.plan, unit.inputs, node)
    if _may_be_derivative(unit):
        return None
    first = _step_of_call(unit, place, node.op, derived)
    return None if first is None else first + _step_inside(unit, node)


def step_of_derivative(plan: Plan, inputs: Sequence[Node | None], node: Node) -> int | None:
    """Return the number of the step whose derivative, of any order, a plan computes from inputs.

    The inputs that are cotangents or tangents need not be given.
    """
    derived, call = _Derived(), None
    while derived.knows(plan):
        call = derived.primal(plan, inputs)
        if call is None:
            return None
        plan, inputs = call.plan, call.inputs
    return None if call is None else _step_of_call(call, place_of(node.code, node.lasti), None, derived)


class _Derived:
    """Which plans are derivatives of those of live calls, and of which calls."""

    def __init__(self) -> None:
        self._calls: dict[int, list[Call]] = {}
        for call in live_calls():
            self._calls.setdefault(call.plan.id, []).append(call)
        self._sources: dict[int, list[tuple[int, Any]]] = {}
        for primal, calls in self._calls.items():
            for found in calls[0].plan.derivatives.values():
                if hasattr(found, "sources"):
                    self._sources.setdefault(found.plan.id, []).append((primal, found.sources))

    def knows(self, plan: Plan) -> bool:
        """Whether a plan is a derivative."""
        return plan.id in self._sources

    def primal(self, plan: Plan, inputs: Sequence[Node | None]) -> Call | None:
        """Return the one call that a plan is the derivative of on these inputs."""
        pairs = [(call, sources) for primal, sources in self._sources[plan.id] for call in self._calls[primal]]
        found = [call for call, sources in pairs if _fits(call, sources, inputs)]
        return found[0] if len(found) == 1 else None


def _fits(call: Call, sources: Sequence[tuple[str, Any]], inputs: Sequence[Node | None]) -> bool:
    """Whether inputs of a derivative are those that the derivative of a call has."""
    for (kind, position), node in zip(sources, inputs, strict=True):
        if kind == "input" and call.inputs[position] is not node:
            return False
        if kind == "output" and call.handle(position) is not node:
            return False
    return True


def _step_of_call(call: Call, place: Place, op: Op | None, derived: _Derived) -> int | None:
    """Return how many calls from the same place a call is made from; those with the same ``op`` there, if it is given.

    A call that is no step of a row and follows no other stands alone.
    """
    fragment = call.plan.fragment
    before = _made_from(call)
    found = [other for other in before if isinstance(other, Call) and place in _places(other.origins)]
    alike = [c for c in found if c.plan.fragment is fragment or (_has(c, place, op) and not derived.knows(c.plan))]
    # Steps before the first one that was folded are nodes.
    alone = [n for n in before if not isinstance(n, Call | Projection) and n.op is op]
    first = sum(place_of(n.code, n.lasti) == place for n in alone)
    return first + sum(map(_steps_in, alike)) or (0 if call.depth else None)


def _step_of_node(node: Node, place: Place) -> int | None:
    level = Numbering.levels.of
    before = _made_from(node)
    alone = [n for n in before if not isinstance(n, Call | Projection) and place_of(n.code, n.lasti) == place]
    if any(level(other) != level(node) for other in alone):
        return None
    derived = _Derived()
    calls = [c for c in before if isinstance(c, Call) and _has(c, place, node.op) and not derived.knows(c.plan)]
    return sum(map(_steps_in, calls)) + sum(_role(other) == _role(node) for other in alone) or None


def _steps_in(call: Call) -> int:
    """Return how many steps of a loop one call has: what every place in it makes at least so many times."""
    return _least_count(call.plan.fragment, call.origins)


@lru_cache(maxsize=1 << 8)
def _least_count(fragment: Fragment, origins: tuple[Any, ...]) -> int:
    made = Counter(_made_at(fragment, origins))
    return min(made.values(), default=1)


def _made_at(fragment: Fragment, origins: tuple[Any, ...]) -> list[Any]:
    """Return, for each instruction that is no constant, what makes it: an op at a place."""
    pairs = zip(fragment.body, origins, strict=False)
    return [(i.op, place_of(*origin)) for i, origin in pairs if i.op is not CONSTANT]


def _step_inside(call: Call, node: Node) -> int:
    """Return in which of the steps that a call has a node inside of it is made."""
    steps = _steps_in(call)
    if steps == 1:
        return 0
    # Nodes inside of a call are made again for who asks, so it is told by what this one is made from.
    key = (node.op, place_of(node.code, node.lasti))
    seen = {operand.id for operand in call.inputs}
    stack, before = [node], 0
    while stack:
        for operand in stack.pop().inputs:
            if operand.id not in seen:
                seen.add(operand.id)
                stack.append(operand)
                before += (operand.op, place_of(operand.code, operand.lasti)) == key
    count = _made_at(call.plan.fragment, call.origins).count(key)
    return before * steps // max(1, count)


def _may_be_derivative(call: Call) -> bool:
    """Whether a call may be a derivative of a call that is gone.

    It reads what was computed before the sweep that it was made after. A step that takes a gradient does so too, but
    then there is a sweep between any two of them.
    """
    levels = Numbering.levels
    floor = levels.floor(call)
    if not any(operand.id < floor and operand.inputs for operand in call.inputs):
        return False
    before = [c for c in _made_from(call) if isinstance(c, Call) and c.plan.fragment is call.plan.fragment]
    return not before or any(levels.of(c) == levels.of(call) for c in before)


def _has(call: Call, place: Place, op: Op | None) -> bool:
    """Whether an op, or any, inside of a call is from a place."""
    if place not in _places(call.origins):
        return False
    pairs = zip(call.plan.fragment.body, call.origins, strict=False)
    return op is None or any(i.op is op and place_of(*origin) == place for i, origin in pairs)


@lru_cache(maxsize=1 << 8)
def _places(origins: tuple[Any, ...]) -> frozenset[Place]:
    return frozenset([place_of(*origin) for origin in origins])


def _role(node: Node) -> Any:
    """Return what tells apart nodes that one place in a program makes in one step."""
    return node.op, node.shape, tuple([operand.shape for operand in node.inputs])


def _made_from(node: Node) -> list[Node]:
    """Return all that a node is made from, calls as one."""
    seen = {node.id}
    found: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        for source in (call_of(current),) if type(current) is Projection else current.inputs:
            if source.id not in seen:
                seen.add(source.id)
                found.append(source)
                stack.append(source)
    return found
