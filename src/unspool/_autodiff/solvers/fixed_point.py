"""`fixed_point`: the state that a function maps to itself, found by iteration and differentiated implicitly.

The one idea: how a fixed point is found does not matter to where it lies. So the search may take any short cut, on
arrays and by the plan of the traced function, with no user code between its steps, and the derivative comes from the
function at the point that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unspool import _trees as trees
from unspool._above import above
from unspool._autodiff.loops.application import Application, with_tangents
from unspool._autodiff.loops.iterate import Adjoint, check_derivative_tol, iterate, refuse_derivative_tol
from unspool._autodiff.loops.recording import recorded
from unspool._autodiff.loops.run import can_be_evaluated
from unspool._autodiff.loops.tangent_step import require_variables
from unspool._autodiff.loops.trace import trace
from unspool._autodiff.solvers.anderson import Found, Tangent, search
from unspool._autodiff.solvers.implicit import Implicit, Route, is_positive, is_positive_integer, place
from unspool._engine.default import default_engine
from unspool._engine.observe import current_observer, shown
from unspool._engine.quiet import run_quietly
from unspool._fragments.asking import check_callable
from unspool.errors import ArgumentError

ANDERSON = "anderson"


def fixed_point(
    f: Callable[[Any], Any],
    x0: Any,
    *,
    tol: float = 1e-10,
    derivative_tol: float | None = None,
    max_steps: int = 1000,
    acceleration: str | None = ANDERSON,
    history: int = 5,
    adjoint: Adjoint | None = None,
    progress: bool = False,
) -> tuple[Any, int]:
    """Find a state that a function maps to itself, differentiable with respect to all that the function closes over.

    The search ends when ``|f(x) - x| <= tol * (1 + |x|)``, with Euclidean norms over all floating-point and complex
    leaves, and returns ``f(x)``. Integer and boolean leaves, such as a counter, are carried along.

    Parameters
    ----------
    f : callable
        Takes a state and returns one of the same structure, shapes and dtypes. It is called once, on stand-ins.
    x0 : pytree of Tensor or array_like
        Where to start. No derivative flows there: see `Implicit`.
    tol : float
        When to stop. A tolerance that the precision of the state cannot reach is raised to one that it can.
    derivative_tol : float, optional
        Go on until the derivative stands still too: ``|t' - t| <= derivative_tol * (1 + |t|)``, where t is the tangent
        of the state along a random direction of all that the function closes over, carried along from step to step. A
        derivative lags behind the value, so a tolerance that is fine for the value may not be for the derivative. A
        step then takes two to three times as long. Not under `vmap`.
    max_steps : int
        The most applications of ``f``.
    acceleration : {"anderson", None}
        Whether to extrapolate from earlier steps (Anderson's method) or to take plain steps. Plain steps need a
        contraction; accelerated ones nearly always need fewer steps, and may converge where plain ones do not.
    history : int
        How many earlier steps to extrapolate from.
    adjoint : Adjoint, optional
        How to differentiate; by default ``us.Implicit()``. The search has its own tolerance, so that of
        ``Implicit(check=...)`` is not looked at. ``us.Unrolled()`` differentiates through plain steps only.
    progress : bool
        Whether to show how far it is while it runs, as `unspool.progress` does.

    Returns
    -------
    state : pytree of Tensor
        The fixed point, nested like ``x0``.
    steps : int
        How often ``f`` was applied; under `vmap` a tensor without axes, which tells it of a member.

    Raises
    ------
    ConvergenceError
        If ``max_steps`` applications were not enough, or numbers became infinite or NaN.

    Examples
    --------
    >>> import unspool as us
    >>> c = us.tensor(1.0)
    >>> x, steps = us.fixed_point(lambda x: us.cos(c * x), 1.0)
    >>> round(float(x), 10), steps
    (0.7390851332, 7)
    >>> round(float(x.grad(c)), 10)
    -0.2974743415
    """
    if progress:
        options = {"acceleration": acceleration, "history": history, "adjoint": adjoint}
        with above.namespace.progress():
            return fixed_point(f, x0, tol=tol, derivative_tol=derivative_tol, max_steps=max_steps, **options)  # type: ignore[arg-type]
    check_callable(f, "us.fixed_point")
    adjoint = Implicit() if adjoint is None else adjoint
    _check(tol, derivative_tol, max_steps, acceleration, history, adjoint)
    traced = trace(f, x0, None, has_outputs=False, what="us.fixed_point")
    depth = history if acceleration == ANDERSON else 0
    if not can_be_evaluated([*traced.constants, *traced.initial]):
        refuse_derivative_tol(derivative_tol, "us.fixed_point")
        batch = recorded.get()
        members = None if batch is None else batch.fixed_point(traced, adjoint, depth, tol, max_steps)
        if members is not None:
            return trees.unflatten(traced.state_structure, members[1]), members[0]
    values = default_engine().evaluate([*traced.constants, *traced.initial])
    closed, start = values[: len(traced.constants)], values[len(traced.constants) :]
    application, begin, tangent = Application(traced.step, closed, start), start, None
    if derivative_tol is not None:
        require_variables(traced.constants, "us.fixed_point")
        application, begin = with_tangents(traced.step, closed, start)
        tangent = Tangent(len(start), float(derivative_tol))
    found: Found = run_quietly(shown, current_observer(), search, application, begin, depth, tol, max_steps, tangent)
    if not isinstance(adjoint, Implicit):
        # The number of steps is known now, and plain steps are what the strategy differentiates.
        state, steps = iterate(f, x0, max_steps=found.steps, adjoint=adjoint)
        return state, steps
    route = Route(
        traced.step,
        adjoint,
        found.steps,
        depth,
        found.residual,
        traced.constants,
        traced.initial,
        has_tangent=tangent is not None,
    )
    leaves = place(route, traced.constants, traced.initial, found.state[: len(start)])
    return trees.unflatten(traced.state_structure, leaves), found.steps


def _check(tol: Any, derivative_tol: Any, max_steps: Any, acceleration: Any, history: Any, adjoint: Any) -> None:
    """Raise if an argument makes no sense."""
    if not is_positive(tol):
        raise ArgumentError(f"tol must be a positive number, got {tol!r}")
    check_derivative_tol(derivative_tol)
    if not is_positive_integer(max_steps):
        raise ArgumentError(f"max_steps must be a positive integer, got {max_steps!r}")
    if acceleration not in (ANDERSON, None):
        raise ArgumentError(f"acceleration must be {ANDERSON!r} or None, got {acceleration!r}")
    if not is_positive_integer(history):
        raise ArgumentError(f"history must be a positive integer, got {history!r}")
    if not isinstance(adjoint, Adjoint):
        raise ArgumentError(f"adjoint must be a strategy such as us.Implicit(), got {adjoint!r}")
    if acceleration is not None and not isinstance(adjoint, Implicit):
        raise ArgumentError(
            f"{type(adjoint).__name__}() differentiates through plain steps, but accelerated ones were asked for. The "
            "right derivative of an accelerated search is that of the point it finds, us.Implicit(); to differentiate "
            "through the steps, pass acceleration=None"
        )
