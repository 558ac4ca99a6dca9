"""Box and Cox's transform of positive numbers to nearly normal ones: a power that is a logarithm for the exponent 0."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise import (
    absolute,
    add,
    divide,
    equal,
    expm1,
    isfinite,
    less,
    log,
    log1p,
    logical_and,
    logical_not,
    multiply,
    where,
)
from unspool._ops.elementwise.build import as_inexact

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Up to here a quotient is a sum of so many terms, so that derivatives by the exponent are right at 0, to any order.
_SMALL = 0.05
_TERMS = 10


def boxcox(x: Any, lmbda: Any) -> Tensor:
    """``(x**lmbda - 1) / lmbda``, and ``log(x)`` where ``lmbda`` is 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.boxcox([1.0, 4.0], [2.0, 0.5]).eval()
    array([0., 2.])
    """
    return _scaled(log(as_inexact(x)), as_inexact(lmbda))


def boxcox1p(x: Any, lmbda: Any) -> Tensor:
    """`boxcox` of ``1 + x``, accurate for small x.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.boxcox1p([0.0, 3.0], 0.5).eval()
    array([0., 2.])
    """
    return _scaled(log1p(as_inexact(x)), as_inexact(lmbda))


def _scaled(logarithm: Tensor, exponent: Tensor) -> Tensor:
    # The logarithm of 0, times the exponent 0, is no number; what it stands for is 1.
    is_flat = logical_and(equal(exponent, 0), logical_not(isfinite(logarithm)))
    power = where(is_flat, 0.0, multiply(logarithm, exponent))
    is_small = less(absolute(power), _SMALL)
    near = where(is_small, power, 0.0)
    series: Any = 1 / math.factorial(_TERMS)
    for order in range(_TERMS - 1, 0, -1):
        series = add(multiply(near, series), 1 / math.factorial(order))
    far = divide(expm1(where(is_small, 1.0, power)), where(is_small, 1.0, exponent))
    return where(is_small, multiply(logarithm, series), far)
