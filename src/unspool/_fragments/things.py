"""Python's things seen from outside: whose they are, and what is inside of them. Nothing of the user's is called.

Code, modules and classes belong to the user, to the standard library, or to unspool and what it is built on.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial, partialmethod
from types import (
    BuiltinMethodType,
    CodeType,
    FrameType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, Final
from weakref import ReferenceType

import numpy as np

from unspool._graph import _is_internal

LIBRARY, STANDARD, USER = "library", "standard library", "user"


class _Origins(dict[str, str]):
    """Whose source file it is."""

    _standard = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
    _libraries = tuple([f"{os.sep}{name}{os.sep}" for name in ("numpy", "scipy", "optree")])

    def __missing__(self, filename: str) -> str:
        outside = "site-packages" in filename or "dist-packages" in filename
        if _is_internal[filename] or (outside and any(library in filename for library in self._libraries)):
            origin = LIBRARY
        elif filename.startswith("<frozen ") or (filename.startswith(self._standard) and not outside):
            origin = STANDARD
        else:
            origin = USER
        self[filename] = origin
        return origin


_origin_of = _Origins()


def origin_of_code(code: CodeType, names_of_module: Mapping[str, Any]) -> str:
    """Return whose code it is."""
    filename = code.co_filename
    if filename.startswith("<") and not filename.startswith("<frozen "):  # made at run time, by its module
        module = sys.modules.get(names_of_module.get("__name__", ""))
        return USER if module is None else _origin_of_module(module)
    return _origin_of[filename]


def serves_library(frame: FrameType | None) -> bool:
    """Whether a function of the standard library is called by unspool and the like, and not by the user's code."""
    origin = STANDARD
    while frame is not None and origin is STANDARD:
        origin = origin_of_code(frame.f_code, frame.f_globals)
        frame = frame.f_back
    return origin is not USER


def _origin_of_module(module: ModuleType) -> str:
    filename = getattr(module, "__file__", None)
    if filename is None:
        return STANDARD if module.__name__ in sys.builtin_module_names else USER
    return _origin_of[filename]


def is_library_module(thing: Any) -> bool:
    """Whether it is a module that is not the user's."""
    return type(thing) is ModuleType and _origin_of_module(thing) is not USER


_HEAP_TYPE: Final = 1 << 9


def origin_of_class(kind: type) -> str:
    """Return whose class it is."""
    if not kind.__flags__ & _HEAP_TYPE:
        return STANDARD
    module = sys.modules.get(kind.__module__)
    return USER if module is None or kind.__module__ == "builtins" else _origin_of_module(module)


def holder_of(kind: type, name: str) -> type | None:
    """Return the class from which a class has an attribute."""
    for parent in kind.__mro__:
        if name in parent.__dict__:
            return parent
    return None


def could_be_shadowed(kind: type, name: str) -> bool:
    """Whether instances have an attribute from their class that they could have one of their own of."""
    return not name.startswith("__") and holder_of(kind, name) not in (None, object)


def namespace_of(thing: Any) -> dict[str, Any] | None:
    """Return the dict with the attributes of an object, if it has one."""
    try:
        names = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return names if isinstance(names, dict) else None


def slots_of(kind: type) -> Iterator[tuple[str, Any]]:
    """Return the slots of a class, with their names."""
    for parent in kind.__mro__:
        if parent.__flags__ & _HEAP_TYPE:
            for name, descriptor in parent.__dict__.items():
                if type(descriptor) is MemberDescriptorType:
                    yield name, descriptor


def parts_of(thing: Any, kind: type) -> tuple[Any, ...]:
    """Return what a thing made by the interpreter refers to."""
    if issubclass(kind, MethodType):
        return thing.__func__, thing.__self__
    if issubclass(kind, (partial, partialmethod)):
        return thing.func, thing.args, thing.keywords
    if issubclass(kind, property):
        return thing.fget, thing.fset
    if issubclass(kind, (classmethod, staticmethod)):
        return (thing.__func__,)
    if issubclass(kind, (BuiltinMethodType, MethodWrapperType)):
        return (None if isinstance(thing.__self__, ModuleType) else thing.__self__,)
    if issubclass(kind, ReferenceType):
        return (thing(),)
    return (getattr(thing, "__wrapped__", None),) if kind.__name__ == "_lru_cache_wrapper" else ()


def is_frozen(array: Any) -> bool:
    """Whether nobody can write into an array."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None or isinstance(array, bytes)


def is_sink(thing: Any) -> bool:
    """Whether it is a stream that is only written, such as where messages go."""
    return isinstance(thing, io.IOBase) and (thing.closed or not thing.readable())


def belongs_to_nobody(code: CodeType) -> bool:
    """Whether code runs when a module is imported or the interpreter tidies up, which may be at any moment."""
    return (
        code.co_name == "__del__"
        or code.co_filename.startswith("<frozen importlib")
        or any(getattr(tidy, "__code__", None) is code for tidy in gc.callbacks)
    )


def shared_dice() -> tuple[Any, ...]:
    """Return how far the generator behind the functions of `numpy.random` has come."""
    state: Any = np.random.get_state(legacy=False)  # noqa: NPY002 - the old functions are what it is about
    return state["state"]["pos"], state["has_gauss"], state["state"]["key"][0]
