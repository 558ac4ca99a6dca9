"""The page of results says what the numbers say, and the published one is made from the published numbers."""

from __future__ import annotations

import re

import pytest

from bench.suite import bars, page, plots, results
from bench.suite.notes import NOTES
from bench.suite.results import Measured, Results
from bench.suite.run import available
from bench.suite.workload import Bar, Options
from tests.bench.made_up import CURVE, ROWS, row, special

HERE = {"processor": "a fast one", "cores": 2, "system": "Linux"}


def run_of(rows, *asked, **settings):
    """Return a run of one workload."""
    workload = Measured("B3", "made up", rows, **settings)
    found = bars.judge(special(*asked), rows, Options())
    return Results(
        Options(), {"B3": workload}, found, load=[0.1, 1.0], versions={"numpy": "2"}, machine=HERE, day="today"
    )


# --- the published page -----------------------------------------------------------------------------------------------


def test_the_published_page_is_made_from_the_published_numbers():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(results.read(page.NUMBERS))


def test_every_workload_is_on_the_published_page():
    found = results.read(page.NUMBERS)
    assert {*found.workloads, *found.errors} == set(available())
    assert found.options.size == "medium"


def test_the_words_of_every_workload_are_there_and_have_no_measured_numbers():
    assert set(NOTES) == set(available())
    measured = re.compile(r"\d[\d.,]*\s*(×|%|ms|µs|s|MB|GB|times)\b")
    assert not [key for key, note in NOTES.items() if measured.search(note.meaning + note.why)]


# --- what a page says -------------------------------------------------------------------------------------------------


def test_a_page_has_ratios_bars_and_every_form():
    text = page.page(run_of(ROWS, Bar("PyTorch", 1 / 3), Bar("limit", 1.2), Bar("Equinox")))
    assert "| B3 made up | ours, fast | 2 s | JAX, 4 s | 0.50 × | 0.10 × | – | by hand, 1.6 s | 1.25 × |" in text
    assert "1 are met, 1 missed, and 1 not shown" in " ".join(text.split())
    assert "| 0.25 × | 0.33 × | met | 2 s and 8 s |" in text
    assert "| 1.25 × | 1.20 × | **missed** | 2 s and 1.6 s |" in text
    assert "| – | – | not shown | Equinox too slow |" in text
    assert "| Equinox | too slow | – | – | – | – | – | no answer after 50 s |" in text
    assert "| autograd | NaN |" in text


def test_losses_are_told_with_their_reason_and_only_they():
    won = page.page(run_of(ROWS))
    assert "In this run, nowhere" in won and NOTES["B3"].why.split()[-1] not in won.split("## The workloads")[0]
    faster = [*ROWS, row("JAX scan", "peer", 1.0, resident=4_000_000, live=3_000_000)]
    lost = " ".join(page.page(run_of(faster)).split())
    assert "ours, fast beside JAX scan takes 2.00 × its time, 2.00 × its growth. " + NOTES["B3"].why in lost


def test_a_curve_is_shown_by_its_lines():
    text = page.page(run_of(CURVE, plot="growth", axis="steps"))
    assert "| loop: ours | 0 µs + 1 s a step, at most 0.0% off | 0.00 MB + 100,000 bytes a step" in text


def test_a_workload_that_went_wrong_is_named():
    found = run_of(ROWS)
    found.errors["B4"] = "ours: NaN or infinity"
    assert "B4: ours: NaN or infinity" in page.page(found)


def test_a_run_that_lacks_workloads_is_not_published(tmp_path, capsys):
    results.write(run_of(ROWS), tmp_path / "run.json")
    with pytest.raises(SystemExit):
        page.main(["--json", str(tmp_path / "run.json"), "--output", str(tmp_path / "page.md")])
    assert "lacks B1, B2, B4" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_run_is_read_as_it_was_written(tmp_path):
    found = run_of([*ROWS, *CURVE], Bar("PyTorch", 1 / 3), parameters={"n": 60})
    results.write(found, tmp_path / "run.json")
    assert results.read(tmp_path / "run.json") == found


def test_pictures_of_bars_curves_and_ratios_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    budget = [*CURVE, row("PyTorch, all kept", "peer", 3.0, case="loop", resident=10**9)]
    workloads = {
        "B0": Measured("B0", "cubes", ROWS),
        "B1": Measured("B1", "growth", CURVE, plot="growth", axis="steps"),
        "B2": Measured("B2", "budget", budget, plot="budget", axis="share"),
    }
    drawn = plots.draw(workloads, tmp_path)
    assert [path.name for path in drawn] == ["b0.png", "b1.png", "b2.png", "summary.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)


@pytest.mark.parametrize(
    "picture", re.findall(r"\((images/performance/[^)]*)\)", page.PAGE.read_text(encoding="utf-8"))
)
def test_every_picture_of_the_published_page_is_there(picture):
    assert (page.PAGE.parent / picture).exists()
