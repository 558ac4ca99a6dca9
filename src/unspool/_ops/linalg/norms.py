"""Norms of vectors and matrices by their order, and condition numbers.

Those of vectors are made of sums (`unspool._ops.contraction.norms`), some of those of matrices of singular values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._ops import elementwise, layout, reduction
from unspool._ops.contraction.norms import norm2, vector_norm
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg.matrices import as_matrix, as_square
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Axis = int | Sequence[int] | None

# --- norms -----------------------------------------------------------------------------------------------------------


def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Norm of vectors or matrices, as ``numpy.linalg.norm``.

    Parameters
    ----------
    x : array_like
        Real or complex; the norm is real.
    ord : {None, number, inf, -inf, "fro", "nuc"}
        ``None`` is the 2-norm of all elements. Orders of vectors are any number, those of matrices 1, -1, inf, -inf,
        "fro", and 2, -2 and "nuc": the largest singular value, the smallest, and the sum of all.
    axis : int or tuple of int, optional
        One axis: norms of vectors. Two: of matrices. By default ``x`` itself is a vector or a matrix.
    keepdims : bool
        Keep the reduced axes with size 1.

    Notes
    -----
    The derivative of the 2-norm at zero is 0. The 2-norm does not overflow or underflow on the way: squares that leave
    the range of the data type are computed again, scaled.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([3.0, 4.0])
    >>> length = us.linalg.norm(x)
    >>> length.eval()
    array(5.)
    >>> length.grad(x).eval()
    array([0.6, 0.8])
    """
    x = as_tensor(x)
    if ord is None and (axis is None or type(axis) is int):
        return norm2(x, layout.normalize_axes(axis, len(x.shape)), keepdims)
    axes = _axes(axis, x.ndim)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) == 2:
        return _matrix_norm(x, "fro" if ord is None else ord, axes, keepdims)
    raise ShapeError(
        f"norm of order {ord!r} takes a vector (1 axis) or a matrix (2 axes), got shape {x.shape} and axis={axis!r}"
    )


def _axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """Return the axes as the user gave them: the order of two says which are rows."""
    if axis is None:
        return tuple(range(rank))
    return tuple(axis) if isinstance(axis, Sequence) else (axis,)


def matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """Norm of the matrices in the last two axes.

    Orders: "fro" (Frobenius), 1 and -1 (columns), inf and -inf (rows), 2 and -2 (the largest and the smallest singular
    value), "nuc" (the sum of singular values).

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.matrix_norm([[1.0, 1.0], [1.0, 1.0]]).eval()
    array(2.)
    """
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_norm takes a tensor with at least 2 axes, got shape {x.shape}")
    return _matrix_norm(x, ord, (-2, -1), keepdims)


def _matrix_norm(x: Tensor, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    rows, columns = (layout.normalize_axis(axis, x.ndim) for axis in axes)
    if rows == columns:
        raise ShapeError(f"the two axes of a matrix must differ, got {axes}")
    if isinstance(ord, str) and ord == "fro":
        return norm2(x, tuple(sorted((rows, columns))), keepdims)
    if ord in (2, -2) or (isinstance(ord, str) and ord == "nuc"):
        return _spectral_norm(x, ord, rows, columns, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f"matrix norms have the orders 'fro', 'nuc', 1, -1, 2, -2, inf and -inf, not {ord!r}")
    summed, other = (rows, columns) if abs(ord) == 1 else (columns, rows)
    totals = vector_norm(x, axis=summed, keepdims=True, ord=1)
    extreme = reduction.max if ord > 0 else reduction.min
    result = extreme(totals, axis=other, keepdims=True)
    return result if keepdims else layout.reshape(result, reduction.reduced_shape(x.shape, (rows, columns), False))


def _spectral_norm(x: Tensor, ord: Any, rows: int, columns: int, keepdims: bool) -> Tensor:
    from unspool._ops.linalg.spectral_norms import spectral_norm

    stack = [axis for axis in range(x.ndim) if axis not in (rows, columns)]
    result = spectral_norm(layout.permute_dims(x, [*stack, rows, columns]), ord)
    return layout.reshape(result, reduction.reduced_shape(x.shape, (rows, columns), True)) if keepdims else result


# --- condition numbers -----------------------------------------------------------------------------------------------

_ORDERS = (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)


def cond(x: Any, p: Any = None) -> Tensor:
    """Condition numbers of matrices, as ``numpy.linalg.cond``; infinite where a matrix is singular.

    Parameters
    ----------
    x : array_like, shape (..., m, n)
        The matrices, square ones unless the order is ``None``, 2 or -2.
    p : {None, 2, -2, 1, -1, inf, -inf, "fro", "nuc"}
        The order of the norm; ``None`` is 2.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.cond([[2.0, 0.0], [0.0, 0.5]]).eval()
    array(4.)
    """
    from unspool._ops.linalg.solving import inverse
    from unspool._ops.linalg.spectral_norms import extreme
    from unspool._ops.linalg.svd import svdvals

    if p not in _ORDERS:
        raise ArgumentError(
            f"condition numbers have the orders None, 2, -2, 1, -1, inf, -inf, 'fro' and 'nuc', not {p!r}"
        )
    if p in (None, 2, -2):
        x = as_matrix(x, "cond")
        values = svdvals(x)
        above, below = extreme(values, largest=p != -2), extreme(values, largest=p == -2)
        return _infinite_if_undefined(elementwise.divide(above, below), x)
    x = as_square(x, f"cond of order {p!r}")
    if p == "nuc":
        values = svdvals(x)
        inverted = reduction.sum(elementwise.reciprocal(values), axis=-1)
        return _infinite_if_undefined(elementwise.multiply(reduction.sum(values, axis=-1), inverted), x)
    norms = elementwise.multiply(matrix_norm(x, ord=p), matrix_norm(inverse(x, strict=False), ord=p))
    return _infinite_if_undefined(norms, x)


def _infinite_if_undefined(condition: Tensor, x: Tensor) -> Tensor:
    """Return condition numbers with infinity in place of 0/0 and 0*inf, which only singular matrices have."""
    defined = elementwise.logical_or(
        elementwise.logical_not(elementwise.isnan(condition)), reduction.any(elementwise.isnan(x), axis=(-2, -1))
    )
    return elementwise.where(defined, condition, math.inf)
