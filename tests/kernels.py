"""Run the part of the suite that depends on rounding under other kernels than the processor would choose.

NumPy and its BLAS have kernels for many processors and take those that fit the machine. They differ in the last bits,
and a test, or a promise of the library, that holds for one may fail for another. `OPENBLAS_CORETYPE` and
`NPY_DISABLE_CPU_FEATURES` choose others on any machine, as far as its processor has their instructions. A child process
finds that out: without them it dies.

    python -m tests.kernels                     under every kernel that runs here
    python -m tests.kernels --share 4 --other   a quarter of it, under one kernel that is not the machine's own
    python -m tests.kernels --only Prescott tests/linalg -x     what follows is for pytest

What does not run here is skipped by name.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# What depends on rounding.
SENSITIVE = (
    "tests/linalg",
    "tests/networks",
    "tests/autodiff",
    "tests/checkpoint",
    "tests/engine",
    "tests/ensembles",
    "tests/test_budgeted_programs.py",
    "tests/test_docs.py",
)

# From the least to the most that a processor must have. Prescott has SSE3 alone, which all of them have.
CORES = ("Prescott", "Sandybridge", "Haswell", "SkylakeX")

# What is switched off for NumPy's own loops: AVX2 and all above it, by the names that its releases have for them.
WIDE = ("X86_V3", "X86_V4", "AVX2", "AVX512", "FMA3")
WITHOUT_AVX = "NumPy without AVX2"

# Products, sums and a decomposition, by the BLAS of NumPy and that of SciPy.
PROBE = """
import numpy as np, scipy.linalg
for dtype in "fdFD":
    x = np.linspace(0.0, 1.0, 33 * 33).reshape(33, 33).astype(dtype)
    x @ x, x @ x[0], x[0] @ x[0], x.T @ x, np.exp(x).sum(), scipy.linalg.svd(x), np.linalg.solve(x + 9 * np.eye(33), x)
"""

FEATURES = """
from numpy._core._multiarray_umath import __cpu_dispatch__ as names, __cpu_features__ as found
print(*[name for name in names if found[name]])
"""


class Kernel(NamedTuple):
    """Kernels that can be asked for, by name, with the variables of the environment that choose them."""

    name: str
    variables: dict[str, str]


def kernels() -> list[Kernel]:
    """Return the kernels that the suite is tried with, whether or not they run here."""
    narrow = [name for name in _ask(FEATURES).stdout.split() if name.startswith(WIDE)]
    found = [Kernel(core, {"OPENBLAS_CORETYPE": core}) for core in CORES]
    return [*found, Kernel(WITHOUT_AVX, {"NPY_DISABLE_CPU_FEATURES": " ".join(narrow)})]


def reason_to_skip(kernel: Kernel) -> str | None:
    """Return why a kernel cannot be tried here, ``None`` if it can."""
    if not all(kernel.variables.values()):
        return "there is nothing to switch off"
    answer = _ask(PROBE, kernel.variables)
    if answer.returncode:
        return f"the processor cannot run it (the process that tried ended with {answer.returncode})"
    if "OPENBLAS_CORETYPE" in kernel.variables:
        core = core_of(kernel.variables)
        if core is None:
            return "NumPy's BLAS does not say which kernels it runs, so it may not be OpenBLAS"
        if core == core_of({}) and core.lower() != kernel.name.lower():
            return f"this BLAS was built without it and runs {core} instead"
    return None


def core_of(variables: dict[str, str]) -> str | None:
    """Return the name of the kernels that NumPy's BLAS runs if these variables are set."""
    answer = _ask("import numpy", {**variables, "OPENBLAS_VERBOSE": "2"})
    found = re.search(r"Core: (\S+)", answer.stdout + answer.stderr)
    return found[1] if found else None


def _ask(code: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**_plain_environment(), **(variables or {})}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True)


def _plain_environment() -> dict[str, str]:
    """Return the environment without what chooses kernels."""
    chosen = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "OPENBLAS_VERBOSE")
    return {name: value for name, value in os.environ.items() if name not in chosen}


def run_under(kernel: Kernel, arguments: Sequence[str]) -> int:
    """Run pytest under a kernel and return what it returns."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    environment = {**_plain_environment(), **kernel.variables}
    return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 0 if all of it passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=int, default=1, metavar="N", help="one test in N, the same ones every time")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes to run the tests in")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--only", metavar="NAME", action="append", help="this kernel; may be given several times")
    choice.add_argument("--other", action="store_true", help="one kernel that is not what the machine takes by itself")
    given, rest = parser.parse_known_args(arguments)
    own, failed, runs = core_of({}), [], 0
    for kernel in kernels():
        if given.only and kernel.name not in given.only:
            continue
        if given.other and (runs or core_of(kernel.variables) == own):
            continue
        reason = reason_to_skip(kernel)
        if reason is not None:
            print(f"skipped {kernel.name}: {reason}", flush=True)
            continue
        print(f"under {kernel.name}; by itself the machine takes {own}", flush=True)
        paths = () if any((ROOT / argument.split("::")[0]).exists() for argument in rest) else SENSITIVE
        spread = ("-n", str(given.workers)) if given.workers else ()
        if run_under(kernel, (*spread, "--share", str(given.share), *rest, *paths)):
            failed.append(kernel.name)
        runs += 1
    if failed:
        print(f"failed under {', '.join(failed)}")
    elif not runs:
        print("no other kernel runs here")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
