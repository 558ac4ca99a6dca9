"""Which interpreter tests run on: one that the metadata names, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SERIES = "Programming Language :: Python :: 3."


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]  # type: ignore[no-any-return]


def named_versions() -> list[str]:
    classifiers = project()["classifiers"]
    assert isinstance(classifiers, list)
    return [f"3.{name.removeprefix(SERIES)}" for name in classifiers if name.startswith(SERIES)]


def test_the_metadata_names_the_interpreter_that_runs_the_tests() -> None:
    assert "{}.{}".format(*sys.version_info[:2]) in named_versions()


def test_the_oldest_version_that_is_named_is_the_oldest_that_is_let_in() -> None:
    assert project()["requires-python"] == f">={named_versions()[0]}"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("made_with", "asked_for", "environment"),
    [
        (None, "3.12", ".venv"),
        ("3.12.1", "3.12", ".venv"),
        ("3.11.7", "3.12", ".venv-3.12"),
        ("3.1.7", "3.11", ".venv-3.11"),
        ("3.13.0", "3.11", ".venv-3.11"),
    ],
)
def test_make_uses_an_environment_of_the_version_that_is_asked_for(
    tmp_path: Path, made_with: str | None, asked_for: str, environment: str
) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "setup.py").touch()
    (tmp_path / "python").write_text(f"#!/bin/sh\necho {asked_for}\n")
    (tmp_path / "python").chmod(0o755)
    if made_with is not None:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {made_with}\n")
    command = ["make", "--dry-run", "demo", "PYTHON=./python"]
    # The make that runs this test must not hand its own settings down.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    steps = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True).stdout
    assert f"./python -m venv {environment}\n" in steps
    assert f"{environment}/bin/unspool demo" in steps
