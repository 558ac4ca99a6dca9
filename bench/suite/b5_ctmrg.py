"""B5: the energy of an infinite projected entangled-pair state by corner transfer matrices, and its gradient.

The state is one random tensor of bond size D, made the same from all sides. A ring of corners and edges around it grows
and is cut to rank χ by an eigendecomposition, until the spectrum of the corner moves by less than 1e-10; from the ring
comes the energy of the Heisenberg model. The gradient is that with respect to the random tensor, through all steps or,
for one of ours, at the fixed point.

Peers contract in the order of the program of H.-J. Liao, J.-G. Liu, L. Wang and T. Xiang, Phys. Rev. X 9, 031041
(2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.suite.workload import Form, Outcome, Workload, by_size, outcome

TOL = 1e-10
CUTOFF = 1e-8  # eigenvalues below this much of the largest one are dropped
MOST_STEPS = 500
Problem = dict[str, Any]
Run = Callable[[], Outcome]


def problem(bond: int, rank: int, seed: int) -> Problem:
    """Return the random tensor, with axes (physical, up, left, down, right), and the rank."""
    tensor = np.random.default_rng(seed).standard_normal((2, bond, bond, bond, bond))
    return {"tensor": tensor, "rank": rank, "term": heisenberg()}


def heisenberg() -> np.ndarray:
    """Return S·S of two spins of which one is turned about the y axis, with axes (out, out, in, in)."""
    s_x, i_s_y, s_z = np.array([[[0, 1], [1, 0]], [[0, 1], [-1, 0]], [[1, 0], [0, -1]]]) / 2
    term: np.ndarray = -np.einsum("kab,kcd->acbd", *[np.stack([i_s_y, s_x, s_z])] * 2)
    return term


# --- ours ------------------------------------------------------------------------------------------------------------


def by_unspool(problem: Problem) -> Run:
    """The loop of the package, differentiated through all steps."""
    import unspool as us

    return _unspool(problem, us.Unrolled())


def by_unspool_implicit(problem: Problem) -> Run:
    """The loop of the package, differentiated at the fixed point."""
    import unspool as us

    return _unspool(problem, us.Implicit())


def _unspool(problem: Problem, adjoint: Any) -> Run:
    import unspool as us

    def run() -> Outcome:
        tensor = us.tensor(problem["tensor"])
        site = us.networks.symmetrise(tensor)
        found = us.networks.ipeps_energy(
            site, problem["term"], rank=problem["rank"], tol=TOL, max_steps=MOST_STEPS, cutoff=CUTOFF, adjoint=adjoint
        )
        return outcome(float(found.energy), found.energy.grad(tensor).eval(), found.steps)

    return run


# --- the loop of the peers -------------------------------------------------------------------------------------------


class Functions:
    """What the loop needs of a library; ``values_of`` gives the numbers of an array, outside of what is recorded."""

    def __init__(self, module: Any, *, eigh: Any, transpose: Any, array: Any, values_of: Any) -> None:
        self.einsum, self.tensordot, self.reshape = module.einsum, module.tensordot, module.reshape
        self.norm, self.sum = module.linalg.norm, module.sum
        self.eigh, self.transpose, self.array, self.values_of = eigh, transpose, array, values_of


def energy(p: Functions, leaf: Any, problem: Problem) -> tuple[Any, int]:
    """Return the energy per site and the number of steps, with the functions of any library."""
    tensor = leaf
    for mirror in ((0, 1, 4, 3, 2), (0, 3, 2, 1, 4), (0, 2, 1, 4, 3)):
        tensor = (tensor + p.transpose(tensor, mirror)) / 2
    tensor = tensor / p.norm(p.reshape(tensor, (-1,)))
    bond = tensor.shape[1]
    size = bond * bond
    pairs = p.reshape(p.einsum("puldr,qefgh->uelfdgrhpq", tensor, tensor), (size, size, size, size, 2, 2))
    bulk = pairs[..., 0, 0] + pairs[..., 1, 1]
    corner, edge = p.array(np.ones((1, 1))), p.array(np.eye(bond).reshape(1, size, 1))
    before, change, steps = np.zeros(0), np.inf, 0
    while change >= TOL and steps < MOST_STEPS:
        corner, edge, spectrum = step(p, corner, edge, bulk, problem["rank"])
        change, before, steps = _distance(spectrum, before), spectrum, steps + 1
    side = p.tensordot(p.tensordot(corner, edge, ([1], [0])), corner, ([2], [0]))
    half = p.tensordot(side, edge, ([0], [0]))  # l b u x
    half = p.tensordot(half, pairs, ([0, 2], [1, 0]))  # b x d r p q
    half = p.tensordot(half, edge, ([0, 2], [0, 1]))  # x r p q y
    density = p.tensordot(half, half, ([0, 1, 4], [0, 1, 4]))  # p q s t, in and out for each of the sites
    norm = sum(density[i, i, j, j] for i in range(2) for j in range(2))
    return 2 * p.sum(density * p.array(problem["term"].transpose(0, 2, 1, 3))) / norm, steps


def step(p: Functions, corner: Any, edge: Any, bulk: Any, rank: int) -> tuple[Any, Any, np.ndarray]:
    """Let the ring grow by a site and cut it back; return it, and the spectrum that was kept."""
    old, bond = corner.shape[0], bulk.shape[0]
    grown = p.tensordot(p.tensordot(corner, edge, ([1], [0])), edge, ([0], [0]))  # l e u b
    grown = p.transpose(p.tensordot(grown, bulk, ([0, 2], [1, 0])), (1, 3, 0, 2))  # e b d r to b r e d
    grown = p.reshape(grown, (old * bond, old * bond))
    values, vectors = p.eigh(grown)
    sizes = np.abs(p.values_of(values))
    kept = np.argsort(-sizes, kind="stable")
    kept = np.sort(kept[: min(rank, int(np.sum(sizes > CUTOFF * sizes.max())))])
    isometry = vectors[:, kept]
    corner = p.tensordot(p.tensordot(isometry, grown, ([0], [0])), isometry, ([1], [0]))
    sides = p.reshape(isometry, (old, bond, len(kept)))
    edge = p.tensordot(edge, sides, ([0], [0]))  # u b l k
    edge = p.tensordot(edge, bulk, ([0, 2], [0, 1]))  # b k d r
    edge = p.tensordot(edge, sides, ([0, 3], [0, 1]))  # k d m
    edge = edge + p.transpose(edge, (2, 1, 0))
    spectrum = np.sort(sizes[kept])[::-1]
    return (
        corner / p.norm(p.reshape(corner, (-1,))),
        edge / p.norm(p.reshape(edge, (-1,))),
        spectrum / np.linalg.norm(spectrum),
    )


def _distance(spectrum: np.ndarray, before: np.ndarray) -> float:
    size = max(len(spectrum), len(before))
    return float(np.linalg.norm(np.pad(spectrum, (0, size - len(spectrum))) - np.pad(before, (0, size - len(before)))))


# --- PyTorch and autograd --------------------------------------------------------------------------------------------


def by_torch(problem: Problem) -> Run:
    """PyTorch, eager, with its own rule for ``eigh``, which is finite and right for these tensors."""
    import torch

    functions = Functions(
        torch,
        eigh=torch.linalg.eigh,
        transpose=torch.permute,
        array=torch.tensor,
        values_of=lambda x: x.detach().numpy(),
    )

    def run() -> Outcome:
        tensor = torch.tensor(problem["tensor"], requires_grad=True)
        value, steps = energy(functions, tensor, problem)
        value.backward()
        return outcome(value.item(), tensor.grad.numpy(), steps)

    return run


def by_autograd(problem: Problem) -> Run:
    """HIPS autograd."""
    import autograd
    import autograd.numpy as anp

    functions = Functions(
        anp, eigh=anp.linalg.eigh, transpose=anp.transpose, array=lambda x: x, values_of=lambda x: x._value
    )

    def run() -> Outcome:
        steps = 0

        def loss(tensor: Any) -> Any:
            nonlocal steps
            value, steps = energy(functions, tensor, problem)
            return value

        value, gradient = autograd.value_and_grad(loss)(problem["tensor"])
        return outcome(value, gradient, steps)

    return run


# --- the workload ----------------------------------------------------------------------------------------------------

WORKLOAD = Workload(
    key="B5",
    title="CTMRG and the energy of an infinite PEPS",
    sizes=by_size(bond=(2, 3, 4), rank=(16, 27, 48), seed=0),
    problem=problem,
    forms=(
        Form("unspool, through all steps", "unspool", by_unspool, "ours"),
        Form("unspool, at the fixed point", "unspool", by_unspool_implicit, "ours"),
        Form("PyTorch", "torch", by_torch, "peer"),
        Form("autograd", "autograd", by_autograd, "peer"),
    ),
)
