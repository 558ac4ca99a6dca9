"""Trigonometric and hyperbolic functions and their inverses, with the array API's short names as aliases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.elementwise.absence import mask, scale
from unspool._ops.elementwise.arithmetic import add, divide, multiply, negative, square, subtract
from unspool._ops.elementwise.build import as_inexact, binary_inexact, nary, unary_inexact
from unspool._ops.elementwise.comparison import not_equal
from unspool._ops.elementwise.complex_numbers import imag, real
from unspool._ops.elementwise.declare import Over, elementwise
from unspool._ops.elementwise.exponential import sqrt
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, Rule

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _one_minus_square(x: Tensor) -> Tensor:
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


# --- ratios to angles ------------------------------------------------------------------------------------------------

ARCSIN = elementwise("arcsin", np.arcsin, (Over(lambda out, x: sqrt(_one_minus_square(x))),), needs=(INPUTS,))
ARCCOS = elementwise("arccos", np.arccos, (Over(lambda out, x: negative(sqrt(_one_minus_square(x)))),), needs=(INPUTS,))
ARCTAN = elementwise("arctan", np.arctan, (Over(lambda out, x: add(square(x), 1)),), needs=(INPUTS,))


def arcsin(x: Any) -> Tensor:
    """Inverse sine.

    Examples
    --------
    >>> import unspool as us
    >>> us.arcsin(0.0).eval()
    array(0.)
    """
    return unary_inexact(ARCSIN, x)


def arccos(x: Any) -> Tensor:
    """Inverse cosine.

    Examples
    --------
    >>> import unspool as us
    >>> us.arccos(1.0).eval()
    array(0.)
    """
    return unary_inexact(ARCCOS, x)


def arctan(x: Any) -> Tensor:
    """Inverse tangent.

    Examples
    --------
    >>> import unspool as us
    >>> us.arctan(0.0).eval()
    array(0.)
    """
    return unary_inexact(ARCTAN, x)


asin, acos, atan = arcsin, arccos, arctan


# --- two sides of a triangle -----------------------------------------------------------------------------------------


def _arctan2_rule(adjacent: int, direction: int) -> Rule:
    def rule(ct: Tensor, out: Tensor, *sides: Tensor) -> Tensor:
        length = hypot(*sides)
        # Divided twice, because the square of the length may overflow or vanish.
        turn = divide(divide(sides[adjacent], length), length)
        return mask(scale(ct, turn if direction > 0 else negative(turn)), not_equal(length, 0))

    return rule


def _hypot_rule(position: int) -> Rule:
    def rule(ct: Tensor, out: Tensor, *sides: Tensor) -> Tensor:
        return mask(scale(ct, divide(sides[position], out)), not_equal(out, 0))

    return rule


_ARCTAN2_RULES = (_arctan2_rule(adjacent=1, direction=1), _arctan2_rule(adjacent=0, direction=-1))
ARCTAN2 = elementwise("arctan2", np.arctan2, vjp=_ARCTAN2_RULES, jvp=_ARCTAN2_RULES, needs=(INPUTS,))

_HYPOT_RULES = (_hypot_rule(0), _hypot_rule(1))
HYPOT = elementwise("hypot", np.hypot, vjp=_HYPOT_RULES, jvp=_HYPOT_RULES, needs=(INPUTS, OUTPUT))


def arctan2(x1: Any, x2: Any) -> Tensor:
    """Angle of the point ``(x2, x1)`` in the right quadrant; no derivative passes where both are 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.arctan2(1.0, 0.0).eval()
    array(1.57079633)
    """
    return binary_inexact(ARCTAN2, x1, x2)


atan2 = arctan2


def hypot(x1: Any, x2: Any) -> Tensor:
    """Length ``sqrt(x1**2 + x2**2)`` without overflow; no derivative passes where both are 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.hypot(3.0, 4.0).eval()
    array(5.)
    """
    return binary_inexact(HYPOT, x1, x2)


# --- hyperbolic ------------------------------------------------------------------------------------------------------

SINH = elementwise("sinh", np.sinh, (lambda out, x: cosh(x),), needs=(INPUTS,))
COSH = elementwise("cosh", np.cosh, (lambda out, x: sinh(x),), needs=(INPUTS,))
TANH = elementwise("tanh", np.tanh, (lambda out, x: _one_minus_square(out),), needs=(OUTPUT,))
ARCSINH = elementwise("arcsinh", np.arcsinh, (Over(lambda out, x: sqrt(add(square(x), 1))),), needs=(INPUTS,))
ARCCOSH = elementwise(
    "arccosh",
    np.arccosh,
    # Two roots, not the root of the product: they differ on the left half of the complex plane.
    (Over(lambda out, x: multiply(sqrt(subtract(x, 1)), sqrt(add(x, 1)))),),
    needs=(INPUTS,),
)
ARCTANH = elementwise("arctanh", np.arctanh, (Over(lambda out, x: _one_minus_square(x)),), needs=(INPUTS,))


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


def arcsinh(x: Any) -> Tensor:
    """Inverse hyperbolic sine.

    Examples
    --------
    >>> import unspool as us
    >>> us.arcsinh(0.0).eval()
    array(0.)
    """
    return unary_inexact(ARCSINH, x)


def arccosh(x: Any) -> Tensor:
    """Inverse hyperbolic cosine.

    Examples
    --------
    >>> import unspool as us
    >>> us.arccosh(1.0).eval()
    array(0.)
    """
    return unary_inexact(ARCCOSH, x)


def arctanh(x: Any) -> Tensor:
    """Inverse hyperbolic tangent.

    Examples
    --------
    >>> import unspool as us
    >>> us.arctanh(0.0).eval()
    array(0.)
    """
    return unary_inexact(ARCTANH, x)


asinh, acosh, atanh = arcsinh, arccosh, arctanh


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


# --- degrees ---------------------------------------------------------------------------------------------------------


def deg2rad(x: Any) -> Tensor:
    """Degrees to radians.

    Examples
    --------
    >>> import unspool as us
    >>> us.deg2rad(180.0).eval()
    array(3.14159265)
    """
    return multiply(as_inexact(x), math.pi / 180.0)


def rad2deg(x: Any) -> Tensor:
    """Radians to degrees.

    Examples
    --------
    >>> import unspool as us
    >>> us.rad2deg(3.141592653589793).eval()
    array(180.)
    """
    return multiply(as_inexact(x), 180.0 / math.pi)


radians, degrees = deg2rad, rad2deg


def angle(z: Any, deg: bool = False) -> Tensor:
    """Angle of a complex number in the plane, in radians, or in degrees if ``deg``; 0 has no derivative but 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.angle([1.0, 1j, -1.0], deg=True).eval()
    array([  0.,  90., 180.])
    """
    z = as_inexact(z)
    radians = arctan2(imag(z), real(z))
    return multiply(radians, 180.0 / math.pi) if deg else radians
