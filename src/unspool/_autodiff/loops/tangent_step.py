"""A step that carries a tangent beside its state, and tells how far both moved.

The one idea: the derivative of a state along a direction obeys an iteration of its own,

    t ← J(x)·t + K(x)·v      with J = ∂f/∂x, K = ∂f/∂p and v the direction of what the step closes over,

which converges to the derivative of the fixed point, and later than the state does: where the state is off by ρᵏ, the
tangent is off by about k·ρᵏ (J. C. Gilbert, "Automatic differentiation and iterative processes", 1992). Both together
are the state of a loop like any other, so a loop can be made to stop, and a search to go on, until the derivative
stands still.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._autodiff.loops.loop import apply_fragment
from unspool._autodiff.loops.trace import TracedStep
from unspool._autodiff.sweeps.forward import pushforward
from unspool._dtypes import COMPLEX, FLOAT64, INEXACT, real_dtype
from unspool._fragments.fragment import capture
from unspool._ops.creation import zeros
from unspool._ops.elementwise import abs as modulus
from unspool._ops.elementwise import add, astype, less_equal, logical_and, multiply, sqrt, square, subtract
from unspool._ops.leaf import constant, placeholder
from unspool._ops.reduction import sum as total
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# How many numbers a step with a tangent tells: see `Moves`.
MEASURES = 4


class Moves(NamedTuple):
    """How far a step moved, with Euclidean norms over all floating-point and complex leaves.

    Attributes
    ----------
    value, derivative : number, tensor or array
        The change of the state, and that of the tangent.
    value_size, derivative_size : number, tensor or array
        The state and the tangent before the step.
    """

    value: Any
    value_size: Any
    derivative: Any
    derivative_size: Any


class TangentStep(NamedTuple):
    """A step with a tangent, and what it is given.

    Attributes
    ----------
    step : TracedStep
        Its constants are those of the step without a tangent, their tangents, and what these need; its state has the
        tangents after the leaves; its outputs are `Moves`.
    constants, initial : list of Tensor
    """

    step: TracedStep
    constants: list[Tensor]
    initial: list[Tensor]


def with_tangent(
    step: TracedStep,
    constants: Sequence[Tensor],
    initial: Sequence[Tensor],
    directions: Sequence[Tensor | None],
    starts: Sequence[Tensor | None],
    stop: StandsStill | None = None,
) -> TangentStep:
    """Return a step that carries a tangent, given those of its constants and of its initial state.

    With ``stop``, it has a condition: that of the step, and that the derivative stands still.
    """
    moving = [i for i, given in enumerate(directions) if given is not None]
    inexact = [j for j, leaf in enumerate(initial) if leaf.dtype in INEXACT]
    c, x = _like(constants), _like(initial)
    dc, t = _like([constants[i] for i in moving]), _like([initial[j] for j in inexact])
    new = step.apply(c, x)[: step.carries]
    variables, tangents = [*[c[i] for i in moving], *[x[j] for j in inexact]], [*dc, *t]
    pushed = pushforward([new[j] for j in inexact], variables, tangents)
    moved = [zeros(old.shape, old.dtype) if p is None else p for p, old in zip(pushed, t, strict=True)]
    moves = Moves(
        _norm([subtract(new[j], x[j]) for j in inexact]),
        _norm([x[j] for j in inexact]),
        _norm([subtract(p, old) for p, old in zip(moved, t, strict=True)]),
        _norm(t),
    )
    results = [*new, *moved, *moves]
    if stop is not None:
        results.append(stop.holds(moves, None if step.condition is None else apply_fragment(step.condition, [*c, *x])))
    # What depends on none of these, zeros for instance, is a constant of the loop too.
    extra: Any = capture([*c, *dc, *x, *t], results).inputs[len(c) + len(dc) + len(x) + len(t) :]
    inputs = [*c, *dc, *extra, *x, *t]
    count = len(results) - (stop is not None)
    traced = TracedStep(
        capture(inputs, results[:count]).fragment,
        len(c) + len(dc) + len(extra),
        len(x) + len(t),
        MEASURES,
        None if stop is None else capture(inputs, results[count:]).fragment,
        (*step.names, *[f"the tangent of {step.names[j]}" for j in inexact]),
    )
    begin = [zeros(initial[j].shape, initial[j].dtype) if (s := starts[j]) is None else s for j in inexact]
    given: list[Any] = [*constants, *[directions[i] for i in moving], *extra]
    return TangentStep(traced, given, [*initial, *begin])


class StandsStill(NamedTuple):
    """When a derivative stands still: a step changes it by at most ``tol * (1 + its size)``.

    ``alone`` says that the state has to stand still by the same tolerance, as where there is no other condition.
    """

    tol: float
    alone: bool

    def holds(self, moves: Moves, condition: Sequence[Tensor] | None) -> Tensor:
        """Return whether it does, as graph."""
        tests = list(condition or ())
        tests.append(self._is_small(moves.derivative, moves.derivative_size))
        if self.alone:
            tests.append(self._is_small(moves.value, moves.value_size))
        result = tests[0]
        for test in tests[1:]:
            result = logical_and(result, test)
        return result

    def _is_small(self, change: Tensor, size: Tensor) -> Tensor:
        return less_equal(change, multiply(constant(self.tol), add(constant(1.0), size)))


def require_variables(tensors: Sequence[Tensor], what: str) -> None:
    """Raise if there is nothing to differentiate with respect to."""
    if not any(x.dtype in INEXACT for x in tensors):
        raise ArgumentError(
            f"derivative_tol asks {what} to go on until the derivative stands still, but there is nothing to "
            "differentiate with respect to: the step closes over no floating-point or complex tensor"
        )


def random_direction(like: Sequence[Any], seed: int = 0) -> list[Any]:
    """Return arrays as directions, the same every time: entries away from 0, of the size of what they belong to.

    ``None`` for what has no derivative.
    """
    generator = np.random.default_rng([seed, len(like)])
    return [_direction(generator, np.asarray(array)) if array.dtype in INEXACT else None for array in like]


def _direction(generator: np.random.Generator, array: Any) -> Any:
    parts = [
        generator.choice([-1.0, 1.0], array.shape) * generator.uniform(0.5, 1.5, array.shape)
        for _ in range(2 if array.dtype in COMPLEX else 1)
    ]
    scale = float(np.sqrt(np.mean(np.abs(array) ** 2))) if array.size else 1.0
    whole = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
    return np.asarray((scale if 0.0 < scale < np.inf else 1.0) * whole, array.dtype)


def _like(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [placeholder(x.shape, x.dtype) for x in tensors]


def _norm(leaves: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm over some tensors, in double precision."""
    result = constant(0.0)
    for leaf in leaves:
        size = modulus(leaf) if leaf.dtype in COMPLEX else leaf
        result = add(result, total(square(astype(size, FLOAT64) if real_dtype(leaf.dtype) != FLOAT64 else size)))
    return sqrt(result)
