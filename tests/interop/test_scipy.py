"""SciPy with functions and Jacobians of ours, and with tensors as data, also under its array API."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy import integrate, linalg, optimize, signal, sparse, stats

import unspool as us
from unspool.errors import LeftGraphError

START = np.array([1.3, 0.7, 0.8])


def rosenbrock(x: Any) -> Any:
    return us.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@pytest.mark.parametrize("method", ["BFGS", "CG", "L-BFGS-B", "TNC", "SLSQP"])
def test_minimise_with_a_gradient(method: str) -> None:
    found = optimize.minimize(rosenbrock, START, jac=us.grad(rosenbrock), method=method, options={"maxiter": 500})
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-2)


@pytest.mark.parametrize("method", ["Newton-CG", "trust-exact", "trust-ncg", "trust-constr", "trust-krylov"])
def test_minimise_with_a_hessian(method: str) -> None:
    derivatives = {"jac": us.grad(rosenbrock), "hess": us.hessian(rosenbrock)}
    found = optimize.minimize(rosenbrock, START, method=method, **derivatives)
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-4)


def test_minimise_with_products_and_with_value_and_gradient_together() -> None:
    product = lambda x, p: us.hvp(rosenbrock, (x,), (p,))  # noqa: E731
    found = optimize.minimize(rosenbrock, START, jac=us.grad(rosenbrock), hessp=product, method="trust-ncg")
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-4)
    both = optimize.minimize(us.value_and_grad(rosenbrock), START, jac=True, method="L-BFGS-B")
    np.testing.assert_allclose(both.x, 1.0, rtol=1e-3)


def test_minimise_on_a_constraint() -> None:
    square = lambda x: us.sum(x * x)  # noqa: E731
    on_a_sphere = optimize.NonlinearConstraint(square, 1.0, 1.0, jac=us.grad(square))
    found = optimize.minimize(us.sum, START, jac=us.grad(us.sum), constraints=[on_a_sphere], method="trust-constr")
    np.testing.assert_allclose(found.x, -1.0 / np.sqrt(3.0), rtol=1e-4)


def system(x: Any) -> Any:
    return us.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1.0, 0.5 * (x[1] - x[0]) ** 3 + x[1]])


@pytest.mark.parametrize("method", ["hybr", "lm"])
def test_roots_with_a_jacobian(method: str) -> None:
    found = optimize.root(system, np.zeros(2), jac=us.jacobian(system), method=method)
    np.testing.assert_allclose(system(us.tensor(found.x)).eval(), 0.0, atol=1e-9)


@pytest.mark.parametrize("method", ["trf", "dogbox", "lm"])
def test_least_squares_with_a_jacobian(method: str) -> None:
    residuals = lambda x: us.stack([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])  # noqa: E731
    found = optimize.least_squares(residuals, np.array([2.0, 2.0]), jac=us.jacobian(residuals), method=method)
    np.testing.assert_allclose(found.x, 1.0, rtol=1e-7)


@pytest.mark.parametrize("method", ["newton", "halley", "brentq"])
def test_a_scalar_root(method: str) -> None:
    f = lambda x: us.exp(us.asarray(x)) - 2.0  # noqa: E731
    options: dict[str, Any] = {"bracket": (0.0, 1.0)} if method == "brentq" else {"x0": 1.0, "fprime": us.grad(f)}
    if method == "halley":
        options["fprime2"] = us.grad(us.grad(f))
    assert optimize.root_scalar(f, method=method, **options).root == pytest.approx(np.log(2.0), rel=1e-9)


@pytest.mark.parametrize("method", ["RK45", "Radau", "BDF", "LSODA"])
def test_an_ordinary_differential_equation_with_a_jacobian(method: str) -> None:
    decay = np.array([[-1.0, 0.5], [0.0, -50.0]])
    slope = lambda t, y: us.tensor(decay) @ y  # noqa: E731
    options = {} if method == "RK45" else {"jac": lambda t, y: us.jacobian(slope, argnums=1)(t, y)}
    found = integrate.solve_ivp(slope, (0.0, 1.0), [1.0, 1.0], method=method, rtol=1e-8, atol=1e-10, **options)
    np.testing.assert_allclose(found.y[:, -1], linalg.expm(decay) @ [1.0, 1.0], rtol=1e-5, atol=1e-8)


def test_functions_of_scipy_take_values() -> None:
    array = np.array([[2.0, 1.0], [1.0, 3.0]])
    x = us.tensor(array)
    np.testing.assert_allclose(linalg.inv(x), linalg.inv(array))
    np.testing.assert_allclose(stats.norm.pdf(x), stats.norm.pdf(array))
    np.testing.assert_allclose(signal.fftconvolve(x, x), signal.fftconvolve(array, array))
    np.testing.assert_allclose(sparse.eye(2) @ x, array)
    operator = sparse.linalg.LinearOperator((2, 2), matvec=lambda v: x @ v, dtype=float)
    np.testing.assert_allclose(sparse.linalg.cg(operator, us.tensor([1.0, 2.0]))[0], np.linalg.solve(array, [1, 2]))


def test_scipy_does_not_take_values_out_of_a_derivative() -> None:
    with pytest.raises(LeftGraphError, match="test_scipy"):
        us.grad(lambda x: us.sum(us.tensor(linalg.inv(x))))(us.tensor(np.eye(2)))
    with pytest.raises(LeftGraphError):
        us.grad(
            lambda x: optimize.minimize(lambda y: us.sum((y - x) ** 2), np.zeros(2), jac=lambda y: 2 * (y - x)).fun
        )(us.tensor(np.ones(2)))


UNDER_THE_STANDARD = """
import numpy as np, unspool as us
from scipy import cluster, fft, linalg, ndimage, optimize, signal, special, stats
a = np.array([[2.0, 1.0], [1.0, 3.0]])
calls = [
    lambda x: special.logsumexp(x), lambda x: special.gamma(x), lambda x: special.xlogy(x, x),
    lambda x: special.ndtr(x), lambda x: stats.zscore(x), lambda x: stats.skew(x),
    lambda x: stats.pearsonr(x[0], x[1] + x[0] ** 2).statistic,
    lambda x: linalg.expm(x), lambda x: linalg.inv(x), lambda x: linalg.svdvals(x), lambda x: signal.fftconvolve(x, x),
    lambda x: signal.detrend(x), lambda x: fft.fft(x), lambda x: ndimage.gaussian_filter(x, 1.0),
    lambda x: cluster.vq.whiten(x), lambda x: optimize.rosen(x), lambda x: stats.gmean(x), lambda x: stats.entropy(x),
]
for k, f in enumerate(calls):
    try:
        found = f(us.tensor(a))
    except Exception as error:
        print(k, "refused", type(error).__name__)
    else:
        np.testing.assert_allclose(np.asarray(found), f(a), rtol=1e-10)
        print(k, "right")
"""


def test_under_the_array_api_answers_are_right_or_errors() -> None:
    command = [sys.executable, "-W", "ignore", "-c", UNDER_THE_STANDARD]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"SCIPY_ARRAY_API": "1"}
    )
    assert done.returncode == 0, done.stderr
    answers = [line.split()[1] for line in done.stdout.splitlines()]
    assert len(answers) == 18 and set(answers) <= {"right", "refused"} and "right" in answers
