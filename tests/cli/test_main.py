"""The command itself: which command runs, what bad options get, and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import unspool as us
from tests.cli import standin
from unspool._cli.demos import DEMOS, Demo
from unspool._cli.main import main
from unspool.errors import ArgumentError, BudgetError, ConvergenceError

BAD = [
    ["nonsense"],
    ["--nonsense"],
    ["demo", "nonsense"],
    ["demo", "dmrg", "--sites", "1"],
    ["demo", "dmrg", "--sites", "many"],
    ["demo", "dmrg", "--chi", "0"],
    ["demo", "dmrg", "--steps", "0"],
    ["demo", "dmrg", "--tol", "-1"],
    ["demo", "dmrg", "--tol", "nan"],
    ["demo", "dmrg", "--memory", "lots"],
    ["demo", "dmrg", "--memory", "0"],
    ["demo", "dmrg", "--output", "no-such-folder/picture.png"],
    ["demo", "dmrg", "--output", "picture.txt"],
    ["demo", "--site", "4"],
    ["demo", "tebd", "--order", "3"],
    ["demo", "tebd", "--dt", "0"],
    ["demo", "ctmrg", "--beta", "-1"],
    ["demo", "sinkhorn", "--epsilon", "inf"],
    ["info", "more"],
    ["check", "no such check"],
]


def stand_in(monkeypatch: pytest.MonkeyPatch, disturb: Callable[[int], None] = lambda step: None) -> None:
    """Let the default demonstration be the small loop."""
    demo = DEMOS["dmrg"]
    monkeypatch.setitem(DEMOS, "dmrg", Demo(demo.summary, demo.add_options, lambda _: standin.story(disturb=disturb)))


def failing(error: Exception) -> Callable[[int], None]:
    def disturb(step: int) -> None:
        raise error

    return disturb


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"unspool {us.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(f"\n    {command} " in printed for command in ("demo", "info", "check"))


def test_help_of_demo_names_every_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n    {name}" in printed for name in DEMOS)


@pytest.mark.parametrize("name", DEMOS)
def test_help_of_each_loop_tells_its_options_and_defaults(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--steps", "--tol", "--memory", "--output", "--no-picture"))
    assert f"default: unspool-{name}.png" in printed


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_options_get_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("unspool") and ": error: " in printed.err
    assert printed.err.count("\n") == 1 and printed.err.endswith("\n")


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert main(["demo", "--output", str(tmp_path / "a.png")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_demo_without_a_name_is_dmrg(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stand_in(monkeypatch)
    assert main(["demo", "--sites", "4", "--no-picture"]) == 0
    assert capsys.readouterr().out.startswith("Power iteration")


@pytest.mark.parametrize("arguments", [["--output", "b.png", "--no-picture"], ["--no-picture"]])
def test_no_picture_means_no_picture(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch)
    assert main(["demo", *arguments]) == 0
    assert list(tmp_path.iterdir()) == []


def test_the_picture_goes_to_the_working_folder_under_the_name_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch)
    assert main(["demo"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unspool-dmrg.html", "unspool-dmrg.png"]
    printed = capsys.readouterr().out
    assert "Picture: unspool-dmrg.png" in printed and "Report: unspool-dmrg.html" in printed


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArgumentError("couplings must be finite"), 2),
        (BudgetError("a memory budget of 1 B is too small"), 2),
        (ConvergenceError("eigsh did not converge\nand a table\nfollows"), 1),
        (MemoryError("unable to allocate 5 EiB"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_the_library_are_one_line(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch, failing(error))
    assert main(["demo", "--no-picture"]) == code
    assert capsys.readouterr().err == f"unspool: error: {str(error).splitlines()[0]}\n"


def test_a_budget_that_cannot_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    assert main(["demo", "--no-picture", "--memory", "100"]) == 2
    assert "the memory budget of 100 B" in capsys.readouterr().err


def test_an_error_that_is_not_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, failing(ZeroDivisionError("a mistake in the program")))
    with pytest.raises(ZeroDivisionError):
        main(["demo", "--no-picture"])


def test_ctrl_c_in_a_loop_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def disturb(step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    stand_in(monkeypatch, disturb)
    assert main(["demo", "--no-picture"]) == 130
    assert "Stopped after 2 steps." in capsys.readouterr().out


def test_ctrl_c_elsewhere_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("unspool._cli.info.show_info", interrupted)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "unspool: stopped\n"


# --- as a process ----------------------------------------------------------------------------------------------------


def test_version_loads_no_heavy_library() -> None:
    program = (
        "import sys; from unspool._cli.main import main; main(['--version']); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'scipy', 'matplotlib', 'rich'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"unspool {us.__version__}\n\n"


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unspool", "demo", "--sites", "0"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("unspool demo dmrg: error: argument --sites: must be at least 2, but is 0")


def test_a_real_ctrl_c_stops_the_loop_and_shows_what_was_reached(tmp_path: Path) -> None:
    # No step changes less than 0, so this one goes on until it is stopped.
    command = [sys.executable, "-m", "unspool", "demo", "als", "--size", "4", "--tol", "0", "--steps", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        seen = ""
        while not seen.lstrip().startswith("10 "):
            seen = process.stdout.readline()
            assert seen, process.stderr.read()
        process.send_signal(signal.SIGINT)
        rest, complaints = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130, complaints
    assert "Stopped after " in rest and "What was reached" in rest
    assert complaints == ""
    assert list(tmp_path.iterdir()) == []
