"""Decompositions beside their reference numbers, and CP-ALS beside an adjoint written by hand.

    python bench/networks_als.py             the tables
    python bench/networks_als.py --quick     few starts and small tensors, to check the script

The tables of numbers: factors of rank 5 recovered from 20 random starts; errors and ranks of TT-SVD for 1/(i₁+…+i₅+1),
sin(i₁+…+i₅) and i₁+…+i₅ on 10⁵ points; gradients at convergence beside what the envelope theorem says.

The table of times: 30 sweeps of CP-ALS, the fit read in each, and the gradient of the squared residual in the data.
The adjoint by hand shares the same contractions, and adds up the gradient of the data in one matrix product at the
end. It is the limit; what ours takes beside it is printed. CPU time, the least of several rounds in turn.

Exits with 1 if a number is further from its reference than its bar, or if the two gradients differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import unspool as us
from unspool.networks.als import CP, cp_als, random_cp
from unspool.networks.tensor_train import tt_als, tt_svd
from unspool.networks.tucker import hooi

HILBERT_ERRORS = {1: 0.12731051303, 2: 0.030198511308, 3: 0.0049768028447, 4: 0.00060285528876}
HILBERT_RANKS = {1e-6: (7, 7, 7, 7), 1e-10: (9, 10, 10, 9)}


# --- numbers ---------------------------------------------------------------------------------------------------------


def full_table(quick: bool = False) -> int:
    """Print ours, the reference and the difference, and return how many numbers are beyond their bar."""
    print(f"{'':46}{'ours':>18}{'reference':>18}{'difference':>12}")
    return recovery(4 if quick else 20) + trains() + envelope()


def line(what: str, ours: float, reference: float, bar: float) -> int:
    """Print a row, and return 1 if it is beyond its bar."""
    missed = not abs(ours - reference) <= bar
    print(f"{what:<46}{ours:>18.12g}{reference:>18.12g}{ours - reference:>12.1e}{'  MISS' if missed else ''}")
    return int(missed)


def recovery(starts: int) -> int:
    """Random factors of rank 5 in 20³ from random starts: all are found."""
    rng = np.random.default_rng(0)
    data = CP([rng.standard_normal((20, 5)) for _ in range(3)]).full().eval()
    runs = [cp_als(data, 5, seed=100 + start, tol=1e-15, max_steps=3000) for start in range(starts)]
    errors = [np.linalg.norm(data - run.state.full().eval()) / np.linalg.norm(data) for run in runs]
    print(f"(sweeps from these starts: median {np.median([run.steps for run in runs]):.0f})")
    return line(f"starts of {starts} with an error below 1e-7", sum(e < 1e-7 for e in errors), starts, 0.0)


def trains() -> int:
    """TT-SVD of functions of a sum of five indices."""
    sums = np.indices((10,) * 5).sum(axis=0)
    data = 1.0 / (sums + 1.0)
    missed = 0
    for rank, error in HILBERT_ERRORS.items():
        found = np.linalg.norm(data - tt_svd(data, rank).full().eval()) / np.linalg.norm(data)
        missed += line(f"TT-SVD of 1/(Σi + 1), rank {rank}", float(found), error, 1e-10 * error)
    for cutoff, ranks in HILBERT_RANKS.items():
        train = tt_svd(data, cutoff=cutoff)
        for bond, (mine, other) in enumerate(zip(train.ranks, ranks, strict=True)):
            missed += line(f"TT-SVD of 1/(Σi + 1) to {cutoff}, rank of bond {bond}", mine, other, 0)
    for name, values in {"sin Σi": np.sin(sums), "Σi": sums}.items():
        missed += line(f"largest rank of {name}", max(tt_svd(values).ranks), 2, 0)
    return missed


def envelope() -> int:
    """At convergence, d/dX ‖X - X̂‖² = 2 (X - X̂)."""
    rng = np.random.default_rng(1)
    data = us.tensor(random_cp((10, 9, 8), 3, seed=2).full().eval() + 0.3 * rng.standard_normal((10, 9, 8)))
    missed = 0
    for name, loop in {"CP-ALS": cp_als, "HOOI": hooi, "TT-ALS": tt_als}.items():
        found = loop(data, 3, tol=0.0, max_steps=400)
        gradient, expected = us.eval(found.residual.grad(data), 2 * (data - found.state.full()))
        what = f"{name}: gradient through {found.steps} sweeps, off by"
        missed += line(what, float(np.linalg.norm(gradient - expected) / np.linalg.norm(expected)), 0.0, 1e-9)
    return missed


# --- times -----------------------------------------------------------------------------------------------------------


def ours(data: Any, start: list[Any], sweeps: int) -> tuple[float, Any]:
    """The loop of the library and its gradient."""
    leaf = us.tensor(data)
    found = cp_als(leaf, CP([us.tensor(factor) for factor in start]), tol=0.0, max_steps=sweeps)
    return float(found.residual), found.residual.grad(leaf).eval()


def by_hand(data: Any, start: list[Any], sweeps: int) -> tuple[float, Any]:
    """Three modes: the same contractions, rank first as in the library, and their adjoint, written out."""
    (n0, n1, n2), rank = data.shape, start[0].shape[1]
    matrix, square = data.reshape(n0 * n1, n2), float(np.vdot(data, data))
    b, c = [factor.T.copy() for factor in start[1:]]
    gram_b, gram_c = b @ b.T, c @ c.T
    tape = []
    for _ in range(sweeps):
        shared = (c @ matrix.T).reshape(rank, n0, n1)
        system_a = gram_b * gram_c
        new_a = np.linalg.solve(system_a, np.matmul(shared, b[:, :, None])[:, :, 0])
        gram_a = new_a @ new_a.T
        system_b = gram_a * gram_c
        new_b = np.linalg.solve(system_b, np.matmul(new_a[:, None, :], shared)[:, 0, :])
        new_gram_b = new_b @ new_b.T
        products = (new_a[:, :, None] * new_b[:, None, :]).reshape(rank, n0 * n1)
        system_c, moments = gram_a * new_gram_b, products @ matrix
        new_c = np.linalg.solve(system_c, moments)
        new_gram_c = new_c @ new_c.T
        residual = square - 2 * np.vdot(moments, new_c) + np.vdot(system_c, new_gram_c)
        kept = (b, c, gram_b, gram_c, shared, system_a, new_a, gram_a, system_b, new_b, new_gram_b, products, system_c)
        tape.append((*kept, new_c))
        b, c, gram_b, gram_c = new_b, new_c, new_gram_b, new_gram_c
    bar_b, bar_c = np.zeros_like(b), -2 * moments
    bar_gram_b, bar_gram_c = np.zeros((rank, rank)), system_c
    extra_moments, extra_system = -2 * new_c, new_gram_c
    lefts, rights = [], []
    for step in reversed(tape):
        (
            b,
            c,
            gram_b,
            gram_c,
            shared,
            system_a,
            new_a,
            gram_a,
            system_b,
            new_b,
            new_gram_b,
            products,
            system_c,
            new_c,
        ) = step
        y = np.linalg.solve(system_c, bar_c + (bar_gram_c + bar_gram_c.T) @ new_c)
        bar_moments, bar_system = y + extra_moments, extra_system - y @ new_c.T
        extra_moments = extra_system = 0.0
        bar_gram_a, bar_gram_b = bar_system * new_gram_b, bar_gram_b + bar_system * gram_a
        lefts.append(products), rights.append(bar_moments)
        bar_products = (bar_moments @ matrix.T).reshape(rank, n0, n1)
        bar_a = np.matmul(bar_products, new_b[:, :, None])[:, :, 0]
        bar_b = bar_b + np.matmul(new_a[:, None, :], bar_products)[:, 0, :]
        y = np.linalg.solve(system_b, bar_b + (bar_gram_b + bar_gram_b.T) @ new_b)
        bar_system = -y @ new_b.T
        bar_gram_a, bar_gram_c = bar_gram_a + bar_system * gram_c, bar_system * gram_a
        bar_shared = new_a[:, :, None] * y[:, None, :]
        bar_a = bar_a + np.matmul(shared, y[:, :, None])[:, :, 0]
        y = np.linalg.solve(system_a, bar_a + (bar_gram_a + bar_gram_a.T) @ new_a)
        bar_system = -y @ new_a.T
        bar_gram_b, bar_gram_c = bar_system * gram_c, bar_gram_c + bar_system * gram_b
        bar_shared += y[:, :, None] * b[:, None, :]
        bar_b = np.matmul(y[:, None, :], shared)[:, 0, :]
        bar_shared = bar_shared.reshape(rank, n0 * n1)
        lefts.append(bar_shared), rights.append(c)
        bar_c = bar_shared @ matrix
    gradient = 2 * matrix + np.concatenate(lefts).T @ np.concatenate(rights)
    return float(residual), gradient.reshape(data.shape)


def times(size: int, rank: int, sweeps: int, rounds: int) -> int:
    """Print the least time of each form, and return 1 if the gradients differ."""
    rng = np.random.default_rng(0)
    truth, start = ([rng.standard_normal((size, rank)) for _ in range(3)] for _ in range(2))
    data = CP(truth).full().eval() + 0.5 * rng.standard_normal((size,) * 3)
    forms: dict[str, Callable[..., tuple[float, Any]]] = {"by hand": by_hand, "cp_als": ours}
    results = {name: form(data, start, sweeps) for name, form in forms.items()}
    (value, gradient), (mine, mine_gradient) = results["by hand"], results["cp_als"]
    apart = max(abs(mine / value - 1), float(np.linalg.norm(mine_gradient - gradient) / np.linalg.norm(gradient)))
    least = dict.fromkeys(forms, float("inf"))
    for _ in range(rounds):
        for name, form in forms.items():
            begin = time.process_time()
            form(data, start, sweeps)
            least[name] = min(least[name], time.process_time() - begin)
    print(f"\nCP-ALS {size}³, rank {rank}, {sweeps} sweeps, value and gradient: ", end="")
    print(", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in least.items()), end="")
    print(f"; ratio {least['cp_als'] / least['by hand']:.2f}, gradients differ by {apart:.1e}")
    return int(not apart < 1e-9)


def main() -> int:
    """Print all tables, and return what to exit with."""
    parser = argparse.ArgumentParser(description="Decompositions beside their reference numbers.")
    parser.add_argument("--quick", action="store_true", help="few starts and small tensors")
    quick = parser.parse_args().quick
    missed = full_table(quick)
    for size, rank in ((20, 4),) if quick else ((20, 4), (60, 8), (150, 16)):
        missed += times(size, rank, 30, 2 if quick else 7)
    print(f"\n{missed} beyond their bar" if missed else "\nall within their bars")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
