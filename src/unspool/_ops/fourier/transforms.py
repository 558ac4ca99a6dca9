"""Discrete Fourier transforms along one axis: complex to complex, real to half a spectrum, and half a spectrum to real.

The one idea: a transform is unitary up to its scale, so its adjoint is the transform back with the scale of this one,
which is the other name that NumPy has for scales (``"backward"`` and ``"forward"`` change places). Half a spectrum
stands for a whole one whose other half is its conjugate: what lies strictly between the ends counts twice, and that
weight is an op of its own (`weigh`). Transforms along several axes are one after the other, as NumPy computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, Size
from unspool._dtypes import COMPLEX, DType, complex_dtype, real_dtype
from unspool._graph import Node
from unspool._ops import elementwise, layout, reduction
from unspool._ops.batching import Members
from unspool._ops.layout.reshaping import replaced
from unspool._ops.leaf import constant
from unspool._ops.op import INPUTS, OUTPUT, SIZE, STRUCTURE, Op, register
from unspool._ops.reduction.rows import through_rows

if TYPE_CHECKING:
    from unspool._tensor import Tensor

BACKWARD, ORTHO, FORWARD = "backward", "ortho", "forward"
# The norm of the transform in the other direction that has the same scale.
SAME_SCALE = {BACKWARD: FORWARD, ORTHO: ORTHO, FORWARD: BACKWARD}


def _along(ct: Tensor, axis: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Transform a cotangent; a line is absent if all its elements are."""
    return through_rows(ct, (axis,), function)


# --- complex to complex ----------------------------------------------------------------------------------------------


def transform(x: Tensor, axis: int, norm: str, *, inverse: bool = False) -> Tensor:
    """Return the complex transform of real or complex numbers along an axis."""
    return _graph.apply(FFT, x, axis=axis, norm=norm, inverse=inverse)


def _fft_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: int, norm: str, inverse: bool) -> Tensor:
    back = _along(ct, axis, lambda inner: transform(inner, axis, SAME_SCALE[norm], inverse=not inverse))
    return back if x.dtype in COMPLEX else elementwise.through_mask(back, elementwise.real)


FFT = register(
    Op(
        "fft",
        infer=lambda x, *, axis, norm, inverse: (x.shape, complex_dtype(x.dtype)),
        kernel=lambda x, *, axis, norm, inverse: (np.fft.ifft if inverse else np.fft.fft)(x, axis=axis, norm=norm),
        vjp=(_fft_vjp,),
        jvp=(lambda t, out, x, *, axis, norm, inverse: transform(t, axis, norm, inverse=inverse),),
        params={"axis": STRUCTURE, "norm": STRUCTURE, "inverse": STRUCTURE},
        fresh=True,
    )
)


# --- real to half a spectrum and back --------------------------------------------------------------------------------


def half_spectrum(x: Tensor, axis: int, norm: str) -> Tensor:
    """Return the terms of non-negative frequency of the transform of real numbers."""
    return _graph.apply(RFFT, x, axis=axis, norm=norm)


def from_half_spectrum(x: Tensor, axis: int, n: Size, norm: str) -> Tensor:
    """Return the n real numbers whose transform begins with these n//2 + 1 terms.

    The imaginary part of what has no conjugate counterpart, at frequency 0 and at the highest one of an even n, is not
    looked at.
    """
    return _graph.apply(IRFFT, x, axis=axis, n=n, norm=norm)


def weigh(x: Tensor, axis: int, n: Size, weight: float) -> Tensor:
    """Multiply the terms of half a spectrum that stand for two terms of the whole one by a weight."""
    return _graph.apply(WEIGH, x, axis=axis, n=n, weight=weight)


def _rfft_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: int, norm: str) -> Tensor:
    n = x.shape[axis]
    # The inverse counts twice what the half spectrum has once.
    return _along(ct, axis, lambda inner: from_half_spectrum(weigh(inner, axis, n, 0.5), axis, n, SAME_SCALE[norm]))


RFFT = register(
    Op(
        "rfft",
        infer=lambda x, *, axis, norm: (
            replaced(x.shape, axis, x.shape[axis] // 2 + 1),
            complex_dtype(x.dtype),
        ),
        kernel=lambda x, *, axis, norm: np.fft.rfft(x, axis=axis, norm=norm),
        vjp=(_rfft_vjp,),
        jvp=(lambda t, out, x, *, axis, norm: half_spectrum(t, axis, norm),),
        params={"axis": STRUCTURE, "norm": STRUCTURE},
        fresh=True,
    )
)


def _irfft_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: int, n: Size, norm: str) -> Tensor:
    return _along(ct, axis, lambda inner: weigh(half_spectrum(inner, axis, SAME_SCALE[norm]), axis, n, 2.0))


IRFFT = register(
    Op(
        "irfft",
        infer=lambda x, *, axis, n, norm: (replaced(x.shape, axis, n), real_dtype(x.dtype)),
        kernel=lambda x, *, axis, n, norm: np.fft.irfft(x, n, axis=axis, norm=norm),
        vjp=(_irfft_vjp,),
        jvp=(lambda t, out, x, *, axis, n, norm: from_half_spectrum(t, axis, n, norm),),
        params={"axis": STRUCTURE, "n": SIZE, "norm": STRUCTURE},
        fresh=True,
    )
)


def _weigh_kernel(x: Any, *, axis: int, n: int, weight: float) -> Any:
    weights = np.full(x.shape[axis], weight, real_dtype(x.dtype))
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return x * weights.reshape([-1 if position == axis else 1 for position in range(x.ndim)])


def _weigh_rule(ct: Tensor, out: Tensor, x: Tensor, *, axis: int, n: Size, weight: float) -> Tensor:
    return elementwise.through_mask(ct, lambda inner: weigh(inner, axis, n, weight))


WEIGH = register(
    Op(
        "weigh_half_spectrum",
        infer=lambda x, *, axis, n, weight: (x.shape, x.dtype),
        kernel=_weigh_kernel,
        vjp=(_weigh_rule,),
        jvp=(_weigh_rule,),
        params={"axis": STRUCTURE, "n": SIZE, "weight": STRUCTURE},
        cheap=True,
        fresh=True,
    )
)


# --- frequencies -----------------------------------------------------------------------------------------------------


def frequencies(d: Tensor, n: Size, *, half: bool) -> Tensor:
    """Return the frequencies that the terms of a transform of n numbers at distance d belong to."""
    return _graph.apply(FREQUENCIES, d, n=n, half=half)


def _infer_frequencies(d: Node, *, n: Size, half: bool) -> tuple[Shape, DType]:
    return (n // 2 + 1 if half else n,), d.dtype


def _frequencies_kernel(d: Any, *, n: int, half: bool) -> Any:
    made = np.fft.rfftfreq if half else np.fft.fftfreq
    return np.asarray(made(n, float(d)), d.dtype)


def _frequencies_jvp(t: Tensor, out: Tensor, d: Tensor, *, n: Size, half: bool) -> Tensor:
    return elementwise.negative(elementwise.divide(elementwise.multiply(t, out), d))


def _frequencies_vjp(ct: Tensor, out: Tensor, d: Tensor, *, n: Size, half: bool) -> Tensor:
    return elementwise.negative(elementwise.divide(reduction.sum(elementwise.multiply(ct, out)), d))


def _frequencies_of_members(op: Op, members: Members, d: Tensor, *, n: Size, half: bool) -> Tensor:
    unit = _graph.apply(op, constant(1, d.dtype), n=n, half=half)
    return elementwise.divide(unit, layout.reshape(d, (members.count, 1)))


FREQUENCIES = register(
    Op(
        "fft_frequencies",
        infer=_infer_frequencies,
        kernel=_frequencies_kernel,
        vjp=(_frequencies_vjp,),
        jvp=(_frequencies_jvp,),
        params={"n": SIZE, "half": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        fresh=True,
        batch=_frequencies_of_members,
    )
)
