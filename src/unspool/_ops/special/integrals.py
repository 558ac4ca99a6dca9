"""Integrals without a name among the elementary functions, whose integrands have one; and hypergeometric functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise import (
    abs,
    add,
    cos,
    divide,
    exp,
    less,
    log1p,
    multiply,
    negative,
    sin,
    sinc,
    square,
    subtract,
    where,
)
from unspool._ops.elementwise.build import as_inexact, nary, unary_inexact
from unspool._ops.elementwise.special import scipy_function
from unspool._ops.op import STRUCTURE
from unspool._ops.special.declare import beside_integers, cast_result, nary_inexact, no_derivative, special_function
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- exponential integrals -------------------------------------------------------------------------------------------


def _expn_kernel(x: Any, *, n: int) -> Any:
    from scipy import special

    return special.expn(n, x)


def _expn_slope(x: Tensor, n: int) -> Tensor:
    if n > 0:
        return negative(expn(n - 1, x))
    # The one before the first is elementary: so is its derivative.
    return negative(multiply(exp(negative(x)), divide(add(x, 1), square(x))))


EXP1 = special_function("exp1", (lambda out, x: negative(divide(exp(negative(x)), x)),))
EXPI = special_function("expi", (lambda out, x: divide(exp(x), x),))
EXPN = special_function(
    "expn",
    (lambda out, x, *, n: _expn_slope(x, n),),
    kernel=cast_result(_expn_kernel),
    params={"n": STRUCTURE},
)


def exp1(x: Any) -> Tensor:
    """The integral of ``exp(-t) / t`` from ``x`` to infinity.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.exp1(1.0).eval()
    array(0.21938393)
    """
    return unary_inexact(EXP1, x)


def expi(x: Any) -> Tensor:
    """The integral of ``exp(t) / t`` from minus infinity to ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.expi(1.0).eval()
    array(1.89511782)
    """
    return unary_inexact(EXPI, x)


def expn(n: int, x: Any) -> Tensor:
    """The integral of ``exp(-x * t) / t ** n`` from 1 to infinity, for a whole number ``n``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.expn(2, 0.0).eval()
    array(1.)
    """
    try:
        order = operator.index(n)
    except TypeError:
        raise ArgumentError(f"expn takes a whole number as order, got {n!r}") from None
    if order < 0:
        raise ArgumentError(f"expn takes an order of at least 0, got {n}")
    return nary(EXPN, as_inexact(x), n=order)


# --- of trigonometric functions --------------------------------------------------------------------------------------


def _part_of(name: str, index: int) -> Callable[..., Any]:
    def kernel(x: Any) -> Any:
        from scipy import special

        return getattr(special, name)(x)[index]

    return cast_result(kernel)


def _right_angles(x: Tensor) -> Tensor:
    return multiply(square(x), math.pi / 2)


FRESNEL_SINE = special_function("fresnel_sine", (lambda out, x: sin(_right_angles(x)),), kernel=_part_of("fresnel", 0))
FRESNEL_COSINE = special_function(
    "fresnel_cosine", (lambda out, x: cos(_right_angles(x)),), kernel=_part_of("fresnel", 1)
)
SINE_INTEGRAL = special_function(
    "sine_integral", (lambda out, x: sinc(multiply(x, 1 / math.pi)),), kernel=_part_of("sici", 0)
)
COSINE_INTEGRAL = special_function("cosine_integral", (lambda out, x: divide(cos(x), x),), kernel=_part_of("sici", 1))


def fresnel(x: Any) -> tuple[Tensor, Tensor]:
    """The integrals of ``sin(pi * t**2 / 2)`` and of ``cos(pi * t**2 / 2)`` from 0 to ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> sine, cosine = us.special.fresnel(1.0)
    >>> sine.eval(), cosine.eval()
    (array(0.43825915), array(0.7798934))
    """
    return unary_inexact(FRESNEL_SINE, x), unary_inexact(FRESNEL_COSINE, x)


def sici(x: Any) -> tuple[Tensor, Tensor]:
    """The integral of ``sin(t) / t`` from 0 to ``x``, and that of ``cos(t) / t`` from infinity to ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> sine, cosine = us.special.sici(1.0)
    >>> sine.eval(), cosine.eval()
    (array(0.94608307), array(0.33740392))
    """
    return unary_inexact(SINE_INTEGRAL, x), unary_inexact(COSINE_INTEGRAL, x)


# --- of the logarithm ------------------------------------------------------------------------------------------------

# Nearer to 1 than this the integrand is summed as a series: of so many terms the last is below rounding.
_NEAR = 0.05
_TERMS = 13


def _spence_slope(x: Tensor) -> Tensor:
    """Return log(x) / (1 - x), also at and near 1, where it is -1."""
    u = subtract(x, 1)
    series: Any = (-1.0) ** _TERMS / _TERMS
    for k in range(_TERMS - 1, 0, -1):
        series = add(multiply(u, series), (-1.0) ** k / k)
    return where(less(abs(u), _NEAR), series, negative(divide(log1p(u), u)))


SPENCE = special_function("spence", (lambda out, x: _spence_slope(x),))


def spence(x: Any) -> Tensor:
    """The integral of ``log(t) / (1 - t)`` from 1 to ``x``: the dilogarithm of ``1 - x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.spence([0.0, 1.0]).eval()
    array([1.64493407, 0.        ])
    """
    return unary_inexact(SPENCE, x)


# --- hypergeometric functions ----------------------------------------------------------------------------------------


def _raised(function: Callable[..., Tensor], top: tuple[Tensor, ...], bottom: Tensor, x: Tensor) -> Tensor:
    """Return the derivative of a hypergeometric series by its argument: the series with all parameters one higher."""
    factor: Any = divide(1.0, bottom)
    for parameter in top:
        factor = multiply(factor, parameter)
    return multiply(factor, function(*[add(p, 1) for p in top], add(bottom, 1), x))


HYP1F1 = special_function(
    "hyp1f1",
    (
        no_derivative("hyp1f1", "its parameter a"),
        no_derivative("hyp1f1", "its parameter b"),
        lambda out, a, b, x: _raised(hyp1f1, (a,), b, x),
    ),
    kernel=cast_result(scipy_function("hyp1f1")),
    dtype=beside_integers,
)
HYP2F1 = special_function(
    "hyp2f1",
    (
        no_derivative("hyp2f1", "its parameter a"),
        no_derivative("hyp2f1", "its parameter b"),
        no_derivative("hyp2f1", "its parameter c"),
        lambda out, a, b, c, x: _raised(hyp2f1, (a, b), c, x),
    ),
    kernel=cast_result(scipy_function("hyp2f1")),
    dtype=beside_integers,
)


def hyp1f1(a: Any, b: Any, x: Any) -> Tensor:
    """Kummer's hypergeometric function; differentiable in ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.hyp1f1(1.0, 1.0, 1.0).eval()
    array(2.71828183)
    """
    return nary_inexact(HYP1F1, a, b, x)


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Tensor:
    """Gauss' hypergeometric function; differentiable in ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.hyp2f1(1.0, 2.0, 2.0, 0.5).eval()
    array(2.)
    """
    return nary_inexact(HYP2F1, a, b, c, x)
