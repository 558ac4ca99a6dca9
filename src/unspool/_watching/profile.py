"""`unspool.profile`: where the time goes, by source line and operation, forward and backward, also inside of loops.

Programs that run in C measure their instructions (`src/native/profile.c`), generated Python its lines (`timed_code`),
and kernels that run one by one are measured here. Each takes what runs inside of it off its own time, so that times add
up; what is left of the time of the block is the program's own Python, recording and planning.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from time import monotonic_ns
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool import _native
from unspool._activity import ACTIVITY
from unspool._engine.backends.generated import MEASURABLE, WATCHES, about
from unspool._engine.costs import nbytes
from unspool._engine.memory.sizes import format_bytes
from unspool._graph import place_at, source_at
from unspool._html import escape
from unspool._watching.timed_code import TimedFunction, cost_of_a_tick
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["ProfileRow", "profile"]

FORWARD, BACKWARD = "forward", "backward"

# Of many rows so many are printed, those that took longest. Kernels that ran one by one are in a trace up to a number.
_SHOWN = 20
_MOST_EVENTS = 1 << 17

# What an operation is counted under: its line (code and offset), its name, and whether a sweep made it.
_Key: TypeAlias = tuple[tuple[Any, int], str, bool]


@dataclass(frozen=True)
class ProfileRow:
    """What one operation on one line took.

    Attributes
    ----------
    source : str
        The user's line, as ``file.py:12: the source line``. For a derivative it is the line that was differentiated.
    op : str
    direction : str
        ``"backward"`` for what a derivative is made of, else ``"forward"``.
    seconds : float
        Without what ran inside of it.
    calls : int
    nbytes : int
        Of all results.
    """

    source: str
    op: str
    direction: str
    seconds: float
    calls: int
    nbytes: int


class profile:  # noqa: N801 - used like a function, in a with statement
    """Measure where the time of a ``with`` block goes, by source line and operation.

    Everything that is computed inside is measured, forward and backward, in plain loops and inside of `iterate`, whose
    steps run in C. Values and their bits are the same as without.

    Attributes
    ----------
    rows : list of ProfileRow
        What took longest first.
    seconds : float
        The time of the block.
    other_seconds : float
        What is not in the rows: your own Python, recording, planning.

    Notes
    -----
    A measurement is a look at the clock, about 25 ns for an instruction in C and 0.3 µs for a line of generated Python.
    What looking takes is measured beforehand and taken off. The block itself takes longer by it: most for loops over
    numbers or very small arrays, whose instructions take no longer than a look at the clock.

    Only one profile is taken at a time. Other threads are measured too.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0])
    >>> with us.profile() as p:
    ...     y, _ = us.iterate(lambda y: us.sin(y) + 0.1 * y, x, max_steps=1000)
    ...     slope = us.sum(y).grad(x).eval()
    >>> sines = [row for row in p.rows if row.op == "sin"]
    >>> sines[0].calls, sines[0].direction, sines[0].nbytes
    (1000, 'forward', 16000)
    >>> {row.direction for row in p.rows if row.op == "multiply"} == {"forward", "backward"}
    True
    """

    def __init__(self) -> None:
        self.rows: list[ProfileRow] = []
        self.seconds = 0.0
        self._timer: _Timer | None = None
        self._timed: dict[int, TimedFunction] = {}
        self._events: list[dict[str, Any]] = []
        self._begin = 0
        self._lost = 0
        self._totals: dict[_Key, list[float]] = {}

    def __enter__(self) -> profile:
        if ACTIVITY.timer is not None:
            raise ArgumentError("a profile is being taken already; one at a time")
        self._timer, self._timed = _Timer(), {}
        _native.start_profile()
        for function in list(MEASURABLE):
            self._measure(function)
        WATCHES.append(self._measure)
        ACTIVITY.timer = self._timer
        self._begin = monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end = monotonic_ns()
        ACTIVITY.timer = None
        WATCHES.remove(self._measure)
        programs, runs, self._lost = _native.stop_profile()
        for timed in self._timed.values():
            timed.restore()
        self.seconds = (end - self._begin) / 1e9
        self._collect(programs)
        self._events = self._make_events(runs)
        self._timed, self._timer = {}, None

    def _measure(self, function: FunctionType) -> None:
        if id(function) not in self._timed:
            self._timed[id(function)] = TimedFunction(function)

    # --- what was measured

    @property
    def other_seconds(self) -> float:
        """What is not in the rows."""
        return max(0.0, self.seconds - sum(row.seconds for row in self.rows))

    def _collect(self, programs: Sequence[tuple[Any, Sequence[tuple[int, int]]]]) -> None:
        totals = self._timer.totals if self._timer is not None else {}
        look = _native.look()
        for told, times in programs:
            if told is not None:
                fragment, bound, owners = told
                _add(totals, fragment, bound, _by_slot(owners, times, look))
        look = cost_of_a_tick() if self._timed else 0.0
        for timed in self._timed.values():
            fragment, bound = about(timed.function)
            found = {
                slot: (calls, max(0, spent - look * calls))
                for slot, (calls, spent) in enumerate(zip(timed.calls, timed.nanoseconds, strict=True))
            }
            _add(totals, fragment, bound, found)
        self._totals = totals
        rows: dict[tuple[str, str, str], list[float]] = {}
        for (origin, op, is_swept), (calls, spent, size) in totals.items():
            row = rows.setdefault((source_at(*origin), op, BACKWARD if is_swept else FORWARD), [0, 0, 0])
            for i, amount in enumerate((calls, spent, size)):
                row[i] += amount
        made = [ProfileRow(*key, spent / 1e9, int(calls), int(size)) for key, (calls, spent, size) in rows.items()]
        self.rows = sorted(made, key=lambda row: -row.seconds)

    def _by_place(self) -> Iterator[tuple[tuple[Any, int], str, bool, float, int]]:
        """Yield code and offset, op, whether it is backward, seconds and calls: the rows for who has the program."""
        for (origin, op, is_swept), (calls, spent, _) in self._totals.items():
            yield origin, op, is_swept, spent / 1e9, int(calls)

    # --- as text

    def __str__(self) -> str:
        shown = self.rows[:_SHOWN]
        cells = [("time", "share", "calls", "bytes", "direction", "op", "line"), *[self._cells(row) for row in shown]]
        left = self.rows[_SHOWN:]
        if left:
            rest = sum(row.seconds for row in left)
            cells.append(
                (
                    _time(rest),
                    self._share(rest),
                    "",
                    "",
                    "",
                    f"{len(left)} {'other' if len(left) == 1 else 'others'}",
                    "",
                )
            )
        cells.append((_time(self.other_seconds), self._share(self.other_seconds), "", "", "", "", _OTHER))
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if i < 4 else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        )

    def _cells(self, row: ProfileRow) -> tuple[str, ...]:
        size = format_bytes(row.nbytes)
        return _time(row.seconds), self._share(row.seconds), f"{row.calls:,}", size, row.direction, row.op, row.source

    def _share(self, seconds: float) -> str:
        return f"{100 * seconds / self.seconds:.1f} %" if self.seconds > 0 else ""

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("time", "share", "calls", "bytes", "direction", "op", "line"))
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in self._cells(row)) + "</tr>"
            for row in self.rows[:_SHOWN]
        )
        other = escape(f"{_time(self.other_seconds)} {_OTHER}")
        return f"<table><tr>{head}</tr>{rows}</table><p>{other}</p>"

    # --- as data

    def to_json(self) -> str:
        """Return the rows and the times as JSON."""
        data = {
            "seconds": self.seconds,
            "other_seconds": self.other_seconds,
            "rows": [asdict(row) for row in self.rows],
        }
        return json.dumps(data, indent=2)

    def to_chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return what ran when as a trace in Chrome's format, which https://ui.perfetto.dev shows; save it if asked.

        A run of a program or of a loop in C is one event; of its operations there are only the sums, in the rows.
        """
        process = os.getpid()
        threads = sorted({event["tid"] for event in self._events})
        names = [
            {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": "unspool"}},
            *[
                {"name": "thread_name", "ph": "M", "pid": process, "tid": tid, "args": {"name": f"thread {tid}"}}
                for tid in threads
            ],
        ]
        other = {"events not noted": self._lost, "rows": [asdict(row) for row in self.rows]}
        text = json.dumps({"traceEvents": names + self._events, "displayTimeUnit": "ms", "otherData": other})
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def _make_events(self, runs: Sequence[tuple[Any, int, int, int, int]]) -> list[dict[str, Any]]:
        timer = self._timer
        kernels = [] if timer is None else timer.events
        self._lost += 0 if timer is None else timer.lost
        threads: dict[int, int] = {}
        found = []
        for told, begin, end, steps, thread in runs:
            origins = () if told is None else told[0].origins
            name = f"program of {place_at(*origins[-1])}" if origins else "program"
            found.append(self._event(name, "program", begin, end, threads, thread, {"steps": steps}))
        for timed in self._timed.values():
            origins = about(timed.function)[0].origins
            name = f"generated code of {place_at(*origins[-1])}" if origins else "generated code"
            self._lost += timed.lost
            for begin, end, thread in timed.runs:
                found.append(self._event(name, "program", begin, end, threads, thread, {}))
        for op, origin, is_swept, begin, end, thread in kernels:
            category = BACKWARD if is_swept else FORWARD
            found.append(self._event(op, category, begin, end, threads, thread, {"line": source_at(*origin)}))
        return sorted(found, key=lambda event: (event["ts"], -event["dur"]))

    def _event(
        self, name: str, category: str, begin: int, end: int, threads: dict[int, int], thread: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": (begin - self._begin) / 1e3,
            "dur": (end - begin) / 1e3,
            "pid": os.getpid(),
            "tid": threads.setdefault(thread, len(threads) + 1),
            "args": args,
        }


_OTHER = "your own Python, recording and planning"


class _Timer:
    """Measures kernels that run one by one."""

    def __init__(self) -> None:
        self.totals: dict[_Key, list[float]] = {}
        self.events: list[tuple[str, tuple[Any, int], bool, int, int, int]] = []
        self.lost = 0

    def run(
        self, op: Any, origin: tuple[Any, int], is_swept: bool, kernel: Callable[..., Any], arguments: Any, params: Any
    ) -> Any:
        """Return what a kernel gives, and note how long it took."""
        inside, begin = _native.counted(), monotonic_ns()
        value = kernel(*arguments, **params)
        end = monotonic_ns()
        took = end - begin - (_native.counted() - inside)
        _native.count(took)
        total = self.totals.setdefault((origin, op.name, is_swept), [0, 0, 0])
        total[0] += 1
        total[1] += took
        total[2] += _size(value)
        if len(self.events) < _MOST_EVENTS:
            self.events.append((op.name, origin, is_swept, begin, end, threading.get_ident()))
        else:
            self.lost += 1
        return value


def _size(value: Any) -> int:
    if isinstance(value, tuple):
        return sum(map(_size, value))
    return int(getattr(value, "nbytes", 0))


def _by_slot(owners: Sequence[int], times: Sequence[tuple[int, int]], look: float) -> dict[int, tuple[int, float]]:
    """Return calls and nanoseconds by slot, of instructions that several may have in common."""
    found: dict[int, tuple[int, float]] = {}
    for slot, (calls, spent) in zip(owners, times, strict=True):
        before = found.get(slot, (0, 0.0))
        found[slot] = max(before[0], calls), before[1] + max(0.0, spent - look * calls)
    return found


def _add(totals: dict[_Key, list[float]], fragment: Any, bound: Any, found: dict[int, tuple[int, float]]) -> None:
    """Add what was measured of a fragment, by slot, to the totals."""
    first = len(fragment.dtypes)
    for slot, (calls, spent) in found.items():
        position = slot - first
        if not (calls or spent) or not 0 <= position < len(fragment.body):
            continue
        key = (fragment.origins[position], fragment.body[position].op.name, position in fragment.swept)
        total = totals.setdefault(key, [0, 0, 0])
        total[0] += calls
        total[1] += spent
        total[2] += calls * nbytes(bound.shapes[slot], bound.dtypes[slot])


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
