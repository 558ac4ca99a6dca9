"""`fixed_point`: the search, plain and accelerated, and its derivatives, against closed forms and plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool.errors import ArgumentError, ConvergenceError, StructureError, UnboundPlaceholderError


def stiff_matrix(size: int = 30, largest: float = 0.99) -> np.ndarray[Any, Any]:
    """Return a symmetric matrix with eigenvalues between 0 and nearly 1."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]
    return basis @ np.diag(np.linspace(0.0, largest, size)) @ basis.T


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceleration", ["anderson", None])
def test_point_is_fixed_to_the_tolerance(acceleration: str | None) -> None:
    x, steps = us.fixed_point(us.cos, 1.0, tol=1e-12, acceleration=acceleration)
    assert abs(np.cos(float(x)) - float(x)) <= 1e-12 * (1 + float(x))
    assert isinstance(steps, int)


def test_steps_are_counted_as_a_plain_loop_counts_them() -> None:
    x, count = 1.0, 0
    while True:
        image, count = np.cos(x), count + 1
        if abs(image - x) <= 1e-8 * (1 + abs(x)):
            break
        x = image
    found, steps = us.fixed_point(us.cos, 1.0, tol=1e-8, acceleration=None)
    assert (float(found), steps) == (float(image), count)


def test_acceleration_needs_fewer_steps_to_the_same_point_of_a_stiff_map() -> None:
    B, c = stiff_matrix(), np.ones(30)
    exact = np.linalg.solve(np.eye(30) - B, c)
    counts = []
    for options in ({"acceleration": None}, {"history": 5}, {"history": 20}):
        x, steps = us.fixed_point(lambda x: B @ x + c, np.zeros(30), tol=1e-12, max_steps=5000, **options)  # type: ignore[arg-type]
        np.testing.assert_allclose(x.eval(), exact, rtol=1e-8)
        counts.append(steps)
    plain, short, long = counts
    assert plain > 1500
    assert short < plain / 4
    assert long < 60


def test_acceleration_converges_where_plain_steps_do_not() -> None:
    B = np.diag([-3.0, 0.2, 0.7, 1.6])
    c = np.array([1.0, 2.0, 3.0, 4.0])
    x, _ = us.fixed_point(lambda x: B @ x + c, np.zeros(4))
    np.testing.assert_allclose(x.eval(), c / (1.0 - np.diag(B)), rtol=1e-9)
    with pytest.raises(ConvergenceError):
        us.fixed_point(lambda x: B @ x + c, np.zeros(4), acceleration=None)


def test_acceleration_of_a_complex_map() -> None:
    B = stiff_matrix(12, 0.9) * np.exp(0.3j)
    c = np.arange(12) + 1j
    x, steps = us.fixed_point(lambda x: B @ x + c, np.zeros(12, complex))
    np.testing.assert_allclose(x.eval(), np.linalg.solve(np.eye(12) - B, c), rtol=1e-8)
    assert steps < us.fixed_point(lambda x: B @ x + c, np.zeros(12, complex), acceleration=None)[1]


def test_extrapolation_that_leaves_the_domain_is_taken_back() -> None:
    # The logarithm of a negative number is NaN; plain steps stay among positive ones.
    def f(x: Any) -> Any:
        return 1.0 + us.log(x) * np.array([0.9, 0.5, 0.1])

    x, _ = us.fixed_point(f, np.array([1e-3, 40.0, 2.0]) + 1.0)
    np.testing.assert_allclose(x.eval(), np.ones(3), rtol=1e-8)


def test_state_is_nested_and_may_count() -> None:
    def f(state: Any) -> Any:
        return {"x": 0.5 * us.cos(us.real(state["z"])), "z": 0.3j * state["x"] + 0.2, "count": state["count"] + 1}

    state, steps = us.fixed_point(f, {"x": np.zeros(3), "z": np.zeros(3, complex), "count": 0})
    np.testing.assert_allclose(state["x"].eval(), np.full(3, 0.5 * np.cos(0.2)), rtol=1e-12)
    np.testing.assert_allclose(state["z"].eval(), 0.3j * state["x"].eval() + 0.2, rtol=1e-12)
    assert int(state["count"]) == steps


def test_single_precision_converges_as_far_as_it_reaches() -> None:
    x, _ = us.fixed_point(us.cos, np.float32(1.0))
    assert x.dtype == np.float32
    assert float(x) == pytest.approx(0.7390851332, rel=5e-6)


def test_function_is_called_once_however_many_steps_are_taken() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(x)
        return us.cos(x)

    _, steps = us.fixed_point(f, 1.0, acceleration=None)
    assert (len(calls), steps > 10) == (1, True)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceleration", ["anderson", None])
def test_derivatives_to_second_order(acceleration: str | None) -> None:
    def point(B: Any, c: Any) -> Any:
        adjoint = us.Implicit(tol=1e-13)
        start = {"x": np.zeros(3), "z": np.zeros((), complex)}
        f = lambda s: {"x": us.tanh(B @ s["x"] + us.imag(s["z"])) + c, "z": 0.4 * us.conj(s["z"]) + 0.3j * s["x"][0]}  # noqa: E731
        state, _ = us.fixed_point(f, start, tol=1e-14, acceleration=acceleration, adjoint=adjoint)
        return state["x"], state["z"]

    assert us.check_grad(point, 0.2 * stiff_matrix(3), np.array([0.1, -0.2, 0.3])).ok


def test_derivatives_equal_those_through_plain_steps() -> None:
    B, c = 0.5 * stiff_matrix(4), us.tensor(np.linspace(-1.0, 1.0, 4))
    found = []
    for adjoint in (us.Implicit(), us.Unrolled()):
        x, steps = us.fixed_point(lambda x: us.tanh(B @ x + c), np.zeros(4), acceleration=None, adjoint=adjoint)
        found.append((steps, x.eval(), us.sum(x**2).grad(c).eval()))
    (steps, x, gradient), (steps_through, x_through, gradient_through) = found
    assert steps == steps_through
    np.testing.assert_array_equal(x, x_through)
    np.testing.assert_allclose(gradient, gradient_through, atol=1e-8)


def test_derivative_exists_where_plain_steps_diverge() -> None:
    c = us.tensor(1.0)
    x, _ = us.fixed_point(lambda x: c - 3.0 * x, 0.0)
    assert float(x) == pytest.approx(0.25)
    assert float(x.grad(c)) == pytest.approx(0.25)


@pytest.mark.parametrize("acceleration", ["anderson", None])
def test_value_that_was_dropped_is_rebuilt_bit_for_bit(acceleration: str | None) -> None:
    B, c = stiff_matrix(6), us.tensor(np.ones(6))
    x, _ = us.fixed_point(lambda x: B @ us.tanh(x) + c, np.zeros(6), acceleration=acceleration)
    before = x.eval().copy()
    next(node for node in _graph.ancestors([x]) if node.op.name == "fixed_point").value = None
    np.testing.assert_array_equal((1.0 * x).eval(), before)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_too_few_steps_raise_with_residual_steps_and_tolerance() -> None:
    with pytest.raises(ConvergenceError, match="no fixed point after 3 steps; raise max_steps, or tol") as caught:
        us.fixed_point(lambda x: 0.5 * x + 1.0, 0.0, max_steps=3, acceleration=None)
    # The third argument is 1.5, its image 1.75.
    assert caught.value.residual == pytest.approx(0.25 / 2.5)
    assert (caught.value.iterations, caught.value.tolerance) == (3, 1e-10)


def test_search_that_leaves_the_finite_numbers_raises_at_once() -> None:
    with pytest.raises(ConvergenceError, match="left the finite numbers at step 3") as caught:
        us.fixed_point(us.exp, 3.0, max_steps=10**6, acceleration=None)
    assert caught.value.iterations == 3


@pytest.mark.parametrize("acceleration", ["anderson", None])
def test_start_outside_of_the_domain_raises_at_once(acceleration: str | None) -> None:
    with pytest.raises(ConvergenceError, match="left the finite numbers at step 1"):
        us.fixed_point(us.log, -1.0, acceleration=acceleration)


def test_acceleration_is_not_differentiated_through() -> None:
    with pytest.raises(ArgumentError, match="pass acceleration=None"):
        us.fixed_point(us.cos, 1.0, adjoint=us.Unrolled())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": -1.0}, "tol must be a positive number, got -1.0"),
        ({"max_steps": 0}, "max_steps must be a positive integer, got 0"),
        ({"max_steps": 2.5}, "max_steps must be a positive integer, got 2.5"),
        ({"acceleration": "aitken"}, "acceleration must be 'anderson' or None, got 'aitken'"),
        ({"history": 0}, "history must be a positive integer, got 0"),
        ({"adjoint": "implicit"}, "adjoint must be a strategy such as us.Implicit\\(\\), got 'implicit'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        us.fixed_point(us.cos, 1.0, **options)


def test_function_that_changes_the_structure_is_refused() -> None:
    with pytest.raises(StructureError):
        us.fixed_point(lambda x: (x, x), 1.0)


def test_search_on_a_placeholder_is_refused() -> None:
    c = us.placeholder(())
    with pytest.raises(UnboundPlaceholderError):
        us.fixed_point(lambda x: us.cos(c * x), 1.0)
