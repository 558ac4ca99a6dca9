"""What the benchmarks share: processes that measure on request, and who takes part.

Every library is measured in a process of its own, on one thread, so that none can disturb another. A worker answers
requests, a line of JSON each; the benchmark asks all workers in turn, round after round.

Nothing heavy is imported here: workers inherit the peak memory of the process that starts them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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


def options(description: str) -> argparse.Namespace:
    """Return the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", metavar="FILE", help="write the numbers to a file")
    parser.add_argument("--quick", action="store_true", help="a short run that checks the harness; no bars")
    parser.add_argument("--worker", metavar="LIBRARY", help=argparse.SUPPRESS)
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
