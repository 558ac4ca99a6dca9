"""Tiling, repeating and Kronecker products: values, symbolic sizes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ShapeError, SizeContradictionError

N, K = us.dims("n k")


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


@pytest.mark.parametrize("repetitions", [0, 1, 3, (2,), (2, 1), (1, 2, 3), [2, 0], np.array([2, 2]), ()])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (1, 0), (2, 1, 2)])
def test_tile_agrees_with_numpy(shape: Any, repetitions: Any) -> None:
    x = numbers(*shape)
    np.testing.assert_array_equal(us.tile(us.tensor(x), repetitions).eval(), np.tile(x, repetitions), strict=True)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("repeats", [0, 1, 2, np.int64(3), [2], us.tensor(2)])
@pytest.mark.parametrize("shape", [(2, 3), (1, 0), (3, 2, 2)])
def test_repeat_agrees_with_numpy(shape: Any, repeats: Any, axis: Any) -> None:
    x = numbers(*shape)
    expected = np.repeat(x, np.asarray(repeats), axis)
    np.testing.assert_array_equal(us.repeat(us.tensor(x), repeats, axis).eval(), expected, strict=True)


@pytest.mark.parametrize(
    ("repeats", "axis"), [([1, 2], 0), ([3, 0], 0), ((0, 1, 2), 1), ([0, 0, 0], -1), (range(6), None)]
)
def test_repeat_takes_a_number_for_each_element(repeats: Any, axis: Any) -> None:
    x, counts = numbers(2, 3), list(repeats)
    np.testing.assert_array_equal(us.repeat(us.tensor(x), counts, axis).eval(), np.repeat(x, counts, axis), strict=True)
    np.testing.assert_array_equal(us.repeat(x, np.array(counts), axis).eval(), np.repeat(x, counts, axis))


def test_repeating_once_is_the_tensor_itself() -> None:
    x = us.tensor(numbers(2, 3))
    assert us.tile(x, 1) is x
    assert us.repeat(x, 1, 0) is x


def test_tile_and_repeat_multiply_symbolic_sizes() -> None:
    x, y = us.placeholder((N, 2)), us.placeholder((K,))
    tiled, repeated = us.tile(x, (K, 3)), us.repeat(x, K, axis=0)
    assert tiled.shape == (N * K, 6)
    assert repeated.shape == (N * K, 2)
    gradient = us.sum(tiled).grad(x)
    for rows, count in ((2, 3), (0, 2), (3, 1), (2, 0)):
        bindings = {x: numbers(rows, 2), y: numbers(count)}
        a, b, g, _ = us.eval(tiled, repeated, gradient, us.sum(y), bindings=bindings)
        np.testing.assert_array_equal(a, np.tile(numbers(rows, 2), (count, 3)))
        np.testing.assert_array_equal(b, np.repeat(numbers(rows, 2), count, axis=0))
        np.testing.assert_array_equal(g, np.full((rows, 2), 3 * count))


def test_a_number_for_each_element_fixes_a_symbolic_size() -> None:
    x = us.placeholder((N,))
    repeated = us.repeat(x, [2, 0, 1])
    assert repeated.shape == (3,)
    np.testing.assert_array_equal(repeated.eval({x: numbers(3)}), [1, 1, 3])
    with pytest.raises(SizeContradictionError, match="must be equal"):
        repeated.eval({x: numbers(2)})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.repeat(x, [1, 2, 3], 0), "one number or 2 for axis 0 of size 2, got 3"),
        (lambda x: us.repeat(x, -1), "at least 0, got -1"),
        (lambda x: us.repeat(x, 1.5), "repeats are integers, got 1.5"),
        (lambda x: us.repeat(x, 2, 4), "axis 4 is out of range for a tensor with 2 axes"),
        (lambda x: us.repeat(x, [N, K], 0), "symbolic number only for all elements alike"),
        (lambda x: us.tile(x, -2), "at least 0, got -2"),
        (lambda x: us.tile(x, "a"), "repetitions are integers, got 'a'"),
    ],
)
def test_errors_say_what_was_expected(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(2, 3)))


@pytest.mark.parametrize("left", [(), (2,), (2, 3), (1, 2, 2), (0, 2)])
@pytest.mark.parametrize("right", [(), (3,), (2, 1), (2, 1, 3)])
def test_kron_agrees_with_numpy(left: Any, right: Any) -> None:
    a, b = numbers(*left), -numbers(*right)
    ours = us.kron(us.tensor(a), us.tensor(b))
    expected = np.multiply(a, b) if not left or not right else np.kron(a, b)
    np.testing.assert_array_equal(ours.eval(), expected)
    assert ours.shape == expected.shape


def test_kron_multiplies_symbolic_sizes() -> None:
    a, b = us.placeholder((N, 2)), us.placeholder((K, 3))
    product = us.kron(a, b)
    assert product.shape == (N * K, 6)
    gradient = us.sum(product).grad(a)
    bindings = {a: numbers(2, 2), b: numbers(1, 3)}
    np.testing.assert_array_equal(product.eval(bindings), np.kron(numbers(2, 2), numbers(1, 3)))
    np.testing.assert_array_equal(gradient.eval(bindings), np.full((2, 2), 6.0))
