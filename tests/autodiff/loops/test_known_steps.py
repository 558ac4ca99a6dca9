"""Steps that were traced before are found again, and nothing else is taken for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.loops import trace as loop_trace


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Give a list with an entry for each step that had to be described."""
    us.clear_caches()
    calls: list[int] = []
    describe = loop_trace._described

    def counting(*given: Any) -> Any:
        calls.append(1)
        return describe(*given)

    monkeypatch.setattr(loop_trace, "_described", counting)
    yield calls
    us.clear_caches()


def run(step: Callable[..., Any], x: Any, **options: Any) -> Any:
    return us.iterate(step, x, **{"max_steps": 3, **options})[0]


def known(step: Callable[..., Any], x: Any, **options: Any) -> None:
    """Run a loop often enough for its step to be known."""
    for _ in range(3):
        run(step, x, **options)


def test_a_step_is_described_twice_and_then_found(described: list[int]) -> None:
    for k in range(6):
        A, x = us.tensor(np.eye(3) * (1.0 + 0.1 * k)), us.tensor(np.arange(3.0))
        y = run(lambda s, A=A: A.T @ us.tanh(A @ s) + 0.5, x)
        expected = np.arange(3.0)
        for _ in range(3):
            expected = (1 + 0.1 * k) * np.tanh((1 + 0.1 * k) * expected) + 0.5
        close(y.eval(), expected)
    assert len(described) == 2


@pytest.mark.parametrize("state", [us.tensor(0.5), (us.tensor(0.5), {"a": us.tensor([1.0, 2.0])})], ids=["one", "many"])
def test_the_state_may_be_nested_and_have_outputs_and_a_condition(described: list[int], state: Any) -> None:
    def halved(tree: Any) -> Any:
        if isinstance(tree, tuple):
            return (halved(tree[0]), {"a": halved(tree[1]["a"])})
        return tree / 2

    for _ in range(5):
        _, steps, outputs = us.iterate(
            lambda s: (halved(s), us.sum(s[0] if isinstance(s, tuple) else s)),
            state,
            until=lambda new: us.all((new[0] if isinstance(new, tuple) else new) < 0.1),
            max_steps=9,
            has_outputs=True,
        )
        assert steps == 3
        assert outputs.eval().tolist() == [0.5, 0.25, 0.125]
    assert len(described) == 2


def test_what_a_step_reads_through_its_closure_is_read_each_time() -> None:
    settings = {"rate": 0.5, "f": us.sin, "weights": us.tensor([1.0, 2.0])}
    x = us.tensor([0.3, 0.4])

    def step(s: us.Tensor) -> us.Tensor:
        return settings["rate"] * settings["f"](s) * settings["weights"]

    def expected() -> Any:
        s, rate, weights = np.array([0.3, 0.4]), settings["rate"], settings["weights"].eval()
        for _ in range(3):
            s = rate * (np.sin if settings["f"] is us.sin else np.cos)(s) * weights
        return s

    known(step, x)
    for change in ({"rate": 0.25}, {"f": us.cos}, {"weights": us.tensor([3.0, 4.0])}, {"f": us.sin}, {"rate": 0.5}):
        settings |= change
        close(run(step, x).eval(), expected())


def test_two_constants_are_not_one(described: list[int]) -> None:
    def step_on(a: us.Tensor, b: us.Tensor) -> Callable[[us.Tensor], us.Tensor]:
        return lambda s: a * s + b

    x, a, b = us.tensor([1.0, 2.0]), us.tensor([0.5, 0.5]), us.tensor([1.0, 1.0])
    known(step_on(a, b), x)
    both = us.sum(run(step_on(a, a), x)).grad(a).eval()
    us.clear_caches()
    assert both.tobytes() == us.sum(run(step_on(a, a), x)).grad(a).eval().tobytes()
    assert us.sum(run(step_on(a, b), x)).grad(b).eval().tolist() == [1.75, 1.75]


def test_a_tensor_outside_is_not_one_that_depends_on_the_state(described: list[int]) -> None:
    def step_on(other: us.Tensor | None) -> Callable[[us.Tensor], us.Tensor]:
        return lambda s: s * us.sin(s if other is None else other)

    x, y = us.tensor([1.0, 2.0]), us.tensor([0.5, 0.25])
    known(step_on(y), x)
    value = np.array([1.0, 2.0])
    for _ in range(3):
        value = value * np.sin(value)
    close(run(step_on(None), x).eval(), value)


def test_the_state_may_be_passed_on_or_replaced(described: list[int]) -> None:
    c = us.tensor([5.0, 6.0])

    def step_on(which: int) -> Callable[[Any], Any]:
        return lambda s: [(s[1], s[0]), (s[0], s[0]), (c, s[0]), (s[0], c)][which]

    state = (us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0]))
    for _ in range(4):
        found = [[x.eval().tolist() for x in run(step_on(which), state)] for which in range(4)]
        assert found == [
            [[3.0, 4.0], [1.0, 2.0]],
            [[1.0, 2.0], [1.0, 2.0]],
            [[5.0, 6.0], [5.0, 6.0]],
            [[1.0, 2.0], [5.0, 6.0]],
        ]


def test_loops_inside_of_loops_are_found_too(described: list[int]) -> None:
    def outer(s: us.Tensor) -> us.Tensor:
        return us.iterate(lambda t: t * s + 1.0, s, max_steps=2)[0]

    expected = np.array([0.1, 0.2])
    for _ in range(3):
        t = expected
        for _ in range(2):
            t = t * expected + 1.0
        expected = t
    x = us.tensor([0.1, 0.2])
    for _ in range(5):
        close(run(outer, x).eval(), expected)


def test_other_shapes_and_dtypes_are_other_steps(described: list[int]) -> None:
    def step(s: us.Tensor) -> us.Tensor:
        return s + 1

    for _ in range(3):
        assert run(step, us.tensor([1.0])).eval().tolist() == [4.0]
        assert run(step, us.tensor([[1.0, 2.0]])).eval().tolist() == [[4.0, 5.0]]
        assert run(step, us.tensor([1, 2])).dtype == us.int64
        assert run(step, 1).eval().tolist() == 4


def test_what_always_looks_different_is_described_each_time(described: list[int]) -> None:
    for k in range(80):
        assert run(lambda s, k=k: s + float(k), us.tensor(0.0)).item() == 3.0 * k
    assert len(described) == 80


def test_a_loop_that_has_run_is_not_run_again() -> None:
    A, x = us.tensor([[0.5, 0.0], [0.0, 0.25]]), us.tensor([1.0, 1.0])

    def step(s: us.Tensor) -> us.Tensor:
        return A @ s

    known(step, x)
    first = run(step, x)
    before = us.engine_stats().kernel_calls
    assert run(step, x) is first
    assert us.engine_stats().kernel_calls == before


def test_what_is_made_of_constants_alone_is_part_of_a_step_with_its_values() -> None:
    def final(k: float | us.Tensor) -> us.Tensor:
        factor = us.exp(k) * 0.1
        return us.iterate(lambda x: us.sin(x) * factor, us.tensor(0.7), max_steps=3)[0]

    def expected(k: float) -> float:
        x = 0.7
        for _ in range(3):
            x = math.sin(x) * math.exp(k) * 0.1
        return x

    for k in (1.0, 1.0, 1.0, 2.0, 3.0):
        assert math.isclose(float(final(k)), expected(k), rel_tol=1e-14)
    slope = (expected(2.0 + 1e-6) - expected(2.0 - 1e-6)) / 2e-6
    assert math.isclose(float(us.grad(final)(2.0)), slope, rel_tol=1e-8)


def test_a_known_step_makes_loops_of_any_length() -> None:
    def halved(s: us.Tensor) -> us.Tensor:
        return s * 0.5

    x = us.tensor([1.0, 2.0])
    known(halved, x)
    lengths = [*range(1, 150), 1, 2, 149]  # more than are remembered, and some of them again
    for steps in lengths:
        y = run(halved, x, max_steps=steps)
        assert y.eval().tolist() == [0.5**steps, 2 * 0.5**steps]
        assert us.sum(y).grad(x).eval().tolist() == [0.5**steps] * 2


def test_a_known_step_that_stops_by_its_derivative_is_another_loop_than_one_by_its_condition() -> None:
    def step(s: us.Tensor) -> us.Tensor:
        return us.cos(s)

    x = us.tensor(0.5)
    for _ in range(4):
        by_condition, few = us.iterate(step, x, until=lambda new, old: abs(new - old) < 1e-2)
        by_derivative, more = us.iterate(step, x, until=lambda new, old: abs(new - old) < 1e-2, derivative_tol=1e-10)
        assert few < more
        for value, steps in ((by_condition, few), (by_derivative, more)):
            expected = 0.5
            for _ in range(steps):
                expected = math.cos(expected)
            close(value.eval(), np.array(expected))
