"""DMRG of chains with exact energies, its gradients through every sweep beside exact ones, and what it costs.

The open Heisenberg chain of spins ½ has its energy from the Bethe ansatz. Its gradient in every coupling, through all
sweeps, is held to the correlations of the bonds in the state that was found (Hellmann and Feynman). The Ising chain in
a transverse field has energy and slope from free fermions: E = -tr S and dE/dh = -tr(U·Vᵀ) for M = U·S·Vᵀ, where M has
h on its diagonal and 1 above it. The formula is held to numbers that were computed before.

    python bench/networks_dmrg.py            both tables and the bars they are held to; a few minutes of one core
    python bench/networks_dmrg.py --quick    chains of 10 sites alone

Exits with 1 if a bar is missed: energies and slopes, which are sums over the sites, may be off by twice the largest
weight that a cut dropped, and 1e-12 for rounding, for each site. Times have none here.
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np

import unspool as us
from unspool.networks.chain import bond_expectation, random_mps
from unspool.networks.dmrg import DMRGResult, dmrg
from unspool.networks.exact import bethe_energy, ising_chain_energy, ising_chain_gradient
from unspool.networks.models import heisenberg, heisenberg_bonds, ising

ROUNDING_PER_SITE = 1e-12


class Chain(NamedTuple):
    """A Heisenberg chain: how long, and with bonds of which size."""

    sites: int
    rank: int


class Field(NamedTuple):
    """An Ising chain, with the energy that free fermions have given elsewhere, to 13 decimals."""

    sites: int
    field: float
    energy: float


CHAINS = (Chain(10, 32), Chain(20, 32), Chain(20, 64), Chain(50, 64))
FIELDS = (
    Field(10, 0.5, -9.7655039579272),
    Field(10, 1.0, -12.3814899996548),
    Field(10, 1.5, -16.5352549467592),
    Field(20, 0.5, -20.4002178670266),
    Field(20, 1.0, -25.1077971116238),
    Field(20, 1.5, -33.2545167536354),
    Field(50, 0.5, -52.3065494509739),
    Field(50, 1.0, -63.3011891554202),
    Field(50, 1.5, -83.4123033996769),
)


def bar(found: DMRGResult) -> float:
    """How far energies and gradients may be off."""
    return found.state.sites * (2 * found.history[-1]["truncation"] + ROUNDING_PER_SITE)


def heisenberg_table(chains: tuple[Chain, ...]) -> bool:
    """Print energies beside the Bethe ansatz, gradients beside correlations; return whether all is within the bars."""
    print("Open Heisenberg chain, H = Σ S·S, from a random start\n")
    print(
        f"{'sites':>5} {'rank':>4} {'sweeps':>6} {'energy':>17} {'Bethe ansatz':>17} {'difference':>10} "
        f"{'truncation':>10} {'dE/dJ - ⟨S·S⟩':>13} {'bar':>8} {'loop':>7} {'gradient':>8}"
    )
    good = True
    for sites, rank in chains:
        J = us.tensor(np.ones(sites - 1))
        begin = time.process_time()
        found = dmrg(heisenberg(J), random_mps(sites, 2, 8), rank=rank)
        between = time.process_time()
        gradient = found.energy.grad(J).eval()
        end = time.process_time()
        exact, correlations = bethe_energy(sites), bond_expectation(found.state, heisenberg_bonds(np.ones(sites - 1)))
        off, apart = float(found.energy) - exact, float(np.max(np.abs(gradient - correlations.eval())))
        good &= found.converged and max(abs(off), apart) <= bar(found)
        print(
            f"{sites:>5} {rank:>4} {found.steps:>6} {float(found.energy):>17.12f} {exact:>17.12f} {off:>10.1e} "
            f"{found.history[-1]['truncation']:>10.1e} {apart:>13.1e} {bar(found):>8.1e} {between - begin:>5.1f} s "
            f"{end - between:>6.1f} s",
            flush=True,
        )
    return good


def ising_table(fields: tuple[Field, ...]) -> bool:
    """Print energies and slopes beside free fermions; return whether all is within the bars."""
    print("\nOpen Ising chain, H = -Σ ZZ - h Σ X, rank 32\n")
    print(
        f"{'sites':>5} {'h':>4} {'energy':>18} {'free fermions':>18} {'difference':>10} {'dE/dh':>17} "
        f"{'-tr(U·Vᵀ)':>17} {'difference':>10} {'bar':>8} {'seconds':>8}"
    )
    good = True
    for sites, field, known in fields:
        h = us.tensor(field)
        begin = time.process_time()
        # In the ordered phase, h < 1, the gap closes exponentially with the length: see `solve_tol`.
        found = dmrg(ising(np.ones(sites - 1), h), random_mps(sites, 2, 8), rank=32, tol=1e-11, solve_tol=1e-8)
        slope = float(found.energy.grad(h))
        seconds = time.process_time() - begin
        exact = ising_chain_energy(np.ones(sites - 1), field)
        expected = float(ising_chain_gradient(np.ones(sites - 1), field).fields.sum())
        off, apart = float(found.energy) - exact, slope - expected
        good &= found.converged and max(abs(off), abs(apart)) <= bar(found) and abs(exact - known) < 1e-12
        print(
            f"{sites:>5} {field:>4} {float(found.energy):>18.12f} {exact:>18.12f} {off:>10.1e} {slope:>17.12f} "
            f"{expected:>17.12f} {apart:>10.1e} {bar(found):>8.1e} {seconds:>6.1f} s",
            flush=True,
        )
    return good


def full_table(longest: int = 50) -> bool:
    """Print both tables, for chains up to a length; return whether all is within the bars."""
    good = heisenberg_table(tuple(chain for chain in CHAINS if chain.sites <= longest))
    good &= ising_table(tuple(row for row in FIELDS if row.sites <= longest))
    print(f"\nbars: {'kept' if good else 'MISSED'}")
    return good


def main() -> int:
    """Print everything; return 1 if a bar is missed."""
    return 0 if full_table(10 if "--quick" in sys.argv else 50) else 1


if __name__ == "__main__":
    sys.exit(main())
