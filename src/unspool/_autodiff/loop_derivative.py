"""A derivative of a loop as one loop, put together from variants of its bodies.

Which variants there are, and which of them makes which step, is found in `loop_variants`; what each does, in
`loop_steps`. Here their registers, rows, stacked outputs and sums become those of one loop, and what leaves it becomes
cotangents or tangents.

A value may be absent from some steps. A stack has zeros in such rows and is masked; a sum has nothing from such steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._autodiff.loop import Extent, Loop, Signature, apply_fragment, loop_output, place_loop, signature_of
from unspool._autodiff.loop_assembly import JoinedRows, Key, Numbering, Variant, joined
from unspool._autodiff.loop_forms import MASKED, PARTS, PLAIN, STATE, Forms, Like, form_of, split
from unspool._autodiff.loop_gather import gather
from unspool._autodiff.loop_steps import ADJOINT, DerivedStep, Groups, Request, at_body, derived_step, grouped
from unspool._autodiff.loop_variants import variants_of
from unspool._ops.elementwise import add_cotangents


class Primal(NamedTuple):
    """The loop to differentiate.

    Attributes
    ----------
    loop : Loop
        With its record, if derivatives read it.
    shown : int
        How many of its stacked outputs there are without a record that was made for this derivative.
    signature : Signature
    inputs, outputs : Groups
        Nodes. A derivative that is not placed needs no nodes of a record.
    """

    loop: Loop
    shown: int
    signature: Signature
    inputs: Groups
    outputs: Groups

    def padded(self, groups: Groups, nothing: Any) -> Groups:
        """Return one entry per output, with nothing for a record that was made for this derivative."""
        return groups._replace(rows=groups.rows[: self.shown] + (nothing,) * (len(self.loop.stacked) - self.shown))


def primal_of(loop: Loop, shown: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Primal:
    """Describe a loop that stands on inputs and has the outputs that are given, the first ``shown`` of the stacked."""
    found = signature_of(loop, [x.shape for x in inputs])
    into = grouped(loop, inputs, at_inputs=True)
    return Primal(loop, shown, found, into, grouped(loop, outputs, at_inputs=False))


class Outer(NamedTuple):
    """A sum over steps of outer products.

    Attributes
    ----------
    place : int
        The constant or sum of the primal loop that it belongs to.
    subscripts : str
        What is made of a row of each factor.
    left, right : (side, int)
        The factors: a stacked input ("in") or output ("out") of the derivative.
    extent : (int, int)
        The steps that it goes over.
    """

    place: int
    subscripts: str
    left: tuple[str, int]
    right: tuple[str, int]
    extent: Extent


class Results(NamedTuple):
    """What a derivative gives: one entry, or ``None``, per register, per stack and per constant or sum of its loop."""

    carried: list[Any]
    rows: list[Any]
    shared: list[Any]


class Derivative:
    """One derivative of a loop.

    Parameters
    ----------
    primal : Primal
    kind : {"adjoint", "tangent"}
    arriving : Groups
        Cotangents of the outputs, or tangents of the inputs; ``None`` where there is none.
    wanted : Groups of bool
        Which derivatives may leave.
    fused : bool
        Whether the derivative makes the steps of the loop itself and reads no record.

    Attributes
    ----------
    arriving : Groups
    loop : Loop
    constants, entering : list of Tensor
        What it stands on, before its stacked inputs.
    sources : tuple of (kind, position)
        Where its stacked inputs come from: a "row" or "stacked" output of the primal loop, or the "number" or "keep" of
        what arrives there.
    outers : tuple of Outer
        Sums to be taken of its stacks after it has run.
    """

    def __init__(self, primal: Primal, kind: str, arriving: Groups, wanted: Groups, *, fused: bool = False) -> None:
        self._primal, self._kind, self._fused = primal, kind, fused
        self.arriving, self._wanted = arriving, wanted
        self._forms = Groups(*[tuple(map(form_of, group)) for group in arriving])
        found = variants_of(primal.loop, self._derive, self._forms.carried, backwards=kind == ADJOINT)
        self._leaving = found.leaving
        self._initial = self._initial_parts(found.entering)
        self._variants = [Variant(primal.loop.bodies[number], step, kind) for number, step in found.steps]
        which = found.which if len(found.steps) > 1 else b""
        # A loop without bodies tells already which steps a variant makes.
        self._frame = Loop(
            (), 0, (), (), (), (), 0, primal.loop.steps, primal.loop.reverse != (kind == ADJOINT), 0, which
        )
        self._constants, self._sources = Numbering(), Numbering()
        self._stacks: list[Extent | None] = []
        self._sums = 0
        self._outers: list[Outer] = []
        self._rows = [self._joined_rows(i) for i in range(len(wanted.rows))]
        self._terms = [self._joined_terms(i) for i in range(len(wanted.shared))]
        self.loop = self._assembled()
        self.constants = self._constants.values
        self.entering = [self._initial[key] for key in self._entering_keys]
        self.sources, self.outers = tuple(self._sources.values), tuple(self._outers)

    def _derive(self, number: int, forms: Forms, leaving: Forms | None) -> DerivedStep:
        body, at_inputs = self._primal.loop.bodies[number], self._kind != ADJOINT
        arriving = at_body(body, self._forms, at_inputs=at_inputs)._replace(carried=forms)
        wanted = at_body(body, self._wanted, at_inputs=not at_inputs)
        request = Request(self._kind, arriving, wanted, leaving, self._fused)
        return derived_step(body, self._primal.signature.bodies[number], request)

    def _initial_parts(self, forms: Forms) -> dict[Key, Any]:
        """Return what the registers of the derivative begin with."""
        parts: dict[Key, Any] = {}
        if self._fused:
            parts = {(r, STATE): x for r, x in enumerate(self._primal.inputs.carried) if x is not None}
        for r, (tensor, form) in enumerate(zip(self.arriving.carried, forms, strict=True)):
            if form is not None:
                found = split(tensor, form, Like(*self._primal.signature.registers[r]))
                parts.update(zip([(r, name) for name in PARTS[form]], found, strict=True))
        return parts

    # -- rows and sums of all variants --

    def _joined_rows(self, place: int) -> JoinedRows | None:
        """Give the rows that variants have for a place a stack of the new loop."""
        rows = self._primal.loop.rows if self._kind == ADJOINT else self._primal.loop.stacked
        found = {n: form for n, v in enumerate(self._variants) if (form := v.leaving_rows.get(place)) is not None}
        if not found:
            return None
        masked = [n for n, form in found.items() if form[0] == MASKED]
        number, keep = self._new_stack(rows[place]), self._new_stack(rows[place]) if masked else None
        for n, (_, *at) in found.items():
            self._variants[n].write(number, at[0])
            if len(at) == 2:
                self._variants[n].write(keep, at[1])
        start, stop = self._frame.extent(rows[place])
        here = np.frombuffer(self._frame.marks([n for n in found if n not in masked]), bool)[start:stop]
        if self._kind != ADJOINT:
            # A row that the loop itself does not write has no meaning.
            writers = [n for n, body in enumerate(self._primal.loop.bodies) if place in body.stacked]
            here = here | ~np.frombuffer(self._primal.loop.marks(writers), bool)[start:stop]
        return JoinedRows(number, keep, None if here.all() else here)

    def _new_stack(self, extent: Extent | None) -> int:
        self._stacks.append(extent)
        return len(self._stacks) - 1

    def _joined_terms(self, place: int) -> list[tuple[Any, ...]]:
        """Give the terms that variants have for a place sums of the new loop, or stacks of factors.

        Returns ("outer", position) or ("plain" or "masked", positions of sums) for each.
        """
        found: dict[Hashable, dict[int, tuple[Any, ...]]] = {}
        for n, variant in enumerate(self._variants):
            for key, term in variant.numbered_terms(place):
                found.setdefault(key, {})[n] = term
        joined: list[tuple[Any, ...]] = []
        for terms in found.values():
            if next(iter(terms.values()))[0] == "outer":
                self._outers.append(self._joined_factors(place, terms))
                joined.append(("outer", len(self._outers) - 1))
                continue
            # What every element has from one step is not absent from the sum.
            form = MASKED if all(term[0] == MASKED for term in terms.values()) else PLAIN
            first, self._sums = self._sums, self._sums + max(len(term) for term in terms.values()) - 1
            for n, (_, *at) in terms.items():
                for i, output in enumerate(at):
                    self._variants[n].add(first + i, output)
            joined.append((form, first, first + 1) if form == MASKED else (form, first))
        return joined

    def _joined_factors(self, place: int, terms: dict[int, tuple[Any, ...]]) -> Outer:
        """Return the sum of outer products that some variants have factors for.

        A factor that is the same stacked input in all of them is used as it is. Where steps in between have no factors
        both are zeros there, so both are written.
        """
        extent, is_complete = self._frame.presence(terms)
        sides = []
        for side in (2, 3):
            factors = {n: term[side] for n, term in terms.items()}
            sources = {self._variants[n].rows[at] if kind == "in" else None for n, (kind, at) in factors.items()}
            source = sources.pop() if len(sources) == 1 else None
            if source is not None and is_complete:
                sides.append(("in", self._sources.number(source, source)))
                continue
            stack = self._new_stack(extent if self._frame.which else None)
            for n, (kind, at) in factors.items():
                self._variants[n].write(stack, at, as_read=kind == "in")
            sides.append(("out", stack))
        return Outer(place, next(iter(terms.values()))[1], sides[0], sides[1], extent)

    # -- the loop --

    def _assembled(self) -> Loop:
        read = {key for variant in self._variants for key in variant.reads}
        assigned = {key for variant in self._variants for key in variant.assigns}
        order = {key: i for i, key in enumerate(sorted(read | assigned))}
        self._entering_keys = [key for key in order if key in read and key in self._initial]
        self._leaving_keys = [
            (r, name) for r, form in enumerate(self._leaving) for name in PARTS[form] if (r, name) in assigned
        ]
        bodies = []
        for variant in self._variants:
            constants = [self._constants.number(node, node.id) for node in self._constants_of(variant)]
            rows = [self._sources.number(source, source) for source in variant.rows]
            bodies.append(variant.body(constants, rows, order))
        return self._frame._replace(
            bodies=tuple(bodies),
            constants=len(self._constants.values),
            entering=tuple([order[key] for key in self._entering_keys]),
            leaving=tuple([order[key] for key in self._leaving_keys]),
            rows=tuple([self._extent_of(source) for source in self._sources.values]),
            stacked=tuple(self._stacks),
            sums=self._sums,
        )

    def _extent_of(self, source: tuple[str, int]) -> Extent | None:
        kind, at = source
        is_input = kind == "row" or (kind != "stacked" and self._kind != ADJOINT)
        return (self._primal.loop.rows if is_input else self._primal.loop.stacked)[at]

    def _constants_of(self, variant: Variant) -> list[Any]:
        """Return the constants of a variant."""
        step, body = variant.step, variant.primal
        primal = at_body(body, self._primal.inputs, at_inputs=True).shared
        arriving = at_body(body, self.arriving, at_inputs=self._kind != ADJOINT).shared
        made: list[Any] = []
        if step.made is not None:
            parts = [p for x in arriving if x is not None for p in split(x, form_of(x), x)]
            made = apply_fragment(step.made, [*primal, *parts])
        found: list[Any] = []
        for kind, at in step.constants:
            if kind == "node":
                found.append(at)
            elif kind in ("constant", "made"):
                found.append((primal if kind == "constant" else made)[at])
            else:
                found.append(part_of(arriving[at], kind))
        return found

    # -- what it gives --

    def signature(self) -> Signature:
        """Return the shapes in the loop, which may not have been placed."""
        rows = []
        for kind, at in self.sources:
            if kind == "stacked":
                rows.append((0, *self._primal.signature.stacked[at][0]))
            else:
                rows.append((self._primal.inputs if kind == "row" else self.arriving).rows[at].shape)
        return signature_of(self.loop, [*[x.shape for x in (*self.constants, *self.entering)], *rows])

    @property
    def is_idle(self) -> bool:
        """Whether nothing comes out of it."""
        return not self.outers and all(body.is_idle for body in self.loop.bodies)

    def place(self) -> Results:
        """Place the loop, and return what it gives."""
        if self.is_idle:
            return self.results([], [])
        rows = [self._row_source(source) for source in self.sources]
        outputs: list[Any] = []
        if any(not body.is_idle for body in self.loop.bodies):
            node = place_loop(self.loop, [*self.constants, *self.entering, *rows])
            outputs = [loop_output(node, i) for i in range(len(node.shape))]
        stacks = outputs[len(self.loop.leaving) :]

        def factor(side: str, at: int, extent: Extent) -> Any:
            if side == "out":
                return stacks[at]
            first, last = self.loop.extent(self.loop.rows[at])
            start, stop = extent[0] - first, extent[1] - first
            return rows[at] if (start, stop) == (0, last - first) else rows[at][start:stop]

        products = [
            gather(
                outer.subscripts, factor(*outer.left, outer.extent), factor(*outer.right, outer.extent), outer.extent[0]
            )
            for outer in self.outers
        ]
        return self.results(outputs, products)

    def _row_source(self, source: tuple[str, int]) -> Any:
        kind, at = source
        if kind in ("row", "stacked"):
            return (self._primal.inputs if kind == "row" else self._primal.outputs).rows[at]
        return part_of(self.arriving.rows[at], kind)

    def results(self, outputs: Sequence[Any], products: Sequence[Any]) -> Results:
        """Return what the outputs of the loop and the sums of outer products mean."""
        first, last = len(self._leaving_keys), len(self._leaving_keys) + len(self._stacks)
        parts = self._initial | dict(zip(self._leaving_keys, outputs, strict=False))
        carried = [joined([parts[r, name] for name in PARTS[form]]) for r, form in enumerate(self._leaving)]
        stacks, sums = outputs[first:last], outputs[last:]
        rows = [None if place is None else place.of(stacks) for place in self._rows]
        shared: list[Any] = []
        for terms in self._terms:
            total = None
            for form, *at in terms:
                term = products[at[0]] if form == "outer" else joined([sums[i] for i in at])
                total = term if total is None else add_cotangents(total, term)
            shared.append(total)
        return Results(carried, rows, shared)


def part_of(tensor: Any, kind: str) -> Any:
    """Return the numbers of a cotangent, or what to keep of it."""
    return split(tensor, form_of(tensor), tensor)[kind == "keep"]
