"""Runs that a test kills: as a module with a name, a folder and a file for the result, this runs one to its end.

It prints a line when the loop is about to begin. Who kills it does so after that, at any moment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from unspool.networks.chain import random_mps
from unspool.networks.dmrg import dmrg
from unspool.networks.models import heisenberg

# Often enough that most kills hit a run that has something to go on with.
OFTEN = 0.02


def long_loop(folder: str, steps: int = 10_000, every: float = OFTEN) -> list[Any]:
    """A loop with an invariant, a number that changes, and a leaf that is made in each step."""
    rng = np.random.default_rng(0)
    A, x0 = us.tensor(rng.normal(size=(6, 6)) / 4, name="A"), us.tensor(rng.normal(size=6))
    with us.spool(folder, every=every, states=8) as run:
        x = run.start(x0, inputs=A)
        for k in run.steps(steps):
            x = us.tanh((A + A.mT) @ x) + us.tensor([0.1 * (k % 7)])
            run.checkpoint(x)
    loss = us.sum(x * x)
    first = loss.grad(A)
    return [loss, first, loss.grad(x0)]


def short_loop(folder: str) -> list[Any]:
    return long_loop(folder, 300, 0.0)


def ground_state(folder: str) -> list[Any]:
    J = us.tensor(np.linspace(1.0, 1.5, 7))
    spool = us.spool(folder, every=0)
    found = dmrg(heisenberg(J), random_mps(8, 2, 4), rank=8, max_steps=8, tol=0.0, spool=spool)
    return [found.energy, found.energy.grad(J)]


RUNS: dict[str, Callable[[str], list[Any]]] = {run.__name__: run for run in (long_loop, short_loop, ground_state)}

if __name__ == "__main__":
    name, folder, result = sys.argv[1:]
    print("about to begin", flush=True)
    found = RUNS[name](folder)
    np.save(result, np.concatenate([np.ravel(value) for value in us.eval(found)]))
