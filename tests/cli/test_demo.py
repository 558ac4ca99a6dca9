"""How a demonstration runs and what it prints, told with a loop that stands in for the algorithms."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import unspool as us
from tests.cli import standin
from unspool._cli.demo import _MOST_STATES, _evaluate, _Trace, play
from unspool.errors import ArgumentError


def test_prints_the_loop_the_gradient_the_comparison_and_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert play(standin.story(), standin.options()) == 0
    printed = capsys.readouterr().out
    headings = ["Power iteration", "    step", "Gradient through", "Value\n", "Gradient\n", "Memory\n"]
    places = [printed.find(f"\n{heading}") for heading in headings[1:]]
    assert printed.startswith(headings[0]) and places == sorted(places) and places[0] > 0


def test_the_gradient_it_prints_is_that_of_perturbation_theory(capsys: pytest.CaptureFixture[str]) -> None:
    play(standin.story(), standin.options())
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("first"))
    assert float(row.split()[1]) == pytest.approx(1.0, abs=1e-6)


def test_nothing_of_a_terminal_goes_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    play(standin.story(), standin.options())
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\r" not in printed
    assert not [line for line in printed.splitlines() if line != line.rstrip()]


def test_a_loop_that_did_not_converge_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert play(standin.story(steps=3), standin.options()) == 0
    assert "Not converged to 1e-13 in 3 steps" in capsys.readouterr().out


def test_the_budget_that_was_given_is_the_one_that_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    play(standin.story(), standin.options(memory=3_000_000))
    printed = capsys.readouterr().out
    assert "Memory budget: 3.00 MB." in printed
    assert re.search(r"^budget +3\.00 MB$", printed, re.MULTILINE)


def test_a_picture_is_saved_and_its_place_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = standin.picture(tmp_path)
    assert play(standin.story(), standin.options(output=path)) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert f"Picture: {path}" in capsys.readouterr().out


def test_no_picture_is_made_if_none_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(standin.story(), standin.options())
    assert "icture" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_a_line_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = standin.picture(tmp_path)
    assert play(standin.story(), standin.options(output=path)) == 0
    assert "No picture: Matplotlib is not installed (pip install 'unspool[plot]')." in capsys.readouterr().out
    assert not path.exists()


def test_a_picture_that_cannot_be_written_is_told_after_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(standin.story(), standin.options(output=tmp_path / "gone" / "picture.png")) == 1
    printed = capsys.readouterr().out
    assert "No picture: [Errno 2]" in printed and "Memory\n" in printed


def test_ctrl_c_in_the_loop_shows_what_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    def disturb(step: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    assert play(standin.story(disturb=disturb), standin.options()) == 130
    printed = capsys.readouterr().out
    assert "Stopped after 3 steps." in printed
    reached = next(line for line in printed.splitlines() if line.startswith("value"))
    assert float(reached.split()[1]) == pytest.approx(1.0, abs=0.1)
    assert float(reached.split()[2]) == 1.0
    assert "Memory\n" not in printed


def test_ctrl_c_in_the_gradient_shows_what_the_loop_reached(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unspool._cli.demo._evaluate", interrupted)
    assert play(standin.story(steps=3), standin.options()) == 130
    printed = capsys.readouterr().out
    assert "Stopped in the gradient, after 3 steps." in printed and "What was reached" in printed


def test_ctrl_c_before_the_first_step_is_done_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def disturb(step: int) -> None:
        raise KeyboardInterrupt

    assert play(standin.story(disturb=disturb), standin.options()) == 130
    assert "Stopped in the first step." in capsys.readouterr().out


def test_errors_of_the_loop_pass_through() -> None:
    def disturb(step: int) -> None:
        raise ArgumentError("no such thing")

    with pytest.raises(ArgumentError, match="no such thing"):
        play(standin.story(disturb=disturb), standin.options())


def test_of_long_loops_few_states_are_kept() -> None:
    trace = _Trace()
    for step in range(1, 10_001):
        trace.note(step, (), {"value": 0.0})
    steps = [step for step, _ in trace.states]
    assert _MOST_STATES // 2 <= len(steps) <= _MOST_STATES
    assert len({later - earlier for earlier, later in pairwise(steps)}) == 1
    assert len(trace.numbers) == 10_000


def test_cotangents_are_left_out_where_the_budget_has_room_for_the_gradient_only() -> None:
    matrix = us.tensor(np.full((100, 100), 0.01))
    with us.memory("1MB"):
        states = [us.ones((100, 100))]
        for _ in range(40):
            states.append(us.tanh(matrix @ states[-1]))
            float(us.sum(states[-1]))
        gradient = us.sum(states[-1]).grad(matrix)
        # Four numbers as large as the state at a time are fine; forty, in place of the norms, are too many.
        found = us.cotangents(us.sum(states[-1]), states[1:-1])
        assert _evaluate(gradient, [(1, us.sum(us.concat(found)))]) == []
        assert gradient.eval().shape == (100, 100)
