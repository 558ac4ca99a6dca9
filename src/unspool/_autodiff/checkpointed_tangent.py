"""Forward mode through a loop that keeps no history: the state and its tangent are carried along together.

The loop with tangents is a loop of the same kind, on a state about twice as large, so it is reversed with few saved
states as well. Which values have a tangent may be different in the first steps than in all others; these are placed as
ordinary graph, as `loop_rules` does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool._autodiff.checkpointed_run import bodies_of
from unspool._autodiff.derived import derive_once
from unspool._autodiff.forward import pushforward
from unspool._autodiff.loop import Loop, apply_fragment, body_plan, stand_ins
from unspool._autodiff.loop_rules import Stretch, join_carry, join_rows, settled
from unspool._autodiff.loop_steps import MASKED, Forms, form_of, split
from unspool._dtypes import BOOL
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node
from unspool._ops.elementwise import mask
from unspool._ops.layout import expand_dims
from unspool._ops.leaf import placeholder

if TYPE_CHECKING:
    from unspool._autodiff.checkpointed_rules import Checkpoints
    from unspool._tensor import Tensor


class TangentStep(NamedTuple):
    """A step with tangents.

    Attributes
    ----------
    body : Fragment
        Inputs: constants, parts of their tangents, ``others``, the carry, parts of its tangent. Results: the carry,
        parts of its tangent, parts of the tangents of the outputs.
    others : tuple of Node
        What the rules use beside the inputs of the step.
    carry, rows : forms
        Of the tangents that leave, with the carry and as outputs.
    """

    body: Fragment
    others: tuple[Node, ...]
    carry: Forms
    rows: Forms


def push_steps(
    checkpoints: Checkpoints, tangents: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[Tensor | None, ...]:
    """Return the tangents of the outputs of a loop from those of its inputs."""
    work = _Push(checkpoints, tangents, inputs)
    for stretch in settled(work.derive, tuple(map(form_of, work.moving)), checkpoints.loop.steps):
        work.place(stretch)
    rows = [join_rows(pieces, node) for pieces, node in zip(work.rows, outputs[len(work.state) :], strict=True)]
    return (*work.moving, *rows)


class _Push:
    """A forward sweep through a loop: the state so far, its tangent, and rows of tangents of the outputs."""

    def __init__(self, checkpoints: Checkpoints, tangents: Sequence[Any], inputs: Sequence[Any]) -> None:
        loop = checkpoints.loop
        self._checkpoints = checkpoints
        self._shapes = loop.row_shapes(inputs)
        self._constants, self.state = list(inputs[: loop.constants]), list(inputs[loop.constants :])
        self._given = list(tangents[: loop.constants])
        self.moving: list[Any] = list(tangents[loop.constants :])
        self.rows: list[list[tuple[int, Any]]] = [[] for _ in range(loop.stacked)]

    def derive(self, forms: Forms, leaving: Forms | None) -> TangentStep:
        """Return the step for tangents of the carry in given forms."""
        given = tuple(map(form_of, self._given))
        return tangent_step(self._checkpoints.loop, self._shapes, (given, forms, leaving))

    def place(self, stretch: Stretch) -> None:
        """Place a step, or all that are left, and take what comes out."""
        step: TangentStep = stretch.step
        fixed = [*self._constants, *_parts(self._given, map(form_of, self._given), self._constants), *step.others]
        carried = [*self.state, *_parts(self.moving, stretch.forms, self.state)]
        carries, parts = len(self.state), len(_kinds(step.carry))
        rows = len(_kinds(step.rows))
        if stretch.peeled:
            found = apply_fragment(step.body, [*fixed, *carried])
            found[carries + parts :] = [expand_dims(row, axis=0) for row in found[carries + parts :]]
        elif not parts + rows:
            found = [*self.state]
        else:
            loop = Loop(step.body, len(fixed), len(carried), 0, rows, 0, stretch.steps)
            found = self._loop(loop, [*fixed, *carried])
        self.state = found[:carries]
        self.moving = join_carry(step.carry, found[carries : carries + parts])
        for pieces, row in zip(self.rows, join_carry(step.rows, found[carries + parts :]), strict=True):
            pieces.append((stretch.steps, row))

    def _loop(self, loop: Loop, inputs: list[Any]) -> list[Tensor]:
        from unspool._autodiff.checkpointed_rules import Checkpoints, outputs_of, place_checkpointed  # has this as rule

        bodies = bodies_of(loop, inputs)
        return outputs_of(place_checkpointed(Checkpoints(bodies, self._checkpoints.strategy), inputs))


def _parts(tangents: Sequence[Any], forms: Any, nodes: Sequence[Node]) -> list[Tensor]:
    places = zip(tangents, forms, nodes, strict=True)
    return [part for tangent, form, node in places for part in split(tangent, form, node)]


def _kinds(forms: Forms) -> list[bool]:
    """Return, for each part that tangents of these forms have, whether it says what to keep."""
    return [keep for form in forms if form for keep in ((False, True) if form == MASKED else (False,))]


# --- one step --------------------------------------------------------------------------------------------------------


def tangent_step(loop: Loop, shapes: tuple[Any, ...], request: tuple[Forms, Forms, Forms | None]) -> TangentStep:
    """Return a step with tangents, derived once for given sizes.

    The request has the forms of the tangents of constants, of the carry as it arrives, and of the carry as it has to
    leave, if it has to.
    """
    plan = body_plan(loop.body, shapes)
    key = ("with tangents", request, loop[1:6])
    made: TangentStep = derive_once(plan, key, lambda: _derived(loop, shapes, *request))
    return made


def _derived(loop: Loop, shapes: tuple[Any, ...], given: Forms, arriving: Forms, leaving: Forms | None) -> TangentStep:
    inputs = stand_ins(loop.body, shapes)
    results = apply_fragment(loop.body, inputs)
    tangents, parts = [], []
    for node, form in zip(inputs, (*given, *arriving), strict=True):
        made = [placeholder(node.shape, BOOL if keep else node.dtype) for keep in _kinds((form,))]
        tangents.append(mask(*made) if form == MASKED else made[0] if made else None)
        parts.append(made)
    moved = pushforward(results, inputs, tangents)
    carries = loop.carries
    forms = leaving or tuple(map(form_of, moved[:carries]))
    rows = tuple(map(form_of, moved[carries:]))
    targets = [
        *results[:carries],
        *_parts(moved[:carries], forms, results[:carries]),
        *_parts(moved[carries:], rows, results[carries:]),
    ]
    first = loop.constants
    fixed: list[Node] = [*inputs[:first], *[part for made in parts[:first] for part in made]]
    carried: list[Node] = [*inputs[first:], *[part for made in parts[first:] for part in made]]
    others = capture([*fixed, *carried], targets).inputs[len(fixed) + len(carried) :]
    return TangentStep(capture([*fixed, *others, *carried], targets).fragment, tuple(others), forms, rows)
