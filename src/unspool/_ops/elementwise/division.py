"""Quotients with a remainder: those that NumPy has beside ``floor_divide`` and ``remainder``, and common divisors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import COMPLEX
from unspool._ops.elementwise.absence import scale
from unspool._ops.elementwise.arithmetic import divide, floor_divide, negative, remainder, subtract
from unspool._ops.elementwise.build import as_inexact, binary
from unspool._ops.elementwise.choosing import where
from unspool._ops.elementwise.comparison import isinf
from unspool._ops.elementwise.declare import elementwise, real_only, ufunc_dtype
from unspool._ops.elementwise.rounding import trunc
from unspool._ops.op import INPUTS, Rule
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

mod = remainder
true_divide = divide

_FMOD_RULES: tuple[Rule, ...] = (
    lambda ct, out, x1, x2: ct,
    lambda ct, out, x1, x2: scale(ct, negative(trunc(divide(x1, x2)))),
)
FMOD = elementwise(
    "fmod", np.fmod, vjp=_FMOD_RULES, jvp=_FMOD_RULES, needs=(INPUTS,), dtype=real_only(ufunc_dtype(np.fmod))
)
GCD = elementwise("gcd", np.gcd)
LCM = elementwise("lcm", np.lcm)


def fmod(x1: Any, x2: Any) -> Tensor:
    """What division with truncation leaves, with the sign of the dividend.

    Examples
    --------
    >>> import unspool as us
    >>> us.fmod([7.0, -7.0], 4.0).eval()
    array([ 3., -3.])
    """
    return binary(FMOD, x1, x2)


def divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Divide and round down, and what that leaves: ``floor_divide`` and ``remainder``.

    Examples
    --------
    >>> import unspool as us
    >>> [x.eval() for x in us.divmod([7.0, -7.0], 4.0)]
    [array([ 1., -2.]), array([3., 1.])]
    """
    return floor_divide(x1, x2), remainder(x1, x2)


def modf(x: Any) -> tuple[Tensor, Tensor]:
    """Return the fractional and the integral part of real numbers, both with the sign of the number.

    Examples
    --------
    >>> import unspool as us
    >>> [part.eval() for part in us.modf([1.5, -0.25])]
    [array([ 0.5 , -0.25]), array([ 1., -0.])]
    """
    number = as_inexact(x)
    if number.dtype in COMPLEX:
        raise DTypeError(f"modf of {number.dtype}: it takes real numbers")
    whole = trunc(number)
    return where(isinf(number), 0.0, subtract(number, whole)), whole


def gcd(x1: Any, x2: Any) -> Tensor:
    """Greatest common divisors of integers.

    Examples
    --------
    >>> import unspool as us
    >>> us.gcd([12, 20], 8).eval()
    array([4, 4])
    """
    return binary(GCD, x1, x2)


def lcm(x1: Any, x2: Any) -> Tensor:
    """Least common multiples of integers.

    Examples
    --------
    >>> import unspool as us
    >>> us.lcm([12, 20], 8).eval()
    array([24, 40])
    """
    return binary(LCM, x1, x2)
