"""Equations with banded matrices, which are given by their diagonals.

Row ``r`` of a band of width ``lower + upper + 1`` is the diagonal ``upper - r``, and its column j is column j of the
matrix. The one idea: reading rows of the matrix instead of columns is shifting each diagonal by its distance from the
main one (`shift_rows`), which is a permutation but for what falls off the ends. So the adjoint of a band and the
products that a derivative of a solution is made of are bands too, and no rule makes the matrix.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, equal
from unspool._dtypes import inexact_dtype, promote
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout, reduction
from unspool._ops.creation import arange
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg.batching import side_by_side
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool.errors import ArgumentError, RankError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def solve_banded(l_and_u: tuple[int, int], ab: Any, b: Any) -> Tensor:
    """Solve ``a @ x = b`` for a banded matrix, in time proportional to its size.

    Parameters
    ----------
    l_and_u : tuple of int
        How many diagonals there are below and above the main one.
    ab : array_like, shape (l + u + 1, n)
        The diagonals, the uppermost first, as in SciPy: ``a[i, j]`` is ``ab[u + i - j, j]``. What belongs to no element
        of the matrix is neither read nor differentiated.
    b : array_like, shape (n,) or (n, k)
        The right side, or several.

    Raises
    ------
    RankError
        When it runs, if the matrix is singular.

    Examples
    --------
    >>> import unspool as us
    >>> diagonals = [[0.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 1.0, 0.0]]
    >>> us.linalg.solve_banded((1, 1), diagonals, [3.0, 4.0, 3.0]).eval()
    array([1., 1., 1.])
    """
    lower, upper = _widths(l_and_u)
    band, right = as_tensor(ab), as_tensor(b)
    if band.ndim != 2 or right.ndim not in (1, 2) or equal(band.shape[0], lower + upper + 1) is False:
        raise ShapeError(
            f"solve_banded takes diagonals of shape ({lower + upper + 1}, n) and right sides of shape (n,) or (n, k), "
            f"got {band.shape} and {right.shape}"
        )
    if equal(band.shape[1], right.shape[0]) is False:
        raise ShapeError(f"solve_banded of diagonals of shape {band.shape} with right sides of shape {right.shape}")
    dtype = inexact_dtype(promote(band.dtype, right.dtype))
    band, right = elementwise.astype(band, dtype), elementwise.astype(right, dtype)
    columns = right if right.ndim == 2 else layout.expand_dims(right, 1)
    x = _solve(band, columns, upper)
    return x if right.ndim == 2 else layout.squeeze(x, 1)


def _widths(l_and_u: Any) -> tuple[int, int]:
    try:
        lower, upper = (operator.index(count) for count in l_and_u)
    except (TypeError, ValueError):
        raise ArgumentError(f"solve_banded takes the numbers of diagonals (l, u), got {l_and_u!r}") from None
    if lower < 0 or upper < 0:
        raise ArgumentError(f"numbers of diagonals are at least 0, got {l_and_u!r}")
    return lower, upper


# --- bands -----------------------------------------------------------------------------------------------------------


def shift_rows(x: Tensor, fixed: int) -> Tensor:
    """Move the elements of row r by ``r - fixed`` places to the left; what comes from beyond the ends is 0."""
    return _graph.apply(SHIFT_ROWS, x, fixed=fixed)


def _shift_rows_kernel(x: Any, *, fixed: int) -> Any:
    result = np.zeros_like(x)
    size = x.shape[-1]
    for row in range(x.shape[-2]):
        step = row - fixed
        count = max(size - abs(step), 0)
        result[..., row, max(-step, 0) : max(-step, 0) + count] = x[..., row, max(step, 0) : max(step, 0) + count]
    return result


def _shift_rows_vjp(ct: Tensor, out: Tensor, x: Tensor, *, fixed: int) -> Tensor:
    rows: Any = x.shape[-2]
    return layout.flip(shift_rows(layout.flip(ct, -2), rows - 1 - fixed), -2)


SHIFT_ROWS = register(
    Op(
        "shift_rows",
        infer=lambda x, *, fixed: (x.shape, x.dtype),
        kernel=_shift_rows_kernel,
        vjp=(_shift_rows_vjp,),
        jvp=(lambda t, out, x, *, fixed: shift_rows(t, fixed),),
        params={"fixed": STRUCTURE},
        batch=batching.leading,
    )
)


def _adjoint(band: Tensor, upper: int) -> tuple[Tensor, int]:
    """Return the diagonals of the conjugate transpose, and how many of them are above the main one."""
    rows: Any = band.shape[0]
    lower = rows - 1 - upper
    return elementwise.conj(shift_rows(layout.flip(band, 0), lower)), lower


def _outer(left: Tensor, right: Tensor, rows: Any, upper: int) -> Tensor:
    """Return the diagonals of left·rightᴴ."""
    shape = (rows, *left.shape)
    spread = layout.moveaxis(layout.broadcast_to(left, shape), 1, 2)
    product = elementwise.multiply(
        layout.moveaxis(shift_rows(layout.moveaxis(spread, 1, 0), upper), 0, 1),
        elementwise.conj(layout.matrix_transpose(right)),
    )
    return reduction.sum(product, axis=1)


def _product(band: Tensor, x: Tensor, upper: int) -> Tensor:
    """Return the matrix of a band times columns."""
    rows: Any = band.shape[0]
    terms = elementwise.multiply(layout.expand_dims(band, 1), layout.matrix_transpose(x))
    # What stands in column j of a diagonal belongs to the row that its distance from the main one says.
    moved = layout.flip(shift_rows(layout.flip(layout.moveaxis(terms, 1, 0), -2), rows - 1 - upper), -2)
    return layout.matrix_transpose(reduction.sum(moved, axis=-2))


# --- the equation ----------------------------------------------------------------------------------------------------


def _solve(band: Tensor, b: Tensor, upper: int) -> Tensor:
    return _graph.apply(SOLVE_BANDED, band, b, upper=upper)


def _infer(band: Node, b: Node, *, upper: int) -> tuple[Shape, Any]:
    return b.shape, b.dtype


def _kernel(band: Any, b: Any, *, upper: int) -> Any:
    from scipy import linalg

    if not b.size:
        return np.zeros(b.shape, b.dtype)
    try:
        return linalg.solve_banded((band.shape[0] - 1 - upper, upper), band, b, check_finite=False)
    except np.linalg.LinAlgError:
        raise RankError(f"a banded matrix of size {band.shape[1]} is singular") from None


def _band_vjp(ct: Tensor, x: Tensor, band: Tensor, b: Tensor, *, upper: int) -> Tensor:
    return elementwise.negative(_outer(_solve(*_with(ct, *_adjoint(band, upper))), x, band.shape[0], upper))


def _with(b: Tensor, band: Tensor, upper: int) -> tuple[Tensor, Tensor, int]:
    return band, b, upper


def _right_side_vjp(ct: Tensor, x: Tensor, band: Tensor, b: Tensor, *, upper: int) -> Tensor:
    return _solve(*_with(ct, *_adjoint(band, upper)))


def _solve_members(op: Op, members: batching.Members, band: Tensor, b: Tensor, *, upper: int) -> Tensor:
    """Solve for all members as one banded matrix with their matrices along its diagonal."""
    if not members.batched[0]:
        return side_by_side(op, members, band, b, upper=upper)
    band, b = members.all((band, b))
    count, rows, size = band.shape
    # What lies beyond the ends of a matrix is not read; between two of them it would be, and has to be nothing.
    row = elementwise.add(arange(size), layout.expand_dims(arange(-upper, rows - upper), 1))
    exists = elementwise.logical_and(elementwise.greater_equal(row, 0), elementwise.less(row, size))
    inside = elementwise.mask(band, exists)
    whole = layout.reshape(layout.moveaxis(inside, 0, 1), (rows, count * size))
    x = _solve(whole, layout.reshape(b, (count * size, b.shape[-1])), upper)
    return layout.reshape(x, b.shape)


SOLVE_BANDED = register(
    Op(
        "solve_banded",
        infer=_infer,
        kernel=_kernel,
        vjp=(_band_vjp, _right_side_vjp),
        jvp=(
            lambda t, x, band, b, *, upper: _solve(band, elementwise.negative(_product(t, x, upper)), upper),
            lambda t, x, band, b, *, upper: _solve(band, t, upper),
        ),
        params={"upper": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=_solve_members,
    )
)
