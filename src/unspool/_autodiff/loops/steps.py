"""The derivative of one step of a loop, as the body of another loop.

A body is applied to stand-ins and swept once, in reverse or forward. What arrives (cotangents of its outputs, or
tangents of its inputs) and what leaves are grouped by kind: carried, row by row, or the same for all steps. The
fragment that comes out is a body again. It reads what it needs of the step from the record of the loop; or, if it is
*fused*, it makes the step itself beside the tangents.

A cotangent that is masked is carried as two values, the numbers and what to keep, because an element that was never
reached is not a zero, and the next step must know. What the body needs of the constants alone is computed before the
loop. A term that is added up over the steps and is an outer product leaves as its factors, row by row: their sum is one
product of matrices after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool._autodiff.loops.forms import MASKED, PARTS, STATE, Forms, form_of, split
from unspool._autodiff.loops.loop import Body, Loop, apply_fragment, body_plan, stand_ins
from unspool._autodiff.loops.simplify import simplified
from unspool._autodiff.loops.targets import Sources, Targets, placed_term
from unspool._autodiff.sweeps.derived import derive_once
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._autodiff.sweeps.walk import Walk, is_differentiable
from unspool._dtypes import BOOL
from unspool._engine.default import default_engine
from unspool._fragments.fragment import Fragment, capture, dependent_nodes
from unspool._graph import Node
from unspool._ops.elementwise import mask
from unspool._ops.leaf import placeholder

if TYPE_CHECKING:
    from unspool._tensor import Tensor

ADJOINT, TANGENT = "adjoint", "tangent"


class Groups(NamedTuple):
    """One entry per value, by kind; the kinds of what arrives and of what leaves correspond."""

    carried: tuple[Any, ...]
    rows: tuple[Any, ...]
    shared: tuple[Any, ...]


class Request(NamedTuple):
    """Which derivative of a body is wanted.

    Carried entries are those of the registers that the body touches. For the others it is what the body reads or fills.

    Attributes
    ----------
    kind : {"adjoint", "tangent"}
    arriving : Groups
        The forms of what arrives: at the outputs of the body for an adjoint, at its inputs for a tangent.
    wanted : Groups of bool
        Which derivatives may leave: those of which inputs of an adjoint, of which outputs of a tangent.
    carry : forms, or None
        The forms in which the carry has to leave; by default as it comes out.
    fused : bool
        Whether the step is made beside its derivative.
    """

    kind: str
    arriving: Groups
    wanted: Groups
    carry: Forms | None = None
    fused: bool = False


class DerivedStep(NamedTuple):
    """A body that computes derivatives of another.

    Attributes
    ----------
    fragment : Fragment
        Its inputs are constants, registers and rows; its results registers, rows, and terms of sums.
    constants, rows : tuple of (kind, position)
        Where its inputs come from. Constants: a "constant" of the primal body, something "made" of those, a "node", or
        an arriving shared "number" or what to "keep" of it. Rows: a "row" or "stacked" output of the primal body, an
        arriving "number" or "keep".
    made : Fragment or None
        Computes what is made of the constants.
    reads, assigns : tuple of (int, part)
        Its registers: a position among those that the primal body touches, and which part it is.
    carry : forms
        In which the carry leaves, for each register that the primal body touches.
    stacked, sums : int
        Numbers of rows and of terms of sums that leave.
    leaving_rows : tuple
        Per place where a row may be wanted: None, ("plain", i) or ("masked", i, j), positions among its row outputs.
    terms : tuple of tuple
        Per place where a sum may be wanted, its terms: ("plain", i) or ("masked", i, j), with positions among its sums,
        or ("outer", subscripts, left, right, dtypes), where a factor is ("in", i) or ("out", i): a row input or output.
    """

    fragment: Fragment
    constants: tuple[tuple[str, Any], ...]
    rows: tuple[tuple[str, Any], ...]
    made: Fragment | None
    reads: tuple[tuple[int, str], ...]
    assigns: tuple[tuple[int, str], ...]
    carry: Forms
    stacked: int
    sums: int
    leaving_rows: tuple[tuple[Any, ...] | None, ...]
    terms: tuple[tuple[tuple[Any, ...], ...], ...]


def derived_step(body: Body, shapes: tuple[Any, ...], request: Request) -> DerivedStep:
    """Return a derivative of a body of a recorded loop, derived once for given sizes."""
    plan = body_plan(body.fragment, shapes)

    def derive() -> DerivedStep:
        default_engine().statistics.derivatives += plan is not None
        return _Derivation(body, shapes, request).describe()

    made: DerivedStep = derive_once(plan, (request, wiring_of(body)), derive)
    return made


def wiring_of(body: Body) -> tuple[Any, ...]:
    """Return all that a derivative of a body depends on beside its fragment."""
    touched = body.touched
    registers = [tuple(map(touched.index, group)) for group in (body.reads, body.assigns)]
    return (*registers, len(body.constants), len(body.rows), len(body.stacked), len(body.sums))


def grouped(loop: Loop, values: Sequence[Any], *, at_inputs: bool) -> Groups:
    """Group values, one per input or output of a loop, by kind; carried ones by register, ``None`` for no value."""
    first = loop.constants if at_inputs else 0
    registers = loop.entering if at_inputs else loop.leaving
    last = first + len(registers)
    carried: list[Any] = [None] * loop.registers
    for r, value in zip(registers, values[first:last], strict=True):
        carried[r] = value
    if at_inputs:
        return Groups(tuple(carried), tuple(values[last:]), tuple(values[:first]))
    end = last + len(loop.stacked)
    return Groups(tuple(carried), tuple(values[last:end]), tuple(values[end:]))


def at_body(body: Body, groups: Groups, *, at_inputs: bool) -> Groups:
    """Return of what belongs to a loop what belongs to one body."""
    carried = tuple([groups.carried[r] for r in body.touched])
    if at_inputs:
        return Groups(
            carried, *[tuple([g[i] for i in at]) for g, at in zip(groups[1:], (body.rows, body.constants), strict=True)]
        )
    return Groups(
        carried, *[tuple([g[i] for i in at]) for g, at in zip(groups[1:], (body.stacked, body.sums), strict=True)]
    )


def _placed_body(body: Body, shapes: tuple[Any, ...]) -> tuple[Groups, Groups]:
    """Return a body on stand-ins: its inputs and its outputs, by kind.

    A register that it assigns and does not read has no node before, one that it only reads has the same after.
    """
    inputs = stand_ins(body.fragment, shapes)
    outputs = apply_fragment(body.fragment, inputs)
    first, last = len(body.constants), len(body.constants) + len(body.reads)
    before = dict(zip(body.reads, inputs[first:last], strict=True))
    after = before | dict(zip(body.assigns, outputs, strict=False))
    into = Groups(tuple([before.get(r) for r in body.touched]), tuple(inputs[last:]), tuple(inputs[:first]))
    start, stop = len(body.assigns), len(body.assigns) + len(body.stacked)
    return into, Groups(tuple([after[r] for r in body.touched]), tuple(outputs[start:stop]), tuple(outputs[stop:]))


def active_registers(loop: Loop, shapes: Sequence[tuple[Any, ...]], wanted: Groups) -> tuple[bool, ...]:
    """Return which registers depend, in some step, on an input that an adjoint is wanted for."""
    active = [bool(flag) for flag in wanted.carried]
    while True:
        before = list(active)
        for body, given in zip(loop.bodies, shapes, strict=True):
            flags = at_body(body, wanted._replace(carried=tuple(active)), at_inputs=True)
            for r, is_reached in zip(body.touched, _reached(body, given, flags), strict=True):
                active[r] = active[r] or is_reached
        if active == before:
            return tuple(active)


def _reached(body: Body, shapes: tuple[Any, ...], flags: Groups) -> tuple[bool, ...]:
    """Return which registers depend, after a step, on inputs that are flagged."""
    plan = body_plan(body.fragment, shapes)
    key = ("reached", flags, wiring_of(body))
    if plan is not None and key in plan.derivatives:
        found: tuple[bool, ...] = plan.derivatives[key]
        return found
    into, out_of = _placed_body(body, shapes)
    places = [(x, flag) for group in zip(into, flags, strict=True) for x, flag in zip(*group, strict=True)]
    active = Walk(list(out_of.carried), [x for x, flag in places if flag and x is not None]).active
    found = tuple([x.id in active and is_differentiable(x) for x in out_of.carried])
    if plan is not None:
        plan.derivatives[key] = found
    return found


class _Derivation:
    """The body of a loop on stand-ins, what arrives, and what a sweep makes of it."""

    def __init__(self, body: Body, shapes: tuple[Any, ...], request: Request) -> None:
        self.request = request
        into, out_of = _placed_body(body, shapes)
        # The places of what arrives and of what leaves.
        self.here, self.there = (out_of, into) if request.kind == ADJOINT else (into, out_of)
        # What the new body can read: values that stay the same, rows, each with where it comes from, and registers.
        self.same = Sources(into.shared, "constant")
        self.rows = Sources(() if request.fused else out_of.rows, "stacked")
        self.rows.add(into.rows, "row")
        self.carry: dict[tuple[int, str], Node] = {}
        self._assigned: dict[tuple[int, str], Node] = {}
        if request.fused:
            self.carry = {(i, STATE): x for i, x in enumerate(into.carried) if x is not None}
            self._assigned = {(i, STATE): x for i, x in enumerate(out_of.carried)}
        self.arriving = Groups(self._arriving(0, None), self._arriving(1, self.rows), self._arriving(2, self.same))

    def _arriving(self, group: int, sources: Sources | None) -> tuple[Tensor | None, ...]:
        """Return stand-ins for what arrives of one kind."""
        made: list[Tensor | None] = []
        for i, (node, form) in enumerate(zip(self.here[group], self.request.arriving[group], strict=True)):
            if form is None:
                made.append(None)
                continue
            parts = [placeholder(node.shape, node.dtype)]
            if form == MASKED:
                parts.append(placeholder(node.shape, BOOL))
            for part, name in zip(parts, PARTS[form], strict=True):
                if sources is None:
                    self.carry[i, name] = part
                else:
                    sources.enter(part, name, i)
            made.append(mask(*parts) if form == MASKED else parts[0])
        return tuple(made)

    def _sweep(self) -> Groups:
        """Return what leaves, as graph on the stand-ins."""
        nodes: list[Any] = [x for group in self.here for x in group]
        given = [x for group in self.arriving for x in group]
        places: list[Any] = [x for group in self.there for x in group]
        flags = [flag for group in self.request.wanted for flag in group]
        wanted = [flag and x is not None for x, flag in zip(places, flags, strict=True)]
        leaving = [x for x, flag in zip(places, wanted, strict=True) if flag]
        reached = [(x, ct) for x, ct in zip(nodes, given, strict=True) if ct is not None]
        if self.request.kind == TANGENT:
            derivatives = pushforward(leaving, [x for x, _ in reached], [t for _, t in reached])
        else:
            derivatives = pullback([x for x, _ in reached], [ct for _, ct in reached], leaving)
        rest = iter(derivatives)
        found: list[Any] = [next(rest) if flag else None for flag in wanted]
        found = simplified(found, list(self.carry.values()), self.rows.nodes)
        first, last = len(self.there.carried), len(self.there.carried) + len(self.there.rows)
        return Groups(tuple(found[:first]), tuple(found[first:last]), tuple(found[last:]))

    def describe(self) -> DerivedStep:
        """Describe what the sweep found as a body."""
        found = self._sweep()
        forms = self.request.carry or tuple(map(form_of, found.carried))
        likes = self.here.carried if self.request.kind == ADJOINT else self.there.carried
        for i, (tensor, form) in enumerate(zip(found.carried, forms, strict=True)):
            for name, part in zip(PARTS[form], split(tensor, form, likes[i]), strict=True):
                self._assigned[i, name] = part
        # What leaves as it came stays where it is.
        assigned = {key: part for key, part in self._assigned.items() if part is not self.carry.get(key)}
        targets = Targets(list(assigned.values()))
        leaving = tuple([targets.add_row(x, node) for x, node in zip(found.rows, self.there.rows, strict=True)])
        terms = [targets.add_sum(x, node, self.rows) for x, node in zip(found.shared, self.there.shared, strict=True)]
        wanted = targets.all()
        used = capture([], wanted, [*self.carry.values(), *self.rows.nodes]).inputs
        names = {node.id: key for key, node in self.carry.items()}
        carry = [node for node in used if node.id in names]
        rows = [node for node in (*used, *targets.read) if node.id in self.rows.places]
        rows = list({node.id: node for node in rows}.values())
        constants = [node for node in used if node.id not in self.rows.places and node.id not in names]
        made, sources = self._made(constants)
        position = {node.id: i for i, node in enumerate(rows)}
        return DerivedStep(
            capture([*constants, *carry, *rows], wanted).fragment,
            sources,
            tuple([self.rows.places[node.id] for node in rows]),
            made,
            tuple([names[node.id] for node in carry]),
            tuple(assigned),
            forms,
            len(targets.rows),
            len(targets.sums),
            leaving,
            tuple([tuple([placed_term(term, position) for term in group]) for group in terms]),
        )

    def _made(self, constants: Sequence[Node]) -> tuple[Fragment | None, tuple[tuple[str, Any], ...]]:
        """Tell where constants of the new body come from, and how those are made that have to be."""
        sources: list[tuple[str, Any]] = []
        made: list[Node] = []
        starts = set(self.same.places)
        for node in constants:
            if node.id in starts:
                sources.append(self.same.places[node.id])
            elif dependent_nodes([node], starts):
                sources.append(("made", len(made)))
                made.append(node)
            else:
                sources.append(("node", node))
        return (capture(self.same.nodes, made).fragment if made else None), tuple(sources)
