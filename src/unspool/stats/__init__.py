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

from unspool.stats import dirichlet, multinomial, multivariate_normal
from unspool.stats._discrete import bernoulli, betabinom, binom, geom, nbinom, poisson
from unspool.stats._family import Continuous, Discrete
from unspool.stats._interval import beta, chi2, expon, gamma, lognorm, pareto, truncnorm, uniform, wrapcauchy
from unspool.stats._line import cauchy, gennorm, gumbel_l, gumbel_r, laplace, logistic, norm, t, vonmises
from unspool.stats._summaries import mode, rankdata, sem

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
    "gumbel_l",
    "gumbel_r",
    "laplace",
    "logistic",
    "lognorm",
    "mode",
    "multinomial",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "rankdata",
    "sem",
    "t",
    "truncnorm",
    "uniform",
    "vonmises",
    "wrapcauchy",
]


def __dir__() -> list[str]:
    return sorted(__all__)
