"""Convolution and correlation: sums of products, or Fourier transforms where these should be faster."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unspool import fft
from unspool._dims import Size, equal, is_concrete
from unspool._dtypes import COMPLEX, EXACT, inexact_dtype, promote
from unspool._ops import elementwise
from unspool._ops.filtering import convolve_nd, reversed_conjugate
from unspool._ops.layout.cropping import crop
from unspool._ops.layout.padding import pad
from unspool._ops.layout.reshaping import Axis, normalize_axes
from unspool._ops.leaf import as_operands
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_MODES = ("full", "same", "valid")
_METHODS = ("auto", "direct", "fft")
_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}

# By this factor a butterfly of a transform, of which there are three, costs more than a product and a sum.
_BUTTERFLY = 40


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Tensor:
    """Convolve two tensors with as many axes, over all of them.

    Parameters
    ----------
    in1, in2 : array_like
        The tensors. The result is differentiable in both.
    mode : {"full", "same", "valid"}
        All of the convolution, its middle in the shape of ``in1``, or what needs no element beyond the edges, for
        which one of the two has to fit into the other.
    method : {"auto", "direct", "fft"}
        Sums of products, or Fourier transforms, whose error is relative to the largest element. By default whichever
        should be faster for these sizes; sums for integers and for symbolic sizes.

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).eval()
    array([0. , 1. , 2.5, 4. , 1.5])
    """
    first, second = _operands(in1, in2, "convolve")
    _one_of("mode", mode, _MODES)
    _one_of("method", method, _METHODS)
    if method == "fft" or (method == "auto" and _is_faster_by_fft(first, second)):
        return fftconvolve(first, second, mode)
    return _direct(first, second, mode)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Tensor:
    """Correlate two tensors with as many axes, over all of them: `convolve` with the second conjugated and reversed.

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).eval()
    array([0.5, 2. , 3.5, 3. , 0. ])
    """
    first, second = _operands(in1, in2, "correlate")
    return convolve(first, reversed_conjugate(second), mode, method)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Axis = None) -> Tensor:
    """Convolve two tensors by Fourier transforms: fast for large ones, with an error relative to the largest element.

    Parameters
    ----------
    in1, in2, mode
        As in `convolve`.
    axes : int or sequence of int, optional
        Along which axes to convolve, by default all. The others broadcast.

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.fftconvolve([1.0, 2.0, 3.0], [1.0, 0.5]).eval().round(12)
    array([1. , 2.5, 4. , 1.5])
    """
    first, second = _operands(in1, in2, "fftconvolve")
    _one_of("mode", mode, _MODES)
    along = normalize_axes(axes, first.ndim)
    dtype = inexact_dtype(promote(first.dtype, second.dtype))
    first, second = elementwise.astype(first, dtype), elementwise.astype(second, dtype)
    first, second = _ordered(first, second, mode, along)
    sizes = [first.shape[axis] + second.shape[axis] - 1 for axis in along]
    padded = [_fast_size(size) if isinstance(size, int) else size for size in sizes]
    there, back = (fft.fftn, fft.ifftn) if dtype in COMPLEX else (fft.rfftn, fft.irfftn)
    product = elementwise.multiply(there(first, padded, along), there(second, padded, along))
    whole = back(product, padded, along)
    full = list(whole.shape)
    for axis, size in zip(along, sizes, strict=True):
        full[axis] = size
    return _in_mode(crop(whole, (0,) * whole.ndim, tuple(full)), first, second, mode, along)


def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Tensor:
    """Convolve two matrices, with a choice of what lies beyond the edges of the first.

    Parameters
    ----------
    in1, in2, mode
        As in `convolve`.
    boundary : {"fill", "wrap", "symm"}
        Beyond the edges there is a constant, the matrix again, or its mirror image.
    fillvalue : scalar
        The constant.

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.convolve2d([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], mode="same", boundary="wrap").eval()
    array([[3., 3.],
           [7., 7.]])
    """
    first, second = _operands(in1, in2, "convolve2d")
    return _in_the_plane("convolve2d", first, second, mode, boundary, fillvalue)


def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Tensor:
    """Correlate two matrices: `convolve2d` with the second conjugated and reversed.

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.correlate2d([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0]], mode="valid").eval()
    array([[1.],
           [3.]])
    """
    first, second = _operands(in1, in2, "correlate2d")
    return _in_the_plane("correlate2d", first, reversed_conjugate(second), mode, boundary, fillvalue)


def _in_the_plane(name: str, first: Tensor, second: Tensor, mode: str, boundary: str, fillvalue: Any) -> Tensor:
    _one_of("mode", mode, _MODES)
    _one_of("boundary", boundary, tuple(_BOUNDARIES))
    if first.ndim != 2:
        raise ShapeError(f"{name} takes matrices, got shapes {first.shape} and {second.shape}")
    if mode == "valid":
        return _direct(first, second, mode)
    widths = [(size - 1, size - 1) for size in second.shape]
    options = {"constant_values": fillvalue} if boundary == "fill" else {}
    full = convolve_nd(pad(first, widths, _BOUNDARIES[boundary], **options), second, valid=True)
    if mode == "full":
        return full
    # Of two middles SciPy takes the first for one function, and the second for the other.
    later = 0 if name == "convolve2d" else 1
    return crop(full, tuple((size - 1 + later) // 2 for size in second.shape), first.shape)


# --- the two ways ----------------------------------------------------------------------------------------------------


def _direct(first: Tensor, second: Tensor, mode: str) -> Tensor:
    along = tuple(range(first.ndim))
    if not first.ndim:
        return elementwise.multiply(first, second)
    if mode == "valid":
        return convolve_nd(*_ordered(first, second, mode, along), valid=True)
    return _in_mode(convolve_nd(first, second, valid=False), first, second, mode, along)


def _is_faster_by_fft(first: Tensor, second: Tensor) -> bool:
    sizes: Any = zip(first.shape, second.shape, strict=True)
    if {first.dtype, second.dtype} <= EXACT or not is_concrete(first.shape + second.shape):
        return False
    products = transformed = 1
    for n, m in sizes:
        products, transformed = products * n * m, transformed * (n + m - 1)
    return products > _BUTTERFLY * transformed * math.log2(transformed + 1)


@lru_cache(maxsize=256)
def _fast_size(size: int) -> int:
    """Return the smallest size from this on that has no prime factors but 2, 3 and 5."""
    best = 1 << (size - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-size // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


# --- arguments and modes ---------------------------------------------------------------------------------------------


def _operands(in1: Any, in2: Any, function: str) -> tuple[Tensor, Tensor]:
    first, second = as_operands(in1, in2)
    if first.ndim != second.ndim:
        raise ShapeError(
            f"{function} takes tensors with as many axes each, got shapes {first.shape} and {second.shape}"
        )
    for x in (first, second):
        if any(equal(size, 0) is True for size in x.shape):
            raise ShapeError(f"{function} takes tensors with elements, got shape {x.shape}")
    return first, second


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ArgumentError(f"{name} is one of {', '.join(allowed)}; got {value!r}")


def _ordered(first: Tensor, second: Tensor, mode: str, along: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the two with the one first that the other has to fit into; an order that is unknown stays as it is."""
    if mode != "valid":
        return first, second
    gaps: list[Size] = [first.shape[axis] - second.shape[axis] for axis in along]
    if any(isinstance(gap, int) and gap < 0 for gap in gaps):
        if any(isinstance(gap, int) and gap > 0 for gap in gaps):
            raise ShapeError(
                f"for mode 'valid' one tensor has to fit into the other, got {first.shape} and {second.shape}"
            )
        return second, first
    return first, second


def _in_mode(full: Tensor, first: Tensor, second: Tensor, mode: str, along: tuple[int, ...]) -> Tensor:
    """Return the part of a full convolution that a mode means."""
    if mode == "full":
        return full
    start: list[Size] = [0] * full.ndim
    shape = list(full.shape)
    for axis in along:
        size, width = first.shape[axis], second.shape[axis]
        shape[axis] = size if mode == "same" else size - width + 1
        start[axis] = (width - 1) // 2 if mode == "same" else width - 1
    return crop(full, tuple(start), tuple(shape))
