"""Running by repetition: the same outcome as node by node, with plans whose number does not depend on the steps."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unspool as us
from unspool import errors
from unspool._engine.interpreter import collect, run
from unspool._engine.plan import make_plan
from unspool._engine.repeated import run_repeated
from unspool._fragments.fragment import Fragment
from unspool._graph import ancestors, live_node_count


class Plans:
    """A plan factory that runs fragments op by op and remembers what it was asked for."""

    def __init__(self, failing: bool = False) -> None:
        self.made: list[tuple[Fragment, Any]] = []
        self.runs = 0
        self.failing = failing

    def __call__(self, fragment: Fragment, shapes: tuple[Any, ...]) -> Any:
        self.made.append((fragment, shapes))

        def run_body(*arrays: Any) -> tuple[Any, ...]:
            self.runs += 1
            if self.failing:
                raise MemoryError("no room for buffers")
            assert len(arrays) == len(shapes)
            for array, shape, dtype in zip(arrays, shapes, fragment.dtypes, strict=True):
                if not isinstance(array, tuple):
                    assert (array.shape, array.dtype) == (shape, dtype)
            slots = list(arrays)
            for instruction in fragment.body:
                slots.append(instruction.op.kernel(*[slots[i] for i in instruction.operands], **instruction.params))
            return tuple(slots[i] for i in fragment.outputs)

        return SimpleNamespace(run=run_body)


def compute(targets: Sequence[us.Tensor], plans: Callable[..., Any] | None = None) -> bool:
    """Give targets their values by repetition, or node by node if they do not repeat; tell which."""
    work = collect(targets)
    wanted = {target.id for target in targets}
    if run_repeated(work.order, work.uses, wanted, plans or Plans()):
        return True
    run(work, wanted, None)
    return False


def logistic(steps: int, size: int = 8) -> tuple[us.Tensor, us.Tensor]:
    x = us.tensor(np.linspace(0.1, 0.9, size))
    y = x
    for _ in range(steps):
        y = y + 1e-5 * y * y
    return x, y


def logistic_numpy(steps: int) -> list[np.ndarray]:
    states = [np.linspace(0.1, 0.9, 8)]
    for _ in range(steps):
        y = states[-1]
        states.append(y + 1e-5 * y * y)
    return states


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_loop_gives_what_numpy_gives() -> None:
    _, y = logistic(500)
    plans = Plans()
    assert compute([y], plans)
    np.testing.assert_array_equal(y.value, logistic_numpy(500)[-1])
    assert plans.runs > 20


def test_the_number_of_plans_does_not_depend_on_the_number_of_steps() -> None:
    made = []
    for steps in (300, 3000):
        plans = Plans()
        x, y = logistic(steps)
        assert compute([us.sum(y).grad(x)], plans)
        made.append(plans.made)
    assert made[0] == made[1]
    assert len(made[0]) == 2


@pytest.mark.parametrize("plans", [Plans(), make_plan])
def test_the_gradient_of_a_loop_gives_what_a_numpy_adjoint_gives(plans: Callable[..., Any]) -> None:
    x, y = logistic(500)
    gradient = us.sum(y).grad(x)
    assert compute([gradient, y], plans)
    states = logistic_numpy(500)
    cotangent = np.ones(8)
    for state in reversed(states[:-1]):
        cotangent = cotangent * (1.0 + 2e-5 * state)
    np.testing.assert_allclose(gradient.value, cotangent, rtol=1e-12)
    np.testing.assert_array_equal(y.value, states[-1])


def test_data_of_each_step_goes_to_its_step() -> None:
    data = np.random.default_rng(1).normal(size=(300, 3))
    y, expected = us.tensor(np.zeros(3)), np.zeros(3)
    for row in data:
        y = us.tanh(y * us.tensor(row) + row)
        expected = np.tanh(expected * row + row)
    assert compute([y])
    np.testing.assert_array_equal(y.value, expected)


def test_operands_that_coincide_now_and_then_are_not_one_input() -> None:
    a, b = us.tensor([0.3]), us.tensor([0.7])
    y, expected = us.tensor([0.5]), np.array([0.5])
    for step in range(300):
        left, right = (a, a) if step % 3 else (a, b)
        y = us.sin(y * left) + us.cos(right * y)
        expected = np.sin(expected * left.value) + np.cos(right.value * expected)
    assert compute([y])
    np.testing.assert_array_equal(y.value, expected)


def test_other_sizes_or_dtypes_of_what_is_read_do_not_reach_the_plan() -> None:
    wide, narrow, single = us.tensor(np.full(3, 0.2)), us.tensor([0.2]), us.tensor(np.full(3, 0.25, np.float32))
    y, expected = us.tensor(np.ones(3)), np.ones(3)
    for step in range(400):
        term = narrow if step == 100 else single if step == 200 else wide
        y = us.tanh(y * 0.5 + term) * 0.9
        expected = np.tanh(expected * 0.5 + term.value) * 0.9
    plans = Plans()
    assert compute([y], plans)
    np.testing.assert_array_equal(y.value, expected)


def test_factorisations_repeat_with_all_their_outputs() -> None:
    x = us.tensor(np.random.default_rng(2).normal(size=(3, 3)))

    def loss() -> us.Tensor:
        m = x
        for _ in range(120):
            u, s, vh = us.linalg.svd(m)
            m = u @ (us.reshape(s, (3, 1)) * vh) * 0.5 + 0.1 * x
        return us.sum(m * m)

    gradient = loss().grad(x)
    plans = Plans()
    assert compute([gradient], plans)
    assert plans.runs > 10
    # Rebuilding a matrix from its factors is the identity, so m is a geometric series times x.
    scale = 0.5**120 + 0.1 * sum(0.5**k for k in range(120))
    np.testing.assert_allclose(gradient.value, 2.0 * scale**2 * x.value, rtol=1e-8)


def test_several_targets_get_their_values() -> None:
    _, y = logistic(300)
    z = us.exp(-y)
    assert compute([y, z])
    np.testing.assert_array_equal(z.value, np.exp(-logistic_numpy(300)[-1]))
    np.testing.assert_array_equal(y.value, logistic_numpy(300)[-1])


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_handles_held_anywhere_keep_their_values_and_nothing_else_does() -> None:
    states = [us.tensor(np.linspace(0.1, 0.9, 8))]
    y = states[0]
    for _ in range(300):
        y = y + 1e-5 * y * y
        states.append(y)
    held = {step: states[step] for step in (1, 2, 77, 150, 299)}
    rest = [weakref.ref(state) for step, state in enumerate(states) if step not in held and 0 < step < 300]
    del states
    assert compute([y])
    reference = logistic_numpy(300)
    for step, state in held.items():
        np.testing.assert_array_equal(state.value, reference[step])
    assert all(state().value is None for state in rest)


def test_a_handle_on_every_step_keeps_every_step() -> None:
    states = [us.tensor(np.linspace(0.1, 0.9, 8))]
    for _ in range(300):
        states.append(states[-1] + 1e-5 * states[-1] * states[-1])
    plans = Plans()
    assert compute([states[-1]], plans)
    assert plans.runs > 10
    for state, expected in zip(states, logistic_numpy(300), strict=True):
        np.testing.assert_array_equal(state.value, expected)


def test_handles_on_other_nodes_in_every_repetition_share_one_more_plan() -> None:
    rng = np.random.default_rng(4)
    y, expected = us.tensor(np.full(3, 0.5)), np.full(3, 0.5)
    held: list[tuple[us.Tensor, np.ndarray]] = []
    for _ in range(400):
        parts, values = [y], [expected]
        for _ in range(6):
            parts.append(us.sin(parts[-1] + 0.1))
            values.append(np.sin(values[-1] + 0.1))
        chosen = rng.integers(1, 6)
        held.append((parts[chosen], values[chosen]))
        y, expected = parts[-1] * parts[0], values[-1] * values[0]
    del parts
    plans = Plans()
    assert compute([y], plans)
    np.testing.assert_array_equal(y.value, expected)
    for tensor, value in held:
        np.testing.assert_array_equal(tensor.value, value)
    assert len(plans.made) <= 2


def test_a_consumer_outside_the_piece_keeps_what_it_reads() -> None:
    _, y = logistic(300)
    inner = y.inputs[0].inputs[0]
    waiting = us.exp(inner)
    del inner
    assert compute([y])
    assert waiting.value is None
    np.testing.assert_array_equal(waiting.inputs[0].value, logistic_numpy(298)[-1])


# --- what is not -----------------------------------------------------------------------------------------------------


def test_temporaries_are_let_go_at_their_last_use() -> None:
    _, y = logistic(4000, size=1000)
    work = collect([y])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert run_repeated(work.order, work.uses, {y.id}, make_plan)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    # Of 12,000 arrays of 8 kB, 96 MB in all, those of a few steps at a time; the rest is the bookkeeping of positions.
    assert peak < 12e6


def test_the_reverse_sweep_lets_go_of_what_it_has_read() -> None:
    x, y = logistic(600, size=2000)
    gradient = us.sum(y).grad(x)
    work = collect([gradient])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    assert run_repeated(work.order, work.uses, {gradient.id}, make_plan)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The sweep reads two arrays of 16 kB of each step: 19 MB. All else would be another 58 MB.
    assert peak - before < 25e6
    assert after - before < 1e6


def test_nothing_is_left_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        nodes = live_node_count()
        x, y = logistic(300)
        gradient = us.sum(y).grad(x)
        assert compute([gradient])
        alive = weakref.ref(gradient.value)
        del x, y, gradient
        assert live_node_count() <= nodes + 1  # a constant may have come to stay
        assert alive() is None
    finally:
        gc.enable()


def test_a_piece_that_does_not_repeat_is_left_alone() -> None:
    y = us.exp(us.sin(us.tensor([1.0])))
    work = collect([y])
    order = list(work.order)
    plans = Plans()
    assert not run_repeated(work.order, work.uses, {y.id}, plans)
    assert work.order == order
    assert y.value is None
    assert not plans.made


# --- failures --------------------------------------------------------------------------------------------------------


def fails_at(name: str, step: int) -> Callable[[us.Tensor], us.Tensor]:
    calls = []

    def kernel(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        if x[0] >= step:
            raise RuntimeError("too far")
        return x + 1.0

    return us.op(name, kernel=kernel)


def test_an_error_names_the_node_and_the_line() -> None:
    count = fails_at("counts_for_the_repeated_test", 250)
    x = us.tensor([0.0])
    y, held = x, None
    for step in range(400):
        y = count(us.abs(y) * 1.0 + 0.0)  # the line to blame
        if step == 100:
            held = y
    with pytest.raises(errors.KernelError, match="too far.*counts_for_the_repeated_test.*the line to blame") as raised:
        compute([y])
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert held is not None
    np.testing.assert_array_equal(held.value, [101.0])
    assert y.value is None


def test_a_plan_that_fails_on_its_own_is_not_used_again() -> None:
    _, y = logistic(500)
    plans = Plans(failing=True)
    assert compute([y], plans)
    np.testing.assert_array_equal(y.value, logistic_numpy(500)[-1])
    assert plans.runs == 1


def test_without_a_plan_nodes_run_one_by_one() -> None:
    def no_plan(fragment: Fragment, shapes: Any) -> Any:
        raise errors.ShapeMismatchError("no plan for this")

    _, y = logistic(500)
    assert compute([y], no_plan)
    np.testing.assert_array_equal(y.value, logistic_numpy(500)[-1])


def test_a_placeholder_without_a_value_is_reported() -> None:
    p = us.placeholder((3,), name="p")
    y = us.tensor(np.ones(3))
    for _ in range(300):
        y = us.tanh(y * p + y)
    with pytest.raises(errors.UnboundPlaceholderError, match="'p'"):
        compute([y])


def test_symbolic_sizes_without_numbers_are_reported() -> None:
    n = us.dims("n")
    y = us.tensor(np.ones(3))
    for _ in range(300):
        y = us.tanh(y + us.sum(us.zeros((n,))))
    with pytest.raises(errors.UnboundSizeError, match="the size n"):
        compute([y])


# --- threads and programs --------------------------------------------------------------------------------------------


def test_threads_that_run_one_graph_agree() -> None:
    x, y = logistic(1000)
    gradient = us.sum(y).grad(x)

    def work(_: int) -> None:
        compute([gradient])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(4)))
    states = np.array(logistic_numpy(1000))
    np.testing.assert_allclose(gradient.value, np.prod(1.0 + 2e-5 * states[:-1], axis=0), rtol=1e-12)


_KINDS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 12)), min_size=3, max_size=10)
_NUMBERS = st.sets(st.integers(0, 600), max_size=6)


@given(body=_KINDS, count=st.integers(60, 90), odd=_NUMBERS, held=_NUMBERS)
def test_random_loops_give_what_numpy_gives(
    body: list[tuple[int, int, int]], count: int, odd: set[int], held: set[int]
) -> None:
    values: list[Any] = [np.full(2, 0.1 * i) for i in range(12)]
    made: list[Any] = [us.tensor(value) for value in values]
    handles = []
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
    compute([target])
    np.testing.assert_array_equal(target.value, values[-1] * 2.0)
    needed = {node.id for node in ancestors([target])}
    for handle, value in handles:
        assert (handle.value is not None) == (handle.id in needed)
        np.testing.assert_array_equal(handle.eval(), value)
