"""Where the time goes: what is counted, on which line, in which direction, and that nothing else changes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import _native
from unspool._activity import ACTIVITY
from unspool._engine.backends.generated import MEASURABLE, WATCHES
from unspool._watching.profile import ProfileRow, profile
from unspool._watching.timed_code import cost_of_a_tick
from unspool.errors import ArgumentError


def calls(p: profile, op: str, direction: str | None = None) -> int:
    return sum(row.calls for row in p.rows if row.op == op and direction in (None, row.direction))


def taking(seconds: float, name: str = "waiting") -> Any:
    """Return an op that takes some time."""

    def kernel(x: Any) -> Any:
        time.sleep(seconds)
        return x * 1.0

    return us.op(name, kernel=kernel, infer="elementwise", vjp=(lambda ct, out, x: ct,), replace=True)


# --- what is counted -------------------------------------------------------------------------------------------------


def test_every_instruction_of_a_native_loop_is_counted_forward_and_backward() -> None:
    x = us.tensor([1.0, 2.0, 3.0])
    with us.profile() as p:
        y, _ = us.iterate(lambda y: us.sin(y) + 0.5 * y, x, max_steps=300)
        us.sum(y).grad(x).eval()
    assert calls(p, "sin") == 300
    # The slope of a step is cos(y) + 0.5.
    assert calls(p, "cos", "backward") == 300 and calls(p, "cos", "forward") == 0
    assert calls(p, "multiply", "forward") == 300 and calls(p, "multiply", "backward") >= 300
    [sine] = [row for row in p.rows if row.op == "sin"]
    assert sine.nbytes == 300 * 24
    assert "test_profile.py" in sine.source and "us.iterate" in sine.source


@pytest.mark.parametrize("size", [4, 200], ids=["native", "generated"])
def test_every_step_of_a_plain_loop_is_counted(size: int) -> None:
    def loop() -> Any:
        A, x = us.tensor(np.eye(size) * 0.5), us.ones((size, size))
        for _ in range(80):
            x = us.tanh(A @ x) + 1.0
            float(x[0, 0])
        return us.sum(x).grad(A).eval()

    expected = loop()
    with us.profile() as p:
        found = loop()
    assert found.tobytes() == expected.tobytes()
    assert calls(p, "tanh", "forward") == 80
    assert calls(p, "contract", "forward") == 80
    assert 79 <= calls(p, "contract", "backward") <= 160


def test_a_first_run_is_counted_as_later_ones_are() -> None:
    us.clear_caches()
    x = us.tensor([1.0, 2.0])
    with us.profile() as p:
        for k in range(5):
            us.sum(us.exp(x * float(k))).eval()
    assert calls(p, "exp") == 5 and calls(p, "sum") == 5


def test_lines_are_told_apart() -> None:
    x = us.tensor([1.0, 2.0])
    with us.profile() as p:
        us.eval(
            us.sin(x),
            us.sin(x + 1.0),  # another line
        )
    sines = sorted(row.source for row in p.rows if row.op == "sin")
    assert len(sines) == 2 and "another line" in sines[1]


# --- times -----------------------------------------------------------------------------------------------------------


def test_time_goes_to_the_op_that_takes_it_wherever_it_runs() -> None:
    slow = taking(0.002)
    with us.profile() as p:
        us.iterate(lambda x: slow(us.sin(x)), us.tensor(1.0), max_steps=10)
    [row] = [row for row in p.rows if row.op == "user:waiting"]
    assert row.seconds >= 0.0199 and row.calls == 10
    assert sum(row.seconds for row in p.rows) + p.other_seconds == pytest.approx(p.seconds)


def test_what_runs_inside_is_not_counted_twice() -> None:
    slow = taking(0.01)

    def inner(x: Any) -> Any:
        return us.iterate(lambda y: slow(us.sin(y)), x, max_steps=3)[0]

    with us.profile() as p:
        us.iterate(lambda x: inner(x) + 1.0, us.tensor(1.0), max_steps=4)
    assert calls(p, "user:waiting") == 12
    spent = sum(row.seconds for row in p.rows)
    assert spent <= p.seconds
    loops = sum(row.seconds for row in p.rows if row.op == "loop")
    # Its own time is some microseconds; with what runs inside it would be more than that.
    assert loops < sum(row.seconds for row in p.rows if row.op == "user:waiting")


def test_what_looking_at_the_clock_takes_is_known() -> None:
    assert _native.look() > 0
    assert cost_of_a_tick() > 0


# --- nothing else changes --------------------------------------------------------------------------------------------


def test_afterwards_nothing_measures_any_more() -> None:
    A = us.tensor(np.eye(200))
    with us.profile():
        for k in range(4):
            (us.tanh(A @ A) * float(k)).eval()
    assert ACTIVITY.timer is None and WATCHES == []
    assert not [f for f in MEASURABLE if "__before" in f.__code__.co_varnames]
    with pytest.raises(RuntimeError, match="no profile is being taken"):
        _native.stop_profile()


def test_a_profile_ends_with_a_block_that_fails() -> None:
    with pytest.raises(ZeroDivisionError), us.profile():
        1 / 0
    assert ACTIVITY.timer is None and WATCHES == []
    with us.profile() as p:
        us.sin(us.tensor(1.5)).eval()
    assert calls(p, "sin") == 1


def test_an_error_still_names_its_op_and_line() -> None:
    x = us.tensor(-np.eye(2))
    with us.profile(), pytest.raises(us.errors.KernelError, match="cholesky.*test_profile.py"):
        us.linalg.cholesky(x).eval()


def test_one_profile_at_a_time() -> None:
    with us.profile(), pytest.raises(ArgumentError, match="one at a time"), us.profile():
        pass


# --- what is shown ---------------------------------------------------------------------------------------------------


def some_profile() -> profile:
    x = us.tensor([1.0, 2.0])
    with us.profile() as p:
        y, _ = us.iterate(lambda y: us.sin(y) + 0.5 * y, x, max_steps=50)
        us.sum(y).grad(x).eval()
        us.sum(us.exp(x)).eval()
    return p


def test_a_table_has_a_row_for_each_line_and_op() -> None:
    p = some_profile()
    heading, *lines = str(p).splitlines()
    assert heading.split() == ["time", "share", "calls", "bytes", "direction", "op", "line"]
    assert lines[-1].endswith("your own Python, recording and planning")
    assert any(" sin " in line and " 50 " in line for line in lines)
    assert [row.seconds for row in p.rows] == sorted((row.seconds for row in p.rows), reverse=True)


def test_of_many_rows_the_first_are_printed_and_the_rest_is_summed_up() -> None:
    p = profile()
    p.seconds = 10.0
    p.rows = [ProfileRow(f"a.py:{k}: x", "sin", "forward", 0.1, 1, 8) for k in range(25)]
    *_, rest, other = str(p).splitlines()
    assert "5 others" in rest and rest.split()[:2] == ["500", "ms"]
    assert other.split()[:2] == ["7.5", "s"]


def test_a_notebook_shows_cells_and_json_has_all() -> None:
    p = some_profile()
    assert p._repr_html_().startswith("<table><tr><th>time</th>") and "<td>sin</td>" in p._repr_html_()
    data = json.loads(p.to_json())
    assert data["seconds"] == p.seconds and len(data["rows"]) == len(p.rows)
    assert set(data["rows"][0]) == {"source", "op", "direction", "seconds", "calls", "nbytes"}


def test_a_trace_is_in_the_format_of_chrome(tmp_path: Path) -> None:
    """The JSON object format of "Trace Event Format": complete events and metadata."""
    p = some_profile()
    path = tmp_path / "trace.json"
    text = p.to_chrome_trace(path)
    assert path.read_text("utf-8") == text
    trace = json.loads(text)
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        assert type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
        else:
            assert isinstance(event["cat"], str)
            assert event["ts"] >= 0 and event["dur"] >= 0
            assert event["ts"] + event["dur"] <= p.seconds * 1e6 + 1
    assert trace["otherData"]["events not noted"] == 0


def test_events_of_a_thread_lie_inside_of_each_other_or_apart() -> None:
    events = [e for e in json.loads(some_profile().to_chrome_trace())["traceEvents"] if e["ph"] == "X"]
    assert any(e["cat"] == "program" and "test_profile.py" in e["name"] for e in events)
    open_ends: list[float] = []
    for event in events:
        while open_ends and open_ends[-1] <= event["ts"]:
            open_ends.pop()
        end = event["ts"] + event["dur"]
        assert not open_ends or end <= open_ends[-1] + 1e-3
        open_ends.append(end)
