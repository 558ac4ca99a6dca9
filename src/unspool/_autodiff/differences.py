"""Derivatives by central differences with Richardson extrapolation; no tensors, no graph.

Halving the step and extrapolating removes one even power of the step from the error at a time (Ridders 1982,
doi:10.1016/S0141-1195(82)80057-0). Of all extrapolated values each entry keeps the one whose neighbours in the table
agree best, so that neither truncation nor rounding has to be guessed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Vector: TypeAlias = np.ndarray[Any, Any]

_LEAST_LEVELS = 3
_MOST_LEVELS = 12


def derivative(
    f: Callable[[Vector], Vector], at: Vector, direction: Vector, *, step: float, rtol: float, atol: float
) -> Vector:
    """Return the derivative of a vector function in a direction; NaN for an entry that does not settle.

    Steps are halved, from ``step`` on, until the estimated error is below ``atol + rtol * abs(value)`` everywhere.
    """
    return derivative_and_error(f, at, direction, step=step, rtol=rtol, atol=atol)[0]


def derivative_and_error(
    f: Callable[[Vector], Vector],
    at: Vector,
    direction: Vector,
    *,
    step: float,
    rtol: float,
    atol: float,
    levels: int = _MOST_LEVELS,
) -> tuple[Vector, Vector]:
    """Return the same with its estimated error: how far the neighbours in the table are from what was taken."""
    previous: list[Vector] = []
    value: Any = np.nan
    error: Any = np.inf
    with np.errstate(all="ignore"):  # a step too far may leave the domain of the function; the next one is shorter
        for level in range(levels):
            move = step * direction
            row = [(f(at + move) - f(at - move)) / (2 * step)]
            for column, before in enumerate(previous):
                extrapolated = row[column] + (row[column] - before) / (4.0 ** (column + 1) - 1)
                spread = np.maximum(np.abs(extrapolated - row[column]), np.abs(extrapolated - before))
                better = spread < error
                value, error = np.where(better, extrapolated, value), np.where(better, spread, error)
                row.append(extrapolated)
            if level + 1 >= _LEAST_LEVELS and np.all(error <= atol + rtol * np.abs(value)):
                break
            previous, step = row, step / 2
    return np.broadcast_to(value, row[0].shape), np.broadcast_to(error, row[0].shape)
