"""Small programs for tests of memory budgets, and what it takes to run them under one.

A program is a loop in plain Python on a few leaves. It returns a loss and tensors that the user still holds. Budgets
must not change a single bit, so the reference is the same program without one.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import unspool as us
from unspool._engine.default import default_engine
from unspool.errors import BudgetError

# More than any of the programs takes.
PLENTY = 10**9

# Errors that name a larger budget, one after the other, before a test gives up. A state that grows makes many.
_MOST_TRIALS = 150


class Run(NamedTuple):
    """What a program returns: a loss and what the user holds besides."""

    loss: us.Tensor
    held: Sequence[us.Tensor] = ()


class Program(NamedTuple):
    """A loop: the arrays its leaves are made of, and the function that runs it on the leaves."""

    name: str
    arrays: tuple[Any, ...]
    run: Callable[..., Run]

    def leaves(self) -> list[us.Tensor]:
        """Return leaves that nobody has used before."""
        return [us.tensor(np.array(array)) for array in self.arrays]


class Outcome(NamedTuple):
    """The values of a program: gradients, loss, and what the user holds; and the report of the budget."""

    gradients: list[Any]
    loss: Any
    held: list[Any]
    report: Any = None

    def values(self) -> list[Any]:
        """Return all values."""
        return [self.loss, *self.gradients, *self.held]


def outcome(program: Program) -> Outcome:
    """Run a program, differentiate it, and look at everything, the gradient first."""
    leaves = program.leaves()
    run = program.run(*leaves)
    gradients = us.eval(run.loss.grad(leaves))
    return Outcome(gradients, run.loss.eval(), [tensor.eval() for tensor in run.held])


def gradient_only(program: Program) -> Outcome:
    """Run and differentiate a program, and look at nothing else."""
    leaves = program.leaves()
    run = program.run(*leaves)
    return Outcome(us.eval(run.loss.grad(leaves)), None, [])


def within(
    program: Program, budget: int | str, compute: Callable[[Program], Outcome] = outcome, **options: Any
) -> Outcome:
    """Return the outcome of a program under a budget, with its report."""
    with us.memory(budget, **options) as scope:
        found = compute(program)
    return found._replace(report=scope.report())


def least_working(work: Callable[[int], Any], start: int = 1000) -> int:
    """Return the first budget that works of those that errors name; an error later in a program may name more."""
    budget = start
    for _ in range(_MOST_TRIALS):
        try:
            work(budget)
        except BudgetError as error:
            if error.least <= budget:
                raise AssertionError(f"a budget of {budget} bytes was refused, and {error.least} was named") from error
            budget = error.least
            set_back()
        else:
            return budget
    raise AssertionError(f"of {_MOST_TRIALS} budgets that errors named, up to {budget} bytes, none worked")


@lru_cache
def reference(name: str) -> Outcome:
    """Return the outcome of a program without a budget. It ran before: pieces are known by then."""
    outcome(PROGRAMS[name])
    return outcome(PROGRAMS[name])


@lru_cache
def least_budget(name: str, compute: Callable[[Program], Outcome] = outcome) -> int:
    """Return the least budget for a program, as errors name it; it may depend on which pieces are known by then."""
    reference(name)
    # Less than any of the programs needs, but not so little that a growing state takes a hundred trials.
    start = 8 * PROGRAMS[name].arrays[0].nbytes
    for _ in range(3):
        start = least_working(lambda budget: within(PROGRAMS[name], budget, compute), start)
    return start


@lru_cache
def runs_of(name: str, compute: Callable[[Program], Outcome] = outcome) -> list[Outcome]:
    """Return the outcomes of a program under budgets from what is enough for everything to the least, falling."""
    least = least_budget(name, compute)
    return [within(PROGRAMS[name], budget, compute) for budget in (PLENTY, 4 * least, 2 * least, 3 * least // 2, least)]


# What takes long runs these at night alone. Their gradients, values and peaks under every budget stay in the suite.
AT_NIGHT = frozenset({"noisy", "recurrent", "silent", "summed", "turning"})


def cases(bugs: dict[str, str], names: Iterable[str] = (), *, slow: bool = False) -> pytest.MarkDecorator:
    """Return a mark that runs a test for each program, a slow one for some of them at night alone.

    Those in ``bugs`` are known to fail, for a reason.
    """
    marks: dict[str, list[pytest.MarkDecorator]] = {name: [] for name in (names or PROGRAMS)}
    for name, found in marks.items():
        if name in bugs:
            found.append(pytest.mark.xfail(reason=bugs[name]))
        if slow and name in AT_NIGHT:
            found.append(pytest.mark.nightly)
    return pytest.mark.parametrize("name", [pytest.param(name, marks=found) for name, found in marks.items()])


def same_bits(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Compare arrays bit for bit: shapes, data types, and bytes."""
    for one, other in zip(found, expected, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.tobytes() != other.tobytes():
            np.testing.assert_array_equal(one, other)
            raise AssertionError("signs of zeros differ")


def set_back() -> None:
    """Set the engine back to the budget it starts with."""
    us.set_memory(None)
    ledger = default_engine().ledger
    ledger.guard = ledger.timeline = ledger.pool = None


def without_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine evict arrays however small they are."""
    for module in [module for name, module in sys.modules.items() if name.startswith("unspool._engine")]:
        if hasattr(module, "TINY"):
            monkeypatch.setattr(module, "TINY", 0)
    monkeypatch.setattr("unspool._engine.folding.matching.LARGE", 1)
    monkeypatch.setattr("unspool._engine.engine.LARGE", 1)
    us.clear_caches()


def settle() -> None:
    """Set the budget back, and free what a test that failed has left."""
    set_back()
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    gc.collect()


@contextmanager
def no_collector() -> Iterator[None]:
    """Switch the garbage collector off: what is freed is freed by counting references."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def array_bytes() -> int:
    """Return the bytes of arrays that are alive and were made since tracing began."""
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([arrays]).traces)


class CountedOp:
    """A custom op, the sine as it happens, that counts how often its kernel runs."""

    def __init__(self, name: str, kernel: Callable[[Any], Any] = np.sin) -> None:
        self.runs = 0
        self._kernel = kernel
        self.apply = us.op(
            name, kernel=self._run, vjp=(lambda ct, out, x: ct * us.cos(x),), needs=("inputs",), replace=True
        )

    def _run(self, x: Any) -> Any:
        self.runs += 1
        return self._kernel(x)


# --- programs --------------------------------------------------------------------------------------------------------

STEPS = 60


def matrix(size: int, seed: int, kind: str = "f") -> Any:
    """Return a matrix of norm one."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(size, size))
    if kind == "c":
        found = found + 1j * rng.normal(size=(size, size))
    return found / np.linalg.norm(found, 2)


def _step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    y = us.tanh(a @ x)
    return x - 0.1 * us.sin(y) * y + 0.2 * us.cos(x)


def plain(a: us.Tensor, x: us.Tensor) -> Run:
    """Look at a number in every step, as in a loop that stops when it has converged."""
    middle = x
    for step in range(STEPS):
        x = _step(a, x)
        if us.max(us.abs(x)).item() > 1e6:
            break
        if step == STEPS // 2:
            middle = x
    return Run(us.sum(x * x), [x, middle])


@us.fragment
def traced_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return _step(a, x)


def traced(a: us.Tensor, x: us.Tensor) -> Run:
    """A step that is traced once, and nothing looked at."""
    for _ in range(STEPS):
        x = traced_step(a, x)
    return Run(us.sum(x * x), [x])


def silent(a: us.Tensor, x: us.Tensor) -> Run:
    """Nothing is looked at before the gradient."""
    for _ in range(STEPS):
        x = _step(a, x)
    return Run(us.sum(x * x), [x])


def growing(a: us.Tensor, x: us.Tensor) -> Run:
    """The state gets a row more in every step: no two steps have the same shapes."""
    for _ in range(STEPS // 2):
        x = us.concatenate([us.tanh(x @ a), us.mean(x, axis=0, keepdims=True)])
        x.eval()
    return Run(us.sum(x * x), [x])


def truncated(a: us.Tensor, x: us.Tensor) -> Run:
    """A singular value decomposition in every step, truncated to a rank that was read off its values."""
    # Singular values that lie apart: vectors have derivatives.
    apart = np.diag(np.linspace(1.0, 3.0, x.shape[0]))
    for _ in range(STEPS // 3):
        u, s, vh = us.linalg.svd(us.tanh(a @ x) + apart, full_matrices=False)
        values = s.eval()
        rank = int(np.sum(values > 0.4 * values[0]))
        x = (u[:, :rank] * s[:rank]) @ vh[:rank]
    return Run(us.sum(x * x * a), [x])


def noisy(a: us.Tensor, x: us.Tensor) -> Run:
    """Every step draws random numbers, with a key of its own."""
    key = us.random.key(7)
    for step in range(STEPS):
        noise = us.random.normal(us.random.fold_in(key, step), x.shape)
        x = us.tanh(a @ x + 0.1 * noise * x)
        x.eval()
    return Run(us.sum(x * x), [x])


def turning(a: us.Tensor, x: us.Tensor) -> Run:
    """Complex numbers."""
    for _ in range(STEPS):
        y = a @ x
        x = y / (1.0 + us.abs(y) ** 2) + 0.3j * us.conj(x)
        float(us.real(us.sum(x)))
    return Run(us.real(us.sum(x * us.conj(x))), [x])


def sweep(a: us.Tensor, *sites: us.Tensor) -> Run:
    """A state of several tensors of which each step replaces one, from its neighbours, back and forth."""
    state = list(sites)
    order = [*range(1, len(state) - 1), *range(len(state) - 2, 0, -1)]
    for step in range(STEPS):
        i = order[step % len(order)]
        state[i] = us.tanh(state[i - 1] @ a @ state[i + 1]) + 0.5 * state[i]
        state[i].eval()
    return Run(sum((us.sum(site * site) for site in state), us.tensor(0.0)), state)


def summed(a: us.Tensor, x: us.Tensor) -> Run:
    """Each step has a loss of its own and uses the index of the loop; the captured matrix stays the same."""
    losses = []
    for step in range(STEPS):
        x = us.tanh(a @ x) * (1.0 + 0.01 * step)
        losses.append(us.mean(x * x))
        float(losses[-1])
    return Run(sum(losses[1:], losses[0]), [x, losses[3]])


def branching(a: us.Tensor, x: us.Tensor) -> Run:
    """Which way a step goes, and how many there are, depends on values."""
    for step in range(2 * STEPS):
        y = a @ x
        x = us.sin(y) + 0.5 * x if float(us.sum(y)) > 0.0 else us.tanh(y) - 0.5 * x
        if float(us.linalg.norm(x)) < 1e-6 * step:
            break
    return Run(us.sum(us.exp(x)), [x])


def recurrent(a: us.Tensor, x: us.Tensor) -> Run:
    """A step depends on several past states."""
    past = [x, 0.5 * x, us.cos(x)]
    for _ in range(STEPS):
        new = us.tanh(a @ past[-1] - 0.3 * past[-2] + 0.2 * us.sin(past[-3]))
        new.eval()
        past = [*past[1:], new]
    return Run(us.sum(past[-1] * past[-2]), past)


def make_programs(size: int) -> dict[str, Program]:
    """Return all programs, by name, on matrices of a size."""
    pair = (matrix(size, 0), matrix(size, 1))
    turned = (matrix(size, 2, "c"), matrix(size, 3, "c"))
    chain = (matrix(size, 4), *(matrix(size, 5 + i) for i in range(8)))
    programs = [
        Program("plain", pair, plain),
        Program("traced", pair, traced),
        Program("silent", pair, silent),
        Program("growing", pair, growing),
        Program("truncated", pair, truncated),
        Program("noisy", pair, noisy),
        Program("turning", turned, turning),
        Program("sweep", chain, sweep),
        Program("summed", pair, summed),
        Program("branching", pair, branching),
        Program("recurrent", pair, recurrent),
    ]
    return {program.name: program for program in programs}


PROGRAMS = make_programs(32)
