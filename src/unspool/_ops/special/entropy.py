"""Logarithms of probabilities: log-odds and entropies, with values and derivatives where a probability is 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._ops.elementwise import (
    add,
    divide,
    equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    mask,
    multiply,
    negative,
    not_equal,
    scale,
    sigmoid,
    softplus,
    subtract,
    unscale,
)
from unspool._ops.elementwise.build import as_inexact, binary_inexact, unary_inexact
from unspool._ops.elementwise.declare import Over
from unspool._ops.special.declare import special_function

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- log-odds --------------------------------------------------------------------------------------------------------

LOGIT = special_function("logit", (Over(lambda out, x: multiply(x, subtract(1, x))),))


def logit(x: Any) -> Tensor:
    """``log(x / (1 - x))``, the inverse of `expit`.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.logit([0.0, 0.5, 1.0]).eval()
    array([-inf,   0.,  inf])
    """
    return unary_inexact(LOGIT, x)


def expit(x: Any) -> Tensor:
    """``1 / (1 + exp(-x))``, without overflow: `unspool.sigmoid` under SciPy's name.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.expit([-800.0, 0.0, 800.0]).eval()
    array([0. , 0.5, 1. ])
    """
    return sigmoid(x)


def log_expit(x: Any) -> Tensor:
    """``log(expit(x))``, accurate for large negative ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.log_expit([-800.0, 0.0]).eval()
    array([-8.00000000e+02, -6.93147181e-01])
    """
    return negative(softplus(negative(as_inexact(x))))


# --- products with logarithms ----------------------------------------------------------------------------------------


def _not_at_the_pole(x: Tensor, y: Tensor) -> Tensor:
    return logical_or(not_equal(x, 0), not_equal(y, -1))


XLOG1PY = special_function(
    "xlog1py",
    rules=(
        lambda ct, out, x, y: mask(scale(ct, log1p(y)), _not_at_the_pole(x, y)),
        lambda ct, out, x, y: mask(unscale(scale(ct, x), add(1, y)), _not_at_the_pole(x, y)),
    ),
)


def xlog1py(x: Any, y: Any) -> Tensor:
    """``x * log1p(y)``, and 0 where ``x`` is 0; no derivative passes where ``y`` is -1 too.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.xlog1py([0.0, 1.0], [-1.0, 1e-20]).eval()
    array([0.e+00, 1.e-20])
    """
    return binary_inexact(XLOG1PY, x, y)


ENTR = special_function("entr", (lambda out, x: subtract(-1, log(x)),))


def entr(x: Any) -> Tensor:
    """``-x * log(x)``, and 0 at 0, where the derivative is infinite; minus infinity for negative ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.entr([-1.0, 0.0, 0.5]).eval()
    array([      -inf, 0.        , 0.34657359])
    """
    return unary_inexact(ENTR, x)


def _somewhere(x: Tensor, y: Tensor) -> Tensor:
    return logical_not(logical_and(equal(x, 0), equal(y, 0)))


def _log_ratio(x: Tensor, y: Tensor) -> Tensor:
    # Not the logarithm of the quotient, which overflows or vanishes before its logarithm does.
    return subtract(log(x), log(y))


REL_ENTR = special_function(
    "rel_entr",
    rules=(
        lambda ct, out, x, y: mask(scale(ct, add(_log_ratio(x, y), 1)), _somewhere(x, y)),
        lambda ct, out, x, y: mask(scale(ct, negative(divide(x, y))), _somewhere(x, y)),
    ),
)
KL_DIV = special_function(
    "kl_div",
    rules=(
        lambda ct, out, x, y: mask(scale(ct, _log_ratio(x, y)), _somewhere(x, y)),
        lambda ct, out, x, y: mask(scale(ct, subtract(1, divide(x, y))), _somewhere(x, y)),
    ),
)


def rel_entr(x: Any, y: Any) -> Tensor:
    """``x * log(x / y)``, and 0 where ``x`` is 0; no derivative passes where both are 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.rel_entr([0.0, 1.0, 1.0], [0.0, 1.0, 0.0]).eval()
    array([ 0.,  0., inf])
    """
    return binary_inexact(REL_ENTR, x, y)


def kl_div(x: Any, y: Any) -> Tensor:
    """``x * log(x / y) - x + y``, and ``y`` where ``x`` is 0; no derivative passes where both are 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.kl_div([0.0, 1.0], [2.0, 1.0]).eval()
    array([2., 0.])
    """
    return binary_inexact(KL_DIV, x, y)
