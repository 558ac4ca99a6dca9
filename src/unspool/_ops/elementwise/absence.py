"""Elements that were never reached are not zeros.

The cotangent of ``where(x > 0, log(x), 0)`` towards ``log(x)`` at ``x == 0`` is *absent*, not 0: multiplying a 0 by the
derivative 1/x would give NaN. Absence is written into the graph as ``mask(ct, keep)``, and a mask moves outwards
through everything that works element by element (`through_mask`), so that infinities of elements nobody asked for are
discarded instead of being multiplied by 0. A zero that was computed stays an ordinary zero. Tangents work the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._core import record
from unspool._dims import Shape
from unspool._dtypes import FLOAT64
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.broadcasting import broadcast_shapes, sum_to_shape
from unspool._ops.late import ops
from unspool._ops.leaf import constant
from unspool._ops.op import INPUTS, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Of so many elements at once it is worked out which are absent, where a mask is applied in place.
_AT_ONCE = 1 << 12


def mask(x: Tensor, keep: Tensor) -> Tensor:
    """Return ``x`` where ``keep``, and 0 where an element is absent (see the module docstring)."""
    if x.shape != keep.shape and keep.shape:
        # Inside its mask a cotangent has its full shape, so that rules which move elements can move them there.
        x = ops.broadcast_to(x, broadcast_shapes(x.shape, keep.shape))
    return _graph.apply(MASK, x, keep)


def through_mask(ct: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function that works element by element to a cotangent, inside its mask if it has one."""
    if ct.op is not MASK:
        return function(ct)
    inner, keep = ct.inputs
    return mask(function(inner), keep)  # type: ignore[arg-type]


def scale(ct: Tensor, factor: Any) -> Tensor:
    """Multiply a cotangent by a partial derivative, leaving absent elements absent."""
    if ct.op is not MASK:
        if isinstance(factor, Node):  # nearly always; the hot path of every gradient
            return record(ops.MULTIPLY, ct, factor)
        return ops.multiply(ct, factor)
    return through_mask(ct, lambda inner: ops.multiply(inner, factor))


def unscale(ct: Tensor, divisor: Any) -> Tensor:
    """Divide a cotangent by the inverse of a partial derivative, leaving absent elements absent."""
    if ct.op is not MASK:
        return ops.divide(ct, divisor)
    return through_mask(ct, lambda inner: ops.divide(inner, divisor))


def absent(like: Tensor) -> Tensor:
    """Return a cotangent of the same shape and dtype of which no element was reached."""
    return mask(ops.broadcast_to(constant(0, like.dtype), like.shape), constant(False))


def no_slope(ct: Tensor, out: Tensor, *inputs: Tensor, **params: Any) -> Tensor:
    """Be the rule, for cotangents and tangents, of an op that is constant wherever it has a derivative."""
    return absent(ct)


def fold_to_shape(ct: Tensor, shape: Shape) -> Tensor:
    """Undo broadcasting of a cotangent; an element is absent if all that was folded into it is."""
    if ct.shape == shape:
        return ct
    folded = sum_to_shape(ct, shape)
    if ct.op is not MASK:
        return folded
    # A count of the kept elements, since sums of bools are what broadcasting in reverse is made of.
    kept = sum_to_shape(ops.astype(ops.broadcast_to(ct.inputs[1], ct.shape), FLOAT64), shape)
    return mask(folded, ops.greater(kept, 0))


def add_cotangents(left: Tensor, right: Tensor) -> Tensor:
    """Add two cotangents of one node; an element is absent from the sum if it is absent from both."""
    if left.op is MASK and right.op is MASK:
        (x, keep), (y, also) = left.inputs, right.inputs
        if keep is also:
            return mask(ops.add(x, y), keep)  # type: ignore[arg-type]
        return mask(ops.add(left, right), ops.logical_or(keep, also))
    return ops.add(left, right)


def _canonical_mask(x: Tensor, keep: Tensor) -> Tensor | None:
    if x.op is MASK:
        inner, already = x.inputs
        return mask(inner, keep if already is keep else ops.logical_and(already, keep))  # type: ignore[arg-type]
    return None


def _infer_mask(x: Node, keep: Node) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _mask_kernel(x: Any, keep: Any) -> Any:
    return np.where(keep, x, np.zeros((), x.dtype))


def _mask_onto(x: Any, keep: Any) -> Any:
    if keep.shape != x.shape:
        np.copyto(x, 0, where=~keep)
        return x
    kept, flat = keep.reshape(-1), x.reshape(-1)  # views: what is written onto is contiguous
    for first in range(0, flat.size, _AT_ONCE):
        np.copyto(flat[first : first + _AT_ONCE], 0, where=~kept[first : first + _AT_ONCE])
    return x


def _mask_rule(ct: Tensor, out: Tensor, x: Tensor, keep: Tensor) -> Tensor:
    return mask(ct, keep)


MASK = register(
    Op(
        "mask",
        infer=_infer_mask,
        kernel=_mask_kernel,
        vjp=(_mask_rule, None),
        jvp=(_mask_rule, None),
        needs=(INPUTS,),
        canonical=_canonical_mask,
        cheap=True,
        fresh=True,
        onto=_mask_onto,
        batch=batching.like_first,
    )
)
