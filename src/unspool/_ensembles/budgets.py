"""A memory budget for each worker, also where several workers are threads of one process.

The budget of a process is that of its engine. Threads share it: as many as are at work have as many budgets together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from unspool._engine.budget import memory
from unspool._engine.default import default_engine


class _Shared:
    """The budgets of all workers that are at work in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._budgets: list[int] = []
        self._scope: memory | None = None

    def enter(self, budget: int) -> None:
        with self._lock:
            self._budgets.append(budget)
            if self._scope is None:
                self._scope = memory(budget)
                self._scope.__enter__()
            else:
                default_engine().ledger.set_limit(sum(self._budgets))

    def leave(self, budget: int) -> int | None:
        """Return the most bytes that were held so far, by all that were at work at once."""
        with self._lock:
            scope = self._scope
            peak = None if scope is None else scope.report().peak
            self._budgets.remove(budget)
            if self._budgets:
                default_engine().ledger.set_limit(sum(self._budgets))
            elif scope is not None:
                self._scope = None
                scope.__exit__(None, None, None)
            return peak


_SHARED = _Shared()


class Held:
    """What a worker held at most, known when it is done."""

    peak: int | None = None


@contextmanager
def budget_of_worker(budget: int | None) -> Iterator[Held]:
    """Keep to the budget of one worker; ``None`` for none.

    Examples
    --------
    >>> import unspool as us
    >>> with budget_of_worker(1_000_000) as held:
    ...     _ = us.sum(us.ones(1000)).eval()
    >>> held.peak <= 1_000_000
    True
    """
    held = Held()
    if budget is None:
        yield held
        return
    _SHARED.enter(budget)
    try:
        yield held
    finally:
        held.peak = _SHARED.leave(budget)
