"""The regularised incomplete gamma and beta functions and their inverses, differentiable in all arguments.

By the argument the derivative is a density. By a parameter there is no closed form: it is computed by quadrature, as
the ratio of the derivative to the density of the logarithm, or of the log-odds, of the argument (`quadrature`). The
ratios of all orders are one op each for gamma and for beta: their derivatives are such ratios again, so every order
follows. The same ratio is how a quantile moves with a parameter, which makes draws from these distributions
differentiable [1]_.

References
----------
.. [1] M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients", NeurIPS 2018, arXiv:1805.08498
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.elementwise import (
    add,
    digamma,
    exp,
    gammaln,
    less,
    log,
    logical_and,
    mask,
    multiply,
    negative,
    polygamma,
    scale,
    sigmoid,
    subtract,
    xlogy,
)
from unspool._ops.elementwise.build import binary_inexact, nary
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Rule
from unspool._ops.special import quadrature
from unspool._ops.special.declare import cast_result, nary_inexact, special_function
from unspool._ops.special.entropy import log_expit, logit, xlog1py
from unspool._ops.special.gamma import betaln
from unspool._ops.special.quadrature import bell_polynomial

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- gamma: the ratio ------------------------------------------------------------------------------------------------


def _gamma_score(k: int, a: Tensor, w: Tensor) -> Tensor:
    """Return the k-th derivative by a of the logarithm of the density of w = log(x)."""
    return subtract(w, digamma(a)) if k == 1 else negative(polygamma(k - 1, a))


def _gamma_ratio_by_a(out: Tensor, a: Tensor, w: Tensor, *, order: int) -> Tensor:
    return subtract(gamma_ratio(a, w, order + 1), multiply(out, _gamma_score(1, a, w)))


def _gamma_ratio_by_w(out: Tensor, a: Tensor, w: Tensor, *, order: int) -> Tensor:
    polynomial = bell_polynomial([order], lambda k: _gamma_score(k[0], a, w))
    return subtract(polynomial, multiply(out, subtract(a, exp(w))))


GAMMA_RATIO = special_function(
    "gamma_ratio",
    (_gamma_ratio_by_a, _gamma_ratio_by_w),
    kernel=cast_result(lambda a, w, *, order: quadrature.gamma_ratio(a, w, order)),
    needs=(INPUTS, OUTPUT),
    params={"order": STRUCTURE},
    cheap=False,
)


def gamma_ratio(a: Tensor, w: Tensor, order: int) -> Tensor:
    """Return a derivative of P(a, eʷ) by a, over its derivative by w."""
    return nary(GAMMA_RATIO, a, w, order=order)


# --- gamma: the functions --------------------------------------------------------------------------------------------


def _gamma_rules(sign: int) -> tuple[Rule, Rule]:
    """Return the rules of the lower function (+1) or the upper one (-1); both are constant at 0 and at infinity."""

    def signed(x: Tensor) -> Tensor:
        return x if sign > 0 else negative(x)

    def by_parameter(ct: Tensor, out: Tensor, a: Tensor, x: Tensor) -> Tensor:
        w = log(x)
        density = exp(subtract(subtract(multiply(a, w), x), gammaln(a)))
        return mask(scale(ct, signed(multiply(density, gamma_ratio(a, w, 1)))), _between(x, 0, np.inf))

    def by_argument(ct: Tensor, out: Tensor, a: Tensor, x: Tensor) -> Tensor:
        density = exp(subtract(subtract(xlogy(subtract(a, 1), x), x), gammaln(a)))
        return mask(scale(ct, signed(density)), less(x, np.inf))

    return by_parameter, by_argument


def _between(x: Tensor, low: float, high: float) -> Tensor:
    return logical_and(less(low, x), less(x, high))


GAMMAINC = special_function("gammainc", rules=_gamma_rules(+1))
GAMMAINCC = special_function("gammaincc", rules=_gamma_rules(-1))


def gammainc(a: Any, x: Any) -> Tensor:
    """The regularised lower incomplete gamma function: the share of the integral of ``t**(a-1) * exp(-t)`` below ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.gammainc(1.0, [0.0, 1.0]).eval()
    array([0.        , 0.63212056])
    """
    return binary_inexact(GAMMAINC, a, x)


def gammaincc(a: Any, x: Any) -> Tensor:
    """The regularised upper incomplete gamma function, ``1 - gammainc(a, x)``, accurate where it is small.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.gammaincc(1.0, [0.0, 100.0]).eval()
    array([1.00000000e+00, 3.72007598e-44])
    """
    return binary_inexact(GAMMAINCC, a, x)


# --- gamma: quantiles ------------------------------------------------------------------------------------------------

# Below this the first term of the series is all there is to rounding, and its logarithm does not underflow.
_TINY = 1e-280


def _log_gamma_quantile_kernel(a: Any, p: Any, *, upper: bool) -> Any:
    from scipy import special

    a, p = a.astype(float), p.astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (special.gammainccinv if upper else special.gammaincinv)(a, p)
        lowest = np.log1p(-p) if upper else np.log(p)
        return np.where(x < _TINY, (lowest + special.gammaln(a + 1)) / a, np.log(x))


def _log_gamma_quantile_by_level(out: Tensor, a: Tensor, p: Tensor, *, upper: bool) -> Tensor:
    slope = exp(add(subtract(exp(out), multiply(a, out)), gammaln(a)))
    return negative(slope) if upper else slope


LOG_GAMMA_QUANTILE = special_function(
    "log_gamma_quantile",
    (lambda out, a, p, *, upper: negative(gamma_ratio(a, out, 1)), _log_gamma_quantile_by_level),
    kernel=cast_result(_log_gamma_quantile_kernel),
    needs=(INPUTS, OUTPUT),
    params={"upper": STRUCTURE},
    cheap=False,
)


def log_gamma_quantile(a: Any, p: Any, *, upper: bool = False) -> Tensor:
    """Return the logarithm of the inverse of `gammainc`, or of `gammaincc`, in its second argument.

    It is in range also where the inverse underflows because ``a`` is small.
    """
    return nary_inexact(LOG_GAMMA_QUANTILE, a, p, upper=upper)


def gammaincinv(a: Any, y: Any) -> Tensor:
    """The inverse of `gammainc` in its second argument: the quantiles of the gamma distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.gammaincinv(1.0, 0.6321205588285577).eval()
    array(1.)
    """
    return exp(log_gamma_quantile(a, y))


def gammainccinv(a: Any, y: Any) -> Tensor:
    """The inverse of `gammaincc` in its second argument, accurate for small ``y``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.gammainccinv(1.0, [1.0, 1e-100]).eval()
    array([  0.       , 230.2585093])
    """
    return exp(log_gamma_quantile(a, y, upper=True))


# --- beta: the ratio -------------------------------------------------------------------------------------------------


def _beta_score(k: tuple[int, ...], a: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """Return a derivative, of order k[0] by a and k[1] by b, of the logarithm of the density of w = logit(x)."""
    i, j = k
    of_total = polygamma(i + j - 1, add(a, b))
    if i and j:
        return of_total
    alone = subtract(of_total, polygamma(i + j - 1, a if i else b))
    if i + j > 1:
        return alone
    return add(alone, log_expit(w if i else negative(w)))


def _beta_ratio_by(position: int) -> Callable[..., Tensor]:
    step = (1, 0) if position == 0 else (0, 1)

    def partial(out: Tensor, a: Tensor, b: Tensor, w: Tensor, *, order: tuple[int, int]) -> Tensor:
        higher = order[0] + step[0], order[1] + step[1]
        return subtract(beta_ratio(a, b, w, higher), multiply(out, _beta_score(step, a, b, w)))

    return partial


def _beta_ratio_by_w(out: Tensor, a: Tensor, b: Tensor, w: Tensor, *, order: tuple[int, int]) -> Tensor:
    polynomial = bell_polynomial(order, lambda k: _beta_score(k, a, b, w))
    slope = subtract(multiply(a, sigmoid(negative(w))), multiply(b, sigmoid(w)))
    return subtract(polynomial, multiply(out, slope))


BETA_RATIO = special_function(
    "beta_ratio",
    (_beta_ratio_by(0), _beta_ratio_by(1), _beta_ratio_by_w),
    kernel=cast_result(lambda a, b, w, *, order: quadrature.beta_ratio(a, b, w, order)),
    needs=(INPUTS, OUTPUT),
    params={"order": STRUCTURE},
    cheap=False,
)


def beta_ratio(a: Any, b: Any, w: Tensor, order: tuple[int, int]) -> Tensor:
    """Return a derivative of I(a, b, sigmoid(w)) by a and b, over its derivative by w."""
    return nary(BETA_RATIO, a, b, w, order=order)


# --- beta: the function ----------------------------------------------------------------------------------------------


def _betainc_by_parameter(order: tuple[int, int]) -> Rule:
    def rule(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        density = exp(subtract(add(xlogy(a, x), xlog1py(b, negative(x))), betaln(a, b)))
        return mask(scale(ct, multiply(density, beta_ratio(a, b, logit(x), order))), _between(x, 0, 1))

    return rule


def _betainc_by_argument(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    exponent = add(xlogy(subtract(a, 1), x), xlog1py(subtract(b, 1), negative(x)))
    return scale(ct, exp(subtract(exponent, betaln(a, b))))


BETAINC = special_function(
    "betainc", rules=(_betainc_by_parameter((1, 0)), _betainc_by_parameter((0, 1)), _betainc_by_argument)
)


def betainc(a: Any, b: Any, x: Any) -> Tensor:
    """The regularised incomplete beta function: the share of the integral of ``t**(a-1) * (1-t)**(b-1)`` below ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.betainc(2.0, 1.0, [0.0, 0.5, 1.0]).eval()
    array([0.  , 0.25, 1.  ])
    """
    return nary_inexact(BETAINC, a, b, x)


def betaincc(a: Any, b: Any, x: Any) -> Tensor:
    """The complement of `betainc`, ``1 - betainc(a, b, x)``, accurate where it is small and ``x`` is not near 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.betaincc(2.0, 1.0, 0.5).eval()
    array(0.75)
    """
    return betainc(b, a, subtract(1, x))


BETAINCINV = special_function(
    "betaincinv",
    (
        lambda out, a, b, y: negative(multiply(_odds_step(out), beta_ratio(a, b, logit(out), (1, 0)))),
        lambda out, a, b, y: negative(multiply(_odds_step(out), beta_ratio(a, b, logit(out), (0, 1)))),
        lambda out, a, b, y: exp(
            subtract(betaln(a, b), add(xlogy(subtract(a, 1), out), xlog1py(subtract(b, 1), negative(out))))
        ),
    ),
    needs=(INPUTS, OUTPUT),
    cheap=False,
)


def _odds_step(x: Tensor) -> Tensor:
    """Return how a probability moves with its log-odds."""
    return multiply(x, subtract(1, x))


def betaincinv(a: Any, b: Any, y: Any) -> Tensor:
    """The inverse of `betainc` in its last argument: the quantiles of the beta distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.betaincinv(2.0, 1.0, 0.25).eval()
    array(0.5)
    """
    return nary_inexact(BETAINCINV, a, b, y)
