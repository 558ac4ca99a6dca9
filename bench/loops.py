"""What a loop and its gradient cost: written plainly, traced, run by the engine, in other libraries, and by hand.

There are two loops, ``y ← y + 1e-6·y·y`` on 8 numbers and power iteration with n×n matrices. Each looks at a value in
every step. ``forms.py`` has them in every form. A form has a process of its own, on one thread and, where the system
allows, all on one core. Values and gradients are compared with those by hand before anything is timed; rounds are
interleaved and medians taken. Peak memory is measured in a fresh process, and so is the time to the first gradient.

    python bench/loops.py                 the tables, and the bars they are held to
    python bench/loops.py --json out.json the numbers as well
    python bench/loops.py --quick         few steps and one round: checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import forms
import harness
from harness import Bar, Worker, participants, serve

AGREEMENT = 1e-8

# A short run is repeated until one measurement takes about this long.
MEASUREMENT = 0.05

# With this set, Python would compile our modules anew in every fresh process, and no user's process does that.
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}


# --- what is measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """A way to write the loops, and the package it needs."""

    package: str
    make: Callable[[], forms.Loops]


# The first is what the others have to agree with.
FORMS = {
    "hand": Form("numpy", forms.hand),
    "hand, gathered": Form("numpy", forms.gathered),
    "unspool plain": Form("unspool", forms.plain),
    "unspool fragment": Form("unspool", forms.fragment),
    "unspool iterate": Form("unspool", forms.iterate),
    "torch eager": Form("torch", forms.torch_eager),
    "autograd": Form("autograd", forms.autograd_boxes),
    "jax scan": Form("jax", forms.jax_scan),
}
PACKAGES = {name: form.package for name, form in FORMS.items()}


@dataclass(frozen=True)
class Case:
    """A loop of a size and a number of steps, and how many rounds it is measured in."""

    loop: str
    size: int
    steps: int
    rounds: int

    def __str__(self) -> str:
        steps = f"{self.steps:,}".replace(",", " ")
        return {
            "growth": f"y ← y + 1e-6·y·y on {self.size} numbers, {steps} steps",
            "power": f"power iteration, n = {self.size}, {steps} steps",
        }[self.loop]


GROWTH = Case("growth", 8, 10_000, rounds=7)
POWER = {size: Case("power", size, 200, rounds) for size, rounds in {8: 15, 64: 15, 512: 7}.items()}
CASES = (GROWTH, *POWER.values())
QUICK = (Case("growth", 8, 100, rounds=1), Case("power", 8, 20, rounds=1))

# The first gradient is that of a loop whose arithmetic takes next to no time, so that it shows the preparations.
FIRST = POWER[64]
FIRST_ROUNDS = 5


def inputs(case: Case) -> dict[str, Any]:
    """Return the arrays that a loop takes, by name.

    The eigenvalues of the matrix lie so close together that 200 steps do not converge. A form that ran one step fewer
    would find another answer.
    """
    import numpy as np

    if case.loop == "growth":
        return {"start": 0.1 * np.arange(1.0, case.size + 1)}
    vectors, _ = np.linalg.qr(np.random.default_rng(case.size).normal(size=(case.size, case.size)))
    matrix = (vectors * (2.0 - np.arange(case.size) / 512)) @ vectors.T
    return {"matrix": (matrix + matrix.T) / 2, "start": np.full(case.size, case.size**-0.5)}


# --- workers: processes that measure what they are told to ------------------------------------------------------------


def measuring(make: Callable[[], forms.Loops]) -> Callable[..., dict[str, Any]]:
    """Import a library, and return a function that answers what the import took or measures a loop."""
    begin = time.perf_counter()
    try:
        loops = make()
    except forms.MissingError as missing:
        reason = str(missing)
        return lambda **request: {"missing": reason}
    importing = time.perf_counter() - begin

    def answer(loop: str | None = None, **request: Any) -> dict[str, Any]:
        if loop is None:
            return {"import": importing, "loops": list(loops)}
        return _measure_loop(loops[loop], **request)

    return answer


def _measure_loop(
    loop: Callable[..., Any], arrays: str, steps: int, repeats: int = 1, save: str | None = None
) -> dict[str, Any]:
    """Run a loop and return the seconds of a run and the bytes by which the first raised the peak."""
    import numpy as np

    with np.load(arrays) as stored:
        run = partial(loop, **stored, steps=steps)
    before = harness.resident_bytes()
    begin = time.perf_counter()
    value, gradient = run()
    first = time.perf_counter() - begin
    peak = harness.peak_bytes() - before
    if save:
        np.savez(save, value=value, gradient=gradient)
    if repeats == 1:
        return {"seconds": first, "bytes": peak}
    del value, gradient
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return {"seconds": (time.perf_counter() - begin) / repeats, "bytes": peak}


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What one form came to in one case: seconds by round, seconds of the very first run, peak bytes if asked for."""

    first: float
    times: list[float] = field(default_factory=list)
    peak: float | None = None

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.times)


# By form, for those that take part in a case.
Row = dict[str, Measured]


def measure(names: list[str], cases: tuple[Case, ...], folder: str) -> tuple[dict[Case, Row], dict[str, str]]:
    """Measure every case in interleaved rounds; return the rows, and why forms are missing."""
    with ExitStack() as running:
        workers = {name: running.enter_context(Worker(__file__, name, BYTECODE)) for name in names}
        hello = {name: worker.ask() for name, worker in workers.items()}
        missing = {name: told["missing"] for name, told in hello.items() if "missing" in told}
        rows = {}
        for case in cases:
            taking_part = {n: w for n, w in workers.items() if n not in missing and case.loop in hello[n]["loops"]}
            rows[case] = _measure_case(case, taking_part, folder)
    return rows, missing


def _measure_case(case: Case, workers: dict[str, Worker], folder: str) -> Row:
    request = {"loop": case.loop, "arrays": arrays_of(case, folder), "steps": case.steps}
    saved = {name: str(Path(folder, f"{name}.npz")) for name in workers}
    row = {name: Measured(w.ask(**request, save=saved[name])["seconds"]) for name, w in workers.items()}
    check_agreement(str(case), saved)
    # What a run takes when nothing is new to it decides how often it is repeated in a round.
    again = {name: worker.ask(**request)["seconds"] for name, worker in workers.items()}
    repeats = {name: max(1, round(MEASUREMENT / seconds)) for name, seconds in again.items()}
    for _ in range(case.rounds):
        for name, worker in workers.items():
            row[name].times.append(worker.ask(**request, repeats=repeats[name])["seconds"])
    return row


def arrays_of(case: Case, folder: str) -> str:
    """Return the file with what a loop takes, made if need be.

    Workers load it, because making it would leave them memory that a loop could use without raising the peak.
    """
    import numpy as np

    path = Path(folder, f"{case.loop}-{case.size}-inputs.npz")
    if not path.exists():
        np.savez(path, **inputs(case))
    return str(path)


def check_agreement(case: str, files: dict[str, str]) -> None:
    """Stop unless every form found the same value and gradient as the first."""
    import numpy as np

    answers = {}
    for name, path in files.items():
        with np.load(path) as stored:
            answers[name] = dict(stored)
    (reference, first), *others = answers.items()
    for name, other in others:
        for part, expected in first.items():
            error = np.linalg.norm(other[part] - expected) / np.linalg.norm(expected)
            if not error <= AGREEMENT:
                raise SystemExit(f"{case}: the {part} of {reference} and {name} differ by {error:.1e}")


def measure_memory(name: str, case: Case, folder: str) -> float:
    """Return the bytes by which one run raises the peak of a fresh process that has run a tiny loop before."""
    tiny = Case(case.loop, 8, 10, 1)
    with Worker(__file__, name, BYTECODE) as fresh:
        fresh.ask(loop=tiny.loop, arrays=arrays_of(tiny, folder), steps=tiny.steps)
        return float(fresh.ask(loop=case.loop, arrays=arrays_of(case, folder), steps=case.steps)["bytes"])


# Median seconds of the import and, after it, of the first gradient, by form.
FirstGradients = dict[str, tuple[float, float]]


def measure_first(names: list[str], case: Case, rounds: int, folder: str) -> FirstGradients:
    """Measure imports and first gradients in fresh processes.

    One more round comes first. It leaves bytecode in place, and counts only if there is no other.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(1 + rounds):
        for name in names:
            with Worker(__file__, name, BYTECODE) as fresh:
                importing = fresh.ask()["import"]
                gradient = fresh.ask(loop=case.loop, arrays=arrays_of(case, folder), steps=case.steps)["seconds"]
                times[name].append((importing, gradient))
    counted = {name: list(zip(*(found[1:] or found), strict=True)) for name, found in times.items()}
    return {name: (statistics.median(i), statistics.median(g)) for name, (i, g) in counted.items()}


# --- reporting -------------------------------------------------------------------------------------------------------


def print_case(case: Case, row: Row, missing: dict[str, str]) -> None:
    """Print the table of a case, with times relative to those by hand and to PyTorch's."""
    print(f"\n{case}, a value read every step, then the gradient (median)")
    print(f"  {'':<18}{'time':>11}{'a step':>12}{'peak memory':>14}{'to hand':>10}{'to torch':>10}{'first run':>13}")
    torch = row["torch eager"].seconds if "torch eager" in row else None
    for name in FORMS:
        if name in missing:
            print(f"  {name:<18}not available: {missing[name]}")
        if name not in row:
            continue
        m = row[name]
        peak = "–" if m.peak is None else f"{m.peak / 1e6:.2f} MB"
        to_torch = "–" if torch is None else f"{m.seconds / torch:.2f} ×"
        print(
            f"  {name:<18}{1e3 * m.seconds:>8.2f} ms{1e6 * m.seconds / case.steps:>9.2f} µs{peak:>14}"
            f"{m.seconds / row['hand'].seconds:>8.2f} ×{to_torch:>10}{1e3 * m.first:>10.1f} ms"
        )
    if "jax scan" in row:
        print("  jax scan compiles in its first run, which counts in its memory; no value can stop it early")


def print_first(case: Case, first: FirstGradients) -> None:
    """Print what a fresh process needs for its first gradient."""
    print(f"\nFirst gradient of a fresh process, {case} (median)")
    print(f"  {'':<18}{'import':>11}{'gradient':>13}{'together':>13}")
    for name, (importing, gradient) in first.items():
        together = importing + gradient
        print(f"  {name:<18}{1e3 * importing:>8.0f} ms{1e3 * gradient:>10.1f} ms{1e3 * together:>10.0f} ms")


def bars(rows: dict[Case, Row], first: FirstGradients) -> Iterator[Bar]:
    """Yield the bars that this run can decide."""
    for form, case, least in (
        ("plain", GROWTH, 1.5),
        ("plain", POWER[8], 1.5),
        ("plain", POWER[64], 1.5),
        ("plain", POWER[512], 1.0),
        ("fragment", POWER[8], 3.0),
        ("fragment", POWER[64], 3.0),
    ):
        ratio = _ratio(rows[case], "torch eager", f"unspool {form}")
        if ratio is not None:
            yield Bar(f"{form} faster than torch, {_short(case)}", ratio, least, "×", least=True)
    for case, limit in ((POWER[8], 1.3), (POWER[64], 1.3), (POWER[512], 1.0)):
        ratio = _ratio(rows[case], "unspool iterate", "hand")
        if ratio is not None:
            yield Bar(f"iterate, time beside that by hand, {_short(case)}", ratio, limit, "×")
    for name, ours in first.items():
        if name != "jax scan" and "jax scan" in first:
            theirs, what = first["jax scan"], f"{name}, first gradient shorter than jax's"
            yield Bar(f"{what}, imports apart", theirs[1] / ours[1], 10.0, "×", least=True)
            yield Bar(f"{what}, with imports", sum(theirs) / sum(ours), 10.0, "×", least=True)


def notes(rows: dict[Case, Row], missing: dict[str, str]) -> Iterator[str]:
    """Yield what is beside the bars: a ratio without one, and forms that could not be held to theirs."""
    ratio = _ratio(rows[GROWTH], "unspool iterate", "hand")
    if ratio is not None:
        yield f"iterate takes {ratio:.2f} × the time of that by hand, {_short(GROWTH)}; no bar"
    for name, reason in missing.items():
        yield f"the bars of {name} are not decided: {reason}"


def _ratio(row: Row, numerator: str, denominator: str) -> float | None:
    if numerator not in row or denominator not in row:
        return None
    return row[numerator].seconds / row[denominator].seconds


def _short(case: Case) -> str:
    return f"power n = {case.size}" if case.loop == "power" else "y ← y + 1e-6·y·y"


# --- the run ---------------------------------------------------------------------------------------------------------


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    options = harness.options("Measure loops and their gradients in every form.")
    if options.worker:
        serve(measuring(FORMS[options.worker].make))
        return 0

    harness.one_core()
    names = participants(PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        rows, missing = measure(names, QUICK if options.quick else CASES, folder)
        for case in QUICK[-1:] if options.quick else CASES:
            for name, measured in rows[case].items():
                measured.peak = measure_memory(name, case, folder)
        for case, row in rows.items():
            print_case(case, row, missing)
        fresh = [n for n in names if PACKAGES[n] in ("unspool", "jax") and n not in missing]
        case, rounds = (QUICK[-1], 0) if options.quick else (FIRST, FIRST_ROUNDS)
        first = measure_first(fresh, case, rounds, folder)
        print_first(case, first)
    if options.json:
        _write(options.json, rows, first, missing)
    if options.quick:
        return 0
    print()
    verdict = harness.decide(bars(rows, first))
    for note in notes(rows, missing):
        print(f"  note  {note}")
    return verdict


def _write(path: str, rows: dict[Case, Row], first: FirstGradients, missing: dict[str, str]) -> None:
    table = [
        {
            "loop": case.loop,
            "size": case.size,
            "steps": case.steps,
            "form": name,
            "seconds": m.seconds,
            "rounds": m.times,
            "first_run": m.first,
            "peak_bytes": m.peak,
        }
        for case, row in rows.items()
        for name, m in row.items()
    ]
    fresh = {name: {"import": importing, "gradient": gradient} for name, (importing, gradient) in first.items()}
    harness.write(path, PACKAGES.values(), {"rows": table, "first_gradient": fresh, "missing": missing})


if __name__ == "__main__":
    sys.exit(main())
