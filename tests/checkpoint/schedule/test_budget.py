"""Plans for a budget: what a machine counts stays within the memory, and the least that works."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.schedule.model import Bytes, Machine
from unspool.checkpoint import binomial
from unspool.checkpoint._schedule.actions import chunks
from unspool.checkpoint._schedule.budget import Plan, Sizes, plan_for, plan_for_slots
from unspool.errors import ArgumentError, BudgetError

SIZES = st.builds(Sizes, st.integers(1, 12), st.sampled_from([0, 1, 2, 10, 50, 300]), st.just(True))
STEPS = st.one_of(st.integers(1, 4), st.integers(1, 120))


def counted(plan: Plan, sizes: Sizes, steps: int, *, known: bool) -> Machine:
    """Carry out a plan."""
    machine = Machine(Bytes(*sizes))
    if known:
        closed = plan.closed(steps)
        machine.run(closed.forward()).end().run(closed.backward())
    else:
        opened = plan.open()
        machine.run(chunks([opened.run_to(steps)])).end().run(opened.finish())
    assert machine.done
    return machine


@given(sizes=SIZES, steps=STEPS, share=st.floats(0, 1.2), known=st.booleans())
@settings(deadline=None, max_examples=150, derandomize=True)
def test_states_and_tapes_stay_within_the_memory(sizes: Sizes, steps: int, share: float, known: bool) -> None:
    least = sizes.state + sizes.tape
    memory = least + int(share * steps * sizes.tape)
    machine = counted(plan_for(memory, sizes), sizes, steps, known=known)
    # In the course of a run there is the state that it starts from, and the one that it makes.
    assert machine.peak <= memory + 2 * sizes.state
    if memory >= steps * sizes.tape:
        assert machine.evaluations == steps


@given(sizes=SIZES, steps=STEPS, slots=st.integers(1, 130), known=st.booleans())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_slots_are_states_beside_one_tape(sizes: Sizes, steps: int, slots: int, known: bool) -> None:
    machine = counted(plan_for_slots(slots), sizes, steps, known=known)
    assert machine.peak <= slots * sizes.state + sizes.tape + 2 * sizes.state
    least = steps + binomial.advances(steps, slots)
    assert machine.evaluations == least if known else machine.evaluations >= least
    assert plan_for_slots(slots).factor(steps) == pytest.approx(least / steps)


def test_a_state_and_a_tape_are_the_least_that_works() -> None:
    sizes = Sizes(100, 2000)
    assert plan_for(2200, sizes).reach.slots == 1
    with pytest.raises(BudgetError, match="a memory of 2199 bytes cannot work.*least that works is 2200") as caught:
        plan_for(2199, sizes)
    assert caught.value.least == 2200


def test_more_memory_never_takes_more_runs_by_much() -> None:
    sizes = Sizes(8, 24)
    runs = [plan_for(memory, sizes).closed(200).evaluations() for memory in range(40, 200 * 32 + 1, 13)]
    assert all(more <= 1.03 * less for less, more in pairwise(runs))
    assert plan_for(200 * 32, sizes).closed(200).evaluations() == 200


def test_an_open_loop_that_goes_on_after_everything_fitted_stays_within_the_memory() -> None:
    sizes = Sizes(3, 5)
    loop = plan_for(20 * 8, sizes).open()
    machine = Machine(Bytes(*sizes), 20 * 8 + 2 * 3)
    machine.run(chunks([loop.run_to(20)]))
    assert loop.edge == 0
    machine.run(chunks([loop.run_to(300)])).end().run(loop.finish())
    assert machine.done


def test_a_loop_may_end_before_it_was_to() -> None:
    """It ends anywhere in the last rows, and its tape may begin later than it was to."""
    for end in range(1, 60):
        loop = plan_for(12, Sizes(1, 1)).open()
        machine = Machine(Bytes(1, 1))
        while loop.steps < end:
            before = loop.edge
            rows = loop.go_on()
            if loop.steps > end:
                rows = rows.copy()
                rows = rows[rows[:, 1] < end]
                rows[-1, 2] = end
            machine.run([rows])
        machine.run([loop.end(end, max(before, machine.tape.start))])
        machine.end().run(loop.finish())
        assert machine.done and machine.evaluations == loop.evaluations()


def test_a_loop_has_steps_and_slots() -> None:
    with pytest.raises(ArgumentError, match="slots is at least 1, got 0"):
        plan_for_slots(0)
    with pytest.raises(ArgumentError, match="steps is at least 1, got 0"):
        plan_for_slots(1).closed(0)
