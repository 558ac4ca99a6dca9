"""CP by alternating least squares, against a plain NumPy loop, closed forms and finite differences of the loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, BudgetError, DTypeError, RankError, ShapeError
from unspool.networks.als import CP, cp_als, random_cp

# --- what the loop is compared with -----------------------------------------------------------------------------------

LETTERS = "abcdef"


def plain_als(data: Any, factors: list[Any], sweeps: int, ridge: float = 0.0) -> list[Any]:
    """The textbook loop in NumPy: every contraction from the data themselves, nothing shared."""
    modes, rank = data.ndim, factors[0].shape[1]
    factors = list(factors)
    for _ in range(sweeps):
        for mode in range(modes):
            others = [m for m in range(modes) if m != mode]
            terms = ",".join(f"{LETTERS[m]}z" for m in others)
            moments = np.einsum(
                f"{LETTERS[:modes]},{terms}->z{LETTERS[mode]}",
                data,
                *[factors[m].conj() for m in others],
                optimize=True,
            )
            gram = reduce(np.multiply, [factors[m].conj().T @ factors[m] for m in others])
            factors[mode] = np.linalg.solve(gram + ridge * np.eye(rank), moments).T
    return factors


def dense(factors: list[Any]) -> Any:
    terms = ",".join(f"{LETTERS[m]}z" for m in range(len(factors)))
    return np.einsum(f"{terms}->{LETTERS[: len(factors)]}", *factors, optimize=True)


def noisy(shape: tuple[int, ...], rank: int = 2, seed: int = 0, dtype: Any = float) -> Any:
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype is complex else 0.0)
    return random_cp(shape, rank, seed=seed + 1, dtype=dtype).full().eval() + 0.3 * noise


def starting(shape: tuple[int, ...], rank: int = 2, seed: int = 7, dtype: Any = float) -> list[Any]:
    return [factor.eval() for factor in random_cp(shape, rank, seed=seed, dtype=dtype).factors]


def same_bits_within_a_tenth(run: Callable[[], tuple[Any, ...]]) -> None:
    """Run a whole program (fresh leaves, loop, gradient) within a tenth of what keeping everything takes."""
    run()
    expected = run()
    with us.memory("4GB") as everything:
        run()
    budget = everything.report().peak // 10
    # A few large steps may have no room in a tenth; then the least that works is taken. It grows as the loop goes on.
    for _ in range(20):
        try:
            with us.memory(budget) as tight:
                found = run()
            break
        except BudgetError as error:
            budget = max(error.least, budget + 1)
    assert budget <= everything.report().peak // 5 and tight.report().factor > 1
    for mine, other in zip(found, expected, strict=True):
        assert np.array_equal(mine, other)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3), (3, 4, 2, 3), (2, 3, 2, 3, 2), (9, 2, 3), (2, 3, 9)])
@pytest.mark.parametrize("dtype", [float, complex])
def test_sweeps_are_those_of_the_textbook(shape: tuple[int, ...], dtype: Any) -> None:
    data, start = noisy(shape, dtype=dtype), starting(shape, dtype=dtype)
    found = cp_als(data, start, tol=0.0, max_steps=3, ridge=0.1)
    for mine, other in zip(found.state.factors, plain_als(data, start, 3, ridge=0.1), strict=True):
        np.testing.assert_allclose(mine.eval(), other, rtol=1e-9, atol=1e-10)


def test_factors_are_recovered_from_random_starts() -> None:
    rng = np.random.default_rng(0)
    data = dense([rng.standard_normal((20, 5)) for _ in range(3)])
    for seed in range(100, 106):
        found = cp_als(data, 5, seed=seed, tol=1e-15, max_steps=3000)
        assert found.converged
        error = np.linalg.norm(data - found.state.full().eval()) / np.linalg.norm(data)
        assert error < 1e-7
        assert float(found.residual) == pytest.approx((error * np.linalg.norm(data)) ** 2, rel=1e-6)


@pytest.mark.parametrize("shape", [(4, 5, 3, 6), (3, 4, 3, 4, 3)])
def test_more_modes_are_recovered_as_well(shape: tuple[int, ...]) -> None:
    data = random_cp(shape, 3, seed=5).full()
    found = cp_als(data, 3, seed=1, tol=1e-15, max_steps=500)
    assert float(found.fit) == pytest.approx(1.0, abs=1e-13)


def test_the_residual_never_grows_and_history_has_what_the_state_says() -> None:
    data = noisy((6, 5, 4), seed=3)
    seen: list[tuple[int, float, dict[str, float]]] = []

    def watch(step: int, state: CP, values: dict[str, float]) -> None:
        seen.append((step, float(np.linalg.norm(data - state.full().eval())), values))

    found = cp_als(data, 3, tol=1e-9, on_step=watch)
    norm = np.linalg.norm(data)
    assert [step for step, _, _ in seen] == list(range(1, found.steps + 1))
    assert [values for _, _, values in seen] == list(found.history)
    for _, residual, values in seen:
        assert values["error"] == pytest.approx(residual / norm, abs=1e-7)
        assert values["fit"] == pytest.approx(1 - (residual / norm) ** 2, abs=1e-12)
    residuals = [residual for _, residual, _ in seen]
    assert all(after <= before * (1 + 1e-12) for before, after in pairwise(residuals))
    assert found.converged and found.history[-1]["change"] < 1e-9
    assert float(found.fit) == pytest.approx(found.history[-1]["fit"], abs=1e-12)


def test_a_loop_that_was_stopped_says_so() -> None:
    found = cp_als(noisy((6, 5, 4)), 2, tol=1e-12, max_steps=2)
    assert found.steps == 2 and not found.converged and len(found.history) == 2


def test_an_exception_of_on_step_passes_through() -> None:
    def stop(step: int, state: Any, values: dict[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cp_als(noisy((6, 5, 4)), 2, tol=0.0, on_step=stop)


def test_of_a_matrix_it_finds_the_singular_values() -> None:
    data = np.random.default_rng(2).standard_normal((7, 5))
    found = cp_als(data, 2, tol=1e-15, max_steps=500)
    assert float(found.residual) == pytest.approx(np.sum(np.linalg.svd(data)[1][2:] ** 2), rel=1e-10)


def test_the_best_single_term_of_a_symmetric_tensor_is_its_largest_weight() -> None:
    """Σ λ_r q_r ⊗ q_r ⊗ q_r with orthonormal q: the best single term is that of the largest λ, within its basin."""
    vectors = np.linalg.qr(np.random.default_rng(4).standard_normal((4, 4)))[0]
    data = dense([vectors * [3.0, 1.0, 0.5, 0.2], vectors, vectors])
    found = cp_als(data, [vectors[:, :1] + 0.2 * vectors[:, 1:2]] * 3, tol=1e-16)
    assert float(found.residual) == pytest.approx(1.0 + 0.25 + 0.04, rel=1e-12)
    weights, unit = found.state.normalised()
    assert weights.eval() == pytest.approx([3.0], rel=1e-12)
    assert [abs(vectors[:, 0] @ factor.eval()[:, 0]) for factor in unit.factors] == pytest.approx([1.0] * 3)


def test_single_precision_stays_single() -> None:
    found = cp_als(noisy((5, 4, 3)).astype(np.float32), 2, tol=1e-5)
    assert {factor.dtype for factor in found.state.factors} == {np.dtype(np.float32)} and found.fit.dtype == np.float32


def test_integers_are_data_too() -> None:
    assert float(cp_als(np.indices((3, 4, 5)).sum(axis=0), 1, tol=1e-12).fit) > 0.9


# --- work ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4), (4, 5, 3, 4), (3, 4, 3, 2, 3), (2, 3, 2, 3, 2, 3)])
def test_a_sweep_multiplies_the_data_twice_however_many_modes_there_are(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, start = noisy(shape), starting(shape)
    large = 0
    count = us.debug.KernelCounts.after

    def after(self: Any, node: Any, arguments: Any, value: Any, call: Any = None) -> None:
        nonlocal large
        large += node.op.name == "contract" and any(np.size(argument) == data.size for argument in arguments)
        count(self, node, arguments, value, call)

    def contractions(sweeps: int) -> tuple[int, int]:
        nonlocal large
        large = 0
        with us.debug.count_kernels() as kernels:
            cp_als(data, start, tol=0.0, max_steps=sweeps)
        return large, kernels["contract"]

    monkeypatch.setattr(us.debug.KernelCounts, "after", after)
    (one, all_one), (four, all_four) = contractions(1), contractions(4)
    assert four - one == 3 * 2
    # Of the small ones, a Gram matrix for each mode, one contraction for each edge of the tree below its two halves,
    # and at most as many products of columns.
    modes = len(shape)
    assert (all_four - all_one) // 3 <= 2 + modes + 2 * (2 * modes - 4) + 2


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 3), (3, 4, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("dtype", [float, complex])
def test_the_gradient_of_the_whole_loop_is_that_of_finite_differences(shape: tuple[int, ...], dtype: Any) -> None:
    data, start = noisy(shape, dtype=dtype), starting(shape, dtype=dtype)

    def fit(data: us.Tensor, *start: us.Tensor) -> us.Tensor:
        return cp_als(data, start, tol=0.0, max_steps=3, ridge=0.05).fit

    assert us.check_grad(fit, data, *start).ok


def test_the_second_derivative_goes_through_the_loop_too() -> None:
    start = starting((2, 3, 2), 1)
    assert us.check_grad(lambda data: cp_als(data, start, tol=0.0, max_steps=2).residual, noisy((2, 3, 2)), order=2).ok


def test_the_ridge_can_be_differentiated_in() -> None:
    data, start = noisy((4, 3, 3)), starting((4, 3, 3))
    assert us.check_grad(lambda ridge: cp_als(data, start, tol=0.0, max_steps=4, ridge=ridge).fit, 0.3).ok


@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_at_convergence_the_gradient_is_that_of_the_envelope_theorem(ridge: float) -> None:
    """At a minimum over the factors, d/dX (‖X - X̂‖² + ridge Σ‖F‖²) = 2 (X - X̂), and the start no longer matters."""
    data, start = us.tensor(noisy((6, 5, 4), seed=2)), random_cp((6, 5, 4), 2, seed=3)
    found = cp_als(data, start, tol=0.0, max_steps=1000, ridge=ridge)
    penalty = sum((us.sum(factor * factor) for factor in found.state.factors), us.zeros(()))
    by_data, by_start = us.eval((found.residual + ridge * penalty).grad((data, start)))
    np.testing.assert_allclose(by_data, 2 * (data - found.state.full()).eval(), atol=1e-10)
    for part in by_start.factors:
        np.testing.assert_allclose(part, 0.0, atol=1e-10)


def test_at_an_exact_fit_the_gradient_vanishes() -> None:
    data = us.tensor(random_cp((5, 4, 3), 2, seed=1).full().eval())
    found = cp_als(data, 2, tol=0.0, max_steps=100)
    assert np.max(np.abs(found.residual.grad(data).eval())) < 1e-12


def test_the_gradient_has_the_same_bits_within_a_tenth_of_the_memory() -> None:
    values, start = noisy((12, 11, 10)), starting((12, 11, 10))

    def run() -> tuple[Any, ...]:
        data, factors = us.tensor(values), CP([us.tensor(factor) for factor in start])
        found = cp_als(data, factors, tol=0.0, max_steps=40)
        by_data, by_start = us.eval(found.fit.grad((data, factors)))
        return by_data, *by_start.factors, found.fit.eval()

    same_bits_within_a_tenth(run)


# --- without negative entries ----------------------------------------------------------------------------------------


def test_nonnegative_factors_are_recovered() -> None:
    rng = np.random.default_rng(3)
    truth = [rng.random((size, 3)) * (rng.random((size, 3)) > 0.3) for size in (8, 7, 6)]
    found = cp_als(dense(truth), 3, nonnegative=True, tol=1e-14, max_steps=3000)
    assert min(float(us.min(factor)) for factor in found.state.factors) == 0.0
    assert float(found.fit) == pytest.approx(1.0, abs=1e-9)


def test_nonnegative_factors_end_where_the_optimality_conditions_hold() -> None:
    """At a minimum over F ≥ 0 the slope is ≥ 0, and 0 where F > 0."""
    data = us.tensor(np.random.default_rng(5).standard_normal((6, 5, 4)) + 0.5)
    found = cp_als(data, 3, nonnegative=True, tol=0.0, max_steps=2000)
    factors = [us.tensor(factor.eval()) for factor in found.state.factors]
    slopes = us.sum((data - CP(factors).full()) ** 2).grad(factors)
    for factor, slope in zip(factors, slopes, strict=True):
        assert np.max(np.abs(np.minimum(factor.eval(), slope.eval()))) < 1e-6
    assert any(np.any(factor.eval() == 0) for factor in factors)


def test_the_gradient_of_the_nonnegative_loop_is_that_of_finite_differences() -> None:
    data = np.random.default_rng(6).random((4, 3, 3))
    start = [factor.eval() for factor in random_cp((4, 3, 3), 2, seed=2, nonnegative=True).factors]

    def fit(data: us.Tensor, *start: us.Tensor) -> us.Tensor:
        return cp_als(data, start, nonnegative=True, tol=0.0, max_steps=5, ridge=0.01).fit

    assert us.check_grad(fit, data, *start).ok


def test_a_term_that_vanishes_does_no_harm() -> None:
    start = [factor.eval().copy() for factor in random_cp((4, 3, 3), 2, nonnegative=True).factors]
    start[1][:, 1] = start[2][:, 1] = 0.0
    data = us.tensor(np.random.default_rng(6).random((4, 3, 3)))
    found = cp_als(data, start, nonnegative=True, tol=0.0, max_steps=5)
    assert np.all(np.isfinite(found.residual.grad(data).eval()))


# --- degenerate and bad input ----------------------------------------------------------------------------------------


def test_dependent_terms_are_named_and_a_ridge_helps() -> None:
    data, twins = noisy((5, 4, 3)), [np.ones((size, 2)) for size in (5, 4, 3)]
    with pytest.raises(RankError, match="in sweep 1 of cp_als, the terms .*linearly dependent.*ridge > 0"):
        cp_als(data, twins)
    assert float(cp_als(data, twins, ridge=1e-3).fit) > 0.5


def test_a_matrix_has_no_more_terms_than_columns() -> None:
    with pytest.raises(RankError, match="the terms without mode 1 are linearly dependent"):
        cp_als(np.random.default_rng(0).standard_normal((5, 7)), 6)


def test_terms_of_different_size_are_not_dependent() -> None:
    truth = [factor.eval() for factor in random_cp((5, 4, 3), 2, seed=2).factors]
    truth[1] = truth[1] * [1e-5, 1.0]
    found = cp_als(dense(truth), [factor * (1 + 1e-3 * np.eye(len(factor), 2)) for factor in truth], tol=0.0)
    weights = CP(truth).normalised()[0].eval()
    np.testing.assert_allclose(found.state.normalised()[0].eval(), weights, rtol=1e-6)


def test_more_terms_than_the_data_have_fit_exactly() -> None:
    data = us.tensor(random_cp((6, 5, 4), 2, seed=3).full().eval())
    found = cp_als(data, 4, tol=1e-13)
    assert found.converged and float(found.fit) == pytest.approx(1.0, abs=1e-14)
    assert np.max(np.abs(found.residual.grad(data).eval())) < 1e-12


def test_zeros_are_explained_by_zero() -> None:
    zeros = us.tensor(np.zeros((3, 4, 5)))
    for options in ({"ridge": 0.1}, {"nonnegative": True}):
        found = cp_als(zeros, 2, **options)  # type: ignore[arg-type]
        assert float(found.fit) == 1.0 and not np.any(found.residual.grad(zeros).eval())
    with pytest.raises(RankError, match="ridge > 0"):
        cp_als(zeros, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[1.0, np.nan]], 1), ArgumentError, "data must be finite, but 1 of its entries are not; the first is [0, 1]"),
        (([1.0, 2.0], 1), ArgumentError, "data must have two axes or more, but has shape (2,)"),
        ((np.ones((0, 2)), 1), ArgumentError, "data must not be empty"),
        ((np.ones((2, 2)), 0), ArgumentError, "start, if it is a rank, must be at least 1, but is 0"),
        ((np.ones((2, 2)), 1.5), ArgumentError, "must be an integer, but is 1.5"),
        (
            (np.ones((2, 2)), [np.ones((2, 1)), np.ones((3, 1))]),
            ShapeError,
            "shape (2, 3), but the data have shape (2, 2)",
        ),
        ((np.ones((2, 2)), [np.ones((2, 1)), np.ones((2, 2))]), ShapeError, "the same number of columns"),
        ((np.ones((2, 2)), [np.ones((2, 0)), np.ones((2, 0))]), ArgumentError, "its rank is 0"),
        ((np.ones((2, 2)), [np.ones((2, 1)), [[1.0], [np.inf]]]), ArgumentError, "start[1] must be finite"),
        ((np.ones((2, 2)), [np.ones((2, 1)), 1j * np.ones((2, 1))]), ArgumentError, "start[1] is complex"),
        ((np.array(["a", "b"]), 1), DTypeError, "not supported"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        cp_als(*arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": -1.0}, "tol must be finite and not negative"),
        ({"ridge": np.nan}, "ridge must be finite"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        (
            {"nonnegative": True, "start": [-np.ones((2, 1)), np.ones((2, 1))]},
            "the start must be ≥ 0, but start[0] has -1",
        ),
        ({"nonnegative": True, "data": 1j * np.ones((2, 2))}, "needs real data"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        cp_als(**({"data": np.ones((2, 2)), "start": 1} | options))
    assert message in str(caught.value)


def test_a_decomposition_without_factors_is_refused() -> None:
    with pytest.raises(ArgumentError, match="one factor or more"):
        CP(())
