"""Eigenvalues of symmetric matrices with three diagonals, and products with the Q of a matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._dims import equal
from unspool._ops import layout
from unspool._ops.checks import one_of
from unspool._ops.contraction import matmul
from unspool._ops.elementwise import add, conj
from unspool._ops.leaf import as_operands, as_tensor
from unspool._ops.linalg.eigh import eigh, eigvalsh
from unspool._ops.linalg.qr import qr
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def eigh_tridiagonal(
    d: Any, e: Any, eigvals_only: bool = False, select: str = "a", select_range: Any = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and eigenvectors of a symmetric matrix with three diagonals.

    Parameters
    ----------
    d, e : array_like
        The diagonal, and the one beside it, which has one element less.
    eigvals_only : bool
        Whether to return the eigenvalues alone.
    select : {"a", "i"}
        All of them, or those with the numbers from ``select_range[0]`` to ``select_range[1]``, which is included.
        Those between two values (``"v"``) are not known in number before they are computed.
    select_range : tuple of int, optional

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.eigh_tridiagonal([2.0, 2.0], [1.0], eigvals_only=True).eval()
    array([1., 3.])
    """
    diagonal, beside = as_operands(d, e)
    if diagonal.ndim != 1 or beside.ndim != 1 or equal(beside.shape[0], diagonal.shape[0] - 1) is False:
        raise ShapeError(
            f"eigh_tridiagonal takes two vectors, the second shorter by one, got {diagonal.shape} and {beside.shape}"
        )
    one_of(select, ("a", "i"), "select")
    chosen = slice(None)
    if select == "i":
        if not isinstance(select_range, (tuple, list)) or len(select_range) != 2:
            raise ArgumentError(f"select_range is the first and the last number, got {select_range!r}")
        chosen = slice(select_range[0], select_range[1] + 1)
    matrix = add(add(layout.diag(diagonal), layout.diag(beside, 1)), layout.diag(beside, -1))
    if eigvals_only:
        return eigvalsh(matrix)[chosen]
    values, vectors = eigh(matrix)
    return values[chosen], vectors[:, chosen]


def qr_multiply(a: Any, c: Any, mode: str = "right", conjugate: bool = False) -> tuple[Tensor, Tensor]:
    """Return the product of a matrix with the Q of another one, and the R of that.

    Parameters
    ----------
    a : array_like
        What is decomposed: Q has as many columns as the smaller of its sizes.
    c : array_like
        What is multiplied; a vector is a row or a column.
    mode : {"right", "left"}
        Whether Q stands on the right of ``c`` or on the left.
    conjugate : bool
        Whether Q is conjugated.

    Examples
    --------
    >>> import unspool as us
    >>> product, r = us.linalg.qr_multiply([[0.0, 1.0], [2.0, 0.0]], [3.0, 4.0])
    >>> us.abs(product).eval(), us.abs(r).eval()
    (array([4., 3.]), array([[2., 0.],
           [0., 1.]]))
    """
    one_of(mode, ("right", "left"), "mode")
    q, r = qr(as_tensor(a))
    factor = conj(q) if conjugate else q
    return (matmul(c, factor) if mode == "right" else matmul(factor, c)), r
