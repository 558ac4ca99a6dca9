"""The script that measures what a step costs in each form does so, after all forms agreed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "form_costs.py"


def test_a_quick_run_measures_our_forms_beside_the_loop_by_hand() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--quick"], capture_output=True, text=True, check=True)
    (row,) = json.loads(done.stdout.splitlines()[-1])
    assert set(row["microseconds"]) == {"hand", "unspool plain", "unspool fragment", "unspool iterate"}
    assert all(number > 0 for number in [*row["microseconds"].values(), *row["first"].values()])
