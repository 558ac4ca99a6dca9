"""Random tensors from explicit keys.

A key stands for a stream of random numbers. A function given the same key and shape returns the same tensor, with the
same numbers at every evaluation, in every process. For different numbers use different keys: `split` makes several from
one, `fold_in` makes one from a key and a counter, such as the step of a loop.

>>> import unspool as us
>>> key = us.random.key(0)
>>> first, second = us.random.split(key)
>>> noise = us.random.normal(first, (3,))
>>> noise is us.random.normal(first, (3,))
True
>>> noise is us.random.normal(second, (3,))
False

Use a key for one draw only: two draws from one key are made from the same random bits and are not independent.

Draws are functions of their parameters that stay smooth while the key is held: a sample moves with them as its quantile
does, and has that derivative, to any order.

>>> rate = us.tensor(2.0)
>>> sample = us.random.gamma(key, 3.0) / rate
>>> bool(us.abs(sample.grad(rate) + sample / rate) < 1e-12)
True
"""

from unspool._ops.random import Key
from unspool.random._basic import (
    bernoulli,
    fold_in,
    key,
    normal,
    permutation,
    rademacher,
    randint,
    shuffle,
    split,
    uniform,
)
from unspool.random._continuous import (
    beta,
    cauchy,
    chisquare,
    dirichlet,
    exponential,
    gamma,
    gumbel,
    laplace,
    loggamma,
    logistic,
    lognormal,
    multivariate_normal,
    orthogonal,
    pareto,
    rayleigh,
    t,
    truncated_normal,
    weibull_min,
)
from unspool.random._discrete import (
    binomial,
    categorical,
    choice,
    geometric,
    poisson,
)

__all__ = [
    "Key",
    "bernoulli",
    "beta",
    "binomial",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "geometric",
    "gumbel",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "shuffle",
    "split",
    "t",
    "truncated_normal",
    "uniform",
    "weibull_min",
]


def __dir__() -> list[str]:
    return sorted(__all__)
