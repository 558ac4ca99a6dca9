"""Functions of square matrices: powers, exponential, logarithm, square root.

The one idea: for a function f that is analytic on the spectrum, f([[A, E], [0, A]]) = [[f(A), L], [0, f(A)]] where L is
the derivative of f at A in the direction E (its Fréchet derivative). So the derivative of a derivative is a derivative
again, at a matrix of twice the size, and every order follows from one rule. The adjoint of L(A, ·) is L(Aᴴ, ·).
Nothing here divides by gaps between eigenvalues: repeated and defective ones are nothing special.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape
from unspool._dtypes import promote, real_dtype
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.broadcasting import broadcast_shapes, ensure_shape
from unspool._ops.contraction import matmul
from unspool._ops.indexing import getitem
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.linalg import schur
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.matrices import adjoint, as_square
from unspool._ops.linalg.solving import inv
from unspool._ops.linalg.sylvester import sylvester
from unspool._ops.op import INPUTS, OUTPUT, Op, lookup, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- powers ----------------------------------------------------------------------------------------------------------


def matrix_power(x: Any, n: int) -> Tensor:
    """Multiply square matrices with themselves, by repeated squaring; a negative power is one of the inverse.

    Parameters
    ----------
    x : array_like
        Square matrices in the last two axes.
    n : int
        The exponent. 0 gives identity matrices.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.matrix_power([[1.0, 1.0], [0.0, 1.0]], 5).eval()
    array([[1., 5.],
           [0., 1.]])
    """
    try:
        exponent = operator.index(n)
    except TypeError:
        raise ArgumentError(f"matrix_power takes a whole number as exponent, got {n!r}") from None
    x = as_tensor(x)
    if exponent < 0:
        x, exponent = inv(x), -exponent
    # Whole numbers stay whole, as in NumPy, unless they are inverted.
    x = _ensured_square(x, "matrix_power")
    if exponent == 0:
        size = x.shape[-1]
        ones = layout.broadcast_to(constant(1, x.dtype), x.shape[:-1])
        return layout.embed_diagonal(ones, size, size, 0)
    result = None
    while True:
        if exponent % 2:
            result = x if result is None else matmul(result, x)
        exponent //= 2
        if not exponent:
            return result  # type: ignore[return-value]
        x = matmul(x, x)


def _ensured_square(x: Tensor, what: str) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{what} takes matrices: tensors with at least two axes, got shape {x.shape}")
    rows, columns = x.shape[-2:]
    if _dims.equal(rows, columns) is False:
        raise ShapeError(f"{what} takes square matrices, got shape {x.shape}")
    size = rows if isinstance(rows, int) else columns
    return ensure_shape(x, (*x.shape[:-2], size, size))


# --- functions with a Fréchet derivative -----------------------------------------------------------------------------


def _infer_function(x: Node) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _infer_frechet(x: Node, e: Node) -> tuple[Shape, Any]:
    return x.shape, promote(x.dtype, e.dtype)


def _blocks(corner: Tensor, x: Tensor) -> Tensor:
    """Return [[x, corner], [0, x]]."""
    upper = layout.concat([x, corner], axis=-1)
    return layout.concat([upper, layout.concat([_zeros_like(x), x], axis=-1)], axis=-2)


def _zeros_like(x: Tensor) -> Tensor:
    return layout.broadcast_to(constant(0, x.dtype), x.shape)


def _relative_size(e: Tensor, x: Tensor) -> Tensor:
    """Return, per matrix, the power of two by which ``e`` is larger than ``x``: a number, without derivative."""
    return _graph.apply(RELATIVE_SIZE, e, x)


def _relative_size_kernel(e: Any, x: Any) -> Any:
    sizes = [np.max(np.abs(m), axis=(-2, -1), keepdims=True, initial=0) for m in (e, x)]
    # A matrix of zeros has the size 1, so that logarithms exist.
    exponents = [np.log2(np.where((size > 0) & np.isfinite(size), size, 1)) for size in sizes]
    return np.exp2(np.round(exponents[0] - exponents[1])).astype(np.abs(e[..., :0, :0]).dtype)


RELATIVE_SIZE = register(
    Op(
        "relative_size",
        infer=lambda e, x: ((*e.shape[:-2], 1, 1), real_dtype(e.dtype)),
        kernel=_relative_size_kernel,
        vjp=(None, None),
        jvp=(None, None),
        batch=batching.leading,
    )
)


def _analytic(name: str, kernel: Callable[..., Any], frechet_kernel: Callable[..., Any]) -> Op:
    """Register an analytic function of matrices, with f(Aᴴ) = f(A)ᴴ, and its Fréchet derivative L(A, E) as ops."""

    def frechet(x: Tensor, e: Tensor) -> Tensor:
        return _graph.apply(derivative, x, e)

    def pull_frechet_x(ct: Tensor, out: Tensor, x: Tensor, e: Tensor) -> Tensor:
        # L(A, E) is the corner of f at the block matrix, so what arrives at it arrives at the corner there, and A
        # stands in two places. It is linear in E, which has to be of the size of A for either not to drown the other.
        n, size = x.shape[-1], _relative_size(e, x)
        nothing = _zeros_like(ct)
        arrived = layout.concat(
            [layout.concat([nothing, ct], axis=-1), layout.concat([nothing, nothing], axis=-1)], axis=-2
        )
        whole = frechet(adjoint(_blocks(elementwise.divide(e, size), x)), arrived)
        first, second = getitem(whole, (..., slice(n), slice(n))), getitem(whole, (..., slice(n, None), slice(n, None)))
        return elementwise.multiply(elementwise.add(first, second), size)

    def push_frechet_x(t: Tensor, out: Tensor, x: Tensor, e: Tensor) -> Tensor:
        n, size = x.shape[-1], _relative_size(e, x)
        whole = frechet(_blocks(elementwise.divide(e, size), x), _blocks(_zeros_like(t), t))
        return elementwise.multiply(getitem(whole, (..., slice(n), slice(n, None))), size)

    derivative = register(
        Op(
            f"{name}_frechet",
            infer=_infer_frechet,
            kernel=frechet_kernel,
            vjp=(pull_frechet_x, lambda ct, out, x, e: frechet(adjoint(x), ct)),
            jvp=(push_frechet_x, lambda t, out, x, e: frechet(x, t)),
            needs=(INPUTS,),
            batch=batching.leading,
        )
    )
    return register(
        Op(
            name,
            infer=_infer_function,
            kernel=kernel,
            vjp=(lambda ct, out, x: frechet(adjoint(x), ct),),
            jvp=(lambda t, out, x: frechet(x, t),),
            needs=(INPUTS,),
            batch=batching.leading,
        )
    )


# --- the exponential -------------------------------------------------------------------------------------------------


def matrix_exp(x: Any) -> Tensor:
    """Return the exponential of square matrices, the sum of xᵏ/k!.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.matrix_exp([[0.0, 1.0], [0.0, 0.0]]).eval()
    array([[1., 1.],
           [0., 1.]])
    """
    return _graph.apply(MATRIX_EXP, as_square(x, "matrix_exp"))


# SciPy's name, beside `sqrtm` and `logm`.
expm = matrix_exp


def _exp_kernel(x: Any) -> Any:
    from scipy.linalg import expm

    return np.asarray(expm(x), x.dtype)


def _exp_frechet_kernel(x: Any, e: Any) -> Any:
    from scipy.linalg import expm_frechet

    return schur.over_stack(lambda a, b: expm_frechet(a, b, compute_expm=False), np.result_type(x, e), x, e)


MATRIX_EXP = _analytic("matrix_exp", _exp_kernel, _exp_frechet_kernel)


def expm_frechet(a: Any, e: Any, compute_expm: bool = True) -> Any:
    """Return the exponential of square matrices, and its derivative in the direction ``e``.

    Parameters
    ----------
    a, e : array_like, shape (..., n, n)
        Where, and in which direction.
    compute_expm : bool
        Whether to return both, or the derivative alone.

    Examples
    --------
    >>> import unspool as us
    >>> exponential, slope = us.linalg.expm_frechet([[0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]])
    >>> slope.eval()
    array([[0., 1.],
           [0., 0.]])
    """
    x, direction = as_square(a, "expm_frechet"), as_square(e, "expm_frechet")
    shape = broadcast_shapes(x.shape, direction.shape)
    slope = _graph.apply(
        lookup("matrix_exp_frechet"), layout.broadcast_to(x, shape), layout.broadcast_to(direction, shape)
    )
    return (matrix_exp(x), slope) if compute_expm else slope


# --- the logarithm ---------------------------------------------------------------------------------------------------


def logm(x: Any) -> Tensor:
    """Return the principal logarithm of square matrices: that whose eigenvalues have imaginary parts in (-π, π].

    The result has the dtype of ``x``, so that it does not depend on values. If the logarithm of a real matrix is not
    real, because an eigenvalue is negative, evaluation raises `KernelError`: convert the matrix to complex numbers
    first. So it does for a singular matrix, which has no logarithm, and for a derivative on the negative real axis,
    where the logarithm jumps.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.logm([[1.0, 1.0], [0.0, 1.0]]).eval()
    array([[0., 1.],
           [0., 0.]])
    """
    return _graph.apply(LOGM, as_square(x, "logm"))


def _log_kernel(x: Any) -> Any:
    refuse_not_finite(x, "logm")
    return schur.over_stack(schur.logarithm, x.dtype, x)


def _log_frechet_kernel(x: Any, e: Any) -> Any:
    return schur.over_stack(schur.logarithm_frechet, np.result_type(x, e), x, e)


LOGM = _analytic("logm", _log_kernel, _log_frechet_kernel)


# --- the square root -------------------------------------------------------------------------------------------------


def sqrtm(x: Any) -> Tensor:
    """Return the principal square root of square matrices: that whose eigenvalues have no negative real part.

    The result has the dtype of ``x``, so that it does not depend on values. If the root of a real matrix is not real,
    because an eigenvalue is negative, evaluation raises `KernelError`: convert the matrix to complex numbers first. At
    a singular matrix the root may exist, but its derivative does not and raises `RankError`.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.sqrtm([[4.0, 0.0], [0.0, 9.0]]).eval()
    array([[2., 0.],
           [0., 3.]])
    """
    return _graph.apply(SQRTM, as_square(x, "sqrtm"))


def _root_rtol(x: Tensor) -> float:
    # An eigenvalue that is 0 to rounding has a root that is 0 to the root of rounding.
    return float(4 * np.sqrt(np.finfo(real_dtype(x.dtype)).eps))


def _root_kernel(x: Any) -> Any:
    refuse_not_finite(x, "sqrtm")
    return schur.over_stack(schur.square_root, x.dtype, x)


def _root_vjp(ct: Tensor, out: Tensor, x: Tensor) -> Tensor:
    # X·X = A, so X·dX + dX·X = dA.
    return sylvester(adjoint(out), adjoint(out), ct, _root_rtol(x))


def _root_jvp(t: Tensor, out: Tensor, x: Tensor) -> Tensor:
    return sylvester(out, out, t, _root_rtol(x))


SQRTM = register(
    Op(
        "sqrtm",
        infer=_infer_function,
        kernel=_root_kernel,
        vjp=(_root_vjp,),
        jvp=(_root_jvp,),
        needs=(OUTPUT,),
        batch=batching.leading,
    )
)
