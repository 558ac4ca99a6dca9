"""How many bytes are alive, now and over the time of a run."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import unspool as us
from unspool._activity import ACTIVITY
from unspool._engine.default import default_engine
from unspool._watching.seen import asked

__all__ = ["LiveBytes"]

# What is held is counted at most this often, in seconds, and for at most this share of the time.
_INTERVAL, _SHARE = 0.02, 0.05

# While a gradient is computed, what the pass holds is looked at this often, in seconds.
_LOOK = 0.004


class LiveBytes:
    """The bytes that the engine holds inside a block of `unspool.memory`.

    The block notes its own samples where it has decisions to take; in between, and where there are none to take, the
    bytes are counted here.
    """

    def __init__(self, memory: us.memory) -> None:
        self._memory = memory
        self._ledger = default_engine().ledger
        self._begin = self._next = perf_counter()
        self._samples: list[tuple[float, int]] = []
        # When it was looked at from another thread, from when to when.
        self._watched: list[tuple[float, float]] = []

    @property
    def seconds(self) -> float:
        """The time since the beginning."""
        return perf_counter() - self._begin

    def now(self) -> int:
        """Count what is held, each array once."""
        began = perf_counter()
        count = self._ledger.held_bytes()
        ended = perf_counter()
        self._samples.append((began, count))
        self._next = ended + max(_INTERVAL, (ended - began) / _SHARE)
        return count

    def sample(self) -> None:
        """Count what is held, if that was not done a moment ago."""
        if perf_counter() >= self._next:
            self.now()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at what is held from another thread, in a block that computes one thing for long."""
        began = perf_counter()
        self.now()
        end = threading.Event()
        thread = threading.Thread(target=self._look, args=(end,), daemon=True)
        with ACTIVITY.looked_at():
            thread.start()
            try:
                yield
            finally:
                end.set()
                thread.join()
        self._watched.append((began, perf_counter()))
        self.now()

    def _look(self, end: threading.Event) -> None:
        while not end.wait(_LOOK):
            works = list(ACTIVITY.works)
            if works:
                held = self._ledger.noted + sum(asked(work.nbytes) for work in works)
                self._samples.append((perf_counter(), held))

    def save(self) -> None:
        """Save what the block has noted so far; it thins out old samples when there are many new ones."""
        self._samples += self._memory._timeline

    def curve(self, until: float) -> Sequence[tuple[float, int]]:
        """Return (seconds, bytes) of all samples up to a time, in order."""
        # What the block foresaw of a pass is more than it takes: where somebody looked, what was seen counts.
        noted = [s for s in self._memory._timeline if not any(begin < s[0] < end for begin, end in self._watched)]
        samples = sorted({*noted, *self._samples})
        return [(at - self._begin, size) for at, size in samples if at - self._begin <= until]
