"""Norms, condition numbers and ranks that follow from singular values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from unspool.errors import ArgumentError, GaugeError, RankError, ShapeError

INF = np.inf
KINDS = pytest.mark.parametrize("kind", [real, complex_])
ORDERS = pytest.mark.parametrize("ord", [2, -2, "nuc"])


def regular(x: Any) -> Any:
    return x + 5 * np.eye(x.shape[-1])


# --- norms -----------------------------------------------------------------------------------------------------------


@ORDERS
@KINDS
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 3), None),
        ((2, 3), None),
        ((3, 2), (1, 0)),
        ((2, 3, 4), (0, 2)),
        ((2, 3, 4), (-1, 0)),
        ((1, 3), None),
        ((0, 2, 2), (1, 2)),
    ],
)
def test_spectral_norms_are_numpys(ord: Any, kind: Any, keepdims: bool, shape: Any, axis: Any) -> None:
    x = kind(*shape)
    ours, theirs = us.linalg.norm(x, ord, axis, keepdims), np.linalg.norm(x, ord, axis, keepdims)
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours.eval(), theirs)


@pytest.mark.parametrize("order", [-1.5, 0, 0.5, 1, 1.5, 2, 3, np.inf, -np.inf])
@pytest.mark.parametrize("x", [[0.3, np.nan, 0.2], [np.nan], [np.inf, np.nan], [0.0, 0.0], [np.inf, -1.0]])
def test_norms_of_what_is_not_finite_are_numpys(x: list[float], order: float) -> None:
    with np.errstate(all="ignore"):
        expected = np.linalg.norm(x, order)
    np.testing.assert_allclose(us.linalg.norm(us.tensor(x), order).eval(), expected)


@ORDERS
def test_single_precision_and_integers_have_norms_of_their_dtype(ord: Any) -> None:
    assert us.linalg.matrix_norm(np.eye(2, dtype="float32"), ord=ord).eval().dtype == np.float32
    assert us.linalg.matrix_norm([[1, 2], [3, 4]], ord=ord).eval().dtype == np.float64


def test_a_matrix_without_elements_has_norm_zero_but_no_smallest_singular_value() -> None:
    assert float(us.linalg.norm(np.zeros((0, 3)), 2)) == 0.0
    assert float(us.linalg.norm(np.zeros((0, 3)), "nuc")) == 0.0
    with pytest.raises(ShapeError, match="has no smallest singular value"):
        us.linalg.norm(np.zeros((0, 3)), -2)


@ORDERS
@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (3, 2), (1, 3), (2, 2, 2)])
def test_spectral_norms_agree_with_differences(ord: Any, kind: Any, shape: Any) -> None:
    us.check_grad(lambda x: us.linalg.matrix_norm(x, ord=ord), kind(*shape), order=2)


@ORDERS
def test_the_gradient_at_zero_is_zero_to_second_order(ord: Any) -> None:
    x = us.tensor(np.stack([np.zeros((2, 2)), regular(real(2, 2))]))
    gradient = us.sum(us.linalg.matrix_norm(x, ord=ord)).grad(x)
    np.testing.assert_array_equal(gradient.eval()[0], np.zeros((2, 2)))
    np.testing.assert_array_equal(us.sum(gradient * real(2, 2, 2)).grad(x).eval()[0], np.zeros((2, 2)))


def test_equal_largest_singular_values_have_no_derivative() -> None:
    x = us.tensor(np.eye(2))
    with pytest.raises(GaugeError):
        us.linalg.norm(x, 2).grad(x).eval()
    np.testing.assert_allclose(us.linalg.norm(x, "nuc").grad(x).eval(), np.eye(2))


@ORDERS
def test_sizes_of_norms_may_be_symbolic(ord: Any) -> None:
    m, n = us.dims("m n")
    a = us.placeholder((m, n))
    norm = us.linalg.norm(a, ord)
    gradient = norm.grad(a)
    for shape in [(3, 2), (2, 3), (2, 2)]:
        value = real(*shape)
        x = us.tensor(value)
        np.testing.assert_allclose(norm.eval({a: value}), np.linalg.norm(value, ord))
        np.testing.assert_allclose(gradient.eval({a: value}), us.linalg.norm(x, ord).grad(x).eval())


# --- condition numbers -----------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("p", [None, 2, -2, 1, -1, INF, -INF, "fro", "nuc"])
def test_condition_numbers_are_numpys(kind: Any, p: Any) -> None:
    x = kind(2, 3, 3)
    np.testing.assert_allclose(us.linalg.cond(x, p).eval(), np.linalg.cond(x, p))
    us.check_grad(lambda t: us.linalg.cond(t, p), regular(x[0]), order=1 if p in (-1, -INF) else 2)


@pytest.mark.parametrize("p", [None, 2, -2])
def test_matrices_that_are_not_square_have_spectral_condition_numbers(p: Any) -> None:
    x = real(3, 2)
    np.testing.assert_allclose(us.linalg.cond(x, p).eval(), np.linalg.cond(x, p))


@pytest.mark.parametrize("p", [None, 1, -1, INF, -INF, "fro", "nuc"])
@pytest.mark.parametrize("size", [2, 40])
def test_the_condition_number_of_a_singular_matrix_is_infinite(p: Any, size: int) -> None:
    zero = np.zeros((size, size))
    assert us.linalg.cond(zero, p).eval() == INF
    if p not in (None, "nuc"):
        x = us.tensor(np.ones((size, size)))
        assert us.linalg.cond(x, p).eval() == INF
        with pytest.raises(RankError):
            us.linalg.cond(x, p).grad(x).eval()


def test_other_matrices_of_a_stack_keep_their_condition_numbers() -> None:
    x = np.stack([np.eye(2), np.ones((2, 2)), np.full((2, 2), np.nan)])
    np.testing.assert_array_equal(us.linalg.cond(x, 1).eval(), [1.0, INF, np.nan])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: us.linalg.cond(np.eye(2), 3), ArgumentError, "not 3"),
        (lambda: us.linalg.cond(np.eye(2), "frobenius"), ArgumentError, "not 'frobenius'"),
        (lambda: us.linalg.cond(real(2, 3), 1), ShapeError, "cond of order 1 takes square matrices"),
        (lambda: us.linalg.cond(np.zeros((0, 0))), ShapeError, "has no largest singular value"),
        (lambda: us.linalg.cond(real(3)), ShapeError, "at least two axes"),
    ],
)
def test_condition_numbers_that_make_no_sense_are_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (np.eye(3), {}),
        (np.ones((3, 2)), {}),
        (np.zeros((2, 3)), {}),
        (np.stack([np.eye(2), np.ones((2, 2))]), {}),
        (np.zeros((0, 3)), {}),
        (np.diag([1.0, 1e-4]), {"tol": 1e-3}),
        (np.diag([100.0, 1e-2]), {"rtol": 1e-3}),
        (np.array([[1, 1j], [-1j, 1]]), {"hermitian": True}),
        (np.ones(3), {}),
        (np.zeros(3), {}),
        (np.array(2), {}),
    ],
)
def test_ranks_are_numpys(x: Any, options: Any) -> None:
    ours, theirs = us.linalg.matrix_rank(x, **options), np.linalg.matrix_rank(x, **options)
    assert ours.dtype == np.int64
    np.testing.assert_array_equal(ours.eval(), theirs)


def test_the_rank_tolerance_may_come_from_the_context() -> None:
    x = np.diag([1.0, 1e-4])
    with us.linalg.tolerances(rank=1e-3):
        assert int(us.linalg.matrix_rank(x)) == 1
        assert int(us.linalg.matrix_rank(x, rtol=1e-5)) == 2
        assert int(us.linalg.matrix_rank(x, tol=1e-5)) == 2
    assert int(us.linalg.matrix_rank(x)) == 2


def test_one_tolerance_at_a_time() -> None:
    with pytest.raises(ArgumentError, match="tol or rtol"):
        us.linalg.matrix_rank(np.eye(2), 0.1, rtol=0.1)


def test_a_rank_of_unknown_size_is_found_when_bound() -> None:
    m, n = us.dims("m n")
    a = us.placeholder((m, n))
    assert us.linalg.matrix_rank(a).eval({a: real(3, 2)}) == 2
