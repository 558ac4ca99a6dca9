"""Matrix iterations: closed forms, implicit rules as judges of the gradient through all steps, lost rank, bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import unspool as us
from unspool.errors import ArgumentError, BudgetError, ConvergenceError, RankError, ShapeError
from unspool.networks.matrix import newton_schulz_polar, newton_schulz_sign, power_iteration, subspace_iteration


def orthogonal(size: int, seed: int) -> Any:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def with_singular_values(values: Any, seed: int = 0) -> tuple[Any, Any]:
    """A matrix with given singular values, and its polar factor."""
    u, v = orthogonal(len(values), seed), orthogonal(len(values), seed + 1)
    return (u * values) @ v.T, u @ v.T


def with_eigenvalues(values: Any, seed: int = 0) -> tuple[Any, Any]:
    """A symmetric matrix with given eigenvalues, and its eigenvectors."""
    q = orthogonal(len(values), seed)
    return (q * values) @ q.T, q


def normal(*shape: int, seed: int = 7, complex_: bool = False) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex_ else 0.0)


# --- polar factor ----------------------------------------------------------------------------------------------------


def test_the_polar_factor_of_two_by_two_is_the_rotation_of_the_closed_form() -> None:
    a, b, c, d = 1.3, -0.4, 2.2, 0.7
    A = us.tensor([[a, b], [c, d]])
    found = newton_schulz_polar(A)
    angle = np.arctan2(c - b, a + d)
    rotation = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    np.testing.assert_allclose(found.state.eval(), rotation, atol=1e-15)
    # The angle moves by ((a + d) d(c − b) − (c − b) d(a + d)) / r².
    slope = np.array([[b - c, -a - d], [a + d, b - c]]) / ((a + d) ** 2 + (c - b) ** 2)
    gradient = us.atan2(found.state[1, 0], found.state[0, 0]).grad(A).eval()
    np.testing.assert_allclose(gradient, slope, atol=1e-14)


def test_singular_values_from_three_tenths_to_one_take_nine_steps() -> None:
    matrix, expected = with_singular_values(np.linspace(0.3, 1.0, 64))
    found = newton_schulz_polar(matrix, tol=1e-12)
    assert (found.steps, found.converged) == (9, True)
    np.testing.assert_allclose(found.state.eval(), expected, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-200, 1e-6, 1.0, 1e8, 1e200])
def test_the_start_is_scaled_so_that_any_norm_converges(factor: float) -> None:
    matrix, expected = with_singular_values(np.linspace(0.3, 1.0, 20))
    found = newton_schulz_polar(factor * matrix)
    assert found.converged
    np.testing.assert_allclose(found.state.eval(), expected, atol=1e-13)


@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (1, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize("complex_", [False, True])
def test_factors_and_gradient_are_those_of_the_decomposition(shape: tuple[int, int], complex_: bool) -> None:
    """`us.linalg.polar` takes an SVD, and differentiates by a Sylvester equation."""
    a, w, p = normal(*shape, complex_=complex_), normal(*shape, seed=8, complex_=complex_), normal(1)[0]
    A = us.tensor(a)
    found = newton_schulz_polar(A)
    U, P = us.linalg.polar(A, side="right" if shape[0] >= shape[1] else "left")
    np.testing.assert_allclose(found.state.eval(), U.eval(), atol=1e-12)
    np.testing.assert_allclose(found.positive.eval(), P.eval(), atol=1e-11)

    def loss(unitary: us.Tensor, positive: us.Tensor) -> us.Tensor:
        return us.sum(us.real(w * unitary)) + p * us.sum(us.abs(positive) ** 2)

    ours, theirs = loss(found.state, found.positive).grad(A), loss(U, P).grad(A)
    np.testing.assert_allclose(ours.eval(), theirs.eval(), atol=1e-9)


def test_the_polar_gradient_solves_the_sylvester_equation() -> None:
    """P Z + Z P = Uᵀ Ub − Ubᵀ U gives the cotangent U Z, in NumPy and SciPy alone."""
    a, w = normal(6, 6), normal(6, 6, seed=8)
    A = us.tensor(a)
    gradient = us.sum(w * newton_schulz_polar(A).state).grad(A).eval()
    u, p = linalg.polar(a)
    z = linalg.solve_sylvester(p, p, u.T @ w - w.T @ u)
    np.testing.assert_allclose(gradient, u @ z, atol=1e-9)


@pytest.mark.parametrize("loop", [newton_schulz_polar, newton_schulz_sign])
def test_the_gradient_before_convergence_is_that_of_the_whole_loop(loop: Callable[..., Any]) -> None:
    """Finite differences of three steps, in reverse and forward mode, with the start divided by a given number."""
    a, w = normal(4, 4) + 3 * np.eye(4), normal(4, 4, seed=8)
    found = loop(a, scale=6.0, tol=0.0, max_steps=3)
    x = a / 6.0
    for _ in range(3):
        x = 1.5 * x - 0.5 * x @ ((x.T if loop is newton_schulz_polar else x) @ x)
    assert not found.converged
    np.testing.assert_allclose(found.state.eval(), x, rtol=1e-12)
    assert us.check_grad(lambda A: us.sum(w * loop(A, scale=6.0, tol=0.0, max_steps=3).state), a).ok


def test_second_derivatives_are_those_of_the_closed_form() -> None:
    """The angle of the rotation is atan2(c − b, a + d), a harmonic function of these two."""

    def angle(A: us.Tensor) -> us.Tensor:
        U = newton_schulz_polar(A).state
        return us.atan2(U[1, 0], U[0, 0])

    def closed(A: us.Tensor) -> us.Tensor:
        return us.atan2(A[1, 0] - A[0, 1], A[0, 0] + A[1, 1])

    A = us.tensor([[1.3, -0.4], [2.2, 0.7]])
    np.testing.assert_allclose(us.hessian(angle)(A).eval(), us.hessian(closed)(A).eval(), atol=1e-12)


@pytest.mark.parametrize("smallest", [0.0, 1e-17, 1e-15])
def test_a_singular_value_of_zero_is_refused_with_the_rank(smallest: float) -> None:
    matrix, _ = with_singular_values(np.r_[np.linspace(0.4, 1.0, 4), smallest])
    with pytest.raises(RankError, match="only 4 of 5 singular values differ from 0"):
        newton_schulz_polar(matrix)


def test_small_singular_values_are_not_mistaken_for_zero() -> None:
    matrix, expected = with_singular_values(np.r_[np.linspace(0.4, 1.0, 4), 1e-9])
    found = newton_schulz_polar(matrix, tol=1e-2)
    assert found.converged
    np.testing.assert_allclose(found.state.eval(), expected, atol=1.5e-4)  # 3/2 of the square of the last change


def test_a_rank_deficient_product_and_zeros_are_refused() -> None:
    with pytest.raises(RankError, match="only 3 of 6"):
        newton_schulz_polar(normal(6, 3) @ normal(3, 6, seed=8))
    with pytest.raises(RankError, match="is zero"):
        newton_schulz_polar(np.zeros((3, 2)))


def test_single_precision_converges_to_its_rounding() -> None:
    matrix, expected = with_singular_values(np.linspace(0.3, 1.0, 8))
    found = newton_schulz_polar(matrix.astype(np.float32))
    assert found.converged
    assert found.state.dtype == np.float32
    np.testing.assert_allclose(found.state.eval(), expected, atol=1e-6)


# --- sign ------------------------------------------------------------------------------------------------------------


def test_the_sign_of_a_symmetric_matrix_has_the_signs_of_its_eigenvalues() -> None:
    values = np.array([3.0, -2.0, 0.5, -0.1, 1.0])
    matrix, q = with_eigenvalues(values)
    found = newton_schulz_sign(matrix)
    assert found.converged
    np.testing.assert_allclose(found.state.eval(), (q * np.sign(values)) @ q.T, atol=1e-12)


def test_the_sign_gradient_solves_the_sylvester_equation() -> None:
    """N Z + Z N = Sb, with N = (A²)^½, gives the cotangent Z − S Z S: here N and S are not symmetric."""
    basis = np.eye(5) + 0.2 * normal(5, 5)
    a = basis @ np.diag([2.0, -1.5, 1.0, -0.7, 0.4]) @ np.linalg.inv(basis)
    w = normal(5, 5, seed=8)
    A = us.tensor(a)
    found = newton_schulz_sign(A)
    s = linalg.signm(a)
    n = a @ s
    z = linalg.solve_sylvester(n.T, n.T, w)
    np.testing.assert_allclose(found.state.eval(), s, atol=1e-11)
    np.testing.assert_allclose(us.sum(w * found.state).grad(A).eval(), z - s.T @ z @ s.T, atol=1e-9)


def test_an_eigenvalue_of_zero_has_no_sign() -> None:
    matrix, _ = with_eigenvalues(np.array([1.0, -1.0, 0.5, 0.0]))
    with pytest.raises(RankError, match="only 3 of 4 eigenvalues differ from 0"):
        newton_schulz_sign(matrix)


def test_eigenvalues_on_the_imaginary_axis_diverge_with_an_error() -> None:
    with pytest.raises(ConvergenceError, match="diverges") as caught:
        newton_schulz_sign([[0.0, -1.0], [1.0, 0.0]])
    assert caught.value.iterations > 0


# --- power iteration -------------------------------------------------------------------------------------------------


def test_the_gradient_of_power_iteration_is_that_of_the_eigenpair_solve() -> None:
    """(λ − A) y = (1 − v vᵀ) vb with v·y = 0 gives the cotangent y vᵀ of the vector and v vᵀ of the value."""
    values = np.r_[1.0, np.linspace(-0.8, 0.8, 11)]
    a, q = with_eigenvalues(values)
    c = normal(12)
    A = us.tensor(a)
    found = power_iteration(A, np.ones(12), tol=1e-13)
    v = found.state.eval()
    assert found.converged
    np.testing.assert_allclose(abs(v @ q[:, 0]), 1.0, rtol=1e-13)
    np.testing.assert_allclose(float(found.value), 1.0, rtol=1e-13)
    vb = c - v * (v @ c)
    y = np.linalg.lstsq(np.eye(12) - a, vb, rcond=1e-10)[0]
    gradient, of_value = us.eval((found.state @ c).grad(A), found.value.grad(A))
    np.testing.assert_allclose(gradient, np.outer(y - v * (v @ y), v), atol=1e-9)
    np.testing.assert_allclose(of_value, np.outer(v, v), atol=1e-9)


def test_a_matrix_that_is_not_symmetric_has_its_left_and_right_vectors_in_the_gradient() -> None:
    a = np.abs(normal(6, 6)) + 0.1
    A = us.tensor(a)
    found = power_iteration(A, tol=1e-14)
    values, left, right = linalg.eig(a, left=True)
    top = np.argmax(np.abs(values))
    lv, rv = left[:, top].real, right[:, top].real
    np.testing.assert_allclose(float(found.value), values[top].real, rtol=1e-12)
    np.testing.assert_allclose(found.value.grad(A).eval(), np.outer(lv, rv) / (lv @ rv), atol=1e-9)


def test_negative_and_complex_dominant_values_converge_up_to_their_phase() -> None:
    a, q = with_eigenvalues(np.array([-2.0, 1.0, 0.5]))
    found = power_iteration(a)
    assert found.converged
    np.testing.assert_allclose(float(found.value), -2.0, rtol=1e-12)
    turned = power_iteration(1j * a)
    assert turned.converged
    np.testing.assert_allclose(complex(turned.value), -2.0j, rtol=1e-12)
    np.testing.assert_allclose(np.abs(turned.state.eval() @ q[:, 0]), 1.0, rtol=1e-12)


def test_the_gradient_of_power_iteration_before_convergence_is_that_of_the_whole_loop() -> None:
    a, c = normal(5, 5), normal(5, seed=8)

    def loss(A: Any, start: Any) -> us.Tensor:
        return (power_iteration(A, start, tol=0.0, max_steps=4).state @ c) ** 2

    assert us.check_grad(loss, a, np.ones(5)).ok


def test_two_dominant_values_of_equal_modulus_do_not_converge_and_say_so() -> None:
    found = power_iteration(np.diag([1.0, -1.0]), [1.0, 0.5], max_steps=20)
    assert (found.steps, found.converged) == (20, False)


def test_a_single_number_is_its_own_eigenvalue() -> None:
    found = power_iteration([[3]])
    assert (float(found.value), found.converged) == (3.0, True)


def test_a_matrix_that_maps_to_zero_is_refused() -> None:
    with pytest.raises(ArgumentError, match="maps the vector of step 1 to zero"):
        power_iteration(np.zeros((3, 3)))
    with pytest.raises(ArgumentError, match="maps the vector of step 3 to zero"):
        power_iteration(np.diag([1.0, 1.0], 1), [1.0, 1.0, 1.0])


# --- subspace iteration ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("complex_", [False, True])
def test_the_gradient_of_subspace_iteration_is_that_of_the_projector(complex_: bool) -> None:
    """Σ over i kept, j dropped of vⱼ (vⱼᴴ W vᵢ) vᵢᴴ / (λᵢ − λⱼ), and its adjoint; two of the kept values are equal."""
    values = np.r_[2.0, 2.0, -1.9, np.linspace(-1.0, 1.0, 5)]
    q = np.linalg.qr(normal(8, 8, complex_=complex_))[0]
    a = (q * values) @ q.conj().T
    a, w = (a + a.conj().T) / 2, normal(8, 8, seed=8, complex_=complex_)
    A = us.tensor(a)
    found = subspace_iteration(A, 3, tol=1e-13)
    assert found.converged
    np.testing.assert_allclose(found.values.eval(), [-1.9, 2.0, 2.0], rtol=1e-12)
    projector = found.state @ found.state.H
    np.testing.assert_allclose(projector.eval(), q[:, :3] @ q[:, :3].conj().T, atol=1e-11)
    gradient = us.sum(us.real(us.conj(w) * projector)).grad(A).eval()
    hermitian, kept, dropped = (w + w.conj().T) / 2, q[:, :3], q[:, 3:]
    inner = (dropped.conj().T @ hermitian @ kept) / (values[:3] - values[3:, None])
    half = dropped @ inner @ kept.conj().T
    # The loop sees entries of A one by one; its gradient acts alike on Hermitian changes.
    np.testing.assert_allclose((gradient + gradient.conj().T) / 2, half + half.conj().T, atol=1e-9)


def test_the_sum_of_the_largest_values_has_the_projector_as_its_gradient() -> None:
    a, q = with_eigenvalues(np.array([3.0, 2.0, 1.0, 0.5, -0.2]))
    A = us.tensor(a)
    found = subspace_iteration(A, 2, tol=1e-13)
    np.testing.assert_allclose(float(us.sum(found.values)), 5.0, rtol=1e-12)
    np.testing.assert_allclose(us.sum(found.values).grad(A).eval(), q[:, :2] @ q[:, :2].T, atol=1e-9)


def test_the_whole_space_and_a_line_are_subspaces() -> None:
    a, _ = with_eigenvalues(np.array([3.0, 2.0, 1.0]))
    whole = subspace_iteration(a, 3)
    np.testing.assert_allclose(whole.values.eval(), [1.0, 2.0, 3.0], rtol=1e-12)
    assert whole.steps == 1
    np.testing.assert_allclose(subspace_iteration(a, 1).values.eval(), [3.0], rtol=1e-12)


# --- what they share -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", [newton_schulz_polar, newton_schulz_sign, power_iteration])
def test_every_step_is_reported(loop: Callable[..., Any]) -> None:
    a, _ = with_eigenvalues(np.array([3.0, 2.0, 1.0]))
    seen: list[tuple[int, Any, dict[str, float]]] = []
    found = loop(a, on_step=lambda *given: seen.append(given))
    assert [step for step, _, _ in seen] == list(range(1, found.steps + 1))
    assert tuple(values for _, _, values in seen) == found.history
    changes = [values["change"] for values in found.history]
    np.testing.assert_allclose(changes[2], np.linalg.norm(seen[2][1].eval() - seen[1][1].eval()), rtol=1e-10)
    assert seen[-1][1] is found.state


def polar_gradient() -> Any:
    matrix, _ = with_singular_values(np.r_[np.linspace(0.3, 1.0, 39), 1e-6])
    A = us.tensor(matrix)
    return us.sum(newton_schulz_polar(A).state[0]).grad(A).eval()


def power_gradient() -> Any:
    a, _ = with_eigenvalues(np.r_[1.0, np.linspace(-0.97, 0.97, 39)])
    A = us.tensor(a)
    return (power_iteration(A, np.ones(40), tol=1e-12).state[0]).grad(A).eval()


def subspace_gradient() -> Any:
    a, _ = with_eigenvalues(np.r_[1.0, 0.99, 0.98, np.linspace(-0.93, 0.93, 37)])
    A = us.tensor(a)
    return us.sum(subspace_iteration(A, 3, normal(40, 3)).state[0] ** 2).grad(A).eval()


@pytest.mark.parametrize("program", [polar_gradient, power_gradient, subspace_gradient])
def test_a_tenth_of_the_memory_gives_the_same_bits(program: Callable[[], Any]) -> None:
    program()
    with us.memory("4GB") as memory:
        expected = program()
    budget, values = memory.report().peak // 10, None
    while values is None:
        try:
            with us.memory(budget):
                values = program()
        except BudgetError as error:  # a tenth may be less than a product over the steps takes
            budget = error.least
    assert budget < memory.report().peak / 5
    assert np.array_equal(values, expected)


def test_bad_input_is_refused() -> None:
    nan = [[1.0, np.nan], [0.0, 1.0]]
    for loop in (newton_schulz_polar, newton_schulz_sign, power_iteration, lambda a: subspace_iteration(a, 1)):
        with pytest.raises(ArgumentError, match=r"matrix must be finite, .* \[0, 1\]"):
            loop(nan)
        with pytest.raises(ArgumentError, match="matrix must have 2 axes"):
            loop([1.0, 2.0])
        with pytest.raises(ShapeError, match="have entries"):
            loop(np.zeros((0, 0)))
    for loop in (newton_schulz_sign, power_iteration, lambda a: subspace_iteration(a, 1)):
        with pytest.raises(ShapeError, match=r"must be square .* \(2, 3\)"):
            loop(np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="must be Hermitian"):
        subspace_iteration([[1.0, 2.0], [0.0, 1.0]], 1)
    for rank in (0, 3):
        with pytest.raises(ArgumentError, match="rank must be at"):
            subspace_iteration(np.eye(2), rank)
    with pytest.raises(ShapeError, match=r"start must have shape \(2,\)"):
        power_iteration(np.eye(2), np.ones(3))
    with pytest.raises(ArgumentError, match="max_steps must be at least 1"):
        newton_schulz_polar(np.eye(2), max_steps=0)
    with pytest.raises(ArgumentError, match="scale must be finite and more than 1.1547"):
        newton_schulz_polar(2 * np.eye(2), scale=1.0)
