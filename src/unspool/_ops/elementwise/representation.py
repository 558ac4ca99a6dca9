"""How numbers are represented: neighbours, spacings, exponents and bits of floating-point numbers and integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import COMPLEX, INT32, INTEGERS, promote
from unspool._ops.elementwise.absence import no_slope, through_mask
from unspool._ops.elementwise.arithmetic import abs, negative, power
from unspool._ops.elementwise.build import as_inexact, binary_inexact, coerce, nary, unary, unary_inexact
from unspool._ops.elementwise.choosing import where
from unspool._ops.elementwise.comparison import equal, isnan, less
from unspool._ops.elementwise.complex_numbers import imag, real
from unspool._ops.elementwise.conversion import astype
from unspool._ops.elementwise.declare import elementwise, real_only, ufunc_dtype
from unspool._ops.elementwise.rounding import round, trunc
from unspool._ops.leaf import as_operands, as_tensor
from unspool._ops.op import INPUTS, Rule
from unspool.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

around = round
fix = trunc

_NEXTAFTER_RULES: tuple[Rule, ...] = (lambda ct, out, x1, x2: ct, no_slope)
NEXTAFTER = elementwise(
    "nextafter",
    np.nextafter,
    vjp=_NEXTAFTER_RULES,
    jvp=_NEXTAFTER_RULES,
    dtype=real_only(ufunc_dtype(np.nextafter)),
)
SPACING = elementwise("spacing", np.spacing, vjp=(no_slope,), jvp=(no_slope,), dtype=real_only(ufunc_dtype(np.spacing)))
_LDEXP_RULES: tuple[Rule | None, ...] = (
    lambda ct, out, x1, x2: through_mask(ct, lambda inner: ldexp(inner, x2)),
    None,
)
LDEXP = elementwise("ldexp", np.ldexp, vjp=_LDEXP_RULES, jvp=_LDEXP_RULES, needs=(INPUTS,))
EXPONENT = elementwise("exponent", lambda x: np.frexp(x)[1], dtype=real_only(lambda x: INT32), fresh=True)
BITWISE_COUNT = elementwise("bitwise_count", np.bitwise_count)


# --- floating-point numbers ------------------------------------------------------------------------------------------


def nextafter(x1: Any, x2: Any) -> Tensor:
    """The next floating-point number after ``x1`` in the direction of ``x2``; its derivative is that of ``x1``.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.nextafter(1.0, 2.0) == 1.0 + us.finfo("float64").eps)
    True
    """
    return binary_inexact(NEXTAFTER, x1, x2)


def spacing(x: Any) -> Tensor:
    """The distance to the next floating-point number away from 0; its derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.spacing(1.0) == us.finfo("float64").eps)
    True
    """
    return unary_inexact(SPACING, x)


def ldexp(x1: Any, x2: Any) -> Tensor:
    """``x1 * 2**x2`` for integers ``x2``, without an error of rounding.

    Examples
    --------
    >>> import unspool as us
    >>> us.ldexp([1.0, 3.0], [3, -1]).eval()
    array([8. , 1.5])
    """
    exponents = as_tensor(x2)
    if exponents.dtype not in INTEGERS:
        raise DTypeError(f"the exponents of ldexp are integers, got dtype {exponents.dtype}")
    return nary(LDEXP, as_inexact(x1), astype(exponents, INT32))


def frexp(x: Any) -> tuple[Tensor, Tensor]:
    """Return the mantissa, at least a half and less than 1 in size, and the exponent of 2 of floating-point numbers.

    Examples
    --------
    >>> import unspool as us
    >>> [part.eval() for part in us.frexp([8.0, 0.75])]
    [array([0.5 , 0.75]), array([4, 0], dtype=int32)]
    """
    number = as_inexact(x)
    exponent = unary(EXPONENT, number)
    return ldexp(number, negative(exponent)), exponent


def float_power(x1: Any, x2: Any) -> Tensor:
    """Raise to a power in double precision, real or complex, whatever the operands are.

    Examples
    --------
    >>> import unspool as us
    >>> us.float_power([1, 2], -1).eval()
    array([1. , 0.5])
    """
    base, exponent = as_operands(x1, x2)
    wanted = promote(base.dtype, exponent.dtype, np.dtype(np.float64))
    return power(astype(base, wanted), astype(exponent, wanted))


def heaviside(x1: Any, x2: Any) -> Tensor:
    """The step function: 0 below zero, 1 above, and ``x2`` at zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.heaviside([-1.0, 0.0, 2.0], 0.5).eval()
    array([0. , 0.5, 1. ])
    """
    x, at_zero = coerce(x1, x2)
    x, at_zero = as_inexact(x), as_inexact(at_zero)
    if not COMPLEX.isdisjoint((x.dtype, at_zero.dtype)):
        raise DTypeError(f"heaviside of {x.dtype}, {at_zero.dtype}: it takes real numbers")
    above = where(isnan(x), x, 1.0)
    return where(less(x, 0), 0.0, where(equal(x, 0), at_zero, above))


def fabs(x: Any) -> Tensor:
    """Absolute value of real numbers, as floating-point ones.

    Examples
    --------
    >>> import unspool as us
    >>> us.fabs([-1, 2]).eval()
    array([1., 2.])
    """
    number = as_inexact(x)
    if number.dtype in COMPLEX:
        raise DTypeError(f"fabs of {number.dtype}: it takes real numbers; abs takes complex ones")
    return abs(number)


def rint(x: Any) -> Tensor:
    """Round to the nearest integer, halves to even, as a floating-point number. The derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.rint([0.5, 1.5, 2.4]).eval()
    array([0., 2., 2.])
    """
    return round(as_inexact(x))


def isneginf(x: Any) -> Tensor:
    """Whether an element is minus infinity.

    Examples
    --------
    >>> import unspool as us
    >>> us.isneginf([1.0, float("-inf")]).eval()
    array([False,  True])
    """
    return _is_exactly("isneginf", x, -np.inf)


def isposinf(x: Any) -> Tensor:
    """Whether an element is plus infinity.

    Examples
    --------
    >>> import unspool as us
    >>> us.isposinf([1.0, float("inf")]).eval()
    array([False,  True])
    """
    return _is_exactly("isposinf", x, np.inf)


def _is_exactly(name: str, x: Any, value: float) -> Tensor:
    number = as_tensor(x)
    if number.dtype in COMPLEX:
        raise DTypeError(f"{name} of {number.dtype}: it takes real numbers")
    return equal(as_inexact(number), value)


def real_if_close(x: Any, tol: float = 100) -> Tensor:
    """Return the real part of complex numbers whose imaginary parts are all close to 0, else the numbers themselves.

    Parameters
    ----------
    x : array_like
        The numbers. The data type of the result depends on their values, so they are evaluated.
    tol : float
        How close: in multiples of the precision of the data type if it is larger than 1, else as a number.

    Examples
    --------
    >>> import unspool as us
    >>> us.real_if_close([1.0 + 1e-15j, 2.0]).eval()
    array([1., 2.])
    """
    number = as_tensor(x)
    if number.dtype not in COMPLEX:
        return number
    if not isinstance(tol, (int, float, np.integer, np.floating)):
        raise ArgumentError(f"tol is a number, got {tol!r}")
    bound = tol * float(np.finfo(number.dtype).eps) if tol > 1 else tol
    return real(number) if bool(np.all(np.abs(imag(number).eval()) < bound)) else number


# --- bits ------------------------------------------------------------------------------------------------------------


def bitwise_count(x: Any) -> Tensor:
    """How many bits of the absolute value of an integer are set.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_count([7, -8]).eval()
    array([3, 1], dtype=uint8)
    """
    return unary(BITWISE_COUNT, x)
