"""What steps make anew of tensors that no step changes, and what later steps record again, is seen in no bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.zoo.kind import contraction, normal
from tests.zoo_watching import HoldAll, Noted, read_every
from unspool._engine.default import default_engine

Loop = Callable[[int, Any, Any], tuple[us.Tensor, list[us.Tensor]]]

LOOPS: list[Loop] = []


def loop(function: Loop) -> Loop:
    LOOPS.append(function)
    return function


@loop
def a_transposed_matrix(steps, read, watch):
    A, x = us.tensor(contraction(0, 8, 0.9)), us.ones(8)
    for _ in range(steps):
        x = us.tanh(A.T @ x + 0.1 * (A @ x))
        watch(0, x)
        read(x[0])
    return us.sum(x * x), [A]


@loop
def a_function_of_a_matrix(steps, read, watch):
    A, x = us.tensor(contraction(0, 8, 0.9)), us.ones(8)
    for _ in range(steps):
        S = 0.5 * (A + A.T)
        x = us.tanh(S @ x + 0.1)
        watch(0, x, S)
        read(x[0])
    return us.sum(x * x), [A]


@loop
def rows_that_come_back(steps, read, watch):
    A, x = us.tensor(normal(0, 8, 8)), us.ones(8)
    draws = np.random.default_rng(5)
    for _ in range(steps):
        x = us.tanh(A[int(draws.integers(8))] * x + 0.1)
        watch(0, x)
        read(x[0])
    return us.sum(x * x), [A]


@loop
def matrices_that_come_back(steps, read, watch):
    A, x = us.tensor(np.stack([contraction(s, 8, 0.9) for s in range(5)])), us.ones(8)
    for k in range(steps):
        x = us.tanh(A[k % 5] @ x + 0.1)
        watch(0, x)
        read(x[0])
    return us.sum(x * x), [A]


@loop
def elements_that_are_set(steps, read, watch):
    b, x = us.tensor(normal(1, 8)), us.zeros(8)
    for k in range(steps):
        i = k % 8
        x = x.at[i].set(0.5 * x[i] + us.tanh(b[i] * x[(i + 1) % 8] + b[i]))
        watch(0, x)
        read(x[i])
    return us.sum(x * x), [b]


@loop
def parameters_that_are_taken_apart_in_each_step(steps, read, watch):
    theta, x = us.tensor(0.3 * normal(1, 72)), us.ones(8)
    for _ in range(steps):
        W, b = us.reshape(theta[0:64], (8, 8)), theta[64:72]
        x = us.tanh(W @ x + b)
        watch(0, x)
        read(x[0])
    return us.sum(x * x), [theta]


@loop
def rows_of_which_each_comes_once(steps, read, watch):
    D, w, x = us.tensor(normal(1, steps, 8)), us.tensor(contraction(0, 8, 0.9)), us.ones(8)
    for k in range(steps):
        x = us.tanh(w @ x + us.sin(D[k]))
        watch(0, x)
        read(x[0])
    return us.sum(x * x), [D, w]


@loop
def products_of_the_last_states(steps, read, watch):
    w, x, past = us.tensor(contraction(0, 8, 0.9)), us.ones(8), []
    for _ in range(steps):
        d = w @ x
        for y in past:
            d = d - 0.1 * us.sum(y * y) * y + 0.01 * us.sum(y * x) * y
        x = us.tanh(d)
        past = [*past, x][-4:]
        watch(0, x)
        read(x[0])
    return us.sum(x * x), [w]


@loop
def trials_of_which_some_are_rejected(steps, read, watch):
    t, w = us.tensor(normal(3, 6)), us.tensor(normal(4, 6))
    first, draws = w, np.random.default_rng(1)
    loss = us.sum((w - t) ** 2) + us.sum(us.sin(3.0 * w))
    now = read(loss)
    for _ in range(steps):
        trial = w - 0.05 * loss.grad(w) + 0.1 * draws.normal(size=6)
        found = us.sum((trial - t) ** 2) + us.sum(us.sin(3.0 * trial))
        watch(0, trial, found)
        value = read(found)
        if value < now + 0.2 * draws.normal():
            w, loss, now = trial, found, value
    return loss + us.sum(w * w), [t, first]


@loop
def what_is_recorded_before_a_read_and_computed_after_it(steps, read, watch):
    F, x, total = us.tensor(contraction(0, 6, 0.9)), us.ones(6), us.tensor(0.0)
    for _ in range(steps):
        y = F @ x
        gain = us.tanh(y) * us.sum(y)  # nobody needs it until the next read
        total = total + us.sum(y * y) + us.sum(us.sin(y))
        x = 0.5 * us.tanh(y) + 0.1 * gain
        watch(0, x, y, total)
        read(total)
    return total + us.sum(x * x), [F]


def gradients(body: Loop, steps: int, read: Any = float, watch: Any = lambda *tensors: None) -> bytes:
    loss, variables = body(steps, read, watch)
    return b"".join(np.asarray(value).tobytes() for value in us.eval([loss, *loss.grad(variables)]))


@pytest.mark.parametrize("steps", [20, 90, 150])
@pytest.mark.parametrize("body", LOOPS, ids=lambda body: body.__name__)
def test_bits_do_not_depend_on_what_is_held_or_read(body: Loop, steps: int) -> None:
    numbers = Noted()
    body(steps, numbers, lambda *tensors: None)
    expected = gradients(body, steps)
    assert gradients(body, steps) == expected
    assert gradients(body, steps, watch=HoldAll()) == expected
    assert gradients(body, steps, watch=read_every(7)) == expected
    assert gradients(body, steps, read=numbers.again()) == expected


def test_steps_that_record_again_what_earlier_ones_made_fold() -> None:
    loss, variables = products_of_the_last_states(200, float, lambda *tensors: None)
    found = us.explain(loss, variables)
    assert found.loops[0].steps > 190
    assert found.loops[0].unfolded == 0
    assert found.gradient is not None
    assert found.gradient.recorded < 100


@pytest.mark.parametrize("body", LOOPS, ids=lambda body: body.__name__)
def test_what_is_folded_has_the_bits_of_its_nodes(body: Loop) -> None:
    expected = gradients(body, 90)
    with default_engine().queue.nothing_folds():
        assert gradients(body, 90) == expected
