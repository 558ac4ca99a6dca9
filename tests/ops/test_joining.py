"""Joining and splitting: values, promotion, symbolic sizes, canonical forms, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._graph import ancestors
from unspool.errors import ShapeError, SizeContradictionError, UnknownSizeError

N, K, M = us.dims("n k m")


def numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape) + 1


# --- joining ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        (((2,), (3,)), 0),
        (((2, 3), (2, 1), (2, 0)), 1),
        (((2, 3), (1, 3)), -2),
        (((0, 3), (0, 3)), 0),
        (((2, 2), (3,), ()), None),
        (((2, 3),), 1),
    ],
)
def test_concat_agrees_with_numpy(shapes: Any, axis: Any) -> None:
    arrays = [numbers(*shape) for shape in shapes]
    np.testing.assert_array_equal(
        us.concat([us.tensor(a) for a in arrays], axis).eval(), np.concatenate(arrays, axis), strict=True
    )


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0, 2)])
def test_stack_agrees_with_numpy_along_every_axis(shape: Any) -> None:
    arrays = [numbers(*shape), -numbers(*shape), numbers(*shape) / 2]
    for axis in range(-len(shape) - 1, len(shape) + 1):
        np.testing.assert_array_equal(us.stack(arrays, axis).eval(), np.stack(arrays, axis), strict=True)


@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack"])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 3, 2), (0,)])
def test_named_stacks_agree_with_numpy(name: str, shape: Any) -> None:
    arrays = [numbers(*shape), -numbers(*shape)]
    np.testing.assert_array_equal(getattr(us, name)(arrays).eval(), getattr(np, name)(arrays), strict=True)


@pytest.mark.parametrize("left", ["bool", "int32", "int64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("right", ["bool", "int64", "float32", "complex128"])
def test_joined_data_types_are_promoted(left: str, right: str) -> None:
    arrays = [np.ones(2, left), np.zeros(1, right)]
    joined = us.concat([us.tensor(a) for a in arrays])
    expected = np.concatenate(arrays)
    assert joined.dtype == expected.dtype
    np.testing.assert_array_equal(joined.eval(), expected, strict=True)


def test_python_scalars_take_the_type_of_what_they_are_joined_with() -> None:
    assert us.stack([us.tensor(1.0, "float32"), 2.0]).dtype == np.float32


def test_the_slices_of_a_tensor_can_be_joined_without_computing_it() -> None:
    x = us.placeholder((2, 3))
    np.testing.assert_array_equal(us.concat(x).eval({x: numbers(2, 3)}), numbers(6))


def test_one_operand_is_already_joined() -> None:
    x = us.tensor(numbers(2, 3))
    assert us.concat([x], 1) is x
    assert us.concatenate is us.concat


def test_concat_of_symbolic_sizes_adds_them() -> None:
    x, y = us.placeholder((N, 2)), us.placeholder((K, M))
    joined = us.concat([x, y])
    assert joined.shape == (N + K, 2)
    gradient = us.sum(joined * joined).grad([x, y])
    for rows in ((1, 2), (0, 3), (2, 0)):
        a, b = numbers(rows[0], 2), -numbers(rows[1], 2)
        bindings = {x: a, y: b}
        np.testing.assert_array_equal(joined.eval(bindings), np.concatenate([a, b]))
        np.testing.assert_array_equal(gradient[0].eval(bindings), 2 * a)
        np.testing.assert_array_equal(gradient[1].eval(bindings), 2 * b)
    with pytest.raises(SizeContradictionError, match="must be equal"):
        joined.eval({x: numbers(1, 2), y: numbers(1, 3)})


def test_stack_of_symbolic_sizes_checks_that_they_are_equal() -> None:
    x, y = us.placeholder((N,)), us.placeholder((K,))
    stacked = us.stack([x, y], 1)
    assert stacked.shape == (N, 2)
    np.testing.assert_array_equal(stacked.eval({x: [1.0, 2.0], y: [3.0, 4.0]}), [[1, 3], [2, 4]])
    with pytest.raises(SizeContradictionError, match="must be equal"):
        stacked.eval({x: [1.0, 2.0], y: [3.0]})


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.concat([]), "concat takes at least one tensor, got none"),
        (lambda x: us.stack([]), "stack takes at least one tensor, got none"),
        (lambda x: us.concat([x, numbers(2)]), r"concat of shapes \(2, 3\) and \(2,\): they have 2 and 1 axes"),
        (lambda x: us.concat([x, numbers(2, 4)]), r"shapes \(2, 3\) and \(2, 4\): axis 1 has 3 and 4"),
        (lambda x: us.concat([x, x], 2), "axis 2 is out of range for a tensor with 2 axes"),
        (lambda x: us.concat([1.0, 2.0]), "no axes cannot be joined along one; use stack"),
        (lambda x: us.stack([x, numbers(1, 3)]), r"stack of shapes \(2, 3\) and \(1, 3\): axis 0 has 2 and 1"),
        (lambda x: us.stack([x, x], 3), "axis 3 is out of range for a tensor with 3 axes"),
        (lambda x: us.concat([us.placeholder((N, 2 * K)), us.placeholder((N, 3))], 0), r"axis 1 has 2\*k and 3"),
    ],
)
def test_what_cannot_be_joined_is_refused(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(2, 3)))


# --- splitting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sections", [1, 2, 3, 6, [2], [0, 4], [1, 1, 9], [-2], [-9, 3], [], np.array([2, 4])])
@pytest.mark.parametrize("axis", [0, -1])
def test_split_agrees_with_numpy(sections: Any, axis: int) -> None:
    x = numbers(6, 6)
    ours, theirs = us.split(us.tensor(x), sections, axis), np.split(x, sections, axis)
    assert type(ours) is list
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_array_equal(a.eval(), b, strict=True)


@pytest.mark.parametrize("sections", [1, 2, 4, 5, 9, [2, 3]])
@pytest.mark.parametrize("size", [0, 1, 7, 8])
def test_array_split_agrees_with_numpy(sections: Any, size: int) -> None:
    x = numbers(size, 2)
    for a, b in zip(us.array_split(us.tensor(x), sections), np.array_split(x, sections), strict=True):
        np.testing.assert_array_equal(a.eval(), b, strict=True)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2), (0, 2)])
def test_unstack_gives_the_slices_without_the_axis(shape: Any) -> None:
    x = numbers(*shape)
    for axis in range(len(shape)):
        slices = us.unstack(us.tensor(x), axis)
        assert type(slices) is tuple
        for ours, theirs in zip(slices, np.moveaxis(x, axis, 0), strict=True):
            np.testing.assert_array_equal(ours.eval(), theirs)


def test_one_piece_is_the_tensor_itself() -> None:
    x = us.tensor(numbers(4))
    assert us.split(x, 1)[0] is x
    assert us.split(x, [])[0] is x


def test_iterating_over_a_tensor_unstacks_it() -> None:
    x = us.tensor(numbers(3, 2))
    total = sum((us.sum(row) * (i + 1) for i, row in enumerate(x)), us.tensor(0.0))
    np.testing.assert_array_equal(total.grad(x).eval(), [[1, 1], [2, 2], [3, 3]])


def test_split_of_a_symbolic_size_is_checked_when_it_is_bound() -> None:
    x = us.placeholder((N, 2))
    first, second = us.split(x, 2)
    assert first.shape == second.shape == (N // 2, 2)
    gradient = us.sum(first * second).grad(x)
    for size in (0, 2, 6):
        value = numbers(size, 2)
        np.testing.assert_array_equal(second.eval({x: value}), value[size // 2 :])
        np.testing.assert_array_equal(gradient.eval({x: value}), np.roll(value, size // 2, 0))
    with pytest.raises(SizeContradictionError, match="must be equal"):
        first.eval({x: numbers(3, 2)})


def test_split_of_a_symbolic_size_that_always_divides_needs_no_check() -> None:
    first, second = us.split(us.placeholder((2 * N,)), 2)
    assert first.shape == (N,)
    assert second.shape == (N,)
    with pytest.raises(ShapeError, match="cannot be split into 2 equal pieces"):
        us.split(us.placeholder((2 * N + 1,)), 2)


def test_array_split_of_a_symbolic_size_gives_numpys_sizes() -> None:
    x = us.placeholder((N,))
    pieces = us.array_split(x, 3)
    gradient = us.sum(pieces[0]).grad(x)
    assert gradient.shape == (N,)
    for size in range(8):
        value = numbers(size)
        expected = np.array_split(value, 3)
        for ours, theirs in zip(us.eval(pieces, bindings={x: value}), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(gradient.eval({x: value}), value <= len(expected[0]))


def test_split_takes_symbolic_positions() -> None:
    x, y = us.placeholder((N,)), us.placeholder((K,))
    left, right = us.split(us.concat([x, y]), [N])
    assert (left.shape, right.shape) == ((N,), (K,))
    bindings = {x: numbers(2), y: -numbers(3)}
    np.testing.assert_array_equal(right.eval(bindings), -numbers(3))
    tail = us.split(x, [-1])[1]
    for size in (0, 1, 3):
        np.testing.assert_array_equal(tail.eval({x: numbers(size)}), numbers(size)[-1:])


def test_unstack_of_a_symbolic_size_says_that_it_is_symbolic() -> None:
    x = us.placeholder((N, 2))
    with pytest.raises(UnknownSizeError, match=r"axis 0 of a tensor of shape \(n, 2\).*depends on n"):
        us.unstack(x)
    assert len(us.unstack(x, 1)) == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: us.split(x, 4), "axis 0 of size 6 cannot be split into 4 equal pieces; use array_split"),
        (lambda x: us.split(x, 0), "at least 1 piece, got 0"),
        (lambda x: us.array_split(x, -1), "at least 1 piece, got -1"),
        (lambda x: us.split(x, 2.0), "an integer or a sequence of positions, got 2.0"),
        (lambda x: us.split(x, [1.5]), "an integer or a dim, got 1.5"),
        (lambda x: us.split(x, [4, 2]), r"must not decrease, got \[4, 2\]"),
        (lambda x: us.split(x, 2, 1), "axis 1 is out of range for a tensor with 1 axes"),
        (lambda x: us.unstack(us.tensor(1.0)), "axis 0 is out of range for a tensor with 0 axes"),
    ],
)
def test_what_cannot_be_split_is_refused(build: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        build(us.tensor(numbers(6)))


def test_the_gradient_of_all_pieces_is_one_join_and_not_a_sum_of_paddings() -> None:
    x = us.tensor(numbers(50, 2))
    loss = us.sum(us.stack([us.sum(row * row) for row in us.unstack(x)]))
    gradient = loss.grad(x)
    np.testing.assert_array_equal(gradient.eval(), 2 * numbers(50, 2))
    assert len(ancestors([gradient])) < 12 * 50
