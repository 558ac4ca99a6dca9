"""Sinkhorn's iteration: closed forms, a plain NumPy loop in the log domain, finite differences, degenerate masses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import unspool as us
from unspool.errors import ArgumentError, BudgetError, ShapeError
from unspool.networks.transport import sinkhorn, soft_transform

DERIVATIVES = ("unrolled", "implicit")


def problem(m: int, n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Random places in the unit square with random masses; the cost is the squared distance."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(size=(m, 2)), rng.uniform(size=(n, 2))
    a, b = rng.uniform(0.5, 1.5, m), rng.uniform(0.5, 1.5, n)
    return np.sum((x[:, None] - y) ** 2, axis=-1), a / a.sum(), b / b.sum()


def log_domain_loop(c: Any, a: Any, b: Any, eps: float, steps: int) -> tuple[Any, Any, Any]:
    """The textbook iteration: potentials, and a log-sum-exp over the matrix in each half step."""
    g = np.zeros(len(b))
    for _ in range(steps):
        f = -eps * logsumexp((g - c) / eps, b=b, axis=1)
        g = -eps * logsumexp((f[:, None] - c) / eps, b=a[:, None], axis=0)
    return f, g, a[:, None] * np.exp((f[:, None] + g - c) / eps) * b


# --- closed forms ----------------------------------------------------------------------------------------------------


def two_by_two(eps: us.Tensor, derivative: str = "unrolled") -> Any:
    half = [0.5, 0.5]
    return sinkhorn([[0.0, 1.0], [1.0, 0.0]], half, half, regularisation=eps, derivative=derivative)  # type: ignore[arg-type]


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("width", [2.0, 1.0, 0.3, 0.05])
def test_two_places_have_the_plan_of_the_closed_form_and_its_slope(width: float, derivative: str) -> None:
    eps = us.tensor(width)
    found = two_by_two(eps, derivative)
    np.testing.assert_allclose(float(found.plan[0, 0]), 1 / (2 * (1 + np.exp(-1 / width))), rtol=1e-14)
    np.testing.assert_allclose(float(found.cost), 1 / (1 + np.exp(1 / width)), rtol=1e-13)
    q = np.exp(-1 / width)  # the cost is q / (1 + q)
    np.testing.assert_allclose(float(found.cost.grad(eps)), q / (1 + q) ** 2 / width**2, rtol=1e-12)


def test_two_places_have_the_digits_that_are_published() -> None:
    assert round(float(two_by_two(us.tensor(1.0)).plan[0, 0]), 10) == 0.3655292893


def test_two_places_have_the_second_derivative_of_the_closed_form() -> None:
    eps = us.tensor(0.7)
    second = float(two_by_two(eps).cost.grad(eps).grad(eps))
    q = np.exp(-1 / 0.7)
    expected = q / (1 + q) ** 2 / 0.7**4 * ((1 - q) / (1 + q) - 1.4)
    np.testing.assert_allclose(second, expected, rtol=1e-11)


def test_two_gaussians_have_the_cost_of_the_closed_form_and_its_slope() -> None:
    """The plan is Gaussian, with the covariance c of x and y that minimises −2c − ε/2 log(1 − c²/(s²t²))."""
    x, s, t, width = np.linspace(-7.0, 7.0, 90), 1.0, 0.8, 0.5
    a, b = np.exp(-(x**2) / (2 * s**2)), np.exp(-(x**2) / (2 * t**2))
    eps = us.tensor(width)
    found = sinkhorn((x[:, None] - x) ** 2, a / a.sum(), b / b.sum(), regularisation=eps, tol=1e-12)
    root = np.sqrt(width**2 + 16 * s**2 * t**2)
    np.testing.assert_allclose(float(found.cost), s**2 + t**2 - (root - width) / 2, rtol=1e-10)
    np.testing.assert_allclose(float(found.cost.grad(eps)), (1 - width / root) / 2, rtol=1e-8)


# --- the loop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("eps", "steps"), [(0.1, 20), (5e-3, 60), (4e-4, 40)])
def test_scalings_relative_to_references_are_the_iteration_in_the_log_domain(eps: float, steps: int) -> None:
    c, a, b = problem(17, 23)
    found = sinkhorn(c, a, b, regularisation=eps, tol=0.0, max_steps=steps)
    f, g, plan = log_domain_loop(c, a, b, eps, steps)
    shift = g @ b
    np.testing.assert_allclose(found.plan.eval(), plan, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(found.state[0].eval(), f + shift, atol=1e-12)
    np.testing.assert_allclose(found.state[1].eval(), g - shift, atol=1e-12)
    assert (found.steps, found.converged) == (steps, False)


def test_references_move_when_potentials_have_moved_far() -> None:
    """A chain of places that mass has to be handed along: potentials move by more than any scaling can hold."""
    x = np.arange(12.0)
    c, eps = (x[:, None] - x) ** 2, 0.01
    a, b = np.r_[np.full(6, 1.0), np.full(6, 1e-3)], np.r_[np.full(6, 1e-3), np.full(6, 1.0)]
    C = us.tensor(c)
    with us.debug.count_kernels() as kernels:
        found = sinkhorn(C, a, b, regularisation=eps, tol=0.0, max_steps=60)
        plan = found.plan.eval()
    _, _, expected = log_domain_loop(c, a, b, eps, 60)
    assert kernels["max"] > 2  # one for each half step in the log domain: more than the first step
    np.testing.assert_allclose(plan, expected, rtol=1e-8, atol=1e-13)


def test_a_plan_has_the_columns_of_the_target_and_at_convergence_the_rows_of_the_source() -> None:
    c, a, b = problem(9, 14)
    found = sinkhorn(c, 3 * a, 3 * b, regularisation=0.02, tol=1e-13)
    assert found.converged
    np.testing.assert_allclose(us.sum(found.plan, axis=0).eval(), 3 * b, rtol=1e-12)
    np.testing.assert_allclose(us.sum(found.plan, axis=1).eval(), 3 * a, rtol=1e-9)


def test_single_places_and_single_precision_work() -> None:
    one = sinkhorn([[2.0]], [3.0], [3.0], regularisation=0.5)
    np.testing.assert_allclose(one.plan.eval(), [[3.0]], rtol=1e-14)
    row = sinkhorn([[1.0, 2.0, 0.0]], [1], [0.25, 0.25, 0.5], regularisation=0.5)
    np.testing.assert_allclose(row.plan.eval(), [[0.25, 0.25, 0.5]], rtol=1e-14)
    c, a, b = (x.astype(np.float32) for x in problem(6, 7))
    single = sinkhorn(c, a, b, regularisation=0.05, tol=1e-5)
    assert single.plan.dtype == np.float32
    _, _, expected = log_domain_loop(c.astype(float), a.astype(float), b.astype(float), 0.05, single.steps)
    np.testing.assert_allclose(single.plan.eval(), expected, atol=1e-5)


def test_every_step_is_reported_and_a_result_is_a_start() -> None:
    c, a, b = problem(8, 8)
    seen: list[tuple[int, Any, dict[str, float]]] = []
    found = sinkhorn(c, a, b, regularisation=0.05, on_step=lambda *given: seen.append(given))
    assert [step for step, _, _ in seen] == list(range(1, found.steps + 1))
    assert tuple(values for _, _, values in seen) == found.history
    f, g, plan = log_domain_loop(c, a, b, 0.05, 4)
    np.testing.assert_allclose(seen[3][1][0].eval(), f + g @ b, atol=1e-13)
    np.testing.assert_allclose(seen[4][2]["marginal"], np.abs(plan.sum(axis=1) - a).sum(), rtol=1e-9)
    np.testing.assert_allclose(seen[4][2]["change"], np.abs(log_domain_loop(c, a, b, 0.05, 5)[0] - f).max(), rtol=1e-9)
    again = sinkhorn(c, a, b, regularisation=0.05, start=found.state)
    assert again.steps <= 2
    np.testing.assert_allclose(again.plan.eval(), found.plan.eval(), rtol=1e-7)


# --- derivatives -----------------------------------------------------------------------------------------------------


def test_the_gradient_before_convergence_is_that_of_the_whole_loop() -> None:
    """Finite differences of five steps, in cost, both masses, regularisation and start; reverse and forward mode."""
    c, a, b = problem(4, 5)

    def loss(cost: Any, source: Any, target: Any, eps: Any, g: Any) -> us.Tensor:
        found = sinkhorn(
            cost,
            us.exp(source) / us.sum(us.exp(source)),  # moved so that the total mass stays
            us.exp(target) / us.sum(us.exp(target)),
            regularisation=eps,
            start=(np.zeros(4), g),
            tol=0.0,
            max_steps=5,
        )
        return found.cost + us.sum(found.state[0] ** 2) + us.sum(us.sin(found.plan))

    start = np.random.default_rng(1).normal(size=5) / 10
    assert us.check_grad(loss, c, np.log(a), np.log(b), 0.05, start).ok


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_at_convergence_the_gradient_of_the_objective_is_plan_potentials_and_entropy(derivative: str) -> None:
    c, a, b = problem(6, 5)
    C, A, B, eps = us.tensor(c), us.tensor(a), us.tensor(b), us.tensor(0.05)
    found = sinkhorn(C, A, B, regularisation=eps, tol=1e-14, derivative=derivative)  # type: ignore[arg-type]
    in_cost, in_source, in_target, in_eps = us.eval(found.objective.grad((C, A, B, eps)))
    plan, (f, g) = found.plan.eval(), us.eval(found.state)
    entropy = np.sum(plan * np.log(plan / np.outer(a, b)))
    np.testing.assert_allclose(float(found.objective), float(found.cost) + 0.05 * entropy, rtol=1e-12)
    np.testing.assert_allclose(in_cost, plan, atol=1e-10)
    np.testing.assert_allclose(in_source - in_source.mean(), f - f.mean(), atol=1e-9)
    np.testing.assert_allclose(in_target - in_target.mean(), g - g.mean(), atol=1e-9)
    np.testing.assert_allclose(in_eps, entropy, rtol=1e-8)


def test_unrolled_and_implicit_gradients_agree_at_convergence() -> None:
    c, a, b = problem(7, 6)
    weights = np.random.default_rng(2).normal(size=(7, 6))
    gradients = []
    for derivative in DERIVATIVES:
        C, A, B, eps = us.tensor(c), us.tensor(a), us.tensor(b), us.tensor(0.05)
        found = sinkhorn(C, A, B, regularisation=eps, tol=1e-14, derivative=derivative)
        loss = us.sum(weights * found.plan) + us.sum(found.state[0] ** 3) + us.sum(found.state[1] ** 2)
        gradients.append(us.eval(loss.grad((C, A, B, eps))))
    in_cost, in_source, in_target, in_eps = (x - y for x, y in zip(*gradients, strict=True))
    np.testing.assert_allclose(in_cost, 0.0, atol=1e-9)
    np.testing.assert_allclose(in_eps, 0.0, atol=1e-8)
    # Totals can only change together, so the gradients are open by a constant that one gets and the other loses.
    np.testing.assert_allclose(in_source, in_source[0], atol=1e-9)
    np.testing.assert_allclose(in_target, -in_source[0], atol=1e-9)


# --- places without mass ---------------------------------------------------------------------------------------------


def with_empty_places() -> tuple[Any, Any, Any]:
    c, a, b = problem(5, 6, seed=4)
    a[2], b[[0, 3]] = 0.0, 0.0
    return c, a / a.sum(), b / b.sum()


def test_places_without_mass_change_nothing_for_the_others() -> None:
    c, a, b = with_empty_places()
    rows, columns = np.flatnonzero(a), np.flatnonzero(b)
    found = sinkhorn(c, a, b, regularisation=0.05, tol=1e-13)
    reduced = sinkhorn(c[np.ix_(rows, columns)], a[rows], b[columns], regularisation=0.05, tol=1e-13)
    plan = found.plan.eval()
    np.testing.assert_allclose(plan[np.ix_(rows, columns)], reduced.plan.eval(), rtol=1e-9)
    assert plan[2].sum() == plan[:, [0, 3]].sum() == 0.0
    assert all(np.all(np.isfinite(potential.eval())) for potential in found.state)


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_the_slope_in_a_mass_of_zero_is_the_one_sided_derivative(derivative: str) -> None:
    c, a, b = with_empty_places()

    def cost(source: Any, target: Any) -> us.Tensor:
        return sinkhorn(c, source, target, regularisation=0.1, tol=1e-14, derivative=derivative).cost  # type: ignore[arg-type]

    A, B = us.tensor(a), us.tensor(b)
    in_source, in_target = us.eval(cost(A, B).grad((A, B)))
    to_source, to_target, h = np.zeros(5), np.zeros(6), 1e-4
    to_source[[2, 1]], to_target[[3, 1]] = (1.0, -1.0), (1.0, -1.0)
    values = [float(cost(a + k * h * to_source, b + k * h * to_target)) for k in range(4)]
    one_sided = (-11 * values[0] + 18 * values[1] - 9 * values[2] + 2 * values[3]) / (6 * h)
    np.testing.assert_allclose(in_source @ to_source + in_target @ to_target, one_sided, rtol=1e-6)


def test_cheap_ways_between_empty_places_overflow_nothing() -> None:
    """Two empty places lie together, far from all mass: their entry of the kernel is larger than any number."""
    x = np.array([0.0, 0.3, 50.0])
    C, A, B = us.tensor((x[:, None] - x) ** 2), us.tensor([0.5, 0.5, 0.0]), us.tensor([0.4, 0.6, 0.0])
    found = sinkhorn(C, A, B, regularisation=0.1)
    for gradient in us.eval(found.cost.grad((C, A, B))):
        assert np.all(np.isfinite(gradient))
    np.testing.assert_allclose(us.sum(found.plan).eval(), 1.0, rtol=1e-12)


def test_half_a_step_is_a_smooth_minimum_over_places_with_mass() -> None:
    c, _, b = with_empty_places()
    g = np.random.default_rng(0).normal(size=6)
    eps = us.tensor(0.03)
    found = soft_transform(us.tensor(c), us.tensor(b), us.tensor(g), eps).eval()
    np.testing.assert_allclose(found, -0.03 * logsumexp((g - c) / 0.03, b=b, axis=1), rtol=1e-13)


# --- memory ----------------------------------------------------------------------------------------------------------


def gradient_within(budget: Any, size: int, steps: int) -> tuple[Any, int]:
    c, a, b = problem(size, size)
    with us.memory(budget) as memory:
        C = us.tensor(c)
        found = sinkhorn(C, a, b, regularisation=5e-3, tol=0.0, max_steps=steps)
        values = found.cost.grad(C).eval()
    return values, memory.report().peak


def test_all_steps_take_a_tenth_of_the_memory_of_one_matrix_for_each_half_step() -> None:
    _, peak = gradient_within("4GB", 160, 200)
    assert peak < 0.1 * 200 * 2 * 160 * 160 * 8


def least_that_works(size: int, steps: int) -> tuple[Any, int, int, int]:
    """Gradient, budget and peak with a tenth of the memory or, where that is refused, the least that is not."""
    _, everything = gradient_within("4GB", size, steps)
    budget = everything // 10
    while True:
        try:
            values, peak = gradient_within(budget, size, steps)
            return values, budget, peak, everything
        except BudgetError as error:
            budget = max(error.least, budget * 9 // 8)


def test_a_budget_below_what_all_steps_take_gives_the_same_bits() -> None:
    """Steps hold vectors only, and the kernel beside them is more than a tenth of the whole."""
    gradient_within("4GB", 40, 400)
    expected, _ = gradient_within("4GB", 40, 400)
    values, budget, _, everything = least_that_works(40, 400)
    assert budget < 0.5 * everything
    assert np.array_equal(values, expected)


def test_the_peak_stays_within_the_budget() -> None:
    gradient_within("4GB", 40, 400)
    _, budget, peak, _ = least_that_works(40, 400)
    assert peak <= budget


# --- what is refused -------------------------------------------------------------------------------------------------


def test_masses_that_make_no_sense_are_refused() -> None:
    c = np.zeros((2, 2))
    with pytest.raises(ArgumentError, match=r"source must not be negative, but source\[1\] is -0.5"):
        sinkhorn(c, [1.5, -0.5], [0.5, 0.5], regularisation=1.0)
    with pytest.raises(ArgumentError, match="same positive total mass, but have 1.0 and 1.5"):
        sinkhorn(c, [0.5, 0.5], [0.5, 1.0], regularisation=1.0)
    with pytest.raises(ArgumentError, match="same positive total mass, but have 0.0 and 0.0"):
        sinkhorn(c, [0.0, 0.0], [0.0, 0.0], regularisation=1.0)
    with pytest.raises(ArgumentError, match="target must be finite"):
        sinkhorn(c, [0.5, 0.5], [0.5, np.nan], regularisation=1.0)


def test_costs_and_settings_that_make_no_sense_are_refused() -> None:
    c, half = np.ones((2, 2)), [0.5, 0.5]
    with pytest.raises(ArgumentError, match=r"cost must be finite, .* the first is \[0, 1\]"):
        sinkhorn([[0.0, np.nan], [1.0, 0.0]], half, half, regularisation=1.0)
    with pytest.raises(ShapeError, match=r"\(2, 3\), but has shape \(2, 2\)"):
        sinkhorn(c, half, [0.2, 0.3, 0.5], regularisation=1.0)
    for width in (0.0, -1.0, 1e-20):
        with pytest.raises(ArgumentError, match="regularisation must be greater than 0"):
            sinkhorn(c, half, half, regularisation=width)
    with pytest.raises(ArgumentError, match="derivative must be"):
        sinkhorn(c, half, half, regularisation=1.0, derivative="none")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="max_steps must be at least 1"):
        sinkhorn(c, half, half, regularisation=1.0, max_steps=0)
    with pytest.raises(ShapeError, match="start must have shapes"):
        sinkhorn(c, half, half, regularisation=1.0, start=(half, [0.0, 0.0, 0.0]))
    with pytest.raises(ArgumentError, match="must be real"):
        sinkhorn(c * 1j, half, half, regularisation=1.0)
