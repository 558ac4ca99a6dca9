"""``unspool demo ode``: hares and lynxes by a solver that chooses its steps, and how they depend on the parameters.

dx/dt = a x − b x y and dy/dt = −c y + d x y, by the pair of order 5 and 4 of Dormand and Prince. Steps whose error is
too large are rejected. The invariant d x − c log x + b y − a log y shows how exact the solution is. Beside the gradient
stand the variational equations, which SciPy solves together with the equation itself: nothing of a solver is
differentiated there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, number
from unspool._cli.progress import Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "hares and lynxes by an adaptive solver, through accepted steps"

COLUMNS = (Column("time", ".4f", 12), Column("step_size", ".3e", 12), Column("invariant", ".12f", 18), Column("change"))

PARAMETERS, START = np.array([1.1, 0.4, 0.4, 0.1]), np.array([10.0, 5.0])

# J. R. Dormand and P. J. Prince, J. Comput. Appl. Math. 6, 19 (1980). The last row is the solution of order 5.
STAGES: Sequence[Sequence[float]] = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
FOURTH = (5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40)
ERROR = tuple(fifth - fourth for fifth, fourth in zip((*STAGES[-1], 0.0), FOURTH, strict=True))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the length of time."""
    parser.add_argument("--end", metavar="X", type=number(0, above=True), default=30.0, help="when to stop the clock")
    asked = "the largest error of a step, beside the solution"
    add_common_options(parser, "ode", steps=100_000, tol=1e-9, unit="step", tol_help=asked)


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story

    exact = float(invariant(PARAMETERS, START))

    def run(on_step: OnStep) -> Outcome:
        p, y = us.tensor(PARAMETERS, name="p"), us.tensor(START)
        t, h, last, taken, tries = 0.0, 0.1, exact, 0, 0
        while t < chosen.end and tries < chosen.steps:
            h = min(h, chosen.end - t)
            new, error = advance(p, y, h, chosen.tol)
            tries += 1
            if error <= 1:
                t, y, taken = (chosen.end if h == chosen.end - t else t + h), new, taken + 1
                now = float(invariant(PARAMETERS, y.eval()))
                on_step(taken, y, {"time": t, "step_size": h, "invariant": now, "change": now - last})
                last = now
            h *= min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.2))
        hares = y[0]

        def tables(gradient: Any) -> Sequence[Table]:
            state, sensitivities = variational(t)
            values = [
                Comparison(name, float(x), known) for name, x, known in zip(("hares", "lynxes"), y, state, strict=True)
            ]
            slopes = [
                Comparison(f"in {name}", float(found), known, ".8f")
                for name, found, known in zip("abcd", gradient.eval(), sensitivities[0], strict=True)
            ]
            note = f"{tries - taken} of {tries} steps were rejected; the gradient goes through the others."
            return [
                compare(f"State at t = {t:g}", values, heads=("", "loop", "SciPy")),
                compare(
                    "Gradient of the hares, through every step", slopes, heads=("", "loop", "variational"), notes=[note]
                ),
            ]

        return Outcome(loss=hares, variable=p, converged=t >= chosen.end, tables=tables)

    return Story(
        title=f"Hares and lynxes until t = {chosen.end:g}, with errors of a step up to {chosen.tol:g}",
        about="Steps as long as their error allows; then the number of hares is differentiated in all parameters.",
        run=run,
        columns=COLUMNS,
        quantity="invariant",
        exact=exact,
        loss="hares",
        step="step",
    )


def slope(p: us.Tensor, y: us.Tensor) -> us.Tensor:
    """Return dy/dt."""
    together = y[0] * y[1]
    return us.stack([p[0] * y[0] - p[1] * together, p[3] * together - p[2] * y[1]])


def advance(p: us.Tensor, y: us.Tensor, h: float, tol: float) -> tuple[us.Tensor, float]:
    """Return the state after a step, and the error of the step in units of what is allowed."""
    slopes: list[us.Tensor] = []
    for row in STAGES:
        slopes.append(slope(p, y + h * _combine(row, slopes) if row else y))
    new = y + h * _combine(STAGES[-1], slopes)
    scale = 1e-3 + us.maximum(us.abs(y), us.abs(new))
    return new, float(us.max(us.abs(h * _combine(ERROR, slopes)) / scale)) / max(tol, 1e-15)


def _combine(weights: Sequence[float], slopes: Sequence[us.Tensor]) -> Any:
    return sum((weight * k for weight, k in zip(weights, slopes, strict=False) if weight), 0.0)


def invariant(p: Any, y: Any) -> Any:
    """Return what does not change in time."""
    return p[3] * y[0] - p[2] * np.log(y[0]) + p[1] * y[1] - p[0] * np.log(y[1])


def variational(end: float) -> tuple[Any, Any]:
    """Return the state at a time and its derivatives in the parameters, from their own equations, by SciPy.

    Examples
    --------
    >>> state, sensitivities = variational(1.0)
    >>> state.shape, sensitivities.shape
    ((2,), (2, 4))
    """
    from scipy.integrate import solve_ivp

    a, b, c, d = PARAMETERS

    def both(t: float, z: Any) -> Any:
        (x, y), S = z[:2], z[2:].reshape(2, 4)
        J = np.array([[a - b * y, -b * x], [d * y, d * x - c]])
        K = np.array([[x, -x * y, 0, 0], [0, 0, -y, x * y]])
        return np.concatenate([[a * x - b * x * y, d * x * y - c * y], (J @ S + K).ravel()])

    found = solve_ivp(both, (0.0, end), [*START, *np.zeros(8)], method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    return found[:2], found[2:].reshape(2, 4)
