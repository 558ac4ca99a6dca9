"""What a traced function read besides its arguments, and whether that still is what it was.

The one idea: state is places with contents: a name in a namespace, a variable of an enclosing function, a slot, the
entries of a list, the bytes of an array. `watching` finds the places while the function is traced. If one of them holds
something else now, the function may mean something else, and is traced again. Comparing identities costs some tens of
nanoseconds a place.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from operator import is_
from types import CellType
from typing import Any, Final, NamedTuple

from unspool._core import all_hold
from unspool._fragments.exactly import exactly
from unspool._fragments.things import namespace_of

MISSING: Final = object()


class Kind:
    """Sorts of places; each has a way to be read in `READ`."""

    NAME = "a name in a namespace"
    CELL = "a variable of an enclosing function"
    SLOT = "a slot of an object"
    ENTRIES = "the entries of a container"
    ARRAY = "the bytes of an array"
    FUNCTION = "the defaults and the code of a function"
    CLASS = "the class of an object, and which namespace it has"
    CONTEXT = "a context variable"
    CACHE = "the remembered results of a function"


class Place(NamedTuple):
    """A place outside a function, and what it held.

    Attributes
    ----------
    kind : str
        One of `Kind`.
    where, key : object
        Namespace and name, object and slot, or the container, which has no key.
    content : object
        What was there; a tuple of all entries for a container.
    via : str
        The name by which the function got there.
    """

    kind: str
    where: Any
    key: Any
    content: Any
    via: str

    def now(self) -> Any:
        """Return what is in the place now."""
        return READ[self.kind](self.where, self.key)

    def is_unchanged(self) -> bool:
        """Whether it holds what it held."""
        now, content = self.now(), self.content
        if self.kind is Kind.ARRAY:
            return bool(now == content)
        if self.kind in _SEVERAL:
            return len(now) == len(content) and (
                all(map(is_, now, content)) or all(map(is_same, now, content))  # the first costs a tenth of the second
            )
        return is_same(now, content)


class Surroundings:
    """The places that a function read, with their contents.

    Attributes
    ----------
    places : list of Place
    nodes : set of int
        The ids of tensors that were found there.
    unseen : list of str
        What the function read and nobody can watch, so that it has to be traced at each call.
    """

    __slots__ = ("_frequent", "_others", "nodes", "places", "unseen")

    def __init__(self, places: Iterable[Place], nodes: set[int], unseen: list[str]) -> None:
        self.places = list(places)
        self.nodes = nodes
        self.unseen = unseen
        # Every call goes through all of them, so the frequent kinds are compared in C.
        self._frequent = (
            tuple([(p.where, p.key, p.content) for p in self.places if p.kind is Kind.NAME]),
            tuple([(p.where, *p.content) for p in self.places if p.kind is Kind.FUNCTION]),
            tuple([(p.where, p.content) for p in self.places if p.kind is Kind.CELL]),
            tuple([(p.where, *p.content) for p in self.places if p.kind is Kind.CLASS]),
        )
        frequent = (Kind.NAME, Kind.FUNCTION, Kind.CELL, Kind.CLASS)
        self._others = [p for p in self.places if p.kind not in frequent]

    def are_unchanged(self) -> bool:
        """Whether every place has the content it had."""
        if self.unseen:
            return False
        if all_hold(MISSING, *self._frequent):
            return not self._others or _are_unchanged(self._others)
        # Numbers may be other objects and the same all the same.
        return _are_unchanged(self.places)


def _are_unchanged(places: list[Place]) -> bool:
    try:
        return all(place.is_unchanged() for place in places)
    except RuntimeError:  # somebody writes into a container at this moment
        return False


# --- reading places --------------------------------------------------------------------------------------------------


_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, tuple})


def is_same(now: Any, content: Any) -> bool:
    """Whether two contents are one object, or numbers, strings or tuples of them that nothing tells apart."""
    if now is content:
        return True
    kind = type(now)
    if kind is not type(content) or kind not in _PLAIN:
        return False
    try:
        return bool(exactly(now) == exactly(content))
    except TypeError:  # a tuple with something in it that has no hash
        return False


def _cell(cell: CellType, _: Any = None) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # deleted, or not bound yet
        return MISSING


def _slot(thing: Any, descriptor: Any) -> Any:
    try:
        return descriptor.__get__(thing)
    except AttributeError:
        return MISSING


def _entries(container: Any, _: Any) -> tuple[Any, ...]:
    return (*container, *container.values()) if isinstance(container, dict) else tuple(container)


def _array(array: Any, _: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.tobytes()


def _remembered(function: Any, _: Any) -> tuple[Any, ...]:
    # Only the garbage collector gets to see the table of ``lru_cache``.
    return tuple([result for part in gc.get_referents(function) if type(part) is dict for result in part.values()])


READ: Final[dict[str, Callable[[Any, Any], Any]]] = {
    Kind.NAME: lambda where, name: where.get(name, MISSING),
    Kind.CELL: _cell,
    Kind.SLOT: _slot,
    Kind.ENTRIES: _entries,
    Kind.ARRAY: _array,
    Kind.FUNCTION: lambda function, _: (function.__defaults__, function.__kwdefaults__, function.__code__),
    Kind.CLASS: lambda thing, _: (type(thing), namespace_of(thing)),
    Kind.CONTEXT: lambda variable, _: variable.get(MISSING),
    Kind.CACHE: _remembered,
}

_SEVERAL: Final = frozenset({Kind.ENTRIES, Kind.FUNCTION, Kind.CLASS, Kind.CACHE})
