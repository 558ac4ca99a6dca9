"""Memory against recomputation: what to keep of a loop, what to run again, and when.

The names here are for segments that are chosen by hand. The schedules are in modules of their own and know nothing of
tensors. `_schedule` is that of `unspool.Checkpointed`, in which states and residuals share one room. Behind
`unspool.memory` are `binomial` for a known number of steps, `online` for an unknown one, and `planner` to divide a
budget. `spill` keeps arrays in files.
"""

from __future__ import annotations

from unspool.checkpoint.segments import CheckpointConfig, CheckpointSegment, plan_recomputation

__all__ = ["CheckpointConfig", "CheckpointSegment", "plan_recomputation"]


def __dir__() -> list[str]:
    return sorted(__all__)
