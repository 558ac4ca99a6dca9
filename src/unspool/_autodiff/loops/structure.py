"""What a derivative of a loop is, without what it stands on: one loop, put together from variants of bodies.

Which variants there are, and which of them makes which step, is found in `variants`; what each does, in
`steps`. Here their registers, rows, stacked outputs and sums become those of one loop. Nothing in it is a value,
so it is found once for a loop, sizes, and what arrives and leaves (`structure_of`); most often for any number of steps.

A value may be absent from some steps. A stack has zeros in such rows and is masked; a sum has nothing from such steps.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from unspool._autodiff.loops.forms import MASKED, PARTS, PLAIN, STATE, Forms, JoinedRows
from unspool._autodiff.loops.loop import Extent, Loop, Signature, body_plan
from unspool._autodiff.loops.steps import (
    ADJOINT,
    DerivedStep,
    Groups,
    Request,
    at_body,
    derived_step,
    wiring_of,
)
from unspool._autodiff.loops.variants import Key, Numbering, Variant, variants_of
from unspool._autodiff.sweeps.derived import depends_on_rules


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


class Asked(NamedTuple):
    """Which derivative of a loop is wanted.

    Attributes
    ----------
    kind : {"adjoint", "tangent"}
    arriving : Groups of forms
        Of the cotangents of the outputs, or of the tangents of the inputs.
    wanted : Groups of bool
        Which derivatives may leave.
    fused : bool
        Whether the derivative makes the steps of the loop itself and reads no record.
    """

    kind: str
    arriving: Groups
    wanted: Groups
    fused: bool


def structure_of(loop: Loop, signature: Signature, known: dict[Any, Any], asked: Asked) -> Structure:
    """Return a derivative of a loop, of which something is known already."""
    found: Structure | None = known.get(asked) or known.get((asked, loop.steps))
    if found is None:
        found = Structure(loop, signature, asked)
        if not found.depends_on_rules:
            known[asked if found.is_steady else (asked, loop.steps)] = found
    return found if found.loop.steps == loop.steps else found.with_steps(loop.steps)


class Structure:
    """One derivative of a loop.

    Attributes
    ----------
    loop : Loop
    constants : list of tuple
        Where its constants come from: ("constant", i) of the primal loop; ("node", node); ("number" or "keep", i) of
        what arrives and is shared; or ("made", (fragment, constants, arriving), i), made of these.
    entering : list of Key
        The parts of cotangents or tangents, or of the state, that its registers begin with.
    leaving : list of Key
    before, after : forms
        Of all registers of the primal loop, before its first and after its last step.
    sources : tuple of (kind, position)
        Where its stacked inputs come from: a "row" or "stacked" output of the primal loop, or the "number" or "keep" of
        what arrives there.
    outers : tuple of Outer
        Sums to be taken of its stacks after it has run.
    rows, terms : list
        What becomes of its stacks and sums, by place.
    is_steady : bool
        Whether it is the same for any number of steps.
    depends_on_rules : bool
        Whether rules of users had a part in it, so that it may be another one next time.
    """

    def __init__(self, loop: Loop, signature: Signature, asked: Asked) -> None:
        self._primal, self._signature, self._asked = loop, signature, asked
        self.depends_on_rules = False
        is_adjoint = asked.kind == ADJOINT
        found = variants_of(loop, self._derive, asked.arriving.carried, backwards=is_adjoint)
        self.before, self.after = found.entering, found.leaving
        self._variants = [Variant(loop.bodies[number], step, asked.kind) for number, step in found.steps]
        which = found.which if len(found.steps) > 1 else b""
        # A loop without bodies tells already which steps a variant makes.
        self._frame = Loop((), 0, (), (), (), (), 0, loop.steps, loop.reverse != is_adjoint, 0, which)
        self._constants, self._sources = Numbering(), Numbering()
        self.stacks: list[Extent | None] = []
        self._sums = 0
        self._outers: list[Outer] = []
        self.rows = [self._joined_rows(i) for i in range(len(asked.wanted.rows))]
        self.terms = [self._joined_terms(i) for i in range(len(asked.wanted.shared))]
        self.loop = self._assembled()
        self.is_steady = (
            len(found.steps) == 1
            and found.entering == found.leaving
            and not (loop.which or any(loop.rows) or any(loop.stacked))
            and all(place is None or place.whole is None for place in self.rows)
        )
        self.constants = self._constants.values
        self.sources, self.outers = tuple(self._sources.values), tuple(self._outers)

    def with_steps(self, steps: int) -> Structure:
        """Return the same for another number of steps."""
        made = object.__new__(Structure)
        made.__dict__.update(self.__dict__)
        made.loop = self.loop._replace(steps=steps)
        made.outers = tuple([outer._replace(extent=(0, steps)) for outer in self.outers])
        return made

    def _derive(self, number: int, forms: Forms, leaving: Forms | None) -> DerivedStep:
        asked, body = self._asked, self._primal.bodies[number]
        at_inputs = asked.kind != ADJOINT
        arriving = at_body(body, asked.arriving, at_inputs=at_inputs)._replace(carried=forms)
        wanted = at_body(body, asked.wanted, at_inputs=not at_inputs)
        request, shapes = Request(asked.kind, arriving, wanted, leaving, asked.fused), self._signature.bodies[number]
        made = derived_step(body, shapes, request)
        plan = body_plan(body.fragment, shapes)
        self.depends_on_rules |= plan is None or depends_on_rules(plan, (request, wiring_of(body)))
        return made

    # -- rows and sums of all variants --

    def _joined_rows(self, place: int) -> JoinedRows | None:
        """Give the rows that variants have for a place a stack of the new loop."""
        rows = self._primal.rows if self._asked.kind == ADJOINT else self._primal.stacked
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
        if self._asked.kind != ADJOINT:
            # A row that the loop itself does not write has no meaning.
            writers = [n for n, body in enumerate(self._primal.bodies) if place in body.stacked]
            here = here | ~np.frombuffer(self._primal.marks(writers), bool)[start:stop]
        return JoinedRows(number, keep, None if here.all() else here)

    def _new_stack(self, extent: Extent | None) -> int:
        self.stacks.append(extent)
        return len(self.stacks) - 1

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
        initial = {(r, name) for r, form in enumerate(self.before) for name in PARTS[form]}
        if self._asked.fused:
            initial |= {(r, STATE) for r in self._primal.entering}
        self.entering: list[Key] = [key for key in order if key in read and key in initial]
        self.leaving: list[Key] = [
            (r, name) for r, form in enumerate(self.after) for name in PARTS[form] if (r, name) in assigned
        ]
        bodies = []
        for variant in self._variants:
            constants = [self._constants.number(source, key) for source, key in self._constants_of(variant)]
            rows = [self._sources.number(source, source) for source in variant.rows]
            bodies.append(variant.body(constants, rows, order))
        return self._frame._replace(
            bodies=tuple(bodies),
            constants=len(self._constants.values),
            entering=tuple([order[key] for key in self.entering]),
            leaving=tuple([order[key] for key in self.leaving]),
            rows=tuple([self._extent_of(source) for source in self._sources.values]),
            stacked=tuple(self.stacks),
            sums=self._sums,
        )

    def _extent_of(self, source: tuple[str, int]) -> Extent | None:
        kind, at = source
        is_input = kind == "row" or (kind != "stacked" and self._asked.kind != ADJOINT)
        return (self._primal.rows if is_input else self._primal.stacked)[at]

    def _constants_of(self, variant: Variant) -> list[tuple[tuple[str, Any], Hashable]]:
        """Return where the constants of a variant come from, in terms of the loop, each with what tells it apart."""
        step, body = variant.step, variant.primal
        shared = body.sums if self._asked.kind == ADJOINT else body.constants
        found: list[tuple[tuple[str, Any], Hashable]] = []
        for kind, at in step.constants:
            if kind == "node":
                found.append(((kind, at), (kind, at.id)))
                continue
            source: Any = (kind, (shared if kind != "constant" else body.constants)[at] if kind != "made" else at)
            if kind == "made":
                source = (kind, (step.made, body.constants, shared), at)
            found.append((source, source))
        return found
