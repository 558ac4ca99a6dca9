"""Binding placeholders: what fits, what does not, and the sizes that follow."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import unspool as us
from unspool._engine.binding import bind_params, bind_placeholders
from unspool.errors import (
    DTypeMismatchError,
    RankMismatchError,
    ShapeError,
    ShapeMismatchError,
    SizeContradictionError,
    UnboundPlaceholderError,
    UnboundSizeError,
    UnexpectedBindingError,
)

n, k, m = us.dims("n k m")


# --- what may be bound ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("float64", [1.0, 2.0]),
        ("float64", [1, 2]),
        ("float64", np.array([1.0, 2.0])),
        ("float64", np.array([1.0, 9.0, 2.0])[::2]),
        ("float64", us.tensor([1.0, 2.0])),
        ("float32", [1.0, 2.0]),
        ("float32", np.array([1.0, 2.0], np.float32)),
        ("complex128", [1.0, 2.0]),
        ("int32", [1, 2]),
        ("float64", np.array([1.0, 2.0], dtype=">f8")),
    ],
    ids=str,
)
def test_values_of_the_right_kind_are_taken(dtype, data):
    x = us.placeholder((2,), dtype=dtype)
    value = (x + x).eval({x: data})
    assert value.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(value, [2, 4])


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("float64", np.array([1.0, 2.0], np.float32)),
        ("float32", np.array([1.0, 2.0])),
        ("float64", np.array([1, 2])),
        ("float64", us.tensor([1, 2])),
        ("float64", [1j, 2.0]),
        ("int64", [1.5, 2.0]),
        ("int32", [1, 2**40]),
        ("bool", [1, 2]),
        ("float64", ["a", "b"]),
        ("float64", [None, 1.0]),
        ("float64", [2**80, 1]),
    ],
    ids=str,
)
def test_values_of_the_wrong_data_type_are_refused(dtype, data):
    x = us.placeholder((2,), dtype=dtype, name="speed")
    with pytest.raises(DTypeMismatchError, match=r"'speed'.*test_binding\.py"):
        x.eval({x: data})


@pytest.mark.parametrize("data", [1.0, [[1.0, 2.0]], np.ones((2, 1))], ids=str)
def test_values_of_the_wrong_rank_are_refused(data):
    x = us.placeholder((2,), name="speed")
    with pytest.raises(RankMismatchError, match=r"axes.*'speed'.*test_binding\.py"):
        x.eval({x: data})


def test_values_of_the_wrong_size_are_refused():
    x = us.placeholder((2, 3), name="speed")
    with pytest.raises(ShapeMismatchError, match=r"axis 1 .*'speed'.*test_binding\.py.* has size 4, not 3"):
        x.eval({x: np.ones((2, 4))})


def test_ragged_lists_are_refused():
    x = us.placeholder((2,))
    with pytest.raises(ShapeMismatchError, match="not an array"):
        x.eval({x: [[1.0], [1.0, 2.0]]})


@pytest.mark.parametrize("key", [us.tensor(1.0, name="leaf"), us.constant(2.0), us.tensor(1.0) + 1.0, "x", 3], ids=str)
def test_only_placeholders_can_be_bound(key):
    x = us.placeholder(())
    with pytest.raises(UnexpectedBindingError, match="only placeholders"):
        x.eval({x: 1.0, key: 1.0})


def test_a_placeholder_without_value_is_named_with_its_line():
    x, y = us.placeholder((2,), name="given"), us.placeholder((2,), name="missing")
    total = x + y
    for bindings in ({x: [1.0, 2.0]}, None, {}):
        with pytest.raises(UnboundPlaceholderError, match=r"'(missing|given)'.*test_binding\.py"):
            total.eval(bindings)


@pytest.mark.parametrize("budget", [None, "1 MB"])
def test_a_placeholder_of_unknown_size_is_named_too(budget: str | None) -> None:
    n = us.dims("n")
    x = us.placeholder((n, 2), name="missing")
    for compute in (lambda: us.abs(x).eval(), lambda: us.eval([us.sin(x), us.cos(x)]), lambda: np.where(x > 0)):
        with us.memory(budget) if budget else nullcontext(), pytest.raises(UnboundPlaceholderError, match="'missing'"):
            compute()


def test_a_binding_that_is_not_needed_is_no_mistake():
    x, y = us.placeholder(()), us.placeholder(())
    assert (x * 2.0).eval({x: 1.0, y: 5.0}) == 2.0
    assert us.tensor(3.0).eval({x: 1.0}) == 3.0


def test_the_caller_may_write_into_the_array_afterwards():
    x = us.placeholder((2,))
    data = np.array([1.0, 2.0])
    value = us.reshape(x, (2, 1)).eval({x: data})
    same = x.eval({x: data})
    data[:] = 7.0
    np.testing.assert_array_equal(value, [[1.0], [2.0]])
    np.testing.assert_array_equal(same, [1.0, 2.0])


def test_binding_again_never_returns_a_stale_value():
    x = us.placeholder((2,))
    kept = us.sin(x)
    total = us.sum(kept * kept)
    for data in ([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [5.0, 6.0]):
        expected = np.sin(data)
        np.testing.assert_allclose(kept.eval({x: data}), expected, rtol=1e-15)
        np.testing.assert_allclose(total.eval({x: data}), np.sum(expected**2), rtol=1e-15)
    assert kept.value is None and total.value is None


def test_values_that_depend_on_no_placeholder_are_used_and_stay():
    x = us.placeholder(())
    fixed = us.sin(us.tensor(1.0))
    fixed.eval()
    with us.debug.count_kernels() as counts:
        assert (x * fixed).eval({x: 2.0}) == 2 * np.sin(1.0)
    assert counts["sin"] == 0


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_one_graph_runs_on_many_sizes():
    x = us.placeholder((n, k))
    total = us.sum(x * x, axis=0)
    for shape in ((2, 3), (5, 1), (0, 4), (3, 0)):
        data = np.arange(np.prod(shape), dtype=float).reshape(shape)
        np.testing.assert_array_equal(total.eval({x: data}), np.sum(data * data, axis=0))


@pytest.mark.parametrize(
    ("sizes", "shapes", "found"),
    [
        ([(2 * n,)], [(6,)], {"n": 3}),
        ([(n + 1, n)], [(4, 3)], {"n": 3}),
        ([(n * k,), (k,)], [(6,), (2,)], {"n": 3, "k": 2}),
        ([(n + k,), (2 * n, 3)], [(7,), (8, 3)], {"n": 4, "k": 3}),
        ([(n * k + m,), (n + 1,), (k,)], [(11,), (3,), (4,)], {"n": 2, "k": 4, "m": 3}),
        ([(n * k,)], [(6,)], {}),
        ([(n // 2,), (n,)], [(2,), (5,)], {"n": 5}),
        ([(3,)], [(3,)], {}),
    ],
    ids=str,
)
def test_sizes_inside_expressions_are_solved_for(sizes, shapes, found):
    bindings = {us.placeholder(size): np.zeros(shape) for size, shape in zip(sizes, shapes, strict=True)}
    assert bind_placeholders(bindings)[1] == found


def test_sizes_that_contradict_each_other_name_both_sides():
    x, y = us.placeholder((n,), name="x"), us.placeholder((2 * n,), name="y")
    with pytest.raises(SizeContradictionError) as caught:
        us.eval((us.sum(x), us.sum(y)), bindings={x: np.zeros(3), y: np.zeros(7)})
    message = str(caught.value)
    assert "'y'" in message and "has size 7" in message and "2*n is 6" in message
    assert "n = 3 follows from placeholder 'x'" in message and "test_binding.py" in message


def test_one_name_with_two_sizes_in_one_placeholder_is_a_contradiction():
    x = us.placeholder((n, n), name="square")
    with pytest.raises(SizeContradictionError, match="n = 2 follows from placeholder 'square'"):
        x.eval({x: np.zeros((2, 3))})


def test_a_size_without_whole_solution_is_a_shape_mismatch():
    x = us.placeholder((2 * n,), name="even")
    with pytest.raises(ShapeMismatchError, match=r"no size n makes 2\*n equal to 7.*axis 0 .*'even'"):
        x.eval({x: np.zeros(7)})


def test_names_that_have_to_be_equal_for_an_op_are_checked_when_bound():
    x, y = us.placeholder((n,), name="x"), us.placeholder((k,), name="y")
    total = x + y  # n meets k
    np.testing.assert_array_equal(total.eval({x: [1.0, 2.0], y: [3.0, 4.0]}), [4.0, 6.0])
    with pytest.raises(SizeContradictionError, match="n meets k"):
        total.eval({x: [1.0, 2.0], y: [3.0, 4.0, 5.0]})
    with pytest.raises(SizeContradictionError, match="n meets k"):
        total.eval({x: [1.0, 2.0], y: [3.0]})


def test_sizes_that_can_never_be_equal_are_refused_when_built():
    x, y = us.placeholder((2 * n,)), us.placeholder((2 * n + 1,))
    with pytest.raises(ShapeError, match=r"2\*n"):
        x + y


def test_a_size_that_nothing_determines_is_an_error_only_where_it_is_needed():
    x = us.placeholder((n * k,))
    assert us.sum(x).eval({x: np.ones(6)}) == 6.0
    reshaped = us.reshape(x, (n, k))
    with pytest.raises(UnboundSizeError, match="size (n|k)"):
        reshaped.eval({x: np.ones(6)})


def test_parameters_with_sizes_are_bound_and_others_are_left_alone():
    x = us.placeholder((n, 2))
    node = us.reshape(x, (2 * n,))
    assert bind_params(node.op, node.attributes, {"n": 3}) == {"shape": (6,)}
    plain = us.sum(x)
    assert bind_params(plain.op, plain.attributes, {"n": 3}) is plain.attributes


# --- derivatives ------------------------------------------------------------------------------------------------------


def test_gradients_with_respect_to_placeholders_are_evaluated_under_bindings():
    x, w = us.placeholder((n,), name="x"), us.placeholder((), name="w")
    loss = us.sum(us.sin(x) * w)
    gradients = loss.grad([x, w])
    for data in ([1.0, 2.0], [0.5, 0.25, 3.0]):
        dx, dw = us.eval(gradients, bindings={x: data, w: 2.0})
        np.testing.assert_allclose(dx, 2.0 * np.cos(data), rtol=1e-15)
        np.testing.assert_allclose(dw, np.sum(np.sin(data)), rtol=1e-15)


def test_second_derivatives_keep_symbolic_sizes():
    x = us.placeholder((n,))
    first = us.sum(x * x * x).grad(x)
    second = us.sum(first * first).grad(x)
    assert second.shape == (n,)
    data = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(second.eval({x: data}), 2 * 3 * data**2 * 6 * data, rtol=1e-15)


def test_broadcasting_against_a_symbolic_size_sums_back_in_the_gradient():
    x, b = us.placeholder((n, k)), us.placeholder((k,))
    gradient = us.sum((x + b) * (x + b)).grad(b)
    data = np.arange(6.0).reshape(3, 2)
    np.testing.assert_allclose(gradient.eval({x: data, b: [1.0, 2.0]}), 2 * np.sum(data + np.array([1.0, 2.0]), axis=0))
