"""B3: CP decomposition of a noisy tensor by alternating least squares, and the gradient of the residual in the data.

A sweep sets each of three factors in turn to the best one for the other two, so that Σ_r A_ir B_jr C_kr is near X_ijk.
The squared residual is read after each of 30 sweeps, as a stopping test would; then comes its gradient in X, through
all the sweeps.

One text of a sweep serves all libraries. It shares the product X·C between two modes, as good implementations do, and
takes the residual from what the sweep has anyway. ``us.networks.cp_als`` is the driver of the library: the same
algorithm for any number of modes, which also checks that no least-squares problem is singular, and whose residual is
that of X − X̂ itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from bench.suite.loops import Compiled
from bench.suite.workload import Bar, Form, Outcome, Workload, by_size, outcome

NOISE = 0.5
BLOCK = 256  # by hand: how many rows are multiplied at once


class Decomposition(NamedTuple):
    """The data, the factors to start from, and how many sweeps to make."""

    data: Any
    start: tuple[Any, Any, Any]
    sweeps: int


def problem(n: int, rank: int, sweeps: int) -> Decomposition:
    """Return random factors multiplied out, with noise, and other random factors to start from."""
    rng = np.random.default_rng(0)
    truth, start = rng.standard_normal((2, 3, n, rank))
    exact = ((truth[0][:, None] * truth[1]).reshape(n * n, rank) @ truth[2].T).reshape(n, n, n)
    return Decomposition(exact + NOISE * rng.standard_normal((n, n, n)), (start[0], start[1], start[2]), sweeps)


def sweep(p: Any, matrix: Any, norm2: Any, B: Any, C: Any) -> tuple[Any, Any, Any, Any]:
    """Return new factors and the squared residual; ``matrix`` is the data with the first two modes along its rows."""
    (m, rank), n = B.shape, matrix.shape[0] // B.shape[0]
    shared, gram_c = (matrix @ C).reshape((n, m, rank)), C.T @ C
    A = p.linalg.solve((B.T @ B) * gram_c, p.einsum("ijr,jr->ri", shared, B)).T
    gram_a = A.T @ A
    B = p.linalg.solve(gram_a * gram_c, p.einsum("ijr,ir->rj", shared, A)).T
    gram = gram_a * (B.T @ B)
    moments = p.einsum("ir,jr->ijr", A, B).reshape((n * m, rank)).T @ matrix
    C = p.linalg.solve(gram, moments).T
    return A, B, C, norm2 - 2.0 * p.sum(moments * C.T) + p.sum(gram * (C.T @ C))


# --- unspool ---------------------------------------------------------------------------------------------------------


def driver(problem: Decomposition) -> Callable[[], Outcome]:
    """The loop of the library. The tolerance 0 is never met, so it makes all the sweeps."""
    import unspool as us

    def run() -> Outcome:
        X = us.tensor(problem.data)
        found = us.networks.cp_als(X, problem.start, tol=0.0, max_steps=problem.sweeps)
        return outcome(found.residual, found.residual.grad(X), found.steps)

    return run


def ours(problem: Decomposition, form: Literal["plain", "fragment", "iterate"]) -> Callable[[], Outcome]:
    """The loop that the peers have."""
    import unspool as us

    data, start, sweeps = problem
    n = data.shape[0]

    def step(matrix: Any, norm2: Any, B: Any, C: Any) -> Any:
        return sweep(us, matrix, norm2, B, C)

    advance = us.fragment(step) if form == "fragment" else step

    def loop(matrix: Any, norm2: Any) -> tuple[Any, int]:
        _, B, C = start
        B, C, steps, seen = us.tensor(B), us.tensor(C), 0, np.inf
        while steps < sweeps and seen > 0.0:
            _, B, C, residual = advance(matrix, norm2, B, C)
            steps, seen = steps + 1, float(residual)
        return residual, steps

    def inside(matrix: Any, norm2: Any) -> tuple[Any, int]:
        _, B, C = start
        (_, _, residual), steps = us.iterate(
            lambda state: step(matrix, norm2, *state[:2])[1:],
            (us.tensor(B), us.tensor(C), norm2),
            until=lambda state: state[2] <= 0.0,
            max_steps=sweeps,
        )
        return residual, steps

    def run() -> Outcome:
        X = us.tensor(data)
        residual, steps = (inside if form == "iterate" else loop)(X.reshape((n * n, n)), us.sum(X * X))
        return outcome(residual, residual.grad(X), steps)

    return run


# --- peers -----------------------------------------------------------------------------------------------------------


def torch_eager(problem: Decomposition) -> Callable[[], Outcome]:
    """A plain loop."""
    import torch

    data, start, sweeps = problem
    n = data.shape[0]
    first = [torch.from_numpy(factor) for factor in start]

    def run() -> Outcome:
        X = torch.tensor(data, requires_grad=True)
        (_, B, C), matrix, norm2, steps, seen = first, X.reshape(n * n, n), (X * X).sum(), 0, np.inf
        while steps < sweeps and seen > 0.0:
            _, B, C, residual = sweep(torch, matrix, norm2, B, C)
            steps, seen = steps + 1, residual.item()
        (gradient,) = torch.autograd.grad(residual, X)
        return outcome(seen, gradient, steps)

    return run


def jax_loop(problem: Decomposition, form: Literal["scan", "unrolled"]) -> Callable[[], Outcome]:
    """A compiled loop of all the sweeps, as a scan or written out. The residuals of the sweeps come out afterwards."""
    from jax import lax
    from jax import numpy as jnp

    data, start, sweeps = problem
    n = data.shape[0]

    def loss(X: Any, B0: Any, C0: Any) -> Any:
        matrix, norm2 = X.reshape(n * n, n), (X * X).sum()

        def body(state: Any, _: Any) -> Any:
            _, B, C, residual = sweep(jnp, matrix, norm2, *state)
            return (B, C), residual

        if form == "scan":
            _, residuals = lax.scan(body, (B0, C0), None, length=sweeps)
        else:
            state, seen = (B0, C0), []
            for _ in range(sweeps):
                state, residual = body(state, None)
                seen.append(residual)
            residuals = jnp.stack(seen)
        return residuals[-1], (residuals > 0.0).sum()

    return Compiled(loss, data, *start[1:])


def autograd_boxes(problem: Decomposition) -> Callable[[], Outcome]:
    """HIPS autograd: a plain loop on boxed values; a box shows its array."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    data, start, sweeps = problem
    n = data.shape[0]

    def run() -> Outcome:
        steps = 0

        def loss(X: Any) -> Any:
            nonlocal steps
            (_, B, C), matrix, norm2, seen = start, X.reshape((n * n, n)), anp.sum(X * X), np.inf
            while steps < sweeps and seen > 0.0:
                _, B, C, residual = sweep(anp, matrix, norm2, B, C)
                steps, seen = steps + 1, float(residual._value)
            return residual

        value, gradient = value_and_grad(loss)(data)
        return outcome(value, gradient, steps)

    return run


# --- by hand ---------------------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """What a sweep leaves for its adjoint: factors before and after it, rank first, Gram matrices, and X·C."""

    b: Any
    c: Any
    gram_b: Any
    gram_c: Any
    shared: Any
    a_new: Any
    gram_a: Any
    b_new: Any
    gram_b_new: Any
    products: Any
    c_new: Any


def by_hand(problem: Decomposition) -> Callable[[], Outcome]:
    """Rank first, so that all is products of matrices; the gradient of the data is gathered in blocks of sweeps.

    The adjoint of x = S⁻¹ m is y = S⁻¹ x̄, with m̄ = y and S̄ = −y xᵀ, and that of a Gram matrix F Fᵀ is (Ḡ + Ḡᵀ) F.
    """
    data, start, sweeps = problem
    n, rank = start[0].shape
    block = max(1, BLOCK // (2 * rank))  # sweeps

    def run() -> Outcome:
        matrix, norm2 = data.reshape(n * n, n), float(np.vdot(data, data))
        kept, moments = _forward(matrix, start, sweeps, norm2)
        last = kept[-1]
        gram = last.gram_a * last.gram_b_new
        gram_c = last.c_new @ last.c_new.T
        value = norm2 - 2.0 * np.vdot(moments, last.c_new) + np.vdot(gram, gram_c)
        gradient, size = 2.0 * matrix, 2 * rank * min(block, sweeps)
        lefts, rights = np.empty((size, n * n)), np.empty((size, n))
        bars: Any = np.zeros((rank, n)), -2.0 * moments, np.zeros((rank, rank)), gram
        for k, step in enumerate(reversed(kept)):
            rows = slice(2 * (k % block) * rank, 2 * (k % block + 1) * rank)
            extra = (-2.0 * last.c_new, gram_c) if k == 0 else (0.0, 0.0)
            bars = _backward(matrix, step, bars, extra, lefts[rows], rights[rows])
            if (k + 1) % block == 0 or k + 1 == len(kept):
                gradient += lefts[: rows.stop].T @ rights[: rows.stop]
        return outcome(value, gradient, len(kept))

    return run


def _forward(matrix: Any, start: Any, sweeps: int, norm2: float) -> tuple[list[_Kept], Any]:
    """Return what the sweeps leave, and the moments of the last factor."""
    _, b, c = (factor.T.copy() for factor in start)
    kept: list[_Kept] = []
    residual = np.inf
    rank, n = b.shape
    gram_b, gram_c = b @ b.T, c @ c.T
    while len(kept) < sweeps and residual > 0.0:
        shared = (c @ matrix.T).reshape(rank, n, n)
        a_new = np.linalg.solve(gram_b * gram_c, np.matmul(shared, b[:, :, None])[:, :, 0])
        gram_a = a_new @ a_new.T
        b_new = np.linalg.solve(gram_a * gram_c, np.matmul(a_new[:, None, :], shared)[:, 0, :])
        gram_b_new = b_new @ b_new.T
        products = (a_new[:, :, None] * b_new[:, None, :]).reshape(rank, n * n)
        gram, moments = gram_a * gram_b_new, products @ matrix
        c_new = np.linalg.solve(gram, moments)
        kept.append(_Kept(b, c, gram_b, gram_c, shared, a_new, gram_a, b_new, gram_b_new, products, c_new))
        b, c, gram_b, gram_c = b_new, c_new, gram_b_new, c_new @ c_new.T
        residual = norm2 - 2.0 * np.vdot(moments, c) + np.vdot(gram, gram_c)
    return kept, moments


def _backward(matrix: Any, kept: _Kept, bars: Any, extra: Any, left: Any, right: Any) -> Any:
    """Take the adjoints of B, C and their Gram matrices back through a sweep.

    ``extra`` is what the residual adds for moments and system of the last factor. The factors of what the sweep adds to
    the gradient of the data are written to ``left`` and ``right``.
    """
    b, c, gram_b, gram_c, shared, a_new, gram_a, b_new, gram_b_new, products, c_new = kept
    b_bar, c_bar, gram_b_bar, gram_c_bar = bars
    rank, n = b.shape
    y = np.linalg.solve(gram_a * gram_b_new, c_bar + (gram_c_bar + gram_c_bar.T) @ c_new)
    moments_bar, system_bar = y + extra[0], extra[1] - y @ c_new.T
    gram_a_bar, gram_b_bar = system_bar * gram_b_new, gram_b_bar + system_bar * gram_a
    left[:rank], right[:rank] = products, moments_bar
    products_bar = (moments_bar @ matrix.T).reshape(rank, n, n)
    a_bar = np.matmul(products_bar, b_new[:, :, None])[:, :, 0]
    b_bar = b_bar + np.matmul(a_new[:, None, :], products_bar)[:, 0, :]
    y = np.linalg.solve(gram_a * gram_c, b_bar + (gram_b_bar + gram_b_bar.T) @ b_new)
    system_bar = -y @ b_new.T
    gram_a_bar, gram_c_bar = gram_a_bar + system_bar * gram_c, system_bar * gram_a
    shared_bar = np.multiply(a_new[:, :, None], y[:, None, :], out=left[rank:].reshape(rank, n, n))
    a_bar += np.matmul(shared, y[:, :, None])[:, :, 0]
    y = np.linalg.solve(gram_b * gram_c, a_bar + (gram_a_bar + gram_a_bar.T) @ a_new)
    system_bar = -y @ a_new.T
    shared_bar += y[:, :, None] * b[:, None, :]
    right[rank:] = c
    b_bar = np.matmul(y[:, None, :], shared)[:, 0, :]
    return b_bar, left[rank:] @ matrix, system_bar * gram_c, gram_c_bar + system_bar * gram_b


# --- the workload ----------------------------------------------------------------------------------------------------


_COMPILES = dict.fromkeys(("medium", "large"), "30 sweeps written out compile for up to a minute")

WORKLOAD = Workload(
    key="B3",
    title="CP-ALS, 30 sweeps",
    sizes=by_size(n=(20, 60, 150), rank=(4, 8, 16), sweeps=30),
    problem=problem,
    forms=(
        Form("unspool, driver", "unspool", driver, "ours"),
        Form("unspool, plain", "unspool", partial(ours, form="plain"), "ours"),
        Form("unspool, fragment", "unspool", partial(ours, form="fragment"), "ours"),
        Form("unspool, iterate", "unspool", partial(ours, form="iterate"), "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        Form("JAX scan", "jax", partial(jax_loop, form="scan"), "peer"),
        Form("JAX unrolled", "jax", partial(jax_loop, form="unrolled"), "peer", limits=_COMPILES),
        Form("autograd", "autograd", autograd_boxes, "peer"),
        Form("by hand", "numpy", by_hand, "limit"),
    ),
    bars=(Bar("peer", 1.0), Bar("limit", 1.3)),
)
