"""Sample inputs for every op of the registry, one module per family.

A family module has ``SAMPLES``, a list of `Sample`. The registry test runs every sample through evaluation and all
derivative checks, on contiguous, strided and reversed memory and in single precision; an op without a sample fails it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Sample:
    """One use of an op: a function of array arguments whose graph contains the op.

    ``function`` takes tensors and builds the result with unspool; ``reference`` takes NumPy arrays and computes it with
    NumPy or SciPy. ``order`` is the highest derivative that is checked; 0 for results that have none. ``exact`` says
    that the op makes sense on rationals, so that its rules are also checked without rounding.
    """

    op: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    reference: Callable[..., Any]
    order: int = 2
    exact: bool = False
    label: str = ""

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, np.shape(a))) or "scalar" for a in self.args)
        kinds = "".join(sorted({np.asarray(a).dtype.kind for a in self.args}))
        return f"{self.op}-{self.label or shapes}-{kinds}"


def rng(*seed: int) -> np.random.Generator:
    """Return a generator for sample data: the same numbers every time."""
    return np.random.default_rng([*seed, 20])


def real(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Any:
    """Return random reals in an interval."""
    return rng(seed, *shape).uniform(low, high, shape)


def complex_(*shape: int, seed: int = 0) -> Any:
    """Return random complex numbers."""
    generator = rng(seed, *shape, 1)
    return generator.uniform(-2, 2, shape) + 1j * generator.uniform(-2, 2, shape)


def all_samples() -> list[Sample]:
    """Return the samples of every family module in this package."""
    found: list[Sample] = []
    for module in pkgutil.iter_modules(__path__):
        found.extend(importlib.import_module(f"{__name__}.{module.name}").SAMPLES)
    return found
