"""The continuous families, each by its standard form: whatever a method needs to be accurate in the tails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise import (
    abs,
    add,
    arctan2,
    cos,
    divide,
    exp,
    expm1,
    gammaln,
    hypot,
    log,
    log1p,
    logical_and,
    multiply,
    negative,
    power,
    sigmoid,
    sin,
    square,
    subtract,
    where,
    xlogy,
)
from unspool._ops.special.bessel import i0e
from unspool._ops.special.entropy import log_expit, logit, xlog1py
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
from unspool._ops.special.student import stdtr, stdtrit, student_logpdf
from unspool.stats._family import Continuous

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_INF = math.inf
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _positive(*parameters: Any) -> Any:
    condition = parameters[0] > 0
    for parameter in parameters[1:]:
        condition = logical_and(condition, parameter > 0)
    return condition


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


def _gamma_logpdf(z: Tensor, a: Tensor) -> Tensor:
    return subtract(subtract(xlogy(subtract(a, 1), z), z), gammaln(a))


def _cauchy_above(q: Tensor) -> Tensor:
    """Return the cotangent of πq, which is infinite with the right sign at both ends."""
    mirrored = subtract(1, q)
    angle, rest = multiply(q, math.pi), multiply(mirrored, math.pi)
    return where(q < 0.5, divide(cos(angle), sin(angle)), negative(divide(cos(rest), sin(rest))))


# --- on the whole line -----------------------------------------------------------------------------------------------

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
    valid=_positive,
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
    valid=_positive,
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
    logpdf=lambda z, kappa: subtract(
        multiply(kappa, subtract(cos(z), 1.0)), add(log(i0e(kappa)), math.log(2 * math.pi))
    ),
)


# --- on part of it ---------------------------------------------------------------------------------------------------

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
    valid=_positive,
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
    valid=_positive,
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
    valid=_positive,
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
    valid=_positive,
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
    valid=_positive,
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

__test__ = {
    family.name: family.__doc__
    for family in (
        norm, t, cauchy, laplace, logistic, gennorm, vonmises, uniform, expon, gamma, chi2, beta, pareto, lognorm,
    )
}  # fmt: skip
