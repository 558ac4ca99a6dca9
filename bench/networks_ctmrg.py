"""Corner transfer matrices at full size, beside exact and published numbers, and beside PyTorch.

    python bench/networks_ctmrg.py           the tables; exits with 1 if a number is beyond its bar
    python bench/networks_ctmrg.py --quick   without the optimisations; seconds

The table has the magnetisation, the free energy and their slopes of the Ising model (Onsager, Yang; the factor of a
site as PEPSKit prints it), and the best energy of the Heisenberg antiferromagnet with one real C4v tensor, bonds of
size 2 and rank 16, from two random starts and by both kinds of gradient (peps-torch's value, quoted by PEPSKit).

The times are for one energy and its gradient through all steps at a random tensor, least of several rounds. PyTorch, if
it is installed, runs the same loop with its own ``eigh``, on one thread; values and gradients have to agree first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.networks.ctmrg import ctmrg
from unspool.networks.ipeps import heisenberg_bond, ipeps_energy
from unspool.networks.lattice import (
    ising_site,
    partition_per_site,
    product_environment,
    site_expectation,
    symmetrise,
)
from unspool.networks.optimise import minimise

HEISENBERG = -0.6602310934799577
FACTOR = 3.3539286440313774
ROUNDS = 7

# β: ln Z and u of Onsager's solution.
ONSAGER = {0.5: (1.025792812694918, -1.74556457531255), 0.6: (1.210132388288413, -1.90908617768408)}


class Row(NamedTuple):
    """One number, what it should be, and how far it may be off."""

    name: str
    ours: float
    reference: float
    bar: float

    @property
    def met(self) -> bool:
        """Whether the number is within its bar."""
        return abs(self.ours - self.reference) <= self.bar


def ising_rows() -> list[Row]:
    """Return magnetisation, free energy and slopes, at small ranks and at large ones."""
    rows = []
    for beta, rank, bar in ((0.6, 4, 1.5e-8), (0.8, 2, 1.5e-8), (1.0, 2, 1.5e-8), (0.5, 20, 1e-13), (0.6, 20, 1e-13)):
        s, c = np.sinh(2 * beta), np.cosh(2 * beta)
        at = us.tensor(beta)
        site = ising_site(at)
        for adjoint in (us.Unrolled(), us.Implicit()) if rank == 20 else (us.Unrolled(),):
            label = f"β={beta} rank {rank} {type(adjoint).__name__.lower()}"
            found = ctmrg(site.bulk, rank=rank, tol=1e-12, start=product_environment(site.up), adjoint=adjoint)
            m = site_expectation(site.bulk, site.spin, found.state)
            rows.append(Row(f"m      {label}", float(m), (1 - s**-4) ** 0.125, bar))
            if rank == 20:
                factor = partition_per_site(site.bulk, found.state)
                log_z, u = ONSAGER[beta]
                slope = c * s**-5 * (1 - s**-4) ** -0.875
                rows.append(Row(f"ln Z   {label}", float(us.log(factor)), log_z, 1e-13))
                rows.append(Row(f"u      {label}", -float(us.log(factor).grad(at)), u, 1e-11))
                rows.append(Row(f"dm/dβ  {label}", float(m.grad(at)), slope, 1e-9))
                if beta == 0.6:
                    rows.append(Row(f"factor {label}", float(factor), FACTOR, 1e-13))
    return rows


def energy(tensor: us.Tensor, adjoint: Any = None) -> us.Tensor:
    """Return the energy per site of a tensor of any symmetry, after symmetrisation, at rank 16."""
    return ipeps_energy(symmetrise(tensor), heisenberg_bond(), rank=16, adjoint=adjoint).energy


def random_tensor(seed: int) -> Any:
    """Return a start of the optimisation."""
    return np.random.default_rng(seed).standard_normal((2, 2, 2, 2, 2))


def heisenberg_rows() -> list[Row]:
    """Return the best energies found from two starts, with two kinds of gradient."""
    rows = []
    for seed in (0, 1):
        for adjoint in (us.Unrolled(), us.Implicit()):
            begin = time.perf_counter()
            found = minimise(energy, random_tensor(seed), tol=1e-8, args=(adjoint,))
            seconds = time.perf_counter() - begin
            label = f"{type(adjoint).__name__.lower()}, {found.evaluations} evaluations, {seconds:.1f} s"
            rows.append(Row(f"energy start {seed} {label}", float(found.loss), HEISENBERG, 1e-11))
    return rows


def full_table(quick: bool = False) -> list[Row]:
    """Return all numbers."""
    return ising_rows() + ([] if quick else heisenberg_rows())


# --- beside PyTorch --------------------------------------------------------------------------------------------------


def ours(start: Any, adjoint: Any = None) -> tuple[float, Any]:
    """Return energy and gradient."""
    tensor = us.tensor(start)
    value = energy(tensor, adjoint)
    return float(value), value.grad(tensor).eval()


def torch_form(start: Any) -> tuple[float, Any]:
    """Return energy and gradient by the same loop in PyTorch."""
    import torch

    bond = torch.tensor(heisenberg_bond().eval())
    leaf = torch.tensor(start, requires_grad=True)
    tensor = leaf
    for order in ((0, 1, 4, 3, 2), (0, 3, 2, 1, 4), (0, 2, 1, 4, 3)):
        tensor = (tensor + tensor.permute(order)) / 2
    tensor = tensor / torch.linalg.norm(tensor)
    pairs = torch.einsum("puldr,qefgh->uelfdgrhpq", tensor, tensor).reshape(4, 4, 4, 4, 2, 2)
    bulk = torch.einsum("uldrpp->uldr", pairs)
    corner, edge = torch.ones(1, 1, dtype=leaf.dtype), torch.eye(2, dtype=leaf.dtype).reshape(1, 4, 1)
    before, change = torch.zeros(0), 1.0
    while change >= 1e-10:
        row = torch.einsum("aub,uldr->albrd", edge, bulk)
        size = 4 * corner.shape[0]
        side = torch.einsum("ac,cle->ale", corner, edge)
        grown = torch.einsum("ale,albrd->bred", side, row).reshape(size, size)
        values, vectors = torch.linalg.eigh(grown)
        order = torch.argsort(values.abs(), descending=True)[:16]
        isometry = vectors[:, order]
        corner = isometry.T @ grown @ isometry
        sides = isometry.reshape(row.shape[0], 4, -1)
        edge = torch.einsum("kbrd,brm->kdm", torch.einsum("alk,albrd->kbrd", sides, row), sides)
        corner, edge = corner / torch.linalg.norm(corner), (edge + edge.permute(2, 1, 0)) / 2
        edge = edge / torch.linalg.norm(edge)
        spectrum = values.detach()[order].abs()
        spectrum = spectrum / torch.linalg.norm(spectrum)
        change = 1.0 if spectrum.shape != before.shape else torch.linalg.norm(spectrum - before).item()
        before = spectrum
    left = torch.einsum("ac,cld,db->alb", corner, edge, corner)
    half = torch.einsum("lbux,uldrpq->bxdrpq", torch.einsum("alb,aux->lbux", left, edge), pairs)
    half = torch.einsum("bxdrpq,bdy->xrypq", half, edge)
    density = torch.einsum("xrypq,xryst->psqt", half, half)
    value = 2 * (density * bond).sum() / torch.einsum("psps->", density)
    value.backward()
    return value.item(), leaf.grad.numpy()


def times(quick: bool) -> list[tuple[str, float]]:
    """Return milliseconds for energy and gradient; raise if libraries disagree."""
    start = random_tensor(0)
    forms: dict[str, Callable[[], tuple[float, Any]]] = {
        "unspool, through all steps": lambda: ours(start),
        "unspool, at the fixed point": lambda: ours(start, us.Implicit()),
    }
    try:
        import torch

        torch.set_num_threads(1)
        forms["PyTorch, through all steps"] = lambda: torch_form(start)
    except ImportError:
        print("PyTorch is not installed and is left out")
    value, gradient = ours(start)
    for name, form in forms.items():
        other, its_gradient = form()
        if abs(other - value) > 1e-9 or np.abs(its_gradient - gradient).max() > 1e-8:
            raise SystemExit(f"{name} disagrees: energy {other} and {value}")
    least = dict.fromkeys(forms, np.inf)
    for _ in range(1 if quick else ROUNDS):
        for name, form in forms.items():  # in turn, so that a disturbance hits all of them
            begin = time.perf_counter()
            form()
            least[name] = min(least[name], time.perf_counter() - begin)
    return [(name, 1e3 * seconds) for name, seconds in least.items()]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Corner transfer matrices beside exact numbers.")
    parser.add_argument("--quick", action="store_true", help="leave the optimisations out")
    quick = parser.parse_args().quick
    rows = full_table(quick)
    print(f"{'':58s} {'ours':>19s} {'reference':>19s} {'difference':>10s} {'bar':>8s}")
    for row in rows:
        mark = "" if row.met else "  missed"
        difference = row.ours - row.reference
        print(f"{row.name:58s} {row.ours:19.15f} {row.reference:19.15f} {difference:10.1e} {row.bar:8.1e}{mark}")
    print("\nenergy and gradient, bonds of size 2, rank 16, milliseconds")
    for name, milliseconds in times(quick):
        print(f"{name:30s} {milliseconds:8.1f}")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
