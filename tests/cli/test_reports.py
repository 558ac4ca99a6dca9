"""``unspool report``: of a demonstration, of a file, of two."""

from __future__ import annotations

from pathlib import Path

import pytest

import unspool as us
from tests.report import runs
from unspool._cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    us.report(runs.power(8).loss, "a.html", title="eight")
    us.report(runs.power(9).loss, "b.html", title="nine")
    return tmp_path


def test_the_report_of_a_file_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a.html"]) == 0
    assert capsys.readouterr().out.startswith("eight\n")
    assert sorted(path.name for path in folder.iterdir()) == ["a.html", "b.html"]


def test_the_report_of_json_becomes_a_page(folder: Path) -> None:
    (folder / "a.json").write_text(us.load_report("a.html").to_json(), encoding="utf-8")
    assert main(["report", "a.json", "--output", "again.html"]) == 0
    assert (folder / "again.html").read_text("utf-8") == (folder / "a.html").read_text("utf-8")


def test_two_reports_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a.html", "b.html"]) == 0
    assert capsys.readouterr().out == "Comparison: unspool-comparison.html\n"
    assert "eight beside nine" in (folder / "unspool-comparison.html").read_text("utf-8")


def test_the_report_of_a_demonstration_is_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "als", "--output", "als.html"]) == 0
    assert "Report: als.html" in capsys.readouterr().out
    found = us.load_report("als.html").data
    assert found["readings"][0]["source"] == "as given" and found["cotangents"]["norms"]
    assert sorted(path.name for path in folder.iterdir()) == ["a.html", "als.html", "b.html"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["gone.html"], 1),
        (["a.html", "b.html", "a.html"], 2),
        (["a.html", "--output", "a.txt"], 2),
        (["a.html", "--output", "gone/a.html"], 2),
        ([], 2),
    ],
)
def test_mistakes_are_told_in_a_line(
    folder: Path, arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *arguments]) == code
    told = capsys.readouterr().err
    assert told.startswith("unspool") and len(told.splitlines()) == 1


def test_a_demonstration_can_do_without_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "dmrg", "--sites", "4", "--chi", "4", "--no-report", "--output", "a.png"]) == 0
    assert "Report:" not in capsys.readouterr().out
    assert main(["demo", "dmrg", "--sites", "4", "--chi", "4", "--no-picture", "--report", "c.html"]) == 0
    assert "Report: c.html" in capsys.readouterr().out and (folder / "c.html").exists()


def test_the_report_of_a_run_that_was_written_is_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--chi", "4", "--steps", "4", "--tol", "0", "--no-picture", "--no-report", "--spool", "work/ising"]
    assert main(["demo", "trg", *options]) == 0
    assert main(["report", "work/ising"]) == 0
    assert "Report: unspool-ising.html" in capsys.readouterr().out
    assert "TRG" in us.load_report("unspool-ising.html").data["title"]
    with us.spool("work/other") as run:
        run.start(us.tensor(1.0))
    assert main(["report", "work/other"]) != 0
    assert "us.resume" in capsys.readouterr().err
