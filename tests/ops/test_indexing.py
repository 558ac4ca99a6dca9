"""Indexing against NumPy: values, shapes, adjoints, symbolic sizes and errors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import unspool as us
from tests.ops.index_cases import accepted, as_tensors, check_adjoint, is_accepted, numbers
from unspool import _core, errors
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._dims import bind
from unspool._ops.indexing import parse
from unspool._ops.indexing.selection import select
from unspool._ops.leaf import CONSTANT

MANY = settings(max_examples=300, deadline=None, derandomize=True)
FEW = settings(max_examples=60, deadline=None, derandomize=True)


def check_against_numpy(shape: tuple[int, ...], index: Any, ours: Any) -> None:
    """Compare x[index] with NumPy and check the adjoint identity <A x, y> == <x, A' y> without rounding."""
    a, t = numbers(shape), numbers(shape, 1)
    expected = a[index]
    x = us.tensor(a)
    out = x[ours]
    assert out.shape == expected.shape
    np.testing.assert_array_equal(out.eval(), expected)
    (pushed,) = pushforward([out], [x], [us.constant(t)])
    assert (pushed is not None and np.array_equal(pushed.eval(), t[index])) or not np.any(t[index])
    check_adjoint(out, x)


@MANY
@given(accepted(advanced=False))
def test_basic_indexing_is_numpys_and_its_adjoint_is_exact(case: Any) -> None:
    shape, index = case
    check_against_numpy(shape, index, index)


@MANY
@given(accepted(advanced=True))
def test_advanced_indexing_is_numpys_and_its_adjoint_is_exact(case: Any) -> None:
    shape, index = case
    check_against_numpy(shape, index, index)


@MANY
@given(accepted(advanced=True))
def test_index_tensors_mean_the_same_as_arrays(case: Any) -> None:
    shape, index = case
    check_against_numpy(shape, index, as_tensors(index))


@pytest.mark.parametrize("convert", [lambda index: index, as_tensors], ids=["arrays", "tensors"])
@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((4, 4), (np.array([0, 1]), np.array([0, 1, 2]))),
        ((4, 4), (np.array([[0], [1]]), slice(None), np.zeros((3, 2), int)[..., None])),
        ((4, 4), (np.array([True, False, True, True]), np.array([0, 1]))),
        ((3,), np.array([True, False])),
        ((2, 2), np.ones((2, 3), bool)),
        ((0, 2), np.array([0])),
        ((3,), np.array([3])),
        ((3, 2), (slice(None), np.array([0, -3]))),
    ],
)
def test_what_numpy_refuses_is_refused(shape: Any, index: Any, convert: Any) -> None:
    assert not is_accepted(shape, index)
    with pytest.raises((errors.ShapeError, errors.IndexRangeError)):
        us.tensor(numbers(shape))[convert(index)].eval()


@MANY
@given(accepted(advanced=True))
def test_the_second_adjoint_is_the_first_map(case: Any) -> None:
    shape, index = case
    x = us.tensor(numbers(shape))
    out = x[index]
    ct = us.tensor(numbers(out.shape, 2))
    (back,) = pullback([out], [ct], [x])
    assert back is not None
    check_adjoint(back, ct)


@FEW
@given(accepted(advanced=True))
def test_indexing_works_on_complex_numbers(case: Any) -> None:
    shape, index = case
    a = numbers(shape) + 1j * numbers(shape, 3)
    np.testing.assert_array_equal(us.tensor(a)[index].eval(), a[index])


@FEW
@given(accepted(advanced=True))
def test_indexing_works_on_rationals(case: Any) -> None:
    shape, index = case
    rationals = np.array([Fraction(int(v), 3) for v in numbers(shape).flat], object).reshape(shape)
    x = us.tensor(numbers(shape))
    out = x[index]
    np.testing.assert_array_equal(us.Tape(out, {x: rationals}).value(out), rationals[index])


# --- particular forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        np.int64(1),
        np.int32(-1),
        np.array(1),
        np.uint8(2),
        [0, 2],
        [[0, 1], [2, 0]],
        [],
        [True, False, True],
        range(2),
        (1, [0, 2]),
        ([1, 0],),
        ([0], ..., [1]),
        (slice(None), True),
        (None, False, [1]),
        True,
        np.False_,
        (0, None, [1, 1]),
        (np.array([0, -1]), np.array([[1], [2]])),
        np.array([2, 0], np.uint8),
        (),
        ...,
        slice(np.int64(0), np.int64(2)),
    ],
    ids=repr,
)
def test_every_form_of_index_that_numpy_takes_is_taken(index: Any) -> None:
    a = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(us.tensor(a)[index].eval(), a[index])


def test_an_ellipsis_that_stands_for_no_axis_still_separates_index_arrays() -> None:
    a = numbers((3, 4, 5))
    i = np.array([0, 1])
    assert us.tensor(a)[:, i, ..., i].shape == a[:, i, ..., i].shape == (2, 3)
    assert us.tensor(a)[:, i, i].shape == a[:, i, i].shape == (3, 2)


def test_a_0d_integer_tensor_indexes_like_a_number_and_stays_in_the_graph() -> None:
    a = np.arange(6.0).reshape(2, 3)
    i = us.placeholder((), "int64")
    out = us.tensor(a)[:, i]
    for position in (0, 2, -1):
        np.testing.assert_array_equal(out.eval({i: position}), a[:, position])


def test_tensors_in_a_list_make_one_index_array() -> None:
    i = us.placeholder((), "int64")
    out = us.tensor([1.0, 2.0, 3.0])[[i, i + 1]]
    np.testing.assert_array_equal(out.eval({i: 1}), [2.0, 3.0])


def test_an_index_tensor_bound_later_is_an_input_of_the_node() -> None:
    a = np.arange(10.0)
    n = us.dims("n")
    i = us.placeholder((n,), "int64")
    out = us.tensor(a)[i]
    assert out.shape == (n,)
    np.testing.assert_array_equal(out.eval({i: [3, 3, -1]}), a[[3, 3, -1]])


def test_a_mask_is_evaluated_when_the_index_is_built() -> None:
    x = us.tensor([1.0, -2.0, 3.0])
    out = x[x > 0]
    assert out.shape == (2,)
    assert out.inputs[1].op is CONSTANT


def test_a_mask_fixes_a_symbolic_size() -> None:
    n = us.dims("n")
    x = us.placeholder((n, 2))
    out = x[[True, False, True]]
    assert out.shape == (2, 2)
    np.testing.assert_array_equal(out.eval({x: np.arange(6.0).reshape(3, 2)}), [[0, 1], [4, 5]])
    with pytest.raises(errors.SizeContradictionError):
        out.eval({x: np.zeros((4, 2))})


def test_a_loop_over_rows_reads_every_row() -> None:
    a = numbers((4, 3))
    x = us.tensor(a)
    for i in range(-4, 4):
        np.testing.assert_array_equal(x[i].eval(), a[i])


# --- one recipe for one selection ------------------------------------------------------------------------------------


def test_equal_selections_are_one_node() -> None:
    x = us.tensor(np.arange(12.0).reshape(3, 4))
    assert x[:] is x and x[...] is x and x[()] is x and x[0:3] is x and x[::1, :4] is x
    assert x[0:2] is x[-3:-1] and x[:, 1:4] is x[:, 1:] and x[:-1] is x[:2]
    assert x[-1] is x[2] and x[np.int64(2)] is x[2] and x[2, ...] is x[2]
    assert x[::2] is x[:3:2] and x[-1::-1] is x[2::-1] and x[1:3] is x[1:5]
    assert x[[0, -1]] is x[np.array([0, 2])]
    assert x[3:] is x[1:1]


@given(accepted(advanced=True))
@MANY
def test_the_short_way_reads_an_index_as_the_general_way_does(case: Any) -> None:
    shape, index = case
    x = us.tensor(numbers(shape))
    plain = _core.plain_index(x, index)
    general = parse.parse_any(x, index)
    assert plain is None or (general.base is x and plain == general.where)
    assert x[index] is select(general)
    assert x.at[index]._shape == general.shape == np.zeros(shape)[index].shape


@pytest.mark.parametrize(
    "index",
    [
        *[
            1,
            -2,
            np.int64(1),
            slice(None),
            slice(1, None),
            slice(0, 2),
            slice(None, None, -1),
            (),
            None,
            ...,
            [1, 0, 1],
        ],
        *[(0, slice(1, 3)), (..., 2), (None, 0, ..., None), (slice(None), None), (1, 2), (slice(0, 1), [2, 0])],
        *[np.array([[1, 0], [0, 1]]), (np.array([1, 0]), np.array([2, 2])), (None, np.array([1]), slice(0, 2))],
        *[(np.array([0]), None, 1), us.tensor(1), us.tensor([0, 1]), (slice(None), us.tensor([2]))],
    ],
    ids=str,
)
def test_the_short_way_reads_what_the_steps_of_loops_have(index: Any) -> None:
    a = numbers((2, 3))
    x = us.tensor(a)
    general = parse.parse_any(x, index)
    assert _core.plain_index(x, index) == general.where
    assert x[index] is _core.pick(x, index) is select(general)
    items = index if isinstance(index, tuple) else (index,)
    expected = a[tuple(item.eval() if isinstance(item, us.Tensor) else item for item in items)]
    np.testing.assert_array_equal(x[index].eval(), expected)
    np.testing.assert_array_equal(x.at[index].get().eval(), expected)
    assert x.at[index]._shape == expected.shape


@pytest.mark.parametrize(
    "index",
    [
        *[
            True,
            1.0,
            [],
            [True],
            [0, -1],
            [2],
            [[0]],
            [0.5],
            np.bool_(True),
            np.int32(0),
            np.array(0),
            np.array([True]),
        ],
        *[np.array([-1]), np.array([2]), np.array([0], np.int32), us.constant([0]), us.tensor(np.int32(0)), "a"],
        *[(0, 0, 0), 2, -3, 10**30, slice(0, 1, 0), slice(np.int64(0), 1), (..., 0, ...), ([0], ..., [0])],
        *[(np.array([0, 1]), np.array([[0], [1]])), (0,) * 17],
    ],
    ids=str,
)
def test_the_short_way_leaves_everything_else_to_the_general_way(index: Any) -> None:
    x = us.zeros((2, 3))
    assert _core.plain_index(x, index) is None and _core.pick(x, index) is None


def test_the_short_way_leaves_sizes_that_are_not_known_to_the_general_way() -> None:
    n = us.dims("n")
    assert _core.plain_index(us.placeholder((n, 3)), 0) is None
    assert _core.plain_index(us.placeholder((3, n)), 0) is None
    assert _core.plain_index(us.tensor([1.0, 2.0]), us.placeholder((n,), "int64")) is None


def test_an_integer_tensor_as_an_index_is_the_same_op_as_an_integer() -> None:
    x, i = us.tensor([[1.0, 2.0], [3.0, 4.0]]), us.tensor(1)
    assert x[i].op is x[1].op and x[i].attributes == x[1].attributes
    assert x[:, i].attributes == x[:, 1].attributes
    assert x.at[i].set(0.0).op is x.at[1].set(0.0).op
    np.testing.assert_array_equal(us.sum(x[i] * x[i]).grad(x).eval(), [[0, 0], [6, 8]])
    np.testing.assert_array_equal(x.at[i, 0].multiply(2.0).eval(), [[1, 2], [6, 4]])


def test_an_integer_tensor_out_of_range_is_found_when_the_node_runs_also_on_an_axis_of_size_1() -> None:
    for shape in ((1, 2), (2, 2)):
        out = us.zeros(shape)[us.tensor(-3)]
        with pytest.raises(errors.IndexRangeError, match=f"index -3 is out of range for axis 0 with size {shape[0]}"):
            out.eval()


def test_a_new_axis_is_a_reshape() -> None:
    x = us.tensor([1.0, 2.0])
    assert x[None] is us.reshape(x, (1, 2))
    assert x[None][0] is x
    assert x[:, None] is us.reshape(x, (2, 1))


def test_an_index_on_symbolic_axes_is_shared_too() -> None:
    n = us.dims("n")
    x = us.placeholder((n, 3))
    assert x[0:] is x and x[:n] is x and x[n - 1] is x[-1] and x[: n - 1] is x[:-1] and x[:, 0:3] is x


# --- symbolic sizes --------------------------------------------------------------------------------------------------

SYMBOLIC_SLICES = [
    slice(a, b, c)
    for a in (None, 0, 1, 3, -1, -2, -4)
    for b in (None, 0, 1, 3, -1, -2, -4)
    for c in (None, 2, 3, -1, -2)
]


@pytest.mark.parametrize("part", SYMBOLIC_SLICES, ids=str)
def test_a_slice_of_a_symbolic_axis_has_numpys_size_for_every_binding(part: slice) -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    out = x[part]
    for size in range(8):
        a = np.arange(float(size))
        assert bind(out.shape[0], {"n": size}) == len(a[part])
        np.testing.assert_array_equal(out.eval({x: a}), a[part])


@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize("stop", ["none", "n//2", "n-3", "2*n", "k", "k-n"])
@pytest.mark.parametrize("start", ["none", "n//2", "n-2", "-n", "k", "1-k"])
def test_slice_bounds_may_be_symbolic(start: str, stop: str, step: int) -> None:
    n, k = us.dims("n k")
    x, y = us.placeholder((n,)), us.placeholder((k,))

    def bound(text: str, **sizes: Any) -> Any:
        return None if text == "none" else eval(text, {}, sizes)

    out = x[bound(start, n=n, k=k) : bound(stop, n=n, k=k) : step]
    joined = us.sum(out) + us.sum(y)
    for size in range(6):
        for other in range(4):
            a, b = np.arange(1.0, 1.0 + size), np.ones(other)
            expected = a[bound(start, n=size, k=other) : bound(stop, n=size, k=other) : step]
            assert joined.eval({x: a, y: b}) == expected.sum() + other


def test_common_slices_of_a_symbolic_axis_have_short_sizes() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    assert x[1:].shape == x[:-1].shape
    assert x[2:].shape == x[1:-1].shape == x[:-2].shape
    assert x[::-1].shape == (n,)
    assert x[-2:].shape == x[:2].shape
    assert str(x[1:].shape[0]) == "max(0, n - 1)"


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_gradient_of_a_slice_works_for_every_binding(size: int) -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    loss = us.sum(x[1:] * x[:-1]) + x[-1] * x[0]
    a = numbers((size,))
    (g,) = pullback([loss], [us.constant(1.0)], [x])
    expected = np.zeros(size)
    expected[1:] += a[:-1]
    expected[:-1] += a[1:]
    expected[-1] += a[0]
    expected[0] += a[-1]
    np.testing.assert_array_equal(g.eval({x: a}), expected)


# --- absent elements -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index", [slice(1, None), 1, [1, 2], [1, 1, 2], np.array([False, True, True]), (None, slice(2, 0, -1))], ids=str
)
def test_what_was_not_selected_does_not_spoil_a_gradient(index: Any) -> None:
    x = us.tensor([0.0, 4.0, 9.0])
    (g,) = pullback([us.sum(us.sqrt(x)[index])], [us.constant(1.0)], [x])
    value = g.eval()
    assert np.all(np.isfinite(value)) and value[0] == 0 and value[1] > 0


def test_absence_survives_nested_selection() -> None:
    x = us.tensor([0.0, 0.0, 9.0])
    (g,) = pullback([us.sqrt(x)[1:][[1, 1]][0]], [us.constant(1.0)], [x])
    np.testing.assert_allclose(g.eval(), [0, 0, 1 / 6])


def test_a_selection_of_everything_needs_no_mask() -> None:
    x = us.tensor([1.0, 2.0, 3.0])
    ct = us.tensor([1.0, 2.0, 3.0])
    (g,) = pullback([x[::-1]], [ct], [x])
    assert g.op.name == "unslice"


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        (3, errors.IndexRangeError, ["3", "axis 0", "size 3"]),
        (-4, errors.IndexRangeError, ["-4", "axis 0", "size 3"]),
        ((0, 4), errors.IndexRangeError, ["4", "axis 1", "size 4"]),
        ((..., -5), errors.IndexRangeError, ["-5", "axis 1", "size 4"]),
        ((None, [0, 5, 1]), errors.IndexRangeError, ["5", "axis 0", "size 3"]),
        ((0, [[-9]]), errors.IndexRangeError, ["-9", "axis 1", "size 4"]),
        ((0, 0, 0), errors.IndexRangeError, ["too many", "3", "2 axes"]),
        ((..., 0, ...), errors.IndexRangeError, ["one ellipsis"]),
        (1.0, errors.DTypeError, ["float64"]),
        ([0.5], errors.DTypeError, ["float64"]),
        ("a", errors.DTypeError, ["<U1"]),
        (object, errors.DTypeError, ["got type"]),
        (slice(0.5), errors.DTypeError, ["0.5"]),
        (slice(None, None, 0), errors.ShapeError, ["step"]),
        ([True, False], errors.ShapeError, ["axis 0", "size 3", "not 2"]),
        (np.zeros((3, 2), bool), errors.ShapeError, ["axis 1", "size 4", "not 2"]),
        (([0, 1], [0, 1, 2]), errors.ShapeError, ["(2,)", "(3,)"]),
        ([[0, 1], [0]], errors.ShapeError, ["rectangular"]),
    ],
    ids=repr,
)
def test_a_wrong_index_is_refused_when_it_is_built(index: Any, error: type[Exception], words: list[str]) -> None:
    x = us.tensor(np.zeros((3, 4)))
    with pytest.raises(error) as caught:
        x[index]
    for word in words:
        assert word in str(caught.value)


def test_a_float_tensor_is_no_index() -> None:
    with pytest.raises(errors.DTypeError, match="float64"):
        us.tensor([1.0])[us.tensor([0.0])]


def test_an_index_tensor_out_of_range_is_refused_when_it_runs_with_axis_index_size_and_line() -> None:
    x = us.tensor(np.zeros((3, 4)))
    out = x[:, us.tensor([0, 7])]
    with pytest.raises(errors.IndexRangeError, match=r"index 7 .* axis 1 with size 4.*test_indexing\.py"):
        out.eval()


def test_a_position_on_a_symbolic_axis_is_checked_when_it_runs() -> None:
    n = us.dims("n")
    x = us.placeholder((2, n))
    with pytest.raises(errors.IndexRangeError, match="index -1 .* axis 1 with size 0"):
        x[:, -1].eval({x: np.zeros((2, 0))})
    with pytest.raises(errors.IndexRangeError, match="index 5 .* axis 1 with size 3"):
        x[0, [1, 5]].eval({x: np.zeros((2, 3))})
    (g,) = pullback([x[0, 2]], [us.constant(1.0)], [x])
    with pytest.raises(errors.IndexRangeError, match="index 2 .* axis 1 with size 1"):
        g.eval({x: np.zeros((2, 1))})


# --- take and its kin ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("indices", [1, [0, 2, 2], [[0], [-1]], []])
def test_take_is_numpys(indices: Any, axis: int | None) -> None:
    a = np.arange(12.0).reshape(3, 4)
    expected = np.take(a, np.array(indices, int), axis=axis)
    out = us.take(a, indices, axis=axis)
    assert out.shape == expected.shape
    np.testing.assert_array_equal(out.eval(), expected)


@pytest.mark.parametrize(
    ("shape", "indices", "axis"),
    [
        ((3, 4), [[0, 2, 3], [1, 1, -1], [0, 0, 0]], 1),
        ((3, 4), [[0, 2, 1, 1]], 0),
        ((3, 4), [[2], [0], [1]], -1),
        ((1, 4), [[0, 1], [3, 2]], 1),
        ((5,), [4, 4, 0], 0),
        ((2, 3), [5, 0], None),
        ((2, 0), np.zeros((2, 0), int), 1),
    ],
)
def test_take_along_axis_is_numpys_and_its_adjoint_is_exact(shape: Any, indices: Any, axis: int | None) -> None:
    a = numbers(shape)
    x = us.tensor(a)
    out = us.take_along_axis(x, indices, axis=axis)
    np.testing.assert_array_equal(out.eval(), np.take_along_axis(a, np.asarray(indices), axis=axis))
    check_adjoint(out, x)


def test_put_along_axis_returns_what_numpy_writes() -> None:
    a = numbers((3, 4))
    i = np.array([[0, 2], [1, 1], [3, 0]])
    expected = a.copy()
    np.put_along_axis(expected, i, np.arange(6.0).reshape(3, 2), axis=1)
    np.testing.assert_array_equal(us.put_along_axis(a, i, np.arange(6.0).reshape(3, 2), axis=1).eval(), expected)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: us.take([1.0, 2.0], [0, 2]), errors.IndexRangeError),
        (lambda: us.take([1.0, 2.0], [0.5]), errors.DTypeError),
        (lambda: us.take([1.0, 2.0], [True, False]), errors.DTypeError),
        (lambda: us.take([1.0, 2.0], [0], axis=1), errors.ShapeError),
        (lambda: us.take_along_axis([[1.0, 2.0]], [0], axis=1), errors.ShapeError),
        (lambda: us.take_along_axis([[1.0, 2.0]], [[2]], axis=1), errors.IndexRangeError),
        (lambda: us.put_along_axis([[1.0, 2.0]], [[0], [1]], 0.0, axis=1), errors.ShapeError),
        (lambda: us.nonzero(1.0), errors.ShapeError),
        (lambda: us.compress([[True]], [1.0]), errors.ShapeError),
    ],
)
def test_wrong_arguments_of_take_and_its_kin_are_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_positions_of_what_is_not_zero_are_numpys() -> None:
    a = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    for ours, expected in zip(us.nonzero(a), np.nonzero(a), strict=True):
        np.testing.assert_array_equal(ours.eval(), expected)
    np.testing.assert_array_equal(us.flatnonzero(a).eval(), np.flatnonzero(a))
    np.testing.assert_array_equal(us.argwhere(a).eval(), np.argwhere(a))
    np.testing.assert_array_equal(us.compress([True, False, True], a, axis=1).eval(), a[:, [0, 2]])
    np.testing.assert_array_equal(us.extract(a > 1, a).eval(), np.extract(a > 1, a))


def test_tensors_have_the_methods_of_the_family() -> None:
    x = us.tensor([3.0, 1.0])
    np.testing.assert_array_equal(x.sort().eval(), [1, 3])
    np.testing.assert_array_equal(x.argsort().eval(), [1, 0])
    np.testing.assert_array_equal(x.take([1, 1]).eval(), [1, 1])
