"""What a second derivative of a plain loop costs beside PyTorch: the gradient of a product with the gradient.

The loop reads a number in every step. Its gradient is multiplied with a matrix, and that is differentiated again, as in
a product with the Hessian. Both libraries run in turn, with two lengths; what is compared is processor time for a step
of loop, gradient and second derivative together, the least of the rounds.

    python bench/second_order.py                 the table, and the bars it is held to
    python bench/second_order.py --json out.json the numbers as well
    python bench/second_order.py --quick         a short run that checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import harness
from harness import ONE_THREAD, Bar, participants

os.environ.update(ONE_THREAD)

import numpy as np

import unspool as us

STEPS = (200, 800)
ROUNDS = 5

# Both round, along loops of hundreds of steps.
TOLERANCE = 1e-8


def matrix(n: int) -> np.ndarray:
    """Return a matrix of a norm below 1."""
    return 0.4 * np.eye(n) + 0.3 * np.sin(np.arange(float(n * n))).reshape(n, n) / n


def ours(steps: int, n: int) -> Any:
    """Return the product of the Hessian with the matrix, in the matrix."""
    a, x = us.tensor(matrix(n)), us.ones(n)
    for _ in range(steps):
        x = us.tanh(a @ x + 0.1)
        if float(x[0]) > 1e9:
            break
    gradient = us.sum(x * a[0]).grad(a)
    return us.sum(gradient * matrix(n)).grad(a).eval()


def theirs(torch: Any, steps: int, n: int) -> Any:
    """Return the same by PyTorch."""
    a, x = torch.tensor(matrix(n), requires_grad=True), torch.ones(n, dtype=torch.float64)
    for _ in range(steps):
        x = torch.tanh(a @ x + 0.1)
        if x[0].item() > 1e9:
            break
    (gradient,) = torch.autograd.grad((x * a[0]).sum(), a, create_graph=True)
    (found,) = torch.autograd.grad((gradient * torch.tensor(matrix(n))).sum(), a)
    return found.numpy()


def microseconds(run: Callable[[], Any], steps: int) -> float:
    """Return the processor time of a step."""
    start = time.process_time()
    run()
    return (time.process_time() - start) / steps * 1e6


def main() -> int:
    """Measure, print and decide."""
    options = harness.options(__doc__.splitlines()[0])
    packages = participants({"unspool": "unspool", "PyTorch": "torch"})
    lengths, rounds = ((20, 40), 1) if options.quick else (STEPS, ROUNDS)
    torch: Any = None
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(1)
    print(f"\n{'microseconds a step':<24}{'unspool':>10}{'PyTorch':>10}{'ratio':>8}")
    found: dict[str, list[float]] = {}
    bars = []
    for n in (8, 32):
        for steps in lengths:
            runs: list[Callable[[], Any]] = [partial(ours, steps, n)]
            if torch is not None:
                runs.append(partial(theirs, torch, steps, n))
                np.testing.assert_allclose(runs[0](), runs[1](), rtol=TOLERANCE, atol=TOLERANCE)
            rows = [[microseconds(run, steps) for run in runs] for _ in range(rounds + 1)]
            least = found[f"{n} numbers, {steps} steps"] = [min(column) for column in zip(*rows[1:], strict=True)]
            name = f"{n} numbers, {steps} steps"
            told = "".join(f"{time:>10.1f}" for time in least)
            print(f"{name:<24}{told}" + (f"{least[0] / least[1]:>8.2f}" if torch else ""), flush=True)
            if torch is not None:
                bars.append(Bar(f"{name}, over PyTorch", least[0] / least[1], 1.0, "×"))
    print()
    if options.json:
        harness.write(options.json, packages, {"microseconds": found})
    return 0 if options.quick else harness.decide(bars)


if __name__ == "__main__":
    sys.exit(main())
