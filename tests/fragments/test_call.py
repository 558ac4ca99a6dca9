"""Calls: a plan applied to nodes is one interned node, its outputs are tensors, and what is inside can be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from tests.engine.test_folding import by_tape, flush, folding, is_folded
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, link_of, make_call, output, place, unfold
from unspool._fragments.fragment import capture
from unspool._graph import live_node_count, source_of

X = np.array([0.5, -1.25, 2.0])


def plan_of(build: Any, *shapes: tuple[int, ...], keep_residuals: bool = False) -> Any:
    """Return the plan of a function of tensors of some shapes."""
    inputs = [us.tensor(np.ones(shape)) for shape in shapes]
    returned = build(*inputs)
    outputs = list(returned) if isinstance(returned, tuple) else [returned]
    captured = capture(inputs, outputs, keep_residuals=keep_residuals)
    return default_engine().plans.plan_for(captured.fragment, tuple(node.shape for node in captured.inputs))


@pytest.fixture
def _fold_soon() -> Iterator[None]:
    with folding(1):
        yield


def test_the_same_plan_on_the_same_nodes_is_one_call() -> None:
    plan = plan_of(lambda x: us.sin(x) * x, (3,))
    x = us.tensor(X)
    (first,), (second,) = place(plan, [x]), place(plan, [x])
    assert first is second
    assert link_of(first)[0] is make_call(plan, (x,), plan.fragment.origins)
    (other,) = place(plan, [us.tensor(X)])
    assert other is not first


def test_results_are_computed_by_the_plan_and_differentiated() -> None:
    plan = plan_of(lambda x, y: (us.sin(x) * y, x - y), (3,), (3,))
    x, y = us.tensor(X), us.tensor(X + 1.0)
    product, difference = place(plan, [x, y])
    close(product, np.sin(X) * (X + 1.0))
    close(difference, X - (X + 1.0))
    assert product.shape == (3,) and product.dtype == np.float64
    loss = us.sum(product * difference)
    close(loss.grad(x), by_tape(loss, x))
    close(loss.grad(y), by_tape(loss, y))


def test_one_tensor_may_stand_at_several_inputs() -> None:
    plan = plan_of(lambda x, y: us.sin(x) * us.cos(y), (3,), (3,))
    x = us.tensor(X)
    (out,) = place(plan, [x, x])
    close(out, np.sin(X) * np.cos(X))
    close(us.sum(out).grad(x), np.cos(2 * X))


def test_a_call_of_a_call_reads_it_without_looking_inside() -> None:
    plan = plan_of(lambda x: us.sin(x) * 2.0 + x, (3,))
    x = us.tensor(X)
    y, expected = x, X
    for _ in range(5):
        (y,) = place(plan, [y])
        expected = np.sin(expected) * 2.0 + expected
    close(y, expected)
    close(us.sum(y).grad(x), by_tape(us.sum(y), x))


def test_an_output_that_is_an_input_is_that_input() -> None:
    plan = plan_of(lambda x, y: (x, us.sin(y)), (3,), (3,))
    x, y = us.tensor(X), us.tensor(X)
    same, _ = place(plan, [x, y])
    assert same is x


def test_an_output_that_is_a_constant_is_that_constant() -> None:
    def build(x: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
        two = us.constant(np.full(3, 2.0))
        return us.sin(x) * two, two

    x = us.tensor(np.ones(3))
    captured = capture([x], list(build(x)))
    plan = default_engine().plans.plan_for(captured.fragment, tuple(node.shape for node in captured.inputs))
    placed = place(plan, [us.tensor(X), *captured.inputs[1:]])
    close(placed[0], np.sin(X) * 2.0)
    close(placed[1], [2.0, 2.0, 2.0])


def test_unfolding_gives_the_nodes_inside_and_the_tensors_that_stand_for_outputs() -> None:
    plan = plan_of(lambda x: us.exp(us.sin(x)) * x, (3,))
    x = us.tensor(X)
    (out,) = place(plan, [x])
    call = link_of(out)[0]
    nodes = unfold(call)
    assert nodes[0] is x and nodes[plan.fragment.outputs[0]] is out
    assert [node.op.name for node in nodes[1:]] == ["sin", "exp", "multiply"]
    assert nodes[1] is us.sin(x)
    assert {node.op.name for node in out.inputs} <= {"exp", "leaf", "tensor", x.op.name}


def test_outputs_are_made_again_when_their_tensor_was_dropped() -> None:
    plan = plan_of(lambda x: (us.sin(x), us.cos(x)), (3,))
    x = us.tensor(X)
    sine, cosine = place(plan, [x])
    call = link_of(sine)[0]
    del cosine
    again = output(call, 1)
    close(again, np.cos(X))
    assert output(call, 1) is again and output(call, 0) is sine


def test_a_call_is_freed_with_its_last_output() -> None:
    plan = plan_of(lambda x: us.sin(x) * x, (3,))
    x = us.tensor(X)
    before = live_node_count()
    (out,) = place(plan, [x])
    out.eval()
    assert live_node_count() == before + 1
    del out
    assert live_node_count() == before


def test_residuals_are_kept_with_the_call_and_given_to_whoever_asks() -> None:
    plan = plan_of(lambda a, x: us.sin(a @ x), (3, 3), (3,), keep_residuals=True)
    a, x = us.tensor(np.eye(3) * 0.5), us.tensor(X)
    (out,) = place(plan, [a, x])
    out.eval()
    call = link_of(out)[0]
    assert [value.shape for value in call.value] == [(3,)]
    before = us.engine_stats().kernel_calls
    residual = output(call, plan.fragment.results)
    close(residual, 0.5 * X)
    assert us.engine_stats().kernel_calls == before
    call.value = None  # dropped: it is computed again
    close(us.sum(out).grad(x), 0.5 * np.cos(0.5 * X))


def test_factors_that_only_derivatives_need_are_residuals() -> None:
    with folding(1):
        for _ in range(4):
            m = us.tensor(np.diag([1.0, 2.0, 4.0]) + 0.1)
            total = us.sum(us.linalg.svd(m)[1] ** 2)
            float(total)
        flush()
        # The sum of squared singular values is the squared Frobenius norm.
        close(total.grad(m), 2 * (np.diag([1.0, 2.0, 4.0]) + 0.1))


@pytest.mark.usefixtures("_fold_soon")
def test_errors_and_sources_of_folded_tensors_name_the_line_that_recorded_them() -> None:
    x = us.tensor(X)
    for _ in range(5):
        x = us.sin(x) * 0.5 + x  # this very line
        float(x[0])
    flush()
    assert is_folded(x) and "this very line" in source_of(x)
    assert all("this very line" in source_of(node) for node in x.inputs if node.op.name in ("sin", "multiply"))


@pytest.mark.usefixtures("_fold_soon")
def test_a_recipe_recorded_again_after_folding_means_the_same() -> None:
    for _ in range(3):
        x = us.tensor(X)
        y = us.exp(us.sin(x) * 0.5) + x
        y.eval()
        flush()
    assert is_folded(y)
    again = us.exp(us.sin(x) * 0.5) + x
    close(again, y.eval(), 0)
    close(us.sum(again * y).grad(x), 2 * by_tape(us.sum(y * us.stop_gradient(y)), x))
    (us.sum(y) + us.sum(again)).grad(x).eval()


@pytest.mark.usefixtures("_fold_soon")
def test_summaries_and_sizes_see_the_ops_inside() -> None:
    with folding(10**9):
        x = us.tensor(X)
        y = x
        for _ in range(5):
            y = us.sin(y) * y
            float(y[0])
        plain = us.graph_size(y)
        text = str(us.summary(y))
        flush()
    assert is_folded(y)
    assert us.graph_size(y) == plain
    assert str(us.summary(y)).count("sin") == text.count("sin")


def test_calls_count_in_the_statistics() -> None:
    plan = plan_of(lambda x: us.sin(x) * x, (3,))
    x = us.tensor(X)
    before = us.engine_stats().calls
    outs = [place(plan, [us.tensor(X)])[0] for _ in range(3)]
    place(plan, [x]), place(plan, [x])
    assert us.engine_stats().calls - before >= 4
    assert all(isinstance(link_of(o)[0], Call) for o in outs)
