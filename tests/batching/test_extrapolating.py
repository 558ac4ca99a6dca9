"""Searches for many fixed points at once: each takes the way that a search takes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.solvers.anderson import Iteration
from unspool._batching.extrapolating import Iterations
from unspool.errors import ConvergenceError

RNG = np.random.default_rng(8)
MATRIX, SHIFT = 0.25 * RNG.normal(size=(5, 5)), RNG.normal(size=5)
Map = Callable[[Sequence[Any]], list[Any]]


def bent(state: Sequence[Any]) -> list[Any]:
    """Return the image under a map whose residual bends so that extrapolation leaves its domain."""
    (x,) = state
    with np.errstate(invalid="ignore"):
        return [np.where(x >= 0.0, x - 0.5 * (np.sqrt(x + 0.1) - np.sqrt(0.1)), np.nan)]


def several_leaves(state: Sequence[Any]) -> list[Any]:
    """Return the image of a state with real, complex and counting leaves, on the last axis."""
    x, z, k = state
    return [np.tanh(x @ MATRIX.T) + SHIFT, 0.5j * z + x[..., :2] * 0.2, k + 1]


WAYS: dict[str, tuple[Map, list[Any], int]] = {
    "plain": (several_leaves, [RNG.normal(size=(4, 5)), 1j * RNG.normal(size=(4, 2)), np.arange(4)], 0),
    "extrapolated": (several_leaves, [RNG.normal(size=(4, 5)), 1j * RNG.normal(size=(4, 2)), np.arange(4)], 3),
    "that restarts": (bent, [np.array([1.0, 0.3, 2.0])], 1),
    "already there": (lambda state: [state[0]], [np.ones((3, 2))], 2),
}


@pytest.mark.parametrize(("function", "start", "history"), WAYS.values(), ids=WAYS.keys())
def test_each_search_takes_the_way_that_it_takes_alone(function: Map, start: list[Any], history: int) -> None:
    together = Iterations(start, history)
    alone = [Iteration([leaf[i] for leaf in start], history) for i in range(len(start[0]))]
    rows = np.arange(len(alone))
    for step in range(7):
        images = function([leaf[rows] for leaf in together.state])
        together.take(rows, images)
        goes_on = rows != step - 3  # one after the other is not advanced any more
        together.advance(goes_on)
        for i in rows:
            alone[i].take(function(alone[i].state))
            np.testing.assert_allclose(together.residual[i], alone[i].residual, rtol=1e-5, atol=1e-12)
            alone[i].advance()
        rows = rows[goes_on]
        for i in rows:
            for found, expected in zip(together.state, alone[i].state, strict=True):
                np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-9)


def test_a_member_whose_extrapolation_leaves_the_domain_goes_on_from_its_best_image() -> None:
    def point(start: us.Tensor) -> us.Tensor:
        def step(x: us.Tensor) -> us.Tensor:
            return us.where(x >= 0.0, x - 0.5 * (us.sqrt(us.maximum(x, 0.0) + 0.1) - np.sqrt(0.1)), np.nan)

        return us.fixed_point(step, start, tol=1e-12, history=1)[0]

    np.testing.assert_allclose(us.vmap(point)(np.array([1.0, 0.3, 2.0])).eval(), 0.0, atol=1e-10)


def test_a_member_that_leaves_the_finite_numbers_is_an_error() -> None:
    def point(c: us.Tensor) -> us.Tensor:
        return us.fixed_point(lambda x: c * x, 1.0, acceleration=None)[0]

    with pytest.raises(ConvergenceError, match="left the finite numbers at step 1"):
        us.vmap(point)(np.array([0.5, np.inf]))
