"""What `eig` leaves open, and whether a loss, or a direction, depends on it.

An eigenvector has no definite phase. Equal eigenvalues have no definite eigenvectors: any basis of their space will do,
not only orthonormal ones. Eigenvectors that are nearly parallel belong to a matrix that is nearly defective, at which
eigenvalues have no derivative. Two ops let a cotangent, or a tangent, pass unchanged if nothing of this matters, and
raise `GaugeError` if it does. A loss whose dependence on a basis happens to vanish to first order just at the one that
was computed cannot be told from one that does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.cancellation import scale_of
from unspool._ops.linalg.gauge import Tolerances, refusal
from unspool._ops.op import STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Derivatives of a smooth function at two near eigenvalues differ by as much as these, times its curvature.
_CURVATURE = 10.0
_BROADEN = "; or ask for broaden="


# --- the ops ---------------------------------------------------------------------------------------------------------


def settled_cotangent(
    ct: Tensor, w: Tensor, v: Tensor, w_ct: Tensor | None, v_ct: Tensor | None, tol: Tolerances, blocks: bool
) -> Tensor:
    """Return what a rule makes of the cotangents of eigenvalues and eigenvectors, if that is determined by them.

    With ``blocks=False`` equal eigenvalues are somebody else's business (broadening).
    """
    given: dict[str, Tensor] = {}
    if w_ct is not None:
        given.update(w_ct=w_ct, **_reached("w_reached", w_ct))
    if v_ct is not None:
        given.update(v_ct=v_ct, **_reached("v_reached", v_ct))
        given.update(scale=scale_of(v_ct, stack=v_ct.ndim - 2))
    return _graph.apply(
        EIG_COTANGENT,
        ct,
        w,
        v,
        *given.values(),
        names=tuple(given),
        degeneracy=tol.degeneracy,
        gauge=tol.gauge,
        blocks=blocks,
    )


def _reached(name: str, ct: Tensor) -> dict[str, Tensor]:
    """Return which elements of a cotangent are not absent, if some are."""
    return {name: layout.broadcast_to(ct.inputs[1], ct.shape)} if ct.op is elementwise.MASK else {}


def settled_tangent(t: Tensor, w: Tensor, v: Tensor, tol: Tolerances, blocks: bool) -> Tensor:
    """Return the tangent of the matrix, in the basis of eigenvectors, if it does not split equal eigenvalues."""
    return _graph.apply(EIG_TANGENT, t, w, v, degeneracy=tol.degeneracy, gauge=tol.gauge, blocks=blocks)


def _infer(x: Node, *others: Node, **params: Any) -> tuple[Shape, Any]:
    return x.shape, x.dtype


def _cotangent_kernel(
    ct: Any, w: Any, v: Any, *others: Any, names: tuple[str, ...], degeneracy: float, gauge: float, blocks: bool
) -> Any:
    given = dict(zip(names, others, strict=True))
    slack = gauge + _rounding(v)
    if vectors := "v_ct" in given:
        scale = given["scale"]
        _check_phases(v, given["v_ct"], slack, scale)
    for index, block in _blocks(w, degeneracy) if blocks else ():
        of_values = "w_ct" in given and np.any(given["w_reached"][index][block] if "w_reached" in given else True)
        of_vectors = vectors and np.any(given["v_reached"][index][:, block] if "v_reached" in given else True)
        if of_values and of_vectors:
            _refuse_together(w[index], block)
        if of_values:
            _check_values(w[index], given["w_ct"][index], block, slack[index])
        if of_vectors:
            _check_vectors(w[index], v[index], given["v_ct"][index], block, slack[index] * scale[index])
    return ct


def _tangent_kernel(t: Any, w: Any, v: Any, *, degeneracy: float, gauge: float, blocks: bool) -> Any:
    slack = gauge + _rounding(v)
    for index, block in _blocks(w, degeneracy) if blocks else ():
        _check_split(t[index], w[index], block, slack[index])
    return t


EIG_COTANGENT = register(
    Op(
        "eig_cotangent",
        infer=_infer,
        kernel=_cotangent_kernel,
        vjp=lambda i, ct, *nodes, **params: ct if i == 0 else None,
        jvp=lambda tangents, *nodes, **params: tangents[0],
        params={"names": STRUCTURE, "degeneracy": STRUCTURE, "gauge": STRUCTURE, "blocks": STRUCTURE},
        batch=batching.leading,
    )
)
EIG_TANGENT = register(
    Op(
        "eig_tangent",
        infer=_infer,
        kernel=_tangent_kernel,
        vjp=(lambda ct, *nodes, **params: ct, None, None),
        jvp=(lambda t, *nodes, **params: t, None, None),
        params={"degeneracy": STRUCTURE, "gauge": STRUCTURE, "blocks": STRUCTURE},
        batch=batching.leading,
    )
)


# --- rounding, and equal eigenvalues ---------------------------------------------------------------------------------


def _rounding(v: Any) -> Any:
    """Return the relative errors that rounding leaves in derivatives; raises if no digits to speak of are right.

    The norm of row i of V⁻¹ is the condition number of eigenvalue i. Derivatives lose its square in digits.
    """
    epsilon = float(np.finfo(v.dtype).eps)
    conditions = np.linalg.norm(_inverses(v), axis=-1)
    worst = np.max(conditions, axis=-1, initial=0)
    # At the limit the error is some ten times the root of the machine epsilon.
    if not np.all(worst <= 3 * epsilon**-0.25):
        *_, i = np.unravel_index(np.argmax(np.nan_to_num(conditions, nan=np.inf)), conditions.shape)
        raise refusal(
            f"the matrix is defective, or nearly so: eigenvalue {i} has the condition number {worst.max():.1e}, "
            "because its eigenvector is nearly a combination of the others, and has no derivative to working "
            "precision. Functions of the matrix do (us.linalg.matrix_exp, logm, sqrtm, matrix_power, det, trace)",
            (int(i),),
            float(worst.max()),
        )
    return 16 * epsilon * worst**2


def _inverses(v: Any) -> Any:
    try:
        return np.linalg.inv(v)
    except np.linalg.LinAlgError:
        return np.full_like(v, np.inf)


def _blocks(w: Any, degeneracy: float) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield the indices of eigenvalues that are equal, to tolerance, for each set of at least two, matrix by matrix."""
    near = close_pairs(w, degeneracy)
    for index in np.ndindex(w.shape[:-1]):
        if near[index].sum() > w.shape[-1]:
            for block in sorted({tuple(np.flatnonzero(row)) for row in near[index]}):
                if len(block) > 1:
                    yield index, np.array(block)


def close_pairs(w: Any, degeneracy: float) -> Any:
    """Return which eigenvalues are equal, to tolerance, or linked by a chain of such."""
    limit = degeneracy * np.max(np.abs(w), axis=-1, initial=0)
    near = np.abs(w[..., :, None] - w[..., None, :]) <= limit[..., None, None]
    # Where only the diagonal is true, as nearly always, there is nothing to link.
    while near.sum() > w.size and np.any(linked := (near @ near) & ~near):
        near |= linked
    return near


def _named(w: Any, block: Any) -> str:
    return f"eigenvalues {' and '.join(map(str, block))} (near {w[block[0]]:.6g})"


# --- checks ----------------------------------------------------------------------------------------------------------


def _check_phases(v: Any, v_ct: Any, slack: Any, scale: Any) -> None:
    amounts = np.abs(np.sum(v.conj() * v_ct, axis=-2).imag)
    bad = amounts > (slack * scale)[..., None]
    if np.any(bad):
        *index, worst = np.unravel_index(np.argmax(np.where(bad, amounts, 0)), amounts.shape)
        amount = float(amounts[*index, worst] / scale[tuple(index)])
        raise refusal(
            f"the loss depends on the phase of eigenvector {worst}, which is open: it sends back {amount:.1e} of its "
            'cotangent, which should vanish. Write the loss so that phases cancel, or ask for gauge="fixed" to '
            "differentiate a convention for them",
            (int(worst),),
            amount,
        )


def _check_values(w: Any, w_ct: Any, block: Any, slack: float) -> None:
    scale = float(np.max(np.abs(w_ct)))
    gaps = np.abs(w[block] - w[block][:, None]) / max(float(np.max(np.abs(w))), np.finfo(w.real.dtype).tiny)
    spread = np.abs(w_ct[block] - w_ct[block][:, None])
    if np.any(spread > (slack + _CURVATURE * gaps) * scale):
        amount = float(spread.max() / scale)
        raise refusal(
            f"{_named(w, block)} are equal, and the loss tells them apart (by {amount:.1e} of the cotangent): it has "
            "no derivative here. Treat equal eigenvalues alike" + _BROADEN,
            tuple(map(int, block)),
            amount,
        )


def _check_vectors(w: Any, v: Any, v_ct: Any, block: Any, limit: float) -> None:
    # Independence of any basis, normalised or not: the whole block has to vanish.
    amount = float(np.max(np.abs(v[:, block].conj().T @ v_ct[:, block])))
    if amount > limit:
        raise refusal(
            f"{_named(w, block)} are equal, and the loss depends on which basis of their space was chosen: it sends "
            f"back {amount:.1e} where it should send nothing. Use the whole space (its projector)" + _BROADEN,
            tuple(map(int, block)),
            amount,
        )


def _refuse_together(w: Any, block: Any) -> NoReturn:
    # A part of the derivative of V·f(Λ)·V⁻¹, and of the second derivative of f(Λ), is the limit of 0/0. Cotangents at
    # equal eigenvalues do not determine it, whatever their values are: what is missing may be all there is.
    raise refusal(
        f"{_named(w, block)} are equal, and the loss, or the derivative of which this is one, takes them together with "
        "their eigenvectors: what it sends back does not determine its derivative. Write it as a function of the "
        "matrix (matrix_exp, logm, sqrtm, matrix_power, det, trace, the matrix itself)" + _BROADEN,
        tuple(map(int, block)),
        1.0,
    )


def _check_split(t: Any, w: Any, block: Any, slack: float) -> None:
    inside = t[np.ix_(block, block)]
    split = np.abs(inside - inside[0, 0] * np.eye(len(block)))
    scale = float(np.max(np.abs(t)))
    if split.max() > slack * scale:
        amount = float(split.max() / scale)
        raise refusal(
            f"{_named(w, block)} are equal and this direction splits them (by {amount:.1e} of its size): their "
            "eigenvectors, and each eigenvalue by itself, have no derivative along it. Reverse mode can tell whether a "
            "loss needs them" + _BROADEN,
            tuple(map(int, block)),
            amount,
        )
