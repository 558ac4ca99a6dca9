"""Spherical harmonics. Their derivative by an angle is made of those with a neighbouring order, also at the poles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import EXACT
from unspool._ops.elementwise import add, astype, cos, maximum, multiply, sin, sqrt, subtract
from unspool._ops.elementwise.build import as_inexact, nary
from unspool._ops.leaf import as_tensor
from unspool._ops.op import INPUTS
from unspool._ops.special.declare import beside_integers, cast_result, special_function
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _kernel(n: Any, m: Any, theta: Any) -> Any:
    from scipy import special

    # One whose order exceeds its degree is 0: derivatives ask for it.
    return np.where(np.abs(m) <= n, np.real(special.sph_harm_y(n, m, theta, 0.0)), 0.0)


def _by_angle(out: Tensor, n: Tensor, m: Tensor, theta: Tensor) -> Tensor:
    degree, order = astype(n, theta.dtype), astype(m, theta.dtype)
    below = sqrt(maximum(multiply(add(degree, order), add(subtract(degree, order), 1)), 0))
    above = sqrt(maximum(multiply(subtract(degree, order), add(add(degree, order), 1)), 0))
    lower, upper = polar_harmonic(n, subtract(m, 1), theta), polar_harmonic(n, add(m, 1), theta)
    return multiply(subtract(multiply(above, upper), multiply(below, lower)), 0.5)


POLAR_HARMONIC = special_function(
    "polar_harmonic",
    (None, None, _by_angle),
    kernel=cast_result(_kernel),
    needs=(INPUTS,),
    dtype=beside_integers,
)


def polar_harmonic(n: Any, m: Any, theta: Any) -> Tensor:
    """The part of a spherical harmonic that depends on the polar angle.

    Examples
    --------
    >>> from unspool._ops.special.harmonics import polar_harmonic
    >>> polar_harmonic(1, 0, 0.0).eval()
    array(0.48860251)
    """
    return nary(POLAR_HARMONIC, as_tensor(n), as_tensor(m), as_inexact(theta))


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any) -> Tensor:
    """Spherical harmonics, with the phase of Condon and Shortley; differentiable in both angles.

    Parameters
    ----------
    n, m : array_like of int
        Degree, and order between ``-n`` and ``n``.
    theta, phi : array_like
        The polar angle, from 0 to π, and the azimuth.

    Examples
    --------
    >>> import unspool as us
    >>> us.special.sph_harm_y(1, 0, [0.0, 1.0], 0.0).eval().real.round(6)
    array([0.488603, 0.263993])
    """
    degree, order = as_tensor(n), as_tensor(m)
    if degree.dtype not in EXACT or order.dtype not in EXACT:
        raise DTypeError(f"degree and order are integers, got {degree.dtype} and {order.dtype}")
    polar, azimuth = as_inexact(theta), multiply(order, as_inexact(phi))
    return multiply(polar_harmonic(degree, order, polar), add(cos(azimuth), multiply(1j, sin(azimuth))))
