"""What the core records by a short way: it refuses, finds, counts and places nodes as the general way does."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from tests.test_core import declared
from unspool import _core, errors
from unspool._ops.elementwise import ADD, EXP, MULTIPLY
from unspool._ops.indexing.parse import parse_any
from unspool._ops.indexing.update_ops import SLICE_ADD, SLICE_SET
from unspool._ops.indexing.updates import update_of
from unspool._ops.leaf import unit_seed
from unspool._ops.op import FOR_ANY, FOR_ITS_OWN, FOR_SEEDS, Op

MANY = settings(max_examples=200, deadline=None, derandomize=True)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: _core.pick(x), "pick takes 2 arguments, got 1"),
        (lambda x: _core.pick([x], 0), "expected a node"),
        (lambda x: _core.constant(x.dtype, (), 1.0), "constant takes 4 arguments, got 3"),
        (lambda x: _core.constant(x.dtype, (), 1.0, 1.0), "contents as bytes, got 1.0"),
        (lambda x: _core.constant(x.dtype, (2,), b"", b""), "buffer is too small"),
        (lambda x: _core.constant(x.dtype, (), [], b"12345678"), "unhashable"),
        (lambda x: _core.constant_beside(1.0), "constant_beside takes 2 arguments, got 1"),
        (lambda x: _core.operands(x), "operands takes 2 arguments, got 1"),
        (lambda x: _core.record_beside(ADD, x), "record_beside takes 3 arguments, got 2"),
        (lambda x: _core.record_beside("add", x, x), "expected an op, got 'add'"),
        (lambda x: _core.reshape(x), "reshape takes 2 arguments, got 1"),
        (lambda x: _core.concat([x]), "concat takes 2 arguments, got 1"),
        (lambda x: _core.stack([x]), "stack takes 2 arguments, got 1"),
        (lambda x: _core.update_at(EXP, EXP, x.at[0]), "update_at takes 4 arguments, got 3"),
        (lambda x: _core.update_at(EXP, EXP, x, 1.0), "two ops, an update and values"),
        (lambda x: _core.update_at(EXP, 1, x.at[0], 1.0), "two ops, an update and values"),
        (lambda x: _core.combine_at(ADD, EXP, x.at[0]), "combine_at takes 4 arguments, got 3"),
        (lambda x: _core.combine_at(ADD, EXP, x, 1.0), "two ops, an update and values"),
        (lambda x: _core.fitted(x.at[0]), "fitted takes 2 arguments, got 1"),
        (lambda x: _core.fitted(x, 1.0), "expected an update"),
        (lambda x: _core.selected(x), "expected an update"),
        (lambda x: type(x.at)(), "takes the tensor to update"),
        (lambda x: type(x.at)(1.0), "takes the tensor to update"),
        (lambda x: type(x.at)(x, of=x), "takes the tensor to update"),
        (lambda x: type(x.at[0])(x), "6 arguments"),
        (lambda x: type(x.at[0])(x, x, [], (), (), ()), "must be tuple"),
        (lambda x: type(x.at[0])(x, x, (), (), (), (), of=x), "no keywords"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call(us.tensor([1.0, 2.0]))


def test_operands_of_an_update_that_are_no_tensors_are_refused() -> None:
    x = us.tensor([1.0, 2.0])
    update = type(x.at[0])(x, x, ("int",), (), (0,), ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes tensors, got 0"):
        _core.update_at(SLICE_SET, SLICE_SET, update, 1.0)


# --- what nodes have in common ----------------------------------------------------------------------------------------


def test_nodes_of_one_shape_share_parameters_and_key() -> None:
    x, y = us.tensor([[1.0, 2.0]]), us.tensor([[3.0, 4.0]])
    for record in (lambda t: us.sum(t, axis=0), lambda t: t[0, 1:], lambda t: us.reshape(t, (2,)), us.linalg.norm):
        assert record(x).attributes is record(y).attributes and record(x).key is record(y).key


def test_parameters_that_have_other_names_or_another_order_are_not_shared() -> None:
    op, x, y = declared("named"), us.tensor([1.0]), us.tensor([2.0])
    assert _core.apply(op, x, by=1).attributes == {"by": 1}
    assert _core.apply(op, y, of=1).attributes == {"of": 1}
    assert _core.apply(op, x, a=1, b=2).key == (("a", 1), ("b", 2))
    assert _core.apply(op, y, b=1, a=2).key == (("b", 1), ("a", 2))


def test_a_recipe_is_found_again_after_what_its_op_inferred_is_forgotten() -> None:
    op, x = declared("forgetful"), us.tensor([1.0])
    kept = _core.apply(op, x, step=-1)
    for step in range(1500):
        _core.apply(op, x, step=step)
    assert _core.apply(op, x, step=-1) is kept
    op.inferred = {}
    assert _core.apply(op, x, step=-1) is kept


@pytest.mark.parametrize(("canonical_for", "times"), [(FOR_ANY, 6), (FOR_ITS_OWN, 4)])
def test_an_op_is_asked_again_for_a_canonical_form_of_what_may_have_one(canonical_for: int, times: int) -> None:
    asked: list[Any] = []

    def canonical(x: Any, *, by: int) -> Any:
        asked.append(x)
        return x if by == 0 else x.inputs[0] if x.op is op else None

    op: Op = Op(
        "asked for a canonical form",
        infer=lambda x, *, by: (x.shape, x.dtype),
        kernel=lambda x, *, by: x,
        params={"by": "structure"},
        canonical=canonical,
        canonical_for=canonical_for,
    )
    for x in (us.tensor([1.0]), us.tensor([2.0]), us.tensor([3.0])):
        y = _core.apply(op, x, by=1)
        assert y.op is op and _core.apply(op, y, by=2) is x and _core.apply(op, x, by=0) is x
    made_by_others = [x for x in asked if x.op is not op]
    assert len(made_by_others) == times and len(asked) - len(made_by_others) == 3


def test_products_are_asked_for_a_canonical_form_only_beside_the_seed_of_a_backward_pass() -> None:
    x, seed = us.tensor([1.0, 2.0]), unit_seed(np.dtype(float))
    assert MULTIPLY.canonical_for == FOR_SEEDS
    assert x * seed is x and seed * x is x and us.multiply(seed, x) is x
    for number in (1.0, 1, np.ones(2), np.float64(1.0), us.constant(1.0), us.tensor(1.0)):
        assert (x * number).op is MULTIPLY


shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(shapes, shapes)
@MANY
def test_shapes_of_numbers_broadcast_as_numpys_do(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = us.tensor(np.ones(left)), us.tensor(np.ones(right))
    try:
        expected = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(errors.ShapeError, match="cannot be broadcast together"):
            x + y
        return
    assert (x + y).shape == expected and (x + y) is (y + x)


def test_shapes_with_more_elements_than_an_array_can_have_are_refused() -> None:
    tall, wide = us.zeros((2**40, 1)), us.zeros((1, 2**40))
    with pytest.raises(errors.ShapeError, match="more elements than an array can have"):
        tall + wide
    assert (us.zeros((2**20, 1)) + us.zeros((1, 2**20))).shape == (2**20, 2**20)


# --- constants --------------------------------------------------------------------------------------------------------

NUMBERS = [
    *[2.5, 0.1, -1e-30, 1e300, 5e-324, 0.0, -0.0, float("nan"), float("inf"), float("-inf")],
    *[0, 1, -1, 3, 2**24 + 1, -(2**31), 2**53, 2**53 + 1, 2**62],
    *[1j, 2.0 + 0j, -0j, complex(float("nan"), 1.0), complex(-0.0, float("inf")), True, False],
    *[np.float64(2.5), np.float64(-0.0), np.float32(0.1), np.int64(3), np.bool_(True), np.complex128(1j)],
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast", "ignore:invalid value", "ignore:overflow")
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("number", NUMBERS, ids=str)
def test_a_number_beside_a_tensor_has_numpys_dtype_and_bits(number: Any, dtype: str) -> None:
    a = np.ones(1, dtype)
    try:
        expected = np.add(a, number)
    except OverflowError:
        with pytest.raises(errors.DTypeError):
            us.tensor(a) + number
        return
    x = us.tensor(a)
    out = x + number
    assert out.dtype == expected.dtype and out is x + number
    np.testing.assert_array_equal(out.eval(), expected)
    constant = out.inputs[1]
    assert constant is us.constant(constant.value) is us.constant(number, constant.dtype)
    assert constant.value.tobytes() == np.asarray(number).astype(constant.dtype).tobytes()


def test_zeros_of_either_sign_and_numbers_of_different_dtypes_are_different_constants() -> None:
    x, z = us.tensor([1.0]), us.tensor([1j])
    assert x + 0.0 is not x + -0.0 and x + 0.0 is x + 0
    assert z + 0.0 is z + 0j and z + 0.0 is not z + -0.0
    assert (us.tensor([1]) + 2).inputs[1] is not (x + 2).inputs[1]
    assert x * float("nan") is x * float("nan")


ARRAYS = [
    *[np.arange(4.0), np.arange(8.0)[::2], np.arange(4.0)[::-1], np.ones((2, 0)), np.array([0.0, -0.0])],
    *[np.arange(6.0).reshape(2, 3).T, np.broadcast_to(np.arange(3.0), (2, 3)), np.arange(10_000.0)],
    *[np.array([True, False]), np.arange(3, dtype=np.int32), np.arange(3), np.array([1j, 2.0]), np.ones(2, np.float32)],
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_an_array_beside_a_tensor_is_the_constant_of_its_contents(array: Any) -> None:
    x = us.tensor(np.ones(array.shape))
    constant = (x * array).inputs[1]
    assert constant is (x * array.copy()).inputs[1] is us.constant(array) is us.constant(np.asfortranarray(array))
    assert (constant.shape, constant.dtype) == (array.shape, array.dtype)
    np.testing.assert_array_equal(constant.eval(), array)
    assert _core.operands(array, x) == (constant, x)


def test_a_constant_cannot_be_written_into_and_does_not_change_with_its_array() -> None:
    array = np.arange(4.0)
    constant = us.constant(array)
    array[0] = 7.0
    np.testing.assert_array_equal(constant.eval(), [0, 1, 2, 3])
    assert us.constant(array) is not constant
    for value in (constant.eval(), us.constant(2.5).eval()):
        with pytest.raises(ValueError, match="WRITEABLE"):
            value.setflags(write=True)


@pytest.mark.parametrize(
    "operand",
    [np.ones(2, ">f8"), np.ones(2, np.float16), np.ma.masked_array([1.0, 2.0]), np.array(2.0), [1.0, 2.0], (1.0, 2.0)],
    ids=lambda operand: type(operand).__name__ + str(np.asarray(operand).dtype),
)
def test_other_operands_are_left_to_the_general_way(operand: Any) -> None:
    x = us.tensor([1.0, 2.0])
    assert _core.operands(x, operand) is None and _core.record_beside(ADD, operand, x) is None
    assert _core.operands(1.0, 2.0) is None and _core.record_beside(ADD, 1.0, 2.0) is None


# --- updates ----------------------------------------------------------------------------------------------------------

UPDATES = ["set", "add", "subtract", "multiply", "divide", "min", "max"]
INDICES = [
    1,
    -1,
    slice(0, 2),
    slice(None),
    (0, 1),
    (..., 0),
    [0, 1],
    [1, 1],
    np.array([0, 2]),
    (slice(None), [1, 0]),
    None,
]


@pytest.mark.parametrize("method", UPDATES)
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("values", [2.0, 3, np.float64(0.5), "tensor", "array", "row"])
def test_an_update_is_the_node_that_the_general_way_records(method: str, index: Any, values: Any) -> None:
    a = np.arange(1.0, 7.0).reshape(3, 2)
    x = us.tensor(a)
    shape = a[index].shape
    if isinstance(values, str):
        if values == "row":
            shape = shape[-1:]
        array = np.arange(2.0, 2.0 + np.prod(shape)).reshape(shape)
        values = us.tensor(array) if values == "tensor" else array
    short = getattr(x.at[index], method)(values)
    general = update_of(x, parse_any(x, index))
    assert short is getattr(general, method)(values)
    assert general.get() is x.at[index].get()
    numpy_values, expected = np.asarray(values), a.copy()
    if method == "set":
        expected[index] = numpy_values
    else:
        names = {"min": "minimum", "max": "maximum"}
        getattr(np, names.get(method, method)).at(expected, index, numpy_values)
    np.testing.assert_allclose(short.eval(), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (1j, errors.DTypeError),
        (np.ones(2, complex), errors.DTypeError),
        (np.ones(3), errors.ShapeError),
        (us.tensor(np.ones((2, 2))), errors.ShapeError),
    ],
    ids=["number", "array", "size", "axes"],
)
def test_values_that_do_not_fit_are_refused(values: Any, error: Any) -> None:
    x = us.tensor(np.ones((3, 2)))
    with pytest.raises(error, match=r"do not fit|cannot be broadcast"):
        x.at[0].set(values)


def test_what_is_wrong_with_an_index_is_said_before_any_values_are_given() -> None:
    x = us.tensor(np.ones((3, 2)))
    for index in (3, (0, 0, 0), [3], np.array([-4])):
        with pytest.raises(errors.IndexRangeError):
            x.at[index]


# --- layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_tensors_are_joined_as_in_the_general_way(count: int, axis: int) -> None:
    arrays = [np.arange(6.0).reshape(2, 3) + i for i in range(count)]
    tensors = [us.tensor(array) for array in arrays]
    for ours, numpys in ((us.stack, np.stack), (us.concat, np.concatenate)):
        joined = ours(tensors, axis)
        assert joined is ours(tuple(tensors), axis)
        assert joined is ours(tensors, np.int64(axis))  # type: ignore[arg-type] # only the general way takes these
        np.testing.assert_array_equal(joined.eval(), numpys(arrays, axis))


@pytest.mark.parametrize("arrays", [[], (), [1.0], "tensor", "mixed", "shapes", "symbolic"])
def test_what_else_is_joined_is_left_to_the_general_way(arrays: Any) -> None:
    x = us.tensor([1.0, 2.0])
    special = {"tensor": x, "mixed": [x, 1.0], "shapes": [x, x[:1]], "symbolic": [us.placeholder((us.dims("n"),))]}
    arrays = special[arrays] if isinstance(arrays, str) else arrays
    assert _core.stack(arrays, 0) is None
    assert (_core.concat(arrays, 0) is None) == (arrays is not special["shapes"])
    for axis in (None, 2, -3, 10**30, True):
        assert _core.stack([x], axis) is None and _core.concat([x], axis) is None


@given(shapes, st.lists(st.integers(-1, 6), max_size=3).map(tuple))
@MANY
def test_tensors_are_reshaped_as_numpys_arrays_are(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    a = np.arange(np.prod(shape)).reshape(shape)
    x = us.tensor(a)
    try:
        expected = a.reshape(wanted)
    except ValueError:
        with pytest.raises(errors.ShapeError):
            us.reshape(x, wanted)
        return
    out = us.reshape(x, wanted)
    assert out is us.reshape(x, list(wanted)) and out.shape == expected.shape
    np.testing.assert_array_equal(out.eval(), expected)


def test_other_shapes_are_left_to_the_general_way() -> None:
    x, n = us.tensor(np.ones(6)), us.dims("n")
    for shape in ((2.0, 3), (-1, -1), (-2,), (n,), [2, 3], 6, (4, -1), (0, -1), (2**62, 2**62, -1), (10**30,)):
        assert _core.reshape(x, shape) is None
    assert _core.reshape(us.placeholder((n,)), (2, -1)) is None and _core.reshape([1.0], (1,)) is None


# --- products and NumPy's operators -----------------------------------------------------------------------------------


@given(st.sampled_from([(3,), (3, 3), (2, 3), (1, 3)]), st.sampled_from([(3,), (3, 3), (3, 4), (3, 1)]), st.data())
@MANY
def test_a_product_is_the_node_that_the_general_way_records(
    left: tuple[int, ...], right: tuple[int, ...], data: st.DataObject
) -> None:
    dtypes = st.sampled_from(["float64", "float32", "complex128", "int64", "bool"])
    x, y = (us.zeros(shape, dtype=data.draw(dtypes)) for shape in (left, right))
    made = x @ y
    expected = np.zeros(left, x.dtype) @ np.zeros(right, y.dtype)
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    assert made is us.matmul(x, y)
    del made
    general = us.matmul(x, y)
    assert x @ y is general
    assert general.inputs[0] is x and general.attributes["subscripts"].count(",") == 1


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (2, 3)), ((3,), (4,)), ((), (3,)), ((2, 3), ()), ((5, 2, 3), (4, 3, 2))]
)
def test_products_that_do_not_fit_are_refused_in_the_general_way(left: Any, right: Any) -> None:
    x, y = us.zeros(left), us.zeros(right)
    with pytest.raises(errors.ShapeError) as short:
        x @ y
    with pytest.raises(errors.ShapeError) as general:
        us.matmul(x, y)
    assert str(short.value) == str(general.value)
    with pytest.raises(TypeError):
        x @ "y"


@pytest.mark.parametrize("operate", [np.add, np.subtract, np.multiply, np.divide, np.matmul])
def test_an_operator_between_an_array_and_a_tensor_is_that_of_tensors(operate: Any) -> None:
    array, x = np.array([[2.0, 3.0], [5.0, 7.0]]), us.tensor([[1.0, 4.0], [2.0, 8.0]])
    ours = getattr(us, operate.__name__)
    for left, right in ((array, x), (x, array)):
        made = operate(left, right)
        assert made is ours(left, right)
        assert np.array_equal(made.eval(), operate(np.asarray(left), np.asarray(right)))
    assert operate(np.float64(2.0), x[0]) is ours(2.0, x[0]) if operate is not np.matmul else True
    with pytest.raises(errors.MutationError):
        operate(array, x, out=array)
    assert operate(array, x, dtype="complex128").dtype == np.dtype("complex128")


def test_libraries_that_compute_with_arrays_have_values_from_every_code() -> None:
    x = us.tensor([1.0, 2.0])
    for name in ("__main__", "pandas.core", "mine", "sklearn", "pandas_like", "scipy.optimize"):
        code = compile("made = array * x", f"<{name}>", "exec")
        space = {"__name__": name, "array": np.ones(2), "x": x}
        exec(code, space)
        is_values = name.partition(".")[0] in ("pandas", "sklearn", "scipy")
        assert isinstance(space["made"], np.ndarray) == is_values


# --- references, threads, places --------------------------------------------------------------------------------------


def test_recording_by_the_short_way_gives_back_every_reference_it_takes() -> None:
    x, y = us.tensor([1.0, 2.0]), us.tensor([[3.0, 1.0], [4.0, 1.0]])
    row, positions, index = np.array([1.5, 2.5]), np.array([1, 0]), us.tensor([0, 1])

    def everything() -> None:
        x * row + 2 * x - 0.5j * (x / np.float64(2.0)) + row[::-1] * 1
        y[positions] + y[[0, 1], 1:] + y[:, None][0] + y[index] + y[..., np.int64(0)] + y[positions, positions]
        for update in (y.at[0], y.at[:, 1], y.at[positions], y.at[None], y.at[[True, False]]):
            update.set(1.0), update.add(2), update.multiply(row[:1]), update.max(0.5), update.get()
        x @ y + (y @ x) * (row @ x) + (y @ y @ row), np.matmul(row, y, dtype="complex128") - row @ x
        us.stack([x, x], 1) + us.concat([x, x]).reshape(2, -1) + us.concat([y, y[:1]])[:2]
        _core.pick(x, 5), _core.reshape(x, (3, -1)), _core.stack([x, y], 0), _core.concat([x, 1.0], 0)
        _core.operands(x, None), _core.record_beside(MULTIPLY, "a", x), _core.plain_index(y, (0, "a"))
        for refused in (lambda: x.at[9], lambda: us.stack([x, y]), lambda: x.at[0].set(row), lambda: x + y[:, :0]):
            with pytest.raises(errors.UnspoolError):
                refused()

    everything()
    watched = [x, y, row, positions, index, x.shape, y.shape, x.dtype, index.dtype, MULTIPLY, SLICE_ADD, (), us.Tensor]
    gc.collect()
    before, nodes = [sys.getrefcount(thing) for thing in watched], _core.count()
    for _ in range(200):
        everything()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 100
    assert _core.count() == nodes


def test_constants_die_with_the_last_node_that_reads_them() -> None:
    x = us.tensor([1.0, 2.0])
    before = _core.count()
    kept = [x * float(k + 2) + np.array([k, 1.0]) for k in range(100)]
    assert _core.count() >= before + 300
    del kept
    assert _core.count() == before


def test_threads_find_one_constant_and_always_with_its_value() -> None:
    x = us.tensor([1.0, 2.0])
    found: list[list[Any]] = [[] for _ in range(4)]
    failures: list[BaseException] = []

    def record(mine: list[Any]) -> None:
        try:
            for k in range(400):
                made = [
                    x * (k + 0.5),
                    x + np.array([k, 1.0]),
                    x.at[k % 2].set(k),
                    x[np.array([k % 2, 0])],
                    us.stack([x, x]),
                ]
                assert all(
                    node.value is not None for part in made for node in part.inputs if node.op.name == "constant"
                )
                mine.append(made)
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=record, args=(mine,)) for mine in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    first = found[0]
    assert all(
        a is b
        for mine in found[1:]
        for ours, made in zip(first, mine, strict=True)
        for a, b in zip(ours, made, strict=True)
    )


def test_a_node_that_the_core_records_remembers_the_line_of_the_user() -> None:
    x, row = us.tensor([1.0, 2.0]), np.array([3.0, 4.0])
    here = sys._getframe().f_lineno
    made = [
        x[np.array([1, 0])],
        x.at[0].set(1.0),
        us.stack([x, x]),
        us.concat([x, x]),
        x.reshape(2, 1),
        x * row,
        us.mean(x),
    ]
    assert [node.line for node in made] == list(range(here + 2, here + 2 + len(made)))
