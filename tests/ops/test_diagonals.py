"""Diagonals and triangles: values, symbolic sizes, canonical forms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops.layout.diagonals import embed_diagonal
from unspool.errors import ShapeError

N, K = us.dims("n k")
OFFSETS = range(-4, 5)
MATRICES = [(3, 3), (2, 4), (4, 2), (1, 1), (0, 3), (3, 0)]


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


@pytest.mark.parametrize("shape", MATRICES)
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", ["diagonal", "trace", "diag", "tril", "triu"])
def test_functions_of_a_matrix_agree_with_numpy(name: str, shape: Any, offset: int) -> None:
    x = numbers(*shape)
    ours, theirs = getattr(us, name)(us.tensor(x), offset), np.asarray(getattr(np, name)(x, offset))
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.eval(), theirs, strict=True)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (-1, 1), (-2, -1)])
@pytest.mark.parametrize("offset", [-1, 0, 2])
def test_diagonals_of_stacks_agree_with_numpy(axes: Any, offset: int) -> None:
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(us.diagonal(x, offset, *axes).eval(), np.diagonal(x, offset, *axes), strict=True)
    np.testing.assert_array_equal(us.tensor(x).trace(offset, *axes).eval(), np.trace(x, offset, *axes), strict=True)


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("k", [-2, 0, 1])
def test_diag_and_diagflat_make_matrices(size: int, k: int) -> None:
    x = numbers(size)
    np.testing.assert_array_equal(us.diag(us.tensor(x), k).eval(), np.diag(x, k), strict=True)
    np.testing.assert_array_equal(us.diagflat(us.tensor(x[None]), k).eval(), np.diagflat(x[None], k), strict=True)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "complex64"])
@pytest.mark.parametrize("name", ["diagonal", "trace", "tril", "triu"])
def test_data_types_are_numpys(name: str, dtype: str) -> None:
    x = np.ones((2, 3, 3), dtype)
    np.testing.assert_array_equal(getattr(us, name)(us.tensor(x)).eval(), getattr(np, name)(x), strict=True)


def test_triangles_drop_infinities() -> None:
    x = np.array([[1.0, np.inf], [np.nan, 2.0]])
    np.testing.assert_array_equal(us.tril(us.triu(x)).eval(), [[1, 0], [0, 2]])


def test_the_diagonal_that_was_written_is_the_one_that_is_read() -> None:
    x = us.tensor(numbers(3))
    assert us.diag(us.diag(x)) is x
    assert us.diagonal(us.diag(x, -1), -1) is x
    assert us.diagonal(us.diag(x, 1)) is not x


@pytest.mark.parametrize("offset", [-3, -1, 0, 2])
def test_symbolic_sizes_give_the_diagonals_of_any_matrix(offset: int) -> None:
    x = us.placeholder((N, K))
    line, lower, upper = us.diagonal(x, offset), us.tril(x, offset), us.triu(x, offset)
    loss = us.sum(line * line) + us.sum(lower) + us.sum(upper)
    gradient = loss.grad(x)
    assert gradient.shape == (N, K)
    for shape in MATRICES:
        value = numbers(*shape)
        np.testing.assert_array_equal(line.eval({x: value}), np.diagonal(value, offset))
        np.testing.assert_array_equal(lower.eval({x: value}), np.tril(value, offset))
        np.testing.assert_array_equal(upper.eval({x: value}), np.triu(value, offset))
        ones = np.ones(shape)
        on_line = np.tril(np.triu(ones, offset), offset)
        expected = 2 * value * on_line + np.tril(ones, offset) + np.triu(ones, offset)
        np.testing.assert_array_equal(gradient.eval({x: value}), expected)


def test_a_symbolic_vector_makes_a_matrix() -> None:
    x = us.placeholder((N - 1,))
    matrix = us.diag(x, 2)
    assert matrix.shape == (N + 1, N + 1)
    gradient = us.sum(matrix * matrix).grad(x)
    for size in (0, 1, 3):
        np.testing.assert_array_equal(matrix.eval({x: numbers(size)}), np.diag(numbers(size), 2))
        np.testing.assert_array_equal(gradient.eval({x: numbers(size)}), 2 * numbers(size))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.diagonal(us.ravel(x)), r"at least 2 axes, got shape \(6,\)"),
        (lambda x: us.diagonal(x, 0, 1, 1), "two different axes, got 1 and 1"),
        (lambda x: us.diagonal(x, 0, 0, 2), "axis 2 is out of range for a tensor with 2 axes"),
        (lambda x: us.diagonal(x, 0.5), "a diagonal is given by an integer, got 0.5"),
        (lambda x: us.diag(us.zeros((2, 2, 2))), r"a vector or a matrix, got shape \(2, 2, 2\)"),
        (lambda x: us.tril(us.ravel(x)), r"tril takes a tensor with at least 2 axes, got shape \(6,\)"),
        (lambda x: us.triu(1.0), r"triu takes a tensor with at least 2 axes, got shape \(\)"),
        (lambda x: embed_diagonal(us.ravel(x), 3, 3, 0), "diagonal 0 of a 3 by 3 matrix has 3 elements, not 6"),
    ],
)
def test_errors_name_axis_and_shape(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(2, 3)))
