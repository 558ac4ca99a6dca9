"""Reach, cost and split in closed form, beside the exact optimum, Revolve's binomials and sums written out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.checkpoint.schedule.oracles import optimum
from unspool.checkpoint import binomial
from unspool.checkpoint._schedule.reach import Reach
from unspool.checkpoint.planner import mixed_evaluations
from unspool.errors import ArgumentError, BudgetError

NEVER = 10**6  # residuals that never fit into the room


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 12])
def test_without_residuals_the_reach_and_the_cost_are_those_of_revolve(slots: int) -> None:
    reach = Reach(7 * slots, 7, 0)
    for steps in (1, 2, 3, 10, 50, 200):
        assert reach.cost(steps, slots - 1) == reach.runs(steps, slots - 1) == binomial.advances(steps, slots)
    reach.cost(1000, slots - 1)  # tables end where the longest stretch does
    for runs in range(4):
        assert reach.reach(slots - 1, runs) == binomial.reach(slots, runs)


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 12])
def test_where_no_tape_fits_every_step_runs_once_more_than_in_revolve(slots: int) -> None:
    reach = Reach(7 * slots, 7, NEVER)
    for steps in (1, 2, 3, 10, 50, 200):
        total = steps + binomial.advances(steps, slots)
        assert reach.cost(steps, slots - 1) == reach.runs(steps, slots - 1) == total


@pytest.mark.parametrize("residual", [0, 1, 2, 5, 20])
@pytest.mark.parametrize("steps", [40, 100, 400])
def test_a_known_length_takes_at_most_three_hundredths_more_than_the_optimum(steps: int, residual: int) -> None:
    for units in (1, 2, 3, 4, 5, 7, 10, 12, 15, 20, 30, 50, 72, 100, 200, 300):
        least = optimum(steps, units, residual)[steps]
        runs = Reach(units, 1, residual).runs(steps, units - 1) + (0 if residual else 1)
        assert least <= runs <= 1.03 * least, units


def test_the_optimum_is_that_of_the_planner() -> None:
    for steps, units, residual in ((10, 3, 1), (100, 24, 1), (100, 12, 5), (57, 5, 2)):
        assert optimum(steps, units, residual)[steps] == mixed_evaluations(steps, units, 1 + residual)


@pytest.mark.parametrize("residual", [0, 1, 3, 7, 50, NEVER])
@pytest.mark.parametrize("room", [4, 9, 40, 103, 500])
def test_the_cost_is_the_sum_that_defines_it(room: int, residual: int) -> None:
    reach = Reach(room, 4, residual)
    for free in range(1, reach.slots):
        for steps in (1, 2, 5, 33, 60):
            reach.cost(steps, free)
            total, runs = 0, 0
            while (b := reach.reach(free, runs)) < steps:
                total += steps - b
                runs += 1
            assert reach.cost(steps, free) == total


def test_the_reach_is_the_sum_over_fewer_states() -> None:
    reach = Reach(1003, 10, 25)
    reach.cost(5000, 1)
    for free in range(1, 40):
        assert reach.reach(free, 1) == 1 + (10 * (free + 1) + 3) // 35 == reach.leaf(free)
        for runs in (2, 3, 4):
            b = reach.reach(free, runs - 1) + (reach.reach(free - 1, runs))
            if b < 5000:
                assert reach.reach(free, runs) == b


@given(
    steps=st.integers(2, 3000),
    state=st.integers(0, 40),
    residual=st.integers(0, 400),
    more=st.integers(0, 20_000),
)
@settings(deadline=None, max_examples=150, derandomize=True)
def test_rows_of_leaves_are_what_splitting_gives(steps: int, state: int, residual: int, more: int) -> None:
    reach = Reach(state + more, state, residual)
    free = reach.slots - 1
    while steps > reach.leaf(free) and not reach.is_row_of_leaves(steps, free) and free:
        steps = reach.split(steps, free)
    if not free or steps <= reach.leaf(free):
        return
    sizes = reach.leaves(steps, free).tolist()
    split = []
    while steps > reach.leaf(free):
        split.append(reach.split(steps, free))
        steps, free = steps - split[-1], free - 1
    assert sizes == [*split, steps]


@pytest.mark.parametrize(("state", "residual"), [(1, 1), (10, 3), (3, 100), (8, 0)])
def test_costs_of_many_are_the_costs_of_each(state: int, residual: int) -> None:
    reach = Reach(3000, state, residual)
    free = np.arange(min(reach.slots, 300) - 1, -1, -1)
    steps = np.random.default_rng(1).integers(0, 900, len(free))
    assert reach.costs(steps, free).tolist() == [
        reach.cost(length, room) for length, room in zip(steps.tolist(), free.tolist(), strict=True)
    ]


@pytest.mark.parametrize(("state", "residual"), [(1, 1), (3, 7), (40, 1), (1, 20)])
def test_more_room_never_costs_more(state: int, residual: int) -> None:
    costs = []
    for room in range(state, 1000, 7):
        reach = Reach(room, state, residual)
        costs.append(reach.cost(237, reach.slots - 1))
    assert all(more <= less for less, more in pairwise(costs))


def test_states_without_bytes_are_all_saved_and_steps_run_twice() -> None:
    reach = Reach(50, 0, 10)
    assert reach.runs(1000, reach.slots - 1) == 2 * 1000 - 6
    nothing = Reach(0, 0, 0)
    assert nothing.runs(1000, nothing.slots - 1) == 999


def test_the_spine_is_the_right_side_of_every_split() -> None:
    for room, residual in ((3, 1), (10, 4), (400, 1), (900, 8)):
        reach = Reach(room, 1, residual)
        left, free, starts = 5000, room - 1, [0]
        while left > reach.leaf(free):
            i = reach.split(left, free)
            starts.append(starts[-1] + i)
            left, free = left - i, free - 1
        assert reach.spine(5000, room - 1).tolist() == starts


def test_tables_are_short_for_long_loops() -> None:
    """There are many states or many repetitions, not both: entries grow like the steps, not like their square."""
    steps = 10**5
    for slots in (2, 3, 10, 100, 10**4, 10**6):
        reach = Reach(slots, 1, 3)
        reach.runs(steps, slots - 1)
        assert sum(map(len, reach._rows)) <= 4 * steps


def test_no_room_for_a_state_is_refused_with_the_least_that_works() -> None:
    with pytest.raises(
        BudgetError, match="room for 99 bytes, and the one state that is always kept takes 100"
    ) as caught:
        Reach(99, 100, 5)
    assert caught.value.least == 100
    with pytest.raises(ArgumentError, match="residual is at least 0, got -1"):
        Reach(10, 1, -1)
