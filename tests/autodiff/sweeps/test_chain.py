"""Chains: derivative calls that follow each other are one node, and mean what the single calls meant."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from tests.engine.test_folding import NEVER, by_tape, flush, folding
from unspool._autodiff.sweeps.chain import CHAIN
from unspool._autodiff.sweeps.placing import SHORTEST
from unspool._graph import Bundle, Node

X = np.array([0.5, -1.25, 2.0])
A = 0.4 * np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]])


@pytest.fixture(autouse=True)
def _fold_soon() -> Iterator[None]:
    with folding(1):
        yield


def chains_behind(*tensors: us.Tensor) -> list[Node]:
    """Return the chain nodes that tensors are made from."""
    found: dict[float, Node] = {}
    seen: set[float] = set()
    stack: list[Node] = list(tensors)
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen.add(node.id)
            stack += node.inputs
            if node.op is CHAIN:
                found[node.id] = node
    return list(found.values())


def folded_loop(
    body: Callable[[us.Tensor, us.Tensor], us.Tensor], steps: int
) -> tuple[us.Tensor, us.Tensor, us.Tensor]:
    """Run a loop twice, so that the second one is folded from its first step on; return its leaves and its result."""
    for _ in range(2):
        a, x = us.tensor(A), us.tensor(X)
        y = x
        for _ in range(steps):
            y = body(a, y)
            float(us.sum(y))
        flush()
    return a, x, y


def tanh_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.tanh(a @ x) + 0.5 * us.sin(x)


def gated_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.where(x > 0, us.sqrt(us.where(x > 0, x, 1.0)), x * x) + 0.1 * (a @ us.cos(x))


def factored_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.linalg.solve(2.0 * np.eye(3) + a @ a.T, us.sin(x) + x)


def shifted_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return (x.at[0].set(us.sum(a * a) * 0.1))[::-1] * 0.9 + us.max(x) * 0.1


BODIES = pytest.mark.parametrize("body", [tanh_step, gated_step, factored_step, shifted_step])


def test_the_gradient_of_a_folded_loop_is_one_chain() -> None:
    _, x, y = folded_loop(tanh_step, 30)
    gradient = us.sum(y).grad(x)
    chains = chains_behind(gradient)
    assert len(chains) == 1 and isinstance(chains[0], Bundle)
    assert us.graph_size(gradient) > 0 and "chain" in str(us.summary(gradient))


@BODIES
@pytest.mark.parametrize("steps", [1, SHORTEST - 1, SHORTEST, SHORTEST + 1, 12])
def test_gradients_are_right_for_every_number_of_steps(body: Any, steps: int) -> None:
    a, x, y = folded_loop(body, steps)
    loss = us.sum(y * y)
    for leaf in (a, x):
        close(loss.grad(leaf), by_tape(loss, leaf), 1e-11)


@BODIES
def test_a_chain_is_differentiated_again_in_both_modes(body: Any) -> None:
    a, x, y = folded_loop(body, 9)
    loss = us.sum(us.sin(y))
    gradient_a, gradient_x = loss.grad([a, x])
    along = us.sum(gradient_a * np.cos(A)) + us.sum(gradient_x * np.sin(X))
    for leaf in (a, x):
        close(along.grad(leaf), by_tape(along, leaf), 1e-10)

    def f(a: us.Tensor, x: us.Tensor) -> us.Tensor:
        for _ in range(9):
            x = body(a, x)
            float(us.sum(x))
        return us.sum(us.sin(x))

    products = us.eval(us.hvp(f, (a, x), (np.cos(A), np.sin(X))))
    for product, leaf in zip(products, (a, x), strict=True):
        close(product, by_tape(along, leaf), 1e-10)


@pytest.mark.parametrize("body", [tanh_step, gated_step, factored_step])
def test_the_steps_of_a_second_derivative_are_chains_too(body: Any) -> None:
    """There are the steps of the gradient, those that go back through them, and those that go on through the loop."""
    steps = 30
    a, _, y = folded_loop(body, steps)
    first = us.sum(y * y).grad(a)
    second = us.sum(first * first).grad(a)
    lengths = [node.attributes["chain"].steps for node in chains_behind(second)]
    assert sum(length >= steps - 2 for length in lengths) == 3, lengths


def test_third_derivatives_through_chains_of_chains() -> None:
    a, x, y = folded_loop(tanh_step, 8)
    first = us.sum(y).grad(x)
    second = us.sum(first * np.cos(X)).grad(x)
    third = us.sum(second * np.sin(X))
    close(third.grad(x), by_tape(third, x), 1e-9)
    close(third.grad(a), by_tape(third, a), 1e-9)


def test_cotangents_that_enter_in_the_middle_of_a_loop_are_added_there() -> None:
    for _ in range(2):
        a, x = us.tensor(A), us.tensor(X)
        y, losses = x, []
        for _ in range(12):
            y = tanh_step(a, y)
            losses.append(us.sum(y * y))
            float(losses[-1])
        flush()
    total = sum(losses, us.tensor(0.0))
    for leaf in (a, x):
        close(total.grad(leaf), by_tape(total, leaf), 1e-11)
    some = losses[3] + 2.0 * losses[7] + us.sum(y)
    for leaf in (a, x):
        close(some.grad(leaf), by_tape(some, leaf), 1e-11)


# What a loss reads of each state: the cotangent of an element is masked, others are products or plain.
READERS: dict[str, Callable[[us.Tensor, int], us.Tensor]] = {
    "an element": lambda y, k: us.sin(y[0]),
    "elements at other places": lambda y, k: y[k % 3] * y[0],
    "a product": lambda y, k: (us.tensor(A) @ y) @ us.tensor(X),
    "by turns": lambda y, k: y[1] if k % 3 == 0 else (us.sum(us.sin(y)) if k % 3 == 1 else y @ us.tensor(X)),
}


def states_of(a: us.Tensor, x: us.Tensor, steps: int) -> list[us.Tensor]:
    """Return every state of a loop that was folded."""
    y, states = x, []
    for _ in range(steps):
        y = tanh_step(a, y)
        states.append(y)
        float(us.sum(y))
    flush()
    return states


@pytest.mark.parametrize("reader", READERS)
def test_cotangents_of_every_state_are_added_whatever_form_they_have(reader: str) -> None:
    for _ in range(3):  # functions that note steps at which tensors arrive are made when these come again
        a, x = us.tensor(A), us.tensor(X)
        loss = us.sum(us.stack([READERS[reader](y, k) for k, y in enumerate(states_of(a, x, 14))]))
        for leaf in (a, x):
            close(loss.grad(leaf), by_tape(loss, leaf), 1e-11)


def test_steps_whose_states_are_read_by_element_are_a_chain() -> None:
    a, x = us.tensor(A), us.tensor(X)
    (chain,) = chains_behind(us.sum(us.stack([y[k % 3] for k, y in enumerate(states_of(a, x, 24))])).grad(x))
    assert chain.attributes["chain"].steps >= 20  # type: ignore[attr-defined]


def test_what_is_carried_may_skip_a_step() -> None:
    for _ in range(2):
        x = us.tensor(X)
        before, y = x, x
        for _ in range(14):
            before, y = y, us.sin(y) * 0.7 + 0.4 * before * y
            float(y[0])
        flush()
    loss = us.sum(y)
    close(loss.grad(x), by_tape(loss, x), 1e-11)
    second = us.sum(loss.grad(x) * loss.grad(x))
    close(second.grad(x), by_tape(second, x), 1e-10)


def test_two_values_are_carried_at_once() -> None:
    for _ in range(2):
        q, p = us.tensor(X), us.tensor(X[::-1].copy())
        a, b = q, p
        for _ in range(12):
            b = b - 0.1 * us.sin(a)
            a = a + 0.1 * b
            us.eval(a, b)
        flush()
    loss = us.sum(a * b)
    for leaf in (q, p):
        close(loss.grad(leaf), by_tape(loss, leaf), 1e-12)


def test_the_cotangent_of_a_node_in_any_iteration_includes_all_later_ones() -> None:
    for _ in range(2):
        a, x = us.tensor(A), us.tensor(X)
        states = [x]
        for _ in range(10):
            states.append(tanh_step(a, states[-1]))
            float(us.sum(states[-1]))
        flush()
    loss = us.sum(states[-1])
    for state, gradient in zip(states, loss.grad(states), strict=True):
        close(gradient, by_tape(loss, state), 1e-12)


def test_per_step_inputs_get_their_own_gradients() -> None:
    for _ in range(2):
        forces = [us.tensor(X + k) for k in range(9)]
        y = us.tensor(X)
        for force in forces:
            y = us.sin(y) * 0.5 + force * y * 0.1
            float(y[0])
        flush()
    loss = us.sum(y)
    for force, gradient in zip(forces, loss.grad(forces), strict=True):
        close(gradient, by_tape(loss, force), 1e-12)


def test_two_loops_of_one_body_are_two_chains_that_may_be_added() -> None:
    for _ in range(2):
        a = us.tensor(A)
        ends = []
        for start in (X, X + 1.0):
            y = us.tensor(start)
            for _ in range(8):
                y = tanh_step(a, y)
                float(us.sum(y))
            ends.append(y)
        flush()
    loss = us.sum(ends[0] * ends[1])
    close(loss.grad(a), by_tape(loss, a), 1e-12)


# --- contributions to a parameter that every step uses ---------------------------------------------------------------


def gradient_of_power_iteration(n: int, steps: int) -> tuple[Any, us.Tensor, us.Tensor]:
    """Return the gradient of a loop of products with a matrix, not evaluated, with the loss and the matrix."""
    rng = np.random.default_rng(0)
    matrix = rng.uniform(-1, 1, (n, n)) / np.sqrt(n)
    for _ in range(2):
        a, x = us.tensor(matrix), us.tensor(rng.uniform(-1, 1, n))
        y = x
        for _ in range(steps):
            y = us.tanh(a @ y) + 0.1 * x
            float(y[0])
        flush()
    loss = us.sum(y * y)
    float(loss)
    return loss.grad(a), loss, a


def test_outer_products_are_gathered_into_few_matrices() -> None:
    n, peaks = 256, []
    for steps in (50, 200):
        gradient, _, _ = gradient_of_power_iteration(n, steps)
        tracemalloc.start()
        gradient.eval()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    matrix = n * n * 8
    vectors = 200 * n * 8
    # A few matrices, and a few stacks of vectors: not one matrix a step.
    assert peaks[0] < 4 * matrix + 4 * vectors, peaks
    assert peaks[1] - peaks[0] < 4 * vectors, peaks


@pytest.mark.parametrize("steps", [5, 20, 300])
def test_gathered_outer_products_are_their_plain_sum(steps: int) -> None:
    gradient, loss, a = gradient_of_power_iteration(8, steps)
    expected = by_tape(loss, a)
    np.testing.assert_allclose(gradient.eval(), expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))


def test_a_parameter_used_twice_in_every_step_gets_both_contributions() -> None:
    for _ in range(2):
        a, x = us.tensor(A), us.tensor(X)
        y = x
        for _ in range(12):
            y = us.tanh(a @ y) + us.sin(y @ a) * 0.3
            float(y[0])
        flush()
    loss = us.sum(y)
    close(loss.grad(a), by_tape(loss, a), 1e-12)
    second = us.sum(us.sin(loss.grad(a)))
    close(second.grad(a), by_tape(second, a), 1e-11)


def test_steps_that_only_pass_on_what_arrives_are_a_chain_too() -> None:
    step = us.fragment(lambda a, x: 0.5 * x + 0.5 * us.mean(a * x, axis=0))
    a, x = us.tensor(A), us.tensor(X)
    y = x
    for _ in range(6):
        y = step(a, y)
    gradient = us.sum(y).grad(x)
    factor = 0.5 + 0.5 * A.mean(axis=0)
    close(gradient, factor**6)
    by_a, by_x = us.sum(gradient * gradient).grad([a, x])
    close(by_a, np.tile(12 * factor**11 / 6, (3, 1)))
    close(by_x, np.zeros(3))


# Not their bits: the products of a chain are made in blocks.
@pytest.mark.parametrize("body", [tanh_step, gated_step, factored_step])
@pytest.mark.parametrize("steps", [10, 40])
def test_a_chain_gives_what_single_nodes_give_up_to_rounding(body: Any, steps: int) -> None:
    a, x, y = folded_loop(body, steps)
    chained = us.sum(y).grad([a, x])
    assert chains_behind(*chained)
    with folding(NEVER):
        b, z = us.tensor(A), us.tensor(X)
        w = z
        for _ in range(steps):
            w = body(b, w)
            float(us.sum(w))
        single = us.sum(w).grad([b, z])
    assert not chains_behind(*single)
    for found, expected in zip(us.eval(chained), us.eval(single), strict=True):
        close(found, expected, 1e-13)
