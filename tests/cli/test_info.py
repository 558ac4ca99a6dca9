"""`unspool info`."""

from __future__ import annotations

import os
import platform

import numpy as np
import pytest
import scipy

import unspool as us
from unspool._cli.info import facts, show_info


def test_versions_are_those_that_are_installed() -> None:
    known = dict(facts())
    assert known["unspool"] == us.__version__
    assert known["Python"].startswith(platform.python_version())
    assert (known["numpy"], known["scipy"]) == (np.__version__, scipy.__version__)


def test_a_package_that_is_missing_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspool._cli.info._PACKAGES", ("no-such-package",))
    assert dict(facts())["no-such-package"] == "not installed"


def test_the_default_budget_is_half_of_the_memory() -> None:
    known = dict(facts())
    available, budget = known["memory available"].split(), known["default budget"].rstrip(",").split()
    assert budget[1].rstrip(",") == available[1]
    assert float(budget[0]) == pytest.approx(float(available[0]) / 2, rel=0.01)


def test_threads_are_told_as_the_environment_sets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.endswith("_NUM_THREADS"):
            monkeypatch.delenv(name)
    assert "one for each processor" in dict(facts())["BLAS threads"]
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert dict(facts())["BLAS threads"] == "OPENBLAS_NUM_THREADS=3"


def test_every_fact_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_info() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(list(facts()))
    assert any(line.startswith("BLAS ") for line in lines)
