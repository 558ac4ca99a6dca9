"""What a line asks for: the value of a tensor, or something else that makes a plain array or number of it on the way.

C functions have no frames of their own, so the innermost frame is the line that called them, and its bytecode says what
it called. ``np.asarray(t)`` and ``float(t)`` in a program's own code ask for a value; NumPy that makes an array of a
list, an assignment into an array, and conversions inside of libraries do not.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import os
import sysconfig
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from unspool._graph import is_internal

# Functions that turn one tensor into an array, and do nothing else.
_AS_ARRAY = (np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)


def asks_for_array(frame: FrameType, copy: bool | None) -> bool:
    """Whether the line that called a tensor's ``__array__`` meant its value."""
    if is_internal(frame.f_code.co_filename):
        return True
    if is_library(frame.f_code.co_filename):
        return False
    doing = _doing(frame.f_code, frame.f_lasti)
    if not doing.is_call:
        return False
    callee = _value_of(doing.callee, frame)
    if callee is np.array:
        return copy is not None  # what is in a list is asked for without saying so
    is_type = isinstance(callee, type) and issubclass(callee, np.generic)  # np.int64(t) says what it wants
    if is_type or any(callee is function for function in _AS_ARRAY):
        return not doing.makes_list and not isinstance(_value_of(doing.argument, frame), (list, tuple))
    # list(map(np.asarray, ts)): a built-in function makes no arrays by itself.
    return _is_builtin(callee)


def asks_for_number(frame: FrameType) -> bool:
    """Whether the line that called a tensor's ``__float__`` or ``__complex__`` meant its value."""
    if is_internal(frame.f_code.co_filename):
        return True
    doing = _doing(frame.f_code, frame.f_lasti)
    if not doing.is_call:
        return not doing.is_store  # text is made of numbers
    callee = _value_of(doing.callee, frame)
    if isinstance(callee, type):
        return issubclass(callee, np.generic) or _is_builtin(callee)
    if inspect.isroutine(callee):
        # A function in C; math.isnan and the like answer a question, the others compute with the number.
        return _is_builtin(callee) or callee.__name__.startswith("is")
    return not is_library(frame.f_code.co_filename)


def _is_builtin(callee: Any) -> bool:
    return callee is not None and getattr(builtins, getattr(callee, "__name__", ""), None) is callee


@lru_cache(maxsize=1024)
def is_library(filename: str) -> bool:
    """Whether a file belongs to an installed package or to Python: code that does not know what it was given."""
    parts = filename.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts or filename.startswith("<frozen "):
        return True
    return any(filename.startswith(sysconfig.get_path(name) + os.sep) for name in ("stdlib", "platstdlib"))


# --- what a line does ------------------------------------------------------------------------------------------------


class _Doing(NamedTuple):
    """What the bytecode of a line does at one place.

    A path is a name and attributes: ``np.asarray`` is ("np", "asarray"); it is empty where there is none.
    """

    is_call: bool = False
    is_store: bool = False
    callee: tuple[str, ...] = ()
    argument: tuple[str, ...] = ()
    makes_list: bool = False


_Place = tuple[int, int]
_MAKES_LIST = frozenset({"BUILD_LIST", "BUILD_TUPLE", "LIST_APPEND", "LIST_EXTEND", "MAKE_FUNCTION"})
_NO_PLACE: _Place = (-1, -1)


@lru_cache(maxsize=1024)
def _doing(code: CodeType, lasti: int) -> _Doing:
    before = [i for i in dis.get_instructions(code) if i.offset <= lasti]
    at = before[-1]
    if not at.opname.startswith(("CALL", "PRECALL")):
        return _Doing(is_store=at.opname.startswith("STORE"))
    start, end = _span(at)
    # What is called begins where the call does: of the parts of the call that do, it is the longest but the call.
    head = [i for i in before if _span(i)[0] == start != _NO_PLACE and _span(i)[1] < end]
    if not head:
        return _Doing(is_call=True)
    callee_end = max(_span(i)[1] for i in head)
    inside = [i for i in before if callee_end < _span(i)[0] and _span(i)[1] < end]
    if not inside:
        return _Doing(True, callee=_path(head))
    first = min(_span(i)[0] for i in inside)
    argument = [i for i in inside if _span(i)[0] == first]
    whole = max(_span(i)[1] for i in argument)
    makes_list = any(i.opname in _MAKES_LIST for i in argument if _span(i)[1] == whole)
    return _Doing(True, callee=_path(head), argument=_path(argument), makes_list=makes_list)


def _span(instruction: dis.Instruction) -> tuple[_Place, _Place]:
    """Return where in the source an instruction's expression begins and ends."""
    place = instruction.positions
    if place is None or None in (place.lineno, place.col_offset, place.end_lineno, place.end_col_offset):
        return _NO_PLACE, _NO_PLACE
    return (place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset)  # type: ignore[return-value]


def _path(instructions: list[dis.Instruction]) -> tuple[str, ...]:
    """Return the name and attributes that an expression loads; empty if it does anything else."""
    names: dict[_Place, str] = {}
    for instruction in instructions:
        if instruction.opname.startswith("LOAD") and isinstance(instruction.argval, str):
            names[_span(instruction)[1]] = instruction.argval
        elif instruction.opname not in ("PUSH_NULL", "CACHE"):
            return ()
    return tuple(names[place] for place in sorted(names))


def _value_of(path: tuple[str, ...], frame: FrameType) -> Any:
    """Return what a path means in a frame, ``None`` if that cannot be told without running anything."""
    if not path:
        return None
    for namespace in (frame.f_locals, frame.f_globals, frame.f_builtins):
        if path[0] in namespace:
            value: Any = namespace[path[0]]
            break
    else:
        return None
    for name in path[1:]:
        value = inspect.getattr_static(value, name, None)
    return value
