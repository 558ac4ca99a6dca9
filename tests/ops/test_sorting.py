"""Sorting and searching against NumPy, and what derivatives of sorting mean."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import unspool as us
from unspool import errors
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback

FEW = settings(max_examples=100, deadline=None, derandomize=True)
KEYS = arrays.arrays(np.float64, arrays.array_shapes(max_dims=3, max_side=4, min_side=0), elements=st.integers(-3, 3))


@FEW
@given(KEYS, st.data())
def test_sort_and_argsort_are_numpys(a: Any, data: Any) -> None:
    axis = data.draw(st.integers(-a.ndim, a.ndim - 1))
    np.testing.assert_array_equal(us.sort(a, axis=axis).eval(), np.sort(a, axis=axis))
    np.testing.assert_array_equal(us.argsort(a, axis=axis).eval(), np.argsort(a, axis=axis, kind="stable"))
    np.testing.assert_array_equal(us.sort(a, axis=axis, descending=True).eval(), -np.sort(-a, axis=axis))
    # Equal elements keep their order when descending too.
    expected = np.argsort(-a, axis=axis, kind="stable")
    np.testing.assert_array_equal(us.argsort(a, axis=axis, descending=True).eval(), expected)


@FEW
@given(KEYS, st.booleans())
def test_sorting_moves_tangents_and_cotangents_with_their_elements(a: Any, descending: bool) -> None:
    x = us.tensor(a)
    out = us.sort(x, axis=0, descending=descending)
    t = np.arange(1.0, 1.0 + a.size).reshape(a.shape)
    order = np.argsort(-a if descending else a, axis=0, kind="stable")
    (pushed,) = pushforward([out], [x], [us.constant(t)])
    (pulled,) = pullback([out], [us.constant(t)], [x])
    np.testing.assert_array_equal(pushed.eval(), np.take_along_axis(t, order, axis=0))
    expected = np.zeros(a.shape)
    np.put_along_axis(expected, order, t, axis=0)
    np.testing.assert_array_equal(pulled.eval(), expected)


def test_axis_none_sorts_the_flattened_tensor() -> None:
    a = np.array([[3.0, 1.0], [2.0, 0.0]])
    np.testing.assert_array_equal(us.sort(a, axis=None).eval(), [0, 1, 2, 3])
    np.testing.assert_array_equal(us.argsort(a, axis=None).eval(), [3, 1, 2, 0])


def test_nans_go_last_and_first_when_descending() -> None:
    a = [2.0, np.nan, 1.0]
    np.testing.assert_array_equal(us.sort(a).eval(), [1, 2, np.nan])
    np.testing.assert_array_equal(us.sort(a, descending=True).eval(), [np.nan, 2, 1])


def test_sorting_works_with_symbolic_sizes() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    smallest = us.sort(x)[0]
    (g,) = pullback([smallest], [us.constant(1.0)], [x])
    np.testing.assert_array_equal(g.eval({x: [3.0, 1.0, 2.0]}), [0, 1, 0])
    np.testing.assert_array_equal(g.eval({x: [5.0]}), [1])


def test_elements_that_nobody_asked_for_do_not_spoil_the_gradient_of_a_sort() -> None:
    x = us.tensor([4.0, 0.0, 9.0])
    (g,) = pullback([us.sort(us.sqrt(x))[1:]], [us.constant([1.0, 1.0])], [x])
    np.testing.assert_allclose(g.eval(), [0.25, 0, 1 / 6])


def test_sorting_works_on_rationals() -> None:
    values = np.array([Fraction(1, 2), Fraction(1, 3), Fraction(2, 3)], object)
    out = us.sort(us.tensor([0.5, 0.25, 0.75]), descending=True)
    assert list(out.op.kernel(values, **out.attributes)) == [Fraction(2, 3), Fraction(1, 2), Fraction(1, 3)]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("wanted", [2.0, [0.0, 2.0, 9.0], [[1.0], [3.0]], []])
def test_searchsorted_is_numpys(wanted: Any, side: Any) -> None:
    a = np.array([1.0, 2.0, 2.0, 3.0])
    expected = np.searchsorted(a, wanted, side=side)
    out = us.searchsorted(a, wanted, side=side)
    assert out.shape == expected.shape
    np.testing.assert_array_equal(out.eval(), expected)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: us.sort([1.0], axis=1), errors.ShapeError, "axis 1"),
        (lambda: us.sort(1.0), errors.ShapeError, "axis -1"),
        (lambda: us.argsort([[1.0]], axis=-3), errors.ShapeError, "axis -3"),
        (lambda: us.searchsorted([[1.0]], [1.0]), errors.ShapeError, "one axis"),
        (lambda: us.searchsorted([1.0], [1.0], side="middle"), errors.ArgumentError, "middle"),
    ],
)
def test_wrong_arguments_are_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
