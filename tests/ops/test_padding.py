"""Cropping and padding: values, symbolic sizes, canonical forms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops.layout.cropping import crop, zero_pad
from unspool.errors import ArgumentError, DTypeError, ShapeError, SizeContradictionError

N, K = us.dims("n k")
CONTINUATIONS = ["edge", "reflect", "symmetric", "wrap"]


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


# --- pad -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", *CONTINUATIONS])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 1), (2, 1, 2)])
@pytest.mark.parametrize("width", [0, 1, 5, (2,), (0, 3), ((1, 2),), [[2, 0]], np.array([1, 2])])
def test_pad_agrees_with_numpy_on_every_form_of_width(mode: Any, shape: Any, width: Any) -> None:
    x = numbers(*shape)
    np.testing.assert_array_equal(us.pad(us.tensor(x), width, mode).eval(), np.pad(x, width, mode), strict=True)


@pytest.mark.parametrize("mode", ["constant", *CONTINUATIONS])
def test_pad_takes_a_pair_for_each_axis(mode: Any) -> None:
    x = numbers(2, 3)
    for width in (((1, 0), (2, 4)), ((1,), (2,)), np.array([[0, 1], [3, 0]])):
        np.testing.assert_array_equal(us.pad(x, width, mode).eval(), np.pad(x, width, mode))
    np.testing.assert_array_equal(us.pad(x, {-1: (2, 1)}, mode).eval(), np.pad(x, ((0, 0), (2, 1)), mode))
    np.testing.assert_array_equal(us.pad(x, {0: 1}, mode).eval(), np.pad(x, ((1, 1), (0, 0)), mode))


@pytest.mark.parametrize("values", [7, (1, 2), ((1, 2), (3, 4)), ((5,), (6,)), -0.0])
def test_pad_takes_constants_in_the_same_forms(values: Any) -> None:
    x = numbers(2, 3)
    expected = np.pad(x, ((1, 2), (0, 1)), constant_values=values)
    result = us.pad(x, ((1, 2), (0, 1)), constant_values=values).eval()
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "complex64"])
def test_pad_keeps_the_data_type(dtype: str) -> None:
    x = np.ones((2,), dtype)
    for values in (0, 1):
        np.testing.assert_array_equal(
            us.pad(us.tensor(x), 1, constant_values=values).eval(), np.pad(x, 1, constant_values=values), strict=True
        )


def test_a_constant_to_pad_with_can_be_differentiated() -> None:
    fill = us.tensor(3.0)
    padded = us.pad(us.tensor([1.0, 2.0]), (1, 2), constant_values=fill)
    np.testing.assert_array_equal(padded.eval(), [3, 1, 2, 3, 3])
    assert float(us.sum(padded * padded).grad(fill)) == 18.0


def test_pad_of_nothing_is_the_tensor_itself() -> None:
    x, number = us.tensor(numbers(2, 3)), us.tensor(1.0)
    assert us.pad(x, 0) is x
    assert us.pad(x, 0, "wrap") is x
    assert us.pad(x, 0, constant_values=5.0) is x
    assert us.pad(number, 3) is number


def test_zeros_are_put_around_a_tensor_in_one_step() -> None:
    x = us.tensor(numbers(2, 3))
    assert us.pad(x, 1) is us.pad(x, 1, constant_values=((0, 0.0), (False, 0)))
    assert us.pad(x, 1).inputs == (x,)


def test_pad_works_on_symbolic_sizes_and_widths() -> None:
    x, y = us.placeholder((N,)), us.placeholder((K,))
    padded = us.pad(x, (1, K))
    assert padded.shape == (N + K + 1,)
    value, _ = us.eval(padded, us.sum(y), bindings={x: numbers(3), y: numbers(2)})
    np.testing.assert_array_equal(value, np.pad(numbers(3), (1, 2)))
    for mode in CONTINUATIONS:
        continued = us.pad(x, (4, 3), mode)
        assert continued.shape == (N + 7,)
        gradient = us.sum(continued).grad(x)
        for size in (1, 2, 5):
            expected = np.pad(numbers(size), (4, 3), mode)
            np.testing.assert_array_equal(continued.eval({x: numbers(size)}), expected)
            counts = [np.sum(expected == number) for number in numbers(size)]
            np.testing.assert_array_equal(gradient.eval({x: numbers(size)}), counts)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.pad(x, -1), "at least 0, got -1"),
        (lambda x: us.pad(x, 1.5), "integers and dims, got 1.5"),
        (lambda x: us.pad(x, (1, 2, 3)), r"one value or a pair \(before, after\) for an axis, got \(1, 2, 3\)"),
        (lambda x: us.pad(x, ((1, 2),) * 3), "has 3 pairs for a tensor with 2 axes"),
        (lambda x: us.pad(x, {2: 1}), "axis 2 is out of range for a tensor with 2 axes"),
        (lambda x: us.pad(x, 1, constant_values=us.tensor([1.0])), r"a scalar, got shape \(1,\)"),
        (lambda x: us.pad(us.zeros((0, 2)), 1, "edge"), "axis 0 has size 0"),
    ],
)
def test_pad_refuses_what_it_cannot_do(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(2, 3)))


def test_pad_refuses_a_mode_it_does_not_have() -> None:
    with pytest.raises(ArgumentError, match="mode is one of constant, edge, reflect, symmetric, wrap; got 'mean'"):
        us.pad([1.0], 1, "mean")


def test_pad_refuses_a_complex_constant_around_reals() -> None:
    with pytest.raises(DTypeError, match="float64 with a complex constant"):
        us.pad([1.0], 1, constant_values=1j)


def test_nothing_to_continue_is_found_when_sizes_are_bound() -> None:
    x = us.placeholder((N,))
    with pytest.raises(SizeContradictionError, match="size 0 has no elements"):
        us.pad(x, 1, "wrap").eval({x: numbers(0)})


# --- crop ------------------------------------------------------------------------------------------------------------


def test_crop_undoes_pad_and_crops_and_pads_combine() -> None:
    x = us.tensor(numbers(4, 3))
    assert crop(zero_pad(x, (1, 0), (0, 2)), (1, 0), (4, 3)) is x
    assert crop(x, (0, 0), (4, 3)) is x
    assert crop(crop(x, (1, 0), (3, 3)), (1, 1), (1, 2)) is crop(x, (2, 1), (1, 2))
    assert zero_pad(zero_pad(x, (1, 0), (0, 2)), (0, 3), (1, 0)) is zero_pad(x, (1, 3), (1, 2))


def test_a_claim_about_sizes_does_not_vanish_when_crops_combine() -> None:
    x = us.placeholder((N,))
    inner = crop(crop(x, (0,), (5,)), (0,), (2,))
    np.testing.assert_array_equal(inner.eval({x: numbers(6)}), [1, 2])
    with pytest.raises(SizeContradictionError, match="does not lie within"):
        inner.eval({x: numbers(3)})


@pytest.mark.parametrize(("start", "shape"), [((3,), (2,)), ((-1,), (1,)), ((0,), (-1,))])
def test_crop_outside_is_refused(start: Any, shape: Any) -> None:
    with pytest.raises(ShapeError, match="axis 0 of size 4 has no"):
        crop(us.tensor(numbers(4)), start, shape)


def test_a_width_that_turns_out_negative_is_a_contradiction() -> None:
    x = us.placeholder((N,))
    padded = zero_pad(x, (N - 3,), (0,))
    np.testing.assert_array_equal(padded.eval({x: numbers(4)}), [0, 1, 2, 3, 4])
    with pytest.raises(SizeContradictionError, match="negative"):
        padded.eval({x: numbers(2)})
    with pytest.raises(ShapeError, match=r"cannot pad axis 0 by \(-1, 0\)"):
        zero_pad(us.tensor(numbers(2)), (-1,), (0,))
