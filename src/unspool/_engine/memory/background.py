"""What a thread of a pool makes while whoever asked for it goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from unspool.errors import ArgumentError

Item = TypeVar("Item")


def check_pool(pool: Any, what: str) -> None:
    """Refuse what is no pool of threads: the values of a loop are in this process."""
    if pool is None:
        return
    if not callable(getattr(pool, "submit", None)):
        raise ArgumentError(f"the pool of {what} is one of threads, with submit(function), got {pool!r}")
    if pool.submit(os.getpid).result() != os.getpid():
        raise ArgumentError(f"the pool of {what} has threads of this process as workers, got {pool!r}")


class Meanwhile(Generic[Item]):
    """The result of a function that a pool was asked to call.

    What the pool has not begun when the result is asked for is made by who asks: a pool that is busy, closed or broken
    costs time, and nobody waits for itself.
    """

    __slots__ = ("_future", "_make")

    def __init__(self, pool: Any, make: Callable[[], Item]) -> None:
        self._make = make
        self._future: Any = None
        with suppress(RuntimeError):  # it was shut down
            self._future = pool.submit(make)

    def result(self) -> Item:
        """Return the result, or raise what the function raised."""
        if self._future is not None and not self._future.cancel():
            try:
                found: Item = self._future.result()
            except BrokenExecutor:  # it ended before it began with this
                return self._make()
            return found
        return self._make()

    def leave(self) -> None:
        """Wait until nobody is making it, and forget it."""
        if self._future is not None and not self._future.cancel():
            self._future.exception()
