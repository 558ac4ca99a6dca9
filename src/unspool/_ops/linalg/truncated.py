"""Singular value decompositions cut off at a rank, and the best approximation of a given rank.

`truncated_svd` takes slices of the whole decomposition. The rule of the whole one couples kept with dropped vectors, so
derivatives include the part that leaves the kept space, and are right however large the dropped values are.

`low_rank` is one function of the matrix, with a derivative that divides by gaps between kept and dropped values alone.
For singular vectors i kept and j dropped, and the cotangent G in the basis of the vectors, the cotangent of the matrix
has the entries

    M_ij = G_ij + (s_j²·G_ij + s_i·s_j·G_ji*) / ((s_i - s_j)·(s_i + s_j))
    M_ji = G_ji + (s_j²·G_ji + s_i·s_j·G_ij*) / ((s_i - s_j)·(s_i + s_j))

and is G_ij where both are kept, 0 where both are dropped. So equal kept values do not matter to it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._ops import elementwise, indexing, layout
from unspool._ops.cancellation import scale_of
from unspool._ops.contraction import matmul
from unspool._ops.linalg.division import Division, division, vanishing
from unspool._ops.linalg.gaps import CUT, gauge_check
from unspool._ops.linalg.gauge import as_tolerance, tolerances_for
from unspool._ops.linalg.matrices import adjoint, as_matrix, smaller_side
from unspool._ops.linalg.svd import SVDResult, factors, fix_phases
from unspool._ops.op import INPUTS, Op, register
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- what users call -------------------------------------------------------------------------------------------------


def truncated_svd(
    x: Any,
    rank: int | None = None,
    rtol: float | None = None,
    *,
    keep_multiplets: bool = False,
    gauge: str = "check",
    broaden: float | None = None,
) -> SVDResult:
    """Singular value decomposition cut off at a rank: the best approximation ``(U * S) @ Vh`` of that rank.

    Parameters
    ----------
    x : array_like
        Matrices in the last two axes.
    rank : int, optional
        Keep at most so many singular values.
    rtol : float, optional
        Keep singular values above this much of the largest one; of a stack, as many as the matrix that needs most, and
        always at least one. This looks at values: the rank it finds becomes part of the recipe. With neither argument,
        the tolerance for ranks is taken (see `tolerances`).
    keep_multiplets : bool
        Lower the rank as far as it takes not to cut through equal singular values. This looks at values too.
    gauge, broaden
        As in `svd`.

    Returns
    -------
    SVDResult
        The named tuple (U, S, Vh).

    Notes
    -----
    The derivative includes the part that leaves the kept space and is exact, however large the dropped values are. A
    rank that cuts through equal singular values is an arbitrary choice among their vectors; a derivative that depends
    on it raises `GaugeError`. See ``keep_multiplets``.

    Examples
    --------
    >>> import unspool as us
    >>> U, S, Vh = us.linalg.truncated_svd(us.diag([4.0, 2.0, 1e-9]), rtol=1e-6)
    >>> S.eval()
    array([4., 2.])
    """
    x = as_matrix(x, "truncated_svd")
    options = division(x.dtype, gauge, broaden, None)
    whole = factors(x, False, **options)
    count = chosen_rank(whole.S, rank, rtol)
    if keep_multiplets:
        count = _between_multiplets(np.asarray(whole.S.eval()), count, options["degeneracy"])
    if gauge == "fixed":
        whole = fix_phases(whole)
    return _cut(whole, count)


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
    approximation is not unique, and a derivative that depends on it raises `GaugeError`.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.low_rank(us.diag([2.0, 2.0, 1.0]), 2).eval()
    array([[2., 0., 0.],
           [0., 2., 0.],
           [0., 0., 0.]])
    """
    matrix = as_matrix(x, "low_rank")
    options = division(matrix.dtype, "check", None, None)
    whole = factors(matrix, False, **options)
    count = chosen_rank(whole.S, rank, rtol)
    k = smaller_side(matrix.shape)
    if isinstance(k, int) and count >= k:
        return matrix
    return _graph.apply(LOW_RANK, matrix, *whole, rank=count, degeneracy=options["degeneracy"], gauge=options["gauge"])


def chosen_rank(s: Tensor, rank: int | None, rtol: float | None) -> int:
    """Return the rank to cut at, looking at the singular values if a tolerance decides."""
    largest = None if rank is None else _as_rank(rank)
    if rtol is None and largest is not None:
        return largest
    tolerance = tolerances_for(s.dtype).rank if rtol is None else as_tolerance(rtol, "rtol")
    values = np.asarray(s.eval())
    if values.size == 0:
        return 0
    needed = int(np.max(np.sum(values > tolerance * values[..., :1], axis=-1)))
    needed = max(needed, 1)
    return needed if largest is None else min(needed, largest)


def _between_multiplets(values: Any, rank: int, degeneracy: float) -> int:
    """Return the next smaller rank that cuts through no equal values; the next larger one if that would be 0."""
    close = values[..., :-1] - values[..., 1:] <= degeneracy * values[..., :1]
    whole = ~np.any(close, axis=tuple(range(close.ndim - 1)))
    cuts = [0, *(1 + np.flatnonzero(whole)), values.shape[-1]]
    rank = min(rank, values.shape[-1])
    smaller = max(int(cut) for cut in cuts if cut <= rank)
    return smaller or min(int(cut) for cut in cuts if cut >= rank)


def _as_rank(rank: Any) -> int:
    try:
        number = operator.index(rank)
    except TypeError:
        number = -1
    if number < 0:
        raise ArgumentError(f"rank is the number of singular values to keep, got {rank!r}")
    return number


def _cut(whole: SVDResult, rank: int) -> SVDResult:
    """Return the leading part of the factors."""
    u, s, vh = whole
    return SVDResult(
        indexing.getitem(u, (..., slice(None, rank))),
        indexing.getitem(s, (..., slice(None, rank))),
        indexing.getitem(vh, (..., slice(None, rank), slice(None))),
    )


def _rest(whole: SVDResult, rank: int) -> SVDResult:
    """Return what `_cut` leaves."""
    u, s, vh = whole
    return SVDResult(
        indexing.getitem(u, (..., slice(rank, None))),
        indexing.getitem(s, (..., slice(rank, None))),
        indexing.getitem(vh, (..., slice(rank, None), slice(None))),
    )


# --- the best approximation ------------------------------------------------------------------------------------------

# The op takes the factors beside the matrix, so that they are computed once; it is a function of the matrix alone, and
# only that is differentiated. Its rules are functions of the factors, whose derivatives second derivatives need.


def _kernel(x: Any, u: Any, s: Any, vh: Any, *, rank: int, **options: Any) -> Any:
    return np.matmul(u[..., :rank] * s[..., None, :rank], vh[..., :rank, :])


def _rule(
    move: Tensor, x: Tensor, u: Tensor, s: Tensor, vh: Tensor, *, rank: int, degeneracy: float, gauge: float
) -> Tensor:
    """Apply the derivative, which is its own adjoint, to a cotangent or a tangent."""
    whole = SVDResult(u, s, vh)
    (u1, s1, vh1), (u2, s2, vh2) = _cut(whole, rank), _rest(whole, rank)
    v1, v2 = adjoint(vh1), adjoint(vh2)
    tolerance: dict[str, Any] = {"degeneracy": degeneracy, "gauge": gauge}
    rows, columns = matmul(adjoint(u1), move), matmul(move, v1)
    inner = matmul(rows, v1)
    scale = scale_of(move, stack=x.ndim - 2)
    # What leads out of the kept spaces. Where a kept value is zero, so is the next one, and its vectors are arbitrary.
    out_left = gauge_check(
        elementwise.subtract(columns, matmul(u1, inner)), vanishing(s), s1, scale, what=CUT, sign=1, **tolerance
    )
    out_right = gauge_check(
        elementwise.subtract(rows, matmul(inner, vh1)), s1, vanishing(s), scale, what=CUT, sign=1, **tolerance
    )
    kept_dropped, dropped_kept = matmul(out_right, v2), adjoint(matmul(adjoint(u2), out_left))
    ahead, back = _couplings(kept_dropped, dropped_kept, s1, s2, scale, Division(phase=True, broaden=None, **tolerance))
    left = elementwise.add(out_left, matmul(u2, adjoint(back)))
    right = elementwise.add(rows, matmul(ahead, vh2))
    return elementwise.add(matmul(u1, right), matmul(left, vh1))


def _couplings(
    g: Tensor, other: Tensor, kept: Tensor, dropped: Tensor, scale: Tensor, rule: Division
) -> tuple[Tensor, Tensor]:
    """Return (s_j²·g_ij + s_i·s_j·other_ij) / (s_i² - s_j²) for kept i and dropped j, and the same for other and g.

    As partial fractions, so that the part which the gap divides is alone in its numerator.
    """
    gap = rule.divide(elementwise.add(g, other), kept, dropped, scale, sign=-1, what=CUT)
    total = rule.divide(elementwise.subtract(g, other), kept, dropped, scale, sign=1, what=CUT)
    half = elementwise.multiply(layout.expand_dims(dropped, -2), -0.5)
    ahead = elementwise.multiply(half, elementwise.add(gap, total))
    back = elementwise.multiply(half, elementwise.subtract(gap, total))
    return ahead, back


LOW_RANK = register(
    Op(
        "low_rank",
        infer=lambda x, *factors, **options: (x.shape, x.dtype),
        kernel=_kernel,
        vjp=(lambda ct, out, *inputs, **params: _rule(ct, *inputs, **params), None, None, None),
        jvp=(lambda t, out, *inputs, **params: _rule(t, *inputs, **params), None, None, None),
        needs=(INPUTS,),
    )
)
