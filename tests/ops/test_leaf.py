"""Leaves: data is copied, constants are their value, placeholders are bound later."""

from __future__ import annotations

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._ops.leaf import as_operands, as_shape, as_tensor, is_seed, unit_seed
from unspool.errors import ArgumentError, DTypeError, ShapeError

# --- tensors ----------------------------------------------------------------------------------------------------------


class ArrayLike:
    """Something that is no array but can become one."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0], dtype=dtype)

    def __repr__(self):
        return "ArrayLike()"


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1.5, "float64", ()),
        (3, "int64", ()),
        (True, "bool", ()),
        (1j, "complex128", ()),
        ([1.0, 2.0], "float64", (2,)),
        ([[1, 2], [3, 4]], "int64", (2, 2)),
        ([1, 2.5], "float64", (2,)),
        ([True, False], "bool", (2,)),
        ((1.0, 2j), "complex128", (2,)),
        (range(3), "int64", (3,)),
        ([], "float64", (0,)),
        (np.float32(2.0), "float32", ()),
        (np.ones(2, np.float32), "float32", (2,)),
        (np.ones(2, np.complex64), "complex64", (2,)),
        (np.ones(2, np.int32), "int32", (2,)),
        (np.ones((2, 3))[:, ::2], "float64", (2, 2)),
        (np.ones(2, ">f8"), "float64", (2,)),
        (ArrayLike(), "float64", (2,)),
        (us.tensor([1.0, 2.0]) * 2.0, "float64", (2,)),
        (np.ma.masked_array([1.0, 2.0]), "float64", (2,)),
    ],
    ids=str,
)
def test_anything_that_is_an_array_becomes_a_leaf(data, dtype, shape):
    for make in (us.tensor, us.constant):
        leaf = make(data)
        assert (leaf.dtype, leaf.shape) == (np.dtype(dtype), shape)
        assert leaf.dtype.isnative
        np.testing.assert_array_equal(leaf.eval(), np.asarray(data))
        assert type(leaf.eval()) is np.ndarray


@pytest.mark.parametrize(
    "data",
    [
        np.ones(2, np.float16),
        np.ones(2, np.longdouble),
        np.array([1, 2], dtype=object),
        "text",
        ["a", "b"],
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        None,
        object,
        2**70,
        [[1.0], [1.0, 2.0]],
        [us.tensor(1.0), us.tensor(2.0)],
        np.zeros(2, dtype=[("a", float)]),
    ],
    ids=str,
)
def test_data_types_that_unspool_does_not_have_are_refused(data):
    for make in (us.tensor, us.constant):
        with pytest.raises(DTypeError):
            make(data)


@pytest.mark.parametrize("dtype", ["float16", "object", "str", "nonsense", np.longdouble])
def test_a_wanted_data_type_has_to_exist(dtype):
    with pytest.raises(DTypeError):
        us.tensor([1, 2], dtype=dtype)
    with pytest.raises(DTypeError):
        us.placeholder((2,), dtype=dtype)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1, 2], "float64"),
        ([1.0, 2.0], "float32"),
        ([1.0, 2.0], "complex128"),
        (np.array([1, 2], np.int16), "int32"),
        ([True, False], "int64"),
        (np.array([1.0, 2.0], np.float16), float),
        ([1.0, 0.0], bool),
    ],
)
def test_data_is_converted_when_a_data_type_is_given(data, dtype):
    leaf = us.tensor(data, dtype=dtype)
    assert leaf.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(leaf.eval(), np.asarray(data).astype(dtype))


def test_a_complex_number_is_not_cut_down_to_a_real_one():
    with pytest.raises(DTypeError, match="real"):
        us.tensor([1 + 2j], dtype="float64")
    with pytest.raises(DTypeError):
        us.tensor(1 + 2j, dtype="float64")


def test_a_list_of_tensors_is_pointed_to_asarray():
    with pytest.raises(DTypeError, match="asarray"):
        us.tensor([us.tensor([1.0]), us.tensor([2.0])])


def test_a_later_write_does_not_change_history():
    data = np.array([1.0, 2.0])
    x = us.tensor(data)
    c = us.constant(data)
    y = x * data
    data[:] = 7.0
    for t, expected in ((x, [1.0, 2.0]), (c, [1.0, 2.0]), (y, [1.0, 4.0])):
        np.testing.assert_array_equal(t.eval(), expected)


def test_without_copy_the_leaf_is_a_read_only_view():
    data = np.array([1.0, 2.0])
    x = us.tensor(data, copy=False)
    assert np.shares_memory(x.eval(), data)
    assert not x.eval().flags.writeable
    assert data.flags.writeable


def test_what_eval_returns_cannot_be_written():
    for t in (us.tensor([1.0]), us.constant([1.0]), us.tensor([1.0]) * 2.0, us.tensor([1.0]).reshape(1, 1)):
        with pytest.raises(ValueError, match="read-only"):
            t.eval()[0] = 7.0


def test_leaves_with_equal_data_are_two_variables():
    x, y = us.tensor([1.0, 2.0]), us.tensor([1.0, 2.0])
    assert x is not y
    np.testing.assert_array_equal(us.sum(x * x).grad([x, y])[1].eval(), [0.0, 0.0])


def test_names_are_kept():
    assert us.tensor(1.0, name="x").name == "x"
    assert us.tensor(1.0).name is None
    assert us.placeholder((), name="p").name == "p"


# --- constants --------------------------------------------------------------------------------------------------------


def test_equal_constants_are_one_node():
    assert us.constant([1.0, 2.0]) is us.constant(np.array([1.0, 2.0]))
    assert us.constant(2.5) is us.constant(2.5)
    large = np.arange(1000.0)
    assert us.constant(large) is us.constant(large[::-1][::-1])
    assert us.constant(np.nan) is us.constant(np.nan)
    assert us.constant([np.nan, 1.0]) is us.constant([np.nan, 1.0])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (0.0, -0.0),
        ([0.0], [-0.0]),
        (1, 1.0),
        (1, True),
        (1.0, 1 + 0j),
        ([1.0], 1.0),
        ([[1.0]], [1.0]),
        (np.float32(0.5), 0.5),
        (complex(-1.0, 0.0), complex(-1.0, -0.0)),
        (complex(0.0, 1.0), complex(-0.0, 1.0)),
    ],
    ids=str,
)
def test_constants_that_differ_in_a_bit_a_shape_or_a_data_type_are_two(left, right):
    a, b = us.constant(left), us.constant(right)
    assert a is not b
    assert a.eval().tobytes() == np.asarray(left).tobytes()
    assert b.eval().tobytes() == np.asarray(right).tobytes()


def test_complex_scalars_in_expressions_keep_the_sign_of_zero():
    x = us.tensor(1 + 0j)
    above, below = x * complex(-1.0, 0.0), x + complex(-3.0, -0.0)
    kept = x + complex(-3.0, 0.0)
    assert below is not kept
    assert np.signbit(below.inputs[0].eval().imag) or np.signbit(below.inputs[1].eval().imag)
    assert above is not None


def test_constants_are_freed_when_nobody_uses_them():
    before = _graph.live_node_count()
    c = us.constant(np.arange(50.0))
    assert _graph.live_node_count() == before + 1
    del c
    assert _graph.live_node_count() == before


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_the_seed_of_a_backward_pass_is_a_one_of_its_own(dtype):
    seed = unit_seed(np.dtype(dtype))
    assert seed is unit_seed(np.dtype(dtype))
    assert is_seed(seed)
    assert (seed.shape, seed.dtype, seed.eval()) == ((), dtype, 1)
    for one in (us.constant(1, dtype), us.tensor(1, dtype), us.constant(seed.eval())):
        assert not is_seed(one)


# --- operands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "scalar", "result"),
    [
        ("float32", 2.0, "float32"),
        ("float32", 2, "float32"),
        ("float32", 2j, "complex64"),
        ("float64", 2j, "complex128"),
        ("int32", 2, "int32"),
        ("int32", 2.0, "float64"),
        ("int64", True, "int64"),
        ("bool", 2, "int64"),
        ("complex64", 2.0, "complex64"),
        ("float32", np.float64(2.0), "float64"),
        ("float32", [2.0], "float64"),
        ("float32", np.float32(2.0), "float32"),
    ],
    ids=str,
)
def test_python_scalars_are_weak_and_everything_else_is_not(dtype, scalar, result):
    x = us.tensor(np.ones(1), dtype=dtype)
    for product in (x * scalar, scalar * x):
        assert isinstance(product, us.Tensor)
        assert product.dtype == np.dtype(result)
        assert product.eval().dtype == np.dtype(result)


def test_scalars_that_do_not_fit_are_refused():
    with pytest.raises(DTypeError):
        us.tensor([1], dtype="int32") + 2**40


def test_operands_without_a_tensor_follow_numpy():
    a, b = as_operands(1, 2.5)
    assert (a.dtype, b.dtype) == (np.dtype("int64"), np.dtype("float64"))
    a, b = as_operands(np.float32(1.0), 2.5)
    assert a.dtype == b.dtype == np.float32
    a, b = as_operands([1, 2], 2.5)
    assert b.dtype == np.float64
    x = us.tensor(1.0)
    assert as_tensor(x) is x


# --- shapes and placeholders ------------------------------------------------------------------------------------------


def test_shapes_are_tuples_of_ints_and_dims():
    n = us.dims("n")
    assert as_shape(3) == (3,)
    assert as_shape([np.int64(2), n]) == (2, n)
    assert type(as_shape((np.int64(2),))[0]) is int
    assert us.placeholder(n).shape == (n,)
    assert us.placeholder(()).shape == ()


@pytest.mark.parametrize("shape", [(-1,), (2.5,), ("n",), (None,), 1.5], ids=str)
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(ShapeError):
        us.placeholder(shape)


@pytest.mark.parametrize("name", [3, b"x", ("x",), 1.5])
def test_a_name_is_a_string(name):
    for make in (lambda: us.tensor(1.0, name=name), lambda: us.placeholder((2,), name=name)):
        with pytest.raises(ArgumentError, match="name is a string, got .* of type"):
            make()
