"""One update of DMRG: the tensor of lowest energy between two environments, and what it is split into.

An environment on the left has the axes (bra, operator, ket), one on the right (operator, ket, bra). A block is an
environment with the operator of the site beside it. θ is a matrix: the left bond and its site by the rest. In this
order the effective Hamiltonian is two matrix products, and nothing is transposed.

Each of these functions is recorded once for all sizes. As fragments they hold what their derivatives look at, so no
eigenvector is searched for again. Blocks, which are larger than all else and quickly made, are not held.
"""

from __future__ import annotations

import numpy as np

import unspool as us
from unspool.linalg import SVDResult

__all__ = ["grown_left", "grown_right", "improved", "last_improved", "passed_left", "passed_right"]

# Vectors that Lanczos keeps before it restarts. The guess is good after the first sweep, so few are enough; with many,
# the first look at convergence comes late.
_KRYLOV = 10

# The relative residual of eigenvectors. An eigenvalue is better than that by far, since its error is of second order. A
# vector is used to start the next update and in a derivative, whose solves are good to 1e-10.
_EIGEN_TOL = 1e-12


@us.fragment(static=("solve_tol", "rightward"))
def improved(
    tensors: tuple[us.Tensor, ...],
    operators: tuple[us.Tensor, ...],
    before: us.Tensor,
    after: us.Tensor,
    solve_tol: float | None,
    rightward: bool,
) -> tuple[us.Tensor, us.Tensor, SVDResult]:
    """Return the lowest eigenvalue, the eigenvector as the matrix to split on the way, and the factors of that."""
    energy, theta = _lowest(tensors, operators, before, after, solve_tol)
    if len(tensors) == 1 and not rightward:
        theta = theta.reshape(tensors[0].shape[0], -1)
    return energy, theta, us.linalg.space_factors(theta)


@us.fragment(static="solve_tol")
def last_improved(
    tensors: tuple[us.Tensor, ...],
    operators: tuple[us.Tensor, ...],
    before: us.Tensor,
    after: us.Tensor,
    solve_tol: float | None,
) -> tuple[us.Tensor, us.Tensor]:
    """Return the lowest eigenvalue and eigenvector of a site from which nothing is passed on."""
    energy, theta = _lowest(tensors, operators, before, after, solve_tol)
    return energy, theta.reshape(tensors[0].shape)


def _lowest(
    tensors: tuple[us.Tensor, ...],
    operators: tuple[us.Tensor, ...],
    before: us.Tensor,
    after: us.Tensor,
    solve_tol: float | None,
) -> tuple[us.Tensor, us.Tensor]:
    """Return the lowest eigenvalue and eigenvector of the effective Hamiltonian of one site or two."""
    bond, physical, rest = tensors[0].shape
    guess = tensors[0].reshape(bond * physical, rest)
    left = _left_block(before, operators[0])
    if len(tensors) == 2:
        guess = guess @ tensors[1].reshape(rest, -1)
        right = _right_block(operators[1], after)
    else:
        right = after
    # The edge is not looked at: a degenerate level that no parameter splits does have derivatives.
    values, vectors = us.linalg.eigsh(
        _effective,
        guess,
        args=(left, right),
        tol=max(_EIGEN_TOL, float(np.finfo(guess.dtype).eps)),
        ncv=_KRYLOV,
        solve_tol=solve_tol,
        gauge="fixed",
        edge="ignore",
    )
    return values[0], vectors[..., 0]


def _effective(theta: us.Tensor, left: us.Tensor, right: us.Tensor) -> us.Tensor:
    return us.einsum("xmc,mcd->xd", us.einsum("xmy,yc->xmc", left, theta), right)


@us.fragment(static=("update", "kept"))
def passed_right(
    theta: us.Tensor, factors: SVDResult, after: us.Tensor, update: int, kept: int
) -> tuple[us.Tensor, us.Tensor]:
    """Return the isometry that is left behind, and the tensor to its right."""
    basis, rest, _ = us.linalg.leading_space(theta, kept, trusted=True, factors=factors)
    bond, physical, last = after.shape
    # What two sites leave for the second is its tensor; what one site leaves goes into the tensor of the next.
    rest = rest if update == 2 else rest @ after.reshape(bond, physical * last)
    return basis.reshape(-1, physical, kept), rest.reshape(kept, physical, last)


@us.fragment(static=("update", "kept"))
def passed_left(
    theta: us.Tensor, factors: SVDResult, before: us.Tensor, update: int, kept: int
) -> tuple[us.Tensor, us.Tensor]:
    """Return the isometry that is left behind, and the tensor to its left."""
    basis, rest, _ = us.linalg.leading_space(theta, kept, side="right", trusted=True, factors=factors)
    first, physical, bond = before.shape
    rest = rest if update == 2 else before.reshape(first * physical, bond) @ rest
    return basis.reshape(kept, physical, -1), rest.reshape(first, physical, kept)


# Environments are made from the tensors that the state shows: a derivative with respect to these is that of the loop.


@us.fragment
def grown_right(before: us.Tensor, operator: us.Tensor, tensor: us.Tensor) -> us.Tensor:
    """Return the environment up to a site and with it."""
    basis = tensor.reshape(-1, tensor.shape[2])
    half = us.einsum("xmy,yc->xmc", _left_block(before, operator), basis)
    return us.einsum("xa,xmc->amc", us.conj(basis), half)


@us.fragment
def grown_left(tensor: us.Tensor, operator: us.Tensor, after: us.Tensor) -> us.Tensor:
    """Return the environment from a site on."""
    basis = tensor.reshape(tensor.shape[0], -1)
    return basis @ _right_block(operator, after) @ us.conj(basis).mT


def _left_block(env: us.Tensor, operator: us.Tensor) -> us.Tensor:
    """Return an environment with a site to its right: (bra and out, operator, ket and in)."""
    block = us.einsum("awb,wpsm->apmbs", env, operator)
    bra, out, bond, ket, into = block.shape
    merged: us.Tensor = us.cheap(block.reshape(bra * out, bond, ket * into))
    return merged


def _right_block(operator: us.Tensor, env: us.Tensor) -> us.Tensor:
    """Return an environment with a site to its left: (operator, in and ket, out and bra)."""
    block = us.einsum("mptn,ncd->mtcpd", operator, env)
    bond, into, ket, out, bra = block.shape
    merged: us.Tensor = us.cheap(block.reshape(bond, into * ket, out * bra))
    return merged
