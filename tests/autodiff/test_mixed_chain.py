"""Chains of several plans: the gradient of a loop that goes one way or another is few nodes, and the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from tests.engine.test_folding import by_tape, flush, folding
from unspool._autodiff.chain import LONGEST
from unspool._autodiff.mixed_chain import MIXED_CHAIN, MixedChain
from unspool._graph import Node

X = np.array([0.5, -1.25, 2.0])
A = 0.4 * np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]])

# Which way the steps go: as a value would decide it, but the same on every processor.
WAYS = [int(way) for way in np.random.default_rng(3).integers(0, 2, 300)]


@pytest.fixture(autouse=True)
def _fold_soon() -> Iterator[None]:
    with folding(1):
        yield


def mixed_behind(*tensors: us.Tensor) -> list[MixedChain]:
    """Return the chains of several plans that tensors are made from."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    stack: list[Node] = list(tensors)
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen.add(node.id)
            stack += node.inputs
            if node.op is MIXED_CHAIN:
                found[node.id] = node.attributes["chain"]
    return list(found.values())


Step = Callable[[us.Tensor, us.Tensor, int], us.Tensor]


def two_ways(a: us.Tensor, x: us.Tensor, k: int) -> us.Tensor:
    return us.tanh(a @ x) + 0.5 * us.sin(x) if WAYS[k] else us.sin(x @ a) * 1.1 + 0.05 * us.sum(x)


def sizes_change(a: us.Tensor, x: us.Tensor, k: int) -> us.Tensor:
    rows = np.linspace(-1.0, 1.0, 3 * (1 + k % 4)).reshape(-1, 3)
    return us.tanh(a @ x) - 0.1 * (us.tanh(rows @ x) @ rows)


def one_way_carries_more(a: us.Tensor, x: us.Tensor, k: int) -> us.Tensor:
    """Only one of the ways reads the leaf, elementwise: its sum is carried past steps of the other."""
    return us.tanh(x * a[0] + a[1]) if WAYS[k] else us.cos(x) - 0.2 * x


def inner_loops(a: us.Tensor, x: us.Tensor, k: int) -> us.Tensor:
    """A few steps of another loop from the state on, which is read again after them."""
    y = x
    for _ in range(3):
        y = 0.5 * us.tanh(a @ y + a[0])
        float(us.sum(y))
    return 0.9 * x + 0.1 * y


STEPS: dict[str, Step] = {
    "two ways": two_ways,
    "sizes": sizes_change,
    "one way carries more": one_way_carries_more,
    "inner loops": inner_loops,
}


def run(step: Step, steps: int) -> tuple[us.Tensor, us.Tensor, list[us.Tensor]]:
    """Run a loop that looks at a value in each step; return its leaves and its states."""
    a, x = us.tensor(A), us.tensor(X)
    states = [x]
    for k in range(steps):
        states.append(step(a, states[-1], k))
        float(us.sum(states[-1]))
    flush()
    return a, x, states


def loss_of(states: list[us.Tensor]) -> us.Tensor:
    return us.sum(us.cos(states[-1]) * X)


@pytest.mark.parametrize("steps", [1, 5, 23, 64])
@pytest.mark.parametrize("step", STEPS)
def test_gradients_are_those_of_the_tape(step: str, steps: int) -> None:
    for _ in range(2):
        a, x, states = run(STEPS[step], steps)
        loss = loss_of(states)
        for leaf in (a, x):
            close(loss.grad(leaf), by_tape(loss, leaf), 1e-11)


@pytest.mark.parametrize("step", STEPS)
def test_a_loop_whose_steps_have_several_plans_is_a_chain(step: str) -> None:
    a, x, states = run(STEPS[step], 64)
    chains = mixed_behind(*loss_of(states).grad([a, x]))
    assert len(chains) <= 3
    assert sum(chain.steps for chain in chains) >= 50
    assert all(len(chain.plans) > 1 for chain in chains)


def test_a_chain_has_so_many_steps_at_most() -> None:
    a, _, states = run(two_ways, 300)
    loss = loss_of(states)
    gradient = loss.grad(a)
    steps = [chain.steps for chain in mixed_behind(gradient)]
    assert max(steps) == LONGEST and len(steps) == 2
    close(gradient, by_tape(loss, a), 1e-10)


def test_a_loop_of_one_plan_has_no_chain_of_several() -> None:
    a, x, states = run(lambda a, x, k: us.tanh(a @ x), 40)
    assert not mixed_behind(*loss_of(states).grad([a, x]))


def test_every_state_has_its_cotangent() -> None:
    _, _, states = run(two_ways, 24)
    loss = loss_of(states) + us.sum(states[7] * states[12])
    for state, gradient in zip(states, loss.grad(states), strict=True):
        close(gradient, by_tape(loss, state), 1e-11)


@pytest.mark.parametrize("step", STEPS)
def test_a_chain_is_differentiated_again_in_both_modes(step: str) -> None:
    a, x, states = run(STEPS[step], 20)
    v = us.tensor(np.array([0.3, -0.7, 0.2]))
    slope = us.sum(loss_of(states).grad(x) * v)
    assert mixed_behind(slope)
    for leaf in (a, x):
        close(slope.grad(leaf), by_tape(slope, leaf), 1e-10)
    _, pushed = us.jvp(lambda x: loss_on(STEPS[step], x, 20).grad(x), (x,), (v,))
    close(pushed, slope.grad(x), 1e-10)


def loss_on(step: Step, x: us.Tensor, steps: int) -> us.Tensor:
    a, y = us.tensor(A), x
    for k in range(steps):
        y = step(a, y, k)
    return us.sum(us.cos(y) * X)


@pytest.mark.parametrize("step", STEPS)
def test_the_first_run_and_later_ones_have_the_same_bits(step: str) -> None:
    us.clear_caches()
    found = []
    for _ in range(3):
        a, x, states = run(STEPS[step], 64)
        found.append([g.eval().tobytes() for g in loss_of(states).grad([a, x])])
    assert found[0] == found[1] == found[2]


LARGE: dict[str, Step] = {
    "two ways": lambda a, x, k: us.tanh(a * us.roll(x, 1)) + 0.5 * us.sin(x) if WAYS[k] else us.sin(x * a) * us.sum(x),
    "sizes": lambda a, x, k: us.tanh(a * x) - 0.1 * us.sum(x[: 500 * (1 + k % 4)]),
    "one way carries more": lambda a, x, k: us.tanh(x * a + 0.3) if WAYS[k] else us.cos(x) - 0.2 * x,
}


@pytest.mark.parametrize("part", [0.75, 0.4, 0.2])
@pytest.mark.parametrize("step", LARGE)
def test_a_budget_changes_no_bit_and_holds(step: str, part: float) -> None:
    def gradient() -> us.Tensor:
        a, x = us.tensor(np.linspace(0.2, 0.9, 3000)), us.tensor(np.linspace(-1.0, 1.0, 3000))
        y = x
        for k in range(100):
            y = LARGE[step](a, y, k)
            float(us.sum(y))
        flush()
        return us.sum(y * y).grad(x)

    with us.memory("1GB") as scope:
        found = gradient()
        assert mixed_behind(found)
        free = found.eval().tobytes()
        del found
    budget = int(part * scope.report().peak)
    with us.memory(budget) as scope:
        assert gradient().eval().tobytes() == free
    assert scope.report().peak <= budget


def test_a_gradient_comes_back_from_a_file(tmp_path: Path) -> None:
    a, x, states = run(two_ways, 40)
    gradient = loss_of(states).grad(a)
    assert mixed_behind(gradient)
    us.save(tmp_path / "gradient", [gradient, a])
    expected = gradient.eval()
    del a, x, states, gradient
    loaded, _ = us.load(tmp_path / "gradient")
    assert mixed_behind(loaded)
    assert loaded.eval().tobytes() == expected.tobytes()


def test_gradients_are_batched() -> None:
    _, x, states = run(two_ways, 24)
    rows = np.array([[1.0, 0.0, 0.5], [0.25, -1.0, 0.0]])
    last = states[-1]
    jacobian = us.vmap(lambda v: us.sum(last * v).grad(x))(us.tensor(rows))
    for row, found in zip(rows, jacobian.eval(), strict=True):
        loss = us.sum(last * row)
        close(found, by_tape(loss, x), 1e-11)


def test_a_nan_in_a_chain_is_found_in_its_step() -> None:
    def step(a: us.Tensor, x: us.Tensor, k: int) -> us.Tensor:
        # Where a root is zero its derivative is infinite, and that of the square is zero: only a backward pass has NaN.
        shift = float(x[0]) if k == 11 else 10.0
        y = us.sqrt((x - shift) ** 2)
        return us.tanh(a @ y) if WAYS[k] else us.sin(y @ a)

    a, _, states = run(step, 24)
    gradient = loss_of(states).grad(a)
    assert mixed_behind(gradient)
    with us.debug.check_nan(), pytest.raises(us.errors.NaNError, match="step 11 of a loop"):
        gradient.eval()
    gradient.eval()
    report = us.debug.first_nan(gradient)
    assert report is not None and report.steps == (11,)


def test_what_is_told_of_a_gradient_counts_the_steps_of_all_plans() -> None:
    a, _, states = run(two_ways, 40)
    found = us.explain(loss_of(states), wrt=a).gradient
    assert sum(loop.steps + loop.calls for loop in found.loops) == 40
