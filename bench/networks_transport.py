"""Loop and gradient of Sinkhorn, Newton–Schulz and power iteration, beside adjoints written by hand and PyTorch.

Every participant runs until the same criterion is met and then differentiates all its steps. The adjoints by hand are
NumPy: what somebody who knows the algorithm writes, keeping only the states and adding up in place. PyTorch is a plain
loop with ``.item()`` for the stop and ``backward()``. Sinkhorn by hand and in PyTorch is the usual loop in the log
domain; "PyTorch, scaled" is the form that `unspool.networks.sinkhorn` uses, a kernel relative to reference potentials.
All are in double precision, each in a process of its own, on one thread and one core. Values and gradients are compared
too; rounds are interleaved, and the least time counts. Memory is the growth of the resident set at the first call.

    python bench/networks_transport.py                  the tables, and the bars they are held to
    python bench/networks_transport.py --json out.json  the numbers as well
    python bench/networks_transport.py --quick          small sizes and one round: checks the harness; no bars

Exits with 1 if a value is off or a bar is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any

import harness
import numpy as np
from harness import Bar, Worker

SIZES = {"sinkhorn": 400, "polar": 256, "power": 512}
QUICK = {"sinkhorn": 20, "polar": 16, "power": 24}
PACKAGES = {"by hand": "numpy", "unspool": "unspool", "PyTorch": "torch", "PyTorch, scaled": "torch"}
ROUNDS = 7
WIDTH = 5e-3
TOLERANCE = {"sinkhorn": 1e-6, "polar": 1e-12, "power": 1e-10}


# --- the problems ----------------------------------------------------------------------------------------------------


@cache
def transport_problem(n: int) -> tuple[Any, Any, Any]:
    """Return costs, squared distances in the unit square, and two sets of masses."""
    rng = np.random.default_rng(0)
    x, y, a, b = rng.uniform(size=(n, 2)), rng.uniform(size=(n, 2)), rng.uniform(0.5, 1.5, n), rng.uniform(0.5, 1.5, n)
    return np.sum((x[:, None] - y) ** 2, axis=-1), a / a.sum(), b / b.sum()


@cache
def polar_problem(n: int) -> tuple[Any, Any]:
    """Return a matrix with singular values from 0.3 to 1, and weights."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return (u * np.linspace(0.3, 1.0, n)) @ v.T, rng.standard_normal((n, n))


@cache
def power_problem(n: int) -> tuple[Any, Any, Any]:
    """Return a symmetric matrix with eigenvalue 1 and others up to 0.9, a start, and weights."""
    rng = np.random.default_rng(0)
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a = (q * np.r_[1.0, 0.9, rng.uniform(-0.9, 0.9, n - 2)]) @ q.T
    return (a + a.T) / 2, np.full(n, n**-0.5), rng.standard_normal(n)


# --- by hand ---------------------------------------------------------------------------------------------------------


def soft_rows(c: Any, log_weights: Any, g: Any) -> tuple[Any, Any]:
    """Return f_i = −ε log Σ_j w_j exp((g_j − c_ij)/ε) and the weights of its terms, in one scratch array."""
    scratch = (g - c) / WIDTH + log_weights
    top = scratch.max(axis=1)
    scratch -= top[:, None]
    np.exp(scratch, out=scratch)
    total = scratch.sum(axis=1)
    scratch /= total[:, None]
    return -WIDTH * (top + np.log(total)), scratch


def sinkhorn_by_hand(n: int) -> tuple[int, float, Any]:
    """Keep f and g of each step, and recompute the matrices of exponentials in the backward pass."""
    c, a, b = transport_problem(n)
    log_a, log_b, f, g = np.log(a), np.log(b), np.zeros(n), np.zeros(n)
    states = []
    change = np.inf
    while change > TOLERANCE["sinkhorn"]:
        before, old = f, g
        f, _ = soft_rows(c, log_b, g)
        g, _ = soft_rows(c.T, log_a, f)
        states.append((old, f))
        change = np.abs(f - before).max()
    plan = a[:, None] * np.exp((f[:, None] + g - c) / WIDTH) * b
    slope = plan * c / WIDTH
    fb, gb, cb = slope.sum(axis=1), slope.sum(axis=0), plan - slope
    for g_before, f_after in reversed(states):
        terms = soft_rows(c.T, log_a, f_after)[1]
        terms *= gb[:, None]  # g' = c' − f' weighted by the terms
        cb += terms.T
        fb -= terms.sum(axis=0)
        terms = soft_rows(c, log_b, g_before)[1]
        terms *= fb[:, None]
        cb += terms
        gb, fb = -terms.sum(axis=0), np.zeros(n)
    return len(states), float(np.sum(plan * c)), cb


def polar_by_hand(n: int) -> tuple[int, float, Any]:
    """Three products for a step in the backward pass, with the squares kept."""
    x, w = polar_problem(n)
    states, change = [], np.inf
    while change > TOLERANCE["polar"]:
        square = x.T @ x
        new = 1.5 * x - 0.5 * (x @ square)
        states.append((x, square))
        change, x = np.linalg.norm(new - x), new
    xb = w
    for before, square in reversed(states):
        m = before.T @ xb
        xb = 1.5 * xb - 0.5 * (xb @ square + before @ (m + m.T))
    return len(states), float(np.sum(w * x)), xb


def power_by_hand(n: int) -> tuple[int, float, Any]:
    """Collect the outer products of the backward pass as rows of two matrices, and multiply them once."""
    a, v, c = power_problem(n)
    vectors, norms, slopes, change = [v], [], [], np.inf
    while change > TOLERANCE["power"]:
        y = a @ v
        norm = np.linalg.norm(y)
        before, v = v, y / norm
        vectors.append(v)
        norms.append(norm)
        change = np.linalg.norm(v - before)
    vb = 2 * (c @ v) * c
    for k in range(len(norms), 0, -1):
        q = (vb - vectors[k] * (vectors[k] @ vb)) / norms[k - 1]
        slopes.append(q)
        vb = q @ a
    return len(norms), float((c @ v) ** 2), np.array(slopes[::-1]).T @ np.array(vectors[:-1])


# --- unspool ---------------------------------------------------------------------------------------------------------


def sinkhorn_unspool(n: int) -> tuple[int, float, Any]:
    """The loop of the library."""
    import unspool as us
    from unspool.networks.transport import sinkhorn

    c, a, b = transport_problem(n)
    C = us.tensor(c)
    found = sinkhorn(C, a, b, regularisation=WIDTH, tol=TOLERANCE["sinkhorn"])
    return found.steps, float(found.cost), found.cost.grad(C).eval()


def polar_unspool(n: int) -> tuple[int, float, Any]:
    """The loop of the library."""
    import unspool as us
    from unspool.networks.matrix import newton_schulz_polar

    a, w = polar_problem(n)
    A = us.tensor(a)
    found = newton_schulz_polar(A, scale=1.0, tol=TOLERANCE["polar"])
    loss = us.sum(w * found.state)
    return found.steps, float(loss), loss.grad(A).eval()


def power_unspool(n: int) -> tuple[int, float, Any]:
    """The loop of the library."""
    import unspool as us
    from unspool.networks.matrix import power_iteration

    a, v, c = power_problem(n)
    A = us.tensor(a)
    found = power_iteration(A, v, tol=TOLERANCE["power"])
    loss = (c @ found.state) ** 2
    return found.steps, float(loss), loss.grad(A).eval()


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def sinkhorn_torch(n: int) -> tuple[int, float, Any]:
    """The usual loop in the log domain."""
    import torch

    c, a, b = map(torch.from_numpy, transport_problem(n))
    c.requires_grad_()
    log_a, log_b, f, g = a.log(), b.log(), torch.zeros_like(a), torch.zeros_like(b)
    steps, change = 0, np.inf
    while change > TOLERANCE["sinkhorn"]:
        before = f
        f = -WIDTH * torch.logsumexp((g - c) / WIDTH + log_b, 1)
        g = -WIDTH * torch.logsumexp((f[:, None] - c) / WIDTH + log_a[:, None], 0)
        steps, change = steps + 1, (f - before).abs().max().item()
    loss = (a[:, None] * torch.exp((f[:, None] + g - c) / WIDTH) * b * c).sum()
    loss.backward()
    return steps, loss.item(), c.grad.numpy()


def sinkhorn_torch_scaled(n: int) -> tuple[int, float, Any]:
    """The form of the library: one step in the log domain, then scalings of a kernel."""
    import torch

    c, a, b = map(torch.from_numpy, transport_problem(n))
    c.requires_grad_()
    f = -WIDTH * torch.logsumexp(-c / WIDTH + b.log(), 1)
    g = -WIDTH * torch.logsumexp((f[:, None] - c) / WIDTH + a.log()[:, None], 0)
    g0 = g.detach()
    f0 = (c.detach() - g0).min(1).values
    kernel, v, before = torch.exp((f0[:, None] + g0 - c) / WIDTH), torch.exp((g - g0) / WIDTH), f.detach()
    steps, change = 1, np.inf
    while change > TOLERANCE["sinkhorn"]:
        u = 1.0 / (kernel @ (b * v))
        v = 1.0 / ((a * u) @ kernel)
        f = f0 + WIDTH * u.detach().log()
        steps, change, before = steps + 1, (f - before).abs().max().item(), f
    loss = ((a * u)[:, None] * kernel * (b * v) * c).sum()
    loss.backward()
    return steps, loss.item(), c.grad.numpy()


def polar_torch(n: int) -> tuple[int, float, Any]:
    """A plain loop."""
    import torch

    a, w = map(torch.from_numpy, polar_problem(n))
    x = a.requires_grad_()
    steps, change = 0, np.inf
    while change > TOLERANCE["polar"]:
        new = 1.5 * x - 0.5 * (x @ (x.T @ x))
        steps, change, x = steps + 1, (new - x).norm().item(), new
    loss = (w * x).sum()
    loss.backward()
    return steps, loss.item(), a.grad.numpy()


def power_torch(n: int) -> tuple[int, float, Any]:
    """A plain loop."""
    import torch

    a, v, c = map(torch.from_numpy, power_problem(n))
    a.requires_grad_()
    steps, change = 0, np.inf
    while change > TOLERANCE["power"]:
        y = a @ v
        before, v = v, y / y.norm()
        steps, change = steps + 1, (v - before).norm().item()
    loss = (c @ v) ** 2
    loss.backward()
    return steps, loss.item(), a.grad.numpy()


PROBLEMS: dict[str, Callable[[int], Any]] = {
    "sinkhorn": transport_problem,
    "polar": polar_problem,
    "power": power_problem,
}
RUNS: dict[tuple[str, str], Callable[[int], tuple[int, float, Any]]] = {
    ("by hand", "sinkhorn"): sinkhorn_by_hand,
    ("by hand", "polar"): polar_by_hand,
    ("by hand", "power"): power_by_hand,
    ("unspool", "sinkhorn"): sinkhorn_unspool,
    ("unspool", "polar"): polar_unspool,
    ("unspool", "power"): power_unspool,
    ("PyTorch", "sinkhorn"): sinkhorn_torch,
    ("PyTorch", "polar"): polar_torch,
    ("PyTorch", "power"): power_torch,
    ("PyTorch, scaled", "sinkhorn"): sinkhorn_torch_scaled,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def answer(library: str) -> Callable[..., dict[str, Any]]:
    """Return what a worker for a library does."""

    def measure(case: str, size: int) -> dict[str, Any]:
        RUNS[library, case](
            8
        )  # imports and first-time costs are not part of the memory, nor is the problem of the time
        PROBLEMS[case](size)
        floor, begin = harness.resident_bytes(), time.perf_counter()
        steps, value, gradient = RUNS[library, case](size)
        seconds = time.perf_counter() - begin
        norm = float(np.linalg.norm(gradient))
        return {
            "steps": steps,
            "value": value,
            "norm": norm,
            "seconds": seconds,
            "bytes": harness.peak_bytes() - floor,
        }

    return measure


def full_table(sizes: dict[str, int], rounds: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what each participant measured for each case, the best of all rounds."""
    table: dict[str, dict[str, dict[str, Any]]] = {}
    names = harness.participants(PACKAGES)
    for case, size in sizes.items():
        with ExitStack() as stack:
            workers = {name: Worker(__file__, name) for name in names if (name, case) in RUNS}
            for worker in workers.values():
                stack.enter_context(worker)
            runs = [{n: w.ask(case=case, size=size) for n, w in workers.items()} for _ in range(rounds)]
        table[case] = {name: runs[0][name] | {"seconds": min(run[name]["seconds"] for run in runs)} for name in workers}
    return table


def show(table: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print a table for each case."""
    for case, rows in table.items():
        print(f"\n{case:<18}{'steps':>7}{'value':>18}{'|gradient|':>18}{'difference':>12}{'ms':>10}{'MB':>9}")
        for name, row in rows.items():
            print(
                f"  {name:<16}{row['steps']:>7}{row['value']:>18.10g}{row['norm']:>18.10g}"
                f"{difference(row, rows['by hand']):>12.1e}{1e3 * row['seconds']:>10.1f}{row['bytes'] / 1e6:>9.1f}"
            )
    print()


def difference(row: dict[str, Any], reference: dict[str, Any]) -> float:
    """Return by how much value and gradient differ from those by hand."""
    return max(abs(row[key] - reference[key]) / abs(reference[key]) for key in ("value", "norm"))


def bars(table: dict[str, dict[str, dict[str, Any]]]) -> list[Bar]:
    """Return the limits that the measured numbers are held to."""
    found = [
        Bar(f"{case}: value and gradient beside those by hand", 1e8 * difference(row, rows["by hand"]), 1e2, "e-8")
        for case, rows in table.items()
        for row in [rows["unspool"]]
    ]
    for case in ("polar", "power"):
        ours, hand = table[case]["unspool"], table[case]["by hand"]
        found.append(Bar(f"{case}: time beside the adjoint by hand", ours["seconds"] / hand["seconds"], 1.3, "×"))
    if "PyTorch" in table["power"]:
        times = {case: {name: row["seconds"] for name, row in rows.items()} for case, rows in table.items()}
        found.append(Bar("power: PyTorch takes", times["power"]["PyTorch"] / times["power"]["unspool"], 3.0, "×", True))
        ours, theirs = table["sinkhorn"]["unspool"], table["sinkhorn"]["PyTorch"]
        found.append(Bar("sinkhorn: time beside PyTorch", ours["seconds"] / theirs["seconds"], 1.2, "×"))
        found.append(Bar("sinkhorn: memory beside PyTorch", ours["bytes"] / theirs["bytes"], 0.2, "×"))
    return found


def main() -> int:
    """Measure, print and decide."""
    options = harness.options(__doc__.splitlines()[0])
    if options.worker:
        harness.serve(answer(options.worker))
        return 0
    harness.one_core()
    table = full_table(QUICK if options.quick else SIZES, 1 if options.quick else ROUNDS)
    show(table)
    if options.json:
        harness.write(options.json, PACKAGES.values(), table)
    return 0 if options.quick else harness.decide(bars(table))


if __name__ == "__main__":
    sys.exit(main())
