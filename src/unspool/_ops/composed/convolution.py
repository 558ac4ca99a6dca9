"""Convolution and correlation of two sequences, as ``numpy`` has them: parts of the full convolution.

`unspool.signal` has convolutions over all axes, under SciPy's names and with its choice of the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._dims import Size, equal, maximum, minimum
from unspool._ops.checks import one_of
from unspool._ops.filtering import convolve_nd, reversed_conjugate
from unspool._ops.layout import crop_axis
from unspool._ops.leaf import as_operands
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

MODES = ("full", "same", "valid")


def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Convolve two sequences: element k is the sum of ``a[j] * v[k - j]`` over all j.

    Parameters
    ----------
    a, v : array_like
        Sequences with at least one element, real or complex.
    mode : {"full", "same", "valid"}
        Whether to return all elements, as many as the longer sequence has from the middle of these, or those for which
        the sequences overlap completely.

    Examples
    --------
    >>> import unspool as us
    >>> us.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5]).eval()
    array([0. , 1. , 2.5, 4. , 1.5])
    """
    a, v = _sequences("convolve", a, v)
    return _part(convolve_nd(a, v, valid=False), a.shape[0], v.shape[0], one_of(mode, MODES, "mode"))


def correlate(a: Any, v: Any, mode: str = "valid") -> Tensor:
    """Correlate two sequences: element k is the sum of ``a[j + k] * conj(v[j])`` over all j.

    Parameters
    ----------
    a, v : array_like
        Sequences with at least one element, real or complex.
    mode : {"full", "same", "valid"}
        As for `convolve`.

    Examples
    --------
    >>> import unspool as us
    >>> us.correlate([1.0, 2.0, 3.0], [0.0, 1.0, 0.5], "same").eval()
    array([2. , 3.5, 3. ])
    """
    a, v = _sequences("correlate", a, v)
    full = convolve_nd(a, reversed_conjugate(v), valid=False)
    return _part(full, a.shape[0], v.shape[0], one_of(mode, MODES, "mode"), backwards=True)


def _sequences(name: str, a: Any, v: Any) -> tuple[Tensor, Tensor]:
    first, second = (x if x.ndim else x.reshape(1) for x in as_operands(a, v))
    for x in (first, second):
        if x.ndim != 1:
            raise ShapeError(f"{name} takes sequences, tensors with one axis, got shape {x.shape}")
        if equal(x.shape[0], 0) is True:
            raise ShapeError(f"{name} takes sequences with at least one element, got shape {x.shape}")
    return first, second


def _part(full: Tensor, size: Size, other: Size, mode: str, *, backwards: bool = False) -> Tensor:
    if mode == "full":
        return full
    long, short = maximum(size, other), minimum(size, other)
    if mode == "valid":
        return crop_axis(full, 0, short - 1, long - short + 1)
    # NumPy correlates a short sequence with a longer one the other way round, and turns the result: where the middle
    # of an even number of elements is then lies on the other side.
    start = (short - 1) // 2
    if backwards:
        start = minimum(maximum(other - size, 0), 1) * ((short // 2) - start) + start
    return crop_axis(full, 0, start, long)
