"""What a value is called in the user's program: the name it was assigned to, or the expression that made it.

A node knows the piece of source text that made it. If that is all there is on the right of an assignment, the value has
the name on the left.
"""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from unspool._engine.step_number import place_of

# Text that is longer is cut.
_LONGEST = 48

# First and last line, first and last column.
_Span = tuple[int, int, int, int]


class Places:
    """The source texts of a program, each read once."""

    def __init__(self) -> None:
        self._names: dict[str, dict[_Span, str]] = {}
        self._found: dict[tuple[CodeType, int], str] = {}

    def line(self, code: CodeType, lasti: int) -> tuple[str, int]:
        """Return file and line of an instruction."""
        span = place_of(code, lasti)[1]
        line = None if span is None else span[0]
        return code.co_filename, code.co_firstlineno if line is None else line

    def name(self, code: CodeType, lasti: int) -> str:
        """Return what the value that an instruction made is called; the expression, if it has no name."""
        key = (code, lasti)
        if key not in self._found:
            self._found[key] = self._look_up(code, lasti)
        return self._found[key]

    def text(self, code: CodeType, lasti: int) -> str:
        """Return the expression that an instruction belongs to."""
        span = place_of(code, lasti)[1]
        known = span is not None and not any(number is None for number in span)
        return (_text(code.co_filename, span) if known else "") or f"line {self.line(code, lasti)[1]}"

    def _look_up(self, code: CodeType, lasti: int) -> str:
        span = place_of(code, lasti)[1]
        if span is None or any(number is None for number in span):
            return f"a value of line {self.line(code, lasti)[1]}"
        name = self._names_of(code.co_filename).get(span)
        return name or _text(code.co_filename, span) or f"a value of line {span[0]}"

    def _names_of(self, filename: str) -> dict[_Span, str]:
        if filename not in self._names:
            try:
                tree = ast.parse("".join(_source(filename)))
            except (SyntaxError, ValueError):
                tree = ast.Module([], [])
            self._names[filename] = dict(_assignments(tree))
        return self._names[filename]


def _assignments(tree: ast.AST) -> Iterator[tuple[_Span, str]]:
    """Yield what is assigned to a name, by where it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _named(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield from _named(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            yield _span(node), ast.unparse(node.target)
            yield _span(node.value), ast.unparse(node.value)


def _named(target: ast.expr, value: ast.expr) -> Iterator[tuple[_Span, str]]:
    if isinstance(target, ast.Tuple | ast.List):
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                yield from _named(one, other)
        return
    yield _span(value), ast.unparse(target)
    if isinstance(value, ast.IfExp):
        yield from _named(target, value.body)
        yield from _named(target, value.orelse)


def _span(node: Any) -> _Span:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _source(filename: str) -> list[str]:
    """Return the lines of a file, as far as Python finds them."""
    try:
        return linecache.getlines(filename)
    except LookupError:  # doctest has a way of its own, which knows the lines of one block alone
        return []


def _text(filename: str, span: _Span) -> str:
    """Return a piece of source text, on one line; columns count bytes."""
    first, last, start, stop = span
    lines = [line.rstrip("\n").encode() for line in _source(filename)[first - 1 : last]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    text = " ".join(b" ".join(lines).decode(errors="replace").split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def lines_text(lines: Iterable[tuple[str, int]]) -> str:
    """Return ``file.py:12–14, 17`` for some lines; several files one after the other."""
    files: dict[str, set[int]] = {}
    for filename, line in lines:
        files.setdefault(filename, set()).add(line)
    return ", ".join(f"{os.path.basename(filename)}:{_ranges(sorted(found))}" for filename, found in files.items())


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}–{part[-1]}" for part in parts)


def source_lines(lines: Iterable[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Return file, line and text of some lines, in order."""
    return [(name, line, linecache.getline(name, line).strip()) for name, line in sorted(set(lines))]
