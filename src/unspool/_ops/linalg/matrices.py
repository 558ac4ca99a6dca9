"""Small things every module about matrices needs: shapes, adjoints, symmetric and skew parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _dims
from unspool._dims import Shape, Size
from unspool._dtypes import inexact_dtype
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.leaf import as_tensor
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def as_matrix(x: Any, what: str) -> Tensor:
    """Return an operand as a floating-point tensor with at least two axes."""
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"{what} takes matrices: tensors with at least two axes, got shape {x.shape}")
    return elementwise.astype(x, inexact_dtype(x.dtype))


def as_square(x: Any, what: str) -> Tensor:
    """Return an operand as a floating-point tensor of square matrices; unknown sizes are ensured to be equal."""
    matrix = as_matrix(x, what)
    rows, columns = matrix.shape[-2:]
    if rows == columns:
        return matrix
    if _dims.equal(rows, columns) is False:
        raise ShapeError(f"{what} takes square matrices, got shape {matrix.shape}")
    size = rows if isinstance(rows, int) else columns
    return ensure_shape(matrix, (*matrix.shape[:-2], size, size))


def smaller_side(shape: Shape) -> Size:
    """Return the smaller of the two sizes of a matrix."""
    return _dims.minimum(shape[-2], shape[-1])


def adjoint(x: Tensor) -> Tensor:
    """Return the conjugate transpose."""
    return elementwise.conj(layout.matrix_transpose(x))


def hermitian_part(x: Tensor) -> Tensor:
    """Return (x + xᴴ)/2."""
    return elementwise.multiply(elementwise.add(x, adjoint(x)), 0.5)


def skew_part(x: Tensor) -> Tensor:
    """Return (x - xᴴ)/2."""
    return elementwise.multiply(elementwise.subtract(x, adjoint(x)), 0.5)
