"""Rounding and signs: functions that are constant, or straight lines, wherever they have a derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dtypes import BOOL, EXACT
from unspool._ops.elementwise.absence import no_slope, scale
from unspool._ops.elementwise.arithmetic import multiply, sign
from unspool._ops.elementwise.build import binary_inexact, unary
from unspool._ops.elementwise.declare import elementwise
from unspool._ops.leaf import as_tensor
from unspool._ops.op import INPUTS, STRUCTURE, Op
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

FLOOR = elementwise("floor", np.floor, vjp=(no_slope,), jvp=(no_slope,))
CEIL = elementwise("ceil", np.ceil, vjp=(no_slope,), jvp=(no_slope,))
TRUNC = elementwise("trunc", np.trunc, vjp=(no_slope,), jvp=(no_slope,))


def floor(x: Any) -> Tensor:
    """Round down; integers are returned as they are. The derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.floor([-1.7, 1.7]).eval()
    array([-2.,  1.])
    """
    return _rounded(FLOOR, x)


def ceil(x: Any) -> Tensor:
    """Round up; integers are returned as they are. The derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.ceil([-1.7, 1.7]).eval()
    array([-1.,  2.])
    """
    return _rounded(CEIL, x)


def trunc(x: Any) -> Tensor:
    """Round towards zero; integers are returned as they are. The derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.trunc([-1.7, 1.7]).eval()
    array([-1.,  1.])
    """
    return _rounded(TRUNC, x)


def _rounded(op: Op, x: Any) -> Tensor:
    number = as_tensor(x)
    return number if number.dtype in EXACT else unary(op, number)


ROUND = elementwise(
    "round",
    lambda x, *, decimals: np.round(x, decimals),
    vjp=(no_slope,),
    jvp=(no_slope,),
    dtype=lambda x: x,
    params={"decimals": STRUCTURE},
)


def round(x: Any, decimals: int = 0) -> Tensor:
    """Round to a number of decimals, halves to even. The derivative is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.round([0.5, 1.5, 2.46], 1).eval()
    array([0.5, 1.5, 2.5])
    """
    number = as_tensor(x)
    try:
        places = decimals.__index__()
    except (AttributeError, TypeError):
        raise DTypeError(f"round takes an integer number of decimals, got {decimals!r}") from None
    if number.dtype == BOOL or (number.dtype in EXACT and places >= 0):
        return number
    return _graph.apply(ROUND, number, decimals=places)


def _copysign_rule(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    return scale(ct, multiply(sign(x1), copysign(1, x2)))


COPYSIGN = elementwise(
    "copysign", np.copysign, vjp=(_copysign_rule, no_slope), jvp=(_copysign_rule, no_slope), needs=(INPUTS,)
)


def copysign(x1: Any, x2: Any) -> Tensor:
    """The size of ``x1`` with the sign of ``x2``, that of -0.0 included.

    Examples
    --------
    >>> import unspool as us
    >>> us.copysign([1.0, -2.0], -0.0).eval()
    array([-1., -2.])
    """
    return binary_inexact(COPYSIGN, x1, x2)
