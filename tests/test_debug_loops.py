"""Where a NaN was born: the step, the op and the line, in loops of every kind, while they run and after the fact.

The references are the same loops in NumPy, one step after the other.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.debug import NaNReport, check_nan, first_nan
from unspool.errors import ArgumentError, KernelError, NaNError

STEPS = 300
GROWTH = 1.02

# All the ways to make the steps with one node, by how they are differentiated.
ADJOINTS = {
    "unrolled": us.Unrolled(),
    "slots": us.Checkpointed(slots=5),
    "memory": us.Checkpointed(memory=4000),
}
IMPLICIT = {"implicit": us.Implicit(check=None)}


def shrink(x: Any, shift: Any, sqrt: Any = us.sqrt) -> Any:
    return sqrt(x - shift), shift * GROWTH  # the line to blame


def born(shift: float, steps: int = STEPS) -> int:
    """Return the step in which NumPy makes a NaN of the loop that repeats `shrink`."""
    x = np.array([1.0, 2.0])
    with np.errstate(invalid="ignore"):
        for k in range(steps):
            x, shift = shrink(x, shift, np.sqrt)
            if np.isnan(x).any():
                return k
    raise AssertionError("no NaN")


def plain_loop(shift: float, steps: int, *, read: bool = True) -> tuple[us.Tensor, us.Tensor]:
    x = start = us.tensor([1.0, 2.0])
    s = us.tensor(shift)
    for _ in range(steps):
        x, s = shrink(x, s)
        if read:
            us.eval(x, s)
    return x, start


def iterated(shift: float, steps: int, adjoint: Any) -> us.Tensor:
    start = (us.tensor([1.0, 2.0]), us.tensor(shift))
    return us.iterate(lambda state: shrink(*state), start, max_steps=steps, adjoint=adjoint)[0][0]


def report_of(run: Callable[[], Any]) -> NaNReport:
    """Return what `check_nan` reports of a run."""
    with check_nan(), pytest.raises(NaNError) as caught:
        us.eval(run())
    assert str(caught.value) == str(caught.value.report)
    assert caught.value.report is not None
    return caught.value.report


def is_of_the_square_root(report: NaNReport | None, step: int) -> bool:
    assert report is not None
    assert (report.op, report.steps) == ("sqrt", (step,))
    assert "the line to blame" in report.source and "test_debug_loops.py" in report.source
    assert report.operands[0].description.startswith("subtract of shape (2,)")
    return f"in step {step} of a loop" in str(report)


# --- plain loops -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [139, 141, 150, 200, STEPS, 2000], ids=lambda n: f"{n} steps")
def test_a_plain_loop_tells_afterwards_in_which_step_a_nan_was_born(steps):
    # Just now, in a step that waits to be folded, or long ago in one that was.
    assert born(0.02) == 138
    assert is_of_the_square_root(first_nan(plain_loop(0.02, steps)[0]), 138)


@pytest.mark.parametrize("shift", [0.2449, 0.25, 0.27])
def test_a_loop_that_is_too_short_to_be_folded_has_steps_too(shift):
    assert is_of_the_square_root(first_nan(plain_loop(shift, 40)[0]), born(shift, 40))


def test_a_nan_of_the_first_step_of_a_folded_loop_is_in_step_0():
    assert is_of_the_square_root(first_nan(plain_loop(5.0, STEPS)[0]), 0)


@pytest.mark.parametrize("steps", [150, 1500])
def test_a_loop_that_was_built_without_reading_has_steps(steps):
    assert is_of_the_square_root(first_nan(plain_loop(0.02, steps, read=False)[0]), born(0.02))


def test_the_check_names_the_step_of_a_plain_loop():
    assert is_of_the_square_root(report_of(lambda: plain_loop(0.02, STEPS)[0]), born(0.02))


def test_under_a_budget_evicted_steps_are_recomputed_and_the_birth_is_found():
    with us.memory("100kB"):
        x, s = us.tensor(np.ones(2000)), us.tensor(0.02)
        for _ in range(STEPS):
            x, s = shrink(x, s)
            us.eval(x, s)
        report = first_nan(x)
    # Both entries of the reference come to the same fixed point long before.
    assert report is not None and (report.op, report.steps, report.count) == ("sqrt", (born(0.02),), 2000)


@pytest.mark.parametrize("steps", [40, STEPS])
def test_nothing_of_the_users_runs_again_and_few_steps_are_recomputed(steps):
    ran = []

    def kernel(x: Any) -> Any:
        ran.append(x)
        return np.sqrt(x)

    counted = us.op("counted_sqrt", kernel=kernel, vjp=(lambda ct, out, x: ct / (2 * out),), replace=True)
    recorded = 0
    x, s = us.tensor([1.0, 2.0]), us.tensor(0.25 if steps == 40 else 0.02)
    for _ in range(steps):
        recorded += 1
        x, s = shrink(x, s, counted)
        us.eval(x, s)
    first = len(ran)
    report = first_nan(x)
    assert report is not None and report.op == "user:counted_sqrt"
    assert recorded == steps
    # Folded steps are recomputed twice, where NaN enter and where they are born. Others are so one by one.
    after = steps - report.steps[0]
    assert len(ran) - first <= (2 + 12 if steps == STEPS else after + 1)


def test_finding_takes_no_more_memory_than_a_few_steps():
    size = 20_000
    x, s = us.tensor(np.linspace(1.0, 2.0, size)), us.tensor(0.02)
    for _ in range(STEPS):
        x, s = shrink(x, s)
        us.eval(x, s)
    tracemalloc.start()
    try:
        report = first_nan(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report is not None and report.steps
    assert peak < 12 * 8 * size


# --- loops of one node -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjoint", (ADJOINTS | IMPLICIT).values(), ids=ADJOINTS | IMPLICIT)
def test_iterate_tells_the_step_while_it_runs_and_afterwards(adjoint):
    assert is_of_the_square_root(first_nan(iterated(0.02, STEPS, adjoint)), born(0.02))
    assert is_of_the_square_root(report_of(lambda: iterated(0.02, STEPS, adjoint)), born(0.02))


@pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS)
def test_a_loop_that_would_never_end_ends_at_its_first_nan_under_the_check(adjoint):
    x = us.tensor([1.0, 2.0])
    report = report_of(
        lambda: us.iterate(lambda x: us.sqrt(x - 0.3), x, until=lambda x: us.all(x > 9.0), adjoint=adjoint)
    )
    expected = np.array([1.0, 2.0])
    steps = 0
    while (expected - 0.3 >= 0).all():
        expected, steps = np.sqrt(expected - 0.3), steps + 1
    assert (report.op, report.steps) == ("sqrt", (steps,))


@pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS)
def test_a_nan_in_the_outputs_of_a_loop_is_found(adjoint):
    def step(x: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
        return x - 1.0, us.log(x)

    _, _, logs = us.iterate(step, us.tensor(20.5), max_steps=50, has_outputs=True, adjoint=adjoint)
    report = first_nan(logs)
    assert report is not None and (report.op, report.steps) == ("log", (21,))
    assert first_nan(logs[:21]) is None


def test_finding_in_a_loop_that_kept_its_states_recomputes_two_steps():
    ran = []

    def kernel(x: Any) -> Any:
        ran.append(x)
        return np.sqrt(x)

    counted = us.op("counted_sqrt", kernel=kernel, vjp=(lambda ct, out, x: ct / (2 * out),), replace=True)
    start = (us.tensor([1.0, 2.0]), us.tensor(0.02))
    (x, _), _ = us.iterate(lambda state: shrink(*state, counted), start, max_steps=STEPS)
    first = len(ran)
    report = first_nan(x)
    assert report is not None and report.steps == (born(0.02),)
    assert len(ran) - first <= 3


def test_the_bits_under_the_check_are_those_without():
    def run() -> Any:
        start = us.tensor(np.linspace(0.1, 1.0, 40))
        w = us.tensor(np.linspace(-1.0, 1.0, 1600).reshape(40, 40))
        x, _ = us.iterate(lambda x: us.tanh(w @ x), start, max_steps=70)
        return us.eval(us.sum(x), us.sum(x).grad(w))

    plain = run()
    with check_nan():
        watched = run()
    for a, b in zip(plain, watched, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nested_loops_have_a_step_each_the_outer_one_first():
    def inner(x: us.Tensor) -> us.Tensor:
        return us.iterate(lambda x: us.sqrt(x - 0.3), x, max_steps=4)[0]

    expected, count = 1.0, 0
    while expected >= 0.3:
        expected, count = np.sqrt(expected - 0.3), count + 1
    place = divmod(count, 4)
    both, _ = us.iterate(inner, us.tensor(1.0), max_steps=10)
    report = first_nan(both)
    assert report is not None and report.steps == place
    assert f"in step {place[1]} of a loop, in step {place[0]} of a loop" in str(report)
    assert report_of(lambda: us.iterate(inner, us.tensor(1.0), max_steps=10)).steps == place
    x = us.tensor(1.0)
    for _ in range(100):
        x = inner(x)
        x.eval()
    report = first_nan(x)
    assert report is not None and report.steps == place


@pytest.mark.parametrize("acceleration", [None, "anderson"])
def test_the_search_for_a_fixed_point_is_looked_into(acceleration):
    report = report_of(lambda: us.fixed_point(lambda x: us.sqrt(x - 0.3), 1.0, acceleration=acceleration))
    assert report.op == "sqrt" and len(report.steps) == 1
    assert "lambda x: us.sqrt(x - 0.3)" in report.source
    if acceleration is None:
        assert report.steps == (9,) == (_steps_to_nan(1.0),)


def _steps_to_nan(x: float) -> int:
    count = 0
    while x >= 0.3:
        x, count = np.sqrt(x - 0.3), count + 1
    return count


# --- gradients -------------------------------------------------------------------------------------------------------

# At x = 0 the derivative of √|x|³ is 0/0 by the chain rule.
ZERO = 200


def cusp(x: Any, total: Any) -> Any:
    root = us.sqrt(us.abs(x))  # singular at zero
    return x - 1.0, total + root**3


def is_of_the_cusp(report: NaNReport | None) -> bool:
    assert report is not None
    assert report.steps == (ZERO,)
    return "singular at zero" in report.source


def plain_cusps() -> tuple[us.Tensor, us.Tensor]:
    x = start = us.tensor(float(ZERO))
    total = us.tensor(0.0)
    for _ in range(STEPS):
        x, total = cusp(x, total)
        us.eval(x, total)
    return total, start


def iterated_cusps(adjoint: Any) -> tuple[us.Tensor, us.Tensor]:
    start = us.tensor(float(ZERO))
    (_, total), _ = us.iterate(lambda state: cusp(*state), (start, 0.0), max_steps=STEPS, adjoint=adjoint)
    return total, start


def test_a_nan_in_the_gradient_of_a_plain_loop_is_named_with_the_step_of_the_loop():
    total, start = plain_cusps()
    gradient = total.grad(start)
    assert np.isnan(gradient.eval()) and first_nan(total) is None
    assert is_of_the_cusp(first_nan(gradient))
    total, start = plain_cusps()
    assert is_of_the_cusp(report_of(lambda: total.grad(start)))


@pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS)
def test_a_nan_in_the_gradient_of_iterate_is_named_with_the_step_of_the_loop(adjoint):
    total, start = iterated_cusps(adjoint)
    gradient = total.grad(start)
    assert np.isnan(gradient.eval()) and first_nan(total) is None
    assert is_of_the_cusp(first_nan(gradient))
    total, start = iterated_cusps(adjoint)
    assert is_of_the_cusp(report_of(lambda: total.grad(start)))


@pytest.mark.parametrize("loop", [plain_cusps, lambda: iterated_cusps(us.Unrolled())], ids=["plain", "iterate"])
def test_a_nan_in_second_derivatives_is_named_too(loop):
    total, start = loop()
    assert is_of_the_cusp(first_nan(total.grad(start).grad(start)))


def test_a_nan_of_the_forward_loop_is_found_from_the_gradient():
    x, start = plain_loop(0.02, STEPS)
    assert is_of_the_square_root(first_nan(us.sum(x * x).grad(start)), born(0.02))


def test_a_loop_that_takes_a_gradient_in_each_step_has_steps():
    # In a process of its own: what other programs have left of their derivatives may hide the number of a step.
    code = "from tests import test_debug_loops as t; t.check_steps_with_gradients()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


def check_steps_with_gradients() -> None:
    def gradient(w: Any) -> Any:
        return np.log(w) + 1.0

    w, expected = us.tensor([3.0, 1.0]), np.array([3.0, 1.0])
    step = None
    with np.errstate(invalid="ignore"):
        for k in range(200):
            rate = 0.01 if k < 150 else 3.0
            loss = us.sum(us.log(w) * w)  # the logarithm
            w = w - rate * loss.grad(w)
            us.eval(loss, w)
            if step is None and (expected < 0).any():
                step = k
            expected = expected - rate * gradient(expected)
    report = first_nan(w)
    assert report is not None and (report.op, report.steps) == ("log", (step,))
    assert "the logarithm" in report.source


# --- what is to blame ------------------------------------------------------------------------------------------------


def test_data_with_nan_is_named_as_the_leaf_that_has_it():
    data = np.linspace(0.0, 1.0, 3 * STEPS).reshape(STEPS, 3)
    data[77, 1] = np.nan
    table, x = us.tensor(data, name="table"), us.tensor(np.zeros(3))
    y = z = x
    for k in range(STEPS):
        x = us.tanh(x + table[k])
        y = us.tanh(y + us.tensor(data[k], name=f"row {k}"))
        z = us.tanh(z + data[k])
        us.eval(x, y, z)
    for tensor, description, size in ((x, "tensor 'table'", 3 * STEPS), (y, "tensor 'row 77'", 3), (z, "constant", 3)):
        report = first_nan(tensor)
        assert report is not None and report.description.startswith(description)
        assert (report.count, report.size, report.operands) == (1, size, ())
        assert "has 1 NaN of" in str(report)


def test_the_initial_state_of_a_loop_is_named_if_it_has_the_nan():
    for adjoint in ADJOINTS.values():
        x, _ = us.iterate(lambda x: us.tanh(x) + 1.0, us.tensor([0.0, np.nan], name="x"), max_steps=30, adjoint=adjoint)
        report = first_nan(x)
        assert report is not None and report.description == "tensor 'x' of shape (2,) and dtype float64"


@pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS)
def test_nan_that_are_masked_are_not_to_blame(adjoint):
    def step(state: Any) -> Any:
        x, before, left = state
        guess = us.where(us.isnan(before), x, before)
        return x + 0.0 * us.sqrt(left) + 0.0 * guess, x, left - 1.0  # the line to blame

    start = (us.tensor(1.0), us.tensor(np.nan), us.tensor(100.0))
    (x, _, _), _ = us.iterate(step, start, max_steps=STEPS, adjoint=adjoint)
    report = first_nan(x)
    assert report is not None and (report.op, report.steps) == ("sqrt", (101,))


def test_a_masked_nan_in_a_plain_loop_is_not_to_blame():
    missing, chosen = us.tensor(np.nan), us.tensor(True)
    x, left = us.tensor([1.0, 2.0]), us.tensor(100.0)
    for _ in range(STEPS):
        x = us.where(chosen, x, missing) + us.where(left > 50.0, 0.0, us.log(-left * 0.0 - 1.0)) * 0.0
        left = left - 1.0
        us.eval(x, left)
    report = first_nan(x)
    assert report is not None and (report.op, report.steps) == ("log", (50,))


def test_infinities_are_found_where_they_were_made_if_asked_for():
    matrix, x = us.tensor(np.diag([1e200, 1.0])), us.tensor([1.0, 0.0])
    for _ in range(100):
        x = matrix @ x
        x.eval()
    overflow, nan = first_nan(x, infinities=True), first_nan(x)
    assert overflow is not None and overflow.steps == (1,) and "infinite or NaN" in str(overflow)
    assert nan is not None and nan.steps == (2,)


def test_several_tensors_are_asked_about_at_once_and_the_first_birth_is_told():
    x = us.tensor([-1.0])
    early, late = us.log(x), us.sqrt(x)
    report = first_nan(late, x, early)
    assert report is not None and report.op == "log"


def test_values_without_nan_have_no_report():
    x = us.tensor([1.0, np.inf])
    assert first_nan(x, us.sum(x), us.tensor([1, 2])) is None


def test_finding_changes_nothing():
    x, start = plain_loop(0.02, STEPS)
    value, size = x.eval(), us.graph_size(x)
    first_nan(x)
    assert x.eval() is value and us.graph_size(x) == size
    assert np.isnan(us.sum(x).grad(start).eval()).all()


@pytest.mark.parametrize("given", [(), (1.0,), (np.array([np.nan]),)], ids=["nothing", "a number", "an array"])
def test_what_is_no_tensor_is_refused(given):
    with pytest.raises(ArgumentError, match="one or several tensors"):
        first_nan(*given)


def test_a_sum_in_place_is_not_taken_for_one_that_got_nan():
    size = 5000
    x = us.tensor(np.full(size, np.inf))
    report = report_of(lambda: us.sum(us.exp(x) + -us.exp(x * 1.0)))
    assert report.op in ("add", "subtract") and report.count == size


# --- other errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [30, 150])
def test_what_fails_in_a_plain_loop_names_its_step(steps):
    def run() -> None:
        x = us.tensor(np.eye(2))
        for _ in range(2 * steps):
            factor = us.linalg.cholesky(x - np.eye(2) / (steps + 0.5))
            x = factor @ factor.mT
            x.eval()

    with pytest.raises(KernelError, match=rf"cholesky.*test_debug_loops.*in step {steps} of a loop$"):
        run()


def test_a_step_that_fails_when_it_is_recomputed_is_named():
    fails = []

    def kernel(x: Any) -> Any:
        if fails and x[0] == fails[0]:
            raise ArithmeticError("not again")
        return x + 1.0

    op = us.op("counts", kernel=kernel, vjp=(lambda ct, out, x: ct,), replace=True)
    with us.memory("60kB"):
        x = start = us.tensor(np.zeros(500))
        for _ in range(200):
            x = us.sin(op(x)) * 0.0 + op(x)
            x.eval()
        fails.append(20.0)
        with pytest.raises(KernelError, match=r"not again.*in step 20 of a loop"):
            us.sum(x).grad(start).eval()


def test_a_loop_like_one_that_ran_before_is_told_by_its_own_lines():
    def before(y: us.Tensor) -> us.Tensor:
        for _ in range(90):
            y = us.sqrt(us.sin(y) * 0.5 + 0.6)
            float(us.sum(y))
        return y

    def after(y: us.Tensor) -> us.Tensor:
        for _ in range(90):
            y = us.sqrt(us.sin(y) * 0.5 + 0.6)  # the same, on a line of its own
            float(us.sum(y))
        return y

    before(us.tensor(np.ones(3)))
    # The values are steady, but for what a NaN at the start makes of them.
    found = us.debug.first_nan(after(us.tensor(np.array([1.0, -np.inf, 1.0]))))
    assert found is not None and found.op == "sin" and "on a line of its own" in found.source
