"""What a loop and its gradient take in memory and time under a budget, beside PyTorch and Equinox.

The loop moves an n×n state by ten ops a step and looks at a value in every step; then come a loss and its gradient with
respect to the matrix that drives it and to the start. `unspool` runs it within 100 %, 50 %, 10 % and 2 % of the bytes
it keeps when nothing limits it, as measured in the same run. Beside it are PyTorch keeping everything, PyTorch with
`torch.utils.checkpoint` by hand around each √K steps, and Equinox's checkpointed loop, which chooses the number of its
checkpoints itself and whose compilation is timed apart.

Every run is a fresh process on one thread, after a run on a tiny state; all share one core, where the system allows.
Rounds go through the forms in turn. Times are medians, memory is the most of all rounds. Growth is that of the resident
bytes since the loop began: the larger of what a thread sees every 20 ms and of the system's own mark. A fresh process
gets its memory from the system page by page; that is part of the time, as it is in a user's program. What that costs is
told by a run at 100 % whose memory was at hand: the second one of a process that gives nothing back. Before anything
counts, values and gradients have to agree to eight digits. A peer whose 10 000 steps do not fit into 60 % of the memory
is measured with as many as fit, beside unspool with the same number, in a table of its own. ``memory_forms.py`` has the
loop in each library.

    python bench/memory.py                 the table, the bars, and a picture: bench/results/memory.png
    python bench/memory.py --json out.json the numbers as well
    python bench/memory.py --quick         few steps of a small state, one round: checks the harness; no bars
    python bench/memory.py --steps 2000    other sizes: --steps, --size, --rounds; and --plot for the picture

The bars, for each budget B:

* Growth is at most 1.1·B.
* Time is at most 1.15·(F·f + r + B·p). Here f is the time of the loop and r that of the gradient at 100 % with memory
  at hand, p what a byte of fresh memory costs, so that at 100 % it is the time with fresh memory, and F is the
  optimal recompute factor: runs of a step for each step, under the best plan that keeps to B. A run that was not the
  first costs what the first one cost; reversing a step costs the same under every budget. F comes from the formula
  for blocks, `unspool.checkpoint.planner.block_plan`, for a state of 8·n² bytes and the bytes that are kept for a
  step when nothing limits them. Where more than about fifteen steps can be kept, it is within 0.2 % of the exact
  optimum.
* No bit of the gradient differs from what it is without a limit.
* At 100 %, time is at most that of PyTorch keeping everything.

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from harness import Bar, Worker, participants, serve
from loops import check_agreement
from memory_forms import FORMS, UNLIMITED, Prepare, inputs

STEPS, SIZE, ROUNDS = 10_000, 256, 3
QUICK = (1_000, 32, 1)

# The forms that keep everything, the share of the memory that they may take, and the steps of the short runs that show
# what a step takes.
MOST_MEMORY = 0.6
HUNGRY = ("unspool", "torch store-all")
PILOT = (50, 150)

PACKAGES = {name: form.package for name, form in FORMS.items()}

SHARES = (1.0, 0.5, 0.1, 0.02)

# The allocator of glibc gives no memory back: a second run of a process finds what the first one had.
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}

INTERVAL = 0.02
MOST_SAMPLES = 1000

MOST_GROWTH, MOST_TIME = 110.0, 1.15

PICTURE = Path(__file__).parent / "results" / "memory.png"


# --- workers: fresh processes, each for one run ----------------------------------------------------------------------


class Sampler:
    """Looks at the resident bytes of this process all the time, in a thread of its own."""

    def __init__(self) -> None:
        # What is imported here is in memory before the run begins.
        from unspool._engine.memory.process_limits import resident_bytes

        self._resident = resident_bytes

    def __enter__(self) -> Sampler:
        self.samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._before = harness.resident_bytes()
        self.begin = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self.begin
        self._stop.set()
        self._thread.join()
        self.growth = max([harness.peak_bytes() - self._before, *(grown for _, grown in self.samples)])

    def _watch(self) -> None:
        while True:
            self.samples.append((time.perf_counter() - self.begin, self._resident() - self._before))
            if self._stop.wait(INTERVAL):
                return


def measuring(make: Callable[[], Prepare]) -> Callable[..., dict[str, Any]]:
    """Import a library and run a tiny loop; return a function that measures a run."""
    prepare = make()
    prepare(**inputs(8), steps=100, budget=UNLIMITED)()

    def answer(arrays: str | None = None, save: str = "", again: bool = False, **request: Any) -> dict[str, Any]:
        import numpy as np

        if arrays is None:
            return _facts(**request)
        with np.load(arrays) as stored:
            loaded = dict(stored)
        if again:
            prepare(**loaded, **request)()
        begin = time.perf_counter()
        run = prepare(**loaded, **request)
        prepared = time.perf_counter() - begin
        with Sampler() as sampler:
            found = run()
        np.savez(save, value=found.value, by_matrix=found.by_matrix, by_start=found.by_start)
        return {
            "seconds": sampler.seconds,
            "forward": None if found.at_loss is None else found.at_loss - sampler.begin,
            "prepared": prepared,
            "growth": sampler.growth,
            "resident": thinned(sampler.samples),
            "live": thinned(found.timeline),
            "report": found.report,
        }

    return answer


def _facts(steps: int, budgets: list[int], state: int, tape: float) -> dict[str, Any]:
    """Return the memory there is and the optimal recompute factors under budgets."""
    from unspool._engine.memory.process_limits import available_bytes
    from unspool.checkpoint.planner import block_plan

    factors = [block_plan(steps, budget, state, int(tape)).factor for budget in budgets]
    return {"available": available_bytes(), "factors": factors}


def thinned(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most so many samples, from each stretch of time the one with the most bytes."""
    stride = -(-len(samples) // MOST_SAMPLES) or 1
    return [max(samples[i : i + stride], key=lambda sample: sample[1]) for i in range(0, len(samples), stride)]


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """A form under a budget, if it takes one, and what its runs told, round by round.

    ``again`` tells whether it is the second run of a process, whose memory is at hand.
    """

    form: str
    share: float | None = None
    budget: int | None = None
    factor: float | None = None
    again: bool = False
    differing: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        name = self.form if self.share is None else f"{self.form} {100 * self.share:.0f} %"
        return f"{name}, again" if self.again else name

    def median(self, what: str) -> float:
        """The median of a time over the rounds."""
        return float(statistics.median(run[what] for run in self.runs))

    @property
    def growth(self) -> float:
        """The most bytes by which a run grew."""
        return float(max(run["growth"] for run in self.runs))

    @property
    def reverse(self) -> float:
        """The median time from the loss to the gradient."""
        return float(statistics.median(run["seconds"] - run["forward"] for run in self.runs))


@dataclass
class Bench:
    """A size, a number of steps and why not more, a folder for arrays, and the bytes kept when nothing limits them."""

    size: int
    steps: int
    folder: Path
    kept: int = 0
    reason: str = ""

    @property
    def state(self) -> int:
        """Bytes of a state."""
        return 8 * self.size**2

    def run(
        self, form: str, budget: float = UNLIMITED, steps: int | None = None, save: str = "answer", again: bool = False
    ) -> dict[str, Any]:
        """Run a form in a fresh process."""
        import numpy as np

        arrays = self.folder / "inputs.npz"
        if not arrays.exists():
            np.savez(arrays, **inputs(self.size))
        with Worker(__file__, form, KEEPING if again else None) as fresh:
            return fresh.ask(
                arrays=str(arrays), save=self.answer(save), steps=steps or self.steps, budget=budget, again=again
            )

    def answer(self, name: str) -> str:
        """The file that an answer is in."""
        return str(self.folder / f"{name}.npz")

    def facts(self, budgets: list[int]) -> dict[str, Any]:
        """Ask for the memory there is and for the optimal recompute factors."""
        with Worker(__file__, "unspool") as fresh:
            return fresh.ask(steps=self.steps, budgets=budgets, state=self.state, tape=self.kept / self.steps)


def fitting(bench: Bench, names: list[str]) -> dict[str, tuple[int, str]]:
    """Return, of forms whose steps do not fit into a share of the memory, how many do, and why not more."""
    room = MOST_MEMORY * bench.facts([])["available"]
    fewer: dict[str, tuple[int, str]] = {}
    for name in HUNGRY:
        if name in names:
            few, many = (bench.run(name, steps=steps)["growth"] for steps in PILOT)
            taken = (many - few) / (PILOT[1] - PILOT[0])
            if taken * bench.steps > room:
                reason = f"{name} takes {taken / 1e6:.2f} MB a step, and {room / 1e9:.1f} GB is the most to take"
                fewer[name] = int(room / taken), reason
    return fewer


def benches(asked: Bench, names: list[str]) -> list[tuple[Bench, list[str], tuple[float, ...]]]:
    """Return what to measure: all steps with what fits, and fewer steps of unspool and a peer that does not."""
    fewer = fitting(asked, names)
    if ours := fewer.pop("unspool", None):
        asked.steps, asked.reason = ours
    planned = [(asked, [name for name in names if name not in fewer], SHARES)]
    for name, (steps, reason) in fewer.items():
        folder = asked.folder / "fewer"
        folder.mkdir(exist_ok=True)
        planned.append(
            (Bench(asked.size, min(steps, asked.steps), folder, reason=reason), ["unspool", name], SHARES[:1])
        )
    return planned


def measure(bench: Bench, names: list[str], shares: tuple[float, ...], rounds: int) -> list[Row]:
    """Measure what is kept without a limit, then every form and budget in interleaved rounds."""
    report = bench.run("unspool", save="unlimited")["report"]
    bench.kept = report["peak"]
    budgets = [int(share * bench.kept) for share in shares]
    factors = bench.facts(budgets)["factors"]
    rows = [Row("unspool", *settings) for settings in zip(shares, budgets, factors, strict=True)]
    rows.insert(1, Row("unspool", again=True))
    rows += [Row(name) for name in names if name != "unspool"]
    for _ in range(rounds):
        for row in rows:
            row.runs.append(bench.run(row.form, row.budget or UNLIMITED, save=str(row), again=row.again))
            check_agreement(str(row), {name: bench.answer(name) for name in ("unlimited", str(row))})
            if row.budget is not None:
                row.differing += differing(bench.answer("unlimited"), bench.answer(str(row)))
    return rows


def differing(reference: str, other: str) -> int:
    """Count the numbers of two answers that are not equal to the last bit."""
    import numpy as np

    with np.load(reference) as expected, np.load(other) as found:
        return sum(int(np.sum(expected[part] != found[part])) for part in expected)


# --- reporting -------------------------------------------------------------------------------------------------------


def expected_seconds(row: Row, rows: list[Row]) -> float | None:
    """What a budget should take, given what 100 % takes: the loop as often as the factor says, the gradient once.

    Fresh memory costs as much for a byte as it does at 100 %.
    """
    if row.factor is None or row.share is None:
        return None
    again = next(row for row in rows if row.again)
    fresh = rows[0].median("seconds") - again.median("seconds")
    return row.factor * again.median("forward") + again.reverse + row.share * fresh


def print_table(bench: Bench, rows: list[Row]) -> None:
    """Print what every form took."""
    kept = bench.kept / 1e6
    if bench.reason:
        print(f"\nFewer steps: {bench.reason}")
    print(
        f"\nA {bench.size}×{bench.size} state, {bench.steps:,} steps, a value read every step, then loss and gradient"
    )
    print(f"Without a limit unspool keeps {kept:,.1f} MB, {kept / bench.steps:.3f} MB for a step")
    print(
        f"  {'':<18}{'budget':>12}{'growth':>12}{'live':>12}{'time':>10}{'loop':>10}{'gradient':>10}"
        f"{'factor':>8}{'optimal':>9}{'expected':>10}{'compiling':>11}"
    )
    for row in rows:
        report = row.runs[-1]["report"] or {}
        compiling = row.median("prepared") if row.form == "equinox" else None
        parts = (row.median("forward"), row.reverse) if row.runs[0]["forward"] is not None else (None, None)
        print(
            f"  {row!s:<18}{_cell(row.budget, 12, 1e6, 'MB')}{_cell(row.growth, 12, 1e6, 'MB')}"
            f"{_cell(report.get('peak'), 12, 1e6, 'MB')}{_cell(row.median('seconds'), 10, 1, 's')}"
            f"{_cell(parts[0], 10, 1, 's')}{_cell(parts[1], 10, 1, 's')}{_cell(report.get('factor'), 8)}"
            f"{_cell(row.factor, 9)}{_cell(expected_seconds(row, rows), 10, 1, 's')}{_cell(compiling, 11, 1, 's')}"
        )


def _cell(number: float | None, width: int, scale: float = 1.0, unit: str = "") -> str:
    return f"{'–' if number is None else f'{number / scale:,.2f} {unit}'.rstrip():>{width}}"


def bars(rows: list[Row]) -> Iterator[Bar]:
    """Yield the bars that this run can decide."""
    full = rows[0]
    for row in rows:
        expected = expected_seconds(row, rows)
        if row.budget is not None and expected is not None:
            yield Bar(f"{row}, growth beside the budget", 100 * row.growth / row.budget, MOST_GROWTH, "%")
            yield Bar(f"{row}, time beside the expected", row.median("seconds") / expected, MOST_TIME, "×")
            yield Bar(f"{row}, numbers that differ from those without a limit", row.differing, 0, "")
        if row.form == "torch store-all":
            yield Bar(f"{full}, time beside {row}", full.median("seconds") / row.median("seconds"), 1.0, "×")


def draw(path: Path, bench: Bench, rows: list[Row]) -> None:
    """Draw bytes over time: those that unspool counts as alive, and those by which every process grew."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("\nmatplotlib is not installed: no picture")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (live, resident) = plt.subplots(1, 2, figsize=(13, 5), sharey=True, layout="constrained")
    blues, others = plt.get_cmap("Blues"), iter(("tab:orange", "tab:red", "tab:green"))
    for row in rows:
        if row.again:
            continue
        last = row.runs[-1]
        color = next(others) if row.share is None else blues(0.95 - 0.15 * SHARES.index(row.share))
        resident.plot(*_curve(last["resident"]), color=color, label=str(row), linewidth=1.2)
        if row.budget is not None:
            live.plot(*_curve(last["live"]), color=color, linewidth=1.2)
            live.axhline(row.budget / 1e6, color=color, linestyle=":", linewidth=1)
    lowest = min(row.budget for row in rows if row.budget is not None)
    live.set(title="counted as alive by unspool; dotted: the budget", ylabel="MB", yscale="log")
    live.set_ylim(bottom=lowest / 5e6)
    resident.set(title="growth of the process")
    for axes in (live, resident):
        axes.set_xlabel("seconds since the loop began")
        axes.grid(alpha=0.3)
    figure.legend(*resident.get_legend_handles_labels(), loc="outside right upper")
    figure.suptitle(f"Loss and gradient of a loop of {bench.steps:,} steps on a {bench.size}×{bench.size} state")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"\n{path}")


def _curve(samples: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    # A logarithm has no place for what has not grown yet.
    return [seconds for seconds, _ in samples], [max(grown, 1.0) / 1e6 for _, grown in samples]


# --- the run ---------------------------------------------------------------------------------------------------------


def options() -> argparse.Namespace:
    """Return the options; those of the other benchmarks, the sizes, and where the picture goes."""
    parser = argparse.ArgumentParser(description="Measure a loop and its gradient under memory budgets.")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to a file")
    parser.add_argument("--plot", metavar="FILE", type=Path, default=PICTURE, help=f"the picture (default {PICTURE})")
    parser.add_argument("--quick", action="store_true", help="a short run that checks the harness; no bars")
    for name, what in (("steps", "the most steps"), ("size", "rows of the state"), ("rounds", "runs of each form")):
        parser.add_argument(f"--{name}", metavar="N", type=int, help=what)
    parser.add_argument("--worker", metavar="FORM", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure, print, draw, and return 1 if a bar is missed."""
    chosen = options()
    if chosen.worker:
        serve(measuring(FORMS[chosen.worker].make))
        return 0

    harness.one_core()
    names = participants(PACKAGES)
    defaults = QUICK if chosen.quick else (STEPS, SIZE, ROUNDS)
    steps, size, rounds = (
        given or default for given, default in zip((chosen.steps, chosen.size, chosen.rounds), defaults, strict=True)
    )
    with tempfile.TemporaryDirectory() as folder:
        planned = benches(Bench(size, steps, Path(folder)), names)
        found = [(bench, measure(bench, forms, shares, rounds)) for bench, forms, shares in planned]
    for bench, rows in found:
        print_table(bench, rows)
    draw(chosen.plot, *found[0])
    if chosen.json:
        told = [
            {"size": bench.size, "steps": bench.steps, "reason": bench.reason, "kept": bench.kept}
            | {"rows": [vars(row) | {"name": str(row)} for row in rows]}
            for bench, rows in found
        ]
        harness.write(chosen.json, [*PACKAGES.values(), "jax"], {"loops": told})
    if chosen.quick:
        return 0
    print()
    return harness.decide(bar for _, rows in found for bar in bars(rows))


if __name__ == "__main__":
    sys.exit(main())
