"""Fixed points on arrays: plain steps, or steps accelerated by Anderson's method.

The one idea: close to a fixed point the residual f(x) - x is nearly a linear function of x. So the combination of the
last few residuals that is smallest, which is a small least-squares problem, tells which combination of the last few
images f(x) is nearest to the fixed point. On a linear map this is GMRES in another guise. (D. G. Anderson, 1965; the
form here is "type II", after H. F. Walker and P. Ni, 2011.)

Nothing here knows of graphs. A run is determined by where it starts and by its number of steps, so a run that was done
before can be done again without looking at tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._activity import ACTIVITY, SEARCH, Work
from unspool._autodiff.solvers.packing import Packing
from unspool.errors import ConvergenceError

# Residuals that are this much larger than the best one since the last restart: the extrapolation went astray.
RUNAWAY = 1e3

# Weight of the size of the coefficients, beside residuals of size one. It decides where the last residuals differ by
# rounding alone, and nowhere else.
REGULARISATION = 1e-8

Map = Callable[[Sequence[Any]], Sequence[Any]]


class Found(NamedTuple):
    """What a search for a fixed point came to: the last image, how often the map was applied, and the residual."""

    state: list[Any]
    steps: int
    residual: float


class Tangent(NamedTuple):
    """Which leaves of a state are tangents, those from a position on, and the residual that they have to reach."""

    begin: int
    tol: float


def search(
    function: Map, start: Sequence[Any], history: int, tol: float, max_steps: int, tangent: Tangent | None = None
) -> Found:
    """Apply a map until the residual |f(x) - x| / (1 + |x|) is at most ``tol``, or what the precision allows.

    With ``history`` 0 the next argument is the image; else it is extrapolated from that many earlier steps. Leaves that
    are a tangent have a tolerance of their own.
    """
    going = Search(start, history, tol, max_steps, tangent)
    # Nobody knows how many steps it will take, only how many it may.
    with ACTIVITY.doing(Work(SEARCH, None, lambda: going.steps)):
        while going.found is None:
            going.take(list(function(going.argument)))
    return going.found


class Search:
    """A search, one application of the map at a time: `take` the image of the `argument` until it is `found`."""

    def __init__(
        self, start: Sequence[Any], history: int, tol: float, max_steps: int, tangent: Tangent | None = None
    ) -> None:
        values = len(start) if tangent is None else tangent.begin
        self._iteration = Iteration(start, history, values)
        least = 16.0 * self._iteration.packing.coarsest
        self._tol, self._most = max(tol, least), max_steps
        self._slope_tol = np.inf if tangent is None else max(tangent.tol, least)
        self.steps = 0
        self.found: Found | None = None

    @property
    def argument(self) -> list[Any]:
        """What the map is to be applied to next."""
        return self._iteration.state

    def take(self, image: list[Any]) -> None:
        """Take the image of the argument; raise if there is no point in going on."""
        iteration, tol = self._iteration, self._tol
        iteration.take(image)
        self.steps += 1
        if iteration.residual <= tol and iteration.slope_residual <= self._slope_tol:
            self.found = Found(image, self.steps, iteration.residual)
            return
        if not np.isfinite(iteration.residual + iteration.slope_residual) and not iteration.can_restart:
            raise left_the_finite_numbers(iteration.residual, self.steps, tol)
        if self.steps == self._most and iteration.residual <= tol:
            message = f"the derivative still moves after {self._most} steps; raise max_steps, or derivative_tol"
            raise not_fixed(message, iteration.slope_residual, self._most, self._slope_tol, "t")
        if self.steps == self._most:
            raise none_found(iteration.residual, self._most, tol)
        iteration.advance()


def not_fixed(message: str, residual: float, steps: int, tol: float, what: str = "x") -> ConvergenceError:
    """Return the error for a state, or its tangent ``"t"``, that should be fixed and is not."""
    distance = "|f(x) - x| / (1 + |x|)" if what == "x" else "the change of the tangent t in a step, over 1 + |t|,"
    error = ConvergenceError(f"{message} ({distance} is {residual:.3g}, and {tol:.3g} was asked for)")
    error.residual, error.iterations, error.tolerance = residual, steps, tol
    return error


def left_the_finite_numbers(residual: float, steps: int, tol: float) -> ConvergenceError:
    """Return the error for a search whose numbers are not finite any more."""
    return not_fixed(f"the iteration left the finite numbers at step {steps}", residual, steps, tol)


def none_found(residual: float, steps: int, tol: float) -> ConvergenceError:
    """Return the error for a search that made all steps it may make."""
    return not_fixed(f"no fixed point after {steps} steps; raise max_steps, or tol", residual, steps, tol)


def repeat(function: Map, start: Sequence[Any], history: int, steps: int) -> list[Any]:
    """Return the last image of a search that is known to have applied the map so many times."""
    if not steps:
        return list(start)
    iteration = Iteration(start, history)
    for _ in range(steps - 1):
        iteration.take(list(function(iteration.state)))
        iteration.advance()
    return list(function(iteration.state))


class Iteration:
    """One search, step by step: `take` the image of the state, look at the residual, `advance` to the next state."""

    def __init__(self, start: Sequence[Any], history: int, values: int | None = None) -> None:
        self.packing = Packing(start)
        # Where the tangents begin, if some of the leaves are tangents.
        self._values = Packing(start[:values]).size
        self.residual = self.slope_residual = self._distance = np.inf
        self.state = list(start)
        self._image = list(start)
        self._best: tuple[float, list[Any]] = (np.inf, [])
        self._mixing = Mixing(history, self.packing.size, self.packing.dtype) if history and self.packing.size else None

    @property
    def can_restart(self) -> bool:
        """Whether the argument was extrapolated, so that there is a safer one to go on from."""
        return self._mixing is not None and self._mixing.count > 0

    def take(self, image: list[Any]) -> None:
        """Take the image of the state under the map."""
        self._image = image
        pack = self.packing.pack
        self._x, self._g = pack(self.state), pack(image)
        values = self._values
        self._distance, self.residual = distances(self._x[:values], self._g[:values])
        self.slope_residual = 0.0
        if values < self.packing.size:
            distance, self.slope_residual = distances(self._x[values:], self._g[values:])
            self._distance = float(np.hypot(self._distance, distance))

    def advance(self) -> None:
        """Choose the next argument."""
        if self._mixing is None:
            self.state = self._image
            return
        best, image = self._best
        if self.can_restart and not self._distance <= RUNAWAY * best:
            self._mixing.restart()
            self._best = (np.inf, [])
            self.state = image
            return
        if self._distance <= best:
            self._best = (self._distance, self._image)
        self.state = self.packing.unpack(self._mixing.extrapolate(self._x, self._g), self._image)


class Mixing:
    """Anderson's method on vectors: remembers how residuals and images changed in the last few steps."""

    def __init__(self, history: int, size: int, dtype: Any) -> None:
        self.count = 0
        # More directions than there are dimensions would be redundant.
        self._history = min(history, size)
        self.steps = 0
        self._residuals = np.empty((self._history, size), dtype)
        self._images = np.empty((self._history, size), dtype)
        self._last: tuple[Any, Any] | None = None

    def restart(self) -> None:
        """Forget all steps."""
        self.count = self.steps = 0
        self._last = None

    def extrapolate(self, x: Any, image: Any) -> Any:
        """Return where to go from an argument and its image."""
        residual = image - x
        if self._last is not None:
            row = self.steps % self._history
            np.subtract(residual, self._last[0], out=self._residuals[row])
            np.subtract(image, self._last[1], out=self._images[row])
            self.steps += 1
            self.count = min(self.steps, self._history)
        self._last = (residual, image)
        if not self.count:
            return image
        weights = least_squares(self._residuals[: self.count], residual)
        return image - weights @ self._images[: self.count]


def least_squares(rows: Any, target: Any) -> Any:
    """Return the weights with which the rows add up to the target as nearly as possible; small ones if that is open."""
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    sizes[sizes == 0.0] = 1.0
    count = len(rows)
    if not np.isfinite(sizes).all():
        return np.zeros(count, rows.dtype)
    system = np.concatenate([(rows / sizes[:, None]).T, REGULARISATION * np.eye(count, dtype=rows.dtype)])
    wanted = np.concatenate([target, np.zeros(count, target.dtype)])
    return np.linalg.lstsq(system, wanted, rcond=None)[0] / sizes


def distances(x: Any, image: Any) -> tuple[float, float]:
    """Return |f(x) - x| and |f(x) - x| / (1 + |x|), with Euclidean norms."""
    distance = float(np.linalg.norm(image - x))
    return distance, distance / (1.0 + float(np.linalg.norm(x)))
