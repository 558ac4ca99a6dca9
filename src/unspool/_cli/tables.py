"""What the commands print: one console, and tables of numbers beside each other."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unspool._engine.table import UNKNOWN

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Comparison", "Table", "compare", "make_console", "print_lines", "print_table", "render"]

# The width of what does not go to a terminal, which has a width of its own.
_PLAIN_WIDTH = 100

# Longer tables show so many rows at both ends.
_MOST_ROWS, _ENDS = 24, 8


@dataclass(frozen=True)
class Comparison:
    """A number beside what it should be; None where that is not known."""

    name: str
    found: float
    exact: float | None = None
    notation: str = ".12f"


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; all but the first column are numbers, aligned on the right."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default=())


def compare(
    title: str, rows: Iterable[Comparison], *, heads: Sequence[str] = ("", "loop", "exact"), notes: Sequence[str] = ()
) -> Table:
    """Return a table of numbers, what they should be, and the difference.

    Examples
    --------
    >>> compare("results", [Comparison("energy", -1.5, -1.6, ".2f"), Comparison("norm", 1.0)]).rows
    [('energy', '-1.50', '-1.60', '1.0e-01'), ('norm', '1.000000000000', '–', '–')]
    """
    return Table(title, (*heads, "difference"), [_compared(row) for row in rows], notes)


def _compared(row: Comparison) -> tuple[str, str, str, str]:
    found = format(row.found, row.notation)
    if row.exact is None:
        return row.name, found, UNKNOWN, UNKNOWN
    return row.name, found, format(row.exact, row.notation), f"{abs(row.found - row.exact):.1e}"


def make_console() -> Console:
    """Return where a command prints to: a terminal with its colours and width, or plain text."""
    from rich.console import Console

    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and not (stream.encoding or "").lower().startswith("utf"):
        stream.reconfigure(errors="replace")  # a question mark for a Greek letter is better than no output
    return Console(file=stream, highlight=False, width=None if stream.isatty() else _PLAIN_WIDTH)


def print_table(console: Console, table: Table) -> None:
    """Print a table under its title, the middle of a long one left out."""
    heading, rule, *lines = render(table.heads, _shortened(table.rows))
    print_lines(console, table.title, [])
    console.print(heading, style="bold", soft_wrap=True, markup=False)
    console.print(rule, style="dim", soft_wrap=True, markup=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
    for note in table.notes:
        console.print(note, style="dim", soft_wrap=True, markup=False)


def print_lines(console: Console, title: str, lines: Iterable[str]) -> None:
    """Print lines of text under a title, after an empty line."""
    console.print()
    console.print(title, style="bold cyan", soft_wrap=True, markup=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def render(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    r"""Return the lines of a table: the headings, a rule, and the rows.

    Examples
    --------
    >>> print("\n".join(render(["bond", "dE/dJ"], [["1", "-0.66"], ["10", "-0.41"]])))
    bond  dE/dJ
    ───────────
    1     -0.66
    10    -0.41
    """
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    heading, *lines = [_aligned(row, widths) for row in (heads, *rows)]
    return [heading.rstrip(), "─" * len(heading), *(line.rstrip() for line in lines)]


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join([row[0].ljust(len(first)), *others])


def _shortened(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    if len(rows) <= _MOST_ROWS:
        return rows
    return [*rows[:_ENDS], ["…"] * len(rows[0]), *rows[-_ENDS:]]
