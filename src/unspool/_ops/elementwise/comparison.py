"""Comparison, logic on truth values, and questions about single numbers. Nothing here has a derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import BOOL, SUPPORTED
from unspool._ops.elementwise.build import binary, unary
from unspool._ops.elementwise.declare import elementwise, real_only, ufunc_dtype
from unspool._ops.late import ops

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- comparison ------------------------------------------------------------------------------------------------------

EQUAL = elementwise("equal", np.equal, commuting=SUPPORTED)
NOT_EQUAL = elementwise("not_equal", np.not_equal, commuting=SUPPORTED)
LESS = elementwise("less", np.less, dtype=real_only(ufunc_dtype(np.less)))
LESS_EQUAL = elementwise("less_equal", np.less_equal, dtype=real_only(ufunc_dtype(np.less_equal)))
GREATER = elementwise("greater", np.greater, dtype=real_only(ufunc_dtype(np.greater)))
GREATER_EQUAL = elementwise("greater_equal", np.greater_equal, dtype=real_only(ufunc_dtype(np.greater_equal)))


def equal(x1: Any, x2: Any) -> Tensor:
    """Whether ``x1 == x2``, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.equal([1.0, 2.0, 3.0], 2.0).eval()
    array([False,  True, False])
    """
    return binary(EQUAL, x1, x2)


def not_equal(x1: Any, x2: Any) -> Tensor:
    """Whether ``x1 != x2``, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.not_equal([1.0, 2.0, 3.0], 2.0).eval()
    array([ True, False,  True])
    """
    return binary(NOT_EQUAL, x1, x2)


def less(x1: Any, x2: Any) -> Tensor:
    """Whether ``x1 < x2``, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.less([1.0, 2.0, 3.0], 2.0).eval()
    array([ True, False, False])
    """
    return binary(LESS, x1, x2)


def less_equal(x1: Any, x2: Any) -> Tensor:
    """Whether ``x1 <= x2``, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.less_equal([1.0, 2.0, 3.0], 2.0).eval()
    array([ True,  True, False])
    """
    return binary(LESS_EQUAL, x1, x2)


def greater(x1: Any, x2: Any) -> Tensor:
    """Whether ``x1 > x2``, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.greater([1.0, 2.0, 3.0], 2.0).eval()
    array([False, False,  True])
    """
    return binary(GREATER, x1, x2)


def greater_equal(x1: Any, x2: Any) -> Tensor:
    """Whether ``x1 >= x2``, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.greater_equal([1.0, 2.0, 3.0], 2.0).eval()
    array([False,  True,  True])
    """
    return binary(GREATER_EQUAL, x1, x2)


# --- truth values ----------------------------------------------------------------------------------------------------


def _canonical_not(x: Tensor) -> Any:
    return x.inputs[0] if x.op is LOGICAL_NOT and x.inputs[0].dtype == BOOL else None


LOGICAL_AND = elementwise("logical_and", np.logical_and, commuting=SUPPORTED)
LOGICAL_OR = elementwise("logical_or", np.logical_or, commuting=SUPPORTED)
LOGICAL_XOR = elementwise("logical_xor", np.logical_xor, commuting=SUPPORTED)
LOGICAL_NOT = elementwise("logical_not", np.logical_not, canonical=_canonical_not)


def logical_and(x1: Any, x2: Any) -> Tensor:
    """Whether both are true, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.logical_and([True, False], True).eval()
    array([ True, False])
    """
    return binary(LOGICAL_AND, x1, x2)


def logical_or(x1: Any, x2: Any) -> Tensor:
    """Whether at least one is true, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.logical_or([True, False], False).eval()
    array([ True, False])
    """
    return binary(LOGICAL_OR, x1, x2)


def logical_xor(x1: Any, x2: Any) -> Tensor:
    """Whether exactly one is true, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.logical_xor([True, False], True).eval()
    array([False,  True])
    """
    return binary(LOGICAL_XOR, x1, x2)


def logical_not(x: Any) -> Tensor:
    """Whether the element is false.

    Examples
    --------
    >>> import unspool as us
    >>> us.logical_not([True, False]).eval()
    array([False,  True])
    """
    return unary(LOGICAL_NOT, x)


# --- single numbers --------------------------------------------------------------------------------------------------

ISNAN = elementwise("isnan", np.isnan)
ISINF = elementwise("isinf", np.isinf)
ISFINITE = elementwise("isfinite", np.isfinite)
SIGNBIT = elementwise("signbit", np.signbit)


def isnan(x: Any) -> Tensor:
    """Whether an element is not a number.

    Examples
    --------
    >>> import unspool as us
    >>> us.isnan([1.0, float("nan")]).eval()
    array([False,  True])
    """
    return unary(ISNAN, x)


def isinf(x: Any) -> Tensor:
    """Whether an element is infinite.

    Examples
    --------
    >>> import unspool as us
    >>> us.isinf([1.0, float("inf")]).eval()
    array([False,  True])
    """
    return unary(ISINF, x)


def isfinite(x: Any) -> Tensor:
    """Whether an element is neither infinite nor not a number.

    Examples
    --------
    >>> import unspool as us
    >>> us.isfinite([1.0, float("inf")]).eval()
    array([ True, False])
    """
    return unary(ISFINITE, x)


def signbit(x: Any) -> Tensor:
    """Whether the sign of a real number is minus, that of -0.0 included.

    Examples
    --------
    >>> import unspool as us
    >>> us.signbit([1.0, -0.0]).eval()
    array([False,  True])
    """
    return unary(SIGNBIT, x)


ops.provide(greater=greater, logical_and=logical_and, logical_or=logical_or)
