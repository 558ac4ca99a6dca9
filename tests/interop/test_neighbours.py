"""How neighbours learn of us: when they are imported, whichever comes first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEIGHBOUR = """
table = []
"""

# Stands for the module of ours that has what to enter.
ENTERING = """
def enter(module):
    module.table.append("unspool")
"""

PREPARE = """
import sys, types, unspool._neighbours as n
ours = types.ModuleType("unspool.interop._made_up")
exec({entering!r}, ours.__dict__)
sys.modules[ours.__name__] = ours
n._TABLES = {{"made_up.inner": "made_up"}}
"""


def printed(program: str, directory: Path) -> list[str]:
    """Run a program beside a made-up neighbour and return the lines that it prints."""
    package = directory / "made_up"
    package.mkdir()
    (package / "__init__.py").write_text("from made_up import inner\n")
    (package / "inner.py").write_text(NEIGHBOUR)
    command = [sys.executable, "-c", PREPARE.format(entering=ENTERING) + program]
    environment = os.environ | {"PYTHONPATH": str(directory)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines() + done.stderr.splitlines()


def test_a_neighbour_that_is_imported_already_is_told_at_once(tmp_path: Path) -> None:
    assert printed("import made_up; n.watch_imports(); print(made_up.inner.table)", tmp_path) == ["['unspool']"]


def test_a_neighbour_that_comes_later_is_told_when_it_is_imported(tmp_path: Path) -> None:
    assert printed("n.watch_imports(); import made_up; print(made_up.inner.table)", tmp_path) == ["['unspool']"]


def test_a_neighbour_is_told_again_when_it_is_imported_anew(tmp_path: Path) -> None:
    program = (
        "n.watch_imports(); import made_up; del sys.modules['made_up.inner'], sys.modules['made_up']; import made_up"
    )
    assert printed(f"{program}; print(made_up.inner.table)", tmp_path) == ["['unspool']"]


def test_a_neighbour_that_has_changed_can_still_be_imported_and_there_is_a_warning(tmp_path: Path) -> None:
    program = "ours.enter = lambda module: module.gone; n.watch_imports(); import made_up; print(made_up.inner.table)"
    lines = printed(program, tmp_path)
    assert lines[0] == "[]"
    assert "unspool could not register with made_up.inner" in " ".join(lines[1:])


def test_modules_that_are_no_neighbours_are_found_by_others() -> None:
    program = (
        "import unspool, sys; finder = sys.meta_path[0]; assert 'unspool' in type(finder).__module__; "
        "print(finder.find_spec('json'), finder.find_spec('not_there'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None"]


@pytest.mark.parametrize("name", ["autoray", "quimb", "torch", "jax", "einops", "tensorly", "xarray"])
def test_importing_unspool_imports_no_neighbour(name: str) -> None:
    program = f"import unspool, sys; print({name!r} in sys.modules, 'unspool.interop' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
