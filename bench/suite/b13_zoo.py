"""B13: the loops of ``bench/zoo`` beside PyTorch, kind by kind, and all of them together.

Each kind is a case. *all kinds* has the geometric mean of what a step takes, *the worst kind* the one whose time beside
PyTorch is the largest. Times are processor time, the least of rounds in which both take turns in one process. What less
memory does to a kind is measured by ``bench/zoo/run.py``, which has bars on that as well.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.suite.workload import Bar, Kind, Options, Row, Special

SCRIPT = Path(__file__).resolve().parents[1] / "zoo" / "run.py"

ALL, WORST = "all kinds", "the worst kind"

STEPS = {"small": 50, "medium": 200, "large": 1000}
MOST_ROUNDS = 3

# How closely value and gradients have to agree.
TOLERANCE = 1e-8

FORMS: dict[str, tuple[str, str, Kind]] = {
    "ours": ("unspool, plain", "unspool", "ours"),
    "theirs": ("PyTorch", "torch", "peer"),
}


def run(options: Options) -> list[Row]:
    """Measure all kinds in one process, which prints its own table."""
    from bench.suite.measure import SuiteError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "zoo.json"
        steps, rounds = STEPS[options.size], min(options.rounds, MOST_ROUNDS)
        command = [sys.executable, SCRIPT, "--no-budgets", "--steps", str(steps), "--rounds", str(rounds)]
        command += ["--quick"] if options.quick else []
        done = subprocess.run([*command, "--json", path], check=False)
        if not path.exists():
            raise SuiteError(f"{SCRIPT.name} of the zoo ended with {done.returncode} and no numbers")
        found = json.loads(path.read_text(encoding="utf-8"))["found"]
    wrong = [each["kind"] for each in found if (each["error"] or 0.0) > TOLERANCE]
    if wrong:
        raise SuiteError(f"{', '.join(wrong)}: not the value or the gradients of PyTorch")
    return rows_of(found, options)


def rows_of(found: Sequence[dict[str, Any]], options: Options) -> list[Row]:
    """Return what was measured as rows: of all kinds together, of the worst, and of each."""
    rows = [_row(ALL, form, _mean(found, form), options, note=f"a step; {len(found)} kinds") for form in FORMS]
    compared = [each for each in found if each["theirs"]]
    if compared:
        worst = max(compared, key=lambda each: float(each["ours"] / each["theirs"]))
        rows += [_row(WORST, form, worst[form], options, note=f"a step; {worst['kind']}") for form in FORMS]
    return rows + [_row(each["kind"], form, each[form], options, _note(each, form)) for each in found for form in FORMS]


def _row(case: str, form: str, microseconds: float | None, options: Options, note: str) -> Row:
    if microseconds is None:
        return Row("B13", *FORMS[form], options.size, case=case, state="missing", note="torch not installed")
    return Row("B13", *FORMS[form], options.size, case=case, note=note, seconds=1e-6 * microseconds)


def _mean(found: Sequence[dict[str, Any]], form: str) -> float | None:
    times = [each[form] for each in found]
    return None if None in times else math.exp(sum(map(math.log, times)) / len(times))


def _note(each: dict[str, Any], form: str) -> str:
    growth = "" if form != "ours" or each["growth"] is None else f"; with four times the steps {each['growth']:.2f} ×"
    return f"a step of {each['steps']}{growth}"


WORKLOAD = Special(
    key="B13",
    title="loops that people write: kind by kind",
    run=run,
    bars=(Bar("PyTorch", 0.6, case=ALL), Bar("PyTorch", 1.0, case=WORST)),
    plot="kinds",
    glance=(ALL, WORST),
)
