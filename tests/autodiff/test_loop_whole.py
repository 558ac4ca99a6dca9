"""Loops that run in one go give what a runner gives, bit for bit, and fail as it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.loop_run import run_steps
from unspool._autodiff.loop_whole import run_whole
from unspool._graph import Node, ancestors

A = np.array([[1.1, 0.2, 0.0], [0.1, 0.9, 0.3], [0.0, -0.2, 1.0]])


def vector(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.sum(us.iterate(lambda s: us.tanh(a @ s), x, max_steps=4)[0])


def number(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.iterate(lambda s: s * us.sum(a) * 0.1 + us.sum(x), us.sum(x), max_steps=5)[0]


def several(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    def step(s: Any) -> Any:
        v, matrix, fixed = s
        return (matrix @ v + fixed, matrix * 0.5, fixed), us.sum(v * v)

    (v, _, fixed), _, outputs = us.iterate(step, (x, a, x), max_steps=3, has_outputs=True)
    return us.sum(v * fixed) + us.sum(outputs)


def large(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    wide = us.kron(us.eye(40), a)
    return us.sum(us.iterate(lambda s: us.sin(wide @ s), us.tile(x, 40), max_steps=6)[0])


def loops_of(loss: Callable[..., us.Tensor]) -> list[Node]:
    """Return the loops in a loss and its first two derivatives, with values behind them."""
    a, x = us.tensor(A), us.tensor([0.3, -0.2, 0.5])
    made = loss(a, x)
    first = made.grad([a, x])
    second = us.sum(first[0] * first[0]).grad([a, x])
    us.eval(second)
    return [node for node in ancestors([*first, *second]) if node.op.name == "loop"]


# How many are whole at least: the loop, and its adjoint if that has one body.
@pytest.mark.parametrize(("loss", "least"), [(vector, 2), (number, 2), (several, 1), (large, 2)])
def test_the_bits_are_those_of_a_runner(loss: Callable[..., us.Tensor], least: int) -> None:
    compared = 0
    for node in loops_of(loss):
        loop, arrays = node.attributes["loop"], values_of(node)
        whole, runner = run_whole(loop, arrays), run_steps(loop, arrays)
        if whole is None:
            assert len(loop.bodies) > 1 or not set(loop.bodies[0].reads) <= set(loop.entering)
            continue
        compared += 1
        expected = (*runner.leaving(), *runner.stacked(), *runner.totals())
        assert [(x.shape, x.dtype, x.tobytes()) for x in whole] == [(x.shape, x.dtype, x.tobytes()) for x in expected]
    assert compared >= least


def values_of(node: Node) -> list[Any]:
    """Return the values of the inputs of a node."""
    return [np.asarray(x) for x in us.eval(list(node.inputs))]


def test_what_leaves_does_not_hold_a_history() -> None:
    node = loops_of(vector)[0]
    final = run_whole(node.attributes["loop"], values_of(node))[0]  # type: ignore[index]
    assert final.base is None


def test_exact_numbers_are_left_to_a_runner() -> None:
    node = loops_of(vector)[0]
    exact = [np.vectorize(Fraction, otypes=[object])(x) for x in values_of(node)]
    assert run_whole(node.attributes["loop"], exact) is None


def test_a_failure_names_the_op_and_the_step() -> None:
    with pytest.raises(us.errors.UnspoolError, match=r"cholesky.*in step 3 of a loop"):
        us.iterate(lambda s: us.linalg.cholesky(s) * 0.0 + s - us.eye(2), us.tensor(2.5 * np.eye(2)), max_steps=5)


def test_threads_may_run_the_same_loop() -> None:
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        for _ in range(40):
            a, x = us.tensor(A * (1 + 0.1 * k)), us.tensor([0.3, -0.2, 0.5])
            loss = us.sum(us.iterate(lambda s, a=a: us.tanh(a @ s), x, max_steps=4)[0])
            found.setdefault(k, set()).add(loss.grad(a).eval().tobytes())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    us.clear_caches()
    for k in range(4):
        a, x = us.tensor(A * (1 + 0.1 * k)), us.tensor([0.3, -0.2, 0.5])
        loss = us.sum(us.iterate(lambda s, a=a: us.tanh(a @ s), x, max_steps=4)[0])
        assert found[k] == {loss.grad(a).eval().tobytes()}
