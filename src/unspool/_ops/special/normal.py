"""The error function and its kin, and the distribution function of the normal distribution.

The one idea: e^{x²}·erfc(x) and its derivatives are, up to factors, the repeated integrals of erfc scaled by e^{x²},
which obey a recurrence of three terms [1]_. So all orders are one op, and none is a difference of large numbers: what
`log_ndtr` has as derivative keeps its digits in the far tail, and so do the derivatives of that.

References
----------
.. [1] M. Abramowitz, I. Stegun, "Handbook of mathematical functions", 7.2.5
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.elementwise import divide, erf, exp, multiply, square, where
from unspool._ops.elementwise.build import as_inexact, binary_inexact, nary, unary_inexact
from unspool._ops.op import OUTPUT, STRUCTURE
from unspool._ops.special.declare import special_function

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_ROOT_OF_PI = math.sqrt(math.pi)
_ROOT_OF_TWO_PI = math.sqrt(2 * math.pi)

# From here on the recurrence runs backwards, from a term so far out that what it is does not matter.
_FAR = 2.0
_TERMS_BEYOND = 80


# --- inverses --------------------------------------------------------------------------------------------------------

ERFINV = special_function("erfinv", (lambda out, x: multiply(exp(square(out)), _ROOT_OF_PI / 2),), needs=(OUTPUT,))
ERFCINV = special_function("erfcinv", (lambda out, x: multiply(exp(square(out)), -_ROOT_OF_PI / 2),), needs=(OUTPUT,))
NDTRI = special_function("ndtri", (lambda out, x: multiply(exp(square(out) / 2), _ROOT_OF_TWO_PI),), needs=(OUTPUT,))


def erfinv(y: Any) -> Tensor:
    """The inverse of `erf`.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.erfinv([0.0, 1.0]).eval()
    array([ 0., inf])
    """
    return unary_inexact(ERFINV, y)


def erfcinv(y: Any) -> Tensor:
    """The inverse of `erfc`.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.erfcinv([0.0, 2.0]).eval()
    array([ inf, -inf])
    """
    return unary_inexact(ERFCINV, y)


def ndtri(y: Any) -> Tensor:
    """The inverse of `ndtr`: the quantiles of the standard normal distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.ndtri([0.5, 0.975]).eval()
    array([0.        , 1.95996398])
    """
    return unary_inexact(NDTRI, y)


# --- the scaled function ---------------------------------------------------------------------------------------------


def _erfcx_kernel(x: Any, *, n: int) -> Any:
    from scipy import special

    first = special.erfcx(x)
    if not n:
        return first
    below = _by_forward_recurrence(np.minimum(x, _FAR), n)
    above = _by_backward_recurrence(np.clip(x, _FAR, np.finfo(x.dtype).max / 4), n)
    return np.where(x < _FAR, below, above).astype(x.dtype)


def _by_forward_recurrence(x: Any, n: int) -> Any:
    """Return e^{x²}·iⁿerfc(x) from the two before it: a sum of positive terms for negative x."""
    from scipy import special

    before, last = np.full(x.shape, 2 / _ROOT_OF_PI), special.erfcx(x.astype(float))
    for k in range(1, n + 1):
        before, last = last, (before - 2 * x * last) / (2 * k)
    return last


def _by_backward_recurrence(x: Any, n: int) -> Any:
    """Return the same for large x, where the function is the smallest solution of the recurrence (Miller's way)."""
    ahead, last, wanted = np.zeros(x.shape), np.full(x.shape, 1e-280), np.zeros(x.shape)
    for k in range(n + _TERMS_BEYOND, -1, -1):
        if k == n:
            wanted = last
        # last has the index k, ahead k + 1; the next one has k - 1.
        ahead, last = last, 2 * (k + 1) * ahead + 2 * x * last
        size = np.maximum(last, 1.0)
        ahead, last, wanted = ahead / size, last / size, wanted / size
    return wanted / last * (2 / _ROOT_OF_PI)


ERFCX = special_function(
    "erfcx",
    (lambda out, x, *, n: multiply(scaled_integral(x, n + 1), -2.0 * (n + 1)),),
    kernel=_erfcx_kernel,
    params={"n": STRUCTURE},
)


def scaled_integral(x: Tensor, n: int) -> Tensor:
    """Return e^{x²} times the n-th repeated integral of erfc from x on."""
    return nary(ERFCX, x, n=n)


def erfcx(x: Any) -> Tensor:
    """``exp(x**2) * erfc(x)``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.erfcx([0.0, 1e10]).eval()
    array([1.00000000e+00, 5.64189584e-11])
    """
    return scaled_integral(as_inexact(x), 0)


# --- the distribution function ---------------------------------------------------------------------------------------


def _density(x: Tensor) -> Tensor:
    return multiply(exp(multiply(square(x), -0.5)), 1 / _ROOT_OF_TWO_PI)


def _hazard(x: Tensor) -> Tensor:
    """Return the derivative of log_ndtr, the density over the distribution function, in a form for either tail."""
    below = divide(math.sqrt(2 / math.pi), erfcx(multiply(x, -math.sqrt(0.5))))
    return where(x < 0, below, divide(_density(x), ndtr(x)))


NDTR = special_function("ndtr", (lambda out, x: _density(x),))
LOG_NDTR = special_function("log_ndtr", (lambda out, x: _hazard(x),))


def ndtr(x: Any) -> Tensor:
    """The distribution function of the standard normal distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.ndtr([-40.0, 0.0]).eval()
    array([0. , 0.5])
    """
    return unary_inexact(NDTR, x)


def log_ndtr(x: Any) -> Tensor:
    """The logarithm of `ndtr`, accurate in both tails, with all its derivatives.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.log_ndtr([-40.0, 0.0]).eval()
    array([-8.04608442e+02, -6.93147181e-01])
    """
    return unary_inexact(LOG_NDTR, x)


# --- Owen's function -------------------------------------------------------------------------------------------------

OWENS_T = special_function(
    "owens_t",
    (
        lambda out, h, a: multiply(
            multiply(exp(square(h) / -2), erf(multiply(multiply(a, h), math.sqrt(0.5)))), -0.5 / _ROOT_OF_TWO_PI
        ),
        lambda out, h, a: divide(exp(multiply(square(h), square(a) + 1) / -2), multiply(square(a) + 1, 2 * math.pi)),
    ),
)


def owens_t(h: Any, a: Any) -> Tensor:
    """The probability that X > h and 0 < Y < a·X, of two independent normal variables.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.owens_t(0.0, 1.0).eval(), us.special.owens_t(0.5, [0.3, 2.0]).eval()
    (array(0.125), array([0.04078671, 0.1415806 ]))
    """
    return binary_inexact(OWENS_T, h, a)
