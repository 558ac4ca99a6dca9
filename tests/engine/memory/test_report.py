"""Reports and plans of memory: data, and tables of it."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

import unspool as us
from unspool._engine.memory.report import MemoryPlan, MemoryReport
from unspool._engine.table import render_table

REPORT = MemoryReport(
    budget=2_000_000_000,
    peak=1_874_944_000,
    predicted_peak=1_900_000_000,
    steps=10_000,
    evaluations=19_963,
    optimal_factor=1.9,
    slots=261,
    block=37,
    disk_period=400,
    evictions=12,
    slabs_dropped=9_963,
    spilled_bytes=0,
    read_bytes=999,
    rebuild_seconds=0.25,
    metadata_bytes=4_200_000,
)

PLAN = MemoryPlan(
    budget=2_000_000,
    fits=False,
    least_budget=2_600_000,
    predicted_peak=None,
    steps=1_000,
    factor=2.5,
    slots=1,
    block=1,
    disk_period=None,
    state_bytes=524_288,
    tape_bytes=2_097_152,
)


def test_a_report_prints_as_a_table() -> None:
    assert str(REPORT).splitlines() == [
        "budget                          2.00 GB",
        "measured peak                   1.87 GB",
        "predicted peak                  1.90 GB",
        "steps                         10,000",
        "evaluations                   19,963",
        "recompute factor               1.996 ×",
        "recompute factor at best       1.900 ×",
        "slots for states                 261",
        "steps in a block                  37",
        "steps between states on disk     400",
        "states evicted                    12",
        "residuals evicted              9,963",
        "written to disk                    0 B",
        "read from disk                   999 B",
        "recomputing                    0.250 s",
        "metadata                        4.20 MB",
    ]


def test_a_plan_prints_alike() -> None:
    assert str(PLAN).splitlines() == [
        "budget                         2.00 MB",
        "fits                             no",
        "least budget                   2.60 MB",
        "predicted peak                    –",
        "steps                         1,000",
        "recompute factor              2.500 ×",
        "slots for states                  1",
        "steps in a block                  1",
        "steps between states on disk      –",
        "a state                         524 kB",
        "residuals of a step            2.10 MB",
    ]


def test_what_is_not_known_is_a_dash() -> None:
    lines = str(MemoryReport()).splitlines()
    assert len(lines) == 16
    assert all(line.split()[-1] == "–" for line in lines)


def test_zero_is_known() -> None:
    assert str(MemoryReport(evictions=0, rebuild_seconds=0.0)).count("–") == 14


def test_the_factor_is_evaluations_for_each_step() -> None:
    assert REPORT.factor == 1.9963


@pytest.mark.parametrize("known", [{}, {"steps": 10}, {"evaluations": 10}, {"steps": 0, "evaluations": 0}])
def test_the_factor_of_nothing_is_not_known(known: dict[str, int]) -> None:
    assert MemoryReport(**known).factor is None


@pytest.mark.parametrize("facts", [REPORT, PLAN], ids=["report", "plan"])
def test_every_field_is_in_the_table_and_in_the_data(facts: MemoryReport | MemoryPlan) -> None:
    data = facts.asdict()
    names = [field.name for field in dataclasses.fields(facts)]
    assert set(data) == {*names, "factor"}
    assert all(data[name] == getattr(facts, name) for name in data)
    assert len(str(facts).splitlines()) == len(data)


@pytest.mark.parametrize("facts", [REPORT, PLAN], ids=["report", "plan"])
def test_data_can_be_written_and_sent(facts: MemoryReport | MemoryPlan) -> None:
    assert json.loads(json.dumps(facts.asdict())) == facts.asdict()
    assert pickle.loads(pickle.dumps(facts)) == facts


@pytest.mark.parametrize("facts", [REPORT, PLAN], ids=["report", "plan"])
def test_facts_do_not_change(facts: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        facts.budget = 1


# --- the table -------------------------------------------------------------------------------------------------------


def test_numbers_are_aligned_on_the_right_and_units_on_the_left() -> None:
    assert render_table([("a", "1 kB"), ("long", "2,000"), ("b", "30 s")]).splitlines() == [
        "a         1 kB",
        "long  2,000",
        "b        30 s",
    ]


def test_a_table_of_nothing_is_empty() -> None:
    assert render_table([]) == ""


def test_statistics_of_the_engine_use_the_same_table() -> None:
    stats = us.engine_stats()
    rows = {f.name.replace("_", " "): f"{getattr(stats, f.name):,}" for f in dataclasses.fields(stats)}
    assert str(stats) == render_table(rows.items())
    assert len({len(line) for line in str(stats).splitlines()}) == 1
