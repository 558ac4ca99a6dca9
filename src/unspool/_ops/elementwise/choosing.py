"""Choosing between values: each element of the result is one of the operands' elements.

What was not chosen gets an absent cotangent, so that its infinite derivatives never turn into NaN. Where two operands
of a maximum or minimum are equal, each gets half.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from unspool._dtypes import BOOL, COMPLEX, EXACT, promote
from unspool._graph import Node
from unspool._ops.elementwise.absence import mask, through_mask
from unspool._ops.elementwise.arithmetic import divide
from unspool._ops.elementwise.build import binary, coerce, nary, unary
from unspool._ops.elementwise.comparison import (
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    logical_not,
    logical_or,
)
from unspool._ops.elementwise.complex_numbers import from_parts, imag, real
from unspool._ops.elementwise.conversion import astype
from unspool._ops.elementwise.declare import elementwise, real_only, ufunc_dtype
from unspool._ops.late import ops
from unspool._ops.leaf import as_tensor
from unspool._ops.op import INPUTS, OUTPUT, Op, Rule
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- where -----------------------------------------------------------------------------------------------------------

_WHERE_RULES: tuple[Rule | None, ...] = (
    None,
    lambda ct, out, condition, x1, x2: mask(ct, condition),
    lambda ct, out, condition, x1, x2: mask(ct, logical_not(condition)),
)
WHERE = elementwise(
    "where",
    np.where,
    vjp=_WHERE_RULES,
    jvp=_WHERE_RULES,
    needs=(INPUTS,),
    dtype=lambda condition, x1, x2: promote(x1, x2),
    fresh=True,
)


@overload
def where(condition: Any) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Any, x1: Any, x2: Any) -> Tensor: ...
def where(condition: Any, x1: Any = None, x2: Any = None) -> Tensor | tuple[Tensor, ...]:
    """Choose from ``x1`` where the condition holds, else from ``x2``; what is not chosen never spoils a derivative.

    With the condition alone, as `unspool.nonzero`: the positions where it holds, which takes its value.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([0.0, 1.0])
    >>> us.sum(us.where(x > 0, us.log(x), 0.0)).grad(x).eval()
    array([0., 1.])
    """
    if not (isinstance(x1, Node) and isinstance(x2, Node)):
        if x1 is None or x2 is None:
            return _places(condition, x1, x2)
        x1, x2 = coerce(x1, x2)
    if not (isinstance(condition, Node) and condition.dtype is BOOL):
        condition = astype(condition, BOOL)
    return nary(WHERE, condition, x1, x2)


def _places(condition: Any, x1: Any, x2: Any) -> tuple[Tensor, ...]:
    if x1 is not None or x2 is not None:
        raise ArgumentError("where takes a condition alone, or with two tensors to choose from; got one")
    return ops.nonzero(condition)


# --- the larger and the smaller --------------------------------------------------------------------------------------


def _extremum(name: str, ufunc: Any, taken: Callable[[Tensor, Tensor], Tensor]) -> Op:
    """Declare a maximum or minimum; ``taken(mine, other)`` says whose element is the result, both at a tie."""

    def share(ct: Tensor, mine: Tensor, other: Tensor) -> Tensor:
        halved = through_mask(ct, lambda inner: where(equal(mine, other), divide(inner, 2), inner))
        return mask(halved, taken(mine, other))

    rules: tuple[Rule, ...] = (
        lambda ct, out, x1, x2: share(ct, x1, x2),
        lambda ct, out, x1, x2: share(ct, x2, x1),
    )
    return elementwise(name, ufunc, vjp=rules, jvp=rules, needs=(INPUTS,), dtype=real_only(ufunc_dtype(ufunc)))


# Comparisons with NaN are false: a maximum that is NaN depends on both operands, and `fmax` never on the one that is.
MAXIMUM = _extremum("maximum", np.maximum, lambda mine, other: logical_not(less(mine, other)))
MINIMUM = _extremum("minimum", np.minimum, lambda mine, other: logical_not(greater(mine, other)))
FMAX = _extremum("fmax", np.fmax, lambda mine, other: logical_or(greater_equal(mine, other), isnan(other)))
FMIN = _extremum("fmin", np.fmin, lambda mine, other: logical_or(less_equal(mine, other), isnan(other)))


def maximum(x1: Any, x2: Any) -> Tensor:
    """The larger of two real numbers; NaN if one is NaN. The derivative goes to it, half to each at a tie.

    Examples
    --------
    >>> import unspool as us
    >>> us.maximum([1.0, 5.0], 3.0).eval()
    array([3., 5.])
    """
    return binary(MAXIMUM, x1, x2)


def minimum(x1: Any, x2: Any) -> Tensor:
    """The smaller of two real numbers; NaN if one is NaN. The derivative goes to it, half to each at a tie.

    Examples
    --------
    >>> import unspool as us
    >>> us.minimum([1.0, 5.0], 3.0).eval()
    array([1., 3.])
    """
    return binary(MINIMUM, x1, x2)


def fmax(x1: Any, x2: Any) -> Tensor:
    """The larger of two real numbers, or the other one if one is NaN; derivatives as for `maximum`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fmax([1.0, float("nan")], 3.0).eval()
    array([3., 3.])
    """
    return binary(FMAX, x1, x2)


def fmin(x1: Any, x2: Any) -> Tensor:
    """The smaller of two real numbers, or the other one if one is NaN; derivatives as for `minimum`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fmin([1.0, float("nan")], 3.0).eval()
    array([1., 3.])
    """
    return binary(FMIN, x1, x2)


def clip(x: Any, min: Any = None, max: Any = None) -> Tensor:
    """Limit to an interval: ``minimum(maximum(x, min), max)``; a bound that is ``None`` does not limit.

    The derivative is 1 inside, 0 outside and, as for `maximum`, a half on a bound.

    Examples
    --------
    >>> import unspool as us
    >>> us.clip([-1.0, 0.5, 2.0], 0.0, 1.0).eval()
    array([0. , 0.5, 1. ])
    """
    limited = as_tensor(x) if min is None else maximum(x, min)
    return limited if max is None else minimum(limited, max)


def _relu_rule(ct: Tensor, out: Tensor, x: Tensor) -> Tensor:
    return mask(ct, greater(out, 0))


RELU = elementwise(
    "relu",
    lambda x: np.maximum(x, np.zeros((), x.dtype)),
    vjp=(_relu_rule,),
    jvp=(_relu_rule,),
    needs=(OUTPUT,),
    dtype=real_only(lambda x: x),
    fresh=True,
)


def relu(x: Any) -> Tensor:
    """``maximum(x, 0)`` with derivative 0 at 0, as is usual for networks.

    Examples
    --------
    >>> import unspool as us
    >>> us.relu([-1.0, 0.0, 2.0]).eval()
    array([0., 0., 2.])
    """
    return unary(RELU, x)


# --- replacing what is not finite ------------------------------------------------------------------------------------


def nan_to_num(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Replace NaN by a number and infinities by the largest finite ones, or by those given; no derivative passes there.

    Examples
    --------
    >>> import unspool as us
    >>> us.nan_to_num([float("nan"), float("inf"), 1.0], posinf=9.0).eval()
    array([0., 9., 1.])
    """
    number = as_tensor(x)
    if number.dtype in EXACT:
        return number
    if number.dtype in COMPLEX:
        parts = (nan_to_num(part, nan, posinf, neginf) for part in (real(number), imag(number)))
        return from_parts(*parts)
    limits = np.finfo(number.dtype)
    result = where(isnan(number), nan, number)
    result = where(equal(number, np.inf), float(limits.max) if posinf is None else posinf, result)
    return where(equal(number, -np.inf), float(limits.min) if neginf is None else neginf, result)
