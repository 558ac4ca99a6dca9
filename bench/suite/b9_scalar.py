"""B9: a loop whose arithmetic is next to nothing, y ← y + 1e-6·y·y on 8 numbers, so that it shows what a step costs.

One number of y is read in every step, as a stopping test would; the gradient is that of sum(y) with respect to the
start. The loops are those of ``bench/forms.py``. A scan of JAX cannot stop early: what it looks at comes out
afterwards. JAX without ``jit``, which is what a Python loop that looks at values has, and the loop unrolled under
``jit``, take part in the smallest size only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench import forms
from bench.suite.workload import Bar, Form, Outcome, Reference, Workload, outcome

NUMBERS = 8

Run = Callable[[], Outcome]


class Problem(NamedTuple):
    """Where to start, and how many steps to make."""

    start: np.ndarray
    steps: int


def problem(steps: int) -> Problem:
    """Return eight numbers, and the steps."""
    return Problem(0.1 * np.arange(1.0, NUMBERS + 1), steps)


def known(problem: Problem) -> Reference:
    """Return the limit of ever smaller steps: y' = 1e-6·y² takes y to y/(1 − 1e-6·N·y)."""
    shrunk = 1.0 - forms.RATE * problem.steps * problem.start
    # A step of Euler's method is off by its square.
    return Reference(float(np.sum(problem.start / shrunk)), shrunk**-2, 1e-5)


def growth(make: Callable[[], forms.Loops]) -> Callable[[Problem], Run]:
    """Return the form that runs a loop of ``bench/forms.py``."""

    def form(problem: Problem) -> Run:
        loop = make()["growth"]

        def run() -> Outcome:
            y, gradient = loop(problem.start, problem.steps)
            return outcome(np.sum(y), gradient, problem.steps)

        return run

    return form


def jax_unrolled(problem: Problem) -> Run:
    """JAX, compiled as one long expression."""
    import jax

    def total(y: Any) -> Any:
        for _ in range(problem.steps):
            y = y + forms.RATE * y * y
        return y.sum()

    return _compiled(problem, jax.jit(jax.value_and_grad(total)))


def equinox_loop(problem: Problem) -> Run:
    """Equinox: a while loop that could stop, with checkpoints for the most steps there may be."""
    import equinox.internal as eqxi
    import jax

    def total(start: Any) -> Any:
        y = eqxi.while_loop(
            lambda y: y[0] > 0.0,
            lambda y: y + forms.RATE * y * y,
            start,
            max_steps=problem.steps,
            kind="checkpointed",
        )
        return y.sum()

    return _compiled(problem, jax.jit(jax.value_and_grad(total)))


def _compiled(problem: Problem, function: Any) -> Run:
    import jax

    start = jax.device_put(problem.start)

    def run() -> Outcome:
        value, gradient = function(start)
        return outcome(value, gradient, problem.steps)

    return run


LONG = "one call takes longer than all other forms together"
COMPILING = "compiling takes time that grows faster than the number of steps"

FORMS = (
    Form("unspool, plain", "unspool", growth(forms.plain), "ours"),
    Form("unspool, fragment", "unspool", growth(forms.fragment), "ours"),
    Form("unspool, iterate", "unspool", growth(forms.iterate), "ours"),
    Form("PyTorch", "torch", growth(forms.torch_eager), "peer"),
    Form("JAX scan", "jax", growth(forms.jax_scan), "peer"),
    Form("JAX unrolled", "jax", jax_unrolled, "peer", limits={"medium": COMPILING, "large": COMPILING}),
    Form("JAX eager", "jax", growth(forms.jax_eager), "peer", limits={"medium": LONG, "large": LONG}),
    Form("Equinox", "equinox", equinox_loop, "peer"),
    Form("autograd", "autograd", growth(forms.autograd_boxes), "peer"),
    Form("by hand", "numpy", growth(forms.hand), "limit"),
)

WORKLOAD = Workload(
    key="B9",
    title="a loop on eight numbers",
    sizes={"small": {"steps": 1_000}, "medium": {"steps": 10_000}, "large": {"steps": 100_000}},
    problem=problem,
    forms=FORMS,
    reference=known,
    bars=(Bar("PyTorch", 1 / 1.5, ours="unspool, plain"),),
)
