"""Workloads for the tests of the benchmark suite: some that are right and some that go wrong, in NumPy only.

All sum the cubes of the same numbers. Processes of the suite import this module by name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.suite.workload import Form, Outcome, Reference, Workload, outcome


def problem(n: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(1.0, 2.0, n)


def cubes(numbers: np.ndarray, factor: float = 1.0) -> Callable[[], Outcome]:
    return lambda: outcome((numbers**3).sum(), factor * 3 * numbers**2, 1)


def printing(numbers: np.ndarray) -> Callable[[], Outcome]:
    print("a library that talks")
    return cubes(numbers)


def raising(numbers: np.ndarray) -> Callable[[], Outcome]:
    def run() -> Outcome:
        raise ArithmeticError("no rule for cubes")

    return run


def exact(numbers: np.ndarray) -> Reference:
    return Reference(float((numbers**3).sum()), 3 * numbers**2, 1e-12)


RIGHT = Form("by hand", "numpy", cubes, "limit")
OURS = Form("ours", "numpy", printing, "ours")
NAN = Form("a peer with NaN", "numpy", partial(cubes, factor=float("nan")), "peer")
WRONG = Form("a peer that is wrong", "numpy", partial(cubes, factor=1.001), "peer", flawed=True)
FAILING = Form("a peer that raises", "numpy", raising, "peer")
UNABLE = Form("a peer that cannot", "numpy", raising, "peer", reason="it only knows squares")


def workload(name: str, *forms: Form, **settings: Any) -> Workload:
    sizes = {"small": {"n": 5}, "medium": {"n": 50}}
    return Workload("B0", "cubes", sizes, problem, forms, where=f"tests.bench.made_up:{name}", **settings)


SOUND = workload("SOUND", OURS, RIGHT, NAN, WRONG, FAILING, UNABLE, reference=exact)
DISAGREEING = workload("DISAGREEING", RIGHT, Form("a peer", "numpy", partial(cubes, factor=1 + 1e-7), "peer"))
OURS_WRONG = workload("OURS_WRONG", Form("ours", "numpy", partial(cubes, factor=2.0), "ours"), reference=exact)
OURS_NAN = workload("OURS_NAN", Form("ours", "numpy", partial(cubes, factor=float("nan")), "ours"))
OURS_FAILING = workload("OURS_FAILING", Form("ours", "numpy", raising, "ours"))
