"""Which Hermitian matrix is meant by an array of numbers: its Hermitian part, or what one triangle of it says.

LAPACK reads one triangle and takes the other for granted. A value that reads one triangle and a derivative that is
shared by both would belong to two functions wherever the numbers are not those of a Hermitian matrix. So a kernel reads
the Hermitian part, to which both triangles contribute alike, and of which a Hermitian cotangent is the derivative. If a
triangle is named, a Hermitian matrix is built from it first, by ops; the other triangle is neither read nor
differentiated. For a Hermitian matrix all three are the same, to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops import elementwise
from unspool._ops.linalg.matrices import adjoint, as_square
from unspool._ops.linalg.triangular import lower_half
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def as_hermitian(x: Any, uplo: Any, what: str) -> Tensor:
    """Return an operand as square matrices of which a kernel may read the Hermitian part."""
    matrix = as_square(x, what)
    if uplo is None:
        return matrix
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise ArgumentError(f'UPLO is "L" or "U", or None for the Hermitian part, got {uplo!r}')
    half = lower_half(matrix if uplo.upper() == "L" else adjoint(matrix))
    return elementwise.add(half, adjoint(half))


def hermitian_array(x: Any) -> Any:
    """Return the Hermitian part of an array of matrices, for kernels."""
    # Half of the difference is subtracted: that is exactly zero for a Hermitian matrix, and no sum overflows.
    turned = np.swapaxes(x, -1, -2)
    half = np.subtract(x, np.conjugate(turned) if x.dtype.kind == "c" else turned)
    half *= 0.5
    return np.subtract(x, half, out=half)
