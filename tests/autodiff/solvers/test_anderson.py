"""Searches for fixed points on arrays: Anderson's method against what theory says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from unspool._autodiff.solvers.anderson import Mixing, distances, repeat, search
from unspool.errors import ConvergenceError


def linear(size: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    B = generator.normal(size=(size, size))
    return 0.8 * B / np.abs(np.linalg.eigvals(B)).max(), generator.normal(size=size)


def minimal_residual(A: Any, b: Any, dimension: int) -> Any:
    """Return the vector of the Krylov space of that dimension with the smallest residual: what GMRES finds."""
    if not dimension:
        return np.zeros_like(b)
    powers = [b]
    for _ in range(dimension - 1):
        powers.append(A @ powers[-1])
    basis = np.linalg.qr(np.array(powers).T)[0]
    return basis @ np.linalg.lstsq(A @ basis, b, rcond=None)[0]


def test_with_full_history_a_linear_map_takes_the_images_of_what_gmres_finds() -> None:
    # H. F. Walker and P. Ni, "Anderson acceleration for fixed-point iterations", 2011, theorem 2.2.
    B, c = linear(8)
    mixing, x = Mixing(8, 8, np.dtype(float)), np.zeros(8)
    for step in range(7):
        x = mixing.extrapolate(x, B @ x + c)
        np.testing.assert_allclose(x, B @ minimal_residual(np.eye(8) - B, c, step) + c, atol=1e-8)


def test_linear_map_of_small_dimension_is_done_after_as_many_steps() -> None:
    B, c = linear(4)
    found = search(lambda state: [B @ state[0] + c], [np.zeros(4)], 4, 1e-12, 10)
    assert found.steps <= 7
    np.testing.assert_allclose(found.state[0], np.linalg.solve(np.eye(4) - B, c), rtol=1e-10)


def test_steps_that_do_not_change_do_not_disturb() -> None:
    # All differences are zero; so are their weights.
    mixing = Mixing(3, 2, np.dtype(float))
    for _ in range(4):
        np.testing.assert_array_equal(mixing.extrapolate(np.zeros(2), np.ones(2)), np.ones(2))


def test_restart_forgets() -> None:
    mixing = Mixing(3, 2, np.dtype(float))
    mixing.extrapolate(np.zeros(2), np.ones(2))
    mixing.extrapolate(np.ones(2), np.array([1.5, 1.2]))
    mixing.restart()
    image = np.array([4.0, 5.0])
    np.testing.assert_array_equal(mixing.extrapolate(np.zeros(2), image), image)


@pytest.mark.parametrize("history", [0, 1, 5])
def test_run_is_repeated_bit_for_bit_from_its_number_of_steps(history: int) -> None:
    B, c = linear(6)

    def f(state: Sequence[Any]) -> list[Any]:
        return [np.tanh(B @ state[0]) + c, state[1] + 1]

    start = [np.zeros(6), np.array(0)]
    found = search(f, start, history, 1e-12, 500)
    x, count = repeat(f, start, history, found.steps)
    np.testing.assert_array_equal(x, found.state[0])
    assert count == found.state[1] == found.steps


def test_no_steps_lead_nowhere() -> None:
    assert repeat(lambda state: [state[0] + 1.0], [np.array(1.0)], 0, 0) == [np.array(1.0)]


def test_extrapolation_out_of_the_domain_restarts_from_the_best_image() -> None:
    asked: list[float] = []

    def f(state: Sequence[Any]) -> list[Any]:
        x = float(state[0])
        asked.append(x)
        # The residual bends so that the line through two of its points meets zero at a negative argument.
        return [np.array(x - 0.5 * (np.sqrt(x + 0.1) - np.sqrt(0.1)) if x >= 0.0 else np.nan)]

    found = search(f, [np.array(1.0)], 1, 1e-12, 200)
    assert min(asked) < 0.0
    assert found.state[0] == pytest.approx(0.0, abs=1e-11)


def test_plain_run_that_leaves_the_finite_numbers_raises() -> None:
    with pytest.raises(ConvergenceError, match="left the finite numbers at step 1"):
        search(lambda state: [state[0] * np.inf], [np.array(1.0)], 0, 1e-10, 100)


def test_residual_is_relative_to_one_plus_the_norm() -> None:
    assert distances(np.array([3.0, 4.0]), np.array([3.0, 7.0])) == (3.0, 0.5)
