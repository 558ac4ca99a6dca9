"""``unspool demo als``: a sum of products of vectors in noise, found by alternating least squares.

Two facts test the gradient of the residual r = ‖X − M‖² of the model M with respect to the data X. At convergence M is
the best there is, so the residual changes only through X itself: dr/dX = 2 (X − M). And scaling the data scales what
the loop finds, in every sweep: ⟨X, dr/dX⟩ = 2 r whether it has converged or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, count, number, written
from unspool._cli.progress import Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "CP decomposition of noisy data by alternating least squares"

COLUMNS = (Column("fit", ".12f", 18), Column("error", ".3e", 12), Column("change"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the size of the data, the rank and the noise."""
    parser.add_argument("--size", metavar="N", type=count(2), default=30, help="the size of each mode")
    parser.add_argument("--modes", metavar="N", type=count(2), default=3, help="how many modes the data have")
    parser.add_argument("--rank", metavar="N", type=count(1), default=5, help="terms in the data and in the model")
    parser.add_argument("--noise", metavar="X", type=number(0), default=0.1, help="size of the noise beside the data")
    parser.add_argument("--seed", metavar="N", type=count(0), default=0, help="of data, noise and start")
    add_common_options(parser, "als", steps=500, tol=1e-13, unit="sweep")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story
    from unspool.networks.als import cp_als, random_cp

    shape = (chosen.size,) * chosen.modes

    def run(on_step: OnStep) -> Outcome:
        terms = random_cp(shape, chosen.rank, seed=chosen.seed).full().eval()
        data = us.tensor(terms + noise(terms, chosen.noise, chosen.seed), name="X")
        start = random_cp(shape, chosen.rank, seed=chosen.seed + 1)
        found = cp_als(data, start, tol=chosen.tol, max_steps=chosen.steps, on_step=on_step, spool=written(chosen))

        def tables(gradient: Any) -> Sequence[Table]:
            slope, model = us.eval(gradient, found.state.full())
            direct = 2 * (data.eval() - model)
            gap = np.linalg.norm(slope - direct)
            missed = float(np.linalg.norm(model - terms) / np.linalg.norm(terms))
            errors = [("to the data", found.history[-1]["error"]), ("to the data without noise", missed)]
            slopes = [
                Comparison("⟨X, dr/dX⟩ = 2 r", float(np.vdot(data.eval(), slope)), 2 * float(found.residual), ".10f"),
                Comparison("‖dr/dX‖ = 2 ‖X − M‖", float(np.linalg.norm(slope)), float(np.linalg.norm(direct)), ".10f"),
                Comparison("‖dr/dX − 2 (X − M)‖ = 0", float(gap), 0.0, ".10f"),
            ]
            return [
                Table(
                    "Relative distance of the model", ("", "loop"), [(name, f"{error:.9f}") for name, error in errors]
                ),
                compare("Gradient of the residual r, through every sweep", slopes),
            ]

        return Outcome(loss=found.residual, variable=data, converged=found.converged, tables=tables)

    sizes = " × ".join(map(str, shape))
    return Story(
        title=f"CP-ALS: {chosen.rank} terms in data of {sizes}, noise {chosen.noise:g}",
        about="Each factor in turn by least squares; then the gradient in every entry of the data.",
        run=run,
        columns=COLUMNS,
        quantity="fit",
        loss="residual",
    )


def noise(data: Any, share: float, seed: int) -> Any:
    """Return normally distributed noise whose norm is a share of that of the data."""
    values = np.random.default_rng([seed, 1]).standard_normal(data.shape)
    return share * np.linalg.norm(data) / np.linalg.norm(values) * values
