"""Largest and smallest elements, and where they are.

Derivatives: elements that tie share the cotangent equally, all others are absent from it, so that an infinite slope of
an element that is not the largest spoils nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, product
from unspool._dtypes import BOOL, INT64, REAL, DType
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.op import FOR_ITS_OWN, INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool._ops.reduction.axes import (
    Axis,
    expand_like,
    reduced_shape,
    refuse_complex,
    refuse_empty,
    selection,
    spread,
)
from unspool._ops.reduction.sums import sum
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- max and min -----------------------------------------------------------------------------------------------------


def _least(dtype: DType) -> Any:
    """Return the value below all others of a data type, which no maximum notices."""
    return -np.inf if dtype in REAL else False if dtype == BOOL else np.iinfo(dtype).min


def _greatest(dtype: DType) -> Any:
    """Return the value above all others of a data type, which no minimum notices."""
    return np.inf if dtype in REAL else True if dtype == BOOL else np.iinfo(dtype).max


def _extremum_op(name: str, ufunc: np.ufunc, neutral: Any, beaten: Any) -> Op:
    """Declare ``max`` or ``min``; with ``or_neutral`` the extremum of no elements is the neutral one, not an error."""

    def infer(x: Node, *, axis: tuple[int, ...], keepdims: bool, or_neutral: bool) -> tuple[Shape, Any]:
        if not or_neutral:
            refuse_empty(x.shape, axis, name)
        return reduced_shape(x.shape, axis, keepdims), x.dtype

    def kernel(x: Any, *, axis: tuple[int, ...], keepdims: bool, or_neutral: bool) -> Any:
        if or_neutral and not x.size:
            return ufunc.reduce(x, axis=axis, keepdims=keepdims, initial=neutral(x.dtype))
        return ufunc.reduce(x, axis=axis, keepdims=keepdims)

    def winners(out: Tensor, x: Tensor, axis: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        # Comparisons with NaN are false: an extremum that is NaN depends on all elements.
        won = elementwise.logical_not(beaten(x, expand_like(out, x, axis)))
        return won, layout.reshape(sum(won, axis=axis), out.shape)

    def vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], **params: Any) -> Tensor:
        won, count = winners(out, x, axis)
        share = elementwise.through_mask(ct, lambda inner: elementwise.astype(inner / count, ct.dtype))
        return elementwise.mask(spread(share, x, axis), won)

    def jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool, **params: Any) -> Tensor:
        won, count = winners(out, x, axis)
        return sum(elementwise.mask(t, won), axis=axis, keepdims=keepdims) / count

    return register(
        Op(
            name,
            infer=infer,
            kernel=kernel,
            vjp=(vjp,),
            jvp=(jvp,),
            params={"axis": STRUCTURE, "keepdims": STRUCTURE, "or_neutral": STRUCTURE},
            needs=(INPUTS, OUTPUT),
            canonical=lambda x, *, axis, keepdims, or_neutral: None if axis else x,
            canonical_for=FOR_ITS_OWN,
            fresh=True,
        )
    )


MAX = _extremum_op("max", np.maximum, _least, elementwise.less)
MIN = _extremum_op("min", np.minimum, _greatest, elementwise.greater)


def max(x: Any, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
    """Return the largest elements over axes (all by default). In derivatives, ties share equally.

    Parameters
    ----------
    x : array_like
        Real numbers, integers or bools.
    axis : int or tuple of int, optional
        The axes to reduce; all by default.
    keepdims : bool
        Keep the reduced axes, with size 1.
    initial : array_like, optional
        The result is at least this; makes the maximum of no elements meaningful.
    where : array_like of bool, optional
        Leave out elements where this is false; needs ``initial``.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([0.0, 4.0])
    >>> us.max(us.sqrt(x)).grad(x).eval()
    array([0.  , 0.25])
    """
    return _extremum(MAX, x, axis, keepdims, initial, where)


def min(x: Any, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
    """Return the smallest elements over axes (all by default). In derivatives, ties share equally.

    Parameters
    ----------
    x : array_like
        Real numbers, integers or bools.
    axis : int or tuple of int, optional
        The axes to reduce; all by default.
    keepdims : bool
        Keep the reduced axes, with size 1.
    initial : array_like, optional
        The result is at most this; makes the minimum of no elements meaningful.
    where : array_like of bool, optional
        Leave out elements where this is false; needs ``initial``.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([3.0, 1.0, 1.0])
    >>> us.min(x).grad(x).eval()
    array([0. , 0.5, 0.5])
    """
    return _extremum(MIN, x, axis, keepdims, initial, where)


amax = max
amin = min


def _extremum(op: Op, x: Any, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Tensor:
    if not isinstance(x, Node):
        x = as_tensor(x)
    refuse_complex(x, op.name)
    neutral, combine = (_least, elementwise.maximum) if op is MAX else (_greatest, elementwise.minimum)
    keep = None if where is None else selection(where, x)
    if keep is not None:
        if initial is None:
            raise ArgumentError(f"{op.name} with where= needs initial=, the result where no element is left")
        x = elementwise.where(keep, x, constant(neutral(x.dtype), x.dtype))
    axes = layout.normalize_axes(axis, len(x.shape))
    result = _graph.apply(op, x, axis=axes, keepdims=bool(keepdims), or_neutral=initial is not None)
    return result if initial is None else combine(result, initial)


def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the difference between the largest and the smallest elements over axes.

    Examples
    --------
    >>> import unspool as us
    >>> us.ptp([[1.0, 5.0], [2.0, 2.0]], axis=1).eval()
    array([4., 0.])
    """
    x = as_tensor(x)
    return max(x, axis=axis, keepdims=keepdims) - min(x, axis=axis, keepdims=keepdims)


# --- where they are --------------------------------------------------------------------------------------------------


def _position_op(name: str, kernel: Any) -> Op:
    def infer(x: Node, *, axis: int | None, keepdims: bool) -> tuple[Shape, Any]:
        refuse_complex(x, name)
        axes = tuple(range(len(x.shape))) if axis is None else (axis,)
        refuse_empty(x.shape, axes, name)
        return reduced_shape(x.shape, axes, keepdims), INT64

    params = {"axis": STRUCTURE, "keepdims": STRUCTURE}
    return register(Op(name, infer=infer, kernel=kernel, params=params, batch=_position_of_members))


def _position_of_members(op: Op, members: batching.Members, x: Tensor, *, axis: int | None, keepdims: bool) -> Tensor:
    if axis is not None:
        return _graph.apply(op, x, axis=axis + 1, keepdims=keepdims)
    flat = layout.reshape(x, (members.count, product(x.shape[1:])))
    found = _graph.apply(op, flat, axis=1, keepdims=False)
    return layout.reshape(found, (members.count, *[1] * (x.ndim - 1))) if keepdims else found


ARGMAX = _position_op("argmax", lambda x, *, axis, keepdims: np.argmax(x, axis=axis, keepdims=keepdims))
ARGMIN = _position_op("argmin", lambda x, *, axis, keepdims: np.argmin(x, axis=axis, keepdims=keepdims))


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return where the largest element along an axis is; without an axis, in row-major order. The first of ties wins.

    Examples
    --------
    >>> import unspool as us
    >>> us.argmax([[1.0, 5.0], [7.0, 2.0]], axis=0).eval()
    array([1, 0])
    """
    return _position(ARGMAX, x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return where the smallest element along an axis is; without an axis, in row-major order. The first of ties wins.

    Examples
    --------
    >>> import unspool as us
    >>> us.argmin([[1.0, 5.0], [7.0, 2.0]]).eval()
    array(0)
    """
    return _position(ARGMIN, x, axis, keepdims)


def _position(op: Op, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    x = as_tensor(x)
    along = None if axis is None else layout.normalize_axis(axis, x.ndim)
    return _graph.apply(op, x, axis=along, keepdims=bool(keepdims))
