"""Time evolution of a chain by two-site gates (TEBD), in imaginary or in real time.

For H = Σ h_b, one term per bond, e^(-dt·H) is approximated by gates e^(-dt·h_b / 2), applied bond by bond to the right
and then back to the left. The order of the gates on the way back is reversed, so one step is symmetric in time and its
error is of third order; of second order after a fixed time. Five such steps of suitable lengths make one of fourth
order. Imaginary time (the factor e^(-dt·H)) leads to the ground state, real time (e^(-i·dt·H)) is the dynamics.

A gate joins two tensors to one matrix, whose singular values say how large the bond between them has to be. All other
tensors are isometries towards that bond, so to drop the smallest values is the best approximation of the whole state.
The rank is chosen anew at every gate, by looking at the spectrum.

Of the singular vectors only their span matters: the state is L·(Lᴴ·θ), whatever orthonormal basis L of the kept space
is taken. So the derivative divides by gaps between kept and dropped values alone, and multiplets inside the kept space
are no trouble; `_split` has this rule.

G. Vidal, Efficient simulation of one-dimensional quantum many-body systems, Phys. Rev. Lett. 93, 040502 (2004); M.
Suzuki, Fractal decomposition of exponential operators, Phys. Lett. A 146, 319 (1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks.chain import MPS

__all__ = ["TEBDResult", "tebd", "trotter_steps"]

Array = np.ndarray[Any, Any]

# A bond term whose largest deviation from its adjoint is more than this much of its largest entry is not Hermitian.
_HERMITIAN = 1e-10

# Neighbouring singular values that differ by less than this much of themselves belong together: a cut between them
# would be a choice of the rounding, and so would its derivative.
_MULTIPLET = 1e-8


class TEBDResult(NamedTuple):
    """What `tebd` came to.

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
) -> TEBDResult:
    """Evolve a state by the gates of a nearest-neighbour Hamiltonian.

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

    Returns
    -------
    TEBDResult

    Notes
    -----
    Multiplets of singular values, equal to 1e-8 of themselves, are kept or dropped as a whole: fewer than ``rank`` may
    be kept, and more only if the largest value alone is a larger multiplet. The state is normalised after every sweep
    over the chain.

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

    energy = _energy(terms, tensors)
    history: list[dict[str, float]] = []
    last, converged = float(energy), False
    while len(history) < steps and not converged:
        norm, dropped = 1.0, 0.0
        for gates in plan:
            for rightward in (True, False):
                growth, lost = _sweep(tensors, gates, rank, cutoff, rightward)
                norm, dropped = norm * growth, dropped + lost
        energy = _energy(terms, tensors)
        change, last = float(energy) - last, float(energy)
        converged = tol is not None and abs(change) < tol
        state, time = MPS(tuple(tensors)), step * (len(history) + 1)
        values = {"energy": last, "change": change, "truncation": dropped, "norm": norm, "time": time}
        history.append(values | {"rank": float(max(state.ranks))})
        if on_step is not None:
            on_step(len(history), state, history[-1])
    return TEBDResult(MPS(tuple(tensors)), energy, len(history), converged, tuple(history))


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
    dropped = 0.0
    for b in range(len(gates)) if rightward else reversed(range(len(gates))):
        theta, u, s, vh = _joined(gates[b], tensors[b], tensors[b + 1])
        kept, norm, lost = _choice(np.asarray(s.eval()), rank, cutoff)
        keep = _kept_left if rightward else _kept_right
        tensors[b], tensors[b + 1] = keep(theta, u, s, vh, kept)
        dropped += lost
    end = -1 if rightward else 0
    tensors[end] = _normalised(tensors[end])
    return norm, dropped


def _choice(values: Array, rank: int | None, cutoff: float) -> tuple[int, float, float]:
    """Return how many singular values to keep, the norm of those, and the share of the weight that is dropped."""
    # Below the level of rounding there is no value to be found, whatever the cutoff.
    rounding = len(values) * float(np.finfo(values.dtype).eps)
    wanted = max(int(np.count_nonzero(values > max(cutoff, rounding) * values[0])), 1)
    wanted = wanted if rank is None else min(wanted, rank)
    slack = rounding * values[0]
    kept = _whole_multiplets(values, wanted, slack, -1) or _whole_multiplets(values, wanted, slack, 1)
    weight, lost = float(values[:kept] @ values[:kept]), float(values[kept:] @ values[kept:])
    return kept, math.sqrt(weight), lost / (weight + lost)


def _whole_multiplets(values: Array, count: int, slack: float, direction: int) -> int:
    """Return the nearest number of values, down or up from a count, that cuts through no multiplet."""
    while 0 < count < len(values) and values[count - 1] - values[count] <= _MULTIPLET * values[count - 1] + slack:
        count += direction
    return count


# Every gate does the same to tensors of other sizes, so each of these is recorded once. What decides on the rank lies
# between them, where values can be looked at.


@us.fragment
def _joined(gate: us.Tensor, left: us.Tensor, right: us.Tensor) -> tuple[us.Tensor, ...]:
    """Return two sites after a gate, and the factors of the matrix that they are."""
    theta = us.einsum("abpq,lpqr->labr", gate, us.einsum("lpm,mqr->lpqr", left, right))
    return theta, *us.linalg.svd(_as_matrix(theta), full_matrices=False)


@us.fragment(static="kept")
def _kept_left(theta: us.Tensor, u: us.Tensor, s: us.Tensor, vh: us.Tensor, kept: int) -> tuple[us.Tensor, us.Tensor]:
    """Return an isometry on the left site and the centre on the right one."""
    left, p, q, right = theta.shape
    basis, rest = _split(_as_matrix(theta), u, s, vh, kept=kept)
    return basis.reshape(left, p, kept), rest.reshape(kept, q, right)


@us.fragment(static="kept")
def _kept_right(theta: us.Tensor, u: us.Tensor, s: us.Tensor, vh: us.Tensor, kept: int) -> tuple[us.Tensor, us.Tensor]:
    """Return the centre on the left site and an isometry on the right one: the mirror image of `_kept_left`."""
    left, p, q, right = theta.shape
    basis, rest = _split(_adjoint(_as_matrix(theta)), _adjoint(vh), s, _adjoint(u), kept=kept)
    return _adjoint(rest).reshape(left, p, kept), _adjoint(basis).reshape(kept, q, right)


@us.fragment
def _normalised(tensor: us.Tensor) -> us.Tensor:
    return tensor / us.linalg.norm(tensor)


def _as_matrix(theta: us.Tensor) -> us.Tensor:
    left, p, q, right = theta.shape
    return theta.reshape(left * p, q * right)


def _adjoint(matrix: Any) -> us.Tensor:
    return us.conj(us.matrix_transpose(matrix))


# --- the kept space --------------------------------------------------------------------------------------------------

# `_split` takes a matrix A = U·S·Vᴴ to (L, Lᴴ·A), with L the vectors of the largest singular values. What follows is a
# function of the product and does not see the basis of L, so a change of A moves L only out of the kept space:
# dL = U₂·Ω, and for j dropped and i kept
#
#     Ω_ji = (s_i·(Uᴴ·dA·V)_ji + s_j·(Uᴴ·dA·V)_ij*) / (s_i² - s_j²)
#
# The rule of `us.linalg.svd`, which has to serve every loss, would divide by gaps between kept values as well, only to
# find that all numerators vanish. The adjoint below is written so that small kept values are divided by only where what
# they divide is as small: the cotangent of column i of L carries a factor s_i.


def _split_adjoint(ct: Any, out: Any, a: Any, u: Any, s: Any, vh: Any, *, kept: int) -> Any:
    basis_ct, rest_ct = (us.zeros_like(x) if c is None else c for x, c in zip(out, ct, strict=True))
    leading, others, si, sj = u[:, :kept], u[:, kept:], s[:kept], s[kept:, None]
    turn = _turn(out[0], leading)
    basis_ct, rest_ct = basis_ct @ turn, _adjoint(turn) @ rest_ct
    gap = (si - sj) * (si + sj)
    from_basis, from_rest = _adjoint(others) @ basis_ct, vh[kept:] @ _adjoint(rest_ct)
    leaving = (basis_ct - leading @ (_adjoint(leading) @ basis_ct)) / si
    leaving = leaving + others @ ((sj * sj / (si * gap)) * from_basis + (si * sj / gap) * from_rest)
    arriving = (sj / gap) * from_basis + (sj * sj / gap) * from_rest
    return leading @ (rest_ct + _adjoint(arriving) @ vh[kept:]) + leaving @ vh[:kept]


def _split_kernel(a: Array, u: Array, s: Array, vh: Array, *, kept: int) -> tuple[Array, Array]:
    basis = u[:, :kept]
    return basis, np.conj(basis.T) @ a


# Lᴴ·U₁. Both are the same vectors, but only U₁ turns inside the kept space when A changes. The value is 1, exactly, and
# the derivative is what brings cotangents from one basis to the other in second derivatives.
_turn = us.op(
    "basis_turn",
    kernel=lambda basis, leading: np.eye(basis.shape[1], dtype=basis.dtype),
    infer=lambda basis, leading: ((basis.shape[1], basis.shape[1]), basis.dtype),
    vjp=(lambda ct, out, basis, leading: leading @ _adjoint(ct), lambda ct, out, basis, leading: basis @ ct),
    needs=("inputs",),
)

# An op with a rule, rather than `us.custom_vjp`, so that calls with the same rank share one recorded derivative.
_split = us.op(
    "leading_vectors",
    kernel=_split_kernel,
    infer=lambda a, u, s, vh, *, kept: [((u.shape[0], kept), a.dtype), ((kept, vh.shape[1]), a.dtype)],
    vjp=(_split_adjoint, None, None, None),
    multi=True,
)


# --- energy ----------------------------------------------------------------------------------------------------------


def _energy(terms: Sequence[us.Tensor], tensors: Sequence[us.Tensor]) -> us.Tensor:
    """Return ⟨H⟩ in a normalised state with the first site as its centre: all to the right of a bond is isometric."""
    total, left = us.zeros(()), us.ones((1, 1))
    for term, tensor, after in zip(terms, tensors[:-1], tensors[1:], strict=True):
        part, left = _bond_energy(term, left, tensor, after)
        total = total + part
    return total


@us.fragment
def _bond_energy(term: us.Tensor, left: us.Tensor, tensor: us.Tensor, after: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Return the energy of a bond, and the norm of the sites up to its left one as a matrix on the next bond."""
    moved = us.einsum("xl,lpm->xpm", left, tensor)
    pair, bra = us.einsum("xpm,mqr->xpqr", moved, after), us.einsum("lpm,mqr->lpqr", tensor, after)
    energy = us.real(us.sum(us.conj(bra) * us.einsum("abpq,xpqr->xabr", term, pair)))
    return energy, us.einsum("xpm,xpn->mn", us.conj(tensor), moved)


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
