"""What goes on now, for whoever looks on from another thread: loops and passes that run, and how far they are.

Nobody is told anything. Whoever does something long enters it here, if somebody looks, with functions that say how far
it is; whoever looks asks them when it draws. So a step of a loop pays nothing for being watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import length_hint
from typing import Any

from unspool._locks import get_ident
from unspool._records import Protocol

__all__ = ["ACTIVITY", "Activity", "CountedRange", "Work"]

# What is going on.
FORWARD, BACKWARD, SEARCH = "forward", "backward", "search"

# A part of the work that it is inside of, whose steps it adds to.
INNER = "inner"


class Work:
    """Something long that is being done.

    Attributes
    ----------
    kind : str
        `FORWARD`, `BACKWARD`, `SEARCH` or `INNER`.
    total : int or None
        How many steps it has, if that is known.
    done : callable
        Returns how many steps are done.
    nbytes : callable
        Returns the bytes that it holds beside what is noted elsewhere.
    again : callable
        Returns how many kernels were run again so far.
    thread : int
        The thread that does it.
    """

    __slots__ = ("again", "done", "kind", "nbytes", "thread", "total")

    def __init__(
        self,
        kind: str,
        total: int | None,
        done: Callable[[], int],
        nbytes: Callable[[], int] = int,
        again: Callable[[], int] = int,
    ) -> None:
        self.kind, self.total, self.done, self.nbytes, self.again = kind, total, done, nbytes, again
        self.thread = get_ident()


class Timer(Protocol):
    """Something that measures kernels which run one by one."""

    def run(
        self, op: Any, origin: tuple[Any, int], is_swept: bool, kernel: Callable[..., Any], arguments: Any, params: Any
    ) -> Any:
        """Return what a kernel gives, and note how long it took."""


class Activity:
    """What is being done, the innermost last, how many look on, and who measures kernels, if somebody does."""

    __slots__ = ("lookers", "timer", "works")

    def __init__(self) -> None:
        self.lookers = 0
        self.timer: Timer | None = None
        self.works: list[Work] = []

    @contextmanager
    def looked_at(self) -> Iterator[None]:
        """Say that somebody looks on in a block."""
        self.lookers += 1
        try:
            yield
        finally:
            self.lookers -= 1

    @contextmanager
    def doing(self, work: Work) -> Iterator[None]:
        """Enter something for as long as it goes on."""
        self.works.append(work)
        try:
            yield
        finally:
            self.works.remove(work)


class CountedRange:
    """A range whose steps can be counted from another thread while somebody goes through it.

    An iterator over a range knows how much is left of it, so a loop in Python pays nothing. A native loop counts in the
    ``counter``, an array of one integer.
    """

    __slots__ = ("_iterator", "_range", "counter")

    def __init__(self, steps: range, counter: Any) -> None:
        self._range, self.counter = steps, counter
        self._iterator: Iterator[int] | None = None

    @property
    def start(self) -> int:
        """The first step."""
        return self._range.start

    @property
    def step(self) -> int:
        """From one step to the next."""
        return self._range.step

    def __len__(self) -> int:
        return len(self._range)

    def __iter__(self) -> Iterator[int]:
        self._iterator = iter(self._range)
        return self._iterator

    def done(self) -> int:
        """Return how many steps are done."""
        iterator = self._iterator
        begun = 0 if iterator is None else len(self._range) - length_hint(iterator) - 1
        return max(begun, int(self.counter[0]))


ACTIVITY = Activity()
