"""Value and derivative of what takes Hermitian matrices are of one function, also where a matrix is not Hermitian.

By default that is a function of the Hermitian part; where a triangle is named, of that triangle alone. The references
are NumPy's, of matrices that are made Hermitian here, and their differences entry by entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import differences, hermitian, relative_error, weights
from unspool.errors import ArgumentError

TRIANGLES = (None, "L", "U")
SHAPES = [(3, 3), (2, 3, 3)]
FIELDS = ["real", "complex"]


def adjoint(x: Any) -> Any:
    return us.conj(x.mT) if isinstance(x, us.Tensor) else np.conj(np.swapaxes(x, -1, -2))


def meant(a: Any, uplo: str | None) -> Any:
    """Return the Hermitian matrix that is meant by numbers: their Hermitian part, or what a triangle says."""
    if uplo is None:
        return hermitian(a)
    strict = np.tril(a, -1) if uplo == "L" else np.triu(a, 1)
    return strict + adjoint(strict) + np.eye(a.shape[-1]) * np.real(a)


def rebuilt(values: Any, vectors: Any) -> Any:
    return (vectors * values[..., None, :] ** 1.5) @ adjoint(vectors)


@dataclass(frozen=True)
class Case:
    """A function of matrices given by a triangle or not, and the same in NumPy, of Hermitian matrices."""

    ours: Callable[[Any, str | None], Any]
    theirs: Callable[[Any], Any]
    named: bool = True


CASES = {
    "eigvalsh": Case(us.linalg.eigvalsh, np.linalg.eigvalsh),
    "eigenvalues of eigh": Case(lambda a, uplo: us.linalg.eigh(a, uplo)[0], np.linalg.eigvalsh),
    "a function of values and vectors": Case(
        lambda a, uplo: rebuilt(*us.linalg.eigh(a, uplo)), lambda a: rebuilt(*np.linalg.eigh(a))
    ),
    "vectors, by moduli": Case(
        lambda a, uplo: us.abs(us.linalg.eigh(a, uplo)[1]), lambda a: np.abs(np.linalg.eigh(a)[1])
    ),
    "cholesky": Case(lambda a, uplo: us.linalg.cholesky(a, UPLO=uplo), np.linalg.cholesky),
    "upper cholesky": Case(
        lambda a, uplo: us.linalg.cholesky(a, upper=True, UPLO=uplo), lambda a: np.linalg.cholesky(a, upper=True)
    ),
    "pinv": Case(lambda a, uplo: us.linalg.pinv(a, hermitian=True), np.linalg.inv, named=False),
}


def cases() -> list[Any]:
    return [
        pytest.param(case, uplo, id=f"{name}-{uplo}")
        for name, case in CASES.items()
        for uplo in (TRIANGLES if case.named else (None,))
    ]


def unsymmetric(shape: Any, field: str) -> Any:
    """Return matrices far from Hermitian, of which the Hermitian part and both triangles are positive definite."""
    return weights(*shape, field=field, seed=61) + 9 * np.eye(shape[-1]) + np.diag(np.arange(shape[-1]))


def loss(x: Any) -> Any:
    w = weights(*x.shape, field="complex", seed=62)
    return us.sum(us.real(w * x)) if isinstance(x, us.Tensor) else np.sum(np.real(w * x))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("case", "uplo"), cases())
def test_value_and_both_derivatives_are_of_one_function(case: Case, uplo: Any, shape: Any, field: str) -> None:
    at = unsymmetric(shape, field)
    a = us.tensor(at)
    np.testing.assert_allclose(case.ours(a, uplo).eval(), case.theirs(meant(at, uplo)), rtol=1e-10, atol=1e-12)
    expected = differences(lambda x: loss(case.theirs(meant(x, uplo))), at, step=1e-4)
    assert relative_error(loss(case.ours(a, uplo)).grad(a).eval(), expected) < 1e-9
    direction = weights(*shape, field=field, seed=63)
    found = us.jvp(lambda x: loss(case.ours(x, uplo)), (a,), (us.tensor(direction),))[1].eval()
    np.testing.assert_allclose(found, np.real(np.vdot(expected, direction)), rtol=1e-8)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("case", "uplo"), cases())
def test_second_derivatives_are_of_that_function_too(case: Case, uplo: Any, field: str) -> None:
    at, direction = unsymmetric((3, 3), field), weights(3, 3, field=field, seed=64)

    def slope(x: Any) -> Any:
        """Return the derivative along a direction by differences of NumPy's values."""
        steps = [loss(case.theirs(meant(x + k * 1e-3 * direction, uplo))) for k in (-2, -1, 1, 2)]
        return (steps[0] - 8 * steps[1] + 8 * steps[2] - steps[3]) / 12e-3

    expected = differences(slope, at, step=1e-3)
    a, e = us.tensor(at), us.tensor(direction)
    gradient = loss(case.ours(a, uplo)).grad(a)
    reverse = us.sum(us.real(us.conj(e) * gradient)).grad(a).eval()
    assert relative_error(reverse, expected) < 1e-6
    forward = us.jvp(us.grad(lambda x: loss(case.ours(x, uplo))), (a,), (e,))[1].eval()
    assert relative_error(forward, expected) < 1e-6


@pytest.mark.parametrize("function", [us.linalg.eigvalsh, lambda a, uplo: us.linalg.cholesky(a, UPLO=uplo)])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_the_triangle_that_is_not_named_is_neither_read_nor_differentiated(function: Any, uplo: str) -> None:
    at = unsymmetric((3, 3), "complex")
    outside = np.triu(np.ones((3, 3), bool), 1) if uplo == "L" else np.tril(np.ones((3, 3), bool), -1)
    a = us.tensor(np.where(outside, np.nan, at))
    gradient = loss(function(a, uplo)).grad(a).eval()
    assert np.all(gradient[outside] == 0)
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("uplo", TRIANGLES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("scale", [1.0, 2.0**-100, 2.0**120])
def test_of_a_hermitian_matrix_all_ways_have_the_bits_of_numpy(scale: float, dtype: str, uplo: Any) -> None:
    numbers = hermitian(weights(5, 5, field="complex" if dtype.startswith("c") else "real"))
    a = (scale * (numbers + 5 * np.eye(5))).astype(dtype)
    for ours, theirs in zip(us.linalg.eigh(a, uplo), np.linalg.eigh(a, uplo or "L"), strict=True):
        np.testing.assert_array_equal(ours.eval(), theirs)


def test_the_rank_of_a_matrix_that_is_called_hermitian_is_that_of_its_hermitian_part() -> None:
    assert us.linalg.matrix_rank([[0.0, 1.0], [-1.0, 0.0]], hermitian=True).eval() == 0
    assert us.linalg.matrix_rank([[0.0, 2.0], [0.0, 0.0]], hermitian=True).eval() == 2


@pytest.mark.parametrize("function", [us.linalg.eigh, us.linalg.eigvalsh, us.linalg.cholesky])
@pytest.mark.parametrize("uplo", ["X", "", "lower", 1])
def test_a_triangle_that_does_not_exist_is_refused(function: Any, uplo: Any) -> None:
    with pytest.raises(ArgumentError, match="UPLO"):
        function(np.eye(2), UPLO=uplo)
