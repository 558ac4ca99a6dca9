"""Workloads and rows for the tests of the benchmark suite: some that are right and some that go wrong, in NumPy only.

All workloads sum the cubes of the same numbers. Processes of the suite import this module by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench.suite.workload import Bar, Form, Outcome, Reference, Row, Special, Workload, outcome


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


def sleeping(numbers: np.ndarray) -> Callable[[], Outcome]:
    def run() -> Outcome:
        time.sleep(600.0)
        return cubes(numbers)()

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
SLOW = workload("SLOW", RIGHT, Form("ours", "numpy", sleeping, "ours"), Form("a peer", "numpy", sleeping, "peer"))


# --- rows -------------------------------------------------------------------------------------------------------------


def row(form: str, kind: Any, seconds: float | None = None, **settings: Any) -> Row:
    return Row("B0", form, "numpy", kind, seconds=seconds, low=seconds, high=seconds, **settings)


def special(*bars: Bar, **settings: Any) -> Special:
    return Special("B0", "made up", run=lambda options: [], bars=bars, **settings)


ROWS = [
    row("ours, slow", "ours", 6.0, live=1_000_000),
    row("ours, fast", "ours", 2.0, live=3_000_000, resident=8_000_000),
    row("PyTorch", "peer", 8.0, live=30_000_000, resident=50_000_000),
    row("JAX", "peer", 4.0, resident=80_000_000),
    row("autograd", "peer", state="NaN"),
    row("Equinox", "peer", state="slow", note="no answer after 50 s"),
    row("TensorFlow", "peer", state="missing"),
    row("by hand", "limit", 1.6),
]

# Ours is a straight line through zero; PyTorch gets slower towards the end.
CURVE = [
    row(form, kind, factor * x, case="loop", x=x, live=int(1e5 * x))
    for x in (10.0, 30.0, 100.0)
    for form, kind, factor in (("ours", "ours", 1.0), ("PyTorch", "peer", 2.0 if x < 50 else 4.0))
]
