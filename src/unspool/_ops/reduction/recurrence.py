"""The linear recurrence s[j] = b[j] + a[j]·s[j-1] along an axis, which derivatives of running products are made of.

With S the shift by one position and A the diagonal matrix of a, the recurrence solves (1 - A·S) s = b. Its adjoint
solves the transposed system, u[j] = c[j] + a[j+1]·u[j+1], which is the same op with ``adjoint=True``. The two forms are
closed under differentiation, cost one pass each and never divide, so zeros among the factors are nothing special.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import BOOL, INT64, promote
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.late import ops
from unspool._ops.leaf import constant
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- absence along a running reduction -------------------------------------------------------------------------------


def through_scan(ct: Tensor, axis: int, *, backwards: bool, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a linear function in which each result gathers from one side of the axis to a cotangent.

    Result j is made from the elements at j and after it (``backwards``) or at j and before it. It is absent if all of
    these are.
    """
    result = function(ct)
    reached = _reached(ct, axis, backwards=backwards)
    return result if reached is None else elementwise.mask(result, reached)


def _reached(x: Tensor, axis: int, *, backwards: bool) -> Tensor | None:
    """Return where a running reduction has met an element that is not absent; ``None`` if all elements are there."""
    if x.op is not elementwise.MASK:
        return None
    kept = elementwise.astype(layout.broadcast_to(x.inputs[1], x.shape), INT64)
    if backwards:
        met = layout.flip(ops.cumsum(layout.flip(kept, axis=axis), axis=axis), axis=axis)
    else:
        met = ops.cumsum(kept, axis=axis)
    return elementwise.greater(met, 0)


# --- shift -----------------------------------------------------------------------------------------------------------


def _shift_kernel(x: Any, *, axis: int, fill: int, back: bool) -> Any:
    source = np.moveaxis(x, axis, 0)
    result = np.empty_like(source)
    if back:
        result[:-1], result[-1:] = source[1:], fill
    else:
        result[1:], result[:1] = source[:-1], fill
    return np.moveaxis(result, 0, axis)


def _all_but_one(like: Tensor, *, axis: int, back: bool) -> Tensor:
    """Return where a shift takes its result from its operand: everywhere but in the gap."""
    return shift(layout.broadcast_to(constant(True, BOOL), like.shape), axis=axis, fill=0, back=back)


def _shift_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: int, fill: int, back: bool) -> Tensor:
    moved = layout.rearrange(ct, lambda inner: shift(inner, axis=axis, fill=0, back=not back))
    # Nobody asked for the element that was shifted out.
    return elementwise.mask(moved, _all_but_one(x, axis=axis, back=not back))


SHIFT = register(
    Op(
        "shift",
        infer=lambda x, *, axis, fill, back: (x.shape, x.dtype),
        kernel=_shift_kernel,
        vjp=(_shift_vjp,),
        jvp=(lambda t, out, x, *, axis, fill, back: shift(t, axis=axis, fill=0, back=back),),
        params={"axis": STRUCTURE, "fill": STRUCTURE, "back": STRUCTURE},
    )
)


def shift(x: Tensor, *, axis: int, fill: int, back: bool = False) -> Tensor:
    """Move elements by one position towards the end of an axis (``back``: the beginning) and fill the gap."""
    return _graph.apply(SHIFT, x, axis=axis, fill=fill, back=back)


# --- the recurrence --------------------------------------------------------------------------------------------------


def _infer_recurrence(a: Node, b: Node, *, axis: int, adjoint: bool) -> tuple[Shape, Any]:
    return b.shape, promote(a.dtype, b.dtype)


def _recurrence_kernel(a: Any, b: Any, *, axis: int, adjoint: bool) -> Any:
    factors = np.moveaxis(a, axis, 0)
    result = np.moveaxis(np.array(b, dtype=np.result_type(a, b)), axis, 0)
    if adjoint:
        for j in range(len(result) - 2, -1, -1):
            result[j] += factors[j + 1] * result[j + 1]
    else:
        for j in range(1, len(result)):
            result[j] += factors[j] * result[j - 1]
    return np.moveaxis(result, 0, axis)


def _used_factors(a: Tensor, b: Tensor, *, axis: int, adjoint: bool) -> Tensor:
    """Return which factors multiply anything: not the first, nor those at which all that came before was absent."""
    used = _all_but_one(a, axis=axis, back=False)
    started = _reached(b, axis, backwards=adjoint)
    if started is None:
        return used
    return elementwise.logical_and(used, started if adjoint else shift(started, axis=axis, fill=0))


def _vjp_of_factors(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, *, axis: int, adjoint: bool) -> Tensor:
    gathered = _vjp_of_terms(ct, out, a, b, axis=axis, adjoint=adjoint)
    if adjoint:
        moved = layout.rearrange(gathered, lambda inner: shift(inner, axis=axis, fill=0))
        product = elementwise.scale(moved, elementwise.conj(out))
    else:
        product = elementwise.scale(gathered, elementwise.conj(shift(out, axis=axis, fill=0)))
    return elementwise.mask(product, _used_factors(a, b, axis=axis, adjoint=adjoint))


def _vjp_of_terms(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, *, axis: int, adjoint: bool) -> Tensor:
    factors = elementwise.conj(a)
    return through_scan(
        ct,
        axis,
        backwards=not adjoint,
        function=lambda inner: recurrence(factors, inner, axis=axis, adjoint=not adjoint),
    )


def _jvp_of_factors(t: Tensor, out: Tensor, a: Tensor, b: Tensor, *, axis: int, adjoint: bool) -> Tensor:
    moving = elementwise.multiply(t, out if adjoint else shift(out, axis=axis, fill=0))
    moving = elementwise.mask(moving, _used_factors(a, b, axis=axis, adjoint=adjoint))
    if adjoint:
        moving = shift(moving, axis=axis, fill=0, back=True)
    return recurrence(a, moving, axis=axis, adjoint=adjoint)


RECURRENCE = register(
    Op(
        "linear_recurrence",
        infer=_infer_recurrence,
        kernel=_recurrence_kernel,
        vjp=(_vjp_of_factors, _vjp_of_terms),
        jvp=(
            _jvp_of_factors,
            lambda t, out, a, b, *, axis, adjoint: recurrence(a, t, axis=axis, adjoint=adjoint),
        ),
        params={"axis": STRUCTURE, "adjoint": STRUCTURE},
        needs=(INPUTS, OUTPUT),
    )
)


def recurrence(a: Tensor, b: Tensor, *, axis: int, adjoint: bool = False) -> Tensor:
    """Return s with ``s[j] = b[j] + a[j] s[j-1]``, or with ``s[j] = b[j] + a[j+1] s[j+1]`` if ``adjoint``.

    Both operands have the same shape; ``a[0]`` is not used.
    """
    return _graph.apply(RECURRENCE, a, b, axis=axis, adjoint=adjoint)
