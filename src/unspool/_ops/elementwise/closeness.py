"""Equality within a tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise.arithmetic import abs, add, multiply, subtract
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.elementwise.comparison import equal, isfinite, isnan, less_equal, logical_and, logical_or
from unspool._ops.leaf import as_operands

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether ``abs(a - b) <= atol + rtol * abs(b)``, element by element; infinities are close to themselves only.

    Examples
    --------
    >>> import unspool as us
    >>> us.isclose([1.0, 2.0], [1.0 + 1e-9, 2.1]).eval()
    array([ True, False])
    """
    a, b = (as_inexact(x) for x in as_operands(a, b))
    tolerance = add(multiply(abs(b), rtol), atol)
    near = less_equal(abs(subtract(a, b)), tolerance)
    result = logical_or(logical_and(near, isfinite(b)), equal(a, b))
    return logical_or(result, logical_and(isnan(a), isnan(b))) if equal_nan else result
