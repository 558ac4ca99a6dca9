"""`unspool.linalg`: norms as NumPy has them, real, safe at zero and at the ends of the floating-point range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._graph import ancestors
from unspool.errors import ArgumentError, ShapeError

INF = np.inf
VECTOR = np.array([3.0, -0.5, 2.0, 1.25])
MATRIX = np.array([[1.5, -2.0, 0.25], [3.0, 0.5, -1.0]])
STACK = np.arange(24.0).reshape(2, 3, 4) - 9.5
COMPLEX = MATRIX + 1j * MATRIX[::-1]


@pytest.mark.parametrize("ord", [None, 2, 1, 0, INF, -INF, 3, 1.5, -1, -2])
@pytest.mark.parametrize("x", [VECTOR, VECTOR.astype("float32"), VECTOR * (1 - 2j)], ids=["real", "single", "complex"])
def test_vector_norms_are_numpys(x: Any, ord: Any) -> None:
    ours, theirs = us.linalg.norm(us.tensor(x), ord), np.linalg.norm(x, ord)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.eval(), theirs, rtol=1e-6)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    ("x", "ord", "axis"),
    [
        (MATRIX, None, None),
        (MATRIX, None, 0),
        (MATRIX, 1, -1),
        (MATRIX, INF, 0),
        (MATRIX, 3, 1),
        (MATRIX, "fro", None),
        (MATRIX, 1, None),
        (MATRIX, -1, None),
        (MATRIX, INF, None),
        (MATRIX, -INF, (1, 0)),
        (STACK, None, None),
        (STACK, None, 1),
        (STACK, None, (0, 2)),
        (STACK, "fro", (2, 0)),
        (STACK, 1, (0, 1)),
        (STACK, 1, (1, 0)),
        (COMPLEX, None, 1),
        (COMPLEX, "fro", (0, 1)),
        (COMPLEX, 1, None),
    ],
)
def test_norms_along_axes_are_numpys(x: Any, ord: Any, axis: Any, keepdims: bool) -> None:
    ours = us.linalg.norm(x, ord, axis, keepdims)
    theirs = np.linalg.norm(x, ord, axis, keepdims)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.eval(), theirs)


@pytest.mark.parametrize("ord", [2, 1, INF, -INF, 0, 2.5])
@pytest.mark.parametrize("axis", [None, 0, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_vector_norm_takes_any_number_of_axes(axis: Any, keepdims: bool, ord: Any) -> None:
    ours = us.linalg.vector_norm(STACK, axis=axis, keepdims=keepdims, ord=ord)
    np.testing.assert_allclose(ours.eval(), np.linalg.vector_norm(STACK, axis=axis, keepdims=keepdims, ord=ord))


@pytest.mark.parametrize("ord", ["fro", 1, -1, INF, -INF])
def test_matrix_norm_works_on_stacks(ord: Any) -> None:
    np.testing.assert_allclose(us.linalg.matrix_norm(STACK, ord=ord).eval(), np.linalg.matrix_norm(STACK, ord=ord))


def test_integers_have_floating_point_norms() -> None:
    assert us.linalg.norm([3, 4]).dtype == np.float64
    assert float(us.linalg.norm([3, 4])) == 5.0
    assert float(us.linalg.norm(-2.0)) == 2.0
    assert float(us.linalg.norm(np.zeros(0))) == 0.0


@pytest.mark.parametrize("scale", [1e200, 1e-200, 5e-324, 0.0, INF, np.nan])
@pytest.mark.parametrize("axis", [None, 1])
def test_squares_may_leave_the_floating_point_range(scale: float, axis: Any) -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]]) * np.where(np.array([[True], [False]]), scale, 0.0)
    expected = np.array([5.0 * scale, 0.0]) if axis else 5.0 * scale
    np.testing.assert_allclose(us.linalg.norm(x, axis=axis).eval(), expected, rtol=1e-15)


def test_single_precision_does_not_overflow_either() -> None:
    norm = us.linalg.norm(np.array([3e30, 4e30], "float32"))
    assert norm.eval().dtype == np.float32
    assert float(norm) == pytest.approx(5e30, rel=1e-6)


# --- derivatives -----------------------------------------------------------------------------------------------------


def test_a_norm_is_one_node_and_its_gradient_two_more() -> None:
    x = us.tensor(VECTOR)
    norm = us.linalg.norm(x)
    assert len(ancestors([norm])) == 2
    weighted = norm * us.tensor(2.0)
    new = {node.op.name for node in ancestors([weighted.grad(x)])} - {node.op.name for node in ancestors([weighted])}
    assert new == {"divide_or_zero"}


@pytest.mark.parametrize("ord", [None, 1, 3, 1.5, INF])
def test_the_gradient_at_zero_is_zero(ord: Any) -> None:
    x = us.tensor(np.zeros(3))
    np.testing.assert_array_equal(us.linalg.norm(x, ord).grad(x).eval(), np.zeros(3))


@pytest.mark.parametrize("dtype", [float, complex])
def test_second_and_third_derivatives_at_zero_are_finite(dtype: Any) -> None:
    x = us.tensor(np.zeros(3, dtype))
    weights = us.tensor([1.0, 2.0, 3.0])
    value = us.linalg.norm(x)
    for _ in range(3):
        gradient = value.grad(x)
        np.testing.assert_array_equal(gradient.eval(), np.zeros(3))
        value = us.sum(us.real(gradient) * weights)


def test_a_zero_row_does_not_spoil_the_others() -> None:
    x = us.tensor([[0.0, 0.0], [3.0, 4.0]])
    gradient = us.sum(us.linalg.norm(x, axis=1)).grad(x)
    np.testing.assert_allclose(gradient.eval(), [[0.0, 0.0], [0.6, 0.8]])
    curvature = us.sum(gradient * us.tensor([[1.0, 1.0], [1.0, 0.0]])).grad(x).eval()
    np.testing.assert_allclose(curvature, [[0.0, 0.0], [16 / 125, -12 / 125]])


def test_the_gradient_of_a_complex_norm_points_along_the_vector() -> None:
    z = us.tensor([3 + 4j, 0.0])
    norm = us.linalg.norm(z)
    assert norm.dtype == np.float64
    np.testing.assert_allclose(norm.grad(z).eval(), [0.6 + 0.8j, 0.0])


def test_a_norm_that_is_not_chosen_leaves_its_rows_unreached() -> None:
    x = us.tensor([[0.0, 1.0], [4.0, 9.0]])
    norms = us.linalg.norm(us.sqrt(x), axis=1)
    loss = us.sum(us.where(us.tensor([False, True]), norms, 0.0))
    np.testing.assert_allclose(loss.grad(x).eval(), [[0.0, 0.0], [0.5 / np.sqrt(13)] * 2])


@pytest.mark.parametrize("ord", [1, 3, 2.5, INF])
def test_other_orders_agree_with_differences(ord: Any) -> None:
    us.check_grad(lambda x: us.linalg.norm(x, ord, axis=1), MATRIX, order=2)


# --- symbolic sizes, refusals, names ---------------------------------------------------------------------------------


def test_sizes_may_be_symbolic() -> None:
    n, k = us.dims("n k")
    x = us.placeholder((n, k))
    norms = us.linalg.norm(x, axis=1)
    assert norms.shape == (n,)
    np.testing.assert_allclose(norms.eval({x: MATRIX}), np.linalg.norm(MATRIX, axis=1))
    gradient = us.sum(norms).grad(x)
    assert gradient.shape == (n, k)
    np.testing.assert_allclose(gradient.eval({x: MATRIX}), MATRIX / np.linalg.norm(MATRIX, axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.linalg.norm(STACK, 1), r"vector \(1 axis\) or a matrix \(2 axes\), got shape \(2, 3, 4\)"),
        (lambda: us.linalg.norm(STACK, 1, (0, 0)), r"must differ"),
        (lambda: us.linalg.norm(VECTOR, axis=1), r"axis 1 is out of range"),
        (lambda: us.linalg.matrix_norm(VECTOR), r"at least 2 axes"),
    ],
)
def test_axes_that_make_no_sense_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.linalg.norm(MATRIX, 3), r"orders 'fro', 'nuc', 1, -1, 2, -2, inf and -inf, not 3"),
        (lambda: us.linalg.norm(MATRIX, "frobenius"), r"not 'frobenius'"),
        (lambda: us.linalg.norm(VECTOR, "fro"), r"not 'fro'"),
        (lambda: us.linalg.norm(VECTOR, np.nan), r"not nan"),
    ],
)
def test_orders_that_make_no_sense_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


@pytest.mark.parametrize(
    "name", ["diagonal", "matmul", "matrix_norm", "matrix_transpose", "norm", "outer", "tensordot", "trace", "vecdot"]
)
def test_functions_that_numpy_has_in_linalg_are_here(name: str) -> None:
    assert name in us.linalg.__all__
    assert hasattr(np.linalg, name)
    assert callable(getattr(us.linalg, name))
