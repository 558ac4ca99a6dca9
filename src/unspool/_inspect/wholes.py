"""Loops that are one node: those of `unspool.iterate`, with and without checkpoints, and chains of derivative calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from unspool._autodiff.loops.checkpointed_rules import CHECKPOINTED_LOOP, REVERSED_LOOP
from unspool._autodiff.loops.loop import LOOP, Loop
from unspool._autodiff.sweeps.chain import CHAIN, Chain
from unspool._graph import Node
from unspool._inspect.explanation import Body, FoundLoop, Line, Value
from unspool._inspect.loops import Placed
from unspool._inspect.places import Places
from unspool._inspect.units import Units
from unspool._ops.leaf import CONSTANT


def find_wholes(units: Units, places: Places) -> list[Placed]:
    """Return the loops that are one node each; chains that have steps of one plan are one loop."""
    found: list[Placed] = []
    chains: list[tuple[set[int], list[int]]] = []
    for position, unit in enumerate(units.order):
        if unit.is_step:
            continue
        node = unit.source
        loop = loop_of(node)
        if loop is not None:
            found.append(Placed(position, _describe_loop(loop, node, places, units), [position], ()))
        elif node.op is CHAIN:
            chains = _joined({kind.plan.id for kind in node.attributes["chain"].kinds}, position, chains)
    for _, group in chains:
        described = _describe_chains([units.order[position].source for position in group], places)
        found.append(Placed(group[0], described, group, ()))
    return found


def _joined(
    plans: set[int], position: int, chains: Sequence[tuple[set[int], list[int]]]
) -> list[tuple[set[int], list[int]]]:
    """Return groups of chains, plans and positions of each, with one more: it joins those that it shares plans with."""
    apart = [group for group in chains if group[0].isdisjoint(plans)]
    alike = [group for group in chains if not group[0].isdisjoint(plans)]
    positions = sorted([position, *[at for _, group in alike for at in group]])
    return [*apart, (plans.union(*[others for others, _ in alike]), positions)]


def loop_of(node: Any) -> Loop | None:
    """Return the loop that a node is, if it is one."""
    if node.op is LOOP:
        return node.attributes["loop"]  # type: ignore[no-any-return]
    if node.op is CHECKPOINTED_LOOP:
        return node.attributes["checkpoints"].loop  # type: ignore[no-any-return]
    if node.op is REVERSED_LOOP:
        return node.attributes["reversal"].checkpoints.loop  # type: ignore[no-any-return]
    return None


def lines_of(origins: Sequence[Any], places: Places) -> tuple[Line, ...]:
    """Return the lines of the user's program that recorded instructions."""
    return tuple(sorted({places.line(code, lasti) for code, lasti in origins}))


def _describe_loop(loop: Loop, node: Node, places: Places, units: Units) -> FoundLoop:
    first, last = loop.constants, loop.constants + len(loop.entering)
    inputs = [_value(each, places, units) for each in node.inputs]
    bodies = tuple(
        Body(
            len(body.fragment.body),
            loop.which.count(number) if loop.which else loop.steps,
            1,
            lines_of(body.fragment.origins, places),
        )
        for number, body in enumerate(loop.bodies)
    )
    held = [array for array in node.value or () if array is not None]
    return FoundLoop(
        kind="adjoint" if loop.reverse or node.op is REVERSED_LOOP else "iterate",
        steps=loop.steps,
        bodies=tuple(sorted(bodies, key=lambda body: -body.runs)),
        order="Values decide which body a step runs" if len(bodies) > 1 else "",
        carried=tuple(inputs[first:last]),
        streams=tuple(inputs[last:]),
        invariants=tuple(inputs[:first]),
        held=len(held),
        held_bytes=sum(array.nbytes for array in held),
    )


def _describe_chains(nodes: Sequence[Any], places: Places) -> FoundLoop:
    runs: Counter[Any] = Counter()
    carried: dict[Value, None] = {}
    for node in nodes:
        chain: Chain = node.attributes["chain"]
        for kind, count in zip(chain.kinds, chain.counts(), strict=True):
            runs[kind.plan] += count
        carried |= dict.fromkeys(_carried(chain, places))
    bodies = [Body(len(plan.fragment.body), n, 1, lines_of(plan.fragment.origins, places)) for plan, n in runs.items()]
    held = [array for node in nodes for array in node.value or () if array is not None]
    return FoundLoop(
        kind="adjoint",
        steps=runs.total(),
        bodies=tuple(sorted(bodies, key=lambda body: -body.runs)),
        order="They follow each other as in the loop" if len(bodies) > 1 else "",
        carried=tuple(carried),
        held=len(held),
        held_bytes=sum(array.nbytes for array in held),
    )


def _carried(chain: Chain, places: Places) -> Iterator[Value]:
    """Yield what steps of a chain read of earlier ones."""
    makers = {r: (kind.plan.fragment, output) for kind in reversed(chain.kinds) for output, r in kind.writes}
    for kind in chain.kinds:
        for position, register in kind.reads:
            name = "what arrives"
            if register in makers:
                fragment, output = makers[register]
                slot = fragment.outputs[output] - len(fragment.dtypes)
                name = places.name(*fragment.origins[slot]) if slot >= 0 else name
            yield Value(f"a cotangent of `{name}`", tuple(kind.plan.shapes[position]), str(kind.plan.dtypes[position]))


def _value(node: Node, places: Places, units: Units) -> Value:
    position, slot = units.maker[node.id]
    name = getattr(node, "_name", None) or places.name(*units.order[position].place_of(slot))
    if node.op is CONSTANT and not node.shape:
        name = str(node.value)
    return Value(name, tuple(node.shape), str(node.dtype))
