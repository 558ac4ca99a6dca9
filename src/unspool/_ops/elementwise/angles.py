"""Inverses of trigonometric and hyperbolic functions, with the array API's short names as aliases, and degrees."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.elementwise.absence import mask, scale
from unspool._ops.elementwise.arithmetic import add, divide, multiply, negative, square, subtract
from unspool._ops.elementwise.build import as_inexact, binary_inexact, unary_inexact
from unspool._ops.elementwise.comparison import not_equal
from unspool._ops.elementwise.complex_numbers import imag, real
from unspool._ops.elementwise.declare import Over, elementwise
from unspool._ops.elementwise.exponential import sqrt
from unspool._ops.elementwise.trigonometric import one_minus_square
from unspool._ops.op import INPUTS, OUTPUT, Rule

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- ratios to angles ------------------------------------------------------------------------------------------------

ARCSIN = elementwise("arcsin", np.arcsin, (Over(lambda out, x: sqrt(one_minus_square(x))),), needs=(INPUTS,))
ARCCOS = elementwise("arccos", np.arccos, (Over(lambda out, x: negative(sqrt(one_minus_square(x)))),), needs=(INPUTS,))
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


# --- inverse hyperbolic -----------------------------------------------------------------------------------------------

ARCSINH = elementwise("arcsinh", np.arcsinh, (Over(lambda out, x: sqrt(add(square(x), 1))),), needs=(INPUTS,))
ARCCOSH = elementwise(
    "arccosh",
    np.arccosh,
    # Two roots, not the root of the product: they differ on the left half of the complex plane.
    (Over(lambda out, x: multiply(sqrt(subtract(x, 1)), sqrt(add(x, 1)))),),
    needs=(INPUTS,),
)
ARCTANH = elementwise("arctanh", np.arctanh, (Over(lambda out, x: one_minus_square(x)),), needs=(INPUTS,))


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
