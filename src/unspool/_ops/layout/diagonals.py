"""Diagonals and triangles of matrices.

Reading a diagonal and writing one into a matrix of zeros are each other's adjoint; a triangle is a choice by position.
What lies off the diagonal, or outside the triangle, is absent from the cotangent (see `unspool._ops.elementwise`).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, Size, equal, maximum, minimum
from unspool._dtypes import BOOL
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.elementwise import where
from unspool._ops.late import ops
from unspool._ops.layout.axes import moveaxis, ravel
from unspool._ops.layout.reshaping import embed, normalize_axis, rearrange, source_to_read
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.op import SIZE, STRUCTURE, Op, register
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


# --- the linear pair -------------------------------------------------------------------------------------------------


def diagonal_size(rows: Size, columns: Size, offset: int) -> Size:
    """Return how many elements a diagonal has."""
    return maximum(minimum(rows + min(offset, 0), columns - max(offset, 0)), 0)


def _read_diagonal(x: Tensor, offset: int) -> Tensor:
    """Return a diagonal of the matrices in the last two axes."""
    return _graph.apply(DIAGONAL, x, offset=offset)


def _infer_diagonal(x: Node, *, offset: int) -> tuple[Shape, Any]:
    *batch, rows, columns = x.shape
    return (*batch, diagonal_size(rows, columns, offset)), x.dtype


def _canonical_diagonal(x: Tensor, *, offset: int) -> Tensor | None:
    if x.op is not EMBED_DIAGONAL or x.attributes["offset"] != offset or (source := source_to_read(x)) is None:
        return None
    return ensure_shape(source, _infer_diagonal(x, offset=offset)[0])


def _diagonal_vjp(ct: Tensor, out: Tensor, x: Tensor, *, offset: int) -> Tensor:
    rows, columns = x.shape[-2:]
    return _embed_absent(ct, rows, columns, offset)


DIAGONAL = register(
    Op(
        "diagonal",
        infer=_infer_diagonal,
        kernel=lambda x, *, offset: np.diagonal(x, offset, -2, -1),
        vjp=(_diagonal_vjp,),
        jvp=(lambda t, out, x, *, offset: rearrange(t, lambda inner: _read_diagonal(inner, offset)),),
        params={"offset": STRUCTURE},
        canonical=_canonical_diagonal,
        view=True,
        batch=batching.leading,
    )
)


def embed_diagonal(x: Tensor, rows: Size, columns: Size, offset: int) -> Tensor:
    """Return matrices of zeros with the last axis of ``x`` written on a diagonal."""
    return _graph.apply(EMBED_DIAGONAL, x, rows=rows, columns=columns, offset=offset)


def _embed_absent(ct: Tensor, rows: Size, columns: Size, offset: int) -> Tensor:
    """Write a cotangent or tangent on a diagonal; what lies off it is absent."""
    return embed(ct, lambda inner: embed_diagonal(inner, rows, columns, offset), (ct.ndim - 1,))


def _infer_embed_diagonal(x: Node, *, rows: Size, columns: Size, offset: int) -> tuple[Shape, Any]:
    size = diagonal_size(rows, columns, offset)
    if equal(x.shape[-1], size) is False:
        raise ShapeError(f"diagonal {offset} of a {rows} by {columns} matrix has {size} elements, not {x.shape[-1]}")
    return (*x.shape[:-1], rows, columns), x.dtype


def _embed_diagonal_kernel(x: Any, *, rows: int, columns: int, offset: int) -> Any:
    matrix = np.zeros((*x.shape[:-1], rows, columns), x.dtype)
    along = np.arange(x.shape[-1])
    matrix[..., along - min(offset, 0), along + max(offset, 0)] = x
    return matrix


def _embed_diagonal_vjp(ct: Tensor, out: Tensor, x: Tensor, *, rows: Size, columns: Size, offset: int) -> Tensor:
    return rearrange(ct, lambda inner: ensure_shape(_read_diagonal(inner, offset), x.shape))


EMBED_DIAGONAL = register(
    Op(
        "embed_diagonal",
        infer=_infer_embed_diagonal,
        kernel=_embed_diagonal_kernel,
        vjp=(_embed_diagonal_vjp,),
        jvp=(lambda t, out, x, *, rows, columns, offset: _embed_absent(t, rows, columns, offset),),
        params={"rows": SIZE, "columns": SIZE, "offset": STRUCTURE},
        batch=batching.leading,
    )
)


# --- diagonals -------------------------------------------------------------------------------------------------------


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return a diagonal of the matrices that two axes span, as the last axis of the result.

    Parameters
    ----------
    x : array_like
        A tensor with at least two axes.
    offset : int
        Which diagonal: 0 the main one, positive above it, negative below.
    axis1, axis2 : int
        The axes of rows and columns.

    Examples
    --------
    >>> import unspool as us
    >>> us.diagonal([[1, 2], [3, 4]]).eval()
    array([1, 4])
    """
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"diagonal takes a tensor with at least 2 axes, got shape {x.shape}")
    axes = normalize_axis(axis1, x.ndim), normalize_axis(axis2, x.ndim)
    if axes[0] == axes[1]:
        raise ShapeError(f"a diagonal runs along two different axes, got {axis1} and {axis2}")
    return _read_diagonal(moveaxis(x, axes, (-2, -1)), _as_offset(offset))


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None) -> Tensor:
    """Return the sum of a diagonal; see `diagonal`.

    Examples
    --------
    >>> import unspool as us
    >>> us.trace([[1, 2], [3, 4]]).eval()
    array(5)
    """
    return ops.sum(diagonal(x, offset, axis1, axis2), axis=-1, dtype=dtype)


def diag(x: Any, k: int = 0) -> Tensor:
    """Return the matrix with a vector on a diagonal, or the diagonal of a matrix.

    Examples
    --------
    >>> import unspool as us
    >>> us.diag([1, 2]).eval()
    array([[1, 0],
           [0, 2]])
    """
    x = as_tensor(x)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag takes a vector or a matrix, got shape {x.shape}")
    offset = _as_offset(k)
    size = x.shape[0] + abs(offset)
    return embed_diagonal(x, size, size, offset)


def diagflat(x: Any, k: int = 0) -> Tensor:
    """Return the matrix with the elements of a tensor, in row-major order, on a diagonal.

    Examples
    --------
    >>> import unspool as us
    >>> us.diagflat([[1, 2]]).eval()
    array([[1, 0],
           [0, 2]])
    """
    return diag(ravel(x), k)


def _as_offset(offset: Any) -> int:
    try:
        return operator.index(offset)
    except TypeError:
        raise ShapeError(f"a diagonal is given by an integer, got {offset!r}") from None


# --- triangles -------------------------------------------------------------------------------------------------------


def _tri_mask_kernel(*, rows: int, columns: int, k: int, upper: bool) -> Any:
    return ~np.tri(rows, columns, k - 1, dtype=bool) if upper else np.tri(rows, columns, k, dtype=bool)


TRI_MASK = register(
    Op(
        "tri_mask",
        infer=lambda *, rows, columns, k, upper: ((rows, columns), BOOL),
        kernel=_tri_mask_kernel,
        params={"rows": SIZE, "columns": SIZE, "k": STRUCTURE, "upper": STRUCTURE},
    )
)


def _triangle(name: str, x: Any, k: int, upper: bool) -> Tensor:
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"{name} takes a tensor with at least 2 axes, got shape {x.shape}")
    rows, columns = x.shape[-2:]
    inside = _graph.apply(TRI_MASK, rows=rows, columns=columns, k=_as_offset(k), upper=upper)
    return where(inside, x, constant(0, x.dtype))


def tril(x: Any, k: int = 0) -> Tensor:
    """Return the lower triangle of a matrix, or of a stack of matrices, up to the ``k``-th diagonal; zeros elsewhere.

    Examples
    --------
    >>> import unspool as us
    >>> us.tril([[1, 2], [3, 4]]).eval()
    array([[1, 0],
           [3, 4]])
    """
    return _triangle("tril", x, k, upper=False)


def triu(x: Any, k: int = 0) -> Tensor:
    """Return the upper triangle of a matrix, or of a stack of matrices, from the ``k``-th diagonal; zeros elsewhere.

    Examples
    --------
    >>> import unspool as us
    >>> us.triu([[1, 2], [3, 4]]).eval()
    array([[1, 2],
           [0, 4]])
    """
    return _triangle("triu", x, k, upper=True)
