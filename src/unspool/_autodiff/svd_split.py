"""A matrix cut off at a rank and split in two: an isometry on one side, the rest on the other.

With A = U·S·Vᴴ and U₁, S₁, V₁ what is kept, `split` takes A to (U₁, S₁·V₁ᴴ) or to (U₁·S₁, V₁ᴴ). This is for programs
that go on with the product and do not see the basis of the kept space, as a chain of tensors does. So a change of A
moves the isometry only out of the kept space: dU₁ = U₂·Ω, and for j dropped and i kept

    Ω_ji = (s_i·(Uᴴ·dA·V)_ji + s_j·(Uᴴ·dA·V)_ij*) / (s_i² - s_j²)

The rule of `svd`, which has to serve every loss, would divide by gaps between kept values as well, only to find that
all numerators vanish. With L̄ and R̄ the cotangents of both parts, the cotangent of A is

    U₁·(R̄ + (s_j·M)ᴴ·V₂ᴴ) + (U₂·(M·s_i) + (1 - U·Uᴴ)·L̄/s_i)·V₁ᴴ,     M = (U₂ᴴ·L̄ + s_j·V₂ᴴ·R̄ᴴ)_ji / (s_i² - s_j²)

Small kept values are divided by only where what they divide is as small: column i of L̄ carries a factor s_i.

This adjoint is an op with one kernel, because the matrices are small in such programs and there are many of them. The
same formula as graph is what it is differentiated by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._autodiff.identity import alias, zeros_like
from unspool._autodiff.reverse import pullback
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.contraction import matmul
from unspool._ops.linalg.matrices import adjoint
from unspool._ops.linalg.svd import SVDResult
from unspool._ops.op import INPUTS, OUTPUT, JointRule, Op, parts

if TYPE_CHECKING:
    from unspool._tensor import Tensor

SIDES = ("left", "right")


def split(a: Tensor, factors: SVDResult, kept: int, isometry: str) -> tuple[Tensor, Tensor]:
    """Return the two parts of a matrix, given its thin factors.

    Parameters
    ----------
    a : Tensor
        A matrix.
    factors : SVDResult
        What `plain_factors` makes of it.
    kept : int
        How many singular values are kept: those that are zero to rounding may not be among them.
    isometry : {"left", "right"}
        Which part has the orthonormal vectors. The singular values are in the other one.
    """
    left, right = parts(_graph.apply_multi(SPLIT, a, *factors, kept=kept, isometry=isometry))
    return left, right


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(a: Node, u: Node, s: Node, vh: Node, *, kept: int, isometry: str) -> Any:
    return ((a.shape[0], kept), a.dtype), ((kept, a.shape[1]), a.dtype)


def _kernel(a: Any, u: Any, s: Any, vh: Any, *, kept: int, isometry: str) -> Any:
    left, right = u[:, :kept], vh[:kept]
    return (left, s[:kept, None] * right) if isometry == "left" else (left * s[:kept], right)


def _vjp(ct: Any, out: Any, a: Tensor, u: Tensor, s: Tensor, vh: Tensor, *, kept: int, isometry: str) -> Tensor:
    left_ct, right_ct = (zeros_like(part) if c is None else c for part, c in zip(out, ct, strict=True))
    basis = out[SIDES.index(isometry)]
    return _graph.apply(SPLIT_ADJOINT, left_ct, right_ct, basis, u, s, vh, kept=kept, isometry=isometry)


SPLIT = Op("svd_split", infer=_infer, kernel=_kernel, vjp=(_vjp, None, None, None), needs=(INPUTS, OUTPUT), multi=True)


# --- its adjoint -----------------------------------------------------------------------------------------------------


def _adjoint_kernel(
    left_ct: Any, right_ct: Any, basis: Any, u: Any, s: Any, vh: Any, *, kept: int, isometry: str
) -> Any:
    if isometry == "left":
        return _cotangent(left_ct, right_ct, u, s, vh, kept)
    # The mirror image: Aᴴ = V·S·Uᴴ.
    return _h(_cotangent(_h(right_ct), _h(left_ct), _h(vh), s, _h(u), kept))


def _cotangent(basis_ct: Any, rest_ct: Any, u: Any, s: Any, vh: Any, kept: int) -> Any:
    """Return the cotangent of a matrix whose left part is the isometry."""
    (rows, count), leading = u.shape, u[:, :kept]
    inside = _h(u) @ basis_ct
    upper, leaving = rest_ct, None
    if kept < count:
        si, sj, others, dropped = s[:kept], s[kept:, None], u[:, kept:], vh[kept:]
        moved = (inside[kept:] + sj * (dropped @ _h(rest_ct))) / ((si - sj) * (si + sj))
        upper = rest_ct + _h(sj * moved) @ dropped
        leaving = others @ (si * moved)
    if rows > count:
        outside = (basis_ct - u @ inside) / s[:kept]
        leaving = outside if leaving is None else leaving + outside
    found = leading @ upper
    return found if leaving is None else found + leaving @ vh[:kept]


def _h(matrix: Any) -> Any:
    return matrix.T.conj() if matrix.dtype.kind == "c" else matrix.T


def _adjoint_vjp(needed: Any, ct: Tensor, out: Tensor, *inputs: Tensor, kept: int, isometry: str) -> Any:
    # Under identities of their own, the inputs are independent of each other.
    stand_ins = [alias(x) for x in inputs]
    return pullback([_as_graph(*stand_ins, kept=kept, isometry=isometry)], [ct], stand_ins)


def _as_graph(
    left_ct: Tensor, right_ct: Tensor, basis: Tensor, u: Tensor, s: Tensor, vh: Tensor, *, kept: int, isometry: str
) -> Tensor:
    """Return what `_adjoint_kernel` computes as graph, in which also the basis turns."""
    if isometry == "right":
        left_ct, right_ct, basis, u, vh = (adjoint(x) for x in (right_ct, left_ct, basis, vh, u))
        return adjoint(_as_graph(left_ct, right_ct, basis, u, s, vh, kept=kept, isometry="left"))
    leading, others, dropped = u[:, :kept], u[:, kept:], vh[kept:]
    turn = _graph.apply(TURN, basis, leading)
    basis_ct, rest_ct = matmul(left_ct, turn), matmul(adjoint(turn), right_ct)
    si, sj = s[:kept], layout.expand_dims(s[kept:], -1)
    inside = matmul(adjoint(u), basis_ct)
    gaps = (si - sj) * (si + sj)
    moved = elementwise.divide(inside[kept:] + sj * matmul(dropped, adjoint(rest_ct)), gaps)
    upper = rest_ct + matmul(adjoint(sj * moved), dropped)
    leaving = matmul(others, si * moved) + (basis_ct - matmul(u, inside)) / si
    return matmul(leading, upper) + matmul(leaving, vh[:kept])


SPLIT_ADJOINT = Op(
    "svd_split_adjoint",
    infer=lambda left_ct, right_ct, basis, *factors, **params: (
        (left_ct.shape[0], right_ct.shape[1]),
        left_ct.dtype,
    ),
    kernel=_adjoint_kernel,
    vjp=JointRule(_adjoint_vjp),
    needs=(INPUTS,),
)


# Lᴴ·U₁ of the isometry L. Both are the same vectors, but only U₁ turns inside the kept space when A changes. The value
# is 1, exactly, and the derivative is what brings cotangents from one basis to the other in second derivatives.
TURN = Op(
    "svd_split_turn",
    infer=lambda basis, leading: ((basis.shape[1], basis.shape[1]), basis.dtype),
    kernel=lambda basis, leading: np.eye(basis.shape[1], dtype=basis.dtype),
    vjp=(
        lambda ct, out, basis, leading: matmul(leading, adjoint(ct)),
        lambda ct, out, basis, leading: matmul(basis, ct),
    ),
    needs=(INPUTS,),
)
