"""B8: two loops whose steps are products of matrices: Newton–Schulz for the polar factor, and HOOI.

Newton–Schulz is X ← X (3 − XᵀX)/2 from X = A until ‖ΔX‖ < 1e-12. A has singular values between 0.01 and 1, and the loss
is the inner product of the limit with a fixed matrix. At the limit the derivative is that of a Sylvester equation,
which judges every form. Ours is the driver of `unspool.networks`, and the loop written out. ``tucker_hooi.py`` has the
other loop.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench.suite.loops import Compiled, checkpointed_loop, masked_scan, python_loop
from bench.suite.tucker_hooi import HOOI
from bench.suite.workload import Bar, Form, Options, Outcome, Reference, Row, Special, Workload, by_size, outcome

SMALLEST = 0.01
TOLERANCE = 1e-12
MOST_STEPS = 24

Run = Callable[[], Outcome]


class Polar(NamedTuple):
    """A matrix with its singular value decomposition, and the matrix of the loss."""

    matrix: np.ndarray
    left: np.ndarray
    values: np.ndarray
    right: np.ndarray
    weights: np.ndarray


def polar_problem(n: int) -> Polar:
    """Return a square matrix with singular values between 0.01 and 1, evenly spread in their logarithms."""
    random = np.random.default_rng(n)
    (left, _), (right, _), weights = (
        np.linalg.qr(random.standard_normal((n, n))),
        np.linalg.qr(random.standard_normal((n, n))),
        random.standard_normal((n, n)) / n,
    )
    values = np.geomspace(1.0, SMALLEST, n)
    return Polar((left * values) @ right.T, left, values, right, weights)


def known_polar(problem: Polar) -> Reference:
    """Return the exact loss and gradient: U = L Rᵀ, and L (M − Mᵀ)ᵢⱼ/(sᵢ + sⱼ) Rᵀ with M = Lᵀ C R."""
    left, values, right, weights = problem.left, problem.values, problem.right, problem.weights
    inside = left.T @ weights @ right
    gradient = left @ ((inside - inside.T) / (values[:, None] + values)) @ right.T
    return Reference(float(np.sum(weights * (left @ right.T))), np.ravel(gradient), 1e-9)


def step(X: Any) -> Any:
    """Make a step, in any library whose arrays are like NumPy's."""
    return 1.5 * X - 0.5 * (X @ (X.mT @ X))


# --- polar: unspool --------------------------------------------------------------------------------------------------


def polar_driver(problem: Polar) -> Run:
    """The driver of ours."""
    import unspool as us

    def run() -> Outcome:
        A = us.tensor(problem.matrix)
        found = us.networks.newton_schulz_polar(A, scale=1.0, tol=TOLERANCE, max_steps=MOST_STEPS)
        return _differentiated(problem, A, found.state, found.steps)

    return run


def polar_python(problem: Polar, traced: bool) -> Run:
    """A plain loop, or the same loop over a step that is traced once."""
    import unspool as us

    def moved(X: Any) -> Any:
        new = step(X)
        return new, us.linalg.norm(new - X)

    advance = us.fragment(moved) if traced else moved

    def run() -> Outcome:
        A = us.tensor(problem.matrix)
        return _differentiated(problem, A, *python_loop(advance, A, TOLERANCE, MOST_STEPS))

    return run


def polar_iterate(problem: Polar) -> Run:
    """The engine runs the steps, and tests between them."""
    import unspool as us

    def still(new: Any, old: Any) -> Any:
        return us.linalg.norm(new - old) < TOLERANCE

    def run() -> Outcome:
        A = us.tensor(problem.matrix)
        return _differentiated(problem, A, *us.iterate(step, A, until=still, max_steps=MOST_STEPS))

    return run


def _differentiated(problem: Polar, A: Any, X: Any, steps: int) -> Outcome:
    """Return loss and gradient of a polar factor of ours."""
    import unspool as us

    loss = us.sum(problem.weights * X)
    value, gradient = us.eval(loss, loss.grad(A))
    return outcome(value, gradient, steps)


# --- polar: other libraries, and by hand ------------------------------------------------------------------------------


def polar_torch(problem: Polar) -> Run:
    """PyTorch, as its users write it."""
    import torch

    weights = torch.tensor(problem.weights)

    def advance(X: Any) -> Any:
        new = step(X)
        return new, torch.linalg.matrix_norm((new - X).detach()).item()

    def run() -> Outcome:
        A = torch.tensor(problem.matrix, requires_grad=True)
        X, steps = python_loop(advance, A, TOLERANCE, MOST_STEPS)
        loss = torch.sum(weights * X)
        (gradient,) = torch.autograd.grad(loss, A)
        return outcome(loss.item(), gradient.numpy(), steps)

    return run


def polar_autograd(problem: Polar) -> Run:
    """HIPS autograd: values are boxed, and the box shows the array."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    def advance(X: Any) -> Any:
        new = 1.5 * X - 0.5 * anp.dot(X, anp.dot(X.T, X))
        return new, np.linalg.norm(new._value - X._value)

    def run() -> Outcome:
        steps = 0

        def loss(A: Any) -> Any:
            nonlocal steps
            X, steps = python_loop(advance, A, TOLERANCE, MOST_STEPS)
            return anp.sum(problem.weights * X)

        value, gradient = value_and_grad(loss)(problem.matrix)
        return outcome(value, gradient, steps)

    return run


def polar_jax_unrolled(problem: Polar) -> Run:
    """JAX, compiled as one long expression: the number of steps that the others found is told in advance."""
    known = _states(problem)[1]

    def unrolled(advance: Any, X: Any, *stop: Any) -> Any:
        for _ in range(known):
            X = advance(X)[0]
        return X, known

    return polar_jax(problem, unrolled)


def polar_jax(problem: Polar, loop: Callable[..., tuple[Any, Any]]) -> Run:
    """JAX, compiled: a scan of which the steps after the stop are ignored, or the loop of Equinox, which stops."""
    import jax
    import jax.numpy as jnp

    def advance(X: Any) -> Any:
        new = step(X)
        return new, jnp.linalg.norm(jax.lax.stop_gradient(new - X))

    def loss(A: Any, weights: Any) -> Any:
        X, steps = loop(advance, A, TOLERANCE, MOST_STEPS)
        return jnp.sum(weights * X), steps

    return Compiled(loss, problem.matrix, problem.weights)


def polar_by_hand(problem: Polar) -> Run:
    """The adjoint in NumPy: X̄ = 1.5 Ȳ − 0.5 (Ȳ S + X (M + Mᵀ)) with S = XᵀX, which is kept, and M = XᵀȲ."""

    def run() -> Outcome:
        states, steps, squares = _states(problem)
        ct = problem.weights
        for X, square in zip(reversed(states[:-1]), reversed(squares), strict=True):
            inside = X.T @ ct
            inside += inside.T.copy()
            update = ct @ square
            update += X @ inside
            update *= -0.5
            update += 1.5 * ct
            ct = update
        return outcome(np.vdot(problem.weights, states[-1]), ct, steps)

    return run


def _states(problem: Polar) -> tuple[list[np.ndarray], int, list[np.ndarray]]:
    """Return X before the first and after each step, how many steps there are, and XᵀX of each."""
    X = problem.matrix
    states: list[np.ndarray] = [X]
    squares: list[np.ndarray] = []
    change = np.empty_like(X)
    while len(squares) < MOST_STEPS:
        square = X.T @ X
        new = X @ square
        new *= -0.5
        new += np.multiply(X, 1.5, out=change)
        np.subtract(new, X, out=change)
        states.append(new)
        squares.append(square)
        X = new
        if math.sqrt(np.vdot(change, change)) < TOLERANCE:
            break
    return states, len(squares), squares


# --- the workload -----------------------------------------------------------------------------------------------------

POLAR = Workload(
    key="B8",
    title="Newton–Schulz for the polar factor",
    sizes=by_size(n=(64, 256, 1024)),
    problem=polar_problem,
    forms=(
        Form("unspool, plain", "unspool", partial(polar_python, traced=False), "ours"),
        Form("unspool, fragment", "unspool", partial(polar_python, traced=True), "ours"),
        Form("unspool, iterate", "unspool", polar_iterate, "ours"),
        Form("unspool, driver", "unspool", polar_driver, "ours"),
        Form("PyTorch", "torch", polar_torch, "peer"),
        Form("JAX scan", "jax", partial(polar_jax, loop=masked_scan), "peer"),
        Form("JAX unrolled", "jax", polar_jax_unrolled, "peer"),
        Form("Equinox", "equinox", partial(polar_jax, loop=checkpointed_loop), "peer"),
        Form("autograd", "autograd", polar_autograd, "peer"),
        Form("by hand", "numpy", polar_by_hand, "limit"),
    ),
    reference=known_polar,
    where="bench.suite.b8_newton_schulz:POLAR",
)


def run(options: Options) -> list[Row]:
    """Measure both loops, each with half of the time."""
    from bench.suite.measure import measure

    half = dataclasses.replace(options, seconds=options.seconds / 2)
    return [*measure(POLAR, half, case="polar"), *measure(HOOI, half, case="hooi")]


WORKLOAD = Special(
    key="B8",
    title="Newton–Schulz and HOOI",
    run=run,
    bars=(Bar("limit", 1.3, case="polar"), Bar("peer", 1.0, case="polar"), Bar("peer", 1.0, case="hooi")),
)
