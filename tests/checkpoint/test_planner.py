"""Plans for a budget: blocks beside the exact table, the disk beside all periods, and the least that works."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest

from tests.checkpoint.model import Machine
from unspool.checkpoint import binomial
from unspool.checkpoint.actions import Advance
from unspool.checkpoint.planner import (
    BlockPlan,
    block_plan,
    disk_cost,
    disk_period,
    disk_tail,
    least_budget,
    mixed_evaluations,
)
from unspool.errors import ArgumentError, BudgetError

# --- blocks ----------------------------------------------------------------------------------------------------------


def executed_factor(plan: BlockPlan, steps: int) -> float:
    """Run the schedule over blocks on the machine and count steps."""
    bounds = plan.bounds(steps)
    assert bounds[0] == 0 and bounds[-1] == steps
    assert all(0 < right - left <= plan.block for left, right in pairwise(bounds))
    count = len(bounds) - 1
    assert Machine(plan.slots, count).run(binomial.schedule(count, plan.slots)).done
    advanced = (action for action in binomial.schedule(count, plan.slots) if isinstance(action, Advance))
    return 1 + sum(bounds[action.stop] - bounds[action.start] for action in advanced) / steps


def test_plans_fit_and_cost_what_they_say() -> None:
    numbers = random.Random(1)
    for _ in range(300):
        steps, state, tape = numbers.randint(1, 300), numbers.randint(1, 4), numbers.randint(0, 8)
        room = numbers.randint(state, 150)
        plan = block_plan(steps, room, state, tape)
        assert plan.slots * state + (plan.block - 1) * tape <= room
        assert executed_factor(plan, steps) == pytest.approx(plan.factor, rel=1e-12)


def test_plans_are_the_best_of_all_blocks_and_never_worse_than_single_steps() -> None:
    numbers = random.Random(2)
    for _ in range(100):
        steps, tape, room = numbers.randint(1, 200), numbers.randint(1, 8), numbers.randint(1, 150)
        best = block_plan(steps, room, 1, tape).factor
        assert best <= binomial.factor(steps, room)
        for block in range(1, min(steps, 1 + (room - 1) // tape) + 1):
            count, slots = -(-steps // block), room - (block - 1) * tape
            # Blocks cut from the start, so that the last one, which is never advanced, is the shorter one.
            assert best <= 1 + block * binomial.advances(count, slots) / steps + 1e-12


@pytest.mark.parametrize(("room", "tape", "single"), [(1000, 20, 2.90), (500, 5, 2.95)])
def test_spare_room_is_spent_on_tapes(room: int, tape: int, single: float) -> None:
    assert round(binomial.factor(10**4, room), 2) == single
    plan = block_plan(10**4, room, 1, tape)
    assert plan.factor <= 2.00
    assert executed_factor(plan, 10**4) <= 2.00


def test_a_loop_that_fits_is_run_once() -> None:
    assert block_plan(50, 10 + 49 * 7, 10, 7) == BlockPlan(50, 1, 1.0)
    assert block_plan(50, 10 + 49 * 7 - 1, 10, 7).factor > 1
    assert block_plan(1, 1, 1, 10**9) == BlockPlan(1, 1, 1.0)
    assert block_plan(10**5, 1, 1, 0) == BlockPlan(10**5, 1, 1.0)


@pytest.mark.parametrize(("state", "tape"), [(1, 1), (3, 2), (1, 20), (40, 1)])
def test_more_room_never_costs_more(state: int, tape: int) -> None:
    factors = [block_plan(237, room, state, tape).factor for room in range(state, 600)]
    assert all(more <= less for less, more in pairwise(factors))


def test_no_room_for_a_state_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(
        BudgetError, match="room for 99 bytes, and the one state that is always kept takes 100"
    ) as caught:
        block_plan(10, 99, 100, 5)
    assert caught.value.least == 100
    assert block_plan(10, caught.value.least, 100, 5).slots == 1


# --- the exact table -------------------------------------------------------------------------------------------------


@cache
def maddison(steps: int, units: int) -> int:
    """The recursion of Maddison (2024), for states and tapes of the same size."""
    if steps <= units + 1:
        return steps
    if units == 1:
        return steps * (steps + 1) // 2 - 1
    advanced = (i + maddison(i, units) + maddison(steps - i, units - 1) for i in range(2, steps))
    return min(1 + maddison(steps - 1, units - 1), *advanced)


def test_the_table_is_that_of_the_published_recursion() -> None:
    for steps in range(1, 40):
        for units in range(1, steps + 3):
            assert mixed_evaluations(steps, units, 1) == maddison(steps, units), (steps, units)


def test_the_table_has_the_published_factors() -> None:
    published = {5: 3.520, 10: 2.370, 20: 1.840, 50: 1.500, 100: 1.000}
    assert {units: mixed_evaluations(100, units, 1) / 100 for units in published} == published


def test_tapes_that_never_fit_leave_the_binomial_schedule() -> None:
    for steps, units in ((2, 1), (10, 3), (57, 5), (200, 12)):
        assert mixed_evaluations(steps, units, 1000) == steps + binomial.advances(steps, units)


@pytest.mark.parametrize("tape", [1, 2, 5, 20])
@pytest.mark.parametrize("steps", [50, 100, 200, 400])
def test_blocks_are_near_the_exact_table(steps: int, tape: int) -> None:
    """Not a bound for every room: 400 steps in 60 units, with tapes of 5, take 1.22 times the exact number."""
    for units in (2, 5, 10, 20, 50, 100, 200):
        exact = mixed_evaluations(steps, units, tape)
        blocks = steps * block_plan(steps, units, 1, tape).factor
        assert exact <= blocks + 1e-9
        assert blocks <= 1.20 * exact, units


# --- the disk --------------------------------------------------------------------------------------------------------


TIMES = [(0, 0), (0.5, 0.25), (2, 2), (1, 8), (20, 20), (300, 100)]


@pytest.mark.parametrize(("write", "read"), TIMES)
@pytest.mark.parametrize("slots", [1, 2, 5, 10])
def test_the_period_has_the_least_cost_of_a_step(slots: int, write: float, read: float) -> None:
    period = disk_period(slots, write, read)
    cost = {p: (p + binomial.advances(p, slots) + write + read) / p for p in range(1, 5000)}
    assert cost[period] == pytest.approx(min(cost.values()), rel=1e-12)


def test_the_period_does_not_pass_its_limit_and_is_the_best_below_it() -> None:
    assert disk_period(5, 2, 2, limit=4) == 4
    for limit in range(1, 70):
        period = disk_period(5, 20, 20, limit=limit)
        cost = {p: (binomial.advances(p, 5) + 40) / p for p in range(1, limit + 1)}
        assert cost[period] == pytest.approx(min(cost.values()), rel=1e-12)


@pytest.mark.parametrize(("write", "read"), TIMES)
def test_the_cost_with_a_disk_is_what_is_executed(write: float, read: float) -> None:
    for steps, slots, period in ((1, 1, 1), (10, 2, 3), (100, 5, 6), (101, 3, 100), (57, 4, 60)):
        tail = disk_tail(steps, slots, period, write, read)
        assert 1 <= tail <= steps and (steps - tail) % period == 0
        evaluations = steps - tail
        transfers = 0
        for length in [tail] + [period] * ((steps - tail) // period):
            evaluations += Machine(slots, length).run(binomial.schedule(length, slots)).evaluations
            transfers += 1
        assert disk_cost(steps, slots, period, write, read) == evaluations + (transfers - 1) * (write + read)


@pytest.mark.parametrize(("write", "read"), TIMES)
def test_the_tail_is_the_best_of_all(write: float, read: float) -> None:
    for steps, slots, period in ((10, 2, 3), (100, 5, 6), (200, 2, 1), (57, 4, 60), (300, 1, 7)):
        each = 2 * period + binomial.advances(period, slots) + write + read
        tails = range(steps - (steps - 1) // period * period, steps + 1, period)
        best = min((steps - tail) // period * each + tail + binomial.advances(tail, slots) for tail in tails)
        assert disk_cost(steps, slots, period, write, read) == pytest.approx(best, rel=1e-12)


def test_the_disk_has_the_published_cost() -> None:
    """Disk-Revolve takes 3483 for 1000 steps, 5 slots, and 2 steps' time for a write or a read; without disk 7284."""
    assert disk_cost(1000, 5, disk_period(5, 2, 2), 2, 2) <= 1.01 * 3483
    assert disk_cost(1000, 5, 1000, 2, 2) == 7284


# --- the least that works, and mistakes ------------------------------------------------------------------------------


def test_the_least_budget_is_the_sum_of_what_is_always_there() -> None:
    assert least_budget(100, 2000, 50, 300) == 2450
    assert least_budget(0, 0, 0, 0) == 0


def test_plans_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="state is at least 1, got 0"):
        block_plan(10, 10, 0, 1)
    with pytest.raises(ArgumentError, match="tape is an integer, got 1.5"):
        block_plan(10, 10, 1, 1.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at most 400 steps, got 401"):
        mixed_evaluations(401, 3, 1)
    with pytest.raises(ArgumentError, match="finite and not negative, got -1 and 2"):
        disk_period(5, -1, 2)
    with pytest.raises(ArgumentError, match="finite and not negative, got 1 and nan"):
        disk_cost(10, 5, 2, 1, float("nan"))
    with pytest.raises(ArgumentError, match="limit is at least 1, got 0"):
        disk_period(5, 1, 1, limit=0)
    with pytest.raises(ArgumentError, match="workspace is at least 0, got -1"):
        least_budget(1, 1, -1, 1)
