"""The polar decomposition, A = U·P with orthonormal columns U and a positive semidefinite P.

The rule is written for matrices with at least as many rows as columns; a wide matrix is the adjoint of a tall one. The
skew part of Uᴴ·dU solves the Lyapunov equation P·Z + Z·P = Uᴴ·dA - dAᴴ·U, which is an op of its own (`lyapunov`), so
that it can be differentiated again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Dim, Shape, Size
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.contraction import matmul
from unspool._ops.elementwise import add, negative, subtract
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.hermitian import hermitian_array
from unspool._ops.linalg.matrices import adjoint, as_matrix, hermitian_part
from unspool._ops.linalg.qr import lq, qr
from unspool._ops.linalg.qr_checks import tolerances_of_call
from unspool._ops.linalg.solving import solve
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, parts, register
from unspool.errors import ArgumentError, RankError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class PolarResult(NamedTuple):
    """The factors of a polar decomposition: ``U @ P``, or ``P @ U`` for ``side="left"``."""

    U: Tensor
    P: Tensor


def polar(x: Any, side: str = "right", *, rtol: float | None = None) -> PolarResult:
    """Decompose matrices into an isometry U and a positive semidefinite P, as ``scipy.linalg.polar``.

    Parameters
    ----------
    x : array_like
        Matrices of any shape m by n, in the last two axes. U has the same shape; of its rows and columns, the fewer are
        orthonormal.
    side : {"right", "left"}
        Whether the matrix is ``U @ P`` or ``P @ U``.
    rtol : float, optional
        How small a singular value is, relative to the largest, for the matrix to count as one without full rank.

    Returns
    -------
    PolarResult
        The named tuple ``(U, P)``.

    Raises
    ------
    RankError
        When a derivative runs, if a matrix has not full rank: U is then not unique.

    Examples
    --------
    >>> import unspool as us
    >>> U, P = us.linalg.polar([[0.0, -2.0], [3.0, 0.0]])
    >>> P.eval().round(12)
    array([[3., 0.],
           [0., 2.]])
    """
    x = as_matrix(x, "polar")
    if side not in ("right", "left"):
        raise ArgumentError(f"side is 'right' or 'left', got {side!r}")
    rank = tolerances_of_call(x.dtype, rtol).rank
    rows, columns = x.shape[-2:]
    if rows == columns:
        u, p = _tall_polar(x if side == "right" else adjoint(x), rank)
        return PolarResult(u if side == "right" else adjoint(u), p)
    wide = _is_less(rows, columns)
    if wide is False:
        u, p = _tall_polar(x, rank)
        return PolarResult(u, p if side == "right" else hermitian_part(matmul(x, adjoint(u))))
    if wide:
        u, p = _tall_polar(adjoint(x), rank)
        u = adjoint(u)
    else:
        # Which side is longer is not known yet: a square core with the same singular values has the same rule anyway.
        left, rest = qr(x)
        core, right = lq(rest)
        u, p = _tall_polar(core, rank)
        u = matmul(matmul(left, u), right)
        if side == "left":
            return PolarResult(u, hermitian_part(matmul(x, adjoint(u))))
    return PolarResult(u, p if wide and side == "left" else hermitian_part(matmul(adjoint(u), x)))


def _is_less(left: Size, right: Size) -> bool | None:
    difference = right - left
    if isinstance(difference, Dim):
        too_small = difference.less(1)
        return None if too_small is None else not too_small
    return difference > 0


def _tall_polar(x: Tensor, rank: float) -> tuple[Tensor, Tensor]:
    u, p = parts(_graph.apply_multi(POLAR, x, rank=rank))
    return u, p


def _infer(x: Node, *, rank: float) -> tuple[tuple[Shape, Any], ...]:
    columns = x.shape[-1]
    return (x.shape, x.dtype), ((*x.shape[:-2], columns, columns), x.dtype)


def _kernel(x: Any, *, rank: float) -> tuple[Any, Any]:
    refuse_not_finite(x, "polar")
    left, spectrum, right = np.linalg.svd(x, full_matrices=False)
    p = np.matmul(np.conjugate(np.swapaxes(right, -1, -2)) * spectrum[..., None, :], right)
    return np.matmul(left, right), (p + np.conjugate(np.swapaxes(p, -1, -2))) / 2


def _divide(b: Tensor, p: Tensor) -> Tensor:
    """Return b·P⁻¹."""
    return adjoint(solve(p, adjoint(b)))


def _is_square(x: Tensor) -> bool:
    return _dims.equal(x.shape[-2], x.shape[-1]) is True


def _vjp(ct: Any, out: Any, x: Tensor, *, rank: float) -> Tensor:
    (u_ct, p_ct), (u, p) = ct, out
    turned = None
    if u_ct is not None:
        within = matmul(adjoint(u), u_ct)
        turned = subtract(within, adjoint(within))
    if p_ct is not None:
        p_ct = hermitian_part(p_ct)
        product = matmul(p_ct, p)
        commutator = subtract(adjoint(product), product)
        turned = commutator if turned is None else add(turned, commutator)
    inner = lyapunov(p, turned, rank)  # type: ignore[arg-type]
    total = matmul(u, inner if p_ct is None else add(inner, p_ct))
    if u_ct is None or _is_square(x):
        return total
    return add(total, _divide(subtract(u_ct, matmul(u, within)), p))


def _jvp(tangents: Any, out: Any, x: Tensor, *, rank: float) -> Any:
    (t,), (u, p) = tangents, out
    within = matmul(adjoint(u), t)
    turn = lyapunov(p, subtract(within, adjoint(within)), rank)
    p_t = hermitian_part(subtract(within, matmul(turn, p)))
    u_t = matmul(u, turn)
    if not _is_square(x):
        u_t = add(u_t, _divide(subtract(t, matmul(u, within)), p))
    return u_t, p_t


POLAR = register(
    Op(
        "polar",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=_jvp,
        params={"rank": STRUCTURE},
        needs=(OUTPUT,),
        multi=True,
        batch=batching.leading,
    )
)


# --- the Lyapunov equation -------------------------------------------------------------------------------------------


def lyapunov(p: Tensor, c: Tensor, rank: float) -> Tensor:
    """Return Z with p·Z + Z·p = c, for a Hermitian positive definite p; raise `RankError` when it runs if it is not."""
    return _graph.apply(LYAPUNOV, p, c, rank=rank)


def _lyapunov_kernel(p: Any, c: Any, *, rank: float) -> Any:
    values, vectors = np.linalg.eigh(hermitian_array(p))
    deficient = values <= rank * np.max(np.abs(values), axis=-1, keepdims=True, initial=0.0)
    if np.any(deficient):
        index = tuple(int(i) for i in np.argwhere(np.any(deficient, axis=-1))[0])
        which = f"matrix {index} of the stack" if index else "the matrix"
        found = int(np.sum(~deficient[index]))
        raise RankError(
            f"the derivative of a polar decomposition needs matrices of full rank, and {which} has rank {found} "
            f"where {values.shape[-1]} is full"
        )
    back = np.conjugate(np.swapaxes(vectors, -1, -2))
    quotient = np.matmul(np.matmul(back, c), vectors) / (values[..., :, None] + values[..., None, :])
    return np.matmul(np.matmul(vectors, quotient), back)


def _lyapunov_p_vjp(ct: Tensor, z: Tensor, p: Tensor, c: Tensor, *, rank: float) -> Tensor:
    c_ct, back = lyapunov(p, ct, rank), adjoint(z)
    return hermitian_part(negative(add(matmul(c_ct, back), matmul(back, c_ct))))


def _lyapunov_p_jvp(t: Tensor, z: Tensor, p: Tensor, c: Tensor, *, rank: float) -> Tensor:
    t = hermitian_part(t)
    return negative(lyapunov(p, add(matmul(t, z), matmul(z, t)), rank))


def _lyapunov_c_rule(ct: Tensor, z: Tensor, p: Tensor, c: Tensor, *, rank: float) -> Tensor:
    return lyapunov(p, ct, rank)


LYAPUNOV = register(
    Op(
        "lyapunov",
        infer=lambda p, c, *, rank: (c.shape, promote(p.dtype, c.dtype)),
        kernel=_lyapunov_kernel,
        vjp=(_lyapunov_p_vjp, _lyapunov_c_rule),
        jvp=(_lyapunov_p_jvp, _lyapunov_c_rule),
        params={"rank": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.leading,
    )
)
