"""A reaction in a dish, differentiated in the feed at each place: a plain loop, a run, and a run that went on."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bench.recipes.common import Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome, outcome

# How often a run is written, and how many states it keeps, in the table of what is on the disk.
WRITTEN = (("at both ends", "5min", 32), *(("after each step", 0, slots) for slots in (3, 8, 32, 128)))

# The room of a gradient that is short of memory, in states.
ROOM = 64

# Why other libraries have no part in going on.
ARRAYS = "a checkpoint has arrays and no history: the gradient ends at the restart"


def problem(n: int, steps: int) -> Problem:
    """Return the sizes; rates and start are those of the page."""
    return {"n": n, "steps": steps}


def plain(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("tomorrow")

    def run() -> Outcome:
        feed, away = names["rates"](given["n"])
        _, v = names["grow"](*names["drop"](given["n"]), feed, away, given["steps"])
        return ours_outcome(us.sum(v), (feed, away))

    return run


def written(*shares: float):  # type: ignore[no-untyped-def]
    """Return the form that runs in a folder, leaving it after these shares of the steps."""

    def make(given: Problem) -> Run:
        import unspool as us

        names = page("tomorrow")

        def run() -> Outcome:
            with tempfile.TemporaryDirectory() as folder:
                for share in shares:
                    feed, away = names["rates"](given["n"])
                    _, v = names["grow_in"](folder, feed, away, int(share * given["steps"]))
                return ours_outcome(us.sum(v), (feed, away))

        return run

    return make


def torch_eager(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    names = page("tomorrow")

    def around(w: torch.Tensor) -> torch.Tensor:
        return torch.roll(w, 1, 0) + torch.roll(w, -1, 0) + torch.roll(w, 1, 1) + torch.roll(w, -1, 1) - 4 * w

    def run() -> Outcome:
        feed, away = (torch.from_numpy(rate.eval().copy()).requires_grad_() for rate in names["rates"](given["n"]))
        u, v = (torch.from_numpy(start.eval().copy()) for start in names["drop"](given["n"]))
        for _ in range(given["steps"]):
            made = u * v * v
            u, v = u + 0.16 * around(u) - made + feed * (1 - u), v + 0.08 * around(v) + made - (feed + away) * v
        return torch_outcome(v.sum(), (feed, away))

    return run


def jax_scan(given: Problem) -> Run:
    """Return a compiled scan."""
    import jax
    import jax.numpy as jnp

    names = page("tomorrow")
    rates = tuple(rate.eval() for rate in names["rates"](given["n"]))
    start = tuple(part.eval() for part in names["drop"](given["n"]))

    def around(w):  # type: ignore[no-untyped-def]
        return jnp.roll(w, 1, 0) + jnp.roll(w, -1, 0) + jnp.roll(w, 1, 1) + jnp.roll(w, -1, 1) - 4 * w

    @jax.jit
    @jax.value_and_grad
    def amount(rates):  # type: ignore[no-untyped-def]
        feed, away = rates

        def step(state, _):  # type: ignore[no-untyped-def]
            u, v = state
            made = u * v * v
            u = u + 0.16 * around(u) - made + feed * (1 - u)
            return (u, v + 0.08 * around(v) + made - (feed + away) * v), None

        return jnp.sum(jax.lax.scan(step, start, length=given["steps"])[0][1])

    def run() -> Outcome:
        return outcome(*amount(rates))

    return run


def on_disk(n: int = 64, steps: int = 2000) -> list[dict[str, Any]]:
    """Return the bytes of a run by how often it is written and what it keeps, and the processor time of reading it."""
    import unspool as us

    names, rows = page("tomorrow"), []
    for spoken, every, slots in WRITTEN:
        with tempfile.TemporaryDirectory() as folder:
            feed, away = names["rates"](n)
            with us.spool(folder, every=every, states=slots) as run:
                u, v = run.start(names["drop"](n), inputs=(feed, away))
                for _ in run.steps(steps):
                    u, v = names["react"](u, v, feed, away)
                    run.checkpoint((u, v))
            del feed, away, u, v, run
            files = {path.name: path.stat().st_size for path in Path(folder).iterdir()}
            opened, gradient = _next_day(folder)
            with us.memory(ROOM * 2 * 8 * n * n):
                _, tight = _next_day(folder)
        kept = sum(name.startswith("state-") for name in files)
        row = {"written": spoken, "kept": kept, "bytes": sum(files.values()), "log": files["log"] / steps}
        rows.append({**row, "opened": opened, "gradient": gradient, "tight": tight})
    return rows


def _next_day(folder: str) -> tuple[float, float]:
    """Return the processor time of opening a run, and of the gradient through all its steps."""
    import unspool as us

    begin = time.process_time()
    run = us.resume(folder)
    opened = time.process_time()
    us.sum(run.state[1]).grad(run.inputs[1][0]).eval()
    end = time.process_time()
    run.close()
    return opened - begin, end - opened


WORKLOAD = workload(
    "tomorrow",
    "a reaction in a dish, gone on the next day",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", plain, "ours"),
        Form("unspool, in a folder", "unspool", written(1.0), "ours"),
        Form("unspool, ended halfway and gone on", "unspool", written(0.5, 1.0), "ours"),
        Form("PyTorch, not interrupted", "torch", torch_eager, "peer"),
        Form("JAX, `scan` under `jit`, not interrupted", "jax", jax_scan, "peer"),
        cannot("PyTorch or JAX, gone on", ARRAYS),
    ),
    n=(16, 64),
    steps=(60, 2000),
)
