"""What users say of a run: how often it is written, how many states are kept, how many steps there are to be."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, SupportsIndex

from unspool.errors import ArgumentError

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "ms": 1e-3}


def as_seconds(every: Any) -> float:
    """Return a time as seconds."""
    given = every
    if isinstance(every, timedelta):
        every = every.total_seconds()
    if isinstance(every, str):
        match = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", every)
        unit = None if match is None else _UNITS.get(match[2])
        try:
            every = None if match is None or unit is None else float(match[1]) * unit
        except ValueError:
            every = None
    if isinstance(every, bool) or not isinstance(every, int | float) or not every >= 0:
        raise ArgumentError(f"every is a time such as '30s', '5min' or '2h', or a number of seconds, got {given!r}")
    return float(every)


def as_states(states: Any) -> int:
    """Return how many states are kept."""
    if isinstance(states, bool) or not isinstance(states, int) or states < 3:
        raise ArgumentError(f"states is a number from 3 on, got {states!r}")
    return states


def as_total(n: Any) -> int:
    """Return the number of all steps of a run."""
    if not isinstance(n, SupportsIndex) or n.__index__() < 0:
        raise ArgumentError(f"run.steps takes the number of all steps, got {n!r}")
    return n.__index__()
