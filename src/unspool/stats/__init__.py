"""Probability distributions, under the names of ``scipy.stats``.

Densities, distribution functions and quantiles, with SciPy's signatures, differentiable in the variable and in all
parameters, in both modes and to any order. Logarithms are computed as such, so that tails are accurate.

Examples
--------
>>> import unspool as us
>>> x = us.constant([1.2, 0.7, 3.1])
>>> mean, log_scale = us.tensor(0.0), us.tensor(0.0)
>>> loss = -us.sum(us.stats.norm.logpdf(x, mean, us.exp(log_scale)))
>>> [slope.eval() for slope in loss.grad([mean, log_scale])]
[array(-5.), array(-8.54)]
"""

from unspool.stats import dirichlet, multivariate_normal
from unspool.stats._continuous import (
    beta,
    cauchy,
    chi2,
    expon,
    gamma,
    gennorm,
    laplace,
    logistic,
    lognorm,
    norm,
    pareto,
    t,
    uniform,
    vonmises,
)
from unspool.stats._discrete import bernoulli, betabinom, binom, geom, nbinom, poisson
from unspool.stats._family import Continuous, Discrete

__all__ = [
    "Continuous",
    "Discrete",
    "bernoulli",
    "beta",
    "betabinom",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "gennorm",
    "geom",
    "laplace",
    "logistic",
    "lognorm",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "t",
    "uniform",
    "vonmises",
]
