"""`unspool check`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._cli.check import run_checks
from unspool._cli.checks import CHECKS, Check
from unspool._cli.main import main
from unspool.errors import ArgumentError

AT = (np.array([0.5, 1.0]),)


@us.custom_vjp
def wrong_sine(x: Any) -> Any:
    return us.sin(x)


wrong_sine.defvjp(lambda x: (us.sin(x), x), lambda x, ct: (ct * us.sin(x),))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_every_check_holds(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_checks(checks=[check]) == 0
    assert "1 of 1 passed" in capsys.readouterr().out


def test_a_wrong_derivative_fails_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [Check("right", us.sin, AT), Check("wrong", wrong_sine, AT, order=1, modes=("reverse",))]
    assert run_checks(checks=checks) == 1
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split()[-1] for line in printed.splitlines() if line.endswith(("ok", "FAILED"))}
    assert rows == {"right": "ok", "wrong": "FAILED"}
    assert "wrong: order 1, reverse: the derivative at" in printed
    assert "1 of 2 passed" in printed


def test_checks_are_chosen_by_the_beginning_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "elementw", "solve"]) == 0
    printed = capsys.readouterr().out
    assert "elementwise" in printed and "solve" in printed and "2 of 2 passed" in printed


def test_a_name_that_no_check_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError, match="no check begins with 'nothing'"):
        run_checks(["nothing"])
    assert main(["check", "nothing"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_names_of_checks_are_different() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
