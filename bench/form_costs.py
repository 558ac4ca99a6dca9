"""What a step of a loop costs in each of our forms, beside a loop by hand, PyTorch and JAX.

The loops are those of ``forms.py``: a value is read in every step, and then the gradient is taken. A form has a process
of its own, all on one core. Values and gradients are compared with those by hand first. Time is processor time, the
least of interleaved rounds, divided by the number of steps: it holds on a machine that others use, too.

    python bench/form_costs.py            measure, write docs/forms.json, and fill in the table of docs/forms.md
    python bench/form_costs.py --quick    few steps, one round, nobody else's forms: checks the script, writes nothing
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import harness
import loops
from harness import Worker, participants, serve

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "docs" / "forms.json"

FORMS = ("hand", "unspool plain", "unspool fragment", "unspool iterate", "torch eager", "jax scan")
CASES = (
    loops.Case("growth", 8, 1000, rounds=9),
    loops.Case("power", 8, 200, rounds=9),
    loops.Case("power", 64, 200, rounds=9),
    loops.Case("power", 512, 200, rounds=5),
)
QUICK = (loops.Case("growth", 8, 50, rounds=1),)


def answer_with(name: str) -> Any:
    """Return what a worker answers: processor seconds of the first call and of the fastest of some later ones."""
    import numpy as np

    found = loops.FORMS[name].make()

    def answer(loop: str, arrays: str, steps: int, calls: int) -> dict[str, Any]:
        with np.load(arrays) as stored:
            given = dict(stored)
        times = []
        for _ in range(calls):
            begin = time.process_time()
            value, gradient = found[loop](**given, steps=steps)
            times.append(time.process_time() - begin)
        return {"seconds": min(times), "value": np.asarray(value).tolist(), "gradient": np.asarray(gradient).tolist()}

    return answer


def measure(names: list[str], cases: tuple[loops.Case, ...]) -> list[dict[str, Any]]:
    """Return a row for each case: microseconds of a step, and milliseconds of the first call, by form."""
    import numpy as np

    rows = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        for case in cases:
            arrays = f"{folder}/{case.loop}{case.size}.npz"
            np.savez(arrays, **loops.inputs(case))
            ask = {"loop": case.loop, "arrays": arrays, "steps": case.steps}
            # New processes for each case, so that the first call is one.
            workers = {name: running.enter_context(Worker(__file__, name)) for name in names}
            first = {name: worker.ask(**ask, calls=1) for name, worker in workers.items()}
            reference = first["hand"]
            for name, other in first.items():
                for what in ("value", "gradient"):
                    if not np.allclose(other[what], reference[what], rtol=loops.AGREEMENT, atol=1e-12):
                        raise SystemExit(f"the {what} of {name} is another one than that by hand: {case}")
            best = dict.fromkeys(names, float("inf"))
            for _ in range(case.rounds):
                for name, worker in workers.items():
                    best[name] = min(best[name], worker.ask(**ask, calls=3)["seconds"])
            rows.append(
                {
                    "loop": case.loop,
                    "size": case.size,
                    "steps": case.steps,
                    "microseconds": {name: 1e6 * seconds / case.steps for name, seconds in best.items()},
                    "first": {name: 1e3 * first[name]["seconds"] for name in names},
                }
            )
    return rows


def main() -> int:
    """Measure, store the numbers, and fill in the page."""
    options = harness.options("Measure what a step costs in each form of a loop.")
    if options.worker:
        serve(answer_with(options.worker))
        return 0
    os.environ.update(harness.ONE_THREAD)
    harness.one_core()
    names = FORMS[:4] if options.quick else FORMS
    packages = {name: loops.FORMS[name].package for name in names}
    rows = measure(participants(packages), QUICK if options.quick else CASES)
    if options.quick:
        print(json.dumps(rows))
        return 0
    numbers = {
        "day": dt.date.today().isoformat(),
        "versions": harness.versions(packages.values()),
        "machine": _machine(),
        "rows": rows,
    }
    NUMBERS.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.path.insert(0, str(ROOT))
    from docs import tables

    tables.main()
    return 0


def _machine() -> dict[str, Any]:
    """Return what the numbers were measured on, as the page of results says it."""
    sys.path.insert(0, str(ROOT))
    from bench.suite import results

    return results.machine()


if __name__ == "__main__":
    sys.exit(main())
