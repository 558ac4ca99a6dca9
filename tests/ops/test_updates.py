"""Functional updates against NumPy's ``ufunc.at``, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from tests.ops.index_cases import accepted, as_tensors, check_adjoint, numbers
from unspool import errors
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback

MANY = settings(max_examples=200, deadline=None, derandomize=True)


def set_in_order(a: Any, index: Any, values: Any) -> None:
    """Set element by element in row-major order of the selection, so that the last value stays by construction."""
    places = np.arange(a.size).reshape(a.shape)[index]
    for place, value in zip(places.flat, np.broadcast_to(values, places.shape).flat, strict=True):
        a.flat[place] = value


AT = {
    "set": set_in_order,
    "add": np.add.at,
    "subtract": np.subtract.at,
    "multiply": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def updated(a: Any, method: str, index: Any, values: Any) -> Any:
    """Return what NumPy makes of an array: an update in place, of a copy."""
    out = np.array(a)
    AT[method](out, index, values)
    return out


def selected(shape: tuple[int, ...], index: Any) -> tuple[int, ...]:
    """Return the shape of what an index selects."""
    return np.zeros(shape)[index].shape


# --- values ----------------------------------------------------------------------------------------------------------


@MANY
@given(accepted(advanced=True), st.sampled_from(sorted(AT)), st.booleans(), st.booleans())
def test_updates_are_numpys(case: Any, method: str, constant_index: bool, scalar: bool) -> None:
    shape, index = case
    a, v = numbers(shape), 3.0 if scalar else numbers(selected(shape, index), 1)
    x = us.tensor(a)
    out = getattr(x.at[index if constant_index else as_tensors(index)], method)(v)
    assert out.shape == shape and out.dtype == x.dtype
    np.testing.assert_array_equal(out.eval(), updated(a, method, index, v))
    np.testing.assert_array_equal(x.eval(), a)


REAL, COMPLEX = ["int32", "int64", "float32", "float64"], ["complex64", "complex128"]


@pytest.mark.parametrize(
    ("method", "dtype"),
    [(method, dtype) for method in sorted(AT) for dtype in REAL + (COMPLEX if method not in ("min", "max") else [])],
)
@pytest.mark.parametrize("index", [np.s_[1:], [2, 0, 2]], ids=["slice", "repeated"])
def test_updates_keep_the_dtype(dtype: str, method: str, index: Any) -> None:
    a = np.array([3, 1, 2], dtype)
    v = np.array([2, 5, 4], dtype)[: len(a[index])]
    out = getattr(us.tensor(a).at[index], method)(v)
    assert out.dtype == a.dtype and out.eval().dtype == a.dtype
    np.testing.assert_array_equal(out.eval(), updated(a, method, index, v))


def test_bools_can_be_set() -> None:
    np.testing.assert_array_equal(us.tensor([True, False]).at[1].set(True).eval(), [True, True])


def test_get_is_indexing() -> None:
    x = us.tensor([1.0, 2.0, 3.0])
    assert x.at[1:].get() is x[1:]


def test_division_divides_by_every_value() -> None:
    a = np.array([8.0, 6.0, 10.0])
    np.testing.assert_array_equal(us.tensor(a).at[1:].divide([2.0, 5.0]).eval(), [8, 3, 2])
    np.testing.assert_array_equal(us.tensor(a).at[[0, 0]].divide([2.0, 4.0]).eval(), [1, 6, 10])


def test_a_mask_updates_where_it_is_true() -> None:
    x = us.tensor([-1.0, 2.0, -3.0])
    np.testing.assert_array_equal(x.at[x < 0].set(0.0).eval(), [0, 2, 0])
    np.testing.assert_array_equal(x.at[np.array([True, False, True])].multiply([2.0, 3.0]).eval(), [-2, 2, -9])


def test_values_broadcast_and_are_cast() -> None:
    x = us.tensor(np.zeros((2, 3), np.float32))
    out = x.at[:, [0, 2]].set(us.tensor([[1], [2]]))
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out.eval(), [[1, 0, 1], [2, 0, 2]])
    np.testing.assert_array_equal(x.at[0, 0].set(np.array([[7.0]])).eval(), [[7, 0, 0], [0, 0, 0]])


def test_updates_work_with_symbolic_sizes() -> None:
    n, m = us.dims("n m")
    x, i = us.placeholder((n,)), us.placeholder((m,), "int64")
    v = us.placeholder((m,))
    for method in sorted(AT):
        out = getattr(x.at[i], method)(v)
        assert out.shape == (n,)
        (g,) = pullback([us.sum(out)], [us.constant(1.0)], [v])
        for a, where, values in ([[1.0, 2.0, 3.0], [0, 0, -1], [3.0, 4.0, 5.0]], [[1.0], [], []]):
            bound = {x: np.array(a), i: np.array(where, int), v: np.array(values)}
            np.testing.assert_array_equal(out.eval(bound), updated(a, method, np.array(where, int), np.array(values)))
            assert g.eval(bound).shape == (len(values),)
    np.testing.assert_array_equal(x.at[1:].add(1.0).eval({x: np.zeros(3)}), [0, 1, 1])


def test_equal_updates_are_one_node() -> None:
    x = us.tensor([1.0, 2.0, 3.0])
    assert x.at[0:2].set(1.0) is x.at[-3:-1].set(1.0)


# --- derivatives -----------------------------------------------------------------------------------------------------


@MANY
@given(accepted(advanced=True), st.sampled_from(["set", "add", "subtract"]), st.booleans())
def test_adjoints_of_linear_updates_are_exact_for_tensor_and_values(
    case: Any, method: str, constant_index: bool
) -> None:
    shape, index = case
    x, v = us.tensor(numbers(shape)), us.tensor(numbers(selected(shape, index), 1))
    out = getattr(x.at[index if constant_index else as_tensors(index)], method)(v)
    check_adjoint(out, x)
    check_adjoint(out, v)


@MANY
@given(accepted(advanced=True), st.sampled_from(["multiply", "min", "max"]), st.booleans())
def test_adjoints_of_the_other_updates_are_exact_too(case: Any, method: str, constant_index: bool) -> None:
    shape, index = case
    # Multiples of 60 make every share of a tie a whole number.
    a, w = numbers(shape), numbers(selected(shape, index), 1)
    x, v = us.tensor(a), us.tensor(w)
    out = getattr(x.at[index if constant_index else as_tensors(index)], method)(v)
    for variable in (x, v):
        t, ct = 60 * numbers(variable.shape, 2), 7 * numbers(shape, 3)
        (pushed,) = pushforward([out], [variable], [us.constant(t)])
        (pulled,) = pullback([out], [us.constant(ct)], [variable])
        left = 0.0 if pushed is None else np.sum(pushed.eval() * ct)
        right = 0.0 if pulled is None else np.sum(t * pulled.eval())
        assert left == pytest.approx(right, rel=1e-12, abs=1e-9)


def gradients(out: Any, ct: Any, *variables: Any) -> list[Any]:
    return [g.eval() for g in pullback([out], [us.constant(np.asarray(ct, float))], list(variables))]


def test_of_values_set_to_one_element_only_the_last_has_a_derivative() -> None:
    x, v = us.tensor([1.0, 2.0, 3.0]), us.tensor([10.0, 20.0, 30.0, 40.0])
    for index in ([2, 0, 2, 0], us.tensor([2, 0, 2, 0])):
        out = x.at[index].set(v)
        np.testing.assert_array_equal(out.eval(), [40, 2, 30])
        gx, gv = gradients(out, [1, 2, 3], x, v)
        np.testing.assert_array_equal(gx, [0, 2, 0])
        np.testing.assert_array_equal(gv, [0, 0, 3, 1])


def test_values_added_to_one_element_all_have_its_derivative() -> None:
    x, v = us.tensor([1.0, 2.0, 3.0]), us.tensor([10.0, 20.0, 30.0])
    gx, gv = gradients(x.at[[1, 1, 0]].add(v), [1, 2, 3], x, v)
    np.testing.assert_array_equal(gx, [1, 2, 3])
    np.testing.assert_array_equal(gv, [2, 2, 1])


@pytest.mark.parametrize("factors", [[2.0, 3.0, 5.0], [0.0, 3.0, 5.0], [0.0, 3.0, 0.0]])
def test_the_derivative_of_repeated_factors_is_the_product_of_the_others(factors: list[float]) -> None:
    x, v = us.tensor([7.0, 4.0]), us.tensor(factors)
    gx, gv = gradients(x.at[[0, 0, 0]].multiply(v), [1, 1], x, v)
    a, b, c = factors
    np.testing.assert_array_equal(gx, [a * b * c, 1])
    np.testing.assert_array_equal(gv, [7 * b * c, 7 * a * c, 7 * a * b])


def test_the_third_derivative_of_repeated_factors_is_what_is_left() -> None:
    x, v = us.tensor([7.0]), us.tensor([0.0, 0.0, 0.0])
    out = x.at[[0, 0, 0]].multiply(v)
    (first,) = pullback([out], [us.constant([1.0])], [v])
    (second,) = pullback([first[0]], [us.constant(1.0)], [v])
    (third,) = pullback([second[1]], [us.constant(1.0)], [v])
    np.testing.assert_array_equal(third.eval(), [0, 0, 7])


@pytest.mark.parametrize("index", [[0, 1], np.s_[:2], us.tensor([0, 1])], ids=["constant", "slice", "tensor"])
def test_a_tie_of_one_value_with_its_element_is_halved(index: Any) -> None:
    x, v = us.tensor([1.0, 5.0, 3.0]), us.tensor([1.0, 2.0])
    for method, expected_x, expected_v in (("max", [0.5, 1, 1], [0.5, 0]), ("min", [0.5, 0, 1], [0.5, 1])):
        gx, gv = gradients(getattr(x.at[index], method)(v), [1, 1, 1], x, v)
        np.testing.assert_array_equal(gx, expected_x)
        np.testing.assert_array_equal(gv, expected_v)


def test_a_tie_of_several_values_is_shared_equally() -> None:
    x, v = us.tensor([2.0, 1.0]), us.tensor([2.0, 2.0, 2.0, 0.0])
    gx, gv = gradients(x.at[[0, 0, 0, 0]].max(v), [4, 4], x, v)
    np.testing.assert_array_equal(gx, [1, 4])
    np.testing.assert_array_equal(gv, [1, 1, 1, 0])


def test_what_was_replaced_does_not_spoil_a_gradient() -> None:
    x = us.tensor([0.0, 4.0, 9.0])
    for index in (0, [0], [0, 0], us.tensor([0])):
        (g,) = pullback([us.sum(us.sqrt(x).at[index].set(5.0))], [us.constant(1.0)], [x])
        np.testing.assert_allclose(g.eval(), [0, 0.25, 1 / 6])


def test_what_was_replaced_does_not_spoil_a_tangent() -> None:
    x = us.tensor([1.0, 4.0])
    for index in (0, [0]):
        out = us.sqrt(x.at[index].set(0.0))
        (t,) = pushforward([out], [x], [us.constant([1.0, 1.0])])
        np.testing.assert_allclose(t.eval(), [0, 0.25])


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: us.tensor([1.0]).at[0].set(1j), errors.DTypeError, "complex128.*float64"),
        (lambda: us.tensor([1]).at[0].set(1.5), errors.DTypeError, "float64.*int64"),
        (lambda: us.tensor([1]).at[0].add(us.tensor(1.5)), errors.DTypeError, "float64.*int64"),
        (lambda: us.tensor([True]).at[0].set(2), errors.DTypeError, "int64.*bool"),
        (lambda: us.tensor([1]).at[0].divide(2), errors.DTypeError, "int64"),
        (lambda: us.tensor([1j]).at[0].max(2), errors.DTypeError, "complex128"),
        (lambda: us.tensor([1.0, 2.0]).at[:].set([1.0, 2.0, 3.0]), errors.ShapeError, r"\(3,\).*\(2,\)"),
        (lambda: us.tensor([1.0, 2.0]).at[2], errors.IndexRangeError, "index 2 .*axis 0 with size 2"),
        (lambda: us.tensor([1.0, 2.0]).at[[0, 2]], errors.IndexRangeError, "index 2 .*axis 0 with size 2"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_built(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("method", sorted(AT))
def test_an_index_tensor_out_of_range_is_refused_when_it_runs(method: str) -> None:
    out = getattr(us.tensor([[1.0, 2.0]]).at[:, us.tensor([0, 5])], method)(1.0)
    with pytest.raises(errors.IndexRangeError, match=r"index 5 .* axis 1 with size 2"):
        out.eval()


def test_writing_into_a_tensor_is_refused_and_the_functional_way_is_shown() -> None:
    x = us.tensor([1.0])
    with pytest.raises(errors.MutationError, match=r"\.at\[index\]\.set"):
        x[0] = 2.0
