"""Tensors made from sizes and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops.creation import size_tensor
from unspool.errors import ArgumentError, DTypeError, ShapeError

DTYPES = ["bool", "int32", "int64", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("name", ["zeros", "ones"])
@pytest.mark.parametrize("shape", [(), 3, (2, 3), (0, 2), [2, 1]])
def test_filled_tensors_are_numpys(name: str, shape: Any) -> None:
    ours, theirs = getattr(us, name)(shape), getattr(np, name)(shape)
    assert ours.dtype == np.float64
    np.testing.assert_array_equal(ours.eval(), theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_made(dtype: str) -> None:
    for made in (us.zeros(2, dtype), us.ones(2, dtype), us.eye(2, dtype=dtype), us.full(2, 1, dtype)):
        assert made.dtype == dtype
        assert made.eval().dtype == dtype


@pytest.mark.parametrize("name", ["zeros_like", "ones_like"])
def test_likes_take_shape_and_dtype_from_another(name: str) -> None:
    for other in (np.zeros((2, 3), np.float32), [1, 2], 1.5, us.tensor([1j])):
        ours = getattr(us, name)(other)
        theirs = getattr(np, name)(other.eval() if isinstance(other, us.Tensor) else other)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours.eval(), theirs)
    assert getattr(us, name)([1.0], dtype="int32").dtype == np.int32


def test_equal_zeros_are_one_node() -> None:
    assert us.zeros((2, 3)) is us.zeros((2, 3))
    assert us.empty((2, 3)) is us.zeros((2, 3))
    assert us.zeros_like(us.tensor(np.eye(2))) is us.zeros((2, 2))
    assert us.empty_like(us.tensor(np.eye(2))) is us.zeros((2, 2))
    assert us.zeros(2, "float32") is not us.zeros(2)


def test_full_takes_its_dtype_from_the_value() -> None:
    assert us.full(2, 1).dtype == np.int64
    assert us.full(2, 1.0).dtype == np.float64
    assert us.full_like([1.0], 7).dtype == np.float64
    np.testing.assert_array_equal(us.full((2, 2), [1, 2]).eval(), [[1, 2], [1, 2]])


def test_full_is_differentiable_in_its_value() -> None:
    v = us.tensor(2.0)
    assert us.sum(us.full((2, 3), v) ** 2).grad(v).eval() == 24.0


def test_sizes_may_be_symbolic() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    bound = {x: np.arange(4.0)}
    np.testing.assert_array_equal((us.ones(n) + us.zeros_like(x)).eval(bound), np.ones(4))
    np.testing.assert_array_equal((us.eye(n, n + 1, k=1) * 1.0).eval(bound), np.eye(4, 5, 1))
    np.testing.assert_array_equal(us.arange(n).eval(bound), np.arange(4))
    np.testing.assert_array_equal(us.arange(1, 2 * n, 3).eval(bound), np.arange(1, 8, 3))
    np.testing.assert_array_equal(us.arange(n, -2, -2, dtype="float64").eval(bound), np.arange(4.0, -2, -2))
    np.testing.assert_allclose(us.linspace(1.0, 2.0, n).eval(bound), np.linspace(1, 2, 4))
    np.testing.assert_allclose(
        us.linspace(1.0, 2.0, n, endpoint=False).eval(bound), np.linspace(1, 2, 4, endpoint=False)
    )
    np.testing.assert_array_equal(us.linspace(1.0, 2.0, n).eval({x: [0.0]}), [1.0])
    assert size_tensor(n, "int64").eval(bound) == 4


def test_a_known_size_is_a_constant() -> None:
    assert size_tensor(3) is us.constant(3.0)


@pytest.mark.parametrize("args", [(3,), (1, 4), (1, 8, 2), (5, 0, -2), (0.0, 1.0, 0.25), (3, 1)])
def test_ranges_are_numpys(args: tuple[Any, ...]) -> None:
    ours, theirs = us.arange(*args), np.arange(*args)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours.eval(), theirs)
    assert us.arange(*args, dtype="float32").dtype == np.float32


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 5])
def test_even_spacing_is_numpys(num: int, endpoint: bool) -> None:
    np.testing.assert_array_equal(us.linspace(-1, 2.5, num, endpoint).eval(), np.linspace(-1, 2.5, num, endpoint))
    start, stop = np.array([0.0, 1.0]), np.array([[2.0], [3.0]])
    ours = us.linspace(us.tensor(start), us.tensor(stop), num, endpoint)
    np.testing.assert_allclose(ours.eval(), np.linspace(start, stop, num, endpoint))
    assert us.linspace(0, 1, num, dtype="int64").dtype == np.int64


def test_integer_spacing_rounds_down() -> None:
    start = us.tensor(-1.0)
    np.testing.assert_array_equal(us.linspace(start, 1, 4, dtype="int64").eval(), np.linspace(-1, 1, 4, dtype=int))


def test_even_spacing_is_differentiable_in_its_ends() -> None:
    start, stop = us.tensor(0.0), us.tensor(1.0)
    total = us.sum(us.linspace(start, stop, 5) * [0.0, 1.0, 0.0, 0.0, 2.0])
    np.testing.assert_allclose(us.eval(total.grad([start, stop])), [0.75, 2.25])
    assert us.linspace(us.tensor(np.float32(0)), 1.0, 3).dtype == np.float32


def test_asarray_keeps_tensors_and_makes_leaves_of_the_rest() -> None:
    x = us.tensor([1.0])
    assert us.asarray(x) is x
    assert us.asarray(x, "float32").dtype == np.float32
    data = np.array([1.0, 2.0])
    copied, seen = us.asarray(data), us.asarray(data, copy=False)
    assert np.shares_memory(seen.eval(), data)
    assert not np.shares_memory(copied.eval(), data)
    assert us.asarray(data) is not us.asarray(data)


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: us.zeros((2, -1)), ShapeError, "at least 0"),
        (lambda: us.zeros(2.5), ShapeError, "integers and dims"),
        (lambda: us.zeros(2, "float16"), DTypeError, "float16"),
        (lambda: us.eye(2, k=0.5), DTypeError, "the diagonal k is an integer"),
        (lambda: us.arange(us.tensor(3)), DTypeError, "arange takes numbers"),
        (lambda: us.arange(1, 5, 0), ArgumentError, "not 0"),
        (lambda: us.arange(0.5, us.dims("n")), DTypeError, "symbolic range is an integer"),
        (lambda: us.arange(0, 5, us.dims("n")), ArgumentError, "the step of arange is a number"),
        (lambda: us.arange(float("inf")), ArgumentError, "arange"),
        (lambda: us.full((2,), us.tensor([1.0, 2.0, 3.0])), ShapeError, "cannot be broadcast"),
        (lambda: us.linspace(0, 1, -1), ShapeError, "at least 0"),
    ],
)
def test_misuse_is_refused_when_it_is_built(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()
