"""The common protocol: every form in its own process, compared first, then timed in interleaved rounds.

The first call of each form is timed apart and its answer compared with the others. What a second call takes decides how
often a form is repeated in a round, and in how many rounds it takes part, so that a workload keeps to its time. Memory
is measured at the end, in calls that are not timed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from bench.suite.workload import PACKAGES, Form, Options, Row, Workload

FOLDER = Path(__file__).parent

# A short call is repeated until one measurement takes about this long.
MEASUREMENT = 0.05

# Shares of a workload's time: for the first call of one form at most, for the rounds at least, and what it may take
# beyond its time if it must.
FIRST_SHARE, ROUNDS_SHARE, OVERTIME = 0.5, 0.25, 0.5

# The least that a process has for an answer, in seconds, however little time there is.
PATIENCE = 30.0

# What a call takes under tracemalloc or PyTorch's profiler, in calls. Live bytes are left out if there is no time, but
# not where they take less than this.
LIVE_COST, LIVE_LEAST = 4, 5.0


class SuiteError(Exception):
    """Numbers that must not be published: a form disagrees, or one of ours cannot do the work."""


# --- processes --------------------------------------------------------------------------------------------------------


def environment(threads: int) -> dict[str, str]:
    """Return the variables of a process that computes with so many threads."""
    chosen = {name: str(threads) if name.endswith("_THREADS") else value for name, value in harness.ONE_THREAD.items()}
    if threads > 1:
        del chosen["XLA_FLAGS"]
    # With bytecode switched off, Python would compile our modules anew in every process. No user's process does that.
    return os.environ | chosen | {"JAX_ENABLE_X64": "1", "PYTHONDONTWRITEBYTECODE": "", "PYTHONWARNINGS": "ignore"}


class Worker:
    """A process with one form; see ``worker.py``. It is ended when it does not answer in time."""

    def __init__(self, where: str, form: str, parameters: dict[str, Any], threads: int) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 closed on exit
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "worker.py"), where, form, json.dumps(parameters), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment(threads),
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if exception[0] is not None:
            self._process.kill()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, timeout: float, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer, which has an ``error`` if there is no other."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return {"error": self._last_words()}
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            self._process.kill()
            return {"error": f"no answer after {timeout:.0f} s", "slow": True}
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f"the process ended with {self._process.returncode}" + (f": {lines[-1]}" if lines else "")


# --- one workload -----------------------------------------------------------------------------------------------------


@dataclass
class Running:
    """A form that takes part: its process, the row that is being filled, and what it took in each round."""

    form: Form
    worker: Worker
    row: Row
    times: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    repeats: int = 1
    rounds: int = 0

    def note(self, **found: Any) -> None:
        """Enter something into the row."""
        self.row = dataclasses.replace(self.row, **found)

    @property
    def sound(self) -> bool:
        """Whether there is an answer, and a right one."""
        return self.row.state == "ok"


def measure(
    workload: Workload,
    options: Options,
    parameters: dict[str, Any] | None = None,
    case: str = "",
    x: float | None = None,
) -> list[Row]:
    """Measure a workload, at its size or with the parameters given, and return a row for each form."""
    parameters = workload.sizes[options.size] if parameters is None else parameters
    rows = {
        form.name: Row(workload.key, form.name, form.library, form.kind, options.size, case, x)
        for form in workload.forms
    }
    absent = {form.name: why for form in workload.forms if (why := _absent(form, options.size))}
    for name, (state, note) in absent.items():
        rows[name] = dataclasses.replace(rows[name], state=state, note=note)
    deadline = time.monotonic() + options.seconds
    with ExitStack() as stack:
        running = [
            Running(form, stack.enter_context(_start(workload, form, parameters, options)), rows[form.name])
            for form in workload.forms
            if form.name not in absent
        ]
        with tempfile.TemporaryDirectory() as folder:
            _compare(workload, parameters, running, _first_calls(running, options, Path(folder), deadline))
        sound = [one for one in running if one.sound]
        _time(sound, options, deadline)
        _weigh([one for one in sound if one.sound], options, deadline)
    rows |= {one.form.name: one.row for one in running}
    return list(rows.values())


def _start(workload: Workload, form: Form, parameters: dict[str, Any], options: Options) -> Worker:
    return Worker(workload.where or where_is(workload.key), form.name, parameters, options.threads)


def where_is(key: str) -> str:
    """Return where the workload of a key is found, as ``module:attribute``."""
    (path,) = FOLDER.glob(f"{key.lower()}_*.py")
    return f"bench.suite.{path.stem}:WORKLOAD"


def _absent(form: Form, size: str) -> tuple[str, str] | None:
    """Return the state and the reason of a form that does not take part."""
    missing = [package for package in PACKAGES[form.library] if not importlib.util.find_spec(package)]
    if missing:
        return "missing", f"{' and '.join(missing)} not installed"
    return ("cannot", form.why_not(size)) if form.why_not(size) else None


# --- agreement --------------------------------------------------------------------------------------------------------


def _first_calls(
    running: list[Running], options: Options, folder: Path, deadline: float
) -> dict[str, dict[str, np.ndarray]]:
    """Make every form and call it once; return what they computed, by name."""
    answers = {}
    share = FIRST_SHARE * options.seconds
    # All of them have their data before the first is timed, as they share a core.
    ready = [one.worker.ask(max(share, PATIENCE), "ready") for one in running]
    for number, (one, told) in enumerate(zip(running, ready, strict=True)):
        path = folder / f"{number}.npz"
        patience = max(min(share, deadline - time.monotonic()), PATIENCE)
        told = told or one.worker.ask(patience, "first", save=str(path))
        if "error" in told:
            _fail(one, told)
            continue
        with np.load(path) as stored:
            answers[one.form.name] = dict(stored)
        one.note(first=told[options.clock], steps=int(answers[one.form.name]["steps"]))
        one.note(value=float(answers[one.form.name]["value"]))
    return answers


def _fail(one: Running, told: dict[str, Any], when: str = "") -> None:
    """Enter that a form took too long, or that a peer failed; ours and the limit must not fail."""
    error = when + told["error"]
    if told.get("slow"):
        one.note(state="slow", note=error)
    elif one.form.kind == "peer":
        one.note(state="failed", note=error)
    else:
        raise SuiteError(f"{one.form.name}: {error}")


def _compare(
    workload: Workload, parameters: dict[str, Any], running: list[Running], answers: dict[str, dict[str, np.ndarray]]
) -> None:
    """Enter who returned NaN; raise if any other disagrees with the limit or, without one, with ours."""
    known = None if workload.reference is None else workload.reference(workload.problem(**parameters))
    ranked = sorted(running, key=lambda one: ("limit", "ours", "peer").index(one.form.kind))
    basis: Running | None = None
    for one in ranked:
        if not one.sound:
            continue
        found = answers[one.form.name]
        if not (np.isfinite(found["value"]).all() and np.isfinite(found["gradient"]).all()):
            if one.form.kind != "peer":
                raise SuiteError(f"{one.form.name}: NaN or infinity")
            one.note(state="NaN", note="NaN in the value" if np.isnan(found["value"]) else "NaN in the gradient")
            continue
        if known is not None:
            exact = {"value": known.value, "gradient": known.gradient}
            _judge(one, found, exact, known.tolerance, "what is known")
        if basis is not None:
            _judge(one, found, answers[basis.form.name], workload.tolerance, basis.form.name)
        elif one.row.state == "ok" and one.form.kind != "peer":
            basis = one


def _judge(one: Running, found: dict[str, Any], expected: dict[str, Any], tolerance: float, whose: str) -> None:
    for part in ("value", "gradient"):
        if expected[part] is None:
            continue
        off = difference(found[part], np.asarray(expected[part]))
        if not off <= tolerance:
            message = f"{part} differs from that of {whose} by {off:.1e}"
            if not (one.form.kind == "peer" and one.form.flawed):
                raise SuiteError(f"{one.form.name}: {message}, and {tolerance:.0e} is the most")
            one.note(state="wrong", note=message)
            return


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Return how far numbers are from what is expected, relative to its size."""
    if np.shape(found) != np.shape(expected):
        return float("inf")
    size = float(np.linalg.norm(expected))
    return float(np.linalg.norm(found - expected)) / (size or 1.0)


# --- time and memory --------------------------------------------------------------------------------------------------


def _time(running: list[Running], options: Options, deadline: float) -> None:
    """Call every form again, plan the rounds by what that took, and go through them."""
    for one in running:
        _call(one, options, deadline)
        if one.sound:
            one.repeats = max(1, round(MEASUREMENT / one.times[0]))
    running = [one for one in running if one.sound]
    left = max(deadline - time.monotonic(), 0.0)
    memory = (1 + LIVE_COST) * sum(one.times[0] for one in running)
    budget = max(ROUNDS_SHARE * left, left - memory)
    plan = rounds_of([one.times[0] * one.repeats for one in running], budget, options.rounds)
    end = time.monotonic() + budget
    for number in range(options.rounds):
        for one, rounds in zip(running, plan, strict=True):
            # Forms with fewer rounds take part in rounds spread over all of them, the first one included.
            if one.sound and number * rounds % options.rounds < rounds:
                _call(one, options, deadline)
        if time.monotonic() > end:
            break
    for one in (one for one in running if one.sound):
        low, median, high = quartiles(one.times if one.repeats == 1 else one.times[1:])
        one.note(seconds=median, low=low, high=high, rounds=len(one.times), busy=statistics.median(one.busy))


def _call(one: Running, options: Options, deadline: float) -> None:
    """Measure a form once more."""
    told = one.worker.ask(_patience(options, deadline), "time", repeats=one.repeats)
    if "error" in told:
        _fail(one, told, "when called again: ")
        return
    one.times.append(told[options.clock])
    one.busy.append(told["wall"] / max(told["processor"], 1e-9))


def _patience(options: Options, deadline: float) -> float:
    """Return for how long to wait for an answer: until a workload's time is over, and then some."""
    return max(deadline - time.monotonic() + OVERTIME * options.seconds, PATIENCE)


def rounds_of(costs: Sequence[float], seconds: float, most: int) -> list[int]:
    """Return in how many rounds each form takes part, at least 1. All have the same time; what one leaves is shared.

    >>> rounds_of([0.1, 1.0, 40.0], 60.0, 15)
    [15, 15, 1]
    """
    rounds = [1] * len(costs)
    left = seconds
    for place, number in enumerate(sorted(range(len(costs)), key=costs.__getitem__)):
        share = left / (len(costs) - place)
        rounds[number] = min(most, max(1, int(share / costs[number])))
        left = max(left - rounds[number] * costs[number], 0.0)
    return rounds


def quartiles(times: Sequence[float]) -> tuple[float, float, float]:
    """Return the quartiles of measured times; the middle one is the median."""
    if len(times) == 1:
        return times[0], times[0], times[0]
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, median, high


def _weigh(running: list[Running], options: Options, deadline: float) -> None:
    """Measure the memory of a call, and its live bytes if there is time."""
    for one in running:
        one.note(resident=one.worker.ask(_patience(options, deadline), "memory").get("bytes"))
    for one in sorted(running, key=lambda one: one.row.seconds or 0.0):
        left = deadline - time.monotonic() + OVERTIME * options.seconds
        if LIVE_COST * (one.row.seconds or 0.0) < max(left, LIVE_LEAST):
            one.note(live=one.worker.ask(_patience(options, deadline), "live").get("bytes"))
