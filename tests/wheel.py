"""Installs a wheel into an environment of its own, outside of the repository, and tries what it installed.

    python -m tests.wheel dist            the newest wheel in a folder

The environment has the wheel and what it depends on, nothing else; the program runs in an empty folder. It is run
twice: with the native backend, and with ``UNSPOOL_NATIVE=0``. ``make wheel`` calls this.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROGRAM = """
import doctest
import sys

import numpy as np

import unspool as us
from unspool._engine import native

assert "site-packages" in us.__file__, us.__file__
wanted = sys.argv[1] == "native"
assert (native.WHY_NOT is None) == wanted, native.WHY_NOT

# A gradient through a plain loop, beside the same by finite differences.
def loss(matrix, steps=30):
    x = us.ones(4)
    for _ in range(steps):
        y = matrix @ x
        x = y / us.linalg.norm(y)
        float(us.sum(x))
    return us.sum(x * np.arange(1.0, 5.0))

start = np.eye(4) + 0.1 * np.arange(16.0).reshape(4, 4)
matrix = us.tensor(start)
gradient = loss(matrix).grad(matrix).eval()
moved = np.zeros((4, 4)); moved[1, 2] = 1e-6
slope = (float(loss(us.tensor(start + moved))) - float(loss(us.tensor(start - moved)))) / 2e-6
assert abs(gradient[1, 2] - slope) < 1e-6, (gradient[1, 2], slope)

# The same as one loop, with a decomposition in it.
def step(x):
    values, vectors = us.linalg.eigh(x)
    return (vectors * us.tanh(values)) @ us.matrix_transpose(vectors)

symmetric = us.tensor(start + start.T)
state, steps = us.iterate(step, symmetric, max_steps=5)
assert us.sum(state).grad(symmetric).eval().shape == (4, 4) and steps == 5

failures, tried = doctest.testmod(us.linalg)
assert tried and not failures
print(f"{sys.argv[1]}: gradients, loops and {tried} examples are right")
"""


def main() -> None:
    """Make the environment, install the wheel, and run the program and the command."""
    wheel = max(Path(sys.argv[1]).glob("*.whl"), key=lambda path: path.stat().st_mtime).resolve()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder, "env"), with_pip=True)
        bin_folder = Path(folder, "env", "Scripts" if os.name == "nt" else "bin")
        python, command = str(bin_folder / "python"), str(bin_folder / "unspool")
        # Neither this repository nor what is installed beside it.
        outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        empty = Path(folder, "empty")
        empty.mkdir()

        def run(*arguments: str, native: bool = True) -> None:
            environment = outside if native else outside | {"UNSPOOL_NATIVE": "0"}
            subprocess.run(arguments, cwd=empty, env=environment, check=True)

        run(python, "-m", "pip", "--disable-pip-version-check", "-qq", "install", str(wheel))
        for native, name in ((True, "native"), (False, "NumPy")):
            run(python, "-c", PROGRAM, name, native=native)
            run(command, "info", native=native)
    print(f"{wheel.name} works in an empty environment")


if __name__ == "__main__":
    main()
