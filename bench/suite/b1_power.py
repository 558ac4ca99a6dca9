"""B1: power iteration with a dense symmetric matrix, stopped when the vector stands still.

v ← A v / ‖A v‖ until ‖Δv‖ < 1e-10; the loss is (c·v)², its gradient that with respect to A, through all the steps. The
eigenvalues of A are 1 and numbers up to 0.9, so about 200 steps are taken whatever the size. They are known, and the
implicit rule for the eigenvector judges every form.

PyTorch and autograd add an outer product to the gradient in every step. By hand they are gathered into one product of
matrices at the end. A scan of JAX runs all the steps it may and ignores those after the stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench.suite.loops import Compiled, checkpointed_loop, masked_scan, python_loop
from bench.suite.workload import Bar, Form, Outcome, Reference, Workload, by_size, outcome

GAP = 0.1
TOLERANCE = 1e-10
MOST_STEPS = 400

# A gradient with more entries than this is compared by its product with a fixed vector.
MOST_ENTRIES = 1 << 20

Run = Callable[[], Outcome]


class Problem(NamedTuple):
    """A matrix, its eigenvalues and eigenvectors, the start, the vector of the loss, and when to stop."""

    matrix: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    start: np.ndarray
    weights: np.ndarray
    tolerance: float
    most: int


def problem(n: int, tolerance: float = TOLERANCE, most: int = MOST_STEPS) -> Problem:
    """Return a matrix with eigenvalues between 0 and 0.9, and 1, a start and the vector of the loss."""
    random = np.random.default_rng(n)
    vectors, _ = np.linalg.qr(random.standard_normal((n, n)))
    values = np.append(np.linspace(0.0, 1.0 - GAP, n - 1), 1.0)
    matrix = (vectors * values) @ vectors.T
    start, weights = random.standard_normal((2, n)) / math.sqrt(n)
    return Problem((matrix + matrix.T) / 2, values, vectors, start, weights, tolerance, most)


def known(problem: Problem) -> Reference:
    """Return what the loop converges to: the loss of the eigenvector, and its derivative by the implicit rule."""
    vector = problem.vectors[:, -1]
    overlap = problem.weights @ vector
    others = problem.vectors[:, :-1]
    moved = others @ ((others.T @ problem.weights) / (1.0 - problem.values[:-1]))
    gradient = np.outer(2.0 * overlap * moved, vector)
    # The loop stops about 1e-9 away from the limit, and its derivative some ten times as far.
    return Reference(overlap**2, ended(overlap**2, gradient, 0).gradient, 1e-6)


def ended(value: Any, gradient: Any, steps: int) -> Outcome:
    """Return an outcome; a large gradient is multiplied with a fixed vector."""
    whole = np.asarray(gradient)
    if whole.size > MOST_ENTRIES:
        whole = whole @ np.cos(np.arange(whole.shape[1]))
    return outcome(value, whole, steps)


# --- unspool ---------------------------------------------------------------------------------------------------------


def python_form(problem: Problem, traced: bool) -> Run:
    """A plain loop, or the same loop over a step that is traced once."""
    import unspool as us

    def step(A: Any, v: Any) -> Any:
        y = A @ v
        new = y / us.linalg.norm(y)
        return new, us.linalg.norm(new - v)

    advance = us.fragment(step) if traced else step

    def run() -> Outcome:
        A, start = us.tensor(problem.matrix), us.tensor(problem.start)
        v, steps = python_loop(lambda v: advance(A, v), start, problem.tolerance, problem.most)
        return _differentiated(problem, A, v, steps)

    return run


def iterate(problem: Problem) -> Run:
    """The engine runs the steps, and tests between them."""
    import unspool as us

    def still(new: Any, old: Any) -> Any:
        return us.linalg.norm(new - old) < problem.tolerance

    def run() -> Outcome:
        A, v = us.tensor(problem.matrix), us.tensor(problem.start)

        def advance(v: Any) -> Any:
            y = A @ v
            return y / us.linalg.norm(y)

        v, steps = us.iterate(advance, v, until=still, max_steps=problem.most)
        return _differentiated(problem, A, v, steps)

    return run


def _differentiated(problem: Problem, A: Any, v: Any, steps: int) -> Outcome:
    """Return loss and gradient of a vector of ours."""
    import unspool as us

    loss = (problem.weights @ v) ** 2
    value, gradient = us.eval(loss, loss.grad(A))
    return ended(value, gradient, steps)


# --- other libraries --------------------------------------------------------------------------------------------------


def torch_eager(problem: Problem) -> Run:
    """PyTorch, as its users write it."""
    import torch

    def run() -> Outcome:
        A = torch.tensor(problem.matrix, requires_grad=True)
        start, c = torch.tensor(problem.start), torch.tensor(problem.weights)

        def advance(v: Any) -> Any:
            y = A @ v
            new = y / torch.linalg.vector_norm(y)
            return new, torch.linalg.vector_norm(new - v).item()

        v, steps = python_loop(advance, start, problem.tolerance, problem.most)
        loss = (c @ v) ** 2
        (gradient,) = torch.autograd.grad(loss, A)
        return ended(loss.item(), gradient.numpy(), steps)

    return run


def autograd_boxes(problem: Problem) -> Run:
    """HIPS autograd: values are boxed, and the box shows the array."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    def run() -> Outcome:
        steps = 0

        def loss(A: Any) -> Any:
            nonlocal steps
            v: Any = problem.start
            before, steps = problem.start, 0
            while steps < problem.most:
                steps += 1
                y = anp.dot(A, v)
                v = y / anp.sqrt(anp.dot(y, y))
                if np.linalg.norm(v._value - before) < problem.tolerance:
                    break
                before = v._value
            return anp.dot(problem.weights, v) ** 2

        value, gradient = value_and_grad(loss)(problem.matrix)
        return ended(value, gradient, steps)

    return run


def jax_form(problem: Problem, loop: Callable[..., tuple[Any, Any]]) -> Run:
    """JAX, compiled: a scan of which the steps after the stop are ignored, or the loop of Equinox, which stops."""
    import jax
    import jax.numpy as jnp

    def loss(A: Any, start: Any, weights: Any) -> Any:
        def advance(v: Any) -> Any:
            y = A @ v
            new = y / jnp.linalg.norm(y)
            return new, jnp.linalg.norm(jax.lax.stop_gradient(new - v))

        v, steps = loop(advance, start, problem.tolerance, problem.most)
        return (weights @ v) ** 2, steps

    return Compiled(loss, problem.matrix, problem.start, problem.weights, finish=ended)


# --- by hand ----------------------------------------------------------------------------------------------------------


def by_hand(problem: Problem) -> Run:
    """The adjoint in NumPy: the vectors of all steps kept, outer products gathered into one product of matrices.

    The norm needs no derivative of its own: v = y/‖y‖ has the adjoint ȳ = (v̄ − v (v·v̄)) / ‖y‖.
    """
    A, weights = problem.matrix, problem.weights

    def run() -> Outcome:
        vectors, norms = _vectors(problem)
        steps = len(norms)
        overlap = np.dot(weights, vectors[steps])
        v_bar = (2.0 * overlap) * weights
        y_bars = np.empty((steps, len(A)))
        for k in reversed(range(steps)):
            v = vectors[k + 1]
            y_bar = np.multiply(v, -np.dot(v, v_bar), out=y_bars[k])
            y_bar += v_bar
            y_bar /= norms[k]
            v_bar = np.dot(y_bar, A)
        return ended(overlap**2, y_bars.T @ vectors[:steps], steps)

    return run


def _vectors(problem: Problem) -> tuple[np.ndarray, list[float]]:
    """Return the vectors of all steps, the start first, and the norms that they were divided by."""
    A, tolerance = problem.matrix, problem.tolerance
    vectors = np.empty((problem.most + 1, len(A)))
    vectors[0] = problem.start
    change = np.empty(len(A))
    norms = []
    for k in range(problem.most):
        y = np.dot(A, vectors[k], out=vectors[k + 1])
        norm = math.sqrt(np.dot(y, y))
        y /= norm
        norms.append(norm)
        np.subtract(y, vectors[k], out=change)
        if math.sqrt(np.dot(change, change)) < tolerance:
            break
    return vectors, norms


FORMS = (
    Form("unspool, plain", "unspool", partial(python_form, traced=False), "ours"),
    Form("unspool, fragment", "unspool", partial(python_form, traced=True), "ours"),
    Form("unspool, iterate", "unspool", iterate, "ours"),
    Form("PyTorch", "torch", torch_eager, "peer"),
    Form("JAX scan", "jax", partial(jax_form, loop=masked_scan), "peer"),
    Form("Equinox", "equinox", partial(jax_form, loop=checkpointed_loop), "peer"),
    Form("autograd", "autograd", autograd_boxes, "peer"),
    Form("by hand", "numpy", by_hand, "limit"),
)

WORKLOAD = Workload(
    key="B1",
    title="power iteration",
    sizes=by_size(n=(128, 512, 2048)),
    problem=problem,
    forms=FORMS,
    reference=known,
    bars=(Bar("PyTorch", 1 / 3), Bar("limit", 1.3)),
)
