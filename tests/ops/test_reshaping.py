"""Reshaping, permuting and broadcasting: values, symbolic sizes, canonical forms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ShapeError, SizeContradictionError

N, K = us.dims("n k")


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


# --- reshape ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((6,), (2, 3)),
        ((2, 3), (3, -1)),
        ((2, 3), -1),
        ((2, 3), 6),
        ((), (1, 1)),
        ((1,), ()),
        ((0, 3), (3, 0)),
        ((0, 3), (-1, 3)),
        ((2, 0), (0,)),
        ((4,), [2, 2]),
    ],
)
def test_reshape_keeps_the_elements_in_row_major_order(before: Any, after: Any) -> None:
    x = numbers(*before)
    np.testing.assert_array_equal(us.reshape(us.tensor(x), after).eval(), x.reshape(after), strict=True)


def test_reshape_of_a_transposed_tensor_follows_its_axes_and_not_its_memory() -> None:
    x = numbers(2, 3)
    np.testing.assert_array_equal(us.reshape(us.tensor(x).T, (6,)).eval(), x.T.reshape(6))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4,), r"cannot reshape \(2, 3\) into \(4,\): 6 elements are not 4"),
        ((4, -1), "6 elements do not divide by 4"),
        ((0, -1), "6 elements do not divide by 0"),
        ((-1, -1), r"only one size of \(-1, -1\) can be -1"),
        ((-2, 3), "sizes are at least 0, got -2"),
        ((-2, -1), "sizes are at least 0, got -2"),
        ((2.5, 2), "integers and dims, got 2.5"),
    ],
)
def test_reshape_refuses_what_does_not_fit(shape: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        us.reshape(numbers(2, 3), shape)


def test_reshape_works_on_symbolic_sizes() -> None:
    x = us.placeholder((N, K))
    flat, folded = us.reshape(x, -1), us.reshape(x, (2, -1))
    assert flat.shape == (N * K,)
    assert us.reshape(flat, (-1, K)) is x
    for shape in ((2, 3), (4, 1), (0, 3)):
        value = numbers(*shape)
        np.testing.assert_array_equal(flat.eval({x: value}), value.reshape(-1))
        np.testing.assert_array_equal(folded.eval({x: value}), value.reshape(2, value.size // 2))


def test_reshape_of_unknown_sizes_that_turn_out_not_to_fit_is_a_contradiction() -> None:
    x, other = us.placeholder((N,)), us.placeholder((K,))
    with pytest.raises(SizeContradictionError, match="cannot reshape"):
        us.reshape(x, (2, -1)).eval({x: numbers(3)})
    with pytest.raises(SizeContradictionError, match="cannot reshape"):
        (us.reshape(x, (K,)) + other).eval({x: numbers(3), other: numbers(2)})


def test_reshape_that_can_never_fit_is_refused_when_it_is_built() -> None:
    with pytest.raises(ShapeError, match=r"2\*n elements are not 2\*n \+ 1"):
        us.reshape(us.placeholder((2, N)), (2 * N + 1,))


def test_reshape_of_reshape_is_one_reshape() -> None:
    x = us.tensor(numbers(2, 6))
    assert us.reshape(us.reshape(x, (3, 4)), (4, 3)) is us.reshape(x, (4, 3))
    assert us.reshape(us.reshape(x, (12,)), (2, 6)) is x


def test_a_reshape_that_is_an_unproven_claim_does_not_vanish() -> None:
    x, other = us.placeholder((N,)), us.placeholder((K,))
    back = us.reshape(us.reshape(x, (K,)), (N,))
    assert back is not x
    with pytest.raises(SizeContradictionError):
        us.eval(back, us.sum(other), bindings={x: numbers(3), other: numbers(2)})


# --- permute ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (-1, -2, -3)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 0, 2)])
def test_permute_dims_reorders_axes(shape: Any, axes: Any) -> None:
    x = numbers(*shape)
    result = us.permute_dims(us.tensor(x), axes)
    assert result.shape == x.transpose(axes).shape
    np.testing.assert_array_equal(result.eval(), x.transpose(axes), strict=True)


def test_permutations_of_permutations_are_one_permutation() -> None:
    x = us.tensor(numbers(2, 3, 4))
    assert us.permute_dims(us.permute_dims(x, (2, 0, 1)), (1, 2, 0)) is x
    assert us.permute_dims(us.permute_dims(x, (2, 0, 1)), (2, 0, 1)) is us.permute_dims(x, (1, 2, 0))
    assert us.permute_dims(x, (0, 1, 2)) is x
    assert x.T.T is x


def test_permute_dims_moves_symbolic_sizes() -> None:
    x = us.placeholder((N, 2, K))
    assert us.permute_dims(x, (2, 0, 1)).shape == (K, N, 2)
    value = numbers(3, 2, 1)
    np.testing.assert_array_equal(us.permute_dims(x, (2, 0, 1)).eval({x: value}), value.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((0,), r"axes \(0,\) are not a permutation of the 2 axes of a tensor of shape \(2, 3\)"),
        ((0, 0), r"axes \(0, 0\) are not a permutation"),
        ((0, 2), "axis 2 is out of range for a tensor with 2 axes"),
        ((0, 1.0), "an axis is an integer, got 1.0"),
    ],
)
def test_permute_dims_refuses_what_is_no_permutation(axes: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        us.permute_dims(numbers(2, 3), axes)


# --- broadcast -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [((3,), (2, 3)), ((2, 1), (2, 3)), ((), (2, 2)), ((1,), (0,)), ((1, 1), (4, 2, 3)), ((2,), (2,)), ((), ())],
)
def test_broadcast_to_repeats_axes_of_size_1(before: Any, after: Any) -> None:
    x = numbers(*before)
    np.testing.assert_array_equal(us.broadcast_to(us.tensor(x), after).eval(), np.broadcast_to(x, after), strict=True)


@pytest.mark.parametrize(("before", "after"), [((2,), (3,)), ((2, 3), (3,)), ((2,), (1,)), ((3, 1), (2, 4))])
def test_broadcast_to_refuses_what_does_not_fit(before: Any, after: Any) -> None:
    with pytest.raises(ShapeError, match="cannot be broadcast"):
        us.broadcast_to(numbers(*before), after)


def test_broadcast_of_broadcast_is_one_broadcast() -> None:
    x = us.tensor(numbers(3, 1))
    assert us.broadcast_to(us.broadcast_to(x, (3, 2)), (4, 3, 2)) is us.broadcast_to(x, (4, 3, 2))
    assert us.broadcast_to(x, (3, 1)) is x


def test_a_broadcast_axis_is_not_broadcast_to_another_size() -> None:
    stretched = us.broadcast_to(us.tensor(numbers(1, 3)), (2, 3))
    with pytest.raises(ShapeError, match=r"shape \(2, 3\) cannot be broadcast|shapes \(2, 3\)"):
        us.broadcast_to(stretched, (4, 3))


def test_broadcast_to_symbolic_sizes() -> None:
    x = us.placeholder((K,))
    wide = us.broadcast_to(x, (N, K))
    other = us.placeholder((N,))
    np.testing.assert_array_equal(
        us.eval(wide, us.sum(other), bindings={x: numbers(3), other: numbers(2)})[0],
        np.broadcast_to(numbers(3), (2, 3)),
    )
    claimed = us.broadcast_to(x, (2, 3))
    np.testing.assert_array_equal(claimed.eval({x: numbers(3)}), np.broadcast_to(numbers(3), (2, 3)))
    with pytest.raises(SizeContradictionError, match="must be equal"):
        claimed.eval({x: numbers(2)})


def test_the_gradient_of_symbolic_layout_has_the_shape_of_its_variable() -> None:
    x = us.placeholder((N, K))
    y = us.reshape(us.permute_dims(us.broadcast_to(us.reshape(x, (N, 1, K)), (N, 3, K)), (1, 2, 0)), (-1,))
    gradient = us.sum(y * y).grad(x)
    assert gradient.shape == (N, K)
    value = numbers(2, 2)
    np.testing.assert_array_equal(gradient.eval({x: value}), 6 * value)
