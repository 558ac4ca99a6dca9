"""The leading singular space of a matrix: an isometry Q of it and the rest R = Qᴴ·A, so that Q·R is A, cut off.

Programs that truncate go on with the space and not with the singular vectors. Any orthonormal basis of it will do: turn
Q to Q·X and R turns to Xᴴ·R, which the next contraction undoes. So a derivative has to tell how the space moves, and it
moves out of itself only. With D = R·Rᴴ, a change dA moves the pair by the one solution (dQ, dR) = (Z, W) of

    Z·D - A·Wᴴ = dA·Rᴴ + Q·(…)        W - Zᴴ·A = Qᴴ·dA        Qᴴ·Z = 0

where (…) is what the last condition asks for. In the basis of all singular vectors this is a division by s_i² - s_a²
for kept i and dropped a. Equal values among the kept ones, which rules for single vectors divide by, do not occur.

This equation is an op, `MOTION`. It is its own adjoint, so the cotangent of A is Z·R + Q·W, where Z and W solve it for
the cotangents of Q and R in place of its right-hand sides. And its derivatives are the same equation again, so that no
order divides by anything else. The singular vectors beside it say how to solve it, to full precision also where kept
values are small, and are not differentiated.

A loss has a derivative if it does not see the basis: then the skew part of Qᴴ·Q̄ + R·R̄ᴴ, which is what a rotation of
both sends back, vanishes. And if it does not see which of two equal values was kept, where the cut goes through them.
Both are looked at, and refused with `GaugeError`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _dims, _graph
from unspool._dims import Shape, Size
from unspool._dtypes import real_dtype
from unspool._graph import Node
from unspool._ops.contraction import matmul
from unspool._ops.creation import zeros
from unspool._ops.elementwise import add, negative, subtract
from unspool._ops.linalg.gauge import refusal, tolerances_for
from unspool._ops.linalg.matrices import adjoint, as_matrix, as_square, smaller_side
from unspool._ops.linalg.svd import SVDResult, decompose
from unspool._ops.linalg.truncated import chosen_rank
from unspool._ops.op import INPUTS, OUTPUT, JointRule, Op, parts, register
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
        through equal singular values and the loss depends on which of them are kept. See `tolerances`.

    Notes
    -----
    A loss may not depend on the basis: on a rotation that isometry and rest have in common. Its derivative then divides
    by differences of squares of kept and dropped values only. Equal values among the kept ones are nothing special, nor
    are zeros. In forward mode the isometry moves by its tangent that is orthogonal to the space.

    Two values are equal, for the cut and for its derivative, if they differ by at most the tolerance ``degeneracy`` of
    the larger one, or by what rounding makes of the largest of all.

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
    if keep_multiplets:
        count = _between_multiplets(np.asarray(s.eval()), count, tolerance.degeneracy, x.shape[-2:])
    k = smaller_side(x.shape)
    options = {
        "rank": min(count, k) if isinstance(k, int) else count,
        "degeneracy": tolerance.degeneracy,
        "gauge": tolerance.gauge,
    }
    if side == "left":
        isometry, rest = parts(_graph.apply_multi(SPACE, x, u, s, vh, **options))
        return LeadingSpaceResult(isometry, rest, s)
    isometry, rest = parts(_graph.apply_multi(SPACE, adjoint(x), adjoint(vh), s, adjoint(u), **options))
    return LeadingSpaceResult(adjoint(isometry), adjoint(rest), s)


def space_factors(x: Any, *, hermitian: bool = False) -> SVDResult:
    """Return the thin singular factors of matrices, to look at and to give to `leading_space`.

    Parameters
    ----------
    x : array_like
        Matrices in the last two axes.
    hermitian : bool
        Take the matrices to be Hermitian (real: symmetric), which takes less time. One triangle is read, and singular
        values are the moduli of eigenvalues.

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
    *batch, rows, columns = shape
    k = smaller_side(shape)
    expected = [(*batch, rows, k), (*batch, k), (*batch, k, columns)]
    found = [getattr(factor, "shape", None) for factor in factors]
    if found != expected:
        raise ShapeError(
            f"factors are what space_factors makes of the matrix, with shapes {expected}, got {found}"
        )
    return SVDResult(*factors)


def _between_multiplets(values: Any, rank: int, degeneracy: float, shape: Any) -> int:
    """Return the next smaller rank that cuts through no equal values; the next larger one if that would be 0."""
    size = values.shape[-1]
    # Beyond the singular values of a tall matrix nothing can be kept.
    close = np.any(_closeness(values, degeneracy, shape), axis=tuple(range(values.ndim - 1)))
    cuts = [0, *(1 + np.flatnonzero(~close)), size]
    rank = min(rank, size)
    smaller = max(int(cut) for cut in cuts if cut <= rank)
    return smaller or min(int(cut) for cut in cuts if cut >= rank)


# --- equal values ----------------------------------------------------------------------------------------------------


def _closeness(values: Any, degeneracy: float, shape: Any) -> Any:
    """Return which falling values are equal to their successors."""
    return values[..., :-1] - values[..., 1:] <= _slack(values, degeneracy, shape)[..., :-1]


def _slack(values: Any, degeneracy: float, shape: Any) -> Any:
    """Return how far below each of the falling values another one still counts as equal."""
    return np.maximum(degeneracy * values, max(shape) * _epsilon(values.dtype) * values[..., :1])


@lru_cache(maxsize=8)
def _epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


# --- the factors -----------------------------------------------------------------------------------------------------


def _infer_factors(x: Node, *, hermitian: bool) -> Any:
    *batch, rows, columns = x.shape
    k = smaller_side(x.shape)
    return ((*batch, rows, k), x.dtype), ((*batch, k), real_dtype(x.dtype)), ((*batch, k, columns), x.dtype)


def _factors_kernel(x: Any, *, hermitian: bool) -> Any:
    if not hermitian:
        return decompose(x, False)
    values, vectors = np.linalg.eigh(x)
    order = np.argsort(-np.abs(values), axis=-1, kind="stable")
    values = np.take_along_axis(values, order, -1)
    vectors = np.take_along_axis(vectors, order[..., None, :], -1)
    return vectors, np.abs(values), np.where(values < 0, -1, 1).astype(values.dtype)[..., None] * _h(vectors)


FACTORS = register(Op("space_factors", infer=_infer_factors, kernel=_factors_kernel, multi=True))


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(a: Node, u: Node, s: Node, vh: Node, *, rank: int, **tolerance: Any) -> Any:
    *batch, rows, columns = a.shape
    count: Size = _dims.minimum(rank, smaller_side(a.shape))
    return ((*batch, rows, count), a.dtype), ((*batch, count, columns), a.dtype)


def _kernel(a: Any, u: Any, s: Any, vh: Any, *, rank: int, **tolerance: Any) -> Any:
    # Row by row of the factors rather than Qᴴ·A, whose rows of small values would be known to fewer digits.
    return u[..., :rank], s[..., :rank, None] * vh[..., :rank, :]


def _vjp(ct: Any, out: Any, a: Tensor, u: Tensor, s: Tensor, vh: Tensor, **params: Any) -> Tensor:
    isometry, rest = out
    pushes = [zeros(part.shape, part.dtype) if c is None else c for part, c in zip(out, ct, strict=True)]
    z, w = motion(*pushes, a, isometry, rest, u, s, vh, check=True, **params)
    return add(matmul(z, rest), matmul(isometry, w))


def _jvp(tangents: Any, out: Any, a: Tensor, u: Tensor, s: Tensor, vh: Tensor, **params: Any) -> Any:
    t = tangents[0]
    if t is None:
        return None
    isometry, rest = out
    return motion(
        matmul(t, adjoint(rest)), matmul(adjoint(isometry), t), a, isometry, rest, u, s, vh, check=False, **params
    )


SPACE = register(
    Op(
        "leading_space",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp, None, None, None),
        jvp=_jvp,
        needs=(INPUTS, OUTPUT),
        multi=True,
    )
)


# --- how the space moves ---------------------------------------------------------------------------------------------


def motion(
    x: Tensor,
    y: Tensor,
    a: Tensor,
    q: Tensor,
    r: Tensor,
    u: Tensor,
    s: Tensor,
    vh: Tensor,
    *,
    rank: int,
    degeneracy: float,
    gauge: float,
    check: bool,
) -> tuple[Tensor, Tensor]:
    """Return how isometry and rest move, given what pushes them: the solution Z, W of

        Z·D - A·Wᴴ = X + Q·(…)        W - Zᴴ·A = Y        Qᴴ·Z = 0

    With ``check``, what pushes are the cotangents of a loss, which may not turn the basis.
    """
    z, w = parts(
        _graph.apply_multi(
            MOTION, x, y, a, q, r, u, s, vh, rank=rank, degeneracy=degeneracy, gauge=gauge, check=check
        )
    )
    return z, w


def _motion_kernel(
    x: Any,
    y: Any,
    a: Any,
    q: Any,
    r: Any,
    u: Any,
    s: Any,
    vh: Any,
    *,
    rank: int,
    degeneracy: float,
    gauge: float,
    check: bool,
) -> Any:
    (rows, count), y_h = u.shape[-2:], _h(y)
    inside = _h(u) @ x
    # In the basis of the singular vectors. The upper part would turn the basis, the lower one leads out of the space.
    total = inside + s[..., None] * (vh @ y_h)
    if check:
        turn = total[..., :rank, :]
        skew = turn - _h(turn)
        if not np.vdot(skew, skew).real <= _floor(s.dtype) ** 2:  # a quick look, all at once
            _Judge(x, y, s, rank, gauge, check).rotation(skew)
    if rank == 0 or rank == rows:
        return np.zeros_like(x), y
    kept, close = s[..., None, :rank], None
    if _is_cut_through(s, rank, degeneracy, a.shape[-2:]):
        close = _Close(_slack(s, degeneracy, a.shape[-2:])[..., None, :rank], _Judge(x, y, s, rank, gauge, check))
    z, w = None, y
    if rank < count:
        dropped = s[..., rank:, None]
        push = _divided(total[..., rank:, :], kept, dropped, close)
        z, w = u[..., rank:] @ push, y + _h(dropped * push) @ vh[..., rank:, :]
    if rows > count:
        # Vectors beyond the thin factors belong to the value zero.
        outside = _divided(x - u @ inside, kept, 0.0, close)
        z = outside if z is None else z + outside
    return z, w


def _is_cut_through(values: Any, rank: int, degeneracy: float, shape: Any) -> bool:
    """Whether a kept value is equal to a dropped one; values fall, so it is enough to look at the cut."""
    if values.ndim == 1:
        first, last = values.item(0), values.item(rank - 1)
        gap = last - values.item(rank) if rank < len(values) else last
        return gap <= max(degeneracy * last, max(shape) * _epsilon(values.dtype) * first)
    last = values[..., rank - 1]
    gap = last - values[..., rank] if rank < values.shape[-1] else last
    return bool(np.any(gap <= _slack(values, degeneracy, shape)[..., rank - 1]))


class _Close(NamedTuple):
    """How far apart equal values may be, and who looks at what is to be divided by their difference."""

    slack: Any
    judge: _Judge


def _divided(push: Any, kept: Any, dropped: Any, close: _Close | None) -> Any:
    """Divide by kept² - dropped²; where both are equal, there has to be nothing to divide."""
    gaps = kept - dropped
    if close is not None:
        equal = gaps <= close.slack
        close.judge.cut(np.where(equal, push, 0.0))
        gaps = np.where(equal, np.inf, gaps)
    return push / (gaps * (kept + dropped))


def _h(matrix: Any) -> Any:
    return matrix.mT.conj() if matrix.dtype.kind == "c" else matrix.mT


class _Judge:
    """Tells whether what has to vanish does, beside all that is sent to a pair (Q, R).

    What a loss sends back to a rotation has the units of the loss. Where a loop has converged, all that comes back is
    rounding of what cancelled later in the loop, of any size in any direction. So for a loss there is a floor in these
    units besides, below which nothing counts.
    """

    def __init__(self, x: Any, y: Any, s: Any, rank: int, gauge: float, is_loss: bool) -> None:
        self._sent, self._values, self._rank, self._gauge, self._is_loss = (x, y), s, rank, gauge, is_loss

    def rotation(self, skew: Any) -> None:
        """Raise if a rotation of both would change the loss."""
        amount, where = self._excess(skew)
        if amount:
            raise refusal(
                f"{where}the loss depends on which basis of the kept space was taken: it sends back {amount:.1e} of "
                "its cotangent to a rotation of isometry and rest, which should vanish. Use both, or what is the same "
                "in every basis, as the projector on the space",
                (),
                amount,
            )

    def cut(self, coupling: Any) -> None:
        """Raise if the loss sees which of two equal values is kept, or if a direction tells them apart."""
        amount, where = self._excess(coupling)
        if amount:
            reason = (
                f"the loss depends on which of them are kept: it sends back {amount:.1e} of its cotangent, which "
                "should vanish"
                if self._is_loss
                else f"what is to be differentiated tells them apart (by {amount:.1e} of its size)"
            )
            raise refusal(
                f"{where}rank {self._rank} cuts through equal singular values, and {reason}. Ask for "
                "keep_multiplets=True, or for another rank",
                (self._rank - 1, self._rank),
                amount,
            )

    def _excess(self, part: Any) -> tuple[float, str]:
        """Return how large a part is beside what is sent to its matrix, and which matrix that is; 0 if it may pass."""
        size = _largest(part)
        floor = _floor(size.dtype) if self._is_loss else 0.0
        x, y = self._sent
        scale = np.maximum(_largest(x), self._values[..., 0] * _largest(y))
        bad = size > np.maximum(self._gauge * scale, floor)
        if not np.any(bad):
            return 0.0, ""
        relative = np.atleast_1d(np.where(bad, size / np.where(bad, scale, 1.0), 0.0))
        place = np.unravel_index(int(np.argmax(relative)), relative.shape)
        where = f"in matrix {tuple(int(i) for i in place)} of the stack: " if part.ndim > 2 else ""
        return float(relative[place]), where


def _floor(dtype: Any) -> float:
    """Return what may be left of a loss of order one by rounding. In runs of DMRG it was less than 1% of this."""
    return 1024 * _epsilon(dtype)


def _largest(matrix: Any) -> Any:
    return np.max(np.abs(matrix), axis=(-2, -1), initial=0.0)


def _motion_vjp(needed: Any, ct: Any, out: Any, *inputs: Tensor, check: bool, **params: Any) -> Any:
    """Return the cotangents of all but the factors: the equation is its own adjoint."""
    (x, y, a, q, r, *factors), (z, w) = inputs, out
    z_ct, w_ct = (zeros(part.shape, part.dtype) if c is None else c for part, c in zip(out, ct, strict=True))
    p, n = motion(z_ct, w_ct, a, q, r, *factors, check=False, **params)
    a_ct = q_ct = r_ct = None
    if needed[2]:
        a_ct = add(matmul(p, w), matmul(z, n))
    if needed[3]:
        first, second = (add(matmul(adjoint(f), q), matmul(g, adjoint(r))) for f, g in ((x, y), (z_ct, w_ct)))
        q_ct = negative(add(matmul(p, first), matmul(z, second)))
    if needed[4]:
        square = matmul(adjoint(z), p)
        r_ct = negative(matmul(add(square, adjoint(square)), r))
    return p, n, a_ct, q_ct, r_ct, None, None, None


def _motion_jvp(tangents: Any, out: Any, *inputs: Tensor, check: bool, **params: Any) -> Any:
    (x, y, a, q, r, *factors), (z, w) = inputs, out
    x_t, y_t, a_t, q_t, r_t = (
        zeros(given.shape, given.dtype) if t is None else t for given, t in zip(inputs[:5], tangents[:5], strict=True)
    )
    across = matmul(r_t, adjoint(r))
    along = add(matmul(adjoint(q), x), matmul(r, adjoint(y)))
    push = subtract(matmul(a_t, adjoint(w)), add(matmul(z, add(across, adjoint(across))), matmul(q_t, along)))
    z_t, w_t = motion(
        add(x_t, push), add(y_t, matmul(adjoint(z), a_t)), a, q, r, *factors, check=False, **params
    )
    back = matmul(adjoint(q_t), z)
    return subtract(z_t, matmul(q, back)), subtract(w_t, matmul(adjoint(back), r))


MOTION = register(
    Op(
        "space_motion",
        infer=lambda x, y, *others, **params: ((x.shape, x.dtype), (y.shape, y.dtype)),
        kernel=_motion_kernel,
        vjp=JointRule(_motion_vjp, lambda params: [True] * 5 + [False] * 3),
        jvp=_motion_jvp,
        needs=(INPUTS, OUTPUT),
        multi=True,
    )
)
