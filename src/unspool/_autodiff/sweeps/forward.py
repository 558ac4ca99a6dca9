"""Forward mode: one walk in rising id order that turns tangents of variables into tangents of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.calls import push_call
from unspool._autodiff.sweeps.late import late
from unspool._autodiff.sweeps.reverse import missing_rule
from unspool._autodiff.sweeps.transpose import push_through_vjp
from unspool._autodiff.sweeps.walk import met_outputs, walking
from unspool._engine.default import default_engine
from unspool._fragments.call import Call
from unspool._graph import Bundle, Node, describe, origin_scope, source_of
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.elementwise import add_cotangents, through_mask, to_dtype
from unspool._ops.layout import rearrange
from unspool._ops.op import PART, parts
from unspool.errors import ContributionShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def pushforward(
    outputs: Sequence[Tensor], variables: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the tangent of each output, ``None`` where it depends on no variable that has one."""
    with default_engine().levels.sweep():
        return _push(outputs, variables, tangents)


def _push(
    outputs: Sequence[Tensor], variables: Sequence[Tensor], tangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    moving: dict[int, Any] = {}
    for variable, given in zip(variables, tangents, strict=True):
        if given is not None:
            moving[variable.id] = fit_tangent(given, variable)
    seeded = [v for v in variables if v.id in moving]
    levels = default_engine().levels
    with walking(outputs, seeded) as walk, origin_scope() as origin:
        nodes, shown = walk.order, walk.shown
        level = levels.of(nodes[0]) if nodes else 0
        for node in nodes:
            if node.id not in moving:
                if level < (level := levels.of(node)):
                    levels.mark()  # tangents of a loop and tangents of its gradient are two levels
                origin.code, origin.lasti = node.code, node.lasti
                if type(node) is Call:
                    met = met_outputs(shown[node.id])
                    tangents = push_call(node, [moving.get(i.id) for i in node.inputs], {o.output for o in met})
                    for output in met:
                        if tangents[output.output] is not None:
                            # A variable moves as it was told to.
                            moving.setdefault(output.id, tangents[output.output])
                    continue
                tangent: Any = jvp_of(node, tuple([moving.get(operand.id) for operand in node.inputs]))
                if tangent is not None:
                    moving[node.id] = tangent
    return [moving.get(output.id) for output in outputs]


def jvp_of(node: Node, tangents: tuple[Any, ...]) -> Any:
    """Return the tangent of a node from those of its inputs (``None`` where an input has none).

    For an op with several outputs it is a tuple, with ``None`` for outputs that do not move.
    """
    rules = node.op.jvp
    if type(rules) is not tuple or type(node) is Bundle:
        return _whole_jvp(node, tangents)
    inputs, params = node.inputs, node.attributes
    total = None
    for rule, tangent in zip(rules, tangents, strict=True):
        if rule is not None and tangent is not None:
            contribution = rule(tangent, node, *inputs, **params) if params else rule(tangent, node, *inputs)
            if contribution is not None:
                total = contribution if total is None else add_cotangents(total, contribution)
    return None if total is None else fit_tangent(total, node)


def _whole_jvp(node: Node, tangents: tuple[Any, ...]) -> Any:
    """Return the tangent of a node whose jvp is not a tuple of rules."""
    if all(t is None for t in tangents):
        return None
    op = node.op
    if op is PART:
        slot = tangents[0][node.attributes["index"]]
        return None if slot is None else fit_tangent(slot, node)
    if op.jvp is not None:
        out = parts(node) if type(node) is Bundle else node
        whole = op.jvp(tangents, out, *node.inputs, **node.attributes)  # type: ignore[operator]
    elif op.vjp is not None:
        whole = push_through_vjp(node, tangents)
    else:
        raise missing_rule(node, "forward")
    return whole if whole is None or type(node) is Bundle else fit_tangent(whole, node)


def fit_tangent(tangent: Tensor, node: Node) -> Tensor:
    """Return a tangent in the dtype of its node; a wrong shape is the rule's mistake and raises."""
    if tangent.shape != node.shape:
        if not may_be_equal(tangent.shape, node.shape):
            raise ContributionShapeError(
                f"a derivative rule gave a tangent of shape {tangent.shape} for {describe(node)}, "
                f"made at {source_of(node)}"
            )
        tangent = rearrange(tangent, lambda inner: ensure_shape(inner, node.shape))
    return tangent if tangent.dtype is node.dtype else through_mask(tangent, lambda inner: to_dtype(inner, node.dtype))


late.provide(jvp_of=jvp_of, pushforward=pushforward)
