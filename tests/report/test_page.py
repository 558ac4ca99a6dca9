"""Pages: well formed, complete, escaped, without anything from outside."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import pytest

import unspool as us
from tests.report import runs
from tests.report.pages import Read

RUNS = {
    "plain": lambda: runs.power(20),
    "folded": lambda: runs.power(120),
    "unread": lambda: runs.scaling(20, read=False),
    "iterate": lambda: runs.iterated(40),
    "checkpointed": lambda: runs.iterated(40, adjoint=us.Checkpointed(slots=4)),
    "truncating": lambda: runs.truncating(8),
}


def report_of(name: str) -> us.Report:
    return us.report(RUNS[name]().loss, title=name)


@pytest.mark.parametrize("name", RUNS)
def test_pages_are_well_formed_and_names_in_them_unique(name: str) -> None:
    page = Read(report_of(name).html())
    assert len(page.ids) == len(set(page.ids))
    links = [str(given["href"])[1:] for tag, given in page.elements if tag == "a" and "data-save" not in given]
    assert set(links) <= set(page.ids)
    assert all(given.get("for", "budget") in page.ids for tag, given in page.elements if tag == "label")


@pytest.mark.parametrize("name", RUNS)
def test_nothing_comes_from_outside(name: str) -> None:
    page = report_of(name).html()
    read = Read(page)
    assert not [given for tag, given in read.elements if given.get("src") or tag in ("iframe", "img", "object")]
    assert not [
        g for tag, g in read.elements if tag in ("a", "link") and not str(g["href"]).startswith(("#", "data:,"))
    ]
    assert "@import" not in page and "url(" not in page
    # A name of a namespace, which nobody fetches.
    assert set(re.findall(r"https?://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", RUNS)
def test_a_page_is_small_beside_its_data(name: str) -> None:
    page = report_of(name).html()
    assert len(page.encode()) - len(Read(page).scripts["data"].encode()) < 1_000_000


def test_every_part_is_there() -> None:
    read = Read(report_of("truncating").html())
    titles = (
        "Convergence and cotangents",
        "Memory and budget",
        "Program",
        "Time",
        "Spectra",
        "Folding",
        "Settings and data",
    )
    assert all(title in read.words for title in titles)
    assert read.count("input", type="range") == 1
    assert read.count("svg", class_="graph") == 1
    charts = {given["data-chart"] for tag, given in read.elements if tag == "figure" and given.get("data-chart")}
    assert charts >= {"reading-0", "cotangents", "memory-blocks", "budgets", "spectrum", "margins", "gaps"}
    assert "Everything folded that repeats." in read.text


def test_values_under_the_pointer_are_those_of_the_data() -> None:
    found = report_of("plain")
    pointers = Read(found.html()).data("pointers")
    series = found.data["readings"][0]
    assert len(pointers["reading-0"]["tips"]) == len(series["values"])
    for k, value, tip in zip(series["steps"], series["values"], pointers["reading-0"]["tips"], strict=True):
        assert tip[0] == f"step {k}"
        assert float(tip[1].partition(": ")[2]) == pytest.approx(value, rel=1e-9)
    places = pointers["reading-0"]["places"]
    assert places == sorted(places) and 0 < places[0] and places[-1] < 460


def test_the_slider_has_a_row_for_each_budget() -> None:
    found = report_of("folded")
    read = Read(found.html())
    (slider,) = [given for tag, given in read.elements if tag == "input"]
    rows = read.data("budgets")
    assert len(rows) == len(found.data["budgets"]["rows"]) == int(str(slider["max"])) + 1
    assert all(0 <= x <= 460 and 0 <= y <= 250 for x, y in (row["at"] for row in rows))


def test_blocks_are_as_wide_as_they_live_and_as_high_as_they_are_large() -> None:
    found = report_of("folded")
    blocks = found.data["memory"]["blocks"]
    drawn = [
        given for tag, given in Read(found.html()).elements if tag == "rect" and "block" in str(given.get("class"))
    ]
    assert len(drawn) == len(blocks)
    for one, other in ((0, 7), (3, 20)):
        wide = (blocks[one]["end"] - blocks[one]["begin"]) / (blocks[other]["end"] - blocks[other]["begin"])
        high = blocks[one]["bytes"] / blocks[other]["bytes"]
        assert float(str(drawn[one]["width"])) / float(str(drawn[other]["width"])) == pytest.approx(wide, rel=0.02)
        assert float(str(drawn[one]["height"])) / float(str(drawn[other]["height"])) == pytest.approx(high, rel=0.05)
    assert "runs.py:" in str(drawn[0]["data-tip"])


def test_what_did_not_fold_is_a_table() -> None:
    found = report_of("plain")
    data = found.data | {"unfolded": [{"line": "a.py:3", "reason": "too short <b>"}]}
    read = Read(us.Report(data).html())
    assert "too short <b>" in read.words and "Everything folded" not in read.text


TEXT = "<img src=x onerror=alert(1)>\"'&</script><!--"


def test_texts_from_a_program_cannot_become_markup() -> None:
    found = us.report(runs.truncating(5).loss, title=TEXT, values={TEXT: [1.0, 2.0, 4.0]})
    data = _with_texts(found.data)
    page = us.Report(data).html()
    read = Read(page)
    assert read.count("img") == 0 and read.count("script") == Read(found.html()).count("script")
    assert read.data()["title"] == TEXT
    assert TEXT in read.words


def _with_texts(data: Any) -> Any:
    """Return data in which lines, labels and the like are markup."""
    data = copy.deepcopy(data)
    data["lines"] = dict.fromkeys(data["lines"], TEXT)
    data["made"] = data["loss"]["line"] = data["loss"]["op"] = data["steps"]["mark"] = TEXT
    for series in data["readings"]:
        series.update(name=TEXT, line=TEXT, text=TEXT, source=TEXT)
    for row in data["times"]["rows"]:
        row.update(line=TEXT, op=TEXT)
    for node in data["program"]["loop"]["body"]["nodes"]:
        node.update(label=TEXT, line=TEXT)
    for block in data["memory"]["blocks"]:
        block["lines"] = [[TEXT, TEXT, 3]]
    for row in data["inputs"]:
        row.update(name=TEXT, dtype=TEXT, sha256=TEXT)
    data["versions"] = data["blas"] = {TEXT: TEXT}
    data["unfolded"] = [{"line": TEXT, "reason": TEXT}]
    data["cotangents"].update(norms=[], reason=TEXT)
    data["gradient"]["timing"] = TEXT
    return data


def test_a_comparison_escapes_as_well() -> None:
    found = us.report(runs.truncating(5).loss, title=TEXT)
    first, second = us.Report(_with_texts(found.data)), us.Report(_with_texts(found.data))
    read = Read(us.compare_reports(first, second).html())
    assert read.count("img") == 0


def test_numbers_that_are_not_finite_are_shown_and_kept() -> None:
    y = us.tensor(1.0)
    for _ in range(5):
        y = us.log(y - 0.5) * 1.0
        float(y)
    found = us.report(y)
    assert math.isnan(found.data["loss"]["value"])
    read = Read(found.html())
    assert read.data()["loss"]["value"] == "nan"


def test_a_page_works_without_its_script() -> None:
    read = Read(report_of("folded").html())
    assert read.count("output") == 1
    assert re.search(r"steps run [\d.]+ times", read.text)
    assert "The budgets as a table" in read.words
