"""B12: the time to the first gradient, from the start of a fresh process to the numbers.

Each form is a whole script, as somebody would type it to try a library out: it imports the library, makes a matrix of
64 rows, runs 100 steps of power iteration that look at the change in each step, and takes the gradient of the Rayleigh
quotient with respect to the matrix through all of them. The clock runs from starting Python until the script says that
it has the gradient. There is nothing to repeat in a process, so each round starts new ones, after a round that does not
count: it leaves files in the system's cache and bytecode in place, as on any machine where the library is in use.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bench.suite.measure import SuiteError, difference, environment, quartiles
from bench.suite.worker import pin
from bench.suite.workload import PACKAGES, Bar, Kind, Options, Row, Special

TOLERANCE = 1e-8

# Every script begins and ends like this; the import stands between two looks at the clock.
BEGIN = """
import numpy as np
import time

place = np.arange(64.0)
matrix = 1.0 / (1.0 + np.abs(place[:, None] - place[None, :]))
start = np.cos(place)
began = time.perf_counter(), time.process_time()
"""
IMPORTED = """
imported = time.perf_counter() - began[0], time.process_time() - began[1]
"""
END = """
print("done", time.process_time(), *imported, flush=True)
weights = np.cos(place[:, None] + 2.0 * place[None, :])
print(repr(float(value)), repr(float(np.sum(weights * gradient))), repr(float(np.linalg.norm(gradient))))
"""

UNSPOOL = (
    """
import unspool as us
""",
    """
A, x = us.tensor(matrix), us.tensor(start)
for _ in range(100):
    y = A @ x
    y = y / us.linalg.norm(y)
    change, x = us.linalg.norm(y - x), y
    if float(change) < 1e-30:
        break
loss = x @ A @ x
value, gradient = us.eval(loss, loss.grad(A))
""",
)

TORCH = (
    """
import torch
""",
    """
A, x = torch.tensor(matrix, requires_grad=True), torch.tensor(start)
for _ in range(100):
    y = A @ x
    y = y / torch.linalg.norm(y)
    change, x = torch.linalg.norm(y - x), y
    if change.item() < 1e-30:
        break
loss = x @ A @ x
loss.backward()
value, gradient = loss.item(), A.grad.numpy()
""",
)

JAX = (
    """
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
""",
    """
def quotient(A):
    def step(state, _):
        x, done = state
        y = A @ x
        y = y / jnp.linalg.norm(y)
        change = jnp.linalg.norm(jax.lax.stop_gradient(y - x))
        x = jnp.where(done, x, y)
        return (x, done | (change < 1e-30)), None

    (x, _), _ = jax.lax.scan(step, (jnp.asarray(start), False), None, length=100)
    return x @ A @ x

value, gradient = jax.jit(jax.value_and_grad(quotient))(matrix)
value, gradient = float(value), np.asarray(gradient)
""",
)

AUTOGRAD = (
    """
import autograd.numpy as anp
from autograd import value_and_grad
""",
    """
def quotient(A):
    x = start
    for _ in range(100):
        y = anp.dot(A, x)
        y = y / anp.linalg.norm(y)
        change, x = anp.linalg.norm(y - x), y
        if getattr(change, "_value", change) < 1e-30:
            break
    return anp.dot(x, anp.dot(A, x))

value, gradient = value_and_grad(quotient)(matrix)
""",
)

SCRIPTS: dict[str, tuple[str, Kind, tuple[str, str]]] = {
    "unspool, plain": ("unspool", "ours", UNSPOOL),
    "PyTorch": ("torch", "peer", TORCH),
    "JAX scan": ("jax", "peer", JAX),
    "autograd": ("autograd", "peer", AUTOGRAD),
}


class First(NamedTuple):
    """What a fresh process took until it had its gradient, what of that was the import, and what it found."""

    seconds: dict[str, float]
    imported: dict[str, float]
    numbers: list[float]


def first_gradient(parts: tuple[str, str], threads: int) -> First:
    """Run a script in a fresh process."""
    script = BEGIN + parts[0] + IMPORTED + parts[1] + END
    # Compiling every module anew at each start is no library's doing.
    settings = {name: value for name, value in environment(threads).items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=errors, text=True, env=settings
        )
        assert process.stdout is not None
        with process:
            said = process.stdout.readline()
            wall = time.perf_counter() - begin
            numbers = [float(number) for number in process.stdout.read().split()]
        if not said.startswith("done"):
            errors.seek(0)
            raise SuiteError((errors.read().strip() or "the process ended early").splitlines()[-1])
    processor, *imported = map(float, said.split()[1:])
    clocks = ("wall", "processor")
    return First({"wall": wall, "processor": processor}, dict(zip(clocks, imported, strict=True)), numbers)


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Keep this process to so many cores, and with it those that it starts."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    pin(threads)
    try:
        yield
    finally:
        if before is not None:
            os.sched_setaffinity(0, before)


def run(options: Options) -> list[Row]:
    """Measure every library that is installed, in interleaved rounds of fresh processes."""
    rows = {name: _empty(name, options) for name in SCRIPTS}
    scripts = {name: SCRIPTS[name][2] for name, row in rows.items() if row.state == "ok"}
    deadline = time.monotonic() + options.seconds
    rounds: dict[str, list[First]] = {name: [] for name in scripts}
    with pinned(options.threads):
        _agree({name: first_gradient(script, options.threads) for name, script in scripts.items()})
        for _ in range(options.rounds):
            for name, script in scripts.items():
                rounds[name].append(first_gradient(script, options.threads))
            if time.monotonic() > deadline:
                break
    for name, taken in rounds.items():
        low, median, high = quartiles([one.seconds[options.clock] for one in taken])
        busy = statistics.median(one.seconds["wall"] / one.seconds["processor"] for one in taken)
        imported = statistics.median(one.imported[options.clock] for one in taken)
        note, value = f"import {imported:.2f} s", taken[0].numbers[0]
        rows[name] = replace(
            rows[name], seconds=median, low=low, high=high, rounds=len(taken), busy=busy, note=note, value=value
        )
    return list(rows.values())


def _empty(name: str, options: Options) -> Row:
    library, kind, _ = SCRIPTS[name]
    missing = [package for package in PACKAGES[library] if not importlib.util.find_spec(package)]
    row = Row("B12", name, library, kind, options.size, steps=100)
    return replace(row, state="missing", note=f"{' and '.join(missing)} not installed") if missing else row


def _agree(answers: dict[str, First]) -> None:
    (basis, expected), *others = answers.items()
    for name, found in others:
        off = difference(np.array(found.numbers), np.array(expected.numbers))
        if not off <= TOLERANCE:
            raise SuiteError(f"{name} differs from {basis} by {off:.1e}")


WORKLOAD = Special(
    key="B12",
    title="time to the first gradient of a fresh process, import included; power iteration, n = 64",
    run=run,
    bars=(Bar("JAX scan", 1 / 5, ours="unspool, plain"),),
)
