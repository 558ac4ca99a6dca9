"""Repetition: which sections of a piece are found, that they are exact, and that nothing else is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import unspool as us
from unspool._engine.default import default_engine
from unspool._fragments.repeats import FEWEST, Repeat, find_repeats, wiring_of
from unspool._graph import Node, ancestors


@pytest.fixture(autouse=True)
def _nothing_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Derivatives of loops that were not read are long graphs only if the loops stay as they were recorded.
    monkeypatch.setattr(default_engine(), "smallest_loop", 1 << 62)


def pending(*tensors: us.Tensor) -> list[Node]:
    return [node for node in ancestors(tensors) if node.value is None]


def shape_of_repetition(order: Sequence[Node], start: int, period: int) -> list[object]:
    """What a repetition is, from the nodes alone: operands by offset inside it, ``None`` outside it."""
    offset = {node.id: i for i, node in enumerate(order[start : start + period])}
    return [
        (node.op, node.shape, node.dtype, dict(node.attributes), [offset.get(operand.id) for operand in node.inputs])
        for node in order[start : start + period]
    ]


def found_in(order: Sequence[Node], longest: int = 2000) -> list[Repeat]:
    """The repeated sections of a piece, after checking that they are what they claim to be."""
    repeats = find_repeats(wiring_of(order), longest)
    end = 0
    for repeat in repeats:
        assert repeat.start >= end
        assert repeat.count >= FEWEST
        assert repeat.period <= longest
        body = shape_of_repetition(order, repeat.start, repeat.period)
        for start in range(repeat.start, repeat.stop, repeat.period):
            assert shape_of_repetition(order, start, repeat.period) == body
        end = repeat.stop
    assert end <= len(order)
    return repeats


def covered(order: Sequence[Node], repeats: Sequence[Repeat]) -> float:
    return sum(repeat.stop - repeat.start for repeat in repeats) / len(order)


def logistic(steps: int) -> tuple[us.Tensor, us.Tensor]:
    x = us.tensor(np.linspace(0.1, 0.9, 8))
    y = x
    for _ in range(steps):
        y = y + 1e-6 * y * y
    return x, y


def power_iteration(steps: int) -> tuple[us.Tensor, us.Tensor]:
    A = us.tensor(np.eye(4) + 0.1)
    x = us.tensor(np.ones(4))
    for _ in range(steps):
        y = A @ x
        x = y / us.linalg.norm(y)
    return A, x @ A @ x


def sweeps(count: int, sites: int) -> tuple[us.Tensor, us.Tensor]:
    x = us.tensor(np.linspace(0.1, 0.9, 8))
    weights = [us.tensor(np.full(8, 0.01 * site)) for site in range(sites)]
    one = us.tensor(1.0)  # a constant that lives already would be older than x, and stand in another place
    y = x
    for _ in range(count):
        for weight in weights:
            y = us.tanh(y * weight + y)
        y = y / us.sqrt(us.sum(y * y) + one)
    return x, us.sum(y)


# --- one loop --------------------------------------------------------------------------------------------------------


def test_a_loop_is_found_from_its_second_step_on() -> None:
    order = pending(logistic(400)[1])
    (repeat,) = found_in(order)
    assert repeat.start <= 6
    assert repeat.period % 3 == 0
    assert len(order) - repeat.stop < repeat.period


def test_the_body_does_not_depend_on_the_number_of_steps() -> None:
    bodies = []
    for steps in (200, 2000):
        order = pending(logistic(steps)[1])
        (repeat,) = found_in(order)
        bodies.append(shape_of_repetition(order, repeat.start, repeat.period))
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("steps", [300, 3000])
def test_the_gradient_of_a_loop_is_two_loops(steps: int) -> None:
    x, y = logistic(steps)
    order = pending(us.sum(y).grad(x))
    forward, backward = found_in(order)
    assert (forward.period % 3, backward.period % 5) == (0, 0)
    assert covered(order, [forward, backward]) > (0.9 if steps == 300 else 0.99)


def test_the_gradient_of_power_iteration_is_two_loops() -> None:
    A, loss = power_iteration(500)
    order = pending(loss.grad(A))
    repeats = found_in(order)
    assert len(repeats) == 2
    assert covered(order, repeats) > 0.97


def test_the_second_derivative_of_a_loop_repeats() -> None:
    x, y = logistic(300)
    order = pending(us.sum(us.sum(y).grad(x)).grad(x))
    assert covered(order, found_in(order)) > 0.9


def test_data_that_changes_with_every_step_is_no_obstacle() -> None:
    y = us.tensor(np.ones(3))
    for step in range(300):
        y = us.tanh(y * us.tensor(np.full(3, 1.0 / (step + 1.0))) + y)
    order = pending(y)
    assert covered(order, found_in(order)) > 0.9


def test_what_every_step_reads_from_before_the_loop_is_no_obstacle() -> None:
    x = us.tensor(np.linspace(0.0, 1.0, 3))
    scale, shift = us.exp(x), us.sin(us.exp(x))
    y = x
    for _ in range(300):
        y = us.tanh(y * scale + shift) * us.cos(y - shift)
    order = pending(y)
    assert covered(order, found_in(order)) > 0.9


def test_a_body_with_equal_parts_is_found_whole() -> None:
    def slope(y: us.Tensor) -> us.Tensor:
        return us.sin(y) * us.cos(y) - 0.1 * y * y * y

    y = us.tensor(np.linspace(0.0, 1.0, 3))
    for _ in range(100):
        k1 = slope(y)
        k2 = slope(y + 0.005 * k1)
        k3 = slope(y + 0.005 * k2)
        k4 = slope(y + 0.01 * k3)
        y = y + 0.01 / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    order = pending(y)
    (repeat,) = found_in(order)
    assert repeat.period in (41, 82)
    assert covered(order, [repeat]) > 0.95


def test_a_state_of_many_parts_is_carried() -> None:
    sites = [us.tensor(np.full(3, site / 10.0)) for site in range(10)]
    for _ in range(60):
        for j in range(10):
            sites[j] = us.sin(sites[j] + sites[(j + 1) % 10] * sites[j - 1])
    order = pending(*sites)
    assert covered(order, found_in(order)) > 0.9


def test_repetitions_are_cut_where_the_fewest_values_cross() -> None:
    y = us.tensor(np.ones(3))
    for _ in range(40):
        parts = [us.sin(y + 0.1 * j) for j in range(20)]
        y = parts[0]
        for part in parts[1:]:
            y = y * part
    order = pending(y)
    (repeat,) = found_in(order)
    body = {node.id for node in order[repeat.start : repeat.start + repeat.period]}
    after = order[repeat.start + repeat.period : repeat.start + 2 * repeat.period]
    assert len({operand.id for node in after for operand in node.inputs} & body) == 1


# --- several loops ---------------------------------------------------------------------------------------------------


def test_nested_loops_fold_at_the_outer_period() -> None:
    order = pending(sweeps(30, sites=20)[1])
    (repeat,) = found_in(order)
    assert repeat.period == 65
    assert repeat.count >= 28


def test_nested_loops_fold_at_the_inner_period_if_the_outer_body_is_too_long() -> None:
    order = pending(sweeps(6, sites=400)[1])
    assert max(found_in(order, longest=1300), key=lambda repeat: repeat.stop - repeat.start).period == 1205
    repeats = found_in(order, longest=1000)
    assert len(repeats) == 6
    assert all(repeat.period % 3 == 0 for repeat in repeats)
    assert covered(order, repeats) > 0.9


def test_the_gradient_of_nested_loops_folds_at_the_outer_period() -> None:
    x, loss = sweeps(30, sites=20)
    order = pending(loss.grad(x))
    forward, backward = found_in(order)
    assert (forward.period, backward.period) == (65, 132)


def test_loops_one_after_the_other_are_found_each() -> None:
    x = us.tensor(np.linspace(0.0, 1.0, 3))
    y = x
    for _ in range(200):
        y = us.tanh(y * 0.5 + 0.1) * y
    for _ in range(200):
        y = us.sin(us.cos(y) - y * y) + us.exp(-y) + x
    order = pending(y)
    first, second = found_in(order)
    assert (first.period % 4, second.period % 8) == (0, 0)
    assert covered(order, [first, second]) > 0.95


def test_a_step_that_differs_splits_a_loop() -> None:
    y = us.tensor(np.ones(3))
    for step in range(400):
        y = y + 1e-6 * y * y
        if step == 200:
            y = us.exp(us.sin(y))
    order = pending(y)
    before, after = found_in(order)
    assert before.stop <= 605
    assert after.start >= 603


# --- no repetition ---------------------------------------------------------------------------------------------------


def test_a_piece_without_repetition_has_no_sections() -> None:
    rng = np.random.default_rng(3)
    functions = [us.sin, us.cos, us.tanh, us.exp]
    made = [us.tensor(np.ones(2))]
    for _ in range(2000):
        kind = rng.integers(6)
        other = made[rng.integers(max(0, len(made) - 50), len(made))]
        made.append(functions[kind](made[-1]) if kind < 4 else (made[-1] + other if kind == 4 else made[-1] * other))
    assert found_in(pending(made[-1])) == []


@pytest.mark.parametrize("steps", [0, 1, 3, 30])
def test_short_pieces_have_no_sections(steps: int) -> None:
    assert found_in(pending(logistic(steps)[1])) == []


def test_sizes_that_change_with_every_step_do_not_repeat() -> None:
    y = us.tensor(np.ones(3))
    for _ in range(200):
        y = us.concat([us.sin(y), us.tensor([1.0])])
    assert found_in(pending(y)) == []


def test_parameters_are_part_of_what_repeats() -> None:
    y = us.tensor(np.ones((3, 3)))
    for step in range(300):
        y = us.sin(y) + us.sum(y, axis=step * step % 7 % 2, keepdims=True)
    # The squares modulo 7 repeat after seven steps of three nodes each.
    (repeat,) = found_in(pending(y))
    assert repeat.period % 21 == 0


# --- exactness -------------------------------------------------------------------------------------------------------

_STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=12)


def random_loop(body: list[tuple[int, int, int]], count: int, odd: set[int]) -> list[Node]:
    """Return the nodes of a loop whose steps read what was made up to nine nodes before, with some odd nodes."""
    made = [us.tensor(np.full(2, 0.1 * i)) for i in range(10)]
    for _ in range(count):
        for kind, near, far in body:
            left, right = made[-near], made[-far]
            made.append([us.sin(left), left + right, left * right, us.tanh(right), left - right][kind])
            if len(made) in odd:
                made.append(us.exp(made[-1]))
    return pending(*made[-10:])


@given(body=_STEPS, count=st.integers(20, 60), odd=st.sets(st.integers(0, 500), max_size=3))
def test_what_is_found_in_random_loops_is_exact(body: list[tuple[int, int, int]], count: int, odd: set[int]) -> None:
    found_in(random_loop(body, count, odd))


@settings(max_examples=30)
@given(body=_STEPS, nodes=st.integers(800, 1200))
def test_long_random_loops_are_found(body: list[tuple[int, int, int]], nodes: int) -> None:
    count = -(-nodes // len(body))
    order = random_loop(body, count, set())
    assume(len(order) == len(body) * count)  # interning and canonical forms take nodes out of some
    assert covered(order, found_in(order)) > 0.7
