"""Canonical forms: recipes that have the same bits are one node, and others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.loops.loop import apply_fragment
from unspool._fragments.fragment import capture
from unspool._graph import ancestors
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


SPECIAL = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 5e-324, 1.7e308]


def steps(number: float) -> list[Callable[[us.Tensor], us.Tensor]]:
    return [
        lambda x: x * number,
        lambda x: number * x,
        lambda x: x / number,
        lambda x: x + (number - 1.0),
        lambda x: us.sum(number * us.sin(x)),
        lambda x: us.sum(number * us.sin(x)).grad(x),
        lambda x: us.sum(us.sin(number * x) / number).grad(x),
        lambda x: us.sum(us.sum(number * us.sin(x)).grad(x)).grad(x),
        lambda x: us.jvp(lambda v: number * us.sin(v), (x,), (x,))[1],
    ]


def written(out: us.Tensor) -> str:
    """Write a graph down without its numbers; the order of operands that commute is that of their texts."""
    texts: dict[int, str] = {}
    for node in ancestors([out]):
        operands = [texts[i.id] for i in node.inputs]
        ordered = sorted(operands) if node.op.commuting else operands
        texts[node.id] = f"{node.op.name}({', '.join(ordered)}; {dict(node.attributes)})"
    return texts[out.id]


@pytest.mark.parametrize("position", range(len(steps(1.0))))
def test_a_number_that_comes_by_one_changes_no_program(position: int) -> None:
    x = us.tensor([0.3, -2.0])
    texts = {written(steps(number)[position](x)) for number in (1.5, 1.0, 2.0)}
    assert len(texts) == 1


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("one", [1, 1.0, np.float32(1), np.int32(1), np.float64(1), 1 + 0j])
def test_a_product_with_one_has_the_type_and_bits_of_numpys(dtype: str, one: Any) -> None:
    kind = np.dtype(dtype).kind
    values = np.arange(-4, 4) if kind == "i" else np.array(SPECIAL)
    with np.errstate(all="ignore"):
        x = (values + 1j * values[::-1]).astype(dtype) if kind == "c" else values.astype(dtype)
        for found, expected in [
            (us.tensor(x) * one, x * one),
            (one * us.tensor(x), one * x),
            (us.tensor(x) / one, x / one),
        ]:
            assert found.op.name != "tensor"
            assert found.dtype == expected.dtype
            assert found.eval().tobytes() == expected.tobytes()


@pytest.mark.parametrize("function", [lambda x: x * 1.0, lambda x: 1 * x, lambda x: x / 1.0], ids=["x*1", "1*x", "x/1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_cotangent_passes_a_product_with_one_bit_for_bit(function: Any, dtype: str) -> None:
    x = us.tensor(np.ones(len(SPECIAL), dtype))
    with np.errstate(all="ignore"):
        ct = np.array(SPECIAL).astype(dtype)
        pulled = us.vjp(function, x)[1](us.tensor(ct))[0]
        pushed = us.jvp(function, (x,), (us.tensor(ct),))[1]
        assert pulled.dtype == pushed.dtype == ct.dtype
        assert pulled.eval().tobytes() == pushed.eval().tobytes() == ct.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_one_that_a_backward_pass_starts_from_is_left_out(dtype: str) -> None:
    x = us.tensor(np.array(0.3, dtype))
    assert us.sin(x).grad(x) is us.cos(x)
    assert us.cotangents(us.sin(x), [x])[0] is us.cos(x)
    assert (us.sin(x) * 1.0).grad(x).op.name == "multiply"


def test_it_is_no_number_of_a_users() -> None:
    x = us.tensor(0.3)
    one = x.grad(x)
    assert one.eval() == 1.0
    assert one is not us.constant(1.0)
    assert x * one is x
    assert x * us.constant(1.0) is not x
    assert x * one.item() is not x


def test_it_is_still_itself_in_a_graph_that_is_rebuilt() -> None:
    x = us.tensor([0.3, 0.7])
    slope = us.sum(us.sin(x)).grad(x)
    captured = capture([x], [slope])
    literals = [i.params["literal"] for i in captured.fragment.body if "literal" in i.params]
    assert [literal.is_seed for literal in literals] == [True]
    assert apply_fragment(captured.fragment, [x]) == [slope]


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
