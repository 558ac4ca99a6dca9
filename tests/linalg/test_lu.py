from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import unspool as us
from tests.samples import complex_, real
from unspool.errors import RankError

SHAPES = [(3, 3), (4, 2), (2, 4), (1, 3), (3, 1), (2, 3, 2), (2, 2, 3)]


@pytest.mark.parametrize("make", [real, complex_])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_factors_are_scipys(make: Any, shape: Any) -> None:
    x = make(*shape)
    found = us.linalg.lu(x)
    for factor, expected in zip(found, scipy.linalg.lu(x), strict=True):
        np.testing.assert_allclose(factor.eval(), expected, atol=1e-14)
    assert found.P.dtype == np.float64
    p, lower, upper = us.linalg.lu(x, p_indices=True)
    rows = np.take_along_axis(lower.eval(), p.eval()[..., None], axis=-2)
    np.testing.assert_allclose(rows @ upper.eval(), x, atol=1e-14)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0), (2, 0, 3), (0, 2, 2)])
def test_empty_matrices_have_factors_whose_product_they_are(shape: Any) -> None:
    p, lower, upper = us.linalg.lu(np.zeros(shape))
    assert (p @ lower @ upper).eval().shape == shape


def test_a_square_matrix_may_be_singular_by_one() -> None:
    x, weights = us.tensor(real(3, 2) @ real(2, 3)), real(3, 3, seed=4)
    p, lower, upper = us.linalg.lu(x)
    np.testing.assert_allclose(us.sum(weights * (p @ lower @ upper)).grad(x).eval(), weights, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (3, 2)])
def test_a_derivative_that_divides_by_zero_names_the_rank(shape: Any) -> None:
    x = us.tensor(np.ones(shape))
    with pytest.raises(RankError, match="have rank 1"):
        us.sum(us.linalg.lu(x).L ** 2).grad(x).eval()


def test_one_graph_serves_tall_wide_and_square_matrices() -> None:
    m, n = us.dims("m n")
    matrix = us.placeholder((m, n))

    def loss(x: Any) -> Any:
        _, lower, upper = us.linalg.lu(x)
        return us.sum(lower**3) + us.sum(us.sin(upper))

    gradient = loss(matrix).grad(matrix)
    curvature = us.sum(gradient**2).grad(matrix)
    for shape in ((3, 2), (2, 3), (2, 2), (1, 1)):
        x = us.tensor(real(*shape))
        expected = loss(x).grad(x)
        np.testing.assert_allclose(gradient.eval({matrix: x.eval()}), expected.eval(), rtol=1e-12)
        np.testing.assert_allclose(
            curvature.eval({matrix: x.eval()}), us.sum(expected**2).grad(x).eval(), rtol=1e-10, atol=1e-10
        )
