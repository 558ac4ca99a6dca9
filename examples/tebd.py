# %% [markdown]
"""Time evolution of a quantum chain, differentiated through every gate.

In imaginary time e^(-τH) takes any state to the ground state; in real time e^(-itH) makes a product state entangled.
TEBD applies it as gates on neighbouring spins, and cuts every bond back to the singular values that matter.
The rank of each bond is read from the spectrum at each gate, and the whole run has a derivative in the couplings.

Run it with ``python examples/tebd.py``, or with ``--small`` in a few seconds.
"""

# %%
from __future__ import annotations

import sys
from typing import Any

import numpy as np
from scipy.linalg import expm_frechet

import unspool as us
from unspool.networks.chain import MPS, local_expectation, product_state
from unspool.networks.models import ising_bonds
from unspool.networks.tebd import tebd

SMALL = "--small" in sys.argv
Z = np.diag([1.0, -1.0])

# %% [markdown]
# ## Imaginary time: the ground state of the Ising chain in a transverse field
#
# H = -Σ Z·Z - h·Σ X. Free fermions give the exact energy: with M = h·1 + the upper shift = U·S·Vᵀ, E = -tr(S) and
# dE/dh = -tr(U·Vᵀ). The loop stops by itself when the energy has settled.

# %%
SITES = 6 if SMALL else 10
STEPS = (0.2, 0.1) if SMALL else (0.2, 0.1, 0.05)


def exact_ground_state(sites: int, field: float) -> tuple[float, float]:
    """Energy and dE/dh by the singular value decomposition of free fermions."""
    u, s, vh = np.linalg.svd(field * np.eye(sites) + np.eye(sites, k=1))
    return -float(np.sum(s)), -float(np.trace(u @ vh))


energy, slope = exact_ground_state(SITES, 1.5)
print(f"Ising chain of {SITES} sites, h = 1.5, imaginary time\n")
print(f"{'dt':>6} {'steps':>6} {'rank':>5} {'energy':>16} {'error':>9} {'dE/dh':>13} {'error':>9}")
for dt in STEPS:
    h = us.tensor(1.5)
    found = tebd(
        ising_bonds(us.ones(SITES - 1), us.ones(SITES) * h),
        product_state([[1.0, 1.0]] * SITES),
        step=dt,
        steps=1000,
        rank=16,
        tol=1e-11,
    )
    ours, gradient = float(found.energy), float(found.energy.grad(h))
    print(
        f"{dt:>6} {found.steps:>6} {max(found.state.ranks):>5} {ours:>16.10f} {ours - energy:>9.1e} "
        f"{gradient:>13.8f} {gradient - slope:>9.1e}"
    )
print(f"{'exact':>19} {energy:>16.10f} {'':>9} {slope:>13.8f}")
print("\nA Trotter step dt moves the state by dt², so the energy by dt⁴, and its derivative too.")

# %% [markdown]
# ## Real time: a quench
#
# All spins point along a tilted axis; then the couplings are switched on. ⟨Z⟩ of a spin and its derivative in the
# coupling J, beside the exact evolution of the whole vector. The entropy of the middle bond grows from zero, and the
# rank with it.

# %%
SITES = 4 if SMALL else 8
TIMES, DT = (2 if SMALL else 4), 0.1
TILTED = [0.8, 0.6]


def exact_quench(time: float) -> tuple[float, float]:
    """⟨Z⟩ of the spin left of the middle and its derivative in J, by the exponential of the whole Hamiltonian."""

    def whole(coupling: float, field: float) -> Any:
        terms = us.eval(ising_bonds(np.full(SITES - 1, coupling), np.full(SITES, field)))
        total = np.zeros((2**SITES, 2**SITES))
        for b, term in enumerate(terms):
            total += np.kron(np.kron(np.eye(2**b), term.reshape(4, 4)), np.eye(2 ** (SITES - 2 - b)))
        return total

    evolution, change = expm_frechet(-1j * time * whole(1.0, 0.7), -1j * time * whole(1.0, 0.0))
    start: Any = np.ones(1)
    for _ in range(SITES):
        start = np.kron(start, TILTED)
    signs = np.tile(np.repeat([1.0, -1.0], 2 ** (SITES - MIDDLE - 1)), 2**MIDDLE)
    ket, moved = evolution @ start, change @ start
    return float(np.vdot(ket, signs * ket).real), float(2 * np.vdot(moved, signs * ket).real)


MIDDLE = SITES // 2 - 1
J = us.tensor(1.0)
rows: list[tuple[float, us.Tensor, float, float]] = []


def watch(step: int, state: MPS, values: dict[str, float]) -> None:
    """Keep what is of interest every fifth step; the tensors stay differentiable."""
    if step % 5 == 0:
        entropy = float(state.entropies()[MIDDLE])
        rows.append((values["time"], us.real(local_expectation(state, Z, MIDDLE)), entropy, values["rank"]))


bonds = ising_bonds(us.ones(SITES - 1) * J, np.full(SITES, 0.7))
start = product_state([TILTED] * SITES)
tebd(bonds, start, step=DT, steps=5 * TIMES, order=4, imaginary=False, rank=32, on_step=watch)

print(f"\nQuench of {SITES} sites in real time, fourth order, dt = {DT}\n")
print(f"{'t':>5} {'rank':>5} {'entropy':>8} {'<Z>':>11} {'error':>9} {'d<Z>/dJ':>11} {'error':>9}")
for time, value, entropy, rank in rows:
    exact_value, exact_slope = exact_quench(time)
    ours, gradient = float(value), float(value.grad(J))
    print(
        f"{time:>5.1f} {rank:>5.0f} {entropy:>8.4f} {ours:>11.7f} {ours - exact_value:>9.1e} "
        f"{gradient:>11.7f} {gradient - exact_slope:>9.1e}"
    )
