"""Several threads on one engine: the same answers as one after the other, and errors that stay where they belong.

And what an error inside a recognised or folded piece does: the same typed error, with the user's line, as in the first
iteration, and a loop that can go on.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from tests.engine.test_folding import by_tape, flush, folding
from unspool.errors import IndexRangeError, KernelError, RankError

X = np.array([0.5, -1.25, 2.0])
A = 0.4 * np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]])

COUNTS = pytest.mark.parametrize("count", [2, 6])


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with folding(2):
        yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run a function of the thread's number in several threads that start together; return results or exceptions."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except BaseException as error:  # shown by the assertion that follows
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def loop(a: us.Tensor, x: us.Tensor, steps: int) -> us.Tensor:
    for _ in range(steps):
        y = a @ x
        x = us.tanh(y) + 0.3 * x / (1.0 + us.linalg.norm(y))
        float(us.sum(x))
    return us.sum(x * x)


def outcome(a: us.Tensor, x: us.Tensor, steps: int = 25) -> list[Any]:
    """Return the value, gradients and a second derivative of a loop."""
    loss = loop(a, x, steps)
    gradients = loss.grad([a, x])
    return [loss.eval(), *us.eval(gradients), us.sum(gradients[0]).grad(x).eval()]


def same(found: Any, expected: list[Any]) -> None:
    assert not isinstance(found, BaseException), found
    for f, e in zip(found, expected, strict=True):
        close(f, e, 1e-11)


@COUNTS
def test_threads_with_loops_of_their_own(count: int) -> None:
    expected = [outcome(us.tensor(A + 0.01 * k), us.tensor(X)) for k in range(count)]
    found = in_threads(count, lambda k: outcome(us.tensor(A + 0.01 * k), us.tensor(X)))
    for f, e in zip(found, expected, strict=True):
        same(f, e)


@COUNTS
def test_threads_that_build_the_very_same_recipe(count: int) -> None:
    expected = outcome(us.tensor(A), us.tensor(X))
    a, x = us.tensor(A), us.tensor(X)
    for f in in_threads(count, lambda k: outcome(a, x)):
        same(f, expected)


@COUNTS
def test_threads_that_share_a_leaf_and_differ_in_length(count: int) -> None:
    a = us.tensor(A)
    expected = [outcome(us.tensor(A), us.tensor(X + k), 10 + 3 * k) for k in range(count)]
    for f, e in zip(in_threads(count, lambda k: outcome(a, us.tensor(X + k), 10 + 3 * k)), expected, strict=True):
        same(f, e)


@COUNTS
def test_threads_that_differentiate_one_loss_that_is_being_folded(count: int) -> None:
    a, x = us.tensor(A), us.tensor(X)
    loss = loop(a, x, 20)
    expected = [by_tape(loss, a), by_tape(loss, x)]

    def work(k: int) -> Any:
        if k % 2:
            flush()
        gradients = us.eval(loss.grad([a, x]))
        loop(us.tensor(A), us.tensor(X), 8)
        return [*gradients, *us.eval(loss.grad([a, x]))]

    for f in in_threads(count, work):
        same(f, expected + expected)


@COUNTS
def test_threads_that_evaluate_parts_of_one_graph(count: int) -> None:
    # Often: what one thread is about to compute another may finish in any instruction between.
    for _ in range(20):
        a, x = us.tensor(A), us.tensor(X)
        states, values = [x], [X]
        for _ in range(40):
            states.append(us.sin(a @ states[-1]) + 0.5 * states[-1])
            values.append(np.sin(A @ values[-1]) + 0.5 * values[-1])

        def work(k: int, states: list[us.Tensor] = states) -> Any:
            return [state.eval() for state in (states if k % 2 else states[::-1])]

        for k, found in enumerate(in_threads(count, work)):
            same(found, values if k % 2 else values[::-1])


def test_an_error_in_one_thread_does_not_disturb_the_others() -> None:
    expected = outcome(us.tensor(A), us.tensor(X))

    def work(k: int) -> Any:
        if k % 2:
            return singular_at(12)
        return outcome(us.tensor(A), us.tensor(X))

    for k, found in enumerate(in_threads(6, work)):
        if k % 2:
            assert isinstance(found, RankError), found
        else:
            same(found, expected)
    same(outcome(us.tensor(A), us.tensor(X)), expected)


def test_clearing_the_engine_while_others_work_changes_nothing() -> None:
    expected = outcome(us.tensor(A), us.tensor(X))

    def work(k: int) -> Any:
        if k == 0:
            for _ in range(20):
                us.clear_caches()
            return expected
        return outcome(us.tensor(A), us.tensor(X))

    for found in in_threads(4, work):
        same(found, expected)


# --- errors ----------------------------------------------------------------------------------------------------------


def singular_at(step: int, state: list[us.Tensor] | None = None) -> us.Tensor:
    """Solve a linear system per step; its matrix becomes singular at the given one."""
    x = us.tensor(X)
    shift = us.tensor(np.eye(3))
    for k in range(step + 3):
        matrix = us.where(us.constant(k == step), us.zeros((3, 3)), shift) + 0.0 * us.outer(x, x)
        x = us.linalg.solve(matrix, us.sin(x) + 0.1)  # singular here
        float(x[0])
        if state is not None:
            state[:] = [x]
    return x


@pytest.mark.parametrize("step", [0, 1, 2, 3, 20])
def test_a_singular_matrix_raises_the_same_error_in_every_iteration(step: int) -> None:
    state = [us.tensor(X)]
    with pytest.raises(RankError) as caught:
        singular_at(step, state)
    assert "singular here" in str(caught.value)
    # The state before the failure is whole: it has its value, and derivatives.
    (x,) = state
    expected = X
    for _ in range(step):
        expected = np.sin(expected) + 0.1
    close(x, expected)
    close(us.sum(us.sin(x) * x), np.sum(np.sin(expected) * expected))


@pytest.mark.parametrize("step", [0, 2, 20])
def test_an_index_out_of_range_raises_the_same_error_in_every_iteration(step: int) -> None:
    state = [us.tensor(X)]

    def loop_beyond_the_end() -> None:
        for k in range(step + 3):
            position = us.tensor(np.array([0, 7 if k == step else 1, 2]))
            following = us.sin(state[0])[position * 1] + 0.1  # beyond the end
            float(following[0])
            state[0] = following

    with pytest.raises(IndexRangeError, match="beyond the end"):
        loop_beyond_the_end()
    expected = X
    for _ in range(step):
        expected = np.sin(expected) + 0.1
    close(us.sum(state[0] * 2.0), np.sum(expected) * 2.0)


@pytest.mark.parametrize("step", [0, 1, 2, 20])
def test_a_kernel_of_the_user_that_fails_is_named_in_every_iteration(step: int) -> None:
    def kernel(x: Any) -> Any:
        if x[0] > 0.5 + step:
            raise ValueError("too large")
        return x + 1.0

    grow = us.op(f"folded_grow_{step}", kernel=kernel, vjp=(lambda ct, out, x: ct,), needs=(), replace=True)
    start = us.tensor(X)
    states = [start]

    def loop_until_too_large() -> None:
        for _ in range(step + 5):
            following = grow(states[-1]) * 1.0 + 0.0 * states[-1]  # grows here
            float(following[0])
            states.append(following)

    with pytest.raises(KernelError, match=r"(?s)ValueError: too large.*user:folded_grow.*grows here"):
        loop_until_too_large()
    assert len(states) == step + 2
    close(states[-1], X + (step + 1))
    flush()
    close(us.sum(states[-1]).grad(start), np.ones(3))


def test_a_failed_evaluation_can_be_asked_for_again() -> None:
    broken = [True]

    def kernel(x: Any) -> Any:
        if broken[0] and x[0] > 4:
            raise ValueError("not now")
        return x + 1.0

    step = us.op("folded_flaky", kernel=kernel, vjp=(lambda ct, out, x: ct,), needs=(), replace=True)
    x = us.tensor(np.zeros(3))
    for _ in range(5):
        x = step(x) * 1.0
        float(x[0])
    after = step(x) * 1.0
    for _ in range(2):
        with pytest.raises(KernelError, match="not now"):
            after.eval()
    broken[0] = False
    close(after, np.full(3, 6.0))


def test_an_error_inside_a_call_names_the_line_inside() -> None:
    divisor = us.tensor(np.eye(3))
    x = us.tensor(X)
    for _ in range(6):
        x = us.linalg.solve(divisor, us.sin(x))  # the line inside
        float(x[0])
    flush()
    bad = us.tensor(np.zeros((3, 3)))
    first = us.linalg.solve(bad, us.sin(x))[0]  # another line
    with pytest.raises(RankError, match="another line"):
        float(first)
    close(us.sum(x).grad(divisor), by_tape(us.sum(x), divisor), 1e-11)
