"""Reverse mode: one walk in falling id order that turns cotangents of outputs into cotangents of earlier nodes.

The result is graph, so it can be differentiated again. A node is visited only if an output depends on it and it depends
on a variable, through inputs that are differentiated; a node that no cotangent reached has no entry, which is not the
same as a zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from unspool._dtypes import INEXACT
from unspool._graph import Bundle, Node, describe, origin_scope, source_of
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.elementwise import add_cotangents, astype, through_mask
from unspool._ops.layout import rearrange
from unspool._ops.op import PART, JointRule, parts
from unspool.errors import ContributionShapeError, MissingRuleError

if TYPE_CHECKING:
    from unspool._ops.op import Op
    from unspool._tensor import Tensor

_by_id = attrgetter("id")


def pullback(
    outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], variables: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the cotangent of each variable, ``None`` where no cotangent reaches it.

    Contributions to a node are added in falling id of their consumers, so results do not depend on chance.
    """
    wanted = {v.id for v in variables}
    order, active = _active(outputs, variables)
    arrived: dict[int, Any] = {}
    for output, seed in zip(outputs, cotangents, strict=True):
        if seed is not None and output.id in active:
            seed = fit(seed, output)
            before = arrived.get(output.id)
            arrived[output.id] = seed if before is None else add_cotangents(before, seed)
    found: dict[int, Tensor] = {}
    with origin_scope() as origin:
        # The hot loop of every gradient: a node with a tuple of rules, which is nearly every node, costs no call but
        # those of its rules.
        while order:
            node = order.pop()
            ct = arrived.pop(node.id, None)
            if ct is None:
                continue
            if node.id in wanted:
                found[node.id] = ct
            origin.code, origin.lasti = node.code, node.lasti
            inputs, params, rules = node.inputs, node.params, node.op.vjp
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
                        arrived[key] = contribution if before is None else add_cotangents(before, contribution)
    return [found.get(v.id) for v in variables]


def _distribute(node: Node, ct: Any, active: set[int], arrived: dict[int, Any]) -> None:
    """Add a node's contributions to its inputs: the general case, for every form a vjp can have."""
    if node.op is PART:
        bundle, index = node.inputs[0], node.params["index"]
        slots = arrived.setdefault(bundle.id, [None] * len(bundle.shape))
        slots[index] = ct if slots[index] is None else add_cotangents(slots[index], ct)
        return
    for operand, contribution in zip(node.inputs, contributions_of(node, ct, active), strict=True):
        if contribution is not None:
            contribution = fit(contribution, operand, node)
            before = arrived.get(operand.id)
            arrived[operand.id] = contribution if before is None else add_cotangents(before, contribution)


def contributions_of(node: Node, ct: Any, active: set[int]) -> Sequence[Any]:
    """Return what a node's cotangent contributes to each of its inputs; ``None`` for inputs that are not active."""
    rules = node.op.vjp
    needed = [operand.id in active for operand in node.inputs]
    out: Any = node
    if type(node) is Bundle:
        out, ct = parts(node), tuple(ct)
    if type(rules) is JointRule:
        if rules.passes is not None:
            needed = [n and p for n, p in zip(needed, rules.passes(node.params), strict=True)]
        contributions = rules.function(needed, ct, out, *node.inputs, **node.params)
        return [c if n else None for c, n in zip(contributions, needed, strict=True)]
    if rules is None and node.op.jvp is not None:
        return _pull_through_jvp(node, needed, ct)
    return [vjp_of(node, i, ct) if n else None for i, n in enumerate(needed)]


def vjp_of(node: Node, position: int, ct: Any) -> Any:
    """Return the contribution that a node's cotangent makes to one of its inputs."""
    op = node.op
    if op is PART:
        bundle, index = node.inputs[0], node.params["index"]
        return tuple(ct if slot == index else None for slot in range(len(bundle.shape)))
    rules = op.vjp
    if rules is None:
        if op.jvp is None:
            raise missing_rule(node, "reverse")
        return _pull_through_jvp(node, [i == position for i in range(len(node.inputs))], ct)[position]
    out = parts(node) if type(node) is Bundle else node
    if type(rules) is tuple:
        rule = rules[position]
        return None if rule is None else rule(ct, out, *node.inputs, **node.params)
    return rules(position, ct, out, *node.inputs, **node.params)  # type: ignore[operator]


def _pull_through_jvp(node: Node, needed: Sequence[bool], ct: Any) -> Sequence[Any]:
    # Imported here: to transpose a rule is to sweep the graph it builds.
    from unspool._autodiff.forward import jvp_of
    from unspool._autodiff.transpose import pull_through

    if type(node) is Bundle:
        return pull_through(lambda tangents: jvp_of(node, tangents), node.inputs, needed, ct)
    return pull_through(lambda tangents: (jvp_of(node, tangents),), node.inputs, needed, (ct,))


# --- which nodes -----------------------------------------------------------------------------------------------------


def active_nodes(outputs: Sequence[Node], variables: Sequence[Node]) -> list[Node]:
    """Return, in id order, the nodes on a differentiable path from a variable to an output, both included."""
    return _active(outputs, variables)[0]


def _active(outputs: Sequence[Node], variables: Sequence[Node]) -> tuple[list[Node], set[int]]:
    """Return the active nodes in id order, and a set of ids that holds theirs and those of the variables."""
    if not variables:
        return [], set()
    active = {v.id for v in variables}
    first = min(active)
    seen: set[int] = set()
    reached: list[Node] = []
    # Whether an op is differentiated through all its inputs: asked once per op, not once per node.
    through_all: dict[Op, bool] = {}
    stack = [node for node in outputs if node.id >= first]
    while stack:
        node = stack.pop()
        key = node.id
        if key in seen:
            continue
        seen.add(key)
        if node.dtype not in INEXACT and not is_differentiable(node):
            continue
        reached.append(node)
        op = node.op
        if op not in through_all:
            through_all[op] = _passes_through_all(op)
        for operand in node.inputs if through_all[op] else _differentiated_inputs(node):
            key = operand.id
            if key >= first and key not in seen:
                stack.append(operand)
    reached.sort(key=_by_id)
    on_path = []
    for node in reached:
        if node.id in active:
            on_path.append(node)
        else:
            for operand in node.inputs if through_all[node.op] else _differentiated_inputs(node):
                if operand.id in active:
                    active.add(node.id)
                    on_path.append(node)
                    break
    return on_path, active


def _passes_through_all(op: Op) -> bool:
    """Whether an op is differentiated through all its inputs, whatever its parameters are."""
    rules = op.vjp
    if type(rules) is JointRule:
        return rules.passes is None
    return type(rules) is not tuple or None not in rules


def _differentiated_inputs(node: Node) -> list[Node]:
    """Return the inputs through which a node is differentiated, as its vjp says."""
    rules = node.op.vjp
    passes = rules.passes(node.params) if isinstance(rules, JointRule) and rules.passes else rules
    return [operand for operand, passing in zip(node.inputs, passes, strict=True) if passing]  # type: ignore[arg-type]


def is_differentiable(node: Node) -> bool:
    """Whether a node can carry a derivative: its values are floating-point or complex numbers."""
    if type(node) is Bundle:
        dtypes: Any = node.dtype
        return any(dtype in INEXACT for dtype in dtypes)
    return node.dtype in INEXACT


# --- contributions ---------------------------------------------------------------------------------------------------


def fit(ct: Tensor, node: Node, source: Node | None = None) -> Tensor:
    """Return a cotangent in the dtype of its node; a wrong shape is a mistake of the rule of ``source`` and raises."""
    if ct.shape != node.shape:
        if not may_be_equal(ct.shape, node.shape):
            raise _misshapen(ct, node, source)
        ct = rearrange(ct, lambda inner: ensure_shape(inner, node.shape))
    if ct.dtype is node.dtype or ct.dtype == node.dtype:
        return ct
    return through_mask(ct, lambda inner: astype(inner, node.dtype))


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
