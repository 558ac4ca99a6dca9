"""What the tests of traced functions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).uniform(0.5, 1.5, size=shape)


def counted(function: Callable[..., Any]) -> tuple[Any, list[int]]:
    """Return the fragment of a function, and a list that grows with each run of the function."""
    runs: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        runs.append(1)
        return function(*args, **kwargs)

    return us.fragment(counting), runs
