"""Straight lines through what a loop took at several numbers of steps.

A loop whose steps cost the same however many came before takes a + b·K for K steps. The fit weighs each point by its
size; what is left is told as the most that a point is off the line, relative to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bench.suite.report import Amount, duration
from bench.suite.workload import Row

# With fewer points a line says nothing.
LEAST_POINTS = 3


class Line(NamedTuple):
    """A line through points: what it has at zero, its slope, and the most that a point is off it, relative to it."""

    start: float
    slope: float
    deviation: float


def line_through(steps: Sequence[float], amounts: Sequence[float]) -> Line:
    """Fit a line, each point weighed by its size, so that small ones count as much as large ones.

    >>> line_through([1, 2, 4], [3.0, 5.0, 9.0])
    Line(start=1.0, slope=2.0, deviation=0.0)
    """
    x, y = np.asarray(steps, float), np.asarray(amounts, float)
    (slope, start), *_ = np.linalg.lstsq(np.stack([x / y, 1.0 / y], axis=1), np.ones_like(y), rcond=None)
    fitted = start + slope * x
    # Rounded, for what is off by rounding is not off.
    deviation = float(np.max(np.abs(y - fitted) / fitted))
    return Line(round(float(start), 12), round(float(slope), 12), round(deviation, 6))


def line_of(rows: Sequence[Row], amount: Amount) -> Line | None:
    """Return the line through an amount of the rows of one form, or ``None`` if there are too few."""
    points = [(row.x, found) for row in rows if row.state == "ok" and row.x and (found := getattr(row, amount))]
    return line_through(*zip(*points, strict=True)) if len(points) >= LEAST_POINTS else None


def described(rows: Sequence[Row], amount: Amount) -> str:
    """Tell a line in words: the fit, and what is left.

    A start may be negative, where short loops are cheaper than the line says.
    """
    line = line_of(rows, amount)
    if line is None:
        return ""
    if amount in ("seconds", "first"):
        sign = "-" if line.start < 0 else ""
        fit = f"{sign}{duration(abs(line.start))} + {duration(line.slope)} a step"
    else:
        fit = f"{line.start / 1e6:.2f} MB + {line.slope:,.0f} bytes a step"
    return f"{fit}, at most {line.deviation:.1%} off"
