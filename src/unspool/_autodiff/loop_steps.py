"""The derivative of one step of a loop, as the body of another loop.

The body is applied to stand-ins and swept once, in reverse or forward. What arrives (cotangents of its outputs, or
tangents of its inputs) and what leaves are grouped by kind: carried, row by row, or the same for all steps. The
fragment that comes out is a body again.

A cotangent that is masked is carried as two values, the numbers and what to keep, because an element that was never
reached is not a zero, and the next step must know. What the body needs of the constants alone is computed before the
loop. A term that is added up over the steps and is an outer product leaves as its factors, row by row: their sum is one
product of matrices after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool._autodiff.accumulation import is_outer
from unspool._autodiff.derived import derive_once
from unspool._autodiff.forward import pushforward
from unspool._autodiff.identity import zeros
from unspool._autodiff.loop import Loop, apply_fragment, body_plan, stand_ins
from unspool._autodiff.loop_simplify import simplified
from unspool._autodiff.reverse import pullback
from unspool._autodiff.walk import Walk, is_differentiable
from unspool._dims import is_concrete
from unspool._dtypes import BOOL
from unspool._engine.default import default_engine
from unspool._fragments.fragment import Fragment, capture, dependent_nodes
from unspool._graph import Node
from unspool._ops.contraction.contract import CONTRACT
from unspool._ops.elementwise import ADD, MASK, mask
from unspool._ops.layout import broadcast_to
from unspool._ops.leaf import constant, placeholder

if TYPE_CHECKING:
    from unspool._tensor import Tensor

ADJOINT, TANGENT = "adjoint", "tangent"

# How a cotangent or tangent is passed on: not at all (None), as numbers, or as numbers and what to keep of them.
PLAIN, MASKED = "plain", "masked"
Forms = tuple[str | None, ...]


class Groups(NamedTuple):
    """One entry per value, by kind; the kinds of what arrives and of what leaves correspond."""

    carried: tuple[Any, ...]
    rows: tuple[Any, ...]
    shared: tuple[Any, ...]


class Request(NamedTuple):
    """Which derivative of a body is wanted.

    Attributes
    ----------
    kind : {"adjoint", "tangent"}
    arriving : Groups
        The forms of what arrives: at the outputs of the body for an adjoint, at its inputs for a tangent.
    wanted : Groups of bool
        Which derivatives may leave: those of which inputs of an adjoint, of which outputs of a tangent.
    carry : forms, or None
        The forms in which the carry has to leave; by default as it comes out.
    """

    kind: str
    arriving: Groups
    wanted: Groups
    carry: Forms | None = None


class DerivedStep(NamedTuple):
    """A body that computes derivatives of another.

    Attributes
    ----------
    body : Fragment
        Its inputs are constants, the carry and rows; its results the carry, rows, and terms of sums.
    constants, rows : tuple of (kind, position)
        Where its inputs come from. Constants: a "constant" of the primal loop, something "made" of those, a "node", or
        an arriving shared "number" or what to "keep" of it. Rows: a "row" or "stacked" output of the primal loop, an
        arriving "number" or "keep".
    made : Fragment or None
        Computes what is made of the constants.
    carry : forms
        In which the carry leaves.
    leaving_rows : tuple
        Per place where a row may be wanted: None, ("plain", i) or ("masked", i, j), positions among its row outputs.
    sums : tuple of tuple
        Per place where a sum may be wanted, its terms: ("plain", i) or ("masked", i, j), with positions among its sums,
        or ("outer", subscripts, left, right), where a factor is ("in", i) or ("out", i): a row input or output.
    counts : (int, int, int)
        Numbers of carried values, rows and sums that leave.
    """

    body: Fragment
    constants: tuple[tuple[str, Any], ...]
    rows: tuple[tuple[str, Any], ...]
    made: Fragment | None
    carry: Forms
    leaving_rows: tuple[tuple[Any, ...] | None, ...]
    sums: tuple[tuple[tuple[Any, ...], ...], ...]
    counts: tuple[int, int, int]


def derived_step(loop: Loop, shapes: tuple[Any, ...], request: Request) -> DerivedStep:
    """Return a derivative of the body of a recorded loop, derived once for given sizes."""
    plan = body_plan(loop.body, shapes)
    key = (request, loop[1:6])

    def derive() -> DerivedStep:
        default_engine().statistics.derivatives += plan is not None
        return _Derivation(loop, shapes, request).describe()

    made: DerivedStep = derive_once(plan, key, derive)
    return made


def form_of(tensor: Tensor | None) -> str | None:
    """Return how a cotangent or tangent is passed on."""
    return None if tensor is None else MASKED if tensor.op is MASK else PLAIN


class Like(NamedTuple):
    """What a cotangent is shaped like."""

    shape: Any
    dtype: Any


def split(tensor: Tensor | None, form: str | None, like: Node | Like) -> list[Tensor]:
    """Return a cotangent of something as the tensors that a form has."""
    if form is None:
        return []
    if tensor is None:
        tensor = mask(zeros(like.shape, like.dtype), broadcast_to(constant(False), like.shape))
    if form == PLAIN:
        return [tensor]
    number, keep = tensor.inputs if tensor.op is MASK else (tensor, constant(True))
    return [number, broadcast_to(keep, like.shape)]  # type: ignore[list-item]


def grouped(loop: Loop, values: Sequence[Any], *, at_inputs: bool) -> Groups:
    """Group values, one per input or one per output of a loop, by kind."""
    if at_inputs:
        first, last = loop.constants, loop.constants + loop.carries
        return Groups(tuple(values[first:last]), tuple(values[last:]), tuple(values[:first]))
    first, last = loop.carries, loop.carries + loop.stacked
    return Groups(tuple(values[:first]), tuple(values[first:last]), tuple(values[last:]))


def active_carries(loop: Loop, shapes: tuple[Any, ...], wanted: Groups) -> tuple[bool, ...]:
    """Return which carried values depend, in some step, on an input that an adjoint is wanted for."""
    plan = body_plan(loop.body, shapes)
    key = ("active", wanted, loop[1:6])
    if plan is not None and key in plan.derivatives:
        found: tuple[bool, ...] = plan.derivatives[key]
        return found
    inputs = stand_ins(loop.body, shapes)
    places = grouped(loop, inputs, at_inputs=True)
    carry = apply_fragment(loop.body, inputs)[: loop.carries]
    active = wanted.carried
    while True:
        flags = wanted._replace(carried=active)
        variables = [
            x for group, flag in zip(places, flags, strict=True) for x, f in zip(group, flag, strict=True) if f
        ]
        reached = Walk(carry, variables).active
        grown = tuple([a or (x.id in reached and is_differentiable(x)) for a, x in zip(active, carry, strict=True)])
        if grown == active:
            break
        active = grown
    if plan is not None:
        plan.derivatives[key] = active
    return active


class _Derivation:
    """The body of a loop on stand-ins, what arrives, and what a sweep makes of it."""

    def __init__(self, loop: Loop, shapes: tuple[Any, ...], request: Request) -> None:
        self.request = request
        inputs = stand_ins(loop.body, shapes)
        into = grouped(loop, inputs, at_inputs=True)
        out_of = grouped(loop, apply_fragment(loop.body, inputs), at_inputs=False)
        # The places of what arrives and of what leaves.
        self.here, self.there = (out_of, into) if request.kind == ADJOINT else (into, out_of)
        # What the new body can read: values that stay the same, rows, each with where it comes from, and its carry.
        self.same = _Sources(into.shared, "constant")
        self.rows = _Sources(out_of.rows, "stacked")
        self.rows.add(into.rows, "row")
        self.carry: list[Node] = []
        self.arriving = Groups(self._arriving(0, None), self._arriving(1, self.rows), self._arriving(2, self.same))

    def _arriving(self, group: int, sources: _Sources | None) -> tuple[Tensor | None, ...]:
        """Return stand-ins for what arrives of one kind."""
        made: list[Tensor | None] = []
        for i, (node, form) in enumerate(zip(self.here[group], self.request.arriving[group], strict=True)):
            if form is None:
                made.append(None)
                continue
            parts = [placeholder(node.shape, node.dtype)]
            if form == MASKED:
                parts.append(placeholder(node.shape, BOOL))
            if sources is None:
                self.carry += parts
            else:
                for part, name in zip(parts, ("number", "keep"), strict=False):
                    sources.enter(part, name, i)
            made.append(mask(*parts) if form == MASKED else parts[0])
        return tuple(made)

    def _sweep(self) -> Groups:
        """Return what leaves, as graph on the stand-ins."""
        nodes = [x for group in self.here for x in group]
        given = [x for group in self.arriving for x in group]
        places: list[Any] = [x for group in self.there for x in group]
        wanted = [flag for group in self.request.wanted for flag in group]
        leaving = [x for x, flag in zip(places, wanted, strict=True) if flag]
        if self.request.kind == TANGENT:
            derivatives = pushforward(leaving, nodes, given)
        else:
            reached = [(x, ct) for x, ct in zip(nodes, given, strict=True) if ct is not None]
            derivatives = pullback([x for x, _ in reached], [ct for _, ct in reached], leaving)
        rest = iter(derivatives)
        found: list[Any] = [next(rest) if flag else None for flag in wanted]
        found = simplified(found, self.carry, self.rows.nodes)
        first, last = len(self.there.carried), len(self.there.carried) + len(self.there.rows)
        return Groups(tuple(found[:first]), tuple(found[first:last]), tuple(found[last:]))

    def describe(self) -> DerivedStep:
        """Describe what the sweep found as a body."""
        found = self._sweep()
        forms = self.request.carry or tuple(map(form_of, found.carried))
        targets = _Targets()
        for tensor, form, node in zip(found.carried, forms, self.there.carried, strict=True):
            targets.carry += split(tensor, form, node)
        leaving = tuple([targets.add_row(x, node) for x, node in zip(found.rows, self.there.rows, strict=True)])
        sums = tuple(
            [targets.add_sum(x, node, self.rows) for x, node in zip(found.shared, self.there.shared, strict=True)]
        )
        wanted = targets.all()
        used = capture([], wanted, [*self.carry, *self.rows.nodes]).inputs
        carried = {node.id for node in self.carry}
        rows = [node for node in (*used, *targets.read) if node.id in self.rows.places]
        rows = list({node.id: node for node in rows}.values())
        constants = [node for node in used if node.id not in self.rows.places and node.id not in carried]
        made, sources = self._made(constants)
        position = {node.id: i for i, node in enumerate(rows)}
        return DerivedStep(
            capture([*constants, *self.carry, *rows], wanted).fragment,
            sources,
            tuple([self.rows.places[node.id] for node in rows]),
            made,
            forms,
            leaving,
            tuple([tuple([_placed(term, position) for term in terms]) for terms in sums]),
            (len(targets.carry), len(targets.rows), len(targets.sums)),
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


class _Sources:
    """Nodes that a body may read, and where each comes from."""

    def __init__(self, nodes: Sequence[Node], kind: str) -> None:
        self.nodes: list[Node] = []
        self.places: dict[int, tuple[str, Any]] = {}
        self.add(nodes, kind)

    def add(self, nodes: Sequence[Node], kind: str) -> None:
        for i, node in enumerate(nodes):
            self.enter(node, kind, i)

    def enter(self, node: Node, kind: str, position: int) -> None:
        self.nodes.append(node)
        self.places[node.id] = (kind, position)


class _Targets:
    """What leaves a body, by kind; ``read`` are rows that are used after the loop as they came in."""

    def __init__(self) -> None:
        self.carry: list[Node] = []
        self.rows: list[Node] = []
        self.sums: list[Node] = []
        self.read: list[Node] = []

    def all(self) -> list[Node]:
        return [*self.carry, *self.rows, *self.sums]

    def add_row(self, tensor: Tensor | None, node: Node) -> tuple[Any, ...] | None:
        form = form_of(tensor)
        first = len(self.rows)
        self.rows += split(tensor, form, node)
        return None if form is None else (form, *range(first, len(self.rows)))

    def add_sum(self, tensor: Tensor | None, node: Node, rows: _Sources) -> list[tuple[Any, ...]]:
        if tensor is None:
            return []
        terms: list[tuple[Any, ...]] = []
        for term in _terms(tensor):
            if _is_gathered(term):
                terms.append(("outer", term.params["subscripts"], *[self._factor(x, rows) for x in term.inputs]))
                continue
            form = form_of(term)
            first = len(self.sums)
            self.sums += split(term, form, node)
            if form == MASKED:
                # What one step leaves out may be there in another: only what is kept is added up.
                self.sums[first] = term
            terms.append((form, *range(first, len(self.sums))))
        return terms

    def _factor(self, factor: Node, rows: _Sources) -> tuple[str, Any]:
        if factor.id in rows.places:
            self.read.append(factor)
            return ("in", factor.id)
        self.rows.append(factor)
        return ("out", len(self.rows) - 1)


def _terms(tensor: Tensor) -> list[Tensor]:
    """Return the terms of a sum if there are outer products among them, else the sum itself."""
    terms: list[Any] = []
    stack: list[Any] = [tensor]
    while stack:
        term = stack.pop()
        if term.op is ADD and all(x.shape == term.shape and x.dtype == term.dtype for x in term.inputs):
            stack += reversed(term.inputs)
        else:
            terms.append(term)
    return terms if any(map(_is_gathered, terms)) else [tensor]


def _is_gathered(term: Tensor) -> bool:
    """Whether a term is an outer product whose factors take less memory than their product."""
    if term.op is not CONTRACT or not is_outer(term.params["subscripts"]):
        return False
    shapes = [factor.shape for factor in term.inputs]
    if not all(map(is_concrete, shapes)):
        return True
    left, right = map(prod, shapes)
    return bool(left + right <= left * right)


def _placed(term: tuple[Any, ...], position: dict[int, int]) -> tuple[Any, ...]:
    """Return a term with rows by position instead of by node."""
    if term[0] != "outer":
        return term
    factors = [("in", position[key]) if kind == "in" else (kind, key) for kind, key in term[2:]]
    return ("outer", term[1], *factors)
