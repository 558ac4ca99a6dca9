"""The recipe that needs a neighbour runs where that is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import test_examples_on_pages_run as run_page

pytest.importorskip("symmray")


def test_dmrg_with_a_charge_runs_as_its_page_says() -> None:
    run_page(Path("docs/recipes/symmetric-dmrg.md"))
