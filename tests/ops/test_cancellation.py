"""What a sum is made of, and how large that is, whatever is left of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops.cancellation import noise_of, scale_of, terms_of

X, Y = us.tensor([[3.0, -1.0], [0.5, 2.0]]), us.tensor([[-3.0, 1.0], [-0.5, 2.0]])

TINY = 2.0**-200

MOVES = {
    "as it is": lambda total: total,
    "transposed": lambda total: total.T,
    "reshaped": lambda total: us.reshape(total, (4,)),
    "negated": lambda total: -total,
    "joined": lambda total: us.concat([total, us.ones((1, 2))], axis=0),
}


@pytest.mark.parametrize("name", ["as it is", "transposed", "reshaped", "negated", "joined"])
def test_a_sum_that_is_moved_has_the_terms_of_the_sum(name: str) -> None:
    found = terms_of(MOVES[name](X + Y))
    assert {X.id, Y.id} <= {term.id for term in found}


def test_a_difference_has_the_scale_of_its_terms() -> None:
    assert float(scale_of(X * 50.0 - X * 49.0, stack=0)) == 150.0
    assert float(scale_of(X, stack=0)) == 3.0
    assert float(scale_of(X, None, 7.0 * X, stack=0)) == 21.0


def test_what_is_no_sum_has_no_terms_and_no_noise() -> None:
    assert terms_of(X) == [] and terms_of(X @ Y) == []
    assert noise_of(X @ Y, 1e-3) is None
    assert float(noise_of(X + Y, 1e-3)) == pytest.approx(1e-3 * np.linalg.norm(X.eval()))  # type: ignore[arg-type]


def cotangents_of(stack: us.Tensor, loss: Any) -> us.Tensor:
    return loss(stack).grad(stack)


def test_the_cotangent_of_a_slice_has_the_terms_that_arrived_there() -> None:
    def loss(x: us.Tensor) -> us.Tensor:
        part = x[:, :1]
        return us.sum(5.0 * part) - us.sum(part * np.array([[5.0], [5.0]]))

    ct = cotangents_of(X, loss)
    assert not np.any(ct.eval())
    assert float(scale_of(ct, stack=0)) == 5.0


def test_each_entry_of_a_stack_has_a_scale_of_its_own() -> None:
    weights = np.array([1.0, TINY])[:, None, None] * np.ones((2, 2, 2))
    stack = us.tensor(weights)
    np.testing.assert_array_equal(scale_of(stack * 3.0 - stack, stack=1).eval(), [3.0, 3 * TINY])
    # Where a sum has moved across the entries, its terms belong to others.
    moved = us.flip(stack * 3.0 - stack, axis=0)
    np.testing.assert_array_equal(scale_of(moved, stack=1).eval(), [2 * TINY, 2.0])


def test_no_derivative_goes_through_a_scale() -> None:
    x = us.tensor(2.0)
    assert float((x * scale_of(us.reshape(x, (1,)) + 1.0, stack=0)).grad(x)) == 3.0
