"""Generated code that measures its own lines, in place of the code of a function that exists.

A function and its code are two objects, and the code can be replaced. So whoever holds the function runs the measuring
code while a profile is taken, and the ordinary one before and after; nobody looks for the profile when it runs. The
measuring code is made when the function is called for the first time: of all functions that there are, few may be.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from threading import Lock, get_ident
from time import monotonic_ns
from types import CodeType, FunctionType
from typing import Any

from unspool import _native
from unspool._engine.backends.generated import about, source_of

# Runs of a function that are noted.
_MOST_RUNS = 1 << 15

# A value of a fragment, by its number, at the beginning of a line that makes it.
_SLOT = re.compile(r"\bv(\d+)\b")


class TimedFunction:
    """A generated function while it is measured.

    Attributes
    ----------
    nanoseconds, calls : list of int
        By slot of the fragment.
    runs : list of (int, int, int)
        When it ran, from when to when, and in which thread; of many, the first ones.
    lost : int
        How many others there were.
    """

    def __init__(self, function: FunctionType) -> None:
        fragment, _ = about(function)
        slots = len(fragment.dtypes) + len(fragment.body)
        self.function = function
        self.nanoseconds = [0] * (slots + 1)
        self.calls = [0] * (slots + 1)
        self.runs: list[tuple[int, int, int]] = []
        self.lost = 0
        self._slots = slots
        self._ordinary = function.__code__
        self._lock = Lock()
        self._is_over = False
        function.__globals__["__first_run__"] = self._first_run
        function.__code__ = _UNTIMED

    def _first_run(self, *arguments: Any) -> Any:
        """Run the function for the first time, from now on with the code that measures."""
        with self._lock:
            if not self._is_over and self.function.__code__ is _UNTIMED:
                self.function.__globals__.update(
                    __clock__=monotonic_ns,
                    __nanoseconds__=self.nanoseconds,
                    __calls__=self.calls,
                    __count__=_native.count,
                    __counted__=_native.counted,
                    __ran__=self._note,
                )
                self.function.__code__ = _timed(source_of(self.function), self._ordinary, self._slots)
        return self.function(*arguments)

    def _note(self, begin: int) -> None:
        if len(self.runs) < _MOST_RUNS:
            self.runs.append((begin, monotonic_ns(), get_ident()))
        else:
            self.lost += 1

    def restore(self) -> None:
        """Give the function its ordinary code again."""
        with self._lock:
            self._is_over = True
            self.function.__code__ = self._ordinary


def _untimed(*arguments: Any) -> Any:
    return __first_run__(*arguments)  # type: ignore[name-defined]  # noqa: F821


# What a function runs as long as it has not been called: this asks for the code that measures.
_UNTIMED = _untimed.__code__


def _timed(source: str, ordinary: CodeType, slots: int) -> CodeType:
    """Return the code of a text that measures each of its statements."""
    module = ast.parse(source)
    function: Any = module.body[0]
    begin = _parsed("__begin = __before = __clock__()\n__inside = __counted__()")
    function.body = [*begin, *_measured(function.body, slots)]
    ast.fix_missing_locations(module)
    compiled = compile(module, ordinary.co_filename, "exec")
    (code,) = [constant for constant in compiled.co_consts if isinstance(constant, CodeType)]
    return code


def _measured(statements: Sequence[ast.stmt], slots: int) -> list[ast.stmt]:
    """Return statements with a measurement after each; what makes no value of its own counts for the next one."""
    owners = _owners(statements, slots)
    found: list[ast.stmt] = []
    for statement, slot in zip(statements, owners, strict=True):
        if isinstance(statement, ast.For):
            statement.body = _measured(statement.body, slots)
            found.append(statement)
        elif isinstance(statement, ast.Return):
            found += [*_parsed("__ran__(__begin)"), statement]
        elif isinstance(statement, (ast.If, ast.Break)):
            found.append(statement)
        else:
            calls = f"__calls__[{slot}] += {int(_makes(statement) is not None)}"
            found += [statement, *_parsed(f"{_TICK.format(slot=slot)}\n{calls}")]
    return found


# What is measured inside, by programs and kernels that a line runs, is counted there.
_TICK = """__after = __clock__()
__took = __after - __before - (__counted__() - __inside)
__nanoseconds__[{slot}] += __took
__count__(__took)
__before, __inside = __after, __counted__()"""


def _owners(statements: Sequence[ast.stmt], slots: int) -> list[int]:
    """Return for each statement the slot that it counts for."""
    owners: list[int] = []
    waiting = 0
    for statement in statements:
        slot = _makes(statement)
        if slot is None:
            waiting += 1
            owners.append(slots)
            continue
        for back in range(1, waiting + 1):
            owners[-back] = slot
        waiting = 0
        owners.append(slot)
    last = next((slot for slot in reversed(owners) if slot != slots), slots)
    return [last if slot == slots else slot for slot in owners]


def _makes(statement: ast.stmt) -> int | None:
    """Return the slot that a statement gives a value; ``None`` if it gives none."""
    if not isinstance(statement, ast.Assign):
        return None
    target = ast.unparse(statement.targets[0])
    found = _SLOT.match(target)
    return None if found is None else int(found[1])


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


@cache
def cost_of_a_tick() -> float:
    """Return the nanoseconds that measuring adds to what is measured of a line: those of a line that does nothing."""
    lines = ["def nothing():", "    for k in range(200):", "        v0 = None"]
    ordinary = compile("def nothing(): pass", "<unspool>", "exec")
    code = _timed("\n".join(lines), ordinary, 1)
    spent = [0, 0]
    names: dict[str, Any] = {
        "__clock__": monotonic_ns,
        "__nanoseconds__": spent,
        "__calls__": [0, 0],
        "__count__": int,
        "__counted__": int,
    }
    nothing = FunctionType(code, names)
    least = float("inf")
    for _ in range(10):
        spent[0] = 0
        nothing()
        least = min(least, spent[0] / 200)
    return least
