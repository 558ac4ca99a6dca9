"""How many bytes are alive, now and over the time of a run."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import unspool as us
from unspool._engine.default import default_engine

__all__ = ["LiveBytes"]

# What is held is counted at most this often, in seconds, and for at most this share of the time.
_INTERVAL, _SHARE = 0.02, 0.05


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

    def save(self) -> None:
        """Save what the block has noted so far; it thins out old samples when there are many new ones."""
        self._samples += self._memory._timeline

    def curve(self, until: float) -> Sequence[tuple[float, int]]:
        """Return (seconds, bytes) of all samples up to a time, in order."""
        samples = sorted({*self._memory._timeline, *self._samples})
        return [(at - self._begin, size) for at, size in samples if at - self._begin <= until]
