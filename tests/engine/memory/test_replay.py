"""Computing within a budget: how often steps run, and that values come out right in whatever order they are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.zoo import KINDS
from bench.zoo.kind import answer
from tests.engine.budgets import (
    PLENTY,
    PROGRAMS,
    CountedOp,
    cases,
    gradient_only,
    least_budget,
    least_working,
    matrix,
    reference,
    same_bits,
    settle,
)
from unspool._engine.levels import Marks
from unspool._engine.memory.replay import Replay
from unspool._engine.memory.replayed_values import Memory, buffers_of, is_seen, is_view
from unspool._engine.references import count_references
from unspool._ops.elementwise.absence import MASK
from unspool.checkpoint.binomial import factor
from unspool.errors import BudgetError


@pytest.fixture(autouse=True)
def _settle() -> Iterator[None]:
    settle()
    yield
    settle()


STEPS = 120
UNIT = matrix(32, 0).nbytes


class Loop:
    """A loop over an op that counts its runs: one run is one evaluation of a step."""

    def __init__(self, name: str, look: Callable[[us.Tensor], Any], wrap: Callable[[Any], Any] = lambda f: f) -> None:
        self.sine = CountedOp(name)
        self._look = look
        self._step = wrap(lambda a, x: us.tanh(a @ self.sine.apply(x)) + 0.3 * x)

    def gradient(self, budget: int) -> Any:
        """Return the gradient under a budget; the counter starts at zero."""
        a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
        self.sine.runs = 0
        with us.memory(budget) as self.scope:
            for _ in range(STEPS):
                x = self._step(a, x)
                self._look(x)
            return us.sum(x * x).grad(a).eval()


def loops() -> dict[str, Loop]:
    return {
        "looked at": Loop("looked_at", lambda x: x.eval()),
        "not looked at": Loop("not_looked_at", lambda x: None),
        "traced": Loop("traced", lambda x: None, us.fragment),
        "traced and looked at": Loop("traced_looked_at", lambda x: x.eval(), us.fragment),
    }


EACH_LOOP = pytest.mark.parametrize("kind", loops())


@EACH_LOOP
def test_each_step_runs_once_when_everything_fits(kind: str) -> None:
    loop = loops()[kind]
    loop.gradient(PLENTY)
    loop.gradient(PLENTY)
    assert loop.sine.runs == STEPS


@EACH_LOOP
def test_a_budget_that_is_just_enough_rebuilds_nothing(kind: str) -> None:
    loop = loops()[kind]
    loop.gradient(PLENTY)
    loop.gradient(PLENTY)
    peak = loop.scope.report().peak
    assert peak > STEPS * UNIT
    loop.gradient(int(1.1 * peak))
    assert loop.sine.runs == STEPS


@EACH_LOOP
def test_evaluations_stay_near_the_binomial_optimum(kind: str) -> None:
    loop = loops()[kind]
    expected = loop.gradient(PLENTY)
    least = least_working(loop.gradient)
    for share in (1.5, 2, 4):
        budget = int(share * least)
        same_bits([loop.gradient(budget)], [expected])
        # What remains beside the least budget holds states; no schedule with one slot for each does better without
        # keeping values of steps, and those take room for more than one state each.
        slots = (budget - least) // UNIT + 2
        assert loop.sine.runs <= 1.15 * STEPS * factor(STEPS, slots)


@EACH_LOOP
def test_more_memory_never_costs_more_work(kind: str) -> None:
    loop = loops()[kind]
    loop.gradient(PLENTY)
    least = least_working(loop.gradient)
    runs = []
    for share in (1, 1.5, 2, 4, 100):
        loop.gradient(int(share * least))
        runs.append(loop.sine.runs)
    # The forward sweep does not know how many steps there are: a few percent either way.
    assert all(more <= 1.05 * less for less, more in pairwise(runs))
    assert runs[-1] == STEPS


def test_the_last_value_costs_nothing_and_an_early_one_its_way() -> None:
    sine = CountedOp("early")
    a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
    states = []
    with us.memory(20 * UNIT) as scope:
        for _ in range(STEPS):
            x = us.tanh(a @ sine.apply(x)) + 0.3 * x
            x.eval()
            states.append(x)
        assert scope.report().evictions > 0
        sine.runs = 0
        states[-1].eval()
        assert sine.runs == 0
        values = [state.eval() for state in states[::10]]
        assert sine.runs <= STEPS
        assert scope.report().peak <= 20 * UNIT
    expected = matrix(32, 1)
    for k in range(STEPS):
        expected = np.tanh(matrix(32, 0) @ np.sin(expected)) + 0.3 * expected
        if k % 10 == 0:
            np.testing.assert_allclose(values[k // 10], expected, rtol=1e-12)


def test_reading_an_early_state_after_the_gradient_keeps_to_any_budget() -> None:
    program = PROGRAMS["plain"]
    us.clear_caches()

    def values(budget: int) -> Any:
        with us.memory(budget):
            leaves = program.leaves()
            run = program.run(*leaves)
            us.eval(run.loss.grad(leaves))
            return [tensor.eval() for tensor in run.held]

    values(PLENTY)
    values(PLENTY)
    expected = values(PLENTY)
    least = least_working(values, 8 * UNIT)
    for share in (1, 2, 1.5, 1.2):
        same_bits(values(int(share * least)), expected)


@cases({}, slow=True)
def test_gradients_for_one_leaf_at_a_time_are_the_same(name: str) -> None:
    budget = 2 * least_budget(name)
    with us.memory(budget):
        leaves = PROGRAMS[name].leaves()
        loss = PROGRAMS[name].run(*leaves).loss
        found = [loss.grad(leaf).eval() for leaf in leaves]
    same_bits(found, reference(name).gradients)


@cases({})
def test_a_gradient_asked_for_outside_of_the_block_is_the_same(name: str) -> None:
    reference(name)
    leaves = PROGRAMS[name].leaves()
    with us.memory(least_budget(name)):
        loss = PROGRAMS[name].run(*leaves).loss
    same_bits(us.eval(loss.grad(leaves)), reference(name).gradients)


@cases({}, slow=True)
def test_a_loop_outside_and_a_gradient_inside_a_block_are_the_same(name: str) -> None:
    reference(name)
    leaves = PROGRAMS[name].leaves()
    loss = PROGRAMS[name].run(*leaves).loss
    loss.eval()

    def gradient(budget: int) -> Any:
        with us.memory(budget):
            return us.eval(loss.grad(leaves))

    same_bits(gradient(least_working(gradient)), reference(name).gradients)


def test_two_losses_of_one_loop() -> None:
    program = PROGRAMS["plain"]

    def gradients(budget: int) -> list[Any]:
        with us.memory(budget):
            a, x = program.leaves()
            final, middle = program.run(a, x).held
            one, other = us.sum(us.sin(final)), us.sum(us.cos(middle) * final)
            return us.eval([*one.grad([a, x]), *other.grad([a, x])])

    gradients(PLENTY)
    expected = gradients(PLENTY)
    least = least_working(gradients)
    for budget in (4 * least, least):
        same_bits(gradients(budget), expected)


def test_a_jacobian_reads_a_loop_several_times() -> None:
    def jacobian(budget: int) -> Any:
        with us.memory(budget):
            a = us.tensor(matrix(32, 0))

            def final(x: us.Tensor) -> us.Tensor:
                for _ in range(60):
                    x = us.tanh(a @ x) + 0.3 * us.sin(x)
                    x.eval()
                return x[:3]

            return us.jacrev(final)(us.tensor(matrix(32, 1)[:, 0])).eval()

    jacobian(PLENTY)
    expected = jacobian(PLENTY)
    same_bits([jacobian(least_working(jacobian))], [expected])


def test_a_third_derivative_along_a_loop() -> None:
    def third(budget: int) -> Any:
        with us.memory(budget):
            t = us.tensor(0.3)
            x = us.tensor(matrix(32, 1))
            for _ in range(10):
                x = us.sin(t * x) + us.cos(x)
                x.eval()
            slope = us.sum(x)
            for _ in range(3):
                slope = slope.grad(t)
            return slope.eval()

    third(PLENTY)
    expected = third(PLENTY)
    least = least_working(third)
    for budget in (3 * least, least):
        same_bits([third(budget)], [expected])


def test_loops_one_after_the_other_in_one_block() -> None:
    names = ("plain", "summed", "turning")
    for name in names:
        reference(name)
    budget = 2 * max(least_budget(name, gradient_only) for name in names)
    with us.memory(budget) as scope:
        for _ in range(2):
            for name in names:
                same_bits(gradient_only(PROGRAMS[name]).gradients, reference(name).gradients)
    assert scope.report().peak <= budget


def test_nested_loops() -> None:
    def gradient(budget: int) -> Any:
        with us.memory(budget):
            a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
            for _ in range(8):
                y = x
                for _ in range(8):
                    y = us.tanh(a @ y) + 0.1 * y
                    float(us.sum(y))
                x = x + 0.5 * y
                x.eval()
            return us.eval(us.sum(x * x).grad([a]))

    gradient(PLENTY)
    expected = gradient(PLENTY)
    least = least_working(gradient)
    for budget in (4 * least, 2 * least, least):
        same_bits(gradient(budget), expected)


def test_an_error_in_a_kernel_that_runs_again_is_the_users_and_the_engine_goes_on() -> None:
    is_broken = False

    def kernel(x: Any) -> Any:
        if is_broken:
            raise FloatingPointError("no more")
        return np.sin(x)

    sine = CountedOp("fails_later", kernel)
    a = us.tensor(matrix(32, 0))
    with us.memory(24 * UNIT):
        x = us.tensor(matrix(32, 1))
        for _ in range(STEPS):
            x = us.tanh(a @ sine.apply(x)) + 0.3 * x
            x.eval()
        slope = us.sum(x * x).grad(a)
        is_broken = True
        with pytest.raises(us.errors.KernelError, match="no more"):
            slope.eval()
        is_broken = False
        found = slope.eval()
    a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
    for _ in range(STEPS):
        x = us.tanh(a @ us.sin(x)) + 0.3 * x
    np.testing.assert_allclose(found, us.sum(x * x).grad(a).eval(), rtol=1e-10)


# --- half of the memory ----------------------------------------------------------------------------------------------


def _with_gradients_inside() -> list[Any]:
    """Take a gradient in every step, by momentum, and differentiate the loop in the rate and the start."""
    data, rate, start = us.tensor(matrix(16, 0)), us.tensor(0.1), us.tensor(matrix(16, 1))
    w, speed = start, us.zeros(start.shape)
    for _ in range(120):
        loss, slope = us.value_and_grad(lambda w: us.mean(us.tanh(data @ w) ** 2))(w)
        speed = 0.9 * speed + slope
        w = w - rate * speed
        if float(loss) < 0.0:
            break
    loss = us.sum(w * w)
    return us.eval([loss, *loss.grad([rate, start])])


def _rows_of_a_variable() -> list[Any]:
    """Read a row in every step of a table that is differentiated: its gradient is as large as the table."""
    table, w = us.tensor(np.random.default_rng(0).normal(size=(1000, 8))), us.tensor(np.ones(8))
    start = w
    for k in range(1000):
        error = us.sum(table[k] * w) - 1.0
        w = w - 0.01 * error * table[k]
        if float(error) > 1e9:
            break
    loss = us.sum(w * w)
    return us.eval([loss, *loss.grad([table, start])])


@pytest.mark.parametrize("program", [_with_gradients_inside, _rows_of_a_variable])
def test_half_of_the_memory_is_enough(program: Callable[[], list[Any]]) -> None:
    program()
    with us.memory(PLENTY) as scope:
        expected = program()
    half = scope.report().peak // 2
    with us.memory(half) as scope:
        found = program()
    same_bits(found, expected)
    assert scope.report().peak <= half
    assert scope.report().factor <= 1.6


# --- levels ----------------------------------------------------------------------------------------------------------


def test_levels_of_gradients_inside_of_a_loop_are_one_and_those_of_the_sweep_back_another() -> None:
    steps = dict.fromkeys(range(0, 400, 2), 1)
    inner = [(start, start + 5) for start in range(5, 200, 10)]
    marks = Marks([*range(5, 200, 10), *range(200, 400, 10)], [*inner, (200, 400)])
    assert marks.joined(steps).begun == [200]


def test_a_loop_and_its_gradient_stay_two_levels() -> None:
    marks = Marks([100, 200], [(100, 200), (200, 300)])
    assert marks.joined({10: 100, 110: 100, 210: 100}).begun == [100, 200]


def test_without_steps_there_is_nothing_to_join() -> None:
    assert Marks([], []).joined({}).begun == []


# --- memory that is shared -------------------------------------------------------------------------------------------


def test_a_view_takes_the_memory_of_what_it_looks_at_and_no_more() -> None:
    x = us.tensor(np.ones((3, 4)))
    y = us.sin(x)
    transposed, spread = us.transpose(y), us.broadcast_to(y, (5, 3, 4))
    assert buffers_of(transposed) == buffers_of(spread) == buffers_of(y) == (((y.id, 0), 96),)
    assert buffers_of(us.transpose(x)) == ()  # a leaf is the user's


def test_memory_is_free_when_the_last_value_in_it_has_gone() -> None:
    memory = Memory()
    buffer = (((1, 0), 96),)
    memory.take(buffer)
    memory.take(buffer)
    memory.give(buffer)
    assert memory.nbytes == 96
    memory.give(buffer)
    assert memory.nbytes == 0


@pytest.mark.parametrize("share", [6, 12])
def test_nothing_is_held_once_a_replay_is_over(share: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps give several values, of which some are there still when one of them is computed again."""
    kind = KINDS["ode_events"]
    data = kind.setup(100, **(kind.large or {}))
    left: list[int] = []

    def run(work: Replay, original: Any = Replay.run) -> None:
        original(work)
        left.append(work.values.nbytes)

    with us.memory(PLENTY) as scope:
        alone = answer(kind, 100, data)
    monkeypatch.setattr(Replay, "run", run)
    with us.memory(scope.report().peak // share):
        same_bits(answer(kind, 100, data), alone)
    assert left
    assert not any(left)


# --- what is written onto what nobody else reads ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 5), (9000,), (), (0, 4)])
def test_a_mask_that_is_written_onto_its_operand_is_the_mask(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, keep = np.asarray(rng.normal(size=shape)), np.asarray(rng.random(shape) < 0.5)
    for kept in (keep, np.asarray(True), np.asarray(False)):
        expected = np.where(kept, x, 0.0)
        found = MASK.onto(x.copy(), kept)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("look", ["entry", "row", "slice", "flip", "reshape", "real"])
def test_what_is_written_onto_is_no_memory_that_another_value_looks_at(look: str) -> None:
    """The entry of a cotangent is read, then the cotangent is masked, then the entry is used."""
    views: dict[str, Callable[[us.Tensor], us.Tensor]] = {
        "entry": lambda x: x[3],
        "row": lambda x: x.reshape((8, 8))[3],
        "slice": lambda x: x[2:60],
        "flip": lambda x: us.flip(x, 0),
        "reshape": lambda x: x.reshape((8, 8)).T.reshape((64,)),
        "real": lambda x: us.real(x),
    }
    weights = matrix(64, 0) * 0.05 + 4 * np.eye(64)

    def gradients() -> list[Any]:
        a, x = us.tensor(weights), us.zeros(64)
        for i in range(5):
            x = x.at[i].set(x[i] + us.sum(views[look](1.0 - a[i] * x)) / a[i, i])
            float(x[i])
        return [us.sum(x * x).grad(a).eval()]

    def within(budget: int) -> int:
        with us.memory(budget) as scope:
            same_bits(gradients(), free)
        return scope.report().peak

    free = gradients()
    most = within(PLENTY)
    least = least_working(within, most // 2)
    for budget in np.linspace(least, most, 60).astype(int):
        # What is not known beforehand may be asked for later; what comes out is the gradient.
        with suppress(BudgetError):
            assert within(int(budget)) <= budget


def test_memory_is_seen_by_who_has_the_array_or_a_view_of_it() -> None:
    if count_references is not sys.getrefcount:
        pytest.skip("references are not counted here")
    for shape in ((9,), (3, 3)):
        kept = [np.zeros(shape)]
        kept = [kept[0].reshape(9)] if len(shape) > 1 else kept
        arguments = [*kept]
        found = [is_seen(arguments[0])]
        view = arguments[0][2:]
        found += [is_seen(arguments[0])]
        del view
        found += [is_seen(arguments[0])]
        other = arguments[0]
        found += [is_seen(arguments[0])]
        del other
        assert found == [False, True, False, True]


def test_a_reshape_is_a_view_where_its_operand_surely_lies_in_order() -> None:
    x = us.tensor(matrix(4, 0))
    flat = us.sin(us.reshape(us.sin(x), (16,)))
    again = us.reshape(flat, (2, 8))
    assert is_view(again)
    assert buffers_of(again) == buffers_of(flat) == (((flat.id, 0), 128),)
    turned = us.transpose(us.sin(x))
    assert not is_view(us.reshape(turned, (2, 8)))


def test_a_step_within_a_budget_takes_few_calls_of_python() -> None:
    kind = KINDS["same"]

    def calls(steps: int) -> int:
        data = kind.setup(steps, **(kind.large or {}))
        with us.memory(PLENTY) as scope:
            answer(kind, steps, data)
        budget = scope.report().peak // 2
        with us.memory(budget):
            answer(kind, steps, data)
        seen = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal seen
            seen += event == "call"

        with us.memory(budget):
            sys.setprofile(count)
            try:
                answer(kind, steps, data)
            finally:
                sys.setprofile(None)
        return seen

    few, many = 200, 500
    assert calls(many) - calls(few) <= 20 * (many - few)
