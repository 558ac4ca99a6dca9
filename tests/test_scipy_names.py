"""Functions under SciPy's names that are made of others: values against SciPy, derivatives by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.special
import scipy.stats

import unspool as us
from unspool.errors import ArgumentError, DTypeError, ShapeError

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3, 5))


# --- cosine transforms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [None, "ortho", "forward", "backward"])
@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dct", "idct"])
def test_cosine_transforms_are_those_of_scipy(name: str, kind: int, norm: str | None) -> None:
    mine, theirs = getattr(us.fft, name), getattr(scipy.fft, name)
    for x in (X, X + 1j * X[::-1], X.astype("float32")):
        for axis in (0, 1):
            for n in (None, 4, 7):
                found, expected = mine(x, kind, n, axis, norm).eval(), theirs(x, kind, n, axis, norm)
                assert found.dtype == expected.dtype
                close = 1e-5 if x.dtype == np.float32 else 1e-12
                np.testing.assert_allclose(found, expected, atol=close, rtol=close)
    found = getattr(us.fft, f"{name}n")(X, kind, norm=norm).eval()
    np.testing.assert_allclose(found, getattr(scipy.fft, f"{name}n")(X, kind, norm=norm), atol=1e-12)


def test_an_orthogonal_cosine_transform_keeps_lengths_and_is_differentiable() -> None:
    x = us.tensor(X)
    y = us.fft.dct(x, norm="ortho")
    np.testing.assert_allclose(us.sum(y * y).grad(x).eval(), 2 * X)


@pytest.mark.parametrize("call", [lambda: us.fft.dct(X, 5), lambda: us.fft.dct([1.0], 1), lambda: us.fft.dct(X, "two")])
def test_cosine_transforms_that_do_not_exist_are_refused(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()


# --- special functions -----------------------------------------------------------------------------------------------


def test_binomials_are_zero_where_nothing_can_be_chosen() -> None:
    n, k = np.array([5.0, 3.0, 2.0, -1.0, 4.0]), np.array([2.0, 1.0, 4.0, 1.0, -1.0])
    np.testing.assert_allclose(us.special.comb(n, k).eval(), scipy.special.comb(n, k))
    np.testing.assert_allclose(
        us.special.comb(n[:2], k[:2], repetition=True).eval(), scipy.special.comb(n[:2], k[:2], repetition=True)
    )
    us.check_grad(lambda n: us.sum(us.special.comb(n, 1.5)), np.array([3.0, 1.0, 2.5]) + 0.3)
    with pytest.raises(ArgumentError):
        us.special.comb(5, 2, exact=True)


@pytest.mark.parametrize("name", ["boxcox", "boxcox1p"])
def test_powers_are_logarithms_for_the_exponent_zero(name: str) -> None:
    x, exponents = np.array([0.3, 0.7, 1.9, 4.0]), np.array([0.0, 0.5, -1e-3, 1e-12])
    mine = getattr(us.special, name)
    np.testing.assert_allclose(mine(x, exponents).eval(), getattr(scipy.special, name)(x, exponents), rtol=1e-12)
    ends = np.array([0.0, 0.0]) - (name == "boxcox1p")
    np.testing.assert_allclose(mine(ends, [0.0, 0.5]).eval(), getattr(scipy.special, name)(ends, [0.0, 0.5]))
    exponent = us.tensor(0.0)
    value = mine(3.0, exponent)
    logarithm = np.log(3.0 if name == "boxcox" else 4.0)
    slope = value.grad(exponent)
    np.testing.assert_allclose(slope.eval(), logarithm**2 / 2)
    np.testing.assert_allclose(slope.grad(exponent).eval(), logarithm**3 / 3)


def test_spherical_harmonics_are_those_of_scipy_with_derivatives_by_both_angles() -> None:
    theta, phi = np.array([0.3, 1.2, 2.9]), np.array([0.1, -2.0, 4.0])
    for n in range(4):
        for m in range(-n, n + 1):
            np.testing.assert_allclose(
                us.special.sph_harm_y(n, m, theta, phi).eval(), scipy.special.sph_harm_y(n, m, theta, phi), atol=1e-14
            )
            us.check_grad(lambda t, p, n=n, m=m: us.sum(us.real(us.special.sph_harm_y(n, m, t, p))), theta, phi)
    with pytest.raises(DTypeError):
        us.special.sph_harm_y(1.5, 0, theta, phi)


def test_the_logarithm_of_the_gamma_function_ends_at_zero() -> None:
    x = np.array([0.5, 3.0, -0.5])
    np.testing.assert_allclose(us.special.loggamma(x).eval(), scipy.special.loggamma(x))


def test_the_reciprocal_of_the_gamma_function_crosses_zero_where_that_is_infinite() -> None:
    x = us.tensor([0.0, -1.0, -2.0, -3.0])
    value = us.special.rgamma(x)
    np.testing.assert_array_equal(value.eval(), 0.0)
    np.testing.assert_allclose(us.sum(value).grad(x).eval(), [1.0, -1.0, 2.0, -6.0])


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_the_error_function_takes_complex_numbers(name: str) -> None:
    z = X[0] + 0.3j * X[1]
    mine = getattr(us, name)
    np.testing.assert_allclose(mine(z).eval(), getattr(scipy.special, name)(z), rtol=1e-12)
    us.check_grad(mine, z)


# --- matrices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5, 8])
@pytest.mark.parametrize("name", ["companion", "fiedler", "fiedler_companion"])
def test_matrices_of_polynomials_are_those_of_scipy(name: str, size: int) -> None:
    a = np.arange(1.0, size + 1) ** 1.5 + 0.5
    mine = getattr(us.linalg, name)
    np.testing.assert_allclose(mine(a).eval(), getattr(scipy.linalg, name)(a))
    us.check_grad(lambda a: us.sum(mine(a) ** 3), a)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("columns", [1, 2, 5, 9])
def test_a_convolution_is_a_product_with_its_matrix(columns: int, mode: str) -> None:
    a = RNG.normal(size=4)
    found = us.linalg.convolution_matrix(a, columns, mode).eval()
    np.testing.assert_allclose(found, scipy.linalg.convolution_matrix(a, columns, mode))


def test_a_population_is_scipys() -> None:
    np.testing.assert_allclose(us.linalg.leslie(X[0], X[1, 1:]).eval(), scipy.linalg.leslie(X[0], X[1, 1:]))


def test_eigenvalues_of_three_diagonals() -> None:
    d, e = RNG.normal(size=6), RNG.normal(size=5)
    values, vectors = us.linalg.eigh_tridiagonal(d, e)
    expected, basis = scipy.linalg.eigh_tridiagonal(d, e)
    np.testing.assert_allclose(values.eval(), expected)
    np.testing.assert_allclose(np.abs(vectors.eval()), np.abs(basis), atol=1e-10)
    some = us.linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3))
    np.testing.assert_allclose(some.eval(), expected[1:4])
    us.check_grad(lambda d, e: us.sum(us.linalg.eigh_tridiagonal(d, e, True) ** 3), d, e)


def test_products_with_the_q_of_a_matrix() -> None:
    a, c = RNG.normal(size=(5, 3)), RNG.normal(size=(2, 5))
    product, r = us.linalg.qr_multiply(a, c)
    np.testing.assert_allclose(product.eval() @ r.eval(), c @ a)
    left, r = us.linalg.qr_multiply(a, np.eye(3), mode="left")
    np.testing.assert_allclose(left.eval() @ r.eval(), a)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: us.linalg.companion([1.0]), ShapeError),
        (lambda: us.linalg.companion(X), ShapeError),
        (lambda: us.linalg.convolution_matrix([1.0], 0), ArgumentError),
        (lambda: us.linalg.convolution_matrix([1.0], 3, "other"), ArgumentError),
        (lambda: us.linalg.eigh_tridiagonal([1.0, 2.0], [1.0, 2.0]), ShapeError),
        (lambda: us.linalg.eigh_tridiagonal([1.0, 2.0], [1.0], select="v"), ArgumentError),
        (lambda: us.linalg.qr_multiply(X, X, mode="above"), ArgumentError),
    ],
)
def test_matrices_that_make_no_sense_are_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


# --- statistics ------------------------------------------------------------------------------------------------------

TIES = RNG.integers(0, 4, size=(4, 6)).astype(float)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_statistics_are_those_of_scipy(axis: int | None) -> None:
    mine, theirs = us.stats.mode(TIES, axis), scipy.stats.mode(TIES, axis)
    np.testing.assert_array_equal(mine.mode.eval(), theirs.mode)
    np.testing.assert_array_equal(mine.count.eval(), theirs.count)
    np.testing.assert_allclose(us.stats.sem(TIES, axis).eval(), scipy.stats.sem(TIES, axis))
    for method in ("average", "min", "max", "dense", "ordinal"):
        np.testing.assert_array_equal(
            us.stats.rankdata(TIES, method, axis=axis).eval(), scipy.stats.rankdata(TIES, method, axis=axis)
        )


def test_the_error_of_a_mean_is_differentiable_and_so_is_the_most_frequent_value() -> None:
    us.check_grad(lambda x: us.sum(us.stats.sem(x)), X)
    x = us.tensor([3.0, 1.0, 3.0])
    np.testing.assert_array_equal(us.stats.mode(x).mode.grad(x).eval(), [1.0, 0.0, 0.0])


@pytest.mark.parametrize("call", [lambda: us.stats.rankdata(X, "worst"), lambda: us.stats.mode(np.zeros(0))])
def test_statistics_that_make_no_sense_are_refused(call: Any) -> None:
    with pytest.raises(ArgumentError):
        call()
