"""A heat equation with a solve by conjugate gradients in each step, differentiated in the conductivity of each cell."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import STOPS, Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome, outcome


def problem(n: int, steps: int) -> Problem:
    """Return the start and records of nothing: the misfit is then the heat on the rim."""
    start = np.zeros((n, n))
    for spot in ((0.3, 0.3), (0.7, 0.7), (0.25, 0.75)):
        start[int(spot[0] * n), int(spot[1] * n)] = n * n / 3
    return {"start": start, "records": np.zeros((steps, 4 * n - 4)), "n": n}


def plain(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("pde-inverse")

    def run() -> Outcome:
        q = us.tensor(np.zeros((given["n"], given["n"])))
        return ours_outcome(names["heat"](q, given["start"], given["records"]), (q,))

    return run


def tight(given: Problem) -> Run:
    """Return the same within 2 MB."""
    import unspool as us

    names = page("pde-inverse")

    def run() -> Outcome:
        with us.memory("2MB"):
            q = us.tensor(np.zeros((given["n"], given["n"])))
            return ours_outcome(names["heat"](q, given["start"], given["records"]), (q,))

    return run


def by_hand(given: Problem) -> Run:
    """Return the adjoint by hand on SciPy's factorised matrix."""
    names = page("pde-inverse")

    def run() -> Outcome:
        return outcome(*names["by_hand"](np.zeros((given["n"], given["n"])), given["start"], given["records"]))

    return run


def with_torch(implicit: bool):  # type: ignore[no-untyped-def]
    """Return the form in PyTorch: through the iterations of the solver, or with its adjoint written by hand."""
    return lambda given: torch_eager(given, implicit)


def torch_eager(given: Problem, implicit: bool) -> Run:
    """Return the loop in PyTorch, with conjugate gradients written as a loop."""
    import torch

    def outflow(u: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        down = 0.5 * (k[1:] + k[:-1]) * (u[1:] - u[:-1])
        across = 0.5 * (k[:, 1:] + k[:, :-1]) * (u[:, 1:] - u[:, :-1])
        pad = torch.nn.functional.pad
        return -torch.diff(pad(down, (0, 0, 1, 1)), dim=0) - torch.diff(pad(across, (1, 1)), dim=1)

    def conjugate_gradients(k: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = b
        r = b - x - 2.0 * outflow(x, k)
        p, rr = r, (r * r).sum()
        limit = 1e-22 * (b * b).sum().item()
        while rr.item() > limit:
            Ap = p + 2.0 * outflow(p, k)
            alpha = rr / (p * Ap).sum()
            x, r = x + alpha * p, r - alpha * Ap
            new = (r * r).sum()
            p, rr = r + new / rr * p, new
        return x

    class Solve(torch.autograd.Function):
        """A solve whose derivative is another one: what an expert would write."""

        @staticmethod
        def forward(ctx, k, b):  # type: ignore[no-untyped-def]
            x = conjugate_gradients(k, b)
            ctx.save_for_backward(k, x)
            return x

        @staticmethod
        def backward(ctx, cotangent):  # type: ignore[no-untyped-def]
            k, x = ctx.saved_tensors
            adjoint = conjugate_gradients(k, cotangent)
            with torch.enable_grad():
                k = k.detach().requires_grad_()
                (by_k,) = torch.autograd.grad(outflow(x.detach(), k), k, -2.0 * adjoint)
            return by_k, adjoint

    solve = Solve.apply if implicit else conjugate_gradients

    def run() -> Outcome:
        q = torch.zeros((given["n"], given["n"]), dtype=torch.float64, requires_grad=True)
        k, u = q.exp(), torch.from_numpy(given["start"])
        misfit = torch.zeros((), dtype=torch.float64)
        for record in torch.from_numpy(given["records"]):
            u = solve(k, u)
            misfit = misfit + ((torch.cat([u[0], u[-1], u[1:-1, 0], u[1:-1, -1]]) - record) ** 2).sum()
            if (u.max() - u.min()).item() < 1e-6:
                break
        return torch_outcome(misfit, (q,))

    return run


WORKLOAD = workload(
    "pde-inverse",
    "a heat equation with solves",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", plain, "ours"),
        Form("unspool, within 2 MB", "unspool", tight, "ours"),
        Form("PyTorch, adjoint of a solve by hand", "torch", with_torch(implicit=True), "peer"),
        Form("PyTorch, through the iterations", "torch", with_torch(implicit=False), "peer", flawed=True),
        cannot("JAX", STOPS),
        Form("by hand, sparse LU", "numpy", by_hand, "limit"),
    ),
    n=(8, 48),
    steps=(4, 40),
)
