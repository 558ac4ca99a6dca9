"""`us.Engine`: a budget of one's own, and the same values as everywhere else."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._engine.default import default_engine
from unspool._engine.memory.process_limits import available_bytes
from unspool._graph import live_node_count
from unspool.errors import ArgumentError, BudgetError

STEPS = 200
SIZE = 32
MATRIX = np.random.default_rng(0).normal(size=(SIZE, SIZE)) / 8
START = np.random.default_rng(1).normal(size=(SIZE, SIZE))

# Storing every step takes about ten times as much; see `test_a_budget_is_kept`.
TIGHT = 300_000

Look = Callable[..., Any]


def loop(look: Look) -> tuple[us.Tensor, us.Tensor, us.Tensor]:
    """Run a loop that looks at a number in every step; return the loss and what it is made from."""
    a, x = us.tensor(MATRIX), us.tensor(START)
    y = x
    for _ in range(STEPS):
        y = us.tanh(a @ y) + 0.5 * us.sin(y)
        if look(us.max(us.abs(y))) > 1e6:
            break
    return us.sum(y * y), a, x


def slopes(look: Look) -> list[Any]:
    """Return loss and gradient of the loop."""
    loss, a, x = loop(look)
    return [*look(loss, *loss.grad((a, x)))]


def curvatures(look: Look) -> list[Any]:
    """Return a product with the second derivatives of the loop."""
    loss, a, x = loop(look)
    return [*look(us.sum(loss.grad(a) * MATRIX.T).grad((a, x)))]


def when_known(program: Callable[[Look], list[Any]]) -> list[Any]:
    """Return what a program gives under the default engine when its pieces are known."""
    program(us.eval)
    return program(us.eval)


def same_bits(found: list[Any], expected: list[Any]) -> bool:
    return [np.asarray(x).tobytes() for x in found] == [np.asarray(x).tobytes() for x in expected]


# --- values ----------------------------------------------------------------------------------------------------------


def test_structures_come_back_filled_in() -> None:
    x = us.tensor([1.0, 2.0])
    engine = us.Engine()
    found = engine.eval({"twice": 2 * x, "name": "x"}, [x])
    np.testing.assert_equal(found, ({"twice": np.array([2.0, 4.0]), "name": "x"}, [np.array([1.0, 2.0])]))
    assert engine.eval(us.sum(x)) == 3.0
    assert engine.eval() == ()


def test_placeholders_are_bound() -> None:
    x = us.placeholder((2,), name="x")
    assert us.Engine("1MB").eval(us.sum(x * x), bindings={x: [3.0, 4.0]}) == 25.0


def test_arrays_are_read_only() -> None:
    value = us.Engine().eval(us.tensor([1.0]) + 1.0)
    assert not value.flags.writeable


def test_the_derivative_of_a_power_comes_out_under_a_tight_budget() -> None:
    # x_k = (2a)ᵏ x_0, so the derivative of Σ x_K with respect to a is 2K (2a)ᴷ⁻¹ Σ x_0.
    half = 0.5 + 2.0**-11
    engine = us.Engine(memory=TIGHT)
    a, x = us.tensor(half), us.tensor(START)
    for _ in range(STEPS):
        x = (x + x) * a
        engine.eval(x)
    slope = engine.eval(us.sum(x).grad(a))
    assert engine.report().evictions
    np.testing.assert_allclose(slope, 2 * STEPS * (2 * half) ** (STEPS - 1) * START.sum(), rtol=1e-11)


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "size"), [("2GB", 2 * 10**9), ("1.5GiB", 3 << 29), (4096, 4096), (1.0, available_bytes())]
)
def test_a_budget_is_told_in_bytes(given: str | int | float, size: int) -> None:
    assert us.Engine(memory=given).memory == us.Engine(given).memory == size


def test_without_a_budget_it_is_half_of_what_there_is() -> None:
    assert us.Engine().memory == available_bytes() // 2


@pytest.mark.parametrize("given", ["plenty", 0, -1, 1.5, True, b"2GB"])
def test_what_is_no_amount_of_memory_is_refused(given: Any) -> None:
    with pytest.raises(ArgumentError, match="is not an amount of memory"):
        us.Engine(memory=given)


def test_a_budget_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        us.Engine("1MB").memory = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("program", "budget"),
    [
        (slopes, None),
        (slopes, "100MB"),
        (slopes, TIGHT),
        (curvatures, None),
        (curvatures, "100MB"),
        (curvatures, "2MB"),
    ],
)
def test_no_budget_changes_a_bit(program: Callable[[Look], list[Any]], budget: str | int | None) -> None:
    expected = when_known(program)
    assert same_bits(program(us.Engine(budget).eval), expected)


def test_a_budget_is_kept() -> None:
    most, tight = us.Engine("100MB"), us.Engine(TIGHT)
    slopes(us.eval)
    slopes(most.eval)
    slopes(tight.eval)
    everything, kept = most.report(), tight.report()
    assert everything.peak is not None and everything.peak > 10 * TIGHT and everything.factor == 1.0
    assert kept.peak is not None and kept.peak <= TIGHT
    assert kept.factor is not None and kept.factor > 1.0 and kept.evictions


def test_a_budget_that_cannot_be_kept_names_one_that_can() -> None:
    expected = when_known(slopes)
    budget, found = 1000, []
    for _ in range(8):  # a later step may need more than the one that was refused
        try:
            found = slopes(us.Engine(budget).eval)
            break
        except BudgetError as error:
            budget = max(error.least, budget + 1)
    assert 1000 < budget < TIGHT and same_bits(found, expected)


def test_without_a_budget_nothing_is_refused() -> None:
    engine = us.Engine()
    engine._evaluator.ledger.set_limit(TIGHT // 10)
    assert same_bits(slopes(engine.eval), when_known(slopes))


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_report_is_about_the_whole_life_of_an_engine() -> None:
    engine = us.Engine("100MB")
    assert (engine.report().steps, engine.report().peak) == (0, 0)
    slopes(us.eval)
    slopes(engine.eval)
    once = engine.report().steps
    slopes(engine.eval)
    assert once is not None and once >= STEPS and engine.report().steps == 2 * once
    assert engine.report().budget == engine.memory


def test_the_peak_of_a_budget_that_may_be_exceeded_is_not_known() -> None:
    engine = us.Engine()
    slopes(engine.eval)
    assert engine.report().peak is None


def test_engines_count_for_themselves() -> None:
    idle, busy = us.Engine(TIGHT), us.Engine(TIGHT)
    ledger = default_engine().ledger
    slopes(us.eval)
    before = ledger.limit, ledger.is_strict, ledger.steps, ledger.evictions
    slopes(busy.eval)
    assert (ledger.limit, ledger.is_strict, ledger.steps, ledger.evictions) == before
    assert (idle.report().steps, idle.report().evictions, idle.report().peak) == (0, 0, 0)
    assert busy.report().evictions


def test_a_scope_is_about_the_default_engine() -> None:
    engine = us.Engine("100MB")
    slopes(us.eval)
    with us.memory(TIGHT) as scope:
        slopes(engine.eval)
    assert scope.report().steps == 0 and engine.report().evictions == 0


# --- side by side ----------------------------------------------------------------------------------------------------


def test_what_one_engine_has_computed_no_other_computes_again() -> None:
    x = us.tensor(START)
    y = us.exp(x) + 1.0
    with us.debug.count_kernels() as count:
        us.Engine("1MB").eval(y)
        first = count.total
        us.Engine("1MB").eval(y)
        y.eval()
    assert count.total == first > 0


def test_what_one_engine_has_let_go_another_brings_back() -> None:
    states = []

    def run(look: Look) -> list[us.Tensor]:
        y = us.tensor(START)
        a = us.tensor(MATRIX)
        for _ in range(STEPS):
            y = us.tanh(a @ y) + 0.5 * us.sin(y)
            look(y)
            states.append(y)
        return states

    expected = [y.eval() for y in run(us.eval)]
    states.clear()
    run(us.Engine(TIGHT).eval)
    assert sum(y.value is not None for y in states) < STEPS
    assert same_bits([y.eval() for y in states], expected)


def test_loops_are_folded_as_under_the_default_engine() -> None:
    counts = []
    for look in (us.eval, us.eval, us.Engine("100MB").eval):
        before = live_node_count()
        loss, a, _ = loop(look)
        gradient = loss.grad(a)
        counts.append(live_node_count() - before)
        del loss, a, gradient
    assert counts[2] == counts[1]


def test_an_engine_keeps_no_graph_alive() -> None:
    engines = [us.Engine("100MB"), us.Engine(TIGHT)]
    slopes(us.eval)
    gc.collect()
    gc.disable()
    try:
        before = live_node_count()
        for engine in engines:
            slopes(engine.eval)
        assert live_node_count() == before
    finally:
        gc.enable()


def test_an_engine_says_what_it_is() -> None:
    assert repr(us.Engine("2GB")) == "<Engine with a memory budget of 2.00 GB>"
