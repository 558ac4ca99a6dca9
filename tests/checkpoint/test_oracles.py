"""Our schedules beside those of checkpoint_schedules, which is used by other libraries and tested by others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from unspool.checkpoint import binomial
from unspool.checkpoint.actions import Save
from unspool.checkpoint.planner import disk_cost, disk_period, mixed_evaluations

peers = pytest.importorskip("checkpoint_schedules")


@dataclass
class Counts:
    """What a schedule of theirs does."""

    evaluations: int = 0
    stores: int = 0
    disk_writes: int = 0
    disk_reads: int = 0


def counted(schedule: Any) -> Counts:
    """Go through a schedule of theirs, up to its end."""
    counts = Counts()
    disk = peers.StorageType.DISK
    for action in schedule:
        if isinstance(action, peers.EndReverse):
            break
        if isinstance(action, peers.Forward):
            counts.evaluations += action.n1 - action.n0
            counts.stores += action.write_ics
            counts.disk_writes += action.write_ics and action.storage == disk
        elif isinstance(action, peers.Copy | peers.Move):
            counts.disk_reads += action.from_storage == disk
    return counts


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10, 31, 100, 250])
def test_evaluations_and_stores_are_those_of_their_multistage_schedule(steps: int) -> None:
    for slots in {1, 2, 3, 5, 10, steps // 3, steps - 1} - {-1, 0}:
        if slots > max(steps - 1, 1):
            continue
        theirs = counted(peers.MultistageCheckpointSchedule(steps, slots, 0, trajectory="revolve"))
        assert steps + binomial.advances(steps, slots) == theirs.evaluations, slots
        stores = sum(isinstance(action, Save) for action in binomial.schedule(steps, slots))
        assert stores - (steps == 1) == theirs.stores, slots


@pytest.mark.parametrize(("steps", "slots"), [(10, 3), (50, 7), (100, 5), (120, 20)])
def test_evaluations_are_those_of_their_revolve_by_table(steps: int, slots: int) -> None:
    theirs = counted(peers.Revolve(steps, slots))
    assert steps + binomial.advances(steps, slots) == theirs.evaluations


@pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning")
@pytest.mark.parametrize(("steps", "units"), [(2, 1), (10, 1), (10, 3), (50, 7), (100, 5), (100, 20), (100, 99)])
def test_the_exact_table_is_that_of_their_mixed_schedule(steps: int, units: int) -> None:
    theirs = counted(peers.MixedCheckpointSchedule(steps, units, storage=peers.StorageType.RAM))
    assert mixed_evaluations(steps, units, 1) == theirs.evaluations


@pytest.mark.parametrize("steps", [10, 50, 100, 170, 250])
@pytest.mark.parametrize(("write", "read"), [(0.5, 0.5), (2, 2), (1, 8), (20, 20), (100, 50)])
def test_a_period_on_disk_is_within_a_hundredth_of_their_disk_revolve(steps: int, write: float, read: float) -> None:
    for slots in (2, 5, 20):
        theirs = counted(peers.DiskRevolve(steps, slots, uf=1, ub=1, wd=write, rd=read))
        least = theirs.evaluations + theirs.disk_writes * write + theirs.disk_reads * read
        period = disk_period(slots, write, read, limit=steps)
        assert disk_cost(steps, slots, period, write, read) <= 1.01 * least, slots
