"""Derivatives of loops: the adjoint of a loop is one loop in the other direction, its tangent one in the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.late import late
from unspool._autodiff.loop import Body, Loop, loop_output, place_loop, take_values
from unspool._autodiff.loop_derivative import Derivative, Primal, primal_of
from unspool._autodiff.loop_record import recorded
from unspool._autodiff.loop_steps import ADJOINT, TANGENT, Groups, active_registers, grouped
from unspool._ops.op import PART

if TYPE_CHECKING:
    from unspool._tensor import Tensor


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


late.provide(pull_loop=pull_loop, push_loop=push_loop)
