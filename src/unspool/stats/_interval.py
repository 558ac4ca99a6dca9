"""Continuous families on part of the line, each by its standard form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unspool._ops.elementwise import (
    add,
    cos,
    divide,
    exp,
    expm1,
    gammaln,
    log,
    log1p,
    logical_and,
    multiply,
    negative,
    power,
    square,
    subtract,
    where,
    xlogy,
)
from unspool._ops.special.entropy import xlog1py
from unspool._ops.special.gamma import betaln
from unspool._ops.special.incomplete import (
    betainc,
    betaincc,
    betaincinv,
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
)
from unspool._ops.special.normal import log_ndtr, ndtr, ndtri
from unspool.stats._family import Continuous, positive

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_INF = math.inf
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _gamma_logpdf(z: Tensor, a: Tensor) -> Tensor:
    return subtract(subtract(xlogy(subtract(a, 1), z), z), gammaln(a))


def _log_between(low: Tensor, high: Tensor) -> Tensor:
    """Return the logarithm of the probability of a normal number to be between two ends."""
    # Above 0 the mirror image: there probabilities are differences of numbers near 1.
    mirrored = low > 0
    first, last = where(mirrored, negative(high), low), where(mirrored, negative(low), high)
    above = log_ndtr(last)
    return add(above, log1p(negative(exp(subtract(log_ndtr(first), above)))))


def _truncated_quantile(q: Tensor, low: Tensor, high: Tensor) -> Tensor:
    mirrored = low > 0
    first, last = where(mirrored, negative(high), low), where(mirrored, negative(low), high)
    below, above = ndtr(first), ndtr(last)
    level = where(mirrored, subtract(1, q), q)
    found = ndtri(add(below, multiply(subtract(above, below), level)))
    return where(mirrored, negative(found), found)


uniform = Continuous(
    "uniform",
    """The uniform distribution between ``loc`` and ``loc + scale``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.uniform.cdf([-1.0, 0.5, 3.0], 0.0, 2.0).eval()
    array([0.  , 0.25, 1.  ])
    """,
    support=(0.0, 1.0),
    logpdf=lambda z: multiply(z, 0.0),
    cdf=lambda z: z,
    ppf=lambda q: q,
)
expon = Continuous(
    "expon",
    """The exponential distribution, with mean ``scale`` above ``loc``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.expon.logsf([-1.0, 5.0]).eval()
    array([ 0., -5.])
    """,
    support=(0.0, _INF),
    logpdf=negative,
    cdf=lambda z: negative(expm1(negative(z))),
    sf=lambda z: exp(negative(z)),
    logsf=negative,
    ppf=lambda q: negative(log1p(negative(q))),
    isf=lambda q: negative(log(q)),
)
gamma = Continuous(
    "gamma",
    """The gamma distribution with shape parameter ``a``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.gamma.cdf(1.0, 1.0).eval()
    array(0.63212056)
    """,
    shapes=("a",),
    support=(0.0, _INF),
    valid=positive,
    logpdf=_gamma_logpdf,
    cdf=lambda z, a: gammainc(a, z),
    sf=lambda z, a: gammaincc(a, z),
    ppf=lambda q, a: gammaincinv(a, q),
    isf=lambda q, a: gammainccinv(a, q),
)
chi2 = Continuous(
    "chi2",
    """The chi-square distribution with ``df`` degrees of freedom.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.chi2.sf(5.991, 2.0).eval()
    array(0.05001162)
    """,
    shapes=("df",),
    support=(0.0, _INF),
    valid=positive,
    logpdf=lambda z, df: subtract(_gamma_logpdf(multiply(z, 0.5), multiply(df, 0.5)), math.log(2)),
    cdf=lambda z, df: gammainc(multiply(df, 0.5), multiply(z, 0.5)),
    sf=lambda z, df: gammaincc(multiply(df, 0.5), multiply(z, 0.5)),
    ppf=lambda q, df: multiply(gammaincinv(multiply(df, 0.5), q), 2.0),
    isf=lambda q, df: multiply(gammainccinv(multiply(df, 0.5), q), 2.0),
)
beta = Continuous(
    "beta",
    """The beta distribution with parameters ``a`` and ``b``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.beta.cdf(0.5, 2.0, 1.0).eval()
    array(0.25)
    """,
    shapes=("a", "b"),
    support=(0.0, 1.0),
    valid=positive,
    logpdf=lambda z, a, b: subtract(add(xlogy(subtract(a, 1), z), xlog1py(subtract(b, 1), negative(z))), betaln(a, b)),
    cdf=lambda z, a, b: betainc(a, b, z),
    sf=lambda z, a, b: betaincc(a, b, z),
    ppf=lambda q, a, b: betaincinv(a, b, q),
    isf=lambda q, a, b: subtract(1, betaincinv(b, a, q)),
)
pareto = Continuous(
    "pareto",
    """The Pareto distribution with exponent ``b``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.pareto.sf(10.0, 2.0).eval()
    array(0.01)
    """,
    shapes=("b",),
    support=(1.0, _INF),
    valid=positive,
    logpdf=lambda z, b: subtract(log(b), multiply(add(b, 1), log(z))),
    cdf=lambda z, b: negative(expm1(negative(multiply(b, log(z))))),
    sf=lambda z, b: power(z, negative(b)),
    logsf=lambda z, b: negative(multiply(b, log(z))),
    ppf=lambda q, b: exp(negative(divide(log1p(negative(q)), b))),
    isf=lambda q, b: power(q, divide(-1.0, b)),
)
lognorm = Continuous(
    "lognorm",
    """The distribution of numbers whose logarithm is normal with standard deviation ``s``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.lognorm.cdf(1.0, 0.5).eval()
    array(0.5)
    """,
    shapes=("s",),
    support=(0.0, _INF),
    is_open=True,
    valid=positive,
    logpdf=lambda z, s: subtract(
        subtract(multiply(square(divide(log(z), s)), -0.5), _HALF_LOG_TWO_PI), add(log(s), log(z))
    ),
    cdf=lambda z, s: ndtr(divide(log(z), s)),
    sf=lambda z, s: ndtr(negative(divide(log(z), s))),
    logcdf=lambda z, s: log_ndtr(divide(log(z), s)),
    logsf=lambda z, s: log_ndtr(negative(divide(log(z), s))),
    ppf=lambda q, s: exp(multiply(s, ndtri(q))),
    isf=lambda q, s: exp(negative(multiply(s, ndtri(q)))),
)
wrapcauchy = Continuous(
    "wrapcauchy",
    """The Cauchy distribution wrapped around the circle, on angles from 0 to 2π, with concentration ``c``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.wrapcauchy.pdf(0.0, 0.5).eval()
    array(0.47746483)
    """,
    shapes=("c",),
    support=(0.0, 2 * math.pi),
    valid=lambda c: logical_and(c > 0, c < 1),
    logpdf=lambda z, c: subtract(
        log1p(negative(square(c))),
        add(log(subtract(add(1.0, square(c)), multiply(multiply(c, 2.0), cos(z)))), math.log(2 * math.pi)),
    ),
)
truncnorm = Continuous(
    "truncnorm",
    """The standard normal distribution between ``a`` and ``b``; ``loc`` and ``scale`` move and stretch these too.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.truncnorm.logpdf([0.5, 3.0], -1.0, 2.0).eval()
    array([-0.84377224,        -inf])
    """,
    shapes=("a", "b"),
    valid=lambda a, b: a < b,
    low=lambda a, b: a,
    high=lambda a, b: b,
    logpdf=lambda z, a, b: subtract(subtract(multiply(square(z), -0.5), _HALF_LOG_TWO_PI), _log_between(a, b)),
    cdf=lambda z, a, b: exp(subtract(_log_between(a, z), _log_between(a, b))),
    sf=lambda z, a, b: exp(subtract(_log_between(z, b), _log_between(a, b))),
    logcdf=lambda z, a, b: subtract(_log_between(a, z), _log_between(a, b)),
    logsf=lambda z, a, b: subtract(_log_between(z, b), _log_between(a, b)),
    ppf=_truncated_quantile,
    isf=lambda q, a, b: negative(_truncated_quantile(q, negative(b), negative(a))),
)

FAMILIES = (uniform, expon, gamma, chi2, beta, pareto, lognorm, wrapcauchy, truncnorm)
__test__ = {family.name: family.__doc__ for family in FAMILIES}
