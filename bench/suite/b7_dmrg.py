"""B7: one-site DMRG of the Heisenberg chain, differentiated in all couplings through every sweep.

From a random matrix product state with bonds of the final size, a fixed number of sweeps to the right and back, by when
the energy has converged. Each update finds the lowest eigenvector of the effective Hamiltonian of one site by Lanczos.
The energy is read after every sweep. The loss is the energy, differentiated in the couplings of all bonds.

Ours is `us.networks.dmrg`. The peer is what a user of PyTorch writes: the eigenvector is found outside of the tape, by
SciPy's ARPACK on the memory of the tensors, and an ``autograd.Function`` has
its derivative, by conjugate gradients for (H - E)·w = -P·v̄. Tensors are made isometric by QR, because one site needs no
truncation. The effective Hamiltonian is two matrix products, the same ones as ours.

Two-site updates of ours are a case of their own, without a peer. They choose their bonds anew and cut no multiplets, so
they end in another state, by as much as is truncated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bench.suite.workload import Bar, Form, Options, Outcome, Reference, Row, Special, Workload, outcome

# The relative residual of linear solves in derivatives, which is that of ours, and vectors that Lanczos keeps.
SOLVE_TOL = 1e-10
KRYLOV = 10

# Relative accuracy of eigenvalues, which is that of ours.
EIGEN_TOL = 1e-12


@dataclass(frozen=True)
class Problem:
    """A chain: its length, the size of its bonds, the sweeps to make, and the start."""

    sites: int
    rank: int
    sweeps: int
    start: tuple[Any, ...]


def problem(sites: int, rank: int, sweeps: int) -> Problem:
    """Return a chain with a random start, right-canonical and normalised."""
    random = np.random.default_rng(0)
    bonds = [min(rank, 2**bond, 2 ** (sites - bond)) for bond in range(sites + 1)]
    start = []
    for left, right in pairwise(bonds):
        isometry = np.linalg.qr(random.normal(size=(2 * right, left)))[0].T
        start.append(np.ascontiguousarray(isometry).reshape(left, 2, right))
    return Problem(sites, rank, sweeps, tuple(start))


def reference(problem: Problem) -> Reference:
    """Return the exact energy, which a chain with small bonds misses by what it truncates."""
    from unspool.networks.exact import bethe_energy

    return Reference(bethe_energy(problem.sites), None, 1e-6)


# --- ours ------------------------------------------------------------------------------------------------------------


def driver(problem: Problem, update: int) -> Callable[[], Outcome]:
    """`us.networks.dmrg`."""
    import unspool as us
    from unspool.networks.chain import MPS
    from unspool.networks.dmrg import dmrg
    from unspool.networks.models import heisenberg

    def run() -> Outcome:
        couplings = us.tensor(np.ones(problem.sites - 1))
        start = MPS([us.tensor(array) for array in problem.start])
        found = dmrg(heisenberg(couplings), start, update=update, rank=problem.rank, tol=0.0, max_steps=problem.sweeps)
        return outcome(float(found.energy), found.energy.grad(couplings).numpy(), found.steps)

    return run


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def torch_eager(problem: Problem) -> Callable[[], Outcome]:
    """Sweeps of one-site updates, with the derivative of an eigenvector by hand."""
    import torch

    torch.set_num_threads(1)
    lowest = lowest_pair(torch)

    def run() -> Outcome:
        couplings = torch.ones(problem.sites - 1, dtype=torch.float64, requires_grad=True)
        chain = Chain(torch, lowest, heisenberg_mpo(torch, couplings), [torch.tensor(array) for array in problem.start])
        for _ in range(problem.sweeps):
            energy = chain.sweep()
            if not energy.item() < 0.0:
                break
        (gradient,) = torch.autograd.grad(energy, couplings)
        return outcome(energy.item(), gradient.numpy(), problem.sweeps)

    return run


def heisenberg_mpo(torch: Any, couplings: Any) -> list[Any]:
    """Return Σ J·S·S as a tensor for each site, with the axes (left, out, in, right)."""
    up, z = np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([0.5, -0.5])
    rest, pair = np.zeros((5, 2, 2, 5)), np.zeros((5, 2, 2, 5))
    rest[0, :, :, 0] = rest[4, :, :, 4] = np.eye(2)
    for channel, (first, second) in enumerate(((up, up.T / 2), (up.T, up / 2), (z, z)), start=1):
        pair[0, :, :, channel], rest[channel, :, :, 4] = first, second
    rest, pair = torch.tensor(rest), torch.tensor(pair)
    tensors = [rest + coupling * pair for coupling in couplings] + [rest]
    return [tensors[0][:1], *tensors[1:-1], tensors[-1][..., 4:]]


class Chain:
    """A chain as it stands: tensors, operators, and the environments to the left and to the right of each site."""

    def __init__(self, torch: Any, lowest: Any, operators: list[Any], tensors: list[Any]) -> None:
        self.torch, self.lowest, self.operators, self.tensors = torch, lowest, operators, tensors
        edge = torch.ones(1, 1, 1, dtype=torch.float64)
        self.left, self.right = {0: edge}, {len(tensors): edge}
        for site in range(len(tensors) - 1, 0, -1):
            self.grow_left(site)

    def sweep(self) -> Any:
        """Improve all sites, to the right and back; return the energy."""
        for site in range(len(self.tensors) - 1):
            self.move_right(site)
        for site in range(len(self.tensors) - 1, 0, -1):
            self.move_left(site)
        energy, theta, _ = self.update(0)
        self.tensors[0] = theta.reshape(self.tensors[0].shape)
        return energy

    def update(self, site: int) -> tuple[Any, Any, Any]:
        """Return the lowest energy that a site can reach, its tensor as a matrix, and the block to its left."""
        tensor = self.tensors[site]
        block = self.torch.einsum("awb,wpsm->apmbs", self.left[site], self.operators[site])
        block = block.reshape(2 * block.shape[0], block.shape[2], -1)
        guess = tensor.detach().reshape(-1, tensor.shape[2])
        energy, theta = self.lowest(block, self.right[site + 1], guess)
        return energy, theta, block

    def move_right(self, site: int) -> None:
        """Update a site, leave an isometry there, and take the rest along."""
        _, theta, block = self.update(site)
        basis, rest = self.torch.linalg.qr(theta)
        rows, bond, columns = block.shape
        half = (block.reshape(rows * bond, columns) @ basis).reshape(rows, -1)
        self.left[site + 1] = (basis.T @ half).reshape(-1, bond, basis.shape[1])
        self.tensors[site] = basis.reshape(-1, 2, basis.shape[1])
        self.tensors[site + 1] = self.torch.tensordot(rest, self.tensors[site + 1], 1)

    def move_left(self, site: int) -> None:
        """The mirror image of `move_right`."""
        _, theta, _ = self.update(site)
        shape = self.tensors[site].shape
        basis, rest = self.torch.linalg.qr(theta.reshape(shape[0], -1).T)
        self.tensors[site] = basis.T.reshape(-1, 2, shape[2])
        self.tensors[site - 1] = self.torch.tensordot(self.tensors[site - 1], rest.T, 1)
        self.grow_left(site)

    def grow_left(self, site: int) -> None:
        """Make the environment from an isometric site on."""
        tensor = self.tensors[site]
        basis = tensor.reshape(tensor.shape[0], -1)
        block = self.torch.einsum("mptn,ncd->mtcpd", self.operators[site], self.right[site + 1])
        bond, into, ket, out, bra = block.shape
        self.right[site] = basis @ block.reshape(bond, into * ket, out * bra) @ basis.T


def lowest_pair(torch: Any) -> Callable[..., tuple[Any, Any]]:
    """Return a function of block, environment and guess: the lowest eigenvalue and eigenvector of what they make."""

    class Lowest(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, block: Any, right: Any, guess: Any) -> Any:
            energy, theta = find(torch, partial(apply, block, right), guess)
            ctx.energy = energy
            ctx.save_for_backward(block, right, theta)
            return torch.tensor(energy, dtype=torch.float64), theta

        @staticmethod
        def backward(ctx: Any, energy_bar: Any, theta_bar: Any) -> Any:
            block, right, theta = ctx.saved_tensors
            along = energy_bar * theta - solve(torch, partial(apply, block, right), ctx.energy, theta, theta_bar)
            (rows, bond, columns), (_, ket, bra) = block.shape, right.shape
            after = (right.reshape(bond * ket, bra) @ along.T).reshape(bond, ket, rows)
            before = (block.reshape(rows * bond, columns) @ theta).reshape(rows, bond * ket)
            return (theta @ after).permute(2, 0, 1), (before.T @ along).reshape(right.shape), None

    pair: Callable[..., tuple[Any, Any]] = Lowest.apply
    return pair


def apply(block: Any, right: Any, theta: Any) -> Any:
    """Apply the effective Hamiltonian to a matrix."""
    rows, bond, columns = block.shape
    return (block.reshape(rows * bond, columns) @ theta).reshape(rows, -1) @ right.reshape(-1, right.shape[2])


def find(torch: Any, operator: Callable[[Any], Any], guess: Any) -> tuple[float, Any]:
    """Return the lowest eigenvalue and eigenvector."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    shape, size = guess.shape, guess.numel()

    def matvec(vector: Any) -> Any:
        return operator(torch.from_numpy(vector).reshape(shape)).reshape(-1).numpy()

    if size <= KRYLOV:
        values, vectors = np.linalg.eigh(np.stack([matvec(unit) for unit in np.eye(size)]))
    else:
        matrix = LinearOperator((size, size), matvec, dtype=np.float64)
        values, vectors = eigsh(matrix, 1, which="SA", v0=guess.reshape(-1).numpy(), ncv=KRYLOV, tol=EIGEN_TOL)
    return float(values[0]), torch.from_numpy(np.ascontiguousarray(vectors[:, 0])).reshape(shape)


def solve(torch: Any, operator: Callable[[Any], Any], energy: float, theta: Any, right: Any) -> Any:
    """Solve (H - E)·w = right by conjugate gradients in the complement of the eigenvector."""

    def outside(x: Any) -> Any:
        return x - theta * torch.vdot(theta.reshape(-1), x.reshape(-1))

    residual = outside(right)
    found, direction = torch.zeros_like(residual), residual
    square = residual.square().sum().item()
    stop = SOLVE_TOL**2 * square
    for _ in range(10 * residual.numel()):
        if square <= stop:
            break
        moved = outside(operator(direction) - energy * direction)
        length = square / torch.vdot(direction.reshape(-1), moved.reshape(-1)).item()
        found = found + length * direction
        residual = residual - length * moved
        square, before = residual.square().sum().item(), square
        direction = residual + (square / before) * direction
    return found


def cannot(problem: Problem) -> Callable[[], Outcome]:
    """Nothing: see the reason."""
    raise NotImplementedError


NO_WHILE = "Lanczos stops by looking at values; no reverse mode through while_loop, no eigsh"

# What a chain of each size takes, one site at a time and two.
SIZES = {
    "small": {"sites": 10, "rank": 16, "sweeps": 3},
    "medium": {"sites": 20, "rank": 32, "sweeps": 4},
    "large": {"sites": 50, "rank": 64, "sweeps": 4},
}

ONE_SITE = Workload(
    key="B7",
    title="one-site DMRG",
    sizes=SIZES,
    problem=problem,
    forms=(
        Form("unspool, one site", "unspool", partial(driver, update=1), "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        Form("JAX", "jax", cannot, "peer", reason=NO_WHILE),
    ),
    reference=reference,
    where="bench.suite.b7_dmrg:ONE_SITE",
)

TWO_SITES = Workload(
    key="B7",
    title="two-site DMRG",
    sizes=SIZES,
    problem=problem,
    forms=(Form("unspool, two sites", "unspool", partial(driver, update=2), "ours"),),
    reference=reference,
    where="bench.suite.b7_dmrg:TWO_SITES",
)

# The share of the time for the case without a peer.
TWO_SITES_SHARE = 0.25


def run(options: Options) -> list[Row]:
    """Measure both kinds of updates."""
    from bench.suite.measure import measure

    shares = {"one site": (ONE_SITE, 1.0 - TWO_SITES_SHARE), "two sites": (TWO_SITES, TWO_SITES_SHARE)}
    rows: list[Row] = []
    for case, (workload, share) in shares.items():
        rows += measure(workload, dataclasses.replace(options, seconds=share * options.seconds), case=case)
    return rows


WORKLOAD = Special(
    key="B7",
    title="DMRG, Heisenberg chain, gradient in all couplings",
    run=run,
    bars=(Bar("PyTorch", 1 / 1.5, case="one site"),),
)
