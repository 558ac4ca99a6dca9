"""Loops that nobody read: folded when they are evaluated or differentiated, and then like those that were read."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unspool as us
from tests.closeness import close
from unspool import errors
from unspool._engine.default import default_engine
from unspool._fragments.call import Projection, live_calls
from unspool._fragments.repeats import find_repeats
from unspool._graph import ancestors, live_node_count
from unspool._statistics import STATISTICS

SIZE = 8


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_engine(), "smallest_loop", 600)


def logistic(steps: int) -> tuple[us.Tensor, us.Tensor]:
    x = us.tensor(np.linspace(0.1, 0.9, SIZE))
    y = x
    for _ in range(steps):
        y = y + 1e-5 * y * y
    return x, y


def logistic_numpy(steps: int) -> list[np.ndarray]:
    states = [np.linspace(0.1, 0.9, SIZE)]
    for _ in range(steps):
        y = states[-1]
        states.append(y + 1e-5 * y * y)
    return states


def is_folded(tensor: us.Tensor) -> bool:
    """Whether the loop that a tensor is the end of is calls; what is left over after the last repetition is not."""
    nodes: dict[int, Any] = {tensor.id: tensor}
    for _ in range(60):
        if any(type(node) is Projection for node in nodes.values()):
            return True
        nodes = {operand.id: operand for node in nodes.values() for operand in node.inputs}
    return False


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_loop_gives_what_numpy_gives_and_is_calls_of_one_plan() -> None:
    x, y = logistic(500)
    before = STATISTICS.calls
    np.testing.assert_array_equal(y.eval(), logistic_numpy(500)[-1])
    assert is_folded(y)
    made = STATISTICS.calls - before
    steps = [call for call in live_calls() if call.id > x.id]
    assert len(steps) == made
    # Short steps are taken several at a time, as many in every call.
    (plan,) = {call.plan for call in steps}
    assert made * len(plan.fragment.body) > 0.95 * 3 * 500


def test_a_program_that_runs_again_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Any] = []

    def counting(wiring: Any, **options: Any) -> Any:
        searched.append(wiring)
        return find_repeats(wiring, **options)

    monkeypatch.setattr("unspool._engine.folding.unread.find_repeats", counting)
    found = []
    for steps in (401, 401, 402):
        x, y = logistic(steps)
        found.append(us.sum(y).grad(x).eval())
        assert is_folded(y)
    assert len(searched) == 2
    np.testing.assert_array_equal(found[0], found[1])
    states = np.array(logistic_numpy(402))
    close(found[2], np.prod(1.0 + 2e-5 * states[:-1], axis=0), 1e-12)


def test_the_number_of_fragments_does_not_depend_on_the_number_of_steps() -> None:
    made = []
    for steps in (400, 400, 4000):
        before = STATISTICS.fragments
        x, y = logistic(steps)
        us.sum(y).grad(x).eval()
        made.append(STATISTICS.fragments - before)
    assert made[1] == made[2] == 0


@pytest.mark.parametrize("value_first", [False, True])
def test_the_gradient_of_a_loop_gives_what_a_numpy_adjoint_gives(value_first: bool) -> None:
    x, y = logistic(500)
    loss = us.sum(y)
    if value_first:
        loss.eval()
    gradient = loss.grad(x)
    assert is_folded(y)
    cotangent = np.ones(SIZE)
    for state in reversed(logistic_numpy(500)[:-1]):
        cotangent = cotangent * (1.0 + 2e-5 * state)
    close(gradient.eval(), cotangent, 1e-12)


def test_forward_mode_and_second_order_go_through_the_calls() -> None:
    def final(w: us.Tensor) -> us.Tensor:
        y = w
        for _ in range(400):
            y = 0.999 * y + 1e-3 * us.sin(y)
        return us.sum(y)

    def final_numpy(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, first, second = w, np.ones_like(w), np.zeros_like(w)
        for _ in range(400):
            slope, bend = 0.999 + 1e-3 * np.cos(y), -1e-3 * np.sin(y)
            y, first, second = 0.999 * y + 1e-3 * np.sin(y), slope * first, bend * first**2 + slope * second
        return first, second

    w, v = np.linspace(-1.0, 1.0, SIZE), np.linspace(1.0, 2.0, SIZE)
    first, second = final_numpy(w)
    close(us.jvp(final, (w,), (v,))[1].eval(), np.sum(first * v), 1e-12)
    close(us.hvp(final, (w,), (v,)).eval(), second * v, 1e-12)


def test_data_of_each_step_goes_to_its_step() -> None:
    data = np.random.default_rng(1).normal(size=(300, 3))
    y, expected = us.tensor(np.zeros(3)), np.zeros(3)
    for row in data:
        y = us.tanh(y * us.tensor(row) + row)
        expected = np.tanh(expected * row + row)
    np.testing.assert_array_equal(y.eval(), expected)
    assert is_folded(y)


def test_operands_that_coincide_now_and_then_are_not_one_input() -> None:
    a, b = us.tensor([0.3]), us.tensor([0.7])
    y, expected = us.tensor([0.5]), np.array([0.5])
    for step in range(300):
        left, right = (a, a) if step % 3 else (a, b)
        y = us.sin(y * left) + us.cos(right * y)
        expected = np.sin(expected * left.value) + np.cos(right.value * expected)
    np.testing.assert_array_equal(y.eval(), expected)
    assert is_folded(y)


def test_rows_that_steps_read_again_get_back_what_all_of_them_send() -> None:
    # Columns of a table by an index that comes back: each column is one node, which many steps read.
    rng = np.random.default_rng(3)
    table, picks = rng.normal(size=(3, 5)), rng.integers(0, 5, 400)
    t, x = us.tensor(table), us.tensor(np.zeros(3))
    y = x
    for pick in picks.tolist():
        y = 0.9 * us.tanh(y) + t[:, pick]
    gradient = us.sum(y).grad(t).eval()
    states, value = [], np.zeros(3)
    for pick in picks:
        states.append(value)
        value = 0.9 * np.tanh(value) + table[:, pick]
    expected, cotangent = np.zeros_like(table), np.ones(3)
    for pick, state in zip(picks[::-1], states[::-1], strict=True):
        expected[:, pick] += cotangent
        cotangent = cotangent * 0.9 * (1 - np.tanh(state) ** 2)
    close(gradient, expected, 1e-12)
    assert is_folded(y)
    assert STATISTICS.chains > 0


def test_a_row_that_is_read_again_on_a_way_that_ends() -> None:
    # What is read of the table reaches the loss through the first of two states only, and that not from every step.
    rng = np.random.default_rng(4)
    table, picks = rng.normal(size=(3, 4)), rng.integers(0, 4, 300)
    t, x, y = us.tensor(table), us.tensor(np.zeros(3)), us.tensor(np.ones(3))
    for k, pick in enumerate(picks.tolist()):
        y = us.tanh(0.5 * y) + t[:, pick]
        x = us.sin(x) * 0.9 + 0.1
        if k == 150:
            early = y
    gradient = us.sum(early * x).grad(t).eval()

    def loss(array: np.ndarray) -> float:
        a, b = np.zeros(3), np.ones(3)
        for k, pick in enumerate(picks):
            b = np.tanh(0.5 * b) + array[:, pick]
            a = np.sin(a) * 0.9 + 0.1
            if k == 150:
                kept = b
        return float(np.sum(kept * a))

    direction = rng.normal(size=table.shape)
    slope = (loss(table + 1e-6 * direction) - loss(table - 1e-6 * direction)) / 2e-6
    close(np.sum(gradient * direction), slope, 1e-7)


def test_steps_that_read_something_of_another_size_stay_nodes() -> None:
    wide, narrow, single = us.tensor(np.full(3, 0.2)), us.tensor([0.2]), us.tensor(np.full(3, 0.25, np.float32))
    y, expected = us.tensor(np.ones(3)), np.ones(3)
    for step in range(400):
        term = narrow if step == 100 else single if step == 200 else wide
        y = us.tanh(y * 0.5 + term) * 0.9
        expected = np.tanh(expected * 0.5 + term.value) * 0.9
    np.testing.assert_array_equal(y.eval(), expected)


def test_factorisations_keep_what_their_derivatives_need() -> None:
    x = us.tensor(np.random.default_rng(2).normal(size=(3, 3)))
    m = x
    for _ in range(120):
        u, s, vh = us.linalg.svd(m)
        m = u @ (us.reshape(s, (3, 1)) * vh) * 0.5 + 0.1 * x
    del u, s, vh
    gradient = us.sum(m * m).grad(x).eval()
    # Rebuilding a matrix from its factors is the identity, so m is a geometric series times x.
    scale = 0.5**120 + 0.1 * sum(0.5**k for k in range(120))
    close(gradient, 2.0 * scale**2 * x.value, 1e-8)


def test_numbers_that_change_and_what_is_made_of_them_alone() -> None:
    y, expected = us.tensor(np.ones(3)), np.ones(3)
    for step in range(300):
        rate = us.sqrt(us.constant(0.1 / (step + 1)))
        y = y - rate * us.sin(y)
        expected = expected - np.sqrt(0.1 / (step + 1)) * np.sin(expected)
    np.testing.assert_array_equal(y.eval(), expected)
    again = us.sqrt(us.constant(0.1 / 7))
    assert type(again) is not Projection
    assert again.eval() == np.sqrt(0.1 / 7)


# --- what is held ----------------------------------------------------------------------------------------------------


def test_handles_held_anywhere_keep_their_values() -> None:
    states = [us.tensor(np.linspace(0.1, 0.9, SIZE))]
    for _ in range(300):
        states.append(states[-1] + 1e-5 * states[-1] * states[-1])
    held = {step: states[step] for step in (1, 2, 77, 150, 299)}
    last = states[-1]
    del states
    last.eval()
    for step, state in held.items():
        assert state.value is not None
        np.testing.assert_array_equal(state.value, logistic_numpy(300)[step])


def test_a_handle_on_every_step_keeps_every_step_and_its_cotangent() -> None:
    states = [us.tensor(np.linspace(0.1, 0.9, SIZE))]
    for _ in range(300):
        states.append(states[-1] + 1e-5 * states[-1] * states[-1])
    loss = us.sum(states[-1])
    found = us.eval(us.cotangents(loss, states))
    expected = logistic_numpy(300)
    cotangent = np.ones(SIZE)
    for step in reversed(range(301)):
        np.testing.assert_array_equal(states[step].eval(), expected[step])
        close(found[step], cotangent, 1e-12)
        cotangent = cotangent * (1.0 + 2e-5 * expected[step - 1])


def test_a_consumer_outside_keeps_what_it_reads() -> None:
    _, y = logistic(300)
    inner = y.inputs[0].inputs[0]
    waiting = us.exp(inner)
    del inner
    y.eval()
    assert waiting.value is None
    np.testing.assert_array_equal(waiting.eval(), np.exp(logistic_numpy(298)[-1]))


def test_nothing_is_left_behind() -> None:
    logistic(300)[1].eval()
    gc.collect()
    gc.disable()
    try:
        nodes = live_node_count()
        x, y = logistic(300)
        gradient = us.sum(y).grad(x)
        alive = weakref.ref(gradient.eval())
        del x, y, gradient
        assert live_node_count() <= nodes + 1  # a constant may have come to stay
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("share", [2, 6])
def test_a_loop_that_reads_what_was_evicted_is_found_as_it_is_without_a_budget(share: int) -> None:
    def run() -> Any:
        # What is read is not the state, which waits until the end and reads a value of each step.
        rng = np.random.default_rng(0)
        phase, state, total = us.tensor(rng.normal(size=400)), us.tensor(rng.normal(size=400)), us.tensor(0.0)
        for k in range(120):
            scale = 1.0 + 0.1 * us.cos(phase + k)
            total = total + us.sum(us.log(scale))
            state = scale * state + 0.1 * us.tanh(phase * state)
            state = state / (1.0 + 0.01 * us.mean(state * state))
            float(total)
        return (us.sum(state * state) + total).grad(phase).eval()

    with us.memory("1GB") as memory:
        expected = run()
    budget = memory.report().peak // share
    with us.memory(budget) as memory:
        found = run()
    assert memory.report().peak <= budget
    np.testing.assert_array_equal(found, expected)


def test_what_does_not_repeat_is_left_alone() -> None:
    y = us.tensor([1.0])
    rng = np.random.default_rng(0)
    for pick in rng.integers(0, 5, 700).tolist():
        y = [us.sin, us.cos, us.tanh, us.exp, us.abs][pick](y) * 0.5
    y.eval()
    assert not is_folded(y)


def test_a_loop_that_is_gone_on_with_after_a_gradient() -> None:
    x, y = logistic(400)
    first = us.sum(y).grad(x)
    for _ in range(400):
        y = y + 1e-5 * y * y
    second = us.sum(y).grad(x)
    states = np.array(logistic_numpy(800))
    close(second.eval(), np.prod(1.0 + 2e-5 * states[:-1], axis=0), 1e-12)
    close(first.eval(), np.prod(1.0 + 2e-5 * states[:400], axis=0), 1e-12)


# --- failures --------------------------------------------------------------------------------------------------------


def fails_at(name: str, step: int) -> Callable[[us.Tensor], us.Tensor]:
    def kernel(x: np.ndarray) -> np.ndarray:
        if x[0] >= step:
            raise RuntimeError("too far")
        return x + 1.0

    return us.op(name, kernel=kernel)


def test_an_error_names_the_node_and_the_line() -> None:
    count = fails_at("counts_for_the_unread_test", 250)
    y, held = us.tensor([0.0]), None
    for step in range(400):
        y = count(us.abs(y) * 1.0 + 0.0)  # the line to blame
        if step == 100:
            held = y
    with pytest.raises(errors.KernelError, match="too far.*counts_for_the_unread_test.*the line to blame") as raised:
        y.eval()
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert held is not None
    np.testing.assert_array_equal(held.eval(), [101.0])
    assert y.value is None


def test_a_placeholder_without_a_value_is_reported() -> None:
    p = us.placeholder((3,), name="p")
    y = us.tensor(np.ones(3))
    for _ in range(300):
        y = us.tanh(y * p + y)
    with pytest.raises(errors.UnboundPlaceholderError, match="'p'"):
        y.eval()


def test_symbolic_sizes_without_numbers_are_reported() -> None:
    n = us.dims("n")
    y = us.tensor(np.ones(3))
    for _ in range(300):
        y = us.tanh(y + us.sum(us.zeros((n,))))
    with pytest.raises(errors.UnboundSizeError, match="the size n"):
        y.eval()


def test_a_loop_on_symbolic_sizes_is_differentiated_before_they_are_known() -> None:
    n = us.dims("n")
    p = us.placeholder((n,), name="p")
    y = p
    for _ in range(300):
        y = us.tanh(y + 0.1 * y)
    gradient = us.sum(y).grad(p)
    value, slope = np.array([0.3, -0.2]), np.ones(2)
    for _ in range(300):
        slope = slope * 1.1 * (1 - np.tanh(1.1 * value) ** 2)
        value = np.tanh(1.1 * value)
    close(gradient.eval({p: np.array([0.3, -0.2])}), slope, 1e-10)


# --- threads and programs --------------------------------------------------------------------------------------------


def test_threads_that_run_one_graph_agree() -> None:
    x, y = logistic(1000)
    gradient = us.sum(y).grad(x)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: gradient.eval(), range(4)))
    states = np.array(logistic_numpy(1000))
    for value in found:
        close(value, np.prod(1.0 + 2e-5 * states[:-1], axis=0), 1e-12)


def test_threads_that_differentiate_one_graph_agree() -> None:
    x, y = logistic(1000)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: us.sum(y).grad(x).eval(), range(6)))
    states = np.array(logistic_numpy(1000))
    for value in found:
        close(value, np.prod(1.0 + 2e-5 * states[:-1], axis=0), 1e-12)


_KINDS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 12)), min_size=3, max_size=10)
_NUMBERS = st.sets(st.integers(0, 600), max_size=6)


@given(body=_KINDS, count=st.integers(60, 90), odd=_NUMBERS, held=_NUMBERS, differentiate=st.booleans())
def test_random_loops_give_what_numpy_gives(
    body: list[tuple[int, int, int]], count: int, odd: set[int], held: set[int], differentiate: bool
) -> None:
    default_engine().smallest_loop = 150
    values: list[Any] = [np.full(2, 0.1 * i) for i in range(12)]
    made: list[Any] = [us.tensor(value) for value in values]
    start, handles = made[0], []
    for step in range(count * len(body)):
        kind, near, far = body[step % len(body)]
        for library, numbers in ((us, made), (np, values)):
            left, right = numbers[-near], numbers[-far]
            if kind == 0 or step in odd:
                numbers.append(library.sin(left))
            elif kind == 1:
                numbers.append(library.tanh(right))
            else:
                numbers.append([left + right, left - right, left * 0.5][kind - 2])
            del numbers[0]
        if step in held:
            handles.append((made[-1], values[-1]))
    target = made[-1] * 2.0
    del made, left, right, numbers
    if differentiate:
        us.sum(target).grad(start, unconnected="zeros")
    np.testing.assert_array_equal(target.eval(), values[-1] * 2.0)
    needed = {node.id for node in ancestors([target])}
    for handle, value in handles:
        if handle.id in needed:
            assert handle.value is not None
        np.testing.assert_array_equal(handle.eval(), value)
