"""Broadcasting of symbolic sizes: what must be equal is ensured when sizes are bound, and derivatives pass through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import errors
from unspool._ops.broadcasting import ensure_shape, sum_to_shape

n, k = us.dims("n k")


def operands() -> tuple[Any, Any]:
    return us.placeholder((n,), name="left"), us.placeholder((k,), name="right")


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (((3, 1), (4,)), (3, 4)),
        (((), (2,)), (2,)),
        (((n,), (1,)), (n,)),
        (((n, 1), (k,)), (n, k)),
        (((n,), (n,)), (n,)),
        (((n,), (5,)), (5,)),
        (((0,), (1,)), (0,)),
    ],
)
def test_shapes_broadcast_as_in_numpy_with_symbols_for_sizes(shapes: Any, expected: Any) -> None:
    assert us.broadcast_shapes(*shapes) == expected


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((n,), (n + 1,)), ((2 * n,), (3,)), ((2, n), (3, n))])
def test_sizes_that_can_never_be_equal_are_refused_when_built(shapes: Any) -> None:
    with pytest.raises(errors.ShapeError, match="cannot be broadcast together"):
        us.broadcast_shapes(*shapes)


def test_unknown_sizes_that_meet_have_to_be_equal_when_bound() -> None:
    left, right = operands()
    total = left + right
    np.testing.assert_array_equal(total.eval({left: [1.0, 2.0], right: [3.0, 4.0]}), [4.0, 6.0])
    with pytest.raises(errors.SizeContradictionError) as raised:
        total.eval({left: [1.0, 2.0], right: [3.0, 4.0, 5.0]})
    assert "(2,)" in str(raised.value)
    assert "(3,)" in str(raised.value)
    assert "total = left + right" in str(raised.value)


def test_a_symbolic_size_that_is_bound_to_one_does_not_broadcast() -> None:
    left, right = operands()
    for values in ({left: [1.0], right: [1.0, 2.0]}, {left: [1.0, 2.0], right: [1.0]}):
        with pytest.raises(errors.SizeContradictionError):
            (left * right).eval(values)


def test_derivatives_pass_through_an_ensured_size_in_both_modes_and_orders() -> None:
    left, right = operands()
    values = {left: np.array([1.0, 2.0]), right: np.array([3.0, 4.0])}
    loss = us.sum(left * right * right)
    np.testing.assert_array_equal(loss.grad(left).eval(values), [9.0, 16.0])
    np.testing.assert_array_equal(loss.grad(right).eval(values), [6.0, 16.0])
    np.testing.assert_array_equal(us.sum(loss.grad(right)).grad(left).eval(values), [6.0, 8.0])
    _, tangent = us.jvp(lambda r: us.sum(left * r * r), (right,), (us.ones_like(right),))
    assert float(tangent.eval(values)) == 22.0


def test_absent_elements_stay_absent_through_an_ensured_size() -> None:
    left, right = operands()
    values = {left: np.array([0.0, 1.0]), right: np.array([0.0, 4.0])}
    loss = us.sum(us.where(left > 0, us.log(right), 0.0))
    np.testing.assert_array_equal(loss.grad(right).eval(values), [0.0, 0.25])


def test_ensuring_the_shape_a_tensor_has_is_the_tensor() -> None:
    x = us.tensor([1.0, 2.0])
    assert ensure_shape(x, (2,)) is x
    with pytest.raises(errors.ShapeError, match="can never have shape"):
        ensure_shape(x, (3,))


@pytest.mark.parametrize(("shape", "target"), [((3, 2), (2,)), ((3, 2), (3, 1)), ((3, 2), ()), ((4, 3, 1), (1, 1))])
def test_folding_sums_over_what_broadcasting_repeated(shape: Any, target: Any) -> None:
    x = np.arange(float(np.prod(shape))).reshape(shape)
    folded = sum_to_shape(us.tensor(x), target).eval()
    ones = np.ones(target)
    assert folded.shape == target
    assert np.sum(folded * ones) == np.sum(x)
