"""Running sums and products along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dtypes import DType
from unspool._ops import elementwise, layout
from unspool._ops.late import ops
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool._ops.reduction.axes import accumulated
from unspool._ops.reduction.recurrence import recurrence, shift, through_scan
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


# --- running sums ----------------------------------------------------------------------------------------------------


def _sum_from_the_end(x: Tensor, axis: int) -> Tensor:
    return layout.flip(cumsum(layout.flip(x, axis=axis), axis=axis), axis=axis)


CUMSUM = register(
    Op(
        "cumsum",
        infer=lambda x, *, axis: (x.shape, x.dtype),
        kernel=lambda x, *, axis: np.add.accumulate(x, axis=axis),
        vjp=(
            lambda ct, out, x, *, axis: through_scan(
                ct, axis, backwards=True, function=lambda inner: _sum_from_the_end(inner, axis)
            ),
        ),
        jvp=(lambda t, out, x, *, axis: cumsum(t, axis=axis),),
        params={"axis": STRUCTURE},
        fresh=True,
    )
)


def cumsum(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return running sums along an axis; without an axis, over all elements in row-major order.

    Examples
    --------
    >>> import unspool as us
    >>> us.cumsum([1.0, 2.0, 3.0]).eval()
    array([1., 3., 6.])
    """
    x, along, result = _prepare(x, axis, dtype)
    sums = _graph.apply(CUMSUM, x, axis=along)
    return sums if result is x.dtype else elementwise.astype(sums, result)


# --- running products ------------------------------------------------------------------------------------------------


def _cumprod_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: int) -> Tensor:
    # Factor j is in all products from j on: what stands before it, times a sum that grows from the end.
    before = elementwise.conj(shift(out, axis=axis, fill=1))
    factors = elementwise.conj(x)
    gathered = through_scan(
        ct, axis, backwards=True, function=lambda inner: recurrence(factors, inner, axis=axis, adjoint=True)
    )
    return elementwise.scale(gathered, before)


def _cumprod_jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: int) -> Tensor:
    return recurrence(x, elementwise.multiply(t, shift(out, axis=axis, fill=1)), axis=axis)


CUMPROD = register(
    Op(
        "cumprod",
        infer=lambda x, *, axis: (x.shape, x.dtype),
        kernel=lambda x, *, axis: np.multiply.accumulate(x, axis=axis),
        vjp=(_cumprod_vjp,),
        jvp=(_cumprod_jvp,),
        params={"axis": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        fresh=True,
    )
)


def cumprod(x: Any, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """Return running products along an axis; without an axis, over all elements in row-major order.

    Derivatives are right where factors are zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.cumprod([1.0, 2.0, 3.0]).eval()
    array([1., 2., 6.])
    """
    x, along, result = _prepare(x, axis, dtype)
    products = _graph.apply(CUMPROD, x, axis=along)
    return products if result is x.dtype else elementwise.astype(products, result)


# --- the array API's names -------------------------------------------------------------------------------------------


def cumulative_sum(
    x: Any, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Return running sums along an axis, optionally with the sum of no elements in front.

    The axis can be left out if there is only one.

    Examples
    --------
    >>> import unspool as us
    >>> us.cumulative_sum([1.0, 2.0, 3.0], include_initial=True).eval()
    array([0., 1., 3., 6.])
    """
    x = as_tensor(x)
    along = _only_axis(x, axis, "cumulative_sum")
    return _with_initial(cumsum(x, along, dtype), along, 0, include_initial)


def cumulative_prod(
    x: Any, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Return running products along an axis, optionally with the product of no elements in front.

    The axis can be left out if there is only one.

    Examples
    --------
    >>> import unspool as us
    >>> us.cumulative_prod([1.0, 2.0, 3.0], include_initial=True).eval()
    array([1., 1., 2., 6.])
    """
    x = as_tensor(x)
    along = _only_axis(x, axis, "cumulative_prod")
    return _with_initial(cumprod(x, along, dtype), along, 1, include_initial)


def _prepare(x: Any, axis: int | None, dtype: DTypeLike | None) -> tuple[Tensor, int, DType]:
    """Return the operand as it is accumulated, flat if there is no axis, the axis, and the data type of the result."""
    x, result = accumulated(as_tensor(x), dtype)
    if axis is None:
        return layout.reshape(x, (x.size,)), 0, result
    return x, layout.normalize_axis(axis, x.ndim), result


def _only_axis(x: Tensor, axis: int | None, function: str) -> int:
    if axis is not None:
        return layout.normalize_axis(axis, x.ndim)
    if x.ndim != 1:
        raise ShapeError(f"{function} of a tensor of shape {x.shape} needs an axis")
    return 0


def _with_initial(x: Tensor, axis: int, initial: int, include: bool) -> Tensor:
    if not include:
        return x
    shape = tuple(1 if position == axis else size for position, size in enumerate(x.shape))
    front = layout.broadcast_to(constant(initial, x.dtype), shape)
    return layout.concat([front, x], axis=axis)


ops.provide(cumsum=cumsum)
