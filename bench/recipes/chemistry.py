"""Hartree–Fock over s-Gaussians: a row of atoms, and a triangle whose empty orbitals are degenerate."""

from __future__ import annotations

import math

import numpy as np

from bench.recipes.common import STOPS, Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome


def row(atoms: int) -> Problem:
    """Return atoms in a row, in pairs."""
    steps = np.where(np.arange(atoms) % 2 == 0, 1.4, 2.2)
    heights = np.concatenate([[0.0], np.cumsum(steps)[:-1]])
    return {"places": np.outer(heights, [0.0, 0.0, 1.0]), "electrons": atoms}


def triangle(side: float) -> Problem:
    """Return three atoms with two electrons between them."""
    corners = np.array([[0, 1, 0], [-(0.75**0.5), -0.5, 0], [0.75**0.5, -0.5, 0]])
    return {"places": side / np.sqrt(3) * corners, "electrons": 2}


def plain(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("hartree-fock")

    def run() -> Outcome:
        places = us.tensor(given["places"])
        energy = names["self_consistent"](places, [1] * len(given["places"]), given["electrons"])[0]
        return ours_outcome(energy, (places,))

    return run


def torch_eager(given: Problem) -> Run:
    """Return the same integrals and the same loop in PyTorch."""
    import torch

    names = page("hartree-fock")
    atoms, electrons = len(given["places"]), given["electrons"]
    norms = names["WEIGHTS"] * (2 * names["EXPONENTS"] / np.pi) ** 0.75
    contract = torch.from_numpy(np.kron(np.eye(atoms), norms))
    a = torch.from_numpy(np.tile(names["EXPONENTS"], atoms))

    def squared(v: torch.Tensor) -> torch.Tensor:
        return (v * v).sum(dim=-1)

    def boys(t: torch.Tensor) -> torch.Tensor:
        near = t < 0.2
        series = torch.zeros_like(t)
        for n in range(11, -1, -1):
            series = 1 / (math.factorial(n) * (2 * n + 1)) - t * series
        far = torch.where(near, 1.0, t)
        return torch.where(near, series, 0.5 * torch.sqrt(np.pi / far) * torch.erf(torch.sqrt(far)))

    def integrals(places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        A = places.repeat_interleave(3, dim=0)
        p = a[:, None] + a
        mu = a[:, None] * a / p
        P = (a[:, None, None] * A[:, None] + a[:, None] * A) / p[..., None]
        apart = squared(A[:, None] - A)
        K = torch.exp(-mu * apart)
        S = K * (np.pi / p) ** 1.5
        core = mu * (3 - 2 * mu * apart) * S
        for C in places:
            core = core - 2 * np.pi / p * K * boys(p * squared(P - C))
        q = p[:, :, None, None] + p
        t = p[:, :, None, None] * p / q * squared(P[:, :, None, None] - P)
        repulsion = 2 * np.pi**2.5 / (p[:, :, None, None] * p * torch.sqrt(q)) * K[:, :, None, None] * K * boys(t)
        for _ in range(4):
            repulsion = torch.tensordot(repulsion, contract.T, dims=([0], [0]))
        return contract @ S @ contract.T, contract @ core @ contract.T, repulsion

    def extrapolate(focks: list[torch.Tensor], errors: list[torch.Tensor]) -> torch.Tensor:
        count = len(focks)
        if count == 1:
            return focks[0]
        e = torch.stack(errors).reshape(count, -1)
        bordered = torch.ones((count + 1, count + 1), dtype=torch.float64)
        bordered[:count, :count] = e @ e.T / squared(e[-1])
        bordered[count, count] = 0.0
        right = torch.tensor([0.0] * count + [1.0], dtype=torch.float64)
        return torch.einsum("n,nij->ij", torch.linalg.solve(bordered, right)[:count], torch.stack(focks))

    def run() -> Outcome:
        places = torch.from_numpy(given["places"]).clone().requires_grad_()
        S, core, repulsion = integrals(places)
        levels, vectors = torch.linalg.eigh(S)
        X = (vectors / torch.sqrt(levels)) @ vectors.T
        fock, focks, errors = core, [], []
        while True:
            _, rotated = torch.linalg.eigh(X @ fock @ X)
            occupied = (X @ rotated)[:, : electrons // 2]
            D = occupied @ occupied.T
            fock = core + 2 * torch.einsum("ijkl,kl->ij", repulsion, D) - torch.einsum("ikjl,kl->ij", repulsion, D)
            energy = (D * (core + fock)).sum()
            error = X @ (fock @ D @ S - S @ D @ fock) @ X
            if error.abs().max().item() < 1e-9:
                pairs = [(i, j) for i in range(atoms) for j in range(i)]
                nuclear = sum(1 / torch.sqrt(squared(places[i] - places[j])) for i, j in pairs)
                return torch_outcome(energy + nuclear, (places,))
            focks, errors = [*focks, fock][-6:], [*errors, error][-6:]
            fock = extrapolate(focks, errors)

    return run


FORMS = (Form("unspool, plain loop", "unspool", plain, "ours"), Form("PyTorch", "torch", torch_eager, "peer"))

WORKLOAD = workload("hartree-fock", "atoms in a row", __name__, row, (*FORMS, cannot("JAX", STOPS)), atoms=(2, 8))
TRIANGLE = workload(
    "hartree-fock triangle",
    "three atoms in a triangle",
    f"{__name__}:TRIANGLE",
    triangle,
    (FORMS[0], Form("PyTorch", "torch", torch_eager, "peer", flawed=True)),
    side=(1.65, 1.65),
)
