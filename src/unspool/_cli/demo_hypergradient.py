"""``unspool demo hypergradient``: how a validation loss depends on the learning rate of every step, and on a penalty.

Logistic regression on noisy labels is trained by Adam, on batches drawn anew in each step; the gradient inside each
step is one of ours, and the one through all of them goes through it. Beside it stand differences of whole trainings,
written again in NumPy with the inner gradient by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import unspool as us
from unspool._cli.options import add_common_options, count, number
from unspool._cli.progress import Column
from unspool._cli.tables import Comparison, Table, compare

if TYPE_CHECKING:
    from unspool._cli.demo import OnStep, Story

__all__ = ["SUMMARY", "add_options", "tell"]

SUMMARY = "learning rates and a penalty, through all steps of Adam with minibatches"

COLUMNS = (Column("validation_loss", ".9f", 17), Column("training", ".6f", 12), Column("change"))

# Adam's averages of the gradient and of its square, and what keeps it from dividing by zero.
MEAN, SQUARE, TINY = 0.9, 0.999, 1e-8

# The step of differences, beside the number that it is taken in.
RELATIVE_STEP = 1e-4


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the data, the batches and what is differentiated."""
    parser.add_argument(
        "--rows", metavar="N", type=count(2), default=400, help="rows to train on, and to validate with"
    )
    parser.add_argument("--features", metavar="N", type=count(1), default=20, help="numbers in a row")
    parser.add_argument("--batch", metavar="N", type=count(1), default=32, help="rows in a batch")
    parser.add_argument("--rate", metavar="X", type=number(0, above=True), default=0.01, help="the learning rate")
    parser.add_argument("--decay", metavar="X", type=number(0, above=True), default=0.01, help="weight of the penalty")
    parser.add_argument("--seed", metavar="N", type=count(0), default=0, help="of data and batches")
    add_common_options(parser, "hypergradient", steps=2000, tol=0.0, unit="step")


def tell(chosen: argparse.Namespace) -> Story:
    """Return the story for the options that were given."""
    from unspool._cli.demo import Outcome, Story

    problem = make_problem(chosen.rows, chosen.features, chosen.batch, chosen.steps, chosen.seed)

    def run(on_step: OnStep) -> Outcome:
        rates = us.tensor(np.full(chosen.steps, chosen.rate), name="rates")
        decay = us.tensor(chosen.decay, name="decay")
        w = m = v = us.zeros(chosen.features)
        taken, last = 0, float(np.log(2.0))
        for k, batch in enumerate(problem.batches):
            loss = logistic(w, problem.inputs[batch], problem.labels[batch]) + decay * us.sum(w * w)
            g = loss.grad(w)
            m, v = MEAN * m + (1 - MEAN) * g, SQUARE * v + (1 - SQUARE) * g * g
            w = w - rates[k] * (m / (1 - MEAN ** (k + 1))) / (us.sqrt(v / (1 - SQUARE ** (k + 1))) + TINY)
            found = logistic(w, problem.unseen, problem.unseen_labels)
            change, last, taken = float(found) - last, float(found), k + 1
            on_step(taken, w, {"validation_loss": last, "training": float(loss), "change": change})
            if abs(change) < chosen.tol:
                break

        def tables(gradient: Any) -> Sequence[Table]:
            by_rate, by_decay = us.eval(gradient)
            same = np.full(taken, chosen.rate)
            only_last = np.eye(taken)[-1]
            penalty = slope_by_hand(problem, same, chosen.decay, np.zeros(taken), 1.0)
            values = [Comparison("validation loss", float(found), validate_by_hand(problem, same, chosen.decay))]
            slopes = [
                Comparison("in the penalty", float(by_decay), penalty, ".8f"),
                Comparison(
                    "in all rates",
                    float(by_rate.sum()),
                    slope_by_hand(problem, same, chosen.decay, np.ones(taken)),
                    ".8f",
                ),
                Comparison(
                    "in the last rate",
                    float(by_rate[taken - 1]),
                    slope_by_hand(problem, same, chosen.decay, only_last),
                    ".8f",
                ),
            ]
            return [
                compare("Value", values, heads=("", "loop", "NumPy")),
                compare("Gradient, through every step", slopes, heads=("", "loop", "differences")),
            ]

        return Outcome(loss=found, variable=(rates, decay), converged=True, tables=tables)

    return Story(
        title=f"Hyper-gradient: {chosen.steps:,} steps of Adam on batches of {chosen.batch}",
        about="Train on some rows, look at others; then the gradient in the rate of every step and in the penalty.",
        run=run,
        columns=COLUMNS,
        quantity="validation_loss",
        step="step",
    )


def logistic(w: us.Tensor, inputs: Any, labels: Any) -> us.Tensor:
    """Return the mean loss of weights on some rows."""
    return us.mean(us.softplus(-labels * (inputs @ w)))


class Problem(NamedTuple):
    """Rows to train on and rows to validate with, with labels of ±1, and the rows of each batch."""

    inputs: Any
    labels: Any
    unseen: Any
    unseen_labels: Any
    batches: Any


def make_problem(rows: int, features: int, batch: int, steps: int, seed: int) -> Problem:
    """Return rows whose labels are those of a hidden direction, in noise.

    Examples
    --------
    >>> make_problem(5, 2, 3, 4, 0).batches.shape
    (4, 3)
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * rows, features))
    y = np.sign(X @ rng.standard_normal(features) + 3.0 * rng.standard_normal(2 * rows))
    return Problem(X[:rows], y[:rows], X[rows:], y[rows:], rng.integers(0, rows, (steps, batch)))


def validate_by_hand(problem: Problem, rates: Any, decay: float) -> float:
    """Train in NumPy, with the gradient of the loss by hand, and return the validation loss."""
    w = m = v = np.zeros(problem.inputs.shape[1])
    for k, (rate, batch) in enumerate(zip(rates, problem.batches, strict=False)):
        A = -problem.labels[batch, None] * problem.inputs[batch]
        g = A.T @ (1 / (1 + np.exp(-(A @ w)))) / len(batch) + 2 * decay * w
        m, v = MEAN * m + (1 - MEAN) * g, SQUARE * v + (1 - SQUARE) * g * g
        w = w - rate * (m / (1 - MEAN ** (k + 1))) / (np.sqrt(v / (1 - SQUARE ** (k + 1))) + TINY)
    return float(np.mean(np.logaddexp(0.0, -problem.unseen_labels * (problem.unseen @ w))))


def slope_by_hand(problem: Problem, rates: Any, decay: float, by_rates: Any, by_decay: float = 0.0) -> float:
    """Return the slope of the validation loss along a direction, by a difference of two trainings."""
    h = RELATIVE_STEP * (decay if by_decay else float(rates[0]))
    above, below = (validate_by_hand(problem, rates + s * by_rates, decay + s * by_decay) for s in (h, -h))
    return (above - below) / (2 * h)
