"""Sums of outer products and of rows: they are gathered in blocks, and where chains end is seen in no bit of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.sweeps import gathering, placing

STEPS = 300
W = np.random.default_rng(0).normal(size=(6, 6)) / 3.0
TABLE = np.random.default_rng(1).normal(size=(7, 6))

Loop = Callable[[us.Tensor, us.Tensor], us.Tensor]


def products(w: us.Tensor, table: us.Tensor) -> us.Tensor:
    """One product a step."""
    x = us.ones(6)
    for _ in range(STEPS):
        x = us.tanh(w @ x + 0.1 * table[0])
        float(x[0])
    return us.sum(x * x)


def two_of_one_form(w: us.Tensor, table: us.Tensor) -> us.Tensor:
    """Two products a step that are gathered together."""
    x = us.ones(6)
    for _ in range(STEPS):
        x = us.tanh(w @ us.tanh(w @ x) + 0.1 * table[0])
        float(x[0])
    return us.sum(x * x)


def now_this_now_that(w: us.Tensor, table: us.Tensor) -> us.Tensor:
    """Steps of two kinds, whose products are gathered together; rows of a table and one of its columns."""
    x = us.ones(6)
    for k in range(STEPS):
        if k % 7 in (2, 3, 5):
            x = us.tanh(w @ x + 0.1 * table[k % 7])
        else:
            x = x - 0.1 * us.sin(w @ x) * table[k % 5] + 0.01 * us.sum(table[:, k % 6])
        float(x[0])
    return us.sum(x * x)


def product_and_whole(w: us.Tensor, table: us.Tensor) -> us.Tensor:
    """Beside its products, all of the matrix is read in each step."""
    x = us.ones(6)
    for _ in range(STEPS):
        x = us.tanh(w @ x - 0.1 * us.sum(w * w) * table[1])
        float(x[0])
    return us.sum(x * x)


def thin_products(w: us.Tensor, table: us.Tensor) -> us.Tensor:
    """A large matrix is multiplied with two vectors at a time."""
    big = us.tile(w, (16, 16))
    x = us.ones((96, 2))
    for _ in range(STEPS // 3):
        x = us.tanh(0.3 * (big @ x) + 0.1 * table[0, :2])
        float(x[0, 0])
    return us.sum(x * x)


LOOPS = [thin_products, products, two_of_one_form, now_this_now_that, product_and_whole]


def gradients(loop: Loop) -> list[np.ndarray]:
    """Return the gradient of a loop of tensors that are new."""
    w, table = us.tensor(W.copy()), us.tensor(TABLE.copy())
    return [found.eval() for found in loop(w, table).grad([w, table])]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("longest", [4, 17, 100])
def test_bits_of_a_sum_do_not_depend_on_where_chains_end(
    loop: Loop, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = gradients(loop)
    monkeypatch.setattr(placing, "LONGEST", longest)
    assert [found.tobytes() for found in gradients(loop)] == [one.tobytes() for one in expected]


@pytest.mark.parametrize("loop", LOOPS)
def test_bits_of_a_sum_do_not_depend_on_whether_there_are_chains(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = gradients(loop)
    monkeypatch.setattr(placing, "SHORTEST", STEPS + 1)
    assert [found.tobytes() for found in gradients(loop)] == [one.tobytes() for one in expected]


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_gathered_is_what_is_added_one_by_one(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = gradients(loop)
    monkeypatch.setattr(gathering, "FEWEST", 10 * STEPS)
    for found, expected in zip(gathered, gradients(loop), strict=True):
        close(found, expected, 1e-12)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_gradient_is_that_of_differences(loop: Loop) -> None:
    rng, h = np.random.default_rng(2), 1e-6
    along = [rng.normal(size=W.shape), rng.normal(size=TABLE.shape)]

    def moved(sign: float) -> float:
        return float(loop(*[us.tensor(a + sign * h * d) for a, d in zip((W, TABLE), along, strict=True)]))

    slope = sum([np.sum(g * d) for g, d in zip(gradients(loop), along, strict=True)])
    close(slope, (moved(1.0) - moved(-1.0)) / (2 * h), 1e-6)


def test_a_block_has_as_many_terms_as_its_factors_have_room_for() -> None:
    # The factors are 1,024 bytes a term: 32 terms are a block.
    w = us.tensor(np.random.default_rng(3).normal(size=(64, 64)) / 64)
    x = us.ones(64)
    for _ in range(320):
        x = us.tanh(w @ x)
        float(x[0])
    gradient = us.sum(x).grad(w)
    nodes, waiting = {gradient.id: gradient}, [gradient]
    while waiting:
        for operand in waiting.pop().inputs:
            if operand.id not in nodes:
                nodes[operand.id] = operand
                waiting.append(operand)
    blocks = [node for node in nodes.values() if node.op.name == "contract" and node.shape == (64, 64)]
    assert len(blocks) == 10
