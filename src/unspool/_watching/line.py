"""A line that lives: the last one of a terminal, or an output of a notebook, drawn again a few times a second.

What it says is asked for when it is drawn, so nobody has to tell it anything.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Protocol, TextIO

from unspool._html import escape

if TYPE_CHECKING:
    from rich.console import Console

    from unspool._watching.live import TransientLive

# How often it is drawn, in a second. More would be seen, and cost more than a program should pay for being watched.
_TERMINAL, _NOTEBOOK = 4.0, 2.0

# The mark that moves.
_MARKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

# Where rich may find another thing to draw on than the file says: who runs the program, and what the environment has.
_HOSTS, _VARIABLES = ("IPython", "idlelib"), ("FORCE_COLOR", "TTY_COMPATIBLE")

_USUAL_COLUMNS = 80


class Line(Protocol):
    """A line that is drawn while a program runs."""

    def start(self) -> None:
        """Begin to draw."""

    def stop(self, last: str | None = None) -> None:
        """Stop, and leave some text in its place."""


def make_line(file: TextIO | None, text: Callable[[], str]) -> Line | None:
    """Return a line for a terminal or a notebook; ``None`` where nobody looks, as in a pipe or a file.

    To load rich and to ask it takes as long as many a loop. It finds what the file says, but where IPython or IDLE runs
    or a variable of the environment says otherwise; only there is it asked.
    """
    where = sys.stderr if file is None else file
    if not any(name in sys.modules for name in _HOSTS) and not any(name in os.environ for name in _VARIABLES):
        return TerminalLine(where, partial(make_console, file), text) if _is_terminal(where) else None
    console = make_console(file)
    if console.is_jupyter:
        return NotebookLine(text)
    return TerminalLine(where, lambda: console, text) if console.is_terminal else None


def make_console(file: TextIO | None) -> Console:
    """Return where lines go: the standard error by default, which is not in the way of results."""
    from rich.console import Console

    return Console(file=file, stderr=file is None, highlight=False)


def _is_terminal(file: Any) -> bool:
    """Whether a file is a terminal; there may be none, and one that is closed is none."""
    try:
        return bool(file.isatty())
    except (AttributeError, ValueError):
        return False


class TerminalLine:
    """The last line of a terminal, with a mark that moves; what is printed meanwhile goes above it.

    Rich comes in when it is first drawn, after a fraction of a second: most of what that takes is for the first time.
    """

    def __init__(
        self, file: IO[str], make: Callable[[], Console], text: Callable[[], str], refresh: float = _TERMINAL
    ) -> None:
        self._file, self._make, self._text, self._period = file, make, text, 1.0 / refresh
        self._live: TransientLive | None = None
        self._is_drawing = threading.Lock()
        self._end = threading.Event()

    def start(self) -> None:
        """Begin to draw."""
        threading.Thread(target=self._draw_again, daemon=True, name="unspool progress").start()

    def _draw_again(self) -> None:
        while not self._end.wait(self._period):
            self.draw()

    def draw(self) -> None:
        """Draw the line, unless it has ended."""
        with self._is_drawing:
            if self._end.is_set():
                return
            if self._live is None:
                from unspool._watching.live import TransientLive

                self._live = TransientLive(get_renderable=self._render, console=self._make(), auto_refresh=False)
                self._live.start()
            self._live.refresh()

    def _render(self) -> Any:
        from rich.text import Text

        mark = _MARKS[int(perf_counter() * 10) % len(_MARKS)]
        return Text.assemble((mark, "cyan"), " ", self._text(), no_wrap=True, overflow="ellipsis")

    def stop(self, last: str | None = None) -> None:
        """Stop, and leave some text in its place."""
        with self._is_drawing:
            self._end.set()
            if self._live is not None:
                self._live.stop()
        if last is not None:
            self._file.write(_cropped(last, _columns(self._file)) + "\n")
            self._file.flush()


def _columns(file: IO[str]) -> int:
    """Return how wide a terminal is."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return os.get_terminal_size(file.fileno()).columns or _USUAL_COLUMNS
    except (OSError, ValueError, AttributeError):
        return _USUAL_COLUMNS


def _cropped(text: str, width: int) -> str:
    """Return a text as far as it fits; rich does it too, and takes ten times as long for its first line."""
    if text.isascii():
        return text if len(text) <= width else text[: width - 1] + "…"
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


class NotebookLine:
    """An output of a notebook that is replaced; it needs no widgets."""

    def __init__(self, text: Callable[[], str], refresh: float = _NOTEBOOK) -> None:
        self._text, self._period = text, 1.0 / refresh
        self._handle: Any = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True, name="unspool progress")

    def start(self) -> None:
        """Begin to draw."""
        from IPython.display import display

        self._handle = display(_as_output(self._text()), raw=True, display_id=True)
        self._thread.start()

    def _draw(self) -> None:
        while not self._end.wait(self._period):
            self._handle.update(_as_output(self._text()), raw=True)

    def stop(self, last: str | None = None) -> None:
        """Stop, and leave some text in its place."""
        self._end.set()
        self._thread.join()
        self._handle.update(_as_output(last or ""), raw=True)


def _as_output(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
