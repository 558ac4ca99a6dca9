"""What writing a run costs: processor time beside the same loop unwritten, and bytes beside those of its states.

Each loop runs with and without ``us.spool``, in turn, several times; processor time is the least of each. The run is
written at the default, every five minutes: at the beginning and the end of these. So what is measured is what a step
costs by being part of a run, and what it costs to write all of them, which is the same however often that is done.

Bars: at most 3 % of the run's time; at most 1.1 times the bytes of the states that are kept, and 64 bytes a step
beyond. They hold for steps of a few microseconds and for runs of a fraction of a second, too; these are measured more
often, so that the least time is that of an undisturbed run. A checkpoint reads its state. The last loop reads it as
well, by itself, and has no bar: it shows all that a checkpoint takes, which is some tenths of a microsecond a step.
"""

from __future__ import annotations

import argparse
import gc
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
    """A loop to measure: a function of a run, or of nothing that is written; how many rounds are one of a long loop."""

    name: str
    run: Callable[[Any], int]
    rounds: int = 1
    has_bar: bool = True


def power(size: int, steps: int, reads: bool = False) -> Callable[[Any], int]:
    """Power iteration, a plain loop. If a run reads its state, too, what a checkpoint takes comes on top of that."""

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


def ground_state(sweeps: int, rank: int) -> Callable[[Any], int]:
    """DMRG; a step is an update of two sites."""
    from unspool.networks.chain import random_mps
    from unspool.networks.dmrg import dmrg
    from unspool.networks.models import heisenberg

    sites = 20

    def run(spool: Any) -> int:
        J = us.tensor(np.linspace(1.0, 1.2, sites - 1))
        dmrg(heisenberg(J), random_mps(sites, 2, 2), rank=rank, max_steps=sweeps, tol=0.0, spool=spool)
        return sweeps * (2 * sites - 3)

    return run


def iterated(spool: Any) -> int:
    """A loop of the engine's."""
    rng = np.random.default_rng(0)
    A, x = us.tensor(rng.normal(size=(128, 128)) / 12.0), us.tensor(rng.normal(size=128))
    us.iterate(lambda y: us.tanh(A @ y), x, max_steps=500_000, adjoint=us.Checkpointed(slots=20), spool=spool)
    return 500_000


LOOPS = [
    Loop("power iteration, n = 1000", power(1000, 10_000)),
    Loop("DMRG, rank 64, 20 sweeps", ground_state(20, 64)),
    Loop("DMRG, rank 16, 4 sweeps", ground_state(4, 16), rounds=5),
    Loop("us.iterate, n = 128", iterated),
    Loop("power iteration, n = 16", power(16, 10_000), rounds=5),
    Loop("power iteration, n = 16, read as well", power(16, 10_000, reads=True), rounds=5, has_bar=False),
]


def measured(loop: Loop, rounds: int, folder: Path) -> tuple[float, float, int, int, int]:
    """Return processor time without and with a run, the steps, and the bytes of all files and of the states."""
    plain, written, steps, total, states = [], [], 0, 0, 0
    for number in range(rounds + 1):
        gc.collect()  # or a collection of all generations falls into one of the two by chance
        began = time.process_time()
        loop.run(None)
        middle = time.process_time()
        gc.collect()
        again = time.process_time()
        place = folder / f"{number}"
        run = us.spool(place)
        steps = loop.run(run)
        run.state, run.inputs = None, ()  # the graph goes, as that of the loop before has gone
        end = time.process_time()
        if number:  # the first round compiles
            plain.append(middle - began)
            written.append(end - again)
        total = run.nbytes
        states = run._files.state_bytes + sum(path.stat().st_size for path in place.glob("leaves-*"))
        shutil.rmtree(place)
    return min(plain), min(written), steps, total, states


def main() -> int:
    """Print a table with bars; return 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="loops with this in their names")
    given = parser.parse_args()
    print(f"{'loop':37} {'time':>8} {'written':>8} {'ratio':>6} {'bar':>5}   {'bytes':>10} {'at most':>10}")
    missed = False
    for loop in [loop for loop in LOOPS if given.only in loop.name]:
        with tempfile.TemporaryDirectory() as folder:
            plain, written, steps, total, states = measured(loop, given.rounds * loop.rounds, Path(folder))
        ratio, most = written / plain, MOST_BYTES * states + MOST_A_STEP * steps
        bar = f"{MOST_TIME:.2f}" if loop.has_bar else "–"
        verdict = "met" if (ratio <= MOST_TIME or not loop.has_bar) and total <= most else "MISSED"
        missed |= verdict == "MISSED"
        times = f"{plain:7.2f}s {written:7.2f}s {ratio:6.3f} {bar:>5}"
        print(f"{loop.name:37} {times}   {total:10,} {most:10,.0f}   {verdict}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
