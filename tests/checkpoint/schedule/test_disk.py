"""States on disk: the period and the tail beside all others, and schedules that a machine carries out."""

from __future__ import annotations

import pytest

from tests.checkpoint.schedule.model import Machine
from unspool.checkpoint._schedule.actions import ADVANCE, LOAD
from unspool.checkpoint._schedule.budget import Sizes
from unspool.checkpoint._schedule.disk import DiskLoop, best_period
from unspool.checkpoint._schedule.reach import Reach
from unspool.checkpoint.planner import disk_cost, disk_period
from unspool.errors import ArgumentError

TIMES = [(0, 0), (0.5, 0.25), (2, 2), (1, 8), (20, 20), (300, 100)]


def carried_out(loop: DiskLoop, reach: Reach) -> Machine:
    machine = Machine(Sizes(reach.state, reach.residual), reach.room + 2 * reach.state + reach.residual)
    machine.run(loop.forward()).end().run(loop.backward())
    assert machine.done
    return machine


@pytest.mark.parametrize(("write", "read"), TIMES)
@pytest.mark.parametrize("slots", [1, 2, 5, 10])
def test_the_period_has_the_least_cost_of_a_step(slots: int, write: float, read: float) -> None:
    for residual in (0, 1, 4, 10**6):
        reach = Reach(slots, 1, residual)
        period = best_period(reach, write, read, 2000)
        cost = {p: (reach.cost(p, slots - 1) + write + read) / p for p in range(1, 2001)}
        assert cost[period] == pytest.approx(min(cost.values()), rel=1e-12)


@pytest.mark.parametrize(("write", "read"), TIMES)
def test_where_no_tape_fits_it_is_the_cost_of_the_planner(write: float, read: float) -> None:
    for slots in (1, 2, 5):
        reach = Reach(slots, 1, 10**6)
        for steps in (1, 10, 100, 237):
            period = disk_period(slots, write, read, limit=steps)
            loop = DiskLoop(reach, steps, period, write, read)
            assert loop.cost() == disk_cost(steps, slots, period, write, read)


def test_the_published_cost_of_disk_revolve_is_nearly_reached() -> None:
    """3483 for 1000 steps, 5 states and 2 steps' time for a write or a read; without disk 7284."""
    reach = Reach(5, 1, 10**6)
    assert DiskLoop(reach, 1000, best_period(reach, 2, 2, 1000), 2, 2).cost() <= 1.01 * 3483


@pytest.mark.parametrize(("write", "read"), TIMES)
@pytest.mark.parametrize(("room", "residual"), [(1, 1), (3, 0), (5, 2), (20, 3), (4, 50)])
def test_what_is_carried_out_costs_what_it_says(room: int, residual: int, write: float, read: float) -> None:
    reach = Reach(room, 1, residual)
    for steps in (1, 2, 40, 300):
        loop = DiskLoop(reach, steps, best_period(reach, write, read, steps), write, read)
        machine = carried_out(loop, reach)
        assert machine.transfers["written"] == machine.transfers["read"] == len(loop.written)
        assert machine.evaluations + len(loop.written) * (write + read) == pytest.approx(loop.cost())


def test_room_for_leaves_makes_the_disk_pay_later() -> None:
    """With room for tapes a period in memory costs less, so a disk of the same speed is used for longer periods."""
    assert best_period(Reach(12, 1, 2), 20, 20, 10**4) > best_period(Reach(1, 1, 2), 20, 20, 10**4)


def test_a_file_that_cannot_be_read_is_replaced_by_a_run_from_the_one_before() -> None:
    loop = DiskLoop(Reach(2, 1, 1), 100, 7, 1, 1)
    assert loop.without(3).tolist() == [[LOAD, 14, 14, -3], [ADVANCE, 14, 21, 0]]


def test_times_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="finite and not negative, got -1 and 2"):
        best_period(Reach(5, 1, 1), -1, 2, 10)
