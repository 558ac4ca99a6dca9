"""What a loop shows while it runs: a table that grows, whose last line lives on a terminal.

On a terminal the newest step is a line that is written over, with a moving mark and the time beside it; steps that were
shown stay above. Elsewhere, in a pipe or a file, the same lines are plain text. Of many steps not all are shown: every
one up to ten, every tenth up to a hundred, and so on, and the last one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unspool._activity import ACTIVITY
from unspool._engine.memory.sizes import format_bytes
from unspool._engine.table import UNKNOWN
from unspool._watching.line import TerminalLine
from unspool._watching.seen import Eye

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["TRUNCATION", "Column", "Progress", "is_shown", "spoken", "working"]

# The least time between two drawings of the line on a terminal, in seconds.
_REFRESH = 0.1


@dataclass(frozen=True)
class Column:
    """A number that a loop reads in every step: its name among the values, and how it is written."""

    name: str
    notation: str = ".1e"
    width: int = 11

    def text(self, values: Mapping[str, float]) -> str:
        """Return the number as text, or a dash where the loop has none."""
        value = values.get(self.name)
        if value is None or not math.isfinite(value):
            return UNKNOWN
        return format(int(value) if self.notation == "d" else value, self.notation)


# What loops that truncate tell of every step, beside the quantity that they are after.
TRUNCATION = (Column("change"), Column("truncation", width=12), Column("rank", "d", 6))


def spoken(name: str) -> str:
    """Return the name of a value as it is printed.

    Examples
    --------
    >>> spoken("log_partition")
    'log partition'
    """
    return name.replace("_", " ")


def is_shown(step: int) -> bool:
    """Tell whether a step stays on the screen.

    Examples
    --------
    >>> [step for step in range(1, 50) if is_shown(step)]
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40]
    """
    power: int = 10 ** (len(str(step)) - 1)
    return step % power == 0


class Progress:
    """The table of the steps of a loop, line by line as they come.

    Parameters
    ----------
    console : rich.console.Console
        Where it goes.
    step : str
        What a step is called.
    columns : sequence of Column
        What to show of the values that the loop reads.
    live_bytes : callable
        Returns the bytes that are alive now. It is called for steps that are shown only.
    """

    def __init__(self, console: Console, step: str, columns: Sequence[Column], live_bytes: Callable[[], int]) -> None:
        self._console = console
        self._columns = tuple(columns)
        self._live_bytes = live_bytes
        self._begin = self._drawn = time.perf_counter()
        self._newest: tuple[int, Mapping[str, float], float] | None = None
        self._text: str | None = None
        self._printed = 0
        self._line: TerminalLine | None = None
        self._shown = f"{'…':>8}"
        names = [f"{spoken(column.name):>{column.width}}" for column in self._columns]
        self._heading = "".join([f"{step:>8}", *names, f"{'live':>10}", f"{'time':>9}"])

    def __enter__(self) -> Progress:
        self._print(self._heading, style="bold")
        if self._console.is_terminal:
            # The mark and the space behind it take the place of the first two characters.
            self._line = TerminalLine(
                self._console.file, lambda: self._console, lambda: self._shown.removeprefix("  "), refresh=10
            )
            self._line.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._line is not None:
            self._line.stop()
        self._print_newest()

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Show what a step came to."""
        if self._newest is not None and is_shown(self._newest[0]):
            self._print_newest()
        now = time.perf_counter()
        self._newest, self._text = (step, values, now - self._begin), None
        if self._line is None:
            if is_shown(step):
                self._print_newest()
        elif is_shown(step) or now - self._drawn > _REFRESH:
            self._text, self._drawn = self._format(), now
            self._shown = self._text

    def _print_newest(self) -> None:
        if self._newest is not None and self._newest[0] != self._printed:
            self._printed = self._newest[0]
            self._print(self._text or self._format())

    def _format(self) -> str:
        step, values, seconds = self._newest or (0, {}, 0.0)
        cells = [f"{column.text(values):>{column.width}}" for column in self._columns]
        return "".join([f"{step:>8}", *cells, f"{format_bytes(self._live_bytes()):>10}", f"{seconds:>7.2f} s"])

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, no_wrap=True, overflow="ellipsis", markup=False)


@contextmanager
def working(console: Console, text: str) -> Iterator[None]:
    """Show that something is done and how far it is, on a terminal, while it is done."""
    if not console.is_terminal:
        yield
        return
    eye = Eye()

    def shown() -> str:
        seen = eye.look()
        return f"{text}: {seen}" if seen.what else text

    line = TerminalLine(console.file, lambda: console, shown)
    with ACTIVITY.looked_at():
        line.start()
        try:
            yield
        finally:
            line.stop()
