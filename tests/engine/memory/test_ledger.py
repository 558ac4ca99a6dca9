"""What the ledger counts, and that what was held is free afterwards, by counting references alone."""

from __future__ import annotations

import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.budgets import (
    PLENTY,
    PROGRAMS,
    CountedOp,
    array_bytes,
    cases,
    gradient_only,
    least_budget,
    least_working,
    matrix,
    no_collector,
    outcome,
    reference,
    same_bits,
    settle,
)
from unspool._engine.default import default_engine
from unspool._engine.memory.ledger import Ledger


@pytest.fixture(autouse=True)
def _settle() -> Iterator[None]:
    settle()
    yield
    settle()


def ledger() -> Ledger:
    return default_engine().ledger


UNIT = matrix(32, 0).nbytes


# --- counting --------------------------------------------------------------------------------------------------------


def test_a_state_between_steps_is_counted_once() -> None:
    a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
    held = []
    with us.memory("1GB"):
        base = ledger().held_bytes()
        for _ in range(20):
            x = x + a  # nothing is kept for derivatives
            x.eval()
            held.append(x)
        assert ledger().held_bytes() - base == 20 * UNIT


def test_a_part_of_the_state_that_the_user_has_is_counted_once() -> None:
    """Such a part is a view of what the step before has made, and both wait to be folded."""
    start = np.random.default_rng(0).normal(size=(10, 10))

    def within(budget: int) -> int:
        with us.memory(budget) as scope:
            u = us.tensor(start)
            for _ in range(20):
                inner = u[1:-1, 1:-1]
                new = us.tanh(0.3 * inner + 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1]))
                u = u.at[1:-1, 1:-1].set(new)
                float(u[1, 1])
            us.sum(u * u).eval()
            return scope.report().peak

    most = within(PLENTY)
    for budget in np.linspace(most / 4, most, 20).astype(int):
        assert within(int(budget)) <= budget


def test_values_that_nobody_refers_to_are_not_counted() -> None:
    with us.memory("1GB"):
        base = ledger().held_bytes()
        for k in range(20):
            (us.tensor(matrix(32, k)) @ us.tensor(matrix(32, k + 1))).eval()
        assert ledger().held_bytes() - base <= 2 * UNIT


@cases({}, slow=True)
def test_what_is_counted_is_what_is_traced(name: str) -> None:
    program = PROGRAMS[name]
    reference(name)
    settle()
    with us.memory("4GB"):
        base = ledger().held_bytes()
        leaves = program.leaves()
        tracemalloc.start()
        try:
            run = program.run(*leaves)
            run.loss.eval()
            traced = array_bytes()
        finally:
            tracemalloc.stop()
        counted = ledger().held_bytes() - base
    assert counted == pytest.approx(traced, rel=0.1, abs=2 * UNIT)


def test_leaves_are_the_users() -> None:
    with us.memory("1GB"):
        base = ledger().held_bytes()
        leaves = [us.tensor(np.ones((64, 64))) for _ in range(50)]
        assert ledger().held_bytes() == base
        assert us.sum(leaves[0]).eval() == 4096.0


# --- given back ------------------------------------------------------------------------------------------------------


@cases({}, slow=True)
def test_all_bytes_are_returned_without_the_garbage_collector(name: str) -> None:
    budget = 2 * least_budget(name)
    with us.memory(budget):
        outcome(PROGRAMS[name])  # evicts most of what other tests left, to make room
    with no_collector():
        default_engine().queue.flush()
        before = ledger().held_bytes()
        with us.memory(budget):
            found = outcome(PROGRAMS[name])
        default_engine().queue.flush()
        assert ledger().held_bytes() <= before  # less, where room was made once more
        del found


@cases({}, slow=True)
def test_traced_memory_returns_to_where_it_was(name: str) -> None:
    # One array more than before would show.
    program, budget = PROGRAMS[name], 2 * least_budget(name, gradient_only)
    with no_collector():
        for _ in range(2):
            with us.memory(budget):
                gradient_only(program)
        tracemalloc.start()
        try:
            sizes = []
            for _ in range(4):
                with us.memory(budget):
                    gradient_only(program)
                sizes.append(array_bytes())
        finally:
            tracemalloc.stop()
    assert max(sizes[1:]) - sizes[1] < program.arrays[0].nbytes


def test_arrays_that_are_let_go_are_really_free() -> None:
    reference("plain")
    alive: list[weakref.ref[Any]] = []
    budget = least_budget("plain", gradient_only)
    a, x = PROGRAMS["plain"].leaves()
    states = []
    with no_collector(), us.memory(budget):
        for _ in range(60):
            x = us.tanh(a @ x) + 0.5 * us.sin(x)
            alive.append(weakref.ref(_base(x.eval())))
            states.append(x)
        held = sum(reference() is not None for reference in alive)
        assert held * UNIT <= budget
        # The handles are still there, and so are the values for who asks.
        same_bits([states[3].eval()], [states[3].eval()])


def test_results_die_with_their_handles() -> None:
    a, x = PROGRAMS["plain"].leaves()
    with no_collector(), us.memory(2 * least_budget("plain")):
        loss = PROGRAMS["plain"].run(a, x).loss
        slopes = loss.grad([a, x])
        arrays = [weakref.ref(_base(value)) for value in us.eval(slopes)]
        assert all(array() is not None for array in arrays)
        del slopes
        assert all(array() is None for array in arrays)


def _base(array: Any) -> Any:
    """Return the array that holds the memory of a view."""
    while array.base is not None:
        array = array.base
    return array


# --- what goes first -------------------------------------------------------------------------------------------------


def test_old_steps_lose_residuals_and_states_and_the_newest_lose_nothing() -> None:
    reference("plain")
    with us.memory(PLENTY) as scope:
        PROGRAMS["plain"].run(*PROGRAMS["plain"].leaves())
    a, x = PROGRAMS["plain"].leaves()
    with us.memory(int(0.95 * scope.report().peak)) as scope:
        run = PROGRAMS["plain"].run(a, x)
        report = scope.report()
    assert report.evictions <= report.slabs_dropped
    assert 0 < report.slabs_dropped < 20
    assert run.loss is not None


def test_a_sweep_counts_sites_that_states_share_once() -> None:
    # 8 sites of which a step replaces one: 60 states are 60 new arrays, not 480. The rest is for residuals.
    leaves = PROGRAMS["sweep"].leaves()
    with us.memory(240 * UNIT) as scope:
        run = PROGRAMS["sweep"].run(*leaves)
        report = scope.report()
    assert report.evictions == report.slabs_dropped == 0
    assert run.loss is not None


# --- hints -----------------------------------------------------------------------------------------------------------


def hinted_loop(hint: Any, sine: CountedOp, budget: int) -> Any:
    """Return the gradient of a loop with a hint on the result of an op that counts its runs."""
    a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
    sine.runs = 0
    with us.memory(budget):
        for _ in range(40):
            x = us.tanh(a @ x) * hint(sine.apply(x))
            x.eval()
        return us.sum(x * x).grad(a).eval()


def test_what_is_kept_is_never_computed_again() -> None:
    sine = CountedOp("kept_sine")
    expected = hinted_loop(us.keep, sine, 10**9)
    assert sine.runs == 40
    least = least_working(lambda budget: hinted_loop(us.keep, sine, budget))
    # 40 values stay, whatever it takes.
    assert least > 40 * UNIT
    for budget in (2 * least, least):
        same_bits([hinted_loop(us.keep, sine, budget)], [expected])
        assert sine.runs == 40


def test_without_a_hint_the_same_value_is_computed_again() -> None:
    sine = CountedOp("plain_sine")
    hinted_loop(lambda x: x, sine, 10**9)  # the first iteration of a new loop keeps nothing for derivatives
    expected = hinted_loop(lambda x: x, sine, 10**9)
    assert sine.runs == 40
    least = least_working(lambda budget: hinted_loop(lambda x: x, sine, budget))
    assert least < 40 * UNIT
    same_bits([hinted_loop(lambda x: x, sine, least)], [expected])
    assert sine.runs > 40


def test_what_is_cheap_is_always_computed_again() -> None:
    sine = CountedOp("cheap_sine")
    hinted_loop(us.cheap, sine, 10**9)
    for budget in (10**9, 2 * least_working(lambda size: hinted_loop(us.cheap, sine, size))):
        hinted_loop(us.cheap, sine, budget)
        assert sine.runs >= 80


def test_what_is_kept_outside_of_loops_is_there_after_the_gradient() -> None:
    a, x = PROGRAMS["plain"].leaves()
    start = us.keep(us.sin(x))
    start.eval()

    def differentiate(budget: int) -> None:
        with us.memory(budget):
            PROGRAMS["plain"].run(a, start).loss.grad([a, x])[0].eval()

    differentiate(least_working(differentiate))
    before = us.engine_stats().kernel_calls
    start.eval()
    assert us.engine_stats().kernel_calls == before
