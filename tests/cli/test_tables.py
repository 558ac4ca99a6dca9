"""Tables of numbers beside each other."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from unspool._cli.tables import Comparison, Table, compare, make_console, print_table, render


def printed(table: Table) -> list[str]:
    file = io.StringIO()
    print_table(Console(file=file, width=40), table)
    return file.getvalue().splitlines()


def test_a_comparison_shows_both_numbers_and_their_distance() -> None:
    table = compare("Energy", [Comparison("E", -1.25, -1.5, ".3f")])
    assert table.rows == [("E", "-1.250", "-1.500", "2.5e-01")]


def test_what_has_no_exact_number_has_dashes() -> None:
    assert compare("", [Comparison("E", 1.0, None, ".1f")]).rows == [("E", "1.0", "–", "–")]


def test_names_are_aligned_on_the_left_and_numbers_on_the_right() -> None:
    assert render(["", "x"], [["ab", "1"], ["c", "23"]]) == ["     x", "──────", "ab   1", "c   23"]


def test_wide_tables_are_neither_cut_nor_wrapped() -> None:
    wide = printed(Table("wide", ["", "number"], [["a" * 60, "1"]], notes=["a note"]))
    assert "a" * 60 + "       1" in wide
    assert wide[-1] == "a note"


def test_brackets_in_a_table_are_text() -> None:
    assert "[bold]x" in printed(Table("t", ["[bold]x", "y"], [["1", "2"]]))[2]


def test_the_middle_of_a_long_table_is_left_out() -> None:
    lines = printed(Table("long", ["row", "n"], [[str(i), "0"] for i in range(100)]))
    names = [line.split()[0] for line in lines[4:]]
    assert names == [*map(str, range(8)), "…", *map(str, range(92, 100))]


def test_output_that_knows_no_greek_gets_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    make_console().print("χ is 4")
    sys.stdout.flush()
    assert raw.getvalue() == b"? is 4\n"
