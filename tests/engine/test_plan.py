"""Plans: sizes carried through a fragment, instructions as data, last uses, buffers."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._engine.plan import Plan, make_plan
from unspool._fragments.fragment import Literal, capture
from unspool.errors import (
    RankMismatchError,
    ShapeError,
    ShapeMismatchError,
    SizeContradictionError,
    UnboundSizeError,
)


def plan_of(inputs: list[us.Tensor], outputs: list[us.Tensor], *shapes: tuple[int, ...]) -> Plan:
    captured = capture(inputs, outputs)
    return make_plan(captured.fragment, shapes or tuple(node.shape for node in captured.inputs))


def power_step(n: int = 5) -> tuple[list[us.Tensor], list[us.Tensor]]:
    matrix, vector = us.tensor(np.ones((n, n))), us.tensor(np.ones(n))
    product = matrix @ vector
    norm = us.linalg.norm(product)
    return [matrix, vector], [product / norm, norm]


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_plan_knows_shape_and_dtype_of_every_slot() -> None:
    x = us.tensor(np.ones((2, 3), np.float32))
    plan = plan_of([x], [us.sum(x.T @ x, axis=0), x > 0, us.linalg.svd(x, full_matrices=False).S])
    (result,) = {plan.shapes[step.slot] for step in plan.instructions if step.op.name == "sum"}
    assert result == (3,)
    assert plan.output_shapes == ((3,), (2, 3), (2,))
    assert [str(d) for d in plan.output_dtypes] == ["float32", "bool", "float32"]
    (svd,) = [step.slot for step in plan.instructions if step.op.name == "svd"]
    assert plan.shapes[svd] == ((2, 2), (2,), (2, 3))
    assert len(plan.shapes) == len(plan.dtypes) == len(plan.fragment.dtypes) + len(plan.fragment)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_one_fragment_makes_plans_for_many_sizes(n: int) -> None:
    size = us.dims("n")
    x = us.placeholder((size, 2 * size))
    fragment = capture([x], [us.reshape(x, (2 * size, size)) + 1.0, us.zeros((size,)) + us.sum(x, axis=1)]).fragment
    plan = make_plan(fragment, ((n, 2 * n),))
    assert plan.output_shapes == ((2 * n, n), (n,))
    value = np.arange(2.0 * n * n).reshape(n, 2 * n)
    for _ in range(3):
        reshaped, summed = plan.run(value)
        np.testing.assert_array_equal(reshaped, value.reshape(2 * n, n) + 1.0)
        np.testing.assert_array_equal(summed, np.sum(value, axis=1))


def test_sizes_that_contradict_each_other_are_named() -> None:
    size = us.dims("n")
    x, y = us.placeholder((size,)), us.placeholder((size,))
    with pytest.raises(SizeContradictionError, match="n is 3.*n = 3"):
        plan_of([x, y], [x + y], (3,), (4,))


def test_sizes_that_had_to_be_equal_are_named_with_the_line() -> None:
    n, m = us.dims("n m")
    x, y = us.placeholder((n,)), us.placeholder((m,))
    outputs = [x + y]
    with pytest.raises(SizeContradictionError, match=r"\(4,\) and \(n,\) = \(3,\).*test_plan.py.*outputs = \[x"):
        plan_of([x, y], outputs, (3,), (4,))
    assert plan_of([x, y], outputs, (3,), (3,)).output_shapes == ((3,),)


def test_a_size_that_nothing_determines_is_an_error_of_its_own() -> None:
    n, m = us.dims("n m")
    x = us.placeholder((n,))
    with pytest.raises(UnboundSizeError, match="m"):
        plan_of([x], [us.sum(x) + us.ones((m,))], (3,))


def test_shapes_that_an_op_does_not_take_are_an_error_with_the_line() -> None:
    inputs, outputs = power_step()
    with pytest.raises(ShapeError, match=r"\(5, 5\).*\(4,\).*test_plan.py"):
        plan_of(inputs, outputs, (5, 5), (4,))


def test_a_wrong_number_of_shapes_or_axes_is_an_error() -> None:
    inputs, outputs = power_step()
    with pytest.raises(ShapeMismatchError, match="2 inputs was given 1"):
        plan_of(inputs, outputs, (5, 5))
    x = us.placeholder((us.dims("n"),))
    with pytest.raises(RankMismatchError, match="2 axes"):
        plan_of([x], [x + 1.0], (2, 2))


# --- instructions ----------------------------------------------------------------------------------------------------


def _values_in(data: Any) -> list[Any]:
    if isinstance(data, Mapping):
        return [v for item in data.items() for part in item for v in _values_in(part)]
    if isinstance(data, (tuple, list)):
        return [v for part in data for v in _values_in(part)]
    return [data]


def test_a_plan_is_data() -> None:
    x = us.tensor(np.ones((3, 3)))
    loss = us.sum(us.tanh(x @ x.T)[1:] * 2.0) + us.linalg.svd(x).S[0]
    plan = plan_of([x], [loss, loss.grad(x)])
    plain = (str, int, float, bool, type(None), np.dtype, Literal)
    for value in _values_in(plan.instructions):
        assert not callable(value)
        assert isinstance(value, plain) or type(value).__module__.startswith("unspool")


def test_names_and_checks_are_no_instructions() -> None:
    n, m = us.dims("n m")
    x, y = us.placeholder((n,)), us.placeholder((m,))
    plan = plan_of([x, y], [us.stop_gradient(x) + y], (3,), (3,))
    assert [step.op.name for step in plan.instructions] == ["add"]
    assert plan.kernels == 1


def test_what_is_computed_twice_is_an_instruction_once() -> None:
    x = us.tensor(np.ones(3))
    plan = plan_of([x], [us.tanh(x) * us.tanh(us.stop_gradient(x))])
    assert [step.op.name for step in plan.instructions] == ["tanh", "multiply"]
    assert plan.instructions[1].operands == (1, 1)


def test_a_custom_rule_leaves_no_trace_in_a_plan() -> None:
    @us.custom_vjp
    def twice(x: us.Tensor) -> us.Tensor:
        return x + x

    twice.defvjp(lambda x: (x + x, None), lambda kept, ct: (ct * 2.0,))
    x = us.tensor(np.ones(3))
    plan = plan_of([x], [twice(x)])
    assert [step.op.name for step in plan.instructions] == ["add"]
    for _ in range(3):
        np.testing.assert_array_equal(plan.run(np.ones(3))[0], np.full(3, 2.0))


def test_transposes_fold_into_products() -> None:
    x, y = us.tensor(np.ones((2, 3))), us.tensor(np.ones((2, 4)))
    plan = plan_of([x, y], [x.T @ y, (y.T @ x).T @ us.tensor(np.ones(4))])
    assert [step.op.name for step in plan.instructions] == ["contract"] * 3


def test_broadcasting_folds_into_elementwise_ops() -> None:
    x, y = us.tensor(np.ones((2, 3))), us.tensor(2.0)
    plan = plan_of([x, y], [us.broadcast_to(y, (2, 3)) * x])
    assert [step.op.name for step in plan.instructions] == ["multiply"]
    alone = plan_of([y], [us.broadcast_to(y, (2, 3)) * us.broadcast_to(y, (2, 3))])
    assert [step.op.name for step in alone.instructions] == ["broadcast_to", "multiply"]
    for _ in range(3):
        np.testing.assert_array_equal(alone.run(np.array(2.0))[0], np.full((2, 3), 4.0))


def test_kernels_count_what_computes_in_every_run() -> None:
    n = us.dims("n")
    x = us.placeholder((n, n))
    u, s, vh = us.linalg.svd(x)
    plan = plan_of([x], [u * s @ vh + us.eye(n)], (3, 3))
    assert plan.kernels == 4  # svd, multiply, contract, add; the identity is made once


# --- last uses -------------------------------------------------------------------------------------------------------


def _gradient_plan() -> Plan:
    x, y = us.tensor(np.ones((40, 40))), us.tensor(np.ones((40, 40)))
    loss = us.sum(us.sqrt(us.tanh(x @ y.T * x + y) * y - x[::-1]) / us.linalg.norm(x))
    return plan_of([x, y], [loss, loss.grad(x), loss.grad(y)])


def test_every_temporary_dies_once_and_is_not_read_afterwards() -> None:
    plan = _gradient_plan()
    first = len(plan.input_shapes)
    dead: set[int] = set()
    for step in plan.instructions:
        assert not dead & set(step.operands)
        assert not dead & set(step.dying)
        assert set(step.dying) <= set(step.operands)
        dead |= set(step.dying)
    temporary = {step.slot for step in plan.instructions if not step.once} - set(plan.outputs)
    assert dead == temporary
    assert all(slot >= first for slot in dead)


def test_no_two_values_that_are_needed_at_once_share_a_buffer() -> None:
    plan = _gradient_plan()
    inhabitants: dict[int, set[int]] = {}
    for step, buffer in zip(plan.instructions, plan.buffers, strict=True):
        if buffer is not None:
            alive = inhabitants.setdefault(buffer, set())
            if not step.op.view:
                assert alive <= set(step.dying), "written over something that is read later"
            alive.add(step.slot)
        for alive in inhabitants.values():
            alive.difference_update(step.dying)


def test_a_chain_of_elementwise_ops_takes_one_buffer() -> None:
    x = us.tensor(np.ones((64, 64)))
    y = x
    for _ in range(10):
        y = (y + x) * x
    plan = plan_of([x], [y])
    assert plan.buffer_bytes == 0  # the only one becomes the output
    assert plan.peak_bytes == x.value.nbytes
    summed = plan_of([x], [us.sum(y)])
    assert summed.buffer_bytes == x.value.nbytes
    assert summed.peak_bytes == x.value.nbytes + 8


def test_a_long_chain_of_products_alternates_between_two_buffers() -> None:
    x = us.tensor(np.ones((16, 16)))
    y = x
    for _ in range(20):
        y = us.tanh(y @ x)
    plan = plan_of([x], [us.sum(y)])
    assert plan.buffer_bytes == 2 * x.value.nbytes
    assert plan.peak_bytes == 2 * x.value.nbytes


# --- plans as objects ------------------------------------------------------------------------------------------------


def test_plans_have_growing_ids_and_an_empty_cache_of_derivatives() -> None:
    inputs, outputs = power_step()
    first, second = plan_of(inputs, outputs), plan_of(inputs, outputs)
    assert first.id < second.id
    assert first.fragment is second.fragment
    assert first.derivatives == {} and first.derivatives is not second.derivatives
    assert first.input_shapes == ((5, 5), (5,))


@pytest.mark.parametrize("runs", [0, 1, 2, 3])
def test_a_plan_is_freed_without_the_garbage_collector(runs: int) -> None:
    plan = plan_of(*power_step())
    for _ in range(runs):
        plan.run(np.eye(5), np.ones(5))
    gone = weakref.ref(plan)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del plan
        assert gone() is None
    finally:
        if enabled:
            gc.enable()


def test_a_function_that_was_taken_from_a_plan_keeps_working() -> None:
    run = plan_of(*power_step()).run
    for _ in range(3):
        direction, norm = run(np.eye(5), np.full(5, 2.0))
        assert norm == 2.0 * math.sqrt(5.0)
        np.testing.assert_allclose(direction, np.full(5, 1.0 / math.sqrt(5.0)))


def test_show_lists_instructions_buffers_and_peak() -> None:
    shown = plan_of(*power_step()).show().splitlines()
    assert shown[0].endswith("3 kernel calls")
    assert shown[1].split() == ["slot", "op", "reads", "shape", "dtype", "bytes", "buffer", "notes"]
    assert [line.split()[1] for line in shown[2:7]] == ["input", "input", "contract", "norm2", "divide"]
    assert "subscripts='ab,b->a'" in shown[4]
    assert "over 2; last use of 2" in shown[6]
    assert shown[7] == "outputs: 4 3"
    assert shown[8] == "buffers: 2, 0 bytes of temporaries, peak 48 bytes"


def test_show_marks_what_is_computed_once_and_shortens_long_parameters() -> None:
    n = us.dims("n")
    x = us.placeholder((n, n))
    plan = plan_of([x], [(x + us.eye(n)) * us.constant(np.arange(400.0).reshape(400, 1, 1))], (3, 3))
    shown = plan.show()
    (line,) = [line for line in shown.splitlines() if " eye " in line]
    assert line.endswith("once")
    assert max(map(len, shown.splitlines())) < 160


def test_every_kind_of_plan_can_be_shown() -> None:
    x = us.tensor(np.eye(3))
    shown = plan_of([x], [us.linalg.svd(x).S, us.linalg.eigh(x).eigenvectors, x]).show()
    assert "((3, 3), (3,), (3, 3))" in shown
    assert "float64 float64 float64" in shown
