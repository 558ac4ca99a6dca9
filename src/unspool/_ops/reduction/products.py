"""Products over axes, with derivatives that never divide.

The derivative of a product with respect to one factor is the product of all the others. Dividing the product by the
factor gives that only where the factor is not 0, so the others are multiplied up from both ends instead: what stands
before it, from a running product, times what stands after it, from another. Both can be differentiated again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._ops import elementwise, layout
from unspool._ops.leaf import as_tensor
from unspool._ops.op import FOR_ITS_OWN, INPUTS, STRUCTURE, Op, register
from unspool._ops.reduction.axes import Axis, accumulated, reduced_shape, reduced_size, selection, spread
from unspool._ops.reduction.recurrence import shift
from unspool._ops.reduction.scan import cumprod
from unspool._ops.reduction.sums import sum

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


def _product_of_others(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return, for each element, the product over the given axes of all elements but that one."""
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    moved = layout.permute_dims(x, kept + axes)
    last = len(kept)
    row = layout.reshape(moved, (*moved.shape[:last], reduced_size(x.shape, axes)))
    before = shift(cumprod(row, axis=last), axis=last, fill=1)
    backwards = layout.flip(row, axis=last)
    after = layout.flip(shift(cumprod(backwards, axis=last), axis=last, fill=1), axis=last)
    others = layout.reshape(elementwise.multiply(before, after), moved.shape)
    return layout.permute_dims(others, tuple(int(i) for i in np.argsort(kept + axes)))


def _prod_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    return elementwise.scale(spread(ct, x, axis), elementwise.conj(_product_of_others(x, axis)))


def _prod_jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    return sum(elementwise.multiply(t, _product_of_others(x, axis)), axis=axis, keepdims=keepdims)


PROD = register(
    Op(
        "prod",
        infer=lambda x, *, axis, keepdims: (reduced_shape(x.shape, axis, keepdims), x.dtype),
        kernel=lambda x, *, axis, keepdims: np.multiply.reduce(x, axis=axis, keepdims=keepdims),
        vjp=(_prod_vjp,),
        jvp=(_prod_jvp,),
        params={"axis": STRUCTURE, "keepdims": STRUCTURE},
        needs=(INPUTS,),
        canonical=lambda x, *, axis, keepdims: None if axis else x,
        canonical_for=FOR_ITS_OWN,
        fresh=True,
    )
)


def prod(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
) -> Tensor:
    """Multiply over axes (all by default). Derivatives are right where factors are zero.

    Parameters
    ----------
    x : array_like
        What to multiply.
    axis : int or tuple of int, optional
        The axes to multiply over; all by default.
    dtype : dtype_like, optional
        Convert to this data type before multiplying.
    keepdims : bool
        Keep the reduced axes, with size 1.
    initial : array_like, optional
        What to start from; the product is multiplied by it.
    where : array_like of bool, optional
        Leave out elements where this is false.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([0.0, 2.0, 3.0])
    >>> us.prod(x).eval()
    array(0.)
    >>> us.prod(x).grad(x).eval()
    array([6., 0., 0.])
    """
    x, result = accumulated(as_tensor(x), dtype)
    keep = selection(where, x)
    if keep is not None:
        x = elementwise.where(keep, x, 1)
    total = _graph.apply(PROD, x, axis=layout.normalize_axes(axis, x.ndim), keepdims=bool(keepdims))
    if result is not x.dtype:
        total = elementwise.astype(total, result)
    return total if initial is None else elementwise.multiply(total, initial)
