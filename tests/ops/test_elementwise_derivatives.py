"""Derivatives of elementwise ops where formulas break down: kinks, ties, zeros, infinities, branches not taken.

Ordinary points are checked for every op by ``tests/test_registry.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import unspool as us
from unspool._autodiff.sweeps.forward import pushforward

INF, NAN = np.inf, np.nan


def gradients(function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the gradients of the sum of a function's (real) result, for which forward mode has to give the same."""
    leaves = [us.tensor(np.asarray(a)) for a in args]
    out = us.sum(function(*leaves))
    found = []
    for leaf in leaves:
        gradient = out.grad(leaf).eval()
        for index in np.ndindex(gradient.shape):
            direction = np.zeros(gradient.shape, gradient.dtype)
            for unit in (1.0, 1.0j) if gradient.dtype.kind == "c" else (1.0,):
                direction[index] = unit
                (slope,) = pushforward([out], [leaf], [us.constant(direction)])
                assert slope is not None
                np.testing.assert_allclose(slope.eval(), (np.conj(unit) * gradient[index]).real, rtol=1e-12)
        found.append(gradient)
    return found


def gradient(function: Callable[..., Any], x: Any) -> Any:
    return gradients(function, x)[0]


def nth_derivative(function: Callable[..., Any], x: Any, order: int) -> Any:
    """Return the n-th derivative, element by element, of a function of one real argument."""
    leaf = us.tensor(np.asarray(x, dtype=float))
    out = function(leaf)
    for _ in range(order):
        out = us.sum(out).grad(leaf, unconnected="zeros")
    return out.eval()


# --- branches that are not taken -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [
        (lambda x: us.where(x > 0, us.log(x), 0.0), [0.0, 2.0], [0.0, 0.5]),
        (lambda x: us.where(x > 0, us.sqrt(x), x), [0.0, 4.0], [1.0, 0.25]),
        (lambda x: us.where(x > 0, us.sin(us.sqrt(x)) / x, 1.0), [0.0], [0.0]),
        (lambda x: us.sqrt(us.where(x > 0, x, 0.0)), [0.0, 4.0], [0.0, 0.25]),
        (lambda x: us.maximum(us.sqrt(x), 1.0), [0.0, 4.0], [0.0, 0.25]),
        (lambda x: us.minimum(1.0, 1 / x), [0.0, 2.0], [0.0, -0.25]),
        (lambda x: us.fmax(us.log(x), -1.0), [0.0, 2.0], [0.0, 0.5]),
        (lambda x: us.clip(us.log(x), -1.0, 1.0), [0.0, 2.0], [0.0, 0.5]),
        (lambda x: us.relu(us.log(x)), [0.0, 2.0], [0.0, 0.5]),
        (lambda x: us.nan_to_num(us.log(x)), [0.0, -1.0, 2.0], [0.0, 0.0, 0.5]),
        (lambda x: us.floor(us.sqrt(x)), [0.0, 2.0], [0.0, 0.0]),
        (lambda x: us.sign(us.log(x)), [0.0, 2.0], [0.0, 0.0]),
        (lambda x: us.where(x > 0, us.log(x), 0.0) + us.where(x > 0, us.sqrt(x), 0.0), [0.0, 4.0], [0.0, 0.5]),
        (lambda x: us.where([[False, True], [False, False]], us.sqrt(x), 0.0), [0.0, 4.0], [0.0, 0.25]),
    ],
)
def test_infinities_of_a_branch_that_is_not_taken_never_spoil_a_gradient(function: Any, x: Any, expected: Any) -> None:
    np.testing.assert_allclose(gradient(function, x), expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: us.where(x > 0, us.log(x), 0.0),
        lambda x: us.maximum(us.sqrt(x), 1.0),
        lambda x: us.relu(us.log(x)),
        lambda x: us.where(x > 0, x**0.5 / (x * x), 0.0),
    ],
)
@pytest.mark.parametrize("order", [2, 3])
def test_neither_do_they_spoil_higher_derivatives(function: Any, order: int) -> None:
    at_zero, elsewhere = nth_derivative(function, [0.0, 4.0], order)
    assert at_zero == 0
    assert np.isfinite(elsewhere)
    assert elsewhere != 0


def test_a_zero_that_was_computed_is_not_absent() -> None:
    assert gradient(us.sqrt, [0.0]) == INF
    assert gradient(lambda x: us.where([True, False], us.sqrt(x), 0.0), 0.0) == INF
    assert np.isnan(gradient(lambda x: 0.0 * us.sqrt(x), [0.0]))


# --- kinks and ties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [us.maximum, us.minimum, us.fmax, us.fmin])
def test_a_tie_is_split_equally(function: Any) -> None:
    for half in gradients(function, [1.0, 0.0, -2.0], [1.0, -0.0, -2.0]):
        np.testing.assert_array_equal(half, [0.5, 0.5, 0.5])


def test_the_winner_takes_all() -> None:
    first, second = gradients(us.maximum, [1.0, 5.0], [2.0, 3.0])
    np.testing.assert_array_equal(first, [0.0, 1.0])
    np.testing.assert_array_equal(second, [1.0, 0.0])
    first, second = gradients(us.minimum, [1.0, 5.0], [2.0, 3.0])
    np.testing.assert_array_equal(first, [1.0, 0.0])
    np.testing.assert_array_equal(second, [0.0, 1.0])


def test_a_skipped_nan_gets_no_gradient() -> None:
    first, second = gradients(us.fmin, [NAN, 1.0], [1.0, NAN])
    np.testing.assert_array_equal(first, [0.0, 1.0])
    np.testing.assert_array_equal(second, [1.0, 0.0])


def test_clip_has_slope_one_inside_zero_outside_and_a_half_on_a_bound() -> None:
    slope = gradient(lambda x: us.clip(x, 0.0, 1.0), [-1.0, 0.0, 0.5, 1.0, 2.0])
    np.testing.assert_array_equal(slope, [0.0, 0.5, 1.0, 0.5, 0.0])


def test_bounds_of_clip_get_what_the_argument_does_not() -> None:
    _, low, high = gradients(us.clip, [-1.0, 0.5, 2.0], 0.0, 1.0)
    assert (low, high) == (1.0, 1.0)


def test_relu_has_slope_zero_at_zero() -> None:
    np.testing.assert_array_equal(gradient(us.relu, [-1.0, 0.0, 2.0]), [0.0, 0.0, 1.0])


def test_abs_has_slope_zero_at_zero() -> None:
    np.testing.assert_array_equal(gradient(us.abs, [-2.0, 0.0, 3.0]), [-1.0, 0.0, 1.0])
    np.testing.assert_allclose(gradient(us.abs, [0j, 3 + 4j]), [0j, 0.6 + 0.8j])


def test_remainder_has_slope_one_by_dividend_and_minus_the_quotient_by_divisor() -> None:
    dividend, divisor = gradients(us.remainder, [7.5, -7.5], [2.0, 2.0])
    np.testing.assert_array_equal(dividend, [1.0, 1.0])
    np.testing.assert_array_equal(divisor, [-3.0, 4.0])


def test_copysign_follows_the_sign_of_the_size() -> None:
    size, sign = gradients(us.copysign, [2.0, -2.0, 2.0], [1.0, 1.0, -1.0])
    np.testing.assert_array_equal(size, [1.0, -1.0, -1.0])
    np.testing.assert_array_equal(sign, [0.0, 0.0, 0.0])


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_steps_have_a_derivative_that_is_zero_and_connected(name: str) -> None:
    x = us.tensor([0.3, 1.7])
    slope = us.sum(getattr(us, name)(x)).grad(x, unconnected="raise")
    np.testing.assert_array_equal(slope.eval(), [0.0, 0.0])


# --- the origin ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [us.hypot, us.arctan2, us.xlogy])
def test_no_derivative_passes_at_the_origin(function: Any) -> None:
    x, y = us.tensor([0.0, 1.0]), us.tensor([0.0, 2.0])
    out = us.sum(function(x, y))
    for first in out.grad([x, y]):
        assert first.eval()[0] == 0
        for second in us.sum(first).grad([x, y]):
            assert second.eval()[0] == 0
            assert np.isfinite(second.eval()).all()


@pytest.mark.parametrize("function", [us.abs, us.angle, lambda z: us.real(us.sign(z)), lambda z: us.abs(z) ** 2])
def test_derivatives_of_complex_functions_are_finite_at_zero_to_third_order(function: Any) -> None:
    z = us.tensor([0j, 1 + 2j])
    out = us.sum(function(z))
    for _ in range(3):
        slope = out.grad(z)
        assert np.isfinite(slope.eval()).all()
        out = us.sum(us.real(slope) + us.imag(slope))


def test_xlogy_has_its_mixed_derivative_where_the_factor_is_zero() -> None:
    x, y = us.tensor(0.0), us.tensor(4.0)
    assert us.xlogy(x, y).grad(x).grad(y).eval() == 0.25
    assert us.xlogy(x, y).grad(y).grad(x).eval() == 0.25


@pytest.mark.parametrize("order", range(6))
def test_sinc_is_smooth_at_zero_and_near_it(order: int) -> None:
    # The n-th derivative of sinc at 0 is pi^n times the integral of t^n cos(n pi / 2) over [0, 1].
    expected = np.pi**order * np.cos(order * np.pi / 2) / (order + 1)
    np.testing.assert_allclose(nth_derivative(us.sinc, [0.0], order), [expected], atol=1e-13)
    # Elsewhere by quadrature of the same integral, sinc(x) = integral of cos(pi x t).
    nodes, weights = np.polynomial.legendre.leggauss(60)
    t = (nodes + 1) / 2
    for x in (1e-6, 0.01, 0.4, 1.3, 0.99 * (order + 1) / np.pi, 1.01 * (order + 1) / np.pi, 5.7):
        integrand = (np.pi * t) ** order * np.cos(np.pi * x * t + order * np.pi / 2)
        value = nth_derivative(us.sinc, [x], order)
        np.testing.assert_allclose(value, [np.sum(weights * integrand) / 2], rtol=1e-11, atol=1e-12)


# --- powers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "by_x"),
    [
        (0.0, 0.0, 0.0),
        (0.0, 1.0, 1.0),
        (0.0, 2.0, 0.0),
        (0.0, 3.0, 0.0),
        (0.0, 0.5, INF),
        (2.0, 0.0, 0.0),
        (-2.0, 3.0, 12.0),
        (-2.0, -1.0, -0.25),
    ],
)
def test_powers_have_the_right_derivative_by_their_base(x: float, y: float, by_x: float) -> None:
    assert gradient(lambda x: us.power(x, y), x) == by_x
    assert gradient(lambda x: us.power(x, us.constant(y)), x) == by_x
    assert gradient(lambda x: us.power(x, [y, y]), x) == 2 * by_x
    leaf, exponent = us.tensor(x), us.tensor(y)
    assert us.power(leaf, exponent).grad(leaf).eval() == by_x


@pytest.mark.parametrize(("x", "y", "by_y"), [(0.0, 2.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 0.0), (2.0, 0.0, np.log(2))])
def test_powers_have_the_right_derivative_by_their_exponent(x: float, y: float, by_y: float) -> None:
    assert gradients(us.power, x, y)[1] == pytest.approx(by_y)


def test_only_the_exponent_of_a_negative_base_has_no_derivative() -> None:
    base, exponent = us.tensor(-2.0), us.tensor(3.0)
    by_base, by_exponent = us.power(base, exponent).grad([base, exponent])
    assert by_base.eval() == 12.0
    assert np.isnan(by_exponent.eval())


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [0, 1, 2, 3, -1])
def test_integer_powers_have_the_right_derivatives_to_any_order(n: int, order: int) -> None:
    x = np.array([0.0, -2.0, 3.0]) if n >= 0 else np.array([-2.0, 3.0])
    expected = np.polynomial.Polynomial([0.0] * n + [1.0]).deriv(order)(x) if n >= 0 else None
    if expected is None:
        expected = special.factorial(order) * (-1.0) ** order * x ** (-1.0 - order)
    np.testing.assert_allclose(nth_derivative(lambda x: x**n + 0 * x, x, order), expected, rtol=1e-14)


# --- large arguments and infinities ----------------------------------------------------------------------------------

LARGE = np.array([-1e4, -800.0, 0.0, 800.0, 1e4])


@pytest.mark.parametrize(
    ("function", "value", "slope"),
    [
        (us.sigmoid, [0, 0, 0.5, 1, 1], [0, 0, 0.25, 0, 0]),
        (us.softplus, [0, 0, np.log(2), 800, 1e4], [0, 0, 0.5, 1, 1]),
        (us.tanh, [-1, -1, 0, 1, 1], [0, 0, 1, 0, 0]),
        (us.erf, [-1, -1, 0, 1, 1], [0, 0, 2 / np.sqrt(np.pi), 0, 0]),
        (us.erfc, [2, 2, 1, 0, 0], [0, 0, -2 / np.sqrt(np.pi), 0, 0]),
        (lambda x: us.logaddexp(x, 0.0), [0, 0, np.log(2), 800, 1e4], [0, 0, 0.5, 1, 1]),
        (lambda x: us.logaddexp(0.0, x), [0, 0, np.log(2), 800, 1e4], [0, 0, 0.5, 1, 1]),
        (lambda x: us.log1p(us.square(x)), np.log1p(LARGE**2), 2 * LARGE / (1 + LARGE**2)),
        (us.arctan, np.arctan(LARGE), 1 / (1 + LARGE**2)),
        (us.arcsinh, np.arcsinh(LARGE), 1 / np.sqrt(1 + LARGE**2)),
    ],
)
def test_nothing_overflows_into_nan_for_large_arguments(function: Any, value: Any, slope: Any) -> None:
    np.testing.assert_allclose(function(us.tensor(LARGE)).eval(), value, rtol=1e-14)
    np.testing.assert_allclose(gradient(function, LARGE), slope, rtol=1e-13)
    assert np.isfinite(nth_derivative(function, LARGE, 2)).all()


def test_small_values_of_sigmoid_and_softplus_keep_their_digits() -> None:
    x = np.array([-30.0, -100.0, -700.0])
    for function in (us.sigmoid, us.softplus):
        np.testing.assert_allclose(function(x).eval(), np.exp(x), rtol=1e-12)
        np.testing.assert_allclose(gradient(function, x), np.exp(x), rtol=1e-12)


@pytest.mark.parametrize("function", [us.logaddexp, us.logaddexp2])
def test_infinite_operands_of_logaddexp_have_finite_derivatives(function: Any) -> None:
    first, second = gradients(function, [-INF, -INF, 1.0, INF], [-INF, 0.0, -INF, INF])
    np.testing.assert_array_equal(first, [0.5, 0.0, 1.0, 0.5])
    np.testing.assert_array_equal(second, [0.5, 1.0, 0.0, 0.5])
    x, y = us.tensor([-INF, -INF, 1.0]), us.tensor([-INF, 0.0, 1.0])
    for slope in us.sum(function(x, y)).grad([x, y]):
        for curvature in us.sum(slope).grad([x, y]):
            assert np.isfinite(curvature.eval()).all()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_hypot_and_arctan2_do_not_square_their_arguments(scale: float) -> None:
    first, second = gradients(us.hypot, 3 * scale, 4 * scale)
    np.testing.assert_allclose([first, second], [0.6, 0.8])
    first, second = gradients(us.arctan2, 3 * scale, 4 * scale)
    np.testing.assert_allclose([first, second], [0.16 / scale, -0.12 / scale])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_gammaln_is_differentiable_to_any_order(order: int) -> None:
    x = np.array([0.5, 1.0, 3.7])
    np.testing.assert_allclose(nth_derivative(us.gammaln, x, order), special.polygamma(order - 1, x), rtol=1e-12)


# --- complex numbers -------------------------------------------------------------------------------------------------


def test_the_gradient_of_a_squared_absolute_value_points_uphill() -> None:
    np.testing.assert_allclose(gradient(lambda z: us.abs(z) ** 2, [3 + 4j]), [6 + 8j])
    np.testing.assert_allclose(gradient(lambda z: us.real(z * us.conj(z)), [3 + 4j]), [6 + 8j])


def test_an_infinite_cotangent_stays_in_the_part_it_belongs_to() -> None:
    z = us.tensor([1 + 0j])
    slope = us.sum(us.sqrt(us.imag(z))).grad(z).eval()
    assert slope.real == 0
    assert slope.imag == INF


@pytest.mark.parametrize("function", [us.arcsin, us.arccos, us.arccosh, us.arcsinh, us.arctanh, us.log, us.sqrt])
def test_inverse_functions_use_the_branch_that_numpy_takes_in_every_quadrant(function: Any) -> None:
    step = 1e-6
    for z in (1.5 + 0.7j, -1.5 + 0.7j, -1.5 - 0.7j, 1.5 - 0.7j):
        leaf = us.tensor(z)
        derivative = us.conj(us.real(function(leaf)).grad(leaf)).eval()
        expected = (function(z + step).eval() - function(z - step).eval()) / (2 * step)
        np.testing.assert_allclose(derivative, expected, rtol=1e-8)


def test_a_real_operand_of_a_complex_product_gets_a_real_gradient() -> None:
    x, z = us.tensor([2.0]), us.tensor([1 + 3j])
    by_x, by_z = us.sum(us.imag(x * z)).grad([x, z])
    assert by_x.dtype == np.float64
    assert by_x.eval() == 3.0
    assert by_z.eval() == 2j


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", ["exp", "sqrt", "square", "tanh", "sinc", "abs", "rsqrt", "log2"])
def test_derivatives_keep_single_precision(name: str, dtype: str) -> None:
    x = us.tensor(np.array([1.5, 0.5], dtype))
    out = us.sum(us.real(getattr(us, name)(x)))
    assert out.dtype == np.float32
    for node in (out.grad(x), us.sum(us.real(out.grad(x))).grad(x)):
        assert node.dtype == np.dtype(dtype)
        assert node.eval().dtype == np.dtype(dtype)
