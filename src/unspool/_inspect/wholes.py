"""Loops that are one node: those of `unspool.iterate`, with and without checkpoints, and chains of derivative calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool._autodiff.chain import CHAIN
from unspool._autodiff.checkpointed_rules import CHECKPOINTED_LOOP, REVERSED_LOOP
from unspool._autodiff.loop import LOOP, Loop
from unspool._graph import Node
from unspool._inspect.explanation import Body, FoundLoop, Line, Value
from unspool._inspect.loops import Placed
from unspool._inspect.places import Places
from unspool._inspect.units import Units
from unspool._ops.leaf import CONSTANT


def find_wholes(units: Units, places: Places) -> list[Placed]:
    """Return the loops that are one node each; chains of one plan that follow each other are one loop."""
    found: list[Placed] = []
    chains: dict[int, list[int]] = {}
    for position, unit in enumerate(units.order):
        if unit.is_step:
            continue
        node = unit.source
        loop = loop_of(node)
        if loop is not None:
            found.append(Placed(position, _describe_loop(loop, node, places, units), [position], ()))
        elif node.op is CHAIN:
            chains.setdefault(node.attributes["chain"].plan.id, []).append(position)
    for group in chains.values():
        described = _describe_chains([units.order[position].source for position in group], places)
        found.append(Placed(group[0], described, group, ()))
    return found


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
    chain = nodes[0].attributes["chain"]
    fragment = chain.plan.fragment
    shapes, dtypes = chain.plan.shapes, chain.plan.dtypes
    steps = sum(node.attributes["chain"].steps for node in nodes)
    names = [
        places.name(*fragment.origins[slot - len(fragment.dtypes)]) if slot >= len(fragment.dtypes) else "what arrives"
        for slot in (fragment.outputs[source] for _, source in chain.carried)
    ]
    carried = [
        Value(f"a cotangent of `{name}`", tuple(shapes[position]), str(dtypes[position]))
        for name, (position, _) in zip(names, chain.carried, strict=True)
    ]
    held = [array for node in nodes for array in node.value or () if array is not None]
    return FoundLoop(
        kind="adjoint",
        steps=steps,
        bodies=(Body(len(fragment.body), steps, 1, lines_of(fragment.origins, places)),),
        carried=tuple(dict.fromkeys(carried)),
        held=len(held),
        held_bytes=sum(array.nbytes for array in held),
    )


def _value(node: Node, places: Places, units: Units) -> Value:
    position, slot = units.maker[node.id]
    name = getattr(node, "_name", None) or places.name(*units.order[position].place_of(slot))
    if node.op is CONSTANT and not node.shape:
        name = str(node.value)
    return Value(name, tuple(node.shape), str(node.dtype))
