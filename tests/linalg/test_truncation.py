"""Derivatives of truncated factors against central differences, with dropped singular values of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, differences, frame, relative_error, weights
from unspool.errors import GaugeError

KEPT = [2.0, 1.6, 1.0]
# The largest dropped singular value, as a part of the smallest kept one.
DROPPED = (0.0, 1e-6, 0.01, 0.3, 0.6, 0.9)
SHAPES = {"square": (5, 5), "tall": (7, 5), "wide": (5, 6)}


def matrix(dropped: float, side: str, kind: str) -> Any:
    m, n = SHAPES[side]
    values = np.array([*KEPT, dropped, 0.5 * dropped])
    return Factored(frame(m, kind, 2), values, frame(n, kind, 3)).matrix


def loss(p: Any, factors: Any, kind: str) -> Any:
    """Return a number that all three factors take part in and no phase does; ``p`` is unspool or NumPy."""
    u, s, vh = factors
    field = "complex" if kind == "unitary" else "real"
    w = weights(u.shape[-2], vh.shape[-1], field=field, seed=41)
    product = p.sum(p.real(w * ((u * p.tanh(s)) @ vh)))
    left = p.sum(weights(*u.shape, seed=42) * p.abs(u) ** 2)
    right = p.sum(weights(*vh.shape, seed=43) * p.abs(vh) ** 2)
    return product + left + right + p.sum(s**3)


def reference(a: Any, kind: str) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return loss(np, (u[:, :3], s[:3], vh[:3]), kind)


OPTIONS = {
    "by rank": lambda dropped: {"rank": 3},
    "by tolerance": lambda dropped: {"rtol": 0.475},
    "by both": lambda dropped: {"rank": 3, "rtol": 1e-3},
}


@pytest.mark.parametrize("kind", ["rotation", "unitary"])
@pytest.mark.parametrize("side", SHAPES)
@pytest.mark.parametrize("dropped", DROPPED)
@pytest.mark.parametrize("name", OPTIONS)
def test_truncated_factors_have_the_derivative_of_differences(name: str, dropped: float, side: str, kind: str) -> None:
    at = matrix(dropped, side, kind)
    a = us.tensor(at)
    factors = us.linalg.truncated_svd(a, **OPTIONS[name](dropped))
    assert factors.S.shape == (3,)
    value = loss(us, factors, kind)
    np.testing.assert_allclose(value.eval(), reference(at, kind), rtol=1e-10)
    expected = differences(lambda x: reference(x, kind), at, step=1e-4)
    assert relative_error(value.grad(a).eval(), expected) < 1e-6


@pytest.mark.parametrize("dropped", DROPPED)
def test_low_rank_parts_have_the_derivative_of_differences(dropped: float) -> None:
    at = matrix(dropped, "tall", "unitary")
    w = weights(*at.shape, field="complex", seed=44)

    def approximate(x: Any) -> Any:
        u, s, vh = np.linalg.svd(x, full_matrices=False)
        return np.sum(np.real(w * ((u[:, :3] * s[:3]) @ vh[:3])))

    a = us.tensor(at)
    gradient = us.sum(us.real(w * us.linalg.low_rank(a, 3))).grad(a).eval()
    assert relative_error(gradient, differences(approximate, at, step=1e-4)) < 1e-6


def test_leaving_out_the_dropped_space_would_be_noticed() -> None:
    # What a rule sees that knows only the kept factors: the same loss of a matrix without the rest.
    at, alone = matrix(0.9, "square", "rotation"), matrix(0.0, "square", "rotation")
    gradients = []
    for x in (at, alone):
        a = us.tensor(x)
        gradients.append(loss(us, us.linalg.truncated_svd(a, rank=3), "rotation").grad(a).eval())
    assert relative_error(*gradients) > 0.1


def test_a_stack_is_cut_at_one_rank() -> None:
    at = np.array([matrix(0.5, "tall", "rotation"), matrix(0.2, "tall", "rotation")[::-1]])
    a = us.tensor(at)
    u, s, vh = us.linalg.truncated_svd(a, rank=3)
    assert u.shape == (2, 7, 3) and s.shape == (2, 3) and vh.shape == (2, 3, 5)
    total = us.sum(us.tanh(s)) + us.sum(us.abs(u[..., :1, :]) ** 2 * s[..., None, :])
    found = total.grad(a).eval()
    for one, gradient in zip(at, found, strict=True):
        b = us.tensor(one)
        u, s, _ = us.linalg.truncated_svd(b, rank=3)
        expected = (us.sum(us.tanh(s)) + us.sum(us.abs(u[:1, :]) ** 2 * s)).grad(b).eval()
        np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)


def test_a_cut_through_equal_values_is_refused() -> None:
    a = us.tensor(Factored(frame(4, "rotation", 2), np.array([3.0, 1.0, 1.0, 0.5]), frame(4, "rotation", 3)).matrix)
    with pytest.raises(GaugeError, match="rank|equal"):
        loss(us, us.linalg.truncated_svd(a, rank=2), "rotation").grad(a).eval()
