"""Ensembles on a pool of two processes, and backward passes that a thread works ahead of.

Three things are measured. 64 loops that look at their values, with gradients, by `us.ensemble`: in this process, and on
two processes that are there already. The gradient of a loop of which few states are kept, `us.Checkpointed`, alone and
with a thread that makes the next record meanwhile. And the gradient of a plain loop that looks at its values, within a
memory budget, `us.memory`, alone and with a thread that recomputes the next segment meanwhile. Results have to have the
same bits.

On a machine that others use at the same time, elapsed time tells of the others. So what is held to a bar is processor
time: what one process takes, over what the busiest of two takes together with the process that asks and waits; and what
the busiest of two threads takes, over what one takes. Two cores that are free take that long. Elapsed time is shown.
Each is the best of some rounds, which take turns. Within budgets the thread has a core of its own, where the system
allows, and elapsed time is the least of all rounds. The ragged batch is in `batches.py`.

    python bench/ensembles.py                 the tables, and the bars they are held to
    python bench/ensembles.py --json out.json the numbers as well
    python bench/ensembles.py --quick         a short run that checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import harness
from harness import Bar

os.environ.update(harness.ONE_THREAD)

MEMBERS, SIZE, PROCESSES = 64, 48, 2
LENGTHS = ((16, "200kB"), (64, "1MB"), (128, "1MB"))
# Sides of matrices, steps, and the budget, in states.
BUDGETS = ((64, 400, 60), (128, 300, 60), (256, 200, 60), (256, 200, 120))

Measured = dict[str, Any]


# --- an ensemble of 64 ------------------------------------------------------------------------------------------------


def largest(p: Any) -> Any:
    """Return the largest eigenvalue of a matrix, by a power iteration that looks at each step."""
    import unspool as us

    a = p["a"]
    x, before = us.ones(SIZE) / SIZE**0.5, 0.0
    while True:
        y = a @ x
        value = x @ y
        x = y / us.linalg.norm(y)
        if abs(value.item() - before) < 1e-13 * before:
            return value
        before = value.item()


def matrices(count: int) -> Any:
    """Return symmetric matrices with positive entries and neighbouring eigenvalues."""
    import numpy as np

    generator = np.random.default_rng(1)
    a = generator.normal(size=(count, SIZE, SIZE))
    return {"a": a + np.swapaxes(a, 1, 2) + 40.0 * np.eye(SIZE)}


def ensemble(count: int, rounds: int) -> Measured:
    """Measure an ensemble here and on two processes."""
    import numpy as np

    import unspool as us

    given = matrices(count)
    found: dict[str, Measured] = {}
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for _ in range(rounds + 1):  # the first one is left out: processes start and compile
            for name, where in (("one", None), ("two", pool)):
                measured = _ensemble_once(us.ensemble, given, where)
                before = found.get(name)
                if before is not None and not np.array_equal(before["values"], measured["values"]):
                    raise SystemExit("the bits of an ensemble depend on who computes it")
                if before is None or "warm" not in before or measured["critical"] < before["critical"]:
                    found[name] = measured | ({} if before is None else {"warm": True})
    if not np.array_equal(found["one"]["values"], found["two"]["values"]):
        raise SystemExit("the bits of an ensemble depend on the pool")
    return {name: {k: v for k, v in one.items() if k != "values"} for name, one in found.items()}


def _ensemble_once(run: Callable[..., Any], given: Any, pool: Executor | None) -> Measured:
    begin, busy = time.perf_counter(), time.process_time()
    result = run(largest, given, pool, batch=1)
    elapsed, here = time.perf_counter() - begin, time.process_time() - busy
    result.check()
    shares = [seconds for _, seconds, _ in result.report().workers.values()]
    return {
        "elapsed": elapsed,
        "critical": here if pool is None else here + max(shares),
        "shares": [count for count, _, _ in result.report().workers.values()],
        "values": result.values,
    }


# --- records that are made ahead --------------------------------------------------------------------------------------


def reversal(size: int, memory: str, steps: int, rounds: int) -> Measured:
    """Measure the gradient of a loop with few saved states, alone and with a thread ahead."""
    import numpy as np

    import unspool as us

    generator = np.random.default_rng(0)
    matrix, start = generator.normal(size=(size, size)) / size**0.5, generator.normal(size=size)
    found: dict[str, Measured] = {}
    values: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(rounds + 1):
            for name, where in (("alone", None), ("ahead", pool)):
                a, x = us.tensor(matrix), us.tensor(start)
                y, _ = us.iterate(
                    lambda x, a=a: us.tanh(a @ x) + 0.1 * us.sin(x),
                    x,
                    max_steps=steps,
                    adjoint=us.Checkpointed(memory=memory, pool=where),
                )
                slope = us.sum(y * y).grad(a)
                measured = _timed(slope, pool, values)
                if name not in found or measured["critical"] < found[name]["critical"]:
                    found[name] = measured
    if not all(np.array_equal(value, values[0]) for value in values):
        raise SystemExit("the bits of a gradient depend on the pool")
    return found


# --- segments that are recomputed ahead -------------------------------------------------------------------------------


def segments(size: int, steps: int, states: int, rounds: int) -> Measured:
    """Measure the gradient of a plain loop within a budget, alone and with a thread ahead."""
    import numpy as np

    import unspool as us

    matrix = np.random.default_rng(0).normal(size=(size, size)) / size**0.5
    first, second = cores()
    found: dict[str, Measured] = {}
    values: list[Any] = []
    with ThreadPoolExecutor(1, initializer=stay_on, initargs=(second,)) as pool:
        pool.submit(int).result()
        stay_on(first)
        for _ in range(rounds + 1):
            for name, where in (("alone", None), ("ahead", pool)):
                a, x = us.tensor(matrix), us.ones((size, size))
                with us.memory(states * matrix.nbytes, pool=where) as scope:
                    for _ in range(steps):
                        x = us.tanh(a @ x) + 0.5 * us.sin(x)
                        if float(us.max(abs(x))) > 100:
                            break
                    slope = us.sum(x * x).grad(a)
                    measured = _timed(slope, pool, values)
                measured["evaluations"] = scope.report().evaluations / scope.report().steps
                best = found.setdefault(name, measured)
                least = min(best["elapsed"], measured["elapsed"])
                found[name] = min(best, measured, key=lambda one: float(one["critical"])) | {"elapsed": least}
        stay_on(first | second)
    if not all(np.array_equal(value, values[0]) for value in values):
        raise SystemExit("the bits of a gradient depend on the pool")
    return found


def cores() -> tuple[set[int], set[int]]:
    """Return two cores, if there are, each as a set; nothing where the system does not tell."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return set(known[:1]), set(known[1:2] or known[:1])


def stay_on(cores: set[int]) -> None:
    """Keep this thread to some cores."""
    if cores:
        os.sched_setaffinity(0, cores)


def _timed(slope: Any, pool: Executor, values: list[Any]) -> Measured:
    """Evaluate a gradient; return what that took, in this thread and in that of a pool."""
    other = pool.submit(time.thread_time).result()
    begin, busy = time.perf_counter(), time.thread_time()
    values.append(slope.eval())
    elapsed, here = time.perf_counter() - begin, time.thread_time() - busy
    there = pool.submit(time.thread_time).result() - other
    return {"elapsed": elapsed, "here": here, "there": there, "critical": max(here, there)}


# --- the tables -------------------------------------------------------------------------------------------------------


def main() -> int:
    """Measure, print and decide."""
    options = harness.options(__doc__.splitlines()[0])
    quick = options.quick
    print(", ".join(f"{package} {version}" for package, version in harness.versions(["unspool"]).items()))
    members, rounds, steps = (4, 1, 200) if quick else (MEMBERS, 6, 20_000)
    found = ensemble(members, rounds)
    one, two = found["one"], found["two"]
    gain = one["critical"] / two["critical"]
    print(
        f"\n{members} loops with gradients, milliseconds\n{'':>16}{'processor':>12}{'elapsed':>10}   members of workers"
    )
    for name, row in (("one process", one), ("two processes", two)):
        print(f"{name:>16}{1e3 * row['critical']:>12.0f}{1e3 * row['elapsed']:>10.0f}   {row['shares']}")
    bars = [Bar(f"ensemble of {members}: one process over two", gain, 1.7, "×", least=True)]
    numbers: dict[str, Any] = {"ensemble": found}
    print(f"\nGradient of {steps} steps with few states, milliseconds")
    print(f"{'numbers':>8}{'memory':>8}{'alone':>8}{'ahead':>8}{'(sweep':>9}{'records)':>9}{'elapsed':>14}")
    for size, memory in LENGTHS[: 1 if quick else None]:
        measured = reversal(size, memory, steps, rounds)
        alone, ahead = measured["alone"], measured["ahead"]
        print(
            f"{size:>8}{memory:>8}{1e3 * alone['here']:>8.1f}{1e3 * ahead['critical']:>8.1f}{1e3 * ahead['here']:>9.1f}"
            f"{1e3 * ahead['there']:>9.1f}{1e3 * alone['elapsed']:>7.0f}{1e3 * ahead['elapsed']:>7.0f}",
            flush=True,
        )
        share = ahead["critical"] / alone["here"]
        if size >= 64:
            bars.append(Bar(f"records ahead, {size} numbers: the busiest thread, over one", share, 0.8, "×"))
        numbers[f"records ahead on {size}"] = measured
    print("\nGradient of a plain loop within a budget, milliseconds; in brackets how often a step runs")
    print(f"{'matrix':>8}{'states':>8}{'alone':>15}{'ahead':>15}{'(sweep':>9}{'segments)':>11}{'elapsed':>14}")
    for size, length, states in BUDGETS[: 1 if quick else None]:
        measured = segments(size, 40 if quick else length, states, rounds)
        alone, ahead = measured["alone"], measured["ahead"]
        cells = [f"{1e3 * one['critical']:>8.1f} ({one['evaluations']:.2f})" for one in (alone, ahead)]
        print(
            f"{size:>8}{states:>8}{''.join(cells)}{1e3 * ahead['here']:>9.1f}{1e3 * ahead['there']:>11.1f}"
            f"{1e3 * alone['elapsed']:>7.0f}{1e3 * ahead['elapsed']:>7.0f}",
            flush=True,
        )
        share = ahead["critical"] / alone["here"]
        if size >= 256:  # smaller ones take as long in Python as in kernels
            what = f"segments ahead, {size} × {size}, {states} states: the busiest thread, over one"
            bars.append(Bar(what, share, 0.8, "×"))
        numbers[f"segments ahead on {size} in {states}"] = measured
    print()
    if options.json:
        harness.write(options.json, ["unspool"], numbers)
    return 0 if quick else harness.decide(bars)


if __name__ == "__main__":
    sys.exit(main())
