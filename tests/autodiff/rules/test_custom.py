"""Functions with rules of their own, in both modes and to higher order, and stop_gradient."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool.errors import (
    ArgumentError,
    ContributionShapeError,
    DTypeError,
    MissingRuleError,
    NotConnectedError,
    StructureError,
)

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4, -0.7])


# --- stop_gradient ---------------------------------------------------------------------------------------------------


def test_stop_gradient_keeps_values_and_hides_history() -> None:
    x = us.tensor(X)
    close(us.stop_gradient(x), X)
    close(us.sum(x * us.stop_gradient(x)).grad(x), X)
    close(us.jvp(lambda x: x * us.stop_gradient(x), (x,), (Y,))[1], X * Y)


def test_what_is_stopped_is_not_connected() -> None:
    x = us.tensor(X)
    loss = us.sum(x.detach() * 2.0)
    assert loss.grad(x, unconnected="none") is None
    with pytest.raises(NotConnectedError):
        loss.grad(x, unconnected="raise")
    close(us.hvp(lambda x: us.sum(us.stop_gradient(x) * x), (x,), (x,)), np.zeros(3))


def test_stop_gradient_is_one_node_for_one_tensor() -> None:
    x = us.tensor(X)
    assert us.stop_gradient(x) is x.detach()
    assert x.detach().detach() is x.detach()


def test_stop_gradient_goes_into_structures() -> None:
    x = us.tensor(X)
    found = us.stop_gradient({"a": [x, 3, None], "b": "text"})
    assert found["a"][0] is x.detach()
    assert found["a"][1:] == [3, None] and found["b"] == "text"
    whole = us.tensor([1, 2])
    assert us.stop_gradient(whole) is whole


def test_rules_behind_stop_gradient_are_not_asked() -> None:
    opaque = us.op("opaque_for_stop", kernel=np.abs, replace=True)
    x = us.tensor(X)
    f = lambda x: us.sum(x * us.stop_gradient(opaque(x)))  # noqa: E731
    close(us.grad(f)(x), np.abs(X))
    close(us.jvp(f, (x,), (Y,))[1], np.sum(np.abs(X) * Y))


# --- custom_vjp ------------------------------------------------------------------------------------------------------


def make_product() -> Any:
    @us.custom_vjp
    def product(x: Any, y: Any) -> Any:
        """Sine times, and times."""
        return us.sin(x) * y, x * y

    def fwd(x: Any, y: Any) -> Any:
        return (us.sin(x) * y, x * y), {"x": x, "y": y, "text": ["anything"]}

    def bwd(res: Any, ct: Any) -> Any:
        assert res["text"] == ["anything"]
        a, b = ct
        return a * us.cos(res["x"]) * res["y"] + b * res["y"], a * us.sin(res["x"]) + b * res["x"]

    product.defvjp(fwd, bwd)
    return product


def make_scaled_exp() -> Any:
    @us.custom_jvp
    def scaled_exp(p: Any) -> Any:
        return {"out": us.exp(p["a"]) * p["b"]}

    @scaled_exp.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (p,), (t,) = primals, tangents
        out = scaled_exp(p)
        return out, {"out": out["out"] * t["a"] + us.exp(p["a"]) * t["b"]}

    return scaled_exp


def test_custom_vjp_is_right_in_both_modes_to_third_order() -> None:
    us.check_grad(make_product(), X, Y, order=3)


def test_custom_jvp_is_right_in_both_modes_to_third_order() -> None:
    us.check_grad(make_scaled_exp(), {"a": X, "b": Y}, order=3)


def test_custom_jvp_is_right_on_complex_values() -> None:
    us.check_grad(make_scaled_exp(), {"a": X, "b": Y + 1j * X}, order=2)


def test_custom_vjp_is_right_on_complex_values() -> None:
    @us.custom_vjp
    def square(z: Any) -> Any:
        return z * z

    square.defvjp(lambda z: (z * z, z), lambda z, ct: (2.0 * us.conj(z) * ct,))
    us.check_grad(square, X + 1j * Y, order=2)


@pytest.mark.parametrize("transform", [us.grad, us.jacfwd], ids=["reverse", "forward"])
def test_the_rule_is_used_instead_of_the_graph(transform: Any) -> None:
    @us.custom_vjp
    def f(x: Any) -> Any:
        return x * 2.0

    f.defvjp(lambda x: (x * 2.0, None), lambda res, ct: (ct * 100.0,))
    close(transform(f)(1.0), 100.0)

    @us.custom_jvp
    def g(x: Any) -> Any:
        return x * 2.0

    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * 100.0))
    close(transform(g)(1.0), 100.0)


@pytest.mark.parametrize("transform", [us.grad, us.jacfwd], ids=["reverse", "forward"])
def test_a_rule_makes_differentiable_what_is_not(transform: Any) -> None:
    opaque = us.op("opaque_in_custom", kernel=np.abs, replace=True)

    @us.custom_vjp
    def f(x: Any) -> Any:
        return opaque(x)

    f.defvjp(lambda x: (opaque(x), us.sin(x)), lambda res, ct: (ct * res,))
    close(transform(f)(0.5), np.sin(0.5))
    close(us.grad(transform(f))(0.5), np.cos(0.5))

    @us.custom_jvp
    def g(x: Any) -> Any:
        return opaque(x)

    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * us.sin(primals[0])))
    close(transform(g)(0.5), np.sin(0.5))


def test_the_rule_is_called_once_for_all_arguments() -> None:
    calls = []

    @us.custom_vjp
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y * z

    def bwd(res: Any, ct: Any) -> Any:
        calls.append(1)
        x, y, z = res
        return ct * y * z, ct * x * z, ct * x * y

    f.defvjp(lambda x, y, z: (x * y * z, (x, y, z)), bwd)
    found = us.grad(f, argnums=(0, 1, 2))(2.0, 3.0, 4.0)
    assert [float(g) for g in found] == [12.0, 8.0, 6.0]
    assert len(calls) == 1


def test_none_means_that_nothing_flows() -> None:
    @us.custom_vjp
    def f(x: Any, p: Any) -> Any:
        return x * p["a"] * p["b"]

    f.defvjp(lambda x, p: (x * p["a"] * p["b"], (x, p)), lambda res, ct: (None, {"a": ct * res[0], "b": None}))
    x, a, b = us.tensor(2.0), us.tensor(3.0), us.tensor(5.0)
    loss = f(x, {"a": a, "b": b})
    found = loss.grad({"x": x, "a": a, "b": b}, unconnected="none")
    assert found["x"] is None and found["b"] is None
    close(found["a"], 2.0)


def test_outputs_that_were_not_used_have_zero_cotangents() -> None:
    x = us.tensor(X)
    first, second = make_product()(x, us.tensor(Y))
    close(us.sum(second).grad(x), Y)
    close(us.sum(first).grad(x), np.cos(X) * Y)


def test_arguments_that_are_no_tensors_reach_the_rule_as_they_are() -> None:
    seen = []

    @us.custom_vjp
    def power(x: Any, n: Any, how: Any) -> Any:
        return x**n

    def bwd(res: Any, ct: Any) -> Any:
        x, n, how = res
        seen.append((n, how))
        return n * x ** (n - 1) * ct, None, None

    power.defvjp(lambda x, n, how: (x**n, (x, n, how)), bwd)
    close(us.grad(lambda x: power(x, 3, how={"a": "b"}))(2.0), 12.0)
    assert seen == [(3, {"a": "b"})]


def test_python_scalars_stay_weak_arguments() -> None:
    f = make_product()
    assert f(us.tensor(X, dtype="float32"), 2.0)[1].dtype == np.float32


def test_nondiff_arguments_come_first_in_the_rules() -> None:
    @partial(us.custom_vjp, nondiff_argnums=(0, 2))
    def f(g: Any, x: Any, n: Any) -> Any:
        return g(x) * n

    f.defvjp(lambda g, x, n: (g(x) * n, x), lambda g, n, x, ct: (ct * us.cos(x) * n,))
    close(us.grad(lambda x: f(us.sin, x, 3.0))(0.5), 3 * np.cos(0.5))

    @partial(us.custom_jvp, nondiff_argnums=1)
    def h(x: Any, n: Any) -> Any:
        return us.sin(x) * n

    h.defjvp(lambda n, primals, tangents: (h(primals[0], n), us.cos(primals[0]) * n * tangents[0]))
    close(us.grad(lambda x: h(x, n=3.0))(0.5), 3 * np.cos(0.5))


def test_integer_tensors_pass_without_derivative() -> None:
    @us.custom_vjp
    def take(x: Any, i: Any) -> Any:
        return us.take(x, i), i + 1

    take.defvjp(
        lambda x, i: ((us.take(x, i), i + 1), (x, i)),
        lambda res, ct: (us.zeros(3).at[res[1]].add(ct[0]), None),
    )
    x = us.tensor(X)
    picked, following = take(x, us.tensor([2, 0]))
    assert following.tolist() == [3, 1]
    close(us.sum(picked).grad(x), [1.0, 0.0, 1.0])


def test_tangents_of_plain_numbers_are_zero_and_of_other_things_none() -> None:
    seen = []

    @us.custom_jvp
    def f(x: Any, scale: Any, mode: Any, array: Any) -> Any:
        return x * scale

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        seen.append(tangents[1:])
        return f(*primals), tangents[0] * primals[1]

    close(us.grad(lambda x: f(x, 3.0, "mode", np.ones(2)))(1.0), 3.0)
    assert seen[0][:2] == (0.0, None)
    assert seen[0][2].tolist() == [0.0, 0.0]


def test_a_tensor_closed_over_can_be_used_but_not_differentiated() -> None:
    w = us.tensor(2.0)

    @us.custom_vjp
    def f(x: Any) -> Any:
        return x * w

    f.defvjp(lambda x: (x * w, ()), lambda res, ct: (ct * us.stop_gradient(w),))
    x = us.tensor(3.0)
    close(f(x).grad(x), 2.0)
    with pytest.raises(MissingRuleError, match="f has a custom rule and closes over a tensor"):
        f(x).grad([x, w])
    with pytest.raises(MissingRuleError, match="closes over"):
        us.grad(lambda w: us.grad(_closing_over(w))(1.0))(2.0)


def _closing_over(w: Any) -> Any:
    @us.custom_jvp
    def f(x: Any) -> Any:
        return x * w

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * w * us.stop_gradient(f(*primals))))
    return lambda x: f(x) * f(x)


def test_a_stopped_tensor_may_be_closed_over() -> None:
    w = us.tensor(2.0)

    @us.custom_vjp
    def f(x: Any) -> Any:
        return x * us.stop_gradient(w)

    f.defvjp(lambda x: (x * us.stop_gradient(w), ()), lambda res, ct: (ct * 7.0,))
    x = us.tensor(3.0)
    assert f(x).grad(w, unconnected="none") is None


def test_the_function_keeps_its_name_and_docstring() -> None:
    product = make_product()
    assert product.__name__ == "product"
    assert product.__doc__ == "Sine times, and times."


def test_calls_are_evaluated_like_any_tensor_and_in_loops() -> None:
    f = make_product()
    x: Any = us.tensor(X)
    y = us.tensor(Y)
    expected = X
    for _ in range(5):
        x = f(x, y)[0]
        x.eval()
        expected = np.sin(expected) * Y
    close(x, expected)

    def loop(x: Any) -> Any:
        for _ in range(5):
            x = f(x, y)[0]
        return us.sum(x)

    us.check_grad(loop, X)


def test_rules_work_on_symbolic_sizes() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    gradient = us.grad(lambda x: us.sum(make_product()(x, x)[0]))(x)
    close(gradient.eval({x: X}), np.cos(X) * X + np.sin(X))


def test_calls_are_freed_without_the_garbage_collector() -> None:
    def build(f: Any, *args: Any) -> list[weakref.ref[Any]]:
        leaves = [us.tensor(a) for a in args]
        out = us.sum(f(*leaves))
        gradient = out.grad(leaves)
        us.eval(out, gradient, us.sum(gradient[0]).grad(leaves))
        return [weakref.ref(leaf) for leaf in leaves]

    product, scaled_exp = make_product(), make_scaled_exp()
    gc.collect()
    gc.disable()
    try:
        references = build(lambda x, y: product(x, y)[0], X, Y)
        references += build(lambda x, y: scaled_exp({"a": x, "b": y})["out"], X, Y)
        assert all(reference() is None for reference in references)
    finally:
        gc.enable()


# --- mistakes --------------------------------------------------------------------------------------------------------


def with_rule(bwd: Any, fwd: Any = lambda x: (x * 2.0, x)) -> Any:
    @us.custom_vjp
    def doubled(x: Any) -> Any:
        return x * 2.0

    doubled.defvjp(fwd, bwd)
    return doubled


@pytest.mark.parametrize("wrap", [us.custom_vjp, us.custom_jvp])
def test_a_rule_holds_in_a_traced_function_at_every_size(wrap: Any) -> None:
    cube = wrap(lambda x: x * x * x)
    if wrap is us.custom_vjp:
        cube.defvjp(lambda x: (x * x * x, x), lambda x, ct: (3.0 * x * x * ct,))
    else:
        cube.defjvp(lambda primals, tangents: (cube.f(*primals), 3.0 * primals[0] ** 2 * tangents[0]))

    @us.fragment
    def loss(x: Any) -> Any:
        return us.sum(cube(x))

    for size in (3, 5):
        x = us.tensor(np.linspace(0.5, 1.5, size))
        close(loss(x).grad(x), 3.0 * x.eval() ** 2)
        close(us.sum(loss(x).grad(x)).grad(x), 6.0 * x.eval())


@pytest.mark.parametrize("wrap", [us.custom_vjp, us.custom_jvp])
def test_a_wrong_shape_is_found_in_a_traced_function(wrap: Any) -> None:
    def double(x: Any) -> Any:
        return 2.0 * x

    doubled = wrap(double)
    if wrap is us.custom_vjp:
        doubled.defvjp(lambda x: (2.0 * x, None), lambda res, ct: (us.sum(ct),))
    else:
        doubled.defjvp(lambda primals, tangents: (2.0 * primals[0], us.sum(tangents[0])))
    x = us.tensor(X)
    with pytest.raises(ContributionShapeError, match=r"rule of double gave has shape \(\).*shape \(3,\)"):
        us.fragment(lambda x: us.sum(doubled(x)))(x).grad(x).eval()


def test_a_missing_rule_is_named() -> None:
    for wrap, give in ((us.custom_vjp, "defvjp"), (us.custom_jvp, "defjvp")):

        def lonely(x: Any) -> Any:
            return x

        with pytest.raises(MissingRuleError, match=f"lonely.*{give}"):
            wrap(lonely)(1.0)


@pytest.mark.parametrize(
    ("bwd", "error", "message"),
    [
        (lambda res, ct: ct, StructureError, "bwd rule of doubled must return a tuple of 1.*Tensor"),
        (lambda res, ct: (ct, ct), StructureError, "tuple of 1.*got 2"),
        (lambda res, ct: ({"a": ct},), StructureError, "bwd rule of doubled.*must be one tensor"),
        (lambda res, ct: ([ct, ct],), StructureError, "bwd rule of doubled.*must be one tensor"),
        (lambda res, ct: ("ct",), DTypeError, "bwd rule of doubled"),
        (lambda res, ct: (us.sum(ct),), ContributionShapeError, r"bwd rule of doubled.*\(\).*\(3,\)"),
    ],
)
def test_what_bwd_returns_is_checked(bwd: Any, error: type[Exception], message: str) -> None:
    f = with_rule(bwd)
    with pytest.raises(error, match=message):
        us.grad(lambda x: us.sum(f(x)))(X)


def test_what_fwd_returns_is_checked() -> None:
    with pytest.raises(StructureError, match=r"fwd rule of doubled must return \(output, residuals\)"):
        with_rule(lambda res, ct: (ct,), fwd=lambda x: x * 2.0)(1.0)


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda p, t: t[0], StructureError, r"jvp rule of doubled must return \(output, tangent_out\)"),
        (lambda p, t: (p[0], [t[0]]), StructureError, "tangent_out of doubled"),
        (lambda p, t: (p[0], us.sum(t[0])), ContributionShapeError, "jvp rule of doubled"),
    ],
)
def test_what_a_jvp_rule_returns_is_checked(rule: Any, error: type[Exception], message: str) -> None:
    @us.custom_jvp
    def doubled(x: Any) -> Any:
        return {"a": x * 2.0} if error is StructureError else x * 2.0

    doubled.defjvp(rule)
    with pytest.raises(error, match=message):
        us.jvp(doubled, (X,), (X,))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="nondiff_argnums"):
        us.custom_vjp(us.sin, nondiff_argnums=(-1,))
    f = us.custom_vjp(lambda x: x, nondiff_argnums=(3,))
    f.defvjp(lambda x: (x, None), lambda res, ct: (ct,))
    with pytest.raises(StructureError, match="called with 1 arguments"):
        f(1.0)
    with pytest.raises(StructureError, match="doubled: missing"):
        with_rule(lambda res, ct: (ct,))(y=3.0)
