"""Generated Python: functions written line by line, compiled once for each text, and shown in tracebacks.

The one idea: a text has names and no values. What tells two functions of one structure apart (shapes, dtypes,
parameters) is what their names are bound to, so equal texts are compiled once. Each function has a file name of its
own, which says what it does and for which line of the user's program. As long as it lives, its text is in `linecache`,
where tracebacks, debuggers and `inspect.getsource` look for the lines of a file.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import linecache
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import BuiltinMethodType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from unspool._graph import place_at
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._fragments.fragment import Origin

# Texts of which the compiled code is kept for functions to come.
MOST_TEXTS = 512

# Functions whose lines tracebacks show, the newest ones: as many as there are plans in the cache of an engine.
MOST_LISTED = 2048


class FunctionWriter:
    """A function that is being written: its lines, and what the names in them are bound to.

    Parameters
    ----------
    name : str
    arguments : iterable of str
    local : iterable of str
        What the local variables are called, without the numbers at their ends; no constant gets such a name.

    Examples
    --------
    >>> writer = FunctionWriter("run", ["v0"], local=["v"])
    >>> axis = writer.constant("sum_axis_1", (0,))
    >>> writer.write(f"return v0.sum({axis})")
    >>> run = writer.compile("example")
    >>> print(source_of(run))
    def run(v0):
        return v0.sum(sum_axis_1)
    """

    def __init__(self, name: str, arguments: Iterable[str], local: Iterable[str] = ()) -> None:
        self._name = name
        self._lines = [f"def {name}({', '.join(arguments)}):"]
        self._indentation = "    "
        self._local = frozenset(local)
        self._bound: dict[str, Any] = {}
        self._about: tuple[Any, Any] | None = None

    def write(self, *lines: str) -> None:
        """Append lines."""
        self._lines += [self._indentation + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append the head of a statement, and in the ``with`` block the lines that belong to it."""
        self.write(head)
        outside, self._indentation = self._indentation, f"{self._indentation}    "
        yield
        self._indentation = outside

    def bind(self, **values: Any) -> None:
        """Give values the very names under which lines refer to them."""
        self._bound.update(values)

    def constant(self, wish: str, value: Any) -> str:
        """Return the name under which lines find a value: the one that is wished for, or one like it."""
        bound = self._bound
        if bound.get(wish, _MISSING) is value:
            return wish
        name = wish = self._identifier(wish)
        number = 1
        while not _is_same(bound.setdefault(name, value), value):
            number += 1
            name = f"{wish}_{number}"
        return name

    def function(self, value: Any) -> str:
        """Return the name under which lines find a function: its own, if it is free."""
        return self.constant(value.__name__, value)

    def _identifier(self, wish: str) -> str:
        # ASCII alone: of other letters Python takes some for others.
        if not (wish.isidentifier() and wish.isascii()):
            wish = "".join([c if c.isascii() and c.isalnum() else "_" for c in wish])
            wish = wish if wish.isidentifier() else f"_{wish}"
        return f"{wish}_" if wish in _TAKEN or wish.rstrip("0123456789") in self._local else wish

    def tell(self, fragment: Any, bound: Any) -> None:
        """Say which fragment the lines compute, and its sizes, for who measures them: ``v3`` is its slot 3."""
        self._about = fragment, bound

    def compile(self, what: str, origins: Sequence[Origin] = ()) -> Any:
        """Return the function; ``what`` it is, and the line that it is for, are in the name of its file.

        That is the line of the last of the ``origins``.
        """
        found = _compiled("\n".join(self._lines))
        place = f" of {place_at(*origins[-1])}" if origins else ""
        file = f"<unspool {what} {_number()}{place}>"
        function = FunctionType(found.code.replace(co_filename=file), self._bound, self._name)
        self._bound[_SOURCE], self._bound[_LISTING] = found.text, _Listing(file, found)
        if self._about is not None:
            self._bound[_ABOUT] = self._about
            MEASURABLE.add(function)
            for watch in WATCHES:
                watch(function)
        return function


_MISSING = object()
_SOURCE, _LISTING, _ABOUT = "__source__", "__listing__", "__about__"
_TAKEN = frozenset([*keyword.kwlist, *dir(builtins), _SOURCE, _LISTING, _ABOUT])

# The functions that compute fragments, as long as they live, and who wants to know of new ones.
MEASURABLE: WeakSet[FunctionType] = WeakSet()
WATCHES: list[Callable[[FunctionType], None]] = []


def _is_same(first: Any, second: Any) -> bool:
    # A method of a ufunc is another object each time it is asked for.
    return first is second or (type(first) is type(second) is BuiltinMethodType and first == second)


def source_of(function: Any) -> str:
    """Return the text of a generated function."""
    text: str = function.__globals__[_SOURCE]
    return text


def about(function: Any) -> tuple[Any, Any]:
    """Return the fragment that a function computes, and its sizes."""
    found: tuple[Any, Any] = function.__globals__[_ABOUT]
    return found


def compile_function(name: str, source: str, bound: dict[str, Any]) -> Any:
    """Return the function that a whole text defines; ``bound`` are the global names it sees."""
    head, *body = source.splitlines()
    writer = FunctionWriter(name, [head.partition("(")[2].removesuffix("):")])
    writer.bind(**bound)
    writer.write(*[line.removeprefix("    ") for line in body])
    return writer.compile(name)


def clear_texts() -> None:
    """Forget compiled texts; functions that exist keep working."""
    _compiled.cache_clear()


# --- texts and files -------------------------------------------------------------------------------------------------

_number = itertools.count(1).__next__


class _Compiled(NamedTuple):
    """A text, its lines and the code of the function that it defines."""

    text: str
    lines: list[str]
    code: CodeType


@lru_cache(maxsize=MOST_TEXTS)
def _compiled(text: str) -> _Compiled:
    module = compile(text, "<unspool>", "exec")
    (code,) = [constant for constant in module.co_consts if isinstance(constant, CodeType)]
    return _Compiled(text, text.splitlines(keepends=True), code)


# The files that `linecache` has from here, oldest first.
_listed: OrderedDict[str, None] = OrderedDict()


class _Listing:
    """The lines of a function in `linecache`; it belongs to the function and ends with it.

    Functions end in whichever thread drops them, so there are single steps of dictionaries only. They are arguments
    because at the end of a process the names of a module are gone before its objects are.
    """

    __slots__ = ("file",)

    def __init__(self, file: str, compiled: _Compiled) -> None:
        self.file = file
        # Without a time of its last change an entry is never compared with the disk.
        linecache.cache[file] = (len(compiled.text), None, compiled.lines, file)
        _listed[file] = None
        if len(_listed) > MOST_LISTED:
            oldest, _ = _listed.popitem(last=False)
            linecache.cache.pop(oldest, None)

    def __del__(self, drop: Any = linecache.cache.pop, forget: Any = _listed.pop) -> None:
        drop(self.file, None)
        forget(self.file, None)
