"""What can be seen of a running program from another thread: how far it is, how fast, with how much memory.

Counters that the engine keeps anyway are read, and the work that is entered in `unspool._activity` is asked how far it
is. Nothing is computed by the thread that runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from unspool._activity import ACTIVITY, BACKWARD, INNER, SEARCH, Work
from unspool._engine.budget import counters
from unspool._engine.default import default_engine
from unspool._engine.memory.sizes import format_bytes
from unspool._statistics import STATISTICS

# Time left is told from this share of the work on, and after so many seconds: before, it is a guess.
_LEAST_SHARE, _LEAST_SECONDS = 0.001, 0.3


@dataclass(frozen=True)
class Seen:
    """How far a program is.

    Attributes
    ----------
    what : str
        What goes on: ``"backward"``, ``"search"``, or empty for steps.
    done : int
    total : int or None
        How many there are, if that is known.
    unit : str
        What is counted.
    rate : float
        How many in a second.
    nbytes : int or None
        What the engine holds, within a budget; else what the process takes.
    budget : int or None
        The budget, if there is one.
    factor : float or None
        How often a step ran on average, within a budget.
    values : mapping
        Numbers that the loop told, by name.
    """

    what: str
    done: int
    total: int | None
    unit: str
    rate: float
    nbytes: int | None
    budget: int | None
    factor: float | None
    values: Mapping[str, float]

    @property
    def seconds_left(self) -> float | None:
        """The time until all is done, if that can be told."""
        if self.total is None or self.rate <= 0 or self.done < _LEAST_SHARE * self.total:
            return None
        return max(0, self.total - self.done) / self.rate

    def __str__(self) -> str:
        count = f"{self.done:,} of {self.total:,}" if self.total is not None else f"{self.done:,}"
        parts = [f"{self.what} {count} {self.unit}".strip()]
        if self.rate > 0:
            parts.append(f"{_three_digits(self.rate)} a second" if self.rate >= 1 else f"{1 / self.rate:.1f} s each")
        if self.seconds_left is not None:
            parts.append(f"{clock(self.seconds_left)} left")
        if self.nbytes is not None:
            of = "" if self.budget is None else f" of {format_bytes(self.budget)}"
            parts.append(format_bytes(self.nbytes) + of)
        if self.factor is not None and self.factor > 1.005:
            parts.append(f"recomputed {self.factor:.2f} ×")
        parts += [f"{name.replace('_', ' ')} {value:.6g}" for name, value in self.values.items()]
        return ", ".join(parts)


class Eye:
    """Looks at a program, again and again; rates are those since the work at hand began."""

    def __init__(self) -> None:
        self._ledger = default_engine().ledger
        self._counters = counters(self._ledger)
        self._evaluations = STATISTICS.evaluations
        self._key: Any = None
        self._begin = (0.0, 0)

    def look(self, told: tuple[int, int | None, str, Mapping[str, float]] | None = None) -> Seen:
        """Return what is to be seen; ``told`` is what a loop has told by itself: done, total, unit and numbers."""
        works = list(ACTIVITY.works)
        work = _shown(works)
        values: Mapping[str, float] = {}
        if work is not None and (told is None or work.kind == BACKWARD):
            what, done, total, unit = (
                (work.kind if work.kind in (BACKWARD, SEARCH) else ""),
                _done(work, works),
                work.total,
                "steps",
            )
            key: Any = (what, id(work) if work.kind != BACKWARD else 0)
        elif told is not None:
            done, total, unit, values = told
            what, key = "", "told"
        else:
            what, done, total, unit, key = "", STATISTICS.evaluations - self._evaluations, None, "evaluations", "plain"
        nbytes, budget, factor = self._memory(works)
        return Seen(what, done, total, unit, self._rate(key, done), nbytes, budget, factor, values)

    def _rate(self, key: Any, done: int) -> float:
        now = perf_counter()
        if key != self._key or done < self._begin[1]:
            # What was done before it was first looked at did not take time that was seen.
            self._key, self._begin = key, (now, done)
            return 0.0
        seconds, made = now - self._begin[0], done - self._begin[1]
        return made / seconds if seconds >= _LEAST_SECONDS and made > 0 else 0.0

    def _memory(self, works: list[Work]) -> tuple[int | None, int | None, float | None]:
        """Return the bytes that are held, the budget, and how often a step ran."""
        ledger = self._ledger
        if not ledger.is_strict:
            return resident_bytes(), None, None
        held = ledger.noted + sum(asked(work.nbytes) for work in works)
        since = {name: value - self._counters[name] for name, value in counters(ledger).items()}
        again = since["kernels_again"] + sum(asked(work.again) for work in works)
        return held, ledger.limit, 1.0 + again / since["kernels"] if since["kernels"] > 0 else None


def _shown(works: list[Work]) -> Work | None:
    """Return the work that tells most: the backward pass if there is one, else the outermost."""
    shown = [work for work in works if work.kind != INNER]
    backward = [work for work in shown if work.kind == BACKWARD]
    found = backward or shown
    return found[0] if found else None


def _done(work: Work, works: list[Work]) -> int:
    """Return how many steps of a work are done, those of its parts included."""
    done = asked(work.done) + sum(asked(inner.done) for inner in works if inner.kind == INNER)
    return done if work.total is None else min(done, work.total)


def asked(question: Any) -> int:
    """Return the answer of a work, which may just have ended."""
    try:
        return int(question())
    except (IndexError, RuntimeError, AttributeError):
        return 0


def resident_bytes() -> int | None:
    """Return what the process takes of the memory, if the system tells."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds.

    Examples
    --------
    >>> clock(75.2), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
