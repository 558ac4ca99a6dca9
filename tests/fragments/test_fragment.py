"""Fragments: a piece of graph described by its structure alone, so that equal pieces are one object."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._fragments.fragment import Captured, Literal, capture, dependent_nodes, live_fragment_count, seal
from unspool._fragments.residuals import residual_nodes
from unspool._ops.leaf import CONSTANT

X = np.array([0.5, -1.25, 2.0])


def leaf(*shape: int, dtype: str = "float64") -> us.Tensor:
    return us.tensor(np.ones(shape, dtype))


def described(build: Callable[..., us.Tensor], *inputs: us.Tensor) -> Captured:
    """Describe how a function's result follows from its arguments."""
    return capture(list(inputs), [build(*inputs)])


def test_equal_structures_are_one_object() -> None:
    first = described(lambda x, y: us.sin(x) * y + x, leaf(3), leaf(3))
    second = described(lambda x, y: us.sin(x) * y + x, leaf(3), leaf(3))
    assert first.fragment is second.fragment
    assert [node.id for node in first.inputs] != [node.id for node in second.inputs]


def test_sizes_are_no_part_of_a_fragment() -> None:
    assert described(lambda x: us.sin(x) * x, leaf(3)).fragment is described(lambda x: us.sin(x) * x, leaf(5)).fragment
    assert (
        described(lambda x: us.sin(x) * x, leaf(2, 3)).fragment is described(lambda x: us.sin(x) * x, leaf()).fragment
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, y: us.sin(x) + y, lambda x, y: us.cos(x) + y),
        (lambda x, y: us.sin(x) - y, lambda x, y: us.sin(y) - x),
        (lambda x, y: us.sum(x * y), lambda x, y: us.sum(x * y, keepdims=True)),
        (lambda x, y: us.sin(x) - x, lambda x, y: us.sin(x) - y),
        (lambda x, y: x[1:] * 2.0, lambda x, y: x[:2] * 2.0),
        (lambda x, y: x * 2.0, lambda x, y: x * 3.0),
    ],
    ids=["op", "wiring", "parameter", "fan-out", "index", "constant"],
)
def test_different_structures_are_different_fragments(one: Any, other: Any) -> None:
    x, y = leaf(3), leaf(3)
    assert described(one, x, y).fragment is not described(other, x, y).fragment


def test_dtypes_are_part_of_a_fragment() -> None:
    def build(x: us.Tensor) -> us.Tensor:
        return us.sin(x) * x

    assert described(build, leaf(3)).fragment is not described(build, leaf(3, dtype="float32")).fragment
    assert described(build, leaf(3)).fragment.dtypes == (np.dtype("float64"),)


def test_slots_number_inputs_first_and_then_instructions() -> None:
    x, y = leaf(3), leaf(3)
    out = us.sin(x) - y
    captured = capture([x, y], [out])
    fragment = captured.fragment
    assert [(i.op.name, i.operands) for i in fragment.body] == [("sin", (0,)), ("subtract", (2, 1))]
    assert fragment.outputs == (3,) and fragment.results == 1 and len(fragment) == 2
    assert captured.nodes[3] is out and captured.nodes[1] is y
    assert "2 inputs, 2 ops, 1 results" in repr(fragment)


def test_sealing_numbers_inputs_by_first_use() -> None:
    x, y = leaf(3), leaf(3)
    inner = us.sin(y)
    out = x - inner
    captured = seal([inner, out], [out])
    assert [node.id for node in captured.inputs] == [y.id, x.id]


def test_an_output_may_be_an_input_or_asked_for_twice() -> None:
    x = leaf(3)
    y = us.sin(x)
    fragment = capture([x], [x, y, y]).fragment
    assert fragment.outputs == (0, 1, 1)


def test_a_result_that_does_not_depend_on_the_inputs_is_an_input_itself() -> None:
    x, other = leaf(3), leaf(3)
    outside = us.cos(other)
    captured = capture([x], [us.sin(x) * outside, outside])
    assert [node.id for node in captured.inputs] == [x.id, outside.id]
    assert [i.op.name for i in captured.fragment.body] == ["sin", "multiply"]


def test_constants_are_written_into_captured_fragments_and_are_inputs_of_sealed_ones() -> None:
    x = leaf(3)
    y = us.sin(x) * 2.5
    inner = next(node for node in y.inputs if node.op.name == "sin")
    fragment = capture([x], [y]).fragment
    literals = [i.params["literal"] for i in fragment.body if i.op is CONSTANT]
    assert [float(literal.array) for literal in literals] == [2.5]
    assert all(i.op is not CONSTANT for i in seal([inner, y], [y]).fragment.body)


def test_literals_are_equal_by_contents_and_dtype() -> None:
    assert Literal(np.array(1.0)) == Literal(np.array(1.0))
    assert hash(Literal(np.array([1, 2]))) == hash(Literal(np.array([1, 2])))
    assert Literal(np.array(1.0)) != Literal(np.array(1))
    assert Literal(np.array([1.0])) != Literal(np.array(1.0))
    assert Literal(np.array(0.0)) != Literal(np.array(-0.0))
    assert Literal(np.array(1.0)) != 1.0
    assert repr(Literal(np.arange(100))) == "[ 0  1 ... 98 99]"


def test_residuals_come_after_the_results_and_leave_out_what_is_cheap() -> None:
    a, x = leaf(3, 3), leaf(3)
    fragment = capture([a, x], [us.tanh(us.exp(a @ x) * 2.0)], keep_residuals=True).fragment
    assert fragment.results == 1
    kept = [fragment.body[slot - 2].op.name for slot in fragment.outputs[1:]]
    # The result, which is there anyway, and the product; exponentials are computed again.
    assert sorted(kept) == ["contract", "tanh"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # The slope of exp is its value, so nobody asks for the product any more.
        (lambda a, x: us.sum(us.exp(a @ x + 1.0)), ["exp"]),
        # What is computed from the kept value is computed again from it.
        (lambda a, x: us.sum(us.exp(us.exp(us.exp(a @ x)))), ["exp"]),
        # One value for two.
        (lambda a, x: us.sum(us.exp(a @ x + a.T @ x)), ["exp"]),
        # Larger than what it is made of.
        (lambda a, x: us.sum(us.exp(a + (a @ x))), ["contract"]),
        # Two are made of one, or a rule looks at it too.
        (lambda a, x: us.sum(us.exp(a @ x)) + us.sum(us.tanh(a @ x)), ["contract"]),
        (lambda a, x: us.sum(us.exp(a @ x)) + us.sum(us.sin(a @ x)), ["contract"]),
        # The user wants it otherwise.
        (lambda a, x: us.sum(us.cheap(us.exp(a @ x))), ["contract"]),
        (lambda a, x: us.sum(us.exp(us.keep(a @ x))), ["contract"]),
    ],
)
def test_late_residuals_are_cheap_values_instead_of_what_is_as_large_and_kept_for_them_alone(
    function: Callable[..., us.Tensor], expected: list[str]
) -> None:
    inputs = leaf(3, 3), leaf(3)
    order = dependent_nodes([function(*inputs)], {x.id for x in inputs})
    assert [node.op.name for node in residual_nodes(order, late=True)] == expected
    assert "contract" in [node.op.name for node in residual_nodes(order)]


def test_a_factorisation_keeps_all_its_parts_for_derivatives() -> None:
    a = us.tensor(np.diag([1.0, 2.0, 3.0]))
    values = us.linalg.svd(a)[1]
    fragment = capture([a], [values * 2.0], keep_residuals=True).fragment
    kept = [fragment.body[slot - 1] for slot in fragment.outputs]
    assert {i.params["index"] for i in kept if i.op.name == "part"} == {0, 1, 2}


def test_fragments_are_freed_when_nobody_uses_them() -> None:
    gc.collect()
    before = live_fragment_count()
    held = [described(lambda x, k=k: us.sin(x) * (k + 0.123), leaf(3)).fragment for k in range(5)]
    assert live_fragment_count() == before + 5
    del held
    assert live_fragment_count() == before


def test_a_fragment_holds_no_node_and_no_value() -> None:
    import weakref

    x = leaf(1000)
    y = us.sin(x) * x
    y.eval()
    fragment = capture([x], [y]).fragment
    node, value = weakref.ref(x), weakref.ref(y.value)
    del x, y
    assert node() is None and value() is None
    assert len(fragment) == 2
