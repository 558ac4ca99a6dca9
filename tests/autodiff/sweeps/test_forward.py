"""The forward sweep: tangents through single and multiple outputs, and rules made by transposition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.sweeps.forward import jvp_of, pushforward
from unspool._graph import ancestors, apply, apply_multi, source_of
from unspool._ops.op import Op, parts
from unspool.errors import ContributionShapeError, MissingRuleError

X = np.array([0.3, -1.2, 2.0])


def same(*inputs: Any, **params: Any) -> Any:
    return inputs[0].shape, inputs[0].dtype


def test_tangents_of_several_variables_add_up() -> None:
    x, y = us.tensor(X), us.tensor(X + 1.0)
    out = x * y
    t = us.constant(X)
    close(pushforward([out], [x, y], [t, t])[0], X * (X + 1) + X * X)
    close(pushforward([out], [x, y], [t, None])[0], X * (X + 1))
    assert pushforward([out], [x, y], [None, None]) == [None]


def test_outputs_that_do_not_move_have_no_tangent() -> None:
    x, y = us.tensor(X), us.tensor(X)
    whole = us.astype(x, "int64")
    found = pushforward([us.sin(x), us.sin(y), whole, x], [x], [us.constant(X)])
    assert [t is None for t in found] == [False, True, True, False]


def test_a_variable_in_the_middle_moves_on_its_own() -> None:
    x = us.tensor(X)
    y = us.sin(x)
    out = y * x
    t = us.constant(np.ones(3))
    close(pushforward([out], [y], [t])[0], X)
    close(pushforward([out], [x, y], [t, t])[0], np.sin(X) + X)


def test_nodes_of_a_tangent_carry_the_line_of_the_primal() -> None:
    x = us.tensor(X)
    out = us.sin(x)  # this line
    assert "this line" in source_of(pushforward([out], [x], [x])[0])  # type: ignore[arg-type]


def test_tangents_take_the_dtype_of_what_they_belong_to() -> None:
    x = us.tensor(X, dtype="float32")
    assert pushforward([us.sin(x)], [x], [us.constant(X)])[0].dtype == np.float32  # type: ignore[union-attr]


def test_a_missing_rule_and_a_wrong_shape_are_refused() -> None:
    opaque = Op("test_opaque_forward", infer=same, kernel=np.abs)
    wrong = Op("test_wrong_forward", infer=same, kernel=np.abs, jvp=(lambda t, out, x: us.sum(t),))
    x = us.tensor(X)
    with pytest.raises(MissingRuleError, match="test_opaque_forward.*forward.*test_forward.py"):
        pushforward([apply(opaque, x)], [x], [x])
    with pytest.raises(ContributionShapeError, match=r"shape \(\)"):
        pushforward([apply(wrong, x)], [x], [x])


def test_a_rule_is_asked_for_inputs_that_move_only() -> None:
    def never(*args: Any) -> Any:
        raise AssertionError

    op = Op("test_half", infer=same, kernel=np.add, jvp=(lambda t, out, x, y: t, never), vjp=(never, never))
    x = us.tensor(X)
    close(pushforward([apply(op, x, us.tensor(X))], [x], [x])[0], X)


@pytest.mark.parametrize("given", ["vjp", "jvp", "both"])
def test_the_missing_mode_is_the_transpose_of_the_other(given: str) -> None:
    """On (x, z) -> x · conj(z) · (1 + 2i) with x real and z complex, where conjugates and real parts matter."""
    c = 1 + 2j
    vjp = (lambda ct, out, x, z: ct * us.conj(us.conj(z) * c), lambda ct, out, x, z: us.conj(ct) * x * c)
    jvp = (lambda t, out, x, z: t * us.conj(z) * c, lambda t, out, x, z: us.conj(t) * x * c)
    op = Op(
        f"test_one_mode_{given}",
        infer=lambda x, z: (z.shape, z.dtype),
        kernel=lambda x, z: x * np.conj(z) * c,
        vjp=None if given == "jvp" else vjp,
        jvp=None if given == "vjp" else jvp,
    )
    us.check_grad(lambda x, z: apply(op, x, z), X, X * (1 - 1j) + 2j, order=3)


@pytest.mark.parametrize("given", ["vjp", "jvp"])
def test_the_missing_mode_of_an_op_with_several_outputs(given: str) -> None:
    def vjp(i: int, ct: Any, out: Any, x: Any) -> Any:
        terms = ([] if ct[0] is None else [ct[0] * 2.0 * x]) + ([] if ct[1] is None else [ct[1] * 3.0])
        return sum(terms[1:], terms[0])

    op = Op(
        f"test_several_{given}",
        infer=lambda x: [(x.shape, x.dtype), (x.shape, x.dtype), (x.shape, np.dtype("int64"))],
        kernel=lambda x: (x * x, 3 * x, np.sign(x).astype("int64")),
        vjp=None if given == "jvp" else vjp,
        jvp=None if given == "vjp" else lambda ts, out, x: (ts[0] * 2.0 * x, ts[0] * 3.0, None),
        multi=True,
    )
    f = lambda x: parts(apply_multi(op, x))  # noqa: E731
    us.check_grad(f, X)
    us.check_grad(lambda x: f(x)[1] * f(x)[0], X)
    assert jvp_of(apply_multi(op, us.tensor(X)), (None,)) is None


def test_transposition_leaves_no_stand_in_behind() -> None:
    op = Op("test_transposed", infer=same, kernel=np.sin, vjp=(lambda ct, out, x: ct * us.cos(x),))
    x = us.tensor(X)
    tangent = us.jvp(lambda x: apply(op, x), (x,), (np.ones(3),))[1]
    close(tangent, np.cos(X))
    assert {node.op.name for node in ancestors([tangent])} == {"tensor", "cos", "constant", "multiply"}
