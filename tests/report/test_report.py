"""`us.report`, `us.load_report`, `us.compare_reports`: files, arguments, and what is refused."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.report import runs
from tests.report.pages import Read
from unspool.errors import (
    ArgumentError,
    ComplexLossError,
    DTypeError,
    NonScalarLossError,
    NotEvaluatedError,
    ReportError,
    StructureError,
    UnboundPlaceholderError,
)


def test_a_report_is_written_where_it_was_told_to(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    found = us.report(runs.power(5).loss, path)
    assert Read(path.read_text(encoding="utf-8")).data()["title"] == found.data["title"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.html"]


def test_a_report_replaces_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text("before", encoding="utf-8")
    us.report(runs.power(5).loss, os.fspath(path))
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_file_may_be_read_by_others_as_any_file(tmp_path: Path) -> None:
    us.report(us.tensor(1.0), tmp_path / "run.html")
    (tmp_path / "plain").write_text("", encoding="utf-8")
    assert (tmp_path / "run.html").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_loss_makes_its_own_report_and_shows_it_in_a_notebook() -> None:
    found = runs.power(5).loss.report(title='a "title" <b>')
    inline = Read(found._repr_html_())
    ((tag, given),) = inline.elements
    assert tag == "iframe" and Read(str(given["srcdoc"])).data()["title"] == 'a "title" <b>'
    # A frame that runs scripts, and nothing of the notebook's.
    assert given["sandbox"] == "allow-scripts allow-downloads"


def test_a_report_prints_its_numbers() -> None:
    found = us.report(runs.power(5).loss, title="five steps")
    printed = str(found)
    assert printed.startswith("five steps\n") and "least budget" in printed
    assert repr(found) == "<report 'five steps', 5 steps>"


# --- reading back ----------------------------------------------------------------------------------------------------


def test_a_report_comes_back_from_its_page_and_from_its_json(tmp_path: Path) -> None:
    found = us.report(runs.truncating(5).loss, tmp_path / "run.html")
    (tmp_path / "run.json").write_text(found.to_json(), encoding="utf-8")
    for name in ("run.html", "run.json"):
        assert us.load_report(tmp_path / name).data == found.data
    assert us.load_report(tmp_path / "run.json").html() == found.html()


def test_numbers_that_are_not_finite_come_back(tmp_path: Path) -> None:
    found = us.report(runs.power(5).loss, values={"odd": [1.0, math.nan, math.inf, -math.inf]})
    found.save(tmp_path / "run.html")
    values = us.load_report(tmp_path / "run.html").data["readings"][0]["values"]
    assert values[0] == 1.0 and math.isnan(values[1]) and values[2:] == [math.inf, -math.inf]
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html></html>",
        b"\xff\xfe\x00",
        b"[1, 2]",
        b'{"format": "other"}',
        b'{"format": "unspool report", "version": 99}',
        b'{"format": "unspool report", "version": 1}',
        b"[" * 100_000,
        b'<script type="application/json" id="data">{</script>',
    ],
    ids=range(9),
)
def test_a_file_that_is_no_report_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_bytes(content)
    with pytest.raises(ReportError, match="report"):
        us.load_report(tmp_path / "run.html")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be read"):
        us.load_report(tmp_path / "run.html")


def test_a_report_with_a_part_missing_or_of_another_kind_is_refused_or_can_be_shown(tmp_path: Path) -> None:
    """Every entry in turn is taken away or replaced: what is read back can be shown, or it is refused by name."""
    whole = json.loads(us.report(runs.truncating(5).loss).to_json())
    path = tmp_path / "run.json"
    refused = 0
    for keys in _places(whole):
        for other in (None, "text"):
            data = json.loads(json.dumps(whole))
            parent = data
            for key in keys[:-1]:
                parent = parent[key]
            parent[keys[-1]] = other
            path.write_text(json.dumps(data), encoding="utf-8")
            try:
                us.load_report(path).html()
            except ReportError:
                refused += 1
    assert refused > 50


def _places(data: Any, depth: int = 2) -> list[tuple[Any, ...]]:
    entries = list(data.items()) if isinstance(data, dict) else list(enumerate(data[:1]))
    found: list[tuple[Any, ...]] = [(key,) for key, _ in entries]
    if depth:
        for key, value in entries:
            if isinstance(value, dict | list):
                found += [(key, *rest) for rest in _places(value, depth - 1)]
    return found


# --- two reports -----------------------------------------------------------------------------------------------------


def test_two_reports_are_shown_in_one_page(tmp_path: Path) -> None:
    first = us.report(runs.power(10).loss, tmp_path / "a.html", title="ten")
    second = us.report(runs.power(20).loss, title="twenty")
    us.compare_reports(tmp_path / "a.html", second, tmp_path / "both.html")
    read = Read((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert read.data()["first"] == json.loads(first.to_json())
    pointers = read.data("pointers")
    # Where both have steps, both values are under the pointer.
    assert [len(tip) for tip in pointers["reading-0"]["tips"]] == [3] * 10 + [2] * 10
    assert len(read.ids) == len(set(read.ids))
    assert "Versions, settings and inputs are the same in both." in read.text


def test_what_differs_between_two_reports_is_named() -> None:
    first = us.report(runs.power(10, size=5).loss)
    second = us.report(runs.power(10, size=6).loss)
    second.data["versions"]["numpy"] = "1.2.3"
    read = Read(us.compare_reports(first, second).html())
    assert "1.2.3" in read.words and "input A" in read.words
    assert any("(second)" in word for word in read.words)


def test_loops_of_different_kinds_can_be_compared() -> None:
    kinds = [runs.power(10), runs.iterated(8), runs.scaling(6, read=False)]
    reports = [us.report(run.loss) for run in kinds] + [us.report(us.tensor(1.0))]
    for first in reports:
        for second in reports:
            Read(us.compare_reports(first, second).html())


@pytest.mark.parametrize("given", [3, None, ["a"]])
def test_what_is_no_report_cannot_be_compared(given: Any) -> None:
    with pytest.raises(ArgumentError, match="a report or the path of one"):
        us.compare_reports(us.report(us.tensor(1.0)), given)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_loss_that_was_not_evaluated_is_refused_with_its_line() -> None:
    loss = us.sum(us.tensor([1.0, 2.0]) ** 2)
    with pytest.raises(
        NotEvaluatedError, match=r"test_report\.py:\d+: loss = us\.sum.*was not evaluated.*float\(loss\)"
    ):
        us.report(loss)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: 3.0, StructureError),
        (lambda: us.tensor([1.0, 2.0]), NonScalarLossError),
        (lambda: us.tensor(1j), ComplexLossError),
        (lambda: us.tensor(3), DTypeError),
    ],
)
def test_what_has_no_report_is_refused(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="a report is of|complex"):
        us.report(make())


def test_a_loss_of_a_placeholder_is_refused() -> None:
    p = us.placeholder((), us.float64)
    loss = us.sin(p)
    loss.eval({p: 1.0})
    with pytest.raises((NotEvaluatedError, UnboundPlaceholderError)):
        us.report(loss)


@pytest.mark.parametrize("place", ["", "gone/run.html"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(place: str, tmp_path: Path) -> None:
    loss = us.tensor(1.0)
    with pytest.raises(ReportError, match="cannot be written"):
        us.report(loss, tmp_path / place)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.html"
    path.write_text("before", encoding="utf-8")

    def fail(*arguments: Any) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ReportError, match="no space left"):
        us.report(us.tensor(1.0), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.html"]
    assert path.read_text(encoding="utf-8") == "before"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"values": 3}, ArgumentError),
        ({"values": {"a": ["x"]}}, ArgumentError),
        ({"values": {"a": []}}, ArgumentError),
        ({"values": {"a": {1.5: 2.0}}}, ArgumentError),
        ({"states": 3}, ArgumentError),
        ({"states": {"a": 1}}, ArgumentError),
        ({"states": [[1.0]]}, ArgumentError),
        ({"title": 3}, ArgumentError),
        ({"wrt": 3}, StructureError),
        ({"memory": "much"}, ArgumentError),
        ({"path": 3}, ArgumentError),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    loss = runs.scaling(4).loss
    with pytest.raises(error):
        us.report(loss, **options)


def test_a_loop_in_single_precision_has_a_report() -> None:
    y = us.tensor(np.ones(3, np.float32))
    for _ in range(5):
        y = us.sin(y)
        float(us.sum(y))
    loss = us.sum(y)
    float(loss)
    assert us.report(loss).data["loss"]["dtype"] == "float32"
