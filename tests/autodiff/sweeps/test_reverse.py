"""The backward pass: which nodes it visits, what it asks of rules, and how contributions add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.sweeps.reverse import contributions_of, pullback, vjp_of
from unspool._autodiff.sweeps.walk import active_nodes
from unspool._graph import apply, apply_multi, source_of
from unspool._ops.op import INPUTS, JointRule, Op, parts
from unspool.errors import ContributionShapeError, MissingRuleError

X = np.array([0.3, -1.2, 2.0])


def same(*inputs: Any, **params: Any) -> Any:
    return inputs[0].shape, inputs[0].dtype


def test_only_nodes_between_variables_and_outputs_are_active() -> None:
    x, c = us.tensor(X), us.tensor(X)
    y = x * c
    side = us.sin(x)
    loss = us.sum(y * (c + c))
    assert [node.id for node in active_nodes([loss], [x])] == [x.id, y.id, (y * (c + c)).id, loss.id]
    assert side.id not in {node.id for node in active_nodes([loss], [x])}
    assert active_nodes([loss], []) == []
    assert active_nodes([x], [loss]) == []


def test_paths_through_inputs_without_a_rule_are_not_active() -> None:
    x = us.tensor(X)
    chosen = us.where(us.greater(x, 0.0), x, 0.0)
    conditions = us.where(us.greater(x, 0.0), us.tensor(X), 0.0)
    assert active_nodes([chosen], [x])[0] is x
    assert active_nodes([conditions], [x]) == []


def test_several_outputs_add_up_and_none_seeds_nothing() -> None:
    x = us.tensor(X)
    a, b = us.sin(x), x * 2.0
    one = us.constant(np.ones(3))
    close(pullback([a, b], [one, one], [x])[0], np.cos(X) + 2)
    close(pullback([a, b], [None, one], [x])[0], np.full(3, 2.0))
    assert pullback([a, b], [None, None], [x]) == [None]
    close(pullback([a, a], [one, one], [x])[0], 2 * np.cos(X))
    close(pullback([x], [one], [x])[0], np.ones(3))


def test_contributions_are_added_in_falling_order_of_consumers() -> None:
    """1e16 + 1 - 1e16 depends on the order; newest first means (-1e16 + 1) + 1e16."""
    x = us.tensor(1.0)
    loss = x * 1e16
    loss = loss + x * 1.0000000000000002
    loss = loss + x * -1e16
    assert float(loss.grad(x)) == (-1e16 + 1.0000000000000002) + 1e16


def test_a_node_is_differentiated_once_however_many_use_it() -> None:
    calls = []

    def rule(ct: Any, out: Any, x: Any) -> Any:
        calls.append(1)
        return ct * 2.0

    double = Op("test_double", infer=same, kernel=lambda x: 2 * x, vjp=(rule,))
    x = us.tensor(X)
    y = apply(double, x)
    for _ in range(5):
        y = y + y * y
    us.sum(y).grad(x)
    assert len(calls) == 1


def test_nodes_of_a_gradient_carry_the_line_of_the_primal() -> None:
    x = us.tensor(X)
    loss = us.sum(us.sin(x))  # this line
    assert "this line" in source_of(loss.grad(x))


def test_a_rule_is_not_asked_where_nothing_arrives() -> None:
    def never(*args: Any) -> Any:
        raise AssertionError

    silent = Op("test_silent", infer=same, kernel=lambda x: x, vjp=(lambda ct, out, x: None,))
    refusing = Op("test_refusing", infer=same, kernel=lambda x: x, vjp=(never,))
    x = us.tensor(X)
    loss = us.sum(apply(silent, apply(refusing, x)))
    assert loss.grad(x, unconnected="none") is None


def test_a_missing_rule_and_a_wrong_shape_are_refused() -> None:
    opaque = Op("test_opaque", infer=same, kernel=np.abs)
    wrong = Op("test_wrong", infer=same, kernel=np.abs, vjp=(lambda ct, out, x: us.sum(ct),))
    x = us.tensor(X)
    with pytest.raises(MissingRuleError, match="test_opaque.*reverse.*test_reverse.py"):
        us.sum(apply(opaque, x)).grad(x)
    with pytest.raises(MissingRuleError):
        vjp_of(apply(opaque, x), 0, x)
    with pytest.raises(ContributionShapeError, match=r"test_wrong.*shape \(\)"):
        us.sum(apply(wrong, x)).grad(x)


def test_an_opaque_op_that_is_not_on_the_path_does_no_harm() -> None:
    opaque = Op("test_opaque_aside", infer=same, kernel=np.abs)
    x, c = us.tensor(X), us.tensor(X)
    close(us.sum(x * apply(opaque, c)).grad(x), np.abs(X))


def test_complex_contributions_to_real_inputs_are_their_real_parts() -> None:
    x = us.tensor(X)
    y = us.astype(x, "complex128")
    close(pullback([y], [us.constant(np.full(3, 2 + 5j))], [x])[0], np.full(3, 2.0))
    assert pullback([y], [us.constant(np.full(3, 2 + 5j))], [x])[0].dtype == np.float64


# --- ops with several outputs and joint rules ------------------------------------------------------------------------


def _pair(joint: bool) -> Op:
    """Return an op (x, y) -> (x * y, x + y); its rule is joint or per input."""

    def contribution(i: int, ct: Any, out: Any, x: Any, y: Any) -> Any:
        terms = [] if ct[0] is None else [ct[0] * (y if i == 0 else x)]
        terms += [] if ct[1] is None else [ct[1]]
        return sum(terms[1:], terms[0]) if terms else None

    def contributions(needed: Any, ct: Any, out: Any, x: Any, y: Any) -> Any:
        return [contribution(i, ct, out, x, y) if wanted else None for i, wanted in enumerate(needed)]

    return Op(
        f"test_pair_{joint}",
        infer=lambda x, y: [(x.shape, x.dtype)] * 2,
        kernel=lambda x, y: (x * y, x + y),
        vjp=JointRule(contributions, lambda params: (True, True)) if joint else contribution,
        needs=(INPUTS,),
        multi=True,
    )


@pytest.mark.parametrize("joint", [True, False])
def test_ops_with_several_outputs(joint: bool) -> None:
    op = _pair(joint)

    def f(x: Any, y: Any) -> Any:
        return parts(apply_multi(op, x, y))

    us.check_grad(f, X, X + 1.0)
    us.check_grad(lambda x, y: f(x, y)[0], X, X + 1.0)
    us.check_grad(lambda x: f(x, x)[1] * f(x, x)[0], X)


def test_all_forms_of_asking_a_joint_rule_agree() -> None:
    x, y = us.tensor(X), us.tensor(X + 1.0)
    node = apply_multi(_pair(True), x, y)
    ct = (us.constant(X), None)
    both = contributions_of(node, ct, {x.id, y.id})
    assert both[0] is vjp_of(node, 0, ct)
    assert both[1] is vjp_of(node, 1, ct)
    assert contributions_of(node, ct, {y.id})[0] is None


def test_inputs_that_a_joint_rule_does_not_pass_are_not_active() -> None:
    rule = JointRule(lambda needed, ct, out, x, y: [ct, None], lambda params: (True, False))
    first = Op("test_first", infer=same, kernel=lambda x, y: x, vjp=rule)
    x, y = us.tensor(X), us.tensor(X)
    out = us.sum(apply(first, x, us.sin(y)))
    found = out.grad([x, y], unconnected="none")
    close(found[0], np.ones(3))
    assert found[1] is None


def test_a_long_chain_needs_no_recursion_in_either_order() -> None:
    x = us.tensor(1.0)
    y: Any = x
    for _ in range(20_000):
        y = y * 1.0000001
    first = y.grad(x)
    close(first, 1.0000001**20_000)
    assert (first * x).grad(x) is not None
