"""Which pieces a worker is asked for at once: short ones travel together.

To send a piece to another process and its results back takes this one some tenths of a millisecond, which is time of a
core that workers could use. How long pieces take shows when the first have come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Seconds that an errand takes, about, if its pieces take less.
_SECONDS = 0.05

# Errands for each worker at the end, when nobody knows who will be the last.
_LEFT = 2

# Errands of a pool that does not tell how many workers it has.
_AHEAD = 256


class Errands:
    """Pieces in order, as errands of one or more, the longer the less a piece takes.

    Attributes
    ----------
    ahead : int
        How many errands a pool is given at a time.

    Examples
    --------
    >>> errands = Errands([(k, k + 1) for k in range(12)], workers=2)
    >>> first = next(errands)
    >>> errands.took(0.02, len(first))
    >>> [*first, *next(errands)], len(list(errands))
    ([(0, 1), (1, 2), (2, 3)], 8)
    """

    def __init__(self, pieces: Sequence[tuple[int, int]], workers: int | None) -> None:
        self._pieces = pieces
        self._workers = workers
        self._given = self._done = 0
        self._seconds = 0.0
        self.ahead = _AHEAD if workers is None else 2 * workers + 2

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return self

    def __next__(self) -> list[tuple[int, int]]:
        left = len(self._pieces) - self._given
        if not left:
            raise StopIteration
        count = 1
        if self._workers is not None and self._done:
            most = round(_SECONDS * self._done / max(self._seconds, 1e-9))
            count = max(1, min(most, left // (_LEFT * self._workers)))
        found = list(self._pieces[self._given : self._given + count])
        self._given += count
        return found

    def took(self, seconds: float, pieces: int) -> None:
        """Note how long some pieces took."""
        self._seconds += seconds
        self._done += pieces


def workers_of(pool: Any) -> int | None:
    """Return how many workers a pool has that works as those of `concurrent.futures` do; ``None`` for others."""
    found = getattr(pool, "_max_workers", None)
    return found if isinstance(found, int) else None
