"""Options of the commands: a parser whose complaints are one line, and the kinds of values that options take."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from unspool.errors import ArgumentError

__all__ = ["Parser", "add_common_options", "count", "memory_budget", "number", "page_path", "picture_path", "written"]

_PICTURES = (".pdf", ".png", ".svg")
_PAGES = (".html", ".htm")


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Adds the defaults to what options are for, where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong, and exits with 2."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("formatter_class", _Formatter)
        super().__init__(allow_abbrev=False, **settings)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and leave."""
        self.exit(2, f"{self.prog}: error: {message} (try {self.prog} --help)\n")


def add_common_options(
    parser: argparse.ArgumentParser, name: str, *, steps: int, tol: float, unit: str, tol_help: str = ""
) -> None:
    """Add what every demonstration has: when to stop, how much memory, and where the picture goes."""
    add = parser.add_argument
    tol_help = tol_help or f"stop when a {unit} changes less than this"
    add("--steps", metavar="N", type=count(1), default=steps, help=f"the most {unit}s to make")
    add("--tol", metavar="X", type=number(0), default=tol, help=tol_help)
    add("--memory", metavar="BYTES", type=memory_budget, help='such as "200MB" (default: half of the memory)')
    add("--spool", metavar="FOLDER", help="write the run as it goes; a run that is there is gone on with")
    add("--every", metavar="TIME", default="5min", help="how often it is written")
    add("--output", metavar="FILE", type=picture_path, default=f"unspool-{name}.png", help="where the picture goes")
    add("--no-picture", dest="output", action="store_const", const=None, default=argparse.SUPPRESS, help="draw nothing")
    add("--report", metavar="FILE", type=page_path, help="where the report goes (default: beside the picture, if any)")
    add("--no-report", dest="report", action="store_const", const=False, default=argparse.SUPPRESS, help="no report")


def written(chosen: argparse.Namespace) -> Any:
    """Return the run that a demonstration is written to, or None."""
    return getattr(chosen, "run_to_write", None)


def count(least: int) -> Callable[[str], int]:
    """Return a reader of integers that are at least ``least``.

    Examples
    --------
    >>> count(2)("20")
    20
    """

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be an integer, but is {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, but is {value}")
        return value

    return read


def number(least: float = -math.inf, *, above: bool = False) -> Callable[[str], float]:
    """Return a reader of finite numbers that are at least ``least``, or above it.

    Examples
    --------
    >>> number(0)("1e-9")
    1e-09
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number, but is {text!r}") from None
        if not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"must be finite, but is {text}")
        if value < least or (above and value == least):
            raise argparse.ArgumentTypeError(f"must be {'above' if above else 'at least'} {least:g}, but is {text}")
        return value

    return read


def memory_budget(text: str) -> int:
    """Read an amount of memory.

    Examples
    --------
    >>> memory_budget("200MB")
    200000000
    """
    from unspool._engine.memory.sizes import parse_bytes

    try:
        return parse_bytes(text)
    except ArgumentError:
        raise argparse.ArgumentTypeError(f'must be bytes, as 4096, "200MB" or "1.5GiB", but is {text!r}') from None


def picture_path(text: str) -> Path:
    """Read where a picture goes; a place that cannot be written to is found before the work, not after it.

    Examples
    --------
    >>> picture_path("dmrg.png").name
    'dmrg.png'
    """
    return _writable(text, _PICTURES)


def page_path(text: str) -> Path:
    """Read where a page goes, likewise.

    Examples
    --------
    >>> page_path("dmrg.html").name
    'dmrg.html'
    """
    return _writable(text, _PAGES)


def _writable(text: str, endings: tuple[str, ...]) -> Path:
    path = Path(text)
    folder = path.parent
    if path.suffix.lower() not in endings:
        raise argparse.ArgumentTypeError(f"must end in {', '.join(endings)}, but is {text!r}")
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path
