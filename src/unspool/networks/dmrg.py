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
from unspool.linalg import SVDResult
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of
from unspool.networks._train import check_pair
from unspool.networks._update import grown_left, grown_right, improved, last_improved, passed_left, passed_right
from unspool.networks.chain import MPO, MPS, expectation

__all__ = ["DMRGResult", "dmrg"]


@printed_as_table
class DMRGResult(NamedTuple):
    """The result of `dmrg`.

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


@shows_progress("sweeps")
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
    progress: bool = False,
    spool: Spool | None = None,
) -> DMRGResult:
    """Find the ground state of a chain by DMRG, the density-matrix renormalisation group.

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
        largest value alone is a larger multiplet. Without it such a cut is made, and a gradient that depends on what
        is kept raises `GaugeError`.
    solve_tol : float, optional
        The relative residual of the linear solves in gradients, one for each update; by default 1e-10 in double
        precision. Ground states with a gap of about 1e-6 of the energy or less, such as those of an ordered phase,
        need more: rounding does not let the residual become that small, which raises `ConvergenceError`.
    on_step : callable, optional
        Called after every sweep as ``on_step(step, state, values)`` with the values of `DMRGResult.history`.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

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
    The local eigenvectors are found to a residual of 1e-12 of their size, of the rounding in single precision. Their
    derivatives come from the eigenvalue equation and not from the iteration, and so they are those of the loop.

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

    energy: Any = None
    last, converged = float(us.real(expectation(start, hamiltonian))), False
    with run_of(spool, max_steps) as run:
        begin = (*chain.parts(), energy, last, converged)
        *parts, energy, last, converged = run.start(begin, inputs=(hamiltonian.tensors, start.tensors))
        chain = _Chain(update, solve_tol, *parts)
        while len(run.history) < max_steps and not converged:
            energy, dropped = _sweep(chain, end, cut)
            change, last = float(energy) - last, float(energy)
            converged = abs(change) < tol
            state = chain.state()
            values = {"energy": last, "change": change, "truncation": dropped, "rank": float(max(state.ranks))}
            run.checkpoint((*chain.parts(), energy, last, converged), values)
            if on_step is not None:
                on_step(len(run.history), state, values)
    return DMRGResult(chain.state(), energy, len(run.history), converged, tuple(run.history))


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

    def around(self, site: int) -> tuple[Any, ...]:
        """Return all that an update looks at: tensors, operators, both environments, and how well to solve."""
        past = site + self.update
        return (
            tuple(self.tensors[site:past]),
            self.operators[site:past],
            self.left[site],
            self.right[past],
            self.solve_tol,
        )

    def parts(self) -> tuple[Any, ...]:
        """Return all that the next sweep goes on with."""
        return tuple(self.operators), list(self.tensors), dict(self.left), dict(self.right)

    def state(self) -> MPS:
        """Return the state, whose centre is the first site, normalised."""
        first, *others = self.tensors
        return MPS([first / us.linalg.norm(first), *others])


def _sweep(chain: _Chain, end: int, cut: _Cut) -> tuple[us.Tensor, float]:
    """Go to the right and back; return the energy and the largest weight that was dropped."""
    dropped = 0.0
    for site in range(end):
        energy, lost = _move_right(chain, site, cut)
        dropped = max(dropped, lost)
    for site in range(end, -1, -1):
        energy, lost = _move_left(chain, site, cut)
        dropped = max(dropped, lost)
    return energy, dropped


def _move_right(chain: _Chain, site: int, cut: _Cut) -> tuple[us.Tensor, float]:
    """Update, leave an isometry at the site, take the rest along. Return the energy and the weight that was dropped."""
    energy, theta, factors = improved(*chain.around(site), rightward=True)
    kept, dropped = cut.choose(factors)
    passed = passed_right(theta, factors, chain.tensors[site + 1], chain.update, kept)
    chain.tensors[site], chain.tensors[site + 1] = passed
    chain.left[site + 1] = grown_right(chain.left[site], chain.operators[site], chain.tensors[site])
    return energy, dropped


def _move_left(chain: _Chain, site: int, cut: _Cut) -> tuple[us.Tensor, float]:
    """Update, leave an isometry at the last of its sites, take the rest along: the mirror image of `_move_right`."""
    place = site + chain.update - 1
    if place == 0:
        energy, chain.tensors[place] = last_improved(*chain.around(site))
        return energy, 0.0
    energy, theta, factors = improved(*chain.around(site), rightward=False)
    kept, dropped = cut.choose(factors)
    passed = passed_left(theta, factors, chain.tensors[place - 1], chain.update, kept)
    chain.tensors[place], chain.tensors[place - 1] = passed
    chain.right[place] = grown_left(chain.tensors[place], chain.operators[place], chain.right[place + 1])
    return energy, dropped


class _Cut(NamedTuple):
    """Where singular values are cut off."""

    rank: int
    cutoff: float
    keep_multiplets: bool

    def choose(self, factors: SVDResult) -> tuple[int, float]:
        """Return how many singular values of a matrix of norm 1 are kept, and the weight that is dropped."""
        values = np.asarray(factors.S.eval())
        # Coarser than the measure that `leading_space` has: eigenvectors, and so their multiplets, are found to 1e-12.
        closeness = math.sqrt(float(np.finfo(values.dtype).eps))
        count = max(min(int(np.count_nonzero(values > max(self.cutoff, closeness) * values[0])), self.rank), 1)
        if self.keep_multiplets:
            apart = values[:-1] - values[1:] > closeness * values[0]
            cuts = [*(1 + np.flatnonzero(apart)).tolist(), len(values)]
            count = max((cut for cut in cuts if cut <= count), default=cuts[0])
        return count, float(values[count:] @ values[count:])


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
        chain.right[site] = grown_left(tensors[site], chain.operators[site], chain.right[site + 1])
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
