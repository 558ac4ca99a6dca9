"""The QR decomposition, and LQ, its mirror image.

One rule serves tall, square and wide matrices. With k = min(m, n), the first k columns of R are a triangle U and the
others, of which a tall matrix has none, are V. R has a real diagonal: that, and orthonormal columns of Q, is all that
fixes the factors, up to signs. So the tangent of Q is Q·Ω plus what leaves the span of Q, where Ω is skew and all that
is left of Qᴴ·dA·U⁻¹ beside an upper triangle with a real diagonal. The rules for cotangents are the adjoint of that.

What the factors leave open is checked when a derivative is computed: the phases of the columns of Q
(`check_phases`), the basis of the columns that complete Q, and columns that do not exist in a matrix without full rank
(`unspool._ops.linalg.qr_checks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape
from unspool._dtypes import COMPLEX
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.contraction import matmul
from unspool._ops.creation import zeros
from unspool._ops.elementwise import add, negative, subtract
from unspool._ops.layout import concat, triu
from unspool._ops.linalg.factoring import lapack
from unspool._ops.linalg.gauge import Tolerances
from unspool._ops.linalg.matrices import adjoint, as_matrix, smaller_side
from unspool._ops.linalg.qr_checks import (
    check_basis,
    check_phases,
    divide_cotangent,
    divide_full_rank,
    tolerances_of_call,
)
from unspool._ops.linalg.triangular import lower_half
from unspool._ops.op import OUTPUT, STRUCTURE, Op, parts, register
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class QRResult(NamedTuple):
    """The factors of a QR decomposition: ``Q @ R``."""

    Q: Tensor
    R: Tensor


class LQResult(NamedTuple):
    """The factors of an LQ decomposition: ``L @ Q``."""

    L: Tensor
    Q: Tensor


# --- the public functions --------------------------------------------------------------------------------------------


def qr(
    x: Any, mode: str = "reduced", *, positive: bool = False, gauge: str = "check", rtol: float | None = None
) -> Any:
    """Decompose matrices into orthonormal columns Q and an upper triangle R.

    Parameters
    ----------
    x : array_like
        Matrices of any shape m by n, in the last two axes.
    mode : {"reduced", "complete", "r"}
        With k = min(m, n): Q of shape (m, k) and R of shape (k, n); or Q of shape (m, m) and R of shape (m, n); or R
        of the reduced decomposition alone.
    positive : bool
        Whether to make the diagonal of R non-negative, which fixes the signs, or phases, of the columns of Q.
    gauge : {"check", "fixed"}
        What to do when a loss depends on the phases of the columns of a complex Q: refuse, with `GaugeError`, or
        differentiate the convention that the diagonal of R is real. With ``positive=True`` nothing is left open. The
        basis of the columns that complete Q follows no convention: a loss may depend on their span alone.
    rtol : float, optional
        How small an element of the diagonal of R is, relative to the largest element of R, for the matrix to count as
        one without full rank.

    Returns
    -------
    QRResult
        The named tuple ``(Q, R)``; R alone with ``mode="r"``.

    Raises
    ------
    GaugeError
        When a gradient runs, if the loss depends on what the decomposition leaves open.
    RankError
        When a gradient runs, if the leading columns are linearly dependent and the gradient depends on it.

    Examples
    --------
    >>> import unspool as us
    >>> Q, R = us.linalg.qr([[3.0, 1.0], [4.0, 2.0]], positive=True)
    >>> R.eval()
    array([[5. , 2.2],
           [0. , 0.4]])
    """
    x = as_matrix(x, "qr")
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"qr has the modes 'reduced', 'complete' and 'r', got {mode!r}")
    if gauge not in ("check", "fixed"):
        raise ArgumentError(f"gauge is 'check' or 'fixed', got {gauge!r}")
    checked = gauge == "check" and not positive and x.dtype in COMPLEX
    bundle = _graph.apply_multi(
        QR,
        x,
        complete=mode == "complete",
        positive=bool(positive),
        checked=checked,
        tol=tolerances_of_call(x.dtype, rtol),
    )
    q, r = parts(bundle)
    return r if mode == "r" else QRResult(q, r)


def lq(
    x: Any, mode: str = "reduced", *, positive: bool = False, gauge: str = "check", rtol: float | None = None
) -> Any:
    """Decompose matrices into a lower triangle L and orthonormal rows Q: the adjoint of a `qr` of the adjoint.

    Parameters
    ----------
    x : array_like
        Matrices of any shape m by n, in the last two axes.
    mode : {"reduced", "complete", "l"}
        With k = min(m, n): L of shape (m, k) and Q of shape (k, n); or L of shape (m, n) and Q of shape (n, n); or L
        of the reduced decomposition alone.
    positive, gauge, rtol
        As for `qr`, of L and the rows of Q.

    Returns
    -------
    LQResult
        The named tuple ``(L, Q)``; L alone with ``mode="l"``.

    Examples
    --------
    >>> import unspool as us
    >>> L, Q = us.linalg.lq([[3.0, 4.0], [1.0, 2.0]], positive=True)
    >>> L.eval()
    array([[5. , 0. ],
           [2.2, 0.4]])
    """
    x = as_matrix(x, "lq")
    if mode not in ("reduced", "complete", "l"):
        raise ArgumentError(f"lq has the modes 'reduced', 'complete' and 'l', got {mode!r}")
    if mode == "l":
        return adjoint(qr(adjoint(x), "r", positive=positive, gauge=gauge, rtol=rtol))
    q, r = qr(adjoint(x), mode, positive=positive, gauge=gauge, rtol=rtol)
    return LQResult(adjoint(r), adjoint(q))


# --- shapes and values -----------------------------------------------------------------------------------------------


def _infer(x: Node, *, complete: bool, **params: Any) -> tuple[tuple[Shape, Any], ...]:
    *stack, rows, columns = x.shape
    inner = rows if complete else smaller_side(x.shape)
    return ((*stack, rows, inner), x.dtype), ((*stack, inner, columns), x.dtype)


def _kernel(x: Any, *, complete: bool, positive: bool, **params: Any) -> Any:
    if x.ndim == 2 and x.size and not complete:
        q, r = _decompose(x)
    else:
        q, r = np.linalg.qr(x, "complete" if complete else "reduced")
    diagonal = np.diagonal(r, 0, -2, -1)
    # LAPACK makes the diagonal real; should one not, the rules still rely on it.
    if positive or np.any(np.imag(diagonal)):
        q, r = _with_positive_diagonal(q, r, diagonal)
    return q, r


def _decompose(x: Any) -> tuple[Any, Any]:
    """Return the reduced factors of one matrix: LAPACK called directly, at half the time of NumPy's call of it."""
    rows, columns = x.shape
    k = min(rows, columns)
    # The columns of a block that is worked on together; any number works.
    workspace = 64 * columns
    packed, tau, _, _ = lapack("geqrf", x.dtype)(x, lwork=workspace)
    r = np.triu(packed[:k])
    name = "ungqr" if x.dtype.kind == "c" else "orgqr"
    q, _, _ = lapack(name, x.dtype)(packed[:, :k], tau, lwork=workspace, overwrite_a=1)
    return np.ascontiguousarray(q), np.ascontiguousarray(r)


def _with_positive_diagonal(q: Any, r: Any, diagonal: Any) -> tuple[Any, Any]:
    size = np.abs(diagonal)
    phase = np.where(size == 0, 1, diagonal / np.where(size == 0, 1, size)).astype(r.dtype)
    count = diagonal.shape[-1]
    q, r = q.copy(), r.copy()
    q[..., :, :count] *= phase[..., None, :]
    r[..., :count, :] *= np.conjugate(phase)[..., :, None]
    along = np.arange(count)
    r[..., along, along] = size
    return q, r


# --- reverse mode ----------------------------------------------------------------------------------------------------


def _vjp(ct: Any, out: Any, x: Tensor, *, complete: bool, positive: bool, checked: bool, tol: Tolerances) -> Tensor:
    (q_ct, r_ct), (q, r) = ct, out
    k = smaller_side(x.shape)
    whole = q, r, r_ct
    if complete:
        first, rest = q[..., :, :k], q[..., :, k:]
        if q_ct is not None:
            q_ct = _reduced_cotangent(q_ct[..., :, :k], q_ct[..., :, k:], first, rest, tol)
        q, r = first, r[..., :k, :]
        r_ct = None if r_ct is None else r_ct[..., :k, :]
    return _reduced_vjp(q_ct, r_ct, q, r, whole, checked, tol)


def _reduced_cotangent(first_ct: Tensor, rest_ct: Tensor, first: Tensor, rest: Tensor, tol: Tolerances) -> Tensor:
    """Return the cotangent of the first columns, with what the columns that complete them send.

    The latter span what the former do not, so they move by -Q₁·dQ₁ᴴ·Q₂, and within their span in no defined way.
    """
    if _dims.equal(rest.shape[-1], 0) is True:
        return first_ct
    rest_ct = check_basis(rest_ct, rest, tol)
    return subtract(first_ct, matmul(rest, matmul(adjoint(rest_ct), first)))


def _reduced_vjp(
    q_ct: Tensor | None,
    r_ct: Tensor | None,
    q: Tensor,
    r: Tensor,
    whole: tuple[Tensor, Tensor, Tensor | None],
    checked: bool,
    tol: Tolerances,
) -> Tensor:
    """Return the cotangent of the matrix; ``whole`` is for `divide_cotangent`, which may need the rows below R."""
    k = q.shape[-1]
    u = r[..., :, :k]
    tall = _dims.equal(r.shape[-1], k) is True
    # R·R̄ᴴ - Q̄ᴴ·Q over all columns; those of V act on Q as if they were part of its own cotangent.
    inner: Any = None
    q_total = q_ct
    if r_ct is not None:
        inner = matmul(u, adjoint(r_ct[..., :, :k]))
        if not tall:
            outside = matmul(r[..., :, k:], adjoint(r_ct[..., :, k:]))
            inner = subtract(inner, adjoint(outside))
            moved = matmul(q, outside)
            q_total = moved if q_ct is None else add(q_ct, moved)
    if q_ct is not None:
        sent = matmul(adjoint(q_ct), q)
        inner = negative(sent) if inner is None else subtract(inner, sent)
    if checked:
        inner = check_phases(inner, q_ct, r, r_ct, tol)
    half = lower_half(inner)
    product = matmul(q, add(half, adjoint(half)))
    numerator = product if q_total is None else add(q_total, product)
    x_ct = divide_cotangent(numerator, u, q_ct, *whole, tol)
    if tall:
        return x_ct
    rest = zeros((*q.shape[:-1], r.shape[-1] - k), q.dtype) if r_ct is None else matmul(q, r_ct[..., :, k:])
    return concat([x_ct, rest], axis=-1)


# --- forward mode ----------------------------------------------------------------------------------------------------


def _jvp(tangents: Any, out: Any, x: Tensor, *, complete: bool, positive: bool, checked: bool, tol: Tolerances) -> Any:
    (t,), (q, r) = tangents, out
    k = smaller_side(x.shape)
    if not complete:
        return _reduced_jvp(t, q, r, tol)
    first, rest = q[..., :, :k], q[..., :, k:]
    q_t, r_t = _reduced_jvp(t, first, r[..., :k, :], tol)
    rest_t = negative(matmul(first, matmul(adjoint(q_t), rest)))
    below = zeros((*r.shape[:-2], r.shape[-2] - k, r.shape[-1]), r.dtype)
    return concat([q_t, rest_t], axis=-1), concat([r_t, below], axis=-2)


def _reduced_jvp(t: Tensor, q: Tensor, r: Tensor, tol: Tolerances) -> tuple[Tensor, Tensor]:
    k = q.shape[-1]
    moved = divide_full_rank(t[..., :, :k], r[..., :, :k], tol)
    within = matmul(adjoint(q), moved)
    half = lower_half(within)
    turn = subtract(half, adjoint(half))
    q_t = subtract(moved, matmul(q, subtract(within, turn)))
    r_t = triu(subtract(matmul(adjoint(q), t), matmul(turn, r)))
    return q_t, r_t


QR = register(
    Op(
        "qr",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=_jvp,
        params={"complete": STRUCTURE, "positive": STRUCTURE, "checked": STRUCTURE, "tol": STRUCTURE},
        needs=(OUTPUT,),
        multi=True,
        batch=batching.leading,
    )
)
