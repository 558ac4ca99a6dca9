"""``unspool demo tebd``: imaginary time for an Ising chain in a transverse field, and dE/dh of every site.

H = −Σ ZZ − Σ h X (Pauli matrices). Free fermions give the exact energy, minus the sum of the singular values of a
bidiagonal matrix, and its derivative in the field at every site, −⟨X⟩. What is left at convergence is the error of the
time step: ``--dt`` and ``--order`` make it smaller. The gradient is that of the steps that ran, with their error.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, count, number, written
from unspool._cli.progress import TRUNCATION, Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "ground state of an Ising chain in a field by imaginary time"

COLUMNS = (Column("energy", ".12f", 19), *TRUNCATION)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the chain, the field and the time step."""
    parser.add_argument("--sites", metavar="N", type=count(2), default=10, help="spins in the chain")
    parser.add_argument("--chi", metavar="N", type=count(1), default=16, help="the largest bond dimension")
    parser.add_argument("--field", metavar="X", type=number(), default=1.5, help="the field h; 1 is critical")
    parser.add_argument("--dt", metavar="X", type=number(0, above=True), default=0.1, help="the time of one step")
    parser.add_argument("--order", type=int, choices=(2, 4), default=2, help="order of the error in the time step")
    add_common_options(parser, "tebd", steps=200, tol=1e-11, unit="step")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story
    from unspool.networks.chain import product_state
    from unspool.networks.exact import ising_chain_energy, ising_chain_gradient
    from unspool.networks.models import ising_bonds
    from unspool.networks.tebd import tebd

    couplings, field = np.ones(chosen.sites - 1), np.full(chosen.sites, chosen.field)
    exact, slopes = ising_chain_energy(couplings, field), ising_chain_gradient(couplings, field).fields

    def run(on_step: OnStep) -> Outcome:
        fields = us.tensor(field, name="h")
        found = tebd(
            ising_bonds(couplings, fields),
            product_state([[1.0, 1.0]] * chosen.sites),
            step=chosen.dt,
            steps=chosen.steps,
            order=chosen.order,
            rank=chosen.chi,
            tol=chosen.tol,
            on_step=on_step,
            spool=written(chosen),
        )

        def tables(gradient: Any) -> Sequence[Table]:
            found_slopes = gradient.eval()
            whole = Comparison("all", float(found_slopes.sum()), float(slopes.sum()), ".10f")
            sites = [
                Comparison(str(site), float(slope), float(exact_slope), ".10f")
                for site, (slope, exact_slope) in enumerate(zip(found_slopes, slopes, strict=True), 1)
            ]
            note = f"The time step of {chosen.dt:g} leaves an error; a smaller --dt or --order 4 makes it smaller."
            return [
                compare("Energy", [Comparison("energy", float(found.energy), exact)]),
                compare("Gradient, through every step", [*sites, whole], heads=("site", "dE/dh", "−⟨X⟩"), notes=[note]),
            ]

        return Outcome(loss=found.energy, variable=fields, converged=found.converged, tables=tables)

    return Story(
        title=f"TEBD: Ising chain of {chosen.sites} spins in a field of {chosen.field:g}, bonds up to {chosen.chi}",
        about=f"Imaginary time in steps of {chosen.dt:g}, order {chosen.order}; then dE/dh of every site through them.",
        run=run,
        columns=COLUMNS,
        quantity="energy",
        exact=exact,
        step="step",
    )
