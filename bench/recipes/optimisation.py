"""A linear programme by PDHG, a deep equilibrium, and a growth model by time iteration."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import STOPS, Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome

# --- PDHG -------------------------------------------------------------------------------------------------------------


def programme(goods: int, machines: int) -> Problem:
    """Return a programme as the page makes it."""
    rng = np.random.default_rng(0)
    A, b = rng.uniform(0.2, 1.0, (machines, goods)), rng.uniform(1.0, 2.0, machines)
    return {"A": A, "b": b, "c": rng.uniform(0.5, 1.0, goods)}


def pdhg(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("pdhg")

    def run() -> Outcome:
        A, b, c = (us.tensor(given[name]) for name in "Abc")
        x, _ = names["pdhg"](A, b, c)
        return ours_outcome(c @ x, (A, b, c))

    return run


def pdhg_torch(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    def residual(x, y, A, b, c):  # type: ignore[no-untyped-def]
        return max((c @ x - b @ y).abs().item(), (A @ x - b).max().item(), (c - A.T @ y).max().item())

    def run() -> Outcome:
        A, b, c = (torch.from_numpy(given[name]).clone().requires_grad_() for name in "Abc")
        size = 0.9 / np.linalg.norm(given["A"], 2)
        x, y = torch.zeros_like(c), torch.zeros_like(b)
        total_x, total_y, length, last = x, y, 0, np.inf
        for k in range(20_000):
            ahead = torch.clamp(x + size * (c - A.T @ y), min=0.0)
            y = torch.clamp(y + size * (A @ (2 * ahead - x) - b), min=0.0)
            x, total_x, total_y, length = ahead, total_x + ahead, total_y + y, length + 1
            if k % 20 == 19:
                mean_x, mean_y = total_x / length, total_y / length
                here, there = residual(x, y, A, b, c), residual(mean_x, mean_y, A, b, c)
                if min(here, there) < 0.2 * last:
                    x, y, last = (x, y, here) if here < there else (mean_x, mean_y, there)
                    total_x, total_y, length = torch.zeros_like(x), torch.zeros_like(y), 0
                if last < 1e-10:
                    break
        return torch_outcome(c @ x, (A, b, c))

    return run


PDHG = workload(
    "pdhg",
    "a linear programme",
    f"{__name__}:PDHG",
    programme,
    (
        Form("unspool, plain loop", "unspool", pdhg, "ours"),
        Form("PyTorch", "torch", pdhg_torch, "peer"),
        cannot("JAX", STOPS),
    ),
    goods=(4, 40),
    machines=(3, 30),
)

# --- a deep equilibrium -----------------------------------------------------------------------------------------------


def network(width: int, rows: int) -> Problem:
    """Return a model and data as the page makes them."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((width, width))
    model = {
        "W": 0.9 * W / np.linalg.norm(W, 2),
        "V": rng.standard_normal((width, 3)),
        "b": 0.1 * rng.standard_normal(width),
        "out": rng.standard_normal(width) / width,
    }
    X = np.random.default_rng(1).standard_normal((3, rows))
    return {"model": model, "X": X, "y": np.sin(X.sum(axis=0))}


def equilibrium(implicit: bool):  # type: ignore[no-untyped-def]
    """Return the form that goes through the steps, or the implicit one."""

    def make(given: Problem) -> Run:
        import unspool as us

        names = page("deep-equilibrium")

        def run() -> Outcome:
            model, X = {name: us.tensor(value) for name, value in given["model"].items()}, given["X"]
            if implicit:
                start = us.zeros((len(given["model"]["b"]), X.shape[1]))
                z, _ = us.fixed_point(lambda z: names["layer"](z, model, X), start, tol=1e-12)
            else:
                z = names["equilibrium"](model, X, tol=1e-11)
            return ours_outcome(names["loss_of"](z, model, given["y"]), tuple(model.values()))

        return run

    return make


def equilibrium_torch(given: Problem) -> Run:
    """Return the loop through the steps in PyTorch."""
    import torch

    X, y = torch.from_numpy(given["X"]), torch.from_numpy(given["y"])

    def run() -> Outcome:
        W, V, b, out = (torch.from_numpy(value).clone().requires_grad_() for value in given["model"].values())
        z = torch.zeros((len(b), X.shape[1]), dtype=torch.float64)
        while True:
            new = torch.tanh(W @ z + V @ X + b[:, None])
            change = (new - z).abs().max().item()
            z = new
            if change < 1e-11:
                return torch_outcome(((out @ z - y) ** 2).mean(), (W, V, b, out))

    return run


EQUILIBRIUM = workload(
    "deep-equilibrium",
    "a deep equilibrium",
    f"{__name__}:EQUILIBRIUM",
    network,
    (
        Form("unspool, plain loop", "unspool", equilibrium(implicit=False), "ours"),
        Form("unspool, `us.fixed_point`", "unspool", equilibrium(implicit=True), "ours"),
        Form("PyTorch, through the steps", "torch", equilibrium_torch, "peer"),
        cannot("JAX", STOPS),
    ),
    width=(8, 200),
    rows=(4, 64),
)

# --- growth -----------------------------------------------------------------------------------------------------------


def capital(points: int) -> Problem:
    """Return the number of points of the grid, and where the policy is asked for."""
    return {"points": points, "k": np.linspace(0.05, 0.4, 50)}


def growth(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("economics")

    def run() -> Outcome:
        alpha, beta = us.tensor(0.33), us.tensor(0.95)
        policy = names["policy"](alpha, beta, points=given["points"])
        return ours_outcome(us.mean(policy(us.tensor(given["k"]))), (alpha, beta))

    return run


def growth_torch(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    names, points = page("economics"), given["points"]
    x, log_k, (low, high) = names["chebyshev"](points)
    inverse = torch.from_numpy(np.linalg.inv(np.polynomial.chebyshev.chebvander(x, points - 1)))
    log_k, ones = torch.from_numpy(log_k), torch.ones(points, dtype=torch.float64)

    def saved(coefficients: torch.Tensor, log_k: torch.Tensor) -> torch.Tensor:
        z = (2 * log_k - low - high) / (high - low)
        terms = [torch.ones_like(z), z]
        for _ in range(points - 2):
            terms.append(2 * z * terms[-1] - terms[-2])
        return coefficients @ torch.stack(terms)

    def run() -> Outcome:
        alpha, beta = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.33, 0.95))
        output = torch.exp(alpha * log_k)
        coefficients = inverse @ (log_k - 1.0)

        def euler(log_next: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
            after = torch.exp(alpha * log_next) - torch.exp(saved(coefficients, log_next))
            return after - beta * alpha * torch.exp((alpha - 1) * log_next) * (output - torch.exp(log_next))

        while True:
            log_next = torch.log(0.3 * output)
            for _ in range(50):
                value, slope = torch.func.jvp(lambda s, c=coefficients: euler(s, c), (log_next,), (ones,))
                log_next = log_next - value / slope
                if value.abs().max().item() < 1e-12:
                    break
            new = inverse @ log_next
            change = (new - coefficients).abs().max().item()
            coefficients = new
            if change < 1e-11:
                k = torch.from_numpy(given["k"])
                return torch_outcome(torch.exp(saved(coefficients, torch.log(k))).mean(), (alpha, beta))

    return run


GROWTH = workload(
    "economics",
    "a growth model",
    f"{__name__}:GROWTH",
    capital,
    (
        Form("unspool, plain loop", "unspool", growth, "ours"),
        Form("PyTorch", "torch", growth_torch, "peer"),
        cannot("JAX", STOPS),
    ),
    points=(4, 20),
)
