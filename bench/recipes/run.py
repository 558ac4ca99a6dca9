"""Measure the recipes: the programs of the pages beside PyTorch, JAX and adjoints by hand.

Each form runs in a process of its own. All have to agree on value and gradient before anything is timed; then they take
turns. Time is processor time. What was measured goes to ``docs/recipes/figures.json``, from which
``docs/recipes/make.py --tables`` makes the tables of the pages.

    python bench/recipes/run.py                     # all of them
    python bench/recipes/run.py scf ode             # some
    python bench/recipes/run.py --small --dry       # a short run that checks the programs and writes nothing
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from bench import harness  # noqa: E402
from bench.recipes import (  # noqa: E402
    chemistry,
    filters,
    heat,
    hypergradients,
    networks,
    ode,
    optimisation,
    phases,
    scf,
    tomorrow,
    wave,
)
from bench.suite.measure import measure  # noqa: E402
from bench.suite.workload import Options, Workload  # noqa: E402

FIGURES = ROOT / "docs" / "recipes" / "figures.json"
KEPT = ("form", "kind", "state", "note", "seconds", "first", "resident", "rounds")
WORKLOADS: dict[str, Workload] = {
    workload.key: workload
    for workload in (
        hypergradients.WORKLOAD,
        ode.WORKLOAD,
        filters.WORKLOAD,
        scf.WORKLOAD,
        chemistry.WORKLOAD,
        chemistry.TRIANGLE,
        heat.WORKLOAD,
        wave.WORKLOAD,
        optimisation.PDHG,
        optimisation.EQUILIBRIUM,
        optimisation.GROWTH,
        networks.IPEPS,
        networks.SYMMETRIC,
        tomorrow.WORKLOAD,
        phases.WORKLOAD,
    )
}


def rows_of(key: str, small: bool, seconds: float) -> list[dict[str, Any]]:
    """Measure one workload and return what is kept of its rows."""
    options = Options(size="small" if small else "medium", rounds=3 if small else 7, seconds=seconds, clock="processor")
    rows = []
    for row in measure(WORKLOADS[key], options):
        numbers = asdict(row)
        rows.append({name: numbers[name] for name in KEPT})
    return rows


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the recipes beside other libraries.")
    parser.add_argument("recipes", nargs="*", help="keys of workloads; all if there are none")
    parser.add_argument("--small", action="store_true", help="small sizes, which check the programs and decide nothing")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--seconds", type=float, default=40.0, help="the time for one workload")
    chosen = parser.parse_args()
    figures: dict[str, Any] = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {"measured": {}}
    for key in chosen.recipes or WORKLOADS:
        rows = rows_of(key, chosen.small, chosen.seconds)
        figures["measured"][key] = rows
        for row in rows:
            told = (
                f"{1e3 * row['seconds']:10.1f} ms {row['resident'] / 1e6:8.1f} MB" if row["seconds"] else row["state"]
            )
            print(f"{key:<24}{row['form']:<34}{told} {row['note']}", flush=True)
        if key == "wave-inversion" and not chosen.small:
            figures["measured"]["wave-inversion recompute"] = wave.recompute()
        if key == "tomorrow" and not chosen.small:
            figures["measured"]["tomorrow disk"] = tomorrow.on_disk()
    figures["versions"] = harness.versions(["unspool", "torch", "jax", "symmray"])
    if not chosen.dry:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
