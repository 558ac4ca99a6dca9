"""The leading singular spaces of a matrix, with a derivative that knows no gaps among the values that are kept.

A coarse-graining step cuts a matrix A ≈ U·S·Vᵀ at a rank and goes on with the spaces of U and V. Which basis of them is
taken does not matter to what comes out: turning U and V by the same rotation is undone by the next contraction. So a
derivative only has to tell how the spaces move, and they move out of themselves alone. With D = Uᵀ·A·V, a change dA
moves the pair by the one solution of

    dU·D - A·dV  = dA·V  - U·(…)       dV·D - Aᵀ·dU = dAᵀ·U - V·(…)       Uᵀ·dU + Vᵀ·dV = 0

where (…) is what the last condition asks for. In the basis of all singular vectors this is a division by s_i - s_a and
s_i + s_a for kept i and dropped a, and by s_i + s_j for kept i and j. Equal values among the kept ones, which fixed
points of tensor renormalisation are full of, are nothing special. Rules that go through U, S and V one by one divide by
s_i - s_j as well. They need the numerator to vanish there, and lose digits of second derivatives when it does.

The equation above is an op, `_SOLVE`, whose derivatives are the same equation, so every order is exact. The singular
vectors beside it say how to solve it and are not differentiated.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool._ops.cancellation import scale_of
from unspool._ops.linalg.svd import decompose
from unspool.errors import GaugeError

__all__ = ["Kept", "balanced_factors", "leading_spaces"]


class Kept(NamedTuple):
    """The leading singular spaces of a square matrix.

    Attributes
    ----------
    left, right : Tensor
        Orthonormal columns that span them. A loss may not depend on a rotation that both have in common.
    values : ndarray
        All singular values, falling; the first ones belong to the spaces.
    """

    left: us.Tensor
    right: us.Tensor
    values: Any

    def dropped_share(self, power: int = 1) -> float:
        """Return the dropped part of the sum of a power of the singular values."""
        weights = (self.values / self.values[0]) ** power
        return float(np.sum(weights[int(self.left.shape[1]) :]) / np.sum(weights))


def leading_spaces(matrix: us.Tensor, *, rank: int, cutoff: float, keep_multiplets: bool = False) -> Kept:
    """Return the spaces of the ``rank`` largest singular values, or of fewer: those above ``cutoff`` of the largest.

    Parameters
    ----------
    matrix : Tensor
        Square and real.
    rank, cutoff
        What to keep. A cutoff below what rounding makes of zeros is raised to that.
    keep_multiplets : bool
        Lower the rank as far as it takes not to cut through equal values.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks._kept import leading_spaces
    >>> A = us.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    >>> U = leading_spaces(A, rank=2, cutoff=0.0).left
    >>> us.sum((U @ U.T) * [[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]).grad(A).eval().round(12)
    array([[0.        , 0.        , 0.33333333],
           [0.        , 0.        , 0.66666667],
           [0.66666667, 1.33333333, 0.        ]])
    """
    factors = [us.stop_gradient(factor) for factor in _FACTORS(matrix)]
    values = factors[1].eval()
    count = _rank(values, rank, cutoff, keep_multiplets)
    pair = _SPACES(matrix, *factors, rank=count)
    size = matrix.shape[0]
    return Kept(pair[:size], pair[size:], values)


def balanced_factors(matrix: us.Tensor, kept: Kept) -> tuple[us.Tensor, us.Tensor]:
    """Return X and Y with X·Yᵀ the part of a matrix in its kept spaces, and XᵀX = YᵀY.

    They are U·√S and V·√S up to a common rotation. Any square root of D = UᵀAV would do, which in the basis at hand is
    diagonal; the one of Cholesky has a derivative that divides by no gaps.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks._kept import balanced_factors, leading_spaces
    >>> A = us.tensor([[0.0, 4.0], [1.0, 0.0]])
    >>> X, Y = balanced_factors(A, leading_spaces(A, rank=1, cutoff=0.0))
    >>> abs(X @ Y.T).eval(), abs(X.T @ X).eval()
    (array([[0., 4.],
           [0., 0.]]), array([[4.]]))
    """
    root = us.linalg.cholesky(kept.left.T @ matrix @ kept.right)
    return kept.left @ root, kept.right @ root


def _rank(values: Any, rank: int, cutoff: float, keep_multiplets: bool) -> int:
    """Return how many of the falling singular values are kept, one at least."""
    count = max(1, min(rank, int(np.sum(values > max(cutoff * values[0], 4 * _rounding(values))))))
    if keep_multiplets:
        apart = values[:-1] - values[1:] > np.maximum(_tolerance(values) * values[:-1], _rounding(values))
        cuts = [*(1 + np.flatnonzero(apart)), len(values)]
        count = int(max((cut for cut in cuts if cut <= count), default=cuts[0]))
    return count


def _tolerance(array: Any) -> float:
    """Return how close values count as equal, and how much of a cotangent as nothing: half of the digits."""
    return math.sqrt(float(np.finfo(array.dtype).eps))


def _rounding(values: Any) -> float:
    """Return by how much singular values may be off; the first one is the largest."""
    return len(values) * float(np.finfo(values.dtype).eps) * float(values[0])


# As `us.linalg.svd`, but for null spaces, which are left as they are found: no rule here looks into them.
_FACTORS = us.op(
    "kept_spaces_factors",
    kernel=lambda a: decompose(a, False),
    infer=lambda a: ((a.shape, a.dtype), (a.shape[:1], a.dtype), (a.shape, a.dtype)),
    multi=True,
    replace=True,
)


# --- how the spaces move ---------------------------------------------------------------------------------------------

# Pairs are stacked: W = [U; V], and z = [dU; dV]. Columns of W have the norm √2, hence the halves.


def _solve_kernel(p: Any, a: Any, w: Any, d: Any, u: Any, s: Any, vh: Any, scale: Any, *, first: bool) -> Any:
    """Solve for how the pair moves, given what pushes it; what pushes along the pair itself is left out.

    What has to vanish is judged by ``scale``, that of the push and the terms it is the sum of.
    """
    size, rank = u.shape[0], p.shape[1]
    left, right = u.T @ p[:size], vh @ p[size:]
    common, opposite = left + right, left - right
    kept, dropped = s[:rank], s[:, None]
    gaps = kept - dropped
    equal = np.abs(gaps) <= np.maximum(_tolerance(s) * kept, _rounding(s))
    if first:
        _check_rotation(common[:rank], scale)
    _check_cut(common[rank:][equal[rank:]], scale, rank, s)
    gaps[equal] = np.inf
    gaps[:rank] = np.inf
    common, opposite = common / gaps, opposite / (kept + dropped)
    return 0.5 * np.concatenate([u @ (common + opposite), vh.T @ (common - opposite)])


def _check_rotation(along: Any, scale: Any) -> None:
    amount = _relative(along - along.T, scale)
    if amount > _tolerance(along):
        error = GaugeError(
            f"the loss depends on which basis of the kept spaces was taken: it sends back {amount:.1e} of its "
            "cotangent to a rotation of both, which should vanish"
        )
        error.amount = amount
        raise error


def _check_cut(coupling: Any, scale: Any, rank: int, s: Any) -> None:
    amount = _relative(coupling, scale)
    if amount > _tolerance(coupling):
        error = GaugeError(
            f"rank {rank} cuts through equal singular values ({s[rank - 1]:.6e} and {s[rank]:.6e}), and the loss "
            f"depends on which of them are kept: it sends back {amount:.1e} of its cotangent, which should vanish. Ask "
            "for keep_multiplets=True, or for another rank"
        )
        error.indices, error.amount = (rank - 1, rank), amount
        raise error


def _relative(part: Any, scale: Any) -> float:
    return float(np.max(np.abs(part), initial=0.0) / scale) if scale else 0.0


def _solve_vjp(
    i: int, ct: us.Tensor, z: us.Tensor, p: us.Tensor, a: us.Tensor, w: us.Tensor, *rest: us.Tensor, first: bool
) -> us.Tensor | None:
    """Return the cotangents of the push, the matrix, the pair and D; the equation is its own adjoint."""
    if i > 3:
        return None
    size = a.shape[0]
    answer: us.Tensor = _SOLVE(ct, a, w, *rest[:4], scale_of(ct, stack=0), first=False)
    if i == 1:
        answer = answer[:size] @ z[size:].T + z[:size] @ answer[size:].T
    elif i == 2:
        answer = -0.5 * (z @ (ct.T @ w) + answer @ (p.T @ w))
    elif i == 3:
        answer = -(z.T @ answer)
    return answer


_SOLVE = us.op("kept_spaces_motion", kernel=_solve_kernel, vjp=_solve_vjp, replace=True)


def _spaces_kernel(a: Any, u: Any, s: Any, vh: Any, *, rank: int) -> Any:
    return np.concatenate([u[:, :rank], vh[:rank].T])


def _spaces_vjp(
    ct: us.Tensor, w: us.Tensor, a: us.Tensor, u: us.Tensor, s: us.Tensor, vh: us.Tensor, *, rank: int
) -> us.Tensor:
    size = a.shape[0]
    left, right = w[:size], w[size:]
    z = _SOLVE(ct, a, w, left.T @ a @ right, u, s, vh, scale_of(ct, stack=0), first=True)
    answer: us.Tensor = z[:size] @ right.T + left @ z[size:].T
    return answer


_SPACES = us.op(
    "kept_spaces",
    kernel=_spaces_kernel,
    infer=lambda a, u, s, vh, *, rank: ((2 * a.shape[0], rank), a.dtype),
    vjp=(_spaces_vjp, None, None, None),
    replace=True,
)
