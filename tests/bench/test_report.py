"""Ratios, bars, lines and tables of the benchmark suite, from rows made up."""

from __future__ import annotations

import pytest

from bench.suite import bars, report
from bench.suite.lines import described, line_of, line_through
from bench.suite.workload import Bar, Options, by_size
from tests.bench.made_up import CURVE, ROWS, row, special

# --- ratios and tables ------------------------------------------------------------------------------------------------


def test_ratios_are_ours_divided_by_the_best_peer_and_by_the_limit():
    (line,) = report.summary({"B0": ROWS})
    assert dict(zip(report.HEAD, line, strict=True)) == {
        "workload": "B0",
        "ours": "ours, fast",
        "time": "2 s",
        "best peer": "JAX, 4 s",
        "ours / peer": "0.50 ×",
        "growth": "0.10 ×",  # 8 of 80 MB
        "live": "–",  # JAX does not tell
        "limit": "by hand, 1.6 s",
        "ours / limit": "1.25 ×",
    }


def test_a_table_for_documents_has_the_same_numbers():
    lines = report.summary({"B0": ROWS})
    head, rule, first = report.markdown(lines).splitlines()
    assert head.count("|") == rule.count("|") == first.count("|") == len(report.HEAD) + 1
    assert "0.50 ×" in first and "0.50 ×" in report.aligned(lines)


@pytest.mark.parametrize(
    ("number", "text"), [(None, "–"), (2.0, "2 s"), (0.0123, "12.3 ms"), (4.5e-5, "45 µs"), (1234.5, "1234 s")]
)
def test_durations_have_a_unit_that_fits(number, text):
    assert report.duration(number) == text


def test_parameters_by_size_are_given_once_for_all_sizes_or_three_times():
    sizes = by_size(n=(1, 2, 3), sweeps=30)
    assert sizes == {
        "small": {"n": 1, "sweeps": 30},
        "medium": {"n": 2, "sweeps": 30},
        "large": {"n": 3, "sweeps": 30},
    }


# --- bars -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bar", "measured", "state"),
    [
        (Bar("PyTorch", 1 / 3), 0.25, "met"),
        (Bar("PyTorch", 1 / 5), 0.25, "missed"),
        (Bar("peer", 0.5), 0.5, "met"),
        (Bar("limit", 1.2), 1.25, "missed"),
        (Bar("PyTorch", 1.0, ours="ours, slow"), 0.75, "met"),
        (Bar("peer", 0.05, "memory"), 0.1, "missed"),  # JAX tells its growth only
    ],
)
def test_a_bar_is_decided_by_the_ratio(bar, measured, state):
    (verdict,) = bars.judge(special(bar), ROWS, Options())
    assert (verdict.state, verdict.measured, verdict.most) == (state, pytest.approx(measured), bar.most)
    assert (state if state == "met" else "MISSED") in str(verdict)


@pytest.mark.parametrize(
    ("bar", "reason"),
    [
        (Bar("autograd"), "autograd NaN"),
        (Bar("Equinox"), "Equinox too slow"),
        (Bar("TensorFlow"), "TensorFlow not installed"),
        (Bar("not there"), "no row of not there"),
        (Bar("PyTorch", quantity="first"), "not measured"),
    ],
)
def test_a_bar_without_numbers_is_not_shown_and_says_why(bar, reason):
    (verdict,) = bars.judge(special(bar), ROWS, Options())
    assert (verdict.state, verdict.measured, verdict.numbers) == ("not shown", None, reason)


def test_numbers_stand_beside_a_bar():
    (verdict,) = bars.judge(special(Bar("PyTorch", 1 / 3)), ROWS, Options())
    assert verdict.what == "time: ours, fast beside PyTorch"
    assert verdict.numbers == "2 s and 8 s"


@pytest.mark.parametrize(("most", "states"), [(0.2, ["met", "met"]), (0.12, ["missed", "met"]), (0.05, ["missed"] * 2)])
def test_memory_has_to_keep_to_its_bar_by_growth_and_where_both_tell_by_live_bytes(most, states):
    growth, live = bars.judge(special(Bar("PyTorch", most, "memory")), ROWS, Options())
    assert (growth.measured, live.measured) == (pytest.approx(8 / 50), pytest.approx(3 / 30))
    assert [growth.state, live.state] == states
    assert "growth of the process" in growth.what and growth.numbers == "8 MB and 50 MB"
    assert "live bytes" in live.what and live.numbers == "3 MB and 30 MB"


@pytest.mark.parametrize(
    ("against", "state"),
    [
        ("autograd", "met"),
        ("autograd; PyTorch", "missed"),  # PyTorch is right, too
        ("autograd; Equinox", "not shown"),  # whoever is slow has not shown to be wrong
        ("autograd; TensorFlow", "not shown"),
        ("PyTorch; Equinox", "missed"),
        ("autograd; not there", "not shown"),
    ],
)
def test_only_a_wrong_answer_shows_that_a_peer_is_wrong(against, state):
    (verdict,) = bars.judge(special(Bar(against, quantity="right")), ROWS, Options())
    assert verdict.state == state
    assert "autograd NaN" in verdict.numbers or "autograd" not in against


@pytest.mark.parametrize("state", ["slow", "failed", "cannot", "missing"])
def test_no_answer_of_a_peer_is_not_a_wrong_one(state):
    rows = [row("ours", "ours", 1.0), row("JAX", "peer", state=state)]
    (verdict,) = bars.judge(special(Bar("JAX", quantity="right")), rows, Options())
    assert verdict.state == "not shown"


def test_a_bar_is_missed_if_ours_does_not_answer_in_time_and_the_other_does():
    rows = [row("ours", "ours", state="slow", note="no answer after 50 s"), row("PyTorch", "peer", 1.0)]
    (verdict,) = bars.judge(special(Bar("PyTorch")), rows, Options())
    assert (verdict.state, verdict.numbers) == ("missed", "ours: no answer after 50 s")


@pytest.mark.parametrize("options", [Options(size="small"), Options(threads=2), Options(quick=True)])
def test_bars_are_decided_at_medium_size_on_one_core(options):
    (verdict,) = bars.judge(special(Bar("PyTorch")), ROWS, options)
    assert (verdict.state, verdict.numbers) == ("not shown", "decided at medium size on one core")


def test_bars_of_a_workload_that_went_wrong_are_not_shown():
    found = bars.unmeasured(special(Bar("PyTorch"), Bar("JAX; autograd", quantity="right")), "error: ours differs")
    assert [(verdict.state, verdict.numbers) for verdict in found] == [("not shown", "error: ours differs")] * 2


# --- curves and lines -------------------------------------------------------------------------------------------------


def test_a_curve_has_a_table_for_each_point_and_is_judged_at_its_end():
    assert list(report.by_case(CURVE, "steps")) == ["loop, 10 steps", "loop, 30 steps", "loop, 100 steps"]
    (verdict,) = bars.judge(special(Bar("PyTorch", 1.0, case="loop")), CURVE, Options())
    assert verdict.measured == 0.25
    assert [line[0] for line in report.summary({"B0": CURVE})] == ["B0 loop, 100"]


def test_a_line_tells_start_slope_and_how_far_points_are_off():
    assert line_through([1, 2, 4], [3.0, 5.0, 9.0]) == (1.0, 2.0, 0.0)
    assert line_through([1, 2, 4], [3.0, 5.0, 10.0]).deviation > 0.02


def test_growth_that_is_straight_is_told_from_growth_that_is_not():
    ours, torch = ([row for row in CURVE if row.form == form] for form in ("ours", "PyTorch"))
    assert line_of(ours, "seconds") == (0.0, 1.0, 0.0)
    assert line_of(torch, "seconds").deviation > 0.1
    assert line_of(ours[:2], "seconds") is None
    assert described(ours, "live") == "0.00 MB + 100,000 bytes a step, at most 0.0% off"
    assert described(ours, "resident") == ""
