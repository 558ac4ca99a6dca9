"""The singular value decomposition.

With A = U·S·Vᴴ, the cotangents in the basis of the vectors X = Uᴴ·Ū and Y = Vᴴ·V̄, and a(X) their skew parts,

    Ā = U·M·Vᴴ + (1 - U·Uᴴ)·Ū·S⁻¹·Vᴴ + U·S⁻¹·V̄ᴴ·(1 - V·Vᴴ)
    M_ij = (a(X) + a(Y))_ij / (s_j - s_i) + (a(X) - a(Y))_ij / (s_j + s_i) + δ_ij·s̄_i

The two divisors are formed as they stand, never as a difference of squares. What has to be done where one of them
vanishes is the business of `unspool._ops.linalg.gaps`. With square U and V the vectors beyond the singular values
belong to further values, all zero, and the same formula holds with the smaller matrix padded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape, Size
from unspool._dtypes import INT64, real_dtype
from unspool._graph import Node
from unspool._ops import batching, elementwise, indexing, layout
from unspool._ops.cancellation import scale_of
from unspool._ops.contraction import matmul
from unspool._ops.layout.cropping import crop, zero_pad
from unspool._ops.linalg.division import Division, division, vanishing
from unspool._ops.linalg.factoring import lapack
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.gaps import SVD, TANGENT
from unspool._ops.linalg.matrices import adjoint, as_matrix, hermitian_part, skew_part, smaller_side
from unspool._ops.linalg.null_spaces import generic_null_vectors
from unspool._ops.op import OUTPUT, STRUCTURE, Op, parts, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class SVDResult(NamedTuple):
    """The factors of a matrix: ``(U * S) @ Vh``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def svd(
    x: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    *,
    gauge: str = "check",
    broaden: float | None = None,
    rtol: float | None = None,
) -> Any:
    """Singular value decomposition of matrices: ``x = U @ diag(S) @ Vh``, with S falling.

    Parameters
    ----------
    x : array_like
        Matrices in the last two axes.
    full_matrices : bool
        Whether U and Vh are square. If not, they have as many columns and rows as there are singular values.
    compute_uv : bool
        If false, only the singular values are returned, as by `svdvals`.
    gauge : {"check", "fixed"}
        What happens to the phase (the sign, if real) of each pair of vectors, which is open. "check": a loss may not
        depend on it. "fixed": the largest entry of each column of U is made real and positive, and the derivative is
        that of this convention.
    broaden : float, optional
        Divide by gaps d as d/(d² + broaden²) and check nothing. The derivative is then wrong by about (broaden/d)².
    rtol : float, optional
        Singular values are equal if they differ by at most this much of the largest one; see `tolerances`.

    Returns
    -------
    SVDResult
        The named tuple (U, S, Vh), or S alone.

    Raises
    ------
    GaugeError
        When a derivative is evaluated: if the loss depends on what is open, or if its derivative cannot be known from
        what it sends back. The attributes ``indices`` and ``amount`` say where, and how much of the cotangent; how much
        is let through is set by `tolerances`.

    Notes
    -----
    Reverse mode sees what a loss makes of the vectors, and so can tell whether equal values matter to it. Forward mode
    cannot: it refuses directions that split equal values, whatever is done with the vectors later.

    A loss that takes the vectors from here and the values from elsewhere (as Rayleigh quotients, say) hides from the
    check that it takes them together. At equal values its derivative is then incomplete.

    Vectors of singular values that are zero to rounding are a generic basis of their space, not the one LAPACK finds,
    so that no loss looks independent of the basis by accident.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor([[3.0, 0.0], [4.0, 5.0]])
    >>> U, S, Vh = us.linalg.svd(a)
    >>> us.allclose(us.sum(S * S).grad(a), 2 * a).eval()
    array(True)
    """
    x = as_matrix(x, "svd")
    if not compute_uv:
        return svdvals(x)
    found = factors(x, bool(full_matrices), **division(x.dtype, gauge, broaden, rtol))
    return fix_phases(found) if gauge == "fixed" else found


def svdvals(x: Any) -> Tensor:
    """Singular values of matrices, falling.

    Where singular values are equal, only losses that treat them alike have a derivative, and where one is zero, only
    losses that are flat there; others raise `GaugeError` when their derivative is evaluated.

    Notes
    -----
    The values are those of the node that `svd` makes, so a loss that takes values and vectors together is seen as one,
    and a derivative has the vectors it needs.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.svdvals([[0.0, 2.0], [1.0, 0.0]]).eval()
    array([2., 1.])
    """
    x = as_matrix(x, "svdvals")
    return factors(x, False, **division(x.dtype, "check", None, None)).S


def factors(x: Tensor, full: bool, **options: Any) -> SVDResult:
    """Return the factors, given the parameters of a `Division`."""
    # Of a square matrix both forms are the same, and should be the same node.
    full = full and x.shape[-2] != x.shape[-1]
    return SVDResult(*parts(_graph.apply_multi(SVD_OP, x, full=full, **options)))


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(x: Node, *, full: bool, **options: Any) -> Any:
    *batch, rows, columns = x.shape
    k = smaller_side(x.shape)
    left, right = (rows, columns) if full else (k, k)
    return (
        ((*batch, rows, left), x.dtype),
        ((*batch, k), real_dtype(x.dtype)),
        ((*batch, right, columns), x.dtype),
    )


def _kernel(x: Any, *, full: bool, **options: Any) -> Any:
    return generic_null_vectors(*decompose(x, full))


def decompose(x: Any, full: bool) -> Any:
    """Return the factors of an array of matrices as LAPACK finds them, null spaces included."""
    refuse_not_finite(x, "svd")
    single = x.ndim == 2 and x.size > 0 and x.dtype.kind in "fc"
    try:
        return _svd_of_one(x, full) if single else tuple(np.linalg.svd(x, full_matrices=full))
    except np.linalg.LinAlgError:
        return _slow_svd(x, full)


def _svd_of_one(x: Any, full: bool) -> Any:
    """Decompose one matrix as NumPy does, but with the workspace that LAPACK asks for."""
    workspace = int(lapack("gesdd_lwork", x.dtype)(*x.shape, full_matrices=full)[0].real)
    u, s, vh, failed = lapack("gesdd", x.dtype)(x, full_matrices=full, lwork=workspace)
    if failed:
        raise np.linalg.LinAlgError("SVD did not converge")
    return u, s, vh


def _slow_svd(x: Any, full: bool) -> Any:
    """Decompose by QR iteration, which converges in the rare cases where divide and conquer does not."""
    from scipy.linalg import svd as scipy_svd

    batch = x.shape[:-2]
    found = [
        scipy_svd(x[index], full_matrices=full, check_finite=False, lapack_driver="gesvd")
        for index in np.ndindex(batch)
    ]
    return tuple(np.stack(part).reshape(*batch, *part[0].shape) for part in zip(*found, strict=True))


# --- reverse mode ----------------------------------------------------------------------------------------------------


def _vjp(ct: Any, out: Any, x: Tensor, *, full: bool, **options: Any) -> Tensor | None:
    (u_ct, s_ct, vh_ct), (u, s, vh) = ct, out
    rule = Division(**options)
    if u_ct is None and vh_ct is None:
        return _values_vjp(s_ct, u, s, vh, rule)
    scale = scale_of(u_ct, vh_ct, stack=x.ndim - 2)
    left = None if u_ct is None else matmul(adjoint(u), u_ct)
    right = None if vh_ct is None else matmul(vh, adjoint(vh_ct))
    if full:
        return _full_vjp(s_ct, out, x.shape, left, right, scale, rule)
    middle = _middle(left, right, s, scale, rule)
    total = matmul(u, middle)
    if s_ct is not None:
        settled = rule.settle(s_ct, s, *[m for m in (left, right) if m is not None], scale=scale, what=SVD)
        total = elementwise.add(total, _times_rows(u, settled))
    k = s.shape[-1]
    if left is not None and x.shape[-2] != k:
        outside = elementwise.subtract(u_ct, matmul(u, left))
        total = elementwise.add(total, rule.divide(outside, vanishing(s), s, scale, sign=1, what=SVD))
    result = matmul(total, vh)
    if right is not None and x.shape[-1] != k:
        outside = elementwise.subtract(vh_ct, matmul(adjoint(right), vh))
        result = elementwise.add(result, matmul(u, rule.divide(outside, s, vanishing(s), scale, sign=1, what=SVD)))
    return result


def _values_vjp(ct: Tensor, u: Tensor, s: Tensor, vh: Tensor, rule: Division) -> Tensor:
    """Return the cotangent of a matrix of which only the singular values were used."""
    settled = rule.settle(ct, s, what=SVD)
    k = s.shape[-1]
    return matmul(_times_rows(_columns(u, k), settled), _rows(vh, k))


def _middle(left: Tensor | None, right: Tensor | None, s: Tensor, scale: Tensor, rule: Division) -> Tensor:
    """Return M without its diagonal term, from the cotangents in the basis of the vectors and what they come from."""
    if left is not None and right is not None:
        both, apart = skew_part(elementwise.add(left, right)), skew_part(elementwise.subtract(left, right))
    elif left is not None:
        both = apart = skew_part(left)
    else:
        both = skew_part(right)  # type: ignore[arg-type]
        apart = elementwise.negative(both)
    return elementwise.add(
        rule.divide(both, s, s, scale, sign=-1, what=SVD), rule.divide(apart, s, s, scale, sign=1, what=SVD)
    )


def _full_vjp(
    s_ct: Tensor | None,
    out: Any,
    shape: Shape,
    left: Tensor | None,
    right: Tensor | None,
    scale: Tensor,
    rule: Division,
) -> Tensor:
    """Return the cotangent of a matrix from those of square U and V: everything is inside their spaces."""
    u, s, vh = out
    *_, rows, columns = shape
    size, k = _dims.maximum(rows, columns), s.shape[-1]
    wide_left, wide_right = (None if m is None else _pad_square(m, size) for m in (left, right))
    middle = _crop(_middle(wide_left, wide_right, _pad_last(s, size), scale, rule), rows, columns)
    result = matmul(matmul(u, middle), vh)
    if s_ct is None:
        return result
    inner = [_crop(m, k, k) for m in (left, right) if m is not None]
    settled = rule.settle(s_ct, s, *inner, scale=scale, what=SVD)
    return elementwise.add(result, matmul(_times_rows(_columns(u, k), settled), _rows(vh, k)))


# --- forward mode ----------------------------------------------------------------------------------------------------


def _jvp(tangents: Any, out: Any, x: Tensor, *, full: bool, **options: Any) -> Any:
    (u, s, vh), t = out, tangents[0]
    rule = Division(**options)
    half = matmul(adjoint(u), t)
    inner = matmul(half, adjoint(vh))
    scale = scale_of(t, stack=x.ndim - 2)
    if full:
        return _full_jvp(out, x.shape, inner, scale, rule)
    common, opposite = _rotations(inner, s, scale, rule)
    u_t = matmul(u, elementwise.add(common, opposite))
    vh_t = matmul(elementwise.subtract(opposite, common), vh)
    k = s.shape[-1]
    if x.shape[-2] != k:
        outside = elementwise.subtract(matmul(t, adjoint(vh)), matmul(u, inner))
        u_t = elementwise.add(u_t, rule.divide(outside, vanishing(s), s, scale, sign=1, what=TANGENT))
    if x.shape[-1] != k:
        outside = elementwise.subtract(half, matmul(inner, vh))
        vh_t = elementwise.add(vh_t, rule.divide(outside, s, vanishing(s), scale, sign=1, what=TANGENT))
    return u_t, _values_jvp(inner, s, scale, rule), vh_t


def _rotations(inner: Tensor, s: Tensor, scale: Tensor, rule: Division) -> tuple[Tensor, Tensor]:
    """Return half the sum and half the difference of the rotations of U and of V that a tangent makes."""
    common = rule.divide(hermitian_part(inner), s, s, scale, sign=-1, what=TANGENT)
    opposite = rule.divide(skew_part(inner), s, s, scale, sign=1, what=TANGENT)
    return common, opposite


def _values_jvp(inner: Tensor, s: Tensor, scale: Tensor, rule: Division) -> Tensor:
    moved = rule.split(rule.split(hermitian_part(inner), s, -1, scale), s, 1, scale)
    return elementwise.real(layout.diagonal(moved, 0, -2, -1))


def _full_jvp(out: Any, shape: Shape, inner: Tensor, scale: Tensor, rule: Division) -> Any:
    u, s, vh = out
    *_, rows, columns = shape
    size, k = _dims.maximum(rows, columns), s.shape[-1]
    common, opposite = _rotations(_pad_square(inner, size), _pad_last(s, size), scale, rule)
    u_t = matmul(u, _crop(elementwise.add(common, opposite), rows, rows))
    vh_t = matmul(_crop(elementwise.subtract(opposite, common), columns, columns), vh)
    return u_t, _values_jvp(_crop(inner, k, k), s, scale, rule), vh_t


SVD_OP = register(
    Op(
        "svd",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=_jvp,
        params={
            "full": STRUCTURE,
            "degeneracy": STRUCTURE,
            "gauge": STRUCTURE,
            "phase": STRUCTURE,
            "broaden": STRUCTURE,
        },
        needs=(OUTPUT,),
        multi=True,
        batch=batching.leading,
    )
)


# --- phases ----------------------------------------------------------------------------------------------------------


def fix_phases(found: SVDResult) -> SVDResult:
    """Return the factors with the phase of each pair of vectors chosen by the largest entry of the left one."""
    k = found.S.shape[-1]
    kept, rest = _columns(found.U, k), found.U.shape[-1]
    phase = column_phases(kept)
    u = elementwise.multiply(kept, elementwise.conj(phase))
    vh = elementwise.multiply(_rows(found.Vh, k), layout.matrix_transpose(phase))
    if rest != k:
        u = layout.concat([u, indexing.getitem(found.U, (..., slice(k, None)))], axis=-1)
    if found.Vh.shape[-2] != k:
        vh = layout.concat([vh, indexing.getitem(found.Vh, (..., slice(k, None), slice(None)))], axis=-2)
    return SVDResult(u, found.S, vh)


def column_phases(u: Tensor) -> Tensor:
    """Return the phase, or sign, of the entry of largest modulus in each column, as a matrix with one row."""
    entry = indexing.take_along_axis(u, _graph.apply(PIVOT_ROWS, u), axis=-2)
    return elementwise.divide(entry, elementwise.abs(entry))


def _pivot_rows_kernel(x: Any) -> Any:
    if x.size == 0:
        return np.zeros((*x.shape[:-2], 1, x.shape[-1]), INT64)
    return np.argmax(np.abs(x), axis=-2, keepdims=True).astype(INT64)


PIVOT_ROWS = register(
    Op(
        "pivot_rows",
        infer=lambda x: ((*x.shape[:-2], 1, x.shape[-1]), INT64),
        kernel=_pivot_rows_kernel,
        batch=batching.leading,
    )
)


# --- layout ----------------------------------------------------------------------------------------------------------


def _times_rows(matrix: Tensor, row: Tensor) -> Tensor:
    """Multiply column j of a matrix by entry j of a vector."""
    return elementwise.multiply(matrix, layout.expand_dims(row, -2))


def _columns(x: Tensor, count: Size) -> Tensor:
    return _crop(x, x.shape[-2], count)


def _rows(x: Tensor, count: Size) -> Tensor:
    return _crop(x, count, x.shape[-1])


def _crop(x: Tensor, rows: Size, columns: Size) -> Tensor:
    return crop(x, (0,) * x.ndim, (*x.shape[:-2], rows, columns))


def _pad_square(x: Tensor, size: Size) -> Tensor:
    outer = (0,) * (x.ndim - 2)
    return zero_pad(x, (0,) * x.ndim, (*outer, size - x.shape[-2], size - x.shape[-1]))


def _pad_last(x: Tensor, size: Size) -> Tensor:
    return zero_pad(x, (0,) * x.ndim, (*((0,) * (x.ndim - 1)), size - x.shape[-1]))
