"""Functions of matrices: what SciPy computes, at any spectrum, with derivatives of any order, or a typed error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import unspool as us
from unspool._graph import ancestors
from unspool._ops.linalg import schur
from unspool.errors import ArgumentError, KernelError, RankError, ShapeError

GENERATOR = np.random.default_rng(11)
SQUARE = GENERATOR.normal(size=(4, 4))
POSITIVE = SQUARE @ SQUARE.T + np.eye(4)
STACK = np.stack([POSITIVE, POSITIVE + SQUARE / 4])
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "exp": (us.linalg.matrix_exp, scipy.linalg.expm),
    "log": (us.linalg.logm, scipy.linalg.logm),
    "sqrt": (us.linalg.sqrtm, scipy.linalg.sqrtm),
}
EACH = pytest.mark.parametrize("name", FUNCTIONS)


def gradient(loss: Callable[[us.Tensor], us.Tensor], at: Any) -> Any:
    x = us.tensor(at)
    return loss(x).grad(x).eval()


# --- values ----------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("size", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_values_are_scipys(name: str, size: int, field: str) -> None:
    ours, theirs = FUNCTIONS[name]
    noise = np.random.default_rng(size).normal(size=(2, size, size)) / np.sqrt(size)
    a = 2 * np.eye(size) + (noise[0] + 1j * noise[1] if field == "complex" else noise[0]) / 2
    expected = theirs(a)
    np.testing.assert_allclose(ours(a).eval(), expected, atol=2e-14 * np.abs(expected).max() * size)


@EACH
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_dtype_stays(name: str, dtype: str) -> None:
    result = FUNCTIONS[name][0](POSITIVE.astype(dtype))
    assert result.dtype == dtype == result.eval().dtype


@EACH
@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (2, 1, 3, 3)])
def test_stacks_and_empty_matrices(name: str, shape: tuple[int, ...]) -> None:
    function = FUNCTIONS[name][0]
    a = np.broadcast_to(POSITIVE[: shape[-1], : shape[-1]], shape)
    assert function(a).eval().shape == shape
    found = gradient(lambda x: us.sum(function(x) ** 2), a)
    assert found.shape == shape
    if found.size:
        np.testing.assert_allclose(found[1, 0], gradient(lambda x: us.sum(function(x) ** 2), a[0, 0]), rtol=1e-12)


@EACH
def test_whole_numbers_become_floats(name: str) -> None:
    result = FUNCTIONS[name][0]([[2, 1], [1, 2]])
    np.testing.assert_allclose(result.eval(), FUNCTIONS[name][1](np.array([[2.0, 1.0], [1.0, 2.0]])), atol=1e-14)


@EACH
@pytest.mark.parametrize("x", [np.zeros(3), np.zeros((2, 3)), 1.0])
def test_what_is_not_a_square_matrix_is_refused(name: str, x: Any) -> None:
    with pytest.raises(ShapeError):
        FUNCTIONS[name][0](x)


# --- derivatives -----------------------------------------------------------------------------------------------------


@EACH
def test_third_derivatives_agree_with_differences(name: str) -> None:
    assert us.check_grad(FUNCTIONS[name][0], POSITIVE[:2, :2] / 4, order=3).ok


@EACH
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e4, 1e12, 1e30])
def test_the_size_of_a_loss_does_not_matter_to_second_derivatives(name: str, size: float) -> None:
    def second(factor: float) -> Any:
        x = us.tensor(POSITIVE)
        first = (factor * us.sum(us.tensor(SQUARE) * FUNCTIONS[name][0](x))).grad(x)
        return us.sum(us.tensor(SQUARE.T) * first).grad(x).eval() / factor

    expected = second(1.0)
    np.testing.assert_allclose(second(size), expected, atol=1e-11 * np.abs(expected).max())


@EACH
@pytest.mark.parametrize("gap", [1e-4, 1e-8, 1e-12, 1e-15, 0.0])
def test_derivatives_are_exact_where_eigenvalues_meet(name: str, gap: float) -> None:
    """The theorem of Daleckii and Krein, with divided differences in closed form."""
    turn = np.linalg.qr(SQUARE)[0]
    values = np.array([1, 1 + gap, 2, 3])
    f, slope = {
        "exp": (np.exp, np.exp),
        "log": (np.log, lambda v: 1 / v),
        "sqrt": (np.sqrt, lambda v: 0.5 / np.sqrt(v)),
    }[name]
    gaps = np.subtract.outer(values, values)
    middle = slope(np.add.outer(values, values) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        quotients = np.where(np.abs(gaps) < 1e-5, middle, np.subtract.outer(f(values), f(values)) / gaps)
    expected = turn @ (quotients * (turn.T @ POSITIVE @ turn)) @ turn.T
    found = gradient(lambda x: us.sum(us.tensor(POSITIVE) * FUNCTIONS[name][0](x)), turn @ np.diag(values) @ turn.T)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@EACH
def test_a_defective_matrix_is_nothing_special(name: str) -> None:
    jordan = np.diag([2.0, 2.0, 2.0]) + np.diag([1.0, 1.0], 1)
    assert us.check_grad(FUNCTIONS[name][0], jordan).ok


@EACH
def test_unknown_sizes_make_no_difference(name: str) -> None:
    n, b = us.dims("n b")
    function = FUNCTIONS[name][0]
    p = us.placeholder((b, n, n))
    first = us.sum(function(p) ** 2).grad(p)
    second = us.sum(first**2).grad(p)
    for a in (STACK, POSITIVE[None, :1, :1], np.zeros((2, 0, 0))):
        x = us.tensor(a)
        g = us.sum(function(x) ** 2).grad(x)
        np.testing.assert_allclose(first.eval({p: a}), g.eval(), rtol=1e-12)
        np.testing.assert_allclose(second.eval({p: a}), us.sum(g**2).grad(x).eval(), rtol=1e-12)


def test_inverse_functions_undo_each_other_in_the_chain_rule() -> None:
    weights = us.tensor(SQUARE)
    for there, back in (
        (us.linalg.matrix_exp, us.linalg.logm),
        (lambda x: us.linalg.matrix_power(x, 2), us.linalg.sqrtm),
    ):
        found = gradient(lambda x, f=there, g=back: us.sum(weights * g(f(x))), POSITIVE / 8)
        np.testing.assert_allclose(found, SQUARE, rtol=1e-9, atol=1e-10)


# --- where there is no value, or no derivative -----------------------------------------------------------------------

NEGATIVE = np.diag([1.0, -1.0])
NILPOTENT = np.array([[0.0, 1.0], [0.0, 0.0]])
SINGULAR = np.array([[2.0, 1.0], [2.0, 1.0]])


@pytest.mark.parametrize("function", [us.linalg.sqrtm, us.linalg.logm])
def test_a_real_matrix_whose_function_is_not_real_says_what_to_do(function: Any) -> None:
    for a in (NEGATIVE, -np.eye(2)):
        with pytest.raises(KernelError, match=r"complex128.*test_functions\.py"):
            function(a).eval()
        theirs = scipy.linalg.sqrtm if function is us.linalg.sqrtm else scipy.linalg.logm
        np.testing.assert_allclose(function(a.astype(complex)).eval(), theirs(a.astype(complex)), atol=1e-14)


def test_roots_of_singular_matrices_have_values_and_no_derivatives() -> None:
    for a in (np.zeros((2, 2)), SINGULAR, np.diag([1.0, 0.0])):
        root = us.linalg.sqrtm(a).eval()
        np.testing.assert_allclose(root @ root, a, atol=1e-14)
        with pytest.raises(RankError, match="singular"):
            gradient(lambda x: us.sum(us.linalg.sqrtm(x)), a)


def test_rounding_below_zero_does_not_make_a_root_complex() -> None:
    factor = GENERATOR.normal(size=(6, 2))
    a = factor @ factor.T
    root = us.linalg.sqrtm(a).eval()
    assert root.dtype == np.float64
    np.testing.assert_allclose(root @ root, a, atol=1e-13)


def test_a_defective_zero_has_no_root() -> None:
    with pytest.raises(KernelError, match="no square root"):
        us.linalg.sqrtm(NILPOTENT).eval()


def test_a_singular_matrix_has_no_logarithm() -> None:
    for a in (np.zeros((2, 2)), np.diag([1.0, 0.0]), NILPOTENT):
        with pytest.raises(KernelError, match="no logarithm"):
            us.linalg.logm(a).eval()


def test_the_logarithm_has_no_derivative_on_its_cut_nor_at_singular_matrices() -> None:
    with pytest.raises(KernelError, match="negative real axis"):
        gradient(lambda x: us.real(us.sum(us.linalg.logm(x))), NEGATIVE.astype(complex))
    with pytest.raises(RankError, match="singular"):
        gradient(lambda x: us.sum(us.linalg.logm(x)), np.diag([1.0, 1e-17]))


def test_an_equation_without_unique_solution_is_refused() -> None:
    a = np.array([[0.0, 1.0], [-1.0, 0.0]])
    with pytest.raises(RankError, match="unique"):
        schur.sylvester(a, a, np.eye(2), 1e-15)


# --- powers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(-4, 9))
def test_powers_are_numpys(n: int) -> None:
    np.testing.assert_allclose(us.linalg.matrix_power(STACK, n).eval(), np.linalg.matrix_power(STACK, n), rtol=1e-9)
    assert us.check_grad(lambda x: us.linalg.matrix_power(x, n), POSITIVE[:2, :2] / 4).ok


def test_powers_of_whole_numbers_are_whole() -> None:
    a = np.array([[1, 2], [3, 4]])
    for n in (0, 1, 5):
        result = us.linalg.matrix_power(a, n)
        assert result.dtype == a.dtype
        np.testing.assert_array_equal(result.eval(), np.linalg.matrix_power(a, n))
    np.testing.assert_allclose(us.linalg.matrix_power(a, -2).eval(), np.linalg.matrix_power(a, -2))


def test_a_power_takes_a_logarithmic_number_of_products() -> None:
    x = us.tensor(SQUARE)
    assert len(ancestors([us.linalg.matrix_power(x, 1000)])) <= 1 + 2 * 10


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (2, 0, 0)])
def test_powers_of_small_matrices(shape: tuple[int, ...]) -> None:
    for n in (-1, 0, 3):
        a = np.full(shape, 2.0)
        np.testing.assert_array_equal(us.linalg.matrix_power(a, n).eval(), np.linalg.matrix_power(a, n))


def test_powers_of_unknown_size() -> None:
    k, m = us.dims("k m")
    p = us.placeholder((k, m))
    cube = us.linalg.matrix_power(p, 3)
    np.testing.assert_allclose(cube.eval({p: SQUARE}), SQUARE @ SQUARE @ SQUARE)


@pytest.mark.parametrize(
    ("x", "n", "error"),
    [(np.eye(2), 0.5, ArgumentError), (np.ones(2), 2, ShapeError), (np.ones((2, 3)), 2, ShapeError)],
)
def test_powers_that_make_no_sense_are_refused(x: Any, n: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        us.linalg.matrix_power(x, n)
