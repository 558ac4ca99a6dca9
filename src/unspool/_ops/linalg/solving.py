"""Linear equations and inverses.

The one idea: the derivative of a solution is a solution with the same matrix or its adjoint, so a node holds the
factors (`factoring`) and its derivative rules use them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, equal, product
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.broadcasting import broadcast_shapes, ensure_shape
from unspool._ops.contraction import matmul
from unspool._ops.contraction.contract import common_size, contract
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg import elimination
from unspool._ops.linalg.batching import side_by_side
from unspool._ops.linalg.factoring import is_factored, lapack, lu_factors, refuse_singular, singular, stack_of
from unspool._ops.linalg.finite import nan_to_nan
from unspool._ops.linalg.matrices import adjoint as adjoint_of
from unspool._ops.linalg.matrices import as_square
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def solve(a: Any, b: Any) -> Tensor:
    """Solve ``a @ x = b``, as ``numpy.linalg.solve``.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        Invertible matrices. A singular one raises `RankError` when the value is computed.
    b : array_like, shape (n,) or (..., n, k)
        A vector if it has one axis, else matrices of columns; leading axes broadcast against those of ``a``.

    Notes
    -----
    A matrix is factored once, however often it is solved with, also by derivatives of any order.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor([[2.0, 0.0], [0.0, 4.0]])
    >>> x = us.linalg.solve(a, [2.0, 2.0])
    >>> x.eval()
    array([1. , 0.5])
    >>> us.sum(x).grad(a).eval()
    array([[-0.5  , -0.25 ],
           [-0.25 , -0.125]])
    """
    a, b = matrix_and_columns(as_square(a, "solve"), b, "solve")
    if a.ndim == 2:
        return _solve_side_by_side(a, b)
    columns = layout.reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    x = _solve(*_stretched(a, columns))
    return layout.reshape(x, x.shape[:-1]) if b.ndim == 1 else x


def inv(a: Any) -> Tensor:
    """Invert matrices; a singular one raises `RankError` when the value is computed.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.inv([[1.0, 2.0], [3.0, 4.0]]).eval().round(12)
    array([[-2. ,  1. ],
           [ 1.5, -0.5]])
    """
    return inverse(as_square(a, "inv"), strict=True)


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Solve ``tensordot(a, x, x.ndim) = b`` for a tensor ``x``, as ``numpy.linalg.tensorsolve``.

    Parameters
    ----------
    a : array_like
        Of shape ``b.shape + x.shape``, with as many elements in each of the two parts.
    b : array_like
        The right-hand side.
    axes : sequence of int, optional
        Axes of ``a`` to move to the end first.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.reshape(us.eye(6), (6, 2, 3))
    >>> us.linalg.tensorsolve(a, us.ones(6)).shape
    (2, 3)
    """
    a, b = as_tensor(a), as_tensor(b)
    if axes is not None:
        given: Any = axes
        axes = tuple(given) if isinstance(given, Iterable) else (given,)
        moved = [layout.normalize_axis(axis, a.ndim) for axis in axes]
        a = layout.permute_dims(a, [axis for axis in range(a.ndim) if axis not in moved] + moved)
    # As in NumPy, the axes of x are those of a beyond as many as b has.
    shape = a.shape[b.ndim :]
    rows, columns = product(a.shape[: b.ndim]), product(shape)
    if b.ndim > a.ndim or equal(rows, columns) is False or equal(rows, product(b.shape)) is False:
        raise ShapeError(
            f"tensorsolve takes a tensor of shape b.shape + x.shape with x as large as b, got {a.shape} for a "
            f"and {b.shape} for b"
        )
    x = solve(layout.reshape(a, (rows, columns)), layout.reshape(b, (product(b.shape),)))
    return layout.reshape(x, shape)


def tensorinv(a: Any, ind: Any = 2) -> Tensor:
    """Invert a tensor as a map from its last axes to its first ``ind``, as ``numpy.linalg.tensorinv``.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.tensorinv(us.reshape(us.eye(6), (6, 2, 3)), ind=1).shape
    (2, 3, 6)
    """
    a = as_tensor(a)
    if not isinstance(ind, (int, np.integer)) or ind <= 0:
        raise ArgumentError(f"tensorinv takes a positive number of axes as ind, got {ind!r}")
    first, last = a.shape[:ind], a.shape[ind:]
    if equal(product(first), product(last)) is False:
        raise ShapeError(f"tensorinv takes as many elements in {first} as in {last}, got shape {a.shape}, ind={ind}")
    return layout.reshape(inv(layout.reshape(a, (product(first), product(last)))), (*last, *first))


# --- for this package ------------------------------------------------------------------------------------------------


def inverse(a: Tensor, *, strict: bool) -> Tensor:
    """Invert square matrices; where they are singular raise, or, if not strict, give infinities."""
    return _graph.apply(INV, *lu_factors(a), a, strict=strict)


def matrix_and_columns(a: Tensor, b: Any, what: str) -> tuple[Tensor, Tensor]:
    """Return both sides of linear equations in one data type, with as many rows in ``b`` as in ``a``."""
    b = elementwise.as_inexact(b)
    if b.ndim == 0:
        raise ShapeError(f"{what} takes a right-hand side with at least one axis, got a scalar")
    axis = b.ndim - min(b.ndim, 2)
    if a.shape[-2] != b.shape[axis]:
        a, b = _with_equal_rows(a, b, axis, what)
    if a.dtype is b.dtype:
        return a, b
    dtype = promote(a.dtype, b.dtype)
    return elementwise.astype(a, dtype), elementwise.astype(b, dtype)


def _with_equal_rows(a: Tensor, b: Tensor, axis: int, what: str) -> tuple[Tensor, Tensor]:
    rows = common_size(a.shape[-2], b.shape[axis])
    if rows is None:
        raise ShapeError(f"{what} takes as many rows on the right as on the left, got shapes {a.shape} and {b.shape}")
    columns = rows if a.shape[-1] == a.shape[-2] else a.shape[-1]
    a = ensure_shape(a, (*a.shape[:-2], rows, columns))
    return a, ensure_shape(b, (*b.shape[:axis], rows, *b.shape[axis + 1 :]))


def _stretched(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return two stacks of matrices, broadcast to one shape of the stack."""
    stack = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return layout.broadcast_to(a, (*stack, *a.shape[-2:])), layout.broadcast_to(b, (*stack, *b.shape[-2:]))


def _solve_side_by_side(a: Tensor, b: Tensor) -> Tensor:
    """Solve with one matrix: the columns of a whole stack go side by side, so that it is factored once."""
    if b.ndim <= 2:
        return _solve(a, b)
    rows = b.ndim - 2
    order = [rows, *(axis for axis in range(b.ndim) if axis != rows)]
    b = layout.permute_dims(b, order)
    x = _solve(a, layout.reshape(b, (b.shape[0], product(b.shape[1:]))))
    return layout.permute_dims(layout.reshape(x, b.shape), [order.index(axis) for axis in range(b.ndim)])


# --- the op solve ----------------------------------------------------------------------------------------------------


def _solve(a: Tensor, b: Tensor) -> Tensor:
    return _graph.apply(SOLVE, *lu_factors(a), a, b, adjoint=False)


def _infer_solve(factors: Node, pivots: Node, a: Node, b: Node, *, adjoint: bool) -> tuple[Shape, Any]:
    return b.shape, b.dtype


def _solve_kernel(factors: Any, pivots: Any, a: Any, b: Any, *, adjoint: bool) -> Any:
    if a.dtype == object:
        return elimination.solve(np.swapaxes(a, -2, -1) if adjoint else a, b)
    if not is_factored(a):
        return nan_to_nan(lambda m: _solve_small(np.conj(np.swapaxes(m, -2, -1)) if adjoint else m, b), a)
    refuse_singular(factors, a)
    if b.size == 0:
        return np.zeros(b.shape, b.dtype)
    getrs = lapack("getrs", a.dtype)
    # The factors are those of the adjoint, so the plain equations are the conjugate transposed ones for LAPACK.
    trans = 0 if adjoint else 2
    if a.ndim == 2:
        x = getrs(factors.T, pivots, b, trans=trans)[0]
        # LAPACK gives columns. What reads the solution next meets it beside the right-hand side: it lies as that did.
        return np.ascontiguousarray(x) if b.flags.c_contiguous else x
    x = np.empty(b.shape, b.dtype)
    for index in stack_of(a):
        x[index] = getrs(factors[index].T, pivots[index], b[index], trans=trans)[0]
    return x


def _solve_small(a: Any, b: Any) -> Any:
    try:
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        raise singular(a) from None


def _vjp_solve_a(ct: Tensor, x: Tensor, *inputs: Tensor, adjoint: bool) -> Tensor:
    z = _vjp_solve_b(ct, x, *inputs, adjoint=adjoint)
    left, right = (x, z) if adjoint else (z, x)
    # The sign goes to the columns: there are fewer of them than of the elements of a matrix.
    left = elementwise.negative(left)
    if x.ndim == 1:
        return contract(left, "i", elementwise.conj(right), "j", "ij")
    return matmul(left, adjoint_of(right))


def _vjp_solve_b(ct: Tensor, x: Tensor, *inputs: Tensor, adjoint: bool) -> Tensor:
    return _graph.apply(SOLVE, *inputs[:3], ct, adjoint=not adjoint)


def _jvp_solve_a(t: Tensor, x: Tensor, *inputs: Tensor, adjoint: bool) -> Tensor:
    moved = matmul(adjoint_of(t) if adjoint else t, elementwise.negative(x))
    return _jvp_solve_b(moved, x, *inputs, adjoint=adjoint)


def _jvp_solve_b(t: Tensor, x: Tensor, *inputs: Tensor, adjoint: bool) -> Tensor:
    return _graph.apply(SOLVE, *inputs[:3], t, adjoint=adjoint)


SOLVE = register(
    Op(
        "solve",
        infer=_infer_solve,
        kernel=_solve_kernel,
        vjp=(None, None, _vjp_solve_a, _vjp_solve_b),
        jvp=(None, None, _jvp_solve_a, _jvp_solve_b),
        params={"adjoint": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=side_by_side,
    )
)


# --- the op inv ------------------------------------------------------------------------------------------------------


def _infer_inv(factors: Node, pivots: Node, a: Node, *, strict: bool) -> tuple[Shape, Any]:
    return a.shape, a.dtype


def inverse_kernel(factors: Any, pivots: Any, a: Any, *, strict: bool) -> Any:
    """Compute inverses from factors; where matrices are singular raise, or, if not strict, give infinities."""
    if a.dtype == object:
        return elimination.inverse(a)
    if not is_factored(a):
        return nan_to_nan(lambda m: _invert_small(m, strict), a)
    if strict:
        refuse_singular(factors, a)
    getri, size = lapack("getri", a.dtype), a.shape[-1]
    workspace = int(lapack("getri_lwork", a.dtype)(size)[0].real)
    result = np.empty(a.shape, a.dtype)
    for index in stack_of(a):
        # The inverse of the adjoint, of which the rows that NumPy reads are the columns.
        found, info = getri(factors[index].T, pivots[index], lwork=workspace)
        result[index] = found.T if info == 0 else np.inf
    return np.conjugate(result, out=result) if result.dtype.kind == "c" else result


def _invert_small(a: Any, strict: bool) -> Any:
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        if strict:
            raise singular(a) from None
        return _inverses_or_infinities(a)


def _inverses_or_infinities(a: Any) -> Any:
    regular = np.linalg.slogdet(a)[0] != 0
    safe = np.where(regular[..., None, None], a, np.eye(a.shape[-1], dtype=a.dtype))
    return np.where(regular[..., None, None], np.linalg.inv(safe), np.asarray(np.inf, a.dtype))


def _vjp_inv(ct: Tensor, out: Tensor, factors: Tensor, pivots: Tensor, a: Tensor, *, strict: bool) -> Tensor:
    transposed = adjoint_of(out if strict else inverse(a, strict=True))
    return elementwise.negative(matmul(matmul(transposed, ct), transposed))


def _jvp_inv(t: Tensor, out: Tensor, factors: Tensor, pivots: Tensor, a: Tensor, *, strict: bool) -> Tensor:
    inverted = out if strict else inverse(a, strict=True)
    return elementwise.negative(matmul(matmul(inverted, t), inverted))


INV = register(
    Op(
        "inv",
        infer=_infer_inv,
        kernel=inverse_kernel,
        vjp=(None, None, _vjp_inv),
        jvp=(None, None, _jvp_inv),
        params={"strict": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.leading,
    )
)
