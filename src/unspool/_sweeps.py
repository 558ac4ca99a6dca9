"""Which nodes derivative sweeps made, by their ids: what reports tell apart as forward and backward.

Ids count up, so a sweep is a range of them, which is open while it goes on. Threads record side by side and may get
into each other's ranges: this is for people to read, and decides nothing.
"""

from __future__ import annotations

from bisect import bisect_right

# The ids at which sweeps began and ended, in turn, as far as they are remembered, and how many are going on.
_ends: list[int] = []
_open = [0]
_MOST = 1 << 14


def begin_sweep(first: int) -> None:
    """Note that a sweep makes what comes from an id on."""
    if not _open[0]:
        _ends.append(first)
    _open[0] += 1


def end_sweep(last: int) -> None:
    """Note that it has ended."""
    _open[0] -= 1
    if not _open[0]:
        _ends.append(last)
        if len(_ends) > _MOST:
            del _ends[: _MOST // 2]


def is_swept(identity: float) -> bool:
    """Whether a sweep made the node with an id."""
    return bisect_right(_ends, identity) % 2 == 1
