"""What the engine did, in numbers: the counters behind `unspool.engine_stats`."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class Statistics:
    """Counters that only grow, until they are reset."""

    evaluations: int = 0
    fragments_made: int = 0
    calls_placed: int = 0
    plan_hits: int = 0
    plan_misses: int = 0
    kernel_calls: int = 0
    derivatives_made: int = 0
    slabs_dropped: int = 0

    def reset(self) -> None:
        """Set every counter to zero."""
        for field in fields(self):
            setattr(self, field.name, 0)
