"""Segments that a thread recomputes while a backward pass uses others: the same bits within the same budgets."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.budgets import (
    PROGRAMS,
    CountedOp,
    array_bytes,
    cases,
    gradient_only,
    least_budget,
    make_programs,
    matrix,
    no_collector,
    outcome,
    reference,
    same_bits,
    settle,
    within,
)
from unspool._engine.memory import ahead
from unspool._engine.memory.prefetch import Lookout
from unspool._engine.memory.recomputation import unit_of
from unspool.errors import ArgumentError, KernelError


@pytest.fixture(autouse=True)
def _settle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Which states go depends on how long steps take. Here all of them take the same.
    monkeypatch.setattr("unspool._engine.engine.perf_counter", lambda: 0.0)
    settle()
    yield
    settle()


class Noting(ThreadPoolExecutor):
    """A pool that counts what it is given, and refuses all after some of it."""

    def __init__(self, threads: int = 1, most: int | None = None) -> None:
        super().__init__(threads)
        self.given = 0
        self._most = most

    def submit(self, f: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.given == self._most:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.given += 1
        return super().submit(f, *args, **kwargs)


class Later(ThreadPoolExecutor):
    """A pool that is busy with something else until it is closed."""

    def __init__(self) -> None:
        super().__init__(1)
        self._waits = threading.Event()

    def keep_busy(self) -> None:
        super().submit(self._waits.wait)

    def __exit__(self, *error: Any) -> None:
        self._waits.set()
        super().__exit__(*error)


def middle(name: str) -> int:
    """Return a budget in which segments have room for some steps."""
    return 2 * least_budget(name, gradient_only)


# --- the same bits, within the same budgets --------------------------------------------------------------------------


@cases({}, slow=True)
def test_a_pool_changes_no_bit_and_keeps_to_the_budget(name: str) -> None:
    least = least_budget(name)
    with ThreadPoolExecutor(1) as pool:
        for budget in (least, 2 * least, 4 * least):
            found = within(PROGRAMS[name], budget, pool=pool)
            same_bits(found.values(), reference(name).values())
            assert found.report.peak <= budget


@pytest.mark.parametrize("name", ["plain", "traced", "silent", "sweep"])
def test_the_pool_recomputes_segments(name: str) -> None:
    with Noting() as pool:
        budget = middle(name)
        with us.memory(budget, pool=pool):
            asked = pool.given
            gradient_only(PROGRAMS[name])
    assert pool.given > asked + 3


def test_no_step_is_recomputed_in_vain() -> None:
    alone = within(PROGRAMS["plain"], middle("plain"), gradient_only).report
    with ThreadPoolExecutor(1) as pool:
        beside = within(PROGRAMS["plain"], middle("plain"), gradient_only, pool=pool).report
    assert beside.evaluations <= 1.25 * alone.evaluations


@pytest.mark.parametrize("name", ["plain", "sweep"])
def test_what_is_held_does_not_depend_on_when_the_thread_runs(name: str) -> None:
    program, budget = PROGRAMS[name], middle(name)
    peaks = set()
    for _ in range(3):
        with ThreadPoolExecutor(1) as pool:
            peaks.add(within(program, budget, gradient_only, pool=pool).report.peak)
    with Later() as pool, us.memory(budget, pool=pool) as scope:
        pool.keep_busy()
        gradient_only(program)
        peaks.add(scope.report().peak)
    assert len(peaks) == 1


def test_traced_memory_stays_within_the_budget() -> None:
    # Arrays so large that the objects of Python beside them do not count.
    program = make_programs(256)["traced"]
    gradient_only(program)
    scale = program.arrays[0].nbytes / PROGRAMS["traced"].arrays[0].nbytes
    budget = int(1.5 * scale * least_budget("traced", gradient_only))
    settle()
    with Noting() as pool:
        tracemalloc.start()
        try:
            with us.memory(budget, pool=pool):
                leaves = program.leaves()
                tracemalloc.reset_peak()
                base = tracemalloc.get_traced_memory()[0]  # leaves belong to the user
                us.eval(program.run(*leaves).loss.grad(leaves))
            traced = tracemalloc.get_traced_memory()[1] - base
        finally:
            tracemalloc.stop()
    assert pool.given > 5
    assert traced <= 1.1 * budget


def test_an_engine_of_its_own_has_a_pool_of_its_own() -> None:
    program = PROGRAMS["plain"]
    with Noting() as pool:
        engine = us.Engine(middle("plain"), pool=pool)
        asked = pool.given
        leaves = program.leaves()
        x = leaves[1]
        for _ in range(60):
            y = us.tanh(leaves[0] @ x)
            x = x - 0.1 * us.sin(y) * y + 0.2 * us.cos(x)
            engine.eval(us.max(us.abs(x)))
        found = engine.eval(us.sum(x * x).grad(leaves))
    assert pool.given > asked + 3
    assert engine.report().peak <= engine.memory
    same_bits(found, reference("plain").gradients)


def test_a_second_derivative_is_the_same() -> None:
    def curvature(budget: int, pool: Any) -> Any:
        with us.memory(budget, pool=pool):
            a, x = PROGRAMS["plain"].leaves()
            for _ in range(20):
                x = us.tanh(a @ x) + 0.3 * x
                x.eval()
            slope = us.sum(x * x).grad(a)
            return us.sum(slope * slope).grad(a).eval()

    unit = matrix(32, 0).nbytes
    with ThreadPoolExecutor(1) as pool:
        same_bits([curvature(120 * unit, pool)], [curvature(10**9, None)])


def test_values_that_are_verified_or_go_to_disk_are_the_same(tmp_path: Path) -> None:
    budget = middle("plain")
    with ThreadPoolExecutor(1) as pool:
        for options in ({"verify": "hash"}, {"spill": tmp_path}):
            found = within(PROGRAMS["plain"], budget, pool=pool, **options)
            same_bits(found.values(), reference("plain").values())


# --- whose code runs where -------------------------------------------------------------------------------------------


def test_kernels_of_a_user_run_in_his_thread() -> None:
    threads = set()

    def kernel(x: Any) -> Any:
        threads.add(threading.get_ident())
        return np.sin(x)

    sine = CountedOp("of_a_thread", kernel)

    def gradient(**options: Any) -> Any:
        a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
        with us.memory(30 * matrix(32, 0).nbytes, **options):
            for _ in range(60):
                x = us.tanh(a @ sine.apply(x)) + 0.3 * x
                x.eval()
            return us.sum(x * x).grad(a).eval()

    expected = gradient()
    with ThreadPoolExecutor(1) as pool:
        same_bits([gradient(pool=pool)], [expected])
    assert threads == {threading.get_ident()}


def test_loops_with_kernels_of_a_user_inside_are_his_too() -> None:
    sine = CountedOp("inside_of_a_loop")
    x = us.tensor(matrix(8, 0))
    ours, _ = us.iterate(us.sin, x, max_steps=3)
    his, _ = us.iterate(lambda x: us.cos(sine.apply(x)), x, max_steps=3)
    assert [ahead.runs_anywhere(unit_of(end).inputs[0]) for end in (ours, his)] == [True, False]
    assert [ahead.runs_anywhere(unit) for unit in (us.sin(x), sine.apply(x))] == [True, False]


# --- pools that fail -------------------------------------------------------------------------------------------------


def test_a_pool_that_is_busy_or_closed_costs_nothing_but_time() -> None:
    budget = middle("plain")
    with Later() as pool, us.memory(budget, pool=pool):
        pool.keep_busy()
        same_bits(gradient_only(PROGRAMS["plain"]).gradients, reference("plain").gradients)
    with ThreadPoolExecutor(1) as pool:
        scope = us.memory(budget, pool=pool)
    with scope:
        same_bits(gradient_only(PROGRAMS["plain"]).gradients, reference("plain").gradients)


@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_a_pool_that_is_closed_on_the_way(most: int) -> None:
    with Noting(most=most) as pool:
        found = within(PROGRAMS["plain"], middle("plain"), pool=pool)
    same_bits(found.values(), reference("plain").values())


def test_a_gradient_may_run_in_the_pool_that_it_uses() -> None:
    with ThreadPoolExecutor(1) as pool, us.memory(middle("plain"), pool=pool):
        found = pool.submit(gradient_only, PROGRAMS["plain"]).result()
    same_bits(found.gradients, reference("plain").gradients)


def test_a_thread_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, real = [], ahead.results_of

    def fails_now_and_then(call: Any, arguments: Any) -> Any:
        runs.append(call.id)
        if len(runs) % 7 == 3:
            raise MemoryError
        return real(call, arguments)

    monkeypatch.setattr(ahead, "results_of", fails_now_and_then)
    with ThreadPoolExecutor(1) as pool:
        found = within(PROGRAMS["traced"], middle("traced"), gradient_only, pool=pool)
    assert len(runs) > 10
    same_bits(found.gradients, reference("traced").gradients)
    assert found.report.peak <= middle("traced")


def test_an_error_is_the_one_that_there_is_without_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = middle("traced")
    is_broken = [False]

    def breaks(real: Any) -> Any:
        def run(call: Any, arguments: Any, *more: Any) -> Any:
            if is_broken[0]:
                raise KernelError(f"call {call.op.name} is broken")
            return real(call, arguments, *more)

        return run

    monkeypatch.setattr(ahead, "results_of", breaks(ahead.results_of))
    monkeypatch.setattr("unspool._engine.memory.replay.results_of", breaks(ahead.results_of))
    with ThreadPoolExecutor(1) as pool, us.memory(budget, pool=pool):
        leaves = PROGRAMS["traced"].leaves()
        loss = PROGRAMS["traced"].run(*leaves).loss
        loss.eval()
        gradients = loss.grad(leaves)
        is_broken[0] = True
        with pytest.raises(KernelError, match="is broken"):
            us.eval(gradients)
        is_broken[0] = False
        same_bits(us.eval(gradients), reference("traced").gradients)


def test_nothing_goes_on_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, inside = threading.Event(), threading.Event(), []
    real_run, real_look = ahead.results_of, Lookout.look

    def slow(call: Any, arguments: Any) -> Any:
        inside.append(call)
        begun.set()
        may_end.wait()
        found = real_run(call, arguments)
        inside.pop()
        return found

    def interrupted(out: Lookout) -> None:
        real_look(out)
        if out._ahead is not None and out._ahead.granted:
            begun.wait()
            threading.Timer(0.05, may_end.set).start()
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool, us.memory(middle("traced"), pool=pool):
        leaves = PROGRAMS["traced"].leaves()
        loss = PROGRAMS["traced"].run(*leaves).loss
        loss.eval()
        with monkeypatch.context() as patch:
            patch.setattr(Lookout, "look", interrupted)
            patch.setattr(ahead, "results_of", slow)
            with pytest.raises(KeyboardInterrupt):
                us.eval(loss.grad(leaves))
            assert begun.is_set()
            assert not inside
        same_bits(us.eval(loss.grad(leaves)), reference("traced").gradients)


def test_a_busy_pool_holds_no_values_for_long() -> None:
    program, budget = PROGRAMS["plain"], middle("plain")
    with no_collector(), Later() as pool:
        scopes = [us.memory(budget, pool=pool) for _ in range(3)]
        pool.keep_busy()
        sizes = []
        for scope in scopes:
            with scope:
                gradient_only(program)
            if not sizes:
                tracemalloc.start()
            sizes.append(array_bytes())
        tracemalloc.stop()
    assert max(sizes[1:]) - sizes[1] < program.arrays[0].nbytes


def test_a_pool_is_one_of_threads() -> None:
    with pytest.raises(ArgumentError, match=r"the pool of us\.memory is one of threads, with submit"):
        us.memory("1MB", pool=3)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(ArgumentError, match="threads of this process"),
    ):
        us.memory("1MB", pool=pool)


def test_a_loop_with_few_states_takes_the_pool_of_the_block() -> None:
    def gradient() -> Any:
        a = us.tensor(matrix(12, 0))
        y, _ = us.iterate(
            lambda x: us.tanh(a @ x) + 0.1, us.ones(12), max_steps=200, adjoint=us.Checkpointed(memory="4kB")
        )
        return us.sum(y**2).grad(a).eval()

    expected = gradient()
    with Noting() as pool, us.memory("10MB", pool=pool):
        asked = pool.given
        same_bits([gradient()], [expected])
        assert pool.given > asked + 3
        assert us.Checkpointed(slots=3).pool is pool
    assert us.Checkpointed(slots=3).pool is None


def test_outcomes_that_are_asked_for_with_the_gradient_come_about_once() -> None:
    with ThreadPoolExecutor(1) as pool:
        found = within(PROGRAMS["branching"], 2 * least_budget("branching"), outcome, pool=pool)
    same_bits(found.values(), reference("branching").values())
