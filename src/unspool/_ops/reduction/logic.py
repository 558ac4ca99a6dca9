"""Whether any, or all, elements over axes are true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dtypes import BOOL
from unspool._ops import elementwise, layout
from unspool._ops.leaf import as_tensor
from unspool._ops.op import FOR_ITS_OWN, STRUCTURE, Op, register
from unspool._ops.reduction.axes import Axis, reduced_shape, selection

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _truth_op(name: str, kernel: Any) -> Op:
    return register(
        Op(
            name,
            infer=lambda x, *, axis, keepdims: (reduced_shape(x.shape, axis, keepdims), BOOL),
            kernel=lambda x, *, axis, keepdims: kernel(x, axis=axis, keepdims=keepdims),
            params={"axis": STRUCTURE, "keepdims": STRUCTURE},
            canonical=lambda x, *, axis, keepdims: None if axis or x.dtype != BOOL else x,
            canonical_for=FOR_ITS_OWN,
            fresh=True,
        )
    )


ANY = _truth_op("any", np.any)
ALL = _truth_op("all", np.all)


def any(x: Any, axis: Axis = None, keepdims: bool = False, *, where: Any = None) -> Tensor:
    """Whether any element over axes is true (not zero); ``where`` is a mask of the elements to look at.

    Examples
    --------
    >>> import unspool as us
    >>> us.any([[True, False], [False, False]], axis=1).eval()
    array([ True, False])
    """
    x = as_tensor(x)
    keep = selection(where, x)
    if keep is not None:
        x = elementwise.logical_and(x, keep)
    return _graph.apply(ANY, x, axis=layout.normalize_axes(axis, x.ndim), keepdims=bool(keepdims))


def all(x: Any, axis: Axis = None, keepdims: bool = False, *, where: Any = None) -> Tensor:
    """Whether all elements over axes are true (not zero); ``where`` is a mask of the elements to look at.

    Examples
    --------
    >>> import unspool as us
    >>> us.all([[True, False], [True, True]], axis=1).eval()
    array([False,  True])
    """
    x = as_tensor(x)
    keep = selection(where, x)
    if keep is not None:
        x = elementwise.logical_or(x, elementwise.logical_not(keep))
    return _graph.apply(ALL, x, axis=layout.normalize_axes(axis, x.ndim), keepdims=bool(keepdims))


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether all elements are equal within a tolerance; see `isclose`.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.allclose([1.0, 2.0], [1.0, 2.0 + 1e-9]))
    True
    """
    return all(elementwise.isclose(a, b, rtol, atol, equal_nan))
