"""The steady state of a loop: after its third iteration every evaluation finds its plan, and little is stored.

The plan is made when a structure is met for the second time. The first iteration often has a structure of its own: it
starts from a leaf where the others go on with a pending value, and a number written in the body is younger than what it
is multiplied with, once. What all iterations have in common takes one iteration more: it is met, kept, and then read.

Also what bounds the caches that make it so, and what a budget for residuals does: nothing to the numbers.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from tests.engine.test_folding import NEVER, by_tape, flush, folding, is_folded
from unspool._engine.default import default_engine
from unspool._engine.folding.fold_queue import FOLD_AFTER, MOST_WAITING
from unspool._fragments.call import link_of

X = np.array([0.5, -1.25, 2.0])
A = 0.4 * np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]])

State = Any
Step = Callable[[int, State], State]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    us.clear_caches()
    yield
    us.clear_caches()


@pytest.fixture(params=[1, FOLD_AFTER, NEVER], ids=["folded soon", "folded later", "never folded"])
def _any_folding(request: pytest.FixtureRequest) -> Iterator[None]:
    with folding(request.param):
        yield


def watch(step: Step, state: State, iterations: int) -> tuple[State, list[dict[str, int]]]:
    """Run a loop; return its state and what the engine did in each iteration."""
    history = []
    for k in range(iterations):
        before = us.engine_stats()
        state = step(k, state)
        after = us.engine_stats()
        names = ("evaluations", "fragments", "plan_hits", "plan_misses", "kernel_calls")
        history.append({name: getattr(after, name) - getattr(before, name) for name in names})
    return state, history


def assert_steady(history: list[dict[str, int]], first: int = 3) -> None:
    """After the first three iterations all evaluations are hits and nothing new is described.

    But once more for the first iterations, when they are folded: these ran node by node, and are cut where what they
    made is what all iterations have in common.
    """
    for k, done in enumerate(history[first:], first):
        assert done["plan_hits"] == done["evaluations"] > 0, (k, done)
    for made in ("plan_misses", "fragments"):
        late = sum(done[made] for done in history[first:])
        assert late <= sum(done["evaluations"] for done in history[:first]), (made, late)


@pytest.mark.usefixtures("_any_folding")
class TestSteadyLoops:
    """Each a loop that is steady after the third iteration, or after it went each of its ways so often."""

    def test_a_loop_whose_first_iteration_is_like_the_others_is_steady_in_its_third(self) -> None:
        def step(k: int, x: us.Tensor) -> us.Tensor:
            x = us.sin(x) + us.roll(x, 1)
            float(x[0])
            return x

        _, history = watch(step, us.tensor(X), 20)
        assert_steady(history, 2)
        _, history = watch(step, us.tensor(X + 1.0), 5)
        assert_steady(history, 0)

    def test_power_iteration(self) -> None:
        a = us.tensor(A)

        def step(k: int, x: us.Tensor) -> us.Tensor:
            y = a @ x
            norm = us.linalg.norm(y)
            float(norm)
            return y / norm

        _, history = watch(step, us.tensor(X), 30)
        assert_steady(history)
        assert len({done["kernel_calls"] for done in history[3:]}) == 1

    def test_branches_taken_now_and_then(self) -> None:
        def step(k: int, x: us.Tensor) -> us.Tensor:
            x = us.sin(x) * 0.9 + 0.1
            if k % 4 == 1:
                x = x * x + us.cos(x)
            if float(us.sum(x)) > 2.5:
                x = x * 0.5 - us.tanh(x)
            float(us.sum(x * x))
            return x

        _, history = watch(step, us.tensor(X), 60)
        assert_steady(history, 30)

    def test_several_evaluations_an_iteration(self) -> None:
        def step(k: int, x: us.Tensor) -> us.Tensor:
            y = us.sin(x) * 2.0
            float(y[0])
            z = us.cos(y) + x
            float(us.sum(z))
            us.eval(z * 0.5, y * z)
            return z

        _, history = watch(step, us.tensor(X), 20)
        assert_steady(history)

    def test_values_held_across_iterations(self) -> None:
        half = us.tensor(0.5)
        held: list[us.Tensor] = []

        def step(k: int, x: us.Tensor) -> us.Tensor:
            y = us.sin(x)
            z = y * x + us.cos(y)
            float(z[0])
            held.append(y)
            return z * half + held[-2] if len(held) > 1 else z * half

        _, history = watch(step, us.tensor(X), 20)
        assert_steady(history, 4)  # the third iteration is the first that reads a value held by an earlier one

    def test_two_loops_interleaved(self) -> None:
        def step(k: int, state: tuple[us.Tensor, us.Tensor]) -> tuple[us.Tensor, us.Tensor]:
            x, y = state
            x = us.sin(x) * 0.5 + x * x * 0.1
            float(x[0])
            y = us.tanh(us.tensor(A) @ y)
            float(us.sum(y))
            return x, y

        _, history = watch(step, (us.tensor(X), us.tensor(X)), 20)
        assert_steady(history)

    def test_a_number_that_is_different_in_every_step(self) -> None:
        def step(k: int, x: us.Tensor) -> us.Tensor:
            x = us.sin(x) * (1.0 / (k + 2.375)) + x
            float(x[0])
            return x

        _, history = watch(step, us.tensor(X), 20)
        assert_steady(history)

    def test_a_shape_that_changes_now_and_then(self) -> None:
        def step(k: int, x: us.Tensor) -> us.Tensor:
            if k % 6 == 5:
                x = us.concat([x, x[:1]]) if x.shape == (3,) else x[:3]
            x = us.sin(x) * 0.5 + us.mean(x)
            float(us.sum(x))
            return x

        _, history = watch(step, us.tensor(X), 60)
        assert_steady(history, 36)

    def test_nested_loops(self) -> None:
        def step(k: int, x: us.Tensor) -> us.Tensor:
            for _ in range(3):
                x = us.sin(x) + 0.1 * x
                float(x[0])
            x = x / us.linalg.norm(x)
            float(x[1])
            return x

        _, history = watch(step, us.tensor(X), 12)
        assert_steady(history)

    def test_factorisations(self) -> None:
        m = us.tensor(A + 2 * np.eye(3))

        def step(k: int, x: us.Tensor) -> us.Tensor:
            u, s, vh = us.linalg.svd(m + us.outer(x, x))
            x = us.linalg.solve(m, u[:, 0] * s[0]) * us.sum(vh[0] * u[:, 0])
            float(us.sum(x * x))
            return x / us.linalg.norm(x)

        _, history = watch(step, us.tensor(X), 12)
        assert_steady(history, 4)

    def test_what_all_iterations_have_in_common_is_computed_at_most_twice(self) -> None:
        doubled, runs = counting_op()
        a = us.tensor(A)

        def step(k: int, x: us.Tensor) -> us.Tensor:
            x = us.tanh((doubled(a) + 0.1) @ x)
            float(x[0])
            return x

        last, history = watch(step, us.tensor(X), 40)
        assert len(runs) <= 2, len(runs)
        assert_steady(history, 4)
        assert history[-1]["kernel_calls"] < history[0]["kernel_calls"]
        close(us.sum(last).grad(a), by_tape(us.sum(last), a), 1e-11)

    def test_what_iterations_have_in_common_is_computed_at_most_twice_in_later_runs_too(self) -> None:
        doubled, runs = counting_op()
        for run in range(4):
            runs.clear()
            a, x = us.tensor(A), us.tensor(X)
            if run < 2:  # a first iteration of its own: it does not keep what is common, so the second one does
                x = us.tanh(doubled(a) @ x)
                for _ in range(run + 1):
                    x = us.sin(x)
                float(x[0])
            for _ in range(40):
                x = us.tanh(doubled(a) @ x)
                float(x[0])
            assert len(runs) <= 2, (run, len(runs))


def test_a_line_may_ask_for_one_part_of_a_factorisation_or_for_all() -> None:
    matrix = np.array([[2.0, 1.0], [0.5, 3.0]])

    def parts(whole: bool) -> Any:
        q, r = us.linalg.qr(us.tensor(matrix))
        return us.eval((q, r)) if whole else (q.eval(), r.eval())

    for whole in (False, False, False, True, True, True, False):
        q, r = parts(whole)
        np.testing.assert_allclose(q @ r, matrix, rtol=0, atol=1e-14)


def test_a_loop_that_is_made_of_constants_folds_too() -> None:
    before = us.engine_stats().calls
    x = us.ones((2, 3))
    y = x
    for _ in range(200):
        y = us.sin(y) * 0.9
        float(y[0, 0])
    us.sum(y).grad(x).eval()
    assert us.engine_stats().calls - before >= 190


def test_pieces_are_recognised_by_their_line_also_when_python_has_specialised_it(monkeypatch: Any) -> None:
    # After a few runs of a line CPython replaces its instructions by faster ones, and reports another position in it.
    engine = default_engine()
    general = engine._compute
    unknown: list[int] = []

    def counting(missing: Any) -> None:
        unknown.append(len(costs))
        general(missing)

    monkeypatch.setattr(engine, "_compute", counting)
    a, x = us.tensor(A), us.tensor(X)
    costs: list[int] = []
    for _ in range(40):
        before = us.engine_stats().kernel_calls
        x = us.tanh(us.sin(a @ x))
        float(x[0])
        costs.append(us.engine_stats().kernel_calls - before)
    assert unknown[0] == 0 and max(unknown) < 20, unknown
    assert set(costs) == {4}, costs


def counting_op() -> tuple[Callable[..., us.Tensor], list[int]]:
    """Return an op that doubles, and a list that grows when its kernel runs."""
    runs: list[int] = []

    def kernel(a: Any) -> Any:
        runs.append(1)
        return a * 2.0

    return us.op("steady_doubled", kernel=kernel, vjp=(lambda ct, out, a: ct * 2.0,), needs=(), replace=True), runs


# --- what is stored --------------------------------------------------------------------------------------------------


def body_of_fifty(x: us.Tensor, c: us.Tensor) -> us.Tensor:
    """Fifty ops on tensors without axes."""
    y = x
    for _ in range(12):
        y = us.sin(y)
        y = y * c
        y = y + x
        y = us.tanh(y)
    return y * c + x


def bytes_per_iteration(after: int, iterations: int = 200) -> float:
    """Return what an iteration of a loop of fifty ops leaves behind, arrays apart.

    The state of each step is a value: an array of its own, which tracemalloc files under the place that made it. Values
    are counted by their objects (the state of every step is held by the loop that was recorded) and taken off.
    """
    with folding(after):
        x, c = us.tensor(0.3), us.tensor(0.9)
        for _ in range(20):  # caches fill, and the intern table takes its size
            x = body_of_fifty(x, c)
            float(x)
        gc.collect()
        tracemalloc.start()
        start = tracemalloc.get_traced_memory()[0]
        for _ in range(iterations):
            x = body_of_fifty(x, c)
            float(x)
        used = tracemalloc.get_traced_memory()[0] - start
        tracemalloc.stop()
        value = x.eval()
    size_of_a_value = value.__sizeof__() + 16  # with the bookkeeping of the garbage collector
    return used / iterations - size_of_a_value


def test_a_folded_iteration_of_fifty_ops_takes_at_most_1500_bytes() -> None:
    folded, unfolded = bytes_per_iteration(1), bytes_per_iteration(NEVER)
    assert folded <= 1500, folded
    assert unfolded > 10 * folded, (folded, unfolded)


def test_a_loop_folds_without_being_told() -> None:
    x = us.tensor(X)
    states = []
    for _ in range(3 * MOST_WAITING):
        x = us.sin(x) * 0.5 + x
        float(x[0])
        states.append(x)
    assert all(is_folded(state) for state in states[3:-MOST_WAITING])
    assert not any(is_folded(state) for state in states[-FOLD_AFTER:])


# --- residuals -------------------------------------------------------------------------------------------------------


def loop_with_residuals(steps: int = 20) -> tuple[us.Tensor, us.Tensor, us.Tensor]:
    for _ in range(2):
        a, x = us.tensor(A), us.tensor(X)
        y = x
        for _ in range(steps):
            y = us.tanh(us.exp(a @ y) @ us.sin(a)) + us.linalg.norm(y) * 0.1
            float(y[0])
        flush()
    return a, x, us.sum(y * y)


@pytest.mark.parametrize("limit", [200, 1000])
def test_dropped_residuals_change_no_bit_of_a_gradient(limit: int) -> None:
    ledger = default_engine().ledger
    unlimited = ledger.limit
    with folding(1):
        for _ in range(4):  # the last runs are folded alike, from their first step on
            a, x, loss = loop_with_residuals()
            kept = us.eval(loss.grad([a, x]))
        del a, x, loss
        try:
            ledger.set_limit(limit)
            before = us.engine_stats().slabs_dropped
            b, z, other = loop_with_residuals()
            ledger.make_room()
            assert us.engine_stats().slabs_dropped > before
            rebuilt = us.eval(other.grad([b, z]))
        finally:
            ledger.set_limit(unlimited)
    for found, expected in zip(rebuilt, kept, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_residuals_are_counted_and_freed_with_their_loop() -> None:
    with folding(1):
        before = us.engine_stats().bytes_kept
        a, x, loss = loop_with_residuals()
        close(loss.grad(x), by_tape(loss, x), 1e-11)
        assert us.engine_stats().bytes_kept > before
        del a, x, loss
        assert us.engine_stats().bytes_kept == before


def test_cheap_values_are_computed_again_and_products_and_results_are_kept() -> None:
    with folding(1):
        a, x = us.tensor(A), us.tensor(X)
        y = x
        for _ in range(6):
            y = us.tanh(us.exp(a @ y) * 0.1)
            y.eval()
        flush()
    fragment = link_of(y)[0].plan.fragment
    first = len(fragment.dtypes)
    residuals = [fragment.body[slot - first].op.name for slot in fragment.outputs[fragment.results :]]
    assert sorted(residuals) == ["contract", "tanh"]


def test_numbers_that_a_step_draws_are_not_held_by_its_plan() -> None:
    def draw(step: int) -> None:
        noise = us.random.normal(us.random.fold_in(us.random.key(3), step), (100, 100))
        us.sum(us.tanh(noise) * noise).eval()

    def twice(steps: range) -> None:  # by plan the second time
        for step in (*steps, *steps):
            draw(step)

    twice(range(5))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        twice(range(5, 25))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 20 * 100 * 100 * 8 / 2
    finally:
        tracemalloc.stop()


def test_a_loop_whose_rules_look_at_its_states_alone_holds_nothing_else() -> None:
    a, y = us.tensor(np.eye(20) * 0.5), us.ones((20, 20))
    with us.memory("1GB"):
        for _ in range(8):  # the step is known by then
            y = us.tanh(a @ y - 0.1 * y)
            y.eval()
        before = default_engine().ledger.held_bytes()
        for _ in range(10):
            y = us.tanh(a @ y - 0.1 * y)
            y.eval()
        assert default_engine().ledger.held_bytes() == before + 10 * 20 * 20 * 8


# --- bounded caches --------------------------------------------------------------------------------------------------


@pytest.fixture
def _few_plans() -> Iterator[None]:
    plans = default_engine().plans
    before = plans.capacity
    plans.capacity = 8
    yield
    plans.capacity = before


@pytest.mark.usefixtures("_few_plans")
def test_shapes_that_vary_with_every_call_do_not_leak_plans() -> None:
    with folding(1):
        x = us.tensor(np.ones(2))
        for size in range(2, 42):
            y = us.concat([x, x[:1]])
            for _ in range(2):
                y = us.sin(y) * 0.5 + us.mean(y)
                float(y[0])
            x = y
            assert x.shape == (size + 1,)
        assert us.engine_stats().plans <= 8
        flush()
        leaf = us.tensor(np.ones(2))
        y = leaf
        for _ in range(10):
            y = us.sin(us.concat([y, y[:1]])) + 0.1
            float(y[0])
        loss = us.sum(y)
        close(loss.grad(leaf), by_tape(loss, leaf))
        assert us.engine_stats().plans <= 8


def test_sites_are_bounded_however_many_ways_a_line_is_reached() -> None:
    def chain_of(length: int) -> us.Tensor:
        y = us.tensor(X)
        for _ in range(length):
            y = us.sin(y)
        return y + 1.0

    for length in range(1, 60):
        for _ in range(2):
            chain_of(length).eval()
    from unspool._engine.folding.matching import MOST_BRANCHES

    assert us.engine_stats().sites <= 2 * MOST_BRANCHES


def test_clearing_makes_the_engine_forget_and_nothing_else() -> None:
    with folding(1):
        _, x, loss = loop_with_residuals()
        value = loss.eval()
        us.clear_caches()
        stats = us.engine_stats()
        assert stats.plans == stats.sites == stats.evaluations == stats.plan_hits == 0
        np.testing.assert_array_equal(loss.eval(), value)
        close(loss.grad(x), by_tape(loss, x), 1e-11)
