"""Ctrl-C at the worst of moments."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from tests.cli import standin
from unspool._cli.demo import play
from unspool._cli.interrupts import Interrupts


class Dying:
    """An object in whose last moment Ctrl-C is pressed, where Python drops the exception."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_raises_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_python_drops_is_raised_at_the_next_look(capsys: pytest.CaptureFixture[str]) -> None:
    with Interrupts() as interrupts:
        interrupts.check()
        Dying()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert capsys.readouterr().err == ""


def test_ctrl_c_that_python_drops_stops_a_loop_after_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    def disturb(step: int) -> None:
        if step == 3:
            Dying()

    assert play(standin.story(disturb=disturb), standin.options()) == 130
    printed = capsys.readouterr()
    assert "Stopped after 3 steps." in printed.out
    assert printed.err == ""


def test_everything_is_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), Interrupts():
        signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before


def test_other_threads_set_no_handlers() -> None:
    seen = []

    def run() -> None:
        with Interrupts() as interrupts:
            interrupts.check()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
