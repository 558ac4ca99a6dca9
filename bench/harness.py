"""What the benchmarks share: processes that measure on request, who takes part, memory, and bars.

Every library is measured in a process of its own, on one thread, so that none can disturb another. A worker answers
requests, a line of JSON each; the benchmark asks all workers in turn, round after round.

Nothing heavy is imported here: where a peak of memory cannot be reset, workers inherit it from the process that starts
them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class Worker:
    """A process that runs a benchmark script as a worker and measures one thing on request."""

    def __init__(self, script: str, name: str, environment: dict[str, str] | None = None) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, script, "--worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD | (environment or {}),
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} failed on {request}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve(answer: Callable[..., dict[str, Any]]) -> None:
    """Be a worker: answer requests on standard input until it ends."""
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


def one_core() -> None:
    """Keep this process and the workers it starts to one core, where the system allows.

    Workers take turns, so one core serves them all, and none can gain from a second one.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


# --- memory ----------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    """Forget the peak so far, where the system allows, and return the bytes that it starts again from."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return peak_bytes()
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the most bytes that this process has had in memory, since ``resident_bytes`` was called if it was."""
    if sys.platform == "linux":
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status(field: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition(f"{field}:")[2].split()[0])


# --- the command line, versions and results ---------------------------------------------------------------------------


def options(description: str, **flags: str) -> argparse.Namespace:
    """Return the options that every benchmark has, and flags of its own, given with what they mean."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", metavar="FILE", help="write the numbers to a file")
    parser.add_argument("--quick", action="store_true", help="a short run that checks the harness; no bars")
    parser.add_argument("--worker", metavar="LIBRARY", help=argparse.SUPPRESS)
    for name, meaning in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=meaning)
    return parser.parse_args()


def participants(packages: dict[str, str]) -> list[str]:
    """Print the versions of everything that takes part, and return the libraries that are installed.

    ``packages`` has the package that each library needs, by the library's name.
    """
    names = [name for name, package in packages.items() if importlib.util.find_spec(package)]
    missing = [name for name in packages if name not in names]
    print(", ".join(f"{package} {version}" for package, version in versions(packages.values()).items()))
    if missing:
        print(f"not installed and left out: {', '.join(missing)}")
    return names


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, NumPy, SciPy, and those of the packages that are installed."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in dict.fromkeys(("numpy", "scipy", *packages)):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write(path: str, packages: Iterable[str], numbers: dict[str, Any]) -> None:
    """Write the numbers of a run to a JSON file, with the versions they belong to."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"versions": versions(packages), **numbers}, file, indent=2)


# --- bars ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A limit that a measured number must not exceed or, with ``least``, must reach."""

    what: str
    measured: float
    limit: float
    unit: str
    least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the number is on the right side of the limit."""
        return self.measured >= self.limit if self.least else self.measured <= self.limit

    def __str__(self) -> str:
        verdict = "pass" if self.holds else "MISS"
        relation = "≥" if self.least else "≤"
        limit = f"{relation}{self.limit:>8.2f} {self.unit}"
        return f"  {verdict}  {self.what:<66}{self.measured:>9.2f} {self.unit:<3}{limit}"


def decide(bars: Iterable[Bar]) -> int:
    """Print the bars and return what the benchmark exits with: 1 if one was missed."""
    decided = list(bars)
    print("Bars")
    for bar in decided:
        print(bar)
    return 0 if all(bar.holds for bar in decided) else 1
