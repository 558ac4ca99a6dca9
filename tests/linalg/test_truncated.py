"""Truncated decompositions and low-rank approximations: the rank, and derivatives at any dropped spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, differences, frame, weights
from unspool.errors import ArgumentError, GaugeError, UnboundPlaceholderError

FIELDS = ["rotation", "unitary"]


def inner(w: Any, x: Any) -> Any:
    return us.real(us.sum(np.conj(w) * x))


def factored(values: Any, field: str = "rotation", extra: tuple[int, int] = (0, 0)) -> Factored:
    k = len(values)
    return Factored(frame(k + extra[0], field, 2), np.array(values, float), frame(k + extra[1], field, 3))


def weight(field: str, *shape: int) -> Any:
    return weights(*shape, field="complex" if field == "unitary" else "real")


def best(a: Any, rank: int) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return (u[..., :rank] * s[..., None, :rank]) @ vh[..., :rank, :]


# --- which rank ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "rank"),
    [
        ({"rank": 2}, 2),
        ({"rank": 9}, 4),
        ({"rank": 0}, 0),
        ({"rtol": 1e-3}, 3),
        ({"rtol": 0.5}, 1),
        ({"rtol": 2.0}, 1),
        ({"rank": 2, "rtol": 1e-3}, 2),
        ({"rank": 3, "rtol": 0.1}, 2),
        ({}, 4),
    ],
    ids=str,
)
def test_a_rank_is_given_or_found_by_a_tolerance(options: Any, rank: int) -> None:
    a = np.diag([4.0, 2.0, 1e-2, 1e-6])
    u, s, vh = us.linalg.truncated_svd(a, **options)
    assert (u.shape, s.shape, vh.shape) == ((4, rank), (rank,), (rank, 4))
    np.testing.assert_allclose(((u * s) @ vh).eval(), best(a, rank), atol=1e-15)
    np.testing.assert_allclose(us.linalg.low_rank(a, **options).eval(), best(a, rank), atol=1e-15)


def test_a_stack_keeps_as_many_as_its_neediest_matrix() -> None:
    stack = np.stack([np.diag([1.0, 1e-9, 1e-9]), np.diag([1.0, 0.5, 1e-9])])
    assert us.linalg.truncated_svd(stack, rtol=1e-6).S.shape == (2, 2)


def test_matrices_that_are_zero_or_empty_have_a_rank_too() -> None:
    assert us.linalg.truncated_svd(np.zeros((3, 2))).S.shape == (1,)
    assert us.linalg.truncated_svd(np.zeros((0, 2)), rtol=1e-3).U.shape == (0, 0)
    assert us.linalg.low_rank(np.zeros((0, 2)), 1).shape == (0, 2)


@pytest.mark.parametrize("rank", [-1, 1.5, "two"])
def test_a_rank_is_a_number_of_values(rank: Any) -> None:
    with pytest.raises(ArgumentError, match="rank"):
        us.linalg.truncated_svd(np.eye(2), rank)


def test_a_tolerance_needs_values() -> None:
    x = us.placeholder((3, 3))
    assert us.linalg.truncated_svd(x, 2).S.shape == (2,)
    with pytest.raises(UnboundPlaceholderError):
        us.linalg.truncated_svd(x, rtol=1e-3)


@pytest.mark.parametrize(("rank", "kept"), [(4, 4), (3, 1), (2, 1), (1, 1), (5, 5), (9, 5)])
def test_multiplets_can_be_kept_whole(rank: int, kept: int) -> None:
    a = factored([5, 2, 2, 2, 1]).matrix
    assert us.linalg.truncated_svd(a, rank, keep_multiplets=True).S.shape == (kept,)
    assert us.linalg.truncated_svd(factored([2, 2, 1]).matrix, 1, keep_multiplets=True).S.shape == (2,)
    assert us.linalg.truncated_svd(np.zeros((0, 2)), 1, keep_multiplets=True).S.shape == (0,)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("extra", [(0, 0), (2, 0), (0, 2)])
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.3, 0.9])
def test_factors_have_exact_derivatives_however_large_the_dropped_values_are(
    ratio: float, extra: Any, field: str
) -> None:
    a = factored([3, 2, 2 * ratio, ratio], field, extra).matrix
    w, left, right = (weight(field, *shape) for shape in (a.shape, (len(a), len(a)), (a.shape[1], a.shape[1])))

    def loss(x: Any, ops: Any = us) -> Any:
        u, s, vh = us.linalg.truncated_svd(x, 2) if ops is us else (f(np.linalg.svd(x)) for f in CUT)
        product = (u * s**2) @ vh
        one, other = (u * s) @ u.conj().T, vh.conj().T @ (vh * s[:, None])
        return sum(ops.real(ops.sum(np.conj(v) * y)) for v, y in ((w, product), (left, one), (right, other)))

    x = us.tensor(a)
    found = loss(x).grad(x).eval()
    np.testing.assert_allclose(found, differences(lambda b: loss(b, np), a, 1e-4), rtol=1e-6, atol=1e-6)


CUT = (lambda f: f[0][:, :2], lambda f: f[1][:2], lambda f: f[2][:2])


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("extra", [(0, 0), (2, 0), (0, 2)])
@pytest.mark.parametrize(
    "values", [(2, 2, 1), (3, 2, 1.8), (2, 2, 0), (2, 2, 1, 1), (2, 2, 0, 0), (3, 2.9, 2.8, 0)], ids=str
)
def test_low_rank_has_an_exact_derivative_also_at_equal_values(values: Any, extra: Any, field: str) -> None:
    a = factored(values, field, extra).matrix
    w = weight(field, *a.shape)
    x = us.tensor(a)
    expected = differences(lambda b: np.real(np.sum(w.conj() * best(b, 2))), a, 1e-5 if values[2] < 2.5 else 1e-4)
    np.testing.assert_allclose(inner(w, us.linalg.low_rank(x, 2)).grad(x).eval(), expected, atol=1e-5)


@pytest.mark.parametrize("field", FIELDS)
def test_the_derivative_of_low_rank_is_its_own_adjoint_in_forward_mode(field: str) -> None:
    a = factored([2, 2, 1, 0.5], field).matrix
    w, t = weight(field, 4, 4), weights(4, 4, seed=8)
    x = us.tensor(a)
    backward = inner(t, inner(w, us.linalg.low_rank(x, 2)).grad(x)).eval()
    forward = us.jvp(lambda y: inner(w, us.linalg.low_rank(y, 2)), (a,), (t.astype(a.dtype),))[1].eval()
    np.testing.assert_allclose(forward, backward, rtol=1e-12)


def test_a_matrix_of_the_rank_is_its_own_approximation() -> None:
    a = us.tensor(factored([2, 1, 0]).matrix)
    np.testing.assert_allclose(us.linalg.low_rank(a, 2).eval(), a.eval(), atol=1e-15)
    assert us.linalg.low_rank(a, 3) is a


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(2, 1, 1), (2, 0, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("extra", [(0, 0), (2, 0), (0, 2)])
def test_a_cut_through_equal_values_is_refused(values: Any, extra: Any) -> None:
    a = us.tensor(factored(values, extra=extra).matrix)
    w = weights(*a.shape)
    with pytest.raises(GaugeError, match="rank 2 cuts through equal singular values"):
        inner(w, us.linalg.low_rank(a, 2)).grad(a).eval()
    u, s, vh = us.linalg.truncated_svd(a, 2)
    with pytest.raises(GaugeError, match="rank"):
        inner(w, (u * s) @ vh).grad(a).eval()


def test_a_fixed_gauge_and_broadening_are_passed_on() -> None:
    a = weights(3, 3, field="complex")
    x = us.tensor(a)
    u = us.linalg.truncated_svd(x, 2, gauge="fixed").U
    assert np.all(np.isfinite(us.real(u[0, 0]).grad(x).eval()))
    y = us.tensor(np.diag([2.0, 1.0, 1.0]))
    u = us.linalg.truncated_svd(y, 2, broaden=1e-2).U
    assert np.all(np.isfinite(us.sum(u @ u.mT).grad(y).eval()))
