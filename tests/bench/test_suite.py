"""The benchmark suite measures, compares and reports as it says. Nothing here depends on how fast the machine is."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.suite import plots, report
from bench.suite.measure import SuiteError, measure, quartiles, rounds_of
from bench.suite.run import available
from bench.suite.workload import PACKAGES, SIZES, Bar, Options, Row, Special, Workload
from tests.bench import made_up

SCRIPT = Path(__file__).parents[2] / "bench" / "suite" / "run.py"
QUICK = Options(size="small", rounds=1, seconds=20.0, quick=True)


# --- a run from the command line --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Two workloads, with the libraries that are installed; what was printed, and the file of numbers."""
    path = tmp_path_factory.mktemp("suite") / "numbers.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--workload", "b3", "B12", "--json", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(path.read_text(encoding="utf-8"))


def test_a_quick_run_measures_what_is_installed(quick):
    _, found = quick
    assert list(found["workloads"]) == ["B3", "B12"]
    for workload in found["workloads"].values():
        ours = [row for row in workload["rows"] if row["kind"] == "ours"]
        assert ours
        assert all(row["state"] == "ok" and row["seconds"] > 0.0 for row in ours)
    hand = next(row for row in found["workloads"]["B3"]["rows"] if row["kind"] == "limit")
    assert hand["low"] <= hand["seconds"] <= hand["high"]
    assert hand["first"] > 0.0
    assert hand["live"] > 0


def test_a_library_that_is_not_installed_is_skipped_and_named(quick):
    printed, found = quick
    rows = [row for workload in found["workloads"].values() for row in workload["rows"]]
    absent = {row["library"] for row in rows if not all(map(importlib.util.find_spec, PACKAGES[row["library"]]))}
    assert {row["library"] for row in rows if row["state"] == "missing"} == absent
    if absent:
        (line,) = [line for line in printed.splitlines() if line.startswith("not installed and left out")]
        assert set(line.partition(": ")[2].split(", ")) == absent


def test_the_file_of_numbers_tells_versions_machine_and_options(quick):
    _, found = quick
    assert {"python", "numpy", "unspool"} <= set(found["versions"])
    assert {"processor", "cores", "load"} <= set(found["machine"])
    assert found["options"]["threads"] == 1
    assert found["workloads"]["B3"]["parameters"]
    assert found["errors"] == {}


def test_an_unknown_workload_is_refused():
    done = subprocess.run([sys.executable, SCRIPT, "--workload", "B99"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no workload B99; there are B1" in done.stderr


@pytest.mark.parametrize("key", available())
def test_every_workload_is_complete(key):
    workload = importlib.import_module(f"bench.suite.{available()[key]}").WORKLOAD
    assert workload.key == key
    if isinstance(workload, Workload):
        assert set(workload.sizes) == set(SIZES)
        names = [form.name for form in workload.forms]
        assert len(set(names)) == len(names)
        assert all(form.library in PACKAGES for form in workload.forms)
        named = {name for bar in workload.bars for name in (bar.against, bar.ours) if name and bar.quantity != "right"}
        assert named <= {*names, "peer", "limit"}


def test_importing_workloads_imports_none_of_the_libraries():
    modules = ", ".join(f"bench.suite.{stem}" for stem in available().values())
    check = f"import sys, {modules}; print([m for m in ('unspool', 'torch', 'jax', 'autograd') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=SCRIPT.parents[2]
    )
    assert done.stdout.strip() == "[]"


# --- agreement --------------------------------------------------------------------------------------------------------


def test_what_goes_wrong_in_a_peer_is_shown_as_such():
    rows = {row.form: row for row in measure(made_up.SOUND, QUICK)}
    assert rows["ours"].state == rows["by hand"].state == "ok"
    assert (rows["a peer with NaN"].state, rows["a peer with NaN"].note) == ("NaN", "NaN in the gradient")
    assert rows["a peer that is wrong"].state == "wrong"
    assert "1.0e-03" in rows["a peer that is wrong"].note
    assert rows["a peer that raises"].state == "failed"
    assert "no rule for cubes" in rows["a peer that raises"].note
    assert (rows["a peer that cannot"].state, rows["a peer that cannot"].note) == ("cannot", "it only knows squares")
    assert all(row.seconds is None for row in rows.values() if row.state != "ok")
    printed = report.table("cubes", list(rows.values()))
    assert "NaN in the gradient" in printed and "it only knows squares" in printed


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (made_up.DISAGREEING, r"a peer: gradient differs from that of by hand by 1\.0e-07, and 1e-08 is the most"),
        (made_up.OURS_WRONG, "ours: gradient differs from that of what is known"),
        (made_up.OURS_NAN, "ours: NaN or infinity"),
        (made_up.OURS_FAILING, "ours: ArithmeticError: no rule for cubes"),
    ],
)
def test_a_form_that_disagrees_is_an_error(workload, message):
    with pytest.raises(SuiteError, match=message):
        measure(workload, QUICK)


# --- ratios and bars, from numbers made up ----------------------------------------------------------------------------


def row(form, kind, seconds=None, **settings):
    return Row("B0", form, "numpy", kind, seconds=seconds, low=seconds, high=seconds, **settings)


ROWS = [
    row("ours, slow", "ours", 6.0, live=1_000_000),
    row("ours, fast", "ours", 2.0, live=3_000_000, resident=8_000_000),
    row("PyTorch", "peer", 8.0, live=30_000_000, resident=50_000_000),
    row("JAX", "peer", 4.0, resident=80_000_000),
    row("autograd", "peer", state="NaN"),
    row("by hand", "limit", 1.6),
]


def test_ratios_are_ours_divided_by_the_best_peer_and_by_the_limit():
    (line,) = report.summary({"B0": ROWS})
    assert dict(zip(report.HEAD, line, strict=True)) == {
        "workload": "B0",
        "ours": "ours, fast",
        "time": "2 s",
        "best peer": "JAX, 4 s",
        "ours / peer": "0.50 ×",
        "memory": "0.10 ×",  # 8 of 80 MB of growth, for JAX does not tell its live bytes
        "limit": "by hand, 1.6 s",
        "ours / limit": "1.25 ×",
    }


def test_a_table_for_documents_has_the_same_numbers():
    lines = report.summary({"B0": ROWS})
    head, rule, first = report.markdown(lines).splitlines()
    assert head.count("|") == rule.count("|") == first.count("|") == len(report.HEAD) + 1
    assert "0.50 ×" in first and "0.50 ×" in report.aligned(lines)


@pytest.mark.parametrize(
    ("bar", "measured", "held"),
    [
        (Bar("PyTorch", 1 / 3), 0.25, True),
        (Bar("PyTorch", 1 / 5), 0.25, False),
        (Bar("peer", 0.5), 0.5, True),
        (Bar("limit", 1.2), 1.25, False),
        (Bar("PyTorch", 0.2, "memory"), 0.1, True),
        (Bar("peer", 0.05, "memory"), 0.1, False),
        (Bar("PyTorch", 1.0, ours="ours, slow"), 0.75, True),
        (Bar("autograd", 1.0), None, None),
        (Bar("not there", 1.0), None, None),
        (Bar("autograd", quantity="right"), None, True),
        (Bar("autograd; PyTorch", quantity="right"), None, False),
    ],
)
def test_a_bar_is_decided_by_the_ratio(bar, measured, held):
    workload = Special("B0", "made up", run=lambda options: [], bars=(bar,))
    (verdict,) = report.judge(workload, ROWS, "medium")
    assert verdict.held is held
    assert verdict.measured == (None if measured is None else pytest.approx(measured))
    assert {True: "pass", False: "MISS", None: "–"}[held] in str(verdict)
    assert report.judge(workload, ROWS, "small") == []


CURVE = [
    row(form, kind, factor * x, case="loop", x=x, live=int(1e5 * x))
    for x in (10.0, 100.0)
    for form, kind, factor in (("ours", "ours", 1.0), ("PyTorch", "peer", 2.0 if x < 50 else 4.0))
]


def test_a_curve_has_a_table_for_each_point_and_is_judged_at_its_end():
    assert list(report.by_case(CURVE, "steps")) == ["loop, 10 steps", "loop, 100 steps"]
    workload = Special("B0", "made up", run=lambda options: [], bars=(Bar("PyTorch", 1.0, case="loop"),))
    (verdict,) = report.judge(workload, CURVE, "medium")
    assert verdict.measured == 0.25
    assert [line[0] for line in report.summary({"B0": CURVE})] == ["B0 loop, 100"]


def test_rounds_keep_to_the_time():
    assert rounds_of([0.1, 0.1], 100.0, 15) == [15, 15]
    assert rounds_of([1.0, 40.0], 30.0, 15) == [15, 1]
    assert rounds_of([], 30.0, 15) == []
    costs = [0.5, 2.0, 3.0]
    assert sum(n * cost for n, cost in zip(rounds_of(costs, 30.0, 15), costs, strict=True)) <= 30.0


def test_quartiles_of_measured_times():
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("number", "text"), [(None, "–"), (2.0, "2 s"), (0.0123, "12.3 ms"), (4.5e-5, "45 µs"), (1234.5, "1234 s")]
)
def test_durations_have_a_unit_that_fits(number, text):
    assert report.duration(number) == text


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures_of_bars_curves_and_ratios_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    workloads = {
        "B0": made_up.SOUND,
        "B1": Special("B1", "growth", run=lambda options: [], plot="growth", axis="steps"),
        "B2": Special("B2", "budget", run=lambda options: [], plot="budget", axis="share"),
    }
    budget = [*CURVE, row("PyTorch, all kept", "peer", 3.0, case="loop", resident=10**9)]
    drawn = plots.draw(workloads, {"B0": ROWS, "B1": CURVE, "B2": budget}, tmp_path)
    assert [path.name for path in drawn] == ["b0.png", "b1.png", "b2.png", "summary.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)
