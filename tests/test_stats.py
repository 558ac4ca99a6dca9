"""Distributions: SciPy's values in and out of the support and far into the tails, and derivatives in all parameters."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import unspool as us
from unspool.errors import ArgumentError, ShapeError, UnsupportedError

INF, NAN = np.inf, np.nan
POINTS = np.array([-INF, -30.0, -1.3, -1e-3, 0.0, 0.2, 0.6, 1.0, 1.7, 25.0, INF, NAN])
LEVELS = np.array([-0.1, 0.0, 1e-10, 0.2, 0.5, 0.9, 1.0, 1.1, NAN])
DENSITIES, TAILS, QUANTILES = ("logpdf", "pdf"), ("cdf", "sf", "logcdf", "logsf"), ("ppf", "isf")

CONTINUOUS: list[tuple[str, list[tuple[float, ...]]]] = [
    ("norm", [()]),
    ("t", [(0.7,), (5.0,)]),
    ("cauchy", [()]),
    ("laplace", [()]),
    ("logistic", [()]),
    ("gennorm", [(1.5,), (3.0,)]),
    ("uniform", [()]),
    ("expon", [()]),
    ("gamma", [(0.5,), (1.0,), (4.0,)]),
    ("chi2", [(1.0,), (2.0,), (6.0,)]),
    ("beta", [(0.5, 0.5), (1.0, 1.0), (2.0, 5.0)]),
    ("pareto", [(2.5,)]),
    ("lognorm", [(0.6,)]),
    ("vonmises", [(0.0,), (3.0,)]),
    ("gumbel_r", [()]),
    ("gumbel_l", [()]),
    ("wrapcauchy", [(0.3,)]),
    ("truncnorm", [(-1.0, 2.0), (0.2, 1.5)]),
]
WITHOUT_QUANTILES = ("vonmises", "gennorm", "wrapcauchy")
WITHOUT_TAILS = ("vonmises", "wrapcauchy")
CASES = [(name, shapes) for name, all_shapes in CONTINUOUS for shapes in all_shapes]


@pytest.mark.parametrize(("name", "shapes"), CASES)
@pytest.mark.parametrize("method", [*DENSITIES, *TAILS, *QUANTILES])
def test_continuous_families_have_scipys_values(name: str, shapes: Any, method: str) -> None:
    ours, theirs = getattr(us.stats, name), getattr(stats, name)
    if (name in WITHOUT_TAILS and method in TAILS) or (name in WITHOUT_QUANTILES and method in QUANTILES):
        with pytest.raises(UnsupportedError, match=f"{name} has no"):
            getattr(ours, method)(0.5, *shapes)
        return
    x = LEVELS if method in QUANTILES else POINTS[np.abs(POINTS) < 3] if name == "vonmises" else POINTS
    for place in ((), (0.3, 2.0)):
        with np.errstate(all="ignore"):
            expected = getattr(theirs, method)(x, *shapes, *place)
        if method in DENSITIES:
            # Where SciPy has infinity less infinity, the density is 0.
            expected = np.where(np.isinf(x), -INF if method == "logpdf" else 0.0, expected)
        found = getattr(ours, method)(x, *shapes, *place).eval()
        np.testing.assert_allclose(found, expected, rtol=2e-12, atol=1e-15, err_msg=str(place))


DISCRETE: list[tuple[str, tuple[float, ...]]] = [
    ("poisson", (2.5,)),
    ("poisson", (0.0,)),
    ("bernoulli", (0.3,)),
    ("bernoulli", (1.0,)),
    ("binom", (7, 0.3)),
    ("binom", (7, 0.0)),
    ("geom", (0.3,)),
    ("nbinom", (2.5, 0.3)),
    ("betabinom", (7, 0.8, 2.0)),
]


@pytest.mark.parametrize(("name", "shapes"), DISCRETE)
def test_discrete_families_have_scipys_values(name: str, shapes: Any) -> None:
    ours, theirs = getattr(us.stats, name), getattr(stats, name)
    k = np.array([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 2.7, 6.0, 7.0, 8.0, 30.0])
    tails = () if name == "betabinom" else TAILS
    for method in ("logpmf", "pmf", *tails):
        for place in ((), (1,)):
            with np.errstate(all="ignore"):
                expected = getattr(theirs, method)(k, *shapes, *place)
            np.testing.assert_allclose(
                getattr(ours, method)(k, *shapes, *place).eval(), expected, rtol=1e-11, atol=1e-13, err_msg=method
            )
    np.testing.assert_allclose(ours.logpmf(3, *shapes).eval(), theirs.logpmf(3, *shapes), rtol=1e-12)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "shapes"), [(n, s[-1]) for n, s in CONTINUOUS])
def test_methods_are_differentiable_in_the_variable_and_all_parameters(name: str, shapes: Any) -> None:
    family, theirs = getattr(us.stats, name), getattr(stats, name)
    args = tuple(np.array(p) for p in (*shapes, 0.3, 1.7))
    x = theirs.ppf(np.array([0.2, 0.7]), *args)
    methods = ["logpdf"] if name in WITHOUT_TAILS else ["logpdf", "cdf", "logsf"]
    for method in methods:
        us.check_grad(getattr(family, method), x, *args, order=1 if method == "logsf" else 2)
    if name not in WITHOUT_QUANTILES:
        us.check_grad(family.ppf, np.array([0.2, 0.7]), *args, order=1)


@pytest.mark.parametrize(
    ("name", "shapes"), [("poisson", (2.5,)), ("bernoulli", (0.3,)), ("geom", (0.3,)), ("nbinom", (2.5, 0.3))]
)
def test_probabilities_of_counts_are_differentiable_in_their_parameters(name: str, shapes: Any) -> None:
    family, k = getattr(us.stats, name), np.array([1, 3])
    args = tuple(np.array(p) for p in shapes)
    if name == "bernoulli":
        k = np.array([1, 0])
    us.check_grad(lambda *p: family.logpmf(k, *p), *args)
    us.check_grad(lambda *p: us.log(family.cdf(k + (name == "geom"), *p)), *args)
    us.check_grad(lambda p: us.stats.binom.logpmf(k, 5, p), np.array(0.3))
    us.check_grad(lambda p: us.stats.binom.sf(k, 5, p), np.array(0.3))


def test_nothing_is_differentiated_outside_of_the_support() -> None:
    for family, shapes, outside in (
        (us.stats.gamma, (0.5,), -1.0),
        (us.stats.beta, (0.5, 0.5), 2.0),
        (us.stats.uniform, (), 3.0),
        (us.stats.lognorm, (0.5,), -2.0),
        (us.stats.expon, (), INF),
    ):
        leaves = [us.tensor(p) for p in (outside, *shapes, 0.0, 1.0)]
        for method in ("logpdf", "cdf", "logcdf", "logsf"):
            for slope in getattr(family, method)(*leaves).grad(leaves):
                assert slope.eval() == 0


def test_a_sum_with_one_impossible_element_keeps_the_slopes_of_the_others() -> None:
    x, a = np.array([-1.0, 0.5, 2.0]), us.tensor(1.5)
    possible = us.sum(us.stats.gamma.logpdf(x[1:], a)).grad(a)
    assert us.sum(us.stats.gamma.logpdf(x, a)).grad(a).eval() == possible.eval()


def test_far_tails_keep_their_slopes() -> None:
    """Far out, log sf has the slope of the leading power or exponential."""
    x = us.tensor(1e6)
    np.testing.assert_allclose(us.stats.norm.logsf(x).grad(x).eval(), -1e6, rtol=1e-11)
    np.testing.assert_allclose(us.stats.logistic.logsf(x).grad(x).eval(), -1.0, rtol=1e-14)
    np.testing.assert_allclose(us.stats.laplace.logcdf(-x).grad(x).eval(), -1.0, rtol=1e-14)
    np.testing.assert_allclose(us.log(us.stats.cauchy.sf(x)).grad(x).eval(), -1e-6, rtol=1e-11)
    np.testing.assert_allclose(us.stats.cauchy.logpdf(us.tensor(1e200)).eval(), -2 * 200 * np.log(10) - np.log(np.pi))
    t = us.tensor(1e200)
    np.testing.assert_allclose(us.stats.t.logpdf(t, 3.0).grad(t).eval(), -4e-200, rtol=1e-13)


def test_no_direction_on_the_circle_is_preferred_without_concentration_but_one_would_be() -> None:
    """At kappa = 0 the log density grows with kappa like the cosine of the angle."""
    angle, kappa = np.array([0.0, 1.0, 3.0]), us.tensor(np.zeros(3))
    slope = us.sum(us.stats.vonmises.logpdf(angle, kappa)).grad(kappa).eval()
    np.testing.assert_allclose(slope, np.cos(angle), atol=1e-15)


def test_a_generalised_normal_density_moves_with_its_exponent_at_its_mode() -> None:
    beta = us.tensor(2.5)
    expected = 1 / 2.5 + special.digamma(1 / 2.5) / 2.5**2
    np.testing.assert_allclose(us.stats.gennorm.logpdf(0.0, beta).grad(beta).eval(), expected, rtol=1e-14)


def test_parameters_that_make_no_distribution_give_nan() -> None:
    for value in (
        us.stats.norm.logpdf(0.0, 0.0, -1.0),
        us.stats.norm.ppf(0.5, 0.0, 0.0),
        us.stats.gamma.logpdf(1.0, -1.0),
        us.stats.beta.cdf(0.5, 1.0, 0.0),
        us.stats.poisson.logpmf(1, -1.0),
        us.stats.bernoulli.pmf(1, 1.5),
        us.stats.binom.pmf(1, 2.5, 0.5),
        us.stats.dirichlet.pdf([0.5, 0.5], [1.0, -1.0]),
    ):
        assert np.isnan(value.eval())


# --- several numbers -------------------------------------------------------------------------------------------------

MEAN, COV = np.array([0.5, -1.0, 2.0]), np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]])


@pytest.mark.parametrize(
    ("x", "mean", "cov"),
    [
        (np.array([0.1, 0.2, 0.3]), MEAN, COV),
        (np.linspace(-1, 1, 12).reshape(4, 3), MEAN, COV),
        (np.linspace(-1, 1, 12).reshape(2, 2, 3), None, COV),
        (np.array([0.1, 0.2, 0.3]), MEAN, 2.0),
        (np.array([0.1, 0.2, 0.3]), None, np.diag([1.0, 2.0, 3.0])),
        (0.7, 0.2, 3.0),
    ],
)
def test_the_normal_density_of_vectors_is_scipys(x: Any, mean: Any, cov: Any) -> None:
    expected = stats.multivariate_normal.logpdf(x, mean, cov)
    np.testing.assert_allclose(us.stats.multivariate_normal.logpdf(x, mean, cov).eval(), expected, rtol=1e-12)
    np.testing.assert_allclose(us.stats.multivariate_normal.pdf(x, mean, cov).eval(), np.exp(expected), rtol=1e-12)


def test_variances_are_a_diagonal_matrix_of_covariances() -> None:
    x = np.array([0.1, 0.2, 0.3])
    expected = stats.multivariate_normal.logpdf(x, MEAN, np.diag([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(us.stats.multivariate_normal.logpdf(x, MEAN, [1.0, 2.0, 3.0]).eval(), expected)


def test_the_normal_density_of_vectors_is_differentiable_in_everything() -> None:
    root = np.linalg.cholesky(COV)
    us.check_grad(
        lambda x, m, r: us.stats.multivariate_normal.logpdf(x, m, r @ r.T),
        np.linspace(-1, 1, 6).reshape(2, 3),
        MEAN,
        root,
    )


def test_the_normal_density_of_vectors_works_on_symbolic_sizes() -> None:
    n, k = us.dims("n k")
    x, mean, cov = us.placeholder((n, k)), us.placeholder((k,)), us.placeholder((k, k))
    values = {x: np.linspace(-1, 1, 6).reshape(2, 3), mean: MEAN, cov: COV}
    expected = stats.multivariate_normal.logpdf(values[x], MEAN, COV)
    np.testing.assert_allclose(us.stats.multivariate_normal.logpdf(x, mean, cov).eval(values), expected, rtol=1e-12)


def test_a_singular_matrix_of_covariances_has_a_density_on_its_space() -> None:
    root = np.array([[1.0, 0.0], [0.5, 1.2], [2.0, 0.3]])
    cov, z = root @ root.T, np.array([[0.3, -0.7], [1.0, 0.2]])
    x = MEAN + z @ root.T
    expected = stats.multivariate_normal.logpdf(x, MEAN, cov, allow_singular=True)
    found = us.stats.multivariate_normal.logpdf(x, MEAN, cov, allow_singular=True)
    np.testing.assert_allclose(found.eval(), expected, rtol=1e-10)
    # Along matrices of rank 2: in the factor, and in vectors of its space.
    us.check_grad(
        lambda z, r: us.stats.multivariate_normal.logpdf(z @ r.T, None, r @ r.T, allow_singular=True), z, root, order=1
    )
    whole = us.stats.multivariate_normal.logpdf(x, MEAN, COV, allow_singular=True).eval()
    np.testing.assert_allclose(whole, stats.multivariate_normal.logpdf(x, MEAN, COV), rtol=1e-11)


@pytest.mark.parametrize(("mean", "cov"), [(MEAN, COV), (None, COV), (MEAN, 2.0), (None, 3.0)])
def test_the_entropy_of_normal_vectors_is_scipys(mean: Any, cov: Any) -> None:
    expected = stats.multivariate_normal.entropy(mean, cov)
    np.testing.assert_allclose(us.stats.multivariate_normal.entropy(mean, cov).eval(), expected, rtol=1e-13)
    us.check_grad(lambda r: us.stats.multivariate_normal.entropy(None, r @ r.T), np.linalg.cholesky(COV))


def test_the_dirichlet_density_is_scipys() -> None:
    alpha, x = np.array([0.5, 1.0, 3.0]), np.array([[0.2, 0.1], [0.3, 0.4], [0.5, 0.5]])
    expected = stats.dirichlet.logpdf(x, alpha)
    np.testing.assert_allclose(us.stats.dirichlet.logpdf(x, alpha).eval(), expected, rtol=1e-13)
    np.testing.assert_allclose(us.stats.dirichlet.logpdf(x[:2], alpha).eval(), expected, rtol=1e-12)
    np.testing.assert_array_equal(us.stats.dirichlet.pdf([0.5, 0.6, 0.2], alpha).eval(), 0.0)
    us.check_grad(lambda a: us.stats.dirichlet.logpdf(x, a), alpha)
    us.check_grad(lambda y: us.stats.dirichlet.logpdf(y, alpha), x[:2])


def test_probabilities_of_counts_of_outcomes_are_scipys() -> None:
    x, p = np.array([[1, 2, 0], [0, 0, 3], [1, 1, 0], [4, -1, 0]]), np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(us.stats.multinomial.logpmf(x, 3, p).eval(), stats.multinomial.logpmf(x, 3, p))
    us.check_grad(lambda z: us.stats.multinomial.logpmf(x[:2], 3, us.softmax(z)), np.log(p))
    assert np.isnan(us.stats.multinomial.pmf([1, 1], 2, [0.5, 0.6]).eval())


def test_a_truncated_normal_variable_is_accurate_far_from_its_mean() -> None:
    """Between 30 and infinity the density falls like that of an exponential variable of rate 30."""
    x = np.array([30.01, 30.5])
    expected = stats.norm.logpdf(x) - stats.norm.logsf(30.0)
    np.testing.assert_allclose(us.stats.truncnorm.logpdf(x, 30.0, INF).eval(), expected, rtol=1e-12)
    logsf = stats.norm.logsf(x) - stats.norm.logsf(30.0)
    np.testing.assert_allclose(us.stats.truncnorm.logsf(x, 30.0, INF).eval(), logsf, rtol=1e-11)
    a = us.tensor(30.0)
    slope = us.stats.truncnorm.logpdf(30.5, a, INF).grad(a).eval()
    # The hazard of a normal variable, x + 1/x - 2/x³ + …
    np.testing.assert_allclose(slope, 30 + 1 / 30 - 2 / 30**3 + 10 / 30**5 - 74 / 30**7, rtol=1e-9)


# --- arguments -------------------------------------------------------------------------------------------------------


def test_arguments_are_taken_by_position_and_by_name() -> None:
    for found in (
        us.stats.gamma.logpdf(2.0, 3.0, 0.5, 2.0),
        us.stats.gamma.logpdf(2.0, 3.0, scale=2.0, loc=0.5),
        us.stats.gamma.logpdf(2.0, a=3.0, loc=0.5, scale=2.0),
    ):
        np.testing.assert_allclose(found.eval(), stats.gamma.logpdf(2.0, 3.0, 0.5, 2.0))


@pytest.mark.parametrize(
    ("args", "kwargs"), [((1.0,), {}), ((1.0, 2.0), {"a": 3.0}), ((1.0, 2.0), {"b": 1.0}), ((1.0,) * 5, {})]
)
def test_wrong_arguments_are_refused_with_the_right_ones(args: Any, kwargs: Any) -> None:
    with pytest.raises(ArgumentError, match="gamma takes x, a, loc, scale; got"):
        us.stats.gamma.logpdf(*args, **kwargs)


def test_single_precision_stays_single() -> None:
    x = us.tensor(np.array([0.3, 0.7], np.float32))
    for out in (us.stats.norm.logpdf(x, 0.5, 2), us.stats.gamma.cdf(x, 2.0), us.stats.poisson.logpmf(3, x)):
        assert out.eval().dtype == np.float32
    assert us.stats.norm.pdf(0).dtype == np.float64


def test_families_are_named_and_pickled_by_name() -> None:
    assert repr(us.stats.gamma) == "<distribution gamma(a, loc, scale)>"
    assert pickle.loads(pickle.dumps(us.stats.poisson)) is us.stats.poisson


def test_mistakes_are_typed() -> None:
    with pytest.raises(ShapeError, match="one concentration for each"):
        us.stats.dirichlet.logpdf(0.5, [1.0, 1.0])
    with pytest.raises(ShapeError, match="takes 3 probabilities"):
        us.stats.dirichlet.logpdf(np.ones(5) / 5, np.ones(3))
    with pytest.raises(ShapeError, match="in the last axis, got"):
        us.stats.multinomial.logpmf(1, 1, [1.0])
    with pytest.raises(ShapeError, match="vectors in the last axis"):
        us.stats.multivariate_normal.logpdf(1.0, MEAN, COV)


def test_the_density_is_the_slope_of_the_distribution_function() -> None:
    for name, shapes in CASES:
        if name not in WITHOUT_TAILS:
            x = us.tensor(getattr(stats, name).ppf(np.array([0.1, 0.6]), *shapes))
            family = getattr(us.stats, name)
            slope = us.sum(family.cdf(x, *shapes)).grad(x).eval()
            np.testing.assert_allclose(slope, family.pdf(x, *shapes).eval(), rtol=1e-12)


def test_the_entropy_of_a_normal_variable_is_its_expected_log_density() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    expected = -0.5 * np.log(2 * np.pi * np.e * 4.0)
    mean = np.sum(weights * us.stats.norm.logpdf(1.0 + 2.0 * nodes, 1.0, 2.0).eval()) / special.gamma(0.5) / np.sqrt(2)
    np.testing.assert_allclose(mean, expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
@pytest.mark.parametrize("name", ["norm", "cauchy", "laplace", "gumbel_l", "expon", "uniform", "logistic"])
def test_integers_of_few_bits_are_moved_as_numbers_are(name: str, dtype: str) -> None:
    x = np.array([0, 1, 1]) if dtype == "bool" else np.array([1, 2, 5])
    expected = getattr(stats, name).logpdf(x, 3, 2)
    np.testing.assert_allclose(getattr(us.stats, name).logpdf(us.tensor(x.astype(dtype)), 3, 2).eval(), expected)
    np.testing.assert_allclose(getattr(us.stats, name).logpdf(x, np.uint8(3), np.int8(2)).eval(), expected)


def test_of_one_variance_and_no_vector_of_means_the_normal_distribution_is_that_of_numbers() -> None:
    x = np.array([[1.0, 2.0, 5.0]])
    for options in ({}, {"mean": 2.0}, {"mean": 0.5, "cov": 3.0}):
        expected = stats.multivariate_normal.logpdf(x[0], **options)
        np.testing.assert_allclose(us.stats.multivariate_normal.logpdf(x[0], **options).eval(), expected)
        assert us.stats.multivariate_normal.logpdf(x, **options).shape == (1, 3)
