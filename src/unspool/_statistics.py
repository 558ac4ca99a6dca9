"""Counters of what is made and run; `unspool.engine_stats` shows them. They are below all that counts."""

from __future__ import annotations

from unspool import _core
from unspool._core import CountersBase


class Statistics(CountersBase):
    """Counters that only grow, until they are reset."""

    __slots__ = ()

    def reset(self) -> None:
        """Set every counter to zero."""
        self.evaluations = self.fragments = self.calls = self.chains = self.derivatives = 0
        self.plan_hits = self.plan_misses = self.kernel_calls = self.slabs_dropped = 0


# The counters of the default engine. Fragments and calls are made below the engine, so they count here.
STATISTICS = Statistics()
_core.bind(counters=STATISTICS)
