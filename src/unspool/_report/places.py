"""Places in the user's program, as a report names them: file and line, and the text that stands there."""

from __future__ import annotations

import linecache
from functools import lru_cache
from types import CodeType

from unspool._graph import place_at

Origin = tuple[CodeType, int]

_LONGEST = 160

# Stands for a line where there is none.
NO_LINE = "(no line)"


@lru_cache(maxsize=1 << 14)
def line_of(code: CodeType, lasti: int) -> str:
    """Return ``file.py:12`` for a place; places on one line are one.

    What the interpreter itself began (``python -m``) is nobody's line.
    """
    return NO_LINE if code.co_filename.startswith("<frozen ") else place_at(code, lasti)


def made_at(op: str, line: str) -> str:
    """Return what made something, in words.

    Examples
    --------
    >>> made_at("sum", "run.py:3"), made_at("sum", NO_LINE)
    ('sum at run.py:3', 'sum')
    """
    return op if line == NO_LINE else f"{op} at {line}"


@lru_cache(maxsize=1 << 12)
def text_of(code: CodeType, lasti: int) -> str:
    """Return what stands at a place, if the source is there."""
    number = place_at(code, lasti).rpartition(":")[2]
    text = linecache.getline(code.co_filename, int(number)).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


class Lines:
    """The lines that a report speaks of: each is written down once, with its text."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def name(self, origin: Origin) -> str:
        """Return the name of the line of a place, and remember its text."""
        name = line_of(*origin)
        if name not in self.texts:
            self.texts[name] = text_of(*origin)
        return name
