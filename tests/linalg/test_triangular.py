from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import unspool as us
from tests.samples import complex_, real
from unspool.errors import RankError, ShapeError

solve_triangular = us.linalg.solve_triangular
FLAGS = list(product((False, True), repeat=3))


def well_conditioned(*shape: int, dtype: Any) -> Any:
    make = complex_ if np.dtype(dtype).kind == "c" else real
    return (make(*shape) + 4 * np.eye(shape[-1])).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(("lower", "adjoint", "unit"), FLAGS)
@pytest.mark.parametrize(("a_order", "b_order"), list(product("CF", repeat=2)))
def test_every_flag_and_memory_order_agrees_with_scipy(
    dtype: str, lower: bool, adjoint: bool, unit: bool, a_order: Any, b_order: Any
) -> None:
    a = np.array(well_conditioned(4, 4, dtype=dtype), order=a_order)
    b = np.array(well_conditioned(3, 4, 4, dtype=dtype)[0][:, :3], order=b_order)
    x = solve_triangular(
        us.tensor(a, copy=False), us.tensor(b, copy=False), lower=lower, adjoint=adjoint, unit_diagonal=unit
    )
    expected = scipy.linalg.solve_triangular(a, b, trans=2 * adjoint, lower=lower, unit_diagonal=unit)
    assert x.dtype == dtype
    np.testing.assert_allclose(x.eval(), expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("stack", [(2,), (50,), (2, 3), (0,)])
@pytest.mark.parametrize(("lower", "adjoint", "unit"), FLAGS)
def test_a_stack_is_solved_matrix_by_matrix(stack: Any, lower: bool, adjoint: bool, unit: bool) -> None:
    a, b = well_conditioned(*stack, 3, 3, dtype=complex), complex_(*stack, 3, 2)
    x = solve_triangular(a, b, lower=lower, adjoint=adjoint, unit_diagonal=unit).eval()
    assert x.shape == b.shape
    for index in np.ndindex(stack):
        expected = scipy.linalg.solve_triangular(a[index], b[index], trans=2 * adjoint, lower=lower, unit_diagonal=unit)
        np.testing.assert_allclose(x[index], expected, rtol=1e-12)


def test_a_right_side_is_a_vector_only_if_it_has_one_axis() -> None:
    a = well_conditioned(2, 2, 2, dtype=float)
    assert solve_triangular(a, real(2)).shape == (2, 2)
    assert solve_triangular(a, real(2, 2)).shape == (2, 2, 2)
    assert solve_triangular(a[0], real(3, 2, 1)).shape == (3, 2, 1)


def test_integers_are_solved_as_floats() -> None:
    x = solve_triangular([[2, 1], [0, 4]], [4, 8])
    assert x.dtype == np.float64
    assert x.eval().tolist() == [1.0, 2.0]


def test_the_other_triangle_is_neither_read_nor_reached() -> None:
    a = us.tensor([[2.0, 1.0], [np.nan, 4.0]])
    x = solve_triangular(a, [4.0, 8.0])
    assert x.eval().tolist() == [1.0, 2.0]
    assert us.sum(x).grad(a).eval().tolist() == [[-0.5, -1.0], [0.0, -0.25]]
    # What feeds the other triangle has an infinite slope there, and is not asked for it.
    roots = us.tensor([[4.0, 1.0], [0.0, 16.0]])
    assert np.isfinite(us.sum(solve_triangular(us.sqrt(roots), [4.0, 8.0])).grad(roots).eval()).all()


def test_a_unit_diagonal_is_neither_read_nor_reached() -> None:
    a = us.tensor([[np.nan, 1.0], [0.0, 0.0]])
    x = solve_triangular(a, [4.0, 3.0], unit_diagonal=True)
    assert x.eval().tolist() == [1.0, 3.0]
    assert us.sum(x).grad(a).eval().tolist() == [[0.0, -3.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("stack", "where"), [((), r"element \(1, 1\) is 0"), ((2,), r"\(1, 1\) of matrix \(1,\) is 0")]
)
def test_a_zero_on_the_diagonal_is_an_error_that_names_it(stack: Any, where: str) -> None:
    a = np.tile(np.eye(3), (*stack, 1, 1))
    a[(1,) * len(stack)][1, 1] = 0
    x = solve_triangular(a, np.ones((3, 1)))
    with pytest.raises(RankError, match=where):
        x.eval()


@pytest.mark.parametrize(("a", "b"), [((2, 3), (2,)), ((2, 2), (3,)), ((2, 2), ()), ((2,), (2,)), ((2, 2), (2, 3, 1))])
def test_shapes_that_do_not_fit_are_refused_when_built(a: Any, b: Any) -> None:
    with pytest.raises(ShapeError, match="solve_triangular"):
        solve_triangular(np.ones(a), np.ones(b))


def test_sizes_may_be_unknown() -> None:
    n, k = us.dims("n k")
    a, b = us.placeholder((n, n)), us.placeholder((n, k))
    gradient = us.sum(solve_triangular(a, b) ** 2).grad(a)
    for size, count in ((1, 2), (3, 1), (0, 2), (2, 0)):
        x, y = well_conditioned(size, size, dtype=float), real(size, count)
        t = us.tensor(x)
        expected = us.sum(solve_triangular(t, y) ** 2).grad(t).eval()
        np.testing.assert_array_equal(gradient.eval({a: x, b: y}), expected)
