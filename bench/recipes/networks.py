"""An infinite state's energy through corner transfer matrices, and DMRG with a conserved charge."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import STOPS, Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome


def tensor(chi: int) -> Problem:
    """Return a random tensor and the number of states to keep."""
    return {"A": np.random.default_rng(0).standard_normal((2, 2, 2, 2, 2)), "chi": chi}


def ipeps(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("ipeps")

    def run() -> Outcome:
        A = us.tensor(given["A"])
        return ours_outcome(names["energy_per_site"](A, names["bond"], given["chi"]), (A,))

    return run


def ipeps_torch(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    bond, chi = torch.from_numpy(page("ipeps")["bond"]), given["chi"]

    def run() -> Outcome:
        leaf = torch.from_numpy(given["A"]).clone().requires_grad_()
        A = leaf
        for axes in ((0, 2, 3, 4, 1), (0, 3, 4, 1, 2), (0, 3, 2, 1, 4), (0, 2, 1, 4, 3)):
            A = A + A.permute(axes)
        A = A / torch.linalg.norm(A)
        a = torch.einsum("puldr,pULDR->uUlLdDrR", A, A).reshape(4, 4, 4, 4)
        traced = torch.eye(2, dtype=torch.float64).reshape(4)
        C, E = torch.einsum("uldr,u,l->rd", a, traced, traced), torch.einsum("uldr,u->ldr", a, traced)
        last = np.zeros(chi)
        while True:
            corner = torch.einsum("xy,xuX->yuX", C, E)
            corner = torch.einsum("yuX,ylY->uXlY", corner, E)
            corner = torch.einsum("uXlY,uldr->XrYd", corner, a)
            edge = torch.einsum("xuX,uldr->xldXr", E, a)
            size = corner.shape[0] * corner.shape[1]
            corner, edge = corner.reshape(size, size), edge.reshape(size, 4, size)
            weights, vectors = torch.linalg.eigh((corner + corner.T) / 2)
            kept = np.argsort(-abs(weights.detach().numpy()))[:chi]
            P = vectors[:, kept.copy()]
            C, E = P.T @ corner @ P, torch.einsum("xX,xdy->Xdy", P, edge) @ P
            C, E = C / torch.linalg.norm(C), E / torch.linalg.norm(E)
            spectrum = np.abs(weights.detach().numpy()[kept])
            spectrum = np.pad(spectrum / spectrum[0], (0, chi - len(kept)))
            change, last = np.abs(spectrum - last).max(), spectrum
            if change < 1e-9:
                break
        site = torch.einsum("puldr,PULDR->pPuUlLdDrR", A, A).reshape(2, 2, 4, 4, 4, 4)
        half = torch.einsum("ab,blc->alc", C, E)
        half = torch.einsum("alc,ce->ale", half, C)
        half = torch.einsum("ale,edf->aldf", half, E)
        half = torch.einsum("aldf,aug->ldfug", half, E)
        half = torch.einsum("ldfug,pPuldr->grfpP", half, site)
        density = torch.einsum("grfpP,grfqQ->pqPQ", half, half)
        energy = 2 * (density * bond).sum() / torch.einsum("pqpq->", density)
        return torch_outcome(energy, (leaf,))

    return run


IPEPS = workload(
    "ipeps",
    "an infinite state",
    f"{__name__}:IPEPS",
    tensor,
    (
        Form("unspool, plain loop", "unspool", ipeps, "ours"),
        Form("PyTorch", "torch", ipeps_torch, "peer"),
        cannot("JAX", STOPS),
    ),
    chi=(4, 24),
)


def chain(sites: int) -> Problem:
    """Return the couplings of a chain."""
    return {"J": np.ones(sites - 1)}


def blocks(given: Problem) -> Run:
    """Return the loop of the page, over blocks."""
    import unspool as us

    names = page("symmetric-dmrg")

    def run() -> Outcome:
        J = us.tensor(given["J"])
        return ours_outcome(names["dmrg"](J, 16)[0], (J,))

    return run


def dense(given: Problem) -> Run:
    """Return the dense loop of the library, from the same start."""
    import unspool as us
    from unspool import networks as nw

    def run() -> Outcome:
        J = us.tensor(given["J"])
        start = nw.product_state([np.eye(2)[i % 2] for i in range(len(given["J"]) + 1)])
        return ours_outcome(nw.dmrg(nw.heisenberg(J), start, rank=16, tol=1e-9).energy, (J,))

    return run


def dense_torch(given: Problem) -> Run:
    """Return sweeps of one site in PyTorch, an eigenvector's derivative by hand; these bonds truncate nothing."""
    from bench.suite import b7_dmrg

    return b7_dmrg.torch_eager(b7_dmrg.problem(len(given["J"]) + 1, rank=16, sweeps=3))


SYMMETRIC = workload(
    "symmetric-dmrg",
    "DMRG with a charge",
    f"{__name__}:SYMMETRIC",
    chain,
    (
        Form("unspool, blocks of symmray", "unspool", blocks, "ours"),
        Form("unspool, `us.networks.dmrg`", "unspool", dense, "ours"),
        Form("PyTorch, dense, derivative of an eigenvector by hand", "torch", dense_torch, "peer"),
        cannot("JAX", STOPS),
    ),
    sites=(4, 8),
)
