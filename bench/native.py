"""What native programs cost: steps and gradients beside generated Python and JAX's compiled scan, and what is fixed.

The loops are a gradient step on eight numbers and power iteration with n×n matrices, 10⁴ steps each, and three of the
suite: log-Sinkhorn, CP-ALS and Newton–Schulz. Then what does not depend on the number of steps: a call of
``us.iterate`` with its gradient, preparing a program, a first gradient in a fresh process, two threads beside one.
Rounds are interleaved; processor time, the least of all rounds. JAX is measured after it has compiled. Gradients are
compared before anything is timed. The bar on a call goes up with the yardstick of ``overhead.py``, for a slower or busy
processor. Two threads are timed by the clock, and need a machine that is otherwise idle.

    python bench/native.py                the tables, and the bars they are held to
    python bench/native.py --rounds 3

Exits with 1 if a bar is missed. Needs jax (and equinox, autograd) for their columns and bars.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

import unspool as us
from unspool._engine.backends import native
from unspool._engine.plan import make_plan
from unspool._fragments.fragment import capture

sys.path.insert(0, str(Path(__file__).parent.parent))
from overhead import USUAL_YARDSTICK, make_plain

from bench.harness import Bar, decide
from bench.suite import b2_sinkhorn, b3_cp_als, b8_newton_schulz

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


# --- loops of the suite -----------------------------------------------------------------------------------------------


def suite_bars(rounds: int) -> list[Bar]:
    """Return the time of loops of the suite beside that of the best compiled ones."""
    if jax is None:
        return []
    transport, parts = b2_sinkhorn.problem(400), b3_cp_als.problem(60, 8, 30)
    polar = b8_newton_schulz.polar_problem(64)
    masked = b2_sinkhorn.masked_scan
    cases: list[tuple[str, Callable[[], Any], list[Callable[[], Any]], float]] = [
        (
            "log-Sinkhorn 400²",
            b2_sinkhorn.ours(transport, "iterate"),
            [
                b2_sinkhorn.jax_loop(transport, form)
                for form in ("checkpoint", *(["equinox"] if importlib.util.find_spec("equinox") else []))
            ],
            1.1,
        ),
        ("CP-ALS, 60³, rank 8", b3_cp_als.ours(parts, "iterate"), [b3_cp_als.jax_loop(parts, "scan")], 1.0),
        (
            "Newton–Schulz, 64×64",
            b8_newton_schulz.polar_iterate(polar),
            [b8_newton_schulz.polar_jax(polar, masked)],
            1.0,
        ),
    ]
    found = []
    for name, ours, theirs, most in cases:
        runs = [ours, *theirs]
        least = [float("inf")] * len(runs)
        for run in runs:
            run()
        for _ in range(rounds):
            least = [min(t, seconds(run)) for t, run in zip(least, runs, strict=True)]
        print(f"{name:32}{least[0] * 1e3:>9.1f} ms{min(least[1:]) * 1e3:>9.1f} ms by the best of JAX", flush=True)
        found.append(Bar(f"{name}, beside the best of JAX", least[0] / min(least[1:]), most, "×"))
    return found


# --- what is fixed ----------------------------------------------------------------------------------------------------


def least_of(run: Callable[[], Any], rounds: int) -> float:
    """Return the least time of a call, by the clock: processor time is counted in coarser steps."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
    return least


def fixed_cost() -> Bar:
    """Return what a call of `us.iterate` with its gradient costs that makes one step and is known."""
    A, x = us.tensor(np.eye(8) + 0.1 * np.random.default_rng(0).normal(size=(8, 8))), us.tensor(np.ones(8))

    def run() -> Any:
        y, _ = us.iterate(lambda s: (A @ s) / us.linalg.norm(A @ s), x, max_steps=1)
        return us.eval(us.sum(y * y * np.arange(1.0, 9.0)).grad([A, x]))

    taken, yardstick = float("inf"), float("inf")
    for _ in range(20):
        taken, yardstick = min(taken, least_of(run, 100)), min(yardstick, make_plain(1000))
    slower = max(1.0, 1e6 * yardstick / USUAL_YARDSTICK)
    return Bar("a call of iterate with its gradient, known", taken * 1e6, 30.0 * slower, "µs")


def preparing() -> Bar:
    """Return what it takes to make a program of 20 ops: shapes, parameters, and the table of instructions."""
    A, x = us.tensor(np.eye(16)), us.tensor(np.ones(16))
    y = x
    for i in range(4):
        z = us.tanh(A @ y)
        y = y + (0.1 + i) * z / us.linalg.norm(z)
    captured = capture([x, A], [y])

    def prepare() -> None:
        make_plan(captured.fragment, ((16,), (16, 16))).prepare()

    return Bar(f"preparing a program of {len(captured.fragment)} ops", least_of(prepare, 20) * 1e3, 5.0, "ms")


FIRST = {
    "unspool": "import numpy as np, unspool as us; x = us.tensor(np.ones(3)); us.sum(us.sin(x) ** 2).grad(x).eval()",
    "unspool, a norm": (
        "import numpy as np, unspool as us; x = us.tensor(np.ones(3)); us.linalg.norm(us.sin(x)).grad(x).eval()"
    ),
    "autograd": (
        "import autograd.numpy as np; from autograd import grad; grad(lambda x: np.sum(np.sin(x) ** 2))(np.ones(3))"
    ),
}


def first_gradients(rounds: int) -> list[Bar]:
    """Return the processor time of fresh processes to their first gradient, beside that of HIPS autograd."""
    if not importlib.util.find_spec("autograd"):
        return []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    least = dict.fromkeys(FIRST, float("inf"))
    for _ in range(rounds + 1):
        for name, program in FIRST.items():
            before = _of_children()
            subprocess.run([sys.executable, "-c", program], check=True, env=environment)
            least[name] = min(least[name], _of_children() - before)
    print("first gradients: " + ", ".join(f"{name} {t * 1e3:.0f} ms" for name, t in least.items()), flush=True)
    return [
        Bar(f"a first gradient with {name}, beside autograd", least[name] / least["autograd"], 1.0, "×")
        for name in ("unspool", "unspool, a norm")
    ]


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def two_threads(rounds: int) -> Bar | None:
    """Return how long two threads with a loop each take beside one; nothing where there is one core."""
    if len(os.sched_getaffinity(0)) < 2:
        return None

    def loop_with(seed: int) -> Callable[[], Any]:
        matrix = us.tensor(np.eye(64) + 0.1 * np.random.default_rng(seed).normal(size=(64, 64)))

        def run() -> Any:
            y, _ = us.iterate(lambda s: (matrix @ s) / us.linalg.norm(matrix @ s), us.ones(64), max_steps=50_000)
            return y.eval()

        run()
        return run

    loops = [loop_with(seed) for seed in range(2)]

    def both() -> None:
        threads = [threading.Thread(target=loop) for loop in loops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    alone, together = (min(least_of(run, 1) for _ in range(rounds)) for run in (loops[0], both))
    return Bar("two threads with a loop each, beside one", together / alone, 1.2, "×")


def main() -> int:
    """Print the tables; 1 if a bar is missed."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if native.WHY_NOT is not None:
        print(f"the native backend does not run here: {native.WHY_NOT}")
        return 1
    bars: list[Bar] = []
    print(f"{'µs a step, with its gradient':32}{'native':>9}{'Python':>9}{'jax scan':>10}")
    for loop in (eight_numbers(), power_iteration(8), power_iteration(64)):
        if loop.jax is not None:
            for ours, theirs in zip(loop.ours(), loop.jax(), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
        natively, in_python, by_jax = measure(loop, given.rounds)
        line = f"{loop.name:32}{natively:>9.3f}{in_python:>9.3f}"
        if by_jax is not None:
            line += f"{by_jax:>10.3f}"
            bars.append(Bar(f"{loop.name}, beside JAX's scan", natively / by_jax, loop.most, "×"))
        print(line, flush=True)
    bars += suite_bars(given.rounds)
    bars += [fixed_cost(), preparing(), *first_gradients(given.rounds)]
    threads = two_threads(given.rounds)
    return decide(bars if threads is None else [*bars, threads])


if __name__ == "__main__":
    sys.exit(main())
