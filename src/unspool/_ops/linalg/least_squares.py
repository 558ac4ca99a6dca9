"""Least squares and pseudoinverses, for matrices of any shape.

The pseudoinverse has one formula for its derivative, the same for tall and wide matrices and for any rank, as long as
the rank stays what it is. Where a matrix has less than full rank it does not stay: an arbitrarily small change makes
the pseudoinverse arbitrarily large. So a derivative there raises `RankError`, unless the caller has said, by passing a
tolerance, that what lies below it is zero and remains so.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._dims import Shape, Size, is_concrete
from unspool._dtypes import INT64
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout, reduction
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.contraction import matmul
from unspool._ops.linalg import gauge
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.matrices import adjoint, as_matrix, as_square, hermitian_part
from unspool._ops.linalg.solving import matrix_and_columns
from unspool._ops.linalg.svd import svdvals
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, parts, register
from unspool.errors import ArgumentError, RankError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class LstsqResult(NamedTuple):
    """A solution of least squares and what else there is to know about it."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Minimise ``norm(b - a @ x)``; of all minima the one with the smallest ``norm(x)``.

    Parameters
    ----------
    a : array_like, shape (..., m, n)
        Matrices of any shape and rank.
    b : array_like, shape (m,) or (..., m, k)
        A vector if it has one axis, else matrices of columns; leading axes broadcast against those of ``a``.
    rcond : float, optional
        Singular values up to ``rcond`` times the largest are taken to be zero. By default the rank tolerance of
        `tolerances`, if one was set, else ``max(m, n)`` times the precision of the data type.

    Returns
    -------
    LstsqResult
        ``solution``, ``residuals`` (sums of squares, one per column of ``b``), ``rank`` and ``singular_values``. Other
        than in NumPy, residuals are there for every shape and rank.

    Notes
    -----
    At a matrix of less than full rank the derivative raises `RankError` when it is computed. With a tolerance that
    was set it is the derivative at constant rank.

    Examples
    --------
    >>> import unspool as us
    >>> line = us.linalg.lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 3.0, 5.0])
    >>> line.solution.eval().round(12)
    array([1., 2.])
    """
    a, b = matrix_and_columns(as_matrix(a, "lstsq"), b, "lstsq")
    columns = layout.reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    rtol = chosen_tolerance(rcond, "rcond")
    pinvs, ranks = _pinv(a, rtol=rtol, hermitian=False)
    stack = broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    stretched = [layout.broadcast_to(x, (*stack, *x.shape[-2:])) for x in (pinvs, a, columns)]
    rank = layout.broadcast_to(ranks, stack)
    x = _graph.apply(LSTSQ, stretched[0], rank, *stretched[1:], constant_rank=rtol is not None)
    residue = elementwise.subtract(stretched[2], matmul(stretched[1], x))
    # Not the square of a modulus, which has a kink where a residue is zero.
    squares = elementwise.real(elementwise.multiply(elementwise.conj(residue), residue))
    residuals = reduction.sum(squares, axis=-2)
    solution = layout.reshape(x, x.shape[:-1]) if b.ndim == 1 else x
    return LstsqResult(solution, residuals, ranks, svdvals(a))


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """Moore-Penrose pseudoinverses of matrices of any shape.

    Parameters
    ----------
    a : array_like, shape (..., m, n)
        The matrices.
    rcond, rtol : float or array_like, optional
        Two names for one number, or one for each matrix of a stack: singular values up to ``rtol`` times the largest
        are taken to be zero. By default the rank tolerance of `tolerances`, if one was set, else ``max(m, n)`` times
        the precision of the data type.
    hermitian : bool
        The matrices are Hermitian; their Hermitian part is used, and an eigenvalue decomposition.

    Notes
    -----
    At a matrix of less than full rank the derivative raises `RankError` when it is computed. With a tolerance that
    was set it is the derivative at constant rank.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.pinv([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]).eval()
    array([[0.5 , 0.  , 0.  ],
           [0.  , 0.25, 0.  ]])
    """
    if rcond is not None and rtol is not None:
        raise ArgumentError(f"rcond and rtol of pinv are one thing, got rcond={rcond!r} and rtol={rtol!r}")
    tolerance = chosen_tolerance(rcond, "rcond") if rtol is None else chosen_tolerance(rtol, "rtol")
    a = hermitian_part(as_square(a, "pinv of Hermitian matrices")) if hermitian else as_matrix(a, "pinv")
    return _pinv(stacked_for(a, tolerance), rtol=tolerance, hermitian=bool(hermitian))[0]


# A number, or one for each matrix of a stack: the shape of that and the numbers, as a hashable parameter.
Tolerance = float | tuple[tuple[int, ...], tuple[float, ...]]


def chosen_tolerance(value: Any, name: str) -> Tolerance | None:
    """Return the tolerance of an argument, else that of the context (`tolerances`), else ``None``."""
    if value is None:
        return gauge.user_tolerance("rank")
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array(math.nan)
    if not np.isfinite(numbers).all():
        raise ArgumentError(f"{name} has to be a number, got {value!r}")
    return (numbers.shape, tuple(numbers.ravel().tolist())) if numbers.ndim else float(numbers)


def stacked_for(a: Tensor, tolerance: Tolerance | None) -> Tensor:
    """Return matrices as a stack that has one for each number of a tolerance."""
    if not isinstance(tolerance, tuple):
        return a
    return layout.broadcast_to(a, (*broadcast_shapes(a.shape[:-2], tolerance[0]), *a.shape[-2:]))


# --- numbers that every kernel here starts from ----------------------------------------------------------------------


def relative_tolerance(a: Any, rtol: Tolerance | None) -> Any:
    """Return the tolerance below which singular values are noise, relative to the largest."""
    # As in NumPy, a negative number asks for the precision of the data type.
    eps = float(np.finfo(a.dtype).eps)
    if rtol is None:
        return float(max(a.shape[-2:]) * eps)
    if isinstance(rtol, tuple):
        numbers = as_numbers(rtol)
        return np.where(numbers >= 0, numbers, eps)
    return rtol if rtol >= 0 else eps


def as_numbers(tolerance: Tolerance) -> Any:
    """Return a tolerance to compare singular values with."""
    return np.reshape(tolerance[1], (*tolerance[0], 1)) if isinstance(tolerance, tuple) else tolerance


def large(s: Any, rtol: Any) -> Any:
    """Return which singular values are not noise."""
    return s > rtol * np.max(s, axis=-1, keepdims=True, initial=0)


# --- the op pinv -----------------------------------------------------------------------------------------------------


def _pinv(a: Tensor, *, rtol: Tolerance | None, hermitian: bool) -> tuple[Tensor, Tensor]:
    """Return pseudoinverses and ranks."""
    pinvs, ranks = parts(_graph.apply_multi(PINV, a, rtol=rtol, hermitian=hermitian))
    return pinvs, ranks


def _infer_pinv(a: Node, *, rtol: Tolerance | None, hermitian: bool) -> Any:
    *stack, rows, columns = a.shape
    return ((*stack, columns, rows), a.dtype), (tuple(stack), INT64)


def _pinv_kernel(a: Any, *, rtol: Tolerance | None, hermitian: bool) -> tuple[Any, Any]:
    refuse_not_finite(a, "pinv")
    u, s, vh = np.linalg.svd(a, full_matrices=False, hermitian=hermitian)
    kept = large(s, relative_tolerance(a, rtol))
    inverted = np.divide(1, s, out=np.zeros_like(s), where=kept)
    pinvs = np.matmul(_adjoint(vh) * inverted[..., None, :], _adjoint(u))
    return pinvs, np.count_nonzero(kept, axis=-1)


def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -2, -1))


def _vjp_pinv(ct: Any, out: Any, a: Tensor, *, rtol: Tolerance | None, hermitian: bool) -> Tensor | None:
    ct = ct[0]
    if ct is None:
        return None
    p = _differentiable(*out, constant_rank=rtol is not None)
    ph, cth = adjoint(p), adjoint(ct)
    tall = _chain(elementwise.subtract(cth, _chain(a, p, cth)), p, ph)
    wide = _chain(ph, p, elementwise.subtract(cth, _chain(cth, p, a)))
    return elementwise.subtract(elementwise.add(tall, wide), _chain(ph, ct, ph))


def _jvp_pinv(tangents: Any, out: Any, a: Tensor, *, rtol: Tolerance | None, hermitian: bool) -> Any:
    t = tangents[0]
    p = _differentiable(*out, constant_rank=rtol is not None)
    ph, th = adjoint(p), adjoint(t)
    tall = _chain(p, ph, elementwise.subtract(th, _chain(th, a, p)))
    wide = _chain(elementwise.subtract(th, _chain(p, a, th)), ph, p)
    return elementwise.subtract(elementwise.add(tall, wide), _chain(p, t, p)), None


def _chain(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Multiply three matrices, the cheaper pair first where sizes are known."""
    rows, inner, middle, columns = x.shape[-2], y.shape[-2], y.shape[-1], z.shape[-1]
    if is_concrete((rows, inner, middle, columns)) and _later_first(rows, inner, middle, columns):
        return matmul(x, matmul(y, z))
    return matmul(matmul(x, y), z)


def _later_first(rows: Size, inner: Size, middle: Size, columns: Size) -> bool:
    return bool(inner * middle * columns + rows * inner * columns < rows * inner * middle + rows * middle * columns)


PINV = register(
    Op(
        "pinv",
        infer=_infer_pinv,
        kernel=_pinv_kernel,
        vjp=(_vjp_pinv,),
        jvp=_jvp_pinv,
        params={"rtol": STRUCTURE, "hermitian": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        multi=True,
        batch=batching.leading,
    )
)


# --- full rank, or no derivative -------------------------------------------------------------------------------------


def _differentiable(pinvs: Tensor, ranks: Tensor, *, constant_rank: bool) -> Tensor:
    """Return pseudoinverses for use in a derivative: as they are, or refused where the rank is not full."""
    return pinvs if constant_rank else _graph.apply(FULL_RANK, pinvs, ranks)


def _full_rank_kernel(x: Any, ranks: Any) -> Any:
    full = min(x.shape[-2:])
    deficient = np.asarray(ranks) < full
    if deficient.any():
        index = tuple(int(i) for i in np.argwhere(deficient)[0])
        place = f" (matrix {', '.join(map(str, index))} of the stack)" if index else ""
        raise RankError(
            f"a pseudoinverse has no derivative where the rank is less than full: a matrix of shape "
            f"{x.shape[:-3:-1]} has rank {ranks[index]}{place}; pass a tolerance (rcond or rtol) to differentiate "
            f"at constant rank"
        )
    return x


FULL_RANK = register(
    Op(
        "full_rank_pinv",
        infer=lambda x, ranks: (x.shape, x.dtype),
        kernel=_full_rank_kernel,
        vjp=(lambda ct, out, x, ranks: ct, None),
        jvp=(lambda t, out, x, ranks: t, None),
        batch=batching.leading,
    )
)


# --- the op lstsq ----------------------------------------------------------------------------------------------------
# It is the product of a pseudoinverse with b. A rule of its own keeps the first derivative to products with columns.


def _infer_lstsq(p: Node, ranks: Node, a: Node, b: Node, *, constant_rank: bool) -> tuple[Shape, Any]:
    return (*p.shape[:-1], b.shape[-1]), p.dtype


def _vjp_lstsq_a(
    ct: Tensor, x: Tensor, p: Tensor, ranks: Tensor, a: Tensor, b: Tensor, *, constant_rank: bool
) -> Tensor:
    p = _differentiable(p, ranks, constant_rank=constant_rank)
    z = matmul(adjoint(p), ct)
    residue = elementwise.subtract(b, matmul(a, x))
    unseen = elementwise.subtract(ct, matmul(adjoint(a), z))
    along = elementwise.subtract(_outer(residue, matmul(p, z)), _outer(z, x))
    return elementwise.add(along, _outer(matmul(adjoint(p), x), unseen))


def _outer(x: Tensor, y: Tensor) -> Tensor:
    return matmul(x, adjoint(y))


def _vjp_lstsq_b(
    ct: Tensor, x: Tensor, p: Tensor, ranks: Tensor, a: Tensor, b: Tensor, *, constant_rank: bool
) -> Tensor:
    return matmul(adjoint(p), ct)


def _jvp_lstsq_a(
    t: Tensor, x: Tensor, p: Tensor, ranks: Tensor, a: Tensor, b: Tensor, *, constant_rank: bool
) -> Tensor:
    p = _differentiable(p, ranks, constant_rank=constant_rank)
    th, residue = adjoint(t), elementwise.subtract(b, matmul(a, x))
    reached = matmul(p, elementwise.subtract(matmul(adjoint(p), matmul(th, residue)), matmul(t, x)))
    turned = matmul(th, matmul(adjoint(p), x))
    return elementwise.add(reached, elementwise.subtract(turned, matmul(p, matmul(a, turned))))


def _jvp_lstsq_b(
    t: Tensor, x: Tensor, p: Tensor, ranks: Tensor, a: Tensor, b: Tensor, *, constant_rank: bool
) -> Tensor:
    return matmul(p, t)


LSTSQ = register(
    Op(
        "lstsq",
        infer=_infer_lstsq,
        kernel=lambda p, ranks, a, b, *, constant_rank: np.matmul(p, b),
        vjp=(None, None, _vjp_lstsq_a, _vjp_lstsq_b),
        jvp=(None, None, _jvp_lstsq_a, _jvp_lstsq_b),
        params={"constant_rank": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.leading,
    )
)
