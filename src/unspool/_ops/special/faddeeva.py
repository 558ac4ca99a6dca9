"""Faddeeva's function and Dawson's integral: solutions of first-order equations, which are their derivatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unspool._dtypes import COMPLEX, complex_dtype
from unspool._ops.elementwise import add, astype, multiply, subtract
from unspool._ops.elementwise.build import as_inexact, unary_inexact
from unspool._ops.elementwise.declare import elementwise
from unspool._ops.elementwise.special import scipy_function
from unspool._ops.op import INPUTS, OUTPUT
from unspool._ops.special.declare import special_function

if TYPE_CHECKING:
    from unspool._tensor import Tensor

DAWSN = special_function("dawsn", (lambda out, x: subtract(1, multiply(multiply(2, x), out)),), needs=(INPUTS, OUTPUT))
WOFZ = elementwise(
    "wofz",
    scipy_function("wofz"),
    (lambda out, z: add(multiply(multiply(-2, z), out), 2j / math.sqrt(math.pi)),),
    needs=(INPUTS, OUTPUT),
    dtype=lambda z: z,
)


def dawsn(x: Any) -> Tensor:
    """Dawson's integral, ``exp(-x**2)`` times the integral of ``exp(t**2)`` from 0 to x.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.dawsn([0.0, 1.0]).eval()
    array([0.        , 0.53807951])
    """
    return unary_inexact(DAWSN, x)


def wofz(z: Any) -> Tensor:
    """Faddeeva's function, ``exp(-z**2) * erfc(-1j * z)``, of complex numbers.

    Its real part at ``x + 1j * y`` is Voigt's profile, up to a factor.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.wofz([0.0, 1.0j]).eval()
    array([1.        +0.j, 0.42758358+0.j])
    """
    z = as_inexact(z)
    return unary_inexact(WOFZ, z if z.dtype in COMPLEX else astype(z, complex_dtype(z.dtype)))
