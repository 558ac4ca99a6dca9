"""What a Python function can read and write by name, told from its bytecode.

The one idea: code reaches the world outside its arguments by names: of globals, of variables of enclosing functions, of
attributes, and strings that may be names of such. A name that is computed could be any name. Names that are read
only to be written back (``runs += 1``, ``log.append(x)``) say nothing about what the function returns.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

# Functions that read by a name that they are given, and names that stand for all attributes at once.
_BY_NAME = frozenset({"getattr", "hasattr"})
_EVERYTHING = frozenset({"vars", "__dict__", "__getattribute__", "__getstate__", "attrgetter", "methodcaller", "dir"})
_ALL_GLOBALS = frozenset({"globals", "eval", "exec"})

# Methods that change a container and return nothing.
_WRITERS = frozenset({"append", "appendleft", "extend", "insert", "add", "discard", "clear"})

_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_LOADS = _GLOBAL_LOADS | {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_ATTR", "LOAD_METHOD"}
_STORES = frozenset({"STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR"})
_SIMPLE = frozenset({"LOAD_CONST", "LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_SMALL_INT"})
_SHUFFLES = frozenset({"COPY", "SWAP", "LOAD_FAST"})


class Reads(NamedTuple):
    """What one code object names; functions defined inside of it are code objects of their own.

    Attributes
    ----------
    names : frozenset of str
        Attributes, strings that may be names of attributes, and what the function itself is called.
    from_globals : frozenset of str
        Names that are looked up among globals.
    imports : frozenset of str
        Modules that it imports.
    read_first : frozenset of str
        Names that are read before they are written, other than to be written back. What they held before matters.
    read : frozenset of str
        Names that are read, before or after.
    written_back : frozenset of str
        Names that are read to be written: counted up, appended to. What they held before matters if they are read.
    written : dict
        Where names are bound: an offset for each.
    computes_names : bool
        Whether it reads attributes whose names its code does not say.
    all_globals : bool
        Whether it reads globals whose names its code does not say.
    """

    names: frozenset[str]
    from_globals: frozenset[str]
    imports: frozenset[str]
    read_first: frozenset[str]
    read: frozenset[str]
    written_back: frozenset[str]
    written: dict[str, int]
    computes_names: bool
    all_globals: bool


@lru_cache(maxsize=4096)
def reads_of(code: CodeType) -> Reads:
    """Return what a code object names."""
    steps = list(dis.get_instructions(code))
    strings = set(_strings(code.co_consts))
    names = {*code.co_names, *strings, code.co_name}
    from_globals = {step.argval for step in steps if step.opname in _GLOBAL_LOADS}
    computes = not names.isdisjoint(_EVERYTHING) or any(
        step.opname in _LOADS and step.argval in _BY_NAME and not (_is_called(step) and _has_plain_name(steps, i + 1))
        for i, step in enumerate(steps)
    )
    uses = _uses(steps, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    return Reads(
        frozenset(names),
        frozenset(from_globals),
        frozenset(step.argval for step in steps if step.opname == "IMPORT_NAME"),
        frozenset({name for name, uses in uses.items() if uses[0] == _READ} | strings),
        frozenset({name for name, uses in uses.items() if _READ in uses} | strings),
        frozenset({name for name, uses in uses.items() if _BACK in uses}),
        {step.argval: step.offset for step in steps if step.opname in _STORES},
        computes,
        not from_globals.isdisjoint(_ALL_GLOBALS),
    )


def _strings(constants: Sequence[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            if constant.isidentifier():
                yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _strings(tuple(constant))


_READ, _BACK, _WRITTEN = "read", "read to be written", "written"


def _uses(steps: Sequence[dis.Instruction], parameters: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what is done to names, in the order of the code."""
    uses: dict[str, list[str]] = {}
    for i, step in enumerate(steps):
        if step.opname in _STORES:
            uses.setdefault(step.argval, []).append(_WRITTEN)
        elif step.opname in _LOADS or step.opname.startswith("LOAD_FAST"):
            use = _BACK if _is_written_back(steps, i) else _READ
            for name in step.argval if isinstance(step.argval, tuple) else (step.argval,):
                # Of local variables only parameters are of interest: their defaults last.
                if step.opname in _LOADS or name in parameters:
                    uses.setdefault(name, []).append(use)
    return uses


def _is_called(step: dis.Instruction) -> bool:
    """Whether a global is loaded to be called, and not to be passed on."""
    return step.opname == "LOAD_GLOBAL" and bool((step.arg or 0) & 1)


def _has_plain_name(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether a call of ``getattr`` whose arguments begin here has a string for a name: ``getattr(a.b, "c", None)``."""
    if at < len(steps) and steps[at].opname == "PUSH_NULL":
        at += 1
    if at >= len(steps) or steps[at].opname not in _SIMPLE:
        return False
    at += 1
    while at < len(steps) and steps[at].opname == "LOAD_ATTR":
        at += 1
    if at + 1 >= len(steps) or steps[at].opname != "LOAD_CONST" or not isinstance(steps[at].argval, str):
        return False
    at += 1
    if steps[at].opname in _SIMPLE:
        at += 1
    return at < len(steps) and steps[at].opname in ("PRECALL", "CALL")


def _is_written_back(steps: Sequence[dis.Instruction], at: int) -> bool:
    """Whether what is loaded here is only changed: counted up, appended to, given an entry."""
    name = steps[at].argval
    following = steps[at + 1 : at + 10]
    names = [step.opname for step in following]
    if not names:
        return False
    if names[0] in ("LOAD_ATTR", "LOAD_METHOD"):
        return following[0].argval in _WRITERS
    if names[0] not in _SIMPLE:
        return False
    if names[1:2] == ["STORE_SUBSCR"]:
        return True
    if names[1:4] == ["COPY", "COPY", "BINARY_SUBSCR"] or names[1:4] == ["COPY", "COPY", "BINARY_OP"]:
        return names[4:6] in (["LOAD_CONST", "BINARY_OP"], ["LOAD_SMALL_INT", "BINARY_OP"])
    if names[1:2] != ["BINARY_OP"]:
        return False
    for step in following[2:]:
        if step.opname in _STORES:
            return bool(step.argval == name)
        if step.opname not in _SHUFFLES:
            return False
    return False
