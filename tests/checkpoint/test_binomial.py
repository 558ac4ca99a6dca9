"""The binomial schedule: closed forms against tried-out recursions, and every schedule against a machine."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice, takewhile

import numpy as np
import pytest

from tests.checkpoint.model import Machine, least_advances, least_saves
from unspool.checkpoint import binomial
from unspool.checkpoint.binomial import Advance, Free, Restore, Reverse, Save
from unspool.errors import ArgumentError

LENGTHS = (1, 2, 3, 5, 10, 100, 250)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_reaches_are_pascals_triangle() -> None:
    for slots in range(2, 12):
        for repeats in range(1, 12):
            left, right = binomial.reach(slots, repeats - 1), binomial.reach(slots - 1, repeats)
            assert binomial.reach(slots, repeats) == left + right
    assert [binomial.reach(1, repeats) for repeats in range(5)] == [1, 2, 3, 4, 5]
    assert binomial.reach(7, 0) == 1


@pytest.mark.parametrize("steps", [1, 2, 7, 57, 10**4, 10**9, 10**18 + 7])
@pytest.mark.parametrize("slots", [1, 2, 3, 10, 100, 10**5])
def test_repeats_are_the_least_that_reach(steps: int, slots: int) -> None:
    repeats = binomial.repeats(steps, slots)
    assert binomial.reach(slots, repeats) >= steps
    assert repeats == 0 or binomial.reach(slots, repeats - 1) < steps


def test_advances_are_those_of_the_recursion() -> None:
    for steps in range(1, 61):
        for slots in range(1, steps + 3):
            assert binomial.advances(steps, slots) == least_advances(steps, slots), (steps, slots)


def test_advances_are_those_of_the_recursion_for_all_loops_of_up_to_400_steps() -> None:
    longest = 400
    lengths = np.arange(longest + 1)
    table = lengths * (lengths - 1) // 2
    for slots in range(1, longest):
        if slots > 1:
            fewer, table = table, np.zeros_like(table)
            for steps in range(2, longest + 1):
                table[steps] = (lengths[1:steps] + table[1:steps] + fewer[steps - 1 : 0 : -1]).min()
        expected = table[1:].tolist()
        assert [binomial.advances(steps, slots) for steps in range(1, longest + 1)] == expected, slots


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 1000])
def test_slots_that_are_not_needed_change_nothing(steps: int) -> None:
    for slots in (max(steps - 1, 1), steps, 10 * steps, 10**9):
        assert binomial.advances(steps, slots) == steps - 1


def test_one_slot_is_quadratic() -> None:
    for steps in (1, 2, 10, 10**6):
        assert binomial.advances(steps, 1) == steps * (steps - 1) // 2


# Published: the optimal recompute factor, and in the second place the number of repeats.
FACTORS = {
    10**2: ((4.160, 4), (3.220, 3), (2.780, 2), (2.480, 2), (1.990, 1)),
    10**3: ((7.284, 8), (4.636, 4), (3.747, 3), (2.948, 2), (2.898, 2)),
    10**4: ((12.287, 14), (6.762, 7), (4.798, 4), (3.862, 3), (3.475, 3)),
    10**5: ((20.250, 24), (9.320, 10), (6.342, 6), (4.752, 4), (3.947, 3)),
}


@pytest.mark.parametrize("steps", FACTORS)
def test_factors_are_the_known_ones(steps: int) -> None:
    for slots, (factor, repeats) in zip((5, 10, 20, 50, 100), FACTORS[steps], strict=True):
        assert round(binomial.factor(steps, slots), 3) == factor
        assert binomial.repeats(steps, slots) == repeats


@pytest.mark.parametrize(
    ("steps", "needed"),
    [(10**2, (12, 6, 4)), (10**3, (43, 16, 9)), (10**4, (139, 37, 19)), (10**5, (445, 82, 36))],
)
def test_the_slots_needed_for_a_factor_are_the_known_ones(steps: int, needed: tuple[int, ...]) -> None:
    for factor, slots in zip((3, 4, 5), needed, strict=True):
        assert binomial.factor(steps, slots) <= factor < binomial.factor(steps, slots - 1)


def test_the_factor_follows_its_growth_law() -> None:
    for slots in (2, 3, 5):
        steps = 10**12
        law = 1 + slots / (slots + 1) * (math.factorial(slots) * steps) ** (1 / slots)
        assert binomial.factor(steps, slots) == pytest.approx(law, rel=0.02)


def test_splits_are_optimal() -> None:
    for steps in range(2, 61):
        for slots in range(2, steps + 3):
            k = binomial.split(steps, slots)
            assert 0 < k < steps
            parts = least_advances(k, slots) + least_advances(steps - k, slots - 1)
            assert k + parts == least_advances(steps, slots), (steps, slots)


# --- schedules -------------------------------------------------------------------------------------------------------


def executed(steps: int, slots: int) -> Machine:
    """Run a schedule on the machine, and see that it ends as it should."""
    machine = Machine(slots, steps).run(binomial.schedule(steps, slots))
    assert machine.done
    return machine


@pytest.mark.parametrize("steps", LENGTHS)
def test_schedules_are_valid_and_optimal_for_every_number_of_slots(steps: int) -> None:
    for slots in range(1, steps + 2):
        machine = executed(steps, slots)
        assert machine.evaluations == steps + binomial.advances(steps, slots), slots
        assert max(machine.advanced.values(), default=0) == binomial.repeats(steps, slots)


def test_schedules_are_valid_and_optimal_for_random_loops() -> None:
    numbers = random.Random(1)
    for _ in range(60):
        steps, slots = numbers.randint(1, 3000), numbers.randint(1, 60)
        if slots < 3:
            steps = 1 + steps % 200
        assert executed(steps, slots).evaluations == steps + binomial.advances(steps, slots), (steps, slots)


def test_schedules_save_the_fewest_states() -> None:
    for steps in range(1, 41):
        for slots in range(1, steps + 1):
            assert executed(steps, slots).actions[Save] == 1 + least_saves(steps, slots), (steps, slots)


def test_fifty_steps_in_seven_slots_take_the_published_number_of_advances_stores_and_commands() -> None:
    machine = executed(50, 7)
    assert sum(machine.advanced.values()) == 105
    assert machine.actions[Save] == 28
    # Published commands end with one that says so, and have none to free a slot.
    assert machine.actions.total() - machine.actions[Free] + 1 == 177


def test_a_single_step_is_saved_freed_and_reversed() -> None:
    assert list(binomial.schedule(1, 1)) == [Save(0), Free(0), Reverse(0)]


def test_checkpoints_are_what_the_first_sweep_saves() -> None:
    for steps in (1, 2, 3, 7, 30, 100, 1000):
        for slots in (1, 2, 3, 5, 20, 99, 2000):
            sweep = takewhile(lambda action: not isinstance(action, Reverse), binomial.schedule(steps, slots))
            saved = [action.step for action in sweep if isinstance(action, Save)]
            assert [0, *binomial.checkpoints(steps, slots)] == saved, (steps, slots)


def test_a_gap_is_reversed_as_a_loop_of_its_own() -> None:
    for steps, slots in ((1, 1), (2, 1), (9, 2), (40, 5)):
        loop = list(binomial.schedule(steps, slots))
        assert loop[0] == Save(0)
        assert list(binomial.reverse_gap(0, steps, slots)) == [Restore(0), *loop[1:]]
        machine = Machine(slots, steps + 17)
        machine.current = 17
        machine.run([Save(17), *binomial.reverse_gap(17, 17 + steps, slots)])
        assert machine.left == 17 and not machine.saved
        assert machine.evaluations == steps + binomial.advances(steps, slots)


def test_a_schedule_of_a_million_steps_is_a_stream_that_holds_little() -> None:
    tracemalloc.start()
    try:
        stream = binomial.schedule(10**6, 50)
        for _ in islice(stream, 20_000):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * 500


def test_a_hundred_thousand_steps_need_no_recursion() -> None:
    steps = 10**5
    advanced = reversed_ = 0
    for action in binomial.schedule(steps, 4):
        if isinstance(action, Advance):
            advanced += action.stop - action.start
        reversed_ += isinstance(action, Reverse)
    assert (advanced, reversed_) == (binomial.advances(steps, 4), steps)


def test_actions_compare_by_kind_and_contents() -> None:
    assert Save(3) == Save(3) != Free(3)
    assert len({Save(3), Restore(3), Reverse(3), Free(3), Save(3)}) == 4


# --- mistakes --------------------------------------------------------------------------------------------------------


Function = Callable[[int, int], int | float | Iterator[object]]


@pytest.mark.parametrize(
    "function", [binomial.repeats, binomial.advances, binomial.factor, binomial.checkpoints, binomial.schedule]
)
def test_loops_without_steps_and_schedules_without_slots_are_refused(function: Function) -> None:
    with pytest.raises(ArgumentError, match="steps is at least 1, got 0"):
        function(0, 3)
    with pytest.raises(ArgumentError, match="slots is at least 1, got -2"):
        function(3, -2)
    with pytest.raises(ArgumentError, match="slots is an integer, got 2.5"):
        function(3, 2.5)  # type: ignore[arg-type]


def test_splits_of_what_cannot_be_split_are_refused() -> None:
    with pytest.raises(ArgumentError, match="steps is at least 2, got 1"):
        binomial.split(1, 3)
    with pytest.raises(ArgumentError, match="slots is at least 2, got 1"):
        binomial.split(5, 1)
    with pytest.raises(ArgumentError, match="stop is at least 6, got 5"):
        binomial.reverse_gap(5, 5, 1)
    with pytest.raises(ArgumentError, match="repeats is at least 0, got -1"):
        binomial.reach(3, -1)
