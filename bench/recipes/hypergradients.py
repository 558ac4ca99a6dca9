"""2,000 steps of Adam with minibatches, differentiated in the rate of each step and in the penalty."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import Problem, Run, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome, outcome


def problem(steps: int) -> Problem:
    """Return data and batches as the page makes them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 20))
    y = np.sign(X @ rng.standard_normal(20) + 3.0 * rng.standard_normal(800))
    batches = np.random.default_rng(1).integers(0, 400, (steps, 32))
    return {"training": (X[:400], y[:400]), "validation": (X[400:], y[400:]), "batches": batches}


def ours(name: str):  # type: ignore[no-untyped-def]
    """Return the form that trains with a function of the page."""

    def make(given: Problem) -> Run:
        import unspool as us

        names = page("hypergradients")

        def run() -> Outcome:
            rates, decay = us.tensor(np.full(len(given["batches"]), 0.01)), us.tensor(0.01)
            w = names[name](rates, decay, given["training"], given["batches"])
            return ours_outcome(names["logistic"](w, given["validation"]), (rates, decay))

        return run

    return make


def torch_eager(given: Problem) -> Run:
    """Return the loop as users of PyTorch write it: gradients inside with ``create_graph``."""
    import torch

    (X, y), validation, batches = (
        tuple(map(torch.from_numpy, given["training"])),
        tuple(map(torch.from_numpy, given["validation"])),
        torch.from_numpy(given["batches"]),
    )

    def logistic(w: torch.Tensor, data: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.nn.functional.softplus(-data[1] * (data[0] @ w)).mean()

    def run() -> Outcome:
        rates = torch.full((len(batches),), 0.01, dtype=torch.float64, requires_grad=True)
        decay = torch.tensor(0.01, dtype=torch.float64, requires_grad=True)
        w = torch.zeros(X.shape[1], dtype=torch.float64, requires_grad=True)
        m = v = torch.zeros_like(w)
        for k, rows in enumerate(batches):
            loss = logistic(w, (X[rows], y[rows])) + decay * (w * w).sum()
            (g,) = torch.autograd.grad(loss, w, create_graph=True)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            size = torch.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-8
            w = w - rates[k] * (m / (1 - 0.9 ** (k + 1))) / size
            if loss.item() > 10:
                break
        return torch_outcome(logistic(w, validation), (rates, decay))

    return run


def jax_scan(given: Problem) -> Run:
    """Return a compiled scan, which cannot stop early."""
    import jax
    import jax.numpy as jnp

    (X, y), validation, batches = given["training"], given["validation"], given["batches"]
    k = np.arange(1, len(batches) + 1)
    stream = (X[batches], y[batches], 1 - 0.9**k, 1 - 0.999**k)

    def logistic(w, data):  # type: ignore[no-untyped-def]
        return jnp.mean(jax.nn.softplus(-data[1] * (data[0] @ w)))

    def step(decay, state, given):  # type: ignore[no-untyped-def]
        (w, m, v), (X, y, first, second, rate) = state, given
        g = jax.grad(lambda w: logistic(w, (X, y)) + decay * jnp.sum(w * w))(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return (w - rate * (m / first) / (jnp.sqrt(v / second) + 1e-8), m, v), None

    @jax.jit
    @jax.value_and_grad
    def loss_of(variables):  # type: ignore[no-untyped-def]
        rates, decay = variables
        start = (jnp.zeros(X.shape[1]),) * 3
        (w, _, _), _ = jax.lax.scan(lambda s, x: step(decay, s, x), start, (*stream, rates))
        return logistic(w, validation)

    def run() -> Outcome:
        value, gradient = loss_of((jnp.full(len(batches), 0.01), jnp.asarray(0.01)))
        return outcome(value, list(gradient))

    return run


WORKLOAD = workload(
    "hypergradients",
    "2,000 steps of Adam",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", ours("train"), "ours"),
        Form("unspool, `@us.fragment`", "unspool", ours("train_traced"), "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        Form("JAX, `scan` under `jit`", "jax", jax_scan, "peer"),
    ),
    steps=(50, 2000),
)
