"""The recipes: what stands on their pages beside the programs, which `test_docs.py` runs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "recipes"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")


def read(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recipes_make", FOLDER / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_every_recipe_is_in_the_index(page: str) -> None:
    assert f"({page}.md)" in read("index")


@pytest.mark.parametrize("page", PAGES)
def test_every_recipe_has_a_problem_a_loop_an_answer_a_picture_costs_and_advice(page: str) -> None:
    text = read(page)
    assert text.startswith("# ") and "**The problem.**" in text
    assert ">>> " in text and re.search(r"^## The answer", text, re.MULTILINE)
    assert f"](../images/recipes/{page}.png)" in text
    assert f"<!-- measured: {page} -->" in text
    assert "## When it is slow or too large" in text


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_on_a_page_are_those_of_the_measured_figures(page: str, make: ModuleType) -> None:
    figures = json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))
    assert make.with_tables(read(page), figures["measured"]) == read(page)


@pytest.mark.parametrize("page", PAGES)
def test_pictures_are_small(page: str) -> None:
    assert (ROOT / "docs" / "images" / "recipes" / f"{page}.png").stat().st_size < 200_000


def test_the_program_of_a_page_has_its_functions_and_prints_nothing(
    make: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    names = make.program("economics")
    assert callable(names["policy"]) and "print" not in names
    assert capsys.readouterr().out == ""


def test_the_chemistry_on_the_page_is_that_of_the_example() -> None:
    example = (ROOT / "examples" / "hartree_fock.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", read("hartree-fock"), re.MULTILINE | re.DOTALL)
    programs = [block for block in blocks if ">>>" not in block]
    assert len(programs) == 3
    assert all(program.strip() in example for program in programs)


def test_times_and_bytes_are_told_in_units_that_suit_them(make: ModuleType) -> None:
    assert [make.spoken_time(seconds) for seconds in (0.0123, 0.5, 2.5, 12.0)] == [
        "12.3 ms",
        "500 ms",
        "2.50 s",
        "12 s",
    ]
    assert [make.spoken_bytes(count) for count in (None, 5, 12_345_678)] == ["–", "< 0.1 MB", "12.3 MB"]


def test_a_row_that_has_no_time_says_why(make: ModuleType) -> None:
    row = {"form": "ours", "kind": "ours", "state": "ok", "note": "", "seconds": 1.0, "first": 2.0, "resident": 1e6}
    others = [
        {"form": name, "kind": "peer", "state": state, "note": "a reason"}
        for name, state in (("A", "cannot"), ("B", "NaN"), ("C", "wrong"), ("D", "missing"))
    ]
    lines = make.time_table([row, *others]).splitlines()
    assert lines[2] == "| ours | 1.00 s | 1.00 × | 2.00 s | 1 MB |"
    told = [line.split(" | ")[1] for line in lines[3:7]]
    assert told == ["a reason", "NaN", "wrong: a reason", "missing"]


def test_a_run_in_a_folder_has_its_bytes_and_times_in_a_row(make: ModuleType) -> None:
    row = {"written": "at both ends", "kept": 2, "bytes": 2e5, "log": 26.6, "opened": 0.05, "gradient": 0.4, "tight": 2}
    head, rule, line = make.disk_table([row]).splitlines()
    assert line == "| at both ends | 2 | 0.2 MB | 27 bytes | 50 ms | 400 ms | 2.00 s |"
    assert head.count("|") == rule.count("|") == line.count("|")
