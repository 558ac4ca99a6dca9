"""What must not depend on how a loop is watched: value and gradients of every kind of the zoo have the same bits.

A kind runs as it is, with every tensor held that it makes, with more of them read than it reads itself, and with no
reads at all: then it is given the numbers that it read before. Each of these runs first in a process, a second time,
and after other programs. The reference is the first run of a process that only does what the loop says.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.zoo import KINDS
from bench.zoo.kind import answer
from tests.engine.budgets import least_working
from tests.zoo_watching import HoldAll, Noted, noted, read_every

ROOT = Path(__file__).resolve().parents[1]

# So many steps that sums over them are gathered; fewer where a step takes long.
STEPS = 100
FEWER = dict.fromkeys(
    ["adam_hyper", "adaptive_ode", "changing_ranks", "curvature", "history", "hmc", "kalman", "lbfgs"], 20
)

AS_IT_IS, HELD, READ, UNREAD = "as it is", "every tensor is held", "more is read", "nothing is read"
PATTERNS = (AS_IT_IS, HELD, READ, UNREAD)

PAIRS = [(name, pattern) for name in KINDS for pattern in PATTERNS]


@pytest.mark.parametrize(("name", "pattern"), PAIRS, ids=[", ".join(pair) for pair in PAIRS])
def test_bits_do_not_depend_on_who_watches_nor_on_what_ran_before(name: str, pattern: str, fresh: Fresh) -> None:
    assert differing_runs(name, pattern, fresh) == []


def differing_runs(name: str, pattern: str, fresh: Fresh) -> list[str]:
    """Return which runs of a kind have other bits than the first run of a process that only does what the loop says."""
    found = {"first": fresh.digest(name, pattern)}
    digest(name, pattern)
    found["later"] = digest(name, pattern)
    run_others(name)
    found["after other programs"] = digest(name, pattern)
    reference = fresh.digest(name, AS_IT_IS)
    return [when for when, bits in found.items() if bits != reference]


def test_bits_under_a_budget_do_not_depend_on_whether_another_run_is_held() -> None:
    # A refusal that is still held, with the frames of the run that it ended, is such a run as well.
    kind, steps = KINDS["changing_ranks"], 25
    data = kind.setup(steps)

    def digest_within(budget: int) -> tuple[str, int]:
        with us.memory(budget) as memory:
            found = answer(kind, steps, data)
        return digest_of(found), memory.report().peak

    expected, everything = digest_within(10**9)
    budget = least_working(digest_within, everything // 8)
    alone = digest_within(budget)[0]
    held = [kind.in_unspool(steps, data)]
    beside = digest_within(budget)[0]
    held.clear()
    assert [alone, beside] == [expected, expected]


def test_what_reads_nothing_reads_nothing() -> None:
    kind = KINDS["branches"]
    loss, _ = kind.in_unspool(20, kind.setup(20), Noted([1.0] * 20).again())
    straight, _ = kind.in_unspool(20, kind.setup(20), lambda tensor: 1.0)
    assert float(loss) == float(straight)


def test_what_holds_every_tensor_holds_those_without_a_name() -> None:
    held, kind = HoldAll(), KINDS["two_lags"]
    kind.in_unspool(5, kind.setup(5), watch=held)
    operations = [tensor.op for tensor in held.held.values()]
    assert len(operations) > 5 * 9
    assert str(operations).count("contract") == 5  # the products, which nobody has given a name


# --- running ----------------------------------------------------------------------------------------------------------


def digest(name: str, pattern: str, numbers: Noted | None = None) -> str:
    """Run a kind in one of the patterns and return a digest of the bits of its answer; ``numbers`` is what it reads."""
    kind, steps = KINDS[name], steps_of(name)
    data = kind.setup(steps)
    ways: dict[str, dict[str, Any]] = {HELD: {"watch": HoldAll()}, READ: {"watch": read_every(7)}}
    if pattern == UNREAD:
        ways[UNREAD] = {"read": (numbers or numbers_of(name)).again()}
    found = answer(kind, steps, data, **ways.get(pattern, {}))
    return digest_of(found)


def digest_of(found: Sequence[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(value.tobytes() for value in found)).hexdigest()


def steps_of(name: str) -> int:
    return FEWER.get(name, STEPS)


@cache
def numbers_of(name: str) -> Noted:
    return noted(KINDS[name], steps_of(name), KINDS[name].setup(steps_of(name)))


def run_others(name: str) -> None:
    """Run the same loop with fewer steps, and other loops."""
    for other, steps in ((name, 9), ("two_lags", 20), ("numpy_row", 20)):
        answer(KINDS[other], steps, KINDS[other].setup(steps))


class Fresh:
    """A process in which nothing has run; it forks for each request, so that every run is the first of its process."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "from tests import test_invariance; test_invariance.serve()"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.known: dict[tuple[str, str], str] = {}

    def digest(self, name: str, pattern: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        if (name, pattern) not in self.known:
            # What was read is told: to find it out, the loop would have to run before.
            numbers = " ".join(number.hex() for number in numbers_of(name).numbers) if pattern == UNREAD else ""
            self.process.stdin.write(f"{name}|{pattern}|{numbers}\n")
            self.known[name, pattern] = self.process.stdout.readline().strip()
        return self.known[name, pattern]

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def fresh() -> Iterator[Fresh]:
    if not hasattr(os, "fork"):
        pytest.skip("a first run of a process needs a process of its own, and starting one for each takes long")
    processes = Fresh()
    yield processes
    processes.close()


def serve() -> None:
    """Answer the requests of `Fresh`, each in a child."""
    for module in pkgutil.walk_packages(us.__path__, "unspool."):  # imported once; nothing of it has run
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            name, pattern, told = line.rstrip("\n").split("|")
            numbers = Noted(float.fromhex(number) for number in told.split())
            print(digest(name, pattern, numbers), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
