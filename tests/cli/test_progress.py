"""The lines that a loop shows while it runs, on a terminal and in a pipe."""

from __future__ import annotations

import io
import math
import re
import time
from typing import Any

from rich.console import Console

from unspool._cli.progress import Column, Progress, is_shown, working

COLUMNS = (Column("energy", ".4f", 12), Column("change"), Column("rank", "d", 6))


def written(steps: int, *, terminal: bool, **values: float) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, color_system=None)
    with Progress(console, "sweep", COLUMNS, lambda: 2_500_000) as progress:
        for step in range(1, steps + 1):
            progress.show(step, {"energy": -step / 4, "change": 10.0**-step, "rank": 8.0} | values)
    return file.getvalue()


def lines_of(steps: int, **values: float) -> list[str]:
    return written(steps, terminal=False, **values).splitlines()


def screen(output: str) -> list[str]:
    """Return what a terminal shows in the end: enough of one to go up, to erase a line and to write over it."""
    lines, row = [""], 0
    for part in re.split(r"(\n|\r|\x1b\[[?\d]*[a-zA-Z])", output):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith(("\r", "\x1b")):
            lines[row] += part
    return [line for line in lines if line]


def test_in_a_pipe_every_step_of_a_short_loop_is_a_line() -> None:
    heading, *lines = lines_of(3)
    assert heading.split() == ["sweep", "energy", "change", "rank", "live", "time"]
    assert [line.split()[:6] for line in lines] == [
        ["1", "-0.2500", "1.0e-01", "8", "2.50", "MB"],
        ["2", "-0.5000", "1.0e-02", "8", "2.50", "MB"],
        ["3", "-0.7500", "1.0e-03", "8", "2.50", "MB"],
    ]


def test_columns_are_aligned_under_their_names() -> None:
    heading, *lines = lines_of(12)
    assert {line.index(" MB") + 3 for line in lines} == {heading.index("live") + 4}


def test_of_a_long_loop_the_last_step_is_shown_whatever_its_number() -> None:
    shown = [int(line.split()[0]) for line in lines_of(37)[1:]]
    assert shown == [*range(1, 11), 20, 30, 37]


def test_a_number_that_is_missing_or_not_finite_is_a_dash() -> None:
    [line] = lines_of(1, change=math.inf)[1:]
    assert line.split()[2] == "–"
    assert Column("truncation").text({}) == "–"


def test_on_a_terminal_each_step_that_stays_is_written_once_in_the_end() -> None:
    heading, *lines = screen(written(23, terminal=True))
    assert heading.split()[0] == "sweep"
    assert [int(line.split()[0]) for line in lines] == [*range(1, 11), 20, 23]


def test_the_living_line_is_removed_when_a_loop_fails() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    try:
        with Progress(console, "sweep", COLUMNS, lambda: 0) as progress:
            progress.show(1, {"energy": 1.0})
            line: Any = progress._line
            line.draw()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert console._live_stack == []
    assert file.getvalue().count("\x1b[?25h") == file.getvalue().count("\x1b[?25l") == 1  # the cursor is back


def test_work_shows_nothing_in_a_pipe() -> None:
    file = io.StringIO()
    with working(Console(file=file, force_terminal=False), "thinking"):
        pass
    assert file.getvalue() == ""


def test_work_shows_itself_on_a_terminal_and_goes() -> None:
    file = io.StringIO()
    with working(Console(file=file, force_terminal=True, width=80), "thinking"):
        # What ends at once is not drawn; a thread draws it some times a second.
        for _ in range(1000):
            if "thinking" in file.getvalue():
                break
            time.sleep(0.01)
    assert "thinking" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K")  # erased


def test_the_steps_that_are_shown_get_rarer_by_tens() -> None:
    shown = [step for step in range(1, 2500) if is_shown(step)]
    assert shown == [*range(1, 10), *range(10, 100, 10), *range(100, 1000, 100), 1000, 2000]
