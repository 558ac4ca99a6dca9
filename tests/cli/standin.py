"""A small loop that stands in for the algorithms: power iteration on a matrix whose largest eigenvalue is 1."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unspool as us
from unspool._cli.demo import OnStep, Outcome, Story
from unspool._cli.progress import Column
from unspool._cli.tables import Comparison, compare

VALUES = 0.5 ** np.arange(6.0)


def options(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(**({"memory": None, "output": None, "report": None, "tol": 1e-13} | changes))


def story(steps: int = 100, disturb: Callable[[int], None] = lambda step: None) -> Story:
    """Return the story; ``disturb`` is called in every step, before anything is read."""

    def run(on_step: OnStep) -> Outcome:
        matrix = us.tensor(np.diag(VALUES))
        x, last, value = us.ones(len(VALUES)), np.inf, np.nan
        for step in range(1, steps + 1):
            disturb(step)
            y = matrix @ x
            x = y / us.linalg.norm(y)
            quotient = x @ matrix @ x
            value, last = float(quotient), value
            on_step(step, {"x": x}, {"value": value, "change": abs(value - last)})
            if abs(value - last) < 1e-13:
                break

        def tables(gradient: us.Tensor) -> list[Any]:
            return [
                compare("Value", [Comparison("largest", value, 1.0)]),
                compare("Gradient", [Comparison("first", float(gradient[0, 0]), 1.0)]),
            ]

        return Outcome(loss=quotient, variable=matrix, converged=step < steps, tables=tables)

    return Story(
        title="Power iteration",
        about="The largest eigenvalue of a matrix.",
        run=run,
        columns=(Column("value", ".12f", 18), Column("change")),
        quantity="value",
        exact=1.0,
        step="step",
    )


def picture(folder: Path) -> Path:
    return folder / "picture.png"
