"""Convolution over all axes, as sums of products: the whole of it, or what needs no element beyond the edges.

The one idea: the two forms are each other's adjoint up to reversal, so the op is closed under differentiation. It is
bilinear, so each derivative is a convolution with one operand replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.op import INPUTS, STRUCTURE, Op, register
from unspool._ops.reduction.rows import through_rows
from unspool.errors import SizeContradictionError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def convolve_nd(x1: Tensor, x2: Tensor, *, valid: bool) -> Tensor:
    """Return the convolution of two tensors with as many axes; if ``valid``, the second fits into the first."""
    return _graph.apply(CONVOLVE_ND, x1, x2, valid=valid)


def reversed_conjugate(x: Tensor) -> Tensor:
    """Return the conjugate with all axes reversed: convolving with it is correlating."""
    return elementwise.conj(layout.flip(x))


def _infer(x1: Node, x2: Node, *, valid: bool) -> tuple[Shape, Any]:
    sign = -1 if valid else 1
    return tuple(n + sign * (m - 1) for n, m in zip(x1.shape, x2.shape, strict=True)), promote(x1.dtype, x2.dtype)


def _kernel(x1: Any, x2: Any, *, valid: bool) -> Any:
    if valid and any(m > n for n, m in zip(x1.shape, x2.shape, strict=True)):
        raise SizeContradictionError(f"a tensor of shape {x2.shape} does not fit into one of shape {x1.shape}")
    if x1.ndim == 1:
        return np.convolve(x1, x2, "valid" if valid else "full")
    return (_valid if valid else _full)(x1, x2)


def _full(x1: Any, x2: Any) -> Any:
    # One sweep over the larger tensor for each element of the smaller.
    large, small = (x1, x2) if x1.size >= x2.size else (x2, x1)
    result = np.zeros([n + m - 1 for n, m in zip(x1.shape, x2.shape, strict=True)], np.result_type(x1, x2))
    for index in np.ndindex(small.shape):
        result[tuple(slice(i, i + n) for i, n in zip(index, large.shape, strict=True))] += small[index] * large
    return result


def _valid(x1: Any, x2: Any) -> Any:
    sizes = [n - m + 1 for n, m in zip(x1.shape, x2.shape, strict=True)]
    result = np.zeros(sizes, np.result_type(x1, x2))
    backwards = np.flip(x2)
    for index in np.ndindex(x2.shape):
        result += backwards[index] * x1[tuple(slice(i, i + n) for i, n in zip(index, sizes, strict=True))]
    return result


def _vjp_first(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor, *, valid: bool) -> Tensor:
    other = reversed_conjugate(x2)
    return through_rows(ct, tuple(range(x1.ndim)), lambda inner: convolve_nd(inner, other, valid=not valid))


def _vjp_second(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor, *, valid: bool) -> Tensor:
    def function(inner: Tensor) -> Tensor:
        if not valid:
            return convolve_nd(inner, reversed_conjugate(x1), valid=True)
        return layout.flip(convolve_nd(elementwise.conj(x1), layout.flip(inner), valid=True))

    return through_rows(ct, tuple(range(x1.ndim)), function)


CONVOLVE_ND = register(
    Op(
        "convolve_nd",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp_first, _vjp_second),
        jvp=(
            lambda t, out, x1, x2, *, valid: convolve_nd(t, x2, valid=valid),
            lambda t, out, x1, x2, *, valid: convolve_nd(x1, t, valid=valid),
        ),
        params={"valid": STRUCTURE},
        needs=(INPUTS,),
        fresh=True,
    )
)
