"""What schedules are compared with: the exact optimum by its table, and the figures that the policy is specified by."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray


@cache
def optimum(steps: int, units: int, residual: int) -> NDArray[np.int64]:
    """The least runs of a step that reverse 1, 2, … steps with room for so many states, by trying out everything.

    A state takes one unit, a tape 1 + residual units. With f(l, c) for l steps from a current state and c free units:
    a tape of the first step leaves f(l − 1, c − 1 − residual), and one run more; saving the start and advancing i steps
    leaves f(l − i, c − 1) and then f(i, c), and i runs. The last step is taped in the workspace. For residual = 0 that
    takes no run, and the loop's own last step, whose result is read, one. (Maddison 2024, where a tape is one unit.)
    """
    taping = 1 if residual else 0
    table = np.full((steps + 1, units + 1), 2**29, np.int64)
    table[1] = taping
    for length in range(2, steps + 1):
        ahead = np.arange(1, length)[:, np.newaxis]
        table[length, 1:] = (table[1:length, 1:] + ahead + table[length - 1 : 0 : -1, :-1]).min(axis=0)
        if 1 + residual <= units:
            taped = table[length - 1, : units - residual] + 1
            np.minimum(table[length, 1 + residual :], taped, out=table[length, 1 + residual :])
    return table[:, units] + (1 - taping)


# Steps, residuals in states, share of what keeping everything takes in percent, and the recompute factor of the optimum
# where the last step of a leaf needs a unit of its own: the exact one can be a little less.
PUBLISHED = [
    (100, 0, 50, 1.49),
    (100, 0, 12, 1.96),
    (100, 0, 2, 8.46),
    (100, 1, 50, 1.50),
    (100, 1, 12, 1.92),
    (100, 1, 2, 4.69),
    (100, 5, 50, 1.50),
    (100, 5, 12, 1.89),
    (100, 5, 2, 2.84),
    (1000, 0, 50, 1.50),
    (1000, 0, 12, 1.879),
    (1000, 0, 2, 2.748),
    (1000, 1, 50, 1.50),
    (1000, 1, 12, 1.884),
    (1000, 1, 2, 2.588),
    (1000, 5, 50, 1.50),
    (1000, 5, 12, 1.881),
    (1000, 5, 2, 1.991),
    (10_000, 0, 50, 1.50),
    (10_000, 0, 12, 1.88),
    (10_000, 0, 2, 1.98),
    (10_000, 1, 50, 1.50),
    (10_000, 1, 12, 1.88),
    (10_000, 1, 2, 1.983),
    (10_000, 5, 50, 1.50),
    (10_000, 5, 12, 1.88),
    (10_000, 5, 2, 1.981),
]

# The same for residuals of one state and few states: steps, states, factor.
PUBLISHED_FEW = [
    (1000, 2, 29.8),
    (1000, 3, 13.15),
    (1000, 5, 7.25),
    (1000, 10, 4.46),
    (10_000, 2, 94.3),
    (10_000, 3, 28.87),
    (10_000, 5, 12.28),
    (10_000, 10, 6.55),
]
