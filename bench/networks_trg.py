"""TRG and HOTRG of the 2-D Ising model at all ranks of the reference tables: ours, the reference and the difference.

    python bench/networks_trg.py                ranks 8, 16 and 24; some minutes on one core
    python bench/networks_trg.py --ranks 8 16   some of them

The reference values are those of another program: TRG with both SVDs, 30 steps, HOTRG with 40 alternating ones. Its
lnZ and u are right to the digits given. Its c is off by up to 3e-8 from finite differences of u, so the bar for c is
wider than the digits. What ours is really held to are such differences, of sixth order: for ranks up to 8, and for all
with ``--differences``.

Exits with 1 if a number is further from its reference than its bar.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import unspool as us
from unspool.networks.trg import hotrg, onsager, trg

CRITICAL = math.log(1 + math.sqrt(2)) / 2


class Row(NamedTuple):
    """lnZ, u and c of a reference run, and how far from them ours may be: half a unit of the last digit but for c."""

    values: tuple[float, ...]
    bars: tuple[float, ...]


FINE, COARSE = (6e-13, 6e-11, 3e-8), (6e-13, 6e-9, 6e-4)

TRG_TABLE = {
    (0.4, 8): Row((0.879316814847, -1.1052963315, 0.8606428267), FINE),
    (0.4, 16): Row((0.879363060319, -1.1060454085, 0.8614473724), FINE),
    (0.4, 24): Row((0.879363655636, -1.1060742018, 0.8616731126), FINE),
    (0.44, 8): Row((0.928654493698, -1.41757536, 2.558), COARSE),
    (0.44, 16): Row((0.928723818763, -1.40225603, 2.987), COARSE),
    (0.44, 24): Row((0.928727694147, -1.40206938, 2.862), COARSE),
    (0.5, 8): Row((1.025789195424, -1.7456691620, 0.7239860050), FINE),
    (0.5, 16): Row((1.025792198069, -1.7455834679, 0.7247372824), FINE),
    (0.5, 24): Row((1.025792715849, -1.7455673668, 0.7248487841), FINE),
}

# Relative errors of lnZ at rank 8, to the digits given; values at rank 16.
HOTRG_ERRORS = {(0.4, 8): (-2.9e-6, 6e-8), (CRITICAL, 8): (-1.36e-5, 6e-8), (0.5, 8): (-1.1e-6, 6e-8)}
HOTRG_VALUES = {(0.4, 16): 0.879363786046, (CRITICAL, 16): 0.929694876245, (0.5, 16): 1.025792798445}


def full_table(ranks: list[int], differences: bool) -> int:
    """Print all rows of the given ranks and return how many numbers are beyond their bar."""
    return trg_table(ranks, differences) + hotrg_table(ranks)


def trg_table(ranks: list[int], differences: bool) -> int:
    """Print lnZ, u and c of TRG beside their references."""
    print(f"{'TRG':<8}{'β':>5}{'rank':>6}{'':>5}{'ours':>19}{'reference':>18}{'difference':>12}{'bar':>9}{'time':>9}")
    beyond = 0
    for (beta, rank), row in TRG_TABLE.items():
        if rank not in ranks:
            continue
        begin = time.perf_counter()
        found = observables(beta, rank)
        seconds = time.perf_counter() - begin
        for name, ours, reference, bar in zip(("lnZ", "u", "c"), found, row.values, row.bars, strict=True):
            beyond += report(("", beta, rank, name), ours, reference, bar, seconds)
        if beta != 0.44 and (differences or rank <= 8):
            begin = time.perf_counter()
            reference = beta**2 * slope_of_slope(beta, rank)
            beyond += report(("", beta, rank, "c, Δ"), found[2], reference, 1e-9, time.perf_counter() - begin)
    return beyond


def hotrg_table(ranks: list[int]) -> int:
    """Print lnZ of HOTRG beside its references, and the energy beside the exact one."""
    print(
        f"\n{'HOTRG':<8}{'β':>5}{'rank':>6}{'':>5}{'ours':>19}{'reference':>18}{'difference':>12}{'bar':>9}{'time':>9}"
    )
    beyond = 0
    for beta, rank in [*HOTRG_ERRORS, *HOTRG_VALUES]:
        if rank not in ranks:
            continue
        begin = time.perf_counter()
        value = float(hotrg(beta, rank=rank).log_partition)
        seconds = time.perf_counter() - begin
        if rank == 8:
            error, bar = HOTRG_ERRORS[beta, rank]
            relative = value / onsager(beta).log_partition - 1
            beyond += report(("", beta, rank, "rel."), relative, error, bar, seconds)
        else:
            beyond += report(("", beta, rank, "lnZ"), value, HOTRG_VALUES[beta, rank], 6e-13, seconds)
    return beyond


def observables(beta: float, rank: int) -> tuple[float, float, float]:
    """Return lnZ, u and c, from one graph."""
    b = us.tensor(beta)
    value = trg(b, rank=rank).log_partition
    slope = value.grad(b)
    return float(value), -float(slope), float(b * b * slope.grad(b))


def slope_of_slope(beta: float, rank: int, h: float = 2.5e-4) -> float:
    """Return the second derivative of lnZ as a difference of first ones."""

    def slope(x: float) -> float:
        b = us.tensor(x)
        return float(trg(b, rank=rank).log_partition.grad(b))

    return sum(w * (slope(beta + k * h) - slope(beta - k * h)) for k, w in ((1, 45), (2, -9), (3, 1))) / (60 * h)


def report(label: tuple[Any, ...], ours: float, reference: float, bar: float, seconds: float) -> bool:
    """Print one comparison and return whether it is beyond its bar."""
    apart = ours - reference
    beyond = not abs(apart) <= bar
    scheme, beta, rank, name = label
    print(
        f"{scheme:<8}{beta:>5.3g}{rank:>6}{name:>5}{ours:>19.12g}{reference:>18.12g}{apart:>12.1e}{bar:>9.0e}"
        f"{seconds:>7.1f} s{'   beyond' if beyond else ''}",
        flush=True,
    )
    return beyond


def main() -> int:
    """Read the options and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 16, 24])
    parser.add_argument("--differences", action="store_true", help="finite differences for all ranks")
    options = parser.parse_args()
    return 1 if full_table(options.ranks, options.differences) else 0


if __name__ == "__main__":
    sys.exit(main())
