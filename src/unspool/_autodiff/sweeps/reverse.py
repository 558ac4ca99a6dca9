"""Reverse mode: one walk in falling id order that turns cotangents of outputs into cotangents of earlier nodes.

The result is graph, so it can be differentiated again. A call of a fragment is one step of the walk, with an adjoint
that was derived once (`calls`); a call is walked node by node only if a variable may be inside of it. A node is visited
only if an output depends on it and it depends on a variable, through inputs that are differentiated; a node that no
cotangent reached has no entry, which is not the same as a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.accumulation import LAZY, Sum, accumulate, form_of, total
from unspool._autodiff.sweeps.factored import FEWEST, Factored
from unspool._autodiff.sweeps.late import late
from unspool._autodiff.sweeps.placing import as_tensor, youngest
from unspool._autodiff.sweeps.walk import Walk, met_outputs, passing_inputs, walking
from unspool._core import Pending, call_sweep, recurring
from unspool._engine.default import default_engine
from unspool._fragments.call import Call
from unspool._graph import Bundle, Node, describe, origin_scope, source_of
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.elementwise import add_cotangents, through_mask, to_dtype
from unspool._ops.layout import rearrange
from unspool._ops.op import PART, JointRule, parts
from unspool.errors import ContributionShapeError, MissingRuleError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_by_id = attrgetter("id")


def pullback(
    outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], variables: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the cotangent of each variable, ``None`` where no cotangent reaches it.

    Contributions to a node are added in falling id of their consumers, so results do not depend on chance.
    """
    with default_engine().levels.sweep():
        found = sweep(outputs, cotangents, variables, {})
        latest = youngest(list(found.values()))
        if latest is not None:
            as_tensor(latest)
        return [total(found[v.id]) if v.id in found else None for v in variables]


def sweep(
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    variables: Sequence[Tensor],
    arrived: dict[int, Any],
) -> dict[int, Any]:
    """Return the contributions that reached each variable, by id, as far as they are added up.

    ``arrived`` holds what reached nodes before the sweep began; the sweep adds to it.
    """
    with walking(outputs, variables) as walk:
        return _sweep(walk, outputs, cotangents, {v.id for v in variables}, arrived)


def _sweep(
    walk: Walk,
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    wanted: set[int],
    arrived: dict[int, Any],
) -> dict[int, Any]:
    order, active, shown = walk.order, walk.active, walk.shown
    for output, seed in zip(outputs, cotangents, strict=True):
        if seed is not None and output.id in active:
            seed = fit(seed, output)
            before = arrived.get(output.id)
            arrived[output.id] = seed if before is None else accumulate(before, seed)
    found: dict[int, Any] = {}
    floors = default_engine().levels.floors(order)
    floor = floors.pop()
    recurs = recurring(order) if len(shown) >= FEWEST else {}
    calls = call_sweep(shown, arrived, wanted, found, active, recurs, passing_inputs, form_of, Sum, Factored)
    with origin_scope() as origin:
        # The hot loop of every gradient: calls that look like those before cost nothing here, and a node with a tuple
        # of rules, which is nearly every node, no call but those of its rules.
        while order:
            node = order[-1]
            key = node.id
            if key < floor:
                while key < floor:
                    floor = floors.pop()
                _begin_level(arrived)
            if type(node) is Call:
                left = calls.pull(order, floor)
                if left is None:
                    continue
                call, *at_call = left
                if at_call:
                    late.pull_call(call, *at_call, arrived)
                elif (arriving := _at_outputs(call, met_outputs(shown[call.id]), arrived, wanted, found)) is not None:
                    _distribute_call(call, arriving, active, arrived)
                continue
            order.pop()
            ct = arrived.pop(key, None)
            if ct is None:
                continue
            if key in wanted:
                found[key] = ct.keep() if type(ct) is Pending else ct
                # What a step contributes is not placed before somebody needs it: steps that wait become a chain.
                if not any(operand.id in active for operand in node.inputs):
                    continue
            elif not node.inputs:
                continue
            if type(ct) in LAZY:
                ct = total(ct)
            origin.code, origin.lasti = node.code, node.lasti
            inputs, params, rules = node.inputs, node.attributes, node.op.vjp
            if type(rules) is not tuple or type(node) is Bundle:
                _distribute(node, ct, active, arrived)
                continue
            for rule, operand in zip(rules, inputs, strict=True):
                key = operand.id
                if rule is not None and key in active:
                    contribution = rule(ct, node, *inputs, **params) if params else rule(ct, node, *inputs)
                    if contribution is not None:
                        if contribution.dtype is not operand.dtype or contribution.shape != operand.shape:
                            contribution = fit(contribution, operand, node)
                        before = arrived.get(key)
                        arrived[key] = contribution if before is None else accumulate(before, contribution)
    found.update((key, arrived[key]) for key in wanted if key not in found and key in arrived)
    return found


def _begin_level(arrived: dict[int, Any]) -> None:
    """Begin a level: what a gradient contributes is one level, what the loop it was taken of contributes another."""
    contributions = [c for c in arrived.values() if c is not None]
    latest = youngest([p for c in contributions for p in (c if type(c) is list else (c,))])
    if latest is not None:
        as_tensor(latest)
    default_engine().levels.mark()


def _distribute(node: Node, ct: Any, active: set[int], arrived: dict[int, Any]) -> None:
    """Add a node's contributions to its inputs: the general case, for every form a vjp can have."""
    if node.op is PART:
        bundle, index = node.inputs[0], node.attributes["index"]
        slots = arrived.setdefault(bundle.id, [None] * len(bundle.shape))
        slots[index] = ct if slots[index] is None else add_cotangents(slots[index], ct)
        return
    for operand, contribution in zip(node.inputs, contributions_of(node, ct, active), strict=True):
        if contribution is not None:
            contribution = fit(contribution, operand, node)
            before = arrived.get(operand.id)
            arrived[operand.id] = contribution if before is None else accumulate(before, contribution)


def _at_outputs(
    call: Call, met: Sequence[Tensor], arrived: dict[int, Any], wanted: set[int], found: dict[int, Any]
) -> list[Any] | None:
    """Take what has arrived at the outputs of a call, and note what is asked for; None if nothing has."""
    arriving: list[Any] | None = None
    for output in sorted(met, key=_by_id, reverse=True):
        ct = arrived.pop(output.id, None)
        if ct is None:
            continue
        if output.id in wanted:
            found[output.id] = ct.keep() if type(ct) is Pending else ct
        if type(ct) is Factored or type(ct) is Sum:
            ct = total(ct)
        if arriving is None:
            arriving = [None] * len(call.shape)
        before = arriving[output.output]
        arriving[output.output] = ct if before is None else accumulate(before, ct)
    return arriving


def _distribute_call(call: Call, arriving: list[Any], active: set[int], arrived: dict[int, Any]) -> None:
    """Add what a call contributes to its inputs. The adjoint adds to what has arrived, in the order of its nodes.

    So the sum is the same, bit for bit, as if the nodes of the call had been visited one by one.
    """
    inputs, first = call.inputs, len(arriving)
    needed = [False] * len(inputs)
    arriving += [None] * len(inputs)
    for position in late.passing_inputs(call.plan):
        key = inputs[position].id
        if key in active:
            needed[position] = True
            # A node can stand at two inputs; what arrived at it is passed on once.
            arriving[first + position] = arrived.pop(key, None)
    late.pull_call(call, arriving, tuple(needed), arrived)


def contributions_of(node: Node, ct: Any, active: set[int]) -> Sequence[Any]:
    """Return what a node's cotangent contributes to each of its inputs; ``None`` for inputs that are not active."""
    rules = node.op.vjp
    needed = [operand.id in active for operand in node.inputs]
    out: Any = node
    if type(node) is Bundle:
        out, ct = parts(node), tuple(ct)
    if type(rules) is JointRule:
        if rules.passes is not None:
            needed = [n and p for n, p in zip(needed, rules.passes(node.attributes), strict=True)]
        contributions = rules.function(needed, ct, out, *node.inputs, **node.attributes)
        return [c if n else None for c, n in zip(contributions, needed, strict=True)]
    if rules is None and node.op.jvp is not None:
        return _pull_through_jvp(node, needed, ct)
    if rules is None or type(rules) is tuple or node.op is PART:
        return [vjp_of(node, i, ct) if n else None for i, n in enumerate(needed)]
    return [rules(i, ct, out, *node.inputs, **node.attributes) if n else None for i, n in enumerate(needed)]  # type: ignore[operator]


def vjp_of(node: Node, position: int, ct: Any) -> Any:
    """Return the contribution that a node's cotangent makes to one of its inputs."""
    op = node.op
    if op is PART:
        bundle, index = node.inputs[0], node.attributes["index"]
        return tuple(ct if slot == index else None for slot in range(len(bundle.shape)))
    rules = op.vjp
    if rules is None:
        if op.jvp is None:
            raise missing_rule(node, "reverse")
        return _pull_through_jvp(node, [i == position for i in range(len(node.inputs))], ct)[position]
    out = parts(node) if type(node) is Bundle else node
    if type(rules) is tuple:
        rule = rules[position]
        return None if rule is None else rule(ct, out, *node.inputs, **node.attributes)
    return rules(position, ct, out, *node.inputs, **node.attributes)  # type: ignore[operator]


def _pull_through_jvp(node: Node, needed: Sequence[bool], ct: Any) -> Sequence[Any]:
    pull_through, jvp_of = late.pull_through, late.jvp_of
    if type(node) is Bundle:
        return pull_through(lambda tangents: jvp_of(node, tangents), node.inputs, needed, ct)
    return pull_through(lambda tangents: (jvp_of(node, tangents),), node.inputs, needed, (ct,))


# --- contributions ---------------------------------------------------------------------------------------------------


def fit(ct: Tensor, node: Node, source: Node | None = None) -> Tensor:
    """Return a cotangent in the dtype of its node; a wrong shape is a mistake of the rule of ``source`` and raises."""
    if ct.shape != node.shape:
        if not may_be_equal(ct.shape, node.shape):
            raise _misshapen(ct, node, source)
        ct = rearrange(ct, lambda inner: ensure_shape(inner, node.shape))
    if ct.dtype is node.dtype or ct.dtype == node.dtype:
        return ct
    return through_mask(ct, lambda inner: to_dtype(inner, node.dtype))


def _misshapen(ct: Tensor, node: Node, source: Node | None) -> ContributionShapeError:
    rule = "a derivative rule" if source is None else f"the vjp rule of op {source.op.name!r}"
    used = "" if source is None else f"; the op was used at {source_of(source)}"
    return ContributionShapeError(
        f"{rule} gave a cotangent of shape {ct.shape} for {describe(node)}, made at {source_of(node)}{used}"
    )


def missing_rule(node: Node, mode: str) -> MissingRuleError:
    """Return the error for an op without a rule, with the line that used it."""
    return MissingRuleError(
        f"op {node.op.name!r} has no derivative rule for {mode} mode; it was used at {source_of(node)}"
    )


late.provide(pullback=pullback, sweep=sweep)
