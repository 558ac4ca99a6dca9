"""The LU decomposition with row exchanges, A = P·L·U.

One rule serves tall, square and wide matrices. With k = min(m, n), the first k rows of L are a triangle L₁ with a unit
diagonal, and the first k columns of U a triangle U₁; the exchanges stay as they are while the matrix moves a little.
The last element of the diagonal of U₁ divides nothing unless the matrix is tall, so a square matrix may be singular by
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape, Size
from unspool._dtypes import INT64, real_dtype
from unspool._graph import Node
from unspool._ops import batching, layout
from unspool._ops.contraction import matmul
from unspool._ops.creation import arange, zeros
from unspool._ops.elementwise import add, astype, equal, subtract
from unspool._ops.indexing import take_along_axis
from unspool._ops.linalg.gauge import Tolerances
from unspool._ops.linalg.matrices import adjoint, as_matrix, smaller_side
from unspool._ops.linalg.qr_checks import divide_full_rank, tolerances_of_call
from unspool._ops.linalg.triangular import solve_triangular
from unspool._ops.op import OUTPUT, STRUCTURE, Op, parts, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class LUResult(NamedTuple):
    """The factors of an LU decomposition: ``P @ L @ U``."""

    P: Tensor
    L: Tensor
    U: Tensor


def lu(x: Any, *, p_indices: bool = False, rtol: float | None = None) -> LUResult:
    """Decompose matrices into a permutation P, a unit lower triangle L and an upper triangle U, as ``scipy.linalg.lu``.

    Parameters
    ----------
    x : array_like
        Matrices of any shape m by n, in the last two axes. With k = min(m, n), L is m by k and U is k by n.
    p_indices : bool
        Whether to return P as the positions ``p`` for which the matrix is ``L[p] @ U``.
    rtol : float, optional
        How small an element of the diagonal of U is, relative to the largest element of U, to count as zero when a
        derivative divides by it.

    Returns
    -------
    LUResult
        The named tuple ``(P, L, U)``. P is not differentiated: it is constant wherever the factors are smooth.

    Raises
    ------
    RankError
        When a derivative runs that divides by a zero on the diagonal of U.

    Examples
    --------
    >>> import unspool as us
    >>> P, L, U = us.linalg.lu([[1.0, 2.0], [2.0, 6.0]])
    >>> U.eval()
    array([[ 2.,  6.],
           [ 0., -1.]])
    """
    x = as_matrix(x, "lu")
    places, _, lower, upper = parts(_graph.apply_multi(LU, x, tol=tolerances_of_call(x.dtype, rtol)))
    if p_indices:
        return LUResult(places, lower, upper)
    matrix = equal(layout.expand_dims(places, -1), arange(x.shape[-2]))
    return LUResult(astype(matrix, real_dtype(x.dtype)), lower, upper)


def _infer(x: Node, *, tol: Tolerances) -> tuple[tuple[Shape, Any], ...]:
    *stack, rows, columns = x.shape
    k = smaller_side(x.shape)
    places = ((*stack, rows), INT64)
    return places, places, ((*stack, rows, k), x.dtype), ((*stack, k, columns), x.dtype)


def _kernel(x: Any, *, tol: Tolerances) -> tuple[Any, ...]:
    """Return where rows of L go, which rows of the matrix they came from, L and U."""
    from scipy.linalg import lu as factor

    if not x.size:
        rows, columns = x.shape[-2:]
        k = min(rows, columns)
        places = np.broadcast_to(np.arange(rows), x.shape[:-1])
        lower = np.broadcast_to(np.eye(rows, k, dtype=x.dtype), (*x.shape[:-1], k))
        return places, places, lower, np.zeros((*x.shape[:-2], k, columns), x.dtype)
    places, lower, upper = factor(x, p_indices=True, check_finite=False)
    places = places.astype(INT64)
    return places, np.argsort(places, axis=-1), lower, upper


def _rows_at(x: Tensor, places: Tensor) -> Tensor:
    return take_along_axis(x, layout.expand_dims(places, -1), axis=-2)


def _divide_leading(s: Tensor, u: Tensor, k: Size, tol: Tolerances, *, adjoint: bool) -> Tensor:
    """Return the strictly lower triangle of s·U₁⁻¹, or s·U₁⁻ᴴ of a strictly lower s: neither has a last column."""
    inner = _dims.maximum(k - 1, 0)
    divided = divide_full_rank(
        s[..., :, :inner], u[..., :inner, :inner], tol, adjoint=adjoint, what="an LU decomposition"
    )
    return layout.concat([divided, zeros((*s.shape[:-1], k - inner), s.dtype)], axis=-1)


def _vjp(ct: Any, out: Any, x: Tensor, *, tol: Tolerances) -> Tensor:
    (_, _, lower_ct, upper_ct), (places, _, lower, upper) = ct, out
    rows, columns = x.shape[-2:]
    k = smaller_side(x.shape)
    if lower_ct is None:
        lower_ct = zeros(lower.shape, lower.dtype)
    if upper_ct is None:
        upper_ct = zeros(upper.shape, upper.dtype)
    first, u = lower[..., :k, :], upper[..., :, :k]
    first_ct, u_ct = lower_ct[..., :k, :], upper_ct[..., :, :k]
    below = right = None
    if _dims.equal(rows, k) is not True:
        below = divide_full_rank(lower_ct[..., k:, :], u, tol, adjoint=True, what="an LU decomposition")
        u_ct = subtract(u_ct, matmul(adjoint(lower[..., k:, :]), below))
    if _dims.equal(columns, k) is not True:
        right = solve_triangular(first, upper_ct[..., :, k:], lower=True, adjoint=True, unit_diagonal=True)
        first_ct = subtract(first_ct, matmul(right, adjoint(upper[..., :, k:])))
    turned = subtract(matmul(adjoint(first), first_ct), matmul(u_ct, adjoint(u)))
    corner = add(u_ct, _divide_leading(layout.tril(turned, -1), u, k, tol, adjoint=True))
    moved = solve_triangular(first, corner, lower=True, adjoint=True, unit_diagonal=True)
    if right is not None:
        moved = layout.concat([moved, right], axis=-1)
    if below is not None:
        beside = zeros((*below.shape[:-1], columns - k), below.dtype)
        moved = layout.concat([moved, layout.concat([below, beside], axis=-1)], axis=-2)
    return _rows_at(moved, places)


def _jvp(tangents: Any, out: Any, x: Tensor, *, tol: Tolerances) -> Any:
    (_, origins, lower, upper) = out
    k = smaller_side(x.shape)
    t = _rows_at(tangents[0], origins)
    first, u = lower[..., :k, :], upper[..., :, :k]
    moved = solve_triangular(first, t[..., :k, :], lower=True, unit_diagonal=True)
    turn = layout.tril(_divide_leading(moved[..., :, :k], u, k, tol, adjoint=False), -1)
    upper_t = layout.triu(subtract(moved, matmul(turn, upper)))
    lower_t = matmul(first, turn)
    if _dims.equal(x.shape[-2], k) is not True:
        rest = subtract(t[..., k:, :k], matmul(lower[..., k:, :], upper_t[..., :, :k]))
        below = divide_full_rank(rest, u, tol, what="an LU decomposition")
        lower_t = layout.concat([lower_t, below], axis=-2)
    return None, None, lower_t, upper_t


LU = register(
    Op(
        "lu",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=_jvp,
        params={"tol": STRUCTURE},
        needs=(OUTPUT,),
        multi=True,
        batch=batching.leading,
    )
)
