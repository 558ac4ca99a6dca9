from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from unspool.errors import ArgumentError, GaugeError, RankError, ShapeError

MAKES = pytest.mark.parametrize("make", [real, complex_])
SHAPES = [(3, 3), (4, 2), (2, 4), (1, 3), (3, 1), (2, 3, 2), (2, 2, 3), (40, 33), (33, 40)]
EMPTY = [(0, 2), (2, 0), (0, 0), (2, 0, 3), (0, 2, 2)]


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def inner(weights: Any, x: Any) -> Any:
    return us.real(us.sum(np.conj(weights) * x))


def rank_one(*shape: int, make: Any = real) -> Any:
    return make(shape[-2], 1) @ make(1, shape[-1])


# --- values ----------------------------------------------------------------------------------------------------------


@MAKES
@pytest.mark.parametrize("shape", SHAPES + EMPTY)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_the_factors_are_orthonormal_columns_and_a_triangle(make: Any, shape: Any, mode: str) -> None:
    x = make(*shape)
    for positive in (False, True):
        found = us.linalg.qr(x, mode, positive=positive)
        q, r = found.Q.eval(), found.R.eval()
        expected = np.linalg.qr(x, mode)
        assert (q.shape, r.shape) == (expected.Q.shape, expected.R.shape)
        np.testing.assert_allclose(q @ r, x, atol=1e-13)
        np.testing.assert_allclose(adjoint(q) @ q - np.eye(q.shape[-1]), 0, atol=1e-13)
        np.testing.assert_array_equal(np.tril(r, -1), 0)
        diagonal = np.diagonal(r, 0, -2, -1)
        np.testing.assert_array_equal(np.imag(diagonal), 0)
        assert not positive or np.all(np.real(diagonal) >= 0)


@MAKES
@pytest.mark.parametrize("shape", SHAPES)
def test_without_a_convention_the_factors_are_numpys(make: Any, shape: Any) -> None:
    x = make(*shape)
    for factor, expected in zip(us.linalg.qr(x), np.linalg.qr(x), strict=True):
        np.testing.assert_allclose(factor.eval(), expected, atol=1e-12)
    np.testing.assert_allclose(us.linalg.qr(x, "r").eval(), np.linalg.qr(x, "r"), atol=1e-12)


@MAKES
@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_lq_is_the_mirror_image(make: Any, shape: Any, mode: str) -> None:
    x = make(*shape)
    found = us.linalg.lq(x, mode, positive=True)
    lower, q = found.L.eval(), found.Q.eval()
    np.testing.assert_allclose(lower @ q, x, atol=1e-13)
    np.testing.assert_array_equal(np.triu(lower, 1), 0)
    np.testing.assert_array_equal(us.linalg.lq(x, "l", positive=True).eval(), us.linalg.lq(x, positive=True).L.eval())


def test_a_zero_matrix_has_factors() -> None:
    q, r = us.linalg.qr(np.zeros((3, 2)), positive=True)
    assert np.isfinite(q.eval()).all()
    assert not r.eval().any()


@pytest.mark.parametrize("decompose", [us.linalg.qr, us.linalg.lq])
def test_what_makes_no_sense_is_refused_when_built(decompose: Any) -> None:
    with pytest.raises(ArgumentError, match="modes"):
        decompose(np.eye(2), "raw")
    with pytest.raises(ArgumentError, match="gauge"):
        decompose(np.eye(2), gauge="free")
    with pytest.raises(ArgumentError, match="rtol"):
        decompose(np.eye(2), rtol=-1.0)
    with pytest.raises(ShapeError, match="at least two axes"):
        decompose(np.ones(3))


# --- gauge -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
@pytest.mark.parametrize("part", [0, 1])
def test_a_loss_that_depends_on_phases_is_refused(shape: Any, part: int) -> None:
    x = us.tensor(complex_(*shape))
    gradient = us.sum(us.real(us.linalg.qr(x)[part])).grad(x)
    with pytest.raises(GaugeError, match="phase of column 0 of Q.*positive=True") as caught:
        gradient.eval()
    assert vars(caught.value)["indices"] == (0,)


@pytest.mark.parametrize("options", [{"positive": True}, {"gauge": "fixed"}])
def test_a_convention_for_phases_is_differentiated(options: Any) -> None:
    us.check_grad(lambda x: tuple(us.linalg.qr(x, **options)), complex_(3, 2), order=1)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 2)])
def test_phases_that_cancel_are_no_gauge_dependence(shape: Any) -> None:
    us.check_grad(lambda x: us.abs(us.linalg.qr(x).Q) ** 2, complex_(*shape), order=1)


def test_a_real_matrix_has_no_phases_to_depend_on() -> None:
    us.check_grad(lambda x: tuple(us.linalg.qr(x)), real(3, 2), order=1)


@MAKES
@pytest.mark.parametrize("options", [{}, {"positive": True}, {"gauge": "fixed"}])
def test_a_loss_that_depends_on_the_basis_that_completes_q_is_refused(make: Any, options: Any) -> None:
    x = us.tensor(make(4, 2))
    q = us.linalg.qr(x, "complete", **options).Q
    with pytest.raises(GaugeError, match="columns 2 to 3 of Q"):
        us.sum(us.real(q[:, 2:]) ** 3).grad(x).eval()


@MAKES
def test_the_span_that_completes_q_is_what_the_columns_leave(make: Any) -> None:
    x, weights = us.tensor(make(4, 2)), make(4, 4, seed=2)
    q = us.linalg.qr(x, "complete").Q
    rest, first = q[:, 2:], us.linalg.qr(x).Q
    by_rest = inner(weights, rest @ rest.H).grad(x).eval()
    by_first = -inner(weights, first @ first.H).grad(x).eval()
    np.testing.assert_allclose(by_rest, by_first, atol=1e-13)


# --- rank ------------------------------------------------------------------------------------------------------------


@MAKES
@pytest.mark.parametrize("shape", [(3, 3), (3, 5)])
@pytest.mark.parametrize("matrix", [rank_one, lambda *shape, make: np.zeros(shape, make(1).dtype)])
def test_the_product_of_the_factors_has_its_gradient_at_any_rank(make: Any, shape: Any, matrix: Any) -> None:
    x, weights = us.tensor(matrix(*shape, make=make)), make(*shape, seed=7)
    q, r = us.linalg.qr(x)
    np.testing.assert_allclose(inner(weights, q @ r).grad(x).eval(), weights, atol=1e-12)


def test_a_tall_matrix_without_full_rank_is_an_error_that_names_the_rank() -> None:
    # What the loss sends outside the span of Q is multiplied by a zero row of R: no rule could get it back.
    x = us.tensor(rank_one(4, 3))
    q, r = us.linalg.qr(x)
    with pytest.raises(RankError, match="needs 3 linearly independent leading columns.*have rank 1.*mode='complete'"):
        us.linalg.norm(q @ r).grad(x).eval()


@MAKES
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_complete_decomposition_sees_what_a_tall_matrix_without_full_rank_sends(make: Any, rank: int) -> None:
    x, weights = us.tensor(make(4, rank) @ make(rank, 3)), make(4, 3, seed=7)
    q, r = us.linalg.qr(x, "complete")
    np.testing.assert_allclose(inner(weights, q @ r).grad(x).eval(), weights, atol=1e-12)
    with pytest.raises(RankError, match=f"have rank {rank}"):
        us.sum(us.abs(q[:, :3]) ** 3).grad(x).eval()


@MAKES
@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (3, 4)])
def test_the_gram_matrix_by_r_has_its_gradient_at_any_rank(make: Any, shape: Any) -> None:
    x, weights = us.tensor(rank_one(*shape, make=make)), make(shape[1], shape[1], seed=7)
    r = us.linalg.qr(x, "r")
    expected = x.eval() @ (weights + adjoint(weights))
    np.testing.assert_allclose(inner(weights, r.H @ r).grad(x).eval(), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (3, 4), (2, 3, 3)])
@pytest.mark.parametrize("part", [0, 1])
def test_factors_that_are_not_determined_have_no_gradient(shape: Any, part: int) -> None:
    x = us.tensor(np.broadcast_to(rank_one(*shape[-2:]), shape))
    with pytest.raises(RankError, match="have rank 1"):
        us.sum(us.linalg.qr(x)[part]).grad(x).eval()


def test_only_the_matrix_without_full_rank_is_treated_apart_in_a_stack() -> None:
    stack, weights = np.stack([real(3, 3), rank_one(3, 3)]), real(2, 3, 3, seed=7)
    x = us.tensor(stack)
    q, r = us.linalg.qr(x)
    np.testing.assert_allclose(inner(weights, q @ r).grad(x).eval(), weights, atol=1e-12)


def test_the_modulus_of_a_number_at_zero_is_an_error() -> None:
    x = us.tensor(np.zeros((1, 1)))
    with pytest.raises(RankError, match="have rank 0"):
        us.sum(us.linalg.qr(x, "r", positive=True)).grad(x).eval()


def test_forward_mode_names_the_rank_too() -> None:
    _, tangent = us.jvp(lambda x: us.linalg.qr(x).Q, (us.tensor(np.ones((3, 2))),), (us.ones((3, 2)),))
    with pytest.raises(RankError, match="have rank 1"):
        tangent.eval()


def test_what_counts_as_zero_can_be_set_per_call_and_by_context() -> None:
    x = us.tensor(np.diag([1.0, 1e-5]))
    assert np.isfinite(us.sum(us.linalg.qr(x).Q).grad(x).eval()).all()
    with pytest.raises(RankError, match="have rank 1"):
        us.sum(us.linalg.qr(x, rtol=1e-3).Q).grad(x).eval()
    with us.linalg.tolerances(rank=1e-3), pytest.raises(RankError, match="have rank 1"):
        us.sum(us.linalg.qr(x).Q).grad(x).eval()


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_one_graph_serves_tall_wide_and_square_matrices(mode: str, dtype: str) -> None:
    m, n = us.dims("m n")
    matrix = us.placeholder((m, n), dtype)

    def loss(x: Any) -> Any:
        q, r = us.linalg.qr(x, mode, positive=True)
        return us.sum(us.real(q[..., :, :1]) ** 3) + us.sum(us.real(r) ** 3)

    gradient = loss(matrix).grad(matrix)
    curvature = us.sum(us.abs(gradient) ** 2).grad(matrix)
    for shape in ((3, 2), (2, 3), (2, 2), (1, 1), (1, 3)):
        x = us.tensor((complex_ if dtype == "complex128" else real)(*shape))
        expected = loss(x).grad(x)
        np.testing.assert_allclose(gradient.eval({matrix: x.eval()}), expected.eval(), atol=1e-12)
        further = us.sum(us.abs(expected) ** 2).grad(x).eval()
        np.testing.assert_allclose(curvature.eval({matrix: x.eval()}), further, rtol=1e-10, atol=1e-10)
