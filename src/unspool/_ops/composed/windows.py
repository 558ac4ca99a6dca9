"""Window functions, and numbers that are spaced evenly on a logarithmic scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from unspool._dims import Size, maximum
from unspool._dtypes import as_dtype
from unspool._ops import elementwise, layout
from unspool._ops.creation import arange, linspace, size_tensor
from unspool._ops.leaf import as_operands, as_shape, as_tensor, constant
from unspool._ops.special.bessel import i0
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- windows ---------------------------------------------------------------------------------------------------------


def bartlett(M: Size) -> Tensor:
    """Return the Bartlett window: a triangle that is 0 at both ends. ``M``, the number of points, may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.bartlett(5).eval()
    array([0. , 0.5, 1. , 0.5, 0. ])
    """
    return elementwise.subtract(1.0, elementwise.abs(_from_middle(M)))


def hanning(M: Size) -> Tensor:
    """Return the Hann window: a raised cosine that is 0 at both ends. ``M``, the number of points, may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.hanning(5).eval()
    array([0. , 0.5, 1. , 0.5, 0. ])
    """
    return _cosines(M, 0.5, 0.5)


def hamming(M: Size) -> Tensor:
    """Return the Hamming window: a raised cosine on a pedestal. ``M``, the number of points, may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.hamming(3).eval()
    array([0.08, 1.  , 0.08])
    """
    return _cosines(M, 0.54, 0.46)


def blackman(M: Size) -> Tensor:
    """Return the Blackman window, of two cosines. ``M``, the number of points, may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.blackman(3).eval().round(12)
    array([-0.,  1., -0.])
    """
    return _cosines(M, 0.42, 0.5, 0.08)


def kaiser(M: Size, beta: Any) -> Tensor:
    """Return the Kaiser window, of a Bessel function, differentiable in its shape ``beta``. ``M`` may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.kaiser(3, 0.0).eval()
    array([1., 1., 1.])
    """
    shape = elementwise.as_inexact(beta)
    if shape.ndim:
        raise ArgumentError(f"the shape of a Kaiser window is a number, got shape {shape.shape}")
    height = elementwise.sqrt(elementwise.subtract(1.0, elementwise.square(_from_middle(M))))
    return elementwise.divide(i0(elementwise.multiply(shape, height)), i0(shape))


def _from_middle(M: Size) -> Tensor:
    """Return points from -1 to 1; a single one is in the middle."""
    (count,) = as_shape((M,))
    return elementwise.divide(arange(1 - count, count, 2), size_tensor(maximum(count - 1, 1), "float64"))


def _cosines(M: Size, *weights: float) -> Tensor:
    angle = elementwise.multiply(_from_middle(M), math.pi)
    window = as_tensor(weights[0])
    for k, weight in enumerate(weights[1:], start=1):
        window = elementwise.add(window, elementwise.multiply(elementwise.cos(elementwise.multiply(angle, k)), weight))
    return window


# --- logarithmic scales ----------------------------------------------------------------------------------------------


def logspace(
    start: Any,
    stop: Any,
    num: Size = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: DTypeLike | None = None,
    *,
    axis: int = 0,
) -> Tensor:
    """Return powers of ``base`` with evenly spaced exponents from ``start`` to ``stop``; see `unspool.linspace`.

    Examples
    --------
    >>> import unspool as us
    >>> us.logspace(0.0, 2.0, 3).eval()
    array([  1.,  10., 100.])
    """
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    powers = elementwise.power(as_operands(base, exponents)[0], exponents)
    return powers if dtype is None else elementwise.astype(powers, dtype)


def geomspace(
    start: Any, stop: Any, num: Size = 50, endpoint: bool = True, dtype: DTypeLike | None = None, *, axis: int = 0
) -> Tensor:
    """Return numbers from ``start`` to ``stop``, each the same multiple of the one before; see `unspool.linspace`.

    Examples
    --------
    >>> import unspool as us
    >>> us.geomspace(1.0, 8.0, 4).eval().round(12)
    array([1., 2., 4., 8.])
    """
    first, last = layout.broadcast_arrays(*(elementwise.as_inexact(end) for end in as_operands(start, stop)))
    for end in (first, last):
        if end.op.name == "constant" and bool(np.any(end.value == 0)):
            raise ArgumentError(f"a geometric sequence has no ends that are 0, got {start!r} and {stop!r}")
    nothing = layout.broadcast_to(constant(0, first.dtype), first.shape)
    fraction = linspace(nothing, elementwise.add(nothing, 1), num, endpoint, axis=axis)
    place = layout.normalize_axis(axis, fraction.ndim)
    first, last = (layout.expand_dims(end, place) for end in (first, last))
    sequence = elementwise.multiply(first, elementwise.power(elementwise.divide(last, first), fraction))
    return sequence if dtype is None else elementwise.astype(sequence, as_dtype(dtype))
