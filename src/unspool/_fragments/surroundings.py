"""What a function reads besides its arguments, and whether that still is what it was when the function was traced.

The one idea: a function can reach the world by names: variables of enclosing functions, globals, attributes of objects
and entries of dictionaries that it gets at by those. Each is a place with a content. If a place holds another object
than it did, the function may mean something else, and is traced again. Comparing identities costs some ten nanoseconds
a place.

What changes without binding a name (an entry of a list, an array that is written into) is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from unspool._graph import Node

_MISSING = object()

# Rebinding these is no part of any program worth tracing, and nearly every function refers to some.
_FIXED = (ModuleType, BuiltinFunctionType, type)


class Surroundings:
    """The places that a function, called with some objects, reads; and their contents when this was made.

    Functions that it refers to by name are followed if they belong to the same package.
    """

    __slots__ = ("_attributes", "_cells")

    def __init__(self, function: Any, objects: Iterable[Any] = ()) -> None:
        self._cells: list[tuple[CellType, Any]] = []
        self._attributes: list[tuple[dict[str, Any], str, Any]] = []
        followed: set[CodeType] = set()
        seen: set[tuple[int, str]] = set()
        package = _package(function)
        waiting = [function]
        while waiting:
            plain = _plain_function(waiting.pop())
            if plain is None or plain.__code__ in followed or _package(plain) != package:
                continue
            followed.add(plain.__code__)
            names = _names(plain.__code__)
            found = [*self._add_cells(plain), *self._add_names(plain.__globals__, names, seen)]
            waiting += found
            for thing in (*found, *objects):
                if not isinstance(thing, (Node, FunctionType)):
                    inside = thing if isinstance(thing, dict) else getattr(thing, "__dict__", None)
                    waiting += self._add_names(inside, names, seen)

    def _add_cells(self, function: FunctionType) -> Iterator[Any]:
        for cell in function.__closure__ or ():
            content = _content(cell)
            if content is not _MISSING and not isinstance(content, _FIXED):
                self._cells.append((cell, content))
                yield content

    def _add_names(self, where: Any, names: Iterable[str], seen: set[tuple[int, str]]) -> Iterator[Any]:
        if not isinstance(where, dict):
            return
        for name in names:
            content = where.get(name, _MISSING)
            if content is not _MISSING and not isinstance(content, _FIXED) and (id(where), name) not in seen:
                seen.add((id(where), name))
                self._attributes.append((where, name, content))
                yield content

    def are_unchanged(self) -> bool:
        """Whether every place has the content it had."""
        for cell, content in self._cells:
            if _content(cell) is not content:
                return False
        for where, name, content in self._attributes:  # noqa: SIM110 - a generator costs more than the loop
            if where.get(name, _MISSING) is not content:
                return False
        return True

    def forget_changed(self) -> None:
        """Stop looking at places that hold something else now: the function itself writes them (a counter, say)."""
        self._cells = [(cell, content) for cell, content in self._cells if _content(cell) is content]
        self._attributes = [(w, name, content) for w, name, content in self._attributes if w.get(name) is content]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # deleted, or not bound yet
        return _MISSING


def _plain_function(thing: Any) -> FunctionType | None:
    """Return the Python function behind a callable: under decorators, methods and partial applications."""
    while not isinstance(thing, FunctionType):
        if isinstance(thing, MethodType):
            thing = thing.__func__
        elif isinstance(thing, partial):
            thing = thing.func
        else:
            # Not by attribute access, which an object may answer with anything.
            thing = getattr(thing, "__dict__", {}).get("__wrapped__")
            if thing is None:
                return None
    return thing


def _package(function: Any) -> str:
    return (getattr(function, "__module__", None) or "").partition(".")[0]


def _names(code: CodeType) -> set[str]:
    """Return the names, and strings that may be keys, in a function's code and in functions defined inside of it."""
    found: set[str] = set()
    waiting = [code]
    while waiting:
        code = waiting.pop()
        found.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                waiting.append(constant)
            elif isinstance(constant, str):
                found.add(constant)
    return found
