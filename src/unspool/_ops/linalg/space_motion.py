"""How the leading singular space of a matrix moves: an equation without gaps among the values that are kept.

Let Q be an isometry of the space, R = Qᴴ·A the rest and D = R·Rᴴ. A change dA moves the pair by the one solution
(dQ, dR) = (Z, W) of

    Z·D - A·Wᴴ = dA·Rᴴ + Q·(…)        W - Zᴴ·A = Qᴴ·dA        Qᴴ·Z = 0

where (…) is what the last condition asks for. In the basis of all singular vectors this is a division by s_i² - s_a²
for kept i and dropped a. Equal values among the kept ones, which rules for single vectors divide by, do not occur.

The equation is an op, `MOTION`. It is its own adjoint, so the cotangent of A is Z·R + Q·W, where Z and W solve it for
the cotangents of Q and R in place of its right-hand sides. And its derivatives are the same equation again, so that no
order divides by anything else. The singular vectors beside it say how to solve it, to full precision also where kept
values are small, and are not differentiated.

A loss has a derivative if it does not see the basis: then the skew part of Qᴴ·Q̄ + R·R̄ᴴ, which is what a rotation of
both sends back, vanishes. Where the cut goes through equal values, what is kept of them is a choice of the rounding,
and a change of A makes another one: a loss may have nothing to do with their vectors. If a symmetry keeps them equal,
no change makes another choice, and it is enough that nothing would be divided by zero. All of it is looked at, and
refused with `GaugeError`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._ops import batching
from unspool._ops.cancellation import scale_of
from unspool._ops.contraction import matmul
from unspool._ops.creation import zeros
from unspool._ops.elementwise import add, negative, subtract
from unspool._ops.linalg.gauge import refusal
from unspool._ops.linalg.matrices import adjoint
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, JointRule, Op, parts, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


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
    degeneracy: float,
    gauge: float,
    check: bool,
    protected: bool,
    trusted: bool,
) -> tuple[Tensor, Tensor]:
    """Return how isometry and rest move, given what pushes them.

    This is the solution Z, W of Z·D - A·Wᴴ = X + Q·(…), W - Zᴴ·A = Y and Qᴴ·Z = 0.

    With ``check``, what pushes are the cotangents of a loss, which may not turn the basis; if the loss is ``trusted``,
    it does not. If equal values that the cut goes through are ``protected``, no change of the matrix splits them.
    """
    scales = [scale_of(push, stack=a.ndim - 2) for push in (x, y)] if check else []
    options = {"degeneracy": degeneracy, "gauge": gauge, "check": check, "protected": protected, "trusted": trusted}
    z, w = parts(_graph.apply_multi(MOTION, x, y, a, q, r, u, s, vh, *scales, **options))
    return z, w


# --- the solution ----------------------------------------------------------------------------------------------------


def _motion_kernel(
    x: Any,
    y: Any,
    a: Any,
    q: Any,
    r: Any,
    u: Any,
    s: Any,
    vh: Any,
    *scales: Any,
    degeneracy: float,
    gauge: float,
    check: bool,
    protected: bool,
    trusted: bool,
) -> Any:
    (rows, count), rank = u.shape[-2:], x.shape[-1]
    judge = _Judge((x, y), scales, s, rank, gauge, check)
    inside = conjugated(u) @ x
    # In the basis of the singular vectors. The upper part would turn the basis, the lower one leads out of the space.
    total = inside + s[..., None] * (vh @ conjugated(y))
    if check and not trusted:
        turn = total[..., :rank, :]
        skew = turn - conjugated(turn)
        if not np.vdot(skew, skew).real <= judge.floor**2:  # a quick look, all at once
            judge.rotation(skew)
    if rank == 0 or rank == rows:
        return np.zeros_like(x), y
    kept, close = s[..., None, :rank], None
    if _is_cut_through(s, rank, degeneracy):
        close = _Close(equal_within(s, degeneracy)[..., None, :rank], judge)
        if check and not protected:
            judge.cut(_seen_at_cut(x, y, s, vh, close.slack))
    z, w = None, y
    if rank < count:
        dropped = s[..., rank:, None]
        push = _divided(total[..., rank:, :], kept, dropped, close)
        z, w = u[..., rank:] @ push, y + conjugated(dropped * push) @ vh[..., rank:, :]
    if rows > count:
        # Vectors beyond the thin factors belong to the value zero.
        outside = _divided(x - u @ inside, kept, 0.0, close)
        z = outside if z is None else z + outside
    return z, w


def _is_cut_through(values: Any, rank: int, degeneracy: float) -> bool:
    """Whether a kept value is equal to a dropped one; values fall, so it is enough to look at the cut."""
    if values.ndim == 1:
        first, last = values.item(0), values.item(rank - 1)
        gap = last - values.item(rank) if rank < len(values) else last
        return bool(gap <= max(degeneracy * last, len(values) * _epsilon(values.dtype) * first))
    last = values[..., rank - 1]
    gap = last - values[..., rank] if rank < values.shape[-1] else last
    return bool(np.any(gap <= equal_within(values, degeneracy)[..., rank - 1]))


def _seen_at_cut(x: Any, y: Any, s: Any, vh: Any, slack: Any) -> Any:
    """Return what a loss sends to vectors of kept values that are equal to a dropped one, in the units of the loss."""
    rank, count = x.shape[-1], s.shape[-1]
    kept, last = s[..., None, :rank], s[..., rank, None, None] if rank < count else 0.0
    at_cut = kept - last <= slack
    zero = at_cut & (kept <= count * _epsilon(s.dtype) * s[..., :1, None])
    # Rows of the rest that belong to zeros are zero themselves. A change of the matrix along the right vectors of other
    # kept values moves them in the same way whatever is kept.
    others = np.where(zero.mT, 0.0, vh[..., :rank, :])
    y = np.where(zero.mT, y - (y @ conjugated(others)) @ others, y)
    return np.maximum(_largest(np.where(at_cut, x, 0.0)), _unit(s) * _largest(np.where(at_cut.mT, y, 0.0)))


class _Close(NamedTuple):
    """How far apart equal values may be, and who looks at what is to be divided by their difference."""

    slack: Any
    judge: _Judge


def _divided(push: Any, kept: Any, dropped: Any, close: _Close | None) -> Any:
    """Divide by kept² - dropped²; where both are equal, there has to be nothing to divide."""
    gaps = kept - dropped
    divisors = gaps * (kept + dropped)
    if close is not None:
        equal = gaps <= close.slack
        close.judge.cut(_largest(np.where(equal, push, 0.0)))
        divisors = np.where(equal, np.inf, divisors)
    return push / divisors


def equal_within(values: Any, degeneracy: float) -> Any:
    """Return how far below each of some falling values another one still counts as equal."""
    return np.maximum(degeneracy * values, values.shape[-1] * _epsilon(values.dtype) * values[..., :1])


@lru_cache(maxsize=8)
def _epsilon(dtype: Any) -> float:
    return float(np.finfo(dtype).eps)


def conjugated(matrix: Any) -> Any:
    """Return the conjugate transpose of an array of matrices."""
    return matrix.mT.conj() if matrix.dtype.kind == "c" else matrix.mT


# --- what has to vanish ----------------------------------------------------------------------------------------------


class _Judge:
    """Tells whether what has to vanish does, beside all that is sent to a pair (Q, R).

    All of that is in the units of the loss. If they are known, ``scales`` are the sizes of what is sent to Q and to R,
    with the terms that it is the sum of. Where a loop has converged, what comes back to its earlier steps is rounding
    of what cancelled in later ones, of any size in any direction, and nothing that arrives here tells so. So for a loss
    there is a floor besides, below which nothing counts: what rounding leaves of a loss of order one. In runs of DMRG
    it was less than 1% of this.
    """

    def __init__(self, sent: Any, scales: Any, s: Any, rank: int, gauge: float, is_loss: bool) -> None:
        self._sent, self._scales = sent, scales
        self._values, self._rank, self._gauge, self._is_loss = s, rank, gauge, is_loss
        # 1024 times the machine epsilon, unless the tolerance is another one.
        self.floor = 1024 * gauge * gauge if is_loss else 0.0

    def rotation(self, skew: Any) -> None:
        """Raise if a rotation of both would change the loss."""
        amount, where = self._excess(_largest(skew))
        if amount:
            raise refusal(
                f"{where}the loss depends on which basis of the kept space was taken: it sends back {amount:.1e} of "
                "its cotangent to a rotation of isometry and rest, which should vanish. Use both, or what is the same "
                "in every basis, as the projector on the space. If the loss is much larger than 1, this may be its "
                "rounding: divide it by its size, or say trusted=True",
                (),
                amount,
            )

    def cut(self, size: Any) -> None:
        """Raise if a loss sees what is kept of equal values, or if a direction tells them apart; given by how much."""
        amount, where = self._excess(size)
        if amount:
            reason = (
                f"the loss depends on which of them are kept: it sends back {amount:.1e} of its cotangent, which "
                "should vanish"
                if self._is_loss
                else f"what is to be differentiated tells them apart (by {amount:.1e} of its size)"
            )
            raise refusal(
                f"{where}rank {self._rank} cuts through equal singular values, and {reason}. Ask for "
                "keep_multiplets=True, or for another rank; or for protected=True, if a symmetry keeps them equal",
                (self._rank - 1, self._rank),
                amount,
            )

    def _excess(self, size: Any) -> tuple[float, str]:
        """Return how large a part is beside what is sent to its matrix, and which matrix that is; 0 if it may pass."""
        of_isometry, of_rest = self._scales or map(_largest, self._sent)
        scale = np.maximum(of_isometry, _unit(self._values) * of_rest)
        bad = size > np.maximum(self._gauge * scale, self.floor)
        if not np.any(bad):
            return 0.0, ""
        relative = np.atleast_1d(np.where(bad, size / np.where(bad, scale, 1.0), 0.0))
        place = np.unravel_index(int(np.argmax(relative)), relative.shape)
        where = f"in matrix {tuple(int(i) for i in place)} of the stack: " if size.ndim else ""
        return float(relative[place]), where


def _unit(values: Any) -> Any:
    """Return what makes the cotangent of a matrix one of the loss: the largest singular value, if there is one."""
    return np.where(values[..., 0] > 0, values[..., 0], 1.0)


def _largest(matrix: Any) -> Any:
    return np.max(np.abs(matrix), axis=(-2, -1), initial=0.0)


# --- derivatives -----------------------------------------------------------------------------------------------------


def _motion_vjp(needed: Any, ct: Any, out: Any, *inputs: Tensor, check: bool, **params: Any) -> Any:
    """Return the cotangents of all but the factors: the equation is its own adjoint."""
    (x, y, a, q, r, *factors), (z, w) = inputs[:8], out
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
    return p, n, a_ct, q_ct, r_ct, *[None] * (len(inputs) - 5)


def _motion_jvp(tangents: Any, out: Any, *inputs: Tensor, check: bool, **params: Any) -> Any:
    (x, y, a, q, r, *factors), (z, w) = inputs[:8], out
    x_t, y_t, a_t, q_t, r_t = (
        zeros(given.shape, given.dtype) if t is None else t for given, t in zip(inputs[:5], tangents[:5], strict=True)
    )
    across = matmul(r_t, adjoint(r))
    along = add(matmul(adjoint(q), x), matmul(r, adjoint(y)))
    push = subtract(matmul(a_t, adjoint(w)), add(matmul(z, add(across, adjoint(across))), matmul(q_t, along)))
    z_t, w_t = motion(add(x_t, push), add(y_t, matmul(adjoint(z), a_t)), a, q, r, *factors, check=False, **params)
    back = matmul(adjoint(q_t), z)
    return subtract(z_t, matmul(q, back)), subtract(w_t, matmul(adjoint(back), r))


MOTION = register(
    Op(
        "space_motion",
        infer=lambda x, y, *others, **params: ((x.shape, x.dtype), (y.shape, y.dtype)),
        kernel=_motion_kernel,
        vjp=JointRule(_motion_vjp, lambda params: [True] * 5 + [False] * (5 if params["check"] else 3)),
        jvp=_motion_jvp,
        params={
            "degeneracy": STRUCTURE,
            "gauge": STRUCTURE,
            "check": STRUCTURE,
            "protected": STRUCTURE,
            "trusted": STRUCTURE,
        },
        needs=(INPUTS, OUTPUT),
        multi=True,
        batch=batching.leading,
    )
)
