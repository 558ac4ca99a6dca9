"""How far a sweep looks: as far back as something can depend on a variable, however long the history is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.test_folding import flush
from unspool._autodiff.sweeps import repeated_sweeps
from unspool._autodiff.sweeps.walk import Walk, met_outputs, walking
from unspool._engine.default import default_engine

SOURCES = str(Path(us.__file__).parent / "_autodiff")

X = np.cos(np.arange(12.0)).reshape(4, 3)
Y = np.sin(np.arange(4.0))


def residual(w: us.Tensor) -> us.Tensor:
    return us.mean(us.tanh(X @ w - Y) ** 2)


def by_grad(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    loss = residual(w)
    return loss, loss.grad(w)


def by_function(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    return us.value_and_grad(residual)(w)


def of_a_fragment(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    loss = fragment(w)
    return loss, loss.grad(w)


fragment = us.fragment(residual)


def twice(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    loss, gradient = by_grad(w)
    return loss, gradient + 0.1 * us.sum(gradient * gradient).grad(w)


def by_cotangents(w: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    loss = residual(w)
    return loss, us.cotangents(loss, [w])[0]


# What is read in a step of a loop, by the number of the step.
READ: dict[str, Callable[[int], bool]] = {
    "the loss": lambda k: True,
    "the loss now and then": lambda k: k % 10 == 9,
    "nothing": lambda k: False,
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("gradient", [by_grad, by_function, of_a_fragment, twice, by_cotangents])
def test_a_gradient_in_a_loop_does_not_look_at_steps_before_what_it_differentiates(
    gradient: Any, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[int] = []

    def activate(walk: Walk, sources: Any, original: Any = Walk._activate) -> None:
        visited.append(len(sources))
        original(walk, sources)

    def nodes_visited(steps: int) -> tuple[int, int]:
        """Return how many nodes the third quarter of a loop visits, and how many the last one."""
        visited.clear()
        rate, w = us.tensor(0.05), us.tensor([0.5, -1.0, 0.25])
        for k in range(steps):
            loss, slope = gradient(w)
            w = w - rate * slope
            if READ[read](k):
                float(loss)
        half, last = len(visited) // 2, 3 * len(visited) // 4
        return sum(visited[half:last]), sum(visited[last:])

    monkeypatch.setattr(Walk, "_activate", activate)
    monkeypatch.setattr(repeated_sweeps, "_MOST_FAILURES", 0)  # sweep in every step, even if the last one is known
    monkeypatch.setattr(default_engine(), "sweeps", None)
    nodes_visited(100)
    before, last = nodes_visited(320)
    assert last <= 1.1 * before


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("ask", [us.cotangents, us.Tensor.grad])
def test_cotangents_of_all_states_take_time_in_proportion_to_their_number(ask: Any, reads: bool) -> None:
    a = us.tensor(0.3 * np.cos(np.arange(9.0)).reshape(3, 3))

    def lines_run(steps: int) -> float:
        x, states = us.tensor([0.5, -1.0, 0.25]), []
        for _ in range(steps):
            x = us.tanh(a @ x) + 0.1
            states.append(x)
            if reads:
                float(us.sum(x))
        return count_lines(lambda: ask(us.sum(x * x), states)) / steps

    lines_run(500)  # rules are derived once
    assert lines_run(2000) <= 1.2 * lines_run(500)


def count_lines(function: Callable[[], Any]) -> int:
    """Return how many lines of the sweeps a function runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            return trace if frame.f_code.co_filename.startswith(SOURCES) else None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_a_variable_that_a_loop_reads_beside_the_way_does_not_open_its_calls() -> None:
    """How much each state mattered: the step also makes a number of its state that the loss does not read."""
    A, x = us.tensor(0.3 * np.eye(3) + 0.1), us.tensor([1.0, -0.5, 0.25])
    states = []
    for _ in range(200):
        x = us.tanh(A @ x) + 0.1
        states.append(x)
        float(us.sum(x))
    loss = us.sum(x * x)
    flush()
    before = us.engine_stats()
    gradients = loss.grad(states)
    after = us.engine_stats()
    assert after.calls - before.calls <= 4  # a chain, and what does not fit into it
    by_hand = [2 * np.asarray(states[-1])]
    matrix = np.asarray(A)
    for state in reversed(states[1:]):
        by_hand.append(matrix.T @ (by_hand[-1] * (1 - (np.asarray(state) - 0.1) ** 2)))
    for ours, theirs in zip(us.eval(gradients), reversed(by_hand), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-300)


def test_a_variable_that_is_read_on_the_way_to_another_output_has_that_contribution() -> None:
    x = us.tensor([1.0, -0.5])
    states, totals = [], []
    for _ in range(80):
        x = us.tanh(x) + 0.1
        states.append(x)
        totals.append(us.sum(x * x))
        float(totals[-1])
    loss = us.sum(states[-1]) + totals[40]
    expected = np.ones(2)
    for k in range(79, 40, -1):
        expected = expected * (1 - (np.asarray(states[k]) - 0.1) ** 2)
    np.testing.assert_allclose(loss.grad(states[40]), expected + 2 * np.asarray(states[40]), rtol=1e-12)


def test_a_variable_that_a_call_reads_on_the_way_beside_one_that_is_no_output_of_a_call() -> None:
    @us.fragment
    def both(x: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
        y = us.tanh(x)
        return y, us.sin(y) * 3.0

    x = us.tensor([0.3, -0.8])
    y, z = both(x)
    w = us.cos(x)
    loss = us.sum(2.0 * y + z) + us.sum(w * w)
    of_y, of_w = us.eval(us.cotangents(loss, [y, w]))
    np.testing.assert_allclose(of_y, 2.0 + 3.0 * np.cos(np.tanh([0.3, -0.8])), rtol=1e-14)
    np.testing.assert_allclose(of_w, 2.0 * np.cos([0.3, -0.8]), rtol=1e-14)


def test_an_output_of_a_call_is_active_only_if_a_variable_is_behind_it() -> None:
    """Each step reads a row of a table that nobody differentiates, and hands it to the next one."""
    table, start = us.tensor(np.random.default_rng(0).normal(size=(100, 4))), us.tensor(np.ones(4))
    w = start
    for k in range(100):
        row = table[k]
        rate = us.sum(row * w)
        w = w - 0.01 * rate * row
        if float(rate) > 1e9:
            break
    loss = us.sum(w * w)

    def rows_on_the_way(variable: us.Tensor) -> list[bool]:
        with walking([loss], [variable]) as walk:
            met = [output for met in walk.shown.values() for output in met_outputs(met)]
            return [output.id in walk.active for output in met if output.shape == (4,) and output.op.name == "slice"]

    assert len(rows_on_the_way(start)) > 80
    assert not any(rows_on_the_way(start))
    assert all(rows_on_the_way(table))
