"""Implicit derivatives of fixed points: against closed forms, derivatives through the steps, and differences."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool.errors import ArgumentError, ConvergenceError, UnboundPlaceholderError

# Tighter than the default: differences and the other mode are compared to more digits than the default gives.
EXACT = us.Implicit(tol=1e-13)


def settle(step: Callable[[Any], Any], start: Any, steps: int = 100, adjoint: Any = EXACT) -> Any:
    """Return the state after many steps."""
    return us.iterate(step, start, max_steps=steps, adjoint=adjoint)[0]


def contraction(size: int, seed: int = 0, radius: float = 0.6) -> np.ndarray[Any, Any]:
    """Return a matrix that is not normal, with the given spectral radius."""
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    return radius * matrix / np.abs(np.linalg.eigvals(matrix)).max()


# --- closed forms ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [0.5, 2.0, 9.0])
def test_square_root_by_newton_has_the_derivatives_of_the_square_root(a: float) -> None:
    def root(a: Any) -> Any:
        return settle(lambda x: 0.5 * (x + a / x), us.tensor(1.0), 12)

    first = us.grad(root)
    second = us.grad(first)
    third = us.grad(second)
    assert float(root(a)) == pytest.approx(a**0.5, rel=1e-14)
    assert float(first(a)) == pytest.approx(0.5 * a**-0.5, rel=1e-12)
    assert float(second(a)) == pytest.approx(-0.25 * a**-1.5, rel=1e-12)
    assert float(third(a)) == pytest.approx(0.375 * a**-2.5, rel=1e-12)


def test_eccentric_anomaly_of_kepler_has_the_derivatives_of_the_implicit_equation() -> None:
    mean, eccentricity = us.tensor(1.2), us.tensor(0.3)
    anomaly = settle(lambda x: mean + eccentricity * us.sin(x), us.tensor(1.0), 60)
    x = float(anomaly)
    slope = 1.0 / (1.0 - 0.3 * np.cos(x))
    assert x - 0.3 * np.sin(x) == pytest.approx(1.2, rel=1e-14)
    assert float(anomaly.grad(mean)) == pytest.approx(slope, rel=1e-12)
    assert float(anomaly.grad(eccentricity)) == pytest.approx(np.sin(x) * slope, rel=1e-12)
    assert float(anomaly.grad(mean).grad(mean)) == pytest.approx(-0.3 * np.sin(x) * slope**3, rel=1e-11)


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
def test_jacobian_of_a_linear_fixed_point_is_the_inverse_of_one_minus_the_matrix(solver: str) -> None:
    B, c = contraction(6), np.arange(6.0)
    adjoint = us.Implicit(solver=solver, tol=1e-13)

    def point(c: Any) -> Any:
        return settle(lambda x: B @ x + c, np.zeros(6), adjoint=adjoint)

    inverse = np.linalg.inv(np.eye(6) - B)
    np.testing.assert_allclose(point(c).eval(), inverse @ c, rtol=1e-11)
    np.testing.assert_allclose(us.jacrev(point)(c).eval(), inverse, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(us.jacfwd(point)(c).eval(), inverse, rtol=1e-9, atol=1e-11)


def test_gradient_with_respect_to_the_matrix_of_a_linear_fixed_point() -> None:
    B, c, w = us.tensor(contraction(5)), np.arange(1.0, 6.0), np.linspace(-1.0, 1.0, 5)
    x = settle(lambda x: B @ x + c, np.zeros(5))
    inverse = np.linalg.inv(np.eye(5) - B.eval())
    expected = np.outer(inverse.T @ w, inverse @ c)
    np.testing.assert_allclose((w @ x).grad(B).eval(), expected, rtol=1e-10)


def test_vjp_and_jvp_are_adjoint_to_each_other() -> None:
    B = contraction(4)
    c, t, w = (np.random.default_rng(i).normal(size=4) for i in range(3))

    def point(c: Any) -> Any:
        return settle(lambda x: us.tanh(B @ x) + c, np.zeros(4))

    _, pushed = us.jvp(point, (c,), (t,))
    _, pull = us.vjp(point, c)
    assert w @ pushed.eval() == pytest.approx(pull(w)[0].eval() @ t, rel=1e-12)


# --- against the derivative through the steps, and against differences -----------------------------------------------


def test_derivatives_equal_those_through_the_steps_at_convergence() -> None:
    B, c = us.tensor(contraction(5)), us.tensor(np.linspace(-1.0, 1.0, 5))

    def loss(adjoint: Any) -> Any:
        return us.sum(settle(lambda x: us.tanh(B @ x + c), np.zeros(5), 80, adjoint) ** 2)

    implicit, unrolled = loss(us.Implicit()), loss(us.Unrolled())
    assert float(implicit) == float(unrolled)
    for variable in (B, c):
        expected = unrolled.grad(variable)
        found = implicit.grad(variable)
        np.testing.assert_allclose(found.eval(), expected.eval(), atol=1e-8)
        again = us.sum(expected**2).grad(c).eval()
        np.testing.assert_allclose(us.sum(found**2).grad(c).eval(), again, atol=1e-8)


def test_derivatives_of_a_nonlinear_fixed_point_to_second_order() -> None:
    def point(B: Any, c: Any) -> Any:
        return settle(lambda x: us.tanh(B @ x + c), np.zeros(3))

    assert us.check_grad(point, contraction(3), np.array([0.3, -0.2, 0.5])).ok


def test_derivatives_of_a_complex_fixed_point_that_is_not_holomorphic() -> None:
    def point(B: Any, c: Any) -> Any:
        return settle(lambda z: 0.3 * us.conj(B @ z) + 0.2 * z * us.abs(z[0]) + c, np.zeros(2, complex), 120)

    B = contraction(2) + 0.5j * contraction(2, seed=1)
    assert us.check_grad(point, B, np.array([0.3 + 0.1j, -0.2j])).ok


def test_derivative_of_a_complex_linear_fixed_point_is_the_conjugate_transpose_of_the_inverse() -> None:
    B = contraction(4, radius=0.3) + 0.4j * contraction(4, seed=1)
    c, w = us.tensor(np.array([1.0, 1j, -1.0, 0.5])), np.array([1.0, 2j, 0.5, -1.0])
    x = settle(lambda x: B @ x + c, np.zeros(4, complex), 200)
    loss = us.real(us.vdot(us.constant(w), x))
    np.testing.assert_allclose(loss.grad(c).eval(), np.linalg.inv(np.eye(4) - B).conj().T @ w, rtol=1e-9)


def test_derivatives_of_a_nested_state_of_real_and_complex_leaves() -> None:
    def point(B: Any, c: Any) -> Any:
        def step(state: Any) -> Any:
            x, (z, count) = state["x"], state["rest"]
            return {
                "x": us.tanh(B @ x) * us.real(z) + c,
                "rest": (0.3 * us.exp(1j * us.sum(x)) + 0.2 * z, count + 1),
            }

        state = settle(step, {"x": np.zeros((2, 1)), "rest": (1j, 0)}, 150)
        return state["x"], state["rest"][0]

    assert us.check_grad(point, 0.5 * contraction(2), np.array([[0.3], [-0.4]])).ok


def test_leaves_of_different_precision_keep_their_types() -> None:
    def step(state: Any) -> Any:
        x, y = state
        return us.astype(0.5 * us.tanh(c * y), "float32"), 0.5 * us.astype(x, "float64") + c

    c = us.tensor(np.array([0.3, 0.7]))
    x, y = settle(step, (np.zeros(2, np.float32), np.zeros(2)), 60, us.Implicit())
    assert (x.dtype, y.dtype) == (np.float32, np.float64)
    gradient = us.sum(y).grad(c)
    assert gradient.dtype == np.float64
    unrolled = us.sum(settle(step, (np.zeros(2, np.float32), np.zeros(2)), 60, us.Unrolled())[1])
    np.testing.assert_allclose(gradient.eval(), unrolled.grad(c).eval(), rtol=1e-5)


def test_single_precision_is_fixed_and_solved_as_far_as_it_reaches() -> None:
    a = us.tensor(np.float32(2.0))
    root = settle(lambda x: 0.5 * (x + a / x), us.tensor(np.float32(1.0)), 12, us.Implicit())
    gradient = root.grad(a)
    assert gradient.dtype == np.float32
    assert float(gradient) == pytest.approx(0.5 * 2**-0.5, rel=1e-6)


# --- what has no derivative ------------------------------------------------------------------------------------------


def test_counter_that_changes_every_step_is_carried_and_not_checked() -> None:
    c = us.tensor(0.5)

    def step(state: Any) -> Any:
        x, count = state
        return 0.5 * x + c, count + 1

    x, count = settle(step, (0.0, 0), 60)
    assert int(count) == 60
    assert float(x.grad(c)) == pytest.approx(2.0, rel=1e-12)


def test_step_may_depend_on_a_counter_as_long_as_the_point_is_fixed() -> None:
    c = us.tensor(0.5)

    def damped(state: Any) -> Any:
        x, count = state
        rate = 1.0 / (2.0 + us.astype(count % 3, "float64"))
        return x + rate * (us.cos(c * x) - x), count + 1

    x, _ = settle(damped, (0.0, 0), 200)
    slope = -float(x) * np.sin(0.5 * float(x)) / (1.0 + 0.5 * np.sin(0.5 * float(x)))
    assert float(x.grad(c)) == pytest.approx(slope, rel=1e-12)


def test_nothing_flows_to_the_initial_state() -> None:
    start, c = us.tensor(np.zeros(2)), us.tensor(np.ones(2))
    x = settle(lambda x: 0.5 * x + c, start)
    np.testing.assert_array_equal(us.sum(x).grad(start).eval(), np.zeros(2))
    np.testing.assert_allclose(us.sum(x).grad(c).eval(), [2.0, 2.0], rtol=1e-12)


def test_state_without_numbers_that_move_is_returned_as_it_is() -> None:
    count = settle(lambda n: us.minimum(n + 1, 7), 0, 20)
    assert int(count) == 7


def test_step_that_does_not_look_at_its_state_has_its_own_derivative() -> None:
    c = us.tensor(3.0)
    x = settle(lambda x: c**2, us.tensor(0.0), 3)
    assert float(x.grad(c)) == 6.0


# --- a fixed point that is a line: Sinkhorn's potentials -------------------------------------------------------------

COST = np.random.default_rng(3).uniform(size=(3, 4))
ROWS, COLUMNS = np.array([0.2, 0.3, 0.5]), np.array([0.1, 0.4, 0.3, 0.2])


def potentials(cost: Any, adjoint: Any = EXACT) -> Any:
    """Return the potentials of entropic optimal transport, which are determined up to a shift of one by the other."""

    def step(state: Any) -> Any:
        f, _ = state
        g = np.log(COLUMNS) - us.logsumexp(f[:, None] - cost, axis=0)
        return np.log(ROWS) - us.logsumexp(g[None, :] - cost, axis=1), g

    return settle(step, (np.zeros(3), np.zeros(4)), 200, adjoint)


def transport(cost: Any) -> Any:
    f, g = potentials(cost)
    return us.exp(f[:, None] + g[None, :] - cost)


def test_gauge_freedom_does_no_harm_to_what_does_not_depend_on_the_gauge() -> None:
    plan = transport(COST).eval()
    np.testing.assert_allclose(plan.sum(0), COLUMNS, rtol=1e-12)
    np.testing.assert_allclose(plan.sum(1), ROWS, rtol=1e-12)
    assert us.check_grad(transport, COST).ok


def test_gradient_of_the_regularised_cost_of_transport_is_the_plan() -> None:
    def dual(cost: Any) -> Any:
        f, g = potentials(cost)
        return f @ ROWS + g @ COLUMNS

    np.testing.assert_allclose(us.grad(dual)(COST).eval(), transport(COST).eval(), rtol=1e-9)


@pytest.mark.parametrize(("solver", "inputs"), [("gmres", 30), ("bicgstab", 5)])
def test_loss_that_depends_on_the_gauge_is_refused_however_its_input_is_rounded(solver: str, inputs: int) -> None:
    # The residual of a system without a solution is of order one or zero, as rounding has it: a refusal that rests on
    # the residual alone lets one input in ten pass.
    draw = np.random.default_rng(1).standard_normal
    for _ in range(inputs):
        cost = us.tensor(COST * (1.0 + 1e-15 * draw(COST.shape)))
        f, g = potentials(cost, us.Implicit(tol=1e-13, solver=solver))
        for loss in (f[0], f[0] + 2.0 * g[1], f[0] * f[1]):
            with pytest.raises(ConvergenceError):
                loss.grad(cost).eval()


def power_iteration(a: Any, adjoint: us.Implicit) -> Any:
    """The leading eigenvector of a Hermitian matrix, with the phase that it happens to have: every phase is fixed."""

    def step(x: Any) -> Any:
        moved = (a + us.conj(a.mT)) @ x
        return moved / us.linalg.norm(moved)

    x, _ = us.fixed_point(step, np.exp(1j * np.arange(6)), tol=1e-13, acceleration=None, adjoint=adjoint)
    return x


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
def test_stationary_loss_whose_cotangents_cancel_up_to_rounding_has_its_derivative(solver: str) -> None:
    # I - J is singular, and what is left of the cotangents of a Rayleigh quotient does not respect that.
    draw = np.random.default_rng(0).standard_normal
    frame = np.linalg.qr(draw((6, 6)) + 1j * draw((6, 6)))[0]
    a = us.tensor((frame * np.array([8.0, 3.0, 2.0, 1.0, 0.5, 0.1])) @ frame.conj().T / 2)
    x = power_iteration(a, us.Implicit(solver=solver))
    hermitian = a + us.conj(a.mT)
    quotient = us.real(us.sum(us.conj(x) * (hermitian @ x))) / us.real(us.sum(us.conj(x) * x))
    leading = np.linalg.eigh(hermitian.eval())[1][:, -1]
    assert float(quotient) == pytest.approx(8.0, rel=1e-12)
    np.testing.assert_allclose(quotient.grad(a).eval(), 2.0 * np.outer(leading, leading.conj()), atol=1e-10)


def test_noise_is_no_excuse_for_a_loss_that_depends_on_the_gauge() -> None:
    a = us.tensor(np.diag([4.0, 1.0, 0.5, 0.3, 0.2, 0.1]) + 0j)
    x = power_iteration(a, us.Implicit())
    with pytest.raises(ConvergenceError):
        (us.real(x[0]) + us.imag(x[0])).grad(a).eval()


# --- what cannot be differentiated -----------------------------------------------------------------------------------


def test_state_that_is_not_fixed_is_refused_with_residual_steps_and_tolerance() -> None:
    with pytest.raises(ConvergenceError, match="after 3 steps is no fixed point") as caught:
        us.iterate(lambda x: 0.5 * x + 1.0, us.tensor(0.0), max_steps=3, adjoint=us.Implicit(check=1e-3))
    # The state is 1.75, and the next one 1.875.
    assert caught.value.residual == pytest.approx(0.125 / 2.75)
    assert caught.value.iterations == 3
    assert caught.value.tolerance == 1e-3


def test_condition_may_look_at_tensors_of_its_own() -> None:
    c, tolerance = us.tensor(0.5), us.tensor(1e-12)
    x, steps = us.iterate(
        lambda x: us.cos(c * x),
        us.tensor(1.0),
        until=lambda new, old: us.abs(new - old) < tolerance,
        max_steps=100,
        adjoint=EXACT,
    )
    sine = np.sin(0.5 * float(x))
    assert steps < 100
    assert float(x.grad(c)) == pytest.approx(-float(x) * sine / (1.0 + 0.5 * sine), rel=1e-10)
    assert float(x.grad(tolerance)) == 0.0


def test_outputs_of_single_steps_are_refused() -> None:
    with pytest.raises(ArgumentError, match="outputs of single steps have no implicit derivative"):
        us.iterate(lambda x: (0.5 * x, x), us.tensor(0.0), max_steps=3, adjoint=us.Implicit(), has_outputs=True)


def test_iteration_on_a_placeholder_is_refused() -> None:
    with pytest.raises(UnboundPlaceholderError, match="Implicit runs at once"):
        us.iterate(lambda x: 0.5 * x, us.placeholder(()), max_steps=3, adjoint=us.Implicit())


def test_check_can_be_loosened_or_turned_off() -> None:
    for check in (0.1, None):
        x, _ = us.iterate(lambda x: 0.5 * x + 1.0, us.tensor(0.0), max_steps=3, adjoint=us.Implicit(check=check))
        assert float(x) == 1.75


@pytest.mark.parametrize("start", [2.0, np.inf, np.nan])
def test_divergence_is_refused(start: float) -> None:
    with pytest.raises(ConvergenceError, match="no fixed point"):
        us.iterate(lambda x: x * x, us.tensor(start), max_steps=20, adjoint=us.Implicit())


@pytest.mark.parametrize("solver", ["gmres", "bicgstab"])
def test_singular_derivative_is_refused_when_it_is_evaluated(solver: str) -> None:
    # Every state is fixed at c = 0, and none next to it.
    c = us.tensor(np.zeros(2))
    x = settle(lambda x: x + c, np.ones(2), 5, us.Implicit(solver=solver))
    gradient = (x @ np.array([1.0, 2.0])).grad(c)
    with pytest.raises(ConvergenceError):
        gradient.eval()


def test_too_few_iterations_of_the_solver_are_refused() -> None:
    B, c = contraction(40, radius=0.95), us.tensor(np.ones(40))
    x = settle(lambda x: B @ x + c, np.zeros(40), 800, us.Implicit(maxiter=1, solver="bicgstab"))
    with pytest.raises(ConvergenceError):
        us.sum(x).grad(c).eval()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "newton"}, "solver must be one of 'gmres', 'bicgstab', got 'newton'"),
        ({"tol": 0.0}, "tol must be a positive number, got 0.0"),
        ({"tol": float("nan")}, "tol must be a positive number, got nan"),
        ({"tol": "small"}, "tol must be a positive number, got 'small'"),
        ({"maxiter": 0}, "maxiter must be a positive integer or None, got 0"),
        ({"maxiter": 1.5}, "maxiter must be a positive integer or None, got 1.5"),
        ({"check": -1.0}, "check must be a positive number or None, got -1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        us.Implicit(**settings)


def test_strategies_with_equal_settings_are_equal() -> None:
    assert us.Implicit(tol=1e-9) == us.Implicit(tol=1e-9) != us.Implicit(tol=1e-8)


# --- the node --------------------------------------------------------------------------------------------------------


def fixed_point_node(x: Any) -> Any:
    return next(node for node in _graph.ancestors([x]) if node.op.name == "fixed_point")


def test_value_that_was_dropped_is_rebuilt_bit_for_bit() -> None:
    c = us.tensor(np.array([0.3, 0.4]))
    x = settle(lambda x: us.cos(c * x), np.ones(2), 40)
    before = x.eval().copy()
    fixed_point_node(x).value = None
    np.testing.assert_array_equal((1.0 * x).eval(), before)


def test_same_iteration_from_the_same_tensors_is_the_same_tensor() -> None:
    c, start = us.tensor(0.5), us.tensor(1.0)
    first, second = (settle(lambda x: us.cos(c * x), start, 60) for _ in range(2))
    assert first is second


def test_same_derivative_asked_for_twice_is_the_same_tensor() -> None:
    c = us.tensor(np.array([0.3, 0.4]))
    loss = us.sum(settle(lambda x: us.cos(c * x), np.ones(2), 60) ** 2)
    assert loss.grad(c) is loss.grad(c)


def test_gradient_agrees_with_the_tape() -> None:
    c = us.tensor(np.array([0.3, 0.4]))
    loss = us.sum(settle(lambda x: us.cos(c * x), np.ones(2), 60) ** 2)
    tape = us.Tape([loss])
    cotangent = tape.backward_scalar(tape.id_of(loss))[tape.id_of(c)]
    np.testing.assert_allclose(loss.grad(c).eval(), cotangent, rtol=1e-12)


def test_fixed_point_inside_a_loop_is_differentiated_with_it() -> None:
    def outer(a: Any) -> Any:
        y = a
        for _ in range(4):
            b = us.sin(y)
            y = settle(lambda x, b=b: 0.5 * us.cos(x) + b, us.tensor(0.0), 60)
        return y

    assert us.check_grad(outer, 0.4).ok


def test_memory_of_value_and_gradient_does_not_grow_with_the_number_of_steps() -> None:
    c = us.tensor(np.linspace(0.1, 0.9, 1000))

    def peak(steps: int) -> int:
        tracemalloc.start()
        try:
            x = settle(lambda x: us.cos(c * x), np.ones(1000), steps, us.Implicit())
            us.sum(x).grad(c).eval()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)
    # A state takes 8 kB: keeping those of 1,900 more steps would take 15 MB. Tables that all tests share, such as that
    # of fragments, double their room now and then, in any one run.
    assert min(peak(2000) for _ in range(2)) < peak(100) + 100_000


def test_graph_of_the_gradient_does_not_grow_with_the_number_of_steps() -> None:
    def nodes(steps: int) -> int:
        c = us.tensor(0.5)
        return us.graph_size(settle(lambda x: us.cos(c * x), us.tensor(1.0), steps).grad(c))

    assert nodes(1000) == nodes(50)
