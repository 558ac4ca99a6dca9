"""The peak of a plan and the least budget, beside what a machine counts byte by byte."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.schedule.model import Machine
from unspool.checkpoint._schedule.actions import chunks
from unspool.checkpoint._schedule.budget import Plan, Sizes, keep_everything, least_budget, one_state, plan_for
from unspool.errors import ArgumentError, BudgetError


@st.composite
def sizes_of_a_step(draw: st.DrawFn) -> Sizes:
    state = draw(st.integers(0, 12))
    return Sizes(
        state=state,
        residual=draw(st.sampled_from([0, 1, 2, 10, 50, 300])),
        cotangent=draw(st.integers(0, state)),
        forward=draw(st.sampled_from([0, 5, 60])),
        backward=draw(st.sampled_from([0, 5, 60])),
        fixed=draw(st.sampled_from([0, 7])),
        given=draw(st.booleans()),
    )


def counted(plan: Plan, most: int | None = None, *, known: bool = True) -> Machine:
    """Carry out a plan; the machine counts a start that is given, which is apart from the budget."""
    sizes = plan.sizes
    free = sizes.state if sizes.given else 0
    counted_sizes = Sizes(
        sizes.state, sizes.residual, sizes.cotangent, sizes.forward, sizes.backward, sizes.fixed - free
    )
    machine = Machine(counted_sizes, most)
    if known:
        closed = plan.closed()
        machine.run(closed.forward()).end().run(closed.backward())
    else:
        opened = plan.open()
        machine.run(chunks([opened.run_to(plan.steps)])).end().run(opened.finish())
    assert machine.done
    return machine


STEPS = st.one_of(st.integers(1, 4), st.integers(1, 120))


@given(sizes=sizes_of_a_step(), steps=STEPS)
@settings(deadline=None, max_examples=80, derandomize=True)
def test_the_least_budget_is_attained_and_never_more_than_keeping_everything(sizes: Sizes, steps: int) -> None:
    everything, sparing = keep_everything(sizes, steps), one_state(sizes, steps)
    assert counted(everything).peak == everything.peak
    assert counted(everything).evaluations == steps
    assert counted(sparing).peak == sparing.peak
    least = least_budget(sizes, steps)
    assert least == min(everything.peak, sparing.peak)
    assert counted(plan_for(sizes, steps, least), least).peak <= least
    assert counted(plan_for(sizes, steps, least), least, known=False).peak <= least
    with pytest.raises(BudgetError, match=f"needs at least {least} bytes; the budget is {least - 1}") as caught:
        plan_for(sizes, steps, least - 1)
    assert caught.value.least == least


@given(sizes=sizes_of_a_step(), steps=STEPS, share=st.floats(0, 1))
@settings(deadline=None, max_examples=120, derandomize=True)
def test_no_run_or_reversal_goes_beyond_the_budget(sizes: Sizes, steps: int, share: float) -> None:
    least, everything = least_budget(sizes, steps), keep_everything(sizes, steps)
    budget = least + int(share * (everything.peak - least))
    plan = plan_for(sizes, steps, budget)
    assert plan.peak <= budget
    known = counted(plan, budget)
    unknown = counted(plan, budget, known=False)
    assert max(known.peak, unknown.peak) <= plan.peak
    if budget >= everything.peak:
        assert plan == everything and known.evaluations == unknown.evaluations == steps


def test_an_open_loop_that_goes_on_after_everything_fitted_stays_within_the_budget() -> None:
    """The plan is for the steps so far; the same bytes serve any number."""
    sizes = Sizes(3, 5, 3, 2, 4, 10)
    budget = keep_everything(sizes, 20).peak
    loop = plan_for(sizes, 10**6, budget).open()
    machine = Machine(sizes, budget)
    machine.run(chunks([loop.run_to(20)]))
    assert loop.edge == 0
    machine.run(chunks([loop.run_to(300)])).end().run(loop.finish())
    assert machine.done


def test_the_least_budget_has_what_is_alive_at_once() -> None:
    # Start, in, residuals and two cotangents of a step that is reversed.
    assert least_budget(Sizes(100, 2000, 100, 10, 20, 300), 1000) == 300 + 2 * 100 + 2000 + 2 * 100 + 20
    # Start, in, out and a cotangent of a step that runs again.
    assert least_budget(Sizes(100, 0, 50, 500, 20), 1000) == 3 * 100 + 50 + 500
    # One step keeps its state and residuals, and there are two cotangents or the result.
    assert least_budget(Sizes(100, 20, 100, 0, 0), 1) == 100 + 20 + 200
    # Two steps: start, in and out of the second, as it runs for the first time.
    assert least_budget(Sizes(100, 1, 0, 0, 0), 2) == 3 * 100


def test_the_least_budget_does_not_grow_with_the_steps() -> None:
    sizes = Sizes(7, 30, 7, 11, 13, 1)
    least = [least_budget(sizes, steps) for steps in range(1, 50)]
    assert least == sorted(least)
    assert len(set(least[2:])) == 1


def test_more_budget_never_takes_more_runs_by_much() -> None:
    sizes = Sizes(8, 24, 8, 0, 0, 100)
    least, everything = least_budget(sizes, 200), keep_everything(sizes, 200).peak
    runs = [plan_for(sizes, 200, budget).closed().evaluations() for budget in range(least, everything + 1, 13)]
    assert all(more <= 1.03 * less for less, more in pairwise(runs))
    assert plan_for(sizes, 200, everything).closed().evaluations() == 200


def test_a_loop_has_steps() -> None:
    with pytest.raises(ArgumentError, match="steps is at least 1, got 0"):
        least_budget(Sizes(1, 1), 0)
