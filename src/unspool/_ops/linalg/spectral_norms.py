"""What follows from singular values alone: spectral norms and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import INT64
from unspool._graph import Node
from unspool._ops import batching, elementwise, reduction
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.least_squares import (
    Tolerance,
    as_numbers,
    chosen_tolerance,
    large,
    relative_tolerance,
    stacked_for,
)
from unspool._ops.linalg.matrices import as_matrix, as_square, hermitian_part
from unspool._ops.linalg.svd import svdvals
from unspool._ops.op import STRUCTURE, Op, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def spectral_norm(x: Any, ord: Any) -> Tensor:
    """Return the matrix norms that singular values give: 2 (the largest), -2 (the smallest), "nuc" (their sum).

    Like those of other norms, their derivatives at zero are 0.
    """
    x = as_matrix(x, "norm")
    values = svdvals(x)
    if ord == "nuc" or (ord == 2 and values.shape[-1] == 0):
        norms = reduction.sum(values, axis=-1)
    else:
        norms = extreme(values, largest=ord == 2)
    return elementwise.where(reduction.any(elementwise.not_equal(x, 0), axis=(-2, -1)), norms, 0.0)


def extreme(values: Tensor, *, largest: bool) -> Tensor:
    """Return the largest or the smallest singular value: which one that is does not depend on the values."""
    if values.shape[-1] == 0:
        raise ShapeError(
            f"a matrix without rows or columns has no {'largest' if largest else 'smallest'} singular value"
        )
    return values[..., 0 if largest else -1]


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tensor:
    """Ranks of matrices: how many singular values are not zero, up to a tolerance.

    Parameters
    ----------
    A : array_like, shape (..., m, n)
        The matrices. What has fewer axes has rank 0 if it is zero, else 1.
    tol : float or array_like, optional
        Singular values up to this number, which may be one for each matrix of a stack, count as zero.
    hermitian : bool
        The matrices are Hermitian; their Hermitian part is used, and eigenvalues.
    rtol : float or array_like, optional
        The same, relative to the largest one. By default the rank tolerance of `tolerances`, if one was set, else
        ``max(m, n)`` times the precision of the data type.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]).eval()
    array(1)
    """
    if tol is not None and rtol is not None:
        raise ArgumentError(f"matrix_rank takes tol or rtol, got tol={tol!r} and rtol={rtol!r}")
    a = as_tensor(A)
    if a.ndim < 2:
        return elementwise.astype(reduction.any(elementwise.not_equal(a, 0)), INT64)
    a = hermitian_part(as_square(a, "matrix_rank of Hermitian matrices")) if hermitian else as_matrix(a, "matrix_rank")
    absolute = None if tol is None else chosen_tolerance(tol, "tol")
    relative = chosen_tolerance(rtol, "rtol")
    a = stacked_for(stacked_for(a, absolute), relative)
    return _graph.apply(MATRIX_RANK, a, tol=absolute, rtol=relative, hermitian=bool(hermitian))


def _infer_rank(a: Node, *, tol: Tolerance | None, rtol: Tolerance | None, hermitian: bool) -> tuple[Shape, Any]:
    return a.shape[:-2], INT64


def _rank_kernel(a: Any, *, tol: Tolerance | None, rtol: Tolerance | None, hermitian: bool) -> Any:
    refuse_not_finite(a, "matrix_rank")
    s = np.linalg.svd(a, compute_uv=False, hermitian=hermitian)
    kept = s > as_numbers(tol) if tol is not None else large(s, relative_tolerance(a, rtol))
    return np.count_nonzero(kept, axis=-1)


MATRIX_RANK = register(
    Op(
        "matrix_rank",
        infer=_infer_rank,
        kernel=_rank_kernel,
        params={"tol": STRUCTURE, "rtol": STRUCTURE, "hermitian": STRUCTURE},
        batch=batching.leading,
    )
)
