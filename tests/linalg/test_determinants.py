"""Determinants: NumPy's values, and derivatives that are right where there is no inverse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from tests.samples.solving import cofactors
from unspool.errors import RankError, ShapeError


def of_rank(rank: int, size: int, kind: Any) -> Any:
    return kind(size, rank, seed=1) @ kind(rank, size, seed=2) if rank else np.zeros((size, size), kind(1).dtype)


KINDS = pytest.mark.parametrize("kind", [real, complex_])


# --- values ----------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (40, 40), (2, 40, 40), (1, 1), (0, 0), (2, 0, 0), (0, 2, 2)])
def test_determinants_are_numpys(kind: Any, shape: Any) -> None:
    a = kind(*shape)
    np.testing.assert_allclose(us.linalg.det(a).eval(), np.linalg.det(a), rtol=1e-10)
    for ours, theirs in zip(us.linalg.slogdet(a), np.linalg.slogdet(a), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.eval(), theirs, rtol=1e-10, atol=1e-12)


def test_a_determinant_may_leave_the_floating_point_range_on_the_way() -> None:
    a = np.diag([1e200, 1e200, 1e-200, 1e-199])
    assert float(us.linalg.det(a)) == pytest.approx(10.0)
    assert float(us.linalg.det(np.diag([1e200, 1e200]))) == np.inf


def test_results_of_slogdet_have_names() -> None:
    result = us.linalg.slogdet(-np.eye(3))
    assert (float(result.sign), float(result.logabsdet)) == (-1.0, 0.0)


# --- derivatives of determinants -------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_the_gradient_of_a_determinant_is_made_of_cofactors_at_any_rank(kind: Any, rank: int) -> None:
    a = of_rank(rank, 4, kind)
    x = us.tensor(a)
    gradient = us.sum(us.real(us.linalg.det(x))).grad(x).eval()
    np.testing.assert_allclose(gradient, cofactors(a).conj().T, rtol=1e-9, atol=1e-11)
    if rank < 3:
        np.testing.assert_allclose(gradient, 0, atol=1e-11)


@KINDS
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_second_derivatives_are_right_at_any_rank(kind: Any, rank: int) -> None:
    us.check_grad(us.linalg.det, of_rank(rank, 4, kind), order=2)


def test_second_derivatives_vanish_where_the_rank_is_three_less_than_full() -> None:
    a = us.tensor(of_rank(1, 4, real))
    gradient = us.linalg.det(a).grad(a)
    np.testing.assert_allclose(us.sum(gradient * real(4, 4, seed=3)).grad(a).eval(), 0, atol=1e-11)


def test_third_derivatives_are_right_or_refuse() -> None:
    def second(x: us.Tensor) -> us.Tensor:
        gradient = us.linalg.det(x).grad(x)
        return us.sum(gradient * real(3, 3, seed=4)).grad(x)

    us.check_grad(second, real(3, 3), order=1)
    singular = us.tensor(np.ones((3, 3)))
    with pytest.raises(RankError, match="rank is 1, its size 3"):
        us.sum(second(singular) ** 2).grad(singular).eval()


def test_a_stack_may_hold_singular_and_regular_matrices() -> None:
    a = np.stack([np.eye(2), np.ones((2, 2)), np.zeros((2, 2))])
    x = us.tensor(a)
    np.testing.assert_allclose(us.sum(us.linalg.det(x)).grad(x).eval(), cofactors(a).swapaxes(-2, -1), atol=1e-15)


def test_a_matrix_of_nan_leaves_others_alone() -> None:
    x = us.tensor(np.stack([np.eye(2), np.full((2, 2), np.nan)]))
    determinants = us.linalg.det(x)
    gradient = us.sum(determinants).grad(x).eval()
    np.testing.assert_array_equal(gradient[0], np.eye(2))
    assert np.isnan(gradient[1]).all()
    chosen = us.sum(us.where(us.isnan(determinants), 0.0, determinants))
    np.testing.assert_array_equal(chosen.grad(x).eval(), [np.eye(2), np.zeros((2, 2))])


def test_cofactors_are_finite_where_the_determinant_is_not() -> None:
    x = us.tensor(np.diag([1e200, 1e200]))
    np.testing.assert_allclose(us.linalg.det(x).grad(x).eval(), np.diag([1e200, 1e200]))


def test_the_determinant_of_nothing_is_one_and_has_an_empty_gradient() -> None:
    x = us.tensor(np.zeros((0, 0)))
    assert float(us.linalg.det(x)) == 1.0
    assert us.linalg.det(x).grad(x).eval().shape == (0, 0)


# --- derivatives of logarithms ---------------------------------------------------------------------------------------


@KINDS
def test_the_gradient_of_the_logarithm_is_the_inverse_adjoint(kind: Any) -> None:
    a = kind(3, 3)
    x = us.tensor(a)
    np.testing.assert_allclose(us.linalg.slogdet(x).logabsdet.grad(x).eval(), np.linalg.inv(a).conj().T)


def test_the_phase_of_a_complex_determinant_has_a_derivative() -> None:
    us.check_grad(lambda x: us.prod(us.stack(us.linalg.slogdet(x))), complex_(2, 2), order=2)


def test_the_sign_of_a_real_determinant_has_slope_zero() -> None:
    x = us.tensor(real(2, 2))
    np.testing.assert_array_equal(us.linalg.slogdet(x).sign.grad(x).eval(), np.zeros((2, 2)))


@pytest.mark.parametrize("a", [np.ones((2, 2)), np.zeros((3, 3)), np.ones((40, 40)), np.ones((2, 2)) * 1j])
def test_a_singular_matrix_has_a_logarithm_without_derivative(a: Any) -> None:
    x = us.tensor(a)
    sign, logabsdet = us.linalg.slogdet(x)
    assert sign.eval() == 0
    assert logabsdet.eval() == -np.inf
    with pytest.raises(RankError, match="singular matrix has no inverse"):
        logabsdet.grad(x).eval()
    with pytest.raises(RankError, match="singular matrix has no inverse"):
        us.jvp(lambda t: us.linalg.slogdet(t).logabsdet, (a,), (a,))[1].eval()


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e150])
def test_a_matrix_that_is_singular_but_for_rounding_is_refused(scale: float) -> None:
    x = us.tensor(of_rank(2, 3, real) * scale)
    with pytest.raises(RankError, match="rank is 2, its size 3"):
        us.linalg.slogdet(x).logabsdet.grad(x).eval()


def test_rows_of_different_scales_are_no_reason_to_refuse() -> None:
    x = us.tensor(np.diag([1e-20, 1.0, 1e20]) @ (np.eye(3) + 0.1))
    expected = np.linalg.inv(np.eye(3) + 0.1).T * [[1e20], [1.0], [1e-20]]
    np.testing.assert_allclose(us.linalg.slogdet(x).logabsdet.grad(x).eval(), expected)


def test_a_logarithm_that_is_not_chosen_may_be_that_of_a_singular_matrix() -> None:
    x = us.tensor(np.stack([2 * np.eye(2), np.ones((2, 2))]))
    logabsdet = us.linalg.slogdet(x).logabsdet
    loss = us.sum(us.where(us.isfinite(logabsdet), logabsdet, 0.0))
    np.testing.assert_allclose(loss.grad(x).eval(), [np.eye(2) / 2, np.zeros((2, 2))])
    curvature = us.sum(loss.grad(x) ** 2).grad(x).eval()
    np.testing.assert_allclose(curvature, [-np.eye(2) / 4, np.zeros((2, 2))])


# --- symbolic sizes, refusals ----------------------------------------------------------------------------------------


def test_sizes_may_be_symbolic() -> None:
    n, s = us.dims("n s")
    a = us.placeholder((s, n, n))
    determinants, logarithms = us.linalg.det(a), us.linalg.slogdet(a).logabsdet
    gradients = us.sum(determinants).grad(a), us.sum(logarithms).grad(a)
    for size in (1, 2, 3):
        value = real(2, size, size)
        np.testing.assert_allclose(determinants.eval({a: value}), np.linalg.det(value))
        inverse = np.linalg.inv(value).swapaxes(-2, -1)
        np.testing.assert_allclose(gradients[1].eval({a: value}), inverse)
        np.testing.assert_allclose(gradients[0].eval({a: value}), inverse * np.linalg.det(value)[:, None, None])


@pytest.mark.parametrize("function", [us.linalg.det, us.linalg.slogdet])
def test_only_square_matrices_have_determinants(function: Any) -> None:
    with pytest.raises(ShapeError, match=r"takes square matrices, got shape \(2, 3\)"):
        function(real(2, 3))
    with pytest.raises(ShapeError, match="at least two axes"):
        function(1.0)
