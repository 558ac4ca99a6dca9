"""The discrete families, each by the logarithm of its probabilities and its distribution function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise import (
    add,
    equal,
    exp,
    expm1,
    floor,
    gammaln,
    log,
    log1p,
    logical_and,
    negative,
    subtract,
    where,
    xlogy,
)
from unspool._ops.special.entropy import xlog1py
from unspool._ops.special.gamma import betaln
from unspool._ops.special.incomplete import betainc, gammainc, gammaincc
from unspool.stats._family import Discrete

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _is_probability(p: Any) -> Any:
    return logical_and(p >= 0, p <= 1)


def _is_count(n: Any) -> Any:
    return logical_and(n >= 0, equal(n, floor(n)))


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    """Return the logarithm of the number of ways to choose k of n, which is not a difference of large ones."""
    return negative(add(log1p(n), betaln(add(subtract(n, k), 1), add(k, 1))))


poisson = Discrete(
    "poisson",
    """The Poisson distribution of counts with mean ``mu``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.poisson.pmf([0, 1, 2], 2.0).eval()
    array([0.13533528, 0.27067057, 0.27067057])
    """,
    shapes=("mu",),
    support=(0, float("inf")),
    valid=lambda mu: mu >= 0,
    logpmf=lambda k, mu: subtract(subtract(xlogy(k, mu), gammaln(add(k, 1))), mu),
    cdf=lambda k, mu: gammaincc(add(k, 1), mu),
    sf=lambda k, mu: gammainc(add(k, 1), mu),
)
bernoulli = Discrete(
    "bernoulli",
    """The distribution of one trial that succeeds, as 1, with probability ``p``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.bernoulli.pmf([0, 1, 2], 0.3).eval()
    array([0.7, 0.3, 0. ])
    """,
    shapes=("p",),
    support=(0, 1),
    valid=_is_probability,
    logpmf=lambda k, p: add(xlogy(k, p), xlog1py(subtract(1, k), negative(p))),
    cdf=lambda k, p: subtract(1, p),
    sf=lambda k, p: p,
)
binom = Discrete(
    "binom",
    """The distribution of how many of ``n`` trials succeed, each with probability ``p``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.binom.pmf([0, 1, 2], 2, 0.5).eval()
    array([0.25, 0.5 , 0.25])
    """,
    shapes=("n", "p"),
    support=(0, float("inf")),
    valid=lambda n, p: logical_and(_is_count(n), _is_probability(p)),
    last=lambda n, p: n,
    logpmf=lambda k, n, p: add(_log_choose(n, k), add(xlogy(k, p), xlog1py(subtract(n, k), negative(p)))),
    cdf=lambda k, n, p: betainc(subtract(n, k), add(k, 1), subtract(1, p)),
    sf=lambda k, n, p: betainc(add(k, 1), subtract(n, k), p),
)
geom = Discrete(
    "geom",
    """The distribution of how many trials it takes to succeed once, each with probability ``p``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.geom.pmf([0, 1, 2], 0.5).eval()
    array([0.  , 0.5 , 0.25])
    """,
    shapes=("p",),
    support=(1, float("inf")),
    valid=lambda p: logical_and(p > 0, p <= 1),
    logpmf=lambda k, p: add(xlog1py(subtract(k, 1), negative(p)), log(p)),
    cdf=lambda k, p: negative(expm1(xlog1py(k, negative(p)))),
    sf=lambda k, p: exp(xlog1py(k, negative(p))),
)
nbinom = Discrete(
    "nbinom",
    """The distribution of how often one fails before ``n`` successes, each with probability ``p``.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.nbinom.pmf([0, 1], 2.0, 0.5).eval()
    array([0.25, 0.25])
    """,
    shapes=("n", "p"),
    support=(0, float("inf")),
    valid=lambda n, p: logical_and(n > 0, logical_and(p > 0, p <= 1)),
    logpmf=lambda k, n, p: add(_log_failures(k, n), add(xlogy(n, p), xlog1py(k, negative(p)))),
    cdf=lambda k, n, p: betainc(n, add(k, 1), p),
    sf=lambda k, n, p: betainc(add(k, 1), n, subtract(1, p)),
)


def _log_failures(k: Tensor, n: Tensor) -> Tensor:
    """Return the logarithm of the number of orders of k failures before the n-th success, also for broken n."""
    safe = where(k > 0, k, 1.0)
    return where(k > 0, negative(add(betaln(safe, n), log(safe))), 0.0)


betabinom = Discrete(
    "betabinom",
    """The distribution of how many of ``n`` trials succeed if the probability has a beta distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.stats.betabinom.pmf([0, 1, 2], 2, 1.0, 1.0).eval()
    array([0.33333333, 0.33333333, 0.33333333])
    """,
    shapes=("n", "a", "b"),
    support=(0, float("inf")),
    valid=lambda n, a, b: logical_and(_is_count(n), logical_and(a > 0, b > 0)),
    last=lambda n, a, b: n,
    logpmf=lambda k, n, a, b: add(_log_choose(n, k), subtract(betaln(add(k, a), add(subtract(n, k), b)), betaln(a, b))),
)

FAMILIES = (poisson, bernoulli, binom, geom, nbinom, betabinom)
__test__ = {family.name: family.__doc__ for family in FAMILIES}
