"""Solving with factors that were made before, under the names of ``scipy.linalg``.

They are made of the decompositions and triangular solves of this package, and so are their derivatives. Only the
pivots need ops of their own: LAPACK tells of row exchanges one after the other, an order of rows is what is applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _dims, _graph
from unspool._dtypes import EXACT, INT64
from unspool._ops import batching, layout
from unspool._ops.elementwise import add, conj
from unspool._ops.indexing import argsort, take_along_axis
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg.cholesky import cholesky
from unspool._ops.linalg.lu import lu
from unspool._ops.linalg.matrices import as_square
from unspool._ops.linalg.triangular import solve_triangular
from unspool._ops.op import Op, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- Cholesky --------------------------------------------------------------------------------------------------------


def cho_factor(a: Any, lower: bool = False) -> tuple[Tensor, bool]:
    """Return the Cholesky factor of positive definite matrices, and which triangle it is, for `cho_solve`.

    Unlike SciPy's, the other triangle is zero.

    Examples
    --------
    >>> import unspool as us
    >>> factor, lower = us.linalg.cho_factor([[4.0, 2.0], [2.0, 5.0]])
    >>> factor.eval()
    array([[2., 1.],
           [0., 2.]])
    """
    return cholesky(a, upper=not lower), bool(lower)


def cho_solve(c_and_lower: tuple[Any, bool], b: Any) -> Tensor:
    """Solve ``a @ x = b`` with the Cholesky factor of ``a`` that `cho_factor` returned.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.cho_solve(us.linalg.cho_factor([[4.0, 2.0], [2.0, 5.0]]), [6.0, 7.0]).eval()
    array([1., 1.])
    """
    factor, lower = _pair(c_and_lower, "cho_solve", "the factor and whether it is the lower one")
    first = solve_triangular(factor, b, lower=lower, adjoint=not lower)
    return solve_triangular(factor, first, lower=lower, adjoint=lower)


# --- LU --------------------------------------------------------------------------------------------------------------


def lu_factor(a: Any) -> tuple[Tensor, Tensor]:
    """Return both triangles of the LU decomposition of square matrices in one, and the row exchanges, for `lu_solve`.

    Examples
    --------
    >>> import unspool as us
    >>> factors, pivots = us.linalg.lu_factor([[1.0, 2.0], [2.0, 6.0]])
    >>> factors.eval()
    array([[ 2. ,  6. ],
           [ 0.5, -1. ]])
    >>> pivots.eval()
    array([1, 1])
    """
    places, lower, upper = lu(as_square(a, "lu_factor"), p_indices=True)
    return add(layout.tril(lower, -1), upper), _graph.apply(PIVOTS_OF_ORDER, argsort(places, axis=-1))


def lu_solve(lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0) -> Tensor:
    """Solve ``a @ x = b`` with what `lu_factor` returned for ``a``.

    Parameters
    ----------
    lu_and_piv : tuple
        As `lu_factor` returns it.
    b : array_like, shape (n,) or (..., n, k)
        Right sides.
    trans : {0, 1, 2}
        Whether to solve with the matrix, its transpose or its conjugate transpose.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.lu_solve(us.linalg.lu_factor([[1.0, 2.0], [2.0, 6.0]]), [3.0, 8.0]).eval()
    array([1., 1.])
    """
    triangles, exchanges = _pair(lu_and_piv, "lu_solve", "the factors and the row exchanges")
    factors, pivots, right = as_square(triangles, "lu_solve"), as_tensor(exchanges), as_tensor(b)
    if pivots.dtype not in EXACT or not pivots.ndim or _dims.equal(pivots.shape[-1], factors.shape[-1]) is False:
        raise ShapeError(
            f"lu_solve takes as many row exchanges, which are integers, as there are rows, got {pivots.dtype} of shape "
            f"{pivots.shape} beside factors of shape {factors.shape}"
        )
    if trans not in (0, 1, 2):
        raise ArgumentError(f"trans is 0, 1 or 2, got {trans!r}")
    if not right.ndim or _dims.equal(right.shape[0 if right.ndim == 1 else -2], factors.shape[-1]) is False:
        raise ShapeError(f"lu_solve of factors of shape {factors.shape} with right sides of shape {right.shape}")
    order = _graph.apply(ORDER_OF_PIVOTS, pivots)
    if trans == 1:
        return conj(lu_solve(lu_and_piv, conj(right), trans=2))
    if trans == 2:
        first = solve_triangular(factors, right, adjoint=True)
        return _rows_of(solve_triangular(factors, first, lower=True, adjoint=True, unit_diagonal=True), argsort(order))
    first = solve_triangular(factors, _rows_of(right, order), lower=True, unit_diagonal=True)
    return solve_triangular(factors, first)


def _pair(value: Any, function: str, what: str) -> tuple[Any, Any]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentError(f"{function} takes a pair, {what}; got {value!r}")
    return value[0], value[1]


def _rows_of(x: Tensor, order: Tensor) -> Tensor:
    if x.ndim == 1 and order.ndim == 1:
        return take_along_axis(x, order, axis=0)
    places = layout.expand_dims(order, -1)
    return take_along_axis(x, layout.broadcast_to(places, (*x.shape[:-2], *places.shape[-2:])), axis=-2)


def _over_rows(function: Any, x: Any) -> Any:
    rows = np.reshape(x, (-1, x.shape[-1]))
    return np.array([function(row.tolist()) for row in rows], INT64).reshape(x.shape)


def _order_of_pivots(pivots: list[int]) -> list[int]:
    order = list(range(len(pivots)))
    for k, pivot in enumerate(pivots):
        order[k], order[pivot] = order[pivot], order[k]
    return order


def _pivots_of_order(order: list[int]) -> list[int]:
    there, at = list(range(len(order))), list(range(len(order)))
    pivots = []
    for k, row in enumerate(order):
        pivot = at[row]
        pivots.append(pivot)
        other = there[k]
        there[pivot], at[other] = other, pivot
        there[k], at[row] = row, k
    return pivots


PIVOTS_OF_ORDER = register(
    Op(
        "pivots_of_order",
        infer=lambda order: (order.shape, INT64),
        kernel=lambda order: _over_rows(_pivots_of_order, order),
        batch=batching.leading,
    )
)
ORDER_OF_PIVOTS = register(
    Op(
        "order_of_pivots",
        infer=lambda pivots: (pivots.shape, INT64),
        kernel=lambda pivots: _over_rows(_order_of_pivots, pivots),
        batch=batching.leading,
    )
)
