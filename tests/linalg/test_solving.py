"""Linear equations and inverses: NumPy's values, one factorisation, singular matrices by name."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from unspool._graph import ancestors
from unspool._ops.linalg import elimination
from unspool.errors import ArgumentError, RankError, ShapeError

SINGULAR = np.ones((2, 2))
STACK_WITH_SINGULAR = np.stack([np.eye(2), SINGULAR])
LARGE_STACK_WITH_SINGULAR = np.stack([np.eye(40), np.ones((40, 40))])


def regular(x: Any) -> Any:
    return x + 5 * np.eye(x.shape[-1])


def factorisations(*outputs: us.Tensor) -> int:
    return sum(node.op.name == "lu_factors" for node in ancestors(outputs))


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [real, complex_])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((3, 3), (2, 3, 2)),
        ((2, 3, 3), (3,)),
        ((2, 3, 3), (3, 3)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((2, 40, 40), (2, 40, 3)),
        ((2, 40, 40), (40,)),
        ((1, 1), (1,)),
        ((0, 0), (0,)),
        ((0, 0), (0, 3)),
        ((3, 3), (3, 0)),
        ((0, 3, 3), (3, 1)),
        ((2, 40, 40), (2, 40, 0)),
    ],
)
def test_solutions_are_numpys(kind: Any, a: Any, b: Any) -> None:
    left, right = regular(kind(*a)), kind(*b, seed=1)
    ours, theirs = us.linalg.solve(left, right), np.linalg.solve(left, right)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.eval(), theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (40, 40), (2, 40, 40), (0, 0), (1, 1)])
def test_inverses_are_numpys_and_keep_the_dtype(dtype: Any, shape: Any) -> None:
    a = regular(complex_(*shape) if "complex" in dtype else real(*shape)).astype(dtype)
    found = us.linalg.inv(a)
    assert found.dtype == found.eval().dtype == dtype
    np.testing.assert_allclose(found.eval(), np.linalg.inv(a), rtol=1e-3 if a.dtype.itemsize < 8 else 1e-4, atol=1e-6)


def test_integers_are_solved_in_double_precision() -> None:
    x = us.linalg.solve([[2, 0], [0, 4]], [1, 1])
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x.eval(), [0.5, 0.25])


def test_dtypes_of_both_sides_combine() -> None:
    a, b = np.eye(2, dtype="float32"), np.ones(2, "complex64")
    assert us.linalg.solve(a, b).dtype == np.complex64
    assert us.linalg.solve(a, np.ones(2)).dtype == np.float64


@pytest.mark.parametrize("axes", [None, (0, 2), (1,)])
def test_tensorsolve_is_numpys(axes: Any) -> None:
    shape = {None: (2, 3, 6), (0, 2): (2, 6, 3), (1,): (3, 6, 2)}[axes]
    a, b = real(*shape), real(*{None: (2, 3), (0, 2): (6,), (1,): (3, 2)}[axes])
    np.testing.assert_allclose(us.linalg.tensorsolve(a, b, axes).eval(), np.linalg.tensorsolve(a, b, axes))


@pytest.mark.parametrize(("shape", "ind"), [((4, 6, 8, 3), 2), ((24, 8, 3), 1)])
def test_tensorinv_is_numpys(shape: Any, ind: int) -> None:
    a = real(*shape)
    np.testing.assert_allclose(us.linalg.tensorinv(a, ind).eval(), np.linalg.tensorinv(a, ind), atol=1e-10)


# --- factors ---------------------------------------------------------------------------------------------------------


def test_a_matrix_is_factored_once_for_all_that_is_done_with_it() -> None:
    a, b = us.tensor(regular(real(3, 3))), us.tensor(real(3))
    x = us.linalg.solve(a, b)
    gradients = us.sum(x).grad([a, b])
    curvature = us.sum(gradients[0] ** 2).grad(a)
    also = [us.linalg.solve(a, x), us.linalg.inv(a), us.linalg.det(a), us.linalg.slogdet(a).logabsdet]
    assert factorisations(x, *gradients, curvature, *also) == 1


def test_the_columns_of_a_stack_are_solved_with_one_factorisation() -> None:
    a, b = us.tensor(regular(real(3, 3))), us.tensor(real(4, 3, 2))
    x = us.linalg.solve(a, b)
    assert [node.shape for node in ancestors([x]) if node.op.name == "solve"] == [(3, 8)]
    assert x.shape == (4, 3, 2)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [real, complex_])
def test_large_stacks_have_the_gradients_of_their_matrices(kind: Any) -> None:
    a, b = regular(kind(2, 34, 34)), kind(2, 34, 1, seed=1)
    stack, columns = us.tensor(a), us.tensor(b)
    found = us.sum(us.abs(us.linalg.solve(stack, columns)) ** 2).grad([stack, columns])
    for i in range(2):
        matrix, column = us.tensor(a[i]), us.tensor(b[i])
        expected = us.sum(us.abs(us.linalg.solve(matrix, column)) ** 2).grad([matrix, column])
        for whole, single in zip(found, expected, strict=True):
            np.testing.assert_allclose(whole.eval()[i], single.eval(), rtol=1e-9, atol=1e-14)


def test_the_gradient_of_a_solution_is_the_closed_form() -> None:
    a, b, weights = regular(complex_(3, 3)), complex_(3), complex_(3, seed=2)
    matrix, column = us.tensor(a), us.tensor(b)
    loss = us.sum(us.real(us.conj(weights) * us.linalg.solve(matrix, column)))
    z = np.linalg.solve(a.conj().T, weights)
    found = loss.grad([matrix, column])
    np.testing.assert_allclose(found[0].eval(), -np.outer(z, np.linalg.solve(a, b).conj()))
    np.testing.assert_allclose(found[1].eval(), z)


def test_third_derivatives_agree_with_differences() -> None:
    a = us.tensor(regular(real(2, 2)))

    def second(x: us.Tensor) -> us.Tensor:
        gradient = us.sum(us.linalg.solve(x, [1.0, 2.0]) ** 2).grad(x)
        return us.sum(gradient**2).grad(x)

    us.check_grad(second, a.eval())


def test_rationals_are_solved_exactly() -> None:
    third = Fraction(1, 3)
    a = np.array([[0, third, 1], [2, third, 0], [1, 1, Fraction(-2)]], dtype=object)
    b = np.array([third, 2, 5], dtype=object)
    x = elimination.solve(a, b)
    assert all(isinstance(number, Fraction) for number in x)
    assert list(a @ x) == list(b)
    assert (a @ elimination.inverse(a) == np.eye(3, dtype=object)).all()
    assert (a @ elimination.adjugate(a) == elimination.determinant(a) * np.eye(3, dtype=object)).all()
    with pytest.raises(RankError, match="rank is 1, its size 2"):
        elimination.inverse(np.full((2, 2), third, dtype=object))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.linalg.inv(SINGULAR), r"singular matrix has no inverse: its rank is 1, its size 2, in inv"),
        (lambda: us.linalg.inv(np.zeros((3, 3))), r"rank is 0, its size 3"),
        (lambda: us.linalg.solve(SINGULAR, [1.0, 2.0]), r"rank is 1, its size 2, in solve"),
        (lambda: us.linalg.solve(STACK_WITH_SINGULAR, np.eye(2)), r"\(matrix 1 of the stack\)"),
        (lambda: us.linalg.inv(STACK_WITH_SINGULAR[None]), r"\(matrix 0, 1 of the stack\)"),
        (lambda: us.linalg.inv(LARGE_STACK_WITH_SINGULAR), r"rank is 1, its size 40 \(matrix 1 of the stack\)"),
        (lambda: us.linalg.solve(LARGE_STACK_WITH_SINGULAR, np.eye(40)), r"\(matrix 1 of the stack\)"),
    ],
)
def test_a_singular_matrix_is_named_with_its_rank(call: Any, message: str) -> None:
    with pytest.raises(RankError, match=message):
        call().eval()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.linalg.solve(real(2, 3), real(2)), r"solve takes square matrices, got shape \(2, 3\)"),
        (lambda: us.linalg.solve(real(3), real(3)), r"at least two axes, got shape \(3,\)"),
        (lambda: us.linalg.solve(np.eye(2), 1.0), r"at least one axis, got a scalar"),
        (lambda: us.linalg.solve(np.eye(2), real(3)), r"as many rows .* got shapes \(2, 2\) and \(3,\)"),
        (lambda: us.linalg.solve(np.eye(2), real(2, 3, 1)), r"as many rows"),
        (lambda: us.linalg.solve(real(2, 3, 3), real(4, 3, 1)), r"cannot be broadcast"),
        (lambda: us.linalg.inv(real(2, 3)), r"inv takes square matrices"),
        (lambda: us.linalg.tensorinv(real(2, 3)), r"as many elements in \(2, 3\) as in \(\)"),
        (lambda: us.linalg.tensorsolve(real(2, 3), real(2)), r"got \(2, 3\) for a and \(2,\) for b"),
        (lambda: us.linalg.tensorsolve(real(2), real(1, 2, 1)), r"got \(2,\) for a"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize("ind", [0, -1, 1.5])
def test_tensorinv_takes_a_positive_number_of_axes(ind: Any) -> None:
    with pytest.raises(ArgumentError, match="positive number of axes"):
        us.linalg.tensorinv(np.eye(2), ind)


def test_nan_passes_through_as_in_numpy() -> None:
    assert np.isnan(us.linalg.solve(np.full((2, 2), np.nan), [1.0, 2.0]).eval()).all()


# --- symbolic sizes --------------------------------------------------------------------------------------------------


def test_sizes_may_be_symbolic() -> None:
    n, k, s = us.dims("n k s")
    a, b = us.placeholder((n, n)), us.placeholder((s, n, k))
    x = us.linalg.solve(a, b)
    assert x.shape == (s, n, k)
    gradient = us.sum(x * x).grad(a)
    for size in (1, 3, 0):
        values = regular(real(size, size)), real(2, size, 2)
        bound = dict(zip((a, b), values, strict=True))
        np.testing.assert_allclose(x.eval(bound), np.linalg.solve(*values))
        concrete = us.tensor(values[0])
        expected = us.sum(us.linalg.solve(concrete, values[1]) ** 2).grad(concrete)
        np.testing.assert_allclose(gradient.eval(bound), expected.eval())


def test_unknown_sizes_that_have_to_be_equal_are_checked_when_bound() -> None:
    n, k = us.dims("n k")
    a = us.placeholder((n, k))
    inverse = us.linalg.inv(a)
    np.testing.assert_allclose(inverse.eval({a: np.eye(2) * 2}), np.eye(2) / 2)
    with pytest.raises(us.errors.SizeContradictionError):
        inverse.eval({a: real(2, 3)})
