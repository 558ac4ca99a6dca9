"""What is folded, and when, follows from a program alone: not from what ran before it, runs beside it, or waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.budgets import PROGRAMS, outcome, same_bits
from unspool._engine.default import default_engine
from unspool._engine.folding.fold_queue import (
    FEWEST_ALIKE,
    FEWEST_LARGE,
    FEWEST_LONG,
    FOLD_AFTER,
    LARGE_ARRAY,
    MANY_LARGE,
    MANY_NODES,
    MOST_WAITING,
)
from unspool._fragments.call import Projection

STEPS = 150


def drift() -> Iterator[Any]:
    """A loop whose steps have a term in common, ``tanh(v)``; yields nothing after each step, and a gradient last."""
    rng = np.random.default_rng(0)
    v, w = us.tensor(rng.normal(size=7)), us.tensor(rng.normal(size=7))
    leaves = [v, w]
    for _ in range(STEPS):
        s = us.sum(w)
        w = 0.6 * w + 0.4 * us.tanh(v)
        float(s)
        yield None
    yield us.eval(us.sum(w * w).grad(leaves))


def finish(loop: Iterator[Any]) -> Any:
    """Return what a loop yields last."""
    return list(loop)[-1]


@pytest.fixture(scope="module")
def alone() -> Any:
    default_engine().queue.flush()
    return finish(drift())


def short_loop(steps: int) -> us.Tensor:
    """A loop on leaves of its own; pieces of it wait as long as what it returns is held."""
    a = x = us.tensor(np.linspace(0.0, 1.0, 5))
    for _ in range(steps):
        x = us.sin(a * x) + 0.1
        float(us.sum(x))
    return x


@pytest.mark.parametrize("steps", [1, 5, 20, 40, 64, 65, 100])
def test_a_gradient_has_the_same_bits_after_another_loop(steps: int, alone: Any) -> None:
    held = short_loop(steps)
    same_bits(finish(drift()), alone)
    assert held.shape == (5,)


def test_a_gradient_has_the_same_bits_after_one_of_another_program(alone: Any) -> None:
    for name in ("plain", "summed", "sweep"):
        found = outcome(PROGRAMS[name])
        same_bits(finish(drift()), alone)
        del found


@pytest.mark.parametrize("every", [1, 2, 7])
def test_a_gradient_has_the_same_bits_if_another_loop_runs_beside(every: int, alone: Any) -> None:
    x = us.tensor(np.linspace(0.0, 1.0, 5))
    yielded: list[Any] = []
    for step, each in enumerate(drift()):
        yielded.append(each)
        if step % every == 0:
            x = us.cos(x) * 0.9
            float(us.sum(x))
    same_bits(yielded[-1], alone)


def test_a_gradient_has_the_same_bits_while_many_results_are_held(alone: Any) -> None:
    held = [us.exp(us.tensor(np.array([1.0, float(i)]))) * 0.5 for i in range(700)]
    us.eval(held)
    for each in held:
        (each + 1.0).eval()
    same_bits(finish(drift()), alone)


def folded_after(beside: Callable[[], Any]) -> list[int]:
    """Return after which steps of a loop earlier ones were folded, and how many were by then."""
    x = us.tensor(np.array([0.5, -1.25, 2.0]))
    states: list[us.Tensor] = []
    counts: list[int] = []
    for _ in range(3 * MOST_WAITING):
        x = us.sin(x) * 0.5 + x
        float(x[0])
        states.append(x)
        beside()
        counts.append(sum(isinstance(state, Projection) for state in states))
    return counts


def test_a_loop_is_folded_when_it_is_deep_and_the_newest_pieces_wait() -> None:
    counts = folded_after(lambda: None)
    assert not any(counts[:MOST_WAITING])
    assert counts[MOST_WAITING] == MOST_WAITING + 1 - FOLD_AFTER
    for step, count in enumerate(counts[MOST_WAITING:], start=MOST_WAITING + 1):
        assert FOLD_AFTER <= step - count <= MOST_WAITING


ENOUGH = -(-MANY_NODES // FEWEST_LONG)
ENOUGH_LARGE = -(-MANY_LARGE // FEWEST_LARGE)


@pytest.mark.parametrize(
    ("reads", "operations", "size", "is_folded"),
    [
        (FEWEST_LONG, ENOUGH, 3, True),
        (FEWEST_LONG, ENOUGH - 1, 3, False),
        (FEWEST_LONG - 1, 2 * ENOUGH, 3, False),
        (2 * FEWEST_LONG, -(-MANY_NODES // (2 * FEWEST_LONG)), 3, True),
        (FEWEST_LARGE - 1, ENOUGH_LARGE + 4, LARGE_ARRAY // 8, False),
        (FEWEST_LARGE, ENOUGH_LARGE, LARGE_ARRAY // 8, True),
    ],
)
def test_a_short_loop_is_folded_if_it_has_many_operations(
    reads: int, operations: int, size: int, is_folded: bool
) -> None:
    start = np.linspace(0.5, 1.5, size)
    leaf = x = us.tensor(start)
    value, slope = start, np.ones(size)
    for _ in range(reads):
        for _ in range(operations - 1):
            x = us.sin(x)
            value, slope = np.sin(value), slope * np.cos(value)
        float(us.sum(x))
    found = us.sum(x).grad(leaf)
    assert isinstance(x, Projection) == is_folded
    np.testing.assert_allclose(found.eval(), slope, rtol=1e-12)


def test_what_is_no_body_of_a_short_loop_stays_in_it() -> None:
    leaf = x = us.tensor(np.array([0.5, 1.0]))
    states: dict[str, list[us.Tensor]] = {"sine": [], "cosine": []}
    for step in range(4 * FEWEST_ALIKE):
        name = "cosine" if step % 4 == 3 and step > 4 else "sine"
        for _ in range(ENOUGH):
            x = us.cos(x) if name == "cosine" else us.sin(x)
        float(us.sum(x))
        states[name].append(x)
    assert 0 < len(states["cosine"]) < FEWEST_ALIKE <= len(states["sine"]) - 1
    us.sum(x).grad(leaf)
    assert not any(isinstance(state, Projection) for state in states["cosine"])
    assert all(isinstance(state, Projection) for state in states["sine"][1:])


def descent(steps: int, slope_of: Callable[[us.Tensor, us.Tensor], us.Tensor]) -> tuple[Any, list[us.Tensor]]:
    """Descend on ``sum(a w²) / 2``, reading it; return the leaf that it starts from, and its states.

    A step that takes a gradient by the newest state folds nothing that made it.
    """
    leaf = w = us.tensor(np.array([1.0, -2.0, 0.5]))
    states = []
    loss = height(w)
    float(loss)
    for _ in range(steps):
        slope = slope_of(loss, w)
        assert not isinstance(w, Projection)
        w = w - 0.1 * slope
        loss = height(w)
        float(loss)
        states.append(w)
    return leaf, states


def height(w: us.Tensor) -> us.Tensor:
    return us.sum(np.array([0.5, 1.0, 2.0]) * w * w) * 0.5


@pytest.mark.parametrize("slope_of", [lambda loss, w: loss.grad(w), lambda loss, w: us.grad(height)(w)])
def test_a_gradient_by_the_newest_state_folds_no_loop_and_one_by_the_first_does(slope_of: Any) -> None:
    steps = MOST_WAITING - 4
    leaf, states = descent(steps, slope_of)
    found = us.sum(states[-1]).grad(leaf)
    assert all(isinstance(state, Projection) for state in states[3:])
    np.testing.assert_allclose(found.eval(), (1.0 - 0.1 * np.array([0.5, 1.0, 2.0])) ** steps, rtol=1e-12)


def test_a_gradient_by_a_state_many_steps_ago_folds_the_steps_since() -> None:
    leaf = x = us.tensor(np.array([0.5, 1.0]))
    states = []
    for _ in range(4 * FEWEST_LONG):
        for _ in range(ENOUGH):
            x = us.sin(x)
        float(us.sum(x))
        states.append(x)
    us.sum(x).grad(states[-FEWEST_LONG + 1])
    assert not any(isinstance(state, Projection) for state in states[-FEWEST_LONG + 1 :])
    us.sum(x).grad(states[FEWEST_LONG])
    assert all(isinstance(state, Projection) for state in states[1:])
    assert not isinstance(leaf, Projection)


def test_a_loop_is_folded_at_the_same_steps_whatever_waits_beside_it() -> None:
    others: list[us.Tensor] = []

    def beside() -> None:
        others.append(us.sin(us.tensor(np.array(0.1 * len(others)))) + 1.0)
        others[-1].eval()

    assert folded_after(beside) == folded_after(lambda: None)


def roots(count: int) -> Any:
    """The gradient of a sum of square roots, each by a loop of its own with some steps of Newton's method."""
    a = us.tensor(np.random.default_rng(0).uniform(0.5, 3.0, size=(count, 4)))
    total: Any = 0.0
    for k in range(count):
        x = a[k]
        while float(us.sum(us.abs(x * x - a[k]))) > 1e-10:
            x = 0.5 * (x + a[k] / x)
        total = total + us.sum(x)
    return us.eval(total.grad(a))


def test_many_short_loops_have_the_same_bits_in_every_run() -> None:
    # So many pieces wait that some are folded on the way, at places that depend on what waits from before.
    default_engine().queue.flush()
    first = roots(300)
    for before in (0, 100, 300):
        held = short_loop(before)
        same_bits(roots(300), first)
        assert held.shape == (5,)
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(first, 0.5 / np.sqrt(rng.uniform(0.5, 3.0, size=(300, 4))), atol=1e-9)


def samples(count: int, w: us.Tensor) -> list[us.Tensor]:
    losses = []
    for k in range(count):
        losses.append(us.sum(us.sin(w * float(k))))
        float(losses[-1])
    return losses


@pytest.mark.parametrize(("count", "is_folded"), [(MOST_WAITING, False), (MOST_WAITING + 1, True)])
def test_steps_that_read_the_same_and_not_each_other_are_folded_if_they_are_many(count: int, is_folded: bool) -> None:
    w = us.tensor(np.array([0.5, -1.25, 2.0]))
    others = samples(MOST_WAITING, us.tensor(np.array([1.0, 2.0, 3.0])))  # of another program: they do not count
    losses = samples(count, w)
    found = us.eval(us.sum(us.stack(losses)).grad(w))
    assert [isinstance(loss, Projection) for loss in losses] == [is_folded] * count
    assert not any(isinstance(other, Projection) for other in others)
    steps = np.arange(count)[:, None]
    np.testing.assert_allclose(found, np.sum(steps * np.cos(steps * np.array([0.5, -1.25, 2.0])), 0), rtol=1e-11)


def test_what_is_made_of_constants_does_not_become_part_of_the_program_that_computed_it() -> None:
    def gradient() -> us.Tensor:
        x = us.tensor(np.linspace(0.0, 1.0, 6).reshape(2, 3))
        return us.sum(us.sin(x) * us.eye(3)[:2]).grad(x)

    for _ in range(3):
        common = us.eye(3)  # somebody else's, and not evaluated yet
        found = gradient()
        found.eval()
        default_engine().queue.flush()
    assert isinstance(found, Projection)
    assert common.value is not None  # it was computed with the gradient
    assert not isinstance(common, Projection)
    np.testing.assert_array_equal(common.eval(), np.eye(3))
