"""A self-consistent field with DIIS on a chain of sites, differentiated in all potentials and the repulsion."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import STOPS, Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome


def problem(sites: int) -> Problem:
    """Return the potentials; the repulsion is 2."""
    return {"v": 0.5 * np.cos(np.arange(float(sites)))}


def plain(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("scf")

    def run() -> Outcome:
        U, v = us.tensor(2.0), us.tensor(given["v"])
        energy, _ = names["self_consistent"](U, v, len(given["v"]))
        return ours_outcome(energy, (v, U))

    return run


def torch_eager(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    sites = len(given["v"])
    hopping = torch.from_numpy(-(np.eye(sites, k=1) + np.eye(sites, k=-1)))

    def extrapolate(tried: list[torch.Tensor], errors: list[torch.Tensor]) -> torch.Tensor:
        e = torch.stack(errors)
        count = len(errors)
        bordered = torch.ones((count + 1, count + 1), dtype=torch.float64)
        bordered[:count, :count] = e @ e.T / (e[-1] ** 2).sum()
        bordered[count, count] = 0.0
        right = torch.tensor([0.0] * count + [1.0], dtype=torch.float64)
        return torch.linalg.solve(bordered, right)[:-1] @ torch.stack(tried)

    def run() -> Outcome:
        U = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        v = torch.from_numpy(given["v"]).clone().requires_grad_()
        density = torch.full((sites,), 0.5, dtype=torch.float64)
        tried: list[torch.Tensor] = []
        errors: list[torch.Tensor] = []
        while True:
            _, orbitals = torch.linalg.eigh(hopping + torch.diag(v + U * density))
            occupied = orbitals[:, : sites // 2]
            new = (occupied**2).sum(dim=1)
            error = new - density
            if error.abs().max().item() < 1e-10:
                kinetic = (occupied * (hopping @ occupied)).sum()
                return torch_outcome(2 * kinetic + 2 * (v * new).sum() + U * (new * new).sum(), (v, U))
            tried, errors = [*tried, new][-8:], [*errors, error][-8:]
            density = extrapolate(tried, errors)

    return run


WORKLOAD = workload(
    "scf",
    "a self-consistent field",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", plain, "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        cannot("JAX", STOPS),
    ),
    sites=(8, 60),
)
