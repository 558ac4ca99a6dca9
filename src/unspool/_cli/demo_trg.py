"""``unspool demo trg``: the free energy of the square-lattice Ising model, and its first two derivatives.

Each step turns two sites into one. The logarithm of the partition function per site gives the energy u = −d ln Z/dβ and
the specific heat c = β² d² ln Z/dβ², both through every singular value decomposition of the loop. L. Onsager's exact
values stand beside them; what is left is the truncation to ``--chi``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import unspool as us
from unspool._cli.options import add_common_options, count, number, written
from unspool._cli.progress import TRUNCATION, Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "free energy of the square-lattice Ising model by tensor renormalisation"

COLUMNS = (Column("log_partition", ".12f", 18), *TRUNCATION)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the temperature, the size of the tensors and the method."""
    parser.add_argument("--beta", metavar="X", type=number(0, above=True), default=0.5, help="inverse temperature")
    parser.add_argument("--chi", metavar="N", type=count(1), default=16, help="the largest leg of a tensor")
    parser.add_argument(
        "--method", choices=("trg", "hotrg"), default="trg", help="split along diagonals, or join pairs"
    )
    add_common_options(parser, "trg", steps=60, tol=1e-12, unit="step")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story
    from unspool.networks.trg import hotrg, onsager, trg

    method = {"trg": trg, "hotrg": hotrg}[chosen.method]
    exact = onsager(chosen.beta)

    def run(on_step: OnStep) -> Outcome:
        beta = us.tensor(chosen.beta, name="beta")
        found = method(
            beta, rank=chosen.chi, steps=chosen.steps, tol=chosen.tol, on_step=on_step, spool=written(chosen)
        )

        def tables(gradient: Any) -> Sequence[Table]:
            curvature = gradient.grad(beta)
            slopes = [
                Comparison("u = −d ln Z/dβ", -float(gradient), exact.energy),
                Comparison("c = β² d² ln Z/dβ²", chosen.beta**2 * float(curvature), exact.specific_heat),
            ]
            return [
                compare("Results", [Comparison("ln Z per site", float(found.log_partition), exact.log_partition)]),
                compare("First and second derivative, through every step", slopes),
            ]

        return Outcome(loss=found.log_partition, variable=beta, converged=found.converged, tables=tables)

    return Story(
        title=f"{chosen.method.upper()}: square-lattice Ising model at β = {chosen.beta:g}, legs up to {chosen.chi}",
        about="Each step doubles the lattice; then ln Z is differentiated in β, once and again.",
        run=run,
        columns=COLUMNS,
        quantity="log_partition",
        exact=exact.log_partition,
        step="step",
    )
