"""Cosine transforms: Fourier transforms of numbers that are continued as even ones.

Each type says where the numbers are mirrored. The transforms are linear, so their derivatives are themselves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import COMPLEX
from unspool._ops import layout
from unspool._ops.checks import as_integer
from unspool._ops.elementwise import add, astype, imag, multiply, real, subtract
from unspool._ops.fourier import transforms
from unspool._ops.fourier.arguments import operand, resized, scale_of
from unspool._ops.layout.cropping import crop_axis, zero_pad
from unspool._ops.leaf import constant
from unspool.errors import ArgumentError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Which type undoes which.
_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def cosine_transform(x: Any, kind: Any, n: Any, axis: int, norm: str | None, *, inverse: bool) -> Tensor:
    """Return the cosine transform of a type along an axis, or its inverse."""
    number = as_integer(kind, "type")
    if number not in _INVERSE:
        raise ArgumentError(f"a cosine transform has the type 1, 2, 3 or 4, got {number}")
    x, along = operand(x, axis)
    x = layout.moveaxis(resized(x, along, n), along, -1)
    size = x.shape[-1]
    if not isinstance(size, int):
        raise UnknownSizeError(f"a cosine transform needs to know how many numbers there are, got {size}")
    if number == 1 and size < 2:
        raise ArgumentError(f"the cosine transform of type 1 is of two numbers or more, got {size}")
    scale = scale_of(norm)
    number = _INVERSE[number] if inverse else number
    if x.dtype in COMPLEX:
        found = add(_scaled(real(x), number, scale, inverse), multiply(1j, _scaled(imag(x), number, scale, inverse)))
    else:
        found = _scaled(x, number, scale, inverse)
    return layout.moveaxis(astype(found, x.dtype), -1, along)


def _scaled(x: Tensor, kind: int, scale: str, inverse: bool) -> Tensor:
    size: Any = x.shape[-1]
    period = 2 * (size - 1) if kind == 1 else 2 * size
    if scale == "ortho":
        before, after = _orthogonal(size, kind)
        return _weighted(_transform(_weighted(x, before), kind), after / math.sqrt(period))
    found = _transform(x, kind)
    return multiply(found, 1 / period) if (scale == "forward") != inverse else found


def _orthogonal(size: int, kind: int) -> tuple[Any, Any]:
    """Return the factors of the elements, before and after, with which a transform is orthogonal."""
    before, after = np.ones(size), np.ones(size)
    root = math.sqrt(2)
    if kind == 1:
        before[[0, -1]] *= root
        after[[0, -1]] /= root
    elif kind == 2:
        after[0] /= root
    elif kind == 3:
        before[0] *= root
    return before, after


def _transform(x: Tensor, kind: int) -> Tensor:
    size: Any = x.shape[-1]
    if kind == 1:
        mirrored = layout.concat([x, layout.flip(x[..., 1:-1], axis=-1)], axis=-1)
        return real(transforms.half_spectrum(mirrored, x.ndim - 1, transforms.BACKWARD))
    numbers = np.arange(size)
    if kind == 2:
        mirrored = layout.concat([x, layout.flip(x, axis=-1)], axis=-1)
        spectrum = transforms.half_spectrum(mirrored, x.ndim - 1, transforms.BACKWARD)
        return real(_weighted(crop_axis(spectrum, x.ndim - 1, 0, size), _turn(-numbers / (2 * size))))
    turned = _weighted(x, _turn(-(numbers if kind == 3 else numbers + 0.5) / (2 * size)))
    nothing = (0,) * (x.ndim - 1)
    spectrum = transforms.transform(
        zero_pad(turned, (*nothing, 0), (*nothing, size)), x.ndim - 1, transforms.BACKWARD, inverse=False
    )
    spectrum = crop_axis(spectrum, x.ndim - 1, 0, size)
    if kind == 3:
        return subtract(multiply(2, real(spectrum)), x[..., :1])
    return multiply(2, real(_weighted(spectrum, _turn(-numbers / (2 * size)))))


def _turn(halves: Any) -> Any:
    """Return complex numbers of size 1, at some angles in units of π."""
    return np.exp(1j * math.pi * halves)


def _weighted(x: Tensor, weights: Any) -> Tensor:
    wanted: Any = x.dtype if weights.dtype.kind == "f" else np.result_type(x.dtype, np.complex64)
    return multiply(x, constant(weights.astype(wanted)))
