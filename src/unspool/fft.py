"""Discrete Fourier transforms, under the names of ``numpy.fft`` and of the array API's extension.

Every transform has derivatives of every order in both modes, by its own adjoint. Sizes may be symbolic. Single
precision stays single.

Examples
--------
>>> import numpy as np
>>> import unspool as us
>>> x = us.tensor([1.0, 0.0, 0.0, 0.0])
>>> us.fft.rfft(x).eval()
array([1.+0.j, 1.+0.j, 1.+0.j])
>>> power = us.sum(us.abs(us.fft.fft(x)) ** 2)
>>> np.round(power.grad(x).eval(), 12)  # by Parseval's theorem, the derivative of 4 * sum(x ** 2)
array([8., 0., 0., 0.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from unspool._dims import Size, equal
from unspool._dtypes import COMPLEX, REAL, as_dtype, complex_dtype, inexact_dtype
from unspool._ops import elementwise, layout
from unspool._ops.fourier import cosine, transforms
from unspool._ops.fourier.arguments import Sizes, operand, positive, resized, scale_of, sizes_and_axes
from unspool._ops.layout.cropping import crop_axis
from unspool._ops.layout.reshaping import Axis, normalize_axes
from unspool._ops.leaf import as_tensor
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = [
    "dct",
    "dctn",
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "idct",
    "idctn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]


def __dir__() -> list[str]:
    return sorted(__all__)


# --- along one axis --------------------------------------------------------------------------------------------------


def fft(x: Any, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Transform along one axis: ``sum(x[j] * exp(-2j * pi * j * k / n))`` for each k.

    Parameters
    ----------
    x : array_like
        Real or complex numbers.
    n : int or Dim, optional
        How many numbers to transform: the axis is cut, or padded with zeros. By default all.
    axis : int
        Along which axis.
    norm : {"backward", "ortho", "forward"}, optional
        Which direction is divided by n: the inverse, which is the default, or this one. ``"ortho"`` divides both by
        the root of n.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.fft([1.0, 0.0, 0.0]).eval()
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _complex(x, n, axis, norm, inverse=False)


def ifft(x: Any, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Undo `fft`, with the same arguments.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.ifft([3.0, 0.0, 0.0]).eval()
    array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _complex(x, n, axis, norm, inverse=True)


def rfft(x: Any, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Transform real numbers along one axis: the first n//2 + 1 terms of `fft`, which determine the others.

    Parameters
    ----------
    x : array_like
        Real numbers.
    n, axis, norm
        As in `fft`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.rfft([1.0, 2.0, 3.0, 2.0]).eval()
    array([ 8.+0.j, -2.+0.j,  0.+0.j])
    """
    x, along = operand(x, axis)
    if x.dtype in COMPLEX:
        raise DTypeError(f"rfft takes real numbers, got {x.dtype}; fft takes complex ones")
    return transforms.half_spectrum(resized(x, along, n), along, scale_of(norm))


def irfft(x: Any, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Undo `rfft`: the n real numbers whose transform begins with these terms.

    Parameters
    ----------
    x : array_like
        The terms of non-negative frequency. The imaginary part of the first is not looked at, and neither is that of
        the last if n is even.
    n : int or Dim, optional
        How many numbers there were, by default ``2 * (m - 1)`` for m terms. An odd n has to be given.
    axis, norm
        As in `fft`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.irfft([8.0, -2.0, 0.0]).eval()
    array([1., 2., 3., 2.])
    """
    x, along = operand(x, axis)
    size = 2 * (x.shape[along] - 1) if n is None else positive(n)
    if equal(size, 0) is True:
        raise ShapeError("one term stands for no numbers or for one; irfft(x, n=1) says that one is meant")
    x = elementwise.astype(x, complex_dtype(x.dtype))
    return transforms.from_half_spectrum(resized(x, along, size // 2 + 1), along, size, scale_of(norm))


def hfft(x: Any, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Transform numbers whose other half is their conjugate, and of which the first half is given; the result is real.

    Parameters
    ----------
    x : array_like
        The first half, with both ends.
    n : int or Dim, optional
        How many numbers there are, by default ``2 * (m - 1)`` for m given ones.
    axis, norm
        As in `fft`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.hfft([1.0, 2.0, 3.0]).eval()
    array([ 8., -2.,  0., -2.])
    """
    return irfft(elementwise.conj(x), n, axis, transforms.SAME_SCALE[scale_of(norm)])


def ihfft(x: Any, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Undo `hfft`, with the arguments of `rfft`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.ihfft([8.0, -2.0, 0.0, -2.0]).eval()
    array([1.-0.j, 2.-0.j, 3.-0.j])
    """
    return elementwise.conj(rfft(x, n, axis, transforms.SAME_SCALE[scale_of(norm)]))


# --- along several axes ----------------------------------------------------------------------------------------------


def fftn(x: Any, s: Sizes = None, axes: Axis = None, norm: str | None = None) -> Tensor:
    """Transform along several axes.

    Parameters
    ----------
    x : array_like
        Real or complex numbers.
    s : sequence of int or Dim, optional
        How many numbers to transform along each axis, -1 for all there are. By default all.
    axes : sequence of int, optional
        Along which axes: by default the last ``len(s)``, or all. One that is named twice is transformed twice.
    norm : {"backward", "ortho", "forward"}, optional
        As in `fft`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.fftn([[1.0, 0.0], [0.0, 0.0]]).eval()
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    return _each(fft, x, s, axes, norm)


def ifftn(x: Any, s: Sizes = None, axes: Axis = None, norm: str | None = None) -> Tensor:
    """Undo `fftn`, with the same arguments.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.ifftn([[4.0, 0.0], [0.0, 0.0]]).eval()
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    return _each(ifft, x, s, axes, norm)


def rfftn(x: Any, s: Sizes = None, axes: Axis = None, norm: str | None = None) -> Tensor:
    """Transform real numbers along several axes; the last of these has only the terms of non-negative frequency.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.rfftn([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]).eval()
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    x = as_tensor(x)
    sizes, along = sizes_and_axes(x, s, axes, "rfftn")
    return _each(fft, rfft(x, sizes[-1], along[-1], norm), sizes[:-1], along[:-1], norm)


def irfftn(x: Any, s: Sizes = None, axes: Axis = None, norm: str | None = None) -> Tensor:
    """Undo `rfftn`; if the last size was odd, it has to be given.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.irfftn([[6.0, 0.0], [0.0, 0.0]], (2, 3)).eval()
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    x = as_tensor(x)
    sizes, along = sizes_and_axes(x, s, axes, "irfftn")
    return irfft(_each(ifft, x, sizes[:-1], along[:-1], norm), sizes[-1], along[-1], norm)


def fft2(x: Any, s: Sizes = None, axes: Axis = (-2, -1), norm: str | None = None) -> Tensor:
    """Transform along two axes, by default the last; see `fftn`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.fft2([[1.0, 0.0], [0.0, 0.0]]).eval()
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    return fftn(x, s, axes, norm)


def ifft2(x: Any, s: Sizes = None, axes: Axis = (-2, -1), norm: str | None = None) -> Tensor:
    """Undo `fft2`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.ifft2([[4.0, 0.0], [0.0, 0.0]]).eval()
    array([[1.+0.j, 1.+0.j],
           [1.+0.j, 1.+0.j]])
    """
    return ifftn(x, s, axes, norm)


def rfft2(x: Any, s: Sizes = None, axes: Axis = (-2, -1), norm: str | None = None) -> Tensor:
    """Transform real numbers along two axes, by default the last; see `rfftn`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.rfft2([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]).shape
    (2, 2)
    """
    return rfftn(x, s, axes, norm)


def irfft2(x: Any, s: Sizes = None, axes: Axis = (-2, -1), norm: str | None = None) -> Tensor:
    """Undo `rfft2`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.irfft2([[4.0, 0.0], [0.0, 0.0]]).eval()
    array([[1., 1.],
           [1., 1.]])
    """
    return irfftn(x, s, axes, norm)


# --- frequencies -----------------------------------------------------------------------------------------------------


def fftfreq(n: Size, d: Any = 1.0, *, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """Return the frequencies that the terms of `fft` belong to.

    Parameters
    ----------
    n : int or Dim
        How many numbers are transformed.
    d : array_like
        The distance of two samples. The result is differentiable in it.
    dtype : dtype_like, optional
        A floating-point data type, by default that of ``d``.
    device : {"cpu"}, optional

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.fftfreq(4, 0.5).eval()
    array([ 0. ,  0.5, -1. , -0.5])
    """
    return _frequencies(n, d, dtype, device, half=False)


def rfftfreq(n: Size, d: Any = 1.0, *, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """Return the frequencies that the terms of `rfft` belong to, with the arguments of `fftfreq`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.rfftfreq(4, 0.5).eval()
    array([0. , 0.5, 1. ])
    """
    return _frequencies(n, d, dtype, device, half=True)


def fftshift(x: Any, axes: Axis = None) -> Tensor:
    """Move the term of frequency 0 to the middle, along axes (all by default).

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.fftshift(us.fft.fftfreq(4)).eval()
    array([-0.5 , -0.25,  0.  ,  0.25])
    """
    return _rotated(x, axes, lambda size: size // 2)


def ifftshift(x: Any, axes: Axis = None) -> Tensor:
    """Undo `fftshift`.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.ifftshift([-1, 0, 1]).eval()
    array([ 0,  1, -1])
    """
    return _rotated(x, axes, lambda size: size - size // 2)


# --- what these are made of -------------------------------------------------------------------------------------------


def dct(x: Any, type: int = 2, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Transform along one axis by cosines, as ``scipy.fft.dct`` does.

    Parameters
    ----------
    x : array_like
        Real or complex numbers.
    type : {1, 2, 3, 4}
        Where the numbers are mirrored. The default, 2, is ``2 * sum(x[j] * cos(pi * k * (2 * j + 1) / (2 * n)))``.
    n, axis
        As in `fft`.
    norm : {"backward", "ortho", "forward"}, optional
        As in `fft`; with ``"ortho"`` the transform is orthogonal.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.dct([1.0, 1.0], norm="ortho").eval().round(6)
    array([1.414214, 0.      ])
    """
    return cosine.cosine_transform(x, type, n, axis, norm, inverse=False)


def idct(x: Any, type: int = 2, n: Size | None = None, axis: int = -1, norm: str | None = None) -> Tensor:
    """Undo `dct`, with the same arguments.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.idct(us.fft.dct([1.0, 2.0, 4.0])).eval().round(12)
    array([1., 2., 4.])
    """
    return cosine.cosine_transform(x, type, n, axis, norm, inverse=True)


def dctn(x: Any, type: int = 2, s: Sizes = None, axes: Axis = None, norm: str | None = None) -> Tensor:
    """Transform along several axes by cosines, all of them by default; `dct` has the other arguments.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.dctn([[1.0, 1.0], [1.0, 1.0]], norm="ortho").eval().round(12)
    array([[2., 0.],
           [0., 0.]])
    """
    return _each(lambda x, n, axis, norm: dct(x, type, n, axis, norm), x, s, axes, norm)


def idctn(x: Any, type: int = 2, s: Sizes = None, axes: Axis = None, norm: str | None = None) -> Tensor:
    """Undo `dctn`, with the same arguments.

    Examples
    --------
    >>> import unspool as us
    >>> us.fft.idctn(us.fft.dctn([[1.0, 2.0], [3.0, 5.0]])).eval().round(12)
    array([[1., 2.],
           [3., 5.]])
    """
    return _each(lambda x, n, axis, norm: idct(x, type, n, axis, norm), x, s, axes, norm)


def _complex(x: Any, n: Size | None, axis: int, norm: str | None, *, inverse: bool) -> Tensor:
    x, along = operand(x, axis)
    return transforms.transform(resized(x, along, n), along, scale_of(norm), inverse=inverse)


def _each(function: Callable[..., Tensor], x: Any, s: Any, axes: Any, norm: str | None) -> Tensor:
    """Apply a transform of one axis to several, the last first."""
    result = as_tensor(x)
    scale_of(norm)
    for n, axis in reversed(list(zip(*sizes_and_axes(result, s, axes, "fftn"), strict=True))):
        result = function(result, n, axis, norm)
    return result


def _frequencies(n: Size, d: Any, dtype: DTypeLike | None, device: Any, *, half: bool) -> Tensor:
    if device not in (None, "cpu"):
        raise ArgumentError(f"tensors are on the device 'cpu', got device={device!r}")
    spacing = as_tensor(d)
    wanted = inexact_dtype(spacing.dtype) if dtype is None else as_dtype(dtype)
    if wanted not in REAL or spacing.shape:
        raise DTypeError(f"frequencies are real numbers over one spacing, got d of shape {spacing.shape} and {wanted}")
    return transforms.frequencies(elementwise.astype(spacing, wanted), positive(n), half=half)


def _rotated(x: Any, axes: Axis, shift: Callable[[Size], Size]) -> Tensor:
    result = as_tensor(x)
    for axis in normalize_axes(axes, result.ndim):
        size = result.shape[axis]
        moved = shift(size)
        if isinstance(moved, int):
            result = layout.roll(result, moved, axis)
        else:
            ends = crop_axis(result, axis, size - moved, moved), crop_axis(result, axis, 0, size - moved)
            result = layout.concat(ends, axis=axis)
    return result
