"""Whether a step of a long loop costs what one of a short loop does, where gradients are taken in every step.

Loops that only read their loss and differentiate it in every step, and loops whose states are all differentiated. Each
runs with some steps and with four times as many, in turn, with the gradient through the whole loop. What is compared is
processor time for a step, the least of the rounds: a walk over the whole history in every step would make it grow with
the number of steps.

    python bench/gradient_in_loop.py                 the table, and the bars it is held to
    python bench/gradient_in_loop.py --json out.json the numbers as well
    python bench/gradient_in_loop.py --quick         a short run that checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import harness
from harness import ONE_THREAD, Bar, participants

os.environ.update(ONE_THREAD)

import numpy as np

import unspool as us

STEPS = 250
TIMES = 4
ROUNDS = 5
MOST_GROWTH = 1.2

DATA = np.cos(np.arange(256.0)).reshape(32, 8)
TARGET = np.sin(np.arange(32.0))
MATRIX = 0.3 * np.sin(np.arange(144.0)).reshape(12, 12)


def residual(w: us.Tensor) -> us.Tensor:
    """Return the loss that is descended."""
    return us.mean(us.tanh(DATA @ w - TARGET) ** 2)


def descend(steps: int, slope: Callable[[us.Tensor], tuple[us.Tensor, us.Tensor]]) -> Any:
    """Return the derivative of the last loss with respect to the learning rate and the start."""
    rate, start = us.tensor(0.05), us.tensor(0.1 * np.arange(8.0))
    w = start
    for _ in range(steps):
        loss, gradient = slope(w)
        w = w - rate * gradient
        if float(loss) < 0:
            break
    return us.eval(residual(w).grad([rate, start]))


def by_grad(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Return the loss and its gradient."""
    loss = residual(w)
    return loss, loss.grad(w)


def by_cotangents(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Return the loss and its gradient, by another name."""
    loss = residual(w)
    return loss, us.cotangents(loss, [w])[0]


def all_states(steps: int, ask: Callable[[us.Tensor, list[us.Tensor]], Any]) -> Any:
    """Return the derivatives of a loss with respect to every state of a loop."""
    a, x = us.tensor(MATRIX), us.tensor(0.1 * np.arange(12.0))
    states = []
    for _ in range(steps):
        x = us.tanh(a @ x) + 0.1
        states.append(x)
        if float(us.sum(x)) > 1e9:
            break
    return us.eval(ask(us.sum(x * x), states))


LOOPS: dict[str, Callable[[int], Any]] = {
    "loss.grad(w) in every step": lambda steps: descend(steps, by_grad),
    "us.value_and_grad in every step": lambda steps: descend(steps, us.value_and_grad(residual)),
    "us.cotangents in every step": lambda steps: descend(steps, by_cotangents),
    "loss.grad of every state": lambda steps: all_states(steps, us.Tensor.grad),
    "us.cotangents of every state": lambda steps: all_states(steps, us.cotangents),
}


def microseconds(loop: Callable[[int], Any], steps: int) -> float:
    """Return the processor time of a step."""
    start = time.process_time()
    loop(steps)
    return (time.process_time() - start) / steps * 1e6


def measure(loop: Callable[[int], Any], steps: int, rounds: int) -> tuple[float, float]:
    """Return the least time of a step in a short loop and in a long one."""
    microseconds(loop, steps)  # what happens once: deriving rules, compiling plans
    pairs = [(microseconds(loop, steps), microseconds(loop, TIMES * steps)) for _ in range(rounds)]
    return min(short for short, _ in pairs), min(long for _, long in pairs)


def main() -> int:
    """Measure, print and decide."""
    options = harness.options(__doc__.splitlines()[0])
    participants({"unspool": "unspool"})
    steps, rounds = (50, 1) if options.quick else (STEPS, ROUNDS)
    print(f"\n{'microseconds a step':<36}{steps:>8}{TIMES * steps:>8} steps   growth")
    found: dict[str, tuple[float, float]] = {}
    for name, loop in LOOPS.items():
        short, long = found[name] = measure(loop, steps, rounds)
        print(f"{name:<36}{short:>8.0f}{long:>8.0f}{long / short:>15.2f}", flush=True)
    print()
    if options.json:
        harness.write(options.json, ["unspool"], {"microseconds": found})
    if options.quick:
        return 0
    return harness.decide(Bar(name, long / short, MOST_GROWTH, "×") for name, (short, long) in found.items())


if __name__ == "__main__":
    sys.exit(main())
