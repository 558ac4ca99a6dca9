"""Eigenvalues and eigenvectors of Hermitian matrices.

With A = V·Λ·Vᴴ and X = Vᴴ·V̄, whose skew part is a(X),

    Ā = V·M·Vᴴ,   M_ij = a(X)_ij / (λ_j - λ_i) + δ_ij·λ̄_i

which is Hermitian: A is the Hermitian part of what is given (see `hermitian`). What has to be done where eigenvalues
are equal is the business of `unspool._ops.linalg.gaps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._dtypes import real_dtype
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.cancellation import scale_of
from unspool._ops.contraction import matmul
from unspool._ops.linalg.division import Division, division
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.gaps import EIGH, TANGENT
from unspool._ops.linalg.hermitian import as_hermitian, hermitian_array
from unspool._ops.linalg.matrices import adjoint, hermitian_part, skew_part
from unspool._ops.linalg.null_spaces import generic_null_eigenvectors
from unspool._ops.linalg.svd import column_phases
from unspool._ops.op import OUTPUT, STRUCTURE, Op, parts, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class EighResult(NamedTuple):
    """Eigenvalues, rising, and the eigenvectors, which are the columns of a unitary matrix."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def eigh(
    x: Any,
    UPLO: str | None = None,
    *,
    gauge: str = "check",
    broaden: float | None = None,
    rtol: float | None = None,
) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian (real: symmetric) matrices.

    Parameters
    ----------
    x : array_like
        Square matrices in the last two axes. What counts is their Hermitian part, ``(x + x.H) / 2``.
    UPLO : {"L", "U"}, optional
        The triangle, lower or upper, that ``x`` is given by: the other one is neither read nor differentiated.
    gauge : {"check", "fixed"}
        What happens to the phase (the sign, if real) of each eigenvector, which is open. "check": a loss may not depend
        on it. "fixed": the largest entry is made real and positive, and the derivative is that of this convention.
    broaden : float, optional
        Divide by gaps d as d/(d² + broaden²) and check nothing. The derivative is then wrong by about (broaden/d)².
    rtol : float, optional
        Eigenvalues are equal if they differ by at most this much of the largest modulus; see `tolerances`.

    Returns
    -------
    EighResult
        The named tuple (eigenvalues, eigenvectors).

    Raises
    ------
    GaugeError
        When a derivative is evaluated, as by `svd`.
    KernelError
        When it runs, if a matrix has an entry that is infinite or NaN.

    Notes
    -----
    Both triangles count alike, so the gradient is Hermitian, as JAX's. NumPy reads the lower triangle, which is the
    same for Hermitian matrices only: name the triangle if the other one holds something else. All of the gradient is
    then in the triangle that is read. A repeated eigenvalue zero gets a generic basis, as by `svd`.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> values, vectors = us.linalg.eigh(a)
    >>> values.eval()
    array([1., 3.])
    >>> values[1].grad(a).eval()
    array([[0.5, 0.5],
           [0.5, 0.5]])
    >>> us.linalg.eigh(a, "L").eigenvalues[1].grad(a).eval()
    array([[0.5, 0. ],
           [1. , 0.5]])
    """
    x = as_hermitian(x, UPLO, "eigh")
    options = division(x.dtype, gauge, broaden, rtol)
    values, vectors = parts(_graph.apply_multi(EIGH_OP, x, lower=UPLO not in ("U", "u"), **options))
    if gauge == "fixed":
        vectors = elementwise.multiply(vectors, elementwise.conj(column_phases(vectors)))
    return EighResult(values, vectors)


def eigvalsh(x: Any, UPLO: str | None = None) -> Tensor:
    """Eigenvalues of Hermitian matrices, rising.

    Where eigenvalues are equal, only losses that treat them alike have a derivative; others raise `GaugeError` when it
    is evaluated. As for `eigh`, of whose node these are the values, the Hermitian part of ``x`` counts, or else the
    triangle that ``UPLO`` names.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.eigvalsh([[2.0, 1.0], [1.0, 2.0]]).eval()
    array([1., 3.])
    """
    x = as_hermitian(x, UPLO, "eigvalsh")
    options = division(x.dtype, "check", None, None)
    return parts(_graph.apply_multi(EIGH_OP, x, lower=UPLO not in ("U", "u"), **options))[0]


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(x: Node, **options: Any) -> Any:
    return (x.shape[:-1], real_dtype(x.dtype)), (x.shape, x.dtype)


def _kernel(x: Any, *, lower: bool, **options: Any) -> Any:
    refuse_not_finite(x, "eigh")
    # Both triangles say the same now. With the one that was asked for, phases are those that NumPy would return.
    return generic_null_eigenvectors(*np.linalg.eigh(hermitian_array(x), "L" if lower else "U"))


def _vjp(ct: Any, out: Any, x: Tensor, *, lower: bool, **options: Any) -> Tensor:
    (values_ct, vectors_ct), (values, vectors) = ct, out
    rule = Division(**options)
    if vectors_ct is None:
        return _values_vjp(values_ct, values, vectors, rule)
    scale = scale_of(vectors_ct, stack=x.ndim - 2)
    inner = matmul(adjoint(vectors), vectors_ct)
    total = matmul(vectors, rule.divide(skew_part(inner), values, values, scale, sign=-1, what=EIGH))
    if values_ct is not None:
        settled = rule.settle(values_ct, values, inner, scale=scale, what=EIGH)
        total = elementwise.add(total, elementwise.multiply(vectors, layout.expand_dims(settled, -2)))
    return matmul(total, adjoint(vectors))


def _values_vjp(ct: Tensor, values: Tensor, vectors: Tensor, rule: Division) -> Tensor:
    settled = rule.settle(ct, values, what=EIGH)
    return matmul(elementwise.multiply(vectors, layout.expand_dims(settled, -2)), adjoint(vectors))


def _jvp(tangents: Any, out: Any, x: Tensor, *, lower: bool, **options: Any) -> Any:
    values, vectors = out
    rule = Division(**options)
    inner = _in_basis(tangents[0], vectors)
    scale = scale_of(tangents[0], stack=x.ndim - 2)
    rotation = rule.divide(inner, values, values, scale, sign=-1, what=TANGENT)
    values_t = elementwise.real(layout.diagonal(rule.split(inner, values, -1, scale), 0, -2, -1))
    return values_t, matmul(vectors, rotation)


def _in_basis(t: Tensor, vectors: Tensor) -> Tensor:
    return hermitian_part(matmul(matmul(adjoint(vectors), t), vectors))


EIGH_OP = register(
    Op(
        "eigh",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=_jvp,
        params={
            "lower": STRUCTURE,
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
