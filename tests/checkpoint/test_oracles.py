"""Our schedules beside those of checkpoint_schedules, which is used by other libraries and tested by others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.checkpoint.oracles import mixed_evaluations
from unspool.checkpoint import binomial
from unspool.checkpoint._schedule.actions import SAVE
from unspool.checkpoint._schedule.loops import ClosedLoop
from unspool.checkpoint._schedule.reach import Reach

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
        loop = ClosedLoop(Reach(slots, 1, slots), steps)
        assert loop.evaluations() == steps + binomial.advances(steps, slots) == theirs.evaluations, slots
        stores = sum(int((chunk[:, 0] == SAVE).sum()) for chunk in (*loop.forward(), *loop.backward()))
        assert stores == theirs.stores, slots


@pytest.mark.parametrize(("steps", "slots"), [(10, 3), (50, 7), (100, 5), (120, 20)])
def test_evaluations_are_those_of_their_revolve_by_table(steps: int, slots: int) -> None:
    theirs = counted(peers.Revolve(steps, slots))
    assert steps + binomial.advances(steps, slots) == theirs.evaluations


@pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning")
@pytest.mark.parametrize(("steps", "units"), [(2, 1), (10, 1), (10, 3), (50, 7), (100, 5), (100, 20), (100, 99)])
def test_the_exact_table_is_that_of_their_mixed_schedule(steps: int, units: int) -> None:
    theirs = counted(peers.MixedCheckpointSchedule(steps, units, storage=peers.StorageType.RAM))
    assert mixed_evaluations(steps, units, 1) == theirs.evaluations
