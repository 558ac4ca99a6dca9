"""What is measured of a kind: its error, its time beside PyTorch, how that grows, and what less memory does to it."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import Data, Kind, answer, answer_of_torch
from unspool.errors import BudgetError

# A loop of so many times the steps has to take so many times the time.
LONGER = 4

# A loop that takes more than these seconds is not run with more steps.
PATIENCE = 4.0

# What nothing here reaches, and the part of what a loop takes by itself that large arrays get.
PLENTY = "64GB"
SMALL_SHARE = 8

# Steps of a loop over large arrays.
LARGE_STEPS = 100

# Numbers below that are zero: the derivative in what a loop has long forgotten.
NOTHING = 1e-200


@dataclass(frozen=True)
class Budgeted:
    """A loop and its gradient in a part of the memory that they take by themselves; ``refusal`` if they were refused.

    ``factor`` is how often a step runs, ``optimum`` the least that any schedule needs, both None if not known; ``same``
    is whether every bit is that of the run without a limit.
    """

    budget: int
    peak: int | None = None
    factor: float | None = None
    optimum: float | None = None
    same: bool = True
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """Whether the peak kept to the budget."""
        return self.peak is None or self.peak <= self.budget

    def __str__(self) -> str:
        if self.refusal:
            return f"refused: {self.refusal}"
        beside = "" if self.optimum is None else f" of {self.optimum:.2f}"
        told = "–" if self.factor is None else f"{self.factor:.2f}{beside}"
        return told + ("" if self.same else " BITS") + ("" if self.fits else " OVER")


@dataclass(frozen=True)
class Found:
    """What was measured of a kind: times are microseconds of processor time for a step; None is not measured."""

    kind: str
    steps: int
    error: float | None
    ours: float
    theirs: float | None
    growth: float | None
    half: Budgeted | None = None
    eighth: Budgeted | None = None

    @property
    def ratio(self) -> float | None:
        """Our time divided by that of PyTorch."""
        return None if self.theirs is None else self.ours / self.theirs


def measure(kind: Kind, steps: int, rounds: int, budgets: bool = True) -> Found:
    """Measure a kind, beside PyTorch if that is installed."""
    steps = min(steps, kind.most)
    data = kind.setup(steps)
    first = answer(kind, steps, data)
    forms: list[Callable[[], Any]] = [lambda: answer(kind, steps, data)]
    error = None
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
        forms.append(lambda: answer_of_torch(kind, steps, data))
        error = difference(first, forms[1]())
    times = interleaved(forms, steps, rounds)
    return Found(
        kind.name,
        steps,
        error,
        times[0],
        times[1] if len(times) > 1 else None,
        growth(kind, steps, data, rounds) if 1e-6 * times[0] * steps < PATIENCE / LONGER else None,
        within(kind, steps, data, 2) if budgets else None,
        within_eighth(kind, steps) if budgets else None,
    )


def difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """Return the largest error of a value or a gradient, relative to its largest entry.

    >>> difference([np.array(1.0), np.array([2.0, 0.5])], [np.array(1.0), np.array([2.0, 1.0])])
    0.25
    """
    largest = [float(np.max(np.abs(b), initial=0.0)) for b in theirs]
    pairs = zip(ours, theirs, largest, strict=True)
    return max((float(np.max(np.abs(a - b))) / size for a, b, size in pairs if size > NOTHING), default=0.0)


# --- time -------------------------------------------------------------------------------------------------------------


def microseconds(run: Callable[[], Any], steps: int) -> float:
    """Return the processor time of a step."""
    start = time.process_time()
    run()
    return (time.process_time() - start) / steps * 1e6


def interleaved(runs: list[Callable[[], Any]], steps: int, rounds: int) -> list[float]:
    """Return the least time of a step of several loops that take turns."""
    times = [[microseconds(run, steps) for run in runs] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def growth(kind: Kind, steps: int, data: Data, rounds: int) -> float:
    """Return the time of a step in a loop of four times the steps, over that of a step in the loop."""
    many = kind.setup(LONGER * steps)
    pairs = [
        (
            microseconds(lambda: answer(kind, steps, data), steps),
            microseconds(lambda: answer(kind, LONGER * steps, many), LONGER * steps),
        )
        for _ in range(min(rounds, 3))
    ]
    return min(long for _, long in pairs) / min(short for short, _ in pairs)


# --- memory -----------------------------------------------------------------------------------------------------------


def within(kind: Kind, steps: int, data: Data, share: int, least: int | None = None) -> Budgeted:
    """Run a loop and its gradient in a part of what they take by themselves.

    With ``least`` it is a part of what is beside the results, and these, but no less than that and these.
    """
    everything, free = taken_by(kind, steps, data)
    results = 0 if least is None else bytes_of(free)
    budget = max(1, results + max((everything - results) // share, least or 0))
    try:
        with us.memory(budget) as memory:
            tight = answer(kind, steps, data)
            report = memory.report()
    except BudgetError as refusal:
        return Budgeted(budget, refusal=f"needs {refusal.least / everything:.2f} of what keeping everything takes")
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(free, tight, strict=True))
    return Budgeted(budget, report.peak, report.factor, report.optimal_factor, same)


def taken_by(kind: Kind, steps: int, data: Data) -> tuple[int, list[np.ndarray]]:
    """Return the most bytes that a loop and its gradient take by themselves, and their results."""
    with us.memory(PLENTY) as memory:
        found = answer(kind, steps, data)
        return memory.report().peak or 0, found


def bytes_of(arrays: list[np.ndarray]) -> int:
    """Return the bytes of some arrays.

    >>> bytes_of([np.zeros(3), np.array(1.0)])
    32
    """
    return sum(array.nbytes for array in arrays)


def within_eighth(kind: Kind, steps: int) -> Budgeted | None:
    """Run a loop over arrays of 64×64 in an eighth of the memory, if the kind has a size.

    Results are the user's, and a loop of two steps has nothing that could run again: what it takes beside its results
    is the least that is asked for.
    """
    if kind.large is None:
        return None
    two, results = taken_by(kind, 2, kind.setup(2, **kind.large))
    steps = min(steps, kind.most, LARGE_STEPS)
    return within(kind, steps, kind.setup(steps, **kind.large), SMALL_SHARE, max(0, two - bytes_of(results)))


def calls_in_a_step(kind: Kind, steps: int) -> float:
    """Return how many calls of Python functions a step takes in half of the memory, arrays being of 64×64."""
    data = kind.setup(steps, **(kind.large or {}))
    with us.memory(PLENTY) as memory:
        answer(kind, steps, data)
        budget = memory.report().peak // 2
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    with us.memory(budget):
        sys.setprofile(count)
        try:
            answer(kind, steps, data)
        finally:
            sys.setprofile(None)
    return calls / steps
