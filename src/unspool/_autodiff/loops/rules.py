"""Derivatives of loops: the adjoint of a loop is one loop in the other direction, its tangent one in the same.

Which loop that is, is found in `structure`. Here what arrives becomes inputs of it, and what leaves it cotangents
or tangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool._autodiff.loops.forms import PARTS, STATE, Like, form_of, joined, split
from unspool._autodiff.loops.gather import gather
from unspool._autodiff.loops.loop import (
    Body,
    Extent,
    Loop,
    Signature,
    apply_fragment,
    known_of,
    loop_output,
    place_loop,
    signature_of,
    take_values,
)
from unspool._autodiff.loops.record import recorded
from unspool._autodiff.loops.steps import ADJOINT, TANGENT, Groups, active_registers, grouped
from unspool._autodiff.loops.structure import Asked, structure_of
from unspool._autodiff.sweeps.late import late
from unspool._ops.elementwise import add_cotangents
from unspool._ops.op import PART

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- rules -----------------------------------------------------------------------------------------------------------


def pull_loop(
    loop: Loop, needed: Sequence[bool], cotangents: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any]
) -> list[Tensor | None]:
    """Return what cotangents of the outputs of a loop contribute to its inputs."""
    primal = _recorded_primal(loop, inputs, outputs)
    work = adjoint_of(primal, needed, cotangents)
    carried, rows, sums = work.place()
    initial = [carried[r] if flag else None for r, flag in zip(loop.entering, needed[loop.constants :], strict=False)]
    return [*sums, *initial, *rows]


def push_loop(
    loop: Loop, tangents: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """Return the tangents of the outputs of a loop from those of its inputs."""
    primal = _recorded_primal(loop, inputs, outputs)
    wanted = Groups((True,) * loop.registers, tuple(_moving_rows(primal)), (True,) * loop.sums)
    work = Derivative(primal, TANGENT, grouped(loop, tangents, at_inputs=True), wanted)
    carried, rows, sums = work.place()
    return (*[carried[r] for r in loop.leaving], *rows[: len(loop.stacked)], *sums)


def _moving_rows(primal: Primal) -> list[bool]:
    """Return which stacked outputs may have a tangent.

    A record that was made just now is no output of the given loop. Of one that was there, derivatives read some rows as
    they are, factors of a matrix for instance, which have no derivative of their own.
    """
    loop = primal.loop
    record = len(loop.stacked) - loop.recorded
    return [
        i < primal.shown and (i < record or any(_has_rules(body, i) for body in loop.bodies))
        for i in range(len(loop.stacked))
    ]


def _has_rules(body: Body, stack: int) -> bool:
    """Whether what a body writes to a stack may have a derivative."""
    if stack not in body.stacked:
        return False
    fragment, first = body.fragment, len(body.fragment.dtypes)
    slot = fragment.outputs[len(body.assigns) + body.stacked.index(stack)]
    if slot < first:
        return True
    instruction = fragment.body[slot - first]
    if instruction.op is PART:
        instruction = fragment.body[instruction.operands[0] - first]
    return instruction.op.vjp is not None or instruction.op.jvp is not None


def _recorded_primal(loop: Loop, inputs: Sequence[Any], outputs: Sequence[Any]) -> Primal:
    """Return a loop with its record, which is placed if it was not there."""
    full = recorded(loop, inputs)
    if full is not loop:
        node = place_loop(full, inputs)
        outputs = [loop_output(node, i) for i in range(len(node.shape))]
    take_values(outputs)
    return primal_of(full, len(loop.stacked), inputs, outputs)


def adjoint_of(primal: Primal, needed: Sequence[bool], cotangents: Sequence[Any]) -> Derivative:
    """Return the adjoint of a loop for inputs that need it and cotangents, some ``None``, of its outputs."""
    loop, needed = primal.loop, tuple(needed)
    wanted: Groups | None = primal.known.get(("adjoint", needed))
    if wanted is None:
        wanted = grouped(loop, needed, at_inputs=True)
        wanted = wanted._replace(carried=active_registers(loop, primal.signature.bodies, wanted))
        primal.known["adjoint", needed] = wanted
    first, last = len(loop.leaving), len(loop.leaving) + primal.shown
    carried: list[Any] = [None] * len(wanted.carried)
    for r, ct in zip(loop.leaving, cotangents, strict=False):
        if wanted.carried[r]:
            carried[r] = ct
    rows = (*cotangents[first:last], *[None] * (len(loop.stacked) - primal.shown))
    return Derivative(primal, ADJOINT, Groups(tuple(carried), rows, tuple(cotangents[last:])), wanted)


# --- a derivative on nodes -------------------------------------------------------------------------------------------


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


late.provide(pull_loop=pull_loop, push_loop=push_loop)
