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
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.suite import bars, report
from bench.suite.measure import OVERTIME, SuiteError, measure
from bench.suite.results import Results, begun, load, machine, measured, versions
from bench.suite.results import write as write_results
from bench.suite.workload import SIZES, Options, Special

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "results"

# From here on the machine counts as busy: time by the wall for each second that a form had the core.
MOST_BUSY = 1.1

# What all workloads together may take, and what one has at least, however late it is.
MINUTES, LEAST_SECONDS = 29.0, 20.0


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
    parser.add_argument("--seconds", type=float, metavar="S", default=Options.seconds, help="the most for one workload")
    parser.add_argument("--minutes", type=float, metavar="M", default=MINUTES, help="time for all of them together")
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


def run(keys: Sequence[str], options: Options, minutes: float) -> Results:
    """Measure workloads one after another, and print the table of each as it is done."""
    results = begun(options)
    begin = time.monotonic()
    for place, key in enumerate(keys):
        workload = importlib.import_module(f"bench.suite.{available()[key]}").WORKLOAD
        started = time.monotonic()
        seconds = share(options.seconds, 60.0 * minutes - (started - begin), len(keys) - place)
        limited = dataclasses.replace(options, seconds=seconds)
        try:
            rows = workload.run(limited) if isinstance(workload, Special) else measure(workload, limited)
        except SuiteError as error:
            results.errors[key] = str(error)
            results.bars += bars.unmeasured(workload, f"error: {error}")
            print(f"\n{key}: ERROR: {error}", flush=True)
            continue
        found = measured(workload, rows, options, time.monotonic() - started)
        results.workloads[key] = found
        results.bars += bars.judge(workload, rows, options)
        print(report.table(found.heading, rows, found.axis), flush=True)
        print(f"  {found.seconds:.0f} s", flush=True)
    results.load.append(load())
    results.seconds = time.monotonic() - begin
    return results


def share(most: float, left: float, workloads: int) -> float:
    """Return the seconds that a workload may plan with, so that all which are left end in time.

    >>> share(100.0, 1800.0, 12), share(100.0, 300.0, 4)
    (100.0, 50.0)
    """
    return max(min(most, left / workloads / (1.0 + OVERTIME)), LEAST_SECONDS)


# --- results ----------------------------------------------------------------------------------------------------------


def write(results: Results, chosen: argparse.Namespace) -> None:
    """Write the numbers, and for more than a quick run the table for documents and the pictures."""
    folder = chosen.results or RESULTS
    path = chosen.json or (None if chosen.quick else folder / "suite.json")
    if path is not None:
        write_results(results, path)
        print(f"\n{path}")
    if chosen.quick and chosen.results is None:
        return
    from bench.suite import plots

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.md").write_text(report.markdown(report.summary(results.rows)) + "\n", encoding="utf-8")
    for picture in plots.draw(results.workloads, folder):
        print(picture)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write, and return 1 if a bar is missed or something went wrong."""
    chosen = parse(arguments)
    options = options_of(chosen)
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    about = machine()
    print(f"{about['processor']}, {about['cores']} cores; load {load()}; {options.threads} thread(s), {options.size}")
    results = run(chosen.workload, options, chosen.minutes)
    left_out = report.missing(results.everything)
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
    busy = report.busy(results.everything)
    if busy > MOST_BUSY and options.clock == "wall":
        print(
            f"the machine was busy: half of the times are {busy:.2f} × what they would be alone; try --clock processor"
        )
    print(f"{results.seconds / 60:.1f} minutes; load {results.load[0]} before and {results.load[-1]} after")
    return 1 if results.missed else 0


if __name__ == "__main__":
    sys.exit(main())
