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
from typing import Any, NamedTuple

import numpy as np

from bench.suite.tucker_hooi import HOOI
from bench.suite.workload import Bar, Form, Options, Outcome, Reference, Row, Special, Workload, outcome

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


# --- polar: unspool --------------------------------------------------------------------------------------------------


def polar_driver(problem: Polar) -> Run:
    """The driver of ours."""
    import unspool as us

    def run() -> Outcome:
        A = us.tensor(problem.matrix)
        found = us.networks.newton_schulz_polar(A, scale=1.0, tol=TOLERANCE, max_steps=MOST_STEPS)
        loss = us.sum(problem.weights * found.state)
        value, gradient = us.eval(loss, loss.grad(A))
        return outcome(value, gradient, found.steps)

    return run


def polar_plain(problem: Polar) -> Run:
    """A plain loop."""
    return _polar_loop(problem, lambda step: step)


def polar_fragment(problem: Polar) -> Run:
    """The same loop over a step that is traced once."""
    import unspool as us

    return _polar_loop(problem, us.fragment)


def _polar_loop(problem: Polar, decorate: Callable[[Any], Any]) -> Run:
    import unspool as us

    @decorate
    def advance(X: Any) -> Any:
        new = 1.5 * X - 0.5 * (X @ (X.mT @ X))
        return new, us.linalg.norm(new - X)

    def run() -> Outcome:
        A = us.tensor(problem.matrix)
        X, steps = A, 0
        while steps < MOST_STEPS:
            X, change = advance(X)
            steps += 1
            if float(change) < TOLERANCE:
                break
        loss = us.sum(problem.weights * X)
        value, gradient = us.eval(loss, loss.grad(A))
        return outcome(value, gradient, steps)

    return run


def polar_iterate(problem: Polar) -> Run:
    """The engine runs the steps, and tests between them."""
    import unspool as us

    def run() -> Outcome:
        A = us.tensor(problem.matrix)
        X, steps = us.iterate(
            lambda X: 1.5 * X - 0.5 * (X @ (X.mT @ X)),
            A,
            until=lambda new, old: us.linalg.norm(new - old) < TOLERANCE,
            max_steps=MOST_STEPS,
        )
        loss = us.sum(problem.weights * X)
        value, gradient = us.eval(loss, loss.grad(A))
        return outcome(value, gradient, steps)

    return run


# --- polar: other libraries, and by hand ------------------------------------------------------------------------------


def polar_torch(problem: Polar) -> Run:
    """PyTorch, as its users write it."""
    import torch

    weights = torch.tensor(problem.weights)

    def run() -> Outcome:
        A = torch.tensor(problem.matrix, requires_grad=True)
        X, steps = A, 0
        while steps < MOST_STEPS:
            new = 1.5 * X - 0.5 * (X @ (X.mT @ X))
            change = torch.linalg.matrix_norm((new - X).detach()).item()
            X, steps = new, steps + 1
            if change < TOLERANCE:
                break
        loss = torch.sum(weights * X)
        (gradient,) = torch.autograd.grad(loss, A)
        return outcome(loss.item(), gradient.numpy(), steps)

    return run


def polar_autograd(problem: Polar) -> Run:
    """HIPS autograd: values are boxed, and the box shows the array."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    def run() -> Outcome:
        steps = 0

        def loss(A: Any) -> Any:
            nonlocal steps
            X, steps = A, 0
            while steps < MOST_STEPS:
                before, steps = X._value, steps + 1
                X = 1.5 * X - 0.5 * anp.dot(X, anp.dot(X.T, X))
                if np.linalg.norm(X._value - before) < TOLERANCE:
                    break
            return anp.sum(problem.weights * X)

        value, gradient = value_and_grad(loss)(problem.matrix)
        return outcome(value, gradient, steps)

    return run


def polar_jax_scan(problem: Polar) -> Run:
    """JAX, compiled: a scan over as many steps as may be needed, of which those after the stop are ignored."""
    import jax
    import jax.numpy as jnp

    def advance(state: Any, _: Any) -> Any:
        X, steps, going = state
        new = 1.5 * X - 0.5 * (X @ (X.mT @ X))
        change = jnp.linalg.norm(jax.lax.stop_gradient(new - X))
        return (jnp.where(going, new, X), steps + going, going & (change >= TOLERANCE)), None

    def loss(A: Any, weights: Any) -> Any:
        state = (A, jnp.zeros((), int), jnp.ones((), bool))
        (X, steps, _), _ = jax.lax.scan(advance, state, None, length=MOST_STEPS)
        return jnp.sum(weights * X), steps

    return _compiled(problem, loss)


def polar_jax_unrolled(problem: Polar) -> Run:
    """JAX, compiled as one long expression: the number of steps that the others found is told in advance."""
    import jax.numpy as jnp

    steps = _states(problem)[1]

    def loss(A: Any, weights: Any) -> Any:
        X = A
        for _ in range(steps):
            X = 1.5 * X - 0.5 * (X @ (X.mT @ X))
        return jnp.sum(weights * X), steps

    return _compiled(problem, loss)


def polar_equinox(problem: Polar) -> Run:
    """Equinox: a while loop that stops, with checkpoints for the most steps there may be."""
    import equinox.internal as eqxi
    import jax
    import jax.numpy as jnp

    def advance(state: Any) -> Any:
        X, _, steps = state
        new = 1.5 * X - 0.5 * (X @ (X.mT @ X))
        return new, jnp.linalg.norm(jax.lax.stop_gradient(new - X)), steps + 1

    def loss(A: Any, weights: Any) -> Any:
        state = (A, jnp.ones(()), jnp.zeros((), int))
        proceed = lambda state: state[1] >= TOLERANCE  # noqa: E731
        X, _, steps = eqxi.while_loop(proceed, advance, state, max_steps=MOST_STEPS, kind="checkpointed")
        return jnp.sum(weights * X), steps

    return _compiled(problem, loss)


def _compiled(problem: Any, loss: Any) -> Run:
    """Return the run of a function that gives a loss and the steps, of the first two arrays of a problem."""
    import jax

    function = jax.jit(jax.value_and_grad(loss, has_aux=True))
    arguments = jax.device_put(problem.matrix), jax.device_put(problem.weights)

    def run() -> Outcome:
        (value, steps), gradient = function(*arguments)
        return outcome(value, gradient, int(steps))

    return run


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
    states, squares = [X], []
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
    sizes={"small": {"n": 64}, "medium": {"n": 256}, "large": {"n": 1024}},
    problem=polar_problem,
    forms=(
        Form("unspool, plain", "unspool", polar_plain, "ours"),
        Form("unspool, fragment", "unspool", polar_fragment, "ours"),
        Form("unspool, iterate", "unspool", polar_iterate, "ours"),
        Form("unspool, driver", "unspool", polar_driver, "ours"),
        Form("PyTorch", "torch", polar_torch, "peer"),
        Form("JAX scan", "jax", polar_jax_scan, "peer"),
        Form("JAX unrolled", "jax", polar_jax_unrolled, "peer"),
        Form("Equinox", "equinox", polar_equinox, "peer"),
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
