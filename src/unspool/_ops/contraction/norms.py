"""Norms of vectors, with derivatives that stay finite at zero.

The 2-norm is an op of its own, since it stands in almost every iteration: one node forward, two backward. At zero,
where it has a kink, its derivative is taken to be 0 (the subgradient of least norm), to every order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import INEXACT, inexact_dtype, promote, real_dtype
from unspool._graph import Node
from unspool._ops import elementwise, layout, reduction
from unspool._ops.contraction.contract import contract
from unspool._ops.leaf import as_tensor
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Axis = int | Sequence[int] | None


# --- what users call -------------------------------------------------------------------------------------------------


def vector_norm(x: Any, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """Norm of vectors along any number of axes, all by default.

    Orders: 2, 1, inf, -inf, 0 (how many elements are not zero) and any other number p, for ``sum(abs(x)**p)**(1/p)``.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.vector_norm([[3.0, -4.0], [0.0, 1.0]], axis=1, ord=1).eval()
    array([7., 1.])
    """
    x = as_tensor(x)
    axes = layout.normalize_axes(axis, x.ndim)
    order = _number(ord)
    if order == 2:
        return norm2(x, axes, keepdims)
    x = elementwise.astype(x, inexact_dtype(x.dtype))
    if order == 0:
        nonzero = elementwise.astype(elementwise.not_equal(x, 0), real_dtype(x.dtype))
        return reduction.sum(nonzero, axis=axes, keepdims=keepdims)
    sizes = elementwise.abs(x)
    if math.isinf(order):
        extreme = reduction.max if order > 0 else reduction.min
        return extreme(sizes, axis=axes, keepdims=keepdims)
    if order == 1:
        return reduction.sum(sizes, axis=axes, keepdims=keepdims)
    return _root(reduction.sum(elementwise.power(sizes, order), axis=axes, keepdims=keepdims), order)


def _number(ord: Any) -> float:
    try:
        order = float(ord)
    except (TypeError, ValueError):
        order = math.nan
    if math.isnan(order):
        raise ArgumentError(f"vector norms have a number, inf or -inf as order, not {ord!r}")
    return order


def _root(total: Tensor, order: float) -> Tensor:
    """Return ``total ** (1 / order)``, with derivative 0 where the total is 0."""
    if order < 0:
        return elementwise.power(total, 1.0 / order)
    moved = elementwise.not_equal(total, 0)  # NaN is
    return elementwise.where(moved, elementwise.power(elementwise.where(moved, total, 1.0), 1.0 / order), 0.0)


# --- the 2-norm ------------------------------------------------------------------------------------------------------


def norm2(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Record a 2-norm."""
    if x.dtype not in INEXACT:
        x = elementwise.astype(x, inexact_dtype(x.dtype))
    return _graph.apply(NORM2, x, axis=axes, keepdims=bool(keepdims))


def _infer(x: Node, *, axis: tuple[int, ...], keepdims: bool) -> tuple[Shape, Any]:
    if len(axis) == len(x.shape) and not keepdims:
        return (), real_dtype(x.dtype)
    return reduction.reduced_shape(x.shape, axis, keepdims), real_dtype(x.dtype)


def _kernel(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    if len(axis) == x.ndim:
        flat = x if x.ndim == 1 else np.ravel(x, order="K")
        total = np.dot(flat, flat) if flat.dtype.kind != "c" else np.vdot(flat, flat).real
        value, smallest = float(total), _smallest(total)
        # The root of a Python float, rounded once more for single precision, is the correctly rounded one.
        result = type(total)(math.sqrt(value)) if smallest < value < math.inf else _scaled_norm(x, axis, False)
        return np.reshape(result, [1] * x.ndim) if keepdims else result
    squared: Any = np.add.reduce(_squares(x), axis=axis, keepdims=keepdims)  # type: ignore[call-overload]
    in_range = squared.size == 0 or (squared.min() > _smallest(squared) and squared.max() < math.inf)
    return np.sqrt(squared) if in_range else _scaled_norm(x, axis, keepdims)


def _smallest(squared: Any) -> float:
    """Return a bound above which a sum of squares has lost no digits to underflow."""
    return 1e-30 if squared.dtype.itemsize == 4 else 1e-290


def _squares(x: Any) -> Any:
    return x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x


def _scaled_norm(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Compute norms of vectors divided by their largest element, and multiply by it."""
    sizes = np.abs(x)
    largest = np.maximum.reduce(sizes, axis=axis, keepdims=True, initial=0)
    usable = (largest > 0) & np.isfinite(largest)
    scale = np.where(usable, largest, np.ones((), sizes.dtype))
    scaled = sizes / scale
    norms = np.sqrt(np.add.reduce(scaled * scaled, axis=axis, keepdims=True)) * scale
    return norms if keepdims else np.squeeze(norms, axis=axis)


def _vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    if out.ndim != x.ndim and out.shape:
        shape = reduction.reduced_shape(x.shape, axis, True)
        out = layout.reshape(out, shape)
        ct = layout.rearrange(ct, lambda inner: layout.reshape(inner, shape))
    return elementwise.scale(ct, divide_or_zero(x, out))


def _jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    lifted = layout.reshape(out, reduction.reduced_shape(x.shape, axis, True)) if out.shape else out
    labels = range(x.ndim)
    kept = [label for label in labels if label not in axis]
    direction = elementwise.conj(divide_or_zero(x, lifted))
    return layout.reshape(elementwise.real(contract(direction, labels, t, labels, kept)), out.shape)


NORM2 = register(
    Op(
        "norm2",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=(_jvp,),
        params={"axis": STRUCTURE, "keepdims": STRUCTURE},
        needs=(INPUTS, OUTPUT),
    ),
)


# --- division that is zero where the divisor is ----------------------------------------------------------------------


def divide_or_zero(x1: Tensor, x2: Tensor) -> Tensor:
    """Divide, with 0 for the result and all its derivatives where the divisor is 0."""
    return elementwise.binary(DIVIDE_OR_ZERO, x1, x2)


def _divide_or_zero_kernel(x1: Any, x2: Any) -> Any:
    if np.ndim(x2) == 0 and x2 != 0:
        return np.divide(x1, x2)
    result = np.zeros(np.broadcast_shapes(np.shape(x1), np.shape(x2)), np.result_type(x1, x2))
    return np.divide(x1, x2, out=result, where=np.not_equal(x2, 0))


DIVIDE_OR_ZERO = elementwise.elementwise(
    "divide_or_zero",
    _divide_or_zero_kernel,
    vjp=(
        lambda ct, out, x1, x2: elementwise.through_mask(ct, lambda c: divide_or_zero(c, elementwise.conj(x2))),
        lambda ct, out, x1, x2: elementwise.scale(ct, elementwise.conj(elementwise.negative(divide_or_zero(out, x2)))),
    ),
    jvp=(
        lambda t, out, x1, x2: divide_or_zero(t, x2),
        lambda t, out, x1, x2: elementwise.negative(elementwise.multiply(t, divide_or_zero(out, x2))),
    ),
    needs=(INPUTS, OUTPUT),
    dtype=promote,
    fresh=True,
)
