"""Matrices that all members of a loop share: which are turned before the loop, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._batching.turning import TURNED, turned
from unspool._graph import ancestors

RNG = np.random.default_rng(11)
W = 0.5 * RNG.normal(size=(4, 4))
XS = RNG.normal(size=(3, 4))
STEPS = 5


def products(w: Any, x: Any) -> us.Tensor:
    """Return wⁿ x, whose derivatives have a closed form."""
    return us.iterate(lambda y: w @ y, x, max_steps=STEPS)[0]


def copies(*results: us.Tensor) -> int:
    return sum(node.op is TURNED for node in ancestors(results))


def power_slopes(weights: Any, xs: Any) -> Any:
    """Return the gradient in w of the sum of the products wⁿ x of all members with weights."""
    powers = [np.linalg.matrix_power(W, k) for k in range(STEPS)]
    pairs = list(zip(weights, xs, strict=True))
    return sum(np.outer(powers[STEPS - 1 - k].T @ c, powers[k] @ x) for k in range(STEPS) for c, x in pairs)


def test_a_matrix_that_is_read_across_is_turned_once_and_the_other_way_round_not() -> None:
    w = us.tensor(W)
    across = us.vmap(lambda x: products(w, x))(XS)
    along = us.vmap(lambda x: us.iterate(lambda y: y @ w, x, max_steps=STEPS)[0])(XS)
    power = np.linalg.matrix_power(W, STEPS)
    assert (copies(across), copies(along)) == (1, 0)
    np.testing.assert_allclose(across.eval(), XS @ power.T, rtol=1e-12)
    np.testing.assert_allclose(along.eval(), XS @ power, rtol=1e-12)


def test_derivatives_of_both_modes_are_those_of_the_closed_form() -> None:
    weights = RNG.normal(size=(3, 4))
    w, xs = us.tensor(W), us.tensor(XS)

    def batch(w: us.Tensor, xs: us.Tensor) -> us.Tensor:
        return us.sum(us.vmap(lambda x: products(w, x))(xs) * weights)

    by_w, by_xs = us.grad(batch, argnums=(0, 1))(w, xs)
    assert copies(by_w) > 0
    np.testing.assert_allclose(by_w.eval(), power_slopes(weights, XS), rtol=1e-11)
    np.testing.assert_allclose(by_xs.eval(), weights @ np.linalg.matrix_power(W, STEPS), rtol=1e-11)
    direction = RNG.normal(size=W.shape)
    _, pushed = us.jvp(lambda w: batch(w, xs), (w,), (direction,))
    np.testing.assert_allclose(pushed.item(), np.sum(direction * power_slopes(weights, XS)), rtol=1e-11)


def test_second_derivatives_are_those_of_the_members() -> None:
    def loss(w: us.Tensor, x: us.Tensor) -> us.Tensor:
        return us.sum(us.tanh(products(w, x)))

    direction = RNG.normal(size=W.shape)
    of_batch = us.hvp(lambda w: us.sum(us.vmap(lambda x: loss(w, x))(XS)), (W,), (direction,))
    alone = sum(us.hvp(lambda w, x=x: loss(w, us.tensor(x)), (W,), (direction,)).eval() for x in XS)
    np.testing.assert_allclose(of_batch.eval(), alone, rtol=1e-9)


def test_batches_of_batches_turn_a_stack_of_matrices() -> None:
    ws = np.stack([W, 2.0 * W, -W.T])
    found = us.vmap(lambda w: us.vmap(lambda x: products(w, x))(us.tensor(XS)))(ws)
    assert [node.shape for node in ancestors([found]) if node.op is TURNED] == [(3, 4, 4)]
    np.testing.assert_allclose(found.eval(), [XS @ np.linalg.matrix_power(w, STEPS).T for w in ws], rtol=1e-11)


@pytest.mark.parametrize("adjoint", [None, us.Checkpointed(slots=2)], ids=["unrolled", "checkpointed"])
def test_a_fragment_for_any_number_of_members_turns_it_too(adjoint: Any) -> None:
    w = us.tensor(W)

    @us.fragment
    def batch(xs: us.Tensor) -> us.Tensor:
        return us.vmap(lambda x: us.iterate(lambda y: w @ y, x, max_steps=STEPS, adjoint=adjoint)[0])(xs)

    assert "turned" in str(batch.trace(us.tensor(XS)))
    for count in (1, 3, 5):
        xs = RNG.normal(size=(count, 4))
        np.testing.assert_allclose(batch(xs).eval(), xs @ np.linalg.matrix_power(W, STEPS).T, rtol=1e-11)


LEFT: dict[str, tuple[Callable[..., Any], Any]] = {
    "differs among members": (lambda x: products(us.outer(x, x), x), XS),
    "changes from step to step": (
        lambda x: us.iterate(lambda s: (2.0 * s[0], s[0] @ s[1]), (us.tensor(W), x), max_steps=2)[0][1],
        XS,
    ),
    "complex": (lambda x: products(us.tensor(W + 1j), x), XS + 0j),
    "large": (lambda x: products(us.tensor(np.eye(200)), x), np.ones((3, 200))),
    "a row": (lambda x: us.iterate(lambda y: us.tensor(np.ones((1, 1))) @ y, x, max_steps=2)[0], np.ones((3, 1))),
}


@pytest.mark.parametrize(("f", "xs"), LEFT.values(), ids=LEFT.keys())
def test_others_are_left_as_they_are(f: Callable[..., Any], xs: Any) -> None:
    assert copies(us.vmap(f)(us.tensor(xs))) == 0


def test_a_single_product_needs_no_copy() -> None:
    w = us.tensor(W)
    assert copies(us.vmap(lambda x: w @ x)(us.tensor(XS))) == 0


def test_the_copy_lies_in_memory_of_its_own_and_is_differentiated() -> None:
    w = us.tensor(W[:, :1])
    copy = turned(w)
    assert copy.eval().flags.c_contiguous
    assert not np.shares_memory(copy.eval(), w.eval())
    us.check_grad(lambda w: us.sum(turned(w) ** 3), us.tensor(W))
