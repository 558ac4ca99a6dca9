"""The example and the benchmark, run as a reader would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


def run_script(*command: object) -> str:
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def power_iteration() -> Any:
    """The table that the example prints, as numbers."""
    lines = run_script(ROOT / "examples" / "power_iteration.py").splitlines()
    rows = [line.replace(",", "").split() for line in lines if line.lstrip().startswith("1e-")]
    return np.array([[float(entry) for entry in row[:9]] for row in rows])


def test_derivatives_of_power_iteration_agree_with_the_closed_form(power_iteration: Any) -> None:
    value, gradient, second = power_iteration[-1, 2:5]
    assert value < 1e-13
    assert gradient < 1e-10
    assert second < 1e-8


def test_derivatives_of_power_iteration_converge_as_the_loop_does(power_iteration: Any) -> None:
    assert np.all(np.diff(power_iteration[:, 3:5], axis=0) < 0)


def test_graph_and_work_of_power_iteration_grow_linearly(power_iteration: Any) -> None:
    steps, counts = power_iteration[:, 1:2], power_iteration[:, 5:9]
    slopes = np.diff(counts, axis=0) / np.diff(steps, axis=0)
    assert np.all(np.ptp(slopes, axis=0) == 0)


def test_benchmark_runs_and_writes_its_numbers(tmp_path: Path) -> None:
    out = tmp_path / "overhead.json"
    printed = run_script(ROOT / "bench" / "overhead.py", "--quick", "--json", out)
    assert "unspool" in printed
    report = json.loads(out.read_text(encoding="utf-8"))
    assert {row["steps"] for row in report["loops"] if row["library"] == "unspool"} == {100, 300}
    assert all(seconds > 0 for seconds in report["operations"].values())
