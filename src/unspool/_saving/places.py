"""Lines of the user's program: what a file says of them, and positions in a program that has another one, or none.

A node has the code object and the offset of what made it. A file has the name of the source file, that of the function,
the line and its text. Where it is loaded the code object is that of the same function, if the program has it; else an
empty one that has these names. It is never run, and the text is found with it when a message is printed.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from unspool._graph import _line_at

# A line this far down in a file that nobody has is shown without its text: the lines above take room.
_LONGEST_FILE = 1 << 17


class Place(NamedTuple):
    """A line: the source file, the function and its first line, the line and its text."""

    filename: str
    name: str
    first: int
    line: int
    text: str


def place_of(code: CodeType, lasti: int) -> Place:
    """Return the line of a position in the user's program."""
    line = _line_at(code, lasti)
    return _place(code, line)


@lru_cache(maxsize=4096)
def _place(code: CodeType, line: int) -> Place:
    text = linecache.getline(code.co_filename, line).strip()
    return Place(code.co_filename, code.co_qualname, code.co_firstlineno, line, text[:200])


_EMPTY = (lambda: None).__code__


class Positions:
    """Finds positions for the lines of a file: in the program that is running, or empty ones."""

    def __init__(self) -> None:
        self._codes: dict[str, dict[tuple[str, int], CodeType]] = {}

    def position(self, place: Place) -> tuple[CodeType, int]:
        """Return a code object and an offset that stand for a line."""
        filename, name, first, line, text = place
        if filename not in self._codes:
            self._codes[filename] = {(c.co_qualname, c.co_firstlineno): c for c in _codes_of(filename)}
        code = self._codes[filename].get((name, first))
        if code is not None and linecache.getline(filename, line).strip()[:200] == text:
            for start, _, found in code.co_lines():
                if found == line:
                    return code, start
        _remember_text(filename, line, text)
        return _EMPTY.replace(co_filename=filename, co_name=name, co_qualname=name, co_firstlineno=line), 0


def _codes_of(filename: str) -> Iterator[CodeType]:
    """Yield the code objects of a source file that the running program has: of functions, and of what runs now."""
    waiting: list[CodeType] = []
    frame: Any = sys._getframe()
    while frame is not None:
        waiting.append(frame.f_code)
        frame = frame.f_back
    for module in tuple(sys.modules.values()):
        if getattr(module, "__file__", None) == filename:
            waiting += _functions_in(vars(module))
    seen: set[int] = set()
    while waiting:
        code = waiting.pop()
        if code.co_filename == filename and id(code) not in seen:
            seen.add(id(code))
            yield code
            waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _functions_in(names: Any) -> Iterator[CodeType]:
    for found in tuple(names.values()):
        members = tuple(vars(found).values()) if isinstance(found, type) else (found,)
        for member in members:
            inner = getattr(member, "__wrapped__", None) or getattr(member, "__func__", None) or member
            if isinstance(inner, FunctionType):
                yield inner.__code__


def _remember_text(filename: str, line: int, text: str) -> None:
    """Let messages show the text of a line whose file is not there."""
    if not text or line > _LONGEST_FILE or os.path.exists(filename):
        return
    known = linecache.cache.get(filename)
    if known is not None and len(known) == 4 and known[1] is not None:
        return
    lines: list[str] = list(known[2]) if known is not None and len(known) == 4 else []
    lines += ["\n"] * (line - len(lines))
    lines[line - 1] = text + "\n"
    linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
