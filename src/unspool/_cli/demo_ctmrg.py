"""``unspool demo ctmrg``: the magnetisation of the square-lattice Ising model, and its slope in the temperature.

Corner transfer matrices surround one spin of an infinite lattice. Below the critical temperature the magnetisation is
exactly m = (1 − sinh(2β)⁻⁴)^(1/8) (C. N. Yang, Phys. Rev. 85, 808 (1952)); its derivative in β follows from that.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import unspool as us
from unspool._cli.options import add_common_options, count, number, written
from unspool._cli.progress import TRUNCATION, Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "magnetisation of the square-lattice Ising model by corner transfer matrices"

COLUMNS = (Column("magnetisation", ".12f", 18), *TRUNCATION)

CRITICAL = math.log(1 + math.sqrt(2)) / 2


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the temperature and the size of the environment."""
    parser.add_argument("--beta", metavar="X", type=number(0, above=True), default=0.5, help="inverse temperature")
    parser.add_argument("--chi", metavar="N", type=count(1), default=16, help="the largest rank of the environment")
    add_common_options(parser, "ctmrg", steps=500, tol=1e-10, unit="step")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story
    from unspool.networks.ctmrg import ctmrg
    from unspool.networks.lattice import ising_site, partition_per_site, product_environment, site_expectation
    from unspool.networks.trg import onsager

    exact = onsager(chosen.beta)

    def run(on_step: OnStep) -> Outcome:
        beta = us.tensor(chosen.beta, name="beta")
        site = ising_site(beta)

        def look(step: int, state: Any, values: Mapping[str, float]) -> None:
            m = site_expectation(site.bulk, site.spin, state)
            on_step(step, state, {"magnetisation": float(m), **values})

        start = product_environment(site.up)
        found = ctmrg(
            site.bulk,
            rank=chosen.chi,
            tol=chosen.tol,
            max_steps=chosen.steps,
            start=start,
            on_step=look,
            spool=written(chosen),
        )
        m = site_expectation(site.bulk, site.spin, found.state)
        log_z = us.log(partition_per_site(site.bulk, found.state))

        def tables(gradient: Any) -> Sequence[Table]:
            results = [
                Comparison("magnetisation m", float(m), exact.magnetisation),
                Comparison("ln Z per site", float(log_z), exact.log_partition),
            ]
            slopes = [Comparison("dm/dβ", float(gradient), magnetisation_slope(chosen.beta))]
            return [compare("Results", results), compare("Gradient, through every step", slopes)]

        return Outcome(loss=m, variable=beta, converged=found.converged, tables=tables)

    return Story(
        title=f"CTMRG: square-lattice Ising model at β = {chosen.beta:g}, rank up to {chosen.chi}",
        about=f"Corners and edges grow around one spin until they settle. The critical β is {CRITICAL:.6f}.",
        run=run,
        columns=COLUMNS,
        quantity="magnetisation",
        exact=exact.magnetisation,
        step="step",
    )


def magnetisation_slope(beta: float) -> float:
    """Return the derivative of the exact magnetisation; it is infinite at the critical point.

    Examples
    --------
    >>> round(magnetisation_slope(0.6), 6), magnetisation_slope(0.3)
    (0.278634, 0.0)
    """
    s = math.sinh(2 * beta)
    if s < 1:
        return 0.0
    return math.inf if s == 1 else s**-5 * math.cosh(2 * beta) * (1 - s**-4) ** -0.875
