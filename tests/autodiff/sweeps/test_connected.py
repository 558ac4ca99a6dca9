"""A derivative of a result that depends on none of its variables raises; legitimate zeros stay zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, NotConnectedError

X = np.array([0.3, 0.7, 1.1])
A = np.array([2.0, -1.0, 0.5])


def linear(x: Any) -> Any:
    return us.sum(A * x) + 1.0


def product_with(a: us.Tensor) -> Callable[[Any], Any]:
    return lambda x: x @ a


# --- nothing is connected --------------------------------------------------------------------------------------------


def test_a_loss_that_left_the_graph_has_no_gradient() -> None:
    w = us.tensor(X, name="w")
    loss = us.tensor(np.sum(np.asarray(w) ** 2))
    with pytest.raises(NotConnectedError, match=r"does not depend on wrt \(tensor 'w' of shape \(3,\)") as caught:
        loss.grad(w)
    assert "test_connected.py" in str(caught.value) and "unconnected='zeros'" in str(caught.value)


def test_several_variables_that_do_not_matter_are_named() -> None:
    a, b = us.tensor(1.0), us.tensor(2.0)
    with pytest.raises(NotConnectedError, match=r"any of wrt\['a'\], wrt\['b'\]"):
        us.sum(us.tensor(X)).grad({"a": a, "b": b})


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: us.grad(lambda x: us.sum(f(x)))(X),
        lambda f: us.value_and_grad(lambda x: us.sum(f(x)))(X),
        lambda f: us.vjp(f, X)[1](np.ones(3)),
        lambda f: us.jvp(f, (X,), (np.ones(3),)),
        lambda f: us.linearize(f, X)[1](np.ones(3)),
        lambda f: us.hvp(lambda x: us.sum(f(x)), (X,), (np.ones(3),)),
        lambda f: us.jacobian(f)(X),
        lambda f: us.jacfwd(f)(X),
        lambda f: us.jacrev(f)(X),
        lambda f: us.hessian(f)(X),
    ],
    ids=["grad", "value_and_grad", "vjp", "jvp", "linearize", "hvp", "jacobian", "jacfwd", "jacrev", "hessian"],
)
@pytest.mark.parametrize("left", ["plain", "constant"])
def test_a_function_that_does_not_depend_on_its_argument_has_no_derivative(derivative: Any, left: str) -> None:
    values = {"plain": lambda x: np.asarray(x) ** 2, "constant": lambda x: us.tensor(x.eval() ** 2)}
    with pytest.raises(NotConnectedError):
        derivative(values[left])


def test_a_loss_that_is_a_plain_number_is_an_error() -> None:
    with pytest.raises(NotConnectedError, match="<lambda> returned a plain float, which has no derivative"):
        us.grad(lambda a: float(us.sum(a**2)))(X)
    with pytest.raises(NotConnectedError, match="returned a plain float"):
        us.value_and_grad(lambda a: 3.0)(X)
    with pytest.raises(NotConnectedError, match="returned a plain int"):
        us.grad(lambda a: 3)(X)


def test_a_plain_number_made_of_a_derivative_is_an_error_too() -> None:
    with pytest.raises(NotConnectedError, match="returned a plain float"):
        us.grad(lambda x: float(us.grad(lambda y: 3.0 * y)(x)))(1.0)


def test_a_derivative_taken_inside_excuses_only_what_is_made_of_it() -> None:
    def leaves(x: us.Tensor) -> us.Tensor:
        us.grad(linear)(x)
        return us.sum(us.tensor(x.eval()))

    with pytest.raises(NotConnectedError):
        us.grad(leaves)(X)


@pytest.mark.parametrize("wanted", [None, "zero", 5, ["zeros"]])
def test_what_unconnected_may_be_is_checked(wanted: Any) -> None:
    for transform in (us.grad, us.value_and_grad, us.jacobian, us.hessian):
        with pytest.raises(ArgumentError, match="unconnected is"):
            transform(linear, unconnected=wanted)(X)
    for call in (us.vjp, us.linearize):
        with pytest.raises(ArgumentError, match="unconnected is"):
            call(linear, X, unconnected=wanted)
    for product in (us.jvp, us.hvp):
        with pytest.raises(ArgumentError, match="unconnected is"):
            product(linear, (X,), (X,), unconnected=wanted)


# --- zeros that are right --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: us.hessian(f)(X),
        lambda f: us.jacobian(us.grad(f))(X),
        lambda f: us.jacrev(us.grad(f))(X),
        lambda f: us.hvp(f, (X,), (np.ones(3),)),
        lambda f: us.grad(lambda x: us.sum(us.grad(f)(x)))(X),
        lambda f: us.grad(lambda x: us.sum(us.grad(f)(x) ** 2))(X),
        lambda f: us.grad(lambda x: us.sum(f(x).grad(x)))(us.tensor(X)),
        lambda f: us.grad(lambda x: us.sum(us.hvp(f, (x,), (np.ones(3),))))(X),
        lambda f: us.grad(lambda x: us.sum(us.vjp(f, x)[1](1.0)[0]))(X),
        lambda f: us.grad(lambda x: us.jvp(f, (x,), (np.ones(3),))[1])(X),
        lambda f: us.grad(lambda x: us.sum(us.cotangents(f(x), x)))(us.tensor(X)),
        lambda f: us.grad(lambda x: us.sum(us.grad(lambda y: us.sum(us.grad(f)(y)))(x)))(X),
    ],
)
@pytest.mark.parametrize("f", [linear, product_with(us.tensor(A)), lambda x: 3.0 * x[0]])
def test_the_second_derivative_of_a_linear_function_is_zero(derivative: Any, f: Any) -> None:
    found = derivative(f).eval()
    np.testing.assert_array_equal(found, np.zeros(found.shape))


def test_the_second_derivative_of_a_linear_function_of_a_number_is_zero() -> None:
    assert float(us.grad(us.grad(lambda x: 3.0 * x))(2.0)) == 0.0
    assert float(us.grad(us.grad(us.grad(lambda x: x * x)))(2.0)) == 0.0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: us.sum(us.sign(x)),
        lambda x: us.sum(us.floor(x)),
        lambda x: us.sum(us.stop_gradient(x) ** 2),
        lambda x: us.sum(us.astype(x > 0.5, "float64")),
        lambda x: us.astype(us.argmax(x), "float64"),
        lambda x: us.sum(x * 0.0),
    ],
    ids=["sign", "floor", "stop_gradient", "comparison", "argmax", "times zero"],
)
def test_what_depends_on_a_variable_without_a_slope_has_the_derivative_zero(f: Any) -> None:
    x = us.tensor(X)
    np.testing.assert_array_equal(f(x).grad(x).eval(), np.zeros(3))
    np.testing.assert_array_equal(us.grad(f)(X).eval(), np.zeros(3))
    np.testing.assert_array_equal(us.jacobian(f)(X).eval(), np.zeros(3))
    assert float(us.jvp(f, (X,), (np.ones(3),))[1]) == 0.0


def test_a_step_of_a_fragment_without_a_slope_is_connected() -> None:
    step = us.fragment(lambda s, w: us.sign(s * w))
    w = us.tensor(X)
    s = us.tensor(X)
    for _ in range(6):
        s = step(s, w)
    np.testing.assert_array_equal(us.sum(s).grad(w).eval(), np.zeros(3))
    with pytest.raises(NotConnectedError):
        us.sum(s).grad(us.tensor(X))


def test_constants_are_differentiated_if_they_are_meant() -> None:
    def one(x: us.Tensor) -> Any:
        return us.ones(())

    np.testing.assert_array_equal(us.jacobian(one, unconnected="zeros")(X).eval(), np.zeros(3))
    np.testing.assert_array_equal(us.hessian(one, unconnected="zeros")(X).eval(), np.zeros((3, 3)))
    np.testing.assert_array_equal(us.vjp(one, X, unconnected="zeros")[1](1.0)[0].eval(), np.zeros(3))
    np.testing.assert_array_equal(us.hvp(one, (X,), (X,), unconnected="zeros").eval(), np.zeros(3))
    assert float(us.jvp(one, (X,), (X,), unconnected="zeros")[1]) == 0.0
    assert float(us.linearize(one, X, unconnected="zeros")[1](X)) == 0.0
    assert us.ones(3).sum().grad([]) == []


def test_a_cotangent_of_an_output_that_matters_not_is_no_error() -> None:
    _, pull = us.vjp(lambda x: (us.sum(x), us.ones(2)), X)
    np.testing.assert_array_equal(pull((None, np.ones(2)))[0].eval(), np.zeros(3))
