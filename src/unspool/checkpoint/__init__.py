"""Memory against recomputation: what to keep of a loop, what to run again, and when.

The names here are for segments that are chosen by hand. The schedules behind `unspool.memory` and
`unspool.Checkpointed` are in modules of their own and know nothing of tensors: `binomial` for a known number of steps,
`online` for an unknown one, `planner` to divide a budget. In `_schedule` states and residuals share one room.
`spill` keeps arrays in files.
"""

from __future__ import annotations

from unspool.checkpoint.segments import CheckpointConfig, CheckpointSegment, plan_recomputation

__all__ = ["CheckpointConfig", "CheckpointSegment", "plan_recomputation"]


def __dir__() -> list[str]:
    return sorted(__all__)
