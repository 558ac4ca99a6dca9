"""Loops of unknown length: exact costs, the choice of what to drop, and how near the result is to the optimum."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.checkpoint.model import Machine
from unspool.checkpoint import binomial, online
from unspool.checkpoint.actions import Advance, Free, Save
from unspool.checkpoint.online import OnlineSchedule, Rule, choose_removal, removal_costs, sweep_cost
from unspool.errors import ArgumentError

RULES: tuple[Rule, ...] = ("cost", "wang-moin")


def random_positions(numbers: random.Random, count: int, longest: int) -> tuple[list[int], int]:
    """Return saved states, the start among them, and an end."""
    end = numbers.randint(count, longest)
    return [0, *sorted(numbers.sample(range(1, end), count - 1))], end


def clock(step_times: Any) -> Any:
    """Return the time at each position, as `times` is given."""
    return np.concatenate(([0.0], np.cumsum(step_times)))


# --- costs -----------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_sweep_is_what_a_sweep_executes() -> None:
    numbers = random.Random(2)
    for _ in range(200):
        positions, end = random_positions(numbers, numbers.randint(1, 12), 150)
        slots = len(positions) + numbers.randint(0, 3)
        machine = Machine(slots, None).run([Save(0)])
        for start, stop in pairwise(positions):
            machine.run([Advance(start, stop), Save(stop)])
        machine.run([Advance(positions[-1], end)]).end()
        schedule = OnlineSchedule(slots)
        schedule.steps, schedule._positions = end, positions
        machine.run(schedule.finish())
        assert machine.done
        assert machine.evaluations == end + sweep_cost(positions, end, slots=slots) + end - 1


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 65, 150])
@pytest.mark.parametrize("longest", [160, 10**4, 10**6])
def test_removal_costs_are_the_costs_of_sweeps_without_a_state(count: int, longest: int) -> None:
    numbers = random.Random(count)
    for _ in range(5):
        positions, end = random_positions(numbers, count, longest)
        without = [positions[:i] + positions[i + 1 :] for i in range(count)]
        assert removal_costs(positions, end) == [float("inf"), *(sweep_cost(rest, end) for rest in without[1:])]


@pytest.mark.parametrize("count", [2, 10, 90])
def test_removal_costs_in_seconds_are_those_of_sweeps_too(count: int) -> None:
    numbers = random.Random(count)
    for _ in range(10):
        positions, end = random_positions(numbers, count, 500)
        times = clock([numbers.expovariate(1) for _ in range(end)])
        expected = [sweep_cost(positions[:i] + positions[i + 1 :], end, times=times) for i in range(1, len(positions))]
        for given in (times, times.tolist()):
            np.testing.assert_allclose(removal_costs(positions, end, times=given)[1:], expected, rtol=1e-12)


@pytest.mark.parametrize("count", [20, 100])
def test_equal_step_times_change_nothing(count: int) -> None:
    positions, end = random_positions(random.Random(5), count, 3000)
    times = [0.5 * position for position in range(end + 1)]
    seconds = removal_costs(positions, end, times=times)
    np.testing.assert_allclose(seconds[1:], 0.5 * np.array(removal_costs(positions, end)[1:]), rtol=1e-12)


def test_a_state_at_the_very_end_costs_nothing_to_remove() -> None:
    assert removal_costs([0, 6], 6) == [float("inf"), sweep_cost([0], 6)]
    positions = list(range(0, 300, 3))
    expected = sweep_cost(positions[:-1], positions[-1], slots=len(positions) - 1)
    assert removal_costs(positions, positions[-1])[-1] == expected


def test_a_gap_in_one_slot_may_be_long() -> None:
    """Such gaps need many repeats; they must not be counted one by one."""
    assert sweep_cost([0], 10**9) == float((10**9 - 1) * (10**9 - 2) // 2)
    positions = [10**6 * index for index in range(80)]
    assert removal_costs(positions, 80 * 10**6)[-1] == sweep_cost(positions[:-1], 80 * 10**6)


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
        added = [cost - sweep_cost(positions, end) for cost in removal_costs(positions, end)]
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


# --- loops -----------------------------------------------------------------------------------------------------------


def executed(schedule: OnlineSchedule, steps: int) -> Machine:
    """Run a loop on the machine, state by state, and reverse it."""
    machine = Machine(schedule.slots, None)
    for step in range(steps):
        dropped = schedule.advance()
        if dropped not in (None, step):
            machine.run([Free(dropped)])
        machine.run([Save(step)] if dropped != step else [])
        machine.run([Advance(step, step + 1)])
        assert tuple(sorted(machine.saved)) == schedule.positions
    machine.end().run(schedule.finish())
    assert machine.done
    return machine


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10, 60])
def test_loops_are_valid_for_every_number_of_slots(rule: Rule, steps: int) -> None:
    for slots in range(1, steps + 2):
        schedule = OnlineSchedule(slots, rule)
        machine = executed(schedule, steps)
        expected = 2 * steps - 1 + sweep_cost(schedule.positions, steps, slots=slots)
        assert machine.evaluations == expected >= steps + binomial.advances(steps, slots)


@pytest.mark.parametrize("rule", RULES)
def test_loops_that_stop_anywhere_are_valid(rule: Rule) -> None:
    numbers = random.Random(4)
    for _ in range(40):
        slots, steps = numbers.randint(2, 60), numbers.randint(1, 600)
        schedule = OnlineSchedule(slots, rule)
        machine = executed(schedule, steps)
        assert machine.evaluations == 2 * steps - 1 + sweep_cost(schedule.positions, steps, slots=slots)


def test_a_loop_can_be_reversed_and_then_go_on() -> None:
    once, twice = OnlineSchedule(4), OnlineSchedule(4)
    for step in range(100):
        once.advance()
        twice.advance()
        if step % 10 == 0:
            list(twice.finish())
    assert once.positions == twice.positions
    assert list(once.finish()) == list(twice.finish())


def test_a_loop_that_fits_is_run_once_and_taped_once_more() -> None:
    for rule in RULES:
        for steps in range(1, 21):
            assert executed(OnlineSchedule(20, rule), steps).evaluations == 2 * steps - 1


def test_a_loop_that_never_ran_has_nothing_to_reverse() -> None:
    assert list(OnlineSchedule(3).finish()) == []


def test_wang_and_moin_bound_the_repeats_of_every_step() -> None:
    for slots in range(2, 7):
        for steps in range(2, 120, 7):
            advanced = executed(OnlineSchedule(slots, "wang-moin"), steps).advanced
            assert max(advanced.values()) <= binomial.repeats(steps, slots) + 1


# --- beside the optimum ----------------------------------------------------------------------------------------------


def ratios(slots: int, steps: int, every: int, rule: Rule = "cost") -> list[float]:
    """Return evaluations beside the offline optimum, for loops that stop at every so many steps."""
    schedule, found = OnlineSchedule(slots, rule), []
    for step in range(1, steps + 1):
        schedule.advance()
        if step % every == 0 or step < 300:
            evaluations = 2 * step - 1 + sweep_cost(schedule.positions, step, slots=slots)
            found.append(evaluations / (step + binomial.advances(step, slots)))
    return found


@pytest.mark.parametrize(
    ("slots", "steps", "worst"),
    [(5, 20_000, 1.07), (10, 20_000, 1.04), (20, 20_000, 1.03), (50, 6000, 1.03), (100, 6000, 1.03)],
)
def test_the_cost_rule_is_near_the_optimum_for_a_known_length(slots: int, steps: int, worst: float) -> None:
    found = ratios(slots, steps, every=11)
    assert min(found) >= 1
    assert max(found) <= worst
    assert sum(found) / len(found) <= 1.01


@pytest.mark.parametrize("slots", [5, 10, 20])
def test_the_cost_rule_takes_less_than_that_of_wang_and_moin(slots: int) -> None:
    cost, wang_moin = ratios(slots, 3000, every=1), ratios(slots, 3000, every=1, rule="wang-moin")
    assert max(cost) < max(wang_moin)
    assert sum(cost) < sum(wang_moin)


@pytest.mark.parametrize(("steps", "slots", "most"), [(1000, 10, 4735), (10**4, 5, 124_000)])
def test_known_loops_take_no_more_evaluations_than_they_did(steps: int, slots: int, most: int) -> None:
    schedule = OnlineSchedule(slots)
    for _ in range(steps):
        schedule.advance()
    assert 2 * steps - 1 + sweep_cost(schedule.positions, steps, slots=slots) <= most


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
    return sweep_cost(positions, len(sizes))


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
    with pytest.raises(ArgumentError, match="there is a saved state"):
        sweep_cost([], 5)
    with pytest.raises(ArgumentError, match="3 saved states do not fit into 2 slots"):
        sweep_cost([0, 1, 2], 5, slots=2)
    with pytest.raises(ArgumentError, match="freed has a number for each of 3 saved states, got 2"):
        choose_removal([0, 1, 2], 5, freed=[1, 2])


def test_rules_and_slots_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ArgumentError, match="rule is one of 'cost', 'wang-moin', got 'lru'"):
        OnlineSchedule(3, "lru")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="slots is at least 1, got 0"):
        OnlineSchedule(0)


def test_few_and_many_positions_are_scored_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(9)
    cases = [random_positions(numbers, count, 10 ** numbers.randint(3, 6)) for count in (2, 3, 20, 60, 100)]
    few_and_many = []
    for limit in (0, 1000):
        monkeypatch.setattr(online, "_MANY", limit)
        few_and_many.append([removal_costs(*case) for case in cases])
    assert few_and_many[0] == few_and_many[1]
