"""Runs that are killed at random points: what goes on ends with the bits of a run that nobody killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


# A kill misses a run that has ended before; of so many for each that is to hit, some do.
_MOST_ROUNDS = 8


def started(name: str, folder: Path, result: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.saving.runs", name, str(folder), str(result)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "about to begin\n"
    return process


def finished(name: str, folder: Path, result: Path) -> Any:
    with started(name, folder, result) as process:
        assert process.wait() == 0
    return np.load(result)


def kill_at_random(name: str, folder: Path, kills: int, seed: int, longest: float) -> tuple[int, list[Any]]:
    """Kill a run until so many kills have hit it, beginning anew when it ends; return how many did, and all results."""
    rng = random.Random(seed)
    hit, results = 0, []
    for _ in range(_MOST_ROUNDS * kills):
        if hit == kills:
            break
        place = folder / f"{len(results)}"
        with started(name, place, folder / "result.npy") as process:
            time.sleep(rng.uniform(0.0, longest))
            process.kill()
            if process.wait() == -signal.SIGKILL:
                hit += 1
            else:
                results.append(np.load(folder / "result.npy"))
    results.append(finished(name, folder / f"{len(results)}", folder / "result.npy"))
    return hit, results


def check(name: str, folder: Path, kills: int, seed: int) -> None:
    began = time.perf_counter()
    expected = finished(name, folder / "whole", folder / "whole.npy")
    longest = time.perf_counter() - began
    hit, results = kill_at_random(name, folder, kills, seed, longest)
    assert hit == kills
    assert all(result.tobytes() == expected.tobytes() for result in results)


@pytest.mark.parametrize("name", ["long_loop", "ground_state"])
def test_a_run_that_is_killed_ends_with_the_bits_of_one_that_is_not(tmp_path: Path, name: str) -> None:
    check(name, tmp_path, 2, seed=1)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "kills"), [("long_loop", 100), ("ground_state", 100), ("short_loop", 30)])
def test_two_hundred_kills(tmp_path: Path, name: str, kills: int) -> None:
    check(name, tmp_path, kills, seed=2)
