"""B10: a loop of 10⁴ steps and its gradient under memory budgets of 100, 50, 10 and 2 %.

The loop and its forms are those of ``bench/memory.py``, which explains them and has bars of its own: ten ops a step on
an n×n state, the energy read in every step, then the gradient in the matrix that drives the loop and in the start. A
budget is a share of the bytes that ours keeps when nothing limits it. Here the state is small, so that everything fits
into a few GB for the peers too: PyTorch keeping everything, PyTorch with `torch.utils.checkpoint` around each √K steps,
and Equinox's checkpointed loop, whose compilation is its first call.

Every run is a fresh process. Times are medians by the wall, with the memory that a run takes from the system. The note
of a row has the recompute factor, runs of a step for each step, beside the optimal one under the budget. Growth is
that of the process, and has in it what no budget covers, such as the records of the steps. A budget that changes a
single bit of the gradient in the first round is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.suite.workload import Options, Row, Special

BENCH = Path(__file__).resolve().parents[1]

SIZES = {
    "small": {"size": 32, "steps": 2_000},
    "medium": {"size": 64, "steps": 10_000},
    "large": {"size": 128, "steps": 10_000},
}

# What `memory.py` calls the peers: their names here, and their libraries.
PEERS = {
    "torch store-all": ("PyTorch, keeps all", "torch"),
    "torch √K blocks": ("PyTorch, √K checkpoints", "torch"),
    "equinox": ("Equinox", "equinox"),
}

MOST_ROUNDS = 5


def run(options: Options) -> list[Row]:
    """Measure ours under every budget, and the peers, in rounds until the time is over."""
    from bench.suite.measure import SuiteError

    memory = memory_module()
    deadline = time.monotonic() + options.seconds
    names = [name for name, package in memory.PACKAGES.items() if importlib.util.find_spec(package)]
    absent = {name: ("missing", f"{PEERS[name][1]} not installed") for name in PEERS if name not in names}
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    try:
        memory.harness.one_core()
        with tempfile.TemporaryDirectory() as folder:
            bench = memory.Bench(**SIZES[options.size], folder=Path(folder))
            for name, (steps, reason) in memory.fitting(bench, names).items():
                if name == "unspool":
                    bench.steps, bench.reason = steps, reason
                else:
                    names.remove(name)
                    absent[name] = ("cannot", reason)
            measured = [*ours(memory, bench), *peers(memory, bench, names, absent)]
            more_rounds(memory, bench, measured, options, deadline)
    except SystemExit as stop:  # what the scripts of `bench` do when something is not as it must be
        raise SuiteError(str(stop)) from None
    finally:
        if cores is not None:
            os.sched_setaffinity(0, cores)
    others = [
        Row("B10", *PEERS[name], "peer", options.size, state=state, note=why) for name, (state, why) in absent.items()
    ]
    return [row_of(one, bench, options) for one in measured] + others


def memory_module() -> Any:
    """Import ``bench/memory.py``, whose neighbours are found by their own names."""
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("memory")
    finally:
        sys.path.remove(str(BENCH))


def ours(memory: Any, bench: Any) -> list[Any]:
    """Return one round of ours under every budget; raise if a bit is not that of the run without a limit."""
    measured: list[Any] = memory.measure(bench, ["unspool"], memory.SHARES, rounds=1)
    different = [str(one) for one in measured if one.differing]
    if different:
        raise SystemExit(f"{', '.join(different)}: not the bits of the run without a limit")
    return measured


def peers(memory: Any, bench: Any, names: list[str], absent: dict[str, tuple[str, str]]) -> list[Any]:
    """Return one round of the peers, and enter those that fail among the absent; raise if one disagrees."""
    measured = [memory.Row(name) for name in PEERS if name in names]
    for one in measured:
        try:
            one.runs.append(bench.run(one.form, save=str(one)))
        except SystemExit:
            absent[one.form] = ("failed", "the process ended early")
            continue
        memory.check_agreement(str(one), {name: bench.answer(name) for name in ("unlimited", str(one))})
    return [one for one in measured if one.runs]


def more_rounds(memory: Any, bench: Any, measured: list[Any], options: Options, deadline: float) -> None:
    """Run all forms again, as long as another round fits."""
    for _ in range(min(options.rounds, MOST_ROUNDS) - 1):
        begin = time.monotonic()
        if begin + sum(one.runs[-1]["seconds"] + one.runs[-1]["prepared"] for one in measured) > deadline:
            break
        for one in measured:
            one.runs.append(bench.run(one.form, one.budget or memory.UNLIMITED, save=str(one)))


def row_of(one: Any, bench: Any, options: Options) -> Row:
    """Return what a form took, as a row of the suite."""
    from bench.suite.measure import quartiles

    shown, library = PEERS.get(one.form, ("unspool", "unspool"))
    low, median, high = quartiles([found["seconds"] for found in one.runs])
    told = one.runs[-1]["report"]
    return Row(
        "B10",
        shown,
        library,
        "ours" if library == "unspool" else "peer",
        options.size,
        x=None if one.share is None else 100 * one.share,
        note=note_of(one, bench),
        seconds=median,
        low=low,
        high=high,
        rounds=len(one.runs),
        first=one.median("prepared") + median if library == "equinox" else None,
        live=None if told is None else told["peak"],
        resident=int(one.growth),
        steps=bench.steps,
    )


def note_of(one: Any, bench: Any) -> str:
    """Say what a budget came to, and why there are fewer steps if there are."""
    said = []
    if one.budget is not None:
        factor = one.runs[-1]["report"]["factor"]
        said.append(f"budget {one.budget / 1e6:.3g} MB, factor {factor:.2f}, optimal {one.factor:.2f}")
        said.append(f"growth {100 * one.growth / one.budget:.0f} % of the budget")
    if bench.reason:
        said.append(f"{bench.steps:,} steps: {bench.reason}")
    return "; ".join(said)


WORKLOAD = Special(
    key="B10",
    title="a loop of 10⁴ steps under memory budgets",
    run=run,
    plot="budget",
    axis="budget, % of what is kept without a limit",
)
