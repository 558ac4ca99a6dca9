"""Special functions of real numbers, computed by SciPy, which is imported when the first of them is evaluated."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unspool._dtypes import promote
from unspool._ops.elementwise.absence import mask, scale, unscale
from unspool._ops.elementwise.arithmetic import multiply, negative, square
from unspool._ops.elementwise.build import as_inexact, binary_inexact, nary, unary_inexact
from unspool._ops.elementwise.comparison import logical_or, not_equal
from unspool._ops.elementwise.declare import elementwise, real_only
from unspool._ops.elementwise.exponential import exp, log
from unspool._ops.op import INPUTS, STRUCTURE
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class ScipyFunction:
    """A kernel that is a function of ``scipy.special``."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arrays: Any) -> Any:
        return self.ufunc(*arrays)

    @property
    def ufunc(self) -> Any:
        """The function, which for most names is a ufunc."""
        from scipy import special

        return getattr(special, self.name)


def scipy_function(name: str) -> ScipyFunction:
    """Return the kernel that is a function of ``scipy.special``."""
    return ScipyFunction(name)


# --- the error function ----------------------------------------------------------------------------------------------


def _bell(x: Tensor) -> Tensor:
    return multiply(exp(negative(square(x))), 2.0 / math.sqrt(math.pi))


ERF = elementwise("erf", scipy_function("erf"), (lambda out, x: _bell(x),), needs=(INPUTS,), dtype=lambda x: x)
ERFC = elementwise(
    "erfc", scipy_function("erfc"), (lambda out, x: negative(_bell(x)),), needs=(INPUTS,), dtype=lambda x: x
)


def erf(x: Any) -> Tensor:
    """Error function, of real and complex numbers.

    Examples
    --------
    >>> import unspool as us
    >>> us.erf([0.0, 1.0]).eval()
    array([0.        , 0.84270079])
    """
    return unary_inexact(ERF, x)


def erfc(x: Any) -> Tensor:
    """Complement of the error function, ``1 - erf(x)``, accurate for large ``x``.

    Examples
    --------
    >>> import unspool as us
    >>> us.erfc([0.0, 10.0]).eval()
    array([1.00000000e+00, 2.08848758e-45])
    """
    return unary_inexact(ERFC, x)


# --- the gamma function ----------------------------------------------------------------------------------------------


def _polygamma_kernel(x: Any, *, n: int) -> Any:
    from scipy import special

    return special.polygamma(n, x).astype(x.dtype)


GAMMALN = elementwise(
    "gammaln", scipy_function("gammaln"), (lambda out, x: digamma(x),), needs=(INPUTS,), dtype=real_only(lambda x: x)
)
DIGAMMA = elementwise(
    "digamma",
    scipy_function("digamma"),
    (lambda out, x: polygamma(1, x),),
    needs=(INPUTS,),
    dtype=real_only(lambda x: x),
)
POLYGAMMA = elementwise(
    "polygamma",
    _polygamma_kernel,
    (lambda out, x, *, n: polygamma(n + 1, x),),
    needs=(INPUTS,),
    dtype=real_only(lambda x: x),
    params={"n": STRUCTURE},
)


def gammaln(x: Any) -> Tensor:
    """Logarithm of the absolute value of the gamma function.

    Examples
    --------
    >>> import unspool as us
    >>> us.gammaln([1.0, 5.0]).eval()
    array([0.        , 3.17805383])
    """
    return unary_inexact(GAMMALN, x)


def digamma(x: Any) -> Tensor:
    """Derivative of `gammaln`.

    Examples
    --------
    >>> import unspool as us
    >>> us.digamma(1.0).eval()
    array(-0.57721566)
    """
    return unary_inexact(DIGAMMA, x)


def polygamma(n: int, x: Any) -> Tensor:
    """The ``n``-th derivative of `digamma`, for a fixed integer ``n``.

    Examples
    --------
    >>> import unspool as us
    >>> us.polygamma(1, 1.0).eval()
    array(1.64493407)
    """
    try:
        order = n.__index__()
    except (AttributeError, TypeError):
        raise DTypeError(f"polygamma takes an integer order, got {n!r}") from None
    if order < 0:
        raise DTypeError(f"polygamma takes an order of at least 0, got {n}")
    return nary(POLYGAMMA, as_inexact(x), n=order) if order else digamma(x)


# --- entropy ---------------------------------------------------------------------------------------------------------


def _not_origin(x1: Tensor, x2: Tensor) -> Tensor:
    return logical_or(not_equal(x1, 0), not_equal(x2, 0))


def _xlogy_by_factor(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    return mask(scale(ct, log(x2)), _not_origin(x1, x2))


def _xlogy_by_argument(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    return mask(unscale(scale(ct, x1), x2), _not_origin(x1, x2))


_XLOGY_RULES = (_xlogy_by_factor, _xlogy_by_argument)
XLOGY = elementwise(
    "xlogy", scipy_function("xlogy"), vjp=_XLOGY_RULES, jvp=_XLOGY_RULES, needs=(INPUTS,), dtype=real_only(promote)
)


def xlogy(x1: Any, x2: Any) -> Tensor:
    """``x1 * log(x2)``, and 0 where ``x1`` is 0; no derivative passes where both are 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.xlogy([0.0, 1.0], [0.0, 1.0]).eval()
    array([0., 0.])
    """
    return binary_inexact(XLOGY, x1, x2)
