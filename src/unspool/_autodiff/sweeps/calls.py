"""Derivatives of calls: the adjoint of a fragment is a fragment, derived once and called wherever it is needed.

To derive it, the body is applied to stand-ins and swept once, with the rules of its ops, for one set of active inputs
and one set of arriving cotangents. What the sweep built is described as a fragment again; its inputs are those inputs
and outputs of the primal call, and those cotangents, that it uses. Placing it is placing one call, so a gradient
through K steps costs K placements, and since the adjoint call is an ordinary call, it can be differentiated again.

Absent elements stay absent across calls: a cotangent that is masked arrives as two tensors, the numbers and what to
keep, and leaves as two. What is better gathered than added up leaves as its factors (see `factored`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.accumulation import LAZY, Sum, form_of, merge
from unspool._autodiff.sweeps.derived import depends_on_rules, derive_once
from unspool._autodiff.sweeps.factored import Factored, Rows, as_factored
from unspool._autodiff.sweeps.late import late
from unspool._autodiff.sweeps.placing import as_tensor, note_step
from unspool._autodiff.sweeps.step_templates import keep_note
from unspool._core import Pending
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, expand, output
from unspool._fragments.fragment import capture
from unspool._graph import Node
from unspool._ops.elementwise import MASK, mask
from unspool._ops.leaf import placeholder
from unspool._records import NamedTuple
from unspool._statistics import STATISTICS

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._tensor import Tensor

# How a cotangent or tangent arrives: not at all, as it is, masked, with the shape of what to keep, or, if it is empty,
# as terms that are not added up and stay outside.
Arrival = tuple[Any, ...] | bool | None


class Derivative(NamedTuple):
    """A derived plan: where its inputs come from, and what its outputs are for.

    ``sources`` are pairs (kind, position): an "input" or "output" of the primal call, an arriving "number" or "keep",
    or ("node", node) for what depends on none of these. ``results`` has an entry per place a derivative may be wanted:
    None, ("plain", i), ("masked", i, j), ("factored", form, i, j, ...) or ("terms", ...) with several of these, where i
    and j are positions among the outputs of the plan.
    """

    plan: Plan
    sources: tuple[tuple[str, Any], ...]
    results: tuple[tuple[Any, ...] | None, ...]


def pull_call(call: Call, arriving: list[Any], active: tuple[bool, ...], arrived: dict[int, Any]) -> None:
    """Let what arrived at a call arrive at its inputs, with what the call contributes.

    Parameters
    ----------
    call : Call
    arriving : list
        The cotangents of its outputs, then what had arrived at its inputs: None for those that are not active.
    active : tuple of bool
        Which inputs are.
    arrived : dict
        What has arrived by the id of the node; what had arrived at the inputs has been taken out.
    """
    # In a loop every step but the first few looks the same, and types are enough to see that, but for tensors.
    derivatives, pattern = call.plan.derivatives, (active, *map(type, arriving))
    note = derivatives.get(pattern)
    if type(note) is dict:
        note = note.get(tuple(map(form_of, arriving)))
    if note is not None:
        note.apply(call, arriving, arrived)
        return
    before, key, whole = _taken_apart(call, arriving, active)
    arriving = [*arriving[: len(call.shape)], *before]
    placed = _apply(call, key, arriving)
    if not depends_on_rules(call.plan, key):
        keep_note(derivatives, active, derivatives[key], arriving, whole)
    for operand, b, p in reversed([*zip(call.inputs, before, placed, strict=True)]):
        contribution = p if b is None else _joined(b, p)
        if contribution is not None:
            earlier = arrived.get(operand.id)
            arrived[operand.id] = contribution if earlier is None else merge(earlier, contribution)


def _taken_apart(
    call: Call, arriving: list[Any], active: tuple[bool, ...]
) -> tuple[list[Any], tuple[Any, ...], list[int]]:
    """Return what had arrived at the inputs of a call, the key of its adjoint, and where elements enter it as they are.

    What is kept as factors stays outside, to be gathered. But elements of what the call adds to as a whole (one of each
    state of a loop) have nothing to be gathered with, and to add them up outside would tie each step to the next.
    """
    count = len(call.shape)
    before = [b if type(b) in LAZY else as_factored(b) or b for b in arriving[count:]]
    key = _adjoint_key(active, [*arriving[:count], *before])
    parted = [i for i, b in enumerate(before) if type(b) is Factored and b is not arriving[count + i]]
    rows = [i for i in parted if type(before[i].form) is Rows]
    if not rows:
        return before, key, []
    results = derive_once(call.plan, key, lambda: _derive(call, key)).results
    whole = [i for i in rows if results[i] is not None and all(term[0] == "plain" for term in results[i][1:])]
    before = [arriving[count + i] if i in whole else b for i, b in enumerate(before)]
    return before, _adjoint_key(active, [*arriving[:count], *before]), whole


def _adjoint_key(active: tuple[bool, ...], arriving: Sequence[Any]) -> tuple[Any, ...]:
    return ("adjoint", active, tuple([_arrival(tensor) for tensor in arriving]))


def _joined(before: Any, placed: Any) -> Any:
    """Return the whole sum: terms that are not added up yet go on being collected."""
    if type(before) is Sum:
        before.terms += [] if placed is None else placed.terms
        return before if before.terms else None
    if type(before) is Factored:
        return before if placed is None else merge(before, placed)
    return before if placed is None else placed


def push_call(call: Call, tangents: Sequence[Any], wanted: Container[int]) -> list[Tensor | None]:
    """Return the tangents of those outputs of a call that are wanted from the tangents of its inputs."""
    indices = tuple([index in wanted for index in range(len(call.shape))])
    key = ("tangent", indices, tuple(map(_arrival, tangents)))
    return [None if t is None else as_tensor(t) for t in _apply(call, key, tangents)]


def passing_inputs(plan: Plan) -> tuple[int, ...]:
    """Return the positions of the inputs through which some output of a plan is differentiated, the last one first.

    Inputs are in the order in which they are read. A node that stands at several gets its contributions in the order in
    which a sweep would meet those that read it.
    """
    passing = plan.derivatives.get("passing")
    if passing is None:
        passing = plan.derivatives["passing"] = _find_passing(plan)
    return passing


def _find_passing(plan: Plan) -> tuple[int, ...]:
    stand_ins = _StandIns(plan, (), (), ())
    on_path = {node.id for node in late.active_nodes(stand_ins.outputs, stand_ins.inputs)}
    return tuple(i for i, node in reversed([*enumerate(stand_ins.inputs)]) if node.id in on_path)


def _arrival(tensor: Any) -> Arrival:
    if tensor is None or type(tensor) is Pending:
        return None if tensor is None else True
    if type(tensor) is Sum or type(tensor) is Factored:
        return ()
    return (tensor.inputs[1].shape,) if tensor.op is MASK else True


def _apply(call: Call, key: tuple[Any, ...], arriving: Sequence[Any]) -> list[Any]:
    derivative: Derivative = derive_once(call.plan, key, lambda: _derive(call, key))
    inputs: list[Any] = []
    for kind, position in derivative.sources:
        if kind == "input":
            inputs.append(call.inputs[position])
        elif kind == "number":
            tensor = arriving[position]
            inputs.append(tensor if type(tensor) is Pending or tensor.op is not MASK else tensor.inputs[0])
        elif kind == "output":
            inputs.append(output(call, position))
        else:
            inputs.append(position if kind == "node" else arriving[position].inputs[1])
    if not derivative.plan.fragment.outputs:
        return [None] * len(derivative.results)
    step = note_step(derivative.plan, inputs)
    # All of them first: a step that is placed has only those outputs that something stood for by then.
    outputs = {index: step.output(index) for form in derivative.results for index in _indices(form)}
    return [_result(outputs, form) for form in derivative.results]


def _derive(call: Call, key: tuple[Any, ...]) -> Derivative:
    STATISTICS.derivatives += 1
    derive = _derive_adjoint if key[0] == "adjoint" else _derive_tangent
    return derive(call.plan, key[1], key[2], _readable(call))


def _readable(call: Call) -> set[int]:
    """Return which outputs of a call its derivatives may read: those kept with it, and those that somebody holds.

    Another result would have to be computed by running the call again; the derivative computes it from what is kept.
    """
    fragment = call.plan.fragment
    if not fragment.slab:
        return set(range(len(fragment.outputs)))
    held = [i for i, handle in enumerate(call.handles) if handle is not None]
    return {*fragment.slab, *held}


def _indices(form: tuple[Any, ...] | None) -> Iterator[int]:
    """Yield the outputs of a plan that a result is made from."""
    if form is None:
        return
    if form[0] == "terms":
        for term in form[1:]:
            yield from _indices(term)
    else:
        yield from form[2 if form[0] == "factored" else 1 :]


def _result(outputs: Mapping[int, Pending], form: tuple[Any, ...] | None) -> Any:
    if form is None:
        return None
    if form[0] == "plain":
        return outputs[form[1]]
    if form[0] == "masked":
        return mask(as_tensor(outputs[form[1]]), as_tensor(outputs[form[2]]))
    if form[0] == "terms":
        return Sum(*[_result(outputs, term) for term in form[1:]])
    return Factored(form[1], tuple([outputs[index] for index in form[2:]]))


# --- deriving --------------------------------------------------------------------------------------------------------


class _StandIns:
    """The body of a plan on placeholders, and the placeholders that stand for what arrives."""

    def __init__(
        self,
        plan: Plan,
        arrivals: Sequence[Arrival],
        shapes: Sequence[Any],
        dtypes: Sequence[Any],
        readable: Container[int] = (),
    ) -> None:
        fragment = plan.fragment
        self.inputs = [placeholder(s, d) for s, d in zip(plan.input_shapes, fragment.dtypes, strict=True)]
        nodes = expand(plan, self.inputs, fragment.origins)
        self.outputs: list[Any] = [nodes[slot] for slot in fragment.outputs]
        # The first output of a slot stands for it.
        self.sources: dict[int, tuple[str, int]] = {}
        for i, node in enumerate(self.outputs):
            if i in readable:
                self.sources.setdefault(node.id, ("output", i))
        self._readable = [node for i, node in enumerate(self.outputs) if i in readable]
        self.sources |= {node.id: ("input", i) for i, node in enumerate(self.inputs)}
        self.boundary: list[Node] = []
        self.arriving = [
            self._arriving(i, arrival, shape, dtype)
            for i, (arrival, shape, dtype) in enumerate(zip(arrivals, shapes, dtypes, strict=True))
        ]

    def _arriving(self, position: int, arrival: Arrival, shape: Any, dtype: Any) -> Tensor | None:
        if not arrival:
            return None
        number = placeholder(shape, dtype)
        self.sources[number.id] = ("number", position)
        self.boundary.append(number)
        if arrival is True:
            return number
        keep = placeholder(arrival[0], "bool")  # type: ignore[index]
        self.sources[keep.id] = ("keep", position)
        self.boundary.append(keep)
        return mask(number, keep)

    def describe(self, found: Sequence[Any]) -> Derivative:
        """Describe what a sweep found as a plan."""
        targets: list[Node] = []
        results = [None if contribution is None else _split(contribution, targets) for contribution in found]
        captured = capture([], targets, [*self.inputs, *self._readable, *self.boundary], closed=True)
        sources = tuple(self.sources.get(node.id, ("node", node)) for node in captured.inputs)
        plan = default_engine().plans.plan_for(captured.fragment, tuple(node.shape for node in captured.inputs))
        plan.prepare()
        return Derivative(plan, sources, tuple(results))


def _split(contribution: Any, targets: list[Node]) -> tuple[Any, ...]:
    """Name the parts of a contribution that a plan has to give, and list them as its targets."""
    if type(contribution) is Sum:
        return ("terms", *[_split(term, targets) for term in contribution.terms])
    first = len(targets)
    if type(contribution) is Factored:
        targets += [as_tensor(factor) for factor in contribution.factors]
        return ("factored", contribution.form, *range(first, len(targets)))
    if contribution.op is MASK:
        targets += contribution.inputs
        return ("masked", first, first + 1)
    targets.append(contribution)
    return ("plain", first)


def _derive_adjoint(
    plan: Plan, active: Sequence[bool], arrivals: Sequence[Arrival], readable: Container[int]
) -> Derivative:
    shapes, dtypes = (*plan.output_shapes, *plan.input_shapes), (*plan.output_dtypes, *plan.fragment.dtypes)
    stand_ins = _StandIns(plan, arrivals, shapes, dtypes, readable)
    count = len(plan.output_shapes)
    cotangents, before = stand_ins.arriving[:count], stand_ins.arriving[count:]
    reached = [(o, ct) for o, ct in zip(stand_ins.outputs, cotangents, strict=True) if ct is not None]
    arrived: dict[int, Any] = {}
    for node, arrival, earlier in zip(stand_ins.inputs, arrivals[count:], before, strict=True):
        if arrival is not None:
            arrived[node.id] = Sum() if arrival == () else earlier
    variables: list[Any] = [node for node, wanted in zip(stand_ins.inputs, active, strict=True) if wanted]
    found = late.sweep([o for o, _ in reached], [ct for _, ct in reached], variables, arrived)
    return stand_ins.describe([_factored_or_sum(found.get(node.id)) for node in stand_ins.inputs])


def _factored_or_sum(contribution: Any) -> Any:
    """Return a contribution, as its factors if it has some."""
    if contribution is None or type(contribution) is Factored:
        return contribution
    if type(contribution) is Sum:
        return Sum(*[as_factored(term) or term for term in contribution.terms]) if contribution.terms else None
    return as_factored(contribution) or contribution


def _derive_tangent(
    plan: Plan, wanted: Sequence[bool], arrivals: Sequence[Arrival], readable: Container[int]
) -> Derivative:
    stand_ins = _StandIns(plan, arrivals, plan.input_shapes, plan.fragment.dtypes, readable)
    outputs = [node for node, asked in zip(stand_ins.outputs, wanted, strict=True) if asked]
    found = iter(late.pushforward(outputs, stand_ins.inputs, stand_ins.arriving))
    return stand_ins.describe([next(found) if asked else None for asked in wanted])


late.provide(passing_inputs=passing_inputs, pull_call=pull_call)
