"""What a schedule is made of: rows of four integers, in chunks that one interpreter runs.

A row is (kind, first, stop, slot). There is one *current* state, slots for saved states, and one *tape* of neighbouring
steps that ends at the current state. A slot below 0 is on disk; the others are in memory, numbered from 0.

| kind | does |
|---|---|
| ADVANCE | runs the steps from first up to, not including, stop, from the current state; what is taped is evicted |
| TAPE | runs and tapes them; the newest ``slot`` steps stay taped, older ones are evicted before the next one runs |
| REVERSE | reverses them, the newest first; they are the newest ones on the tape, and leave it |
| SAVE | puts state first, the current one or that of a step on the tape, into the slot: a change of owner, no copy |
| LOAD | makes state first, in the slot, the current one |
| FREE | empties the slot, which has state first |
| WRITE | writes state first, the current one or that of a step on the tape, to the slot on disk |

On the way forward TAPE makes the state after its last step, which the loop goes on from. In the backward pass nobody
reads that: the last step is run for its residuals alone, which is no run at all where a step has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADVANCE", "CHUNK", "FREE", "LOAD", "REVERSE", "SAVE", "TAPE", "WRITE", "Rows", "chunks", "rows"]

Rows: TypeAlias = NDArray[np.int64]

ADVANCE: Final = 0
TAPE: Final = 1
REVERSE: Final = 2
SAVE: Final = 3
LOAD: Final = 4
FREE: Final = 5
WRITE: Final = 6

# The most rows in a chunk: few enough to be made lazily, enough that one call for each does not count.
CHUNK: Final = 1024


def rows(*actions: tuple[int, int, int, int]) -> Rows:
    """Return actions as an array of rows."""
    return np.array(actions, np.int64).reshape(-1, 4)


def chunks(blocks: Iterable[Rows]) -> Iterator[Rows]:
    """Yield the rows of blocks of any size in chunks of at most `CHUNK` rows, lazily."""
    waiting: list[Rows] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= CHUNK:
            joined = np.concatenate(waiting)
            whole = count - count % CHUNK
            yield from np.split(joined[:whole], whole // CHUNK)
            waiting, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(waiting)
