"""Draws have the distribution they are named after, and move with their parameters as its quantiles do.

Samples are compared with SciPy's distribution functions: of N numbers, √N times the largest distance has a distribution
of its own (Kolmogorov's), by which 2.2 is exceeded once in 8,000 times. Seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import unspool as us
from unspool.errors import ArgumentError, DTypeError, ShapeError, UnknownSizeError

N = 20_000
KEY = us.random.key(11)

CONTINUOUS: list[tuple[str, Any, Any]] = [
    ("exponential", us.random.exponential(KEY, (N,)), stats.expon),
    ("gumbel", us.random.gumbel(KEY, (N,)), stats.gumbel_r),
    ("laplace", us.random.laplace(KEY, (N,)), stats.laplace),
    ("logistic", us.random.logistic(KEY, (N,)), stats.logistic),
    ("cauchy", us.random.cauchy(KEY, (N,)), stats.cauchy),
    ("pareto", us.random.pareto(KEY, 3.0, (N,)), stats.pareto(3.0)),
    ("rayleigh", us.random.rayleigh(KEY, 2.0, (N,)), stats.rayleigh(scale=2.0)),
    ("weibull_min", us.random.weibull_min(KEY, 2.0, 1.5, (N,)), stats.weibull_min(1.5, scale=2.0)),
    ("lognormal", us.random.lognormal(KEY, 0.5, (N,)), stats.lognorm(0.5)),
    ("truncated_normal", us.random.truncated_normal(KEY, -1.0, 2.0, (N,)), stats.truncnorm(-1, 2)),
    ("truncated_normal-tail", us.random.truncated_normal(KEY, 9.0, 20.0, (N,)), stats.truncnorm(9, 20)),
    ("gamma-small", us.random.gamma(KEY, 0.3, (N,)), stats.gamma(0.3)),
    ("gamma", us.random.gamma(KEY, 40.0, (N,)), stats.gamma(40.0)),
    ("loggamma", us.random.loggamma(KEY, 0.02, (N,)), stats.loggamma(0.02)),
    ("chisquare", us.random.chisquare(KEY, 5.0, (N,)), stats.chi2(5.0)),
    ("t", us.random.t(KEY, 3.0, (N,)), stats.t(3.0)),
    ("beta", us.random.beta(KEY, 0.5, 2.0, (N,)), stats.beta(0.5, 2.0)),
    ("dirichlet", us.random.dirichlet(KEY, [0.5, 1.5, 2.0], (N,))[:, 0], stats.beta(0.5, 3.5)),
]


@pytest.mark.parametrize(("name", "sample", "distribution"), CONTINUOUS, ids=[name for name, *_ in CONTINUOUS])
def test_samples_have_their_distribution(name: str, sample: Any, distribution: Any) -> None:
    values = np.sort(sample.eval())
    levels = distribution.cdf(values)
    steps = np.arange(N + 1) / N
    distance = max(np.max(levels - steps[:-1]), np.max(steps[1:] - levels))
    assert np.sqrt(N) * distance < 2.2


def test_counts_have_their_mean_and_variance() -> None:
    for drawn, mean, variance in (
        (us.random.poisson(KEY, 3.5, (N,)), 3.5, 3.5),
        (us.random.binomial(KEY, 10, 0.3, (N,)), 3.0, 2.1),
        (us.random.geometric(KEY, 0.25, (N,)), 4.0, 12.0),
    ):
        values = drawn.eval()
        assert values.dtype == np.int64
        assert abs(values.mean() - mean) < 5 * np.sqrt(variance / N)
        # The fourth moment of these is below 10 times the square of the variance.
        assert abs(values.var() - variance) < 5 * np.sqrt(9 * variance**2 / N)


def test_categories_come_with_their_probabilities() -> None:
    p = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    for drawn in (
        us.random.categorical(KEY, logits, shape=(N,)),
        us.random.categorical(KEY, np.stack([logits] * 2, axis=0).T, axis=0, shape=(N // 2, 2)),
        us.random.choice(KEY, 4, (N,), p=p),
        us.random.choice(KEY, np.arange(4), (N,), p=p),
    ):
        counts = np.bincount(np.ravel(drawn.eval()), minlength=4)
        assert counts[1] == 0
        # Chi-square with two degrees of freedom: 20 is exceeded once in 20,000 times.
        assert np.sum((counts - N * p)[p > 0] ** 2 / (N * p)[p > 0]) < 20


def test_choice_without_replacement_takes_each_entry_once() -> None:
    x = us.tensor(np.arange(12.0).reshape(3, 4))
    for p in (None, [0.1, 0.2, 0.3, 0.4]):
        drawn = us.random.choice(KEY, x, (2, 2), replace=False, p=p, axis=1)
        assert drawn.shape == (3, 2, 2)
        assert sorted(np.ravel(drawn.eval()[0])) == [0, 1, 2, 3]
        np.testing.assert_array_equal(us.sum(drawn).grad(x).eval(), np.ones((3, 4)))
    first = [int(us.random.choice(us.random.fold_in(KEY, k), 2, p=[0.2, 0.8], replace=False)) for k in range(400)]
    assert abs(np.mean(first) - 0.8) < 5 * 0.4 / 20


def test_a_matrix_of_covariances_is_what_vectors_have() -> None:
    mean, cov = np.array([1.0, -2.0]), np.array([[2.0, 0.6], [0.6, 0.5]])
    sample = us.random.multivariate_normal(KEY, mean, cov, (N,)).eval()
    deviation = np.sqrt(np.diag(cov))
    assert (np.abs(sample.mean(0) - mean) < 5 * deviation / np.sqrt(N)).all()
    assert (np.abs(np.cov(sample.T) - cov) < 5 * np.sqrt(2) * np.outer(deviation, deviation) / np.sqrt(N)).all()
    stacked = us.random.multivariate_normal(KEY, np.zeros((3, 1, 2)), np.stack([cov] * 4))
    assert stacked.shape == (3, 4, 2)


def test_orthogonal_matrices_are_spread_evenly() -> None:
    q = us.random.orthogonal(KEY, 3, (2000,)).eval()
    np.testing.assert_allclose(q @ np.swapaxes(q, 1, 2), np.broadcast_to(np.eye(3), q.shape), atol=1e-13)
    # An entry of such a matrix has mean 0 and variance 1/3, on all places.
    assert (np.abs(q.mean(0)) < 5 * np.sqrt(1 / 3 / 2000)).all()


# --- derivatives -----------------------------------------------------------------------------------------------------

PARAMETERS = np.array([0.4, 1.0, 3.0])
SMOOTH: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("gamma", lambda a: us.random.gamma(KEY, a), (PARAMETERS,)),
    ("loggamma", lambda a: us.random.loggamma(KEY, a), (PARAMETERS,)),
    ("chisquare", lambda df: us.random.chisquare(KEY, df), (PARAMETERS,)),
    ("t", lambda df: us.random.t(KEY, df), (PARAMETERS + 2,)),
    ("beta", lambda a, b: us.random.beta(KEY, a, b), (PARAMETERS, PARAMETERS[::-1] + 0.5)),
    ("dirichlet", lambda a: us.random.dirichlet(KEY, a, (2,)), (PARAMETERS,)),
    ("pareto", lambda b: us.random.pareto(KEY, b), (PARAMETERS,)),
    ("weibull_min", lambda s, c: us.random.weibull_min(KEY, s, c), (PARAMETERS, PARAMETERS + 0.5)),
    ("lognormal", lambda s: us.random.lognormal(KEY, s), (PARAMETERS,)),
    (
        "truncated_normal",
        lambda low, width: us.random.truncated_normal(KEY, low, low + width),
        (np.array([-1.0, 1.5]), np.array([2.0, 3.0])),
    ),
    (
        "multivariate_normal",
        lambda m, r: us.random.multivariate_normal(KEY, m, r @ r.T + us.eye(2), (3,)),
        (np.array([1.0, 2.0]), np.array([[1.0, 0.3], [0.2, 0.8]])),
    ),
]


@pytest.mark.parametrize(("name", "draw", "args"), SMOOTH, ids=[name for name, *_ in SMOOTH])
def test_a_draw_moves_with_its_parameters_as_differences_say(name: str, draw: Any, args: Any) -> None:
    us.check_grad(draw, *args, order=2)


@pytest.mark.parametrize("a", [0.01, 0.5, 4.0, 300.0])
def test_the_slope_of_a_gamma_draw_is_that_of_the_quantile(a: float) -> None:
    leaf = us.tensor(np.full(50, a))
    sample = us.random.loggamma(KEY, leaf)
    level = us.random.uniform(KEY, (50,)).eval()
    h = 1e-4 * a
    points = [np.log(special.gammaincinv(a + step * h, level)) for step in (-2, -1, 1, 2)]
    expected = (points[0] - 8 * points[1] + 8 * points[2] - points[3]) / (12 * h)
    kept = np.isfinite(expected)
    assert kept.sum() > 40
    np.testing.assert_allclose(us.sum(sample).grad(leaf).eval()[kept], expected[kept], rtol=1e-7)


def test_expectations_have_their_closed_derivatives() -> None:
    """E[x] of a gamma draw is a, and of a beta draw a/(a+b): the mean slope of many draws is that of these."""
    a, b = us.tensor(2.5), us.tensor(1.5)
    for sample, slopes in (
        (us.random.gamma(KEY, a, (N,)), {a: 1.0}),
        (us.random.beta(KEY, a, b, (N,)), {a: 1.5 / 16, b: -2.5 / 16}),
    ):
        for variable, expected in slopes.items():
            found = float(us.mean(sample).grad(variable))
            # The slope of one draw is of the size of its mean, so the mean of N of them is within a few 1/√N.
            assert abs(found - expected) < 5 * abs(expected) / np.sqrt(N) * 2


def test_nothing_flows_back_through_counts() -> None:
    mean = us.tensor(3.0)
    drawn = us.random.poisson(KEY, mean, (4,))
    assert us.sum(drawn * mean).grad(mean).eval() == drawn.eval().sum()


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda **o: us.random.exponential(KEY, (3,), **o),
        lambda **o: us.random.gumbel(KEY, (3,), **o),
        lambda **o: us.random.gamma(KEY, 2.0, (3,), **o),
        lambda **o: us.random.beta(KEY, 2.0, 1.0, (3,), **o),
        lambda **o: us.random.dirichlet(KEY, np.ones(3), **o),
        lambda **o: us.random.truncated_normal(KEY, -1.0, 1.0, (3,), **o),
        lambda **o: us.random.multivariate_normal(KEY, np.zeros(3), np.eye(3), **o),
    ],
)
def test_single_precision_and_refused_types(draw: Any) -> None:
    single = draw(dtype="float32")
    assert (single.shape, single.eval().dtype) == ((3,), np.float32)
    with pytest.raises(DTypeError, match="int64"):
        draw(dtype="int64")


def test_symbolic_sizes() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    for draw in (
        lambda shape: us.random.gamma(KEY, 2.0, shape),
        lambda shape: us.random.laplace(KEY, shape),
        lambda shape: us.random.poisson(KEY, 2.0, shape),
    ):
        out = x + draw((n,))
        np.testing.assert_array_equal(out.eval({x: np.zeros(4)}), draw((4,)).eval())


def test_shuffling_moves_whole_entries_along_an_axis() -> None:
    x = np.arange(12).reshape(3, 4)
    shuffled = us.random.shuffle(KEY, x, axis=1).eval()
    np.testing.assert_array_equal(np.sort(shuffled, axis=1), x)
    np.testing.assert_array_equal(np.sort(shuffled[0]), shuffled[0] - shuffled[0] + np.arange(4))
    assert (shuffled - shuffled[:1] == np.array([[0], [4], [8]])).all()


def test_mistakes_are_typed() -> None:
    with pytest.raises(ShapeError, match="parameters of shape \\(3,\\) do not broadcast to draws of shape \\(2,\\)"):
        us.random.gamma(KEY, np.ones(3), (2,))
    with pytest.raises(ShapeError, match="one probability for each of 3 entries"):
        us.random.choice(KEY, 3, p=[0.5, 0.5])
    with pytest.raises(ArgumentError, match="cannot draw 4 of 3 entries"):
        us.random.choice(KEY, 3, (4,), replace=False)
    with pytest.raises(ArgumentError, match="at least one entry"):
        us.random.choice(KEY, 0)
    with pytest.raises(ShapeError, match="with none"):
        us.random.choice(KEY, np.array(1.0))
    with pytest.raises(UnknownSizeError, match="known number of entries, got n"):
        us.random.choice(KEY, us.dims("n"))
    with pytest.raises(ShapeError, match="do not broadcast to draws"):
        us.random.categorical(KEY, np.zeros((2, 3)), shape=())
    with pytest.raises(ShapeError, match="without axes"):
        us.random.dirichlet(KEY, 1.0)
    with pytest.raises(ShapeError, match="vectors as mean"):
        us.random.multivariate_normal(KEY, 1.0, np.eye(1))
    with pytest.raises(DTypeError, match="poisson draws whole numbers"):
        us.random.poisson(KEY, 1.0, dtype="complex128")
    with pytest.raises(DTypeError, match="us.random.key\\(3\\)"):
        us.random.gamma(3, 1.0)  # type: ignore[arg-type]
