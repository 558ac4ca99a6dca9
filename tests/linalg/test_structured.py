"""Matrices with a pattern, banded equations, and solving with factors: SciPy's values, and derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg

import unspool as us
from tests.samples import complex_, real
from unspool.errors import ArgumentError, MissingRuleError, RankError, ShapeError

POSITIVE = real(4, 4) @ real(4, 4).T + np.eye(4)


# --- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("toeplitz", (real(4), real(3))),
        ("toeplitz", (complex_(4),)),
        ("toeplitz", (complex_(1), real(3))),
        ("hankel", (real(4), real(3))),
        ("hankel", (real(4),)),
        ("circulant", (complex_(4),)),
        ("circulant", (real(1),)),
        ("block_diag", (real(2, 3), real(1, 2), np.array(3.0), real(2))),
        ("block_diag", (complex_(2, 2), real(1, 1))),
        ("block_diag", (real(2, 0), real(1, 2))),
    ],
)
def test_matrices_with_a_pattern_are_scipys(name: str, args: Any) -> None:
    np.testing.assert_array_equal(getattr(us.linalg, name)(*args).eval(), getattr(linalg, name)(*args))
    us.check_grad(lambda *xs: us.sin(us.real(getattr(us.linalg, name)(*xs))), *args)


def test_hilberts_matrix_and_no_blocks() -> None:
    np.testing.assert_allclose(us.linalg.hilbert(5).eval(), linalg.hilbert(5), rtol=1e-15)
    assert us.linalg.block_diag().shape == linalg.block_diag().shape


def test_blocks_may_be_stacks() -> None:
    first, second = real(3, 2, 2), real(3, 1, 2)
    out = us.linalg.block_diag(first, second).eval()
    for k in range(3):
        np.testing.assert_array_equal(out[k], linalg.block_diag(first[k], second[k]))


def test_patterns_work_on_symbolic_sizes() -> None:
    n = us.dims("n")
    c = us.placeholder((n,))
    data = real(4)
    for name in ("toeplitz", "hankel", "circulant"):
        np.testing.assert_array_equal(getattr(us.linalg, name)(c).eval({c: data}), getattr(linalg, name)(data))


# --- bands -----------------------------------------------------------------------------------------------------------


def test_corners_of_a_band_that_belong_to_no_element_are_not_looked_at() -> None:
    band = np.array([[np.nan, 1.0, 2.0], [4.0, 5.0, 6.0], [1.0, 2.0, np.nan]])
    leaf = us.tensor(np.nan_to_num(band))
    x = us.linalg.solve_banded((1, 1), leaf, [1.0, 2.0, 3.0])
    slope = us.sum(x**2).grad(leaf).eval()
    assert slope[0, 0] == slope[2, 2] == 0
    dense = us.tensor(np.diag(band[1]) + np.diag(band[0, 1:], 1) + np.diag(band[2, :-1], -1))
    expected = us.sum(us.linalg.solve(dense, [1.0, 2.0, 3.0]) ** 2).grad(dense).eval()
    np.testing.assert_allclose(slope[1], np.diag(expected), rtol=1e-12)
    np.testing.assert_allclose(slope[0, 1:], np.diag(expected, 1), rtol=1e-12)
    np.testing.assert_allclose(slope[2, :-1], np.diag(expected, -1), rtol=1e-12)


def test_a_large_band_is_never_made_a_matrix() -> None:
    size = 100_000
    band = us.tensor(np.stack([np.full(size, -1.0), np.full(size, 2.1), np.full(size, -1.0)]))
    slope = us.sum(us.linalg.solve_banded((1, 1), band, np.ones(size))).grad(band).eval()
    # Far from the ends every x is 10, and so is every element of the adjoint solution.
    np.testing.assert_allclose(slope[:, size // 2], -100.0, rtol=1e-9)


def test_a_singular_band_is_refused() -> None:
    with pytest.raises(RankError, match="banded matrix of size 2 is singular"):
        us.linalg.solve_banded((0, 0), [[1.0, 0.0]], [1.0, 1.0]).eval()


# --- factors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("b", [real(4), real(4, 2)], ids=["vector", "columns"])
def test_solving_with_a_cholesky_factor(lower: bool, b: Any) -> None:
    factor = us.linalg.cho_factor(POSITIVE, lower)
    assert factor[1] is lower
    triangle = np.tril if lower else np.triu
    np.testing.assert_allclose(factor[0].eval(), triangle(linalg.cho_factor(POSITIVE, lower)[0]), atol=1e-14)
    np.testing.assert_allclose(us.linalg.cho_solve(factor, b).eval(), linalg.solve(POSITIVE, b), rtol=1e-10)
    # SciPy's factor has something else in the other triangle.
    np.testing.assert_allclose(
        us.linalg.cho_solve(linalg.cho_factor(POSITIVE, lower), b).eval(), linalg.solve(POSITIVE, b), rtol=1e-10
    )
    us.check_grad(lambda r, b: us.linalg.cho_solve(us.linalg.cho_factor(r @ r.T + us.eye(4), lower), b), real(4, 4), b)


@pytest.mark.parametrize("trans", [0, 1, 2, "N", "T", "C"])
@pytest.mark.parametrize("lower", [True, False])
def test_a_triangle_is_solved_with_as_scipy_names_it(trans: Any, lower: bool) -> None:
    a, b = complex_(3, 3) + 3 * np.eye(3), complex_(3, 2)
    expected = linalg.solve_triangular(a, b, trans, lower)
    np.testing.assert_allclose(us.linalg.solve_triangular(a, b, trans, lower=lower).eval(), expected, rtol=1e-12)
    us.check_grad(lambda a, b: us.linalg.solve_triangular(a, b, trans, lower=lower), a, b, order=1)


@pytest.mark.parametrize("trans", [0, 1, 2])
@pytest.mark.parametrize("b", [complex_(4), complex_(4, 2)], ids=["vector", "columns"])
def test_solving_with_an_lu_decomposition(trans: int, b: Any) -> None:
    a = complex_(4, 4)
    factors, pivots = us.linalg.lu_factor(a)
    expected = linalg.lu_factor(a)
    np.testing.assert_allclose(factors.eval(), expected[0], atol=1e-14)
    np.testing.assert_array_equal(pivots.eval(), expected[1])
    found = us.linalg.lu_solve((factors, pivots), b, trans).eval()
    np.testing.assert_allclose(found, linalg.lu_solve(expected, b, trans), rtol=1e-11)
    np.testing.assert_allclose(us.linalg.lu_solve(expected, b, trans).eval(), found, rtol=1e-11)
    us.check_grad(lambda a, b: us.linalg.lu_solve(us.linalg.lu_factor(a), b, trans), a, b, order=1)


def test_pivots_of_many_orders_are_lapacks() -> None:
    for seed in range(20):
        a = real(7, 7, seed=seed)
        np.testing.assert_array_equal(us.linalg.lu_factor(a)[1].eval(), linalg.lu_factor(a)[1])
    stack = real(3, 5, 5)
    solution = us.linalg.lu_solve(us.linalg.lu_factor(stack), real(3, 5, 2)).eval()
    np.testing.assert_allclose(solution, np.linalg.solve(stack, real(3, 5, 2)), rtol=1e-9)


# --- equations and functions of matrices -----------------------------------------------------------------------------


def test_sylvesters_equation_is_solved_as_by_scipy() -> None:
    a, b, q = real(3, 3) + 3 * np.eye(3), real(2, 2, seed=1) + 3 * np.eye(2), real(3, 2, seed=2)
    np.testing.assert_allclose(us.linalg.solve_sylvester(a, b, q).eval(), linalg.solve_sylvester(a, b, q), rtol=1e-12)
    us.check_grad(us.linalg.solve_sylvester, a, b, q)
    us.check_grad(us.linalg.solve_sylvester, a.astype(complex), b, q, order=1)
    stacked = us.linalg.solve_sylvester(np.stack([a, 2 * a]), b, q).eval()
    np.testing.assert_allclose(stacked[1], linalg.solve_sylvester(2 * a, b, q), rtol=1e-12)
    with pytest.raises(RankError, match="no unique solution"):
        us.linalg.solve_sylvester([[1.0]], [[-1.0]], [[1.0]]).eval()


def test_the_exponential_and_its_derivative_in_a_direction() -> None:
    a, e = real(3, 3), real(3, 3, seed=1)
    for found, expected in zip(us.linalg.expm_frechet(a, e), linalg.expm_frechet(a, e), strict=True):
        np.testing.assert_allclose(found.eval(), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(us.linalg.expm(a).eval(), linalg.expm(a), rtol=1e-12)
    alone = us.linalg.expm_frechet(a, e, compute_expm=False)
    np.testing.assert_allclose(alone.eval(), linalg.expm_frechet(a, e, compute_expm=False), rtol=1e-12, atol=1e-13)


def test_the_schur_form_has_values_and_refuses_derivatives() -> None:
    stack = real(2, 4, 4)
    for output in ("real", "complex"):
        t, z = us.linalg.schur(stack, output)
        for k in range(2):
            np.testing.assert_allclose(t.eval()[k], linalg.schur(stack[k], output)[0], atol=1e-12)
        np.testing.assert_allclose((z @ t @ us.conj(us.matrix_transpose(z))).eval(), stack, atol=1e-12)
    leaf = us.tensor(stack[0])
    with pytest.raises(MissingRuleError, match="schur"):
        us.sum(us.linalg.schur(leaf).T).grad(leaf)
    with pytest.raises(ArgumentError, match="'real' or 'complex'"):
        us.linalg.schur(leaf, "both")


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_are_typed() -> None:
    for name in ("toeplitz", "hankel", "circulant"):
        with pytest.raises(ShapeError, match=f"{name} takes vectors"):
            getattr(us.linalg, name)(np.ones((2, 2)))
    with pytest.raises(ArgumentError, match="numbers of diagonals"):
        us.linalg.solve_banded((1, -1), np.ones((1, 2)), np.ones(2))
    with pytest.raises(ArgumentError, match="numbers of diagonals"):
        us.linalg.solve_banded(1, np.ones((1, 2)), np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="diagonals of shape \\(3, n\\)"):
        us.linalg.solve_banded((1, 1), np.ones((2, 4)), np.ones(4))
    with pytest.raises(ShapeError, match="with right sides of shape \\(5,\\)"):
        us.linalg.solve_banded((1, 1), np.ones((3, 4)), np.ones(5))
    with pytest.raises(ArgumentError, match="trans is 0, 1 or 2"):
        us.linalg.lu_solve(us.linalg.lu_factor(np.eye(2)), np.ones(2), 3)
    with pytest.raises(ArgumentError, match="trans is 0, 1 or 2, or one of"):
        us.linalg.solve_triangular(np.eye(2), np.ones(2), "H")
    with pytest.raises(ShapeError, match="right sides of shape \\(3,\\)"):
        us.linalg.lu_solve(us.linalg.lu_factor(np.eye(2)), np.ones(3))
    with pytest.raises(ShapeError, match="right side of shape \\(3, 2\\)"):
        us.linalg.solve_sylvester(np.eye(2), np.eye(2), np.ones((3, 2)))
