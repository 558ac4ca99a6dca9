"""Exponentials, logarithms and roots."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import EXACT, REAL
from unspool._ops.elementwise.arithmetic import add, multiply, square, subtract
from unspool._ops.elementwise.build import binary_inexact, unary_inexact
from unspool._ops.elementwise.choosing import where
from unspool._ops.elementwise.comparison import equal, isinf, logical_and
from unspool._ops.elementwise.declare import Over, elementwise, real_only
from unspool._ops.late import ops
from unspool._ops.op import INPUTS, OUTPUT

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_LN2 = math.log(2.0)
_LN10 = math.log(10.0)


# --- exponentials ----------------------------------------------------------------------------------------------------

EXP = elementwise("exp", np.exp, (lambda out, x: out,), needs=(OUTPUT,))
EXP2 = elementwise("exp2", np.exp2, (lambda out, x: multiply(out, _LN2),), needs=(OUTPUT,))
EXPM1 = elementwise("expm1", np.expm1, (lambda out, x: add(out, 1),), needs=(OUTPUT,))


def exp(x: Any) -> Tensor:
    """Exponential function.

    Examples
    --------
    >>> import unspool as us
    >>> us.exp(0.0).eval()
    array(1.)
    """
    return unary_inexact(EXP, x)


def exp2(x: Any) -> Tensor:
    """Two to the power of every element.

    Examples
    --------
    >>> import unspool as us
    >>> us.exp2(3.0).eval()
    array(8.)
    """
    return unary_inexact(EXP2, x)


def expm1(x: Any) -> Tensor:
    """``exp(x) - 1``, accurate for small ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.expm1(1e-10).eval()
    array(1.e-10)
    """
    return unary_inexact(EXPM1, x)


# --- logarithms ------------------------------------------------------------------------------------------------------

LOG = elementwise("log", np.log, (Over(lambda out, x: x),), needs=(INPUTS,))
LOG2 = elementwise("log2", np.log2, (Over(lambda out, x: multiply(x, _LN2)),), needs=(INPUTS,))
LOG10 = elementwise("log10", np.log10, (Over(lambda out, x: multiply(x, _LN10)),), needs=(INPUTS,))
LOG1P = elementwise("log1p", np.log1p, (Over(lambda out, x: add(x, 1)),), needs=(INPUTS,))


def log(x: Any) -> Tensor:
    """Natural logarithm.

    Examples
    --------
    >>> import unspool as us
    >>> us.log(1.0).eval()
    array(0.)
    """
    return unary_inexact(LOG, x)


def log2(x: Any) -> Tensor:
    """Logarithm to base 2.

    Examples
    --------
    >>> import unspool as us
    >>> us.log2(8.0).eval()
    array(3.)
    """
    return unary_inexact(LOG2, x)


def log10(x: Any) -> Tensor:
    """Logarithm to base 10.

    Examples
    --------
    >>> import unspool as us
    >>> us.log10(100.0).eval()
    array(2.)
    """
    return unary_inexact(LOG10, x)


def log1p(x: Any) -> Tensor:
    """``log(1 + x)``, accurate for small ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.log1p(1e-10).eval()
    array(1.e-10)
    """
    return unary_inexact(LOG1P, x)


# --- roots -----------------------------------------------------------------------------------------------------------

SQRT = elementwise("sqrt", np.sqrt, (Over(lambda out, x: multiply(out, 2)),), needs=(OUTPUT,), exact=REAL | EXACT)
CBRT = elementwise(
    "cbrt", np.cbrt, (Over(lambda out, x: multiply(square(out), 3)),), needs=(OUTPUT,), dtype=real_only(lambda x: x)
)


def _rsqrt_kernel(x: Any) -> Any:
    return np.reciprocal(np.sqrt(x))


RSQRT = elementwise(
    "rsqrt",
    _rsqrt_kernel,
    (lambda out, x: multiply(multiply(out, square(out)), -0.5),),
    needs=(OUTPUT,),
    dtype=lambda x: x,
)


def sqrt(x: Any) -> Tensor:
    """Square root; its derivative at 0 is infinite.

    Examples
    --------
    >>> import unspool as us
    >>> us.sqrt(4.0).eval()
    array(2.)
    """
    return unary_inexact(SQRT, x)


def cbrt(x: Any) -> Tensor:
    """Cube root of real numbers.

    Examples
    --------
    >>> import unspool as us
    >>> us.cbrt(-8.0).eval()
    array(-2.)
    """
    return unary_inexact(CBRT, x)


def rsqrt(x: Any) -> Tensor:
    """One over the square root.

    Examples
    --------
    >>> import unspool as us
    >>> us.rsqrt(4.0).eval()
    array(0.5)
    """
    return unary_inexact(RSQRT, x)


# --- sums of exponentials and what is made of them -------------------------------------------------------------------


def _sigmoid_kernel(x: Any) -> Any:
    # Only ever takes the exponential of a negative number, so that nothing overflows.
    small = np.exp(-np.absolute(x))
    return np.where(x < 0, small, np.ones_like(small)) / (1 + small)


SIGMOID = elementwise(
    "sigmoid",
    _sigmoid_kernel,
    (lambda out, x: multiply(out, subtract(1, out)),),
    needs=(OUTPUT,),
    dtype=real_only(lambda x: x),
)
SOFTPLUS = elementwise(
    "softplus",
    lambda x: np.logaddexp(x, np.zeros((), x.dtype)),
    (lambda out, x: sigmoid(x),),
    needs=(INPUTS,),
    dtype=real_only(lambda x: x),
)


def _share(mine: Tensor, other: Tensor, unit: float | None = None) -> Tensor:
    """Return what part of a sum of two exponentials is in one of them; half if both are 0 or both infinite."""
    level = logical_and(equal(mine, other), isinf(mine))
    distance = where(level, 0, subtract(mine, other))
    return sigmoid(distance if unit is None else multiply(distance, unit))


LOGADDEXP = elementwise(
    "logaddexp", np.logaddexp, (lambda out, x1, x2: _share(x1, x2), lambda out, x1, x2: _share(x2, x1)), needs=(INPUTS,)
)
LOGADDEXP2 = elementwise(
    "logaddexp2",
    np.logaddexp2,
    (lambda out, x1, x2: _share(x1, x2, _LN2), lambda out, x1, x2: _share(x2, x1, _LN2)),
    needs=(INPUTS,),
)


def sigmoid(x: Any) -> Tensor:
    """Logistic function ``1 / (1 + exp(-x))`` of real numbers, without overflow.

    Examples
    --------
    >>> import unspool as us
    >>> us.sigmoid([-800.0, 0.0, 800.0]).eval()
    array([0. , 0.5, 1. ])
    """
    return unary_inexact(SIGMOID, x)


def softplus(x: Any) -> Tensor:
    """``log(1 + exp(x))`` of real numbers, without overflow.

    Examples
    --------
    >>> import unspool as us
    >>> us.softplus([-800.0, 0.0, 800.0]).eval()
    array([0.00000000e+00, 6.93147181e-01, 8.00000000e+02])
    """
    return unary_inexact(SOFTPLUS, x)


def logaddexp(x1: Any, x2: Any) -> Tensor:
    """``log(exp(x1) + exp(x2))`` without overflow; derivatives are right where an operand is ``-inf``.

    Examples
    --------
    >>> import unspool as us
    >>> us.logaddexp(-1000.0, -1000.0).eval()
    array(-999.30685282)
    """
    return binary_inexact(LOGADDEXP, x1, x2)


def logaddexp2(x1: Any, x2: Any) -> Tensor:
    """``log2(2**x1 + 2**x2)`` without overflow.

    Examples
    --------
    >>> import unspool as us
    >>> us.logaddexp2(2000.0, 2000.0).eval()
    array(2001.)
    """
    return binary_inexact(LOGADDEXP2, x1, x2)


ops.provide(log=log)
