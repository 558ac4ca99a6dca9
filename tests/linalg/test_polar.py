from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import unspool as us
from tests.samples import complex_, real
from unspool.errors import ArgumentError, RankError

SIDES = pytest.mark.parametrize("side", ["right", "left"])


@SIDES
@pytest.mark.parametrize("make", [real, complex_])
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (1, 3), (3, 1)])
def test_the_factors_are_scipys(make: Any, shape: Any, side: str) -> None:
    x = make(*shape)
    for factor, expected in zip(us.linalg.polar(x, side), scipy.linalg.polar(x, side), strict=True):
        np.testing.assert_allclose(factor.eval(), expected, atol=1e-13)


@SIDES
@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0), (2, 0, 3), (0, 2, 2)])
def test_empty_matrices_have_factors_whose_product_they_are(shape: Any, side: str) -> None:
    u, p = us.linalg.polar(np.zeros(shape), side)
    assert (u @ p if side == "right" else p @ u).eval().shape == shape


@SIDES
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("make", [real, complex_])
def test_the_product_of_the_factors_is_the_matrix_for_derivatives_too(shape: Any, side: str, make: Any) -> None:
    x, weights = us.tensor(make(*shape)), make(*shape, seed=4)
    u, p = us.linalg.polar(x, side)
    product = u @ p if side == "right" else p @ u
    gradient = us.real(us.sum(np.conj(weights) * product)).grad(x)
    np.testing.assert_allclose(gradient.eval(), weights, atol=1e-12)


def test_equal_singular_values_leave_nothing_open() -> None:
    x, weights = us.tensor(2.0 * np.eye(3)), real(3, 3)
    u, p = us.linalg.polar(x)
    # At a multiple of the identity the isometry moves by the skew part and the other factor by the symmetric one.
    np.testing.assert_allclose(us.sum(weights * u).grad(x).eval(), (weights - weights.T) / 4, atol=1e-14)
    np.testing.assert_allclose(us.sum(weights * p).grad(x).eval(), (weights + weights.T) / 2, atol=1e-14)


@SIDES
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 4)])
def test_a_matrix_without_full_rank_is_an_error_that_names_the_rank(shape: Any, side: str) -> None:
    x = us.tensor(np.ones(shape))
    with pytest.raises(RankError, match="has rank 1 where 3 is full"):
        us.sum(us.linalg.polar(x, side).U).grad(x).eval()


def test_a_side_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'right' or 'left'"):
        us.linalg.polar(np.eye(2), "up")


@SIDES
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_one_graph_serves_tall_wide_and_square_matrices(side: str, dtype: str) -> None:
    m, n = us.dims("m n")
    matrix = us.placeholder((m, n), dtype)

    def loss(x: Any) -> Any:
        u, p = us.linalg.polar(x, side)
        return us.sum(us.real(u) ** 3) + us.sum(us.real(p) ** 3)

    gradient = loss(matrix).grad(matrix)
    curvature = us.sum(us.abs(gradient) ** 2).grad(matrix)
    for shape in ((3, 2), (2, 3), (2, 2), (1, 1)):
        x = us.tensor((complex_ if dtype == "complex128" else real)(*shape))
        expected = loss(x).grad(x)
        np.testing.assert_allclose(gradient.eval({matrix: x.eval()}), expected.eval(), atol=1e-10)
        further = us.sum(us.abs(expected) ** 2).grad(x).eval()
        np.testing.assert_allclose(curvature.eval({matrix: x.eval()}), further, rtol=1e-8, atol=1e-8)
    known = us.placeholder((m + n, n), dtype)
    assert us.linalg.polar(known, side).U.shape == (m + n, n)
    assert us.linalg.polar(us.placeholder((n, m + n + 1), dtype), side).U.shape == (n, m + n + 1)
