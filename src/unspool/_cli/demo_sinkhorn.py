"""``unspool demo sinkhorn``: optimal transport between two clouds of points, with the answer known beforehand.

For any positive u and v, P = diag(u) exp(−C/ε) diag(v) is the plan of least cost and entropy between its own row sums
and column sums. So the masses are chosen to fit a plan, and the loop has to find it. The gradient of the objective with
respect to the cost matrix is then the plan itself, and that with respect to ε the relative entropy KL(P | a⊗b).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, count, number, written
from unspool._cli.progress import Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "optimal transport between two clouds of points by Sinkhorn's iteration"

# The loop runs in stretches, each from the potentials that the one before it ended with. Within a stretch it goes by
# scalings of them, so that only at the ends there are potentials for cotangents to arrive at.
STRETCH = 5

COLUMNS = (Column("marginal", ".3e", 14), Column("change"))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of points and the weight of the entropy."""
    parser.add_argument("--size", metavar="N", type=count(2), default=100, help="points in each cloud")
    parser.add_argument(
        "--epsilon", metavar="X", type=number(0, above=True), default=0.02, help="weight of the entropy"
    )
    parser.add_argument("--seed", metavar="N", type=count(0), default=0, help="of the points and the plan")
    add_common_options(parser, "sinkhorn", steps=5000, tol=1e-12, unit="step")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story
    from unspool.networks.transport import sinkhorn

    problem = make_problem(chosen.size, chosen.epsilon, chosen.seed)

    def run(on_step: OnStep) -> Outcome:
        cost, epsilon = us.tensor(problem.cost, name="C"), us.tensor(chosen.epsilon, name="epsilon")
        state, done = None, 0
        while True:
            found = sinkhorn(
                cost,
                problem.source,
                problem.target,
                regularisation=epsilon,
                start=state,
                tol=chosen.tol,
                # A run that is written is one loop.
                max_steps=chosen.steps if written(chosen) else min(STRETCH, chosen.steps - done),
                on_step=partial(_count_on, on_step, done),
                spool=written(chosen),
            )
            state, done = found.state, done + found.steps
            if found.converged or done >= chosen.steps:
                break

        def tables(gradient: Any) -> Sequence[Table]:
            (by_cost, by_epsilon), plan = us.eval(gradient, found.plan)
            exact_cost = float(np.vdot(problem.plan, problem.cost))
            results = [
                Comparison("cost ⟨P, C⟩", float(found.cost), exact_cost),
                Comparison("‖P − exact plan‖", float(np.linalg.norm(plan - problem.plan)), 0.0),
            ]
            slopes = [
                Comparison("d/dε = KL(P | a⊗b)", float(by_epsilon), problem.entropy()),
                Comparison("‖d/dC − P‖ = 0", float(np.linalg.norm(by_cost - problem.plan)), 0.0),
                Comparison("⟨C, d/dC⟩ = ⟨C, P⟩", float(np.vdot(problem.cost, by_cost)), exact_cost),
            ]
            return [
                compare("Results", results),
                compare("Gradient of the objective, through every step", slopes),
            ]

        return Outcome(loss=found.objective, variable=(cost, epsilon), converged=found.converged, tables=tables)

    return Story(
        title=f"Sinkhorn: {chosen.size} points to {chosen.size} points, ε = {chosen.epsilon:g}",
        about="Rows and columns of a plan scaled in turn; then the gradient in every cost and in ε.",
        run=run,
        columns=COLUMNS,
        quantity="marginal",
        exact=0.0,
        loss="objective",
        step="step",
    )


def _count_on(on_step: OnStep, done: int, step: int, state: Any, values: Mapping[str, float]) -> None:
    on_step(done + step, state, values)


class Problem(NamedTuple):
    """Costs and masses, and the plan that is the answer."""

    cost: Any
    source: Any
    target: Any
    plan: Any

    def entropy(self) -> float:
        """Return KL(P | a⊗b) of the plan."""
        return float(np.sum(self.plan * np.log(self.plan / np.outer(self.source, self.target))))


def make_problem(size: int, epsilon: float, seed: int) -> Problem:
    """Return points in the unit square, the squared distances between them, and masses that fit a plan.

    Examples
    --------
    >>> problem = make_problem(5, 0.1, 0)
    >>> bool(abs(problem.plan.sum(axis=1) - problem.source).max() < 1e-15)
    True
    """
    rng = np.random.default_rng(seed)
    first, second = rng.random((2, size, 2))
    cost = np.sum((first[:, None] - second) ** 2, axis=2)
    rows, columns = 0.5 * rng.standard_normal((2, size))
    exponents = rows[:, None] + columns - cost / epsilon
    plan = np.exp(exponents - exponents.max())
    plan /= plan.sum()
    return Problem(cost, plan.sum(axis=1), plan.sum(axis=0), plan)
