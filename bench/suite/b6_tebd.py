"""B6: imaginary-time TEBD of the transverse-field Ising chain, with ranks that follow the spectrum.

A hundred steps of dt = 0.1 from the product state along the field. A step is a sweep of half gates e^(-dt·h_b / 2) to
the right and one back; after each gate as many singular values are kept as are above 1e-10 of the largest, and at most
`rank`. The energy is read after every step. The loss is the energy at the end, differentiated in the field.

Ours is `us.networks.tebd`, as users call it. The peers are the same sweeps, written once over the functions that
PyTorch and NumPy share. PyTorch's own derivative of the singular value decomposition divides by gaps between dropped
values and is NaN where two of them are equal. Users of tensor networks put an ``autograd.Function`` there; this one
divides by no more gaps than needed, those between kept and dropped values. Energies on the way are read without
recording them.

Ten sites are held to the same loop on the whole vector, without truncation. Longer chains are held to the exact ground
state, which the loop misses by its error in dt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.suite.workload import Bar, Form, Outcome, Reference, Workload, outcome

FIELD, STEP, CUTOFF = 1.5, 0.1, 1e-10

# The longest chain whose whole vector is moved for the reference, and how far longer ones may be off: a share of dt².
DENSE = 10
TROTTER = 1e-4


@dataclass(frozen=True)
class Problem:
    """A chain: its length, the largest bond, and the steps to take."""

    sites: int
    rank: int
    steps: int


def reference(problem: Problem) -> Reference:
    """Return energy and dE/dh of the loop without truncation, or of the exact ground state."""
    if problem.sites > DENSE:
        u, s, vh = np.linalg.svd(FIELD * np.eye(problem.sites) + np.eye(problem.sites, k=1))
        return Reference(-float(np.sum(s)), np.array([-np.trace(u @ vh)]), TROTTER)
    from bench.networks_tebd import dense_loop

    energy, slope = dense_loop(problem.sites, STEP, problem.steps)
    return Reference(energy, np.array([slope]), 1e-8)


# --- ours ------------------------------------------------------------------------------------------------------------


def driver(problem: Problem) -> Callable[[], Outcome]:
    """`us.networks.tebd`."""
    import unspool as us
    from unspool.networks.chain import product_state
    from unspool.networks.models import ising_bonds
    from unspool.networks.tebd import tebd

    def run() -> Outcome:
        h = us.tensor(FIELD)
        bonds = ising_bonds(us.ones(problem.sites - 1), us.ones(problem.sites) * h)
        start = product_state([[1.0, 1.0]] * problem.sites)
        found = tebd(bonds, start, step=STEP, steps=problem.steps, rank=problem.rank, cutoff=CUTOFF)
        return outcome(float(found.energy), found.energy.grad(h).numpy(), found.steps)

    return run


# --- the loop of the peers -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """What the loop asks of a library beside the functions that NumPy and PyTorch have in common.

    ``split(matrix, rank)`` returns an orthonormal basis of the columns of a matrix that is cut down to a rank, and the
    rest of it; ``read`` looks at a number, ``unrecorded`` is for what is only looked at.
    """

    p: Any
    constant: Callable[[Any], Any]
    matrix_exp: Callable[[Any], Any]
    split: Callable[[Any, int], tuple[Any, Any]]
    read: Callable[[Any], float]
    unrecorded: Callable[[], Any]


def loop(lib: Library, h: Any, problem: Problem) -> Any:
    """Return the energy after all steps."""
    terms = bond_terms(lib, h, problem.sites)
    gates = [lib.matrix_exp(-0.5 * STEP * term) for term in terms]
    tensors = [lib.constant(np.full((1, 2, 1), 0.5**0.5)) for _ in range(problem.sites)]
    for _ in range(problem.steps):
        sweep_right(lib, tensors, gates, problem.rank)
        sweep_left(lib, tensors, gates, problem.rank)
        with lib.unrecorded():
            value = lib.read(energy_of(lib, tensors, terms))
        if not value < 0.0:
            break
    return energy_of(lib, tensors, terms)


def bond_terms(lib: Library, h: Any, sites: int) -> list[Any]:
    """Return the matrices -Z·Z - h·X of all bonds; inner sites share their field between two."""
    flip, one = np.array([[0.0, 1.0], [1.0, 0.0]]), np.eye(2)
    pair = lib.constant(np.diag([-1.0, 1.0, 1.0, -1.0]))
    terms = []
    for b in range(sites - 1):
        left, right = (1.0 if b == 0 else 0.5), (1.0 if b == sites - 2 else 0.5)
        terms.append(pair - h * lib.constant(left * np.kron(flip, one) + right * np.kron(one, flip)))
    return terms


def joined(lib: Library, gate: Any, left: Any, right: Any) -> Any:
    """Return two sites after a gate, as a matrix."""
    pair = lib.p.tensordot(left, right, 1).reshape(left.shape[0], 4, right.shape[2])
    return (gate @ pair).reshape(2 * left.shape[0], 2 * right.shape[2])


def sweep_right(lib: Library, tensors: list[Any], gates: list[Any], rank: int) -> None:
    """Apply the gates from left to right, leaving isometries."""
    for b, gate in enumerate(gates):
        basis, rest = lib.split(joined(lib, gate, tensors[b], tensors[b + 1]), rank)
        tensors[b] = basis.reshape(-1, 2, basis.shape[1])
        tensors[b + 1] = rest.reshape(rest.shape[0], 2, -1)
    tensors[-1] = tensors[-1] / lib.p.sqrt(lib.p.sum(tensors[-1] * tensors[-1]))


def sweep_left(lib: Library, tensors: list[Any], gates: list[Any], rank: int) -> None:
    """Apply the gates from right to left."""
    for b in reversed(range(len(gates))):
        basis, rest = lib.split(joined(lib, gates[b], tensors[b], tensors[b + 1]).T, rank)
        tensors[b + 1] = basis.T.reshape(basis.shape[1], 2, -1)
        tensors[b] = rest.T.reshape(-1, 2, rest.shape[0])
    tensors[0] = tensors[0] / lib.p.sqrt(lib.p.sum(tensors[0] * tensors[0]))


def energy_of(lib: Library, tensors: list[Any], terms: list[Any]) -> Any:
    """Return ⟨H⟩; the first site is the centre, so what is to the right of a bond is isometric."""
    total, left = 0.0, lib.constant(np.ones((1, 1)))
    for term, tensor, after in zip(terms, tensors, tensors[1:], strict=False):
        moved = lib.p.tensordot(left, tensor, 1)
        bra = lib.p.tensordot(tensor, after, 1).reshape(tensor.shape[0], 4, -1)
        ket = lib.p.tensordot(moved, after, 1).reshape(tensor.shape[0], 4, -1)
        total = total + lib.p.sum(bra * (term @ ket))
        left = tensor.reshape(-1, tensor.shape[2]).T @ moved.reshape(-1, tensor.shape[2])
    return total


def kept(values: list[float], rank: int) -> int:
    """Return how many singular values to keep."""
    return min(max(sum(value > CUTOFF * values[0] for value in values), 1), rank)


# --- peers -----------------------------------------------------------------------------------------------------------


def torch_eager(problem: Problem, safe: bool) -> Callable[[], Outcome]:
    """PyTorch, with its own derivative of the decomposition or with the safe one."""
    import torch

    torch.set_num_threads(1)

    def native_split(matrix: Any, rank: int) -> tuple[Any, Any]:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        count = kept(s.tolist(), rank)
        return u[:, :count], s[:count, None] * vh[:count]

    library = Library(
        p=torch,
        constant=torch.tensor,
        matrix_exp=torch.linalg.matrix_exp,
        split=safe_split(torch) if safe else native_split,
        read=lambda number: number.item(),
        unrecorded=torch.no_grad,
    )

    def run() -> Outcome:
        h = torch.tensor(FIELD, dtype=torch.float64, requires_grad=True)
        energy = loop(library, h, problem)
        (slope,) = torch.autograd.grad(energy, h)
        return outcome(energy.item(), slope.numpy(), problem.steps)

    return run


def safe_split(torch: Any) -> Callable[[Any, int], tuple[Any, Any]]:
    """Return a truncated decomposition A ≈ L·(Lᵀ·A) whose derivative divides by gaps of kept to dropped values alone.

    What follows does not depend on the basis that L is, so L moves out of the kept space only.
    """

    class Split(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, matrix: Any, rank: int) -> Any:
            u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
            ctx.kept = count = kept(s.tolist(), rank)
            ctx.save_for_backward(u, s, vh)
            return u[:, :count], s[:count, None] * vh[:count]

        @staticmethod
        def backward(ctx: Any, basis_bar: Any, rest_bar: Any) -> Any:
            u, s, vh = ctx.saved_tensors
            leading, others, si = u[:, : ctx.kept], u[:, ctx.kept :], s[: ctx.kept]
            sj, dropped = s[ctx.kept :, None], vh[ctx.kept :]
            gap = (si - sj) * (si + sj)
            from_basis, from_rest = others.T @ basis_bar, dropped @ rest_bar.T
            leaving = (basis_bar - leading @ (leading.T @ basis_bar)) / si
            leaving = leaving + others @ ((sj * sj / (si * gap)) * from_basis + (si * sj / gap) * from_rest)
            arriving = (sj / gap) * from_basis + (sj * sj / gap) * from_rest
            return leading @ (rest_bar + arriving.T @ dropped) + leaving @ vh[: ctx.kept], None

    split: Callable[[Any, int], tuple[Any, Any]] = Split.apply
    return split


def native(problem: Problem) -> Callable[[], Outcome]:
    """PyTorch as it is."""
    return torch_eager(problem, safe=False)


def safe(problem: Problem) -> Callable[[], Outcome]:
    """PyTorch with a derivative of the truncated decomposition by hand."""
    return torch_eager(problem, safe=True)


def hips(problem: Problem) -> Callable[[], Outcome]:
    """HIPS autograd, with its own derivative of the decomposition."""
    import contextlib

    import autograd.numpy as anp
    from autograd import value_and_grad
    from autograd.tracer import getval

    def expm(matrix: Any) -> Any:  # autograd's own has no derivative
        values, vectors = anp.linalg.eigh(matrix)
        return (vectors * anp.exp(values)) @ vectors.T

    def split(matrix: Any, rank: int) -> tuple[Any, Any]:
        u, s, vh = anp.linalg.svd(matrix, full_matrices=False)
        count = kept(getval(s).tolist(), rank)
        return u[:, :count], s[:count, None] * vh[:count]

    library = Library(anp, np.asarray, expm, split, lambda number: float(getval(number)), contextlib.nullcontext)
    function = value_and_grad(lambda h: loop(library, h, problem))

    def run() -> Outcome:
        with np.errstate(all="ignore"):
            energy, slope = function(FIELD)
        return outcome(energy, slope, problem.steps)

    return run


def no_jax(problem: Problem) -> Callable[[], Outcome]:
    """Nothing: see the reason."""
    raise NotImplementedError


LONG = "minutes for one gradient"

WORKLOAD = Workload(
    key="B6",
    title="imaginary-time TEBD, Ising chain, rank by cutoff, 100 steps",
    sizes={
        "small": {"sites": 10, "rank": 16, "steps": 100},
        "medium": {"sites": 20, "rank": 16, "steps": 100},
        "large": {"sites": 50, "rank": 32, "steps": 100},
    },
    problem=Problem,
    forms=(
        Form("unspool, tebd", "unspool", driver, "ours"),
        Form("PyTorch", "torch", native, "peer"),
        Form("PyTorch, safe SVD", "torch", safe, "peer"),
        Form("autograd", "autograd", hips, "peer", flawed=True, limits={"large": LONG}),
        Form("JAX", "jax", no_jax, "peer", reason="ranks are read from values, shapes under jit are fixed"),
    ),
    reference=reference,
    bars=(Bar("PyTorch, safe SVD", 1 / 1.5),),
)
