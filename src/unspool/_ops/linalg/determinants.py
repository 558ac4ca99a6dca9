"""Determinants, and their logarithms.

A determinant is a polynomial, so its derivatives exist everywhere, also where there is no inverse to write them with.
They are ops of their own here: the adjugate, and its slope in a direction, computed from singular values by products
that leave one or two of them out. Nothing is divided, so both are right at matrices of any rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import COMPLEX, real_dtype
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.contraction import matmul
from unspool._ops.contraction.contract import contract
from unspool._ops.creation import eye
from unspool._ops.linalg import elimination
from unspool._ops.linalg.factoring import is_factored, lu_factors, singular
from unspool._ops.linalg.finite import nan_to_nan, refuse_not_finite
from unspool._ops.linalg.matrices import adjoint, as_square
from unspool._ops.linalg.solving import inv, inverse_kernel
from unspool._ops.op import INPUTS, OUTPUT, Op, parts, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# A relative error of an inverse above which it counts as noise.
_NOISE = 0.01


class SlogdetResult(NamedTuple):
    """Sign (a phase, of complex matrices) and logarithm of the absolute value of determinants."""

    sign: Tensor
    logabsdet: Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def det(a: Any) -> Tensor:
    """Determinants of matrices; that of a matrix without elements is 1.

    Notes
    -----
    First and second derivatives are right at singular matrices too. Higher ones need an inverse, and raise `RankError`
    where there is none.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor([[1.0, 2.0], [2.0, 4.0]])
    >>> float(us.linalg.det(a)) == 0.0
    True
    >>> us.linalg.det(a).grad(a).eval().round(12)
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    a = as_square(a, "det")
    return _graph.apply(DET, *lu_factors(a), a)


def slogdet(a: Any) -> SlogdetResult:
    """Sign and logarithm of determinants, as ``numpy.linalg.slogdet``: neither overflows.

    Returns
    -------
    SlogdetResult
        ``sign``, of absolute value 1, or 0 where a matrix is singular, and ``logabsdet``, real, -inf where a matrix is
        singular. A derivative at a singular matrix raises `RankError` when it is computed.

    Examples
    --------
    >>> import unspool as us
    >>> sign, logabsdet = us.linalg.slogdet([[2.0, 0.0], [0.0, -0.5]])
    >>> sign.eval(), logabsdet.eval()
    (array(-1.), array(0.))
    """
    a = as_square(a, "slogdet")
    return SlogdetResult(*parts(_graph.apply_multi(SLOGDET, *lu_factors(a), a)))


# --- from LU factors -------------------------------------------------------------------------------------------------


def _diagonal(factors: Any, pivots: Any) -> tuple[Any, Any]:
    """Return the numbers whose product is a determinant, and the sign of the row exchanges."""
    exchanges = np.count_nonzero(pivots != np.arange(pivots.shape[-1]), axis=-1)
    # The factors are those of the adjoint.
    diagonal = np.conj(np.diagonal(factors, axis1=-2, axis2=-1))
    return diagonal, np.where(exchanges % 2, -1, 1).astype(diagonal.dtype)


def _det_kernel(factors: Any, pivots: Any, a: Any) -> Any:
    if a.dtype == object:
        return elimination.determinant(a)
    if not is_factored(a):
        return nan_to_nan(np.linalg.det, a)
    diagonal, sign = _diagonal(factors, pivots)
    product = np.multiply.reduce(diagonal, axis=-1) * sign
    if np.all(np.isfinite(product) & (product != 0)):
        return product
    # A product may leave the floating-point range on the way although its value does not.
    phase, logarithm = _slogdet_kernel(factors, pivots, a)
    return phase * np.exp(logarithm)


def _slogdet_kernel(factors: Any, pivots: Any, a: Any) -> tuple[Any, Any]:
    if not is_factored(a):
        sign, logabsdet = nan_to_nan(lambda m: tuple(np.linalg.slogdet(m)), a)
        return sign, logabsdet
    diagonal, sign = _diagonal(factors, pivots)
    sizes = np.abs(diagonal)
    phases = np.divide(diagonal, sizes, out=np.zeros_like(diagonal), where=sizes != 0)
    return np.multiply.reduce(phases, axis=-1) * sign, np.add.reduce(np.log(sizes), axis=-1)


# --- the op det ------------------------------------------------------------------------------------------------------


def _infer_det(factors: Node, pivots: Node, a: Node) -> tuple[Shape, Any]:
    return a.shape[:-2], a.dtype


def _vjp_det(ct: Tensor, out: Tensor, factors: Tensor, pivots: Tensor, a: Tensor) -> Tensor:
    return elementwise.scale(layout.rearrange(ct, _per_matrix), adjoint(adjugate(a)))


def _jvp_det(t: Tensor, out: Tensor, factors: Tensor, pivots: Tensor, a: Tensor) -> Tensor:
    return _trace_of_product(adjugate(a), t)


DET = register(
    Op(
        "det",
        infer=_infer_det,
        kernel=_det_kernel,
        vjp=(None, None, _vjp_det),
        jvp=(None, None, _jvp_det),
        needs=(INPUTS,),
        batch=batching.leading,
    )
)


def _per_matrix(x: Tensor) -> Tensor:
    """Return one number per matrix in a shape that broadcasts against the matrices."""
    return layout.reshape(x, (*x.shape, 1, 1))


def _trace_of_product(x: Tensor, y: Tensor) -> Tensor:
    stack = tuple(range(x.ndim - 2))
    return contract(x, (*stack, "i", "j"), y, (*stack, "j", "i"), stack)


# --- the adjugate ----------------------------------------------------------------------------------------------------


def adjugate(a: Tensor) -> Tensor:
    """Return the transposed cofactors of square matrices: ``det(a) * inv(a)``, continued to singular ones."""
    return _graph.apply(ADJUGATE, *lu_factors(a), a)


def adjugate_slope(a: Tensor, direction: Tensor) -> Tensor:
    """Return the derivative of `adjugate` in a direction, right at matrices of any rank."""
    return _graph.apply(ADJUGATE_SLOPE, a, direction)


def _adjugate_curvature(a: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the second derivative of `adjugate` in two directions, at matrices that have an inverse."""
    inverse = inv(a)
    x, y = matmul(inverse, x), matmul(inverse, y)
    trace_x, trace_y = _trace(x), _trace(y)
    scalar = elementwise.subtract(elementwise.multiply(trace_x, trace_y), _trace_of_product(x, y))
    terms = elementwise.subtract(
        elementwise.add(matmul(x, y), matmul(y, x)),
        elementwise.add(
            elementwise.multiply(_per_matrix(trace_x), y),
            elementwise.multiply(_per_matrix(trace_y), x),
        ),
    )
    whole = elementwise.add(
        matmul(terms, inverse),
        elementwise.multiply(_per_matrix(scalar), inverse),
    )
    return elementwise.multiply(_per_matrix(det(a)), whole)


def _trace(x: Tensor) -> Tensor:
    return layout.trace(x, axis1=-2, axis2=-1)


def _adjugate_kernel(factors: Any, pivots: Any, a: Any) -> Any:
    if a.dtype == object:
        return elimination.adjugate(a)
    inverse = inverse_kernel(factors, pivots, a, strict=False)
    if _is_well_conditioned(a, inverse):
        return _times_determinant(inverse, *_slogdet_kernel(factors, pivots, a))
    return nan_to_nan(_adjugate_of_any_rank, a)


def _adjugate_of_any_rank(a: Any) -> Any:
    u, s, vh, phase = _phased_svd(a)
    return np.matmul(_adjoint(vh) * (_products_without_one(s) * phase)[..., None, :], _adjoint(u))


def _adjugate_slope_kernel(a: Any, direction: Any) -> Any:
    u, s, vh, phase = _phased_svd(a)
    v, uh = _adjoint(vh), _adjoint(u)
    turned = np.matmul(np.matmul(uh, direction), v)
    # Of diag(s) + e, an off-diagonal cofactor is -e times what leaves out two rows; a diagonal one sees the others.
    without_two = _products_without_two(s)
    slope = -without_two * turned
    rows = np.arange(s.shape[-1])
    slope[..., rows, rows] = np.matmul(without_two, turned[..., rows, rows, None])[..., 0]
    return np.matmul(np.matmul(v, slope), uh) * phase[..., None]


def _is_well_conditioned(a: Any, inverse: Any) -> bool:
    """Whether all inverses have half of their digits right."""
    condition = _frobenius(a) * _frobenius(inverse)
    # Written so that matrices of NaN pass: there is nothing to lose, and a singular value decomposition refuses them.
    return not (np.isinf(inverse).any() or np.any(condition > np.finfo(a.dtype).eps ** -0.5))


def _frobenius(x: Any) -> Any:
    """Return the norms of matrices, infinite where squares overflow."""
    squares = np.einsum("...ij,...ij->...", x, np.conj(x) if x.dtype.kind == "c" else x)
    return np.sqrt(squares.real)


def _times_determinant(inverse: Any, sign: Any, logabsdet: Any) -> Any:
    """Multiply inverses by determinants, which may leave the floating-point range where their product does not."""
    largest = np.max(np.abs(inverse), axis=(-2, -1), keepdims=True, initial=0)
    scale = np.asarray(sign)[..., None, None] * np.exp(np.asarray(logabsdet)[..., None, None] + np.log(largest))
    return np.multiply(inverse / largest, scale, out=np.zeros_like(inverse), where=inverse != 0)


def _phased_svd(a: Any) -> tuple[Any, Any, Any, Any]:
    """Return a singular value decomposition, and the determinant of its unitary factors with a last axis of 1."""
    refuse_not_finite(a, "the derivative of a determinant")
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u, s, vh, (np.linalg.det(u) * np.linalg.det(vh))[..., None]


def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -2, -1))


def _products_without_one(s: Any) -> Any:
    """Return, for each number along the last axis, the product of the others."""
    ones = np.ones((*s.shape[:-1], 1), s.dtype)
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before[..., : s.shape[-1]] * after[..., : s.shape[-1]]


def _products_without_two(s: Any) -> Any:
    """Return, for each pair of different numbers along the last axis, the product of the others; 0 on the diagonal."""
    same = np.eye(s.shape[-1], dtype=bool)
    without_row = np.where(same, np.ones((), s.dtype), s[..., None, :])
    return np.where(same, np.zeros((), s.dtype), _products_without_one(without_row))


ADJUGATE = register(
    Op(
        "adjugate",
        infer=lambda factors, pivots, a: (a.shape, a.dtype),
        kernel=_adjugate_kernel,
        vjp=(None, None, lambda ct, out, factors, pivots, a: adjugate_slope(adjoint(a), ct)),
        jvp=(None, None, lambda t, out, factors, pivots, a: adjugate_slope(a, t)),
        needs=(INPUTS,),
        batch=batching.leading,
    )
)

# Both rules rest on the derivatives of a determinant being symmetric in their directions.
ADJUGATE_SLOPE = register(
    Op(
        "adjugate_slope",
        infer=lambda a, direction: (a.shape, a.dtype),
        kernel=_adjugate_slope_kernel,
        vjp=(
            lambda ct, out, a, direction: _adjugate_curvature(adjoint(a), ct, adjoint(direction)),
            lambda ct, out, a, direction: adjugate_slope(adjoint(a), ct),
        ),
        jvp=(
            lambda t, out, a, direction: _adjugate_curvature(a, t, direction),
            lambda t, out, a, direction: adjugate_slope(a, t),
        ),
        needs=(INPUTS,),
        batch=batching.leading,
    )
)


# --- the op slogdet --------------------------------------------------------------------------------------------------


def _infer_slogdet(factors: Node, pivots: Node, a: Node) -> Any:
    return (a.shape[:-2], a.dtype), (a.shape[:-2], real_dtype(a.dtype))


def _vjp_slogdet(ct: Any, out: Any, factors: Tensor, pivots: Tensor, a: Tensor) -> Tensor:
    # The cotangent of log(det(a)), of which the two outputs are the real part and the phase.
    towards_sign, total = ct
    if towards_sign is not None and a.dtype in COMPLEX:
        turning = elementwise.imag(elementwise.multiply(towards_sign, elementwise.conj(out[0])))
        turning = elementwise.multiply(turning, 1j)
        total = turning if total is None else elementwise.add(turning, total)
    if total is None:
        return elementwise.absent(a)
    reached = _reached([part for part in ct if part is not None])
    if reached is None:
        return elementwise.multiply(_per_matrix(total), adjoint(_sound_inverse(a)))
    # A matrix whose logarithm nobody looks at may be singular: the identity takes its place.
    safe = elementwise.where(reached, a, eye(a.shape[-1], dtype=a.dtype))
    return elementwise.mask(elementwise.multiply(_per_matrix(total), adjoint(_sound_inverse(safe))), reached)


def _reached(cotangents: list[Tensor]) -> Tensor | None:
    """Return which matrices any of the cotangents is for, ``None`` if all."""
    if not all(ct.op is elementwise.MASK for ct in cotangents):
        return None
    masks: list[Any] = [layout.broadcast_to(ct.inputs[1], ct.shape) for ct in cotangents]
    reached = masks[0]
    for mask in masks[1:]:
        reached = elementwise.logical_or(reached, mask)
    return _per_matrix(reached)


def _jvp_slogdet(tangents: Any, out: Any, factors: Tensor, pivots: Tensor, a: Tensor) -> Any:
    slope = _trace_of_product(_sound_inverse(a), tangents[2])
    if a.dtype not in COMPLEX:
        return None, slope
    turning = elementwise.multiply(elementwise.imag(slope), 1j)
    return elementwise.multiply(out[0], turning), elementwise.real(slope)


SLOGDET = register(
    Op(
        "slogdet",
        infer=_infer_slogdet,
        kernel=_slogdet_kernel,
        vjp=(None, None, _vjp_slogdet),
        jvp=_jvp_slogdet,
        needs=(INPUTS, OUTPUT),
        multi=True,
        batch=batching.leading,
    )
)


# --- inverses that mean something ------------------------------------------------------------------------------------


def _sound_inverse(a: Tensor) -> Tensor:
    """Return inverses, and refuse those of matrices that are singular but for rounding: they are noise."""
    return _graph.apply(SOUND_INVERSE, inv(a), a)


def _sound_inverse_kernel(inverse: Any, a: Any) -> Any:
    # Rows of different scales are no loss of digits, so a large condition number is looked at again without them.
    limit = _NOISE / np.finfo(a.dtype).eps
    # Squares may leave the floating-point range and give NaN, which is not below the limit either.
    if not np.all(_frobenius(a) * _frobenius(inverse) <= limit):
        condition = np.matmul(np.abs(inverse), np.abs(a)).sum(axis=-1).max(axis=-1)
        if np.any(condition > limit):
            raise singular(a, condition > limit)
    return inverse


SOUND_INVERSE = register(
    Op(
        "sound_inverse",
        infer=lambda inverse, a: (inverse.shape, inverse.dtype),
        kernel=_sound_inverse_kernel,
        vjp=(lambda ct, out, inverse, a: ct, None),
        jvp=(lambda t, out, inverse, a: t, None),
        batch=batching.leading,
    )
)
