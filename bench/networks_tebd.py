"""The loop-gradient table of imaginary-time TEBD, beside the same loop without truncation, and what it costs.

The transverse-field Ising chain with h = 1.5, from the product state along the field: sweeps of half gates to the right
and back, rank 16, cutoff 1e-10. The reference is the loop on the whole vector of 2¹⁰ numbers, with the derivative of
every gate by SciPy's `expm_frechet` and carried along: no truncation, no reverse mode, no code in common.

An earlier measurement of the same loop, in another library, is printed beside it. Its energies are met. Its gradients
(-8.92670685 and -8.92569462) are not: they are not the derivative of these energies in h, as the dense loop shows, and
finite differences of it. So ours are held to the dense loop. An energy that is off by dt⁴ for every h has a derivative
that is off by dt⁴ as well; the earlier gradients are off by dt².

    python bench/networks_tebd.py            the table and the bars it is held to, and times for 10 and 20 sites
    python bench/networks_tebd.py --quick    the first line of the table alone

Exits with 1 if energy or gradient is off by more than a bar. Times have none here.
"""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import expm_frechet

import unspool as us
from unspool.networks.chain import product_state
from unspool.networks.models import ising_bonds
from unspool.networks.tebd import TEBDResult, tebd

FIELD, RANK = 1.5, 16
ENERGY_BAR, GRADIENT_BAR = 1e-10, 1e-9


class Row(NamedTuple):
    """A line of the table: how the loop is run, and what was measured earlier."""

    step: float
    steps: int
    energy: float
    slope: float


TABLE = (Row(0.1, 100, -16.5352384915, -8.92670685), Row(0.05, 200, -16.5352539087, -8.92569462))


def run(sites: int, step: float, steps: int) -> tuple[TEBDResult, us.Tensor]:
    """Run the loop; return what it came to, and the field to differentiate in."""
    h = us.tensor(FIELD)
    bonds = ising_bonds(us.ones(sites - 1), us.ones(sites) * h)
    return tebd(bonds, product_state([[1.0, 1.0]] * sites), step=step, steps=steps, rank=RANK, cutoff=1e-10), h


def dense_loop(sites: int, step: float, steps: int) -> tuple[float, float]:
    """Return energy and dE/dh of the loop on the whole vector."""
    flip: Any = np.array([[0.0, 1.0], [1.0, 0.0]])
    sign, one = np.diag([1.0, -1.0]), np.eye(2)
    terms: list[Any] = []
    slopes: list[Any] = []
    for b in range(sites - 1):
        left, right = (1.0 if b == 0 else 0.5), (1.0 if b == sites - 2 else 0.5)
        slopes.append(-left * np.kron(flip, one) - right * np.kron(one, flip))
        terms.append(FIELD * slopes[-1] - np.kron(sign, sign))
    gates = [expm_frechet(-step / 2 * term, -step / 2 * slope) for term, slope in zip(terms, slopes, strict=True)]
    vector, moved = np.full(2**sites, 2.0 ** (-sites / 2)), np.zeros(2**sites)
    for _ in range(steps):
        for b in [*range(sites - 1), *reversed(range(sites - 1))]:
            gate, slope = gates[b]
            vector, moved = on_bond(gate, b, vector), on_bond(gate, b, moved) + on_bond(slope, b, vector)
        norm = np.linalg.norm(vector)
        vector, moved = vector / norm, moved / norm
    applied = sum(on_bond(term, b, vector) for b, term in enumerate(terms))
    explicit = vector @ sum(on_bond(slope, b, vector) for b, slope in enumerate(slopes))
    energy = float(vector @ applied)
    return energy, float(explicit + 2 * (moved @ applied - energy * (moved @ vector)))


def on_bond(matrix: Any, bond: int, vector: Any) -> Any:
    """Apply a two-site operator to a vector."""
    return np.einsum("ab,xby->xay", matrix, vector.reshape(2**bond, 4, -1)).reshape(-1)


def exact(sites: int) -> tuple[float, float]:
    """Return the exact energy and dE/dh, of free fermions."""
    u, s, vh = np.linalg.svd(FIELD * np.eye(sites) + np.eye(sites, k=1))
    return -float(np.sum(s)), -float(np.trace(u @ vh))


def full_table(rows: tuple[Row, ...] = TABLE) -> bool:
    """Print the table for 10 sites; return whether all is within the bars."""
    energy, slope = exact(10)
    print(f"Ising chain, 10 sites, h = {FIELD}, rank {RANK}; exact: E = {energy:.10f}, dE/dh = {slope:.8f}\n")
    columns = f"{'ours':>17} {'dense loop':>16} {'difference':>11} {'earlier':>16} {'difference':>11} {'off exact':>10}"
    print(f"{'dt':>5}{'':>7}{columns}")
    good = True
    for row in rows:
        found, h = run(10, row.step, row.steps)
        ours = float(found.energy), float(found.energy.grad(h))
        dense = dense_loop(10, row.step, row.steps)
        names, earlier = (f"{row.step:>5} E", f"{'':>5} dE/dh"), (row.energy, row.slope)
        for name, mine, reference, other, target in zip(names, ours, dense, earlier, (energy, slope), strict=True):
            off = f"{mine - reference:>11.1e} {other:>16.10f} {mine - other:>11.1e} {mine - target:>10.1e}"
            print(f"{name:<12}{mine:>17.10f} {reference:>16.10f} {off}")
        good &= abs(ours[0] - dense[0]) <= ENERGY_BAR and abs(ours[1] - dense[1]) <= GRADIENT_BAR
        good &= abs(ours[0] - row.energy) <= 2 * ENERGY_BAR  # one unit of its last digit, and our own bar
    print(f"\nbars: energy {ENERGY_BAR:.0e}, gradient {GRADIENT_BAR:.0e}: {'kept' if good else 'MISSED'}")
    return good


def times() -> None:
    """Print how long loop and gradient take, energies read at every step included."""
    print(f"\n{'sites':>5} {'first loop':>11} {'gradient':>9} {'later loop':>11} {'gradient':>9}   seconds of one core")
    for sites in (10, 20):
        line = f"{sites:>5}"
        for _ in range(2):
            begin = time.process_time()
            found, h = run(sites, 0.1, 100)
            between = time.process_time()
            found.energy.grad(h).eval()
            line += f" {between - begin:>11.2f} {time.process_time() - between:>9.2f}"
        print(line)


def main() -> int:
    """Print everything; return 1 if a bar is missed."""
    if "--quick" in sys.argv:
        return 0 if full_table(TABLE[:1]) else 1
    good = full_table()
    times()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
