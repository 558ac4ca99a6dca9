"""Measure unspool beside the libraries people use instead, and beside adjoints written by hand.

    python bench/suite/run.py                          all workloads, medium size: tables, pictures, bars
    python bench/suite/run.py --workload B3 --size small
    python bench/suite/run.py --quick                  small sizes, one round: checks the suite; no bars, no pictures

Each form of a workload has its own process, on one core and one BLAS thread unless ``--threads`` says otherwise. The
numbers go to ``bench/results/suite.json``, or where ``--json`` says, the tables to ``suite.md`` and the pictures beside
it. Exits with 1 if a bar is missed, if forms disagree, or if one of ours fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench import harness
from bench.suite import report
from bench.suite.measure import SuiteError, measure
from bench.suite.workload import PACKAGES, SIZES, Options, Row, Special, Workload

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "results"

# From here on the machine counts as busy: time by the wall for each second that a form had the core.
MOST_BUSY = 1.1


# --- what to run ------------------------------------------------------------------------------------------------------


def available() -> dict[str, str]:
    """Return the modules of the workloads by key, in order."""
    stems = {path.stem.split("_")[0].upper(): path.stem for path in FOLDER.glob("b*_*.py")}
    return {key: stems[key] for key in sorted(stems, key=lambda key: int(key[1:]))}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Measure unspool beside its peers and beside adjoints by hand.")
    keys = ", ".join(available())
    parser.add_argument("--workload", nargs="+", metavar="KEY", help=f"one or more of {keys}; all without it")
    parser.add_argument("--size", choices=SIZES, default="medium")
    parser.add_argument("--threads", type=int, choices=(1, 2), default=1, help="cores and BLAS threads (default 1)")
    parser.add_argument("--rounds", type=int, metavar="N", default=Options.rounds, help="the most rounds")
    parser.add_argument("--seconds", type=float, metavar="S", default=Options.seconds, help="time for each workload")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="processor: on a busy machine")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round; no bars and no pictures")
    parser.add_argument("--json", metavar="FILE", type=Path, help="where the numbers go")
    parser.add_argument("--results", metavar="FOLDER", type=Path, help=f"where the pictures go (default {RESULTS})")
    chosen = parser.parse_args(arguments)
    chosen.workload = [key.upper() for key in chosen.workload or available()]
    unknown = [key for key in chosen.workload if key not in available()]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {keys}")
    if chosen.rounds < 1:
        parser.error("--rounds must be at least 1")
    return chosen


def options_of(chosen: argparse.Namespace) -> Options:
    """Return how to measure. A quick run is small whatever else is asked for."""
    size, rounds = ("small", 1) if chosen.quick else (chosen.size, chosen.rounds)
    return Options(size, chosen.threads, rounds, chosen.seconds, chosen.quick, chosen.clock)


# --- running ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Results:
    """What a run came to: the workloads that were measured, their rows by key, the bars, and what went wrong."""

    options: Options
    workloads: dict[str, Workload | Special] = dataclasses.field(default_factory=dict)
    rows: dict[str, list[Row]] = dataclasses.field(default_factory=dict)
    bars: list[report.Verdict] = dataclasses.field(default_factory=list)
    errors: dict[str, str] = dataclasses.field(default_factory=dict)
    load: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def missed(self) -> bool:
        """Whether the run is to end with an error."""
        return bool(self.errors) or any(verdict.held is False for verdict in self.bars)


def run(keys: Iterable[str], options: Options) -> Results:
    """Measure workloads one after another, and print the table of each as it is done."""
    results = Results(options, load=[_load()])
    begin = time.monotonic()
    for key in keys:
        try:
            workload = importlib.import_module(f"bench.suite.{available()[key]}").WORKLOAD
            rows = workload.run(options) if isinstance(workload, Special) else measure(workload, options)
        except SuiteError as error:
            results.errors[key] = str(error)
            print(f"\n{key}: ERROR: {error}", flush=True)
            continue
        results.workloads[key], results.rows[key] = workload, rows
        if not options.quick:
            results.bars += report.judge(workload, rows, options.size)
        axis = workload.axis if isinstance(workload, Special) else ""
        print(report.table(_title(workload, options), rows, axis), flush=True)
    results.load.append(_load())
    results.seconds = time.monotonic() - begin
    return results


def _title(workload: Workload | Special, options: Options) -> str:
    title = f"{workload.key} {workload.title}"
    if isinstance(workload, Special):
        return title
    parameters = ", ".join(f"{name} = {value}" for name, value in workload.sizes[options.size].items())
    return f"{title} · {options.size}: {parameters}"


def _load() -> float:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else float("nan")


# --- results ----------------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: processor, cores, memory and system."""
    found = {"system": platform.platform(), "processor": platform.processor() or platform.machine()}
    cpus, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpus.exists():
        names = [line.partition(":")[2].strip() for line in cpus.read_text().splitlines() if "model name" in line]
        found["processor"] = names[0] if names else found["processor"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    numbers: dict[str, Any] = {"cores": cores}
    if memory.exists():
        numbers["memory"] = 1024 * int(memory.read_text().split()[1])
    return found | numbers


def versions() -> dict[str, str]:
    """Return the versions that belong to the numbers; ours as it is imported, which may be a working tree."""
    import unspool

    packages = dict.fromkeys([name for names in PACKAGES.values() for name in names] + ["jaxlib"])
    return harness.versions(packages) | {"unspool": unspool.__version__}


def as_json(results: Results) -> dict[str, Any]:
    """Return a run as it is written to a file."""
    return {
        "versions": versions(),
        "machine": machine() | {"load": results.load},
        "options": dataclasses.asdict(results.options),
        "seconds": results.seconds,
        "workloads": {
            key: {
                "title": workload.title,
                "parameters": None if isinstance(workload, Special) else workload.sizes[results.options.size],
                "rows": [dataclasses.asdict(row) for row in results.rows[key]],
            }
            for key, workload in results.workloads.items()
        },
        "bars": [report.as_json(verdict) for verdict in results.bars],
        "errors": results.errors,
    }


def write(results: Results, chosen: argparse.Namespace) -> None:
    """Write the numbers, and for more than a quick run the table for documents and the pictures."""
    folder = chosen.results or RESULTS
    path = chosen.json or (None if chosen.quick else folder / "suite.json")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(as_json(results), indent=2) + "\n", encoding="utf-8")
        print(f"\n{path}")
    if chosen.quick and chosen.results is None:
        return
    from bench.suite import plots

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.md").write_text(report.markdown(report.summary(results.rows)) + "\n", encoding="utf-8")
    for picture in plots.draw(results.workloads, results.rows, folder):
        print(picture)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write, and return 1 if a bar is missed or something went wrong."""
    chosen = parse(arguments)
    options = options_of(chosen)
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    about = machine()
    print(f"{about['processor']}, {about['cores']} cores; load {_load()}; {options.threads} thread(s), {options.size}")
    results = run(chosen.workload, options)
    left_out = report.missing(row for rows in results.rows.values() for row in rows)
    print("\nOurs beside the best peer and the limit; a ratio below 1 is for ours")
    print(report.aligned(report.summary(results.rows)))
    if left_out:
        print(left_out)
    if results.bars:
        print("\nBars")
        print("\n".join(map(str, results.bars)))
    for key, error in results.errors.items():
        print(f"  ERROR {key}   {error}")
    write(results, chosen)
    busy = report.busy(row for rows in results.rows.values() for row in rows)
    if busy > MOST_BUSY and options.clock == "wall":
        print(
            f"the machine was busy: half of the times are {busy:.2f} × what they would be alone; try --clock processor"
        )
    print(f"{results.seconds / 60:.1f} minutes; load {results.load[0]} before and {results.load[-1]} after")
    return 1 if results.missed else 0


if __name__ == "__main__":
    sys.exit(main())
