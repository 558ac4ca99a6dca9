"""Eigenvalues and eigenvectors of general square matrices.

With A·V = V·diag(λ), unit columns and P = V⁻¹·dA·V, the differentials are dλ = diag P and dV = V·(F∘P - D), where
F_ij = 1/(λ_j - λ_i) off the diagonal and D is the diagonal that makes each dv orthogonal to its v: columns stay
normalised and do not turn their phases. What is left open, phases and bases of equal eigenvalues, is looked after in
`eig_checks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import BOOL, complex_dtype
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout, reduction
from unspool._ops.contraction import matmul
from unspool._ops.leaf import constant
from unspool._ops.linalg.eig_checks import close_pairs, settled_cotangent, settled_tangent
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.gauge import Tolerances, as_tolerance, tolerances_for
from unspool._ops.linalg.matrices import adjoint, as_square
from unspool._ops.linalg.solving import solve
from unspool._ops.op import OUTPUT, STRUCTURE, Op, parts, register
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# An entry is the largest of its column if no other is larger by more than this factor: entries that are equal but for
# rounding must not take turns.
_LARGEST = 1 - 2.0**-10


class EigResult(NamedTuple):
    """Eigenvalues, and eigenvectors as the columns of a matrix."""

    eigenvalues: Tensor
    eigenvectors: Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def eig(x: Any, *, gauge: str = "check", broaden: float | None = None, rtol: float | None = None) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices, in no particular order.

    Both are complex, as in the array API standard, also where NumPy returns reals because all imaginary parts happen to
    vanish: a dtype does not depend on values here.

    Parameters
    ----------
    x : array_like
        Square matrices in the last two axes.
    gauge : {"check", "fixed"}
        The phase of an eigenvector is open. "check": the derivative of a loss that depends on it raises `GaugeError`
        when it is evaluated. "fixed": the largest entry of each eigenvector (the first of several) is made real and
        positive, and this convention is differentiated.
    broaden : float, optional
        Divide by gaps g as conj(g)/(abs(g)**2 + broaden**2), which is finite, and biased, where eigenvalues are equal.
        Without it, a loss that depends on the basis of equal eigenvalues raises `GaugeError`.
    rtol : float, optional
        Eigenvalues are equal if they differ by at most this much of the largest. By default `tolerances` says.

    Returns
    -------
    EigResult
        ``eigenvalues`` and ``eigenvectors``; column i, of norm 1, belongs to eigenvalue i.

    Notes
    -----
    Derivatives of eigenvalues and of expressions in which phases cancel are right, or raise `GaugeError`: for a matrix
    that is defective or nearly so, for a loss that tells equal eigenvalues apart or takes them together with their
    vectors. Forward mode cannot see the loss: the tangent of an eigenvector is orthogonal to it (its phase is held),
    and a direction that splits equal eigenvalues raises.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([[1.0, 1.0], [0.0, 3.0]])
    >>> values, vectors = us.linalg.eig(x)
    >>> values.eval()
    array([1.+0.j, 3.+0.j])
    >>> us.sum(us.real(values) ** 2).grad(x).eval()
    array([[2., 0.],
           [2., 6.]])
    """
    if gauge not in ("check", "fixed"):
        raise ArgumentError(f'gauge is "check" or "fixed", got {gauge!r}')
    values, vectors = _eig(x, broaden, rtol, "eig")
    return EigResult(values, with_fixed_phase(vectors) if gauge == "fixed" else vectors)


def eigvals(x: Any, *, broaden: float | None = None, rtol: float | None = None) -> Tensor:
    """Return the eigenvalues of square matrices, complex, in no particular order; see `eig`.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.eigvals([[0.0, 1.0], [-1.0, 0.0]]).eval()
    array([0.+1.j, 0.-1.j])
    """
    # One op for both: eigenvectors are what derivatives of eigenvalues need, in the same order.
    return _eig(x, broaden, rtol, "eigvals")[0]


def _eig(x: Any, broaden: float | None, rtol: float | None, what: str) -> tuple[Tensor, ...]:
    x = as_square(x, what)
    tol = tolerances_for(x.dtype, rtol)
    width = None if broaden is None else as_tolerance(broaden, "broaden")
    if width == 0:
        raise ArgumentError("broaden is a width, in the units of the eigenvalues: it has to be positive")
    return parts(_graph.apply_multi(EIG, x, degeneracy=tol.degeneracy, gauge=tol.gauge, broaden=width))


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(x: Node, **params: Any) -> tuple[tuple[Shape, Any], ...]:
    dtype = complex_dtype(x.dtype)
    return (x.shape[:-1], dtype), (x.shape, dtype)


def _kernel(x: Any, **params: Any) -> tuple[Any, Any]:
    refuse_not_finite(x, "eig")
    values, vectors = np.linalg.eig(x)
    dtype = np.result_type(x.dtype, np.complex64)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def _vjp(ct: Any, out: Any, x: Tensor, *, degeneracy: float, gauge: float, broaden: float | None) -> Tensor:
    (w, v), (w_ct, v_ct) = out, ct
    vh = adjoint(v)
    inside: Tensor | None = None
    if w_ct is not None:
        size = x.shape[-1]
        inside = layout.embed_diagonal(w_ct, size, size, 0)
    if v_ct is not None:
        projected = matmul(vh, v_ct)
        along = layout.diagonal(projected, 0, -2, -1)
        turned = elementwise.subtract(projected, elementwise.multiply(matmul(vh, v), layout.expand_dims(along, -2)))
        mixed = elementwise.multiply(elementwise.conj(_inverse_gaps(w, degeneracy, broaden)), turned)
        inside = mixed if inside is None else elementwise.add(inside, mixed)
    tol = Tolerances(degeneracy=degeneracy, gauge=gauge, rank=0.0)
    settled = settled_cotangent(inside, w, v, w_ct, v_ct, tol, broaden is None)  # type: ignore[arg-type]
    return solve(vh, matmul(settled, vh))


def _jvp(
    tangents: tuple[Tensor], out: Any, x: Tensor, *, degeneracy: float, gauge: float, broaden: float | None
) -> Any:
    w, v = out
    tol = Tolerances(degeneracy=degeneracy, gauge=gauge, rank=0.0)
    t = settled_tangent(solve(v, matmul(tangents[0], v)), w, v, tol, broaden is None)
    moved = matmul(v, elementwise.multiply(_inverse_gaps(w, degeneracy, broaden), t))
    along = reduction.sum(elementwise.multiply(elementwise.conj(v), moved), axis=-2, keepdims=True)
    return layout.diagonal(t, 0, -2, -1), elementwise.subtract(moved, elementwise.multiply(v, along))


EIG = register(
    Op(
        "eig",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp,),
        jvp=_jvp,
        params={"degeneracy": STRUCTURE, "gauge": STRUCTURE, "broaden": STRUCTURE},
        needs=(OUTPUT,),
        multi=True,
        batch=batching.leading,
    )
)


# --- gaps ------------------------------------------------------------------------------------------------------------


def _inverse_gaps(w: Tensor, degeneracy: float, broaden: float | None) -> Tensor:
    """Return 1/(w_j - w_i), broadened if asked for, else 0 for eigenvalues that are equal."""
    if broaden is None:
        return _graph.apply(INVERSE_GAPS, w, degeneracy=degeneracy)
    gaps = _differences(w)
    squares = elementwise.add(elementwise.square(elementwise.real(gaps)), elementwise.square(elementwise.imag(gaps)))
    # No gap lies on the diagonal: a divisor of 1 there keeps 1/broaden² out of derivatives.
    ones = layout.broadcast_to(constant(1, squares.dtype), w.shape)
    divisors = elementwise.add(squares, layout.embed_diagonal(ones, w.shape[-1], w.shape[-1], 0))
    return elementwise.divide(elementwise.conj(gaps), elementwise.add(divisors, broaden**2))


def _differences(w: Tensor) -> Tensor:
    """Return w_j - w_i in row i and column j."""
    return elementwise.subtract(layout.expand_dims(w, -2), layout.expand_dims(w, -1))


def _inverse_gaps_kernel(w: Any, *, degeneracy: float) -> Any:
    equal = close_pairs(w, degeneracy)
    gaps = np.where(equal, 1, w[..., None, :] - w[..., :, None])
    return np.where(equal, np.zeros((), w.dtype), 1 / gaps)


def _push_gaps(t: Tensor, out: Tensor, w: Tensor, *, degeneracy: float) -> Tensor:
    # Which eigenvalues are equal is held fixed: an inverse that is 0 stays 0.
    return elementwise.negative(elementwise.multiply(elementwise.square(out), _differences(t)))


def _pull_gaps(ct: Tensor, out: Tensor, w: Tensor, *, degeneracy: float) -> Tensor:
    slopes = elementwise.multiply(ct, elementwise.square(elementwise.conj(out)))
    return elementwise.subtract(reduction.sum(slopes, axis=-1), reduction.sum(slopes, axis=-2))


INVERSE_GAPS = register(
    Op(
        "inverse_gaps",
        infer=lambda w, *, degeneracy: ((*w.shape, w.shape[-1]), w.dtype),
        kernel=_inverse_gaps_kernel,
        vjp=(_pull_gaps,),
        jvp=(_push_gaps,),
        params={"degeneracy": STRUCTURE},
        needs=(OUTPUT,),
        batch=batching.leading,
    )
)


# --- the convention for phases ---------------------------------------------------------------------------------------


def with_fixed_phase(vectors: Tensor) -> Tensor:
    """Return columns multiplied by phases that make the largest entry of each real and positive."""
    chosen = _graph.apply(LARGEST_OF_COLUMN, vectors)
    pivot = reduction.sum(elementwise.where(chosen, vectors, 0), axis=-2, keepdims=True)
    return elementwise.multiply(vectors, elementwise.divide(elementwise.conj(pivot), elementwise.abs(pivot)))


def _largest_kernel(vectors: Any) -> Any:
    sizes = np.abs(vectors)
    candidates = sizes >= _LARGEST * np.max(sizes, axis=-2, keepdims=True, initial=0)
    return candidates & (np.cumsum(candidates, axis=-2) == 1)


LARGEST_OF_COLUMN = register(
    Op("largest_of_column", infer=lambda vectors: (vectors.shape, BOOL), kernel=_largest_kernel, batch=batching.leading)
)
