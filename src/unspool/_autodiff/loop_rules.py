"""Derivatives of loops: the adjoint of a loop is a loop in the other direction, its tangent one in the same.

The body of the new loop depends on which values have a cotangent (or tangent) at all, and on which are masked. That is
often different in the first step than in all others: the loss reads one part of the state, and a step later the
cotangent has spread to the rest. Zeros would not do, since 0·∞ is not nothing. So steps are *peeled* off, placed as
ordinary graph, until what leaves a step has the forms of what arrived; the rest is the loop. Forms that keep changing
(two parts of a state that swap places) end as masked ones, which can say everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool import _graph
from unspool._autodiff.identity import ALIGNED
from unspool._autodiff.loop import Loop, apply_fragment, loop_output, place_loop, take_values
from unspool._autodiff.loop_gather import gather
from unspool._autodiff.loop_record import recorded
from unspool._autodiff.loop_steps import (
    ADJOINT,
    MASKED,
    TANGENT,
    DerivedStep,
    Forms,
    Groups,
    Like,
    Request,
    active_carries,
    derived_step,
    form_of,
    grouped,
    split,
)
from unspool._graph import Node
from unspool._ops.elementwise import add_cotangents, mask
from unspool._ops.layout import concat, expand_dims
from unspool._ops.op import PART

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Steps that are placed one by one, at most, before forms that keep changing are replaced by masked ones.
_MOST_PEELED = 3


def pull_loop(
    loop: Loop, needed: Sequence[bool], cotangents: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any]
) -> list[Tensor | None]:
    """Return what cotangents of the outputs of a loop contribute to its inputs."""
    primal = _Primal(loop, inputs, outputs)
    arriving = primal.pad(cotangents)
    wanted = grouped(loop, tuple(needed), at_inputs=True)
    active = active_carries(primal.loop, primal.shapes, wanted)
    carried = [ct if flag else None for ct, flag in zip(arriving.carried, active, strict=True)]
    work = Transform(primal, ADJOINT, arriving._replace(carried=tuple(carried)), wanted._replace(carried=active))
    work.run()
    initial = [ct if n else None for ct, n in zip(work.carry, wanted.carried, strict=True)]
    return [*work.sums(), *initial, *work.rows()]


def push_loop(
    loop: Loop, tangents: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """Return the tangents of the outputs of a loop from those of its inputs."""
    primal = _Primal(loop, inputs, outputs)
    wanted = Groups((True,) * loop.carries, tuple(_moving_rows(primal)), (True,) * loop.sums)
    work = Transform(primal, TANGENT, grouped(loop, tangents, at_inputs=True), wanted)
    work.run()
    return (*work.carry, *work.rows()[: loop.stacked], *work.sums())


def _moving_rows(primal: _Primal) -> list[bool]:
    """Return which stacked outputs may have a tangent.

    A record that was made just now is no output of the given loop. Of one that was there, derivatives read some rows as
    they are, factors of a matrix for instance, which have no derivative of their own.
    """
    loop = primal.loop
    first, shown = len(loop.body.dtypes), loop.stacked - loop.recorded
    moving = []
    for i, slot in enumerate(loop.body.outputs[loop.carries : loop.carries + loop.stacked]):
        has_rules = True
        if slot >= first:
            instruction = loop.body.body[slot - first]
            if instruction.op is PART:
                instruction = loop.body.body[instruction.operands[0] - first]
            has_rules = instruction.op.vjp is not None or instruction.op.jvp is not None
        moving.append(i < primal.given.stacked and (i < shown or has_rules))
    return moving


class _Primal:
    """The loop to differentiate, with its record."""

    def __init__(self, loop: Loop, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.given = loop
        self.loop = recorded(loop, inputs)
        self.inputs = grouped(loop, inputs, at_inputs=True)
        self.shapes = loop.row_shapes(inputs)
        if self.loop is not loop:
            node = place_loop(self.loop, inputs)
            outputs = [loop_output(node, i) for i in range(len(node.shape))]
        take_values(outputs)
        self.outputs = grouped(self.loop, outputs, at_inputs=False)

    def pad(self, cotangents: Sequence[Any]) -> Groups:
        """Return cotangents of the outputs of the loop that was given, by kind, with none for its record."""
        groups = grouped(self.given, tuple(cotangents), at_inputs=False)
        return groups._replace(rows=groups.rows + (None,) * (self.loop.stacked - self.given.stacked))


# --- forms that settle -----------------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """Consecutive steps of a derivative that have one body.

    Attributes
    ----------
    step : Any
        The derived body; its attribute ``carry`` has the forms in which the carry leaves.
    forms : forms
        In which the carry arrives.
    steps : int
    peeled : bool
        Whether it is one step to be placed by itself; else the carry leaves as it arrives, and it is a loop.
    """

    step: Any
    forms: Forms
    steps: int
    peeled: bool


def settled(derive: Callable[[Forms, Forms | None], Any], forms: Forms, steps: int) -> Iterator[Stretch]:
    """Yield the stretches of a derivative of a loop.

    ``derive(forms, leaving)`` returns the body for a carry that arrives in some forms and leaves in others, or, for
    ``None``, as it comes out.
    """
    for peeled in range(steps):
        step = derive(forms, None)
        if step.carry == forms:
            yield Stretch(step, forms, steps - peeled, False)
            return
        if peeled == _MOST_PEELED:
            step = _widened(derive, forms, step.carry)
            yield Stretch(step, step.carry, steps - peeled, False)
            return
        yield Stretch(step, forms, 1, True)
        forms = step.carry


def _widened(derive: Callable[[Forms, Forms | None], Any], forms: Forms, leaving: Forms) -> Any:
    """Return a step that leaves the carry in the forms in which it takes it, masked where that is necessary."""
    while True:
        forms = tuple([a if a == b else MASKED for a, b in zip(forms, leaving, strict=True)])
        leaving = derive(forms, None).carry
        if all(a in (b, MASKED) for a, b in zip(forms, leaving, strict=True)):
            return derive(forms, forms)


# --- derivatives in the making ---------------------------------------------------------------------------------------


class Transform:
    """One derivative of a loop in the making: the carry so far, and contributions from the steps that were placed."""

    def __init__(self, primal: Any, kind: str, arriving: Groups, wanted: Groups) -> None:
        self.primal, self.kind, self.arriving, self.wanted = primal, kind, arriving, wanted
        self.steps = primal.loop.steps
        self.reverse = primal.loop.reverse != (kind == ADJOINT)
        self.here, self.there = primal.outputs, primal.inputs
        if kind == TANGENT:
            self.here, self.there = self.there, self.here
        self.carry: list[Any] = list(arriving.carried)
        self._placed = 0
        self._rows: list[list[tuple[int, Any]]] = [[] for _ in self.there.rows]
        self._sums: list[Any] = [None] * len(self.there.shared)

    # -- steps --

    def run(self) -> None:
        """Go through all steps."""
        for stretch in settled(self._derive, tuple(map(form_of, self.carry)), self.steps):
            if stretch.peeled:
                self.peel(stretch)
            else:
                self.loop(stretch)
            self._placed += stretch.steps

    def _derive(self, forms: Forms, leaving: Forms | None) -> DerivedStep:
        rows = tuple(map(form_of, self.arriving.rows))
        shared = tuple(map(form_of, self.arriving.shared))
        request = Request(self.kind, Groups(forms, rows, shared), self.wanted, leaving)
        return derived_step(self.primal.loop, self.primal.shapes, request)

    def peel(self, stretch: Stretch) -> None:
        """Place one step as graph."""
        step = stretch.step
        row = self.steps - 1 - self._placed if self.reverse else self._placed
        stacks = [self._row_source(source) for source in step.rows]
        carry = self.split_carry(stretch.forms)
        rows_of_step = [_graph.apply(ALIGNED, stack[row]) for stack in stacks]
        found = apply_fragment(step.body, [*self.constants(step), *carry, *rows_of_step])
        carries, rows, _ = step.counts
        found[carries : carries + rows] = [expand_dims(x, axis=0) for x in found[carries : carries + rows]]
        self._collect(step, 1, [stack[row : row + 1] for stack in stacks], found)

    def loop(self, stretch: Stretch) -> None:
        """Place all remaining steps as a loop."""
        step, steps = stretch.step, stretch.steps
        carries, rows, sums = step.counts
        if not carries + rows + sums:
            self._collect(step, steps, [], [])
            return
        constants, carry = self.constants(step), self.split_carry(stretch.forms)
        stacks = [self._remaining(self._row_source(source), steps) for source in step.rows]
        loop = Loop(step.body, len(constants), carries, len(stacks), rows, sums, steps, self.reverse)
        node = place_loop(loop, [*constants, *carry, *stacks])
        self._collect(step, steps, stacks, [loop_output(node, i) for i in range(carries + rows + sums)])

    def _collect(self, step: DerivedStep, steps: int, stacks: Sequence[Any], found: Sequence[Any]) -> None:
        """Take what a number of steps gave: the carry, stacks of rows, and sums."""
        carries, rows, _ = step.counts
        self.carry = join_carry(step.carry, found[:carries])
        leaving, sums = found[carries : carries + rows], found[carries + rows :]
        for place, form in zip(self._rows, step.leaving_rows, strict=True):
            place.append((steps, None if form is None else joined_parts(form, leaving)))
        for i, terms in enumerate(step.sums):
            for term in terms:
                if term[0] == "outer":
                    factors = [stacks[at] if side == "in" else leaving[at] for side, at in term[2:]]
                    self.add(i, gather(term[1], *factors))
                else:
                    self.add(i, joined_parts(term, sums))

    def split_carry(self, forms: Forms) -> list[Any]:
        """Return the parts of the carry in given forms."""
        places = zip(self.carry, forms, self.here.carried, strict=True)
        return [part for tensor, form, node in places for part in split(tensor, form, node)]

    # -- where the inputs of a step come from --

    def constants(self, step: DerivedStep) -> list[Any]:
        """Return the constants of a derived body."""
        made: list[Tensor] = []
        if step.made is not None:
            shared = [x for x in self.arriving.shared if x is not None]
            parts = [p for x in shared for p in split(x, form_of(x), x)]
            made = apply_fragment(step.made, [*self.primal.inputs.shared, *parts])
        found: list[Any] = []
        for kind, at in step.constants:
            if kind == "constant":
                found.append(self.primal.inputs.shared[at])
            elif kind == "made":
                found.append(made[at])
            elif kind == "node":
                found.append(at)
            else:
                found.append(_part(self.arriving.shared[at], kind))
        return found

    def _row_source(self, source: tuple[str, Any]) -> Any:
        kind, at = source
        if kind == "row":
            return self.primal.inputs.rows[at]
        if kind == "stacked":
            return self.primal.outputs.rows[at]
        return _part(self.arriving.rows[at], kind)

    def _remaining(self, stacked: Any, steps: int) -> Any:
        if steps == self.steps:
            return stacked
        return stacked[:steps] if self.reverse else stacked[self.steps - steps :]

    # -- what leaves --

    def add(self, place: int, term: Any) -> None:
        """Add a contribution to a sum over the steps."""
        before = self._sums[place]
        self._sums[place] = term if before is None else add_cotangents(before, term)

    def sums(self) -> list[Tensor | None]:
        """Return what was added up over the steps."""
        return self._sums

    def rows(self) -> list[Tensor | None]:
        """Return what came out row by row, stacked."""
        places = zip(self._rows, self.there.rows, strict=True)
        return [join_rows(pieces[::-1] if self.reverse else pieces, node) for pieces, node in places]


def join_rows(pieces: list[tuple[int, Any]], node: Node) -> Tensor | None:
    """Join pieces of a stack that is shaped like a node: pairs of a number of rows and a cotangent, or ``None``."""
    if all(piece is None for _, piece in pieces):
        return None
    if len(pieces) == 1:
        return pieces[0][1]  # type: ignore[no-any-return]
    whole = all(form_of(piece) == "plain" for _, piece in pieces)
    form = "plain" if whole else MASKED
    split_up = [split(piece, form, Like((steps, *node.shape[1:]), node.dtype)) for steps, piece in pieces]
    joined = [concat(parts, axis=0) for parts in zip(*split_up, strict=True)]
    return joined[0] if whole else mask(*joined)


def _part(tensor: Any, kind: str) -> Any:
    """Return the numbers of a cotangent, or what to keep of it."""
    return split(tensor, form_of(tensor), tensor)[kind == "keep"]


def joined_parts(form: tuple[Any, ...], parts: Sequence[Any]) -> Any:
    """Return the cotangent of a form, ("plain", i) or ("masked", i, j), from the parts of all."""
    return parts[form[1]] if len(form) == 2 else mask(parts[form[1]], parts[form[2]])


def join_carry(forms: Forms, parts: Sequence[Any]) -> list[Any]:
    """Return one cotangent per carried value from their parts, in order."""
    left = iter(parts)
    joined: list[Any] = []
    for form in forms:
        if form is None:
            joined.append(None)
        elif form == MASKED:
            joined.append(mask(next(left), next(left)))
        else:
            joined.append(next(left))
    return joined
