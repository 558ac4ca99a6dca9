"""The space of some eigenvectors of a symmetric matrix, with a derivative that knows no gaps among those that are kept.

A loss that depends on the space alone sees eigenvectors move out of it only. With P the vectors that are kept and
D = Pᵀ·A·P, a change dA moves them by the one solution of

    dP·D - A·dP = dA·P - P·(…)        Pᵀ·dP = 0

where (…) is what the last condition asks for. In the basis of all eigenvectors this is a division by λ_i - λ_a for kept
i and dropped a. It takes n²·k multiplications for k of n vectors, where the rule for all of them takes n³.

As in `unspool.networks._kept`, the equation is an op whose derivatives are the same equation, so every order is exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us

__all__ = ["eigenspace"]


def eigenspace(matrix: us.Tensor, values: us.Tensor, vectors: us.Tensor, kept: Any) -> us.Tensor:
    """Return the columns ``kept`` of the eigenvectors; a loss may not depend on a rotation among them.

    Parameters
    ----------
    matrix : Tensor
        Symmetric.
    values, vectors : Tensor
        From `us.linalg.eigh` of it; they are not differentiated.
    kept : array of int
        Which to keep, none of them equal to one that is dropped.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks._eigenspace import eigenspace
    >>> A = us.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    >>> P = eigenspace(A, *us.linalg.eigh(A), np.array([1, 2]))
    >>> us.sum((P @ P.T) * [[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]).grad(A).eval().round(12)
    array([[0. , 0. , 0.5],
           [0. , 0. , 1. ],
           [0.5, 1. , 0. ]])
    """
    found: us.Tensor = _SPACE(matrix, us.stop_gradient(values), us.stop_gradient(vectors), kept)
    return found


def _solve_kernel(push: Any, a: Any, p: Any, d: Any, values: Any, vectors: Any, kept: Any) -> Any:
    gaps = values[kept] - values[:, None]
    gaps[kept] = np.inf
    return vectors @ ((vectors.T @ push) / gaps)


def _solve_vjp(i: int, ct: us.Tensor, z: us.Tensor, *inputs: us.Tensor) -> us.Tensor | None:
    """Return the cotangents of the push, the matrix, the space and D; the equation is its own adjoint."""
    if i > 3:
        return None
    push, _, p, *_ = inputs
    answer: us.Tensor = _SOLVE(ct, *inputs[1:])
    if i == 1:
        answer = _symmetric(answer, z)
    elif i == 2:
        answer = -(z @ (ct.T @ p) + answer @ (push.T @ p))
    elif i == 3:
        answer = -(z.T @ answer)
    return answer


_SOLVE = us.op("eigenspace_motion", kernel=_solve_kernel, vjp=_solve_vjp, replace=True)


def _space_vjp(
    ct: us.Tensor, p: us.Tensor, a: us.Tensor, values: us.Tensor, vectors: us.Tensor, kept: us.Tensor
) -> us.Tensor:
    return _symmetric(_SOLVE(ct, a, p, p.T @ a @ p, values, vectors, kept), p)


def _symmetric(x: us.Tensor, y: us.Tensor) -> us.Tensor:
    product = x @ y.T
    return 0.5 * (product + product.T)


_SPACE = us.op(
    "eigenspace",
    kernel=lambda a, values, vectors, kept: vectors[:, kept],
    infer=lambda a, values, vectors, kept: ((a.shape[0], kept.shape[0]), a.dtype),
    vjp=(_space_vjp, None, None, None),
    replace=True,
)
