"""What writing a run costs: processor time beside the same loop unwritten, and bytes beside those of its states.

Each loop runs with and without ``us.spool``, in turn, several times; processor time is the least of each. The run is
written at the default, every five minutes: at the beginning and the end of these. So what is measured is what a step
costs by being part of a run, and what it costs to write all of them, which is the same however often that is done.

Bars: at most 3 % of the run's time; at most 1.1 times the bytes of the states that are kept, and 64 bytes a step
beyond. A step of a few microseconds, which is as fast as a loop gets, is shown too and has no bar: writing takes some
microseconds for every step, however short it is.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import unspool as us

MOST_TIME, MOST_BYTES, MOST_A_STEP = 1.03, 1.1, 64


class Loop(NamedTuple):
    """A loop to measure: a function of a run, or of nothing that is written, and whether its time has a bar."""

    name: str
    run: Callable[[Any], int]
    has_bar: bool = True


def power(size: int, steps: int, reads: bool = False) -> Callable[[Any], int]:
    """Power iteration, a plain loop that may read its state in each step, written or not."""

    def run(spool: Any) -> int:
        rng = np.random.default_rng(0)
        A, x = us.tensor(rng.normal(size=(size, size)) / size**0.5), us.tensor(rng.normal(size=size))
        if spool is None:
            for _ in range(steps):
                y = A @ x
                x = y / us.linalg.norm(y)
                us.eval(x)
            return steps
        with spool:
            x = spool.start(x, inputs=A)
            for _ in spool.steps(steps):
                y = A @ x
                x = y / us.linalg.norm(y)
                if reads:
                    us.eval(x)
                spool.checkpoint(x)
        return steps

    return run


def ground_state(spool: Any) -> int:
    """DMRG; a step is an update of two sites."""
    from unspool.networks.chain import random_mps
    from unspool.networks.dmrg import dmrg
    from unspool.networks.models import heisenberg

    sites, sweeps = 20, 20
    J = us.tensor(np.linspace(1.0, 1.2, sites - 1))
    dmrg(heisenberg(J), random_mps(sites, 2, 2), rank=64, max_steps=sweeps, tol=0.0, spool=spool)
    return sweeps * (2 * sites - 3)


def iterated(spool: Any) -> int:
    """A loop of the engine's."""
    rng = np.random.default_rng(0)
    A, x = us.tensor(rng.normal(size=(128, 128)) / 12.0), us.tensor(rng.normal(size=128))
    us.iterate(lambda y: us.tanh(A @ y), x, max_steps=500_000, adjoint=us.Checkpointed(slots=20), spool=spool)
    return 500_000


LOOPS = [
    Loop("power iteration, n = 1000", power(1000, 10_000)),
    Loop("DMRG, 20 sites, rank 64", ground_state),
    Loop("us.iterate, n = 128", iterated),
    Loop("power iteration, n = 16, 10⁴ steps", power(16, 10_000), has_bar=False),
]


def measured(loop: Loop, rounds: int, folder: Path) -> tuple[float, float, int, int, int]:
    """Return processor time without and with a run, the steps, and the bytes of all files and of the states."""
    plain, written, steps, total, states = [], [], 0, 0, 0
    for number in range(rounds + 1):
        began = time.process_time()
        loop.run(None)
        middle = time.process_time()
        place = folder / f"{number}"
        run = us.spool(place)
        steps = loop.run(run)
        end = time.process_time()
        if number:  # the first round compiles
            plain.append(middle - began)
            written.append(end - middle)
        total = run.nbytes
        states = run._files.state_bytes + sum(path.stat().st_size for path in place.glob("leaves-*"))
        shutil.rmtree(place)
    return min(plain), min(written), steps, total, states


def main() -> int:
    """Print a table with bars; return 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"{'loop':36} {'time':>8} {'written':>8} {'ratio':>6} {'bar':>5}   {'bytes':>10} {'at most':>10}")
    missed = False
    for loop in LOOPS:
        with tempfile.TemporaryDirectory() as folder:
            plain, written, steps, total, states = measured(loop, rounds, Path(folder))
        ratio, most = written / plain, MOST_BYTES * states + MOST_A_STEP * steps
        bar = f"{MOST_TIME:.2f}" if loop.has_bar else "–"
        verdict = "met" if (ratio <= MOST_TIME or not loop.has_bar) and total <= most else "MISSED"
        missed |= verdict == "MISSED"
        times = f"{plain:7.2f}s {written:7.2f}s {ratio:6.3f} {bar:>5}"
        print(f"{loop.name:36} {times}   {total:10,} {most:10,.0f}   {verdict}")
        if not loop.has_bar:
            print(f"{'':36} {(written - plain) / steps * 1e6:.1f} µs a step")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
