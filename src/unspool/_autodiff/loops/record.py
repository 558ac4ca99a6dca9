"""What a loop keeps for its derivatives: its registers before each step, and what the rules of its ops look at.

A recorded loop is the same loop with more stacked outputs. So a record is no secret of the engine: derivatives are
functions of it, and it can be differentiated in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from unspool._autodiff.loops.loop import Body, Loop, apply_fragment, body_plan, found_once, signature_of, stand_ins
from unspool._fragments.fragment import Fragment, capture, dependent_nodes
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Node


def recorded(loop: Loop, inputs: Sequence[Node]) -> Loop:
    """Return a loop that keeps what its derivatives need; itself, if it does so already.

    Registers have a stack each. Bodies share the stacks of what else they keep, where sizes agree.
    """
    if loop.recorded:
        return loop
    shapes = [x.shape for x in inputs]
    found: Loop = found_once(loop, shapes, "recorded", lambda: _recorded(loop, shapes))
    return found._replace(steps=loop.steps)


def _recorded(loop: Loop, shapes: Sequence[Any]) -> Loop:
    first = len(loop.stacked)
    stacks: list[Any] = sorted({r for body in loop.bodies for r in body.reads})
    bodies = []
    for body, given in zip(loop.bodies, signature_of(loop, shapes).bodies, strict=True):
        made = recorded_body(body, given)
        places = [stacks.index(r) for r in body.reads]
        for kind in made.kept:
            free = [i for i, other in enumerate(stacks) if other == kind and i not in places]
            if not free:
                free.append(len(stacks))
                stacks.append(kind)
            places.append(free[0])
        bodies.append(body._replace(fragment=made.fragment, stacked=body.stacked + tuple([first + i for i in places])))
    found = loop._replace(bodies=tuple(bodies), recorded=len(stacks))
    extents = [_extent(found, first + i) for i in range(len(stacks))]
    return found._replace(stacked=(*loop.stacked, *extents))


def _extent(loop: Loop, stack: int) -> tuple[int, int] | None:
    """Return the steps between the first and the last that write a row of a stack; ``None`` if these are all."""
    extent, _ = loop.presence([n for n, body in enumerate(loop.bodies) if stack in body.stacked])
    return None if extent == (0, loop.steps) or not loop.which else extent


class RecordedBody(NamedTuple):
    """A fragment with its record after its stacked outputs; ``kept`` has sizes and dtypes of all but the registers."""

    fragment: Fragment
    kept: tuple[tuple[Any, Any], ...]


def recorded_body(body: Body, shapes: tuple[Any, ...]) -> RecordedBody:
    """Return a body with the record among its stacked outputs.

    The record has all registers that it reads, even where no rule looks at them: what else a rule needs can be computed
    from there.
    """
    plan = body_plan(body.fragment, shapes)
    constants, reads, shown = len(body.constants), len(body.reads), len(body.assigns) + len(body.stacked)
    key = ("recorded", constants, reads, len(body.assigns), shown)
    if plan is not None and key in plan.derivatives:
        found: RecordedBody = plan.derivatives[key]
        return found
    inputs = stand_ins(body.fragment, shapes)
    outputs = apply_fragment(body.fragment, inputs)
    registers = inputs[constants : constants + reads]
    order = dependent_nodes(outputs, {node.id for node in inputs})
    rows = {node.id for node in (*registers, *outputs[len(body.assigns) : shown])}
    kept = [node for node in residual_nodes(order, late=True) if node.id not in rows]
    fragment = capture(inputs, [*outputs[:shown], *registers, *kept, *outputs[shown:]]).fragment
    made = RecordedBody(fragment, tuple([(node.shape, node.dtype) for node in kept]))
    if plan is not None:
        plan.derivatives[key] = made
    return made


def joined(first: Fragment, second: Fragment, shapes: tuple[Any, ...]) -> Fragment:
    """Return the fragment that does what two do on the same inputs: the outputs of the first, then of the second."""
    plan = body_plan(first, shapes)
    key = ("joined", second)
    if plan is not None and key in plan.derivatives:
        found: Fragment = plan.derivatives[key]
        return found
    inputs = stand_ins(first, shapes)
    made = capture(inputs, [*apply_fragment(first, inputs), *apply_fragment(second, inputs)]).fragment
    if plan is not None:
        plan.derivatives[key] = made
    return made
