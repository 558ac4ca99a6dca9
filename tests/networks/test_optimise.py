"""Minimising losses over nested states with SciPy, against closed forms and SciPy's own functions."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import optimize

import unspool as us
from unspool.errors import ArgumentError, ComplexLossError, DTypeError, NaNError, NonScalarLossError
from unspool.networks.optimise import minimise, progress_line

FIRST_ORDER = ("L-BFGS-B", "BFGS", "CG")
SECOND_ORDER = ("Newton-CG", "trust-ncg", "trust-krylov")


class Pair(NamedTuple):
    real: Any
    complex: Any


def rosenbrock(state: Any) -> us.Tensor:
    x = state["x"]
    return us.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def quadratic(size: int) -> tuple[Any, Any, Any]:
    """A positive matrix, a vector, and the minimum of x A x / 2 - b x."""
    rng = np.random.default_rng(3)
    m = rng.standard_normal((size, size))
    a, b = m @ m.T + size * np.eye(size), rng.standard_normal(size)
    return a, b, np.linalg.solve(a, b)


# --- minima that are known -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FIRST_ORDER + SECOND_ORDER)
def test_rosenbrock_is_minimised_at_ones(method: str) -> None:
    found = minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, method=method)
    assert found.converged
    np.testing.assert_allclose(found.state["x"].eval(), [1.0, 1.0], atol=2e-6)


@pytest.mark.parametrize("method", FIRST_ORDER + SECOND_ORDER)
def test_a_quadratic_form_is_minimised_where_the_linear_system_is_solved(method: str) -> None:
    a, b, solution = quadratic(8)
    found = minimise(lambda x: x @ a @ x / 2 - b @ x, np.zeros(8), method=method, tol=1e-8)
    np.testing.assert_allclose(found.state.eval(), solution, atol=1e-8)
    np.testing.assert_allclose(float(found.loss), -b @ solution / 2, rtol=1e-12)


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-krylov", "trust-ncg"])
def test_complex_leaves_are_varied_in_both_their_parts(method: str) -> None:
    """The least Rayleigh quotient of a Hermitian matrix is its least eigenvalue."""
    rng = np.random.default_rng(5)
    m = rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4))
    hermitian = m + m.conj().T

    def loss(state: Pair) -> us.Tensor:
        z = state.complex
        quotient = us.real(us.vdot(z, hermitian @ z)) / us.real(us.vdot(z, z))
        return quotient + (us.real(us.vdot(z, z)) - 1.0) ** 2 + us.sum((state.real - 2.0) ** 2)

    start = Pair(us.zeros((2, 3)), rng.standard_normal(4) + 1j * rng.standard_normal(4))
    found = minimise(loss, start, method=method, tol=1e-7)
    assert found.converged
    assert isinstance(found.state, Pair)
    assert found.state.complex.dtype == np.complex128
    np.testing.assert_allclose(float(found.loss), np.linalg.eigvalsh(hermitian)[0], rtol=1e-12)
    np.testing.assert_allclose(found.state.real.eval(), np.full((2, 3), 2.0), atol=1e-7)


def test_a_loss_that_loops_and_reads_values_is_minimised() -> None:
    """Newton's method for a square root runs inside the loss; the root is to be 3."""

    def loss(a: us.Tensor) -> us.Tensor:
        r = us.asarray(1.0)
        while abs(float(r * r - a)) > 1e-13:
            r = (r + a / r) / 2
        return (r - 3.0) ** 2

    found = minimise(loss, 4.0, method="trust-krylov", tol=1e-9)
    np.testing.assert_allclose(float(found.state), 9.0, atol=1e-7)


# --- it is SciPy's run -----------------------------------------------------------------------------------------------


def test_steps_are_those_of_scipy_with_a_hand_written_gradient() -> None:
    start = np.array([-1.2, 1.0, 0.5])
    ours = minimise(rosenbrock, {"x": start}, tol=1e-5, options={"ftol": 0.0})
    theirs = optimize.minimize(
        optimize.rosen, start, jac=optimize.rosen_der, method="L-BFGS-B", options={"gtol": 1e-5, "ftol": 0.0}
    )
    assert (ours.steps, ours.evaluations) == (theirs.nit, theirs.nfev)
    np.testing.assert_allclose(ours.state["x"].eval(), theirs.x, rtol=1e-9)


def test_products_with_the_hessian_are_those_of_scipys_hand_written_ones() -> None:
    start = np.array([-1.2, 1.0, 0.5])
    options = {"gtol": 1e-5}
    ours = minimise(rosenbrock, {"x": start}, method="trust-ncg", tol=1e-5)
    theirs = optimize.minimize(
        optimize.rosen,
        start,
        jac=optimize.rosen_der,
        hessp=optimize.rosen_hess_prod,
        method="trust-ncg",
        options=options,
    )
    assert ours.steps == theirs.nit
    np.testing.assert_allclose(ours.state["x"].eval(), theirs.x, rtol=1e-9)


def test_the_loss_of_the_result_can_be_differentiated() -> None:
    found = minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, max_steps=4)
    np.testing.assert_allclose(
        found.loss.grad(found.state)["x"].eval(), optimize.rosen_der(found.state["x"].eval()), rtol=1e-10
    )


def test_single_precision_stays_single() -> None:
    found = minimise(lambda x: us.sum((x - 2.0) ** 2), us.zeros(3, dtype=np.float32))
    assert found.state.dtype == np.float32
    np.testing.assert_allclose(found.state.eval(), 2.0, rtol=1e-6)


def test_arguments_are_passed_on_and_not_varied() -> None:
    found = minimise(lambda x, a, b: (x - a * b) ** 2, 0.0, args=(us.tensor(2.0), 3.0))
    np.testing.assert_allclose(float(found.state), 6.0, rtol=1e-6)


# --- what is seen on the way -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-krylov"])
def test_every_step_is_reported_with_numbers_that_are_true(method: str) -> None:
    seen: list[tuple[int, Any, dict[str, float]]] = []
    start = np.array([-1.2, 1.0])
    found = minimise(rosenbrock, {"x": start}, method=method, on_step=lambda *given: seen.append(given))
    assert [step for step, _, _ in seen] == list(range(1, len(seen) + 1))
    assert tuple(values for _, _, values in seen) == found.history
    assert found.steps == len(seen)
    last = float(optimize.rosen(start))
    for _, state, values in seen:
        x = state["x"].eval()
        np.testing.assert_allclose(values["loss"], optimize.rosen(x), rtol=1e-12, atol=1e-25)
        np.testing.assert_allclose(values["gradient"], np.max(np.abs(optimize.rosen_der(x))), rtol=1e-9, atol=1e-12)
        assert values["change"] == values["loss"] - last
        last = values["loss"]


def test_too_few_steps_are_no_error_but_visible() -> None:
    found = minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, max_steps=3)
    assert not found.converged
    assert found.steps == 3
    assert "LIMIT" in found.message


def test_a_start_at_the_minimum_takes_no_step() -> None:
    found = minimise(lambda x: us.sum(x * x), np.zeros(3))
    assert found.converged
    assert (found.steps, found.history) == (0, ())


def test_stop_iteration_ends_the_search_and_other_exceptions_pass_through() -> None:
    def stop(step: int, state: Any, values: dict[str, float]) -> None:
        if step == 2:
            raise StopIteration

    def fail(step: int, state: Any, values: dict[str, float]) -> None:
        raise ZeroDivisionError

    found = minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, on_step=stop)
    assert not found.converged
    assert len(found.history) == 2
    with pytest.raises(ZeroDivisionError):
        minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, on_step=fail)


def test_the_progress_line_is_plain_text_where_there_is_no_terminal_and_one_line_where_there_is() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    plain, terminal = io.StringIO(), Terminal()
    minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, max_steps=3, on_step=progress_line(plain))
    minimise(rosenbrock, {"x": np.array([-1.2, 1.0])}, max_steps=3, on_step=progress_line(terminal))
    assert [line.split()[:3] for line in plain.getvalue().splitlines()] == [["step", str(k), "loss"] for k in (1, 2, 3)]
    assert terminal.getvalue().count("\r") == 3
    assert "\n" not in terminal.getvalue()


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_loss_that_is_nan_is_an_error_that_says_when() -> None:
    with pytest.raises(NaNError, match="the loss is nan at evaluation 1"):
        minimise(lambda x: us.log(x), -1.0)


def test_a_gradient_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(NaNError, match="the gradient has 1 of 2 entries"):
        minimise(lambda x: us.sum(us.sqrt(x)), np.array([0.0, 1.0]))


def test_a_loss_that_is_no_real_scalar_is_an_error() -> None:
    with pytest.raises(NonScalarLossError):
        minimise(lambda x: x * x, np.ones(2))
    with pytest.raises(ComplexLossError):
        minimise(lambda x: x * 1j, 1.0)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match="method must be one of L-BFGS-B, .* but is 'Powell'"):
        minimise(rosenbrock, {"x": np.zeros(2)}, method="Powell")
    with pytest.raises(DTypeError, match=r"start\['n'\] .* int64"):
        minimise(rosenbrock, {"x": np.zeros(2), "n": 3})
    with pytest.raises(ArgumentError, match=r"start\['x'\] must be finite"):
        minimise(rosenbrock, {"x": np.array([np.nan, 0.0])})
    with pytest.raises(ArgumentError, match="at least one tensor"):
        minimise(rosenbrock, {})
    with pytest.raises(ArgumentError, match="max_steps must be at least 1"):
        minimise(rosenbrock, {"x": np.zeros(2)}, max_steps=0)
    with pytest.raises(ArgumentError, match="tol must be finite and not negative"):
        minimise(rosenbrock, {"x": np.zeros(2)}, tol=-1.0)
