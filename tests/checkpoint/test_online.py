"""Loops of unknown length: exact costs, the choice of what to drop, and how near the result is to the optimum."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.oracles import sweep_cost
from unspool.checkpoint import binomial, online
from unspool.checkpoint._schedule.loops import OpenLoop
from unspool.checkpoint._schedule.reach import Reach
from unspool.checkpoint.online import choose_removal, removal_costs
from unspool.errors import ArgumentError


def random_positions(numbers: random.Random, count: int, longest: int) -> tuple[list[int], int]:
    """Return saved states, the start among them, and an end."""
    end = numbers.randint(count, longest)
    return [0, *sorted(numbers.sample(range(1, end), count - 1))], end


def clock(step_times: Any) -> Any:
    """Return the time at each position, as `times` is given."""
    return np.concatenate(([0.0], np.cumsum(step_times)))


# --- costs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 65, 150])
@pytest.mark.parametrize("longest", [160, 10**4, 10**6])
def test_removal_costs_are_the_costs_of_sweeps_without_a_state(count: int, longest: int) -> None:
    numbers = random.Random(count)
    for _ in range(5):
        positions, end = random_positions(numbers, count, longest)
        without = [positions[:i] + positions[i + 1 :] for i in range(count)]
        assert removal_costs(positions, end) == [float("inf"), *(sweep_cost(rest, end, count - 1) for rest in without[1:])]


@pytest.mark.parametrize("count", [2, 10, 90])
def test_removal_costs_in_seconds_are_those_of_sweeps_too(count: int) -> None:
    numbers = random.Random(count)
    for _ in range(10):
        positions, end = random_positions(numbers, count, 500)
        times = clock([numbers.expovariate(1) for _ in range(end)])
        expected = [sweep_cost(positions[:i] + positions[i + 1 :], end, count - 1, times) for i in range(1, count)]
        for given in (times, times.tolist()):
            np.testing.assert_allclose(removal_costs(positions, end, times=given)[1:], expected, rtol=1e-12)


@pytest.mark.parametrize("count", [20, 100])
def test_equal_step_times_change_nothing(count: int) -> None:
    positions, end = random_positions(random.Random(5), count, 3000)
    times = [0.5 * position for position in range(end + 1)]
    seconds = removal_costs(positions, end, times=times)
    np.testing.assert_allclose(seconds[1:], 0.5 * np.array(removal_costs(positions, end)[1:]), rtol=1e-12)


def test_a_state_at_the_very_end_costs_nothing_to_remove() -> None:
    assert removal_costs([0, 6], 6) == [float("inf"), sweep_cost([0], 6, 1)]
    positions = list(range(0, 300, 3))
    expected = sweep_cost(positions[:-1], positions[-1], len(positions) - 1)
    assert removal_costs(positions, positions[-1])[-1] == expected


def test_a_gap_in_one_slot_may_be_long() -> None:
    """Such gaps need many repeats; they must not be counted one by one."""
    assert removal_costs([0, 10**9 - 1], 10**9)[1] == float((10**9 - 1) * (10**9 - 2) // 2)
    positions = [10**6 * index for index in range(80)]
    assert removal_costs(positions, 80 * 10**6)[-1] == sweep_cost(positions[:-1], 80 * 10**6, 79)


# --- the choice ------------------------------------------------------------------------------------------------------


def test_the_choice_has_the_least_cost_and_is_the_first_of_its_kind() -> None:
    numbers = random.Random(3)
    for count in [2, 3, 5, 8, 30, 65, 90] * 10:
        positions, end = random_positions(numbers, count, 4 * count)
        costs = removal_costs(positions, end)
        assert choose_removal(positions, end) == min(range(count), key=lambda i: (costs[i], i))


@pytest.mark.parametrize("count", [6, 80])
def test_equal_bytes_change_nothing(count: int) -> None:
    positions, end = random_positions(random.Random(6), count, 1000)
    assert choose_removal(positions, end, freed=[4096] * count) == choose_removal(positions, end)


@pytest.mark.parametrize("count", [6, 80])
def test_the_choice_has_the_least_added_cost_for_a_byte(count: int) -> None:
    numbers = random.Random(count)
    for _ in range(20):
        positions, end = random_positions(numbers, count, 1000)
        freed = [numbers.randint(1, 100) for _ in positions]
        added = [cost - sweep_cost(positions, end, count) for cost in removal_costs(positions, end)]
        assert choose_removal(positions, end, freed=freed) == min(range(count), key=lambda i: added[i] / freed[i])


@pytest.mark.parametrize("count", [6, 80])
def test_a_state_that_frees_nothing_stays_while_another_frees_something(count: int) -> None:
    positions, end = random_positions(random.Random(7), count, 1000)
    for only in range(1, count):
        assert choose_removal(positions, end, freed=[1 if i == only else 0 for i in range(count)]) == only
    assert choose_removal(positions, end, freed=[0] * count) == choose_removal(positions, end)
    assert choose_removal(positions, end, freed=[1] + [0] * (count - 1)) == choose_removal(positions, end)


def test_the_start_is_never_dropped() -> None:
    assert choose_removal([0, 1], 2) == 1
    assert choose_removal([0, 1], 1000, freed=[10**9, 1]) == 1


def test_cheap_steps_are_recomputed_before_dear_ones() -> None:
    positions = [0, 10, 20, 30, 40]
    slow_first = clock([100.0] * 20 + [1.0] * 21)
    slow_last = clock([1.0] * 20 + [100.0] * 21)
    assert positions[choose_removal(positions, 41, times=slow_first)] >= 30
    assert positions[choose_removal(positions, 41, times=slow_last)] == 10


@pytest.mark.parametrize("count", [3, 100])
def test_arrays_are_as_good_as_lists(count: int) -> None:
    positions, end = random_positions(random.Random(8), count, 3000)
    times, freed = clock(np.linspace(1, 9, end)), np.linspace(1, 5, count)
    as_lists = choose_removal(positions, end, freed=freed.tolist(), times=times.tolist())
    array: Any = np.array(positions)
    assert choose_removal(array, end, freed=freed, times=times) == as_lists  # type: ignore[arg-type]


# --- beside the optimum ----------------------------------------------------------------------------------------------


def opened(slots: int) -> OpenLoop:
    """A loop of which no step has room to be taped but the newest."""
    return OpenLoop(Reach(slots, 1, slots))


def evaluations(loop: OpenLoop) -> float:
    """All runs of a step if the loop ends now."""
    return 2 * loop.steps - 1 + sweep_cost(loop.positions, loop.steps, loop.reach.slots)


@pytest.mark.parametrize(
    ("slots", "steps", "worst"),
    [(5, 20_000, 1.07), (10, 20_000, 1.04), (20, 20_000, 1.03), (50, 6000, 1.03), (100, 6000, 1.03)],
)
def test_an_open_loop_is_near_the_optimum_for_a_known_length(slots: int, steps: int, worst: float) -> None:
    loop, found = opened(slots), []
    for step in range(1, steps + 1):
        loop.run_to(step)
        if step % 11 == 0 or step < 300:
            found.append(evaluations(loop) / (step + binomial.advances(step, slots)))
    assert min(found) >= 1
    assert max(found) <= worst
    assert sum(found) / len(found) <= 1.01


@pytest.mark.parametrize(("steps", "slots", "most"), [(1000, 10, 4735), (10**4, 5, 124_000)])
def test_known_loops_take_no_more_evaluations_than_they_did(steps: int, slots: int, most: int) -> None:
    loop = opened(slots)
    loop.run_to(steps)
    assert loop.evaluations() == evaluations(loop) <= most


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 20])
def test_a_short_loop_drops_in_every_step_the_state_that_is_missed_least(slots: int) -> None:
    loop, positions = opened(slots), list[int]()
    for step in range(40):
        positions.append(step)
        if len(positions) > slots:
            positions.pop(choose_removal(positions, step + 1))
        loop.run_to(step + 1)
        assert evaluations(loop) == 2 * step + 1 + sweep_cost(positions, step + 1, slots)


# --- uneven steps ----------------------------------------------------------------------------------------------------


def uneven_optimum(times: Any, slots: int) -> Any:
    """Return, by trying every split, the least time to advance between any two positions with up to ``slots`` slots."""
    steps = len(times) - 1
    table = np.zeros((slots + 1, steps + 1, steps + 1))
    for length in range(2, steps + 1):
        start = np.arange(steps - length + 1)
        stop = start + length
        table[1, start, stop] = table[1, start, stop - 1] + times[stop - 1] - times[start]
    for room in range(2, slots + 1):
        for length in range(2, steps + 1):
            start = np.arange(steps - length + 1)[:, np.newaxis]
            stop, middle = start + length, start + np.arange(1, length)
            options = times[middle] - times[start] + table[room, start, middle] + table[room - 1, middle, stop]
            table[room, start[:, 0], stop[:, 0]] = options.min(axis=1)
    return table


def uneven_ratio(step_times: Any, slots: int, optimum: Any, *, aware: bool) -> float:
    """Return the time of an online loop beside the optimum; gaps are reversed in the best way."""
    steps, times = len(step_times), clock(step_times)
    positions: list[int] = []
    for step in range(steps):
        positions.append(step)
        if len(positions) > slots:
            positions.pop(choose_removal(positions, step + 1, times=times if aware else None))
    ends = [*positions[1:], steps - 1]
    sweep = sum(optimum[slots - i, start, stop] for i, (start, stop) in enumerate(zip(positions, ends, strict=True)))
    return float((times[-1] + times[-2] + sweep) / (times[-1] + optimum[slots, 0, steps]))


STEPS = 150
SMOOTH = {
    "growing": np.geomspace(1, 100, STEPS),
    "growing evenly": np.linspace(1, 100, STEPS),
    "shrinking": np.linspace(100, 1, STEPS),
    "even": np.ones(STEPS),
}


def uneven_ratios(step_times: Any) -> tuple[list[float], list[float]]:
    """Return the ratios with 4, 6 and 10 slots, with measured times and without."""
    optimum = uneven_optimum(clock(step_times), 10)
    aware, blind = (
        [uneven_ratio(step_times, slots, optimum, aware=aware) for slots in (4, 6, 10)] for aware in (True, False)
    )
    return aware, blind


@pytest.mark.parametrize("name", SMOOTH)
def test_measured_times_keep_uneven_loops_near_their_optimum(name: str) -> None:
    aware, blind = uneven_ratios(SMOOTH[name])
    assert min(aware) >= 1
    assert max(aware) <= 1.082
    if name == "even":
        assert aware == blind
    else:
        assert sum(aware) < sum(blind)


def test_measured_times_do_no_harm_on_average_where_steps_are_erratic() -> None:
    """A single erratic loop can be further away, with measured times or without: there is no trend to use."""
    draws = [uneven_ratios(np.random.default_rng(seed).lognormal(0, 1, STEPS)) for seed in range(8)]
    aware, blind = np.array(draws).mean(axis=(0, 2))
    assert aware <= min(blind, 1.08)


# --- bytes -----------------------------------------------------------------------------------------------------------


def sweep_with_uneven_states(sizes: Sequence[int], budget: int, *, by_byte: bool) -> float:
    """Run a loop whose states differ in size under a budget of bytes; return its cost at the end."""
    positions: list[int] = []
    for step in range(len(sizes)):
        positions.append(step)
        while sum(sizes[position] for position in positions) > budget:
            freed = [sizes[position] for position in positions] if by_byte else None
            positions.pop(choose_removal(positions, step + 1, freed=freed))
    return sweep_cost(positions, len(sizes), len(positions))


def test_counting_bytes_pays_where_states_differ_in_size() -> None:
    sizes = [20 if step % 2 else 1 for step in range(400)]
    assert sweep_with_uneven_states(sizes, 120, by_byte=True) < 0.8 * sweep_with_uneven_states(
        sizes, 120, by_byte=False
    )


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_positions_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"the start is always kept, so none of the saved states \[0\]"):
        choose_removal([0], 5)
    for positions in ([0, 3, 3], [*range(90), 89]):
        with pytest.raises(ArgumentError, match="rising order"):
            removal_costs(positions, 100)
    for positions in ([0, 3, 7], list(range(90))):
        with pytest.raises(ArgumentError, match="none after the end 5"):
            removal_costs(positions, 5)
    with pytest.raises(ArgumentError, match="freed has a number for each of 3 saved states, got 2"):
        choose_removal([0, 1, 2], 5, freed=[1, 2])


def test_few_and_many_positions_are_scored_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(9)
    cases = [random_positions(numbers, count, 10 ** numbers.randint(3, 6)) for count in (2, 3, 20, 60, 100)]
    few_and_many = []
    for limit in (0, 1000):
        monkeypatch.setattr(online, "_MANY", limit)
        few_and_many.append([removal_costs(*case) for case in cases])
    assert few_and_many[0] == few_and_many[1]
