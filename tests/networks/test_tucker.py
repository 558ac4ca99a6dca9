"""Tucker decompositions: HOSVD and HOOI against NumPy, Eckart–Young, and finite differences of the whole loop."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.networks.test_als import same_bits_within_a_tenth
from tests.networks.test_fitting import normal, rotated_diagonal
from unspool.errors import ArgumentError, GaugeError, ShapeError
from unspool.networks.tucker import Tucker, hooi, hosvd

# --- what is compared with -------------------------------------------------------------------------------------------


def low_rank(shape: tuple[int, ...], ranks: tuple[int, ...], seed: int = 0) -> Any:
    data = normal(ranks, seed)
    for mode, (size, rank) in enumerate(zip(shape, ranks, strict=True)):
        data = np.moveaxis(np.tensordot(normal((size, rank), seed + mode + 1), data, (1, mode)), 0, mode)
    return data


def plain_hooi(data: Any, ranks: tuple[int, ...], sweeps: int) -> list[Any]:
    """The projectors on the spaces of the textbook loop in NumPy, from the HOSVD."""

    def leading(tensor: Any, mode: int) -> Any:
        return np.linalg.svd(np.moveaxis(tensor, mode, 0).reshape(len(data.swapaxes(0, mode)), -1))[0][:, : ranks[mode]]

    bases = [leading(data, mode) for mode in range(data.ndim)]
    for _ in range(sweeps):
        for mode in range(data.ndim):
            block = data
            for other in range(data.ndim):
                if other != mode:
                    block = np.moveaxis(np.tensordot(bases[other].conj().T, block, (1, other)), 0, other)
            bases[mode] = leading(block, mode)
    return [basis @ basis.conj().T for basis in bases]


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "ranks"),
    [((5, 4), (2, 2)), ((5, 4, 6), (2, 3, 2)), ((3, 4, 3, 2), (2, 2, 2, 1)), ((3, 2, 3, 2, 2), (2, 1, 2, 1, 2))],
)
@pytest.mark.parametrize("dtype", [float, complex])
def test_spaces_are_those_of_the_textbook(shape: tuple[int, ...], ranks: tuple[int, ...], dtype: Any) -> None:
    data = normal(shape, 3, dtype)
    for state, projectors in [
        (hosvd(data, ranks), plain_hooi(data, ranks, 0)),
        (hooi(data, ranks, tol=0.0, max_steps=4).state, plain_hooi(data, ranks, 4)),
    ]:
        assert state.ranks == ranks and state.shape == shape
        for factor, projector in zip(us.eval(list(state.factors)), projectors, strict=True):
            np.testing.assert_allclose(factor.conj().T @ factor, np.eye(factor.shape[1]), atol=1e-12)
            np.testing.assert_allclose(factor @ factor.conj().T, projector, atol=1e-8)
        core = state.core.eval()
        assert np.linalg.norm(data - state.full().eval()) ** 2 == pytest.approx(
            np.linalg.norm(data) ** 2 - np.linalg.norm(core) ** 2
        )


def test_of_a_matrix_it_is_the_best_approximation() -> None:
    data = us.tensor(normal((6, 5)))
    found = hooi(data, 2)
    u, s, vh = np.linalg.svd(data.eval(), full_matrices=False)
    np.testing.assert_allclose(found.state.full().eval(), (u[:, :2] * s[:2]) @ vh[:2], atol=1e-12)
    assert float(found.residual) == pytest.approx(np.sum(s[2:] ** 2))


def test_data_of_low_rank_are_found_at_once_and_ranks_they_do_not_fill_are_left_out() -> None:
    data = us.tensor(low_rank((6, 5, 7), (2, 3, 2)))
    found = hooi(data, 4)
    assert found.state.ranks == (2, 3, 2) and found.converged and found.steps == 2
    assert float(found.residual) < 1e-24 * float(us.sum(data * data))
    assert np.max(np.abs(found.residual.grad(data).eval())) < 1e-10


def test_errors_lie_between_the_bounds_and_never_grow() -> None:
    """Each unfolding bounds the error from below, HOSVD is at most √N worse than the best, and HOOI improves on it."""
    data = 1.0 / (1.0 + np.indices((7, 6, 5)).sum(axis=0) ** 1.5)
    tails = [
        np.sqrt(np.sum(np.linalg.svd(np.moveaxis(data, mode, 0).reshape(data.shape[mode], -1))[1][2:] ** 2))
        for mode in range(3)
    ]
    first = float(us.linalg.norm(us.tensor(data) - hosvd(data, 2).full()))
    found = hooi(data, 2, tol=1e-14)
    best = float(found.residual) ** 0.5
    assert max(tails) <= best < first <= np.sqrt(np.sum(np.square(tails)))
    assert all(after["fit"] >= before["fit"] - 1e-14 for before, after in pairwise(found.history))
    assert found.history[-1]["error"] == pytest.approx(best / np.linalg.norm(data), abs=1e-7)


def test_a_start_of_ones_own_is_taken() -> None:
    data, start = normal((5, 4, 3), 1), [normal((size, 2), size) for size in (5, 4, 3)]
    found = hooi(data, 2, start=start, tol=1e-13, max_steps=500)
    again = hooi(data, 2, start=found.state, tol=1e-10)
    assert found.converged and again.steps == 2
    assert float(again.fit) == pytest.approx(float(found.fit), abs=1e-12)


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [float, complex])
def test_the_gradient_of_the_whole_loop_is_that_of_finite_differences(dtype: Any) -> None:
    data, start = normal((4, 3, 3), 2, dtype), [normal((size, 2), size, dtype) for size in (4, 3, 3)]
    assert us.check_grad(lambda data: hooi(data, 2, tol=0.0, max_steps=3).fit, data).ok

    def from_start(data: us.Tensor, *start: us.Tensor) -> us.Tensor:
        return hooi(data, 2, start=start, tol=0.0, max_steps=2).fit

    assert us.check_grad(from_start, data, *start).ok


def test_the_gradient_of_hosvd_is_that_of_finite_differences() -> None:
    assert us.check_grad(lambda data: us.sum((data - hosvd(data, 2).full()) ** 2), normal((4, 3, 3))).ok


@pytest.mark.parametrize("dtype", [float, complex])
def test_at_convergence_the_gradient_is_that_of_the_envelope_theorem(dtype: Any) -> None:
    data = us.tensor(low_rank((5, 4, 4), (2, 2, 2)) + 0.2 * normal((5, 4, 4), 9, dtype))
    found = hooi(data, 2, tol=0.0, max_steps=40)
    expected = 2 * (data - found.state.full()).eval()
    np.testing.assert_allclose(found.residual.grad(data).eval(), expected, atol=1e-9)


def test_a_start_that_cuts_through_equal_singular_values_has_no_gradient_unless_the_loop_forgets_it() -> None:
    # HOSVD has to choose between two vectors. HOOI goes on to the nearer one of two fits, which stand alone.
    data = us.tensor(rotated_diagonal([3.0, 3.0, 1.0, 0.5]))
    on_the_way, found = hooi(data, 1, max_steps=1), hooi(data, 1)
    with pytest.raises(GaugeError, match="rank 1 cuts through equal singular values"):
        on_the_way.residual.grad(data).eval()
    assert float(found.residual) == pytest.approx(10.25, rel=1e-12)
    expected = 2 * (data - found.state.full()).eval()
    np.testing.assert_allclose(found.residual.grad(data).eval(), expected, rtol=0, atol=1e-9)


def test_the_gradient_has_the_same_bits_within_a_tenth_of_the_memory() -> None:
    values, start = normal((8, 7, 6)), [normal((size, 2), size) for size in (8, 7, 6)]

    def run() -> tuple[Any, ...]:
        data, bases = us.tensor(values), [us.tensor(basis) for basis in start]
        found = hooi(data, 2, start=bases, tol=0.0, max_steps=30)
        by_data, by_start = us.eval(found.fit.grad((data, bases)))
        return by_data, *by_start, found.fit.eval()

    same_bits_within_a_tenth(run)


# --- degenerate and bad input ----------------------------------------------------------------------------------------


def test_ranks_that_the_data_do_not_fill_are_no_trouble_unless_the_open_part_of_a_basis_matters() -> None:
    data = us.tensor(low_rank((5, 4, 3), (2, 2, 2)))
    found = hooi(data, 3, start=[normal((size, 3), size) for size in (5, 4, 3)])
    assert float(found.fit) == pytest.approx(1.0, abs=1e-14)
    # The residual is zero, which is its least value: so is its slope.
    np.testing.assert_allclose(found.residual.grad(data).eval(), 0.0, rtol=0, atol=1e-12)
    basis = found.state.factors[0]
    with pytest.raises(GaugeError, match="rank 3 cuts through equal singular values"):
        us.sum(normal((5, 5)) * (basis @ basis.mT)).grad(data).eval()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((np.full((2, 2), np.nan), 1), {}, ArgumentError, "data must be finite"),
        ((np.ones((3, 3)), 0), {}, ArgumentError, "rank[0] must be at least 1, but is 0"),
        ((np.ones((3, 3)), 4), {}, ArgumentError, "rank[0] is 4, but the mode has size 3"),
        ((np.ones((3, 3, 3)), (3, 1, 1)), {}, ArgumentError, "rank[0] is 3, more than the product 1 of the others"),
        ((np.ones((3, 3)), (1, 1, 1)), {}, ArgumentError, "one entry for each of the 2 modes"),
        ((np.ones((3, 3)), 1), {"max_steps": 0}, ArgumentError, "max_steps must be at least 1"),
        ((np.ones((3, 3)), 1), {"tol": np.inf}, ArgumentError, "tol must be finite"),
        ((np.ones((3, 3)), 1), {"start": [np.ones((3, 1))]}, ShapeError, "the bases to start from must have shapes"),
        ((np.ones((3, 3)), 1), {"start": [1j * np.ones((3, 1))] * 2}, ArgumentError, "start[0] is complex"),
    ],
)
def test_bad_arguments_are_named(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        hooi(*arguments, **options)
    assert message in str(caught.value)


def test_factors_that_do_not_fit_their_core_are_refused() -> None:
    with pytest.raises(ShapeError, match="do not fit a core of shape"):
        Tucker(np.ones((2, 2)), (np.ones((3, 2)), np.ones((3, 1))))
