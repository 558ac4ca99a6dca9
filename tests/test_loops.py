"""The scenario the project started from: loops that read values while they run, differentiated as a whole.

Four claims, each on two real loops (power iteration with a data-dependent stop, alternating least squares for a rank-2
decomposition) and several lengths: reading a value breaks nothing, the gradient goes through every iteration, the loss
and its gradient share what they have in common, and the graph grows linearly. The loops are written once, over a
namespace ``xp``, so that the very same code run on NumPy is the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._engine.folding.fold_queue import FEWEST_LONG

LENGTHS = [1, 3, 8]


def power_iteration(xp: Any, A: Any, *, steps: int = 10_000, tolerance: float = 0.0) -> tuple[Any, int]:
    """Return the Rayleigh quotient after ``steps`` steps, or when the norm has settled, and the steps taken."""
    x = xp.ones(A.shape[0])
    last = np.inf
    taken = 0
    while taken < steps:
        y = A @ x
        norm = xp.linalg.norm(y)
        x = y / norm
        taken += 1
        if abs(float(norm) - last) < tolerance:
            break
        last = float(norm)
    return x @ A @ x, taken


def inverse_2x2(xp: Any, m: Any) -> Any:
    det = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    rows = [xp.stack([m[1, 1], -m[0, 1]]), xp.stack([-m[1, 0], m[0, 0]])]
    return xp.stack(rows) / det


def least_squares_sweeps(xp: Any, T: Any, *, steps: int = 10_000, tolerance: float = 0.0) -> tuple[Any, int]:
    """Return the squared residual of a rank-2 CP decomposition after ``steps`` sweeps, and the sweeps taken."""
    rng = np.random.default_rng(1)
    a, b, c = (xp.ones((n, 2)) * rng.uniform(0.5, 1.5, (n, 2)) for n in T.shape)
    last = np.inf
    taken = 0
    residual = None
    while taken < steps:
        a = xp.einsum("ijk,jr,kr->ir", T, b, c) @ inverse_2x2(xp, (b.T @ b) * (c.T @ c))
        b = xp.einsum("ijk,ir,kr->jr", T, a, c) @ inverse_2x2(xp, (a.T @ a) * (c.T @ c))
        c = xp.einsum("ijk,ir,jr->kr", T, a, b) @ inverse_2x2(xp, (a.T @ a) * (b.T @ b))
        difference = T - xp.einsum("ir,jr,kr->ijk", a, b, c)
        residual = xp.sum(difference * difference)
        taken += 1
        if abs(float(residual) - last) < tolerance:
            break
        last = float(residual)
    return residual, taken


def symmetric_matrix() -> Any:
    m = np.random.default_rng(0).uniform(-1, 1, (5, 5))
    return m @ m.T + np.eye(5)


def three_way_array() -> Any:
    return np.random.default_rng(2).uniform(0.5, 1.5, (3, 4, 2))


LOOPS = pytest.mark.parametrize(
    ("loop", "data"),
    [(power_iteration, symmetric_matrix()), (least_squares_sweeps, three_way_array())],
    ids=["power-iteration", "als"],
)


def differences(f: Callable[[Any], float], at: Any, step: float = 1e-4) -> Any:
    """Return the gradient by central differences of fourth order."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        shift = np.zeros_like(at)
        shift[index] = step
        near, far = f(at + shift) - f(at - shift), f(at + 2 * shift) - f(at - 2 * shift)
        gradient[index] = (8 * near - far) / (12 * step)
    return gradient


@LOOPS
@pytest.mark.parametrize("steps", LENGTHS)
def test_graph_continuity_reading_a_value_in_the_loop_changes_nothing(loop: Any, data: Any, steps: int) -> None:
    leaf = us.tensor(data)
    read, _ = loop(us, leaf, steps=steps)
    expected, _ = loop(np, data, steps=steps)
    assert float(read) == pytest.approx(float(expected), rel=1e-11, abs=1e-13)
    again, _ = loop(us, leaf, steps=steps)
    assert again is read
    before = read.op, read.inputs, read.shape
    read.eval()
    assert (read.op, read.inputs, read.shape) == before
    assert float(read * 2.0) == 2.0 * float(read)


@LOOPS
@pytest.mark.parametrize("steps", LENGTHS)
def test_gradient_goes_through_all_iterations(loop: Any, data: Any, steps: int) -> None:
    leaf = us.tensor(data)
    loss, _ = loop(us, leaf, steps=steps)
    expected = differences(lambda at: float(loop(np, at, steps=steps)[0]), data)
    np.testing.assert_allclose(loss.grad(leaf).eval(), expected, rtol=1e-6, atol=1e-8)


@LOOPS
def test_gradient_after_a_data_dependent_stop(loop: Any, data: Any) -> None:
    leaf = us.tensor(data)
    loss, taken = loop(us, leaf, tolerance=1e-9)
    reference, taken_by_numpy = loop(np, data, tolerance=1e-9)
    assert 3 < taken == taken_by_numpy < 10_000
    assert float(loss) == pytest.approx(float(reference), rel=1e-10)
    # The number of iterations is a constant of the derivative.
    expected = differences(lambda at: float(loop(np, at, steps=taken)[0]), data)
    np.testing.assert_allclose(loss.grad(leaf).eval(), expected, rtol=1e-6, atol=1e-8)


@LOOPS
@pytest.mark.parametrize("steps", [1, 3, FEWEST_LONG - 1])  # a loop that folds computes a few nodes of its start again
def test_primal_and_gradient_share_subexpressions(loop: Any, data: Any, steps: int) -> None:
    leaf = us.tensor(data)
    loss, _ = loop(us, leaf, steps=steps)
    gradient = loss.grad(leaf)
    assert us.graph_size(loss, gradient) < us.graph_size(loss) + us.graph_size(gradient)
    with us.debug.count_kernels() as together:
        us.eval(loss, gradient)
    assert set(together.by_node.values()) == {1}
    loss_again, gradient_again = (loop(us, leaf, steps=steps)[0], loss.grad(leaf))
    assert loss_again is loss
    assert gradient_again is gradient


@LOOPS
def test_graph_grows_linearly_with_the_number_of_iterations(loop: Any, data: Any) -> None:
    leaf = us.tensor(data)
    sizes, gradient_sizes = [], []
    for steps in (20, 25, 30, 35):  # so long that loops fold which are read, and so short that no other does
        loss, _ = loop(us, leaf, steps=steps)
        sizes.append(us.graph_size(loss))
        gradient_sizes.append(us.graph_size(loss, loss.grad(leaf)))
    assert len(set(np.diff(sizes))) == 1
    assert len(set(np.diff(gradient_sizes))) == 1


@LOOPS
def test_reading_every_step_costs_the_same_at_every_step(loop: Any, data: Any) -> None:
    calls = []
    # What does not depend on the leaf is shared between runs; hold it, and its values, from the start.
    held = [loop(us, us.tensor(data), steps=1)[0] for _ in range(2)]
    for steps in (10, 20, 30, 40):
        leaf = us.tensor(data)
        with us.debug.count_kernels() as counts:
            loss, _ = loop(us, leaf, steps=steps)
            loss.eval()
        calls.append(counts.total)
    assert len(set(np.diff(calls))) == 1, held


def test_power_iteration_that_reads_only_the_norm_runs_every_node_once() -> None:
    leaf = us.tensor(symmetric_matrix())
    with us.debug.count_kernels() as counts:
        loss, _ = power_iteration(us, leaf, steps=50)
        loss.eval()
    assert set(counts.by_node.values()) == {1}
