"""Continuous families on the whole line, each by its standard form: what a method needs to be accurate in the tails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unspool._ops.elementwise import (
    abs,
    add,
    arctan2,
    cos,
    divide,
    equal,
    exp,
    expm1,
    gammaln,
    hypot,
    log,
    log1p,
    multiply,
    negative,
    power,
    sigmoid,
    sin,
    square,
    subtract,
    where,
)
from unspool._ops.special.bessel import i0, i0e
from unspool._ops.special.entropy import log_expit, logit
from unspool._ops.special.incomplete import (
    gammaincc,
)
from unspool._ops.special.normal import log_ndtr, ndtr, ndtri
from unspool._ops.special.student import stdtr, stdtrit, student_logpdf
from unspool.stats._family import Continuous, positive

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_INF = math.inf
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _laplace_below(z: Tensor) -> Tensor:
    half = multiply(exp(negative(abs(z))), 0.5)
    return where(z < 0, half, subtract(1, half))


def _laplace_log_below(z: Tensor) -> Tensor:
    return where(z < 0, subtract(z, math.log(2)), log1p(multiply(exp(negative(z)), -0.5)))


def _laplace_quantile(q: Tensor) -> Tensor:
    return where(q < 0.5, log(multiply(q, 2.0)), negative(log(multiply(subtract(1, q), 2.0))))


def _gennorm_below(z: Tensor, beta: Tensor) -> Tensor:
    half = multiply(gammaincc(divide(1.0, beta), power(abs(z), beta)), 0.5)
    return where(z < 0, half, subtract(1, half))


def _cauchy_above(q: Tensor) -> Tensor:
    """Return the cotangent of πq, which is infinite with the right sign at both ends."""
    mirrored = subtract(1, q)
    angle, rest = multiply(q, math.pi), multiply(mirrored, math.pi)
    return where(q < 0.5, divide(cos(angle), sin(angle)), negative(divide(cos(rest), sin(rest))))


def _gumbel_logpdf(z: Tensor) -> Tensor:
    # Where the exponential is infinite the density is 0, whatever is added to it.
    return where(equal(z, _INF), -_INF, subtract(z, exp(z)))


def _log_i0(kappa: Tensor) -> Tensor:
    # Scaled where it is large; the scaled one has a kink at 0.
    return where(kappa < 1, log(i0(kappa)), add(log(i0e(kappa)), kappa))


norm = Continuous(
    "norm",
    """The normal distribution, with mean ``loc`` and standard deviation ``scale``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.norm.logsf([0.0, 40.0]).eval()
    array([-6.93147181e-01, -8.04608442e+02])
    """,
    logpdf=lambda z: subtract(multiply(square(z), -0.5), _HALF_LOG_TWO_PI),
    cdf=ndtr,
    sf=lambda z: ndtr(negative(z)),
    logcdf=log_ndtr,
    logsf=lambda z: log_ndtr(negative(z)),
    ppf=ndtri,
    isf=lambda q: negative(ndtri(q)),
)
t = Continuous(
    "t",
    """Student's distribution with ``df`` degrees of freedom.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.t.cdf([-1.0, 0.0, 1.0], 1.0).eval()
    array([0.25, 0.5 , 0.75])
    """,
    shapes=("df",),
    valid=positive,
    logpdf=student_logpdf,
    cdf=lambda z, df: stdtr(df, z),
    sf=lambda z, df: stdtr(df, negative(z)),
    ppf=lambda q, df: stdtrit(df, q),
    isf=lambda q, df: negative(stdtrit(df, q)),
)
cauchy = Continuous(
    "cauchy",
    """The Cauchy distribution, with median ``loc`` and half-width ``scale``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.cauchy.cdf([-1.0, 0.0, 1.0]).eval()
    array([0.25, 0.5 , 0.75])
    """,
    logpdf=lambda z: subtract(multiply(log(hypot(1.0, z)), -2.0), math.log(math.pi)),
    # As an angle, which is small where the probability is.
    cdf=lambda z: multiply(arctan2(1.0, negative(z)), 1 / math.pi),
    sf=lambda z: multiply(arctan2(1.0, z), 1 / math.pi),
    ppf=lambda q: negative(_cauchy_above(q)),
    isf=_cauchy_above,
)
laplace = Continuous(
    "laplace",
    """The Laplace distribution: exponential on either side of ``loc``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.laplace.cdf(0.0).eval()
    array(0.5)
    """,
    logpdf=lambda z: subtract(negative(abs(z)), math.log(2)),
    cdf=_laplace_below,
    sf=lambda z: _laplace_below(negative(z)),
    logcdf=_laplace_log_below,
    logsf=lambda z: _laplace_log_below(negative(z)),
    ppf=_laplace_quantile,
    isf=lambda q: negative(_laplace_quantile(q)),
)
logistic = Continuous(
    "logistic",
    """The logistic distribution, whose distribution function is `unspool.sigmoid`.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.logistic.logpdf([0.0, -800.0]).eval()
    array([  -1.38629436, -800.        ])
    """,
    logpdf=lambda z: add(log_expit(z), log_expit(negative(z))),
    cdf=sigmoid,
    sf=lambda z: sigmoid(negative(z)),
    logcdf=log_expit,
    logsf=lambda z: log_expit(negative(z)),
    ppf=logit,
    isf=lambda q: negative(logit(q)),
)
gumbel_r = Continuous(
    "gumbel_r",
    """The Gumbel distribution of the largest of many, skewed to the right.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.gumbel_r.cdf(0.0).eval()
    array(0.36787944)
    """,
    logpdf=lambda z: _gumbel_logpdf(negative(z)),
    logcdf=lambda z: negative(exp(negative(z))),
    cdf=lambda z: exp(negative(exp(negative(z)))),
    sf=lambda z: negative(expm1(negative(exp(negative(z))))),
    ppf=lambda q: negative(log(negative(log(q)))),
    isf=lambda q: negative(log(negative(log1p(negative(q))))),
)
gumbel_l = Continuous(
    "gumbel_l",
    """The Gumbel distribution of the smallest of many, skewed to the left.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.gumbel_l.sf(0.0).eval()
    array(0.36787944)
    """,
    logpdf=_gumbel_logpdf,
    logsf=lambda z: negative(exp(z)),
    cdf=lambda z: negative(expm1(negative(exp(z)))),
    sf=lambda z: exp(negative(exp(z))),
    ppf=lambda q: log(negative(log1p(negative(q)))),
    isf=lambda q: log(negative(log(q))),
)
gennorm = Continuous(
    "gennorm",
    """The generalised normal distribution, with density proportional to ``exp(-abs(x) ** beta)``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.gennorm.cdf(0.0, 1.5).eval()
    array(0.5)
    """,
    shapes=("beta",),
    valid=positive,
    logpdf=lambda z, beta: subtract(
        subtract(log(multiply(beta, 0.5)), gammaln(divide(1.0, beta))), power(abs(z), beta)
    ),
    cdf=_gennorm_below,
    sf=lambda z, beta: _gennorm_below(negative(z), beta),
)
vonmises = Continuous(
    "vonmises",
    """The von Mises distribution of angles, with concentration ``kappa``; it repeats every 2π.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.vonmises.pdf(0.0, 0.0).eval()
    array(0.15915494)
    """,
    shapes=("kappa",),
    valid=lambda kappa: kappa >= 0,
    logpdf=lambda z, kappa: subtract(multiply(kappa, cos(z)), add(_log_i0(kappa), math.log(2 * math.pi))),
)

FAMILIES = (norm, t, cauchy, laplace, logistic, gumbel_r, gumbel_l, gennorm, vonmises)
__test__ = {family.name: family.__doc__ for family in FAMILIES}
