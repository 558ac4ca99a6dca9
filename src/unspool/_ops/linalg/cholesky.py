"""The Cholesky factor of a positive definite matrix.

The Hermitian part of what is given is factored (see `hermitian`), so the cotangent is Hermitian. With Φ for "the lower
triangle, half of its diagonal", the factor moves by L·Φ(L⁻¹·dA·L⁻ᴴ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.contraction import matmul
from unspool._ops.linalg.factoring import lapack
from unspool._ops.linalg.finite import nan_to_nan
from unspool._ops.linalg.hermitian import as_hermitian, hermitian_array
from unspool._ops.linalg.matrices import adjoint, hermitian_part
from unspool._ops.linalg.triangular import divide_triangular, lower_half, solve_triangular
from unspool._ops.op import OUTPUT, Op, register
from unspool.errors import KernelError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def cholesky(x: Any, *, upper: bool = False, UPLO: str | None = None) -> Tensor:
    """Return the triangular factor L of positive definite matrices: ``L @ L.H``, or ``U.H @ U`` with ``upper``.

    Parameters
    ----------
    x : array_like
        Positive definite matrices, in the last two axes. What counts is their Hermitian part, ``(x + x.H) / 2``.
    upper : bool
        Whether to return the upper triangular factor.
    UPLO : {"L", "U"}, optional
        The triangle, lower or upper, that ``x`` is given by: the other one is neither read nor differentiated.

    Raises
    ------
    KernelError
        When it runs, if a matrix is not positive definite; names the first leading block that is not.

    Notes
    -----
    Both triangles count alike, so the gradient is Hermitian, as JAX's. NumPy reads one triangle, which is the same for
    Hermitian matrices only: name it if the other one holds something else. The factor of a matrix with NaN is NaN.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.cholesky([[4.0, 2.0], [2.0, 2.0]]).eval()
    array([[2., 0.],
           [1., 1.]])
    """
    factor = _graph.apply(CHOLESKY, as_hermitian(x, UPLO, "cholesky"))
    return adjoint(factor) if upper else factor


def _infer(x: Node) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _kernel(x: Any) -> Any:
    return nan_to_nan(_factors, hermitian_array(x))


def _factors(x: Any) -> Any:
    if x.ndim == 2:
        return _factor(x, ())
    try:
        return np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        # Which one it was: the first that LAPACK refuses.
        return np.stack([_factor(x[index], index) for index in np.ndindex(x.shape[:-2])]).reshape(x.shape)


def _factor(x: Any, index: tuple[int, ...]) -> Any:
    if not x.size:
        return np.zeros(x.shape, x.dtype)
    # LAPACK reads columns: to it, the lower triangle of rows is the upper one of the conjugate.
    factor, order = lapack("potrf", x.dtype)(x.T, lower=0, clean=1)
    if order:
        which = f"matrix {index} of the stack" if index else "the matrix"
        raise KernelError(
            f"cholesky takes positive definite matrices: the leading {order} by {order} block of {which} is not"
        )
    return factor.T


def _vjp(ct: Tensor, factor: Tensor, x: Tensor) -> Tensor:
    inner = lower_half(matmul(adjoint(factor), ct))
    half = solve_triangular(factor, inner, lower=True, adjoint=True)
    return hermitian_part(divide_triangular(half, factor, lower=True))


def _jvp(t: Tensor, factor: Tensor, x: Tensor) -> Tensor:
    half = solve_triangular(factor, hermitian_part(t), lower=True)
    inner = divide_triangular(half, factor, lower=True, adjoint=True)
    return matmul(factor, lower_half(inner))


CHOLESKY = register(
    Op("cholesky", infer=_infer, kernel=_kernel, vjp=(_vjp,), jvp=(_jvp,), needs=(OUTPUT,), batch=batching.leading)
)
