"""Evaluation: each node once, intermediates freed, errors that name the node and the user's line."""

from __future__ import annotations

import threading
import tracemalloc
import warnings

import numpy as np
import pytest

import unspool as us
from unspool import errors


def test_eval_returns_a_read_only_array_and_changes_nothing() -> None:
    x = us.tensor([1.0, 2.0])
    y = x * 3.0
    before = y.op, y.inputs
    value = y.eval()
    assert type(value) is np.ndarray
    assert not value.flags.writeable
    assert (y.op, y.inputs) == before
    assert y.eval() is value
    np.testing.assert_array_equal((y + 1.0).eval(), [4.0, 7.0])
    np.testing.assert_array_equal(us.sum(y).grad(x).eval(), [3.0, 3.0])


def test_results_without_axes_are_arrays_too() -> None:
    value = us.sum(us.tensor([1.0, 2.0])).eval()
    assert type(value) is np.ndarray
    assert value.shape == ()


def test_eval_of_a_structure_keeps_the_structure() -> None:
    x = us.tensor([1.0, 2.0])
    result = us.eval({"a": x + 1.0, "b": [x, 7, None]})
    assert list(result) == ["a", "b"]
    np.testing.assert_array_equal(result["a"], [2.0, 3.0])
    np.testing.assert_array_equal(result["b"][0], [1.0, 2.0])
    assert result["b"][1:] == [7, None]
    first, second = us.eval(x, x * 2.0)
    np.testing.assert_array_equal(second, 2 * first)


def test_tensors_evaluated_together_share_their_work() -> None:
    x = us.tensor([1.0, 2.0])
    shared = us.sin(x)
    with us.debug.count_kernels() as counts:
        us.eval(shared + 1.0, shared * 2.0)
    assert counts.by_op["sin"] == 1


def test_a_value_is_not_computed_again_when_asked_for_through_a_child() -> None:
    x = us.tensor([1.0, 2.0])
    y = us.sin(x)
    y.eval()
    with us.debug.count_kernels() as counts:
        (y + 1.0).eval()
    assert dict(counts.by_op) == {"add": 1}


def test_a_value_the_user_can_still_reach_is_kept_and_a_temporary_is_not() -> None:
    x = us.tensor(np.ones(1000))
    held = us.sin(x)
    top = us.exp(held) + us.cos(x)
    top.eval()
    assert held.value is not None
    assert top.value is not None
    assert [node.value is not None for node in top.inputs] == [False, False]


def test_intermediate_values_are_freed_at_their_last_use() -> None:
    x = us.tensor(np.ones(100_000))
    y = x
    for _ in range(200):
        y = us.sin(y)
    tracemalloc.start()
    y.eval()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * x.nbytes


def test_a_small_view_does_not_hold_a_large_array() -> None:
    x = us.tensor(np.ones((1000, 1000)))
    first = us.sin(x)[0]
    value = first.eval()
    assert value.base is None or value.base.nbytes <= 2 * value.nbytes


def test_a_failing_kernel_names_op_shapes_and_the_line_that_made_the_node() -> None:
    def explode(x: np.ndarray) -> np.ndarray:
        raise np.linalg.LinAlgError("Singular matrix")

    bad = us.op("explodes_for_the_engine_test", kernel=explode)
    node = bad(us.tensor(np.zeros((2, 3))))  # the line to blame
    with pytest.raises(errors.KernelError) as raised:
        (node + 1.0).eval()
    message = str(raised.value)
    assert "explodes_for_the_engine_test" in message
    assert "(2, 3)" in message
    assert "Singular matrix" in message
    assert "test_engine.py" in message
    assert "the line to blame" in message
    assert isinstance(raised.value.__cause__, np.linalg.LinAlgError)


def test_an_error_loses_nothing() -> None:
    flag = []

    def sometimes(x: np.ndarray) -> np.ndarray:
        if not flag:
            raise RuntimeError("not yet")
        return x + 1.0

    op = us.op("sometimes_for_the_engine_test", kernel=sometimes)
    y = us.sin(op(us.tensor([1.0])))
    with pytest.raises(errors.KernelError):
        y.eval()
    flag.append(1)
    np.testing.assert_array_equal(y.eval(), np.sin([2.0]))


def test_infinities_of_branches_not_taken_do_not_warn() -> None:
    x = us.tensor([0.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(us.where(x > 0, us.log(x), 0.0).eval(), [0.0, 0.0])


def test_evaluating_does_not_change_how_numpy_warns_the_user() -> None:
    before = np.geterr()
    us.log(us.tensor(0.0)).eval()
    assert np.geterr() == before


def test_a_kernel_may_evaluate_tensors_itself() -> None:
    nested = us.op("evaluates_for_the_engine_test", kernel=lambda x: us.sin(us.tensor(x)).eval() + 0.0)
    np.testing.assert_array_equal(nested(us.tensor([1.0])).eval(), np.sin([1.0]))


def test_threads_that_evaluate_one_graph_get_the_same_answer() -> None:
    x = us.tensor(np.linspace(0, 1, 50))
    results: list[np.ndarray] = []

    def work() -> None:
        y = x
        for step in range(200):
            y = us.sin(y) + x * 0.5
            if step % 7 == 0:
                y.eval()
        results.append(us.sum(y * y).grad(x).eval())

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    for result in results:
        np.testing.assert_array_equal(result, results[0])


def test_memory_of_a_loop_that_is_dropped_comes_back() -> None:
    def loop() -> float:
        x = us.tensor(np.ones(10_000))
        for _ in range(20):
            x = us.sin(x)
            x.eval()
        return float(us.sum(x))

    loop()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    loop()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 10_000
