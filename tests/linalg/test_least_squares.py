"""Least squares and pseudoinverses: any shape, and derivatives that know about rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from unspool._graph import ancestors
from unspool.errors import ArgumentError, RankError, ShapeError

KINDS = pytest.mark.parametrize("kind", [real, complex_])
SHAPES = [(3, 2), (2, 3), (3, 3), (1, 3), (3, 1)]


def solution(a: Any, b: Any, **options: Any) -> us.Tensor:
    return us.linalg.lstsq(a, b, **options).solution


# --- values ----------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("shape", SHAPES)
def test_least_squares_are_numpys(kind: Any, shape: Any, columns: Any) -> None:
    a, b = kind(*shape), kind(shape[0], *columns)
    ours, theirs = us.linalg.lstsq(a, b), np.linalg.lstsq(a, b)
    np.testing.assert_allclose(ours.solution.eval(), theirs[0], rtol=1e-9, atol=1e-12)
    assert ours.rank.eval() == theirs[2]
    np.testing.assert_allclose(ours.singular_values.eval(), theirs[3])
    residue = b - a @ theirs[0]
    np.testing.assert_allclose(ours.residuals.eval(), np.atleast_1d((abs(residue) ** 2).sum(axis=0)), atol=1e-12)
    if theirs[1].size:
        assert ours.residuals.shape == theirs[1].shape


@KINDS
@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 2), (2, 2, 3), (0, 3), (3, 0), (0, 0), (0, 2, 3), (2, 0, 3)])
def test_pseudoinverses_are_numpys(kind: Any, shape: Any) -> None:
    a = kind(*shape)
    np.testing.assert_allclose(us.linalg.pinv(a).eval(), np.linalg.pinv(a), rtol=1e-9, atol=1e-12)


@KINDS
def test_hermitian_matrices_may_be_said_to_be_so(kind: Any) -> None:
    a = kind(3, 3)
    a = a + a.conj().T
    np.testing.assert_allclose(us.linalg.pinv(a, hermitian=True).eval(), np.linalg.pinv(a), rtol=1e-9)


@pytest.mark.parametrize(("a", "b"), [((2, 3, 2), (3,)), ((3, 2), (4, 3, 1)), ((2, 1, 3, 2), (4, 3, 2))])
def test_stacks_broadcast(a: Any, b: Any) -> None:
    left, right = real(*a), real(*b)
    found = solution(left, right).eval()
    np.testing.assert_allclose(found, np.linalg.pinv(left) @ right, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)])
def test_without_rows_or_columns_the_solution_is_zero(shape: Any) -> None:
    result = us.linalg.lstsq(np.zeros(shape), np.ones((shape[0], 1)))
    np.testing.assert_array_equal(result.solution.eval(), np.zeros((shape[1], 1)))
    np.testing.assert_array_equal(result.residuals.eval(), [shape[0]])
    assert int(result.rank) == 0


@pytest.mark.parametrize("rcond", [None, 1e-3, -1])
def test_tolerances_decide_on_the_rank_as_in_numpy(rcond: Any) -> None:
    a, b = np.diag([1.0, 1e-4, 1e-17]), np.ones(3)
    ours, theirs = us.linalg.lstsq(a, b, rcond), np.linalg.lstsq(a, b, rcond)
    assert int(ours.rank) == theirs[2]
    np.testing.assert_allclose(ours.solution.eval(), theirs[0], atol=1e-9)


# --- derivatives at full rank ----------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("shape", [*SHAPES, (0, 2), (2, 0)])
def test_both_sides_have_derivatives_for_every_shape(kind: Any, shape: Any) -> None:
    a, b = kind(*shape), kind(shape[0], 1, seed=1)
    us.check_grad(solution, a, b, order=2)
    if shape[0] > shape[1]:
        us.check_grad(lambda x, y: us.linalg.lstsq(x, y).residuals, a, b, order=2)


@KINDS
def test_residuals_that_vanish_have_second_derivatives(kind: Any) -> None:
    a = kind(3, 1)
    us.check_grad(lambda x, y: us.linalg.lstsq(x, y).residuals, a, 2 * a, order=2)


def test_the_gradient_of_an_overdetermined_solution_is_that_of_the_normal_equations() -> None:
    a, b = real(4, 2), real(4)
    left, right = us.tensor(a), us.tensor(b)
    normal = us.linalg.solve(left.T @ left, left.T @ right)
    for ours, theirs in zip(
        us.sum(solution(left, right) ** 2).grad([left, right]), us.sum(normal**2).grad([left, right]), strict=True
    ):
        np.testing.assert_allclose(ours.eval(), theirs.eval(), rtol=1e-9)


def test_nothing_as_large_as_the_square_of_the_longer_side_is_computed() -> None:
    a, b = us.tensor(real(50, 2)), us.tensor(real(50))
    loss = us.sum(solution(a, b)) + us.sum(us.linalg.pinv(a))
    assert all(node.shape != (50, 50) for node in ancestors(loss.grad([a, b])))


# --- rank ------------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(("rows", "columns"), [(4, 3), (3, 4), (3, 3)])
def test_with_a_tolerance_derivatives_are_those_at_constant_rank(kind: Any, rows: int, columns: int) -> None:
    left, right, b = kind(rows, 2), kind(2, columns), kind(rows, 1)
    us.check_grad(lambda u, v: us.linalg.pinv(u @ v, rtol=1e-9), left, right, order=2)
    us.check_grad(lambda u, v, w: solution(u @ v, w, rcond=1e-9), left, right, b, order=2)


def test_a_tolerance_may_come_from_the_context() -> None:
    a = us.tensor(np.diag([1.0, 1e-4]))
    with us.linalg.tolerances(rank=1e-3):
        inverse = us.linalg.pinv(a)
        rank = us.linalg.lstsq(a, [1.0, 1.0]).rank
    np.testing.assert_allclose(inverse.eval(), np.diag([1.0, 0.0]))
    assert int(rank) == 1
    assert np.isfinite(us.sum(inverse).grad(a).eval()).all()


@pytest.mark.parametrize(
    ("a", "message"),
    [
        (np.ones((3, 2)), r"shape \(3, 2\) has rank 1; pass a tolerance"),
        (np.zeros((2, 3)), r"shape \(2, 3\) has rank 0"),
        (np.stack([np.eye(2), np.ones((2, 2))]), r"rank 1 \(matrix 1 of the stack\)"),
    ],
)
def test_without_a_tolerance_a_deficient_rank_is_named(a: Any, message: str) -> None:
    x = us.tensor(a)
    b = np.ones((a.shape[-2], 1))
    assert np.isfinite(us.linalg.pinv(x).eval()).all()
    for loss in (us.sum(us.linalg.pinv(x)), us.sum(solution(x, b))):
        with pytest.raises(RankError, match=message):
            loss.grad(x).eval()
    with pytest.raises(RankError, match=message):
        us.jvp(lambda t: us.linalg.pinv(t), (a,), (a,))[1].eval()


def test_the_right_hand_side_has_a_derivative_at_any_rank() -> None:
    b = us.tensor(real(3))
    a = np.ones((3, 2))
    np.testing.assert_allclose(us.sum(solution(a, b)).grad(b).eval(), np.linalg.pinv(a).sum(axis=0))


def test_the_pseudoinverse_of_zero_is_zero_and_so_is_its_slope_at_constant_rank() -> None:
    x = us.tensor(np.zeros((2, 3)))
    np.testing.assert_array_equal(us.linalg.pinv(x).eval(), np.zeros((3, 2)))
    np.testing.assert_array_equal(us.sum(us.linalg.pinv(x, rtol=0.0)).grad(x).eval(), np.zeros((2, 3)))


# --- symbolic sizes, refusals ----------------------------------------------------------------------------------------


def test_one_graph_serves_tall_wide_and_square_matrices() -> None:
    m, n = us.dims("m n")
    a, b = us.placeholder((m, n)), us.placeholder((m,))
    loss = us.sum(solution(a, b) ** 2) + us.sum(us.linalg.pinv(a))
    gradient = loss.grad(a)
    for shape in SHAPES:
        values = real(*shape), real(shape[0])
        x = us.tensor(values[0])
        expected = (us.sum(solution(x, values[1]) ** 2) + us.sum(us.linalg.pinv(x))).grad(x)
        bound = dict(zip((a, b), values, strict=True))
        np.testing.assert_allclose(gradient.eval(bound), expected.eval(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: us.linalg.pinv(np.eye(2), 0.1, rtol=0.1), ArgumentError, "rcond and rtol of pinv are one thing"),
        (lambda: us.linalg.pinv(np.eye(2), "small"), ArgumentError, "rcond has to be a number, got 'small'"),
        (lambda: us.linalg.lstsq(np.eye(2), np.eye(2), np.nan), ArgumentError, "rcond has to be a number, got nan"),
        (lambda: us.linalg.pinv(real(2)), ShapeError, "at least two axes"),
        (lambda: us.linalg.pinv(real(2, 3), hermitian=True), ShapeError, "takes square matrices"),
        (lambda: us.linalg.lstsq(real(2, 3), real(3)), ShapeError, "as many rows"),
        (lambda: us.linalg.lstsq(real(2, 3), 1.0), ShapeError, "got a scalar"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
