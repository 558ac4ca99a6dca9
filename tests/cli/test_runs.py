"""``unspool runs`` and ``unspool resume``."""

from __future__ import annotations

from pathlib import Path

import pytest

import unspool as us
from unspool._cli.main import main

TRG = ["demo", "trg", "--chi", "4", "--no-picture", "--every", "0"]


def test_a_demonstration_that_was_stopped_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRG, "--steps", "6", "--tol", "0"]) == 0
    whole = results(capsys.readouterr().out)
    assert main([*TRG, "--steps", "6", "--tol", "0", "--spool", str(tmp_path / "one")]) == 0
    assert results(capsys.readouterr().out) == whole
    assert main(["resume", str(tmp_path / "one")]) == 0
    printed = capsys.readouterr().out
    assert results(printed) == whole
    assert "through 6 steps" in printed


def results(printed: str) -> list[str]:
    """Return the lines with numbers that are compared."""
    return [line for line in printed.splitlines() if line.startswith(("ln Z", "u =", "c ="))]


def test_runs_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRG, "--steps", "3", "--tol", "0", "--spool", str(tmp_path / "one")]) == 0
    with us.spool(tmp_path / "two") as run:
        run.start(us.tensor(1.0))
        run.close()
    capsys.readouterr()
    assert main(["runs", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    found = {row[0]: row for row in rows if row}
    assert found["one"][1:4] == ["finished", "3", "3"] and found["one"][-1] == "trg"
    assert found["two"][1:3] == ["stopped", "0"]


def test_a_folder_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path)]) == 0
    assert "no runs" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "code"), [(["runs", "nowhere"], 1), (["resume", "nowhere"], 2)])
def test_what_is_not_there_is_said_in_a_line(
    command: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_of_a_program_is_left_to_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with us.spool(tmp_path / "one") as run:
        run.start(us.tensor(1.0))
    assert main(["resume", str(tmp_path / "one")]) == 2
    assert "run the program again" in capsys.readouterr().err
