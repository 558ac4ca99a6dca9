"""What a gradient through a decomposition costs, beside PyTorch and JAX.

A scalar is computed through svd, qr, eigh, solve or cholesky of an n×n matrix and differentiated. The losses depend on
no sign, phase or basis, so that there is one right answer. Each library is written the way its users write it, in
double precision: PyTorch eager; JAX jitted, with its compilation apart; unspool with a graph of a placeholder, recorded
apart, and also with graph and gradient recorded anew in every call. Every library has a process of its own, all on one
thread and, where the system allows, on one core. Values and gradients are compared before anything is timed; rounds are
interleaved and medians taken.

    python bench/linalg.py                 the table, and the bar it is held to
    python bench/linalg.py --json out.json the numbers as well
    python bench/linalg.py --quick         small sizes and one round: checks the harness; no bars

Exits with 1 if a bar is missed: from n = 128 on, a recorded graph takes at most 1.3 times as long as the faster of
PyTorch and JAX.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
from harness import Worker, participants, serve

QUIET = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}

AGREEMENT = 1e-8
BAR = 1.3
HELD_FROM = 128
ROUNDS = {4: 15, 32: 15, 128: 11, 512: 5}

# A short call is repeated until one measurement takes about this long.
MEASUREMENT = 0.02


# --- the losses, once for all libraries ------------------------------------------------------------------------------

# A loss takes the functions of a library, a matrix and a weight. What is not in every library under the same name is
# in the small classes below.


def svd_loss(p: Any, a: Any, w: Any) -> Any:
    """⟨w, U log(1 + S) Vᵀ⟩."""
    u, s, vh = p.svd(a)
    return p.sum(w * ((u * p.log1p(s)) @ vh))


def qr_loss(p: Any, a: Any, w: Any) -> Any:
    """⟨w, Q²⟩ + ⟨w, R²⟩, element by element, which no sign changes."""
    q, r = p.linalg.qr(a)
    return p.sum(w * (q * q)) + p.sum(w * (r * r))


def eigh_loss(p: Any, a: Any, w: Any) -> Any:
    """⟨w, V tanh(Λ) Vᵀ⟩ of the symmetric part."""
    values, vectors = p.linalg.eigh(0.5 * (a + a.T))
    return p.sum(w * ((vectors * p.tanh(values)) @ vectors.T))


def solve_loss(p: Any, a: Any, w: Any) -> Any:
    """⟨w, A⁻¹B⟩ with as many right-hand sides as half the rows of A, taken from the weight."""
    half = w.shape[0] // 2
    return p.sum(w[:, :half] * p.linalg.solve(a, w[:, half:]))


def cholesky_loss(p: Any, a: Any, w: Any) -> Any:
    """⟨w, L⟩ of the symmetric part."""
    return p.sum(w * p.linalg.cholesky(0.5 * (a + a.T)))


LOSSES = {"svd": svd_loss, "qr": qr_loss, "eigh": eigh_loss, "solve": solve_loss, "cholesky": cholesky_loss}


def matrices(what: str, size: int) -> tuple[Any, Any]:
    """Return a matrix with singular values spread from 1 to 2 and a symmetric weight, the same in every process."""
    generator = np.random.default_rng([size, 7])
    left, right = (np.linalg.qr(generator.normal(size=(size, size)))[0] for _ in range(2))
    if what in ("eigh", "cholesky"):
        right = left
    values = np.linspace(1.0, 2.0, size)
    weight = generator.normal(size=(size, size))
    return (left * values) @ right.T, weight + weight.T


# --- the libraries ---------------------------------------------------------------------------------------------------

# From a loss, a matrix and a weight to a function that computes value and gradient, as arrays when they are asked for.
Prepared = Callable[[], tuple[Any, Any]]


def unspool_library() -> Callable[[Any, Any, Any], Prepared]:
    """A graph that was recorded once, run on the matrix it is given."""
    import unspool as us

    def prepare(loss: Any, matrix: Any, weight: Any) -> Prepared:
        a = us.placeholder(matrix.shape)
        value = loss(_unspool_functions(), a, us.constant(weight))
        gradient = value.grad(a)
        return lambda: us.eval(value, gradient, bindings={a: matrix})

    return prepare


def anew_library() -> Callable[[Any, Any, Any], Prepared]:
    """Graph and gradient are recorded anew in every call, as in a loop."""
    import unspool as us

    functions = _unspool_functions()

    def prepare(loss: Any, matrix: Any, weight: Any) -> Prepared:
        w = us.constant(weight)

        def run() -> tuple[Any, Any]:
            a = us.tensor(matrix)
            value = loss(functions, a, w)
            return us.eval(value, value.grad(a))  # type: ignore[no-any-return]

        return run

    return prepare


def _unspool_functions() -> Any:
    import unspool as us

    class Functions:
        linalg = us.linalg
        sum, log1p, tanh = us.sum, us.log1p, us.tanh

        @staticmethod
        def svd(a: Any) -> Any:
            return us.linalg.svd(a, full_matrices=False)

    return Functions


def torch_library() -> Callable[[Any, Any, Any], Prepared]:
    """PyTorch eager."""
    import torch

    torch.set_num_threads(1)

    class Functions:
        linalg = torch.linalg
        sum, log1p, tanh = torch.sum, torch.log1p, torch.tanh

        @staticmethod
        def svd(a: Any) -> Any:
            return torch.linalg.svd(a, full_matrices=False)

    def prepare(loss: Any, matrix: Any, weight: Any) -> Prepared:
        w = torch.tensor(weight)

        def run() -> tuple[Any, Any]:
            a = torch.tensor(matrix, requires_grad=True)
            value = loss(Functions, a, w)
            (gradient,) = torch.autograd.grad(value, a)
            return value.detach().numpy(), gradient.numpy()

        return run

    return prepare


def jax_library() -> Callable[[Any, Any, Any], Prepared]:
    """JAX, compiled once for each loss and size."""
    import jax

    jax.config.update("jax_enable_x64", True)

    class Functions:
        linalg = jax.numpy.linalg
        sum, log1p, tanh = jax.numpy.sum, jax.numpy.log1p, jax.numpy.tanh

        @staticmethod
        def svd(a: Any) -> Any:
            return jax.numpy.linalg.svd(a, full_matrices=False)

    def prepare(loss: Any, matrix: Any, weight: Any) -> Prepared:
        w = jax.numpy.asarray(weight)
        compiled = jax.jit(jax.value_and_grad(lambda a, w: loss(Functions, a, w)))

        def run() -> tuple[Any, Any]:
            value, gradient = compiled(matrix, w)
            return np.asarray(value), np.asarray(gradient)

        return run

    return prepare


@dataclass(frozen=True)
class Library:
    """A library and how its computations are made."""

    name: str
    package: str
    make: Callable[[], Callable[[Any, Any, Any], Prepared]]


LIBRARIES = {
    library.name: library
    for library in (
        Library("unspool", "unspool", unspool_library),
        Library("anew", "unspool", anew_library),
        Library("torch", "torch", torch_library),
        Library("jax jit", "jax", jax_library),
    )
}
PACKAGES = {name: library.package for name, library in LIBRARIES.items()}


# --- workers: processes that measure what they are told to ------------------------------------------------------------


def measuring(prepare: Callable[[Any, Any, Any], Prepared]) -> Callable[..., dict[str, float]]:
    """Return a function that measures a case; when it sees one first, it saves what was computed."""
    prepared: dict[tuple[str, int], tuple[Prepared, int]] = {}

    def answer(what: str, size: int, save: str | None = None) -> dict[str, float]:
        if (what, size) in prepared:
            run, repeats = prepared[what, size]
            return {"seconds": _seconds(run, repeats)}
        run = prepare(LOSSES[what], *matrices(what, size))
        first = _seconds(run, 1)
        seconds = _seconds(run, 1)
        prepared[what, size] = run, max(1, round(MEASUREMENT / seconds))
        value, gradient = run()
        np.savez(save or os.devnull, value=value, gradient=gradient)
        return {"first": first, "seconds": seconds}

    return answer


def _seconds(run: Prepared, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Median seconds of every library for one decomposition and size, and the seconds of its first call."""

    what: str
    size: int
    seconds: dict[str, float]
    first: dict[str, float]

    @property
    def fastest(self) -> float | None:
        """The seconds of the fastest of the others, if there are any."""
        return min((s for name, s in self.seconds.items() if LIBRARIES[name].package != "unspool"), default=None)

    @property
    def ratio(self) -> float | None:
        """Our time over that of the fastest of the others."""
        return None if self.fastest is None else self.seconds["unspool"] / self.fastest


def measure(names: list[str], rounds: dict[int, int]) -> Iterator[Row]:
    """Measure every loss at every size, all libraries in turn in every round."""
    with ExitStack() as running, tempfile.TemporaryDirectory() as folder:
        workers = {name: running.enter_context(Worker(__file__, name, QUIET)) for name in names}
        for what in LOSSES:
            for size, number in rounds.items():
                files = {name: str(Path(folder, f"{name}.npz")) for name in names}
                first = {name: w.ask(what=what, size=size, save=files[name])["first"] for name, w in workers.items()}
                check_agreement(f"{what}, n = {size}", files)
                times: dict[str, list[float]] = {name: [] for name in names}
                for _ in range(number):
                    for name, library in workers.items():
                        times[name].append(library.ask(what=what, size=size)["seconds"])
                yield Row(what, size, {name: statistics.median(t) for name, t in times.items()}, first)


def check_agreement(case: str, files: dict[str, str]) -> None:
    """Stop unless every library found the same value and gradient as the first."""
    answers = {}
    for name, path in files.items():
        with np.load(path) as stored:
            answers[name] = {"value": stored["value"], "gradient": stored["gradient"]}
    (reference, first), *others = answers.items()
    for name, other in others:
        for part, expected in first.items():
            error = np.linalg.norm(other[part] - expected) / np.linalg.norm(expected)
            if not error <= AGREEMENT:
                raise SystemExit(f"{case}: the {part} of {reference} and {name} differ by {error:.1e}")


# --- reporting -------------------------------------------------------------------------------------------------------


def print_row(row: Row) -> None:
    """Print a row of the table."""
    times = "".join(f"{_milliseconds(row.seconds.get(name)):>12}" for name in LIBRARIES)
    verdict = "" if row.ratio is None or row.size < HELD_FROM else "pass" if row.ratio <= BAR else "MISS"
    ratio = "–" if row.ratio is None else f"{row.ratio:.2f} ×"
    limit = f"≤ {BAR:.1f} ×" if verdict else ""
    compiling = _milliseconds(row.first.get("jax jit"))
    print(f"  {row.what:<10}{row.size:>5}{times}{ratio:>11}  {limit:<8}{verdict:<6}{compiling:>12}", flush=True)


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.3f} ms" if seconds < 0.1 else f"{1e3 * seconds:.0f} ms"


# --- the run ---------------------------------------------------------------------------------------------------------


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    options = harness.options("Measure gradients through decompositions.")
    if options.worker:
        serve(measuring(LIBRARIES[options.worker].make()))
        return 0

    if hasattr(os, "sched_setaffinity"):
        # The workers take turns, so one core serves them all, and none can gain from a second one.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    names = participants(PACKAGES)

    print("\nA scalar through a decomposition of an n×n matrix and its gradient (median); values and gradients agree")
    header = "".join(f"{name:>12}" for name in LIBRARIES)
    print(f"  {'':<10}{'n':>5}{header}{'to faster':>11}  {'bar':<8}{'':<6}{'jax, first':>12}")
    rows = []
    for row in measure(names, {4: 1, 32: 1} if options.quick else ROUNDS):
        print_row(row)
        rows.append(row)
    if options.json:
        _write(options.json, rows)
    if options.quick:
        return 0
    missed = [row for row in rows if row.ratio is not None and row.size >= HELD_FROM and row.ratio > BAR]
    print(f"\n{len(missed)} of {sum(row.size >= HELD_FROM for row in rows)} bars missed")
    return 1 if missed else 0


def _write(path: str, rows: list[Row]) -> None:
    table = [{"what": row.what, "size": row.size, "seconds": row.seconds, "first_call": row.first} for row in rows]
    harness.write(path, PACKAGES.values(), {"rows": table})


if __name__ == "__main__":
    sys.exit(main())
