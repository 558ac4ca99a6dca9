"""`cg` and `gmres`: solutions, derivatives of every order held against dense ones, and refusals.

References are `numpy.linalg.solve` for values, and for derivatives finite differences and `us.linalg.solve`, which has
rules of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.autodiff.counting import Counted
from unspool._autodiff.solvers.linear_solve import solve_operator
from unspool.errors import ArgumentError, ConvergenceError, DTypeError, ShapeError, StructureError

SOLVERS = {"cg": us.linalg.cg, "gmres": us.linalg.gmres}
FIELDS = ["real", "complex"]


def random(*shape: int, field: str = "real", seed: int = 0) -> Any:
    draw = np.random.default_rng(seed).standard_normal
    return draw(shape) + 1j * draw(shape) if field == "complex" else draw(shape)


def definite(n: int, field: str = "real", seed: int = 0) -> Any:
    a = random(n, n, field=field, seed=seed)
    return a @ a.conj().T / n + np.eye(n)


def matrix_for(method: str, n: int, field: str) -> Any:
    return definite(n, field) if method == "cg" else random(n, n, field=field) + 4 * np.eye(n)


def size(x: Any) -> Any:
    return us.sum(us.real(x * us.conj(x)) ** 2)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("n", [1, 2, 7, 80])
def test_solutions_are_those_of_numpy(n: int, method: str, field: str) -> None:
    a, b = matrix_for(method, n, field), random(n, field=field, seed=1)
    if method == "gmres":
        a = a + n**0.5 * np.eye(n)
    x = SOLVERS[method](us.tensor(a), us.tensor(b))
    assert (x.shape, x.dtype) == (b.shape, b.dtype)
    np.testing.assert_allclose(x.eval(), np.linalg.solve(a, b), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("method", SOLVERS)
def test_single_precision_is_kept(method: str, dtype: str) -> None:
    field = "complex" if dtype == "complex64" else "real"
    a, b = matrix_for(method, 9, field).astype(dtype), random(9, field=field, seed=1).astype(dtype)
    A = us.tensor(a)
    x = SOLVERS[method](A, b)
    assert x.dtype == dtype
    np.testing.assert_allclose(x.eval(), np.linalg.solve(a, b), rtol=1e-3, atol=1e-4)
    gradient = size(x).grad(A)
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient.eval(), size(us.linalg.solve(A, b)).grad(A).eval(), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("method", SOLVERS)
def test_the_operator_may_be_real_and_the_right_hand_side_complex_and_the_other_way_round(method: str) -> None:
    a, b = matrix_for(method, 5, "real"), random(5, field="complex", seed=1)
    np.testing.assert_allclose(SOLVERS[method](a, b).eval(), np.linalg.solve(a, b), atol=1e-9)
    a, b = matrix_for(method, 5, "complex"), random(5, seed=1)
    x = SOLVERS[method](a, b)
    assert x.dtype == "complex128"
    np.testing.assert_allclose(x.eval(), np.linalg.solve(a, b), atol=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e200, 0.0])
@pytest.mark.parametrize("method", SOLVERS)
def test_the_scale_of_the_right_hand_side_does_not_matter(method: str, scale: float) -> None:
    a, b = matrix_for(method, 6, "real"), random(6, seed=1)
    found = SOLVERS[method](a, scale * b).eval()
    np.testing.assert_allclose(found, scale * np.linalg.solve(a, b), rtol=1e-8)


@pytest.mark.parametrize("method", SOLVERS)
def test_vectors_may_have_any_shape(method: str) -> None:
    left, right = matrix_for(method, 3, "real"), matrix_for(method, 4, "real")
    b = random(3, 4, seed=1)
    x = SOLVERS[method](lambda v: us.einsum("ab,cd,bd->ac", left, right, v), b)
    np.testing.assert_allclose(x.eval(), np.linalg.solve(left, b) @ np.linalg.inv(right).T, atol=1e-8)
    np.testing.assert_allclose(SOLVERS[method](np.kron(left, right), b).eval(), x.eval(), atol=1e-8)


def test_vectors_may_be_nested_structures() -> None:
    a, b = us.tensor(definite(5)), random(5, seed=1)

    def operator(v: Any) -> Any:
        whole = a @ us.concat([us.reshape(v["matrix"], (4,)), us.reshape(v["number"], (1,))])
        return {"matrix": us.reshape(whole[:4], (2, 2)), "number": whole[4]}

    given = {"matrix": us.tensor(b[:4].reshape(2, 2)), "number": us.tensor(b[4])}
    x = us.linalg.cg(operator, given, x0=given)
    assert x["matrix"].shape == (2, 2) and x["number"].shape == ()
    expected = us.linalg.solve(a, b)
    np.testing.assert_allclose(x["matrix"].eval().ravel(), expected.eval()[:4], atol=1e-9)
    ours, dense = (us.sum(y**3).grad(a).eval() for y in (x["matrix"], expected[:4]))
    np.testing.assert_allclose(ours, dense, atol=1e-8)


def test_a_guess_and_a_preconditioner_change_the_effort_and_not_the_solution() -> None:
    n = 200
    d = np.linspace(1.0, 1e4, n)
    counted = Counted(np.diag(d), "krylov_effort")
    b = us.tensor(random(n, seed=1))

    def effort(**options: Any) -> int:
        before = counted.count
        x = us.linalg.cg(lambda v: counted.apply(1.0, v), b, **options)
        np.testing.assert_allclose(x.eval(), b.eval() / d, rtol=1e-6, atol=1e-9)
        return counted.count - before

    plain = effort()
    # The fewest: two applications look for symmetry, one computes the true residual, one what rounding makes of it.
    assert effort(x0=b.eval() / d) < 8
    assert effort(preconditioner=lambda v: v / d) < 8
    assert effort(preconditioner=np.diag(1 / d)) < 8
    assert plain > 100


def test_a_preconditioned_solution_has_the_same_derivatives() -> None:
    a, b = us.tensor(matrix_for("gmres", 6, "complex")), random(6, field="complex", seed=1)
    near = np.linalg.inv(matrix_for("gmres", 6, "complex") + 0.3 * random(6, 6, seed=4))
    x = us.linalg.gmres(a, b, preconditioner=near)
    np.testing.assert_allclose(size(x).grad(a).eval(), size(us.linalg.solve(a, b)).grad(a).eval(), atol=1e-10)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("method", SOLVERS)
def test_derivatives_agree_with_differences_to_second_order(method: str, field: str) -> None:
    def solution(a: Any, b: Any) -> Any:
        square = us.conj(a.mT) @ a + np.eye(3) if method == "cg" else a
        return SOLVERS[method](lambda v: square @ v, b, tol=1e-13)

    a, b = matrix_for(method, 3, field), random(3, field=field, seed=1)
    us.check_grad(solution, a, b, order=2)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("method", SOLVERS)
def test_first_and_second_derivatives_are_those_of_the_dense_solution(method: str, field: str) -> None:
    a, b = us.tensor(matrix_for(method, 30, field)), us.tensor(random(30, field=field, seed=1))
    if method == "gmres":
        a = us.tensor(a.eval() + 6 * np.eye(30))
    direction = random(30, 30, field=field, seed=2)
    found = []
    for x in (SOLVERS[method](lambda v: a @ v, b), us.linalg.solve(a, b)):
        gradient = size(x).grad(a)
        curvature = us.real(us.sum(us.conj(gradient) * direction)).grad(a)
        found.append([gradient.eval(), curvature.eval(), size(x).grad(b).eval()])
    for ours, dense in zip(*found, strict=True):
        np.testing.assert_allclose(ours, dense, atol=1e-8 * np.abs(dense).max())


def test_a_tighter_tolerance_gives_tighter_derivatives() -> None:
    a, b = us.tensor(definite(60)), random(60, seed=1)
    dense = size(us.linalg.solve(a, b)).grad(a).eval()
    errors = [np.abs(size(us.linalg.cg(a, b, tol=tol)).grad(a).eval() - dense).max() for tol in (1e-3, 1e-6, 1e-12)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
    assert errors[2] < 1e-10


def test_parameters_come_by_closure_by_args_or_through_a_parameter_that_another_one_is_made_from() -> None:
    a = us.tensor(random(4, 4))
    square = a @ a.mT + np.eye(4)
    b = random(4, seed=1)
    expected = size(us.linalg.solve(a + square, b)).grad(a).eval()
    closed = us.linalg.gmres(lambda v: a @ v + square @ v, b)
    given = us.linalg.gmres(lambda v, p: p["a"] @ v + p["s"] @ v, b, args=({"a": a, "s": square},))
    for x in (closed, given):
        np.testing.assert_allclose(size(x).grad(a).eval(), expected, rtol=1e-8)


def test_the_matrix_may_be_made_from_what_the_right_hand_side_is_made_from() -> None:
    p = us.tensor(random(4, seed=3))
    x = us.linalg.cg(lambda v: (1.0 + p * p) * v, us.exp(p))
    expected = us.exp(p) / (1.0 + p * p)
    np.testing.assert_allclose(size(x).grad(p).eval(), size(expected).grad(p).eval(), rtol=1e-9)


def test_forward_mode_agrees_with_the_dense_solution() -> None:
    a, b, t = definite(5), random(5, seed=1), random(5, 5, seed=2)
    ours = us.jvp(lambda m: us.linalg.cg(m, b), (a,), (t,))[1].eval()
    np.testing.assert_allclose(ours, -np.linalg.solve(a, t @ np.linalg.solve(a, b)), atol=1e-9)


def test_sizes_may_be_unknown_until_evaluation() -> None:
    n: Any = us.dims("n")
    A, b = us.placeholder((n, n)), us.placeholder((n,))
    square = A @ A.mT + us.eye(n)
    loss = size(us.linalg.cg(lambda v: square @ v, b))
    gradient = loss.grad(A)
    curvature = us.sum(gradient * gradient).grad(A)
    for number in (2, 5):
        a, right = us.tensor(random(number, number)), random(number, seed=1)
        dense = size(us.linalg.solve(a @ a.mT + np.eye(number), right)).grad(a)
        bound = {A: a.eval(), b: right}
        np.testing.assert_allclose(gradient.eval(bound), dense.eval(), rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(curvature.eval(bound), us.sum(dense * dense).grad(a).eval(), rtol=1e-6, atol=1e-8)


def test_a_gradient_costs_one_more_solve_and_none_of_the_iterations() -> None:
    matrix = definite(50)
    counted = Counted(matrix, "krylov_count")
    p, b = us.tensor(1.5), us.tensor(random(50, seed=1))
    x = us.linalg.cg(lambda v: counted.apply(p, v), b)
    np.testing.assert_allclose(x.eval(), np.linalg.solve(1.5 * matrix, b.eval()), atol=1e-9)
    forward, counted.count = counted.count, 0
    np.testing.assert_allclose(us.sum(x).grad(p).eval(), -np.sum(x.eval()) / 1.5, rtol=1e-8)
    assert counted.count <= forward + 5


def test_a_gradient_asked_for_twice_is_one_node() -> None:
    a, b = us.tensor(definite(4)), random(4, seed=1)
    x = us.linalg.cg(a, b)
    assert us.linalg.cg(a, b) is x
    assert size(x).grad(a) is size(x).grad(a)


# --- in loops --------------------------------------------------------------------------------------------------------


def test_a_loop_of_solves_is_differentiated_like_a_loop_of_dense_solves() -> None:
    a = us.tensor(definite(5))

    def run(solve: Any) -> Any:
        x = us.tensor(np.ones(5))
        for _ in range(25):
            x = solve(x)
            x = x / us.linalg.norm(x)
            float(x[0])
        return us.sum(x**3).grad(a).eval()

    ours = run(lambda x: us.linalg.cg(lambda v: a @ v, x, x0=x, tol=1e-12))
    np.testing.assert_allclose(ours, run(lambda x: us.linalg.solve(a, x)), atol=1e-8)


def test_operators_and_solves_may_be_fragments_for_all_sizes() -> None:
    @us.fragment
    def apply(v: Any, a: Any) -> Any:
        return a @ (a.mT @ v) + v

    @us.fragment
    def step(a: Any, b: Any) -> Any:
        square = a @ a.mT
        return us.linalg.cg(lambda v: square @ v + v, b, tol=1e-12), us.linalg.gmres(apply, b, args=(a,), tol=1e-12)

    for n in (3, 6):
        a, b = us.tensor(random(n, n)), us.tensor(random(n, seed=1))
        expected = us.linalg.solve(a @ a.mT + np.eye(n), b)
        dense = size(expected).grad(a)
        for x in step(a, b):
            np.testing.assert_allclose(x.eval(), expected.eval(), atol=1e-9)
            gradient = size(x).grad(a)
            np.testing.assert_allclose(gradient.eval(), dense.eval(), atol=1e-8)
            ours, theirs = (us.sum(g * g).grad(a).eval() for g in (gradient, dense))
            np.testing.assert_allclose(ours, theirs, atol=1e-7)


@pytest.mark.parametrize("method", SOLVERS)
def test_sizes_may_be_products_of_unknown_ones(method: str) -> None:
    @us.fragment
    def solved(a: Any, block: Any) -> Any:
        bond, physical, rest = block.shape
        b = block.reshape(bond * physical, rest)
        return size(SOLVERS[method](lambda v: (a @ v).reshape(b.shape[0], rest), b))

    for shape in ((2, 3, 2), (2, 5, 3)):
        n = shape[0] * shape[1]
        a, block = us.tensor(matrix_for(method, n, "real")), us.tensor(random(*shape))
        dense = size(us.linalg.solve(a, block.reshape(n, -1)))
        total = solved(a, block)
        np.testing.assert_allclose(total.eval(), dense.eval(), rtol=1e-8)
        for ours, other in zip(total.grad([a, block]), dense.grad([a, block]), strict=True):
            np.testing.assert_allclose(ours.eval(), other.eval(), atol=1e-7)


def test_what_does_not_depend_on_the_vector_is_computed_once() -> None:
    counted = Counted(np.eye(40), "krylov_once")
    a, b = us.tensor(random(40, 40)), us.tensor(random(40, seed=1))
    x = us.linalg.cg(lambda v: counted.apply(1.0, a) @ (a.mT @ v) + v, b)
    np.testing.assert_allclose(x.eval(), np.linalg.solve(a.eval() @ a.eval().T + np.eye(40), b.eval()), atol=1e-8)
    assert counted.count == 1


# --- solve_operator --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["gmres", "bicgstab", "cg"])
def test_the_function_that_other_modules_use_takes_every_method(method: str) -> None:
    a, b = us.tensor(definite(12)), us.tensor(random(12, seed=1))
    x = solve_operator(lambda v: a @ v, b, method=method, x0=b)
    np.testing.assert_allclose(x.eval(), np.linalg.solve(a.eval(), b.eval()), atol=1e-8)
    np.testing.assert_allclose(size(x).grad(a).eval(), size(us.linalg.solve(a, b)).grad(a).eval(), atol=1e-8)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", SOLVERS)
def test_a_singular_operator_raises_with_residual_iterations_and_tolerance(method: str) -> None:
    d = np.array([0.0, 1.0, 2.0])
    x = SOLVERS[method](lambda v: d * v, us.tensor([1.0, 1.0, 1.0]))
    with pytest.raises(ConvergenceError, match=r"residual is .* tolerance is 1.00e-10.*test_krylov.py") as caught:
        x.eval()
    assert not caught.value.residual < 0.1
    assert caught.value.iterations > 0
    assert caught.value.tolerance == 1e-10


def test_no_rounding_of_a_singular_operator_makes_an_equation_without_a_solution_pass() -> None:
    frame = np.linalg.qr(random(6, 6))[0]
    for seed in range(40):
        operator = (frame * np.arange(6.0)) @ random(6, 6, seed=seed + 1)  # its range is orthogonal to the first column
        b = frame[:, 0] + frame[:, 1 + seed % 5]
        with pytest.raises(ConvergenceError):
            us.linalg.gmres(operator, b).eval()


@pytest.mark.parametrize("method", SOLVERS)
def test_a_singular_operator_has_a_solution_where_the_right_hand_side_is_in_its_range(method: str) -> None:
    frame = np.linalg.qr(random(6, 6))[0]
    a = (frame * np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])) @ frame.T
    b = frame @ np.array([0.0, 1.0, 1.0, -1.0, 2.0, 1.0])
    np.testing.assert_allclose(a @ SOLVERS[method](a, b).eval(), b, atol=1e-9)


@pytest.mark.parametrize("method", SOLVERS)
def test_a_large_condition_alone_is_not_refused(method: str) -> None:
    d = np.geomspace(1e-6, 1.0, 7)
    x = SOLVERS[method](np.diag(d), np.ones(7), tol=1e-8)
    np.testing.assert_allclose(x.eval(), 1.0 / d, rtol=1e-6)


def test_gmres_gives_up_when_a_restart_gets_it_no_further() -> None:
    frame = np.linalg.qr(random(400, 400))[0]
    values = np.linspace(1.0, 2.0, 400)
    values[0] = 0.0
    x = us.linalg.gmres((frame * values) @ frame.T, np.ones(400))
    with pytest.raises(ConvergenceError) as caught:
        x.eval()
    # It might make 4000. What it cannot get rid of is the part of the right-hand side along the null vector.
    assert caught.value.iterations < 400
    assert caught.value.residual >= 0.999 * abs(frame[:, 0].sum()) / 20.0


def test_gmres_goes_on_for_as_long_as_it_gets_nearer() -> None:
    a = np.diag(np.linspace(1.0, 60.0, 60))
    x = us.linalg.gmres(a, np.ones(60), restart=2)
    np.testing.assert_allclose(x.eval(), 1.0 / np.diag(a), rtol=1e-7)


def test_a_right_hand_side_is_solved_to_within_its_noise_if_more_is_out_of_reach() -> None:
    values = np.array([2.0, 1.0, 0.5, 0.0])

    def solve(noise: float) -> Any:
        right = us.tensor([2.0, 1.0, 1.0, 1e-7])
        return solve_operator(lambda v: us.multiply(values, v), right, noise=us.tensor(noise)).eval()

    np.testing.assert_allclose(solve(1e-6)[:3], [1.0, 1.0, 2.0], atol=1e-5)
    np.testing.assert_array_equal(solve(10.0), 0.0)
    with pytest.raises(ConvergenceError):
        solve(1e-8)


def test_noise_does_not_matter_to_what_can_be_solved() -> None:
    a, b = us.tensor(definite(9)), us.tensor(random(9))
    x, y = (solve_operator(lambda v: a @ v, b, noise=noise) for noise in (None, us.tensor(0.1)))
    np.testing.assert_array_equal(x.eval(), y.eval())
    for ours, other in zip(size(x).grad([a, b]), size(y).grad([a, b]), strict=True):
        np.testing.assert_array_equal(ours.eval(), other.eval())


def test_too_few_iterations_raise() -> None:
    a, b = definite(50), random(50, seed=1)
    with pytest.raises(ConvergenceError, match="maxiter too small") as caught:
        us.linalg.cg(a, b, maxiter=3).eval()
    assert 1e-10 < caught.value.residual < 1.0


def test_values_that_are_not_finite_raise() -> None:
    with pytest.raises(ConvergenceError, match="right-hand side is not finite"):
        us.linalg.gmres(np.eye(2), [1.0, np.nan]).eval()
    with pytest.raises(ConvergenceError):
        us.linalg.cg(np.diag([1.0, np.inf]), [1.0, 1.0]).eval()


@pytest.mark.parametrize("n", [2, 40])
def test_cg_refuses_an_operator_that_is_not_hermitian(n: int) -> None:
    with pytest.raises(ArgumentError, match="not Hermitian.*test_krylov.py"):
        us.linalg.cg(definite(n) + np.triu(np.ones((n, n)), 1), np.ones(n)).eval()
    with pytest.raises(ArgumentError, match="not Hermitian"):
        us.linalg.cg(1j * definite(n), np.ones(n)).eval()


def test_an_operator_that_is_not_linear_is_refused() -> None:
    b = us.tensor([1.0, 2.0])
    with pytest.raises(ArgumentError, match="not linear.*test_krylov.py"):
        us.sum(us.linalg.gmres(lambda v: v * v * v, b)).grad(b)
    with pytest.raises(ConvergenceError, match="not linear"):
        us.linalg.gmres(lambda v: v + 1.0, b).eval()


def test_bad_arguments_raise() -> None:
    b = np.ones(3)
    with pytest.raises(ShapeError, match="square matrix"):
        us.linalg.cg(np.ones((3, 2)), b)
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)|\(2,\).*\(3,\)"):
        us.linalg.gmres(lambda v: v[:2], b)
    with pytest.raises(ShapeError, match="x0"):
        us.linalg.cg(np.eye(3), b, x0=np.ones(2))
    with pytest.raises(DTypeError, match="dtype"):
        us.linalg.cg(lambda v: us.real(v), b + 0j)
    with pytest.raises(StructureError, match="returns"):
        us.linalg.cg(lambda v: v["x"], {"x": us.tensor(b)})
    with pytest.raises(StructureError, match="without any tensor"):
        us.linalg.cg(lambda v: v, {})
    with pytest.raises(ArgumentError, match="args"):
        us.linalg.cg(np.eye(3), b, args=(1.0,))
    with pytest.raises(ArgumentError, match="args"):
        us.linalg.cg(lambda v, a: a * v, b, args=2.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="tol"):
        us.linalg.cg(np.eye(3), b, tol=-1.0)
    with pytest.raises(ArgumentError, match="maxiter"):
        us.linalg.cg(np.eye(3), b, maxiter=0)
    with pytest.raises(ArgumentError, match="restart"):
        us.linalg.gmres(np.eye(3), b, restart=0)
    with pytest.raises(ArgumentError, match="method is one of"):
        solve_operator(lambda v: v, us.tensor(b), method="jacobi")
    with pytest.raises(ArgumentError, match="does not depend on the vector"):
        us.linalg.gmres(lambda v: us.zeros(3), b)
