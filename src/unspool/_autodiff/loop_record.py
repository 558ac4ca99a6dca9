"""What a loop keeps for its derivatives: its states before each step, and what the rules of its ops look at.

A recorded loop is the same loop with more stacked outputs. So a record is no secret of the engine: derivatives are
functions of it, and it can be differentiated in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool._autodiff.loop import Loop, apply_fragment, body_plan, stand_ins
from unspool._fragments.fragment import Fragment, capture, dependent_nodes
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Node


def recorded(loop: Loop, inputs: Sequence[Node]) -> Loop:
    """Return a loop that keeps what its derivatives need; itself, if it does so already."""
    if loop.recorded:
        return loop
    body = recorded_body(loop.body, loop.row_shapes(inputs), (loop.constants, loop.carries, loop.stacked))
    kept = len(body.outputs) - len(loop.body.outputs)
    return loop._replace(body=body, stacked=loop.stacked + kept, recorded=kept)


def recorded_body(body: Fragment, shapes: tuple[Any, ...], counts: tuple[int, int, int]) -> Fragment:
    """Return a body with the record among its stacked outputs; ``counts`` are constants, carries, stacked outputs.

    The record has the whole carry, even where no rule looks at it: what else a rule needs can be computed from there.
    """
    plan = body_plan(body, shapes)
    key = ("recorded", counts)
    if plan is not None and key in plan.derivatives:
        found: Fragment = plan.derivatives[key]
        return found
    constants, carries, stacked = counts
    inputs = stand_ins(body, shapes)
    outputs = apply_fragment(body, inputs)
    carry = inputs[constants : constants + carries]
    shown = outputs[: carries + stacked]
    order = dependent_nodes(outputs, {node.id for node in inputs})
    rows = {node.id for node in (*carry, *shown[carries:])}
    kept = [*carry, *[node for node in residual_nodes(order) if node.id not in rows]]
    made = capture(inputs, [*shown, *kept, *outputs[carries + stacked :]]).fragment
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
