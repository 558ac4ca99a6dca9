"""A derivative of a loop on nodes: what arrives becomes inputs of one loop, and what leaves it cotangents or tangents.

Which loop that is, is found in `loop_structure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from unspool._autodiff.loop import (
    Extent,
    Loop,
    Signature,
    apply_fragment,
    known_of,
    loop_output,
    place_loop,
    signature_of,
)
from unspool._autodiff.loop_assembly import joined
from unspool._autodiff.loop_forms import PARTS, STATE, Like, form_of, split
from unspool._autodiff.loop_gather import gather
from unspool._autodiff.loop_steps import Groups, grouped
from unspool._autodiff.loop_structure import Asked, structure_of
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
    known : dict
        What is known of the loop.
    """

    loop: Loop
    shown: int
    signature: Signature
    inputs: Groups
    outputs: Groups
    known: dict[Any, Any]


def primal_of(loop: Loop, shown: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Primal:
    """Describe a loop that stands on inputs and has the outputs that are given, the first ``shown`` of the stacked."""
    shapes = [x.shape for x in inputs]
    known = known_of(loop, shapes)
    into, out_of = grouped(loop, inputs, at_inputs=True), grouped(loop, outputs, at_inputs=False)
    return Primal(loop, shown, known.get("signature") or signature_of(loop, shapes), into, out_of, known)


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
    sources, outers : tuple
        As its structure has them.
    """

    def __init__(self, primal: Primal, kind: str, arriving: Groups, wanted: Groups, *, fused: bool = False) -> None:
        self._primal, self.arriving = primal, arriving
        forms = Groups(*[tuple(map(form_of, group)) for group in arriving])
        asked = Asked(kind, forms, wanted, fused)
        self._structure = found = structure_of(primal.loop, primal.signature, primal.known, asked)
        self._initial = self._initial_parts(fused)
        self._made: dict[Any, list[Any]] = {}
        self.loop, self.sources, self.outers = found.loop, found.sources, found.outers
        self.constants = [self._constant(*source) for source in found.constants]
        self.entering = [self._initial[key] for key in found.entering]

    def _initial_parts(self, fused: bool) -> dict[Any, Any]:
        """Return what the registers of the derivative begin with."""
        parts: dict[Any, Any] = {}
        if fused:
            parts = {(r, STATE): x for r, x in enumerate(self._primal.inputs.carried) if x is not None}
        for r, (tensor, form) in enumerate(zip(self.arriving.carried, self._structure.before, strict=True)):
            if form is not None:
                found = split(tensor, form, Like(*self._primal.signature.registers[r]))
                parts.update(zip([(r, name) for name in PARTS[form]], found, strict=True))
        return parts

    def _constant(self, kind: str, where: Any, at: int = 0) -> Any:
        if kind == "constant":
            return self._primal.inputs.shared[where]
        if kind == "node":
            return where
        if kind != "made":
            return part_of(self.arriving.shared[where], kind)
        found = self._made.get(where)
        if found is None:
            fragment, constants, shared = where
            arriving = [x for i in shared if (x := self.arriving.shared[i]) is not None]
            parts = [part for x in arriving for part in split(x, form_of(x), x)]
            given = [*[self._primal.inputs.shared[i] for i in constants], *parts]
            found = self._made[where] = apply_fragment(fragment, given)
        return found[at]

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
        structure = self._structure
        first, last = len(structure.leaving), len(structure.leaving) + len(structure.stacks)
        parts = self._initial | dict(zip(structure.leaving, outputs, strict=False))
        carried = [joined([parts[r, name] for name in PARTS[form]]) for r, form in enumerate(structure.after)]
        stacks, sums = outputs[first:last], outputs[last:]
        rows = [None if place is None else place.of(stacks) for place in structure.rows]
        shared: list[Any] = []
        for terms in structure.terms:
            total = None
            for form, *at in terms:
                term = products[at[0]] if form == "outer" else joined([sums[i] for i in at])
                total = term if total is None else add_cotangents(total, term)
            shared.append(total)
        return Results(carried, rows, shared)


def part_of(tensor: Any, kind: str) -> Any:
    """Return the numbers of a cotangent, or what to keep of it."""
    return split(tensor, form_of(tensor), tensor)[kind == "keep"]
