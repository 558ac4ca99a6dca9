from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from unspool.errors import KernelError, ShapeError


def positive_definite(*shape: int, make: Any = real) -> Any:
    x = make(*shape)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1])


@pytest.mark.parametrize("make", [real, complex_])
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (3, 3), (2, 3, 3), (40, 40), (0, 2, 2)])
@pytest.mark.parametrize("upper", [False, True])
def test_the_factor_is_numpys(make: Any, shape: Any, upper: bool) -> None:
    x = positive_definite(*shape, make=make)
    np.testing.assert_allclose(
        us.linalg.cholesky(x, upper=upper).eval(), np.linalg.cholesky(x, upper=upper), atol=1e-12
    )


@pytest.mark.parametrize("stack", [(), (2,)])
def test_only_the_triangle_that_is_named_is_read(stack: Any) -> None:
    x = np.tile(positive_definite(3, 3, make=complex_), (*stack, 1, 1))
    lower, upper = x.copy(), x.copy()
    lower[..., 0, 1:] = np.nan
    upper[..., 1:, 0] = np.nan
    for is_upper in (False, True):
        expected = np.linalg.cholesky(x, upper=is_upper)
        for given, uplo in ((lower, "L"), (upper, "U")):
            np.testing.assert_allclose(us.linalg.cholesky(given, upper=is_upper, UPLO=uplo).eval(), expected)


def test_the_cotangent_is_hermitian() -> None:
    x = us.tensor(positive_definite(3, 3, make=complex_))
    g = us.sum(us.abs(us.linalg.cholesky(x)) ** 3).grad(x).eval()
    np.testing.assert_allclose(g, g.conj().T, atol=1e-14)


@pytest.mark.parametrize("make", [real, complex_])
def test_the_gradient_of_the_log_determinant_is_the_inverse(make: Any) -> None:
    x = us.tensor(positive_definite(2, 4, 4, make=make))
    diagonal = us.real(us.diagonal(us.linalg.cholesky(x), axis1=-2, axis2=-1))
    gradient = (2 * us.sum(us.log(diagonal))).grad(x)
    np.testing.assert_allclose(gradient.eval(), np.linalg.inv(x.eval()), rtol=1e-10)


@pytest.mark.parametrize(
    ("diagonals", "message"),
    [([1.0, -1.0, 1.0], "leading 2 by 2 block of the matrix"), ([[1.0, 1.0], [1.0, 0.0]], r"block of matrix \(1,\)")],
)
def test_a_matrix_that_is_not_positive_definite_is_an_error_that_says_where(diagonals: Any, message: str) -> None:
    x = us.linalg.cholesky(np.array(diagonals)[..., None] * np.eye(np.shape(diagonals)[-1]))
    with pytest.raises(KernelError, match=message):
        x.eval()


def test_matrices_that_are_not_square_are_refused_when_built() -> None:
    with pytest.raises(ShapeError, match="square"):
        us.linalg.cholesky(np.ones((2, 3)))
