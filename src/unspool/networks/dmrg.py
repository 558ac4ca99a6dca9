"""Ground states of chains by the density-matrix renormalisation group (DMRG), differentiated through every sweep.

A matrix product state is improved a site or two at a time. With all other tensors held, and isometries, the energy is a
quadratic form in the tensor θ of those sites. Its minimum is the lowest eigenvector of an effective Hamiltonian: the
operators of those sites between two environments, which are what is to the left and to the right, contracted. θ is
split by a singular value decomposition, the smallest values are dropped, and the next site is taken, from one end
to the other and back. Each move makes one environment from the one before. None is ever built anew.

Of the singular vectors only their span matters: the energies that follow are eigenvalues, which do not see the basis
that an environment is written in. So the energy has a gradient wherever the cut does not go through equal singular
values and the lowest eigenvalues are not degenerate. At convergence the energy is stationary in all tensors, what comes
back through the sweeps vanishes, and the gradient is ⟨∂H⟩ (Hellmann and Feynman). Before that it is the derivative of
the sweeps that were made.

S. R. White, Density matrix formulation for quantum renormalization groups, Phys. Rev. Lett. 69, 2863 (1992); U.
Schollwöck, The density-matrix renormalization group in the age of matrix product states, Ann. Phys. 326, 96 (2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._train import check_pair
from unspool.networks.chain import MPO, MPS, expectation

__all__ = ["DMRGResult", "dmrg"]

# Vectors that Lanczos keeps before it restarts. The guess is good after the first sweep, so few are enough; with many,
# the first look at convergence comes late.
_KRYLOV = 10

# Lets everything pass. An energy does not depend on the basis of a kept space, so what the gauge check looks at is zero
# up to rounding. At convergence the whole cotangent is, and the check would compare rounding with rounding.
_UNCHECKED = 1e300


class DMRGResult(NamedTuple):
    """What `dmrg` came to.

    Attributes
    ----------
    state : MPS
        The state, normalised, with the first site as its centre.
    energy : Tensor
        The lowest eigenvalue of the last effective Hamiltonian, differentiable through every sweep. It is the energy of
        the state before its last split, which drops nothing unless ``rank`` is smaller than a site's space.
    steps : int
        Sweeps that were made, each one to the right and back.
    converged : bool
        Whether the energy changed by less than ``tol`` in the last sweep.
    history : tuple of dict
        What was read after every sweep: ``energy``, ``change`` (of the energy, at first from that of the start),
        ``truncation`` (the largest weight that a split of the sweep dropped) and ``rank`` (the largest bond).
    """

    state: MPS
    energy: us.Tensor
    steps: int
    converged: bool
    history: tuple[dict[str, float], ...]


def dmrg(
    hamiltonian: MPO,
    start: MPS,
    *,
    update: int = 2,
    rank: int = 64,
    cutoff: float = 1e-8,
    tol: float = 1e-9,
    max_steps: int = 20,
    keep_multiplets: bool = True,
    solve_tol: float | None = None,
    on_step: Callable[[int, MPS, dict[str, float]], object] | None = None,
) -> DMRGResult:
    """Find the ground state of a chain.

    Parameters
    ----------
    hamiltonian : MPO
        A Hermitian operator. Models make them from couplings, as `heisenberg` does, and derivatives reach those.
    start : MPS
        Where to start. With ``update=1`` its bonds are the largest there will be; with 2 they grow as needed.
    update : {1, 2}
        How many sites are improved at a time. One is cheaper; two find the bonds by themselves and get stuck less.
    rank : int
        The largest bond.
    cutoff : float
        Singular values up to this much of the largest one are dropped. Those up to √ε (1.5e-8 in double precision)
        always are: their weights, the squares, are rounding.
    tol : float
        Stop when a sweep changes the energy by less.
    max_steps : int
        The most sweeps.
    keep_multiplets : bool
        Lower a rank as far as it takes not to cut through equal singular values, which symmetries make; raise it if the
        largest value alone is a larger multiplet. Without it such a cut is made, and a gradient raises `GaugeError`.
    solve_tol : float, optional
        The relative residual of the linear solves in gradients, one for each update; by default 1e-10 in double
        precision. Ground states with a gap of about 1e-6 of the energy or less, such as those of an ordered phase,
        need more: rounding does not let the residual become that small, which raises `ConvergenceError`.
    on_step : callable, optional
        Called after every sweep as ``on_step(step, state, values)`` with the values of `DMRGResult.history`.

    Returns
    -------
    DMRGResult

    Raises
    ------
    ArgumentError
        If the operator is not Hermitian, a number is not finite, the start is zero or an option makes no sense.
    ShapeError
        If operator and state live on different chains, or there are fewer than two sites.

    Notes
    -----
    The local eigenvectors are found to machine precision. Their derivatives come from the eigenvalue equation and not
    from the iteration, and so they are those of the loop.

    **Degenerate ground states.** The loop finds the one that the start leads to. Which one is a choice that derivatives
    do not know, so a gradient through an update that sees several of them raises `GaugeError`. Two ways out: a field
    that splits the level; or ⟨∂H⟩ in the state that was found, which is right for parameters that do not split it:
    ``expectation(us.stop_gradient(found.state), hamiltonian).grad(...)``.

    Examples
    --------
    The antiferromagnetic chain of four spins ½ has the energy -(3 + 2√3)/4. By Hellmann and Feynman the slopes in its
    couplings are the correlations ⟨S·S⟩ of the bonds:

    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.chain import random_mps
    >>> from unspool.networks.dmrg import dmrg
    >>> from unspool.networks.models import heisenberg
    >>> J = us.tensor(np.ones(3))
    >>> found = dmrg(heisenberg(J), random_mps(4, 2, 2), rank=4)
    >>> found.converged, round(float(found.energy), 10)
    (True, -1.6160254038)
    >>> found.energy.grad(J).eval().round(6)
    array([-0.683013, -0.25    , -0.683013])
    """
    tol, max_steps = _checks.fraction(tol, "tol"), _checks.count(max_steps, "max_steps")
    cut = _Cut(_checks.count(rank, "rank"), _checks.fraction(cutoff, "cutoff"), bool(keep_multiplets))
    update, solve_tol = _checks.count(update, "update"), solve_tol and _checks.fraction(solve_tol, "solve_tol")
    chain = _prepared(hamiltonian, start, update, solve_tol)
    end = start.sites - update

    last, converged = float(us.real(expectation(start, hamiltonian))), False
    history: list[dict[str, float]] = []
    while len(history) < max_steps and not converged:
        dropped = 0.0
        for site in range(end):
            energy, lost = _move_right(chain, site, cut)
            dropped = max(dropped, lost)
        for site in range(end, -1, -1):
            energy, lost = _move_left(chain, site, cut)
            dropped = max(dropped, lost)
        change, last = float(energy) - last, float(energy)
        converged = abs(change) < tol
        state = chain.state()
        history.append({"energy": last, "change": change, "truncation": dropped, "rank": float(max(state.ranks))})
        if on_step is not None:
            on_step(len(history), state, history[-1])
    return DMRGResult(state, energy, len(history), converged, tuple(history))


# --- moves -----------------------------------------------------------------------------------------------------------


@dataclass
class _Chain:
    """A sweep as it stands: tensors, and for each site the environments of all to its left and of all from it on."""

    update: int
    solve_tol: float | None
    operators: tuple[us.Tensor, ...]
    tensors: list[us.Tensor]
    left: dict[int, us.Tensor]
    right: dict[int, us.Tensor]

    def lowest(self, site: int) -> tuple[us.Tensor, us.Tensor]:
        """Return the lowest energy that the tensors of an update can reach, and the one that does, as a matrix."""
        past = site + self.update
        tensors, operators = tuple(self.tensors[site:past]), self.operators[site:past]
        energy, theta = _lowest(tensors, operators, self.left[site], self.right[past], self.solve_tol)
        return energy, theta

    def state(self) -> MPS:
        """Return the state, whose centre is the first site, normalised."""
        first, *others = self.tensors
        return MPS([first / us.linalg.norm(first), *others])


def _move_right(chain: _Chain, site: int, cut: _Cut) -> tuple[us.Tensor, float]:
    """Update, leave an isometry at the site, take the rest along. Return the energy and the weight that was dropped."""
    energy, theta = chain.lowest(site)
    (basis, _, _), dropped = cut.split(theta)
    center, chain.left[site + 1] = _passed_right(theta, basis, chain.left[site], chain.operators[site])
    here, after = chain.tensors[site], chain.tensors[site + 1]
    chain.tensors[site] = basis.reshape(*here.shape[:2], basis.shape[1])
    chain.tensors[site + 1] = (
        center.reshape(basis.shape[1], *after.shape[1:]) if chain.update == 2 else us.tensordot(center, after, 1)
    )
    return energy, dropped


def _move_left(chain: _Chain, site: int, cut: _Cut) -> tuple[us.Tensor, float]:
    """Update, leave an isometry at the last of its sites, take the rest along: the mirror image of `_move_right`."""
    energy, theta = chain.lowest(site)
    place = site + chain.update - 1
    here = chain.tensors[place]
    if place == 0:
        chain.tensors[place] = theta.reshape(here.shape)
        return energy, 0.0
    theta = theta.reshape(-1, here.shape[1] * here.shape[2])
    (_, _, basis), dropped = cut.split(theta)
    center, chain.right[place] = _passed_left(theta, basis, chain.operators[place], chain.right[place + 1])
    before = chain.tensors[place - 1]
    chain.tensors[place] = basis.reshape(basis.shape[0], *here.shape[1:])
    chain.tensors[place - 1] = (
        center.reshape(*before.shape[:2], basis.shape[0]) if chain.update == 2 else us.tensordot(before, center, 1)
    )
    return energy, dropped


class _Cut(NamedTuple):
    """Where singular values are cut off."""

    rank: int
    cutoff: float
    keep_multiplets: bool

    def split(self, matrix: us.Tensor) -> tuple[us.linalg.SVDResult, float]:
        """Return the kept factors of a matrix of norm 1, and the weight that was dropped."""
        level = max(self.cutoff, math.sqrt(float(np.finfo(matrix.dtype).eps)))
        with us.linalg.tolerances(gauge=_UNCHECKED):
            kept = us.linalg.truncated_svd(matrix, self.rank, level, keep_multiplets=True)
        if not self.keep_multiplets:
            plain = us.linalg.truncated_svd(matrix, self.rank, level)
            # Of the two, this one is checked: it matters only where they differ, in a cut through equal values.
            kept = kept if kept.S.shape == plain.S.shape else plain
        return kept, max(0.0, 1.0 - float(us.sum(us.square(kept.S))))


# --- contractions ----------------------------------------------------------------------------------------------------

# An environment on the left has the axes (bra, operator, ket), one on the right (operator, ket, bra). A block is an
# environment with the operator of the site beside it. θ is a matrix: the left bond and its site by the rest. In this
# order the effective Hamiltonian is two matrix products, and nothing is transposed.
#
# Each of these is recorded once for all sizes. As fragments they hold what their derivatives look at, so no eigenvector
# is searched for again. Blocks, which are larger than all else and quickly made, are not held.


@us.fragment(static="solve_tol")
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
        _effective, guess, args=(left, right), ncv=_KRYLOV, solve_tol=solve_tol, gauge="fixed", edge="ignore"
    )
    return values[0], vectors[..., 0]


def _effective(theta: us.Tensor, left: us.Tensor, right: us.Tensor) -> us.Tensor:
    return us.einsum("xmc,mcd->xd", us.einsum("xmy,yc->xmc", left, theta), right)


@us.fragment
def _passed_right(
    theta: us.Tensor, basis: us.Tensor, before: us.Tensor, operator: us.Tensor
) -> tuple[us.Tensor, us.Tensor]:
    """Return what is passed on to the right of an isometry, and the environment that has the isometry in it."""
    half = us.einsum("xmy,yc->xmc", _left_block(before, operator), basis)
    return us.conj(basis).mT @ theta, us.einsum("xa,xmc->amc", us.conj(basis), half)


@us.fragment
def _passed_left(
    theta: us.Tensor, basis: us.Tensor, operator: us.Tensor, after: us.Tensor
) -> tuple[us.Tensor, us.Tensor]:
    """Return what is passed on to the left of an isometry, and the environment that has the isometry in it."""
    return theta @ us.conj(basis).mT, _grown_left(basis, operator, after)


def _grown_left(basis: us.Tensor, operator: us.Tensor, after: us.Tensor) -> us.Tensor:
    """Return the environment from a site on, whose tensor is a matrix: its left bond by its site and right bond."""
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


# --- the beginning ---------------------------------------------------------------------------------------------------


def _prepared(hamiltonian: MPO, start: MPS, update: int, solve_tol: float | None) -> _Chain:
    """Return the chain before the first sweep: the centre is its first site, with all environments to the right."""
    _check(hamiltonian, start, update)
    tensors = list(start.canonical(0).tensors)
    if not float(us.linalg.norm(tensors[0])) > 0.0:
        raise ArgumentError("the start has norm 0, and leads nowhere")
    edge = us.ones((1, 1, 1))
    chain = _Chain(update, solve_tol, hamiltonian.tensors, tensors, {0: edge}, {start.sites: edge})
    for site in range(start.sites - 1, update - 1, -1):
        basis = tensors[site].reshape(tensors[site].shape[0], -1)
        chain.right[site] = _grown_left(basis, chain.operators[site], chain.right[site + 1])
    return chain


def _check(hamiltonian: Any, start: Any, update: int) -> None:
    for name, value, kind in (("hamiltonian", hamiltonian, MPO), ("start", start, MPS)):
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} must be an {kind.__name__}, but is a {type(value).__name__}")
    if update not in (1, 2):
        raise ArgumentError(f"update must be 1 or 2 sites, but is {update}")
    if start.sites < 2:
        raise ShapeError(f"a chain must have at least 2 sites, but has {start.sites}")
    check_pair(hamiltonian, start, "dmrg")
    hamiltonian.check_hermitian()
    for site, tensor in enumerate(start.tensors):
        _checks.finite_tensor(tensor, f"tensor {site} of the start")
