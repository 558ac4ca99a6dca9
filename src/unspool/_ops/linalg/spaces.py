"""The leading singular space of a matrix: an isometry Q of it and the rest R = Qᴴ·A, so that Q·R is A, cut off.

Programs that truncate go on with the space and not with the singular vectors. Any orthonormal basis of it will do: turn
Q to Q·X and R turns to Xᴴ·R, which the next contraction undoes. So a derivative has to tell how the space moves, and it
moves out of itself only. `unspool._ops.linalg.space_motion` has the equation for that, and what it asks of a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape, Size
from unspool._dtypes import real_dtype
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.contraction import matmul
from unspool._ops.creation import zeros
from unspool._ops.elementwise import add
from unspool._ops.leaf import as_tensor
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.gauge import tolerances_for
from unspool._ops.linalg.hermitian import hermitian_array
from unspool._ops.linalg.matrices import adjoint, as_matrix, as_square, smaller_side
from unspool._ops.linalg.space_motion import conjugated, equal_within, motion
from unspool._ops.linalg.svd import SVDResult, decompose
from unspool._ops.linalg.truncated import between_multiplets, chosen_rank
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, parts, register
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

SIDES = ("left", "right")


class LeadingSpaceResult(NamedTuple):
    """A leading singular space, and what a matrix is in it.

    Attributes
    ----------
    isometry : Tensor
        An orthonormal basis of the space: as columns if it is the left one, as rows if it is the right one.
    rest : Tensor
        What makes the matrix, cut off, of the isometry: ``isometry @ rest``, or ``rest @ isometry``.
    values : Tensor
        All singular values, falling, to look at: the first ones belong to the space. They have no derivative; a loss
        takes them from `svdvals`, or from the rest.
    """

    isometry: Tensor
    rest: Tensor
    values: Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def leading_space(
    x: Any,
    rank: int | None = None,
    rtol: float | None = None,
    *,
    side: str = "left",
    keep_multiplets: bool = False,
    protected: bool = False,
    trusted: bool = False,
    factors: SVDResult | None = None,
) -> LeadingSpaceResult:
    """Split matrices, cut off at a rank, into an isometry of their leading singular space and the rest.

    Parameters
    ----------
    x : array_like
        Matrices in the last two axes.
    rank : int, optional
        Keep at most so many dimensions, those of the largest singular values.
    rtol : float, optional
        Keep singular values above this much of the largest one, as `truncated_svd` does. This looks at values: the rank
        it finds becomes part of the recipe. With neither argument, the tolerance for ranks is taken (see `tolerances`).
    side : {"left", "right"}
        Whether the isometry is on the left, ``x ≈ isometry @ rest``, or on the right, ``x ≈ rest @ isometry``.
    keep_multiplets : bool
        Lower the rank as far as it takes not to cut through equal singular values; if the largest value alone is a
        larger multiplet, keep that. This looks at values too.
    protected : bool
        Whether a symmetry that no change of the matrix breaks keeps equal values equal. Then a cut through them is
        refused only where the loss depends on which of them are kept.
    trusted : bool
        Whether the loss is known not to depend on the basis, as where isometry and rest go into contractions with each
        other. Then nobody looks whether it does.
    factors : SVDResult, optional
        What `space_factors` makes of ``x``, if that is there already: because the rank was chosen by looking at it, or
        because ``x`` is Hermitian.

    Returns
    -------
    LeadingSpaceResult
        The named tuple (isometry, rest, values).

    Raises
    ------
    GaugeError
        When a derivative is evaluated: if the loss depends on which basis of the space was taken, or if the cut goes
        through equal singular values and the loss depends on these. See `tolerances`.

    Notes
    -----
    A loss may not depend on the basis: on a rotation that isometry and rest have in common. Its derivative then divides
    by differences of squares of kept and dropped values only. Equal values among the kept ones are nothing special, nor
    are zeros. In forward mode the isometry moves by its tangent that is orthogonal to the space.

    Two values are equal, for the cut and for its derivative, if they differ by at most the tolerance ``degeneracy`` of
    the larger one, or by what rounding makes of the largest of all.

    A dependence of the loss on the basis is found if it is larger than rounding: of what the loss sends back here, and
    of a loss of order one, about 2e-13 in double precision (1024 times the square of the tolerance ``gauge``). For a
    loss that is much smaller, lower the tolerance; one that is much larger may be refused for its rounding where a loop
    has converged: divide it by its size, or say ``trusted``.

    Forward mode cannot tell what is made of a basis, and checks only the cut.

    `scipy.linalg.orth` returns such a basis of a whole range; `qr` is the same split without a cut.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    >>> Q, R, values = us.linalg.leading_space(A, rank=2)
    >>> Q.shape, R.shape, values.eval()
    ((3, 2), (2, 3), array([2., 2., 1.]))
    >>> us.sum((Q @ Q.mT) * [[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]).grad(A).eval().round(12)
    array([[0.        , 0.        , 0.33333333],
           [0.        , 0.        , 0.66666667],
           [0.66666667, 1.33333333, 0.        ]])
    """
    x = as_matrix(x, "leading_space")
    if side not in SIDES:
        raise ArgumentError(f'side is "left" or "right", got {side!r}')
    u, s, vh = space_factors(x) if factors is None else _fitting(factors, x.shape)
    tolerance = tolerances_for(x.dtype)
    count = chosen_rank(s, rank, rtol)
    if keep_multiplets and count:
        values = np.asarray(s.eval())
        close = values[..., :-1] - values[..., 1:] <= equal_within(values, tolerance.degeneracy)[..., :-1]
        count = between_multiplets(close, count)
    k = smaller_side(x.shape)
    options = {
        "rank": min(count, k) if isinstance(k, int) else count,
        "degeneracy": tolerance.degeneracy,
        "gauge": tolerance.gauge,
        "protected": bool(protected),
        "trusted": bool(trusted),
    }
    if side == "left":
        isometry, rest = parts(_graph.apply_multi(SPACE, x, u, s, vh, **options))
        return LeadingSpaceResult(isometry, rest, s)
    isometry, rest = parts(_graph.apply_multi(SPACE, adjoint(x), adjoint(vh), s, adjoint(u), **options))
    return LeadingSpaceResult(adjoint(isometry), adjoint(rest), s)


def low_rank(x: Any, rank: int | None = None, rtol: float | None = None) -> Tensor:
    """Return the best approximation of matrices by matrices of a given rank.

    Parameters
    ----------
    x : array_like
        Matrices in the last two axes.
    rank, rtol
        The rank, or what decides on it, as in `truncated_svd`.

    Notes
    -----
    The derivative is exact, also where kept singular values are equal. If the rank cuts through equal values, the best
    approximation is not unique, and a derivative that depends on it raises `GaugeError`. It is the product of what
    `leading_space` returns.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.low_rank(us.diag([2.0, 2.0, 1.0]), 2).eval()
    array([[2., 0., 0.],
           [0., 2., 0.],
           [0., 0., 0.]])
    """
    matrix = as_matrix(x, "low_rank")
    isometry, rest, _ = leading_space(matrix, rank, rtol)
    k = smaller_side(matrix.shape)
    if isinstance(k, int) and rest.shape[-2] == k:
        return matrix
    return matmul(isometry, rest)


def space_factors(x: Any, *, hermitian: bool = False) -> SVDResult:
    """Return the thin singular factors of matrices, to look at and to give to `leading_space`.

    Parameters
    ----------
    x : array_like
        Matrices in the last two axes.
    hermitian : bool
        Take the Hermitian part of the matrices (real: the symmetric part), which takes less time. Singular values are
        the moduli of eigenvalues.

    Returns
    -------
    SVDResult
        The named tuple (U, S, Vh). These have no derivative; those of `svd` do.

    Notes
    -----
    With it, a loop looks at a spectrum, chooses a rank in its own way, and cuts, though the decomposition and the cut
    are in different `fragment` functions.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.diag([3.0, -2.0, 1e-3])
    >>> factors = us.linalg.space_factors(A, hermitian=True)
    >>> rank = int(us.sum(factors.S > 0.1))
    >>> us.linalg.leading_space(A, rank, factors=factors).isometry.shape
    (3, 2)
    """
    x = as_square(x, "space_factors") if hermitian else as_matrix(x, "space_factors")
    return SVDResult(*parts(_graph.apply_multi(FACTORS, x, hermitian=bool(hermitian))))


def _fitting(factors: Any, shape: Shape) -> SVDResult:
    """Return factors that have the shapes of those of a matrix, or raise."""
    if not isinstance(factors, tuple) or len(factors) != 3:
        raise ArgumentError(f"factors are what space_factors makes of the matrix, got {factors!r}")
    given = SVDResult(*(as_tensor(factor) for factor in factors))
    *batch, rows, columns = shape
    k = smaller_side(shape)
    expected, found = [(*batch, rows, k), (*batch, k), (*batch, k, columns)], [factor.shape for factor in given]
    if found != expected:
        raise ShapeError(f"factors are what space_factors makes of the matrix, with shapes {expected}, got {found}")
    return given


# --- the factors -----------------------------------------------------------------------------------------------------


def _infer_factors(x: Node, *, hermitian: bool) -> Any:
    *batch, rows, columns = x.shape
    k = smaller_side(x.shape)
    return ((*batch, rows, k), x.dtype), ((*batch, k), real_dtype(x.dtype)), ((*batch, k, columns), x.dtype)


def _factors_kernel(x: Any, *, hermitian: bool) -> Any:
    if not hermitian:
        return decompose(x, False)
    refuse_not_finite(x, "space_factors")
    values, vectors = np.linalg.eigh(hermitian_array(x))
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    values = np.take_along_axis(values, order, -1)
    vectors = np.take_along_axis(vectors, order[..., None, :], -1)
    return vectors, np.abs(values), np.where(values < 0, -1, 1).astype(values.dtype)[..., None] * conjugated(vectors)


FACTORS = register(
    Op(
        "space_factors",
        infer=_infer_factors,
        kernel=_factors_kernel,
        params={"hermitian": STRUCTURE},
        multi=True,
        batch=batching.leading,
    )
)


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(a: Node, u: Node, s: Node, vh: Node, *, rank: int, **tolerance: Any) -> Any:
    *batch, rows, columns = a.shape
    count: Size = _dims.minimum(rank, smaller_side(a.shape))
    return ((*batch, rows, count), a.dtype), ((*batch, count, columns), a.dtype)


def _kernel(a: Any, u: Any, s: Any, vh: Any, *, rank: int, **tolerance: Any) -> Any:
    # Row by row of the factors rather than Qᴴ·A, whose rows of small values would be known to fewer digits.
    return u[..., :rank], s[..., :rank, None] * vh[..., :rank, :]


def _vjp(ct: Any, out: Any, a: Tensor, u: Tensor, s: Tensor, vh: Tensor, *, rank: int, **tolerance: Any) -> Tensor:
    isometry, rest = out
    x, y = (zeros(part.shape, part.dtype) if c is None else c for part, c in zip(out, ct, strict=True))
    z, w = motion(x, y, a, isometry, rest, u, s, vh, check=True, **tolerance)
    return add(matmul(z, rest), matmul(isometry, w))


def _jvp(tangents: Any, out: Any, a: Tensor, u: Tensor, s: Tensor, vh: Tensor, *, rank: int, **tolerance: Any) -> Any:
    t = tangents[0]
    if t is None:
        return None
    isometry, rest = out
    x, y = matmul(t, adjoint(rest)), matmul(adjoint(isometry), t)
    return motion(x, y, a, isometry, rest, u, s, vh, check=False, **tolerance)


SPACE = register(
    Op(
        "leading_space",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp, None, None, None),
        jvp=_jvp,
        params={
            "rank": STRUCTURE,
            "degeneracy": STRUCTURE,
            "gauge": STRUCTURE,
            "protected": STRUCTURE,
            "trusted": STRUCTURE,
        },
        needs=(INPUTS, OUTPUT),
        multi=True,
        batch=batching.leading,
    )
)
