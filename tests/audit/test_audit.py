"""Audits of gradients, beside closed forms: what is found, and what the verdict is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._audit.loops import find_loops
from unspool._audit.recipe import Recipe
from unspool._audit.report import Audit, Difference, Finding, rate_of
from unspool._engine.folding.fold_queue import FEWEST_LONG
from unspool.errors import ArgumentError, NotConnectedError, StructureError

RATE = 0.9


def geometric(tol: float, **options: Any) -> tuple[us.Tensor, us.Tensor]:
    """Return x ← a·x + 1 until it moves by less than a tolerance, and a: it tends to 1 / (1 - a)."""
    a = us.tensor(RATE)
    x, _ = us.iterate(lambda x: a * x + 1.0, us.tensor(0.0), until=lambda new, old: abs(new - old) < tol, **options)
    return x, a


# --- differences -----------------------------------------------------------------------------------------------------


def test_a_recipe_is_evaluated_elsewhere_without_the_values_that_it_has() -> None:
    x, y = us.tensor([1.0, 2.0]), us.tensor(3.0)
    loss = us.sum(us.sin(x) * y)
    loss.eval()
    assert Recipe(loss, [x, y])([np.array([0.5, 0.25]), np.array(2.0)]) == pytest.approx(
        2.0 * (np.sin(0.5) + np.sin(0.25)), rel=1e-14
    )
    assert float(loss) == pytest.approx(3.0 * (np.sin(1.0) + np.sin(2.0)), rel=1e-14)


@pytest.mark.parametrize("kind", ["plain", "folded", "iterate", "checkpointed"])
def test_a_loop_is_evaluated_elsewhere_with_the_steps_that_it_had(kind: str) -> None:
    a, steps = us.tensor(0.5), 100 if kind == "folded" else 12
    if kind in ("plain", "folded"):
        x = us.tensor(0.0)
        for _ in range(steps):
            x = us.cos(a * x)
            float(x)
    else:
        adjoint = us.Checkpointed(slots=3) if kind == "checkpointed" else us.Unrolled()
        x, _ = us.iterate(lambda x: us.cos(a * x), us.tensor(0.0), max_steps=steps, adjoint=adjoint)
    expected = 0.0
    for _ in range(steps):
        expected = np.cos(0.8 * expected)
    assert Recipe(x, [a])([np.array(0.8)]) == pytest.approx(expected, rel=1e-12)


def test_a_wrong_derivative_is_found() -> None:
    wrong = us.custom_vjp(lambda x: us.sin(x))
    wrong.defvjp(lambda x: (us.sin(x), x), lambda x, ct: (ct * us.cos(x) * 1.01,))
    x = us.tensor([0.3, 0.7])
    report = us.audit(us.sum(wrong(x)), x)
    assert not report.ok
    assert report.verdict.startswith("Do not trust this gradient: differences of the recipe are off by")
    assert 0.005 < report.error < 0.02


def test_a_right_derivative_is_trusted_and_the_numbers_are_there() -> None:
    x = us.tensor([0.3, 0.7])
    report = us.audit(us.sum(us.exp(x)), x, directions=3)
    assert report.ok and report.error < 1e-8
    assert report.loss == pytest.approx(np.exp(0.3) + np.exp(0.7))
    assert report.norm == pytest.approx(np.hypot(np.exp(0.3), np.exp(0.7)))
    assert len(report.differences) == 3
    for d in report.differences:
        assert abs(d.gradient - d.difference) <= 10 * d.error + 1e-9 * d.scale


def test_a_kink_that_is_close_is_found() -> None:
    x = us.tensor([1.0, 1e-9])
    assert us.audit(us.sum(us.abs(x[:1])), x).ok
    assert not us.audit(us.sum(us.abs(x)), x).ok


def test_complex_variables_and_nested_ones_are_taken() -> None:
    z = {"a": us.tensor([1.0 + 2.0j, 0.5j]), "b": us.tensor(2.0)}
    assert us.audit(us.sum(us.abs(z["a"]) ** 2) * z["b"], z).ok


# --- loops -----------------------------------------------------------------------------------------------------------


def test_a_derivative_that_lags_behind_the_value_is_found_and_sized() -> None:
    x, a = geometric(1e-7)
    report = us.audit(x, a)
    assert not report.ok
    limit = 1 / (1 - RATE) ** 2
    truth = abs(float(x.grad(a)) - limit) / limit
    assert report.error == pytest.approx(truth, rel=0.1)
    [loop] = report.loops
    assert loop.derivative_left == pytest.approx(truth, rel=0.2)
    assert loop.value_left == pytest.approx(abs(float(x) - 10.0) / 10.0, rel=0.2)
    assert loop.value_rate == pytest.approx(RATE, rel=0.01)
    assert loop.derivative_left > 10 * loop.value_left


def test_a_loop_that_went_on_until_its_derivative_stood_still_is_trusted() -> None:
    x, a = geometric(1e-7, derivative_tol=1e-11)
    report = us.audit(x, a)
    assert report.ok, report
    assert report.loops[0].other_difference < 1e-7


@pytest.mark.parametrize("read", [True, False])
def test_a_plain_loop_is_found_as_steps_of_one_program(read: bool) -> None:
    a = us.tensor(RATE)
    x = us.tensor(0.0)
    for _ in range(170):
        x = a * x + 1.0
        if read:
            float(x)
    report = us.audit(x, a)
    truth = abs(float(x.grad(a)) - 100.0) / 100.0
    [loop] = report.loops
    assert loop.derivative_left == pytest.approx(truth, rel=0.3)
    assert "test_audit.py" in loop.source


def test_a_fixed_point_is_compared_with_plain_steps_from_it() -> None:
    a = us.tensor(0.9)
    x, _ = us.fixed_point(lambda x: us.cos(a * x), 1.0)
    report = us.audit(x * x, a)
    assert report.ok
    assert report.loops[0].kind == "us.fixed_point" and report.loops[0].accelerated
    assert report.loops[0].other_difference < 1e-8


def test_a_fixed_point_that_is_claimed_and_is_none_is_found() -> None:
    a = us.tensor(0.9)
    x, _ = us.iterate(lambda x: us.cos(a * x), 1.0, max_steps=7, adjoint=us.Implicit(check=None))
    report = us.audit(x, a)
    assert not report.ok
    assert report.loops[0].other_difference > 1e-3


def test_a_loop_that_was_not_run_to_its_limit_says_so_and_is_no_mistake() -> None:
    a = us.tensor(RATE)
    x, _ = us.iterate(lambda x: a * x + 1.0, us.tensor(0.0), max_steps=20)
    report = us.audit(x, a)
    assert report.ok
    assert "was not run to its limit" in str(report)


def test_states_that_are_given_are_followed_instead_of_what_is_found() -> None:
    a = us.tensor(RATE)
    x, states = us.tensor(0.0), []
    for _ in range(150):
        x = a * x + 1.0
        states.append(x)
    report = us.audit(x, a, states=states)
    assert report.loops[0].steps == 150
    assert report.loops[0].derivative_rate == pytest.approx(RATE, rel=0.02)


def test_loops_of_no_interest_are_left_alone() -> None:
    x = us.tensor([1.0, 2.0])
    assert find_loops(us.sum(us.sin(x)), [x]) == []


# --- truncations and gaps --------------------------------------------------------------------------------------------


def matrix(values: list[float], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    n = len(values)
    u, v = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return u @ np.diag(values) @ v


@pytest.mark.parametrize("by", ["low_rank", "truncated_svd"])
def test_what_a_truncation_drops_of_value_and_derivative(by: str) -> None:
    data = matrix([3.0, 2.0, 0.1, 0.05])
    A = us.tensor(data)
    if by == "low_rank":
        low = us.linalg.low_rank(A, 2)
    else:
        U, S, Vh = us.linalg.truncated_svd(A, 2)
        low = (U * S) @ Vh
    report = us.audit(us.sum(low * np.arange(16.0).reshape(4, 4)), A)
    [cut] = report.truncations
    assert (cut.rank, cut.full) == (2, 4)
    assert cut.value_lost == pytest.approx(np.hypot(0.1, 0.05) / np.sqrt(9 + 4 + 0.01 + 0.0025), rel=1e-9)
    # The tangent of the best approximation, by differences of NumPy's.
    move = Recipe(us.sum(A), [A]).direction(0)[0]

    def cut_off(x: Any) -> Any:
        u, s, v = np.linalg.svd(x)
        return (u[:, :2] * s[:2]) @ v[:2]

    moved = (cut_off(data + 1e-5 * move) - cut_off(data - 1e-5 * move)) / 2e-5
    lost = np.linalg.norm(move - moved) / np.linalg.norm(move)
    assert cut.derivative_lost == pytest.approx(lost, rel=1e-5)


def test_the_gap_at_a_cut_is_told_beside_the_tolerance() -> None:
    A = us.tensor(matrix([3.0, 2.0, 2.0 - 3e-7, 0.05]))
    report = us.audit(us.sum(us.linalg.low_rank(A, 2) ** 2), A)
    [gap] = report.gaps
    assert gap.gap == pytest.approx(1e-7, rel=1e-3)
    assert gap.margin == pytest.approx(1e-7 / gap.tolerance, rel=1e-3)
    assert not report.ok and "costs digits" in str(report)


def test_a_gradient_that_is_refused_is_told_as_such() -> None:
    A = us.tensor(np.diag([2.0, 2.0, 1.0]))
    report = us.audit(us.sum(us.linalg.eigh(A)[1] * np.arange(9.0).reshape(3, 3)), A)
    assert not report.ok
    assert report.verdict.startswith("Do not trust this gradient: there is none:")


def test_truncations_inside_of_iterate_are_those_of_its_last_step() -> None:
    A = us.tensor(matrix([1.0, 0.8, 0.1]))

    def step(x: Any) -> Any:
        return us.linalg.low_rank(0.5 * x + A, 2)

    x, _ = us.iterate(step, A, max_steps=6)
    report = us.audit(us.sum(x * np.arange(9.0).reshape(3, 3)), A)
    assert [(cut.rank, cut.full) for cut in report.truncations] == [(2, 3)]


# --- the report ------------------------------------------------------------------------------------------------------


def test_a_report_is_text_a_table_in_a_notebook_and_data() -> None:
    x, a = geometric(1e-7)
    report = us.audit(x, a)
    assert str(report).splitlines()[0] == report.verdict
    assert report._repr_html_().startswith("<pre>Be careful")
    data = json.loads(report.to_json())
    assert data["ok"] is False and data["verdict"] == report.verdict
    assert data["loops"][0]["steps"] == report.loops[0].steps
    assert len(data["loops"][0]["derivative_changes"]) == report.loops[0].steps


def test_the_worst_finding_is_the_verdict() -> None:
    report = Audit(1.0, 1.0, 1e-6, findings=[Finding("good", 1e-9, "a"), Finding("doubtful", 1e-3, "b")])
    assert report.verdict == "Be careful with this gradient: b." and report.error == 1e-3
    report.findings.append(Finding("wrong", 1e-4, "c"))
    assert report.verdict == "Do not trust this gradient: c."


def test_a_difference_counts_beyond_its_own_error() -> None:
    assert Difference(1.0, 1.1, 0.2, 1.0).disagreement == 0.0
    assert Difference(1.0, 1.3, 0.1, 2.0).disagreement == pytest.approx(0.1)


def test_rates_leave_out_what_is_down_to_rounding() -> None:
    assert rate_of([0.5**k for k in range(80)]) == pytest.approx(0.5)
    assert rate_of([1.0, 0.0]) is None


def test_arguments_that_make_no_sense_are_refused() -> None:
    x = us.tensor(1.0)
    with pytest.raises(StructureError, match="the loss must be a tensor"):
        us.audit(1.0, x)
    with pytest.raises(ArgumentError, match="tol must be"):
        us.audit(x * x, x, tol=0.0)
    with pytest.raises(ArgumentError, match="directions must be"):
        us.audit(x * x, x, directions=0)
    with pytest.raises(ArgumentError, match="wrt has floating-point"):
        us.audit(x * x, us.tensor(1))
    with pytest.raises(ArgumentError, match="at least three states"):
        us.audit(x * x, x, states=[x])


def test_loops_in_each_other_are_followed_both() -> None:
    """The inner one comes to rest, and the outer one halves its distance in each step."""
    b, x = us.tensor(0.3), us.tensor(2.0)
    for _ in range(12):
        y = x
        for _ in range(15):
            y = us.cos(b * y)
            if float(us.abs(y)) > 100.0:
                break
        x = 0.5 * x + 0.5 * y
        float(x)
    found = us.audit(x * x, b)
    outer = next(loop for loop in found.loops if loop.steps == 12)
    assert outer.value_rate == pytest.approx(0.5, rel=1e-3)
    assert outer.derivative_rate == pytest.approx(0.5, rel=1e-3)
    assert {loop.steps for loop in found.loops} == {12, 180}


def test_a_loop_that_tends_to_no_limit_is_told_not_to_have_been_followed() -> None:
    k, x = us.tensor(0.5), us.tensor([1.0, 0.5])
    for _ in range(FEWEST_LONG - 1):
        x = x + 0.1 * us.sin(k * x) + 0.1
        float(us.sum(x))
    found = us.audit(us.sum(x), k)
    assert found.ok and not found.loops
    assert any("no loop in it tends to a limit" in finding.text for finding in found.findings)
    without = us.audit(us.sum(us.sin(k * us.tensor([1.0, 2.0]))), k)
    assert not any("no loop" in finding.text for finding in without.findings)


def test_a_fixed_point_that_stands_still_is_one() -> None:
    a = us.tensor(0.5)
    x, _ = us.fixed_point(lambda x: us.cos(a * x), 1.0, tol=1e-12)
    found = us.audit(x, a)
    assert found.ok and found.loops[0].settles
    assert "down to rounding" in str(found) and "not run to its limit" not in str(found)


def test_a_gradient_that_there_is_none_of_is_not_trusted() -> None:
    x, other = us.tensor([0.3, 0.4]), us.tensor(1.0)
    loss = us.sum(us.sin(x))
    for wrt in (other, [other, us.tensor(2.0)]):
        with pytest.raises(NotConnectedError):
            us.audit(loss, wrt)
    assert us.audit(loss, [x, other]).ok  # as loss.grad([x, other]) has zeros for it


def test_a_variable_that_is_given_twice_is_one() -> None:
    x = us.tensor([0.3, 0.4])
    twice, once = us.audit(us.sum(us.sin(x)), [x, (x,)]), us.audit(us.sum(us.sin(x)), x)
    assert twice.ok and twice.norm == once.norm


@pytest.mark.parametrize(("wrt", "states"), [([], None), ({}, None), ("x", 3)])
def test_nothing_to_audit_is_refused(wrt: Any, states: Any) -> None:
    x = us.tensor([0.3, 0.4])
    with pytest.raises(ArgumentError):
        us.audit(us.sum(us.sin(x)), x if wrt == "x" else wrt, states=states)
