"""Bessel functions of real arguments.

The derivative of one is made of its neighbours in order, so the family is closed under differentiation. None is closed
under differentiation by the order: that raises `MissingRuleError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unspool._dtypes import EXACT, FLOAT64
from unspool._ops.elementwise import add, astype, multiply, negative, sign, subtract, trunc
from unspool._ops.elementwise.build import nary, unary_inexact
from unspool._ops.elementwise.special import scipy_function
from unspool._ops.leaf import as_operands, as_tensor, constant
from unspool._ops.op import INPUTS, OUTPUT, Op
from unspool._ops.special.declare import beside_integers, cast_result, no_derivative, special_function

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- of any order ----------------------------------------------------------------------------------------------------


def _of_order(name: str, by_argument: Callable[..., Any], needs: tuple[str, ...] = (INPUTS,)) -> Op:
    return special_function(
        name,
        (no_derivative(name, "its order v"), by_argument),
        kernel=cast_result(scipy_function(name)),
        needs=needs,
        dtype=beside_integers,
    )


def _neighbours(function: Callable[..., Tensor], v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return function(subtract(v, 1), x), function(add(v, 1), x)


def _half_difference(function: Callable[..., Tensor], v: Tensor, x: Tensor) -> Tensor:
    lower, upper = _neighbours(function, v, x)
    return multiply(subtract(lower, upper), 0.5)


def _half_sum(function: Callable[..., Tensor], v: Tensor, x: Tensor) -> Tensor:
    lower, upper = _neighbours(function, v, x)
    return multiply(add(lower, upper), 0.5)


JV = _of_order("jv", lambda out, v, x: _half_difference(jv, v, x))
YV = _of_order("yv", lambda out, v, x: _half_difference(yv, v, x))
IV = _of_order("iv", lambda out, v, x: _half_sum(iv, v, x))
KV = _of_order("kv", lambda out, v, x: negative(_half_sum(kv, v, x)))
IVE = _of_order("ive", lambda out, v, x: subtract(_half_sum(ive, v, x), multiply(sign(x), out)), (INPUTS, OUTPUT))
KVE = _of_order("kve", lambda out, v, x: subtract(out, _half_sum(kve, v, x)), (INPUTS, OUTPUT))


def _apply(op: Op, v: Any, x: Any) -> Tensor:
    if isinstance(v, int):
        # A whole order stays one, beside whatever precision.
        order, argument = constant(v), as_tensor(x)
    else:
        order, argument = as_operands(v, x)
    if argument.dtype in EXACT:
        argument = astype(argument, FLOAT64)
    return nary(op, order, argument)


def jv(v: Any, x: Any) -> Tensor:
    """Bessel function of the first kind, of order ``v``; differentiable in ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.jv(2, [0.0, 1.0]).eval()
    array([0.        , 0.11490348])
    """
    return _apply(JV, v, x)


def jn(n: Any, x: Any) -> Tensor:
    """Bessel function of the first kind, `jv` under its other name.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.jn(2, 1.0).eval()
    array(0.11490348)
    """
    return jv(n, x)


def yv(v: Any, x: Any) -> Tensor:
    """Bessel function of the second kind, of order ``v``; differentiable in ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.yv(2, 1.0).eval()
    array(-1.65068261)
    """
    return _apply(YV, v, x)


def yn(n: Any, x: Any) -> Tensor:
    """Bessel function of the second kind, of an integer order; of one with a fraction, that is cut off, as SciPy does.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.yn(2, 1.0).eval()
    array(-1.65068261)
    """
    return yv(n if isinstance(n, int) else trunc(n), x)


def iv(v: Any, x: Any) -> Tensor:
    """Modified Bessel function of the first kind, of order ``v``; differentiable in ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.iv(2, [0.0, 1.0]).eval()
    array([0.        , 0.13574767])
    """
    return _apply(IV, v, x)


def ive(v: Any, x: Any) -> Tensor:
    """``iv(v, x) * exp(-abs(x))``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.ive(2, 1e4).eval()
    array(0.00398867)
    """
    return _apply(IVE, v, x)


def kv(v: Any, x: Any) -> Tensor:
    """Modified Bessel function of the second kind, of order ``v``; differentiable in ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.kv(2, 1.0).eval()
    array(1.6248389)
    """
    return _apply(KV, v, x)


def kve(v: Any, x: Any) -> Tensor:
    """``kv(v, x) * exp(x)``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.kve(2, 1e4).eval()
    array(0.01253549)
    """
    return _apply(KVE, v, x)


# --- of order 0 and 1 ------------------------------------------------------------------------------------------------


def _half(x: Tensor) -> Tensor:
    return multiply(x, 0.5)


J0 = special_function("j0", (lambda out, x: negative(j1(x)),))
J1 = special_function("j1", (lambda out, x: _half(subtract(j0(x), jv(2, x))),))
Y0 = special_function("y0", (lambda out, x: negative(y1(x)),))
Y1 = special_function("y1", (lambda out, x: _half(subtract(y0(x), yv(2, x))),))
I0 = special_function("i0", (lambda out, x: i1(x),))
I1 = special_function("i1", (lambda out, x: _half(add(i0(x), iv(2, x))),))
K0 = special_function("k0", (lambda out, x: negative(k1(x)),))
K1 = special_function("k1", (lambda out, x: negative(_half(add(k0(x), kv(2, x)))),))
I0E = special_function("i0e", (lambda out, x: subtract(i1e(x), multiply(sign(x), out)),), needs=(INPUTS, OUTPUT))
I1E = special_function(
    "i1e",
    (lambda out, x: subtract(_half(add(i0e(x), ive(2, x))), multiply(sign(x), out)),),
    needs=(INPUTS, OUTPUT),
)
K0E = special_function("k0e", (lambda out, x: subtract(out, k1e(x)),), needs=(INPUTS, OUTPUT))
K1E = special_function("k1e", (lambda out, x: subtract(out, _half(add(k0e(x), kve(2, x)))),), needs=(INPUTS, OUTPUT))


def j0(x: Any) -> Tensor:
    """Bessel function of the first kind, of order 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.j0(1.0).eval()
    array(0.76519769)
    """
    return unary_inexact(J0, x)


def j1(x: Any) -> Tensor:
    """Bessel function of the first kind, of order 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.j1(1.0).eval()
    array(0.44005059)
    """
    return unary_inexact(J1, x)


def y0(x: Any) -> Tensor:
    """Bessel function of the second kind, of order 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.y0(1.0).eval()
    array(0.08825696)
    """
    return unary_inexact(Y0, x)


def y1(x: Any) -> Tensor:
    """Bessel function of the second kind, of order 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.y1(1.0).eval()
    array(-0.78121282)
    """
    return unary_inexact(Y1, x)


def i0(x: Any) -> Tensor:
    """Modified Bessel function of the first kind, of order 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.i0(1.0).eval()
    array(1.26606588)
    """
    return unary_inexact(I0, x)


def i0e(x: Any) -> Tensor:
    """``i0(x) * exp(-abs(x))``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.i0e(1.0).eval()
    array(0.46575961)
    """
    return unary_inexact(I0E, x)


def i1(x: Any) -> Tensor:
    """Modified Bessel function of the first kind, of order 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.i1(1.0).eval()
    array(0.5651591)
    """
    return unary_inexact(I1, x)


def i1e(x: Any) -> Tensor:
    """``i1(x) * exp(-abs(x))``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.i1e(1.0).eval()
    array(0.20791042)
    """
    return unary_inexact(I1E, x)


def k0(x: Any) -> Tensor:
    """Modified Bessel function of the second kind, of order 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.k0(1.0).eval()
    array(0.42102444)
    """
    return unary_inexact(K0, x)


def k0e(x: Any) -> Tensor:
    """``k0(x) * exp(x)``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.k0e(1.0).eval()
    array(1.14446308)
    """
    return unary_inexact(K0E, x)


def k1(x: Any) -> Tensor:
    """Modified Bessel function of the second kind, of order 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.k1(1.0).eval()
    array(0.60190723)
    """
    return unary_inexact(K1, x)


def k1e(x: Any) -> Tensor:
    """``k1(x) * exp(x)``, which stays in range for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.k1e(1.0).eval()
    array(1.63615349)
    """
    return unary_inexact(K1E, x)
