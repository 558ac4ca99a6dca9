"""Time evolution of a chain by two-site gates (TEBD), in imaginary or in real time.

For H = Σ h_b, one term per bond, e^(-dt·H) is approximated by gates e^(-dt·h_b / 2), applied bond by bond to the right
and then back to the left. Back the order of the gates is reversed, so one step is symmetric in time and its
error is of third order; of second order after a fixed time. Five such steps of suitable lengths make one of fourth
order. Imaginary time (the factor e^(-dt·H)) leads to the ground state, real time (e^(-i·dt·H)) is the dynamics.

A gate joins two tensors to one matrix, whose singular values say how large the bond between them has to be. All other
tensors are isometries towards that bond, so to drop the smallest values is the best approximation of the whole state.
The rank is chosen anew at every gate, by looking at the spectrum.

Of the singular vectors only their span matters: the state is L·(Lᴴ·θ), whatever orthonormal basis L of the kept space
is taken. So the derivative divides by gaps between kept and dropped values alone, and multiplets inside the kept space
are no trouble.

G. Vidal, Efficient simulation of one-dimensional quantum many-body systems, Phys. Rev. Lett. 93, 040502 (2004); M.
Suzuki, Fractal decomposition of exponential operators, Phys. Lett. A 146, 319 (1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.linalg import SVDResult
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of
from unspool.networks.chain import MPS

__all__ = ["TEBDResult", "tebd", "trotter_steps"]

Array = np.ndarray[Any, Any]

# A bond term whose largest deviation from its adjoint is more than this much of its largest entry is not Hermitian.
_HERMITIAN = 1e-10

# Neighbouring singular values that differ by less than this many √ε of themselves belong together: a cut between them
# would be a choice of the rounding, and so would its derivative. `leading_space` takes those within one √ε for equal.
_MULTIPLET = 2


@printed_as_table
class TEBDResult(NamedTuple):
    """The result of `tebd`.

    Attributes
    ----------
    state : MPS
        The evolved state, normalised, with the first site as its centre.
    energy : Tensor
        ⟨H⟩ in that state, differentiable through every gate.
    steps : int
        Steps that were made.
    converged : bool
        Whether the energy changed by less than ``tol`` in the last step; False if no ``tol`` was given.
    history : tuple of dict
        What was read after every step: ``energy``, ``change`` (of the energy), ``truncation`` (weight that was dropped
        in the step), ``norm`` (by how much the step changed the norm before the state was normalised), ``rank`` (the
        largest bond) and ``time``.
    """

    state: MPS
    energy: us.Tensor
    steps: int
    converged: bool
    history: tuple[dict[str, float], ...]


# --- what users call -------------------------------------------------------------------------------------------------


@shows_progress("steps", total="steps")
def tebd(
    bonds: Sequence[Any],
    start: MPS,
    *,
    step: float = 0.1,
    steps: int = 100,
    order: int = 2,
    imaginary: bool = True,
    rank: int | None = None,
    cutoff: float = 1e-10,
    tol: float | None = None,
    on_step: Callable[[int, MPS, dict[str, float]], object] | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> TEBDResult:
    """Evolve a state in time by the gates of a nearest-neighbour Hamiltonian: time-evolving block decimation.

    Parameters
    ----------
    bonds : sequence of array_like
        The Hermitian term of each bond, with the axes (out, out', in, in'); their sum is the Hamiltonian. Models make
        them from couplings, as `ising_bonds` does, and derivatives reach those.
    start : MPS
        Where to start. It is normalised first.
    step : float
        The time of one step.
    steps : int
        The number of steps, or the most of them if ``tol`` is given.
    order : {2, 4}
        Order of the error in ``step`` after a fixed time. A step of order 4 costs five of order 2; see `trotter_steps`.
    imaginary : bool
        Imaginary time, towards the ground state, or real time. States of real time are complex.
    rank : int, optional
        The largest bond. By default ``cutoff`` alone decides.
    cutoff : float
        Singular values of at most this much of the largest one are dropped.
    tol : float, optional
        Stop when a step changes the energy by less. For imaginary time only: real time conserves it.
    on_step : callable, optional
        Called after every step as ``on_step(step, state, values)`` with the values of `TEBDResult.history`.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Returns
    -------
    TEBDResult

    Notes
    -----
    Multiplets of singular values, equal to 2√ε of themselves (3e-8 in double precision), are kept or dropped as a
    whole: fewer than ``rank`` may be kept, and more only if the largest value alone is a larger multiplet. The state is
    normalised after every sweep over the chain.

    For derivatives the ranks are constants. A bond that stays a product just because its coupling is zero has the
    derivative of states that are products there; give the coupling a small value if that is not what is meant.

    Examples
    --------
    Two spins in a field, -Z·Z - h·(X + X'), have the ground-state energy -√(1 + 4h²):

    >>> import unspool as us
    >>> from unspool.networks.chain import product_state
    >>> from unspool.networks.models import ising_bonds
    >>> from unspool.networks.tebd import tebd
    >>> h = us.tensor(1.5)
    >>> found = tebd(ising_bonds(us.ones(1), us.stack([h, h])), product_state([[1.0, 1.0]] * 2), steps=500, tol=1e-13)
    >>> found.converged, round(float(found.energy), 10), round(float(found.energy.grad(h)), 6)
    (True, -3.1622776602, -1.897367)
    """
    steps, order = _checks.count(steps, "steps", least=0), _checks.count(order, "order")
    rank = None if rank is None else _checks.count(rank, "rank")
    cutoff, tol = _checks.fraction(cutoff, "cutoff"), None if tol is None else _checks.fraction(tol, "tol")
    if tol is not None and not imaginary:
        raise ArgumentError(
            f"tol stops on a change of the energy, which real time conserves; it is {tol}, expected None"
        )
    terms, tensors = _checked_bonds(bonds, start), _checked_start(start)
    plan = [_gates(terms, weight * _checked_step(step), imaginary) for weight in trotter_steps(order)]

    values_of_terms = us.eval(terms)
    last, converged = _energy_now(values_of_terms, tensors), False
    with run_of(spool, steps) as run:
        begin = (terms, plan, list(tensors), last, converged)
        terms, plan, tensors, last, converged = run.start(begin, inputs=(terms, tensors))
        while len(run.history) < steps and not converged:
            norm, dropped = 1.0, 0.0
            for gates in plan:
                for rightward in (True, False):
                    growth, lost = _sweep(tensors, gates, rank, cutoff, rightward)
                    norm, dropped = norm * growth, dropped + lost
            reached = _energy_now(values_of_terms, tensors)
            change, last = reached - last, reached
            converged = tol is not None and abs(change) < tol
            state, time = MPS(tuple(tensors)), step * (len(run.history) + 1)
            values = {"energy": last, "change": change, "truncation": dropped, "norm": norm, "time": time}
            values["rank"] = float(max(state.ranks))
            run.checkpoint((terms, plan, list(tensors), last, converged), values)
            if on_step is not None:
                on_step(len(run.history), state, values)
    return TEBDResult(MPS(tuple(tensors)), _energy(terms, tensors), len(run.history), converged, tuple(run.history))


def trotter_steps(order: int) -> tuple[float, ...]:
    """Return the lengths of the symmetric steps that make one step of an order, as fractions of it.

    Order 2 is one symmetric step S, a sweep of half gates to the right and one back. Order 4 is Suzuki's product
    S(p)·S(p)·S(1-4p)·S(p)·S(p) with p = 1/(4 - ∛4): the errors of third order cancel, since 4p³ + (1-4p)³ = 0. The step
    in the middle goes backwards in time.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks.tebd import trotter_steps
    >>> trotter_steps(2), [round(weight, 4) for weight in trotter_steps(4)]
    ((1.0,), [0.4145, 0.4145, -0.658, 0.4145, 0.4145])
    """
    if order == 2:
        return (1.0,)
    if order == 4:
        p = 1.0 / (4.0 - 4.0 ** (1.0 / 3.0))
        return (p, p, 1.0 - 4.0 * p, p, p)
    raise ArgumentError(f"order must be 2 or 4, but is {order!r}")


# --- one sweep -------------------------------------------------------------------------------------------------------


def _sweep(
    tensors: list[us.Tensor], gates: Sequence[us.Tensor], rank: int | None, cutoff: float, rightward: bool
) -> tuple[float, float]:
    """Apply each gate once, moving the centre to the other end; return the norm reached and the weight dropped."""
    order = range(len(gates)) if rightward else range(len(gates) - 1, -1, -1)
    joined = _joined(gates[order[0]], tensors[order[0]], tensors[order[0] + 1])
    kept, norm, dropped = _choice(np.asarray(joined[2].eval()), rank, cutoff)
    for b in order[1:]:
        apart = _apart_and_joined(kept, rightward)
        if rightward:
            tensors[b - 1], *joined = apart(*joined, gates[b], tensors[b + 1])
        else:
            tensors[b + 2], *joined = apart(*joined, gates[b], tensors[b])
        kept, norm, lost = _choice(np.asarray(joined[2].eval()), rank, cutoff)
        dropped += lost
    tensors[order[-1]], tensors[order[-1] + 1] = _apart(*joined, kept=kept, rightward=rightward)
    end = -1 if rightward else 0
    tensors[end] = _normalised(tensors[end])
    return norm, dropped


def _choice(values: Array, rank: int | None, cutoff: float) -> tuple[int, float, float]:
    """Return how many singular values to keep, the norm of those, and the share of the weight that is dropped."""
    falling: list[float] = values.tolist()
    # Below the level of rounding there is no value to be found, whatever the cutoff.
    epsilon = float(np.finfo(values.dtype).eps)
    slack = len(falling) * epsilon * falling[0]
    level = max(cutoff * falling[0], slack)
    wanted = max(sum([value > level for value in falling]), 1)
    wanted = wanted if rank is None else min(wanted, rank)
    near = _MULTIPLET * math.sqrt(epsilon)
    kept = _whole_multiplets(falling, wanted, near, slack, -1) or _whole_multiplets(falling, wanted, near, slack, 1)
    weight, lost = (math.fsum([value * value for value in part]) for part in (falling[:kept], falling[kept:]))
    return kept, math.sqrt(weight), lost / (weight + lost)


def _whole_multiplets(values: Sequence[float], count: int, near: float, slack: float, direction: int) -> int:
    """Return the nearest number of values, down or up from a count, that cuts through no multiplet."""
    while 0 < count < len(values) and values[count - 1] - values[count] <= near * values[count - 1] + slack:
        count += direction
    return count


# Every gate does the same to tensors of other sizes, so what it does is recorded once. The rank is decided on where
# values can be looked at: after a gate was applied and before its sites are taken apart. So taking them apart and the
# gate of the next bond are one step.


@us.fragment
def _joined(gate: us.Tensor, left: us.Tensor, right: us.Tensor) -> tuple[us.Tensor, ...]:
    """Return two sites after a gate, and the factors of the matrix that they are."""
    (bond, p, inner), (_, q, last) = left.shape, right.shape
    pair = left.reshape(bond * p, inner) @ right.reshape(inner, q * last)
    theta = gate.reshape(p * q, p * q) @ pair.reshape(bond, p * q, last)
    return theta.reshape(bond, p, q, last), *us.linalg.space_factors(theta.reshape(bond * p, q * last))


@us.fragment(static=("kept", "rightward"))
def _apart(
    theta: us.Tensor, u: us.Tensor, s: us.Tensor, vh: us.Tensor, kept: int, rightward: bool
) -> tuple[us.Tensor, us.Tensor]:
    """Return two sites from what they are together: the one that is left behind as an isometry, the other as centre."""
    bond, p, q, last = theta.shape
    matrix, factors = theta.reshape(bond * p, q * last), SVDResult(u, s, vh)
    if rightward:
        left, right, _ = us.linalg.leading_space(matrix, kept, trusted=True, factors=factors)
    else:
        right, left, _ = us.linalg.leading_space(matrix, kept, side="right", trusted=True, factors=factors)
    return left.reshape(bond, p, kept), right.reshape(kept, q, last)


@lru_cache(maxsize=256)
def _apart_and_joined(kept: int, rightward: bool) -> Callable[..., tuple[us.Tensor, ...]]:
    """Return the step from a gate to the next: the site left behind, and the centre joined with the site ahead."""

    @us.fragment
    def step(
        theta: us.Tensor, u: us.Tensor, s: us.Tensor, vh: us.Tensor, gate: us.Tensor, ahead: us.Tensor
    ) -> tuple[us.Tensor, ...]:
        left, right = _apart(theta, u, s, vh, kept=kept, rightward=rightward)
        return (left, *_joined(gate, right, ahead)) if rightward else (right, *_joined(gate, ahead, left))

    return step


@us.fragment
def _normalised(tensor: us.Tensor) -> us.Tensor:
    return tensor / us.linalg.norm(tensor)


# --- energy ----------------------------------------------------------------------------------------------------------


def _energy(terms: Sequence[us.Tensor], tensors: Sequence[us.Tensor]) -> us.Tensor:
    """Return ⟨H⟩ in a normalised state with the first site as its centre: all to the right of a bond is isometric."""
    total, left = us.zeros(()), us.ones((1, 1))
    for term, tensor, after in zip(terms, tensors[:-1], tensors[1:], strict=True):
        total, left = _recorded_bond_energy(total, left, term, tensor, after)
    return total


def _energy_now(terms: Sequence[Array], tensors: Sequence[us.Tensor]) -> float:
    """Return the same as a number that is only looked at: nothing of it is recorded."""
    arrays = us.eval(list(tensors))
    total, left = np.zeros(()), np.ones((1, 1))
    for term, tensor, after in zip(terms, arrays[:-1], arrays[1:], strict=True):
        total, left = _bond_energy(total, left, term, tensor, after)
    return float(total)


def _bond_energy(total: Any, left: Any, term: Any, tensor: Any, after: Any) -> tuple[Any, Any]:
    """Add the energy of a bond; return also the norm of the sites up to its left one as a matrix on the next bond.

    NumPy's functions work on arrays and on tensors.
    """
    (bond, p, inner), (_, q, last) = tensor.shape, after.shape
    here, there = tensor.reshape(bond * p, inner), after.reshape(inner, q * last)
    moved = (left @ tensor.reshape(bond, p * inner)).reshape(bond * p, inner)
    ket, bra = ((site @ there).reshape(bond, p * q, last) for site in (moved, here))
    energy = np.real(np.sum(np.conj(bra) * (term.reshape(p * q, p * q) @ ket)))
    return total + energy, np.conj(here).mT @ moved


_recorded_bond_energy = us.fragment(_bond_energy)


# --- gates and checks ------------------------------------------------------------------------------------------------


def _gates(terms: Sequence[us.Tensor], time: float, imaginary: bool) -> list[us.Tensor]:
    """Return e^(-time·h / 2) of every bond, or e^(-i·time·h / 2)."""
    factor = -0.5 * time if imaginary else -0.5j * time
    gates = []
    for b, term in enumerate(terms):
        size = term.shape[0] * term.shape[1]
        gate = us.linalg.matrix_exp(factor * term.reshape(size, size)).reshape(term.shape)
        gates.append(_checks.finite_tensor(gate, f"the gate of bond {b} for a step of {time:.3g}"))
    return gates


def _checked_step(step: Any) -> float:
    size = _checks.fraction(step, "step")
    if size == 0.0:
        raise ArgumentError("step must be positive, but is 0.0")
    return size


def _checked_bonds(bonds: Sequence[Any], state: Any) -> list[us.Tensor]:
    """Return the terms of the bonds as tensors, after a look at their shapes and values."""
    if not isinstance(state, MPS):
        raise ArgumentError(f"the state must be an MPS, but is a {type(state).__name__}")
    sizes = state.physical
    if len(sizes) < 2 or len(bonds) != len(sizes) - 1:
        raise ShapeError(
            f"needs two sites or more and a term for each bond, got {len(sizes)} sites, {len(bonds)} terms"
        )
    terms = []
    for b, (bond, p, q) in enumerate(zip(bonds, sizes, sizes[1:], strict=False)):
        term = us.asarray(bond)
        if term.shape != (p, q, p, q):
            raise ShapeError(f"the term of bond {b} must have shape {(p, q, p, q)} for its sites, got {term.shape}")
        array = np.asarray(_checks.finite_tensor(term, f"the term of bond {b}").eval())
        excess = np.max(np.abs(array - np.conj(np.transpose(array, (2, 3, 0, 1)))))
        if excess > _HERMITIAN * np.max(np.abs(array)):
            raise ArgumentError(f"the term of bond {b} is not Hermitian: it differs from its adjoint by {excess:.3g}")
        terms.append(term)
    return terms


def _checked_start(start: MPS) -> list[us.Tensor]:
    """Return the tensors of a state, normalised and with the first site as their centre."""
    for site, tensor in enumerate(start.tensors):
        _checks.finite_tensor(tensor, f"tensor {site} of the state")
    tensors = list(start.canonical(0).tensors)
    if not float(us.linalg.norm(tensors[0])) > 0.0:
        raise ArgumentError("the state has norm 0: there is nothing to evolve")
    tensors[0] = _normalised(tensors[0])
    return tensors
