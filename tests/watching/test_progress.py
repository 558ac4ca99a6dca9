"""The line of progress: what it tells of loops and backward passes, and where it is silent."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import unspool as us
from unspool._activity import ACTIVITY, BACKWARD, FORWARD, INNER, SEARCH, CountedRange, Work
from unspool._watching import line as lines
from unspool._watching import progress as module
from unspool._watching.line import NotebookLine, make_line
from unspool._watching.seen import Eye, Seen, clock
from unspool.errors import ArgumentError


def looking_op(kernel: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return an op that passes on what it is given, forward and backward, and whose kernel looks around.

    So what is seen does not depend on time.
    """
    made = us.op("looking", kernel=kernel, infer="elementwise", vjp=(lambda ct, out, x: made(ct),), replace=True)
    return made


class Spy:
    """Notes what goes on each time it is asked to pass something on."""

    def __init__(self) -> None:
        self.works: list[list[tuple[str, int, int | None]]] = []

    def look(self, x: Any) -> Any:
        self.works.append([(work.kind, work.done(), work.total) for work in ACTIVITY.works])
        return x * 1.0


@pytest.fixture
def spy() -> Iterator[tuple[Spy, Callable[..., Any]]]:
    seen = Spy()
    looking = looking_op(seen.look)
    with ACTIVITY.looked_at():
        yield seen, looking


# --- what is going on ------------------------------------------------------------------------------------------------


def test_steps_of_iterate_are_counted_while_they_run(spy: Any) -> None:
    seen, looking = spy
    us.iterate(lambda x: looking(us.sin(x)), us.tensor([1.0, 2.0]), max_steps=5)
    assert [works[-1] for works in seen.works] == [(FORWARD, k, 5) for k in range(5)]


def test_a_loop_that_stops_by_itself_has_no_total(spy: Any) -> None:
    seen, looking = spy
    us.iterate(lambda x: looking(0.5 * x), us.tensor(1.0), until=lambda x: x < 0.1)
    assert [works[-1] for works in seen.works] == [(FORWARD, k, None) for k in range(4)]


def test_the_backward_pass_of_iterate_counts_from_its_end(spy: Any) -> None:
    seen, looking = spy
    x = us.tensor([1.0, 2.0])
    y, _ = us.iterate(lambda x: looking(us.sin(x)), x, max_steps=5)
    gradient = us.sum(y).grad(x)
    seen.works.clear()
    gradient.eval()
    inside = [works[-1] for works in seen.works if works and works[-1][0] == BACKWARD]
    assert inside == [(BACKWARD, k, 5) for k in range(5)]


def test_the_backward_pass_of_a_plain_loop_counts_its_steps(spy: Any) -> None:
    seen, looking = spy
    x = start = us.tensor([1.0, 2.0])
    for _ in range(100):
        x = looking(us.sin(x))
        float(x[0])
    gradient = us.sum(x).grad(start)
    seen.works.clear()
    gradient.eval()
    outer = [works[0] for works in seen.works if works]
    assert outer and {kind for kind, _, _ in outer} == {BACKWARD}
    # A piece that is not folded is no step, so of the last ones some may be missing.
    assert all(80 <= total <= 110 for _, _, total in outer if total is not None)
    counts = [sum(done for kind, done, _ in works if kind in (BACKWARD, INNER)) for works in seen.works if works]
    assert counts == sorted(counts) and counts[-1] >= 80


def test_a_search_for_a_fixed_point_counts_its_steps(spy: Any) -> None:
    seen, looking = spy
    _, steps = us.fixed_point(lambda x: looking(us.cos(x)), 1.0, acceleration=None, tol=1e-3)
    assert [works[0] for works in seen.works[:steps]] == [(SEARCH, k, None) for k in range(steps)]


def test_within_a_budget_a_gradient_tells_what_it_runs_again() -> None:
    found: list[tuple[int, int]] = []
    A = us.tensor(np.eye(64) * 0.5)

    def look(x: Any) -> Any:
        found.extend((work.again(), work.done()) for work in ACTIVITY.works if work.kind == BACKWARD)
        return x * 1.0

    looking = looking_op(look)
    with us.memory("1MB"), ACTIVITY.looked_at():
        x = us.ones((64, 64))
        for _ in range(150):
            x = looking(us.tanh(A @ x)) + 1.0
            float(x[0, 0])
        us.sum(x).grad(A).eval()
    again, done = zip(*found, strict=True)
    assert list(again) == sorted(again) and again[-1] > 0
    assert list(done) == sorted(done)


def test_nothing_is_entered_when_nobody_looks() -> None:
    found: list[list[Work]] = []

    def look(x: Any) -> Any:
        found.append(list(ACTIVITY.works))
        return x * 1.0

    looking = looking_op(look)
    us.iterate(lambda x: looking(us.sin(x)), us.tensor(1.0), max_steps=3)
    assert found == [[], [], []] and ACTIVITY.works == []


def test_what_fails_is_not_going_on_any_more(spy: Any) -> None:
    def fail(x: Any) -> Any:
        raise ValueError("no")

    failing = looking_op(fail)
    with pytest.raises(us.errors.KernelError):
        us.iterate(lambda x: failing(x), us.tensor(1.0), max_steps=3)
    assert ACTIVITY.works == []


def test_a_range_is_counted_by_its_iterator_or_by_its_counter() -> None:
    steps = CountedRange(range(9, -1, -1), [0])
    assert (len(steps), steps.start, steps.step, steps.done()) == (10, 9, -1, 0)
    seen = [(k, steps.done()) for k in steps]
    assert seen == [(9 - k, k) for k in range(10)]
    steps.counter[0] = 12
    assert steps.done() == 12


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_line_tells_steps_rate_time_memory_and_recomputation() -> None:
    seen = Seen("backward", 300, 1000, "steps", 50.0, 120_000_000, 2_000_000_000, 1.5, {"energy": -1.25})
    assert str(seen) == (
        "backward 300 of 1,000 steps, 50 a second, 0:14 left, 120 MB of 2.00 GB, recomputed 1.50 ×, energy -1.25"
    )


def test_what_is_not_known_is_not_told() -> None:
    assert str(Seen("", 12, None, "evaluations", 0.0, None, None, None, {})) == "12 evaluations"
    assert str(Seen("", 3, 4, "sweeps", 0.1, None, None, 1.0, {})) == "3 of 4 sweeps, 10.0 s each, 0:10 left"


def test_the_backward_pass_is_shown_before_what_a_loop_tells_by_itself() -> None:
    eye = Eye()
    told = (3, 10, "sweeps", {"energy": 1.0})
    assert (eye.look(told).done, eye.look(told).unit) == (3, "sweeps")
    with ACTIVITY.doing(Work(BACKWARD, 100, lambda: 40)), ACTIVITY.doing(Work(INNER, 20, lambda: 7)):
        seen = eye.look(told)
    assert (seen.what, seen.done, seen.total) == ("backward", 47, 100)


def test_work_that_ends_while_it_is_asked_is_no_error() -> None:
    def gone() -> int:
        raise IndexError

    with ACTIVITY.doing(Work(FORWARD, 10, gone)):
        assert Eye().look().done == 0


def test_within_a_budget_memory_stands_beside_it_and_elsewhere_it_is_that_of_the_process() -> None:
    with us.memory("5MB"):
        seen = Eye().look()
        assert seen.budget == 5_000_000 and seen.nbytes is not None and seen.nbytes <= 5_000_000
    assert Eye().look().budget is None


def test_times_are_minutes_and_seconds() -> None:
    assert [clock(s) for s in (0, 59.9, 61, 3600)] == ["0:00", "0:59", "1:01", "1:00:00"]


# --- where it is drawn -----------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(
        lines, "make_console", lambda _: Console(file=file, force_terminal=True, width=100, color_system=None)
    )
    return file


def test_in_a_pipe_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    with us.progress(file=file):
        us.iterate(us.cos, us.tensor(1.0), max_steps=10)
    for _ in us.progress(range(3)):
        pass
    us.iterate(us.cos, us.tensor(1.0), max_steps=10, progress=True)
    us.fixed_point(us.cos, 1.0, progress=True)
    assert file.getvalue() == "" and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("file", [None, io.StringIO()], ids=["no file", "a pipe"])
def test_neither_a_pipe_nor_a_short_loop_on_a_terminal_loads_rich(file: Any) -> None:
    # In a process that has not loaded it: that takes as long as a loop of a tenth of a second may.
    program = f"""
import io, sys
import unspool as us
class Terminal(io.StringIO):
    def isatty(self):
        return True
sys.stderr = None if {file is None} else io.StringIO()
with us.progress():
    pass
shown = Terminal()
with us.progress(total=3, file=shown) as line:
    line.show(2)
assert shown.getvalue().startswith("2 of 3 steps"), shown.getvalue()
print(sorted(name for name in sys.modules if name.split(".")[0] == "rich"))
"""
    environment = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == "[]\n", done


@pytest.mark.parametrize("value", ["0", "1"])
def test_what_the_environment_says_of_terminals_goes_before_what_a_file_says(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", value)
    for file in (io.StringIO(), Terminal()):
        with us.progress(total=3, file=file) as line:
            line.show(1)
        assert ("1 of 3 steps" in file.getvalue()) == (value == "1")


def test_on_a_terminal_the_last_state_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    file = on_terminal(monkeypatch)
    for _ in us.progress(range(3), unit="sweeps"):
        pass
    last = re.sub(r"\x1b\[[?\d]*[a-zA-Z]|\r", "", file.getvalue()).strip().splitlines()[-1]
    assert last.startswith("3 of 3 sweeps, ") and last.endswith(", 0:00")
    assert ACTIVITY.lookers == 0 and module._OPEN == []


def test_a_line_goes_when_a_loop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    with pytest.raises(ZeroDivisionError), us.progress():
        1 / 0
    assert ACTIVITY.lookers == 0 and module._OPEN == []


def test_a_line_is_not_drawn_again_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    file = on_terminal(monkeypatch)
    marks = "[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"
    with us.progress(total=3) as line:
        line.show(2)
        live: Any = line._line
        live.draw()
        assert len(re.findall(marks, file.getvalue())) == 1
        before = len(file.getvalue())
    assert not re.search(marks, file.getvalue()[before:])
    # What was drawn is taken away: up by one line, which is emptied.
    assert "\x1b[1A\x1b[2K2 of 3 steps" in file.getvalue()[before:]


def test_a_line_that_ends_before_it_is_drawn_leaves_its_last_state_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    file, shown = on_terminal(monkeypatch), sys.stdout
    with us.progress(total=3) as line:
        line.show(2)
        assert sys.stdout is shown  # nothing leads past it what is printed
        live: Any = line._line
    live.draw()  # too late
    assert file.getvalue().startswith("2 of 3 steps, ") and file.getvalue().count("\n") == 1


def test_what_is_printed_goes_above_a_line_that_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    file, shown = on_terminal(monkeypatch), sys.stdout
    with us.progress(total=3) as line:
        line.show(1)
        live: Any = line._line
        live.draw()
        print("a word")
        assert sys.stdout is not shown
    assert sys.stdout is shown
    words, last = re.sub(r"\x1b\[[?\d]*[a-zA-Z]|\r", "", file.getvalue()).split("a word", 1)
    assert "1 of 3 steps" in words and last.rstrip().splitlines()[-1].startswith("1 of 3 steps, ")


def test_a_last_line_that_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    for unit in ("x" * 200, "字" * 100):  # of one column each, and of two
        file = on_terminal(monkeypatch)
        with us.progress(total=3, unit=unit) as line:
            line.show(1)
        last = file.getvalue().splitlines()[-1].split("\x1b[?25h")[-1]
        assert last.endswith("…") and 99 <= sum(2 if character == "字" else 1 for character in last) <= 100


def test_a_loop_in_a_block_is_shown_in_the_line_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    file = on_terminal(monkeypatch)
    with us.progress() as outer:
        for k in us.progress(range(5)):
            if k == 3:
                assert outer._text().startswith("3 of 5 steps")
        assert "evaluations" in outer._text()
        line: Any = outer._line
        line.draw()
        line.draw()
    assert file.getvalue().count("\x1b[?25l") == 1  # the cursor is hidden once: one line


def test_drivers_show_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    texts = []

    def on_step(step: int, state: Any, values: Any) -> None:
        texts.append(module._OPEN[0]._text())

    us.networks.power_iteration(np.diag([2.0, 1.0]), tol=1e-3, on_step=on_step, progress=True)
    assert texts[0].startswith("1 steps, ") and "change" in texts[-1]
    texts.clear()
    us.networks.trg(0.3, rank=2, steps=3, on_step=on_step, progress=True)
    assert [text.split(",")[0] for text in texts] == ["1 of 3 steps", "2 of 3 steps", "3 of 3 steps"]


def test_every_driver_takes_progress(capfd: pytest.CaptureFixture[str]) -> None:
    plain = us.networks.cp_als(np.ones((3, 3, 3)), 1, max_steps=3)
    shown = us.networks.cp_als(np.ones((3, 3, 3)), 1, max_steps=3, progress=True)
    assert float(plain.fit) == float(shown.fit) and capfd.readouterr() == ("", "")


def test_in_a_notebook_an_output_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    drawn = threading.Event()

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data)
            drawn.set()

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data)
        return Handle()

    fake = types.ModuleType("IPython.display")
    fake.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setattr(lines, "make_console", lambda _: Console(file=io.StringIO(), force_jupyter=True))
    line = make_line(None, lambda: "3 < 4")
    assert isinstance(line, NotebookLine)
    line._period = 0.001
    line.start()
    assert drawn.wait(10)
    line.stop("done")
    assert shown[0] == {"text/plain": "3 < 4", "text/html": "<pre>3 &lt; 4</pre>"}
    assert shown[-1]["text/plain"] == "done"


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="takes what a loop goes through"):
        us.progress(3)
    with pytest.raises(ArgumentError, match="total is the number of steps"):
        us.progress(total=-1)
    with pytest.raises(ArgumentError, match="nothing to go through"):
        next(iter(us.progress()))
    line = us.progress()
    with line, pytest.raises(ArgumentError, match="is shown already"):
        line.__enter__()
