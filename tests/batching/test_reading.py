"""Batches of loops keep what is read of them: the part of a record that a derivative reads, outputs met late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.loops.loop import LOOP
from unspool._graph import ancestors

RNG = np.random.default_rng(17)
W = us.tensor(0.5 * RNG.normal(size=(3, 3)))
XS = RNG.normal(size=(4, 3))


def loss(x: us.Tensor) -> us.Tensor:
    y, _ = us.iterate(lambda y: us.tanh(W @ y) + 0.1 * y, x, max_steps=6)
    return us.sum(y**3)


def loops(*results: us.Tensor) -> list[Any]:
    return [node.attributes["loop"] for node in ancestors(results) if node.op is LOOP]


def test_a_gradient_in_x_needs_no_states_where_the_slope_of_tanh_is_known() -> None:
    alone = loops(us.grad(loss)(us.tensor(XS[0])))
    batch = us.vmap(us.grad(loss))(XS)
    forward, backward = loops(batch)
    assert (len(alone[0].stacked), len(forward.stacked), len(backward.stacked)) == (2, 1, 0)
    np.testing.assert_allclose(batch.eval(), [us.grad(loss)(us.tensor(x)).eval() for x in XS], rtol=1e-12)


def test_a_record_of_which_nothing_has_been_read_is_whole() -> None:
    batch = us.vmap(loss)(us.tensor(XS))
    (forward,) = loops(batch)
    assert forward.recorded == 2
    slope = us.grad(lambda xs: us.sum(us.vmap(loss)(xs)))(XS)
    assert len(loops(slope)) == 2


@pytest.mark.parametrize("members", [1, 4])
def test_derivatives_of_a_batch_of_gradients_are_those_of_the_members(members: int) -> None:
    xs = us.tensor(XS[:members])

    def total(xs: us.Tensor) -> us.Tensor:
        return us.sum(us.vmap(us.grad(loss))(xs) ** 2)

    expected = [us.grad(lambda x: us.sum(us.grad(loss)(x) ** 2))(us.tensor(x)).eval() for x in XS[:members]]
    np.testing.assert_allclose(us.grad(total)(xs).eval(), expected, rtol=1e-9)
    _, pushed = us.jvp(total, (xs,), (np.ones((members, 3)),))
    np.testing.assert_allclose(pushed.item(), np.sum(expected), rtol=1e-9)


def test_outputs_of_steps_are_kept_beside_what_is_read_of_the_record() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        y, _, trace = us.iterate(lambda y: (us.sin(y) * us.tanh(y), us.sum(y)), x, max_steps=5, has_outputs=True)
        return us.sum(trace * trace) + us.sum(y)

    found = us.vmap(us.hessian(f))(XS)
    np.testing.assert_allclose(found.eval(), [us.hessian(f)(us.tensor(x)).eval() for x in XS], rtol=1e-9, atol=1e-12)


# --- outputs that are looked at when others have been batched already -------------------------------------------------


def shrunk(x: us.Tensor) -> us.Tensor:
    """Return what a loop that stops by a value ends with: what it stands on is batched when it is recorded."""
    return us.iterate(lambda y: 0.5 * y, x, until=lambda new: abs(new) < 1e-3)[0]


@us.fragment
def both(x: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    return us.tanh(x), us.cos(x)


def outputs_of_a_call(x: us.Tensor) -> us.Tensor:
    first, second = both(us.sum(x))
    return shrunk(first) + second


def parts_of_an_op(x: us.Tensor) -> us.Tensor:
    values, vectors = us.linalg.eigh(us.outer(x, x) + us.diag(us.constant([1.0, 2.0, 4.0])))
    return shrunk(values[-1]) + us.sum(vectors**4)


def parts_of_a_record(x: us.Tensor) -> us.Tensor:
    slope = us.grad(loss)(x)
    curved = us.hvp(loss, (x,), (us.constant([1.0, -1.0, 0.5]),))
    return shrunk(us.sum(slope)) + us.sum(curved)


@pytest.mark.parametrize("f", [outputs_of_a_call, parts_of_an_op, parts_of_a_record])
def test_what_a_later_walk_looks_at_is_there(f: Any) -> None:
    np.testing.assert_allclose(us.vmap(f)(XS).eval(), [f(us.tensor(x)).item() for x in XS], rtol=1e-10)
    expected = [us.grad(f)(us.tensor(x)).eval() for x in XS]
    np.testing.assert_allclose(us.vmap(us.grad(f))(XS).eval(), expected, rtol=1e-8)
