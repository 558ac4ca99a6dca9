"""Finding what a function reads while it is traced: the places of its `Surroundings`.

The one idea: what a run of Python code depends on is what its code can name, starting from where code starts: globals,
variables of enclosing functions, defaults, and the objects that it is given. So the interpreter tells which code is
run (methods, properties, callables, helpers, whatever leads there), and everything that can be reached by the names in
that code is a place to watch: attributes of objects and classes by name, containers and arrays with all they hold. A
place is noted before the code that names it runs, so what the function itself changes is seen too.

Code of unspool, NumPy, SciPy and optree is not looked at, and of the standard library only the names.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from contextvars import ContextVar
from functools import lru_cache
from operator import attrgetter
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, Final

import numpy as np

from unspool._dims import Dim
from unspool._fragments.bytecode import Reads, reads_of
from unspool._fragments.captured_state import MISSING, READ, Kind, Place, Surroundings
from unspool._fragments.fragment import dependent_nodes
from unspool._fragments.things import (
    LIBRARY,
    STANDARD,
    USER,
    belongs_to_nobody,
    could_be_shadowed,
    holder_of,
    is_frozen,
    is_library_module,
    is_sink,
    namespace_of,
    origin_of_class,
    origin_of_code,
    parts_of,
    serves_library,
    shared_dice,
    slots_of,
)
from unspool._fragments.weak_numbers import WeakNumber
from unspool._graph import Node, source_at
from unspool._ops.leaf import CONSTANT, LEAF_OPS
from unspool._ops.linalg import gauge
from unspool.errors import SideEffectError

# Values that are all they ever will be.
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, range, slice, np.generic, np.dtype, Dim, WeakNumber)

# What draws random numbers: other ones at each call.
_DICE = (random.Random, np.random.Generator, np.random.RandomState)

_CACHED = type(lru_cache(lambda: None))

_CONTAINERS = (list, dict, set, frozenset, tuple, deque)

# Names that show that it matters whether an attribute is there.
_ASK_FOR_ABSENCE = frozenset({"hasattr", "getattr", "AttributeError", "__getattr__"})

# So many steps back through a graph are made to see what an unknown tensor was made of.
_MOST_NODES = 10_000

_NAMES_NOTHING: Final = Reads(*(frozenset[str](),) * 6, {}, False, False)

# What is recorded depends on the tolerances in force if one of these is run.
_READ_TOLERANCES: Final = (gauge.tolerances_for.__code__, gauge.user_tolerance.__code__)

_CHECK: Final = Surroundings.are_unchanged.__code__


class Watch:
    """Watches a function that is run inside the ``with`` block; `surroundings` is what it read.

    Parameters
    ----------
    function : callable
        What will be run.
    objects : iterable
        The objects among its arguments that belong to the key of the trace.
    """

    def __init__(self, function: Any, objects: Iterable[Any] = ()) -> None:
        self._places: dict[tuple[str, int, Any], Place] = {}
        # Places whose content the function may have seen before it wrote there.
        self._read: set[tuple[str, int, Any]] = set()
        self._names: set[str] = set()
        self._read_first: set[str] = set()
        self._codes: dict[int, tuple[CodeType, Reads]] = {}
        self._closures: list[CodeType] = []
        # Functions that were found, by code: what they hold matters once the code is run.
        self._functions: dict[int, list[FunctionType]] = {}
        # Things with attributes, and the namespaces in which these are.
        self._namespaces: list[tuple[Any, Mapping[str, Any] | None, bool]] = []
        self._class_names: dict[int, Mapping[str, Any]] = {}
        self._met: dict[int, Any] = {}
        self._nodes: dict[int, Node] = {}
        self._waiting: list[tuple[Any, str]] = []
        self._inner: list[Surroundings] = []
        self._unseen: list[str] = []
        self._everything = self._absences = False
        self._previous: Any = None
        self._dice: Any = None
        self._tolerances: Any = ()
        self._meet((function, ""), *[(thing, "") for thing in objects])

    # -- the interpreter tells which code is run --

    def __enter__(self) -> Watch:
        self._tolerances = READ[Kind.CONTEXT](gauge._chosen, None)
        self._previous = sys.getprofile()
        sys.setprofile(self._hook())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        previous = self._previous
        if previous is None or callable(previous):
            sys.setprofile(previous)
        else:  # a profiler in C takes its place again by itself
            sys.setprofile(None)
            previous.enable()

    def _hook(self) -> Callable[[FrameType, str, Any], None]:
        codes, enter, drawn, inner = self._codes, self._enter, self._drawn, self._inner
        previous = self._previous if callable(self._previous) else None
        aside: FrameType | None = None

        def on_event(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal aside
            if aside is not None:
                if event == "return" and frame is aside:
                    aside = None
            elif event == "call":
                code = frame.f_code
                if id(code) not in codes:
                    if belongs_to_nobody(code):
                        aside = frame
                    else:
                        enter(code, frame)
                if code is _CHECK:  # a fragment inside that may have been traced before
                    inner.append(frame.f_locals["self"])
            elif event == "c_call" and isinstance(getattr(argument, "__self__", None), _DICE):
                drawn(frame)
            if previous is not None:
                previous(frame, event, argument)

        return on_event

    def _drawn(self, frame: FrameType) -> None:
        if origin_of_code(frame.f_code, frame.f_globals) is USER:
            self._unseen.append(f"random numbers are drawn at {source_at(frame.f_code, frame.f_lasti)}")

    def _enter(self, code: CodeType, frame: FrameType) -> None:
        """Take note of code that is about to run for the first time."""
        names_of_module = frame.f_globals
        origin = origin_of_code(code, names_of_module)
        if origin is STANDARD and serves_library(frame):
            return
        reads = reads_of(code) if origin is not LIBRARY else _NAMES_NOTHING
        self._codes[id(code)] = code, reads
        if origin is USER and code.co_freevars:
            self._closures.append(code)
        if origin is LIBRARY:
            return
        self._read_first |= reads.read_first
        self._everything |= reads.computes_names
        self._absences |= not _ASK_FOR_ABSENCE.isdisjoint(reads.names)
        for key, place in self._places.items():
            if place.via in reads.read_first and key not in self._read and place.is_unchanged():
                self._read.add(key)
        if origin is USER:
            self._add_globals(reads, names_of_module)
            if self._dice is None and "random" in reads.names:
                self._dice = shared_dice()
        for function in self._functions.get(id(code), ()):
            self._open_function(function)
        self._add_names(reads.names)
        self._meet()

    def _add_names(self, names: Set[str]) -> None:
        """Look for further names in all that was found."""
        new = names - self._names
        self._names |= new
        for thing, namespace, whole in self._namespaces:
            self._look_up(thing, namespace, whole, self._names if self._everything or self._absences else new)

    def _add_globals(self, reads: Reads, names_of_module: dict[str, Any]) -> None:
        for name in names_of_module if reads.all_globals else reads.from_globals:
            if not is_library_module(names_of_module.get(name)):
                self._add(Kind.NAME, names_of_module, name, name)
        for name in reads.imports:
            package = names_of_module.get("__package__") or ""
            for module in (sys.modules.get(name), sys.modules.get(f"{package}.{name}" if name else package)):
                if module is not None:
                    self._waiting.append((module, name))

    # -- what can be reached by name --

    def _meet(self, *things: tuple[Any, str]) -> None:
        """Go through things that were found, and what they lead to."""
        waiting = self._waiting
        waiting += things
        while waiting:
            thing, via = waiting.pop()
            if type(thing) in _IMMUTABLE or id(thing) in self._met:
                continue
            self._met[id(thing)] = thing
            if isinstance(thing, Node):
                self._nodes[thing.id] = thing
            else:
                self._open(thing, type(thing), via)

    def _open(self, thing: Any, kind: type, via: str) -> None:
        """Find the places inside of a thing. Its class decides, so that nothing is asked of the thing itself."""
        if issubclass(kind, FunctionType):
            self._functions.setdefault(id(thing.__code__), []).append(thing)
            if id(thing.__code__) in self._codes:
                self._open_function(thing)
            self._add_namespace(thing, thing.__dict__)
            # What a transform of ours was made of is in a variable of its own, which is no place of the user's.
            if "__wrapped__" in thing.__dict__ and origin_of_code(thing.__code__, thing.__globals__) is LIBRARY:
                self._waiting.append((thing.__wrapped__, via))
        elif issubclass(kind, np.ndarray):
            if not is_frozen(thing):
                self._add(Kind.ARRAY, thing, None, via)
            if thing.dtype == object:
                self._waiting += [(entry, via) for entry in thing.ravel().tolist()]
        elif issubclass(kind, ModuleType):
            if not is_library_module(thing):
                self._add_namespace(thing, thing.__dict__)
        elif issubclass(kind, type):
            if origin_of_class(thing) is USER:
                self._add_namespace(thing, None)
                self._waiting.append((kind, via))
        else:
            self._waiting += [(part, via) for part in parts_of(thing, kind)]
            if issubclass(kind, ContextVar):
                self._add(Kind.CONTEXT, thing, None, via)
            elif issubclass(kind, _CONTAINERS):
                self._open_container(thing, kind, via)
            elif kind is _CACHED:
                self._add(Kind.CACHE, thing, None, via)
            elif issubclass(kind, attrgetter):
                self._add_names({name for path in thing.__reduce__()[1] for name in path.split(".")})
            elif (hasattr(kind, "__next__") and not is_sink(thing)) or issubclass(kind, _DICE):
                self._unseen.append(f"{via or 'an argument'}, a {kind.__name__}, changes when it is read")
            self._open_instance(thing, kind, via)

    def _open_function(self, function: FunctionType) -> None:
        """Add what belongs to a function whose code is run."""
        self._add(Kind.FUNCTION, function, None, "")
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._add(Kind.CELL, cell, None, name)
        defaults, named = function.__defaults__ or (), function.__kwdefaults__
        parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._waiting += zip(defaults, parameters[len(parameters) - len(defaults) :], strict=True)
        if named:
            self._add(Kind.ENTRIES, named, None, "")

    def _open_container(self, thing: Any, kind: type, via: str) -> None:
        if issubclass(kind, (tuple, frozenset)):
            self._waiting += [(entry, via) for entry in thing]
        else:
            self._add(Kind.ENTRIES, thing, None, via)

    def _open_instance(self, thing: Any, kind: type, via: str) -> None:
        origin = origin_of_class(kind)
        if origin is USER:
            self._waiting.append((kind, via))
            if not issubclass(kind, type):
                self._add(Kind.CLASS, thing, None, via)
        watched = kind.__dict__.get("_watched")
        if origin is LIBRARY and watched is not None:
            self._waiting += [(getattr(thing, name), via) for name in watched]
            return
        self._add_namespace(thing, namespace_of(thing), origin is LIBRARY)

    def _add_namespace(self, thing: Any, names: Mapping[str, Any] | None, whole: bool = False) -> None:
        self._namespaces.append((thing, names, whole))
        self._look_up(thing, names, whole, self._names)

    def _look_up(self, thing: Any, names: Mapping[str, Any] | None, whole: bool, wanted: Iterable[str]) -> None:
        """Add the places that names lead to in a thing."""
        if type(thing) is type or isinstance(thing, type):
            self._look_up_in_class(thing, wanted)
            return
        whole = whole or (self._everything and not isinstance(thing, FunctionType))
        kind = type(thing)
        if names is not None:
            if whole:
                self._add(Kind.ENTRIES, names, None, "")
            is_user = origin_of_class(kind) is USER
            for name in wanted:
                if name in names or (is_user and (self._absences or could_be_shadowed(kind, name))):
                    self._add(Kind.NAME, names, name, name)
        for name, descriptor in slots_of(kind):
            if whole or name in self._names:
                self._add(Kind.SLOT, thing, descriptor, name)

    def _look_up_in_class(self, kind: type, wanted: Iterable[str]) -> None:
        for name in wanted:
            holder = holder_of(kind, name)
            for parent in kind.__mro__ if holder not in (None, object) else ():
                if origin_of_class(parent) is USER:
                    # Classes make a new view of their namespace for whoever asks.
                    names = self._class_names.setdefault(id(parent), parent.__dict__)
                    self._add(Kind.NAME, names, name, name)
                if parent is holder:
                    break

    def _add(self, kind: str, where: Any, key: Any, via: str) -> None:
        """Add a place, and go on with its contents."""
        mark = kind, id(where), key
        if mark in self._places:
            return
        content = READ[kind](where, key)
        self._places[mark] = Place(kind, where, key, content, via)
        if via == "" or via in self._read_first:
            self._read.add(mark)
        if kind is Kind.ENTRIES:
            self._waiting += [(thing, via) for thing in content]
        elif content is not MISSING and kind in (Kind.NAME, Kind.CELL, Kind.SLOT, Kind.CONTEXT):
            self._waiting.append((content, via))

    # -- afterwards --

    def surroundings(self, stand_ins: Iterable[Node], *, again: bool = False) -> Surroundings | None:
        """Return what the function read; raise `SideEffectError` if it changed some of that.

        A table of results that it filled in is accepted if it does no such thing ``again``: the answer is ``None`` the
        first time, and the function is to be run once more.
        """
        known, is_final = set(self._nodes), True
        everything = [reads for _, reads in self._codes.values()]
        carried = set().union(*[r.read for r in everything]) & set().union(*[r.written_back for r in everything])
        for mark, place in list(self._places.items()):
            if place.is_unchanged():
                continue
            if mark not in self._read and place.via not in carried:
                del self._places[mark]
            elif place.kind is not Kind.CACHE and (again or not _is_filled_in(place)):
                raise self._side_effect(place)
            else:
                del self._places[mark]
                self._add(*place[:3], place.via)
                is_final = is_final and place.kind is Kind.CACHE
        self._meet()
        self._refuse_leaks([node for key, node in self._nodes.items() if key not in known], stand_ins)
        if not is_final:
            return None
        self._find_hidden_functions()
        if self._dice is not None and self._dice != shared_dice():
            self._unseen.append("random numbers are drawn from np.random")
        places, nodes = dict(self._places), set(self._nodes)
        if any(id(reader) in self._codes for reader in _READ_TOLERANCES):
            setting = Place(Kind.CONTEXT, gauge._chosen, None, self._tolerances, "")
            places[Kind.CONTEXT, id(gauge._chosen), None] = setting
        for inner in self._inner:
            places |= {(p.kind, id(p.where), p.key): p for p in inner.places}
            nodes |= inner.nodes
            self._unseen += inner.unseen
        return Surroundings(places.values(), nodes, self._unseen)

    def _refuse_leaks(self, filled_in: list[Node], stand_ins: Iterable[Node]) -> None:
        starts = {node.id for node in stand_ins}
        for node in filled_in:
            if node.id in starts or any(i.id in starts for n in dependent_nodes([node], starts) for i in n.inputs):
                place = next(p for p in self._places.values() if p.content is node or p.kind is Kind.ENTRIES)
                raise self._side_effect(place)

    def _side_effect(self, place: Place) -> SideEffectError:
        name = place.key if isinstance(place.key, str) else place.via
        lines = [source_at(code, reads.written[name]) for code, reads in self._codes.values() if name in reads.written]
        line = f", at {lines[0]}" if lines else ""
        return SideEffectError(
            f"a fragment is run once and then repeated without Python, but the function reads {name!r} and changes "
            f"it{line}: the next call would have to see the change. Pass the state as an argument and return it"
        )

    def _find_hidden_functions(self) -> None:
        """Take note of code that was run in functions that nobody can find, if it reads variables of others."""
        inside = {id(constant) for code, _ in self._codes.values() for constant in code.co_consts}
        for code in self._closures:
            if id(code) not in self._functions and id(code) not in inside:
                self._unseen.append(f"{code.co_qualname} reads variables of a function around it, and is found nowhere")


def unseen_tensors(nodes: Iterable[Node], surroundings: Surroundings, start: int) -> list[Node]:
    """Return tensors older than ``start`` that were found at no place that is watched, nor made of such."""
    waiting, met, found = list(nodes), set(), []
    while waiting:
        node = waiting.pop()
        if node.id in met or node.id in surroundings.nodes:
            continue
        met.add(node.id)
        if node.op in LEAF_OPS:
            if node.op is not CONSTANT and node.id < start:
                found.append(node)
        elif len(met) > _MOST_NODES:
            return [node]
        else:
            waiting += node.inputs
    return found


def _is_filled_in(place: Place) -> bool:
    """Whether a change only put something where there was nothing, as a table of results does."""
    now, content = place.now(), place.content
    if place.kind is Kind.ENTRIES and isinstance(place.where, dict):
        before, count = (
            dict(zip(content[: len(content) // 2], content[len(content) // 2 :], strict=True)),
            len(now) // 2,
        )
        after = dict(zip(now[:count], now[count:], strict=True))
        return all(key in after and after[key] is value for key, value in before.items())
    return content is MISSING or content is None
