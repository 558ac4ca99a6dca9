"""Convolution over all axes, as sums of products: the whole of it, or what needs no element beyond the edges.

The one idea: the two forms are each other's adjoint up to reversal, so the op is closed under differentiation. It is
bilinear, so each derivative is a convolution with one operand replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, is_concrete
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.batching import Members
from unspool._ops.contraction.contract import contract
from unspool._ops.indexing import getitem
from unspool._ops.layout import padding
from unspool._ops.op import INPUTS, STRUCTURE, Op, register
from unspool._ops.reduction.rows import through_rows
from unspool.errors import SizeContradictionError, UnknownSizeError

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


def _convolve_members(op: Op, members: Members, x1: Tensor, x2: Tensor, *, valid: bool) -> Tensor:
    first, second = members.batched
    if not second or (not first and not valid):
        # One more axis, along which the operand that all share has one element.
        lifted = [x if flag else layout.expand_dims(x, 0) for x, flag in ((x1, first), (x2, second))]
        return convolve_nd(*(lifted if first else lifted[::-1]), valid=valid)
    x1, x2 = members.all((x1, x2))
    sizes: tuple[Any, ...] = x2.shape[1:]
    if not is_concrete((*x1.shape[1:], *sizes)):
        raise UnknownSizeError(f"members convolve tensors of known sizes, got shapes {x1.shape} and {x2.shape}")
    if not valid:
        x1 = padding.pad(x1, [(0, 0), *[(m - 1, m - 1) for m in sizes]])
    # Every element of a result is the product of a window of the first operand with the second one, reversed.
    rank = len(sizes)
    places = []
    for axis, m in enumerate(sizes):
        starts: Any = np.arange(x1.shape[1 + axis] - m + 1)
        positions = starts[:, None] + np.arange(m)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = positions.shape
        places.append(positions.reshape(shape))
    outer, inner = range(1, rank + 1), range(rank + 1, 2 * rank + 1)
    backwards = layout.flip(x2, tuple(range(1, rank + 1)))
    windows = getitem(x1, (slice(None), *places))
    return contract(windows, (0, *outer, *inner), backwards, (0, *inner), (0, *outer))


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
        batch=_convolve_members,
    )
)
