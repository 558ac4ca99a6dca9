"""Canonical forms: recipes that have the same bits are one node, and others are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops import elementwise

REAL = us.tensor([1.0, -2.0]), us.tensor([3.0, 0.5])
COMPLEX = us.tensor([1 + 1j, -2.0]), us.tensor([3.0, 0.5j])
INTEGERS = us.tensor([1, -2]), us.tensor([3, 5])
BOOLS = us.tensor([True, False]), us.tensor([True, True])


@pytest.mark.parametrize("name", ["add", "multiply", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("pair", [REAL, INTEGERS, BOOLS], ids=["real", "integer", "bool"])
def test_operands_that_commute_make_one_node(name: str, pair: Any) -> None:
    function = getattr(us, name)
    assert function(*pair) is function(*pair[::-1])


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_commute(name: str) -> None:
    assert getattr(us, name)(*INTEGERS) is getattr(us, name)(*INTEGERS[::-1])


def test_complex_sums_commute_and_complex_products_do_not() -> None:
    z, w = COMPLEX
    assert z + w is w + z
    assert z * w is not w * z
    assert z * w is z * w


@pytest.mark.parametrize("name", ["subtract", "divide", "power", "remainder", "maximum", "arctan2", "hypot"])
def test_other_operands_keep_their_order(name: str) -> None:
    x, y = REAL
    assert getattr(us, name)(x, y) is not getattr(us, name)(y, x)


@pytest.mark.parametrize("x", [REAL[0], COMPLEX[0], INTEGERS[0]], ids=["real", "complex", "integer"])
def test_negating_twice_is_nothing(x: us.Tensor) -> None:
    assert us.negative(-x) is x


def test_inverting_twice_is_nothing() -> None:
    assert ~~INTEGERS[0] is INTEGERS[0]
    assert us.logical_not(us.logical_not(BOOLS[0])) is BOOLS[0]
    assert us.logical_not(us.logical_not(INTEGERS[0])).dtype == bool


def test_conjugating_twice_or_a_real_tensor_is_nothing() -> None:
    assert us.conj(us.conj(COMPLEX[0])) is COMPLEX[0]
    for x in (REAL[0], INTEGERS[0], BOOLS[0]):
        assert us.conj(x) is x
        assert us.real(x) is x
    assert us.positive(REAL[0]) is REAL[0]


@pytest.mark.parametrize("x", [REAL[0], INTEGERS[0], us.tensor(np.float32([1.0]))], ids=["float64", "int64", "float32"])
def test_multiplying_by_one_is_nothing(x: us.Tensor) -> None:
    assert x * 1 is x
    assert 1 * x is x


def test_multiplying_by_one_is_something_where_it_changes_the_type_or_a_bit() -> None:
    assert (INTEGERS[0] * 1.0).dtype == np.float64
    assert (us.tensor(np.float32([1.0])) * us.constant(1.0)).dtype == np.float64
    z = us.tensor([complex(0.0, np.inf)])
    assert (z * 1.0) is not z
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal((z * 1.0).eval(), z.eval() * 1.0)


def test_adding_zero_is_something_because_it_turns_the_sign_of_a_zero() -> None:
    x = us.tensor([-0.0])
    assert (x + 0.0) is not x
    assert not np.signbit((x + 0.0).eval())


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "complex64", "complex128"])
def test_small_powers_have_the_bits_of_numpys_operator(dtype: str) -> None:
    values = np.random.default_rng(3).normal(size=200) * 50
    x = (values + 1j * values[::-1]).astype(dtype) if dtype.startswith("c") else values.astype(dtype)
    tensor = us.tensor(x)
    assert tensor**2 is us.square(tensor)
    assert tensor**1 is tensor
    np.testing.assert_array_equal((tensor**2).eval(), x**2)


def test_a_power_that_changes_the_type_is_computed() -> None:
    result = INTEGERS[0] ** 2.0
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result.eval(), [1.0, 4.0])
    assert (us.tensor([1.0]) ** np.float64(2.0)).op.name == "power"


def test_equal_recipes_are_one_node() -> None:
    x, y = REAL
    assert us.sin(x) is us.sin(x)
    assert us.hypot(x, y) is us.hypot(x, y)
    assert us.where(x > 0, x, y) is us.where(x > 0, x, y)
    assert us.round(x, 1) is us.round(x, 1)
    assert us.round(x, 1) is not us.round(x, 2)
    assert x * 2.5 is x * 2.5


def test_masks_of_masks_merge() -> None:
    x, _ = REAL
    keep, also = us.tensor([True, False]), us.tensor([True, True])
    once = elementwise.mask(x, keep)
    assert elementwise.mask(once, keep) is once
    twice = elementwise.mask(once, also)
    assert twice.inputs[0] is x
    np.testing.assert_array_equal(twice.eval(), [1.0, 0.0])


def test_a_cotangent_has_its_full_shape_inside_its_mask() -> None:
    masked = elementwise.mask(us.tensor(2.0), us.constant([[True, False], [False, True]]))
    assert masked.inputs[0].shape == masked.shape == (2, 2)
    np.testing.assert_array_equal(masked.eval(), [[2.0, 0.0], [0.0, 2.0]])


def test_what_is_masked_out_is_not_multiplied() -> None:
    x = us.tensor([np.inf, 2.0])
    masked = elementwise.mask(x, us.constant([False, True]))
    np.testing.assert_array_equal(elementwise.scale(masked, us.constant([0.0, 3.0])).eval(), [0.0, 6.0])
    np.testing.assert_array_equal(elementwise.unscale(masked, us.constant([np.inf, 4.0])).eval(), [0.0, 0.5])
    np.testing.assert_array_equal(elementwise.through_mask(masked, us.negative).eval(), [0.0, -2.0])


def test_folding_keeps_an_element_absent_only_if_all_of_it_is() -> None:
    x = us.tensor([[np.nan, 1.0, 2.0], [np.nan, np.nan, 3.0]])
    keep = us.constant([[False, True, True], [False, False, True]])
    folded = elementwise.fold_to_shape(elementwise.mask(x, keep), (3,))
    assert folded.op is elementwise.MASK
    np.testing.assert_array_equal(folded.eval(), [0.0, 1.0, 5.0])
    np.testing.assert_array_equal(folded.inputs[1].eval(), [False, True, True])


def test_sums_of_cotangents_are_absent_where_both_are() -> None:
    x, y = REAL
    left = elementwise.mask(x, us.constant([True, False]))
    right = elementwise.mask(y, us.constant([True, False]))
    total = elementwise.add_cotangents(left, right)
    assert total.op is elementwise.MASK
    np.testing.assert_array_equal(total.eval(), [4.0, 0.0])
    other = elementwise.add_cotangents(left, elementwise.mask(y, us.constant([False, True])))
    np.testing.assert_array_equal(other.eval(), [1.0, 0.5])
    assert elementwise.add_cotangents(left, y).op.name == "add"
