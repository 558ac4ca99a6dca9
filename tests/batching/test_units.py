"""Sweeps along every element of a tensor: one batch, or as many directions at a time as a budget has room for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._batching import widths

RNG = np.random.default_rng(11)
A = RNG.normal(size=(6, 6)) / 4
X = RNG.normal(size=6)


def after(x: us.Tensor, steps: int = 40) -> us.Tensor:
    return us.iterate(lambda y: us.tanh(us.constant(A) @ y), x, max_steps=steps)[0]


def jacobian(steps: int = 40) -> Any:
    """Return the product of the Jacobians of the steps."""
    y, total = X, np.eye(6)
    for _ in range(steps):
        y = np.tanh(A @ y)
        total = ((1 - y**2)[:, None] * A) @ total
    return total


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_jacobian_runs_as_many_loops_as_a_product_with_it(mode: Any) -> None:
    with us.debug.count_kernels() as counts:
        found = us.jacobian(after, mode=mode)(us.tensor(X)).eval()
    np.testing.assert_allclose(found, jacobian(), rtol=1e-9, atol=1e-12)
    assert counts["loop"] == 2


def test_what_does_not_depend_on_the_direction_is_computed_once() -> None:
    found = us.jacobian(lambda x: us.exp(x) * us.sum(x), mode="forward")(us.tensor(X))
    shapes = [node.shape for node in us._graph.ancestors([found]) if node.op.name == "exp"]
    assert shapes == [(6,)]
    np.testing.assert_allclose(found.eval(), np.diag(np.exp(X) * X.sum()) + np.exp(X)[:, None])


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_columns_come_in_blocks_within_a_memory_budget(mode: Any) -> None:
    """A direction takes 2,000 states of 6 numbers, about 100 kB: six at once would not fit."""
    expected = jacobian(2000)
    with us.memory("600kB") as budget, us.debug.count_kernels() as counts:
        x = us.tensor(X)
        found = us.jacobian(lambda x: after(x, 2000), mode=mode)(x).eval()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert counts["loop"] > 2
    assert budget.report().peak <= 600_000


def test_a_budget_that_has_room_for_the_arrays_of_a_block_does_not_change_a_bit() -> None:
    """A direction takes 0.2 MB if all of its loop is held, a block of six 1.2 MB, and the largest array of it 3 kB."""
    a = us.tensor(RNG.normal(size=(64, 64)) / 8)

    def final(x: us.Tensor) -> us.Tensor:
        for _ in range(200):
            x = us.tanh(a @ x) + 0.3 * us.sin(x)
        return x[:6]

    def within(budget: str) -> Any:
        with us.memory(budget):
            return us.jacrev(final)(us.tensor(np.ones(64))).eval()

    expected = within("1GB")
    assert all(np.array_equal(within(budget), expected) for budget in ("2MB", "300kB"))


def test_directions_whose_sweeps_are_large_come_in_blocks_without_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widths, "BLOCK", 10_000)
    with us.debug.count_kernels() as counts:
        found = us.jacobian(after, mode="reverse")(us.tensor(X)).eval()
    np.testing.assert_allclose(found, jacobian(), rtol=1e-9, atol=1e-12)
    assert counts["loop"] > 2


def test_the_hessian_of_a_loop_is_symmetric_and_that_of_single_products() -> None:
    def loss(x: us.Tensor) -> us.Tensor:
        return us.sum(after(x, 5) ** 3)

    found = us.hessian(loss)(us.tensor(X)).eval()
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-14)
    for i, unit in enumerate(np.eye(6)):
        product = us.hvp(loss, (us.tensor(X),), (unit,)).eval()
        np.testing.assert_allclose(found[:, i], product, rtol=1e-9, atol=1e-14)


def test_complex_elements_move_along_both_of_their_parts() -> None:
    z = X + 1j * X[::-1]
    found = us.jacobian(lambda z: us.cumsum(us.real(z) * us.imag(z)))(us.tensor(z)).eval()
    below = np.tril(np.ones((6, 6)))
    np.testing.assert_allclose(found, below * (z.imag + 1j * z.real), rtol=1e-12)
