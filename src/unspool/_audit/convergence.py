"""How the derivative of a loop converges with its steps, and what the implicit derivative is beside it.

The tangent of the state along a direction is carried along (`unspool._autodiff.loops.tangent_step`). Where it still
moves when the state has settled, the loop was stopped too early for its derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._audit.loops import States, Steps
from unspool._audit.report import LoopAudit
from unspool._autodiff.loops.iterate import Unrolled, run_traced
from unspool._autodiff.loops.tangent_step import MEASURES, Moves, with_tangent
from unspool._autodiff.loops.trace import Trace
from unspool._autodiff.solvers.implicit import Implicit, Route, place
from unspool._autodiff.solvers.packing import Packing
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.gradient import gradient_of
from unspool._autodiff.sweeps.substitution import substitute
from unspool._dtypes import COMPLEX
from unspool._engine.default import default_engine
from unspool._ops.elementwise import abs as modulus
from unspool._ops.elementwise import add, sqrt, square, subtract
from unspool._ops.leaf import constant, tensor
from unspool._ops.reduction import sum as total
from unspool.errors import ConvergenceError, GaugeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# A state that a step moves by no more than this, relative to its size, is taken for a fixed point.
FIXED_ENOUGH = 1e-6

# Steps by which the derivative is followed from a point that an accelerated search found, and of a plain loop.
_FROM_POINT = 400
_MOST_STATES = 1000


def follow_steps(
    loop: Steps, loss: Tensor, gradient: Sequence[Any], variables: Sequence[Tensor], direction: Sequence[Tensor]
) -> LoopAudit:
    """Return how a loop whose step is known converges, value and derivative."""
    moving = [*loop.constants, *loop.initial]
    tangents = pushforward(moving, variables, direction)
    directions, starts = tangents[: len(loop.constants)], tangents[len(loop.constants) :]
    initial, steps = loop.initial, loop.steps
    if loop.history:
        # Accelerated steps have no derivative of their own: plain ones are made from the point that they found.
        initial = _found_state(loop)
        starts, steps = [None] * len(initial), max(_FROM_POINT, loop.steps)
    step = with_tangent(loop.step, loop.constants, initial, directions, starts)
    run = run_traced(Trace(step.step, step.constants, step.initial, None, None), steps, keep=False)
    moves = Moves(*[np.asarray(measure) for measure in run.outputs[-MEASURES:]])
    audit = LoopAudit(
        kind=loop.kind,
        source=loop.source,
        steps=loop.steps,
        accelerated=bool(loop.history),
        value_changes=_relative(moves.value, moves.value_size),
        derivative_changes=_relative(moves.derivative, moves.derivative_size),
    )
    if loop.is_implicit or audit.value_changes[-1] <= FIXED_ENOUGH:
        other, note = _other_gradient(loop, loss, variables, initial)
        audit.note_other(gradient, other, note)
    return audit


def follow_states(states: States, variables: Sequence[Tensor], direction: Sequence[Tensor]) -> LoopAudit:
    """Return how the values that a loop made one after the other converge, and their derivatives."""
    rows = states.states[-_MOST_STATES:]
    flat = [leaf for row in rows for leaf in row]
    pushed = pushforward(flat, variables, direction)
    tangents = [constant(np.zeros(x.shape, x.dtype)) if t is None else t for x, t in zip(flat, pushed, strict=True)]
    width = len(rows[0])
    slopes = [tangents[i : i + width] for i in range(0, len(tangents), width)]
    measures = [m for sequence in (rows, slopes) for m in _changes(sequence)]
    values = np.array([float(value) for value in default_engine().evaluate(measures)])
    count = len(rows) - 1
    changes, sizes, slope_changes, slope_sizes = (values[i * count : (i + 1) * count] for i in range(4))
    return LoopAudit(
        kind=states.kind,
        source=states.source,
        steps=len(states.states),
        accelerated=False,
        value_changes=_relative(changes, sizes),
        derivative_changes=_relative(slope_changes, slope_sizes),
    )


def _changes(rows: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return how far each row of tensors is from the one before, and then how large each is, but for the first."""
    moved = [_norm([subtract(a, b) for a, b in zip(new, old, strict=True)]) for old, new in pairwise(rows)]
    return [*moved, *[_norm(row) for row in rows[1:]]]


def _norm(leaves: Sequence[Tensor]) -> Tensor:
    result = constant(0.0)
    for leaf in leaves:
        result = add(result, total(square(modulus(leaf) if leaf.dtype in COMPLEX else leaf)))
    return sqrt(result)


def _relative(changes: Any, sizes: Any) -> list[float]:
    """Return changes relative to the size that they led to: that of the last step."""
    size = float(sizes[-1]) if len(sizes) else 0.0
    return [float(change) / size if size > 0 else float(change) for change in changes]


# --- the derivative by other means -----------------------------------------------------------------------------------


def _other_gradient(
    loop: Steps, loss: Tensor, variables: Sequence[Tensor], initial: Sequence[Tensor]
) -> tuple[list[Any] | None, str]:
    """Return the gradient through all steps for an implicit one, and the implicit one for one through all steps.

    ``None`` and the reason if there is none.
    """
    if any(final is None for final in loop.finals) and loop.is_implicit:
        return None, "the point is not a tensor any more"
    try:
        if loop.is_implicit:
            steps = _FROM_POINT if loop.history else loop.steps
            unrolled = Unrolled().place(loop.step, loop.constants, list(initial), steps)
            packing = Packing(loop.initial)
            replaced, by = loop.finals, [packing.pack_tensors(unrolled[: loop.step.carries])]
        else:
            final = default_engine().evaluate(_finals(loop))
            route = Route(loop.step, Implicit(check=None), loop.steps, 0, 0.0, loop.constants, loop.initial)
            fixed = place(route, loop.constants, loop.initial, final)
            pairs = [(old, new) for old, new in zip(loop.finals, fixed, strict=True) if old is not None]
            replaced, by = [old for old, _ in pairs], [new for _, new in pairs]
        (image,) = substitute([loss], replaced, by, same_values=False)
        gradient = gradient_of(image, list(variables), unconnected="zeros")
        return list(default_engine().evaluate(gradient)), ""
    except (ConvergenceError, GaugeError) as error:
        return None, str(error).split("\n")[0]


def _finals(loop: Steps) -> list[Tensor]:
    """Return the final state of a loop as tensors, also where nobody refers to a leaf of it."""
    if all(final is not None for final in loop.finals):
        return loop.finals
    return Unrolled().place(loop.step, loop.constants, loop.initial, loop.steps)[: loop.step.carries]


def _found_state(loop: Steps) -> list[Tensor]:
    """Return the state that an accelerated search found, as leaves."""
    values = default_engine().evaluate([*loop.finals, *loop.initial])
    packing = Packing(values[1:])
    return [tensor(leaf) for leaf in packing.unpack(values[0], values[1:])]
