"""Trigonometric and hyperbolic functions; `angles` has their inverses."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.elementwise.arithmetic import add, multiply, negative, square, subtract
from unspool._ops.elementwise.build import as_inexact, nary, unary_inexact
from unspool._ops.elementwise.declare import elementwise
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def one_minus_square(x: Tensor) -> Tensor:
    """Return 1 - x²."""
    # As a product, because 1 - x * x loses half the digits near 1.
    return multiply(subtract(1, x), add(1, x))


# --- angles to ratios ------------------------------------------------------------------------------------------------

SIN = elementwise("sin", np.sin, (lambda out, x: cos(x),), needs=(INPUTS,))
COS = elementwise("cos", np.cos, (lambda out, x: negative(sin(x)),), needs=(INPUTS,))
TAN = elementwise("tan", np.tan, (lambda out, x: add(square(out), 1),), needs=(OUTPUT,))


def sin(x: Any) -> Tensor:
    """Sine.

    Examples
    --------
    >>> import unspool as us
    >>> us.sin(0.0).eval()
    array(0.)
    """
    return unary_inexact(SIN, x)


def cos(x: Any) -> Tensor:
    """Cosine.

    Examples
    --------
    >>> import unspool as us
    >>> us.cos(0.0).eval()
    array(1.)
    """
    return unary_inexact(COS, x)


def tan(x: Any) -> Tensor:
    """Tangent.

    Examples
    --------
    >>> import unspool as us
    >>> us.tan(0.0).eval()
    array(0.)
    """
    return unary_inexact(TAN, x)


# --- hyperbolic ------------------------------------------------------------------------------------------------------

SINH = elementwise("sinh", np.sinh, (lambda out, x: cosh(x),), needs=(INPUTS,))
COSH = elementwise("cosh", np.cosh, (lambda out, x: sinh(x),), needs=(INPUTS,))
TANH = elementwise("tanh", np.tanh, (lambda out, x: one_minus_square(out),), needs=(OUTPUT,))


def sinh(x: Any) -> Tensor:
    """Hyperbolic sine.

    Examples
    --------
    >>> import unspool as us
    >>> us.sinh(0.0).eval()
    array(0.)
    """
    return unary_inexact(SINH, x)


def cosh(x: Any) -> Tensor:
    """Hyperbolic cosine.

    Examples
    --------
    >>> import unspool as us
    >>> us.cosh(0.0).eval()
    array(1.)
    """
    return unary_inexact(COSH, x)


def tanh(x: Any) -> Tensor:
    """Hyperbolic tangent.

    Examples
    --------
    >>> import unspool as us
    >>> us.tanh(0.0).eval()
    array(0.)
    """
    return unary_inexact(TANH, x)


# --- sinc ------------------------------------------------------------------------------------------------------------


def _sinc_kernel(x: Any, *, order: int) -> Any:
    """Return a derivative of sin(u)/u by u at u = pi*x, times pi**order."""
    if order == 0:
        return np.sinc(x)
    u = np.pi * np.asarray(x)
    # Far from 0 by recurrence: differentiating u * s(u) = sin(u) n times gives u * s_n + n * s_(n-1) = sin^(n).
    near = np.absolute(u) < order + 1
    far = np.where(near, np.ones_like(u), u)
    value = np.sin(far) / far
    for n in range(1, order + 1):
        value = (np.sin(far + n * (np.pi / 2)) - n * value) / far
    result = np.where(near, _sinc_series(np.where(near, u, np.zeros_like(u)), order), value)
    return (result * np.pi**order).astype(u.dtype)


def _sinc_series(u: Any, order: int) -> Any:
    """Return a derivative of sin(u)/u near 0 by its power series, the sum of (-1)**k * u**(2k) / (2k+1)!."""
    total = np.zeros_like(u)
    for k in range((order + 1) // 2, 2 * order + 15):
        power = 2 * k - order
        coefficient = (-1) ** k * math.factorial(2 * k) / (math.factorial(power) * math.factorial(2 * k + 1))
        total = total + coefficient * u**power
    return total


SINC: Op = elementwise(
    "sinc",
    _sinc_kernel,
    (lambda out, x, *, order: nary(SINC, x, order=order + 1),),
    needs=(INPUTS,),
    dtype=lambda x: x,
    params={"order": STRUCTURE},
)


def sinc(x: Any) -> Tensor:
    """``sin(pi*x) / (pi*x)``, 1 at 0; smooth there, in all derivatives.

    Examples
    --------
    >>> import unspool as us
    >>> us.sinc([0.0, 0.5]).eval()
    array([1.        , 0.63661977])
    """
    return nary(SINC, as_inexact(x), order=0)
