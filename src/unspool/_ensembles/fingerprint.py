"""A checksum of a function: of its code, and of what it closes over and reads from its module.

It tells whether results in a folder are those of this function. What is a number, a text, an array or a function of the
same module is looked into; of other things only their kind counts.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from unspool._graph import Node
from unspool._ops.random import Key

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def digest_of(function: Any) -> str:
    """Return a checksum of a function.

    Examples
    --------
    >>> scale = 2.0
    >>> first, second = digest_of(lambda x: 3.0 * x), digest_of(lambda x: 4.0 * x)
    >>> first == second, first == digest_of(lambda x: 3.0 * x)
    (False, True)
    """
    found = hashlib.sha256()
    for word in _Described(function):
        found.update(word)
        found.update(b"\0")
    return found.hexdigest()


class _Described:
    """What there is to know of a function, as a stream of bytes; each function is described once."""

    def __init__(self, function: Any) -> None:
        self._function = function
        # Kept alive: an id means something as long as its object does.
        self._seen: dict[int, Any] = {}

    def __iter__(self) -> Iterator[bytes]:
        yield from self._words(self._function)

    def _words(self, thing: Any) -> Iterator[bytes]:
        if isinstance(thing, (*_PLAIN, Key)):
            yield repr(thing).encode()
        elif isinstance(thing, Node):
            yield from self._words(thing.value)
        elif isinstance(thing, np.ndarray | np.generic):
            array = np.asarray(thing)
            yield f"{array.dtype.str}{array.shape}".encode()
            yield array.tobytes() if not array.dtype.hasobject else b""
        elif isinstance(thing, tuple | CodeType):
            yield from self._nested(thing)
        elif id(thing) in self._seen:
            yield b"again"
        else:
            self._seen[id(thing)] = thing
            yield from self._nested(thing)

    def _nested(self, thing: Any) -> Iterator[bytes]:
        yield _kind(thing)
        if isinstance(thing, dict):
            for key, entry in thing.items():
                yield from self._words(key)
                yield from self._words(entry)
        elif isinstance(thing, list | tuple):
            for entry in thing:
                yield from self._words(entry)
        elif isinstance(thing, set | frozenset):
            yield from sorted(b"\1".join(self._words(entry)) for entry in thing)
        elif isinstance(thing, partial):
            yield from self._words([thing.func, thing.args, thing.keywords])
        elif isinstance(thing, CodeType):
            yield from self._code(thing)
        elif isinstance(thing, FunctionType):
            yield from self._of_function(thing)
        elif isinstance(getattr(thing, "__wrapped__", None), FunctionType):
            yield from self._words(thing.__wrapped__)
        elif isinstance(called := inspect.getattr_static(type(thing), "__call__", None), FunctionType):
            yield from self._words(called)
            yield from self._words(_settings(thing))

    def _code(self, code: CodeType) -> Iterator[bytes]:
        yield code.co_code
        yield from self._words([code.co_names, code.co_varnames, code.co_freevars])
        # A text that stands first is documentation, or is read like every other constant.
        yield from self._words(list(code.co_consts))

    def _of_function(self, function: FunctionType) -> Iterator[bytes]:
        yield from self._words(function.__code__)
        yield from self._words([function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            try:
                yield from self._words(cell.cell_contents)
            except ValueError:  # a name that is bound later
                yield b"empty"
        for name in _names(function.__code__):
            read = function.__globals__.get(name)
            if read is not None and _is_looked_into(read, function.__module__):
                yield name.encode()
                yield from self._words(read)


def _is_looked_into(thing: Any, module: str) -> bool:
    """Whether a global that a function reads is part of it: data, and functions of its own module."""
    if isinstance(thing, ModuleType | type):
        return False
    return not callable(thing) or isinstance(thing, partial) or getattr(thing, "__module__", None) == module


def _names(code: CodeType) -> list[str]:
    """Return the global names that code reads, that of functions inside of it as well."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names(constant)
    return list(dict.fromkeys(found))


def _settings(thing: Any) -> list[Any]:
    """Return the attributes of an object that is called which say what it does: not those that it may change."""
    fixed = (*_PLAIN, tuple, np.ndarray, np.generic, Node, Key, FunctionType, partial)
    return [(name, value) for name, value in getattr(thing, "__dict__", {}).items() if isinstance(value, fixed)]


def _kind(thing: Any) -> bytes:
    return f"{type(thing).__module__}.{type(thing).__qualname__}".encode()
