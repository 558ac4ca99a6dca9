"""Sums over axes, the reduction that all others' derivatives are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core, _graph
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.late import ops
from unspool._ops.leaf import as_tensor
from unspool._ops.op import FOR_ITS_OWN, STRUCTURE, Op, register
from unspool._ops.reduction.axes import Axis, accumulated, reduced_shape, selection, spread

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


SUM = register(
    Op(
        "sum",
        infer=lambda x, *, axis, keepdims: (reduced_shape(x.shape, axis, keepdims), x.dtype),
        kernel=lambda x, *, axis, keepdims: np.add.reduce(x, axis=axis, keepdims=keepdims),
        vjp=(lambda ct, out, x, *, axis, keepdims: spread(ct, x, axis),),
        jvp=(lambda t, out, x, *, axis, keepdims: sum(t, axis=axis, keepdims=keepdims),),
        params={"axis": STRUCTURE, "keepdims": STRUCTURE},
        canonical=lambda x, *, axis, keepdims: None if axis else x,
        canonical_for=FOR_ITS_OWN,
        fresh=True,
    )
)


def sum(
    x: Any,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    initial: Any = None,
    where: Any = None,
) -> Tensor:
    """Sum over axes (all by default). Sums of bools and small integers are int64, as in NumPy.

    Parameters
    ----------
    x : array_like
        What to sum.
    axis : int or tuple of int, optional
        The axes to sum over; all by default.
    dtype : dtype_like, optional
        Convert to this data type before summing.
    keepdims : bool
        Keep the summed axes, with size 1.
    initial : array_like, optional
        What to start from; it is added to the sum.
    where : array_like of bool, optional
        Leave out elements where this is false: neither their values nor their derivatives count.

    Examples
    --------
    >>> import unspool as us
    >>> us.sum([[1.0, 2.0], [3.0, 4.0]], axis=0).eval()
    array([4., 6.])
    >>> us.sum([1.0, 2.0, 4.0], where=[True, False, True]).eval()
    array(5.)
    """
    if dtype is None and initial is None and where is None:
        plain = _core.reduce(SUM, x, axis, keepdims)
        if plain is not None:
            return plain
    if not isinstance(x, Node):
        x = as_tensor(x)
    x, result = accumulated(x, dtype)
    keep = None if where is None else selection(where, x)
    if keep is not None:
        x = elementwise.mask(x, keep)
    total = _graph.apply(SUM, x, axis=layout.normalize_axes(axis, len(x.shape)), keepdims=bool(keepdims))
    if result is not x.dtype:
        total = elementwise.astype(total, result)
    return total if initial is None else elementwise.add(total, initial)


def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Count the elements that are not zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.count_nonzero([[0.0, 2.0], [3.0, 4.0]], axis=0).eval()
    array([1, 2])
    """
    return sum(elementwise.not_equal(x, 0), axis=axis, keepdims=keepdims)


ops.provide(sum=sum)
