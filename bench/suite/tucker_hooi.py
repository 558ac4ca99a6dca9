"""The second half of B8: the Tucker decomposition of an n×n×n tensor by HOOI, a number of sweeps from a fixed start.

A sweep replaces each basis by an orthonormal basis of the leading left singular space of the data projected on the
others. The fit is read in each sweep; the loss is the inner product of the approximation with a fixed tensor. Ours is
the driver, whose derivative is that of the space. The others differentiate singular vectors. There is no adjoint by
hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench.suite.loops import Compiled
from bench.suite.workload import Form, Outcome, Workload, by_size, outcome

SWEEPS = 10

Run = Callable[[], Outcome]


class Data(NamedTuple):
    """A tensor, the tensor of the loss, and the bases to start from."""

    tensor: np.ndarray
    weights: np.ndarray
    bases: tuple[np.ndarray, ...]


def hooi_problem(n: int, rank: int) -> Data:
    """Return a tensor of low rank with noise, and random bases."""
    random = np.random.default_rng(n)
    core = random.standard_normal((rank,) * 3)
    factors = [np.linalg.qr(random.standard_normal((n, rank)))[0] for _ in range(3)]
    signal = np.einsum("abc,ia,jb,kc->ijk", core, *factors, optimize=True)
    noise, weights = random.standard_normal((2, n, n, n)) / n**1.5
    bases = tuple(np.linalg.qr(random.standard_normal((n, rank)))[0] for _ in range(3))
    return Data(signal / np.linalg.norm(signal) + 0.1 * noise, weights, bases)


def hooi_driver(problem: Data) -> Run:
    """The driver of ours; a tolerance of 0 makes it take all sweeps."""
    import unspool as us
    from unspool.networks import hooi

    ranks = [basis.shape[1] for basis in problem.bases]

    def run() -> Outcome:
        X = us.tensor(problem.tensor)
        found = hooi(X, ranks, start=problem.bases, tol=0.0, max_steps=SWEEPS)
        loss = us.sum(problem.weights * found.state.full())
        value, gradient = us.eval(loss, loss.grad(X))
        return outcome(value, gradient, found.steps)

    return run


# How the data are projected on the bases of the other two modes, for each mode: two products, and which bases.
_PROJECTIONS = (
    ("ijk,kc->ijc", "ijc,jb->ibc", 2, 1),
    ("ijk,kc->ijc", "ijc,ia->jac", 2, 0),
    ("ijk,ia->ajk", "ajk,jb->kab", 0, 1),
)


def _sweep(library: Any, X: Any, bases: Any) -> tuple[Any, Any]:
    """Replace every basis once, in a library that is like NumPy, and return the bases and the core."""
    bases, rank = list(bases), bases[0].shape[1]
    for mode, (first, second, one, other) in enumerate(_PROJECTIONS):
        block = library.einsum(second, library.einsum(first, X, bases[one]), bases[other])
        unfolded = library.reshape(block, (block.shape[0], rank * rank))
        bases[mode] = library.linalg.svd(unfolded, full_matrices=False)[0][:, :rank]
    return bases, library.einsum("kab,kc->abc", block, bases[2])


def _approximation(library: Any, bases: Any, core: Any) -> Any:
    half = library.einsum("abc,kc->abk", core, bases[2])
    return library.einsum("ibk,jb->ijk", library.einsum("abk,ia->ibk", half, bases[0]), bases[1])


def hooi_torch(problem: Data) -> Run:
    """PyTorch, as its users write it."""
    import torch

    start, weights = [torch.tensor(basis) for basis in problem.bases], torch.tensor(problem.weights)

    def run() -> Outcome:
        X = torch.tensor(problem.tensor, requires_grad=True)
        bases = start
        for _ in range(SWEEPS):
            bases, core = _sweep(torch, X, bases)
            if not torch.sum(core * core).item() > 0.0:
                break
        loss = torch.sum(weights * _approximation(torch, bases, core))
        (gradient,) = torch.autograd.grad(loss, X)
        return outcome(loss.item(), gradient.numpy(), SWEEPS)

    return run


def hooi_autograd(problem: Data) -> Run:
    """HIPS autograd."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    def loss(X: Any) -> Any:
        bases = problem.bases
        for _ in range(SWEEPS):
            bases, core = _sweep(anp, X, bases)
            if not anp.sum(core * core)._value > 0.0:
                break
        return anp.sum(problem.weights * _approximation(anp, bases, core))

    def run() -> Outcome:
        value, gradient = value_and_grad(loss)(problem.tensor)
        return outcome(value, gradient, SWEEPS)

    return run


def hooi_jax(problem: Data) -> Run:
    """JAX, compiled: a scan over the sweeps, with the norms of the cores as its outputs."""
    import jax
    import jax.numpy as jnp

    def loss(X: Any, weights: Any) -> Any:
        def advance(state: Any, _: Any) -> Any:
            bases, core = _sweep(jnp, X, state[0])
            return (bases, core), jnp.sum(core * core)

        state = [jnp.asarray(basis) for basis in problem.bases], jnp.zeros((problem.bases[0].shape[1],) * 3)
        (bases, core), norms = jax.lax.scan(advance, state, None, length=SWEEPS)
        return jnp.sum(weights * _approximation(jnp, bases, core)), len(norms)

    return Compiled(loss, problem.tensor, problem.weights)


HOOI = Workload(
    key="B8",
    title="Tucker decomposition by HOOI",
    sizes=by_size(n=(24, 64, 160), rank=(4, 6, 8)),
    problem=hooi_problem,
    forms=(
        Form("unspool, driver", "unspool", hooi_driver, "ours"),
        Form("PyTorch", "torch", hooi_torch, "peer"),
        Form("JAX scan", "jax", hooi_jax, "peer"),
        Form("autograd", "autograd", hooi_autograd, "peer"),
    ),
    where="bench.suite.tucker_hooi:HOOI",
)
