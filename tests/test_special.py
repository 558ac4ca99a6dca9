"""Special functions: SciPy's values at special points, and derivatives held against closed forms, in the tails too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import unspool as us
from unspool.errors import ArgumentError, DTypeError, MissingRuleError

INF, NAN = np.inf, np.nan


def slope(function: Any, *args: Any, by: int = 0) -> Any:
    leaves = [us.tensor(np.asarray(a, float)) for a in args]
    return us.sum(function(*leaves)).grad(leaves[by]).eval()


def second(function: Any, x: Any) -> Any:
    leaf = us.tensor(np.asarray(x, float))
    return us.sum(us.sum(function(leaf)).grad(leaf)).grad(leaf).eval()


# --- values ----------------------------------------------------------------------------------------------------------

POINTS = np.array([-INF, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 40.0, INF, NAN])
PLAIN = "erfinv erfcinv erfcx ndtr ndtri log_ndtr logit expit log_expit entr gamma gammaln gammasgn digamma psi exp1"
PLAIN += " expi spence j0 j1 y0 y1 i0 i0e i1 i1e k0 k0e k1 k1e erf erfc cbrt exp2 expm1 log1p"


@pytest.mark.parametrize("name", PLAIN.split())
def test_special_points_have_scipys_values(name: str) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(POINTS)
    np.testing.assert_allclose(getattr(us.special, name)(POINTS).eval(), expected, rtol=1e-14)


@pytest.mark.parametrize("name", PLAIN.split())
def test_integers_of_few_bits_have_the_values_of_numbers(name: str) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(np.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(getattr(us.special, name)(np.array([0, 1, 3], "uint8")).eval(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["xlogy", "xlog1py", "rel_entr", "kl_div", "beta", "betaln", "poch", "gammainc", "gammaincc", "jv", "ive"]
)
def test_pairs_of_special_points_have_scipys_values(name: str) -> None:
    first, second = POINTS[:, None], POINTS
    with np.errstate(all="ignore"):
        expected = getattr(special, name)(first, second)
    np.testing.assert_allclose(getattr(us.special, name)(first, second).eval(), expected, rtol=1e-13)


def test_functions_made_of_others_have_scipys_values() -> None:
    np.testing.assert_allclose(us.special.factorial([0, 1, 5, 2.5, -1.0]).eval(), special.factorial([0, 1, 5, 2.5, -1]))
    for d in (1, 2, 5):
        np.testing.assert_allclose(us.special.multigammaln([3.0, 7.5], d).eval(), special.multigammaln([3.0, 7.5], d))
    np.testing.assert_allclose(us.special.zeta([1.5, 3.0]).eval(), special.zeta([1.5, 3.0]))
    x = np.array([0.1, 0.7])
    np.testing.assert_allclose(us.special.betaincc(2.0, 3.0, x).eval(), special.betaincc(2.0, 3.0, x))
    np.testing.assert_allclose(us.special.jn(3, x).eval(), special.jn(3, x))
    np.testing.assert_allclose(us.special.yn(3, x).eval(), special.yn(3, x))
    np.testing.assert_allclose(us.special.yn(us.tensor(3.7), x).eval(), special.yn(3, x))


def test_integers_become_doubles_and_singles_stay_singles() -> None:
    single = us.tensor(np.array([0.25, 0.5], np.float32))
    for name, args, dtype in (
        ("gammainc", (2, single), np.float32),
        ("gammainc", (np.array([2, 3]), single), np.float64),
        ("betainc", (2, 3, single), np.float32),
        ("betainc", (1, 2, 0), np.float64),
        ("betaincinv", (2, 3, single), np.float32),
        ("gammaincinv", (2, single), np.float32),
        ("gamma", (3,), np.float64),
        ("xlog1py", (1, 2), np.float64),
        ("jv", (1, 2), np.float64),
        ("jv", (1, single), np.float32),
        ("stdtr", (3, single), np.float32),
        ("zeta", (2, 3), np.float64),
        ("hyp2f1", (1, 2, 3, single), np.float32),
    ):
        out = getattr(us.special, name)(*args)
        expected = getattr(special, name)(*[a.eval() if isinstance(a, us.Tensor) else a for a in args])
        assert out.eval().dtype == out.dtype == dtype, (name, args)
        np.testing.assert_allclose(out.eval(), expected, rtol=1e-5)


def test_scipys_own_functions_take_tensors() -> None:
    t, x = us.tensor([0.3, 1.2]), np.array([0.3, 1.2])
    for call in (special.gammainc, special.xlogy, special.kl_div, special.betaln):
        np.testing.assert_allclose(call(t, 2.0).eval(), call(x, 2.0))
    for call in (special.erf, special.gammaln, special.j0, special.expit, special.log_ndtr):
        assert isinstance(call(t), us.Tensor)
        np.testing.assert_allclose(call(t).eval(), call(x))


# --- derivatives in the tails ----------------------------------------------------------------------------------------


def test_log_ndtr_has_its_slope_and_curvature_in_both_tails() -> None:
    """By the asymptotic series of Mills' ratio, log Φ(x) has the slope -x - 1/x + 2/x³ - … far below 0."""
    x = np.array([-1e3, -1e5, -1e8])
    np.testing.assert_allclose(slope(us.special.log_ndtr, x), -x - 1 / x + 2 / x**3, rtol=1e-13)
    np.testing.assert_allclose(second(us.special.log_ndtr, x), -1 + 1 / x**2 - 6 / x**4, rtol=1e-9)
    above = np.array([5.0, 30.0, 50.0, 1e3])
    density = np.exp(-(above**2) / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(slope(us.special.log_ndtr, above), density / special.ndtr(above), rtol=1e-13)
    np.testing.assert_allclose(second(us.special.log_ndtr, above), -above * density, rtol=1e-5, atol=1e-300)


def test_erfcx_keeps_its_digits_where_it_is_almost_a_power() -> None:
    x = np.array([1e3, 1e4, 1e8])
    leading = 1 / (np.sqrt(np.pi) * x**2)
    np.testing.assert_allclose(slope(us.special.erfcx, x), -leading * (1 - 1.5 / x**2 + 3.75 / x**4), rtol=1e-13)
    np.testing.assert_allclose(second(us.special.erfcx, x), 2 * leading / x * (1 - 3 / x**2 + 11.25 / x**4), rtol=1e-13)


def test_erfcx_is_flat_at_infinity() -> None:
    for x in (INF, 1e200, 1e300):
        assert abs(slope(us.special.erfcx, x)) < 1e-300
    assert slope(us.special.erfcx, -INF) == -INF
    assert np.isnan(slope(us.special.erfcx, NAN))


def test_entropies_have_their_one_sided_slopes_at_zero() -> None:
    assert slope(us.special.entr, 0.0) == INF
    assert slope(us.special.rel_entr, 0.0, 1.0, by=0) == -INF
    assert slope(us.special.rel_entr, 0.0, 1.0, by=1) == 0
    assert slope(us.special.kl_div, 0.0, 1.0, by=1) == 1


@pytest.mark.parametrize("function", [us.special.rel_entr, us.special.kl_div])
@pytest.mark.parametrize("by", [0, 1])
def test_nothing_passes_where_both_probabilities_are_zero(function: Any, by: int) -> None:
    assert slope(function, 0.0, 0.0, by=by) == 0


def test_nothing_passes_where_xlog1py_is_zero_times_minus_infinity() -> None:
    for by in (0, 1):
        assert slope(us.special.xlog1py, 0.0, -1.0, by=by) == 0
    assert slope(us.special.xlog1py, 0.0, 1.0, by=0) == np.log(2)


@pytest.mark.parametrize("x", [0.9999, 1.0, 1.0001, 0.951, 0.949])
def test_spence_is_smooth_at_one(x: float) -> None:
    expected = -1.0 if x == 1 else -np.log1p(x - 1) / (x - 1)
    np.testing.assert_allclose(slope(us.special.spence, x), expected, rtol=1e-15)
    u = x - 1
    curvature = sum((-1) ** k * -(k + 1) / (k + 2) * u**k for k in range(20)) * -1
    np.testing.assert_allclose(second(us.special.spence, x), curvature, rtol=1e-12)


# --- derivatives by parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0.01, 0.3, 0.5614, 0.5615, 1.0, 5.0, 40.0, 600.0])
def test_gammainc_has_the_elementary_slope_at_shape_one(x: float) -> None:
    expected = -special.exp1(x) - np.exp(-x) * (np.log(x) + np.euler_gamma)
    np.testing.assert_allclose(slope(us.special.gammainc, 1.0, x), expected, rtol=1e-11)
    np.testing.assert_allclose(slope(us.special.gammaincc, 1.0, x), -expected, rtol=1e-11)


@pytest.mark.parametrize("x", [1e-10, 0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("a", [1e-3, 0.7, 3.0, 200.0])
def test_betainc_has_the_elementary_slope_where_one_parameter_is_one(a: float, x: float) -> None:
    np.testing.assert_allclose(slope(us.special.betainc, a, 1.0, x, by=0), x**a * np.log(x), rtol=1e-11)
    expected = -((1 - x) ** a) * np.log1p(-x)
    np.testing.assert_allclose(slope(us.special.betainc, 1.0, a, x, by=1), expected, rtol=1e-11)


@pytest.mark.parametrize("a", [1e-4, 0.02, 0.5, 7.0, 1e3, 1e6])
def test_shape_derivatives_agree_with_those_of_the_quantile(a: float) -> None:
    """The recurrence P(a+1, x) = P(a, x) - x^a e^{-x} / Γ(a+1), differentiated by a, ties neighbours together."""
    x = special.gammaincinv(a + 1, np.array([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6]))
    term = np.exp(special.xlogy(a, x) - x - special.gammaln(a + 1)) * (np.log(x) - special.digamma(a + 1))
    left, right = (slope(us.special.gammainc, np.full(5, shape), x) for shape in (a + 1, a))
    scale = np.abs(left) + np.abs(right) + np.abs(term)
    # The density itself carries the rounding of exponents of the size of a.
    assert (np.abs(left - right + term) <= (1e-12 + 3e-16 * a * np.log(a + 2)) * scale).all()


def test_incomplete_functions_do_not_move_with_their_parameters_at_the_ends() -> None:
    for function, ends in ((us.special.gammainc, [0.0, INF]), (us.special.gammaincc, [0.0, INF])):
        np.testing.assert_array_equal(slope(function, [2.0, 0.5], ends), [0.0, 0.0])
    for by in (0, 1):
        np.testing.assert_array_equal(slope(us.special.betainc, [2.0, 0.5], [1.5, 0.5], [0.0, 1.0], by=by), [0, 0])
    np.testing.assert_array_equal(slope(us.special.gammainc, [2.0, 1.0, 0.5], [0.0, 0.0, 0.0], by=1), [0, 1, INF])
    assert slope(us.special.gammainc, 2.0, INF, by=1) == 0


def test_third_derivatives_by_the_shape_agree_with_differences() -> None:
    def curvature(a: float) -> float:
        leaf = us.tensor(a)
        return float(us.special.gammainc(leaf, 1.3).grad(leaf).grad(leaf))

    leaf, h = us.tensor(2.2), 1e-4
    third = us.special.gammainc(leaf, 1.3).grad(leaf).grad(leaf).grad(leaf)
    np.testing.assert_allclose(float(third), (curvature(2.2 + h) - curvature(2.2 - h)) / (2 * h), rtol=1e-6)


def test_quantiles_of_tiny_shapes_stay_in_range_in_logarithms() -> None:
    from unspool._ops.special.incomplete import log_gamma_quantile

    a = us.tensor(1e-4)
    w = log_gamma_quantile(a, 0.5)
    # P(a, x) is x^a / Γ(a + 1) for an x this small.
    expected = (np.log(0.5) + special.gammaln(1 + 1e-4)) / 1e-4
    np.testing.assert_allclose(float(w), expected, rtol=1e-14)
    np.testing.assert_allclose(float(w.grad(a)), -expected / 1e-4 + special.digamma(1 + 1e-4) / 1e-4, rtol=1e-11)


# --- what there is not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args", "what"),
    [
        (us.special.jv, (1.5, 2.0), "jv has no derivative with respect to its order v"),
        (us.special.ive, (1.5, 2.0), "ive has no derivative with respect to its order v"),
        (us.special.zeta, (2.5, 2.0), "zeta has no derivative with respect to its exponent x"),
        (us.special.hyp1f1, (1.5, 2.0, 0.5), "hyp1f1 has no derivative with respect to its parameter a"),
        (us.special.hyp2f1, (1.5, 2.0, 1.0, 0.5), "hyp2f1 has no derivative with respect to its parameter a"),
    ],
)
def test_a_derivative_without_a_closed_form_is_refused_by_name(function: Any, args: Any, what: str) -> None:
    leaves = [us.tensor(a) for a in args]
    out = function(*leaves)
    assert np.isfinite(out.grad(leaves[-1]).eval())
    with pytest.raises(MissingRuleError, match=what):
        out.grad(leaves[0])
    with pytest.raises(MissingRuleError, match="test_special.py"):
        us.jvp(lambda v: function(v, *leaves[1:]), (leaves[0],), (us.tensor(1.0),))


def test_mistakes_are_typed() -> None:
    with pytest.raises(DTypeError, match="real numbers"):
        us.special.ndtr([1j])
    with pytest.raises(DTypeError, match="real numbers"):
        us.special.gammainc([1j], 1.0)
    for order in (1.5, -1):
        with pytest.raises(ArgumentError, match="expn takes"):
            us.special.expn(order, 1.0)  # type: ignore[arg-type]
    for dimension in (1.5, 0):
        with pytest.raises(ArgumentError, match="multigammaln takes"):
            us.special.multigammaln(3.0, dimension)  # type: ignore[arg-type]
