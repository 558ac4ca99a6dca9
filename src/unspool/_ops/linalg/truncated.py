"""Singular value decompositions cut off at a rank, and the choice of a rank.

`truncated_svd` takes slices of the whole decomposition. The rule of the whole one couples kept with dropped vectors, so
derivatives include the part that leaves the kept space, and are right however large the dropped values are.

Where single vectors do not matter, `unspool._ops.linalg.spaces` has a rule that asks for less.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops import indexing
from unspool._ops.linalg.division import division
from unspool._ops.linalg.gauge import as_tolerance, tolerances_for
from unspool._ops.linalg.matrices import as_matrix
from unspool._ops.linalg.svd import SVDResult, factors, fix_phases
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
    if keep_multiplets and count:
        values = np.asarray(whole.S.eval())
        count = between_multiplets(values[..., :-1] - values[..., 1:] <= options["degeneracy"] * values[..., :1], count)
    if gauge == "fixed":
        whole = fix_phases(whole)
    return _cut(whole, count)


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


def between_multiplets(close: Any, rank: int) -> int:
    """Return the next smaller rank that cuts through no equal values; the next larger one if that would be 0.

    Given which of the falling values, in each vector of a stack, are equal to their successors.
    """
    count = close.shape[-1] + 1
    whole = ~np.any(close, axis=tuple(range(close.ndim - 1)))
    cuts = [0, *(1 + np.flatnonzero(whole)), count]
    rank = min(rank, count)
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
