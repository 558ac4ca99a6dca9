"""The gamma function and what is made of it: beta functions, Pochhammer's symbol, Hurwitz' zeta function."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise import (
    add,
    digamma,
    equal,
    floor,
    gammaln,
    less,
    less_equal,
    logical_and,
    multiply,
    negative,
    no_slope,
    remainder,
    subtract,
    where,
)
from unspool._ops.elementwise.build import as_inexact, binary_inexact, unary_inexact
from unspool._ops.elementwise.special import scipy_function
from unspool._ops.op import INPUTS, OUTPUT
from unspool._ops.special.declare import beside_integers, cast_result, no_derivative, special_function
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- the gamma function ----------------------------------------------------------------------------------------------

GAMMA = special_function("gamma", (lambda out, x: multiply(out, digamma(x)),), needs=(INPUTS, OUTPUT))
GAMMASGN = special_function("gammasgn", rules=(no_slope,), needs=())


def _slope_of_reciprocal(out: Tensor, x: Tensor) -> Tensor:
    # Where the gamma function is infinite, at 0, -1, …, its reciprocal crosses zero with the slope (-1)ⁿ·n!.
    is_pole = logical_and(less_equal(x, 0), equal(x, floor(x)))
    steps = where(is_pole, negative(x), 0.0)
    at_pole = multiply(gamma(add(steps, 1)), subtract(1, multiply(2, remainder(steps, 2))))
    return where(is_pole, at_pole, negative(multiply(out, digamma(where(is_pole, 1.0, x)))))


RGAMMA = special_function("rgamma", (_slope_of_reciprocal,), needs=(INPUTS, OUTPUT))


def rgamma(x: Any) -> Tensor:
    """``1 / gamma(x)``, which is 0 at 0 and at negative integers.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.rgamma([0.0, 1.0, 4.0]).eval().round(6)
    array([0.      , 1.      , 0.166667])
    """
    return unary_inexact(RGAMMA, x)


def gamma(x: Any) -> Tensor:
    """The gamma function, of which ``gamma(n + 1)`` is ``n!``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.gamma([1.0, 5.0]).eval()
    array([ 1., 24.])
    """
    return unary_inexact(GAMMA, x)


def gammasgn(x: Any) -> Tensor:
    """The sign of the gamma function; `gammaln` is the logarithm of its absolute value.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.gammasgn([-0.5, 0.5]).eval()
    array([-1.,  1.])
    """
    return unary_inexact(GAMMASGN, x)


def factorial(n: Any) -> Tensor:
    """``gamma(n + 1)`` for any real ``n``, and 0 for negative ones, as SciPy's with ``exact=False``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.factorial([0, 3, -2]).eval()
    array([1., 6., 0.])
    """
    n = as_inexact(n)
    return where(n < 0, 0.0, gamma(add(n, 1)))


def multigammaln(a: Any, d: int) -> Tensor:
    """The logarithm of the gamma function of ``d`` dimensions, which normalises the Wishart distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.multigammaln(3.0, 2).eval()
    array(1.55019499)
    """
    try:
        dimension = operator.index(d)
    except TypeError:
        raise ArgumentError(f"multigammaln takes a whole number of dimensions, got {d!r}") from None
    if dimension < 1:
        raise ArgumentError(f"multigammaln takes at least one dimension, got {d}")
    a = as_inexact(a)
    total = add(gammaln(a), dimension * (dimension - 1) / 4 * math.log(math.pi))
    for j in range(1, dimension):
        total = add(total, gammaln(subtract(a, j / 2)))
    return total


# --- quotients -------------------------------------------------------------------------------------------------------


def _by_argument(x: Tensor, total: Tensor) -> Tensor:
    return subtract(digamma(x), digamma(total))


BETALN = special_function(
    "betaln",
    (lambda out, a, b: _by_argument(a, add(a, b)), lambda out, a, b: _by_argument(b, add(a, b))),
)
BETA = special_function(
    "beta",
    (
        lambda out, a, b: multiply(out, _by_argument(a, add(a, b))),
        lambda out, a, b: multiply(out, _by_argument(b, add(a, b))),
    ),
    needs=(INPUTS, OUTPUT),
)
POCH = special_function(
    "poch",
    (
        lambda out, z, m: multiply(out, subtract(digamma(add(z, m)), digamma(z))),
        lambda out, z, m: multiply(out, digamma(add(z, m))),
    ),
    needs=(INPUTS, OUTPUT),
)


def beta(a: Any, b: Any) -> Tensor:
    """``gamma(a) * gamma(b) / gamma(a + b)``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.beta(1.0, 4.0).eval()
    array(0.25)
    """
    return binary_inexact(BETA, a, b)


def betaln(a: Any, b: Any) -> Tensor:
    """The logarithm of the absolute value of `beta`.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.betaln(1.0, 4.0).eval()
    array(-1.38629436)
    """
    return binary_inexact(BETALN, a, b)


def poch(z: Any, m: Any) -> Tensor:
    """Pochhammer's symbol, ``gamma(z + m) / gamma(z)``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.poch(2.0, 3).eval()
    array(24.)
    """
    return binary_inexact(POCH, z, m)


BINOM = special_function(
    "binom",
    (
        lambda out, n, k: multiply(out, subtract(digamma(add(n, 1)), digamma(add(subtract(n, k), 1)))),
        lambda out, n, k: multiply(out, subtract(digamma(add(subtract(n, k), 1)), digamma(add(k, 1)))),
    ),
    needs=(INPUTS, OUTPUT),
)


def binom(n: Any, k: Any) -> Tensor:
    """Binomial coefficients of real numbers, ``gamma(n + 1) / (gamma(k + 1) * gamma(n - k + 1))``.

    Examples
    --------
    >>> import unspool as us
    >>> us.round(us.special.binom(5, 2.5), 6).eval()
    array(10.864977)
    """
    return binary_inexact(BINOM, n, k)


def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Tensor:
    """In how many ways ``k`` of ``N`` things can be chosen: `binom`, and 0 where that is not possible.

    Parameters
    ----------
    N, k : array_like
        Numbers of things.
    exact : bool
        Not to be had: tensors have no integers of any size.
    repetition : bool
        Whether a thing may be chosen more than once.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.comb([5, 3], 2).eval(), us.special.comb(5, 2, repetition=True).eval()
    (array([10.,  3.]), array(15.))
    """
    if exact:
        raise ArgumentError("comb computes with floats; math.comb has integers of any size")
    total, chosen = as_inexact(N), as_inexact(k)
    if repetition:
        total = subtract(add(total, chosen), 1)
    possible = logical_and(logical_and(less_equal(chosen, total), total >= 0), chosen >= 0)
    return where(possible, binom(where(possible, total, 0.0), where(possible, chosen, 0.0)), 0.0)


def loggamma(x: Any) -> Tensor:
    """The logarithm of the gamma function, which real numbers below 0 do not have.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.loggamma([1.0, 10.0, -0.5]).eval().round(6)
    array([ 0.      , 12.801827,       nan])
    """
    x = as_inexact(x)
    return where(less(x, 0), math.nan, gammaln(x))


# --- the zeta function -----------------------------------------------------------------------------------------------

ZETA = special_function(
    "zeta",
    (
        no_derivative("zeta", "its exponent x"),
        lambda out, x, q: negative(multiply(x, zeta(add(x, 1), q))),
    ),
    kernel=cast_result(scipy_function("zeta")),
    dtype=beside_integers,
)


def zeta(x: Any, q: Any = 1.0) -> Tensor:
    """Hurwitz' zeta function, ``sum(1 / (k + q) ** x)`` over all k from 0 on; for q = 1 it is Riemann's.

    It is differentiable in ``q``; a derivative by ``x`` raises `MissingRuleError`.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.zeta([2.0, 4.0]).eval()
    array([1.64493407, 1.08232323])
    """
    return binary_inexact(ZETA, x, q)
