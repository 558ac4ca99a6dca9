"""A wave of 1,000 steps, differentiated in the speed at each point; and budgets beside Revolve."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.recipes.common import Problem, Run, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome, outcome

# Budgets of the table, in states of the wave; None is no limit.
ROOMS = (20, 32, 64, 128, 256, 512, None)


def problem(n: int, steps: int) -> Problem:
    """Return a shot, and records of nothing."""
    t = (np.arange(steps) - 36.0) / 12.0
    return {"n": n, "pulse": (1 - 2 * t * t) * np.exp(-t * t), "records": np.zeros((steps, n))}


def plain(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("wave-inversion")

    def run() -> Outcome:
        speed = us.tensor(np.ones((given["n"], given["n"])))
        return ours_outcome(names["propagate"](speed, given["pulse"], given["records"]), (speed,))

    return run


def tight(given: Problem) -> Run:
    """Return the same within the room of 64 states."""
    import unspool as us

    names = page("wave-inversion")

    def run() -> Outcome:
        with us.memory(64 * 2 * 8 * given["n"] ** 2):
            speed = us.tensor(np.ones((given["n"], given["n"])))
            return ours_outcome(names["propagate"](speed, given["pulse"], given["records"]), (speed,))

    return run


def torch_eager(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    n, at = given["n"], (2, given["n"] // 2)

    def laplacian(u: torch.Tensor) -> torch.Tensor:
        inside = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        return torch.nn.functional.pad(inside, (1, 1, 1, 1))

    shot = torch.zeros((n, n), dtype=torch.float64)
    shot[at] = 1.0

    def run() -> Outcome:
        speed = torch.ones((n, n), dtype=torch.float64, requires_grad=True)
        courant = speed * speed * 0.25
        u = velocity = torch.zeros((n, n), dtype=torch.float64)
        misfit = torch.zeros((), dtype=torch.float64)
        for strength, record in zip(given["pulse"], torch.from_numpy(given["records"]), strict=True):
            velocity = velocity + courant * laplacian(u) + strength * shot
            u = u + velocity
            misfit = misfit + 0.5 * ((u[2] - record) ** 2).sum()
            if not misfit.item() < 1e9:
                raise ArithmeticError("the wave grows without bound")
        return torch_outcome(misfit, (speed,))

    return run


def jax_scan(given: Problem) -> Run:
    """Return a compiled scan, which cannot stop early."""
    import jax
    import jax.numpy as jnp

    n, at = given["n"], (2, given["n"] // 2)

    def step(courant, state, given):  # type: ignore[no-untyped-def]
        (u, velocity, misfit), (strength, record) = state, given
        inside = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        velocity = (velocity + courant * jnp.pad(inside, 1)).at[at].add(strength)
        u = u + velocity
        return (u, velocity, misfit + 0.5 * jnp.sum((u[2] - record) ** 2)), None

    @jax.jit
    @jax.value_and_grad
    def misfit_of(speed):  # type: ignore[no-untyped-def]
        start = jnp.zeros((n, n)), jnp.zeros((n, n)), 0.0
        stream = given["pulse"], given["records"]
        return jax.lax.scan(lambda s, x: step(speed * speed * 0.25, s, x), start, stream)[0][2]

    def run() -> Outcome:
        value, gradient = misfit_of(jnp.ones((n, n)))
        return outcome(value, gradient)

    return run


def by_hand(given: Problem) -> Run:
    """Return the adjoint by hand in NumPy, from the page."""
    names = page("wave-inversion")

    def run() -> Outcome:
        return outcome(*names["by_hand"](np.ones((given["n"], given["n"])), given["pulse"], given["records"]))

    return run


def recompute(n: int = 64, steps: int = 1000) -> list[dict[str, Any]]:
    """Return runs of a step within each budget, beside the optimum for so many states, and processor time."""
    import unspool as us

    names, given = page("wave-inversion"), problem(n, steps)
    rows = []
    for room in ROOMS:
        speed = us.tensor(np.ones((n, n)))
        begin = time.process_time()
        if room is None:
            names["propagate"](speed, given["pulse"], given["records"]).grad(speed).eval()
            evaluations = steps
        else:
            report, _ = names["within"](room, speed, given["pulse"], given["records"])
            evaluations = report.evaluations
        seconds = time.process_time() - begin
        optimum = None if room is None else names["revolve"](steps, room)
        rows.append({"room": room, "evaluations": evaluations, "revolve": optimum, "seconds": seconds})
    return rows


WORKLOAD = workload(
    "wave-inversion",
    "a wave of 1,000 steps",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", plain, "ours"),
        Form("unspool, room for 64 states", "unspool", tight, "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        Form("JAX, `scan` under `jit`", "jax", jax_scan, "peer"),
        Form("by hand, NumPy", "numpy", by_hand, "limit"),
    ),
    n=(12, 64),
    steps=(60, 1000),
)
