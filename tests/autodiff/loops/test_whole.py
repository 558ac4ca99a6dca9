"""Loops that run in one go give what a runner gives, bit for bit, and fail as it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.loops.loop import facts_of
from unspool._autodiff.loops.run import run_steps
from unspool._autodiff.loops.whole import Whole, run_whole
from unspool._engine.backends.native import WHY_NOT
from unspool._engine.default import default_engine
from unspool._graph import Node, ancestors

A = np.array([[1.1, 0.2, 0.0], [0.1, 0.9, 0.3], [0.0, -0.2, 1.0]])


natively = pytest.mark.skipif(WHY_NOT is not None, reason="the native backend does not run here")


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


def summed(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.sum(us.iterate(lambda s: us.tanh(s * x) + us.sum(a), x, max_steps=4)[0])


# --- arrays that lie in memory in other ways


def with_gaps(array: Any) -> Any:
    return np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array


def repeated(array: Any) -> Any:
    return np.broadcast_to(array[..., :1], array.shape) if array.ndim else array


def misaligned(array: Any) -> Any:
    room = np.empty(array.nbytes + 16, np.uint8)
    start = (8 - room.__array_interface__["data"][0]) % 16
    moved = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def by_columns(array: Any) -> Any:
    return np.array(array, order="F")


def in_single_precision(array: Any) -> Any:
    return array.astype(np.float32)


def longer(array: Any) -> Any:
    return np.concatenate([array, array])


# --- loops


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


def wholes_of(loss: Callable[..., us.Tensor]) -> list[tuple[Whole, int, list[Any]]]:
    """Return what runs the loops of a loss and its derivatives in one go, with the steps and the arrays of each."""
    found = []
    for node in loops_of(loss):
        loop, arrays = node.attributes["loop"], values_of(node)
        if run_whole(loop, arrays) is not None:
            found.append((facts_of(loop)["whole"], loop.steps, arrays))
    return found


def described(arrays: Any) -> list[Any]:
    return [(x.shape, x.dtype, x.strides, x.tobytes()) for x in arrays]


@natively
@pytest.mark.parametrize("loss", [vector, number, several, large, summed])
def test_one_call_gives_the_bits_of_what_is_done_one_by_one(loss: Callable[..., us.Tensor]) -> None:
    wholes = wholes_of(loss)
    assert wholes
    for whole, steps, arrays in wholes:
        found = whole.run_at_once(steps, arrays)
        assert found is not None
        assert described(found) == described(whole.run(steps, arrays))
        assert all(x.flags.writeable for x in found)


@pytest.mark.parametrize("change", [by_columns, in_single_precision, longer, list])
def test_arrays_that_the_program_was_not_made_for_are_left_to_python(change: Callable[[Any], Any]) -> None:
    whole, steps, arrays = wholes_of(vector)[0]
    assert whole.run_at_once(steps, [change(arrays[0]), *arrays[1:]]) is None


@natively
@pytest.mark.parametrize("change", [with_gaps, repeated, misaligned])
def test_arrays_that_lie_in_another_way_give_the_same_bits(change: Callable[[Any], Any]) -> None:
    for whole, steps, arrays in wholes_of(vector):
        given = [change(x) for x in arrays]
        assert described(whole.run_at_once(steps, given)) == described(whole.run(steps, given))


@natively
def test_stacks_have_a_row_for_each_step() -> None:
    whole, steps, arrays = next(entry for entry in wholes_of(vector) if entry[0]._ends.rows)
    assert whole.run_at_once(steps, arrays) is not None
    assert whole.run_at_once(steps + 1, arrays) is None


def test_another_shape_in_between_is_another_run_of_the_same_loop() -> None:
    def loss(n: int) -> Any:
        x = us.tensor(np.linspace(0.1, 0.9, n))
        return us.sum(us.iterate(lambda s: us.sin(s) * 1.5, x, max_steps=3)[0]).grad(x).eval()

    first = [loss(n).tobytes() for n in (3, 5, 3, 5)]
    assert first[:2] == first[2:]
    np.testing.assert_array_equal(loss(5)[0], loss(3)[0])


def test_a_state_without_elements_has_a_history() -> None:
    x = us.tensor(np.zeros((0, 3)))
    final = us.iterate(lambda s: us.tanh(s * 2.0), x, max_steps=3)[0]
    assert us.sum(final).grad(x).eval().shape == (0, 3)


@natively
@pytest.mark.parametrize(
    "wrong",
    [
        {"constants": (9,)},
        {"carry": (-1,)},
        {"leaving": (7,)},
        {"leaving": (~9,)},
        {"places": ((5, 0),)},
        {"places": ((~5, 0),)},
        {"places": ((0, 2),)},
        {"places": ((0,),)},
        {"histories": ((9, (3,), np.dtype(float)),)},
        {"histories": ((1, (3,), "float64"),)},
        {"written": (((3,),),)},
    ],
)
def test_descriptions_of_something_else_are_refused(wrong: dict[str, Any]) -> None:
    whole, steps, arrays = wholes_of(vector)[0]
    run = default_engine().plans.backend.compile_whole(whole._stepper.drive(exact=False), whole._ends._replace(**wrong))
    assert run is not None
    with pytest.raises((TypeError, ValueError)):
        run(steps, arrays)


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
