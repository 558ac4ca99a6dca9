"""Arithmetic: sums, products, quotients and powers, absolute value and sign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import BOOL, COMPLEX, EXACT, REAL, SUPPORTED, promote, scalar_dtype
from unspool._graph import Node
from unspool._ops.elementwise.absence import absent, mask, no_slope, scale, through_mask, unscale
from unspool._ops.elementwise.build import binary, unary, unary_inexact
from unspool._ops.elementwise.comparison import less, logical_or, not_equal
from unspool._ops.elementwise.complex_numbers import conj, imag, imaginary, real
from unspool._ops.elementwise.conversion import astype
from unspool._ops.elementwise.declare import OfArrays, Over, elementwise, real_only, ufunc_dtype
from unspool._ops.late import ops
from unspool._ops.leaf import CONSTANT, as_operands, as_tensor, is_seed
from unspool._ops.op import FOR_ITS_OWN, FOR_SEEDS, INPUTS, OUTPUT, Op
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- sums ------------------------------------------------------------------------------------------------------------


def _unchanged(ct: Tensor, out: Tensor, *inputs: Tensor) -> Tensor:
    return ct


def _negated(ct: Tensor, out: Tensor, *inputs: Tensor) -> Tensor:
    return through_mask(ct, negative)


ADD: Op = elementwise(
    "add", np.add, vjp=(_unchanged, _unchanged), jvp=(_unchanged, _unchanged), commuting=SUPPORTED, exact=SUPPORTED
)
SUBTRACT: Op = elementwise(
    "subtract", np.subtract, vjp=(_unchanged, _negated), jvp=(_unchanged, _negated), exact=SUPPORTED
)
NEGATIVE: Op = elementwise(
    "negative",
    np.negative,
    vjp=(_negated,),
    jvp=(_negated,),
    canonical=lambda x: x.inputs[0] if x.op is NEGATIVE else None,
    canonical_for=FOR_ITS_OWN,
    exact=SUPPORTED,
)


def add(x1: Any, x2: Any) -> Tensor:
    """Add element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.add([1.0, 2.0], 3.0).eval()
    array([4., 5.])
    """
    return binary(ADD, x1, x2)


def subtract(x1: Any, x2: Any) -> Tensor:
    """Subtract element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.subtract([1.0, 2.0], 3.0).eval()
    array([-2., -1.])
    """
    return binary(SUBTRACT, x1, x2)


def negative(x: Any) -> Tensor:
    """Negate element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.negative([1.0, -2.0]).eval()
    array([-1.,  2.])
    """
    return unary(NEGATIVE, x)


def positive(x: Any) -> Tensor:
    """Return a tensor of numbers as it is.

    Examples
    --------
    >>> import unspool as us
    >>> us.positive([1.0, -2.0]).eval()
    array([ 1., -2.])
    """
    number = as_tensor(x)
    if number.dtype == BOOL:
        raise DTypeError("positive of bool: there is no such operation on this data type")
    return number


# --- products and quotients ------------------------------------------------------------------------------------------


def _canonical_multiply(x1: Tensor, x2: Tensor) -> Tensor | None:
    # The 1 of a backward pass, and no 1 of a user's: a schedule that comes by 1.0 must not change a step's program. And
    # not for complex numbers: there (1 + 0j) * x makes NaN of an infinite part, and may turn the sign of a zero.
    if is_seed(x2) and x1.dtype not in COMPLEX and promote(x1.dtype, x2.dtype) == x1.dtype:
        return x1
    if is_seed(x1) and x2.dtype not in COMPLEX and promote(x1.dtype, x2.dtype) == x2.dtype:
        return x2
    return None


MULTIPLY: Op = elementwise(
    "multiply",
    np.multiply,
    (lambda out, x1, x2: x2, lambda out, x1, x2: x1),
    needs=(INPUTS,),
    # Not for complex numbers, where fused multiply-adds may round the two orders, or layouts, differently.
    commuting=REAL | EXACT,
    exact=REAL | EXACT,
    canonical=_canonical_multiply,
    canonical_for=FOR_SEEDS,
)
DIVIDE: Op = elementwise(
    "divide",
    np.divide,
    (Over(lambda out, x1, x2: x2), lambda out, x1, x2: negative(divide(out, x2))),
    needs=(INPUTS, OUTPUT),
    exact=REAL | EXACT,
)
FLOOR_DIVIDE = elementwise(
    "floor_divide",
    np.floor_divide,
    vjp=(no_slope, no_slope),
    jvp=(no_slope, no_slope),
    dtype=real_only(ufunc_dtype(np.floor_divide)),
)


def _remainder_by_divisor(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    return scale(ct, negative(floor_divide(x1, x2)))


REMAINDER = elementwise(
    "remainder",
    np.remainder,
    vjp=(_unchanged, _remainder_by_divisor),
    jvp=(_unchanged, _remainder_by_divisor),
    needs=(INPUTS,),
    dtype=real_only(ufunc_dtype(np.remainder)),
)
SQUARE = elementwise(
    "square",
    OfArrays(np.square),
    (lambda out, x: multiply(x, 2),),
    needs=(INPUTS,),
    exact=REAL | EXACT,
    dtype=ufunc_dtype(np.square),
)
RECIPROCAL = elementwise(
    "reciprocal", np.reciprocal, (lambda out, x: negative(square(out)),), needs=(OUTPUT,), exact=REAL | EXACT
)


def multiply(x1: Any, x2: Any) -> Tensor:
    """Multiply element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.multiply([1.0, 2.0], 3.0).eval()
    array([3., 6.])
    """
    return binary(MULTIPLY, x1, x2)


def divide(x1: Any, x2: Any) -> Tensor:
    """Divide element by element; the quotient of integers is a float.

    Examples
    --------
    >>> import unspool as us
    >>> us.divide([1.0, 2.0], 4.0).eval()
    array([0.25, 0.5 ])
    """
    return binary(DIVIDE, x1, x2)


def floor_divide(x1: Any, x2: Any) -> Tensor:
    """Divide and round down, element by element; its derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.floor_divide([7.0, -7.0], 2.0).eval()
    array([ 3., -4.])
    """
    return binary(FLOOR_DIVIDE, x1, x2)


def remainder(x1: Any, x2: Any) -> Tensor:
    """What floor division leaves, with the sign of the divisor.

    Examples
    --------
    >>> import unspool as us
    >>> us.remainder([7.0, -7.0], 4.0).eval()
    array([3., 1.])
    """
    return binary(REMAINDER, x1, x2)


def square(x: Any) -> Tensor:
    """Multiply every element by itself.

    Examples
    --------
    >>> import unspool as us
    >>> us.square([1.0, -3.0]).eval()
    array([1., 9.])
    """
    return unary(SQUARE, x)


def reciprocal(x: Any) -> Tensor:
    """One over every element; integers become float64 first.

    Examples
    --------
    >>> import unspool as us
    >>> us.reciprocal([1.0, 4.0]).eval()
    array([1.  , 0.25])
    """
    return unary_inexact(RECIPROCAL, x)


# --- powers ----------------------------------------------------------------------------------------------------------


def _power_by_base(out: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    if x2.op is CONSTANT and not x2.shape and x2.dtype != BOOL and x1.dtype == out.dtype:
        exponent = x2.value.item()
        return multiply(power(x1, exponent - 1), exponent)
    return multiply(power(x1, subtract(x2, 1)), x2)


def _power_by_exponent(out: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    # A negative base of a complex power has a logarithm, if it is taken of a complex number.
    return multiply(out, ops.log(astype(x1, out.dtype)))


def _base_rule(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor, *, adjoint: bool) -> Tensor:
    if x2.op is CONSTANT and not x2.shape and x2.value == 0:
        return absent(ct)
    factor = _power_by_base(out, x1, x2)
    flow = scale(ct, conj(factor) if adjoint else factor)
    if x2.op is CONSTANT and x2.value.all():
        return flow
    # x**0 is constant, and its derivative at 0 is not the 0 * 0**-1 of the formula.
    return mask(flow, logical_or(not_equal(x1, 0), not_equal(x2, 0)))


def _exponent_rule(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor, *, adjoint: bool) -> Tensor:
    factor = _power_by_exponent(out, x1, x2)
    flow = scale(ct, conj(factor) if adjoint else factor)
    # 0**y is 0 for all y > 0 and its derivative is not the 0 * log(0) of the formula.
    return mask(flow, logical_or(not_equal(x1, 0), less(real(x2), 0)))


POWER = elementwise(
    "power",
    np.power,
    vjp=(
        lambda ct, out, x1, x2: _base_rule(ct, out, x1, x2, adjoint=True),
        lambda ct, out, x1, x2: _exponent_rule(ct, out, x1, x2, adjoint=True),
    ),
    jvp=(
        lambda t, out, x1, x2: _base_rule(t, out, x1, x2, adjoint=False),
        lambda t, out, x1, x2: _exponent_rule(t, out, x1, x2, adjoint=False),
    ),
    needs=(INPUTS, OUTPUT),
    by_value=True,
)


def power(x1: Any, x2: Any) -> Tensor:
    """Raise to a power element by element.

    A Python scalar 1 or 2 as exponent gives ``x1`` and ``square(x1)``, as NumPy's ``**`` does. Derivatives are right at
    zero: that of ``x**0`` is 0, and so is that of ``0**y`` with respect to ``y >= 0``. With respect to the exponent of
    a negative real base there is none, and it is NaN.

    Examples
    --------
    >>> import unspool as us
    >>> us.power([2.0, 3.0], 3).eval()
    array([ 8., 27.])
    """
    if type(x2) in (int, float, complex) and x2 in (1, 2):
        base = as_tensor(x1)
        if base.dtype != BOOL and scalar_dtype(base.dtype, type(x2)) == base.dtype:  # type: ignore[arg-type]
            return base if x2 == 1 else square(base)
    x1, x2 = as_operands(x1, x2)
    _refuse_negative_integer_power(x1, x2)
    return binary(POWER, x1, x2)


pow = power


def _refuse_negative_integer_power(x1: Node, x2: Node) -> None:
    if x2.op is CONSTANT and x1.dtype in EXACT and x2.dtype in EXACT and x2.dtype != BOOL and (x2.value < 0).any():
        raise DTypeError(
            f"power of {x1.dtype}, {x2.dtype}: an integer to the power of a negative one is a fraction; "
            "convert the base with astype(float) first"
        )


# --- absolute value and sign -----------------------------------------------------------------------------------------


def _sign_rule(ct: Tensor, out: Tensor, x: Tensor) -> Tensor:
    """Move a complex number's cotangent, or tangent, along the unit circle; the map is its own adjoint."""
    if x.dtype not in COMPLEX:
        return absent(ct)
    turned = through_mask(ct, lambda inner: multiply(imaginary(imag(multiply(inner, conj(out)))), out))
    return mask(unscale(turned, abs(x)), not_equal(x, 0))


ABS = elementwise(
    "abs",
    np.absolute,
    vjp=(lambda ct, out, x: scale(ct, sign(x)),),
    jvp=(lambda t, out, x: through_mask(t, lambda inner: real(multiply(inner, conj(sign(x))))),),
    needs=(INPUTS,),
    # That of complex numbers, which is real, is not: but no real result is written over those, or follows their layout.
    exact=REAL | EXACT,
)
SIGN = elementwise("sign", np.sign, vjp=(_sign_rule,), jvp=(_sign_rule,), needs=(INPUTS, OUTPUT))


def abs(x: Any) -> Tensor:
    """Absolute value; its derivative at 0 is 0, for complex numbers too.

    Examples
    --------
    >>> import unspool as us
    >>> us.abs([-1.0, 2.0]).eval()
    array([1., 2.])
    """
    return unary(ABS, x)


absolute = abs


def sign(x: Any) -> Tensor:
    """-1, 0 or 1 by the sign of a real number; ``x / abs(x)``, or 0, for a complex one.

    Examples
    --------
    >>> import unspool as us
    >>> us.sign([-3.0, 0.0, 2.0]).eval()
    array([-1.,  0.,  1.])
    """
    return unary(SIGN, x)


ops.provide(MULTIPLY=MULTIPLY, add=add, divide=divide, multiply=multiply)
