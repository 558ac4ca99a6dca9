"""Loops that go on until the derivative stands still, beside closed forms of linear fixed points and of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, ConvergenceError

RATE, SHIFT = 0.9, 1.0


def after(steps: int, rate: float = RATE) -> tuple[float, float]:
    """Return value and derivative of k steps of x ← a·x + 1 from 0: the sum of powers of a, and its derivative."""
    powers = np.arange(steps)
    return float(np.sum(rate**powers)), float(np.sum(powers[1:] * rate ** (powers[1:] - 1)))


LIMIT = 1 / (1 - RATE), 1 / (1 - RATE) ** 2


def test_the_derivative_of_a_linear_fixed_point_lags_behind_its_value() -> None:
    value, slope = after(150)
    assert (LIMIT[1] - slope) / LIMIT[1] > 10 * (LIMIT[0] - value) / LIMIT[0]


@pytest.mark.parametrize("tol", [1e-4, 1e-8, 1e-11])
def test_iterate_goes_on_until_the_derivative_stands_still(tol: float) -> None:
    a = us.tensor(RATE)
    x, steps = us.iterate(
        lambda x: a * x + SHIFT,
        us.tensor(0.0),
        until=lambda new, old: abs(new - old) <= tol * (1 + abs(old)),
        derivative_tol=tol,
    )
    # A step changes the derivative by 1 - a of what is left to the limit.
    assert abs(float(x.grad(a)) - LIMIT[1]) <= 1.1 * tol * (1 + LIMIT[1]) / (1 - RATE)
    assert after(steps) == (pytest.approx(float(x), rel=1e-12), pytest.approx(float(x.grad(a)), rel=1e-12))


def test_a_loop_that_stops_by_its_value_alone_has_a_derivative_that_is_further_off() -> None:
    a = us.tensor(RATE)
    step = lambda x: a * x + SHIFT  # noqa: E731
    until = lambda new, old: abs(new - old) <= 1e-8 * (1 + abs(old))  # noqa: E731
    early, few = us.iterate(step, us.tensor(0.0), until=until)
    late, many = us.iterate(step, us.tensor(0.0), until=until, derivative_tol=1e-8)
    assert many > few
    assert abs(float(early.grad(a)) - LIMIT[1]) > 5 * abs(float(late.grad(a)) - LIMIT[1])


def test_derivative_tol_alone_is_a_condition_and_asks_the_value_to_stand_still_too() -> None:
    a = us.tensor(RATE)
    x, _ = us.iterate(lambda x: a * x + SHIFT, us.tensor(0.0), derivative_tol=1e-8)
    assert abs(float(x) - LIMIT[0]) < 1e-6 and abs(float(x.grad(a)) - LIMIT[1]) < 1e-4
    # A derivative that is 0 stands still from the first step on.
    flat, more = us.iterate(lambda x: 0.5 * x + 0.0 * a, us.tensor(1.0), derivative_tol=1e-8)
    assert more > 20 and abs(float(flat)) < 1e-7


def test_max_steps_ends_a_loop_whose_derivative_still_moves() -> None:
    a = us.tensor(RATE)
    x, steps = us.iterate(lambda x: a * x + SHIFT, us.tensor(0.0), max_steps=30, derivative_tol=1e-8)
    assert steps == 30
    assert float(x.grad(a)) == pytest.approx(after(30)[1], rel=1e-12)


@pytest.mark.parametrize("adjoint", [us.Unrolled(), us.Checkpointed(slots=4), us.Implicit()], ids=repr)
def test_every_way_to_differentiate_goes_with_it(adjoint: Any) -> None:
    a = us.tensor(RATE)
    x, _ = us.iterate(lambda x: a * x + SHIFT, us.tensor(0.0), derivative_tol=1e-9, adjoint=adjoint)
    assert float(x.grad(a)) == pytest.approx(LIMIT[1], rel=1e-6)


def linear() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((4, 4))
    A *= 0.9 / np.max(np.abs(np.linalg.eigvals(A)))
    b = rng.standard_normal(4)
    x = np.linalg.solve(np.eye(4) - 0.95 * A, b)
    return A, b, np.linalg.solve(np.eye(4) - 0.95 * A, A @ x)


@pytest.mark.parametrize(
    ("acceleration", "adjoint"),
    [(None, None), ("anderson", None), (None, us.Unrolled())],
    ids=["plain", "accelerated", "unrolled"],
)
def test_a_search_for_a_fixed_point_goes_on_until_the_derivative_stands_still(acceleration: Any, adjoint: Any) -> None:
    A, b, slope = linear()
    c = us.tensor(0.95)
    options: dict[str, Any] = {"acceleration": acceleration, "adjoint": adjoint, "max_steps": 3000}
    _, few = us.fixed_point(lambda x: c * (A @ x) + b, np.zeros(4), tol=1e-8, **options)
    y, many = us.fixed_point(lambda x: c * (A @ x) + b, np.zeros(4), tol=1e-8, derivative_tol=1e-8, **options)
    assert many > few
    found = [float(y[i].grad(c)) for i in range(4)]
    assert found == pytest.approx(slope, rel=1e-6)


def test_a_point_that_was_found_with_a_tangent_is_found_again_bit_by_bit() -> None:
    A, b, _ = linear()
    c = us.tensor(0.95)
    y, _ = us.fixed_point(lambda x: c * (A @ x) + b, np.zeros(4), derivative_tol=1e-8)
    before = y.eval()
    assert y.op.name == "fixed_point"
    again = y.op.kernel(*[i.eval() for i in y.inputs], **y.attributes)
    assert again.tobytes() == before.tobytes()


def test_a_search_whose_derivative_does_not_settle_says_so() -> None:
    a = us.tensor(0.99)
    with pytest.raises(ConvergenceError, match="the derivative still moves after 40 steps") as caught:
        # It starts where it is fixed; its derivative is not known there.
        us.fixed_point(lambda x: a * x + 1.0, 100.0, derivative_tol=1e-9, tol=1e-8, max_steps=40, acceleration=None)
    assert caught.value.iterations == 40


@pytest.mark.parametrize("tol", [0.0, -1.0, "small", float("nan")])
def test_what_is_no_tolerance_is_refused(tol: Any) -> None:
    with pytest.raises(ArgumentError, match="derivative_tol must be a positive number"):
        us.iterate(us.cos, us.tensor(1.0), max_steps=3, derivative_tol=tol)
    with pytest.raises(ArgumentError, match="derivative_tol must be a positive number"):
        us.fixed_point(us.cos, 1.0, derivative_tol=tol)


def test_a_fixed_point_of_nothing_that_could_vary_has_no_derivative_to_wait_for() -> None:
    with pytest.raises(ArgumentError, match="nothing to differentiate with respect to"):
        us.fixed_point(us.cos, 1.0, derivative_tol=1e-8)


def test_members_of_a_batch_do_not_wait_for_their_derivatives() -> None:
    with pytest.raises(ArgumentError, match=r"inside of us\.vmap"):
        us.vmap(lambda a: us.iterate(lambda x: a * x + 1.0, us.tensor(0.0), derivative_tol=1e-6)[0])(
            us.tensor([0.5, 0.6])
        )


def test_complex_states_and_counters_are_carried_along() -> None:
    a = us.tensor(0.5 + 0.3j)
    (x, count), steps = us.iterate(
        lambda s: (a * s[0] + 1.0, s[1] + 1), (us.tensor(0.0 + 0.0j), us.tensor(0)), derivative_tol=1e-10
    )
    assert int(count) == steps
    assert complex(x) == pytest.approx(1 / (1 - (0.5 + 0.3j)), rel=1e-8)
    slope = complex(us.real(x).grad(a))
    assert slope == pytest.approx(np.conj(1 / (1 - (0.5 + 0.3j)) ** 2), rel=1e-8)
