"""What a step of `us.iterate` and its gradient cost natively: beside generated Python, and beside JAX's compiled scan.

The loops are a gradient step on eight numbers and power iteration with n×n matrices, 10⁴ steps each. Rounds are
interleaved; processor time, the least of all rounds. JAX is measured after it has compiled. Gradients are compared
before anything is timed.

    python bench/native.py                the table, and the bars it is held to
    python bench/native.py --rounds 3

Exits with 1 if a bar is missed. Needs jax for its columns and bars.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

import unspool as us
from unspool._engine import native

try:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
except ImportError:
    jax = None

STEPS = 10_000


class Loop(NamedTuple):
    """A loop in both libraries: functions that return the gradients, and the most that ours may take of JAX's time."""

    name: str
    ours: Callable[[], Any]
    jax: Callable[[], Any] | None
    most: float


def eight_numbers() -> Loop:
    """Return a gradient step on a vector of eight."""
    generator = np.random.default_rng(0)
    a, w = generator.normal(size=8), generator.normal(size=8)
    x, start = us.tensor(a), us.tensor(w)

    def ours() -> Any:
        y, _ = us.iterate(lambda w: w - 0.01 * (us.sum(x * w) - 1.0) * x, start, max_steps=STEPS)
        return us.eval(us.sum(y * y).grad([x, start]))

    if jax is None:
        return Loop("eight numbers", ours, None, 3.0)

    def loss(a: Any, w: Any) -> Any:
        y, _ = jax.lax.scan(lambda w, _: (w - 0.01 * (jnp.sum(a * w) - 1.0) * a, None), w, None, length=STEPS)
        return jnp.sum(y * y)

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    return Loop("eight numbers", ours, lambda: jax.block_until_ready(gradient(a, w)), 3.0)


def power_iteration(n: int) -> Loop:
    """Return power iteration with a matrix of some size."""
    generator = np.random.default_rng(n)
    matrix, vector = np.eye(n) + 0.1 * generator.normal(size=(n, n)), generator.normal(size=n)
    A, x, weights = us.tensor(matrix), us.tensor(vector), np.arange(1.0, n + 1)

    def step(s: Any) -> Any:
        y = A @ s
        return y / us.linalg.norm(y)

    def ours() -> Any:
        y, _ = us.iterate(step, x, max_steps=STEPS)
        return us.eval(us.sum(y * y * weights).grad([A, x]))

    if jax is None:
        return Loop(f"power iteration, n = {n}", ours, None, 1.0)

    def loss(A: Any, x: Any) -> Any:
        def body(s: Any, _: Any) -> Any:
            y = A @ s
            return y / jnp.linalg.norm(y), None

        y, _ = jax.lax.scan(body, x, None, length=STEPS)
        return jnp.sum(y * y * weights)

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    return Loop(f"power iteration, n = {n}", ours, lambda: jax.block_until_ready(gradient(matrix, vector)), 1.0)


def seconds(function: Callable[[], Any]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(loop: Loop, rounds: int) -> tuple[float, float, float | None]:
    """Return microseconds a step: natively, as generated Python, and by JAX."""
    reason = native.WHY_NOT
    least = [float("inf")] * 3
    for in_python in (False, True):
        native.WHY_NOT = "a benchmark" if in_python else reason
        us.clear_caches()
        loop.ours()
        for _ in range(rounds):
            least[in_python] = min(least[in_python], seconds(loop.ours))
            if loop.jax is not None:
                least[2] = min(least[2], seconds(loop.jax))
    native.WHY_NOT = reason
    us.clear_caches()
    micro = [t / STEPS * 1e6 for t in least]
    return micro[0], micro[1], None if loop.jax is None else micro[2]


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if native.WHY_NOT is not None:
        print(f"the native backend does not run here: {native.WHY_NOT}")
        return 1
    missed = 0
    print(f"{'µs a step, with its gradient':32}{'native':>9}{'Python':>9}{'jax scan':>10}{'to jax':>9}")
    for loop in (eight_numbers(), power_iteration(8), power_iteration(64)):
        if loop.jax is not None:
            for ours, theirs in zip(loop.ours(), loop.jax(), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
        natively, in_python, by_jax = measure(loop, given.rounds)
        line = f"{loop.name:32}{natively:>9.3f}{in_python:>9.3f}"
        if by_jax is not None:
            ratio = natively / by_jax
            missed += ratio > loop.most
            line += f"{by_jax:>10.3f}{ratio:>7.2f} × {'pass' if ratio <= loop.most else 'MISS'} ≤ {loop.most} ×"
        print(line, flush=True)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
