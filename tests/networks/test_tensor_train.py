"""Tensor trains: known ranks and errors, Eckart–Young, and finite differences of the whole loop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.networks.test_als import same_bits_within_a_tenth
from tests.networks.test_fitting import normal, rotated_diagonal
from unspool.errors import ArgumentError, GaugeError, RankError, ShapeError
from unspool.networks.tensor_train import TensorTrain, random_train, tt_als, tt_svd

SUMS = np.indices((10,) * 5).sum(axis=0)
HILBERT = 1.0 / (SUMS + 1.0)


def relative_error(data: Any, train: TensorTrain) -> float:
    return float(np.linalg.norm(data - train.full().eval()) / np.linalg.norm(data))


def tails(data: Any, rank: int) -> list[float]:
    """What each unfolding alone has to lose, relative to the data: no train of the rank has a smaller error."""
    values = [np.linalg.svd(data.reshape(np.prod(data.shape[:k]), -1), compute_uv=False) for k in range(1, data.ndim)]
    return [float(np.linalg.norm(s[rank:]) / np.linalg.norm(data)) for s in values]


# --- TT-SVD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "error"), [(1, 0.12731051303), (2, 0.030198511308), (3, 0.0049768028447), (4, 0.00060285528876)]
)
def test_the_errors_of_the_hilbert_tensor(rank: int, error: float) -> None:
    assert np.linalg.norm(HILBERT) == pytest.approx(15.875261192043, rel=1e-13)
    train = tt_svd(HILBERT, rank)
    assert train.ranks == (rank,) * 4
    assert relative_error(HILBERT, train) == pytest.approx(error, rel=1e-10)


@pytest.mark.parametrize(("cutoff", "ranks"), [(1e-6, (7, 7, 7, 7)), (1e-10, (9, 10, 10, 9))])
def test_the_ranks_of_the_hilbert_tensor_for_an_error(cutoff: float, ranks: tuple[int, ...]) -> None:
    train = tt_svd(HILBERT, cutoff=cutoff)
    assert train.ranks == ranks
    assert relative_error(HILBERT, train) <= cutoff


@pytest.mark.parametrize("values", [np.sin(SUMS), SUMS], ids=["sine", "sum"])
def test_sums_and_their_sines_have_rank_two(values: Any) -> None:
    train = tt_svd(values)
    assert train.ranks == (2, 2, 2, 2)
    assert relative_error(values, train) < 1e-13


def test_a_cutoff_and_a_rank_hold_together() -> None:
    assert tt_svd(HILBERT, 3, 1e-1).ranks == (2, 2, 2, 2) and tt_svd(HILBERT, 3, 1e-10).ranks == (3, 3, 3, 3)


def test_every_bond_takes_one_decomposition() -> None:
    with us.debug.count_kernels() as kernels:
        us.eval(list(tt_svd(us.tensor(normal((3, 4, 3, 4))), 2).cores))
    assert sum(count for op, count in kernels.by_op.items() if op == "space_factors") == 3


def test_the_cores_of_tt_svd_are_orthonormal_to_the_left() -> None:
    for core in tt_svd(normal((3, 4, 3, 4), dtype=complex), 5).cores[:-1]:
        matrix = core.eval().reshape(-1, core.shape[2])
        np.testing.assert_allclose(matrix.conj().T @ matrix, np.eye(matrix.shape[1]), atol=1e-13)


@pytest.mark.parametrize("dtype", [float, complex])
def test_the_gradient_of_tt_svd_is_that_of_finite_differences(dtype: Any) -> None:
    data = normal((3, 2, 3, 2), 1, dtype)
    assert us.check_grad(lambda data: us.linalg.norm(data - tt_svd(data, 2).full()), data).ok


def test_equal_singular_values_are_a_matter_of_the_cut() -> None:
    data = us.tensor(rotated_diagonal([3.0, 3.0, 1.0, 1.0]))
    whole, cut = tt_svd(data, 2), tt_svd(data, 3)
    residual = us.sum((data - whole.full()) ** 2)
    assert float(residual) == pytest.approx(2.0, rel=1e-12)
    np.testing.assert_allclose(residual.grad(data).eval(), 2 * (data - whole.full()).eval(), atol=1e-12)
    assert tt_svd(data, 3, keep_multiplets=True).ranks == (2, 2)
    with pytest.raises(GaugeError, match="rank 3 cuts through equal singular values"):
        us.sum((data - cut.full()) ** 2).grad(data).eval()


# --- TT-ALS ----------------------------------------------------------------------------------------------------------


def test_sweeps_improve_on_tt_svd_down_to_what_is_possible() -> None:
    data = HILBERT[:6, :6, :6, :6, 0]
    for rank in (1, 2, 3):
        first, found = tt_svd(data, rank), tt_als(data, rank, tol=1e-15)
        error = relative_error(data, found.state)
        assert found.converged and found.state.ranks == (rank,) * 3
        assert max(tails(data, rank)) <= error < relative_error(data, first)
        assert all(after["fit"] >= before["fit"] - 1e-14 for before, after in pairwise(found.history))
        assert float(found.residual) ** 0.5 / np.linalg.norm(data) == pytest.approx(error, rel=1e-9)


def test_a_train_is_recovered_from_a_random_start() -> None:
    for seed in range(5):
        data = random_train((4, 3, 5, 2, 4), 3, seed=seed).full()
        found = tt_als(data, random_train((4, 3, 5, 2, 4), 3, seed=seed + 50), tol=1e-14)
        assert found.converged and float(found.fit) == pytest.approx(1.0, abs=1e-13)


def test_a_sweep_solves_a_least_squares_problem_for_each_core() -> None:
    """After a sweep the first core is the best one for the others: the residual has no part in what it can reach."""
    data = normal((3, 4, 3, 2), 5)
    state = tt_als(data, random_train((3, 4, 3, 2), 2, seed=1), tol=0.0, max_steps=1).state
    reach = state.cores[0].eval()
    rest = TensorTrain((np.eye(2)[None], *state.cores[1:])).full().eval().reshape(2, -1)
    best = np.linalg.lstsq(rest.T, data.reshape(3, -1).T, rcond=None)[0].T
    np.testing.assert_allclose(reach[0], best, atol=1e-12)
    for core in state.cores[1:]:
        matrix = core.eval().reshape(core.shape[0], -1)
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(len(matrix)), atol=1e-13)


@pytest.mark.parametrize("dtype", [float, complex])
def test_of_a_matrix_it_is_the_best_approximation(dtype: Any) -> None:
    data = normal((6, 5), 0, dtype)
    found = tt_als(data, random_train((6, 5), 2, seed=3, dtype=dtype), tol=1e-15, max_steps=500)
    u, s, vh = np.linalg.svd(data, full_matrices=False)
    np.testing.assert_allclose(found.state.full().eval(), (u[:, :2] * s[:2]) @ vh[:2], atol=1e-6)
    assert float(found.residual) == pytest.approx(np.sum(s[2:] ** 2), rel=1e-12)


@pytest.mark.parametrize("dtype", [float, complex])
def test_the_gradient_of_the_whole_loop_is_that_of_finite_differences(dtype: Any) -> None:
    data, start = normal((3, 2, 3, 2), 2, dtype), random_train((3, 2, 3, 2), 2, seed=4, dtype=dtype)
    assert us.check_grad(lambda data: tt_als(data, 2, tol=0.0, max_steps=2).fit, data).ok

    def from_start(data: us.Tensor, *start: us.Tensor) -> us.Tensor:
        return tt_als(data, start, tol=0.0, max_steps=2).fit

    assert us.check_grad(from_start, data, *us.eval(list(start.cores))).ok


@pytest.mark.parametrize("dtype", [float, complex])
def test_at_convergence_the_gradient_is_that_of_the_envelope_theorem(dtype: Any) -> None:
    data = us.tensor(random_train((4, 3, 4, 3), 2, seed=1).full().eval() + 0.3 * normal((4, 3, 4, 3), 9, dtype))
    found = tt_als(data, 2, tol=0.0, max_steps=60)
    expected = 2 * (data - found.state.full()).eval()
    np.testing.assert_allclose(found.residual.grad(data).eval(), expected, atol=1e-9)


def test_the_gradient_has_the_same_bits_within_a_tenth_of_the_memory() -> None:
    values, start = normal((5, 4, 6, 4)), us.eval(list(random_train((5, 4, 6, 4), 3).cores))

    def run() -> tuple[Any, ...]:
        data, train = us.tensor(values), TensorTrain([us.tensor(core) for core in start])
        found = tt_als(data, train, tol=0.0, max_steps=30)
        by_data, by_start = us.eval(found.fit.grad((data, train)))
        return by_data, *by_start.cores, found.fit.eval()

    same_bits_within_a_tenth(run)


# --- degenerate and bad input ----------------------------------------------------------------------------------------


def test_a_rank_that_the_data_do_not_fill_is_lowered() -> None:
    data = us.tensor(random_train((4, 3, 4), 2, seed=1).full().eval())
    found = tt_als(data, 3)
    assert found.state.ranks == (2, 2) and float(found.fit) == pytest.approx(1.0, abs=1e-14)
    assert np.max(np.abs(found.residual.grad(data).eval())) < 1e-12


def test_a_start_with_ranks_that_the_data_do_not_fill_has_values_but_no_gradient() -> None:
    data = us.tensor(random_train((4, 3, 4), 2, seed=1).full().eval())
    found = tt_als(data, random_train((4, 3, 4), 3))
    assert float(found.fit) == pytest.approx(1.0, abs=1e-14)
    with pytest.raises(RankError):
        found.residual.grad(data).eval()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tt_svd(np.full((2, 2), np.inf)), ArgumentError, "data must be finite"),
        (lambda: tt_svd(np.ones(3)), ArgumentError, "data must have two axes or more"),
        (lambda: tt_svd(np.ones((2, 2)), 0), ArgumentError, "rank must be at least 1, but is 0"),
        (lambda: tt_svd(np.ones((2, 2)), cutoff=-1.0), ArgumentError, "cutoff must be finite and not negative"),
        (lambda: tt_als(np.ones((2, 2)), 0), ArgumentError, "start, if it is a rank, must be at least 1"),
        (lambda: tt_als(np.ones((2, 2)), 1, tol="x"), ArgumentError, "tol must be a number, but is 'x'"),
        (lambda: tt_als(np.ones((2, 2)), random_train((2, 3), 1)), ShapeError, "shape (2, 3), but the data have shape"),
        (
            lambda: tt_als(np.ones((2, 2)), [np.ones((1, 2, 3)), np.ones((3, 2, 1))]),
            ArgumentError,
            "start[0] of shape (1, 2, 3) has a rank that the data cannot fill",
        ),
        (
            lambda: tt_als(np.ones((2, 2)), [1j * np.ones((1, 2, 1)), np.ones((1, 2, 1))]),
            ArgumentError,
            "start[0] is complex",
        ),
        (lambda: TensorTrain([np.ones((1, 2, 2)), np.ones((1, 2, 1))]), ShapeError, "do not make a train"),
        (lambda: TensorTrain([np.ones((2, 2))]), ShapeError, "must have the axes (left, index, right)"),
        (lambda: random_train((2, 2), 0), ArgumentError, "rank must be at least 1"),
    ],
)
def test_bad_arguments_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)
