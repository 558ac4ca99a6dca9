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

from unspool._autodiff.accumulation import Outer, Sum, accumulate, merge, total
from unspool._autodiff.calls import passing_inputs, pull_call
from unspool._autodiff.chain import Pending, as_tensor, youngest
from unspool._autodiff.identity import ALIAS
from unspool._dtypes import INEXACT
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, Projection, link_of
from unspool._graph import Bundle, Node, describe, in_order, origin_scope, source_of
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.elementwise import add_cotangents, astype, through_mask
from unspool._ops.layout import rearrange
from unspool._ops.leaf import CONSTANT
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
    queue = default_engine().queue
    queue.settle()
    with queue.nothing_folds():
        return _sweep(outputs, cotangents, variables, arrived)


def _sweep(
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    variables: Sequence[Tensor],
    arrived: dict[int, Any],
) -> dict[int, Any]:
    wanted = {v.id for v in variables}
    walk = Walk(outputs, variables)
    order, active, links = walk.order, walk.active, walk.links
    for output, seed in zip(outputs, cotangents, strict=True):
        if seed is not None and output.id in active:
            seed = fit(seed, output)
            before = arrived.get(output.id)
            arrived[output.id] = seed if before is None else accumulate(before, seed)
    found: dict[int, Any] = {}
    with origin_scope() as origin:
        # The hot loop of every gradient: a node with a tuple of rules, which is nearly every node, costs no call but
        # those of its rules.
        while order:
            node = order.pop()
            key = node.id
            ct = arrived.pop(key, None)
            if ct is None:
                continue
            if key in wanted:
                found[key] = ct.keep() if type(ct) is Pending else ct
            if type(node) is Call:
                _distribute_call(node, ct, passing_inputs(node.plan), active, arrived)
                continue
            if key in links:
                if type(ct) is Outer or type(ct) is Sum:
                    ct = total(ct)
                call, index = links[key]
                slots = arrived.get(call.id)
                if slots is None:
                    slots = arrived[call.id] = [None] * len(call.shape)
                slots[index] = ct if slots[index] is None else accumulate(slots[index], ct)
                continue
            if not node.inputs:
                continue
            if type(ct) is not list:
                ct = total(ct)
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
                        arrived[key] = contribution if before is None else accumulate(before, contribution)
    found.update((key, arrived[key]) for key in wanted if key not in found and key in arrived)
    return found


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
            arrived[operand.id] = contribution if before is None else accumulate(before, contribution)


def _distribute_call(
    call: Call, cotangents: Sequence[Any], passing: Sequence[int], active: set[int], arrived: dict[int, Any]
) -> None:
    """Add what a call contributes to its inputs. The adjoint adds to what has arrived, in the order of its nodes.

    So the sum is the same, bit for bit, as if the nodes of the call had been visited one by one.
    """
    inputs = call.inputs
    needed = [False] * len(inputs)
    before: list[Any] = [None] * len(inputs)
    for position in passing:
        key = inputs[position].id
        if key in active:
            needed[position] = True
            # A node can stand at two inputs; what arrived at it is passed on once.
            before[position] = arrived.pop(key, None)
    contributions = pull_call(call, cotangents, tuple(needed), before)
    for position in passing:
        contribution = contributions[position]
        if contribution is not None:
            key = inputs[position].id
            earlier = arrived.get(key)
            arrived[key] = contribution if earlier is None else merge(earlier, contribution)


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
    """Return, in order, the nodes on a differentiable path from a variable to an output, both included."""
    return Walk(outputs, variables).order


class Inside:
    """Tells which calls a variable may be inside of.

    The cotangent of a node inside a call includes the paths inside that call, so such calls are walked node by node.
    A variable can be an output that the call itself reads, or a node equal to one that was let go when the call was
    folded; what such a node is made from, down to leaves and projections, is then at the call's inputs and outputs.
    """

    __slots__ = ("_ends", "_projections", "is_anywhere", "is_possible")

    def __init__(self, variables: Sequence[Node]) -> None:
        self._projections = [link_of(v) for v in variables if type(v) is Projection]
        self._ends: list[tuple[Op, set[int]]] = []
        for v in variables:
            if type(v) is not Projection and v.inputs and v.op is not ALIAS:
                self._ends.append((v.op, _ends(v)))
        self.is_possible = bool(self._ends)
        self.is_anywhere = bool(self._ends or self._projections)

    def may_be_in(self, call: Call) -> bool:
        """Whether a variable may be inside a call."""
        fragment = call.plan.fragment
        for owner, index in self._projections:
            slot = fragment.outputs[index] if owner is call else -1
            if any(slot in instruction.operands for instruction in fragment.body):
                return True
        if not self._ends:
            return False
        handles = [reference() for reference in call.handles if reference is not None]
        around = {node.id for node in (*call.inputs, *handles) if node is not None}
        return any(
            ends <= around and any(instruction.op is op for instruction in fragment.body) for op, ends in self._ends
        )


def _ends(variable: Node) -> set[int]:
    """Return the ids of the leaves and projections that a node is made from; constants do not count."""
    ends: set[int] = set()
    seen: set[int] = set()
    stack = [variable]
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if type(node) is Projection or not node.inputs:
            if node.op is not CONSTANT:
                ends.add(node.id)
        else:
            stack.extend(node.inputs)
    return ends


class Walk:
    """Which nodes a sweep visits: those on a differentiable path from a variable to an output.

    Another thread may fold nodes at any time. What a node was made from is looked at once and remembered.

    Attributes
    ----------
    order : list of Node
        The nodes on such a path, in topological order. A call that is visited as a whole is one of them.
    active : set of id
        The ids of these nodes and of the variables.
    links : dict of id to (Call, int)
        The outputs of calls that are visited as a whole.
    """

    __slots__ = ("_first", "_inside", "_opened", "_through_all", "active", "links", "order")

    def __init__(self, outputs: Sequence[Node], variables: Sequence[Node]) -> None:
        self.active: set[int] = {v.id for v in variables}
        self.links: dict[int, tuple[Call, int]] = {}
        self.order: list[Node] = []
        if not variables:
            return
        self._inside = Inside(variables)
        self._opened: dict[int, bool] = {}
        # Whether an op is differentiated through all its inputs: asked once per op, not once per node.
        self._through_all: dict[Op, bool] = {}
        # What is older than every variable depends on none. A variable that came out of a call may be younger than
        # what was made from it.
        self._first = -1 if self._inside.is_possible else min(self.active)
        reached, sources, in_id_order = self._reach(outputs)
        if in_id_order:
            reached.sort(key=_by_id)
        else:
            reached = in_order(reached, lambda node: sources[node.id])
        active, order = self.active, self.order
        for node in reached:
            key = node.id
            if key in active:
                order.append(node)
            else:
                for operand in sources[key]:
                    if operand.id in active:
                        active.add(key)
                        order.append(node)
                        break

    def _reach(self, outputs: Sequence[Node]) -> tuple[list[Node], dict[int, Sequence[Node]], bool]:
        """Return the differentiable nodes that outputs are made from, and what each is differentiated through.

        Also tells whether the order of ids is a topological order of them.
        """
        first, through_all = self._first, self._through_all
        reached: list[Node] = []
        sources: dict[int, Sequence[Node]] = {}
        in_id_order = True
        stack = [node for node in outputs if node.id >= first]
        while stack:
            node = stack.pop()
            key = node.id
            if key in sources:
                continue
            cls = type(node)
            if cls is Call:
                operands: Sequence[Node] = self._through_call(node)  # type: ignore[arg-type]
            elif node.dtype not in INEXACT and not is_differentiable(node):
                sources[key] = ()
                continue
            elif cls is Projection:
                operands = self._behind_projection(node)
            else:
                op = node.op
                if op not in through_all:
                    through_all[op] = _passes_through_all(op)
                operands = node.inputs if through_all[op] else _differentiated_inputs(node)
            reached.append(node)
            sources[key] = operands
            for operand in operands:
                other = operand.id
                if other not in sources and (other >= first or type(operand) is Call):
                    stack.append(operand)
                if other > key:
                    in_id_order = False
        return reached, sources, in_id_order

    def _through_call(self, call: Call) -> Sequence[Node]:
        """Return what a call is differentiated through."""
        inputs = call.inputs
        return [inputs[position] for position in passing_inputs(call.plan)]

    def _behind_projection(self, node: Node) -> Sequence[Node]:
        """Return the call of an output, or, if the call is walked node by node, what the output is made from."""
        link = link_of(node)
        call = link[0]
        if self._inside.is_anywhere and self._is_open(call):
            return node.inputs if _passes_through_all(node.op) else _differentiated_inputs(node)
        self.links[node.id] = link
        return (call,)

    def _is_open(self, call: Call) -> bool:
        """Whether a call is walked node by node; decided once."""
        is_open = self._opened.get(call.id)
        if is_open is None:
            is_open = self._opened[call.id] = self._inside.may_be_in(call)
        return is_open


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
    if isinstance(node, Bundle):
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
