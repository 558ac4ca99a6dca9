"""A loss as a function of its variables again: the recipe, recorded once more on other leaves.

The user's program is not run. Ranks that it chose and steps that it counted stay what they are, as they do in a
derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._autodiff.differences import derivative_and_error
from unspool._autodiff.loops.tangent_step import random_direction
from unspool._autodiff.sweeps.substitution import substitute
from unspool._engine.default import default_engine
from unspool._ops.leaf import tensor

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# The first step of differences, relative to the variables, and how often it is halved at most.
_STEP = 2.0**-8
_LEVELS = 7

# Differences are good enough when their error is below this much of the derivative.
_ACCURACY = 1e-9


class Recipe:
    """A scalar loss as a function of the values of its variables."""

    def __init__(self, loss: Tensor, variables: Sequence[Tensor]) -> None:
        self._loss, self._variables = loss, variables
        self._values = default_engine().evaluate(variables)
        self.evaluations = 0

    def __call__(self, arrays: Sequence[Any]) -> float:
        """Return the loss for other values."""
        leaves = [tensor(array) for array in arrays]
        (image,) = substitute([self._loss], self._variables, leaves, same_values=False)
        self.evaluations += 1
        return float(np.real(default_engine().evaluate([image])[0]))

    def direction(self, seed: int) -> list[Any]:
        """Return a random direction of the variables."""
        found: list[Any] = random_direction(self._values, seed)
        return found

    def slope(self, direction: Sequence[Any]) -> tuple[float, float]:
        """Return the derivative along a direction by differences, and its estimated error."""

        def along(at: Any) -> Any:
            moved = [value + at[0] * move for value, move in zip(self._values, direction, strict=True)]
            return np.array([self(moved)])

        value, error = derivative_and_error(
            along, np.zeros(1), np.ones(1), step=_STEP, rtol=_ACCURACY, atol=0.0, levels=_LEVELS
        )
        return float(value[0]), float(error[0])
