"""What it costs to be watched: a line of progress, and a profile, on loops of different kinds and their gradients.

The line is drawn on a terminal that goes nowhere, as often as on a real one. Rounds are interleaved: without, with
progress, with a profile, in turn. Processor time of the whole process, drawing included; the least of all rounds. The
column "drawing" is the processor time of the thread that draws, which does not depend on what else the machine does;
"noise" is how far two series without anything are apart, which does.

    python bench/watching.py                the table, and the bar it is held to
    python bench/watching.py --rounds 3

Exits with 1 if drawing takes 1 % or more, or if progress does beyond the noise. A profile has no bar: what it adds is
in the table.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rich.live import Live

import unspool as us

# Progress may take this much of the processor time.
MOST = 0.01


def main() -> None:
    """Print the table; exit with 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    missed = []
    print(f"{'loop and gradient':<38}{'alone':>10}{'noise':>11}{'progress':>12}{'drawing':>11}{'profile':>11}")
    for name, loop in LOOPS.items():
        (first, second, shown, measured), drawing = measure(loop, chosen.rounds)
        alone = min(first, second)
        noise = max(first, second) / alone - 1
        print(
            f"{name:<38}{alone:>8.2f} s{100 * noise:>9.2f} %{100 * (shown / alone - 1):>+10.2f} %"
            f"{100 * drawing / alone:>9.2f} %{measured / alone:>9.2f} ×"
        )
        if drawing / alone >= MOST or shown / alone - 1 - noise >= MOST:
            missed.append(name)
    print(f"bar: progress below {100 * MOST:g} %: {'missed by ' + ', '.join(missed) if missed else 'held'}")
    sys.exit(bool(missed))


def measure(loop: Callable[[], Any], rounds: int) -> tuple[list[float], float]:
    """Return the least times of a loop alone, again, with progress and with a profile; and the time of drawing."""
    os.environ["COLUMNS"] = "100"
    drawing = Drawing()
    ways: list[Callable[[], Any]] = [nullcontext, nullcontext, lambda: us.progress(file=Terminal()), us.profile]
    least = [float("inf")] * len(ways)
    loop()
    for _ in range(rounds):
        for i, way in enumerate(ways):
            began = time.process_time()
            with way():
                loop()
            least[i] = min(least[i], time.process_time() - began)
    return least, drawing.seconds / rounds


class Terminal(io.StringIO):
    """A terminal that goes nowhere."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


class Drawing:
    """Adds up the processor time of drawing lines."""

    def __init__(self) -> None:
        self.seconds = 0.0
        draw = Live.refresh if not hasattr(Live.refresh, "drawing") else Live.refresh.drawing

        def refresh(live: Live) -> None:
            began = time.thread_time()
            draw(live)
            self.seconds += time.thread_time() - began

        refresh.drawing = draw  # type: ignore[attr-defined]
        Live.refresh = refresh  # type: ignore[method-assign]


def plain(size: int, steps: int) -> Callable[[], Any]:
    """Return a plain loop of matrix products that reads a value in each step, and its gradient."""
    data = np.eye(size) * 0.5

    def loop() -> Any:
        A, x = us.tensor(data), us.ones((size, size))
        for _ in range(steps):
            x = us.tanh(A @ x) + 1.0
            float(x[0, 0])
        return us.sum(x).grad(A).eval()

    return loop


def native(size: int, steps: int) -> Callable[[], Any]:
    """Return a loop that runs in C, and its gradient."""
    data = np.linspace(0.1, 1.0, size)

    def loop() -> Any:
        x = us.tensor(data)
        y, _ = us.iterate(lambda y: us.cos(y) + 0.1 * x, x, max_steps=steps)
        return us.sum(y).grad(x).eval()

    return loop


LOOPS = {
    "plain, 8 × 8, 20,000 steps": plain(8, 20_000),
    "plain, 200 × 200, 500 steps": plain(200, 500),
    "iterate, 8 numbers, 600,000 steps": native(8, 600_000),
    "iterate, 2,000 numbers, 20,000 steps": native(2_000, 20_000),
}


if __name__ == "__main__":
    main()
