"""Tests beside other packages: each module is skipped by name where its package is absent.

What those packages warn about among themselves is not ours to fix, so their warnings are not errors here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
# These need no package but the library itself, …
OURS = {"test_neighbours.py", "test_travelling.py"}
# … and these only what is installed for the suite: they are part of it, too.
SMALL = {"test_autoray.py", "test_einops.py", "test_processes.py", "test_tensorly.py", "test_xarray.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.path.name not in OURS:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            if item.path.name not in SMALL:
                item.add_marker(pytest.mark.ecosystem)
