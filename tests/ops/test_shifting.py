"""Flipping and rolling: values, symbolic sizes, canonical forms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ShapeError

N, K = us.dims("n k")
SHAPES = [(2, 3), (3, 2, 2), (1, 4), (0, 3)]


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), (), [1]])
def test_flip_agrees_with_numpy(shape: Any, axis: Any) -> None:
    x = numbers(*shape)
    expected = np.flip(x, tuple(axis) if isinstance(axis, list) else axis)
    np.testing.assert_array_equal(us.flip(us.tensor(x), axis).eval(), expected, strict=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("shift", "axis"),
    [
        (1, None),
        (-7, None),
        (2, 0),
        (-1, -1),
        ((1, 2), (0, 1)),
        (1, (0, 1)),
        ((1, 2), 1),
        (0, 0),
        (1, ()),
        ((1, 2), None),
    ],
)
def test_roll_agrees_with_numpy(shape: Any, shift: Any, axis: Any) -> None:
    x = numbers(*shape)
    np.testing.assert_array_equal(us.roll(us.tensor(x), shift, axis).eval(), np.roll(x, shift, axis), strict=True)


@pytest.mark.parametrize("k", range(-3, 6))
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (2, 0)])
def test_rot90_agrees_with_numpy(k: int, axes: Any) -> None:
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(us.rot90(us.tensor(x), k, axes).eval(), np.rot90(x, k, axes), strict=True)


def test_flips_of_matrices_have_names() -> None:
    x = numbers(2, 3)
    np.testing.assert_array_equal(us.fliplr(x).eval(), np.fliplr(x))
    np.testing.assert_array_equal(us.flipud(x).eval(), np.flipud(x))


def test_scalars_flip_and_roll_to_themselves() -> None:
    x = us.tensor(3.0)
    assert us.flip(x) is x
    assert us.roll(x, 2) is x


def test_flips_cancel() -> None:
    x = us.tensor(numbers(2, 3))
    assert us.flip(us.flip(x)) is x
    assert us.flip(us.flip(x), 0) is us.flip(x, 1)
    assert us.flip(x, ()) is x


def test_an_axis_of_one_element_has_no_order_to_reverse() -> None:
    x = us.tensor(numbers(1, 3))
    assert us.flip(x, 0) is x
    assert us.flip(x) is us.flip(x, 1)


def test_rolls_add_up() -> None:
    x = us.tensor(numbers(2, 3))
    assert us.roll(us.roll(x, 1, 1), 2, 1) is x
    assert us.roll(x, 3, 1) is x
    assert us.roll(x, -1, 1) is us.roll(x, 2, 1)
    assert us.roll(us.roll(x, 1, 0), 1, 1) is us.roll(x, (1, 1), (0, 1))
    assert us.roll(x, 0) is x


def test_flip_and_roll_work_on_symbolic_sizes() -> None:
    x = us.placeholder((N, K))
    assert us.roll(us.roll(x, 5, 0), -5, 0) is x
    turned = us.roll(us.flip(x, 1), (1, -4), (0, 1))
    assert turned.shape == (N, K)
    for shape in SHAPES[0], SHAPES[2], SHAPES[3]:
        value = numbers(*shape)
        expected = np.roll(np.flip(value, 1), (1, -4), (0, 1))
        np.testing.assert_array_equal(turned.eval({x: value}), expected)
        weighted = us.sum(turned * turned).grad(x)
        np.testing.assert_array_equal(weighted.eval({x: value}), 2 * value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.flip(x, 2), "axis 2 is out of range for a tensor with 2 axes"),
        (lambda x: us.flip(x, (0, 0)), "duplicate axis"),
        (lambda x: us.fliplr(us.ravel(x)), "axis 1 is out of range for a tensor with 1 axes"),
        (lambda x: us.roll(x, 1, 3), "axis 3 is out of range for a tensor with 2 axes"),
        (lambda x: us.roll(x, 1.5, 0), "a shift is an integer, got 1.5"),
        (lambda x: us.roll(x, (1, 2, 3), (0, 1)), r"one shift for each axis, got shifts \(1, 2, 3\) and axes \(0, 1\)"),
        (lambda x: us.roll(x, (1, 2), ()), "one shift for each axis"),
        (lambda x: us.rot90(x, 1, (0, 0)), r"two different axes, got \(0, 0\)"),
    ],
)
def test_errors_name_axis_and_rank(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(2, 3)))
