"""Student's distribution function and its inverse, smooth at 0, differentiable in the degrees of freedom too.

Below 0 the function is half an incomplete beta function at df / (df + t²). The derivative by the degrees of freedom is
made of the ratio that belongs to that function (`incomplete`), which has a limit at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.elementwise import (
    add,
    divide,
    exp,
    hypot,
    isfinite,
    log,
    mask,
    multiply,
    negative,
    scale,
    sqrt,
    square,
    subtract,
)
from unspool._ops.elementwise.build import binary_inexact
from unspool._ops.op import INPUTS, OUTPUT
from unspool._ops.special.declare import cast_result, special_function
from unspool._ops.special.gamma import betaln
from unspool._ops.special.incomplete import beta_ratio

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Keeps the log-odds finite at 0, where what is made of them has reached its limit long before.
_TINY = 1e-290


def student_logpdf(t: Tensor, df: Tensor) -> Tensor:
    """Return the logarithm of the density; no square of t overflows."""
    tail = multiply(add(df, 1), log(hypot(1.0, divide(t, sqrt(df)))))
    return negative(add(add(betaln(multiply(df, 0.5), 0.5), multiply(log(df), 0.5)), tail))


def _by_freedom(df: Tensor, t: Tensor) -> Tensor:
    """Return the derivative of the distribution function by the degrees of freedom."""
    odds = subtract(log(df), log(add(square(t), _TINY)))
    ratio = beta_ratio(multiply(df, 0.5), 0.5, odds, (1, 0))
    moved = multiply(multiply(t, 0.5), exp(student_logpdf(t, df)))
    return negative(multiply(moved, add(multiply(ratio, 0.5), divide(1.0, df))))


STDTR = special_function(
    "stdtr",
    rules=(
        lambda ct, out, df, t: mask(scale(ct, _by_freedom(df, t)), isfinite(t)),
        lambda ct, out, df, t: scale(ct, exp(student_logpdf(t, df))),
    ),
)


def _stdtrit_kernel(df: Any, p: Any) -> Any:
    from scipy import special

    # SciPy's function is infinite with the wrong sign at 0.
    return np.where(np.equal(p, 0), -np.inf, special.stdtrit(df, p))


STDTRIT = special_function(
    "stdtrit",
    (
        lambda out, df, p: negative(divide(_by_freedom(df, out), exp(student_logpdf(out, df)))),
        lambda out, df, p: exp(negative(student_logpdf(out, df))),
    ),
    kernel=cast_result(_stdtrit_kernel),
    needs=(INPUTS, OUTPUT),
)


def stdtr(df: Any, t: Any) -> Tensor:
    """The distribution function of Student's distribution with ``df`` degrees of freedom.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.stdtr(1.0, [-1.0, 0.0, 1.0]).eval()
    array([0.25, 0.5 , 0.75])
    """
    return binary_inexact(STDTR, df, t)


def stdtrit(df: Any, p: Any) -> Tensor:
    """The inverse of `stdtr` in its second argument: the quantiles of Student's distribution.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.stdtrit(1.0, [0.25, 0.5]).eval().round(12)
    array([-1.,  0.])
    """
    return binary_inexact(STDTRIT, df, p)
