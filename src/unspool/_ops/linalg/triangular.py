"""Triangular matrices: solving with them, and choosing their triangle.

Only the named triangle of the matrix is read, so only it gets a cotangent: what lies outside is absent (see
`unspool._ops.elementwise`). The derivative of a solve is a solve with the same matrix, or with its adjoint.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape
from unspool._dtypes import inexact_dtype, promote
from unspool._graph import Node
from unspool._ops import batching, layout
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.contraction import matmul
from unspool._ops.elementwise import astype, conj, mask, negative
from unspool._ops.layout.diagonals import TRI_MASK
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg.batching import side_by_side
from unspool._ops.linalg.matrices import adjoint as adjoint_of
from unspool._ops.linalg.matrices import as_square
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool.errors import ArgumentError, RankError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_NOT_TRANSPOSED, _TRANSPOSED, _ADJOINT = (0, "N"), (1, "T"), (2, "C")

# A stack with at least this many matrices per row is solved row by row for all matrices at once.
_TALL_STACK = 4


# --- the public function ---------------------------------------------------------------------------------------------


def solve_triangular(
    a: Any, b: Any, trans: int | str = 0, *, lower: bool = False, adjoint: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """Solve ``a @ x = b`` for a triangular matrix; the other triangle is neither read nor differentiated.

    Parameters
    ----------
    a : array_like
        Square matrices, in the last two axes. Leading axes broadcast against those of ``b``.
    b : array_like
        A vector, if it has one axis, else matrices of right sides in the last two axes.
    trans : {0, 1, 2, "N", "T", "C"}
        Solve with the triangle, its transpose or its conjugate transpose, as in SciPy.
    lower : bool
        Which triangle of ``a`` is meant: the lower one, or, by default, the upper one.
    adjoint : bool
        Another name for ``trans=2``.
    unit_diagonal : bool
        Take the diagonal to be ones, and do not read it.

    Raises
    ------
    RankError
        When it runs, if an element of the diagonal is 0.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.solve_triangular([[2.0, 1.0], [0.0, 4.0]], [4.0, 8.0]).eval()
    array([1., 2.])
    """
    if trans not in (*_NOT_TRANSPOSED, *_TRANSPOSED, *_ADJOINT):
        raise ArgumentError(f"trans is 0, 1 or 2, or one of 'N', 'T' and 'C'; got {trans!r}")
    if trans in _TRANSPOSED:
        # xᵀ of the conjugate equation: the triangle of a is only ever read as it is, or as its adjoint.
        return conj(solve_triangular(a, conj(b), lower=lower, adjoint=True, unit_diagonal=unit_diagonal))
    adjoint = bool(adjoint) or trans in _ADJOINT
    a, b = as_square(a, "solve_triangular"), as_tensor(b)
    size = a.shape[-1]
    if b.ndim == 0 or _dims.equal(b.shape[-2 if b.ndim > 1 else 0], size) is False:
        raise ShapeError(f"solve_triangular of a matrix of shape {a.shape} with right sides of shape {b.shape}")
    dtype = promote(a.dtype, inexact_dtype(b.dtype))
    columns = b if b.ndim > 1 else layout.expand_dims(b, -1)
    stack = broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    a = layout.broadcast_to(astype(a, dtype), (*stack, size, size))
    columns = layout.broadcast_to(astype(columns, dtype), (*stack, size, columns.shape[-1]))
    x = _solve(a, columns, lower=bool(lower), adjoint=bool(adjoint), unit_diagonal=bool(unit_diagonal))
    return x if b.ndim > 1 else layout.squeeze(x, -1)


def divide_triangular(b: Tensor, a: Tensor, *, lower: bool = False, adjoint: bool = False) -> Tensor:
    """Solve ``x @ a = b`` for a triangular matrix: a division from the right."""
    return adjoint_of(solve_triangular(a, adjoint_of(b), lower=lower, adjoint=not adjoint))


def keep_triangle(x: Tensor, *, lower: bool, strict: bool = False) -> Tensor:
    """Return a cotangent or tangent of which only one triangle was reached, with or without the diagonal."""
    rows, columns = x.shape[-2:]
    offset = 0 if not strict else -1 if lower else 1
    return mask(x, _graph.apply(TRI_MASK, rows=rows, columns=columns, k=offset, upper=not lower))


def lower_half(x: Tensor) -> Tensor:
    """Return the lower triangle with half of the diagonal: added to its adjoint it is Hermitian, and taken once."""
    return _graph.apply(LOWER_HALF, x)


def _lower_half_kernel(x: Any) -> Any:
    rows, columns = x.shape[-2:]
    below, diagonal = (_kept_masks if rows * columns <= _MOST_KEPT else _masks)(rows, columns)
    return np.where(below, x, np.where(diagonal, x / 2, np.zeros((), x.dtype)))


def _masks(rows: int, columns: int) -> tuple[Any, Any]:
    """Return where a matrix has its lower triangle without the diagonal, and where it has the diagonal."""
    i, j = np.arange(rows)[:, None], np.arange(columns)
    return i > j, i == j


# For small matrices making the masks takes longer than using them. Those that are kept take at most 1 MB together.
_MOST_KEPT = 8192
_kept_masks = lru_cache(maxsize=64)(_masks)


def _lower_half_rule(ct: Tensor, out: Tensor, x: Tensor) -> Tensor:
    return keep_triangle(lower_half(ct), lower=True)


LOWER_HALF = register(
    Op(
        "lower_half",
        infer=lambda x: (x.shape, x.dtype),
        kernel=_lower_half_kernel,
        vjp=(_lower_half_rule,),
        jvp=(_lower_half_rule,),
        batch=batching.leading,
    )
)


# --- the op ----------------------------------------------------------------------------------------------------------


def _solve(a: Tensor, b: Tensor, *, lower: bool, adjoint: bool, unit_diagonal: bool) -> Tensor:
    return _graph.apply(SOLVE_TRIANGULAR, a, b, lower=lower, adjoint=adjoint, unit_diagonal=unit_diagonal)


def _infer(a: Node, b: Node, *, lower: bool, adjoint: bool, unit_diagonal: bool) -> tuple[Shape, Any]:
    return b.shape, b.dtype


def _matrix_vjp(
    ct: Tensor, x: Tensor, a: Tensor, b: Tensor, *, lower: bool, adjoint: bool, unit_diagonal: bool
) -> Tensor:
    b_ct = _solve(a, ct, lower=lower, adjoint=not adjoint, unit_diagonal=unit_diagonal)
    product = matmul(x, adjoint_of(b_ct)) if adjoint else matmul(b_ct, adjoint_of(x))
    return keep_triangle(negative(product), lower=lower, strict=unit_diagonal)


def _right_side_vjp(
    ct: Tensor, x: Tensor, a: Tensor, b: Tensor, *, lower: bool, adjoint: bool, unit_diagonal: bool
) -> Tensor:
    return _solve(a, ct, lower=lower, adjoint=not adjoint, unit_diagonal=unit_diagonal)


def _matrix_jvp(
    t: Tensor, x: Tensor, a: Tensor, b: Tensor, *, lower: bool, adjoint: bool, unit_diagonal: bool
) -> Tensor:
    moved = keep_triangle(t, lower=lower, strict=unit_diagonal)
    product = matmul(adjoint_of(moved) if adjoint else moved, x)
    return negative(_solve(a, product, lower=lower, adjoint=adjoint, unit_diagonal=unit_diagonal))


def _right_side_jvp(t: Tensor, x: Tensor, a: Tensor, b: Tensor, **params: Any) -> Tensor:
    return _solve(a, t, **params)


# --- the kernel ------------------------------------------------------------------------------------------------------


def solve_triangular_kernel(a: Any, b: Any, *, lower: bool, adjoint: bool, unit_diagonal: bool) -> Any:
    """Solve with a stack of triangles: by BLAS matrix for matrix, or by substitution for all matrices at once."""
    if b.size == 0:
        return np.zeros(b.shape, b.dtype)
    if not unit_diagonal:
        _refuse_zeros_on_diagonal(a)
    size, stack = a.shape[-1], a.shape[:-2]
    if b.dtype == object or (stack and np.prod(stack) >= _TALL_STACK * size):
        return _substitute(a, b, lower, adjoint, unit_diagonal)
    if not stack:
        return _solve_one(a, b, lower, adjoint, unit_diagonal)
    x = np.empty(b.shape, b.dtype)
    for index in np.ndindex(stack):
        x[index] = _solve_one(a[index], b[index], lower, adjoint, unit_diagonal)
    return x


def _refuse_zeros_on_diagonal(a: Any) -> None:
    diagonal = np.diagonal(a, 0, -2, -1)
    if not np.all(diagonal):
        *matrix, position = (int(i) for i in np.argwhere(diagonal == 0)[0])
        where = f" of matrix {tuple(matrix)}" if matrix else ""
        raise RankError(f"a triangular matrix is singular: element ({position}, {position}){where} is 0")


@lru_cache(maxsize=8)
def _trsm(dtype: np.dtype[Any]) -> Any:
    from scipy.linalg.blas import get_blas_funcs

    return get_blas_funcs("trsm", dtype=dtype)


def _solve_one(a: Any, b: Any, lower: bool, adjoint: bool, unit_diagonal: bool) -> Any:
    # BLAS reads columns first, so a row-first array is handed over as its transpose; the result is laid out like b.
    # BLAS has no "conjugate, not transposed": then b is handed over the other way round, at the price of a copy.
    by_rows = not a.flags.f_contiguous
    transposed = adjoint != by_rows
    conjugated = adjoint and b.dtype.kind == "c"
    from_right = not b.flags.f_contiguous
    if conjugated:
        from_right = not transposed
    operation = 2 if conjugated else int(transposed != from_right)
    x = _trsm(b.dtype)(
        1.0,
        a.T if by_rows else a,
        b.T if from_right else b,
        side=int(from_right),
        lower=int(lower != by_rows),
        trans_a=operation,
        diag=int(unit_diagonal),
    )
    return x.T if from_right else x


def _substitute(a: Any, b: Any, lower: bool, adjoint: bool, unit_diagonal: bool) -> Any:
    if adjoint:
        a, lower = np.conjugate(np.swapaxes(a, -1, -2)), not lower
    x = np.empty(b.shape, b.dtype)
    size = a.shape[-1]
    for row in range(size) if lower else reversed(range(size)):
        known = slice(0, row) if lower else slice(row + 1, size)
        found = b[..., row : row + 1, :]
        if known.start < known.stop:
            found = found - np.matmul(a[..., row : row + 1, known], x[..., known, :])
        x[..., row : row + 1, :] = found if unit_diagonal else found / a[..., row : row + 1, row : row + 1]
    return x


SOLVE_TRIANGULAR = register(
    Op(
        "solve_triangular",
        infer=_infer,
        kernel=solve_triangular_kernel,
        vjp=(_matrix_vjp, _right_side_vjp),
        jvp=(_matrix_jvp, _right_side_jvp),
        params={"lower": STRUCTURE, "adjoint": STRUCTURE, "unit_diagonal": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=side_by_side,
    )
)
