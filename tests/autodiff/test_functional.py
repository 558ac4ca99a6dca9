"""Gradients and products with Jacobians and Hessians, of tensors and of functions."""

from __future__ import annotations

import gc
import math
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import optree
import pytest

import unspool as us
from tests.closeness import close
from unspool.errors import (
    ArgumentError,
    ComplexLossError,
    DTypeError,
    NonScalarLossError,
    NotConnectedError,
    ShapeError,
    StructureError,
)

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4, -0.7])
Point = namedtuple("Point", "x y")


def cubes(x: Any) -> us.Tensor:
    return us.sum(x * x * x)


# --- Tensor.grad -----------------------------------------------------------------------------------------------------


def test_gradient_of_a_tensor_is_lazy_and_right() -> None:
    x = us.tensor(X)
    gradient = cubes(x).grad(x)
    assert gradient.value is None
    close(gradient, 3 * X**2)


def test_gradient_with_respect_to_an_interior_tensor() -> None:
    x = us.tensor(X)
    y = x * x
    close(us.sum(y * y).grad(y), 2 * X**2)


def test_gradient_of_a_tensor_with_respect_to_itself_is_one() -> None:
    x = us.tensor(3.0)
    close(x.grad(x), 1.0)


def test_gradient_counts_paths_that_pass_through_another_variable() -> None:
    x = us.tensor(2.0)
    y = x * x
    close(us.eval(*(y * x).grad((x, y))), [12.0, 2.0])


@pytest.mark.parametrize(
    "nest",
    [
        lambda x, y: [x, y],
        lambda x, y: (x, (y,)),
        lambda x, y: {"b": x, "a": [y, None]},
        lambda x, y: Point(x, {"inner": y}),
    ],
)
def test_gradient_is_nested_like_its_variables(nest: Any) -> None:
    x, y = us.tensor(X), us.tensor(Y)
    found = us.sum(x * y).grad(nest(x, y))
    expected = nest(Y, X)
    assert type(found) is type(expected)
    for a, b in zip(_leaves(found), _leaves(expected), strict=True):
        close(a, b)


def test_registered_classes_are_looked_into() -> None:
    @optree.dataclasses.dataclass(namespace="unspool")
    class Model:
        w: Any
        b: Any

    found = us.grad(lambda m: us.sum(m.w * m.b))(Model(X, Y))
    assert isinstance(found, Model)
    close(found.w, Y)
    close(found.b, X)


def test_the_order_of_dict_keys_is_kept() -> None:
    x, y = us.tensor(X), us.tensor(Y)
    assert list(us.sum(x * y).grad({"b": x, "a": y})) == ["b", "a"]


def test_asking_twice_for_a_gradient_gives_the_same_tensor() -> None:
    x = us.tensor(X)
    loss = cubes(x)
    first = loss.grad(x)
    assert loss.grad(x) is first


def test_gradient_of_a_real_loss_with_respect_to_a_complex_tensor() -> None:
    z = us.tensor(3 + 4j)
    close(us.real(z * us.conj(z)).grad(z), 6 + 8j)


def test_gradient_of_a_real_tensor_stays_real_on_a_complex_path() -> None:
    x = us.tensor(X)
    loss = us.sum(us.real((x * (2 + 5j)) * (x * 1j)))
    assert loss.grad(x).dtype == np.float64
    close(loss.grad(x), -10 * X)


def test_holomorphic_gradient_is_the_complex_derivative() -> None:
    z = us.tensor(1 + 2j)
    close((z * z * z).grad(z, holomorphic=True), 3 * (1 + 2j) ** 2)


def test_gradient_of_single_precision_is_single_precision() -> None:
    x = us.tensor(X, dtype="float32")
    assert cubes(x).grad(x).dtype == np.float32


# --- what is not connected -------------------------------------------------------------------------------------------


def test_what_is_not_connected_is_zeros_beside_what_is() -> None:
    x, y = us.tensor(X), us.tensor(Y, dtype="float32")
    found = cubes(x).grad([x, y])
    assert found[1].shape == (3,) and found[1].dtype == np.float32
    close(found[1], np.zeros(3))


def test_what_is_not_connected_is_none_if_asked() -> None:
    x, y = us.tensor(X), us.tensor(Y)
    found = cubes(x).grad({"x": x, "y": y}, unconnected="none")
    assert found["y"] is None
    close(found["x"], 3 * X**2)


def test_what_is_not_connected_is_an_error_if_asked() -> None:
    x, y = us.tensor(X), us.tensor(Y)
    with pytest.raises(NotConnectedError, match=r"wrt\['y'\]"):
        cubes(x).grad({"x": x, "y": y}, unconnected="raise")


def test_a_zero_that_was_computed_is_connected() -> None:
    x = us.tensor(X)
    close(us.sum(x * 0.0).grad(x, unconnected="raise"), np.zeros(3))


def test_later_tensors_and_integer_paths_are_not_connected() -> None:
    x = us.tensor(X)
    loss = cubes(x)
    later = loss * 2.0
    whole = us.sum(us.astype(us.astype(x, "int64"), "float64"))
    assert loss.grad(later, unconnected="none") is None
    assert whole.grad(x, unconnected="none") is None


def test_zeros_for_symbolic_shapes_are_built_lazily() -> None:
    n = us.dims("n")
    x, y = us.placeholder((n,)), us.placeholder((n,))
    close(us.sum(x).grad(y, unconnected="zeros").eval({x: [1.0, 2.0], y: [0.0, 0.0]}), [0.0, 0.0])


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_gradient_needs_a_scalar() -> None:
    x = us.tensor(X)
    with pytest.raises(NonScalarLossError, match=r"\(3,\).*us.vjp"):
        (x * x).grad(x)


def test_a_complex_loss_is_refused_with_advice() -> None:
    z = us.tensor(1 + 2j)
    with pytest.raises(ComplexLossError, match="holomorphic=True"):
        (z * z).grad(z)


def test_holomorphic_needs_complex_results_and_variables() -> None:
    x, z = us.tensor(1.0), us.tensor(1 + 2j)
    with pytest.raises(DTypeError, match="complex results"):
        (x * x).grad(x, holomorphic=True)
    with pytest.raises(DTypeError, match="complex variables, but wrt has dtype float64"):
        (x * z).grad(x, holomorphic=True)


@pytest.mark.parametrize(
    ("wrt", "error"),
    [
        (lambda: us.tensor([1, 2]), DTypeError),
        (lambda: us.constant(2.0), StructureError),
        (lambda: np.ones(3), StructureError),
        (lambda: "x", StructureError),
    ],
)
def test_only_inexact_variables_can_be_differentiated_for(wrt: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"wrt\[0\]"):
        us.sum(us.tensor(X)).grad([wrt()])


def test_an_integer_result_has_no_gradient() -> None:
    x = us.tensor(X)
    with pytest.raises(DTypeError, match="int64"):
        us.sum(us.astype(x, "int64")).grad(x)


def test_unconnected_has_four_meanings() -> None:
    x = us.tensor(X)
    with pytest.raises(ArgumentError, match="'auto', 'zeros', 'none' or 'raise'"):
        cubes(x).grad(x, unconnected="zero")  # type: ignore[arg-type]


# --- grad and value_and_grad -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [X, us.tensor(X), us.constant(X)], ids=["array", "tensor", "constant"])
def test_grad_takes_anything_like_an_array(argument: Any) -> None:
    close(us.grad(cubes)(argument), 3 * X**2)


def test_grad_by_several_arguments_is_a_tuple() -> None:
    x, y = us.grad(lambda x, y: us.sum(x * x * y), argnums=(0, 1))(X, Y)
    close(x, 2 * X * Y)
    close(y, X**2)


def test_argnums_choose_and_count_from_the_end() -> None:
    def f(x: Any, y: Any, *, scale: float) -> us.Tensor:
        return us.sum(x * x * y) * scale

    close(us.grad(f, argnums=1)(X, Y, scale=2.0), 2 * X**2)
    close(us.grad(f, argnums=-2)(X, Y, scale=2.0), 4 * X * Y)
    assert isinstance(us.grad(f, argnums=(1,))(X, Y, scale=1.0), tuple)


def test_grad_over_nested_arguments() -> None:
    def f(p: Any) -> us.Tensor:
        return us.sum(p["w"] * p["more"][0]) + p["more"][1]

    found = us.grad(f)({"w": X, "more": (us.tensor(Y), 2.0, None)})
    close(found["w"], Y)
    close(found["more"][0], X)
    close(found["more"][1], 1.0)
    assert found["more"][2] is None


def test_value_and_grad_gives_both_and_aux() -> None:
    value, gradient = us.value_and_grad(cubes)(X)
    close(value, np.sum(X**3))
    close(gradient, 3 * X**2)
    (value, aux), gradient = us.value_and_grad(lambda x: (cubes(x), {"twice": x * 2.0, "n": 7}), has_aux=True)(X)
    close(aux["twice"], 2 * X)
    assert aux["n"] == 7
    gradient, aux = us.grad(lambda x: (cubes(x), "seen"), has_aux=True)(X)
    close(gradient, 3 * X**2)
    assert aux == "seen"


def test_a_function_that_returns_a_plain_number_is_not_connected() -> None:
    close(us.grad(lambda x: 3.0, unconnected="zeros")(X), np.zeros(3))
    assert us.grad(lambda x: 3.0, unconnected="none")(X) is None
    with pytest.raises(NotConnectedError, match="argument 0"):
        us.grad(lambda x: 3.0, unconnected="raise")(X)


def test_the_same_tensor_twice_has_two_partial_derivatives() -> None:
    x = us.tensor(3.0)
    first, second = us.grad(lambda a, b: a * a * b, argnums=(0, 1))(x, x)
    assert (float(first), float(second)) == (18.0, 9.0)


def test_a_tensor_closed_over_is_a_constant_of_this_transform_but_not_of_outer_ones() -> None:
    x = us.tensor(3.0)
    inner = us.grad(lambda y: y * x)(x)
    assert float(inner) == 3.0
    assert float(inner.grad(x)) == 1.0


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda y: us.grad(lambda z: y * z)(y), 1.0),
        (lambda y: us.grad(lambda z: y * z * z)(y), 4 * 2.0),
        (lambda y: y * us.grad(lambda z: y + z)(1.0), 1.0),
        (lambda y: us.grad(lambda z: us.grad(lambda w: w * z * y)(y) * z)(y), 4 * 2.0),
        (lambda y: us.jvp(lambda z: y * z, (y,), (1.0,))[1], 1.0),
        (lambda y: us.vjp(lambda z: y * z * z, y)[1](1.0)[0], 4 * 2.0),
    ],
)
def test_nested_transforms_do_not_confuse_their_variables(f: Any, expected: float) -> None:
    for argument in (us.tensor(2.0), 2.0):
        close(us.grad(f)(argument), expected)
        close(us.jvp(f, (argument,), (1.0,))[1], expected)


def test_a_gradient_of_one_transform_is_a_constant_of_the_next() -> None:
    x = us.tensor(2.0)
    slope = us.grad(lambda z: z * z)(x)
    close(us.grad(lambda z: z * slope)(x), 4.0)


@pytest.mark.parametrize("order", range(6))
def test_gradients_of_gradients_to_any_order(order: int) -> None:
    f: Any = lambda x: x**5  # noqa: E731
    for _ in range(order):
        f = us.grad(f)
    close(f(1.5), math.perm(5, order) * 1.5 ** (5 - order))


def test_grad_refuses_integers_and_bad_argnums() -> None:
    with pytest.raises(DTypeError, match=r"argument 0\['n'\] has dtype int64"):
        us.grad(lambda p: p["n"])({"n": 3})
    with pytest.raises(StructureError, match="argnums=1, but cubes was called with 1"):
        us.grad(cubes, argnums=1)(X)
    with pytest.raises(ArgumentError, match="twice"):
        us.grad(lambda x, y: x * y, argnums=(0, -2))(1.0, 2.0)
    for bad in (None, "x", 1.0, (), True):
        with pytest.raises(ArgumentError, match="argnums is an integer"):
            us.grad(cubes, argnums=bad)  # type: ignore[arg-type]


def test_grad_refuses_several_outputs() -> None:
    with pytest.raises(StructureError, match="has_aux"):
        us.grad(lambda x: (x, x))(1.0)
    with pytest.raises(StructureError, match=r"\(output, aux\)"):
        us.grad(lambda x: x, has_aux=True)(1.0)
    with pytest.raises(NonScalarLossError):
        us.grad(lambda x: x * 2.0)(X)


# --- vjp, jvp, linearize ---------------------------------------------------------------------------------------------


def test_vjp_pulls_cotangents_back() -> None:
    out, pull = us.vjp(lambda x, y: {"p": x * y, "s": us.sum(x)}, X, us.tensor(Y))
    close(out["p"], X * Y)
    w = np.array([1.0, 10.0, 100.0])
    x_bar, y_bar = pull({"p": w, "s": 5.0})
    close(x_bar, w * Y + 5.0)
    close(y_bar, w * X)
    x_bar, y_bar = pull({"p": None, "s": 1.0})
    close(x_bar, np.ones(3))
    close(y_bar, np.zeros(3))


def test_vjp_holds_integers_fixed() -> None:
    out, pull, aux = us.vjp(lambda x, n: ((x * n, n), "aux"), X, 3, has_aux=True)
    assert pull((np.ones(3), None))[1] is None
    close(pull((np.ones(3), None))[0], np.full(3, 3.0))
    assert aux == "aux" and out[1].dtype == np.int64
    with pytest.raises(DTypeError, match="cotangent is None"):
        pull((np.ones(3), 1))


def test_jvp_pushes_tangents_forward() -> None:
    out, tangent = us.jvp(lambda p, n: {"q": p[0] * p[1] * n, "n": n}, ([X, Y], 2), ([Y, X], None))
    close(out["q"], 2 * X * Y)
    close(tangent["q"], 2 * (Y * Y + X * X))
    assert tangent["n"] is None
    out, tangent, aux = us.jvp(lambda x: (x, "aux"), (X,), (Y,), has_aux=True)
    close(tangent, Y)
    assert aux == "aux"


def test_jvp_takes_none_for_what_does_not_move_and_gives_zeros_for_what_did_not() -> None:
    _, tangent = us.jvp(lambda x, y: (x * y, y * 2.0, 3.0), (X, Y), (X, None))
    close(tangent[0], X * Y)
    close(tangent[1], np.zeros(3))
    close(tangent[2], 0.0)


def test_python_scalars_are_weak_tangents() -> None:
    x = us.tensor(2.0, dtype="float32")
    assert us.jvp(us.sin, (x,), (1.0,))[1].dtype == np.float32
    assert us.vjp(us.sin, x)[1](1)[0].dtype == np.float32


def test_narrower_tangents_are_widened() -> None:
    _, tangent = us.jvp(lambda z: z * z, (us.tensor(1 + 2j),), (np.float32(1.0),))
    assert tangent.dtype == np.complex128
    close(tangent, 2 + 4j)


@pytest.mark.parametrize(
    ("tangents", "error", "message"),
    [
        (([X],), StructureError, "tangents must have the structure"),
        (({"b": X},), StructureError, "tangents must have the structure"),
        (({"a": X[:2]},), ShapeError, r"must have shape \(3,\), got \(2,\)"),
        (({"a": X * 1j},), DTypeError, "must fit dtype float64, got complex128"),
        (({"a": 1.0},), ShapeError, r"must have shape \(3,\), got \(\)"),
        (({"a": X}, X), StructureError, "1 primals and 2 tangents"),
        ({"a": X}, StructureError, "tangents is a tuple"),
    ],
)
def test_tangents_that_do_not_match_are_refused(tangents: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        us.jvp(lambda p: p["a"], ({"a": X},), tangents)


def test_complex_python_tangents_need_complex_primals() -> None:
    with pytest.raises(DTypeError, match="is complex"):
        us.jvp(us.sin, (1.0,), (1j,))


def test_cotangents_that_do_not_match_are_refused() -> None:
    _, pull = us.vjp(lambda x: {"a": x}, X)
    with pytest.raises(StructureError, match="the cotangent must have the structure"):
        pull(X)
    with pytest.raises(ShapeError, match=r"cotangent of the output\['a'\]"):
        pull({"a": 1.0})


def test_linearize_runs_the_function_once() -> None:
    calls = []

    def f(x: Any, y: Any) -> us.Tensor:
        calls.append(1)
        return us.sin(x) * y

    out, push = us.linearize(f, X, Y)
    close(out, np.sin(X) * Y)
    for a, b in ((1.0, 0.0), (0.0, 1.0), (2.0, 3.0)):
        close(push(np.full(3, a), np.full(3, b)), a * np.cos(X) * Y + b * np.sin(X))
    assert len(calls) == 1


def test_vjp_runs_the_function_once() -> None:
    calls = []
    _, pull = us.vjp(lambda x: calls.append(1) or x * x, X)
    pull(X)
    pull(Y)
    assert len(calls) == 1


def test_reverse_and_forward_products_are_adjoint_on_complex_values() -> None:
    z = np.array([1 + 2j, -0.5 + 0.3j])
    v, w = np.array([0.3 - 1j, 2.0]), np.array([1j, 0.7 - 0.2j])

    def f(z: Any) -> us.Tensor:
        return us.sin(z) * us.conj(z)

    pushed = us.jvp(f, (z,), (v,))[1].eval()
    pulled = us.vjp(f, z)[1](w)[0].eval()
    assert np.vdot(w, pushed).real == pytest.approx(np.vdot(pulled, v).real, rel=1e-14)


# --- hvp and compositions --------------------------------------------------------------------------------------------

A = np.array([[2.0, 0.3, -1.0], [0.5, 1.5, 0.1], [0.0, -0.4, 3.0]])


def quadratic(x: Any) -> us.Tensor:
    return us.sum(x * us.sum(us.constant(A) * x, axis=1)) * 0.5


def test_hvp_is_the_product_with_the_hessian() -> None:
    close(us.hvp(quadratic, (X,), (Y,)), (A + A.T) @ Y / 2)


def test_hvp_over_several_and_nested_arguments() -> None:
    def f(p: Any, y: Any) -> us.Tensor:
        return us.sum(p["x"] * p["x"] * y * y)

    first, second = us.hvp(f, ({"x": X}, Y), ({"x": Y}, X))
    close(first["x"], 2 * Y**2 * Y + 4 * X * Y * X)
    close(second, 4 * X * Y * Y + 2 * X**2 * X)


def test_hvp_of_a_linear_function_is_zero() -> None:
    close(us.hvp(lambda x: us.sum(x * 2.0), (X,), (Y,)), np.zeros(3))


def test_hvp_refuses_what_has_no_hessian() -> None:
    with pytest.raises(NonScalarLossError):
        us.hvp(lambda x: x, (X,), (X,))
    with pytest.raises(StructureError, match="primals is a tuple"):
        us.hvp(cubes, X, X)
    with pytest.raises(StructureError, match="one scalar"):
        us.hvp(lambda x: (cubes(x), 1.0), (X,), (X,))


def second_derivative(x: float) -> float:
    return 2 * math.cos(x) - x * math.sin(x)


@pytest.mark.parametrize(
    "second",
    [
        lambda f: us.grad(us.grad(f)),
        lambda f: lambda x: us.jvp(us.grad(f), (x,), (1.0,))[1],
        lambda f: us.grad(lambda x: us.jvp(f, (x,), (1.0,))[1]),
        lambda f: lambda x: us.jvp(lambda y: us.jvp(f, (y,), (1.0,))[1], (x,), (1.0,))[1],
        lambda f: lambda x: us.hvp(f, (x,), (1.0,)),
        lambda f: lambda x: us.vjp(us.grad(f), x)[1](1.0)[0],
        lambda f: lambda x: us.linearize(us.grad(f), x)[1](1.0),
        lambda f: us.hessian(f),
        lambda f: us.jacrev(us.jacfwd(f)),
    ],
    ids=["gg", "jg", "gj", "jj", "hvp", "vg", "lg", "hessian", "rf"],
)
def test_every_composition_gives_the_same_second_derivative(second: Any) -> None:
    f = lambda x: x * us.sin(x)  # noqa: E731
    close(second(f)(0.7), second_derivative(0.7))
    third = -3 * math.sin(0.7) - 0.7 * math.cos(0.7)
    close(us.grad(second(f))(0.7), third)
    close(us.jvp(second(f), (0.7,), (1.0,))[1], third)


def test_hvp_inside_a_loop_can_be_differentiated() -> None:
    def newton(a: Any) -> us.Tensor:
        x: Any = us.tensor(1.0)
        for _ in range(8):
            f = lambda x: x * x * x / 3.0 - a * x  # noqa: E731
            x = x - us.grad(f)(x) / us.hvp(f, (x,), (1.0,))
        return x

    close(newton(2.0), math.sqrt(2.0))
    close(us.grad(newton)(2.0), 0.5 / math.sqrt(2.0))
    close(us.grad(us.grad(newton))(2.0), -0.25 * 2.0**-1.5)


def test_derivatives_of_symbolic_shapes_are_built_before_sizes_are_known() -> None:
    n = us.dims("n")
    x = us.placeholder((n,), name="x")
    f = lambda x: us.sum(us.sin(x) * x)  # noqa: E731
    values = {x: X}
    close(us.grad(f)(x).eval(values), np.cos(X) * X + np.sin(X))
    close(us.jvp(f, (x,), (x,))[1].eval(values), np.sum((np.cos(X) * X + np.sin(X)) * X))
    close(us.vjp(us.sin, x)[1](x)[0].eval(values), np.cos(X) * X)
    close(us.hvp(f, (x,), (x,)).eval(values), (2 * np.cos(X) - X * np.sin(X)) * X)


def test_graphs_of_derivatives_are_freed_without_the_garbage_collector() -> None:
    def build() -> weakref.ref[us.Tensor]:
        x = us.tensor(X)
        f = lambda x: us.sum(us.sin(x) * x)  # noqa: E731
        us.grad(lambda x: us.sum(us.grad(f)(x)))(x).eval()
        us.hvp(f, (x,), (x,)).eval()
        us.hessian(f)(x).eval()
        us.vjp(f, x)[1](1.0)[0].eval()
        us.linearize(f, x)[1](x).eval()
        return weakref.ref(x)

    gc.collect()
    gc.disable()
    try:
        assert build()() is None
    finally:
        gc.enable()


def _leaves(tree: Any) -> list[Any]:
    return optree.tree_leaves(tree)
