"""Functions that name axes: values, symbolic sizes, that they are reshapes and permutations, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, ShapeError, SizeContradictionError

N, K = us.dims("n k")


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 1), (2, 3, 4)])
@pytest.mark.parametrize("name", ["transpose", "ravel", "squeeze", "atleast_1d", "atleast_2d", "atleast_3d"])
def test_functions_of_one_tensor_agree_with_numpy(name: str, shape: Any) -> None:
    x = numbers(*shape)
    np.testing.assert_array_equal(getattr(us, name)(us.tensor(x)).eval(), getattr(np, name)(x), strict=True)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("transpose", ((1, 2, 0),)),
        ("swapaxes", (0, 2)),
        ("swapaxes", (-1, 1)),
        ("swapaxes", (1, 1)),
        ("moveaxis", (0, -1)),
        ("moveaxis", ((0, 1), (1, 2))),
        ("moveaxis", ([2, 0], [0, 1])),
        ("moveaxis", ((), ())),
        ("expand_dims", (0,)),
        ("expand_dims", (-1,)),
        ("expand_dims", ((0, 2, -1),)),
        ("expand_dims", ((),)),
        ("squeeze", (1,)),
        ("squeeze", ((1, -3),)),
        ("squeeze", ((),)),
    ],
)
@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 1, 0)])
def test_functions_with_axes_agree_with_numpy(name: str, arguments: Any, shape: Any) -> None:
    x = numbers(*shape)
    ours, theirs = getattr(us, name)(us.tensor(x), *arguments), getattr(np, name)(x, *arguments)
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.eval(), theirs, strict=True)


def test_matrix_transpose_swaps_the_last_two_axes() -> None:
    x = numbers(2, 3, 4)
    np.testing.assert_array_equal(us.matrix_transpose(x).eval(), np.matrix_transpose(x))
    np.testing.assert_array_equal(us.tensor(x).mT.eval(), np.matrix_transpose(x))


def test_axes_of_size_1_come_and_go_without_a_trace() -> None:
    x = us.tensor(numbers(2, 3))
    assert us.squeeze(us.expand_dims(x, (0, -1))) is x
    assert us.expand_dims(us.expand_dims(x, 0), 0) is us.expand_dims(x, (0, 1))
    assert us.swapaxes(us.swapaxes(x, 0, 1), 0, 1) is x
    assert us.ravel(us.ravel(x)) is us.ravel(x)
    assert us.flatten is us.ravel


def test_squeeze_keeps_sizes_that_may_be_1_unless_they_are_named() -> None:
    x = us.placeholder((1, N, K))
    assert us.squeeze(x).shape == (N, K)
    named = us.squeeze(x, (0, 1))
    assert named.shape == (K,)
    np.testing.assert_array_equal(named.eval({x: numbers(1, 1, 3)}), numbers(3))
    with pytest.raises(SizeContradictionError, match="must be equal"):
        named.eval({x: numbers(1, 2, 3)})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.squeeze(x, 0), r"cannot squeeze axis 0 of a tensor of shape \(2, 1\): its size is not 1"),
        (lambda x: us.squeeze(x, 2), "axis 2 is out of range for a tensor with 2 axes"),
        (lambda x: us.squeeze(x, (1, 1)), "duplicate axis"),
        (lambda x: us.expand_dims(x, 3), "axis 3 is out of range for a tensor with 3 axes"),
        (lambda x: us.expand_dims(x, (0, 0)), "duplicate axis"),
        (lambda x: us.swapaxes(x, 0, 5), "axis 5 is out of range for a tensor with 2 axes"),
        (lambda x: us.moveaxis(x, (0, 1), 0), r"as many destinations as sources, got \(0, 1\) and 0"),
        (lambda x: us.moveaxis(x, (0, 0), (0, 1)), "duplicate axis"),
        (lambda x: us.matrix_transpose(us.ravel(x)), r"at least 2 axes, got shape \(2,\)"),
        (lambda x: us.transpose(x, (0,)), "not a permutation of the 2 axes"),
        (lambda x: us.broadcast_arrays(x, numbers(3, 1)), "cannot be broadcast together"),
    ],
)
def test_errors_name_axis_and_shape(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(2, 1)))


def test_an_unknown_way_of_indexing_a_grid_is_refused() -> None:
    with pytest.raises(ArgumentError, match="indexing is 'xy' or 'ij', got 'yx'"):
        us.meshgrid([1.0], [2.0], indexing="yx")


def test_squeezing_a_symbolic_size_that_is_never_1_is_refused() -> None:
    with pytest.raises(ShapeError, match="cannot squeeze axis 0"):
        us.squeeze(us.placeholder((2 * N,)), 0)


def test_broadcast_arrays_agrees_with_numpy() -> None:
    arrays = (numbers(2, 1), numbers(3), numbers())
    for ours, theirs in zip(us.broadcast_arrays(*arrays), np.broadcast_arrays(*arrays), strict=True):
        np.testing.assert_array_equal(ours.eval(), theirs)
    assert us.broadcast_arrays() == ()


def test_broadcast_arrays_checks_sizes_when_they_are_bound() -> None:
    x, y = us.placeholder((N,)), us.placeholder((K,))
    left, _ = us.broadcast_arrays(x, y)
    np.testing.assert_array_equal((left + y).eval({x: numbers(2), y: numbers(2)}), 2 * numbers(2))
    with pytest.raises(SizeContradictionError):
        us.eval(*us.broadcast_arrays(x, y), bindings={x: numbers(2), y: numbers(3)})


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sizes", [(), (2,), (2, 3), (2, 3, 1), (0, 2)])
def test_meshgrid_agrees_with_numpy(indexing: Any, sparse: bool, sizes: Any) -> None:
    vectors = [numbers(size) for size in sizes]
    ours = us.meshgrid(*vectors, indexing=indexing, sparse=sparse)
    theirs = np.meshgrid(*vectors, indexing=indexing, sparse=sparse)
    assert type(ours) is tuple
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a.eval(), b, strict=True)


def test_meshgrid_of_symbolic_sizes() -> None:
    x, y = us.placeholder((N,)), us.placeholder((K,))
    grid, _ = us.meshgrid(x, y)
    assert grid.shape == (K, N)
    total = us.sum(grid * grid)
    np.testing.assert_array_equal(
        us.eval(total.grad(x), us.sum(y), bindings={x: numbers(2), y: numbers(3)})[0], 6 * numbers(2)
    )


def test_several_tensors_get_axes_at_once() -> None:
    first, second = us.atleast_2d(1.0, [1.0, 2.0])
    assert (first.shape, second.shape) == ((1, 1), (1, 2))
    assert [t.shape for t in us.atleast_1d(1.0, [1.0])] == [(1,), (1,)]
    assert [t.shape for t in us.atleast_3d(1.0, [[1.0]])] == [(1, 1, 1), (1, 1, 1)]
