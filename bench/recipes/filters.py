"""The Hessian of a Kalman filter's likelihood."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import Problem, Run, page, workload
from bench.suite.workload import Form, Outcome, outcome

THETA = np.array([0.5, -3.0, 0.5])
F, H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0])


def problem(length: int) -> Problem:
    """Return a series as the page makes it."""
    rng = np.random.default_rng(0)
    slopes = np.cumsum(0.2 * rng.standard_normal(length))
    return {"series": np.cumsum(slopes + rng.standard_normal(length)) + rng.standard_normal(length)}


def ours(name: str):  # type: ignore[no-untyped-def]
    """Return the form that uses a likelihood of the page."""

    def make(given: Problem) -> Run:
        import unspool as us

        likelihood = page("filters")[name]

        def run() -> Outcome:
            value = likelihood(us.tensor(THETA), given["series"])
            return outcome(float(value), us.hessian(likelihood)(THETA, given["series"]).eval())

        return run

    return make


def torch_eager(given: Problem) -> Run:
    """Return the loop in PyTorch, with its function for Hessians."""
    import torch

    transition, seen, series = torch.from_numpy(F), torch.from_numpy(H), given["series"].tolist()

    def likelihood(theta: torch.Tensor) -> torch.Tensor:
        level, slope, noise = theta.exp()
        Q = torch.diag(torch.stack([level, slope]))
        m, P = torch.zeros(2, dtype=torch.float64), 10.0 * torch.eye(2, dtype=torch.float64)
        total = torch.zeros((), dtype=torch.float64)
        for y in series:
            S = seen @ P @ seen + noise
            gain, off = P @ seen / S, y - seen @ m
            total = total + 0.5 * (torch.log(2 * np.pi * S) + off * off / S)
            m, P = m + gain * off, P - torch.outer(gain, gain) * S
            m, P = transition @ m, transition @ P @ transition.T + Q
            if not total.item() < 1e9:
                raise ArithmeticError("the filter has lost track")
        return total

    def run() -> Outcome:
        theta = torch.from_numpy(THETA)
        return outcome(likelihood(theta).item(), torch.autograd.functional.hessian(likelihood, theta).numpy())

    return run


def jax_scan(given: Problem) -> Run:
    """Return a compiled scan and its Hessian."""
    import jax
    import jax.numpy as jnp

    def likelihood(theta):  # type: ignore[no-untyped-def]
        level, slope, noise = jnp.exp(theta)
        Q = jnp.diag(jnp.stack([level, slope]))

        def step(state, y):  # type: ignore[no-untyped-def]
            m, P, total = state
            S = H @ P @ H + noise
            gain, off = P @ H / S, y - H @ m
            m, P = m + gain * off, P - jnp.outer(gain, gain) * S
            return (F @ m, F @ P @ F.T + Q, total + 0.5 * (jnp.log(2 * np.pi * S) + off * off / S)), None

        (_, _, total), _ = jax.lax.scan(step, (jnp.zeros(2), 10.0 * jnp.eye(2), 0.0), given["series"])
        return total

    both = jax.jit(lambda theta: (likelihood(theta), jax.hessian(likelihood)(theta)))

    def run() -> Outcome:
        return outcome(*both(THETA))

    return run


WORKLOAD = workload(
    "filters",
    "the Hessian of a Kalman filter",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", ours("minus_log_likelihood"), "ours"),
        Form("unspool, `us.iterate`", "unspool", ours("quick"), "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        Form("JAX, `scan` under `jit`", "jax", jax_scan, "peer"),
    ),
    length=(10, 500),
)
