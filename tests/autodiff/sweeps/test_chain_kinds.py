"""Chains of loops that branch, nest and pass values over steps: one node for hundreds of steps, of several kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.autodiff.sweeps.test_chain import chains_behind
from tests.closeness import close
from tests.engine.test_folding import by_tape, flush, folding
from unspool._autodiff.sweeps import placing
from unspool.errors import NaNError

STEPS = 120
A = np.random.default_rng(0).normal(size=(4, 4)) / 3.0
X = np.random.default_rng(1).normal(size=4)

Loop = Callable[[us.Tensor, us.Tensor], us.Tensor]


@pytest.fixture(autouse=True)
def _fold_soon() -> Iterator[None]:
    with folding(1):
        yield


def branching(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    for _ in range(STEPS):
        x = us.tanh(a @ x) if float(x[0]) > 0.0 else 0.9 * us.cos(x) - 0.5 * (a @ x)
    return us.sum(x * x)


def nested(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    z = 0.1 * x
    for k in range(STEPS // 6):
        y = z
        for _ in range(4 + k % 3):
            y = 0.7 * us.tanh(a @ y + x)
            float(y[0])
        z = 0.9 * z + 0.1 * y
        float(z[0])
    return us.sum(z * z)


def alternating(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    """Each state stands still while the other is updated."""
    y = 0.5 * x
    for k in range(STEPS):
        if k % 3 == 1:
            y = us.tanh(a @ y)
            float(y[0])
        else:
            x = 0.8 * us.sin(x) + 0.1
            float(x[0])
    return us.sum(x * y)


def late_readers(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    """A value is read one, two and three steps after it was made."""
    states = [x, 0.5 * x, 0.25 * x]
    for _ in range(STEPS):
        x = 0.5 * us.tanh(a @ states[-1]) + 0.3 * us.sin(states[-2]) - 0.2 * states[-3]
        float(x[0])
        states = [*states[1:], x]
    return us.sum(x * x)


def summing(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    """All of the matrix is read in each step, in two ways, so that its cotangent is a sum that is carried."""
    big = us.tile(a, (12, 12))
    y = us.tile(us.reshape(x, (4, 1)), (12, 48)) / 48.0
    for k in range(STEPS // 3):
        y = 0.2 * us.tanh(big @ y) if k % 4 else 0.2 * us.sin(y @ big) + 0.01 * y
        float(us.sum(y))
    return 100.0 * us.sum(y * y)


LOOPS = [branching, nested, alternating, late_readers, summing]
EVERY = pytest.mark.parametrize("loop", LOOPS)


def run(loop: Loop) -> tuple[us.Tensor, us.Tensor, us.Tensor]:
    """Run a loop twice, so that the second one is folded from its first step on."""
    for _ in range(2):
        a, x = us.tensor(A), us.tensor(X)
        loss = loop(a, x)
        flush()
    return a, x, loss


@EVERY
def test_nearly_all_steps_are_in_few_chains(loop: Loop) -> None:
    a, x, loss = run(loop)
    chains: list[Any] = chains_behind(*loss.grad([a, x]))
    steps = STEPS // 3 if loop is summing else STEPS
    assert sum(node.attributes["chain"].steps for node in chains) > 0.9 * steps
    assert len(chains) <= 3


@EVERY
def test_gradients_are_those_of_single_nodes(loop: Loop) -> None:
    a, x, loss = run(loop)
    for leaf, found in zip((a, x), loss.grad([a, x]), strict=True):
        close(found, by_tape(loss, leaf), 1e-12)


@EVERY
@pytest.mark.parametrize("longest", [7, 50])
def test_bits_do_not_depend_on_where_a_chain_is_cut(loop: Loop, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(loop)
    expected = us.eval(whole[2].grad(whole[:2]))
    monkeypatch.setattr(placing, "LONGEST", longest)
    cut = run(loop)
    for found, one in zip(us.eval(cut[2].grad(cut[:2])), expected, strict=True):
        assert found.tobytes() == one.tobytes()


@EVERY
def test_bits_are_those_of_calls(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(loop)
    expected = us.eval(whole[2].grad(whole[:2]))
    monkeypatch.setattr(placing, "SHORTEST", 10 * STEPS)
    single = run(loop)
    gradients = single[2].grad(single[:2])
    assert not chains_behind(*gradients)
    for found, one in zip(us.eval(gradients), expected, strict=True):
        assert found.tobytes() == one.tobytes()


@EVERY
def test_second_derivatives(loop: Loop) -> None:
    _, x, loss = run(loop)
    gradient = loss.grad(x)
    along = np.random.default_rng(2).normal(size=X.shape)
    reverse = us.sum(gradient * along).grad(x)
    h = 1e-5

    def moved(sign: float) -> np.ndarray:
        b, y = us.tensor(A), us.tensor(X + sign * h * along)
        return loop(b, y).grad(y).eval()

    expected = (moved(1.0) - moved(-1.0)) / (2 * h)
    close(reverse, expected, 1e-5)


@EVERY
@pytest.mark.parametrize("share", [2, 4])
def test_a_budget_changes_no_bit(loop: Loop, share: int) -> None:
    with us.memory("1GB") as free:
        b, y, again = run(loop)
        expected = us.eval(again.grad([b, y]))
    peak = free.report().peak
    with us.memory(max(peak // share, 20_000)) as tight:
        b, y, again = run(loop)
        found = us.eval(again.grad([b, y]))
    assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]
    assert tight.report().peak <= max(peak // share, 20_000)


def test_a_nan_in_a_chain_is_found_in_its_step() -> None:
    def loop(x: us.Tensor) -> us.Tensor:
        for k in range(60):
            # The derivative of the root is infinite at zero, and multiplied by zero.
            x = x * us.sqrt(us.maximum(x - x, 0.0)) + 0.5 * x if k == 30 else (0.9 * x if k % 3 else us.sin(x))
            float(x[0])
        return us.sum(x)

    x = us.tensor(X)
    gradient = loop(x).grad(x)
    with us.debug.check_nan(), pytest.raises(NaNError, match="sqrt|multiply|divide"):
        gradient.eval()
