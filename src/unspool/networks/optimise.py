"""Hand a loss over nested tensors to the minimisers of SciPy.

SciPy's minimisers know one real vector. A variational state is a structure: site tensors, a network, a dictionary of
parameters, some of them complex. The one idea: a layout says where each leaf lies in the vector, with a complex leaf as
its real and its imaginary parts. The loss may be a loop that reads values and stops on them; each evaluation runs it
once, and its gradient is the gradient through all its steps. Methods of second order get products of the Hessian with
vectors from the same graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO, TypeAlias

import numpy as np
import optree

import unspool as us
from unspool.errors import ArgumentError, DTypeError, NaNError
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table

__all__ = ["MinimiseResult", "minimise", "progress_line"]

OnStep: TypeAlias = Callable[[int, Any, dict[str, float]], object]

_NAMESPACE = "unspool"


@printed_as_table
class MinimiseResult(NamedTuple):
    """The result of `minimise`.

    Attributes
    ----------
    state : pytree of Tensor
        The best state, nested like the start. Its tensors are new leaves.
    loss : Tensor
        The loss of these leaves, ready to be differentiated: ``loss.grad(state)``.
    steps : int
        Iterations of the minimiser.
    evaluations : int
        How often loss and gradient were computed, without the last time for ``loss``.
    converged : bool
        Whether the minimiser reached its tolerance.
    message : str
        Why it stopped, in its own words.
    history : tuple of dict
        What ``on_step`` was given: ``loss``, ``change``, ``gradient`` (its largest entry), ``evaluations``.
    """

    state: Any
    loss: us.Tensor
    steps: int
    evaluations: int
    converged: bool
    message: str
    history: tuple[dict[str, float], ...]


@shows_progress("iterations")
def minimise(
    loss: Callable[..., Any],
    start: Any,
    *,
    method: str = "L-BFGS-B",
    tol: float = 1e-6,
    max_steps: int = 500,
    on_step: OnStep | None = None,
    progress: bool = False,
    args: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
) -> MinimiseResult:
    """Minimise a loss over a nested state by `scipy.optimize.minimize`.

    Parameters
    ----------
    loss : callable
        ``loss(state, *args)`` returns a real scalar. It may loop, look at values and stop on them.
    start : pytree
        Tensors, arrays or floats; real or complex.
    method : str
        Of first order ``"L-BFGS-B"``, ``"BFGS"`` or ``"CG"``; of second order ``"Newton-CG"``, ``"trust-ncg"`` or
        ``"trust-krylov"``, which take products of the Hessian with vectors.
    tol : float
        The largest entry of the gradient at a minimum (for trust regions its norm); for ``"Newton-CG"`` the mean change
        of an entry in a step. L-BFGS-B also stops where rounding hides any further descent, and calls that converged.
        Other methods call it a failure, so do not ask them for more than half of the digits.
    max_steps : int
        The most iterations. Running out of them is no error: see ``converged``.
    on_step : callable, optional
        ``on_step(step, state, values)`` after each iteration; see ``history`` of the result, and `progress_line`. As in
        SciPy, ``StopIteration`` ends the search; other exceptions pass through.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    args : sequence
        More arguments of ``loss``, held fixed.
    options : mapping, optional
        Options of the method in SciPy's names; they win.

    Returns
    -------
    MinimiseResult

    Raises
    ------
    NaNError
        If loss, gradient or a product with the Hessian is not finite somewhere on the way.
    NonScalarLossError, ComplexLossError
        If the loss is no real scalar.

    Examples
    --------
    >>> import unspool as us
    >>> def loss(p):
    ...     return (p["x"] - 3.0) ** 2 + us.abs(p["z"] - 1j) ** 2
    >>> found = us.networks.minimise(loss, {"x": 0.0, "z": 1.0 + 0.0j})
    >>> found.converged, round(float(found.state["x"]), 6), round(abs(complex(found.state["z"]) - 1j), 6)
    (True, 3.0, 0.0)
    """
    from scipy import optimize

    settings = _settings(method, _checks.fraction(tol, "tol"), _checks.count(max_steps, "max_steps"), options)
    layout = _Layout(start)
    problem = _Problem(loss, tuple(args), layout)
    monitor = _Monitor(problem, on_step)
    found = optimize.minimize(
        problem.value_and_gradient,
        layout.start,
        jac=True,
        hessp=problem.hessian_product if method in _SECOND_ORDER else None,
        method=method,
        callback=monitor,
        options=settings,
    )
    state = layout.unpack(found.x)
    return MinimiseResult(
        state=state,
        loss=us.asarray(loss(state, *args)),
        steps=int(found.nit),
        evaluations=problem.evaluations,
        converged=bool(found.success),
        message=str(found.message),
        history=tuple(monitor.history),
    )


def progress_line(stream: TextIO | None = None) -> OnStep:
    """Return an ``on_step`` that keeps one line up to date with step, loss and whatever else is reported.

    On a terminal the line is written over; elsewhere each step is a line of its own. It serves every loop of
    `unspool.networks`.

    Parameters
    ----------
    stream : text stream, optional
        Where to write; by default the standard error stream.

    Examples
    --------
    >>> import sys
    >>> import unspool as us
    >>> show = us.networks.progress_line(sys.stdout)
    >>> show(3, None, {"loss": -0.66023109, "change": 1.2e-5})
    step 3  loss -0.6602311  change 1.2e-05
    """

    def show(step: int, state: Any, values: dict[str, float]) -> None:
        out = sys.stderr if stream is None else stream
        text = "  ".join([f"step {step}", *(f"{name} {value:.7g}" for name, value in values.items())])
        out.write(f"\r\x1b[2K{text}" if out.isatty() else f"{text}\n")
        out.flush()

    return show


# --- settings of SciPy's methods -------------------------------------------------------------------------------------

_SECOND_ORDER = ("Newton-CG", "trust-ncg", "trust-krylov")
_FIRST_ORDER = ("L-BFGS-B", "BFGS", "CG")


def _settings(method: str, tol: float, max_steps: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of a method, so that ``tol`` and ``max_steps`` mean the same in all of them."""
    if method not in _FIRST_ORDER + _SECOND_ORDER:
        raise ArgumentError(f"method must be one of {', '.join(_FIRST_ORDER + _SECOND_ORDER)}, but is {method!r}")
    settings: dict[str, Any] = {"maxiter": max_steps, ("xtol" if method == "Newton-CG" else "gtol"): tol}
    if method == "L-BFGS-B":
        # Only rounding stops it before the gradient does. A line search takes at most 20 evaluations.
        settings |= {"ftol": 8 * np.finfo(np.float64).eps, "maxfun": 25 * max_steps}
    return settings | dict(options or {})


# --- structures and vectors ------------------------------------------------------------------------------------------


class _Layout:
    """Where each leaf of a state lies in a vector of float64: a complex one as real parts, then imaginary parts."""

    def __init__(self, start: Any) -> None:
        leaves, self._structure = optree.tree_flatten(start, namespace=_NAMESPACE)
        if not leaves:
            raise ArgumentError(f"start must have at least one tensor, but is {start!r}")
        arrays = [us.asarray(leaf).eval() for leaf in leaves]
        for array, accessor in zip(arrays, self._structure.accessors(), strict=True):
            if array.dtype.kind not in "fc":
                name = accessor.codify("start")
                raise DTypeError(f"{name} must be floating-point or complex to be varied, but has dtype {array.dtype}")
            if not np.all(np.isfinite(array)):
                raise ArgumentError(f"{accessor.codify('start')} must be finite, but has entries that are not")
        self._kinds = [(array.shape, array.dtype) for array in arrays]
        self.start = self._join(arrays)

    def pack(self, tree: Any) -> Any:
        """Return the vector of a structure of arrays or tensors."""
        return self._join([np.asarray(leaf) for leaf in self._structure.flatten_up_to(tree)])

    def unpack(self, vector: Any) -> Any:
        """Return the structure of a vector, with new leaves that own their data."""
        leaves, begin = [], 0
        for shape, dtype in self._kinds:
            size = int(np.prod(shape))
            if dtype.kind == "c":
                values = vector[begin : begin + size] + 1j * vector[begin + size : begin + 2 * size]
                begin += 2 * size
            else:
                values = vector[begin : begin + size]
                begin += size
            leaves.append(us.tensor(values.reshape(shape).astype(dtype)))
        return optree.tree_unflatten(self._structure, leaves)

    def _join(self, arrays: Sequence[Any]) -> Any:
        parts = [part for a in arrays for part in ((a.real, a.imag) if a.dtype.kind == "c" else (a,))]
        return np.concatenate([part.astype(np.float64).ravel() for part in parts])


# --- the loss as SciPy sees it ---------------------------------------------------------------------------------------


class _Point(NamedTuple):
    """A vector at which the loss was computed, and what was found there."""

    vector: Any
    loss: float
    largest_slope: float


class _Problem:
    """Loss, gradient and Hessian as functions of a vector; only numbers outlive an evaluation, not its graph."""

    def __init__(self, loss: Callable[..., Any], args: tuple[Any, ...], layout: _Layout) -> None:
        self._loss = loss
        self._args = args
        self.layout = layout
        self._curved: tuple[Any, Callable[..., Any]] | None = None
        self.evaluations = 0
        self.tried: list[_Point] = []

    def value_and_gradient(self, vector: Any) -> tuple[float, Any]:
        """Return the loss and its gradient."""
        self._curved = None
        both = us.value_and_grad(self._loss)(self.layout.unpack(vector), *self._args)
        value, tree = us.eval(both)
        gradient, loss = self.layout.pack(tree), float(value)
        self.evaluations += 1
        if not np.isfinite(loss):
            raise NaNError(f"the loss is {loss} at evaluation {self.evaluations}")
        self._refuse_nan(gradient, "the gradient")
        self.tried.append(_Point(vector.copy(), loss, float(np.max(np.abs(gradient), initial=0.0))))
        return loss, gradient

    def hessian_product(self, vector: Any, direction: Any) -> Any:
        """Return the Hessian times a direction. One graph of the gradient serves all directions at a point."""
        if self._curved is None or not np.array_equal(self._curved[0], vector):
            _, push = us.linearize(lambda s: us.grad(self._loss)(s, *self._args), self.layout.unpack(vector))
            self._curved = (vector.copy(), push)
        product = self.layout.pack(us.eval(self._curved[1](self.layout.unpack(direction))))
        self._refuse_nan(product, "a product of the Hessian with a vector")
        return product

    def accept(self, vector: Any) -> _Point:
        """Return what was found at a vector; what was tried before is forgotten."""
        if not any(np.array_equal(point.vector, vector) for point in self.tried):
            self.value_and_gradient(vector)
        self.tried = [point for point in self.tried if np.array_equal(point.vector, vector)][-1:]
        return self.tried[0]

    def _refuse_nan(self, vector: Any, what: str) -> None:
        wrong = int(np.count_nonzero(~np.isfinite(vector)))
        if wrong:
            raise NaNError(
                f"{what} has {wrong} of {vector.size} entries that are not finite, at evaluation {self.evaluations}; "
                "us.debug.check_nan() tells which operation made them"
            )


class _Monitor:
    """What SciPy calls after an iteration; it keeps the history and passes it on."""

    def __init__(self, problem: _Problem, on_step: OnStep | None) -> None:
        self._problem = problem
        self._on_step = on_step
        self.history: list[dict[str, float]] = []

    def __call__(self, intermediate_result: Any) -> None:
        before = self._problem.tried[0].loss
        point = self._problem.accept(intermediate_result.x)
        values = {
            "loss": point.loss,
            "change": point.loss - before,
            "gradient": point.largest_slope,
            "evaluations": float(self._problem.evaluations),
        }
        self.history.append(values)
        if self._on_step is not None:
            self._on_step(len(self.history), self._problem.layout.unpack(point.vector), values)
