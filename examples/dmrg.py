# %% [markdown]
"""The ground state of a quantum chain by DMRG, differentiated through every sweep.

Neighbouring spins of an antiferromagnet, H = Σ J S·S, pair up to singlets, and each spin can pair with one other only.
DMRG finds the compromise: it solves for two spins at a time and cuts every bond to the entanglement that matters.
The slope of the energy in one coupling is the correlation ⟨S·S⟩ of its bond, and here it comes back through all sweeps.

Run it with ``python examples/dmrg.py``, or with ``--small`` in a few seconds.
"""

# %%
from __future__ import annotations

import sys
import time

import numpy as np

import unspool as us
from unspool.networks.chain import MPS, bond_expectation, expectation, random_mps
from unspool.networks.dmrg import dmrg
from unspool.networks.exact import bethe_energy, ising_chain_energy, ising_chain_gradient
from unspool.networks.models import aklt, heisenberg, heisenberg_bonds, ising

SMALL = "--small" in sys.argv

# %% [markdown]
# ## The Heisenberg chain
#
# The couplings are a tensor, so the energy can be differentiated in each of them. What is read after every sweep
# decides when to stop. The exact energy is known from the Bethe ansatz.

# %%
SITES, RANK = (8, 12) if SMALL else (20, 48)


def show(step: int, state: MPS, values: dict[str, float]) -> None:
    """Print what a sweep came to."""
    print(
        f"{step:>5} {values['rank']:>5.0f} {values['energy']:>18.12f} {values['energy'] - bethe_energy(SITES):>11.1e} "
        f"{values['change']:>11.1e} {values['truncation']:>11.1e}"
    )


J = us.tensor(np.ones(SITES - 1), name="J")
print(f"Heisenberg chain of {SITES} spins, bonds of at most {RANK}\n")
print(f"{'sweep':>5} {'rank':>5} {'energy':>18} {'off Bethe':>11} {'change':>11} {'truncation':>11}")
begin = time.perf_counter()
found = dmrg(heisenberg(J), random_mps(SITES, 2, 4), rank=RANK, on_step=show)
print(f"\n{'converged' if found.converged else 'stopped'} after {time.perf_counter() - begin:.1f} s")

# %% [markdown]
# ## The gradient, through every sweep
#
# At convergence the energy is stationary in every tensor of the state, so the gradient of the whole loop has to be
# ⟨S·S⟩ on each bond: the theorem of Hellmann and Feynman. Strong and weak bonds alternate from the ends inwards. The
# energy is of first degree in J, so with J = 1 the slopes add up to it.

# %%
begin = time.perf_counter()
gradient = found.energy.grad(J).eval()
seconds = time.perf_counter() - begin
correlations = bond_expectation(found.state, heisenberg_bonds(np.ones(SITES - 1))).eval()
print(f"\nGradient through {found.steps} sweeps, {seconds:.1f} s\n")
print(f"{'bond':>5} {'dE/dJ':>15} {'⟨S·S⟩':>15} {'difference':>11}")
for bond in range(SITES // 2):
    slope, correlation = gradient[bond], correlations[bond]
    print(f"{bond:>5} {slope:>15.10f} {correlation:>15.10f} {slope - correlation:>11.1e}")
print(
    f"{'sum':>5} {gradient.sum():>15.10f} {float(found.energy):>15.10f} {gradient.sum() - float(found.energy):>11.1e}"
)

# %% [markdown]
# ## Before convergence
#
# One sweep with small bonds is not the ground state. Its gradient is that of the sweep: it agrees with running the loop
# again for couplings nearby, and not with the correlations of the state.

# %%
COUPLINGS = np.random.default_rng(1).uniform(0.5, 1.5, 5)


def one_sweep(couplings: us.Tensor) -> tuple[us.Tensor, MPS]:
    """Energy and state after one sweep with bonds of size 3."""
    stopped = dmrg(heisenberg(couplings), random_mps(6, 2, 2), rank=3, max_steps=1)
    return stopped.energy, stopped.state


leaf = us.tensor(COUPLINGS)
energy, state = one_sweep(leaf)
loop = energy.grad(leaf).eval()
nearby = [[float(one_sweep(us.tensor(COUPLINGS + side * 1e-5 * unit))[0]) for side in (1, -1)] for unit in np.eye(5)]
differences = np.array([(ahead - back) / 2e-5 for ahead, back in nearby])
held = bond_expectation(state, heisenberg_bonds(np.ones(5))).eval()
print("\nOne sweep of 6 spins with bonds of 3, before convergence\n")
print(f"{'bond':>5} {'dE/dJ':>15} {'differences':>15} {'⟨S·S⟩':>15}")
for bond in range(5):
    print(f"{bond:>5} {loop[bond]:>15.9f} {differences[bond]:>15.9f} {held[bond]:>15.9f}")

# %% [markdown]
# ## The Ising chain in a transverse field
#
# H = -Σ ZZ - h Σ X. Free fermions give energy and slope: E = -tr S and dE/dh = -tr(U·Vᵀ), where U·S·Vᵀ has h on its
# diagonal and 1 above it.

# %%
LENGTH = 8 if SMALL else 20
print(f"\nIsing chain of {LENGTH} sites\n")
print(f"{'h':>5} {'energy':>16} {'exact':>16} {'off':>9} {'dE/dh':>15} {'exact':>15} {'off':>9}")
for field in (0.8, 1.0, 1.5):
    h = us.tensor(field)
    ground = dmrg(ising(np.ones(LENGTH - 1), h), random_mps(LENGTH, 2, 4), rank=24)
    value, slope = float(ground.energy), float(ground.energy.grad(h))
    exact = ising_chain_energy(np.ones(LENGTH - 1), field)
    exact_slope = float(ising_chain_gradient(np.ones(LENGTH - 1), field).fields.sum())
    print(
        f"{field:>5} {value:>16.10f} {exact:>16.10f} {value - exact:>9.1e} "
        f"{slope:>15.9f} {exact_slope:>15.9f} {slope - exact_slope:>9.1e}"
    )

# %% [markdown]
# ## When the ground state is not unique
#
# The open chain of Affleck, Kennedy, Lieb and Tasaki has four ground states, from the free spins ½ at its ends. The
# start decides which one is found. A gradient through the sweeps does not know that choice and is refused. ⟨∂H⟩ in the
# state that was found needs no choice, since no coupling splits the four.

# %%
ENDS = 5 if SMALL else 8
B = us.tensor(np.ones(ENDS - 1))
chain = dmrg(aklt(B), random_mps(ENDS, 3, 3), rank=8)
print(f"\nAKLT chain of {ENDS} spins 1: energy {float(chain.energy):.12f}, exact {-2 / 3 * (ENDS - 1):.12f}")
print(f"bonds {chain.state.ranks}")
try:
    chain.energy.grad(B).eval()
except us.errors.GaugeError as error:
    print(f"through the sweeps: {str(error).split(', and')[0]}")
print(f"⟨∂H⟩: {expectation(us.stop_gradient(chain.state), aklt(B)).grad(B).eval().round(12)}")
