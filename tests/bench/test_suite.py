"""The benchmark suite measures and compares as it says. Nothing here depends on how fast the machine is."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.suite import b10_budget, report
from bench.suite import measure as measuring
from bench.suite.measure import SuiteError, measure, quartiles, rounds_of
from bench.suite.run import available, share
from bench.suite.workload import PACKAGES, SIZES, Options, Workload
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
    assert {"processor", "cores"} <= set(found["machine"])
    assert len(found["load"]) == 2
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


def test_a_form_that_does_not_answer_in_time_is_shown_as_slow(monkeypatch):
    monkeypatch.setattr(measuring, "PATIENCE", 5.0)
    rows = {row.form: row for row in measure(made_up.SLOW, Options(size="small", rounds=1, seconds=1.0))}
    assert rows["by hand"].state == "ok"
    assert (rows["ours"].state, rows["ours"].note) == ("slow", "no answer after 5 s")
    assert rows["a peer"].state == "slow"
    assert "too slow   no answer after 5 s" in report.table("cubes", list(rows.values()))


# --- time -------------------------------------------------------------------------------------------------------------


def test_rounds_keep_to_the_time():
    assert rounds_of([0.1, 0.1], 100.0, 15) == [15, 15]
    assert rounds_of([1.0, 40.0], 30.0, 15) == [15, 1]
    assert rounds_of([], 30.0, 15) == []
    costs = [0.5, 2.0, 3.0]
    assert sum(n * cost for n, cost in zip(rounds_of(costs, 30.0, 15), costs, strict=True)) <= 30.0


def test_workloads_share_the_time_that_is_left_and_what_they_may_take_beyond_it():
    assert share(100.0, 1800.0, 12) == 100.0
    assert share(100.0, 300.0, 4) == 50.0
    assert share(100.0, -5.0, 2) > 0.0


def test_quartiles_of_measured_times():
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)


# --- a peer that fails under budgets ----------------------------------------------------------------------------------


def test_a_peer_that_fails_beside_budgets_is_shown_and_the_others_are_measured():
    class Bench:
        def run(self, form, save):
            if form == "equinox":
                raise SystemExit("equinox failed")
            return {"seconds": 1.0}

        def answer(self, name):
            return name

    memory = SimpleNamespace(Row=lambda form: SimpleNamespace(form=form, runs=[]), check_agreement=lambda *_: None)
    absent = {}
    measured = b10_budget.peers(memory, Bench(), ["unspool", "torch store-all", "equinox"], absent)
    assert [one.form for one in measured] == ["torch store-all"]
    assert absent == {"equinox": ("failed", "the process ended early")}
