"""``unspool demo dmrg``: the ground state of an open Heisenberg chain, and its energy's derivative in every coupling.

H = Σ J_b S_b·S_(b+1), all J = 1. At convergence dE/dJ_b is the correlation ⟨S_b·S_(b+1)⟩ (Hellmann and Feynman), though
the gradient is taken through every sweep and knows nothing of that. The exact energy is that of the Bethe ansatz.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, count, written
from unspool._cli.progress import TRUNCATION, Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "ground state of the open Heisenberg chain by two-site DMRG"

COLUMNS = (Column("energy", ".12f", 19), *TRUNCATION)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the sizes of the chain and of its state."""
    parser.add_argument("--sites", metavar="N", type=count(2), default=20, help="spins in the chain")
    parser.add_argument("--chi", metavar="N", type=count(1), default=32, help="the largest bond dimension")
    add_common_options(parser, "dmrg", steps=20, tol=1e-10, unit="sweep")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story
    from unspool.networks.chain import bond_expectation, random_mps
    from unspool.networks.dmrg import dmrg
    from unspool.networks.exact import bethe_energy
    from unspool.networks.models import heisenberg, heisenberg_bonds

    exact = bethe_energy(chosen.sites)

    def run(on_step: OnStep) -> Outcome:
        couplings = us.tensor(np.ones(chosen.sites - 1), name="J")
        hamiltonian = heisenberg(couplings)
        start = random_mps(chosen.sites, 2, min(chosen.chi, 2), seed=0)

        def look(step: int, state: Any, values: Mapping[str, float]) -> None:
            # The loop goes on with its tensors as matrices, from one bond to the rest: there cotangents arrive.
            on_step(step, [t.reshape(t.shape[0], t.shape[1] * t.shape[2]) for t in state.tensors], values)

        found = dmrg(
            hamiltonian,
            start,
            rank=chosen.chi,
            tol=chosen.tol,
            max_steps=chosen.steps,
            on_step=look,
            spool=written(chosen),
        )

        def tables(gradient: Any) -> Sequence[Table]:
            slopes = gradient.eval()
            correlations = bond_expectation(found.state, heisenberg_bonds(np.ones(chosen.sites - 1))).eval()
            energies = [Comparison("energy", float(found.energy), exact)]
            bonds = [
                Comparison(f"{bond}–{bond + 1}", slope, correlation, ".10f")
                for bond, (slope, correlation) in enumerate(zip(slopes, correlations, strict=True), 1)
            ]
            return [
                compare("Energy", energies, heads=("", "loop", "Bethe ansatz")),
                compare("Gradient, through every sweep", bonds, heads=("bond", "dE/dJ", "⟨S·S⟩")),
            ]

        return Outcome(loss=found.energy, variable=couplings, converged=found.converged, tables=tables)

    return Story(
        title=f"DMRG: open Heisenberg chain of {chosen.sites} spins, bond dimension up to {chosen.chi}",
        about="Two-site sweeps until the energy settles, then dE/dJ of every bond through all of them.",
        run=run,
        columns=COLUMNS,
        quantity="energy",
        exact=exact,
    )
