"""What unspool costs beside the arithmetic: recording, reading, and a long loop that looks at a value every step.

The loop is ``y ← y + 1e-6·y·y`` on 8 numbers, so small that the arithmetic hardly counts. It reads a value every step,
as a stopping test would, and then takes the gradient of ``sum(y)`` with respect to the start. Each library is written
the way its users write it. Rounds are interleaved and medians taken, because machines are noisy; every library has a
process of its own, and peak memory is measured in a fresh one. Values and gradients are compared before anything is
timed. ``loops.py`` has the same loop in more forms, and power iteration.

    python bench/overhead.py                 the table, and the bars it is held to
    python bench/overhead.py --operations    recording and reading alone, with their bars
    python bench/overhead.py --json out.json the numbers as well
    python bench/overhead.py --quick         a short run that checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import forms
import harness
from harness import ONE_THREAD, Bar, Worker, participants, serve

# Nothing heavy is imported up here: workers inherit the peak memory of the process that starts them.

START = [0.1 * (i + 1) for i in range(8)]
AGREEMENT = 1e-10


# --- the libraries ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """A library, how its loop is made, and how much of it can be run in reasonable time."""

    name: str
    package: str
    make: Callable[[], forms.Loops]
    most_steps: int = 10**9
    most_rounds: int = 10**9


LIBRARIES = {
    library.name: library
    for library in (
        Library("unspool", "unspool", forms.plain),
        Library("autograd", "autograd", forms.autograd_boxes),
        Library("torch", "torch", forms.torch_eager),
        Library("jax eager", "jax", forms.jax_eager, most_steps=1000, most_rounds=3),
    )
}
PACKAGES = {name: library.package for name, library in LIBRARIES.items()}


# --- one operation ---------------------------------------------------------------------------------------------------


class Plain:
    """What a node costs at the least: an object with ten fields and a reference to the one before it."""

    __slots__ = ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")

    def __init__(self, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> None:
        self.a, self.b, self.c, self.d, self.e = a, b, c, d, e
        self.f, self.g, self.h, self.i, self.j = f, g, h, i, j


def make_plain(count: int) -> float:
    """Return the seconds that making a plain object takes: a yardstick for the speed of the machine at the moment."""
    y: Any = None
    begin = time.perf_counter()
    for _ in range(count):
        y = Plain(y, (y, y), None, (8,), 1, 2, (3, 4, 5), None, None, 7)
    return (time.perf_counter() - begin) / count


def record_tensors(count: int) -> float:
    """Return the seconds that recording one op of two tensors takes, in a graph of ``count`` ops."""
    import unspool as us

    x = us.tensor(START)
    y = x
    begin = time.perf_counter()
    for _ in range(count // 2):
        y = y * x
        y = y + x
    return (time.perf_counter() - begin) / count


def record_scalar(count: int) -> float:
    """Return the seconds that recording one op of a tensor and a Python number takes."""
    import unspool as us

    y = us.tensor(START)
    begin = time.perf_counter()
    for _ in range(count // 2):
        y = y * 0.5
        y = 1.5 + y
    return (time.perf_counter() - begin) / count


@dataclass(frozen=True)
class Given:
    """What recorded ops read beside a vector that is new every time: things that steps of loops have."""

    us: Any
    other: Any  # a vector
    matrix: Any  # of as many columns as there are steps
    mask: Any
    number: Any  # a tensor without axes
    index: Any  # an integer tensor
    rows: Any  # an array for each step
    positions: Any  # an index array for each step

    @staticmethod
    def make(count: int) -> Given:
        """Make them for so many steps."""
        import numpy as np

        import unspool as us

        generator, size = np.random.default_rng(0), len(START)
        other = us.tensor(START)
        return Given(
            us,
            other,
            us.tensor(np.ones((size, count))),
            other > 0.4,
            us.tensor(2.0),
            us.tensor(np.arange(size)[::-1].copy()),
            generator.normal(size=(count, size)),
            generator.integers(0, size, (count, size)),
        )


def recorded(operate: Callable[[Given, Any, int], Any]) -> Callable[[int], float]:
    """Return a measurement of recording an op of a vector that is new every time; ``operate`` has the step's number."""

    def measure(count: int) -> float:
        given = Given.make(count)
        vectors = [given.other * float(k + 2) for k in range(count)]
        kept: list[Any] = [None] * count
        begin = time.perf_counter()
        for k, vector in enumerate(vectors):
            kept[k] = operate(given, vector, k)
        return (time.perf_counter() - begin) / count

    return measure


def cached(read: Callable[[Any], Any]) -> Callable[[int], float]:
    """Return a measurement of reading a value that the store has."""

    def measure(count: int) -> float:
        import unspool as us

        y = us.sum(us.tensor(START) * 2.0)
        read(y)
        begin = time.perf_counter()
        for _ in range(count):
            read(y)
        return (time.perf_counter() - begin) / count

    return measure


@dataclass(frozen=True)
class Operation:
    """A cost that is reported in microseconds, with the bar it is held to, if any."""

    label: str
    measure: Callable[[int], float]
    count: int
    bar: float | None = None


YARDSTICK = Operation("make a plain object of ten fields (yardstick)", make_plain, 1000)

# What the yardstick takes, in microseconds, where bars are what they say. Where it takes longer, for a slower processor
# or a busy one, they are higher in proportion; they are never lower.
USUAL_YARDSTICK = 0.25

# Recording one operation of a step may take so many microseconds.
RECORDING_BAR = 2.0

# What loops do most beside arithmetic of tensors. All of it is held to the bar.
RECORDED: dict[str, Callable[[Given, Any, int], Any]] = {
    "2.0 * x": lambda given, x, k: 2.0 * x,
    "x * number, another every time": lambda given, x, k: x * (k + 0.5),
    "x * row, another array every time": lambda given, x, k: x * given.rows[k],
    "tensor(row)": lambda given, x, k: given.us.tensor(given.rows[k]),
    "x[3]": lambda given, x, k: x[3],
    "x[2:6]": lambda given, x, k: x[2:6],
    "x[:, None]": lambda given, x, k: x[:, None],
    "m[:, k], another k every time": lambda given, x, k: given.matrix[:, k],
    "x[array]": lambda given, x, k: x[given.positions[0]],
    "x[array], another every time": lambda given, x, k: x[given.positions[k]],
    "x[integer tensor]": lambda given, x, k: x[given.index],
    "x.at[3].set(1.0)": lambda given, x, k: x.at[3].set(1.0),
    "x.at[k].set(tensor)": lambda given, x, k: x.at[k % 8].set(given.number),
    "x.at[2:6].add(1.0)": lambda given, x, k: x.at[2:6].add(1.0),
    "x.at[array].add(tensor)": lambda given, x, k: x.at[given.positions[k]].add(given.other),
    "x.at[3].multiply(2.0)": lambda given, x, k: x.at[3].multiply(2.0),
    "x.at[3].max(2.0)": lambda given, x, k: x.at[3].max(2.0),
    "where(mask, x, x)": lambda given, x, k: given.us.where(given.mask, x, x),
    "where(mask, x, 0.0)": lambda given, x, k: given.us.where(given.mask, x, 0.0),
    "stack([x, y])": lambda given, x, k: given.us.stack([x, given.other]),
    "concat([x, y])": lambda given, x, k: given.us.concat([x, given.other]),
    "reshape(x, (2, 4))": lambda given, x, k: given.us.reshape(x, (2, 4)),
    "reshape(x, (2, -1))": lambda given, x, k: given.us.reshape(x, (2, -1)),
    "x.T": lambda given, x, k: x.T,
    "norm(x)": lambda given, x, k: given.us.linalg.norm(x),
    "norm(x, axis=0)": lambda given, x, k: given.us.linalg.norm(x, axis=0),
    "sum(x)": lambda given, x, k: given.us.sum(x),
    "sum(x, axis=0)": lambda given, x, k: given.us.sum(x, axis=0),
    "mean(x)": lambda given, x, k: given.us.mean(x),
    "mean(x, axis=0)": lambda given, x, k: given.us.mean(x, axis=0),
    "max(x)": lambda given, x, k: given.us.max(x),
    "max(x, axis=0)": lambda given, x, k: given.us.max(x, axis=0),
}

OPERATIONS = (
    YARDSTICK,
    Operation("record an op, graph of 1 000", record_tensors, 1000, bar=RECORDING_BAR),
    Operation("record an op, graph of 100 000", record_tensors, 100_000),
    Operation("record an op with a number, graph of 1 000", record_scalar, 1000, bar=RECORDING_BAR),
    *[Operation(f"record {label}", recorded(operate), 200, bar=RECORDING_BAR) for label, operate in RECORDED.items()],
    # NumPy takes about a microsecond to find out that this is not its own.
    Operation("record row * x, another array every time", recorded(lambda given, x, k: given.rows[k] * x), 200),
    Operation("read a cached value, float(t)", cached(float), 1000, bar=RECORDING_BAR),
    Operation("read a cached value, t.eval()", cached(lambda t: t.eval()), 1000, bar=RECORDING_BAR),
)

IMPORT_BAR = 0.150


# --- workers: processes that measure what they are told to ------------------------------------------------------------


def answer_operations(large: bool) -> dict[str, float]:
    """Measure every operation once, those on a large graph only if asked."""
    return {o.label: o.measure(o.count) for o in OPERATIONS if large or o.count <= 1000}


def answer_loop(loops: forms.Loops) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a library's loop and measures it."""
    import numpy as np

    start = np.array(START)
    loop = loops["growth"]
    loop(start, 10)

    def answer(steps: int) -> dict[str, Any]:
        before = harness.resident_bytes()
        begin = time.perf_counter()
        value, gradient = loop(start, steps)
        seconds = time.perf_counter() - begin
        peak = harness.peak_bytes() - before
        return {"seconds": seconds, "bytes": peak, "value": value.tolist(), "gradient": gradient.tolist()}

    return answer


# --- measuring -------------------------------------------------------------------------------------------------------

# Median seconds and peak bytes, by library and number of steps.
Loops = dict[tuple[str, int], tuple[float, float]]

# Median seconds by label.
Operations = dict[str, float]


def measure(names: list[str], lengths: dict[int, int], repeats: int) -> tuple[Operations, Loops]:
    """Measure operations and loops in interleaved rounds; ``lengths`` maps a number of steps to a number of rounds.

    Operations are short, so they are measured ``repeats`` times in each round. That spreads them over the whole run.
    """
    loop_times: dict[tuple[str, int], list[float]] = {}
    operation_times: dict[str, list[float]] = {o.label: [] for o in OPERATIONS}
    with ExitStack() as running:
        operations = running.enter_context(Worker(__file__, "operations"))
        loops = {name: running.enter_context(Worker(__file__, name)) for name in names}
        check_agreement({name: loops[name].ask(steps=min(500, *lengths)) for name in names})
        for steps, number in [(steps, i) for steps, rounds in lengths.items() for i in range(rounds)]:
            for name, library in loops.items():
                if steps <= LIBRARIES[name].most_steps and number < LIBRARIES[name].most_rounds:
                    loop_times.setdefault((name, steps), []).append(library.ask(steps=steps)["seconds"])
            for repeat in range(repeats):
                for label, seconds in operations.ask(large=repeat == 0).items():
                    operation_times[label].append(seconds)
    return (
        {label: statistics.median(times) for label, times in operation_times.items()},
        {case: (statistics.median(times), measure_memory(*case)) for case, times in loop_times.items()},
    )


def measure_operations(rounds: int) -> Operations:
    """Measure operations alone, in so many interleaved rounds."""
    times: dict[str, list[float]] = {o.label: [] for o in OPERATIONS}
    with Worker(__file__, "operations") as operations:
        for number in range(rounds):
            for label, seconds in operations.ask(large=number % 5 == 0).items():
                times[label].append(seconds)
    return {label: statistics.median(seconds) for label, seconds in times.items()}


def measure_memory(name: str, steps: int) -> float:
    """Return the bytes by which one run of a loop raises the peak of a fresh process."""
    with Worker(__file__, name) as fresh:
        return float(fresh.ask(steps=steps)["bytes"])


def measure_import(rounds: int) -> float:
    """Return the median seconds that ``import unspool`` adds to ``import numpy``, with compiled bytecode in place."""
    program = "import numpy, time; t = time.perf_counter(); import unspool; print(time.perf_counter() - t)"
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        command = [sys.executable, "-c", program]
        times = [
            float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
            for _ in range(1 + rounds)
        ]
    return statistics.median(times[1:])


def check_agreement(answers: dict[str, dict[str, Any]]) -> None:
    """Stop unless every library found the same value and gradient as the first."""
    (reference, first), *others = answers.items()
    for name, other in others:
        for what in ("value", "gradient"):
            worst = max(abs(a - b) / abs(a) for a, b in zip(first[what], other[what], strict=True))
            if not worst <= AGREEMENT:
                raise SystemExit(f"the {what} of {reference} and {name} differ by {worst:.1e}")


# --- reporting -------------------------------------------------------------------------------------------------------


def bars(operations: Operations, importing: float, loops: Loops, lengths: list[int]) -> Iterator[Bar]:
    """Yield the bars that this run can decide."""
    yield from operation_bars(operations)
    yield Bar("import unspool, beside NumPy", 1e3 * importing, 1e3 * IMPORT_BAR, "ms")
    short, long = lengths[0], lengths[-1]
    flat = (loops["unspool", long][0] / long) / (loops["unspool", short][0] / short)
    yield Bar(f"cost of a step at {_count(long)} over that at {_count(short)}", flat, 2.0, "×")
    if ("autograd", long) in loops:
        (ours, our_bytes), (theirs, their_bytes) = loops["unspool", long], loops["autograd", long]
        yield Bar(f"time of {_count(long)} steps, beside autograd", ours, theirs, "s")
        yield Bar(f"peak memory of {_count(long)} steps, beside autograd", our_bytes / 1e6, their_bytes / 1e6, "MB")


def operation_bars(operations: Operations) -> Iterator[Bar]:
    """Yield the bars of single operations, which go up with the yardstick."""
    slower = max(1.0, 1e6 * operations[YARDSTICK.label] / USUAL_YARDSTICK)
    for operation in OPERATIONS:
        if operation.bar is not None:
            yield Bar(operation.label, 1e6 * operations[operation.label], operation.bar * slower, "µs")


def print_operations(operations: Operations) -> None:
    """Print the table of single costs."""
    print("\nOne operation (median)")
    for label, seconds in operations.items():
        print(f"  {label:<46}{1e6 * seconds:>9.2f} µs")


def print_loops(loops: Loops, lengths: list[int]) -> None:
    """Print the table of loops, with each library's time and memory relative to unspool's."""
    print("\ny ← y + 1e-6·y·y on 8 numbers, a value read every step, then the gradient (median)")
    print(f"  {'steps':>8}  {'library':<10}{'time':>10}{'a step':>12}{'peak memory':>14}{'time':>9}{'memory':>9}")
    for steps in lengths:
        ours, our_bytes = loops["unspool", steps]
        for name in LIBRARIES:
            if (name, steps) not in loops:
                continue
            seconds, peak = loops[name, steps]
            relative = f"{seconds / ours:>8.2f}×{_ratio(peak, our_bytes):>8}×"
            print(
                f"  {_count(steps):>8}  {name:<10}{seconds:>8.3f} s{1e6 * seconds / steps:>9.1f} µs"
                f"{peak / 1e6:>11.1f} MB{relative}"
            )
        print()


def _ratio(numerator: float, denominator: float) -> str:
    return f"{numerator / denominator:.2f}" if denominator else "–"


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


# --- the run ---------------------------------------------------------------------------------------------------------


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    options = harness.options("Measure the overhead of unspool.", operations="single operations and their bars alone")
    if options.worker:
        own = options.worker == "operations"
        serve(answer_operations if own else answer_loop(LIBRARIES[options.worker].make()))
        return 0

    os.environ.update(ONE_THREAD)
    if options.operations:
        alone = measure_operations(2 if options.quick else 25)
        print_operations(alone)
        return 0 if options.quick else harness.decide(operation_bars(alone))
    names = participants(PACKAGES)
    lengths = {100: 1, 300: 1} if options.quick else {1000: 15, 10_000: 7, 100_000: 3}
    steps = list(lengths)
    operations, loops = measure(names, lengths, repeats=1 if options.quick else 5)
    importing = measure_import(1 if options.quick else 9)
    print_operations(operations)
    print(f"  {'import unspool, beside NumPy':<46}{1e3 * importing:>9.1f} ms")
    print_loops(loops, steps)
    if options.json:
        _write(options.json, operations, importing, loops)
    if options.quick:
        return 0

    verdict = harness.decide(bars(operations, importing, loops, steps))
    if ("torch", steps[-1]) in loops:
        ratio = loops["unspool", steps[-1]][0] / loops["torch", steps[-1]][0]
        print(f"  note  time of {_count(steps[-1])} steps is {ratio:.2f} × that of PyTorch eager; loops.py has the bar")
    return verdict


def _write(path: str, operations: Operations, importing: float, loops: Loops) -> None:
    rows = [
        {"library": name, "steps": steps, "seconds": seconds, "peak_bytes": peak}
        for (name, steps), (seconds, peak) in loops.items()
    ]
    harness.write(path, PACKAGES.values(), {"operations": operations, "import": importing, "loops": rows})


if __name__ == "__main__":
    sys.exit(main())
